//! What all targets share: the generator and the checks of the laws, and a stand-in for
//! `fuzz_target!` that makes a target an ordinary program, run on the files that are its arguments.
#![allow(dead_code, reason = "each target uses a part")]

#[path = "../../tests/laws/check.rs"]
pub mod check;
#[path = "../../tests/laws/oracle.rs"]
pub mod oracle;
#[path = "../../tests/laws/permute.rs"]
pub mod permute;
#[path = "../../tests/laws/support.rs"]
pub mod support;
#[path = "../../tests/laws/units.rs"]
pub mod units;
