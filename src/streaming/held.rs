//! Held functions: those whose IR the embedder keeps until the plan, because similar ones may share a body.
//!
//! Merging similar functions takes IR. A function is held if another one of its shape was added before and the bytes
//! of IR that are held stay within a bound; its code is made when the plan is. All others are compiled at once, and
//! cannot be changed any more: they never share a parameterised body, and what they call keeps its symbol.
//!
//! What it does *not* do: the first function of a shape is never held, since most shapes have no second one; identical
//! merging is not repeated after parameterised bodies were made; and the sum over the unit is not compared
//! ([`Policy::Size`](crate::Policy::Size)).

use crate::canon::{self, Encoding, ShapeHash};
use crate::congruence::Encodings;
use crate::ir::table_bytes;
use crate::options::{Options, Policy};
use crate::parameterise::{self, Given, Shared, Workbench};
use crate::plan::Plan;
use crate::unit::{Attributes, Bodies, FunctionIndex, Observed};
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, UserExternalName};
use hashbrown::HashSet;
use rustc_hash::FxBuildHasher;

/// The functions that are held, and the shapes that were seen.
#[derive(Default)]
pub(super) struct Held {
    /// The most bytes of IR that are held.
    most_bytes: usize,
    bytes: usize,
    /// Hashes of shapes. One that two shapes have costs the memory for a function, and nothing else.
    shapes: HashSet<ShapeHash, FxBuildHasher>,
    /// Ascending.
    functions: Vec<(FunctionIndex, ShapeHash)>,
}

impl Held {
    /// None yet, and at most this many bytes.
    pub fn at_most(most_bytes: usize) -> Held {
        Held { most_bytes, ..Held::default() }
    }

    /// The estimated bytes of IR that are held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a function, which needs code of its own, is held from now on.
    pub fn add(
        &mut self,
        function: FunctionIndex,
        func: &Function,
        encoding: &Encoding,
        attributes: &Attributes,
        options: &Options<'_>,
    ) -> bool {
        let off = options.similar.policy == Policy::Off || self.most_bytes == 0;
        // A function that cannot be encoded has no shape.
        let shapeless = encoding.shape.is_empty();
        if off || shapeless || !parameterise::may_share_body(attributes, options) {
            return false;
        }
        let (shape, _) = canon::hashes(encoding);
        if self.shapes.insert(shape) {
            return false;
        }
        let bytes = table_bytes(func);
        let fits = bytes <= self.most_bytes - self.bytes;
        if fits {
            self.bytes += bytes;
            self.functions.push((function, shape));
        }
        fits
    }

    /// Whether functions can share parameterised bodies.
    pub fn has_two(&self) -> bool {
        self.functions.len() > 1
    }

    /// The hash of the shape of a function, if it is held.
    pub fn shape(&self, function: FunctionIndex) -> Option<ShapeHash> {
        let at = self.functions.binary_search_by_key(&function, |&(held, _)| held).ok()?;
        Some(self.functions[at].1)
    }
}

/// Merges held functions that differ in constants and references.
pub(super) fn similar(
    plan: &mut Plan,
    observed: &Observed,
    encodings: &Encodings,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
) {
    let shared = Shared::default();
    let given = Given { observed, encodings, earlier: None, shared: &shared };
    let mut workbench = Workbench::new(plan, given, bodies, options);
    parameterise::search(&mut workbench, given);
    plan.record_members();
    plan.count();
}

/// What the embedder hands out, by the functions that it holds: the IR of a function that equals a held one is that of
/// the held one.
pub(super) struct HeldBodies<'a, F> {
    pub bodies: &'a mut dyn Bodies,
    /// The function that each is known to equal.
    pub equal: F,
}

impl<F: Fn(FunctionIndex) -> FunctionIndex> Bodies for HeldBodies<'_, F> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        self.bodies.body((self.equal)(function))
    }

    fn fresh_symbol(&mut self, members: &[FunctionIndex]) -> Option<UserExternalName> {
        self.bodies.fresh_symbol(members)
    }
}

/// What identical merging needs of functions whose IR is gone: without call thunks, fresh symbols and proofs, no decision
/// depends on it.
pub(super) struct NoBodies;

impl Bodies for NoBodies {
    fn body(&mut self, _: FunctionIndex) -> &Function {
        unreachable!("identical merging was given nothing for which it needs a body")
    }
}
