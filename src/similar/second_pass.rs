//! Identical merging once more, after similar functions were merged.
//!
//! A body that was made for several functions can be equal to one that was made for others, or to a function
//! that took as parameters what these are told; then so can be who calls them. So the unit as the plan leaves
//! it is planned again by the same [`Merger`], without similar merging, and what that finds is written
//! into the plan.
//!
//! What it does *not* do: a function of the unit is not weakened a second time; one that would have to be
//! equals only itself here, as does a body of which others are told where it is, if it were that of a function
//! that other libraries see. Nothing is optimised here: canonical bodies are compared as the plan rewrites them.

use super::{Search, current};
use crate::apply::weaken;
use crate::extra_argument::ExtraArgument;
use crate::facts::Fact;
use crate::options::{Attributes, Canonicalize, Linkage, Options, Prebucket, Prove, Similar};
use crate::plan::{Disposition, Entry, ParameterisedBody, Plan};
use crate::remarks::Reason;
use crate::summary::Observed;
use crate::unit::{Bodies, FunctionIndex, Merger};
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};

/// The unit as a plan leaves it, so far.
struct Rewritten<'a> {
    plan: &'a Plan,
    bodies: &'a mut dyn Bodies,
    options: &'a Options<'a>,
    /// Those that are kept.
    functions: Vec<FunctionIndex>,
    body: Function,
}

impl Bodies for Rewritten<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        let function = self.functions[function.index()];
        self.body = current(self.plan, self.bodies, function, self.options);
        &self.body
    }

    fn code_size(&mut self, function: FunctionIndex) -> Option<u32> {
        let function = self.functions[function.index()];
        let body = current(self.plan, self.bodies, function, self.options);
        self.bodies.candidate_size(&body, false)
    }

    fn thunk_size(&mut self, _: FunctionIndex, thunk: &Function) -> Option<u32> {
        self.bodies.candidate_size(thunk, false)
    }

    fn candidate_size(&mut self, candidate: &Function, keep: bool) -> Option<u32> {
        self.bodies.candidate_size(candidate, keep)
    }
}

/// How often the unit is planned before all is left as it is.
const MAX_ROUNDS: usize = 3;

