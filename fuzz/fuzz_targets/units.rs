//! Random units in pieces, planned apart with any sharing maps, linked, and run as they were and
//! so.
#![cfg_attr(fuzzing, no_main)]

mod shared;

use arbitrary::Unstructured;
use shared::fuzz_target;
use testkit::across::check;

fuzz_target!(|data: &[u8]| {
    let _ = check(&mut Unstructured::new(data));
});
