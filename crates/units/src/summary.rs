//! Summaries as files: of one unit, or of several whose summaries were merged.
//!
//! The bytes of a file depend only on the functions in it: neither on the order in which they were
//! added, nor on how they were distributed over files that were merged, nor on symbols that no
//! function uses.
//!
//! | bytes | what |
//! |---|---|
//! | 44 | header: `CLIFSUMS`, version (4), digest of target and settings (32) |
//! | … | units, in [blocks](super::format): length of the name, name, number of functions. Ascending by name |
//! | … | names, in blocks: of functions, and what cells refer to by name. Ascending |
//! | … | contents, in blocks: digests of 16 bytes to which cells refer. Ascending |
//! | … | rows, shape by shape |
//! | … | index, in blocks: shape (16), number of its rows, bytes of its rows, the lower half of their XXH3-64 (4). Ascending by shape |
//! | 88 | the bytes of units, names, contents, rows, index; the numbers of units, names, contents, functions, shapes (8 each); XXH3-64 of the header and these |
//!
//! Lengths and numbers are varints unless their width is given. A name takes a byte that says how
//! many bytes it shares with the name before it in the block (255 at most), then the length of what
//! follows, then what follows. Symbols are numbered by names first, then by contents.
//!
//! A row is a function. The rows of a shape are ordered by unit, name, linkage, mark, sizes and
//! cells. A row has:
//!
//! | bytes | what |
//! |---|---|
//! | varint | its unit, by the distance from the unit of the row before |
//! | varint | the number of its name |
//! | 1 | linkage in bits 0 and 1 (export, hidden, local, preemptible); bit 2: hot; bit 3: it is written as changes to the row before, which has an equal number of cells |
//! | varint, varint | bytes of code on x86-64 and on aarch64 |
//! | … | a bit for each cell, the lowest first, whether it differs from the row before; without bit 3, the number of cells (varint) |
//! | … | the cells that differ, or all |
//!
//! A cell begins with a byte, whose lower three bits are its kind:
//!
//! | kind | upper five bits | then |
//! |---|---|---|
//! | 0: the function itself | | |
//! | 1: a hash | | 8 bytes |
//! | 2: a constant | type | its bits, a varint |
//! | 3: an offset | type | signed varint |
//! | 4: a callee | 1 if the call must stay direct | symbol |
//! | 5: the address of a function | | symbol |
//! | 6: an address | | symbol, distance (signed varint) |
//! | 7: a constant from 2^63 to 2^64 - 1 | type | the complement of its lower 64 bits, a varint |
//!
//! Types are their numbers less `0x70`; 31 says that the number of the type follows as a varint.
//!
//! This module writes such files, and reads what stands in a row; it does *not* open files
//! (`summaries`).

use crate::cell::{Cell, FunctionSummary, Identity, UnitSummary};
use crate::format::{
    BlockWriter, Bytes, FormatError, Kind, Sink, checksum, put_long_varint, put_varint, put_zigzag,
};
use crate::linkage::Linkage;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use xxhash_rust::xxh3::xxh3_64;

pub(super) const KIND: Kind = Kind { magic: *b"CLIFSUMS", version: 1, name: "summary of units" };

/// The bytes after the index.
pub(super) const END: usize = 88;

/// A function, with numbers of units and symbols of its file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub unit: u32,
    /// The number of its name.
    pub name: u32,
    pub linkage: Linkage,
    pub hot: bool,
    pub bytes: [u32; 2],
    pub cells: Vec<Cell>,
}

/// The first number of Cranelift's smallest types, and how many types are written in five bits.
const TYPES: (u16, u16) = (0x70, 31);

fn put_kind_and_type(out: &mut Vec<u8>, kind: u8, ty: u16) {
    let (first, several) = TYPES;
    let code = ty.wrapping_sub(first);
    if code < several {
        out.push(kind | (code as u8) << 3);
    } else {
        out.push(kind | (several as u8) << 3);
        put_varint(out, u64::from(ty));
    }
}

