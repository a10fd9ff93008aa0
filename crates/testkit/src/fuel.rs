//! Fuel for functions that were not generated to be run, so that every call ends.
//!
//! The first block, and every block that control can return to, takes one unit from the fuel at the
//! start of the imported memory, and traps when there is none. Functions of equal control flow take
//! equally much, whatever their layout, and so does a body with a callee dispatch, so fuel can be
//! added before or after merging.

use crate::program::MEMORY;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::dominator_tree::DominatorTree;
use cranelift_codegen::flowgraph::ControlFlowGraph;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::immediates::Imm64;
use cranelift_codegen::ir::{
    Block, ExternalName, Function, GlobalValueData, InstBuilder, MemFlagsData, TrapCode,
    UserExternalName, types,
};
use cranelift_entity::SecondaryMap;

/// The trap code of a function that runs out of fuel.
pub const OUT_OF_FUEL: TrapCode = TrapCode::unwrap_user(42);

/// A set of blocks of which every endless path contains one: the targets of back edges of a
/// depth-first search.
fn heads(func: &Function) -> Vec<Block> {
    let flow = ControlFlowGraph::with_function(func);
    let dominators = DominatorTree::with_function(func, &flow);
    let mut order: SecondaryMap<Block, u32> = SecondaryMap::new();
    for (at, &block) in (1..).zip(dominators.cfg_postorder()) {
        order[block] = at;
    }
    let is_head = |&block: &Block| {
        let mut edges = flow.pred_iter(block);
        func.layout.entry_block() == Some(block)
            || edges.any(|edge| (1..=order[block]).contains(&order[edge.block]))
    };
    func.layout.blocks().filter(is_head).collect()
}

/// Makes a function take from the fuel. Linear in its edges.
pub fn limit(func: &mut Function) {
    let name = func.params.ensure_user_func_name(UserExternalName::new(MEMORY, 0));
    let fuel = func.create_global_value(GlobalValueData::Symbol {
        name: ExternalName::User(name),
        offset: Imm64::new(0),
        colocated: true,
        tls: false,
    });
    for block in heads(func) {
        let mut cursor = FuncCursor::new(func);
        cursor.goto_first_insertion_point(block);
        let address = cursor.ins().symbol_value(types::I64, fuel);
        let left = cursor.ins().load(types::I64, MemFlagsData::trusted(), address, 0);
        let one = cursor.ins().iconst(types::I64, 1);
        let left = cursor.ins().isub(left, one);
        cursor.ins().store(MemFlagsData::trusted(), left, address, 0);
        let zero = cursor.ins().iconst(types::I64, 0);
        let enough = cursor.ins().icmp(IntCC::SignedGreaterThanOrEqual, left, zero);
        cursor.ins().trapz(enough, OUT_OF_FUEL);
    }
}
