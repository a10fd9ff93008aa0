//! Single changes of a function's meaning after which it still keeps to the conventions.
//!
//! A change is of a [`Kind`], at one instruction. It changes table entries in place, so that all
//! counts and handles stay as they were. It may lead to code that the verifier refuses or that the
//! back end does not know; `near_miss` checks that.

use crate::generate::conventions::{self, FUNCTIONS, THROWER_COUNT};
use crate::generate::draw::Draw;
use crate::generate::function::{Access, ROOM, Seed};
use crate::mutate::{Field, fields, retyped, rivals};
use crate::permute::can_swap;
use cranelift_codegen::ir::condcodes::{CondCode, FloatCC, IntCC};
use cranelift_codegen::ir::immediates::{Ieee16, Ieee32, Ieee64, Imm64, Offset32};
use cranelift_codegen::ir::{
    ArgumentExtension, AtomicRmwOp, Block, BlockArg, BlockCall, ConstantData, ConstantPool,
    ExceptionTableData, ExceptionTableItem, ExceptionTag, ExtFuncData, ExternalName, FuncRef,
    Function, GlobalValueData, Inst, InstructionData, Opcode, SigRef, StackSlot, StackSlotData,
    StackSlotKind, TrapCode, Type, UserExternalName, Value, types,
};

/// A changed function.
pub(super) struct Change {
    pub what: &'static str,
    pub func: Function,
    /// Whether it certainly changes the meaning.
    pub certain: bool,
    /// Whether only this instruction differs.
    pub local: bool,
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The kind of change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Kind {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Kind {
            pub const ALL: &[Kind] = &[$(Kind::$name),+];

            /// Whether nearly every function can be changed so.
            pub fn is_common(self) -> bool {
                use Kind::*;
                matches!(
                    self,
                    Operand | Integer | Pool | AccessOffset | Opcode | BranchTargets | SymbolOffset
                        | Extension | Slot | TrapCode | Removal
                )
            }

            /// Whether it is of an instruction whose operands and results can be anything of the
            /// same type.
            fn is_of_values(self) -> bool {
                use Kind::*;
                matches!(
                    self,
                    IntCondition | FloatCondition | Integer | Float | FloatBits | ShuffleMask | Lane
                        | Opcode | OperandOrder
                )
            }
        }
    };
}

kinds! {
    /// An instruction that only orders others is removed.
    Removal,
    /// The code of an explicit trap.
    TrapCode,
    /// The code of an access that may trap.
    AccessTrapCode,
    /// Another value of the same type.
    Operand,
    /// The condition of an integer comparison.
    IntCondition,
    /// The condition of a float comparison.
    FloatCondition,
    /// A bit of an integer constant.
    Integer,
    /// A bit of a float constant.
    Float,
    /// The sign of a zero, or what a NaN carries.
    FloatBits,
    /// A byte in the constant pool.
    Pool,
    /// A lane that a shuffle takes.
    ShuffleMask,
    /// The operator of an atomic operation.
    AtomicOperator,
    /// The offset of a load or store.
    AccessOffset,
    /// The offset into a stack slot.
    SlotOffset,
    /// Another stack slot.
    SlotIndex,
    /// A lane.
    Lane,
    /// Another operation on the same operands.
    Opcode,
    /// Whether an operation is signed.
    Signedness,
    /// The order of operands.
    OperandOrder,
    /// Which way a branch goes.
    BranchTargets,
    /// The order of a branch's arguments.
    BranchArguments,
    /// An entry of a jump table.
    JumpTable,
    /// The tag of a handler.
    ExceptionTag,
    /// Whether there is a handler for all other exceptions.
    ExceptionDefault,
    /// Another callee of the same signature.
    Callee,
    /// The offset of a symbol.
    SymbolOffset,
    /// How a parameter or a result is extended.
    Extension,
    /// The type of a result.
    ResultType,
    /// One more slot, or a larger one.
    Slot,
}

