//! Whether a plan makes a unit smaller: compiles every function that it leaves different from another plan.
//!
//! The bytes that a body saves are known except for the cost of extra arguments at its call sites, which depends on
//! all else that each caller does. Where that could outweigh the savings, both plans are applied and all functions
//! that differ are compiled. This module adds up sizes and decides nothing else.

use super::{BATCH, cost};
use crate::apply::{call_thunk, emitted};
use crate::options::Options;
use crate::plan::{Disposition, Emit, Plan};
use crate::size::{Scratch, SizeModel};
use crate::unit::{Bodies, Candidate, FunctionIndex};
use alloc::boxed::Box;
use alloc::vec::Vec;
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
    for_changed(before, plan, bodies, options, &mut |changed, bodies| {
        grown += growth(changed, bodies);
    });
    grown <= 0
}

/// Whether the functions of a unit surely take fewer bytes after `plan` than after `before`, by predicted sizes. The
/// errors of what is predicted for two versions of a function are assumed to be those of one call each, and not to depend
/// on each other, so that their sum grows with the square root of their number.
pub(super) fn is_surely_smaller(
    before: &Plan,
    plan: &Plan,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
    model: SizeModel,
) -> bool {
    let (mut grown, mut count, mut all_known) = (0, 0u64, true);
    let mut scratch = Scratch::default();
    for_changed(before, plan, bodies, options, &mut |changed, _| {
        let mut size = |left: &Left| match left {
            Left::Nothing => Some(0),
            Left::Bytes(size) => Some(i64::from(*size)),
            Left::Code(func) => model.predict_with(func, &mut scratch).map(i64::from),
        };
        for [was, is] in &changed {
            match size(is).zip(size(was)) {
                Some((is, was)) => grown += is - was,
                None => all_known = false,
            }
        }
        count += changed.len() as u64;
    });
    all_known && grown < -cost::CALL_ERROR * count.isqrt() as i64
}

/// Takes functions as two plans leave them.
type Batch<'a> = dyn FnMut(Vec<[Left; 2]>, &mut dyn Bodies) + 'a;

/// Hands out what two plans leave of the functions that they leave different, a batch at a time.
fn for_changed(
    before: &Plan,
    plan: &Plan,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
    batch: &mut Batch<'_>,
) {
    let mut changed: Vec<[Left; 2]> = Vec::new();
    let entries = plan.entries().len().max(before.entries().len());
    for function in (0..entries).map(FunctionIndex::new) {
        if [before, plan].iter().all(|plan| stays(plan, function, bodies, options)) {
            continue;
        }
        let [was, is] = [before, plan].map(|plan| match function.index() < plan.entries().len() {
            true if plan.is_cached(function) => None,
            true => left(plan, function, bodies, options),
            false => Some(Left::Nothing),
        });
        changed.extend(was.zip(is).filter(|(was, is)| was != is).map(<[Left; 2]>::from));
        if changed.len() >= BATCH {
            batch(core::mem::take(&mut changed), bodies);
        }
    }
    batch(changed, bodies);
}

/// Whether a plan leaves a function of the unit as it was added, as can be seen without a copy.
fn stays(
    plan: &Plan,
    function: FunctionIndex,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
) -> bool {
    function.index() < plan.added()
        && plan.entry(function).disposition() == Disposition::Keep
        && !plan.needs_apply(function, bodies.body(function), options)
}

/// By how many bytes functions grow.
fn growth(changed: Vec<[Left; 2]>, bodies: &mut dyn Bodies) -> i64 {
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut size = |left: Left| match left {
        Left::Nothing => Size::Known(0),
        Left::Bytes(size) => Size::Known(size),
        Left::Code(func) => {
            candidates.push(Candidate { func: *func, token: None });
            Size::Of(candidates.len() - 1)
        }
    };
    let changed: Vec<[Size; 2]> = changed.into_iter().map(|sides| sides.map(&mut size)).collect();
    let sizes = bodies.code_sizes().map(|sizes| sizes.of_candidates(&candidates));
    let bytes = |size: &Size| match *size {
        Size::Known(bytes) => Some(i64::from(bytes)),
        Size::Of(at) => sizes.as_ref()?.get(at)?.map(i64::from),
    };
    changed.iter().filter_map(|[was, is]| Some(bytes(is)? - bytes(was)?)).sum()
}

enum Size {
    Known(u32),
    /// That of a candidate.
    Of(usize),
}

/// What a plan leaves of a function.
#[derive(PartialEq)]
enum Left {
    Nothing,
    /// This many raw bytes.
    Bytes(u32),
    Code(Box<Function>),
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
