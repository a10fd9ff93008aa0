//! Buckets: from summaries to the classes of functions with equal encodings.
//!
//! The walk processes one bucket at a time. Each of its functions is walked once and compared with those before it
//! that have the same hash. So a bucket costs one walk of its functions, and as much memory as its different
//! encodings take. If that is too much, of some only the hash is kept, and they are walked again when another
//! function has the same. Of a function that has equals, its references and facts are kept.

use super::facts::{Facts, FactsIndex};
use super::in_hand::InHand;
use super::{Partition, References};
use crate::canon::{
    self, Context, Digest, Encoding, Fact, PartHashes, Scratch, StructuralHash, data, digest,
    structural_hash,
};
use crate::canonicalize::canonicalized;
use crate::options::Options;
use crate::stats::Stats;
use crate::unit::{Bodies, FunctionIndex, Item, NoUnit, Node, Numbering, ResolveSymbol, Unit};
use alloc::vec::Vec;
use cranelift_codegen::ir::Function;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, EntitySet};

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

impl Bucketed {
    /// Functions of which only the numbers of their encodings are known, which are `0..encodings`, their references, and
    /// what else is known of their encodings.
    pub fn of_encodings<R: Iterator<Item = Node>>(
        numbering: Numbering,
        encoding_of: Vec<u32>,
        encodings: usize,
        references_of: impl Fn(usize) -> R,
        walked: impl Iterator<Item = Walked>,
    ) -> Bucketed {
        let mut bucketed = Bucketed {
            numbering,
            partition: Partition::new(encoding_of, encodings),
            nodes: Vec::new(),
            references: References::new(),
            digests: Vec::new(),
            facts_of: Vec::new(),
            facts: Facts::default(),
            walked: walked.map(PackedWalked::from).collect(),
            equal_encodings: EntitySet::new(),
        };
        for encoding in 0..encodings {
            let members = bucketed.partition.members(encoding);
            for &member in members.iter().filter(|_| members.len() > 1) {
                let node = Node::from_u32(member);
                bucketed.nodes.push(node);
                bucketed.references.push(references_of(member as usize));
                bucketed.equal_encodings.insert(node);
            }
        }
        bucketed
    }

    /// The result of this phase for an item.
    pub fn walked(&self, node: Node) -> Walked {
        self.walked.get(node.index()).map_or(Walked::No, |&walked| walked.into())
    }

    /// The facts of a node, if it is one of `nodes`.
    pub fn facts_of(&self, node: Node) -> Option<&[Fact]> {
        Some(&self.facts[self.facts_index(node)?])
    }

    /// Their index: equal lists have the same.
    pub fn facts_index(&self, node: Node) -> Option<FactsIndex> {
        self.facts_of.get(node.index())?.expand()
    }
}

/// What is left of the encodings of the functions of a unit.
pub(crate) struct Encodings {
    numbering: Numbering,
    walked: Vec<PackedWalked>,
    equal_encodings: EntitySet<Node>,
    compiled: Compiled,
}

/// Functions that were compiled before the plan, and whose IR is not there any more.
#[derive(Default)]
pub(crate) struct Compiled {
    pub functions: EntitySet<FunctionIndex>,
    /// The functions that their code calls: as it is, so without extra arguments.
    pub callees: EntitySet<FunctionIndex>,
}

impl Encodings {
    /// The same, if some functions were compiled already.
    pub fn with_compiled(self, compiled: Compiled) -> Encodings {
        Encodings { compiled, ..self }
    }

    /// The functions that were compiled already; none in a unit whose IR is there.
    pub fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    /// The hashes of the encoding of a function, if it was walked and its IR is there.
    pub fn hashes(&self, function: FunctionIndex) -> Option<PartHashes> {
        if self.compiled.functions.contains(function) {
            return None;
        }
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
        let compiled = Compiled::default();
        Encodings { numbering, walked, equal_encodings, compiled }
    }
}

