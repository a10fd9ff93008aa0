//! Functions with one control-flow graph that differ in few instructions.
//!
//! Similar functions have equal shapes; what is left has none. [`align`] looks at what a plan keeps, parameterised bodies
//! included, and reads as the list of the phases:
//!
//! * find pairs of functions with the same signature and control-flow graph and many equal opcodes (`pairs`, `sketch`);
//! * align their instructions, block by block (`outline`, `blocks`, `diff`), and take the pairs first of which most is
//!   estimated to be saved;
//! * compare what is aligned, by content (`entities`), and make one body, which receives a selector and branches where they differ (`body`);
//! * ask for its size, and for those of the two functions, and accept it if it pays;
//! * compare the sizes of all functions that changed, and keep the plan as it was unless they are smaller.
//!
//! A selector is an extra argument like any other, so what becomes of the two functions, of their callers and of the
//! functions that the checker proves is the same as with parameters.
//!
//! What it does *not* do: it pairs each function once, does not reorder instructions, and does not align control-flow
//! graphs that differ (as SalSSA does, whose bodies run slower and whose search takes several times as long as
//! compiling). With [`Policy::Balanced`], sizes are predicted, arms must be rare in loops (`speed`), and fewer pairs are
//! tried ([`Effort`]).

mod blocks;
mod body;
mod diff;
mod entities;
mod guards;
mod outline;
mod pairs;
mod removed;
mod sketch;
mod speed;

use super::accept::{add_body, is_cheaper, outcome};
use super::attempts::Share;
use super::body::{as_passed, fold_branches};
use super::cost::Effort;
use super::probe::{OwnSizes, Probed, Request, Sizes, Source};
use super::uses::Uses;
use super::{context, cost, is_candidate, merged_into, merges_left, order, smaller};
use crate::apply::{compared, not_redirected};
use crate::canon::{self, Encoding, Scratch};
use crate::congruence::Encodings;
use crate::extra_argument::ExtraArgument;
use crate::ir::observes_its_frame;
use crate::lists::Lists;
use crate::options::{Compare, Instructions, Options, Policy};
use crate::plan::{Disposition, Plan, SimilarSet};
use crate::size;
use crate::threads::{Pool, for_each};
use crate::unit::{Bodies, Candidate, CandidateToken, FunctionIndex, Item, NoUnit, Observed};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;
use cranelift_codegen::ir::{Function, Signature, UserExternalName, UserFuncName, types};
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};
use hashbrown::HashMap;
use outline::Outline;
use pairs::{Pair, Pairing};
use removed::remove_merged_bodies;
use rustc_hash::FxBuildHasher;

/// Merges functions that differ in few instructions, as far as that makes the unit smaller.
///
/// `tokens` are those given to candidates before. Reads every kept function twice, and, unless sizes are predicted, compiles
/// the functions of each pair that is tried, and their body.
pub(crate) fn align(
    plan: &mut Plan,
    observed: &Observed,
    encodings: &Encodings,
    tokens: u32,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
) {
    let compiled = encodings.compiled();
    let policy = &options.compare;
    let metadata =
        [policy.source_locations, policy.debug_tags, policy.value_labels, policy.constant_branches];
    let source = Source::of(options, bodies);
    let wanted = match (options.similar.policy, options.similar.instructions) {
        (Policy::Off, _) | (_, Instructions::None) => false,
        (Policy::Balanced | Policy::Size, Instructions::Select) => true,
    };
    if !wanted
        || matches!(source, Source::Unknown)
        || metadata.contains(&Compare::Compare)
        || !compiled.functions.is_empty()
    {
        return;
    }
    let mut known: EntitySet<FunctionIndex> = EntitySet::new();
    for (function, _) in plan.entries() {
        if !compiled.callees.contains(function) {
            known.insert(function);
        }
    }
    let uses = Uses::of(known, plan, observed, compiled, bodies, options.similar.keep_symbols);
    let (limit, callee) = (merges_left(plan, options), bodies.probe_callee());
    let (share, effort) = match options.similar.policy {
        Policy::Size => (Share::Anything, cost::THOROUGH),
        Policy::Balanced | Policy::Off => (Share::Eighth, cost::QUICK),
    };
    let mut aligning = Aligning {
        next_class: plan.classes(),
        plan,
        bodies,
        options,
        uses,
        merged_into: Lists::new(),
        limit,
        limited: false,
        tokens,
        pairing: Pairing::default(),
        probed: OwnSizes::default(),
        least: HashMap::default(),
        sizes: HashMap::default(),
        callee,
        source,
        share,
        effort,
    };
    let mut rounds = 0..effort.rounds;
    while rounds.next().is_some() && aligning.round() {}
    // Functions keep their numbers until the last round.
    remove_merged_bodies(plan, options);
    plan.count();
}

