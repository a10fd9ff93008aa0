//! Buckets: from summaries to the classes of functions with equal encodings.
//!
//! One bucket is in hand at a time. Each of its functions is walked once; then they are sorted by
//! hash and by the total order, so a bucket of k equal functions costs k comparisons and any other
//! one O(k log k). Then the encodings are dropped; what stays of a function that has equals is its
//! references and facts.
//!
//! A bucket whose encodings would not fit in memory is walked twice: first for the hashes, then
//! hash by hash.

use crate::canon::{self, Context, NoUnit, ResolveSymbol, Scratch};
use crate::classes::{Partition, References};
use crate::encoding::Encoding;
use crate::facts::Fact;
use crate::hash::{StructuralHash, structural_hash};
use crate::options::Options;
use crate::stats::Stats;
use crate::unit::{Bodies, FunctionIndex, Summary, canonicalized};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use cranelift_codegen::ir::Function;
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};

/// Encodings of one bucket that are kept at the same time, in bytes.
const BUCKET_BYTES: usize = 64 << 20;

/// What an instruction takes in an encoding, roughly. Where it is wrong, more memory is used or
/// more time, nothing else.
const BYTES_PER_INSTRUCTION: usize = 24;

/// The optimistic partition, and what refinement and plan need of it.
pub(crate) struct Classified {
    /// Functions with equal encodings, references by class ignored.
    pub partition: Partition,
    /// The functions that share a class, in the order of the rows of `references`.
    pub nodes: Vec<FunctionIndex>,
    pub references: References,
    /// Index into `facts`; `None` for functions that are not in `nodes`.
    pub facts_of: SecondaryMap<FunctionIndex, Option<u32>>,
    /// Distinct facts. Most members of a class share theirs.
    pub facts: Vec<Vec<Fact>>,
    pub walked: SecondaryMap<FunctionIndex, Walked>,
}

/// What became of a function in this phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Walked {
    /// Nothing shares its bucket.
    #[default]
    No,
    /// It cannot be encoded.
    Malformed,
    /// It was walked, and has so many instructions.
    Yes { instructions: u32 },
}

/// Reusable memory of this phase.
#[derive(Default)]
pub(crate) struct Classifier {
    scratch: Scratch,
    encoding: Encoding,
    kept: Kept,
}

/// The encodings of the bucket in hand, one after the other.
#[derive(Default)]
struct Kept {
    streams: Vec<u8>,
    callees: Vec<FunctionIndex>,
    facts: Vec<Fact>,
    items: Vec<Item>,
}

/// A function of the bucket in hand: where its encoding is in [`Kept`].
#[derive(Clone)]
struct Item {
    function: FunctionIndex,
    hash: StructuralHash,
    /// Where shape, constants and references begin, and where they end.
    streams: [usize; 4],
    callees: Range<usize>,
    facts: Range<usize>,
}

impl Kept {
    fn clear(&mut self) {
        let Kept { streams, callees, facts, items } = self;
        streams.clear();
        callees.clear();
        facts.clear();
        items.clear();
    }

    fn push(&mut self, function: FunctionIndex, encoding: &Encoding) {
        let mut bounds = [self.streams.len(); 4];
        for (bound, stream) in bounds[1..].iter_mut().zip(encoding.key()) {
            self.streams.extend_from_slice(stream);
            *bound = self.streams.len();
        }
        let callees = self.callees.len()..self.callees.len() + encoding.callees.len();
        self.callees.extend_from_slice(&encoding.callees);
        let facts = self.facts.len()..self.facts.len() + encoding.facts.len();
        self.facts.extend_from_slice(&encoding.facts);
        let hash = structural_hash(encoding);
        self.items.push(Item { function, hash, streams: bounds, callees, facts });
    }

    /// The order of [`Encoding`], hash first.
    fn key(&self, item: &Item) -> (StructuralHash, [&[u8]; 3]) {
        let [shape, constants, references, end] = item.streams;
        let streams = [
            &self.streams[shape..constants],
            &self.streams[constants..references],
            &self.streams[references..end],
        ];
        (item.hash, streams)
    }
}

