//! The weights as the library's source text.

use crate::Target;
use crate::fit::{Fitted, prior};
use cranelift_codegen::ir::Opcode;
use cranelift_mergefunc::cranelift_codegen;
use cranelift_size_model::{Class, ConstantKind, ConstantUse, Feature, Quantity};
use std::fmt::Write as _;

/// Parts of a byte, as the library counts.
const PER_BYTE: f64 = 64.0;

/// The text of `crates/size-model/src/fitted.rs`.
pub fn text(fitted: &[(&Target, Fitted)], units: &[String]) -> String {
    let mut text = String::new();
    let version = cranelift_codegen::VERSION;
    write!(
        text,
        "//! The bytes that each feature takes, in 1/{PER_BYTE} bytes: written by the program `size-model` (see\n\
         //! CONTRIBUTING.md), which fitted them with Cranelift {version} on\n\
         //! {}.\n\n\
         use super::quantity::Quantity as Q;\n\
         use super::registers::Registers;\n\
         use super::{{Weights, instructions, quantities}};\n\
         use cranelift_codegen::ir::Opcode as O;\n",
        units.join(", ")
    )
    .expect("a string takes any text");
    for (target, fitted) in fitted {
        text += &weights(target, fitted);
    }
    text
}

fn weight(fitted: &Fitted, feature: Feature) -> i32 {
    let bytes = fitted.weights.get(&feature).copied().unwrap_or_else(|| prior(&feature));
    (bytes * PER_BYTE).round() as i32
}

fn weights(target: &Target, fitted: &Fitted) -> String {
    let Target { constant, name, registers: (registers, _), smallest } = target;
    let mut text = format!(
        "\n/// For {name}.\n#[rustfmt::skip]\npub(super) static {constant}: Weights = Weights {{\n    \
         target: \"{name}\",\n    registers: {registers},\n    smallest: {smallest},\n    all_types: false,\n"
    );
    let others = (prior(&Feature::Instruction(Opcode::Nop, Class::Narrow)) * PER_BYTE) as i32;
    text += &format!("    // {:?}\n    instructions: instructions({others}, &[\n", Class::ALL);
    let mut opcodes: Vec<Opcode> = fitted
        .weights
        .keys()
        .filter_map(|feature| match feature {
            Feature::Instruction(opcode, _) => Some(*opcode),
            Feature::Constant(..) | Feature::Quantity(_) => None,
        })
        .collect();
    opcodes.sort_by_key(|opcode| *opcode as u8);
    opcodes.dedup();
    for opcode in opcodes {
        let row = Class::ALL.map(|class| weight(fitted, Feature::Instruction(opcode, class)));
        text += &format!("        (O::{opcode:?}, {row:?}),\n");
    }
    text += &format!("    ]),\n    // {:?}\n    constants: [\n", ConstantKind::ALL);
    for of in ConstantUse::ALL {
        let row = ConstantKind::ALL.map(|kind| weight(fitted, Feature::Constant(of, kind)));
        text += &format!("        // {of:?}\n        {row:?},\n");
    }
    text += "    ],\n    quantities: quantities(&[\n";
    for &quantity in Quantity::ALL {
        let weight = weight(fitted, Feature::Quantity(quantity));
        text += &format!("        (Q::{quantity:?}, {weight}),\n");
    }
    text += "    ]),\n};\n";
    text
}
