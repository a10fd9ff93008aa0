//! Splitting: which of the functions of one shape should share a body.
//!
//! A body for all of them has a parameter for each place at which any two differ, and every call
//! pays for all of these. So it can be better to have several bodies, each for functions that
//! differ in less. Sets are divided by the values of one parameter at a time, where the parts save
//! more than the whole; a part that does not pay is divided further, never dropped as a whole.
//! Where a body can take only a limited number of values of a parameter, because it dispatches
//! among them, the rest is divided into groups of several values. The savings of a set are
//! estimated here, from the size of one function; whether a part really pays is determined from
//! that of its body, elsewhere.
//!
//! Dividing a set of n functions with p parameters takes O(n log n) for fixed p, and every function
//! is in at most 2p sets during the division.

use super::cost;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// The input of splitting, sizes in bytes.
#[derive(Default)]
pub(super) struct Problem {
    /// Bytes of one body.
    pub body: i64,
    /// Bytes of a thunk by the number of its arguments, beyond the bytes for passing each alone:
    /// those that find no register go on the stack. The last difference goes on. `None` if there is
    /// no such thunk.
    pub thunks: Vec<Option<i64>>,
    pub rows: Vec<Row>,
    pub columns: Vec<Column>,
}

/// A function.
#[derive(Clone, Copy)]
pub(super) struct Row {
    /// How often it is called directly.
    pub calls: i64,
    /// Whether its symbol must stay.
    pub thunk: bool,
}

/// A candidate for a parameter.
pub(super) struct Column {
    /// The number of the value that each row has, in the order of `cost`.
    pub cells: Vec<u32>,
    /// The bytes that it takes to pass each value.
    pub cost: Vec<i64>,
    /// The bytes that the parameter itself takes in the body, roughly.
    pub overhead: i64,
    /// The bytes that each further value takes in the body, roughly.
    pub case: i64,
    /// The most values that one body can take; with one, it must not be a parameter.
    pub most: usize,
}

impl Column {
    fn is_forbidden(&self) -> bool {
        self.most <= 1
    }
}

/// Functions that may share a body.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Ascending, two or more.
    pub rows: Vec<u32>,
    /// Columns by which this part cannot be divided any more.
    done: Vec<usize>,
}

impl Part {
    /// All rows of a problem.
    pub fn whole(problem: &Problem) -> Part {
        Part { rows: (0..problem.rows.len() as u32).collect(), done: Vec::new() }
    }
}

impl Problem {
    /// The columns in which rows differ.
    fn varying<'a>(&'a self, rows: &'a [u32]) -> impl Iterator<Item = usize> + 'a {
        let differ = move |&column: &usize| {
            let cells = &self.columns[column].cells;
            let first = cells[rows[0] as usize];
            rows.iter().any(|&row| cells[row as usize] != first)
        };
        (0..self.columns.len()).filter(differ)
    }

    fn cost(&self, column: usize, row: u32) -> i64 {
        let Column { cells, cost, .. } = &self.columns[column];
        cost[cells[row as usize] as usize]
    }

    /// Whether these rows may share a body.
    pub fn allows(&self, rows: &[u32]) -> bool {
        self.varying(rows).all(|column| !self.columns[column].is_forbidden())
    }

    /// Bytes that these rows save, roughly: in one body, or in the least possible number of bodies.
    fn profit(&self, rows: &[u32]) -> i64 {
        let crowded = self.crowded(rows);
        match crowded.is_empty() {
            true => self.profit_of_one(rows),
            false => self.profit_of_groups(&self.groups(rows, &crowded)),
        }
    }

    /// Bytes that one body for each of these groups saves, where that pays.
    fn profit_of_groups(&self, groups: &[Vec<u32>]) -> i64 {
        groups.iter().map(|rows| self.profit_of_one(rows).max(0)).sum()
    }

