//! Buckets: from summaries to the classes of functions with equal encodings.
//!
//! One bucket is in hand at a time. Each of its functions is walked once and looked up among the
//! encodings seen in that bucket, ordered by hash and then by the total order, so a bucket of k
//! equal functions costs k comparisons and any other one O(k log k). Then the encodings are
//! dropped; what stays of a function that has equals is its references and facts.
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

/// A function with the encoding of the bucket in hand that it is filed under: its references by
/// class, and its facts if they differ from the encoding's.
struct Member {
    function: FunctionIndex,
    callees: Vec<FunctionIndex>,
    facts: Option<Vec<Fact>>,
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
        let mut seen: BTreeMap<StructuralHash, BTreeMap<Encoding, Vec<Member>>> = BTreeMap::new();
        for &function in members {
            if !self.encode(function, bodies) {
                continue;
            }
            let encoding = &self.classifier.encoding;
            let same_hash = seen.entry(structural_hash(encoding)).or_default();
            let callees = encoding.callees.clone();
            if let Some((first, members)) = same_hash.range_mut(encoding..=encoding).next() {
                let facts = (first.facts != encoding.facts).then(|| encoding.facts.clone());
                members.push(Member { function, callees, facts });
            } else {
                let first = Member { function, callees, facts: None };
                same_hash.insert(encoding.clone(), alloc::vec![first]);
            }
        }
        for (encoding, members) in seen.into_values().flatten() {
            if members.len() > 1 {
                self.class(encoding.facts, members);
            }
        }
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
        let Classifier { scratch, encoding } = &mut *self.classifier;
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
    fn class(&mut self, common: Vec<Fact>, members: Vec<Member>) {
        let first = self.facts.len() as u32;
        self.facts.push(common);
        let mut other_facts: BTreeMap<Vec<Fact>, u32> = BTreeMap::new();
        for Member { function, callees, facts } in members {
            self.class_of[function.index()] = self.count;
            self.nodes.push(function);
            self.references.push(callees);
            let index = match facts {
                None => first,
                Some(facts) => *other_facts.entry(facts).or_insert_with_key(|facts| {
                    self.facts.push(facts.clone());
                    self.facts.len() as u32 - 1
                }),
            };
            self.facts_of[function] = Some(index);
        }
        self.count += 1;
    }
}
