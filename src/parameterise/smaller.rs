//! Whether a plan makes a unit smaller: compiles every function that it leaves different from another plan.
//!
//! The bytes that a body saves are known except for the cost of extra arguments at its call sites, which depends on
//! all else that each caller does. Where that could outweigh the savings, both plans are applied and all functions
//! that differ are compiled. This module adds up sizes and decides nothing else.

use crate::apply::{call_thunk, emitted};
use crate::options::Options;
use crate::plan::{Emit, Plan};
use crate::unit::{Bodies, FunctionIndex};
use alloc::boxed::Box;
use cranelift_codegen::ir::{Function, UserFuncName};
use cranelift_entity::EntityRef;

/// Whether the functions of a unit, new ones included, take no more bytes after `plan` than after `before`. A
/// function that cannot be compiled counts on neither side.
pub(super) fn is_smaller(
    before: &Plan,
    plan: &Plan,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
) -> bool {
    let mut grown = 0;
    for (function, _) in plan.entries() {
        if plan.is_cached(function) {
            continue;
        }
        let was = match function.index() < before.entries().len() {
            true => left(before, function, bodies, options),
            false => Some(Left::Nothing),
        };
        let is = left(plan, function, bodies, options);
        let (Some(was), Some(is)) = (was, is) else {
            continue;
        };
        if was == is {
            continue;
        }
        if let (Some(was), Some(is)) = (was.size(bodies), is.size(bodies)) {
            grown += i64::from(is) - i64::from(was);
        }
    }
    grown <= 0
}

/// What a plan leaves of a function.
#[derive(PartialEq)]
enum Left {
    Nothing,
    /// This many raw bytes.
    Bytes(u32),
    Code(Box<Function>),
}

impl Left {
    fn size(&self, bodies: &mut dyn Bodies) -> Option<u32> {
        match self {
            Left::Nothing => Some(0),
            Left::Bytes(size) => Some(*size),
            Left::Code(func) => bodies.code_sizes()?.of_candidate(func, false),
        }
    }
}

/// `None` if the function has no place in the unit, or if its thunk cannot be made.
fn left(
    plan: &Plan,
    function: FunctionIndex,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
) -> Option<Left> {
    let output = plan.output(function);
    match output.emit {
        Emit::Nothing | Emit::Alias { .. } => Some(Left::Nothing),
        Emit::Thunk { to, extra_arguments, .. } => {
            let signature = &bodies.body(plan.body_of(function)?).signature;
            if let Some(code) = options.target.thunk_code(signature, &extra_arguments, to) {
                return Some(Left::Bytes(code.size()));
            }
            let call_thunks = options.call_thunks?;
            let name = UserFuncName::User(output.symbol.clone());
            let thunk = call_thunk(name, signature, &extra_arguments, to, &call_thunks);
            Some(Left::Code(Box::new(thunk)))
        }
        Emit::Body | Emit::NewBody(_) => {
            Some(Left::Code(Box::new(emitted(plan, bodies, function, options))))
        }
    }
}
