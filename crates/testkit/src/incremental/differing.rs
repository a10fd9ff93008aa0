//! Copies of a function that differ from it in few statements, so that one body that branches where
//! they differ pays.
//!
//! Statements are inserted, removed, exchanged or changed, none of which has control flow, calls or
//! stack slots of its own: copies keep the control-flow graph. Contracts are settled afterwards,
//! when the program is complete.

use super::program::{Argument, Extra, Function, Operation, Pointer, Statement};
use crate::support::Rng;

/// How many operations make a function large enough.
const LARGE: usize = 14;

/// Makes a function large enough that a body for two copies can pay.
pub(super) fn enlarge(function: &mut Function) {
    for statement in &mut function.statements {
        if let Statement::Mix { rounds, .. } = statement {
            *rounds = (*rounds).max(LARGE);
        }
    }
}

/// Makes one to three edits.
pub(super) fn edit(function: &mut Function, rng: &mut Rng) {
    for _ in 0..1 + rng.below(3) {
        let count = function.statements.len();
        let at = rng.below(count);
        match rng.below(6) {
            0 | 1 => {
                let new = statement(function, rng);
                function.statements.insert(rng.below(count + 1), new);
            }
            2 if is_plain(&function.statements[at]) => drop(function.statements.remove(at)),
            3 if at + 1 < count && function.statements[at..at + 2].iter().all(is_plain) => {
                function.statements.swap(at, at + 1);
            }
            _ => change(&mut function.statements[at], rng),
        }
    }
}

/// Whether a statement is nothing but instructions in a row.
fn is_plain(statement: &Statement) -> bool {
    match statement {
        Statement::Constant(..)
        | Statement::Float(_)
        | Statement::Extra(_)
        | Statement::Reload { .. }
        | Statement::Vector { .. } => true,
        Statement::Mix { .. }
        | Statement::Guarded { .. }
        | Statement::Slot { .. }
        | Statement::Number { .. }
        | Statement::Through(_)
        | Statement::Compare(_)
        | Statement::Misaligned(_)
        | Statement::Switch(_)
        | Statement::Call { .. } => false,
    }
}

/// A further statement, in a row with others.
fn statement(function: &Function, rng: &mut Rng) -> Statement {
    let value = rng.choose(&[1, 7, 0x1234, -3, 1 << 40]);
    let offset = 8 * rng.below(5) as i32;
    let extras = function.shape.extras.len();
    match rng.below(6) {
        0 | 1 => Statement::Constant(
            rng.choose(&[Operation::Add, Operation::Xor, Operation::Multiply]),
            value,
        ),
        2 => Statement::Mix { rounds: 1 + rng.below(4), seed: rng.below(1 << 16) as u64 },
        3 if extras > 0 => Statement::Extra(rng.below(extras)),
        4 => Statement::Vector { pointer: rng.below(2), offset: offset / 16 * 16, value },
        _ => {
            let (read, extra) = (rng.below(2), rng.choose(&Extra::ALL));
            Statement::Reload { read, written: 1 - read, offsets: [offset, offset], value, extra }
        }
    }
}

/// Another operation, type or operand, or more or fewer operations.
fn change(statement: &mut Statement, rng: &mut Rng) {
    match statement {
        Statement::Constant(operation, _) => {
            *operation = match operation {
                Operation::Add => Operation::Xor,
                Operation::Xor => Operation::Multiply,
                Operation::Multiply => Operation::Add,
            };
        }
        Statement::Mix { rounds, .. } => *rounds = (*rounds + 2).saturating_sub(rng.below(4)),
        Statement::Reload { read, written, extra, .. } => match rng.below(2) {
            0 => std::mem::swap(read, written),
            _ => *extra = rng.choose(&Extra::ALL),
        },
        Statement::Vector { pointer, .. } => *pointer = 1 - *pointer,
        Statement::Call { passes, .. } => {
            if let pointers @ [Pointer::Own(_), Pointer::Own(_)] = &mut passes.pointers {
                pointers.swap(0, 1);
            }
            if let Some(argument) = passes.extras.last_mut() {
                *argument = Argument::Current;
            }
        }
        Statement::Float(_)
        | Statement::Extra(_)
        | Statement::Guarded { .. }
        | Statement::Slot { .. }
        | Statement::Number { .. }
        | Statement::Through(_)
        | Statement::Compare(_)
        | Statement::Misaligned(_)
        | Statement::Switch(_) => {}
    }
}
