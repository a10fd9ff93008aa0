//! The costs and savings of merging: seconds and bytes.
//!
//! Times are wall-clock times, on the threads that the command line asks for. They leave out what
//! only this program does: copies are made before the clock starts. Sizes are those of compiled
//! code, without padding. Nothing is printed.

use crate::codegen::{Compiler, Refused, size};
use crate::jobs::{Jobs, Tools};
use crate::progress::ProgressLine;
use anyhow::Result;
use clif_unit::extra::extra;
use clif_unit::pass::{Emit, Merged, plan_functions};
use clif_unit::progress::Progress as _;
use clif_unit::unit::{Became, Names, Unit};
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_codegen::isa::TargetIsa;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::thunk::{CallThunks, OptimizeFor, call_thunk};
use cranelift_mergefunc::{
    self as pass, Disposition, ExtraArgument, FunctionIndex, Options, Plan, Target,
    cranelift_codegen,
};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The bytes of code of one function, if it can be compiled.
type Measured = Result<u32, Refused>;

/// Bytes of code of each function. New bodies, which only exist after merging, come last.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    /// As it was read.
    pub before: Vec<u32>,
    /// As it is emitted after merging: 0 for a redirected function or an alias.
    pub after: Vec<u32>,
    /// Functions of the unit that cannot be compiled, in order. Their sizes are 0, before and
    /// after.
    pub refused: Vec<Refused>,
}

impl Sizes {
    /// From the results of compiling. For a new body that cannot be compiled, the first function of
    /// the unit for which it was made is counted.
    fn of(before: Vec<Measured>, after: Vec<Measured>) -> Sizes {
        let mut refused: BTreeMap<usize, Refused> = BTreeMap::new();
        for error in before.iter().chain(&after).filter_map(|size| size.as_ref().err()) {
            refused.entry(error.function).or_insert_with(|| error.clone());
        }
        let counted = |sizes: Vec<Measured>| -> Vec<u32> {
            let sizes = sizes.into_iter().enumerate();
            let size = |(index, size): (usize, Measured)| match size {
                Ok(size) if !refused.contains_key(&index) => size,
                Ok(_) | Err(_) => 0,
            };
            sizes.map(size).collect()
        };
        let [before, after] = [before, after].map(counted);
        Sizes { before, after, refused: refused.into_values().collect() }
    }

    /// Bytes that are saved at a function, or taken if it is new: negative.
    pub fn saved(&self, function: FunctionIndex) -> i64 {
        let size = |sizes: &[u32]| sizes.get(function.index()).map_or(0, |&size| i64::from(size));
        size(&self.before) - size(&self.after)
    }
}

/// Visits every instruction and every operand once: the least that anything that looks at all
/// functions takes.
pub fn walk(functions: &[Function]) -> Duration {
    let start = Instant::now();
    for func in functions {
        for block in func.layout.blocks() {
            for inst in func.layout.block_insts(block) {
                black_box(func.dfg.insts[inst].opcode());
                for value in func.dfg.inst_values(inst) {
                    black_box(value);
                }
            }
        }
    }
    start.elapsed()
}

/// A unit to which a plan was applied in place.
pub struct Applied {
    /// The plan.
    pub plan: Plan,
    /// The names of the unit, and of new bodies.
    pub names: Names,
    /// The bodies that are compiled, by `FunctionIndex`.
    bodies: Vec<Option<Function>>,
}

/// The pass, from functions in memory to functions that can be compiled, on the threads of `jobs`.
/// Copying the unit comes before the clock, freeing what was merged away after it: without the
/// pass, it is freed as well.
pub fn pass(unit: &Unit, options: &Options<'_>, jobs: &Jobs) -> Result<(Applied, Duration)> {
    jobs.run(|| pass_here(unit, options, jobs))
}

