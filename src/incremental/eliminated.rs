//! Functions and data objects that earlier units eliminated: where references to them go.
//!
//! An eliminated function has no code under its symbol. A later unit that calls it must call the
//! code that replaced it, with the extra arguments of its parameterised body. A later unit that
//! takes its address, where that is significant, must give it code of its own after all: a *late
//! thunk*. The record here is enough for both.
//!
//! It decides nothing: `decide` and the end of the plan do.

use crate::extra_argument::Substitute;
use crate::ir::{address_uses, user_symbol};
use crate::plan::{Added, AddedData, DataEntry, Disposition, NoCode, Plan, Reason};
use crate::unit::{Addresses, Attributes, Bodies, DataIndex, FunctionIndex, Item};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, GlobalValueData, Signature, UserExternalName};
use hashbrown::{HashMap, HashSet};
use rustc_hash::FxBuildHasher;

/// A function whose body was eliminated, and that has no code under its symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EliminatedFunction {
    /// Where its calls go, and what they pass.
    pub substitute: Substitute,
    pub signature: Arc<Signature>,
    pub attributes: Attributes,
    /// Whether its symbol is at the address of what its calls go to; otherwise it has no address.
    pub alias: bool,
}

/// A data object without contents of its own.
#[derive(Clone, Debug)]
pub(crate) struct EliminatedData {
    pub to: UserExternalName,
    pub entry: DataEntry,
}

type ByKey<T> = HashMap<UserExternalName, T, FxBuildHasher>;

/// The eliminated functions of earlier units, by symbol.
#[derive(Debug, Default)]
pub(crate) struct Eliminated {
    functions: ByKey<Arc<EliminatedFunction>>,
    data: ByKey<EliminatedData>,
    /// The functions to which later units gave thunks.
    late_thunks: HashSet<UserExternalName, FxBuildHasher>,
    /// The last function that was redirected to each target: most functions of one target have
    /// equal records.
    last: ByKey<Arc<EliminatedFunction>>,
    /// Functions share most of their signatures.
    signatures: HashSet<Arc<Signature>, FxBuildHasher>,
}

/// The eliminated functions that a unit adds to [`Eliminated`].
#[derive(Clone, Debug, Default)]
pub(crate) struct NewlyEliminated {
    functions: Vec<(UserExternalName, Arc<EliminatedFunction>)>,
    data: Vec<(UserExternalName, EliminatedData)>,
    /// Functions that earlier units eliminated and that this one gives thunks.
    late_thunks: Vec<UserExternalName>,
}

impl Eliminated {
    pub fn function(&self, symbol: &UserExternalName) -> Option<&EliminatedFunction> {
        self.functions.get(symbol).map(|function| &**function)
    }

    pub fn data(&self, symbol: &UserExternalName) -> Option<&EliminatedData> {
        self.data.get(symbol)
    }

    /// Why there is no code or data under a symbol, if there is none because a unit eliminated it.
    pub fn without_code(&self, symbol: &UserExternalName) -> Option<NoCode> {
        let (to, extra_arguments, reason) = match (self.function(symbol), self.data(symbol)) {
            (Some(function), _) => {
                if function.alias || self.late_thunks.contains(symbol) {
                    return None;
                }
                (&function.substitute.symbol, function.substitute.arguments.len(), None)
            }
            (None, Some(object)) => (&object.to, 0, Some(object.entry.reason())),
            (None, None) => return None,
        };
        let (symbol, to) = (symbol.clone(), to.clone());
        Some(NoCode { symbol, to, extra_arguments, reason, earlier: true })
    }

    pub fn is_empty(&self) -> bool {
        self.functions.is_empty() && self.data.is_empty()
    }

    pub fn contains(&self, symbol: &UserExternalName) -> bool {
        self.functions.contains_key(symbol) || self.data.contains_key(symbol)
    }

    /// Bytes of memory, as far as they grow with the eliminated functions.
    pub fn size(&self) -> usize {
        let Eliminated { functions, data, late_thunks, last, signatures } = self;
        let parts = |function: &Arc<EliminatedFunction>| {
            let owners = Arc::strong_count(function).max(1);
            (size_of::<EliminatedFunction>() + size_of_val(&*function.substitute.arguments))
                / owners
        };
        functions.allocation_size()
            + functions.values().map(parts).sum::<usize>()
            + data.allocation_size()
            + late_thunks.allocation_size()
            + last.allocation_size()
            + signatures.allocation_size()
            + signatures.len() * size_of::<Signature>()
    }

