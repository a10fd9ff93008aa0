//! `--verify`: is the merged unit what it should be?
//!
//! All that was called equal is compared a second time, functions by the library, data objects here;
//! and Cranelift's verifier looks at every function that is not the one that was read. What fails here is a bug of this program, unless
//! the function was refused by the target's verifier before anything was done to it.

use crate::data::compare::{first_difference, is_compared};
use crate::exit::bug;
use crate::pass::{Emit, Merged};
use crate::unit::{Names, Unit};
use anyhow::{Result, bail};
use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::verify_function;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::{
    DataIndex, Disposition, FunctionIndex, Options, cranelift_codegen, recheck,
};
use std::collections::BTreeMap;

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

/// Compares the members of every class once more. References are compared by class, of functions
/// and of data objects, so that each of the two comparisons relies on the other.
///
/// # Errors
///
/// The first class that is none.
pub fn second_comparison(unit: &Unit, merged: &Merged, options: &Options<'_>) -> Result<()> {
    let mut bodies = unit.functions.as_slice();
    recheck(&merged.plan, &mut bodies, options).map_err(|error| {
        let [one, other] = [&error.symbol, &error.other].map(|symbol| merged.names.display(symbol));
        bug(format!("the second comparison of {one} and {other} failed: {error}"))
    })?;
    second_comparison_of_data(unit, merged)
}

fn second_comparison_of_data(unit: &Unit, merged: &Merged) -> Result<()> {
    let plan = &merged.plan;
    let given = |data: DataIndex| &unit.data[data.index()];
    let wrong = |one: DataIndex, other: DataIndex, what: &str| {
        let [one, other] = [one, other].map(|data| merged.names.display(&given(data).symbol));
        bug(format!("the second comparison of {one} and {other} failed: {what}"))
    };
    let mut classes: BTreeMap<u32, DataIndex> = BTreeMap::new();
    for (data, entry) in plan.data_entries() {
        let first = *classes.entry(entry.class()).or_insert(data);
        if let Some(difference) = first_difference(unit, plan, data, first) {
            return Err(wrong(data, first, &difference.explanation()));
        }
        let Some(to) = entry.disposition().representative() else {
            continue;
        };
        let representative = plan.data_entry(to);
        let what = if representative.class() != entry.class() {
            "they are of two classes"
        } else if representative.disposition() != Disposition::Keep {
            "the representative is merged itself"
        } else if !is_compared(given(data)) || !is_compared(given(to)) {
            "one of them cannot merge"
        } else if given(data).attributes.pinned || given(to).attributes.pinned {
            "one of them is pinned"
        } else if representative.alignment() < given(data).attributes.alignment {
            "the representative has too small an alignment"
        } else {
            continue;
        };
        return Err(wrong(data, to, what));
    }
    Ok(())
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
