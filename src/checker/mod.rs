//! The independent checker: a proof, merge by merge, that a plan preserves the meaning of the unit.
//!
//! The proof of one claim, that the code of one function may run wherever another function was
//! called before, is that of the crate `cranelift-mergefunc-checker`, which sees nothing of this
//! one. This module says which claims a plan makes. Where the kept code refers to one function and
//! the original to another, the first must be able to replace the second: another claim.
//! [`prove`](crate::check::prove) follows claims until there are no new ones. Around them it checks
//! that every symbol and every address that can be observed is still there. It looks at the output
//! of [`Plan::apply`](crate::Plan::apply), not at the reasoning of the pass.
//!
//! It does *not* verify IR, and does not look at the machine code that a back end makes of
//! thunks and aliases. It proves merges, not that everything equal was found.
//!
//! | file | what it decides |
//! |---|---|
//! | `unit` | which claims a plan makes; symbols, addresses, alignment, data |
//! | `incremental` | claims on functions and data of earlier units |

mod incremental;
mod unit;

pub(crate) use incremental::{Learned, Memory, Remember};
pub(crate) use unit::{corresponding, prove_and_learn};

use crate::options::Options;
use crate::unit::{DataIndex, DataObject, FunctionIndex};
use cranelift_codegen::ir::Function;
use cranelift_mergefunc_checker::{Comparison, Refutation};

/// The functions and data objects of a unit, before and after a plan. The checker itself rewrites
/// nothing.
pub(crate) trait Code {
    /// A function of the unit as it was added.
    fn original(&mut self, function: FunctionIndex) -> &Function;

    /// The code of a kept function as it will be compiled.
    fn emitted(&mut self, function: FunctionIndex) -> Function;

    /// A data object of the unit, if its contents are available.
    fn data(&mut self, data: DataIndex) -> Option<&DataObject>;
}

fn comparison(options: &Options<'_>) -> Comparison {
    Comparison {
        debug_info: options.compare.debug_info,
        endianness: options.target.endianness,
        slot_alignment: options.target.slot_alignment,
    }
}

/// Proves that `kept` may run wherever `original` was called, if every symbol that they refer to
/// may replace itself and no other symbol. Of `options`, whether debug information is compared and
/// the target's byte order count.
///
/// Both functions must be accepted by Cranelift's verifier. Linear in their sizes, up to a
/// logarithm in the number of alias regions.
///
/// See the [example](crate#example).
///
/// # Errors
///
/// The first place, in the order of a walk from the entry, at which they differ.
pub fn may_replace(
    kept: &Function,
    original: &Function,
    options: &Options<'_>,
) -> Result<(), Refutation> {
    cranelift_mergefunc_checker::may_replace(kept, original, comparison(options))
}

/// The record of a function, so that tests can compare it: a digest, and the references.
#[cfg(feature = "internals")]
pub fn trace(func: &Function, options: &Options<'_>) -> Option<([u8; 32], alloc::string::String)> {
    use cranelift_mergefunc_checker::Trace;
    let Trace { digest, references } = Trace::of(func, 0, comparison(options)).ok()?;
    Some((digest, alloc::format!("{references:?}")))
}
