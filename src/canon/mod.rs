//! The canonical walk: the only code that reads IR in order to decide equality.
//!
//! [`encode`] visits the blocks of a function in the order in which control flow first mentions
//! them, starting at the entry, and writes what it sees into the four streams of an [`Encoding`].
//! Layout order, unreachable blocks, unused entities and all index numbering never reach a stream:
//! * a block is numbered when it is first mentioned, a value when it is defined (a definition
//!   dominates its uses, and a dominator is mentioned first on every path, so in verified IR every
//!   operand has its number when it is read);
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
//! What it does *not* do: it does not look into callees, does not optimise, and does not verify.
//! IR that the verifier refuses is answered with [`Malformed`] where the walk stumbles over it; it
//! is never equal to anything.

mod inst;
mod normalise;

use crate::encoding::Encoding;
use crate::facts::{Fact, Region};
use crate::options::{Compare, ComparePolicy};
use crate::unit::FunctionIndex;
use alloc::vec::Vec;
use cranelift_codegen::ir::function::FunctionStencil;
use cranelift_codegen::ir::{
    self, AbiParam, AliasRegion, ArgumentExtension, ArgumentPurpose, Block, BlockArg, BlockCall,
    DynamicStackSlotData, DynamicTypeData, Endianness, ExceptionTable, ExceptionTableItem,
    ExtFuncData, ExternalName, FuncRef, Function, GlobalValue, GlobalValueData,
    Inst, MemFlags, MemFlagsData, SigRef, Signature, StackSlotData, StackSlotKind, Type,
    UserExternalName, UserExternalNameRef, Value,
};
use cranelift_codegen::isa::CallConv;
use cranelift_entity::{EntityRef, PrimaryMap};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// Begins every shape stream. Changes with what the walk writes.
const ENCODING_VERSION: u32 = 1;

/// The function cannot be encoded, because the verifier would refuse it (or there is no body).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// What the walk must know beside the function.
pub(crate) struct Context<'a> {
    pub policy: ComparePolicy,
    pub endianness: Option<Endianness>,
    /// The function key of the function to be walked.
    pub key: u64,
    pub symbols: &'a dyn ResolveSymbol,
}

/// Tells which symbols are functions of the unit.
pub(crate) trait ResolveSymbol {
    /// `None` for a symbol that is not a function of the unit.
    fn resolve(&self, symbol: &UserExternalName) -> Option<Resolved>;
}

/// A function of the unit, and how references to it are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolved {
    pub function: FunctionIndex,
    /// Calls are compared by the function's class, not by its symbol.
    pub calls_by_class: bool,
    /// The same for uses of its address.
    pub addresses_by_class: bool,
}

/// A resolver for walks that do not know the unit: every symbol is compared by name.
pub(crate) struct NoUnit;

impl ResolveSymbol for NoUnit {
    fn resolve(&self, _symbol: &UserExternalName) -> Option<Resolved> {
        None
    }
}

/// A part of a function that the walk came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Policy,
    Signature,
    StackSlots,
    DynamicTypes,
    StackLimit,
    Block(Block),
    Inst(Inst),
}

/// The lengths of the streams when the walk came to a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub place: Place,
    pub shape: usize,
    pub constants: usize,
    pub references: usize,
    pub callees: usize,
    pub facts: usize,
}

/// The first `SigRef` of each distinct signature.
enum Distinct {
    /// In the order of first use.
    Few(Vec<SigRef>),
    /// By a hash of their contents.
    Many(HashMap<u64, Vec<SigRef>, FxBuildHasher>),
}

impl Distinct {
    /// More signatures than this are not searched one by one.
    const FEW: usize = 16;

    fn clear(&mut self) {
        match self {
            Distinct::Few(few) => few.clear(),
            Distinct::Many(_) => *self = Distinct::default(),
        }
    }

