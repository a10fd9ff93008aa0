//! Law: a branch on a condition that is known is the jump to the block that it takes, and never the
//! jump to the other one.
//!
//! Conditions are random expressions over constants, with their values computed here in 128-bit
//! arithmetic. The walk and the checker must agree with that, each on its own.

use crate::support::{
    assert_different, assert_equal, encode, parse_one, random, same_class, verify, walk_all,
};
use arbitrary::{Result, Unstructured};
use cranelift_mergefunc::Compare;
use std::fmt::Write;

/// An expression as text, one instruction per operator.
struct Expression {
    text: String,
    next_value: u32,
}

/// A value of the text, and what it is.
#[derive(Clone, Copy)]
struct Known {
    name: u32,
    bits: u32,
    /// Below `2^bits`.
    value: u128,
}

impl Known {
    fn signed(self) -> i128 {
        let sign = 1i128 << (self.bits - 1);
        (self.value as i128 ^ sign) - sign
    }
}

/// Integers that can be constants.
const WIDTHS: [u32; 4] = [8, 16, 32, 64];

/// Interesting numbers more often than others.
fn constant(u: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match u.int_in_range(0..=6)? {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => 1 << u.int_in_range(0..=63)?,
        4 => (1 << u.int_in_range(0..=63)?) - 1,
        5 => u.int_in_range(0..=3)?,
        _ => u.arbitrary()?,
    })
}

impl Expression {
    fn line(&mut self, bits: u32, value: u128, instruction: &str) -> Known {
        let name = self.next_value;
        self.next_value += 1;
        writeln!(self.text, "    v{name} = {instruction}").unwrap();
        Known { name, bits, value: value & (u128::MAX >> (128 - bits)) }
    }

    fn random(&mut self, bits: u32, depth: u32, u: &mut Unstructured<'_>) -> Result<Known> {
        let wider: Vec<u32> = WIDTHS.into_iter().filter(|&other| other > bits).collect();
        let narrower: Vec<u32> = WIDTHS.into_iter().filter(|&other| other < bits).collect();
        Ok(match u.int_in_range(0..=if depth == 0 { 0 } else { 9 })? {
            0 => {
                let value = constant(u)? & (u64::MAX >> (64 - bits));
                self.line(bits, value.into(), &format!("iconst.i{bits} 0x{value:x}"))
            }
            1 if bits == 8 => {
                let operands = *u.choose(&WIDTHS)?;
                let a = self.random(operands, depth - 1, u)?;
                let b = if u.ratio(1, 4)? { a } else { self.random(operands, depth - 1, u)? };
                let (signed, unsigned) = (a.signed().cmp(&b.signed()), a.value.cmp(&b.value));
                let (cond, holds) = *u.choose(&[
                    ("eq", unsigned.is_eq()),
                    ("ne", unsigned.is_ne()),
                    ("slt", signed.is_lt()),
                    ("sle", signed.is_le()),
                    ("sgt", signed.is_gt()),
                    ("sge", signed.is_ge()),
                    ("ult", unsigned.is_lt()),
                    ("ule", unsigned.is_le()),
                    ("ugt", unsigned.is_gt()),
                    ("uge", unsigned.is_ge()),
                ])?;
                let instruction = format!("icmp {cond} v{}, v{}", a.name, b.name);
                self.line(8, u128::from(holds), &instruction)
            }
            2 | 3 if !narrower.is_empty() => {
                let a = self.random(*u.choose(&narrower)?, depth - 1, u)?;
                match u.arbitrary()? {
                    true => self.line(bits, a.value, &format!("uextend.i{bits} v{}", a.name)),
                    false => {
                        let value = a.signed() as u128;
                        self.line(bits, value, &format!("sextend.i{bits} v{}", a.name))
                    }
                }
            }
            4 if !wider.is_empty() => {
                let a = self.random(*u.choose(&wider)?, depth - 1, u)?;
                self.line(bits, a.value, &format!("ireduce.i{bits} v{}", a.name))
            }
            _ => {
                let a = self.random(bits, depth - 1, u)?;
                let b = self.random(bits, depth - 1, u)?;
                let (opcode, value) = *u.choose(&[
                    ("band", a.value & b.value),
                    ("bor", a.value | b.value),
                    ("bxor", a.value ^ b.value),
                    ("iadd", a.value.wrapping_add(b.value)),
                    ("isub", a.value.wrapping_sub(b.value)),
                ])?;
                self.line(bits, value, &format!("{opcode} v{}, v{}", a.name, b.name))
            }
        })
    }
}

/// Every operation with every pair of some numbers that lie at its edges, in every width.
#[test]
fn every_operation_on_constants_is_what_it_is() {
    const OPERATIONS: [&str; 18] = [
        "icmp eq", "icmp ne", "icmp slt", "icmp sle", "icmp sgt", "icmp sge", "icmp ult",
        "icmp ule", "icmp ugt", "icmp uge", "band", "bor", "bxor", "iadd", "isub", "uextend",
        "sextend", "ireduce",
    ];
    for operation in OPERATIONS {
        for bits in WIDTHS {
            let mask = u64::MAX >> (64 - bits);
            let top = 1 << (bits - 1);
            let edges = [0, 1, 2, top - 1, top, top + 1, mask - 1, mask];
            for (a, b) in edges.iter().flat_map(|&a| edges.map(|b| (a, b))) {
                check_operation(operation, bits, a, b);
            }
        }
    }
}

