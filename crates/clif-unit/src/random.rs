//! Random inputs for tests: the same ones in every run, or new ones for as long as
//! `ARBTEST_BUDGET_MS` asks for.

use arbitrary::Unstructured;

/// How many fixed inputs there are.
const INPUTS: u64 = 2_000;
/// The bytes of one of them.
const BYTES: usize = 2_048;

/// Checks a property of what it makes of an input. An input that is too short is no failure.
pub fn check(mut property: impl FnMut(&mut Unstructured<'_>) -> arbitrary::Result<()>) {
    if std::env::var_os("ARBTEST_BUDGET_MS").is_some() {
        return arbtest::arbtest(property).run();
    }
    for seed in 0..INPUTS {
        // The generator SplitMix64.
        let mut state = seed << 32;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed >> 56) as u8
        })
        .take(BYTES)
        .collect();
        let _ = property(&mut Unstructured::new(&bytes));
    }
}
