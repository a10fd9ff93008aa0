//! Two tables of decisions, before and after a change: which functions and which merges appeared
//! and disappeared.
//!
//! Functions and data objects are the same if they have one name: that of the source where it is
//! known, since Wasmtime's numbers shift, or that of the text. Of several with one name, those are
//! paired first about which the same was decided, so that only what changed is left; the others in
//! the order of their sizes. It compares tables, not code.

use crate::decisions::{Decision, Item, Kind, Outcome, bytes};
use serde::Serialize;
use std::collections::BTreeMap;

/// The changes between two tables.
#[derive(Debug, Serialize)]
pub struct Changes<'a> {
    /// Sums over all functions.
    pub functions: Change<Totals>,
    /// Sums over all data objects.
    pub data: Change<Totals>,
    /// Merged before and kept now, the largest growth first.
    pub disappeared: Vec<Pair<'a>>,
    /// Kept before and merged now, the largest saving first.
    pub appeared: Vec<Pair<'a>>,
    /// New functions and data objects.
    pub added: Vec<&'a Decision>,
    /// Functions and data objects that are no longer there.
    pub removed: Vec<&'a Decision>,
}

/// A value before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Change<T> {
    /// In the first table.
    pub before: T,
    /// In the second.
    pub after: T,
}

/// Sums over a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Functions or data objects of the unit.
    pub count: usize,
    /// How many of them gave up their bodies.
    pub merged: usize,
    /// Bytes before merging.
    pub bytes_before: u64,
    /// Bytes after merging, new bodies included.
    pub bytes_after: u64,
}

/// One function or data object in both tables.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pair<'a> {
    /// The row of the first table.
    pub before: &'a Decision,
    /// The row of the second.
    pub after: &'a Decision,
}

impl Pair<'_> {
    /// How many bytes more there are after merging than in the first table.
    pub fn growth(&self) -> i64 {
        self.after.bytes_after as i64 - self.before.bytes_after as i64
    }
}

impl Totals {
    fn of(decisions: &[Decision], is_data: bool) -> Totals {
        let rows = || decisions.iter().filter(|decision| (decision.item == Item::Data) == is_data);
        let own = || rows().filter(|decision| decision.item != Item::NewBody);
        let (bytes_before, bytes_after) = bytes(rows());
        let merged = own().filter(|decision| decision.kind == Kind::Passed).count();
        Totals { count: own().count(), merged, bytes_before, bytes_after }
    }

    /// How much is saved, in percent of the bytes before merging; negative if there are more.
    pub fn saved(self) -> f64 {
        let Totals { bytes_before, bytes_after, .. } = self;
        crate::table::percent(bytes_before as f64 - bytes_after as f64, bytes_before as f64)
    }
}

impl<'a> Changes<'a> {
    /// From the table before to the one after.
    pub fn between(before: &'a [Decision], after: &'a [Decision]) -> Changes<'a> {
        let totals = |is_data| Change {
            before: Totals::of(before, is_data),
            after: Totals::of(after, is_data),
        };
        let mut changes = Changes {
            functions: totals(false),
            data: totals(true),
            disappeared: Vec::new(),
            appeared: Vec::new(),
            added: Vec::new(),
            removed: Vec::new(),
        };
        let mut groups: BTreeMap<(Item, &str), [Vec<&Decision>; 2]> = BTreeMap::new();
        for (side, decisions) in [before, after].into_iter().enumerate() {
            for decision in decisions.iter().filter(|decision| decision.item != Item::NewBody) {
                let name = decision.source_name.as_ref().unwrap_or(&decision.name);
                groups.entry((decision.item, name)).or_default()[side].push(decision);
            }
        }
        for group in groups.into_values() {
            changes.pair(group);
        }
        changes.disappeared.sort_by_key(|pair| std::cmp::Reverse(pair.growth()));
        changes.appeared.sort_by_key(Pair::growth);
        changes.added.sort_by_key(|decision| std::cmp::Reverse(decision.bytes_after));
        changes.removed.sort_by_key(|decision| std::cmp::Reverse(decision.bytes_after));
        changes
    }

    /// Pairs what has one name.
    fn pair(&mut self, group: [Vec<&'a Decision>; 2]) {
        let [mut before, mut after] = group;
        before.sort_by(|a, b| decided(a).cmp(&decided(b)));
        after.sort_by(|a, b| decided(a).cmp(&decided(b)));
        // Rows in both tables did not change.
        let (mut only_before, mut only_after) = (Vec::new(), Vec::new());
        let (mut old, mut new) = (before.into_iter().peekable(), after.into_iter().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (Some(old), Some(new)) => decided(old).cmp(&decided(new)),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => break,
            };
            if order.is_le() {
                let row = old.next();
                only_before.extend(row.filter(|_| order.is_ne()));
            }
            if order.is_ge() {
                let row = new.next();
                only_after.extend(row.filter(|_| order.is_ne()));
            }
        }
        let both = only_before.len().min(only_after.len());
        self.removed.extend(only_before.drain(both..));
        self.added.extend(only_after.drain(both..));
        for (before, after) in only_before.into_iter().zip(only_after) {
            let pair = Pair { before, after };
            match (before.kind == Kind::Passed, after.kind == Kind::Passed) {
                (true, false) => self.disappeared.push(pair),
                (false, true) => self.appeared.push(pair),
                (true, true) | (false, false) => {}
            }
        }
    }
}

/// The key of a decision, smallest functions first.
fn decided(decision: &Decision) -> (u64, &str, &str, u64) {
    let Decision { bytes_before, outcome, bytes_after, .. } = decision;
    let Outcome { disposition, rule, .. } = outcome;
    (*bytes_before, disposition, rule, *bytes_after)
}
