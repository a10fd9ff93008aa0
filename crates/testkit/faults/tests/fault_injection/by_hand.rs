//! Units made by hand, with properties that faults need and that random units hardly ever have.
//!
//! Sets of functions that differ in constants in a certain way, all of them local. They keep to the
//! conventions by which units are run, except for those in [`RUN`], the only ones that are run.
//! Some are meant as consecutive units.

use crate::consecutive;
use cranelift_codegen::ir::UserExternalName;
use testkit::unit::{Member, Unit, uniform};
use testkit::support::{free, parse_one};
use cranelift_mergefunc::{cranelift_codegen, Addresses, Callees, Options, Policy, Prove, Similar, Target};

/// How many there are.
pub const COUNT: u64 = 18;

/// Those that can be run.
pub const RUN: [u64; 10] = [0, 1, 2, 10, 11, 12, 13, 15, 16, 17];

/// The one whose functions are meant to arrive one at a time.
pub const STREAMED: u64 = 14;

/// Whether a function of a unit can be called with any arguments.
pub fn is_called(number: u64, function: &UserExternalName) -> bool {
    // Others need pointers.
    number != 15 || function.index >= 5
}

/// The sizes of consecutive units, if the unit is meant as such.
pub fn sizes(number: u64) -> &'static [usize] {
    match number {
        5 => &[2, 1],
        6 => &[2, 2, 1],
        7 => &[3, 2],
        8 => &[3, 1],
        12 => &[3, 3, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3],
        15 => &[2, 2, 3],
        16 => &[2, 1, 1],
        17 => &[2, 1],
        _ => &[],
    }
}

pub fn unit(number: u64) -> Unit {
    let texts = match number {
        0 => agree_in_all_but_one(),
        1 => self_calls(),
        2 => callee_dispatch(),
        3 => callee_dispatch_with_stack_maps(),
        4 => mismatched_calls(),
        5 => symbol_of_an_eliminated_function(),
        6 => callees_that_are_eliminated_later(),
        7 => callers_of_fewer_facts(),
        8 => addresses_by_class_and_by_symbol(),
        9 => callers_that_pass_constants(),
        10 => few_differing_instructions(),
        11 => callees_in_different_bodies(),
        12 => consecutive::cycles(),
        13 => load_of_one_function(),
        STREAMED => held_functions(),
        15 => consecutive::facts_of_emitted_functions(),
        16 => consecutive::addresses_of_an_eliminated_function(),
        17 => consecutive::pointer_to_an_eliminated_function(),
        _ => unreachable!("these are all"),
    };
    let functions = texts.iter().map(|text| Member { attributes: free(), body: parse_one(text) });
    let mut functions: Vec<Member> = functions.collect();
    match number {
        8 => {
            functions[0].attributes.addresses = Addresses::Significant;
            functions[1].attributes.pinned = true;
        }
        15 => {
            functions[2].attributes.pinned = true;
            functions[3].attributes.alignment = 64;
            functions[4].attributes.alignment = 64;
        }
        _ => {}
    }
    let data = if number == 17 { vec![consecutive::pointer()] } else { Vec::new() };
    let similar = Similar {
        policy: match number {
            11 => Policy::Balanced,
            // Only equal functions are looked for.
            12 | 15 => Policy::Off,
            _ => Policy::Size,
        },
        callees: if matches!(number, 2 | 3) { Callees::Dispatch } else { Callees::Indirect },
        instructions: Default::default(),
        keep_symbols: false,
            integer_registers_only: false,
    };
    // Predicted as for a program, where any merge would pay otherwise.
    let target = match number {
        11 => Target::x86_64(),
        _ => uniform(Target::x86_64()),
    };
    let options = Options { target, similar, prove: Prove::Never, ..Options::default() };
    Unit { functions, data, options }
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

/// The function `own`, whose constant `v2` no other function has.
fn with_constant(own: u32, rest: &str) -> String {
    let constant = 1000 + own;
    format!(
        "function u0:{own}(i64, i64) -> i64 tail {{
block0(v0: i64, v1: i64):
    v2 = iconst.i64 {constant}
{rest}}}"
    )
}

/// The caller of one of four functions: `v2` is what that returns.
fn caller(of: u32, rest: &str) -> String {
    let own = of + 4;
    format!(
        "function u0:{own}(i64, i64) -> i64 tail {{
    sig0 = (i64, i64) -> i64 tail
    fn0 = colocated u0:{of} sig0
block0(v0: i64, v1: i64):
    v2 = call fn0(v0, v1)
{rest}}}"
    )
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

