//! Random units, merged and unmerged.

use arbitrary::Unstructured;
use cranelift_codegen::ir::{UserExternalName, UserFuncName};
use cranelift_mergefunc::{Policy, Similar, cranelift_codegen};
use std::collections::HashSet;
use std::panic::catch_unwind;
use testkit::check::check_streamed;
use testkit::differential::{Comparison, Effort, Outcome, Tally};
use testkit::generate::function::{Profile, Types};
use testkit::generate::opcodes::Machine;
use testkit::generate::unit::GeneratedUnit;
use testkit::host::{Batch, Cpu, Level, interpreter, run_at};
use testkit::program::{Parts, Streamed, Streaming};
use testkit::support::{Rng, any_isa};
use testkit::unit::Unit;

/// How many units, unless the environment says another number (`CLIF_MERGE_RUNS`).
const RUNS: u64 = 100;

/// The namespace of duplicates of functions.
const DUPLICATES: u32 = 77;

/// The namespace of duplicates that call other functions.
const NEAR_MISSES: u32 = 78;

/// The namespace of callers that are not added to all mergers.
const CALLERS: u32 = 79;

/// Features that every processor of this kind has.
const MACHINE: Machine = Machine::X86_64;

/// The number of units that the environment requests, or the default.
pub fn runs(default: u64) -> u64 {
    std::env::var("CLIF_MERGE_RUNS").map_or(default, |runs| runs.parse().expect("a number"))
}

/// Runs both programs on this machine, not optimised and optimised.
#[track_caller]
pub fn run_natively(seed: u64, comparison: &Comparison, tally: &mut Tally) {
    for level in [Level::None, Level::Speed] {
        match comparison.run(&mut |program, invocations| run_at(level, program, invocations)) {
            Ok(other) => *tally += other,
            Err(difference) => panic!("seed {seed}: {difference}"),
        }
    }
}

/// A unit to be run, for a seed, and the functions that keep to the conventions. All choices of
/// what is drawn are made here.
fn unit(seed: u64, profile: &Profile) -> (Unit, HashSet<UserExternalName>) {
    let mut rng = Rng::new(seed);
    let bytes = rng.bytes(8192);
    let small =
        Profile { machine: profile.machine, patchable: false, inside: false, ..Profile::small() };
    let profile = match seed % 4 {
        0 => &small,
        2 => &profile.differing(),
        _ => profile,
    };
    let GeneratedUnit { unit, about, .. } =
        GeneratedUnit::draw(&mut Unstructured::new(&bytes), profile);
    let runnable = unit.functions.iter().zip(about).filter(|(_, about)| about.runnable);
    let runnable = runnable.map(|(member, _)| member.symbol()).collect();
    (unit, runnable)
}

/// Appends a duplicate of every function.
fn duplicate_all(unit: &mut Unit, runnable: &mut HashSet<UserExternalName>) {
    for index in 0..unit.functions.len() {
        let mut duplicate = unit.functions[index].clone();
        let symbol = UserExternalName::new(DUPLICATES, index as u32);
        if runnable.contains(&unit.functions[index].symbol()) {
            runnable.insert(symbol.clone());
        }
        duplicate.body.name = UserFuncName::User(symbol);
        unit.functions.push(duplicate);
    }
}

/// A unit for a seed, and what to compare of it. `None` if nothing merges.
fn comparison(seed: u64, profile: &Profile, tally: &mut Tally) -> Option<Comparison> {
    let (unit, runnable) = unit(seed, profile);
    compare(seed, unit, runnable, tally)
}

fn compare(
    seed: u64,
    unit: Unit,
    runnable: HashSet<UserExternalName>,
    tally: &mut Tally,
) -> Option<Comparison> {
    let comparison = Comparison::new(&Parts::from(&unit), seed, Effort::default());
    only(comparison, &runnable, tally)
}

/// Only calls of these functions.
fn only(
    comparison: Option<Comparison>,
    runnable: &HashSet<UserExternalName>,
    tally: &mut Tally,
) -> Option<Comparison> {
    tally.idle += usize::from(comparison.is_none());
    let mut comparison = comparison?;
    for invocations in &mut comparison.invocations {
        invocations.retain(|invocation| runnable.contains(&invocation.function));
    }
    Some(comparison)
}

