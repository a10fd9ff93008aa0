//! What merging costs and saves: seconds and bytes.
//!
//! Whatever is timed runs on one thread and leaves out what only this program does: copies are made
//! before the clock starts. Sizes are those of compiled code, without padding. Nothing is printed.

use crate::codegen::{Compiler, Refused, size};
use crate::compile::given_size;
use crate::progress::ProgressLine;
use anyhow::Result;
use clif_unit::pass::{Emit, Merged, plan_functions};
use clif_unit::progress::Progress as _;
use clif_unit::unit::Unit;
use cranelift_codegen::ir::{Function, UserExternalName, UserFuncName};
use cranelift_codegen::isa::TargetIsa;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::{
    self as pass, CallThunks, Disposition, ExtraArgument, FunctionIndex, Options, Plan, Target,
    call_thunk, cranelift_codegen,
};
use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    /// Functions of the unit that cannot be compiled, in order. Their sizes are 0, before and after.
    pub refused: Vec<Refused>,
}

impl Sizes {
    /// From the results of compiling. For a new body that cannot be compiled, the first function of the unit for
    /// which it was made is counted.
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
    /// The bodies that are compiled, by `FunctionIndex`.
    bodies: Vec<Option<Function>>,
    /// What was compiled in order to plan, and how many bytes that gave.
    compiled: HashMap<UserFuncName, (Function, u32)>,
}

/// The pass, from functions in memory to functions that can be compiled. Copying the unit comes
/// before the clock, freeing what was merged away after it: without the pass, it is freed as well.
pub fn pass(
    unit: &Unit,
    options: &Options<'_>,
    isa: &dyn TargetIsa,
) -> Result<(Applied, Duration)> {
    let mut functions = unit.functions.clone();
    let mut names = unit.names.clone();
    let mut kept: HashMap<UserFuncName, (Function, u32)> = HashMap::new();
    let mut compiler = Compiler::new(isa);
    let mut code_size = |func: &Function, keep: bool| {
        let size = compiler.size(func)?;
        if keep {
            kept.insert(func.name.clone(), (func.clone(), size));
        }
        Some(size)
    };

    let start = Instant::now();
    let plan = plan_functions(&functions, unit, &mut names, options, &mut code_size)?;
    let mut new_bodies = Vec::new();
    for new in plan.new_bodies() {
        let mut func = new.body().clone();
        plan.apply(new.function(), &mut func, options);
        new_bodies.push(Some(func));
    }
    let compiled = |index: usize| {
        let disposition = plan.entry(FunctionIndex::new(index)).disposition();
        disposition == Disposition::Keep && unit.given[index].became.is_none()
    };
    for (index, func) in functions.iter_mut().enumerate() {
        if compiled(index) {
            plan.apply(FunctionIndex::new(index), func, options);
        }
    }
    let time = start.elapsed();
    let functions = functions.into_iter().enumerate();
    let mut bodies: Vec<Option<Function>> =
        functions.map(|(index, func)| compiled(index).then_some(func)).collect();
    bodies.append(&mut new_bodies);
    Ok((Applied { plan, bodies, compiled: kept }, time))
}

/// What compiling a unit takes and gives.
#[derive(Debug, Default)]
pub struct Compiled {
    /// Bytes of code.
    pub sizes: Sizes,
    /// The time in Cranelift for all functions as they were read.
    pub before: Duration,
    /// The time in Cranelift for what is left after merging, in which thunks take no part.
    pub after: Duration,
}

/// The functions that are compiled as they were read before they are compiled as they are left, or
/// the other way around.
const CHUNK: usize = 256;

/// Compiles the functions as they were read, and what is left after merging.
///
/// The two take turns, chunk by chunk, each beginning every second time, so that a machine which
/// becomes slower or faster does so for both.
pub fn compile(unit: &Unit, applied: Applied, isa: &dyn TargetIsa, quiet: bool) -> Compiled {
    let Applied { plan, mut bodies, compiled } = applied;
    let mut progress = ProgressLine::new("compiling", bodies.len() + unit.functions.len(), quiet);
    let [mut before, mut after] = [Compiler::new(isa), Compiler::new(isa)];
    let mut sizes = [Vec::new(), Vec::new()];
    let last_chunk = bodies.len().div_ceil(CHUNK);
    for chunk in 0..last_chunk {
        let functions = chunk * CHUNK..bodies.len().min((chunk + 1) * CHUNK);
        for first in [chunk % 2 == 0, chunk % 2 == 1] {
            for index in functions.clone() {
                if first && index < unit.functions.len() {
                    sizes[0].push(given_size(unit, index, &mut before, isa));
                    progress.step();
                } else if !first {
                    let body = bodies[index].take();
                    // A body that is emitted as it was compiled is not compiled again.
                    let known =
                        body.as_ref().and_then(|body| compiled.get(&body.name).zip(Some(body)));
                    sizes[1].push(match known.filter(|((func, _), body)| func == *body) {
                        Some(((_, size), _)) => Ok(*size),
                        None => left_size(unit, &plan, index, body, &mut after, isa),
                    });
                    progress.step();
                }
            }
        }
    }
    let [sizes_before, sizes_after] = sizes;
    let sizes = Sizes::of(sizes_before, sizes_after);
    Compiled { sizes, before: before.time, after: after.time }
}

