//! Facts: properties that only enable optimisation, and which of them are kept in a merge.
//!
//! A merged body runs in place of every function of its class, so it may keep only the facts that each of them has
//! at the same place: the *meet*. For `aligned`, `readonly`, `can_move` and `cold` that is "set in all of them".
//!
//! **Alias regions need more than that.** Two accesses with different regions are guaranteed not to touch the same
//! memory. In Cranelift a *store* without a region may alias anything, but a *load* without one is assumed not to
//! alias a store that has one. So an access whose regions differ among the members cannot just lose its region: in
//! one member it may well alias a store that keeps its region. What is sound is the join of the members'
//! partitions: two accesses that share a region in *any* member must not be distinguished. Hence the rule of
//! [`meet`]: link each region of the kept body with the regions that the others have at the same places; a region
//! is kept if it is linked, in each other function, with exactly one region, of the same user id, that is linked
//! with nothing else. Every access of a region that is not kept, and of all regions linked with it, has no region
//! afterwards: such accesses all observe each other, and they shared no region with any other access in any member.
//!
//! This module knows no IR; `canon` finds facts, `apply` puts them into a function.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A fact that the front end states about one place of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Fact {
    /// A block is not expected to be executed.
    Block { cold: bool },
    /// The facts of a memory access, as a set of bits, and its alias region.
    Access { flags: u8, region: Option<Region> },
}

impl Fact {
    pub const ALIGNED: u8 = 1;
    pub const READONLY: u8 = 2;
    pub const CAN_MOVE: u8 = 4;
}

/// An alias region: its number in the order of first use, and the embedder's id.
///
/// The number distinguishes two regions of one function even if their ids are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Region {
    pub number: u32,
    pub user_id: u32,
}

/// Weakens `kept` to what also holds for a function with the facts `other`. Both must come from equal shapes, so
/// that the same index is the same place. Linear, up to a logarithm in the number of regions.
pub(crate) fn meet(kept: &mut [Fact], other: &[Fact]) {
    assert_eq!(kept.len(), other.len(), "facts of different shapes");
    let is_kept = kept_regions(kept, other);
    for (kept, other) in kept.iter_mut().zip(other) {
        match (kept, other) {
            (Fact::Block { cold }, Fact::Block { cold: other }) => *cold &= *other,
            (Fact::Access { flags, region }, Fact::Access { flags: other, region: _ }) => {
                *flags &= *other;
                *region = region.filter(|region| is_kept[region.number as usize]);
            }
            (Fact::Block { .. }, Fact::Access { .. })
            | (Fact::Access { .. }, Fact::Block { .. }) => {
                unreachable!("facts of different shapes")
            }
        }
    }
}

/// Which regions of `kept` are kept, by number.
fn kept_regions(kept: &[Fact], other: &[Fact]) -> Vec<bool> {
    // Nodes are the regions of both sides; number 0 means "no region".
    let kept_count = 1 + largest_number(kept);
    let other_count = 1 + largest_number(other);
    let mut links = UnionFind::new(kept_count + other_count);
    let mut broken = Vec::new();
    let mut partner: Vec<Option<u32>> = alloc::vec![None; kept_count];
    for (kept, other) in kept.iter().zip(other) {
        let (Fact::Access { region: a, .. }, Fact::Access { region: b, .. }) = (kept, other) else {
            continue;
        };
        let (a_number, b_number) = (number(*a), number(*b));
        if a_number == 0 && b_number == 0 {
            continue;
        }
        links.union(a_number, kept_count + b_number);
        let same_id = matches!((a, b), (Some(a), Some(b)) if a.user_id == b.user_id);
        let same_partner = *partner[a_number].get_or_insert(b_number as u32) == b_number as u32;
        if !same_id || !same_partner {
            broken.push(a_number);
        }
    }
    // Two regions of the one side that are one region of the other are linked through it.
    let mut first_of: Vec<Option<usize>> = alloc::vec![None; kept_count + other_count];
    for (a_number, partner) in partner.iter().enumerate().skip(1) {
        if partner.is_some() {
            let root = links.find(a_number);
            match first_of[root] {
                None => first_of[root] = Some(a_number),
                Some(_) => broken.push(a_number),
            }
        }
    }
    let mut root_broken = alloc::vec![false; kept_count + other_count];
    for a_number in broken {
        let root = links.find(a_number);
        root_broken[root] = true;
    }
    (0..kept_count).map(|a_number| !root_broken[links.find(a_number)]).collect()
}

fn number(region: Option<Region>) -> usize {
    region.map_or(0, |region| region.number as usize)
}

