//! Proposals of WebAssembly that are off by default in Wasmtime and not translated here, and what a
//! user can do about them.
//!
//! Whether a module needs a proposal is decided by validating it without: messages of other crates
//! are *not* searched for words. A proposal that a later `wasmparser` knows fails a test until it
//! is here.

use wasmtime::wasmparser::{Validator, WasmFeatures};

/// Those that are off by default in Wasmtime, and which it translates nevertheless.
pub const ENABLED: WasmFeatures =
    WasmFeatures::CUSTOM_PAGE_SIZES.union(WasmFeatures::WIDE_ARITHMETIC);

const NOTHING: &str = "no tool converts the module";
const CORE_MODULES: &str = "'wasm-tools component unbundle IN.wasm --module-dir DIR -o OUT.wasm' takes the core modules out of \
    the component, each of which is a unit";

/// Proposals that are refused, what they are called, and what to do.
const REFUSED: [(WasmFeatures, &str, &str); 15] = [
    (
        WasmFeatures::LEGACY_EXCEPTIONS,
        "exceptions of the first form",
        "'wasm-opt --all-features --disable-compact-imports --disable-custom-descriptors --translate-to-exnref' of \
         Binaryen 132 converts the module",
    ),
    (
        WasmFeatures::COMPACT_IMPORTS,
        "compact imports",
        "'wasm-opt --all-features --disable-compact-imports --disable-custom-descriptors' of Binaryen 132 converts the \
         module",
    ),
    (WasmFeatures::CUSTOM_DESCRIPTORS, "custom descriptors", NOTHING),
    (WasmFeatures::SHARED_EVERYTHING_THREADS, "shared-everything threads", NOTHING),
    (WasmFeatures::STACK_SWITCHING, "stack switching", NOTHING),
    (WasmFeatures::MEMORY_CONTROL, "memory control", NOTHING),
    (
        WasmFeatures::CM_ASYNC
            .union(WasmFeatures::CM_ASYNC_STACKFUL)
            .union(WasmFeatures::CM_MORE_ASYNC_BUILTINS)
            .union(WasmFeatures::CM_THREADING)
            .union(WasmFeatures::CM_ERROR_CONTEXT),
        "asynchronous components",
        CORE_MODULES,
    ),
    (WasmFeatures::CM_GC, "garbage collection of components", CORE_MODULES),
    (WasmFeatures::CM_MAP, "maps of components", CORE_MODULES),
    (WasmFeatures::CM64, "64-bit memories of components", CORE_MODULES),
    (WasmFeatures::CM_FIXED_LENGTH_LISTS, "lists of fixed lengths of components", CORE_MODULES),
    (WasmFeatures::CM_IMPLEMENTS, "'implements' of components", CORE_MODULES),
    (WasmFeatures::CM_VALUES, "values of components", CORE_MODULES),
    (WasmFeatures::CM_NESTED_NAMES, "nested names of components", CORE_MODULES),
    (WasmFeatures::CM_CANON_NAMES, "version suffixes of components", CORE_MODULES),
];

/// A remedy for the first proposal that a module or component needs and that is refused, if it
/// needs one.
pub fn remedy(wasm: &[u8]) -> Option<String> {
    let valid = |features| Validator::new_with_features(features).validate_all(wasm).is_ok();
    // Other mistakes are no question of proposals.
    valid(WasmFeatures::all()).then_some(())?;
    let needed = |&&(feature, _, _): &&(WasmFeatures, _, _)| !valid(WasmFeatures::all() - feature);
    let (_, proposal, remedy) = REFUSED.iter().find(needed)?;
    Some(format!("there is no translation of {proposal}: {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_proposal_is_enabled_or_refused() {
        // Those that Wasmtime enables by default, and parts of proposals.
        let default = WasmFeatures::WASM3 | WasmFeatures::COMPONENT_MODEL;
        let refused = REFUSED.iter().fold(WasmFeatures::empty(), |all, (one, _, _)| all | *one);
        assert_eq!(default | ENABLED | refused, WasmFeatures::all());
        assert!(refused.intersection(default | ENABLED).is_empty());
    }
}
