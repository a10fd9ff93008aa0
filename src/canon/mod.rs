//! The canonical walk: all equality of functions is decided on its encodings.
//!
//! [`encode`] visits the blocks of a function in the order in which control flow first mentions
//! them, starting at the entry, and writes what it sees into the three streams of an [`Encoding`].
//! Layout order, unreachable blocks, unused entities and all index numbering never reach a stream:
//! * a block is numbered when it is first mentioned, a value when it is defined (a definition
//!   dominates its uses, and control flow comes to a dominator first on every path, so in verified
//!   IR every operand has its number when it is read);
//! * signatures and alias regions are numbered at first use and written in full there;
//! * every other table entry (constants, masks, jump and exception tables, memory flags, global
//!   values, symbols) is written by content wherever it is used.
//!
//! Streams are self-delimiting: each opcode, with the signature of a call, fixes what follows it,
//! every list is preceded by its length, and the first two bytes of a number say how long it is. So
//! two functions have equal streams only if they are one walk.
//!
//! Numbers are those of values, blocks, slots and signatures, and lengths. Nearly all of them are
//! small and take two bytes: hashed, compared and kept encodings are half as long as with four.
//!
//! Every `InstructionData` variant and every struct is matched by field without `..`: a field that
//! a new Cranelift adds is a compile error here. Where a field is left out on purpose, the pattern
//! says `_` and the comment says why.
//!
//! It does *not* look into callees, optimise, or verify. For IR that the
//! verifier refuses it returns [`Malformed`] where the walk finds it; such a function is never
//! equal to another.

mod code_digest;
pub(crate) mod data;
mod encoding;
mod hash;
mod inst;
mod labels;
mod normalise;
pub(crate) use normalise::{change_places, only_destination};
mod prefilter;
mod redirected;
mod tables;
pub(crate) use tables::byte_order;

pub(crate) use code_digest::code_digest;
pub use encoding::Encoding;
use encoding::Record;
pub(crate) use encoding::{KNOWN_SYMBOL, LIBCALL, TEST_CASE};
pub use hash::{ContentDigest, StructuralHash, structural_hash};
pub(crate) use hash::{Digest, ShapeHash, digest, hashes, shape_hash};
pub(crate) use prefilter::{Counts, bucket};

use crate::extra_argument::ExtraArgument;
use crate::options::Options;
use crate::target::Target;
use crate::unit::{NoUnit, ResolveSymbol};
use alloc::vec::Vec;
use cranelift_codegen::ir::function::FunctionStencil;
use cranelift_codegen::ir::{
    Block, BlockArg, BlockCall, Constant, DynamicStackSlotData, DynamicTypeData, FuncRef, Function,
    GlobalValue, Inst, StackSlotData, StackSlotKind, Type, Value, types,
};
use cranelift_entity::EntityRef;

impl Encoding {
    /// The encoding of a function on its own: every symbol it names is compared by name, none by
    /// class. `None` if the walk finds IR that the verifier refuses.
    ///
    /// Within a unit, use [`Merger`](crate::Merger), which knows which callees are equal.
    pub fn of(func: &Function, options: &Options<'_>) -> Option<Encoding> {
        let mut encoding = Encoding::default();
        let context = Context::of(options, 0, &NoUnit);
        encode(func, &context, &mut Scratch::default(), &mut encoding).ok()?;
        Some(encoding)
    }
}

/// Begins every shape stream. Changes with the output of the walk.
const ENCODING_VERSION: u32 = 5;

/// Begins a block: no opcode. So it ends the block before, whose last instruction may be any one in
/// unverified IR.
const BLOCK: u8 = 0;

/// An argument of a block is a number, or one of these and an index: no beginnings of numbers.
const TRY_CALL_RETURN: u16 = 0xfffe;
const TRY_CALL_EXCEPTION: u16 = 0xfffd;

