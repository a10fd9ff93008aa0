//! Laws: an applied plan is complete, valid and final, and the checker notices when a plan belongs
//! to other functions.

use crate::support::{Rng, any_isa, free, parse_one, random, verify};
use arbitrary::Unstructured;
use cranelift_codegen::ir::Function;
use cranelift_mergefunc::check::{Mismatch, prove};
use cranelift_mergefunc::explain::Encoding;
use cranelift_mergefunc::{
    Attributes, Disposition, Linkage, Merger, Options, Plan, Reason, Target,
};
use std::collections::BTreeMap;
use testkit::check::{Applied, check_unit};
use testkit::generate::function::Profile;
use testkit::generate::opcodes::Machine;
use testkit::generate::unit::GeneratedUnit;
use testkit::permute::{Colocated, permuted};
use testkit::program::Parts;
use testkit::support::canonical_body;
use testkit::unit::{Held, Member, Unit, uniform};

#[test]
fn an_applied_unit_is_complete_and_valid() {
    random(|u| {
        let unit = Unit::random(u)?;
        check_unit(&unit);
        check_unit(&unit.permuted(Colocated::Change, u.arbitrary()?));
        Ok(())
    });
}

#[test]
fn a_unit_compared_after_optimisation_is_complete_and_valid() {
    random(|u| {
        let unit = Unit::random(u)?.canonical(any_isa());
        check_unit(&unit);
        check_unit(&unit.permuted(Colocated::Change, u.arbitrary()?));
        Ok(())
    });
}

/// The canonical body of a canonical body is that body, so it does not matter how often a body is
/// canonicalized.
#[test]
fn canonicalization_is_idempotent() {
    let encode = |body: &Function| Encoding::of(body, &Options::default());
    random(|u| {
        let (bytes, size) = (u.bytes(u.len() / 2)?, u.len() / 4);
        let mut other = Unstructured::new(bytes);
        let generated = GeneratedUnit::draw(&mut other, &Profile::all(Machine::X86_64)).unit;
        let drawn = Unit::random(&mut Unstructured::new(u.bytes(size)?))?;
        for Member { body, .. } in generated.functions.iter().chain(&drawn.functions).take(20) {
            let canonical = canonical_body(body, any_isa());
            let again = canonical_body(&canonical, any_isa());
            assert_eq!(encode(&canonical), encode(&again), "{body}\n{canonical}\n{again}");
        }
        Ok(())
    });
}

#[test]
fn the_generator_reaches_every_disposition_and_reason() {
    // On fixed input, so that what it reaches is the same in every run.
    let mut dispositions = BTreeMap::new();
    let mut reasons = BTreeMap::new();
    for seed in 0..1200 {
        let bytes = Rng::new(seed).bytes(4096);
        let mut unit = Unit::random(&mut Unstructured::new(&bytes)).expect("enough input");
        if seed % 2 == 1 {
            unit.options.compare.every_function = false;
        }
        let Applied { plan, kept: _ } = check_unit(&unit);
        for (_, entry) in plan.entries() {
            *dispositions.entry(entry.disposition().name()).or_insert(0) += 1;
            *reasons.entry(entry.reason()).or_insert(0) += 1;
        }
    }
    println!("{dispositions:#?}\n{reasons:#?}");
    assert_eq!(Vec::from_iter(dispositions.into_keys()), ["alias", "keep", "redirect", "thunk"]);
    let missing: Vec<Reason> =
        Reason::ALL.into_iter().filter(|reason| !reasons.contains_key(reason)).collect();
    // Functions of the generator pass the verifier, nothing is content-addressed, and there are no
    // data objects.
    let of_data =
        [Reason::Writable, Reason::ThreadLocal, Reason::AddressSignificant, Reason::NoAlias];
    let never = [Reason::Malformed, Reason::NotProved, Reason::ContentAddressed];
    assert_eq!(missing, [&never[..], &of_data].concat());
}

#[test]
fn planning_an_applied_unit_merges_nothing_more() {
    random(|u| {
        let unit = Unit::random(u)?.redirect_only().permuted(Colocated::Change, u.arbitrary()?);
        let Applied { plan, kept } = check_unit(&unit);
        for (_, entry) in plan.entries() {
            match entry.disposition() {
                Disposition::Keep | Disposition::Redirect { to: _ } => {}
                other => panic!("{other:?} in a unit without thunks and aliases"),
            }
        }
        let functions =
            kept.into_values().map(|body| Member { attributes: free(), body }).collect();
        let again = check_unit(&Unit { functions, ..unit });
        for (_, entry) in again.plan.entries() {
            assert_eq!(entry.disposition(), Disposition::Keep, "{}", entry.symbol());
        }
        Ok(())
    });
}

