//! Instructions copied from one function to another: the one match over all formats that says where
//! an instruction refers to something.
//!
//! The caller maps each reference and operand ([`Entities`]). References to blocks, and fields that
//! only some callers can copy, are copied only where the caller says how.
//!
//! It does *not* enter anything into the tables of a function, nor does it place instructions in
//! blocks.

use cranelift_codegen::ir::{
    Block, BlockCall, Constant, DynamicStackSlot, ExceptionTable, FuncRef, Function, GlobalValue,
    Immediate, Inst, InstructionData, JumpTable, MemFlags, SigRef, Value, ValueList, ValueListPool,
};

/// Maps the references and operands of an instruction.
pub(crate) trait Entities {
    fn value(&mut self, value: Value) -> Value;
    fn list(&mut self, values: &[Value]) -> ValueList;
    fn func_ref(&mut self, func_ref: FuncRef) -> FuncRef;
    fn sig_ref(&mut self, sig_ref: SigRef) -> SigRef;
    fn constant(&mut self, constant: Constant) -> Constant;
    fn immediate(&mut self, immediate: Immediate) -> Immediate;

    // `None` where the instruction cannot be copied.

    fn flags(&mut self, flags: MemFlags) -> Option<MemFlags>;

    fn global_value(&mut self, global_value: GlobalValue) -> Option<GlobalValue>;

    /// A block of which the address is taken.
    fn block(&mut self, _: Block) -> Option<Block> {
        None
    }

    fn block_call(&mut self, _: &BlockCall) -> Option<BlockCall> {
        None
    }

    fn jump_table(&mut self, _: JumpTable) -> Option<JumpTable> {
        None
    }

    fn exception_table(&mut self, _: ExceptionTable) -> Option<ExceptionTable> {
        None
    }

    fn dynamic_stack_slot(&mut self, _: DynamicStackSlot) -> Option<DynamicStackSlot> {
        None
    }
}

