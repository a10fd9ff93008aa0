//! Callee dispatch: one of several direct calls, selected by a case number.
//!
//! Where similar functions call different callees, their parameterised body can receive a case
//! number and find the direct call of its callee by binary search: in a balanced tree of
//! comparisons, whose leaves are the calls. All of them continue at the same place. This module
//! decides nothing: the caller gives the callees and their case numbers.

use crate::extra_argument::push_arguments;
use crate::ir::{called, user_name};
use alloc::collections::VecDeque;
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

/// Replaces a direct call of `func` by a dispatch among these cases, by the number `by`. The first
/// case is the present callee; the numbers of the cases are different. O(n log n) in the number of
/// cases, and linear in the instructions behind the call in its block.
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
    let mut leaves: Vec<(u64, Block)> = Vec::with_capacity(cases.len());
    for (case, &call) in cases.iter().zip(&calls) {
        let leaf = func.dfg.make_block();
        func.layout.insert_block_after(leaf, last);
        last = leaf;
        func.layout.append_inst(call, leaf);
        func.set_srcloc(call, location);
        if let Some(behind) = behind {
            let results: Vec<BlockArg> =
                func.dfg.inst_results(call).iter().map(|&result| result.into()).collect();
            let mut cursor = FuncCursor::new(func).at_bottom(leaf).with_srcloc(location);
            cursor.ins().jump(behind, &results);
        }
        leaves.push((case.bits, leaf));
    }
    leaves.sort_unstable_by_key(|&(bits, _)| bits);
    insert_search(func, block, by, &leaves);
}

/// Ends `block` by a binary search for the number `by`, which is that of one of the leaves. They
/// are sorted.
fn insert_search(func: &mut Function, block: Block, by: Value, leaves: &[(u64, Block)]) {
    let location = func.srcloc(func.layout.first_inst(leaves[0].1).expect("the call"));
    let ty = func.dfg.value_type(by);
    let mut last = block;
    let mut queue = VecDeque::from([(block, leaves)]);
    while let Some((at, leaves)) = queue.pop_front() {
        let (low, high) = leaves.split_at(leaves.len() / 2);
        let [below, above] = [low, high].map(|half| match half {
            &[(_, leaf)] => leaf,
            _ => {
                let inner = func.dfg.make_block();
                func.layout.insert_block_after(inner, last);
                last = inner;
                queue.push_back((inner, half));
                inner
            }
        });
        let mut cursor = FuncCursor::new(func).at_bottom(at).with_srcloc(location);
        if let [(0, _)] = low {
            // Everything but zero is above: no comparison is needed.
            cursor.ins().brif(by, above, &[], below, &[]);
        } else {
            let bound = high[0].0;
            let first_above = cursor.ins().iconst(ty, bound as i64);
            let is_below = cursor.ins().icmp(IntCC::UnsignedLessThan, by, first_above);
            cursor.ins().brif(is_below, below, &[], above, &[]);
        }
    }
}

/// Splits the block behind the call: the rest becomes a block of its own, which receives the
/// results of the call.
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

/// The call, of the callee of a case.
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
