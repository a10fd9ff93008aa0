//! Which calls are compared as they are written.
//!
//! Callees that went into different parameterised bodies take different extra arguments, so their
//! callers, which had one shape, have different ones as the plan leaves them. Unmerged functions
//! are compared once more: calls that go to different bodies as they are written, all others as the
//! plan redirects them. A body then receives the address of a callee, which becomes a thunk, or a
//! case number, by which it dispatches among calls that pass the extra arguments. Whether that pays
//! is *not* decided here.

use super::table::{Cell, Table};
use super::value::Value;
use crate::apply::KeptCalls;
use crate::lists::Lists;
use crate::plan::Plan;
use crate::unit::FunctionIndex;
use alloc::vec::Vec;

/// Whether calls of functions of one shape can go to different bodies: these are their tables with
/// all calls redirected. Linear in the sizes of the tables.
pub(super) fn may_differ(tables: &[Table]) -> bool {
    let differs = |table: &Table, column: usize| {
        let cells = (0..table.len() as u32).map(|row| table.at(row, column));
        let mut callees = cells.clone().filter_map(|cell| table.value(cell));
        callees.any(|value| matches!(value, Value::Callee { .. }))
            && cells.clone().any(|cell| cell != table.at(0, column))
    };
    let differs = |table: &Table| (0..table.width()).any(|column| differs(table, column));
    tables.len() > 1 || tables.iter().any(differs)
}

/// Adds to `written` the functions whose calls have to stay as they are written for the functions
/// of `table` to have one shape. In the table, all calls are as they are written. `merged` are the
/// functions that share a parameterised body, and `merged_into` are those that were merged into
/// each before. Linear in the size of the table, unless one callee is called at many places.
pub(super) fn differing(
    table: &Table,
    plan: &Plan,
    merged: &KeptCalls,
    merged_into: &Lists<u32>,
    written: &mut KeptCalls,
) {
    let callee = |cell: Cell| match table.value(cell)? {
        Value::Callee { symbol, .. } => {
            let function = plan.function(symbol)?;
            merged.callee(function).map(|_| function)
        }
        Value::Constant { .. }
        | Value::Offset { .. }
        | Value::Function { .. }
        | Value::Address { .. } => None,
    };
    let rows = 0..table.len() as u32;
    let mut columns: Vec<Vec<FunctionIndex>> = Vec::new();
    for column in 0..table.width() {
        let callees = rows.clone().map(|row| callee(table.at(row, column)));
        let callees: Vec<Option<FunctionIndex>> = callees.collect();
        let mut own: Vec<FunctionIndex> = callees.iter().copied().flatten().collect();
        own.sort_unstable();
        own.dedup();
        let Some(&first) = own.first() else {
            continue;
        };
        let target = plan.call_target(first);
        let same = |callee: &Option<FunctionIndex>| {
            callee.is_some_and(|callee| plan.call_target(callee) == target)
        };
        if callees.iter().all(same) {
            columns.push(own);
        } else {
            write(&own, merged, merged_into, written);
        }
    }
    // All calls of a column are as they are written, or none is.
    loop {
        let before = columns.len();
        columns.retain(|own| {
            let any = own.iter().any(|&callee| written.callee(callee).is_some());
            if any {
                write(own, merged, merged_into, written);
            }
            !any
        });
        if columns.len() == before {
            break;
        }
    }
}

fn write(
    callees: &[FunctionIndex],
    merged: &KeptCalls,
    merged_into: &Lists<u32>,
    written: &mut KeptCalls,
) {
    for &callee in callees {
        written.insert(callee, callee);
        for &member in merged_into.get(callee.as_u32() as usize) {
            let member = FunctionIndex::from_u32(member);
            if merged.callee(member).is_some() {
                written.insert(member, callee);
            }
        }
    }
}
