//! The uses of the functions that a plan keeps: how often they are called, and whether more than
//! calls needs their symbols.

use crate::congruence::WithoutIr;
use crate::extra_argument::ExtraArgument;
use crate::ir::{called_by, user_symbol};
use crate::plan::{Disposition, Plan, Reason, ReplacedBy, SymbolUses, must_keep_symbol};
use crate::signatures::References;
use crate::threads::{Pool, for_each};
use crate::unit::{Bodies, FunctionIndex, Observed};
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, Inst, InstructionData, UserExternalName};
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};

/// The properties of each function.
#[derive(Clone, Copy, Default)]
struct Use {
    calls: u32,
    symbol: SymbolUses,
}

/// The uses of some functions of a unit after a plan.
pub(super) struct Uses {
    of: SecondaryMap<FunctionIndex, Use>,
    /// The functions of which all uses are known. Of others, it is assumed that they must keep
    /// their symbols.
    known: EntitySet<FunctionIndex>,
    /// The references by name from kept functions to those of which all uses are known, by the
    /// function that refers.
    references: Vec<(FunctionIndex, FunctionIndex)>,
    /// Whether all symbols must stay.
    keep_symbols: bool,
}

/// How many functions are read together.
const FUNCTIONS: usize = 256;

/// Some functions, and what they refer to: those of which all uses are to be known.
#[derive(Default)]
struct Referring {
    /// Functions of the plan, each with the function of the unit whose body it has, if it has not
    /// one of the plan.
    functions: Vec<(FunctionIndex, FunctionIndex)>,
    references: Vec<(FunctionIndex, FunctionIndex)>,
    /// One for each call.
    called: Vec<FunctionIndex>,
    addressed: Vec<FunctionIndex>,
    signatures: References,
}

impl Referring {
    /// Reads the functions. `callees` is memory to be reused.
    fn read(
        &mut self,
        plan: &Plan,
        known: &EntitySet<FunctionIndex>,
        bodies: &mut dyn Bodies,
        callees: &mut Vec<Option<FunctionIndex>>,
    ) {
        for (function, body_of) in core::mem::take(&mut self.functions) {
            let own = plan.parameterised_body(function);
            let body = own.unwrap_or_else(|| bodies.body(body_of));
            if known.contains(function) {
                self.signatures.define(function, &body.signature);
            }
            self.read_one(plan, known, (function, body), callees);
        }
    }

    fn read_one(
        &mut self,
        plan: &Plan,
        known: &EntitySet<FunctionIndex>,
        (function, func): (FunctionIndex, &Function),
        callees: &mut Vec<Option<FunctionIndex>>,
    ) {
        let first = self.references.len();
        callees.clear();
        for callee in func.dfg.ext_funcs.values() {
            let symbol = user_symbol(func, &callee.name);
            let to = symbol.and_then(|symbol| plan.callee(symbol));
            let to = to.filter(|&to| known.contains(to));
            callees.push(to);
            if let Some(to) = to {
                self.references.push((function, to));
                if let Some(signature) = func.dfg.signatures.get(callee.signature) {
                    self.signatures.refer(to, signature);
                }
            }
        }
        // Addresses in global values are known as observed.
        if self.references.len() == first {
            return;
        }
        // In memory order, which is several times cheaper than block by block.
        for inst in (0..func.dfg.num_insts()).map(Inst::new) {
            match func.dfg.insts[inst] {
                InstructionData::FuncAddr { opcode: _, func_ref } => {
                    let callee = func.dfg.ext_funcs.get(func_ref);
                    let symbol = callee.and_then(|callee| user_symbol(func, &callee.name));
                    self.addressed.extend(symbol.and_then(|symbol| addressed(plan, symbol)));
                }
                ref data => {
                    let called = called_by(data).and_then(|callee| callees.get(callee.index()));
                    if let Some(&Some(callee)) = called
                        && func.layout.inst_block(inst).is_some()
                    {
                        self.called.push(callee);
                    }
                }
            }
        }
    }
}

/// The function whose address is used where that of a symbol is.
fn addressed(plan: &Plan, symbol: &UserExternalName) -> Option<FunctionIndex> {
    plan.function(plan.address_symbol(symbol))
}