fn take_type(bytes: &mut Bytes<'_>, code: u8) -> Result<u16, FormatError> {
    let (first, several) = TYPES;
    let code = u16::from(code);
    if code < several { Ok(first + code) } else { bytes.varint() }
}

fn put_cell(out: &mut Vec<u8>, cell: &Cell) {
    match *cell {
        Cell::Itself => out.push(0),
        Cell::Fixed(hash) => {
            out.push(1);
            out.extend(hash.to_le_bytes());
        }
        Cell::Constant { ty, bits } => match u64::try_from(bits) {
            Ok(bits) if bits >> 63 == 1 => {
                put_kind_and_type(out, 7, ty);
                put_varint(out, !bits);
            }
            Ok(_) | Err(_) => {
                put_kind_and_type(out, 2, ty);
                put_long_varint(out, bits);
            }
        },
        Cell::Offset { ty, bytes } => {
            put_kind_and_type(out, 3, ty);
            put_zigzag(out, i64::from(bytes));
        }
        Cell::Callee { symbol, direct } => {
            out.push(4 | u8::from(direct) << 3);
            put_varint(out, u64::from(symbol));
        }
        Cell::Function { symbol } => {
            out.push(5);
            put_varint(out, u64::from(symbol));
        }
        Cell::Address { symbol, offset } => {
            out.push(6);
            put_varint(out, u64::from(symbol));
            put_zigzag(out, offset);
        }
    }
}

/// Reads a cell. Symbols must be less than `symbols`.
fn take_cell(bytes: &mut Bytes<'_>, symbols: u32) -> Result<Cell, FormatError> {
    let first = bytes.u8()?;
    let damaged = Err(bytes.damaged());
    let symbol = |bytes: &mut Bytes<'_>| {
        let symbol = bytes.varint()?;
        if symbol < symbols { Ok(symbol) } else { Err(bytes.damaged()) }
    };
    Ok(match (first & 7, first >> 3) {
        (0, 0) => Cell::Itself,
        (1, 0) => Cell::Fixed(bytes.u64()?),
        (2, ty) => Cell::Constant { ty: take_type(bytes, ty)?, bits: bytes.varint()? },
        (3, ty) => Cell::Offset { ty: take_type(bytes, ty)?, bytes: bytes.zigzag()? },
        (4, direct @ 0..=1) => Cell::Callee { symbol: symbol(bytes)?, direct: direct == 1 },
        (5, 0) => Cell::Function { symbol: symbol(bytes)? },
        (6, 0) => Cell::Address { symbol: symbol(bytes)?, offset: bytes.zigzag()? },
        (7, ty) => {
            let ty = take_type(bytes, ty)?;
            let complement: u64 = bytes.varint()?;
            Cell::Constant { ty, bits: u128::from(!complement) }
        }
        _ => return damaged,
    })
}

/// Writes the rows of a shape, which are in order.
fn put_rows(out: &mut Vec<u8>, rows: &[Row]) {
    let mut before: Option<&Row> = None;
    for row in rows {
        let Row { unit, name, linkage, hot, bytes, cells } = row;
        put_varint(out, u64::from(unit - before.map_or(0, |before| before.unit)));
        put_varint(out, u64::from(*name));
        let same = before.filter(|before| before.cells.len() == cells.len());
        let flags = *linkage as u8 | u8::from(*hot) << 2 | u8::from(same.is_some()) << 3;
        out.push(flags);
        bytes.iter().for_each(|&bytes| put_varint(out, u64::from(bytes)));
        match same {
            None => {
                put_varint(out, cells.len() as u64);
                cells.iter().for_each(|cell| put_cell(out, cell));
            }
            Some(before) => {
                let bits = out.len();
                out.resize(bits + cells.len().div_ceil(8), 0);
                for (at, (cell, before)) in cells.iter().zip(&before.cells).enumerate() {
                    if cell != before {
                        out[bits + at / 8] |= 1 << (at % 8);
                        put_cell(out, cell);
                    }
                }
            }
        }
        before = Some(row);
    }
}

/// How many there are of what rows refer to.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub units: u32,
    pub names: u32,
    pub symbols: u32,
}

