//! The front end of the example: the functions of a module, and how to make their IR, which can be
//! done as often as one likes.

use cranelift_mergefunc::cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_mergefunc::{Addresses, Attributes, Linkage};
use std::fmt::Write as _;

/// The seeds of hash functions, one for each function: two of them are equal.
const SEEDS: [u64; 4] = [17, 4711, 17, 99];

/// The functions of the module in their own language: those that hash a number by a seed, and then
/// the one that calls them all.
pub fn functions() -> Vec<Option<u64>> {
    SEEDS.into_iter().map(Some).chain([None]).collect()
}

/// The result of the module for a number.
pub fn expected(mut number: u64) -> u64 {
    for seed in SEEDS {
        number = (1..20).fold(number.wrapping_add(seed), |hash, round| {
            hash ^ hash.wrapping_mul(31 * round + 7)
        });
    }
    number
}

pub fn symbol(index: usize) -> UserExternalName {
    UserExternalName::new(0, index as u32)
}

/// The IR of a function, made anew each time.
pub fn translate(index: usize, function: Option<u64>) -> Function {
    let mut text = format!("function u0:{index}(i64) -> i64 tail {{\n");
    match function {
        Some(seed) => {
            writeln!(text, "block0(v0: i64):\nv100 = iconst.i64 {seed}\nv1 = iadd v0, v100")
                .unwrap();
            for round in 1..20 {
                let (factor, product) = (200 + round, 300 + round);
                writeln!(text, "v{factor} = iconst.i64 {}", 31 * round + 7).unwrap();
                writeln!(text, "v{product} = imul v{round}, v{factor}").unwrap();
                writeln!(text, "v{} = bxor v{product}, v{round}", round + 1).unwrap();
            }
            text += "return v20\n}\n";
        }
        None => {
            for callee in 0..index {
                writeln!(text, "fn{callee} = u0:{callee}(i64) -> i64 tail").unwrap();
            }
            text += "block0(v0: i64):\n";
            for callee in 0..index {
                writeln!(text, "v{} = call fn{callee}(v{callee})", callee + 1).unwrap();
            }
            writeln!(text, "return v{index}\n}}").unwrap();
        }
    }
    // The host calls the last function.
    let text = if function.is_none() { text.replacen(" tail {", " {", 1) } else { text };
    cranelift_reader::parse_functions(&text).expect("valid CLIF").remove(0)
}

/// Only the last function is called from outside.
pub fn attributes(function: Option<u64>) -> Attributes {
    let linkage = if function.is_none() { Linkage::Export } else { Linkage::Local };
    Attributes { linkage, addresses: Addresses::Insignificant, ..Attributes::default() }
}
