//! Tables of a function, entered into those of another one at first use: each content once.
//!
//! An entry is found again by its index in the old table, so that a use takes constant time; only
//! its first use looks for equal contents. Numbers in the new tables depend on contents and the
//! order of uses only.

use crate::canon::byte_order;
use crate::interner::Interner;
use crate::ir::{user_name, user_symbol};
use crate::target::Target;
use alloc::string::String;
use alloc::vec::Vec;
use cranelift_codegen::ir::{
    AliasRegion, AliasRegionData, Constant, DynamicType, DynamicTypeData, ExtFuncData,
    ExternalName, FuncRef, Function, GlobalValue, GlobalValueData, Immediate, MemFlags, SigRef,
    Signature, Type,
};
use cranelift_entity::{EntityRef, SecondaryMap};

/// The key on which equality is total: no floats are in it.
#[derive(Clone, PartialEq, Hash)]
struct Total<T>(T);

impl<T: PartialEq> Eq for Total<T> {}

/// The new entry of each old one that was used.
type Entered<T> = SecondaryMap<T, Option<T>>;

/// A table in which each content is to be once.
struct Table<T: EntityRef, C> {
    entered: Entered<T>,
    /// By content: numbers are indices in the new table.
    contents: Interner<C>,
}

impl<T: EntityRef, C> Default for Table<T, C> {
    fn default() -> Self {
        Table { entered: SecondaryMap::new(), contents: Interner::default() }
    }
}

/// The tables of a function that is made.
pub(super) struct Tables<'a> {
    from: &'a Function,
    pub into: Function,
    pub target: &'a Target,
    signatures: Table<SigRef, Signature>,
    callees: Table<FuncRef, Total<ExtFuncData>>,
    globals: Table<GlobalValue, Total<GlobalValueData>>,
    dynamic_types: Table<DynamicType, Total<DynamicTypeData>>,
    flags: Entered<MemFlags>,
    regions: Entered<AliasRegion>,
    immediates: Interner<Vec<u8>>,
    /// The dynamic vector types that values have.
    declared: Vec<Type>,
}

impl<'a> Tables<'a> {
    pub fn new(from: &'a Function, into: Function, target: &'a Target) -> Self {
        Tables {
            from,
            into,
            target,
            signatures: Table::default(),
            callees: Table::default(),
            globals: Table::default(),
            dynamic_types: Table::default(),
            flags: SecondaryMap::new(),
            regions: SecondaryMap::new(),
            immediates: Interner::default(),
            declared: Vec::new(),
        }
    }

    fn name(&mut self, name: &ExternalName) -> ExternalName {
        match user_symbol(self.from, name) {
            Some(symbol) => user_name(&mut self.into, symbol.clone()),
            None => name.clone(),
        }
    }

    pub fn sig_ref(&mut self, old: SigRef) -> SigRef {
        if let Some(known) = self.signatures.entered[old] {
            return known;
        }
        let signature = &self.from.dfg.signatures[old];
        let new = SigRef::from_u32(self.signatures.contents.number(signature, Signature::clone));
        if !self.into.dfg.signatures.is_valid(new) {
            self.into.import_signature(signature.clone());
        }
        self.signatures.entered[old] = Some(new);
        new
    }

    pub fn func_ref(&mut self, old: FuncRef) -> FuncRef {
        if let Some(known) = self.callees.entered[old] {
            return known;
        }
        let ExtFuncData { name, signature, colocated, patchable } = &self.from.dfg.ext_funcs[old];
        let name = self.name(name);
        let signature = self.sig_ref(*signature);
        let callee = ExtFuncData { name, signature, colocated: *colocated, patchable: *patchable };
        let callee = Total(callee);
        let new = FuncRef::from_u32(self.callees.contents.number(&callee, Total::clone));
        if !self.into.dfg.ext_funcs.is_valid(new) {
            self.into.import_function(callee.0);
        }
        self.callees.entered[old] = Some(new);
        new
    }

    /// Global values are entered from their bases up.
    pub fn global_value(&mut self, old: GlobalValue) -> GlobalValue {
        let mut chain = Vec::new();
        let mut next = Some(old);
        let mut base = None;
        while let Some(at) = next {
            if let Some(known) = self.globals.entered[at] {
                base = Some(known);
                break;
            }
            chain.push(at);
            next = match &self.from.global_values[at] {
                GlobalValueData::Load { base, offset: _, global_type: _, flags: _ }
                | GlobalValueData::IAddImm { base, offset: _, global_type: _ } => Some(*base),
                GlobalValueData::VMContext
                | GlobalValueData::Symbol { name: _, offset: _, colocated: _, tls: _ }
                | GlobalValueData::DynScaleTargetConst { vector_type: _ } => None,
            };
        }
        while let Some(at) = chain.pop() {
            base = Some(self.new_global_value(at, base));
        }
        base.expect("itself, in the end")
    }

