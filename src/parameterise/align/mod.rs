//! Functions with one control-flow graph that differ in few instructions.
//!
//! Similar functions have equal shapes; the functions here have none. [`align`] looks at what a
//! plan keeps, parameterised bodies included, and reads as the list of the phases:
//!
//! * find pairs of functions with the same signature and control-flow graph and many equal opcodes
//!   (`pairs`, `sketch`);
//! * align their instructions, block by block (`outline`, `blocks`, `diff`), and take the pairs
//!   first of which most is estimated to be saved;
//! * compare aligned instructions, by content, and make one body, which receives a selector and
//!   branches where they differ (`body`, `copying`);
//! * predict its size, and those of the two functions, and accept it if it pays.
//!
//! A selector is an extra argument like any other, so the dispositions of the two
//! functions and of their callers, and the proof, are as with parameters.
//!
//! It pairs each function once, does *not* reorder instructions, and does not align control-flow
//! graphs that differ (as SalSSA does, whose bodies run slower and whose search takes several times
//! as long as compiling). With [`Policy::Balanced`], arms must be rare in loops (`speed`), and
//! fewer pairs are tried ([`Effort`]).

mod blocks;
mod body;
mod copying;
mod diff;
mod guards;
mod outline;
mod pairs;
mod removed;
mod sketch;
mod speed;

use super::body::{as_passed, fold_branches};
use super::cost::{Effort, Share};
use super::frequencies::{Frequencies, is_thunk_fast};
use super::probe::{OwnSizes, Probed, Sizes};
use super::workbench::{Member, Workbench, is_cheaper};
use super::{context, cost, is_candidate, order};
use crate::apply::emitted;
use crate::canon::{self, Counts, Encoding, Scratch};
use crate::congruence::Encodings;
use crate::extra_argument::ExtraArgument;
use crate::lists::Lists;
use crate::options::{Instructions, Options, Policy};
use crate::plan::{Disposition, Plan, SimilarSet};
use crate::threads::{Pool, for_each};
use crate::unit::{Bodies, FunctionIndex, NoUnit};
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use blocks::{Aligned, Alignment};
use core::cmp::Reverse;
use cranelift_codegen::ir::{Function, Signature, types};
use cranelift_entity::{EntityRef, EntitySet, PrimaryMap, SecondaryMap};
use cranelift_size_model::{self as size, SizeModel};
use hashbrown::HashMap;
use outline::Outline;
pub(crate) use pairs::Sketches;
use pairs::{ByFunction, Pair, Pairing};
use removed::remove_merged_bodies;
use rustc_hash::FxBuildHasher;
pub(crate) use sketch::Sketch;

/// Merges functions that differ in few instructions, as far as that makes the unit smaller.
///
/// Sizes are predicted: where the target has no model, nothing is merged.
pub(crate) fn align(
    workbench: &mut Workbench<'_>,
    encodings: &Encodings,
    counts: &PrimaryMap<FunctionIndex, Counts>,
    sketches: Sketches,
) {
    let options = workbench.options;
    let (Some(model), Some(effort)) = (options.target.size_model, effort(options)) else {
        return;
    };
    if workbench.limit == 0 {
        return;
    }
    let (limited, probed, least) = Default::default();
    let pairing = Pairing::new(counts, sketches);
    let share = Share::of(options.similar.policy);
    let mut aligning =
        Aligning { workbench, encodings, limited, pairing, probed, least, model, share, effort };
    let mut rounds = 0..effort.rounds;
    while rounds.next().is_some() && aligning.round() {}
    aligning.pairing.count(&mut aligning.workbench.plan.stats_mut().similar);
    // Functions keep their numbers until the last round.
    remove_merged_bodies(workbench.plan);
}

/// How much is done to find functions that differ in few instructions; `None` if they are not
/// merged.
pub(super) fn effort(options: &Options<'_>) -> Option<Effort> {
    match (options.similar.policy, options.similar.instructions) {
        _ if options.compare.debug_info => None,
        (Policy::Off, _) | (_, Instructions::None) => None,
        (Policy::Size, Instructions::Select) => Some(cost::THOROUGH),
        (Policy::Balanced, Instructions::Select) => Some(cost::QUICK),
    }
}

struct Aligning<'a, 'b> {
    workbench: &'a mut Workbench<'b>,
    encodings: &'a Encodings,
    /// Whether a pair was left out because of the limit.
    limited: bool,
    pairing: Pairing<'a>,
    probed: OwnSizes,
    /// The bytes in which each function passes a selector in this round.
    least: HashMap<FunctionIndex, Option<i64>, FxBuildHasher>,
    model: SizeModel,
    /// How much each body must save.
    share: Share,
    effort: Effort,
}

