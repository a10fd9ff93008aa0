//! Makes the bodies that a sharing map names from the functions of this unit.
//!
//! A map says of a shape which functions share a body: those that agree in some columns, by a hash,
//! and hold one value in the columns of each parameter. Every unit with such a function makes the
//! body from the function, so that all make the same one. Nothing of the map is trusted: a body is
//! made of this unit's own code and proved like every other one, so a wrong map costs bytes. It
//! does *not* ask whether a body pays: that was decided over all units.

use super::super::argument_plan::ArgumentPlan;
use super::super::judge::{Candidate, Outcomes, body_of_rows};
use super::super::table::{Parameter, Table};
use super::super::value::{Symbols, Value};
use super::super::workbench::Member;
use super::super::{Memory, Search, body, cost, walk_redirected};
use super::rows::{Row, Rows, Shape, rows};
use crate::apply::{KeptCalls, emitted_as};
use crate::congruence::Encodings;
use crate::extra_argument::ExtraArgument;
use crate::ir::observes_its_frame;
use crate::options::Options;
use crate::plan::{Disposition, Plan};
use crate::stats::Stats;
use crate::unit::{Bodies, FunctionIndex};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_entity::EntitySet;
use cranelift_mergefunc_units::{SharedSet, SharingMap, fixed_hash};

/// The sets that a sharing map has for the functions of a unit.
#[derive(Default)]
pub(crate) struct Shared {
    /// The parameters of bodies, and the functions that share each, ascending.
    sets: Vec<(Vec<Vec<u32>>, Vec<FunctionIndex>)>,
    /// Functions that equal functions of other units.
    pub equal: EntitySet<FunctionIndex>,
    /// The number of entries of the map that do not fit.
    ignored: usize,
}

impl Shared {
    /// Counts the functions that equal others, and what does not fit.
    pub fn count(&self, stats: &mut Stats) {
        stats.shared_functions = self.equal.iter().count();
        stats.shared_ignored = self.ignored;
    }
}

/// The sets of a map for the functions that a plan keeps after identical merging. Walks every
/// function once, and those that share a parameterised body once more.
pub(crate) fn matched(
    plan: &Plan,
    encodings: &Encodings,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
    map: &SharingMap<'_>,
) -> Shared {
    let mut shared = Shared::default();
    let settings = options.content_addressing.map(|content| content.settings);
    if settings != Some(*map.settings()) {
        shared.ignored = 1;
        return shared;
    }
    let mut sets_of: BTreeMap<Shape, Vec<SharedSet>> = BTreeMap::new();
    let mut damaged = 0;
    let mut wanted = |shape: &Shape| {
        let sets = sets_of.entry(*shape).or_insert_with(|| {
            map.sets(shape).unwrap_or_else(|_| {
                damaged += 1;
                Vec::new()
            })
        });
        !sets.is_empty()
    };
    let without_ir = encodings.without_ir();
    let rows = rows(plan, without_ir, bodies, options, &mut wanted);
    shared.ignored = damaged;
    let mut number: BTreeMap<(Shape, usize), usize> = BTreeMap::new();
    for row in &rows.rows {
        let sets = &sets_of[&row.shape];
        let Some(at) = sets.iter().position(|set| fits(&rows, row, set)) else {
            continue;
        };
        if sets[at].parameters.is_empty() {
            shared.equal.insert(row.function);
            continue;
        }
        let next = shared.sets.len();
        let set = *number.entry((row.shape, at)).or_insert(next);
        if set == next {
            shared.sets.push((sets[at].parameters.clone(), Vec::new()));
        }
        shared.sets[set].1.push(row.function);
    }
    shared
}

/// Whether a function is one of those that a set of a map describes.
fn fits(rows: &Rows, row: &Row, set: &SharedSet) -> bool {
    let hashes: Vec<u64> = rows.hashes(row).collect();
    let SharedSet { parameters, fixed, .. } = set;
    let one_value = |columns: &Vec<u32>| {
        let mut values = columns.iter().map(|&column| hashes.get(column as usize));
        let first = values.next().flatten();
        first.is_some() && values.all(|value| value == first)
    };
    parameters.iter().all(one_value) && fixed_hash(hashes.iter().copied(), parameters) == *fixed
}

impl Search<'_, '_> {
    /// Makes functions share the bodies that a map names.
    pub(in crate::parameterise) fn share(&mut self, shared: &Shared) {
        let (mut functions, mut ignored) = (shared.equal.iter().count(), shared.ignored);
        for (parameters, members) in &shared.sets {
            let before = functions;
            for table in self.tables_as_written(members) {
                functions += self.share_rows(&table, parameters);
            }
            ignored += usize::from(functions == before);
        }
        let stats = self.workbench.plan.stats_mut();
        (stats.shared_functions, stats.shared_ignored) = (functions, ignored);
    }

    /// Functions as they are written, by shape: one table, unless digests of shapes collide.
    fn tables_as_written(&mut self, functions: &[FunctionIndex]) -> Vec<Table> {
        let written = Arc::new(KeptCalls::all().clone());
        let symbols = Symbols {
            plan: self.workbench.plan,
            earlier: None,
            options: self.workbench.options,
            written: &written,
        };
        let mut tables: BTreeMap<Vec<u8>, Table> = BTreeMap::new();
        let mut memory = Memory::default();
        for &function in functions {
            if self.workbench.plan.entry(function).disposition() != Disposition::Keep {
                continue;
            }
            let Memory { scratch, encoding, sizes: _ } = &mut memory;
            let Some(body) =
                walk_redirected(&symbols, self.workbench.bodies, function, scratch, encoding)
            else {
                continue;
            };
            let table = match tables.get_mut(&encoding.shape) {
                Some(table) => table,
                None => {
                    let key = encoding.shape.clone();
                    tables.entry(key).or_insert_with(|| Table::new(&written))
                }
            };
            table.push(function, body, scratch, encoding, &symbols);
        }
        tables.into_values().collect()
    }