struct Aligning<'a> {
    plan: &'a mut Plan,
    bodies: &'a mut dyn Bodies,
    options: &'a Options<'a>,
    /// As they were before the first round, and those of new bodies.
    uses: Uses,
    /// What was merged into each function before the round.
    merged_into: Lists<u32>,
    /// The number of the next class.
    next_class: u32,
    /// How many more functions may be merged.
    limit: usize,
    /// Whether a pair was left out because of that.
    limited: bool,
    /// The last token given to a candidate.
    tokens: u32,
    pairing: Pairing,
    probed: OwnSizes,
    /// What it takes each function to pass a selector in this round, in bytes.
    least: HashMap<FunctionIndex, Option<i64>, FxBuildHasher>,
    /// Bytes of functions as the plan leaves them in this round.
    sizes: HashMap<FunctionIndex, Option<u32>, FxBuildHasher>,
    /// The function that probes call, and the name of candidates.
    callee: UserExternalName,
    source: Source,
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
    originals: [Function; 2],
    body: Function,
    arguments: [Arc<[ExtraArgument]>; 2],
    /// Bytes of the two functions and of the body; predicted at first.
    sizes: Option<[i64; 3]>,
    token: Option<CandidateToken>,
}

/// What becomes of a function of a pair, and the bytes that takes.
#[derive(Clone, Copy)]
struct Outcome {
    thunk: bool,
    bytes: i64,
}

/// How many pairs are in hand at the same time.
const IN_HAND: usize = 256;

