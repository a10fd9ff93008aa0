//! Units made by hand, with properties that faults need and that random units hardly ever have.
//!
//! Sets of functions that differ in constants in a certain way, all of them local. They keep to the conventions by
//! which units are run, except for the last two, which are not run.

use testkit::unit::{Member, Unit};
use testkit::support::{free, parse_one};
use cranelift_mergefunc::{Callees, Options, Policy, Prove, Similar, Target};

/// How many there are, and how many can be run.
pub const COUNT: u64 = 4;
pub const RUN: u64 = 2;

pub fn unit(number: u64) -> Unit {
    let texts = match number {
        0 => agree_in_all_but_one(),
        1 => self_calls(),
        2 => callee_dispatch_with_stack_maps(),
        3 => mismatched_calls(),
        _ => unreachable!("so many there are"),
    };
    let functions =
        texts.iter().map(|text| Member { attributes: free(), body: parse_one(text) }).collect();
    let similar = Similar {
        policy: Policy::Size,
        callees: if number == 2 { Callees::Dispatch } else { Callees::Indirect },
        keep_symbols: false,
    };
    let options =
        Options { target: Target::x86_64(), similar, prove: Prove::Never, ..Options::default() };
    Unit { functions, data: Vec::new(), options, code_size: Some(64) }
}

/// Enough code that sharing it pays, computed from two values: its text, and its last value.
fn work(mut one: String, mut other: String) -> (String, String) {
    let mut text = String::new();
    for at in 0..20 {
        let operation = ["imul", "bxor", "rotl"][at % 3];
        let value = format!("v{}", 100 + at);
        text += &format!("    {value} = {operation} {one}, {other}\n");
        other = core::mem::replace(&mut one, value);
    }
    (text, one)
}

/// Two constants that are the same in three functions, and differ in the fourth.
fn agree_in_all_but_one() -> Vec<String> {
    let function = |(own, (a, b)): (u32, (i64, i64))| {
        let (work, last) = work("v5".into(), "v4".into());
        format!(
            "function u0:{own}(i64, i64) -> i64 tail {{
block0(v0: i64, v1: i64):
    v2 = iconst.i64 {a}
    v4 = bxor v0, v2
    v3 = iconst.i64 {b}
    v5 = iadd v1, v3
{work}    return {last}
}}"
        )
    };
    (0..).zip([(1, 1), (2, 2), (3, 3), (4, 9)]).map(function).collect()
}

/// Functions with two constants that call themselves in tail position, a few times.
fn self_calls() -> Vec<String> {
    let function = |(own, (a, b)): (u32, (i64, i64))| {
        let (work, last) = work("v5".into(), "v4".into());
        format!(
            "function u0:{own}(i64, i64) -> i64 tail {{
    fn0 = colocated u0:{own}(i64, i64) -> i64 tail
block0(v0: i64, v1: i64):
    v2 = iconst.i64 {a}
    v4 = bxor v1, v2
    v3 = iconst.i64 {b}
    v5 = imul v4, v3
{work}    v6 = iconst.i64 3
    v7 = band v0, v6
    v8 = iconst.i64 1
    v9 = isub v7, v8
    brif v7, block1, block2
block1:
    return_call fn0(v9, {last})
block2:
    return {last}
}}"
        )
    };
    (0..).zip([(3, 5), (17, 29), (101, 7)]).map(function).collect()
}

/// Functions that differ in their callees, with two live references at the call.
fn callee_dispatch_with_stack_maps() -> Vec<String> {
    let function = |own: u32| {
        let (work, last) = work("v2".into(), "v0".into());
        format!(
            "function u0:{own}(i64, i64) -> i64 tail {{
    ss0 = explicit_slot 16, align = 8
    fn0 = u1:{own}(i64) -> i64 tail
block0(v0: i64, v1: i64):
    v3 = stack_addr.i64 ss0
    store v0, v3
    store v1, v3+8
    v2 = call fn0(v0), stack_map=[i64 @ ss0+0, i64 @ ss0+8]
{work}    v4 = load.i64 v3+8
    v5 = bxor v4, {last}
    return v5
}}"
        )
    };
    (0..3).map(function).collect()
}

/// Functions with a constant, one of which is called with a mismatched signature of as many parameters.
fn mismatched_calls() -> Vec<String> {
    let function = |own: u32| {
        let (work, last) = work("v3".into(), "v1".into());
        format!(
            "function u0:{own}(i64, i64) -> i64 tail {{
block0(v0: i64, v1: i64):
    v2 = iconst.i64 {}
    v3 = iadd v0, v2
{work}    return {last}
}}",
            own + 5
        )
    };
    let mut functions: Vec<String> = (0..3).map(function).collect();
    for (own, callee, ty) in [(3, 0, "i64"), (4, 1, "f64")] {
        functions.push(format!(
            "function u0:{own}({ty}, i64) -> i64 tail {{
    fn0 = u0:{callee}({ty}, i64) -> i64 tail
block0(v0: {ty}, v1: i64):
    v2 = call fn0(v0, v1)
    v3 = bxor v2, v1
    return v3
}}"
        ));
    }
    functions
}
