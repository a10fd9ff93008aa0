//! What all laws share: the corpus, and running properties.

use arbitrary::Unstructured;
use cranelift_codegen::ir::Function;

pub use cranelift_mergefunc::fuzzing::support::*;

/// The functions of `formats.clif`.
pub fn corpus() -> Vec<Function> {
    parse(include_str!("formats.clif"))
}

/// Runs a property on random input for less than a second, or for as long as `ARBTEST_BUDGET_MS`
/// says. `ARBTEST_SEED` repeats a failure.
pub fn random(property: impl FnMut(&mut Unstructured<'_>) -> arbitrary::Result<()>) {
    let test = arbtest::arbtest(property).size_min(512).size_max(16_384);
    match std::env::var_os("ARBTEST_BUDGET_MS") {
        Some(_) => test.run(),
        None => test.budget_ms(700).run(),
    }
}
