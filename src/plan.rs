//! The plan: the disposition of every function, and the reason for it.
//!
//! Plain data: `decide` makes it, `apply` carries it out, function by function.
//!
//! | member G of the class of F | outcome |
//! |---|---|
//! | local, only called | redirected to F |
//! | local, address taken, address insignificant | redirected to F |
//! | visible or address taken, address significant | thunk to F; direct callers go to F |
//! | visible, address insignificant | alias of F where the back end has aliases, else thunk |
//! | preemptible | thunk or alias; callers of G keep calling G |
//! | all members preemptible | a new local function takes the body, all become thunks to it |
//! | externally called | alias where the back end has aliases, else thunk |
//! | pinned, not to be merged, thunk not smaller than the body | kept |
//!
//! A read-only data object with an insignificant address is redirected if it is local, else an alias where the back
//! end has aliases, else kept.

use crate::canon::{ResolveSymbol, Resolved};
use crate::checker::{Learned, Proof, Refutation};
use crate::classes::Node;
use crate::data::{DataAttributes, DataIndex};
use crate::extra_argument::ExtraArgument;
use crate::facts::Fact;
use crate::incremental::eliminated::{EliminatedEntries, NewlyEliminated};
use crate::incremental::{Left, Record};
use crate::options::{Attributes, Linkage};
use crate::remarks::Reason;
use crate::stats::Stats;
use crate::unit::{Beyond, FunctionIndex, Item, Numbering, Symbols, resolved, resolved_data};
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, Signature, UserExternalName};
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};

/// The disposition of a function, or of a data object (which never becomes a thunk). `I` identifies the item that
/// it is merged into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition<I = FunctionIndex> {
    /// It is emitted: a body after [`Plan::apply`](crate::Plan::apply), data with the pointers that
    /// [`Plan::address_symbol`] returns.
    Keep,
    /// No reference to it is left; there is nothing to emit.
    Redirect {
        /// The item that replaces it.
        to: I,
    },
    /// Its symbol is another name for the representative's address.
    Alias {
        /// The item whose address its symbol gets.
        to: I,
    },
    /// Its symbol keeps its address; its code is only a jump.
    Thunk {
        /// The target of the jump.
        to: I,
    },
}

impl<I> Disposition<I> {
    /// The word used in reports: keep, redirect, alias or thunk.
    pub fn name(&self) -> &'static str {
        match self {
            Disposition::Keep => "keep",
            Disposition::Redirect { to: _ } => "redirect",
            Disposition::Alias { to: _ } => "alias",
            Disposition::Thunk { to: _ } => "thunk",
        }
    }

    /// The representative, if the body or the data is not needed any more.
    pub fn representative(self) -> Option<I> {
        match self {
            Disposition::Keep => None,
            Disposition::Redirect { to }
            | Disposition::Alias { to }
            | Disposition::Thunk { to } => Some(to),
        }
    }

    /// The same disposition, with the items renamed.
    pub fn map<J>(self, name: impl FnOnce(I) -> J) -> Disposition<J> {
        match self {
            Disposition::Keep => Disposition::Keep,
            Disposition::Redirect { to } => Disposition::Redirect { to: name(to) },
            Disposition::Alias { to } => Disposition::Alias { to: name(to) },
            Disposition::Thunk { to } => Disposition::Thunk { to: name(to) },
        }
    }
}

/// The plan's entry for one function.
#[derive(Clone, Debug)]
pub struct Entry {
    pub(crate) symbol: UserExternalName,
    pub(crate) attributes: Attributes,
    pub(crate) disposition: Disposition,
    pub(crate) reason: Reason,
    pub(crate) class: u32,
    pub(crate) alignment: u32,
    /// Whether its class has other members, or may get some in later units.
    pub(crate) has_equals: bool,
    /// The remaining facts of a representative, if they are fewer than its own.
    pub(crate) weakened: Option<Vec<Fact>>,
    /// The extra arguments of a call to the representative.
    pub(crate) arguments: Arc<[ExtraArgument]>,
    /// The facts of the parameterised body that calls reach, at the places of the function as it was compared.
    /// Later changes of the body only weaken them.
    pub(crate) body_facts: Option<Arc<[Fact]>>,
}

impl Entry {
    /// The symbol under which the function was added.
    pub fn symbol(&self) -> &UserExternalName {
        &self.symbol
    }