fn pass_here(unit: &Unit, options: &Options<'_>, jobs: &Jobs) -> Result<(Applied, Duration)> {
    let mut functions = unit.functions.clone();
    let mut names = unit.names.clone();

    let start = Instant::now();
    let plan = plan_functions(&functions, unit, &mut names, options, jobs.count() > 1)?;
    let mut new_bodies = Vec::new();
    for new in plan.new_bodies() {
        let mut func = new.body().clone();
        plan.apply(new.function(), &mut func);
        new_bodies.push(Some(func));
    }
    let compiled = |index: usize| {
        let disposition = plan.entry(FunctionIndex::new(index)).disposition();
        disposition == Disposition::Keep && unit.given[index].became.is_none()
    };
    for (index, func) in functions.iter_mut().enumerate() {
        if compiled(index) {
            plan.apply(FunctionIndex::new(index), func);
        }
    }
    let time = start.elapsed();
    let functions = functions.into_iter().enumerate();
    let mut bodies: Vec<Option<Function>> =
        functions.map(|(index, func)| compiled(index).then_some(func)).collect();
    bodies.append(&mut new_bodies);
    Ok((Applied { plan, names, bodies }, time))
}

/// The time that compiling a unit takes, and its results.
#[derive(Debug, Default)]
pub struct Compiled {
    /// Bytes of code.
    pub sizes: Sizes,
    /// The time of compiling all functions as they were read.
    pub before: Duration,
    /// The time of compiling what is left after merging.
    pub after: Duration,
}

/// How many functions are compiled as they were read before they are compiled as they are left, or
/// the other way around, for each thread.
const CHUNK: usize = 256;

/// Compiles the functions as they were read, and what is left after merging, on the same threads.
///
/// The two take turns, chunk by chunk, each beginning every second time, so that a machine which
/// becomes slower or faster does so for both.
pub fn compile(
    unit: &Unit,
    applied: Applied,
    isa: &dyn TargetIsa,
    jobs: &Jobs,
    quiet: bool,
) -> Compiled {
    let Applied { plan, names: _, mut bodies } = applied;
    let all = bodies.len() + unit.functions.len();
    let progress = Mutex::new(ProgressLine::new("compiling", all, quiet));
    let new = || Compiler::new(isa);
    let compilers = Tools::new(&new);
    let mut sizes = [Vec::new(), Vec::new()];
    let mut times = [Duration::ZERO; 2];
    let chunk_size = CHUNK * jobs.count();
    for chunk in 0..bodies.len().div_ceil(chunk_size) {
        let functions = chunk * chunk_size..bodies.len().min((chunk + 1) * chunk_size);
        for side in [chunk % 2, 1 - chunk % 2] {
            let work = |index: usize| match side {
                0 => (index < unit.functions.len())
                    .then(|| Work::given(unit, index, isa, plan.optimize_for())),
                _ => Some(Work::left(unit, &plan, index, bodies[index].take(), isa)),
            };
            let work: Vec<Work> = functions.clone().filter_map(work).collect();
            let start = Instant::now();
            let mut done = jobs.map(work, Work::weight, &compilers, |compiler, work| {
                let size = work.measure(compiler);
                progress.lock().expect("not poisoned").step();
                size
            });
            times[side] += start.elapsed();
            sizes[side].append(&mut done);
        }
    }
    let [sizes_before, sizes_after] = sizes;
    let [before, after] = times;
    Compiled { sizes: Sizes::of(sizes_before, sizes_after), before, after }
}

/// The work to determine the size of a function's code.
enum Work {
    /// Nothing.
    Known(u32),
    /// Compiling this; `function` of the unit has its place in the text.
    Compile { function: usize, func: Box<Function> },
}

impl Work {
    /// For a function as it was read. A thunk of the text has the size of a thunk.
    fn given(unit: &Unit, index: usize, isa: &dyn TargetIsa, optimize: OptimizeFor) -> Work {
        let func = &unit.functions[index];
        let code = match &unit.given[index].became {
            Some((Became::Alias, _)) => return Work::Known(0),
            Some((Became::Thunk, to)) => {
                Target::of(isa).thunk_code(&func.signature, &extra(func), to, optimize)
            }
            None => None,
        };
        match code {
            Some(code) => Work::Known(code.size()),
            None => Work::Compile { function: index, func: Box::new(func.clone()) },
        }
    }

    /// For what is emitted for a function after merging.
    fn left(
        unit: &Unit,
        plan: &Plan,
        index: usize,
        body: Option<Function>,
        isa: &dyn TargetIsa,
    ) -> Work {
        if let Some(func) = body {
            let function = given_index(unit, plan, index);
            return Work::Compile { function, func: Box::new(func) };
        }
        match plan.output(FunctionIndex::new(index)).emit {
            pass::Emit::Thunk { to, extra_arguments, late: _ } => {
                Work::thunk(unit, index, &extra_arguments, to, isa, plan.optimize_for())
            }
            pass::Emit::Nothing | pass::Emit::Alias { to: _ } => Work::Known(0),
            // A thunk or an alias of the text.
            pass::Emit::Body | pass::Emit::NewBody(_) => {
                Work::given(unit, index, isa, plan.optimize_for())
            }
        }
    }

