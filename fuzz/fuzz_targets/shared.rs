//! A replacement for `fuzz_target!` that makes a target an ordinary program, run on the files that
//! are its arguments.

#[cfg(fuzzing)]
pub use libfuzzer_sys::fuzz_target;

/// `fuzz_target!` for builds without a fuzzer.
#[cfg(not(fuzzing))]
macro_rules! fuzz_target {
    (|$data:ident: &[u8]| $body:block) => {
        fn run($data: &[u8]) $body

        fn main() {
            for path in std::env::args_os().skip(1) {
                run(&std::fs::read(path).expect("a file to run the target on"));
            }
        }
    };
}
#[cfg(not(fuzzing))]
pub(crate) use fuzz_target;
