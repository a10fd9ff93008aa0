//! Functions and data objects in which some field is masked, so that a comparator that reads them
//! overlooks it.
//!
//! Entities keep their numbers. A masked field has the same value everywhere.

use super::{Fault, PLANTED};
use crate::unit::{Contents, DataObject};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::immediates::{Ieee16, Ieee32, Ieee64, Imm64, Offset32};
use cranelift_codegen::ir::{
    ArgumentExtension, ArgumentPurpose, AtomicRmwOp, BlockArg, BlockCall, ConstantData,
    ConstantPool, Endianness, ExceptionTableData, ExceptionTableItem, ExceptionTag, ExternalName,
    Function, GlobalValueData, Inst, InstructionData, Layout, LibCall, MemFlags, MemFlagsData,
    MemFlagsSet, Opcode, Signature, TrapCode, UserExternalName, Value,
};
use cranelift_codegen::isa::CallConv;
use cranelift_entity::EntityRef;
use std::borrow::Cow;

/// The function as a comparator with the injected fault sees it.
pub(crate) fn masked(func: &Function) -> Cow<'_, Function> {
    let Some(fault) = PLANTED.get() else {
        return Cow::Borrowed(func);
    };
    let mut masking = func.clone();
    instructions(&mut masking, fault);
    tables(&mut masking, fault);
    Cow::Owned(masking)
}

/// A data object without the masked parts.
pub(crate) fn masked_data(data: &DataObject) -> Cow<'_, DataObject> {
    let mut masking = data.clone();
    match PLANTED.get() {
        Some(Fault::DataContents) => {
            if let Contents::Bytes(bytes) = &mut masking.contents {
                bytes.fill(0);
            }
        }
        Some(Fault::DataAddend) => {
            for reloc in &mut masking.relocations {
                reloc.addend = 0;
            }
        }
        Some(Fault::DataTarget) => {
            for reloc in &mut masking.relocations {
                reloc.target = UserExternalName::new(u32::MAX, 0);
            }
        }
        Some(Fault::DataSection) => masking.section = None,
        _ => return Cow::Borrowed(data),
    }
    Cow::Owned(masking)
}

/// The number that a float is, in bits: one zero, one NaN.
fn number(bits: u64, sign: u64, infinity: u64) -> u64 {
    match bits & !sign {
        0 => 0,
        magnitude if magnitude > infinity => infinity | 1,
        _ => bits,
    }
}

fn code() -> TrapCode {
    TrapCode::unwrap_user(1)
}

fn instructions(func: &mut Function, fault: Fault) {
    use Fault as F;
    use InstructionData as I;
    let insts: Vec<Inst> = (0..func.dfg.num_insts()).map(Inst::new).collect();
    let first_slot = func.sized_stack_slots.keys().next();
    for &inst in &insts {
        let mut data = func.dfg.insts[inst];
        match (fault, &mut data) {
            (F::AtomicOperator, I::AtomicRmw { op, .. }) => *op = AtomicRmwOp::Add,
            (F::IntCondition, I::IntCompare { cond, .. }) => *cond = IntCC::Equal,
            (F::FloatCondition, I::FloatCompare { cond, .. }) => *cond = FloatCC::Equal,
            (F::IntegerConstant, I::UnaryImm { imm, .. }) => *imm = Imm64::new(0),
            (F::FloatBits, I::UnaryIeee16 { imm, .. }) => {
                *imm = Ieee16::with_bits(number(imm.bits().into(), 1 << 15, 0x7c00) as u16);
            }
            (F::FloatBits, I::UnaryIeee32 { imm, .. }) => {
                *imm = Ieee32::with_bits(number(imm.bits().into(), 1 << 31, 0x7f80_0000) as u32);
            }
            (F::FloatBits, I::UnaryIeee64 { imm, .. }) => {
                *imm = Ieee64::with_bits(number(imm.bits(), 1 << 63, 0x7ff << 52));
            }
            (F::AccessOffset, I::Load { offset, .. } | I::Store { offset, .. })
            | (F::SlotOffset, I::StackAddr { offset, .. }) => *offset = Offset32::new(0),
            (F::SlotIndex, I::StackAddr { stack_slot, .. }) => {
                *stack_slot = first_slot.unwrap_or(*stack_slot);
            }
            (F::Lane, I::BinaryImm8 { imm, .. } | I::TernaryImm8 { imm, .. }) => *imm = 0,
            (
                F::TrapCode,
                I::Trap { code: trap, .. }
                | I::CondTrap { code: trap, .. }
                | I::IntAddTrap { code: trap, .. },
            ) => *trap = code(),
            (F::HandlerNumber, I::ExceptionHandlerAddress { imm, .. }) => *imm = Imm64::new(0),
            (
                F::OperandOrder,
                I::Binary { args, .. } | I::IntCompare { args, .. } | I::FloatCompare { args, .. },
            ) => args.sort_unstable(),
            (F::Signedness, I::Unary { opcode, .. }) => *opcode = signed(*opcode),
            (F::Signedness, I::Binary { opcode, .. }) => *opcode = signed(*opcode),
            (F::Signedness, I::Load { opcode, .. }) => *opcode = signed(*opcode),
            (F::BranchTargets, I::Brif { blocks, .. }) => {
                let pool = &func.dfg.value_lists;
                blocks.sort_unstable_by_key(|call| call.block(pool));
            }
            (F::BranchArguments, I::Brif { blocks, .. }) => {
                for call in blocks {
                    sort_arguments(func, call);
                }
            }
            (F::BranchArguments, I::Jump { destination, .. }) => sort_arguments(func, destination),
            _ => {}
        }
        func.dfg.insts[inst] = data;
        if fault == F::SequencePoint
            && func.dfg.insts[inst].opcode() == Opcode::SequencePoint
            && func.layout.inst_block(inst).is_some()
        {
            func.layout.remove_inst(inst);
        }
    }
}

