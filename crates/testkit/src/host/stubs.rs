//! Functions that call into a unit, and its imports: made in CLIF from signatures.
//!
//! Values go through slots of sixteen bytes. Neither decides anything: a stub passes its arguments
//! to a function of the host, which writes the trace and decides how the call ends.

use crate::support::parse_one;
use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::{
    AbiParam, Endianness, Function, InstBuilder as _, MemFlagsData, Signature, StackSlotData,
    StackSlotKind, TrapCode, Type, UserFuncName, Value, types,
};
use cranelift_codegen::isa::CallConv;
use cranelift_mergefunc::cranelift_codegen;

/// `(inner trampoline, function, slots, context)`: writes into the context where a trap continues,
/// and calls the inner trampoline. A callee of the `tail` convention need not restore any register
/// when an exception leaves it.
pub fn outer_trampoline() -> Function {
    parse_one(
        "function u0:0(i64, i64, i64, i64) system_v {
    sig0 = (i64, i64) tail
block0(v0: i64, v1: i64, v2: i64, v3: i64):
    jump block1
block1:
    v4 = get_exception_handler_address.i64 block1, 0
    v5 = get_stack_pointer.i64
    v6 = get_frame_pointer.i64
    store notrap v4, v3
    store notrap v5, v3+8
    store notrap v6, v3+16
    try_call_indirect v0(v1, v2), sig0, block2, [ default: block3 ]
block2:
    return
block3:
    return
}",
    )
}

/// `(function, slots)`: calls the function with arguments from the slots and leaves the results
/// there.
pub fn inner_trampoline(signature: &Signature) -> Function {
    let mut own = Signature::new(CallConv::Tail);
    own.params.extend([AbiParam::new(types::I64); 2]);
    let mut func = Function::with_name_signature(UserFuncName::default(), own);
    let callee = func.import_signature(signature.clone());
    let block = func.dfg.make_block();
    let function = func.dfg.append_block_param(block, types::I64);
    let slots = func.dfg.append_block_param(block, types::I64);
    let mut cursor = FuncCursor::new(&mut func);
    cursor.insert_block(block);
    let mut arguments = Vec::new();
    for (at, param) in signature.params.iter().enumerate() {
        let flags = slot_flags(param.value_type);
        arguments.push(cursor.ins().load(param.value_type, flags, slots, offset(at)));
    }
    let call = cursor.ins().call_indirect(callee, function, &arguments);
    for (at, result) in cursor.func.dfg.inst_results(call).to_vec().into_iter().enumerate() {
        let flags = slot_flags(signature.returns[at].value_type);
        cursor.ins().store(flags, result, slots, offset(at));
    }
    cursor.ins().return_(&[]);
    func
}

/// An import with this signature, which calls the function of the driver whose address is at
/// `function`, with the address of its data and of its slots.
pub fn import(signature: &Signature, function: u64, about: u64) -> Function {
    let mut func = Function::with_name_signature(UserFuncName::default(), signature.clone());
    let mut host = Signature::new(CallConv::SystemV);
    host.params.extend([AbiParam::new(types::I64); 2]);
    host.returns.push(AbiParam::new(types::I8));
    let host = func.import_signature(host);
    let count = signature.params.len().max(signature.returns.len()).max(1);
    let size = u32::try_from(count * SLOT_BYTES).expect("slots below 4 GiB");
    let slots = StackSlotData::new(StackSlotKind::ExplicitSlot, size, 4);
    let slots = func.create_sized_stack_slot(slots);
    let (block, leave, stop) =
        (func.dfg.make_block(), func.dfg.make_block(), func.dfg.make_block());
    let params = signature.params.iter().map(|param| param.value_type);
    let arguments: Vec<(Value, Type)> =
        params.map(|ty| (func.dfg.append_block_param(block, ty), ty)).collect();

    let mut cursor = FuncCursor::new(&mut func);
    cursor.insert_block(block);
    let slots = cursor.ins().stack_addr(types::I64, slots, 0);
    for (at, (value, ty)) in arguments.into_iter().enumerate() {
        cursor.ins().store(slot_flags(ty), value, slots, offset(at));
    }
    let function = cursor.ins().iconst(types::I64, function as i64);
    let function = cursor.ins().load(types::I64, MemFlagsData::trusted(), function, 0);
    let about = cursor.ins().iconst(types::I64, about as i64);
    let call = cursor.ins().call_indirect(host, function, &[about, slots]);
    let stopped = cursor.func.dfg.first_result(call);
    cursor.ins().brif(stopped, stop, &[], leave, &[]);
    cursor.insert_block(leave);
    let mut results = Vec::new();
    for (at, result) in signature.returns.iter().enumerate() {
        let ty = result.value_type;
        results.push(cursor.ins().load(ty, slot_flags(ty), slots, offset(at)));
    }
    cursor.ins().return_(&results);
    cursor.insert_block(stop);
    // The signal handler has the reason.
    cursor.ins().trap(TrapCode::unwrap_user(1));
    func
}

pub const SLOT_BYTES: usize = 16;

fn offset(at: usize) -> i32 {
    i32::try_from(at * SLOT_BYTES).expect("slots below 2 GiB")
}

/// Vectors are in little-endian order everywhere.
fn slot_flags(ty: Type) -> MemFlagsData {
    let mut flags = MemFlagsData::trusted();
    if ty.is_vector() {
        flags.set_endianness(Endianness::Little);
    }
    flags
}
