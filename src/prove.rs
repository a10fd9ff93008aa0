//! Proving a plan: hands the unit, as the plan leaves it, to the checker.

use crate::apply::Applied;
use crate::checker::{self, Learned, Memory, Remember};
use crate::incremental::MergeCache;
use crate::options::{Options, Prove};
use crate::plan::Plan;
use crate::unit::Bodies;
use cranelift_mergefunc_checker::{Proof, Refutation};

/// The plan, if the checker can prove it, and what later units may need to know of the unit for
/// their proofs.
pub(crate) fn proved(
    mut plan: Plan,
    before: Option<&MergeCache>,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
    remember: Remember,
) -> (Plan, Learned) {
    match options.prove {
        Prove::Never => return (plan, Learned::default()),
        Prove::Debug if !cfg!(debug_assertions) => return (plan, Learned::default()),
        Prove::Debug | Prove::Always => {}
    }
    let nothing = Memory::default();
    let memory = before.map_or(&nothing, |before| &before.memory);
    match prove_and_learn(memory, &plan, bodies, options, remember) {
        Err(refutation) if options.prove == Prove::Debug => panic!("{refutation}"),
        Err(refutation) => (plan.without_merges(refutation), Learned::default()),
        Ok((proof, learned)) => {
            plan.set_proof(proof);
            (plan, learned)
        }
    }
}

fn prove_and_learn(
    memory: &Memory,
    plan: &Plan,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
    remember: Remember,
) -> Result<(Proof, Learned), Refutation> {
    let mut code = Applied { plan, bodies };
    checker::prove_and_learn(memory, plan, &mut code, options, remember)
}

/// Proves that the unit is equivalent before and after `plan`.
///
/// `bodies` are those that were planned, and `options` those of the run. Every function that is
/// kept is cloned and rewritten by [`Plan::apply`], and compared with every function that its code
/// replaces. Linear in the sizes of the functions that are kept or merged, and of those that
/// callers use in place of each other: usually few, but m² if m functions of one
/// class are all kept, refer to each other, and m merged callers each refer to another one of them.
///
/// See the [example](crate#example).
///
/// # Errors
///
/// The first claim that does not hold, in the order of functions and claims.
///
/// A plan that was made by [`Merger::after`](crate::Merger::after) is proved by
/// [`prove_after`](crate::check::prove_after).
///
/// # Panics
///
/// If the bodies are not those that were planned, it may panic.
pub fn prove(
    plan: &Plan,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
) -> Result<Proof, Refutation> {
    let nothing = Memory::default();
    Ok(prove_and_learn(&nothing, plan, bodies, options, Remember::Nothing)?.0)
}

/// Proves the plan of an incremental run, as [`prove`](crate::check::prove) does for a single unit.
/// `cache` is what earlier units emitted, not yet extended by this plan. Merges into functions of
/// earlier units are proved by the records of these; records are kept where their plans were
/// proved as well ([`Options::prove`]).
///
/// See the [example](crate#example).
///
/// # Errors
///
/// See [`prove`](crate::check::prove).
///
/// # Panics
///
/// See [`prove`](crate::check::prove).
pub fn prove_after(
    cache: &MergeCache,
    plan: &Plan,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
) -> Result<Proof, Refutation> {
    Ok(prove_and_learn(&cache.memory, plan, bodies, options, Remember::Nothing)?.0)
}
