//! Laws: merging similar functions makes units smaller, as compiled code.
//!
//! Once, the size of a thunk or a call was estimated from calls of functions with other parameters;
//! with seven arguments one goes over the stack, the thunk needs a frame, and two functions took 32
//! bytes more than before. Here everything is compiled before and after, for functions of many
//! signatures and conventions.

use crate::support::{Rng, asked_runs, parse_one};
use arbitrary::Unstructured;
use cranelift_codegen::Context;
use cranelift_codegen::ir::{Function, UserExternalName, UserFuncName};
use cranelift_codegen::isa::{self, OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable, Flags};
use cranelift_mergefunc::thunk::{CallThunks, call_thunk};
use cranelift_mergefunc::{
    Addresses, Attributes, Bodies, Callees, Emit, FunctionIndex, Linkage, Merger, NewBody, Options,
    Plan, Policy, Similar, Target, cranelift_codegen,
};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use testkit::generate::chains::chains;
use testkit::generate::function::Profile;
use testkit::generate::opcodes::Machine;
use testkit::generate::unit::GeneratedUnit;
use testkit::unit::Member;

fn isa(name: &str, level: &str) -> OwnedTargetIsa {
    let mut flags = settings::builder();
    flags.set("opt_level", level).expect("a shared setting");
    flags.enable("preserve_frame_pointers").expect("a shared setting");
    isa::lookup_by_name(name).expect("built in").finish(Flags::new(flags)).expect("valid")
}

/// Functions, and a compiler that computes their sizes.
struct Compiled<'a> {
    functions: &'a [Member],
    isa: &'a dyn TargetIsa,
    fresh: u32,
}

impl Compiled<'_> {
    fn size(&self, func: &Function) -> Option<u32> {
        let mut context = Context::for_function(func.clone());
        let compile = || {
            let code = context.compile(self.isa, &mut Default::default()).ok()?;
            Some(code.code_info().total_size)
        };
        catch_unwind(AssertUnwindSafe(compile)).ok().flatten()
    }

    fn plan(&mut self, options: Options<'_>) -> Plan {
        let mut merger = Merger::new(options);
        for Member { body, attributes } in self.functions {
            let UserFuncName::User(symbol) = &body.name else { panic!("{}", body.name) };
            merger.add(symbol.clone(), body, *attributes).expect("is added");
        }
        merger.plan(self)
    }

    /// Bytes of all emitted code. `None` if something cannot be compiled.
    fn total(&self, plan: &Plan, options: &Options<'_>) -> Option<u64> {
        let mut total = 0;
        for output in plan.outputs() {
            let name = UserFuncName::User(output.symbol.clone());
            let own = self.functions.get(output.function.as_u32() as usize);
            total += u64::from(match output.emit {
                Emit::Nothing | Emit::Alias { .. } => 0,
                Emit::Thunk { to, extra_arguments, late: _ } => {
                    let signature = &own?.body.signature;
                    let optimize = plan.optimize_for();
                    match options.target.thunk_code(signature, &extra_arguments, to, optimize) {
                        Some(code) => code.size(),
                        None => {
                            let how = options.target.call_thunks.expect("is allowed");
                            self.size(&call_thunk(name, signature, &extra_arguments, to, &how))?
                        }
                    }
                }
                Emit::Body | Emit::NewBody(_) => {
                    let new = plan.new_body(output.function).map(NewBody::body);
                    let mut body = own.map(|own| &own.body).or(new).expect("a body").clone();
                    body.name = name;
                    plan.apply(output.function, &mut body);
                    self.size(&body)?
                }
            });
        }
        Some(total)
    }
}

impl Bodies for Compiled<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self.functions[function.as_u32() as usize].body
    }

    fn fresh_symbol(&mut self, _: &[FunctionIndex]) -> Option<UserExternalName> {
        self.fresh += 1;
        Some(UserExternalName::new(99, self.fresh - 1))
    }
}

/// Bytes of units.
#[derive(Default)]
struct Sum {
    units: usize,
    /// Parameterised bodies for size.
    bodies: usize,
    before: u64,
    /// With identical functions merged.
    identical: u64,
    /// With similar functions merged for size, and by the balanced policy.
    size: u64,
    balanced: u64,
    /// How many units are larger for size than before.
    larger: usize,
}

