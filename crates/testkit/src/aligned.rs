//! Which bodies of a plan are those of functions that differ in few instructions, so that tests can demand that there are
//! some.

use crate::program::Parts;
use cranelift_mergefunc::{Encoding, FunctionIndex, Options, Plan, Prebucket};
use std::collections::BTreeSet;

/// The parameterised bodies that take the place of functions of different shapes, each with such functions, two or
/// more. Functions of one shape differ in constants and references only, and need no branches.
pub fn bodies(unit: &Parts<'_>, plan: &Plan) -> Vec<(FunctionIndex, Vec<FunctionIndex>)> {
    let options = Options { prebucket: Prebucket::WalkAll, ..*unit.options };
    let shape = |function: &FunctionIndex| {
        let member = unit.functions.get(function.as_u32() as usize)?;
        let encoding = Encoding::of(&member.body, &options)?;
        let [shape, _, _] = encoding.key().map(<[u8]>::to_vec);
        Some(shape)
    };
    let mut bodies = Vec::new();
    for new in plan.new_bodies().iter().filter(|new| new.copy_of().is_none()) {
        let is_member = |entry: &(FunctionIndex, _)| entry.0.as_u32() < plan.added() as u32;
        let members: Vec<FunctionIndex> = plan
            .entries()
            .map(|(function, entry)| (function, entry.disposition().representative()))
            .filter(|entry| is_member(entry) && entry.1 == Some(new.function()))
            .map(|(function, _)| function)
            .collect();
        let shapes: BTreeSet<_> = members.iter().filter_map(shape).collect();
        if shapes.len() > 1 {
            bodies.push((new.function(), members));
        }
    }
    bodies
}
