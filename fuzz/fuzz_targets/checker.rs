//! The independent checker: right plans are proved, wrong merges from injected faults refused.
#![cfg_attr(fuzzing, no_main)]

mod shared;

use arbitrary::Unstructured;
use shared::fuzz_target;
use testkit::targets::checker;

fuzz_target!(|data: &[u8]| {
    let _ = checker(&mut Unstructured::new(data));
});
