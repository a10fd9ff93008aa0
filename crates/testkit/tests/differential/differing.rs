//! Generated units of functions that differ in few instructions, merged and unmerged.
//!
//! Before this test existed, random units aligned what they happened to hold: hardly any body had
//! more than one place where its functions differ, and none had arms with calls or traps.

use crate::units::{run_natively, runs};
use arbitrary::Unstructured;
use cranelift_mergefunc::Prove;
use testkit::aligned::{check_exchange, exchanges};
use testkit::differential::{Comparison, Effort, Tally};
use testkit::generate::function::Profile;
use testkit::generate::opcodes::Machine;
use testkit::generate::unit::GeneratedUnit;
use testkit::host;
use testkit::program::Parts;
use testkit::support::Rng;

/// How many units, unless the environment says another number (`CLIF_MERGE_RUNS`).
const RUNS: u64 = 40;

#[test]
fn units_of_functions_that_differ_in_few_instructions() {
    let mut tally = Tally::default();
    let profile = Profile::runnable(Machine::X86_64).differing();
    for seed in 0..runs(RUNS) {
        let bytes = Rng::new(seed).bytes(8192);
        let unit = GeneratedUnit::draw(&mut Unstructured::new(&bytes), &profile).unit;
        let Some(comparison) = Comparison::new(&Parts::from(&unit), seed, Effort::default()) else {
            tally.idle += 1;
            continue;
        };
        run_natively(seed, &comparison, &mut tally);
    }
    eprintln!("x86-64: {tally}");
    // As many as there are units, each run at two levels.
    assert!(tally.aligned >= tally.units / 2, "{tally}");
    assert!(tally.in_floats >= tally.units / 4, "{tally}");
    assert!(tally.units > 0 && tally.returned > 0 && tally.trapped > 0, "{tally}");
}

/// The checker follows the branches of a body by what its functions pass. If it took a wrong way
/// for the right one, nothing else would refuse the merge.
#[test]
fn wrong_selectors_are_refused() {
    let (mut refused, mut accepted) = (0, 0);
    let profile = Profile::runnable(Machine::X86_64).differing();
    for seed in 0..runs(RUNS) {
        let bytes = Rng::new(seed).bytes(8192);
        let mut unit = GeneratedUnit::draw(&mut Unstructured::new(&bytes), &profile).unit;
        unit.options.prove = Prove::Never;
        let parts = Parts::from(&unit);
        let plan = parts.plan();
        parts.prove(&plan).unwrap_or_else(|refutation| panic!("seed {seed}: {refutation}"));
        for exchange in exchanges(&parts, &plan) {
            match check_exchange(&parts, &exchange, seed, &mut host::run) {
                true => refused += 1,
                false => accepted += 1,
            }
        }
    }
    eprintln!("{refused} exchanges are refused, {accepted} change nothing");
    // A difference between two functions seldom preserves behaviour.
    assert!(refused > 4 * RUNS && accepted * 20 < refused, "{refused} {accepted}");
}