impl Search<'_> {
    /// Merges what is equal by now. Rewrites and walks all that is kept, a few times at most.
    pub(super) fn second_identical_pass(&mut self, observed: &Observed) {
        if self.plan.merged.is_empty() || self.limit == 0 {
            return;
        }
        let mut apart: EntitySet<FunctionIndex> = EntitySet::new();
        for _ in 0..MAX_ROUNDS {
            let (functions, found) = self.plan_second_pass(observed, &apart);
            let stay: Vec<FunctionIndex> = found
                .entries()
                .filter(|&found| self.must_stay(&functions, found))
                .map(|(at, _)| functions[at.index()])
                .collect();
            if stay.is_empty() {
                self.merge_in_second_pass(&functions, &found);
                return;
            }
            for function in stay {
                apart.insert(function);
            }
        }
    }

    /// Whether what was found for a function cannot be written into the plan.
    fn must_stay(&self, functions: &[FunctionIndex], (at, found): (FunctionIndex, &Entry)) -> bool {
        let function = functions[at.index()];
        if self.plan.parameterised_body(function).is_none() {
            // Who calls what it is equal to may call it only with fewer promises than it makes.
            return found.weakened.is_some();
        }
        // Others are told its address, and that of a function that others see is not always its own.
        let Some(to) = found.disposition().representative() else {
            return false;
        };
        let linkage = self.plan.entry(functions[to.index()]).attributes.linkage;
        let extra = self.uses.survives(self.plan, function).is_some();
        extra && !matches!(linkage, Linkage::Local | Linkage::Hidden)
    }

    /// Plans what is kept, by number, with these functions equal to themselves only.
    fn plan_second_pass(
        &mut self,
        observed: &Observed,
        apart: &EntitySet<FunctionIndex>,
    ) -> (Vec<FunctionIndex>, Plan) {
        let options = Options {
            similar: Similar::OFF,
            merge_limit: u32::try_from(self.limit)
                .ok()
                .filter(|_| self.options.merge_limit.is_some()),
            // What was rewritten has gaps in its tables, so counts tell nothing.
            prebucket: Prebucket::WalkAll,
            // They are canonical bodies already.
            canonicalize: Canonicalize::None,
            aliases: false,
            prove: Prove::Never,
            ..*self.options
        };
        let mut functions = Vec::new();
        let mut merger = Merger::new(options);
        for (function, entry) in self.plan.entries() {
            if entry.disposition() != Disposition::Keep || self.plan.is_cached(function) {
                continue;
            }
            let body = current(self.plan, self.bodies, function, self.options);
            let malformed = entry.reason() == Reason::Malformed;
            let attributes = Attributes {
                pinned: entry.attributes.pinned || observed.points_inside(entry.symbol()),
                no_merge: entry.attributes.no_merge || malformed || apart.contains(function),
                // What is told to others is not seen in the bodies. It can be the address of another one
                // instead of that of a body of the plan.
                externally_called: self.plan.parameterised_body(function).is_none()
                    && self.uses.survives(self.plan, function).is_some(),
                ..entry.attributes
            };
            if merger.add(entry.symbol().clone(), &body, attributes).is_ok() {
                functions.push(function);
            }
        }
        let Search { plan, bodies, .. } = self;
        let body = Function::new();
        let mut rewritten =
            Rewritten { plan, bodies: *bodies, options: self.options, functions, body };
        let found = merger.plan(&mut rewritten);
        (rewritten.functions, found)
    }

    /// Writes into the plan what was found.
    fn merge_in_second_pass(&mut self, functions: &[FunctionIndex], found: &Plan) {
        // By the bodies as they were planned.
        for (at, entry) in found.entries() {
            if let Some(facts) = &entry.weakened {
                self.weaken_body(functions[at.index()], facts);
            }
        }
        let mut followers: SecondaryMap<FunctionIndex, Vec<FunctionIndex>> = SecondaryMap::new();
        for (function, entry) in self.plan.entries() {
            if let Some(to) = entry.disposition().representative() {
                followers[to].push(function);
            }
        }
        for (at, member) in found.entries() {
            let Some(to) = member.disposition().representative() else {
                continue;
            };
            let (function, to) = (functions[at.index()], functions[to.index()]);
            let entry = &mut self.plan.entries[function];
            (entry.disposition, entry.reason) = (member.disposition().map(|_| to), member.reason());
            let mut alignment = entry.alignment;
            // What was merged into it is merged into its representative, and tells it the same.
            for follower in core::mem::take(&mut followers[function]) {
                let entry = &mut self.plan.entries[follower];
                entry.disposition = entry.disposition.map(|_| to);
                alignment = entry.alignment.max(alignment);
                followers[to].push(follower);
            }
            let kept = &mut self.plan.entries[to];
            kept.alignment = alignment.max(kept.alignment);
            if self.plan.parameterised_body(to).is_none() {
                self.plan.entries[to].reason = Reason::Representative;
            }
        }
        let is_eliminated = |merged: &ParameterisedBody| {
            self.plan.entry(merged.function).disposition() != Disposition::Keep
        };
        if self.plan.parameterised_bodies().iter().any(is_eliminated) {
            self.leave_bodies();
            self.plan.remove_parameterised_bodies();
        }
    }

    /// Has nothing refer to bodies that are merged away: their symbols will not be known any more.
    fn leave_bodies(&mut self) {
        let plan = &*self.plan;
        let address = |symbol: &UserExternalName| Some(plan.address_symbol(symbol).clone());
        let redirected = |entry: &Entry| -> Arc<[ExtraArgument]> {
            entry.arguments.iter().map(|argument| argument.redirected(&address)).collect()
        };
        let arguments: Vec<Arc<[ExtraArgument]>> = plan.entries.values().map(redirected).collect();
        let bodies = plan.merged.iter().map(|merged| {
            let mut body = merged.body.clone();
            plan.apply(merged.function, &mut body, self.options);
            body
        });
        let bodies: Vec<Function> = bodies.collect();
        for (entry, arguments) in self.plan.entries.values_mut().zip(arguments) {
            entry.arguments = arguments;
        }
        for (merged, body) in self.plan.merged.iter_mut().zip(bodies) {
            merged.body = body;
        }
    }

    /// Leaves a body only the promises that hold for all that it does for.
    fn weaken_body(&mut self, function: FunctionIndex, facts: &[Fact]) {
        let mut body = self.current(function);
        weaken(&mut body, self.plan.entry(function).attributes.key, facts, self.options);
        let merged = self.plan.merged.iter_mut().find(|merged| merged.function == function);
        merged.expect("a body of the plan").body = body;
    }
}
