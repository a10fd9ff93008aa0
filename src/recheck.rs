//! A second comparison of everything a plan calls equal, without hash, buckets or refinement.
//!
//! [`recheck`] walks each class again, member by member against the first, and requires equal
//! streams, references that lie, place by place, in equal classes of the plan, and promises of the
//! kept body that each merged member makes, too. Since every pair of references is justified by a
//! class that is itself checked, all of it together is a proof by coinduction that the plan's
//! classes are consistent, whatever found them.
//!
//! What is merged into bodies that earlier units emitted is not compared with those: they are gone.
//!
//! It shares the canonical walk with the pass, so it does not notice what the walk overlooks. And
//! it does not look at what `apply` made of the functions.

use crate::canon::{self, Context, Scratch};
use crate::classes::Node;
use crate::encoding::Encoding;
use crate::facts::{Fact, promises_hold};
use crate::options::Options;
use crate::plan::Plan;
use crate::unit::{Bodies, FunctionIndex, canonicalized};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use cranelift_codegen::ir::UserExternalName;

/// A plan that calls functions equal that are not: a bug in this crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecheckError {
    /// The function that has the wrong class, or loses its body wrongly.
    pub symbol: UserExternalName,
    /// The function that it was compared with.
    pub other: UserExternalName,
    /// What differs.
    pub what: Disagreement,
}

/// What two functions of one class disagree in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disagreement {
    /// One of them cannot be walked.
    Malformed,
    /// The bodies differ.
    Bodies,
    /// The bodies are equal, but at some place they refer to functions of different classes.
    References,
    /// The kept body makes a promise that the other does not make.
    Promises,
}

impl fmt::Display for RecheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecheckError { symbol, other, what } = self;
        let what = match what {
            Disagreement::Malformed => "one of them cannot be walked",
            Disagreement::Bodies => "the bodies differ",
            Disagreement::References => "they refer to functions of different classes",
            Disagreement::Promises => "the kept body promises more",
        };
        write!(f, "{symbol} and {other} are in one class, but {what}")
    }
}

impl core::error::Error for RecheckError {}

/// Compares all that `plan` calls equal a second time. `bodies` are those that were planned,
/// `options` those of the run.
///
/// Walks every function of a class of two or more once.
///
/// # Errors
///
/// The first disagreement, in the order of classes.
pub fn recheck(
    plan: &Plan,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
) -> Result<(), RecheckError> {
    let mut classes: BTreeMap<u32, Vec<FunctionIndex>> = BTreeMap::new();
    for (function, entry) in plan.entries().take(plan.added()) {
        classes.entry(entry.class()).or_default().push(function);
    }
    let mut walk = Recheck { plan, options, scratch: Scratch::default() };
    for members in classes.values().filter(|members| members.len() > 1) {
        let first = walk.encode(members[0], members[0], bodies)?;
        let mut facts = BTreeMap::from([(members[0], first.facts.clone())]);
        for &member in &members[1..] {
            let other = walk.encode(member, members[0], bodies)?;
            walk.compare(member, &other, members[0], &first)?;
            facts.insert(member, other.facts);
        }
        walk.promises(members, &facts)?;
    }
    Ok(())
}

struct Recheck<'a> {
    plan: &'a Plan,
    options: &'a Options<'a>,
    scratch: Scratch,
}

impl Recheck<'_> {
    fn error(&self, a: FunctionIndex, b: FunctionIndex, what: Disagreement) -> RecheckError {
        let symbol = |function| self.plan.entry(function).symbol().clone();
        RecheckError { symbol: symbol(a), other: symbol(b), what }
    }

    fn encode(
        &mut self,
        function: FunctionIndex,
        other: FunctionIndex,
        bodies: &mut dyn Bodies,
    ) -> Result<Encoding, RecheckError> {
        let context = Context {
            policy: self.options.compare,
            endianness: self.options.target.endianness,
            key: self.plan.entry(function).attributes.key,
            symbols: self.plan,
        };
        let body = canonicalized(bodies.body(function), self.options.canonicalize);
        let mut encoding = Encoding::default();
        canon::encode(&body, &context, &mut self.scratch, &mut encoding)
            .map_err(|canon::Malformed| self.error(function, other, Disagreement::Malformed))?;
        Ok(encoding)
    }

    fn compare(
        &self,
        a: FunctionIndex,
        a_encoding: &Encoding,
        b: FunctionIndex,
        b_encoding: &Encoding,
    ) -> Result<(), RecheckError> {
        if a_encoding.key() != b_encoding.key()
            || a_encoding.callees.len() != b_encoding.callees.len()
        {
            return Err(self.error(a, b, Disagreement::Bodies));
        }
        let class = |&node: &Node| self.plan.class_of(node);
        match a_encoding.callees.iter().map(class).eq(b_encoding.callees.iter().map(class)) {
            true => Ok(()),
            false => Err(self.error(a, b, Disagreement::References)),
        }
    }

    /// Each body that stands for another may promise only what the other does.
    fn promises(
        &self,
        members: &[FunctionIndex],
        facts: &BTreeMap<FunctionIndex, Vec<Fact>>,
    ) -> Result<(), RecheckError> {
        for &member in members {
            let entry = self.plan.entry(member);
            let Some(to) = entry.disposition().representative() else {
                continue;
            };
            let Some(body_of) = self.plan.body_of(to) else {
                // It was emitted before, and its promises are not in this plan.
                continue;
            };
            let kept = match &self.plan.entry(to).weakened {
                Some(weakened) => weakened,
                None => &facts[&body_of],
            };
            if !promises_hold(kept, &facts[&member]) {
                return Err(self.error(member, to, Disagreement::Promises));
            }
        }
        Ok(())
    }
}
