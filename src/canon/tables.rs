//! The tables of a function, written by content: signatures, global values, memory flags, symbols,
//! exception tables.
//!
//! Signatures are written in full at their first use and by number afterwards; everything else at
//! each use. No index into a table ever reaches a stream.

use super::{Malformed, Record, Walk, type_number};
use crate::canon::{KNOWN_SYMBOL, LIBCALL, TEST_CASE};
use crate::target::Target;
use alloc::vec::Vec;
use cranelift_codegen::ir::{
    self, AbiParam, AliasRegion, ArgumentExtension, ArgumentPurpose, Endianness, ExceptionTable,
    ExceptionTableItem, ExtFuncData, ExternalName, FuncRef, GlobalValue, GlobalValueData, MemFlags,
    MemFlagsData, SigRef, Signature, Value,
};
use cranelift_codegen::isa::CallConv;
use cranelift_entity::{EntityRef, PrimaryMap};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// The distinct signatures that were numbered, and their numbers.
pub(super) enum Distinct {
    /// In the order of first use.
    Few(Vec<(Numbered, u32)>),
    /// By a hash of their contents.
    Many(HashMap<u64, Vec<(Numbered, u32)>, FxBuildHasher>),
}

/// Where the content of a signature is.
pub(super) enum Numbered {
    /// In the tables of the function.
    Own(SigRef),
    /// Here, since no table of the function has it.
    Foreign(Signature),
}

impl Numbered {
    fn content<'a>(&'a self, own: &'a PrimaryMap<SigRef, Signature>) -> &'a Signature {
        match self {
            Numbered::Own(sig) => &own[*sig],
            Numbered::Foreign(signature) => signature,
        }
    }
}

fn content_hash(signature: &Signature) -> u64 {
    core::hash::BuildHasher::hash_one(&FxBuildHasher, signature)
}

impl Distinct {
    /// More signatures than this are not searched one by one.
    const FEW: usize = 16;

    pub(super) fn clear(&mut self) {
        match self {
            Distinct::Few(few) => few.clear(),
            Distinct::Many(_) => *self = Distinct::default(),
        }
    }

    /// The number of a signature, if an equal one has one.
    fn number(&self, signature: &Signature, own: &PrimaryMap<SigRef, Signature>) -> Option<u32> {
        let same = match self {
            Distinct::Few(few) => few,
            Distinct::Many(many) => many.get(&content_hash(signature))?,
        };
        let mut same = same.iter().filter(|(known, _)| known.content(own) == signature);
        same.next().map(|&(_, number)| number)
    }

    fn push(&mut self, new: Numbered, number: u32, own: &PrimaryMap<SigRef, Signature>) {
        let hash = |new: &Numbered| content_hash(new.content(own));
        match self {
            Distinct::Few(few) if few.len() < Self::FEW => few.push((new, number)),
            Distinct::Few(few) => {
                let mut many: HashMap<u64, Vec<(Numbered, u32)>, FxBuildHasher> =
                    HashMap::default();
                for (known, number) in few.drain(..).chain([(new, number)]) {
                    many.entry(hash(&known)).or_default().push((known, number));
                }
                *self = Distinct::Many(many);
            }
            Distinct::Many(many) => many.entry(hash(&new)).or_default().push((new, number)),
        }
    }
}

impl Default for Distinct {
    fn default() -> Self {
        Distinct::Few(Vec::new())
    }
}

/// The encoding of the memory flags of an access.
#[derive(Clone, Copy)]
pub(super) struct Access {
    /// All but the alias region, in the low 14 bits.
    flags: u16,
    region: Option<Region>,
}

/// An alias region of an access.
#[derive(Clone, Copy)]
struct Region {
    /// Its number in the order of first use, which distinguishes two regions of one function even
    /// if their ids are equal.
    number: u32,
    /// The embedder's id.
    user_id: u32,
}

/// How a symbol is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Call,
    /// A call that may be patched away: the symbol itself is observable.
    PatchableCall,
    Address,
    /// The address of a function by a reference whose calls may be patched away.
    PatchableAddress,
    /// An address behind that of the symbol.
    Inside,
}

impl Use {
    /// The use of an address this number of bytes behind that of a symbol.
    pub(super) fn of_address(offset: i64) -> Use {
        if offset == 0 { Use::Address } else { Use::Inside }
    }
}

