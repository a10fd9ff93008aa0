//! Names and uses of addresses in Cranelift's IR.

use cranelift_codegen::ir::{
    ExternalName, FuncRef, Function, Inst, InstructionData, UserExternalName,
};
use cranelift_entity::EntityRef;

/// The symbol of a name, if it has one.
pub(crate) fn user_symbol<'a>(
    func: &'a Function,
    name: &ExternalName,
) -> Option<&'a UserExternalName> {
    match name {
        ExternalName::User(name) => func.params.user_named_funcs().get(*name),
        ExternalName::TestCase(_) | ExternalName::LibCall(_) | ExternalName::KnownSymbol(_) => None,
    }
}

/// The function references whose addresses instructions of `func` take, unreachable ones included.
pub(crate) fn address_uses(func: &Function) -> impl Iterator<Item = FuncRef> + '_ {
    (0..func.dfg.num_insts()).filter_map(|index| match func.dfg.insts[Inst::new(index)] {
        InstructionData::FuncAddr { opcode: _, func_ref } => Some(func_ref),
        _ => None,
    })
}
