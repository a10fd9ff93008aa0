//! Questions about Cranelift's IR that have nothing to do with merging: names, callees, uses of addresses.

use cranelift_codegen::ir::{
    ExternalName, FuncRef, Function, Inst, InstructionData, Opcode, UserExternalName,
    UserExternalNameRef,
};
use cranelift_entity::EntityRef;

pub(crate) fn user_symbol<'a>(
    func: &'a Function,
    name: &ExternalName,
) -> Option<&'a UserExternalName> {
    match name {
        ExternalName::User(name_ref) => func.params.user_named_funcs().get(*name_ref),
        _ => None,
    }
}

/// The name of a symbol, in the tables of a function.
pub(crate) fn user_name(func: &mut Function, symbol: UserExternalName) -> ExternalName {
    let name_ref: UserExternalNameRef = func.params.ensure_user_func_name(symbol);
    ExternalName::User(name_ref)
}

/// The function that an instruction calls directly.
pub(crate) fn called(func: &Function, inst: Inst) -> Option<FuncRef> {
    called_by(&func.dfg.insts[inst])
}

/// The same of what an instruction is.
#[inline]
pub(crate) fn called_by(data: &InstructionData) -> Option<FuncRef> {
    match *data {
        InstructionData::Call { opcode: _, args: _, func_ref }
        | InstructionData::TryCall { opcode: _, args: _, func_ref, exception: _ } => Some(func_ref),
        _ => None,
    }
}

/// The function references whose addresses instructions of `func` take, unreachable ones included.
pub(crate) fn address_uses(func: &Function) -> impl Iterator<Item = FuncRef> + '_ {
    (0..func.dfg.num_insts()).filter_map(|index| match func.dfg.insts[Inst::new(index)] {
        InstructionData::FuncAddr { opcode: _, func_ref } => Some(func_ref),
        _ => None,
    })
}

/// Whether a function can observe its caller. Linear in its size.
pub(crate) fn observes_its_frame(func: &Function) -> bool {
    let mut insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
    insts.any(|inst| {
        let opcode = func.dfg.insts[inst].opcode();
        matches!(opcode, Opcode::GetReturnAddress | Opcode::GetFramePointer)
    })
}
