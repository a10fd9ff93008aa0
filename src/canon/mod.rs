//! The canonical walk: the only code that reads IR in order to decide equality.
//!
//! [`encode`] visits the blocks of a function in the order in which control flow first mentions
//! them, starting at the entry, and writes what it sees into the four streams of an [`Encoding`].
//! Layout order, unreachable blocks, unused entities and all index numbering never reach a stream:
//! * a block is numbered when it is first mentioned, a value when it is defined (a definition
//!   dominates its uses, and control flow comes to a dominator first on every path, so in verified
//!   IR every operand has its number when it is read);
//! * signatures and alias regions are numbered at first use and written in full there;
//! * every other table entry (constants, masks, jump and exception tables, memory flags, global
//!   values, symbols) is written by content wherever it is used.
//!
//! Streams are self-delimiting: each opcode fixes what follows it, and every list is preceded by
//! its length. So two functions have equal streams only if they are the same walk.
//!
//! Every `InstructionData` variant and every struct is matched by field without `..`: a field that
//! a new Cranelift adds is a compile error here. Where a field is left out on purpose, the pattern
//! says `_` and the comment says why.
//!
//! What it does *not* do: it does not look into callees, does not optimise, and does not verify. For IR that the
//! verifier refuses it returns [`Malformed`] where the walk finds it; such a function is never equal to another.

pub(crate) mod data;
mod encoding;
mod facts;
mod hash;
mod inst;
mod labels;
mod normalise;
pub(crate) use normalise::only_destination;
mod prefilter;
mod redirected;
mod tables;

pub use encoding::Encoding;
pub(crate) use encoding::{KNOWN_SYMBOL, LIBCALL, TEST_CASE};
pub(crate) use facts::{Fact, Region, facts_allow, meet};
pub(crate) use hash::{Digest, PartHashes, digest, hashes};
pub use hash::{StructuralHash, structural_hash};
pub(crate) use prefilter::{counts, outline};

use crate::extra_argument::ExtraArgument;
use crate::options::{Compare, ComparePolicy};
use crate::target::Target;
use crate::unit::ResolveSymbol;
use alloc::vec::Vec;
use cranelift_codegen::ir::function::FunctionStencil;
use cranelift_codegen::ir::{
    Block, BlockArg, BlockCall, Constant, DynamicStackSlotData, DynamicTypeData, FuncRef, Function,
    GlobalValue, Inst, StackSlotData, StackSlotKind, Type, Value, types,
};
use cranelift_entity::{EntityRef, EntitySet};

/// Begins every shape stream. Changes with the output of the walk.
const ENCODING_VERSION: u32 = 3;

/// The function cannot be encoded, because the verifier would refuse it (or there is no body).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The input of the walk besides the function.
pub(crate) struct Context<'a> {
    pub policy: ComparePolicy,
    pub target: Target,
    /// The function key of the function to be walked.
    pub key: u64,
    pub symbols: &'a dyn ResolveSymbol,
}

/// A part of a function that the walk wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Policy,
    Signature,
    StackSlots,
    DynamicTypes,
    StackLimit,
    Block(Block),
    Inst(Inst),
    /// An extra argument that this call will pass, where a plan is applied.
    ExtraArgument(Inst),
}

/// What an instruction holds that functions of one shape can differ in and that a value could replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    /// The bits of its result, of this type.
    Constant { ty: Type, bits: u128 },
    /// A distance in bytes that is added to an address of this type.
    Offset { ty: Type, bytes: i32 },
    /// The function that it calls.
    Callee(FuncRef),
    /// The function whose address it takes.
    Function(FuncRef),
    /// The symbol whose address it takes.
    Symbol(GlobalValue),
    /// The extra argument of this number in [`Scratch::arguments`].
    ExtraArgument(usize),
}

/// The lengths of the streams when the walk came to a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub place: Place,
    /// Of an instruction.
    pub operand: Option<Operand>,
    pub shape: usize,
    pub constants: usize,
    pub references: usize,
    pub callees: usize,
    pub facts: usize,
}

