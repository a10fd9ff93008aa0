//! Instructions copied from one function to another, with what they refer to replaced: the one match over the fields of
//! all formats for that.
//!
//! What an instruction refers to (callees, signatures, flags, constants, blocks) stands in tables of its function, and each
//! user of this match has its own way to enter it into those of another function, or to compare it. It does *not* copy results,
//! stack maps or anything else that belongs to an instruction but is not in its data.

use cranelift_codegen::ir::{
    Block, BlockCall, Constant, DynamicStackSlot, ExceptionTable, FuncRef, GlobalValue, Immediate,
    InstructionData, JumpTable, MemFlags, SigRef, Value, ValueList, ValueListPool,
};

/// What becomes of the references and operands of an instruction.
pub(crate) trait Entities {
    fn value(&mut self, value: Value) -> Value;
    fn list(&mut self, values: &[Value]) -> ValueList;
    fn func_ref(&mut self, func_ref: FuncRef) -> FuncRef;
    fn sig_ref(&mut self, sig_ref: SigRef) -> SigRef;
    fn flags(&mut self, flags: MemFlags) -> MemFlags;
    fn constant(&mut self, constant: Constant) -> Constant;
    fn immediate(&mut self, immediate: Immediate) -> Immediate;
    /// `None` if it is not the address of a symbol.
    fn global_value(&mut self, global_value: GlobalValue) -> Option<GlobalValue>;
    /// The block of a branch, with its arguments. `None`, as for the following, if there are to be no branches.
    fn block_call(&mut self, call: &BlockCall) -> Option<BlockCall> {
        let _ = call;
        None
    }
    fn jump_table(&mut self, table: JumpTable) -> Option<JumpTable> {
        let _ = table;
        None
    }
    fn exceptions(&mut self, table: ExceptionTable) -> Option<ExceptionTable> {
        let _ = table;
        None
    }
    /// A block whose address is taken.
    fn block(&mut self, block: Block) -> Option<Block> {
        let _ = block;
        None
    }
    /// `None` where its number is not its content.
    fn dynamic_slot(&mut self, slot: DynamicStackSlot) -> Option<DynamicStackSlot> {
        let _ = slot;
        None
    }
}

/// The instruction with its references and operands replaced. `None` for what cannot be copied: see [`Entities`].
pub(crate) fn mapped(
    data: &InstructionData,
    pool: &ValueListPool,
    to: &mut dyn Entities,
) -> Option<InstructionData> {
    use InstructionData as I;
    Some(match *data {
        I::AtomicCas { opcode, args, flags } => {
            I::AtomicCas { opcode, args: args.map(|arg| to.value(arg)), flags: to.flags(flags) }
        }
        I::AtomicRmw { opcode, args, flags, op } => {
            I::AtomicRmw { opcode, args: args.map(|arg| to.value(arg)), flags: to.flags(flags), op }
        }
        I::Binary { opcode, args } => I::Binary { opcode, args: args.map(|arg| to.value(arg)) },
        I::BinaryImm8 { opcode, arg, imm } => I::BinaryImm8 { opcode, arg: to.value(arg), imm },
        I::Call { opcode, args, func_ref } => {
            I::Call { opcode, args: to.list(args.as_slice(pool)), func_ref: to.func_ref(func_ref) }
        }
        I::CallIndirect { opcode, args, sig_ref } => I::CallIndirect {
            opcode,
            args: to.list(args.as_slice(pool)),
            sig_ref: to.sig_ref(sig_ref),
        },
        I::CondTrap { opcode, arg, code } => I::CondTrap { opcode, arg: to.value(arg), code },
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
        I::Load { opcode, arg, flags, offset } => {
            I::Load { opcode, arg: to.value(arg), flags: to.flags(flags), offset }
        }
        I::LoadNoOffset { opcode, arg, flags } => {
            I::LoadNoOffset { opcode, arg: to.value(arg), flags: to.flags(flags) }
        }
        I::MultiAry { opcode, args } => I::MultiAry { opcode, args: to.list(args.as_slice(pool)) },
        I::NullAry { opcode } => I::NullAry { opcode },
        I::Shuffle { opcode, args, imm } => {
            I::Shuffle { opcode, args: args.map(|arg| to.value(arg)), imm: to.immediate(imm) }
        }
        // The number of a slot is its content.
        I::StackAddr { opcode, stack_slot, offset } => I::StackAddr { opcode, stack_slot, offset },
        I::Store { opcode, args, flags, offset } => {
            I::Store { opcode, args: args.map(|arg| to.value(arg)), flags: to.flags(flags), offset }
        }
        I::StoreNoOffset { opcode, args, flags } => {
            I::StoreNoOffset { opcode, args: args.map(|arg| to.value(arg)), flags: to.flags(flags) }
        }
        I::Ternary { opcode, args } => I::Ternary { opcode, args: args.map(|arg| to.value(arg)) },
        I::TernaryImm8 { opcode, args, imm } => {
            I::TernaryImm8 { opcode, args: args.map(|arg| to.value(arg)), imm }
        }
        I::Trap { opcode, code } => I::Trap { opcode, code },
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
        I::BranchTable { opcode, arg, table } => {
            I::BranchTable { opcode, arg: to.value(arg), table: to.jump_table(table)? }
        }
        I::Brif { opcode, arg, blocks: [then, otherwise] } => {
            let arg = to.value(arg);
            let blocks = [to.block_call(&then)?, to.block_call(&otherwise)?];
            I::Brif { opcode, arg, blocks }
        }
        I::Jump { opcode, destination } => {
            I::Jump { opcode, destination: to.block_call(&destination)? }
        }
        I::TryCall { opcode, args, func_ref, exception } => I::TryCall {
            opcode,
            args: to.list(args.as_slice(pool)),
            func_ref: to.func_ref(func_ref),
            exception: to.exceptions(exception)?,
        },
        I::TryCallIndirect { opcode, args, exception } => I::TryCallIndirect {
            opcode,
            args: to.list(args.as_slice(pool)),
            exception: to.exceptions(exception)?,
        },
        I::DynamicStackAddr { opcode, dynamic_stack_slot } => {
            I::DynamicStackAddr { opcode, dynamic_stack_slot: to.dynamic_slot(dynamic_stack_slot)? }
        }
        I::ExceptionHandlerAddress { opcode, block, imm } => {
            I::ExceptionHandlerAddress { opcode, block: to.block(block)?, imm }
        }
    })
}
