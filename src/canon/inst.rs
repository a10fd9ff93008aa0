//! One instruction: the exhaustive match over `InstructionData`.
//!
//! Each arm names every field of its format. It writes value operands and table entries to the
//! shape, immediates that could become parameters to the constants, symbols to the references. In
//! the shape, the opcode comes first, then the type of the first result, then the fields of fixed
//! length, then numbers.

use super::normalise::{change_places, only_destination};
use super::{Malformed, Operand, Place, Record, Walk, type_number};
use crate::ir::called_by;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{
    AtomicRmwOp, BlockCall, ConstantData, DebugTag, Inst, InstructionData, Opcode, StackSlot, Type,
    UserStackMapEntry, Value,
};

impl Walk<'_> {
    #[inline(always)]
    pub(super) fn instruction(&mut self, inst: Inst) -> Result<(), Malformed> {
        let func = self.func;
        let data = &func.dfg.insts[inst];
        let opcode = data.opcode();
        if opcode == Opcode::Nop {
            // Generates no code, carries no data.
            return Ok(());
        }
        let is_call = opcode.is_call();
        if is_call && let Some(callee) = called_by(data) {
            self.extra_arguments(inst, callee)?;
        }
        self.mark(Place::Inst(inst));
        self.out.instructions += 1;

        // The types of results are not part of `InstructionData`: `iconst.i32 1` and
        // `iconst.i64 1` have equal data.
        let results = func.dfg.inst_results(inst);
        let result = results.first().map(|&result| func.dfg.value_type(result));
        let first = result.map_or(0, type_number);
        let record = Record::EMPTY.byte(opcode as u8).half(first);
        self.format(record, result, data)?;
        if is_call {
            self.stack_map(inst)?;
        }
        if let [first, others @ ..] = results {
            self.define(*first);
            // The number of results follows from the opcode, or from a call's signature.
            for &result in others {
                self.ty(func.dfg.value_type(result));
                self.define(result);
            }
        }
        if self.context.debug_info { self.debug_info(inst) } else { Ok(()) }
    }

    /// The target of a branch on a condition that follows from constants.
    fn only_way<'d>(&mut self, data: &'d InstructionData) -> Option<&'d BlockCall> {
        let func = self.func;
        let dead = self.dead;
        // A value that has a number was walked, and so were the operands behind it.
        let walked = |condition: Value| self.number(condition).is_ok();
        let way = if dead { None } else { only_destination(&func.dfg, data, walked) };
        if self.scratch.record
            && let Some(mark) = self.scratch.marks.last_mut()
        {
            mark.only_way = way.copied();
        }
        way
    }

    /// The one match over the fields of all instructions: writes them to the streams, behind a
    /// record of opcode and type, and notes what a value could replace.
    #[inline(always)]
    fn format(
        &mut self,
        record: Record,
        result: Option<Type>,
        data: &InstructionData,
    ) -> Result<(), Malformed> {
        let func = self.func;
        let pool = &func.dfg.value_lists;
        match data {
            InstructionData::AtomicCas { opcode: _, args, flags } => {
                self.access(record, *flags, args)
            }
            InstructionData::AtomicRmw { opcode: _, args, flags, op } => {
                self.access(record.byte(atomic_rmw_op(*op)), *flags, args)
            }
            InstructionData::Binary { opcode, args } => {
                self.ordered_operands(record, *opcode, args)
            }
            InstructionData::BinaryImm8 { opcode: _, arg, imm } => {
                self.operands(record.byte(*imm), &[*arg])
            }
            InstructionData::BranchTable { opcode: _, arg, table } => {
                self.operands(record, &[*arg])?;
                let table = func.dfg.jump_tables.get(*table).ok_or(Malformed)?;
                self.length(table.all_branches().len())?;
                for call in table.all_branches() {
                    self.block_call(Record::EMPTY, call)?;
                }
                Ok(())
            }
            InstructionData::Brif { opcode: _, arg, blocks } => {
                if let Some(way) = self.only_way(data) {
                    // The other block is not a successor: no control flow reaches it from here.
                    return self.block_call(Record::EMPTY.byte(Opcode::Jump as u8).half(0), way);
                }
                self.operands(record, &[*arg])?;
                for call in blocks {
                    self.block_call(Record::EMPTY, call)?;
                }
                Ok(())
            }
            InstructionData::Call { opcode: _, args, func_ref } => {
                self.holds(Operand::Callee(*func_ref));
                self.callee(record, *func_ref, true)?;
                self.call_operands(args.as_slice(pool))
            }
            InstructionData::CallIndirect { opcode: _, args, sig_ref } => {
                self.signature(record, *sig_ref)?;
                self.operand_list(Record::EMPTY, args.as_slice(pool))
            }
            InstructionData::CondTrap { opcode: _, arg, code } => {
                self.operands(record.byte(code.as_raw().get()), &[*arg])
            }
            InstructionData::DynamicStackAddr { opcode: _, dynamic_stack_slot } => {
                if !func.dynamic_stack_slots.is_valid(*dynamic_stack_slot) {
                    return Err(Malformed);
                }
                // All dynamic slots are in the header in this order: the index is the content.
                self.put_numbers(record, [dynamic_stack_slot.as_u32()]);
                Ok(())
            }
            InstructionData::ExceptionHandlerAddress { opcode: _, block, imm } => {
                // Not a successor, but the block counts: its address is taken.
                let number = self.address_of(*block)?;
                self.put_numbers(record, [number]);
                self.long(imm.bits() as u64);
                Ok(())
            }
            InstructionData::FloatCompare { opcode: _, args, cond } => {
                self.operands(record.byte(float_cc(*cond)), args)
            }
            InstructionData::FuncAddr { opcode: _, func_ref } => {
                self.holds(Operand::Function(*func_ref));
                self.callee(record, *func_ref, false)
            }
            InstructionData::IntAddTrap { opcode, args, code } => {
                self.ordered_operands(record.byte(code.as_raw().get()), *opcode, args)
            }
            InstructionData::IntCompare { opcode: _, args, cond } => {
                self.operands(record.byte(int_cc(*cond)), args)
            }
            InstructionData::Jump { opcode: _, destination } => {
                self.block_call(record, destination)
            }
            InstructionData::Load { opcode: _, arg, flags, offset } => {
                self.access(record, *flags, &[*arg])?;
                self.offset(|| Some(func.dfg.value_type(*arg)), i32::from(*offset));
                Ok(())
            }
            InstructionData::LoadNoOffset { opcode: _, arg, flags } => {
                self.access(record, *flags, &[*arg])
            }
            InstructionData::MultiAry { opcode: _, args } => {
                self.operand_list(record, args.as_slice(pool))
            }
            InstructionData::NullAry { opcode: _ } => {
                self.put(record);
                Ok(())
            }
            InstructionData::Shuffle { opcode: _, args, imm } => {
                self.operands(record, args)?;
                let mask: &ConstantData = func.dfg.immediates.get(*imm).ok_or(Malformed)?;
                self.length(mask.len())?;
                self.out.shape.extend_from_slice(mask.as_slice());
                Ok(())
            }
            InstructionData::StackAddr { opcode: _, stack_slot, offset } => {
                self.stack_slot(record, *stack_slot)?;
                self.offset(|| result, i32::from(*offset));
                Ok(())
            }
            InstructionData::Store { opcode: _, args, flags, offset } => {
                self.access(record, *flags, args)?;
                self.offset(|| Some(func.dfg.value_type(args[1])), i32::from(*offset));
                Ok(())
            }
            InstructionData::StoreNoOffset { opcode: _, args, flags } => {
                self.access(record, *flags, args)
            }
            InstructionData::Ternary { opcode: _, args } => self.operands(record, args),
            InstructionData::TernaryImm8 { opcode: _, args, imm } => {
                self.operands(record.byte(*imm), args)
            }
            InstructionData::Trap { opcode: _, code } => {
                self.put(record.byte(code.as_raw().get()));
                Ok(())
            }
            InstructionData::TryCall { opcode: _, args, func_ref, exception } => {
                self.holds(Operand::Callee(*func_ref));
                self.callee(record, *func_ref, true)?;
                self.call_operands(args.as_slice(pool))?;
                self.exception_table(*exception, Some(*func_ref))
            }
            InstructionData::TryCallIndirect { opcode: _, args, exception } => {
                self.operand_list(record, args.as_slice(pool))?;
                self.exception_table(*exception, None)
            }
            InstructionData::Unary { opcode: _, arg } => self.operands(record, &[*arg]),
            InstructionData::UnaryConst { opcode: _, constant_handle } => {
                // `ConstantPool::get` panics where there is none.
                self.scratch.constants.binary_search(constant_handle).map_err(|_| Malformed)?;
                let data = func.dfg.constants.get(*constant_handle);
                let length = u32::try_from(data.len()).map_err(|_| Malformed)?;
                self.put_numbers(record, [length]);
                // The verifier demands that the pool's bytes fill the value exactly.
                let result = result.filter(|ty| ty.bytes() as usize == data.len());
                self.constant(result, data.as_slice());
                Ok(())
            }
            InstructionData::UnaryGlobalValue { opcode, global_value } => {
                if *opcode == Opcode::SymbolValue {
                    self.holds(Operand::Symbol(*global_value));
                }
                self.put(record);
                self.global_value(*global_value)
            }
            InstructionData::UnaryIeee16 { opcode: _, imm } => {
                self.put(record);
                self.constant(result, &imm.bits().to_le_bytes());
                Ok(())
            }
            InstructionData::UnaryIeee32 { opcode: _, imm } => {
                self.put(record);
                self.constant(result, &imm.bits().to_le_bytes());
                Ok(())
            }
            InstructionData::UnaryIeee64 { opcode: _, imm } => {
                self.put(record);
                self.constant(result, &imm.bits().to_le_bytes());
                Ok(())
            }
            InstructionData::UnaryImm { opcode: _, imm } => {
                self.put(record);
                self.constant(result, &imm.bits().to_le_bytes());
                Ok(())
            }
        }
    }

    /// Writes the bytes of a constant, which are those of the result, or of a wider integer.
    #[inline]
    fn constant(&mut self, result: Option<Type>, bytes: &[u8]) {
        self.out.constants.extend_from_slice(bytes);
        if self.scratch.record {
            self.holds_constant(result, bytes);
        }
    }

    #[cold]
    fn holds_constant(&mut self, result: Option<Type>, bytes: &[u8]) {
        let mut bits = [0; 16];
        if let (Some(ty), Some(low)) = (result, bits.get_mut(..bytes.len())) {
            low.copy_from_slice(bytes);
            self.holds(Operand::Constant { ty, bits: u128::from_le_bytes(bits) });
        }
    }

    /// Writes an offset that is added to an address of this type.
    #[inline]
    fn offset(&mut self, ty: impl FnOnce() -> Option<Type>, bytes: i32) {
        self.out.constant_i32(bytes);
        if self.scratch.record
            && let Some(ty) = ty()
        {
            self.holds(Operand::Offset { ty, bytes });
        }
    }

    /// The operands of a binary operation, in a normal order if they can change places.
    #[inline(always)]
    fn ordered_operands(
        &mut self,
        record: Record,
        opcode: Opcode,
        args: &[Value; 2],
    ) -> Result<(), Malformed> {
        let (a, b) = (self.number(args[0])?, self.number(args[1])?);
        let exchange = change_places(opcode, a, b);
        self.put_numbers(record, if exchange { [b, a] } else { [a, b] });
        Ok(())
    }

    fn stack_slot(&mut self, record: Record, slot: StackSlot) -> Result<(), Malformed> {
        if !self.func.sized_stack_slots.is_valid(slot) {
            return Err(Malformed);
        }
        // All slots are in the header in this order: the index is the content.
        self.put_numbers(record, [slot.as_u32()]);
        Ok(())
    }

    fn stack_map(&mut self, inst: Inst) -> Result<(), Malformed> {
        let entries = self.func.dfg.user_stack_map_entries(inst).unwrap_or(&[]);
        self.length(entries.len())?;
        for entry in entries {
            let UserStackMapEntry { ty, slot, offset } = entry;
            self.stack_slot(Record::EMPTY.half(type_number(*ty)).word(*offset), *slot)?;
        }
        Ok(())
    }

    /// The metadata of an instruction for debuggers.
    #[cold]
    fn debug_info(&mut self, inst: Inst) -> Result<(), Malformed> {
        let func = self.func;
        self.word(func.srcloc(inst).bits());
        let tags = func.debug_tags.get(inst);
        self.length(tags.len())?;
        for tag in tags {
            match tag {
                DebugTag::User(tag) => {
                    self.put(Record::EMPTY.byte(0).word(*tag));
                }
                DebugTag::StackSlot(slot) => {
                    self.stack_slot(Record::EMPTY.byte(1), *slot)?;
                }
            }
        }
        Ok(())
    }
}

