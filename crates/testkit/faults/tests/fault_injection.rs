//! The tests of the tests: faults are injected into the pass, one at a time, and the oracles must
//! notice them.
//!
//! `fault_injection/matrix.rs` says which oracle must notice which fault; each oracle is one test,
//! which runs until every fault that it must notice is noticed, and fails if one is not. All input
//! is from fixed seeds. `CLIF_MERGE_FAULTS="--ignored --nocapture" cargo test --release --workspace
//! --test faults -- --ignored` prints which oracles notice which faults, whether they must or not.

#[path = "fault_injection/by_hand.rs"]
mod by_hand;
#[path = "fault_injection/consecutive.rs"]
mod consecutive;
#[path = "fault_injection/incremental.rs"]
mod incremental;
#[path = "fault_injection/matrix.rs"]
mod matrix;
#[path = "fault_injection/nowhere.rs"]
mod nowhere;
#[path = "fault_injection/oracles.rs"]
mod oracles;
#[path = "fault_injection/refused_plans.rs"]
mod refused_plans;
#[path = "fault_injection/units.rs"]
mod units;
