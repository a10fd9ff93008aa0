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
    let mut hasher = Xxh3::new();
    for stream in encoding.key() {
        hasher.update(&(stream.len() as u64).to_le_bytes());
        hasher.update(stream);
    }
    StructuralHash(hasher.digest128())
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
