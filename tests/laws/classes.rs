//! Laws: the classes are the greatest fixpoint, and nothing depends on the order of the functions.

use crate::support::{Rng, random};
use cranelift_mergefunc::{Disposition, Plan, Similar};
use std::collections::{BTreeMap, BTreeSet};
use testkit::classes::classes;
use testkit::permute::Colocated;
use testkit::unit::Unit;

/// Panics unless the plan has exactly those functions in one class that the oracle says are equal.
#[track_caller]
fn check_classes(unit: &Unit, planned: &Unit, what: &str) {
    let oracle = classes(unit);
    let plan = planned.plan();
    let class: Vec<u32> = plan.entries().map(|(_, entry)| entry.class()).collect();
    for a in 0..unit.functions.len() {
        for b in 0..unit.functions.len() {
            assert_eq!(
                class[a] == class[b],
                oracle.equal(a, b),
                "{what}: {:?}\n{}\n{:?}\n{}",
                unit.functions[a].attributes,
                unit.functions[a].body,
                unit.functions[b].attributes,
                unit.functions[b].body,
            );
        }
    }
}

#[test]
fn classes_are_the_greatest_fixpoint() {
    random(|u| {
        let mut unit = Unit::random(u)?;
        unit.options.merge_limit = None;
        check_classes(&unit, &unit, "every function walked");
        let permuted = unit.permuted(Colocated::Change, u.arbitrary()?);
        check_classes(&unit, &permuted, "permuted");
        // Equal texts have equal counts, so prefiltering by counts loses nothing here.
        unit.options.compare.every_function = false;
        check_classes(&unit, &unit, "by counts");
        Ok(())
    });
}

/// A plan by symbols, because indices depend on the order of the functions.
fn by_symbol(plan: &Plan) -> BTreeMap<String, String> {
    let symbol = |function| plan.entry(function).symbol().to_string();
    plan.entries()
        .map(|(_, entry)| {
            let to = entry.disposition().representative().map(symbol);
            let facts =
                (entry.disposition().name(), to, entry.reason(), entry.class(), entry.alignment());
            (entry.symbol().to_string(), format!("{facts:?}"))
        })
        .collect()
}

/// The functions that are kept, as they are after the plan is applied.
fn applied(unit: &Unit, plan: &Plan) -> BTreeMap<String, String> {
    let mut kept = BTreeMap::new();
    for (function, entry) in plan.entries() {
        if entry.disposition() != Disposition::Keep {
            continue;
        }
        let mut func = match plan.new_body(function) {
            Some(new) => new.body().clone(),
            None => unit.functions[function.as_u32() as usize].body.clone(),
        };
        plan.apply(function, &mut func);
        kept.insert(entry.symbol().to_string(), func.to_string());
    }
    kept
}

#[test]
fn the_plan_does_not_depend_on_the_order_of_the_functions() {
    random(|u| {
        let unit = Unit::random(u)?.permuted(Colocated::Change, u.arbitrary()?);
        let mut other = unit.clone();
        Rng::new(u.arbitrary()?).shuffle(&mut other.functions);
        let (plan, other_plan) = (unit.plan(), other.plan());
        assert_eq!(by_symbol(&plan), by_symbol(&other_plan));
        assert_eq!(applied(&unit, &plan), applied(&other, &other_plan));
        Ok(())
    });
}

fn merged(plan: &Plan) -> BTreeSet<String> {
    let merged = plan.entries().filter(|(_, entry)| entry.disposition() != Disposition::Keep);
    merged.map(|(_, entry)| entry.symbol().to_string()).collect()
}

#[test]
fn walking_all_functions_merges_what_counting_does_and_more() {
    random(|u| {
        // With unused entities in some functions, so that counts differ.
        let mut unit = Unit::random(u)?;
        unit.options.merge_limit = None;
        // Which similar functions share a body depends on all of them.
        unit.options.similar = Similar::OFF;
        for member in &mut unit.functions {
            if u.arbitrary()? {
                member.body =
                    testkit::permute::permuted(&member.body, Colocated::Change, u.arbitrary()?);
            }
        }
        let all = unit.plan();
        unit.options.compare.every_function = false;
        let counted = unit.plan();
        for (a, first) in counted.entries() {
            for (b, second) in counted.entries() {
                if first.class() == second.class() {
                    let added = unit.functions.len() as u32;
                    // Private copies get new numbers in each plan; they have the class of their
                    // members.
                    if a.as_u32() < added && b.as_u32() < added {
                        assert_eq!(all.entry(a).class(), all.entry(b).class());
                    }
                }
            }
        }
        // Whether a private copy pays depends on other figures than whether a thunk to a
        // representative does, and with more functions walked there may be a representative.
        if counted.new_bodies().iter().all(|new| new.copy_of().is_none()) {
            assert!(merged(&counted).is_subset(&merged(&all)));
        }
        Ok(())
    });
}

#[test]
fn a_limit_performs_the_first_merges_only() {
    random(|u| {
        let mut unit = Unit::random(u)?;
        unit.options.merge_limit = None;
        unit.options.similar = Similar::OFF;
        let all = merged(&unit.plan());
        let mut before = BTreeSet::new();
        for limit in 0..=all.len() as u32 {
            unit.options.merge_limit = Some(limit);
            let merged = merged(&unit.plan());
            assert!(merged.len() <= limit as usize);
            assert!(merged.is_subset(&all));
            // A private copy is made for all of its members or for none, so a limit within such a
            // class performs fewer merges; otherwise each step adds one.
            assert!(before.is_subset(&merged), "limit {limit}");
            before = merged;
        }
        assert_eq!(before, all);
        Ok(())
    });
}

/// Similar functions come after all others, a set at a time.
#[test]
fn a_limit_performs_the_first_merges_of_similar_functions_only() {
    random(|u| {
        let mut unit = Unit::random(u)?;
        unit.options.merge_limit = None;
        let count = |plan: &Plan| plan.stats().merged.functions as u32;
        let all = unit.plan();
        let similar = all.stats().similar.merged as u32;
        let mut before: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for limit in count(&all) - similar..=count(&all) {
            unit.options.merge_limit = Some(limit);
            let plan = unit.plan();
            assert!(count(&plan) <= limit);
            let merged: BTreeMap<_, Vec<_>> = plan
                .entries()
                .filter(|(_, entry)| entry.disposition() != Disposition::Keep)
                .map(|(function, entry)| (function, entry.extra_arguments().to_vec()))
                .collect();
            for (function, extra) in &before {
                // A member of an equal function follows it into the parameterised body, and those
                // of a body follow it into one that it shares with another, with more arguments
                // behind their own.
                assert!(merged.contains_key(function), "{limit}, {function}");
                assert!(merged[function].starts_with(extra), "{limit}, {function}");
            }
            before = merged;
        }
        assert_eq!(before.len() as u32, count(&all));
        Ok(())
    });
}