    pub fn extend(&mut self, new: &NewlyEliminated) {
        let NewlyEliminated { functions, data, late_thunks } = new;
        for (symbol, function) in functions {
            let function = match self.last.get(&function.substitute.symbol) {
                Some(known) if known == function => known.clone(),
                _ => {
                    let signature = self.signature(&function.signature);
                    let function =
                        Arc::new(EliminatedFunction { signature, ..(**function).clone() });
                    self.last.insert(function.substitute.symbol.clone(), function.clone());
                    function
                }
            };
            self.functions.insert(symbol.clone(), function);
        }
        for (symbol, object) in data {
            self.data.insert(symbol.clone(), object.clone());
        }
        self.late_thunks.extend(late_thunks.iter().cloned());
    }

    fn signature(&mut self, signature: &Arc<Signature>) -> Arc<Signature> {
        match self.signatures.get(signature) {
            Some(known) => known.clone(),
            None => {
                self.signatures.insert(signature.clone());
                signature.clone()
            }
        }
    }
}

impl NewlyEliminated {
    /// The functions that a plan eliminates, and the thunks that it gives to functions that earlier
    /// units eliminated.
    pub fn of(plan: &Plan, bodies: &mut dyn Bodies) -> NewlyEliminated {
        let mut new = NewlyEliminated::default();
        for (function, entry) in plan.entries().take(plan.added()) {
            let reached = plan.reached(function);
            if reached.has_own_address(function) {
                continue;
            }
            let alias = reached.symbol.is_some();
            let (symbol, attributes) = (entry.symbol(), entry.attributes());
            new.functions.push((
                symbol.clone(),
                Arc::new(EliminatedFunction {
                    substitute: plan.substitute(function),
                    signature: Arc::new(bodies.body(function).signature.clone()),
                    attributes: *attributes,
                    alias,
                }),
            ));
        }
        for (data, entry) in plan.data_entries().take(plan.added_data()) {
            let reached = plan.data_reached(data);
            if reached.symbol.is_none() {
                let to = plan.data_entry(reached.call).symbol().clone();
                let entry = entry.clone();
                new.data.push((entry.symbol().clone(), EliminatedData { to, entry }));
            }
        }
        let late = plan.late_thunks().iter();
        new.late_thunks = late.map(|late| plan.entry(late.function).symbol().clone()).collect();
        new
    }
}

/// How a unit refers to a function that an earlier one eliminated, apart from plain calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    /// Its address is taken.
    pub address: bool,
    /// It is referred to by a mismatched signature: it is not known behind which arguments such a
    /// call would have to pass the extra ones.
    pub mismatched: bool,
    /// A call of it can be patched, so the call must keep its symbol.
    pub patchable: bool,
}

impl Needs {
    fn own_code(self, function: &EliminatedFunction) -> bool {
        let Needs { address, mismatched, patchable } = self;
        let extra = !function.substitute.arguments.is_empty();
        let significant = function.attributes.addresses == Addresses::Significant;
        address && (significant || extra) || mismatched && extra || patchable && !function.alias
    }
}

/// The eliminated functions and data of earlier units to which a unit refers, in the order of the
/// symbols.
#[derive(Debug, Default)]
pub(crate) struct ReferredTo(BTreeMap<(u32, u32), Needs>);

impl ReferredTo {
    /// Records that the unit refers to `symbol`.
    pub fn add(&mut self, symbol: &UserExternalName, needs: Needs) {
        let ReferredTo(symbols) = self;
        let known = symbols.entry((symbol.namespace, symbol.index)).or_default();
        let Needs { address, mismatched, patchable } = needs;
        known.address |= address;
        known.mismatched |= mismatched;
        known.patchable |= patchable;
    }

