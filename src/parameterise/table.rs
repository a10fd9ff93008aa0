//! Functions of one shape as a table: a row for each function, a column for each place at which it
//! has a constant or a reference.
//!
//! Functions with equal shape streams are one walk: the same instructions over the same operands.
//! Their constants and references are at places that the shape fixes. A column with one value
//! carries no information; columns with the same values in every row are one parameter; all others
//! are parameters of their own. This module compares; it does *not* know what pays.

use super::value::{Symbols, Value, blocks_with_addresses};
use crate::apply::KeptCalls;
use crate::canon::{Encoding, Mark, Place, Scratch};
use crate::interner::Interner;
use crate::unit::{FunctionIndex, Linkage};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::Hash;
use cranelift_codegen::ir::{Function, Signature, UserExternalName};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// A number for each distinct content of a cell.
pub(super) type Cell = u32;

/// A call of the function itself: one content for every function of the table.
const ITSELF: Cell = 0;

/// Functions of one shape.
pub(super) struct Table {
    /// The calls that are compared as they are written.
    written: Arc<KeptCalls>,
    width: usize,
    functions: Vec<FunctionIndex>,
    /// The places of the columns in the first function.
    pub places: Vec<Place>,
    /// Row by row.
    cells: Vec<Cell>,
    /// The value of each cell; `None` if it cannot become a parameter.
    values: Vec<Option<Value>>,
    keys: Interner<Box<[u8]>>,
    signatures: Interner<Signature>,
}

/// Columns in which some rows have different values, and each row has the same value in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    /// Their numbers, ascending.
    pub columns: Vec<usize>,
}

/// Functions that differ, and only where parameters can stand: two or more.
pub(super) struct Set<'a> {
    pub table: &'a Table,
    /// Ascending.
    pub rows: Vec<u32>,
    pub parameters: Vec<Parameter>,
}

impl Table {
    pub fn new(written: &Arc<KeptCalls>) -> Table {
        let mut table = Table {
            written: written.clone(),
            width: 0,
            functions: Vec::new(),
            places: Vec::new(),
            cells: Vec::new(),
            values: Vec::new(),
            keys: Interner::default(),
            signatures: Interner::default(),
        };
        let itself = table.cell(&[0], None);
        debug_assert_eq!(itself, ITSELF);
        table
    }

    fn cell(&mut self, key: &[u8], value: Option<Value>) -> Cell {
        // Most cells are those of the row before.
        let above = self.cells.len().checked_sub(self.width).and_then(|at| self.cells.get(at));
        if let Some(&above) = above
            && **self.keys.value(above) == *key
        {
            return above;
        }
        let cell: Cell = self.keys.number(key, Box::from);
        if cell as usize == self.values.len() {
            self.values.push(value);
        }
        cell
    }

    /// The calls that are compared as they are written.
    pub fn written(&self) -> &KeptCalls {
        &self.written
    }

    pub fn len(&self) -> usize {
        self.functions.len()
    }

    pub fn width(&self) -> usize {
        self.width
    }

    pub fn function(&self, row: u32) -> FunctionIndex {
        self.functions[row as usize]
    }

    fn row(&self, row: u32) -> &[Cell] {
        &self.cells[row as usize * self.width..][..self.width]
    }

    /// The cell of a row in a column.
    pub fn at(&self, row: u32, column: usize) -> Cell {
        self.row(row)[column]
    }

