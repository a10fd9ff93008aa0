//! Two JITs: a plain one, and one that merges.

use super::define::{Definer, parse, say};
use super::program::{Call, Part, Program};
use super::statistics::Statistics;
use super::{Finding, Host, Run, check_alignment};
use cranelift_jit::JITModule;
use cranelift_mergefunc::{BackEnd, MergingModule, ModuleOptions};

/// Defines the program in both, runs both whenever they are ready, and compares.
///
/// # Errors
///
/// What differs.
///
/// # Panics
///
/// If the program is wrong, or the pass panics.
pub fn check(
    program: &Program,
    host: &mut dyn Host,
    statistics: &mut Statistics,
) -> Result<(), Finding> {
    let bodies = parse(program);
    let [plain, merging] = [(); 2].map(|()| host.jit(program.speed));
    let back_end = if program.any_back_end { BackEnd::Any } else { BackEnd::Jit };
    let options = ModuleOptions { back_end, ..program.options };
    let mut plain = Definer::plain(plain, program, &bodies, "");
    let merging = MergingModule::with_options(merging, options);
    let mut merging = Definer::new(merging, program, &bodies, "");
    let result = run(program, host, &mut plain, &mut merging);
    statistics.add_module(program, &merging.module, &merging.ids);
    host.free(plain.module);
    if let Ok((jit, _)) = merging.module.into_inner() {
        host.free(jit);
    }
    result
}

/// Runs the plain program with optimised code and without. Facts that are not true would show as a difference.
///
/// # Errors
///
/// What differs, which is an error of the generator.
///
/// # Panics
///
/// If the program is wrong.
pub fn check_facts(
    program: &Program,
    host: &mut dyn Host,
    statistics: &mut Statistics,
) -> Result<(), Finding> {
    statistics.add_program(program);
    let bodies = parse(program);
    let mut left = Vec::new();
    for speed in [false, true] {
        let mut plain = Definer::plain(host.jit(speed), program, &bodies, "");
        for flush in 0..program.flushes.len() {
            plain.define(flush, &mut |_, _, _| {}).unwrap_or_else(|error| panic!("{error:?}"));
        }
        plain.module.finalize_definitions().expect("memory can be protected");
        let runs = program.calls.iter().map(|call| {
            let id = plain.ids.function(call.function);
            Run { code: plain.module.get_finalized_function(id), call: call.clone() }
        });
        let runs: Vec<Run> = runs.collect();
        left.push(host.run(&runs));
        host.free(plain.module);
    }
    let is_whole = left[0].len() == program.calls.len();
    match is_whole && left[0] == left[1] {
        true => Ok(()),
        false => Err(Finding::new(format!("{:?} and, optimised, {:?}", left[0], left[1]))),
    }
}

fn run(
    program: &Program,
    host: &mut dyn Host,
    plain: &mut Definer<'_, JITModule>,
    merging: &mut Definer<'_, MergingModule<JITModule>>,
) -> Result<(), Finding> {
    for (flush, moment) in program.flushes.iter().enumerate() {
        plain.define(flush, &mut |_, _, _| {}).unwrap_or_else(|error| panic!("{error:?}"));
        let defined = merging
            .define(flush, &mut |module, part, ids| say(module, program, part, ids))
            .and_then(|()| merging.module.flush());
        if let Err(error) = defined {
            return Err(Finding::new(format!("flush {flush} is refused: {error}")));
        }
        if !moment.ready || !program.is_complete(flush) {
            continue;
        }
        plain.module.finalize_definitions().expect("memory can be protected");
        let finalized = match program.any_back_end {
            true => merging.module.inner_mut().finalize_definitions(),
            false => merging.module.finalize_definitions(),
        };
        if let Err(error) = finalized {
            return Err(Finding::new(format!("flush {flush} cannot be made ready: {error}")));
        }
        let calls: Vec<&Call> = program
            .calls
            .iter()
            .filter(|call| program.flush_of(Part::Function(call.function)) <= flush)
            .collect();
        let runs = |code: &dyn Fn(usize) -> *const u8| -> Vec<Run> {
            calls
                .iter()
                .map(|call| Run { code: code(call.function), call: (*call).clone() })
                .collect()
        };
        let expected = host.run(&runs(&|function| {
            plain.module.get_finalized_function(plain.ids.function(function))
        }));
        let merged = |function| {
            let id = merging.ids.function(function);
            match program.any_back_end {
                true => merging.module.inner().get_finalized_function(id),
                false => merging.module.get_finalized_function(id),
            }
        };
        let defined = program.flushes[..=flush].iter().flat_map(|flush| &flush.defined);
        for &part in defined {
            let place = match part {
                Part::Function(function) => merged(function),
                Part::Data(data) => {
                    let id = merging.ids.data(data);
                    match program.any_back_end {
                        true => merging.module.inner().get_finalized_data(id).0,
                        false => merging.module.get_finalized_data(id).0,
                    }
                }
            };
            check_alignment(program, part, place)?;
        }
        let results = host.run(&runs(&merged));
        for (at, call) in calls.iter().enumerate() {
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
