//! Accepting: writes into the plan what was judged of a set, the bodies that pay and the reasons of functions that share
//! none.
//!
//! It decides only what depends on the order of the sets: which of them the limit of merges leaves out.

use super::Search;
use super::judge::{Candidate, Judged, Outcomes};
use super::probe::CALLEE;
use super::table::Table;
use crate::extra_argument::ExtraArgument;
use crate::plan::{Added, Disposition, Plan, Reason, SimilarSet};
use crate::unit::{Addresses, Attributes, FunctionIndex, Item, Linkage};
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, UserExternalName, UserFuncName};

impl Search<'_> {
    /// Writes what was judged of a set into the plan.
    pub(super) fn accept(&mut self, judged: Judged<'_>) {
        let Judged { set, mut paying, mut kept, tried } = judged;
        self.plan.stats_mut().similar_tried += tried;
        let table = set.table;
        paying.sort_unstable_by_key(|(rows, _)| rows[0]);
        kept.sort_unstable_by_key(|(rows, ..)| rows[0]);
        for (rows, candidate) in paying {
            // A limit does not cut into a set.
            let Some(left) = self.limit.checked_sub(rows.len()) else {
                self.limit = 0;
                self.keep_unmerged(table, &rows, Reason::MergeLimit, Some(candidate.saved));
                continue;
            };
            let Some(symbol) = self.fresh_symbol(table, &rows, &candidate.outcomes) else {
                self.keep_unmerged(table, &rows, Reason::SimilarNotSmaller, None);
                continue;
            };
            self.limit = left;
            self.share_body(table, &rows, symbol, candidate);
        }
        for (rows, reason, saved) in kept {
            self.keep_unmerged(table, &rows, reason, saved);
        }
        // Rows that were divided from all others.
        for &row in &set.rows {
            self.give_reason(table.function(row), Reason::SimilarNotSmaller);
        }
    }

    /// A symbol for the body of some rows of a table.
    fn fresh_symbol(
        &mut self,
        table: &Table,
        rows: &[u32],
        outcomes: &Outcomes,
    ) -> Option<UserExternalName> {
        let mut members: Vec<FunctionIndex> = Vec::new();
        for (&row, &thunk) in rows.iter().zip(&outcomes.thunks) {
            let function = table.function(row);
            members.push(function);
            // They follow it.
            let duplicates = self.merged_into.get(function.as_u32() as usize).iter();
            members.extend(duplicates.filter(|_| !thunk).copied().map(FunctionIndex::from_u32));
        }
        members.sort_unstable();
        self.bodies.fresh_symbol(&members)
    }

    /// Makes some rows of a table share a body.
    pub(super) fn share_body(
        &mut self,
        table: &Table,
        rows: &[u32],
        symbol: UserExternalName,
        candidate: Candidate,
    ) {
        let Candidate { mut body, outcomes, saved } = candidate;
        let Outcomes { arguments, thunks, .. } = outcomes;
        let key = self.plan.entry(table.function(rows[0])).attributes().key;
        name(&mut body, &symbol);
        let to = add_body(self.plan, symbol, key, self.next_class, body);
        self.next_class += 1;
        // What is passed keeps code. Of all rows before it is decided what becomes of any: they may pass the addresses of each
        // other, also by the symbols of functions that were merged into them.
        for symbol in arguments.iter().flat_map(|own| own.iter()).filter_map(ExtraArgument::symbol)
        {
            self.keep_thunk(symbol);
            self.uses.add_address(self.plan, symbol);
        }
        for ((&row, arguments), thunk) in rows.iter().zip(arguments).zip(thunks) {
            let function = table.function(row);
            let reason = self.uses.must_keep_symbol(self.plan, function);
            let thunk = thunk || reason.is_some();
            self.plan.set_extra_arguments(function, arguments);
            let (disposition, reason) = outcome(to, thunk, reason);
            self.plan.set(function, disposition, reason);
            self.merged.insert(function, function);
            self.follow(function, to);
            if !thunk {
                // It has no address of its own any more.
                let alignment = self.plan.entry(function).alignment();
                self.plan.align(Item::Function(to), alignment.into());
            }
        }
        self.record(table, rows, Some(to), Some(saved));
        let stats = self.plan.stats_mut();
        stats.similar_bodies += 1;
        stats.similar_merged += rows.len();
    }

    /// Redirects what was merged into a function to `to`, if the function itself is redirected.
    fn follow(&mut self, function: FunctionIndex, to: FunctionIndex) {
        let entry = self.plan.entry(function);
        let (disposition, arguments) = (entry.disposition(), entry.shared_arguments());
        if let Disposition::Redirect { to: _ } = disposition {
            for &member in self.merged_into.get(function.as_u32() as usize) {
                let member = FunctionIndex::from_u32(member);
                self.plan.retarget(member, to);
                self.plan.set_extra_arguments(member, arguments.clone());
                self.merged.insert(member, function);
            }
        }
    }

    /// Makes a function whose address is passed a thunk, if only its calls pass the extra arguments so far.
    fn keep_thunk(&mut self, symbol: &UserExternalName) {
        // One that an earlier unit eliminated is not passed: its calls pass its extra arguments.
        if let Some(function) = self.plan.function(symbol)
            && self.merged.callee(function).is_some()
            && let Disposition::Redirect { to } = self.plan.entry(function).disposition()
        {
            self.plan.set(function, Disposition::Thunk { to }, Reason::AddressTaken);
        }
    }

    /// Gives functions the reason why they are not merged.
    fn keep_unmerged(&mut self, table: &Table, rows: &[u32], reason: Reason, saved: Option<i64>) {
        self.record(table, rows, None, saved);
        for &row in rows {
            self.give_reason(table.function(row), reason);
        }
    }

    /// Gives a function this reason to be kept, if its reason so far was only that it equals no other.
    fn give_reason(&mut self, function: FunctionIndex, reason: Reason) {
        let before = self.plan.entry(function).reason();
        if let Reason::Prefiltered | Reason::Different | Reason::ReferencesDiffer = before {
            self.plan.set_reason(Item::Function(function), reason);
        }
    }

    fn record(
        &mut self,
        table: &Table,
        rows: &[u32],
        body: Option<FunctionIndex>,
        saved: Option<i64>,
    ) {
        let members = rows.iter().map(|&row| table.function(row)).collect();
        let parameters = table.parameters(rows).len();
        let set = SimilarSet { members, parameters, selects: false, body, saved };
        self.plan.record_similar(set);
    }
}

