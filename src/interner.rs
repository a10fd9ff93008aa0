//! Numbers for values: each different one is kept once.

use alloc::vec::Vec;
use core::borrow::Borrow;
use core::hash::{BuildHasher, Hash};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::FxBuildHasher;

/// Values by number, in the order in which they were first seen. Five bytes a slot besides the
/// values.
#[derive(Clone, Debug)]
pub(crate) struct Interner<T> {
    values: Vec<T>,
    numbers: HashTable<u32>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Interner { values: Vec::new(), numbers: HashTable::new() }
    }
}

impl<T> Interner<T> {
    /// The number of a value. `own` makes the value that is kept, if it is new.
    pub fn number<'a, Q: Eq + Hash + ?Sized>(
        &mut self,
        value: &'a Q,
        own: impl FnOnce(&'a Q) -> T,
    ) -> u32
    where
        T: Borrow<Q>,
    {
        let Interner { values, numbers } = self;
        let hash = |value: &Q| FxBuildHasher.hash_one(value);
        let entry = numbers.entry(
            hash(value),
            |&number| values[number as usize].borrow() == value,
            |&number| hash(values[number as usize].borrow()),
        );
        match entry {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(slot) => {
                let number = values.len() as u32;
                slot.insert(number);
                values.push(own(value));
                number
            }
        }
    }

    /// The number of a value, if it has one.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, value: &Q) -> Option<u32>
    where
        T: Borrow<Q>,
    {
        let hash = FxBuildHasher.hash_one(value);
        self.numbers.find(hash, |&number| self.values[number as usize].borrow() == value).copied()
    }

    /// Takes all values out, in the order of their numbers. Their memory is kept.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.numbers.clear();
        self.values.drain(..)
    }

    /// The memory that is held, in bytes.
    pub fn size(&self) -> usize {
        self.values.len() * size_of::<T>() + self.numbers.allocation_size()
    }

    /// How many different values there are: the number of the next one.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// The value of a number.
    pub fn value(&self, number: u32) -> &T {
        &self.values[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;

    #[test]
    fn equal_values_have_one_number() {
        let mut interner: Interner<Box<[u8]>> = Interner::default();
        let values: [&[u8]; 5] = [b"a", b"", b"a", b"ab", b""];
        let numbers = values.map(|value| interner.number(value, Box::from));
        assert_eq!(numbers, [0, 1, 0, 2, 1]);
        assert_eq!(**interner.value(2), *b"ab");
        assert_eq!(interner.drain().map(|value| value.len()).collect::<Vec<_>>(), [1, 0, 2]);
        assert_eq!((interner.len(), interner.number(&b"ab"[..], Box::from)), (0, 0));
    }
}
