//! The features of call thunks: functions that only call another one.
//!
//! The sizes of these are regular, so they have features of their own and hardly an error: what
//! merging costs is decided by them.

use crate::quantity::{ConstantKind, Feature, Quantity};
use crate::registers::{Location, Registers};
use alloc::vec::Vec;
use cranelift_codegen::ir::{
    FuncRef, Function, GlobalValueData, Inst, InstructionData, Opcode, Signature, Type, Value,
    ValueDef, types,
};
use cranelift_codegen::isa::CallConv;

/// An argument that a thunk passes behind its own arguments, as this type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extra {
    Constant(Type, i64),
    Address { ty: Type, near: bool, offset: bool },
}

impl Extra {
    fn ty(&self) -> Type {
        match self {
            Extra::Constant(ty, _) | Extra::Address { ty, .. } => *ty,
        }
    }
}

/// A function that calls another one with its own arguments, then with extra ones.
pub(super) struct Thunk {
    call: Inst,
    callee: FuncRef,
    extra: Vec<Extra>,
}

/// Reads a function as a call thunk, if it is one.
pub(super) fn read(func: &Function) -> Option<Thunk> {
    let block = func.layout.entry_block()?;
    if func.layout.next_block(block).is_some() {
        return None;
    }
    let mut insts = func.layout.block_insts(block).rev();
    let last = insts.next()?;
    let call = match func.dfg.insts[last].opcode() {
        Opcode::ReturnCall => last,
        Opcode::Return => {
            let call = insts.next()?;
            let same = func.dfg.inst_args(last) == func.dfg.inst_results(call);
            (same && func.dfg.insts[call].opcode() == Opcode::Call).then_some(call)?
        }
        _ => return None,
    };
    let InstructionData::Call { func_ref: callee, .. } = func.dfg.insts[call] else {
        return None;
    };
    if !insts.all(|inst| extra(func, inst).is_some()) {
        return None;
    }
    let params = func.dfg.block_params(block);
    let (own, rest) = func.dfg.inst_args(call).split_at_checked(params.len())?;
    if own != params {
        return None;
    }
    let defined = |&value: &Value| match func.dfg.value_def(value) {
        ValueDef::Result(inst, _) => extra(func, inst),
        _ => None,
    };
    let extra = rest.iter().map(defined).collect::<Option<Vec<Extra>>>()?;
    Some(Thunk { call, callee, extra })
}

fn extra(func: &Function, inst: Inst) -> Option<Extra> {
    let ty = func.dfg.value_type(*func.dfg.inst_results(inst).first()?);
    match func.dfg.insts[inst] {
        InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => {
            Some(Extra::Constant(ty, imm.bits()))
        }
        InstructionData::UnaryIeee32 { opcode: _, imm } => {
            Some(Extra::Constant(ty, imm.bits().into()))
        }
        InstructionData::UnaryIeee64 { opcode: _, imm } => {
            Some(Extra::Constant(ty, imm.bits() as i64))
        }
        InstructionData::LoadNoOffset { opcode: Opcode::Bitcast, arg, flags: _ } => {
            address(func, func.dfg.value_def(arg).inst()?, ty)
        }
        _ => address(func, inst, ty),
    }
}

/// An address that an instruction computes, passed as this type.
fn address(func: &Function, inst: Inst, ty: Type) -> Option<Extra> {
    match func.dfg.insts[inst] {
        InstructionData::FuncAddr { func_ref, .. } => {
            Some(Extra::Address { ty, near: func.dfg.ext_funcs[func_ref].colocated, offset: false })
        }
        InstructionData::UnaryGlobalValue { opcode: Opcode::SymbolValue, global_value } => {
            match func.global_values[global_value] {
                GlobalValueData::Symbol { offset, colocated, .. } => {
                    Some(Extra::Address { ty, near: colocated, offset: offset.bits() != 0 })
                }
                _ => None,
            }
        }
        _ => None,
    }
}

