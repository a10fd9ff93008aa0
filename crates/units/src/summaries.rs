//! Reading files of [summaries](super::summary).
//!
//! Opening a file reads its two ends and its units. Everything else is read block by block or shape
//! by shape, and verified as it is. This module does not decide anything, and does *not* keep the
//! functions of a file in memory.

use crate::cell::{Cell, FunctionSummary, Identity, UnitSummary};
use crate::format::{
    Blocks, Bytes, FormatError, HEADER, ReadAt, Section, checksum, read, read_into,
};
use crate::summary::{
    CONTENTS, END, INDEX, KIND, Limits, NAMES, ROWS, Row, SECTIONS, UNITS, symbol_hash, take_row,
};
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::fmt;

/// A unit of a file.
///
/// See the [example](crate#example).
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
///
/// See the [example](crate#example).
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

    /// The name of this number. Reads a block; the first time, the beginnings of all blocks of
    /// names.
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

    /// The summary of a unit, as it was before it was written, with functions and symbols in the
    /// order of the file. For tools and tests: reads the whole file.
    ///
    /// Panics if there are fewer units.
    pub fn unit(&self, number: usize) -> Result<UnitSummary, FormatError> {
        let unit = UnitEntry::clone(&self.units[number]);
        let (functions, symbols) = self.select(|row| row.unit as usize == number)?;
        let functions = functions.into_iter().map(|(_, function)| function).collect();
        Ok(UnitSummary { unit: unit.name, settings: self.settings, symbols, functions })
    }

    /// The functions of a symbol, each as the only one of the summary of its unit. For tools: reads
    /// the whole file.
    pub fn find(&self, symbol: &str) -> Result<Vec<UnitSummary>, FormatError> {
        let mut names = self.names();
        let mut number = None;
        while names.advance()? {
            if names.key() == symbol.as_bytes() {
                number = Some(names.item());
            }
        }
        let Some(number) = number else {
            return Ok(Vec::new());
        };
        let (functions, symbols) = self.select(|row| row.name == number)?;
        let of_unit = |(unit, function): (u32, FunctionSummary)| UnitSummary {
            unit: self.units[unit as usize].name.clone(),
            settings: self.settings,
            symbols: symbols.clone(),
            functions: alloc::vec![function],
        };
        Ok(functions.into_iter().map(of_unit).collect())
    }

    /// Some functions in the order of the file, each with the number of its unit, and the symbols
    /// that they use. Reads the whole file.
    #[expect(clippy::type_complexity, reason = "two lists")]
    fn select(
        &self,
        is_selected: impl Fn(&Row) -> bool,
    ) -> Result<(Vec<(u32, FunctionSummary)>, Vec<Identity>), FormatError> {
        let mut rows: Vec<([u8; 16], Row)> = Vec::new();
        let (mut index, mut buffer) = (self.index(), Vec::new());
        let mut used = alloc::vec![u32::MAX; self.symbols() as usize];
        while index.advance()? {
            let (Some(shape), entry) = (index.shape, index.item()) else { break };
            for row in self.rows(&entry, &mut buffer)? {
                if is_selected(&row) {
                    let symbols = row.cells.iter().filter_map(Cell::symbol);
                    symbols.for_each(|symbol| used[symbol as usize] = 0);
                    rows.push((shape, row));
                }
            }
        }
        let mut found: Vec<Identity> = Vec::new();
        let mut names = self.names();
        while names.advance()? {
            let number = &mut used[names.item() as usize];
            if *number == 0 {
                *number = found.len() as u32;
                let name = String::from_utf8(names.key().to_vec());
                let name = name.map_err(|_| FormatError::Damaged(SECTIONS[NAMES]))?;
                found.push(Identity::Name(name));
            }
        }
        let mut contents = self.contents();
        while contents.advance()? {
            let number = &mut used[contents.item() as usize];
            if let (0, Some(digest)) = (*number, contents.digest) {
                *number = found.len() as u32;
                found.push(Identity::Content(digest));
            }
        }
        let mut functions = Vec::with_capacity(rows.len());
        for (shape, row) in rows {
            let Row { unit, name, linkage, hot, bytes, cells } = row;
            let cells = cells.iter().map(|cell| cell.renumbered(&used)).collect();
            let symbol = self.name(name)?;
            functions.push((unit, FunctionSummary { shape, symbol, linkage, hot, bytes, cells }));
        }
        Ok((functions, found))
    }
}

/// Goes through a table in ascending order.
pub(super) trait Cursor {
    type Item: Copy;

    /// Goes to the next entry, and says whether there is one.
    fn advance(&mut self) -> Result<bool, FormatError>;

    /// The key of the order of the table.
    fn key(&self) -> &[u8];

    fn item(&self) -> Self::Item;
}

/// Goes through the names of a file.
pub(super) struct Names<'a> {
    blocks: Blocks<'a>,
    name: Vec<u8>,
    /// The memory of the next name.
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
    /// Rows that nothing referred to yet.
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