    /// The disposition of the function.
    pub fn disposition(&self) -> Disposition {
        self.disposition
    }

    /// The reason for the disposition.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The number of its class. Functions are equal exactly if they have the same number, merged or not: as they
    /// were added. Merging similar functions can make functions of several classes equal, and changes no number.
    /// The numbers are dense and follow the order of the classes' smallest symbols.
    pub fn class(&self) -> u32 {
        self.class
    }

    /// Whether a kept function gets the body that was compared, which is not its own with `Canonicalize::Optimize`:
    /// calls of its equals may run it, in this unit or a later one, and facts are those of compared bodies.
    pub(crate) fn gets_compared_body(&self) -> bool {
        self.has_equals || self.reason == Reason::Representative || self.weakened.is_some()
    }

    /// The extra arguments of a call that goes to the function that replaces it: none, unless the function was
    /// merged with others that differ from it in constants and callees.
    pub fn arguments(&self) -> &[ExtraArgument] {
        &self.arguments
    }

    /// The attributes that the caller gave the function, or those of a function that the plan added.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The alignment in bytes that the function's code needs: the largest of all functions that
    /// end up at its address.
    pub fn alignment(&self) -> u32 {
        self.alignment
    }
}

/// The plan's entry for one data object.
#[derive(Clone, Debug)]
pub struct DataEntry {
    pub(crate) symbol: UserExternalName,
    pub(crate) attributes: DataAttributes,
    pub(crate) disposition: Disposition<DataIndex>,
    pub(crate) reason: Reason,
    pub(crate) class: u32,
    pub(crate) alignment: u64,
    pub(crate) size: u64,
}

impl DataEntry {
    /// The symbol under which the object was added.
    pub fn symbol(&self) -> &UserExternalName {
        &self.symbol
    }

    /// The disposition of the object.
    pub fn disposition(&self) -> Disposition<DataIndex> {
        self.disposition
    }

    /// The reason for the disposition.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The number of its class, from the same numbers as those of functions.
    pub fn class(&self) -> u32 {
        self.class
    }

    /// The alignment in bytes that the object needs: the largest of all that end up at its address.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
}

/// A new local function, made because all members of a class are preemptible.
#[derive(Clone, Debug)]
pub struct PrivateCopy {
    /// Its index, beyond those of the functions that were added.
    pub function: FunctionIndex,
    /// The function whose body it takes: clone it, rename it, and [`apply`](Plan::apply) the plan
    /// to the clone under the index `function`.
    pub body_of: FunctionIndex,
}

/// A new local function that replaces several similar ones: a parameterised body, which receives their differences
/// as extra arguments.
#[derive(Clone, Debug)]
pub struct ParameterisedBody {
    /// Its index, beyond those of the functions that were added.
    pub function: FunctionIndex,
    /// Its body: [`apply`](Plan::apply) the plan to a clone under the index `function`.
    pub body: Function,
}

/// A function that an earlier unit eliminated and that needs code of its own after all, because its address is
/// taken now, or because it is called with a mismatched signature.
#[derive(Clone, Debug)]
pub struct LateThunk {
    /// Its index, beyond those of the functions that were added. Its entry is a thunk: emit it under its symbol,
    /// with the extra arguments that [`Plan::thunk_arguments`] returns.
    pub function: FunctionIndex,
    /// The signature of the function.
    pub signature: Arc<Signature>,
}

/// Functions that differ only in constants and references, and whether one parameterised body replaces them.
#[derive(Clone, Debug)]
pub struct SimilarSet {
    /// The functions, two or more, in the order of their symbols.
    pub members: Vec<FunctionIndex>,
    /// The number of parameters by which they differ: what a body for all of them takes as extra arguments.
    pub parameters: usize,
    /// The parameterised body, if it pays.
    pub body: Option<FunctionIndex>,
    /// How many bytes it saves, at least, or at most if it does not pay, with the cost of thunks and of passing
    /// arguments subtracted. `None` if there can be no such body, or if it is not wanted.
    pub saved: Option<i64>,
}

