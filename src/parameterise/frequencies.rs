//! Whether calls of functions that become thunks run about as fast as before, for
//! [`Policy::Balanced`].
//!
//! It is estimated how many instructions a call executes, and how many more in a body: extra
//! arguments and a thunk once in a call, and what the body computes in addition each time that
//! control flow comes to it. Branches go each way equally often, never to a trap or a cold block,
//! and loops run a few times. This module does *not* know how often a function is called.

use super::cost;
use super::loops::loops;
use super::probe::Sizes;
use crate::extra_argument::ExtraArgument;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Block, Function, Inst, Opcode, Signature};
use cranelift_codegen::traversals::Dfs;
use cranelift_entity::SecondaryMap;

/// How often the blocks of a function are executed in a call.
pub(super) struct Frequencies {
    /// In 2^16ths.
    of: SecondaryMap<Block, i64>,
    /// How many instructions a call executes, in 2^16ths.
    executed: i64,
}

/// A call of a function.
const ONCE: i64 = 1 << 16;

impl Frequencies {
    /// Nearly linear in the size of `func`.
    pub fn of(func: &Function) -> Frequencies {
        let mut order: Vec<Block> = Dfs::new().post_order_iter(func).collect();
        let mut position: SecondaryMap<Block, usize> = SecondaryMap::new();
        for (at, &block) in order.iter().enumerate() {
            position[block] = at;
        }
        // Blocks from which the function returns, or loops.
        let mut is_left: SecondaryMap<Block, bool> = SecondaryMap::new();
        for &block in &order {
            let last = func.layout.last_inst(block).map(|inst| func.dfg.insts[inst].opcode());
            let goes_on = |to: Block| position[to] >= position[block] || is_left[to];
            is_left[block] = !func.layout.is_cold(block)
                && (last.is_some_and(Opcode::is_return)
                    || func.block_successors(block).any(goes_on));
        }
        order.reverse();
        let loops = loops(func);
        let (mut entered, mut of): (SecondaryMap<Block, i64>, SecondaryMap<Block, i64>) =
            Default::default();
        if let Some(&entry) = order.first() {
            entered[entry] = ONCE;
        }
        let mut executed = cost::CALL * ONCE;
        for &block in &order {
            let depth = loops.loop_level(block).level().min(cost::MAX_LOOP_DEPTH);
            of[block] = entered[block] * cost::LOOP.pow(depth as u32);
            let insts = func.layout.block_insts(block);
            executed += of[block] * insts.map(|inst| instructions(func, inst)).sum::<i64>();
            let onwards = |to: &Block| position[*to] < position[block] && is_left[*to];
            let count = func.block_successors(block).filter(onwards).count() as i64;
            for to in func.block_successors(block).filter(onwards) {
                entered[to] += entered[block] / count;
            }
        }
        Frequencies { of, executed }
    }

    /// How many instructions more a call may execute, apart from those that a body executes in
    /// addition: a number of them each time that control flow comes to a block. Negative if these
    /// are too many.
    pub fn left(&self, in_body: impl IntoIterator<Item = (Block, i64)>) -> i64 {
        let more: i64 = in_body.into_iter().map(|(block, more)| self.of[block] * more).sum();
        (self.executed / cost::MIN_PER_PASSED - more).div_euclid(ONCE)
    }
}

/// How many instructions of a target are executed for one of the IR, about: an operand of
/// others takes none.
fn instructions(func: &Function, inst: Inst) -> i64 {
    match func.dfg.insts[inst].opcode() {
        Opcode::Nop
        | Opcode::Jump
        | Opcode::Iconst
        | Opcode::F32const
        | Opcode::F64const
        | Opcode::Uextend
        | Opcode::Ireduce => 0,
        opcode if opcode.is_call() => cost::CALLEE,
        _ => 1,
    }
}

/// Whether calls may go through a thunk that passes these arguments, where a call may execute
/// `left` instructions more, or any number. Where they need not go through a thunk, they pass the
/// arguments anyway.
pub(super) fn is_thunk_fast(
    left: Option<i64>,
    is_needed: bool,
    sizes: &Sizes<'_>,
    signature: &Signature,
    arguments: &[ExtraArgument],
) -> bool {
    let more = || {
        let thunk = match sizes.is_raw_thunk(signature, arguments) {
            true => cost::JUMP_THUNK,
            false => cost::CALL_THUNK,
        };
        // By way of an integer register.
        let each = |argument: &ExtraArgument| if argument.ty().is_float() { 2 } else { 1 };
        let passing: i64 = arguments.iter().map(each).sum();
        thunk + if is_needed { passing } else { 0 }
    };
    left.is_none_or(|left| more() <= left)
}
