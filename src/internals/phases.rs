//! The phases of [`Merger::plan`](crate::Merger::plan) one by one, for benches, and the walk alone.
//!
//! It knows no earlier units.

use crate::canon::{Context, Encoding, Scratch, encode, hashes};
use crate::options::Options;
use crate::pass::Merger;
use crate::plan::Plan;
use crate::unit::{AddError, Attributes, Bodies, NoUnit};
use cranelift_codegen::ir::{Function, UserExternalName};

/// The walk, with memory that is used again, as the pass uses it.
#[derive(Default)]
pub struct WalkAlone {
    scratch: Scratch,
    encoding: Encoding,
}

impl WalkAlone {
    /// Writes the encoding of a function; every symbol is compared by name. Returns whether it has
    /// one.
    pub fn encode(&mut self, func: &Function, options: &Options<'_>) -> bool {
        let context = Context::of(options, 0, &NoUnit);
        encode(func, &context, &mut self.scratch, &mut self.encoding).is_ok()
    }

    /// The hash of the last written encoding.
    pub fn hash(&self) -> u128 {
        hashes(&self.encoding).1.0
    }
}

/// Plans a unit, and calls `end` with the name of each phase when it ends. A phase can come several
/// times.
///
/// # Errors
///
/// Those of [`Merger::add`](crate::Merger::add).
pub fn phases<'a>(
    functions: impl ExactSizeIterator<Item = (UserExternalName, &'a Function, Attributes)>,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
    end: &mut dyn FnMut(&'static str),
) -> Result<Plan, AddError> {
    let mut merger = Merger::new(*options);
    merger.reserve(functions.len());
    for (symbol, func, attributes) in functions {
        merger.add(symbol, func, attributes)?;
    }
    end("add");
    Ok(merger.plan_phases(bodies, false, end).0)
}
