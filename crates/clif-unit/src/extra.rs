//! Extra arguments of parameterised bodies: as text, and read off a call thunk.

use crate::unit::Names;
use cranelift_codegen::ir::{
    ExternalName, Function, GlobalValueData, Inst, InstructionData, Opcode, Type, Value,
};
use cranelift_mergefunc::{ExtraArgument, cranelift_codegen};

/// Extra arguments as text for a person: types and numbers, in bits where these are passed as
/// floating-point numbers, or names and offsets in bytes. Empty if there are none.
pub fn text(arguments: &[ExtraArgument], names: &Names) -> String {
    let one = |argument: &ExtraArgument| match argument {
        ExtraArgument::Constant { ty, bits } if !ty.is_int() => format!("{ty} {bits:#x}"),
        ExtraArgument::Constant { ty, bits } => {
            // As the text has them: signed.
            let unused = 64 - ty.bits();
            format!("{ty} {}", (bits << unused) as i64 >> unused)
        }
        ExtraArgument::Function { symbol, .. }
        | ExtraArgument::Address { symbol, offset: 0, .. } => names.display(symbol),
        ExtraArgument::Address { symbol, offset, .. } => {
            format!("{}{offset:+}", names.display(symbol))
        }
    };
    arguments.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The extra arguments that a function which calls another one passes behind its own parameters, up
/// to the first that is neither a constant nor an address. For a call thunk these are all.
pub fn extra(func: &Function) -> Vec<ExtraArgument> {
    let insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
    let mut calls = insts
        .filter(|&inst| matches!(func.dfg.insts[inst].opcode(), Opcode::Call | Opcode::ReturnCall));
    let passed = calls.next().map_or(&[][..], |call| func.dfg.inst_args(call));
    let extra = passed.get(func.signature.params.len()..).unwrap_or(&[]);
    extra.iter().map_while(|&value| argument(func, value)).collect()
}

/// A constant or an address that a function computes, passed as it is or as a floating-point number
/// of the same bits.
fn argument(func: &Function, value: Value) -> Option<ExtraArgument> {
    let passed_as = func.dfg.value_type(value);
    let inst = func.dfg.value_def(value).inst()?;
    let constant = |bits: u64| Some(ExtraArgument::Constant { ty: passed_as, bits });
    match func.dfg.insts[inst] {
        InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => constant(imm.bits() as u64),
        InstructionData::UnaryIeee32 { opcode: _, imm } => constant(imm.bits().into()),
        InstructionData::UnaryIeee64 { opcode: _, imm } => constant(imm.bits()),
        InstructionData::LoadNoOffset { opcode: Opcode::Bitcast, arg, flags: _ } => {
            address(func, func.dfg.value_def(arg).inst()?, passed_as)
        }
        _ => address(func, inst, passed_as),
    }
}

/// An address that an instruction computes.
fn address(func: &Function, inst: Inst, ty: Type) -> Option<ExtraArgument> {
    let user = |name: &ExternalName| match name {
        ExternalName::User(name) => func.params.user_named_funcs().get(*name).cloned(),
        _ => None,
    };
    match func.dfg.insts[inst] {
        InstructionData::FuncAddr { opcode: _, func_ref } => {
            let callee = &func.dfg.ext_funcs[func_ref];
            Some(ExtraArgument::Function {
                ty,
                symbol: user(&callee.name)?,
                signature: func.dfg.signatures[callee.signature].clone().into(),
                colocated: callee.colocated,
            })
        }
        InstructionData::UnaryGlobalValue { opcode: Opcode::SymbolValue, global_value } => {
            match &func.global_values[global_value] {
                GlobalValueData::Symbol { name, offset, colocated, tls: false } => {
                    Some(ExtraArgument::Address {
                        ty,
                        symbol: user(name)?,
                        offset: offset.bits(),
                        colocated: *colocated,
                    })
                }
                _ => None,
            }
        }
        _ => None,
    }
}
