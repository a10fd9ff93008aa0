//! The merged unit as text.
//!
//! First comes the line of defaults, then the data objects, then the functions, each below a
//! directive line for the attributes that CLIF cannot express; both in the order of the unit. The
//! text is a unit again, the same one under any command line, and merging it changes nothing.
//! Comments that say what the source calls functions are kept; other lines of the input (`test` and
//! `target` lines, other comments) are not written.

use crate::data;
use crate::directives;
use crate::pass::{CALL_THUNKS, Emit, Merged};
use crate::unit::{Became, Unit};
use cranelift_codegen::ir::{Function, Signature, UserExternalName, UserFuncName};
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::thunk::call_thunk;
use cranelift_mergefunc::{
    Addresses, Attributes, Disposition, ExtraArgument, FunctionIndex, Linkage, cranelift_codegen,
};
use std::fmt::Write as _;

/// The text of `merged`, which was made of `unit`.
pub fn emit(unit: &Unit, merged: &Merged) -> String {
    let functions = merged.emit.iter().any(|emit| !matches!(emit, Emit::Nothing));
    let mut text = directives::defaults_line(functions, merged.data.iter().any(Option::is_some));
    for data in merged.data.iter().flatten() {
        text += &data::print(data, &|symbol| merged.names.display(symbol));
    }
    let taken = address_taken(unit, merged);
    for (index, emit) in merged.emit.iter().enumerate() {
        let function = FunctionIndex::new(index);
        let attributes =
            Attributes { address_taken: taken[index], ..attributes(unit, merged, function) };
        let jump = |kind: Became, to: &UserExternalName, arguments: &[ExtraArgument]| {
            let to_name = merged.names.display(to);
            let line = directives::line_for(attributes, Some((kind.name(), &to_name)));
            let func = thunk(merged, function, &unit.functions[index].signature, arguments, to);
            (line, func)
        };
        let (line, func) = match emit {
            Emit::Nothing => continue,
            Emit::Body(func) => {
                (directives::line_for(attributes, None), merged.names.restore(func))
            }
            Emit::Thunk(to, arguments) => jump(Became::Thunk, to, arguments),
            Emit::Alias(to) => jump(Became::Alias, to, &[]),
        };
        if !text.is_empty() {
            text.push('\n');
        }
        let comment = merged.names.comment(merged.plan.entry(function).symbol());
        write!(text, "{comment}{line}{}", crate::text::of(&func))
            .expect("a string can be written to");
    }
    text
}

/// The text of `unit` as it is, in the same form: without merging, and without planning it.
pub fn emit_unmerged(unit: &Unit) -> String {
    let mut text = directives::defaults_line(!unit.functions.is_empty(), !unit.data.is_empty());
    for data in &unit.data {
        text += &data::print(data, &|symbol| unit.names.display(symbol));
    }
    for (func, given) in unit.functions.iter().zip(&unit.given) {
        let target = given.became.as_ref().map(|(kind, to)| (kind.name(), unit.names.display(to)));
        let became = target.as_ref().map(|(kind, to)| (*kind, &**to));
        let line = directives::line_for(given.attributes, became);
        let func = crate::text::of(&unit.names.restore(func));
        write!(text, "\n{line}{func}").expect("a string can be written to");
    }
    text
}

/// A function that calls `to`: the form of a thunk or an alias in CLIF.
fn thunk(
    merged: &Merged,
    function: FunctionIndex,
    signature: &Signature,
    arguments: &[ExtraArgument],
    to: &UserExternalName,
) -> Function {
    let name = UserFuncName::User(merged.plan.entry(function).symbol().clone());
    merged.names.restore(&call_thunk(name, signature, arguments, to, &CALL_THUNKS))
}

/// The attributes of a function of the merged unit, without those that it takes over from merged
/// functions.
fn attributes(unit: &Unit, merged: &Merged, function: FunctionIndex) -> Attributes {
    let alignment = merged.plan.entry(function).alignment();
    if let Some(given) = unit.given.get(function.index()) {
        return Attributes { alignment, ..given.attributes };
    }
    let entry = merged.plan.entry(function);
    Attributes {
        linkage: Linkage::Local,
        addresses: Addresses::Insignificant,
        key: entry.attributes().key,
        alignment,
        ..Attributes::default()
    }
}

/// The functions whose addresses are held outside of the unit: their own, or that of a function
/// that they replace.
fn address_taken(unit: &Unit, merged: &Merged) -> Vec<bool> {
    let mut taken: Vec<bool> =
        unit.given.iter().map(|given| given.attributes.address_taken).collect();
    taken.resize(merged.emit.len(), false);
    for (function, entry) in merged.plan.entries() {
        if let Disposition::Redirect { to } = entry.disposition()
            && taken[function.index()]
        {
            taken[to.index()] = true;
        }
    }
    taken
}
