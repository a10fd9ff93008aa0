//! The order of encodings, hashes, and the classes of random units.
#![cfg_attr(fuzzing, no_main)]

mod shared;

use arbitrary::Unstructured;
use testkit::targets::order;
use shared::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = order(&mut Unstructured::new(data));
});
