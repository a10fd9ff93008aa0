//! Claims on functions and data objects of earlier units, whose code is not kept.
//!
//! Of each function that is emitted or eliminated the checker keeps, by means of its own, enough to
//! prove a claim on it: its [`Trace`], where its address is, and, if its code is another
//! function's, that function and the extra arguments. A later function is proved equal to it by its
//! own trace; that their references may replace each other are claims of the same kind, followed
//! like all others. Nothing of an earlier unit is trusted: a function is not merged into a function
//! of which nothing is remembered.
//!
//! That the emitted code is equivalent to the function was proved when the code was emitted, and
//! holds as long as the code exists: claims on the code are claims on the function.

use super::comparison;
use super::unit::{InUnit, Prover, is_eliminated, refuted, sorted};
use crate::extra_argument::Substitute;
use crate::plan::Plan;
use crate::unit::{
    Addresses, Attributes, DataAttributes, DataIndex, DataObject, DataReloc, FunctionIndex, Linkage,
};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Signature, UserExternalName};
use cranelift_entity::EntityRef;
use cranelift_mergefunc_checker::{Mismatch, Refutation, Symbols, Trace, Use, digest};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

type BySymbol<T> = HashMap<UserExternalName, T, FxBuildHasher>;

/// The requirements that decide whether references to a function or data object may go to another
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddressRequirements {
    is_data: bool,
    /// Whether another definition may take its symbol.
    pub(super) preemptible: bool,
    /// Whether references to it must keep its symbol.
    pub(super) by_symbol: bool,
    /// Whether nothing is merged into it.
    pub(super) pinned: bool,
    /// Whether another address may replace its own.
    insignificant: bool,
    /// In bytes: the alignment that its address needs, and the alignment of the place that has the
    /// address.
    needs: u64,
    pub(super) alignment: u64,
    /// Whether its symbol leads to code or contents.
    pub(super) is_defined: bool,
}

impl AddressRequirements {
    /// The requirements of an item that has a symbol, of the unit or of an earlier one.
    pub fn of(
        plan: &Plan,
        memory: &Memory,
        symbol: &UserExternalName,
    ) -> Option<AddressRequirements> {
        if let Some(function) = here(plan, symbol) {
            return Some(AddressRequirements::of_function(plan, function));
        }
        if let Some(data) = data_here(plan, symbol) {
            return Some(AddressRequirements::of_data(plan, data));
        }
        let function = memory.functions.get(symbol).map(|known| known.requirements);
        function.or_else(|| memory.data.get(symbol).map(|known| known.requirements))
    }

    /// The requirements of a function that has an entry: as they are remembered, if it is of an
    /// earlier unit. The plan is not asked about that; of a function of which nothing is
    /// remembered, only code that was proved then is reached.
    pub fn of_entry(plan: &Plan, memory: &Memory, function: FunctionIndex) -> AddressRequirements {
        let known = match plan.is_cached(function) {
            true => memory.functions.get(plan.entry(function).symbol()),
            false => None,
        };
        known.map_or_else(
            || AddressRequirements::of_function(plan, function),
            |known| known.requirements,
        )
    }

    /// The requirements of a data object that has an entry.
    pub fn of_data_entry(plan: &Plan, memory: &Memory, data: DataIndex) -> AddressRequirements {
        let known = match data.index() < plan.added_data() {
            true => None,
            false => memory.data.get(plan.data_entry(data).symbol()),
        };
        known.map_or_else(|| AddressRequirements::of_data(plan, data), |known| known.requirements)
    }

    fn of_function(plan: &Plan, function: FunctionIndex) -> AddressRequirements {
        let Attributes {
            linkage,
            addresses,
            alignment,
            pinned,
            no_merge,
            // with the use of the address
            address_taken: _,
            // with the symbol
            externally_called: _,
            // with the code
            key: _,
            // not a matter of correctness
            hot: _,
            identical_only: _,
        } = *plan.entry(function).attributes();
        let reached = plan.reached(function);
        // An eliminated function has the code that its calls reach.
        let place = plan.entry(reached.symbol.unwrap_or(reached.call));
        AddressRequirements {
            is_data: false,
            preemptible: linkage == Linkage::Preemptible,
            by_symbol: linkage == Linkage::Preemptible || no_merge,
            pinned: pinned || no_merge,
            insignificant: addresses == Addresses::Insignificant,
            needs: alignment.into(),
            alignment: place.alignment().into(),
            is_defined: reached.symbol.is_some(),
        }
    }