pub(super) fn take_row(
    bytes: &mut Bytes<'_>,
    before: Option<&Row>,
    limits: Limits,
) -> Result<Row, FormatError> {
    let damaged = bytes.damaged();
    let distance: u32 = bytes.varint()?;
    let unit = before.map_or(0, |before| before.unit).checked_add(distance);
    let unit = unit.filter(|&unit| unit < limits.units).ok_or(damaged.clone())?;
    let name = bytes.varint()?;
    let flags = bytes.u8()?;
    if name >= limits.names || flags >> 4 != 0 {
        return Err(damaged);
    }
    let sizes = [bytes.varint()?, bytes.varint()?];
    let cells = if flags & 8 == 0 {
        let count = bytes.count()?;
        (0..count).map(|_| take_cell(bytes, limits.symbols)).collect::<Result<_, _>>()?
    } else {
        let before = before.ok_or(damaged.clone())?;
        let bits = bytes.take(before.cells.len().div_ceil(8))?;
        let cells =
            before.cells.iter().enumerate().map(|(at, &cell)| match bits[at / 8] >> (at % 8) & 1 {
                0 => Ok(cell),
                _ => take_cell(bytes, limits.symbols),
            });
        cells.collect::<Result<_, _>>()?
    };
    let linkage = Linkage::ALL[usize::from(flags & 3)];
    Ok(Row { unit, name, linkage, hot: flags & 4 != 0, bytes: sizes, cells })
}

/// Writes a file, table after table, each in the order of the file.
pub(super) struct Writer<'s, 'f> {
    out: &'s mut Sink<'f>,
    settings: [u8; 32],
    block: BlockWriter,
    /// The name before in this block.
    before: Vec<u8>,
    index: Vec<u8>,
    rows: Vec<u8>,
    /// The bytes of each table, and its entries.
    bytes: [u64; 5],
    entries: [u64; 5],
}

/// Where each table is in the numbers at the end of a file.
pub(super) const UNITS: usize = 0;
pub(super) const NAMES: usize = 1;
pub(super) const CONTENTS: usize = 2;
pub(super) const ROWS: usize = 3;
pub(super) const INDEX: usize = 4;

pub(super) const SECTIONS: [&str; 5] = ["units", "names", "contents", "rows", "index"];

impl<'s, 'f> Writer<'s, 'f> {
    pub fn new(settings: [u8; 32], out: &'s mut Sink<'f>) -> Result<Self, FormatError> {
        out(&KIND.header(&settings))?;
        let (block, before) = (BlockWriter::default(), Vec::new());
        let (index, rows) = (Vec::new(), Vec::new());
        Ok(Writer { out, settings, block, before, index, rows, bytes: [0; 5], entries: [0; 5] })
    }

    fn write(&mut self, table: usize, block: Option<Vec<u8>>) -> Result<(), FormatError> {
        let Some(block) = block else { return Ok(()) };
        self.bytes[table] += block.len() as u64;
        (self.out)(&block)
    }

    fn entry(&mut self, table: usize) -> Result<(), FormatError> {
        self.entries[table] += 1;
        let block = self.block.entry();
        self.write(table, block)
    }

    /// After the last entry of a table of units, names or contents.
    fn finish_table(&mut self, table: usize) -> Result<(), FormatError> {
        let block = self.block.finish();
        self.write(table, block)
    }

    pub fn unit(&mut self, name: &str, functions: u64) -> Result<(), FormatError> {
        put_varint(&mut self.block.payload, name.len() as u64);
        self.block.payload.extend(name.as_bytes());
        put_varint(&mut self.block.payload, functions);
        self.entry(UNITS)
    }

    pub fn finish_units(&mut self) -> Result<(), FormatError> {
        self.finish_table(UNITS)
    }

    pub fn name(&mut self, name: &[u8]) -> Result<(), FormatError> {
        let shared = match self.block.is_new() {
            true => 0,
            false => {
                let both = self.before.iter().zip(name).take(255);
                both.take_while(|(before, name)| before == name).count()
            }
        };
        let payload = &mut self.block.payload;
        payload.push(shared as u8);
        put_varint(payload, (name.len() - shared) as u64);
        payload.extend(&name[shared..]);
        self.before.truncate(shared);
        self.before.extend(&name[shared..]);
        self.entry(NAMES)
    }

