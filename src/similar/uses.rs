//! The uses of the functions that a plan keeps: how often they are called, and whether more than calls needs their
//! symbols.

use super::signatures::References;
use crate::apply::user_symbol;
use crate::data::DataObject;
use crate::extra_argument::called;
use crate::options::Linkage;
use crate::plan::{Disposition, Plan};
use crate::remarks::Reason;
use crate::summary::{Observed, address_uses};
use crate::unit::{Bodies, FunctionIndex};
use alloc::vec::Vec;
use cranelift_codegen::ir::{FuncRef, Function, GlobalValueData, UserExternalName};
use cranelift_entity::{EntityRef, SecondaryMap};

/// What is known of each function.
#[derive(Clone, Copy, Default)]
struct Use {
    calls: u32,
    address: bool,
    patchable: bool,
    /// It is called with a mismatched signature.
    mismatched: bool,
    /// It is the target of a thunk or an alias.
    thunk_target: bool,
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
                    uses.of[to].thunk_target = true;
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
            uses.of[function].mismatched = true;
        }
        for (function, entry) in plan.entries() {
            let symbol = entry.symbol();
            if entry.attributes.address_taken || observed.address_taken(symbol) {
                uses.add_address(plan, symbol);
            }
            uses.of[function].patchable |= observed.patchable(symbol);
        }
        for (data, entry) in plan.data_entries().take(plan.numbering.data) {
            if entry.disposition() == Disposition::Keep {
                let DataObject { contents: _, relocations, section: _ } = bodies.data(data);
                for pointer in relocations {
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
            self.of[function].address = true;
        }
    }

    /// How often a function is called directly.
    pub fn calls(&self, function: FunctionIndex) -> u32 {
        self.of[function].calls
    }

    /// The reason why the symbol of a function must be kept, if it must.
    pub fn must_keep_symbol(&self, plan: &Plan, function: FunctionIndex) -> Option<Reason> {
        let kept = || self.keep_symbols.then_some(Reason::ExternallyCalled);
        let attributes = &plan.entry(function).attributes;
        let Use { calls: _, address, patchable, mismatched, thunk_target } = self.of[function];
        match attributes.linkage {
            Linkage::Preemptible => Some(Reason::Preemptible),
            Linkage::Export | Linkage::Hidden => Some(Reason::VisibleOutside),
            Linkage::Local if patchable => Some(Reason::PatchableCalls),
            Linkage::Local if address => Some(Reason::AddressTaken),
            // For a mismatched call it is not known behind which arguments the extra arguments would go.
            Linkage::Local if thunk_target || mismatched || attributes.externally_called => {
                Some(Reason::ExternallyCalled)
            }
            Linkage::Local => kept(),
        }
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
