//! What is known of a function before any of it is walked.
//!
//! [`counts`] prefilters functions in constant time: two functions with different counts are not compared.
//! [`Observed`] finds the functions whose addresses are taken, which must be known of functions that are never
//! walked, too. It reads the instruction table in memory order, which is several times cheaper than a walk, and
//! only in units where the answer can matter.

use cranelift_codegen::ir::{
    AbiParam, ExternalName, FuncRef, Function, GlobalValueData, Inst, InstructionData, Signature,
    UserExternalName,
};
use cranelift_entity::EntityRef;
use hashbrown::HashSet;
use rustc_hash::FxBuildHasher;
use xxhash_rust::xxh3::xxh3_64;

/// A digest of the signature and of the sizes of the function's tables.
///
/// Left out are the tables whose sizes say more about the front end than about the function:
/// imports, signatures, memory flags, alias regions, global values; and exception tables, which
/// `DataFlowGraph::clear` forgets to clear.
pub(crate) fn counts(func: &Function, key: u64) -> u64 {
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

/// Symbols of which some function observes more than the behaviour. May hold one that only
/// unreachable code observes.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    addresses: Symbols,
    patchable: Symbols,
    interior: Symbols,
}

type Symbols = HashSet<UserExternalName, FxBuildHasher>;

impl Observed {
    /// Adds the symbols that the tables of `func` observe. Linear in their sizes.
    pub fn add_tables(&mut self, func: &Function) {
        for gv in func.global_values.values() {
            if let GlobalValueData::Symbol { name, offset, colocated: _, tls: _ } = gv {
                insert(&mut self.addresses, func, name);
                if offset.bits() != 0 {
                    insert(&mut self.interior, func, name);
                }
            }
        }
        for callee in func.dfg.ext_funcs.values() {
            if callee.patchable {
                insert(&mut self.patchable, func, &callee.name);
            }
        }
    }

    /// Adds the functions whose addresses `func` takes.
    ///
    /// Linear in the number of instructions, some nanoseconds each; constant where the function
    /// names no functions.
    pub fn add_address_uses(&mut self, func: &Function) {
        if !func.dfg.ext_funcs.is_empty() {
            for func_ref in address_uses(func) {
                if let Some(callee) = func.dfg.ext_funcs.get(func_ref) {
                    insert(&mut self.addresses, func, &callee.name);
                }
            }
        }
    }

    /// Adds an address that a data object holds, `addend` bytes behind the symbol.
    pub fn add_address(&mut self, symbol: &UserExternalName, addend: i64) {
        self.addresses.insert(symbol.clone());
        if addend != 0 {
            self.interior.insert(symbol.clone());
        }
    }

    /// Whether something points into it, or behind it: only its own code is correct there.
    pub fn points_inside(&self, symbol: &UserExternalName) -> bool {
        self.interior.contains(symbol)
    }

    /// Whether something in the unit takes the address.
    pub fn address_taken(&self, symbol: &UserExternalName) -> bool {
        self.addresses.contains(symbol)
    }

    /// Whether some function calls it in a way that can be patched.
    pub fn patchable(&self, symbol: &UserExternalName) -> bool {
        self.patchable.contains(symbol)
    }
}

fn insert(symbols: &mut Symbols, func: &Function, name: &ExternalName) {
    if let ExternalName::User(name_ref) = name
        && let Some(symbol) = func.params.user_named_funcs().get(*name_ref)
        && !symbols.contains(symbol)
    {
        symbols.insert(symbol.clone());
    }
}

/// The function references whose addresses instructions of `func` take, unreachable ones included.
pub(crate) fn address_uses(func: &Function) -> impl Iterator<Item = FuncRef> + '_ {
    (0..func.dfg.num_insts()).filter_map(|index| match func.dfg.insts[Inst::new(index)] {
        InstructionData::FuncAddr { opcode: _, func_ref } => Some(func_ref),
        _ => None,
    })
}
