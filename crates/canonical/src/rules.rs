//! One form for integer operations that Cranelift's optimiser leaves in two.
//!
//! Each rule takes an instruction, looks at the instructions that compute its operands, and
//! replaces it by another instruction with the same result for every value of the operands, of the
//! same type, and without effects or traps on either side. None depends on the width beyond its own
//! condition. The chosen form is the one that Cranelift keeps where it makes one of the two by
//! itself, so that the next round does not undo it.
//!
//! | forms | becomes |
//! |---|---|
//! | `x << 1` | `x + x` (`x * 2` becomes that, too) |
//! | `x - k` | `x + -k` |
//! | `x + MIN`, the smallest signed number | `x ^ MIN` |
//! | rotation to the right by `k` | to the left by `bits - k` |
//! | an amount to shift by, of another type | of the type of the shifted value |
//! | `x & 0xff`, `0xffff`, `0xffff_ffff` | `uextend(ireduce(x))` |
//! | `a > b`, `a >= b` | `b < a`, `b <= a` |
//! | `a == b`, `a != b` of values of one block | in the order in which they are defined |
//! | `x <= k`, `x >= k` | `x < k + 1`, `x > k - 1`, where that exists; signed `x <= 0` and `x >= 0` stay, as Cranelift has them |
//! | `a - b == 0`, `a ^ b == 0` | `a == b` |
//! | `x ^ k == c`, `!x == c`, `-x == c` | `x == k ^ c`, `x == !c`, `x == -c` |
//! | `x & bit == bit` | `x & bit != 0` |
//! | a comparison of extended numbers with each other, or with a constant | of the numbers themselves |
//! | a comparison `^ 1` | the opposite comparison |
//! | `select` by a comparison and by its opposite | one of them, with exchanged arms |
//! | `select` by `x == 0` | by `x`, with exchanged arms |
//! | `select` by `a - b`, `a ^ b`, `x + k`, `!x` | by `a == b`, `x == -k`, `x == -1`, with exchanged arms |
//! | a signed `x < 0`, extended to the type of `x` by zeros or by itself | a shift by `bits - 1` |
//!
//! `tests/laws/rules.rs` evaluates the replaced and the replacing form of each: for all operands of
//! 8 bits, and for special values of wider ones.

use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::condcodes::{CondCode, IntCC};
use cranelift_codegen::ir::{
    Function, Inst, InstBuilder, InstructionData, Opcode, Type, Value, ValueDef, types,
};

/// How often one instruction is replaced in a row, at most: no cycle of rules exists, and the next
/// round would continue.
const MAX_STEPS: usize = 8;

/// Brings the instructions of `func` into the forms above. Returns whether anything changed.
/// Instructions that are not needed any more stay, without a use. Linear in the size of `func`.
///
/// See the [example](crate#example).
pub fn apply(func: &mut Function) -> bool {
    let insts: Vec<Inst> =
        func.layout.blocks().flat_map(|block| func.layout.block_insts(block)).collect();
    let mut changed = false;
    for inst in insts {
        for _ in 0..MAX_STEPS {
            if !replace(func, inst) {
                break;
            }
            changed = true;
        }
    }
    changed
}

/// Replaces an instruction by the first rule that applies.
fn replace(func: &mut Function, inst: Inst) -> bool {
    match func.dfg.insts[inst] {
        InstructionData::Binary { opcode, args } => binary(func, inst, opcode, args),
        InstructionData::IntCompare { opcode: _, args, cond } => compare(func, inst, cond, args),
        InstructionData::Ternary { opcode: Opcode::Select, args } => select(func, inst, args),
        InstructionData::Unary { opcode, arg } => unary(func, inst, opcode, arg),
        _ => false,
    }
}

/// An integer type of which a constant can be written.
fn is_scalar(ty: Type) -> bool {
    ty.is_int() && ty.bits() <= 64
}

fn mask(ty: Type) -> u64 {
    u64::MAX >> (64 - ty.bits())
}

/// The smallest signed number of a type.
fn smallest(ty: Type) -> u64 {
    1 << (ty.bits() - 1)
}

/// The bits of a constant of up to 64 bits; those that its type does not have are 0.
fn constant(func: &Function, value: Value) -> Option<u64> {
    match func.dfg.insts[definition(func, value)?] {
        InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => {
            Some(imm.bits() as u64 & mask(func.dfg.value_type(value)))
        }
        _ => None,
    }
}

fn definition(func: &Function, value: Value) -> Option<Inst> {
    func.dfg.value_def(func.dfg.resolve_aliases(value)).inst()
}