impl Uses {
    /// The uses of the functions in `known`, by all code except compiled code. Linear in
    /// the number of pointers and references, and in the number of instructions of functions that
    /// refer to one of these.
    pub fn of(
        known: EntitySet<FunctionIndex>,
        plan: &Plan,
        observed: &Observed,
        without_ir: &WithoutIr,
        bodies: &mut dyn Bodies,
        keep_symbols: bool,
    ) -> Uses {
        let of = SecondaryMap::new();
        let mut uses = Uses { of, known, references: Vec::new(), keep_symbols };
        let mut kept: Vec<(FunctionIndex, FunctionIndex)> = Vec::new();
        for (function, entry) in plan.entries() {
            match entry.disposition() {
                Disposition::Keep => {
                    let own = plan.parameterised_body(function).map(|_| function);
                    let body_of = plan.body_of(function).or(own);
                    let body_of = body_of.filter(|&of| !without_ir.functions.contains(of));
                    kept.extend(body_of.map(|body_of| (function, body_of)));
                }
                Disposition::Alias { to } | Disposition::Thunk { to } => {
                    uses.of[to].symbol.thunk_target = true;
                }
                Disposition::Redirect { to: _ } => {}
            }
        }
        uses.read(&kept, plan, bodies);
        for &(callee, calls) in &without_ir.calls {
            uses.of[plan.call_target(callee)].calls += calls;
        }
        for (function, entry) in plan.entries() {
            let symbol = entry.symbol();
            if entry.attributes().address_taken || observed.address_taken(symbol) {
                uses.add_address(plan, symbol);
            }
            uses.of[function].symbol.patchable |= observed.patchable(symbol);
            for symbol in entry.extra_arguments().iter().filter_map(ExtraArgument::symbol) {
                uses.add_address(plan, symbol);
            }
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

    /// Adds what some functions refer to.
    fn read(
        &mut self,
        functions: &[(FunctionIndex, FunctionIndex)],
        plan: &Plan,
        bodies: &mut dyn Bodies,
    ) {
        let new = |functions: &[_]| Referring { functions: functions.to_vec(), ..<_>::default() };
        let mut referring: Vec<Referring> = functions.chunks(FUNCTIONS).map(new).collect();
        let known = &self.known;
        for_each(bodies, &Pool::default(), &mut referring, |bodies, callees, referring| {
            referring.read(plan, known, bodies, callees);
        });
        let mut signatures = References::default();
        for referring in referring {
            let Referring { functions: _, references, called, addressed, signatures: own } =
                referring;
            self.references.extend(references);
            for callee in called {
                self.of[callee].calls += 1;
            }
            for function in addressed {
                self.of[function].symbol.address = true;
            }
            signatures.append(own);
        }
        for function in signatures.mismatched() {
            self.of[function].symbol.mismatched = true;
        }
    }

    /// The references by name from kept functions to those of which all uses are known, ascending
    /// by the function that refers.
    pub fn references(&self) -> &[(FunctionIndex, FunctionIndex)] {
        &self.references
    }

    /// Records that the address of a symbol is used.
    pub fn add_address(&mut self, plan: &Plan, symbol: &UserExternalName) {
        if let Some(function) = addressed(plan, symbol) {
            self.of[function].symbol.address = true;
        }
    }

    /// Adds a body that is called where these functions were.
    pub fn add_body(
        &mut self,
        body: FunctionIndex,
        functions: impl Iterator<Item = FunctionIndex>,
    ) {
        self.of[body].calls = functions.map(|function| self.of[function].calls).sum();
    }

    /// How often a function is called directly.
    pub fn calls(&self, function: FunctionIndex) -> u32 {
        self.of[function].calls
    }

    /// Whether more than direct calls and thunks refers to a function.
    pub fn is_named(&self, function: FunctionIndex) -> bool {
        let SymbolUses { address, patchable, mismatched, .. } = self.of[function].symbol;
        address || patchable || mismatched
    }

    /// The reason why the symbol of a function must be kept, if it must.
    pub fn must_keep_symbol(&self, plan: &Plan, function: FunctionIndex) -> Option<Reason> {
        let unknown = function.index() < plan.added() && !self.known.contains(function);
        let uses = SymbolUses { kept: self.keep_symbols || unknown, ..self.of[function].symbol };
        must_keep_symbol(plan.entry(function).attributes(), uses, ReplacedBy::ParameterisedBody)
    }
}