/// The position of a function that is merged away.
fn some_member(unit: &Unit, plan: &Plan) -> Option<usize> {
    let becomes = |member: &Member| {
        plan.entry(plan.function(&member.symbol()).expect("of the unit")).disposition()
    };
    unit.functions.iter().position(|member| becomes(member) != Disposition::Keep)
}

fn prove_bodies(plan: &Plan, bodies: &[Function], options: &Options<'_>) -> Result<(), Mismatch> {
    prove(plan, &mut Held::new(bodies), options).map(drop).map_err(|error| error.mismatch)
}

#[test]
fn the_checker_notices_another_body() {
    random(|u| {
        let unit = Unit::random(u)?;
        let plan = unit.plan();
        let mut bodies = unit.bodies();
        assert_eq!(prove_bodies(&plan, &bodies, &unit.options), Ok(()));
        let Some(member) = some_member(&unit, &plan) else {
            return Ok(());
        };
        let extra = plan.entries().any(|(_, entry)| !entry.extra_arguments().is_empty());
        if extra || !plan.new_bodies().is_empty() {
            // The member may be the one whose body became the private copy. And with extra
            // arguments, an unused constant may differ.
            return Ok(());
        }
        // In another form, it is still the function that was planned.
        let original = bodies[member].clone();
        bodies[member] = permuted(&original, Colocated::Keep, u.arbitrary()?);
        assert_eq!(prove_bodies(&plan, &bodies, &unit.options), Ok(()));

        let mutants = testkit::mutate::function::function_mutants(&original);
        bodies[member] = u.choose(&mutants)?.func.clone();
        prove_bodies(&plan, &bodies, &unit.options).expect_err("another body");
        Ok(())
    });
}

/// Two functions that call one of three others each, of which two are equal.
fn callers(first: u32, second: u32) -> Vec<Function> {
    let leaf = |index, constant| {
        parse_one(&format!(
            "function u0:{index}(i64) -> i64 tail {{
block0(v0: i64):
    v1 = iconst.i64 {constant}
    v2 = iadd v0, v1
    return v2
}}"
        ))
    };
    let caller = |index, callee| {
        parse_one(&format!(
            "function u0:{index}(i64) -> i64 tail {{
    fn0 = u0:{callee}(i64) -> i64 tail
block0(v0: i64):
    v1 = call fn0(v0)
    return v1
}}"
        ))
    };
    vec![leaf(0, 1), leaf(1, 1), leaf(2, 2), caller(3, first), caller(4, second)]
}

fn plan_free(bodies: &[Function], options: Options<'_>) -> Plan {
    let mut merger = Merger::new(options);
    for body in bodies {
        let symbol = body.name.get_user().expect("named by number").clone();
        merger.add(symbol, body, free()).expect("is added");
    }
    merger.plan(&mut Held::new(bodies))
}

#[test]
fn the_checker_notices_another_callee() {
    let options = Options::default();
    let plan = plan_free(&callers(0, 1), options);
    assert_eq!(prove_bodies(&plan, &callers(0, 1), &options), Ok(()));
    // The callees are equal, whichever of them is called.
    assert_eq!(prove_bodies(&plan, &callers(1, 1), &options), Ok(()));
    // The second function calls another callee than the first; the difference is in the callees.
    let error = prove_bodies(&plan, &callers(0, 2), &options);
    assert_eq!(error, Err(Mismatch::Immediate));
}

#[test]
fn the_checker_notices_another_fact() {
    let options = Options::default();
    let load = |index, flags| {
        parse_one(&format!(
            "function u0:{index}(i64) -> i64 tail {{
    region0 = 1 \"one\"
    region1 = 2 \"two\"
block0(v0: i64):
    v1 = load.i64 notrap {flags} v0
    v2 = load.i64 notrap region0 v0+8
    v3 = iadd v1, v2
    return v3
}}"
        ))
    };
    for (weak, strong) in [
        ("", "aligned"),
        ("", "readonly"),
        ("", "can_move"),
        ("", "region0"),
        ("", "region1"),
        ("region0", "region1"),
        // The second access is in region 0, too: without it, the two accesses are in different
        // regions.
        ("region0", ""),
    ] {
        let planned = [load(0, weak), load(1, weak)];
        planned.iter().for_each(verify);
        let plan = plan_free(&planned, options);
        let first = plan.function(planned[0].name.get_user().unwrap()).unwrap();
        assert_eq!(plan.entry(first).reason(), Reason::Representative);
        let other = [load(0, strong), load(1, weak)];
        let error = prove_bodies(&plan, &other, &options);
        assert_eq!(error, Err(Mismatch::Fact), "{weak:?}, {strong:?}");
    }
}

