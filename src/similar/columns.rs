//! Columns: the places at which functions of one shape differ.
//!
//! Functions with equal shape streams are one walk: the same instructions over the same operands. What is
//! left are constants and references, each at a place that the shape fixes. So such functions are a table,
//! with a row for each function and a column for each place that has a constant or a reference. A column
//! with one value says nothing; all others have to become parameters.
//!
//! This module reads the streams that the canonical walk wrote, and compares bytes. It does *not* know what
//! an instruction is, nor what pays.

use crate::canon::{Mark, Place};
use crate::encoding::{Encoding, Reference, references};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// Functions of one shape. `K` is what a value stands for.
pub(super) struct Table<K> {
    places: Vec<At<K>>,
    rows: Vec<Row>,
}

/// A place that has a constant or a reference.
struct At<K> {
    /// In the first function.
    place: Place,
    /// `None` if nothing else could stand here.
    kind: Option<K>,
    /// Its part of the constants stream, the same in all functions.
    constants: Range<usize>,
    /// How many references it has.
    references: usize,
}

/// The values of one function.
struct Row {
    bytes: Box<[u8]>,
    /// Where each column ends.
    ends: Box<[u32]>,
    /// What cannot become a parameter.
    fixed: Box<[u8]>,
}

impl Row {
    fn cell(&self, column: usize) -> &[u8] {
        let start = column.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[column] as usize]
    }
}

/// Columns in which rows differ, each row having the same value in all of them.
pub(super) struct Columns<K> {
    /// Their numbers, ascending: those of the places in every function of the table.
    pub numbers: Vec<usize>,
    pub kind: K,
    /// For each row the first row that has the same value.
    pub same_as: Box<[u32]>,
}

impl<K: Copy + Eq> Table<K> {
    /// A table for functions of the shape of `encoding`, whose walk came by `marks`. It has no rows yet.
    pub fn new(encoding: &Encoding, marks: &[Mark], kind: impl Fn(Place) -> Option<K>) -> Table<K> {
        let mut places = Vec::new();
        for (at, mark) in marks.iter().enumerate() {
            let next = marks.get(at + 1);
            let end = next.map_or(encoding.constants.len(), |next| next.constants);
            let constants = mark.constants..end;
            let end = next.map_or(encoding.references.len(), |next| next.references);
            let references = references(&encoding.references[mark.references..end]).count();
            if !constants.is_empty() || references > 0 {
                let place = mark.place;
                places.push(At { place, kind: kind(place), constants, references });
            }
        }
        Table { places, rows: Vec::new() }
    }

    /// The places of the columns.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.places.iter().map(|at| at.place)
    }

    /// Adds a function of this shape. `value` writes what a reference is compared by, and tells whether
    /// another one could stand in its place. Linear in the size of the streams.
    pub fn push(
        &mut self,
        encoding: &Encoding,
        mut value: impl FnMut(K, Reference<'_>, &mut Vec<u8>) -> bool,
    ) {
        let (mut bytes, mut fixed) = (Vec::new(), Vec::new());
        let mut ends = Vec::with_capacity(self.places.len());
        let mut names = references(&encoding.references);
        let mut nodes = encoding.callees.iter();
        for At { place: _, kind, constants, references } in &self.places {
            let start = bytes.len();
            bytes.extend_from_slice(&encoding.constants[constants.clone()]);
            let mut is_fixed = kind.is_none();
            for name in names.by_ref().take(*references) {
                let reference = match name {
                    Some(name) => Reference::Name(name),
                    None => Reference::Node(*nodes.next().expect("one for each")),
                };
                match kind {
                    Some(kind) => is_fixed |= !value(*kind, reference, &mut bytes),
                    None => reference.write(&mut bytes),
                }
            }
            ends.push(u32::try_from(bytes.len()).expect("less than a function takes"));
            fixed.push(u8::from(is_fixed));
            if is_fixed {
                fixed.extend_from_slice(&(bytes.len() - start).to_le_bytes());
                fixed.extend_from_slice(&bytes[start..]);
            }
        }
        let (bytes, ends, fixed) = (bytes.into(), ends.into(), fixed.into());
        self.rows.push(Row { bytes, ends, fixed });
    }

    /// Rows that have everything in common that cannot become a parameter: each set ascending, and the sets
    /// in the order of their first rows.
    pub fn sets(&self) -> Vec<Vec<u32>> {
        let mut number: HashMap<&[u8], usize, FxBuildHasher> = HashMap::default();
        let mut sets: Vec<Vec<u32>> = Vec::new();
        for (at, row) in (0..).zip(&self.rows) {
            let set = *number.entry(&row.fixed).or_insert(sets.len());
            if set == sets.len() {
                sets.push(Vec::new());
            }
            sets[set].push(at);
        }
        sets
    }

    /// The columns in which `rows` differ, those with the same values together. Linear in their sizes.
    pub fn columns(&self, rows: &[u32]) -> Vec<Columns<K>> {
        let mut columns: Vec<Columns<K>> = Vec::new();
        let mut known: HashMap<Vec<&[u8]>, Vec<usize>, FxBuildHasher> = HashMap::default();
        for (number, at) in self.places.iter().enumerate() {
            let cells = || rows.iter().map(|&row| self.rows[row as usize].cell(number));
            let Some(kind) = at.kind else { continue };
            if cells().all(|cell| Some(cell) == cells().next()) {
                continue;
            }
            let known = known.entry(cells().collect()).or_default();
            if let Some(&same) = known.iter().find(|&&same| columns[same].kind == kind) {
                columns[same].numbers.push(number);
                continue;
            }
            known.push(columns.len());
            let mut first: HashMap<&[u8], u32, FxBuildHasher> = HashMap::default();
            let same_as = (0..).zip(cells()).map(|(at, cell)| *first.entry(cell).or_insert(at));
            columns.push(Columns {
                numbers: alloc::vec![number],
                kind,
                same_as: same_as.collect(),
            });
        }
        columns
    }
}
