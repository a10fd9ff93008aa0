//! By what a function finds those with which it may share a body, when their IR is not there any
//! more.
//!
//! It is what grouping by shape and pairing by sketch look at first, of one function. It decides
//! nothing: functions that are alike by it are compared as all others are, and of those that are
//! not, no body would have been tried.

use super::align::{Sketch, effort};
use super::{cost, may_share_body};
use crate::canon::{self, Counts, Encoding, ShapeHash};
use crate::options::{Options, Policy};
use crate::unit::Attributes;
use cranelift_codegen::ir::Function;

/// The record of a function to find those with which it may share a body: some 150 bytes.
#[derive(Clone, Debug)]
pub(crate) struct Likeness {
    pub shape: ShapeHash,
    pub counts: Counts,
    /// `None` if it is not aligned with others.
    pub sketch: Option<Sketch>,
}

impl Likeness {
    /// That of a function with this encoding. `None` if it cannot share a body with any other.
    /// Linear in its size.
    pub fn of(
        func: &Function,
        encoding: &Encoding,
        attributes: &Attributes,
        options: &Options<'_>,
    ) -> Option<Likeness> {
        let is_off = options.similar.policy == Policy::Off || options.target.size_model.is_none();
        if is_off || !may_share_body(attributes, options) {
            return None;
        }
        let shape = canon::shape_hash(encoding);
        let counts = Counts::of(func, attributes.key);
        let is_large = counts.instructions as usize >= cost::MIN_ALIGNED;
        let is_aligned = is_large && effort(options).is_some();
        let sketch = is_aligned.then(|| Sketch::of(func, counts)).flatten();
        Some(Likeness { shape, counts, sketch })
    }

    /// Whether two functions may share a body that branches where they differ.
    pub fn resembles(&self, other: &Likeness, options: &Options<'_>) -> bool {
        let [Some(a), Some(b)] = [&self.sketch, &other.sketch] else {
            return false;
        };
        let differ = self.counts.instructions.abs_diff(other.counts.instructions) as usize;
        differ <= cost::MAX_DIFFERING
            && effort(options).is_some_and(|effort| a.resembles(b, effort))
    }
}
