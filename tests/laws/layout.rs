//! Law: the canonical form of a function depends only on its encoding and the names and flags of
//! its references, and so does the code that Cranelift makes of it.

use crate::irrelevant::IRRELEVANT;
use crate::support::{Rng, corpus, encode, functions_below, parse_one, random, verify, walk_all};
use arbitrary::Unstructured;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::function::FunctionParameters;
use cranelift_codegen::ir::{DebugTags, ExternalName, Function, GlobalValueData};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::{Context, FinalizedRelocTarget};
use cranelift_mergefunc::explain::Encoding;
use cranelift_mergefunc::internals::laid_out;
use cranelift_mergefunc::{Options, Target};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use testkit::generate::function::Profile;
use testkit::generate::opcodes::Machine;
use testkit::generate::unit::GeneratedUnit;
use testkit::permute::{Colocated, permuted};
use testkit::unit::Unit;

/// Every function is walked, for each of the targets that the encoding depends on.
fn all_options() -> [Options<'static>; 3] {
    [Target::generic(), Target::x86_64(), Target::aarch64(false)]
        .map(|target| Options { target, ..walk_all() })
}

/// The functions of the corpus, the samples and the filetests.
fn functions() -> Vec<Function> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let below = ["samples", "filetests"].map(|folder| functions_below(&root.join(folder)));
    let written = below.into_iter().flatten().map(|(_, func)| func);
    corpus().into_iter().chain(written).collect()
}

/// Functions that use all that some machine has.
fn generated() -> Vec<Function> {
    let mut functions = Vec::new();
    for machine in [Machine::X86_64V3, Machine::Aarch64] {
        let profile = Profile::all(machine);
        for seed in 0..15 {
            let bytes = Rng::new(seed).bytes(4096);
            let unit = GeneratedUnit::draw(&mut Unstructured::new(&bytes), &profile).unit;
            functions.extend(unit.bodies());
        }
    }
    functions
}

#[track_caller]
fn canonical(func: &Function, options: &Options<'_>) -> Function {
    laid_out(func, options).unwrap_or_else(|| panic!("has no canonical form:\n{func}"))
}

/// The function without what is no code: source locations, debug tags, keys of slots.
fn code(mut func: Function) -> Function {
    func.srclocs.clear();
    func.debug_tags = DebugTags::default();
    for slot in func.sized_stack_slots.values_mut() {
        slot.key = None;
    }
    let mut params = FunctionParameters::new();
    for name in func.params.user_named_funcs().values() {
        params.ensure_user_func_name(name.clone());
    }
    func.params = params;
    func
}

#[track_caller]
fn assert_same_code(a: &Function, b: &Function, options: &Options<'_>, what: &str) {
    let [a_code, b_code] = [a, b].map(|func| code(canonical(func, options)));
    // The text first, because it says where they differ.
    assert_eq!(a_code.to_string(), b_code.to_string(), "{what}:\n{a}\n{b}");
    assert!(a_code == b_code, "{what}: equal but for numbers\n{a}\n{b}");
}

/// The canonical form by itself.
#[track_caller]
fn check(func: &Function, options: &Options<'_>) -> Function {
    let canonical = canonical(func, options);
    let [of_func, of_canonical] = [func, &canonical].map(|func| encode(func, options));
    assert_eq!(of_func, of_canonical, "\n{func}\n{canonical}");
    verify(&canonical);
    let twice = self::canonical(&canonical, options);
    assert!(twice == canonical, "laid out twice\n{canonical}\n{twice}");
    assert_eq!(func.signature, canonical.signature);
    assert_eq!(func.name, canonical.name);
    canonical
}

#[test]
fn a_canonical_form_has_the_encoding_of_the_function_and_is_its_own() {
    let functions = functions();
    assert!(functions.len() > 250, "only {} functions", functions.len());
    let mut formats = BTreeSet::new();
    for func in functions.iter().chain(&generated()) {
        for options in all_options() {
            let canonical = check(func, &options);
            for block in canonical.layout.blocks() {
                for inst in canonical.layout.block_insts(block) {
                    formats.insert(format!("{:?}", canonical.dfg.insts[inst].opcode().format()));
                }
            }
        }
    }
    // All that there are.
    assert_eq!(formats.len(), 36, "{formats:?}");
}

