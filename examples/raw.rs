//! An embedder that drives `cranelift-codegen` itself and has no `cranelift-module`: it numbers its
//! functions, compiles each by `Context::compile`, lays the code out in one buffer, and resolves the calls in it.
//! Two units are compiled, one after the other; functions of the second unit that equal functions of the first are
//! merged into those.
//!
//! ```text
//! cargo run --example raw
//! ```
//!
//! Nothing is run, so code is made for x86-64 and for aarch64 wherever this runs. Every call is checked to lead to
//! the code of a function that equals the one that the front end meant.

use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{ExternalName, Function, UserExternalName};
use cranelift_codegen::isa::{self, TargetIsa};
use cranelift_codegen::{Context, FinalizedRelocTarget, settings};
use cranelift_mergefunc::cranelift_codegen;
use cranelift_mergefunc::{
    Addresses, Attributes, CallThunks, Emit, Linkage, MergeCache, MergeMap, Merger, Options,
    Output, Plan, Target, Thunk, ThunkReloc,
};
use std::collections::HashMap;
use std::error::Error;

/// The attributes that the embedder gives its functions; the number of a function is its place in this list.
const FUNCTIONS: [(&str, Linkage, Addresses); 12] = [
    ("norm", Linkage::Export, Addresses::Significant),
    ("dot", Linkage::Local, Addresses::Significant),
    ("energy", Linkage::Export, Addresses::Significant),
    ("power", Linkage::Export, Addresses::Insignificant),
    ("even", Linkage::Local, Addresses::Significant),
    ("odd", Linkage::Local, Addresses::Significant),
    ("whole", Linkage::Local, Addresses::Significant),
    ("half", Linkage::Local, Addresses::Significant),
    ("sum", Linkage::Export, Addresses::Significant),
    ("square", Linkage::Local, Addresses::Significant),
    ("total", Linkage::Export, Addresses::Significant),
    ("main", Linkage::Export, Addresses::Significant),
];

/// The units, as the front end makes them.
const UNITS: [&str; 2] = [
    // The first four are equal, and so are two pairs that call each other.
    "
function u0:0(i64, i64) -> i64 {
block0(v0: i64, v1: i64): v2 = imul v0, v0  v3 = imul v1, v1  v4 = iadd v2, v3  return v4 }
function u0:1(i64, i64) -> i64 {
block0(v1: i64, v0: i64): v2 = imul v1, v1  v3 = imul v0, v0  v4 = iadd v3, v2  return v4 }
function u0:2(i64, i64) -> i64 {
block0(v0: i64, v1: i64): v4 = imul v0, v0  v3 = imul v1, v1  v2 = iadd v4, v3  return v2 }
function u0:3(i64, i64) -> i64 {
block0(v0: i64, v1: i64): v2 = imul v0, v0  v3 = imul v1, v1  v4 = iadd v2, v3  return v4 }
function u0:4(i64) -> i64 {
    fn0 = colocated u0:5(i64) -> i64
block0(v0: i64): brif v0, block1, block2
block1: v1 = iconst.i64 -1  v2 = iadd v0, v1  v3 = call fn0(v2)  return v3
block2: v4 = iconst.i64 1  return v4 }
function u0:5(i64) -> i64 {
    fn0 = colocated u0:4(i64) -> i64
block0(v0: i64): brif v0, block1, block2
block1: v1 = iconst.i64 -1  v2 = iadd v0, v1  v3 = call fn0(v2)  return v3
block2: v4 = iconst.i64 0  return v4 }
function u0:6(i64) -> i64 {
    fn0 = colocated u0:7(i64) -> i64
block0(v0: i64): brif v0, block1, block2
block1: v1 = iconst.i64 -1  v2 = iadd v0, v1  v3 = call fn0(v2)  return v3
block2: v4 = iconst.i64 1  return v4 }
function u0:7(i64) -> i64 {
    fn0 = colocated u0:6(i64) -> i64
block0(v0: i64): brif v0, block1, block2
block1: v1 = iconst.i64 -1  v2 = iadd v0, v1  v3 = call fn0(v2)  return v3
block2: v4 = iconst.i64 0  return v4 }
function u0:8(i64, i64) -> i64 {
    fn0 = colocated u0:1(i64, i64) -> i64
    fn1 = colocated u0:6(i64) -> i64
block0(v0: i64, v1: i64): v2 = call fn0(v0, v1)  v3 = call fn1(v2)  return v3 }
",
    // The first equals functions of the unit before, and so the second equals `sum`; the third is new.
    "
function u0:9(i64, i64) -> i64 {
block0(v0: i64, v1: i64): v2 = imul v0, v0  v3 = imul v1, v1  v4 = iadd v2, v3  return v4 }
function u0:10(i64, i64) -> i64 {
    fn0 = colocated u0:9(i64, i64) -> i64
    fn1 = colocated u0:4(i64) -> i64
block0(v0: i64, v1: i64): v2 = call fn0(v0, v1)  v3 = call fn1(v2)  return v3 }
function u0:11(i64) -> i64 {
    fn0 = colocated u0:9(i64, i64) -> i64
    fn1 = colocated u0:10(i64, i64) -> i64
block0(v0: i64): v1 = call fn0(v0, v0)  v2 = call fn1(v0, v1)  return v2 }
",
];

