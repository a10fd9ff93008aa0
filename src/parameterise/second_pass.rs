//! The second identical pass: identical merging once more, after similar functions were merged.
//!
//! A parameterised body can be equal to another one, or to a function that already took as parameters what the body
//! takes as extra arguments. Then the callers of the two can be equal, too. So the unit as the plan leaves it is
//! planned once more by identical merging, and the result is written into the plan.
//!
//! What it does *not* do: a parameterised body whose address is an extra argument, equals no
//! function that other libraries see. Nothing is optimised here: canonical bodies are compared as the plan
//! rewrites them.

use super::candidates::{Input, candidates};
use super::{Found, cost};
use crate::apply::{Redirecting, Written, compared, not_redirected};
use crate::congruence::{Encodings, Summaries};
use crate::extra_argument::ExtraArgument;
use crate::options::{Canonicalize, Options, Prebucket, Prove, Similar};
use crate::plan::{Disposition, Entry, Plan, Reason};
use crate::unit::{Attributes, Bodies, Candidate, CodeSizes, FunctionIndex, Item, Linkage, NoUnit};
use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};
use hashbrown::HashSet;
use rustc_hash::FxBuildHasher;

/// The kept functions of a unit as a plan leaves it, so far, but for their references: see [`Redirecting`].
pub(crate) struct Rewritten<'a> {
    plan: &'a Plan,
    bodies: &'a mut dyn Bodies,
    options: &'a Options<'a>,
    functions: &'a [FunctionIndex],
    body: Function,
}

impl Bodies for Rewritten<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        let Rewritten { plan, bodies, options, functions, body } = self;
        match not_redirected(plan, *bodies, functions[function.index()], options) {
            Cow::Borrowed(body) => body,
            Cow::Owned(weakened) => {
                *body = weakened;
                body
            }
        }
    }

    fn code_sizes(&mut self) -> Option<&mut dyn CodeSizes> {
        Some(self)
    }
}

impl CodeSizes for Rewritten<'_> {
    fn of_function(&mut self, function: FunctionIndex) -> Option<u32> {
        let function = self.functions[function.index()];
        let func = compared(self.plan, self.bodies, function, self.options);
        self.of_candidate(&Candidate { func, token: None })
    }

    fn of_thunk(&mut self, _: FunctionIndex, thunk: &Function) -> Option<u32> {
        self.of_candidate(&Candidate { func: thunk.clone(), token: None })
    }

    fn of_candidate(&mut self, candidate: &Candidate) -> Option<u32> {
        self.bodies.code_sizes()?.of_candidate(candidate)
    }
}

/// The second identical pass after one attempt to merge with parameters: at most [`cost::MAX_ROUNDS`] rounds.
pub(crate) struct SecondPass<'a> {
    options: &'a Options<'a>,
    /// The encodings of the functions before similar ones were merged.
    encodings: &'a Encodings,
    /// The options of identical merging.
    identical: Options<'a>,
    /// The functions of the round, by number.
    functions: Vec<FunctionIndex>,
    /// Functions that equal only themselves.
    kept_apart: EntitySet<FunctionIndex>,
    rounds_left: usize,
}

impl<'a> SecondPass<'a> {
    /// None of its rounds is made yet.
    pub fn new(options: &'a Options<'a>, encodings: &'a Encodings) -> SecondPass<'a> {
        let identical = Options {
            similar: Similar::OFF,
            // The buckets are known: see `candidates`.
            prebucket: Prebucket::WalkAll,
            // They are canonical bodies already.
            canonicalize: Canonicalize::None,
            aliases: false,
            prove: Prove::Never,
            ..*options
        };
        let (functions, kept_apart) = (Vec::new(), EntitySet::new());
        let rounds_left = cost::MAX_ROUNDS;
        SecondPass { options, encodings, identical, functions, kept_apart, rounds_left }
    }

    /// The options for identical merging of this round.
    pub fn options(&self) -> &Options<'a> {
        &self.identical
    }

