//! Functions that are passed as extra arguments: which of them are only called, and the names by which they are passed.
//!
//! A body that takes a function is for callers of that function, and for callers of equal ones. In a shared library of
//! ELF, an exported symbol can be interposed: what a caller of an equal function passes must not be. An address that
//! somebody takes is that of the symbol all the same.

use super::flush::{Flush, Unit};
use super::{FunctionState, MergingModule, Pending};
use crate::apply::user_symbol;
use crate::argument::Argument;
use crate::summary::address_uses;
use crate::unit::FunctionIndex;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, GlobalValueData, UserExternalName};
use cranelift_entity::EntityRef;
use cranelift_module::{FuncId, Module, ModuleResult};

impl<M: Module> MergingModule<M> {
    /// Finds out which extra arguments are only called: those that a function neither takes the address of, nor passes
    /// because a callee of it does. Linear in the sizes of functions that pass something, and in how long the
    /// chains of such calls are.
    pub(super) fn find_passed_callees(&mut self, pending: &Pending, unit: &Unit) {
        let mut passing = Vec::new();
        for (index, (function, _)) in unit.functions.iter().enumerate() {
            if !self.functions[*function].told.is_empty() {
                let func = pending.func(unit, FunctionIndex::new(index));
                passing.push((*function, addresses(func), callees(func)));
            }
        }
        let mut changed = true;
        while changed {
            changed = false;
            for (function, addresses, callees) in &passing {
                let is_taken = |symbol: &UserExternalName| {
                    addresses.contains(symbol)
                        || callees.iter().any(|callee| {
                            let FunctionState { told, only_called, .. } = &self.functions[*callee];
                            told.iter().enumerate().any(|(at, told)| {
                                told.symbol() == Some(symbol)
                                    && !only_called.get(at).copied().unwrap_or(false)
                            })
                        })
                };
                let told = self.functions[*function].told.iter().map(Argument::symbol);
                let only_called: Vec<bool> =
                    told.map(|symbol| symbol.is_some_and(|symbol| !is_taken(symbol))).collect();
                let before = &mut self.functions[*function].only_called;
                changed |= *before != only_called;
                *before = only_called;
            }
        }
    }

    /// Functions that are passed as extra arguments and only called get names that nothing else can take, if others
    /// were merged into them or may be: callers of those pass them, too. If their addresses are near, the names
    /// stay near if the functions are exported later: their callers needed no more than a call.
    pub(super) fn name_passed_functions(
        &mut self,
        passing: FuncId,
        flush: Flush,
    ) -> ModuleResult<()> {
        use cranelift_module::Linkage::{Export, Hidden, Import, Local, Preemptible};
        let FunctionState { told, only_called, .. } = &self.functions[passing];
        let mut passed = Vec::new();
        for (argument, only_called) in told.iter().zip(only_called) {
            if let Some(UserExternalName { namespace: 0, index }) = argument.symbol() {
                passed.push((FuncId::from_u32(*index), argument.is_near(), *only_called));
            }
        }
        for (function, is_near, only_called) in passed {
            let linkage = self.inner.declarations().get_function_decl(function).linkage;
            let is_named = match linkage {
                Local | Hidden => is_near,
                Export => only_called && flush.remember,
                Preemptible | Import => false,
            };
            let FunctionState { defined, became, .. } = self.functions[function];
            if is_named && defined && !became.has_no_code() {
                self.give_local_name(function, flush)?;
            }
        }
        Ok(())
    }
}

/// The symbols whose addresses a function takes.
fn addresses(func: &Function) -> Vec<UserExternalName> {
    let used = address_uses(func).filter_map(|used| Some(&func.dfg.ext_funcs.get(used)?.name));
    let named = func.global_values.values().filter_map(|gv| match gv {
        GlobalValueData::Symbol { name, .. } => Some(name),
        _ => None,
    });
    used.chain(named).filter_map(|name| user_symbol(func, name).cloned()).collect()
}

/// The functions that a function names.
fn callees(func: &Function) -> Vec<FuncId> {
    let names = func.dfg.ext_funcs.values().filter_map(|callee| user_symbol(func, &callee.name));
    let functions = names.filter(|name| name.namespace == 0);
    functions.map(|name| FuncId::from_u32(name.index)).collect()
}
