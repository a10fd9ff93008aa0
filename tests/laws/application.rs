//! Laws: what a plan leaves behind is complete, valid and final, and a plan for other functions is
//! noticed.

use crate::check::{Applied, check_unit};
use crate::permute::{Facts, permuted};
use crate::support::{Rng, any_isa, free, parse_one, random, verify};
use crate::units::{Held, Member, Unit};
use arbitrary::Unstructured;
use cranelift_codegen::ir::Function;
use cranelift_mergefunc::{
    Canonicalize, Disagreement, Disposition, Merger, Options, Plan, Prebucket, Reason, recheck,
};
use std::collections::BTreeMap;

#[test]
fn an_applied_unit_is_complete_and_valid() {
    random(|u| {
        let unit = Unit::random(u)?;
        check_unit(&unit);
        check_unit(&unit.permuted(Facts::Change, u.arbitrary()?));
        Ok(())
    });
}

#[test]
fn a_unit_compared_after_optimisation_is_complete_and_valid() {
    random(|u| {
        let mut unit = Unit::random(u)?;
        unit.options.canonicalize = Canonicalize::Optimize(any_isa());
        check_unit(&unit);
        check_unit(&unit.permuted(Facts::Change, u.arbitrary()?));
        Ok(())
    });
}

#[test]
fn the_generator_reaches_every_disposition_and_reason() {
    // On fixed input, so that what it reaches is the same in every run.
    let mut dispositions = BTreeMap::new();
    let mut reasons = BTreeMap::new();
    for seed in 0..400 {
        let bytes = Rng::new(seed).bytes(4096);
        let mut unit = Unit::random(&mut Unstructured::new(&bytes)).expect("enough input");
        if seed % 2 == 1 {
            unit.options.prebucket = Prebucket::Counts;
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
    // Functions of the generator pass the verifier, and there are no data objects.
    let of_data =
        [Reason::Writable, Reason::ThreadLocal, Reason::AddressSignificant, Reason::NoAlias];
    assert_eq!(missing, [&[Reason::Malformed][..], &of_data].concat());
}

#[test]
fn planning_an_applied_unit_merges_nothing_more() {
    random(|u| {
        let unit = Unit::random(u)?.redirect_only().permuted(Facts::Change, u.arbitrary()?);
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

/// A function of the plan with another one in its class.
fn some_member(unit: &Unit, plan: &Plan) -> Option<usize> {
    let class = |at: usize| {
        plan.entry(plan.function(&unit.functions[at].symbol()).expect("of the unit")).class()
    };
    let count = unit.functions.len();
    (0..count).find(|&at| (0..count).any(|other| other != at && class(other) == class(at)))
}

fn recheck_bodies(
    plan: &Plan,
    bodies: &[Function],
    options: &Options<'_>,
) -> Result<(), Disagreement> {
    recheck(plan, &mut Held::new(bodies, None), options).map_err(|error| error.what)
}

#[test]
fn recheck_notices_another_body() {
    random(|u| {
        let unit = Unit::random(u)?;
        let plan = unit.plan();
        let mut bodies = unit.bodies();
        assert_eq!(recheck_bodies(&plan, &bodies, &unit.options), Ok(()));
        let Some(member) = some_member(&unit, &plan) else {
            return Ok(());
        };
        // In another form, it is still the function that was planned.
        let original = bodies[member].clone();
        bodies[member] = permuted(&original, Facts::Keep, u.arbitrary()?);
        assert_eq!(recheck_bodies(&plan, &bodies, &unit.options), Ok(()));

        let mutants = crate::mutate_function::function_mutants(&original);
        bodies[member] = u.choose(&mutants)?.func.clone();
        let error = recheck_bodies(&plan, &bodies, &unit.options).expect_err("another body");
        assert!(matches!(error, Disagreement::Bodies | Disagreement::Malformed), "{error:?}");
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
    merger.plan(&mut Held::new(bodies, None))
}

#[test]
fn recheck_notices_another_callee() {
    let options = Options::default();
    let plan = plan_free(&callers(0, 1), options);
    assert_eq!(recheck_bodies(&plan, &callers(0, 1), &options), Ok(()));
    // The callees are equal, whichever of them is called.
    assert_eq!(recheck_bodies(&plan, &callers(1, 1), &options), Ok(()));
    let error = recheck_bodies(&plan, &callers(0, 2), &options);
    assert_eq!(error, Err(Disagreement::References));
}

#[test]
fn recheck_notices_another_promise() {
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
        // The second access is in region 0, too: now the two are told apart.
        ("region0", ""),
    ] {
        let planned = [load(0, weak), load(1, weak)];
        planned.iter().for_each(verify);
        let plan = plan_free(&planned, options);
        let first = plan.function(planned[0].name.get_user().unwrap()).unwrap();
        assert_eq!(plan.entry(first).reason(), Reason::Representative);
        let other = [load(0, strong), load(1, weak)];
        let error = recheck_bodies(&plan, &other, &options);
        assert_eq!(error, Err(Disagreement::Promises), "{weak:?}, {strong:?}");
    }
}
