//! Pairs of functions that are worth a body, and what it is estimated to save.
//!
//! Functions are compared in three steps, each of which looks at fewer of them, and longer: digests of their control-flow
//! graphs, sketches ([`sketch`](super::sketch)), and alignments of their outlines, which say how much the two have in common.
//! Nothing is copied. What was found out about a function is kept from round to round, also where its calls go to other
//! functions by now: an estimate costs bytes if it is wrong, never correctness.

use super::blocks;
use super::outline::Outline;
use super::sketch::{self, Sketch};
use crate::apply::not_redirected;
use crate::options::Options;
use crate::parameterise::cost::Share;
use crate::parameterise::cost::{self, Effort};
use crate::plan::Plan;
use crate::threads::{Pool, for_each};
use crate::unit::{Bodies, FunctionIndex};
use alloc::vec::Vec;
use core::cmp::Reverse;
use cranelift_codegen::ir::Function;
use hashbrown::{HashMap, HashSet};
use rustc_hash::FxBuildHasher;

type ByFunction<T> = HashMap<FunctionIndex, T, FxBuildHasher>;

/// What was found out about functions in order to pair them.
#[derive(Default)]
pub(super) struct Pairing {
    /// Digests of their signatures and control-flow graphs.
    graphs: ByFunction<Option<u64>>,
    /// Of those that share a digest.
    sketches: ByFunction<Option<Sketch>>,
    /// Pairs that were found before.
    known: HashSet<[FunctionIndex; 2], FxBuildHasher>,
}

/// Two functions, and what a body for both is estimated to save.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub functions: [FunctionIndex; 2],
    /// Predicted bytes of the two functions.
    pub before: i64,
    /// Estimated bytes that are saved, without those of what calls the body or jumps to it.
    pub saved: i64,
}

impl Pair {
    /// By how many bytes the estimate may be wrong.
    pub fn error(&self, effort: Effort) -> i64 {
        self.before / effort.error
    }
}

/// How many pairs are compared before it is asked whether it is worth comparing more.
const COMPARED: usize = 1024;

impl Pairing {
    /// Pairs of these functions that were not found before and may save `share`, those that save most first. Reads each new
    /// function up to three times; linear in their sizes, and in the number of pairs.
    pub fn pairs(
        &mut self,
        functions: &[FunctionIndex],
        plan: &Plan,
        bodies: &mut dyn Bodies,
        options: &Options<'_>,
        share: Share,
        effort: Effort,
    ) -> Vec<Pair> {
        let unit = Unit { plan, options };
        self.sketch(functions, unit, bodies);
        let Pairing { sketches, known, .. } = self;
        let of = |function| sketches.get(function)?.as_ref();
        let of: Vec<Option<&Sketch>> = functions.iter().map(of).collect();
        let found = sketch::pairs(&of, effort);
        let mut pairs: Vec<[FunctionIndex; 2]> =
            found.iter().map(|pair| pair.functions.map(|at| functions[at as usize])).collect();
        pairs.retain(|pair| known.insert(*pair));
        // Not kept: in another round, few functions are paired again.
        let mut outlines: ByFunction<Option<(Outline, i64)>> = HashMap::default();
        let mut promising: Vec<Pair> = Vec::new();
        for pairs in pairs.chunks(COMPARED) {
            outline(pairs, &mut outlines, unit, bodies);
            let estimated = chunked(bodies, pairs.to_vec(), |_, (): &mut (), functions| {
                let outlines = functions.map(|function| outlines[&function].as_ref());
                let [Some((a, x)), Some((b, y))] = outlines else {
                    return None;
                };
                estimate(functions, [a, b], [*x, *y])
            });
            let before = promising.len();
            let reached =
                |pair: &Pair| share.is_reached(pair.saved + pair.error(effort), pair.before);
            promising.extend(estimated.into_iter().flatten().filter(reached));
            // Those that come later have less in common.
            if cost::is_few(promising.len() - before, pairs.len(), effort.promising) {
                break;
            }
        }
        let mut pairs = promising;
        let place: ByFunction<usize> = functions.iter().copied().zip(0..).collect();
        pairs.sort_unstable_by_key(|pair| {
            (Reverse(pair.saved), pair.functions.map(|function| place[&function]))
        });
        pairs
    }