    pub fn finish_names(&mut self) -> Result<(), FormatError> {
        self.finish_table(NAMES)
    }

    pub fn content(&mut self, digest: &[u8]) -> Result<(), FormatError> {
        self.block.payload.extend(digest);
        self.entry(CONTENTS)
    }

    pub fn finish_contents(&mut self) -> Result<(), FormatError> {
        self.finish_table(CONTENTS)
    }

    /// Writes the rows of a shape, in order.
    pub fn shape(&mut self, shape: &[u8; 16], rows: &[Row]) -> Result<(), FormatError> {
        self.rows.clear();
        put_rows(&mut self.rows, rows);
        let payload = &mut self.block.payload;
        payload.extend(shape);
        put_varint(payload, rows.len() as u64);
        put_varint(payload, self.rows.len() as u64);
        payload.extend((checksum(&[&self.rows]) as u32).to_le_bytes());
        self.bytes[ROWS] += self.rows.len() as u64;
        self.entries[ROWS] += rows.len() as u64;
        self.entries[INDEX] += 1;
        let block = self.block.entry();
        self.index.extend(block.into_iter().flatten());
        (self.out)(&self.rows)
    }

    /// Writes index and end.
    pub fn finish(mut self) -> Result<(), FormatError> {
        let block = self.block.finish();
        self.index.extend(block.into_iter().flatten());
        self.bytes[INDEX] = self.index.len() as u64;
        (self.out)(&self.index)?;
        let numbers = self.bytes.iter().chain(&self.entries);
        let last = numbers.flat_map(|number| number.to_le_bytes()).collect();
        (self.out)(&KIND.end(&self.settings, last))
    }
}

impl UnitSummary {
    /// The summary as a file. Takes O(n log n) for n functions, cells and bytes of names.
    ///
    /// Panics if a cell has a symbol that is not in [`UnitSummary::symbols`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        let mut contents: BTreeSet<[u8; 16]> = BTreeSet::new();
        let mut used = alloc::vec![false; self.symbols.len()];
        for function in &self.functions {
            names.insert(&function.symbol);
            let symbols = function.cells.iter().filter_map(Cell::symbol);
            symbols.for_each(|symbol| used[symbol as usize] = true);
        }
        let is_used = |(_, used): &(&Identity, &bool)| **used;
        for (identity, _) in self.symbols.iter().zip(&used).filter(is_used) {
            match identity {
                Identity::Name(name) => names.insert(name),
                Identity::Content(digest) => contents.insert(*digest),
            };
        }
        let names: Vec<&str> = names.into_iter().collect();
        let contents: Vec<[u8; 16]> = contents.into_iter().collect();
        let of_name = |name: &str| names.binary_search(&name).map(|at| at as u32);
        let of_content = |digest| {
            let at = contents.binary_search(digest);
            at.map(|at| (names.len() + at) as u32)
        };
        // Those that are not used have no number, and need none.
        let numbers: Vec<u32> = self
            .symbols
            .iter()
            .map(|identity| match identity {
                Identity::Name(name) => of_name(name).unwrap_or(u32::MAX),
                Identity::Content(digest) => of_content(digest).unwrap_or(u32::MAX),
            })
            .collect();
        let mut rows: Vec<([u8; 16], Row)> = self
            .functions
            .iter()
            .map(|function| {
                let FunctionSummary { shape, symbol, linkage, hot, bytes, cells } = function;
                let name = of_name(symbol).expect("all names were collected");
                let cells = cells.iter().map(|cell| cell.renumbered(&numbers)).collect();
                let (linkage, hot, bytes) = (*linkage, *hot, *bytes);
                (*shape, Row { unit: 0, name, linkage, hot, bytes, cells })
            })
            .collect();
        rows.sort_unstable();
        let mut out = Vec::new();
        let mut sink = |bytes: &[u8]| {
            out.extend(bytes);
            Ok(())
        };
        let write = |sink: &mut Sink<'_>| {
            let mut writer = Writer::new(self.settings, sink)?;
            writer.unit(&self.unit, rows.len() as u64)?;
            writer.finish_units()?;
            names.iter().try_for_each(|name| writer.name(name.as_bytes()))?;
            writer.finish_names()?;
            contents.iter().try_for_each(|digest| writer.content(digest))?;
            writer.finish_contents()?;
            let mut rows = rows.into_iter().peekable();
            while let Some((shape, row)) = rows.next() {
                let mut same = alloc::vec![row];
                while let Some((_, row)) = rows.next_if(|(other, _)| *other == shape) {
                    same.push(row);
                }
                writer.shape(&shape, &same)?;
            }
            writer.finish()
        };
        write(&mut sink).expect("a vector takes all bytes");
        out
    }
}

