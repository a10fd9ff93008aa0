//! The parameterised body of several similar functions.
//!
//! It is made from the body of one of them: it gets further parameters behind its own, and at each
//! place where the functions differ it uses a parameter instead of the constant or reference. This
//! module decides nothing: the caller lists the parameters.

use super::dispatch::{self, Case};
use crate::canon::only_destination;
use crate::extra_argument::{ExtraArgument, extra_parameter, push_arguments};
use crate::ir::{called, user_name};
use crate::options::Options;
use alloc::vec::Vec;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::immediates::Offset32;
use cranelift_codegen::ir::{
    Block, Endianness, ExtFuncData, FuncRef, Function, Inst, InstBuilder, InstructionData,
    MemFlagsData, Opcode, Signature, Type, UserExternalName, UserFuncName, Value, types,
};
use cranelift_entity::EntitySet;

/// A parameter of the new body.
pub(crate) struct Parameter {
    /// The types of the arguments that are passed for it, as integers: one, or two.
    pub types: Vec<Type>,
    /// The instructions that use it, each once.
    pub places: Vec<Inst>,
    /// Calls whose callee is dispatched by this parameter, each once, with the cases.
    pub dispatches: Vec<(Inst, Vec<Case>)>,
}

/// Replaces the branches of `func` that always go the same way by jumps, as the canonical walk
/// does: the operands of their conditions may become parameters. Returns whether there are any.
/// Linear in the number of blocks.
pub(super) fn fold_branches(func: &mut Function) -> bool {
    let Some(entry) = func.layout.entry_block() else {
        return false;
    };
    let mut any = false;
    let mut reached: EntitySet<Block> = EntitySet::new();
    let mut queue = alloc::vec![entry];
    reached.insert(entry);
    while let Some(block) = queue.pop() {
        let Some(last) = func.layout.last_inst(block) else {
            continue;
        };
        if let Some(&destination) = only_destination(&func.dfg, &func.dfg.insts[last], |_| true) {
            any |= func.dfg.insts[last].opcode() != Opcode::Jump;
            func.dfg.insts[last] = InstructionData::Jump { opcode: Opcode::Jump, destination };
        }
        let insts = &func.dfg.insts[last];
        for call in insts.branch_destination(&func.dfg.jump_tables, &func.dfg.exception_tables) {
            let block = call.block(&func.dfg.value_lists);
            if reached.insert(block) {
                queue.push(block);
            }
        }
    }
    any
}

/// Turns `func` into the parameterised body under `symbol`, with these parameters. `recursive` are
/// its direct calls of itself, which pass on the extra arguments that it received.
pub(super) fn parameterise(
    func: &mut Function,
    symbol: &UserExternalName,
    parameters: &[Parameter],
    recursive: &[Inst],
    options: &Options<'_>,
) {
    func.name = UserFuncName::User(symbol.clone());
    let types = parameters.iter().flat_map(|parameter| &parameter.types).copied();
    let passed_as = options.passed_as(&func.signature, types);
    let passed: Vec<Value> = passed_as.into_iter().map(|ty| add_parameter(func, ty)).collect();
    let mut first = 0;
    for parameter in parameters {
        let passed = &passed[first..first + parameter.types.len()];
        first += parameter.types.len();
        let as_passed: Vec<bool> =
            parameter.places.iter().map(|&place| is_passed(func, place, passed[0])).collect();
        let mut integers: Vec<Value> = Vec::new();
        if as_passed.contains(&false) || !parameter.dispatches.is_empty() {
            let types = passed.iter().zip(&parameter.types);
            integers.extend(types.map(|(&value, &ty)| as_integer(func, value, ty)));
        }
        for (&place, as_passed) in parameter.places.iter().zip(as_passed) {
            put(func, place, if as_passed { passed } else { &integers });
        }
        for (call, cases) in &parameter.dispatches {
            dispatch::insert_dispatch(func, *call, integers[0], cases);
        }
    }
    let mut own: Vec<(FuncRef, FuncRef)> = Vec::new();
    for &call in recursive {
        let before = called(func, call).expect("a direct call");
        let known = own.iter().find(|(known, _)| *known == before);
        let after = match known {
            Some(&(_, after)) => after,
            None => {
                let after = import(func, before, symbol);
                own.push((before, after));
                after
            }
        };
        push_arguments(func, call, after, &passed);
    }
}

/// A further parameter of a function, of this type.
pub(super) fn add_parameter(func: &mut Function, ty: Type) -> Value {
    let others = func.signature.params.len();
    func.signature.params.push(extra_parameter(ty, others));
    let entry = func.layout.entry_block().expect("was walked");
    func.dfg.append_block_param(entry, ty)
}

/// Extra arguments as they are passed behind the arguments of functions of this signature.
pub(super) fn as_passed(
    arguments: Vec<ExtraArgument>,
    signature: &Signature,
    options: &Options<'_>,
) -> Vec<ExtraArgument> {
    let types = options.passed_as(signature, arguments.iter().map(ExtraArgument::ty));
    arguments.into_iter().zip(types).map(|(argument, ty)| argument.passed_as(ty)).collect()
}

/// Whether an instruction only computes a constant or a reference, of the type of a value that is
/// passed for it.
fn is_passed(func: &Function, place: Inst, passed: Value) -> bool {
    let [result] = func.dfg.inst_results(place) else {
        return false;
    };
    holds_value(&func.dfg.insts[place])
        && func.dfg.value_type(*result) == func.dfg.value_type(passed)
}

