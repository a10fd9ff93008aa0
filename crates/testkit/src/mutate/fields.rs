//! The fields of all instructions: the one place that names them.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::immediates::{Ieee16, Ieee32, Ieee64, Imm64, Offset32};
use cranelift_codegen::ir::{
    AtomicRmwOp, Block, BlockCall, Constant, DynamicStackSlot, ExceptionTable, FuncRef,
    GlobalValue, Immediate, InstructionData, JumpTable, MemFlags, SigRef, StackSlot, TrapCode,
    Value, ValueList,
};

/// A field of an instruction, by what it holds.
pub enum Field<'a> {
    Opcode(&'a mut cranelift_codegen::ir::Opcode),
    /// Operands, in the number that the format has.
    Values(&'a mut [Value]),
    /// Any number of operands.
    List(&'a mut ValueList),
    Flags(&'a mut MemFlags),
    Offset(&'a mut Offset32),
    Byte(&'a mut u8),
    Word(&'a mut Imm64),
    F16(&'a mut Ieee16),
    F32(&'a mut Ieee32),
    F64(&'a mut Ieee64),
    TrapCode(&'a mut TrapCode),
    IntCondition(&'a mut IntCC),
    FloatCondition(&'a mut FloatCC),
    Operator(&'a mut AtomicRmwOp),
    Slot(&'a mut StackSlot),
    DynamicSlot(&'a mut DynamicStackSlot),
    Block(&'a mut Block),
    Target(&'a mut BlockCall),
    /// Where a branch goes if its condition holds, and if not.
    Targets(&'a mut [BlockCall; 2]),
    JumpTable(&'a mut JumpTable),
    Handlers(&'a mut ExceptionTable),
    Signature(&'a mut SigRef),
    Callee(&'a mut FuncRef),
    Global(&'a mut GlobalValue),
    /// The lanes that a shuffle takes.
    Mask(&'a mut Immediate),
    Constant(&'a mut Constant),
}

/// Every field of an instruction, in their order.
pub fn fields(data: &mut InstructionData) -> Vec<Field<'_>> {
    use Field::*;
    use InstructionData as I;
    use std::slice::from_mut;
    let opcode = |opcode| Field::Opcode(opcode);
    match data {
        I::AtomicCas { opcode: o, args, flags } => vec![opcode(o), Values(args), Flags(flags)],
        I::AtomicRmw { opcode: o, args, flags, op } => {
            vec![opcode(o), Values(args), Flags(flags), Operator(op)]
        }
        I::Binary { opcode: o, args } => vec![opcode(o), Values(args)],
        I::BinaryImm8 { opcode: o, arg, imm } => vec![opcode(o), Values(from_mut(arg)), Byte(imm)],
        I::BranchTable { opcode: o, arg, table } => {
            vec![opcode(o), Values(from_mut(arg)), JumpTable(table)]
        }
        I::Brif { opcode: o, arg, blocks } => {
            vec![opcode(o), Values(from_mut(arg)), Targets(blocks)]
        }
        I::Call { opcode: o, args, func_ref } => vec![opcode(o), List(args), Callee(func_ref)],
        I::CallIndirect { opcode: o, args, sig_ref } => {
            vec![opcode(o), List(args), Signature(sig_ref)]
        }
        I::CondTrap { opcode: o, arg, code } => {
            vec![opcode(o), Values(from_mut(arg)), TrapCode(code)]
        }
        I::DynamicStackAddr { opcode: o, dynamic_stack_slot } => {
            vec![opcode(o), DynamicSlot(dynamic_stack_slot)]
        }
        I::ExceptionHandlerAddress { opcode: o, block, imm } => {
            vec![opcode(o), Block(block), Word(imm)]
        }
        I::FloatCompare { opcode: o, args, cond } => {
            vec![opcode(o), Values(args), FloatCondition(cond)]
        }
        I::FuncAddr { opcode: o, func_ref } => vec![opcode(o), Callee(func_ref)],
        I::IntAddTrap { opcode: o, args, code } => vec![opcode(o), Values(args), TrapCode(code)],
        I::IntCompare { opcode: o, args, cond } => {
            vec![opcode(o), Values(args), IntCondition(cond)]
        }
        I::Jump { opcode: o, destination } => vec![opcode(o), Target(destination)],
        I::Load { opcode: o, arg, flags, offset } => {
            vec![opcode(o), Values(from_mut(arg)), Flags(flags), Offset(offset)]
        }
        I::LoadNoOffset { opcode: o, arg, flags } => {
            vec![opcode(o), Values(from_mut(arg)), Flags(flags)]
        }
        I::MultiAry { opcode: o, args } => vec![opcode(o), List(args)],
        I::NullAry { opcode: o } => vec![opcode(o)],
        I::Shuffle { opcode: o, args, imm } => vec![opcode(o), Values(args), Mask(imm)],
        I::StackAddr { opcode: o, stack_slot, offset } => {
            vec![opcode(o), Slot(stack_slot), Offset(offset)]
        }
        I::Store { opcode: o, args, flags, offset } => {
            vec![opcode(o), Values(args), Flags(flags), Offset(offset)]
        }
        I::StoreNoOffset { opcode: o, args, flags } => vec![opcode(o), Values(args), Flags(flags)],
        I::Ternary { opcode: o, args } => vec![opcode(o), Values(args)],
        I::TernaryImm8 { opcode: o, args, imm } => vec![opcode(o), Values(args), Byte(imm)],
        I::Trap { opcode: o, code } => vec![opcode(o), TrapCode(code)],
        I::TryCall { opcode: o, args, func_ref, exception } => {
            vec![opcode(o), List(args), Callee(func_ref), Handlers(exception)]
        }
        I::TryCallIndirect { opcode: o, args, exception } => {
            vec![opcode(o), List(args), Handlers(exception)]
        }
        I::Unary { opcode: o, arg } => vec![opcode(o), Values(from_mut(arg))],
        I::UnaryConst { opcode: o, constant_handle } => vec![opcode(o), Constant(constant_handle)],
        I::UnaryGlobalValue { opcode: o, global_value } => vec![opcode(o), Global(global_value)],
        I::UnaryIeee16 { opcode: o, imm } => vec![opcode(o), F16(imm)],
        I::UnaryIeee32 { opcode: o, imm } => vec![opcode(o), F32(imm)],
        I::UnaryIeee64 { opcode: o, imm } => vec![opcode(o), F64(imm)],
        I::UnaryImm { opcode: o, imm } => vec![opcode(o), Word(imm)],
    }
}
