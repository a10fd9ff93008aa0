//! Questions about Cranelift's IR that have nothing to do with merging: names, callees, uses of
//! addresses, comparisons.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::function::FunctionStencil;
use cranelift_codegen::ir::{
    AbiParam, DynamicStackSlotData, ExtFuncData, ExternalName, FuncRef, Function, GlobalValueData,
    Inst, InstructionData, Opcode, Signature, StackSlotData, UserExternalName, UserExternalNameRef,
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

/// About how many bytes of memory the IR of a function takes, from the sizes of its tables.
/// Constant time, but for lists of signatures and pools of constants.
pub(crate) fn table_bytes(func: &Function) -> usize {
    // An instruction has its data, its results and operands, a place in the layout, a location and
    // memory flags.
    const INSTRUCTION: usize = size_of::<InstructionData>() + 48;
    const VALUE: usize = 16;
    const BLOCK: usize = 64;
    let FunctionStencil {
        version_marker: _,
        signature,
        sized_stack_slots,
        dynamic_stack_slots,
        global_values,
        dfg,
        layout: _,     // by block and instruction
        srclocs: _,    // by instruction
        debug_tags: _, // few functions have any
        stack_limit: _,
    } = &func.stencil;
    let params = |signature: &Signature| signature.params.len() + signature.returns.len();
    let signatures = dfg.signatures.values();
    let all_params = params(signature) + signatures.map(params).sum::<usize>();
    let constants = dfg.constants.iter().map(|(_, data)| data.len() + VALUE);
    size_of::<Function>()
        + dfg.num_insts() * INSTRUCTION
        + dfg.num_values() * VALUE
        + dfg.num_blocks() * BLOCK
        + dfg.signatures.len() * size_of::<Signature>()
        + all_params * size_of::<AbiParam>()
        + dfg.ext_funcs.len() * size_of::<ExtFuncData>()
        + global_values.len() * size_of::<GlobalValueData>()
        + sized_stack_slots.len() * size_of::<StackSlotData>()
        + dynamic_stack_slots.len() * size_of::<DynamicStackSlotData>()
        + dfg.jump_tables.len() * BLOCK
        + dfg.exception_tables.len() * BLOCK
        + func.params.user_named_funcs().len() * 2 * size_of::<UserExternalName>()
        + constants.sum::<usize>()
}

/// The function that an instruction calls directly.
pub(crate) fn called(func: &Function, inst: Inst) -> Option<FuncRef> {
    called_by(&func.dfg.insts[inst])
}

/// The function that an instruction with this data calls directly.
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

/// An integer of `bits` bits, with its sign.
pub(crate) fn signed(value: u64, bits: u32) -> i64 {
    (value << (64 - bits)) as i64 >> (64 - bits)
}

/// Whether a comparison of integers of `bits` bits holds; the other bits of `a` and `b` are zero.
pub(crate) fn compare(cond: IntCC, a: u64, b: u64, bits: u32) -> bool {
    let (signed_a, signed_b) = (signed(a, bits), signed(b, bits));
    match cond {
        IntCC::Equal => a == b,
        IntCC::NotEqual => a != b,
        IntCC::SignedLessThan => signed_a < signed_b,
        IntCC::SignedGreaterThanOrEqual => signed_a >= signed_b,
        IntCC::SignedGreaterThan => signed_a > signed_b,
        IntCC::SignedLessThanOrEqual => signed_a <= signed_b,
        IntCC::UnsignedLessThan => a < b,
        IntCC::UnsignedGreaterThanOrEqual => a >= b,
        IntCC::UnsignedGreaterThan => a > b,
        IntCC::UnsignedLessThanOrEqual => a <= b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_agree_with_the_host() {
        for cond in IntCC::all() {
            for (a, b) in [(0, 0), (1, 0), (0, 1), (0xff, 1), (0x80, 0x7f), (0x7f, 0x80)] {
                let (x, y) = (a as u8, b as u8);
                let expected = match cond {
                    IntCC::Equal => x == y,
                    IntCC::NotEqual => x != y,
                    IntCC::SignedLessThan => (x as i8) < y as i8,
                    IntCC::SignedGreaterThanOrEqual => x as i8 >= y as i8,
                    IntCC::SignedGreaterThan => x as i8 > y as i8,
                    IntCC::SignedLessThanOrEqual => x as i8 <= y as i8,
                    IntCC::UnsignedLessThan => x < y,
                    IntCC::UnsignedGreaterThanOrEqual => x >= y,
                    IntCC::UnsignedGreaterThan => x > y,
                    IntCC::UnsignedLessThanOrEqual => x <= y,
                };
                assert_eq!(compare(*cond, a, b, 8), expected, "{cond} {a} {b}");
            }
        }
    }
}
