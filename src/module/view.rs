//! What is known of functions and data, without the wrapped module: a view that threads can share.
//!
//! Where references lead, what is at which place, what may be interposed: all that a flush reads to redirect and to
//! audit the functions that it emits. The questions of one job are with that job (`emit`, `names`, `audit`). Nothing
//! is changed here.

use super::flush::ADDED;
use super::{Became, DataState, FunctionState, ModuleOptions, linkage};
use crate::unit::Attributes;
use alloc::vec::Vec;
use cranelift_codegen::ir::UserExternalName;
use cranelift_codegen::isa::TargetIsa;
use cranelift_entity::SecondaryMap;
use cranelift_module::{DataId, FuncId, ModuleDeclarations};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// The fields of a [`MergingModule`](super::MergingModule) of these names, and what the wrapped module declares.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub functions: &'a SecondaryMap<FuncId, FunctionState>,
    pub data: &'a SecondaryMap<DataId, DataState>,
    pub shared: &'a Vec<FuncId>,
    pub local_names: &'a HashMap<FuncId, FuncId, FxBuildHasher>,
    pub local_data_names: &'a HashMap<DataId, DataId, FxBuildHasher>,
    pub named: &'a HashMap<FuncId, FuncId, FxBuildHasher>,
    pub named_data: &'a HashMap<DataId, DataId, FxBuildHasher>,
    pub attributes: &'a HashMap<FuncId, Attributes, FxBuildHasher>,
    pub options: &'a ModuleOptions,
    pub declarations: &'a ModuleDeclarations,
    pub isa: &'a dyn TargetIsa,
}

impl View<'_> {
    /// The function of a symbol of the pass.
    pub(super) fn id_of(&self, symbol: &UserExternalName) -> FuncId {
        match symbol.namespace {
            ADDED => self.shared[symbol.index as usize],
            _ => FuncId::from_u32(symbol.index),
        }
    }

    pub(super) fn attributes_of(&self, function: FuncId) -> Attributes {
        let defaults = Attributes { addresses: self.options.functions, ..Attributes::default() };
        let attributes = self.attributes.get(&function).copied().unwrap_or(defaults);
        let declaration = self.declarations.get_function_decl(function);
        let FunctionState { called, address_held, .. } = self.functions[function];
        Attributes {
            linkage: linkage(declaration.linkage),
            address_taken: attributes.address_taken || address_held,
            externally_called: attributes.externally_called || called,
            ..attributes
        }
    }

    /// The function to which calls of `function` should go, if another one.
    pub(super) fn call_target(&self, function: FuncId) -> Option<FuncId> {
        let FunctionState { preemptible, eliminated, became, body, extra, .. } =
            &self.functions[function];
        if *became == Became::Thunk && !extra.is_empty() {
            // The thunk exists anyway, and passes the extra arguments.
            return None;
        }
        // Where its symbol is eliminated, no definition can take it either.
        body.expand().filter(|_| !preemptible || *eliminated).map(|body| self.local_name(body))
    }

    /// The function whose address should be used in place of that of `function`, if another one.
    pub(super) fn address_target(&self, function: FuncId) -> Option<FuncId> {
        let FunctionState { became, eliminated, body, extra, .. } = &self.functions[function];
        let moved = (*eliminated || *became == Became::Redirected) && extra.is_empty();
        body.expand().filter(|_| moved).map(|body| self.local_name(body))
    }

    /// The data object that references to `data` should name, if another one.
    pub(super) fn data_target(&self, data: DataId) -> Option<DataId> {
        let DataState { became, eliminated, body, .. } = &self.data[data];
        let moved = body.expand().filter(|_| *eliminated || *became == Became::Redirected);
        moved.map(|body| self.local_data_names.get(&body).copied().unwrap_or(body))
    }
}
