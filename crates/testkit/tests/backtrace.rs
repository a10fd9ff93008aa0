//! Random programs that trap, merged and unmerged: the frames are the same functions and source
//! locations.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

use testkit::backtrace::{Seen, check};

/// Guards against frames that name a function that was not called, and against source locations of
/// another function that shares the code.
#[test]
fn frames_of_merged_programs_are_those_of_unmerged_ones() {
    let mut seen = Seen::default();
    for seed in 0..1000 {
        seen += check(seed);
    }
    println!("{seen:?}");
    assert!(seen.shared > 1000 && seen.exact > 1000 && seen.candidates > 100, "{seen:?}");
}
