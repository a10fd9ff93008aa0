//! Pairs of functions that are worth a body, and what it is estimated to save.
//!
//! Functions are compared in four steps, each of which looks at fewer of them, and longer: counts
//! that are known without reading a function; sketches ([`sketch`](super::sketch)), which take a
//! scan; what their outlines have in common, which take a canonical walk; and alignments of those
//! pairs that would be tried. A function that has the counts of no other one is not read, and one
//! that resembles no other one is not walked. Nothing is copied. The findings about a function are
//! kept from round to round, also where its calls go to other functions by now: an estimate costs
//! bytes if it is wrong, never correctness.

use super::blocks::{self, Alignment};
use super::outline::{Outline, in_common};
use super::sketch::{self, Sketch};
use crate::apply::not_redirected;
use crate::canon::{Context, Counts, Encoding, Scratch};
use crate::extra_argument::Substitute;
use crate::options::Options;
use crate::parameterise::context;
use crate::parameterise::cost::{self, Effort, Share};
use crate::plan::Plan;
use crate::stats::SimilarCounts;
use crate::threads::{Pool, for_each};
use crate::unit::{Bodies, FunctionIndex, Redirected, ResolveSymbol, Resolved};
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_entity::PrimaryMap;
use hashbrown::{HashMap, HashSet};
use rustc_hash::FxBuildHasher;

pub(super) type ByFunction<T> = HashMap<FunctionIndex, T, FxBuildHasher>;

/// Sketches of functions; `None` of one that is not aligned.
pub(crate) type Sketches = HashMap<FunctionIndex, Option<Sketch>, FxBuildHasher>;

/// The findings about functions for pairing them.
pub(super) struct Pairing<'a> {
    /// Of the functions of the unit.
    counts: &'a PrimaryMap<FunctionIndex, Counts>,
    /// Of those that have the counts of another one, nearly.
    sketches: Sketches,
    /// Of the functions of pairs, where they have one.
    outlines: ByFunction<Option<Outline>>,
    /// Pairs that were found before.
    known: HashSet<[FunctionIndex; 2], FxBuildHasher>,
}

/// Two functions, and what a body for both is estimated to save.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub functions: [FunctionIndex; 2],
    /// Predicted bytes of the two functions.
    pub before: i64,
    /// Estimated bytes that are saved, without those of what calls the body or jumps to it; the
    /// most that an alignment could show, until there is one.
    pub saved: i64,
    /// Until they are aligned, how many instructions may be in gaps for enough to be saved.
    pub most: Option<usize>,
}

impl Pair {
    /// By how many bytes the estimate may be wrong.
    pub fn error(&self, effort: Effort) -> i64 {
        self.before / effort.error
    }
}

/// How many pairs are compared before it is asked whether it is worth comparing more.
const COMPARED: usize = 1024;

/// One of this number of promising pairs is aligned for that.
const SAMPLED: usize = 4;

impl<'a> Pairing<'a> {
    /// `sketches` are those that are known already.
    pub fn new(counts: &'a PrimaryMap<FunctionIndex, Counts>, sketches: Sketches) -> Self {
        let (outlines, known) = Default::default();
        Pairing { counts, sketches, outlines, known }
    }

