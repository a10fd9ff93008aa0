//! The symbols of a unit, and the external nodes by which references out of it are compared.

use super::{ExternalNode, MergeCache};
use crate::unit::{
    Beyond, Bodies, Item, Node, Numbering, ResolveSymbol, Resolved, Unit, resolved, resolved_data,
};
use alloc::vec::Vec;
use cranelift_codegen::ir::UserExternalName;
use cranelift_entity::EntityRef;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// The symbols of a unit, and its external nodes.
pub(crate) struct UnitSymbols<'a> {
    unit: &'a Unit,
    external: Option<ExternalNodes<'a>>,
}

/// What an incremental run knows of the nodes that classes refer to. Empty in other runs.
pub(crate) struct External {
    /// The external nodes, which come behind the nodes of the unit.
    pub nodes: Vec<ExternalNode>,
    /// The symbols of the nodes of the unit.
    pub symbols: Vec<UserExternalName>,
}

/// The external nodes by which references out of the unit are compared, and how all symbols that the unit names are
/// compared.
struct ExternalNodes<'a> {
    unit: &'a Unit,
    cache: &'a MergeCache,
    number: HashMap<ExternalNode, u32, FxBuildHasher>,
    nodes: Vec<ExternalNode>,
    resolved: Beyond,
}

impl ExternalNodes<'_> {
    fn node(&mut self, external_node: ExternalNode) -> Node {
        let ExternalNodes { number, nodes, unit, .. } = self;
        let index = *number.entry(external_node.clone()).or_insert_with(|| {
            nodes.push(external_node);
            nodes.len() as u32 - 1
        });
        let Numbering { functions, data } = unit.numbering();
        Node::new(functions + data + index as usize)
    }

    fn add(&mut self, symbol: &UserExternalName) {
        if self.resolved.contains_key(symbol) {
            return;
        }
        // The encoding must not depend on what is already defined, or it would not be the same in a later unit:
        // every symbol is compared by a node.
        let resolved = match within(self.unit, symbol) {
            Some(Resolved { call, address, inside }) => {
                let mut itself = || self.node(ExternalNode::Symbol(symbol.clone()));
                Resolved {
                    call: Some(call.unwrap_or_else(&mut itself)),
                    address: Some(address.unwrap_or_else(&mut itself)),
                    inside: Some(inside.unwrap_or_else(&mut itself)),
                }
            }
            None => {
                let cache = self.cache;
                Resolved {
                    call: Some(self.node(cache.external_node(symbol, true))),
                    address: Some(self.node(cache.external_node(symbol, false))),
                    inside: Some(self.node(cache.external_node_inside(symbol))),
                }
            }
        };
        self.resolved.insert(symbol.clone(), resolved);
    }
}

impl<'a> UnitSymbols<'a> {
    /// The symbols of a unit that refers to no earlier one.
    pub fn new(unit: &'a Unit) -> Self {
        UnitSymbols { unit, external: None }
    }

    /// The symbols of a unit of an incremental run. Numbers the external nodes of all symbols that the unit names, in
    /// the order of the unit: before the walk, since several threads may walk. Linear in the number of names.
    pub fn after(unit: &'a Unit, cache: &'a MergeCache, bodies: &mut dyn Bodies) -> Self {
        let (number, nodes, resolved) = Default::default();
        let mut external = ExternalNodes { unit, cache, number, nodes, resolved };
        for function in unit.functions.keys() {
            // A canonical body names no other symbols than the function.
            let body = bodies.body(function);
            body.params.user_named_funcs().values().for_each(|symbol| external.add(symbol));
        }
        for data in unit.data.keys() {
            let pointers = bodies.data(data).map_or(&[][..], |object| &object.relocations);
            pointers.iter().for_each(|pointer| external.add(&pointer.target));
        }
        UnitSymbols { unit, external: Some(external) }
    }

    /// The external nodes, and how all symbols were resolved, in an incremental run.
    pub fn finish(self) -> (External, Beyond) {
        let UnitSymbols { unit, external } = self;
        let Some(external) = external else {
            return (External { nodes: Vec::new(), symbols: Vec::new() }, Beyond::default());
        };
        let numbering = unit.numbering();
        let symbol = |node| unit.symbol(numbering.item(node)).clone();
        let symbols = numbering.nodes().map(symbol).collect();
        let ExternalNodes { nodes, resolved, .. } = external;
        (External { nodes, symbols }, resolved)
    }
}

impl ResolveSymbol for UnitSymbols<'_> {
    fn resolve(&self, symbol: &UserExternalName) -> Option<Resolved> {
        match &self.external {
            Some(external) => external.resolved.get(symbol).copied(),
            None => within(self.unit, symbol),
        }
    }
}

fn within(unit: &Unit, symbol: &UserExternalName) -> Option<Resolved> {
    let item = unit.item(symbol)?;
    let node = unit.numbering().node(item);
    Some(match item {
        Item::Function(function) => resolved(node, &unit.functions[function].attributes),
        Item::Data(data) => resolved_data(node, &unit.data[data].attributes),
    })
}