/// The function cannot be encoded, because the verifier would refuse it (or there is no body).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The input of the walk besides the function.
pub(crate) struct Context<'a> {
    /// Whether what debuggers see is encoded.
    pub debug_info: bool,
    pub target: Target,
    /// The function key of the function to be walked.
    pub key: u64,
    pub symbols: &'a dyn ResolveSymbol,
}

impl<'a> Context<'a> {
    /// As these options say.
    pub fn of(options: &Options<'_>, key: u64, symbols: &'a dyn ResolveSymbol) -> Self {
        Context { debug_info: options.compare.debug_info, target: options.target, key, symbols }
    }
}

/// A part of a function that the walk wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The function key, and how it is encoded.
    Key,
    Signature,
    StackSlots,
    DynamicTypes,
    StackLimit,
    Block(Block),
    Inst(Inst),
    /// An extra argument that this call will pass, where a plan is applied.
    ExtraArgument(Inst),
}

/// A part of an instruction in which functions of one shape can differ and that a value could
/// replace.
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
    /// Of a branch that was written as a jump: its only destination.
    pub only_way: Option<BlockCall>,
    pub shape: usize,
    pub constants: usize,
    pub references: usize,
    pub callees: usize,
}

/// Memory that a walk needs, to be reused for the next. Holds nothing between two walks.
#[derive(Default)]
pub(crate) struct Scratch {
    values: Values,
    blocks: Blocks,
    signatures: Signatures,
    regions: Regions,
    /// The constants that exist, ascending: the pool is a map with gaps.
    constants: Vec<Constant>,
    /// The encodings of accesses with these memory flags, by their index.
    accesses: Vec<Option<tables::Access>>,
    /// Symbols of the function as the unit knows them, by `UserExternalNameRef`.
    symbols: Vec<Option<redirected::Known>>,
    /// Whether to fill `marks` and `arguments`.
    record: bool,
    /// Whether to write what instructions are apart from what they are used on: see
    /// [`Scratch::contents`].
    contents: bool,
    /// Where in the streams each place begins, if `record` is set.
    pub marks: Vec<Mark>,
    /// The extra arguments that calls will pass, in the order of the walk, if `record` is set.
    pub arguments: Vec<ExtraArgument>,
}

#[derive(Default)]
struct Values {
    /// 1 + the number of a value, or of its substitute ([`Scratch::contents`]), by its
    /// index; 0 for one not yet defined.
    numbers: Vec<u32>,
    count: u32,
    /// The numbers of the extra arguments that the call at hand passes.
    passed: Vec<u32>,
}

#[derive(Default)]
struct Blocks {
    /// By the index of a block.
    mentioned: Vec<Mentioned>,
    count: u32,
    /// Blocks to be walked, in this order; those that were walked remain.
    queue: Vec<Block>,
    /// To how many blocks of the queue control flow comes.
    reached: usize,
    /// Blocks whose address is taken, in the order of these mentions.
    addressed: Vec<Block>,
}

#[derive(Default)]
struct Signatures {
    /// 1 + the number of a signature, by its index.
    numbers: Vec<u32>,
    distinct: tables::Distinct,
    count: u32,
    /// The numbers of the signatures of calls that pass extra arguments.
    extended: Vec<(FuncRef, u32)>,
}

#[derive(Default)]
struct Regions {
    /// 1 + the number of an alias region, by its index.
    numbers: Vec<u32>,
    count: u32,
    /// The largest number of a region that was written.
    written: u32,
}

/// The state of a block.
#[derive(Clone, Copy, Default)]
struct Mentioned {
    /// 1 + its number; 0 if it was not mentioned yet.
    number: u32,
    /// Whether it is in the queue.
    queued: bool,
}

impl Scratch {
    /// The blocks that the last walk came to, in its order.
    pub fn walked(&self) -> &[Block] {
        &self.blocks.queue
    }

    /// Whether the last walk came to a block of which only the address is taken.
    pub fn has_dead_blocks(&self) -> bool {
        self.blocks.reached < self.blocks.queue.len()
    }

