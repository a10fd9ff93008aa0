//! A function with another meaning, by one change.
//!
//! [`runnable`] makes changes (`changes`) after which the function still keeps to the conventions;
//! [`any`] takes one from `mutate`, which changes every format and field, and what comes out need
//! only pass the verifier.

use crate::generate::changes::{self, Change, Kind};
use crate::generate::draw::Draw;
use crate::generate::function::Seed;
use crate::generate::opcodes::{Machine, Operation};
use crate::mutate;
use cranelift_codegen::ir::{Block, Function, Inst, Opcode, StackSlotData, StackSlotKind, Value};
use cranelift_codegen::verify_function;
use std::collections::BTreeSet;

/// A changed function.
#[derive(Clone, Debug)]
pub struct NearMiss {
    /// The instruction and the change.
    pub what: String,
    /// The changed function.
    pub func: Function,
    /// Whether it certainly has another meaning. If not, it may be the same function after all: the
    /// change may exchange equal things.
    pub certain: bool,
    /// The only instruction that differs, if the others are where they were.
    pub site: Option<Inst>,
}

/// The part of a seed in which a change changes the meaning: all of it, unless a branch depends on
/// nothing; then what comes before the first branch.
fn code(seed: &Seed) -> Vec<(Block, Inst)> {
    let func = &seed.func;
    let blocks = func.layout.blocks().take(if seed.properties.folds { 1 } else { usize::MAX });
    let insts = blocks.flat_map(|block| func.layout.block_insts(block).map(move |i| (block, i)));
    insts
        .filter(|&(_, inst)| {
            !(seed.properties.folds && func.dfg.insts[inst].opcode().is_terminator())
        })
        .collect()
}

/// A change after which the function still keeps to the conventions. Every kind of change is
/// as likely as any other, but for those that are hardly ever possible, which are more likely if
/// they are; and most are made where they are seen.
pub fn runnable(draw: &mut Draw<'_, '_>, seed: &Seed, machine: Machine) -> NearMiss {
    let code = code(seed);
    let observed = observed(&seed.func);
    let mut kinds = Kind::ALL.to_vec();
    draw.rng().shuffle(&mut kinds);
    if draw.one_in(2) {
        kinds.sort_by_key(|kind| kind.is_common());
    }
    for kind in kinds {
        // A later instruction is reached less often.
        let at = if code.is_empty() { continue } else { draw.below(code.len()) };
        let (first, second) = code.split_at(at.min(draw.below(code.len())));
        let mut sites: Vec<_> = second.iter().chain(first).copied().collect();
        sites.sort_by_key(|&(_, inst)| !is_observed(&seed.func, inst, &observed));
        for (block, inst) in sites {
            let Some(change) = changes::change(draw, seed, kind, block, inst) else { continue };
            let Change { what, func, certain, local } = change;
            if is_compiled(&func, inst, machine) {
                let what = format!("{what} of `{}`", seed.func.dfg.display_inst(inst));
                let site = (certain && local).then_some(inst);
                return NearMiss { what, func, certain, site };
            }
        }
    }
    let mut func = seed.func.clone();
    func.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 8, 3));
    NearMiss { what: "an unused slot".into(), func, certain: true, site: None }
}

/// Values that are stored, passed, returned or branched on, extended or not.
fn observed(func: &Function) -> BTreeSet<Value> {
    let insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
    let mut observed = BTreeSet::new();
    for inst in insts {
        let opcode = func.dfg.insts[inst].opcode();
        let sees = opcode.can_store() || opcode.is_call() || opcode.is_terminator();
        if sees || opcode == Opcode::Uextend {
            observed.extend(func.dfg.inst_values(inst));
        }
    }
    observed
}

/// Whether an instruction makes such a value, or is there for its effect.
fn is_observed(func: &Function, inst: Inst, observed: &BTreeSet<Value>) -> bool {
    let results = func.dfg.inst_results(inst);
    results.is_empty() || results.iter().any(|result| observed.contains(result))
}

/// Whether the verifier accepts the function, and the back end knows the changed operation and
/// those that take its result.
pub(super) fn is_compiled(func: &Function, changed: Inst, machine: Machine) -> bool {
    let operations = machine.operations();
    let results: Vec<Value> = func
        .dfg
        .inst_results(changed)
        .iter()
        .map(|&value| func.dfg.resolve_aliases(value))
        .collect();
    let uses = |inst: Inst| {
        let mut args = func.dfg.inst_args(inst).iter();
        args.any(|&arg| results.contains(&func.dfg.resolve_aliases(arg)))
    };
    let mut insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
    let known = insts.all(|inst| {
        (inst != changed && !uses(inst))
            || Operation::of(func, inst).is_none_or(|operation| operations.contains(&operation))
    });
    known && verify_function(func, machine.verifier()).is_ok()
}

/// Any change that passes the verifier, if one is found.
pub fn any(draw: &mut Draw<'_, '_>, seed: &Seed, machine: Machine) -> Option<NearMiss> {
    let code = code(seed);
    let (block, inst) = draw.choose(&code);
    let mutants = match draw.one_in(6) && !seed.properties.folds {
        true => mutate::function::function_mutants(&seed.func),
        false => mutate::mutants_of(&seed.func, block, inst),
    };
    let isa = machine.verifier();
    for _ in 0..4 {
        if mutants.is_empty() {
            break;
        }
        let mutant = &mutants[draw.below(mutants.len())];
        let mutate::Mutant { what, func } = mutant;
        // Which functions are equal is known to the unit only.
        if what.contains("callee ") || what.contains("symbol") {
            continue;
        }
        if !is_sound(func, inst) {
            continue;
        }
        if verify_function(func, isa).is_ok() {
            let certain = mutant.is_certain();
            // A change of something other than the instruction itself changes no other instruction.
            let of = what.ends_with(&format!("of `{}`", seed.func.dfg.display_inst(inst)));
            // A place without an operation does not count: two changes there can be one.
            let nop = [&seed.func, func].map(|func| func.dfg.insts[inst].opcode() == Opcode::Nop);
            let site = (certain && of && nop == [false; 2]).then_some(inst);
            return Some(NearMiss { what: what.clone(), func: func.clone(), certain, site });
        }
    }
    None
}

/// Whether every opcode exists for its types, and an indirect call has a callee. The verifier
/// panics where that is not so.
fn is_sound(func: &Function, changed: Inst) -> bool {
    let opcode = func.dfg.insts[changed].opcode();
    let indirect = matches!(
        opcode,
        Opcode::CallIndirect | Opcode::ReturnCallIndirect | Opcode::TryCallIndirect
    );
    let results = func.dfg.inst_results(changed).len();
    if indirect && func.dfg.inst_args(changed).is_empty()
        || !opcode.is_call() && results != opcode.constraints().num_fixed_results()
    {
        return false;
    }
    let mut insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
    insts.all(|inst| {
        let set = func.dfg.insts[inst].opcode().constraints().ctrl_typeset();
        set.is_none_or(|set| set.contains(func.dfg.ctrl_typevar(inst)))
    })
}