    /// Bytes that one body for these rows saves.
    pub fn profit_of_one(&self, rows: &[u32]) -> i64 {
        if rows.len() < 2 {
            return 0;
        }
        let mut passing = alloc::vec![0; rows.len()];
        let mut arguments = 0;
        let mut saved = (rows.len() as i64 - 1) * self.body;
        for column in self.varying(rows) {
            if self.columns[column].is_forbidden() {
                return i64::MIN / 4;
            }
            let Column { overhead, case, .. } = self.columns[column];
            saved -= overhead;
            arguments += 1;
            if case > 0 {
                saved -= case * (self.distinct(column, rows) - 1);
            }
            for (passing, &row) in passing.iter_mut().zip(rows) {
                *passing += self.cost(column, row);
            }
        }
        let jump = self.thunk(arguments);
        for (passing, &row) in passing.iter().zip(rows) {
            let Row { calls, thunk } = self.rows[row as usize];
            let by_thunk = jump.map(|jump| jump + passing);
            let by_calls = (!thunk).then_some(calls * passing);
            let Some(least) = by_thunk.into_iter().chain(by_calls).min() else {
                return i64::MIN / 4;
            };
            saved -= least;
        }
        saved
    }

    /// Bytes of a thunk that passes this number of arguments, beyond those.
    fn thunk(&self, arguments: usize) -> Option<i64> {
        let last = self.thunks.len() - 1;
        if arguments <= last {
            return self.thunks[arguments];
        }
        let [before, at] = [self.thunks[last.saturating_sub(1)]?, self.thunks[last]?];
        Some(at + (arguments - last) as i64 * (at - before))
    }

    /// How many values there are in a column.
    fn distinct(&self, column: usize, rows: &[u32]) -> i64 {
        let cells = &self.columns[column].cells;
        let mut values: Vec<u32> = rows.iter().map(|&row| cells[row as usize]).collect();
        values.sort_unstable();
        values.dedup();
        values.len() as i64
    }

    /// Divides a set, if its parts are better than the whole, or in any case if it `must` be
    /// divided. Parts of one row are left out.
    pub fn divide(&self, part: &Part, must: bool) -> Option<Vec<Part>> {
        let Part { rows, done } = part;
        let whole = if must { i64::MIN / 2 } else { self.profit(rows) };
        let mut by_bytes: Vec<(i64, usize)> = Vec::new();
        for column in self.varying(rows) {
            if done.contains(&column) {
                continue;
            }
            let bytes: i64 = rows
                .iter()
                .map(|&row| self.cost(column, row) * self.rows[row as usize].calls.max(1))
                .sum();
            let forbidden = self.columns[column].is_forbidden();
            by_bytes.push((if forbidden { i64::MIN } else { -bytes }, column));
        }
        by_bytes.sort_unstable();
        let strategies = by_bytes
            .iter()
            .take(cost::MAX_TRIED_COLUMNS)
            .filter_map(|&(_, column)| self.by(part, column));
        let mut best: Option<(i64, Vec<Part>)> = None;
        for (saved, parts) in strategies.take(cost::MAX_DIVISORS) {
            if best.as_ref().is_none_or(|(best, _)| saved > *best) {
                best = Some((saved, parts));
            }
        }
        // Where nothing pays yet, smaller parts may.
        let best = best.filter(|&(saved, _)| saved > whole || whole <= 0);
        best.map(|(_, parts)| parts).or_else(|| self.by_groups(part))
    }

    /// The columns in which these rows have more values than one body can take, without those that
    /// must not be parameters at all; each with the number of its values.
    fn crowded(&self, rows: &[u32]) -> Vec<(usize, usize)> {
        let limited = self.columns.iter().enumerate().filter(|(_, column)| {
            // Cheap to see in most cases: no column has more values than there are rows.
            !column.is_forbidden() && column.most < rows.len()
        });
        let counted =
            limited.map(|(at, column)| (at, self.distinct(at, rows) as usize, column.most));
        let crowded = counted.filter(|&(_, values, most)| values > most);
        crowded.map(|(at, values, _)| (at, values)).collect()
    }

