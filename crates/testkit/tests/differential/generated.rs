//! Generated units, of all opcodes, merged and unmerged.

use crate::units::{run_natively, runs};
use arbitrary::Unstructured;
use testkit::differential::{Comparison, Effort, Tally};
use testkit::generate::function::Profile;
use testkit::generate::opcodes::Machine;
use testkit::generate::unit::GeneratedUnit;
use testkit::program::Parts;
use testkit::support::Rng;

/// How many units, unless the environment says another number (`CLIF_MERGE_RUNS`).
const RUNS: u64 = 25;

#[test]
fn generated_units() {
    let mut tally = Tally::default();
    let profile = Profile::runnable(Machine::X86_64);
    for seed in 0..runs(RUNS) {
        let bytes = Rng::new(seed).bytes(3000);
        let generated = GeneratedUnit::draw(&mut Unstructured::new(&bytes), &profile);
        let unit = generated.disguised(seed).unit;
        let Some(comparison) = Comparison::new(&Parts::from(&unit), seed, Effort::default()) else {
            tally.idle += 1;
            continue;
        };
        run_natively(seed, &comparison, &mut tally);
    }
    eprintln!("x86-64: {tally}");
    assert!(tally.units > 0 && tally.returned > 0 && tally.trapped > 0, "{tally}");
}
