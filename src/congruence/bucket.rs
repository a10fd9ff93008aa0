//! Buckets: from summaries to the classes of functions with equal encodings.
//!
//! The walk processes one bucket at a time. Each of its functions is walked once and compared with those before it
//! that have the same hash; only an encoding that equals none of them is kept until the end of the bucket. So a bucket
//! costs one walk of its functions, and as much memory as its different encodings take. Of a function that has
//! equals, its references and facts are kept.
//!
//! A bucket whose encodings would not fit in memory is walked twice: first for the hashes, then hash by hash.

use super::{Partition, References};
use crate::canon::{
    self, Context, Digest, Encoding, Fact, PartHashes, Scratch, StructuralHash, data, digest,
    structural_hash,
};
use crate::canonicalize::canonicalized;
use crate::options::Options;
use crate::stats::Stats;
use crate::unit::{Bodies, FunctionIndex, Item, NoUnit, Node, Numbering, ResolveSymbol, Unit};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::ops::{Index, Range};
use cranelift_codegen::ir::Function;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, EntitySet, PrimaryMap, entity_impl};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::FxBuildHasher;

/// Encodings of one bucket that are kept at the same time, in bytes.
const BUCKET_BYTES: usize = 64 << 20;

/// Encodings of one bucket among which one is looked for without a table.
const FEW: usize = 8;

/// Which items are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walk {
    /// Those that share a bucket with another one.
    Shared,
    /// All, and their encodings get digests.
    All,
}

/// The optimistic partition, and what refinement and plan need with it.
pub(crate) struct Bucketed {
    /// The item of each node. In an incremental run, external nodes come behind those of the unit.
    pub numbering: Numbering,
    /// Functions and data objects with equal encodings, references by class ignored.
    pub partition: Partition,
    /// The nodes that share a class, in the order of the rows of `references`.
    pub nodes: Vec<Node>,
    pub references: References,
    /// The digests of the encodings of `nodes`, in an incremental run.
    pub digests: Vec<Digest>,
    /// Index into `facts`; `None` for nodes outside `nodes`.
    pub facts_of: Vec<PackedOption<FactsIndex>>,
    pub facts: Facts,
    walked: Vec<PackedWalked>,
    /// Nodes whose encodings equal those of other nodes, whatever they refer to.
    pub equal_encodings: EntitySet<Node>,
}

/// The result of this phase for a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Walked {
    /// Nothing shares its bucket.
    #[default]
    No,
    /// It cannot be encoded.
    Malformed,
    /// It was walked, and has this many instructions.
    Yes { instructions: u32, hashes: PartHashes },
}

/// The same in twelve bytes: the largest numbers of instructions mean the other two.
#[derive(Clone, Copy)]
struct PackedWalked {
    instructions: u32,
    hashes: PartHashes,
}

impl From<Walked> for PackedWalked {
    fn from(walked: Walked) -> PackedWalked {
        let (instructions, hashes) = match walked {
            Walked::No => (u32::MAX, PartHashes::default()),
            Walked::Malformed => (u32::MAX - 1, PartHashes::default()),
            Walked::Yes { instructions, hashes } => (instructions.min(u32::MAX - 2), hashes),
        };
        PackedWalked { instructions, hashes }
    }
}

impl From<PackedWalked> for Walked {
    fn from(packed: PackedWalked) -> Walked {
        let PackedWalked { instructions, hashes } = packed;
        match instructions {
            u32::MAX => Walked::No,
            number if number == u32::MAX - 1 => Walked::Malformed,
            instructions => Walked::Yes { instructions, hashes },
        }
    }
}

/// A list of facts in [`Facts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FactsIndex(u32);
entity_impl!(FactsIndex);

/// Lists of facts, each once: many functions have the same.
#[derive(Default)]
pub(crate) struct Facts {
    lists: PrimaryMap<FactsIndex, Box<[Fact]>>,
    by_content: HashTable<FactsIndex>,
}

impl Facts {
    fn intern(&mut self, facts: &[Fact]) -> FactsIndex {
        let Facts { lists, by_content } = self;
        let hash = |facts: &[Fact]| FxBuildHasher.hash_one(facts);
        let entry = by_content.entry(
            hash(facts),
            |&index| *lists[index] == *facts,
            |&index| hash(&lists[index]),
        );
        match entry {
            Entry::Occupied(slot) => *slot.get(),
            Entry::Vacant(slot) => {
                let index = FactsIndex::new(lists.len());
                slot.insert(index);
                lists.push(facts.into())
            }
        }
    }
}

impl Index<FactsIndex> for Facts {
    type Output = [Fact];

    fn index(&self, index: FactsIndex) -> &[Fact] {
        &self.lists[index]
    }
}

