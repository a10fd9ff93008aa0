//! Which calls are in loops: there, an indirect call in place of a direct one costs time.

use crate::canon::Place;
use alloc::vec::Vec;
use cranelift_codegen::dominator_tree::DominatorTree;
use cranelift_codegen::flowgraph::ControlFlowGraph;
use cranelift_codegen::ir::Function;
use cranelift_codegen::loop_analysis::LoopAnalysis;

/// The loops of a function. Nearly linear in its size.
pub(super) fn loops(func: &Function) -> LoopAnalysis {
    let flow = ControlFlowGraph::with_function(func);
    let dominators = DominatorTree::with_function(func, &flow);
    let mut loops = LoopAnalysis::new();
    loops.compute(func, &flow, &dominators);
    loops
}

/// The columns of a function, by its places, that are direct calls in a loop. Nearly linear in the
/// size of `func`.
pub(super) fn calls_in_loops(func: &Function, places: &[Place]) -> Vec<usize> {
    let loops = loops(func);
    let in_loop = |place: &Place| match *place {
        Place::Inst(inst) if func.dfg.insts[inst].opcode().is_call() => {
            let block = func.layout.inst_block(inst);
            block.is_some_and(|block| loops.innermost_loop(block).is_some())
        }
        _ => false,
    };
    let columns = places.iter().enumerate();
    columns.filter(|(_, place)| in_loop(place)).map(|(column, _)| column).collect()
}
