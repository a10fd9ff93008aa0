//! What benches share: what they compare the pass with, and how they are called.

use crate::isa;
use cranelift_codegen::Context;
use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use std::hint::black_box;

/// The settings with which benches compile: those of an optimising compiler for position-independent code.
const SETTINGS: [(&str, &str); 4] = [
    ("opt_level", "speed"),
    ("is_pic", "true"),
    ("enable_verifier", "false"),
    ("preserve_frame_pointers", "true"),
];

/// The target that benches compile for, on every machine.
pub fn target() -> OwnedTargetIsa {
    isa::of("x86_64-unknown-linux-gnu", &SETTINGS)
}

/// A bare visit of every instruction.
pub fn visit(functions: &[Function]) {
    for func in functions {
        for block in func.layout.blocks() {
            for inst in func.layout.block_insts(block) {
                func.dfg.inst_values(inst).for_each(|value| {
                    black_box(value);
                });
            }
        }
    }
}

/// Compiles a function.
pub fn compile(context: &mut Context, isa: &dyn TargetIsa, func: Function) {
    context.clear();
    context.func = func;
    context.compile(isa, &mut Default::default()).expect("compiles");
}

/// Whether a bench is to measure: `cargo test --benches` runs benches only to see that they do.
pub fn measures() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// The number that a variable of the environment holds: the default if it is unset, and `once` unless the bench
/// measures.
pub fn number(variable: &str, default: u32, once: u32) -> u32 {
    match measures() {
        true => std::env::var(variable).map_or(default, |text| text.parse().expect("a number")),
        false => once,
    }
}