/// A branch on whether an operation on two constants gives what it gives. The one with another
/// number is not taken.
fn check_operation(operation: &str, bits: u32, a: u64, b: u64) {
    let (known_a, known_b) =
        [a, b].map(|value| Known { name: 0, bits, value: value.into() }).into();
    let (x, y) = (known_a.signed(), known_b.signed());
    let mut result_bits = bits;
    let mut operands = "v1, v2";
    let mut instruction = operation.to_owned();
    let value = match operation {
        "icmp eq" => u64::from(a == b),
        "icmp ne" => u64::from(a != b),
        "icmp slt" => u64::from(x < y),
        "icmp sle" => u64::from(x <= y),
        "icmp sgt" => u64::from(x > y),
        "icmp sge" => u64::from(x >= y),
        "icmp ult" => u64::from(a < b),
        "icmp ule" => u64::from(a <= b),
        "icmp ugt" => u64::from(a > b),
        "icmp uge" => u64::from(a >= b),
        "band" => a & b,
        "bor" => a | b,
        "bxor" => a ^ b,
        "iadd" => a.wrapping_add(b),
        "isub" => a.wrapping_sub(b),
        _ => {
            // Of one operand, into the next width.
            let reduced = operation == "ireduce";
            let other = if reduced { bits / 2 } else { bits * 2 };
            if !WIDTHS.contains(&other) || b != 0 {
                return;
            }
            result_bits = other;
            operands = "v1";
            instruction = format!("{operation}.i{other}");
            if operation == "sextend" { x as u64 } else { a }
        }
    };
    if operation.starts_with("icmp") {
        result_bits = 8;
    }
    let value = value & (u64::MAX >> (64 - result_bits));
    let function = |end: &str| {
        parse_one(&format!(
            "function u0:0(i64) -> i64 tail {{
block0(v0: i64):
    v1 = iconst.i{bits} 0x{a:x}
    v2 = iconst.i{bits} 0x{b:x}
    v3 = {instruction} {operands}
    v4 = iconst.i{result_bits} 0x{value:x}
    v5 = bxor v3, v4
    {end}
block1:
    v6 = iconst.i64 7
    return v6
block2:
    return v0
}}"
        ))
    };
    let branch = function("brif v5, block1, block2");
    verify(&branch);
    let (jump, other) = (function("jump block2"), function("jump block1"));
    assert_equal(&branch, &jump, operation);
    assert_different(&branch, &other, operation);
}

#[test]
fn a_branch_on_a_known_condition_is_the_jump_that_it_takes() {
    random(|u| {
        let mut expression = Expression { text: String::new(), next_value: 10 };
        let bits = *u.choose(&WIDTHS)?;
        let depth = u.int_in_range(0..=3)?;
        let condition = expression.random(bits, depth, u)?;
        let function = |end: &str| {
            parse_one(&format!(
                "function u0:0(i64) -> i64 tail {{
    fn0 = u1:0(i64) -> i64 tail
block0(v0: i64):
{}    {end}
block1(v1: i64):
    v2 = call fn0(v1)
    return v2
block2:
    return v0
}}",
                expression.text
            ))
        };
        let branch = function(&format!("brif v{}, block1(v0), block2", condition.name));
        verify(&branch);
        let (jump, other) = match condition.value {
            0 => ("jump block2", "jump block1(v0)"),
            _ => ("jump block1(v0)", "jump block2"),
        };
        let (jump, other) = (function(jump), function(other));
        assert_equal(&branch, &jump, "the branch that is taken");
        assert_different(&branch, &other, "the branch that is not taken");

        let mut options = walk_all();
        options.compare.constant_branches = Compare::Compare;
        assert_ne!(encode(&branch, &options), encode(&jump, &options));
        assert!(!same_class(&branch, &jump, options));
        Ok(())
    });
}

#[test]
fn what_is_not_known_is_not_folded() {
    // One operand is known, the other is not.
    for condition in [
        "v2 = icmp eq v0, v1",
        "v2 = icmp slt v1, v0",
        "v2 = iadd v0, v1",
        "v2 = band v1, v0",
        "v3 = load.i8 v0\n    v2 = uextend.i64 v3",
        "v2 = select v1, v0, v1",
    ] {
        let function = |end: &str| {
            parse_one(&format!(
                "function u0:0(i64) -> i64 tail {{
block0(v0: i64):
    v1 = iconst.i64 1
    {condition}
    {end}
block1:
    return v1
block2:
    return v0
}}"
            ))
        };
        let branch = function("brif v2, block1, block2");
        verify(&branch);
        for jump in ["jump block1", "jump block2"] {
            assert_different(&branch, &function(jump), condition);
        }
    }
}
