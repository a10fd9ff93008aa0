//! Random calls of `Module`, made on a module and on one that merges.
#![cfg_attr(fuzzing, no_main)]

#[path = "../../tests/fuzzing/host.rs"]
mod host;
mod shared;

use arbitrary::Unstructured;
use cranelift_mergefunc::fuzzing::module::check;
use shared::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = check(&mut Unstructured::new(data), &mut host::ThisMachine);
});
