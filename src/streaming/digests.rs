//! Digests by number: all that is kept of what functions do.

use crate::canon::Digest;
use alloc::vec::Vec;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// The digest of a function that cannot be encoded: different for each of them, and from all others, whose inputs are
/// longer.
pub(super) fn of_malformed(function: u64) -> Digest {
    *blake3::hash(&function.to_le_bytes()).as_bytes()
}

/// Digests by number.
#[derive(Default)]
pub(super) struct Digests {
    digests: Vec<Digest>,
    numbers: HashTable<u32>,
}

impl Digests {
    /// The number of a digest, and whether it is new.
    pub fn number(&mut self, digest: &Digest) -> (u32, bool) {
        let Digests { digests, numbers } = self;
        let entry = numbers.entry(
            hash(digest),
            |&number| digests[number as usize] == *digest,
            |&number| hash(&digests[number as usize]),
        );
        match entry {
            Entry::Occupied(known) => (*known.get(), false),
            Entry::Vacant(slot) => {
                let number = digests.len() as u32;
                digests.push(*digest);
                slot.insert(number);
                (number, true)
            }
        }
    }
}

/// Every part of a digest is a hash.
fn hash(digest: &Digest) -> u64 {
    u64::from_le_bytes(*digest.first_chunk().expect("32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_digests_have_one_number() {
        let mut digests = Digests::default();
        let [a, b] = [1, 2].map(of_malformed);
        assert_eq!(
            [a, b, a].map(|digest| digests.number(&digest)),
            [(0, true), (1, true), (0, false)]
        );
    }
}