impl Thunk {
    /// Hands out the features.
    pub fn features(
        &self,
        func: &Function,
        registers: &Registers,
        count: &mut impl FnMut(Feature, u32),
    ) {
        let Thunk { call, callee, extra } = self;
        let mut add = |quantity, by| count(Feature::Quantity(quantity), by);
        let signature: &Signature = &func.dfg.signatures[func.dfg.ext_funcs[*callee].signature];
        let tail_call = func.dfg.insts[*call].opcode() == Opcode::ReturnCall;
        add(if tail_call { Quantity::TailThunk } else { Quantity::Thunk }, 1);
        let words = registers.stack_words(signature);
        // The stack is aligned to two words. A tail call that needs more of it than the thunk was
        // given moves the frame.
        let grows = words.div_ceil(2) > registers.stack_words(&func.signature).div_ceil(2);
        let mut taken = registers.taken(signature.call_conv);
        let own = func.signature.params.len();
        // Words on the stack that need no register of their own.
        let mut shared = 0;
        for (at, param) in signature.params.iter().enumerate() {
            let location = taken.place(param);
            if let Location::Stack(16..) = location {
                add(Quantity::ThunkFarArgument, 1);
            }
            match (at.checked_sub(own), location) {
                (None, Location::Register(_)) => {}
                (None, Location::Stack(before)) => {
                    add(Quantity::ThunkStackArgument, taken.words - before);
                }
                (Some(at), location) => {
                    // Of addresses it is not known which symbols they are of.
                    let repeated = matches!(extra[at], Extra::Constant(..))
                        && extra[..at].contains(&extra[at]);
                    if let Location::Stack(_) = location
                        && repeated
                    {
                        shared += 1;
                    }
                    argument(extra[at], location, repeated, &mut add);
                }
            }
        }
        // Arguments on the stack are all in registers at once.
        let more = words.saturating_sub(shared + registers.scratch);
        add(Quantity::ThunkSavedRegister, more.min(registers.saved));
        add(Quantity::ThunkSpill, more.saturating_sub(registers.saved));
        if words > 0 {
            let quantity = match (tail_call, signature.call_conv) {
                (true, _) if grows => Quantity::ThunkGrows,
                (true, _) => Quantity::ThunkInPlace,
                (false, CallConv::Tail) => Quantity::ThunkTailArea,
                (false, _) => Quantity::ThunkArea,
            };
            add(quantity, 1);
        }
        let results = signature.returns.len() as u32;
        add(Quantity::ThunkResult, results.min(2));
        add(Quantity::ThunkStackResult, results.saturating_sub(2));
    }
}

fn argument(extra: Extra, location: Location, repeated: bool, add: &mut impl FnMut(Quantity, u32)) {
    let ty = extra.ty();
    let in_float = !ty.is_int() && matches!(location, Location::Register(_));
    if in_float {
        match extra {
            Extra::Constant(_, 0) => return add(Quantity::ThunkFloatZero, 1),
            Extra::Constant(..) if repeated => return add(Quantity::ThunkFloatRepeated, 1),
            Extra::Constant(..) | Extra::Address { .. } => {}
        }
        let long = ty.bits() > 32;
        add(if long { Quantity::ThunkToLongFloat } else { Quantity::ThunkToFloat }, 1);
    }
    let stack = matches!(location, Location::Stack(_));
    let by_place = |register, on_stack| if stack { on_stack } else { register };
    match extra {
        Extra::Constant(ty, bits) => {
            let kind = ConstantKind::of(types::I64, masked(ty, bits));
            let quantity = match kind {
                _ if stack && repeated => Quantity::ThunkStackRepeated,
                ConstantKind::Zero => by_place(Quantity::ThunkZero, Quantity::ThunkStackZero),
                _ if repeated => Quantity::ThunkRepeated,
                ConstantKind::Wide => by_place(Quantity::ThunkWide, Quantity::ThunkStackWide),
                _ if ty.bits() == 64 && bits < 0 => {
                    by_place(Quantity::ThunkSigned, Quantity::ThunkStackSigned)
                }
                _ => by_place(Quantity::ThunkUnsigned, Quantity::ThunkStackUnsigned),
            };
            add(quantity, 1);
            let short = matches!(quantity, Quantity::ThunkZero | Quantity::ThunkUnsigned);
            if let Location::Register(4..) = location
                && short
                && !in_float
            {
                add(Quantity::ThunkPrefix, 1);
            }
            if !repeated {
                add(Quantity::ThunkHalf, halves(ty, bits).saturating_sub(1));
            }
        }
        Extra::Address { ty: _, near, offset } => {
            let quantity = match near {
                true => by_place(Quantity::ThunkNear, Quantity::ThunkStackNear),
                false => by_place(Quantity::ThunkFar, Quantity::ThunkStackFar),
            };
            add(quantity, 1);
            if offset {
                add(by_place(Quantity::ThunkOffset, Quantity::ThunkStackOffset), 1);
            }
        }
    }
}

/// The bits that a type has.
fn masked(ty: Type, bits: i64) -> i64 {
    let unused = 64u32.saturating_sub(ty.bits());
    ((bits as u64) << unused >> unused) as i64
}

/// The half-words that instructions must hold: those that are not zero, or not all ones, whichever
/// are fewer.
fn halves(ty: Type, bits: i64) -> u32 {
    let bits = masked(ty, bits) as u64;
    let of = if ty.bits() > 32 { 4 } else { 2 };
    let count =
        |plain: u64| (0..of).filter(|at| bits >> (16 * at) & 0xffff != plain).count() as u32;
    count(0).min(count(0xffff))
}