    /// Makes the digests of functions, and sketches of those that share a digest.
    fn sketch(&mut self, functions: &[FunctionIndex], unit: Unit<'_>, bodies: &mut dyn Bodies) {
        let Pairing { graphs, sketches, .. } = self;
        let new = functions.iter().copied().filter(|function| !graphs.contains_key(function));
        let found = chunked(bodies, new.collect(), |bodies, (): &mut (), function| {
            let key = unit.plan.entry(function).attributes().key;
            let func = unit.function(bodies, function);
            let is_large = func.dfg.num_insts() >= cost::MIN_ALIGNED;
            (function, is_large.then(|| sketch::graph(func, key)).flatten())
        });
        graphs.extend(found);
        let mut count: HashMap<u64, u32, FxBuildHasher> = HashMap::default();
        for graph in functions.iter().filter_map(|function| graphs[function]) {
            *count.entry(graph).or_default() += 1;
        }
        let shares =
            |function: &FunctionIndex| graphs[function].is_some_and(|graph| count[&graph] > 1);
        let new = functions.iter().copied().filter(|it| shares(it) && !sketches.contains_key(it));
        let found = chunked(bodies, new.collect(), |bodies, (): &mut (), function| {
            let func = unit.function(bodies, function);
            (function, graphs[&function].and_then(|graph| Sketch::of(func, graph)))
        });
        sketches.extend(found);
    }
}

/// Where functions come from.
#[derive(Clone, Copy)]
struct Unit<'a> {
    plan: &'a Plan,
    options: &'a Options<'a>,
}

impl<'a> Unit<'a> {
    fn function(self, bodies: &'a mut dyn Bodies, function: FunctionIndex) -> &'a Function {
        not_redirected(self.plan, bodies, function)
    }
}

/// Adds the outlines of the functions of pairs, with their predicted bytes.
fn outline(
    pairs: &[[FunctionIndex; 2]],
    outlines: &mut ByFunction<Option<(Outline, i64)>>,
    unit: Unit<'_>,
    bodies: &mut dyn Bodies,
) {
    let mut functions: Vec<FunctionIndex> = pairs.iter().copied().flatten().collect();
    functions.retain(|function| !outlines.contains_key(function));
    functions.sort_unstable();
    functions.dedup();
    let found = chunked(bodies, functions, |bodies, scratch, function| {
        let func = unit.function(bodies, function);
        let outline = Outline::of(func, &|symbol| unit.plan.call_symbol(symbol));
        let model = unit.options.target.size_model;
        let predicted = model.and_then(|model| model.predict_with(func, scratch));
        (function, outline.zip(predicted.map(i64::from)))
    });
    outlines.extend(found);
}

/// What a body for two functions saves, as far as their outlines say it.
fn estimate(
    functions: [FunctionIndex; 2],
    outlines: [&Outline; 2],
    sizes: [i64; 2],
) -> Option<Pair> {
    let alignment = blocks::align(outlines)?;
    let [a, b] = sizes;
    let all = outlines.iter().map(|outline| outline.insts.len() as i64).sum::<i64>().max(1);
    let common = (a + b) * alignment.common as i64 / all;
    let saved = (cost::ALIGNED_COMMON * common
        + cost::ALIGNED_FRAME * a.min(b).min(cost::MAX_ALIGNED_FRAME))
        / 16;
    let saved = saved - cost::ALIGNED_GAP * alignment.gaps as i64;
    Some(Pair { functions, before: a + b, saved })
}

/// Does something with each item, on several threads, each of which has memory to be reused.
fn chunked<T: Copy + Sync + Send, S: Default + Send, R: Send>(
    bodies: &mut dyn Bodies,
    items: Vec<T>,
    work: impl Fn(&mut dyn Bodies, &mut S, T) -> R + Sync,
) -> Vec<R> {
    const ITEMS: usize = 256;
    struct Chunk<'i, T, R> {
        items: &'i [T],
        results: Vec<R>,
    }
    let new = |items| Chunk { items, results: Vec::new() };
    let mut chunks: Vec<Chunk<'_, T, R>> = items.chunks(ITEMS).map(new).collect();
    for_each(bodies, &Pool::<S>::default(), &mut chunks, |bodies, memory, chunk| {
        chunk.results = chunk.items.iter().map(|&item| work(bodies, memory, item)).collect();
    });
    chunks.into_iter().flat_map(|chunk| chunk.results).collect()
}
