//! Outlines of functions: what each instruction is apart from its operands, block by block.
//!
//! Two functions are aligned by their outlines alone ([`blocks`](super::blocks)), so that many
//! pairs can be looked at without a copy of a function. An outline is what the canonical walk
//! writes of each instruction, with types in place of operands ([`Scratch::contents`]), and a hash
//! of it. Hashes find the instructions that correspond to each other, and the contents decide
//! whether they do. An outline does *not* have operands, nor constants that could be passed, but
//! for their types.

use crate::canon::{self, Context, Encoding, Mark, Operand, Place, Scratch, only_destination};
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Range;
use cranelift_codegen::ir::{
    Block, BlockCall, Function, Inst, InstructionData, Opcode, Signature, Type, types,
};
use xxhash_rust::xxh3::xxh3_64;

/// An outline. About 34 bytes for each instruction, and 16 for each constant that can be passed.
#[derive(Clone)]
pub(super) struct Outline {
    /// In the order in which control flow first comes to them: dominators come before what they
    /// dominate.
    blocks: Vec<Outlined>,
    /// The instructions, by position.
    pub insts: Vec<Inst>,
    /// The hash of the content of each; 0 for the last one of a block.
    keys: Vec<u32>,
    /// The keys, block by block ascending.
    sorted: Vec<u32>,
    /// Where the content of each ends. It begins where that of the one before ends, or the head of
    /// its block.
    ends: Vec<u32>,
    contents: Vec<u8>,
    /// Constants that could be passed, ascending by position.
    constants: Vec<Constant>,
    pub signature: Signature,
    /// Whether the function can observe its caller.
    pub observes_its_frame: bool,
}

/// A constant that could be passed. Of its bits, the upper and the lower half, so that no byte is
/// unused.
#[derive(Clone, Copy)]
struct Constant {
    position: u32,
    ty: Type,
    bits: [u32; 2],
}

/// A block of an outline.
#[derive(Clone)]
struct Outlined {
    block: Block,
    /// The position behind its last instruction.
    end: u32,
    /// Parameters, and whether it is cold.
    head: Range<u32>,
}

impl Outline {
    /// The outline of a function in which symbols are replaced as `context` says. `None` for
    /// functions that the verifier refuses, for those that take the address of a block, and for
    /// those with an address below a stack slot. Linear in the size of the function.
    pub fn of(
        func: &Function,
        context: &Context<'_>,
        scratch: &mut Scratch,
        encoding: &mut Encoding,
    ) -> Option<Outline> {
        canon::encode(func, context, scratch, encoding).ok()?;
        let mut outline = Outline {
            blocks: Vec::with_capacity(scratch.walked().len()),
            insts: Vec::with_capacity(encoding.instructions as usize),
            keys: Vec::with_capacity(encoding.instructions as usize),
            sorted: Vec::with_capacity(encoding.instructions as usize),
            ends: Vec::with_capacity(encoding.instructions as usize),
            contents: Vec::with_capacity(encoding.size()),
            constants: Vec::new(),
            signature: func.signature.clone(),
            observes_its_frame: false,
        };
        for (at, mark) in scratch.marks.iter().enumerate() {
            outline.add(func, encoding, mark, scratch.marks.get(at + 1))?;
        }
        outline.end_block();
        // Those of all functions that may be aligned are in memory at the same time.
        outline.contents.shrink_to_fit();
        outline.constants.shrink_to_fit();
        Some(outline)
    }

    /// Adds what the walk wrote at a place, up to the next one.
    fn add(
        &mut self,
        func: &Function,
        encoding: &Encoding,
        mark: &Mark,
        next: Option<&Mark>,
    ) -> Option<()> {
        let Encoding { shape, constants, references, .. } = encoding;
        let ends = next.map_or([shape.len(), constants.len(), references.len()], |next| {
            [next.shape, next.constants, next.references]
        });
        let start = self.contents.len() as u32;
        self.contents.extend_from_slice(&shape[mark.shape..ends[0]]);
        self.contents.extend_from_slice(&references[mark.references..ends[2]]);
        let constants = &constants[mark.constants..ends[1]];
        match mark.place {
            Place::Inst(inst) => {
                let data = &func.dfg.insts[inst];
                match data.opcode() {
                    Opcode::GetExceptionHandlerAddress => return None,
                    // Cranelift 0.135.8 compiles it as part of an access only, and arms may join
                    // their addresses.
                    Opcode::StackAddr if is_below_its_slot(data) => return None,
                    Opcode::GetReturnAddress | Opcode::GetFramePointer => {
                        self.observes_its_frame = true;
                    }
                    _ => {}
                }
                match passed(data, mark.operand) {
                    Some((ty, bits)) => {
                        let position = self.insts.len() as u32;
                        let bits = [(bits >> 32) as u32, bits as u32];
                        self.constants.push(Constant { position, ty, bits });
                    }
                    None => self.contents.extend_from_slice(constants),
                }
                let hash = xxh3_64(&self.contents[start as usize..]);
                self.insts.push(inst);
                self.keys.push((hash ^ hash >> 32) as u32);
                self.ends.push(self.contents.len() as u32);
            }
            Place::Block(block) => {
                self.end_block();
                let head = start..self.contents.len() as u32;
                self.blocks.push(Outlined { block, end: 0, head });
            }
            Place::ExtraArgument(_) => return None,
            Place::Key
            | Place::Signature
            | Place::StackSlots
            | Place::DynamicTypes
            | Place::StackLimit => self.contents.extend_from_slice(constants),
        }
        Some(())
    }