/// Reusable memory of this phase.
#[derive(Default)]
pub(crate) struct Bucketer {
    scratch: Scratch,
    encoding: Encoding,
    in_hand: InHand,
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
    // By symbol within a bucket, so that nothing depends on the order of insertion.
    let bucket = |node: Node| unit.bucket(numbering.item(node));
    let key = |&node: &Node| {
        let symbol = unit.symbol(numbering.item(node));
        (bucket(node), symbol.namespace, symbol.index)
    };
    order.sort_unstable_by_key(key);
    let Bucketer { scratch, encoding, in_hand } = bucketer;
    let walked = alloc::vec![Walked::No.into(); order.len()];
    let mut walker = Walker { unit, symbols, numbering, options, scratch, stats, bodies, walked };
    let mut classes = Classes {
        class_of: alloc::vec![u32::MAX; order.len()],
        count: 0,
        nodes: Vec::new(),
        references: References::new(),
        digests: all.then(Vec::new),
        facts_of: alloc::vec![PackedOption::default(); order.len()],
        facts: Facts::default(),
        equal_encodings: EntitySet::new(),
    };
    if all {
        classes.bucket(&order, &mut walker, encoding, in_hand);
    } else {
        for members in order.chunk_by(|&a, &b| bucket(a) == bucket(b)) {
            if members.len() > 1 {
                classes.bucket(members, &mut walker, encoding, in_hand);
            }
        }
    }
    for class in &mut classes.class_of {
        if *class == u32::MAX {
            *class = classes.count;
            classes.count += 1;
        }
    }
    let Walker { walked, .. } = walker;
    let Classes { class_of, count, nodes, references, digests, .. } = classes;
    let Classes { facts_of, facts, equal_encodings, .. } = classes;
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

/// Writes the encodings of items.
struct Walker<'a> {
    unit: &'a Unit,
    symbols: &'a dyn ResolveSymbol,
    numbering: Numbering,
    options: &'a Options<'a>,
    scratch: &'a mut Scratch,
    stats: &'a mut Stats,
    bodies: &'a mut dyn Bodies,
    walked: Vec<PackedWalked>,
}

impl Walker<'_> {
    /// Walks a function or a data object, and returns the hash of its encoding, if it has one.
    fn encode(&mut self, node: Node, encoding: &mut Encoding) -> Option<StructuralHash> {
        match self.numbering.item(node) {
            Item::Function(function) => {
                let context = Context {
                    policy: self.options.compare,
                    target: self.options.target,
                    key: self.unit.functions[function].attributes.key,
                    symbols: self.symbols,
                };
                let body = canonicalized(self.bodies.body(function), self.options.canonicalize);
                let result = canon::encode(&body, &context, self.scratch, encoding);
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
                let object = self.bodies.data(data).filter(|_| attributes.by_class())?;
                data::encode(object, attributes.key, self.symbols, encoding);
                self.stats.walk_data_objects += 1;
                self.stats.walk_bytes += encoding.size();
                let (hashes, hash) = canon::hashes(encoding);
                self.walked[node.index()] = Walked::Yes { instructions: 0, hashes }.into();
                Some(hash)
            }
        }
    }
}

struct Classes {
    class_of: Vec<u32>,
    count: u32,
    nodes: Vec<Node>,
    references: References,
    /// Wanted in an incremental run.
    digests: Option<Vec<Digest>>,
    facts_of: Vec<PackedOption<FactsIndex>>,
    facts: Facts,
    equal_encodings: EntitySet<Node>,
}

impl Classes {
    /// Groups the members of one bucket by their encodings.
    fn bucket(
        &mut self,
        members: &[Node],
        walker: &mut Walker<'_>,
        encoding: &mut Encoding,
        in_hand: &mut InHand,
    ) {
        in_hand.clear();
        let mut digests: Vec<Digest> = Vec::new();
        for &node in members {
            let Some(hash) = walker.encode(node, encoding) else {
                continue;
            };
            let again = |node: Node, out: &mut Encoding| {
                walker.encode(node, out);
            };
            let is_new = in_hand.push(node, hash, encoding, &mut self.facts, again);
            if is_new && self.digests.is_some() {
                digests.push(digest(encoding.key()));
                in_hand.set_facts(self.facts.intern(&encoding.facts));
            }
        }
        let order = in_hand.by_encoding();
        for equal in order.chunk_by(|&a, &b| in_hand.encoding_of(a) == in_hand.encoding_of(b)) {
            if equal.len() > 1 || self.digests.is_some() {
                let digest = digests.get(in_hand.encoding_of(equal[0]) as usize);
                self.class(equal, digest.copied(), in_hand);
            }
        }
    }

    /// Keeps what the later phases need of a class of equal encodings, of these rows.
    fn class(&mut self, equal: &[u32], digest: Option<Digest>, in_hand: &InHand) {
        for &row in equal {
            let (node, references, facts) = in_hand.row(row);
            self.class_of[node.index()] = self.count;
            self.nodes.push(node);
            self.references.push(references.iter().copied());
            if let (Some(digests), Some(digest)) = (&mut self.digests, digest) {
                digests.push(digest);
            }
            self.facts_of[node.index()] = facts.into();
            if equal.len() > 1 {
                self.equal_encodings.insert(node);
            }
        }
        self.count += 1;
    }
}
