//! The digests under which functions are emitted.
//!
//! A digest is a BLAKE3 hash of all that determines what a function does and its code: the encoding
//! of the function with its facts and alignment, how its tables are laid out, target, settings and
//! versions, and what it refers to: functions that are content-addressed themselves by their
//! digests, everything else by the name that linkers know. Functions that refer to each other in a
//! cycle have digests of the whole cycle. So functions of different units have one digest exactly
//! if their code and all code that it can reach by such references is equal, wherever these units
//! were compiled. (An attacker who wants a wrong merge must find two inputs with the same 256
//! bits.)
//!
//! This module knows candidates by number; it does *not* decide which are content-addressed.

use crate::canon::{ContentDigest, Digest};
use crate::congruence::components;
use crate::corpus::Kind;
use alloc::string::String;
use alloc::vec::Vec;
use blake3::Hasher;

/// The target of a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The candidate of this number.
    Content(u32),
    /// A symbol that means the same in all units.
    Name(String),
}

/// The input of the digest of a candidate.
pub(crate) struct Contents {
    /// Of the function itself, but for what it refers to.
    pub own: Digest,
    /// In the order of the walk.
    pub references: Vec<(Kind, Target)>,
}

/// The digests of candidates, which refer to each other by their numbers. Linear in the number of
/// references, for cycles times the number of rounds until the partition of their functions is
/// stable.
pub(crate) fn digests(candidates: &[Contents]) -> Vec<ContentDigest> {
    let targets = |at: usize| {
        candidates[at].references.iter().filter_map(|(_, target)| match target {
            Target::Content(to) => Some(*to),
            Target::Name(_) => None,
        })
    };
    let components = components(candidates.len(), targets);
    let mut digests = alloc::vec![ContentDigest::default(); candidates.len()];
    // The number of the component of each candidate whose digest is known.
    let mut known = alloc::vec![false; candidates.len()];
    for at in 0..components.len() {
        let members = components.get(at);
        let own: Vec<Digest> = members
            .iter()
            .map(|&member| of_one(&candidates[member as usize], &digests, &known))
            .collect();
        let is_cycle = members.len() > 1 || targets(members[0] as usize).any(|to| to == members[0]);
        let of_members = match is_cycle {
            false => own,
            true => of_cycle(candidates, members, &own, &known),
        };
        for (&member, digest) in members.iter().zip(of_members) {
            digests[member as usize] = ContentDigest::new(digest);
            known[member as usize] = true;
        }
    }
    digests
}

/// A digest of a candidate and all that it refers to beyond its cycle.
fn of_one(contents: &Contents, digests: &[ContentDigest], known: &[bool]) -> Digest {
    let Contents { own, references } = contents;
    let mut hasher = Hasher::new();
    hasher.update(own).update(&(references.len() as u64).to_le_bytes());
    for (kind, target) in references {
        hasher.update(&[*kind as u8]);
        match target {
            Target::Content(to) if known[*to as usize] => {
                hasher.update(&[0]).update(digests[*to as usize].as_bytes());
            }
            // In its cycle.
            Target::Content(_) => {
                hasher.update(&[1]);
            }
            Target::Name(name) => {
                hasher.update(&[2]).update(&(name.len() as u64).to_le_bytes());
                hasher.update(name.as_bytes());
            }
        }
    }
    *hasher.finalize().as_bytes()
}

