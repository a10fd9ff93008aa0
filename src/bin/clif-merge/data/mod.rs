//! Data objects of a unit: what they hold, and what the pass must know of them.
//!
//! How they are written is for `parse` and `print`.

pub mod parse;
mod print;

use crate::unit::Names;
use anyhow::{Result, bail};
use cranelift_codegen::ir::UserExternalName;
use cranelift_mergefunc::{Addresses, Linkage, cranelift_codegen};
use std::collections::{HashMap, HashSet};

pub use parse::{Name, Parsed};
pub use print::print;

/// What a data object holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataObject {
    /// Its bytes. Those of pointers are zero.
    pub contents: Contents,
    /// The pointers in it, by offset.
    pub relocations: Vec<DataReloc>,
    /// The section it must be in, if any.
    pub section: Option<String>,
}

/// The bytes of a data object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// So many zeros, which take no room in a file.
    Zeros(u64),
    /// These.
    Bytes(Vec<u8>),
}

/// A pointer in a data object, 8 bytes wide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataReloc {
    /// Where it stands.
    pub offset: u32,
    /// The function or data object whose address it is.
    pub target: UserExternalName,
    /// What is added to that address.
    pub addend: i64,
}

/// What the unit's user knows of a data object beside what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataAttributes {
    /// Who can see the symbol.
    pub linkage: Linkage,
    /// Whether somebody may compare its address with another object's.
    pub addresses: Addresses,
    /// Whether it can be written to.
    pub writable: bool,
    /// Whether every thread has its own.
    pub tls: bool,
    /// It stays as it is.
    pub pinned: bool,
    /// Objects with different keys never merge.
    pub key: u64,
    /// Alignment in bytes, a power of two.
    pub alignment: u64,
}

/// The attributes of an object of which nothing is said.
pub const PLAIN: DataAttributes = DataAttributes {
    linkage: Linkage::Export,
    addresses: Addresses::Significant,
    writable: false,
    tls: false,
    pinned: false,
    key: 0,
    alignment: 1,
};

/// The width of a pointer.
pub const POINTER_BYTES: usize = 8;

impl Contents {
    /// How many bytes there are.
    pub fn len(&self) -> u64 {
        match self {
            Contents::Zeros(size) => *size,
            Contents::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

/// A data object as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenData {
    /// The symbol by which the unit refers to it.
    pub symbol: UserExternalName,
    /// What its directive says, defaults filled in.
    pub attributes: DataAttributes,
    /// Whether it says `used`: a linker must not drop it either. It is pinned then.
    pub used: bool,
    /// What it holds.
    pub object: DataObject,
    /// `path:line:column` of its name.
    pub place: String,
}

/// Gives data objects their symbols. Each comes with the name of its text; `addresses` holds where
/// a directive says nothing.
///
/// # Errors
///
/// Pointers to what has no one address, with their places.
pub fn resolve(
    parsed: Vec<(&str, Parsed)>,
    names: &Names,
    addresses: Addresses,
) -> Result<Vec<GivenData>> {
    let thread_local: HashSet<Name> =
        parsed.iter().filter(|(_, data)| data.tls).map(|(_, data)| data.name.clone()).collect();
    let mut all = Vec::with_capacity(parsed.len());
    for (source, data) in parsed {
        let mut relocations = Vec::with_capacity(data.pointers.len());
        for pointer in data.pointers {
            let (line, column) = pointer.place;
            let target = names.symbol_of(&pointer.target);
            if thread_local.contains(&pointer.target) {
                bail!(
                    "{source}:{line}:{column}: {} is thread-local: a pointer cannot hold the \
                     addresses of all threads",
                    names.display(&target),
                );
            }
            relocations.push(DataReloc { offset: pointer.offset, target, addend: pointer.addend });
        }
        let (line, column) = data.place;
        all.push(GivenData {
            symbol: names.symbol_of(&data.name),
            attributes: DataAttributes {
                linkage: data.linkage.unwrap_or(PLAIN.linkage),
                addresses: data.addresses.unwrap_or(addresses),
                writable: data.writable,
                tls: data.tls,
                pinned: data.pinned || data.used,
                key: data.key.unwrap_or(PLAIN.key),
                alignment: data.alignment.map_or(PLAIN.alignment, u64::from),
            },
            used: data.used,
            object: DataObject { contents: data.contents, relocations, section: data.section },
            place: format!("{source}:{line}:{column}"),
        });
    }
    Ok(all)
}

/// The symbols whose addresses data objects hold, and whether a pointer leads to anywhere but the
/// beginning.
pub fn pointed_at(data: &[GivenData]) -> HashMap<&UserExternalName, bool> {
    let mut targets = HashMap::new();
    for reloc in data.iter().flat_map(|data| &data.object.relocations) {
        *targets.entry(&reloc.target).or_default() |= reloc.addend != 0;
    }
    targets
}
