//! The encoding of a function: what equality, order, hash and "first difference" are views of.
//!
//! An encoding is three byte streams (see [`Encoding`]). Two functions are equal if their streams
//! are equal and the functions of the unit that they refer to are, at the same places, equal in
//! turn; `congruence` settles the second half.
//!
//! **Laws**, each tested by name in `tests/laws.rs`:
//! * the order of encodings is total: reflexive, antisymmetric, transitive (it is the order of
//!   byte strings, so there is nothing to argue);
//! * equal encodings have equal hashes;
//! * unequal encodings may have equal hashes: that costs time, never correctness.
//!
//! This module knows bytes, not IR: what they mean is said in `canon`, the only writer.

use crate::unit::Node;
use alloc::vec::Vec;
use core::cmp::Ordering;
use cranelift_codegen::ir::UserExternalName;

/// A function as three streams, all of which identical merging compares. All numbers are
/// little-endian, whatever the host.
///
/// | stream | holds |
/// |---|---|
/// | `shape` | signature, control flow, cold blocks, opcodes, types, operand numbers, memory flags, slots, tables, trap codes |
/// | `constants` | immediates, offsets, constant-pool bytes |
/// | `references` | every symbol used, in order, with the kind of its use; functions of the unit as classes |
///
/// See the [example](crate::explain).
#[derive(Clone, Debug, Default)]
pub struct Encoding {
    pub(crate) shape: Vec<u8>,
    pub(crate) constants: Vec<u8>,
    pub(crate) references: Vec<u8>,
    /// The nodes of the references that are compared by class, in order. The `references` stream
    /// only holds that there is one.
    pub(crate) callees: Vec<Node>,
    /// Instructions written, `nop` and unreachable ones left out.
    pub(crate) instructions: u32,
}

impl Encoding {
    /// Makes the encoding empty and keeps its memory.
    pub(crate) fn clear(&mut self) {
        let Encoding { shape, constants, references, callees, instructions } = self;
        shape.clear();
        constants.clear();
        references.clear();
        callees.clear();
        *instructions = 0;
    }

    /// The streams that identical merging compares, most significant first.
    pub fn key(&self) -> [&[u8]; 3] {
        [&self.shape, &self.constants, &self.references]
    }

    /// The size of the streams in bytes.
    pub fn size(&self) -> usize {
        let Encoding { shape, constants, references, callees, instructions: _ } = self;
        shape.len() + constants.len() + references.len() + size_of::<Node>() * callees.len()
    }

    /// The number of instructions, `nop` and unreachable ones left out.
    pub fn instructions(&self) -> u32 {
        self.instructions
    }

    #[inline]
    pub(crate) fn shape_word(&mut self, word: u32) {
        self.shape.extend_from_slice(&word.to_le_bytes());
    }

    /// Writes a record to the shape.
    #[inline(always)]
    pub(crate) fn shape_record(&mut self, record: Record) {
        let Record { bytes, len } = record;
        let end = self.shape.len() + len as usize;
        // As many bytes for every record: one check of the capacity and one store, whatever its
        // length.
        self.shape.extend_from_slice(&bytes.to_le_bytes());
        self.shape.truncate(end);
    }

    /// Writes a record and numbers behind it to the shape. A small number takes 2 bytes, any other
    /// one 6, which begin with [`WIDE`].
    #[inline(always)]
    pub(crate) fn shape_numbers<const N: usize>(&mut self, record: Record, numbers: [u32; N]) {
        if numbers.iter().fold(0, |all, number| all | number) <= SMALL {
            self.shape_record(
                numbers.iter().fold(record, |record, &number| record.half(number as u16)),
            );
        } else {
            self.wide_numbers(record, &numbers);
        }
    }

    #[cold]
    fn wide_numbers(&mut self, record: Record, numbers: &[u32]) {
        self.shape_record(record);
        for &number in numbers {
            self.shape_record(match number {
                0..=SMALL => Record::EMPTY.half(number as u16),
                _ => Record::EMPTY.half(WIDE).word(number),
            });
        }
    }

