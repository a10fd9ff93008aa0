//! Random calls of `Module`, made on a module and on one that merges.
#![cfg_attr(fuzzing, no_main)]

mod shared;

use arbitrary::Unstructured;
use shared::fuzz_target;
use testkit::module::check;

fuzz_target!(|data: &[u8]| {
    let _ = check(&mut Unstructured::new(data));
});
