//! The symbols of which more than the behaviour is observed: addresses, interiors, calls that can be patched.
//!
//! That must be known of functions that are never walked, too. So the instruction table is read in memory order,
//! which is several times cheaper than a walk, and only in units where the answer can matter.

use crate::ir::address_uses;
use cranelift_codegen::ir::{ExternalName, Function, GlobalValueData, UserExternalName};
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

impl Observed {
    /// Adds the symbols that the tables of `func` observe. Linear in their sizes.
    pub fn add_tables(&mut self, func: &Function) {
        for gv in func.global_values.values() {
            if let GlobalValueData::Symbol { name, offset, colocated: _, tls: _ } = gv {
                insert(&mut self.addresses, func, name);
                if offset.bits() != 0 {
                    insert(&mut self.interior, func, name);
                }
            }
        }
        for callee in func.dfg.ext_funcs.values() {
            if callee.patchable {
                insert(&mut self.patchable, func, &callee.name);
            }
        }
    }

    /// Adds the functions whose addresses `func` takes.
    ///
    /// Linear in the number of instructions, some nanoseconds each; constant where the function
    /// names no functions.
    pub fn add_address_uses(&mut self, func: &Function) {
        if !func.dfg.ext_funcs.is_empty() {
            for func_ref in address_uses(func) {
                if let Some(callee) = func.dfg.ext_funcs.get(func_ref) {
                    insert(&mut self.addresses, func, &callee.name);
                }
            }
        }
    }

    /// Adds an address that a data object holds, `addend` bytes behind the symbol.
    pub fn add_address(&mut self, symbol: &UserExternalName, addend: i64) {
        self.addresses.insert(symbol.clone());
        if addend != 0 {
            self.interior.insert(symbol.clone());
        }
    }

    /// Whether something points into it, or behind it: only its own code is correct there.
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

fn insert(symbols: &mut Symbols, func: &Function, name: &ExternalName) {
    if let ExternalName::User(name_ref) = name
        && let Some(symbol) = func.params.user_named_funcs().get(*name_ref)
        && !symbols.contains(symbol)
    {
        symbols.insert(symbol.clone());
    }
}
