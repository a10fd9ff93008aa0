//! The encodings of one bucket: its functions and data objects, and their different encodings.
//!
//! It groups by equal encodings, and does not walk anything itself.

use crate::canon::{Encoding, StructuralHash};
use crate::unit::Node;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Ordering;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Encodings of one bucket that are kept at the same time, in bytes. Beyond it, only hashes are.
const KEPT_BYTES: usize = 4 << 20;

/// Encodings among which one is looked for without a table.
const FEW: usize = 8;

pub(super) struct BucketEncodings {
    /// See [`KEPT_BYTES`].
    budget: usize,
    rows: Vec<Row>,
    callees: Vec<Node>,
    firsts: Vec<First>,
    /// The first of `firsts` with each hash, if they are more than a few.
    by_hash: Option<HashTable<u32>>,
    /// All of `firsts` with each hash that two or more have.
    collisions: BTreeMap<u128, Ordered>,
    stored: Vec<Stored>,
    streams: Vec<u8>,
    /// The encoding of an item that is walked again.
    again: Encoding,
}

/// A member of the bucket.
struct Row {
    node: Node,
    /// Its encoding, in [`BucketEncodings::firsts`].
    first: u32,
    /// Where its references begin in [`BucketEncodings::callees`]. They end where those of the next
    /// row begin.
    callees: usize,
}

/// An encoding that equals none before it.
struct First {
    hash: StructuralHash,
    row: u32,
    /// Index into [`BucketEncodings::stored`]; `u32::MAX` if it is not kept.
    stored: u32,
}

/// Encodings with one hash, in their order: the author of a unit can make any number of hashes
/// collide.
#[derive(Default)]
struct Ordered {
    /// Numbers of encodings, ascending by encoding. No chunk is empty, and none is long, so that
    /// little has to be moved for a new one.
    chunks: Vec<Vec<u32>>,
}

/// The most numbers of a chunk.
const CHUNK: usize = 1024;

/// Where a new encoding goes among those with its hash.
#[derive(Clone, Copy, Default)]
struct Position {
    /// The first one that has the hash, if there is one.
    first: Option<u32>,
    chunk: usize,
    at: usize,
}

impl Ordered {
    /// Looks for an encoding. `compare` says how the one of a number is ordered relative to it; if
    /// there is an equal one, that is what it is called with last. O(log n) comparisons.
    fn find(&self, mut compare: impl FnMut(u32) -> Ordering) -> Result<u32, (usize, usize)> {
        let not_behind = |chunk: &Vec<u32>| compare(chunk[0]) != Ordering::Greater;
        let chunk = self.chunks.partition_point(not_behind).saturating_sub(1);
        let numbers = &self.chunks[chunk];
        let (mut low, mut high) = (0, numbers.len());
        while low < high {
            let middle = (low + high) / 2;
            match compare(numbers[middle]) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(numbers[middle]),
                Ordering::Greater => high = middle,
            }
        }
        Err((chunk, low))
    }

    fn insert(&mut self, chunk: usize, at: usize, number: u32) {
        let numbers = &mut self.chunks[chunk];
        numbers.insert(at, number);
        if numbers.len() > CHUNK {
            let behind = numbers.split_off(CHUNK / 2);
            self.chunks.insert(chunk + 1, behind);
        }
    }
}

/// Where an encoding is kept.
struct Stored {
    /// Where shape, constants and references begin, and where they end.
    streams: [usize; 4],
}

impl Default for BucketEncodings {
    fn default() -> Self {
        BucketEncodings {
            budget: KEPT_BYTES,
            rows: Vec::new(),
            callees: Vec::new(),
            firsts: Vec::new(),
            by_hash: None,
            collisions: BTreeMap::new(),
            stored: Vec::new(),
            streams: Vec::new(),
            again: Encoding::default(),
        }
    }
}

