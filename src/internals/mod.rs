//! Internals for the tests of this crate, and plans that they edit. Not for others: it may change
//! in any version.

mod phases;

pub use phases::{WalkAlone, phases};

use crate::apply::{KeptCalls, Redirecting, emitted, not_redirected};
use crate::canon::{Context, Encoding, Scratch, encode};
pub use crate::checker::trace;
use crate::extra_argument::ExtraArgument;
use crate::layout;
use crate::options::Options;
use crate::plan::{Disposition, Plan};
use crate::unit::{Bodies, DataIndex, FunctionIndex, Item, NoUnit, ResolveSymbol};
use alloc::vec::Vec;
use cranelift_codegen::ir::Function;
pub use cranelift_mergefunc_units::{cell_hash, fixed_hash, identity_hash};

/// The encodings of a function that a plan keeps: by a walk of the function through a view of the
/// plan, and by a walk of a copy to which the plan was applied. Both are equal.
pub fn encodings(
    plan: &Plan,
    bodies: &mut dyn Bodies,
    function: FunctionIndex,
    options: &Options<'_>,
) -> [Option<Encoding>; 2] {
    let walk = |body: &Function, symbols: &dyn ResolveSymbol| {
        let key = plan.entry(function).attributes().key;
        let context = Context::of(options, key, symbols);
        let mut encoding = Encoding::default();
        encode(body, &context, &mut Scratch::default(), &mut encoding).ok().map(|()| encoding)
    };
    let view = Redirecting { plan, written: KeptCalls::none(), symbols: &NoUnit };
    let viewed = walk(not_redirected(plan, bodies, function), &view);
    [viewed, walk(&emitted(plan, bodies, function), &NoUnit)]
}

/// The canonical form of a function, for the target of these options and what they compare.
pub fn laid_out(func: &Function, options: &Options<'_>) -> Option<Function> {
    let mut scratch = Scratch::recording();
    let context = Context::of(options, 0, &NoUnit);
    encode(func, &context, &mut scratch, &mut Encoding::default()).ok()?;
    layout::laid_out(func, &scratch, options.compare.debug_info, &options.target)
}

/// `plan` with another disposition of one function, right or wrong. Nothing else is adapted to it.
pub fn decided(mut plan: Plan, function: FunctionIndex, disposition: Disposition) -> Plan {
    let reason = plan.entry(function).reason();
    plan.set(function, disposition, reason);
    plan
}

/// A plan with this disposition of a data object.
pub fn data_decided(mut plan: Plan, data: DataIndex, disposition: Disposition<DataIndex>) -> Plan {
    let reason = plan.data_entry(data).reason();
    plan.set_data(data, disposition, reason);
    plan
}

/// `plan` with other extra arguments of a function that is merged, right or wrong.
pub fn passing(mut plan: Plan, function: FunctionIndex, arguments: Vec<ExtraArgument>) -> Plan {
    plan.set_extra_arguments(function, arguments.into());
    plan
}

/// `plan` with other code of a body that it adds, right or wrong.
pub fn with_body(mut plan: Plan, function: FunctionIndex, body: Function) -> Plan {
    plan.set_body(function, body);
    plan
}

/// `plan` with another alignment of a function, in bytes.
pub fn aligned(mut plan: Plan, function: FunctionIndex, alignment: u32) -> Plan {
    plan.set_alignment(Item::Function(function), alignment.into());
    plan
}

/// A plan with this alignment of a data object.
pub fn data_aligned(mut plan: Plan, data: DataIndex, alignment: u64) -> Plan {
    plan.set_alignment(Item::Data(data), alignment);
    plan
}
