//! Two JITs: a plain one, and one that merges.

use super::define::{Definer, functions, say};
use super::program::{Call, Part, Program};
use super::statistics::Statistics;
use super::{Finding, check_alignment, jit_isa};
use crate::jit::{self, Run};
use cranelift_jit::JITModule;
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};

/// Defines the program in both, runs both whenever they are ready, and compares.
///
/// # Errors
///
/// The difference.
///
/// # Panics
///
/// If the program is wrong, or the pass panics.
pub fn check(program: &Program, statistics: &mut Statistics) -> Result<(), Finding> {
    let bodies = functions(program);
    let [plain, merging] = [(); 2].map(|()| jit::module(jit_isa(program.speed), |_| {}));
    let back_end = if program.any_back_end { BackEnd::Any } else { BackEnd::Jit };
    let options = ModuleOptions { back_end, ..program.options };
    let mut plain = Definer::plain(plain, program, &bodies, "");
    let merging = MergingModule::with_options(merging, options);
    let mut merging = Definer::new(merging, program, &bodies, "");
    let result = run(program, &mut plain, &mut merging);
    statistics.add_module(program, &merging.module, &merging.ids);
    jit::free(plain.module);
    if let Ok((module, _)) = merging.module.into_inner() {
        jit::free(module);
    }
    result
}

/// Runs the plain program with optimised code and without. Facts that are not true would show as a
/// difference.
///
/// # Errors
///
/// The difference, which is an error of the generator.
///
/// # Panics
///
/// If the program is wrong.
pub fn check_facts(program: &Program, statistics: &mut Statistics) -> Result<(), Finding> {
    statistics.add_program(program);
    let bodies = functions(program);
    let mut left = Vec::new();
    for speed in [false, true] {
        let mut plain = Definer::plain(jit::module(jit_isa(speed), |_| {}), program, &bodies, "");
        for flush in 0..program.flushes.len() {
            plain.define(flush, &mut |_, _, _| {}).unwrap_or_else(|error| panic!("{error:?}"));
        }
        plain.module.finalize_definitions().expect("memory can be protected");
        let runs = program.calls.iter().map(|call| {
            let id = plain.ids.function(call.function);
            call.run(plain.module.get_finalized_function(id))
        });
        let runs: Vec<Run> = runs.collect();
        left.push(jit::run(&runs));
        jit::free(plain.module);
    }
    let is_whole = left[0].len() == program.calls.len();
    match is_whole && left[0] == left[1] {
        true => Ok(()),
        false => Err(Finding::new(format!("{:?} and, optimised, {:?}", left[0], left[1]))),
    }
}

/// A module in which a program is merged.
pub trait Merged {
    /// Defines and flushes one flush.
    fn define(&mut self, flush: usize) -> Result<(), Finding>;
    /// Makes it ready to run, up to a flush.
    fn finalize(&mut self, flush: usize) -> Result<(), Finding>;
    /// Where a part is, if it is anywhere.
    fn place(&self, part: Part) -> Option<*const u8>;
}

/// Defines the program flush by flush in both modules, runs both whenever they are ready, and
/// compares.
///
/// # Errors
///
/// The difference.
///
/// # Panics
///
/// If the program is wrong, or the pass panics.
pub fn run(
    program: &Program,
    plain: &mut Definer<'_, JITModule>,
    merged: &mut dyn Merged,
) -> Result<(), Finding> {
    for (flush, moment) in program.flushes.iter().enumerate() {
        plain.define(flush, &mut |_, _, _| {}).unwrap_or_else(|error| panic!("{error:?}"));
        merged.define(flush)?;
        if !moment.ready || !program.is_complete(flush) {
            continue;
        }
        plain.module.finalize_definitions().expect("memory can be protected");
        merged.finalize(flush)?;
        for &part in program.flushes[..=flush].iter().flat_map(|flush| &flush.defined) {
            if let Some(place) = merged.place(part) {
                check_alignment(program, part, place)?;
            }
        }
        let known = program.calls.iter().filter_map(|call| {
            let part = Part::Function(call.function);
            let code = merged.place(part).filter(|_| program.flush_of(part) <= flush)?;
            Some((
                call,
                plain.module.get_finalized_function(plain.ids.function(call.function)),
                code,
            ))
        });
        let known: Vec<(&Call, _, _)> = known.collect();
        let runs: Vec<Run> = known.iter().map(|(call, plain, _)| call.run(*plain)).collect();
        let expected = jit::run(&runs);
        let runs: Vec<Run> = known.iter().map(|(call, _, merged)| call.run(*merged)).collect();
        let results = jit::run(&runs);
        for (at, (call, ..)) in known.iter().enumerate() {
            let (expected, result) = (expected.get(at), results.get(at));
            assert!(expected.is_some(), "the plain program does not end: {call:?}");
            if expected != result {
                return Err(Finding::new(format!(
                    "after flush {flush}, {call:?} gives {result:?} instead of {expected:?}"
                )));
            }
        }
    }
    Ok(())
}

impl Merged for Definer<'_, MergingModule<JITModule>> {
    fn define(&mut self, flush: usize) -> Result<(), Finding> {
        let program = self.program;
        let mut say = |module: &mut _, part, ids: &_| say(module, program, part, ids);
        let defined = self.define(flush, &mut say).and_then(|()| self.module.flush());
        defined.map_err(|error| Finding::new(format!("flush {flush} is refused: {error}")))
    }

    fn finalize(&mut self, flush: usize) -> Result<(), Finding> {
        let last = self.program.finishes && flush + 1 == self.program.flushes.len();
        let finalized = match self.program.any_back_end || last {
            true => self.module.inner_mut().finalize_definitions(),
            false => self.module.finalize_definitions(),
        };
        finalized
            .map_err(|error| Finding::new(format!("flush {flush} cannot be made ready: {error}")))
    }

    fn place(&self, part: Part) -> Option<*const u8> {
        let module = &self.module;
        Some(match (part, self.program.any_back_end) {
            (Part::Function(function), is_any) => {
                let id = self.ids.known(function)?;
                match is_any {
                    true => module.inner().get_finalized_function(id),
                    false => module.get_finalized_function(id),
                }
            }
            (Part::Data(data), true) => module.inner().get_finalized_data(self.ids.data(data)).0,
            (Part::Data(data), false) => module.get_finalized_data(self.ids.data(data)).0,
        })
    }
}