/// Two functions, and a body for both.
struct Try {
    functions: [FunctionIndex; 2],
    merged: Option<Merge>,
}

struct Merge {
    /// That of both functions.
    signature: Signature,
    /// Whether each function can observe its caller.
    observes: [bool; 2],
    body: Function,
    arguments: [Arc<[ExtraArgument]>; 2],
    /// Bytes of the two functions together, and of the body.
    sizes: [i64; 2],
    /// How many instructions more a call of each function may execute in a thunk, if that matters.
    left: [Option<i64>; 2],
}

/// The disposition of a function of a pair, and its bytes.
#[derive(Clone, Copy)]
struct Outcome {
    thunk: bool,
    bytes: i64,
}

/// The number of pairs that are aligned at the same time.
const PAIRS_PER_BATCH: usize = 256;

impl Aligning<'_, '_> {
    /// Pairs each function once, with one with which it was not tried. Returns whether another
    /// round may save more.
    fn round(&mut self) -> bool {
        let plan = &*self.workbench.plan;
        let mut functions: Vec<FunctionIndex> = plan
            .entries()
            .map(|(function, _)| function)
            .filter(|&function| {
                let own = function.index() < plan.added();
                let is_there = own && !self.encodings.without_ir().functions.contains(function);
                let body = plan.parameterised_body(function).is_some();
                (is_there || body) && is_candidate(plan, function, self.workbench.options)
            })
            .collect();
        // Of those that resemble each other equally, the first ones are paired.
        functions.sort_unstable_by_key(|&function| order(plan, function));
        self.workbench.find_followers();
        self.least.clear();
        self.pair(&functions) && !self.limited
    }

    /// Merges pairs of these functions. Returns whether there are any.
    fn pair(&mut self, functions: &[FunctionIndex]) -> bool {
        let Workbench { plan, bodies, options, sizes, .. } = &mut *self.workbench;
        let what = (self.share, self.effort);
        let found = self.pairing.pairs(functions, sizes, plan, *bodies, options, what);
        let mut left: ByPlace = found.into_iter().map(|pair| (place(plan, &pair), pair)).collect();
        let mut merged: EntitySet<FunctionIndex> = EntitySet::new();
        let mut attempts: SecondaryMap<FunctionIndex, u32> = SecondaryMap::new();
        while !left.is_empty() && !self.limited {
            let is_open =
                |&it: &FunctionIndex| !merged.contains(it) && attempts[it] < self.effort.attempts;
            left.retain(|_, pair| pair.functions.iter().all(is_open));
            let mut now: Vec<Try> = Vec::new();
            for Pair { functions, .. } in self.choose(&mut left) {
                functions.iter().for_each(|&function| attempts[function] += 1);
                now.push(Try { functions, merged: None });
            }
            self.make(&mut now);
            let tried = now.len();
            let paying = self.judge(now);
            let few =
                tried >= cost::MIN_BATCH && cost::is_few(paying.len(), tried, self.effort.paying);
            for (functions, merge, outcomes, saved) in paying {
                // A limit does not cut into a pair, and no later one takes its place.
                let plan = &*self.workbench.plan;
                let own = |it: &&FunctionIndex| plan.parameterised_body(**it).is_none();
                let own = functions.iter().filter(own).count();
                let Some(left) = self.workbench.limit.checked_sub(own) else {
                    self.limited = true;
                    break;
                };
                if self.accept(functions, merge, outcomes, saved) {
                    merged.insert(functions[0]);
                    merged.insert(functions[1]);
                    self.workbench.limit = left;
                }
            }
            // Later pairs save less than these.
            if few {
                break;
            }
        }
        !merged.is_empty()
    }

    /// The pairs that save most, each function in one of them. Upper bounds of alignments say which
    /// pairs need one.
    fn choose(&mut self, pairs: &mut ByPlace) -> Vec<Pair> {
        loop {
            let mut open = take_first(pairs, |pair| pair.most.is_some());
            if open.is_empty() {
                return take_first(pairs, |_| true);
            }
            open.retain(|pair| self.may_be_worth_it(pair));
            let Workbench { bodies, sizes, .. } = &mut *self.workbench;
            let mut aligned = self.pairing.align(open, sizes, *bodies);
            aligned.retain(|pair| self.may_be_worth_it(pair));
            let plan = &*self.workbench.plan;
            pairs.extend(aligned.into_iter().map(|pair| (place(plan, &pair), pair)));
        }
    }

