//! Which of two plans makes a unit smaller, decided by every function that the two leave different.
//!
//! The bytes that a body saves are known except for the cost of extra arguments at its call sites, which depends on
//! all else that each caller does: a function of 694,072 bytes grew by 27,576 because a few of its calls were
//! redirected, where 287 bytes less were predicted. So both plans are applied, and the difference of each function is
//! predicted with a bound on the error, which grows with the function. Functions are compiled only as long as the
//! errors leave a doubt, those with the largest error first. This module adds up sizes and decides nothing else.

use super::{BATCH, cost};
use crate::apply::{call_thunk, emitted};
use crate::options::Options;
use crate::plan::{Disposition, Emit, Plan};
use crate::size::{Scratch, SizeModel};
use crate::unit::{Bodies, Candidate, FunctionIndex};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};
use cranelift_codegen::ir::{Function, UserFuncName};
use cranelift_entity::EntityRef;

/// How the bytes that the functions of a unit take after `plan`, new ones included, compare with those after `before`. A
/// function that cannot be compiled counts on neither side, and none does where the embedder knows no sizes.
pub(super) fn compare(
    before: &Plan,
    plan: &Plan,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
) -> Ordering {
    if bodies.code_sizes().is_none() {
        return Ordering::Equal;
    }
    let mut doubts: Vec<Doubt> = Vec::new();
    let mut scratch = Scratch::default();
    let model = options.target.size_model;
    let entries = plan.entries().len().max(before.entries().len());
    for function in (0..entries).map(FunctionIndex::new) {
        if let Some(sides) = changed([before, plan], function, bodies, options) {
            doubts.push(Doubt::of(function, &sides, model, &mut scratch));
        }
    }
    doubts.sort_unstable_by_key(|doubt| {
        (Reverse(doubt.error + doubt.growth.unsigned_abs()), doubt.function)
    });
    let mut sum = Sum::default();
    doubts.iter().for_each(|doubt| sum.add(doubt));
    let mut batch = FIRST_BATCH;
    let mut rest = &doubts[..];
    while !rest.is_empty() && sum.is_in_doubt() {
        let (now, later) = rest.split_at(batch.min(rest.len()));
        rest = later;
        batch = BATCH.min(2 * batch);
        let mut sides: Vec<[Left; 2]> = Vec::new();
        for doubt in now {
            sum.remove(doubt);
            sides.extend(changed([before, plan], doubt.function, bodies, options));
        }
        sum.growth += growth(sides, bodies);
    }
    sum.growth.cmp(&0)
}

/// How many functions are compiled at first, where there is a doubt; each batch is twice as large as the one before.
const FIRST_BATCH: usize = 16;

/// What is predicted of a function that two plans leave different.
struct Doubt {
    function: FunctionIndex,
    /// By how many bytes it grows from one plan to the other.
    growth: i64,
    /// The bytes by which that may be wrong, apart from all others; 0 if it is exact.
    error: u64,
}

impl Doubt {
    fn of(
        function: FunctionIndex,
        sides: &[Left; 2],
        model: Option<SizeModel>,
        scratch: &mut Scratch,
    ) -> Doubt {
        let mut largest = 0;
        let mut size = |left: &Left| match left {
            Left::Nothing => Some(0),
            Left::Bytes(size) => Some(*size),
            Left::Code(func) => {
                let size = model?.predict_with(func, scratch)?;
                largest = size.max(largest);
                Some(size)
            }
        };
        let [was, is] = sides.each_ref().map(&mut size);
        let (growth, error) = match was.zip(is) {
            Some((was, is)) if largest == 0 => (i64::from(is) - i64::from(was), 0),
            Some((was, is)) => {
                let error = cost::CALL_ERROR + u64::from(largest / cost::SIZE_ERROR);
                (i64::from(is) - i64::from(was), error)
            }
            None => (0, u32::MAX.into()),
        };
        Doubt { function, growth, error }
    }

    /// The square of its error, and the bytes that it adds to the error of all.
    fn errors(&self) -> (u128, u64) {
        match self.error {
            0 => (0, 0),
            error => (u128::from(error).pow(2), self.growth.unsigned_abs() / cost::GROWTH_ERROR),
        }
    }
}

/// What is known of the functions that two plans leave different.
#[derive(Default)]
struct Sum {
    /// By how many bytes they grow.
    growth: i64,
    /// The squares of errors that do not depend on each other.
    squares: u128,
    /// Errors that may all have one sign: similar functions differ from their predictions alike.
    common: u64,
}

impl Sum {
    fn add(&mut self, doubt: &Doubt) {
        let (square, common) = doubt.errors();
        self.growth += doubt.growth;
        self.squares += square;
        self.common += common;
    }

    fn remove(&mut self, doubt: &Doubt) {
        let (square, common) = doubt.errors();
        self.growth -= doubt.growth;
        self.squares -= square;
        self.common -= common;
    }

    /// Whether the sign of the growth may be wrong.
    fn is_in_doubt(&self) -> bool {
        let error = cost::DOUBT * self.squares.isqrt() + u128::from(self.common);
        u128::from(self.growth.unsigned_abs()) <= error
    }
}

/// What two plans leave of a function, if that differs. `None` also if one of them leaves what cannot be compiled.
fn changed(
    plans: [&Plan; 2],
    function: FunctionIndex,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
) -> Option<[Left; 2]> {
    if plans.iter().all(|plan| stays(plan, function, bodies, options)) {
        return None;
    }
    let [was, is] = plans.map(|plan| match function.index() < plan.entries().len() {
        true if plan.is_cached(function) => None,
        true => left(plan, function, bodies, options),
        false => Some(Left::Nothing),
    });
    was.zip(is).filter(|(was, is)| was != is).map(<[Left; 2]>::from)
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
            let optimize = plan.optimize_for();
            let code = options.target.thunk_code(signature, &extra_arguments, to, optimize);
            if let Some(code) = code {
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
