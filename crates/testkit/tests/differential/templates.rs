//! A unit like those of C++ compilers, merged and unmerged.
//!
//! Random functions seldom have full registers, tables of methods and exports together with
//! instructions that differ; a body whose selector was taken off the stack at the wrong place would
//! not be noticed by them.

use cranelift_mergefunc::thunk::CallThunks;
use cranelift_mergefunc::{Compare, Disposition, Entry, Options, Policy, Similar, Target};
use testkit::aligned;
use testkit::differential::{Comparison, Effort, Tally};
use testkit::generate::templates;
use testkit::host::{Batch, Cpu, Level};
use testkit::program::Parts;
use testkit::unit::Unit;

/// The unit, to be planned by a policy for a target.
fn unit(policy: Policy, target: Target) -> Unit {
    let similar = Similar { policy, ..Similar::default() };
    let compare = Compare { every_function: true, ..Compare::default() };
    // No jump passes arguments on the stack.
    let call_thunks = Some(CallThunks { tail_calls: false, colocated: true });
    let target = Target { call_thunks, ..target };
    let options = Options { target, similar, compare, ..Options::default() };
    templates::unit(options)
}

/// The unit and what merging makes of it, after some demands on the plan.
fn comparison(unit: &Unit, policy: Policy) -> Comparison {
    let parts = Parts::from(unit);
    let plan = parts.plan();
    parts.prove(&plan).expect("is right");
    let aligned = aligned::bodies(&parts, &plan);
    let members = plan.entries().take(plan.added()).map(|(_, entry)| entry);
    let passing: Vec<_> = members.filter(|entry| !entry.extra_arguments().is_empty()).collect();
    assert!(passing.len() > 20, "{}: {}", policy.name(), passing.len());
    // Exports become thunks; so do methods whose addresses matter.
    let is_thunk = |entry: &&Entry<'_>| matches!(entry.disposition(), Disposition::Thunk { .. });
    let thunks = passing.iter().filter(|entry| is_thunk(entry)).count();
    assert!(thunks > 5, "{}: {thunks}", policy.name());
    if policy == Policy::Size {
        assert!(!aligned.is_empty());
        let full = |aligned: &aligned::Aligned| {
            let body = plan.new_body(aligned.body).expect("of the plan").body();
            body.signature.params.len() > 10
        };
        assert!(aligned.iter().any(full), "no body whose selector is on the stack");
    }
    Comparison::new(&parts, 1, Effort { inputs: 8, ..Effort::default() }).expect("something merges")
}

#[test]
fn instances_of_templates() {
    for policy in [Policy::Balanced, Policy::Size] {
        let unit = unit(policy, Target::x86_64());
        let text: usize = unit.functions.iter().map(|member| member.body.to_string().len()).sum();
        let comparison = comparison(&unit, policy);
        let mut tally = Tally::default();
        crate::units::run_natively(1, &comparison, &mut tally);
        eprintln!("{}, {text} bytes of text: {tally}", policy.name());
        assert_eq!(tally.returned, tally.invocations(), "{tally}");
    }
}

#[test]
fn instances_of_templates_on_aarch64() {
    for policy in [Policy::Balanced, Policy::Size] {
        let comparison = comparison(&unit(policy, Target::aarch64(false)), policy);
        let mut batch = Batch::new(Cpu::Aarch64);
        for side in 0..2 {
            let (program, invocations) =
                (&comparison.programs[side], &comparison.invocations[side]);
            batch.add(Level::Speed, program, invocations).expect("is compiled");
        }
        let outcomes = batch.run();
        let tally = comparison.judge([&outcomes[0], &outcomes[1]]);
        let tally = tally.unwrap_or_else(|difference| panic!("{difference}"));
        eprintln!("{}: {tally}", policy.name());
        assert_eq!(tally.returned, tally.invocations(), "{tally}");
    }
}
