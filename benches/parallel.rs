//! From functions in memory to an object file, merged, with one thread and with several: how much faster, and how
//! much of the work is sequential.
//!
//! Runs on the sample of the repository, or, if `CLIF_MERGE_UNITS` names a directory, on every `.clif` file in it.
//! All functions local, addresses insignificant. In each round every number of threads has a turn; of all rounds,
//! the best of each is compared with the best of one thread. *Code generation* is all that comes after the plan: code,
//! relocations, definitions, the file.
//!
//! The sequential part is not read off these ratios, which a busy machine spoils. It is the CPU time of a thread that
//! flushes from outside of a pool of one thread: all that can be shared among threads is then done by the other one.
//! The last columns are what Amdahl's law says of it, for any number of processors.
//!
//! `CLIF_MERGE_ROUNDS` is the number of rounds (5), `CLIF_MERGE_THREADS` the numbers of threads (`2`; such as `2,4`).
//! CPU time is read from Linux; elsewhere the sequential part is wall-clock time, and too large.

use cranelift_mergefunc::cranelift_codegen::ir::{
    ExternalName, Function, UserExternalName, UserExternalNameRef, UserFuncName,
};
use cranelift_mergefunc::cranelift_codegen::settings::{self, Configurable};
use cranelift_mergefunc::cranelift_codegen::{Context, isa};
use cranelift_mergefunc::cranelift_module::{
    FuncId, FuncOrDataId, Linkage, Module, default_libcall_names,
};
use cranelift_mergefunc::{Addresses, MergingModule, ModuleOptions};
use cranelift_object::{ObjectBuilder, ObjectModule};
use std::hint::black_box;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The time from the first call to the finished file, and from the first definition after the plan.
#[derive(Clone, Copy)]
struct Times {
    all: Duration,
    code_generation: Duration,
}

/// When the plan is carried out: when the module inside logs the first definition.
static FIRST_DEFINITION: Mutex<Option<[Duration; 2]>> = Mutex::new(None);

struct Logger {
    start: Instant,
}

impl log::Log for Logger {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target().starts_with("cranelift_object")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            *FIRST_DEFINITION.lock().unwrap() = Some([self.start.elapsed(), cpu_time()]);
            log::set_max_level(log::LevelFilter::Off);
        }
    }

    fn flush(&self) {}
}

/// The CPU time of this thread.
fn cpu_time() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let start = START.get_or_init(Instant::now);
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let first = |text: String| text.split_whitespace().next()?.parse().ok();
    schedule.and_then(first).map_or_else(|| start.elapsed(), Duration::from_nanos)
}

/// A module with everything declared, and the definitions.
fn declared(functions: &[Function]) -> (MergingModule<ObjectModule>, Vec<(FuncId, Context)>) {
    let mut flags = settings::builder();
    for (name, value) in [("opt_level", "speed"), ("is_pic", "true"), ("enable_verifier", "false")]
    {
        flags.set(name, value).expect("a setting");
    }
    flags.set("preserve_frame_pointers", "true").expect("a setting");
    let triple = "x86_64-unknown-linux-gnu".parse().expect("a triple");
    let isa = isa::lookup(triple).expect("built with this back end");
    let isa = isa.finish(settings::Flags::new(flags)).expect("valid settings");
    let builder = ObjectBuilder::new(isa, "bench", default_libcall_names()).expect("a builder");
    let options = ModuleOptions {
        take: true,
        remember: false,
        functions: Addresses::Insignificant,
        ..ModuleOptions::default()
    };
    let mut module = MergingModule::object_in_parallel(builder, true, options);
    let declare = |func: &Function| {
        let name = func.name.to_string();
        let declared = module.declare_function(&name, Linkage::Local, &func.signature);
        declared.expect("symbols are distinct")
    };
    let ids: Vec<FuncId> = functions.iter().map(declare).collect();
    let definitions = functions.iter().zip(ids).map(|(func, id)| {
        let mut func = func.clone();
        func.name = UserFuncName::user(0, id.as_u32());
        rename(&mut module, &mut func);
        (id, Context::for_function(func))
    });
    let definitions = definitions.collect();
    (module, definitions)
}

/// Names everything as the module does, which imports what the unit does not define.
fn rename(module: &mut dyn Module, func: &mut Function) {
    let names = func.params.user_named_funcs().clone();
    for (name_ref, symbol) in names.iter() {
        let name = UserFuncName::User(symbol.clone()).to_string();
        let to = match module.get_name(&name) {
            Some(FuncOrDataId::Func(id)) => UserExternalName::new(0, id.as_u32()),
            Some(FuncOrDataId::Data(id)) => UserExternalName::new(1, id.as_u32()),
            None => import(module, func, name_ref, &name),
        };
        func.params.reset_user_func_name(name_ref, to);
    }
}

