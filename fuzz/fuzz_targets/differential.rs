//! Random units, run as they are and merged.
#![cfg_attr(fuzzing, no_main)]

mod shared;

use arbitrary::Unstructured;
use shared::fuzz_target;
use testkit::host;
use testkit::targets::differential;

fuzz_target!(|data: &[u8]| {
    let _ = differential(&mut Unstructured::new(data), &mut host::run);
});
