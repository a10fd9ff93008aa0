//! Instructions of two functions, compared and copied.
//!
//! What an instruction refers to (callees, signatures, flags, constants) stands in tables of its function. So two
//! instructions are compared with each reference replaced by the number of its content, and an instruction is copied with
//! each reference entered into the tables of the other function. Both go through the one match over all formats
//! ([`copy`](crate::copy)). Operands are no part of the comparison, nor are constants that could be passed; that the types of the
//! operands agree is. This module does *not* look at branches.

use crate::copy::{Entities, copied, mapped};
use crate::interner::Interner;
use crate::ir::{user_name, user_symbol};
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use cranelift_codegen::ir::immediates::{Imm64, Offset32};
use cranelift_codegen::ir::{
    Constant, ConstantData, ExtFuncData, ExternalName, FuncRef, Function, GlobalValue,
    GlobalValueData, Immediate, Inst, InstructionData, MemFlags, Opcode, SigRef, Signature, Type,
    UserExternalName, UserStackMapEntry, Value, ValueList, ValueListPool, types,
};

/// The type, slot and offset of an entry of a stack map, as numbers.
type StackMapEntry = (u16, u32, u32);

/// What of an instruction two functions must have in common, so that one instruction can stand for both.
#[derive(Clone)]
pub(super) struct Key {
    data: InstructionData,
    operands: Vec<Type>,
    results: Vec<Type>,
    stack_map: Vec<StackMapEntry>,
}

impl Key {
    fn rest(&self) -> (&[Type], &[Type], &[StackMapEntry]) {
        let Key { data: _, operands, results, stack_map } = self;
        (operands, results, stack_map)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        // All lists are empty.
        self.data.eq(&other.data, &ValueListPool::new()) && self.rest() == other.rest()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.data.hash(state, &ValueListPool::new());
        self.rest().hash(state);
    }
}

/// A callee, by content.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Callee {
    name: Name,
    signature: Signature,
    colocated: bool,
    patchable: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Name {
    Symbol(UserExternalName),
    Other(ExternalName),
}

/// Flags without their region, and the region's id.
type Access = (cranelift_codegen::ir::MemFlagsData, Option<u32>);

/// The numbers of the contents of two functions.
#[derive(Default)]
pub(super) struct Contents {
    keys: Interner<Key>,
    callees: Interner<Callee>,
    signatures: Interner<Signature>,
    flags: Interner<Access>,
    bytes: Interner<Vec<u8>>,
    symbols: Interner<(Name, i64, bool)>,
}

/// The contents of one of them.
struct Numbers<'a> {
    func: &'a Function,
    contents: &'a mut Contents,
}

impl Numbers<'_> {
    fn name(&self, name: &ExternalName) -> Name {
        match user_symbol(self.func, name) {
            Some(symbol) => Name::Symbol(symbol.clone()),
            None => Name::Other(name.clone()),
        }
    }
}

impl Entities for Numbers<'_> {
    fn value(&mut self, _: Value) -> Value {
        Value::from_u32(0)
    }

    fn list(&mut self, _: &[Value]) -> ValueList {
        ValueList::new()
    }

    fn func_ref(&mut self, func_ref: FuncRef) -> FuncRef {
        let ExtFuncData { name, signature, colocated, patchable } =
            &self.func.dfg.ext_funcs[func_ref];
        let callee = Callee {
            name: self.name(name),
            signature: self.func.dfg.signatures[*signature].clone(),
            colocated: *colocated,
            patchable: *patchable,
        };
        FuncRef::from_u32(self.contents.callees.number(&callee, Callee::clone))
    }

    fn sig_ref(&mut self, sig_ref: SigRef) -> SigRef {
        let signature = &self.func.dfg.signatures[sig_ref];
        SigRef::from_u32(self.contents.signatures.number(signature, Signature::clone))
    }

    fn flags(&mut self, flags: MemFlags) -> MemFlags {
        let flags = self.func.dfg.mem_flags[flags];
        let region = flags.alias_region().map(|it| self.func.dfg.alias_regions[it].user_id);
        let access = (flags.with_alias_region(None), region);
        MemFlags::from_u32(self.contents.flags.number(&access, Access::clone))
    }

    fn constant(&mut self, constant: Constant) -> Constant {
        let bytes = self.func.dfg.constants.get(constant).as_slice();
        Constant::from_u32(self.contents.bytes.number(bytes, <[u8]>::to_vec))
    }

    fn immediate(&mut self, immediate: Immediate) -> Immediate {
        let bytes = self.func.dfg.immediates[immediate].as_slice();
        Immediate::from_u32(self.contents.bytes.number(bytes, <[u8]>::to_vec))
    }

    fn global_value(&mut self, global_value: GlobalValue) -> Option<GlobalValue> {
        match &self.func.global_values[global_value] {
            GlobalValueData::Symbol { name, offset, colocated, tls: false } => {
                let symbol = (self.name(name), offset.bits(), *colocated);
                let number = self.contents.symbols.number(&symbol, Clone::clone);
                Some(GlobalValue::from_u32(number))
            }
            _ => None,
        }
    }
}