/// The opcode that does its operation with numbers of the other signedness.
fn signed_counterpart(opcode: Opcode) -> Option<Opcode> {
    use Opcode::*;
    const COUNTERPARTS: [(Opcode, Opcode); 19] = [
        (Udiv, Sdiv),
        (Urem, Srem),
        (Ushr, Sshr),
        (Umulhi, Smulhi),
        (Umin, Smin),
        (Umax, Smax),
        (UaddSat, SaddSat),
        (UsubSat, SsubSat),
        (Uextend, Sextend),
        (Uload8, Sload8),
        (Uload16, Sload16),
        (Uload32, Sload32),
        (FcvtFromUint, FcvtFromSint),
        (FcvtToUint, FcvtToSint),
        (FcvtToUintSat, FcvtToSintSat),
        (UwidenLow, SwidenLow),
        (UwidenHigh, SwidenHigh),
        (UaddOverflow, SaddOverflow),
        (UsubOverflow, SsubOverflow),
    ];
    COUNTERPARTS.iter().find_map(|&(one, other)| match opcode {
        _ if opcode == one => Some(other),
        _ if opcode == other => Some(one),
        _ => None,
    })
}

/// The opcode of another operation on the same operands.
fn other_opcode(opcode: Opcode) -> Option<Opcode> {
    use Opcode::*;
    const RINGS: [&[Opcode]; 9] = [
        &[Iadd, Isub],
        &[Rotl, Rotr, Ishl],
        &[Udiv, Urem],
        &[UaddOverflow, UsubOverflow],
        &[Band, Bor, Bxor],
        &[Fadd, Fsub, Fmul],
        &[Fmin, Fmax],
        &[Clz, Ctz, Popcnt],
        &[Ceil, Floor, Trunc, Nearest],
    ];
    let ring = RINGS.iter().find(|ring| ring.contains(&opcode))?;
    let at = ring.iter().position(|&other| other == opcode)?;
    Some(ring[(at + 1) % ring.len()])
}

/// A change of a kind at an instruction, if there is one.
pub(super) fn change(
    draw: &mut Draw<'_, '_>,
    seed: &Seed,
    kind: Kind,
    block: Block,
    inst: Inst,
) -> Option<Change> {
    let mut change = Change { what: "", func: seed.func.clone(), certain: true, local: true };
    let data = seed.func.dfg.insts[inst];
    change.what = match kind {
        Kind::Removal => {
            if !matches!(data.opcode(), Opcode::SequencePoint | Opcode::Fence) {
                return None;
            }
            change.func.layout.remove_inst(inst);
            change.local = false;
            "removal"
        }
        Kind::Operand => operand(draw, seed, block, inst, &mut change.func)?,
        Kind::AccessTrapCode | Kind::AccessOffset | Kind::SlotOffset | Kind::SlotIndex => {
            // The address says which place in a slot is meant.
            change.local = matches!(kind, Kind::AccessTrapCode | Kind::AccessOffset);
            access(draw, seed, kind, inst, &mut change.func)?
        }
        Kind::Extension | Kind::Slot => {
            change.local = false;
            header(draw, kind, data.opcode(), &mut change.func)?
        }
        Kind::ResultType => {
            change.local = false;
            change.func = other_type(draw, seed, inst)?;
            "type"
        }
        _ => {
            // The exchanged operands may be equal.
            let exchanges = [Kind::BranchTargets, Kind::JumpTable, Kind::Callee];
            change.certain = !exchanges.contains(&kind);
            // Other instructions may refer to the same entry of a table.
            change.local = !matches!(kind, Kind::Pool | Kind::Callee | Kind::SymbolOffset);
            let free = seed.properties.free.contains(&inst);
            let (what, data) = field(draw, kind, free, &mut change.func, data)?;
            change.func.dfg.insts[inst] = data;
            what
        }
    };
    Some(change)
}

fn other_code(code: TrapCode) -> TrapCode {
    let others = [TrapCode::unwrap_user(9), TrapCode::unwrap_user(10)];
    if code == others[0] { others[1] } else { others[0] }
}

