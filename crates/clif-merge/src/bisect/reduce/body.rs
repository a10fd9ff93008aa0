//! Smaller variants of one function.
//!
//! Blocks, instructions and parameters are meant by their places in the layout, so that one edit
//! can be made in several functions of the same shape. The edited function need not be valid: it is
//! verified when its text is read. Cranelift's instructions are changed in place; nothing is walked
//! recursively.

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::immediates::Ieee16;
use cranelift_codegen::ir::{
    Block, BlockCall, ConstantData, Function, Inst, InstBuilder as _, InstructionData, Opcode,
    TrapCode, Type, Value, types,
};
use cranelift_mergefunc::cranelift_codegen;
use std::collections::HashSet;
use std::ops::Range;

/// The shape that functions must share for one edit to apply to all of them: parameters and
/// instructions by block.
pub fn shape(func: &Function) -> Vec<(usize, usize)> {
    let blocks = func.layout.blocks();
    let of = |block| (func.dfg.num_block_params(block), func.layout.block_insts(block).count());
    blocks.map(of).collect()
}

/// The instructions that may be removed: all but those that end blocks.
fn removable(func: &Function) -> Vec<Inst> {
    let blocks = func.layout.blocks();
    let insts = blocks.flat_map(|block| func.layout.block_insts(block));
    insts.filter(|&inst| !func.dfg.insts[inst].opcode().is_terminator()).collect()
}

/// How many instructions may be removed.
pub fn removable_count(func: &Function) -> usize {
    removable(func).len()
}

/// How many instructions do something: more than constants do.
pub fn instruction_count(func: &Function) -> usize {
    let is_constant = |inst: &&Inst| {
        matches!(
            func.dfg.insts[**inst].opcode(),
            Opcode::Iconst
                | Opcode::F16const
                | Opcode::F32const
                | Opcode::F64const
                | Opcode::Vconst
                | Opcode::Iconcat
        )
    };
    let all = removable(func);
    all.len() - all.iter().filter(is_constant).count()
}

/// How many blocks there are.
pub fn block_count(func: &Function) -> usize {
    func.layout.blocks().count()
}

/// Removes instructions; zeros take the place of results that are used.
pub fn remove_instructions(func: &mut Function, places: Range<usize>) {
    let insts = removable(func);
    let used = used(func);
    // From the last one on, so that what a removed instruction uses is removed as well.
    for &inst in insts[places].iter().rev() {
        let results = func.dfg.inst_results(inst).to_vec();
        let tys: Vec<Type> = results.iter().map(|&value| func.dfg.value_type(value)).collect();
        let wanted = results.iter().any(|value| used.contains(value));
        if wanted && tys.iter().any(|&ty| !has_zero(ty)) {
            continue;
        }
        if wanted {
            let zeros: Vec<Value> =
                tys.iter().map(|&ty| zero(&mut FuncCursor::new(func).at_inst(inst), ty)).collect();
            func.dfg.clear_results(inst);
            for (result, zero) in results.into_iter().zip(zeros) {
                func.dfg.change_to_alias(result, zero);
            }
        }
        func.layout.remove_inst(inst);
    }
    func.dfg.resolve_all_aliases();
}

/// Lets blocks trap in place of all that they do. The place 0 is the entry block.
pub fn trap(func: &mut Function, places: Range<usize>) {
    let blocks: Vec<Block> = func.layout.blocks().collect();
    for &block in &blocks[places] {
        while let Some(inst) = func.layout.first_inst(block) {
            func.layout.remove_inst(inst);
        }
        let mut cursor = FuncCursor::new(func);
        cursor.goto_bottom(block);
        cursor.ins().trap(TrapCode::unwrap_user(1));
    }
    remove_unreachable(func);
}

/// Lets a block jump to one of the blocks to which it branches. Nothing happens if there are less
/// than two of those.
pub fn straighten(func: &mut Function, place: usize, way: usize) {
    let Some(block) = func.layout.blocks().nth(place) else { return };
    let Some(last) = func.layout.last_inst(block) else { return };
    let plain = matches!(func.dfg.insts[last].opcode(), Opcode::Brif | Opcode::BrTable);
    let Some(&call) = destinations(func, last).get(way).filter(|_| plain) else { return };
    func.dfg.insts[last] = InstructionData::Jump { opcode: Opcode::Jump, destination: call };
    remove_unreachable(func);
}

/// Lets a block trap in place of what it ends with.
pub fn stop(func: &mut Function, place: usize) {
    let Some(block) = func.layout.blocks().nth(place) else { return };
    let Some(last) = func.layout.last_inst(block) else { return };
    if func.dfg.inst_results(last).is_empty() {
        func.layout.remove_inst(last);
        let mut cursor = FuncCursor::new(func);
        cursor.goto_bottom(block);
        cursor.ins().trap(TrapCode::unwrap_user(1));
        remove_unreachable(func);
    }
}