fn import(
    module: &mut dyn Module,
    func: &Function,
    name_ref: UserExternalNameRef,
    name: &str,
) -> UserExternalName {
    let external = ExternalName::User(name_ref);
    match func.dfg.ext_funcs.values().find(|callee| callee.name == external) {
        Some(callee) => {
            let signature = &func.dfg.signatures[callee.signature];
            let id = module.declare_function(name, Linkage::Import, signature).expect("imported");
            UserExternalName::new(0, id.as_u32())
        }
        None => {
            let id = module.declare_data(name, Linkage::Import, true, false).expect("imported");
            UserExternalName::new(1, id.as_u32())
        }
    }
}

/// Makes the object. Wall-clock times, and CPU times of this thread.
fn make(functions: &[Function], logged_from: Instant) -> [Times; 2] {
    let (mut module, definitions) = declared(functions);
    *FIRST_DEFINITION.lock().unwrap() = None;
    log::set_max_level(log::LevelFilter::Info);
    let start = [logged_from.elapsed(), cpu_time()];
    for (id, mut context) in definitions {
        module.define_function(id, &mut context).expect("is deferred");
    }
    let object = module.finish().expect("compiles").emit().expect("an object file");
    let end = [logged_from.elapsed(), cpu_time()];
    black_box(object);
    let first = FIRST_DEFINITION.lock().unwrap().expect("something is defined");
    [0, 1].map(|clock| Times {
        all: end[clock] - start[clock],
        code_generation: end[clock] - first[clock],
    })
}

fn numbers(variable: &str, default: &str) -> Vec<usize> {
    let text = std::env::var(variable).unwrap_or_else(|_| default.to_owned());
    let numbers = text.split(',').map(|number| number.trim().parse().expect("a number"));
    numbers.collect()
}

fn main() {
    // `cargo test --benches` runs benches to see that they do.
    let bench = std::env::args().any(|argument| argument == "--bench");
    let rounds = if bench { numbers("CLIF_MERGE_ROUNDS", "5")[0] } else { 1 };
    let mut threads = vec![1];
    threads.extend(numbers("CLIF_MERGE_THREADS", "2"));
    let start = Instant::now();
    log::set_logger(Box::leak(Box::new(Logger { start }))).expect("the only logger");
    let pool = |threads: usize| {
        let builder = rayon::ThreadPoolBuilder::new().num_threads(threads).stack_size(64 << 20);
        builder.build().expect("threads")
    };
    let pools: Vec<rayon::ThreadPool> = threads.iter().copied().map(pool).collect();
    // For flushes from outside of a pool.
    let outside = rayon::ThreadPoolBuilder::new().num_threads(1).stack_size(64 << 20);
    outside.build_global().expect("nothing used it");
    for path in testkit::units::units() {
        let text = std::fs::read_to_string(&path).expect("readable unit");
        let functions = cranelift_reader::parse_functions(&text).expect("valid CLIF");
        let mut best: Vec<Times> =
            vec![Times { all: Duration::MAX, code_generation: Duration::MAX }; threads.len()];
        let (mut sequential, mut shared) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            for turn in 0..pools.len() {
                let at = (round + turn) % pools.len();
                let [wall, _] = pools[at].install(|| make(&functions, start));
                best[at].all = best[at].all.min(wall.all);
                best[at].code_generation = best[at].code_generation.min(wall.code_generation);
            }
            let worker = || rayon::broadcast(|_| cpu_time())[0];
            let before = worker();
            let [_, cpu] = make(&functions, start);
            sequential.push(cpu);
            shared.push(worker() - before);
        }
        let median = |mut times: Vec<Duration>| {
            times.sort_unstable();
            times[times.len() / 2].as_secs_f64()
        };
        let shared = median(shared);
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        println!("{name}, {} functions", functions.len());
        println!(
            "                 {:>9}{}  sequential  limit of 16    of 64",
            "1 thread",
            threads[1..].iter().map(|n| format!("{n:>10} threads         ")).collect::<String>()
        );
        let part = |what: &str, of: fn(&Times) -> Duration| {
            let one = of(&best[0]).as_secs_f64();
            let others: String = best[1..]
                .iter()
                .map(|times| {
                    let several = of(times).as_secs_f64();
                    format!("{several:>10.3} s, {:>5.2} times", one / several)
                })
                .collect();
            let sequential = median(sequential.iter().map(of).collect());
            let share = sequential / (sequential + shared);
            let limit = |n: f64| 1.0 / (share + (1.0 - share) / n);
            println!(
                "{what:<17}{one:>7.3} s{others}{:>10.2} %{:>13.2}{:>9.2}",
                100.0 * share,
                limit(16.0),
                limit(64.0)
            );
        };
        part("with the pass", |times| times.all);
        part("code generation", |times| times.code_generation);
    }
}
