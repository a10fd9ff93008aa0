//! The symbols that functions have or refer to, each kept once, and the functions that have them.

use crate::unit::{FunctionIndex, MOST_ITEMS, Node, Observe, Observed, ResolveSymbol, Resolved};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::hash::BuildHasher;
use cranelift_codegen::ir::UserExternalName;
use cranelift_codegen::packed_option::PackedOption;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::FxBuildHasher;

/// A reference by a symbol, of one of the kinds that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reference(pub u32);

/// What a reference is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Call,
    Address,
    Inside,
}

impl Reference {
    pub const KINDS: [Kind; 3] = [Kind::Call, Kind::Address, Kind::Inside];

    fn new(symbol: u32, kind: Kind) -> Reference {
        Reference(symbol * Self::KINDS.len() as u32 + kind as u32)
    }

    pub fn symbol(self) -> u32 {
        self.0 / Self::KINDS.len() as u32
    }

    pub fn kind(self) -> Kind {
        Self::KINDS[self.0 as usize % Self::KINDS.len()]
    }
}

/// Symbols by number: 13 bytes of each, and five a slot.
#[derive(Default)]
pub(super) struct Symbols {
    numbers: HashTable<u32>,
    symbols: Vec<Symbol>,
    /// What is observed of each besides its behaviour.
    observed: Vec<u8>,
}

struct Symbol {
    name: UserExternalName,
    /// The function that has it, if it was added.
    function: PackedOption<FunctionIndex>,
}

const ADDRESS: u8 = 1;
const INSIDE: u8 = 2;
const PATCHABLE: u8 = 4;

fn hash(name: &UserExternalName) -> u64 {
    FxBuildHasher.hash_one(name)
}

impl Symbols {
    /// The number of a symbol.
    pub fn number(&mut self, name: &UserExternalName) -> u32 {
        let Symbols { numbers, symbols, observed } = self;
        let entry = numbers.entry(
            hash(name),
            |&number| symbols[number as usize].name == *name,
            |&number| hash(&symbols[number as usize].name),
        );
        match entry {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(slot) => {
                let symbol = Symbol { name: name.clone(), function: None.into() };
                let number = symbols.len();
                assert!(number < MOST_ITEMS, "fewer than 2^30 symbols");
                let number = number as u32;
                symbols.push(symbol);
                observed.push(0);
                slot.insert(number);
                number
            }
        }
    }

    /// The number of symbols.
    pub fn len(&self) -> usize {
        self.symbols.len()
    }

    /// The symbol of a number.
    pub fn name(&self, number: u32) -> &UserExternalName {
        &self.symbols[number as usize].name
    }

    /// The function that has a symbol, if it was added.
    pub fn function(&self, number: u32) -> Option<FunctionIndex> {
        self.symbols[number as usize].function.expand()
    }

    /// Gives a symbol to a function.
    pub fn define(&mut self, number: u32, function: FunctionIndex) {
        self.symbols[number as usize].function = function.into();
    }

    /// Whether something points into it, or behind it: only its own code is correct there.
    pub fn points_inside(&self, number: u32) -> bool {
        self.observed[number as usize] & INSIDE != 0
    }

    /// What was observed, by symbol.
    pub fn observed(&self) -> Observed {
        let mut all = Observed::default();
        for (Symbol { name, function: _ }, &observed) in
            self.symbols.iter().zip(self.observed.iter())
        {
            if observed & ADDRESS != 0 {
                all.observe_address(name, observed & INSIDE != 0);
            }
            if observed & PATCHABLE != 0 {
                all.observe_patchable(name);
            }
        }
        all
    }
}

impl Observe for Symbols {
    fn observe_address(&mut self, symbol: &UserExternalName, inside: bool) {
        let number = self.number(symbol);
        self.observed[number as usize] |= if inside { ADDRESS | INSIDE } else { ADDRESS };
    }

    fn observe_patchable(&mut self, symbol: &UserExternalName) {
        let number = self.number(symbol);
        self.observed[number as usize] |= PATCHABLE;
    }
}

/// Every symbol is compared by a node, since what it is may not be known yet.
pub(super) struct ByNode<'a>(pub RefCell<&'a mut Symbols>);

impl ResolveSymbol for ByNode<'_> {
    fn resolve(&self, symbol: &UserExternalName) -> Option<Resolved> {
        let number = self.0.borrow_mut().number(symbol);
        let node = |kind| Some(Node::from_u32(Reference::new(number, kind).0));
        Some(Resolved {
            call: node(Kind::Call),
            address: node(Kind::Address),
            inside: node(Kind::Inside),
        })
    }
}