    pub(crate) fn constant_i32(&mut self, value: i32) {
        self.constants.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn constant_i64(&mut self, value: i64) {
        self.constants.extend_from_slice(&value.to_le_bytes());
    }

    /// A reference to a symbol: by the class of `node`, or by name if there is none.
    pub(crate) fn reference(&mut self, symbol: &UserExternalName, node: Option<Node>) {
        match node {
            Some(node) => {
                self.references.push(BY_CLASS);
                self.callees.push(node);
            }
            None => {
                let UserExternalName { namespace, index } = symbol;
                self.references.push(USER_SYMBOL);
                self.references.extend_from_slice(&namespace.to_le_bytes());
                self.references.extend_from_slice(&index.to_le_bytes());
            }
        }
    }
}

/// The largest number that takes 2 bytes of the shape. Of those beyond it, which are no beginnings
/// of numbers, the walk uses some to mark entries that are no numbers.
pub(crate) const SMALL: u32 = 0x7fff;

/// Four bytes of a number follow.
const WIDE: u16 = 0xffff;

/// Up to 16 bytes that are written to the shape together, such as all of an ordinary instruction.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    bytes: u128,
    len: u32,
}

impl Record {
    pub const EMPTY: Record = Record { bytes: 0, len: 0 };

    #[inline(always)]
    fn with(self, bytes: u128, len: u32) -> Record {
        debug_assert!(self.len + len <= 16, "too much for one record");
        Record { bytes: self.bytes | bytes << (8 * self.len), len: self.len + len }
    }

    #[inline(always)]
    pub fn byte(self, byte: u8) -> Record {
        self.with(byte.into(), 1)
    }

    #[inline(always)]
    pub fn half(self, half: u16) -> Record {
        self.with(half.into(), 2)
    }

    #[inline(always)]
    pub fn word(self, word: u32) -> Record {
        self.with(word.into(), 4)
    }
}

/// How a reference begins in the stream.
pub(crate) const BY_CLASS: u8 = 0;
/// Eight bytes follow.
pub(crate) const USER_SYMBOL: u8 = 1;
/// Its length follows, in four bytes, and the name.
pub(crate) const TEST_CASE: u8 = 2;
/// A number follows in one byte, as for a known symbol.
pub(crate) const LIBCALL: u8 = 3;
pub(crate) const KNOWN_SYMBOL: u8 = 4;

impl PartialEq for Encoding {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Encoding {}

impl PartialOrd for Encoding {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Lexicographic over the three compared streams, in their order.
impl Ord for Encoding {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of which a shape consists.
    fn read(mut shape: &[u8]) -> Vec<u32> {
        let mut numbers = Vec::new();
        while let Some((&half, rest)) = shape.split_first_chunk() {
            let half = u16::from_le_bytes(half);
            let (number, rest) = match half {
                WIDE => {
                    let (&word, rest) = rest.split_first_chunk().expect("four bytes follow");
                    (u32::from_le_bytes(word), rest)
                }
                _ => (half.into(), rest),
            };
            assert_eq!(number > SMALL, half == WIDE, "one form of each number");
            numbers.push(number);
            shape = rest;
        }
        assert!(shape.is_empty());
        numbers
    }

    #[test]
    fn numbers_say_how_long_they_are() {
        let numbers = [0, 1, SMALL - 1, SMALL, SMALL + 1, 0xfffe, 0xffff, 0x1_0000, u32::MAX];
        for a in numbers {
            for b in numbers {
                let mut encoding = Encoding::default();
                encoding.shape_numbers(Record::EMPTY, [a, b]);
                encoding.shape_numbers(Record::EMPTY.half(3), [b]);
                assert_eq!(read(&encoding.shape), [a, b, 3, b]);
            }
        }
    }

    #[test]
    fn records_take_as_many_bytes_as_they_have() {
        let mut encoding = Encoding::default();
        encoding.shape_record(Record::EMPTY.byte(1).half(0x0302).word(0x0706_0504));
        encoding.shape_record(Record::EMPTY);
        encoding.shape_record(Record::EMPTY.byte(8));
        assert_eq!(encoding.shape, [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
