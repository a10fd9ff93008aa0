//! A unit: the functions and data objects that are planned together, by index and by symbol.
//!
//! The ids that all other modules share, the attributes that the embedder gives, and a summary of
//! each function and data object. It holds no IR, and decides nothing.

mod attributes;
mod bodies;
mod data;
mod observed;
mod symbols;

pub(crate) use attributes::Interned;
pub use attributes::{Addresses, Attributes};
pub use bodies::{Bodies, FreshSymbols, SyncBodies};
pub use cranelift_mergefunc_units::Linkage;
pub use data::{Contents, DataAttributes, DataIndex, DataObject, DataReloc};
pub(crate) use observed::{Observe, Observed};
pub(crate) use symbols::{MAX_ITEMS, Symbols};

use crate::extra_argument::Substitute;
use alloc::sync::Arc;
use core::fmt;
use cranelift_codegen::ir::UserExternalName;
use cranelift_entity::{EntityRef, PrimaryMap, entity_impl};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// A function of the unit, in the order in which functions were added.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionIndex(u32);
entity_impl!(FunctionIndex, "function");

/// Why a function was not taken into the unit.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddError {
    /// The unit has a function or a data object of this symbol.
    DuplicateSymbol(UserExternalName),
    /// The function has no blocks: it is a declaration. Declarations are not part of a unit.
    NoBody(UserExternalName),
    /// An alignment that is no power of two.
    Alignment(u64),
    /// The unit has 2^30 functions and data objects.
    TooManyFunctions,
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddError::DuplicateSymbol(symbol) => write!(f, "{symbol} is defined twice"),
            AddError::NoBody(symbol) => write!(f, "function {symbol} has no body"),
            AddError::Alignment(bytes) => write!(f, "alignment {bytes} is no power of two"),
            AddError::TooManyFunctions => write!(f, "too many functions and data objects"),
        }
    }
}

impl core::error::Error for AddError {}

/// A function under its symbol.
#[derive(Clone, Debug)]
pub(crate) struct Defined {
    pub symbol: UserExternalName,
    /// Shared by all functions that have the same.
    pub attributes: Arc<Attributes>,
}

/// An alignment, as its logarithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alignment(u8);

impl Alignment {
    /// `bytes` is a power of two, or 0 for none.
    pub fn new(bytes: u64) -> Alignment {
        Alignment(bytes.max(1).trailing_zeros() as u8)
    }

    /// The alignment of a function, which has 32 bits.
    pub fn of_function(bytes: u64) -> Alignment {
        Alignment::new(bytes).min(Alignment(31))
    }

    pub fn bytes(self) -> u64 {
        1 << self.0
    }
}

/// The summary of a data object.
#[derive(Clone, Debug)]
pub(crate) struct DataSummary {
    pub symbol: UserExternalName,
    pub attributes: DataAttributes,
    pub bucket: u64,
    /// In bytes.
    pub size: u64,
}

/// A function or data object of the unit, which has a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Function(FunctionIndex),
    Data(DataIndex),
}

/// An element of the partition that refers to others, or that others refer to: a function or a data
/// object of the unit, or an external node, which equals only itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node(u32);
entity_impl!(Node, "node");

/// The items of the nodes of the partition: functions come first, then data objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbering {
    pub functions: usize,
    pub data: usize,
}

impl Numbering {
    pub fn node(&self, item: Item) -> Node {
        match item {
            Item::Function(function) => Node::new(function.index()),
            Item::Data(data) => Node::new(self.functions + data.index()),
        }
    }

    pub fn item(&self, node: Node) -> Item {
        match node.index().checked_sub(self.functions) {
            None => Item::Function(FunctionIndex::new(node.index())),
            Some(index) => Item::Data(DataIndex::new(index)),
        }
    }

    pub fn nodes(&self) -> impl Iterator<Item = Node> + use<> {
        (0..self.functions + self.data).map(Node::new)
    }
}

/// The functions and data objects that were added.
#[derive(Default)]
pub(crate) struct Unit {
    pub functions: PrimaryMap<FunctionIndex, Defined>,
    /// Functions with different buckets are not compared.
    pub buckets: PrimaryMap<FunctionIndex, u64>,
    pub data: PrimaryMap<DataIndex, DataSummary>,
    pub attributes: Interned,
    symbols: Symbols,
}

impl Unit {
    pub fn numbering(&self) -> Numbering {
        Numbering { functions: self.functions.len(), data: self.data.len() }
    }

    pub fn symbol(&self, item: Item) -> &UserExternalName {
        symbol_of(&self.functions, &self.data, item)
    }

    pub fn bucket(&self, item: Item) -> u64 {
        match item {
            Item::Function(function) => self.buckets[function],
            Item::Data(data) => self.data[data].bucket,
        }
    }

