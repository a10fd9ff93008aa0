//! Random programs that trap: do the frames of a merged program name the functions and the source
//! locations of the unmerged one?
//!
//! Functions of a program are layers, each of which calls the one below, and most of them come in
//! families: equal ones, and ones that differ in constants, callees or an operation. Every
//! instruction has a source location of its own. The unmerged program is compiled by Cranelift's
//! own JIT, from whose tables its frames are read, without this project.

use crate::jit::{self, Run};
use crate::modules;
use crate::support::Rng;
use cranelift_codegen::ir::{SourceLoc, UserExternalName};
use cranelift_codegen::{Final, MachSrcLoc};
use cranelift_jit::JITModule;
use cranelift_mergefunc::cranelift_codegen;
use cranelift_mergefunc::explain::{FrameTable, MergeMap};
use cranelift_mergefunc::{Addresses, Policy, Similar};
use cranelift_mergefunc_frames::{Place, Table};
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::{AddAssign, Range};

/// The counts of observed programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Programs that trapped.
    pub trapped: usize,
    /// Frames.
    pub frames: usize,
    /// Frames in code that several functions share.
    pub shared: usize,
    /// Of these, frames of which all callers call directly: they have one function.
    pub exact: usize,
    /// Of the others, frames with several functions, one of which is the right one.
    pub candidates: usize,
    /// Bytes of the tables of frames, and of the code.
    pub table: [usize; 2],
}

impl AddAssign for Seen {
    fn add_assign(&mut self, other: Seen) {
        let Seen { trapped, frames, shared, exact, candidates, table } = other;
        self.trapped += trapped;
        self.frames += frames;
        self.shared += shared;
        self.exact += exact;
        self.candidates += candidates;
        self.table[0] += table[0];
        self.table[1] += table[1];
    }
}

/// The callee of an instruction, by its source location.
#[derive(Clone, Debug)]
enum Called {
    Directly(String),
    ThroughPointer,
}

/// A frame of the unmerged program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct True {
    name: String,
    location: u32,
}

struct Program {
    text: String,
    calls: BTreeMap<u32, Called>,
    /// The functions that end in a tail call: a frame can be that of the function that it leads to.
    tail_calling: BTreeSet<String>,
    /// The names of the functions, `main` last.
    names: Vec<String>,
}

/// Draws programs.
struct Writer {
    rng: Rng,
    convention: &'static str,
    location: u32,
    calls: BTreeMap<u32, Called>,
    tail_calling: BTreeSet<String>,
}

/// The common part of all functions of a family.
#[derive(Clone, Debug)]
struct Family {
    statements: Vec<Statement>,
    tail_call: bool,
}

#[derive(Clone, Copy, Debug)]
enum Statement {
    /// An operation on two earlier values, and whether it can differ.
    Operation(u8, bool),
    /// An operation on an earlier value and a constant.
    Constant(u8),
    /// Traps if some bits of an earlier value are zero.
    TrapZ(u8),
    Divide(u8),
    /// Loads from address zero if some bits of an earlier value are zero.
    Load(u8),
    Call,
    CallPointer,
    /// Calls one of two functions.
    Branch,
}

impl Writer {
    fn family(&mut self, leaf: bool) -> Family {
        let count = 6 + self.rng.below(14);
        let statements = (0..count).map(|_| {
            let bits = 1 + self.rng.below(3) as u8;
            match self.rng.below(if leaf { 9 } else { 14 }) {
                0..3 => Statement::Operation(self.rng.below(4) as u8, self.rng.one_in(3)),
                3..6 => Statement::Constant(self.rng.below(4) as u8),
                6 => Statement::TrapZ(bits),
                7 => Statement::Divide(bits),
                8 => Statement::Load(bits),
                9..11 => Statement::Call,
                11 => Statement::CallPointer,
                _ => Statement::Branch,
            }
        });
        let statements = statements.collect();
        let tail_call = !leaf && self.convention == "tail" && self.rng.one_in(4);
        Family { statements, tail_call }
    }

    fn at(&mut self) -> String {
        self.location += 1 + self.rng.below(3) as u32;
        format!("@{:04x}", self.location)
    }

