//! Functions with one control-flow graph that differ in few instructions.
//!
//! Similar functions have equal shapes; what is left has none. [`align`] looks at what a plan keeps, parameterised bodies
//! included, and reads as the list of the phases:
//!
//! * find pairs of functions with the same signature and control-flow graph and many equal opcodes (`pairs`, `sketch`);
//! * align their instructions, block by block (`outline`, `blocks`, `diff`), and take the pairs first of which most is
//!   estimated to be saved;
//! * compare what is aligned, by content (`entities`), and make one body, which receives a selector and branches where they differ (`body`);
//! * predict its size, and those of the two functions, and accept it if it pays.
//!
//! A selector is an extra argument like any other, so what becomes of the two functions, of their callers and of the
//! functions that the checker proves is the same as with parameters.
//!
//! What it does *not* do: it pairs each function once, does not reorder instructions, and does not align control-flow
//! graphs that differ (as SalSSA does, whose bodies run slower and whose search takes several times as long as
//! compiling). With [`Policy::Balanced`], arms must be rare in loops (`speed`), and fewer pairs are tried ([`Effort`]).

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
use super::body::{as_passed, fold_branches};
use super::cost::{Effort, Share};
use super::probe::{OwnSizes, Probed, Sizes};
use super::uses::Uses;
use super::{context, cost, is_candidate, merged_into, merges_left, order};
use crate::apply::{emitted, not_redirected};
use crate::canon::{self, Encoding, Scratch};
use crate::congruence::Encodings;
use crate::extra_argument::ExtraArgument;
use crate::ir::observes_its_frame;
use crate::lists::Lists;
use crate::options::{Compare, Instructions, Options, Policy};
use crate::plan::{Disposition, Plan, SimilarSet};
use crate::threads::{Pool, for_each};
use crate::unit::{Bodies, FunctionIndex, Item, NoUnit, Observed};
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, Signature, UserFuncName, types};
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};
use cranelift_size_model::{self as size, SizeModel};
use hashbrown::HashMap;
use outline::Outline;
use pairs::{Pair, Pairing};
use removed::remove_merged_bodies;
use rustc_hash::FxBuildHasher;

