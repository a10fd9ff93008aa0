//! Instructions of two functions, compared and copied.
//!
//! What an instruction refers to (callees, signatures, flags, constants) stands in tables of its function. So two
//! instructions are compared, and hashed, with the content of each reference, and an instruction is copied with
//! each reference entered into the tables of the other function. All of that goes through the one match over all formats
//! ([`copy`](crate::copy)). Operands are no part of the comparison, nor are constants that could be passed; that the types of the
//! operands agree is. Hashes find the instructions that correspond to each other, and the comparison decides whether
//! they do. This module does *not* look at branches.

use crate::copy::{Entities, copied, mapped};
use crate::ir::{user_name, user_symbol};
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use cranelift_codegen::ir::immediates::{Imm64, Offset32};
use cranelift_codegen::ir::{
    Constant, ConstantData, ExtFuncData, ExternalName, FuncRef, Function, GlobalValue,
    GlobalValueData, Immediate, Inst, InstructionData, MemFlags, Opcode, SigRef, Type,
    UserExternalName, UserStackMapEntry, Value, ValueList, ValueListPool, types,
};
use cranelift_entity::SecondaryMap;
use rustc_hash::FxHasher;

/// A reference of an instruction to a table of its function.
#[derive(Clone, Copy)]
enum Reference {
    Callee(FuncRef),
    Signature(SigRef),
    Flags(MemFlags),
    Constant(Constant),
    Immediate(Immediate),
    GlobalValue(GlobalValue),
}

/// The references of an instruction, which is mapped to one that has the same in place of all references and operands.
#[derive(Default)]
struct References {
    found: Vec<Reference>,
}

impl Entities for References {
    fn value(&mut self, _: Value) -> Value {
        Value::from_u32(0)
    }

    fn list(&mut self, _: &[Value]) -> ValueList {
        ValueList::new()
    }

    fn func_ref(&mut self, func_ref: FuncRef) -> FuncRef {
        self.found.push(Reference::Callee(func_ref));
        FuncRef::from_u32(0)
    }

    fn sig_ref(&mut self, sig_ref: SigRef) -> SigRef {
        self.found.push(Reference::Signature(sig_ref));
        SigRef::from_u32(0)
    }

    fn flags(&mut self, flags: MemFlags) -> Option<MemFlags> {
        self.found.push(Reference::Flags(flags));
        Some(MemFlags::from_u32(0))
    }

    fn constant(&mut self, constant: Constant) -> Constant {
        self.found.push(Reference::Constant(constant));
        Constant::from_u32(0)
    }

    fn immediate(&mut self, immediate: Immediate) -> Immediate {
        self.found.push(Reference::Immediate(immediate));
        Immediate::from_u32(0)
    }

    fn global_value(&mut self, global_value: GlobalValue) -> Option<GlobalValue> {
        self.found.push(Reference::GlobalValue(global_value));
        Some(GlobalValue::from_u32(0))
    }
}

/// What two instructions must have in common apart from references and operands. `None` for one that cannot be copied.
fn content(func: &Function, inst: Inst, references: &mut References) -> Option<InstructionData> {
    references.found.clear();
    let mut data = mapped(&func.dfg.insts[inst], &func.dfg.value_lists, references)?;
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
    Some(data)
}

/// Compares instructions of two functions by content.
pub(super) struct Comparison<'a> {
    pub two: [&'a Function; 2],
    references: [References; 2],
}

