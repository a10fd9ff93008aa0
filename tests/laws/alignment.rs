//! Law: which functions that differ in few instructions share a body does not depend on the order
//! of functions.
//!
//! Of several that resemble a function equally, the one that was added first was its partner, so
//! that the result changed with the order in which an embedder adds functions.

use crate::support::Rng;
use arbitrary::Unstructured;
use cranelift_mergefunc::Plan;
use std::collections::BTreeMap;
use testkit::aligned;
use testkit::generate::function::Profile;
use testkit::generate::opcodes::Machine;
use testkit::generate::unit::GeneratedUnit;
use testkit::program::Parts;

/// The disposition of each function, by symbol, and which functions share bodies.
fn outcomes(plan: &Plan) -> (BTreeMap<String, String>, Vec<Vec<String>>) {
    let symbol = |function| plan.entry(function).symbol().to_string();
    let outcome = |function| {
        let entry = plan.entry(function);
        let to = entry.disposition().map(symbol);
        format!("{to:?} {} {:?}", entry.reason(), entry.extra_arguments())
    };
    let outcomes = plan.entries().map(|(function, _)| (symbol(function), outcome(function)));
    let sets = plan.similar_sets().iter();
    let sets = sets.map(|set| set.members.iter().copied().map(symbol).collect());
    (outcomes.collect(), sets.collect())
}

#[test]
fn does_not_depend_on_the_order_of_functions() {
    let profile = Profile::runnable(Machine::X86_64).differing();
    let mut bodies = 0;
    for seed in 0..40 {
        let bytes = Rng::new(seed).bytes(4096);
        let mut unit = GeneratedUnit::draw(&mut Unstructured::new(&bytes), &profile).unit;
        let plan = unit.plan();
        bodies += aligned::bodies(&Parts::from(&unit), &plan).len();
        let right = outcomes(&plan);
        for _ in 0..2 {
            Rng::new(seed).shuffle(&mut unit.functions);
            assert_eq!(right, outcomes(&unit.plan()), "seed {seed}");
        }
    }
    assert!(bodies > 15, "{bodies}");
}
