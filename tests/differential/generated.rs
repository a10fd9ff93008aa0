//! Generated units, of all opcodes, merged and unmerged.

use crate::host::{Host, Level};
use arbitrary::Unstructured;
use cranelift_mergefunc::fuzzing::differential::{Comparison, Effort, Tally};
use cranelift_mergefunc::fuzzing::generate::function::Profile;
use cranelift_mergefunc::fuzzing::generate::opcodes::Machine;
use cranelift_mergefunc::fuzzing::generate::unit::GeneratedUnit;
use cranelift_mergefunc::fuzzing::program::Parts;
use cranelift_mergefunc::fuzzing::support::Rng;

/// How many units, unless the environment says another number (`CLIF_MERGE_RUNS`).
const RUNS: u64 = 25;

#[test]
fn generated_units() {
    let runs =
        std::env::var("CLIF_MERGE_RUNS").map_or(RUNS, |runs| runs.parse().expect("a number"));
    let mut tally = Tally::default();
    let mut host = Host::new();
    let profile = Profile::runnable(Machine::X86_64);
    for seed in 0..runs {
        let bytes = Rng::new(seed).bytes(3000);
        let generated = GeneratedUnit::draw(&mut Unstructured::new(&bytes), &profile);
        let unit = generated.disguised(seed).unit;
        let Some(comparison) = Comparison::new(&Parts::from(&unit), seed, Effort::default()) else {
            tally.idle += 1;
            continue;
        };
        let Comparison { programs, invocations, .. } = &comparison;
        for level in [Level::None, Level::Speed] {
            let [before, after] =
                [0, 1].map(|side| host.run(level, &programs[side], &invocations[side]));
            match comparison.judge([&before, &after]) {
                Ok(other) => tally += other,
                Err(difference) => panic!("seed {seed}: {difference}"),
            }
        }
    }
    eprintln!("x86-64: {tally}");
    assert!(tally.units > 0 && tally.returned > 0 && tally.trapped > 0, "{tally}");
}