fn symbol_of(func: &Function) -> UserExternalName {
    func.name.get_user().expect("functions are named by number").clone()
}

fn attributes_of(symbol: &UserExternalName) -> Attributes {
    let (_, linkage, addresses) = FUNCTIONS[symbol.index as usize];
    Attributes { linkage, addresses, ..Attributes::default() }
}

fn name_of(symbol: &UserExternalName) -> String {
    FUNCTIONS[symbol.index as usize].0.to_owned()
}

/// A function's code, not yet at its place.
#[derive(Clone)]
struct Compiled {
    code: Vec<u8>,
    alignment: u32,
    calls: Vec<Call>,
}

/// A place in code from where a function is called.
#[derive(Clone)]
struct Call {
    /// In bytes, from the beginning of the code.
    at: usize,
    kind: Reloc,
    addend: i64,
    callee: UserExternalName,
}

fn compile(func: &Function, isa: &dyn TargetIsa) -> Result<Compiled, Box<dyn Error>> {
    let mut context = Context::for_function(func.clone());
    let compiled = context
        .compile(isa, &mut ControlPlane::default())
        .map_err(|error| format!("{}: {:?}", func.name, error.inner))?;
    let mut calls = Vec::new();
    for reloc in compiled.buffer.relocs() {
        let FinalizedRelocTarget::ExternalName(ExternalName::User(name)) = &reloc.target else {
            return Err(format!("{}: a reference to {:?}", func.name, reloc.target).into());
        };
        let callee = func.params.user_named_funcs()[*name].clone();
        calls.push(Call {
            at: reloc.offset as usize,
            kind: reloc.kind,
            addend: reloc.addend,
            callee,
        });
    }
    let alignment = compiled.buffer.alignment.max(isa.function_alignment().minimum);
    Ok(Compiled { code: compiled.code_buffer().to_vec(), alignment, calls })
}

/// All code, and what is known of it.
struct Image<'a> {
    isa: &'a dyn TargetIsa,
    code: Vec<u8>,
    /// Where the functions are: bodies, thunks and aliases.
    starts: HashMap<UserExternalName, usize>,
    /// The merge cache, so that functions of later units are merged into emitted ones.
    cache: MergeCache,
    map: MergeMap,
    calls_checked: usize,
}

