//! Two instructions: every format, field by field.

use super::proof::Mismatch;
use super::simulation::Simulation;
use super::tables::Callee;
use super::{Claim, Use, tables};
use cranelift_codegen::ir::{Inst, InstructionData, Opcode, UserStackMapEntry, Value};

/// Operations of which the operands can change places.
///
/// Only operations on integers: of two NaNs, which one comes out of a float operation depends on
/// the order of its operands.
const COMMUTATIVE: &[Opcode] = &[
    Opcode::AvgRound,
    Opcode::Band,
    Opcode::Bor,
    Opcode::Bxor,
    Opcode::Iadd,
    Opcode::Imul,
    Opcode::SaddOverflow,
    Opcode::SaddSat,
    Opcode::Smax,
    Opcode::Smin,
    Opcode::SmulOverflow,
    Opcode::Smulhi,
    Opcode::SqmulRoundSat,
    Opcode::UaddOverflow,
    Opcode::UaddOverflowTrap,
    Opcode::UaddSat,
    Opcode::Umax,
    Opcode::Umin,
    Opcode::UmulOverflow,
    Opcode::Umulhi,
];

impl Simulation<'_> {
    /// The same operation on operands that are bound to each other. Results are not looked at.
    pub fn same_operation(&mut self, kept: Inst, original: Inst) -> Result<(), Mismatch> {
        use InstructionData as I;
        let Claim { kept: a, original: b, .. } = *self.claim;
        let (x, y) = (&a.dfg.insts[kept], &b.dfg.insts[original]);
        if self.claim.extra.is_some()
            && let Some(result) = self.call_with_extra(kept, original)
        {
            return result;
        }
        self.same(&x.opcode(), &y.opcode(), Mismatch::Opcode)?;
        let lists = (&a.dfg.value_lists, &b.dfg.value_lists);
        match (x, y) {
            (
                I::AtomicCas { opcode: _, args: x, flags: p },
                I::AtomicCas { opcode: _, args: y, flags: q },
            ) => {
                self.values(x, y)?;
                tables::access(self, *p, *q)
            }
            (
                I::AtomicRmw { opcode: _, args: x, flags: p, op: i },
                I::AtomicRmw { opcode: _, args: y, flags: q, op: j },
            ) => {
                self.same(i, j, Mismatch::Immediate)?;
                self.values(x, y)?;
                tables::access(self, *p, *q)
            }
            (I::Binary { opcode, args: x }, I::Binary { opcode: _, args: y }) => {
                self.either_order(*opcode, x, y)
            }
            (
                I::BinaryImm8 { opcode: _, arg: x, imm: i },
                I::BinaryImm8 { opcode: _, arg: y, imm: j },
            ) => {
                self.same(i, j, Mismatch::Immediate)?;
                self.value(*x, *y)
            }
            (
                I::BranchTable { opcode: _, arg: x, table: i },
                I::BranchTable { opcode: _, arg: y, table: j },
            ) => {
                self.value(*x, *y)?;
                tables::jump_table(self, *i, *j)
            }
            (
                I::Brif { opcode: _, arg: x, blocks: i },
                I::Brif { opcode: _, arg: y, blocks: j },
            ) => {
                self.value(*x, *y)?;
                self.branch(&i[0], &j[0])?;
                self.branch(&i[1], &j[1])
            }
            (
                I::Call { opcode: _, args: x, func_ref: f },
                I::Call { opcode: _, args: y, func_ref: g },
            ) => {
                tables::callee(self, Use::Call, *f, *g)?;
                self.stack_maps(kept, original)?;
                self.values(x.as_slice(lists.0), y.as_slice(lists.1))
            }
            (
                I::CallIndirect { opcode: _, args: x, sig_ref: i },
                I::CallIndirect { opcode: _, args: y, sig_ref: j },
            ) => {
                tables::callee_signature(self, *i, *j)?;
                self.stack_maps(kept, original)?;
                self.values(x.as_slice(lists.0), y.as_slice(lists.1))
            }
            (
                I::CondTrap { opcode: _, arg: x, code: i },
                I::CondTrap { opcode: _, arg: y, code: j },
            ) => {
                self.same(i, j, Mismatch::TrapCode)?;
                self.value(*x, *y)
            }
            (
                I::DynamicStackAddr { opcode: _, dynamic_stack_slot: i },
                I::DynamicStackAddr { opcode: _, dynamic_stack_slot: j },
            ) => self.same(i, j, Mismatch::DynamicSlots),
            (
                I::ExceptionHandlerAddress { opcode: _, block: x, imm: i },
                I::ExceptionHandlerAddress { opcode: _, block: y, imm: j },
            ) => {
                self.same(i, j, Mismatch::Immediate)?;
                self.address_of_block(*x, *y)
            }
            (
                I::FloatCompare { opcode: _, args: x, cond: i },
                I::FloatCompare { opcode: _, args: y, cond: j },
            ) => {
                self.same(i, j, Mismatch::Immediate)?;
                self.values(x, y)
            }
            (I::FuncAddr { opcode: _, func_ref: f }, I::FuncAddr { opcode: _, func_ref: g }) => {
                tables::callee(self, Use::Address, *f, *g)
            }
            (
                I::IntAddTrap { opcode, args: x, code: i },
                I::IntAddTrap { opcode: _, args: y, code: j },
            ) => {
                self.same(i, j, Mismatch::TrapCode)?;
                self.either_order(*opcode, x, y)
            }
            (
                I::IntCompare { opcode: _, args: x, cond: i },
                I::IntCompare { opcode: _, args: y, cond: j },
            ) => {
                self.same(i, j, Mismatch::Immediate)?;
                self.values(x, y)
            }
            (I::Jump { opcode: _, destination: x }, I::Jump { opcode: _, destination: y }) => {
                self.branch(x, y)
            }
            (
                I::Load { opcode: _, arg: x, flags: p, offset: i },
                I::Load { opcode: _, arg: y, flags: q, offset: j },
            ) => {
                self.address((*x, (*i).into()), (*y, (*j).into()))?;
                tables::access(self, *p, *q)
            }
            (
                I::LoadNoOffset { opcode, arg: x, flags: p },
                I::LoadNoOffset { opcode: _, arg: y, flags: q },
            ) => {
                self.value(*x, *y)?;
                match opcode {
                    // Of constants it is a constant, and has no counterpart in a parameterised
                    // body.
                    Opcode::Bitcast => tables::conversion(self, *p, *q),
                    _ => tables::access(self, *p, *q),
                }
            }
            (I::MultiAry { opcode: _, args: x }, I::MultiAry { opcode: _, args: y }) => {
                self.values(x.as_slice(lists.0), y.as_slice(lists.1))
            }
            (I::NullAry { opcode: _ }, I::NullAry { opcode: _ }) => Ok(()),
            (
                I::Shuffle { opcode: _, args: x, imm: i },
                I::Shuffle { opcode: _, args: y, imm: j },
            ) => {
                let masks = (a.dfg.immediates.get(*i), b.dfg.immediates.get(*j));
                self.same(&masks.0, &masks.1, Mismatch::Immediate)?;
                self.values(x, y)
            }
            (
                I::StackAddr { opcode: _, stack_slot: x, offset: i },
                I::StackAddr { opcode: _, stack_slot: y, offset: j },
            ) => {
                self.same(i, j, Mismatch::Immediate)?;
                self.same(x, y, Mismatch::StackSlots)
            }
            (
                I::Store { opcode: _, args: x, flags: p, offset: i },
                I::Store { opcode: _, args: y, flags: q, offset: j },
            ) => {
                self.value(x[0], y[0])?;
                self.address((x[1], (*i).into()), (y[1], (*j).into()))?;
                tables::access(self, *p, *q)
            }
            (
                I::StoreNoOffset { opcode: _, args: x, flags: p },
                I::StoreNoOffset { opcode: _, args: y, flags: q },
            ) => {
                self.values(x, y)?;
                tables::access(self, *p, *q)
            }
            (I::Ternary { opcode: _, args: x }, I::Ternary { opcode: _, args: y }) => {
                self.values(x, y)
            }
            (
                I::TernaryImm8 { opcode: _, args: x, imm: i },
                I::TernaryImm8 { opcode: _, args: y, imm: j },
            ) => {
                self.same(i, j, Mismatch::Immediate)?;
                self.values(x, y)
            }
            (I::Trap { opcode: _, code: i }, I::Trap { opcode: _, code: j }) => {
                self.same(i, j, Mismatch::TrapCode)
            }
            (
                I::TryCall { opcode: _, args: x, func_ref: f, exception: i },
                I::TryCall { opcode: _, args: y, func_ref: g, exception: j },
            ) => {
                tables::callee(self, Use::Call, *f, *g)?;
                self.stack_maps(kept, original)?;
                self.values(x.as_slice(lists.0), y.as_slice(lists.1))?;
                tables::exception_table(self, *i, *j)
            }
            (
                I::TryCallIndirect { opcode: _, args: x, exception: i },
                I::TryCallIndirect { opcode: _, args: y, exception: j },
            ) => {
                self.stack_maps(kept, original)?;
                self.values(x.as_slice(lists.0), y.as_slice(lists.1))?;
                tables::exception_table(self, *i, *j)
            }
            (I::Unary { opcode: _, arg: x }, I::Unary { opcode: _, arg: y }) => self.value(*x, *y),
            (
                I::UnaryConst { opcode: _, constant_handle: i },
                I::UnaryConst { opcode: _, constant_handle: j },
            ) => self.constant(*i, *j),
            (
                I::UnaryGlobalValue { opcode: _, global_value: x },
                I::UnaryGlobalValue { opcode: _, global_value: y },
            ) => tables::global_value(self, *x, *y),
            (I::UnaryIeee16 { opcode: _, imm: i }, I::UnaryIeee16 { opcode: _, imm: j }) => {
                self.same(&i.bits(), &j.bits(), Mismatch::Immediate)
            }
            (I::UnaryIeee32 { opcode: _, imm: i }, I::UnaryIeee32 { opcode: _, imm: j }) => {
                self.same(&i.bits(), &j.bits(), Mismatch::Immediate)
            }
            (I::UnaryIeee64 { opcode: _, imm: i }, I::UnaryIeee64 { opcode: _, imm: j }) => {
                self.same(&i.bits(), &j.bits(), Mismatch::Immediate)
            }
            (I::UnaryImm { opcode: _, imm: i }, I::UnaryImm { opcode: _, imm: j }) => {
                self.same(&i.bits(), &j.bits(), Mismatch::Immediate)
            }
            // Two formats. All are named, so that a new one must be given its arm.
            (
                I::AtomicCas { .. }
                | I::AtomicRmw { .. }
                | I::Binary { .. }
                | I::BinaryImm8 { .. }
                | I::BranchTable { .. }
                | I::Brif { .. }
                | I::Call { .. }
                | I::CallIndirect { .. }
                | I::CondTrap { .. }
                | I::DynamicStackAddr { .. }
                | I::ExceptionHandlerAddress { .. }
                | I::FloatCompare { .. }
                | I::FuncAddr { .. }
                | I::IntAddTrap { .. }
                | I::IntCompare { .. }
                | I::Jump { .. }
                | I::Load { .. }
                | I::LoadNoOffset { .. }
                | I::MultiAry { .. }
                | I::NullAry { .. }
                | I::Shuffle { .. }
                | I::StackAddr { .. }
                | I::Store { .. }
                | I::StoreNoOffset { .. }
                | I::Ternary { .. }
                | I::TernaryImm8 { .. }
                | I::Trap { .. }
                | I::TryCall { .. }
                | I::TryCallIndirect { .. }
                | I::Unary { .. }
                | I::UnaryConst { .. }
                | I::UnaryGlobalValue { .. }
                | I::UnaryIeee16 { .. }
                | I::UnaryIeee32 { .. }
                | I::UnaryIeee64 { .. }
                | I::UnaryImm { .. },
                _,
            ) => Err(Mismatch::Opcode),
        }
    }

    /// Two calls of which the kept one passes more arguments to its callee than the original does,
    /// or has a callee with extra arguments; `None` if they are not such calls.
    fn call_with_extra(&mut self, kept: Inst, original: Inst) -> Option<Result<(), Mismatch>> {
        use InstructionData as I;
        use Opcode as O;
        let Claim { kept: a, original: b, .. } = *self.claim;
        let (x, y) = (&a.dfg.insts[kept], &b.dfg.insts[original]);
        let lists = (&a.dfg.value_lists, &b.dfg.value_lists);
        let (I::Call { args: passed, func_ref: original_callee, .. }
        | I::TryCall { args: passed, func_ref: original_callee, .. }) = y
        else {
            return None;
        };
        let (callee, args) = match (x, x.opcode(), y.opcode()) {
            (I::Call { args, func_ref, .. }, O::Call, O::Call)
            | (I::Call { args, func_ref, .. }, O::ReturnCall, O::ReturnCall)
            | (I::TryCall { args, func_ref, .. }, O::TryCall, O::TryCall) => {
                (Callee::Direct(*func_ref), args.as_slice(lists.0))
            }
            (I::CallIndirect { args, sig_ref, .. }, O::CallIndirect, O::Call)
            | (I::CallIndirect { args, sig_ref, .. }, O::ReturnCallIndirect, O::ReturnCall) => {
                let (&callee, args) = args.as_slice(lists.0).split_first()?;
                (Callee::Indirect(callee, *sig_ref), args)
            }
            (I::TryCallIndirect { args, exception, opcode: _ }, O::TryCallIndirect, O::TryCall) => {
                let (&callee, args) = args.as_slice(lists.0).split_first()?;
                let signature = a.dfg.exception_tables.get(*exception)?.signature();
                (Callee::Indirect(callee, signature), args)
            }
            _ => return None,
        };
        let passed = passed.as_slice(lists.1);
        let (args, extra) = args.split_at_checked(passed.len())?;
        if let (Callee::Direct(_), []) = (&callee, extra) {
            return None;
        }
        let call = tables::callee_with_extra(self, callee, extra, *original_callee);
        let handlers = match (x, y) {
            (
                I::TryCall { exception: i, .. } | I::TryCallIndirect { exception: i, .. },
                I::TryCall { exception: j, .. },
            ) => Some((*i, *j)),
            _ => None,
        };
        Some(
            call.and_then(|()| self.stack_maps(kept, original))
                .and_then(|()| self.values(args, passed))
                .and_then(|()| match handlers {
                    Some((i, j)) => tables::handlers(self, i, j),
                    None => Ok(()),
                }),
        )
    }

    /// Two operands, which may have changed places if the operation allows it.
    fn either_order(
        &mut self,
        opcode: Opcode,
        kept: &[Value; 2],
        original: &[Value; 2],
    ) -> Result<(), Mismatch> {
        let commutes = COMMUTATIVE.contains(&opcode);
        // The trace does not record the order of such operands.
        let recorder = match commutes {
            true => {
                self.note_either_order(*original);
                self.recorder.take()
            }
            false => None,
        };
        let as_written = self.values(kept, original);
        self.recorder = recorder.or(self.recorder.take());
        match as_written {
            Err(_) if commutes => self.values(kept, &[original[1], original[0]]),
            as_written => as_written,
        }
    }

    fn stack_maps(&mut self, kept: Inst, original: Inst) -> Result<(), Mismatch> {
        let Claim { kept: a, original: b, .. } = *self.claim;
        let maps = [(a, kept), (b, original)]
            .map(|(func, inst)| func.dfg.user_stack_map_entries(inst).unwrap_or(&[]));
        self.same(&maps[0].len(), &maps[1].len(), Mismatch::StackMap)?;
        for (x, y) in maps[0].iter().zip(maps[1]) {
            let UserStackMapEntry { ty, slot, offset } = x;
            let other = (y.ty, y.slot, y.offset);
            self.same(&(*ty, *slot, *offset), &other, Mismatch::StackMap)?;
        }
        Ok(())
    }
}
