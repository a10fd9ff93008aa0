//! Data objects of a unit: what they hold, and what the pass must know of them.
//!
//! How they are written is for `parse` and `print`.

pub mod parse;
mod print;

use crate::unit::Names;
use anyhow::{Result, bail};
use cranelift_codegen::ir::UserExternalName;
use cranelift_mergefunc::{Addresses, DataAttributes, DataObject, DataReloc, cranelift_codegen};
use std::collections::{HashMap, HashSet};

pub use parse::{Name, Parsed};
pub use print::print;

/// The width of a pointer.
pub const POINTER_BYTES: usize = 8;

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
        let attributes = data.attributes(addresses);
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
            attributes,
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