    /// Whether a body for a pair may save enough, less what a selector costs each of the two.
    fn may_be_worth_it(&mut self, pair: &Pair) -> bool {
        let &Pair { functions, before, saved, .. } = pair;
        let mut cost = 0;
        for function in functions {
            if !self.least.contains_key(&function) {
                let least = self.least(function);
                self.least.insert(function, least);
            }
            let Some(least) = self.least[&function] else {
                return false;
            };
            cost += least;
        }
        self.share.is_reached(saved + pair.error(self.effort) - cost, before)
    }

    /// The bytes that it takes for a function to pass a selector, at least. `None` if it cannot.
    fn least(&mut self, function: FunctionIndex) -> Option<i64> {
        let Outline { signature, observes_its_frame, .. } = self.pairing.outline(function)?;
        let (signature, observes) = (signature.clone(), *observes_its_frame);
        let selector = ExtraArgument::Constant { ty: types::I32, bits: 0 };
        let arguments = as_passed(alloc::vec![selector], &signature, self.workbench.options);
        let outcome = self.outcome(function, &signature, observes, &arguments, None);
        outcome.map(|outcome| outcome.bytes)
    }

    /// Aligns the functions of each pair and makes their body.
    fn make(&mut self, tries: &mut [Try]) {
        let Aligning { workbench, pairing, model, share, .. } = self;
        let Workbench { plan, bodies, options, merged_into, sizes, .. } = &mut **workbench;
        for_each(
            *bodies,
            &Pool::<(Scratch, pairs::Memory, size::Scratch)>::default(),
            tries,
            |bodies, (scratch, outlining, predicting), Try { functions, merged }| {
                let unit = (&**plan, *options);
                let known = (&*pairing, &*sizes);
                let [Some(a), Some(b)] = functions
                    .map(|function| Original::of(unit, bodies, known, function, outlining))
                else {
                    return;
                };
                let mut originals = [a, b];
                // The body must not depend on the order in which functions were added.
                let mut encode = |side: usize| {
                    let context = context(plan, functions[side], &NoUnit, options);
                    let mut encoding = Encoding::default();
                    let func = &originals[side].func;
                    let walked = canon::encode(func, &context, scratch, &mut encoding);
                    walked.ok().map(|()| encoding)
                };
                let contents = originals.each_ref().map(|original| original.outline.contents());
                let order = contents[1].cmp(contents[0]);
                if order.then_with(|| encode(1).cmp(&encode(0))).is_lt() {
                    originals.swap(0, 1);
                    functions.swap(0, 1);
                }
                let two = originals.each_ref().map(|original| &original.func);
                let outlines = originals.each_ref().map(|original| &*original.outline);
                let extra = functions.map(|function| extra_parameters(plan, merged_into, function));
                let Some(alignment) = blocks::align(outlines, cost::MAX_DIFFERING) else {
                    return;
                };
                let fast = options.similar.policy != Policy::Balanced
                    || speed::is_kept(two[0], outlines[0], &alignment);
                if !fast || !blocks::corresponds(two, outlines, extra, &alignment) {
                    return;
                }
                let Some(body::Merged { body, arguments }) =
                    body::merged(two, outlines, &alignment, options)
                else {
                    return;
                };
                let few = arguments[0].len() <= cost::MAX_ALIGNED_ARGUMENTS;
                let few = few && body.signature.params.len() <= cost::MAX_PARAMETERS;
                // Functions that are equal, and were not merged nevertheless, have nothing to pass.
                if few && !arguments[0].is_empty() {
                    let mut size =
                        |func: &Function| model.predict_with(func, predicting).map(i64::from);
                    let Some(of_body) = size(&body) else {
                        return;
                    };
                    let own = originals.each_ref().map(|it| it.bytes.or_else(|| size(&it.func)));
                    // Most do not pay, and a batch has 256 pairs.
                    if let [Some(a), Some(b)] = own
                        && share.is_reached(a + b - of_body, a + b)
                    {
                        let sizes = [a + b, of_body];
                        let signature = originals[0].func.signature.clone();
                        let observes = outlines.map(|outline| outline.observes_its_frame);
                        let left = match options.similar.policy {
                            Policy::Balanced => {
                                [0, 1].map(|side| Some(left(two[side], outlines[side], &alignment)))
                            }
                            Policy::Off | Policy::Size => [None; 2],
                        };
                        *merged = Some(Merge { signature, observes, body, arguments, sizes, left });
                    }
                }
            },
        );
    }

