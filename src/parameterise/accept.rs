//! Accepting: writes the judgement of a set into the plan, the bodies that pay and the reasons of
//! functions that share none.
//!
//! It decides only what depends on the order of the sets: which of them the limit of merges leaves
//! out.

use super::Search;
use super::judge::{Candidate, Judged};
use super::probe::CALLEE;
use super::table::Table;
use crate::plan::{Reason, SimilarSet};
use crate::unit::{FunctionIndex, Item};
use cranelift_codegen::ir::{Function, UserExternalName};

impl Search<'_, '_> {
    /// Writes the judgement of a set into the plan.
    pub(super) fn accept(&mut self, judged: Judged<'_>) {
        let Judged { set, mut paying, mut kept, counts, first } = judged;
        self.workbench.plan.stats_mut().similar.add(&counts);
        let table = set.table;
        self.workbench.sizes.extend(first.map(|bytes| (table.function(set.rows[0]), Some(bytes))));
        paying.sort_unstable_by_key(|(rows, _)| rows[0]);
        kept.sort_unstable_by_key(|(rows, ..)| rows[0]);
        for (rows, candidate) in paying {
            // A limit does not cut into a set.
            let Some(left) = self.workbench.limit.checked_sub(rows.len()) else {
                self.workbench.limit = 0;
                self.keep_unmerged(table, &rows, Reason::MergeLimit, Some(candidate.saved));
                continue;
            };
            let Some((symbol, _)) = self.workbench.fresh_symbol(&candidate.outcomes.members) else {
                self.keep_unmerged(table, &rows, Reason::SimilarNotSmaller, None);
                continue;
            };
            self.workbench.limit = left;
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

    /// Makes some rows of a table share a body.
    pub(super) fn share_body(
        &mut self,
        table: &Table,
        rows: &[u32],
        symbol: UserExternalName,
        candidate: Candidate,
    ) {
        let Candidate { mut body, outcomes, saved, bytes } = candidate;
        call_itself(&mut body, &symbol);
        let to = self.workbench.accept(&outcomes.members, symbol, body);
        self.workbench.sizes.extend(bytes.map(|bytes| (to, Some(bytes))));
        self.record(table, rows, Some(to), Some(saved));
    }

    /// Gives functions the reason why they are not merged.
    fn keep_unmerged(&mut self, table: &Table, rows: &[u32], reason: Reason, saved: Option<i64>) {
        self.record(table, rows, None, saved);
        for &row in rows {
            self.give_reason(table.function(row), reason);
        }
    }

    /// Gives a function this reason to be kept, if its reason so far was only that it equals no
    /// other.
    fn give_reason(&mut self, function: FunctionIndex, reason: Reason) {
        let before = self.workbench.plan.entry(function).reason();
        if let Reason::Prefiltered | Reason::Different | Reason::ReferencesDiffer = before {
            self.workbench.plan.set_reason(Item::Function(function), reason);
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
        let set = SimilarSet { members, parameters, has_selector: false, body, saved };
        self.workbench.plan.record_similar(set);
    }
}

/// Makes a body call itself by its symbol, in place of the one that it had while it was judged.
fn call_itself(body: &mut Function, symbol: &UserExternalName) {
    let mut names = body.params.user_named_funcs().iter();
    let own = names.find(|&(_, name)| *name == CALLEE).map(|(own, _)| own);
    if let Some(own) = own {
        body.params.reset_user_func_name(own, symbol.clone());
    }
}