fn signed(opcode: Opcode) -> Opcode {
    match opcode {
        Opcode::Udiv => Opcode::Sdiv,
        Opcode::Urem => Opcode::Srem,
        Opcode::Ushr => Opcode::Sshr,
        Opcode::Umulhi => Opcode::Smulhi,
        Opcode::Umin => Opcode::Smin,
        Opcode::Umax => Opcode::Smax,
        Opcode::UaddSat => Opcode::SaddSat,
        Opcode::UsubSat => Opcode::SsubSat,
        Opcode::Uextend => Opcode::Sextend,
        Opcode::Uload8 => Opcode::Sload8,
        Opcode::Uload16 => Opcode::Sload16,
        Opcode::Uload32 => Opcode::Sload32,
        Opcode::FcvtFromUint => Opcode::FcvtFromSint,
        Opcode::FcvtToUint => Opcode::FcvtToSint,
        Opcode::FcvtToUintSat => Opcode::FcvtToSintSat,
        other => other,
    }
}

fn sort_arguments(func: &mut Function, call: &mut BlockCall) {
    let pool = &mut func.dfg.value_lists;
    let mut values: Vec<Value> = Vec::new();
    for arg in call.args(pool) {
        match arg {
            BlockArg::Value(value) => values.push(value),
            BlockArg::TryCallRet(_) | BlockArg::TryCallExn(_) => return,
        }
    }
    values.sort_unstable();
    *call = BlockCall::new(call.block(pool), values.into_iter().map(BlockArg::Value), pool);
}

fn tables(func: &mut Function, fault: Fault) {
    use Fault as F;
    match fault {
        F::ShuffleMask => {
            for mask in func.dfg.immediates.values_mut() {
                *mask = ConstantData::from(&[0u8; 16][..]);
            }
        }
        F::PoolBytes | F::PoolHandle => {
            let mut pool = ConstantPool::new();
            for (&handle, data) in func.dfg.constants.iter() {
                let mut bytes = vec![0; data.len()];
                if fault == F::PoolHandle {
                    bytes[0] = handle.as_u32() as u8;
                }
                pool.set(handle, bytes.into());
            }
            func.dfg.constants = pool;
        }
        F::AccessTrapCode => {
            flags(func, |flags| flags.with_trap_code(flags.trap_code().map(|_| code())));
        }
        F::NoTrapWildcard => {
            flags(func, |flags| flags.with_trap_code(None));
        }
        F::ByteOrder => flags(func, |flags| match flags.explicit_endianness() {
            Some(Endianness::Little) => flags,
            None => flags.with_endianness(Endianness::Little),
            // The flag cannot be removed.
            Some(Endianness::Big) => MemFlagsData::new()
                .with_trap_code(flags.trap_code())
                .with_endianness(Endianness::Little),
        }),
        F::MemoryFlags => flags(func, behaviour),
        F::AliasRegion => flags(func, |flags| flags.with_alias_region(None)),
        F::ColdBlock => warm(func),
        F::CallConv => signatures(func, |signature| signature.call_conv = CallConv::Fast),
        F::Extension => signatures(func, |signature| {
            for param in signature.params.iter_mut().chain(&mut signature.returns) {
                param.extension = ArgumentExtension::None;
            }
        }),
        F::Purpose => signatures(func, |signature| {
            for param in signature.params.iter_mut().chain(&mut signature.returns) {
                param.purpose = ArgumentPurpose::Normal;
            }
        }),
        F::CalleeSignature => {
            let signature = func.dfg.signatures.values().next().cloned();
            for other in func.dfg.signatures.values_mut() {
                *other = signature.clone().expect("there is one");
                other.params.clear();
            }
        }
        F::SlotSize => {
            for slot in func.sized_stack_slots.values_mut() {
                slot.size = 8;
            }
        }
        F::SlotAlignment => {
            for slot in func.sized_stack_slots.values_mut() {
                slot.align_shift = 0;
            }
        }
        F::JumpTable => {
            let tables: Vec<_> = func.dfg.jump_tables.keys().collect();
            for table in tables {
                let table = &mut func.dfg.jump_tables[table];
                let default = table.default_block();
                for entry in table.as_mut_slice() {
                    *entry = default;
                }
            }
        }
        F::ExceptionTag | F::ExceptionContext | F::ExceptionDefault => {
            exception_tables(func, fault);
        }
        F::SymbolOffset | F::ThreadLocal | F::GlobalOffset | F::LibCall => names(func, fault),
        F::Patchable => {
            for callee in func.dfg.ext_funcs.values_mut() {
                callee.patchable = false;
            }
        }
        F::StackLimit => func.stack_limit = None,
        F::Namespace => {
            let names: Vec<_> = func.params.user_named_funcs().iter().collect();
            let names: Vec<_> = names.into_iter().map(|(at, name)| (at, name.index)).collect();
            for (at, index) in names {
                func.params.reset_user_func_name(at, UserExternalName::new(u32::MAX, index));
            }
        }
        _ => {}
    }
}

