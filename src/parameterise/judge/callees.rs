//! The rules for callees in which functions differ: which calls must stay direct, and which callees
//! become thunks because their addresses are passed.

use super::{Judge, Work};
use crate::apply::not_redirected;
use crate::ir::observes_its_frame;
use crate::options::Policy;
use crate::parameterise::argument_plan::ArgumentPlan;
use crate::parameterise::loops;
use crate::parameterise::table::{Cell, Parameter, Set};
use crate::parameterise::value::Value;
use crate::plan::Disposition;
use crate::unit::FunctionIndex;
use alloc::vec::Vec;
use cranelift_codegen::ir::Signature;

impl<'b> Work<'_, 'b> {
    /// The columns of a set that are direct calls and must stay direct: those of a callee that
    /// would need a thunk and can have none; and, unless only size counts, those in loops, and of
    /// functions in one cycle of the call graph.
    pub(super) fn stay_direct(&mut self, set: &Set<'_>) -> Vec<usize> {
        let mut direct = self.without_thunk(set);
        direct.extend(self.stay_fast(set));
        direct.sort_unstable();
        direct.dedup();
        direct
    }

    fn stay_fast(&mut self, set: &Set<'_>) -> Vec<usize> {
        let Set { table, rows: set, parameters } = set;
        let Judge { plan, options, cycles, .. } = *self.judge;
        let is_callee = |parameter: &Parameter| {
            let value = table.value(table.at(set[0], parameter.columns[0]));
            matches!(value, Some(Value::Callee { .. }))
        };
        match options.similar.policy {
            Policy::Balanced if parameters.iter().any(is_callee) => {}
            Policy::Balanced | Policy::Off | Policy::Size => return Vec::new(),
        }
        // All functions of a table have the same loops.
        let first = not_redirected(plan, self.bodies, table.function(0));
        let mut direct = loops::calls_in_loops(first, &table.places);
        for &row in set {
            let Some(cycle) = cycles[table.function(row)] else {
                continue;
            };
            for column in 0..table.width() {
                if let Some(Value::Callee { symbol, .. }) = table.value(table.at(row, column))
                    && let Some(callee) = plan.function(symbol)
                    && cycles[callee] == Some(cycle)
                {
                    direct.push(column);
                }
            }
        }
        direct
    }

    /// The columns of callees that would need a thunk if their addresses were passed, and can have
    /// none.
    fn without_thunk(&mut self, set: &Set<'_>) -> Vec<usize> {
        let Set { table, rows, parameters } = set;
        let mut columns = Vec::new();
        if table.written().is_empty() {
            return columns;
        }
        for Parameter { columns: own } in parameters {
            let cells = table.distinct(rows, own.first());
            let cannot = |&cell: &Cell| {
                let callee = self.becomes_thunk(cell);
                callee.is_some_and(|(function, signature)| {
                    let arguments = self.judge.plan.entry(function).extra_arguments();
                    let observes = observes_its_frame(self.bodies.body(function));
                    !self.sizes.has_thunk(signature, arguments, observes)
                })
            };
            if cells.iter().any(cannot) {
                columns.extend(own);
            }
        }
        columns
    }

    /// The function that becomes a thunk if the address in a cell is passed, because only its calls
    /// pass its extra arguments so far; with its own signature.
    fn becomes_thunk(&self, cell: Cell) -> Option<(FunctionIndex, &'b Signature)> {
        let Work { table, judge, .. } = self;
        let Some(Value::Callee { symbol, signature, .. }) = table.value(cell) else {
            return None;
        };
        let function = judge.plan.function(symbol)?;
        table.written().callee(function)?;
        let disposition = judge.plan.entry(function).disposition();
        matches!(disposition, Disposition::Redirect { to: _ }).then_some((function, signature))
    }

    /// Bytes of the thunks that callees need because their addresses are passed. `None` if there is
    /// no thunk for one.
    pub(super) fn thunks_of_callees(
        &mut self,
        rows: &[u32],
        argument_plan: &ArgumentPlan,
    ) -> Option<i64> {
        let table = self.table;
        let mut bytes = 0;
        if table.written().is_empty() {
            return Some(bytes);
        }
        let columns = argument_plan.passed.iter().map(|parameter| &parameter.columns[0]);
        let cells = table.distinct(rows, columns);
        for cell in cells {
            let Some((function, signature)) = self.becomes_thunk(cell) else {
                continue;
            };
            let arguments = self.judge.plan.entry(function).extra_arguments();
            let observes = observes_its_frame(self.bodies.body(function));
            bytes += i64::from(self.sizes.thunk(signature, arguments, observes)?);
        }
        Some(bytes)
    }
}