impl Image<'_> {
    /// Merges and compiles a unit, and appends its code to the image. Returns how many bytes the unit takes
    /// without merging.
    fn add_unit(&mut self, mut functions: Vec<Function>) -> Result<usize, Box<dyn Error>> {
        let options = Options {
            // The thunks that the target supports.
            target: Target::of(self.isa),
            // Two functions may have one address here.
            aliases: true,
            ..Options::default()
        };
        let mut merger = Merger::after(&self.cache, options);
        for func in &functions {
            let symbol = symbol_of(func);
            let attributes = attributes_of(&symbol);
            merger.add(symbol, func, attributes)?;
        }
        let (plan, increment) = merger.plan_increment(&mut functions);

        let mut bytes_before = 0;
        let mut calls = Vec::new();
        let mut aliases = Vec::new();
        // The functions that were added come first, in the same order. With these options the plan adds none.
        for (output, func) in plan.outputs().zip(&mut functions) {
            let Output { function, symbol, alignment, emit } = output;
            let before = compile(func, self.isa)?;
            bytes_before += before.code.len();
            match emit {
                Emit::Body | Emit::NewBody(_) => {
                    // Applying the plan and compiling can be done by many threads: the plan does not change.
                    let mut after = match plan.needs_apply(func) {
                        true => {
                            plan.apply(function, func);
                            compile(func, self.isa)?
                        }
                        // What was compiled before the plan was made can be emitted.
                        false => before.clone(),
                    };
                    for call in &after.calls {
                        self.check_leads(&plan, symbol, &call.callee)?;
                    }
                    after.alignment = after.alignment.max(alignment);
                    let start = self.place(symbol, after.alignment, &after.code);
                    for (call, before) in after.calls.into_iter().zip(before.calls) {
                        calls.push((Call { at: start + call.at, ..call }, before.callee));
                    }
                }
                Emit::Thunk { .. } => {
                    let call_thunks = CallThunks::of(self.isa);
                    let thunk =
                        plan.thunk(function, &func.signature, &options.target, &call_thunks);
                    let Some(Thunk::Code(thunk)) = thunk else {
                        return Err(format!("{symbol} has no thunk in raw bytes").into());
                    };
                    for relocation in &thunk.relocations {
                        self.check_leads(&plan, symbol, &relocation.symbol)?;
                    }
                    let start = self.place(symbol, before.alignment, &thunk.bytes);
                    for ThunkReloc { offset, kind, symbol: callee, addend } in thunk.relocations {
                        let call = Call { at: start + offset as usize, kind, addend, callee };
                        calls.push((call, symbol.clone()));
                    }
                }
                Emit::Alias { to } => {
                    self.check_leads(&plan, symbol, to)?;
                    aliases.push((symbol, to));
                }
                // Nothing refers to it any more.
                Emit::Nothing => {}
            }
        }
        for (alias, to) in aliases {
            self.starts.insert(alias.clone(), self.starts[to]);
        }
        for original in MergeMap::of(&plan, name_of).originals() {
            self.map.add(original.clone());
        }
        for (call, meant) in &calls {
            self.resolve(call)?;
            self.check(call, meant)?;
        }
        // The cache is extended only now, because no function may be merged into one that could not be compiled.
        self.cache.extend(&increment);
        Ok(bytes_before)
    }

    /// Refuses a reference to a function that was merged away and has no code, before the code is placed that has it:
    /// a wrong plan.
    fn check_leads(
        &self,
        plan: &Plan,
        of: &UserExternalName,
        symbol: &UserExternalName,
    ) -> Result<(), Box<dyn Error>> {
        match self.cache.without_code(plan, symbol) {
            None => Ok(()),
            Some(why) => Err(format!("{} refers to {why}", name_of(of)).into()),
        }
    }

    /// Appends code to the image, and returns its offset.
    fn place(&mut self, symbol: &UserExternalName, alignment: u32, code: &[u8]) -> usize {
        let start = self.code.len().next_multiple_of(alignment as usize);
        self.code.resize(start, 0);
        self.code.extend_from_slice(code);
        self.starts.insert(symbol.clone(), start);
        self.map.place(symbol.clone(), start as u64, code.len() as u64);
        start
    }

    fn word(&self, at: usize) -> [u8; 4] {
        *self.code[at..].first_chunk().expect("a relocation is in the code")
    }

    /// Makes a call reach its function.
    fn resolve(&mut self, call: &Call) -> Result<(), Box<dyn Error>> {
        let Some(&target) = self.starts.get(&call.callee) else {
            return Err(format!("{} was never placed", call.callee).into());
        };
        let distance = target as i64 + call.addend - call.at as i64;
        let word = match call.kind {
            Reloc::X86CallPCRel4 => i32::try_from(distance)?.to_le_bytes(),
            // 26 bits, in instructions.
            Reloc::Arm64Call if (distance >> 2) << 38 >> 38 == distance >> 2 => {
                let instruction = u32::from_le_bytes(self.word(call.at));
                (instruction | (distance >> 2) as u32 & 0x03ff_ffff).to_le_bytes()
            }
            kind => return Err(format!("cannot resolve {kind:?} over {distance} bytes").into()),
        };
        self.code[call.at..call.at + 4].copy_from_slice(&word);
        Ok(())
    }

    /// Reads a call in the code as the processor does, and checks that it leads to the function that was meant.
    fn check(&mut self, call: &Call, meant: &UserExternalName) -> Result<(), Box<dyn Error>> {
        let word = i32::from_le_bytes(self.word(call.at));
        let reached = match call.kind {
            Reloc::X86CallPCRel4 => call.at as i64 + 4 + i64::from(word),
            _ => call.at as i64 + i64::from(word << 6 >> 6) * 4,
        } as u64;
        let begins_here = self.map.at(reached).is_some_and(|code| code.start == reached);
        let may_replace = self.map.originals_at(reached).any(|original| original.symbol == *meant);
        if !begins_here || !may_replace {
            return Err(format!("at {:#x}, {meant} is not at {reached:#x}", call.at).into());
        }
        self.calls_checked += 1;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    for target in ["x86_64", "aarch64"] {
        let flags = settings::Flags::new(settings::builder());
        let isa = isa::lookup_by_name(target)?.finish(flags)?;
        let mut image = Image {
            isa: &*isa,
            code: Vec::new(),
            starts: HashMap::new(),
            cache: MergeCache::new(),
            map: MergeMap::new(),
            calls_checked: 0,
        };
        println!("{target}");
        for (unit, number) in UNITS.into_iter().zip(1..) {
            let functions = cranelift_reader::parse_functions(unit)?;
            let (count, start) = (functions.len(), image.code.len());
            let before = image.add_unit(functions)?;
            let after = image.code.len() - start;
            println!("  unit {number}: {count} functions, {before} -> {after} bytes");
        }
        let Image { map, cache, calls_checked, .. } = &image;
        println!("  {calls_checked} calls and jumps lead where they should");
        println!("  {} bytes to remember {} functions by", cache.size(), cache.remembered());
        println!("  start size (hexadecimal) functions");
        for line in map.perf_map().to_string().lines() {
            println!("  {line}");
        }
    }
    Ok(())
}
