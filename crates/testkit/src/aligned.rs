//! Bodies of functions that differ in few instructions: which ones they are in a plan, so that
//! tests can demand that there are some, and plans in which they are wrong.
//!
//! [`exchanges`] makes wrong plans of a right one: a function passes what another one passes, or a
//! body takes the other way where its functions differ. Such a plan may be right nevertheless:
//! different code may behave equally. So [`check_exchange`] has a host run what the checker
//! accepts. It does *not* demand that the checker accepts anything.

use crate::differential::{Comparison, Effort, Host};
use crate::program::{Parts, Program};
use cranelift_codegen::ir::{Function, Inst, InstructionData, Opcode, Value};
use cranelift_mergefunc::explain::Encoding;
use cranelift_mergefunc::internals::{passing, with_body};
use cranelift_mergefunc::{Compare, ExtraArgument, FunctionIndex, Options, Plan};
use std::collections::BTreeSet;

/// A parameterised body that takes the place of functions of different shapes.
#[derive(Clone, Debug)]
pub struct Aligned {
    /// The body.
    pub body: FunctionIndex,
    /// The functions of the unit that it replaces, two or more.
    pub members: Vec<FunctionIndex>,
}

/// The parameterised bodies that take the place of functions of different shapes. Functions of one
/// shape differ in constants and references only, and need no branches.
pub fn bodies(unit: &Parts<'_>, plan: &Plan) -> Vec<Aligned> {
    let options = Options {
        compare: Compare { every_function: true, ..Compare::default() },
        ..*unit.options
    };
    let shape = |function: &FunctionIndex| {
        let member = &unit.functions[function.as_u32() as usize];
        let encoding = Encoding::of(&member.body, &options)?;
        let [shape, _, _] = encoding.key().map(<[u8]>::to_vec);
        Some(shape)
    };
    let mut bodies = Vec::new();
    for new in plan.new_bodies().iter().filter(|new| new.copy_of().is_none()) {
        let own = |function: &FunctionIndex| (function.as_u32() as usize) < unit.functions.len();
        let members: Vec<FunctionIndex> = new.members().iter().copied().filter(own).collect();
        let shapes: BTreeSet<_> = members.iter().filter_map(shape).collect();
        if shapes.len() > 1 {
            bodies.push(Aligned { body: new.function(), members });
        }
    }
    bodies
}

/// A plan that is wrong unless different functions behave equally.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The exchanged part.
    pub what: String,
    /// The plan.
    pub plan: Plan,
}

/// The plans that a plan becomes by one exchange in an aligned body: of all extra arguments of two
/// functions, of one of them, of two arms, or of what a selector chooses between.
pub fn exchanges(unit: &Parts<'_>, plan: &Plan) -> Vec<Exchange> {
    let mut exchanges = Vec::new();
    for Aligned { body, members } in bodies(unit, plan) {
        for (at, &one) in members.iter().enumerate() {
            for &other in &members[..at] {
                of_arguments(plan, [one, other], &mut exchanges);
            }
        }
        let new = plan.new_body(body).expect("of the plan").body();
        for (what, changed) in other_ways(unit, plan, &members, new) {
            let what = format!("{what} in {}", plan.entry(body).symbol());
            exchanges.push(Exchange { what, plan: with_body(plan.clone(), body, changed) });
        }
    }
    exchanges
}

/// Panics if the checker accepts an exchange after which the unit does something else. Returns
/// whether it refuses it.
#[track_caller]
pub fn check_exchange(
    unit: &Parts<'_>,
    Exchange { what, plan }: &Exchange,
    seed: u64,
    host: &mut Host<'_>,
) -> bool {
    if unit.prove(plan).is_err() {
        return true;
    }
    let programs = [Program::unmerged(unit), Program::merged(unit, plan)];
    let effort = Effort { inputs: 12, ..Effort::default() };
    if let Err(difference) = Comparison::of(programs, seed, effort).run(host) {
        panic!("the checker accepts an exchange of {what}\n{difference}");
    }
    false
}

/// Exchanges what two functions pass to their body.
fn of_arguments(plan: &Plan, functions: [FunctionIndex; 2], exchanges: &mut Vec<Exchange>) {
    let [a, b] = functions.map(|function| plan.entry(function).extra_arguments().to_vec());
    let types = |arguments: &[ExtraArgument]| -> Vec<_> {
        arguments.iter().map(ExtraArgument::ty).collect()
    };
    // Those of functions of different signatures are not at the same places.
    if a == b || types(&a) != types(&b) {
        return;
    }
    let mut exchange = |what: String, [x, y]: [Vec<ExtraArgument>; 2]| {
        let symbols = functions.map(|function| plan.entry(function).symbol());
        let what = format!("{what} of {} and {}", symbols[0], symbols[1]);
        let plan = passing(passing(plan.clone(), functions[0], x), functions[1], y);
        exchanges.push(Exchange { what, plan });
    };
    let differing: Vec<usize> = (0..a.len()).filter(|&at| a[at] != b[at]).collect();
    if differing.len() > 1 {
        exchange("all extra arguments".into(), [b.clone(), a.clone()]);
    }
    for at in differing {
        let (mut x, mut y) = (a.clone(), b.clone());
        std::mem::swap(&mut x[at], &mut y[at]);
        exchange(format!("extra argument {at}"), [x, y]);
    }
}

/// The bodies in which one branch, or one choice, by an extra argument goes the other way.
fn other_ways(
    unit: &Parts<'_>,
    plan: &Plan,
    members: &[FunctionIndex],
    body: &Function,
) -> Vec<(String, Function)> {
    // A type that no function has as a parameter of its own.
    let extra = members.iter().map(|&member| {
        let own = unit.functions[member.as_u32() as usize].body.signature.params.len();
        assert_eq!(own + plan.entry(member).extra_arguments().len(), body.signature.params.len());
        own
    });
    let first = extra.max().expect("two or more");
    let entry = body.layout.entry_block().expect("has a body");
    let extra: Vec<Value> = body.dfg.block_params(entry)[first..].to_vec();
    let by_extra = |value: Value| extra.contains(&body.dfg.resolve_aliases(value));
    let insts = body.layout.blocks().flat_map(|block| body.layout.block_insts(block));
    let mut others = Vec::new();
    for inst in insts {
        let mut data = body.dfg.insts[inst];
        let what = match &mut data {
            InstructionData::Brif { opcode: _, arg, blocks } if by_extra(*arg) => {
                blocks.swap(0, 1);
                "the arms"
            }
            InstructionData::Ternary { opcode: Opcode::Select, args }
                if by_extra(args[0]) && args[1] != args[2] =>
            {
                args.swap(1, 2);
                "the choices"
            }
            _ => continue,
        };
        let mut other = body.clone();
        other.dfg.insts[inst] = data;
        others.push((format!("{what} of `{}`", shown(body, inst)), other));
    }
    others
}

fn shown(func: &Function, inst: Inst) -> String {
    func.dfg.display_inst(inst).to_string()
}