    /// The bodies of this round.
    pub fn bodies<'b>(&'b self, plan: &'b Plan, bodies: &'b mut dyn Bodies) -> Rewritten<'b> {
        let (options, functions) = (self.options, &self.functions);
        Rewritten { plan, bodies, options, functions, body: Function::new() }
    }

    /// Begins a round: the summaries of the functions that a plan keeps. `None` if nothing is left to do.
    pub fn summaries(
        &mut self,
        found: &mut Found,
        plan: &Plan,
        bodies: &mut dyn Bodies,
    ) -> Option<Summaries> {
        let has_bodies = plan.new_bodies().iter().any(|new| new.copy_of().is_none());
        if !has_bodies || found.limit == 0 {
            return None;
        }
        self.rounds_left = self.rounds_left.checked_sub(1)?;
        let limited = self.options.merge_limit.is_some();
        self.identical.merge_limit = u32::try_from(found.limit).ok().filter(|_| limited);
        self.functions.clear();
        let SecondPass { options, encodings, .. } = self;
        let candidates = candidates(&Input { options, found, encodings }, plan, bodies);
        found.uses.learn(candidates.iter().map(|&(function, _)| function), plan, bodies);
        let mut summaries = Summaries::default();
        for (function, content) in candidates {
            let entry = plan.entry(function);
            let malformed = entry.reason() == Reason::Malformed;
            let kept_apart = self.kept_apart.contains(function);
            let own = entry.attributes();
            let attributes = Attributes {
                no_merge: own.no_merge || malformed || kept_apart,
                // Extra arguments of calls are not visible in the bodies. They can hold the address of another
                // function instead of that of a body of the plan.
                externally_called: plan.parameterised_body(function).is_none()
                    && found.uses.must_keep_symbol(plan, function).is_some(),
                ..*own
            };
            let symbol = entry.symbol().clone();
            let body = not_redirected(plan, bodies, function, self.options);
            let symbols = Redirecting { plan, written: Written::none(), symbols: &NoUnit };
            let (bucket, options) = (Some(content.into()), &self.identical);
            if summaries.add(symbol, &body, attributes, &symbols, bucket, options).is_ok() {
                self.functions.push(function);
            }
        }
        Some(summaries)
    }

    /// Ends a round: writes what identical merging found into the plan. If that cannot be done for some functions,
    /// they are kept apart in the next round.
    pub fn merge(&mut self, again: &Plan, found: &Found, plan: &mut Plan) {
        let rejected = again.entries().filter(|&entry| self.cannot_merge(found, plan, entry));
        let rejected: Vec<FunctionIndex> =
            rejected.map(|(at, _)| self.functions[at.index()]).collect();
        if rejected.is_empty() {
            self.rounds_left = 0;
            self.write(again, plan);
        }
        for function in rejected {
            self.kept_apart.insert(function);
        }
    }

    /// Whether what was found for a function cannot be written into the plan.
    fn cannot_merge(
        &self,
        found: &Found,
        plan: &Plan,
        (at, entry): (FunctionIndex, Entry<'_>),
    ) -> bool {
        let function = self.functions[at.index()];
        if plan.parameterised_body(function).is_none() {
            return false;
        }
        // Extra arguments hold its address, and the address of an externally visible function is not always its
        // own.
        let Some(to) = entry.disposition().representative() else {
            return false;
        };
        let linkage = plan.entry(self.functions[to.index()]).attributes().linkage;
        let is_passed = found.uses.must_keep_symbol(plan, function).is_some();
        is_passed && !matches!(linkage, Linkage::Local | Linkage::Hidden)
    }

    fn write(&self, again: &Plan, plan: &mut Plan) {
        let mut followers: SecondaryMap<FunctionIndex, Vec<FunctionIndex>> = SecondaryMap::new();
        for (function, entry) in plan.entries() {
            if let Some(to) = entry.disposition().representative() {
                followers[to].push(function);
            }
        }
        for (at, member) in again.entries() {
            let Some(to) = member.disposition().representative() else {
                continue;
            };
            let (function, to) = (self.functions[at.index()], self.functions[to.index()]);
            plan.set(function, member.disposition().map(|_| to), member.reason());
            let mut alignment = plan.entry(function).alignment();
            // Functions that were merged into it are merged into its representative, with the same extra arguments.
            for follower in core::mem::take(&mut followers[function]) {
                plan.retarget(follower, to);
                alignment = plan.entry(follower).alignment().max(alignment);
                followers[to].push(follower);
            }
            plan.align(Item::Function(to), alignment.into());
            if plan.parameterised_body(to).is_none() {
                plan.set_reason(Item::Function(to), Reason::Representative);
            }
        }
        remove_merged_bodies(plan, self.options);
    }
}

/// Removes the parameterised bodies that a plan merges away, and every reference to them: their symbols will not be
/// defined.
pub(super) fn remove_merged_bodies(plan: &mut Plan, options: &Options<'_>) {
    let parameterised = plan.new_bodies().iter().filter(|new| new.copy_of().is_none());
    let removed = parameterised.map(|new| plan.entry(new.function()));
    let removed = removed.filter(|entry| entry.disposition() != Disposition::Keep);
    let removed: HashSet<UserExternalName, FxBuildHasher> =
        removed.map(|entry| entry.symbol().clone()).collect();
    if removed.is_empty() {
        return;
    }
    let address = |symbol: &UserExternalName| Some(plan.address_symbol(symbol).clone());
    let mut arguments: Vec<(FunctionIndex, Arc<[ExtraArgument]>)> = Vec::new();
    for (function, entry) in plan.entries() {
        let own = entry.extra_arguments().iter();
        if own.clone().filter_map(ExtraArgument::symbol).any(|name| removed.contains(name)) {
            let redirected = own.map(|argument| argument.redirected(&address));
            arguments.push((function, redirected.collect()));
        }
    }
    let mut bodies: Vec<(FunctionIndex, Function)> = Vec::new();
    for new in plan.new_bodies().iter().filter(|new| new.copy_of().is_none()) {
        let mut symbols = new.body().params.user_named_funcs().values();
        if symbols.any(|symbol| removed.contains(symbol)) {
            let mut body = new.body().clone();
            plan.apply(new.function(), &mut body, options);
            bodies.push((new.function(), body));
        }
    }
    for (function, arguments) in arguments {
        plan.set_extra_arguments(function, arguments);
    }
    for (function, body) in bodies {
        plan.set_body(function, body);
    }
    plan.remove_parameterised_bodies();
}
