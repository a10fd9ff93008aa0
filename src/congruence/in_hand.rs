//! The bucket in hand: its functions and data objects, and their different encodings.
//!
//! It groups by equal encodings, and does not walk anything itself.

use super::facts::{Facts, FactsIndex};
use crate::canon::{Encoding, Fact, StructuralHash};
use crate::unit::Node;
use alloc::vec::Vec;
use core::ops::Range;
use cranelift_entity::packed_option::PackedOption;
use hashbrown::HashTable;

/// Encodings of one bucket that are kept at the same time, in bytes. Beyond it, only hashes are.
const KEPT_BYTES: usize = 4 << 20;

/// Encodings among which one is looked for without a table.
const FEW: usize = 8;

pub(super) struct InHand {
    /// See [`KEPT_BYTES`].
    budget: usize,
    rows: Vec<Row>,
    callees: Vec<Node>,
    firsts: Vec<First>,
    /// `firsts` by hash, if they are more than a few.
    by_hash: Option<HashTable<u32>>,
    stored: Vec<Stored>,
    streams: Vec<u8>,
    facts: Vec<Fact>,
    /// The encoding of an item that is walked again.
    again: Encoding,
}

/// A member of the bucket.
struct Row {
    node: Node,
    /// Its encoding, in [`InHand::firsts`].
    first: u32,
    /// Where its references begin in [`InHand::callees`]. They end where those of the next row begin.
    callees: usize,
    /// Its facts, if its encoding is that of another row as well.
    facts: PackedOption<FactsIndex>,
}

/// An encoding that equals none before it.
struct First {
    hash: StructuralHash,
    row: u32,
    /// Index into [`InHand::stored`]; `u32::MAX` if it is not kept.
    stored: u32,
}

/// Where an encoding is kept.
struct Stored {
    /// Where shape, constants and references begin, and where they end.
    streams: [usize; 4],
    facts: Range<usize>,
}

impl Default for InHand {
    fn default() -> Self {
        InHand {
            budget: KEPT_BYTES,
            rows: Vec::new(),
            callees: Vec::new(),
            firsts: Vec::new(),
            by_hash: None,
            stored: Vec::new(),
            streams: Vec::new(),
            facts: Vec::new(),
            again: Encoding::default(),
        }
    }
}

