//! Lists of facts, each kept once: many functions have the same.

use crate::canon::Fact;
use crate::interner::Interner;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Index;
use cranelift_entity::entity_impl;

/// A list of facts in [`Facts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FactsIndex(u32);
entity_impl!(FactsIndex);

/// Lists of facts by index.
#[derive(Default)]
pub(crate) struct Facts(Interner<Box<[Fact]>>);

impl Facts {
    /// The index of a list.
    pub fn intern(&mut self, facts: &[Fact]) -> FactsIndex {
        FactsIndex(self.0.number(facts, Box::from))
    }

    /// The indices of the lists of `other`, in their order.
    pub fn intern_all(&mut self, other: &Facts) -> Vec<FactsIndex> {
        (0..other.0.len() as u32).map(|number| self.intern(other.0.value(number))).collect()
    }
}

impl Index<FactsIndex> for Facts {
    type Output = [Fact];

    fn index(&self, index: FactsIndex) -> &[Fact] {
        self.0.value(index.0)
    }
}
