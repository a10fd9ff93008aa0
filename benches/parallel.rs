//! From functions in memory to an object file, merged, with one thread and with several: how much
//! faster, and how much of the work is sequential.
//!
//! Runs on the sample of the repository, or, if `CLIF_MERGE_UNITS` names a directory, on every
//! `.clif` file in it. All functions local, addresses insignificant. In each round every number of
//! threads has a turn; of all rounds, the median of each is compared with the median of one thread.
//! *Merged* is the whole: the pass, and code generation for what is left. *Code generation* is that
//! of the unit as it is: nothing is merged, and no size is asked for. *Apart* is what the machine
//! can do: each thread compiles the whole unit, and they share nothing.
//!
//! The sequential part is not read off these ratios, which a busy machine spoils. It is the CPU
//! time of a thread that flushes from outside of a pool: all that can be shared among threads is
//! then done by those of the pool. The last columns are what Amdahl's law says of it, for 16 and 64
//! processors.
//!
//! `CLIF_MERGE_ROUNDS` is the number of rounds (5), `CLIF_MERGE_THREADS` the numbers of threads
//! (`2`; such as `2,4`). CPU time is read from Linux; elsewhere the sequential part is wall-clock
//! time, and too large.

use cranelift_mergefunc::cranelift_codegen::Context;
use cranelift_mergefunc::cranelift_codegen::ir::Function;
use cranelift_mergefunc::{Addresses, Similar};
use cranelift_mergefunc_module::cranelift_module::{FuncId, default_libcall_names};
use cranelift_mergefunc_module::{MergingModule, ModuleOptions};
use cranelift_object::{ObjectBuilder, ObjectModule};
use std::hint::black_box;
use std::time::{Duration, Instant};
use testkit::measure::{self, Figures};

/// The CPU time of this thread.
fn cpu_time() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let start = START.get_or_init(Instant::now);
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let first = |text: String| text.split_whitespace().next()?.parse().ok();
    schedule.and_then(first).map_or_else(|| start.elapsed(), Duration::from_nanos)
}

/// A module with everything declared, and the definitions.
fn declared(
    functions: &[Function],
    merge: bool,
) -> (MergingModule<ObjectModule>, Vec<(FuncId, Function)>) {
    let builder =
        ObjectBuilder::new(measure::target(), "bench", default_libcall_names()).expect("a builder");
    let options = ModuleOptions {
        take_ir: true,
        remember: false,
        function_addresses: Addresses::Insignificant,
        similar: if merge { Similar::default() } else { Similar::OFF },
        merge_limit: (!merge).then_some(0),
        ..ModuleOptions::default()
    };
    let mut module = MergingModule::object_in_parallel(builder, true, options);
    let definitions = testkit::definitions::declared(&mut module, functions);
    (module, definitions)
}

/// Makes the object. Wall-clock time, and CPU time of this thread.
fn make(functions: &[Function], merge: bool) -> [Duration; 2] {
    let (mut module, definitions) = declared(functions, merge);
    let start = (Instant::now(), cpu_time());
    testkit::definitions::define(&mut module, definitions);
    let object = module.finish().expect("compiles").emit().expect("an object file");
    let times = [start.0.elapsed(), cpu_time() - start.1];
    black_box(object);
    times
}

/// Compiles all functions on each thread of the pool that it runs in. Seconds for one of the units,
/// wall-clock time.
fn apart(functions: &[Function]) -> f64 {
    let isa = measure::target();
    let start = Instant::now();
    rayon::broadcast(|_| {
        let mut context = Context::new();
        for func in functions {
            measure::compile(&mut context, &*isa, func.clone());
            black_box(context.take_compiled_code());
        }
    });
    start.elapsed().as_secs_f64() / rayon::current_num_threads() as f64
}

fn numbers(variable: &str, default: &str) -> Vec<usize> {
    let text = std::env::var(variable).unwrap_or_else(|_| default.to_owned());
    let numbers = text.split(',').map(|number| number.trim().parse().expect("a number"));
    numbers.collect()
}

/// The times of more than one thread, and how many times as fast that is.
fn several(times: &[f64]) -> String {
    times[1..]
        .iter()
        .map(|time| format!("{time:>10.3} s, {:>5.2} times", times[0] / time))
        .collect()
}

/// Lets each pool do the work once in each round, and returns the median of each, in seconds.
fn in_turn(pools: &[rayon::ThreadPool], rounds: usize, work: impl Fn() -> f64 + Sync) -> Vec<f64> {
    let mut times = vec![Vec::new(); pools.len()];
    for round in 0..rounds {
        for turn in 0..pools.len() {
            let at = (round + turn) % pools.len();
            times[at].push(pools[at].install(&work));
        }
    }
    times.into_iter().map(measure::median).collect()
}

fn main() {
    // `cargo test --benches` runs benches to see that they do.
    let bench = std::env::args().any(|argument| argument == "--bench");
    let rounds = if bench { numbers("CLIF_MERGE_ROUNDS", "5")[0] } else { 1 };
    let mut threads = vec![1];
    threads.extend(numbers("CLIF_MERGE_THREADS", "2"));
    let pool = |threads: usize| {
        let builder = rayon::ThreadPoolBuilder::new().num_threads(threads).stack_size(64 << 20);
        builder.build().expect("threads")
    };
    let pools: Vec<rayon::ThreadPool> = threads.iter().copied().map(pool).collect();
    // For flushes from outside of a pool.
    let outside = rayon::ThreadPoolBuilder::new().num_threads(2).stack_size(64 << 20);
    outside.build_global().expect("nothing used it");
    let mut figures = Figures::new("parallel");
    for path in testkit::units::units() {
        let text = std::fs::read_to_string(&path).expect("readable unit");
        let functions = cranelift_reader::parse_functions(&text).expect("valid CLIF");
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let headings = threads[1..].iter().map(|n| format!("{:>24}", format!("{n} threads")));
        println!(
            "{:<25}  1 thread{}  sequential  limit of 16    of 64",
            format!("{name}, {} functions", functions.len()),
            headings.collect::<String>()
        );
        let set = |figures: &mut Figures, row: &str, times: &[f64]| {
            for (threads, &seconds) in threads.iter().zip(times) {
                figures.set(row, &format!("{threads}"), seconds);
            }
        };
        let times = in_turn(&pools, rounds, || apart(&functions));
        set(&mut figures, &format!("{name}, apart"), &times);
        println!("{:<25}{:>8.3} s{}", "apart", times[0], several(&times));
        for (what, merge) in [("merged", true), ("code generation", false)] {
            let times = in_turn(&pools, rounds, || make(&functions, merge)[0].as_secs_f64());
            let (mut sequential, mut shared) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                let workers = || -> Duration { rayon::broadcast(|_| cpu_time()).iter().sum() };
                let before = workers();
                let [_, cpu] = make(&functions, merge);
                sequential.push(cpu.as_secs_f64());
                shared.push((workers() - before).as_secs_f64());
            }
            let (sequential, shared) = (measure::median(sequential), measure::median(shared));
            let share = sequential / (sequential + shared);
            let limit = |processors: f64| 1.0 / (share + (1.0 - share) / processors);
            let row = format!("{name}, {what}");
            set(&mut figures, &row, &times);
            figures.set(&row, "sequential", share);
            println!(
                "{what:<25}{:>8.3} s{}{:>10.2} %{:>13.2}{:>9.2}",
                times[0],
                several(&times),
                100.0 * share,
                limit(16.0),
                limit(64.0),
            );
        }
    }
    figures.write();
}
