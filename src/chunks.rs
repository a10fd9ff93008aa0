//! A growing list in pieces: it never moves what it holds, and has little spare room.
//!
//! A `Vec` doubles, so that half of it may be spare and all of it is copied now and then. This has less than one
//! chunk to spare. Reading an item takes one more access, to a table of chunks that is small enough for every cache.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// The number of items of a chunk.
const CHUNK: usize = 1 << 12;

/// Items by number, in the order in which they were added.
#[derive(Clone, Debug)]
pub(crate) struct Chunks<T> {
    /// All chunks but the last one are full. The first grows as a `Vec` does, so that a short list takes little.
    chunks: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Chunks { chunks: Vec::new(), len: 0 }
    }
}

impl<T> Chunks<T> {
    /// Appends an item, and returns its number.
    pub fn push(&mut self, item: T) -> usize {
        let number = self.len;
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(item),
            before => {
                let mut chunk = match before {
                    None => Vec::new(),
                    Some(_) => Vec::with_capacity(CHUNK),
                };
                chunk.push(item);
                self.chunks.push(chunk);
            }
        }
        self.len += 1;
        number
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// All items.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }
}

impl<T> Index<usize> for Chunks<T> {
    type Output = T;

    fn index(&self, number: usize) -> &T {
        &self.chunks[number / CHUNK][number % CHUNK]
    }
}

impl<T> IndexMut<usize> for Chunks<T> {
    fn index_mut(&mut self, number: usize) -> &mut T {
        &mut self.chunks[number / CHUNK][number % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_have_their_numbers() {
        let mut chunks = Chunks::default();
        let count = 2 * CHUNK + 1;
        for number in 0..count {
            assert_eq!(chunks.push(number), number);
        }
        chunks[CHUNK] = 7;
        assert_eq!((chunks.len(), chunks[CHUNK - 1], chunks[CHUNK]), (count, CHUNK - 1, 7));
        assert!(chunks.iter().enumerate().all(|(at, &item)| item == chunks[at]));
    }
}