impl Walk<'_> {
    pub(super) fn signature_content(&mut self, signature: &Signature) -> Result<(), Malformed> {
        let Signature { params, returns, call_conv } = signature;
        self.byte(call_conv_number(*call_conv));
        for list in [params, returns] {
            self.length(list.len())?;
            for param in list {
                let AbiParam { value_type, purpose, extension } = param;
                let (purpose, size) = match purpose {
                    ArgumentPurpose::Normal => (0, None),
                    ArgumentPurpose::StructArgument(size) => (1, Some(*size)),
                    ArgumentPurpose::StructReturn => (2, None),
                    ArgumentPurpose::VMContext => (3, None),
                };
                let extension = match extension {
                    ArgumentExtension::None => 0,
                    ArgumentExtension::Uext => 1,
                    ArgumentExtension::Sext => 2,
                };
                let record = Record::EMPTY.half(type_number(*value_type));
                let record = record.byte(purpose | extension << 4);
                self.put(size.map_or(record, |size| record.word(size)));
            }
        }
        Ok(())
    }

    /// A record, and a signature of a callee behind it: its number, and its contents where it is
    /// new.
    #[inline]
    pub(super) fn signature(&mut self, record: Record, sig: SigRef) -> Result<(), Malformed> {
        if self.scratch.contents {
            self.put(record);
            let signature = self.func.dfg.signatures.get(sig).ok_or(Malformed)?;
            return self.signature_content(signature);
        }
        match *self.scratch.signatures.numbers.get(sig.index()).ok_or(Malformed)? {
            0 => self.first_use_of(record, sig),
            known => {
                self.put_numbers(record, [known]);
                Ok(())
            }
        }
    }

    fn first_use_of(&mut self, record: Record, sig: SigRef) -> Result<(), Malformed> {
        // A front end may declare the same signature at every call.
        let signatures = &self.func.dfg.signatures;
        let signature = &signatures[sig];
        let equal = self.scratch.signatures.distinct.number(signature, signatures);
        let number = match equal {
            Some(number) => {
                self.put_numbers(record, [number]);
                number
            }
            None => self.new_signature(record, Numbered::Own(sig), signature)?,
        };
        self.scratch.signatures.numbers[sig.index()] = number;
        Ok(())
    }

    /// A signature that is in no table of the function: written out as well. Returns its number.
    pub(super) fn foreign_signature(
        &mut self,
        record: Record,
        signature: &Signature,
    ) -> Result<u32, Malformed> {
        let own = &self.func.dfg.signatures;
        match self.scratch.signatures.distinct.number(signature, own) {
            Some(number) => {
                self.put_numbers(record, [number]);
                Ok(number)
            }
            None => self.new_signature(record, Numbered::Foreign(signature.clone()), signature),
        }
    }

    fn new_signature(
        &mut self,
        record: Record,
        new: Numbered,
        signature: &Signature,
    ) -> Result<u32, Malformed> {
        self.scratch.signatures.count += 1;
        let number = self.scratch.signatures.count;
        self.scratch.signatures.distinct.push(new, number, &self.func.dfg.signatures);
        self.put_numbers(record, [number]);
        self.signature_content(signature)?;
        Ok(number)
    }

    /// Follows a global value to its base.
    pub(super) fn global_value(&mut self, mut gv: GlobalValue) -> Result<(), Malformed> {
        // A chain longer than the table is a cycle.
        for _ in 0..self.func.global_values.len() {
            match self.func.global_values.get(gv).ok_or(Malformed)? {
                GlobalValueData::VMContext => {
                    self.byte(0);
                    return Ok(());
                }
                GlobalValueData::Load { base, offset, global_type, flags } => {
                    let data = self.mem_flags(*flags)?;
                    // Such loads exist in `stack_limit` only: their regions are not those of
                    // accesses.
                    let region = data.alias_region().map(|r| self.region_user_id(r)).transpose()?;
                    let record = Record::EMPTY.byte(1).half(self.flag_bits(data));
                    let record = record.half(type_number(*global_type));
                    let record = record.word(i32::from(*offset) as u32);
                    self.put(record.byte(u8::from(region.is_some())).word(region.unwrap_or(0)));
                    gv = *base;
                }
                GlobalValueData::IAddImm { base, offset, global_type } => {
                    self.put(Record::EMPTY.byte(2).half(type_number(*global_type)));
                    self.long(offset.bits() as u64);
                    gv = *base;
                }
                GlobalValueData::Symbol { name, offset, colocated: _, tls } => {
                    // `colocated` is a fact about the symbol, the same for all code that names it.
                    self.symbol_kind(*tls);
                    self.out.constant_i64(offset.bits());
                    return self.reference(name, Use::of_address(offset.bits()));
                }
                GlobalValueData::DynScaleTargetConst { vector_type } => {
                    self.put(Record::EMPTY.byte(4).half(type_number(*vector_type)));
                    return Ok(());
                }
            }
        }
        Err(Malformed)
    }

    /// A symbol as the base of an address.
    pub(super) fn symbol_kind(&mut self, tls: bool) {
        self.put(Record::EMPTY.byte(3).byte(u8::from(tls)));
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

    /// Memory flags without the number of their alias region.
    fn flag_bits(&self, data: MemFlagsData) -> u16 {
        // 0 is no trap code; it equals no trap code.
        let trap = data.trap_code().map_or(0, |code| u16::from(code.as_raw().get()));
        let endianness = match byte_order(data, &self.context.target) {
            Some(Endianness::Little) => 1,
            Some(Endianness::Big) => 2,
            None => 0,
        };
        let bit = |stated: bool, bit: u32| u16::from(stated) << bit;
        trap | endianness << 8
            | bit(data.aligned(), 10)
            | bit(data.readonly(), 11)
            | bit(data.can_move(), 12)
            | bit(data.alias_region().is_some(), 13)
    }

    /// Writes a record, the memory flags of an access and its operands.
    #[inline]
    pub(super) fn access<const N: usize>(
        &mut self,
        record: Record,
        flags: MemFlags,
        operands: &[Value; N],
    ) -> Result<(), Malformed> {
        let Access { flags, region } = match self.scratch.accesses.get(flags.index()) {
            Some(Some(known)) => *known,
            Some(None) | None => self.first_access(flags)?,
        };
        self.operands(record.half(flags), operands)?;
        if let Some(region) = region {
            self.region(region);
        }
        Ok(())
    }

    /// The encoding of the memory flags of an instruction that states nothing.
    pub(super) fn plain_access(&self) -> u16 {
        self.flag_bits(MemFlagsData::new())
    }

    /// An alias region: its number, and its id where it is used first.
    fn region(&mut self, Region { number, user_id }: Region) {
        if self.scratch.contents {
            return self.word(user_id);
        }
        self.put_numbers(Record::EMPTY, [number]);
        if number > self.scratch.regions.written {
            self.scratch.regions.written = number;
            self.word(user_id);
        }
    }

    fn first_access(&mut self, flags: MemFlags) -> Result<Access, Malformed> {
        let data = self.mem_flags(flags)?;
        let region = match data.alias_region() {
            None => None,
            Some(region) => {
                let user_id = self.region_user_id(region)?;
                let number = &mut self.scratch.regions.numbers[region.index()];
                if *number == 0 {
                    self.scratch.regions.count += 1;
                    *number = self.scratch.regions.count;
                }
                Some(Region { number: *number, user_id })
            }
        };
        let access = Access { flags: self.flag_bits(data), region };
        let accesses = &mut self.scratch.accesses;
        if accesses.len() <= flags.index() {
            accesses.resize(flags.index() + 1, None);
        }
        accesses[flags.index()] = Some(access);
        Ok(access)
    }

    /// A use of a symbol.
    fn reference(&mut self, name: &ExternalName, usage: Use) -> Result<(), Malformed> {
        match name {
            ExternalName::User(name) => self.symbol(*name, usage)?,
            ExternalName::TestCase(name) => {
                let length = u32::try_from(name.raw().len()).map_err(|_| Malformed)?;
                self.out.references.push(TEST_CASE);
                self.out.references.extend_from_slice(&length.to_le_bytes());
                self.out.references.extend_from_slice(name.raw());
            }
            ExternalName::LibCall(libcall) => {
                self.out.references.push(LIBCALL);
                self.out.references.push(*libcall as u8);
            }
            ExternalName::KnownSymbol(symbol) => {
                self.out.references.push(KNOWN_SYMBOL);
                self.out.references.push(match symbol {
                    ir::KnownSymbol::ElfGlobalOffsetTable => 0,
                    ir::KnownSymbol::CoffTlsIndex => 1,
                });
            }
        }
        Ok(())
    }

    /// A record, and a function used by name behind it.
    pub(super) fn callee(
        &mut self,
        record: Record,
        func_ref: FuncRef,
        call: bool,
    ) -> Result<(), Malformed> {
        let func = self.func;
        let ExtFuncData { name, signature, colocated: _, patchable } =
            func.dfg.ext_funcs.get(func_ref).ok_or(Malformed)?;
        // `colocated` is a fact about the symbol, the same for all code that names it.
        let record = record.byte(u8::from(*patchable));
        match call && self.passes_extra_arguments() {
            true => self.extended_signature(record, func_ref)?,
            false => self.signature(record, *signature)?,
        }
        let usage = match (call, patchable) {
            (false, false) => Use::Address,
            (false, true) => Use::PatchableAddress,
            (true, false) => Use::Call,
            (true, true) => Use::PatchableCall,
        };
        self.reference(name, usage)
    }

    /// The table of a call, which is direct if `callee` says of what.
    pub(super) fn exception_table(
        &mut self,
        table: ExceptionTable,
        callee: Option<FuncRef>,
    ) -> Result<(), Malformed> {
        let func = self.func;
        let table = func.dfg.exception_tables.get(table).ok_or(Malformed)?;
        match callee.filter(|_| self.passes_extra_arguments()) {
            Some(callee) => self.extended_signature(Record::EMPTY, callee)?,
            None => self.signature(Record::EMPTY, table.signature())?,
        }
        self.block_call(Record::EMPTY, table.normal_return())?;
        self.length(table.items().count())?;
        for item in table.items() {
            match item {
                ExceptionTableItem::Tag(tag, call) => {
                    self.block_call(Record::EMPTY.byte(0).word(tag.as_u32()), &call)?;
                }
                ExceptionTableItem::Default(call) => {
                    self.block_call(Record::EMPTY.byte(1), &call)?;
                }
                ExceptionTableItem::Context(value) => {
                    self.operands(Record::EMPTY.byte(2), &[value])?;
                }
            }
        }
        Ok(())
    }
}

/// The byte order of an access: as stated, or else that of the target, if it is known.
pub(crate) fn byte_order(data: MemFlagsData, target: &Target) -> Option<Endianness> {
    data.explicit_endianness().or(target.endianness)
}

fn call_conv_number(call_conv: CallConv) -> u8 {
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
