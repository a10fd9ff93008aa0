//! Which kept function resembles which other one.
//!
//! Functions that differ only in constants and callees, or that are equal, are known from the plan.
//! Of the others, with equal signatures, those resemble each other that begin with the same
//! opcodes: sorted by the sequences of their opcodes, the one with the longest common beginning is
//! next to a function. Functions that are equal but for their beginnings are *not* found; `why`
//! compares one function with all.

use super::Planned;
use cranelift_codegen::ir::Function;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::{
    Disposition, FunctionIndex, Plan, Reason, SimilarSet, cranelift_codegen,
};
use std::collections::HashMap;

/// Functions resemble each other if they have this share of the opcodes of the longer one in
/// common, in percent.
const COMMON: usize = 50;

/// The function that another one resembles.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// It.
    pub other: FunctionIndex,
    /// In how many constants or callees the functions of their set differ, if in nothing else.
    pub parameters: Option<usize>,
    /// If all that is known is that the two begin with the same opcodes: how many of those of the
    /// longer one, in percent.
    pub common: Option<usize>,
    /// How much it takes to compare the two, in instructions.
    pub weight: usize,
}

/// Which function resembles which other one.
#[derive(Debug)]
pub struct Resembling(HashMap<FunctionIndex, Pair>);

impl Resembling {
    /// For each function of the unit that was kept, if there is one.
    pub fn of(planned: &Planned<'_>) -> Resembling {
        let Planned { unit, plan, .. } = planned;
        let bodies = &unit.functions[..];
        let mut pairs = HashMap::new();
        let mut add = |function: FunctionIndex, other: FunctionIndex, parameters, common| {
            let weight =
                [function, other].map(|at| bodies[at.index()].dfg.num_insts()).iter().sum();
            pairs.entry(function).or_insert(Pair { other, parameters, common, weight });
        };
        let kept: Vec<FunctionIndex> = (0..bodies.len())
            .map(FunctionIndex::new)
            .filter(|&function| compared(plan, function))
            .collect();
        for (function, other) in equal(plan, &kept) {
            add(function, other, None, None);
        }
        for SimilarSet { members, parameters, has_selector: _, body, saved: _ } in
            plan.similar_sets()
        {
            let left = |function: &&FunctionIndex| {
                function.index() < bodies.len() && compared(plan, **function)
            };
            let left: Vec<FunctionIndex> = members.iter().filter(left).copied().collect();
            if let (None, [first, second, ..]) = (body, &left[..]) {
                for &function in &left {
                    let other = if function == *first { *second } else { *first };
                    add(function, other, Some(*parameters), None);
                }
            }
        }
        for (function, other, common) in same_beginning(bodies, &kept) {
            add(function, other, None, Some(common));
        }
        Resembling(pairs)
    }

    /// The function that one resembles.
    pub fn get(&self, function: FunctionIndex) -> Option<Pair> {
        self.0.get(&function).copied()
    }
}

/// Whether a function is kept, and not because it replaces others.
fn compared(plan: &Plan, function: FunctionIndex) -> bool {
    let entry = plan.entry(function);
    let replaces = matches!(entry.reason(), Reason::Representative | Reason::ParameterisedBody);
    entry.disposition() == Disposition::Keep && !replaces && entry.reason() != Reason::Malformed
}

/// Functions of one class, each with the first other one of its class, merged or not.
fn equal(plan: &Plan, kept: &[FunctionIndex]) -> Vec<(FunctionIndex, FunctionIndex)> {
    let mut classes: HashMap<u32, [Option<FunctionIndex>; 2]> = HashMap::new();
    for (function, entry) in plan.entries().take(plan.added()) {
        let [first, second] = classes.entry(entry.class()).or_default();
        match first {
            None => *first = Some(function),
            Some(_) => *second = second.or(Some(function)),
        }
    }
    let other = |&function: &FunctionIndex| {
        let two = classes[&plan.entry(function).class()];
        let other = two.into_iter().flatten().find(|&other| other != function)?;
        Some((function, other))
    };
    kept.iter().filter_map(other).collect()
}

/// A function, its signature as text and its opcodes.
type Sortable = (String, Vec<u8>, FunctionIndex);

/// Functions of equal signatures that begin with the same opcodes, each with the one with which it
/// has the longest beginning in common, and how much of the longer one that is, in percent.
fn same_beginning(
    bodies: &[Function],
    kept: &[FunctionIndex],
) -> Vec<(FunctionIndex, FunctionIndex, usize)> {
    let mut sorted: Vec<Sortable> = kept
        .iter()
        .map(|&function| {
            let func = &bodies[function.index()];
            (func.signature.to_string(), opcodes(func), function)
        })
        .collect();
    sorted.sort_unstable();
    let common = |one: &Sortable, other: &Sortable| {
        let ((a_signature, a, _), (b_signature, b, _)) = (one, other);
        let equal = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        let percent = equal * 100 / a.len().max(b.len());
        (a_signature == b_signature && percent >= COMMON).then_some(percent)
    };
    let mut pairs = Vec::new();
    for (at, one) in sorted.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| sorted.get(at));
        let neighbours = [before, sorted.get(at + 1)].into_iter().flatten();
        let best = neighbours.filter_map(|other| Some((common(one, other)?, other.2)));
        let best = best.max_by_key(|&(percent, _)| percent);
        pairs.extend(best.map(|(percent, other)| (one.2, other, percent)));
    }
    pairs
}

/// The opcodes of a function in the order of its text, with marks between blocks.
fn opcodes(func: &Function) -> Vec<u8> {
    let mut all = Vec::with_capacity(func.dfg.num_insts());
    for block in func.layout.blocks() {
        all.extend(func.layout.block_insts(block).map(|inst| func.dfg.insts[inst].opcode() as u8));
        all.push(0);
    }
    all
}