    /// The cells of some rows in some columns, each once, ascending.
    pub fn distinct<'c>(
        &self,
        rows: &[u32],
        columns: impl IntoIterator<Item = &'c usize>,
    ) -> Vec<Cell> {
        let columns = columns.into_iter();
        let mut cells: Vec<Cell> =
            columns.flat_map(|&column| rows.iter().map(move |&row| self.at(row, column))).collect();
        cells.sort_unstable();
        cells.dedup();
        cells
    }

    /// The value of a cell, if it can become a parameter.
    pub fn value(&self, cell: Cell) -> Option<&Value> {
        self.values[cell as usize].as_ref()
    }

    /// The columns in which a function calls itself.
    pub fn calls_itself(&self, row: u32) -> impl Iterator<Item = usize> + '_ {
        let cells = self.row(row).iter().enumerate();
        cells.filter(|&(_, &cell)| cell == ITSELF).map(|(column, _)| column)
    }

    /// Adds a function of the shape of the table, which was just walked. Linear in the number of
    /// its places.
    pub fn push(
        &mut self,
        function: FunctionIndex,
        body: &Function,
        scratch: &Scratch,
        encoding: &Encoding,
        symbols: &Symbols<'_>,
    ) {
        let entry = symbols.plan.entry(function);
        // A call of a preemptible function, also by itself, goes to the definition that takes its
        // symbol.
        let own = (entry.attributes().linkage != Linkage::Preemptible).then_some(entry.symbol());
        let start = self.cells.len();
        let addressed = blocks_with_addresses(body);
        let Scratch { marks, arguments, .. } = scratch;
        let mut key = Vec::new();
        for (column, (mark, ranges)) in places(marks, encoding).enumerate() {
            debug_assert!(self.functions.is_empty() || column < self.width, "another shape");
            let value = mark.operand.and_then(|operand| {
                symbols.value_of(body, (mark.place, operand), arguments, &addressed)
            });
            key.clear();
            match &value {
                Some(Value::Constant { ty, bits }) => {
                    key.push(2);
                    key.extend_from_slice(&(ty.index() as u16).to_le_bytes());
                    key.extend_from_slice(&bits.to_le_bytes());
                }
                Some(Value::Offset { ty, bytes }) => {
                    key.push(3);
                    key.extend_from_slice(&(ty.index() as u16).to_le_bytes());
                    key.extend_from_slice(&bytes.to_le_bytes());
                }
                // A mismatched self-call is an ordinary callee: it is not known which arguments it
                // would have to pass on.
                Some(Value::Callee { symbol, signature, .. })
                    if Some(symbol) == own && **signature == body.signature =>
                {
                    key.push(0);
                }
                // By symbol: equal functions that both stay are different callees.
                Some(Value::Callee { ty: _, symbol, signature, colocated: _, direct: _ }) => {
                    key.push(4);
                    push_symbol(&mut key, symbol);
                    key.extend_from_slice(
                        &self.signatures.number(&**signature, Signature::clone).to_le_bytes(),
                    );
                }
                Some(Value::Function { ty: _, symbol, signature, colocated: _ }) => {
                    key.push(5);
                    push_symbol(&mut key, symbol);
                    key.extend_from_slice(
                        &self.signatures.number(&**signature, Signature::clone).to_le_bytes(),
                    );
                }
                Some(Value::Address { ty: _, symbol, offset, colocated: _ }) => {
                    key.push(6);
                    push_symbol(&mut key, symbol);
                    key.extend_from_slice(&offset.to_le_bytes());
                }
                None => {
                    key.push(1);
                    key.extend_from_slice(ranges.constants);
                    key.extend_from_slice(ranges.references);
                }
            }
            let value = value.filter(|_| *key != [0]);
            let cell = self.cell(&key, value);
            self.cells.push(cell);
        }
        let width = self.cells.len() - start;
        if self.functions.is_empty() {
            self.width = width;
            self.places = columns(marks, encoding);
        }
        assert_eq!(self.width, width, "functions of one shape have the same places");
        self.functions.push(function);
    }

    /// Sets of rows that agree in everything that cannot become a parameter: each set ascending,
    /// and the sets in the order of their first rows.
    pub fn sets(&self) -> Vec<Vec<u32>> {
        let mut number: HashMap<Vec<(usize, Cell)>, usize, FxBuildHasher> = HashMap::default();
        let mut sets: Vec<Vec<u32>> = Vec::new();
        for row in 0..self.len() as u32 {
            let cells = self.row(row).iter().copied().enumerate();
            let fixed = cells.filter(|&(_, cell)| self.value(cell).is_none()).collect();
            let set = *number.entry(fixed).or_insert(sets.len());
            if set == sets.len() {
                sets.push(Vec::new());
            }
            sets[set].push(row);
        }
        sets
    }

    /// The columns in which `rows` differ, grouped by equal values, in the order of the walk.
    /// Linear in their sizes.
    pub fn parameters(&self, rows: &[u32]) -> Vec<Parameter> {
        parameters_of(self.width, rows, |row, column| self.at(row, column))
    }
}