    /// Groups of rows that have no more values in the crowded columns than one body can take, about
    /// equally many. Rows with the same value in a crowded column come together; or, if that saves
    /// more, rows that agree in the other columns. O(n log n) in the number of rows.
    fn groups(&self, rows: &[u32], crowded: &[(usize, usize)]) -> Vec<Vec<u32>> {
        let by_crowded: Vec<usize> = crowded.iter().map(|&(column, _)| column).collect();
        let mut by_others: Vec<usize> =
            self.varying(rows).filter(|column| !by_crowded.contains(column)).collect();
        let groups = self.groups_in_order(rows, crowded, &by_crowded);
        if by_others.is_empty() {
            return groups;
        }
        // First the columns in which many rows agree.
        by_others.sort_by_cached_key(|&column| self.distinct(column, rows));
        by_others.extend(by_crowded);
        let others = self.groups_in_order(rows, crowded, &by_others);
        match self.profit_of_groups(&others) > self.profit_of_groups(&groups) {
            true => others,
            false => groups,
        }
    }

    /// The rows, ordered by these columns, cut where the next row would be too much.
    fn groups_in_order(
        &self,
        rows: &[u32],
        crowded: &[(usize, usize)],
        order: &[usize],
    ) -> Vec<Vec<u32>> {
        let cell = |column: usize, row: u32| self.columns[column].cells[row as usize];
        let mut sorted = rows.to_vec();
        // Stable, so that rows that agree stay ascending.
        sorted.sort_by(|&a, &b| {
            let cells = |row: u32| order.iter().map(move |&column| cell(column, row));
            cells(a).cmp(cells(b))
        });
        // As even as the number of groups allows: a group of one row would be lost.
        let limits: Vec<usize> = crowded
            .iter()
            .map(|&(column, values)| values.div_ceil(values.div_ceil(self.columns[column].most)))
            .collect();
        let mut groups: Vec<Vec<u32>> = Vec::new();
        // The values of the last group in each crowded column.
        let mut taken: Vec<BTreeSet<u32>> = alloc::vec![BTreeSet::new(); crowded.len()];
        for row in sorted {
            let fits =
                crowded.iter().zip(&limits).zip(&taken).all(|((&(column, _), &limit), taken)| {
                    taken.len() < limit || taken.contains(&cell(column, row))
                });
            match groups.last_mut().filter(|_| fits) {
                Some(group) => group.push(row),
                None => {
                    groups.push(alloc::vec![row]);
                    taken.iter_mut().for_each(BTreeSet::clear);
                }
            }
            for (&(column, _), taken) in crowded.iter().zip(&mut taken) {
                taken.insert(cell(column, row));
            }
        }
        groups
    }

    /// The parts for which a body can take all values, if that is not so for the whole.
    fn by_groups(&self, part: &Part) -> Option<Vec<Part>> {
        let crowded = self.crowded(&part.rows);
        if crowded.is_empty() {
            return None;
        }
        let groups = self.groups(&part.rows, &crowded).into_iter().filter(|rows| rows.len() > 1);
        let mut parts: Vec<Part> = groups
            .map(|mut rows| {
                rows.sort_unstable();
                Part { rows, done: part.done.clone() }
            })
            .collect();
        parts.sort_unstable_by_key(|part| part.rows[0]);
        Some(parts)
    }

    /// The parts by the values of a column, and what they save: those that pay alone, and the rest.
    /// `None` if the whole set is one part.
    fn by(&self, part: &Part, column: usize) -> Option<(i64, Vec<Part>)> {
        let cells = &self.columns[column].cells;
        let mut sorted = part.rows.clone();
        // Stable, so that the rows of a part stay ascending.
        sorted.sort_by_key(|&row| cells[row as usize]);
        let same = |a: &u32, b: &u32| cells[*a as usize] == cells[*b as usize];
        let (mut parts, mut rest, mut saved) = (Vec::new(), Vec::new(), 0);
        for rows in sorted.chunk_by(same) {
            let profit = self.profit(rows);
            if rows.len() > 1 && (profit > 0 || self.columns[column].is_forbidden()) {
                saved += profit.max(0);
                parts.push(Part { rows: rows.to_vec(), done: part.done.clone() });
            } else {
                rest.extend_from_slice(rows);
            }
        }
        if parts.is_empty() {
            return None;
        }
        if rest.len() > 1 {
            rest.sort_unstable();
            saved += self.profit(&rest).max(0);
            let mut done = part.done.clone();
            done.push(column);
            parts.push(Part { rows: rest, done });
        }
        parts.sort_unstable_by_key(|part| part.rows[0]);
        Some((saved, parts))
    }
}
