//! Which functions of one shape, of all units, share a body, and by which parameters.
//!
//! The functions of a shape are divided as those of one unit are (`split`), by what their summaries say. Sizes are predicted, and each
//! function is counted with a thunk: whether its callers could pass the extra arguments is known to its unit only. It
//! does *not* compare code.

use super::super::attempts::Share;
use super::super::split::{Column, Part, Problem, Row};
use super::super::{cost, table};
use crate::across::Cell;
use crate::options::Policy;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// A function of one shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupRow<'a> {
    /// The predicted bytes of its code.
    pub bytes: u32,
    pub hot: bool,
    /// What it has at each place, and a hash of that which means the same in all units.
    pub cells: &'a [(u64, Cell)],
}

/// Functions that share a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// The numbers of the functions, ascending, two or more.
    pub rows: Vec<u32>,
    /// The columns of each parameter, ascending; none if the functions are equal.
    pub parameters: Vec<Vec<u32>>,
    /// The bytes that they save, roughly.
    pub saved: i64,
}

/// Bytes of a jump on x86-64; one more than on aarch64.
const JUMP: i64 = 5;

/// How many extra arguments find a register, roughly; each further one takes [`FURTHER`] bytes more.
const REGISTERS: usize = 4;
const FURTHER: i64 = 4;

