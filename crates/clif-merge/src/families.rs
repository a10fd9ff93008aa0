//! The part of a report about families: functions that the source writes once, such as all
//! instances of a generic function. And about near misses: functions that could share a body, and
//! do not.
//!
//! Names of the source define families; nothing depends on them.

use crate::decisions::{Decision, by_name};
use crate::measure::Sizes;
use crate::report::new_body_for;
use clif_unit::names::{Names, family};
use clif_unit::unit::Unit;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::{Disposition, FunctionIndex, Plan, SimilarSet};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};

/// Functions of one family.
#[derive(Debug, Default, Serialize)]
pub struct Family {
    /// Its name, in which `_` is what differs.
    pub name: String,
    /// How many functions it has.
    pub functions: usize,
    /// How many of them gave up their bodies.
    pub merged: usize,
    /// Bytes of their code before merging.
    pub before: u64,
    /// Bytes that merging saves; bodies that are new are counted with the first function that they
    /// are for.
    pub saved: i64,
}

/// Functions that share no body although they differ in little.
#[derive(Debug, Serialize)]
pub struct NearMiss {
    /// The name of the first one, as `why` takes it.
    pub function: String,
    /// Its name in the source, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_name: Option<String>,
    /// How many functions these are.
    pub functions: usize,
    /// The functions.
    #[serde(skip)]
    pub members: Vec<FunctionIndex>,
    /// In how many constants or callees they differ, if in nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<usize>,
    /// The stable id of the rule of their first difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_difference: Option<String>,
    /// Bytes of code of all of them but the largest, or, of two that only begin with the same
    /// opcodes, of as much of the smaller one: what is at stake.
    pub at_stake: u64,
    /// Bytes that one body for all would save, as far as that is known. Negative if it would take
    /// more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_save: Option<i64>,
}

/// The name of a function's family, if the source names the function.
fn family_of(names: &Names, plan: &Plan, function: FunctionIndex) -> Option<String> {
    names.of_source(plan.entry(function).symbol()).map(|name| family(&name))
}

/// The families that save most, the largest first; of equal ones the first by name. Only families
/// of several functions, of which something was merged; functions that the source does not name
/// have none.
pub fn families(unit: &Unit, plan: &Plan, sizes: &Sizes, rows: usize) -> Vec<Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut add = |of: FunctionIndex, function: FunctionIndex, is_own: bool| {
        let Some(name) = family_of(&unit.names, plan, of) else { return };
        let family = families.entry(name).or_default();
        family.saved += sizes.saved(function);
        if is_own {
            family.functions += 1;
            let disposition = plan.entry(function).disposition();
            family.merged += usize::from(disposition != Disposition::Keep);
            family.before += sizes.before.get(function.index()).map_or(0, |&size| u64::from(size));
        }
    };
    let functions = (0..unit.functions.len()).map(FunctionIndex::new);
    functions.for_each(|function| add(function, function, true));
    for new in plan.new_bodies() {
        // A body can be made for others that were new themselves.
        let made_for = |&body: &FunctionIndex| new_body_for(plan, body);
        let all = std::iter::successors(new_body_for(plan, new.function()), made_for);
        if let Some(first) = all.last() {
            add(first, new.function(), false);
        }
    }
    let mut families: Vec<Family> = families
        .into_iter()
        .map(|(name, family)| Family { name, ..family })
        .filter(|family| family.merged > 0 && family.functions > 1)
        .collect();
    families.sort_by_key(|family| std::cmp::Reverse(family.saved));
    families.truncate(rows);
    families
}

/// The functions that share no body although they differ in little, those with most at stake first.
pub fn near_misses(plan: &Plan, decisions: &[Decision], rows: usize) -> Vec<NearMiss> {
    let size = |at: &FunctionIndex| decisions[at.index()].bytes_before;
    let mut misses: Vec<NearMiss> = Vec::new();
    let mut add = |members: Vec<FunctionIndex>, parameters, at_stake, would_save| {
        let first = &decisions[members[0].index()];
        let difference = first.resembles.as_ref().and_then(|resembled| resembled.rule.clone());
        misses.push(NearMiss {
            function: first.name.clone(),
            source_name: first.source_name.clone(),
            functions: members.len(),
            members,
            parameters,
            first_difference: difference,
            at_stake,
            would_save,
        });
    };
    for SimilarSet { members, parameters, has_selector: _, body, saved } in plan.similar_sets() {
        let kept: Vec<FunctionIndex> = members
            .iter()
            .copied()
            .filter(|&at| at.index() < plan.added())
            .filter(|&at| plan.entry(at).disposition() == Disposition::Keep)
            .collect();
        let all: u64 = kept.iter().map(size).sum();
        let largest = kept.iter().map(size).max().unwrap_or(0);
        if body.is_none() && kept.len() > 1 && all > largest {
            add(kept, Some(*parameters), all - largest, *saved);
        }
    }
    let indices = by_name(decisions);
    let other_of = |at: usize| {
        let resembled = decisions[at].resembles.as_ref()?;
        Some((*indices.get(&*resembled.name)?, resembled.common?))
    };
    let pair = |at: usize| {
        let (other, common) = other_of(at)?;
        let pair = [at, other].map(FunctionIndex::new);
        let smaller = pair.iter().map(size).min().unwrap_or(0);
        Some((smaller * common as u64 / 100, pair))
    };
    let mut pairs: Vec<(u64, [FunctionIndex; 2])> = (0..plan.added()).filter_map(pair).collect();
    pairs.sort_by_key(|&(at_stake, _)| std::cmp::Reverse(at_stake));
    // Each function is in one pair at most: of a hundred that resemble each other, not all are
    // listed.
    let mut listed = HashSet::new();
    for (at_stake, pair) in pairs {
        if at_stake > 0 && pair.iter().all(|function| !listed.contains(function)) {
            listed.extend(pair);
            add(pair.to_vec(), None, at_stake, None);
        }
    }
    misses.sort_by_key(|miss| std::cmp::Reverse(miss.at_stake));
    misses.truncate(rows);
    misses
}
