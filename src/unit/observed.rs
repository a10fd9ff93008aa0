//! The symbols of which more than the behaviour is observed: addresses, interiors, calls that can
//! be patched.
//!
//! That must be known of functions that are never walked, too. So the instruction table is read in
//! memory order, which is several times cheaper than a walk, and only in units where the answer can
//! matter.

use crate::ir::{address_uses, user_symbol};
use cranelift_codegen::ir::{Function, GlobalValueData, UserExternalName};
use hashbrown::HashSet;
use rustc_hash::FxBuildHasher;

/// Symbols of which some function observes more than the behaviour. May hold one that only
/// unreachable code observes.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    addresses: Symbols,
    patchable: Symbols,
    interior: Symbols,
}

type Symbols = HashSet<UserExternalName, FxBuildHasher>;

/// Takes notes of observed uses of symbols.
pub(crate) trait Observe {
    /// The address of a symbol, or, if `inside` is set, one at a distance from it.
    fn observe_address(&mut self, symbol: &UserExternalName, inside: bool);

    /// Calls of a symbol that can be patched.
    fn observe_patchable(&mut self, symbol: &UserExternalName);

    /// Adds the symbols that the tables of `func` observe. Linear in the sizes of the tables.
    fn add_tables(&mut self, func: &Function) {
        for gv in func.global_values.values() {
            if let GlobalValueData::Symbol { name, offset, colocated: _, tls: _ } = gv
                && let Some(symbol) = user_symbol(func, name)
            {
                self.observe_address(symbol, offset.bits() != 0);
            }
        }
        for callee in func.dfg.ext_funcs.values().filter(|callee| callee.patchable) {
            if let Some(symbol) = user_symbol(func, &callee.name) {
                self.observe_patchable(symbol);
            }
        }
    }

    /// Adds the functions whose addresses `func` takes.
    ///
    /// Linear in the number of instructions, some nanoseconds each; constant where the function
    /// names no functions.
    fn add_address_uses(&mut self, func: &Function) {
        if !func.dfg.ext_funcs.is_empty() {
            for func_ref in address_uses(func) {
                let callee = func.dfg.ext_funcs.get(func_ref);
                if let Some(symbol) = callee.and_then(|callee| user_symbol(func, &callee.name)) {
                    self.observe_address(symbol, false);
                }
            }
        }
    }
}

impl Observe for Observed {
    fn observe_address(&mut self, symbol: &UserExternalName, inside: bool) {
        insert(&mut self.addresses, symbol);
        if inside {
            insert(&mut self.interior, symbol);
        }
    }

    fn observe_patchable(&mut self, symbol: &UserExternalName) {
        insert(&mut self.patchable, symbol);
    }
}

impl Observed {
    /// Adds an address that a data object holds, `addend` bytes behind the symbol.
    pub fn add_address(&mut self, symbol: &UserExternalName, addend: i64) {
        self.observe_address(symbol, addend != 0);
    }

    /// Whether something points into it, or behind it: only its own code is correct there, so it is
    /// pinned.
    pub fn points_inside(&self, symbol: &UserExternalName) -> bool {
        self.interior.contains(symbol)
    }

    /// Whether something in the unit takes the address.
    pub fn address_taken(&self, symbol: &UserExternalName) -> bool {
        self.addresses.contains(symbol)
    }

    /// Whether some function calls it in a way that can be patched.
    pub fn patchable(&self, symbol: &UserExternalName) -> bool {
        self.patchable.contains(symbol)
    }
}

fn insert(symbols: &mut Symbols, symbol: &UserExternalName) {
    if !symbols.contains(symbol) {
        symbols.insert(symbol.clone());
    }
}