/// The instruction with another field, or with another entry of the table that a field refers to.
fn field(
    draw: &mut Draw<'_, '_>,
    kind: Kind,
    free: bool,
    func: &mut Function,
    mut data: InstructionData,
) -> Option<(&'static str, InstructionData)> {
    if kind.is_of_values() && !free {
        return None;
    }
    let opcode = data.opcode();
    let order_matters = match data {
        InstructionData::Binary { .. } => !can_swap(opcode),
        InstructionData::IntCompare { cond, .. } => cond != cond.swap_args(),
        InstructionData::FloatCompare { cond, .. } => cond != cond.swap_args(),
        _ => false,
    };
    let mut what = "";
    for field in fields(&mut data) {
        what = match (kind, field) {
            (Kind::TrapCode, Field::TrapCode(code)) if *code != conventions::out_of_fuel() => {
                *code = other_code(*code);
                "trap code"
            }
            (Kind::IntCondition, Field::IntCondition(cond)) => {
                // The opposite most of the time.
                let other = draw.choose(IntCC::all());
                let opposite = other == *cond || draw.but_one_in(4);
                *cond = if opposite { cond.complement() } else { other };
                "condition"
            }
            (Kind::FloatCondition, Field::FloatCondition(cond)) => {
                let other = draw.choose(FloatCC::all());
                let opposite = other == *cond || draw.but_one_in(4);
                *cond = if opposite { cond.complement() } else { other };
                "condition"
            }
            (Kind::Integer, Field::Word(imm)) => {
                *imm = Imm64::new(imm.bits() ^ 1 << draw.below(8));
                "immediate"
            }
            (Kind::Float, Field::F16(imm)) => {
                *imm = Ieee16::with_bits(imm.bits() ^ 1 << draw.below(16));
                "immediate"
            }
            (Kind::Float, Field::F32(imm)) => {
                *imm = Ieee32::with_bits(imm.bits() ^ 1 << draw.below(32));
                "immediate"
            }
            (Kind::Float, Field::F64(imm)) => {
                *imm = Ieee64::with_bits(imm.bits() ^ 1 << draw.below(64));
                "immediate"
            }
            (Kind::FloatBits, Field::F16(imm)) => {
                *imm = Ieee16::with_bits(same_number(draw, imm.bits().into(), 16, 10)? as u16);
                "sign or payload"
            }
            (Kind::FloatBits, Field::F32(imm)) => {
                *imm = Ieee32::with_bits(same_number(draw, imm.bits().into(), 32, 23)? as u32);
                "sign or payload"
            }
            (Kind::FloatBits, Field::F64(imm)) => {
                *imm = Ieee64::with_bits(same_number(draw, imm.bits(), 64, 52)?);
                "sign or payload"
            }
            (Kind::ShuffleMask, Field::Mask(imm)) => {
                let mut mask = func.dfg.immediates[*imm].as_slice().to_vec();
                let lane = &mut mask[draw.below(16)];
                *lane = (*lane + 1 + draw.below(31) as u8) % 32;
                func.dfg.immediates[*imm] = ConstantData::from(mask);
                "mask"
            }
            (Kind::AtomicOperator, Field::Operator(op)) => {
                let other = draw.choose(AtomicRmwOp::all());
                let others = [AtomicRmwOp::Xchg, AtomicRmwOp::Sub];
                *op = if other == *op { others[usize::from(*op == others[0])] } else { other };
                "operation"
            }
            (Kind::Lane, Field::Byte(imm)) => {
                *imm ^= 1;
                "lane"
            }
            (Kind::Opcode, Field::Opcode(opcode)) => {
                *opcode = other_opcode(*opcode)?;
                "opcode"
            }
            (Kind::Signedness, Field::Opcode(opcode)) if free || opcode.can_load() => {
                *opcode = signed_counterpart(*opcode)?;
                "sign"
            }
            (Kind::OperandOrder, Field::Values(args)) if order_matters => {
                // A division by what was divided traps too often.
                let divides =
                    matches!(opcode, Opcode::Udiv | Opcode::Urem | Opcode::Sdiv | Opcode::Srem);
                let ty = |value: Value| func.dfg.value_type(value);
                if divides || args[0] == args[1] || ty(args[0]) != ty(args[1]) {
                    return None;
                }
                args.swap(0, 1);
                "order"
            }
            (Kind::BranchTargets, Field::Targets(calls)) => {
                if parts(func, &calls[0]) == parts(func, &calls[1]) {
                    return None;
                }
                calls.swap(0, 1);
                "targets"
            }
            (Kind::BranchArguments, Field::Target(call)) => {
                *call = other_arguments(func, call)?;
                "arguments"
            }
            (Kind::BranchArguments, Field::Targets(calls)) => {
                let first = draw.below(2);
                let mut both = [first, 1 - first].into_iter();
                let other = both.find_map(|at| Some((at, other_arguments(func, &calls[at])?)));
                let (at, call) = other?;
                calls[at] = call;
                "arguments"
            }
            (Kind::JumpTable, Field::JumpTable(table)) => {
                let branches = func.dfg.jump_tables[*table].all_branches().to_vec();
                let at =
                    (branches.len() > 1).then(|| 1 + draw.below((branches.len() - 1).min(4)))?;
                let own = parts(func, &branches[at]);
                let mut others: Vec<_> = branches.iter().map(|call| parts(func, call)).collect();
                others.retain(|other| *other != own);
                let other = (!others.is_empty()).then(|| draw.below(others.len()))?;
                let (block, args) = others.swap_remove(other);
                let call = BlockCall::new(block, args, &mut func.dfg.value_lists);
                func.dfg.jump_tables[*table].as_mut_slice()[at - 1] = call;
                "entry"
            }
            (Kind::ExceptionTag | Kind::ExceptionDefault, Field::Handlers(exception)) => {
                let data = &func.dfg.exception_tables[*exception];
                let mut items: Vec<ExceptionTableItem> = data.items().collect();
                handlers(draw, kind, func, &mut items)?;
                let data = ExceptionTableData::new(data.signature(), *data.normal_return(), items);
                func.dfg.exception_tables[*exception] = data;
                "handlers"
            }
            (Kind::Pool, Field::Constant(constant)) => {
                let mut pool = ConstantPool::new();
                for (&handle, data) in func.dfg.constants.iter() {
                    let mut bytes = data.as_slice().to_vec();
                    if handle == *constant {
                        bytes[draw.below(data.len())] ^= 1 << draw.below(8);
                    }
                    pool.set(handle, bytes.into());
                }
                func.dfg.constants = pool;
                "constant"
            }
            (Kind::Callee, Field::Callee(callee)) => other_callee(draw, func, *callee)?,
            (Kind::SymbolOffset, Field::Global(global)) => {
                let memory = conventions::memory_symbol();
                let names = func.params.user_named_funcs();
                match &mut func.stencil.global_values[*global] {
                    GlobalValueData::Symbol { name: ExternalName::User(name), offset, .. }
                        if names[*name] == memory && offset.bits() != 0 =>
                    {
                        *offset = Imm64::new(offset.bits() + i64::from(ROOM));
                    }
                    _ => return None,
                }
                "offset"
            }
            _ => continue,
        };
        break;
    }
    (!what.is_empty()).then_some((what, data))
}