    /// Writes an operation on a value and a constant. Returns the number of the result: the second
    /// from `next`.
    fn with_constant(
        &mut self,
        body: &mut String,
        op: &str,
        value: usize,
        constant: usize,
        next: usize,
    ) -> usize {
        let _ = writeln!(body, "{} v{next} = iconst.i64 {constant}", self.at());
        let _ = writeln!(body, "{} v{} = {op} v{value}, v{next}", self.at(), next + 1);
        next + 1
    }

    /// Writes a function of a family that calls functions of the layer below, and in its last call
    /// this one, if it is a tail call.
    fn function(
        &mut self,
        (name, seed): (&str, u64),
        family: &Family,
        below: &[String],
        last_call: Option<String>,
    ) -> String {
        let conv = if name == "main" { "system_v" } else { self.convention };
        // Functions with one seed are equal.
        let mut own = Rng::new(seed);
        let mut callees: Vec<String> = Vec::new();
        let mut body = String::new();
        let (mut values, mut next, mut blocks) = (vec![0_usize], 1_usize, 1_usize);
        let mut callee = |own: &mut Rng| {
            let callee = own.choose(below);
            let known = callees.iter().position(|known| *known == callee);
            let at = known.unwrap_or_else(|| {
                callees.push(callee.clone());
                callees.len() - 1
            });
            (at, callee)
        };
        let mut shape = Rng::new(family.statements.len() as u64);
        for statement in &family.statements {
            let [a, b] = [0, 1].map(|_| values[shape.below(values.len())]);
            match *statement {
                Statement::Operation(op, differs) => {
                    let op = if differs { own.below(4) } else { usize::from(op) };
                    let op = ["iadd", "bxor", "isub", "imul"][op];
                    let _ = writeln!(body, "{} v{next} = {op} v{a}, v{b}", self.at());
                }
                Statement::Constant(op) => {
                    let op = ["iadd", "ushr", "imul", "rotl"][usize::from(op)];
                    let constant = 1 + own.below(60);
                    next = self.with_constant(&mut body, op, a, constant, next);
                }
                Statement::TrapZ(bits) => {
                    let mask = (8 << bits) - 1;
                    next = self.with_constant(&mut body, "band", a, mask, next);
                    let _ = writeln!(body, "{} trapz v{next}, user{}", self.at(), 1 + own.below(3));
                }
                Statement::Divide(bits) => {
                    let mask = (8 << bits) - 1;
                    next = self.with_constant(&mut body, "band", a, mask, next);
                    let _ = writeln!(body, "{} v{} = udiv v{b}, v{next}", self.at(), next + 1);
                    next += 1;
                }
                Statement::Load(bits) => {
                    let mask = (8 << bits) - 1;
                    next = self.with_constant(&mut body, "band", a, mask, next);
                    let _ = writeln!(body, "{} v{} = stack_addr.i64 ss0", self.at(), next + 1);
                    let _ = writeln!(body, "{} v{} = iconst.i64 0", self.at(), next + 2);
                    let (c, p, z, q) = (next, next + 1, next + 2, next + 3);
                    let _ = writeln!(body, "{} v{q} = select v{c}, v{p}, v{z}", self.at());
                    let offset = 8 * own.below(4);
                    let _ = writeln!(body, "{} v{} = load.i64 v{q}+{offset}", self.at(), next + 4);
                    next += 5;
                    // The memory may hold anything.
                    let _ = writeln!(body, "{} v{next} = iadd v{c}, v{b}", self.at());
                }
                Statement::Call => {
                    let (at, called) = callee(&mut own);
                    let _ = writeln!(body, "{} v{next} = call fn{at}(v{a})", self.at());
                    self.calls.insert(self.location, Called::Directly(called));
                }
                Statement::CallPointer => {
                    let (at, _) = callee(&mut own);
                    let _ = writeln!(body, "{} v{next} = func_addr.i64 fn{at}", self.at());
                    let pointer = next;
                    next += 1;
                    let at = self.at();
                    let _ = writeln!(body, "{at} v{next} = call_indirect sig0, v{pointer}(v{a})");
                    self.calls.insert(self.location, Called::ThroughPointer);
                }
                Statement::Branch => {
                    let ways = [callee(&mut own), callee(&mut own)];
                    let (one, join) = (blocks, blocks + 2);
                    next = self.with_constant(&mut body, "band", a, 4, next);
                    let at = self.at();
                    let _ = writeln!(body, "{at} brif v{next}, block{one}, block{}", one + 1);
                    for (way, (at, called)) in ways.into_iter().enumerate() {
                        next += 1;
                        let _ = writeln!(body, "block{}:", one + way);
                        let _ = writeln!(body, "{} v{next} = call fn{at}(v{b})", self.at());
                        self.calls.insert(self.location, Called::Directly(called));
                        let _ = writeln!(body, "{} jump block{join}(v{next})", self.at());
                    }
                    next += 1;
                    let _ = writeln!(body, "block{join}(v{next}: i64):");
                    blocks += 3;
                }
            }
            values.push(next);
            next += 1;
        }
        let last = values[values.len() - 1];
        let _ =
            writeln!(body, "{} v{next} = bxor v{last}, v{}", self.at(), values[values.len() / 2]);
        if family.tail_call {
            self.tail_calling.insert(name.to_owned());
            let called = last_call.unwrap_or_else(|| own.choose(below));
            callees.push(called.clone());
            let at = callees.len() - 1;
            let _ = writeln!(body, "{} return_call fn{at}(v{next})", self.at());
            self.calls.insert(self.location, Called::Directly(called));
        } else {
            let _ = writeln!(body, "{} return v{next}", self.at());
        }
        let word = if name == "main" { "export" } else { "local" };
        let mut text =
            format!("{word} function %{name}(i64) -> i64 {conv} {{\n ss0 = explicit_slot 64\n");
        let _ = writeln!(text, " sig0 = (i64) -> i64 {}", self.convention);
        for (at, callee) in callees.iter().enumerate() {
            let _ = writeln!(text, " fn{at} = colocated %{callee} sig0");
        }
        text + "block0(v0: i64):\n" + &body + "}\n"
    }