impl Cell {
    /// The number of its symbol.
    pub(super) fn symbol(&self) -> Option<u32> {
        match *self {
            Cell::Callee { symbol, .. }
            | Cell::Function { symbol }
            | Cell::Address { symbol, .. } => Some(symbol),
            Cell::Itself | Cell::Fixed(_) | Cell::Constant { .. } | Cell::Offset { .. } => None,
        }
    }

    /// The cell with the number that its symbol has elsewhere.
    pub(super) fn renumbered(self, numbers: &[u32]) -> Cell {
        self.with_symbol(|symbol| numbers[symbol as usize])
    }

    /// The cell with another symbol, if it has one.
    pub(super) fn with_symbol(mut self, other: impl FnOnce(u32) -> u32) -> Cell {
        match &mut self {
            Cell::Callee { symbol, .. }
            | Cell::Function { symbol }
            | Cell::Address { symbol, .. } => *symbol = other(*symbol),
            Cell::Itself | Cell::Fixed(_) | Cell::Constant { .. } | Cell::Offset { .. } => {}
        }
        self
    }
}

/// A hash of what a symbol means: XXH3-64 of a byte, 0 for names and 1 for contents, and the bytes
/// of the name or digest.
///
/// See the [example](crate#example).
pub fn identity_hash(identity: &Identity) -> u64 {
    match identity {
        Identity::Name(name) => symbol_hash(0, name.as_bytes()),
        Identity::Content(digest) => symbol_hash(1, digest),
    }
}

pub(super) fn symbol_hash(kind: u8, bytes: &[u8]) -> u64 {
    checksum(&[&[kind], bytes])
}

/// A hash of what a function has at a place, the same in all units: XXH3-64 of its kind and fields,
/// where a symbol is the [hash](identity_hash) of what it means. Calls of the function itself have
/// one hash.
///
/// See the [example](crate#example).
pub fn cell_hash(cell: &Cell, identity_hash: impl FnOnce(u32) -> u64) -> u64 {
    let mut bytes = [0; 24];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    match *cell {
        Cell::Itself => {}
        Cell::Fixed(hash) => {
            put(0, &[1]);
            put(8, &hash.to_le_bytes());
        }
        Cell::Constant { ty, bits } => {
            put(0, &[2]);
            put(2, &ty.to_le_bytes());
            put(8, &bits.to_le_bytes());
        }
        Cell::Offset { ty, bytes } => {
            put(0, &[3]);
            put(2, &ty.to_le_bytes());
            put(8, &bytes.to_le_bytes());
        }
        // Whether a call must stay direct is not what it calls.
        Cell::Callee { symbol, direct: _ } => {
            put(0, &[4]);
            put(8, &identity_hash(symbol).to_le_bytes());
        }
        Cell::Function { symbol } => {
            put(0, &[5]);
            put(8, &identity_hash(symbol).to_le_bytes());
        }
        Cell::Address { symbol, offset } => {
            put(0, &[6]);
            put(8, &identity_hash(symbol).to_le_bytes());
            put(16, &offset.to_le_bytes());
        }
    }
    xxh3_64(&bytes)
}
