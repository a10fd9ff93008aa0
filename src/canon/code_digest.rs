//! The digest of an encoding and an alignment.
//!
//! It is trusted without comparing, so it has to be one of 256 bits for which nobody can find two
//! inputs with equal results. That takes several times as long for a byte as writing it, so
//! encodings are packed first: most numbers of an encoding are small, and take a byte instead of
//! four.

use super::{Digest, Encoding};
use alloc::vec::Vec;

/// A digest of all that two functions must have in common for the code of the one to be that of the
/// other, but for what they refer to. `packed` is memory to be reused.
pub(crate) fn code_digest(encoding: &Encoding, alignment: u32, packed: &mut Vec<u8>) -> Digest {
    packed.clear();
    for length in encoding.key().map(<[u8]>::len) {
        number(length as u64, packed);
    }
    number(alignment.into(), packed);
    for stream in encoding.key() {
        pack(stream, packed);
    }
    *blake3::hash(packed).as_bytes()
}

/// Appends a number, seven bits to a byte, and in the eighth whether more follow.
fn number(mut number: u64, packed: &mut Vec<u8>) {
    while number >= 0x80 {
        packed.push(number as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
}

const WORD: usize = 4;
/// The words of a group.
const WORDS: usize = 16;
const GROUP: usize = WORDS * WORD;
/// The most that a group takes, and a byte behind that is written to.
const ROOM: usize = size_of::<u16>() + WORDS * WORD + 1;
/// Longer streams are not packed: BLAKE3 digests chunks of 1 KiB in parallel, which is faster than
/// packing.
const LONGEST: usize = 4096;

/// Appends a stream of known length. Streams of one length have equal results only if they are
/// equal.
///
/// It is taken as little-endian words. A bit for each of 16 words says whether it has more than one
/// byte; then come the upper three bytes of those that do, and the lowest of each.
fn pack(stream: &[u8], packed: &mut Vec<u8>) {
    if stream.len() > LONGEST {
        packed.extend_from_slice(stream);
        return;
    }
    let (groups, rest) = stream.as_chunks::<GROUP>();
    let start = packed.len();
    packed.resize(start + (groups.len() + 1) * ROOM, 0);
    let mut room = &mut packed[start..];
    let mut written = start;
    let mut pack_group = |group: &[u8; GROUP], words: usize| {
        let length = pack_group(group, words, room.first_chunk_mut().expect("room for a group"));
        room = &mut core::mem::take(&mut room)[length..];
        written += length;
    };
    for group in groups {
        pack_group(group, WORDS);
    }
    if !rest.is_empty() {
        let mut last = [0; GROUP];
        last[..rest.len()].copy_from_slice(rest);
        pack_group(&last, rest.len().div_ceil(WORD));
    }
    packed.truncate(written);
}

/// Packs a group, of which the first `count` words count, and returns how many bytes were written.
/// In loops that a compiler makes vectors of.
fn pack_group(group: &[u8; GROUP], count: usize, packed: &mut [u8; ROOM]) -> usize {
    let (words, _) = group.as_chunks::<WORD>();
    let words: [u32; WORDS] = core::array::from_fn(|at| u32::from_le_bytes(words[at]));
    let mut long = 0u32;
    for (at, &word) in words.iter().enumerate() {
        long |= u32::from(word > 0xff) << at;
    }
    let (control, mut rest) = packed.split_at_mut(size_of::<u16>());
    control.copy_from_slice(&(long as u16).to_le_bytes());
    let mut length = control.len();
    while long != 0 {
        let at = long.trailing_zeros() as usize % WORDS;
        rest[..WORD].copy_from_slice(&(words[at] >> 8).to_le_bytes());
        rest = &mut rest[WORD - 1..];
        length += WORD - 1;
        long &= long - 1;
    }
    let low: [u8; WORDS] = core::array::from_fn(|at| words[at] as u8);
    rest[..WORDS].copy_from_slice(&low);
    length + count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(stream: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        pack(stream, &mut packed);
        packed
    }

    /// The stream of this length that was packed.
    fn unpacked(packed: &[u8], length: usize) -> Vec<u8> {
        let (mut stream, mut rest) = (Vec::new(), packed);
        while stream.len() < length {
            let count = (length - stream.len()).div_ceil(WORD).min(WORDS);
            let (control, behind) = rest.split_first_chunk().expect("a word of control bits");
            let long = u16::from_le_bytes(*control);
            let (mut upper, behind) = behind.split_at(long.count_ones() as usize * (WORD - 1));
            let (low, behind) = behind.split_at(count);
            rest = behind;
            for (at, &low) in low.iter().enumerate() {
                stream.push(low);
                match long >> at & 1 {
                    0 => stream.extend([0; WORD - 1]),
                    _ => stream.extend(upper.split_off(..WORD - 1).expect("three bytes")),
                }
            }
        }
        assert!(rest.is_empty() && stream[length..].iter().all(|&byte| byte == 0));
        stream.truncate(length);
        stream
    }

    #[test]
    fn packed_streams_can_be_unpacked() {
        for (limit, seed) in [(0, 1), (100, 2), (200, 3)] {
            let mut bytes = many_zeros(seed, limit);
            for length in 0..300 {
                let stream: Vec<u8> = (0..length).map(|_| bytes()).collect();
                assert_eq!(unpacked(&packed(&stream), length), stream);
            }
        }
        assert_eq!(packed(&[]), [0u8; 0]);
        assert_eq!(packed(&[5, 0, 0, 0, 1, 2, 0, 0, 9]), [2, 0, 2, 0, 0, 5, 1, 9]);
        let long: Vec<u8> = (0..).take(LONGEST + 1).map(|at: usize| at as u8).collect();
        assert_eq!(packed(&long), long);
    }

    /// Bytes of which those below a limit are zero.
    fn many_zeros(seed: u32, limit: u8) -> impl FnMut() -> u8 {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let byte = (state >> 24) as u8;
            if byte < limit { 0 } else { byte }
        }
    }

    #[test]
    fn packed_numbers_end_where_they_end() {
        let mut bytes = Vec::new();
        for value in [0, 0x7f, 0x80, u64::MAX] {
            number(value, &mut bytes);
        }
        assert_eq!(bytes[..4], [0, 0x7f, 0x80, 1]);
        assert_eq!(bytes.len(), 4 + 10);
    }
}
