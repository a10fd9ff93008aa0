//! The properties of a function before any of it is walked.
//!
//! [`bucket`] prefilters functions in constant time: two functions with different counts are not
//! compared. [`Counts`] is coarser: two functions in which it differs do not resemble each other.

use cranelift_codegen::ir::{AbiParam, Function, Signature, StackSlotData};
use xxhash_rust::xxh3::xxh3_64;

/// A digest of the signature and of the sizes of the function's tables.
///
/// Left out are the tables whose sizes say more about the front end than about the function:
/// imports, signatures, memory flags, alias regions, global values; and exception tables, which
/// `DataFlowGraph::clear` forgets to clear.
pub(crate) fn bucket(func: &Function, key: u64) -> u64 {
    let dfg = &func.dfg;
    let numbers = [
        key,
        signature_digest(&func.signature),
        dfg.num_insts() as u64,
        dfg.num_blocks() as u64,
        dfg.num_values() as u64,
        dfg.jump_tables.len() as u64,
        dfg.constants.len() as u64,
        dfg.immediates.len() as u64,
        func.sized_stack_slots.len() as u64,
        func.dynamic_stack_slots.len() as u64,
        u64::from(func.stack_limit.is_some()),
    ];
    let mut bytes = [0; 11 * 8];
    for (chunk, number) in bytes.chunks_exact_mut(8).zip(numbers) {
        chunk.copy_from_slice(&number.to_le_bytes());
    }
    xxh3_64(&bytes)
}

/// The common counts of functions that resemble each other, and about how large they are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// A digest of its key, its signature, its stack slots and the number of its blocks.
    pub digest: u32,
    /// The number of its instructions, unreachable ones included.
    pub instructions: u32,
}

impl Counts {
    /// `key` is that of the embedder. Constant time, but for the signature and stack slots. Dynamic
    /// stack slots are only counted.
    pub fn of(func: &Function, key: u64) -> Counts {
        let numbers = [
            key,
            signature_digest(&func.signature),
            func.dfg.num_blocks() as u64,
            func.dynamic_stack_slots.len() as u64,
        ];
        let slots = func.sized_stack_slots.values().map(|slot| {
            let StackSlotData { kind: _, size, align_shift, key: _ } = slot;
            u64::from(*size) << 8 | u64::from(*align_shift)
        });
        let digest = numbers.into_iter().chain(slots).fold(0_u64, |digest, number| {
            (digest ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
        });
        let instructions = u32::try_from(func.dfg.num_insts()).unwrap_or(u32::MAX);
        Counts { digest: (digest ^ digest >> 32) as u32, instructions }
    }
}

/// Types, extensions and calling convention. Purposes count in the walk.
fn signature_digest(signature: &Signature) -> u64 {
    let Signature { params, returns, call_conv } = signature;
    let start = params.len() as u64 | (returns.len() as u64) << 24 | (*call_conv as u64) << 48;
    params.iter().chain(returns).fold(start, |digest, param| {
        let AbiParam { value_type, purpose: _, extension } = param;
        let number = digest ^ value_type.index() as u64 ^ (*extension as u64) << 16;
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
    })
}
