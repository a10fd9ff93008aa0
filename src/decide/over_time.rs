//! Decisions that reach beyond the unit: merging into what was emitted before, and what later units
//! may be merged into.

use super::Decision;
use crate::classify::Classified;
use crate::data::DataIndex;
use crate::emitted::{Graph, Record, Remembered, RememberedBody};
use crate::options::Linkage;
use crate::plan::{DataEntry, Disposition, Entry, SharedBody};
use crate::remarks::Reason;
use crate::unit::{FunctionIndex, Item, resolved};
use alloc::vec::Vec;
use cranelift_codegen::ir::UserExternalName;
use cranelift_entity::EntityRef;

impl Decision<'_> {
    /// What was emitted before of the class of a node, and its promises allow to take its place.
    fn emitted_body(&self, item: Item, alignment: u64) -> Option<UserExternalName> {
        let node = self.classified.numbering.node(item);
        let class = *self.found.get(self.classified.partition.class_of(node.index()))?;
        let facts = &self.classified.facts[self.classified.facts_of[node]? as usize];
        let body = self.emitted?.body(class?, facts, alignment)?;
        Some(body.symbol.clone())
    }

    /// The entry of a data object that was emitted before and equals `data`.
    pub(super) fn emitted_data(&mut self, data: DataIndex) -> Option<DataIndex> {
        let item = Item::Data(data);
        let symbol = self.emitted_body(item, self.data[data].attributes.alignment)?;
        let entry = &self.data[data];
        let entry = DataEntry {
            symbol: symbol.clone(),
            disposition: Disposition::Keep,
            reason: Reason::Representative,
            ..entry.clone()
        };
        let added = self.added_data.entry((symbol.namespace, symbol.index));
        Some(*added.or_insert_with(|| self.data.push(entry)))
    }

    /// The entry of a function that was emitted before and equals `function`.
    pub(super) fn emitted_function(&mut self, function: FunctionIndex) -> Option<FunctionIndex> {
        let item = Item::Function(function);
        let alignment = u64::from(self.entries[function].attributes.alignment);
        let symbol = self.emitted_body(item, alignment)?;
        let entry = Entry {
            symbol: symbol.clone(),
            disposition: Disposition::Keep,
            reason: Reason::Representative,
            ..self.entries[function].clone()
        };
        let added = self.added_functions.entry((symbol.namespace, symbol.index));
        Some(*added.or_insert_with(|| self.entries.push(entry)))
    }

    /// What later units may be merged into.
    pub(super) fn record(&self, graph: &Graph<'_>, shared: &[SharedBody]) -> Record {
        let Classified { numbering, facts_of, facts, .. } = self.classified;
        let mut items: Vec<Item> = numbering.nodes().map(|node| numbering.item(node)).collect();
        items.sort_unstable_by_key(|&item| self.item_order(item));
        let symbols = items.iter().map(|&item| {
            let node = numbering.node(item);
            let (calls, addresses) = match item {
                Item::Function(function) => {
                    let resolved = resolved(node, &self.entries[function].attributes);
                    (resolved.call.is_some(), resolved.address.is_some())
                }
                Item::Data(data) => (false, self.data[data].attributes.by_class()),
            };
            Remembered { symbol: self.symbol(item), node, calls, addresses }
        });
        let own =
            items.iter().filter(|&&item| self.stands_for_others(item)).map(|&item| (item, item));
        let shared = shared
            .iter()
            .map(|shared| (Item::Function(shared.function), Item::Function(shared.body_of)));
        let bodies = own.chain(shared).filter_map(|(item, body_of)| {
            let node = numbering.node(body_of);
            let facts = &facts[facts_of[node]? as usize];
            let (alignment, promises) = match item {
                Item::Function(function) => {
                    let Entry { alignment, weakened, .. } = &self.entries[function];
                    (u64::from(*alignment), weakened.as_ref().unwrap_or(facts))
                }
                Item::Data(data) => (self.data[data].alignment, facts),
            };
            Some(RememberedBody { symbol: self.symbol(item), node, alignment, promises })
        });
        Record::new(graph, self.found, symbols, bodies)
    }

    /// Whether a function or data object is emitted and later ones can be merged into it.
    fn stands_for_others(&self, item: Item) -> bool {
        match item {
            Item::Function(function) => {
                let Entry { attributes, disposition, .. } = &self.entries[function];
                *disposition == Disposition::Keep
                    && attributes.linkage != Linkage::Preemptible
                    && !attributes.pinned
                    && !attributes.no_merge
            }
            Item::Data(data) => {
                let DataEntry { attributes, disposition, .. } = &self.data[data];
                *disposition == Disposition::Keep && !attributes.pinned
            }
        }
    }
}
