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
use cranelift_mergefunc::{Merger, Options, Plan, Policy, Similar, Target};
use peak_alloc::PeakAlloc;
use std::time::{Duration, Instant};
use testkit::measure;
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
    merger.plan(&mut Held::new(functions, None))
}

/// The fastest of several runs, in nanoseconds per function, and the bytes per function that one allocates at most.
fn run<T>(rounds: u32, count: u32, work: impl Fn() -> T) -> (f64, f64) {
    let mut fastest = Duration::MAX;
    let mut bytes = 0;
    for _ in 0..rounds {
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        let start = Instant::now();
        let result = work();
        fastest = fastest.min(start.elapsed());
        bytes = ALLOCATOR.peak_usage() - before;
        drop(result);
    }
    (fastest.as_nanos() as f64 / f64::from(count), bytes as f64 / f64::from(count))
}

fn main() {
    let largest = measure::number("CLIF_MERGE_FUNCTIONS", 100_000, 1_000);
    let rounds = measure::number("CLIF_MERGE_ROUNDS", 3, 1);
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
            let mut times = [run(rounds, count, || measure::visit(&functions)).0, 0.0, 0.0];
            memory.clear();
            for (time, (name, similar)) in times[1..].iter_mut().zip(merging) {
                let options = Options { similar, ..options };
                let (nanoseconds, bytes) = run(rounds, count, || plan(&functions, options));
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
