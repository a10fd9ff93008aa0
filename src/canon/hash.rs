//! The structural hash of an encoding: 128 bits, the same on every platform and in every run.
//!
//! **Byte order, specified**: XXH3-128 with seed 0 over three hashes of 16 little-endian bytes
//! each: the XXH3-128 with seed 0 of the shape stream, that of the constants stream, and that of
//! the references stream. A reference to a function of the unit contributes only that it is one, so
//! equal functions have equal hashes whatever their callees are called.
//!
//! The hash decides nothing but the bucket. It is stable for one version of this crate and of
//! Cranelift (opcode numbers are Cranelift's); `tests/laws.rs` pins digests. It is not
//! cryptographic: an author of functions can make hashes collide, which costs comparisons, O(log k)
//! for each of k functions of one hash: their encodings are kept in order.

use crate::canon::Encoding;
use core::fmt;
use xxhash_rust::xxh3::xxh3_128;

/// A 128-bit structural hash.
///
/// See the [example](crate::explain).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StructuralHash(pub u128);

/// The structural hash of `encoding`. Linear in its size.
///
/// See the [example](crate::explain).
pub fn structural_hash(encoding: &Encoding) -> StructuralHash {
    hashes(encoding).1
}

/// A hash of the shape of a function, which functions may have in common that are not equal. Like
/// the structural hash, it decides nothing.
pub(crate) type ShapeHash = u32;

/// The hash of the shape of an encoding. Linear in its size.
pub(crate) fn shape_hash(encoding: &Encoding) -> ShapeHash {
    let [shape, ..] = encoding.key();
    xxh3_128(shape) as ShapeHash
}

/// The hashes of an encoding. Each stream is hashed once, in one piece, which takes less than half
/// as long as to feed a hasher with one after the other. Linear in its size.
pub(crate) fn hashes(encoding: &Encoding) -> (ShapeHash, StructuralHash) {
    let hashes = encoding.key().map(xxh3_128);
    let mut bytes = [0; 3 * 16];
    for (bytes, hash) in bytes.chunks_exact_mut(16).zip(hashes) {
        bytes.copy_from_slice(&hash.to_le_bytes());
    }
    let [shape, ..] = hashes;
    (shape as ShapeHash, StructuralHash(xxh3_128(&bytes)))
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

/// The digest of all that determines what a function does and its code: 256 bits, under which it is
/// emitted ([`Options::content_addressing`](crate::Options::content_addressing)).
///
/// See the [example](crate::across).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentDigest([u8; 32]);

impl ContentDigest {
    pub(crate) fn new(digest: Digest) -> ContentDigest {
        ContentDigest(digest)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether a symbol is one under which such a function is emitted.
    pub fn is_name(symbol: &str) -> bool {
        let digits = symbol.strip_prefix("content.").unwrap_or("").as_bytes();
        digits.len() == 64 && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    }
}

/// The symbol under which such a function is emitted: `content.` and 64 hexadecimal digits.
impl fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("content.")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
