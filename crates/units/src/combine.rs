//! Combining summaries: shape by shape, the functions of all units are decided about, and the map
//! is written.
//!
//! The indexes of all inputs are gone through in step, in ascending order of shapes. Functions
//! whose shape no other function has are never read. Functions of a shape are in an order that
//! depends only on the set of all functions, and nothing that is shown of them depends on the files
//! in which they are. So it makes no difference to the map how summaries were merged before, nor in
//! which order they are combined.
//!
//! Takes O(n log k) for n functions, cells and bytes of names in k inputs, and what deciding takes.
//! Memory: eight bytes for each symbol of the inputs, 32 for each record of a map that is written,
//! a block of the index of each input, and the functions of one shape.
//!
//! This module does *not* decide.

use crate::cell::Cell;
use crate::format::{FormatError, Sink};
use crate::linkage::Linkage;
use crate::merge::{CombineError, Merge, Units, number_units};
use crate::sharing_map::{SharedSet, Writer};
use crate::summaries::Summaries;
use crate::summary::{Row, cell_hash};
use alloc::string::String;
use alloc::vec::Vec;
use xxhash_rust::xxh3::Xxh3;

/// All functions of a shape, two or more.
///
/// See the [example](crate#example).
pub struct Group<'a> {
    /// The shape.
    pub shape: [u8; 16],
    /// Its functions, by unit, name, linkage, mark, sizes and cells.
    pub rows: Vec<GroupRow>,
    inputs: &'a [Summaries<'a>],
    /// The names of all units, ascending, with the numbers of their functions.
    units: &'a [(&'a str, u64)],
}

/// A function of a group.
///
/// See the [example](crate#example).
#[derive(Clone, Debug)]
pub struct GroupRow {
    /// The number of its unit, in the order of the names of all units.
    pub unit: u32,
    /// Its visibility.
    pub linkage: Linkage,
    /// Whether it is marked as hot.
    pub hot: bool,
    /// The predicted bytes of its native code on x86-64 and on aarch64.
    pub bytes: [u32; 2],
    /// Its value at each place.
    pub cells: Vec<GroupCell>,
    input: u32,
    name: u32,
}

/// The value of a function of a group at a place.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupCell {
    /// Equal for equal cells, whatever their units.
    pub hash: u64,
    /// The cell. Its symbol is always 0: only the hash says which it is.
    pub cell: Cell,
}

impl Group<'_> {
    /// The symbol of a function of the group, for reports. Reads a block of the file in which it
    /// is.
    pub fn symbol(&self, row: &GroupRow) -> Result<String, FormatError> {
        self.inputs[row.input as usize].name(row.name)
    }

    /// The name of the unit of a function of the group.
    pub fn unit(&self, row: &GroupRow) -> &str {
        self.units[row.unit as usize].0
    }

    /// The same group with some of its functions only, by their numbers: what would be decided
    /// about these alone.
    ///
    /// Panics if there are fewer functions.
    pub fn only(&self, rows: &[u32]) -> Group<'_> {
        let rows = rows.iter().map(|&row| self.rows[row as usize].clone()).collect();
        Group { shape: self.shape, rows, inputs: self.inputs, units: self.units }
    }
}

/// Functions of a group that are to share a body.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetDecision {
    /// The columns of each parameter, ascending.
    pub parameters: Vec<Vec<u32>>,
    /// The [hash](fixed_hash) of all other columns.
    pub fixed: u64,
    /// The numbers of its functions in the group.
    pub rows: Vec<u32>,
    /// How many bytes it saves, for reports.
    pub saved: i64,
}

/// A hash of what functions have at the places that are of no parameter: XXH3-64 of the number of
/// each such column, and the hash of what is there, for all columns in order.
///
/// See the [example](crate#example).
pub fn fixed_hash(hashes: impl ExactSizeIterator<Item = u64>, parameters: &[Vec<u32>]) -> u64 {
    let mut is_fixed = alloc::vec![true; hashes.len()];
    for &column in parameters.iter().flatten() {
        if let Some(is_fixed) = is_fixed.get_mut(column as usize) {
            *is_fixed = false;
        }
    }
    let mut hasher = Xxh3::new();
    for (column, (hash, is_fixed)) in hashes.zip(is_fixed).enumerate() {
        if is_fixed {
            hasher.update(&(column as u32).to_le_bytes());
            hasher.update(&hash.to_le_bytes());
        }
    }
    hasher.digest()
}

/// Where a part is written: the name of the unit, and the next bytes of its part.
///
/// See the [example](crate#example).
pub type PartSink<'a> = dyn FnMut(&str, &[u8]) -> Result<(), FormatError> + 'a;

/// The files that combining writes.
///
/// See the [example](crate#example).
#[derive(Default)]
pub struct Outputs<'s, 'f> {
    /// The map for all units.
    pub map: Option<&'s mut Sink<'f>>,
    /// A map for each unit, with only the shapes of which a function of this unit is in a set. All
    /// sets of these shapes are in it, without members and saved bytes: it changes only if what the
    /// unit makes can change. Pieces for different units alternate.
    pub parts: Option<&'s mut PartSink<'f>>,
}

