//! How time and memory of the pass grow with the number of functions.
//!
//! Generated units of each family of [`testkit::scale`], of 10,000 functions and of ten times as many each time, up
//! to `CLIF_MERGE_FUNCTIONS` (100,000): the time per function of a bare visit of every instruction, of identical
//! merging, and of all merging with the default policy; the exponent of time over the number of functions; and the
//! peak of what the pass allocates, in bytes per function. All functions local, addresses insignificant. The
//! fastest of `CLIF_MERGE_ROUNDS` (3) rounds counts.
//!
//! A million functions of a family take up to 8 GB.

use cranelift_mergefunc::cranelift_codegen::ir::Function;
use cranelift_mergefunc::{
    Addresses, Attributes, Linkage, Merger, Options, Plan, Policy, Similar, Target,
};
use peak_alloc::PeakAlloc;
use std::hint::black_box;
use std::time::{Duration, Instant};
use testkit::scale::Family;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

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

fn plan(functions: &[Function], options: Options<'_>) -> Plan {
    let attributes = Attributes {
        linkage: Linkage::Local,
        addresses: Addresses::Insignificant,
        ..Attributes::default()
    };
    let mut merger = Merger::new(options);
    merger.reserve(functions.len());
    for func in functions {
        let symbol = func.name.get_user().expect("units name functions u0:N").clone();
        merger.add(symbol, func, attributes).expect("symbols are distinct");
    }
    merger.plan(&mut Unit { functions, fresh: 0 })
}

/// Functions of a unit, and symbols for new bodies.
struct Unit<'a> {
    functions: &'a [Function],
    fresh: u32,
}

impl cranelift_mergefunc::Bodies for Unit<'_> {
    fn body(&mut self, function: cranelift_mergefunc::FunctionIndex) -> &Function {
        &self.functions[function.as_u32() as usize]
    }

    fn fresh_symbol(
        &mut self,
    ) -> Option<cranelift_mergefunc::cranelift_codegen::ir::UserExternalName> {
        self.fresh += 1;
        Some(cranelift_mergefunc::cranelift_codegen::ir::UserExternalName {
            namespace: 1,
            index: self.fresh,
        })
    }
}

/// The fastest of several runs, in nanoseconds per function, and the bytes per function that one allocates at most.
fn measure<T>(rounds: u32, count: u32, run: impl Fn() -> T) -> (f64, f64) {
    let mut fastest = Duration::MAX;
    let mut bytes = 0;
    for _ in 0..rounds {
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        let start = Instant::now();
        let result = run();
        fastest = fastest.min(start.elapsed());
        bytes = ALLOCATOR.peak_usage() - before;
        drop(result);
    }
    (fastest.as_nanos() as f64 / f64::from(count), bytes as f64 / f64::from(count))
}

fn number(variable: &str, default: u32) -> u32 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

fn main() {
    // `cargo test --benches` runs benches to see that they do.
    let bench = std::env::args().any(|argument| argument == "--bench");
    let largest = if bench { number("CLIF_MERGE_FUNCTIONS", 100_000) } else { 1_000 };
    let rounds = if bench { number("CLIF_MERGE_ROUNDS", 3) } else { 1 };
    let balanced = Similar { policy: Policy::Balanced, ..Similar::default() };
    let options = Options { target: Target::x86_64(), ..Options::default() };
    let merging = [("identical", Similar::OFF), ("all", balanced)];
    println!(
        "family     functions       visit   identical         all   (nanoseconds per function)"
    );
    for family in Family::ALL {
        let mut first: Option<(u32, [f64; 3])> = None;
        let mut memory = String::new();
        let mut count = largest.min(10_000);
        loop {
            let functions = family.unit(count);
            let mut times = [measure(rounds, count, || visit(&functions)).0, 0.0, 0.0];
            memory.clear();
            for (time, (name, similar)) in times[1..].iter_mut().zip(merging) {
                let options = Options { similar, ..options };
                let (nanoseconds, bytes) = measure(rounds, count, || plan(&functions, options));
                *time = nanoseconds;
                memory += &format!("   {name} {bytes:.0}");
            }
            let [visit, identical, all] = times;
            let family = format!("{family:?}").to_lowercase();
            println!(
                "{family:<10} {count:>9} {visit:>11.0} {identical:>11.0} {all:>11.0}   bytes per function:{memory}"
            );
            match first {
                None => first = Some((count, times)),
                Some((first, before)) if count == largest => {
                    let exponent = |at: usize| {
                        1.0 + (times[at] / before[at]).ln() / f64::from(count / first).ln()
                    };
                    println!(
                        "{family:<10}  exponent {:>11.2} {:>11.2} {:>11.2}",
                        exponent(0),
                        exponent(1),
                        exponent(2)
                    );
                }
                Some(_) => {}
            }
            if count >= largest {
                break;
            }
            count = (count * 10).min(largest);
        }
    }
}
