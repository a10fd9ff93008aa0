//! Whether calls of a body run about as fast as those of the functions that are judged: what a body
//! executes in addition for an argument plan, and which functions are too short for a thunk.

use super::Work;
use crate::apply::not_redirected;
use crate::canon::Place;
use crate::extra_argument::ExtraArgument;
use crate::options::Policy;
use crate::parameterise::argument_plan::ArgumentPlan;
use crate::parameterise::body::as_passed;
use crate::parameterise::cost;
use crate::parameterise::frequencies::{Frequencies, is_thunk_fast};
use crate::parameterise::table::{Set, Table};
use crate::parameterise::value::Value;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Block, types};

/// The frequencies of all functions of a table: they have one shape.
pub(super) struct Speed {
    frequencies: Frequencies,
    /// The block of each column.
    blocks: Vec<Option<Block>>,
}

impl Speed {
    /// How many instructions more a call of a body may execute, apart from those of the body.
    fn left(&self, table: &Table, rows: &[u32], argument_plan: &ArgumentPlan) -> i64 {
        let Speed { frequencies, blocks } = self;
        let passed = argument_plan.passed.iter().flat_map(|parameter| {
            let value = table.value(table.at(rows[0], parameter.columns[0]));
            let more = value.map_or(0, computed);
            parameter.columns.iter().map(move |&column| (column, more))
        });
        let dispatched = argument_plan.dispatches.iter().flat_map(|dispatch| {
            let cases = dispatch.cases.iter().max().map_or(1, |last| last + 1);
            let more = i64::from(cases.next_power_of_two().ilog2()) * cost::BRANCH;
            let columns = dispatch.callees.iter().flat_map(|callee| &callee.columns);
            columns.map(move |&column| (column, more))
        });
        let in_body = passed.chain(dispatched);
        frequencies.left(in_body.filter_map(|(column, more)| Some((blocks[column]?, more))))
    }
}

/// How many instructions a body executes that receives this value in place of knowing it.
fn computed(value: &Value) -> i64 {
    match value {
        // An operand in a register.
        Value::Constant { ty, bits: _ } if ty.bits() <= 64 => 0,
        Value::Callee { .. } | Value::Function { .. } | Value::Address { .. } => 0,
        Value::Constant { .. } | Value::Offset { .. } => 1,
    }
}

impl Work<'_, '_> {
    /// The speed of the functions of the table, if they must stay as fast.
    fn speed(&mut self) -> Option<&Speed> {
        if self.judge.options.similar.policy != Policy::Balanced {
            return None;
        }
        if self.speed.is_none() {
            let first = not_redirected(self.judge.plan, self.bodies, self.table.function(0));
            let block = |place: &Place| match *place {
                Place::Inst(inst) => first.layout.inst_block(inst),
                _ => None,
            };
            let blocks = self.table.places.iter().map(block).collect();
            self.speed = Some(Speed { frequencies: Frequencies::of(first), blocks });
        }
        self.speed.as_ref()
    }

    /// How many instructions more a call may execute that passes what an argument plan says, if
    /// that matters.
    pub(super) fn left(&mut self, rows: &[u32], argument_plan: &ArgumentPlan) -> Option<i64> {
        let table = self.table;
        self.speed().map(|speed| speed.left(table, rows, argument_plan))
    }

    /// The functions of a set that could share a body if it had one argument and nothing to
    /// compute, and the others.
    pub(super) fn fast_enough(&mut self, set: &Set<'_>) -> (Vec<u32>, Vec<u32>) {
        let keeps_symbol = |row: &u32| self.must_keep_symbol(set.table.function(*row));
        let (needed, others): (Vec<u32>, Vec<u32>) =
            set.rows.iter().partition(|row| keeps_symbol(row));
        if needed.is_empty() {
            return (others, needed);
        }
        let left = self.speed().map(|speed| speed.frequencies.left([]));
        let first = not_redirected(self.judge.plan, self.bodies, set.table.function(0));
        let argument = ExtraArgument::Constant { ty: types::I32, bits: 0 };
        let arguments = as_passed(alloc::vec![argument], &first.signature, self.judge.options);
        match is_thunk_fast(left, true, &self.sizes, &first.signature, &arguments) {
            true => (set.rows.clone(), Vec::new()),
            false => (others, needed),
        }
    }
}
