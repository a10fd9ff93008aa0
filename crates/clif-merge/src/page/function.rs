//! The listings of one function: its CLIF, and its native code before and after merging.
//!
//! Native code is what Cranelift writes down of its own instructions; nothing is disassembled. A
//! function that gave up its body has none: then it is the code of what replaces it, below a line
//! that says so.

use super::listings::Listing;
use crate::codegen::Compiler;
use crate::decisions::Planned;
use clif_unit::{extra, text};
use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::TargetIsa;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::{Disposition, FunctionIndex, cranelift_codegen};

/// The texts of a function or a new body; native code if `isa` is given.
pub fn listing(
    planned: &Planned<'_>,
    isa: Option<&dyn TargetIsa>,
    function: FunctionIndex,
) -> Listing {
    let Planned { unit, listings, names, .. } = planned;
    let clif = match unit.given.get(function.index()) {
        Some(given) => listings.text(&given.place).map(str::to_owned),
        None => merged(planned, function)
            .map(|func| text::of(&names.restore(&func)).trim_end().to_owned()),
    };
    let Some(isa) = isa else {
        return Listing { clif, ..Listing::default() };
    };
    let mut compiler = Compiler::new(isa);
    let before = match unit.functions.get(function.index()) {
        Some(func) => native(planned, &mut compiler, func),
        None => "; not there before merging".to_owned(),
    };
    let after = after(planned, &mut compiler, function);
    Listing { clif, before: Some(before), after: Some(after) }
}

/// The body of a function or a new body after merging, if the plan has one.
fn merged(planned: &Planned<'_>, function: FunctionIndex) -> Option<Function> {
    let Planned { unit, plan, .. } = planned;
    let body = match unit.functions.get(function.index()) {
        Some(func) => Some(func),
        None => plan.new_body(function).map(|new| new.body()),
    };
    let mut func = body?.clone();
    plan.apply(function, &mut func);
    Some(func)
}

/// The native code of a function under the names of the text, or why there is none.
fn native(planned: &Planned<'_>, compiler: &mut Compiler<'_>, func: &Function) -> String {
    let named = planned.names.restore(func);
    match compiler.listing(named) {
        Ok(listing) => listing.trim_end().to_owned(),
        Err(error) => format!("; cannot be compiled: {error}"),
    }
}

/// The function after merging.
fn after(planned: &Planned<'_>, compiler: &mut Compiler<'_>, function: FunctionIndex) -> String {
    let Planned { plan, names, .. } = planned;
    let name = |function: FunctionIndex| names.display(plan.entry(function).symbol());
    let disposition = plan.entry(function).disposition();
    let mut body_of = |function: FunctionIndex| match merged(planned, function) {
        Some(func) => native(planned, compiler, &func),
        None => String::new(),
    };
    let (what, to) = match disposition {
        Disposition::Keep => return body_of(function),
        Disposition::Redirect { to } => ("no code: references go to", to),
        Disposition::Alias { to } => ("no code: another name for the address of", to),
        Disposition::Thunk { to } => ("a jump to", to),
    };
    let arguments = extra::text(&plan.thunk_arguments(function), names);
    let with = match arguments.is_empty() {
        true => String::new(),
        false => format!("\n; with the extra arguments {arguments}"),
    };
    format!("; {what} {}{with}\n\n{}", name(to), body_of(to)).trim_end().to_owned()
}
