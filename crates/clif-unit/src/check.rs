//! Is the merged unit what it should be?
//!
//! The independent checker proves the plan, and Cranelift's verifier looks at every function that
//! is not the one that was read. A failure here is a bug of the pass.

use crate::data::GivenData;
use crate::pass::{Emit, Merged};
use crate::unit::Unit;
use crate::verify::Verifier;
use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::TargetIsa;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::check::{Proof, Refutation, prove};
use cranelift_mergefunc::data::{DataIndex, DataObject};
use cranelift_mergefunc::{Bodies, FunctionIndex, Options, cranelift_codegen};
use std::fmt;

/// An error in a merged unit, for a person to read.
#[derive(Debug)]
pub struct CheckError(String);

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CheckError {}

type Result<T> = std::result::Result<T, CheckError>;

/// Checks `merged`, which was made of `unit` under `options`, and returns the proof of its plan.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn check(
    unit: &Unit,
    merged: &Merged,
    options: &Options<'_>,
    isa: &dyn TargetIsa,
) -> Result<Proof> {
    let proof = proof(unit, merged, options)?;
    let verifier = Verifier::new(isa);
    for (index, emit) in merged.emit.iter().enumerate() {
        if let Emit::Body(func) = emit
            && merged.changed[index]
        {
            valid(unit, merged, index, func, &verifier)?;
        }
    }
    Ok(proof)
}

/// Has the independent checker prove the plan.
///
/// # Errors
///
/// The first claim that does not hold.
pub fn proof(unit: &Unit, merged: &Merged, options: &Options<'_>) -> Result<Proof> {
    let mut bodies = Given { functions: &unit.functions, data: &unit.data };
    prove(&merged.plan, &mut bodies, options).map_err(|refutation| {
        let Refutation { kept, original, mismatch, at } = refutation;
        let [kept, original] = [kept, original].map(|symbol| merged.names.describe(&symbol));
        let at = at.map(|at| format!(", {at}")).unwrap_or_default();
        CheckError(format!(
            "the plan does not hold: {kept} may not replace {original}: {mismatch}{at}"
        ))
    })
}

/// A unit as it was read.
struct Given<'a> {
    functions: &'a [Function],
    data: &'a [GivenData],
}

impl Bodies for Given<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self.functions[function.index()]
    }

    fn data(&mut self, data: DataIndex) -> Option<&DataObject> {
        Some(&self.data[data.index()].object)
    }
}

/// A body is valid, as functions are when a unit is read, and for the target if all of those are
/// from which it was made.
fn valid(
    unit: &Unit,
    merged: &Merged,
    index: usize,
    func: &Function,
    verifier: &Verifier,
) -> Result<()> {
    let errors = match (verifier.verify(func), verifier.verify_for_target(func)) {
        (Err(errors), _) => errors,
        (Ok(()), Err(errors))
            if made_of(merged, index, unit.functions.len())
                .all(|function| verifier.verify_for_target(&unit.functions[function]).is_ok()) =>
        {
            errors
        }
        (Ok(()), Ok(()) | Err(_)) => return Ok(()),
    };
    let drawn = merged.names.draw(func, errors);
    let name = merged.names.describe(merged.plan.entry(FunctionIndex::new(index)).symbol());
    Err(CheckError(format!("function {name} is not valid after merging:\n{drawn}")))
}

/// The functions of the unit, which are the first `count`, whose code may be in a body: the body's
/// own function, or, if the body is new, the functions that it replaces.
fn made_of(merged: &Merged, index: usize, count: usize) -> impl Iterator<Item = usize> {
    let body = FunctionIndex::new(index);
    (0..count).filter(move |&function| match index < count {
        true => function == index,
        false => {
            let entry = merged.plan.entry(FunctionIndex::new(function));
            entry.disposition().representative() == Some(body)
        }
    })
}