/// Memory that a walk needs, to be reused for the next. Holds nothing between two walks.
#[derive(Default)]
pub(crate) struct Scratch {
    /// 1 + the number of a value, by its index; 0 for one not yet defined.
    values: Vec<u32>,
    value_count: u32,
    /// The same for blocks; 0 for one not yet mentioned.
    blocks: Vec<u32>,
    block_count: u32,
    /// Blocks to be walked, in this order; those that were walked remain.
    queue: Vec<Block>,
    /// The blocks of `queue`.
    queued: EntitySet<Block>,
    /// Blocks whose address is taken, in the order of these mentions.
    addressed: Vec<Block>,
    /// The constants that exist, ascending: the pool is a map with gaps.
    constants: Vec<Constant>,
    /// 1 + the number of a signature, by its index.
    signatures: Vec<u32>,
    distinct_signatures: tables::Distinct,
    signature_count: u32,
    /// 1 + the number of an alias region, by its index.
    regions: Vec<u32>,
    region_count: u32,
    /// Symbols of the function as the unit knows them, by `UserExternalNameRef`.
    symbols: Vec<Option<redirected::Known>>,
    /// The numbers of the extra arguments that the call at hand passes.
    passed: Vec<u32>,
    /// The numbers of the signatures of calls that pass extra arguments.
    extended: Vec<(FuncRef, u32)>,
    /// Whether to fill `marks` and `arguments`.
    record: bool,
    /// Where in the streams each place begins, if `record` is set.
    pub marks: Vec<Mark>,
    /// The extra arguments that calls will pass, in the order of the walk, if `record` is set.
    pub arguments: Vec<ExtraArgument>,
}

impl Scratch {
    /// The number of blocks that the last walk came to.
    pub fn blocks(&self) -> u32 {
        self.block_count
    }

    /// For walks that fill `marks`.
    pub fn recording() -> Self {
        Scratch { record: true, ..Scratch::default() }
    }
}

fn reset(numbers: &mut Vec<u32>, len: usize) {
    numbers.clear();
    numbers.resize(len, 0);
}

/// Writes the encoding of `func` into `out`, which is cleared first.
///
/// Linear in the size of the function. Equality of the encodings is equality of the functions, up to the functions
/// of the unit that they refer to.
///
/// # Errors
///
/// [`Malformed`] if the IR is not what the verifier accepts, as far as the walk depends on it.
pub(crate) fn encode(
    func: &Function,
    context: &Context<'_>,
    scratch: &mut Scratch,
    out: &mut Encoding,
) -> Result<(), Malformed> {
    out.clear();
    scratch.marks.clear();
    scratch.arguments.clear();
    reset(&mut scratch.values, func.dfg.num_values());
    reset(&mut scratch.blocks, func.dfg.num_blocks());
    reset(&mut scratch.signatures, func.dfg.signatures.len());
    reset(&mut scratch.regions, func.dfg.alias_regions.len());
    scratch.queue.clear();
    scratch.queued.clear();
    scratch.addressed.clear();
    scratch.constants.clear();
    scratch.constants.extend(func.dfg.constants.iter().map(|(&constant, _)| constant));
    scratch.distinct_signatures.clear();
    scratch.value_count = 0;
    scratch.block_count = 0;
    scratch.signature_count = 0;
    scratch.region_count = 0;
    scratch.symbols.clear();
    scratch.symbols.resize(func.params.user_named_funcs().len(), None);
    scratch.extended.clear();

    let mut walk = Walk { func, context, scratch, out, dead: false };
    walk.header()?;
    walk.blocks()?;
    if context.policy.value_labels == Compare::Compare {
        walk.value_labels()?;
    }
    Ok(())
}

struct Walk<'a> {
    func: &'a Function,
    context: &'a Context<'a>,
    scratch: &'a mut Scratch,
    out: &'a mut Encoding,
    /// Whether no control flow reaches the blocks that are walked now.
    dead: bool,
}