    /// Ends the block at hand, whose last instruction is a branch.
    fn end_block(&mut self) {
        if let Some(block) = self.blocks.last_mut() {
            block.end = self.insts.len() as u32;
            if let Some(last) = self.keys.last_mut() {
                *last = 0;
            }
            let start = self.sorted.len();
            self.sorted.extend_from_slice(&self.keys[start..]);
            self.sorted[start..].sort_unstable();
        }
    }

    fn bytes(&self, range: &Range<u32>) -> &[u8] {
        &self.contents[range.start as usize..range.end as usize]
    }

    /// The encoding of the function before its blocks: signature, stack slots, stack limit.
    pub fn header(&self) -> &[u8] {
        self.bytes(&(0..self.blocks[0].head.start))
    }

    /// The encoding of a block before its instructions.
    pub fn head(&self, number: usize) -> &[u8] {
        self.bytes(&self.blocks[number].head)
    }

    /// The content of the instruction at a position of a block, apart from its operands and
    /// passable constants. Of a branch, the blocks to which it goes, by number.
    pub fn content(&self, number: usize, position: u32) -> &[u8] {
        let (_, Range { start: first, .. }) = self.block(number);
        let start = match position == first {
            true => self.blocks[number].head.end,
            false => self.ends[position as usize - 1],
        };
        self.bytes(&(start..self.ends[position as usize]))
    }

    /// The content of the last instruction of a block.
    pub fn branch(&self, number: usize) -> &[u8] {
        let (_, Range { end, .. }) = self.block(number);
        self.content(number, end - 1)
    }

    /// All contents, in order.
    pub fn contents(&self) -> &[u8] {
        &self.contents
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// A block by number, and the positions of its instructions.
    pub fn block(&self, number: usize) -> (Block, Range<u32>) {
        let Outlined { block, end, .. } = self.blocks[number];
        let start = number.checked_sub(1).map_or(0, |before| self.blocks[before].end);
        (block, start..end)
    }

    /// The hashes of the instructions of a block before its branch.
    pub fn keys(&self, number: usize) -> &[u32] {
        let (_, range) = self.block(number);
        &self.keys[range.start as usize..range.end as usize - 1]
    }

    /// The hashes of the instructions of a block, ascending.
    pub fn sorted(&self, number: usize) -> &[u32] {
        let (_, range) = self.block(number);
        &self.sorted[range.start as usize..range.end as usize]
    }

    /// The constants of instructions from a position on.
    pub fn constants(&self, from: u32) -> Constants<'_> {
        let first = self.constants.partition_point(|constant| constant.position < from);
        Constants { left: &self.constants[first..] }
    }
}

fn is_below_its_slot(data: &InstructionData) -> bool {
    matches!(data, InstructionData::StackAddr { offset, .. } if i32::from(*offset) < 0)
}

/// The constant of an instruction that a parameter could take the place of: an integer of up to 64
/// bits, or an offset that is added to an address of this type.
fn passed(data: &InstructionData, operand: Option<Operand>) -> Option<(Type, u64)> {
    let (ty, bits) = match (data, operand?) {
        (
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm: _ },
            Operand::Constant { ty, bits },
        ) => (ty, bits as u64),
        (
            InstructionData::Load { .. } | InstructionData::Store { .. },
            Operand::Offset { ty: ty @ (types::I32 | types::I64), bytes },
        ) => (ty, bytes as u64),
        _ => return None,
    };
    Some((ty, bits & (u64::MAX >> (64 - ty.bits().min(64)))))
}

/// How many hashes two functions have in common, in whatever order: those of each, ascending.
pub(super) fn in_common(mut a: &[u32], mut b: &[u32]) -> usize {
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
    left: &'a [Constant],
}

impl Constants<'_> {
    /// The constant of the instruction at a position, which must not be less than the one asked for
    /// before.
    pub fn at(&mut self, position: u32) -> Option<(Type, u64)> {
        while let [first, rest @ ..] = self.left {
            match first.position.cmp(&position) {
                Ordering::Less => self.left = rest,
                Ordering::Equal => {
                    let [upper, lower] = first.bits;
                    return Some((first.ty, u64::from(upper) << 32 | u64::from(lower)));
                }
                Ordering::Greater => return None,
            }
        }
        None
    }
}

/// Where a branch goes, and what it passes.
pub(super) fn branches(func: &Function, inst: Inst) -> &[BlockCall] {
    let data = &func.dfg.insts[inst];
    let one = only_destination(&func.dfg, data, |_| true);
    let all = data.branch_destination(&func.dfg.jump_tables, &func.dfg.exception_tables);
    one.map_or(all, core::slice::from_ref)
}
