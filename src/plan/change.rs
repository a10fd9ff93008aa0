//! The functions that change a plan: the disposition of a function or data object is written here
//! and nowhere else.
//!
//! They keep the tables of a plan consistent with each other. They decide nothing: `decide`,
//! `parameterise` and `incremental` do.

use super::{
    DataEntry, Disposition, EarlierUnits, Emission, LateThunk, NewBody, Outcome, Plan, Reason,
    SimilarSet, symbol_of,
};
use crate::canon::ContentDigest;
use crate::extra_argument::ExtraArgument;
use crate::options::Options;
use crate::stats::{Merged, SimilarCounts, Stats};
use crate::unit::{
    Alignment, Attributes, DataIndex, DataSummary, Defined, ExternalSymbols, FunctionIndex, Item,
    Numbering, Unit,
};
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, Signature, UserExternalName};
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use cranelift_mergefunc_checker::{Proof, Refutation};
use hashbrown::HashMap;

/// An entry that is added for a function that is not of the unit, or that the plan makes. It is
/// kept.
pub(crate) struct Added {
    pub symbol: UserExternalName,
    pub attributes: Attributes,
    pub reason: Reason,
    pub class: u32,
    /// In bytes.
    pub alignment: u32,
    /// See [`Entry::gets_compared_body`].
    pub has_equals: bool,
}

/// An entry that is added for a data object of an earlier unit. It is kept, and has the attributes
/// and the size of another one.
pub(crate) struct AddedData {
    pub symbol: UserExternalName,
    pub like: DataEntry,
    pub reason: Reason,
    pub class: u32,
    /// In bytes.
    pub alignment: u64,
}

impl Plan {
    /// The plan of a unit that merges nothing, so far for these reasons.
    pub(crate) fn new(
        unit: Unit,
        beyond: ExternalSymbols,
        stats: Stats,
        options: &Options<'_>,
        mut reason: impl FnMut(Item) -> Reason,
    ) -> Plan {
        let (functions, objects, symbols) = unit.into_parts();
        let numbering = Numbering { functions: functions.len(), data: objects.len() };
        let mut outcomes = PrimaryMap::with_capacity(functions.len());
        for (function, defined) in functions.iter() {
            let reason = reason(Item::Function(function));
            let alignment = Alignment::new(defined.attributes.alignment.into());
            outcomes.push(Outcome::kept(function, reason, 0, alignment));
        }
        let mut data = PrimaryMap::with_capacity(objects.len());
        for (index, summary) in objects {
            let DataSummary { symbol, attributes, bucket: _, size } = summary;
            data.push(DataEntry {
                symbol,
                attributes,
                disposition: Disposition::Keep,
                reason: reason(Item::Data(index)),
                class: 0,
                alignment: attributes.alignment,
                size,
            });
        }
        Plan {
            functions,
            outcomes,
            details: HashMap::default(),
            data,
            symbols,
            numbering,
            new_bodies: Vec::new(),
            similar: Vec::new(),
            earlier: EarlierUnits { beyond, ..EarlierUnits::default() },
            emission: Emission {
                optimize: options.similar.policy.optimize_for(),
                target: options.target,
                code: Vec::new(),
            },
            proof: None,
            stats,
        }
    }

    /// Gives an item the number of its class.
    pub(crate) fn set_class(&mut self, item: Item, class: u32) {
        match item {
            Item::Function(function) => self.outcomes[function].class = class,
            Item::Data(data) => self.data[data].class = class,
        }
    }

    /// Says whether the class of a function has other members, or may get some in later units.
    pub(crate) fn set_has_equals(&mut self, function: FunctionIndex, has_equals: bool) {
        self.outcomes[function].has_equals = has_equals;
    }

    /// Gives an item another disposition, and the reason for it.
    pub(crate) fn set(&mut self, function: FunctionIndex, to: Disposition, reason: Reason) {
        let outcome = &mut self.outcomes[function];
        outcome.to = to.representative().unwrap_or(function);
        (outcome.kind, outcome.reason) = (to.map(|_| ()), reason);
    }

