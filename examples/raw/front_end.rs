//! The front end of the example: two units, and what is known of their functions.

use cranelift_mergefunc::cranelift_codegen::ir::UserExternalName;
use cranelift_mergefunc::{Addresses, Attributes, Linkage};

pub const UNITS: [&str; 2] = [include_str!("first.clif"), include_str!("second.clif")];

/// The names of the functions, by number.
const NAMES: [&str; 12] = [
    "norm", "dot", "energy", "power", "even", "odd", "whole", "half", "sum", "square", "total",
    "main",
];

pub fn name_of(symbol: &UserExternalName) -> String {
    NAMES[symbol.index as usize].to_owned()
}

pub fn attributes_of(symbol: &UserExternalName) -> Attributes {
    let name = NAMES[symbol.index as usize];
    let linkage = match name {
        "norm" | "energy" | "power" | "sum" | "total" | "main" => Linkage::Export,
        _ => Linkage::Local,
    };
    let addresses = match name {
        "power" => Addresses::Insignificant,
        _ => Addresses::Significant,
    };
    Attributes { linkage, addresses, ..Attributes::default() }
}
