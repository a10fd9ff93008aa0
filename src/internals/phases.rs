//! The phases of [`Merger::plan`](crate::Merger::plan) one by one, for benches: the driver of `pass` with a call between
//! two phases, and the walk alone.
//!
//! It knows no earlier units. A law compares its plans with those of the driver.

use crate::apply::Redirecting;
use crate::canon::{Context, Encoding, Scratch, encode, hashes};
use crate::congruence::{Encodings, Summaries, Walk, bucket, refine};
use crate::decide::{Input, decide};
use crate::incremental::UnitSymbols;
use crate::options::Options;
use crate::parameterise::{self, Attempts, SecondPass};
use crate::plan::Plan;
use crate::size::Predicted;
use crate::unit::{AddError, Attributes, Bodies, NoUnit, Observed, ResolveSymbol};
use cranelift_codegen::ir::{Function, UserExternalName};

/// The walk, with memory that is used again, as the pass uses it.
#[derive(Default)]
pub struct WalkAlone {
    scratch: Scratch,
    encoding: Encoding,
}

impl WalkAlone {
    /// Writes the encoding of a function; every symbol is compared by name. Returns whether it has one.
    pub fn encode(&mut self, func: &Function, options: &Options<'_>) -> bool {
        let context =
            Context { policy: options.compare, target: options.target, key: 0, symbols: &NoUnit };
        encode(func, &context, &mut self.scratch, &mut self.encoding).is_ok()
    }

    /// The hash of what was written last.
    pub fn hash(&self) -> u128 {
        hashes(&self.encoding).1.0
    }
}

/// Plans a unit, and calls `end` with the name of each phase when it ends. A phase can come several times.
///
/// # Errors
///
/// Those of [`Merger::add`](crate::Merger::add).
pub fn phases<'a>(
    functions: impl ExactSizeIterator<Item = (UserExternalName, &'a Function, Attributes)>,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
    end: &mut dyn FnMut(&'static str),
) -> Result<Plan, AddError> {
    let mut summaries = Summaries::default();
    summaries.unit.reserve(functions.len());
    for (symbol, func, attributes) in functions {
        summaries.add(symbol, func, attributes, &NoUnit, None, options)?;
    }
    end("add");
    let mut predicted = None;
    let bodies = match options.predicts() {
        Some(model) => predicted.insert(Predicted::new(bodies, model)),
        None => bodies,
    };
    let names = ["bucket", "refine", "decide"];
    let (mut plan, observed, encodings) = identical(summaries, None, bodies, options, names, end);
    let mut attempts = Attempts::new(options, &plan);
    while let Some(attempt) = attempts.next(&mut plan) {
        let options = &attempts.options(attempt);
        let mut found =
            parameterise::search(&mut plan, &observed, &encodings, None, bodies, options, attempt);
        end("search");
        let mut second = SecondPass::new(options, &encodings);
        while let Some(summaries) = second.summaries(&mut found, &plan, &observed, bodies) {
            let names = ["second pass"; 3];
            let mut rewritten = second.bodies(&plan, bodies);
            let applied = Some(&plan);
            let (again, ..) =
                identical(summaries, applied, &mut rewritten, second.options(), names, end);
            second.merge(&again, &found, &mut plan, bodies);
        }
        attempts.consider(&mut plan, found, bodies);
        end("second pass");
    }
    let mut plan = attempts.finish(plan);
    plan.record_members();
    Ok(plan)
}

/// Identical merging, in three phases of these names.
fn identical(
    mut summaries: Summaries,
    applied: Option<&Plan>,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
    [bucketing, refining, deciding]: [&'static str; 3],
    end: &mut dyn FnMut(&'static str),
) -> (Plan, Observed, Encodings) {
    let redirecting = applied.map(|plan| Redirecting { plan, symbols: &NoUnit });
    let symbols = redirecting.as_ref().map_or(&NoUnit as &dyn ResolveSymbol, |symbols| symbols);
    summaries.complete(bodies, symbols, options);
    let Summaries { mut unit, observed, mut stats, .. } = summaries;
    let symbols = UnitSymbols::new(&unit);
    let redirecting = applied.map(|plan| Redirecting { plan, symbols: &symbols });
    let references = redirecting.as_ref().map_or(&symbols as &(dyn ResolveSymbol + Sync), |to| to);
    let mut bucketed = bucket(&unit, references, Walk::Shared, options, bodies, &mut stats);
    let (external, beyond) = symbols.finish();
    unit.drop_buckets();
    bucketed.partition.push_alone(external.nodes.len());
    end(bucketing);
    stats.refine_classes_before = bucketed.partition.len();
    refine(&mut bucketed.partition, &bucketed.nodes, &bucketed.references);
    stats.refine_classes_after = bucketed.partition.len();
    end(refining);
    let input = Input { options, observed: &observed, bucketed: &bucketed, earlier: None };
    let (plan, _) = decide(input, unit, beyond, bodies, stats);
    end(deciding);
    (plan, observed, bucketed.into())
}