impl Bucketed {
    /// The result of this phase for an item.
    pub fn walked(&self, node: Node) -> Walked {
        self.walked[node.index()].into()
    }

    /// The facts of a node, if it is one of `nodes`.
    pub fn facts_of(&self, node: Node) -> Option<&[Fact]> {
        Some(&self.facts[self.facts_index(node)?])
    }

    /// Their index: equal lists have the same.
    pub fn facts_index(&self, node: Node) -> Option<FactsIndex> {
        self.facts_of[node.index()].expand()
    }
}

/// What is left of the encodings of the functions of a unit.
pub(crate) struct Encodings {
    numbering: Numbering,
    walked: Vec<PackedWalked>,
    equal_encodings: EntitySet<Node>,
}

impl Encodings {
    /// The hashes of the encoding of a function, if it was walked.
    pub fn hashes(&self, function: FunctionIndex) -> Option<PartHashes> {
        match Walked::from(self.walked[self.node(function)?.index()]) {
            Walked::Yes { instructions: _, hashes } => Some(hashes),
            Walked::No | Walked::Malformed => None,
        }
    }

    /// Whether some other function has the same encoding, whatever the two refer to.
    pub fn has_equal(&self, function: FunctionIndex) -> bool {
        self.node(function).is_some_and(|node| self.equal_encodings.contains(node))
    }

    fn node(&self, function: FunctionIndex) -> Option<Node> {
        let of_unit = function.index() < self.numbering.functions;
        of_unit.then(|| self.numbering.node(Item::Function(function)))
    }
}

impl From<Bucketed> for Encodings {
    fn from(bucketed: Bucketed) -> Encodings {
        let Bucketed { numbering, walked, equal_encodings, .. } = bucketed;
        Encodings { numbering, walked, equal_encodings }
    }
}

/// Reusable memory of this phase.
#[derive(Default)]
pub(crate) struct Bucketer {
    scratch: Scratch,
    encoding: Encoding,
    kept: Kept,
}

/// The items of the bucket in hand, and their different encodings, one after the other.
#[derive(Default)]
struct Kept {
    streams: Vec<u8>,
    callees: Vec<Node>,
    facts: Vec<Fact>,
    rows: Vec<Row>,
    firsts: Vec<First>,
    /// `firsts` by hash, if they are more than a few.
    by_hash: Option<HashTable<u32>>,
}

/// A member of the bucket in hand.
struct Row {
    node: Node,
    /// Its encoding, in [`Kept::firsts`].
    first: u32,
    /// Where its references begin in [`Kept::callees`]. They end where those of the next row begin.
    callees: usize,
    /// Its facts, if it is not the first of its encoding.
    facts: PackedOption<FactsIndex>,
}

/// An encoding that equals none before it: where it is in [`Kept`].
struct First {
    hash: StructuralHash,
    /// Where shape, constants and references begin, and where they end.
    streams: [usize; 4],
    facts: Range<usize>,
}

impl Kept {
    fn clear(&mut self) {
        let Kept { streams, callees, facts, rows, firsts, by_hash } = self;
        streams.clear();
        callees.clear();
        facts.clear();
        rows.clear();
        firsts.clear();
        *by_hash = None;
    }

    /// Adds an item. Its encoding is kept if it equals none before it.
    fn push(&mut self, node: Node, hash: StructuralHash, encoding: &Encoding, table: &mut Facts) {
        let callees = self.callees.len();
        self.callees.extend_from_slice(&encoding.callees);
        let (first, facts) = match self.find(hash, encoding) {
            Some(first) => (first, Some(table.intern(&encoding.facts))),
            None => (self.push_first(hash, encoding), None),
        };
        self.rows.push(Row { node, first, callees, facts: facts.into() });
    }

    fn push_first(&mut self, hash: StructuralHash, encoding: &Encoding) -> u32 {
        let mut streams = [self.streams.len(); 4];
        for (bound, stream) in streams[1..].iter_mut().zip(encoding.key()) {
            self.streams.extend_from_slice(stream);
            *bound = self.streams.len();
        }
        let facts = self.facts.len()..self.facts.len() + encoding.facts.len();
        self.facts.extend_from_slice(&encoding.facts);
        let Kept { firsts, by_hash, .. } = self;
        let number = firsts.len() as u32;
        firsts.push(First { hash, streams, facts });
        let hash_of = |number: &u32| firsts[*number as usize].hash.0 as u64;
        if let Some(by_hash) = by_hash {
            by_hash.insert_unique(hash.0 as u64, number, hash_of);
        } else if firsts.len() > FEW {
            let table = by_hash.insert(HashTable::new());
            for number in 0..=number {
                table.insert_unique(hash_of(&number), number, hash_of);
            }
        }
        number
    }

