//! IR that the walk treats as equal although it differs.
//!
//! Each rule is one small function with a filetest of its own in `filetests/normalise`, and
//! `docs/design.md` says how much it finds on real units. No rule here changes a function: the
//! representative of a class keeps its own form.
//!
//! Further rules were tried and never made two functions of a real unit equal: comparisons with
//! swapped operands, inverted branches, empty forwarding blocks, straight-line code split by a
//! `jump`. `docs/design.md` has the figures.

use crate::ir::{compare, signed};
use cranelift_codegen::ir::{BlockCall, DataFlowGraph, InstructionData, Opcode, Value, ValueDef};

/// Whether the two operands of an integer operation can change places.
///
/// Float operations are left out on purpose: which of two NaNs an addition returns depends on the
/// order of its operands, and its payload can be observed.
fn is_commutative(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Iadd
            | Opcode::Imul
            | Opcode::Umulhi
            | Opcode::Smulhi
            | Opcode::SqmulRoundSat
            | Opcode::Band
            | Opcode::Bor
            | Opcode::Bxor
            | Opcode::Smin
            | Opcode::Umin
            | Opcode::Smax
            | Opcode::Umax
            | Opcode::AvgRound
            | Opcode::UaddSat
            | Opcode::SaddSat
            | Opcode::UaddOverflow
            | Opcode::SaddOverflow
            | Opcode::UmulOverflow
            | Opcode::SmulOverflow
            | Opcode::UaddOverflowTrap
    )
}

/// Whether two operands with these numbers are written in the other order: the smaller number
/// first, if they can change places.
#[inline(always)]
pub(crate) fn change_places(opcode: Opcode, a: u32, b: u32) -> bool {
    a > b && is_commutative(opcode)
}

/// The destination of a branch whose condition follows from constants: the one place where constant
/// branches are folded. `evaluate` says which conditions may be looked at.
pub(crate) fn only_destination<'d>(
    dfg: &DataFlowGraph,
    data: &'d InstructionData,
    evaluate: impl FnOnce(Value) -> bool,
) -> Option<&'d BlockCall> {
    let InstructionData::Brif { opcode: _, arg, blocks } = data else {
        return None;
    };
    let condition = evaluate(*arg).then(|| known(dfg, *arg))??;
    Some(&blocks[usize::from(condition == 0)])
}

/// How many instructions deep a condition is evaluated.
const FOLD_DEPTH: u32 = 8;

/// The value of `value`, if it follows from constants within a few instructions, as the low bits of
/// a number whose other bits are 0.
///
/// Looks only through the operations of which conditions consist: constants, comparisons, bit
/// operations, sums, extensions of integers of up to 64 bits. `dfg` must be that of IR without
/// alias loops.
fn known(dfg: &DataFlowGraph, value: Value) -> Option<u64> {
    known_within(dfg, value, FOLD_DEPTH)
}

/// Recursion is bounded by `depth`, and by 2^8 operands in all.
fn known_within(dfg: &DataFlowGraph, value: Value, depth: u32) -> Option<u64> {
    let depth = depth.checked_sub(1)?;
    let ValueDef::Result(inst, 0) = dfg.value_def(value) else {
        return None;
    };
    let bits = |value: Value| {
        let ty = dfg.value_type(value);
        (ty.is_int() && ty.bits() <= 64).then(|| ty.bits())
    };
    let known = |value: Value| known_within(dfg, value, depth);
    let result = match &dfg.insts[inst] {
        InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => imm.bits() as u64,
        InstructionData::IntCompare { opcode: _, args, cond } => {
            let (a, b) = (known(args[0])?, known(args[1])?);
            u64::from(compare(*cond, a, b, bits(args[0])?))
        }
        InstructionData::Unary { opcode: Opcode::Uextend | Opcode::Ireduce, arg } => known(*arg)?,
        InstructionData::Unary { opcode: Opcode::Sextend, arg } => {
            signed(known(*arg)?, bits(*arg)?) as u64
        }
        InstructionData::Binary { opcode, args } => {
            let apply: fn(u64, u64) -> u64 = match opcode {
                Opcode::Band => |a, b| a & b,
                Opcode::Bor => |a, b| a | b,
                Opcode::Bxor => |a, b| a ^ b,
                Opcode::Iadd => u64::wrapping_add,
                Opcode::Isub => u64::wrapping_sub,
                _ => return None,
            };
            apply(known(args[0])?, known(args[1])?)
        }
        _ => return None,
    };
    Some(result & (u64::MAX >> (64 - bits(value)?)))
}
