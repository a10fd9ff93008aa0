//! Instructions executed, counted by Valgrind: figures that are the same in every run, on a busy
//! machine, too.
//!
//! Baselines: a bare visit of every instruction, Cranelift's own hash of a function
//! (`FunctionStencil`, by the hasher of the standard library), a copy of every function, and
//! compiling all of them. The walk alone: encodings, and encodings with their hashes. The pass,
//! which adds, plans and applies: with identical functions only, and with the default policy. The
//! object of the unit from functions in memory: without merging, with identical functions only, and
//! with the default policy. Setup and drops of a bench are not counted.
//!
//! Runs on the sample of the repository, or, if `CLIF_MERGE_UNITS` names a directory, on every
//! `.clif` file in it, for one thread on x86-64. All functions local, addresses insignificant. It
//! takes Valgrind (`apt-get install valgrind`), and
//! `cargo install gungraun-runner --version 0.20.0`. Instructions are not time: what memory costs
//! is not in them.

#![allow(missing_docs, reason = "the macros of gungraun make modules and functions without any")]

use cranelift_mergefunc::cranelift_codegen::Context;
use cranelift_mergefunc::cranelift_codegen::ir::Function;
use cranelift_mergefunc::internals::WalkAlone;
use cranelift_mergefunc::{Addresses, Disposition, Merger, Options, Plan, Similar, Target};
use cranelift_mergefunc_module::cranelift_module::{FuncId, default_libcall_names};
use cranelift_mergefunc_module::{MergingModule, ModuleOptions};
use cranelift_object::{ObjectBuilder, ObjectModule};
use gungraun::{
    Callgrind, LibraryBenchmarkConfig, OutputFormat, library_benchmark, library_benchmark_group,
    main,
};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::hint::black_box;
use std::path::PathBuf;
use testkit::definitions::{declared, define};
use testkit::measure;
use testkit::support::free;
use testkit::units::units;

fn read(unit: PathBuf) -> Vec<Function> {
    let text = std::fs::read_to_string(&unit).expect("readable unit");
    cranelift_reader::parse_functions(&text).expect("valid CLIF")
}

fn options(similar: Similar) -> Options<'static> {
    Options { target: Target::x86_64(), similar, ..Options::default() }
}

#[library_benchmark(setup = read)]
#[benches::units(iter = units())]
fn visit(functions: Vec<Function>) -> Vec<Function> {
    measure::visit(&functions);
    functions
}

#[library_benchmark(setup = read)]
#[benches::units(iter = units())]
fn hash_of_cranelift(functions: Vec<Function>) -> Vec<Function> {
    for func in &functions {
        let mut hasher = DefaultHasher::new();
        func.stencil.hash(&mut hasher);
        black_box(hasher.finish());
    }
    functions
}

#[library_benchmark(setup = read)]
#[benches::units(iter = units())]
fn clone(functions: Vec<Function>) -> [Vec<Function>; 2] {
    let copies = functions.clone();
    [functions, copies]
}

#[library_benchmark(setup = read)]
#[benches::units(iter = units())]
fn compile(functions: Vec<Function>) -> Vec<Function> {
    let isa = measure::target();
    let mut context = Context::new();
    for func in &functions {
        measure::compile(&mut context, &*isa, func.clone());
    }
    functions
}

#[library_benchmark(setup = read)]
#[benches::units(iter = units())]
fn encode(functions: Vec<Function>) -> Vec<Function> {
    let mut walk = WalkAlone::default();
    for func in &functions {
        black_box(walk.encode(func, &options(Similar::OFF)));
    }
    functions
}

#[library_benchmark(setup = read)]
#[benches::units(iter = units())]
fn encode_and_hash(functions: Vec<Function>) -> Vec<Function> {
    let mut walk = WalkAlone::default();
    for func in &functions {
        black_box(walk.encode(func, &options(Similar::OFF)));
        black_box(walk.hash());
    }
    functions
}

fn plan_and_apply(mut functions: Vec<Function>, options: &Options<'_>) -> (Vec<Function>, Plan) {
    let mut merger = Merger::new(*options);
    merger.reserve(functions.len());
    for func in &functions {
        let symbol = func.name.get_user().expect("units name functions u0:N").clone();
        merger.add(symbol, func, free()).expect("symbols are distinct");
    }
    let plan = merger.plan(&mut &*functions);
    for (func, (function, entry)) in functions.iter_mut().zip(plan.entries()) {
        if entry.disposition() == Disposition::Keep {
            plan.apply(function, func);
        }
    }
    (functions, plan)
}

#[library_benchmark(setup = read)]
#[benches::units(iter = units())]
fn pass_of_identical(functions: Vec<Function>) -> (Vec<Function>, Plan) {
    plan_and_apply(functions, &options(Similar::OFF))
}

#[library_benchmark(setup = read)]
#[benches::units(iter = units())]
fn pass(functions: Vec<Function>) -> (Vec<Function>, Plan) {
    plan_and_apply(functions, &options(Similar::default()))
}

fn builder() -> ObjectBuilder {
    ObjectBuilder::new(measure::target(), "bench", default_libcall_names()).expect("a builder")
}

/// A module with everything declared, and the definitions.
type Declared<M> = (M, Vec<(FuncId, Function)>);

fn bare(unit: PathBuf) -> Declared<ObjectModule> {
    let mut module = ObjectModule::new(builder());
    let definitions = declared(&mut module, &read(unit));
    (module, definitions)
}

fn merging(unit: PathBuf, similar: Similar) -> Declared<MergingModule<ObjectModule>> {
    let functions = Addresses::Insignificant;
    let take = true;
    let remember = false;
    let options = ModuleOptions {
        take_ir: take,
        remember,
        function_addresses: functions,
        similar,
        ..ModuleOptions::default()
    };
    let mut module = MergingModule::with_options(ObjectModule::new(builder()), options);
    let definitions = declared(&mut module, &read(unit));
    (module, definitions)
}

fn merging_identical(unit: PathBuf) -> Declared<MergingModule<ObjectModule>> {
    merging(unit, Similar::OFF)
}

fn merging_all(unit: PathBuf) -> Declared<MergingModule<ObjectModule>> {
    merging(unit, Similar::default())
}

#[library_benchmark(setup = bare)]
#[benches::units(iter = units())]
fn object((mut module, definitions): Declared<ObjectModule>) -> Vec<u8> {
    define(&mut module, definitions);
    module.finish().emit().expect("an object file")
}

fn merged((mut module, definitions): Declared<MergingModule<ObjectModule>>) -> Vec<u8> {
    define(&mut module, definitions);
    module.finish().expect("compiles").emit().expect("an object file")
}

#[library_benchmark(setup = merging_identical)]
#[benches::units(iter = units())]
fn object_of_identical(unit: Declared<MergingModule<ObjectModule>>) -> Vec<u8> {
    merged(unit)
}

#[library_benchmark(setup = merging_all)]
#[benches::units(iter = units())]
fn object_merged(unit: Declared<MergingModule<ObjectModule>>) -> Vec<u8> {
    merged(unit)
}

library_benchmark_group!(
    name = counts;
    benchmarks = visit, hash_of_cranelift, clone, encode, encode_and_hash, pass_of_identical, pass, compile, object,
        object_of_identical, object_merged
);

main!(
    config = LibraryBenchmarkConfig::default()
        .pass_through_envs(["CLIF_MERGE_UNITS"])
        .tool(Callgrind::with_args(["--cache-sim=no"]))
        .output_format(OutputFormat::default().truncate_description(Some(0)));
    library_benchmark_groups = counts
);
