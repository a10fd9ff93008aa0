//! The phases of the pass, compared with a bare visit of every instruction and with compiling.
//!
//! Runs on the sample of the repository, or, if `CLIF_MERGE_UNITS` names a directory, on every
//! `.clif` file in it. All functions local, addresses insignificant. Compare the figures of one run
//! with each other; `clif-merge report` prints them as shares of the time of compiling.

use cranelift_mergefunc::cranelift_codegen::ir::Function;
use cranelift_mergefunc::cranelift_codegen::settings::{self, Configurable};
use cranelift_mergefunc::cranelift_codegen::{Context, isa};
use cranelift_mergefunc::{
    Addresses, Attributes, Disposition, Encoding, Linkage, Merger, Options, Prebucket, Target,
    structural_hash,
};
use criterion::{BatchSize, Criterion};
use std::hint::black_box;

fn visit(functions: &[Function]) {
    for func in functions {
        for block in func.layout.blocks() {
            for inst in func.layout.block_insts(block) {
                func.dfg.inst_values(inst).for_each(|value| {
                    black_box(value);
                });
            }
        }
    }
}

fn pass(functions: &mut [Function], options: Options<'_>) {
    let attributes = Attributes {
        linkage: Linkage::Local,
        addresses: Addresses::Insignificant,
        ..Attributes::default()
    };
    let mut merger = Merger::new(options);
    for func in functions.iter() {
        let symbol = func.name.get_user().expect("units name functions u0:N").clone();
        merger.add(symbol, func, attributes).expect("symbols are distinct");
    }
    let plan = merger.plan(&mut &*functions);
    for (function, entry) in plan.entries() {
        if entry.disposition() == Disposition::Keep {
            plan.apply(function, &mut functions[function.as_u32() as usize], &options);
        }
    }
    black_box(plan);
}

fn compile(functions: &[Function]) {
    let mut flags = settings::builder();
    for (name, value) in [("opt_level", "speed"), ("is_pic", "true"), ("enable_verifier", "false")]
    {
        flags.set(name, value).expect("a setting");
    }
    flags.set("preserve_frame_pointers", "true").expect("a setting");
    let isa = isa::lookup_by_name("x86_64").expect("built with this back end");
    let isa = isa.finish(settings::Flags::new(flags)).expect("valid settings");
    let mut context = Context::new();
    for func in functions {
        context.clear();
        context.func = func.clone();
        context.compile(&*isa, &mut Default::default()).expect("compiles");
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
        group.bench_function("visit every instruction", |b| b.iter(|| visit(&functions)));
        group.bench_function("encode and hash every function", |b| {
            b.iter(|| {
                for func in &functions {
                    let encoding = Encoding::of(func, &options).expect("valid CLIF");
                    black_box(structural_hash(&encoding));
                }
            })
        });
        for (name, prebucket) in [
            ("the pass", Prebucket::Counts),
            ("the pass, walking every function", Prebucket::WalkAll),
        ] {
            group.bench_function(name, |b| {
                b.iter_batched_ref(
                    || functions.clone(),
                    |functions| pass(functions, Options { prebucket, ..options }),
                    BatchSize::LargeInput,
                )
            });
        }
        group.bench_function("compile", |b| b.iter(|| compile(&functions)));
        group.finish();
    }
    criterion.final_summary();
}
