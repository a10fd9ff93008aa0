//! Functions of calls of functions near and far: units of one linked program have hardly any of the
//! latter.

use crate::sample::{Group, sample};
use cranelift_codegen::isa::TargetIsa;
use cranelift_mergefunc::cranelift_codegen;
use cranelift_size_model::Registers;
use rayon::prelude::*;
use std::fmt::Write as _;
use testkit::support::parse_one;

/// Of each kind, functions of a few calls up to many, each of another callee, which pass the result
/// of the one before.
pub fn group(isa: &dyn TargetIsa, registers: &Registers) -> Group {
    let mut texts = Vec::new();
    for call_conv in ["system_v", "fast", "tail"] {
        for linkage in ["colocated ", ""] {
            for arguments in 1..6 {
                for calls in [1, 2, 3, 5, 10, 30, 100] {
                    texts.push(text(call_conv, linkage, arguments, calls));
                }
            }
        }
    }
    let samples = texts.par_iter().filter_map(|text| sample(&parse_one(text), isa, registers));
    Group { name: "calls".to_owned(), samples: samples.collect() }
}

fn text(call_conv: &str, linkage: &str, arguments: usize, calls: usize) -> String {
    let signature = format!("({}) -> i64 {call_conv}", vec!["i64"; arguments].join(", "));
    let mut text = format!("function u0:0(i64) -> i64 {call_conv} {{\n");
    for callee in 0..calls {
        writeln!(text, "    fn{callee} = {linkage}u1:{callee}{signature}").unwrap();
    }
    text += "block0(v0: i64):\n";
    for callee in 0..calls {
        let passed: Vec<String> =
            (0..arguments).map(|at| format!("v{}", if at == 0 { callee } else { 0 })).collect();
        writeln!(text, "    v{} = call fn{callee}({})", callee + 1, passed.join(", ")).unwrap();
    }
    text + &format!("    return v{calls}\n}}\n")
}
