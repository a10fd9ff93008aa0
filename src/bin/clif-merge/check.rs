//! `--verify`: is the merged unit what it should be?
//!
//! The independent checker proves the plan, and Cranelift's verifier looks at every function that is
//! not the one that was read. What fails here is a bug of this program, unless the function was
//! refused by the target's verifier before anything was done to it.

use crate::data::GivenData;
use crate::exit::bug;
use crate::pass::{Emit, Merged};
use crate::table::thousands;
use crate::unit::{Names, Unit};
use anyhow::{Result, bail};
use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::verify_function;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::{
    Bodies, DataIndex, DataObject, FunctionIndex, Options, Proof, Refutation, cranelift_codegen,
    prove,
};

/// Checks `merged`, which was made of `unit` under `options`, and tells what was checked.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn check(
    unit: &Unit,
    merged: &Merged,
    options: &Options<'_>,
    isa: &dyn TargetIsa,
) -> Result<String> {
    let proof = proof(unit, merged, options)?;
    for (index, emit) in merged.emit.iter().enumerate() {
        if let Emit::Body(func) = emit
            && merged.changed[index]
        {
            valid(unit, &merged.names, merged, index, func, isa)?;
        }
    }
    Ok(format!(
        "proved: {} functions merged, {} rewritten, {} called in place of others, {} data objects merged",
        thousands(proof.merged as u64),
        thousands(proof.rewritten as u64),
        thousands(proof.related as u64),
        thousands(proof.data as u64),
    ))
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
        let [kept, original] = [kept, original].map(|symbol| merged.names.display(&symbol));
        let at = at.map(|at| format!(", {at}")).unwrap_or_default();
        bug(format!("the plan does not hold: {kept} does not stand for {original}: {mismatch}{at}"))
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

    fn data(&mut self, data: DataIndex) -> &DataObject {
        &self.data[data.index()].object
    }
}

fn valid(
    unit: &Unit,
    names: &Names,
    merged: &Merged,
    index: usize,
    func: &Function,
    isa: &dyn TargetIsa,
) -> Result<()> {
    let Err(errors) = verify_function(func, isa) else {
        return Ok(());
    };
    let drawn = names.draw(func, errors);
    let function = FunctionIndex::new(index);
    let name = names.display(merged.plan.entry(function).symbol());
    if let (Some(original), Some(given)) = (unit.functions.get(index), unit.given.get(index))
        && verify_function(original, isa).is_err()
    {
        bail!("{}: function {name} is not valid for the target:\n{drawn}", given.place);
    }
    Err(bug(format!("function {name} is not valid after merging:\n{drawn}")))
}