/// The digests of the members of a cycle.
///
/// Members are partitioned by their own digest, then by the digests of their references within the
/// cycle, until the partition is stable (Moore's algorithm for finite automata, 1956, on digests).
/// Equal members count once, so that it does not matter how often a cycle was written out. The
/// final digest of a member is that of its own digest and of all pairs of a digest and the next
/// one: these describe the whole cycle, up to the numbers of its functions.
fn of_cycle(
    candidates: &[Contents],
    members: &[u32],
    own: &[Digest],
    known: &[bool],
) -> Vec<Digest> {
    let mut sorted: Vec<(u32, usize)> =
        members.iter().enumerate().map(|(at, &member)| (member, at)).collect();
    sorted.sort_unstable();
    let place = |to: u32| {
        let at = sorted.binary_search_by_key(&to, |&(member, _)| member);
        sorted[at.expect("a member of the cycle")].1
    };
    let within: Vec<Vec<usize>> = members
        .iter()
        .map(|&member| {
            let references = candidates[member as usize].references.iter();
            let targets = references.filter_map(|(_, target)| match target {
                Target::Content(to) if !known[*to as usize] => Some(place(*to)),
                Target::Content(_) | Target::Name(_) => None,
            });
            targets.collect()
        })
        .collect();
    let mut digests = own.to_vec();
    let mut told_apart = distinct(digests.clone());
    loop {
        let next: Vec<Digest> = own
            .iter()
            .zip(&within)
            .map(|(own, targets)| {
                let mut hasher = Hasher::new();
                hasher.update(own);
                targets.iter().for_each(|&to| {
                    hasher.update(&digests[to]);
                });
                *hasher.finalize().as_bytes()
            })
            .collect();
        let count = distinct(next.clone());
        if count == told_apart {
            let mut pairs: Vec<(Digest, Digest)> =
                digests.iter().copied().zip(next.iter().copied()).collect();
            pairs.sort_unstable();
            pairs.dedup();
            let mut hasher = Hasher::new();
            for (digest, next) in &pairs {
                hasher.update(digest).update(next);
            }
            let cycle = hasher.finalize();
            let of_member = |digest: &Digest| {
                let mut hasher = Hasher::new();
                *hasher.update(cycle.as_bytes()).update(digest).finalize().as_bytes()
            };
            return digests.iter().map(of_member).collect();
        }
        (digests, told_apart) = (next, count);
    }
}

/// How many of some digests differ.
fn distinct(mut digests: Vec<Digest>) -> usize {
    digests.sort_unstable();
    digests.dedup();
    digests.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(own: u8, references: &[u32]) -> Contents {
        let references = references.iter().map(|&to| (Kind::Call, Target::Content(to)));
        Contents { own: [own; 32], references: references.collect() }
    }

    #[test]
    fn a_digest_depends_on_all_that_is_reached() {
        let chain =
            |last: u8| digests(&[contents(1, &[1]), contents(2, &[2]), contents(last, &[])]);
        let (a, b) = (chain(3), chain(4));
        assert!((0..3).all(|at| a[at] != b[at]));
        assert_eq!(a, chain(3));
    }

    #[test]
    fn a_digest_does_not_depend_on_numbers() {
        let forwards = digests(&[contents(1, &[1]), contents(2, &[])]);
        let backwards = digests(&[contents(2, &[]), contents(1, &[0])]);
        assert_eq!((forwards[0], forwards[1]), (backwards[1], backwards[0]));
    }

    #[test]
    fn a_cycle_has_one_digest_however_often_it_is_written_out() {
        let once = digests(&[contents(1, &[1]), contents(2, &[0])]);
        let twice =
            digests(&[contents(1, &[1]), contents(2, &[2]), contents(1, &[3]), contents(2, &[0])]);
        assert_eq!([once[0], once[1], once[0], once[1]], *twice);
        let own = digests(&[contents(1, &[0])]);
        assert_eq!(digests(&[contents(1, &[1]), contents(1, &[0])]), [own[0], own[0]]);
    }

    #[test]
    fn cycles_that_differ_far_away_have_different_digests() {
        // One differs in its last function: all digests of the cycle do.
        let cycle = |last: u8| -> Vec<Contents> {
            let mut functions: Vec<Contents> = (0..8).map(|at| contents(0, &[at + 1])).collect();
            functions.push(contents(last, &[0]));
            functions
        };
        let (a, b) = (digests(&cycle(1)), digests(&cycle(2)));
        assert!(a.iter().all(|digest| !b.contains(digest)));
        let mut all = a.clone();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 9);
        // One is longer.
        let mut longer: Vec<Contents> = (0..9).map(|at| contents(0, &[at + 1])).collect();
        longer.push(contents(1, &[0]));
        assert!(digests(&longer).iter().all(|digest| !a.contains(digest)));
    }

    #[test]
    fn what_a_reference_is_for_matters() {
        let of = |kind: Kind, target: &Target| {
            digests(&[Contents { own: [0; 32], references: alloc::vec![(kind, target.clone())] }])
                [0]
        };
        let name = Target::Name("f".into());
        let all = [
            of(Kind::Call, &name),
            of(Kind::Address, &name),
            of(Kind::Inside, &name),
            of(Kind::Call, &Target::Name("g".into())),
            of(Kind::Call, &Target::Content(0)),
        ];
        let mut different = all.to_vec();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), all.len());
    }
}