fn atomic_rmw_op(op: AtomicRmwOp) -> u8 {
    match op {
        AtomicRmwOp::Add => 0,
        AtomicRmwOp::Sub => 1,
        AtomicRmwOp::And => 2,
        AtomicRmwOp::Nand => 3,
        AtomicRmwOp::Or => 4,
        AtomicRmwOp::Xor => 5,
        AtomicRmwOp::Xchg => 6,
        AtomicRmwOp::Umin => 7,
        AtomicRmwOp::Umax => 8,
        AtomicRmwOp::Smin => 9,
        AtomicRmwOp::Smax => 10,
    }
}

fn int_cc(cond: IntCC) -> u8 {
    match cond {
        IntCC::Equal => 0,
        IntCC::NotEqual => 1,
        IntCC::SignedLessThan => 2,
        IntCC::SignedGreaterThanOrEqual => 3,
        IntCC::SignedGreaterThan => 4,
        IntCC::SignedLessThanOrEqual => 5,
        IntCC::UnsignedLessThan => 6,
        IntCC::UnsignedGreaterThanOrEqual => 7,
        IntCC::UnsignedGreaterThan => 8,
        IntCC::UnsignedLessThanOrEqual => 9,
    }
}

fn float_cc(cond: FloatCC) -> u8 {
    match cond {
        FloatCC::Ordered => 0,
        FloatCC::Unordered => 1,
        FloatCC::Equal => 2,
        FloatCC::NotEqual => 3,
        FloatCC::OrderedNotEqual => 4,
        FloatCC::UnorderedOrEqual => 5,
        FloatCC::LessThan => 6,
        FloatCC::LessThanOrEqual => 7,
        FloatCC::GreaterThan => 8,
        FloatCC::GreaterThanOrEqual => 9,
        FloatCC::UnorderedOrLessThan => 10,
        FloatCC::UnorderedOrLessThanOrEqual => 11,
        FloatCC::UnorderedOrGreaterThan => 12,
        FloatCC::UnorderedOrGreaterThanOrEqual => 13,
    }
}
