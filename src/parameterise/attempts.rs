//! How often merging with parameters is tried, and how much a parameterised body must save each time.
//!
//! What it costs to pass extra arguments depends on all else that each caller does, so the sum over a unit is known
//! only when it is compiled. With [`Policy::Size`] an attempt that makes the unit larger is repeated with a greater
//! demand on each body, and given up if that does not help.

use super::{Found, smaller};
use crate::options::{Options, Policy};
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

/// What one attempt demands.
#[derive(Clone, Copy)]
pub(crate) struct Demand {
    pub(super) share: Share,
}

/// The attempts of a run.
pub(crate) struct Attempts<'a> {
    options: &'a Options<'a>,
    left: &'static [Share],
    /// The plan before the attempts, if one can be rejected.
    before: Option<Plan>,
}

impl<'a> Attempts<'a> {
    /// As many as the policy allows, each beginning with `plan`.
    pub fn new(options: &'a Options<'a>, plan: &Plan) -> Attempts<'a> {
        let (left, before): (&[Share], _) = match options.similar.policy {
            Policy::Off => (&[], None),
            Policy::Balanced => (&[Share::Eighth], None),
            Policy::Size => (&[Share::Anything, Share::Eighth], Some(plan.clone())),
        };
        Attempts { options, left, before }
    }

    /// The demand of the next attempt, if there is one.
    pub fn next(&mut self) -> Option<Demand> {
        let (&share, left) = self.left.split_first()?;
        self.left = left;
        Some(Demand { share })
    }

    /// Whether `plan`, the result of an attempt, is taken. Otherwise it is reset to the plan before the attempt. With
    /// [`Policy::Size`], where it is in doubt whether the unit becomes smaller, compiles all functions that differ.
    pub fn accept(&mut self, plan: &mut Plan, found: Found, bodies: &mut dyn Bodies) -> bool {
        plan.count();
        let Some(before) = &self.before else {
            return true;
        };
        if found.surely_smaller || smaller::is_smaller(before, plan, bodies, self.options) {
            return true;
        }
        plan.clone_from(before);
        false
    }
}
