//! The corpus: the record of functions and data objects whose IR is not kept, so that equal ones
//! are known again.
//!
//! Of each, it has a number for the BLAKE3 digest of its encoding, and its references by symbol.
//! Digests are trusted without comparing encodings, as in a content-addressed store: a wrong merge
//! would need two encodings with the same 256 bits. The target of a reference is looked up when it
//! is compared, since its symbol may be defined later: a class of equal items, or the symbol itself
//! ([`Corpus::target`]).
//!
//! It is asked in two ways. [`MergeCache`](crate::incremental::MergeCache) has the classes of
//! earlier units, and looks up those of a later unit, components of references callees first
//! ([`Corpus::find`]). The classes of a cycle (mutual recursion) are equal to a known cycle if
//! walking both in step never meets two that differ, which is the greatest fixpoint once more.
//! [`StreamingMerger`](crate::streaming::StreamingMerger) has one function after the other, and
//! asks for each whether an earlier one equals it ([`Corpus::equal_to`]).
//!
//! It does *not* refine anything, so its result is right and can be less than the greatest
//! fixpoint. An item that was indexed when a symbol was not defined yet may not be found any more
//! if that symbol turns out to equal another one.

mod symbols;

pub(crate) use symbols::{ByNode, Kind, NotedSymbol, Reference, SymbolNumber, Symbols};

use crate::canon::Digest;
use crate::interner::Interner;
use crate::unit::Resolved;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use cranelift_entity::packed_option::ReservedValue;
use cranelift_entity::{PrimaryMap, entity_impl};
use hashbrown::{HashMap, HashTable};
use rustc_hash::FxBuildHasher;

/// A function or data object of the corpus.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KnownIndex(u32);
entity_impl!(KnownIndex, "known");

/// The record of an item besides its references.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Its name: a symbol that it has; reserved if it has none.
    pub symbol: SymbolNumber,
    /// The number of its encoding.
    pub encoding: u32,
    /// The first item that it is known to equal, which may be itself.
    pub equal: KnownIndex,
    /// Where its references begin; those of the next item begin where they end.
    references: u32,
}

/// The target of a reference, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The items that equal this one.
    Class(KnownIndex),
    /// A symbol that is compared by itself, or that is not defined yet.
    Symbol(SymbolNumber),
}

/// The target of a reference of an item that is looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SoughtTarget {
    /// An item that is looked up with it, by its place among these: the item itself, or another one
    /// of its cycle.
    Member(u32),
    Known(Target),
}

/// An item that is looked up.
#[derive(Debug)]
pub(crate) struct Sought {
    encoding: u32,
    targets: Vec<SoughtTarget>,
}

/// Known functions and data objects.
#[derive(Debug, Default)]
pub(crate) struct Corpus {
    pub symbols: Symbols,
    digests: Interner<Digest>,
    pub items: PrimaryMap<KnownIndex, Known>,
    /// The references of all items, one item after the other.
    references: Vec<Reference>,
    /// The first item of each encoding.
    first: Vec<KnownIndex>,
    /// The others, by encoding and references.
    by_references: HashTable<KnownIndex>,
    /// The others that are part of a cycle, by encoding.
    cyclic: HashMap<u32, Vec<KnownIndex>, FxBuildHasher>,
}

impl Corpus {
    /// Adds an item that has a digest and references, and equals none so far.
    ///
    /// # Panics
    ///
    /// Where there would be 2^32 references in all.
    pub fn push(
        &mut self,
        digest: &Digest,
        references: impl IntoIterator<Item = Reference>,
    ) -> KnownIndex {
        let encoding = self.digests.number(digest, |&digest| digest);
        let start = u32::try_from(self.references.len()).expect("fewer than 2^32 references");
        self.references.extend(references);
        let equal = self.items.next_key();
        let symbol = SymbolNumber::reserved_value();
        self.items.push(Known { symbol, encoding, equal, references: start })
    }