/// A canonical form has locations, tags, labels and keys as the function has them.
#[test]
fn a_canonical_form_has_debug_information() {
    let functions = functions();
    for change in IRRELEVANT {
        if !change.is_debug_info {
            continue;
        }
        let mut options = walk_all();
        options.compare.debug_info = true;
        let mut changed = 0;
        for func in functions.iter().flat_map(|func| (change.apply)(func).into_iter().take(8)) {
            check(&func, &options);
            changed += 1;
        }
        assert!(changed > 50, "{}: {changed}", change.what);
    }
}

#[test]
fn permuted_functions_have_one_canonical_form() {
    for (at, func) in functions().iter().enumerate() {
        for (seed, options) in all_options().iter().enumerate() {
            let other = permuted(func, Colocated::Keep, (at * 3 + seed) as u64);
            assert_same_code(func, &other, options, &format!("function {at}, seed {seed}"));
        }
    }
    for func in corpus() {
        for seed in 0..40 {
            let other = permuted(&func, Colocated::Keep, seed);
            assert_same_code(&func, &other, &walk_all(), &format!("seed {seed}"));
        }
    }
}

#[test]
fn permuted_random_functions_have_one_canonical_form() {
    random(|u| {
        let unit = Unit::random(u)?;
        for member in &unit.functions {
            check(&member.body, &walk_all());
            let other = permuted(&member.body, Colocated::Keep, u.arbitrary()?);
            assert_same_code(&member.body, &other, &walk_all(), "permuted");
        }
        Ok(())
    });
}

#[test]
fn functions_with_one_encoding_have_one_canonical_form() {
    let mut pairs = 0;
    random(|u| {
        let unit = Unit::random(u)?;
        let options = walk_all();
        let encoded: Vec<(Encoding, &Function)> = unit
            .functions
            .iter()
            .map(|member| (encode(&member.body, &options), &member.body))
            .collect();
        for (at, (encoding, func)) in encoded.iter().enumerate() {
            let equal = encoded[..at]
                .iter()
                .find(|(other, of)| other == encoding && distances(of) == distances(func));
            if let Some((_, other)) = equal {
                let mut other = (*other).clone();
                other.name = func.name.clone();
                assert_same_code(func, &other, &options, "one encoding");
                pairs += 1;
            }
        }
        Ok(())
    });
    assert!(pairs > 50, "only {pairs} pairs");
}

/// How near everything is that a function declares.
fn distances(func: &Function) -> Vec<(String, bool)> {
    let callees = func.dfg.ext_funcs.values().map(|callee| (&callee.name, callee.colocated));
    let symbols = func.global_values.values().filter_map(|global| match global {
        GlobalValueData::Symbol { name, colocated, .. } => Some((name, *colocated)),
        _ => None,
    });
    callees.chain(symbols).map(|(name, colocated)| (named(func, name), colocated)).collect()
}

fn named(func: &Function, name: &ExternalName) -> String {
    match name {
        ExternalName::User(name) => func.params.user_named_funcs()[*name].to_string(),
        other => format!("{other:?}"),
    }
}

/// All that a back end emits, names written out. `None` for what it cannot compile.
fn compiled(func: &Function, isa: &OwnedTargetIsa) -> Option<String> {
    let mut context = Context::for_function(func.clone());
    // Back ends panic at some of what they cannot do.
    let compile = AssertUnwindSafe(|| {
        let code = context.compile(&**isa, &mut ControlPlane::default()).ok()?;
        let buffer = &code.buffer;
        let mut text = format!("{:x?} {}\n", buffer.data(), buffer.alignment);
        for reloc in buffer.relocs() {
            let target = match &reloc.target {
                FinalizedRelocTarget::ExternalName(name) => named(func, name),
                FinalizedRelocTarget::Func(offset) => format!("here + {offset}"),
            };
            writeln!(text, "{} {:?} {target} {}", reloc.offset, reloc.kind, reloc.addend).unwrap();
        }
        for trap in buffer.traps() {
            writeln!(text, "{} {}", trap.offset, trap.code).unwrap();
        }
        for site in buffer.call_sites() {
            writeln!(text, "{} {:?}", site.ret_addr, site.exception_handlers).unwrap();
        }
        for (offset, size, map) in buffer.user_stack_maps() {
            writeln!(text, "{offset} {size} {map:?}").unwrap();
        }
        Some(text)
    });
    catch_unwind(compile).ok()?
}