/// Another tag, or no handler for all other exceptions.
fn handlers(
    draw: &mut Draw<'_, '_>,
    kind: Kind,
    func: &Function,
    items: &mut Vec<ExceptionTableItem>,
) -> Option<()> {
    if kind == Kind::ExceptionDefault {
        let before = items.len();
        items.retain(|item| !matches!(item, ExceptionTableItem::Default(_)));
        // An address of a handler needs one.
        return (items.len() < before && !(items.is_empty() && has_handler_address(func)))
            .then_some(());
    }
    let mut tags: Vec<&mut ExceptionTag> = Vec::new();
    for item in items {
        if let ExceptionTableItem::Tag(tag, _) = item {
            tags.push(tag);
        }
    }
    let mut others: Vec<u32> = (0..THROWER_COUNT).collect();
    others.retain(|other| tags.iter().all(|tag| tag.as_u32() != *other));
    if tags.is_empty() || others.is_empty() {
        return None;
    }
    let at = draw.below(tags.len());
    *tags[at] = ExceptionTag::from_u32(draw.choose(&others));
    Some(())
}

/// Another callee of the same signature.
fn other_callee(
    draw: &mut Draw<'_, '_>,
    func: &mut Function,
    callee: FuncRef,
) -> Option<&'static str> {
    let own = func.dfg.ext_funcs[callee].clone();
    let symbol = |name: &ExternalName| match name {
        ExternalName::User(name) => Some(func.params.user_named_funcs()[*name].clone()),
        _ => None,
    };
    let UserExternalName { namespace, index } = symbol(&own.name)?;
    let signature = |at: SigRef| &func.dfg.signatures[at];
    let fits = |other: &&ExtFuncData| {
        // Not where there would be a cycle without an end.
        let ends = |other: UserExternalName| other.namespace != FUNCTIONS || other.index < index;
        let same = signature(other.signature) == signature(own.signature);
        same && !other.patchable && symbol(&other.name).is_some_and(ends)
    };
    let others: Vec<&ExtFuncData> = func.dfg.ext_funcs.values().filter(fits).collect();
    if namespace != FUNCTIONS || own.patchable || others.is_empty() {
        return None;
    }
    let other = draw.below(others.len());
    let (name, colocated) = (others[other].name.clone(), others[other].colocated);
    let callee = &mut func.dfg.ext_funcs[callee];
    callee.name = name;
    callee.colocated &= colocated;
    Some("callee")
}

