//! Calls that stay as they are written although their callees were merged with similar functions.
//!
//! Callees that went into different parameterised bodies take different extra arguments, so callers of one shape have
//! different shapes as a plan leaves them. Compared as they are written, they differ in a callee. This module only
//! says which calls these are; it does *not* decide.

use crate::unit::FunctionIndex;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// The functions whose calls stay as they are written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    /// Each with the function that its calls went to before similar functions were merged.
    callees: HashMap<FunctionIndex, FunctionIndex, FxBuildHasher>,
    /// Whether so do calls of all functions that other units can see.
    visible: bool,
}

static NONE: Written = Written { callees: HashMap::with_hasher(FxBuildHasher), visible: false };
static VISIBLE: Written = Written { callees: HashMap::with_hasher(FxBuildHasher), visible: true };

impl Written {
    /// All calls are redirected.
    pub fn none() -> &'static Written {
        &NONE
    }

    /// Calls of functions that other units can see stay as they are: for code that units share, which know no more of such a
    /// function than its symbol.
    pub fn visible() -> &'static Written {
        &VISIBLE
    }

    /// Whether calls of functions that other units can see stay.
    pub fn keeps_visible(&self) -> bool {
        self.visible
    }

    /// Makes calls of `function` go to `callee`.
    pub fn insert(&mut self, function: FunctionIndex, callee: FunctionIndex) {
        self.callees.insert(function, callee);
    }

    /// Whether calls of all functions are redirected.
    pub fn is_empty(&self) -> bool {
        self.callees.is_empty() && !self.visible
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