/// The machines, with the target that says what the encoding knows of them.
fn machines() -> Vec<(OwnedTargetIsa, Options<'static>)> {
    let mut machines = Vec::new();
    for (machine, target) in
        [(Machine::X86_64V3, Target::x86_64()), (Machine::Aarch64, Target::aarch64(false))]
    {
        for level in ["none", "speed"] {
            machines.push((machine.isa(level), Options { target, ..walk_all() }));
        }
    }
    machines
}

/// Compiles the canonical forms of both, and returns whether that can be done.
#[track_caller]
fn compiles_equally(
    a: &Function,
    b: &Function,
    (isa, options): &(OwnedTargetIsa, Options<'_>),
) -> bool {
    let [a_code, b_code] = [a, b].map(|func| compiled(&canonical(func, options), isa));
    assert_eq!(a_code, b_code, "{}\n{a}\n{b}", isa.name());
    // A function that can be compiled as it is can be compiled in canonical form.
    assert!(a_code.is_some() || compiled(a, isa).is_none(), "{}\n{a}", isa.name());
    a_code.is_some()
}

#[test]
fn permuted_functions_in_canonical_form_compile_to_equal_code() {
    let machines = machines();
    let (functions, generated) = (functions(), generated());
    let mut formats = BTreeSet::new();
    let (mut count, mut other_as_written) = (0, 0);
    for (seed, func) in functions.iter().chain(&generated).enumerate() {
        let other = permuted(func, Colocated::Keep, seed as u64);
        for machine in &machines {
            if !compiles_equally(func, &other, machine) {
                continue;
            }
            count += 1;
            other_as_written +=
                u32::from(compiled(func, &machine.0) != compiled(&other, &machine.0));
            let blocks = func.layout.blocks();
            let insts = blocks.flat_map(|block| func.layout.block_insts(block));
            formats
                .extend(insts.map(|inst| format!("{:?}", func.dfg.insts[inst].opcode().format())));
        }
    }
    println!("{count} compiled, {other_as_written} differ as they were written; {formats:?}");
    // All that there are.
    assert_eq!(formats.len(), 36, "{formats:?}");
    assert!(count > 1500, "only {count}");
    // Else this would be true of any form.
    assert!(other_as_written > 300, "only {other_as_written}");
}

/// One form of a function, another one, and the text of what both become.
struct Case {
    what: &'static str,
    forms: [&'static str; 2],
    canonical: &'static str,
}

const CASES: &[Case] = &[
    Case {
        what: "known branches, operands in other order, dead code that stays",
        forms: [
            "function u0:0(i64, i64) -> i64 {
block0(v0: i64, v1: i64):
    v2 = iconst.i8 1
    v3 = iadd v1, v0
    brif v2, block1(v3), block2

block1(v4: i64):
    return v4

block2:
    trap user1
}",
            "function u0:0(i64, i64) -> i64 {
block9(v9: i64, v8: i64):
    nop
    v7 = iconst.i8 1
    v6 = iadd v9, v8
    v5 -> v6
    jump block3(v5)

block3(v4: i64):
    return v4
}",
        ],
        canonical: "function u0:0(i64, i64) -> i64 fast {
block0(v0: i64, v1: i64):
    v2 = iconst.i8 1
    v3 = iadd v0, v1
    jump block1(v3)

block1(v4: i64):
    return v4
}
",
    },
    Case {
        what: "byte order and alignment that the target implies",
        forms: [
            "function u0:0(i64) -> i64 {
    ss0 = explicit_slot 8
block0(v0: i64):
    v1 = load.i64 v0
    v2 = load.i64 little v0+8
    v3 = stack_addr.i64 ss0
    v4 = iadd v1, v2
    v5 = iadd v3, v4
    return v5
}",
            "function u0:0(i64) -> i64 {
    ss0 = explicit_slot 8, align = 8
block0(v0: i64):
    v1 = load.i64 little v0
    v2 = load.i64 v0+8
    v3 = stack_addr.i64 ss0
    v4 = iadd v2, v1
    v5 = iadd v4, v3
    return v5
}",
        ],
        canonical: "function u0:0(i64) -> i64 fast {
    ss0 = explicit_slot 8, align = 8

