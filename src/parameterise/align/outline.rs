//! Outlines of functions: what is compared of each instruction, as a number, block by block.
//!
//! Two functions are aligned by their outlines alone ([`blocks`](super::blocks)), so that many pairs can be looked at
//! without a copy of a function. Equal numbers are hashes of contents that are equal in all likelihood; whoever makes a body of
//! two functions compares the contents themselves. An outline does *not* have operands or branches.

use super::entities::{Hashes, passed};
use crate::canon::only_destination;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Range;
use cranelift_codegen::ir::{Block, BlockCall, Function, Inst, Opcode, Type, UserExternalName};
use cranelift_entity::EntitySet;

/// An outline. 16 bytes for each instruction, and 24 for each constant that can be passed.
#[derive(Clone)]
pub(super) struct Outline {
    /// Each block, and the position behind its last instruction, in the order in which control flow first comes to them:
    /// dominators come before what they dominate.
    blocks: Vec<(Block, u32)>,
    /// The instructions, by position.
    pub insts: Vec<Inst>,
    /// The hash of each; 0 for the last one of a block.
    keys: Vec<u32>,
    /// The same, ascending.
    sorted: Vec<u32>,
    /// Constants that could be passed, ascending by position.
    constants: Vec<(u32, (Type, u64))>,
    /// Whether the function can observe its caller.
    pub observes_its_frame: bool,
}

impl Outline {
    /// The outline of a function in which `symbol` says what each symbol is replaced by. `None` for functions with
    /// instructions that cannot be copied. Linear in the size of the function.
    pub fn of<'a>(
        func: &'a Function,
        symbol: &'a dyn Fn(&'a UserExternalName) -> &'a UserExternalName,
    ) -> Option<Outline> {
        let (mut insts, mut keys) = (Vec::new(), Vec::new());
        let (mut blocks, mut constants) = (Vec::new(), Vec::new());
        let mut hashes = Hashes::new(func, symbol);
        let mut observes_its_frame = false;
        for block in reached(func)? {
            let last = func.layout.last_inst(block)?;
            for inst in func.layout.block_insts(block) {
                match func.dfg.insts[inst].opcode() {
                    Opcode::GetExceptionHandlerAddress => return None,
                    Opcode::GetReturnAddress | Opcode::GetFramePointer => observes_its_frame = true,
                    _ => {}
                }
                if inst == last {
                    keys.push(0);
                } else {
                    keys.push(hashes.of(inst)?);
                    constants.extend(passed(func, inst).map(|it| (insts.len() as u32, it)));
                }
                insts.push(inst);
            }
            blocks.push((block, insts.len() as u32));
        }
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        Some(Outline { blocks, insts, keys, sorted, constants, observes_its_frame })
    }

    /// How many hashes two outlines have in common, in whatever order.
    pub fn in_common(&self, other: &Outline) -> usize {
        let (mut a, mut b) = (&*self.sorted, &*other.sorted);
        let mut common = 0;
        while let ([x, left @ ..], [y, right @ ..]) = (a, b) {
            common += usize::from(x == y);
            (a, b) = match x.cmp(y) {
                Ordering::Less => (left, b),
                Ordering::Equal => (left, right),
                Ordering::Greater => (a, right),
            };
        }
        common
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// A block by number, and the positions of its instructions.
    pub fn block(&self, number: usize) -> (Block, Range<u32>) {
        let (block, end) = self.blocks[number];
        let start = number.checked_sub(1).map_or(0, |before| self.blocks[before].1);
        (block, start..end)
    }

    /// The hashes of the instructions of a block before its branch.
    pub fn keys(&self, number: usize) -> &[u32] {
        let (_, range) = self.block(number);
        &self.keys[range.start as usize..range.end as usize - 1]
    }

    /// The constants of instructions from a position on.
    pub fn constants(&self, from: u32) -> Constants<'_> {
        let first = self.constants.partition_point(|&(position, _)| position < from);
        Constants { left: &self.constants[first..] }
    }
}

#[cfg(test)]
impl Outline {
    /// The outline if all hashes were equal by chance.
    pub fn with_equal_hashes(mut self) -> Outline {
        self.keys.fill(0);
        self
    }
}

/// The constants that could be passed, by ascending positions.
pub(super) struct Constants<'a> {
    left: &'a [(u32, (Type, u64))],
}

impl Constants<'_> {
    /// The constant of the instruction at a position, which must not be less than the one asked for before.
    pub fn at(&mut self, position: u32) -> Option<(Type, u64)> {
        while let [(first, constant), rest @ ..] = self.left {
            match (*first).cmp(&position) {
                Ordering::Less => self.left = rest,
                Ordering::Equal => return Some(*constant),
                Ordering::Greater => return None,
            }
        }
        None
    }
}

/// The blocks of a function that control flow reaches, from the entry on, each before those that follow it first. `None` if
/// there is no entry, or a block without a branch.
pub(super) fn reached(func: &Function) -> Option<Vec<Block>> {
    let mut known: EntitySet<Block> = EntitySet::new();
    let mut blocks = alloc::vec![func.layout.entry_block()?];
    known.insert(blocks[0]);
    let mut at = 0;
    while let Some(&block) = blocks.get(at) {
        at += 1;
        let last = func.layout.last_inst(block)?;
        blocks.extend(successors(func, last).filter(|&block| known.insert(block)));
    }
    Some(blocks)
}

/// The blocks to which a branch goes, in its order.
pub(super) fn successors(func: &Function, inst: Inst) -> impl Iterator<Item = Block> {
    branches(func, inst).iter().map(|call| call.block(&func.dfg.value_lists))
}

/// Where a branch goes, and what it passes.
pub(super) fn branches(func: &Function, inst: Inst) -> &[BlockCall] {
    let data = &func.dfg.insts[inst];
    let one = only_destination(&func.dfg, data, |_| true);
    let all = data.branch_destination(&func.dfg.jump_tables, &func.dfg.exception_tables);
    one.map_or(all, core::slice::from_ref)
}
