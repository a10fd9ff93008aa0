//! Planted differences: what a wrong merge could change, each of them must be noticed.

use crate::outcomes::program;
use testkit::differential::{Comparison, Effort};
use testkit::host::{self, Level};

/// How many inputs are needed at most to notice any of these.
const EFFORT: Effort = Effort { inputs: 12, fuel: 100 };

/// A unit in which `u0:0` is one function, and then another one.
#[track_caller]
fn noticed(one: &str, other: &str) {
    let [before, after] = [program(one), program(other)];
    for level in [Level::None, Level::Speed] {
        let host = &mut |program: &_, invocations: &[_]| host::run_at(level, program, invocations);
        let same = Comparison::of([before.clone(), before.clone()], 1, EFFORT).run(host);
        let same = same.expect("no difference to itself");
        assert_eq!(same.invocations(), before.entries.len() * EFFORT.inputs);
        match Comparison::of([before.clone(), after.clone()], 1, EFFORT).run(host) {
            Ok(tally) => panic!("nothing noticed: {tally}\n{one}\n{other}"),
            Err(text) => assert!(text.contains("u0:0"), "{text}"),
        }
    }
}

/// Two bodies of one signature and with the same declarations.
#[track_caller]
fn bodies(signature: &str, declarations: &str, one: &str, other: &str) {
    let text = |body| format!("function u0:0{signature} {{\n{declarations}\n{body}\n}}\n");
    noticed(&text(one), &text(other));
    noticed(&text(other), &text(one));
}

const NUMBERS: &str = "(i64, i64) -> i64 tail";

#[track_caller]
fn instruction(one: &str, other: &str) {
    let body = |line| format!("block0(v0: i64, v1: i64):\n {line}\n return v9");
    bodies(NUMBERS, "", &body(one), &body(other));
}

#[test]
fn operations_and_constants() {
    instruction("v9 = iadd v0, v1", "v9 = isub v0, v1");
    instruction("v9 = isub v0, v1", "v9 = isub v1, v0");
    instruction("v9 = iconst.i64 1", "v9 = iconst.i64 2");
    instruction("v9 = ushr v0, v1", "v9 = sshr v0, v1");
    instruction(
        "v2 = ireduce.i8 v0\n v9 = uextend.i64 v2",
        "v2 = ireduce.i8 v0\n v9 = sextend.i64 v2",
    );
    instruction("v9 = smax v0, v1", "v9 = umax v0, v1");
    let nan = |bits: &str| format!("v2 = f64const NaN:{bits}\n v9 = bitcast.i64 v2");
    instruction(&nan("0x1"), &nan("0x2"));
    let zero = |sign: &str| format!("v2 = f64const {sign}0x0.0\n v9 = bitcast.i64 v2");
    instruction(&zero(""), &zero("-"));
}

#[test]
fn results_of_floats_are_compared_by_bits() {
    let body = |constant: &str| format!("block0:\n v0 = f64const {constant}\n return v0");
    bodies("() -> f64 fast", "", &body("NaN:0x1"), &body("NaN:0x2"));
    bodies("() -> f64 fast", "", &body("NaN:0x1"), &body("-NaN:0x1"));
    bodies("() -> f64 fast", "", &body("0x0.0"), &body("-0x0.0"));
    let vector = |last| format!("block0:\n v0 = vconst.i32x4 [1 2 3 {last}]\n return v0");
    bodies("() -> i32x4 fast", "", &vector(4), &vector(5));
    let wide = |high: &str| {
        format!("block0:\n v0 = iconst.i64 1\n v1 = {high}\n v2 = iconcat v0, v1\n return v2")
    };
    bodies("() -> i128 fast", "", &wide("iconst.i64 1"), &wide("iconst.i64 2"));
}

#[test]
fn traps() {
    instruction("trapz v0, user1\n v9 = bxor v0, v0", "trapz v0, user2\n v9 = bxor v0, v0");
    instruction("trapz v0, user1\n v9 = bxor v0, v0", "trapnz v0, user1\n v9 = bxor v0, v0");
    instruction("trapz v0, user1\n v9 = bxor v0, v0", "v9 = iconst.i64 0");
    instruction("v9 = load.i64 user1 v0", "v9 = load.i64 user2 v0");
    instruction("v9 = load.i64 user1 v0", "v9 = load.i64 notrap v0");
    instruction("v9 = udiv v0, v1", "v9 = sdiv v0, v1");
    let order = |first, second| {
        format!("trapz v0, user{first}\n trapz v0, user{second}\n v9 = iadd v0, v1")
    };
    instruction(&order(1, 2), &order(2, 1));
}

