//! Random programs that are defined over several flushes, run merged and unmerged.
#![cfg_attr(fuzzing, no_main)]

mod shared;

use arbitrary::Unstructured;
use shared::fuzz_target;
use testkit::incremental::check;

fuzz_target!(|data: &[u8]| {
    let _ = check(&mut Unstructured::new(data));
});
