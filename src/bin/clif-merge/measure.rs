//! What merging costs and saves: seconds and bytes.
//!
//! Whatever is timed runs on one thread and leaves out what only this program does: copies are made
//! before the clock starts. Sizes are those of compiled code, without padding. Nothing is printed.

use crate::codegen::{Compiler, size};
use crate::compile::given_size;
use crate::pass::{Emit, Merged, plan_functions};
use crate::progress::Progress;
use crate::unit::Unit;
use anyhow::Result;
use cranelift_codegen::ir::{Function, UserFuncName};
use cranelift_codegen::isa::TargetIsa;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::{Disposition, FunctionIndex, Options, Plan, Target, cranelift_codegen};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Bytes of code of each function. Shared bodies, which only exist afterwards, come last.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    /// As it was read.
    pub before: Vec<u32>,
    /// As it is emitted after merging: 0 for what is gone or only another name.
    pub after: Vec<u32>,
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
}

/// The pass, from functions in memory to functions that can be compiled; merged bodies are freed.
pub fn pass(
    unit: &Unit,
    options: &Options<'_>,
    code_size: &mut dyn FnMut(&Function) -> Option<u32>,
) -> Result<(Applied, Duration)> {
    let functions = unit.functions.clone();
    let mut names = unit.names.clone();

    let start = Instant::now();
    let plan = plan_functions(&functions, &unit.given, &mut names, options, code_size)?;
    let mut shared_bodies = Vec::new();
    for shared in plan.shared_bodies() {
        let mut func = functions[shared.body_of.index()].clone();
        func.name = UserFuncName::User(plan.entry(shared.function).symbol().clone());
        plan.apply(shared.function, &mut func, options);
        shared_bodies.push(Some(func));
    }
    let mut bodies = Vec::with_capacity(plan.entries().len());
    for (index, mut func) in functions.into_iter().enumerate() {
        let function = FunctionIndex::new(index);
        let kept = plan.entry(function).disposition() == Disposition::Keep;
        bodies.push((kept && unit.given[index].became.is_none()).then(|| {
            plan.apply(function, &mut func, options);
            func
        }));
    }
    bodies.append(&mut shared_bodies);
    let time = start.elapsed();
    Ok((Applied { plan, bodies }, time))
}

/// Compiles the functions as they were read. Gives their sizes, and the time in Cranelift.
pub fn compile_before(unit: &Unit, isa: &dyn TargetIsa, quiet: bool) -> Result<(Vec<u32>, Duration)> {
    let mut compiler = Compiler::new(isa);
    let mut progress = Progress::new("compiling before merging", unit.functions.len(), quiet);
    let mut sizes = Vec::new();
    for index in 0..unit.functions.len() {
        sizes.push(given_size(unit, index, &mut compiler, isa)?);
        progress.step();
    }
    Ok((sizes, compiler.time))
}

/// Compiles what is left after merging. Gives the sizes of all that is emitted, and the time in
/// Cranelift, in which thunks take no part.
pub fn compile_after(
    unit: &Unit,
    applied: Applied,
    isa: &dyn TargetIsa,
    quiet: bool,
) -> Result<(Vec<u32>, Duration)> {
    let Applied { plan, bodies } = applied;
    let mut compiler = Compiler::new(isa);
    let mut progress = Progress::new("compiling after merging", bodies.len(), quiet);
    let mut sizes = Vec::new();
    for (index, body) in bodies.into_iter().enumerate() {
        sizes.push(match body {
            Some(func) => size(compiler.compile_of(unit, given_index(unit, &plan, index), func)?),
            None => match plan.entry(FunctionIndex::new(index)).disposition() {
                Disposition::Thunk { to: _ } => jump_size(isa),
                Disposition::Redirect { to: _ } | Disposition::Alias { to: _ } => 0,
                // What the text calls a thunk or an alias.
                Disposition::Keep => given_size(unit, index, &mut compiler, isa)?,
            },
        });
        progress.step();
    }
    Ok((sizes, compiler.time))
}

/// The function of the unit whose place a function has: its own, or that of the function whose
/// body it shares.
fn given_index(unit: &Unit, plan: &Plan, index: usize) -> usize {
    match index.checked_sub(unit.given.len()) {
        None => index,
        Some(shared) => plan.shared_bodies()[shared].body_of.index(),
    }
}

fn jump_size(isa: &dyn TargetIsa) -> u32 {
    Target::of(isa).jump_thunk.map_or(0, |jump| jump.size())
}

/// The sizes for a target whose times are not of interest: on all processors, and without compiling
/// again what merging leaves as it is.
pub fn sizes(unit: &Unit, merged: &Merged, isa: &dyn TargetIsa, quiet: bool) -> Result<Sizes> {
    let count = merged.emit.len();
    let next = AtomicUsize::new(0);
    let progress = Mutex::new(Progress::new("compiling for the other target", count, quiet));
    let done: Mutex<Vec<(usize, Result<[u32; 2]>)>> = Mutex::new(Vec::new());
    let work = || {
        let mut compiler = Compiler::new(isa);
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                break;
            }
            let sizes = sizes_of(unit, merged, index, &mut compiler, isa);
            if sizes.is_err() {
                // Functions before this one are still finished, so that the first error is found.
                next.store(count, Ordering::Relaxed);
            }
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
    let mut all = Sizes::default();
    for (_, sizes) in done {
        let [before, after] = sizes?;
        all.before.push(before);
        all.after.push(after);
    }
    all.before.truncate(unit.functions.len());
    Ok(all)
}

fn sizes_of(
    unit: &Unit,
    merged: &Merged,
    index: usize,
    compiler: &mut Compiler<'_>,
    isa: &dyn TargetIsa,
) -> Result<[u32; 2]> {
    let before = match index < unit.functions.len() {
        true => given_size(unit, index, compiler, isa)?,
        false => 0,
    };
    let after = match &merged.emit[index] {
        Emit::Body(_) if !merged.changed[index] => before,
        Emit::Body(func) => {
            let place = given_index(unit, &merged.plan, index);
            size(compiler.compile_of(unit, place, Function::clone(func))?)
        }
        Emit::Thunk(_) => jump_size(isa),
        Emit::Alias(_) | Emit::Nothing => 0,
    };
    Ok([before, after])
}

/// The sum of sizes.
pub fn total(sizes: &[u32]) -> u64 {
    sizes.iter().map(|&size| u64::from(size)).sum()
}