    /// The number of an encoding among those that are kept.
    fn find(&self, hash: StructuralHash, encoding: &Encoding) -> Option<u32> {
        let equal = |number: &u32| {
            let first = &self.firsts[*number as usize];
            first.hash == hash && self.key(first) == encoding.key()
        };
        match &self.by_hash {
            Some(by_hash) => by_hash.find(hash.0 as u64, equal).copied(),
            None => (0..self.firsts.len() as u32).find(equal),
        }
    }

    /// The streams of an encoding.
    fn key(&self, first: &First) -> [&[u8]; 3] {
        let [shape, constants, references, end] = first.streams;
        [
            &self.streams[shape..constants],
            &self.streams[constants..references],
            &self.streams[references..end],
        ]
    }

    /// The references of a row.
    fn callees(&self, row: usize) -> &[Node] {
        let end = self.rows.get(row + 1).map_or(self.callees.len(), |next| next.callees);
        &self.callees[self.rows[row].callees..end]
    }
}

impl Bucketer {
    /// The bucket of a function by its hash alone, before the unit is known.
    pub fn hash_alone(&mut self, func: &Function, key: u64, options: &Options<'_>) -> u64 {
        let context =
            Context { policy: options.compare, target: options.target, key, symbols: &NoUnit };
        match canon::encode(func, &context, &mut self.scratch, &mut self.encoding) {
            // Which symbols are functions of the unit is not known yet, so no symbol counts.
            Ok(()) => {
                self.encoding.references.clear();
                structural_hash(&self.encoding).0 as u64
            }
            Err(canon::Malformed) => 0,
        }
    }
}

/// Walks every item that shares its bucket with another and groups items with equal encodings.
///
/// In an incremental run, `walk` is [`Walk::All`]: later units must find every function.
pub(crate) fn bucket(
    unit: &Unit,
    symbols: &dyn ResolveSymbol,
    walk: Walk,
    options: &Options<'_>,
    bucketer: &mut Bucketer,
    bodies: &mut dyn Bodies,
    stats: &mut Stats,
) -> Bucketed {
    let all = walk == Walk::All;
    let numbering = unit.numbering();
    let mut order: Vec<Node> = numbering.nodes().collect();
    let mut classes = Classes {
        unit,
        symbols,
        numbering,
        options,
        bucketer,
        stats,
        class_of: alloc::vec![u32::MAX; order.len()],
        count: 0,
        nodes: Vec::new(),
        references: References::new(),
        digests: all.then(Vec::new),
        facts_of: alloc::vec![PackedOption::default(); order.len()],
        facts: Facts::default(),
        walked: alloc::vec![Walked::No.into(); order.len()],
        equal_encodings: EntitySet::new(),
    };
    // By symbol within a bucket, so that nothing depends on the order of insertion.
    let bucket = |node: Node| unit.bucket(numbering.item(node));
    let key = |&node: &Node| {
        let symbol = unit.symbol(numbering.item(node));
        (bucket(node), symbol.namespace, symbol.index)
    };
    order.sort_unstable_by_key(key);
    if all {
        classes.bucket(&order, bodies);
    } else {
        for members in order.chunk_by(|&a, &b| bucket(a) == bucket(b)) {
            if members.len() > 1 {
                classes.bucket(members, bodies);
            }
        }
    }
    for class in &mut classes.class_of {
        if *class == u32::MAX {
            *class = classes.count;
            classes.count += 1;
        }
    }
    let Classes { class_of, count, nodes, references, digests, .. } = classes;
    let Classes { facts_of, facts, walked, equal_encodings, .. } = classes;
    Bucketed {
        numbering,
        partition: Partition::new(class_of, count as usize),
        nodes,
        references,
        digests: digests.unwrap_or_default(),
        facts_of,
        facts,
        walked,
        equal_encodings,
    }
}

struct Classes<'a> {
    unit: &'a Unit,
    symbols: &'a dyn ResolveSymbol,
    numbering: Numbering,
    options: &'a Options<'a>,
    bucketer: &'a mut Bucketer,
    stats: &'a mut Stats,
    class_of: Vec<u32>,
    count: u32,
    nodes: Vec<Node>,
    references: References,
    /// Wanted in an incremental run.
    digests: Option<Vec<Digest>>,
    facts_of: Vec<PackedOption<FactsIndex>>,
    facts: Facts,
    walked: Vec<PackedWalked>,
    equal_encodings: EntitySet<Node>,
}