fn largest_number(facts: &[Fact]) -> usize {
    let numbers = facts.iter().map(|fact| match fact {
        Fact::Access { flags: _, region } => number(*region),
        Fact::Block { cold: _ } => 0,
    });
    numbers.max().unwrap_or(0)
}

/// Disjoint sets with path halving.
struct UnionFind(Vec<usize>);

impl UnionFind {
    fn new(len: usize) -> Self {
        UnionFind((0..len).collect())
    }

    fn find(&mut self, mut node: usize) -> usize {
        while self.0[node] != node {
            self.0[node] = self.0[self.0[node]];
            node = self.0[node];
        }
        node
    }

    fn union(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        // The smaller index as root, so that the result does not depend on the order.
        self.0[a.max(b)] = a.min(b);
    }
}

/// Whether every fact of `kept` is also a fact of a function with the facts `other`.
///
/// For regions: regions that `kept` distinguishes must be distinct in `other`, and a place that keeps its region
/// must have that very region in `other`.
pub(crate) fn facts_allow(kept: &[Fact], other: &[Fact]) -> bool {
    if kept.len() != other.len() {
        return false;
    }
    // The region of `kept`, or none, at each region of `other`: at most one.
    let mut kept_at: BTreeMap<Region, Option<Region>> = BTreeMap::new();
    kept.iter().zip(other).all(|facts| match facts {
        (Fact::Block { cold }, Fact::Block { cold: other }) => !cold || *other,
        (
            Fact::Access { flags, region },
            Fact::Access { flags: other_flags, region: other_region },
        ) => {
            let told_apart = match other_region {
                Some(other) => *kept_at.entry(*other).or_insert(*region) == *region,
                None => region.is_none(),
            };
            let same_id = match (region, other_region) {
                (Some(region), Some(other)) => region.user_id == other.user_id,
                (Some(_), None) => false,
                (None, _) => true,
            };
            flags & !other_flags == 0 && told_apart && same_id
        }
        (Fact::Block { .. }, Fact::Access { .. }) | (Fact::Access { .. }, Fact::Block { .. }) => {
            false
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accesses(regions: &[Option<(u32, u32)>]) -> Vec<Fact> {
        let region = |&(number, user_id): &(u32, u32)| Region { number, user_id };
        regions.iter().map(|r| Fact::Access { flags: 7, region: r.as_ref().map(region) }).collect()
    }

    #[track_caller]
    fn check(
        kept: &[Option<(u32, u32)>],
        other: &[Option<(u32, u32)>],
        expected: &[Option<(u32, u32)>],
    ) {
        let mut facts = accesses(kept);
        meet(&mut facts, &accesses(other));
        assert_eq!(facts, accesses(expected));
    }

    const A: Option<(u32, u32)> = Some((1, 10));
    const B: Option<(u32, u32)> = Some((2, 20));

    #[test]
    fn equal_regions_are_kept() {
        check(&[A, B, A, None], &[A, B, A, None], &[A, B, A, None]);
    }

    #[test]
    fn the_number_of_a_region_does_not_matter() {
        check(&[A, B], &[Some((2, 10)), Some((1, 20))], &[A, B]);
    }

    #[test]
    fn a_region_lost_at_one_access_is_lost_at_all() {
        // The load at 0 aliases the store at 1 in the second function: if only the load lost its region, Cranelift
        // would assume that it does not.
        check(&[A, A], &[None, A], &[None, None]);
        check(&[None, A], &[A, A], &[None, None]);
    }

    #[test]
    fn two_regions_that_are_one_elsewhere_are_lost() {
        check(&[A, B], &[A, A], &[None, None]);
        check(&[A, A], &[A, B], &[None, None]);
    }

    #[test]
    fn loss_spreads_over_linked_regions_only() {
        let c = Some((3, 30));
        check(&[A, B, B, c], &[A, A, B, c], &[None, None, None, c]);
    }

    #[test]
    fn two_regions_of_one_id_are_not_confused() {
        // Both sides have two regions with id 10, and the second function does not distinguish them.
        check(&[A, Some((2, 10))], &[A, A], &[None, None]);
    }

    #[test]
    fn flags_and_cold_meet() {
        let mut kept = [
            Fact::Access { flags: Fact::ALIGNED | Fact::READONLY, region: None },
            Fact::Block { cold: true },
            Fact::Block { cold: true },
        ];
        meet(
            &mut kept,
            &[
                Fact::Access { flags: Fact::ALIGNED | Fact::CAN_MOVE, region: None },
                Fact::Block { cold: true },
                Fact::Block { cold: false },
            ],
        );
        assert_eq!(
            kept,
            [
                Fact::Access { flags: Fact::ALIGNED, region: None },
                Fact::Block { cold: true },
                Fact::Block { cold: false },
            ]
        );
    }
}
