//! Law: there is a first difference exactly where functions are not in one class.

use crate::permute::Facts;
use crate::support::random;
use crate::units::Unit;
use cranelift_mergefunc::{Difference, FunctionIndex, Rule, first_difference};

#[test]
fn there_is_a_difference_exactly_between_classes() {
    random(|u| {
        let mut unit = Unit::random(u)?;
        if u.arbitrary()? {
            unit = unit.permuted(Facts::Change, u.arbitrary()?);
        }
        let plan = unit.plan();
        let bodies = unit.bodies();
        let function =
            |at: usize| plan.function(&unit.functions[at].symbol()).expect("of the unit");
        for a in 0..bodies.len() {
            for b in 0..bodies.len() {
                let (x, y) = ((function(a), &bodies[a]), (function(b), &bodies[b]));
                let found = first_difference(&plan, x, y, &unit.options).expect("can be walked");
                let same = plan.entry(x.0).class() == plan.entry(y.0).class();
                assert_eq!(found.is_none(), same, "{}\n{}", bodies[a], bodies[b]);
                let back = first_difference(&plan, y, x, &unit.options).expect("can be walked");
                assert_eq!(found.map(mirrored), back, "{}\n{}", bodies[a], bodies[b]);
                if let Some(difference) = found {
                    check_difference(&difference, |function| plan.entry(function).class());
                }
            }
        }
        Ok(())
    });
}

/// The difference as seen from the other side.
fn mirrored(difference: Difference) -> Difference {
    let Difference { rule, first, second, references } = difference;
    Difference { rule, first: second, second: first, references: references.map(|(a, b)| (b, a)) }
}

/// A difference says something, and what it says is true.
fn check_difference(difference: &Difference, class: impl Fn(FunctionIndex) -> u32) {
    assert!(difference.first.is_some() || difference.second.is_some(), "{difference:?}");
    if let Some((a, b)) = difference.references {
        assert_eq!(difference.rule, Rule::Reference);
        assert_ne!(class(a), class(b), "{difference:?}");
    }
}
