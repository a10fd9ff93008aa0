//! Functions of a text: what the verifier accepts is walked without a panic and equals itself.
#![cfg_attr(fuzzing, no_main)]

mod shared;

// By name at the root, because the shared modules find each other there.
use shared::*;
use std::panic::catch_unwind;
use {permute::Facts, permute::permuted, support::assert_equal, support::verifier_error};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // The reader and the verifier are not on trial: they panic on some malformed input.
    let parsed = catch_unwind(|| cranelift_reader::parse_functions(text).unwrap_or_default());
    for func in parsed.unwrap_or_default() {
        let accepted = catch_unwind(|| verifier_error(&func).is_none()).unwrap_or(false);
        if accepted && func.layout.entry_block().is_some() {
            assert_equal(&func, &func, "a function and itself");
            assert_equal(&func, &permuted(&func, Facts::Keep, 1), "another form");
        }
    }
});
