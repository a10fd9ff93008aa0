//! Dispositions: from classes and attributes to a [`Plan`].
//!
//! [`decide`] chooses the representative of every class and the disposition of the other members, and records the
//! reasons. Plain data in, plain data out: it needs bodies only where a decision depends on the size of compiled
//! code. It changes no code. Merging across the units of an incremental run is in `incremental`.

mod incremental;

use crate::apply::call_thunk;
use crate::bucket::{Bucketed, Walked};
use crate::checker::Learned;
use crate::classes::Node;
use crate::data::{DataAttributes, DataIndex};
use crate::facts::meet;
use crate::incremental::eliminated::EliminatedEntries;
use crate::incremental::{CachedClass, Graph, MergeCache};
use crate::options::{Addresses, Attributes, Linkage, Options, Prebucket};
use crate::plan::{DataEntry, Disposition, Entry, Plan, PrivateCopy};
use crate::remarks::Reason;
use crate::similar::observes_its_frame;
use crate::stats::Stats;
use crate::summary::Observed;
use crate::unit::{Bodies, DataSummary, FunctionIndex, Item, Summary, Unit, resolved};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use cranelift_codegen::ir::{UserExternalName, UserFuncName};
use cranelift_codegen::isa::CallConv;
use cranelift_codegen::packed_option::ReservedValue;
use cranelift_entity::{EntityRef, PrimaryMap};

/// Decides the disposition of every function and data object in `unit`.
pub(crate) fn decide(
    options: &Options<'_>,
    unit: Unit,
    observed: &Observed,
    mut bucketed: Bucketed,
    cache: Option<&MergeCache>,
    bodies: &mut dyn Bodies,
    stats: Stats,
) -> Plan {
    let beyond = core::mem::take(&mut bucketed.beyond);
    let bucketed = &bucketed;
    let Unit { functions, data: data_objects, by_symbol } = unit;
    let numbering = bucketed.numbering;
    let mut entries = PrimaryMap::with_capacity(functions.len());
    for (function, summary) in functions {
        let Summary { symbol, attributes, bucket: _, instructions: _ } = summary;
        entries.push(Entry {
            symbol,
            attributes,
            disposition: Disposition::Keep,
            reason: alone(options, bucketed, numbering.node(Item::Function(function))),
            class: 0,
            alignment: attributes.alignment,
            weakened: None,
            arguments: Arc::default(),
            body_facts: None,
            has_equals: false,
        });
    }
    let mut data = PrimaryMap::with_capacity(data_objects.len());
    for (index, summary) in data_objects {
        let DataSummary { symbol, attributes, bucket: _, size } = summary;
        let alone = || alone(options, bucketed, numbering.node(Item::Data(index)));
        data.push(DataEntry {
            symbol,
            attributes,
            disposition: Disposition::Keep,
            reason: cannot_merge(&attributes).unwrap_or_else(alone),
            class: 0,
            alignment: attributes.alignment,
            size,
        });
    }
    let alignments = class_alignments(bucketed, &entries, &data);
    let graph = cache.map(|_| Graph::new(bucketed, &alignments));
    let found = match (cache, &graph) {
        (Some(cache), Some(graph)) => cache.find(graph),
        (None, _) | (_, None) => Vec::new(),
    };
    let mut decision = Decision {
        options,
        observed,
        bucketed,
        cache,
        found: &found,
        bodies,
        entries,
        data,
        added_functions: BTreeMap::new(),
        added_data: BTreeMap::new(),
        copies: Vec::new(),
        stats,
    };
    decision.number_classes();
    for class in decision.classes_by_symbol() {
        decision.class(&class);
    }
    decision.limit();
    let private_copies = decision.add_private_copies();
    // Members first: this may raise the alignment that their representatives need.
    decision.align(&alignments);
    decision.align_representatives();
    decision.weaken(&private_copies);
    decision.lonely_representatives();
    let record = graph.map(|graph| decision.record(&graph, &private_copies));
    let Decision { entries, data, mut stats, .. } = decision;
    let merged = |entry: &&Entry| entry.disposition != Disposition::Keep;
    stats.plan_merged = entries.values().filter(merged).count();
    stats.plan_weakened = entries.values().filter(|entry| entry.weakened.is_some()).count();
    for entry in data.values() {
        if entry.disposition != Disposition::Keep {
            stats.plan_merged_data_objects += 1;
            stats.plan_merged_data_bytes += entry.size;
        }
    }
    let mut by_symbol = by_symbol;
    for copy in &private_copies {
        let symbol = entries[copy.function].symbol.clone();
        by_symbol.insert(symbol, Item::Function(copy.function));
    }
    let (merged, similar) = (Vec::new(), Vec::new());
    Plan {
        entries,
        data,
        by_symbol,
        beyond,
        numbering,
        private_copies,
        merged,
        similar,
        eliminated: EliminatedEntries::default(),
        late_thunks: Vec::new(),
        newly_eliminated: None,
        learned: Learned::default(),
        record,
        proof: None,
        stats,
    }
}