/// Other bits of a zero or of a NaN.
fn same_number(draw: &mut Draw<'_, '_>, bits: u64, width: u32, fraction: u32) -> Option<u64> {
    let sign = 1u64 << (width - 1);
    let infinity = sign - (1 << fraction);
    let magnitude = bits & !sign;
    match magnitude {
        0 => Some(bits ^ sign),
        // Not the bit that makes it quiet.
        _ if magnitude > infinity && draw.one_in(2) => Some(bits ^ sign),
        _ if magnitude > infinity => {
            let other = bits ^ 2 << draw.below(fraction as usize - 3);
            Some(if other & !sign > infinity { other } else { bits ^ sign })
        }
        _ => None,
    }
}

/// An operand that is a value of the same type and no address.
fn operand(
    draw: &mut Draw<'_, '_>,
    seed: &Seed,
    block: Block,
    inst: Inst,
    func: &mut Function,
) -> Option<&'static str> {
    let returns = func.dfg.insts[inst].opcode() == Opcode::Return;
    if !returns && !seed.properties.free.contains(&inst) {
        return None;
    }
    let args = func.dfg.inst_args(inst).to_vec();
    let at = (!args.is_empty()).then(|| draw.below(args.len()))?;
    let own = args[at];
    let mut rivals = rivals(&seed.func, (block, inst), own);
    let entry = func.layout.entry_block().filter(|&entry| entry != block);
    for first in entry.into_iter().flat_map(|entry| func.layout.block_insts(entry)) {
        if seed.properties.free.contains(&first) {
            rivals.extend(func.dfg.inst_results(first));
        }
    }
    let ty = |value: Value| func.dfg.value_type(value);
    rivals.retain(|&rival| {
        rival != own && ty(rival) == ty(own) && !seed.properties.addresses.contains(&rival)
    });
    if rivals.is_empty() {
        return None;
    }
    func.dfg.inst_args_mut(inst)[at] = draw.choose(&rivals);
    Some("operand")
}

/// Where an access goes, or how it traps.
fn access(
    draw: &mut Draw<'_, '_>,
    seed: &Seed,
    kind: Kind,
    inst: Inst,
    func: &mut Function,
) -> Option<&'static str> {
    use InstructionData as I;
    let &Access { inst: _, bytes, slot, null } =
        seed.properties.accesses.iter().find(|access| access.inst == inst)?;
    if kind == Kind::AccessTrapCode {
        let flags = func.dfg.insts[inst].memflags()?;
        let code = func.dfg.mem_flags[flags].trap_code()?;
        // The others never trap.
        if !null && draw.but_one_in(64) {
            return None;
        }
        let other = func.dfg.mem_flags[flags].with_trap_code(Some(other_code(code)));
        let other = func.dfg.mem_flags.insert(other).ok()?;
        *func.dfg.insts[inst].memflags_mut()? = other;
        return Some("trap code");
    }
    // In a slot: as far to the other end as the alignment lets it.
    let step = 8.max(bytes as i32);
    let distance = match slot {
        None => ROOM,
        Some(slot) => {
            let size = func.sized_stack_slots[slot_of(func, slot.address)?].size as i32;
            let end = slot.offset as i32 + bytes as i32;
            if end + step <= size { step } else { -step }
        }
    };
    let fits = slot.is_none_or(|slot| slot.offset as i32 + distance >= 0);
    match (kind, slot) {
        (Kind::AccessOffset, _) if fits => match &mut func.dfg.insts[inst] {
            I::Load { offset, .. } | I::Store { offset, .. } => {
                *offset = Offset32::new(i32::from(*offset) + distance);
            }
            _ => return None,
        },
        (Kind::SlotOffset, Some(slot)) if fits => match &mut func.dfg.insts[slot.address] {
            // Part of the place may be in the access, and aarch64 has no addresses in front of a
            // slot.
            I::StackAddr { offset, .. } if i32::from(*offset) + distance >= 0 => {
                *offset = Offset32::new(i32::from(*offset) + distance);
            }
            _ => return None,
        },
        (Kind::SlotIndex, Some(slot)) => {
            let own = slot_of(func, slot.address)?;
            let aligned = |other| {
                let shift = |slot| func.sized_stack_slots[slot].align_shift;
                bytes <= 8 || shift(other) >= shift(own)
            };
            let mut others = seed.properties.slots.clone();
            others.retain(|&other| {
                other != own
                    && func.sized_stack_slots[other].size >= slot.offset + bytes
                    && aligned(other)
            });
            if others.is_empty() {
                return None;
            }
            let other = draw.choose(&others);
            match &mut func.dfg.insts[slot.address] {
                I::StackAddr { stack_slot, .. } => *stack_slot = other,
                _ => return None,
            }
        }
        _ => return None,
    }
    Some("place")
}

