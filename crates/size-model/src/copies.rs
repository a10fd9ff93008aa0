//! In how many blocks a pure instruction is computed.
//!
//! Cranelift keeps no place for an instruction that depends on nothing but its operands: it
//! computes the instruction where the first use in a block needs its result, unless a block that
//! dominates that one has computed it (`elaborate` of its e-graph pass). So a value that is written
//! once, in front of a branch, is computed in both arms and behind them if it is used there and not
//! in front of the branch. Bodies of functions that differ in instructions are full of that.
//!
//! Not modelled: where in front of a loop something is computed that is used in it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use cranelift_codegen::dominator_tree::DominatorTree;
use cranelift_codegen::flowgraph::ControlFlowGraph;
use cranelift_codegen::ir::{Block, Function};
use cranelift_codegen::loop_analysis::LoopAnalysis;

/// More blocks than these are not distinguished.
const MAX_BLOCKS: usize = 8;

/// Some blocks: the number of an entry in [`Copies::lists`], from 1.
#[derive(Clone, Copy, Default)]
pub(super) struct Blocks(u32);

/// Kept from function to function for its memory.
#[derive(Default)]
pub(super) struct Copies {
    /// Each a block, and the entries before it.
    lists: Vec<(Block, Blocks)>,
    /// The blocks in which the instruction at hand is computed.
    current: Vec<Block>,
    shape: Option<Box<Shape>>,
    /// Whether the shape is that of the function at hand.
    is_known: bool,
}

/// The dominators and loops of a function.
struct Shape {
    cfg: ControlFlowGraph,
    dominators: DominatorTree,
    loops: LoopAnalysis,
}

impl Copies {
    pub fn clear(&mut self) {
        self.lists.clear();
        self.is_known = false;
    }

    /// The instruction at hand is computed in this block. Returns how often that is.
    pub fn only(&mut self, block: Block) -> u32 {
        self.current.clear();
        self.current.push(block);
        1
    }

    /// The instruction at hand is defined in `block` and computed where it is used, in `used`.
    /// Returns how often that is.
    pub fn choose(&mut self, func: &Function, block: Block, used: &Blocks) -> u32 {
        self.current.clear();
        let mut at = *used;
        while let Some(&(used, before)) = (at.0 as usize).checked_sub(1).map(|at| &self.lists[at]) {
            if used == block {
                return self.only(block);
            }
            self.current.push(used);
            at = before;
        }
        if self.current.len() > 1 {
            self.leave_first(func, block);
        }
        self.current.len() as u32
    }

    /// Of the blocks at hand, leaves those that no other one dominates; leaves only `block` if the
    /// others are in loops which that one is not in.
    fn leave_first(&mut self, func: &Function, block: Block) {
        let shape = self.shape.get_or_insert_with(|| {
            Box::new(Shape {
                cfg: ControlFlowGraph::new(),
                dominators: DominatorTree::new(),
                loops: LoopAnalysis::new(),
            })
        });
        if !self.is_known {
            self.is_known = true;
            shape.cfg.compute(func);
            shape.dominators.compute(func, &shape.cfg);
            shape.loops.compute(func, &shape.cfg, &shape.dominators);
        }
        let Shape { dominators, loops, .. } = &**shape;
        let level = |block| loops.loop_level(block).level();
        if self.current.iter().all(|&used| level(used) > level(block)) {
            self.only(block);
            return;
        }
        let all: [Option<Block>; MAX_BLOCKS] =
            core::array::from_fn(|at| self.current.get(at).copied());
        self.current.retain(|&used| {
            let mut others = all.iter().flatten();
            !others.any(|&other| other != used && dominators.block_dominates(other, used))
        });
    }

    /// Notes that the instruction at hand uses a value that is used in the blocks `used` so far.
    #[inline]
    pub fn add(&mut self, used: &mut Blocks) {
        for at in 0..self.current.len() {
            let block = self.current[at];
            let (mut before, mut count) = (*used, 0);
            let is_new = loop {
                let Some(&(known, next)) =
                    (before.0 as usize).checked_sub(1).map(|at| &self.lists[at])
                else {
                    break count < MAX_BLOCKS;
                };
                if known == block {
                    break false;
                }
                (before, count) = (next, count + 1);
            };
            if is_new {
                self.lists.push((block, *used));
                *used = Blocks(self.lists.len() as u32);
            }
        }
    }
}
