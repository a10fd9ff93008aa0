//! The phases of the pass, compared with a bare visit of every instruction and with compiling.
//!
//! Runs on the sample of the repository, or, if `CLIF_MERGE_UNITS` names a directory, on every
//! `.clif` file in it. All functions local, addresses insignificant. Compare the figures of one run
//! with each other; `clif-merge report` prints them as shares of the time of compiling.

use cranelift_mergefunc::cranelift_codegen::Context;
use cranelift_mergefunc::cranelift_codegen::ir::Function;
use cranelift_mergefunc::explain::{Encoding, structural_hash};
use cranelift_mergefunc::{Compare, Disposition, Merger, Options, Target};
use criterion::{BatchSize, Criterion};
use std::hint::black_box;
use testkit::measure;
use testkit::support::free;

fn pass(functions: &mut [Function], options: Options<'_>) {
    let mut merger = Merger::new(options);
    for func in functions.iter() {
        let symbol = func.name.get_user().expect("units name functions u0:N").clone();
        merger.add(symbol, func, free()).expect("symbols are distinct");
    }
    let plan = merger.plan(&mut &*functions);
    for (function, entry) in plan.entries() {
        if entry.disposition() == Disposition::Keep {
            plan.apply(function, &mut functions[function.as_u32() as usize]);
        }
    }
    black_box(plan);
}

fn compile(functions: &[Function]) {
    let isa = measure::target();
    let mut context = Context::new();
    for func in functions {
        measure::compile(&mut context, &*isa, func.clone());
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let options = Options { target: Target::x86_64(), ..Options::default() };
    for path in testkit::units::units() {
        let text = std::fs::read_to_string(&path).expect("readable unit");
        let functions = cranelift_reader::parse_functions(&text).expect("valid CLIF");
        let name = path.file_stem().expect("a file name").display().to_string();
        let mut group = criterion.benchmark_group(&name);
        group.sample_size(10);
        group.bench_function("visit every instruction", |b| b.iter(|| measure::visit(&functions)));
        group.bench_function("encode and hash every function", |b| {
            b.iter(|| {
                for func in &functions {
                    let encoding = Encoding::of(func, &options).expect("valid CLIF");
                    black_box(structural_hash(&encoding));
                }
            })
        });
        for (name, every_function) in
            [("the pass", false), ("the pass, walking every function", true)]
        {
            let compare = Compare { every_function, ..options.compare };
            group.bench_function(name, |b| {
                b.iter_batched_ref(
                    || functions.clone(),
                    |functions| pass(functions, Options { compare, ..options }),
                    BatchSize::LargeInput,
                )
            });
        }
        group.bench_function("compile", |b| b.iter(|| compile(&functions)));
        group.finish();
    }
    criterion.final_summary();
}