#[test]
fn memory() {
    let memory = "gv0 = symbol colocated u2:0";
    let body = |access: &str| {
        format!(
            "block0(v0: i64, v1: i64):\n v2 = symbol_value.i64 gv0\n v3 = iconst.i64 0\n {access}
             return v3"
        )
    };
    let pairs = [
        ("store v0, v2+16", "store v0, v2+24"),
        ("store v0, v2+16", "store v1, v2+16"),
        ("store v0, v2+16", "istore32 v0, v2+16"),
        ("store v0, v2+16\n store v1, v2+16", "store v1, v2+16\n store v0, v2+16"),
        ("store v0, v2+4088", ""),
        ("v4 = atomic_rmw.i64 add v2, v0", "v4 = atomic_rmw.i64 xor v2, v0"),
        // The fuel that is left is a result, too.
        ("v4 = load.i64 v2\n v5 = iconst.i64 1\n v6 = isub v4, v5\n store v6, v2", ""),
    ];
    for (one, other) in pairs {
        bodies(NUMBERS, memory, &body(one), &body(other));
    }
}

#[test]
fn calls_of_imports() {
    let callees =
        "sig0 = (i64, i64) -> i64 tail\n fn0 = u1:0 sig0\n fn1 = u1:1 sig0\n fn2 = u3:0 sig0
        fn3 = u3:1 sig0";
    let body = |calls: &str| {
        format!("block0(v0: i64, v1: i64):\n v3 = iconst.i64 0\n {calls}\n return v0")
    };
    let pairs = [
        ("v2 = call fn0(v0, v1)", "v2 = call fn1(v0, v1)"),
        ("v2 = call fn0(v0, v1)", "v2 = call fn0(v1, v0)"),
        ("v2 = call fn0(v0, v1)", ""),
        (
            "v2 = call fn0(v0, v1)\n v4 = call fn1(v0, v1)",
            "v2 = call fn1(v0, v1)\n v4 = call fn0(v0, v1)",
        ),
        ("v2 = call fn0(v0, v1)\n trapz v3, user1", "trapz v3, user1"),
        ("v2 = call fn2(v0, v1)", "v2 = call fn3(v0, v1)"),
        ("v2 = call fn2(v0, v1)", "v2 = call fn0(v0, v1)"),
    ];
    for (one, other) in pairs {
        bodies(NUMBERS, callees, &body(one), &body(other));
    }
}

#[test]
fn handlers_of_exceptions() {
    let callee = "sig0 = (i64, i64) -> i64 tail\n fn0 = u3:5 sig0";
    let body = |handlers: &str| {
        format!(
            "block0(v0: i64, v1: i64):\n try_call fn0(v0, v1), sig0, block1(ret0), [ {handlers} ]
block1(v2: i64):
    return v2
block2(v3: i64):
    v4 = iadd v3, v0
    return v4
block3(v5: i64):
    return v5"
        )
    };
    let pairs = [
        ("tag5: block2(exn0)", "tag4: block2(exn0)"),
        ("tag5: block2(exn0)", "tag5: block3(exn0)"),
        ("tag5: block2(exn0)", "tag5: block2(exn1)"),
        ("tag5: block2(exn0)", ""),
        ("tag5: block2(exn0), default: block3(exn0)", "tag4: block2(exn0), default: block3(exn0)"),
        ("tag5: block2(exn0), tag5: block3(exn0)", "tag5: block3(exn0), tag5: block2(exn0)"),
        ("context v0, tag5: block2(exn1)", "context v1, tag5: block2(exn1)"),
    ];
    for (one, other) in pairs {
        bodies(NUMBERS, callee, &body(one), &body(other));
    }
}

/// A call that was redirected to a function that is not equal.
#[test]
fn callees() {
    let unit = |callee: u32, kind: &str| {
        let call = match kind {
            "call" => "v2 = call fn0(v0, v1)\n return v2".to_owned(),
            "tail call" => "return_call fn0(v0, v1)".to_owned(),
            _ => "v2 = func_addr.i64 fn0\n v3 = call_indirect sig0, v2(v0, v1)\n return v3"
                .to_owned(),
        };
        format!(
            "function u0:0(i64, i64) -> i64 tail {{
    sig0 = (i64, i64) -> i64 tail
    fn0 = colocated u0:{callee} sig0
block0(v0: i64, v1: i64):
    {call}
}}
function u0:1(i64, i64) -> i64 tail {{
block0(v0: i64, v1: i64):
    v2 = iadd v0, v1
    return v2
}}
function u0:2(i64, i64) -> i64 tail {{
block0(v0: i64, v1: i64):
    v2 = isub v0, v1
    return v2
}}
"
        )
    };
    for kind in ["call", "tail call", "address"] {
        noticed(&unit(1, kind), &unit(2, kind));
    }
}