    /// How many values the last walk numbered before a value that it read, aliases resolved. `None`
    /// for one that it did not read, or that no instruction computes.
    pub fn values_before(&self, value: Value) -> Option<u32> {
        self.values.numbers.get(value.index())?.checked_sub(1)
    }

    /// For walks that fill `marks`.
    pub fn recording() -> Self {
        Scratch { record: true, ..Scratch::default() }
    }

    /// For walks that fill `marks` and write the content of each instruction by itself: the types
    /// of its operands in place of their numbers, and signatures and alias regions in full wherever
    /// they are used. So the parts of the streams that two instructions of two functions wrote are
    /// equal exactly if one of them can stand for both, operands apart.
    pub fn contents() -> Self {
        Scratch { contents: true, ..Scratch::recording() }
    }
}

fn reset<T: Clone + Default>(known: &mut Vec<T>, len: usize) {
    known.clear();
    known.resize(len, T::default());
}

/// Writes the encoding of `func` into `out`, which is cleared first.
///
/// Linear in the size of the function. Equality of the encodings is equality of the functions, up
/// to the functions of the unit that they refer to.
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
    reset(&mut scratch.values.numbers, func.dfg.num_values());
    reset(&mut scratch.blocks.mentioned, func.dfg.num_blocks());
    reset(&mut scratch.signatures.numbers, func.dfg.signatures.len());
    reset(&mut scratch.regions.numbers, func.dfg.alias_regions.len());
    scratch.blocks.queue.clear();
    scratch.blocks.addressed.clear();
    scratch.constants.clear();
    scratch.constants.extend(func.dfg.constants.iter().map(|(&constant, _)| constant));
    scratch.accesses.clear();
    scratch.signatures.distinct.clear();
    scratch.values.count = 0;
    scratch.blocks.count = 0;
    scratch.signatures.count = 0;
    scratch.regions.count = 0;
    scratch.regions.written = 0;
    reset(&mut scratch.symbols, func.params.user_named_funcs().len());
    scratch.values.passed.clear();
    scratch.signatures.extended.clear();

    let mut walk = Walk { func, context, scratch, out, dead: false };
    walk.header()?;
    walk.blocks()?;
    if context.debug_info {
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
    #[inline]
    fn mark(&mut self, place: Place) {
        if self.scratch.record {
            self.new_mark(place);
        }
    }

    #[cold]
    fn new_mark(&mut self, place: Place) {
        let Encoding { shape, constants, references, callees, instructions: _ } = &*self.out;
        self.scratch.marks.push(Mark {
            place,
            operand: None,
            only_way: None,
            shape: shape.len(),
            constants: constants.len(),
            references: references.len(),
            callees: callees.len(),
        });
    }

    /// Notes what the instruction at hand holds.
    #[inline]
    fn holds(&mut self, operand: Operand) {
        if let Some(mark) = self.scratch.marks.last_mut() {
            mark.operand = Some(operand);
        }
    }

    #[inline(always)]
    fn put(&mut self, record: Record) {
        self.out.shape_record(record);
    }

    /// Writes a record, and numbers behind it.
    #[inline(always)]
    fn put_numbers<const N: usize>(&mut self, record: Record, numbers: [u32; N]) {
        self.out.shape_numbers(record, numbers);
    }

    fn byte(&mut self, byte: u8) {
        self.put(Record::EMPTY.byte(byte));
    }

    fn word(&mut self, word: u32) {
        self.put(Record::EMPTY.word(word));
    }

    fn long(&mut self, long: u64) {
        self.out.shape.extend_from_slice(&long.to_le_bytes());
    }

    #[inline]
    fn length(&mut self, length: usize) -> Result<(), Malformed> {
        let length = u32::try_from(length).map_err(|_| Malformed)?;
        self.put_numbers(Record::EMPTY, [length]);
        Ok(())
    }

    #[inline]
    fn ty(&mut self, ty: Type) {
        self.put(Record::EMPTY.half(type_number(ty)));
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
            srclocs: _,    // by instruction, with debug information
            debug_tags: _, // by instruction, with debug information
            stack_limit,
        } = &self.func.stencil;

        self.mark(Place::Key);
        let debug_info = self.context.debug_info;
        self.word(ENCODING_VERSION | u32::from(debug_info) << 16);
        self.long(self.context.key);
        if debug_info {
            self.byte(u8::from(dfg.values_labels.is_some()));
        }

        self.mark(Place::Signature);
        self.signature_content(signature)?;

        // An unused slot still takes its place in the frame, so all of them count, in order.
        self.mark(Place::StackSlots);
        self.length(sized_stack_slots.len())?;
        for slot in sized_stack_slots.values() {
            let StackSlotData { kind, size, align_shift, key } = slot;
            let alignment = slot_alignment(*align_shift, &self.context.target);
            let kind = Record::EMPTY.byte(stack_slot_kind(*kind)).byte(alignment);
            self.put(kind.word(*size));
            if debug_info {
                self.byte(u8::from(key.is_some()));
                self.long(key.map_or(0, |key| key.bits()));
            }
        }

        self.mark(Place::DynamicTypes);
        self.length(dynamic_stack_slots.len())?;
        for slot in dynamic_stack_slots.values() {
            let DynamicStackSlotData { kind, dyn_ty } = slot;
            let dynamic_type = dfg.dynamic_types.get(*dyn_ty).ok_or(Malformed)?;
            let DynamicTypeData { base_vector_ty, dynamic_scale } = dynamic_type;
            self.byte(stack_slot_kind(*kind));
            self.ty(*base_vector_ty);
            self.global_value(*dynamic_scale)?;
        }

        self.mark(Place::StackLimit);
        self.byte(u8::from(stack_limit.is_some()));
        if let Some(limit) = *stack_limit {
            self.global_value(limit)?;
        }
        Ok(())
    }

    /// Walks every block that control flow reaches, in the order in which it does, and then the
    /// blocks of which only the address is taken.
    ///
    /// An address can be taken long before control flow reaches the block, so it must not decide
    /// when the block is walked: the values that the block uses might not be defined yet.
    fn blocks(&mut self) -> Result<(), Malformed> {
        let entry = self.func.layout.entry_block().ok_or(Malformed)?;
        self.reach(entry)?;
        let (mut walked, mut addressed) = (0, 0);
        loop {
            if let Some(&block) = self.scratch.blocks.queue.get(walked) {
                walked += 1;
                self.block(block)?;
                continue;
            }
            if !self.dead {
                self.scratch.blocks.reached = walked;
            }
            let Some(&block) = self.scratch.blocks.addressed.get(addressed) else {
                return Ok(());
            };
            addressed += 1;
            self.dead = true;
            self.reach(block)?;
        }
    }

    /// The number of a block, given when it is first mentioned.
    #[inline]
    fn mention(&mut self, block: Block) -> Result<&mut Mentioned, Malformed> {
        let Blocks { mentioned, count, .. } = &mut self.scratch.blocks;
        let mentioned = mentioned.get_mut(block.index()).ok_or(Malformed)?;
        if mentioned.number == 0 {
            if !self.func.layout.is_block_inserted(block) {
                return Err(Malformed);
            }
            *count += 1;
            mentioned.number = *count;
        }
        Ok(mentioned)
    }

    /// The number of a block that control flow may reach next.
    fn reach(&mut self, block: Block) -> Result<u32, Malformed> {
        let Mentioned { number, queued } = self.mention(block)?;
        let number = *number;
        if !core::mem::replace(queued, true) {
            self.scratch.blocks.queue.push(block);
        }
        Ok(number)
    }

    /// The number of a block whose address is taken.
    fn address_of(&mut self, block: Block) -> Result<u32, Malformed> {
        let number = self.mention(block)?.number;
        self.scratch.blocks.addressed.push(block);
        Ok(number)
    }

    /// Numbers a value where it is defined.
    #[inline]
    fn define(&mut self, value: Value) {
        self.scratch.values.count += 1;
        self.scratch.values.numbers[value.index()] = match self.scratch.contents {
            false => self.scratch.values.count,
            true => 1 + u32::from(type_number(self.func.dfg.value_type(value))),
        };
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
    #[inline(always)]
    fn number(&mut self, value: Value) -> Result<u32, Malformed> {
        match self.scratch.values.numbers.get(value.index()) {
            None | Some(0) => self.number_of_original(value),
            Some(&number) => Ok(number),
        }
    }

    #[inline(never)]
    fn number_of_original(&mut self, value: Value) -> Result<u32, Malformed> {
        let number = self.scratch.values.numbers[self.original(value)?.index()];
        // The verifier accepts unreachable code that uses values that no instruction computes.
        if number == 0 && !self.dead {
            return Err(Malformed);
        }
        // An alias is resolved once: the number of its original does not change any more, unless it
        // is 0.
        self.scratch.values.numbers[value.index()] = number;
        Ok(number)
    }

    /// Writes a record, and the numbers of operands behind it.
    #[inline(always)]
    fn operands<const N: usize>(
        &mut self,
        record: Record,
        values: &[Value; N],
    ) -> Result<(), Malformed> {
        let mut numbers = [0; N];
        for at in 0..N {
            numbers[at] = self.number(values[at])?;
        }
        self.put_numbers(record, numbers);
        Ok(())
    }

    /// Writes a list of operands.
    fn operand_list(&mut self, record: Record, values: &[Value]) -> Result<(), Malformed> {
        let length = u32::try_from(values.len()).map_err(|_| Malformed)?;
        self.put_numbers(record, [length]);
        for &value in values {
            self.operands(Record::EMPTY, &[value])?;
        }
        Ok(())
    }

    /// Writes a record, and a block and its arguments behind it.
    fn block_call(&mut self, record: Record, call: &BlockCall) -> Result<(), Malformed> {
        let pool = &self.func.dfg.value_lists;
        let number = self.reach(call.block(pool))?;
        let args = call.args(pool);
        let length = u32::try_from(args.len()).map_err(|_| Malformed)?;
        self.put_numbers(record, [number, length]);
        for arg in args {
            match arg {
                BlockArg::Value(value) => self.operands(Record::EMPTY, &[value])?,
                BlockArg::TryCallRet(index) => {
                    self.put(Record::EMPTY.half(TRY_CALL_RETURN).word(index));
                }
                BlockArg::TryCallExn(index) => {
                    self.put(Record::EMPTY.half(TRY_CALL_EXCEPTION).word(index));
                }
            }
        }
        Ok(())
    }

    fn block(&mut self, block: Block) -> Result<(), Malformed> {
        let func = self.func;
        self.mark(Place::Block(block));
        let cold = u8::from(func.layout.is_cold(block));
        let params = func.dfg.block_params(block);
        let length = u32::try_from(params.len()).map_err(|_| Malformed)?;
        self.put_numbers(Record::EMPTY.byte(BLOCK).byte(cold), [length]);
        for &param in params {
            self.ty(func.dfg.value_type(param));
            self.define(param);
        }
        let mut next = func.layout.first_inst(block);
        while let Some(inst) = next {
            self.instruction(inst)?;
            next = func.layout.next_inst(inst);
        }
        Ok(())
    }
}

/// The type's number, the same on every host.
#[inline]
fn type_number(ty: Type) -> u16 {
    ty.index() as u16
}

/// The alignment of a slot in the frame, as a power of two: at least that of every slot.
pub(crate) fn slot_alignment(align_shift: u8, target: &Target) -> u8 {
    align_shift.max(target.slot_alignment.trailing_zeros() as u8)
}

fn stack_slot_kind(kind: StackSlotKind) -> u8 {
    match kind {
        StackSlotKind::ExplicitSlot => 0,
        StackSlotKind::ExplicitDynamicSlot => 1,
    }
}