impl Walk<'_> {
    fn mark(&mut self, place: Place) {
        if self.scratch.record {
            let Encoding { shape, constants, references, callees, facts, instructions: _ } =
                &*self.out;
            self.scratch.marks.push(Mark {
                place,
                operand: None,
                shape: shape.len(),
                constants: constants.len(),
                references: references.len(),
                callees: callees.len(),
                facts: facts.len(),
            });
        }
    }

    /// Notes what the instruction at hand holds.
    fn holds(&mut self, operand: Operand) {
        if let Some(mark) = self.scratch.marks.last_mut() {
            mark.operand = Some(operand);
        }
    }

    fn word(&mut self, word: u32) {
        self.out.shape_word(word);
    }

    fn length(&mut self, length: usize) -> Result<(), Malformed> {
        self.word(u32::try_from(length).map_err(|_| Malformed)?);
        Ok(())
    }

    fn long(&mut self, long: u64) {
        self.out.shape.extend_from_slice(&long.to_le_bytes());
    }

    fn ty(&mut self, ty: Type) {
        // `Type::index` is the type's number, the same on every host.
        self.word(ty.index() as u32);
    }

    fn header(&mut self) -> Result<(), Malformed> {
        let FunctionStencil {
            version_marker: _,
            signature,
            sized_stack_slots,
            dynamic_stack_slots,
            global_values: _, // by use
            dfg,
            layout: _,     // the walk itself
            srclocs: _,    // by instruction, if the policy says so
            debug_tags: _, // by instruction, if the policy says so
            stack_limit,
        } = &self.func.stencil;

        self.mark(Place::Policy);
        let policy = &self.context.policy;
        self.word(ENCODING_VERSION | policy.bits() << 16);
        self.long(self.context.key);
        if policy.value_labels == Compare::Compare {
            self.word(u32::from(dfg.values_labels.is_some()));
        }

        self.mark(Place::Signature);
        self.signature_content(signature)?;

        // An unused slot still takes its place in the frame, so all of them count, in order.
        self.mark(Place::StackSlots);
        self.length(sized_stack_slots.len())?;
        for slot in sized_stack_slots.values() {
            let StackSlotData { kind, size, align_shift, key } = slot;
            let alignment = self.context.target.slot_alignment.trailing_zeros();
            let alignment = u32::from(*align_shift).max(alignment);
            self.word(stack_slot_kind(*kind) | alignment << 8);
            self.word(*size);
            if policy.stack_slot_keys == Compare::Compare {
                self.word(u32::from(key.is_some()));
                self.long(key.map_or(0, |key| key.bits()));
            }
        }

        self.mark(Place::DynamicTypes);
        self.length(dynamic_stack_slots.len())?;
        for slot in dynamic_stack_slots.values() {
            let DynamicStackSlotData { kind, dyn_ty } = slot;
            let dynamic_type = dfg.dynamic_types.get(*dyn_ty).ok_or(Malformed)?;
            let DynamicTypeData { base_vector_ty, dynamic_scale } = dynamic_type;
            self.word(stack_slot_kind(*kind));
            self.ty(*base_vector_ty);
            self.global_value(*dynamic_scale)?;
        }

        self.mark(Place::StackLimit);
        self.word(u32::from(stack_limit.is_some()));
        if let Some(limit) = *stack_limit {
            self.global_value(limit)?;
        }
        Ok(())
    }

    /// Walks every block that control flow reaches, in the order in which it does, and then the blocks of which
    /// only the address is taken.
    ///
    /// An address can be taken long before control flow reaches the block, so it must not decide when the block is
    /// walked: the values that the block uses might not be defined yet.
    fn blocks(&mut self) -> Result<(), Malformed> {
        let entry = self.func.layout.entry_block().ok_or(Malformed)?;
        self.reach(entry)?;
        let (mut walked, mut addressed) = (0, 0);
        loop {
            if let Some(&block) = self.scratch.queue.get(walked) {
                walked += 1;
                self.block(block)?;
            } else if let Some(&block) = self.scratch.addressed.get(addressed) {
                addressed += 1;
                self.dead = true;
                self.reach(block)?;
            } else {
                return Ok(());
            }
        }
    }

    /// The number of a block, given when it is first mentioned.
    fn mention(&mut self, block: Block) -> Result<u32, Malformed> {
        let number = self.scratch.blocks.get_mut(block.index()).ok_or(Malformed)?;
        if *number == 0 {
            if !self.func.layout.is_block_inserted(block) {
                return Err(Malformed);
            }
            self.scratch.block_count += 1;
            *number = self.scratch.block_count;
        }
        Ok(*number)
    }

    /// The number of a block that control flow may reach next.
    fn reach(&mut self, block: Block) -> Result<u32, Malformed> {
        let number = self.mention(block)?;
        if self.scratch.queued.insert(block) {
            self.scratch.queue.push(block);
        }
        Ok(number)
    }

    /// The number of a block whose address is taken.
    fn address_of(&mut self, block: Block) -> Result<u32, Malformed> {
        let number = self.mention(block)?;
        self.scratch.addressed.push(block);
        Ok(number)
    }

    /// Numbers a value where it is defined.
    fn define(&mut self, value: Value) {
        self.scratch.value_count += 1;
        self.scratch.values[value.index()] = self.scratch.value_count;
    }

    /// The value of which `value` is an alias, or the value itself.
    fn original(&self, value: Value) -> Result<Value, Malformed> {
        let dfg = &self.func.dfg;
        // A deleted value is an alias of nothing, and has no type.
        match dfg.value_is_valid(value) && dfg.value_type(value) != types::INVALID {
            true => Ok(dfg.resolve_aliases(value)),
            false => Err(Malformed),
        }
    }

    /// The number of a value that was defined before, aliases resolved.
    fn number(&self, value: Value) -> Result<u32, Malformed> {
        match self.scratch.values.get(value.index()) {
            None | Some(0) => match self.scratch.values[self.original(value)?.index()] {
                // The verifier accepts unreachable code that uses values that no instruction computes.
                0 if !self.dead => Err(Malformed),
                number => Ok(number),
            },
            Some(&number) => Ok(number),
        }
    }

    fn operand(&mut self, value: Value) -> Result<(), Malformed> {
        let number = self.number(value)?;
        self.word(number);
        Ok(())
    }

    fn operands(&mut self, values: &[Value]) -> Result<(), Malformed> {
        for &value in values {
            self.operand(value)?;
        }
        Ok(())
    }

    fn operand_list(&mut self, values: &[Value]) -> Result<(), Malformed> {
        self.length(values.len())?;
        self.operands(values)
    }

    fn block_call(&mut self, call: &BlockCall) -> Result<(), Malformed> {
        let pool = &self.func.dfg.value_lists;
        let number = self.reach(call.block(pool))?;
        self.word(number);
        let args = call.args(pool);
        self.length(args.len())?;
        for arg in args {
            let (kind, number) = match arg {
                BlockArg::Value(value) => (0, self.number(value)?),
                BlockArg::TryCallRet(index) => (1, index),
                BlockArg::TryCallExn(index) => (2, index),
            };
            self.word(kind);
            self.word(number);
        }
        Ok(())
    }

    fn block(&mut self, block: Block) -> Result<(), Malformed> {
        let func = self.func;
        self.mark(Place::Block(block));
        self.out.facts.push(Fact::Block { cold: func.layout.is_cold(block) });
        let params = func.dfg.block_params(block);
        // Ends the block before, whose last instruction may have any opcode in unverified IR.
        self.word(u32::MAX);
        self.length(params.len())?;
        for &param in params {
            self.ty(func.dfg.value_type(param));
            self.define(param);
        }
        for inst in func.layout.block_insts(block) {
            self.instruction(inst)?;
        }
        Ok(())
    }
}

fn stack_slot_kind(kind: StackSlotKind) -> u32 {
    match kind {
        StackSlotKind::ExplicitSlot => 0,
        StackSlotKind::ExplicitDynamicSlot => 1,
    }
}