    /// Records the references of a function of the unit. Linear in its imports; in its size, where
    /// it names an eliminated function or data object.
    pub fn add_function(&mut self, eliminated: &Eliminated, func: &Function) {
        let mut names = func.params.user_named_funcs().values();
        if eliminated.is_empty() || !names.any(|symbol| eliminated.contains(symbol)) {
            return;
        }
        let symbol = |name| user_symbol(func, name).filter(|symbol| eliminated.contains(symbol));
        for callee in func.dfg.ext_funcs.values() {
            if let Some(symbol) = symbol(&callee.name) {
                let own = eliminated.function(symbol).map(|function| &*function.signature);
                let called = func.dfg.signatures.get(callee.signature);
                let mismatched = called != own;
                let patchable = callee.patchable;
                self.add(symbol, Needs { mismatched, patchable, ..Needs::default() });
            }
        }
        let taken = Needs { address: true, ..Needs::default() };
        for func_ref in address_uses(func) {
            let callee = func.dfg.ext_funcs.get(func_ref);
            if let Some(symbol) = callee.and_then(|callee| symbol(&callee.name)) {
                self.add(symbol, taken);
            }
        }
        for gv in func.global_values.values() {
            if let GlobalValueData::Symbol { name, .. } = gv
                && let Some(symbol) = symbol(name)
            {
                self.add(symbol, taken);
            }
        }
    }

    /// Records a reference to the address of `symbol` from outside the functions of the unit.
    pub fn add_address(&mut self, eliminated: &Eliminated, symbol: &UserExternalName) {
        if eliminated.contains(symbol) {
            self.add(symbol, Needs { address: true, ..Needs::default() });
        }
    }
}

/// Adds entries for eliminated functions and data of earlier units to which this one refers: calls
/// are redirected to the replacement, and a function gets a late thunk if calls are not all.
pub(crate) fn add_eliminated(plan: &mut Plan, eliminated: &Eliminated, referred_to: &ReferredTo) {
    let key = |symbol: &UserExternalName| (symbol.namespace, symbol.index);
    let added = plan.entries().skip(plan.added());
    let mut functions: BTreeMap<(u32, u32), FunctionIndex> =
        added.map(|(function, entry)| (key(entry.symbol()), function)).collect();
    let added = plan.data_entries().skip(plan.added_data());
    let mut data: BTreeMap<(u32, u32), DataIndex> =
        added.map(|(data, entry)| (key(entry.symbol()), data)).collect();
    let mut class = plan.classes();
    let mut next_class = || {
        class += 1;
        class - 1
    };
    let ReferredTo(symbols) = referred_to;
    for (&(namespace, index), needs) in symbols {
        let symbol = UserExternalName::new(namespace, index);
        if let Some(function) = eliminated.function(&symbol) {
            let to = *functions.entry(key(&function.substitute.symbol)).or_insert_with(|| {
                plan.add(Added {
                    symbol: function.substitute.symbol.clone(),
                    attributes: Attributes::default(),
                    reason: Reason::Representative,
                    class: next_class(),
                    alignment: 1,
                    has_equals: false,
                })
            });
            // It was aligned for all functions that it replaced.
            plan.align(Item::Function(to), function.attributes.alignment.into());
            let has_thunk = eliminated.late_thunks.contains(&symbol);
            let late = !has_thunk && needs.own_code(function);
            let (disposition, reason) = match function.alias {
                _ if late || has_thunk => (Disposition::Thunk { to }, Reason::AddressTaken),
                true => (Disposition::Alias { to }, Reason::AddressInsignificant),
                false => (Disposition::Redirect { to }, Reason::AddressInsignificant),
            };
            let attributes = function.attributes;
            let (class, alignment) = (next_class(), attributes.alignment);
            let has_equals = false;
            let added = Added { symbol, attributes, reason, class, alignment, has_equals };
            let (arguments, signature) = (&function.substitute.arguments, &function.signature);
            let at = plan.add_eliminated(added, disposition, arguments.clone(), signature.clone());
            if late {
                plan.add_late_thunk(at, signature.clone());
            }
        } else if let Some(object) = eliminated.data(&symbol) {
            let alignment = object.entry.alignment();
            let like = || object.entry.clone();
            let to = *data.entry(key(&object.to)).or_insert_with(|| {
                let (symbol, class, reason) =
                    (object.to.clone(), next_class(), Reason::Representative);
                plan.add_data(AddedData { symbol, like: like(), reason, class, alignment })
            });
            plan.align(Item::Data(to), object.entry.attributes().alignment);
            let (class, reason) = (next_class(), object.entry.reason());
            let added = AddedData { symbol, like: like(), reason, class, alignment };
            plan.add_eliminated_data(added, to);
        }
    }
}
