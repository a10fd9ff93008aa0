//! `--verify`: is the merged unit what it should be?
//!
//! All that was called equal is compared a second time, and Cranelift's verifier looks at every
//! function that is not the one that was read. What fails here is a bug of this program, unless
//! the function was refused by the target's verifier before anything was done to it.

use crate::exit::bug;
use crate::pass::{Emit, Merged};
use crate::unit::{Names, Unit};
use anyhow::{Result, bail};
use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::verify_function;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::{FunctionIndex, Options, cranelift_codegen, recheck};

/// Checks `merged`, which was made of `unit` under `options`.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn check(
    unit: &Unit,
    merged: &Merged,
    options: &Options<'_>,
    isa: &dyn TargetIsa,
) -> Result<()> {
    second_comparison(unit, merged, options)?;
    for (index, emit) in merged.emit.iter().enumerate() {
        if let Emit::Body(func) = emit
            && merged.changed[index]
        {
            valid(unit, &merged.names, merged, index, func, isa)?;
        }
    }
    Ok(())
}

fn second_comparison(unit: &Unit, merged: &Merged, options: &Options<'_>) -> Result<()> {
    let mut bodies = unit.functions.as_slice();
    recheck(&merged.plan, &mut bodies, options).map_err(|error| {
        let [one, other] = [&error.symbol, &error.other].map(|symbol| merged.names.display(symbol));
        bug(format!("the second comparison of {one} and {other} failed: {error}"))
    })
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
