//! Dispositions: from classes and attributes to a [`Plan`].
//!
//! [`decide`] chooses the representative of every class and the disposition of the other members,
//! and records the reasons. Plain data in, plain data out: it needs bodies only where a decision
//! depends on the size of compiled code. It changes no code. Merging across the units of an
//! incremental run is in `incremental`.

mod incremental;

use crate::apply::call_thunk;
use crate::congruence::{Bucketed, Walked};
use crate::corpus::KnownIndex;
use crate::incremental::{External, Graph, MergeCache, Record};
use crate::ir::observes_its_frame;
use crate::options::Options;
use crate::plan::{Added, Disposition, Plan, Reason, ReplacedBy, SymbolUses, must_keep_symbol};
use crate::stats::Stats;
use crate::unit::{
    Addresses, Alignment, Attributes, Bodies, DataAttributes, DataIndex, ExternalSymbols,
    FunctionIndex, Item, Linkage, Node, Observed, Unit, resolved,
};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use cranelift_codegen::ir::{Function, UserExternalName, UserFuncName};
use cranelift_codegen::packed_option::ReservedValue;
use cranelift_entity::EntityRef;
use cranelift_size_model as size;

/// The merge cache of an incremental run, and what the classes of the unit refer to.
#[derive(Clone, Copy)]
pub(crate) struct Earlier<'a> {
    pub cache: &'a MergeCache,
    pub external: &'a External,
}

/// The input of the phase, besides the unit.
pub(crate) struct Input<'a> {
    pub options: &'a Options<'a>,
    pub observed: &'a Observed,
    pub bucketed: &'a Bucketed,
    /// In an incremental run.
    pub earlier: Option<Earlier<'a>>,
}

/// Decides the disposition of every function and data object in `unit`. Returns the plan and, in an
/// incremental run, what later units may merge into. Without `bodies`, there are no call thunks and
/// no private copies.
pub(crate) fn decide(
    input: Input<'_>,
    unit: Unit,
    beyond: ExternalSymbols,
    bodies: Option<&mut dyn Bodies>,
    stats: Stats,
) -> (Plan, Option<Record>) {
    let Input { options, observed, bucketed, earlier } = input;
    let numbering = bucketed.numbering;
    let not_comparable: Vec<Option<Reason>> =
        unit.data.values().map(|object| cannot_merge(&object.attributes)).collect();
    let plan = Plan::new(unit, beyond, stats, options, |item| {
        let reason = singleton_reason(options, bucketed, numbering.node(item));
        match item {
            Item::Function(_) => reason,
            Item::Data(data) => not_comparable[data.index()].unwrap_or(reason),
        }
    });
    let alignments = class_alignments(bucketed, &plan);
    let graph = earlier.map(|earlier| Graph::new(bucketed, earlier.external, &alignments));
    let found = match (earlier, &graph) {
        (Some(earlier), Some(graph)) => earlier.cache.find(graph),
        (None, _) | (_, None) => Vec::new(),
    };
    let mut decision = Decision {
        options,
        observed,
        bucketed,
        cache: earlier.map(|earlier| earlier.cache),
        found: &found,
        bodies: bodies.map(|bodies| bodies as &mut dyn Bodies),
        plan,
        added_functions: BTreeMap::new(),
        added_data: BTreeMap::new(),
        copies: Vec::new(),
    };
    decision.number_classes();
    for class in decision.classes_by_symbol() {
        let members = decision.members(class);
        decision.class(&members);
    }
    decision.limit();
    decision.add_private_copies();
    // Members first: this may raise the alignment that their representatives need.
    decision.align(&alignments);
    decision.align_representatives();
    decision.unused_representatives();
    let record = graph.map(|graph| decision.record(&graph));
    let Decision { mut plan, .. } = decision;
    plan.recompute_stats();
    (plan, record)
}

/// Whether the address of a function is compared by its class.
fn is_used_by_class(attributes: &Attributes) -> bool {
    resolved(Node::new(0), attributes).address.is_some()
}

