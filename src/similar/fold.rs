//! Whether knowing a constant could let the back end leave out code.
//!
//! A body that is told what its functions know can be larger than they are: what follows from a constant is
//! computed when the function is compiled. Where all that happens to a constant is that it is passed on,
//! stored, compared with something unknown or added to it, that cannot be. Then the size of the body tells
//! how large the functions are at least, and none of them need be compiled. This module answers that
//! question and no other; it errs towards "it could".

use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, Inst, InstructionData, Opcode, Value};
use cranelift_entity::SecondaryMap;

/// What the functions can save at each use of a value that they know, in bytes, at most.
const BYTES_PER_USE: i64 = 12;

/// How many bytes fewer a function can take that knows what `func`, which is one of those that do, computes
/// at these places. `None` if that is not clear. Linear in the size of `func`.
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
    for block in func.layout.blocks() {
        for inst in func.layout.block_insts(block) {
            let is_known = |value: &Value| known[func.dfg.resolve_aliases(*value)];
            let values: Vec<bool> =
                func.dfg.inst_values(inst).map(|value| is_known(&value)).collect();
            if values.contains(&true) {
                uses += 1;
                if !only_used(func, inst, &values) {
                    return None;
                }
            }
        }
    }
    Some(uses * BYTES_PER_USE)
}

/// Whether an instruction does what it does whatever these of its operands are.
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
            // With nothing else known it stays an addition or a comparison.
            !args.iter().zip(known).all(|(&arg, &known)| known || is_constant(arg))
        }
        _ => false,
    }
}
