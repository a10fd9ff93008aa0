//! Decisions that involve other units: merging into what earlier units emitted, and what later units may merge
//! into.

use super::{Decision, is_used_by_class};
use crate::bucket::Bucketed;
use crate::data::{DataAttributes, DataIndex};
use crate::incremental::{Body, Graph, Record, Remembered, RememberedBody};
use crate::options::Linkage;
use crate::plan::{DataEntry, Disposition, Entry, PrivateCopy};
use crate::remarks::Reason;
use crate::unit::{FunctionIndex, Item, resolved};
use alloc::vec::Vec;
use cranelift_entity::EntityRef;

impl Decision<'_> {
    /// The emitted body that may replace an item: it is of the item's class, and its facts allow it.
    ///
    /// It is aligned to `alignment`. If the item's address is used by class, it is also aligned to what code relies
    /// on that takes the address of any member, because one such use may replace another.
    fn cached_body(&self, item: Item, alignment: u64, by_class: bool) -> Option<&Body> {
        let node = self.bucketed.numbering.node(item);
        let class = (*self.found.get(self.bucketed.partition.class_of(node.index()))?)?;
        let facts = &self.bucketed.facts[self.bucketed.facts_of[node]? as usize];
        let cache = self.cache?;
        let alignment = match by_class {
            true => alignment.max(cache.alignment(class)),
            false => alignment,
        };
        cache.body(class, facts, alignment)
    }

    /// The entry of a data object that an earlier unit emitted and that equals `data`.
    pub(super) fn cached_data(&mut self, data: DataIndex) -> Option<DataIndex> {
        let item = Item::Data(data);
        let DataAttributes { alignment, .. } = self.data[data].attributes;
        let by_class = self.data[data].attributes.by_class();
        let Body { symbol, alignment, .. } = self.cached_body(item, alignment, by_class)?;
        let (symbol, alignment) = (symbol.clone(), *alignment);
        let entry = &self.data[data];
        let entry = DataEntry {
            symbol: symbol.clone(),
            alignment,
            disposition: Disposition::Keep,
            reason: Reason::Representative,
            ..entry.clone()
        };
        let added = self.added_data.entry((symbol.namespace, symbol.index));
        Some(*added.or_insert_with(|| self.data.push(entry)))
    }

    /// The entry of a function that an earlier unit emitted and that equals `function`.
    pub(super) fn cached_function(&mut self, function: FunctionIndex) -> Option<FunctionIndex> {
        let item = Item::Function(function);
        let attributes = &self.entries[function].attributes;
        let (alignment, by_class) = (u64::from(attributes.alignment), is_used_by_class(attributes));
        let Body { symbol, alignment, .. } = self.cached_body(item, alignment, by_class)?;
        let (symbol, alignment) = (symbol.clone(), *alignment);
        let entry = Entry {
            symbol: symbol.clone(),
            alignment: u32::try_from(alignment).unwrap_or(u32::MAX),
            disposition: Disposition::Keep,
            reason: Reason::Representative,
            ..self.entries[function].clone()
        };
        let added = self.added_functions.entry((symbol.namespace, symbol.index));
        Some(*added.or_insert_with(|| self.entries.push(entry)))
    }

    /// What later units may merge into.
    pub(super) fn record(&self, graph: &Graph<'_>, copies: &[PrivateCopy]) -> Record {
        let Bucketed { numbering, facts_of, facts, .. } = self.bucketed;
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
        let own = items.iter().filter(|&&item| self.is_referred_to(item)).map(|&item| (item, item));
        let copies =
            copies.iter().map(|copy| (Item::Function(copy.function), Item::Function(copy.body_of)));
        let bodies = own.chain(copies).filter_map(|(item, body_of)| {
            let node = numbering.node(body_of);
            let facts = &facts[facts_of[node]? as usize];
            let (alignment, facts) = match item {
                Item::Function(function) => {
                    let Entry { attributes, alignment, weakened, .. } = &self.entries[function];
                    let alignment = (!attributes.pinned).then_some(u64::from(*alignment));
                    (alignment, weakened.as_ref().unwrap_or(facts))
                }
                Item::Data(data) => (Some(self.data[data].alignment), facts),
            };
            Some(RememberedBody { symbol: self.symbol(item), node, alignment, facts })
        });
        Record::new(graph, self.found, symbols, bodies)
    }

    /// Whether a function or data object is emitted and references to equal ones may reach it.
    fn is_referred_to(&self, item: Item) -> bool {
        match item {
            Item::Function(function) => {
                let Entry { attributes, disposition, .. } = &self.entries[function];
                *disposition == Disposition::Keep
                    && attributes.linkage != Linkage::Preemptible
                    && !attributes.no_merge
            }
            Item::Data(data) => {
                let DataEntry { attributes, disposition, .. } = &self.data[data];
                *disposition == Disposition::Keep && !attributes.pinned
            }
        }
    }
}