    /// For a jump with arguments, in raw bytes or as a function that calls.
    fn thunk(
        unit: &Unit,
        index: usize,
        arguments: &[ExtraArgument],
        to: &UserExternalName,
        isa: &dyn TargetIsa,
        optimize: OptimizeFor,
    ) -> Work {
        let func = &unit.functions[index];
        let code = Target::of(isa).thunk_code(&func.signature, arguments, to, optimize);
        if let Some(code) = code {
            return Work::Known(code.size());
        }
        let thunks = CallThunks::of(isa);
        let thunk = call_thunk(func.name.clone(), &func.signature, arguments, to, &thunks);
        Work::Compile { function: index, func: Box::new(thunk) }
    }

    fn weight(&self) -> usize {
        match self {
            Work::Known(_) => 0,
            Work::Compile { function: _, func } => func.dfg.num_insts(),
        }
    }

    fn measure(self, compiler: &mut Compiler<'_>) -> Measured {
        match self {
            Work::Known(size) => Ok(size),
            Work::Compile { function, func } => compiler.compile_of(function, *func).map(size),
        }
    }
}

/// The function of the unit that has the place of a function in the text: the function itself, or,
/// for a new body, the first function that it was made of.
fn given_index(unit: &Unit, plan: &Plan, index: usize) -> usize {
    match index.checked_sub(unit.given.len()) {
        None => index,
        // A new body has no place in the text: the first function that it was made of has one.
        Some(new) => match plan.new_bodies()[new].copy_of() {
            Some(copied) => copied.index(),
            None => plan
                .entries()
                .position(|(_, entry)| {
                    entry.disposition().representative() == Some(FunctionIndex::new(index))
                })
                .expect("a function was merged into it"),
        },
    }
}

/// The sizes for a target whose times are not of interest: functions that merging does not change
/// are not compiled again.
pub fn sizes(unit: &Unit, merged: &Merged, isa: &dyn TargetIsa, jobs: &Jobs, quiet: bool) -> Sizes {
    let count = merged.emit.len();
    let progress = Mutex::new(ProgressLine::new("compiling for the other target", count, quiet));
    let new = || Compiler::new(isa);
    let weight = |&index: &usize| unit.functions.get(index).map_or(0, |func| func.dfg.num_insts());
    let sizes = jobs.map((0..count).collect(), weight, &Tools::new(&new), |compiler, index| {
        let sizes = sizes_of(unit, merged, index, compiler, isa);
        progress.lock().expect("not poisoned").step();
        sizes
    });
    let (mut before, after): (Vec<_>, Vec<_>) =
        sizes.into_iter().map(|[before, after]| (before, after)).unzip();
    before.truncate(unit.functions.len());
    Sizes::of(before, after)
}

/// The sizes of a function as it was read, if it was, and as it is left.
fn sizes_of(
    unit: &Unit,
    merged: &Merged,
    index: usize,
    compiler: &mut Compiler<'_>,
    isa: &dyn TargetIsa,
) -> [Measured; 2] {
    let optimize = merged.plan.optimize_for();
    let before = match index < unit.functions.len() {
        true => Work::given(unit, index, isa, optimize).measure(compiler),
        false => Ok(0),
    };
    let after = match &merged.emit[index] {
        Emit::Body(_) if !merged.changed[index] => before.clone(),
        Emit::Body(func) => {
            let place = given_index(unit, &merged.plan, index);
            compiler.compile_of(place, Function::clone(func)).map(size)
        }
        Emit::Thunk(to, arguments) => {
            Work::thunk(unit, index, arguments, to, isa, optimize).measure(compiler)
        }
        Emit::Alias(_) | Emit::Nothing => Ok(0),
    };
    [before, after]
}

/// The sum of sizes.
pub fn total(sizes: &[u32]) -> u64 {
    sizes.iter().map(|&size| u64::from(size)).sum()
}
