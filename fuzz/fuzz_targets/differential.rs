//! Random units, run as they are and merged.
#![cfg_attr(fuzzing, no_main)]

#[path = "../../tests/host/mod.rs"]
mod host;
mod shared;

use arbitrary::Unstructured;
use cranelift_mergefunc::fuzzing::targets::differential;
use shared::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = differential(&mut Unstructured::new(data), &mut host::run);
});