    fn push(&mut self, sig: SigRef, signatures: &PrimaryMap<SigRef, Signature>) {
        let hash = |sig: SigRef| core::hash::BuildHasher::hash_one(&FxBuildHasher, &signatures[sig]);
        match self {
            Distinct::Few(few) if few.len() < Self::FEW => few.push(sig),
            Distinct::Few(few) => {
                let mut many: HashMap<u64, Vec<SigRef>, FxBuildHasher> = HashMap::default();
                for &sig in few.iter().chain([&sig]) {
                    many.entry(hash(sig)).or_default().push(sig);
                }
                *self = Distinct::Many(many);
            }
            Distinct::Many(many) => many.entry(hash(sig)).or_default().push(sig),
        }
    }
}

impl Default for Distinct {
    fn default() -> Self {
        Distinct::Few(Vec::new())
    }
}

/// Memory that a walk needs, to be reused for the next. Holds nothing between two walks.
#[derive(Default)]
pub(crate) struct Scratch {
    /// 1 + the number of a value, by its index; 0 for one not yet defined.
    values: Vec<u32>,
    value_count: u32,
    /// The same for blocks.
    blocks: Vec<u32>,
    /// Mentioned blocks in the order of their numbers.
    queue: Vec<Block>,
    /// 1 + the number of a signature, by its index.
    signatures: Vec<u32>,
    distinct_signatures: Distinct,
    signature_count: u32,
    /// 1 + the number of an alias region, by its index.
    regions: Vec<u32>,
    region_count: u32,
    /// Symbols of the function as the unit knows them, by `UserExternalNameRef`.
    symbols: Vec<Option<Option<Resolved>>>,
    /// Whether to fill `marks`.
    record: bool,
    /// Where in the streams each place begins, if `record` is set.
    pub marks: Vec<Mark>,
}

impl Scratch {
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
/// Linear in the size of the function. Equality of what it writes is equality of the functions, up
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
    reset(&mut scratch.values, func.dfg.num_values());
    reset(&mut scratch.blocks, func.dfg.num_blocks());
    reset(&mut scratch.signatures, func.dfg.signatures.len());
    reset(&mut scratch.regions, func.dfg.alias_regions.len());
    scratch.queue.clear();
    scratch.distinct_signatures.clear();
    scratch.value_count = 0;
    scratch.signature_count = 0;
    scratch.region_count = 0;
    scratch.symbols.clear();
    scratch.symbols.resize(func.params.user_named_funcs().len(), None);

    let mut walk = Walk { func, context, scratch, out };
    walk.header()?;
    let entry = func.layout.entry_block().ok_or(Malformed)?;
    walk.mention(entry)?;
    let mut next = 0;
    while let Some(&block) = walk.scratch.queue.get(next) {
        walk.block(block)?;
        next += 1;
    }
    Ok(())
}

struct Walk<'a> {
    func: &'a Function,
    context: &'a Context<'a>,
    scratch: &'a mut Scratch,
    out: &'a mut Encoding,
}

/// What a symbol is used for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Call,
    /// A call that may be patched away: the symbol itself is observable.
    PatchableCall,
    Address,
}