impl Contents {
    /// The number of a callee.
    pub fn callee(&mut self, func: &Function, func_ref: FuncRef) -> FuncRef {
        Numbers { func, contents: self }.func_ref(func_ref)
    }

    /// The number of what an instruction, which is no branch, must have in common with another one. `None` if it cannot be
    /// copied.
    pub fn key(&mut self, func: &Function, inst: Inst) -> Option<u32> {
        let dfg = &func.dfg;
        let mut numbers = Numbers { func, contents: self };
        let mut data = mapped(&dfg.insts[inst], &dfg.value_lists, &mut numbers)?;
        if passed(func, inst).is_some() {
            match &mut data {
                InstructionData::UnaryImm { opcode: _, imm } => *imm = Imm64::new(0),
                InstructionData::Load { opcode: _, arg: _, flags: _, offset }
                | InstructionData::Store { opcode: _, args: _, flags: _, offset } => {
                    *offset = Offset32::new(0);
                }
                _ => unreachable!("nothing else is passed"),
            }
        }
        let ty = |&value: &Value| dfg.value_type(value);
        let maps = dfg.user_stack_map_entries(inst).unwrap_or(&[]).iter();
        let map = |entry: &UserStackMapEntry| {
            let UserStackMapEntry { ty, slot, offset } = entry;
            (ty.index() as u16, slot.as_u32(), *offset)
        };
        let key = Key {
            data,
            operands: dfg.inst_args(inst).iter().map(ty).collect(),
            results: dfg.inst_results(inst).iter().map(ty).collect(),
            stack_map: maps.map(map).collect(),
        };
        Some(self.keys.number(&key, Key::clone))
    }
}

/// The constant of an instruction that a parameter could take the place of: an integer of up to 64 bits, or an offset that
/// is added to an address of this type.
pub(super) fn passed(func: &Function, inst: Inst) -> Option<(Type, u64)> {
    let dfg = &func.dfg;
    let masked = |ty: Type, bits: i64| (ty, bits as u64 & (u64::MAX >> (64 - ty.bits().min(64))));
    match &dfg.insts[inst] {
        InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => {
            let ty = dfg.value_type(dfg.first_result(inst));
            Some(masked(ty, imm.bits()))
        }
        InstructionData::Load { opcode: _, arg, flags: _, offset }
        | InstructionData::Store { opcode: _, args: [_, arg], flags: _, offset } => {
            let ty = dfg.value_type(*arg);
            matches!(ty, types::I32 | types::I64).then(|| masked(ty, i32::from(*offset).into()))
        }
        _ => None,
    }
}

/// Copies instructions of `from` into `into`.
pub(super) struct Copying<'a> {
    pub from: &'a Function,
    pub into: &'a mut Function,
}

/// Copies references, and operands as `operand` says.
struct Imported<'a, 'b> {
    copying: &'a mut Copying<'b>,
    operand: &'a mut dyn FnMut(Value) -> Value,
}

impl Copying<'_> {
    /// Makes a copy of an instruction that is in no block yet. `None` if it cannot be copied.
    pub fn copy(&mut self, inst: Inst, operand: &mut dyn FnMut(Value) -> Value) -> Option<Inst> {
        let from = self.from;
        let data = mapped(
            &from.dfg.insts[inst],
            &from.dfg.value_lists,
            &mut Imported { copying: self, operand },
        )?;
        Some(copied(from, inst, data, self.into))
    }

    fn name(&mut self, name: &ExternalName) -> ExternalName {
        match user_symbol(self.from, name) {
            Some(symbol) => user_name(self.into, symbol.clone()),
            None => name.clone(),
        }
    }
}

impl Entities for Imported<'_, '_> {
    fn value(&mut self, value: Value) -> Value {
        (self.operand)(value)
    }

