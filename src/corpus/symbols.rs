//! The symbols that known items have or refer to, each kept once: the items that have them, by what
//! references to them are compared, and the observed uses.

use super::KnownIndex;
use crate::interner::Interner;
use crate::unit::{MAX_ITEMS, Node, Observe, Observed, ResolveSymbol, Resolved};
use alloc::vec::Vec;
use core::cell::RefCell;
use cranelift_codegen::ir::UserExternalName;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap, entity_impl};

/// A symbol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SymbolNumber(u32);
entity_impl!(SymbolNumber, "symbol");

/// A reference by a symbol, of one of the kinds that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reference(pub u32);

/// The use of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Call,
    Address,
    Inside,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Call, Kind::Address, Kind::Inside];

    /// By the class of which node a reference of this kind is compared.
    pub fn of(self, resolved: &Resolved) -> Option<Node> {
        match self {
            Kind::Call => resolved.call,
            Kind::Address => resolved.address,
            Kind::Inside => resolved.inside,
        }
    }

    /// How references are compared, if those of each kind are by this node.
    pub fn resolved(mut node: impl FnMut(Kind) -> Option<Node>) -> Resolved {
        let [call, address, inside] = Kind::ALL.map(&mut node);
        Resolved { call, address, inside }
    }
}

impl Reference {
    pub fn new(symbol: SymbolNumber, kind: Kind) -> Reference {
        Reference(symbol.as_u32() * Kind::ALL.len() as u32 + kind as u32)
    }

    /// How references to a symbol are compared where nothing is known of it: each kind by a node of
    /// its own.
    pub fn resolved(symbol: SymbolNumber) -> Resolved {
        Kind::resolved(|kind| Some(Node::from_u32(Reference::new(symbol, kind).0)))
    }

    /// The reference that has a node.
    pub fn of(node: Node) -> Reference {
        Reference(node.as_u32())
    }

    pub fn symbol(self) -> SymbolNumber {
        SymbolNumber(self.0 / Kind::ALL.len() as u32)
    }

    pub fn kind(self) -> Kind {
        Kind::ALL[self.0 as usize % Kind::ALL.len()]
    }
}

/// Symbols by number: 13 bytes of each, and five a slot.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    names: Interner<UserExternalName>,
    /// The item that has each symbol, if it was added.
    items: PrimaryMap<SymbolNumber, PackedOption<KnownIndex>>,
    /// How each symbol is compared, and its observed uses besides its behaviour.
    notes: PrimaryMap<SymbolNumber, u8>,
    /// How often code that is no item, and passes extra arguments, calls each symbol.
    calls: SecondaryMap<SymbolNumber, u32>,
    defined: usize,
}

/// A symbol that is not among others yet, and its observed uses.
#[derive(Clone, Debug)]
pub(crate) struct NotedSymbol {
    name: UserExternalName,
    notes: u8,
}

/// By the class of its item: a bit for each kind.
const BY_CLASS: u8 = 1;
const ADDRESS: u8 = 8;
const INSIDE: u8 = 16;
const PATCHABLE: u8 = 32;
const CALLED: u8 = 64;

impl Symbols {
    /// The number of a symbol.
    ///
    /// # Panics
    ///
    /// Where there would be 2^30 symbols.
    pub fn number(&mut self, name: &UserExternalName) -> SymbolNumber {
        let number = SymbolNumber(self.names.number(name, Clone::clone));
        if number.index() == self.items.len() {
            assert!(number.index() < MAX_ITEMS, "fewer than 2^30 symbols");
            self.items.push(None.into());
            self.notes.push(0);
        }
        number
    }

    /// The number of a symbol, if it has one.
    pub fn get(&self, name: &UserExternalName) -> Option<SymbolNumber> {
        self.names.get(name).map(SymbolNumber)
    }

    /// The number of symbols.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// The number of symbols that items have.
    pub fn defined(&self) -> usize {
        self.defined
    }

    /// The symbol of a number.
    pub fn name(&self, number: SymbolNumber) -> &UserExternalName {
        self.names.value(number.as_u32())
    }

    /// The item that has a symbol, if it was added.
    pub fn item(&self, number: SymbolNumber) -> Option<KnownIndex> {
        self.items[number].expand()
    }

