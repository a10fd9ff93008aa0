//! How time and memory of the pass grow with the number of functions.
//!
//! Generated units of each family of [`testkit::scale`], of 10,000 functions and of ten times more
//! each time, up to `CLIF_MERGE_FUNCTIONS` (100,000): the time per function of a bare visit of
//! every instruction, of identical merging, and of all merging with the default policy; the
//! exponent of time over the number of functions; and the peak of what the pass allocates, in bytes
//! per function. All functions local, addresses insignificant. Medians of `CLIF_MERGE_ROUNDS` (3)
//! rounds, each of which times everything once.
//!
//! A million functions of a family take up to 8 GB.

use cranelift_mergefunc::cranelift_codegen::ir::Function;
use cranelift_mergefunc::{Merger, Options, Plan, Policy, Similar, Target};
use peak_alloc::PeakAlloc;
use std::time::Instant;
use testkit::measure::{self, Figures};
use testkit::scale::Family;
use testkit::support::free;
use testkit::unit::Held;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

fn plan(functions: &[Function], options: Options<'_>) -> Plan {
    let mut merger = Merger::new(options);
    merger.reserve(functions.len());
    for func in functions {
        let symbol = func.name.get_user().expect("units name functions u0:N").clone();
        merger.add(symbol, func, free()).expect("symbols are distinct");
    }
    merger.plan(&mut Held::new(functions))
}

/// The nanoseconds per function that some work takes, and the bytes per function that it allocates
/// at most.
fn run<T>(count: u32, work: impl FnOnce() -> T) -> (f64, f64) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let start = Instant::now();
    let result = work();
    let time = start.elapsed();
    let bytes = ALLOCATOR.peak_usage() - before;
    drop(result);
    (time.as_nanos() as f64 / f64::from(count), bytes as f64 / f64::from(count))
}

/// The timed steps: a visit, and planning with identical merging only and with all.
const NAMES: [&str; 3] = ["visit", "identical", "all"];

/// Times and bytes of one round.
fn round(functions: &[Function], options: &Options<'_>) -> [(f64, f64); 3] {
    let count = functions.len() as u32;
    let balanced = Similar { policy: Policy::Balanced, ..Similar::default() };
    let planned = |similar| run(count, || plan(functions, Options { similar, ..*options }));
    [run(count, || measure::visit(functions)), planned(Similar::OFF), planned(balanced)]
}

/// A figure of one round.
type Of<'a> = &'a dyn Fn(&[(f64, f64); 3]) -> f64;

fn main() {
    let largest = measure::number("CLIF_MERGE_FUNCTIONS", 100_000, 1_000);
    let rounds = measure::number("CLIF_MERGE_ROUNDS", 3, 1);
    let options = Options { target: Target::x86_64(), ..Options::default() };
    let mut figures = Figures::new("scale");
    println!(
        "family     functions       visit   identical         all   (nanoseconds per function)"
    );
    for family in Family::ALL {
        let mut first: Option<(u32, [f64; 3])> = None;
        let name = format!("{family:?}").to_lowercase();
        let mut count = largest.min(10_000);
        loop {
            let functions = family.unit(count);
            let all: Vec<[(f64, f64); 3]> =
                (0..rounds).map(|_| round(&functions, &options)).collect();
            drop(functions);
            let median = |of: Of<'_>| measure::median(all.iter().map(of).collect());
            let times = [0, 1, 2].map(|at| median(&|round| round[at].0));
            let bytes = [1, 2].map(|at| median(&|round| round[at].1));
            let row = format!("{name} {count}");
            for (what, time) in NAMES.into_iter().zip(times) {
                figures.set(&row, what, time);
            }
            figures.set(&row, "bytes, identical", bytes[0]);
            figures.set(&row, "bytes, all", bytes[1]);
            let [visit, identical, all] = times;
            println!(
                "{name:<10} {count:>9} {visit:>11.0} {identical:>11.0} {all:>11.0}   bytes per function: identical {:.0}   all {:.0}",
                bytes[0], bytes[1],
            );
            match first {
                None => first = Some((count, times)),
                Some((first, before)) if count == largest => {
                    let exponents = [0, 1, 2].map(|at| {
                        1.0 + (times[at] / before[at]).ln() / f64::from(count / first).ln()
                    });
                    for (what, exponent) in NAMES.into_iter().zip(exponents) {
                        figures.set(&format!("{name} exponent"), what, exponent);
                    }
                    let [visit, identical, all] = exponents;
                    println!("{name:<10}  exponent {visit:>11.2} {identical:>11.2} {all:>11.2}");
                }
                Some(_) => {}
            }
            if count >= largest {
                break;
            }
            count = (count * 10).min(largest);
        }
    }
    figures.write();
}
