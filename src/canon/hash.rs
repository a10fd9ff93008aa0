//! The structural hash of an encoding: 128 bits, the same on every platform and in every run.
//!
//! **Byte order, specified**: XXH3-128 with seed 0 over the shape stream, the constants stream and
//! the references stream, each preceded by its length in bytes as 8 little-endian bytes. A
//! reference to a function of the unit contributes only that it is one, so equal functions have
//! equal hashes whatever their callees are called.
//!
//! The hash decides nothing but the bucket. It is stable for one version of this crate and of Cranelift (opcode
//! numbers are Cranelift's); `tests/laws.rs` pins digests. It is not cryptographic: an author of functions can make
//! hashes collide, which costs comparisons, O(log k) for each of k functions of a bucket.

use crate::canon::Encoding;
use xxhash_rust::xxh3::Xxh3;

/// A 128-bit structural hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StructuralHash(pub u128);

/// The structural hash of `encoding`. Linear in its size.
pub fn structural_hash(encoding: &Encoding) -> StructuralHash {
    hashes(encoding).1
}

/// Hashes of what functions may have in common that are not equal. Like the structural hash, they decide nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartHashes {
    /// Of the shape.
    pub shape: u32,
    /// Of the shape and the constants.
    pub content: u32,
}

/// All hashes of an encoding: those of its parts are digests of the beginnings of the same bytes. Linear in its size.
pub(crate) fn hashes(encoding: &Encoding) -> (PartHashes, StructuralHash) {
    let mut hasher = Xxh3::new();
    let mut update = |stream: &[u8]| {
        hasher.update(&(stream.len() as u64).to_le_bytes());
        hasher.update(stream);
        hasher.digest() as u32
    };
    let [shape, constants, references] = encoding.key();
    let (shape, content, _) = (update(shape), update(constants), update(references));
    (PartHashes { shape, content }, StructuralHash(hasher.digest128()))
}

/// A BLAKE3 digest of an encoding: 256 bits, which are trusted without comparing.
pub(crate) type Digest = [u8; 32];

/// The digest of the streams that are compared. Linear in their size.
pub(crate) fn digest(streams: [&[u8]; 3]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for stream in streams {
        hasher.update(&(stream.len() as u64).to_le_bytes());
        hasher.update(stream);
    }
    *hasher.finalize().as_bytes()
}
