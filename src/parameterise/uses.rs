//! The uses of the functions that a plan keeps: how often they are called, and whether more than calls needs their
//! symbols.

use super::signatures::References;
use crate::ir::{address_uses, called, user_symbol};
use crate::plan::{Disposition, Plan, Reason, ReplacedBy, SymbolUses, must_keep_symbol};
use crate::unit::{Bodies, FunctionIndex, Observed};
use alloc::vec::Vec;
use cranelift_codegen::ir::{FuncRef, Function, GlobalValueData, UserExternalName};
use cranelift_entity::{EntityRef, SecondaryMap};

/// What is known of each function.
#[derive(Clone, Copy, Default)]
struct Use {
    calls: u32,
    symbol: SymbolUses,
}

/// The uses of the functions of a unit after a plan.
pub(super) struct Uses {
    of: SecondaryMap<FunctionIndex, Use>,
    /// Whether all symbols must stay.
    keep_symbols: bool,
}

impl Uses {
    /// Linear in the number of instructions and pointers.
    pub fn of(
        plan: &Plan,
        observed: &Observed,
        bodies: &mut dyn Bodies,
        keep_symbols: bool,
    ) -> Uses {
        let mut uses = Uses { of: SecondaryMap::new(), keep_symbols };
        let mut signatures = References::default();
        for (function, entry) in plan.entries() {
            match entry.disposition() {
                Disposition::Keep => {}
                Disposition::Alias { to } | Disposition::Thunk { to } => {
                    uses.of[to].symbol.thunk_target = true;
                    continue;
                }
                Disposition::Redirect { to: _ } => continue,
            }
            if let Some(body_of) = plan.body_of(function) {
                let body = bodies.body(body_of);
                signatures.define(function, &body.signature);
                uses.add(plan, body, &mut signatures);
            }
        }
        for function in signatures.mismatched() {
            uses.of[function].symbol.mismatched = true;
        }
        for (function, entry) in plan.entries() {
            let symbol = entry.symbol();
            if entry.attributes().address_taken || observed.address_taken(symbol) {
                uses.add_address(plan, symbol);
            }
            uses.of[function].symbol.patchable |= observed.patchable(symbol);
        }
        for (data, entry) in plan.data_entries().take(plan.added_data()) {
            if entry.disposition() == Disposition::Keep {
                let pointers = bodies.data(data).map(|object| &object.relocations);
                for pointer in pointers.into_iter().flatten() {
                    uses.add_address(plan, &pointer.target);
                }
            }
        }
        uses
    }

    fn add(&mut self, plan: &Plan, func: &Function, signatures: &mut References) {
        let function = |symbol: &UserExternalName| plan.function(plan.call_symbol(symbol));
        let mut callees: SecondaryMap<FuncRef, Option<FunctionIndex>> = SecondaryMap::new();
        for (func_ref, callee) in func.dfg.ext_funcs.iter() {
            if let Some(function) = user_symbol(func, &callee.name).and_then(function) {
                callees[func_ref] = Some(function);
                if let Some(signature) = func.dfg.signatures.get(callee.signature) {
                    signatures.refer(function, signature);
                }
            }
        }
        for block in func.layout.blocks() {
            for inst in func.layout.block_insts(block) {
                if let Some(callee) = called(func, inst).and_then(|callee| callees[callee]) {
                    self.of[callee].calls += 1;
                }
            }
        }
        for func_ref in address_uses(func) {
            let callee = func.dfg.ext_funcs.get(func_ref);
            if let Some(symbol) = callee.and_then(|callee| user_symbol(func, &callee.name)) {
                self.add_address(plan, symbol);
            }
        }
        for gv in func.global_values.values() {
            if let GlobalValueData::Symbol { name, .. } = gv
                && let Some(symbol) = user_symbol(func, name)
            {
                self.add_address(plan, symbol);
            }
        }
    }

    /// Records that the address of a symbol is used.
    pub fn add_address(&mut self, plan: &Plan, symbol: &UserExternalName) {
        if let Some(function) = plan.function(plan.address_symbol(symbol)) {
            self.of[function].symbol.address = true;
        }
    }

    /// How often a function is called directly.
    pub fn calls(&self, function: FunctionIndex) -> u32 {
        self.of[function].calls
    }

    /// The reason why the symbol of a function must be kept, if it must.
    pub fn must_keep_symbol(&self, plan: &Plan, function: FunctionIndex) -> Option<Reason> {
        let uses = SymbolUses { kept: self.keep_symbols, ..self.of[function].symbol };
        must_keep_symbol(plan.entry(function).attributes(), uses, ReplacedBy::ParameterisedBody)
    }
}

/// The functions that a body calls directly, as a plan has it.
pub(super) fn callees(plan: &Plan, func: &Function) -> Vec<FunctionIndex> {
    let mut callees = Vec::new();
    for callee in func.dfg.ext_funcs.values() {
        if let Some(symbol) = user_symbol(func, &callee.name)
            && let Some(function) = plan.function(plan.call_symbol(symbol))
        {
            callees.push(function);
        }
    }
    callees.sort_unstable_by_key(|callee| callee.index());
    callees.dedup();
    callees
}
