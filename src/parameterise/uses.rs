//! The uses of the functions that a plan keeps: how often they are called, and whether more than calls needs their
//! symbols.

use super::signatures::References;
use crate::congruence::Compiled;
use crate::ir::{address_uses, called, user_symbol};
use crate::plan::{Disposition, Plan, Reason, ReplacedBy, SymbolUses, must_keep_symbol};
use crate::unit::{Bodies, FunctionIndex, Observed};
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, Inst, UserExternalName};
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};

/// What is known of each function.
#[derive(Clone, Copy, Default)]
struct Use {
    calls: u32,
    symbol: SymbolUses,
}

/// The uses of some functions of a unit after a plan.
pub(super) struct Uses {
    of: SecondaryMap<FunctionIndex, Use>,
    /// The functions of which all uses are known. Of others, it is assumed that they must keep their symbols.
    known: EntitySet<FunctionIndex>,
    /// The references by name from kept functions to those of which all uses are known, by the function that refers.
    references: Vec<(FunctionIndex, FunctionIndex)>,
    /// Whether all symbols must stay.
    keep_symbols: bool,
}

impl Uses {
    /// The uses of the functions in `known`, by all code but what is compiled already. Linear in the number of pointers and references, and in the number of
    /// instructions of functions that refer to one of these.
    pub fn of(
        known: EntitySet<FunctionIndex>,
        plan: &Plan,
        observed: &Observed,
        compiled: &Compiled,
        bodies: &mut dyn Bodies,
        keep_symbols: bool,
    ) -> Uses {
        let of = SecondaryMap::new();
        let mut uses = Uses { of, known, references: Vec::new(), keep_symbols };
        let mut signatures = References::default();
        let mut callees: Vec<Option<FunctionIndex>> = Vec::new();
        for (function, entry) in plan.entries() {
            match entry.disposition() {
                Disposition::Keep => {}
                Disposition::Alias { to } | Disposition::Thunk { to } => {
                    uses.of[to].symbol.thunk_target = true;
                    continue;
                }
                Disposition::Redirect { to: _ } => continue,
            }
            let body_of = plan.body_of(function);
            if let Some(body_of) = body_of.filter(|&of| !compiled.functions.contains(of)) {
                let body = bodies.body(body_of);
                if uses.known.contains(function) {
                    signatures.define(function, &body.signature);
                }
                uses.add(plan, (function, body), &mut signatures, &mut callees);
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

    /// Makes the uses of further functions known, but for the number of their calls. Counts those by functions that
    /// were merged away as well. Linear as [`Uses::of`], unless all uses of these functions are known.
    pub fn learn(
        &mut self,
        functions: impl Iterator<Item = FunctionIndex>,
        plan: &Plan,
        bodies: &mut dyn Bodies,
    ) {
        let mut further: EntitySet<FunctionIndex> = EntitySet::new();
        for function in functions {
            if function.index() < plan.added() && !self.known.contains(function) {
                further.insert(function);
            }
        }
        if further.is_empty() {
            return;
        }
        let known = core::mem::replace(&mut self.known, further);
        let references = self.references.len();
        let mut signatures = References::default();
        let mut callees: Vec<Option<FunctionIndex>> = Vec::new();
        for index in 0..plan.added() {
            let function = FunctionIndex::new(index);
            let body = bodies.body(function);
            if self.known.contains(function) {
                signatures.define(function, &body.signature);
            }
            self.add(plan, (function, body), &mut signatures, &mut callees);
        }
        for function in signatures.mismatched() {
            self.of[function].symbol.mismatched = true;
        }
        self.references.truncate(references);
        for function in known.keys() {
            self.known.insert(function);
        }
    }

    /// `callees` is memory to be reused.
    fn add(
        &mut self,
        plan: &Plan,
        (function, func): (FunctionIndex, &Function),
        signatures: &mut References,
        callees: &mut Vec<Option<FunctionIndex>>,
    ) {
        let first = self.references.len();
        callees.clear();
        for callee in func.dfg.ext_funcs.values() {
            let symbol = user_symbol(func, &callee.name);
            let to = symbol.and_then(|symbol| plan.callee(symbol));
            let to = to.filter(|&to| self.known.contains(to));
            callees.push(to);
            if let Some(to) = to {
                self.references.push((function, to));
                if let Some(signature) = func.dfg.signatures.get(callee.signature) {
                    signatures.refer(to, signature);
                }
            }
        }
        // Addresses in global values are known as observed.
        if self.references.len() == first {
            return;
        }
        // In memory order, which is several times cheaper than block by block.
        for inst in (0..func.dfg.num_insts()).map(Inst::new) {
            let called = called(func, inst).and_then(|callee| callees.get(callee.index()));
            if let Some(&Some(callee)) = called
                && func.layout.inst_block(inst).is_some()
            {
                self.of[callee].calls += 1;
            }
        }
        for func_ref in address_uses(func) {
            let callee = func.dfg.ext_funcs.get(func_ref);
            if let Some(symbol) = callee.and_then(|callee| user_symbol(func, &callee.name)) {
                self.add_address(plan, symbol);
            }
        }
    }

    /// The references by name from kept functions to those of which all uses are known, ascending by the function
    /// that refers.
    pub fn references(&self) -> &[(FunctionIndex, FunctionIndex)] {
        &self.references
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
        let unknown = function.index() < plan.added() && !self.known.contains(function);
        let uses = SymbolUses { kept: self.keep_symbols || unknown, ..self.of[function].symbol };
        must_keep_symbol(plan.entry(function).attributes(), uses, ReplacedBy::ParameterisedBody)
    }
}