/// Whether the address of a function is compared by its class.
fn is_used_by_class(attributes: &Attributes) -> bool {
    resolved(Node::new(0), attributes).address.is_some()
}

/// The alignment on which code relies that takes the address of any member: the largest alignment of the members
/// whose addresses do not matter, by class.
fn class_alignments(
    bucketed: &Bucketed,
    entries: &PrimaryMap<FunctionIndex, Entry>,
    data: &PrimaryMap<DataIndex, DataEntry>,
) -> Vec<u64> {
    let Bucketed { partition, numbering, .. } = bucketed;
    let mut alignments = alloc::vec![1; partition.len()];
    for node in numbering.nodes() {
        let own = match numbering.item(node) {
            Item::Function(function) => {
                let attributes = &entries[function].attributes;
                is_used_by_class(attributes).then_some(u64::from(attributes.alignment))
            }
            Item::Data(data_index) => {
                let attributes = &data[data_index].attributes;
                attributes.by_class().then_some(attributes.alignment)
            }
        };
        let alignment = &mut alignments[partition.class_of(node.index())];
        *alignment = own.unwrap_or(1).max(*alignment);
    }
    alignments
}

/// The reason why a data object with these attributes is not even compared.
fn cannot_merge(attributes: &DataAttributes) -> Option<Reason> {
    let DataAttributes { linkage, addresses, writable, tls, .. } = attributes;
    if *tls {
        Some(Reason::ThreadLocal)
    } else if *writable {
        Some(Reason::Writable)
    } else if *linkage == Linkage::Preemptible {
        Some(Reason::Preemptible)
    } else if *addresses == Addresses::Significant {
        Some(Reason::AddressSignificant)
    } else {
        None
    }
}

/// The reason why a function or data object is alone in its class.
fn alone(options: &Options<'_>, bucketed: &Bucketed, node: Node) -> Reason {
    match bucketed.walked.get(node).copied().unwrap_or_default() {
        Walked::No => match options.walks() {
            Prebucket::Counts => Reason::Prefiltered,
            Prebucket::WalkAll => Reason::Different,
        },
        Walked::Malformed => Reason::Malformed,
        Walked::Yes { instructions: _ } if bucketed.equal_encodings.contains(node) => {
            Reason::ReferencesDiffer
        }
        Walked::Yes { instructions: _ } => Reason::Different,
    }
}

/// What must be kept of a function whose body is eliminated, cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    Nothing,
    /// The symbol, at whatever address.
    Symbol,
    /// The symbol, at an address of its own.
    Address,
}

struct Decision<'a> {
    options: &'a Options<'a>,
    observed: &'a Observed,
    bucketed: &'a Bucketed,
    cache: Option<&'a MergeCache>,
    /// The cached class for each class of the unit; empty if there are no earlier units.
    found: &'a [Option<CachedClass>],
    bodies: &'a mut dyn Bodies,
    entries: PrimaryMap<FunctionIndex, Entry>,
    data: PrimaryMap<DataIndex, DataEntry>,
    /// The entries of functions that earlier units emitted, by symbol.
    added_functions: BTreeMap<(u32, u32), FunctionIndex>,
    added_data: BTreeMap<(u32, u32), DataIndex>,
    /// Symbols of private copies, and the members of their classes.
    copies: Vec<(UserExternalName, Vec<FunctionIndex>)>,
    stats: Stats,
}