#[track_caller]
fn same(seed: u64, comparison: &Comparison, outcomes: [&[Outcome]; 2]) -> Tally {
    match comparison.judge(outcomes) {
        Ok(tally) => tally,
        Err(difference) => panic!("seed {seed}: {difference}"),
    }
}

#[test]
fn random_units() {
    let mut tally = Tally::default();
    let profile = Profile::runnable(MACHINE);
    for seed in 0..runs(RUNS) {
        let Some(comparison) = comparison(seed, &profile, &mut tally) else {
            continue;
        };
        run_natively(seed, &comparison, &mut tally);
    }
    eprintln!("x86-64: {tally}");
    assert!(tally.aligned > 0, "{tally}");
    assert!(tally.units > 0 && tally.returned > 0 && tally.trapped > 0, "{tally}");
}

/// Canonical bodies are made by Cranelift's optimiser, and by rules that are taken on trust: what
/// they compute is compared with the functions as they were. Every function has a duplicate, and is
/// merged with it.
#[test]
fn random_units_of_canonical_bodies() {
    let mut tally = Tally::default();
    let profile = Profile::runnable(MACHINE);
    for seed in 0..runs(RUNS) / 2 {
        let (mut unit, mut runnable) = unit(seed, &profile);
        duplicate_all(&mut unit, &mut runnable);
        let comparison = Comparison::canonical(&unit, any_isa(), seed, Effort::default());
        if let Some(comparison) = only(comparison, &runnable, &mut tally) {
            run_natively(seed, &comparison, &mut tally);
        }
    }
    eprintln!("canonical: {tally}");
    assert!(tally.aligned > 0, "{tally}");
    assert!(tally.units > 0 && tally.returned > 0 && tally.trapped > 0, "{tally}");
}

/// Functions are compiled as they arrive, no IR is kept, and references are redirected where code
/// is linked. Every function has a duplicate, before or behind it, those that call have one that
/// calls another function, and each has a caller besides, which may not be added.
#[test]
fn random_units_whose_ir_is_not_kept() {
    let mut tally = Tally::default();
    let (mut not_compiled, mut new_bodies) = (0, 0);
    let profile = Profile::runnable(MACHINE);
    for seed in 0..runs(RUNS) / 2 {
        let (mut unit, mut runnable) = unit(seed, &profile);
        duplicate_all(&mut unit, &mut runnable);
        for [original, callee, symbol] in unit.push_with_other_callees(NEAR_MISSES) {
            if runnable.contains(&original) && runnable.contains(&callee) {
                runnable.insert(symbol);
            }
        }
        if seed % 2 == 0 {
            unit.functions.reverse();
        }
        for [callee, caller] in unit.push_callers(CALLERS) {
            if runnable.contains(&callee) {
                runnable.insert(caller);
            }
        }
        let streaming = Streaming::any(seed as usize);
        if streaming != Streaming::Holding(0) {
            unit.options.similar = Similar { policy: Policy::Size, ..unit.options.similar };
        }
        let parts = Parts::from(&unit);
        let (mut comparison, streamed) =
            Comparison::streamed(&parts, streaming, seed, Effort::default());
        check_streamed(&streamed);
        let Streamed { plan, code_of, .. } = &streamed;
        let others =
            code_of.iter().enumerate().filter(|(own, code)| code.as_u32() as usize != *own);
        not_compiled += others.count();
        new_bodies += plan.new_bodies().len();
        for invocations in &mut comparison.invocations {
            invocations.retain(|invocation| runnable.contains(&invocation.function));
        }
        run_natively(seed, &comparison, &mut tally);
    }
    eprintln!("{tally}; {not_compiled} functions not compiled, {new_bodies} parameterised bodies");
    assert!(tally.returned > 0 && tally.trapped > 0, "{tally}");
    assert!(not_compiled > 0 && new_bodies > 0);
}

/// Units that go into one run of the emulator.
const BATCH: u64 = 50;

