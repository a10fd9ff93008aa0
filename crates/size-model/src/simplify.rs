//! Integer instructions that the optimiser folds away: constants of constants, `x - x`, `x & 0`,
//! what a block has computed before.
//!
//! One scan forward in layout order, over integers of at most 64 bits. It knows the laws of
//! Cranelift's rules (`opts/*.isle`) that remove an instruction, not those that exchange one for a
//! smaller one. It changes no function.

use alloc::vec::Vec;
use cranelift_codegen::ir::condcodes::{CondCode, IntCC};
use cranelift_codegen::ir::{
    Block, BlockCall, Function, Inst, InstructionData, Opcode, Type, Value,
};
use cranelift_entity::{EntityRef, EntitySet};

/// How many instructions are remembered, by their hash.
const MAX_KNOWN: usize = 256;

/// How many consecutive shifts are added up.
const MAX_SHIFTS: usize = 8;

/// The result of simplifying a value.
#[derive(Clone, Copy, Default)]
pub(super) enum Becomes {
    #[default]
    Itself,
    /// Another value takes its place.
    Value(Value),
    /// It is this constant, with its sign.
    Constant(i64),
}

/// Kept from function to function for its memory.
#[derive(Default)]
pub(super) struct Simplified {
    /// By the index of a value.
    values: Vec<Becomes>,
    /// Values that a block has computed, by their hashes.
    known: Vec<Option<(Block, Key, Value)>>,
    /// The blocks that earlier ones reach.
    reached: EntitySet<Block>,
    /// Whether a branch has a constant condition.
    has_constant_branch: bool,
}

/// An instruction of two operands, or of one and zero.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key(Opcode, Type, Option<IntCC>, [Operand; 2]);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Operand {
    Value(Value),
    Constant(i64),
}

use Operand::{Constant, Value as Is};

impl Simplified {
    /// Finds the fate of each value. Linear in the size of the function.
    pub fn read(&mut self, func: &Function) {
        self.values.clear();
        self.values.resize(func.dfg.num_values(), Becomes::Itself);
        self.known.clear();
        self.known.resize(MAX_KNOWN, None);
        self.reached.clear();
        self.has_constant_branch = false;
        self.reached.extend(func.layout.entry_block());
        for block in func.layout.blocks() {
            if !self.is_reached(block) {
                continue;
            }
            for inst in func.layout.block_insts(block) {
                match *func.dfg.inst_results(inst) {
                    [result] => self.instruction(func, block, inst, result),
                    _ => self.branch(func, inst),
                }
            }
        }
    }

    /// Whether a block is executed, as far as branches on constants say.
    pub fn is_reached(&self, block: Block) -> bool {
        !self.has_constant_branch || self.reached.contains(block)
    }

    /// Where a branch goes that always goes to one block.
    pub fn only_destination(&self, func: &Function, branch: Inst) -> Option<BlockCall> {
        match func.dfg.insts[branch] {
            InstructionData::Brif { opcode: _, arg, blocks: [then, otherwise] } => {
                match self.operand(func, arg) {
                    Constant(0) => Some(otherwise),
                    Constant(_) => Some(then),
                    Is(_) => None,
                }
            }
            _ => None,
        }
    }

    fn branch(&mut self, func: &Function, inst: Inst) {
        let dfg = &func.dfg;
        if let Some(only) = self.only_destination(func, inst) {
            self.has_constant_branch = true;
            self.reached.insert(only.block(&dfg.value_lists));
            return;
        }
        let destinations =
            dfg.insts[inst].branch_destination(&dfg.jump_tables, &dfg.exception_tables);
        self.reached.extend(destinations.iter().map(|call| call.block(&dfg.value_lists)));
    }

    /// The value that `value` is an alias of, or that takes its place, or itself.
    pub fn original(&self, func: &Function, value: Value) -> Value {
        let value = func.dfg.resolve_aliases(value);
        match self.values[value.index()] {
            Becomes::Value(other) => other,
            Becomes::Itself | Becomes::Constant(_) => value,
        }
    }

    /// The result of simplifying a value that is no alias.
    pub fn becomes(&self, value: Value) -> Becomes {
        self.values[value.index()]
    }

    fn operand(&self, func: &Function, value: Value) -> Operand {
        let original = self.original(func, value);
        match self.values[original.index()] {
            Becomes::Constant(bits) => Constant(bits),
            Becomes::Itself | Becomes::Value(_) => Is(original),
        }
    }

