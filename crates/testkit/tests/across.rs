//! Units that are cut into several and planned apart do what they did as one, whatever their sharing maps say.
//!
//! `CLIF_MERGE_RUNS` is how many units each test runs.

use arbitrary::Unstructured;
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_mergefunc::{
    CallThunks, Policy, Prove, SharingMap, cranelift_codegen, decide_sharing,
};
use testkit::across::{Linked, cut, linked, map, random_sets, replicated, summaries};
use testkit::differential::{Comparison, Effort, Tally};
use testkit::generate::function::Profile;
use testkit::generate::opcodes::Machine;
use testkit::generate::unit::GeneratedUnit;
use testkit::host::{Batch, Cpu, Level};
use testkit::isa;
use testkit::program::{Parts, Program};
use testkit::support::Rng;
use testkit::unit::Unit;

fn runs(usual: u64) -> u64 {
    let runs = std::env::var("CLIF_MERGE_RUNS");
    runs.map_or(usual, |runs| runs.parse().expect("a number"))
}

/// What all units of a test did.
#[derive(Debug, Default)]
struct Counts {
    units: usize,
    bodies: usize,
    copies: usize,
    parameterised: usize,
    shared: usize,
    ignored: usize,
}

impl Counts {
    fn add(&mut self, linked: &Linked) {
        self.units += 1;
        self.bodies += linked.bodies;
        self.copies += linked.copies;
        self.parameterised += linked.parameterised;
        self.shared += linked.shared;
        self.ignored += linked.ignored;
    }
}

/// A unit, and the same in pieces.
fn pieces(seed: u64, profile: &Profile, isa: &OwnedTargetIsa, rng: &mut Rng) -> (Unit, Vec<Unit>) {
    let bytes = Rng::new(seed).bytes(3000);
    let profile = if seed.is_multiple_of(3) { profile.differing() } else { *profile };
    let generated = GeneratedUnit::draw(&mut Unstructured::new(&bytes), &profile);
    let mut unit = generated.disguised(seed).unit;
    unit.options.prove = Prove::Always;
    unit.options.interposition = rng.one_in(2);
    if rng.one_in(2) {
        unit.options.call_thunks = Some(CallThunks { tail_calls: true, colocated: true });
    }
    let count = 2 + rng.below(3);
    unit = replicated(&unit, 1 + rng.below(count) as u32, rng);
    let pieces = cut(&unit, count, &**isa, rng);
    (unit, pieces)
}

/// Runs what was linked, and the units as they were.
fn run(comparisons: &[(u64, Comparison)], level: Level, tally: &mut Tally) {
    let mut batch = Batch::new(Cpu::Native);
    for (seed, Comparison { programs, invocations, .. }) in comparisons {
        for side in 0..2 {
            let added = batch.add(level, &programs[side], &invocations[side]);
            added.unwrap_or_else(|error| panic!("{seed}: {error}"));
        }
    }
    let outcomes = batch.run();
    for ((seed, comparison), pair) in comparisons.iter().zip(outcomes.chunks(2)) {
        match comparison.judge([&pair[0], &pair[1]]) {
            Ok(one) => *tally += one,
            Err(difference) => panic!("seed {seed}: {difference}"),
        }
    }
}

/// Cuts generated units, makes the maps of the pieces, and compares what they do together with what they did as one.
fn check(
    seeds: std::ops::Range<u64>,
    maps: impl Fn(&[Unit], &mut Rng) -> Vec<Option<Vec<u8>>>,
) -> (Counts, Tally) {
    let (mut counts, mut tally) = Default::default();
    let profile = Profile::runnable(Machine::host());
    let mut waiting: Vec<(u64, Comparison)> = Vec::new();
    for level in [Level::None, Level::Speed] {
        let isa = Machine::host().isa(isa::opt_level(level == Level::Speed));
        for seed in seeds.clone() {
            let mut rng = Rng::new(seed ^ 0xac05 << 40 ^ (level as u64) << 60);
            let (whole, units) = pieces(seed, &profile, &isa, &mut rng);
            let maps = maps(&units, &mut rng);
            let opened: Vec<Option<SharingMap<'_>>> = maps
                .iter()
                .map(|bytes| bytes.as_ref().and_then(|bytes| SharingMap::open(bytes).ok()))
                .collect();
            let opened: Vec<Option<&SharingMap<'_>>> = opened.iter().map(Option::as_ref).collect();
            let linked = linked(&whole, &units, &opened, &*isa, &mut rng);
            Counts::add(&mut counts, &linked);
            if linked.bodies == 0 {
                continue;
            }
            let programs = [Program::unmerged(&Parts::from(&whole)), linked.program];
            waiting.push((seed, Comparison::of(programs, seed, Effort::default())));
            if waiting.len() == 50 {
                run(&waiting, level, &mut tally);
                waiting.clear();
            }
        }
        run(&waiting, level, &mut tally);
        waiting.clear();
    }
    eprintln!("{counts:?}; {tally}");
    (counts, tally)
}

/// A body in one unit must not be taken for another unit's that differs.
#[test]
fn units_without_a_map_do_what_they_did_as_one() {
    let (counts, tally) = check(0..runs(150), |units, _| vec![None; units.len()]);
    assert!(counts.bodies > 500 && counts.copies > 150, "{counts:?}");
    assert!(tally.returned > 1000 && tally.trapped > 100, "{tally}");
}

/// A body that gets extra arguments must get those of the function whose code it runs, in every unit.
#[test]
fn units_with_a_map_do_what_they_did_as_one() {
    let (counts, tally) = check(1000..1000 + runs(150), |units, rng| {
        let policy = rng.choose(&[Policy::Off, Policy::Balanced, Policy::Size, Policy::Size]);
        let bytes = map(&summaries(units), &mut |group| decide_sharing(group, policy));
        vec![Some(bytes); units.len()]
    });
    assert!(counts.shared > 250 && counts.copies > 60, "{counts:?}");
    assert!(tally.returned > 1000, "{tally}");
}

/// A map is not trusted: sets of anything with any parameters cost bytes, and nothing else.
#[test]
fn maps_that_say_anything_change_nothing() {
    let (counts, tally) = check(2000..2000 + runs(200), |units, rng| {
        let summaries = summaries(units);
        match rng.below(3) {
            // Each unit has another one.
            0 => units
                .iter()
                .map(|_| Some(map(&summaries, &mut |group| random_sets(group, rng))))
                .collect(),
            _ => {
                let bytes = map(&summaries, &mut |group| random_sets(group, rng));
                vec![Some(bytes); units.len()]
            }
        }
    });
    assert!(counts.shared > 250 && counts.copies > 60, "{counts:?}");
    assert!(counts.ignored > 10 && tally.returned > 1000, "{counts:?} {tally}");
}
