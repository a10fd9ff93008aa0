//! The summary of a function: its shape, and its cells. Plain data.

use crate::linkage::Linkage;
use alloc::string::String;
use alloc::vec::Vec;

/// The record of the functions of a unit that combining needs.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitSummary {
    /// The name of the unit, unique in the program.
    pub unit: String,
    /// A digest of target, settings and versions: summaries that differ in it are not combined.
    pub settings: [u8; 32],
    /// The referents of cells.
    pub symbols: Vec<Identity>,
    /// The functions that may share bodies.
    pub functions: Vec<FunctionSummary>,
}

/// The meaning of a symbol, one in all units.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// The function or data object that linkers know by this name.
    Name(String),
    /// A function that only its unit can see, by a digest of what it does. A collision costs bytes.
    Content([u8; 16]),
}

/// A function that may share a body.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSummary {
    /// A digest of its shape. A collision costs bytes.
    pub shape: [u8; 16],
    /// Its symbol, for reports.
    pub symbol: String,
    /// Its visibility.
    pub linkage: Linkage,
    /// Whether it is marked as hot.
    pub hot: bool,
    /// The predicted bytes of its native code on x86-64 and on aarch64.
    pub bytes: [u32; 2],
    /// Its value at each place where functions of its shape may differ, in the order of the walk.
    pub cells: Vec<Cell>,
}

/// The value of a function at a place. Symbols are numbers of [`UnitSummary::symbols`].
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    /// A call of the function itself.
    Itself,
    /// Something that cannot be passed, by a hash. A collision costs bytes.
    Fixed(u64),
    /// A constant of this type, by Cranelift's number of the type.
    Constant {
        /// The type.
        ty: u16,
        /// Its bits.
        bits: u128,
    },
    /// An offset of an access.
    Offset {
        /// The type of the address.
        ty: u16,
        /// In bytes.
        bytes: i32,
    },
    /// A function that is called directly.
    Callee {
        /// The function.
        symbol: u32,
        /// Whether the call must not become an indirect one.
        direct: bool,
    },
    /// The address of a function.
    Function {
        /// The function.
        symbol: u32,
    },
    /// The address of a symbol, or one at a distance from it.
    Address {
        /// The symbol.
        symbol: u32,
        /// The distance in bytes.
        offset: i64,
    },
}