impl Classes<'_> {
    /// Groups the members of one bucket by their encodings.
    fn bucket(&mut self, members: &[Node], bodies: &mut dyn Bodies) {
        let mut kept = core::mem::take(&mut self.bucketer.kept);
        let walked = self.compare(members, BUCKET_BYTES, &mut kept, bodies);
        if walked == members.len() {
            self.classes(&kept);
        } else {
            let hash = |row: &Row| (kept.firsts[row.first as usize].hash, row.node);
            let mut by_hash: Vec<(StructuralHash, Node)> = kept.rows.iter().map(hash).collect();
            for &node in &members[walked..] {
                if let Some(hash) = self.encode(node, bodies) {
                    by_hash.push((hash, node));
                }
            }
            // Stable, so that equal items stay in the order of the symbols.
            by_hash.sort_by_key(|&(hash, _)| hash);
            for same_hash in by_hash.chunk_by(|a, b| a.0 == b.0) {
                if same_hash.len() > 1 || self.digests.is_some() {
                    let members: Vec<_> = same_hash.iter().map(|&(_, node)| node).collect();
                    self.compare(&members, usize::MAX, &mut kept, bodies);
                    self.classes(&kept);
                }
            }
        }
        self.bucketer.kept = kept;
    }

    /// Walks nodes and compares their encodings, until those that are kept take more than `bytes`. Returns how
    /// many nodes were walked.
    fn compare(
        &mut self,
        members: &[Node],
        bytes: usize,
        kept: &mut Kept,
        bodies: &mut dyn Bodies,
    ) -> usize {
        kept.clear();
        for (walked, &node) in members.iter().enumerate() {
            if kept.streams.len() > bytes {
                return walked;
            }
            if let Some(hash) = self.encode(node, bodies) {
                kept.push(node, hash, &self.bucketer.encoding, &mut self.facts);
            }
        }
        members.len()
    }

    /// Makes the classes of a bucket that was compared.
    fn classes(&mut self, kept: &Kept) {
        let mut order: Vec<u32> = (0..kept.rows.len() as u32).collect();
        // Stable, so that equal items stay in the order of the symbols.
        order.sort_by_key(|&row| kept.rows[row as usize].first);
        let first = |row: u32| kept.rows[row as usize].first;
        for equal in order.chunk_by(|&a, &b| first(a) == first(b)) {
            if equal.len() > 1 || self.digests.is_some() {
                self.class(equal, kept);
            }
        }
    }

    /// Walks a function or a data object, and returns the hash of its encoding, if it has one.
    fn encode(&mut self, node: Node, bodies: &mut dyn Bodies) -> Option<StructuralHash> {
        match self.numbering.item(node) {
            Item::Function(function) => {
                let context = Context {
                    policy: self.options.compare,
                    target: self.options.target,
                    key: self.unit.functions[function].attributes.key,
                    symbols: self.symbols,
                };
                let body = canonicalized(bodies.body(function), self.options.canonicalize);
                let Bucketer { scratch, encoding, kept: _ } = &mut *self.bucketer;
                let result = canon::encode(&body, &context, scratch, encoding);
                self.stats.walk_functions += 1;
                self.stats.walk_instructions += encoding.instructions as usize;
                self.stats.walk_malformed += usize::from(result.is_err());
                self.stats.walk_bytes += encoding.size();
                if let Err(canon::Malformed) = result {
                    self.walked[node.index()] = Walked::Malformed.into();
                    return None;
                }
                let (hashes, hash) = canon::hashes(encoding);
                let instructions = encoding.instructions;
                self.walked[node.index()] = Walked::Yes { instructions, hashes }.into();
                Some(hash)
            }
            Item::Data(data) => {
                let attributes = &self.unit.data[data].attributes;
                let object = bodies.data(data).filter(|_| attributes.by_class())?;
                let encoding = &mut self.bucketer.encoding;
                data::encode(object, attributes.key, self.symbols, encoding);
                self.stats.walk_data_objects += 1;
                self.stats.walk_bytes += encoding.size();
                let (hashes, hash) = canon::hashes(encoding);
                self.walked[node.index()] = Walked::Yes { instructions: 0, hashes }.into();
                Some(hash)
            }
        }
    }

    /// Keeps what the later phases need of a class of equal encodings, of these rows.
    fn class(&mut self, equal: &[u32], kept: &Kept) {
        let first = &kept.firsts[kept.rows[equal[0] as usize].first as usize];
        let digest = self.digests.as_ref().map(|_| digest(kept.key(first)));
        for &row in equal {
            let Row { node, facts, .. } = kept.rows[row as usize];
            self.class_of[node.index()] = self.count;
            self.nodes.push(node);
            self.references.push(kept.callees(row as usize).iter().copied());
            if let (Some(digests), Some(digest)) = (&mut self.digests, digest) {
                digests.push(digest);
            }
            let own = || self.facts.intern(&kept.facts[first.facts.clone()]);
            self.facts_of[node.index()] = facts.expand().unwrap_or_else(own).into();
            if equal.len() > 1 {
                self.equal_encodings.insert(node);
            }
        }
        self.count += 1;
    }
}
