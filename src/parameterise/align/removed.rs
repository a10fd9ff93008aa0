//! Parameterised bodies that were merged into others: their symbols will not be defined.
//!
//! Extra arguments and bodies that name them name their representatives instead, and they leave the
//! plan. Nothing is decided here.

use crate::extra_argument::ExtraArgument;
use crate::plan::{Disposition, Plan};
use crate::unit::FunctionIndex;
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, UserExternalName};
use hashbrown::HashSet;
use rustc_hash::FxBuildHasher;

/// Removes the parameterised bodies that a plan merges away, and every reference to them. Linear in
/// the size of the plan.
pub(super) fn remove_merged_bodies(plan: &mut Plan) {
    let parameterised = plan.new_bodies().iter().filter(|new| new.copy_of().is_none());
    let removed = parameterised.map(|new| plan.entry(new.function()));
    let removed = removed.filter(|entry| entry.disposition() != Disposition::Keep);
    let removed: HashSet<UserExternalName, FxBuildHasher> =
        removed.map(|entry| entry.symbol().clone()).collect();
    if removed.is_empty() {
        return;
    }
    let address = |symbol: &UserExternalName| Some(plan.address_symbol(symbol).clone());
    let mut arguments: Vec<(FunctionIndex, Arc<[ExtraArgument]>)> = Vec::new();
    for (function, entry) in plan.entries() {
        let own = entry.extra_arguments().iter();
        if own.clone().filter_map(ExtraArgument::symbol).any(|name| removed.contains(name)) {
            let redirected = own.map(|argument| argument.redirected(&address));
            arguments.push((function, redirected.collect()));
        }
    }
    let mut bodies: Vec<(FunctionIndex, Function)> = Vec::new();
    for new in plan.new_bodies().iter().filter(|new| new.copy_of().is_none()) {
        let mut symbols = new.body().params.user_named_funcs().values();
        if symbols.any(|symbol| removed.contains(symbol)) {
            let mut body = new.body().clone();
            plan.apply(new.function(), &mut body);
            bodies.push((new.function(), body));
        }
    }
    for (function, arguments) in arguments {
        plan.set_extra_arguments(function, arguments);
    }
    for (function, body) in bodies {
        plan.set_body(function, body);
    }
    plan.remove_parameterised_bodies();
}
