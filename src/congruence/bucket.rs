//! Buckets: from summaries to the classes of functions with equal encodings.
//!
//! The walk processes one bucket at a time. Each of its functions is walked once and compared with
//! those before it that have the same hash. So a bucket costs one walk of its functions, and as
//! much memory as its different encodings take. If that is too much, of some only the hash is kept,
//! and they are walked again when another function has that hash. Of a function that has equals,
//! its references are kept.
//!
//! Several threads walk several buckets, and the pieces of large ones, at a time. Their results are
//! put together in the order of the buckets, so the result does not depend on their number.

use super::bucket_encodings::BucketEncodings;
use super::{Partition, References};
use crate::canon::{
    self, Context, Digest, Encoding, Scratch, ShapeHash, StructuralHash, data, digest,
    structural_hash,
};
use crate::lists::Lists;
use crate::options::Options;
use crate::stats::{self, Stats};
use crate::threads::{Pool, are_several, for_each};
use crate::unit::{Bodies, FunctionIndex, Item, NoUnit, Node, Numbering, ResolveSymbol, Unit};
use alloc::vec::Vec;
use cranelift_codegen::ir::Function;
use cranelift_entity::{EntityRef, EntitySet};

/// Which items are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walk {
    /// Those that share a bucket with another one.
    InBucket,
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
    walked: Vec<Walked>,
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
    Yes { instructions: u32, shape: ShapeHash },
}

impl Bucketed {
    /// Functions of which only the numbers of their encodings are known, which are `0..encodings`,
    /// their references, and what else is known of their encodings.
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
            walked: walked.collect(),
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
        self.walked.get(node.index()).copied().unwrap_or_default()
    }
}

/// The remaining encodings of the functions of a unit.
pub(crate) struct Encodings {
    numbering: Numbering,
    walked: Vec<Walked>,
    without_ir: WithoutIr,
}

/// Code whose IR is not there when the plan is made.
#[derive(Default)]
pub(crate) struct WithoutIr {
    /// The functions of the unit without IR: they were compiled before the plan.
    pub functions: EntitySet<FunctionIndex>,
    /// The functions that compiled code calls: as it is, so without extra arguments.
    pub callees: EntitySet<FunctionIndex>,
    /// How often code that is not in the unit calls functions and passes extra arguments.
    pub calls: Vec<(FunctionIndex, u32)>,
}

impl Encodings {
    /// These encodings, if the IR of some code is not there.
    pub fn with(self, without_ir: WithoutIr) -> Encodings {
        Encodings { without_ir, ..self }
    }

    /// The code whose IR is not there: none of a unit whose IR is there.
    pub fn without_ir(&self) -> &WithoutIr {
        &self.without_ir
    }

    /// The hash of the shape of a function, if it was walked and its IR is there.
    pub fn shape(&self, function: FunctionIndex) -> Option<ShapeHash> {
        let of_unit = function.index() < self.numbering.functions;
        if !of_unit || self.without_ir.functions.contains(function) {
            return None;
        }
        match self.walked[self.numbering.node(Item::Function(function)).index()] {
            Walked::Yes { instructions: _, shape } => Some(shape),
            Walked::No | Walked::Malformed => None,
        }
    }
}

impl From<Bucketed> for Encodings {
    fn from(bucketed: Bucketed) -> Encodings {
        let Bucketed { numbering, walked, .. } = bucketed;
        Encodings { numbering, walked, without_ir: WithoutIr::default() }
    }
}

/// Memory of a walk, to be reused.
#[derive(Default)]
pub(crate) struct Bucketer {
    scratch: Scratch,
    encoding: Encoding,
}

