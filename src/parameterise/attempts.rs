//! How often merging with parameters is tried, how much a parameterised body must save each time, and which result is
//! taken.
//!
//! What it costs to pass extra arguments depends on all else that each caller does, so the sum over a unit is known
//! only when it is compiled. With [`Policy::Size`] an attempt that makes the unit larger is repeated with a greater
//! demand on each body, and given up if that does not help; and what [`Policy::Balanced`] would do is taken where that is
//! smaller: the sum of choices that are each the smallest is not always the smallest sum.

use super::{Found, cost, smaller};
use crate::options::{Options, Policy, Similar};
use crate::plan::Plan;
use crate::unit::Bodies;

/// How much a parameterised body must save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// One byte.
    Anything,
    /// An eighth of what its functions take.
    Eighth,
}

impl Share {
    /// Whether it is enough to save `saved` of `before` bytes.
    pub fn is_reached(self, saved: i64, before: i64) -> bool {
        match self {
            Share::Anything => saved > 0,
            // What cannot be passed saves less than nothing, by far.
            Share::Eighth => saved.saturating_mul(cost::DEMANDED_SHARE) > before,
        }
    }
}

/// One attempt: how much each body must save, and by which policy bodies are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(super) share: Share,
    pub(super) policy: Policy,
    /// How many tokens were given to candidates in attempts before.
    pub(super) tokens: u32,
}

/// The attempts of a run.
pub(crate) struct Attempts<'a> {
    options: &'a Options<'a>,
    left: &'static [Attempt],
    /// The plan before the attempts, if there are several.
    before: Option<Plan>,
    /// The smallest result so far.
    best: Option<Plan>,
    /// The policy of the last attempt.
    policy: Policy,
    tokens: u32,
    /// Whether the limit of merges is reached.
    limited: bool,
}

impl<'a> Attempts<'a> {
    /// As many as the policy allows, each beginning with `plan`.
    pub fn new(options: &'a Options<'a>, plan: &Plan) -> Attempts<'a> {
        const fn attempt(share: Share, policy: Policy) -> Attempt {
            Attempt { share, policy, tokens: 0 }
        }
        const ANYTHING: Attempt = attempt(Share::Anything, Policy::Size);
        const EIGHTH: Attempt = attempt(Share::Eighth, Policy::Size);
        const BALANCED: Attempt = attempt(Share::Eighth, Policy::Balanced);
        let (left, before): (&[Attempt], _) = match options.similar.policy {
            Policy::Off => (&[], None),
            Policy::Balanced => (&[BALANCED], None),
            Policy::Size => (&[ANYTHING, EIGHTH, BALANCED], Some(plan.clone())),
        };
        Attempts {
            options,
            left,
            before,
            best: None,
            policy: Policy::Off,
            tokens: 0,
            limited: false,
        }
    }

    /// The next attempt, if there is one: it begins with `plan`, which is reset to the plan before the attempts.
    pub fn next(&mut self, plan: &mut Plan) -> Option<Attempt> {
        // A greater demand is of no use where a smaller one makes the unit smaller.
        while let [first, left @ ..] = self.left {
            self.left = left;
            if first.policy == Policy::Size && self.best.is_some() {
                continue;
            }
            if let Some(before) = &self.before {
                plan.clone_from(before);
            }
            self.policy = first.policy;
            return Some(Attempt { tokens: self.tokens, ..*first });
        }
        None
    }

    /// The options of an attempt. What decides as [`Policy::Balanced`] also counts thunks as those of that policy; the
    /// results are compared with the thunks that are emitted.
    pub fn options(&self, attempt: Attempt) -> Options<'a> {
        let Attempt { share: _, policy, tokens: _ } = attempt;
        Options { similar: Similar { policy, ..self.options.similar }, ..*self.options }
    }

    /// Considers `plan`, the result of an attempt. Where it is in doubt which of two results is smaller, compiles
    /// functions that differ.
    pub fn consider(&mut self, plan: &mut Plan, found: &Found, bodies: &mut dyn Bodies) {
        plan.count();
        self.tokens = found.tokens;
        self.limited |= found.limit == 0;
        let Some(before) = &self.before else {
            return;
        };
        let mut compare = |to| smaller::compare(to, plan, bodies, self.options);
        let is_smallest = match &self.best {
            // An attempt that changes nothing has reasons why.
            None => compare(before).is_le(),
            Some(best) => compare(best).is_lt(),
        };
        if is_smallest {
            self.best = Some(plan.clone());
        }
    }

    /// Whether the limit of merges is reached: what is merged later would take the place of what is left out.
    pub fn are_limited(&self) -> bool {
        self.limited
    }

    /// The smallest result, the plan before the attempts if none is smaller, and how many tokens were given to
    /// candidates.
    pub fn finish(self, plan: Plan) -> (Plan, u32) {
        (self.best.or(self.before).unwrap_or(plan), self.tokens)
    }
}
