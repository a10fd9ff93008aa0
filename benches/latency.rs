//! How long it takes to find out, for a function that arrives, whether it equals one that arrived
//! before.
//!
//! [`StreamingMerger::add`], compared with compiling the same function: for the functions of a unit
//! one after the other, and for generated functions when 10, 10,000, and `CLIF_MERGE_FUNCTIONS`
//! (100,000) others are known, with the memory that is kept of each: in all, and without 32 bytes
//! for each that equals none and four for each reference. The IR of these is dropped when they were
//! added. Rows `held` are with similar merging, for an embedder that replaces compiled code,
//! without a bound: those functions are held that an earlier one resembles. They say how many are,
//! and what the estimated bytes of their IR are. Runs on the sample of the repository, or, if
//! `CLIF_MERGE_UNITS` names a directory, on every `.clif` file in it. Of `CLIF_MERGE_ROUNDS` (3)
//! rounds, the one with the median time counts.

use cranelift_mergefunc::cranelift_codegen::Context;
use cranelift_mergefunc::cranelift_codegen::ir::{Function, InstructionData};
use cranelift_mergefunc::cranelift_codegen::isa::TargetIsa;
use cranelift_mergefunc::streaming::{Added, Known, StreamingMerger};
use cranelift_mergefunc::{Options, Target};
use peak_alloc::PeakAlloc;
use std::time::{Duration, Instant};
use testkit::measure::{self, Figures};
use testkit::scale::Family;
use testkit::support::free;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Generated functions that are timed.
const TIMED: u32 = 1_000;

fn add(merger: &mut StreamingMerger<'_>, func: &Function) -> Added {
    let symbol = func.name.get_user().expect("units name functions u0:N").clone();
    merger.add(symbol, func, free()).expect("symbols are distinct")
}

/// The references of a generated function: all of them are calls.
fn references(func: &Function) -> usize {
    let insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
    insts.filter(|&inst| matches!(func.dfg.insts[inst], InstructionData::Call { .. })).count()
}

/// Adding and compiling functions after others.
#[derive(Clone, Copy, Default)]
struct Times {
    add: Duration,
    compile: Duration,
    /// Bytes that are kept of each function that was added before.
    memory: f64,
    /// Like `alone`, without digests and references.
    beside: f64,
    /// How many functions were known to equal others.
    equal: usize,
    /// How many are held, and the estimated bytes of their IR.
    held: usize,
    held_bytes: usize,
}

/// Which functions are merged.
#[derive(Clone, Copy)]
enum Merged {
    Equal,
    Similar,
}

/// Adds the functions before, then adds and compiles the others, one after the other.
fn times(
    before: impl Iterator<Item = Function>,
    timed: impl Iterator<Item = Function>,
    isa: &dyn TargetIsa,
    merged: Merged,
) -> Times {
    let at_first = ALLOCATOR.current_usage();
    let options = Options { target: Target::x86_64(), ..Options::default() };
    let mut merger = match merged {
        Merged::Equal => StreamingMerger::new(options),
        Merged::Similar => StreamingMerger::replacing(options, usize::MAX),
    };
    let (mut digests, mut referred) = (0, 0);
    before.for_each(|func| {
        let known = add(&mut merger, &func).known;
        digests += usize::from(!matches!(known, Known::Equal(_)));
        referred += references(&func);
    });
    let kept = (ALLOCATOR.current_usage() - at_first) as f64;
    let mut times = Times::default();
    if !merger.is_empty() {
        let each = |bytes: f64| bytes / merger.len() as f64;
        times.memory = each(kept);
        times.beside = each(kept - (32 * digests + 4 * referred) as f64);
    }
    let held_before = merger.held_bytes();
    let mut context = Context::new();
    for func in timed {
        let start = Instant::now();
        let Added { function: _, known } = add(&mut merger, &func);
        let added = Instant::now();
        measure::compile(&mut context, isa, func);
        times.add += added - start;
        times.compile += added.elapsed();
        times.equal += usize::from(matches!(known, Known::Equal(_)));
        times.held += usize::from(known == Known::Hold);
    }
    times.held_bytes = merger.held_bytes() - held_before;
    times
}

/// The round whose time is the median.
fn median(rounds: u32, times: impl Fn() -> Times) -> Times {
    let mut all: Vec<Times> = (0..rounds).map(|_| times()).collect();
    all.sort_unstable_by_key(|times| times.add);
    let median = all[all.len() / 2];
    assert!(median.add > Duration::ZERO);
    median
}

fn print(name: &str, functions: usize, times: &Times, figures: &mut Figures) {
    let Times { add, compile, memory, beside, equal, held, held_bytes } = *times;
    let each = |time: Duration| time.as_nanos() as f64 / functions as f64 / 1e3;
    let share = 100.0 * add.as_secs_f64() / compile.as_secs_f64();
    for (column, figure) in [
        ("add", each(add)),
        ("compile", each(compile)),
        ("equal", equal as f64),
        ("functions", functions as f64),
        ("kept", memory),
        ("beside", beside),
        ("held", held as f64),
    ] {
        figures.set(name, column, figure);
    }
    let mut rest = String::new();
    if memory > 0.0 {
        rest += &format!(" {memory:.0} bytes kept, {beside:.0} beside digests and references");
    }
    if held > 0 {
        rest += &format!(" {held} held, {:.1} MB of IR", held_bytes as f64 / 1e6);
    }
    println!(
        "{name:<22} {:>8.2} µs {:>8.1} µs {share:>6.2}% {equal:>8} of {functions:<8}{rest}",
        each(add),
        each(compile),
    );
}

fn main() {
    let largest = measure::number("CLIF_MERGE_FUNCTIONS", 100_000, 1_000);
    let rounds = measure::number("CLIF_MERGE_ROUNDS", 3, 1);
    let isa = measure::target();
    let mut figures = Figures::new("latency");
    println!("{:<22} {:>11} {:>11} {:>7} {:>8}", "", "add", "compile", "share", "equal");
    let ways = [("", Merged::Equal), (", held", Merged::Similar)];
    for path in testkit::units::units() {
        let text = std::fs::read_to_string(&path).expect("readable unit");
        let functions = cranelift_reader::parse_functions(&text).expect("valid CLIF");
        let name = path.file_stem().expect("a file name").display().to_string();
        for (suffix, merged) in ways {
            let times = median(rounds, || {
                times(std::iter::empty(), functions.iter().cloned(), &*isa, merged)
            });
            print(&format!("{name}{suffix}"), functions.len(), &times, &mut figures);
        }
    }
    let mut counts = vec![10, 10_000.min(largest), largest];
    counts.dedup();
    for known in counts {
        let count = known + TIMED;
        let function = |index| Family::Mixed.function(index, count);
        for (suffix, merged) in ways {
            let times = median(rounds, || {
                times((0..known).map(function), (known..count).map(function), &*isa, merged)
            });
            print(&format!("{known} known{suffix}"), TIMED as usize, &times, &mut figures);
        }
    }
    figures.write();
}
