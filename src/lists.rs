//! Lists of small things, all in one piece of memory: targets of references, members of components.
//!
//! A `Vec` of `Vec`s takes 24 bytes for each list and an allocation for most; this takes four
//! bytes.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

/// Lists by number, in the order in which they were added. Panics where they would have 2^32 items
/// in all, which take 16 GB at least.
#[derive(Clone)]
pub(crate) struct Lists<T> {
    /// Where each list begins in `items`, and where the last one ends.
    starts: Vec<u32>,
    items: Vec<T>,
}

impl<T> Default for Lists<T> {
    fn default() -> Self {
        Lists::new()
    }
}

impl<T> Lists<T> {
    /// No lists.
    pub fn new() -> Self {
        Lists { starts: alloc::vec![0], items: Vec::new() }
    }

    /// Appends a list.
    pub fn push(&mut self, list: impl IntoIterator<Item = T>) {
        self.items.extend(list);
        self.starts.push(start(self.items.len()));
    }

    /// The number of lists.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// A list.
    pub fn of(&self, list: usize) -> &[T] {
        &self.items[self.range(list)]
    }

    /// A list; an empty one if there are fewer.
    pub fn get(&self, list: usize) -> &[T] {
        if list < self.len() { self.of(list) } else { &[] }
    }

    fn range(&self, list: usize) -> Range<usize> {
        self.starts[list] as usize..self.starts[list + 1] as usize
    }

    /// All lists.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[T]> {
        (0..self.len()).map(|list| self.of(list))
    }
}

impl<T: Copy + Default> Lists<T> {
    /// `count` lists of the items that are given with the number of their list, in that order. The
    /// items are visited twice.
    pub fn of_pairs<I: Iterator<Item = (usize, T)>>(count: usize, pairs: impl Fn() -> I) -> Self {
        let mut starts: Vec<u32> = alloc::vec![0; count + 1];
        let mut items = 0;
        for (list, _) in pairs() {
            starts[list + 1] += 1;
            items += 1;
        }
        let mut items = alloc::vec![T::default(); start(items) as usize];
        for list in 0..count {
            starts[list + 1] += starts[list];
        }
        // Where the next item goes is where the list will end.
        for (list, item) in pairs() {
            items[starts[list] as usize] = item;
            starts[list] += 1;
        }
        starts.rotate_right(1);
        starts[0] = 0;
        Lists { starts, items }
    }
}

fn start(items: usize) -> u32 {
    u32::try_from(items).expect("fewer than 2^32 items")
}

impl<T: fmt::Debug> fmt::Debug for Lists<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_keep_their_order_within_a_list() {
        let pairs = [(2, 'a'), (0, 'b'), (2, 'c'), (4, 'd'), (0, 'e')];
        let lists = Lists::of_pairs(6, || pairs.into_iter());
        let expected: [&[char]; 6] = [&['b', 'e'], &[], &['a', 'c'], &[], &['d'], &[]];
        assert!(lists.iter().eq(expected));
        assert_eq!(Lists::<char>::of_pairs(0, || [].into_iter()).len(), 0);
    }
}