/// The alignment on which code relies that takes the address of any member: the largest alignment
/// of the members whose addresses do not matter, by class.
fn class_alignments(bucketed: &Bucketed, plan: &Plan) -> Vec<Alignment> {
    let Bucketed { partition, numbering, .. } = bucketed;
    let mut alignments = alloc::vec![Alignment::default(); partition.len()];
    for node in numbering.nodes() {
        let own = match numbering.item(node) {
            Item::Function(function) => {
                let attributes = plan.entry(function).attributes();
                is_used_by_class(attributes).then_some(u64::from(attributes.alignment))
            }
            Item::Data(data_index) => {
                let attributes = plan.data_entry(data_index).attributes();
                attributes.by_class().then_some(attributes.alignment)
            }
        };
        let alignment = &mut alignments[partition.class_of(node.index())];
        *alignment = own.map_or(Alignment::default(), Alignment::new).max(*alignment);
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
fn singleton_reason(options: &Options<'_>, bucketed: &Bucketed, node: Node) -> Reason {
    match bucketed.walked(node) {
        Walked::No => match options.compare.every_function {
            false => Reason::Prefiltered,
            true => Reason::Different,
        },
        Walked::Malformed => Reason::Malformed,
        Walked::Yes { .. } if bucketed.equal_encodings.contains(node) => Reason::ReferencesDiffer,
        Walked::Yes { .. } => Reason::Different,
    }
}

/// The part of a function that must be kept if its body is eliminated, cheapest first.
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
    found: &'a [Option<KnownIndex>],
    bodies: Option<&'a mut dyn Bodies>,
    plan: Plan,
    /// The entries of functions that earlier units emitted, by symbol.
    added_functions: BTreeMap<(u32, u32), FunctionIndex>,
    added_data: BTreeMap<(u32, u32), DataIndex>,
    /// Symbols of private copies, and the members of their classes.
    copies: Vec<(UserExternalName, Vec<FunctionIndex>)>,
}

impl Decision<'_> {
    fn symbol(&self, item: Item) -> &UserExternalName {
        match item {
            Item::Function(function) => self.plan.entry(function).symbol(),
            Item::Data(data) => self.plan.data_entry(data).symbol(),
        }
    }

    fn attributes(&self, function: FunctionIndex) -> &Attributes {
        self.plan.entry(function).attributes()
    }

    fn data_attributes(&self, data: DataIndex) -> DataAttributes {
        *self.plan.data_entry(data).attributes()
    }

    fn item_order(&self, item: Item) -> (u32, u32) {
        let symbol = self.symbol(item);
        (symbol.namespace, symbol.index)
    }

    fn number_classes(&mut self) {
        let numbering = self.bucketed.numbering;
        let mut order: Vec<Node> = numbering.nodes().collect();
        order.sort_unstable_by_key(|&node| self.item_order(numbering.item(node)));
        let mut number = alloc::vec![u32::MAX; self.bucketed.partition.len()];
        let mut next = 0;
        for node in order {
            let item = numbering.item(node);
            let class = &mut number[self.bucketed.partition.class_of(node.index())];
            if *class == u32::MAX {
                *class = next;
                next += 1;
            }
            let number = *class;
            self.plan.set_class(item, number);
            if let Item::Function(function) = item {
                let partition = &self.bucketed.partition;
                let alone = partition.members(partition.class_of(node.index())).len() < 2;
                let walked = matches!(self.bucketed.walked(node), Walked::Yes { .. });
                // A function that is not to be merged keeps its own code.
                let takes_part = walked && !self.attributes(function).no_merge;
                let has_equals = takes_part && !(alone && self.cache.is_none());
                self.plan.set_has_equals(function, has_equals);
            }
        }
    }

    /// The classes of two and more members, by their smallest symbols.
    fn classes_by_symbol(&self) -> Vec<u32> {
        let Bucketed { partition, .. } = self.bucketed;
        let found = |class: u32| self.found.get(class as usize).is_some_and(Option::is_some);
        let mut classes: Vec<u32> = (0..partition.len() as u32)
            .filter(|&class| partition.members(class as usize).len() > 1 || found(class))
            .collect();
        // The numbers of classes follow that order.
        classes.sort_unstable_by_key(|&class| {
            let first = Node::from_u32(partition.members(class as usize)[0]);
            self.plan.class_of(first)
        });
        classes
    }

    /// The members of a class, in the order of their symbols.
    fn members(&mut self, class: u32) -> Vec<Item> {
        let Bucketed { partition, numbering, .. } = self.bucketed;
        let nodes = partition.members(class as usize);
        let item = |&node: &u32| numbering.item(Node::from_u32(node));
        let mut members: Vec<Item> = nodes.iter().map(item).collect();
        members.sort_unstable_by_key(|&item| self.item_order(item));
        if members.len() > 1 {
            let functions = members.iter().filter(|item| matches!(item, Item::Function(_)));
            self.plan.stats_mut().plan_members += functions.count();
        }
        members
    }

    /// Decides for the members of one class, given in the order of their symbols. A class holds
    /// functions or data objects, never both: their encodings differ.
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
            let reason = match self.data_attributes(member).pinned {
                true => Reason::Pinned,
                false => {
                    candidates.push(member);
                    Reason::EqualsNotMerged
                }
            };
            self.plan.set_reason(Item::Data(member), reason);
        }
        candidates.retain(|&member| match self.cached_data(member) {
            None => true,
            Some(to) => {
                self.data_member(member, to);
                false
            }
        });
        // The best representative is a member that must keep its symbol, so that the others can be
        // eliminated; then by linkage. Among several it is the first, which is by symbol.
        let best = candidates.iter().copied().min_by_key(|&member| {
            let DataAttributes { linkage, externally_used, .. } = self.data_attributes(member);
            let keeps_symbol = linkage.is_visible_outside() || externally_used;
            (!keeps_symbol, linkage)
        });
        let Some(to) = best else {
            return;
        };
        self.plan.set_reason(Item::Data(to), Reason::Representative);
        for member in candidates {
            if member != to {
                self.data_member(member, to);
            }
        }
    }

    /// Decides for a data object that is not the representative.
    fn data_member(&mut self, member: DataIndex, to: DataIndex) {
        let DataAttributes { linkage, externally_used, .. } = self.data_attributes(member);
        let (disposition, reason) = if !linkage.is_visible_outside() && !externally_used {
            (Disposition::Redirect { to }, Reason::AddressInsignificant)
        } else if self.options.aliases {
            (Disposition::Alias { to }, Reason::AddressInsignificant)
        } else {
            (Disposition::Keep, Reason::NoAlias)
        };
        self.plan.set_data(member, disposition, reason);
    }

    /// Gives the members of a class whose addresses do not matter the largest alignment of them.
    /// Members that are kept need it as well: functions that use two of them can merge, and then
    /// use either in place of the other.
    fn align(&mut self, alignments: &[Alignment]) {
        let Bucketed { partition, numbering, .. } = self.bucketed;
        for node in numbering.nodes() {
            let class = partition.class_of(node.index());
            let cache = self.found.get(class).copied().flatten().zip(self.cache);
            let cache = cache.map_or(1, |(class, cache)| cache.alignment(class));
            let alignment = alignments[class].bytes().max(cache);
            let item = numbering.item(node);
            let by_class = match item {
                Item::Function(function) => is_used_by_class(self.attributes(function)),
                Item::Data(data) => self.data_attributes(data).by_class(),
            };
            if by_class {
                self.plan.align(item, alignment);
            }
        }
    }

    /// The reason why a function must keep its symbol, if it must.
    fn must_keep_symbol(&self, function: FunctionIndex) -> Option<Reason> {
        let (symbol, attributes) = (self.plan.entry(function).symbol(), self.attributes(function));
        let uses = SymbolUses {
            address: attributes.address_taken || self.observed.address_taken(symbol),
            patchable: self.observed.patchable(symbol),
            ..SymbolUses::default()
        };
        must_keep_symbol(attributes, uses, ReplacedBy::Equal)
    }

    /// Decides for functions that are equal, given in the order of their symbols.
    fn functions(&mut self, members: &[FunctionIndex]) {
        let mut candidates = Vec::new();
        for &member in members {
            let entry = self.plan.entry(member);
            let attributes = entry.attributes();
            let reason = if attributes.pinned {
                Reason::Pinned
            } else if attributes.no_merge {
                Reason::NoMerge
            } else {
                candidates.push(member);
                Reason::EqualsNotMerged
            };
            self.plan.set_reason(Item::Function(member), reason);
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
        // The best representative is the member that would cost most otherwise, so that the others
        // can be eliminated; then by linkage. Among several it is the first, which is by symbol.
        let best = candidates
            .iter()
            .copied()
            .filter(|&member| self.attributes(member).linkage != Linkage::Preemptible)
            .min_by_key(|&member| {
                let linkage = self.attributes(member).linkage;
                (Reverse(self.need(member)), linkage)
            });
        match best {
            Some(representative) => {
                self.plan.set_reason(Item::Function(representative), Reason::Representative);
                for member in candidates {
                    if member != representative {
                        self.member(member, representative);
                    }
                }
            }
            None => self.all_preemptible(&candidates),
        }
    }

    /// The part of a function that must be kept if its body is not.
    fn need(&self, function: FunctionIndex) -> Need {
        let insignificant = self.attributes(function).addresses == Addresses::Insignificant;
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
        let addresses = self.attributes(member).addresses;
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
        self.plan.set(member, disposition, reason);
    }

    /// Whether a thunk takes fewer bytes than the body; `None` if there is no thunk.
    fn thunk_is_smaller(&mut self, function: FunctionIndex, to: FunctionIndex) -> Option<bool> {
        let node = self.bucketed.numbering.node(Item::Function(function));
        let Walked::Yes { instructions, shape: _ } = self.bucketed.walked(node) else {
            return Some(false);
        };
        if self.options.target.jump_thunk.is_some() {
            return Some(self.options.target.jump_is_smaller(instructions));
        }
        let thunk = self.call_thunk(function, to)?;
        let Some(model) = self.options.target.size_model else {
            return Some(false);
        };
        let mut scratch = size::Scratch::default();
        let thunk = model.predict_with(&thunk, &mut scratch)?;
        let body = model.at_least(self.bodies.as_mut()?.body(function), &mut scratch);
        Some(body.is_some_and(|body| body > thunk))
    }

    /// A function that calls `to`, where call thunks are allowed and are equivalent to a jump.
    fn call_thunk(&mut self, function: FunctionIndex, to: FunctionIndex) -> Option<Function> {
        let call_thunks = self.options.target.call_thunks?;
        let body = self.bodies.as_mut()?.body(function);
        // The function would observe the frame of the thunk.
        if observes_its_frame(body) || !self.options.target.has_call_thunk(&body.signature) {
            return None;
        }
        let signature = body.signature.clone();
        let [symbol, to] = [function, to].map(|function| self.plan.entry(function).symbol());
        let name = UserFuncName::User(symbol.clone());
        Some(call_thunk(name, &signature, &[], to, &call_thunks))
    }

    /// A thunk to a preemptible symbol would jump to the definition that takes the symbol, so no
    /// member can be the representative: a private copy takes the body, if that pays.
    fn all_preemptible(&mut self, members: &[FunctionIndex]) {
        for &member in members {
            self.plan.set_reason(Item::Function(member), Reason::AllPreemptible);
        }
        let (Some(thunk), Some(bodies)) = (self.options.target.jump_thunk, &mut self.bodies) else {
            return;
        };
        let target = self.options.target;
        let body = target.size_model.and_then(|model| {
            model.at_least(bodies.body(members[0]), &mut size::Scratch::default())
        });
        let body = u64::from(body.unwrap_or(target.smallest_function));
        let count = members.len() as u64;
        if count * body <= body + count * u64::from(thunk.size()) {
            return;
        }
        let Some(symbol) = bodies.fresh_symbol(members) else {
            return;
        };
        // The copy gets its index when it is known that no limit cuts into the class.
        let to = FunctionIndex::reserved_value();
        self.copies.push((symbol, members.to_vec()));
        for &member in members {
            self.plan.set(member, Disposition::Thunk { to }, Reason::Preemptible);
        }
    }

    /// Adds the private copies that are still wanted behind the functions of the unit.
    fn add_private_copies(&mut self) {
        for (symbol, members) in core::mem::take(&mut self.copies) {
            let kept = |&member: &FunctionIndex| {
                self.plan.entry(member).disposition() == Disposition::Keep
            };
            if members.iter().any(kept) {
                // The limit cut into the class. A private copy for the rest may not pay.
                for member in members {
                    self.plan.set(member, Disposition::Keep, Reason::MergeLimit);
                }
                continue;
            }
            let copied = members[0];
            let bodies = self.bodies.as_mut().expect("a copy was decided with them");
            let mut body = bodies.body(copied).clone();
            body.name = UserFuncName::User(symbol.clone());
            let entry = self.plan.entry(copied);
            let attributes = Attributes {
                linkage: Linkage::Local,
                addresses: Addresses::Insignificant,
                address_taken: false,
                ..*entry.attributes()
            };
            let (class, alignment) = (entry.class(), entry.alignment());
            let (reason, has_equals) = (Reason::Representative, true);
            let added = Added { symbol, attributes, reason, class, alignment, has_equals };
            let to = self.plan.add_body(added, body, Some(copied));
            for member in members {
                self.plan.retarget(member, to);
            }
        }
    }

    /// The numbered gate: every merge passes here, in the order of the merged symbols.
    fn limit(&mut self) {
        let Some(limit) = self.options.merge_limit else {
            return;
        };
        let functions = self.plan.entries();
        let functions = functions
            .filter(|(_, entry)| entry.disposition() != Disposition::Keep)
            .map(|(function, _)| Item::Function(function));
        let data = self.plan.data_entries();
        let data = data
            .filter(|(_, entry)| entry.disposition() != Disposition::Keep)
            .map(|(data, _)| Item::Data(data));
        let mut merges: Vec<Item> = functions.chain(data).collect();
        merges.sort_unstable_by_key(|&item| self.item_order(item));
        for &item in merges.iter().skip(limit as usize) {
            match item {
                Item::Function(function) => {
                    self.plan.set(function, Disposition::Keep, Reason::MergeLimit);
                }
                Item::Data(data) => {
                    self.plan.set_data(data, Disposition::Keep, Reason::MergeLimit);
                }
            }
        }
    }

    /// A representative into which nothing was merged only keeps its body.
    fn unused_representatives(&mut self) {
        let mut needed = alloc::vec![false; self.plan.entries().len()];
        for (_, entry) in self.plan.entries() {
            if let Some(to) = entry.disposition().representative() {
                needed[to.index()] = true;
            }
        }
        let mut needed_data = alloc::vec![false; self.plan.data_entries().len()];
        for (_, entry) in self.plan.data_entries() {
            if let Some(to) = entry.disposition().representative() {
                needed_data[to.index()] = true;
            }
        }
        let unused = |reason: Reason, needed: bool| reason == Reason::Representative && !needed;
        let functions = self.plan.entries();
        let functions = functions
            .filter(|(function, entry)| unused(entry.reason(), needed[function.index()]))
            .map(|(function, _)| Item::Function(function));
        let data = self.plan.data_entries();
        let data = data
            .filter(|(data, entry)| unused(entry.reason(), needed_data[data.index()]))
            .map(|(data, _)| Item::Data(data));
        let unused: Vec<Item> = functions.chain(data).collect();
        for item in unused {
            self.plan.set_reason(item, Reason::EqualsNotMerged);
        }
    }

    /// Gives every representative an alignment that fits all functions that it replaces.
    fn align_representatives(&mut self) {
        let entries = self.plan.entries().len();
        for index in 0..entries {
            let entry = self.plan.entry(FunctionIndex::new(index));
            let alignment = u64::from(entry.alignment());
            match entry.disposition() {
                Disposition::Redirect { to } | Disposition::Alias { to } => {
                    self.plan.align(Item::Function(to), alignment);
                }
                // A thunk has an address of its own.
                Disposition::Keep | Disposition::Thunk { to: _ } => {}
            }
        }
    }
}
