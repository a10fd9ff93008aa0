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

use crate::encoding::Encoding;
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
