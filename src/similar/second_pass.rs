//! The second identical pass: identical merging once more, after similar functions were merged.
//!
//! A parameterised body can be equal to another one, or to a function that already took as parameters what the body
//! takes as extra arguments. Then the callers of the two can be equal, too. So the unit as the plan leaves it is
//! planned once more by the same [`Merger`], without similar merging, and the result is written into the plan.
//!
//! What it does *not* do: a function of the unit is not weakened a second time. A function that would have to be
//! weakened equals only itself here. So does a parameterised body whose address is an extra argument, if it equals
//! a function that other libraries see. Nothing is optimised here: canonical bodies are compared as the plan
//! rewrites them.

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
    /// The functions that are kept.
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

/// How often the unit is planned before the second pass gives up.
const MAX_ROUNDS: usize = 3;

impl Search<'_> {
    /// Merges functions that are equal now. Rewrites and walks all that is kept, a few times at most.
    pub(super) fn second_identical_pass(&mut self, observed: &Observed) {
        if self.plan.merged.is_empty() || self.limit == 0 {
            return;
        }
        let mut kept_apart: EntitySet<FunctionIndex> = EntitySet::new();
        for _ in 0..MAX_ROUNDS {
            let (functions, found) = self.plan_second_pass(observed, &kept_apart);
            let rejected: Vec<FunctionIndex> = found
                .entries()
                .filter(|&found| self.cannot_merge(&functions, found))
                .map(|(at, _)| functions[at.index()])
                .collect();
            if rejected.is_empty() {
                self.merge_in_second_pass(&functions, &found);
                return;
            }
            for function in rejected {
                kept_apart.insert(function);
            }
        }
    }

    /// Whether what was found for a function cannot be written into the plan.
    fn cannot_merge(
        &self,
        functions: &[FunctionIndex],
        (at, found): (FunctionIndex, &Entry),
    ) -> bool {
        let function = functions[at.index()];
        if self.plan.parameterised_body(function).is_none() {
            // Callers of an equal function may call this one only if it has fewer facts.
            return found.weakened.is_some();
        }
        // Extra arguments hold its address, and the address of an externally visible function is not always its
        // own.
        let Some(to) = found.disposition().representative() else {
            return false;
        };
        let linkage = self.plan.entry(functions[to.index()]).attributes.linkage;
        let is_passed = self.uses.must_keep_symbol(self.plan, function).is_some();
        is_passed && !matches!(linkage, Linkage::Local | Linkage::Hidden)
    }

    /// Plans the kept functions, by number; the given functions equal only themselves.
    fn plan_second_pass(
        &mut self,
        observed: &Observed,
        kept_apart: &EntitySet<FunctionIndex>,
    ) -> (Vec<FunctionIndex>, Plan) {
        let options = Options {
            similar: Similar::OFF,
            merge_limit: u32::try_from(self.limit)
                .ok()
                .filter(|_| self.options.merge_limit.is_some()),
            // Rewritten functions have gaps in their tables, so table sizes do not say whether two may be equal.
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
                no_merge: entry.attributes.no_merge || malformed || kept_apart.contains(function),
                // Extra arguments of calls are not visible in the bodies. They can hold the address of another
                // function instead of that of a body of the plan.
                externally_called: self.plan.parameterised_body(function).is_none()
                    && self.uses.must_keep_symbol(self.plan, function).is_some(),
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

    /// Writes the result of the second pass into the plan.
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
            // Functions that were merged into it are merged into its representative, with the same extra arguments.
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
            self.remove_references_to_bodies();
            self.plan.remove_parameterised_bodies();
        }
    }

    /// Removes every reference to parameterised bodies that were merged away: their symbols will not be defined.
    fn remove_references_to_bodies(&mut self) {
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

    /// Weakens a parameterised body to the facts that all functions that it replaces share.
    fn weaken_body(&mut self, function: FunctionIndex, facts: &[Fact]) {
        let mut body = self.current(function);
        weaken(&mut body, self.plan.entry(function).attributes.key, facts, self.options);
        let merged = self.plan.merged.iter_mut().find(|merged| merged.function == function);
        merged.expect("a body of the plan").body = body;
    }
}
