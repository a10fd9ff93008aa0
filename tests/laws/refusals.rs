//! The checker refuses no plan that the pass makes: a refused plan merges nothing, and in a debug build is a panic.
//!
//! `CLIF_MERGE_RUNS` asks for another number of units, each of which is planned with every set of options.

use crate::content::compared;
use crate::support::asked_runs;
use arbitrary::Unstructured;
use cranelift_codegen::isa::TargetIsa;
use cranelift_mergefunc::{
    CallThunks, Callees, Canonicalize, ContentAddressing, Instructions, Options, Policy, Prebucket,
    Prove, Similar, Target,
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
                target: Target::generic(),
                call_thunks: Some(CallThunks { tail_calls: true, colocated: false }),
                ..size
            },
        ),
        ("everything is compared", Options { compare: compared(u64::MAX), ..size }),
        ("every function is walked", Options { prebucket: Prebucket::WalkAll, ..size }),
        ("canonical bodies", Options { canonicalize: Canonicalize::Optimize(isa), ..balanced }),
        (
            "canonical bodies that dispatch",
            Options {
                canonicalize: Canonicalize::Optimize(isa),
                similar: Similar { callees: Callees::Dispatch, ..size.similar },
                ..size
            },
        ),
        (
            "content addressing",
            Options { content_addressing: Some(ContentAddressing::of(isa)), ..size },
        ),
    ]
}

#[test]
fn no_plan_for_a_random_unit_is_refused() {
    let (mut merged, mut sets) = (0, 0);
    let machines = [Machine::X86_64, Machine::Aarch64];
    // Options of a unit live as long as the program.
    let isas = machines.map(|machine| &**Box::leak(Box::new(machine.isa("speed"))));
    for seed in 0..asked_runs(60) {
        let at = seed as usize % machines.len();
        let profile = match seed % 5 {
            0 => Profile::all(machines[at]),
            1 | 2 => Profile::runnable(machines[at]).differing(),
            3 => Profile::small(),
            _ => Profile::runnable(machines[at]),
        };
        let bytes = Rng::new(seed).bytes(4096);
        let unit = GeneratedUnit::draw(&mut Unstructured::new(&bytes), &profile).unit;
        for (name, options) in option_sets(isas[at]) {
            let unit = testkit::unit::Unit { options, ..unit.clone() };
            let plan = unit.plan();
            match plan.proof().expect("every plan is proved") {
                Ok(_) => merged += plan.stats().plan_merged,
                Err(refutation) => panic!("seed {seed}, {name}: {refutation}"),
            }
            sets += 1;
        }
    }
    println!("{sets} plans, {merged} functions merged");
    assert!(merged > sets, "{sets} plans, {merged} functions merged");
}