/// The size of the code that is emitted for a function after merging.
fn left_size(
    unit: &Unit,
    plan: &Plan,
    index: usize,
    body: Option<Function>,
    compiler: &mut Compiler<'_>,
    isa: &dyn TargetIsa,
) -> Measured {
    if let Some(func) = body {
        return Ok(size(compiler.compile_of(given_index(unit, plan, index), func)?));
    }
    Ok(match plan.output(FunctionIndex::new(index)).emit {
        pass::Emit::Thunk { to, extra_arguments, late: _ } => {
            thunk_size(unit, index, &extra_arguments, to, compiler, isa)?
        }
        pass::Emit::Nothing | pass::Emit::Alias { to: _ } => 0,
        // A thunk or an alias of the text.
        pass::Emit::Body | pass::Emit::NewBody(_) => given_size(unit, index, compiler, isa)?,
    })
}

/// The function of the unit that has the place of a function in the text: the function itself, or, for a new
/// body, the first function that it was made of.
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

/// The size of a jump with arguments, in raw bytes or as a function that calls.
fn thunk_size(
    unit: &Unit,
    index: usize,
    arguments: &[ExtraArgument],
    to: &UserExternalName,
    compiler: &mut Compiler<'_>,
    isa: &dyn TargetIsa,
) -> Measured {
    let func = &unit.functions[index];
    if let Some(code) = Target::of(isa).thunk_code(&func.signature, arguments, to) {
        return Ok(code.size());
    }
    let thunk = call_thunk(func.name.clone(), &func.signature, arguments, to, &CallThunks::of(isa));
    Ok(size(compiler.compile_of(index, thunk)?))
}

/// The sizes for a target whose times are not of interest: on all processors, and without compiling
/// again functions that merging does not change.
pub fn sizes(unit: &Unit, merged: &Merged, isa: &dyn TargetIsa, quiet: bool) -> Result<Sizes> {
    let count = merged.emit.len();
    let next = AtomicUsize::new(0);
    let progress = Mutex::new(ProgressLine::new("compiling for the other target", count, quiet));
    let done: Mutex<Vec<(usize, [Measured; 2])>> = Mutex::new(Vec::new());
    let work = || {
        let mut compiler = Compiler::new(isa);
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                break;
            }
            let sizes = sizes_of(unit, merged, index, &mut compiler, isa);
            done.lock().expect("not poisoned").push((index, sizes));
            progress.lock().expect("not poisoned").step();
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    std::thread::scope(|scope| -> std::io::Result<()> {
        for _ in 1..threads {
            std::thread::Builder::new().stack_size(crate::STACK_BYTES).spawn_scoped(scope, work)?;
        }
        work();
        Ok(())
    })?;
    let mut done = done.into_inner().expect("not poisoned");
    done.sort_unstable_by_key(|&(index, _)| index);
    let (mut before, after): (Vec<_>, Vec<_>) =
        done.into_iter().map(|(_, [before, after])| (before, after)).unzip();
    before.truncate(unit.functions.len());
    Ok(Sizes::of(before, after))
}

/// The sizes of a function as it was read, if it was, and as it is left.
fn sizes_of(
    unit: &Unit,
    merged: &Merged,
    index: usize,
    compiler: &mut Compiler<'_>,
    isa: &dyn TargetIsa,
) -> [Measured; 2] {
    let before = match index < unit.functions.len() {
        true => given_size(unit, index, compiler, isa),
        false => Ok(0),
    };
    let after = match &merged.emit[index] {
        Emit::Body(_) if !merged.changed[index] => before.clone(),
        Emit::Body(func) => {
            let place = given_index(unit, &merged.plan, index);
            compiler.compile_of(place, Function::clone(func)).map(size)
        }
        Emit::Thunk(to, arguments) => thunk_size(unit, index, arguments, to, compiler, isa),
        Emit::Alias(_) | Emit::Nothing => Ok(0),
    };
    [before, after]
}

/// The sum of sizes.
pub fn total(sizes: &[u32]) -> u64 {
    sizes.iter().map(|&size| u64::from(size)).sum()
}
