//! The workbench of merging with parameters: the state of the unit while functions come to
//! share bodies, and the one place that writes such a body into the plan.
//!
//! Sets of functions of one shape and pairs of aligned functions are two proposers: they make a
//! body, and say of each function what it passes and whether it becomes a thunk. It does *not* ask
//! what pays.

use super::uses::Uses;
use super::{SearchInput, merged_into, merges_left};
use crate::apply::KeptCalls;
use crate::extra_argument::ExtraArgument;
use crate::lists::Lists;
use crate::options::Options;
use crate::plan::{Added, Disposition, Plan, Reason};
use crate::unit::{Addresses, Attributes, Bodies, FunctionIndex, Item, Linkage};
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, UserExternalName, UserFuncName};
use cranelift_entity::EntitySet;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// A unit of which functions come to share bodies.
pub(crate) struct Workbench<'a> {
    pub plan: &'a mut Plan,
    pub bodies: &'a mut dyn Bodies,
    pub options: &'a Options<'a>,
    /// As they were before any function shared a body, and those of new bodies.
    pub(super) uses: Uses,
    /// The functions that were merged into each function.
    pub(super) merged_into: Lists<u32>,
    /// The functions that share parameterised bodies, and those that were merged into them before:
    /// where their calls go as they are written.
    pub(super) merged: KeptCalls,
    /// Predicted bytes of functions whose calls are as they were written; `None` where they cannot
    /// be predicted.
    pub(super) sizes: HashMap<FunctionIndex, Option<i64>, FxBuildHasher>,
    /// How many more functions may be merged.
    pub(super) limit: usize,
    /// The number of the next class.
    next_class: u32,
}

/// A function that shares a body.
pub(super) struct Member {
    pub function: FunctionIndex,
    /// The arguments that it passes to the body behind its own.
    pub arguments: Arc<[ExtraArgument]>,
    /// Whether it becomes a thunk, whatever is known of its uses when it is written into the plan.
    pub thunk: bool,
}