    /// The pairs that pay, each with the dispositions of its functions and the saved bytes.
    fn judge(&mut self, tries: Vec<Try>) -> Vec<([FunctionIndex; 2], Merge, [Outcome; 2], i64)> {
        let mut paying = Vec::new();
        for Try { functions, merged } in tries {
            let similar = &mut self.workbench.plan.stats_mut().similar;
            similar.copies += functions.len();
            let Some(merge) = merged else {
                continue;
            };
            similar.copies += 1;
            similar.tried += 1;
            let outcomes = [0, 1].map(|side| {
                let (observes, arguments) = (merge.observes[side], &merge.arguments[side]);
                self.outcome(
                    functions[side],
                    &merge.signature,
                    observes,
                    arguments,
                    merge.left[side],
                )
            });
            if let [Some(a), Some(b)] = outcomes {
                let [before, body] = merge.sizes;
                let saved = before - body - a.bytes - b.bytes;
                match self.share.is_reached(saved, before) {
                    true => paying.push((functions, merge, [a, b], saved)),
                    false => self.record_unmerged(functions, merge.arguments[0].len(), saved),
                }
            }
        }
        paying
    }

    /// The disposition of a function if it passes these arguments to a body, where a call of a
    /// thunk may execute `left` instructions more, or any number. `None` if it cannot.
    fn outcome(
        &mut self,
        function: FunctionIndex,
        signature: &Signature,
        observes: bool,
        arguments: &[ExtraArgument],
        left: Option<i64>,
    ) -> Option<Outcome> {
        let none = Probed::default();
        let Workbench { plan, options, uses, merged_into, .. } = &mut *self.workbench;
        let (options, model) = (*options, self.model);
        let mut sizes = Sizes { options, model, known: &none, own: &mut self.probed };
        let zeros = sizes.passing_zeros(signature, arguments.iter().map(ExtraArgument::ty))?;
        let passing = sizes.passing(signature, zeros, arguments)?;
        let count = uses.calls(function);
        let calls = i64::from(passing) * i64::from(count);
        if plan.parameterised_body(function).is_none() {
            let keeps_symbol = uses.must_keep_symbol(plan, function).is_some();
            // Callers that pass extra arguments to it cannot pass them to its thunk.
            let thunk = match extra_parameters(plan, merged_into, function) {
                0 if keeps_symbol || count > 1 => sizes.thunk(signature, arguments, observes),
                _ => None,
            };
            let thunk = thunk.map(i64::from);
            let is_fast = is_thunk_fast(left, keeps_symbol, &sizes, signature, arguments);
            let thunk = thunk.filter(|_| is_fast);
            return match (keeps_symbol, thunk) {
                (true, None) => None,
                (true, Some(bytes)) => Some(Outcome { thunk: true, bytes }),
                (false, Some(bytes)) if is_cheaper(bytes, calls, count) => {
                    Some(Outcome { thunk: true, bytes })
                }
                (false, _) => Some(Outcome { thunk: false, bytes: calls }),
            };
        }
        if uses.is_named(function) {
            return None;
        }
        let mut bytes = calls;
        let members = merged_into.get(function.as_u32() as usize).iter();
        for member in members.copied().map(FunctionIndex::from_u32) {
            let entry = plan.entry(member);
            if let Disposition::Thunk { to: _ } = entry.disposition() {
                let before = entry.extra_arguments();
                let own = signature.params.len() - before.len();
                let signature =
                    Signature { params: signature.params[..own].to_vec(), ..signature.clone() };
                let after: Vec<ExtraArgument> = before.iter().chain(arguments).cloned().collect();
                let after = sizes.thunk(&signature, &after, observes)?;
                let before = sizes.thunk(&signature, before, observes)?;
                bytes += i64::from(after) - i64::from(before);
            }
        }
        Some(Outcome { thunk: false, bytes })
    }

    /// Writes a pair into the plan. Returns whether the body has a symbol.
    fn accept(
        &mut self,
        functions: [FunctionIndex; 2],
        merge: Merge,
        outcomes: [Outcome; 2],
        saved: i64,
    ) -> bool {
        let Merge { signature: _, observes: _, body, arguments, sizes: [_, bytes], left: _ } =
            merge;
        let parameters = arguments[0].len();
        let members = functions.into_iter().zip(arguments).zip(outcomes);
        let members: Vec<Member> = members
            .map(|((function, arguments), outcome)| Member {
                function,
                arguments,
                thunk: outcome.thunk,
            })
            .collect();
        let Some((symbol, functions)) = self.workbench.fresh_symbol(&members) else {
            return false;
        };
        // It grew while it was made; a copy takes no more memory than it needs.
        let to = self.workbench.accept(&members, symbol, body.clone());
        self.workbench.sizes.insert(to, Some(bytes));
        self.record(functions, parameters, Some(to), saved);
        true
    }

