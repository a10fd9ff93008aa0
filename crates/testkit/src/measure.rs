//! The common part of benches: the alternatives with which they compare the pass, and how they are
//! called.

use crate::isa;
use cranelift_codegen::Context;
use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use std::fmt::Write;
use std::hint::black_box;
use std::path::Path;

/// The settings with which benches compile: those of an optimising compiler for
/// position-independent code.
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

/// The number that a variable of the environment holds: the default if it is unset, and `once`
/// unless the bench measures.
pub fn number(variable: &str, default: u32, once: u32) -> u32 {
    match measures() {
        true => std::env::var(variable).map_or(default, |text| text.parse().expect("a number")),
        false => once,
    }
}

/// The median of some figures, of which there is one at least.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The figures of a bench, for `benches/figures/run`: numbers by row and column. Written as JSON to
/// the file `BENCH.json` of the directory that `CLIF_MERGE_FIGURES` names, if it is set.
pub struct Figures {
    bench: &'static str,
    /// In the order in which they were set.
    rows: Vec<(String, Vec<(String, f64)>)>,
}

impl Figures {
    /// None, of a bench of this name.
    pub fn new(bench: &'static str) -> Figures {
        Figures { bench, rows: Vec::new() }
    }

    /// Adds one. The names are written without escapes.
    pub fn set(&mut self, row: &str, column: &str, figure: f64) {
        let columns = match self.rows.iter().position(|(name, _)| name == row) {
            Some(at) => &mut self.rows[at].1,
            None => {
                self.rows.push((row.to_owned(), Vec::new()));
                &mut self.rows.last_mut().expect("was pushed").1
            }
        };
        columns.push((column.to_owned(), figure));
    }

    /// Writes them. Figures that are not numbers are left out.
    pub fn write(&self) {
        let Some(directory) = std::env::var_os("CLIF_MERGE_FIGURES") else {
            return;
        };
        let mut text = String::from("{");
        for (at, (row, columns)) in self.rows.iter().enumerate() {
            let before = if at > 0 { "," } else { "" };
            write!(text, "{before}\n \"{row}\": {{").expect("writes to memory");
            let finite = columns.iter().filter(|(_, figure)| figure.is_finite());
            for (at, (column, figure)) in finite.enumerate() {
                let before = if at > 0 { ", " } else { "" };
                write!(text, "{before}\"{column}\": {figure}").expect("writes to memory");
            }
            text.push('}');
        }
        text.push_str("\n}\n");
        let file = Path::new(&directory).join(self.bench).with_extension("json");
        std::fs::write(file, text).expect("CLIF_MERGE_FIGURES is a directory");
    }
}
