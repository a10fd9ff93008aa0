//! Where the ways of a branch join: immediate post-dominators.
//!
//! By the algorithm of Cooper, Harvey and Kennedy ("A Simple, Fast Dominance Algorithm", 2001) on
//! the reversed control-flow graph, from an end behind all blocks that leave the function. A block
//! whose ways meet only behind the function has none. From an endless loop no such block can be
//! reached: a block that closes the loop counts as one.

use alloc::vec::Vec;
use cranelift_codegen::ir::{Block, Function};
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};

/// The immediate post-dominator of each block.
#[derive(Debug, Default)]
pub(crate) struct Joins(SecondaryMap<Block, Option<Block>>);

impl Joins {
    /// Nearly linear in the size of the control-flow graph.
    pub fn of(func: &Function) -> Joins {
        let dfg = &func.dfg;
        let mut before: SecondaryMap<Block, Vec<Block>> = SecondaryMap::new();
        let mut behind: SecondaryMap<Block, Vec<Block>> = SecondaryMap::new();
        let mut leaving: SecondaryMap<Block, bool> = SecondaryMap::new();
        for block in func.layout.blocks() {
            let ways = func.layout.last_inst(block).map_or(&[][..], |last| {
                dfg.insts[last].branch_destination(&dfg.jump_tables, &dfg.exception_tables)
            });
            for way in ways {
                let to = way.block(&dfg.value_lists);
                before[to].push(block);
                behind[block].push(to);
            }
            leaving[block] = ways.is_empty();
        }
        // A depth-first search backwards, and the numbers of blocks when it has left them; the end
        // has the largest one.
        let mut order: PrimaryMap<Left, Block> = PrimaryMap::new();
        let mut left: SecondaryMap<Block, Option<Left>> = SecondaryMap::new();
        let mut seen: SecondaryMap<Block, bool> = SecondaryMap::new();
        let mut walked: SecondaryMap<Block, bool> = SecondaryMap::new();
        let ends: Vec<Block> = func.layout.blocks().filter(|&block| leaving[block]).collect();
        for first in ends.into_iter().chain(func.layout.blocks()) {
            if seen[first] {
                continue;
            }
            // All that is left is endless: forward to a block that only leads back.
            let mut last = first;
            walked[first] = true;
            while let Some(&next) = behind[last].iter().find(|&&to| !walked[to]) {
                walked[next] = true;
                last = next;
            }
            leaving[last] = true;
            seen[last] = true;
            let mut stack = Vec::from([(last, 0)]);
            while let Some((block, next)) = stack.last_mut() {
                match before[*block].get(*next) {
                    Some(&other) => {
                        *next += 1;
                        if !core::mem::replace(&mut seen[other], true) {
                            stack.push((other, 0));
                        }
                    }
                    None => {
                        left[*block] = Some(order.push(*block));
                        stack.pop();
                    }
                }
            }
        }
        let end = Left::new(order.len());
        let mut joins: SecondaryMap<Left, Option<Left>> = SecondaryMap::new();
        joins[end] = Some(end);
        let mut changed = true;
        while core::mem::take(&mut changed) {
            for (at, &block) in order.iter().rev() {
                let ways = behind[block].iter().filter_map(|&to| left[to]);
                // Branches that leave the function go to the end.
                let ends = leaving[block].then_some(end);
                let join = ends
                    .into_iter()
                    .chain(ways)
                    .filter(|&to| joins[to].is_some())
                    .reduce(|a, b| meet(&joins, a, b));
                changed |= join != joins[at];
                joins[at] = join;
            }
        }
        let mut all = Joins::default();
        for (at, &block) in order.iter() {
            all.0[block] = joins[at].filter(|&join| join != end).map(|join| order[join]);
        }
        all
    }

    /// Where all ways from a block come together, if they do.
    pub fn behind(&self, block: Block) -> Option<Block> {
        self.0[block]
    }
}

/// The first block that is behind two, each itself or behind it.
fn meet(joins: &SecondaryMap<Left, Option<Left>>, mut a: Left, mut b: Left) -> Left {
    while a != b {
        let lower = if a < b { &mut a } else { &mut b };
        *lower = joins[*lower].expect("has been processed");
    }
    a
}

/// The number of a block in the order in which the search leaves blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Left(u32);
cranelift_entity::entity_impl!(Left);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    /// Where the ways join, by the numbers of blocks.
    fn joins(blocks: &str) -> Vec<Option<usize>> {
        let text = alloc::format!("function %f(i64) {{\n{blocks}\n}}");
        let func = cranelift_reader::parse_functions(&text).expect("is read").remove(0);
        let joins = Joins::of(&func);
        func.layout.blocks().map(|block| joins.behind(block).map(|join| join.index())).collect()
    }

    #[test]
    fn ways_join_within_ways() {
        let nested = "block0(v0: i64): brif v0, block1, block4
block1: brif v0, block2, block3
block2: jump block5
block3: jump block5
block4: jump block6
block5: jump block6
block6: return";
        let [inner, outer] = [Some(5), Some(6)];
        assert_eq!(joins(nested), vec![outer, inner, inner, inner, outer, outer, None]);
    }

    #[test]
    fn branches_that_follow_one_another_join_in_one_block() {
        let chain = "block0(v0: i64): brif v0, block1, block2
block1: jump block4
block2: brif v0, block3, block4
block3: jump block4
block4: return";
        assert_eq!(joins(chain), vec![Some(4), Some(4), Some(4), Some(4), None]);
    }

    #[test]
    fn a_way_that_leaves_the_function_joins_with_none() {
        let leaves = "block0(v0: i64): brif v0, block1, block2
block1: trap user1
block2: jump block3
block3: return";
        assert_eq!(joins(leaves), vec![None, None, Some(3), None]);
    }

    #[test]
    fn a_loop_joins_behind_itself() {
        let behind = "block0(v0: i64): jump block1
block1: brif v0, block1, block2
block2: return";
        assert_eq!(joins(behind), vec![Some(1), Some(2), None]);
        let endless = "block0(v0: i64): brif v0, block1, block3
block1: brif v0, block1, block2
block2: return
block3: jump block3";
        assert_eq!(joins(endless), vec![None, Some(2), None, None]);
    }

    /// Once, nothing was known of such a loop, and a body with arms in one was refused.
    #[test]
    fn ways_join_in_an_endless_loop() {
        for (entry, head) in [("jump block1", Some(1)), ("brif v0, block1, block6", None)] {
            let endless = alloc::format!(
                "block0(v0: i64): {entry}
block1: brif v0, block2, block3
block2: jump block4
block3: jump block4
block4: brif v0, block1, block5
block5: jump block1
block6: return"
            );
            let [join, last] = [4, 5].map(Some);
            assert_eq!(joins(&endless), vec![head, join, join, join, last, None, None]);
        }
    }
}
