//! Generated units of functions that differ in few instructions, merged and unmerged.
//!
//! Before this test existed, random units aligned what they happened to hold: hardly any body had more than one place
//! where its functions differ, and none had arms with calls or traps.

use crate::units::{run_natively, runs};
use arbitrary::Unstructured;
use testkit::differential::{Comparison, Effort, Tally};
use testkit::generate::function::Profile;
use testkit::generate::opcodes::Machine;
use testkit::generate::unit::GeneratedUnit;
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
    assert!(tally.units > 0 && tally.returned > 0 && tally.trapped > 0, "{tally}");
}