    fn of_data(plan: &Plan, data: DataIndex) -> AddressRequirements {
        let entry = plan.data_entry(data);
        let DataAttributes {
            linkage,
            addresses,
            writable,
            tls,
            alignment,
            pinned,
            // with the contents
            key: _,
            // with the symbol
            externally_used: _,
        } = *entry.attributes();
        let reached = plan.data_reached(data);
        let place = plan.data_entry(reached.symbol.unwrap_or(reached.call));
        let comparable = addresses == Addresses::Insignificant && !writable && !tls;
        AddressRequirements {
            is_data: true,
            preemptible: linkage == Linkage::Preemptible,
            by_symbol: linkage == Linkage::Preemptible || !comparable,
            pinned: pinned || writable || tls,
            insignificant: comparable,
            needs: alignment,
            alignment: place.alignment(),
            is_defined: reached.symbol.is_some(),
        }
    }

    /// Whether a reference to this one may replace a reference to `original`, if the two are
    /// equivalent.
    pub fn may_replace(self, usage: Use, original: AddressRequirements) -> bool {
        let address = original.insignificant && self.alignment >= original.needs;
        let allowed = match usage {
            Use::Call => !self.is_data,
            Use::PatchableCall => false,
            Use::Address => address,
            Use::Inside => address && self.is_data,
        };
        self.is_data == original.is_data && allowed && !self.by_symbol && !original.by_symbol
    }
}

/// A function of the unit.
fn here(plan: &Plan, symbol: &UserExternalName) -> Option<FunctionIndex> {
    plan.function(symbol).filter(|function| function.index() < plan.added())
}

/// A data object of the unit.
fn data_here(plan: &Plan, symbol: &UserExternalName) -> Option<DataIndex> {
    plan.data(symbol).filter(|data| data.index() < plan.added_data())
}

/// The record of a function or data object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    digest: [u8; 32],
    references: Box<[(Use, UserExternalName)]>,
    pub(super) requirements: AddressRequirements,
}

/// An eliminated function.
#[derive(Clone, Debug)]
pub(super) struct EliminatedFunction {
    /// Where its calls go, and what they pass. The target has code, which can be a thunk.
    substitute: Substitute,
    signature: Arc<Signature>,
}

/// The checker's record of earlier units.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(super) functions: BySymbol<Arc<Known>>,
    pub(super) data: BySymbol<Arc<Known>>,
    pub(super) eliminated: BySymbol<EliminatedFunction>,
    /// The objects to which eliminated objects were redirected.
    pub(super) eliminated_data: BySymbol<UserExternalName>,
    /// Equal functions with equal references share all that is known of them.
    last: HashMap<[u8; 32], Arc<Known>, FxBuildHasher>,
}

/// The record that a proved unit adds to a [`Memory`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Learned {
    functions: Vec<(UserExternalName, Arc<Known>)>,
    data: Vec<(UserExternalName, Arc<Known>)>,
    eliminated: Vec<(UserExternalName, EliminatedFunction)>,
    eliminated_data: Vec<(UserExternalName, UserExternalName)>,
    late_thunks: Vec<UserExternalName>,
}

impl Memory {
    /// Bytes of memory, as far as they grow with the remembered classes; `MergingModule`'s tests
    /// have figures.
    pub fn size(&self) -> usize {
        let Memory { functions, data, eliminated, eliminated_data, last } = self;
        let parts = |known: &Arc<Known>| {
            let owners = Arc::strong_count(known).max(1);
            (size_of::<Known>() + size_of_val(&*known.references)) / owners
        };
        let arguments =
            eliminated.values().map(|eliminated| size_of_val(&*eliminated.substitute.arguments));
        functions.allocation_size()
            + data.allocation_size()
            + eliminated.allocation_size()
            + eliminated_data.allocation_size()
            + last.allocation_size()
            + functions.values().chain(data.values()).map(parts).sum::<usize>()
            + arguments.sum::<usize>()
    }

