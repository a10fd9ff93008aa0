//! Summaries as files: of one unit, or of several whose summaries were merged.
//!
//! The bytes of a file depend only on the functions in it: neither on the order in which they were added, nor on how
//! they were distributed over files that were merged, nor on symbols that no function uses.
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
//! Lengths and numbers are varints unless their width is given. A name takes a byte that says how many bytes it shares
//! with the name before it in the block (255 at most), then the length of what follows, then what follows. Symbols are
//! numbered by names first, then by contents.
//!
//! A row is a function. The rows of a shape are ordered by unit, name, linkage, mark, sizes and cells. A row has:
//!
//! | bytes | what |
//! |---|---|
//! | varint | its unit, by the distance from the unit of the row before |
//! | varint | the number of its name |
//! | 1 | linkage in bits 0 and 1 (export, hidden, local, preemptible); bit 2: hot; bit 3: it is written as changes to the row before, which has as many cells |
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
//! Opening a file reads its two ends and its units. Everything else is read block by block or shape by shape, and
//! verified as it is. This module does not decide anything, and does *not* keep the functions of a file in memory.

use super::cell::{Cell, FunctionSummary, Identity, UnitSummary};
use super::format::{
    BlockWriter, Blocks, Bytes, FormatError, HEADER, Kind, ReadAt, Section, Sink, checksum,
    put_long_varint, put_varint, put_zigzag, read, read_into,
};
use crate::unit::Linkage;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::fmt;
use xxhash_rust::xxh3::xxh3_64;

const KIND: Kind = Kind { magic: *b"CLIFSUMS", version: 1, name: "summary of units" };

/// The bytes after the index.
const END: usize = 88;

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

/// What Cranelift's smallest types are numbered from, and how many are written in five bits.
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
struct Limits {
    units: u32,
    names: u32,
    symbols: u32,
}

fn take_row(
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
const UNITS: usize = 0;
const NAMES: usize = 1;
const CONTENTS: usize = 2;
const ROWS: usize = 3;
const INDEX: usize = 4;

const SECTIONS: [&str; 5] = ["units", "names", "contents", "rows", "index"];

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

/// A hash of what a symbol means: XXH3-64 of a byte, 0 for names and 1 for contents, and the bytes of the name or digest.
pub fn identity_hash(identity: &Identity) -> u64 {
    match identity {
        Identity::Name(name) => symbol_hash(0, name.as_bytes()),
        Identity::Content(digest) => symbol_hash(1, digest),
    }
}

fn symbol_hash(kind: u8, bytes: &[u8]) -> u64 {
    checksum(&[&[kind], bytes])
}

/// A hash of what a function has at a place, the same in all units: XXH3-64 of its kind and fields, where a
/// symbol is the [hash](identity_hash) of what it means. Calls of the function itself have one hash.
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

/// A unit of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitEntry {
    /// Its name.
    pub name: String,
    /// How many functions its summary has.
    pub functions: u64,
}

/// An open file of summaries.
///
/// Damage that is found when it is opened, or when a part is read later, is an error.
pub struct Summaries<'a> {
    source: &'a dyn ReadAt,
    settings: [u8; 32],
    units: Vec<UnitEntry>,
    sections: [Section; 5],
    /// Where each block of names begins, with the names from there on. Once it was needed.
    name_blocks: OnceCell<Vec<Section>>,
}

impl fmt::Debug for Summaries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Summaries").field("units", &self.units).finish_non_exhaustive()
    }
}

/// Where the rows of a shape are.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexEntry {
    at: u64,
    len: u64,
    pub rows: u64,
    check: u32,
}