block0(v0: i64):
    v1 = load.i64 little v0
    v2 = load.i64 little v0+8
    v3 = stack_addr.i64 ss0
    v4 = iadd v1, v2
    v5 = iadd v3, v4
    return v5
}
",
    },
    Case {
        what: "tables with unused and repeated entries, and bases behind what is built on them",
        forms: [
            "function u0:0(i64 vmctx) -> i64 fast {
    gv0 = vmctx
    gv1 = load.i64 notrap aligned gv0+8
    gv2 = symbol colocated u1:7
    stack_limit = gv1
    sig0 = (i64) -> i64 fast
    fn0 = colocated u1:1 sig0
block0(v0: i64):
    v1 = symbol_value.i64 gv2
    v2 = call fn0(v1)
    v3 = call fn0(v2)
    return v3
}",
            "function u0:0(i64 vmctx) -> i64 fast {
    gv0 = load.i64 notrap aligned gv3+8
    gv1 = symbol colocated u1:7
    gv2 = symbol u1:9
    gv3 = vmctx
    stack_limit = gv0
    sig0 = (f32) fast
    sig1 = (i64) -> i64 fast
    sig2 = (i64) -> i64 fast
    fn0 = u1:8 sig0
    fn1 = colocated u1:1 sig1
    fn2 = colocated u1:1 sig2
block0(v0: i64):
    v1 = symbol_value.i64 gv1
    v2 = call fn2(v1)
    v3 = call fn1(v2)
    return v3
}",
        ],
        canonical: "function u0:0(i64 vmctx) -> i64 fast {
    gv0 = vmctx
    gv1 = load.i64 notrap aligned little gv0+8
    gv2 = symbol colocated userextname0
    sig0 = (i64) -> i64 fast
    fn0 = colocated u1:1 sig0
    stack_limit = gv1

block0(v0: i64):
    v1 = symbol_value.i64 gv2
    v2 = call fn0(v1)
    v3 = call fn0(v2)
    return v3
}
",
    },
];

#[test]
fn forms_that_the_walk_treats_as_equal_become_one() {
    let options = Options { target: Target::x86_64(), ..walk_all() };
    for Case { what, forms, canonical: expected } in CASES {
        for form in forms {
            let func = parse_one(form);
            verify(&func);
            assert_eq!(check(&func, &options).to_string(), *expected, "{what}");
        }
        let [a, b] = forms.map(parse_one);
        assert_same_code(&a, &b, &options, what);
    }
}

#[test]
fn what_is_no_code_is_copied() {
    let func = parse_one(
        "function u0:0(i64) -> i64 {
    sig0 = (i64) -> i64
    fn0 = u1:0 sig0
    ss0 = explicit_slot 8, key = 7
block0(v0: i64):
    nop
    @0005 v1 = iadd v0, v0
    <ss0, 5> @0007 v2 = call fn0(v1)
    return v2
}",
    );
    let text = canonical(&func, &walk_all()).to_string();
    for metadata in ["@0005", "@0007", "<ss0, 5>", "key = 7"] {
        assert!(text.contains(metadata), "{metadata} is not in\n{text}");
    }
}

/// Cranelift cannot compile such an address, and has a branch to the block only as long as that is
/// no jump elsewhere.
#[test]
fn a_block_of_which_there_is_only_an_address_has_no_canonical_form() {
    let function = |condition: &str| {
        parse_one(&format!(
            "function u0:0(i64) -> i64 tail {{
    sig0 = (i64) -> i64 tail
    fn0 = u1:0 sig0
block0(v0: i64):
    v1 = get_exception_handler_address.i64 block1, 0
    {condition}
    brif v2, block2(v1), block1

block1:
    try_call fn0(v1), sig0, block2(ret0), [ default: block2(exn0) ]

block2(v3: i64):
    return v3
}}"
        ))
    };
    let (known, unknown) = (function("v2 = iconst.i8 1"), function("v2 = ireduce.i8 v0"));
    verify(&known);
    assert_eq!(laid_out(&known, &walk_all()), None);
    check(&unknown, &walk_all());
}