    fn list(&mut self, values: &[Value]) -> ValueList {
        let values: Vec<Value> = values.iter().map(|&value| (self.operand)(value)).collect();
        ValueList::from_slice(&values, &mut self.copying.into.dfg.value_lists)
    }

    fn func_ref(&mut self, func_ref: FuncRef) -> FuncRef {
        let ExtFuncData { name, signature, colocated, patchable } =
            self.copying.from.dfg.ext_funcs[func_ref].clone();
        let name = self.copying.name(&name);
        let signature = self.sig_ref(signature);
        let into = &mut self.copying.into;
        let callee = ExtFuncData { name, signature, colocated, patchable };
        let known = into.dfg.ext_funcs.iter().find(|(_, known)| **known == callee);
        match known {
            Some((known, _)) => known,
            None => into.import_function(callee),
        }
    }

    fn sig_ref(&mut self, sig_ref: SigRef) -> SigRef {
        let Copying { from, into } = &mut *self.copying;
        let signature = &from.dfg.signatures[sig_ref];
        let known = into.dfg.signatures.iter().find(|(_, known)| *known == signature);
        match known {
            Some((known, _)) => known,
            None => into.import_signature(signature.clone()),
        }
    }

    fn flags(&mut self, flags: MemFlags) -> MemFlags {
        let Copying { from, into } = &mut *self.copying;
        let flags = from.dfg.mem_flags[flags];
        let region = flags
            .alias_region()
            .map(|region| into.dfg.alias_regions.insert(from.dfg.alias_regions[region].clone()));
        into.dfg.mem_flags.insert_unchecked(flags.with_alias_region(region))
    }

    fn constant(&mut self, constant: Constant) -> Constant {
        let Copying { from, into } = &mut *self.copying;
        into.dfg.constants.insert(from.dfg.constants.get(constant).clone())
    }

    fn immediate(&mut self, immediate: Immediate) -> Immediate {
        let Copying { from, into } = &mut *self.copying;
        let data: ConstantData = from.dfg.immediates[immediate].clone();
        into.dfg.immediates.push(data)
    }

    fn global_value(&mut self, global_value: GlobalValue) -> Option<GlobalValue> {
        match self.copying.from.global_values[global_value].clone() {
            GlobalValueData::Symbol { name, offset, colocated, tls: false } => {
                let name = self.copying.name(&name);
                let symbol = GlobalValueData::Symbol { name, offset, colocated, tls: false };
                Some(self.copying.into.create_global_value(symbol))
            }
            _ => None,
        }
    }
}

/// Whether two global values are computed in the same way. Linear in the links down to their bases.
pub(super) fn same_global_value(
    (f, mut a): (&Function, GlobalValue),
    (g, mut b): (&Function, GlobalValue),
) -> bool {
    use GlobalValueData as V;
    let flags = |func: &Function, flags: MemFlags| -> Access {
        let flags = func.dfg.mem_flags[flags];
        let region = flags.alias_region().map(|it| func.dfg.alias_regions[it].user_id);
        (flags.with_alias_region(None), region)
    };
    loop {
        let (same, bases) = match (&f.global_values[a], &g.global_values[b]) {
            (V::VMContext, V::VMContext) => (true, None),
            (
                V::Load { base: x, offset, global_type, flags: i },
                V::Load { base: y, offset: other, global_type: ty, flags: j },
            ) => {
                let same = (offset, global_type, flags(f, *i)) == (other, ty, flags(g, *j));
                (same, Some((*x, *y)))
            }
            (
                V::IAddImm { base: x, offset, global_type },
                V::IAddImm { base: y, offset: other, global_type: ty },
            ) => ((offset, global_type) == (other, ty), Some((*x, *y))),
            (
                V::Symbol { name, offset, colocated, tls },
                V::Symbol { name: x, offset: y, colocated: z, tls: w },
            ) => {
                let symbols = (user_symbol(f, name), user_symbol(g, x));
                let named = symbols.0.is_some() && symbols.0 == symbols.1;
                (named && (offset, colocated, tls) == (y, z, w), None)
            }
            (V::DynScaleTargetConst { vector_type }, V::DynScaleTargetConst { vector_type: x }) => {
                (vector_type == x, None)
            }
            (
                V::VMContext
                | V::Load { .. }
                | V::IAddImm { .. }
                | V::Symbol { .. }
                | V::DynScaleTargetConst { .. },
                _,
            ) => (false, None),
        };
        match bases {
            Some(bases) if same => (a, b) = bases,
            _ => return same,
        }
    }
}