    fn program(mut self) -> Program {
        let (mut text, mut names, mut below) = (String::new(), Vec::new(), Vec::new());
        for layer in 0..3 {
            let mut here = Vec::new();
            for _ in 0..1 + self.rng.below(2) {
                let family = self.family(layer == 0);
                let mut seeds: Vec<u64> = Vec::new();
                for _ in 0..2 + self.rng.below(4) {
                    let seed = match seeds.first() {
                        Some(&seed) if self.rng.one_in(3) => seed,
                        _ => self.rng.word(),
                    };
                    seeds.push(seed);
                    let name = format!("f{}", names.len());
                    // A tail call can lead to a function that shares the code.
                    let last_call = if seeds.len() > 1 { here.last().cloned() } else { None };
                    text += &self.function((&name, seed), &family, &below, last_call);
                    names.push(name.clone());
                    here.push(name);
                }
            }
            below = here;
        }
        let mut family = self.family(false);
        family.tail_call = false;
        family.statements.insert(0, Statement::Call);
        family.statements.push(Statement::Call);
        let seed = self.rng.word();
        text += &self.function(("main", seed), &family, &below, None);
        names.push("main".into());
        Program { text, calls: self.calls, tail_calling: self.tail_calling, names }
    }
}

fn empty(speed: bool) -> JITModule {
    let settings = [
        ("is_pic", "false"),
        ("use_colocated_libcalls", "false"),
        ("preserve_frame_pointers", "true"),
        ("opt_level", crate::isa::opt_level(speed)),
    ];
    jit::module(crate::isa::native(&settings), |_| {})
}

/// The program as Cranelift's JIT compiles it.
struct Unmerged {
    module: JITModule,
    /// The functions by their addresses.
    code: BTreeMap<u64, (String, Vec<MachSrcLoc<Final>>)>,
    within: Range<u64>,
    main: *const u8,
}

