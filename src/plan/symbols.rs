//! Which functions must keep their symbols although their bodies are not needed any more: the one
//! place where that is decided.

use super::Reason;
use crate::unit::{Addresses, Attributes, Linkage};

/// The uses of a function.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SymbolUses {
    /// Its address is taken.
    pub address: bool,
    /// Calls of it can be patched.
    pub patchable: bool,
    /// It is called with a mismatched signature.
    pub mismatched: bool,
    /// It is the target of a thunk or an alias.
    pub thunk_target: bool,
    /// The embedder keeps all symbols.
    pub kept: bool,
}

/// The replacement of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplacedBy {
    /// An equal function: whatever uses the function can use it instead.
    Equal,
    /// A parameterised body: only calls that pass its extra arguments can use it.
    ParameterisedBody,
}

/// The reason why a function must keep its symbol, if it must.
pub(crate) fn must_keep_symbol(
    attributes: &Attributes,
    uses: SymbolUses,
    by: ReplacedBy,
) -> Option<Reason> {
    let Attributes { linkage, addresses, externally_called, .. } = *attributes;
    let SymbolUses { address, patchable, mismatched, thunk_target, kept } = uses;
    let (address, other) = match by {
        ReplacedBy::Equal => (address && addresses == Addresses::Significant, false),
        // For a mismatched call it is not known behind which arguments the extra arguments would
        // go.
        ReplacedBy::ParameterisedBody => (address, mismatched || thunk_target || kept),
    };
    match linkage {
        Linkage::Preemptible => Some(Reason::Preemptible),
        Linkage::Export | Linkage::Hidden => Some(Reason::VisibleOutside),
        Linkage::Local if patchable => Some(Reason::PatchableCalls),
        Linkage::Local if address => Some(Reason::AddressTaken),
        Linkage::Local if externally_called || other => Some(Reason::ExternallyCalled),
        Linkage::Local => None,
    }
}
