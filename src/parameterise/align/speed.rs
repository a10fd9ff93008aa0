//! Whether code that branches by a selector runs about as fast as the functions that it replaces.
//!
//! A branch by the selector goes the same way in every call from one place, so it is predicted;
//! what it costs are the instructions. So there must be enough other ones around it. This module
//! does *not* estimate how often code runs, but for loops.

use super::blocks::{Aligned, Alignment};
use super::cost;
use super::outline::Outline;
use crate::parameterise::loops::loops;
use cranelift_codegen::ir::Function;
use cranelift_codegen::loop_analysis::Loop;
use cranelift_entity::SecondaryMap;

/// Whether arms are rare enough in each loop of `func`, the first of two functions that are
/// aligned. Nearly linear in its size.
pub(super) fn is_kept(func: &Function, outline: &Outline, alignment: &Alignment) -> bool {
    let loops = loops(func);
    /// The blocks of a loop that are in no inner loop.
    #[derive(Clone, Default)]
    struct Content {
        instructions: usize,
        gaps: usize,
    }
    let mut contents: SecondaryMap<Loop, Content> = SecondaryMap::new();
    for (number, parts) in alignment.blocks.iter().enumerate() {
        let (block, _) = outline.block(number);
        let Some(innermost) = loops.innermost_loop(block) else {
            continue;
        };
        let content = &mut contents[innermost];
        for part in parts {
            match part {
                Aligned::Both(..) => content.instructions += 1,
                Aligned::Gap([own, _]) => {
                    content.instructions += own.len();
                    content.gaps += 1;
                }
            }
        }
    }
    let is_fast =
        |Content { instructions, gaps }: &Content| gaps * cost::MIN_PER_ARM <= *instructions;
    contents.values().all(is_fast)
}
