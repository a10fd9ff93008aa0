//! The common part of all laws: the corpus, and running properties.

use arbitrary::Unstructured;
use cranelift_codegen::ir::Function;
use std::path::{Path, PathBuf};

pub use testkit::support::*;

pub use testkit::corpus;

/// The number of random units that are drawn: `runs`, or the number that `CLIF_MERGE_RUNS` asks
/// for.
pub fn asked_runs(runs: u64) -> u64 {
    std::env::var("CLIF_MERGE_RUNS").map_or(runs, |runs| runs.parse().expect("a number"))
}

/// The first seed of random units: 0, or the one that `CLIF_MERGE_SEED` asks for.
pub fn first_seed() -> u64 {
    std::env::var("CLIF_MERGE_SEED").map_or(0, |seed| seed.parse().expect("a number"))
}

/// How many inputs a property is run on.
const INPUTS: u64 = 250;

/// Runs a property on random input that is the same each time. `ARBTEST_BUDGET_MS=60000` looks for
/// longer, at other input each time; `ARBTEST_SEED` repeats what that found.
pub fn random(mut property: impl FnMut(&mut Unstructured<'_>) -> arbitrary::Result<()>) {
    let wanted = |name| std::env::var_os(name).is_some();
    if wanted("ARBTEST_BUDGET_MS") || wanted("ARBTEST_SEED") {
        return arbtest::arbtest(property).size_min(512).size_max(16_384).run();
    }
    for input in 0..INPUTS {
        // The lower half of a seed is the number of bytes.
        let bytes = 512 + input * (16_384 - 512) / INPUTS;
        arbtest::arbtest(&mut property).seed(input << 32 | bytes).run();
    }
}

/// The functions of all texts below a folder, as far as they parse and pass the verifier.
pub fn functions_below(folder: &Path) -> Vec<(PathBuf, Function)> {
    let mut functions = Vec::new();
    for path in clif_files(folder) {
        let text = std::fs::read_to_string(&path).expect("is text");
        for func in cranelift_reader::parse_functions(&text).unwrap_or_default() {
            if func.layout.entry_block().is_some() && verifier_error(&func).is_none() {
                functions.push((path.clone(), func));
            }
        }
    }
    functions
}

/// The text of a function that calls another one.
pub fn calls(own: u32, callee: u32) -> String {
    format!(
        "function u0:{own}(i64) -> i64 tail {{
    fn0 = colocated u0:{callee}(i64) -> i64 tail
block0(v0: i64):
    v1 = call fn0(v0)
    return v1
}}"
    )
}