    /// Makes the rows of a table share a body, those that really differ in these parameters only.
    /// Returns how many those are.
    fn share_rows(&mut self, table: &Table, parameters: &[Vec<u32>]) -> usize {
        let parameters: Vec<Parameter> = parameters
            .iter()
            .map(|columns| Parameter {
                columns: columns.iter().map(|&column| column as usize).collect(),
            })
            .collect();
        let passed = |row: u32| {
            parameters.iter().all(|Parameter { columns }| {
                let cell = columns.first().map(|&column| table.at(row, column));
                let is_value = cell.is_some_and(|cell| table.value(cell).is_some());
                is_value && columns.iter().all(|&column| Some(table.at(row, column)) == cell)
            })
        };
        // Each place gets one value.
        let columns = parameters.iter().flat_map(|parameter| &parameter.columns).copied();
        let mut columns: Vec<usize> = columns.collect();
        columns.sort_unstable();
        let twice = columns.windows(2).any(|pair| pair[0] == pair[1]);
        if twice || columns.last().is_some_and(|&last| last >= table.width()) {
            return 0;
        }
        let mut rows: Vec<u32> = (0..table.len() as u32)
            .filter(|&row| passed(row) && !self.passes_for_others(table, row, &parameters))
            .collect();
        let Some(&first) = rows.first() else {
            return 0;
        };
        let is_parameter = |column: usize| {
            parameters.iter().any(|parameter| parameter.columns.binary_search(&column).is_ok())
        };
        let types = |row: u32| -> Vec<_> {
            let values = parameters.iter().flat_map(|parameter| {
                table.value(table.at(row, parameter.columns[0])).map(Value::arguments)
            });
            values.flatten().map(|argument| argument.ty()).collect()
        };
        let fixed: Vec<usize> =
            (0..table.width()).filter(|&column| !is_parameter(column)).collect();
        let first_types = types(first);
        rows.retain(|&row| {
            fixed.iter().all(|&column| table.at(row, column) == table.at(first, column))
                && types(row) == first_types
        });
        let plan = ArgumentPlan { passed: parameters, dispatches: Vec::new() };
        let Some(candidate) = self.shared_candidate(table, &rows, &plan) else {
            return 0;
        };
        let Some((symbol, _)) = self.workbench.fresh_symbol(&candidate.outcomes.members) else {
            return 0;
        };
        self.share_body(table, &rows, symbol, candidate);
        rows.len()
    }

    /// Whether a function that equals others would pass a symbol that they may not have named,
    /// where another definition can take that symbol.
    fn passes_for_others(&self, table: &Table, row: u32, parameters: &[Parameter]) -> bool {
        let values = parameters
            .iter()
            .filter_map(|Parameter { columns }| table.value(table.at(row, *columns.first()?)));
        let is_ambiguous = |argument: &ExtraArgument| {
            let function =
                argument.symbol().and_then(|symbol| self.workbench.plan.function(symbol));
            function.is_some_and(|function| {
                self.workbench.plan.entry(function).is_exported_with_equals()
            })
        };
        self.workbench.options.interposition
            && self.workbench.plan.entry(table.function(row)).has_equals()
            && values.flat_map(Value::arguments).any(|argument| is_ambiguous(&argument))
    }

    /// The body for some rows, and their dispositions. `None` if one of them needs a thunk that
    /// there is not.
    fn shared_candidate(
        &mut self,
        table: &Table,
        rows: &[u32],
        argument_plan: &ArgumentPlan,
    ) -> Option<Candidate> {
        let function = table.function(rows[0]);
        let original =
            emitted_as(self.workbench.plan, self.workbench.bodies, function, table.written());
        let signature = &original.signature;
        // A function that calls the body, where no jump can pass the extra arguments.
        let calls = self.workbench.options.target.has_call_thunk(signature)
            && !observes_its_frame(&original);
        let mut members: Vec<Member> = Vec::new();
        for (at, &row) in rows.iter().enumerate() {
            let extra = argument_plan.arguments(table, row, at);
            let extra = body::as_passed(extra, signature, self.workbench.options);
            let function = table.function(row);
            let symbol = self.workbench.plan.entry(function).symbol();
            let optimize = self.workbench.plan.optimize_for();
            let thunk =
                self.workbench.options.target.thunk_code(signature, &extra, symbol, optimize);
            let is_possible = thunk.is_some() || calls;
            if !is_possible || signature.params.len() + extra.len() > cost::MAX_PARAMETERS {
                return None;
            }
            members.push(Member { function, arguments: extra.into(), thunk: false });
        }
        let Memory { mut scratch, mut encoding, sizes: _ } = Memory::default();
        let body = body_of_rows(
            (self.workbench.plan, self.workbench.options),
            (table, rows),
            argument_plan,
            &original,
            (&mut scratch, &mut encoding),
        );
        let outcomes = Outcomes::new(members);
        Some(Candidate { body, outcomes, saved: 0, bytes: None })
    }
}