impl Bucketer {
    /// The bucket of a function by its hash alone, before the unit is known.
    pub fn hash_alone(&mut self, func: &Function, key: u64, options: &Options<'_>) -> u64 {
        let context = Context::of(options, key, &NoUnit);
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

/// The smallest number of items that are walked together: putting the results together then takes
/// little.
const ITEMS: usize = 64;

/// How many items of one bucket are walked together, at most, by one of several threads.
const PIECE: usize = 4096;

/// How many pieces of one bucket are in memory at the same time, at most.
const PIECES: usize = 64;

/// Walks every item that shares its bucket with another and groups items with equal encodings.
///
/// In an incremental run, `walk` is [`Walk::All`]: later units must find every function.
pub(crate) fn bucket(
    unit: &Unit,
    symbols: &(dyn ResolveSymbol + Sync),
    walk: Walk,
    options: &Options<'_>,
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
    let walker = Walker { unit, symbols, numbering, options };
    let mut classes = Classes::new(order.len(), all);
    let pool: Pool<Memory> = Pool::default();
    let piece = if are_several(bodies) { PIECE } else { usize::MAX };
    if all {
        classes.large(&walker, &order, piece, &pool, bodies);
    } else {
        let mut small: Vec<Task<'_>> = Vec::new();
        for members in order.chunk_by(|&a, &b| bucket(a) == bucket(b)) {
            if members.len() > piece {
                classes.large(&walker, members, piece, &pool, bodies);
            } else if members.len() > 1 {
                match small.last_mut() {
                    Some(task) if task.items < ITEMS => task.add(members),
                    _ => {
                        let mut task = Task::default();
                        task.add(members);
                        small.push(task);
                    }
                }
            }
        }
        // Chunks are small enough that the results of all tasks need not be in memory at the same
        // time.
        for tasks in small.chunks_mut(PIECE / ITEMS) {
            for_each(bodies, &pool, tasks, |bodies, memory, task| {
                for members in &task.buckets {
                    task.found.bucket(members, &walker, bodies, memory);
                }
            });
            for task in tasks {
                classes.add(core::mem::take(&mut task.found));
            }
        }
    }
    classes.finish(numbering, stats)
}

/// Buckets to be walked by one thread, and the result.
#[derive(Default)]
struct Task<'a> {
    buckets: Vec<&'a [Node]>,
    items: usize,
    found: Part,
}

impl<'a> Task<'a> {
    fn add(&mut self, members: &'a [Node]) {
        self.buckets.push(members);
        self.items += members.len();
    }
}

/// Memory of one thread.
#[derive(Default)]
struct Memory {
    scratch: Scratch,
    encoding: Encoding,
    encodings: BucketEncodings,
}

/// Writes the encodings of items.
struct Walker<'a> {
    unit: &'a Unit,
    symbols: &'a (dyn ResolveSymbol + Sync),
    numbering: Numbering,
    options: &'a Options<'a>,
}

impl Walker<'_> {
    /// Walks a function or a data object, and returns the hash of its encoding, if it has one.
    fn encode(
        &self,
        node: Node,
        bodies: &mut dyn Bodies,
        scratch: &mut Scratch,
        encoding: &mut Encoding,
        walks: &mut Walks,
    ) -> Option<StructuralHash> {
        match self.numbering.item(node) {
            Item::Function(function) => {
                let context = Context {
                    debug_info: self.options.compare.debug_info,
                    target: self.options.target,
                    key: self.unit.functions[function].attributes.key,
                    symbols: self.symbols,
                };
                let body = bodies.body(function);
                let result = canon::encode(body, &context, scratch, encoding);
                let counts = &mut walks.counts;
                counts.functions += 1;
                counts.instructions += encoding.instructions as usize;
                counts.malformed += usize::from(result.is_err());
                counts.bytes += encoding.size();
                if let Err(canon::Malformed) = result {
                    walks.walked.push((node, Walked::Malformed));
                    return None;
                }
                let (shape, hash) = canon::hashes(encoding);
                let instructions = encoding.instructions;
                walks.walked.push((node, Walked::Yes { instructions, shape }));
                Some(hash)
            }
            Item::Data(data) => {
                let attributes = &self.unit.data[data].attributes;
                let object = bodies.data(data).filter(|_| attributes.by_class())?;
                data::encode(object, attributes.key, self.symbols, encoding);
                walks.counts.data_objects += 1;
                walks.counts.bytes += encoding.size();
                let (shape, hash) = canon::hashes(encoding);
                walks.walked.push((node, Walked::Yes { instructions: 0, shape }));
                Some(hash)
            }
        }
    }
}

/// The walked items.
#[derive(Default)]
struct Walks {
    walked: Vec<(Node, Walked)>,
    counts: stats::Walks,
}

/// A bucket, or a piece of one, whose items were walked. Their encodings are in memory.
#[derive(Default)]
struct Grouped {
    walks: Walks,
    /// The digest of each encoding, if digests are wanted.
    digests: Vec<Digest>,
}

impl Grouped {
    /// Walks items, and compares them with those of the bucket. `all`: see [`Walk::All`].
    fn walk(
        &mut self,
        members: &[Node],
        all: bool,
        walker: &Walker<'_>,
        bodies: &mut dyn Bodies,
        memory: &mut Memory,
    ) {
        let Memory { scratch, encoding, encodings } = memory;
        let Grouped { walks, digests } = self;
        for &node in members {
            let Some(hash) = walker.encode(node, bodies, scratch, encoding, walks) else {
                continue;
            };
            let again = |node: Node, out: &mut Encoding| {
                walker.encode(node, bodies, scratch, out, walks);
            };
            let is_new = encodings.push(node, hash, encoding, again);
            if is_new && all {
                digests.push(digest(encoding.key()));
            }
        }
    }
}

/// The classes of some buckets.
#[derive(Default)]
struct Part {
    grouped: Grouped,
    /// The nodes of each class.
    classes: Lists<Node>,
    /// Of each of these nodes, in the same order.
    references: References,
    digests: Vec<Digest>,
}