impl BucketEncodings {
    /// Makes it empty, and keeps its memory.
    pub fn clear(&mut self) {
        let BucketEncodings { rows, callees, firsts, by_hash, collisions, stored, streams, .. } =
            self;
        collisions.clear();
        rows.clear();
        callees.clear();
        firsts.clear();
        *by_hash = None;
        stored.clear();
        streams.clear();
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds an item, and returns whether its encoding equals none before it. `walk` writes the
    /// encoding of an item that was added before.
    pub fn push(
        &mut self,
        node: Node,
        hash: StructuralHash,
        encoding: &Encoding,
        walk: impl FnMut(Node, &mut Encoding),
    ) -> bool {
        let callees = self.callees.len();
        self.callees.extend_from_slice(&encoding.callees);
        let (first, is_new) = match self.find(hash, encoding, walk) {
            Ok(first) => (first, false),
            Err(position) => (self.push_first(hash, encoding, position), true),
        };
        self.rows.push(Row { node, first, callees });
        is_new
    }

    /// Adds the items of `other`, behind its own. Returns whether each encoding of `other` equals
    /// none before it. `walk` as for [`BucketEncodings::push`].
    pub fn append(
        &mut self,
        other: &BucketEncodings,
        mut walk: impl FnMut(Node, &mut Encoding),
    ) -> Vec<bool> {
        let mut encoding = Encoding::default();
        let mut is_new = Vec::with_capacity(other.firsts.len());
        let mut number: Vec<u32> = Vec::with_capacity(other.firsts.len());
        for (at, row) in other.rows.iter().enumerate() {
            let callees = self.callees.len();
            let (node, own_callees) = other.row(at as u32);
            self.callees.extend_from_slice(own_callees);
            if row.first as usize == number.len() {
                let First { hash, row: first, stored } = other.firsts[row.first as usize];
                debug_assert_eq!(first as usize, at, "rows are in the order of their encodings");
                match other.stored.get(stored as usize) {
                    Some(stored) => other.load(stored, &mut encoding),
                    None => walk(node, &mut encoding),
                }
                let known = self.find(hash, &encoding, &mut walk);
                is_new.push(known.is_err());
                number.push(match known {
                    Ok(first) => first,
                    Err(position) => self.push_first(hash, &encoding, position),
                });
            }
            let first = number[row.first as usize];
            self.rows.push(Row { node, first, callees });
        }
        is_new
    }

    /// Reads an encoding that is kept.
    fn load(&self, stored: &Stored, encoding: &mut Encoding) {
        encoding.clear();
        let [shape, constants, references] = key(&self.streams, stored);
        encoding.shape.extend_from_slice(shape);
        encoding.constants.extend_from_slice(constants);
        encoding.references.extend_from_slice(references);
    }

    /// The number of an equal encoding, or where a new one goes. Compares encodings with this hash
    /// only, O(log n) of n.
    fn find(
        &mut self,
        hash: StructuralHash,
        encoding: &Encoding,
        mut walk: impl FnMut(Node, &mut Encoding),
    ) -> Result<u32, Position> {
        let BucketEncodings { rows, firsts, by_hash, collisions, stored, streams, again, .. } =
            self;
        let has_hash = |number: u32| firsts[number as usize].hash == hash;
        let first = match by_hash {
            Some(by_hash) => by_hash.find(hash.0 as u64, |&number| has_hash(number)).copied(),
            None => (0..firsts.len() as u32).find(|&number| has_hash(number)),
        };
        let Some(first) = first else {
            return Err(Position::default());
        };
        let mut compare = |number: u32| {
            let First { row, stored: at, .. } = firsts[number as usize];
            match stored.get(at as usize) {
                Some(stored) => key(streams, stored).cmp(&encoding.key()),
                None => {
                    walk(rows[row as usize].node, again);
                    again.key().cmp(&encoding.key())
                }
            }
        };
        let found = match collisions.get(&hash.0) {
            Some(ordered) => ordered.find(compare),
            None => match compare(first) {
                Ordering::Less => Err((0, 1)),
                Ordering::Equal => Ok(first),
                Ordering::Greater => Err((0, 0)),
            },
        };
        found.map_err(|(chunk, at)| Position { first: Some(first), chunk, at })
    }

    /// Adds an encoding that equals none before it, where [`find`](BucketEncodings::find) says.
    fn push_first(&mut self, hash: StructuralHash, encoding: &Encoding, position: Position) -> u32 {
        let stored = match self.streams.len() < self.budget {
            true => self.store(encoding),
            false => u32::MAX,
        };
        let BucketEncodings { firsts, by_hash, collisions, .. } = self;
        let number = firsts.len() as u32;
        firsts.push(First { hash, row: self.rows.len() as u32, stored });
        let Position { first, chunk, at } = position;
        if let Some(first) = first {
            let new = || Ordered { chunks: alloc::vec![alloc::vec![first]] };
            collisions.entry(hash.0).or_insert_with(new).insert(chunk, at, number);
            return number;
        }
        let hash_of = |number: &u32| firsts[*number as usize].hash.0 as u64;
        if let Some(by_hash) = by_hash {
            by_hash.insert_unique(hash.0 as u64, number, hash_of);
        } else if firsts.len() > FEW {
            let table = by_hash.insert(HashTable::new());
            for number in 0..=number {
                let hash = firsts[number as usize].hash;
                if let Entry::Vacant(vacant) = table.entry(
                    hash.0 as u64,
                    |&first| firsts[first as usize].hash == hash,
                    hash_of,
                ) {
                    vacant.insert(number);
                }
            }
        }
        number
    }

    fn store(&mut self, encoding: &Encoding) -> u32 {
        let mut streams = [self.streams.len(); 4];
        for (bound, stream) in streams[1..].iter_mut().zip(encoding.key()) {
            self.streams.extend_from_slice(stream);
            *bound = self.streams.len();
        }
        self.stored.push(Stored { streams });
        self.stored.len() as u32 - 1
    }

    /// The rows, those of equal encodings next to each other and in the order in which they were
    /// added.
    pub fn by_encoding(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.rows.len() as u32).collect();
        order.sort_by_key(|&row| self.encoding_of(row));
        order
    }

