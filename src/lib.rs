//! Function merging for Cranelift IR.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(any(test, feature = "cli"))]
extern crate std;

mod apply;
mod canon;
mod classes;
mod classify;
mod difference;
mod encoding;
mod facts;
mod hash;
mod options;
mod plan;
mod recheck;
mod remarks;
mod stats;
mod summary;
mod target;
mod unit;

pub use apply::call_thunk;
pub use cranelift_codegen;
pub use difference::{Difference, Rule, Site, first_difference};
pub use encoding::Encoding;
pub use hash::{StructuralHash, structural_hash};
pub use options::{
    Addresses, Attributes, Canonicalize, Compare, ComparePolicy, Linkage, Options, Prebucket,
};
pub use plan::{Disposition, Entry, Plan, SharedBody};
pub use recheck::{Disagreement, RecheckError, recheck};
pub use remarks::Reason;
pub use stats::Stats;
pub use target::{JumpThunk, Target};
pub use unit::{AddError, Bodies, FunctionIndex, Merger};
