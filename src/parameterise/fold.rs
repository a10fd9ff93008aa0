//! Whether knowing a constant could let the back end leave out code.
//!
//! A parameterised body can be larger than its functions: what follows from a constant is computed when the
//! function is compiled. That cannot happen where a constant is only passed on, stored, compared with an unknown
//! value or added to one. Then the size of the body gives a lower bound for the size of the functions, and none of
//! them need be compiled. This module answers only that question; it errs towards "it could".

use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, Inst, InstructionData, Opcode, Value};
use cranelift_entity::SecondaryMap;

/// How many bytes smaller a function can be if it knows the values that `func`, which is one of the functions,
/// computes at these places. `None` if that is not clear. Linear in the size of `func`.
pub(super) fn known_saves(func: &Function, places: impl Iterator<Item = Inst>) -> Option<i64> {
    let mut known: SecondaryMap<Value, bool> = SecondaryMap::new();
    let mut uses = 0;
    for place in places {
        uses += 1;
        if !func.dfg.insts[place].opcode().is_call() {
            for &result in func.dfg.inst_results(place) {
                known[result] = !matches!(
                    func.dfg.insts[place],
                    InstructionData::Load { .. } | InstructionData::StackAddr { .. }
                );
            }
        }
    }
    let is_known = |value: Value| known[func.dfg.resolve_aliases(value)];
    let mut values: Vec<bool> = Vec::new();
    for block in func.layout.blocks() {
        for inst in func.layout.block_insts(block) {
            values.clear();
            values.extend(func.dfg.inst_values(inst).map(is_known));
            if values.contains(&true) {
                uses += 1;
                if !only_used(func, inst, &values) {
                    return None;
                }
            }
        }
    }
    Some(uses * super::cost::BYTES_PER_USE)
}

/// Whether an instruction compiles to the same code whether or not the marked operands are known.
fn only_used(func: &Function, inst: Inst, known: &[bool]) -> bool {
    let is_constant = |value: Value| {
        let def = func.dfg.value_def(value).inst();
        def.is_some_and(|def| func.dfg.insts[def].opcode() == Opcode::Iconst)
    };
    let data = &func.dfg.insts[inst];
    match data {
        InstructionData::Call { .. }
        | InstructionData::Store { .. }
        | InstructionData::Load { .. }
        | InstructionData::StoreNoOffset { .. }
        | InstructionData::AtomicRmw { .. }
        | InstructionData::AtomicCas { .. } => true,
        InstructionData::CallIndirect { .. } => !known[0],
        InstructionData::MultiAry { opcode: Opcode::Return, args: _ } => true,
        InstructionData::Binary { opcode: Opcode::Iadd, args }
        | InstructionData::IntCompare { opcode: _, args, cond: _ } => {
            // With no other known operand it stays an addition or a comparison.
            !args.iter().zip(known).all(|(&arg, &known)| known || is_constant(arg))
        }
        _ => false,
    }
}
