//! The checker refuses no plan that the pass makes: a refused plan merges nothing, and in a debug
//! build is a panic.
//!
//! `CLIF_MERGE_RUNS` asks for another number of units, each of which is planned with every set of
//! options, and `CLIF_MERGE_SEED` for another first seed.

use crate::support::{asked_runs, first_seed};
use arbitrary::Unstructured;
use cranelift_codegen::isa::TargetIsa;
use cranelift_mergefunc::across::ContentAddressing;
use cranelift_mergefunc::thunk::CallThunks;
use cranelift_mergefunc::{
    Callees, Compare, Instructions, Options, Policy, Prove, Similar, Target,
};
use testkit::generate::function::Profile;
use testkit::generate::opcodes::Machine;
use testkit::generate::unit::GeneratedUnit;
use testkit::support::Rng;

/// The sets of options: most differ from the policy for size in one of them.
fn option_sets(isa: &'static dyn TargetIsa) -> Vec<(&'static str, Options<'static>)> {
    let options = |policy| Options {
        target: Target::of(isa),
        similar: Similar { policy, ..Similar::default() },
        prove: Prove::Always,
        ..Options::default()
    };
    let [off, balanced, size] = [Policy::Off, Policy::Balanced, Policy::Size].map(options);
    let similar = |similar: Similar| Options { similar, ..size };
    vec![
        ("identical functions", off),
        ("balanced", balanced),
        ("size", size),
        ("no callees", similar(Similar { callees: Callees::None, ..size.similar })),
        ("dispatch", similar(Similar { callees: Callees::Dispatch, ..size.similar })),
        ("no instructions", similar(Similar { instructions: Instructions::None, ..size.similar })),
        ("symbols are kept", similar(Similar { keep_symbols: true, ..size.similar })),
        (
            "integer registers only",
            similar(Similar { integer_registers_only: true, ..size.similar }),
        ),
        ("aliases", Options { aliases: true, ..size }),
        ("interposition", Options { interposition: true, ..size }),
        (
            "thunks that call",
            Options {
                target: Target {
                    call_thunks: Some(CallThunks { tail_calls: true, colocated: false }),
                    ..Target::generic()
                },
                ..size
            },
        ),
        (
            "debug information is compared",
            Options { compare: Compare { debug_info: true, ..size.compare }, ..size },
        ),
        (
            "every function is walked",
            Options { compare: Compare { every_function: true, ..Compare::default() }, ..size },
        ),
        (
            "content addressing",
            Options { content_addressing: Some(ContentAddressing::of(isa)), ..size },
        ),
    ]
}

/// Plans the unit of a seed with every set of options, and returns how many functions were merged.
fn merged(seed: u64, isas: [&'static dyn TargetIsa; 2]) -> usize {
    let at = seed as usize % MACHINES.len();
    let profile = match seed % 5 {
        0 => Profile::all(MACHINES[at]),
        1 | 2 => Profile::runnable(MACHINES[at]).differing(),
        3 => Profile::small(),
        _ => Profile::runnable(MACHINES[at]),
    };
    let bytes = Rng::new(seed).bytes(4096);
    let unit = GeneratedUnit::draw(&mut Unstructured::new(&bytes), &profile).unit;
    let sets = option_sets(isas[at]).into_iter();
    let merged = sets.map(|(name, options)| {
        let plan = testkit::unit::Unit { options, ..unit.clone() }.plan();
        match plan.proof().expect("every plan is proved") {
            Ok(_) => plan.stats().merged.functions,
            Err(refutation) => panic!("seed {seed}, {name}: {refutation}"),
        }
    });
    merged.sum()
}

const MACHINES: [Machine; 2] = [Machine::X86_64, Machine::Aarch64];

/// The targets. Options of a unit live as long as the program.
fn isas() -> [&'static dyn TargetIsa; 2] {
    MACHINES.map(|machine| &**Box::leak(Box::new(machine.isa("speed"))))
}

#[test]
fn no_plan_for_a_random_unit_is_refused() {
    let (isas, first) = (isas(), first_seed());
    let runs = asked_runs(60);
    let merged: usize = (first..first + runs).map(|seed| merged(seed, isas)).sum();
    println!("{runs} units, {merged} functions merged");
    assert!(merged > runs as usize, "{merged} in {runs} units");
}
