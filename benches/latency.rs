//! How long it takes to find out, for a function that arrives, whether it equals one that arrived before.
//!
//! [`StreamingMerger::add`], compared with compiling the same function: for the functions of a unit one after the
//! other, and for generated functions when 10, 10,000, and as many others as `CLIF_MERGE_FUNCTIONS` says (100,000) are
//! known, with the memory that is kept of each. The IR of these is dropped when they were added. Runs on the sample
//! of the repository, or, if `CLIF_MERGE_UNITS` names a directory, on every `.clif` file in it. Of
//! `CLIF_MERGE_ROUNDS` (3) rounds, the one with the median time counts.

use cranelift_mergefunc::cranelift_codegen::Context;
use cranelift_mergefunc::cranelift_codegen::ir::Function;
use cranelift_mergefunc::cranelift_codegen::isa::TargetIsa;
use cranelift_mergefunc::{Known, Options, StreamingMerger, Target};
use peak_alloc::PeakAlloc;
use std::time::{Duration, Instant};
use testkit::measure::{self, Figures};
use testkit::scale::Family;
use testkit::support::free;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Generated functions that are timed.
const TIMED: u32 = 1_000;

fn add(merger: &mut StreamingMerger<'_>, func: &Function) -> Known {
    let symbol = func.name.get_user().expect("units name functions u0:N").clone();
    merger.add(symbol, func, free()).expect("symbols are distinct").1
}

/// Adding and compiling functions after others.
#[derive(Clone, Copy)]
struct Times {
    add: Duration,
    compile: Duration,
    /// Bytes that are kept of each function.
    memory: f64,
    /// How many functions were known to equal others.
    equal: usize,
}

/// Adds the functions before, then adds and compiles the others, one after the other.
fn times(
    before: impl Iterator<Item = Function>,
    timed: impl Iterator<Item = Function>,
    isa: &dyn TargetIsa,
) -> Times {
    let at_first = ALLOCATOR.current_usage();
    let options = Options { target: Target::x86_64(), ..Options::default() };
    let mut merger = StreamingMerger::new(options);
    before.for_each(|func| {
        add(&mut merger, &func);
    });
    let kept = ALLOCATOR.current_usage() - at_first;
    let memory = if merger.is_empty() { 0.0 } else { kept as f64 / merger.len() as f64 };
    let (add_time, compile_time) = (Duration::ZERO, Duration::ZERO);
    let mut times = Times { add: add_time, compile: compile_time, memory, equal: 0 };
    let mut context = Context::new();
    for func in timed {
        let start = Instant::now();
        let known = add(&mut merger, &func);
        let added = Instant::now();
        measure::compile(&mut context, isa, func);
        times.add += added - start;
        times.compile += added.elapsed();
        times.equal += usize::from(matches!(known, Known::Equal(_)));
    }
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
    let Times { add, compile, memory, equal } = *times;
    let each = |time: Duration| time.as_nanos() as f64 / functions as f64 / 1e3;
    let share = 100.0 * add.as_secs_f64() / compile.as_secs_f64();
    for (column, figure) in [
        ("add", each(add)),
        ("compile", each(compile)),
        ("equal", equal as f64),
        ("functions", functions as f64),
        ("kept", memory),
    ] {
        figures.set(name, column, figure);
    }
    let memory = if memory > 0.0 { format!("{memory:.0} bytes kept") } else { String::new() };
    println!(
        "{name:<22} {:>8.2} µs {:>8.1} µs {share:>6.2}% {equal:>8} of {functions:<8} {memory}",
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
    for path in testkit::units::units() {
        let text = std::fs::read_to_string(&path).expect("readable unit");
        let functions = cranelift_reader::parse_functions(&text).expect("valid CLIF");
        let name = path.file_stem().expect("a file name").display().to_string();
        let times = median(rounds, || times(std::iter::empty(), functions.iter().cloned(), &*isa));
        print(&name, functions.len(), &times, &mut figures);
    }
    let mut counts = vec![10, 10_000.min(largest), largest];
    counts.dedup();
    for known in counts {
        let count = known + TIMED;
        let function = |index| Family::Mixed.function(index, count);
        let times =
            median(rounds, || times((0..known).map(function), (known..count).map(function), &*isa));
        print(&format!("{known} known"), TIMED as usize, &times, &mut figures);
    }
    figures.write();
}
