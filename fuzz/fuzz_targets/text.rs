//! Texts of units, as they are read, merged and printed.
#![cfg_attr(fuzzing, no_main)]

mod shared;

use shared::fuzz_target;
use testkit::text::check;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        check(text);
    }
});

// An input is a text, so that the program can read it as well. Half of the time it is mutated as a
// text, otherwise as bytes.
#[cfg(fuzzing)]
libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    use arbitrary::Unstructured;
    use testkit::support::Rng;
    use testkit::text_mutation::mutated;

    let mut rng = Rng::new(seed.into());
    let bytes = rng.bytes(256);
    let text = std::str::from_utf8(&data[..size]).ok().filter(|_| !rng.one_in(4));
    match text.map(|text| mutated(text, &mut Unstructured::new(&bytes))) {
        Some(Ok(text)) if text.len() <= max_size => {
            data[..text.len()].copy_from_slice(text.as_bytes());
            text.len()
        }
        _ => libfuzzer_sys::fuzzer_mutate(data, size, max_size),
    }
});
