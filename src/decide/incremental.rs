//! Decisions that involve other units: merging into what earlier units emitted, and what later
//! units may merge into.

use super::{Decision, is_used_by_class};
use crate::congruence::Bucketed;
use crate::incremental::{Body, Graph, Record};
use crate::plan::{Added, AddedData, Disposition, Reason};
use crate::unit::{
    DataAttributes, DataIndex, FunctionIndex, Item, Linkage, resolved, resolved_data,
};
use alloc::vec::Vec;
use cranelift_entity::EntityRef;

impl Decision<'_> {
    /// The emitted body that may replace an item: it is of the item's class.
    ///
    /// It is aligned to `alignment`. If the item's address is used by class, it is also aligned to
    /// what code relies on that takes the address of any member, because one such use may replace
    /// another.
    fn cached_body(&self, item: Item, alignment: u64, by_class: bool) -> Option<&Body> {
        let node = self.bucketed.numbering.node(item);
        let class = (*self.found.get(self.bucketed.partition.class_of(node.index()))?)?;
        let cache = self.cache?;
        let alignment = match by_class {
            true => alignment.max(cache.alignment(class)),
            false => alignment,
        };
        cache.body(class, alignment)
    }

    /// The entry of a data object that an earlier unit emitted and that equals `data`.
    pub(super) fn cached_data(&mut self, data: DataIndex) -> Option<DataIndex> {
        let item = Item::Data(data);
        let DataAttributes { alignment, .. } = self.data_attributes(data);
        let by_class = self.data_attributes(data).by_class();
        let Body { symbol, alignment, .. } = self.cached_body(item, alignment, by_class)?;
        let (symbol, alignment) = (symbol.clone(), *alignment);
        let like = self.plan.data_entry(data).clone();
        let (class, reason) = (like.class(), Reason::Representative);
        let added = self.added_data.entry((symbol.namespace, symbol.index));
        let new = AddedData { symbol, like, reason, class, alignment };
        Some(*added.or_insert_with(|| self.plan.add_data(new)))
    }

    /// The entry of a function that an earlier unit emitted and that equals `function`.
    pub(super) fn cached_function(&mut self, function: FunctionIndex) -> Option<FunctionIndex> {
        let item = Item::Function(function);
        let attributes = *self.attributes(function);
        let alignment = u64::from(attributes.alignment);
        let by_class = is_used_by_class(&attributes);
        let Body { symbol, alignment, .. } = self.cached_body(item, alignment, by_class)?;
        let (symbol, alignment) = (symbol.clone(), u32::try_from(*alignment).unwrap_or(u32::MAX));
        let (class, has_equals) = (self.plan.entry(function).class(), true);
        let reason = Reason::Representative;
        let added = self.added_functions.entry((symbol.namespace, symbol.index));
        let new = Added { symbol, attributes, reason, class, alignment, has_equals };
        Some(*added.or_insert_with(|| self.plan.add(new)))
    }

    /// The classes into which later units may merge.
    pub(super) fn record(&self, graph: &Graph<'_>) -> Record {
        let Bucketed { numbering, partition, .. } = self.bucketed;
        let mut record = Record::new(graph, self.found);
        let class = |item| partition.class_of(numbering.node(item).index());
        let mut items: Vec<Item> = numbering.nodes().map(|node| numbering.item(node)).collect();
        items.sort_unstable_by_key(|&item| self.item_order(item));
        for &item in &items {
            let node = numbering.node(item);
            let resolved = match item {
                Item::Function(function) => resolved(node, self.attributes(function)),
                Item::Data(data) => resolved_data(node, &self.data_attributes(data)),
            };
            record.add_symbol(class(item), self.symbol(item), resolved);
        }
        let own = items.iter().filter(|&&item| self.is_referred_to(item)).map(|&item| (item, item));
        let copies = self.plan.new_bodies().iter().filter_map(|new| {
            Some((Item::Function(new.function()), Item::Function(new.copy_of()?)))
        });
        for (item, body_of) in own.chain(copies) {
            let alignment = match item {
                Item::Function(function) => match self.plan.entry(function) {
                    entry if entry.attributes().pinned => 0,
                    entry => entry.alignment().into(),
                },
                Item::Data(data) => self.plan.data_entry(data).alignment(),
            };
            record.add_body(class(body_of), Body { symbol: self.symbol(item).clone(), alignment });
        }
        record
    }

    /// Whether a function or data object is emitted and references to equal ones may reach it.
    fn is_referred_to(&self, item: Item) -> bool {
        match item {
            Item::Function(function) => {
                let entry = self.plan.entry(function);
                entry.disposition() == Disposition::Keep
                    && entry.attributes().linkage != Linkage::Preemptible
                    && !entry.attributes().no_merge
            }
            Item::Data(data) => {
                let entry = self.plan.data_entry(data);
                entry.disposition() == Disposition::Keep && !entry.attributes().pinned
            }
        }
    }
}