/// The operand of an instruction that computes a value.
fn unary_of(func: &Function, value: Value, opcode: Opcode) -> Option<Value> {
    match func.dfg.insts[definition(func, value)?] {
        InstructionData::Unary { opcode: found, arg } if found == opcode => Some(arg),
        _ => None,
    }
}

fn binary_of(func: &Function, value: Value, opcode: Opcode) -> Option<[Value; 2]> {
    match func.dfg.insts[definition(func, value)?] {
        InstructionData::Binary { opcode: found, args } if found == opcode => Some(args),
        _ => None,
    }
}

/// The comparison of numbers, not of vectors, that computes a value.
fn comparison(func: &Function, value: Value) -> Option<(IntCC, [Value; 2])> {
    match func.dfg.insts[definition(func, value)?] {
        InstructionData::IntCompare { opcode: _, args, cond }
            if func.dfg.value_type(args[0]).is_int() =>
        {
            Some((cond, args))
        }
        _ => None,
    }
}

/// Whether a value is `x < 0`, signed, for an `x` of this type; gives `x`.
fn is_negative(func: &Function, value: Value, ty: Type) -> Option<Value> {
    let (cond, [x, zero]) = comparison(func, value)?;
    let holds = cond == IntCC::SignedLessThan
        && is_scalar(ty)
        && func.dfg.value_type(x) == ty
        && constant(func, zero) == Some(0);
    holds.then_some(x)
}

/// A constant in front of an instruction.
fn number(func: &mut Function, inst: Inst, ty: Type, bits: u64) -> Value {
    let location = func.srcloc(inst);
    let mut cursor = FuncCursor::new(func).at_inst(inst).with_srcloc(location);
    cursor.ins().iconst(ty, (bits & mask(ty)) as i64)
}

fn binary(func: &mut Function, inst: Inst, opcode: Opcode, [x, y]: [Value; 2]) -> bool {
    let ty = func.dfg.value_type(x);
    let Some(bits) = constant(func, y) else {
        return false;
    };
    match opcode {
        Opcode::Ishl | Opcode::Ushr | Opcode::Sshr | Opcode::Rotl | Opcode::Rotr => {
            shift(func, inst, opcode, [x, y], bits)
        }
        Opcode::Isub if is_scalar(ty) && bits != 0 => {
            let negated = number(func, inst, ty, bits.wrapping_neg());
            func.replace(inst).iadd(x, negated);
            true
        }
        Opcode::Iadd if is_scalar(ty) && bits == smallest(ty) => {
            func.replace(inst).bxor(x, y);
            true
        }
        Opcode::Bxor if ty == types::I8 && bits == 1 => {
            let Some((cond, [a, b])) = comparison(func, x) else {
                return false;
            };
            func.replace(inst).icmp(cond.complement(), a, b);
            true
        }
        Opcode::Band if is_scalar(ty) => {
            let narrow = [types::I8, types::I16, types::I32];
            let Some(&narrow) = narrow.iter().find(|&&narrow| mask(narrow) == bits) else {
                return false;
            };
            if narrow.bits() >= ty.bits() {
                return false;
            }
            let location = func.srcloc(inst);
            let mut cursor = FuncCursor::new(func).at_inst(inst).with_srcloc(location);
            let low = cursor.ins().ireduce(narrow, x);
            func.replace(inst).uextend(ty, low);
            true
        }
        _ => false,
    }
}

/// A shift or rotation by a constant, which counts modulo the number of bits of a lane.
fn shift(
    func: &mut Function,
    inst: Inst,
    opcode: Opcode,
    [x, amount]: [Value; 2],
    bits: u64,
) -> bool {
    let ty = func.dfg.value_type(x);
    let lane = u64::from(ty.lane_bits());
    let by = bits % lane;
    if opcode == Opcode::Ishl && by == 1 {
        func.replace(inst).iadd(x, x);
        return true;
    }
    let (opcode, by, turned) = match opcode {
        Opcode::Rotr => (Opcode::Rotl, (lane - by) % lane, true),
        _ => (opcode, by, false),
    };
    let amount_type = match ty.lane_count() {
        1 if is_scalar(ty) => ty,
        1 => types::I64,
        _ => types::I32,
    };
    if !turned && by == bits && func.dfg.value_type(amount) == amount_type {
        return false;
    }
    let amount = number(func, inst, amount_type, by);
    func.dfg.insts[inst] = InstructionData::Binary { opcode, args: [x, amount] };
    true
}

