//! The tests of the tests: faults are planted in the pass, one at a time, and the oracles must
//! notice.
//!
//! `sabotage/matrix.rs` says which oracle must notice which fault; each oracle is one test, which
//! runs until every fault that is its own is noticed, and fails if one is not. All input is from
//! fixed seeds. `cargo test --release --features cli,fuzzing --test sabotage -- --ignored --nocapture`
//! prints who notices what, whether it must or not.

#[path = "host/mod.rs"]
mod host;
#[path = "sabotage/matrix.rs"]
mod matrix;
#[path = "sabotage/oracles.rs"]
mod oracles;
