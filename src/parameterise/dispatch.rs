//! Callee dispatch: one of several direct calls, selected by a case number.
//!
//! Where similar functions call different callees, their parameterised body can receive a case number and compare
//! it: one direct call for each callee, in a chain of branches, which all continue at the same place. This module
//! decides nothing: the caller gives the callees and their case numbers.

use crate::extra_argument::push_arguments;
use crate::ir::{called, user_name};
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    Block, BlockArg, ExtFuncData, Function, Inst, InstBuilder, Opcode, Signature, UserExternalName,
    Value,
};

/// One case of a callee dispatch.
pub(crate) struct Case {
    /// The case number that selects it.
    pub bits: u64,
    pub symbol: UserExternalName,
    pub signature: Arc<Signature>,
}

/// Replaces a direct call of `func` by a dispatch among these cases, by the number `by`. The first case is the
/// present callee. Linear in the number of cases and of the instructions behind the call in its block.
pub(super) fn insert_dispatch(func: &mut Function, call: Inst, by: Value, cases: &[Case]) {
    let location = func.srcloc(call);
    let block = func.layout.inst_block(call).expect("in the layout");
    let behind = match func.dfg.insts[call].opcode() {
        Opcode::Call => Some(split_behind(func, call)),
        // These end a block.
        _ => None,
    };
    let mut calls = alloc::vec![call];
    for case in &cases[1..] {
        calls.push(clone_call(func, call, case));
    }
    func.layout.remove_inst(call);
    let mut last = block;
    let mut insert = |func: &mut Function, call: Inst| {
        let own_block = func.dfg.make_block();
        func.layout.insert_block_after(own_block, last);
        last = own_block;
        func.layout.append_inst(call, own_block);
        func.set_srcloc(call, location);
        if let Some(behind) = behind {
            let results: Vec<BlockArg> =
                func.dfg.inst_results(call).iter().map(|&result| result.into()).collect();
            let mut cursor = FuncCursor::new(func).at_bottom(own_block).with_srcloc(location);
            cursor.ins().jump(behind, &results);
        }
        own_block
    };
    let mut otherwise = insert(func, calls[0]);
    // From the last to the first, so that the block to go to when the number does not match is known.
    for case in (1..cases.len()).rev() {
        let then = insert(func, calls[case]);
        let at = match case {
            1 => block,
            _ => {
                let at = func.dfg.make_block();
                func.layout.insert_block_after(at, block);
                at
            }
        };
        let mut cursor = FuncCursor::new(func).at_bottom(at).with_srcloc(location);
        let ty = cursor.func.dfg.value_type(by);
        let condition = match cases {
            [Case { bits: 0, .. }, Case { bits: 1, .. }] => by,
            _ => {
                let number = cursor.ins().iconst(ty, cases[case].bits as i64);
                cursor.ins().icmp(IntCC::Equal, by, number)
            }
        };
        cursor.ins().brif(condition, then, &[], otherwise, &[]);
        otherwise = at;
    }
}

/// Splits the block behind the call: the rest becomes a block of its own, which receives the results of the call.
fn split_behind(func: &mut Function, call: Inst) -> Block {
    let behind = func.dfg.make_block();
    let next = func.layout.next_inst(call).expect("a call does not end a block");
    func.layout.split_block(behind, next);
    let results = func.dfg.inst_results(call).to_vec();
    let ctrl = func.dfg.ctrl_typevar(call);
    func.dfg.detach_inst_results(call);
    for &result in &results {
        // The result keeps its name, so that nothing behind the call changes.
        func.dfg.attach_block_param(behind, result);
    }
    func.dfg.make_inst_results(call, ctrl);
    behind
}

/// The same call, of the callee of a case.
fn clone_call(func: &mut Function, call: Inst, case: &Case) -> Inst {
    let Case { bits: _, symbol, signature } = case;
    let before = called(func, call).expect("a direct call");
    let ExtFuncData { name: _, signature: known, colocated, patchable } =
        func.dfg.ext_funcs[before].clone();
    let signature = match func.dfg.signatures[known] == **signature {
        true => known,
        false => func.import_signature(Signature::clone(signature)),
    };
    let name = user_name(func, symbol.clone());
    let callee = func.import_function(ExtFuncData { name, signature, colocated, patchable });
    let other = func.dfg.clone_inst(call);
    push_arguments(func, other, callee, &[]);
    let entries = func.dfg.user_stack_map_entries(call).map(<[_]>::to_vec);
    for entry in entries.unwrap_or_default() {
        func.dfg.append_user_stack_map_entry(other, entry);
    }
    func.debug_tags.clone_tags(call, other);
    other
}