/// The sets of functions of one shape that share bodies, those that save most first. O(n log n) in the number of functions.
///
/// The result depends on the rows and their order only.
pub(crate) fn decide(rows: &[GroupRow<'_>], policy: Policy) -> Vec<Decision> {
    let share = match policy {
        Policy::Off | Policy::Balanced => Share::Eighth,
        Policy::Size => Share::Anything,
    };
    let mut decisions = Vec::new();
    for rows_of_set in comparable(rows) {
        // Functions that are equal do not slow down by sharing code, but for a jump.
        let parameters = parameters(rows, &rows_of_set);
        if parameters.is_empty() {
            decisions.extend(equal(rows, rows_of_set));
            continue;
        }
        if policy == Policy::Off {
            for equal_rows in groups_of_equal(rows, &rows_of_set) {
                decisions.extend(equal(rows, equal_rows));
            }
            continue;
        }
        divide(rows, &rows_of_set, &parameters, policy, share, &mut decisions);
    }
    decisions.sort_by_key(|decision| (-decision.saved, decision.rows[0]));
    decisions
}

/// Groups of two or more rows that agree where nothing can be passed, in the order of their first rows.
fn comparable(rows: &[GroupRow<'_>]) -> Vec<Vec<u32>> {
    group(rows, 0..rows.len() as u32, |row| {
        let cells = row.cells.iter().enumerate();
        let fixed = cells.filter(|(_, (_, cell))| matches!(cell, Cell::Fixed(_) | Cell::Itself));
        // Rows of one shape have the same number of cells, unless digests collide.
        let fixed = fixed.map(|(column, (hash, _))| (column as u64, *hash));
        core::iter::once((row.cells.len() as u64, 0)).chain(fixed).collect()
    })
}

/// Groups of two or more equal rows.
fn groups_of_equal(rows: &[GroupRow<'_>], of: &[u32]) -> Vec<Vec<u32>> {
    group(rows, of.iter().copied(), |row| row.cells.iter().map(|&(hash, _)| (hash, 0)).collect())
}

fn group(
    rows: &[GroupRow<'_>],
    of: impl Iterator<Item = u32>,
    key: impl Fn(&GroupRow<'_>) -> Vec<(u64, u64)>,
) -> Vec<Vec<u32>> {
    let mut number: HashMap<Vec<(u64, u64)>, usize, FxBuildHasher> = HashMap::default();
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for row in of {
        let next = groups.len();
        let group = *number.entry(key(&rows[row as usize])).or_insert(next);
        if group == next {
            groups.push(Vec::new());
        }
        groups[group].push(row);
    }
    groups.retain(|group| group.len() > 1);
    groups
}

/// The columns in which these rows differ, grouped by equal values.
fn parameters(rows: &[GroupRow<'_>], of: &[u32]) -> Vec<table::Parameter> {
    let hash = |row: u32, column: usize| rows[row as usize].cells[column].0;
    let width = rows[of[0] as usize].cells.len();
    table::parameters_of(width, of, hash)
}

/// The decision that equal functions share their code, if that pays.
fn equal(rows: &[GroupRow<'_>], of: Vec<u32>) -> Option<Decision> {
    let bytes = i64::from(rows[of[0] as usize].bytes);
    let saved = (of.len() as i64 - 1) * bytes - of.len() as i64 * JUMP;
    (saved > 0).then_some(Decision { rows: of, parameters: Vec::new(), saved })
}

/// Divides rows that differ in these parameters into sets that pay.
fn divide(
    rows: &[GroupRow<'_>],
    of: &[u32],
    parameters: &[table::Parameter],
    policy: Policy,
    share: Share,
    decisions: &mut Vec<Decision>,
) {
    // With `Balanced`, functions that are hot share code with equal ones only.
    let (of, hot): (Vec<u32>, Vec<u32>) =
        of.iter().partition(|&&row| policy == Policy::Size || !rows[row as usize].hot);
    for equal_rows in groups_of_equal(rows, &hot) {
        decisions.extend(equal(rows, equal_rows));
    }
    if of.len() < 2 {
        return;
    }
    let problem = problem(rows, &of, parameters, policy);
    let mut parts = alloc::vec![(Part::whole(&problem), false)];
    while let Some((part, must)) = parts.pop() {
        if let Some(into) = problem.divide(&part, must) {
            parts.extend(into.into_iter().rev().map(|part| (part, false)));
            continue;
        }
        let members: Vec<u32> = part.rows.iter().map(|&row| of[row as usize]).collect();
        let own = self::parameters(rows, &members);
        if own.is_empty() {
            decisions.extend(equal(rows, members));
            continue;
        }
        let saved = match problem.allows(&part.rows) && own.len() < cost::MAX_PARAMETERS {
            true => problem.profit_of_one(&part.rows),
            false => i64::MIN / 4,
        };
        if share.is_reached(saved, members.len() as i64 * problem.body) {
            let columns = |parameter: table::Parameter| {
                parameter.columns.into_iter().map(|column| column as u32).collect()
            };
            let parameters = own.into_iter().map(columns).collect();
            decisions.push(Decision { rows: members, parameters, saved });
        } else if !must {
            parts.push((part, true));
        }
    }
}

fn problem(
    rows: &[GroupRow<'_>],
    of: &[u32],
    parameters: &[table::Parameter],
    policy: Policy,
) -> Problem {
    let columns = parameters.iter().map(|parameter| {
        let mut number: BTreeMap<u64, u32> = BTreeMap::new();
        let (mut cells, mut bytes) = (Vec::with_capacity(of.len()), Vec::new());
        let (mut is_callee, mut is_direct) = (false, false);
        for &row in of {
            for &column in &parameter.columns {
                if let (_, Cell::Callee { direct, .. }) = rows[row as usize].cells[column] {
                    is_callee = true;
                    is_direct |= direct;
                }
            }
            let (hash, cell) = rows[row as usize].cells[parameter.columns[0]];
            let next = number.len() as u32;
            let dense = *number.entry(hash).or_insert(next);
            if dense == next {
                bytes.push(passing(&cell));
            }
            cells.push(dense);
        }
        Column {
            cells,
            cost: bytes,
            overhead: if is_callee { cost::CALLEE_PARAMETER } else { cost::PARAMETER },
            case: 0,
            most: if is_direct && policy != Policy::Size { 1 } else { usize::MAX },
        }
    });
    let thunk = |count: usize| Some(JUMP + FURTHER * count.saturating_sub(REGISTERS) as i64);
    Problem {
        body: of.iter().map(|&row| i64::from(rows[row as usize].bytes)).min().unwrap_or(0),
        thunks: (0..=cost::MAX_COUNTED_ARGUMENTS).map(thunk).collect(),
        rows: of.iter().map(|_| Row { calls: 0, thunk: true }).collect(),
        columns: columns.collect(),
    }
}

/// The bytes that it takes to pass what a cell holds. From the encodings of x86-64; on aarch64 they are 4 or 8.
fn passing(cell: &Cell) -> i64 {
    let constant = |bits: u128| match bits {
        0 => 2,
        1..=0xffff_ffff => 5,
        _ if (bits as i64 as i32) as i64 == bits as i64 => 7,
        _ => 10,
    };
    match *cell {
        Cell::Constant { ty: _, bits } => constant(bits),
        Cell::Offset { ty: _, bytes } => constant(bytes as u32 as u128),
        Cell::Callee { .. } | Cell::Function { .. } | Cell::Address { .. } => cost::ADDRESS,
        Cell::Fixed(_) | Cell::Itself => 0,
    }
}