/// The instruction with its references and operands replaced. `None` if it cannot be copied.
pub(crate) fn mapped(
    data: &InstructionData,
    pool: &ValueListPool,
    to: &mut dyn Entities,
) -> Option<InstructionData> {
    use InstructionData as I;
    // Conditions for copying an instruction come first, so that nothing is entered into tables for
    // one that cannot.
    Some(match *data {
        I::AtomicCas { opcode, args, flags } => {
            I::AtomicCas { opcode, args: args.map(|arg| to.value(arg)), flags: to.flags(flags)? }
        }
        I::AtomicRmw { opcode, args, flags, op } => I::AtomicRmw {
            opcode,
            args: args.map(|arg| to.value(arg)),
            flags: to.flags(flags)?,
            op,
        },
        I::Binary { opcode, args } => I::Binary { opcode, args: args.map(|arg| to.value(arg)) },
        I::BinaryImm8 { opcode, arg, imm } => I::BinaryImm8 { opcode, arg: to.value(arg), imm },
        I::BranchTable { opcode, arg, table } => {
            let table = to.jump_table(table)?;
            I::BranchTable { opcode, arg: to.value(arg), table }
        }
        I::Brif { opcode, arg, blocks: [then, otherwise] } => {
            let blocks = [to.block_call(&then)?, to.block_call(&otherwise)?];
            I::Brif { opcode, arg: to.value(arg), blocks }
        }
        I::Call { opcode, args, func_ref } => {
            I::Call { opcode, args: to.list(args.as_slice(pool)), func_ref: to.func_ref(func_ref) }
        }
        I::CallIndirect { opcode, args, sig_ref } => I::CallIndirect {
            opcode,
            args: to.list(args.as_slice(pool)),
            sig_ref: to.sig_ref(sig_ref),
        },
        I::CondTrap { opcode, arg, code } => I::CondTrap { opcode, arg: to.value(arg), code },
        I::DynamicStackAddr { opcode, dynamic_stack_slot } => I::DynamicStackAddr {
            opcode,
            dynamic_stack_slot: to.dynamic_stack_slot(dynamic_stack_slot)?,
        },
        I::ExceptionHandlerAddress { opcode, block, imm } => {
            I::ExceptionHandlerAddress { opcode, block: to.block(block)?, imm }
        }
        I::FloatCompare { opcode, args, cond } => {
            I::FloatCompare { opcode, args: args.map(|arg| to.value(arg)), cond }
        }
        I::FuncAddr { opcode, func_ref } => I::FuncAddr { opcode, func_ref: to.func_ref(func_ref) },
        I::IntAddTrap { opcode, args, code } => {
            I::IntAddTrap { opcode, args: args.map(|arg| to.value(arg)), code }
        }
        I::IntCompare { opcode, args, cond } => {
            I::IntCompare { opcode, args: args.map(|arg| to.value(arg)), cond }
        }
        I::Jump { opcode, ref destination } => {
            I::Jump { opcode, destination: to.block_call(destination)? }
        }
        I::Load { opcode, arg, flags, offset } => {
            I::Load { opcode, arg: to.value(arg), flags: to.flags(flags)?, offset }
        }
        I::LoadNoOffset { opcode, arg, flags } => {
            I::LoadNoOffset { opcode, arg: to.value(arg), flags: to.flags(flags)? }
        }
        I::MultiAry { opcode, args } => I::MultiAry { opcode, args: to.list(args.as_slice(pool)) },
        I::NullAry { opcode } => I::NullAry { opcode },
        I::Shuffle { opcode, args, imm } => {
            I::Shuffle { opcode, args: args.map(|arg| to.value(arg)), imm: to.immediate(imm) }
        }
        // Instructions are copied only between functions that have the same slots.
        I::StackAddr { opcode, stack_slot, offset } => I::StackAddr { opcode, stack_slot, offset },
        I::Store { opcode, args, flags, offset } => I::Store {
            opcode,
            args: args.map(|arg| to.value(arg)),
            flags: to.flags(flags)?,
            offset,
        },
        I::StoreNoOffset { opcode, args, flags } => I::StoreNoOffset {
            opcode,
            args: args.map(|arg| to.value(arg)),
            flags: to.flags(flags)?,
        },
        I::Ternary { opcode, args } => I::Ternary { opcode, args: args.map(|arg| to.value(arg)) },
        I::TernaryImm8 { opcode, args, imm } => {
            I::TernaryImm8 { opcode, args: args.map(|arg| to.value(arg)), imm }
        }
        I::Trap { opcode, code } => I::Trap { opcode, code },
        I::TryCall { opcode, args, func_ref, exception } => {
            let exception = to.exception_table(exception)?;
            let args = to.list(args.as_slice(pool));
            I::TryCall { opcode, args, func_ref: to.func_ref(func_ref), exception }
        }
        I::TryCallIndirect { opcode, args, exception } => {
            let exception = to.exception_table(exception)?;
            I::TryCallIndirect { opcode, args: to.list(args.as_slice(pool)), exception }
        }
        I::Unary { opcode, arg } => I::Unary { opcode, arg: to.value(arg) },
        I::UnaryConst { opcode, constant_handle } => {
            I::UnaryConst { opcode, constant_handle: to.constant(constant_handle) }
        }
        I::UnaryGlobalValue { opcode, global_value } => {
            I::UnaryGlobalValue { opcode, global_value: to.global_value(global_value)? }
        }
        I::UnaryIeee16 { opcode, imm } => I::UnaryIeee16 { opcode, imm },
        I::UnaryIeee32 { opcode, imm } => I::UnaryIeee32 { opcode, imm },
        I::UnaryIeee64 { opcode, imm } => I::UnaryIeee64 { opcode, imm },
        I::UnaryImm { opcode, imm } => I::UnaryImm { opcode, imm },
    })
}

/// Makes a copy of an instruction that is in no block yet, with results and stack map as in `from`.
/// `data` is what the instruction is in `into`.
pub(crate) fn copied(
    from: &Function,
    inst: Inst,
    data: InstructionData,
    into: &mut Function,
) -> Inst {
    let ctrl = from.dfg.ctrl_typevar(inst);
    let dfg = &mut into.dfg;
    let copy = dfg.make_inst(data);
    dfg.make_inst_results(copy, ctrl);
    for entry in from.dfg.user_stack_map_entries(inst).unwrap_or(&[]) {
        dfg.append_user_stack_map_entry(copy, entry.clone());
    }
    copy
}