    /// Sets the disposition of a data object.
    pub(crate) fn set_data(&mut self, data: DataIndex, to: Disposition<DataIndex>, reason: Reason) {
        let entry = &mut self.data[data];
        (entry.disposition, entry.reason) = (to, reason);
    }

    /// Gives a function or data object another reason for its disposition.
    pub(crate) fn set_reason(&mut self, item: Item, reason: Reason) {
        match item {
            Item::Function(function) => self.outcomes[function].reason = reason,
            Item::Data(data) => self.data[data].reason = reason,
        }
    }

    /// Redirects a function that was merged away to another representative of its class.
    pub(crate) fn retarget(&mut self, function: FunctionIndex, to: FunctionIndex) {
        self.outcomes[function].to = to;
    }

    /// Makes the calls of a function that was merged away pass these extra arguments.
    pub(crate) fn set_extra_arguments(
        &mut self,
        function: FunctionIndex,
        arguments: Arc<[ExtraArgument]>,
    ) {
        self.details.entry(function).or_default().extra_arguments = arguments;
    }

    /// Records that calls of a thunk may not pass its extra arguments themselves.
    pub(crate) fn set_called_by_symbol(&mut self, function: FunctionIndex) {
        self.details.entry(function).or_default().is_called_by_symbol = true;
    }

    /// Aligns an item to this many bytes at least.
    pub(crate) fn align(&mut self, item: Item, bytes: u64) {
        match item {
            Item::Function(function) => {
                let alignment = &mut self.outcomes[function].alignment;
                *alignment = Alignment::of_function(bytes).max(*alignment);
            }
            Item::Data(data) => {
                let alignment = &mut self.data[data].alignment;
                *alignment = bytes.max(*alignment);
            }
        }
    }

    /// Gives an item this alignment in bytes, right or wrong: for tests of the checker.
    #[cfg(feature = "internals")]
    pub(crate) fn set_alignment(&mut self, item: Item, bytes: u64) {
        match item {
            Item::Function(function) => {
                self.outcomes[function].alignment = Alignment::of_function(bytes);
            }
            Item::Data(data) => self.data[data].alignment = bytes,
        }
    }

    /// Says, of each function that was added, whose code it has if it is kept: that of an equal one
    /// that came before it.
    pub(crate) fn set_code(&mut self, code: Vec<FunctionIndex>) {
        self.emission.code = code;
    }

    /// Adds an entry. Its symbol is not entered: an earlier unit has it.
    pub(crate) fn add(&mut self, added: Added) -> FunctionIndex {
        let Added { symbol, attributes, reason, class, alignment, has_equals } = added;
        let attributes = Arc::new(attributes);
        let function = self.functions.push(Defined { symbol, attributes });
        let kept = Outcome::kept(function, reason, class, Alignment::new(alignment.into()));
        self.outcomes.push(Outcome { has_equals, ..kept })
    }

    /// Adds a data object.
    pub(crate) fn add_data(&mut self, added: AddedData) -> DataIndex {
        let AddedData { symbol, like, reason, class, alignment } = added;
        let disposition = Disposition::Keep;
        self.data.push(DataEntry { symbol, disposition, reason, class, alignment, ..like })
    }

    /// Adds a new body under a symbol of its own.
    ///
    /// # Panics
    ///
    /// If the symbol is that of something else.
    pub(crate) fn add_body(
        &mut self,
        added: Added,
        body: Function,
        copy_of: Option<FunctionIndex>,
    ) -> FunctionIndex {
        let (symbol, other) = (&added.symbol, self.item_of(&added.symbol));
        assert!(other.is_none(), "{symbol}, for a new body, is a symbol that nothing uses yet");
        let function = self.add(added);
        self.enter(Item::Function(function));
        let members = Vec::new();
        let new = NewBody { function, body, copy_of, members, content_digest: None };
        self.new_bodies.push(new);
        function
    }