impl Sum {
    /// Adds the unit of these functions, unless something cannot be compiled.
    fn add(
        &mut self,
        functions: &[Member],
        isa: &dyn TargetIsa,
        call_thunks: bool,
        callees: Callees,
        seed: u64,
    ) {
        let mut compiled = Compiled { functions, isa, fresh: 0 };
        let call_thunks = call_thunks.then(|| CallThunks::of(isa));
        let mut merged = |policy| {
            let similar = Similar {
                policy,
                callees,
                keep_symbols: seed.is_multiple_of(7),
                integer_registers_only: seed.is_multiple_of(5),
                ..Similar::default()
            };
            let target = Target { call_thunks, ..Target::of(isa) };
            let options = Options { target, similar, ..Options::default() };
            let plan = compiled.plan(options);
            let bodies = plan.new_bodies().iter().filter(|new| new.copy_of().is_none()).count();
            Some((compiled.total(&plan, &options)?, bodies))
        };
        let merged = [Policy::Off, Policy::Balanced, Policy::Size].map(&mut merged);
        let sizes = functions.iter().map(|member| compiled.size(&member.body));
        let before: Option<u32> = sizes.sum();
        let ([Some((identical, _)), Some((balanced, _)), Some((size, bodies))], Some(before)) =
            (merged, before)
        else {
            return;
        };
        let before = u64::from(before);
        self.units += 1;
        self.bodies += bodies;
        self.before += before;
        self.identical += identical;
        self.size += size;
        self.balanced += balanced;
        self.larger += usize::from(size > before);
    }
}

const TYPES: [&str; 8] = ["i64", "i32", "i8", "i16", "f64", "f32", "i64", "i32"];

/// A set of similar functions of one signature, and functions that call them.
fn functions(rng: &mut Rng, conventions: &[&str]) -> Vec<Member> {
    let mut below = |bound: u64| rng.below(bound as usize) as u64;
    let convention = conventions[below(conventions.len() as u64) as usize];
    let types: Vec<&str> =
        (0..below(10)).map(|_| TYPES[below(TYPES.len() as u64) as usize]).collect();
    let results = below(3) as usize;
    let result = vec!["i64"; results].join(", ");
    let result = if results == 0 { String::new() } else { format!(" -> {result}") };
    let places = 1 + below(4);
    let length = below(12);
    let count = 2 + below(3);
    let wide = below(3);
    let calls_another = below(2) == 0;
    let signature = format!("({}){result} {convention}", types.join(", "));
    let mut texts = Vec::new();
    for own in 0..count {
        let params: Vec<String> =
            types.iter().enumerate().map(|(at, ty)| format!("v{at}: {ty}")).collect();
        let mut text = format!("function u0:{own}{signature} {{\n");
        if calls_another {
            writeln!(text, "    fn0 = colocated u1:{own}(i64) -> i64 {convention}").unwrap();
        }
        writeln!(text, "block0({}):\n    v100 = iconst.i64 3", params.join(", ")).unwrap();
        let mut last = 100;
        for (at, ty) in types.iter().enumerate() {
            let wide = match *ty {
                "i64" => format!("iadd v{last}, v{at}"),
                "f64" => format!("bitcast.i64 v{at}"),
                "f32" => format!("fcvt_to_sint_sat.i64 v{at}"),
                _ => format!("uextend.i64 v{at}"),
            };
            writeln!(
                text,
                "    v{} = {wide}\n    v{} = iadd v{}, v{last}",
                last + 1,
                last + 2,
                last + 1
            )
            .unwrap();
            last += 2;
        }
        for place in 0..places {
            let shift = [0, 20, 40][wide as usize];
            let constant = (own * 77 + place * 5 + 1) << shift;
            writeln!(
                text,
                "    v{} = iconst.i64 {constant}\n    v{} = bxor v{last}, v{}",
                last + 1,
                last + 2,
                last + 1
            )
            .unwrap();
            last += 2;
        }
        for _ in 0..length {
            writeln!(text, "    v{} = imul v{last}, v{last}", last + 1).unwrap();
            last += 1;
        }
        if calls_another {
            writeln!(text, "    v{} = call fn0(v{last})", last + 1).unwrap();
            last += 1;
        }
        let returned = vec![format!("v{last}"); results].join(", ");
        writeln!(text, "    return {returned}\n}}").unwrap();
        texts.push((text, own));
    }
    let mut members = Vec::new();
    for (text, _) in &texts {
        let linkage = [Linkage::Export, Linkage::Local, Linkage::Hidden][below(3) as usize];
        let attributes = Attributes {
            linkage,
            addresses: Addresses::Insignificant,
            externally_called: below(3) == 0,
            ..Attributes::default()
        };
        members.push(Member { attributes, body: parse_one(text) });
    }
    for caller in 0..below(4) {
        let mut text = format!("function u2:{caller}(i64, i32, f64, f32) -> i64 {convention} {{\n");
        for own in 0..count {
            writeln!(text, "    fn{own} = colocated u0:{own}{signature}").unwrap();
        }
        text += "block0(v0: i64, v1: i32, v2: f64, v3: f32):\n    v4 = ireduce.i8 v1\n    v5 = ireduce.i16 v1\n";
        let mut last = 10;
        let values: Vec<&str> = types
            .iter()
            .map(|ty| match *ty {
                "i64" => "v0",
                "i32" => "v1",
                "i8" => "v4",
                "i16" => "v5",
                "f64" => "v2",
                _ => "v3",
            })
            .collect();
        for _ in 0..1 + below(4) {
            let callee = below(count);
            let results: Vec<String> =
                (0..results).map(|at| format!("v{}", last + at as u64)).collect();
            let results = match results.is_empty() {
                true => String::new(),
                false => format!("{} = ", results.join(", ")),
            };
            writeln!(text, "    {results}call fn{callee}({})", values.join(", ")).unwrap();
            last += 4;
        }
        text += "    return v0\n}\n";
        let attributes = Attributes { linkage: Linkage::Export, ..Attributes::default() };
        members.push(Member { attributes, body: parse_one(&text) });
    }
    members
}

