//! Instructions of one function, copied into another.
//!
//! The referents of an instruction (callees, signatures, flags, constants) stand in tables of its
//! function: each reference is entered into the tables of the other function. It goes through the
//! one match over all formats ([`copy`](crate::copy)). Operands become what the caller says. This
//! module does *not* copy branches.

use crate::copy::{Entities, copied, mapped};
use crate::ir::{user_name, user_symbol};
use alloc::vec::Vec;
use cranelift_codegen::ir::{
    Constant, ConstantData, ExtFuncData, ExternalName, FuncRef, Function, GlobalValue,
    GlobalValueData, Immediate, Inst, MemFlags, SigRef, Value, ValueList,
};

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