/// The disposition of everything in a unit, with the reasons.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) entries: PrimaryMap<FunctionIndex, Entry>,
    pub(crate) data: PrimaryMap<DataIndex, DataEntry>,
    pub(crate) by_symbol: Symbols,
    /// How references are compared, in an incremental run.
    pub(crate) beyond: Beyond,
    pub(crate) numbering: Numbering,
    pub(crate) private_copies: Vec<PrivateCopy>,
    pub(crate) merged: Vec<ParameterisedBody>,
    pub(crate) similar: Vec<SimilarSet>,
    /// The functions and data that earlier units eliminated and that this one refers to.
    pub(crate) eliminated: EliminatedEntries,
    pub(crate) late_thunks: Vec<LateThunk>,
    /// What later units must know of what this one eliminates, if there may be later units.
    pub(crate) newly_eliminated: Option<NewlyEliminated>,
    /// What the checker learned for proofs of later units.
    pub(crate) learned: Learned,
    /// What later units may merge into, in an incremental run.
    pub(crate) record: Option<Record>,
    /// The result of the checker, if it was run.
    pub(crate) proof: Option<Result<Proof, Refutation>>,
    pub(crate) stats: Stats,
}

impl Plan {
    /// The entry of a function.
    ///
    /// # Panics
    ///
    /// If `function` is not from this plan.
    pub fn entry(&self, function: FunctionIndex) -> &Entry {
        &self.entries[function]
    }