impl InHand {
    /// Makes it empty, and keeps its memory.
    pub fn clear(&mut self) {
        let InHand { rows, callees, firsts, by_hash, stored, streams, facts, .. } = self;
        rows.clear();
        callees.clear();
        firsts.clear();
        *by_hash = None;
        stored.clear();
        streams.clear();
        facts.clear();
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds an item, and returns whether its encoding equals none before it. `walk` writes the encoding of an item that
    /// was added before.
    pub fn push(
        &mut self,
        node: Node,
        hash: StructuralHash,
        encoding: &Encoding,
        table: &mut Facts,
        walk: impl FnMut(Node, &mut Encoding),
    ) -> bool {
        let callees = self.callees.len();
        self.callees.extend_from_slice(&encoding.callees);
        let (first, facts) = match self.find(hash, encoding, walk) {
            Some(first) => {
                self.intern_facts(first, table);
                (first, Some(table.intern(&encoding.facts)))
            }
            None => (self.push_first(hash, encoding), None),
        };
        self.rows.push(Row { node, first, callees, facts: facts.into() });
        facts.is_none()
    }

    /// Adds the items of `other`, behind its own. `facts` has the number in `table` of each list of facts of `other`.
    /// Returns whether each encoding of `other` equals none before it. `walk` as for [`InHand::push`].
    pub fn append(
        &mut self,
        other: &InHand,
        facts: &[FactsIndex],
        table: &mut Facts,
        mut walk: impl FnMut(Node, &mut Encoding),
    ) -> Vec<bool> {
        let mut encoding = Encoding::default();
        let mut is_new = Vec::with_capacity(other.firsts.len());
        let mut number: Vec<u32> = Vec::with_capacity(other.firsts.len());
        let in_table = |row: &Row| row.facts.expand().map(|own| facts[own.as_u32() as usize]);
        for (at, row) in other.rows.iter().enumerate() {
            let callees = self.callees.len();
            let (node, own_callees, _) = other.row(at as u32);
            self.callees.extend_from_slice(own_callees);
            let mut own = in_table(row);
            if row.first as usize == number.len() {
                let First { hash, row: first, stored } = other.firsts[row.first as usize];
                debug_assert_eq!(first as usize, at, "rows are in the order of their encodings");
                match other.stored.get(stored as usize) {
                    Some(stored) => other.load(stored, &mut encoding),
                    None => walk(node, &mut encoding),
                }
                let known = self.find(hash, &encoding, &mut walk);
                is_new.push(known.is_none());
                number.push(match known {
                    Some(first) => {
                        self.intern_facts(first, table);
                        own = own.or_else(|| Some(table.intern(&encoding.facts)));
                        first
                    }
                    None => self.push_first(hash, &encoding),
                });
            }
            let first = number[row.first as usize];
            self.rows.push(Row { node, first, callees, facts: own.into() });
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
        encoding.facts.extend_from_slice(&self.facts[stored.facts.clone()]);
    }

    /// Gives the row that was added last its facts, although no other row has its encoding.
    pub fn set_facts(&mut self, facts: FactsIndex) {
        self.rows.last_mut().expect("a row was added").facts = facts.into();
    }

    /// The number of an equal encoding.
    fn find(
        &mut self,
        hash: StructuralHash,
        encoding: &Encoding,
        mut walk: impl FnMut(Node, &mut Encoding),
    ) -> Option<u32> {
        let InHand { rows, firsts, by_hash, stored, streams, again, .. } = self;
        let mut is_equal = |number: &u32| {
            let first = &firsts[*number as usize];
            first.hash == hash
                && match stored.get(first.stored as usize) {
                    Some(stored) => key(streams, stored) == encoding.key(),
                    None => {
                        walk(rows[first.row as usize].node, again);
                        again.key() == encoding.key()
                    }
                }
        };
        match by_hash {
            Some(by_hash) => by_hash.find(hash.0 as u64, is_equal).copied(),
            None => (0..firsts.len() as u32).find(|number| is_equal(number)),
        }
    }

    /// Keeps the facts of the first item of an encoding, of which a second was just found.
    fn intern_facts(&mut self, first: u32, table: &mut Facts) {
        let First { row, stored, .. } = self.firsts[first as usize];
        let own = match self.stored.get(stored as usize) {
            Some(stored) => &self.facts[stored.facts.clone()],
            None => &self.again.facts,
        };
        let facts = &mut self.rows[row as usize].facts;
        if facts.is_none() {
            *facts = table.intern(own).into();
        }
    }

    fn push_first(&mut self, hash: StructuralHash, encoding: &Encoding) -> u32 {
        let stored = match self.streams.len() + size_of_val(&*self.facts) < self.budget {
            true => self.store(encoding),
            false => u32::MAX,
        };
        let InHand { firsts, by_hash, .. } = self;
        let number = firsts.len() as u32;
        firsts.push(First { hash, row: self.rows.len() as u32, stored });
        let hash_of = |number: &u32| firsts[*number as usize].hash.0 as u64;
        if let Some(by_hash) = by_hash {
            by_hash.insert_unique(hash.0 as u64, number, hash_of);
        } else if firsts.len() > FEW {
            let table = by_hash.insert(HashTable::new());
            for number in 0..=number {
                table.insert_unique(hash_of(&number), number, hash_of);
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
        let facts = self.facts.len()..self.facts.len() + encoding.facts.len();
        self.facts.extend_from_slice(&encoding.facts);
        self.stored.push(Stored { streams, facts });
        self.stored.len() as u32 - 1
    }

    /// The rows, those of equal encodings next to each other and in the order in which they were added.
    pub fn by_encoding(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.rows.len() as u32).collect();
        order.sort_by_key(|&row| self.encoding_of(row));
        order
    }

    /// The number of the encoding of a row.
    pub fn encoding_of(&self, row: u32) -> u32 {
        self.rows[row as usize].first
    }

    /// The item of a row, its references, and its facts, if some other row has the same encoding.
    pub fn row(&self, row: u32) -> (Node, &[Node], Option<FactsIndex>) {
        let row = row as usize;
        let Row { node, first: _, callees, facts } = self.rows[row];
        let end = self.rows.get(row + 1).map_or(self.callees.len(), |next| next.callees);
        (node, &self.callees[callees..end], facts.expand())
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
    use cranelift_entity::EntityRef;

    /// Encodings of contents, of which two each have one hash.
    fn encoding(content: u8) -> (StructuralHash, Encoding) {
        let mut encoding = Encoding::default();
        encoding.shape.extend([7, content]);
        encoding.callees.push(Node::new(content.into()));
        encoding.facts.push(Fact::Block { cold: content == 2 });
        (StructuralHash((content / 2).into()), encoding)
    }

    /// With any budget the classes are the same: what is not kept is walked again.
    #[test]
    fn what_does_not_fit_is_walked_again() {
        arbtest::arbtest(|u| {
            let contents: Vec<u8> =
                (0..24).map(|_| u.int_in_range(0..=2)).collect::<Result<_, _>>()?;
            let budget = *u.choose(&[0, 1, 40, usize::MAX])?;
            let (mut in_hand, mut facts) =
                (InHand { budget, ..InHand::default() }, Facts::default());
            for (at, &content) in contents.iter().enumerate() {
                let (hash, own) = encoding(content);
                let walk = |node: Node, out: &mut Encoding| {
                    assert!(budget < usize::MAX, "walked again although it is kept");
                    *out = encoding(contents[node.index()]).1;
                };
                in_hand.push(Node::new(at), hash, &own, &mut facts, walk);
            }
            let order = in_hand.by_encoding();
            let classes = order.chunk_by(|&a, &b| in_hand.encoding_of(a) == in_hand.encoding_of(b));
            let mut seen = Vec::new();
            for class in classes {
                let content = contents[class[0] as usize];
                assert!(!seen.contains(&content), "one class of each content");
                seen.push(content);
                assert!(class.is_sorted(), "in the order in which they were added");
                for &row in class {
                    let (node, callees, own) = in_hand.row(row);
                    assert_eq!(contents[node.index()], content);
                    assert_eq!(*callees, [Node::new(content.into())]);
                    assert_eq!(own.is_some(), class.len() > 1);
                    if let Some(own) = own {
                        assert_eq!(facts[own], [Fact::Block { cold: content == 2 }]);
                    }
                }
            }
            assert_eq!(order.len(), contents.len());
            Ok(())
        });
    }

    /// However items are divided into pieces, and whatever is kept of these, the classes are those of one piece.
    #[test]
    fn pieces_are_put_together() {
        arbtest::arbtest(|u| {
            let contents: Vec<u8> =
                (0..24).map(|_| u.int_in_range(0..=5)).collect::<Result<_, _>>()?;
            let walk = |node: Node, out: &mut Encoding| *out = encoding(contents[node.index()]).1;
            let piece = |range: Range<usize>, budget, facts: &mut Facts| {
                let mut in_hand = InHand { budget, ..InHand::default() };
                for at in range {
                    let (hash, own) = encoding(contents[at]);
                    in_hand.push(Node::new(at), hash, &own, facts, walk);
                }
                in_hand
            };
            let mut table = Facts::default();
            let whole = piece(0..24, usize::MAX, &mut table);
            let bounds = [0, u.int_in_range(0..=12)?, u.int_in_range(12..=24)?, 24];
            let mut facts = Facts::default();
            let mut put = InHand { budget: *u.choose(&[0, 40, usize::MAX])?, ..InHand::default() };
            for bounds in bounds.windows(2) {
                let mut own = Facts::default();
                let budget = *u.choose(&[0, 1, 40, usize::MAX])?;
                let further = piece(bounds[0]..bounds[1], budget, &mut own);
                let numbers = facts.intern_all(&own);
                let before = put.firsts.len();
                let is_new = put.append(&further, &numbers, &mut facts, walk);
                assert_eq!(
                    before + is_new.iter().filter(|&&is_new| is_new).count(),
                    put.firsts.len()
                );
            }
            assert_eq!(put.by_encoding(), whole.by_encoding());
            for row in 0..24 {
                assert_eq!(put.encoding_of(row), whole.encoding_of(row));
                let ((node, callees, own), expected) = (put.row(row), whole.row(row));
                assert_eq!((node, callees), (expected.0, expected.1));
                let lists = [own.map(|own| &facts[own]), expected.2.map(|own| &table[own])];
                assert_eq!(lists[0], lists[1]);
            }
            Ok(())
        });
    }
}
