//! Proves that one function of Cranelift IR may run in place of another.
//!
//! A *claim* says that the code of one function may run wherever another function was called
//! before. A claim is proved by *simulation*: both functions are walked in step from their entries.
//! Whatever is defined or reached at the same place is bound to each other, values to values and
//! blocks to blocks, one to one. Every operation must be the same, its operands must be bound to
//! each other, and every fact that the kept code gives the optimiser must be a fact of the
//! original, too. Nothing is encoded, hashed or ordered. So the checker fails for other reasons
//! than the canonical walk of `cranelift-mergefunc` does, of which this crate sees nothing: it
//! depends on Cranelift alone.
//!
//! Where the kept code refers to one function and the original to another, the first must be able
//! to replace the second: another claim, which is up to the caller ([`Symbols`]). If the caller
//! follows claims until there are no new ones, all of them hold together, because each rests on
//! places that are equal and on claims that are proved in the same way (coinduction, as for
//! bisimulations: Park 1981).
//!
//! It does *not* know units or plans (`cranelift-mergefunc` says which claims a plan makes), does
//! not verify IR, and does not look at machine code.
//!
//! A parameterised body is proved for each of its functions, with the extra arguments of that
//! function: see `terms`.
//!
//! | file | what it decides |
//! |---|---|
//! | `simulation` | which blocks and values are bound to each other |
//! | `instruction` | whether two instructions do the same: every format, field by field |
//! | `tables` | whether signatures, memory flags, global values, exception tables and symbols are equal |
//! | `terms` | which values are known, where calls pass extra arguments |
//! | `selection` | where the kept code alone branches: callee dispatch, and where functions differ |
//! | `joins` | where the ways of such a branch join |
//! | `constants` | which branches always go the same way |
//! | `trace` | what a simulation compares, written down, for functions whose code is not kept |
//! | `proof` | the answer about a claim that does not hold, and about a plan |
//!
//! # Example
//!
//! ```
//! use cranelift_mergefunc_checker::{Comparison, may_replace};
//!
//! let parse = |text: &str| cranelift_reader::parse_functions(text).unwrap().remove(0);
//! let [double, equal, other] = [
//!     "function u0:0(i64) -> i64 { block0(v0: i64): v1 = iadd v0, v0 return v1 }",
//!     "function u0:1(i64) -> i64 { block0(v7: i64): v2 = iadd v7, v7 return v2 }",
//!     "function u0:2(i64) -> i64 { block0(v0: i64): v1 = imul v0, v0 return v1 }",
//! ]
//! .map(parse);
//! let comparison = Comparison { debug_info: false, endianness: None, slot_alignment: 1 };
//! assert!(may_replace(&double, &equal, comparison).is_ok());
//! assert!(may_replace(&double, &other, comparison).is_err());
//! ```

#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

mod constants;
mod instruction;
mod joins;
mod proof;
mod selection;
mod simulation;
mod tables;
mod terms;
mod trace;

pub use proof::{Mismatch, Place, Proof, Refutation};
pub use terms::ExtraTerm;
pub use trace::{Trace, digest};

use alloc::vec::Vec;
use cranelift_codegen::ir::{Endianness, Function, Inst, Signature, UserExternalName};
use simulation::Simulation;

/// Proves that `kept` may run wherever `original` was called, if every symbol that they refer to
/// may replace itself and no other symbol.
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
    comparison: Comparison,
) -> Result<(), Refutation> {
    let claim = Claim::new(kept, original, comparison);
    claim.prove(&mut IdentitySymbols).map_err(|(mismatch, at)| {
        let name = |func: &Function| func.name.get_user().cloned().unwrap_or_default();
        Refutation { kept: name(kept), original: name(original), mismatch, at: Some(at) }
    })
}

/// Properties in which two functions must agree, besides their behaviour.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Whether they must not differ in what debuggers see.
    pub debug_info: bool,
    /// The byte order of accesses that name none, if it is known.
    pub endianness: Option<Endianness>,
    /// The least alignment of a stack slot, in bytes.
    pub slot_alignment: u32,
}

/// The claim that one function may run in place of another.
///
/// See the [example](crate#example).
#[derive(Clone, Copy)]
pub struct Claim<'a> {
    /// The function that runs.
    pub kept: &'a Function,
    /// The function that was called before.
    pub original: &'a Function,
    /// The properties in which they must agree.
    pub comparison: Comparison,
    /// Whether `kept` is `original` after rewriting.
    pub own: bool,
    /// The extra arguments of `kept`. `None` if no function of the unit has extra arguments: then
    /// both have the same instructions.
    pub extra: Option<&'a [ExtraTerm]>,
}

impl<'a> Claim<'a> {
    /// The claim on two functions of a unit in which no function has extra arguments.
    pub fn new(kept: &'a Function, original: &'a Function, comparison: Comparison) -> Self {
        Claim { kept, original, comparison, own: false, extra: None }
    }

    /// Proves the claim, if references to symbols may replace each other as `symbols` says. See
    /// [`may_replace`].
    ///
    /// # Errors
    ///
    /// The first difference, and where it is.
    pub fn prove(&self, symbols: &mut dyn Symbols) -> Result<(), (Mismatch, Place)> {
        Simulation::new(self, symbols).run()
    }

    /// Each instruction of the kept function with the one of the original for which it runs, in the
    /// order of the walk, if any symbol may replace any other. It proves nothing: of a claim that
    /// does not hold, these are the instructions before the first that differ. Instructions that
    /// one function has alone, and values that are known, are not among them.
    pub fn corresponding(&self) -> Vec<(Inst, Inst)> {
        Simulation::new(self, &mut AnySymbols).paired()
    }
}

/// The use of a symbol.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Use {
    /// A direct call.
    Call,
    /// A call that may be patched, so that its symbol is observable.
    PatchableCall,
    /// The address.
    Address,
    /// An address behind that of the symbol, in the code of a function or in a data object.
    Inside,
}

/// Decides whether a reference to one symbol may replace a reference to another.
///
/// See the [example](crate#example).
pub trait Symbols {
    /// Whether a use of `kept` may replace the same use of `original`. The two can be one symbol.
    fn may_replace(
        &mut self,
        usage: Use,
        kept: &UserExternalName,
        original: &UserExternalName,
    ) -> bool;

    /// Whether a call to `kept` with these extra arguments may replace a call to `original` by this
    /// signature.
    fn extra_may_replace(
        &mut self,
        kept: &UserExternalName,
        extra: Vec<ExtraTerm>,
        original: &UserExternalName,
        signature: &Signature,
    ) -> bool;
}

/// Any symbol replaces any other.
struct AnySymbols;

impl Symbols for AnySymbols {
    fn may_replace(&mut self, _: Use, _: &UserExternalName, _: &UserExternalName) -> bool {
        true
    }

    fn extra_may_replace(
        &mut self,
        _: &UserExternalName,
        _: Vec<ExtraTerm>,
        _: &UserExternalName,
        _: &Signature,
    ) -> bool {
        true
    }
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
