//! Every fuzz target for a moment, on input that is the same each time.
//!
//! The bodies of the targets of `fuzz/` are functions of the library, which are called here, too.
//! The target `text` fuzzes the program and has its test there; `differential` is a test of its
//! own.
//!
//! `ARBTEST_BUDGET_MS=60000` searches for longer, with other input each time; `ARBTEST_SEED`
//! repeats what that found.

use arbitrary::{Result, Unstructured};
use testkit::support::Rng;
use testkit::{across, module, targets};

/// Runs a target on `inputs` inputs.
fn run(inputs: u64, mut target: impl FnMut(&mut Unstructured<'_>) -> Result<()>) {
    if std::env::var_os("ARBTEST_BUDGET_MS").is_some() || std::env::var_os("ARBTEST_SEED").is_some()
    {
        return arbtest::arbtest(target).size_min(512).size_max(16_384).run();
    }
    for input in 0..inputs {
        let failed = Failed(input);
        let bytes = Rng::new(input).bytes(1024);
        // Too few bytes are no failure.
        let _ = target(&mut Unstructured::new(&bytes));
        std::mem::forget(failed);
    }
}

/// Reports on which input a target panicked.
struct Failed(u64);

impl Drop for Failed {
    fn drop(&mut self) {
        eprintln!("with the bytes of Rng::new({})", self.0);
    }
}

#[test]
fn checker() {
    run(20, targets::checker);
}

#[test]
fn module() {
    run(150, module::check);
}

#[test]
fn module_in_parallel() {
    run(150, module::check_in_parallel);
}

#[test]
fn order() {
    run(20, targets::order);
}

#[test]
fn units() {
    run(20, |u| across::check(u).map(drop));
}