impl<'a> Summaries<'a> {
    /// Opens a file: reads its two ends and its units.
    pub fn open(source: &'a dyn ReadAt) -> Result<Summaries<'a>, FormatError> {
        let (settings, end) = KIND.read::<END>(source)?;
        let part = "the end of the file";
        let damaged = FormatError::Damaged(part);
        let mut end = Bytes::new(&end, part);
        let mut sections = SECTIONS.map(|name| Section { name, ..Section::default() });
        let mut at = HEADER as u64;
        for section in &mut sections {
            (section.at, section.len) = (at, end.u64()?);
            at = at.checked_add(section.len).ok_or(damaged.clone())?;
        }
        for section in &mut sections {
            section.entries = end.u64()?;
            // Each entry takes a byte or more.
            if section.entries > section.len {
                return Err(damaged);
            }
        }
        if at.checked_add(END as u64) != Some(source.len()) {
            return Err(damaged);
        }
        // Entries are fewer than the bytes of the file: the sum is one, too.
        let symbols = sections[NAMES].entries + sections[CONTENTS].entries;
        for (count, what) in [(sections[UNITS].entries, "units"), (symbols, "symbols")] {
            u32::try_from(count).map_err(|_| FormatError::TooLarge(what))?;
        }
        let mut units: Vec<UnitEntry> = Vec::new();
        let mut blocks = Blocks::new(source, sections[UNITS]);
        while let Some(unit) = blocks.entry(|bytes, _| {
            let len = bytes.varint()?;
            let name = core::str::from_utf8(bytes.take(len)?).map_err(|_| bytes.damaged())?;
            Ok(UnitEntry { name: name.into(), functions: bytes.varint()? })
        })? {
            if units.last().is_some_and(|before| before.name >= unit.name) {
                return Err(FormatError::Damaged(SECTIONS[UNITS]));
            }
            units.push(unit);
        }
        let functions = units.iter().try_fold(0u64, |sum, unit| sum.checked_add(unit.functions));
        if functions != Some(sections[ROWS].entries) {
            return Err(FormatError::Damaged(SECTIONS[UNITS]));
        }
        Ok(Summaries { source, settings, units, sections, name_blocks: OnceCell::new() })
    }

    /// The digest of target, settings and versions.
    pub fn settings(&self) -> &[u8; 32] {
        &self.settings
    }

    /// The units, ascending by name.
    pub fn units(&self) -> &[UnitEntry] {
        &self.units
    }

    /// How many functions the file has.
    pub fn functions(&self) -> u64 {
        self.sections[ROWS].entries
    }

    /// How many shapes they have.
    pub fn shapes(&self) -> u64 {
        self.sections[INDEX].entries
    }

    fn limits(&self) -> Limits {
        let [names, contents] = [NAMES, CONTENTS].map(|table| self.sections[table].entries as u32);
        Limits { units: self.units.len() as u32, names, symbols: names + contents }
    }

    /// How many symbols there are.
    pub(super) fn symbols(&self) -> u32 {
        self.limits().symbols
    }

    pub(super) fn names(&self) -> Names<'a> {
        let blocks = Blocks::new(self.source, self.sections[NAMES]);
        Names { blocks, name: Vec::new(), next: Vec::new(), number: 0, started: false }
    }

