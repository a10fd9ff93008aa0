//! Pairs of functions that are worth a body, and what it is estimated to save.
//!
//! Functions are compared in three steps, each of which looks at fewer of them, and longer: digests of their control-flow
//! graphs, sketches ([`sketch`](super::sketch)), and alignments of their outlines, which say how much the two have in common.
//! Nothing is copied. What was found out about a function is kept from round to round, also where its calls go to other
//! functions by now: an estimate costs bytes if it is wrong, never correctness.

use super::blocks;
use super::outline::Outline;
use super::sketch::{self, Counts, Sketch};
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
    counts: ByFunction<Option<Counts>>,
    /// Digests of the control-flow graphs of those that have the counts of another, nearly.
    graphs: ByFunction<Option<u64>>,
    /// Of those that share a digest.
    sketches: ByFunction<Option<Sketch>>,
    /// Outlines of those that resemble another in this round.
    outlines: ByFunction<Option<Outline>>,
    /// Predicted bytes of those that may resemble another enough.
    sizes: ByFunction<Option<i64>>,
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
        let Pairing { sketches, outlines, sizes, known, .. } = self;
        let of = |function| sketches.get(function)?.as_ref();
        let of: Vec<Option<&Sketch>> = functions.iter().map(of).collect();
        let found = sketch::pairs(&of, effort);
        let mut pairs: Vec<[FunctionIndex; 2]> =
            found.iter().map(|pair| pair.functions.map(|at| functions[at as usize])).collect();
        pairs.retain(|pair| known.insert(*pair));
        // In another round, few functions are paired again.
        outlines.clear();
        let mut promising: Vec<Pair> = Vec::new();
        let is_promising =
            |pair: &Pair| share.is_reached(pair.saved + pair.error(effort), pair.before);
        for compared in pairs.chunks(COMPARED) {
            outline(compared, outlines, unit, bodies);
            let of = |functions: [FunctionIndex; 2]| functions.map(|it| outlines[&it].as_ref());
            let possible = chunked(bodies, compared.to_vec(), |_, (): &mut (), functions| {
                let [Some(a), Some(b)] = of(functions) else {
                    return None;
                };
                at_most(functions, [a, b]).filter(is_promising).map(|pair| pair.functions)
            });
            let possible: Vec<[FunctionIndex; 2]> = possible.into_iter().flatten().collect();
            predict(&possible, sizes, unit, bodies);
            let estimated = chunked(bodies, possible, |_, (): &mut (), functions| {
                let [Some(x), Some(y)] = functions.map(|function| sizes[&function]) else {
                    return None;
                };
                estimate(functions, of(functions).map(Option::unwrap), [x, y]).filter(is_promising)
            });
            let before = promising.len();
            promising.extend(estimated.into_iter().flatten());
            // Those that come later have less in common.
            if cost::is_few(promising.len() - before, compared.len(), effort.promising) {
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

    /// The outline of a function of a pair, as it was before its calls went to other functions.
    pub fn outline(&self, function: FunctionIndex) -> Option<&Outline> {
        self.outlines.get(&function)?.as_ref()
    }

    /// The predicted bytes of a function of a pair.
    pub fn size(&self, function: FunctionIndex) -> Option<i64> {
        *self.sizes.get(&function)?
    }

    /// Makes the digests of functions, and sketches of those that share a digest.
    fn sketch(&mut self, functions: &[FunctionIndex], unit: Unit<'_>, bodies: &mut dyn Bodies) {
        let Pairing { counts, graphs, sketches, .. } = self;
        let new = functions.iter().copied().filter(|function| !counts.contains_key(function));
        let found = chunked(bodies, new.collect(), |bodies, (): &mut (), function| {
            let key = unit.plan.entry(function).attributes().key;
            (function, Counts::of(unit.function(bodies, function), key))
        });
        counts.extend(found);
        let mut new = with_companions(functions, counts);
        new.retain(|(function, _)| !graphs.contains_key(function));
        let found = chunked(bodies, new, |bodies, (): &mut (), (function, counts)| {
            (function, sketch::graph(unit.function(bodies, function), counts))
        });
        graphs.extend(found);
        let mut count: HashMap<u64, u32, FxBuildHasher> = HashMap::default();
        for graph in functions.iter().filter_map(|function| *graphs.get(function)?) {
            *count.entry(graph).or_default() += 1;
        }
        let shares = |it: &FunctionIndex| {
            graphs.get(it).is_some_and(|graph| graph.is_some_and(|graph| count[&graph] > 1))
        };
        let new = functions.iter().copied().filter(|it| shares(it) && !sketches.contains_key(it));
        let found = chunked(bodies, new.collect(), |bodies, (): &mut (), function| {
            let func = unit.function(bodies, function);
            (function, graphs[&function].and_then(|graph| Sketch::of(func, graph)))
        });
        sketches.extend(found);
    }
}

/// The functions that have a companion: one with the same digest and about as many instructions.
fn with_companions(
    functions: &[FunctionIndex],
    counts: &ByFunction<Option<Counts>>,
) -> Vec<(FunctionIndex, Counts)> {
    let counted = functions.iter().filter_map(|&function| Some((function, counts[&function]?)));
    let mut counted: Vec<(FunctionIndex, Counts)> = counted.collect();
    counted
        .sort_unstable_by_key(|(function, counts)| (counts.digest, counts.instructions, *function));
    let near = |a: usize, b: usize| {
        let [(_, a), (_, b)] = [counted[a], counted[b]];
        a.digest == b.digest && b.instructions - a.instructions <= cost::MAX_DIFFERING
    };
    let has = |at: usize| at > 0 && near(at - 1, at) || at + 1 < counted.len() && near(at, at + 1);
    (0..counted.len()).filter(|&at| has(at)).map(|at| counted[at]).collect()
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

/// The functions of pairs of which something is not known yet, each once.
fn unknown<T>(pairs: &[[FunctionIndex; 2]], known: &ByFunction<T>) -> Vec<FunctionIndex> {
    let mut functions: Vec<FunctionIndex> = pairs.iter().copied().flatten().collect();
    functions.retain(|function| !known.contains_key(function));
    functions.sort_unstable();
    functions.dedup();
    functions
}

/// Adds the outlines of the functions of pairs.
fn outline(
    pairs: &[[FunctionIndex; 2]],
    outlines: &mut ByFunction<Option<Outline>>,
    unit: Unit<'_>,
    bodies: &mut dyn Bodies,
) {
    let found = chunked(bodies, unknown(pairs, outlines), |bodies, (): &mut (), function| {
        let func = unit.function(bodies, function);
        (function, Outline::of(func, &|symbol| unit.plan.call_symbol(symbol)))
    });
    outlines.extend(found);
}

/// Adds the predicted bytes of the functions of pairs.
fn predict(
    pairs: &[[FunctionIndex; 2]],
    sizes: &mut ByFunction<Option<i64>>,
    unit: Unit<'_>,
    bodies: &mut dyn Bodies,
) {
    let Some(model) = unit.options.target.size_model else {
        return;
    };
    let found = chunked(bodies, unknown(pairs, sizes), |bodies, scratch, function| {
        let predicted = model.predict_with(unit.function(bodies, function), scratch);
        (function, predicted.map(i64::from))
    });
    sizes.extend(found);
}

/// What a body for two functions saves, if they have `common` of `all` instructions in common, with gaps between them.
fn saved(
    functions: [FunctionIndex; 2],
    [a, b]: [i64; 2],
    [common, all]: [usize; 2],
    gaps: usize,
) -> Pair {
    let common = (a + b) * common as i64 / all.max(1) as i64;
    let saved = (cost::ALIGNED_COMMON * common
        + cost::ALIGNED_FRAME * a.min(b).min(cost::MAX_ALIGNED_FRAME))
        / 16;
    Pair { functions, before: a + b, saved: saved - cost::ALIGNED_GAP * gaps as i64 }
}

/// What a body for two functions saves at most, whatever the order of what they have in common. `None` if they differ in too
/// much.
fn at_most(functions: [FunctionIndex; 2], outlines: [&Outline; 2]) -> Option<Pair> {
    let instructions = outlines.map(|outline| outline.insts.len());
    let all: usize = instructions.iter().sum();
    let common = outlines[0].in_common(outlines[1]);
    let sizes = instructions.map(|count| cost::LEAST_INSTRUCTION * count as i64);
    (all - 2 * common <= cost::MAX_DIFFERING).then(|| saved(functions, sizes, [common, all], 0))
}

/// What a body for two functions saves, as far as their outlines say it.
fn estimate(
    functions: [FunctionIndex; 2],
    outlines: [&Outline; 2],
    sizes: [i64; 2],
) -> Option<Pair> {
    let all = outlines.iter().map(|outline| outline.insts.len()).sum();
    let alignment = blocks::align(outlines)?;
    Some(saved(functions, sizes, [alignment.common, all], alignment.gaps))
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