    /// Notes, for who asks what could be merged, two functions of the unit whose body saves bytes,
    /// but too few.
    fn record_unmerged(&mut self, functions: [FunctionIndex; 2], parameters: usize, saved: i64) {
        let is_own = |function: &FunctionIndex| function.index() < self.workbench.plan.added();
        if saved > 0 && functions.iter().all(is_own) {
            self.record(functions.to_vec(), parameters, None, saved);
        }
    }

    fn record(
        &mut self,
        mut members: Vec<FunctionIndex>,
        parameters: usize,
        body: Option<FunctionIndex>,
        saved: i64,
    ) {
        let plan = &mut *self.workbench.plan;
        members.sort_unstable_by_key(|&function| order(plan, function));
        let saved = Some(saved);
        plan.record_similar(SimilarSet { members, parameters, has_selector: true, body, saved });
    }
}

/// How many instructions more a call of `func` may execute, one of two functions that are aligned,
/// apart from those of the body.
fn left(func: &Function, outline: &Outline, alignment: &Alignment) -> i64 {
    let arms = alignment.blocks.iter().enumerate().map(|(number, parts)| {
        let (block, _) = outline.block(number);
        let arms = parts.iter().filter(|part| matches!(part, Aligned::Gap(_))).count();
        (block, arms as i64 * cost::ARM)
    });
    Frequencies::of(func).left(arms)
}

/// A function of a pair, as the plan leaves it so far.
struct Original<'a> {
    func: Function,
    outline: Cow<'a, Outline>,
    /// Predicted bytes, if they are known.
    bytes: Option<i64>,
}

impl<'a> Original<'a> {
    /// `None` if it cannot be aligned.
    fn of(
        (plan, options): (&Plan, &Options<'_>),
        bodies: &mut dyn Bodies,
        (pairing, sizes): (&'a Pairing, &ByFunction<Option<i64>>),
        function: FunctionIndex,
        outlining: &mut pairs::Memory,
    ) -> Option<Original<'a>> {
        let instructions = pairing.instructions(plan, function);
        let mut func = emitted(plan, bodies, function);
        let folds = fold_branches(&mut func);
        let context = context(plan, function, &NoUnit, options);
        // Calls that pass nothing more go to other functions only: functions that are equal before
        // are equal after it.
        let (outline, bytes) = match folds || func.dfg.num_insts() != instructions {
            true => (Cow::Owned(outlining.outline(&func, &context)?), None),
            false => (Cow::Borrowed(pairing.outline(function)?), *sizes.get(&function)?),
        };
        Some(Original { func, outline, bytes })
    }
}

/// The order of pairs: those that save most first.
type Place = (Reverse<i64>, [(u32, u32); 2]);
type ByPlace = BTreeMap<Place, Pair>;

fn place(plan: &Plan, pair: &Pair) -> Place {
    (Reverse(pair.saved), pair.functions.map(|function| order(plan, function)))
}

/// Of the first pairs that have no function in common, takes out some. Looks at no later ones:
/// there can be many.
fn take_first(pairs: &mut ByPlace, which: impl Fn(&Pair) -> bool) -> Vec<Pair> {
    let mut taken: EntitySet<FunctionIndex> = EntitySet::new();
    let apart = pairs.iter().filter(|(_, pair)| {
        let is_apart = !pair.functions.iter().any(|&it| taken.contains(it));
        if is_apart {
            taken.extend(pair.functions);
        }
        is_apart
    });
    let first = apart.take(PAIRS_PER_BATCH).filter(|(_, pair)| which(pair));
    let places: Vec<Place> = first.map(|(place, _)| *place).collect();
    places.iter().filter_map(|place| pairs.remove(place)).collect()
}

/// How many of the parameters of a function are extra arguments for functions merged into it.
fn extra_parameters(plan: &Plan, merged_into: &Lists<u32>, function: FunctionIndex) -> usize {
    let members = merged_into.get(function.as_u32() as usize).iter();
    let passed =
        |&member: &u32| plan.entry(FunctionIndex::from_u32(member)).extra_arguments().len();
    members.map(passed).max().unwrap_or(0)
}