    fn instruction(&mut self, func: &Function, block: Block, inst: Inst, result: Value) {
        let ty = func.dfg.value_type(result);
        if !is_small(ty) {
            return;
        }
        let data = &func.dfg.insts[inst];
        let opcode = data.opcode();
        let operand = |value| self.operand(func, value);
        let (operands, code) = match *data {
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => {
                self.values[result.index()] =
                    Becomes::Constant(signed(imm.bits() as u64, ty.bits()));
                return;
            }
            InstructionData::Binary { args: [x, y], .. } => ([operand(x), operand(y)], None),
            InstructionData::IntCompare { args: [x, y], cond, .. } => {
                ([operand(x), operand(y)], Some(cond))
            }
            InstructionData::Unary { arg, .. } => ([operand(arg), Constant(0)], None),
            InstructionData::Ternary { opcode: Opcode::Select, args: [condition, x, y] } => {
                let chosen = match operand(condition) {
                    Constant(0) => Some(y),
                    Constant(_) => Some(x),
                    Is(_) if operand(x) == operand(y) => Some(x),
                    Is(_) => None,
                };
                if let Some(chosen) = chosen {
                    self.values[result.index()] = becomes(operand(chosen));
                }
                return;
            }
            _ => return,
        };
        // Of the operands: an extension is of another type than its result.
        let from = func.dfg.value_type(func.dfg.inst_args(inst)[0]);
        if !is_small(from) || opcode.can_trap() {
            return;
        }
        let folded = match code {
            Some(code) => compared(code, from, operands),
            None => folded(opcode, ty, from, operands),
        };
        let operands = if is_commutative(opcode, code) { sorted(operands) } else { operands };
        let folded = folded
            .or_else(|| self.undone(func, opcode, operands))
            .or_else(|| self.shifted_out(func, opcode, ty, operands));
        self.values[result.index()] = match folded {
            Some(folded) => becomes(folded),
            None => self.computed_before(block, Key(opcode, ty, code, operands), result),
        };
    }

    /// The operation that computes an operand, with its own operands.
    fn inner(&self, func: &Function, operand: Operand) -> Option<(Opcode, Operand, Operand)> {
        let Is(value) = operand else { return None };
        let inst = func.dfg.value_def(value).inst()?;
        match func.dfg.insts[inst] {
            InstructionData::Binary { opcode, args: [x, y] } => {
                Some((opcode, self.operand(func, x), self.operand(func, y)))
            }
            _ => None,
        }
    }

    /// Zero, if consecutive shifts in one direction leave no bit of the shifted value.
    fn shifted_out(
        &self,
        func: &Function,
        opcode: Opcode,
        ty: Type,
        [mut shifted, by]: [Operand; 2],
    ) -> Option<Operand> {
        if !matches!(opcode, Opcode::Ishl | Opcode::Ushr) {
            return None;
        }
        let bits = u64::from(ty.bits());
        let amount = |by| match by {
            Constant(by) => Some(unsigned(ty, by) % bits),
            Is(_) => None,
        };
        let mut sum = amount(by)?;
        for _ in 0..MAX_SHIFTS {
            let (_, inner, by) =
                self.inner(func, shifted).filter(|&(inner, ..)| inner == opcode)?;
            shifted = inner;
            sum += amount(by)?;
            if sum >= bits {
                return Some(Constant(0));
            }
        }
        None
    }

    /// The remainder of an operation whose operand is its inverse, or is itself an `and` or an `or`
    /// of the other operand.
    fn undone(&self, func: &Function, opcode: Opcode, operands: [Operand; 2]) -> Option<Operand> {
        use Opcode::*;
        if !matches!(opcode, Isub | Bxor | Iadd | Band | Bor | Smax | Smin | Umax | Umin) {
            return None;
        }
        let [x, y] = operands;
        let of = |operand, other| match (opcode, self.inner(func, operand)?) {
            (Isub, (Iadd, a, b)) | (Bxor, (Bxor, a, b)) => {
                if a == other {
                    Some(b)
                } else {
                    (b == other).then_some(a)
                }
            }
            (Iadd, (Isub, a, b)) => (b == other).then_some(a),
            (Band | Bor | Smax | Smin | Umax | Umin, (same, a, b)) if same == opcode => {
                (a == other || b == other).then_some(operand)
            }
            (Band, (Bor, a, b)) | (Bor, (Band, a, b)) => {
                (a == other || b == other).then_some(other)
            }
            (Smin, (Smax, a, b))
            | (Smax, (Smin, a, b))
            | (Umin, (Umax, a, b))
            | (Umax, (Umin, a, b)) => (a == other || b == other).then_some(other),
            _ => None,
        };
        of(x, y).or_else(|| (opcode != Opcode::Isub).then(|| of(y, x)).flatten())
    }

    /// The value that the block computed before by this instruction. Remembers it.
    fn computed_before(&mut self, block: Block, key: Key, result: Value) -> Becomes {
        let number = |operand| match operand {
            Is(value) => value.index(),
            Constant(bits) => bits as usize,
        };
        let Key(opcode, _, _, [x, y]) = key;
        let parts = [opcode as usize, number(x), number(y)];
        let hash =
            parts.iter().fold(0usize, |hash, part| hash.wrapping_mul(31).wrapping_add(*part));
        let known = &mut self.known[hash % MAX_KNOWN];
        match *known {
            Some((of, equal, value)) if of == block && equal == key => Becomes::Value(value),
            _ => {
                *known = Some((block, key, result));
                Becomes::Itself
            }
        }
    }
}

