//! The deferred definitions, as the pass asks for them. It redirects and defines nothing.

use crate::flush::{ADDED, Unit};
use crate::{Definition, Pending};
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_entity::EntityRef;
use cranelift_mergefunc::data::{DataIndex, DataObject};
use cranelift_mergefunc::{Bodies, FunctionIndex, SyncBodies};
use cranelift_module::{DataId, FuncId, ModuleDeclarations};

impl Pending {
    pub(crate) fn func(&self, unit: &Unit, function: FunctionIndex) -> &Function {
        match &self.functions[unit.place[function.index()]].1 {
            Definition::Body { func, .. } => func,
            Definition::Bytes { .. } => unreachable!("only functions with IR are in the unit"),
        }
    }
}

/// The deferred functions and data objects.
#[derive(Clone, Copy)]
pub(crate) struct Deferred<'a> {
    pub pending: &'a Pending,
    pub unit: &'a Unit,
}

impl<'a> Deferred<'a> {
    pub fn function(self, function: FunctionIndex) -> &'a Function {
        self.pending.func(self.unit, function)
    }
}

impl SyncBodies for Deferred<'_> {
    fn body(&self, function: FunctionIndex) -> &Function {
        self.function(function)
    }

    fn data(&self, data: DataIndex) -> Option<&DataObject> {
        Some(&self.unit.data[data.index()].2)
    }
}

/// Deferred bodies as the pass requests them.
pub(crate) struct DeferredBodies<'a> {
    pub deferred: Deferred<'a>,
    pub declarations: &'a ModuleDeclarations,
    /// The number of the next new body.
    pub fresh: u32,
    /// Whether the pass works on several threads.
    pub is_parallel: bool,
}

impl Bodies for DeferredBodies<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        self.deferred.function(function)
    }

    fn data(&mut self, data: DataIndex) -> Option<&DataObject> {
        Some(&self.deferred.unit.data[data.index()].2)
    }

    fn fresh_symbol(&mut self, _: &[FunctionIndex]) -> Option<UserExternalName> {
        let symbol = UserExternalName::new(ADDED, self.fresh);
        self.fresh += 1;
        Some(symbol)
    }

    fn link_name(&mut self, symbol: &UserExternalName) -> Option<String> {
        let UserExternalName { namespace, index } = *symbol;
        let (linkage, name) = match namespace {
            0 => {
                let declaration = self.declarations.get_function_decl(FuncId::from_u32(index));
                (declaration.linkage, &declaration.name)
            }
            1 => {
                let declaration = self.declarations.get_data_decl(DataId::from_u32(index));
                (declaration.linkage, &declaration.name)
            }
            _ => return None,
        };
        name.clone().filter(|_| linkage != cranelift_module::Linkage::Local)
    }

    fn sync(&self) -> Option<Box<dyn SyncBodies + '_>> {
        self.is_parallel.then(|| Box::new(self.deferred) as _)
    }
}
