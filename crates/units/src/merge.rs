//! Merging sorted tables of several files, and files of summaries as a whole.
//!
//! The tables of all inputs are gone through in step, with a heap: merging n entries of k inputs
//! takes O(n log k), and holds one block of each input. Merging files of summaries takes beyond
//! that four bytes for each symbol and unit of the inputs, the index of the result, and the rows of
//! one shape.
//!
//! Rows of different inputs are of different units, and rows are ordered by unit first. So merging
//! never compares functions.

use crate::format::{FormatError, Sink};
use crate::summaries::{Cursor, Summaries};
use crate::summary::{Row, Writer};
use alloc::collections::BinaryHeap;
use alloc::collections::binary_heap::PeekMut;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;

/// Why summaries cannot be combined.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CombineError {
    /// An input is damaged.
    Input {
        /// Its number, from 0 on.
        input: usize,
        /// The error.
        error: FormatError,
    },
    /// Two inputs, or one of them twice, have a unit of this name.
    DuplicateUnit(String),
    /// An input is for another target, or made with other settings or another version, than the
    /// first one.
    Settings {
        /// Its number, from 0 on.
        input: usize,
    },
    /// All inputs together have more of this than can be numbered.
    TooLarge(&'static str),
    /// The result cannot be written.
    Output(FormatError),
}

impl fmt::Display for CombineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CombineError::Input { input, error } => write!(f, "summary {input}: {error}"),
            CombineError::DuplicateUnit(name) => write!(f, "two summaries of the unit `{name}`"),
            CombineError::Settings { input } => {
                write!(f, "summary {input} has another target, version or settings than summary 0")
            }
            CombineError::TooLarge(what) => write!(f, "too large: more than 2^32 {what}"),
            CombineError::Output(error) => write!(f, "output: {error}"),
        }
    }
}

impl core::error::Error for CombineError {}

/// A table of an input, at an entry.
struct Head<C> {
    cursor: C,
    input: usize,
}

impl<C: Cursor> Ord for Head<C> {
    fn cmp(&self, other: &Self) -> Ordering {
        // The least one is on top of the heap.
        (other.cursor.key(), other.input).cmp(&(self.cursor.key(), self.input))
    }
}

impl<C: Cursor> PartialOrd for Head<C> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<C: Cursor> PartialEq for Head<C> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<C: Cursor> Eq for Head<C> {}

/// The tables of all inputs, in step.
pub(super) struct Merge<C: Cursor> {
    heap: BinaryHeap<Head<C>>,
    key: Vec<u8>,
    /// The entries of this key, and the inputs that have them, ascending.
    items: Vec<(usize, C::Item)>,
}

impl<C: Cursor> Merge<C> {
    pub fn new(cursors: impl Iterator<Item = C>) -> Result<Self, CombineError> {
        let mut heads = Vec::new();
        for (input, mut cursor) in cursors.enumerate() {
            if cursor.advance().map_err(|error| CombineError::Input { input, error })? {
                heads.push(Head { cursor, input });
            }
        }
        Ok(Merge { heap: heads.into(), key: Vec::new(), items: Vec::new() })
    }

    /// Goes to the next key, and says whether there is one.
    pub fn advance(&mut self) -> Result<bool, CombineError> {
        self.items.clear();
        while let Some(mut head) = self.heap.peek_mut() {
            let key = head.cursor.key();
            if self.items.is_empty() {
                self.key.clear();
                self.key.extend(key);
            } else if key != self.key {
                break;
            }
            let input = head.input;
            self.items.push((input, head.cursor.item()));
            if !head.cursor.advance().map_err(|error| CombineError::Input { input, error })? {
                PeekMut::pop(head);
            }
        }
        Ok(!self.items.is_empty())
    }

    pub fn key(&self) -> &[u8] {
        &self.key
    }

    pub fn items(&self) -> &[(usize, C::Item)] {
        &self.items
    }
}

/// The units of all inputs.
pub(super) struct Units<'a> {
    pub settings: [u8; 32],
    /// Their names and numbers of functions, ascending by name.
    pub units: Vec<(&'a str, u64)>,
    /// The number of each unit of each input.
    pub numbers: Vec<Vec<u32>>,
}

