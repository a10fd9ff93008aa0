//! The tests of the tests: faults are planted in the pass, one at a time, and the oracles must
//! notice.
//!
//! `sabotage/matrix.rs` says which oracle must notice which fault; each oracle is one test, which
//! runs until every fault that is its own is noticed, and fails if one is not. All input is from
//! fixed seeds. `cargo test --release --features cli,fuzzing --test sabotage -- --ignored --nocapture`
//! prints who notices what, whether it must or not.

#[path = "sabotage/by_hand.rs"]
mod by_hand;
#[path = "host/mod.rs"]
mod host;
#[allow(dead_code, reason = "here, only objects for this machine are linked")]
#[path = "over_time/link.rs"]
mod link;
#[path = "sabotage/matrix.rs"]
mod matrix;
#[path = "fuzzing/host.rs"]
mod module_host;
#[allow(dead_code, reason = "made for many tests of modules")]
#[path = "module/support.rs"]
mod module_support;
#[path = "sabotage/oracles.rs"]
mod oracles;
#[path = "sabotage/over_time.rs"]
mod over_time;
#[path = "over_time/host.rs"]
mod over_time_host;
#[path = "native/tools.rs"]
mod tools;

use over_time::checked;