    /// Gives a symbol to an item, to which references are compared as those to `resolved`. Of
    /// several, the item has the name of the first that is compared by class.
    pub fn define(&mut self, symbol: SymbolNumber, known: KnownIndex, resolved: &Resolved) {
        self.symbols.define(symbol, known, resolved);
        let by_class =
            |name| Kind::ALL.map(|kind| self.symbols.by_class(Reference::new(name, kind)));
        let name = &mut self.items[known].symbol;
        if name.is_reserved_value() || by_class(*name).iter().all(Option::is_none) {
            *name = symbol;
        }
    }

    /// Lets items that are added later find this one. To be called in the order in which items were
    /// added, of those that equal none before them, and once the symbols to which they refer are
    /// defined as far as they can be.
    pub fn index(&mut self, known: KnownIndex, is_cyclic: bool) {
        let encoding = self.items[known].encoding;
        if self.first.len() <= encoding as usize {
            debug_assert_eq!(self.first.len(), encoding as usize, "the first of its encoding");
            self.first.push(known);
        } else if is_cyclic {
            self.cyclic.entry(encoding).or_default().push(known);
        } else {
            let mut by_references = core::mem::take(&mut self.by_references);
            by_references.insert_unique(self.own_hash(known), known, |&at| self.own_hash(at));
            self.by_references = by_references;
        }
    }

    /// The number of different encodings of indexed items.
    pub fn encodings(&self) -> usize {
        self.first.len()
    }

    /// The first item that has an encoding, if it was indexed.
    pub fn first(&self, encoding: u32) -> Option<KnownIndex> {
        self.first.get(encoding as usize).copied()
    }

    /// The references of an item.
    pub fn references(&self, known: KnownIndex) -> &[Reference] {
        let end = self.items.get(KnownIndex(known.0 + 1)).map(|next| next.references as usize);
        let end = end.unwrap_or(self.references.len());
        &self.references[self.items[known].references as usize..end]
    }

    /// The target of a reference.
    pub fn target(&self, reference: Reference) -> Target {
        match self.symbols.by_class(reference) {
            Some(known) => Target::Class(self.items[known].equal),
            None => Target::Symbol(reference.symbol()),
        }
    }

    /// The targets of the references of an item of the corpus, if it is looked up alone.
    fn own_targets(&self, known: KnownIndex) -> impl ExactSizeIterator<Item = SoughtTarget> {
        self.references(known).iter().map(move |&reference| match self.target(reference) {
            Target::Class(class) if class == known => SoughtTarget::Member(0),
            target => SoughtTarget::Known(target),
        })
    }

    /// A class counts by its name. So the hash of an item stays the same when a symbol to which it
    /// refers is defined as the first of its class.
    fn hash(&self, encoding: u32, targets: impl Iterator<Item = SoughtTarget>) -> u64 {
        let targets = targets.fold(0u64, |hash, target| {
            let symbol = match target {
                SoughtTarget::Member(_) => SymbolNumber::reserved_value(),
                SoughtTarget::Known(Target::Class(class)) => self.items[class].symbol,
                SoughtTarget::Known(Target::Symbol(symbol)) => symbol,
            };
            FxBuildHasher.hash_one((hash, symbol))
        });
        FxBuildHasher.hash_one((encoding, targets))
    }

    fn own_hash(&self, known: KnownIndex) -> u64 {
        self.hash(self.items[known].encoding, self.own_targets(known))
    }

    /// The items that may equal one with this encoding and these targets: the first of its
    /// encoding, those that have its hash, and, if it may be part of a cycle, those that are.
    fn candidates(
        &self,
        encoding: u32,
        hash: impl FnOnce() -> Option<u64>,
    ) -> impl Iterator<Item = KnownIndex> {
        let with_hash = core::iter::once_with(hash).flatten();
        let with_hash = with_hash.flat_map(|hash| self.by_references.iter_hash(hash));
        let cyclic = self.cyclic.get(&encoding).into_iter().flatten();
        self.first(encoding).into_iter().chain(with_hash.chain(cyclic).copied())
    }