impl Classifier {
    /// The bucket of a function by its hash alone, before the unit is known.
    pub fn hash_alone(&mut self, func: &Function, key: u64, options: &Options<'_>) -> u128 {
        let context = Context {
            policy: options.compare,
            endianness: options.target.endianness,
            key,
            symbols: &NoUnit,
        };
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

/// Walks every function that shares its bucket with another and groups those with equal encodings.
pub(crate) fn classify(
    functions: &PrimaryMap<FunctionIndex, Summary>,
    symbols: &dyn ResolveSymbol,
    options: &Options<'_>,
    classifier: &mut Classifier,
    bodies: &mut dyn Bodies,
    stats: &mut Stats,
) -> Classified {
    let mut classes = Classes {
        functions,
        symbols,
        options,
        classifier,
        stats,
        class_of: alloc::vec![u32::MAX; functions.len()],
        count: 0,
        nodes: Vec::new(),
        references: References::new(),
        facts_of: SecondaryMap::new(),
        facts: Vec::new(),
        walked: SecondaryMap::new(),
    };
    // By symbol within a bucket, so that nothing depends on the order of insertion.
    let mut order: Vec<FunctionIndex> = functions.keys().collect();
    let key = |&i: &FunctionIndex| {
        let symbol = &functions[i].symbol;
        (functions[i].bucket, symbol.namespace, symbol.index)
    };
    order.sort_unstable_by_key(key);
    let mut rest = &order[..];
    while let Some(&first) = rest.first() {
        let bucket = functions[first].bucket;
        let len = rest.iter().take_while(|&&i| functions[i].bucket == bucket).count();
        let (members, after) = rest.split_at(len);
        rest = after;
        if members.len() > 1 {
            classes.bucket(members, bodies);
        }
    }
    for class in &mut classes.class_of {
        if *class == u32::MAX {
            *class = classes.count;
            classes.count += 1;
        }
    }
    let Classes { class_of, count, nodes, references, facts_of, facts, walked, .. } = classes;
    Classified {
        partition: Partition::new(class_of, count as usize),
        nodes,
        references,
        facts_of,
        facts,
        walked,
    }
}

struct Classes<'a> {
    functions: &'a PrimaryMap<FunctionIndex, Summary>,
    symbols: &'a dyn ResolveSymbol,
    options: &'a Options<'a>,
    classifier: &'a mut Classifier,
    stats: &'a mut Stats,
    class_of: Vec<u32>,
    count: u32,
    nodes: Vec<FunctionIndex>,
    references: References,
    facts_of: SecondaryMap<FunctionIndex, Option<u32>>,
    facts: Vec<Vec<Fact>>,
    walked: SecondaryMap<FunctionIndex, Walked>,
}

impl Classes<'_> {
    /// Groups the functions of one bucket.
    fn bucket(&mut self, members: &[FunctionIndex], bodies: &mut dyn Bodies) {
        let instructions = |&i: &FunctionIndex| self.functions[i].instructions as usize;
        let estimate = BYTES_PER_INSTRUCTION * members.iter().map(instructions).sum::<usize>();
        if estimate <= BUCKET_BYTES {
            self.compare(members, bodies);
            return;
        }
        let mut by_hash: Vec<(StructuralHash, FunctionIndex)> = Vec::new();
        for &function in members {
            if self.encode(function, bodies) {
                by_hash.push((structural_hash(&self.classifier.encoding), function));
            }
        }
        by_hash.sort_by_key(|&(hash, _)| hash);
        for same_hash in by_hash.chunk_by(|a, b| a.0 == b.0) {
            if same_hash.len() > 1 {
                let members: Vec<_> = same_hash.iter().map(|&(_, function)| function).collect();
                self.compare(&members, bodies);
            }
        }
    }

    /// Groups functions by their encodings, which are all kept until the end.
    fn compare(&mut self, members: &[FunctionIndex], bodies: &mut dyn Bodies) {
        let mut kept = core::mem::take(&mut self.classifier.kept);
        kept.clear();
        for &function in members {
            if self.encode(function, bodies) {
                kept.push(function, &self.classifier.encoding);
            }
        }
        let mut items = core::mem::take(&mut kept.items);
        // Stable, so that equal functions stay in the order of their symbols.
        items.sort_by(|a, b| kept.key(a).cmp(&kept.key(b)));
        for equal in items.chunk_by(|a, b| kept.key(a) == kept.key(b)) {
            if equal.len() > 1 {
                self.class(equal, &kept);
            }
        }
        kept.items = items;
        self.classifier.kept = kept;
    }

    /// Walks a function; whether that went well.
    fn encode(&mut self, function: FunctionIndex, bodies: &mut dyn Bodies) -> bool {
        let context = Context {
            policy: self.options.compare,
            endianness: self.options.target.endianness,
            key: self.functions[function].attributes.key,
            symbols: self.symbols,
        };
        let body = canonicalized(bodies.body(function), self.options.canonicalize);
        let Classifier { scratch, encoding, kept: _ } = &mut *self.classifier;
        let result = canon::encode(&body, &context, scratch, encoding);
        self.stats.walk_functions += 1;
        self.stats.walk_instructions += encoding.instructions as usize;
        self.stats.walk_bytes += encoding.size();
        self.stats.walk_malformed += usize::from(result.is_err());
        self.walked[function] = match result {
            Ok(()) => Walked::Yes { instructions: encoding.instructions },
            Err(canon::Malformed) => Walked::Malformed,
        };
        result.is_ok()
    }

    /// Keeps what the later phases need of functions with equal encodings.
    fn class(&mut self, equal: &[Item], kept: &Kept) {
        let mut known: BTreeMap<&[Fact], u32> = BTreeMap::new();
        let mut last: Option<(&[Fact], u32)> = None;
        for item in equal {
            self.class_of[item.function.index()] = self.count;
            self.nodes.push(item.function);
            self.references.push(kept.callees[item.callees.clone()].iter().copied());
            let facts = &kept.facts[item.facts.clone()];
            // Most members have the facts of the one before.
            let index = match last {
                Some((last, index)) if last == facts => index,
                Some(_) | None => *known.entry(facts).or_insert_with(|| {
                    self.facts.push(facts.to_vec());
                    self.facts.len() as u32 - 1
                }),
            };
            last = Some((facts, index));
            self.facts_of[item.function] = Some(index);
        }
        self.count += 1;
    }
}
