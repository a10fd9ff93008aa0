//! What the tests of this crate look into, and plans that they edit. It is not for others, and may change in any version.

pub use crate::canonicalize::{apply_rules, canonicalized};
pub use crate::checker::trace;

use crate::plan::{Disposition, Plan};
use crate::unit::{DataIndex, FunctionIndex, Item};

/// `plan` with another disposition of one function, right or wrong. Nothing else is adapted to it.
pub fn decided(mut plan: Plan, function: FunctionIndex, disposition: Disposition) -> Plan {
    let reason = plan.entry(function).reason();
    plan.set(function, disposition, reason);
    plan
}

/// The same for a data object.
pub fn data_decided(mut plan: Plan, data: DataIndex, disposition: Disposition<DataIndex>) -> Plan {
    let reason = plan.data_entry(data).reason();
    plan.set_data(data, disposition, reason);
    plan
}

/// `plan` with another alignment of a function, in bytes.
pub fn aligned(mut plan: Plan, function: FunctionIndex, alignment: u32) -> Plan {
    plan.set_alignment(Item::Function(function), alignment.into());
    plan
}

/// The same for a data object.
pub fn data_aligned(mut plan: Plan, data: DataIndex, alignment: u64) -> Plan {
    plan.set_alignment(Item::Data(data), alignment);
    plan
}
