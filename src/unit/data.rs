//! Data objects: what the pass must know of them, and how they are compared.
//!
//! A data object that cannot be written and whose address is not compared equals another one of the
//! same contents, and the two merge as functions do. It refers to functions and data by pointers,
//! so it takes part in the refinement: two tables of functions are equal if the functions in them
//! are, and two functions that differ only in which of two equal tables they use are equal too.
//! This is what GCC's ipa-icf does with read-only variables (`sem_variable` in `gcc/ipa-icf.cc`).
//!
//! Objects that can be written, are thread-local, preemptible, or have a significant address are
//! only read for the functions they point to; a reference to one equals only a reference to the
//! same one.
//!
//! It does not look at the bytes beyond comparing them: strings are not merged by their tails, and
//! an object inside another is not found.

use super::{Addresses, Linkage};
use alloc::string::String;
use alloc::vec::Vec;
use cranelift_codegen::ir::UserExternalName;
use cranelift_entity::entity_impl;

/// A data object of the unit, in the order in which data objects were added.
///
/// See the [example](crate::data).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataIndex(u32);
entity_impl!(DataIndex, "data");

/// The contents of a data object.
///
/// See the [example](crate::data).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataObject {
    /// The bytes, before the pointers are written into them.
    pub contents: Contents,
    /// The pointers in it, in any order.
    pub relocations: Vec<DataReloc>,
    /// The section that it requests, if not the usual one. Compared as text.
    pub section: Option<String>,
}

/// The bytes of a data object.
///
/// See the [example](crate::data).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Contents {
    /// This many zero bytes, which need not be stored.
    Zeros(u64),
    /// These bytes.
    Bytes(Vec<u8>),
}

impl Contents {
    /// The size in bytes.
    pub fn size(&self) -> u64 {
        match self {
            Contents::Zeros(size) => *size,
            Contents::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

/// The address of a function or data object in a data object, as wide as the target's pointers.
///
/// See the [example](crate::data).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataReloc {
    /// Its position, in bytes from the start of the object.
    pub offset: u32,
    /// The target.
    pub target: UserExternalName,
    /// The addend, in bytes.
    pub addend: i64,
}

/// The properties of a data object that its contents do not show.
///
/// The default keeps everything that can be observed.
///
/// See the [example](crate::data).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataAttributes {
    /// The visibility of the symbol.
    pub linkage: Linkage,
    /// Whether code may compare the object's address with another's.
    pub addresses: Addresses,
    /// Whether it can be written. Such an object is never merged.
    pub writable: bool,
    /// Whether each thread has its own. Such an object is never merged.
    pub tls: bool,
    /// The object neither replaces another object nor is replaced.
    pub pinned: bool,
    /// Something that the pass does not see refers to the symbol by name, such as code that was
    /// emitted before.
    pub externally_used: bool,
    /// Objects with different keys never merge.
    pub key: u64,
    /// Alignment in bytes, a power of two. The representative of a class gets the largest.
    pub alignment: u64,
}

impl Default for DataAttributes {
    fn default() -> Self {
        DataAttributes {
            linkage: Linkage::Export,
            addresses: Addresses::Significant,
            writable: false,
            tls: false,
            pinned: false,
            externally_used: false,
            key: 0,
            alignment: 1,
        }
    }
}

impl DataAttributes {
    /// Whether a reference to the object equals a reference to an equal one.
    pub fn by_class(&self) -> bool {
        !self.writable
            && !self.tls
            && self.linkage != Linkage::Preemptible
            && self.addresses == Addresses::Insignificant
    }
}
