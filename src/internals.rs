//! What the tests of this crate look into, and plans that they edit. It is not for others, and may change in any version.

pub use crate::canonicalize::{apply_rules, canonicalized};
pub use crate::checker::trace;

use crate::data::DataIndex;
use crate::plan::{Disposition, Plan};
use crate::unit::FunctionIndex;

/// `plan` with another disposition of one function, right or wrong. Nothing else is adapted to it.
pub fn decided(mut plan: Plan, function: FunctionIndex, disposition: Disposition) -> Plan {
    plan.entries[function].disposition = disposition;
    plan
}

/// The same for a data object.
pub fn data_decided(mut plan: Plan, data: DataIndex, disposition: Disposition<DataIndex>) -> Plan {
    plan.data[data].disposition = disposition;
    plan
}

/// `plan` with another alignment of a function, in bytes.
pub fn aligned(mut plan: Plan, function: FunctionIndex, alignment: u32) -> Plan {
    plan.entries[function].alignment = alignment;
    plan
}

/// The same for a data object.
pub fn data_aligned(mut plan: Plan, data: DataIndex, alignment: u64) -> Plan {
    plan.data[data].alignment = alignment;
    plan
}
