//! A unit: the functions and data objects that are planned together, by index and by symbol.
//!
//! The ids that all other modules share, the attributes that the embedder gives, and a summary of each function and
//! data object. It holds no IR, and decides nothing.

mod attributes;
mod bodies;
mod data;
mod observed;

pub use attributes::{Addresses, Attributes, Linkage};
pub use bodies::{Bodies, CodeSizes};
pub use data::{Contents, DataAttributes, DataIndex, DataObject, DataReloc};
pub(crate) use observed::Observed;

use crate::extra_argument::CallTarget;
use core::fmt;
use cranelift_codegen::ir::UserExternalName;
use cranelift_entity::{EntityRef, PrimaryMap, entity_impl};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// A function of the unit, in the order in which functions were added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionIndex(u32);
entity_impl!(FunctionIndex, "function");

/// Why a function was not taken into the unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddError {
    /// The unit has a function or a data object of this symbol.
    DuplicateSymbol(UserExternalName),
    /// The function has no blocks: it is a declaration. Declarations are not part of a unit.
    NoBody(UserExternalName),
    /// An alignment that is no power of two.
    Alignment(u64),
    /// The unit has 2^32 - 2 functions and data objects.
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

/// The summary of a function, kept between [`Merger::add`] and [`Merger::plan`].
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub symbol: UserExternalName,
    pub attributes: Attributes,
    /// Functions with different buckets are not compared.
    pub bucket: u128,
    /// Instructions in the function's table, used or not.
    pub instructions: u32,
}

/// The summary of a data object.
#[derive(Clone, Debug)]
pub(crate) struct DataSummary {
    pub symbol: UserExternalName,
    pub attributes: DataAttributes,
    pub bucket: u128,
    /// In bytes.
    pub size: u64,
}

/// A function or data object of the unit, which has a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Function(FunctionIndex),
    Data(DataIndex),
}

pub(crate) type Symbols = HashMap<UserExternalName, Item, FxBuildHasher>;

/// An element of the partition that refers to others, or that others refer to: a function or a data object of the
/// unit, or an external node, which equals only itself.
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
    pub functions: PrimaryMap<FunctionIndex, Summary>,
    pub data: PrimaryMap<DataIndex, DataSummary>,
    pub by_symbol: Symbols,
}

impl Unit {
    pub fn numbering(&self) -> Numbering {
        Numbering { functions: self.functions.len(), data: self.data.len() }
    }

    pub fn symbol(&self, item: Item) -> &UserExternalName {
        match item {
            Item::Function(function) => &self.functions[function].symbol,
            Item::Data(data) => &self.data[data].symbol,
        }
    }

    pub fn bucket(&self, item: Item) -> u128 {
        match item {
            Item::Function(function) => self.functions[function].bucket,
            Item::Data(data) => self.data[data].bucket,
        }
    }

    pub fn check(&self, symbol: &UserExternalName, alignment: u64) -> Result<(), AddError> {
        if self.by_symbol.contains_key(symbol) {
            return Err(AddError::DuplicateSymbol(symbol.clone()));
        }
        if !alignment.is_power_of_two() {
            return Err(AddError::Alignment(alignment));
        }
        if self.by_symbol.len() >= u32::MAX as usize - 1 {
            return Err(AddError::TooManyFunctions);
        }
        Ok(())
    }
}

/// What references to symbols are where functions are compared.
pub(crate) trait ResolveSymbol {
    /// How references that lead to a symbol are compared. `None` for a symbol that is not of the unit.
    fn resolve(&self, symbol: &UserExternalName) -> Option<Resolved>;

    /// Where the references that a function holds lead when a plan is applied to it.
    fn redirect(&self, symbol: &UserExternalName) -> Redirected {
        let _ = symbol;
        Redirected::default()
    }
}

/// Where references to a symbol lead; `None` if to the symbol itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redirected {
    pub call: Option<CallTarget>,
    pub address: Option<UserExternalName>,
}

/// How references to a symbol of the unit are compared: by the class of a node, or by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolved {
    pub call: Option<Node>,
    pub address: Option<Node>,
    /// For addresses behind that of the symbol: equal functions need not have equal code, so an address inside one
    /// equals no address inside another.
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
pub(crate) type Beyond = HashMap<UserExternalName, Resolved, FxBuildHasher>;

/// How references to a function of the unit are compared.
pub(crate) fn resolved(node: Node, attributes: &Attributes) -> Resolved {
    // Another definition may take a preemptible symbol, and a function that must not be merged must stay
    // distinguishable: such a symbol equals only itself.
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
    fn a_summary_takes_64_bytes() {
        assert_eq!(size_of::<Summary>(), 64);
    }
}