/// Appends to a block the one to which it jumps, if no other branch leads there.
pub fn join(func: &mut Function, place: usize) {
    let Some(block) = func.layout.blocks().nth(place) else { return };
    let Some(jump) = func.layout.last_inst(block) else { return };
    let InstructionData::Jump { destination, .. } = func.dfg.insts[jump] else { return };
    let next = destination.block(&func.dfg.value_lists);
    let last = func.layout.blocks().filter_map(|block| func.layout.last_inst(block));
    let calls = last.flat_map(|inst| destinations(func, inst));
    let edges = calls.filter(|call| call.block(&func.dfg.value_lists) == next).count();
    if edges != 1 || next == block || func.layout.entry_block() == Some(next) {
        return;
    }
    let passed: Vec<_> = destination.args(&func.dfg.value_lists).collect();
    let parameters = func.dfg.detach_block_params(next);
    let parameters = parameters.as_slice(&func.dfg.value_lists).to_vec();
    for (parameter, passed) in parameters.into_iter().zip(passed) {
        let passed = passed.as_value().expect("a jump passes values");
        func.dfg.change_to_alias(parameter, passed);
    }
    func.layout.remove_inst(jump);
    while let Some(inst) = func.layout.first_inst(next) {
        func.layout.remove_inst(inst);
        func.layout.append_inst(inst, block);
    }
    func.layout.remove_block(next);
    func.dfg.resolve_all_aliases();
}

/// Removes a parameter of a block other than the entry block, and what branches pass for it. Zero
/// takes its place.
pub fn remove_parameter(func: &mut Function, place: usize, number: usize) {
    let Some(block) = func.layout.blocks().nth(place).filter(|_| place > 0) else { return };
    let Some(&parameter) = func.dfg.block_params(block).get(number) else { return };
    let ty = func.dfg.value_type(parameter);
    if !has_zero(ty) {
        return;
    }
    let insts: Vec<Inst> =
        func.layout.blocks().filter_map(|block| func.layout.last_inst(block)).collect();
    for inst in insts {
        let dfg = &mut func.dfg;
        let calls =
            dfg.insts[inst].branch_destination_mut(&mut dfg.jump_tables, &mut dfg.exception_tables);
        for call in calls {
            if call.block(&dfg.value_lists) == block {
                call.remove(number, &mut dfg.value_lists);
            }
        }
    }
    func.dfg.remove_block_param(parameter);
    let zero = zero(&mut FuncCursor::new(func).at_first_insertion_point(block), ty);
    func.dfg.change_to_alias(parameter, zero);
    func.dfg.resolve_all_aliases();
}

fn destinations(func: &Function, inst: Inst) -> &[BlockCall] {
    let dfg = &func.dfg;
    dfg.insts[inst].branch_destination(&dfg.jump_tables, &dfg.exception_tables)
}

/// Removes the blocks that no branch leads to any more.
fn remove_unreachable(func: &mut Function) {
    let mut reached: HashSet<Block> = HashSet::new();
    let mut waiting: Vec<Block> = func.layout.entry_block().into_iter().collect();
    while let Some(block) = waiting.pop() {
        if reached.insert(block)
            && let Some(last) = func.layout.last_inst(block)
        {
            let calls = destinations(func, last).iter();
            waiting.extend(calls.map(|call| call.block(&func.dfg.value_lists)));
        }
    }
    let blocks: Vec<Block> = func.layout.blocks().collect();
    for block in blocks.into_iter().filter(|block| !reached.contains(block)) {
        func.layout.remove_block_and_insts(block);
    }
}

/// The values that instructions use.
fn used(func: &Function) -> HashSet<Value> {
    let blocks = func.layout.blocks();
    let insts = blocks.flat_map(|block| func.layout.block_insts(block));
    let values = insts.flat_map(|inst| func.dfg.inst_values(inst));
    values.map(|value| func.dfg.resolve_aliases(value)).collect()
}

fn has_zero(ty: Type) -> bool {
    ty.is_int() || matches!(ty, types::F16 | types::F32 | types::F64) || is_vector(ty)
}

/// Dynamic vectors have no constants.
fn is_vector(ty: Type) -> bool {
    ty.is_vector() && !ty.is_dynamic_vector()
}

/// Zero of a type that [`has_zero`].
fn zero(cursor: &mut FuncCursor<'_>, ty: Type) -> Value {
    match ty {
        types::F16 => cursor.ins().f16const(Ieee16::with_bits(0)),
        types::F32 => cursor.ins().f32const(0.0),
        types::F64 => cursor.ins().f64const(0.0),
        types::I128 => {
            let half = cursor.ins().iconst(types::I64, 0);
            cursor.ins().iconcat(half, half)
        }
        ty if is_vector(ty) => {
            let zeros = ConstantData::from(&vec![0; ty.bytes() as usize][..]);
            let zeros = cursor.func.dfg.constants.insert(zeros);
            cursor.ins().vconst(ty, zeros)
        }
        ty => cursor.ins().iconst(ty, 0),
    }
}
