//! The symbols of a unit, and the external nodes by which references out of it are compared.

use super::{ExternalNode, MergeCache};
use crate::unit::{
    Beyond, Item, Node, Numbering, ResolveSymbol, Resolved, Unit, resolved, resolved_data,
};
use alloc::vec::Vec;
use core::cell::RefCell;
use cranelift_codegen::ir::UserExternalName;
use cranelift_entity::EntityRef;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// The symbols of a unit, and its external nodes.
pub(crate) struct UnitSymbols<'a> {
    unit: &'a Unit,
    cache: Option<&'a MergeCache>,
    external_nodes: RefCell<ExternalNodes>,
}

/// What an incremental run knows of the nodes that classes refer to. Empty in other runs.
pub(crate) struct External {
    /// The external nodes, which come behind the nodes of the unit.
    pub nodes: Vec<ExternalNode>,
    /// The symbols of the nodes of the unit.
    pub symbols: Vec<UserExternalName>,
}

/// Numbers the external nodes by which references out of the unit are compared, in the order of first use.
#[derive(Default)]
struct ExternalNodes {
    number: HashMap<ExternalNode, u32, FxBuildHasher>,
    external_nodes: Vec<ExternalNode>,
    resolved: Beyond,
}

impl<'a> UnitSymbols<'a> {
    pub fn new(unit: &'a Unit, cache: Option<&'a MergeCache>) -> Self {
        UnitSymbols { unit, cache, external_nodes: RefCell::default() }
    }

    fn external_node(&self, external_node: ExternalNode) -> Node {
        let mut external_nodes = self.external_nodes.borrow_mut();
        let ExternalNodes { number, external_nodes, resolved: _ } = &mut *external_nodes;
        let index = *number.entry(external_node.clone()).or_insert_with(|| {
            external_nodes.push(external_node);
            external_nodes.len() as u32 - 1
        });
        let Numbering { functions, data } = self.unit.numbering();
        Node::new(functions + data + index as usize)
    }

    /// The external nodes, and how all symbols were resolved, in an incremental run.
    pub fn finish(self) -> (External, Beyond) {
        let UnitSymbols { unit, cache, external_nodes } = self;
        let ExternalNodes { number: _, external_nodes: nodes, resolved } =
            external_nodes.into_inner();
        let numbering = unit.numbering();
        let symbol = |node| unit.symbol(numbering.item(node)).clone();
        let symbols = cache.map_or(Vec::new(), |_| numbering.nodes().map(symbol).collect());
        (External { nodes, symbols }, resolved)
    }
}

impl ResolveSymbol for UnitSymbols<'_> {
    fn resolve(&self, symbol: &UserExternalName) -> Option<Resolved> {
        let Some(cache) = self.cache else {
            return self.within(symbol);
        };
        if let Some(resolved) = self.external_nodes.borrow().resolved.get(symbol) {
            return Some(*resolved);
        }
        // The encoding must not depend on what is already defined, or it would not be the same in a later unit:
        // every symbol is compared by a node.
        let resolved = match self.within(symbol) {
            Some(Resolved { call, address, inside }) => {
                let itself = || self.external_node(ExternalNode::Symbol(symbol.clone()));
                Resolved {
                    call: Some(call.unwrap_or_else(itself)),
                    address: Some(address.unwrap_or_else(itself)),
                    inside: Some(inside.unwrap_or_else(itself)),
                }
            }
            None => Resolved {
                call: Some(self.external_node(cache.external_node(symbol, true))),
                address: Some(self.external_node(cache.external_node(symbol, false))),
                inside: Some(self.external_node(cache.external_node_inside(symbol))),
            },
        };
        self.external_nodes.borrow_mut().resolved.insert(symbol.clone(), resolved);
        Some(resolved)
    }
}

impl UnitSymbols<'_> {
    fn within(&self, symbol: &UserExternalName) -> Option<Resolved> {
        let item = self.unit.item(symbol)?;
        let node = self.unit.numbering().node(item);
        Some(match item {
            Item::Function(function) => resolved(node, &self.unit.functions[function].attributes),
            Item::Data(data) => resolved_data(node, &self.unit.data[data].attributes),
        })
    }
}
