//! Oracles over time: programs in several flushes, executed; units one after the other, proved.
//!
//! What is executed is not proved, so that these share nothing.

use crate::link::{Kind, Linker};
use crate::over_time_host::ThisMachine;
use arbitrary::Unstructured;
use cranelift_codegen::ir::GlobalValueData;
use cranelift_mergefunc::fuzzing::over_time::{self, Finding, Program, Statistics, check_jit};
use cranelift_mergefunc::fuzzing::recipes::{Member, Unit};
use cranelift_mergefunc::fuzzing::support::Rng;
use cranelift_mergefunc::{Emitted, Prove, cranelift_codegen};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, OnceLock, PoisonError};

/// How many programs are linked at once.
const AT_ONCE: u64 = 12;

fn draw(seed: u64) -> Program {
    let bytes = Rng::new(seed).bytes(8192);
    let mut program = over_time::program(&mut Unstructured::new(&bytes)).expect("a program");
    program.options.prove = Prove::Never;
    program
}

/// A check, with panics as findings.
pub fn checked(
    program: &Program,
    check: &mut dyn FnMut(&Program) -> Result<(), Finding>,
) -> Result<(), Finding> {
    catch_unwind(AssertUnwindSafe(|| check(program)))
        .unwrap_or_else(|_| Err(Finding::new("panic".to_owned())))
}

/// Whether a program does something else in a JIT when it is merged.
pub fn runs_otherwise(case: u64) -> bool {
    let mut check =
        |program: &Program| check_jit(program, &mut ThisMachine, &mut Statistics::default());
    checked(&draw(case), &mut check).is_err()
}

/// Whether one of some programs does something else as a part of an executable, or of a shared library of which another
/// image defines some functions as well.
pub fn is_linked_otherwise(case: u64) -> bool {
    static LINKER: OnceLock<Mutex<Linker>> = OnceLock::new();
    let linker = LINKER.get_or_init(|| Mutex::new(Linker::x86_64()));
    let linker = linker.lock().unwrap_or_else(PoisonError::into_inner);
    let programs: Vec<Program> = (case * AT_ONCE..(case + 1) * AT_ONCE).map(draw).collect();
    let programs: Vec<&Program> = programs.iter().collect();
    let kind = [Kind::Static, Kind::Shared, Kind::Pie, Kind::Shared][case as usize % 4];
    let check = || !linker.check(&programs, kind, &mut Statistics::default()).is_empty();
    catch_unwind(AssertUnwindSafe(check)).unwrap_or(true)
}

/// The functions of a unit that are of use as units one after the other: a pointer into a function that was eliminated
/// means nothing.
fn of_use(unit: &Unit) -> bool {
    let points_inside = |member: &Member| {
        member.body.global_values.values().any(|gv| match gv {
            GlobalValueData::Symbol { offset, .. } => offset.bits() != 0,
            _ => false,
        })
    };
    !unit.functions.iter().any(points_inside)
}

/// Whether the checker refuses one of the units into which a unit is divided.
pub fn is_refused_over_time(unit: &Unit, seed: u64) -> bool {
    if !of_use(unit) {
        return false;
    }
    let mut rng = Rng::new(seed);
    let mut emitted = Emitted::new();
    let mut rest = &unit.functions[..];
    while !rest.is_empty() {
        let (batch, after) = rest.split_at(1 + rng.below(rest.len()));
        let batch = Unit { functions: batch.to_vec(), data: Vec::new(), ..unit.clone() };
        let plan = batch.plan_after(&emitted);
        if batch.prove_after(&emitted, &plan).is_err() {
            return true;
        }
        emitted.extend(&plan);
        rest = after;
    }
    false
}