/// Two functions that differ in one operation, whose result both use, and in an operand behind it.
fn few_differing_instructions() -> Vec<String> {
    let function = |(own, (operation, operand)): (u32, (&str, &str))| {
        let (work, last) = work("v0".into(), "v1".into());
        format!(
            "function u0:{own}(i64, i64) -> i64 tail {{
block0(v0: i64, v1: i64):
{work}    v2 = {operation} {last}, v1
    v3 = imul v2, {last}
    v4 = rotl v3, v2
    v5 = bxor v4, {last}
    v6 = imul v5, v4
    v7 = iadd v6, v5
    v8 = bxor v7, v4
    v9 = imul v8, v7
    v10 = rotl v9, v5
    v11 = isub v10, {operand}
    return v11
}}"
        )
    };
    (0..).zip([("iadd", "v0"), ("isub", "v1")]).map(function).collect()
}

/// Two functions that differ in one constant, two others that differ in two, and a caller of each.
/// The callers have one shape only as they are written: the callees take one extra argument, or
/// two.
fn callees_in_different_bodies() -> Vec<String> {
    let callee = |own: u32| {
        let (work, last) = work("v3".into(), "v0".into());
        let differing = match own {
            0 | 1 => "    v3 = iadd v1, v2\n".to_owned(),
            _ => format!(
                "    v4 = isub v1, v2\n    v5 = iconst.i64 {}\n    v3 = bxor v4, v5\n",
                9000 + own
            ),
        };
        with_constant(own, &format!("{differing}{work}    return {last}\n"))
    };
    let caller = |of: u32| {
        let (first, middle) = work("v2".into(), "v1".into());
        let rest = format!(
            "{first}    v3 = imul {middle}, v2
    v4 = rotl v3, {middle}
    v5 = bxor v4, v3
    v6 = imul v5, v4
    v7 = iadd v6, v5
    return v7
"
        );
        caller(of, &rest)
    };
    (0..4).map(callee).chain((0..4).map(caller)).collect()
}

/// Functions that differ in their callees, which do different things.
fn callee_dispatch() -> Vec<String> {
    let function = |own: u32| {
        let (work, last) = work("v2".into(), "v0".into());
        format!(
            "function u0:{own}(i64, i64) -> i64 tail {{
    fn0 = colocated u0:{}(i64) -> i64 tail
block0(v0: i64, v1: i64):
    v2 = call fn0(v1)
{work}    return {last}
}}",
            own + 5
        )
    };
    let mut functions: Vec<String> = (0..5).map(function).collect();
    for (own, operation) in (5..).zip(["popcnt", "clz", "ctz", "bnot", "ineg"]) {
        functions.push(format!(
            "function u0:{own}(i64) -> i64 tail {{
block0(v0: i64):
    v1 = {operation} v0
    return v1
}}"
        ));
    }
    functions
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

/// Functions with a constant, one of which is called with a mismatched signature of equal length.
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

/// A function that mixes its arguments with a constant, after these lines.
fn mixes(own: u32, lines: &str, k: i64) -> String {
    let (work, last) = work("v4".into(), "v1".into());
    format!(
        "function u0:{own}(i64, i64) -> i64 tail {{
{lines}    v3 = iconst.i64 {k}
    v4 = iadd v2, v3
{work}    return {last}
}}"
    )
}

/// Two functions that share a parameterised body.
pub fn eliminated() -> [String; 2] {
    [(0, 5), (1, 6)].map(|(own, k)| mixes(own, "block0(v2: i64, v1: i64):\n", k))
}

/// A later unit uses the address of one of them, as that of a symbol.
fn symbol_of_an_eliminated_function() -> Vec<String> {
    let takes = "function u0:2() -> i64 tail {
    gv0 = symbol u0:1
block0:
    v0 = symbol_value.i64 gv0
    return v0
}";
    [&eliminated()[..], &[takes.into()]].concat()
}

/// Functions that differ in their callees, which the next unit eliminates; then one function of
/// each is called.
fn callees_that_are_eliminated_later() -> Vec<String> {
    let calls = |own: u32, callee: u32| {
        let lines = format!(
            "    fn0 = u0:{callee}(i64, i64) -> i64 tail
block0(v0: i64, v1: i64):
    v2 = call fn0(v0, v1)
"
        );
        mixes(own, &lines, 9)
    };
    let adds = |own, k| mixes(own, "block0(v2: i64, v1: i64):\n", k);
    let both = "    fn0 = u0:0(i64, i64) -> i64 tail
    fn1 = u0:2(i64, i64) -> i64 tail
block0(v0: i64, v1: i64):
    v5 = call fn0(v0, v1)
    v2 = call fn1(v5, v1)
";
    vec![calls(0, 2), calls(1, 3), adds(2, 5), adds(3, 6), mixes(4, both, 9)]
}