    /// All entries: the functions in the order in which they were added, then the entries that the plan adds:
    /// bodies that earlier units emitted, functions that they eliminated and this unit refers to, and new bodies.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (FunctionIndex, &Entry)> {
        self.entries.iter()
    }

    /// The private copies, which are new functions.
    pub fn private_copies(&self) -> &[PrivateCopy] {
        &self.private_copies
    }

    /// The extra arguments that the thunk of a function passes, as they are after merging.
    ///
    /// # Panics
    ///
    /// If `function` is not from this plan.
    pub fn thunk_arguments(&self, function: FunctionIndex) -> Vec<ExtraArgument> {
        let address = |symbol: &UserExternalName| Some(self.address_symbol(symbol).clone());
        let arguments = self.entries[function].arguments.iter();
        arguments.map(|argument| argument.redirected(&address)).collect()
    }

    /// The parameterised bodies, which are new functions.
    pub fn parameterised_bodies(&self) -> &[ParameterisedBody] {
        &self.merged
    }

    /// The sets of similar functions that were considered ([`Options::similar`](crate::Options::similar)): those
    /// that were not divided any further, in the order of consideration.
    pub fn similar_sets(&self) -> &[SimilarSet] {
        &self.similar
    }

    /// The functions that earlier units eliminated and that need code now: to be emitted with this unit. None,
    /// unless the run is incremental ([`Merger::after`](crate::Merger::after)).
    pub fn late_thunks(&self) -> &[LateThunk] {
        &self.late_thunks
    }

    /// The entry of a data object.
    ///
    /// # Panics
    ///
    /// If `data` is not from this unit.
    pub fn data_entry(&self, data: DataIndex) -> &DataEntry {
        &self.data[data]
    }

    /// All entries of data objects, in the order in which they were added.
    pub fn data_entries(&self) -> impl ExactSizeIterator<Item = (DataIndex, &DataEntry)> {
        self.data.iter()
    }

    /// The function of a symbol, if the unit has one.
    pub fn function(&self, symbol: &UserExternalName) -> Option<FunctionIndex> {
        match self.by_symbol.get(symbol)? {
            Item::Function(function) => Some(*function),
            Item::Data(_) => None,
        }
    }

    /// The data object of a symbol, if the unit has one.
    pub fn data(&self, symbol: &UserExternalName) -> Option<DataIndex> {
        match self.by_symbol.get(symbol)? {
            Item::Function(_) => None,
            Item::Data(data) => Some(*data),
        }
    }

    /// The function that a direct call to `function` reaches at best.
    pub fn call_target(&self, function: FunctionIndex) -> FunctionIndex {
        let entry = &self.entries[function];
        match entry.attributes.linkage {
            // The definition that takes the symbol must get the calls.
            Linkage::Preemptible => function,
            // The thunk exists anyway, and passes the extra arguments.
            _ if matches!(entry.disposition, Disposition::Thunk { to: _ })
                && !entry.arguments.is_empty() =>
            {
                function
            }
            Linkage::Export | Linkage::Hidden | Linkage::Local => {
                entry.disposition.representative().unwrap_or(function)
            }
        }
    }

    /// The function whose address may replace the address of `function`. References from data, and all others that
    /// the IR does not show, must use it.
    pub fn address_target(&self, function: FunctionIndex) -> FunctionIndex {
        let entry = &self.entries[function];
        match entry.disposition {
            // A body that takes extra arguments may not replace a function of which only the address is known. No
            // code has that address, or there would be a thunk.
            Disposition::Redirect { to } if entry.arguments.is_empty() => to,
            Disposition::Redirect { to: _ }
            | Disposition::Keep
            | Disposition::Alias { to: _ }
            | Disposition::Thunk { to: _ } => function,
        }
    }

    /// The symbol whose address may replace the address of `symbol`, of a function or a data object: pointers in
    /// data objects, and everything else that the IR does not show, must use it.
    pub fn address_symbol<'a>(&'a self, symbol: &'a UserExternalName) -> &'a UserExternalName {
        match self.by_symbol.get(symbol) {
            None => symbol,
            Some(Item::Function(function)) => &self.entries[self.address_target(*function)].symbol,
            Some(Item::Data(data)) => match self.data[*data].disposition {
                Disposition::Redirect { to } => &self.data[to].symbol,
                Disposition::Keep | Disposition::Alias { .. } | Disposition::Thunk { .. } => symbol,
            },
        }
    }

    /// The number of functions that were added.
    pub fn added(&self) -> usize {
        self.numbering.functions
    }

    /// Whether an entry is for a function of an earlier unit, which emitted or eliminated it: unless it is among
    /// the [late thunks](Plan::late_thunks), nothing has to be emitted for it.
    pub fn is_cached(&self, function: FunctionIndex) -> bool {
        let added = self.body_of(function).is_some() || self.parameterised_body(function).is_some();
        function.index() >= self.added() && !added
    }

    /// Whether references that are compared by these nodes are equal: they refer to members of one class, or to the
    /// same external node.
    pub(crate) fn equal_references(&self, a: Node, b: Node) -> bool {
        a == b || self.class_of(a).is_some_and(|class| self.class_of(b) == Some(class))
    }

    /// `None` for an external node.
    pub(crate) fn class_of(&self, node: Node) -> Option<u32> {
        let Numbering { functions, data } = self.numbering;
        (node.index() < functions + data).then(|| match self.numbering.item(node) {
            Item::Function(function) => self.entries[function].class,
            Item::Data(data) => self.data[data].class,
        })
    }

    /// The function of the unit whose body `function` has: itself, unless the plan added it. `None` if an earlier
    /// unit emitted it.
    pub(crate) fn body_of(&self, function: FunctionIndex) -> Option<FunctionIndex> {
        body_of(function, self.added(), &self.private_copies)
    }

    /// The result of the independent checker, if [`Options::prove`](crate::Options::prove) asks for it: what it
    /// proved, or why nothing is merged.
    pub fn proof(&self) -> Option<&Result<Proof, Refutation>> {
        self.proof.as_ref()
    }

    /// The plan of the same unit that merges nothing.
    pub(crate) fn without_merges(self, refutation: Refutation) -> Plan {
        let Plan { entries, data, by_symbol, beyond, numbering, stats, .. } = self;
        let Numbering { functions, data: objects } = numbering;
        let entries = entries.into_iter().take(functions).map(|(function, entry)| Entry {
            disposition: Disposition::Keep,
            reason: Reason::NotProved,
            class: function.as_u32(),
            alignment: entry.attributes.alignment,
            weakened: None,
            arguments: Arc::default(),
            body_facts: None,
            has_equals: false,
            ..entry
        });
        let data = data.into_iter().take(objects).map(|(index, entry)| DataEntry {
            disposition: Disposition::Keep,
            reason: Reason::NotProved,
            class: functions as u32 + index.as_u32(),
            alignment: entry.attributes.alignment,
            ..entry
        });
        let within = |item: &Item| match item {
            Item::Function(function) => function.index() < functions,
            Item::Data(data) => data.index() < objects,
        };
        // The caller adds the entries of eliminated functions of earlier units again.
        Plan {
            entries: entries.collect(),
            data: data.collect(),
            by_symbol: by_symbol.into_iter().filter(|(_, item)| within(item)).collect(),
            beyond,
            numbering,
            private_copies: Vec::new(),
            merged: Vec::new(),
            similar: Vec::new(),
            eliminated: EliminatedEntries::default(),
            late_thunks: Vec::new(),
            newly_eliminated: None,
            learned: Learned::default(),
            record: None,
            proof: Some(Err(refutation)),
            stats: Stats {
                plan_members: 0,
                plan_merged: 0,
                plan_merged_data_objects: 0,
                plan_merged_data_bytes: 0,
                plan_weakened: 0,
                similar_bodies: 0,
                similar_merged: 0,
                ..stats
            },
        }
    }

    /// Restricts the record for later units to what is not eliminated.
    pub(crate) fn remove_eliminated(&mut self) {
        let Plan { entries, by_symbol, record, .. } = self;
        if let Some(record) = record {
            record.retain(|symbol| match by_symbol.get(symbol) {
                Some(Item::Function(function)) => {
                    let Entry { disposition, body_facts, .. } = &entries[*function];
                    match disposition {
                        Disposition::Keep => Left::Body,
                        Disposition::Redirect { to: _ }
                        | Disposition::Alias { to: _ }
                        | Disposition::Thunk { to: _ } => Left::Facts(body_facts.as_deref()),
                    }
                }
                Some(Item::Data(_)) | None => Left::Body,
            });
        }
    }

    /// The parameterised body that the plan made, if `function` is one.
    pub(crate) fn parameterised_body(&self, function: FunctionIndex) -> Option<&Function> {
        let at = self.merged.binary_search_by_key(&function, |merged| merged.function).ok()?;
        Some(&self.merged[at].body)
    }

    /// Removes the parameterised bodies that were merged away by the second identical pass, to which nothing
    /// refers. They are the last entries, and there are some.
    pub(crate) fn remove_parameterised_bodies(&mut self) {
        let Plan { entries, by_symbol, merged, similar, .. } = self;
        let mut number: SecondaryMap<FunctionIndex, Option<FunctionIndex>> = SecondaryMap::new();
        let first = merged[0].function;
        let class = entries[first].class;
        let mut left: PrimaryMap<FunctionIndex, Entry> = PrimaryMap::new();
        let mut eliminated: Vec<(FunctionIndex, FunctionIndex)> = Vec::new();
        for (function, mut entry) in core::mem::take(entries) {
            match entry.disposition.representative() {
                Some(to) if function >= first => {
                    by_symbol.remove(&entry.symbol);
                    eliminated.push((function, to));
                }
                _ => {
                    if function >= first {
                        entry.class = class + (left.len() - first.index()) as u32;
                    }
                    number[function] = Some(left.push(entry));
                }
            }
        }
        for (function, to) in eliminated {
            number[function] = number[to];
        }
        let new = |function: FunctionIndex| number[function];
        for (function, entry) in left.iter_mut() {
            entry.disposition = entry.disposition.map(|to| new(to).expect("kept"));
            if function >= first {
                by_symbol.insert(entry.symbol.clone(), Item::Function(function));
            }
        }
        *entries = left;
        for set in similar {
            set.body = set.body.and_then(new);
        }
        merged.retain_mut(|merged| {
            let function = new(merged.function).expect("it, or its representative");
            merged.function = function;
            by_symbol.get(merged.body.name.get_user().expect("named by the plan"))
                == Some(&Item::Function(function))
        });
    }

    /// The number of classes so far.
    pub(crate) fn classes(&self) -> u32 {
        let functions = self.entries.values().map(|entry| entry.class);
        let data = self.data.values().map(|entry| entry.class);
        functions.chain(data).max().map_or(0, |last| last + 1)
    }

    /// Counters of the run.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }
}

/// See [`Plan::body_of`].
pub(crate) fn body_of(
    function: FunctionIndex,
    added: usize,
    copies: &[PrivateCopy],
) -> Option<FunctionIndex> {
    if function.index() < added {
        return Some(function);
    }
    // They were added one after the other.
    let at = copies.binary_search_by_key(&function, |copy| copy.function).ok()?;
    Some(copies[at].body_of)
}

impl ResolveSymbol for Plan {
    fn resolve(&self, symbol: &UserExternalName) -> Option<Resolved> {
        if let Some(resolved) = self.beyond.get(symbol) {
            return Some(*resolved);
        }
        let &item = self.by_symbol.get(symbol)?;
        Some(match item {
            Item::Function(function) if function.index() < self.numbering.functions => {
                resolved(self.numbering.node(item), &self.entries[function].attributes)
            }
            // A function that the plan added has no number in the partition.
            Item::Function(_) => return None,
            Item::Data(data) => {
                resolved_data(self.numbering.node(item), &self.data[data].attributes)
            }
        })
    }
}
