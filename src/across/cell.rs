//! What a summary says of a function: its shape, and its cells. Plain data.

use crate::unit::Linkage;
use alloc::string::String;
use alloc::vec::Vec;

/// What combining must know of the functions of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitSummary {
    /// The name of the unit, unique in the program.
    pub unit: String,
    /// A digest of target, settings and versions: summaries that differ in it are not combined.
    pub settings: [u8; 32],
    /// What cells refer to.
    pub symbols: Vec<Identity>,
    /// The functions that may share bodies.
    pub functions: Vec<FunctionSummary>,
}

/// What a symbol means, the same in all units.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// The function or data object that linkers know by this name.
    Name(String),
    /// A function that only its unit can see, by a digest of what it does. A collision costs bytes.
    Content([u8; 16]),
}

/// A function that may share a body.
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
    /// What it has at each place where functions of its shape may differ, in the order of the walk.
    pub cells: Vec<Cell>,
}

/// What a function has at a place. Symbols are numbers of [`UnitSummary::symbols`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Functions of one shape that share a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedSet {
    /// The columns of each parameter, ascending; none if the functions are equal.
    pub parameters: Vec<Vec<u32>>,
    /// A hash of what they have in all other columns.
    pub fixed: u64,
    /// How many functions they are.
    pub members: u32,
    /// The bytes that they save, roughly.
    pub saved: i64,
}

/// Where the sets of functions of a shape come from: a sharing map.
pub trait SharedSets: Send + Sync {
    /// The sets of functions of a shape, those that save most first. None if nothing is known of it.
    fn sets(&self, shape: &[u8; 16]) -> Vec<SharedSet>;
}

/// A hash of what a function has at a place, the same in all units.
pub(crate) fn cell_hash<'a>(cell: &Cell, identity: &dyn Fn(u32) -> &'a Identity) -> u64 {
    let mut bytes: Vec<u8> = Vec::new();
    let symbol = |bytes: &mut Vec<u8>, kind: u8, symbol: u32| {
        bytes.push(kind);
        match identity(symbol) {
            Identity::Name(name) => {
                bytes.push(0);
                bytes.extend_from_slice(name.as_bytes());
            }
            Identity::Content(digest) => {
                bytes.push(1);
                bytes.extend_from_slice(digest);
            }
        }
    };
    match *cell {
        Cell::Itself => bytes.push(0),
        Cell::Fixed(hash) => {
            bytes.push(1);
            bytes.extend_from_slice(&hash.to_le_bytes());
        }
        Cell::Constant { ty, bits } => {
            bytes.push(2);
            bytes.extend_from_slice(&ty.to_le_bytes());
            bytes.extend_from_slice(&bits.to_le_bytes());
        }
        Cell::Offset { ty, bytes: offset } => {
            bytes.push(3);
            bytes.extend_from_slice(&ty.to_le_bytes());
            bytes.extend_from_slice(&offset.to_le_bytes());
        }
        Cell::Callee { symbol: of, direct: _ } => symbol(&mut bytes, 4, of),
        Cell::Function { symbol: of } => symbol(&mut bytes, 5, of),
        Cell::Address { symbol: of, offset } => {
            symbol(&mut bytes, 6, of);
            bytes.extend_from_slice(&offset.to_le_bytes());
        }
    }
    xxhash_rust::xxh3::xxh3_64(&bytes)
}

/// A hash of what a function has in the columns that are in no parameter.
pub(crate) fn fixed_hash(hashes: &[u64], parameters: &[Vec<u32>]) -> u64 {
    let mut bytes: Vec<u8> = Vec::new();
    for (column, hash) in hashes.iter().enumerate() {
        let column = column as u32;
        if !parameters.iter().any(|columns| columns.binary_search(&column).is_ok()) {
            bytes.extend_from_slice(&column.to_le_bytes());
            bytes.extend_from_slice(&hash.to_le_bytes());
        }
    }
    xxhash_rust::xxh3::xxh3_64(&bytes)
}
