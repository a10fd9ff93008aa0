//! Generated units, of all opcodes, merged and unmerged.

use crate::units::{run_natively, runs};
use arbitrary::Unstructured;
use cranelift_mergefunc::fuzzing::differential::{Comparison, Effort, Tally};
use cranelift_mergefunc::fuzzing::generate::function::Profile;
use cranelift_mergefunc::fuzzing::generate::opcodes::Machine;
use cranelift_mergefunc::fuzzing::generate::unit::GeneratedUnit;
use cranelift_mergefunc::fuzzing::program::Parts;
use cranelift_mergefunc::fuzzing::support::Rng;
use testkit::host::Host;

/// How many units, unless the environment says another number (`CLIF_MERGE_RUNS`).
const RUNS: u64 = 25;

#[test]
fn generated_units() {
    let mut tally = Tally::default();
    let mut host = Host::new();
    let profile = Profile::runnable(Machine::X86_64);
    for seed in 0..runs(RUNS) {
        let bytes = Rng::new(seed).bytes(3000);
        let generated = GeneratedUnit::draw(&mut Unstructured::new(&bytes), &profile);
        let unit = generated.disguised(seed).unit;
        let Some(comparison) = Comparison::new(&Parts::from(&unit), seed, Effort::default()) else {
            tally.idle += 1;
            continue;
        };
        run_natively(seed, &comparison, &mut host, &mut tally);
    }
    eprintln!("x86-64: {tally}");
    assert!(tally.units > 0 && tally.returned > 0 && tally.trapped > 0, "{tally}");
}
