//! The part of a report about families: functions that the source writes once, such as all
//! instances of a generic function. And about near misses: functions that share no body because it
//! would save too little.
//!
//! Names of the source define families; nothing depends on them.

use crate::decisions::Decision;
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

/// Functions that share no body, although one body for all of them would save bytes: too few for
/// the policy.
#[derive(Debug, Serialize)]
pub struct NearMiss {
    /// The name of the first one, as `why` takes it.
    pub function: String,
    /// Its name in the source, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_name: Option<String>,
    /// See [`Decision::relation`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relation: Option<String>,
    /// See [`Decision::label`].
    #[serde(skip)]
    pub label: Option<String>,
    /// How many functions these are.
    pub functions: usize,
    /// The functions.
    #[serde(skip)]
    pub members: Vec<FunctionIndex>,
    /// How many extra arguments the body would receive: for constants and callees in which the
    /// functions differ, and for where it branches.
    pub parameters: usize,
    /// In what they differ.
    pub differ_in: DifferIn,
    /// Bytes of code of all of them.
    pub bytes: u64,
    /// Bytes that one body for all would save.
    pub would_save: i64,
}

/// In what functions differ that could share a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DifferIn {
    /// Constants, callees and other references, and nothing else.
    Operands,
    /// Instructions as well.
    Instructions,
}

impl NearMiss {
    /// In what the functions differ.
    pub fn difference(&self) -> String {
        match (self.differ_in, self.parameters) {
            (DifferIn::Operands, 1) => "1 constant or callee".to_owned(),
            (DifferIn::Operands, count) => format!("{count} constants or callees"),
            (DifferIn::Instructions, _) => "a few instructions".to_owned(),
        }
    }
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

/// The functions that share no body although one would save bytes, those first where it would save
/// most.
pub fn near_misses(plan: &Plan, decisions: &[Decision], rows: usize) -> Vec<NearMiss> {
    let is_kept = |&at: &FunctionIndex| {
        at.index() < plan.added() && plan.entry(at).disposition() == Disposition::Keep
    };
    let mut misses: Vec<NearMiss> = Vec::new();
    for set in plan.similar_sets() {
        let SimilarSet { members, parameters, has_selector, body, saved } = set;
        // The prediction is of all members.
        let (None, Some(would_save @ 1..), true) = (body, *saved, members.iter().all(is_kept))
        else {
            continue;
        };
        let first = &decisions[members[0].index()];
        let differ_in = if *has_selector { DifferIn::Instructions } else { DifferIn::Operands };
        misses.push(NearMiss {
            function: first.name.clone(),
            source_name: first.source_name.clone(),
            relation: first.relation.clone(),
            label: first.label().map(str::to_owned),
            functions: members.len(),
            members: members.clone(),
            parameters: *parameters,
            differ_in,
            bytes: members.iter().map(|at| decisions[at.index()].bytes_before).sum(),
            would_save,
        });
    }
    misses.sort_by_key(|miss| std::cmp::Reverse(miss.would_save));
    // Each function is in one of them: a function that was tried with several others would be in
    // many.
    let mut listed = HashSet::new();
    misses.retain(|miss| {
        let is_new = miss.members.iter().all(|member| !listed.contains(member));
        listed.extend(miss.members.iter().copied().filter(|_| is_new));
        is_new
    });
    misses.truncate(rows);
    misses
}