/// Numbers the units of all inputs, which must have the same settings and different units.
pub(super) fn number_units<'a>(inputs: &'a [Summaries<'_>]) -> Result<Units<'a>, CombineError> {
    let settings = inputs.first().map_or([0; 32], |first| *first.settings());
    if let Some(input) = inputs.iter().position(|input| *input.settings() != settings) {
        return Err(CombineError::Settings { input });
    }
    let mut all = Vec::new();
    let mut numbers = Vec::new();
    for (input, summaries) in inputs.iter().enumerate() {
        let units = summaries.units();
        all.extend(
            units.iter().enumerate().map(|(at, unit)| (&*unit.name, unit.functions, input, at)),
        );
        numbers.push(alloc::vec![0; units.len()]);
    }
    if u32::try_from(all.len()).is_err() {
        return Err(CombineError::TooLarge("units"));
    }
    all.sort_unstable();
    if let Some(pair) = all.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(CombineError::DuplicateUnit(pair[0].0.into()));
    }
    for (number, &(_, _, input, at)) in all.iter().enumerate() {
        numbers[input][at] = number as u32;
    }
    let units = all.iter().map(|&(name, functions, ..)| (name, functions)).collect();
    Ok(Units { settings, units, numbers })
}

/// Writes the numbers that the symbols of a table have in the result.
fn merge_symbols<C: Cursor<Item = u32>>(
    cursors: impl Iterator<Item = C>,
    numbers: &mut [Vec<u32>],
    next: &mut u32,
    mut write: impl FnMut(&[u8]) -> Result<(), FormatError>,
) -> Result<(), CombineError> {
    let mut merge = Merge::new(cursors)?;
    while merge.advance()? {
        write(merge.key()).map_err(CombineError::Output)?;
        for &(input, _) in merge.items() {
            // Tables are gone through in the order of their numbers.
            numbers[input].push(*next);
        }
        *next = next.checked_add(1).ok_or(CombineError::TooLarge("symbols"))?;
    }
    Ok(())
}

/// Merges files of summaries to one, whose bytes depend only on the functions in them.
///
/// Takes O(n log k) for n functions, cells and bytes of names in k inputs. Memory: see the module.
///
/// Fails if an input is damaged, units have the same name, or settings differ. The output that was
/// written before the failure is to be dropped.
///
/// See the [example](crate#example).
pub fn merge_summaries(inputs: &[Summaries<'_>], out: &mut Sink<'_>) -> Result<(), CombineError> {
    let Units { settings, units, numbers: unit_numbers } = number_units(inputs)?;
    let output = CombineError::Output;
    let mut writer = Writer::new(settings, out).map_err(output)?;
    for (name, functions) in units {
        writer.unit(name, functions).map_err(output)?;
    }
    writer.finish_units().map_err(output)?;
    let mut numbers: Vec<Vec<u32>> = alloc::vec![Vec::new(); inputs.len()];
    let mut next = 0;
    let names = inputs.iter().map(Summaries::names);
    merge_symbols(names, &mut numbers, &mut next, |name| writer.name(name))?;
    writer.finish_names().map_err(output)?;
    let contents = inputs.iter().map(Summaries::contents);
    merge_symbols(contents, &mut numbers, &mut next, |digest| writer.content(digest))?;
    writer.finish_contents().map_err(output)?;
    let mut index = Merge::new(inputs.iter().map(Summaries::index))?;
    let (mut rows, mut buffer): (Vec<Row>, Vec<u8>) = Default::default();
    while index.advance()? {
        rows.clear();
        for (input, entry) in index.items() {
            let (symbols, units) = (&numbers[*input], &unit_numbers[*input]);
            let of_input = inputs[*input].rows(entry, &mut buffer);
            let of_input =
                of_input.map_err(|error| CombineError::Input { input: *input, error })?;
            rows.extend(of_input.into_iter().map(|mut row| {
                row.unit = units[row.unit as usize];
                row.name = symbols[row.name as usize];
                row.cells.iter_mut().for_each(|cell| *cell = cell.renumbered(symbols));
                row
            }));
        }
        // Rows of one unit are of one input, and in order.
        rows.sort_by_key(|row| row.unit);
        let shape = index.key().try_into().expect("keys of indexes are shapes");
        writer.shape(&shape, &rows).map_err(output)?;
    }
    writer.finish().map_err(output)
}
