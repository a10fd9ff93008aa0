//! The order of encodings, hashes, and the classes of random units.
#![cfg_attr(fuzzing, no_main)]

mod shared;

use arbitrary::Unstructured;
use shared::fuzz_target;
use testkit::targets::order;

fuzz_target!(|data: &[u8]| {
    let _ = order(&mut Unstructured::new(data));
});