    /// The number of the encoding of a row.
    pub fn encoding_of(&self, row: u32) -> u32 {
        self.rows[row as usize].first
    }

    /// The item of a row, and its references.
    pub fn row(&self, row: u32) -> (Node, &[Node]) {
        let row = row as usize;
        let Row { node, first: _, callees } = self.rows[row];
        let end = self.rows.get(row + 1).map_or(self.callees.len(), |next| next.callees);
        (node, &self.callees[callees..end])
    }
}

/// The streams of an encoding that is kept.
fn key<'a>(streams: &'a [u8], stored: &Stored) -> [&'a [u8]; 3] {
    let [shape, constants, references, end] = stored.streams;
    [&streams[shape..constants], &streams[constants..references], &streams[references..end]]
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ops::Range;
    use cranelift_entity::EntityRef;

    /// Encodings of contents, of which two each have one hash.
    fn encoding(content: u8) -> (StructuralHash, Encoding) {
        let mut encoding = Encoding::default();
        encoding.shape.extend([7, content]);
        encoding.callees.push(Node::new(content.into()));
        (StructuralHash((content / 2).into()), encoding)
    }

    /// With any budget the classes are equal: an encoding that is not kept is walked again.
    #[test]
    fn what_does_not_fit_is_walked_again() {
        arbtest::arbtest(|u| {
            let contents: Vec<u8> =
                (0..24).map(|_| u.int_in_range(0..=2)).collect::<Result<_, _>>()?;
            let budget = *u.choose(&[0, 1, 40, usize::MAX])?;
            let mut encodings = BucketEncodings { budget, ..BucketEncodings::default() };
            for (at, &content) in contents.iter().enumerate() {
                let (hash, own) = encoding(content);
                let walk = |node: Node, out: &mut Encoding| {
                    assert!(budget < usize::MAX, "walked again although it is kept");
                    *out = encoding(contents[node.index()]).1;
                };
                encodings.push(Node::new(at), hash, &own, walk);
            }
            let order = encodings.by_encoding();
            let classes =
                order.chunk_by(|&a, &b| encodings.encoding_of(a) == encodings.encoding_of(b));
            let mut seen = Vec::new();
            for class in classes {
                let content = contents[class[0] as usize];
                assert!(!seen.contains(&content), "one class of each content");
                seen.push(content);
                assert!(class.is_sorted(), "in the order in which they were added");
                for &row in class {
                    let (node, callees) = encodings.row(row);
                    assert_eq!(contents[node.index()], content);
                    assert_eq!(*callees, [Node::new(content.into())]);
                }
            }
            assert_eq!(order.len(), contents.len());
            Ok(())
        });
    }

    /// An author who makes hashes collide makes a function cost a binary search of comparisons, and
    /// a comparison is a walk where nothing is kept. It was one with each function of its hash.
    #[test]
    fn functions_whose_hashes_collide_take_a_logarithm_of_comparisons_each() {
        const COUNT: usize = 20_000;
        let of = |content: usize| {
            let mut encoding = Encoding::default();
            encoding.shape.extend((content as u32).to_be_bytes());
            // Four bits of a hash.
            (StructuralHash((content % 16) as u128), encoding)
        };
        let mut rng = 1_usize;
        let random = core::iter::repeat_with(|| {
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (rng >> 33) % COUNT
        });
        let orders: [Vec<usize>; 3] =
            [(0..COUNT).collect(), (0..COUNT).rev().collect(), random.take(COUNT).collect()];
        for contents in orders {
            let mut encodings = BucketEncodings { budget: 0, ..BucketEncodings::default() };
            let (mut walks, mut most) = (0, 0);
            for (at, &content) in contents.iter().enumerate() {
                let (hash, own) = of(content);
                let before = walks;
                let walk = |node: Node, out: &mut Encoding| {
                    walks += 1;
                    *out = of(contents[node.index()]).1;
                };
                encodings.push(Node::new(at), hash, &own, walk);
                most = most.max(walks - before);
            }
            let of_one_hash = (COUNT / 16).ilog2() as usize + 1;
            assert!(most <= of_one_hash + 2, "{most} comparisons of one function");
            assert!(walks <= COUNT * (of_one_hash + 2), "{walks} comparisons");
            let distinct: alloc::collections::BTreeSet<usize> = contents.iter().copied().collect();
            assert_eq!(encodings.firsts.len(), distinct.len());
            let is_right = |(at, &content): (usize, &usize)| {
                let first = encodings.firsts[encodings.encoding_of(at as u32) as usize].row;
                contents[first as usize] == content
            };
            assert!(contents.iter().enumerate().all(is_right));
        }
    }

    /// However items are divided into pieces, and whatever is kept of these, the classes are those
    /// of one piece.
    #[test]
    fn pieces_are_put_together() {
        arbtest::arbtest(|u| {
            let contents: Vec<u8> =
                (0..24).map(|_| u.int_in_range(0..=5)).collect::<Result<_, _>>()?;
            let walk = |node: Node, out: &mut Encoding| *out = encoding(contents[node.index()]).1;
            let piece = |range: Range<usize>, budget| {
                let mut encodings = BucketEncodings { budget, ..BucketEncodings::default() };
                for at in range {
                    let (hash, own) = encoding(contents[at]);
                    encodings.push(Node::new(at), hash, &own, walk);
                }
                encodings
            };
            let whole = piece(0..24, usize::MAX);
            let bounds = [0, u.int_in_range(0..=12)?, u.int_in_range(12..=24)?, 24];
            let mut put = BucketEncodings {
                budget: *u.choose(&[0, 40, usize::MAX])?,
                ..BucketEncodings::default()
            };
            for bounds in bounds.windows(2) {
                let budget = *u.choose(&[0, 1, 40, usize::MAX])?;
                let further = piece(bounds[0]..bounds[1], budget);
                let before = put.firsts.len();
                let is_new = put.append(&further, walk);
                assert_eq!(
                    before + is_new.iter().filter(|&&is_new| is_new).count(),
                    put.firsts.len()
                );
            }
            assert_eq!(put.by_encoding(), whole.by_encoding());
            for row in 0..24 {
                assert_eq!(put.encoding_of(row), whole.encoding_of(row));
                assert_eq!(put.row(row), whole.row(row));
            }
            Ok(())
        });
    }
}
