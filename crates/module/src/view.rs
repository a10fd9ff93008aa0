//! The state of functions and data, without the wrapped module: a view that threads can share.
//!
//! Where references lead, what is at which place, what may be interposed: all that a flush reads to
//! redirect the functions that it emits. The questions of one job are with that job (`references`,
//! `names`, `nowhere`). Nothing is changed here.

use crate::flush::ADDED;
use crate::{FunctionState, ModuleOptions, Symbols, linkage};
use cranelift_codegen::ir::UserExternalName;
use cranelift_codegen::isa::TargetIsa;
use cranelift_mergefunc::{Attributes, Reached, reached};
use cranelift_module::{DataId, FuncId, ModuleDeclarations};

/// The state of a [`MergingModule`](crate::MergingModule), its options, and the declarations of the
/// wrapped module.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub symbols: &'a Symbols,
    pub options: &'a ModuleOptions,
    pub declarations: &'a ModuleDeclarations,
    pub isa: &'a dyn TargetIsa,
}

impl<'a> View<'a> {
    /// The function of a symbol of the pass.
    pub(crate) fn id_of(&self, symbol: &UserExternalName) -> FuncId {
        match symbol.namespace {
            ADDED => self.symbols.added[symbol.index as usize],
            _ => FuncId::from_u32(symbol.index),
        }
    }

    pub(crate) fn attributes_of(&self, function: FuncId) -> Attributes {
        let defaults =
            Attributes { addresses: self.options.function_addresses, ..Attributes::default() };
        let attributes = self.symbols.attributes.get(&function).copied().unwrap_or(defaults);
        let declaration = self.declarations.get_function_decl(function);
        let FunctionState { called, address_held, .. } = self.symbols.functions[function];
        Attributes {
            linkage: linkage(declaration.linkage),
            address_taken: attributes.address_taken || address_held,
            externally_called: attributes.externally_called || called,
            ..attributes
        }
    }

    /// The target of references to a function, by the decisions of this flush and earlier ones.
    pub(crate) fn reached(&self, function: FuncId) -> Reached<'a, FuncId> {
        let functions = &self.symbols.functions;
        reached(function, |function| {
            let FunctionState { disposition, extra, .. } = &functions[function];
            (*disposition, extra)
        })
    }

    /// The target of references to a data object.
    pub(crate) fn data_reached(&self, data: DataId) -> Reached<'a, DataId> {
        reached(data, |data| (self.symbols.data[data].disposition, &[]))
    }

    /// The function whose address should be used in place of that of `function`, if another one.
    pub(crate) fn address_target(&self, function: FuncId) -> Option<FuncId> {
        let address = self.reached(function).address.filter(|&address| address != function);
        address.map(|address| self.local_name(address))
    }

    /// The data object that references to `data` should name, if another one.
    pub(crate) fn data_target(&self, data: DataId) -> Option<DataId> {
        let address = self.data_reached(data).address.filter(|&address| address != data);
        address.map(|address| self.local_data_name(address))
    }
}