impl Walk<'_> {
    fn mark(&mut self, place: Place) {
        if self.scratch.record {
            let Encoding { shape, constants, references, callees, facts, instructions: _ } =
                &*self.out;
            self.scratch.marks.push(Mark {
                place,
                shape: shape.len(),
                constants: constants.len(),
                references: references.len(),
                callees: callees.len(),
                facts: facts.len(),
            });
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
        let ComparePolicy {
            source_locations,
            debug_tags,
            value_labels,
            stack_slot_keys,
            operand_order,
        } = self.context.policy;
        let policy = [source_locations, debug_tags, value_labels, stack_slot_keys, operand_order]
            .iter()
            .fold(0, |bits, &compare| bits << 1 | u32::from(compare == Compare::Compare));
        self.word(ENCODING_VERSION | policy << 16);
        self.long(self.context.key);
        if value_labels == Compare::Compare {
            self.word(u32::from(dfg.values_labels.is_some()));
        }

        self.mark(Place::Signature);
        self.signature_content(signature)?;

        // An unused slot still takes its place in the frame, so all of them count, in order.
        self.mark(Place::StackSlots);
        self.length(sized_stack_slots.len())?;
        for slot in sized_stack_slots.values() {
            let StackSlotData { kind, size, align_shift, key } = slot;
            // A slot is aligned to a word in any case. 8 bytes is the largest word, so this may
            // keep apart what a 32-bit target would not, never the reverse.
            self.word(stack_slot_kind(*kind) | u32::from((*align_shift).max(3)) << 8);
            self.word(*size);
            if stack_slot_keys == Compare::Compare {
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

    fn signature_content(&mut self, signature: &Signature) -> Result<(), Malformed> {
        let Signature { params, returns, call_conv } = signature;
        self.word(call_conv_number(*call_conv));
        for list in [params, returns] {
            self.length(list.len())?;
            for param in list {
                let AbiParam { value_type, purpose, extension } = param;
                let (purpose, size) = match purpose {
                    ArgumentPurpose::Normal => (0, 0),
                    ArgumentPurpose::StructArgument(size) => (1, *size),
                    ArgumentPurpose::StructReturn => (2, 0),
                    ArgumentPurpose::VMContext => (3, 0),
                };
                let extension = match extension {
                    ArgumentExtension::None => 0,
                    ArgumentExtension::Uext => 1,
                    ArgumentExtension::Sext => 2,
                };
                self.word(value_type.index() as u32 | purpose << 16 | extension << 24);
                self.word(size);
            }
        }
        Ok(())
    }

    /// A signature of a callee: its number, and its contents where it is new.
    fn signature(&mut self, sig: SigRef) -> Result<(), Malformed> {
        let known = *self.scratch.signatures.get(sig.index()).ok_or(Malformed)?;
        if known != 0 {
            self.word(known);
            return Ok(());
        }
        // A front end may declare the same signature at every call.
        let signatures = &self.func.dfg.signatures;
        let signature = &signatures[sig];
        let earlier = match &mut self.scratch.distinct_signatures {
            Distinct::Few(few) => {
                few.iter().copied().find(|&first| signatures[first] == *signature)
            }
            Distinct::Many(many) => {
                let hash = core::hash::BuildHasher::hash_one(&FxBuildHasher, signature);
                let mut same_hash = many.get(&hash).into_iter().flatten().copied();
                same_hash.find(|&first| signatures[first] == *signature)
            }
        };
        if let Some(first) = earlier {
            let number = self.scratch.signatures[first.index()];
            self.scratch.signatures[sig.index()] = number;
            self.word(number);
            return Ok(());
        }
        self.scratch.distinct_signatures.push(sig, signatures);
        self.scratch.signature_count += 1;
        let number = self.scratch.signature_count;
        self.scratch.signatures[sig.index()] = number;
        self.word(number);
        self.signature_content(signature)
    }

    /// Follows a global value to its base.
    fn global_value(&mut self, mut gv: GlobalValue) -> Result<(), Malformed> {
        // A chain longer than the table is a cycle.
        for _ in 0..self.func.global_values.len() {
            match self.func.global_values.get(gv).ok_or(Malformed)? {
                GlobalValueData::VMContext => {
                    self.word(0);
                    return Ok(());
                }
                GlobalValueData::Load { base, offset, global_type, flags } => {
                    self.word(1);
                    self.word(i32::from(*offset) as u32);
                    self.ty(*global_type);
                    let data = self.mem_flags(*flags)?;
                    // Such loads exist in `stack_limit` only, so all of their promises are
                    // compared: nothing is gained by weakening them.
                    self.trap_and_endianness(data);
                    self.word(u32::from(fact_bits(data)));
                    let region = data.alias_region().map(|r| self.region_user_id(r)).transpose()?;
                    self.word(u32::from(region.is_some()));
                    self.word(region.unwrap_or(0));
                    gv = *base;
                }
                GlobalValueData::IAddImm { base, offset, global_type } => {
                    self.word(2);
                    self.long(offset.bits() as u64);
                    self.ty(*global_type);
                    gv = *base;
                }
                GlobalValueData::Symbol { name, offset, colocated: _, tls } => {
                    // `colocated` is a promise about the symbol, the same for all who name it.
                    self.word(3 | u32::from(*tls) << 8);
                    self.out.constant_i64(offset.bits());
                    return self.reference(name, Use::Address);
                }
                GlobalValueData::DynScaleTargetConst { vector_type } => {
                    self.word(4);
                    self.ty(*vector_type);
                    return Ok(());
                }
            }
        }
        Err(Malformed)
    }

    fn region_user_id(&self, region: AliasRegion) -> Result<u32, Malformed> {
        if !self.func.dfg.alias_regions.is_valid(region) {
            return Err(Malformed);
        }
        let ir::AliasRegionData { user_id, description: _ } = &self.func.dfg.alias_regions[region];
        Ok(*user_id)
    }

    fn mem_flags(&self, flags: MemFlags) -> Result<MemFlagsData, Malformed> {
        match self.func.dfg.mem_flags.is_valid(flags) {
            true => Ok(self.func.dfg.mem_flags[flags]),
            false => Err(Malformed),
        }
    }

    /// The part of memory flags that is behaviour.
    fn trap_and_endianness(&mut self, data: MemFlagsData) {
        // 0 is no trap code; it equals no trap code.
        let trap = data.trap_code().map_or(0, |code| u32::from(code.as_raw().get()));
        let endianness = match (data.explicit_endianness(), self.context.endianness) {
            (Some(endianness), _) | (None, Some(endianness)) => match endianness {
                Endianness::Little => 1,
                Endianness::Big => 2,
            },
            (None, None) => 0,
        };
        self.word(trap | endianness << 8);
    }

    /// The memory flags of an access: behaviour to the shape, promises to the facts.
    fn access(&mut self, flags: MemFlags) -> Result<(), Malformed> {
        let data = self.mem_flags(flags)?;
        self.trap_and_endianness(data);
        let region = match data.alias_region() {
            None => None,
            Some(region) => {
                let user_id = self.region_user_id(region)?;
                let number = &mut self.scratch.regions[region.index()];
                if *number == 0 {
                    self.scratch.region_count += 1;
                    *number = self.scratch.region_count;
                }
                Some(Region { number: *number, user_id })
            }
        };
        self.out.facts.push(Fact::Access { flags: fact_bits(data), region });
        Ok(())
    }

    /// A use of a symbol.
    fn reference(&mut self, name: &ExternalName, usage: Use) -> Result<(), Malformed> {
        match name {
            ExternalName::User(name_ref) => {
                let resolved = self.resolve(*name_ref)?;
                let by_class = resolved.filter(|resolved| match usage {
                    Use::Call => resolved.calls_by_class,
                    Use::PatchableCall => false,
                    Use::Address => resolved.addresses_by_class,
                });
                if let Some(Resolved { function, .. }) = by_class {
                    self.out.references.push(0);
                    self.out.callees.push(function);
                } else {
                    let UserExternalName { namespace, index } =
                        &self.func.params.user_named_funcs()[*name_ref];
                    self.out.references.push(1);
                    self.out.references.extend_from_slice(&namespace.to_le_bytes());
                    self.out.references.extend_from_slice(&index.to_le_bytes());
                }
            }
            ExternalName::TestCase(name) => {
                let length = u32::try_from(name.raw().len()).map_err(|_| Malformed)?;
                self.out.references.push(2);
                self.out.references.extend_from_slice(&length.to_le_bytes());
                self.out.references.extend_from_slice(name.raw());
            }
            ExternalName::LibCall(libcall) => {
                self.out.references.push(3);
                self.out.references.push(*libcall as u8);
            }
            ExternalName::KnownSymbol(symbol) => {
                self.out.references.push(4);
                self.out.references.push(match symbol {
                    ir::KnownSymbol::ElfGlobalOffsetTable => 0,
                    ir::KnownSymbol::CoffTlsIndex => 1,
                });
            }
        }
        Ok(())
    }

    fn resolve(&mut self, name: UserExternalNameRef) -> Result<Option<Resolved>, Malformed> {
        let known = self.scratch.symbols.get_mut(name.index()).ok_or(Malformed)?;
        Ok(match known {
            Some(resolved) => *resolved,
            None => {
                let symbol = &self.func.params.user_named_funcs()[name];
                let resolved = self.context.symbols.resolve(symbol);
                *known = Some(resolved);
                resolved
            }
        })
    }

    /// A function used by name.
    fn callee(&mut self, func_ref: FuncRef, call: bool) -> Result<(), Malformed> {
        let func = self.func;
        let ExtFuncData { name, signature, colocated: _, patchable } =
            func.dfg.ext_funcs.get(func_ref).ok_or(Malformed)?;
        // `colocated` is a promise about the symbol, the same for all who name it.
        self.signature(*signature)?;
        self.word(u32::from(*patchable));
        let usage = match (call, patchable) {
            (false, _) => Use::Address,
            (true, false) => Use::Call,
            (true, true) => Use::PatchableCall,
        };
        self.reference(name, usage)
    }

    /// Numbers a block when it is first mentioned, and tells its number.
    fn mention(&mut self, block: Block) -> Result<u32, Malformed> {
        let number = self.scratch.blocks.get_mut(block.index()).ok_or(Malformed)?;
        if *number == 0 {
            if !self.func.layout.is_block_inserted(block) {
                return Err(Malformed);
            }
            self.scratch.queue.push(block);
            *number = self.scratch.queue.len() as u32;
        }
        Ok(*number)
    }

    /// Numbers a value where it is defined.
    fn define(&mut self, value: Value) {
        self.scratch.value_count += 1;
        self.scratch.values[value.index()] = self.scratch.value_count;
    }

    /// The number of a value that was defined before, aliases resolved.
    fn number(&self, value: Value) -> Result<u32, Malformed> {
        match self.scratch.values.get(value.index()) {
            None => Err(Malformed),
            Some(0) => {
                if !self.func.dfg.value_is_alias(value) {
                    return Err(Malformed);
                }
                let original = self.func.dfg.resolve_aliases(value);
                match self.scratch.values.get(original.index()) {
                    None | Some(0) => Err(Malformed),
                    Some(&number) => Ok(number),
                }
            }
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
        let number = self.mention(call.block(pool))?;
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

    fn exception_table(&mut self, table: ExceptionTable) -> Result<(), Malformed> {
        let func = self.func;
        let table = func.dfg.exception_tables.get(table).ok_or(Malformed)?;
        self.signature(table.signature())?;
        self.block_call(table.normal_return())?;
        self.length(table.items().count())?;
        for item in table.items() {
            match item {
                ExceptionTableItem::Tag(tag, call) => {
                    self.word(0);
                    self.word(tag.as_u32());
                    self.block_call(&call)?;
                }
                ExceptionTableItem::Default(call) => {
                    self.word(1);
                    self.block_call(&call)?;
                }
                ExceptionTableItem::Context(value) => {
                    self.word(2);
                    self.operand(value)?;
                }
            }
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
            if self.context.policy.value_labels == Compare::Compare {
                self.value_label(param)?;
            }
        }
        for inst in func.layout.block_insts(block) {
            self.mark(Place::Inst(inst));
            self.instruction(inst)?;
        }
        Ok(())
    }
}

/// The promises of memory flags, as bits of [`Fact::Access`].
fn fact_bits(data: MemFlagsData) -> u8 {
    u8::from(data.aligned()) * Fact::ALIGNED
        | u8::from(data.readonly()) * Fact::READONLY
        | u8::from(data.can_move()) * Fact::CAN_MOVE
}

fn stack_slot_kind(kind: StackSlotKind) -> u32 {
    match kind {
        StackSlotKind::ExplicitSlot => 0,
        StackSlotKind::ExplicitDynamicSlot => 1,
    }
}

fn call_conv_number(call_conv: CallConv) -> u32 {
    match call_conv {
        CallConv::Fast => 0,
        CallConv::Tail => 1,
        CallConv::SystemV => 2,
        CallConv::WindowsFastcall => 3,
        CallConv::AppleAarch64 => 4,
        CallConv::Probestack => 5,
        CallConv::Winch => 6,
        CallConv::PreserveAll => 7,
    }
}
