//! Calls that stay as they are written although their callees were merged with similar functions.
//!
//! Callees that went into different parameterised bodies take different extra arguments, so callers of one shape have
//! different shapes as a plan leaves them. Compared as they are written, they differ in a callee. This module only
//! says which calls these are; it does *not* decide.

use crate::unit::{FunctionIndex, Linkage};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// The functions whose calls stay as they are written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    /// Each with the function that its calls went to before similar functions were merged.
    callees: HashMap<FunctionIndex, FunctionIndex, FxBuildHasher>,
    /// What is redirected of all else.
    others: Others,
}

/// Which calls are redirected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Others {
    #[default]
    All,
    /// Those of functions that only their unit can see.
    Local,
    None,
}

static REDIRECTED: Written = Written::of(Others::All);
static VISIBLE: Written = Written::of(Others::Local);
static ALL: Written = Written::of(Others::None);

impl Written {
    /// All calls are redirected.
    pub fn none() -> &'static Written {
        &REDIRECTED
    }

    /// No call is redirected.
    pub fn all() -> &'static Written {
        &ALL
    }

    const fn of(others: Others) -> Written {
        Written { callees: HashMap::with_hasher(FxBuildHasher), others }
    }

    /// Calls of functions that other units can see stay as they are: for code that units share, which know no more of such a
    /// function than its symbol.
    pub fn visible() -> &'static Written {
        &VISIBLE
    }

    /// Whether calls of a function of this linkage stay as they are, whatever it is.
    pub fn stays(&self, linkage: Linkage) -> bool {
        match self.others {
            Others::All => false,
            Others::Local => linkage != Linkage::Local,
            Others::None => true,
        }
    }

    /// Whether functions are called on behalf of several units.
    pub fn is_shared(&self) -> bool {
        self.others == Others::Local
    }

    /// Makes calls of `function` go to `callee`.
    pub fn insert(&mut self, function: FunctionIndex, callee: FunctionIndex) {
        self.callees.insert(function, callee);
    }

    /// Whether calls of all functions are redirected.
    pub fn is_empty(&self) -> bool {
        self.callees.is_empty() && self.others == Others::All
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
