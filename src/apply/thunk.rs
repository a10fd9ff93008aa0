//! Thunks: in raw bytes, or as functions of the IR that only call another one, for targets and
//! texts that have no jump.

use crate::extra_argument::{ExtraArgument, extended_signature};
use crate::ir::user_name;
use crate::target::{CallThunks, OptimizeFor, Target, ThunkCode};
use alloc::boxed::Box;
use alloc::vec::Vec;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::{
    ExtFuncData, Function, InstBuilder, Signature, UserExternalName, UserFuncName,
};
use cranelift_codegen::isa::CallConv;
use cranelift_codegen::packed_option::ReservedValue;

/// The thunk of a function: see [`Plan::thunk`](crate::Plan::thunk).
///
/// See the [example](crate::thunk).
#[derive(Clone, Debug)]
pub enum Thunk {
    /// In raw bytes, with relocations.
    Code(ThunkCode),
    /// As a function, to be compiled.
    Function(Box<Function>),
}

impl Thunk {
    /// The thunk of the function `symbol`, which passes these extra arguments to `to`: for modules
    /// that have names of their own for what a plan names.
    pub fn new(
        symbol: &UserExternalName,
        signature: &Signature,
        arguments: &[ExtraArgument],
        to: &UserExternalName,
        target: &Target,
        optimize: OptimizeFor,
    ) -> Thunk {
        match target.thunk_code(signature, arguments, to, optimize) {
            Some(code) => Thunk::Code(code),
            None => {
                let name = UserFuncName::User(symbol.clone());
                let how = target.call_thunks.unwrap_or_default();
                let thunk = call_thunk(name, signature, arguments, to, &how);
                Thunk::Function(Box::new(thunk))
            }
        }
    }
}

/// A function that calls `to`, with these extra arguments behind its own, and returns the results:
/// a thunk for targets and texts that have no jump. For [`CallConv::Tail`] it is a tail call, as
/// long as `tail_calls` says that the back end can make one (x86-64 can with
/// `preserve_frame_pointers` only).
///
/// 14–46 bytes on x86-64, 16–52 on aarch64; it takes a frame unless it is a tail call.
///
/// See the [example](crate::thunk).
pub fn call_thunk(
    name: UserFuncName,
    signature: &Signature,
    arguments: &[ExtraArgument],
    to: &UserExternalName,
    options: &CallThunks,
) -> Function {
    let &CallThunks { tail_calls, colocated } = options;
    let mut func = Function::with_name_signature(name, signature.clone());
    let sig = func.import_signature(extended_signature(signature, arguments));
    let name = user_name(&mut func, to.clone());
    let callee =
        func.import_function(ExtFuncData { name, signature: sig, colocated, patchable: false });
    let block = func.dfg.make_block();
    let mut args = Vec::new();
    for param in &signature.params {
        args.push(func.dfg.append_block_param(block, param.value_type));
    }
    let mut cursor = FuncCursor::new(&mut func);
    cursor.insert_block(block);
    args.extend(arguments.iter().map(|argument| argument.insert(&mut cursor)));
    if tail_calls && signature.call_conv == CallConv::Tail {
        cursor.ins().return_call(callee, &args);
    } else {
        let call = cursor.ins().call(callee, &args);
        let results = cursor.func.dfg.inst_results(call).to_vec();
        cursor.ins().return_(&results);
    }
    debug_assert!(!block.is_reserved_value());
    func
}