/// The counts of combined summaries.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Combined {
    /// The number of units.
    pub units: u64,
    /// The number of functions.
    pub functions: u64,
    /// The number of shapes.
    pub shapes: u64,
    /// The shapes that two or more functions have.
    pub groups: u64,
    /// The functions of these shapes.
    pub grouped: u64,
    /// The sets that were decided.
    pub sets: u64,
    /// The functions in them.
    pub members: u64,
    /// The bytes that they save, added up.
    pub saved: i64,
}

/// Combines summaries: has the functions of each shape decided about, and writes the sets.
///
/// Fails if an input is damaged, units have the same name, or settings differ; the output written
/// before that is to be dropped. Panics if a decision is not well-formed: columns of a parameter
/// ascend, rows are numbers of rows.
///
/// See the [example](crate#example).
pub fn combine(
    inputs: &[Summaries<'_>],
    decide: &mut dyn FnMut(&Group<'_>) -> Vec<SetDecision>,
    outputs: &mut Outputs<'_, '_>,
) -> Result<Combined, CombineError> {
    let Units { settings, units, numbers } = number_units(inputs)?;
    let failed = CombineError::Output;
    let mut combined = Combined { units: units.len() as u64, ..Combined::default() };
    combined.functions = units.iter().map(|(_, functions)| functions).sum();
    let mut hashes: Vec<Vec<u64>> = Vec::new();
    for (input, summaries) in inputs.iter().enumerate() {
        let of_input = summaries.identity_hashes();
        hashes.push(of_input.map_err(|error| CombineError::Input { input, error })?);
    }
    let mut map = Writer::default();
    if let Some(sink) = &mut outputs.map {
        map.start(&settings, sink).map_err(failed)?;
    }
    let mut parts: Vec<Writer> = Vec::new();
    if let Some(sink) = &mut outputs.parts {
        for (name, _) in &units {
            let mut part = Writer::default();
            part.start(&settings, &mut |bytes| sink(name, bytes)).map_err(failed)?;
            parts.push(part);
        }
    }
    let mut index = Merge::new(inputs.iter().map(Summaries::index))?;
    let mut buffer = Vec::new();
    while index.advance()? {
        combined.shapes += 1;
        let count =
            index.items().iter().fold(0u64, |sum, (_, entry)| sum.saturating_add(entry.rows));
        if count < 2 {
            continue;
        }
        let shape = index.key().try_into().expect("keys of indexes are shapes");
        let mut group = Group { shape, rows: Vec::new(), inputs, units: &units };
        for (input, entry) in index.items() {
            let rows = inputs[*input].rows(entry, &mut buffer);
            let rows = rows.map_err(|error| CombineError::Input { input: *input, error })?;
            let (units, hashes) = (&numbers[*input], &hashes[*input]);
            group.rows.extend(rows.into_iter().map(|row| resolved(row, *input, units, hashes)));
        }
        // Rows of one unit are of one input, and in order.
        group.rows.sort_by_key(|row| row.unit);
        combined.groups += 1;
        combined.grouped += count;
        let decisions = decide(&group);
        if decisions.is_empty() {
            continue;
        }
        for decision in &decisions {
            combined.sets += 1;
            combined.members += decision.rows.len() as u64;
            combined.saved = combined.saved.saturating_add(decision.saved);
        }
        let sets: Vec<SharedSet> = decisions.iter().map(shared_set).collect();
        if let Some(sink) = &mut outputs.map {
            map.record(&shape, &sets, sink).map_err(failed)?;
        }
        if let Some(sink) = &mut outputs.parts {
            let rows = decisions.iter().flat_map(|decision| &decision.rows);
            let mut with: Vec<u32> = rows.map(|&row| group.rows[row as usize].unit).collect();
            with.sort_unstable();
            with.dedup();
            let without = |set| SharedSet { members: 0, saved: 0, ..set };
            let sets: Vec<SharedSet> = sets.into_iter().map(without).collect();
            for unit in with {
                let (name, _) = units[unit as usize];
                let part = &mut parts[unit as usize];
                part.record(&shape, &sets, &mut |bytes| sink(name, bytes)).map_err(failed)?;
            }
        }
    }
    if let Some(sink) = &mut outputs.map {
        map.finish(&settings, sink).map_err(failed)?;
    }
    if let Some(sink) = &mut outputs.parts {
        for (part, (name, _)) in parts.into_iter().zip(&units) {
            part.finish(&settings, &mut |bytes| sink(name, bytes)).map_err(failed)?;
        }
    }
    Ok(combined)
}

/// A row with what its symbols mean.
fn resolved(row: Row, input: usize, units: &[u32], hashes: &[u64]) -> GroupRow {
    let Row { unit, name, linkage, hot, bytes, cells } = row;
    let cells = cells.iter().map(|cell| {
        let hash = cell_hash(cell, |symbol| hashes[symbol as usize]);
        GroupCell { hash, cell: cell.with_symbol(|_| 0) }
    });
    let cells = cells.collect();
    let unit = units[unit as usize];
    GroupRow { unit, linkage, hot, bytes, cells, input: input as u32, name }
}

fn shared_set(decision: &SetDecision) -> SharedSet {
    let SetDecision { parameters, fixed, rows, saved } = decision;
    let members = rows.len() as u32;
    SharedSet { parameters: parameters.clone(), fixed: *fixed, members, saved: *saved }
}