    /// Pairs of these functions that were not found before and may save `share`. Reads each new
    /// function up to three times; linear in their sizes, and in the number of pairs. `sizes` are
    /// predicted bytes.
    pub fn pairs(
        &mut self,
        functions: &[FunctionIndex],
        sizes: &mut ByFunction<Option<i64>>,
        plan: &Plan,
        bodies: &mut dyn Bodies,
        options: &Options<'_>,
        (share, effort): (Share, Effort),
    ) -> Vec<Pair> {
        let symbols = CalledSymbols(plan);
        let model = options.target.size_model;
        self.read(functions, plan, bodies);
        let Pairing { sketches, outlines, known, .. } = self;
        let of = |function| sketches.get(function)?.as_ref();
        let of: Vec<Option<&Sketch>> = functions.iter().map(of).collect();
        let found = sketch::pairs(&of, effort);
        let mut pairs: Vec<[FunctionIndex; 2]> =
            found.iter().map(|pair| pair.functions.map(|at| functions[at as usize])).collect();
        pairs.retain(|pair| known.insert(*pair));
        let mut promising: Vec<Pair> = Vec::new();
        let is_promising =
            |pair: &Pair| share.is_reached(pair.saved + pair.error(effort), pair.before);
        for compared in pairs.chunks(COMPARED) {
            let new = unknown(compared.iter().copied(), outlines);
            outlines.extend(chunked(bodies, new, |bodies, memory: &mut Memory, function| {
                let context = context(plan, function, &symbols, options);
                (function, memory.outline(not_redirected(plan, bodies, function), &context))
            }));
            let of_pair = |functions: [FunctionIndex; 2]| {
                let [a, b] = functions.map(|function| outlines[&function].as_ref());
                Some([a?, b?])
            };
            let resembling = chunked(bodies, compared.to_vec(), |_, (): &mut (), functions| {
                let alike = Resemblance::at_most(of_pair(functions)?)?;
                // Of sizes that are too small, gaps would take too large a part.
                let without_gaps = Resemblance { gaps: 0, ..alike };
                is_promising(&without_gaps.saves(functions, alike.least()))
                    .then_some((functions, alike))
            });
            let resembling: Vec<([FunctionIndex; 2], Resemblance)> =
                resembling.into_iter().flatten().collect();
            let new = unknown(resembling.iter().map(|(functions, _)| *functions), sizes);
            sizes.extend(chunked(bodies, new, |bodies, scratch, function| {
                let func = not_redirected(plan, bodies, function);
                let predicted = model.and_then(|model| model.predict_with(func, scratch));
                (function, predicted.map(i64::from))
            }));
            let saves = |functions: [FunctionIndex; 2], alike: &Resemblance| {
                let [a, b] = functions.map(|function| sizes[&function]);
                Some(alike.saves(functions, [a?, b?])).filter(is_promising)
            };
            let estimated = chunked(bodies, resembling, |_, (): &mut (), (functions, alike)| {
                let most = alike.most_differing(|fewer| saves(functions, fewer).is_some())?;
                Some(Pair { most: Some(most), ..saves(functions, &alike)? })
            });
            let mut found: Vec<Pair> = estimated.into_iter().flatten().collect();
            let is_few = |found: usize| cost::is_few(found, compared.len(), effort.promising);
            let mut few = is_few(found.len());
            // The others may be less promising than they look, too; alignments of a part of them
            // estimate in which proportion.
            if !few && effort.promising > 0 {
                let mut number = 0..;
                let is_sampled = |_: &mut Pair| number.next().is_some_and(|at| at % SAMPLED == 0);
                let some = found.extract_if(.., is_sampled).collect();
                let mut some = aligned(some, outlines, sizes, bodies);
                some.retain(is_promising);
                few = is_few(SAMPLED * some.len());
                found.extend(some);
            }
            promising.extend(found);
            // Those that come later have less in common.
            if few {
                break;
            }
        }
        promising
    }

    /// Aligns pairs that are not aligned yet, and finds what they save. Leaves out those that save
    /// too little.
    pub fn align(
        &self,
        pairs: Vec<Pair>,
        sizes: &ByFunction<Option<i64>>,
        bodies: &mut dyn Bodies,
    ) -> Vec<Pair> {
        aligned(pairs, &self.outlines, sizes, bodies)
    }

    /// The outline of a function of a pair, as it was before its calls went to other functions.
    pub fn outline(&self, function: FunctionIndex) -> Option<&Outline> {
        self.outlines.get(&function)?.as_ref()
    }

    /// The number of instructions of a function, unreachable ones included.
    pub fn instructions(&self, plan: &Plan, function: FunctionIndex) -> usize {
        self.counts(plan, function).instructions as usize
    }

    /// Counts the functions that were read.
    pub fn count(&self, similar: &mut SimilarCounts) {
        similar.scans += self.sketches.len();
        similar.outlines += self.outlines.len();
    }

    /// Those of a function that the embedder has, or of a body that the plan adds.
    fn counts(&self, plan: &Plan, function: FunctionIndex) -> Counts {
        match plan.parameterised_body(function) {
            Some(body) => Counts::of(body, plan.entry(function).attributes().key),
            None => self.counts[function],
        }
    }

    /// Reads the functions that may resemble another one and were not read before.
    fn read(&mut self, functions: &[FunctionIndex], plan: &Plan, bodies: &mut dyn Bodies) {
        let counted = functions.iter().map(|&function| (function, self.counts(plan, function)));
        let mut new = with_companions(counted.collect());
        new.retain(|(function, _)| !self.sketches.contains_key(function));
        self.sketches.extend(chunked(bodies, new, |bodies, (): &mut (), (function, counts)| {
            (function, Sketch::of(not_redirected(plan, bodies, function), counts))
        }));
    }
}

fn aligned(
    pairs: Vec<Pair>,
    outlines: &ByFunction<Option<Outline>>,
    sizes: &ByFunction<Option<i64>>,
    bodies: &mut dyn Bodies,
) -> Vec<Pair> {
    let aligned = chunked(bodies, pairs, |_, (): &mut (), pair| {
        let Pair { functions, most, .. } = pair;
        let [a, b] = functions.map(|function| outlines[&function].as_ref());
        let [p, q] = functions.map(|function| sizes[&function]);
        let outlines = [a?, b?];
        let Alignment { common, gaps, .. } = blocks::align(outlines, most?)?;
        let instructions = outlines.map(|outline| outline.insts.len());
        Some(Resemblance { instructions, common, gaps }.saves(functions, [p?, q?]))
    });
    aligned.into_iter().flatten().collect()
}

/// Memory of one thread that makes outlines.
pub(super) struct Memory {
    scratch: Scratch,
    encoding: Encoding,
}