    pub(super) fn contents(&self) -> Contents<'a> {
        let blocks = Blocks::new(self.source, self.sections[CONTENTS]);
        Contents { blocks, digest: None, number: self.limits().names }
    }

    pub(super) fn index(&self) -> Index<'a> {
        let blocks = Blocks::new(self.source, self.sections[INDEX]);
        let entry = IndexEntry { at: self.sections[ROWS].at, len: 0, rows: 0, check: 0 };
        Index { blocks, shape: None, entry, rows: self.sections[ROWS] }
    }

    /// The rows of a shape. Reads them into the buffer.
    pub(super) fn rows(
        &self,
        entry: &IndexEntry,
        buffer: &mut Vec<u8>,
    ) -> Result<Vec<Row>, FormatError> {
        let part = SECTIONS[ROWS];
        read_into(self.source, entry.at, entry.len, part, buffer)?;
        if checksum(&[buffer]) as u32 != entry.check {
            return Err(FormatError::Damaged(part));
        }
        let mut bytes = Bytes::new(buffer, part);
        let limits = self.limits();
        let mut rows: Vec<Row> = Vec::new();
        for _ in 0..entry.rows {
            let row = take_row(&mut bytes, rows.last(), limits)?;
            rows.push(row);
        }
        bytes.end()?;
        Ok(rows)
    }

    /// The [hashes](identity_hash) of all symbols, by number. Reads the names and contents once.
    pub(super) fn identity_hashes(&self) -> Result<Vec<u64>, FormatError> {
        let mut hashes = Vec::new();
        let mut names = self.names();
        while names.advance()? {
            hashes.push(symbol_hash(0, names.key()));
        }
        let mut contents = self.contents();
        while contents.advance()? {
            hashes.push(symbol_hash(1, contents.key()));
        }
        Ok(hashes)
    }

    /// The name of this number. Reads a block; the first time, the beginnings of all blocks of names.
    pub(super) fn name(&self, number: u32) -> Result<String, FormatError> {
        let damaged = FormatError::Damaged(SECTIONS[NAMES]);
        let blocks = match self.name_blocks.get() {
            Some(blocks) => blocks,
            None => {
                let blocks = self.block_starts()?;
                self.name_blocks.get_or_init(|| blocks)
            }
        };
        let all = self.sections[NAMES].entries;
        let first = |block: &Section| all - block.entries;
        let block = blocks.partition_point(|block| first(block) <= u64::from(number));
        let block = block.checked_sub(1).map(|at| blocks[at]).ok_or(damaged.clone())?;
        let mut names = self.names();
        names.blocks = Blocks::new(self.source, block);
        for _ in first(&block)..=u64::from(number) {
            if !names.advance()? {
                return Err(damaged);
            }
        }
        String::from_utf8(names.name).map_err(|_| damaged)
    }

    /// Where each block of names begins.
    fn block_starts(&self) -> Result<Vec<Section>, FormatError> {
        let mut starts = Vec::new();
        let mut rest = self.sections[NAMES];
        while rest.len > 0 {
            let damaged = FormatError::Damaged(rest.name);
            starts.push(rest);
            let head = read(self.source, rest.at, 8, rest.name)?;
            let mut bytes = Bytes::new(&head, rest.name);
            let len = u64::from(bytes.u32()?) + 16;
            let entries = u64::from(bytes.u32()?);
            rest.at += len;
            rest.len = rest.len.checked_sub(len).ok_or(damaged.clone())?;
            rest.entries = rest.entries.checked_sub(entries).ok_or(damaged)?;
        }
        Ok(starts)
    }

    /// The summary of a unit, as it was before it was written, with functions and symbols in the order of the file. For
    /// tools and tests: reads the whole file.
    ///
    /// Panics if there are fewer units.
    pub fn unit(&self, number: usize) -> Result<UnitSummary, FormatError> {
        let unit = UnitEntry::clone(&self.units[number]);
        let mut summary =
            UnitSummary { unit: unit.name, settings: self.settings, ..UnitSummary::default() };
        let mut rows: Vec<([u8; 16], Row)> = Vec::new();
        let (mut index, mut buffer) = (self.index(), Vec::new());
        let mut used = alloc::vec![u32::MAX; self.symbols() as usize];
        while index.advance()? {
            let (Some(shape), entry) = (index.shape, index.item()) else { break };
            for row in self.rows(&entry, &mut buffer)? {
                if row.unit as usize == number {
                    let symbols = row.cells.iter().filter_map(Cell::symbol);
                    symbols.for_each(|symbol| used[symbol as usize] = 0);
                    rows.push((shape, row));
                }
            }
        }
        let mut names = self.names();
        while names.advance()? {
            let number = &mut used[names.item() as usize];
            if *number == 0 {
                *number = summary.symbols.len() as u32;
                let name = String::from_utf8(names.key().to_vec());
                let name = name.map_err(|_| FormatError::Damaged(SECTIONS[NAMES]))?;
                summary.symbols.push(Identity::Name(name));
            }
        }
        let mut contents = self.contents();
        while contents.advance()? {
            let number = &mut used[contents.item() as usize];
            if let (0, Some(digest)) = (*number, contents.digest) {
                *number = summary.symbols.len() as u32;
                summary.symbols.push(Identity::Content(digest));
            }
        }
        for (shape, row) in rows {
            let Row { unit: _, name, linkage, hot, bytes, cells } = row;
            let cells = cells.iter().map(|cell| cell.renumbered(&used)).collect();
            let symbol = self.name(name)?;
            let function = FunctionSummary { shape, symbol, linkage, hot, bytes, cells };
            summary.functions.push(function);
        }
        Ok(summary)
    }
}