    /// Gives a new body other code, which does the same.
    pub(crate) fn set_body(&mut self, function: FunctionIndex, body: Function) {
        let at = self.new_bodies.binary_search_by_key(&function, |new| new.function);
        self.new_bodies[at.expect("a body of the plan")].body = body;
    }

    /// Makes a new body content-addressed.
    pub(crate) fn set_content_digest(&mut self, function: FunctionIndex, digest: ContentDigest) {
        let at = self.new_bodies.binary_search_by_key(&function, |new| new.function);
        self.new_bodies[at.expect("a body of the plan")].content_digest = Some(digest);
    }

    /// Records which functions each new body replaces. To be called when that is decided.
    pub(crate) fn record_members(&mut self) {
        let Plan { outcomes, new_bodies, .. } = self;
        let Some(first) = new_bodies.first().map(|new| new.function) else {
            return;
        };
        for (function, outcome) in outcomes.iter() {
            if let Some(to) = outcome.disposition().representative().filter(|&to| to >= first)
                && let Ok(at) = new_bodies.binary_search_by_key(&to, |new| new.function)
            {
                new_bodies[at].members.push(function);
            }
        }
    }

    /// Records a set of similar functions.
    pub(crate) fn record_similar(&mut self, set: SimilarSet) {
        self.similar.push(set);
    }

    /// Adds the entry of a function that an earlier unit eliminated.
    pub(crate) fn add_eliminated(
        &mut self,
        added: Added,
        disposition: Disposition,
        arguments: Arc<[ExtraArgument]>,
        signature: Arc<Signature>,
    ) -> FunctionIndex {
        let reason = added.reason;
        let function = self.add(added);
        self.set(function, disposition, reason);
        if !arguments.is_empty() {
            self.set_extra_arguments(function, arguments);
        }
        self.enter(Item::Function(function));
        self.earlier.functions.push((function, signature));
        function
    }

    /// Adds the entry of a data object that an earlier unit eliminated.
    pub(crate) fn add_eliminated_data(&mut self, added: AddedData, to: DataIndex) {
        let reason = added.reason;
        let data = self.add_data(added);
        self.set_data(data, Disposition::Redirect { to }, reason);
        self.enter(Item::Data(data));
        self.earlier.data.push(data);
    }

    /// Enters the symbol of an item.
    fn enter(&mut self, item: Item) {
        let Plan { functions, data, symbols, .. } = self;
        symbols.insert(item, |item| symbol_of(functions, data, item));
    }

    /// Gives a function that an earlier unit eliminated code of its own.
    pub(crate) fn add_late_thunk(&mut self, function: FunctionIndex, signature: Arc<Signature>) {
        let at = self.earlier.late_thunks.partition_point(|late| late.function < function);
        self.earlier.late_thunks.insert(at, LateThunk { function, signature });
    }

    /// Records the proof of the plan.
    pub(crate) fn set_proof(&mut self, proof: Proof) {
        self.proof = Some(Ok(proof));
    }

    /// The counters of the run, to be counted on.
    pub(crate) fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    /// Counts the functions and data objects that are merged away.
    pub(crate) fn recompute_stats(&mut self) {
        let Plan { outcomes, data, numbering, stats, .. } = self;
        let functions = outcomes.values().take(numbering.functions);
        let merged = |outcome: &&Outcome| outcome.disposition() != Disposition::Keep;
        stats.merged.functions = functions.filter(merged).count();
        let objects = data.values().take(numbering.data);
        let merged = objects.filter(|entry| entry.disposition != Disposition::Keep);
        (stats.merged.data_objects, stats.merged.data_bytes) =
            merged.fold((0, 0), |(count, bytes), entry| (count + 1, bytes + entry.size));
    }

