//! The functions and data objects of a unit by symbol: five bytes a slot, since a symbol is kept
//! only once, in the table that the index leads to.

use super::{DataIndex, FunctionIndex, Item};
use core::hash::BuildHasher;
use cranelift_codegen::ir::UserExternalName;
use cranelift_entity::EntityRef;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::FxBuildHasher;

/// Functions, and data objects, that a unit can have. Those that a plan adds come in addition.
pub(crate) const MAX_ITEMS: usize = 1 << 30;

/// From symbols to items. The caller knows the symbol of an item, always the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols(HashTable<Packed>);

/// An [`Item`]: its index, and in the lowest bit whether it is a data object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packed(u32);

impl Packed {
    fn item(self) -> Item {
        let index = (self.0 >> 1) as usize;
        match self.0 & 1 {
            0 => Item::Function(FunctionIndex::new(index)),
            _ => Item::Data(DataIndex::new(index)),
        }
    }
}

impl From<Item> for Packed {
    fn from(item: Item) -> Packed {
        match item {
            Item::Function(function) => Packed(function.as_u32() << 1),
            Item::Data(data) => Packed(data.as_u32() << 1 | 1),
        }
    }
}

fn hash(symbol: &UserExternalName) -> u64 {
    FxBuildHasher.hash_one(symbol)
}

impl Symbols {
    pub fn get<'a>(
        &self,
        symbol: &UserExternalName,
        symbol_of: impl Fn(Item) -> &'a UserExternalName,
    ) -> Option<Item> {
        let found = self.0.find(hash(symbol), |packed| symbol_of(packed.item()) == symbol);
        found.map(|packed| packed.item())
    }

    /// Makes room for this many more items.
    pub fn reserve<'a>(&mut self, count: usize, symbol_of: impl Fn(Item) -> &'a UserExternalName) {
        self.0.reserve(count, |packed| hash(symbol_of(packed.item())));
    }

    /// Enters an item. Another one of its symbol is replaced.
    pub fn insert<'a>(&mut self, item: Item, symbol_of: impl Fn(Item) -> &'a UserExternalName) {
        let symbol = symbol_of(item);
        let entry = self.0.entry(
            hash(symbol),
            |packed| symbol_of(packed.item()) == symbol,
            |packed| hash(symbol_of(packed.item())),
        );
        match entry {
            Entry::Occupied(mut slot) => *slot.get_mut() = item.into(),
            Entry::Vacant(slot) => {
                slot.insert(item.into());
            }
        }
    }

    /// Removes all items but those that `keep`.
    pub fn retain(&mut self, keep: impl Fn(Item) -> bool) {
        self.0.retain(|packed| keep(packed.item()));
    }
}