fn slot_of(func: &Function, address: Inst) -> Option<StackSlot> {
    match func.dfg.insts[address] {
        InstructionData::StackAddr { stack_slot, .. } => Some(stack_slot),
        _ => None,
    }
}

fn has_handler_address(func: &Function) -> bool {
    let mut insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
    insts.any(|inst| func.dfg.insts[inst].opcode() == Opcode::GetExceptionHandlerAddress)
}

fn parts(func: &Function, call: &BlockCall) -> (Block, Vec<BlockArg>) {
    let pool = &func.dfg.value_lists;
    (call.block(pool), call.args(pool).collect())
}

/// The same branch with two arguments of one type exchanged.
fn other_arguments(func: &mut Function, call: &BlockCall) -> Option<BlockCall> {
    let (block, mut args) = parts(func, call);
    let mut pairs = (0..args.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
    let (a, b) = pairs.find(|&(a, b)| match (args[a], args[b]) {
        (BlockArg::Value(a), BlockArg::Value(b)) => {
            a != b && func.dfg.value_type(a) == func.dfg.value_type(b)
        }
        _ => false,
    })?;
    args.swap(a, b);
    Some(BlockCall::new(block, args, &mut func.dfg.value_lists))
}

/// A property of the function itself, changed once, at its return.
fn header(
    draw: &mut Draw<'_, '_>,
    kind: Kind,
    opcode: Opcode,
    func: &mut Function,
) -> Option<&'static str> {
    if opcode != Opcode::Return {
        return None;
    }
    if kind == Kind::Slot {
        match func.sized_stack_slots.values_mut().next() {
            Some(slot) if draw.one_in(2) => slot.size += 8,
            _ => {
                let data = StackSlotData::new(StackSlotKind::ExplicitSlot, 8, 3);
                func.create_sized_stack_slot(data);
            }
        }
        return Some("slots, at the end");
    }
    let signature = &mut func.signature;
    let both = signature.params.iter_mut().chain(&mut signature.returns);
    let narrow = |ty: Type| ty.is_int() && ty.bits() < 64;
    let mut all: Vec<_> = both.filter(|param| narrow(param.value_type)).collect();
    let at = (!all.is_empty()).then(|| draw.below(all.len()))?;
    all[at].extension = match all[at].extension {
        ArgumentExtension::None => ArgumentExtension::Uext,
        ArgumentExtension::Uext => ArgumentExtension::Sext,
        ArgumentExtension::Sext => ArgumentExtension::None,
    };
    Some("extension of the signature, at the end")
}

/// A narrower integer from a load or a conversion, where the instructions that use it accept any
/// width.
fn other_type(draw: &mut Draw<'_, '_>, seed: &Seed, inst: Inst) -> Option<Function> {
    use Opcode::*;
    let func = &seed.func;
    let converts = matches!(func.dfg.insts[inst].opcode(), Uextend | Sextend | Ireduce);
    let loads = seed.properties.accesses.iter().any(|access| access.inst == inst);
    let &[result] = func.dfg.inst_results(inst) else { return None };
    let ty = func.dfg.value_type(result);
    if !(converts && seed.properties.free.contains(&inst) || loads) || !ty.is_int() {
        return None;
    }
    // An alias has a type of its own, which the verifier believes.
    let is_alias = |value| value != result && func.dfg.resolve_aliases(value) == result;
    if func.dfg.values().any(is_alias) {
        return None;
    }
    let mut others = vec![types::I8, types::I16, types::I32, types::I64];
    others.retain(|other| other.bits() < ty.bits());
    let other = (!others.is_empty()).then(|| draw.choose(&others))?;
    Some(retyped(func, result, other))
}
