//! Calls of thunks in place of calls that pass extra arguments, where callers become smaller.
//!
//! What one more argument costs a caller is not known before the caller is compiled: where it needs another register, a
//! large function can grow by hundreds of bytes because a few of its calls are redirected. So, at the end, with
//! [`Policy::Size`], each function is compiled as the plan leaves it and with the calls as they are written that only
//! this function makes, and their callees become thunks if that takes fewer bytes. Each function is measured alone, so
//! the unit becomes smaller by just what was measured. This module does *not* merge anything, nor does it
//! consider callees that several functions call: judging compared a thunk with all of their calls.
//!
//! Compiles each such caller twice.

use super::BATCH;
use crate::apply::{Written, body_to_emit, emitted_as};
use crate::ir::user_symbol;
use crate::options::{Options, Policy};
use crate::plan::{Disposition, Plan, Reason};
use crate::unit::{Bodies, Candidate, FunctionIndex};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cranelift_codegen::ir::Function;
use cranelift_entity::EntityRef as _;

/// A function, and what only this function calls and passes extra arguments to.
struct Caller {
    function: FunctionIndex,
    callees: Vec<FunctionIndex>,
}

/// Makes functions thunks whose only caller is smaller if it does not pass their extra arguments.
pub(crate) fn call_thunks(plan: &mut Plan, bodies: &mut dyn Bodies, options: &Options<'_>) {
    if options.similar.policy != Policy::Size || bodies.code_sizes().is_none() {
        return;
    }
    let callers = callers(plan, bodies);
    for callers in callers.chunks(BATCH / 2) {
        let mut candidates: Vec<Candidate> = Vec::new();
        for Caller { function, callees } in callers {
            let mut written = Written::default();
            callees.iter().for_each(|&callee| written.insert(callee, callee));
            for written in [Written::none(), &written] {
                let func = emitted_as(plan, bodies, *function, written, options);
                candidates.push(Candidate { func, token: None });
            }
        }
        let sizes = bodies.code_sizes().map(|sizes| sizes.of_candidates(&candidates));
        let sizes = sizes.unwrap_or_default();
        for (Caller { function: _, callees }, sizes) in callers.iter().zip(sizes.chunks(2)) {
            let &[Some(redirected), Some(as_written)] = sizes else {
                continue;
            };
            let thunks = callees.iter().map(|&callee| thunk(plan, bodies, callee, options));
            let Some(thunks) = thunks.sum::<Option<u32>>() else {
                continue;
            };
            if as_written + thunks >= redirected {
                continue;
            }
            for &callee in callees {
                if let Disposition::Redirect { to } = plan.entry(callee).disposition() {
                    plan.set(callee, Disposition::Thunk { to }, Reason::ThunkCheaper);
                }
            }
        }
    }
}

/// The functions that alone call others and pass them extra arguments, ascending, with these, ascending. Linear in the
/// imports of the unit.
fn callers(plan: &Plan, bodies: &mut dyn Bodies) -> Vec<Caller> {
    // By callee: its caller, or `None` if it has several.
    let mut only: BTreeMap<FunctionIndex, Option<FunctionIndex>> = BTreeMap::new();
    for function in plan.entries().map(|(function, _)| function) {
        let Some(func) = body_to_emit(plan, bodies, function) else {
            continue;
        };
        for callee in passed_to(plan, func) {
            let known = only.entry(callee).or_insert(Some(function));
            *known = known.filter(|&known| known == function);
        }
    }
    let mut callers: BTreeMap<FunctionIndex, Vec<FunctionIndex>> = BTreeMap::new();
    for (callee, caller) in only {
        if let Some(caller) = caller {
            callers.entry(caller).or_default().push(callee);
        }
    }
    callers.into_iter().map(|(function, callees)| Caller { function, callees }).collect()
}

/// The functions of the unit to which calls of `func` pass extra arguments.
fn passed_to<'a>(
    plan: &'a Plan,
    func: &'a Function,
) -> impl Iterator<Item = FunctionIndex> + use<'a> {
    let callees = func.dfg.ext_funcs.values().filter(|callee| !callee.patchable);
    let callees = callees.filter_map(|callee| plan.function(user_symbol(func, &callee.name)?));
    callees.filter(|&callee| {
        let entry = plan.entry(callee);
        matches!(entry.disposition(), Disposition::Redirect { to: _ })
            && !entry.extra_arguments().is_empty()
            && callee.index() < plan.added()
    })
}

/// The bytes of a function as a thunk, if it can be one in raw bytes.
fn thunk(
    plan: &Plan,
    bodies: &mut dyn Bodies,
    function: FunctionIndex,
    options: &Options<'_>,
) -> Option<u32> {
    let (entry, signature) = (plan.entry(function), &bodies.body(function).signature);
    let (arguments, to) = (entry.extra_arguments(), entry.symbol());
    let code = options.target.thunk_code(signature, arguments, to, plan.optimize_for())?;
    Some(code.size())
}