fn compare(func: &mut Function, inst: Inst, cond: IntCC, [x, y]: [Value; 2]) -> bool {
    use IntCC::*;
    let ty = func.dfg.value_type(x);
    if !ty.is_int() {
        return false;
    }
    let Some(bits) = constant(func, y) else {
        let swapped = constant(func, x).is_some()
            || matches!(
                cond,
                SignedGreaterThan
                    | SignedGreaterThanOrEqual
                    | UnsignedGreaterThan
                    | UnsignedGreaterThanOrEqual
            );
        let swapped = swapped || matches!(cond, Equal | NotEqual) && precedes(func, y, x);
        if swapped {
            func.replace(inst).icmp(cond.swap_args(), y, x);
            return true;
        }
        return compare_extended(func, inst, cond, [x, y]);
    };
    let (min, max) = (smallest(ty), smallest(ty) - 1);
    let strict = match cond {
        UnsignedLessThanOrEqual if bits != mask(ty) => Some((UnsignedLessThan, bits + 1)),
        UnsignedGreaterThanOrEqual if bits != 0 => Some((UnsignedGreaterThan, bits - 1)),
        SignedLessThanOrEqual if bits != 0 && bits != max => {
            Some((SignedLessThan, bits.wrapping_add(1)))
        }
        SignedGreaterThanOrEqual if bits != 0 && bits != min => {
            Some((SignedGreaterThan, bits.wrapping_sub(1)))
        }
        _ => None,
    };
    if let Some((cond, bits)) = strict {
        let bound = number(func, inst, ty, bits);
        func.replace(inst).icmp(cond, x, bound);
        return true;
    }
    if matches!(cond, Equal | NotEqual) && compare_equal(func, inst, cond, x, bits) {
        return true;
    }
    compare_extended_with(func, inst, cond, x, bits)
}

/// Whether a value comes before another one in their block: parameters in their order, and then the
/// results of instructions.
fn precedes(func: &Function, a: Value, b: Value) -> bool {
    use ValueDef::{Param, Result, Union};
    let defined = |value| func.dfg.value_def(func.dfg.resolve_aliases(value));
    match (defined(a), defined(b)) {
        (Param(block, a), Param(other, b)) => block == other && a < b,
        (Param(block, _), Result(inst, _)) => func.layout.inst_block(inst) == Some(block),
        (Result(a, at), Result(b, other)) if a == b => at < other,
        (Result(a, _), Result(b, _)) => {
            let blocks = [a, b].map(|inst| func.layout.inst_block(inst));
            blocks[0].is_some() && blocks[0] == blocks[1] && func.layout.pp_cmp(a, b).is_lt()
        }
        (Result(..), Param(..)) | (Union(..), _) | (_, Union(..)) => false,
    }
}

/// `x == bits`, or `!=`, where the operation that computes `x` can be inverted.
fn compare_equal(func: &mut Function, inst: Inst, cond: IntCC, x: Value, bits: u64) -> bool {
    let ty = func.dfg.value_type(x);
    if let Some([a, b]) = binary_of(func, x, Opcode::Bxor)
        && let Some(other) = constant(func, b)
    {
        let bound = number(func, inst, ty, bits ^ other);
        func.replace(inst).icmp(cond, a, bound);
        return true;
    }
    if bits == 0
        && let Some([a, b]) = binary_of(func, x, Opcode::Isub).or(binary_of(func, x, Opcode::Bxor))
    {
        func.replace(inst).icmp(cond, a, b);
        return true;
    }
    if let Some(a) = unary_of(func, x, Opcode::Bnot) {
        let bound = number(func, inst, ty, !bits);
        func.replace(inst).icmp(cond, a, bound);
        return true;
    }
    if let Some(a) = unary_of(func, x, Opcode::Ineg) {
        let bound = number(func, inst, ty, bits.wrapping_neg());
        func.replace(inst).icmp(cond, a, bound);
        return true;
    }
    if bits.is_power_of_two()
        && let Some([_, b]) = binary_of(func, x, Opcode::Band)
        && constant(func, b) == Some(bits)
    {
        let zero = number(func, inst, ty, 0);
        func.replace(inst).icmp(cond.complement(), x, zero);
        return true;
    }
    false
}

/// Numbers that are extended in the same way compare as before. Numbers that are extended by zeros
/// are not negative, and compare as unsigned ones.
fn compare_extended(func: &mut Function, inst: Inst, cond: IntCC, [x, y]: [Value; 2]) -> bool {
    for (opcode, cond) in [(Opcode::Uextend, cond.unsigned()), (Opcode::Sextend, cond)] {
        if let (Some(a), Some(b)) = (unary_of(func, x, opcode), unary_of(func, y, opcode))
            && func.dfg.value_type(a) == func.dfg.value_type(b)
        {
            func.replace(inst).icmp(cond, a, b);
            return true;
        }
    }
    false
}

