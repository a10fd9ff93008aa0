//! Which values of a function are known, as far as branches depend on them.
//!
//! The simulation visits definitions before uses, so the value of a result follows from the values
//! of its operands: one step per instruction, forward. Only the operands of conditions are
//! considered: integers of up to 64 bits, a few instructions deep. The depth is part of the
//! definition of a condition that follows from constants: a branch on any other condition is
//! compared as it stands.

use super::simulation::resolve;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockCall, DataFlowGraph, Inst, InstructionData, Opcode, Value};
use cranelift_entity::SecondaryMap;

/// The most instructions on a path from a constant to a known value, both included.
const DEPTH: u32 = 8;

/// The known values of one function and how deep they are; bits beyond the width of a value's type
/// are 0.
#[derive(Default)]
pub(crate) struct Known(SecondaryMap<Value, Option<(u64, u32)>>);

impl Known {
    fn of(&self, dfg: &DataFlowGraph, value: Value) -> Option<u64> {
        self.0[resolve(dfg, value)?].map(|(value, _)| value)
    }

    fn depth(&self, dfg: &DataFlowGraph, inst: Inst) -> u32 {
        let operands = dfg.inst_args(inst).iter().map(|&arg| self.0[dfg.resolve_aliases(arg)]);
        1 + operands.flatten().map(|(_, depth)| depth).max().unwrap_or(0)
    }

    /// Records the value of a parameter, which counts as a constant.
    pub fn set(&mut self, param: Value, bits: u64) {
        self.0[param] = Some((bits, 1));
    }

    /// Records the value that `inst` computes.
    pub fn learn(&mut self, dfg: &DataFlowGraph, inst: Inst) {
        let &[result] = dfg.inst_results(inst) else {
            return;
        };
        if let (Some(bits), Some(value)) = (width(dfg, result), self.evaluate(dfg, inst)) {
            let depth = self.depth(dfg, inst);
            let value = value as u64 & (u64::MAX >> (64 - bits));
            self.0[result] = (depth <= DEPTH).then_some((value, depth));
        }
    }

    /// The value that `inst` computes, as a number of which the low bits count.
    fn evaluate(&self, dfg: &DataFlowGraph, inst: Inst) -> Option<i128> {
        let unsigned = |value: Value| self.of(dfg, value).map(i128::from);
        let signed = |value: Value| {
            let unused = 64 - width(dfg, value)?;
            Some(i128::from((self.of(dfg, value)? << unused) as i64 >> unused))
        };
        let data = &dfg.insts[inst];
        match (data.opcode(), dfg.inst_args(inst)) {
            (Opcode::Iconst, []) => match data {
                InstructionData::UnaryImm { opcode: _, imm } => Some(i128::from(imm.bits())),
                _ => None,
            },
            (Opcode::Uextend | Opcode::Ireduce, &[a]) => unsigned(a),
            (Opcode::Sextend, &[a]) => signed(a),
            (Opcode::Band, &[a, b]) => Some(unsigned(a)? & unsigned(b)?),
            (Opcode::Bor, &[a, b]) => Some(unsigned(a)? | unsigned(b)?),
            (Opcode::Bxor, &[a, b]) => Some(unsigned(a)? ^ unsigned(b)?),
            (Opcode::Iadd, &[a, b]) => Some(unsigned(a)? + unsigned(b)?),
            (Opcode::Isub, &[a, b]) => Some(unsigned(a)? - unsigned(b)?),
            (Opcode::Icmp, &[a, b]) => {
                let holds = match data.cond_code()? {
                    IntCC::Equal => unsigned(a)? == unsigned(b)?,
                    IntCC::NotEqual => unsigned(a)? != unsigned(b)?,
                    IntCC::UnsignedLessThan => unsigned(a)? < unsigned(b)?,
                    IntCC::UnsignedLessThanOrEqual => unsigned(a)? <= unsigned(b)?,
                    IntCC::UnsignedGreaterThan => unsigned(a)? > unsigned(b)?,
                    IntCC::UnsignedGreaterThanOrEqual => unsigned(a)? >= unsigned(b)?,
                    IntCC::SignedLessThan => signed(a)? < signed(b)?,
                    IntCC::SignedLessThanOrEqual => signed(a)? <= signed(b)?,
                    IntCC::SignedGreaterThan => signed(a)? > signed(b)?,
                    IntCC::SignedGreaterThanOrEqual => signed(a)? >= signed(b)?,
                };
                Some(i128::from(holds))
            }
            _ => None,
        }
    }

    /// The target of `inst` if it is a branch on a known condition.
    pub fn only_way(&self, dfg: &DataFlowGraph, inst: Inst) -> Option<BlockCall> {
        let InstructionData::Brif { opcode: _, arg, blocks: [then, otherwise] } = dfg.insts[inst]
        else {
            return None;
        };
        Some(if self.of(dfg, arg)? != 0 { then } else { otherwise })
    }
}

/// The width of a value in bits, if it is an integer that is considered.
fn width(dfg: &DataFlowGraph, value: Value) -> Option<u32> {
    let ty = dfg.value_type(value);
    (ty.is_int() && ty.bits() <= 64).then(|| ty.bits())
}