impl Part {
    /// Groups the members of one bucket by their encodings.
    fn bucket(
        &mut self,
        members: &[Node],
        walker: &Walker<'_>,
        bodies: &mut dyn Bodies,
        memory: &mut Memory,
    ) {
        memory.encodings.clear();
        self.grouped.walk(members, false, walker, bodies, memory);
        self.take(&memory.encodings);
    }

    /// Keeps the classes of equal encodings of the bucket that later phases need: those of two or
    /// more items, or of all, if there are digests.
    fn take(&mut self, encodings: &BucketEncodings) {
        let digests = &self.grouped.digests;
        let order = encodings.by_encoding();
        for equal in order.chunk_by(|&a, &b| encodings.encoding_of(a) == encodings.encoding_of(b)) {
            if equal.len() < 2 && digests.is_empty() {
                continue;
            }
            self.classes.push(equal.iter().map(|&row| encodings.row(row).0));
            let digest = digests.get(encodings.encoding_of(equal[0]) as usize);
            for &row in equal {
                self.references.push(encodings.row(row).1.iter().copied());
                self.digests.extend(digest);
            }
        }
    }
}

/// The classes of all buckets.
struct Classes {
    /// See [`Walk::All`].
    all: bool,
    class_of: Vec<u32>,
    count: u32,
    nodes: Vec<Node>,
    references: References,
    digests: Vec<Digest>,
    walked: Vec<Walked>,
    equal_encodings: EntitySet<Node>,
    counts: stats::Walks,
}

impl Classes {
    fn new(nodes: usize, all: bool) -> Classes {
        Classes {
            all,
            class_of: alloc::vec![u32::MAX; nodes],
            count: 0,
            nodes: Vec::new(),
            references: References::new(),
            digests: Vec::new(),
            walked: alloc::vec![Walked::No; nodes],
            equal_encodings: EntitySet::new(),
            counts: stats::Walks::default(),
        }
    }

    /// Walks a bucket in pieces of at most this number of items, and adds its classes.
    fn large(
        &mut self,
        walker: &Walker<'_>,
        members: &[Node],
        piece: usize,
        pool: &Pool<Memory>,
        bodies: &mut dyn Bodies,
    ) {
        let all = self.all;
        let mut part = Part::default();
        let mut encodings = BucketEncodings::default();
        let mut scratch = Scratch::default();
        let members: Vec<&[Node]> = members.chunks(piece).collect();
        // Chunks are small enough that the encodings of all pieces need not be in memory at the
        // same time.
        for members in members.chunks(PIECES) {
            let members = members.iter().copied();
            let mut pieces: Vec<(&[Node], Grouped, BucketEncodings)> = members
                .map(|members| (members, Grouped::default(), BucketEncodings::default()))
                .collect();
            for_each(bodies, pool, &mut pieces, |bodies, memory, (members, grouped, encodings)| {
                memory.encodings.clear();
                grouped.walk(members, all, walker, bodies, memory);
                core::mem::swap(encodings, &mut memory.encodings);
            });
            for (_, grouped, further) in pieces {
                let Grouped { walks, digests } = grouped;
                let own = &mut part.grouped;
                own.walks.walked.extend(walks.walked);
                own.walks.counts.add(&walks.counts);
                if encodings.is_empty() {
                    encodings = further;
                    own.digests = digests;
                    continue;
                }
                let again = |node: Node, out: &mut Encoding| {
                    walker.encode(node, bodies, &mut scratch, out, &mut own.walks);
                };
                let is_new = encodings.append(&further, again);
                let digests = digests.into_iter().zip(is_new).filter(|&(_, is_new)| is_new);
                own.digests.extend(digests.map(|(digest, _)| digest));
            }
        }
        part.take(&encodings);
        self.add(part);
    }

    fn add(&mut self, part: Part) {
        let Part { grouped, classes, references, mut digests } = part;
        let Grouped { walks: Walks { walked, counts }, digests: _ } = grouped;
        for (node, walked) in walked {
            self.walked[node.index()] = walked;
        }
        self.counts.add(&counts);
        let mut rows = references.iter();
        for class in classes.iter() {
            for (&node, references) in class.iter().zip(&mut rows) {
                self.class_of[node.index()] = self.count;
                self.nodes.push(node);
                self.references.push(references.iter().copied());
                if class.len() > 1 {
                    self.equal_encodings.insert(node);
                }
            }
            self.count += 1;
        }
        self.digests.append(&mut digests);
    }

    fn finish(self, numbering: Numbering, stats: &mut Stats) -> Bucketed {
        let Classes { all: _, mut class_of, mut count, nodes, references, .. } = self;
        let Classes { digests, walked, equal_encodings, counts, .. } = self;
        stats.walks.add(&counts);
        for class in &mut class_of {
            if *class == u32::MAX {
                *class = count;
                count += 1;
            }
        }
        Bucketed {
            numbering,
            partition: Partition::new(class_of, count as usize),
            nodes,
            references,
            digests,
            walked,
            equal_encodings,
        }
    }
}