impl Aligning<'_> {
    /// Pairs each function once, with one with which it was not tried. Returns whether another round may save more.
    fn round(&mut self) -> bool {
        let plan = &*self.plan;
        let mut functions: Vec<FunctionIndex> = plan
            .entries()
            .map(|(function, _)| function)
            .filter(|&function| {
                let own = function.index() < plan.added();
                let body = plan.parameterised_body(function).is_some();
                (own || body) && is_candidate(plan, function, self.options)
            })
            .collect();
        // Of those that resemble each other equally, the first ones are paired.
        functions.sort_unstable_by_key(|&function| order(plan, function));
        self.merged_into = merged_into(plan);
        self.sizes.clear();
        self.least.clear();
        let before = match self.options.similar.policy {
            Policy::Size => Some(self.plan.clone()),
            Policy::Balanced | Policy::Off => None,
        };
        let any = self.pair(&functions);
        if let Some(before) = before
            && any
            && smaller::compare(&before, self.plan, self.bodies, self.options) != Ordering::Less
        {
            *self.plan = before;
            return false;
        }
        any && !self.limited
    }

    /// Merges pairs of these functions. Returns whether there are any.
    fn pair(&mut self, functions: &[FunctionIndex]) -> bool {
        let (plan, bodies) = (&*self.plan, &mut *self.bodies);
        let (options, share, effort) = (self.options, self.share, self.effort);
        let mut left = self.pairing.pairs(functions, plan, bodies, options, share, effort);
        left.retain(|pair| self.may_be_worth_it(pair));
        let mut merged: EntitySet<FunctionIndex> = EntitySet::new();
        let mut attempts: SecondaryMap<FunctionIndex, u32> = SecondaryMap::new();
        while !left.is_empty() && !self.limited {
            let mut now: Vec<Try> = Vec::new();
            let mut in_hand = merged.clone();
            left.retain(|&Pair { functions, .. }| {
                let taken = |set: &EntitySet<_>| functions.iter().any(|&it| set.contains(it));
                let is_tried = |&it: &FunctionIndex| attempts[it] == self.effort.attempts;
                if taken(&merged) || functions.iter().any(is_tried) {
                    return false;
                }
                if taken(&in_hand) || now.len() == IN_HAND {
                    return true;
                }
                for function in functions {
                    in_hand.insert(function);
                    attempts[function] += 1;
                }
                now.push(Try { functions, merged: None });
                false
            });
            self.make(&mut now);
            let tried = now.len();
            let paying = self.judge(now);
            let few =
                tried >= cost::MIN_BATCH && cost::is_few(paying.len(), tried, self.effort.paying);
            for (functions, merge, outcomes, saved) in paying {
                // A limit does not cut into a pair, and no later one takes its place.
                let own =
                    |function: &&FunctionIndex| self.plan.parameterised_body(**function).is_none();
                let Some(left) = self.limit.checked_sub(functions.iter().filter(own).count())
                else {
                    self.limited = true;
                    break;
                };
                if self.accept(functions, merge, outcomes, saved) {
                    merged.insert(functions[0]);
                    merged.insert(functions[1]);
                    self.limit = left;
                }
            }
            // Later pairs save less than these.
            if few {
                break;
            }
        }
        !merged.is_empty()
    }

    /// Whether a body for a pair may save enough, less what a selector costs each of the two.
    fn may_be_worth_it(&mut self, pair: &Pair) -> bool {
        let &Pair { functions, before, saved } = pair;
        let mut cost = 0;
        for function in functions {
            let least = match self.least.get(&function) {
                Some(&least) => least,
                None => {
                    let least = self.least(function);
                    self.least.insert(function, least);
                    least
                }
            };
            let Some(least) = least else {
                return false;
            };
            cost += least;
        }
        self.share.is_reached(saved + pair.error(self.effort) - cost, before)
    }

    /// The bytes that it takes for a function to pass a selector, at least. `None` if it cannot.
    fn least(&mut self, function: FunctionIndex) -> Option<i64> {
        let func = not_redirected(self.plan, self.bodies, function, self.options);
        let (signature, observes) = (func.signature.clone(), observes_its_frame(&func));
        let selector = ExtraArgument::Constant { ty: types::I32, bits: 0 };
        let arguments = as_passed(alloc::vec![selector], &signature, self.options);
        let outcome = self.outcome(function, &signature, observes, &arguments);
        outcome.map(|outcome| outcome.bytes)
    }

    /// Aligns the functions of each pair and makes their body.
    fn make(&mut self, tries: &mut [Try]) {
        let Aligning { plan, bodies, options, callee, merged_into, source, share, .. } = self;
        let (source, share, model) = (*source, *share, options.target.size_model);
        for_each(
            *bodies,
            &Pool::<(Scratch, size::Scratch)>::default(),
            tries,
            |bodies, (scratch, predicting), Try { functions, merged }| {
                let mut originals = functions.map(|function| {
                    let mut func = compared(plan, bodies, function, options);
                    fold_branches(&mut func);
                    func
                });
                // The body must not depend on the order in which functions were added.
                let encodings = [0, 1].map(|side| {
                    let context = context(plan, functions[side], &NoUnit, options);
                    let mut encoding = Encoding::default();
                    let walked = canon::encode(&originals[side], &context, scratch, &mut encoding);
                    walked.ok().map(|()| encoding)
                });
                if encodings[1] < encodings[0] {
                    originals.swap(0, 1);
                    functions.swap(0, 1);
                }
                let two = originals.each_ref();
                let extra = functions.map(|function| extra_parameters(plan, merged_into, function));
                let [Some(a), Some(b)] = two.map(|func| Outline::of(func, &|symbol| symbol)) else {
                    return;
                };
                let outlines = [&a, &b];
                let Some(alignment) = blocks::align(outlines) else {
                    return;
                };
                let fast = options.similar.policy != Policy::Balanced
                    || speed::is_kept(two[0], &a, &alignment);
                if !fast || !blocks::corresponds(two, outlines, extra, &alignment) {
                    return;
                }
                let Some(body::Merged { mut body, arguments }) =
                    body::merged(two, outlines, &alignment, options)
                else {
                    return;
                };
                body.name = UserFuncName::User(callee.clone());
                let few = arguments[0].len() <= cost::MAX_ALIGNED_ARGUMENTS;
                let few = few && body.signature.params.len() <= cost::MAX_PARAMETERS;
                // Functions that are equal, and were not merged nevertheless, have nothing to pass.
                if few && !arguments[0].is_empty() {
                    let sizes = model.and_then(|model| {
                        let mut size = |func: &Function| model.predict_with(func, predicting);
                        let [a, b] = originals.each_ref().map(&mut size);
                        Some([a?, b?, size(&body)?].map(i64::from))
                    });
                    // Most do not pay, and 256 pairs are in hand.
                    if may_pay(source, share, sizes, 0) {
                        *merged = Some(Merge { originals, body, arguments, sizes, token: None });
                    }
                }
            },
        );
    }

    /// The pairs that pay, each with what becomes of its functions and the bytes that are saved.
    fn judge(&mut self, tries: Vec<Try>) -> Vec<([FunctionIndex; 2], Merge, [Outcome; 2], i64)> {
        let mut judged: Vec<([FunctionIndex; 2], Merge, [Outcome; 2])> = Vec::new();
        for Try { functions, merged } in tries {
            let Some(merge) = merged else {
                continue;
            };
            let outcomes = [0, 1].map(|side| {
                let (original, arguments) = (&merge.originals[side], &merge.arguments[side]);
                let observes = observes_its_frame(original);
                self.outcome(functions[side], &original.signature, observes, arguments)
            });
            if let [Some(a), Some(b)] = outcomes
                && may_pay(self.source, self.share, merge.sizes, a.bytes + b.bytes)
            {
                judged.push((functions, merge, [a, b]));
            }
        }
        if let Source::Asked = self.source {
            self.ask(&mut judged);
        }
        let paying = judged.into_iter().filter_map(|(functions, merge, outcomes)| {
            let [a, b, body] = merge.sizes?;
            let cost: i64 = outcomes.iter().map(|outcome| outcome.bytes).sum();
            let saved = a + b - body - cost;
            self.share.is_reached(saved, a + b).then_some((functions, merge, outcomes, saved))
        });
        paying.collect()
    }

    /// Asks for the sizes of all functions and bodies, in place of those that were predicted.
    fn ask(&mut self, judged: &mut [([FunctionIndex; 2], Merge, [Outcome; 2])]) {
        let mut candidates: Vec<Candidate> = Vec::new();
        for (functions, merge, _) in &mut *judged {
            self.tokens += 1;
            merge.token = Some(CandidateToken::from_u32(self.tokens));
            candidates.push(Candidate { func: merge.body.clone(), token: merge.token });
            for (&function, original) in functions.iter().zip(&merge.originals) {
                if !self.sizes.contains_key(&function) {
                    candidates.push(Candidate { func: original.clone(), token: None });
                }
            }
        }
        let sizes = self.bodies.code_sizes().map(|sizes| sizes.of_candidates(&candidates));
        self.plan.stats_mut().similar_sizes += candidates.len();
        let mut sizes = sizes.into_iter().flatten().chain(core::iter::repeat(None));
        for (functions, merge, _) in judged {
            let body = sizes.next().flatten();
            for &function in &*functions {
                if !self.sizes.contains_key(&function) {
                    let size = sizes.next().flatten();
                    self.sizes.insert(function, size);
                }
            }
            let [a, b] = functions.map(|function| self.sizes[&function]);
            merge.sizes = match (a, b, body) {
                (Some(a), Some(b), Some(body)) => Some([a, b, body].map(i64::from)),
                _ => None,
            };
        }
    }

    /// What becomes of a function if it passes these arguments to a body. `None` if it cannot.
    fn outcome(
        &mut self,
        function: FunctionIndex,
        signature: &Signature,
        observes: bool,
        arguments: &[ExtraArgument],
    ) -> Option<Outcome> {
        let passing = self.asked(|sizes| {
            let zeros = sizes.passing_zeros(signature, arguments.iter().map(ExtraArgument::ty))?;
            match zeros {
                Some(zeros) => sizes.passing(signature, zeros, arguments),
                None => Ok(None),
            }
        })?;
        let count = self.uses.calls(function);
        let calls = i64::from(passing) * i64::from(count);
        if self.plan.parameterised_body(function).is_none() {
            let thunk = self.asked(|sizes| sizes.thunk(signature, arguments, observes));
            let thunk = thunk.map(i64::from);
            // What passes extra arguments to it cannot pass them to its thunk.
            let thunk =
                thunk.filter(|_| extra_parameters(self.plan, &self.merged_into, function) == 0);
            let keeps_symbol = self.uses.must_keep_symbol(self.plan, function).is_some();
            return match (keeps_symbol, thunk) {
                (true, None) => None,
                (true, Some(bytes)) => Some(Outcome { thunk: true, bytes }),
                (false, Some(bytes)) if is_cheaper(bytes, calls, count) => {
                    Some(Outcome { thunk: true, bytes })
                }
                (false, _) => Some(Outcome { thunk: false, bytes: calls }),
            };
        }
        if self.uses.is_named(function) {
            return None;
        }
        let mut bytes = calls;
        let members: Vec<u32> = self.merged_into.get(function.as_u32() as usize).to_vec();
        for member in members.into_iter().map(FunctionIndex::from_u32) {
            let entry = self.plan.entry(member);
            if let Disposition::Thunk { to: _ } = entry.disposition() {
                let before = entry.shared_arguments();
                let own = signature.params.len() - before.len();
                let signature =
                    Signature { params: signature.params[..own].to_vec(), ..signature.clone() };
                let after: Vec<ExtraArgument> = before.iter().chain(arguments).cloned().collect();
                let after = self.asked(|sizes| sizes.thunk(&signature, &after, observes))?;
                let before = self.asked(|sizes| sizes.thunk(&signature, &before, observes))?;
                bytes += i64::from(after) - i64::from(before);
            }
        }
        Some(Outcome { thunk: false, bytes })
    }

    /// A size, with all that has to be asked for.
    fn asked<T>(
        &mut self,
        size: impl Fn(&mut Sizes<'_>) -> Result<Option<T>, super::probe::Needs>,
    ) -> Option<T> {
        let none = Probed::default();
        loop {
            let own = &mut self.probed;
            let mut sizes = Sizes::new(self.options, &self.callee, self.source, &none, own);
            if let Ok(size) = size(&mut sizes) {
                return size;
            }
            let Some(Request::Probe(probe)) = sizes.request.take() else {
                unreachable!("only probes are asked for");
            };
            let func = probe.function(&self.callee, self.options);
            let size = self.bodies.code_sizes()?.of_candidate(&Candidate { func, token: None });
            self.probed.probed.insert(probe, size);
        }
    }

    /// Writes a pair into the plan. Returns whether the body has a symbol.
    fn accept(
        &mut self,
        functions: [FunctionIndex; 2],
        merge: Merge,
        outcomes: [Outcome; 2],
        saved: i64,
    ) -> bool {
        let Merge { originals: _, mut body, arguments, sizes: _, token } = merge;
        let plan = &mut *self.plan;
        let mut members: Vec<FunctionIndex> = Vec::new();
        let mut bodies = 0;
        for (function, outcome) in functions.into_iter().zip(outcomes) {
            match plan.parameterised_body(function).is_some() {
                true => bodies += 1,
                false => members.push(function),
            }
            let followers = self.merged_into.get(function.as_u32() as usize).iter();
            let followers = followers.copied().map(FunctionIndex::from_u32);
            // Without bodies that were merged in a round before: they are no functions of the unit.
            let own = |member: &FunctionIndex| plan.parameterised_body(*member).is_none();
            members.extend(followers.filter(own).filter(|_| !outcome.thunk));
        }
        members.sort_unstable();
        members.dedup();
        let Some(symbol) = self.bodies.fresh_symbol(&members) else {
            return false;
        };
        body.name = UserFuncName::User(symbol.clone());
        let key = plan.entry(functions[0]).attributes().key;
        // It grew while it was made; a copy takes no more memory than it needs.
        let to = add_body(plan, symbol, key, self.next_class, body.clone(), token);
        self.next_class += 1;
        self.uses.add_body(to, functions);
        for side in [0, 1] {
            let (function, arguments) = (functions[side], arguments[side].clone());
            if !outcomes[side].thunk {
                self.follow(function, to, &arguments);
            }
            let plan = &mut *self.plan;
            let reason = self.uses.must_keep_symbol(plan, function);
            let (disposition, reason) = outcome(to, outcomes[side].thunk, reason);
            plan.set_extra_arguments(function, arguments);
            plan.set(function, disposition, reason);
        }
        let plan = &mut *self.plan;
        members.sort_unstable_by_key(|&member| order(plan, member));
        let parameters = arguments[0].len();
        let set =
            SimilarSet { members, parameters, selects: true, body: Some(to), saved: Some(saved) };
        plan.record_similar(set);
        let stats = plan.stats_mut();
        stats.similar_bodies += 1;
        stats.similar_merged += functions.len() - bodies;
        true
    }

    /// Makes what was merged into a function follow it to `to`, with these arguments behind its own.
    fn follow(&mut self, function: FunctionIndex, to: FunctionIndex, arguments: &[ExtraArgument]) {
        let Aligning { plan, merged_into, .. } = self;
        let mut alignment = plan.entry(function).alignment();
        for &member in merged_into.get(function.as_u32() as usize) {
            let member = FunctionIndex::from_u32(member);
            let entry = plan.entry(member);
            alignment = entry.alignment().max(alignment);
            let own = entry.extra_arguments().iter();
            let arguments = own.chain(arguments).cloned().collect();
            plan.set_extra_arguments(member, arguments);
            plan.retarget(member, to);
        }
        plan.align(Item::Function(to), alignment.into());
    }
}

/// Whether a body could pay, by predicted sizes of the two functions and of the body, if it takes `cost` bytes to pass
/// arguments to it.
fn may_pay(source: Source, share: Share, predicted: Option<[i64; 3]>, cost: i64) -> bool {
    match (source, predicted) {
        (Source::Predicted(_), None) | (Source::Unknown, _) => false,
        (Source::Asked, None) => true,
        (Source::Predicted(_), Some([a, b, body])) => share.is_reached(a + b - body - cost, a + b),
        (Source::Asked, Some([a, b, body])) => {
            a + b - body - cost + (a + b) / i64::from(cost::SIZE_ERROR) > 0
        }
    }
}

/// How many of the parameters of a function are extra arguments for what was merged into it.
fn extra_parameters(plan: &Plan, merged_into: &Lists<u32>, function: FunctionIndex) -> usize {
    let members = merged_into.get(function.as_u32() as usize).iter();
    let passed =
        |&member: &u32| plan.entry(FunctionIndex::from_u32(member)).extra_arguments().len();
    members.map(passed).max().unwrap_or(0)
}
