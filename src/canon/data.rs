//! Data objects in the form of functions: a bucket and an encoding, so that both take part in one
//! refinement.

use super::encoding::Encoding;
use crate::unit::{Contents, DataObject, DataReloc, ResolveSymbol};
use alloc::vec::Vec;
use xxhash_rust::xxh3::Xxh3;

/// A digest of the constant parts of a data object: objects with different digests are not
/// compared.
pub(crate) fn bucket(data: &DataObject, key: u64) -> u64 {
    let DataObject { contents, relocations, section } = data;
    let mut hasher = Xxh3::new();
    for number in [DATA as u64, key, contents.size(), relocations.len() as u64] {
        hasher.update(&number.to_le_bytes());
    }
    if let Contents::Bytes(bytes) = contents {
        hasher.update(bytes);
    }
    if let Some(section) = section {
        hasher.update(section.as_bytes());
    }
    hasher.digest()
}

/// Begins the shape stream of a data object. No function's begins so: its low half is no encoding
/// version.
const DATA: u32 = 0xffff;

/// Writes the encoding of `data` into `out`, which is cleared first. Linear in its size.
pub(crate) fn encode(data: &DataObject, key: u64, symbols: &dyn ResolveSymbol, out: &mut Encoding) {
    out.clear();
    let DataObject { contents, relocations, section } = data;
    out.shape_word(DATA);
    out.shape.extend_from_slice(&key.to_le_bytes());
    out.shape_word(u32::from(section.is_some()));
    if let Some(section) = section {
        out.shape.extend_from_slice(&(section.len() as u64).to_le_bytes());
        out.shape.extend_from_slice(section.as_bytes());
    }
    match contents {
        Contents::Zeros(size) => {
            out.shape_word(0);
            out.shape.extend_from_slice(&size.to_le_bytes());
        }
        Contents::Bytes(bytes) => {
            out.shape_word(1);
            out.shape.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            out.constants.extend_from_slice(bytes);
        }
    }
    let mut relocations: Vec<&DataReloc> = relocations.iter().collect();
    // Stable: of two pointers at one place the back end lets the later one win.
    relocations.sort_by_key(|reloc| reloc.offset);
    for DataReloc { offset, target, addend } in relocations {
        out.shape_word(*offset);
        out.constant_i64(*addend);
        let node = symbols.resolve(target).and_then(|resolved| match addend {
            0 => resolved.address,
            _ => resolved.inside,
        });
        out.reference(target, node);
    }
}
