//! Wrong plans: what the plan overlooks or gets wrong, and what applying it or emitting a thunk
//! does.

use super::{Fault, PLANTED, is};
use crate::canon::Encoding;
use crate::options::Options;
use crate::plan::{Disposition, Plan};
use crate::target::Target;
use crate::unit::{Addresses, Attributes, FunctionIndex, Linkage, Unit};
use cranelift_codegen::ir::{Function, UserExternalName, Value};
use cranelift_entity::EntityRef;
use std::cell::RefCell;
use std::sync::Arc;

std::thread_local! {
    /// The right attributes of the unit that is planned, until the plan is made.
    static GIVEN: RefCell<Option<Vec<Attributes>>> = const { RefCell::new(None) };
}

/// A unit with the attributes that the plan uses.
pub(crate) fn overlooked(mut unit: Unit) -> Unit {
    GIVEN.with_borrow_mut(|given| {
        let attributes = || unit.functions.values().map(|defined| *defined.attributes).collect();
        given.get_or_insert_with(attributes);
    });
    for defined in unit.functions.values_mut() {
        let attributes = Arc::make_mut(&mut defined.attributes);
        let Attributes { linkage, addresses, address_taken, alignment, .. } = attributes;
        match PLANTED.get() {
            Some(Fault::Pinned) => attributes.pinned = false,
            Some(Fault::NoMerge) => attributes.no_merge = false,
            Some(Fault::ExternallyCalled) => attributes.externally_called = false,
            Some(Fault::AddressTaken) => *address_taken = false,
            Some(Fault::AddressSignificant) => *addresses = Addresses::Insignificant,
            Some(Fault::Visible) if *linkage != Linkage::Preemptible => *linkage = Linkage::Local,
            Some(Fault::Preemptible) if *linkage == Linkage::Preemptible => {
                *linkage = Linkage::Export;
            }
            Some(Fault::Alignment) => *alignment = 1,
            _ => break,
        }
    }
    unit
}

/// The options that the plan uses.
pub(crate) fn unsupported(options: Options<'_>) -> Options<'_> {
    GIVEN.set(None);
    match PLANTED.get() {
        Some(Fault::AliasUnsupported) => Options { aliases: true, ..options },
        Some(Fault::ThunkUnsupported) if options.target.jump_thunk.is_none() => {
            Options { target: Target::x86_64(), ..options }
        }
        _ => options,
    }
}

/// The plan with the injected fault.
pub(crate) fn planned(mut plan: Plan) -> Plan {
    let given = GIVEN.take().expect("the unit was planned");
    for (function, given) in (0..).map(FunctionIndex::from_u32).zip(given) {
        plan.set_attributes(function, given);
    }
    misplanned(&mut plan);
    plan
}

fn misplanned(plan: &mut Plan) {
    let functions: Vec<FunctionIndex> = plan.entries().map(|(function, _)| function).collect();
    let set = |plan: &mut Plan, function, disposition| {
        let reason = plan.entry(function).reason();
        plan.set(function, disposition, reason);
    };
    match PLANTED.get() {
        Some(Fault::AliasForThunk) => {
            for &function in &functions {
                if let Disposition::Thunk { to } = plan.entry(function).disposition() {
                    set(plan, function, Disposition::Alias { to });
                }
            }
        }
        Some(Fault::OtherClass) => {
            for &function in &functions {
                let class = plan.entry(function).class();
                let other = functions.iter().copied().find(|&other| {
                    let entry = plan.entry(other);
                    entry.disposition() == Disposition::Keep && entry.class() != class
                });
                if let (Disposition::Redirect { to: _ }, Some(to)) =
                    (plan.entry(function).disposition(), other)
                {
                    set(plan, function, Disposition::Redirect { to });
                    return;
                }
            }
        }
        Some(Fault::NamedEliminated) => {
            for &function in &functions {
                let entry = plan.entry(function);
                if let Disposition::Thunk { to } = entry.disposition()
                    && !entry.extra_arguments().is_empty()
                {
                    set(plan, function, Disposition::Redirect { to });
                }
            }
        }
        Some(Fault::ThunkCycle) => {
            for &function in &functions {
                if let Disposition::Thunk { to } = plan.entry(function).disposition() {
                    set(plan, to, Disposition::Thunk { to: function });
                    return;
                }
            }
        }
        _ => {}
    }
}

/// Where a call of a function, or a use of its address, goes with the injected fault. `None` where
/// it goes to the right symbol, as references to data always do.
pub(crate) fn redirected<'a>(
    plan: &'a Plan,
    from: &'a UserExternalName,
    call: bool,
) -> Option<&'a UserExternalName> {
    let function = plan.function(from)?;
    match PLANTED.get()? {
        Fault::NothingRedirected => Some(from),
        Fault::RedirectForgotten if from.index % 2 == 1 => Some(from),
        Fault::AddressFollowsCalls if !call => Some(plan.call_symbol(from)),
        Fault::PreemptibleRedirected => {
            let to = plan.entry(function).disposition().representative();
            Some(plan.entry(to.unwrap_or(function)).symbol())
        }
        Fault::CalleesExchanged if call => {
            let right = plan.entry(plan.call_target(function)).symbol();
            let mut kept = plan.entries().filter(|(_, entry)| {
                from != right && entry.disposition() == Disposition::Keep && entry.symbol() != right
            });
            kept.next().map(|(_, entry)| entry.symbol())
        }
        _ => None,
    }
}

/// The function after applying, with the injected fault.
pub(crate) fn applied(func: &mut Function) {
    if is(Fault::Colocated) {
        for callee in func.dfg.ext_funcs.values_mut() {
            callee.colocated = true;
        }
    }
}

/// The arguments of a call thunk, with the injected fault.
pub(crate) fn passed(args: &mut [Value]) {
    if let (true, Some((last, [first, ..]))) = (is(Fault::ThunkArguments), args.split_last_mut()) {
        *last = *first;
    }
}

/// The encoding, with the injected fault.
pub(crate) fn encoded(encoding: &mut Encoding) {
    if is(Fault::DigestTrusted) {
        let Encoding { shape, constants, references, .. } = encoding;
        let streams = shape.iter().chain(&*constants).chain(&*references);
        let digest = streams.fold(0u8, |digest, byte| digest.wrapping_mul(31) ^ byte);
        *shape = vec![digest];
        constants.clear();
    }
}

/// Where a thunk jumps that should jump to `right`.
pub fn jump(plan: &Plan, right: FunctionIndex) -> FunctionIndex {
    if !is(Fault::ThunkElsewhere) {
        return right;
    }
    let mut kept = (0..plan.added()).map(FunctionIndex::new).filter(|&other| {
        let entry = plan.entry(other);
        entry.disposition() == Disposition::Keep && entry.class() != plan.entry(right).class()
    });
    kept.next().unwrap_or(right)
}
