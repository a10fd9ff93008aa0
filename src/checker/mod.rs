//! The independent checker: a proof, merge by merge, that a plan preserves the meaning of the unit.
//!
//! A *claim* says that the code of one function, as it is after [`Plan::apply`], may run wherever another function
//! was called before. A claim is proved by *simulation*: both functions are walked in step from their entries.
//! Whatever is defined or reached at the same place is bound to each other, values to values and blocks to blocks,
//! one to one. Every operation must be the same, its operands must be bound to each other, and every fact that the
//! kept code gives the optimiser must be a fact of the original, too. Nothing is encoded, hashed or ordered. So the
//! checker fails for other reasons than the canonical walk does, and it shares no code with the walk (a test
//! ensures that). It looks at the output of `apply`, not at the reasoning of the pass.
//!
//! Where the kept code refers to one function and the original to another, the first must be able to replace the
//! second: another claim. [`prove`] follows claims until there are no new ones. Then all of them hold together,
//! because each rests on places that are equal and on claims that are proved in the same way (coinduction, as for
//! bisimulations: Park 1981). Around them it checks that every symbol and every address that can be observed is
//! still there.
//!
//! What it does *not* do: it does not verify IR, and does not look at the machine code that a back end makes of
//! thunks and aliases. It proves merges, not that everything equal was found.
//!
//! A parameterised body is proved for each of its functions, with the extra arguments of that function: see
//! `terms`.
//!
//! | file | what it decides |
//! |---|---|
//! | `simulation` | which blocks and values are bound to each other |
//! | `instruction` | whether two instructions do the same: every format, field by field |
//! | `tables` | the same of signatures, memory flags, global values, exception tables, symbols |
//! | `terms` | which values are known, where calls pass extra arguments |
//! | `selection` | where the kept code alone branches: callee dispatch, and where functions differ |
//! | `constants` | which branches always go the same way |
//! | `trace` | what a simulation compares, written down, for functions whose code is not kept |
//! | `incremental` | claims on functions and data of earlier units |
//! | `unit` | which claims a plan makes; symbols, addresses, alignment, data |

mod constants;
mod incremental;
mod instruction;
mod joins;
mod selection;
mod simulation;
mod tables;
mod terms;
mod trace;
mod unit;

pub(crate) use incremental::{Learned, Memory, Remember};
pub(crate) use unit::prove_and_learn;

use crate::options::Options;
use crate::plan::Refutation;
use crate::target::Target;
use crate::unit::{DataIndex, DataObject, FunctionIndex};
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, Signature, UserExternalName};
use simulation::{Failure, Simulation};
use terms::ExtraTerm;

/// The functions and data objects of a unit, before and after a plan. The checker itself rewrites nothing.
pub(crate) trait Code {
    /// A function of the unit as it was added.
    fn original(&mut self, function: FunctionIndex) -> &Function;

    /// The code of a kept function as it will be compiled.
    fn emitted(&mut self, function: FunctionIndex) -> Function;

    /// A data object of the unit, if its contents are available.
    fn data(&mut self, data: DataIndex) -> Option<&DataObject>;
}

/// Proves that `kept` may run wherever `original` was called, if every symbol that they refer to may replace itself
/// and no other symbol. Of `options`, whether debug information is compared and the target's byte order count.
///
/// Both functions must be accepted by Cranelift's verifier. Linear in their sizes, up to a
/// logarithm in the number of alias regions.
///
/// # Errors
///
/// The first place, in the order of a walk from the entry, at which they differ.
pub fn may_replace(
    kept: &Function,
    original: &Function,
    options: &Options<'_>,
) -> Result<(), Refutation> {
    let claim = Claim::new(kept, original, options);
    Simulation::new(&claim, &mut IdentitySymbols).run().map_err(|failure| {
        let Failure { mismatch, at } = failure;
        let name = |func: &Function| func.name.get_user().cloned().unwrap_or_default();
        Refutation { kept: name(kept), original: name(original), mismatch, at: Some(at) }
    })
}

/// What is remembered of a function, so that tests can compare it: a digest, and the references.
#[cfg(feature = "internals")]
pub fn trace(func: &Function, options: &Options<'_>) -> Option<([u8; 32], alloc::string::String)> {
    let trace::Trace { digest, references } = trace::Trace::of(func, 0, options).ok()?;
    Some((digest, alloc::format!("{references:?}")))
}

/// The claim that one function may run in place of another.
pub(crate) struct Claim<'a> {
    pub kept: &'a Function,
    pub original: &'a Function,
    /// Whether they must not differ in what debuggers see.
    pub debug_info: bool,
    pub target: Target,
    /// Whether `kept` is `original` after rewriting.
    pub own: bool,
    /// The extra arguments of `kept`. `None` if no function of the unit has extra arguments: then both have the
    /// same instructions.
    pub extra: Option<&'a [ExtraTerm]>,
}

impl<'a> Claim<'a> {
    fn new(kept: &'a Function, original: &'a Function, options: &Options<'_>) -> Self {
        Claim {
            kept,
            original,
            debug_info: options.compare.debug_info,
            target: options.target,
            own: false,
            extra: None,
        }
    }
}

/// What a symbol is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Use {
    Call,
    /// A call that may be patched, so that its symbol is observable.
    PatchableCall,
    Address,
    /// An address behind that of the symbol, in the code of a function or in a data object.
    Inside,
}

/// Decides whether a reference to one symbol may replace a reference to another.
pub(crate) trait Symbols {
    fn may_replace(
        &mut self,
        usage: Use,
        kept: &UserExternalName,
        original: &UserExternalName,
    ) -> bool;

    /// Whether a call to `kept` with these extra arguments may replace a call to `original` by this signature.
    fn extra_may_replace(
        &mut self,
        kept: &UserExternalName,
        extra: Vec<ExtraTerm>,
        original: &UserExternalName,
        signature: &Signature,
    ) -> bool;
}

/// Every symbol replaces only itself.
struct IdentitySymbols;

impl Symbols for IdentitySymbols {
    fn may_replace(
        &mut self,
        _: Use,
        kept: &UserExternalName,
        original: &UserExternalName,
    ) -> bool {
        kept == original
    }

    fn extra_may_replace(
        &mut self,
        _: &UserExternalName,
        _: Vec<ExtraTerm>,
        _: &UserExternalName,
        _: &Signature,
    ) -> bool {
        false
    }
}
