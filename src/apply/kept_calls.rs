//! Calls that stay as they are written although their callees were merged with similar functions.
//!
//! Callees that went into different parameterised bodies take different extra arguments, so callers
//! of one shape have different shapes as a plan leaves them. Compared as they are written, they
//! differ in a callee. This module only says which calls these are; it does *not* decide.

use crate::unit::{FunctionIndex, Linkage};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// The functions whose calls stay as they are written.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptCalls {
    /// Each with the function that its calls went to before similar functions were merged.
    callees: HashMap<FunctionIndex, FunctionIndex, FxBuildHasher>,
    /// Which calls of all other functions stay.
    others: Kept,
}

/// Which calls are not redirected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kept {
    #[default]
    None,
    /// Those of functions that other units can see.
    External,
    All,
}

static NONE: KeptCalls = KeptCalls::of(Kept::None);
static EXTERNAL: KeptCalls = KeptCalls::of(Kept::External);
static ALL: KeptCalls = KeptCalls::of(Kept::All);

impl KeptCalls {
    /// All calls are redirected.
    pub fn none() -> &'static KeptCalls {
        &NONE
    }

    /// No call is redirected.
    pub fn all() -> &'static KeptCalls {
        &ALL
    }

    const fn of(others: Kept) -> KeptCalls {
        KeptCalls { callees: HashMap::with_hasher(FxBuildHasher), others }
    }

    /// Calls of functions that other units can see stay as they are: for code that units share.
    /// Another unit knows only the symbol of such a function.
    pub fn external() -> &'static KeptCalls {
        &EXTERNAL
    }

    /// Whether every call of a function of this linkage stays as it is.
    pub fn stays(&self, linkage: Linkage) -> bool {
        match self.others {
            Kept::None => false,
            Kept::External => linkage != Linkage::Local,
            Kept::All => true,
        }
    }

    /// Whether functions are called on behalf of several units.
    pub fn serves_units(&self) -> bool {
        self.others == Kept::External
    }

    /// Makes calls of `function` go to `callee`.
    pub fn insert(&mut self, function: FunctionIndex, callee: FunctionIndex) {
        self.callees.insert(function, callee);
    }

    /// Whether calls of all functions are redirected.
    pub fn is_empty(&self) -> bool {
        self.callees.is_empty() && self.others == Kept::None
    }

    /// Where calls of a function go, if they are not redirected.
    pub fn callee(&self, function: FunctionIndex) -> Option<FunctionIndex> {
        // Nearly always.
        if self.callees.is_empty() {
            return None;
        }
        self.callees.get(&function).copied()
    }
}