/// The value that was passed as `passed`, as an integer of this type, at the start of the function.
pub(super) fn as_integer(func: &mut Function, passed: Value, ty: Type) -> Value {
    let passed_as = func.dfg.value_type(passed);
    if passed_as == ty {
        return passed;
    }
    let entry = func.layout.entry_block().expect("was walked");
    let mut cursor = FuncCursor::new(func).at_first_insertion_point(entry);
    let integer = cursor.ins().bitcast(passed_as.as_int(), MemFlagsData::new(), passed);
    match passed_as.bits() > ty.bits() {
        true => cursor.ins().ireduce(ty, integer),
        false => integer,
    }
}

/// A reference to the new function, with the same kind of call as `before`.
fn import(func: &mut Function, before: FuncRef, symbol: &UserExternalName) -> FuncRef {
    let ExtFuncData { name: _, signature, colocated, patchable } =
        func.dfg.ext_funcs[before].clone();
    let mut extended: Signature = func.dfg.signatures[signature].clone();
    let further = &func.signature.params[extended.params.len()..];
    extended.params.extend_from_slice(further);
    let signature = func.import_signature(extended);
    let name = user_name(func, symbol.clone());
    func.import_function(ExtFuncData { name, signature, colocated, patchable })
}

/// Whether an instruction does nothing but to compute the constant or reference that it holds.
fn holds_value(inst: &InstructionData) -> bool {
    use InstructionData as I;
    matches!(
        inst,
        I::UnaryImm { .. }
            | I::UnaryIeee16 { .. }
            | I::UnaryIeee32 { .. }
            | I::UnaryIeee64 { .. }
            | I::UnaryConst { .. }
            | I::FuncAddr { .. }
            | I::UnaryGlobalValue { .. }
    )
}

/// Makes an instruction use the first of `values`, or the first two, instead of its constant or
/// reference.
pub(super) fn put(func: &mut Function, place: Inst, values: &[Value]) {
    use InstructionData as I;
    let location = func.srcloc(place);
    match func.dfg.insts[place] {
        _ if holds_value(&func.dfg.insts[place]) => put_value(func, place, values),
        I::Load { .. } | I::Store { .. } => {
            let (I::Load { arg, .. } | I::Store { args: [_, arg], .. }) = func.dfg.insts[place]
            else {
                unreachable!();
            };
            let mut cursor = FuncCursor::new(func).at_inst(place).with_srcloc(location);
            let address = cursor.ins().iadd(arg, values[0]);
            if let I::Load { arg, offset, .. } | I::Store { args: [_, arg], offset, .. } =
                &mut func.dfg.insts[place]
            {
                (*arg, *offset) = (address, Offset32::new(0));
            }
        }
        I::StackAddr { opcode: _, stack_slot, offset: _ } => {
            let ty = func.dfg.value_type(func.dfg.first_result(place));
            let mut cursor = FuncCursor::new(func).at_inst(place).with_srcloc(location);
            let start = cursor.ins().stack_addr(ty, stack_slot, 0);
            func.replace(place).iadd(start, values[0]);
        }
        I::Call { opcode, mut args, func_ref } => {
            let sig_ref = func.dfg.ext_funcs[func_ref].signature;
            let opcode = match opcode {
                Opcode::ReturnCall => Opcode::ReturnCallIndirect,
                _ => Opcode::CallIndirect,
            };
            args.insert(0, values[0], &mut func.dfg.value_lists);
            func.dfg.insts[place] = I::CallIndirect { opcode, args, sig_ref };
        }
        I::TryCall { opcode: _, mut args, func_ref: _, exception } => {
            let opcode = Opcode::TryCallIndirect;
            args.insert(0, values[0], &mut func.dfg.value_lists);
            func.dfg.insts[place] = I::TryCallIndirect { opcode, args, exception };
        }
        _ => unreachable!("nothing else has a value"),
    }
}

/// Replaces the result of an instruction by the value of the parameter.
fn put_value(func: &mut Function, place: Inst, values: &[Value]) {
    let result = func.dfg.first_result(place);
    let ty = func.dfg.value_type(result);
    if ty == func.dfg.value_type(values[0]) {
        func.dfg.detach_inst_results(place);
        func.dfg.change_to_alias(result, values[0]);
        func.layout.remove_inst(place);
        return;
    }
    let location = func.srcloc(place);
    let little = MemFlagsData::new().with_endianness(Endianness::Little);
    let flags = if ty.is_vector() { little } else { MemFlagsData::new() };
    let mut cursor = FuncCursor::new(func).at_inst(place).with_srcloc(location);
    if ty.bits() <= 64 {
        func.replace(place).bitcast(ty, flags, values[0]);
        return;
    }
    let whole = if ty.is_vector() {
        let low = cursor.ins().scalar_to_vector(types::I64X2, values[0]);
        cursor.ins().insertlane(low, values[1], 1)
    } else {
        cursor.ins().iconcat(values[0], values[1])
    };
    if func.dfg.value_type(whole) == ty {
        func.dfg.detach_inst_results(place);
        func.dfg.change_to_alias(result, whole);
        func.layout.remove_inst(place);
    } else {
        func.replace(place).bitcast(ty, flags, whole);
    }
}