/// Sizes are predicted, so a few small units can be some bytes larger; all together are smaller,
/// more so for size than with the balanced policy.
#[track_caller]
fn check(sum: &Sum, one_in: usize) {
    let Sum { units, bodies, before, identical, size, balanced, larger } = sum;
    let text = format!(
        "{units} units, {bodies} bodies: {before} bytes, {identical} without identical functions, \
         {balanced} balanced, {size} for size; {larger} are larger"
    );
    println!("{text}");
    assert!(
        size <= balanced
            && balanced < identical
            && identical <= before
            && larger * one_in <= *units,
        "{text}"
    );
}

#[test]
fn merging_for_size_makes_units_of_functions_of_any_signature_smaller() {
    let common = ["system_v", "fast", "tail", "windows_fastcall"];
    let mut sum = Sum::default();
    for (name, conventions) in [("x86_64", &common[..]), ("aarch64", &common[..3])] {
        for level in ["none", "speed"] {
            let isa = isa(name, level);
            for seed in 0..150 {
                let functions = functions(&mut Rng::new(seed), conventions);
                let callees = Callees::ALL[seed as usize % 3];
                sum.add(&functions, &*isa, seed % 4 != 0, callees, seed);
            }
        }
    }
    assert!(sum.units > 500 && sum.bodies > 100, "{} units, {} bodies", sum.units, sum.bodies);
    check(&sum, 12);
}

/// Once, sizes were predicted as if nothing were folded away, and everything computed where it
/// stands: functions of 68 bytes became one of 21,789, and of units as these every seventh grew.
#[test]
fn the_default_makes_no_unit_larger_that_is_hard_to_predict() {
    let mut larger = Vec::new();
    for name in ["x86_64", "aarch64"] {
        let isa = isa(name, "speed");
        for seed in 0..asked_runs(150) {
            let functions = chains(seed);
            let mut compiled = Compiled { functions: &functions, isa: &*isa, fresh: 0 };
            let options = Options { target: Target::of(&*isa), ..Options::default() };
            let plan = compiled.plan(options);
            if plan.stats().similar.merged == 0 {
                continue;
            }
            let sizes = functions.iter().map(|member| compiled.size(&member.body));
            let before: u64 = sizes.map(|size| u64::from(size.expect("compiles"))).sum();
            let after = compiled.total(&plan, &options).expect("compiles");
            if 1000 * after > 1005 * before {
                larger
                    .push(format!("{name}, seed {seed}: {before} bytes, {after} with the default"));
            }
        }
    }
    assert!(larger.is_empty(), "{}", larger.join("\n"));
}

#[test]
fn merging_for_size_makes_random_units_smaller() {
    let mut sum = Sum::default();
    for (name, machine) in [("x86_64", Machine::X86_64), ("aarch64", Machine::Aarch64)] {
        let isa = isa(name, "speed");
        for seed in 0..asked_runs(25) {
            let bytes = Rng::new(seed).bytes(4096);
            let profile = Profile::runnable(machine);
            let unit = GeneratedUnit::draw(&mut Unstructured::new(&bytes), &profile).unit;
            let callees = Callees::ALL[seed as usize % 3];
            sum.add(&unit.functions, &*isa, seed % 2 == 0, callees, seed);
        }
    }
    assert!(sum.units > 20 && sum.bodies > 0, "{} units, {} bodies", sum.units, sum.bodies);
    check(&sum, 10);
}