impl Default for Memory {
    fn default() -> Self {
        Memory { scratch: Scratch::contents(), encoding: Encoding::default() }
    }
}

impl Memory {
    /// See [`Outline::of`].
    pub fn outline(&mut self, func: &Function, context: &Context<'_>) -> Option<Outline> {
        Outline::of(func, context, &mut self.scratch, &mut self.encoding)
    }
}

/// The symbols that calls go to after a plan, without the extra arguments that they pass.
struct CalledSymbols<'a>(&'a Plan);

impl ResolveSymbol for CalledSymbols<'_> {
    fn resolve(&self, _: &UserExternalName) -> Option<Resolved> {
        None
    }

    fn redirect(&self, symbol: &UserExternalName) -> Redirected {
        let to = self.0.call_symbol(symbol);
        let call = || Substitute { symbol: to.clone(), arguments: Arc::default() };
        Redirected { call: (to != symbol).then(call), address: None }
    }
}

/// Of functions with their counts those that have a companion: one with the same digest and a
/// similar number of instructions.
fn with_companions(mut counted: Vec<(FunctionIndex, Counts)>) -> Vec<(FunctionIndex, Counts)> {
    counted.retain(|(_, counts)| counts.instructions as usize >= cost::MIN_ALIGNED);
    counted
        .sort_unstable_by_key(|(function, counts)| (counts.digest, counts.instructions, *function));
    let near = |a: usize, b: usize| {
        let [(_, a), (_, b)] = [counted[a], counted[b]];
        a.digest == b.digest && (b.instructions - a.instructions) as usize <= cost::MAX_DIFFERING
    };
    let has = |at: usize| at > 0 && near(at - 1, at) || at + 1 < counted.len() && near(at, at + 1);
    (0..counted.len()).filter(|&at| has(at)).map(|at| counted[at]).collect()
}

/// The functions of pairs of which something is not known yet, each once.
fn unknown<T>(
    pairs: impl Iterator<Item = [FunctionIndex; 2]>,
    known: &ByFunction<T>,
) -> Vec<FunctionIndex> {
    let mut functions: Vec<FunctionIndex> = pairs.flatten().collect();
    functions.retain(|function| !known.contains_key(function));
    functions.sort_unstable();
    functions.dedup();
    functions
}

/// How much two functions have in common.
#[derive(Clone, Copy)]
struct Resemblance {
    /// The instructions of each.
    instructions: [usize; 2],
    common: usize,
    gaps: usize,
}

impl Resemblance {
    /// No alignment finds more in common, or fewer gaps: whatever the order of instructions within
    /// blocks. `None` if the functions differ in too much, or in what is no instruction, such as
    /// where branches go.
    fn at_most([a, b]: [&Outline; 2]) -> Option<Resemblance> {
        let (mut common, mut gaps) = (0, 0);
        if a.blocks() != b.blocks() || a.header() != b.header() {
            return None;
        }
        for number in 0..a.blocks() {
            if a.head(number) != b.head(number) || a.branch(number) != b.branch(number) {
                return None;
            }
            let (a, b) = (a.sorted(number), b.sorted(number));
            let both = in_common(a, b);
            common += both;
            gaps += usize::from(a.len() + b.len() > 2 * both);
        }
        let instructions = [a.insts.len(), b.insts.len()];
        let differing = instructions[0] + instructions[1] - 2 * common;
        let few = differing <= cost::MAX_DIFFERING && gaps <= cost::MAX_GAPS;
        few.then_some(Resemblance { instructions, common, gaps })
    }

    /// How many instructions may be in gaps, if functions that have so much less in common are
    /// still `enough`. `None` if these are not.
    fn most_differing(&self, enough: impl Fn(&Resemblance) -> bool) -> Option<usize> {
        let all: usize = self.instructions.iter().sum();
        let with = |differing: usize| Resemblance { common: (all - differing) / 2, ..*self };
        let least = all - 2 * self.common;
        let (mut fits, mut too_many) = (least, cost::MAX_DIFFERING.min(all) + 1);
        if !enough(self) {
            return None;
        }
        while too_many - fits > 1 {
            let between = fits.midpoint(too_many);
            match enough(&with(between)) {
                true => fits = between,
                false => too_many = between,
            }
        }
        Some(fits)
    }

    /// The bytes that the functions take at least.
    fn least(&self) -> [i64; 2] {
        self.instructions.map(|count| cost::LEAST_INSTRUCTION * count as i64)
    }

    /// The estimated saving of a body for two functions of these sizes.
    fn saves(&self, functions: [FunctionIndex; 2], [a, b]: [i64; 2]) -> Pair {
        let all: usize = self.instructions.iter().sum();
        let common = (a + b) * self.common as i64 / all.max(1) as i64;
        let saved = (cost::ALIGNED_COMMON * common
            + cost::ALIGNED_FRAME * a.min(b).min(cost::MAX_ALIGNED_FRAME))
            / 16;
        let saved = saved - cost::ALIGNED_GAP * self.gaps as i64;
        Pair { functions, before: a + b, saved, most: None }
    }
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