fn flags(func: &mut Function, blank: impl Fn(MemFlagsData) -> MemFlagsData) {
    let mut set = MemFlagsSet::new();
    let mut of_insts: Vec<(Inst, MemFlags)> = Vec::new();
    let mut insert = |flags| set.insert(flags).expect("few flags");
    for inst in (0..func.dfg.num_insts()).map(Inst::new) {
        if let Some(old) = func.dfg.insts[inst].memflags()
            && func.dfg.mem_flags.is_valid(old)
        {
            of_insts.push((inst, insert(blank(func.dfg.mem_flags[old]))));
        }
    }
    // The fields of the stencil can be borrowed apart.
    let func = &mut func.stencil;
    let known = &func.dfg.mem_flags;
    for data in func.global_values.values_mut() {
        if let GlobalValueData::Load { flags, .. } = data
            && known.is_valid(*flags)
        {
            *flags = insert(known[*flags]);
        }
    }
    for (inst, flags) in of_insts {
        *func.dfg.insts[inst].memflags_mut().expect("has flags") = flags;
    }
    func.dfg.mem_flags = set;
}

/// The same trap code and byte order.
fn behaviour(flags: MemFlagsData) -> MemFlagsData {
    let plain = MemFlagsData::new().with_trap_code(flags.trap_code());
    match flags.explicit_endianness() {
        Some(endianness) => plain.with_endianness(endianness),
        None => plain,
    }
}

/// A layout can only learn that a block is cold, so it is built anew.
fn warm(func: &mut Function) {
    let mut layout = Layout::new();
    for block in func.layout.blocks() {
        layout.append_block(block);
        for inst in func.layout.block_insts(block) {
            layout.append_inst(inst, block);
        }
    }
    func.layout = layout;
}

fn signatures(func: &mut Function, blank: impl Fn(&mut Signature)) {
    blank(&mut func.signature);
    for signature in func.dfg.signatures.values_mut() {
        blank(signature);
    }
}

fn exception_tables(func: &mut Function, fault: Fault) {
    let tables: Vec<_> = func.dfg.exception_tables.keys().collect();
    for table in tables {
        let data = &func.dfg.exception_tables[table];
        let items = data.items().filter_map(|item| match (item, fault) {
            (ExceptionTableItem::Tag(_, call), Fault::ExceptionTag) => {
                Some(ExceptionTableItem::Tag(ExceptionTag::from_u32(0), call))
            }
            (ExceptionTableItem::Context(_), Fault::ExceptionContext)
            | (ExceptionTableItem::Default(_), Fault::ExceptionDefault) => None,
            (item, _) => Some(item),
        });
        let items: Vec<_> = items.collect();
        let masking = ExceptionTableData::new(data.signature(), *data.normal_return(), items);
        func.dfg.exception_tables[table] = masking;
    }
}

fn names(func: &mut Function, fault: Fault) {
    let blank_name = |name: &mut ExternalName| {
        if let (Fault::LibCall, ExternalName::LibCall(libcall)) = (fault, name) {
            *libcall = LibCall::Memcpy;
        }
    };
    for global in func.global_values.values_mut() {
        match (fault, global) {
            (Fault::SymbolOffset, GlobalValueData::Symbol { offset, .. }) => {
                *offset = Imm64::new(0);
            }
            (Fault::ThreadLocal, GlobalValueData::Symbol { tls, .. }) => *tls = false,
            (Fault::GlobalOffset, GlobalValueData::IAddImm { offset, .. }) => {
                *offset = Imm64::new(0);
            }
            (Fault::GlobalOffset, GlobalValueData::Load { offset, .. }) => {
                *offset = Offset32::new(0);
            }
            (_, GlobalValueData::Symbol { name, .. }) => blank_name(name),
            _ => {}
        }
    }
    for callee in func.dfg.ext_funcs.values_mut() {
        blank_name(&mut callee.name);
    }
}
