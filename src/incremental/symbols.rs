//! The symbols of a unit, and the external nodes by which references out of it are compared.

use super::MergeCache;
use crate::corpus::{Kind, KnownIndex};
use crate::unit::{
    Bodies, ExternalSymbols, Item, Node, Numbering, ResolveSymbol, Resolved, Unit, resolved,
    resolved_data,
};
use alloc::vec::Vec;
use cranelift_codegen::ir::UserExternalName;
use cranelift_entity::EntityRef;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// An external node: what a reference out of the unit is compared by.
pub(crate) struct ExternalNode {
    /// The first symbol and kind of which there was such a reference.
    pub symbol: UserExternalName,
    pub kind: Kind,
    /// The cached class of the symbol; `None` if it is compared by itself, or not defined yet.
    pub class: Option<KnownIndex>,
}

/// The symbols of a unit, and its external nodes.
pub(crate) struct UnitSymbols<'a> {
    unit: &'a Unit,
    external: Option<ExternalNodes<'a>>,
}

/// The nodes that classes of an incremental run refer to. Empty in other runs.
pub(crate) struct External {
    /// The external nodes, which come behind the nodes of the unit.
    pub nodes: Vec<ExternalNode>,
    /// The symbols of the nodes of the unit.
    pub symbols: Vec<UserExternalName>,
}

/// The external nodes by which references out of the unit are compared, and how all symbols that
/// the unit names are compared.
struct ExternalNodes<'a> {
    unit: &'a Unit,
    cache: &'a MergeCache,
    by_class: HashMap<KnownIndex, Node, FxBuildHasher>,
    nodes: Vec<ExternalNode>,
    resolved: ExternalSymbols,
}

impl ExternalNodes<'_> {
    /// The node of a symbol and a kind, or of its class.
    fn node(&mut self, symbol: &UserExternalName, kind: Kind, class: Option<KnownIndex>) -> Node {
        let Numbering { functions, data } = self.unit.numbering();
        let new = Node::new(functions + data + self.nodes.len());
        let node = class.map_or(new, |class| *self.by_class.entry(class).or_insert(new));
        if node == new {
            self.nodes.push(ExternalNode { symbol: symbol.clone(), kind, class });
        }
        node
    }

    fn add(&mut self, symbol: &UserExternalName) {
        if self.resolved.contains_key(symbol) {
            return;
        }
        // The encoding must not depend on present definitions, or it would differ in a later
        // unit: every symbol is compared by a node.
        let within = within(self.unit, symbol);
        let resolved = Kind::resolved(|kind| {
            Some(match &within {
                Some(within) => kind.of(within).unwrap_or_else(|| self.node(symbol, kind, None)),
                None => self.node(symbol, kind, self.cache.by_class(symbol, kind)),
            })
        });
        self.resolved.insert(symbol.clone(), resolved);
    }
}

impl<'a> UnitSymbols<'a> {
    /// The symbols of a unit that refers to no earlier one.
    pub fn new(unit: &'a Unit) -> Self {
        UnitSymbols { unit, external: None }
    }

    /// The symbols of a unit of an incremental run. Numbers the external nodes of all symbols that
    /// the unit names, in the order of the unit: before the walk, since several threads may walk.
    /// Linear in the number of names.
    pub fn after(unit: &'a Unit, cache: &'a MergeCache, bodies: &mut dyn Bodies) -> Self {
        let (by_class, nodes, resolved) = Default::default();
        let mut external = ExternalNodes { unit, cache, by_class, nodes, resolved };
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
    pub fn finish(self) -> (External, ExternalSymbols) {
        let UnitSymbols { unit, external } = self;
        let Some(external) = external else {
            return (
                External { nodes: Vec::new(), symbols: Vec::new() },
                ExternalSymbols::default(),
            );
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