    pub fn extend(&mut self, learned: &Learned) {
        let Learned { functions, data, eliminated, eliminated_data, late_thunks } = learned;
        for (symbol, function) in functions {
            let function = match self.last.get(&function.digest) {
                Some(known) if known == function => known.clone(),
                _ => {
                    self.last.insert(function.digest, function.clone());
                    function.clone()
                }
            };
            self.functions.insert(symbol.clone(), function);
        }
        self.data.extend(data.iter().cloned());
        self.eliminated.extend(eliminated.iter().cloned());
        self.eliminated_data.extend(eliminated_data.iter().cloned());
        for symbol in late_thunks {
            if let Some(function) = self.functions.get_mut(symbol) {
                Arc::make_mut(function).requirements.is_defined = true;
            }
        }
    }
}

/// The questions that later units may ask about this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remember {
    /// There are no later units.
    Nothing,
    /// The targets of eliminated items.
    Eliminated,
    /// Everything.
    All,
}

impl Prover<'_> {
    /// The record of a function or data object, of the unit or of an earlier one.
    fn known(&mut self, symbol: &UserExternalName) -> Result<Arc<Known>, Mismatch> {
        if let Some(function) = here(self.plan, symbol) {
            return self.known_function(function);
        }
        if let Some(data) = data_here(self.plan, symbol) {
            return self.known_data(data).map(Arc::new).ok_or(Mismatch::NotRemembered);
        }
        let Memory { functions, data, .. } = self.memory;
        functions.get(symbol).or_else(|| data.get(symbol)).cloned().ok_or(Mismatch::NotRemembered)
    }

    fn known_function(&mut self, function: FunctionIndex) -> Result<Arc<Known>, Mismatch> {
        if let Some(known) = self.traces.get(&function) {
            return known.clone();
        }
        let key = self.plan.entry(function).attributes().key;
        let body = self.code.original(function);
        let known = Trace::of(body, key, comparison(self.options)).map(|trace| {
            let Trace { digest, references } = trace;
            let requirements = AddressRequirements::of_function(self.plan, function);
            Arc::new(Known { digest, references: references.into(), requirements })
        });
        self.traces.insert(function, known.clone());
        known
    }

    fn known_data(&mut self, data: DataIndex) -> Option<Known> {
        let DataAttributes { key, writable, tls, .. } = *self.plan.data_entry(data).attributes();
        let DataObject { contents, relocations, section } = self.code.data(data)?;
        let (mut places, mut references) = (Vec::new(), Vec::new());
        for pointer in sorted(relocations) {
            let DataReloc { offset, target, addend } = pointer;
            places.push((offset, addend));
            let usage = if *addend == 0 { Use::Address } else { Use::Inside };
            references.push((usage, target.clone()));
        }
        Some(Known {
            digest: digest(&(key, writable, tls, contents, section, places)),
            references: references.into(),
            requirements: AddressRequirements::of_data(self.plan, data),
        })
    }

    /// Proves that the target of references to `kept` may replace `original`. At least one of the
    /// two is of an earlier unit.
    pub(super) fn incremental(
        &mut self,
        kept: &UserExternalName,
        original: &UserExternalName,
    ) -> Result<(), Refutation> {
        let wrong = |mismatch| refuted(kept.clone(), original.clone(), mismatch);
        let a = self.known(kept).map_err(wrong)?;
        let b = self.known(original).map_err(wrong)?;
        if a.digest != b.digest {
            return Err(wrong(Mismatch::Remembered));
        }
        let (a, b) = (&*a.references, &*b.references);
        let earlier = !self.is_here(kept);
        let replace = |((usage, a), (other, b)): (&(Use, UserExternalName), &(Use, _))| {
            usage == other && self.reference_across_units(earlier, *usage, a, b)
        };
        match a.len() == b.len() && a.iter().zip(b).all(replace) {
            true => Ok(()),
            false => Err(wrong(Mismatch::Reference)),
        }
    }

    /// Whether the unit has a function or data object of this symbol.
    fn is_here(&self, symbol: &UserExternalName) -> bool {
        here(self.plan, symbol).is_some() || data_here(self.plan, symbol).is_some()
    }

    /// Whether the symbol to which the kept function refers, as it was written, may replace the
    /// symbol to which the original refers: a further claim. The kept function is of an `earlier`
    /// unit, or of this one, whose code is proved to refer to what may replace what was written.
    fn reference_across_units(
        &mut self,
        earlier: bool,
        usage: Use,
        kept: &UserExternalName,
        original: &UserExternalName,
    ) -> bool {
        let is_here = self.is_here(kept);
        if is_here && is_eliminated(self.plan, kept) && earlier {
            // It is defined later than code that refers to it by its symbol.
            return false;
        }
        if is_here && earlier && (kept == original || self.is_here(original)) {
            return self.in_unit().may_replace(usage, kept, original);
        }
        kept == original || self.in_unit().incremental(usage, kept, original)
    }

    /// Proves that the entry of a function that an earlier unit eliminated has the target and
    /// arguments that it got then.
    pub(super) fn eliminated(&self, function: FunctionIndex) -> Result<(), Refutation> {
        let substitute = self.plan.substitute(function);
        let symbol = self.plan.entry(function).symbol();
        // The code that its calls reach was proved then.
        let is_unchanged = self.memory.eliminated.get(symbol).is_some_and(|eliminated| {
            let signature = self.plan.eliminated_signature(function);
            eliminated.substitute == substitute && signature == Some(&eliminated.signature)
        });
        match is_unchanged {
            true => Ok(()),
            false => Err(refuted(substitute.symbol, symbol.clone(), Mismatch::NotRemembered)),
        }
    }

    /// Proves a claim of a data object.
    pub(super) fn eliminated_data(&self, data: DataIndex) -> Result<(), Refutation> {
        let entry = self.plan.data_entry(data);
        let to = entry.disposition().representative().unwrap_or(data);
        let to = self.plan.data_entry(to).symbol();
        match self.memory.eliminated_data.get(entry.symbol()) == Some(to) {
            true => Ok(()),
            false => Err(refuted(to.clone(), entry.symbol().clone(), Mismatch::NotRemembered)),
        }
    }

    /// The record of this unit, which was proved, for later units.
    pub(super) fn learned(&mut self, remember: Remember) -> Learned {
        let mut learned = Learned::default();
        let plan: &Plan = self.plan;
        if remember == Remember::Nothing {
            return learned;
        }
        for (function, entry) in plan.entries().take(plan.added()) {
            if !plan.reached(function).has_own_address(function) {
                let substitute = plan.substitute(function);
                let signature = Arc::new(self.code.original(function).signature.clone());
                learned
                    .eliminated
                    .push((entry.symbol().clone(), EliminatedFunction { substitute, signature }));
            }
        }
        for (data, entry) in plan.data_entries().take(plan.added_data()) {
            let reached = plan.data_reached(data);
            if reached.symbol.is_none() {
                let to = plan.data_entry(reached.call).symbol().clone();
                learned.eliminated_data.push((entry.symbol().clone(), to));
            }
        }
        let late = plan.late_thunks().iter();
        learned.late_thunks = late.map(|late| plan.entry(late.function).symbol().clone()).collect();
        if remember == Remember::Eliminated {
            return learned;
        }
        for (function, entry) in plan.entries().take(plan.added()) {
            // A function that the verifier refuses equals no other.
            if let Ok(known) = self.known_function(function) {
                learned.functions.push((entry.symbol().clone(), known));
            }
        }
        for new in plan.new_bodies() {
            // A function of its own, equivalent to the function from which it was copied.
            if let Some(copied) = new.copy_of()
                && let Ok(known) = self.known_function(copied)
            {
                let requirements = AddressRequirements::of_function(plan, new.function());
                let symbol = plan.entry(new.function()).symbol().clone();
                learned
                    .functions
                    .push((symbol, Arc::new(Known { requirements, ..(*known).clone() })));
            }
        }
        for (data, entry) in plan.data_entries().take(plan.added_data()) {
            if let Some(known) = self.known_data(data) {
                learned.data.push((entry.symbol().clone(), Arc::new(known)));
            }
        }
        learned
    }

    /// The symbols of the unit, for claims on references.
    pub(super) fn in_unit(&mut self) -> InUnit<'_> {
        let Prover { plan, signatures, emitted, memory, pending, .. } = self;
        InUnit { plan, signatures: signatures.as_deref(), emitted, memory, pending }
    }
}