/// An alias has the address of another function. A function that takes the alias's address takes
/// that of the other function, even though its code does not change.
#[test]
fn the_checker_notices_that_an_address_is_elsewhere() {
    let takes = |symbol| {
        parse_one(&format!(
            "function u0:2() -> i64 tail {{
    gv0 = symbol u0:{symbol}
block0:
    v0 = symbol_value.i64 gv0
    return v0
}}"
        ))
    };
    let leaf = |own| {
        parse_one(&format!(
            "function u0:{own}(i64) -> i64 tail {{\nblock0(v0: i64):\n    return v0\n}}"
        ))
    };
    let options = Options { aliases: true, ..Options::default() };
    let exported = Attributes::default();
    let used = Attributes { linkage: Linkage::Local, externally_called: true, ..exported };
    let bodies = |symbol| [leaf(0), leaf(1), takes(symbol)];
    let planned = bodies(9);
    let mut merger = Merger::new(options);
    for (body, attributes) in planned.iter().zip([exported, used, free()]) {
        let symbol = body.name.get_user().expect("named by number").clone();
        merger.add(symbol, body, attributes).expect("is added");
    }
    let plan = merger.plan(&mut Held::new(&planned));
    let alias = plan.function(planned[1].name.get_user().unwrap()).unwrap();
    assert!(matches!(plan.entry(alias).disposition(), Disposition::Alias { .. }));
    assert_eq!(prove_bodies(&plan, &planned, &options), Ok(()));
    assert_eq!(prove_bodies(&plan, &bodies(1), &options), Err(Mismatch::Reference));
}

/// A function that the verifier refuses is not merged; only its references follow the merges.
#[test]
fn a_malformed_caller_of_an_eliminated_function_does_not_refute_a_plan() {
    let mut bodies = callers(0, 1);
    let mut malformed = bodies[4].clone();
    let block = malformed.layout.entry_block().unwrap();
    let insts: Vec<_> = malformed.layout.block_insts(block).collect();
    // The call comes after the use of its result.
    malformed.layout.remove_inst(insts[0]);
    malformed.layout.append_inst(insts[0], block);
    bodies[4] = malformed;
    let plan = plan_free(&bodies, Options::default());
    let at = |own: usize| plan.function(bodies[own].name.get_user().unwrap()).unwrap();
    assert!(matches!(plan.entry(at(1)).disposition(), Disposition::Redirect { .. }));
    assert_eq!(plan.entry(at(4)).reason(), Reason::Malformed);
}

/// A private copy costs its own size once and a thunk for each function that shares it. A function
/// counts as half of what is predicted, here 9 bytes for each instruction.
#[test]
fn preemptible_functions_share_a_body_if_that_pays() {
    let body = |index: usize, instructions: u64| {
        let steps = "    debugtrap\n".repeat(instructions as usize - 1);
        let text = format!("function u0:{index}() tail {{\nblock0:\n{steps}    trap user1\n}}");
        parse_one(&text)
    };
    let options = Options { target: uniform(Target::x86_64()), ..Options::default() };
    let jump = u64::from(options.target.jump_thunk.expect("is one").size());
    for count in 2..6 {
        for instructions in 1..15 {
            let functions: Vec<Member> = (0..count)
                .map(|index| Member {
                    attributes: Attributes { linkage: Linkage::Preemptible, ..free() },
                    body: body(index, instructions),
                })
                .collect();
            let parts = Parts { functions: &functions, data: &[], options: &options };
            let (n, size) = (count as u64, 9 * instructions / 2);
            let pays = size + n * jump < n * size;
            let plan = parts.plan();
            let new = plan.new_bodies().len();
            assert_eq!(new, usize::from(pays), "{count} of {instructions} instructions");
            let thunks = plan
                .entries()
                .filter(|(_, entry)| matches!(entry.disposition(), Disposition::Thunk { .. }));
            assert_eq!(thunks.count(), if pays { count } else { 0 });
        }
    }
}