    fn new_global_value(&mut self, old: GlobalValue, base: Option<GlobalValue>) -> GlobalValue {
        let new_base = || base.expect("entered before");
        let data = match &self.from.global_values[old] {
            GlobalValueData::VMContext => GlobalValueData::VMContext,
            GlobalValueData::Load { base: _, offset, global_type, flags } => {
                let (offset, global_type, flags) = (*offset, *global_type, self.flags(*flags));
                GlobalValueData::Load { base: new_base(), offset, global_type, flags }
            }
            GlobalValueData::IAddImm { base: _, offset, global_type } => {
                let (offset, global_type) = (*offset, *global_type);
                GlobalValueData::IAddImm { base: new_base(), offset, global_type }
            }
            GlobalValueData::Symbol { name, offset, colocated, tls } => {
                let (offset, colocated, tls) = (*offset, *colocated, *tls);
                GlobalValueData::Symbol { name: self.name(name), offset, colocated, tls }
            }
            GlobalValueData::DynScaleTargetConst { vector_type } => {
                GlobalValueData::DynScaleTargetConst { vector_type: *vector_type }
            }
        };
        let data = Total(data);
        let new = GlobalValue::from_u32(self.globals.contents.number(&data, Total::clone));
        if !self.into.global_values.is_valid(new) {
            self.into.create_global_value(data.0);
        }
        self.globals.entered[old] = Some(new);
        new
    }

    /// These flags, with the byte order written out as the encoding does.
    pub fn flags(&mut self, old: MemFlags) -> MemFlags {
        if let Some(known) = self.flags[old] {
            return known;
        }
        let mut data = self.from.dfg.mem_flags[old];
        if let Some(order) = byte_order(data, self.target) {
            data.set_endianness(order);
        }
        let region = data.alias_region().map(|region| self.region(region));
        // Contents are entered once by the set itself, which is no larger than the old one.
        let new = self.into.dfg.mem_flags.insert_unchecked(data.with_alias_region(region));
        self.flags[old] = Some(new);
        new
    }

    fn region(&mut self, old: AliasRegion) -> AliasRegion {
        if let Some(known) = self.regions[old] {
            return known;
        }
        let AliasRegionData { user_id, description: _ } = self.from.dfg.alias_regions[old];
        // The encoding distinguishes regions of one id, too.
        let data = AliasRegionData { user_id, description: String::new().into() };
        let new = self.into.dfg.alias_regions.push(data);
        self.regions[old] = Some(new);
        new
    }

    /// By content: the pool does that itself.
    pub fn constant(&mut self, old: Constant) -> Constant {
        self.into.dfg.constants.insert(self.from.dfg.constants.get(old).clone())
    }

    pub fn immediate(&mut self, old: Immediate) -> Immediate {
        let data = &self.from.dfg.immediates[old];
        let number = self.immediates.number(data.as_slice(), <[u8]>::to_vec);
        let new = Immediate::from_u32(number);
        if !self.into.dfg.immediates.is_valid(new) {
            self.into.dfg.immediates.push(data.clone());
        }
        new
    }

    pub fn dynamic_type(&mut self, old: DynamicType) -> DynamicType {
        if let Some(known) = self.dynamic_types.entered[old] {
            return known;
        }
        let DynamicTypeData { base_vector_ty, dynamic_scale } = self.from.dfg.dynamic_types[old];
        let dynamic_scale = self.global_value(dynamic_scale);
        let data = Total(DynamicTypeData { base_vector_ty, dynamic_scale });
        let number = self.dynamic_types.contents.number(&data, Total::clone);
        let new = DynamicType::from_u32(number);
        if !self.into.dfg.dynamic_types.is_valid(new) {
            self.into.dfg.make_dynamic_ty(data.0);
        }
        self.dynamic_types.entered[old] = Some(new);
        new
    }

    /// Declares the type of a value, unless a slot did, or another value.
    pub fn declare(&mut self, ty: Type) {
        // There are few such types.
        if self.declared.contains(&ty) {
            return;
        }
        self.declared.push(ty);
        let is_it = |data: &DynamicTypeData| data.concrete() == Some(ty);
        if self.into.dfg.dynamic_types.values().any(is_it) {
            return;
        }
        let declared = self.from.dfg.dynamic_types.iter().find(|(_, data)| is_it(data));
        if let Some((declared, _)) = declared {
            self.dynamic_type(declared);
        }
    }
}