impl<'a> Comparison<'a> {
    pub fn new(two: [&'a Function; 2]) -> Comparison<'a> {
        Comparison { two, references: Default::default() }
    }

    /// Whether one instruction can stand for both of these, which are no branches.
    pub fn is_same(&mut self, insts: [Inst; 2]) -> bool {
        let [f, g] = self.two;
        let [a, b] = insts;
        let [x, y] = &mut self.references;
        let (Some(p), Some(q)) = (content(f, a, x), content(g, b, y)) else {
            return false;
        };
        // All lists are empty.
        p.eq(&q, &ValueListPool::new())
            && self.references[0].found.len() == self.references[1].found.len()
            && core::iter::zip(&self.references[0].found, &self.references[1].found)
                .all(|(&a, &b)| self.is_same_reference(a, b))
            && types_of(f, f.dfg.inst_args(a)).eq(types_of(g, g.dfg.inst_args(b)))
            && types_of(f, f.dfg.inst_results(a)).eq(types_of(g, g.dfg.inst_results(b)))
            && stack_map(f, a).eq(stack_map(g, b))
    }

    fn is_same_reference(&self, a: Reference, b: Reference) -> bool {
        use Reference as R;
        let [f, g] = self.two;
        match (a, b) {
            (R::Callee(a), R::Callee(b)) => self.is_same_callee(a, b),
            (R::Signature(a), R::Signature(b)) => f.dfg.signatures[a] == g.dfg.signatures[b],
            (R::Flags(a), R::Flags(b)) => access(f, a) == access(g, b),
            (R::Constant(a), R::Constant(b)) => {
                f.dfg.constants.get(a).as_slice() == g.dfg.constants.get(b).as_slice()
            }
            (R::Immediate(a), R::Immediate(b)) => {
                f.dfg.immediates[a].as_slice() == g.dfg.immediates[b].as_slice()
            }
            (R::GlobalValue(a), R::GlobalValue(b)) => {
                use GlobalValueData::Symbol;
                match (&f.global_values[a], &g.global_values[b]) {
                    (
                        Symbol { name, offset, colocated, tls: false },
                        Symbol { name: x, offset: y, colocated: z, tls: false },
                    ) => is_same_name((f, name), (g, x)) && (offset, colocated) == (y, z),
                    // They cannot be copied.
                    _ => false,
                }
            }
            (
                R::Callee(_)
                | R::Signature(_)
                | R::Flags(_)
                | R::Constant(_)
                | R::Immediate(_)
                | R::GlobalValue(_),
                _,
            ) => false,
        }
    }

    pub fn is_same_callee(&self, a: FuncRef, b: FuncRef) -> bool {
        let [f, g] = self.two;
        let ExtFuncData { name, signature, colocated, patchable } = &f.dfg.ext_funcs[a];
        let other = &g.dfg.ext_funcs[b];
        is_same_name((f, name), (g, &other.name))
            && f.dfg.signatures[*signature] == g.dfg.signatures[other.signature]
            && (*colocated, *patchable) == (other.colocated, other.patchable)
    }
}

fn is_same_name((f, a): (&Function, &ExternalName), (g, b): (&Function, &ExternalName)) -> bool {
    match (user_symbol(f, a), user_symbol(g, b)) {
        (Some(a), Some(b)) => a == b,
        (None, None) => a == b,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn types_of<'a>(func: &'a Function, values: &'a [Value]) -> impl Iterator<Item = Type> + 'a {
    values.iter().map(|&value| func.dfg.value_type(value))
}

fn stack_map(func: &Function, inst: Inst) -> impl Iterator<Item = (Type, u32, u32)> + '_ {
    let entries = func.dfg.user_stack_map_entries(inst).unwrap_or(&[]).iter();
    entries.map(|entry| {
        let UserStackMapEntry { ty, slot, offset } = entry;
        (*ty, slot.as_u32(), *offset)
    })
}

/// Flags without their region, and the region's id.
type Access = (cranelift_codegen::ir::MemFlagsData, Option<u32>);

fn access(func: &Function, flags: MemFlags) -> Access {
    let flags = func.dfg.mem_flags[flags];
    let region = flags.alias_region().map(|it| func.dfg.alias_regions[it].user_id);
    (flags.with_alias_region(None), region)
}

/// Hashes what instructions of one function must have in common with others.
pub(super) struct Hashes<'a> {
    func: &'a Function,
    /// What each symbol is replaced by.
    symbol: &'a dyn Fn(&'a UserExternalName) -> &'a UserExternalName,
    callees: SecondaryMap<FuncRef, Option<u64>>,
    references: References,
}

impl<'a> Hashes<'a> {
    pub fn new(
        func: &'a Function,
        symbol: &'a dyn Fn(&'a UserExternalName) -> &'a UserExternalName,
    ) -> Hashes<'a> {
        Hashes { func, symbol, callees: SecondaryMap::new(), references: References::default() }
    }

    /// A hash of what an instruction, which is no branch, must have in common with another one: equal if
    /// [`Comparison::is_same`] says so. `None` if it cannot be copied. Linear in its operands.
    pub fn of(&mut self, inst: Inst) -> Option<u32> {
        let func = self.func;
        let data = content(func, inst, &mut self.references)?;
        let mut hasher = FxHasher::default();
        data.hash(&mut hasher, &ValueListPool::new());
        let found = core::mem::take(&mut self.references.found);
        for &reference in &found {
            match reference {
                Reference::Callee(callee) => self.callee(callee).hash(&mut hasher),
                Reference::Signature(signature) => {
                    func.dfg.signatures[signature].hash(&mut hasher);
                }
                Reference::Flags(flags) => access(func, flags).hash(&mut hasher),
                Reference::Constant(constant) => {
                    func.dfg.constants.get(constant).as_slice().hash(&mut hasher);
                }
                Reference::Immediate(immediate) => {
                    func.dfg.immediates[immediate].as_slice().hash(&mut hasher);
                }
                Reference::GlobalValue(global_value) => match &func.global_values[global_value] {
                    GlobalValueData::Symbol { name, offset, colocated, tls: false } => {
                        self.name(name, &mut hasher);
                        (offset.bits(), colocated).hash(&mut hasher);
                    }
                    _ => return None,
                },
            }
        }
        self.references.found = found;
        for values in [func.dfg.inst_args(inst), func.dfg.inst_results(inst)] {
            types_of(func, values).for_each(|ty| ty.hash(&mut hasher));
        }
        stack_map(func, inst).for_each(|entry| entry.hash(&mut hasher));
        let hash = hasher.finish();
        Some((hash ^ hash >> 32) as u32)
    }

    fn callee(&mut self, callee: FuncRef) -> u64 {
        if let Some(known) = self.callees[callee] {
            return known;
        }
        let ExtFuncData { name, signature, colocated, patchable } =
            &self.func.dfg.ext_funcs[callee];
        let mut hasher = FxHasher::default();
        self.name(name, &mut hasher);
        self.func.dfg.signatures[*signature].hash(&mut hasher);
        (colocated, patchable).hash(&mut hasher);
        let hash = hasher.finish();
        self.callees[callee] = Some(hash);
        hash
    }

    fn name(&self, name: &'a ExternalName, hasher: &mut FxHasher) {
        match user_symbol(self.func, name) {
            Some(symbol) => (self.symbol)(symbol).hash(hasher),
            None => name.hash(hasher),
        }
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

    fn flags(&mut self, flags: MemFlags) -> Option<MemFlags> {
        let Copying { from, into } = &mut *self.copying;
        let flags = from.dfg.mem_flags[flags];
        let region = flags
            .alias_region()
            .map(|region| into.dfg.alias_regions.insert(from.dfg.alias_regions[region].clone()));
        into.dfg.mem_flags.insert(flags.with_alias_region(region)).ok()
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
    loop {
        let (same, bases) = match (&f.global_values[a], &g.global_values[b]) {
            (V::VMContext, V::VMContext) => (true, None),
            (
                V::Load { base: x, offset, global_type, flags: i },
                V::Load { base: y, offset: other, global_type: ty, flags: j },
            ) => {
                let same = (offset, global_type, access(f, *i)) == (other, ty, access(g, *j));
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