fn becomes(operand: Operand) -> Becomes {
    match operand {
        Is(value) => Becomes::Value(value),
        Constant(bits) => Becomes::Constant(bits),
    }
}

fn is_small(ty: Type) -> bool {
    ty.is_int() && ty.bits() <= 64
}

fn unsigned(ty: Type, bits: i64) -> u64 {
    bits as u64 & (u64::MAX >> (64 - ty.bits()))
}

/// The low bits of a constant, rotated to the left.
fn rotated(ty: Type, bits: i64, by: u32) -> i64 {
    let bits = unsigned(ty, bits);
    (bits.unbounded_shl(by) | bits.unbounded_shr(ty.bits() - by)) as i64
}

fn is_commutative(opcode: Opcode, code: Option<IntCC>) -> bool {
    match code {
        Some(code) => code == code.swap_args(),
        None => matches!(
            opcode,
            Opcode::Iadd
                | Opcode::Imul
                | Opcode::Band
                | Opcode::Bor
                | Opcode::Bxor
                | Opcode::Smax
                | Opcode::Smin
                | Opcode::Umax
                | Opcode::Umin
        ),
    }
}

fn sorted([x, y]: [Operand; 2]) -> [Operand; 2] {
    if x <= y { [x, y] } else { [y, x] }
}

/// A comparison of operands of type `ty`, if it is known.
fn compared(code: IntCC, ty: Type, operands: [Operand; 2]) -> Option<Operand> {
    let (x, y) = match operands {
        [Constant(x), Constant(y)] => (x, y),
        [Is(x), Is(y)] if x == y => (0, 0),
        _ => return None,
    };
    let holds = compare(code, unsigned(ty, x), unsigned(ty, y), ty.bits());
    Some(Constant(holds.into()))
}

/// An operation from type `from` to `ty` that is a constant or one of its operands.
fn folded(opcode: Opcode, ty: Type, from: Type, operands: [Operand; 2]) -> Option<Operand> {
    use Opcode::*;
    let [x, y] = operands;
    Some(match (opcode, x, y) {
        (_, Constant(x), Constant(y)) => {
            let by = (unsigned(ty, y) % u64::from(ty.bits())) as u32;
            let bits = match opcode {
                Iadd => x.wrapping_add(y),
                Isub => x.wrapping_sub(y),
                Imul => x.wrapping_mul(y),
                Band => x & y,
                Bor => x | y,
                Bxor => x ^ y,
                Ishl => x << by,
                Ushr => (unsigned(ty, x) >> by) as i64,
                Sshr => x >> by,
                Rotl => rotated(ty, x, by),
                Rotr => rotated(ty, x, ty.bits() - by),
                Smax => x.max(y),
                Smin => x.min(y),
                Umax => unsigned(ty, x).max(unsigned(ty, y)) as i64,
                Umin => unsigned(ty, x).min(unsigned(ty, y)) as i64,
                Bnot => !x,
                Ineg => x.wrapping_neg(),
                Ireduce | Sextend => x,
                Uextend => unsigned(from, x) as i64,
                _ => return None,
            };
            Constant(signed(bits as u64, ty.bits()))
        }
        (Isub | Bxor, x, y) if x == y => Constant(0),
        (Band | Bor | Smax | Smin | Umax | Umin, x, y) if x == y => x,
        (Imul | Band, Constant(0), _) | (Imul | Band, _, Constant(0)) => Constant(0),
        (Iadd | Bor | Bxor, Constant(0), other) | (Imul, Constant(1), other) => other,
        (Iadd | Isub | Bor | Bxor | Ishl | Ushr | Sshr | Rotl | Rotr, other, Constant(0)) => other,
        (Imul, other, Constant(1)) | (Band, Constant(-1), other) | (Band, other, Constant(-1)) => {
            other
        }
        (Bor, Constant(-1), _) | (Bor, _, Constant(-1)) => Constant(-1),
        (Ishl | Ushr | Sshr | Rotl | Rotr, Constant(0), _) => Constant(0),
        _ => return None,
    })
}

/// Whether a comparison of integers of `bits` bits holds; the other bits of `a` and `b` are zero.
fn compare(cond: IntCC, a: u64, b: u64, bits: u32) -> bool {
    let flip = if cond == cond.unsigned() { 0 } else { 1 << (bits - 1) };
    let order = (a ^ flip).cmp(&(b ^ flip));
    match cond.unsigned() {
        IntCC::NotEqual => order.is_ne(),
        IntCC::UnsignedLessThan => order.is_lt(),
        IntCC::UnsignedGreaterThanOrEqual => order.is_ge(),
        IntCC::UnsignedGreaterThan => order.is_gt(),
        IntCC::UnsignedLessThanOrEqual => order.is_le(),
        _ => order.is_eq(),
    }
}

/// An integer of `bits` bits, with its sign.
fn signed(value: u64, bits: u32) -> i64 {
    (value << (64 - bits)) as i64 >> (64 - bits)
}
