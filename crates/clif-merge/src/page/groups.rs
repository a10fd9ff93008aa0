//! The classes of a report, as a page shows them.
//!
//! Sums over the table of decisions. A function that receives extra arguments is of the class of
//! its parameterised body, as in the table. It renders nothing.

use crate::decisions::{Decision, Item, Kind, by_name};
use std::collections::BTreeMap;

/// Functions of one class.
#[derive(Debug)]
pub struct Group {
    /// The number of the class.
    pub class: u32,
    /// The members: indices in the table of decisions, ascending.
    pub members: Vec<usize>,
    /// The function that replaces others, or else the first.
    pub representative: usize,
    /// How many members gave up their bodies.
    pub merged: usize,
    /// Bytes before merging.
    pub before: u64,
    /// Bytes after merging.
    pub after: u64,
    /// Bytes of members that [`could_merge`].
    pub missed: u64,
}

/// The fate of a byte of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Not there any more.
    Saved,
    /// Kept.
    Kept,
    /// Kept, although the function [`could_merge`].
    CouldMerge,
}

impl Part {
    /// All of them, in the order in which they are drawn.
    pub const ALL: [Part; 3] = [Part::Saved, Part::Kept, Part::CouldMerge];

    /// The title for a person.
    pub fn title(self) -> &'static str {
        match self {
            Part::Saved => "saved",
            Part::Kept => "kept",
            Part::CouldMerge => "could merge",
        }
    }
}

impl Group {
    /// Bytes that are saved; negative if a new body takes more than it replaces.
    pub fn saved(&self) -> i64 {
        self.before as i64 - self.after as i64
    }

    /// The bytes before merging by what became of them, in the order of [`Part::ALL`].
    pub fn parts(&self) -> [u64; 3] {
        let saved = u64::try_from(self.saved()).unwrap_or(0).min(self.before - self.missed);
        [saved, self.before - self.missed - saved, self.missed]
    }

    /// The part that most of its bytes are.
    pub fn mostly(&self) -> Part {
        let parts = self.parts();
        let most = (0..3).max_by_key(|&at| (parts[at], 3 - at));
        Part::ALL[most.expect("three parts")]
    }
}

/// Whether a function was kept although it equals another one, or is known to differ from one in
/// little: not if it only begins like another one.
fn could_merge(row: &Decision) -> bool {
    let begins_alike = row.resembles.as_ref().is_some_and(|other| other.common.is_some());
    row.kind == Kind::Missed && !begins_alike
}

/// The classes of functions, those that save most first; of equal ones the larger, and then the
/// lower number.
pub fn groups(decisions: &[Decision]) -> Vec<Group> {
    let indices = by_name(decisions);
    let mut classes: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    let functions = decisions.iter().enumerate().filter(|(_, row)| row.item != Item::Data);
    for (at, decision) in functions {
        classes.entry(decision.class).or_default().push(at);
    }
    let group = |(class, members): (u32, Vec<usize>)| {
        let rows = || members.iter().map(|&at| &decisions[at]);
        let replaced = rows().filter(|row| row.kind == Kind::Passed);
        let mut to = replaced.filter_map(|row| indices.get(row.outcome.replaced_by.as_deref()?));
        let missed = rows().filter(|row| could_merge(row));
        Group {
            class,
            representative: to.next().copied().unwrap_or(members[0]),
            merged: rows().filter(|row| row.kind == Kind::Passed).count(),
            before: rows().map(|row| row.bytes_before).sum(),
            after: rows().map(|row| row.bytes_after).sum(),
            missed: missed.map(|row| row.bytes_before).sum(),
            members,
        }
    };
    let mut groups: Vec<Group> = classes.into_iter().map(group).collect();
    groups.sort_by_key(|group| {
        (std::cmp::Reverse(group.saved()), std::cmp::Reverse(group.before), group.class)
    });
    groups
}
