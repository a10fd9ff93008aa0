//! Where the time goes: each phase of the pass, and what it is compared with, in the same run.
//!
//! Baselines are a bare visit of every instruction, Cranelift's own hash of a function
//! (`FunctionStencil`, by the hasher of the standard library), a copy of every function, and
//! compiling all of them. The walk is timed alone: *encode* writes the encodings of the functions
//! that have a chance to merge, *encode and hash* hashes them as well. Then the pass, phase by
//! phase: *add*; *bucket*, which encodes, hashes and compares; *refine*; *decide*; *search* for
//! similar functions; *align*, functions that differ in few instructions; *apply*, which rewrites
//! the functions that are kept. *whole pass* is all of it at once, as an embedder calls it.
//!
//! Runs on the sample of the repository, or, if `CLIF_MERGE_UNITS` names a directory, on every
//! `.clif` file in it, and on generated units of 10,000 functions and of `CLIF_MERGE_FUNCTIONS`
//! (10,000). All functions local, addresses insignificant. Every figure is the median of
//! `CLIF_MERGE_ROUNDS` (5) rounds, each of which times everything once.

use cranelift_mergefunc::cranelift_codegen::Context;
use cranelift_mergefunc::cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_mergefunc::internals::{WalkAlone, phases};
use cranelift_mergefunc::{
    Attributes, Disposition, Merger, Options, Plan, Policy, Reason, Similar, Target,
};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::hint::black_box;
use std::time::{Duration, Instant};
use testkit::measure::{self, Figures};
use testkit::scale::Family;
use testkit::support::free;
use testkit::unit::Held;

/// The timed phases, in the order of the report.
const ROWS: [&str; 14] = [
    "visit",
    "hash of Cranelift",
    "clone",
    "encode",
    "encode and hash",
    "add",
    "bucket",
    "refine",
    "decide",
    "search",
    "align",
    "apply",
    "whole pass",
    "compile",
];

/// The times of one round.
#[derive(Default)]
struct Times([Duration; ROWS.len()]);

impl Times {
    fn add(&mut self, row: &str, time: Duration) {
        let at = ROWS.iter().position(|&known| known == row).expect("a row of the report");
        self.0[at] += time;
    }

    fn time<T>(&mut self, row: &str, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = black_box(work());
        self.add(row, start.elapsed());
        result
    }
}

fn symbols(
    functions: &[Function],
) -> impl ExactSizeIterator<Item = (UserExternalName, &Function, Attributes)> {
    functions.iter().map(|func| {
        (func.name.get_user().expect("units name functions u0:N").clone(), func, free())
    })
}

fn plan(functions: &[Function], options: Options<'_>) -> Plan {
    let mut merger = Merger::new(options);
    merger.reserve(functions.len());
    for (symbol, func, attributes) in symbols(functions) {
        merger.add(symbol, func, attributes).expect("symbols are distinct");
    }
    merger.plan(&mut Held::new(functions))
}

fn apply(plan: &Plan, functions: &mut [Function]) {
    for (func, (function, entry)) in functions.iter_mut().zip(plan.entries()) {
        if entry.disposition() == Disposition::Keep {
            plan.apply(function, func);
        }
    }
}

fn round(functions: &[Function], options: &Options<'_>) -> Times {
    let mut times = Times::default();
    times.time("visit", || measure::visit(functions));
    times.time("hash of Cranelift", || {
        for func in functions {
            let mut hasher = DefaultHasher::new();
            func.stencil.hash(&mut hasher);
            black_box(hasher.finish());
        }
    });
    let mut copies = times.time("clone", || functions.to_vec());
    let mut start = Instant::now();
    let mut end = |phase: &'static str| {
        times.add(phase, start.elapsed());
        start = Instant::now();
    };
    let mut bodies = Held::new(functions);
    let planned = phases(symbols(functions), &mut bodies, options, &mut end);
    let planned = planned.expect("symbols are distinct");
    times.time("apply", || apply(&planned, &mut copies));
    drop(copies);
    let candidates: Vec<&Function> = functions
        .iter()
        .zip(planned.entries())
        .filter(|(_, (_, entry))| entry.reason() != Reason::Prefiltered)
        .map(|(func, _)| func)
        .collect();
    let mut walk = WalkAlone::default();
    times.time("encode", || {
        for func in &candidates {
            black_box(walk.encode(func, options));
        }
    });
    times.time("encode and hash", || {
        for func in &candidates {
            black_box(walk.encode(func, options));
            black_box(walk.hash());
        }
    });
    let mut copies = functions.to_vec();
    times.time("whole pass", || apply(&plan(functions, *options), &mut copies));
    drop(copies);
    let isa = measure::target();
    let mut context = Context::new();
    let copies = functions.to_vec();
    times.time("compile", || {
        for func in copies {
            measure::compile(&mut context, &*isa, func);
        }
    });
    times
}

fn report(name: &str, functions: &[Function], figures: &mut Figures) {
    let rounds = measure::number("CLIF_MERGE_ROUNDS", 5, 1);
    let balanced = Similar { policy: Policy::Balanced, ..Similar::default() };
    let options = Options { target: Target::x86_64(), similar: balanced, ..Options::default() };
    let all: Vec<Times> = (0..rounds).map(|_| round(functions, &options)).collect();
    let median =
        |row: usize| measure::median(all.iter().map(|times| times.0[row].as_secs_f64()).collect());
    let compile = median(ROWS.len() - 1);
    println!("{name}, {} functions", functions.len());
    figures.set(name, "functions", functions.len() as f64);
    for (row, what) in ROWS.into_iter().enumerate() {
        let seconds = median(row);
        let each = seconds * 1e9 / functions.len() as f64;
        let share = 100.0 * seconds / compile;
        println!("    {what:<18} {:>10.3} ms {each:>9.0} ns each {share:>8.3}%", seconds * 1e3);
        figures.set(name, what, seconds);
    }
}

fn main() {
    let mut figures = Figures::new("phases");
    for path in testkit::units::units() {
        let text = std::fs::read_to_string(&path).expect("readable unit");
        let functions = cranelift_reader::parse_functions(&text).expect("valid CLIF");
        let name = path.file_stem().expect("a file name").display().to_string();
        report(&name, &functions, &mut figures);
    }
    let mut counts = vec![10_000, measure::number("CLIF_MERGE_FUNCTIONS", 10_000, 1_000)];
    counts.retain(|&count| measure::measures() || count == 1_000);
    counts.dedup();
    for count in counts {
        report(&format!("generated-{count}"), &Family::Mixed.unit(count), &mut figures);
    }
    figures.write();
}