impl Decision<'_> {
    fn symbol(&self, item: Item) -> &UserExternalName {
        match item {
            Item::Function(function) => &self.entries[function].symbol,
            Item::Data(data) => &self.data[data].symbol,
        }
    }

    fn item_order(&self, item: Item) -> (u32, u32) {
        let symbol = self.symbol(item);
        (symbol.namespace, symbol.index)
    }

    fn number_classes(&mut self) {
        let numbering = self.bucketed.numbering;
        let mut order: Vec<Item> = numbering.nodes().map(|node| numbering.item(node)).collect();
        order.sort_unstable_by_key(|&item| self.item_order(item));
        let mut number = alloc::vec![u32::MAX; self.bucketed.partition.len()];
        let mut next = 0;
        for item in order {
            let node = numbering.node(item);
            let class = &mut number[self.bucketed.partition.class_of(node.index())];
            if *class == u32::MAX {
                *class = next;
                next += 1;
            }
            match item {
                Item::Function(function) => {
                    let partition = &self.bucketed.partition;
                    let alone = partition.members(partition.class_of(node.index())).len() < 2;
                    let walked = matches!(self.bucketed.walked[node], Walked::Yes { .. });
                    let entry = &mut self.entries[function];
                    entry.class = *class;
                    // A function that is not to be merged keeps its own code.
                    let takes_part = walked && !entry.attributes.no_merge;
                    entry.has_equals = takes_part && !(alone && self.cache.is_none());
                }
                Item::Data(data) => self.data[data].class = *class,
            }
        }
    }

    /// The classes of two and more members, each in the order of symbols, by their smallest symbols.
    fn classes_by_symbol(&mut self) -> Vec<Vec<Item>> {
        let Bucketed { partition, numbering, .. } = self.bucketed;
        let item = |&node: &u32| numbering.item(Node::new(node as usize));
        let found = |class: &usize| self.found.get(*class).is_some_and(|found| found.is_some());
        let mut classes: Vec<Vec<Item>> = (0..partition.len())
            .filter(|class| partition.members(*class).len() > 1 || found(class))
            .map(|class| partition.members(class).iter().map(item).collect())
            .collect();
        for class in &mut classes {
            class.sort_unstable_by_key(|&item| self.item_order(item));
            if class.len() > 1 {
                let functions = class.iter().filter(|item| matches!(item, Item::Function(_)));
                self.stats.plan_members += functions.count();
            }
        }
        classes.sort_unstable_by_key(|class| self.item_order(class[0]));
        classes
    }

    /// Decides for the members of one class, given in the order of their symbols. A class holds functions or data
    /// objects, never both: their encodings differ.
    fn class(&mut self, members: &[Item]) {
        let functions: Vec<FunctionIndex> = members
            .iter()
            .filter_map(|item| match item {
                Item::Function(function) => Some(*function),
                Item::Data(_) => None,
            })
            .collect();
        let data: Vec<DataIndex> = members
            .iter()
            .filter_map(|item| match item {
                Item::Function(_) => None,
                Item::Data(data) => Some(*data),
            })
            .collect();
        debug_assert!(functions.is_empty() || data.is_empty());
        self.functions(&functions);
        self.data(&data);
    }

    /// Decides for data objects that are equal, given in the order of their symbols.
    fn data(&mut self, members: &[DataIndex]) {
        let mut candidates = Vec::new();
        for &member in members {
            self.data[member].reason = match self.data[member].attributes.pinned {
                true => Reason::Pinned,
                false => {
                    candidates.push(member);
                    Reason::EqualsNotMerged
                }
            };
        }
        candidates.retain(|&member| match self.cached_data(member) {
            None => true,
            Some(to) => {
                self.data_member(member, to);
                false
            }
        });
        // The best representative is a member that must keep its symbol, so that the others can be eliminated; then
        // by linkage. Among several it is the first, which is by symbol.
        let best = candidates.iter().copied().min_by_key(|&member| {
            let DataAttributes { linkage, externally_used, .. } = self.data[member].attributes;
            let keeps_symbol = linkage.is_visible_outside() || externally_used;
            (!keeps_symbol, linkage)
        });
        let Some(to) = best else {
            return;
        };
        self.data[to].reason = Reason::Representative;
        for member in candidates {
            if member != to {
                self.data_member(member, to);
            }
        }
    }

    /// Decides for a data object that is not the representative.
    fn data_member(&mut self, member: DataIndex, to: DataIndex) {
        let DataAttributes { linkage, externally_used, .. } = self.data[member].attributes;
        let (disposition, reason) = if !linkage.is_visible_outside() && !externally_used {
            (Disposition::Redirect { to }, Reason::AddressInsignificant)
        } else if self.options.aliases {
            (Disposition::Alias { to }, Reason::AddressInsignificant)
        } else {
            (Disposition::Keep, Reason::NoAlias)
        };
        self.data[member].disposition = disposition;
        self.data[member].reason = reason;
    }

    /// Gives the members of a class whose addresses do not matter the largest alignment of them. Members that are
    /// kept need it as well: functions that use two of them can merge, and then use either in place of the other.
    fn align(&mut self, alignments: &[u64]) {
        let Bucketed { partition, numbering, .. } = self.bucketed;
        for node in numbering.nodes() {
            let class = partition.class_of(node.index());
            let cache = self.found.get(class).copied().flatten().zip(self.cache);
            let cache = cache.map_or(1, |(class, cache)| cache.alignment(class));
            let alignment = alignments[class].max(cache);
            match numbering.item(node) {
                Item::Function(function) => {
                    let entry = &mut self.entries[function];
                    if is_used_by_class(&entry.attributes) {
                        let alignment = u32::try_from(alignment).unwrap_or(u32::MAX);
                        entry.alignment = entry.alignment.max(alignment);
                    }
                }
                Item::Data(data) => {
                    let entry = &mut self.data[data];
                    if entry.attributes.by_class() {
                        entry.alignment = entry.alignment.max(alignment);
                    }
                }
            }
        }
    }

    /// The reason why a function must keep its symbol, if it must.
    fn must_keep_symbol(&self, function: FunctionIndex) -> Option<Reason> {
        let entry = &self.entries[function];
        let Attributes { linkage, addresses, address_taken, externally_called, .. } =
            entry.attributes;
        let taken = address_taken || self.observed.address_taken(&entry.symbol);
        match linkage {
            Linkage::Preemptible => Some(Reason::Preemptible),
            Linkage::Export | Linkage::Hidden => Some(Reason::VisibleOutside),
            Linkage::Local if self.observed.patchable(&entry.symbol) => {
                Some(Reason::PatchableCalls)
            }
            Linkage::Local if taken && addresses == Addresses::Significant => {
                Some(Reason::AddressTaken)
            }
            Linkage::Local if externally_called => Some(Reason::ExternallyCalled),
            Linkage::Local => None,
        }
    }

    /// Decides for functions that are equal, given in the order of their symbols.
    fn functions(&mut self, members: &[FunctionIndex]) {
        let mut candidates = Vec::new();
        for &member in members {
            let entry = &self.entries[member];
            let attributes = entry.attributes;
            let pinned = attributes.pinned || self.observed.points_inside(&entry.symbol);
            self.entries[member].reason = if pinned {
                Reason::Pinned
            } else if attributes.no_merge {
                Reason::NoMerge
            } else {
                candidates.push(member);
                Reason::EqualsNotMerged
            };
        }
        candidates.retain(|&member| match self.cached_function(member) {
            None => true,
            Some(to) => {
                self.member(member, to);
                false
            }
        });
        if candidates.len() < 2 {
            return;
        }
        // The best representative is the member that would cost most otherwise, so that the others can be
        // eliminated; then by linkage. Among several it is the first, which is by symbol.
        let best = candidates
            .iter()
            .copied()
            .filter(|&member| self.entries[member].attributes.linkage != Linkage::Preemptible)
            .min_by_key(|&member| {
                let linkage = self.entries[member].attributes.linkage;
                (Reverse(self.need(member)), linkage)
            });
        match best {
            Some(representative) => {
                self.entries[representative].reason = Reason::Representative;
                for member in candidates {
                    if member != representative {
                        self.member(member, representative);
                    }
                }
            }
            None => self.all_preemptible(&candidates),
        }
    }

    /// What must be kept of a function if its body is not.
    fn need(&self, function: FunctionIndex) -> Need {
        let insignificant = self.entries[function].attributes.addresses == Addresses::Insignificant;
        match self.must_keep_symbol(function) {
            None => Need::Nothing,
            // Code that uses the symbol only calls it, or its address would be taken.
            Some(Reason::ExternallyCalled) if self.options.aliases => Need::Symbol,
            Some(_) if insignificant && self.options.aliases => Need::Symbol,
            Some(_) => Need::Address,
        }
    }

    /// Decides for a member that is not the representative.
    fn member(&mut self, member: FunctionIndex, to: FunctionIndex) {
        let keeps_symbol = self.must_keep_symbol(member);
        let addresses = self.entries[member].attributes.addresses;
        let (disposition, reason) = match (self.need(member), keeps_symbol) {
            (Need::Nothing, _) => match addresses {
                Addresses::Significant => (Disposition::Redirect { to }, Reason::OnlyCalled),
                Addresses::Insignificant => {
                    (Disposition::Redirect { to }, Reason::AddressInsignificant)
                }
            },
            (Need::Symbol, Some(reason @ (Reason::Preemptible | Reason::ExternallyCalled))) => {
                (Disposition::Alias { to }, reason)
            }
            (Need::Symbol, _) => (Disposition::Alias { to }, Reason::AddressInsignificant),
            (Need::Address, reason) => match self.thunk_is_smaller(member, to) {
                Some(true) => {
                    (Disposition::Thunk { to }, reason.expect("a kept symbol has a reason"))
                }
                Some(false) => (Disposition::Keep, Reason::ThunkNotSmaller),
                None => (Disposition::Keep, Reason::NoThunk),
            },
        };
        self.entries[member].disposition = disposition;
        self.entries[member].reason = reason;
    }

    /// Whether a thunk takes fewer bytes than the body; `None` if there is no thunk.
    fn thunk_is_smaller(&mut self, function: FunctionIndex, to: FunctionIndex) -> Option<bool> {
        let node = self.bucketed.numbering.node(Item::Function(function));
        let Walked::Yes { instructions } = self.bucketed.walked[node] else {
            return Some(false);
        };
        let thunk = match self.options.target.jump_thunk {
            Some(jump) => match self.options.target.jump_is_smaller(instructions) {
                Some(smaller) => return Some(smaller),
                None => jump.size(),
            },
            None => self.call_thunk_size(function, to)?,
        };
        // A thunk takes no fewer bytes than its stated size; a body of unknown size may.
        Some(self.bodies.code_size(function).is_some_and(|body| body > thunk))
    }

    /// The size of a function that calls `to`, where call thunks are allowed and are equivalent to a jump.
    fn call_thunk_size(&mut self, function: FunctionIndex, to: FunctionIndex) -> Option<u32> {
        let call_thunks = self.options.call_thunks?;
        let body = self.bodies.body(function);
        if observes_its_frame(body) {
            // The function would observe the frame of the thunk.
            return None;
        }
        let signature = body.signature.clone();
        if signature.call_conv == CallConv::Tail && !call_thunks.tail_calls {
            // Tail calls guarantee that the stack does not grow.
            return None;
        }
        let Entry { symbol, .. } = &self.entries[function];
        let name = UserFuncName::User(symbol.clone());
        let thunk = call_thunk(name, &signature, &[], &self.entries[to].symbol, &call_thunks);
        self.bodies.thunk_size(function, &thunk)
    }

    /// A thunk to a preemptible symbol would jump to the definition that takes the symbol, so no member can be the
    /// representative: a private copy takes the body, if that pays.
    fn all_preemptible(&mut self, members: &[FunctionIndex]) {
        for &member in members {
            self.entries[member].reason = Reason::AllPreemptible;
        }
        let Some(thunk) = self.options.target.jump_thunk else {
            return;
        };
        let smallest = u64::from(self.options.target.smallest_function);
        let body = self.bodies.code_size(members[0]).map_or(smallest, u64::from);
        let count = members.len() as u64;
        if count * body <= body + count * u64::from(thunk.size()) {
            return;
        }
        let Some(symbol) = self.bodies.fresh_symbol() else {
            return;
        };
        // The copy gets its index when it is known that no limit cuts into the class.
        let to = FunctionIndex::reserved_value();
        self.copies.push((symbol, members.to_vec()));
        for &member in members {
            self.entries[member].disposition = Disposition::Thunk { to };
            self.entries[member].reason = Reason::Preemptible;
        }
    }

    /// Adds the private copies that are still wanted behind the functions of the unit.
    fn add_private_copies(&mut self) -> Vec<PrivateCopy> {
        let mut bodies = Vec::new();
        for (symbol, members) in core::mem::take(&mut self.copies) {
            let kept =
                |&member: &FunctionIndex| self.entries[member].disposition == Disposition::Keep;
            if members.iter().any(kept) {
                // The limit cut into the class. A private copy for the rest may not pay.
                for member in members {
                    self.entries[member].disposition = Disposition::Keep;
                    self.entries[member].reason = Reason::MergeLimit;
                }
                continue;
            }
            let body_of = members[0];
            let Entry { attributes, class, alignment, .. } = self.entries[body_of].clone();
            let attributes = Attributes {
                linkage: Linkage::Local,
                addresses: Addresses::Insignificant,
                address_taken: false,
                ..attributes
            };
            let function = self.entries.push(Entry {
                symbol,
                attributes,
                disposition: Disposition::Keep,
                reason: Reason::Representative,
                class,
                alignment,
                weakened: None,
                arguments: Arc::default(),
                body_facts: None,
                has_equals: true,
            });
            for member in members {
                self.entries[member].disposition = Disposition::Thunk { to: function };
            }
            bodies.push(PrivateCopy { function, body_of });
        }
        bodies
    }

    /// The numbered gate: every merge passes here, in the order of the merged symbols.
    fn limit(&mut self) {
        let Some(limit) = self.options.merge_limit else {
            return;
        };
        let functions = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.disposition != Disposition::Keep)
            .map(|(function, _)| Item::Function(function));
        let data = self
            .data
            .iter()
            .filter(|(_, entry)| entry.disposition != Disposition::Keep)
            .map(|(data, _)| Item::Data(data));
        let mut merges: Vec<Item> = functions.chain(data).collect();
        merges.sort_unstable_by_key(|&item| self.item_order(item));
        for &item in merges.iter().skip(limit as usize) {
            match item {
                Item::Function(function) => {
                    self.entries[function].disposition = Disposition::Keep;
                    self.entries[function].reason = Reason::MergeLimit;
                }
                Item::Data(data) => {
                    self.data[data].disposition = Disposition::Keep;
                    self.data[data].reason = Reason::MergeLimit;
                }
            }
        }
    }

    /// A representative into which nothing was merged only keeps its body.
    fn lonely_representatives(&mut self) {
        let mut needed = alloc::vec![false; self.entries.len()];
        for to in self.entries.values().filter_map(|entry| entry.disposition.representative()) {
            needed[to.index()] = true;
        }
        for (entry, needed) in self.entries.values_mut().zip(needed) {
            if entry.reason == Reason::Representative && !needed {
                entry.reason = Reason::EqualsNotMerged;
            }
        }
        let mut needed = alloc::vec![false; self.data.len()];
        for to in self.data.values().filter_map(|entry| entry.disposition.representative()) {
            needed[to.index()] = true;
        }
        for (entry, needed) in self.data.values_mut().zip(needed) {
            if entry.reason == Reason::Representative && !needed {
                entry.reason = Reason::EqualsNotMerged;
            }
        }
    }

    /// Gives every representative an alignment that fits all functions that it replaces.
    fn align_representatives(&mut self) {
        for function in self.entries.keys() {
            let Entry { disposition, alignment, .. } = self.entries[function];
            match disposition {
                Disposition::Redirect { to } | Disposition::Alias { to } => {
                    self.entries[to].alignment = self.entries[to].alignment.max(alignment);
                }
                // A thunk has an address of its own.
                Disposition::Keep | Disposition::Thunk { to: _ } => {}
            }
        }
    }

    /// Gives every body the facts that all functions that it replaces share.
    ///
    /// That affects not only representatives: callers that are equal because they call two functions of one class
    /// may share a body that calls one of the two, even if both are kept.
    fn weaken(&mut self, copies: &[PrivateCopy]) {
        let Bucketed { partition, numbering, facts_of, facts, .. } = self.bucketed;
        let copy_of: BTreeMap<FunctionIndex, FunctionIndex> =
            copies.iter().map(|copy| (copy.body_of, copy.function)).collect();
        let referred_to = self.classes_referred_to();
        for (class, referred_to) in referred_to.into_iter().enumerate() {
            let cache = self.found.get(class).copied().flatten().zip(self.cache);
            let cache = cache.and_then(|(class, cache)| cache.facts(class));
            let nodes = partition.members(class);
            if nodes.len() < 2 && cache.is_none() {
                continue;
            }
            let mut members: Vec<(FunctionIndex, u32)> = Vec::with_capacity(nodes.len());
            for &node in nodes {
                let node = Node::new(node as usize);
                if let (Item::Function(function), Some(own)) =
                    (numbering.item(node), facts_of[node])
                    && self.counts_for_facts(function, referred_to)
                {
                    members.push((function, own));
                }
            }
            let mut distinct: Vec<u32> = members.iter().map(|&(_, own)| own).collect();
            distinct.sort_unstable();
            distinct.dedup();
            let Some((&first, others)) = distinct.split_first() else {
                continue;
            };
            if others.is_empty() && cache.is_none() {
                continue;
            }
            // The facts that all share do not depend on the order of the meets, up to the numbers of regions. So
            // each function meets the common facts, not those of every other one.
            let mut common = facts[first as usize].clone();
            for &other in others {
                meet(&mut common, &facts[other as usize]);
            }
            if let Some(cache) = cache {
                meet(&mut common, cache);
            }
            for (function, own) in members {
                let before = &facts[own as usize];
                let kept = (self.entries[function].disposition == Disposition::Keep)
                    .then_some(function)
                    .into_iter();
                for function in kept.chain(copy_of.get(&function).copied()) {
                    let mut weakened = before.clone();
                    meet(&mut weakened, &common);
                    self.entries[function].weakened = (weakened != *before).then_some(weakened);
                }
            }
        }
    }

    /// Whether a caller that was written to call `function` may reach the body of another function of its class, or
    /// the other way round.
    fn counts_for_facts(&self, function: FunctionIndex, referred_to: bool) -> bool {
        let Entry { attributes, disposition, reason, .. } = &self.entries[function];
        let by_class = resolved(Node::new(0), attributes).call.is_some();
        *disposition != Disposition::Keep
            || *reason == Reason::Representative
            || referred_to && by_class
    }

    /// The classes that are referred to by functions that have equals, or may get some in later units.
    fn classes_referred_to(&self) -> Vec<bool> {
        let Bucketed { partition, nodes, references, .. } = self.bucketed;
        let mut referred_to = alloc::vec![self.cache.is_some(); partition.len()];
        for row in 0..nodes.len() {
            for target in references.of(row) {
                referred_to[partition.class_of(target.index())] = true;
            }
        }
        referred_to
    }
}