/// Merges functions that differ in few instructions, as far as that makes the unit smaller.
///
/// Reads every kept function twice. Sizes are predicted: where the target has no model, nothing is merged.
pub(crate) fn align(
    plan: &mut Plan,
    observed: &Observed,
    encodings: &Encodings,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
) {
    let compiled = encodings.compiled();
    let policy = &options.compare;
    let metadata =
        [policy.source_locations, policy.debug_tags, policy.value_labels, policy.constant_branches];
    let Some(model) = options.target.size_model else {
        return;
    };
    let wanted = match (options.similar.policy, options.similar.instructions) {
        (Policy::Off, _) | (_, Instructions::None) => false,
        (Policy::Balanced | Policy::Size, Instructions::Select) => true,
    };
    if !wanted || metadata.contains(&Compare::Compare) || !compiled.functions.is_empty() {
        return;
    }
    let mut known: EntitySet<FunctionIndex> = EntitySet::new();
    for (function, _) in plan.entries() {
        if !compiled.callees.contains(function) {
            known.insert(function);
        }
    }
    let uses = Uses::of(known, plan, observed, compiled, bodies, options.similar.keep_symbols);
    let limit = merges_left(plan, options);
    let effort = match options.similar.policy {
        Policy::Size => cost::THOROUGH,
        Policy::Balanced | Policy::Off => cost::QUICK,
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
        pairing: Pairing::default(),
        probed: OwnSizes::default(),
        least: HashMap::default(),
        model,
        share: Share::of(options.similar.policy),
        effort,
    };
    let mut rounds = 0..effort.rounds;
    while rounds.next().is_some() && aligning.round() {}
    // Functions keep their numbers until the last round.
    remove_merged_bodies(plan);
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
    pairing: Pairing,
    probed: OwnSizes,
    /// What it takes each function to pass a selector in this round, in bytes.
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
    originals: [Function; 2],
    body: Function,
    arguments: [Arc<[ExtraArgument]>; 2],
    /// Bytes of the two functions together, and of the body.
    sizes: [i64; 2],
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
        self.least.clear();
        self.pair(&functions) && !self.limited
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
        let func = not_redirected(self.plan, self.bodies, function);
        let (signature, observes) = (func.signature.clone(), observes_its_frame(func));
        let selector = ExtraArgument::Constant { ty: types::I32, bits: 0 };
        let arguments = as_passed(alloc::vec![selector], &signature, self.options);
        let outcome = self.outcome(function, &signature, observes, &arguments);
        outcome.map(|outcome| outcome.bytes)
    }

    /// Aligns the functions of each pair and makes their body.
    fn make(&mut self, tries: &mut [Try]) {
        let Aligning { plan, bodies, options, merged_into, model, share, .. } = self;
        for_each(
            *bodies,
            &Pool::<(Scratch, size::Scratch)>::default(),
            tries,
            |bodies, (scratch, predicting), Try { functions, merged }| {
                let mut originals = functions.map(|function| {
                    let mut func = emitted(plan, bodies, function);
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
                    let [a, b] = originals.each_ref().map(&mut size);
                    // Most do not pay, and 256 pairs are in hand.
                    if let [Some(a), Some(b), Some(of_body)] = [a, b, size(&body)]
                        && share.is_reached(a + b - of_body, a + b)
                    {
                        let sizes = [a + b, of_body];
                        *merged = Some(Merge { originals, body, arguments, sizes });
                    }
                }
            },
        );
    }

    /// The pairs that pay, each with what becomes of its functions and the bytes that are saved.
    fn judge(&mut self, tries: Vec<Try>) -> Vec<([FunctionIndex; 2], Merge, [Outcome; 2], i64)> {
        let mut paying = Vec::new();
        for Try { functions, merged } in tries {
            let Some(merge) = merged else {
                continue;
            };
            self.plan.stats_mut().similar_tried += 1;
            let outcomes = [0, 1].map(|side| {
                let (original, arguments) = (&merge.originals[side], &merge.arguments[side]);
                let observes = observes_its_frame(original);
                self.outcome(functions[side], &original.signature, observes, arguments)
            });
            if let [Some(a), Some(b)] = outcomes {
                let [before, body] = merge.sizes;
                let saved = before - body - a.bytes - b.bytes;
                if self.share.is_reached(saved, before) {
                    paying.push((functions, merge, [a, b], saved));
                }
            }
        }
        paying
    }

    /// What becomes of a function if it passes these arguments to a body. `None` if it cannot.
    fn outcome(
        &mut self,
        function: FunctionIndex,
        signature: &Signature,
        observes: bool,
        arguments: &[ExtraArgument],
    ) -> Option<Outcome> {
        let none = Probed::default();
        let (options, model) = (self.options, self.model);
        let mut sizes = Sizes { options, model, known: &none, own: &mut self.probed };
        let zeros = sizes.passing_zeros(signature, arguments.iter().map(ExtraArgument::ty))?;
        let passing = sizes.passing(signature, zeros, arguments)?;
        let count = self.uses.calls(function);
        let calls = i64::from(passing) * i64::from(count);
        if self.plan.parameterised_body(function).is_none() {
            let thunk = sizes.thunk(signature, arguments, observes).map(i64::from);
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
        let Merge { originals: _, mut body, arguments, sizes: _ } = merge;
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
        let to = add_body(plan, symbol, key, self.next_class, body.clone());
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

/// How many of the parameters of a function are extra arguments for what was merged into it.
fn extra_parameters(plan: &Plan, merged_into: &Lists<u32>, function: FunctionIndex) -> usize {
    let members = merged_into.get(function.as_u32() as usize).iter();
    let passed =
        |&member: &u32| plan.entry(FunctionIndex::from_u32(member)).extra_arguments().len();
    members.map(passed).max().unwrap_or(0)
}