/// The columns in which `rows` differ, grouped by equal values, in the order of the columns. Linear
/// in their sizes.
pub(super) fn parameters_of<C: Copy + Eq + Hash>(
    width: usize,
    rows: &[u32],
    at: impl Fn(u32, usize) -> C,
) -> Vec<Parameter> {
    let mut parameters: Vec<Parameter> = Vec::new();
    let mut known: HashMap<Vec<C>, usize, FxBuildHasher> = HashMap::default();
    for column in 0..width {
        let first = at(rows[0], column);
        if rows.iter().all(|&row| at(row, column) == first) {
            continue;
        }
        let cells: Vec<C> = rows.iter().map(|&row| at(row, column)).collect();
        let number = *known.entry(cells).or_insert(parameters.len());
        match parameters.get_mut(number) {
            Some(parameter) => parameter.columns.push(column),
            None => parameters.push(Parameter { columns: alloc::vec![column] }),
        }
    }
    parameters
}

impl<'a> Set<'a> {
    /// The sets of a table.
    pub fn of(table: &'a Table) -> impl Iterator<Item = Set<'a>> {
        let sets = table.sets().into_iter().filter(|rows| rows.len() > 1);
        let sets = sets.map(move |rows| Set { table, parameters: table.parameters(&rows), rows });
        // Without equal functions that were not merged.
        sets.filter(|set| !set.parameters.is_empty())
    }

    /// The symbols that could become extra arguments: those in which functions differ.
    pub fn symbols(&self) -> impl Iterator<Item = &'a UserExternalName> {
        let Set { table, rows, parameters } = self;
        let cells = parameters
            .iter()
            .flat_map(|parameter| rows.iter().map(|&row| table.at(row, parameter.columns[0])));
        cells.filter_map(|cell| match table.value(cell)? {
            Value::Constant { .. } | Value::Offset { .. } => None,
            Value::Callee { symbol, .. }
            | Value::Function { symbol, .. }
            | Value::Address { symbol, .. } => Some(symbol),
        })
    }
}

/// The parts of the streams that were written at a place.
pub(super) struct Ranges<'a> {
    pub constants: &'a [u8],
    pub references: &'a [u8],
}

/// The places of a walk that have a constant or a reference, in order: the columns.
pub(super) fn places<'a>(
    marks: &'a [Mark],
    encoding: &'a Encoding,
) -> impl Iterator<Item = (&'a Mark, Ranges<'a>)> {
    let Encoding { constants, references, .. } = encoding;
    marks.iter().enumerate().filter_map(move |(at, mark)| {
        let next = marks.get(at + 1);
        let ends = next
            .map_or([constants.len(), references.len()], |next| [next.constants, next.references]);
        let ranges = Ranges {
            constants: &constants[mark.constants..ends[0]],
            references: &references[mark.references..ends[1]],
        };
        let empty = ranges.constants.is_empty() && ranges.references.is_empty();
        (!empty).then_some((mark, ranges))
    })
}

/// The places of the columns.
pub(super) fn columns(marks: &[Mark], encoding: &Encoding) -> Vec<Place> {
    places(marks, encoding).map(|(mark, _)| mark.place).collect()
}

fn push_symbol(key: &mut Vec<u8>, symbol: &UserExternalName) {
    let UserExternalName { namespace, index } = symbol;
    key.extend_from_slice(&namespace.to_le_bytes());
    key.extend_from_slice(&index.to_le_bytes());
}