/// Goes through a table in ascending order.
pub(super) trait Cursor {
    type Item: Copy;

    /// Goes to the next entry, and says whether there is one.
    fn advance(&mut self) -> Result<bool, FormatError>;

    /// What the table is ordered by.
    fn key(&self) -> &[u8];

    fn item(&self) -> Self::Item;
}

/// Goes through the names of a file.
pub(super) struct Names<'a> {
    blocks: Blocks<'a>,
    name: Vec<u8>,
    /// What will be the name, when it is used again.
    next: Vec<u8>,
    /// How many names were read.
    number: u32,
    started: bool,
}

impl Cursor for Names<'_> {
    type Item = u32;

    fn advance(&mut self) -> Result<bool, FormatError> {
        let Names { blocks, name, next, number, started } = self;
        let found = blocks.entry(|bytes, is_first| {
            let shared = usize::from(bytes.u8()?);
            let len = bytes.varint()?;
            let rest = bytes.take(len)?;
            let shared = name.get(..shared).filter(|shared| !is_first || shared.is_empty());
            next.clear();
            next.extend(shared.ok_or(bytes.damaged())?);
            next.extend(rest);
            if *started && *next <= *name {
                return Err(bytes.damaged());
            }
            Ok(())
        })?;
        core::mem::swap(name, next);
        *number += u32::from(found.is_some());
        *started = true;
        Ok(found.is_some())
    }

    fn key(&self) -> &[u8] {
        &self.name
    }

    fn item(&self) -> u32 {
        self.number - 1
    }
}

/// Goes through the contents of a file. Items are numbers of symbols.
pub(super) struct Contents<'a> {
    blocks: Blocks<'a>,
    digest: Option<[u8; 16]>,
    /// The number of the next one.
    number: u32,
}

impl Cursor for Contents<'_> {
    type Item = u32;

    fn advance(&mut self) -> Result<bool, FormatError> {
        let digest = self.blocks.entry(|bytes, _| bytes.array())?;
        if digest.is_some() && self.digest >= digest {
            return Err(FormatError::Damaged(SECTIONS[CONTENTS]));
        }
        self.digest = digest;
        self.number += u32::from(digest.is_some());
        Ok(digest.is_some())
    }

    fn key(&self) -> &[u8] {
        self.digest.as_ref().map_or(&[], |digest| digest.as_slice())
    }

    fn item(&self) -> u32 {
        self.number - 1
    }
}

/// Goes through the shapes of a file.
pub(super) struct Index<'a> {
    blocks: Blocks<'a>,
    shape: Option<[u8; 16]>,
    entry: IndexEntry,
    /// What was not yet referred to.
    rows: Section,
}

impl Cursor for Index<'_> {
    type Item = IndexEntry;

    fn advance(&mut self) -> Result<bool, FormatError> {
        let damaged = FormatError::Damaged(SECTIONS[INDEX]);
        let found = self.blocks.entry(|bytes, _| {
            let shape = bytes.array()?;
            Ok((shape, bytes.varint::<u64>()?, bytes.varint::<u64>()?, bytes.u32()?))
        })?;
        let Some((shape, rows, len, check)) = found else {
            self.shape = None;
            let is_all = self.rows.len == 0 && self.rows.entries == 0;
            return if is_all { Ok(false) } else { Err(damaged) };
        };
        let rest = self.rows.len.checked_sub(len).zip(self.rows.entries.checked_sub(rows));
        let is_right = self.shape < Some(shape) && 0 < rows && rows <= len;
        let (rest_len, rest_rows) = rest.filter(|_| is_right).ok_or(damaged)?;
        (self.rows.len, self.rows.entries) = (rest_len, rest_rows);
        self.entry = IndexEntry { at: self.entry.at + self.entry.len, len, rows, check };
        self.shape = Some(shape);
        Ok(true)
    }

    fn key(&self) -> &[u8] {
        self.shape.as_ref().map_or(&[], |shape| shape.as_slice())
    }

    fn item(&self) -> IndexEntry {
        self.entry
    }
}
