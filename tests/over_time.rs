//! Random programs that are defined over several flushes do the same merged and unmerged.
//!
//! Without it, nobody saw that a function of a later flush was merged into one of an earlier flush whose
//! callee makes promises that only hold there, nor that a later flush passes the address of a function of
//! which nothing is left.
//!
//! | variable | says |
//! |---|---|
//! | `CLIF_MERGE_RUNS` | how many programs |
//! | `CLIF_MERGE_SECONDS` | for how long instead, in all |
//! | `CLIF_MERGE_SEED` | the first seed |
//! | `CLIF_MERGE_GO_ON` | findings are only counted |

#[path = "over_time/host.rs"]
mod host;

use arbitrary::Unstructured;
use cranelift_mergefunc::fuzzing::over_time::{
    self, Finding, Host, Program, Statistics, check_jit, print,
};
use cranelift_mergefunc::fuzzing::support::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Bytes that a program is drawn from.
const BYTES: usize = 8192;

fn draw(seed: u64) -> Program {
    let bytes = Rng::new(seed).bytes(BYTES);
    over_time::program(&mut Unstructured::new(&bytes)).expect("a program")
}

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value}: not a number")))
}

/// A check, with panics of the pass as findings.
fn checked(
    program: &Program,
    check: &mut dyn FnMut(&Program) -> Result<(), Finding>,
) -> Result<(), Finding> {
    catch_unwind(AssertUnwindSafe(|| check(program))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
        Err(Finding::new(format!("panic: {text}")))
    })
}

/// Runs programs of consecutive seeds, so many or for as long as is asked for, and fails with the first one
/// that is merged wrongly, made smaller.
fn run(count: u64, check: &mut dyn FnMut(&Program, &mut Statistics) -> Result<(), Finding>) -> Statistics {
    let start = Instant::now();
    let time = variable("CLIF_MERGE_SECONDS").map(Duration::from_secs);
    let count = variable("CLIF_MERGE_RUNS").unwrap_or(if time.is_some() { u64::MAX } else { count });
    let first = variable("CLIF_MERGE_SEED").unwrap_or(0);
    let goes_on = std::env::var_os("CLIF_MERGE_GO_ON").is_some();
    let mut statistics = Statistics::default();
    let mut found = 0;
    // What panics is told with the program.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    for seed in first..first.saturating_add(count) {
        if time.is_some_and(|time| start.elapsed() > time) {
            break;
        }
        let program = draw(seed);
        let finding = checked(&program, &mut |program| check(program, &mut statistics));
        let Err(finding) = finding else {
            continue;
        };
        found += 1;
        let elapsed = start.elapsed().as_secs_f64();
        if goes_on {
            println!("seed {seed} after {elapsed:.1} s: {}", finding.what.lines().next().unwrap_or(""));
            continue;
        }
        let kind = |finding: &Finding| finding.what.starts_with("panic");
        let smallest = over_time::reduce(&program, 2000, &mut |program| {
            let mut statistics = Statistics::default();
            let result = checked(program, &mut |program| check(program, &mut statistics));
            result.is_err_and(|other| kind(&other) == kind(&finding))
        });
        let last = checked(&smallest, &mut |program| check(program, &mut Statistics::default()));
        let last = last.expect_err("it still is wrong");
        std::panic::set_hook(hook);
        panic!("seed {seed}, after {elapsed:.1} s: {finding}\nmade smaller: {last}\n{}", print(&smallest));
    }
    std::panic::set_hook(hook);
    println!("{statistics}{:>9.1} seconds", start.elapsed().as_secs_f64());
    assert_eq!(found, 0, "findings");
    statistics
}

#[test]
fn jit() {
    let mut host = host::ThisMachine;
    run(100, &mut |program, statistics| check_jit(program, &mut host as &mut dyn Host, statistics));
}
