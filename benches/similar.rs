//! The cost at run time of sharing bodies among similar functions: programs compiled into a
//! `MergingModule<JITModule>` without any merging and under each policy, and run in turn.
//!
//! The programs are Rust, translated by Wasmtime (`programs/README.md`), optimised and not. A unit
//! holds some of them with all that they reach; its functions are local and their addresses
//! insignificant. The variant that runs first in a round changes from round to round; of all
//! rounds, the best of each variant is compared with the best without merging. With the policy
//! `off`, code is only at other addresses, so the deviation of that column from 1 is noise. All
//! variants must compute equal results, or the bench panics.
//!
//! `CLIF_MERGE_ROUNDS` is the number of rounds (50), `CLIF_MERGE_PROGRAMS` a directory of other
//! units, each a directory in it. Does not measure the time of merging itself: `module` does.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "similar/compiled.rs"]
mod compiled;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "similar/dispatch.rs"]
mod dispatch;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "similar/measure.rs"]
mod measure;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "similar/world.rs"]
mod world;

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn main() {
    measure::all();
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn main() {
    println!("similar: skipped, runs on Linux on x86-64 and aarch64 only");
}
