//! Which functions of one shape, of all units, share a body, and by which parameters.
//!
//! The functions of a shape are divided as those of one unit are (`split`), by what their summaries
//! say. Sizes are predicted, and each function is counted with a thunk: whether its callers could
//! pass the extra arguments is known to its unit only. It does *not* compare code.

use super::super::cost::Share;
use super::super::split::{Column, Part, Problem, Row};
use super::super::{cost, table};
use crate::options::Policy;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cranelift_mergefunc_units::{Cell, Group, GroupCell, GroupRow, SetDecision, fixed_hash};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// Bytes of a jump on x86-64; one more than on aarch64.
const JUMP: i64 = 5;

/// How many extra arguments find a register, roughly; each further one takes [`FURTHER`] bytes
/// more.
const REGISTERS: usize = 4;
const FURTHER: i64 = 4;

/// Decides which functions of a shape share bodies by a policy: for
/// [`combine`](crate::units::combine). Each set has functions of two units or more. The sets that
/// save most come first.
///
/// The result depends on the functions and their order only. O(n log n) in the number of functions.
///
/// See the [example](crate::across).
pub fn decide_sharing(group: &Group<'_>, policy: Policy) -> Vec<SetDecision> {
    let rows = &group.rows;
    let share = Share::of(policy);
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
    // Functions within one unit are left to the unit: it knows the callers, and compares code.
    let unit = |row: &u32| rows[*row as usize].unit;
    decisions
        .retain(|decision| decision.rows.iter().any(|row| unit(row) != unit(&decision.rows[0])));
    decisions.sort_by_key(|decision| (-decision.saved, decision.rows[0]));
    decisions
}

/// Groups of two or more rows that agree where nothing can be passed, in the order of their first
/// rows.
fn comparable(rows: &[GroupRow]) -> Vec<Vec<u32>> {
    group(rows, 0..rows.len() as u32, |row| {
        let cells = row.cells.iter().enumerate();
        let fixed = cells.filter(|(_, of)| matches!(of.cell, Cell::Fixed(_) | Cell::Itself));
        // Rows of one shape have the same number of cells, unless digests collide.
        let fixed = fixed.map(|(column, of)| (column as u64, of.hash));
        core::iter::once((row.cells.len() as u64, 0)).chain(fixed).collect()
    })
}

/// Groups of two or more equal rows.
fn groups_of_equal(rows: &[GroupRow], of: &[u32]) -> Vec<Vec<u32>> {
    group(rows, of.iter().copied(), |row| row.cells.iter().map(|of| (of.hash, 0)).collect())
}

fn group(
    rows: &[GroupRow],
    of: impl Iterator<Item = u32>,
    key: impl Fn(&GroupRow) -> Vec<(u64, u64)>,
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
fn parameters(rows: &[GroupRow], of: &[u32]) -> Vec<table::Parameter> {
    let hash = |row: u32, column: usize| rows[row as usize].cells[column].hash;
    let width = rows[of[0] as usize].cells.len();
    table::parameters_of(width, of, hash)
}

fn decision(rows: &[GroupRow], of: Vec<u32>, parameters: Vec<Vec<u32>>, saved: i64) -> SetDecision {
    let cells = rows[of[0] as usize].cells.iter().map(|of| of.hash);
    SetDecision { fixed: fixed_hash(cells, &parameters), parameters, rows: of, saved }
}

/// The decision that equal functions share their code, if that pays.
fn equal(rows: &[GroupRow], of: Vec<u32>) -> Option<SetDecision> {
    let bytes = i64::from(rows[of[0] as usize].bytes[0]);
    let saved = (of.len() as i64 - 1) * bytes - of.len() as i64 * JUMP;
    (saved > 0).then(|| decision(rows, of, Vec::new(), saved))
}

/// Divides rows that differ in these parameters into sets that pay.
fn divide(
    rows: &[GroupRow],
    of: &[u32],
    parameters: &[table::Parameter],
    policy: Policy,
    share: Share,
    decisions: &mut Vec<SetDecision>,
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
            decisions.push(decision(rows, members, parameters, saved));
        } else if !must {
            parts.push((part, true));
        }
    }
}

fn problem(
    rows: &[GroupRow],
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
                if let Cell::Callee { direct, .. } = rows[row as usize].cells[column].cell {
                    is_callee = true;
                    is_direct |= direct;
                }
            }
            let GroupCell { hash, cell } = rows[row as usize].cells[parameter.columns[0]];
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
        body: of.iter().map(|&row| i64::from(rows[row as usize].bytes[0])).min().unwrap_or(0),
        thunks: (0..=cost::MAX_COUNTED_ARGUMENTS).map(thunk).collect(),
        rows: of.iter().map(|_| Row { calls: 0, thunk: true }).collect(),
        columns: columns.collect(),
    }
}

/// The bytes that it takes to pass what a cell holds. From the encodings of x86-64; on aarch64 they
/// are 4 or 8.
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
