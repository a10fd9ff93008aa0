//! Lists of facts, each kept once: many functions have the same.

use crate::canon::Fact;
use alloc::boxed::Box;
use core::hash::BuildHasher;
use core::ops::Index;
use cranelift_entity::{EntityRef, PrimaryMap, entity_impl};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::FxBuildHasher;

/// A list of facts in [`Facts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FactsIndex(u32);
entity_impl!(FactsIndex);

/// Lists of facts by index.
#[derive(Default)]
pub(crate) struct Facts {
    lists: PrimaryMap<FactsIndex, Box<[Fact]>>,
    by_content: HashTable<FactsIndex>,
}

impl Facts {
    pub fn intern(&mut self, facts: &[Fact]) -> FactsIndex {
        let Facts { lists, by_content } = self;
        let hash = |facts: &[Fact]| FxBuildHasher.hash_one(facts);
        let entry = by_content.entry(
            hash(facts),
            |&index| *lists[index] == *facts,
            |&index| hash(&lists[index]),
        );
        match entry {
            Entry::Occupied(slot) => *slot.get(),
            Entry::Vacant(slot) => {
                let index = FactsIndex::new(lists.len());
                slot.insert(index);
                lists.push(facts.into())
            }
        }
    }
}

impl Index<FactsIndex> for Facts {
    type Output = [Fact];

    fn index(&self, index: FactsIndex) -> &[Fact] {
        &self.lists[index]
    }
}