    /// Gives a symbol to an item, to which references are compared as those to `resolved`.
    pub fn define(&mut self, number: SymbolNumber, item: KnownIndex, resolved: &Resolved) {
        self.defined += usize::from(self.items[number].is_none());
        self.items[number] = item.into();
        for kind in Kind::ALL {
            let bit = BY_CLASS << kind as u8;
            match kind.of(resolved) {
                Some(_) => self.notes[number] |= bit,
                None => self.notes[number] &= !bit,
            }
        }
    }

    /// The item by whose class a reference is compared. The one place that says so: a symbol that
    /// is not defined, or whose item does not let itself be compared, is compared by itself.
    pub fn by_class(&self, reference: Reference) -> Option<KnownIndex> {
        let bit = BY_CLASS << reference.kind() as u8;
        let symbol = reference.symbol();
        self.item(symbol).filter(|_| self.notes[symbol] & bit != 0)
    }

    /// The class of a symbol that may have no number.
    pub fn by_class_of(&self, name: &UserExternalName, kind: Kind) -> Option<KnownIndex> {
        self.by_class(Reference::new(self.get(name)?, kind))
    }

    /// Whether something points into it, or behind it: only its own code is correct there.
    pub fn points_inside(&self, number: SymbolNumber) -> bool {
        self.notes[number] & INSIDE != 0
    }

    /// Records that code that is no item calls a symbol, without extra arguments.
    pub fn observe_call(&mut self, symbol: &UserExternalName) {
        let number = self.number(symbol);
        self.notes[number] |= CALLED;
    }

    /// The items that such code calls.
    pub fn called(&self) -> impl Iterator<Item = KnownIndex> + '_ {
        let called = self.notes.iter().filter(|&(_, &notes)| notes & CALLED != 0);
        called.filter_map(|(number, _)| self.item(number))
    }

    /// Records that code that is no item calls a symbol, and passes extra arguments.
    pub fn count_call(&mut self, symbol: &UserExternalName) {
        let number = self.number(symbol);
        self.calls[number] += 1;
    }

    /// The items that such code calls, and how often.
    pub fn calls(&self) -> impl Iterator<Item = (KnownIndex, u32)> + '_ {
        let called = self.calls.iter().filter(|&(_, &calls)| calls > 0);
        called.filter_map(|(number, &calls)| Some((self.item(number)?, calls)))
    }

    /// Takes all symbols out, in the order of their numbers, none of which has an item. Their
    /// memory is kept.
    pub fn drain(&mut self) -> impl Iterator<Item = NotedSymbol> {
        debug_assert_eq!(self.defined, 0, "symbols of one function");
        self.items.clear();
        let notes = self.notes.values().copied().collect::<Vec<u8>>();
        self.notes.clear();
        self.names.drain().zip(notes).map(|(name, notes)| NotedSymbol { name, notes })
    }

    /// Adds a symbol with the uses that were observed elsewhere, and returns its number.
    pub fn note(&mut self, symbol: &NotedSymbol) -> SymbolNumber {
        let number = self.number(&symbol.name);
        self.notes[number] |= symbol.notes;
        number
    }

    /// The observed uses, by symbol.
    pub fn observed(&self) -> Observed {
        let mut all = Observed::default();
        for (number, &notes) in self.notes.iter() {
            let name = self.name(number);
            if notes & ADDRESS != 0 {
                all.observe_address(name, notes & INSIDE != 0);
            }
            if notes & PATCHABLE != 0 {
                all.observe_patchable(name);
            }
        }
        all
    }

    /// The memory that is held, in bytes.
    pub fn size(&self) -> usize {
        let Symbols { names, items, notes, calls, defined: _ } = self;
        let calls = calls.values().len() * size_of::<u32>();
        names.size() + items.len() * size_of::<PackedOption<KnownIndex>>() + notes.len() + calls
    }
}

impl Observe for Symbols {
    fn observe_address(&mut self, symbol: &UserExternalName, inside: bool) {
        let number = self.number(symbol);
        self.notes[number] |= if inside { ADDRESS | INSIDE } else { ADDRESS };
    }

    fn observe_patchable(&mut self, symbol: &UserExternalName) {
        let number = self.number(symbol);
        self.notes[number] |= PATCHABLE;
    }
}

/// Every symbol is compared by a node, since what it is may not be known yet.
pub(crate) struct ByNode<'a>(pub RefCell<&'a mut Symbols>);

impl ResolveSymbol for ByNode<'_> {
    fn resolve(&self, symbol: &UserExternalName) -> Option<Resolved> {
        Some(Reference::resolved(self.0.borrow_mut().number(symbol)))
    }
}