impl Unmerged {
    fn new(program: &Program, speed: bool) -> Unmerged {
        let mut module = empty(speed);
        modules::declare_all(&mut module, &program.text);
        let (mut compiled, mut total) = (Vec::new(), 0);
        for (name, text) in program.names.iter().zip(functions(&program.text)) {
            let context = modules::define(&mut module, text).expect("a program");
            let buffer = &context.compiled_code().expect("compiled").buffer;
            total += buffer.total_size() as usize;
            compiled.push((name, buffer.get_srclocs_sorted().to_vec()));
        }
        module.finalize_definitions().expect("a program");
        let address = |name: &str| module.get_finalized_function(modules::id(&module, name));
        let code: BTreeMap<u64, (String, Vec<MachSrcLoc<Final>>)> = compiled
            .into_iter()
            .map(|(name, locations)| (address(name) as u64, (name.clone(), locations)))
            .collect();
        let within = within(code.keys().copied(), total);
        let main = address("main");
        Unmerged { module, code, within, main }
    }

    fn stack(&self, argument: i64) -> Option<Vec<True>> {
        let addresses = jit::stack_at_trap(&Run::with(self.main, argument), self.within.clone())?;
        let frame = |(at, &address): (usize, &u64)| {
            let inside = address - u64::from(at > 0);
            let (start, (name, locations)) = self.code.range(..=inside).next_back().expect("code");
            let offset = (inside - start) as u32;
            let range = locations.iter().find(|range| (range.start..range.end).contains(&offset));
            let location = range.map_or_else(SourceLoc::default, |range| range.loc);
            True { name: name.clone(), location: location.bits() }
        };
        Some(addresses.iter().enumerate().map(frame).collect())
    }
}

/// Where the code is of functions at these addresses.
fn within(starts: impl Iterator<Item = u64>, total: usize) -> Range<u64> {
    let (first, last) = starts.fold((u64::MAX, 0), |(a, b), at| (a.min(at), b.max(at)));
    first..last + total as u64
}

/// The texts of the functions of a program.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive("}\n")
}

fn options(rng: &mut Rng) -> ModuleOptions {
    let policy = rng.choose(&[Policy::Size, Policy::Size, Policy::Balanced]);
    ModuleOptions {
        back_end: BackEnd::Jit,
        similar: Similar { policy, ..Similar::default() },
        function_addresses: rng.choose(&[Addresses::Insignificant, Addresses::Significant]),
        backtraces: true,
        ..ModuleOptions::default()
    }
}

/// Draws a program and compares the stacks at its traps.
///
/// # Panics
///
/// If a frame of the merged program does not name the function and the source location of the
/// unmerged one, or names others although all callers call directly.
pub fn check(seed: u64) -> Seen {
    let mut rng = Rng::new(seed);
    let convention = rng.choose(&["system_v", "tail"]);
    let speed = rng.one_in(2);
    let writer = Writer {
        rng: Rng::new(rng.word()),
        convention,
        location: 0x100,
        tail_calling: BTreeSet::new(),
        calls: BTreeMap::new(),
    };
    let program = writer.program();
    let unmerged = Unmerged::new(&program, speed);
    let options = options(&mut rng);
    let mut module = match rng.one_in(2) {
        true => MergingModule::with_options(empty(speed), options),
        false => MergingModule::in_parallel(empty(speed), options),
    };
    modules::define_all(&mut module, &program.text);
    module.finalize_definitions().expect("a program");
    let map = module.finalized_map();
    let main = module.get_finalized_function(modules::id(&module, "main"));
    let total = module.stats().code_bytes as usize;
    let within = within(map.code().map(|code| code.start), total);
    let table = [map.frame_table().table.bytes().len(), total];
    let mut seen = Seen { table, ..Seen::default() };
    for _ in 0..6 {
        let argument = rng.word() as i64;
        let expected = unmerged.stack(argument);
        let addresses = jit::stack_at_trap(&Run::with(main, argument), within.clone());
        match (&expected, &addresses) {
            (None, None) => {}
            (Some(expected), Some(addresses)) => {
                seen.trapped += 1;
                compare(&program, &map, expected, addresses, &mut seen);
            }
            _ => panic!("{seed}: {expected:?} {addresses:?}\n{}", program.text),
        }
    }
    jit::free(unmerged.module);
    if let Ok((module, _)) = module.into_inner() {
        jit::free(module);
    }
    seen
}

