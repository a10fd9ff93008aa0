//! Law: a branch on a known condition equals the jump to the block that it takes, and never the
//! jump to the other block.
//!
//! Conditions are random expressions over constants, with their values computed here in 128-bit
//! arithmetic. The walk and the checker must agree with that, each on its own.

use crate::support::{assert_different, assert_equal, parse_one, random, verify};
use arbitrary::{Result, Unstructured};
use std::fmt::Write;

/// An expression as text, one instruction per operator.
struct Expression {
    text: String,
    next_value: u32,
}

/// A value of the text, and its number.
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

/// Every condition, and whether it holds.
fn comparisons(a: Known, b: Known) -> [(&'static str, bool); 10] {
    let (signed, unsigned) = (a.signed().cmp(&b.signed()), a.value.cmp(&b.value));
    [
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
    ]
}

/// Every operation whose result has the same width, and the low bits of its result.
fn arithmetic(a: Known, b: Known) -> [(&'static str, u128); 5] {
    [
        ("band", a.value & b.value),
        ("bor", a.value | b.value),
        ("bxor", a.value ^ b.value),
        ("iadd", a.value.wrapping_add(b.value)),
        ("isub", a.value.wrapping_sub(b.value)),
    ]
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
                let (cond, holds) = *u.choose(&comparisons(a, b))?;
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
                let (opcode, value) = *u.choose(&arithmetic(a, b))?;
                self.line(bits, value, &format!("{opcode} v{}, v{}", a.name, b.name))
            }
        })
    }
}

/// Every operation with every pair of some numbers that lie at its edges, in every width.
#[test]
fn every_operation_on_constants_is_what_it_is() {
    for bits in WIDTHS {
        let mask = u128::from(u64::MAX >> (64 - bits));
        let top = 1 << (bits - 1);
        let edges = [0, 1, 2, top - 1, top, top + 1, mask - 1, mask];
        for (a, b) in edges.iter().flat_map(|&a| edges.map(|b| (a, b))) {
            let [a, b] = [(1, a), (2, b)].map(|(name, value)| Known { name, bits, value });
            for (cond, holds) in comparisons(a, b) {
                check_operation(a, b, &format!("icmp {cond} v1, v2"), 8, u128::from(holds));
            }
            for (opcode, value) in arithmetic(a, b) {
                check_operation(a, b, &format!("{opcode} v1, v2"), bits, value);
            }
        }
        for a in edges.map(|value| Known { name: 1, bits, value }) {
            for wider in WIDTHS.into_iter().filter(|&other| other > bits) {
                check_operation(a, a, &format!("uextend.i{wider} v1"), wider, a.value);
                let signed = a.signed() as u128;
                check_operation(a, a, &format!("sextend.i{wider} v1"), wider, signed);
            }
            for narrower in WIDTHS.into_iter().filter(|&other| other < bits) {
                check_operation(a, a, &format!("ireduce.i{narrower} v1"), narrower, a.value);
            }
        }
    }
}

/// A branch on whether the result of an instruction differs from `value`, where only the low bits
/// count.
fn check_operation(a: Known, b: Known, instruction: &str, bits: u32, value: u128) {
    let value = value & (u128::MAX >> (128 - bits));
    let function = |end: &str| {
        parse_one(&format!(
            "function u0:0(i64) -> i64 tail {{
block0(v0: i64):
    v1 = iconst.i{} 0x{:x}
    v2 = iconst.i{} 0x{:x}
    v3 = {instruction}
    v4 = iconst.i{bits} 0x{value:x}
    v5 = bxor v3, v4
    {end}
block1:
    v6 = iconst.i64 7
    return v6
block2:
    return v0
}}",
            a.bits, a.value, b.bits, b.value
        ))
    };
    let branch = function("brif v5, block1, block2");
    verify(&branch);
    assert_equal(&branch, &function("jump block2"), instruction);
    assert_different(&branch, &function("jump block1"), instruction);
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
        Ok(())
    });
}

#[test]
fn unknown_conditions_are_not_folded() {
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