    /// The function or data object of a symbol.
    pub fn item(&self, symbol: &UserExternalName) -> Option<Item> {
        self.symbols.get(symbol, |item| self.symbol(item))
    }

    pub fn check(&self, symbol: &UserExternalName, alignment: u64) -> Result<(), AddError> {
        if self.item(symbol).is_some() {
            return Err(AddError::DuplicateSymbol(symbol.clone()));
        }
        if !alignment.is_power_of_two() {
            return Err(AddError::Alignment(alignment));
        }
        if self.functions.len() + self.data.len() >= MAX_ITEMS {
            return Err(AddError::TooManyFunctions);
        }
        Ok(())
    }

    /// Makes room for this many more functions.
    pub fn reserve(&mut self, count: usize) {
        let Unit { functions, buckets, data, symbols, attributes: _ } = self;
        functions.reserve(count);
        buckets.reserve(count);
        symbols.reserve(count, |item| symbol_of(functions, data, item));
    }

    /// Adds a function that was [checked](Unit::check).
    pub fn add(
        &mut self,
        symbol: UserExternalName,
        attributes: Attributes,
        bucket: u64,
    ) -> FunctionIndex {
        let attributes = self.attributes.intern(attributes);
        let function = self.functions.push(Defined { symbol, attributes });
        self.buckets.push(bucket);
        let Unit { functions, data, symbols, .. } = self;
        symbols.insert(Item::Function(function), |item| symbol_of(functions, data, item));
        function
    }

    /// Adds a data object that was [checked](Unit::check).
    pub fn add_data(&mut self, summary: DataSummary) -> DataIndex {
        let index = self.data.push(summary);
        let Unit { functions, data, symbols, .. } = self;
        symbols.insert(Item::Data(index), |item| symbol_of(functions, data, item));
        index
    }

    /// Drops what only buckets need.
    pub fn drop_buckets(&mut self) {
        self.buckets = PrimaryMap::new();
    }

    /// The parts of a unit that a plan takes over: functions, data objects, and both by symbol.
    pub fn into_parts(
        self,
    ) -> (PrimaryMap<FunctionIndex, Defined>, PrimaryMap<DataIndex, DataSummary>, Symbols) {
        let Unit { functions, data, symbols, buckets: _, attributes: _ } = self;
        (functions, data, symbols)
    }
}

fn symbol_of<'a>(
    functions: &'a PrimaryMap<FunctionIndex, Defined>,
    data: &'a PrimaryMap<DataIndex, DataSummary>,
    item: Item,
) -> &'a UserExternalName {
    match item {
        Item::Function(function) => &functions[function].symbol,
        Item::Data(data_index) => &data[data_index].symbol,
    }
}

/// The meaning of references to symbols where functions are compared.
pub(crate) trait ResolveSymbol {
    /// How references that lead to a symbol are compared. `None` for a symbol that is not of the
    /// unit.
    fn resolve(&self, symbol: &UserExternalName) -> Option<Resolved>;

    /// Where the references that a function holds lead when a plan is applied to it.
    fn redirect(&self, symbol: &UserExternalName) -> Redirected {
        let _ = symbol;
        Redirected::default()
    }
}

/// Where references to a symbol lead; `None` if to the symbol itself.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redirected {
    /// The target of direct calls.
    pub call: Option<Substitute>,
    /// The symbol to which uses of the address go.
    pub address: Option<UserExternalName>,
}

/// How references to a symbol of the unit are compared: by the class of a node, or by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolved {
    pub call: Option<Node>,
    pub address: Option<Node>,
    /// For addresses behind that of the symbol: equal functions need not have equal code, so an
    /// address inside one equals no address inside another.
    pub inside: Option<Node>,
}

/// A resolver for walks that do not know the unit: every symbol is compared by name.
pub(crate) struct NoUnit;

impl ResolveSymbol for NoUnit {
    fn resolve(&self, _symbol: &UserExternalName) -> Option<Resolved> {
        None
    }
}

/// How references to symbols are compared, in an incremental run.
pub(crate) type ExternalSymbols = HashMap<UserExternalName, Resolved, FxBuildHasher>;

/// How references to a function of the unit are compared.
pub(crate) fn resolved(node: Node, attributes: &Attributes) -> Resolved {
    // Another definition may take a preemptible symbol, and a function that must not be merged must
    // stay distinguishable: such a symbol equals only itself.
    let call = attributes.linkage != Linkage::Preemptible && !attributes.no_merge;
    let address = call && attributes.addresses == Addresses::Insignificant;
    Resolved { call: call.then_some(node), address: address.then_some(node), inside: None }
}

/// How references to a data object of the unit are compared.
pub(crate) fn resolved_data(node: Node, attributes: &DataAttributes) -> Resolved {
    let address = attributes.by_class().then_some(node);
    Resolved { call: None, address, inside: address }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_takes_16_bytes() {
        assert_eq!(size_of::<Defined>(), 16);
    }
}