fn compare(
    program: &Program,
    map: &MergeMap,
    expected: &[True],
    addresses: &[u64],
    seen: &mut Seen,
) {
    let frames = map.frames(addresses.first().copied(), &addresses[1..]);
    let failed = |why: &str| -> ! {
        panic!("{why}\nexpected {expected:#?}\nfound {frames:#?}\n{}", program.text)
    };
    if frames.len() != expected.len() {
        failed("another number of frames");
    }
    // From the outermost frame.
    let (mut direct, mut exact) = (true, vec![false; frames.len()]);
    for (at, (frame, expected_frame)) in frames.iter().zip(expected).enumerate().rev() {
        let True { name, location } = expected_frame;
        if let Some(caller) = expected.get(at + 1) {
            // Behind a tail call, a frame is that of another function than its caller named, or can
            // be.
            let called = program.calls.get(&caller.location);
            direct &= matches!(called, Some(Called::Directly(called)) if called == name);
            direct &= !program.tail_calling.contains(name);
        }
        exact[at] = direct;
        let locations: Vec<(&str, Option<u32>)> = frame
            .candidates
            .iter()
            .map(|candidate| {
                let location = candidate.location.map(SourceLoc::bits);
                (&*candidate.function.name, location)
            })
            .collect();
        if !locations.contains(&(name, Some(*location))) {
            failed(&format!("frame {at}: not {name} at {location:x} but {locations:x?}"));
        }
        let is_return = at > 0;
        let is_shared = map.originals_at(frame.address - u64::from(is_return)).count() > 1;
        seen.frames += 1;
        seen.shared += usize::from(is_shared);
        if let Some((name, _)) =
            locations.iter().find(|(name, _)| !program.names.iter().any(|own| own == name))
        {
            failed(&format!("frame {at}: {name} is no function of the program"));
        }
        if direct && locations.len() != 1 {
            failed(&format!("frame {at}: all callers call directly, but {locations:x?}"));
        }
        seen.exact += usize::from(is_shared && direct);
        seen.candidates += usize::from(locations.len() > 1);
    }
    for table in [map.frame_table(), map.full_frame_table()] {
        if let Err(why) = table_agrees(map, &table, addresses, &exact) {
            failed(&why);
        }
    }
}

/// Whether the frames of code that is shared have, by the table, the functions that the map says,
/// and no others where all callers call directly. (The compact table does not know code of a single
/// function that calls nothing shared, so it removes no function that did not call it.)
fn table_agrees(
    map: &MergeMap,
    table: &FrameTable,
    addresses: &[u64],
    exact: &[bool],
) -> Result<(), String> {
    let is_return = |at: usize| at > 0;
    let code = |(at, &address): (usize, &u64)| {
        let code = map.at(address - u64::from(is_return(at)))?;
        let number = table.code.iter().position(|symbol| *symbol == code.symbol)?;
        let place = Place { offset: (address - code.start) as u32, is_return: is_return(at) };
        Some((number, place))
    };
    let stack: Vec<Option<(usize, Place)>> = addresses.iter().enumerate().map(code).collect();
    let parsed = Table::parse(table.table.bytes().to_vec()).map_err(|error| error.to_string())?;
    let levels = parsed.frames(&stack).map_err(|error| error.to_string())?;
    let frames = map.frames(addresses.first().copied(), &addresses[1..]);
    let levels = levels.iter().filter(|level| !level.is_thunk);
    for (at, (frame, level)) in frames.iter().zip(levels).enumerate() {
        let running: Vec<(&UserExternalName, Option<u32>)> = level
            .running
            .iter()
            .map(|running| (&table.functions[running.function as usize], running.location))
            .collect();
        let candidates: Vec<(&UserExternalName, Option<u32>)> = frame
            .candidates
            .iter()
            .map(|one| (&one.function.symbol, one.location.map(SourceLoc::bits)))
            .collect();
        let is_alone = map.originals_at(frame.address - u64::from(is_return(at))).count() == 1;
        let found = candidates.iter().all(|candidate| running.contains(candidate));
        if !is_alone && !(found && (running.len() == 1 || !exact[at])) {
            return Err(format!("frame {at}: {running:x?} in the table"));
        }
    }
    Ok(())
}