impl<'a> Workbench<'a> {
    /// The workbench of a unit after identical merging. Reads every function that refers to another
    /// one.
    pub fn new(
        plan: &'a mut Plan,
        given: SearchInput<'_>,
        bodies: &'a mut dyn Bodies,
        options: &'a Options<'a>,
    ) -> Workbench<'a> {
        let SearchInput { observed, encodings, .. } = given;
        let without_ir = encodings.without_ir();
        let mut known: EntitySet<FunctionIndex> = EntitySet::new();
        for (function, _) in plan.entries() {
            // Calls of compiled code go to the symbol, as do those of which nothing is known.
            let (own, called) = (&without_ir.functions, &without_ir.callees);
            if !own.contains(function) && !called.contains(function) {
                known.insert(function);
            }
        }
        let keep_symbols = options.similar.keep_symbols;
        let uses = Uses::of(known, plan, observed, without_ir, bodies, keep_symbols);
        Workbench {
            uses,
            merged_into: merged_into(plan),
            merged: KeptCalls::default(),
            sizes: HashMap::default(),
            limit: merges_left(plan, options),
            next_class: plan.classes(),
            plan,
            bodies,
            options,
        }
    }

    /// The functions that were merged into a function.
    pub(super) fn followers(&self, function: FunctionIndex) -> Vec<FunctionIndex> {
        let followers = self.merged_into.get(function.as_u32() as usize);
        followers.iter().copied().map(FunctionIndex::from_u32).collect()
    }

    /// Finds anew the functions that were merged into each function.
    pub(super) fn find_followers(&mut self) {
        self.merged_into = merged_into(self.plan);
    }

    /// A symbol for the body of some functions, and all functions of the unit that come to it,
    /// ascending.
    pub(super) fn fresh_symbol(
        &mut self,
        members: &[Member],
    ) -> Option<(UserExternalName, Vec<FunctionIndex>)> {
        let mut functions: Vec<FunctionIndex> = Vec::new();
        for &Member { function, arguments: _, thunk } in members {
            functions.push(function);
            // They follow it.
            functions.extend(self.followers(function).into_iter().filter(|_| !thunk));
        }
        // Parameterised bodies are no functions of the unit.
        functions.retain(|&function| self.plan.parameterised_body(function).is_none());
        functions.sort_unstable();
        functions.dedup();
        Some((self.bodies.fresh_symbol(&functions)?, functions))
    }

    /// Makes functions share a body of this symbol.
    pub(super) fn accept(
        &mut self,
        members: &[Member],
        symbol: UserExternalName,
        mut body: Function,
    ) -> FunctionIndex {
        body.name = UserFuncName::User(symbol.clone());
        let key = self.plan.entry(members[0].function).attributes().key;
        let to = add_body(self.plan, symbol, key, self.next_class, body);
        self.next_class += 1;
        self.uses.add_body(to, members.iter().map(|member| member.function));
        // Passed functions keep code. Of all members before any disposition is decided: they may
        // pass the addresses of each other, also by the symbols of functions that were merged into
        // them.
        let arguments = members.iter().flat_map(|member| &*member.arguments);
        for symbol in arguments.filter_map(ExtraArgument::symbol) {
            self.keep_thunk(symbol);
            self.uses.add_address(self.plan, symbol);
        }
        let mut bodies = 0;
        for Member { function, arguments, thunk } in members {
            let function = *function;
            let is_body = self.plan.parameterised_body(function).is_some();
            bodies += usize::from(is_body);
            // Nothing but calls refers to a body that comes to another one.
            let reason = self.uses.must_keep_symbol(self.plan, function).filter(|_| !is_body);
            let (disposition, reason) = match *thunk || reason.is_some() {
                true => (Disposition::Thunk { to }, reason.unwrap_or(Reason::ThunkCheaper)),
                false => (Disposition::Redirect { to }, Reason::Similar),
            };
            self.plan.set_extra_arguments(function, arguments.clone());
            self.plan.set(function, disposition, reason);
            self.merged.insert(function, function);
            if let Disposition::Redirect { to: _ } = disposition {
                self.follow(function, to, arguments);
            }
        }
        let stats = self.plan.stats_mut();
        stats.similar.bodies += 1;
        stats.similar.merged += members.len() - bodies;
        to
    }

    /// Makes the functions that were merged into a function follow it to `to`, with these arguments
    /// behind its own.
    fn follow(
        &mut self,
        function: FunctionIndex,
        to: FunctionIndex,
        arguments: &Arc<[ExtraArgument]>,
    ) {
        // They have no addresses of their own any more.
        let mut alignment = self.plan.entry(function).alignment();
        for member in self.followers(function) {
            let entry = self.plan.entry(member);
            alignment = entry.alignment().max(alignment);
            // Those of identical merging have none of their own, and are many.
            let arguments = match entry.extra_arguments() {
                [] => arguments.clone(),
                own => own.iter().chain(&**arguments).cloned().collect(),
            };
            self.plan.set_extra_arguments(member, arguments);
            self.plan.retarget(member, to);
            self.merged.insert(member, function);
        }
        self.plan.align(Item::Function(to), alignment.into());
    }

    /// Makes a function whose address is passed a thunk, if only its calls pass the extra arguments
    /// so far.
    fn keep_thunk(&mut self, symbol: &UserExternalName) {
        // One that an earlier unit eliminated is not passed: its calls pass its extra arguments.
        if let Some(function) = self.plan.function(symbol)
            && self.merged.callee(function).is_some()
            && let Disposition::Redirect { to } = self.plan.entry(function).disposition()
        {
            self.plan.set(function, Disposition::Thunk { to }, Reason::AddressTaken);
        }
    }
}

/// Whether a function that need not keep its symbol becomes a thunk of `thunk` bytes, where its
/// calls take `calls` bytes to pass the extra arguments.
///
/// For a single call never: it could only be because thunks are written in fewer bytes than the
/// back end needs for a call, and the caller would then differ from others in a callee and no
/// longer in constants.
pub(super) fn is_cheaper(thunk: i64, calls: i64, count: u32) -> bool {
    count > 1 && thunk < calls
}

/// Adds a parameterised body to a plan, in a class of its own. `key` is that of the functions that
/// share it.
fn add_body(
    plan: &mut Plan,
    symbol: UserExternalName,
    key: u64,
    class: u32,
    body: Function,
) -> FunctionIndex {
    let attributes = Attributes {
        linkage: Linkage::Local,
        addresses: Addresses::Insignificant,
        key,
        ..Attributes::default()
    };
    let (reason, alignment, has_equals) = (Reason::ParameterisedBody, 1, false);
    let added = Added { symbol, attributes, reason, class, alignment, has_equals };
    plan.add_body(added, body, None)
}
