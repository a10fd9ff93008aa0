//! Random programs that are defined over several flushes, run merged and unmerged.
#![cfg_attr(fuzzing, no_main)]

#[path = "../../tests/incremental/host.rs"]
mod host;
mod shared;

use arbitrary::Unstructured;
use cranelift_mergefunc::fuzzing::incremental::check;
use shared::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = check(&mut Unstructured::new(data), &mut host::ThisMachine);
});