/// A caller of a function that shares a parameterised body, and one of a later function that is
/// equal and has fewer facts.
fn callers_of_fewer_facts() -> Vec<String> {
    let loads = |own: u32, facts: &str, k: i64| {
        let lines = format!("block0(v0: i64, v1: i64):\n    v2 = load.i64 notrap {facts} v0\n");
        mixes(own, &lines, k)
    };
    let calls = |own: u32, callee: u32| {
        format!(
            "function u0:{own}(i64, i64) -> i64 tail {{
    fn0 = u0:{callee}(i64, i64) -> i64 tail
block0(v0: i64, v1: i64):
    v2 = call fn0(v0, v1)
    v3 = bxor v2, v1
    return v3
}}"
        )
    };
    let facts = "aligned readonly";
    vec![loads(0, facts, 5), loads(1, facts, 6), calls(2, 0), loads(3, "", 5), calls(4, 3)]
}

/// Code that takes the address of a function that equals the first one, and later code that takes
/// the address of the first one, which is significant.
fn addresses_by_class_and_by_symbol() -> Vec<String> {
    let adds = |own: u32| {
        format!(
            "function u0:{own}(i64, i64) -> i64 tail {{
block0(v0: i64, v1: i64):
    v2 = iadd v0, v1
    return v2
}}"
        )
    };
    let takes = |own: u32, of: u32| {
        format!(
            "function u0:{own}() -> i64 tail {{
    fn0 = u0:{of}(i64, i64) -> i64 tail
block0:
    v0 = func_addr.i64 fn0
    return v0
}}"
        )
    };
    vec![adds(0), adds(1), takes(2, 1), takes(3, 0)]
}

/// Functions that differ in a constant, and callers that differ in nothing but which of these they
/// call.
fn callers_that_pass_constants() -> Vec<String> {
    let callee = |own: u32| {
        let (work, last) = work("v3".into(), "v0".into());
        with_constant(own, &format!("    v3 = iadd v1, v2\n{work}    return {last}\n"))
    };
    let caller = |of: u32| {
        let (work, last) = work("v2".into(), "v1".into());
        caller(of, &format!("{work}    return {last}\n"))
    };
    (0..4).map(callee).chain((0..4).map(caller)).collect()
}

/// A load in a loop of one of two functions, which may be moved out of it, through a pointer that
/// is valid in that function only.
fn load_of_one_function() -> Vec<String> {
    let function = |(own, (offset, load, read)): (u32, (i64, &str, &str))| {
        let (work, last) = work("v6".into(), "v1".into());
        format!(
            "function u0:{own}(i64, i64) -> i64 tail {{
    gv0 = symbol u2:0
block0(v0: i64, v1: i64):
    v2 = symbol_value.i64 gv0
    v3 = iconst.i64 {offset}
    v4 = iadd v2, v3
    v5 = iconst.i64 3
    jump block1(v0, v5)
block1(v6: i64, v7: i64):
{work}{load}    v10 = bxor {last}, {read}
    v11 = rotl v10, v1
    v12 = imul v11, v10
    v13 = iadd v12, v11
    v14 = iconst.i64 1
    v15 = isub v7, v14
    brif v15, block1(v13, v15), block2(v13)
block2(v16: i64):
    return v16
}}"
        )
    };
    let load = "    v9 = load.i64 notrap aligned readonly can_move v4\n";
    (0..).zip([(1 << 40, "", "v1"), (3072, load, "v9")]).map(function).collect()
}

/// Functions that differ in a constant: one equals another one and is called by code that no other
/// one resembles, and two functions take the address of one as that of a symbol.
fn held_functions() -> Vec<String> {
    let adds = |(own, k)| mixes(own, "block0(v2: i64, v1: i64):\n", k);
    let mut functions: Vec<String> = (0..).zip([5, 6, 7, 6]).map(adds).collect();
    functions.push(
        "function u0:4(i64, i64) -> i64 tail {
    fn0 = u0:3(i64, i64) -> i64 tail
block0(v0: i64, v1: i64):
    v2 = call fn0(v0, v1)
    v3 = bxor v2, v1
    return v3
}"
        .to_owned(),
    );
    let takes = |(own, of)| {
        format!(
            "function u0:{own}(i64, i64) -> i64 tail {{
    sig0 = (i64, i64) -> i64 tail
    gv0 = symbol u0:{of}
block0(v0: i64, v1: i64):
    v2 = symbol_value.i64 gv0
    v3 = call_indirect sig0, v2(v0, v1)
    v4 = iconst.i64 {own}
    v5 = imul v3, v4
    return v5
}}"
        )
    };
    functions.extend([(5, 0), (6, 2)].map(takes));
    functions
}