    /// The plan of the same unit that merges nothing.
    pub(crate) fn without_merges(self, refutation: Refutation) -> Plan {
        let Plan {
            functions: defined, data, mut symbols, earlier, numbering, emission, stats, ..
        } = self;
        let EarlierUnits { beyond, .. } = earlier;
        let Numbering { functions, data: objects } = numbering;
        let defined: PrimaryMap<FunctionIndex, Defined> =
            defined.into_iter().take(functions).map(|(_, defined)| defined).collect();
        let outcomes = defined.iter().map(|(function, defined)| {
            let alignment = Alignment::new(defined.attributes.alignment.into());
            Outcome::kept(function, Reason::NotProved, function.as_u32(), alignment)
        });
        let data = data.into_iter().take(objects).map(|(index, entry)| DataEntry {
            disposition: Disposition::Keep,
            reason: Reason::NotProved,
            class: functions as u32 + index.as_u32(),
            alignment: entry.attributes.alignment,
            ..entry
        });
        let within = |item: Item| match item {
            Item::Function(function) => function.index() < functions,
            Item::Data(data) => data.index() < objects,
        };
        // The caller adds the entries of eliminated functions of earlier units again.
        symbols.retain(within);
        Plan {
            outcomes: outcomes.collect(),
            functions: defined,
            details: HashMap::default(),
            data: data.collect(),
            symbols,
            numbering,
            new_bodies: Vec::new(),
            similar: Vec::new(),
            earlier: EarlierUnits { beyond, ..EarlierUnits::default() },
            emission,
            proof: Some(Err(refutation)),
            stats: Stats {
                plan_members: 0,
                merged: Merged::default(),
                similar: SimilarCounts { bodies: 0, merged: 0, ..stats.similar },
                ..stats
            },
        }
    }

    /// Removes the parameterised bodies that were merged into others, to which nothing refers. They
    /// are the last entries.
    pub(crate) fn remove_parameterised_bodies(&mut self) {
        let Plan { functions, outcomes, details, data, symbols, new_bodies, similar, .. } = self;
        let is_parameterised = |new: &&NewBody| new.copy_of.is_none();
        let Some(first) = new_bodies.iter().find(is_parameterised) else {
            return;
        };
        let first = first.function;
        let class = outcomes[first].class;
        symbols.retain(|item| match item {
            Item::Function(function) => function < first,
            Item::Data(_) => true,
        });
        let mut number: SecondaryMap<FunctionIndex, Option<FunctionIndex>> = SecondaryMap::new();
        let mut left: PrimaryMap<FunctionIndex, Defined> = PrimaryMap::new();
        let mut left_outcomes: PrimaryMap<FunctionIndex, Outcome> = PrimaryMap::new();
        let mut eliminated: Vec<(FunctionIndex, FunctionIndex)> = Vec::new();
        let entries = core::mem::take(functions).into_iter();
        let entries = entries.zip(core::mem::take(outcomes));
        for ((function, defined), (_, mut outcome)) in entries {
            match outcome.disposition().representative() {
                Some(to) if function >= first => {
                    details.remove(&function);
                    eliminated.push((function, to));
                }
                _ => {
                    if function >= first {
                        outcome.class = class + (left.len() - first.index()) as u32;
                    }
                    left.push(defined);
                    let new = left_outcomes.push(outcome);
                    if function >= first
                        && let Some(own) = details.remove(&function)
                    {
                        details.insert(new, own);
                    }
                    number[function] = Some(new);
                }
            }
        }
        for (function, to) in eliminated {
            number[function] = number[to];
        }
        let new = |function: FunctionIndex| number[function];
        for (function, outcome) in left_outcomes.iter_mut() {
            outcome.to = new(outcome.to).expect("kept");
            if function >= first {
                symbols.insert(Item::Function(function), |item| symbol_of(&left, data, item));
            }
        }
        (*functions, *outcomes) = (left, left_outcomes);
        for set in similar {
            set.body = set.body.and_then(new);
        }
        new_bodies.retain_mut(|body| {
            let function = new(body.function).expect("it, or its representative");
            body.function = function;
            body.body.name.get_user().expect("named by the plan") == &functions[function].symbol
        });
    }
}

impl Outcome {
    /// Of a function that is kept.
    fn kept(function: FunctionIndex, reason: Reason, class: u32, alignment: Alignment) -> Outcome {
        let (kind, has_equals) = (Disposition::Keep, false);
        Outcome { to: function, class, kind, alignment, reason, has_equals }
    }
}