    /// Whether an item has this encoding, and refers, place by place, to what these targets are.
    /// `meets` says whether an item that is looked up can equal a known one.
    fn matches(
        &self,
        known: KnownIndex,
        encoding: u32,
        targets: impl ExactSizeIterator<Item = SoughtTarget>,
        mut meets: impl FnMut(u32, KnownIndex) -> bool,
    ) -> bool {
        let references = self.references(known);
        self.items[known].encoding == encoding
            && references.len() == targets.len()
            && references.iter().zip(targets).all(|(&own, sought)| {
                match (self.target(own), sought) {
                    (Target::Class(class), SoughtTarget::Member(member)) => meets(member, class),
                    (Target::Symbol(_), SoughtTarget::Member(_)) => false,
                    (own, SoughtTarget::Known(target)) => own == target,
                }
            })
    }

    /// An indexed item that equals one that is not. Constant time for each reference.
    pub fn equal_to(&self, known: KnownIndex) -> Option<KnownIndex> {
        let encoding = self.items[known].encoding;
        self.candidates(encoding, || Some(self.own_hash(known))).find(|&candidate| {
            // A reference of both to one symbol leads to the same item, whatever that equals.
            let meets = |_, class| class == candidate || class == known;
            self.matches(candidate, encoding, self.own_targets(known), meets)
        })
    }

    /// An item to be looked up. `None` if none has its digest.
    pub fn sought(&self, digest: &Digest, targets: Vec<SoughtTarget>) -> Option<Sought> {
        Some(Sought { encoding: self.digests.get(digest)?, targets })
    }

    /// The items that equal those that are looked up: one that refers to no other of them, or those
    /// of one cycle. Each must `fit` what it equals.
    ///
    /// Linear in the number of references, and in that of known items of cycles that have the
    /// encoding of the first.
    pub fn find(
        &self,
        members: &[Sought],
        fits: impl Fn(u32, KnownIndex) -> bool,
    ) -> Option<Vec<KnownIndex>> {
        let Sought { encoding, targets } = members.first()?;
        let alone = members.len() == 1;
        let hash = || alone.then(|| self.hash(*encoding, targets.iter().copied()));
        self.candidates(*encoding, hash)
            .find_map(|candidate| self.in_step(members, candidate, &fits))
    }

    /// Walks from the first of `members` and `candidate` in step. Items that meet are equal, unless
    /// two differ somewhere.
    fn in_step(
        &self,
        members: &[Sought],
        candidate: KnownIndex,
        fits: &impl Fn(u32, KnownIndex) -> bool,
    ) -> Option<Vec<KnownIndex>> {
        let mut equal: Vec<Option<KnownIndex>> = alloc::vec![None; members.len()];
        equal[0] = Some(candidate);
        let mut waiting = alloc::vec![(0, candidate)];
        while let Some((member, known)) = waiting.pop() {
            let Sought { encoding, targets } = &members[member as usize];
            let meets = |other: u32, known| match equal[other as usize] {
                None => {
                    equal[other as usize] = Some(known);
                    waiting.push((other, known));
                    true
                }
                Some(before) => before == known,
            };
            let targets = targets.iter().copied();
            if !fits(member, known) || !self.matches(known, *encoding, targets, meets) {
                return None;
            }
        }
        equal.into_iter().collect()
    }

    /// Drops what only looking up needs.
    pub fn drop_index(&mut self) {
        self.digests = Interner::default();
        self.by_references = HashTable::new();
        self.cyclic = HashMap::default();
    }

    /// The memory that is held, in bytes.
    pub fn size(&self) -> usize {
        let Corpus { symbols, digests, items, references, first, by_references, cyclic } = self;
        let lists: usize = cyclic.values().map(|list| size_of_val(&**list)).sum();
        symbols.size()
            + digests.size()
            + items.len() * size_of::<Known>()
            + size_of_val(&**references)
            + size_of_val(&**first)
            + by_references.allocation_size()
            + cyclic.allocation_size()
            + lists
    }
}
