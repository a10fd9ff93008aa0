//! Buckets: from summaries to the classes of functions with equal encodings.
//!
//! The walk processes one bucket at a time. Each of its functions is walked once; then they are sorted by hash and
//! by the total order, so a bucket of k equal functions costs k comparisons and any other one O(k log k). Then the
//! encodings are dropped; of a function that has equals, its references and facts are kept.
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
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use cranelift_codegen::ir::Function;
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};

/// Encodings of one bucket that are kept at the same time, in bytes.
const BUCKET_BYTES: usize = 64 << 20;

/// The bytes that an instruction takes in an encoding, roughly. An error costs memory or time, nothing else.
const BYTES_PER_INSTRUCTION: usize = 24;

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
    pub facts_of: SecondaryMap<Node, Option<u32>>,
    /// Distinct facts. Most members of a class share theirs.
    pub facts: Vec<Vec<Fact>>,
    pub walked: SecondaryMap<Node, Walked>,
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

/// What is left of the encodings of the functions of a unit.
pub(crate) struct Encodings {
    numbering: Numbering,
    walked: SecondaryMap<Node, Walked>,
    equal_encodings: EntitySet<Node>,
}

impl Encodings {
    /// The hashes of the encoding of a function, if it was walked.
    pub fn hashes(&self, function: FunctionIndex) -> Option<PartHashes> {
        match self.walked.get(self.node(function)?)? {
            Walked::Yes { instructions: _, hashes } => Some(*hashes),
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

/// The encodings of the bucket in hand, one after the other.
#[derive(Default)]
struct Kept {
    streams: Vec<u8>,
    callees: Vec<Node>,
    facts: Vec<Fact>,
    rows: Vec<Row>,
}

/// A member of the bucket in hand: where its encoding is in [`Kept`].
#[derive(Clone)]
struct Row {
    node: Node,
    hash: StructuralHash,
    /// Where shape, constants and references begin, and where they end.
    streams: [usize; 4],
    callees: Range<usize>,
    facts: Range<usize>,
}

impl Kept {
    fn clear(&mut self) {
        let Kept { streams, callees, facts, rows } = self;
        streams.clear();
        callees.clear();
        facts.clear();
        rows.clear();
    }

    fn push(&mut self, node: Node, hash: StructuralHash, encoding: &Encoding) {
        let mut bounds = [self.streams.len(); 4];
        for (bound, stream) in bounds[1..].iter_mut().zip(encoding.key()) {
            self.streams.extend_from_slice(stream);
            *bound = self.streams.len();
        }
        let callees = self.callees.len()..self.callees.len() + encoding.callees.len();
        self.callees.extend_from_slice(&encoding.callees);
        let facts = self.facts.len()..self.facts.len() + encoding.facts.len();
        self.facts.extend_from_slice(&encoding.facts);
        self.rows.push(Row { node, hash, streams: bounds, callees, facts });
    }

    /// The order of [`Encoding`], hash first.
    fn key(&self, row: &Row) -> (StructuralHash, [&[u8]; 3]) {
        let [shape, constants, references, end] = row.streams;
        let streams = [
            &self.streams[shape..constants],
            &self.streams[constants..references],
            &self.streams[references..end],
        ];
        (row.hash, streams)
    }
}

impl Bucketer {
    /// The bucket of a function by its hash alone, before the unit is known.
    pub fn hash_alone(&mut self, func: &Function, key: u64, options: &Options<'_>) -> u128 {
        let context =
            Context { policy: options.compare, target: options.target, key, symbols: &NoUnit };
        match canon::encode(func, &context, &mut self.scratch, &mut self.encoding) {
            // Which symbols are functions of the unit is not known yet, so no symbol counts.
            Ok(()) => {
                self.encoding.references.clear();
                structural_hash(&self.encoding).0
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
        facts_of: SecondaryMap::new(),
        facts: Vec::new(),
        walked: SecondaryMap::new(),
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
    facts_of: SecondaryMap<Node, Option<u32>>,
    facts: Vec<Vec<Fact>>,
    walked: SecondaryMap<Node, Walked>,
    equal_encodings: EntitySet<Node>,
}

impl Classes<'_> {
    /// The bytes that the encodings of a bucket take at least, roughly.
    fn estimate(&self, members: &[Node]) -> usize {
        let bytes = |&node: &Node| match self.numbering.item(node) {
            Item::Function(function) => {
                BYTES_PER_INSTRUCTION * self.unit.functions[function].instructions as usize
            }
            Item::Data(data) => usize::try_from(self.unit.data[data].size).unwrap_or(usize::MAX),
        };
        members.iter().map(bytes).fold(0, usize::saturating_add)
    }

    /// Groups the members of one bucket.
    fn bucket(&mut self, members: &[Node], bodies: &mut dyn Bodies) {
        if self.estimate(members) <= BUCKET_BYTES {
            self.compare(members, bodies);
            return;
        }
        let mut by_hash: Vec<(StructuralHash, Node)> = Vec::new();
        for &node in members {
            if let Some(hash) = self.encode(node, bodies) {
                by_hash.push((hash, node));
            }
        }
        by_hash.sort_by_key(|&(hash, _)| hash);
        for same_hash in by_hash.chunk_by(|a, b| a.0 == b.0) {
            if same_hash.len() > 1 || self.digests.is_some() {
                let members: Vec<_> = same_hash.iter().map(|&(_, node)| node).collect();
                self.compare(&members, bodies);
            }
        }
    }

    /// Groups nodes by their encodings, which are all kept until the end.
    fn compare(&mut self, members: &[Node], bodies: &mut dyn Bodies) {
        let mut kept = core::mem::take(&mut self.bucketer.kept);
        kept.clear();
        for &node in members {
            if let Some(hash) = self.encode(node, bodies) {
                kept.push(node, hash, &self.bucketer.encoding);
            }
        }
        let mut rows = core::mem::take(&mut kept.rows);
        // Stable, so that equal items stay in the order of the symbols.
        rows.sort_by(|a, b| kept.key(a).cmp(&kept.key(b)));
        for equal in rows.chunk_by(|a, b| kept.key(a) == kept.key(b)) {
            if equal.len() > 1 || self.digests.is_some() {
                self.class(equal, &kept);
            }
        }
        kept.rows = rows;
        self.bucketer.kept = kept;
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
                    self.walked[node] = Walked::Malformed;
                    return None;
                }
                let (hashes, hash) = canon::hashes(encoding);
                self.walked[node] = Walked::Yes { instructions: encoding.instructions, hashes };
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
                self.walked[node] = Walked::Yes { instructions: 0, hashes };
                Some(hash)
            }
        }
    }

    /// Keeps what the later phases need of a class of equal encodings.
    fn class(&mut self, equal: &[Row], kept: &Kept) {
        let digest = self.digests.as_ref().map(|_| digest(kept.key(&equal[0]).1));
        let mut known: BTreeMap<&[Fact], u32> = BTreeMap::new();
        let mut last: Option<(&[Fact], u32)> = None;
        for row in equal {
            self.class_of[row.node.index()] = self.count;
            self.nodes.push(row.node);
            self.references.push(kept.callees[row.callees.clone()].iter().copied());
            if let (Some(digests), Some(digest)) = (&mut self.digests, digest) {
                digests.push(digest);
            }
            let facts = &kept.facts[row.facts.clone()];
            // Most members have the facts of the one before.
            let index = match last {
                Some((last, index)) if last == facts => index,
                Some(_) | None => *known.entry(facts).or_insert_with(|| {
                    self.facts.push(facts.to_vec());
                    self.facts.len() as u32 - 1
                }),
            };
            last = Some((facts, index));
            self.facts_of[row.node] = Some(index);
            if equal.len() > 1 {
                self.equal_encodings.insert(row.node);
            }
        }
        self.count += 1;
    }
}