#[test]
fn random_units_on_aarch64() {
    let mut tally = Tally::default();
    let profile = Profile::runnable(Machine::Aarch64);
    let (mut cannot, mut like_x86_64, mut otherwise) = (0, 0, 0);
    for first in (0..runs(RUNS)).step_by(BATCH as usize) {
        let mut batch = Batch::new(Cpu::Aarch64);
        let mut units = Vec::new();
        for seed in first..runs(RUNS).min(first + BATCH) {
            let Some(comparison) = comparison(seed, &profile, &mut tally) else {
                continue;
            };
            let Comparison { programs, invocations, .. } = &comparison;
            // A program that does not compile on one side must not compile on the other.
            let [before, after] = [0, 1].map(|side| {
                let mut alone = Batch::new(Cpu::Aarch64);
                let added = alone.add(Level::Speed, &programs[side], &invocations[side]);
                added.map(|()| alone)
            });
            match (before, after) {
                (Ok(before), Ok(after)) => {
                    batch.append(before);
                    batch.append(after);
                    units.push((seed, comparison));
                }
                (Err(_), Err(_)) => cannot += 1,
                (Err(error), Ok(_)) | (Ok(_), Err(error)) => panic!("seed {seed}: {error}"),
            }
        }
        let outcomes = batch.run();
        for ((seed, comparison), outcomes) in units.iter().zip(outcomes.chunks_exact(2)) {
            tally += same(*seed, comparison, [&outcomes[0], &outcomes[1]]);
            let Comparison { programs, invocations, .. } = comparison;
            // x86-64 does not support all of it.
            let here = || run_at(Level::Speed, &programs[0], &invocations[0]);
            for (here, there) in catch_unwind(here).iter().flatten().zip(&outcomes[0]) {
                *if here == there { &mut like_x86_64 } else { &mut otherwise } += 1;
            }
        }
    }
    eprintln!(
        "aarch64: {tally}; {cannot} units do not compile, {like_x86_64} as on x86-64, {otherwise} not"
    );
    assert!(tally.aligned > 0, "{tally}");
    assert!(tally.units > 0 && tally.returned > 0 && tally.trapped > 0, "{tally}");
}

#[test]
fn random_units_interpreted() {
    let mut tally = Tally::default();
    // It is slow, and most vectors and wide values are beyond it.
    let types = Types { floats: true, ..Types::NONE };
    let profile = Profile { types, ..Profile::runnable(MACHINE) };
    let (mut cannot, mut like_x86_64, mut otherwise) = (0, 0, 0);
    for seed in 0..runs(RUNS) / 4 {
        let Some(mut comparison) = comparison(seed, &profile, &mut tally) else {
            continue;
        };
        let outcomes = [0, 1].map(|side| {
            interpreter::run(&comparison.programs[side], &comparison.invocations[side])
        });
        let native = run_at(Level::None, &comparison.programs[0], &comparison.invocations[0]);
        // Only invocations that it can run on both sides are compared.
        let [before, after] = &outcomes;
        let both = |at: usize| before[at].is_some() && after[at].is_some();
        for invocations in &mut comparison.invocations {
            let mut at = 0..;
            invocations.retain(|_| both(at.next().expect("endless")));
        }
        for (at, native) in native.iter().enumerate().filter(|(at, _)| both(*at)) {
            let same = before[at].as_ref() == Some(native);
            *if same { &mut like_x86_64 } else { &mut otherwise } += 1;
        }
        let total = before.len();
        let [before, after] = outcomes.each_ref().map(|side| {
            let chosen = side.iter().enumerate().filter(|(at, _)| both(*at));
            chosen.filter_map(|(_, outcome)| outcome.clone()).collect::<Vec<Outcome>>()
        });
        cannot += total - before.len();
        tally += same(seed, &comparison, [&before, &after]);
    }
    eprintln!(
        "interpreted: {tally}; {cannot} invocations cannot be, {like_x86_64} as on x86-64, \
         {otherwise} not"
    );
    assert!(tally.aligned > 0, "{tally}");
    assert!(tally.returned > 0 && tally.trapped > 0, "{tally}");
}