/// Like [`compare_extended`], with a constant that is one of the extended numbers.
fn compare_extended_with(
    func: &mut Function,
    inst: Inst,
    cond: IntCC,
    x: Value,
    bits: u64,
) -> bool {
    let ty = func.dfg.value_type(x);
    for (opcode, cond) in [(Opcode::Uextend, cond.unsigned()), (Opcode::Sextend, cond)] {
        let Some(a) = unary_of(func, x, opcode) else {
            continue;
        };
        let narrow = func.dfg.value_type(a);
        let low = bits & mask(narrow);
        let extended = match opcode {
            Opcode::Sextend if low >= smallest(narrow) => (low | !mask(narrow)) & mask(ty),
            _ => low,
        };
        if extended == bits {
            let bound = number(func, inst, narrow, low);
            func.replace(inst).icmp(cond, a, bound);
            return true;
        }
    }
    false
}

fn select(func: &mut Function, inst: Inst, [by, x, y]: [Value; 3]) -> bool {
    use IntCC::*;
    if let Some([a, b]) = is_difference(func, inst, by) {
        let location = func.srcloc(inst);
        let mut cursor = FuncCursor::new(func).at_inst(inst).with_srcloc(location);
        let by = cursor.ins().icmp(Equal, a, b);
        own_form(func, by);
        func.replace(inst).select(by, y, x);
        return true;
    }
    // Cranelift has a zero in the second arm, with whichever comparison that needs.
    if [x, y].iter().any(|&arm| constant(func, arm) == Some(0)) {
        return false;
    }
    let Some((cond, [a, b])) = comparison(func, by) else {
        return false;
    };
    let bound = constant(func, b);
    if cond == Equal && bound == Some(0) {
        func.replace(inst).select(a, y, x);
        return true;
    }
    let opposite = match (cond, bound) {
        (NotEqual, _) => (Equal, a, b),
        (SignedLessThanOrEqual | UnsignedLessThanOrEqual, None) => {
            (cond.complement().swap_args(), b, a)
        }
        (
            SignedGreaterThan
            | SignedGreaterThanOrEqual
            | UnsignedGreaterThan
            | UnsignedGreaterThanOrEqual,
            Some(_),
        ) => (cond.complement(), a, b),
        _ => return false,
    };
    let (cond, a, b) = opposite;
    let location = func.srcloc(inst);
    let mut cursor = FuncCursor::new(func).at_inst(inst).with_srcloc(location);
    let by = cursor.ins().icmp(cond, a, b);
    own_form(func, by);
    func.replace(inst).select(by, y, x);
    true
}

/// Brings a new comparison into its own form.
fn own_form(func: &mut Function, comparison: Value) {
    let Some(inst) = definition(func, comparison) else {
        return;
    };
    for _ in 0..MAX_STEPS {
        if !replace(func, inst) {
            return;
        }
    }
}

/// Two values that are equal exactly if `value` is 0: what Cranelift makes of a comparison of the
/// two in a `select`.
fn is_difference(func: &mut Function, inst: Inst, value: Value) -> Option<[Value; 2]> {
    let ty = func.dfg.value_type(value);
    if !is_scalar(ty) {
        return None;
    }
    if let Some(operands) =
        binary_of(func, value, Opcode::Isub).or(binary_of(func, value, Opcode::Bxor))
    {
        return Some(operands);
    }
    if let Some([a, b]) = binary_of(func, value, Opcode::Iadd)
        && let Some(bits) = constant(func, b)
    {
        return Some([a, number(func, inst, ty, bits.wrapping_neg())]);
    }
    let a = unary_of(func, value, Opcode::Bnot)?;
    Some([a, number(func, inst, ty, u64::MAX)])
}

fn unary(func: &mut Function, inst: Inst, opcode: Opcode, arg: Value) -> bool {
    let Some(&result) = func.dfg.inst_results(inst).first() else {
        return false;
    };
    let ty = func.dfg.value_type(result);
    let (opcode, x) = match (opcode, is_negative(func, arg, ty)) {
        (Opcode::Uextend, Some(x)) => (Opcode::Ushr, x),
        // Of 8 bits, a comparison is extended by its negative.
        (Opcode::Bmask, Some(x)) => (Opcode::Sshr, x),
        (Opcode::Ineg, Some(x)) if ty == types::I8 => (Opcode::Sshr, x),
        _ => return false,
    };
    let amount = number(func, inst, ty, u64::from(ty.bits()) - 1);
    func.dfg.insts[inst] = InstructionData::Binary { opcode, args: [x, amount] };
    true
}