/// Whether a function that need not keep its symbol becomes a thunk of so many bytes, where its calls take `calls` bytes to
/// pass the extra arguments.
///
/// For a single call never: it could only be because thunks are written in fewer bytes than the back end needs for a call,
/// and the caller would then differ from others in a callee and no longer in constants.
pub(super) fn is_cheaper(thunk: i64, calls: i64, count: u32) -> bool {
    count > 1 && thunk < calls
}

/// What becomes of a function that shares the body `to`, and why: `keeps_symbol` is the reason why its symbol must be kept,
/// if it must.
pub(super) fn outcome(
    to: FunctionIndex,
    thunk: bool,
    keeps_symbol: Option<Reason>,
) -> (Disposition, Reason) {
    match thunk {
        true => (Disposition::Thunk { to }, keeps_symbol.unwrap_or(Reason::ThunkCheaper)),
        false => (Disposition::Redirect { to }, Reason::Similar),
    }
}

/// Adds a parameterised body to a plan, in a class of its own. `key` is that of the functions that share it.
pub(super) fn add_body(
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

/// Gives a body its symbol, in place of the one that it had while it was judged.
fn name(body: &mut Function, symbol: &UserExternalName) {
    body.name = UserFuncName::User(symbol.clone());
    let mut names = body.params.user_named_funcs().iter();
    let own = names.find(|&(_, name)| *name == CALLEE).map(|(own, _)| own);
    if let Some(own) = own {
        body.params.reset_user_func_name(own, symbol.clone());
    }
}
