//! The host observes what functions do: each possible outcome, from a function that has it.

use cranelift_codegen::ir::{TrapCode, UserExternalName};
use cranelift_mergefunc::cranelift_codegen;
use cranelift_mergefunc::{Attributes, Options};
use testkit::differential::{
    Argument, Call, End, Invocation, Outcome, import_result, memory_before, memory_digest,
};
use testkit::host::{self, Batch, Cpu, Level, interpreter};
use testkit::program::{Parts, Program};
use testkit::support::parse;
use testkit::unit::Member;

/// The unmerged program of a text.
pub fn program(text: &str) -> Program {
    let functions: Vec<Member> = parse(&with_constants(text))
        .into_iter()
        .map(|body| Member { attributes: Attributes::default(), body })
        .collect();
    let options = Options::default();
    let unit = Parts { functions: &functions, data: &[], options: &options };
    Program::unmerged(&unit)
}

/// Writes `v1 = add v0, 5` as the two instructions that it takes.
fn with_constants(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once(" = add v") {
        Some((result, operands)) => {
            let number = result.trim().strip_prefix('v').expect("a value");
            let (value, constant) = operands.split_once(", ").expect("two operands");
            format!(
                "v{number}000 = iconst.i64 {constant}\n{result} = iadd v{value}, v{number}000\n"
            )
        }
        None => format!("{line}\n"),
    });
    lines.collect()
}

/// The outcome of `u0:0` of a text with these arguments, at both levels, here and on aarch64.
#[track_caller]
fn outcome(text: &str, arguments: &[u128]) -> Outcome {
    let program = program(text);
    let entry = &program.entries[0];
    let invocation = Invocation {
        function: entry.function.clone(),
        symbol: entry.symbol.clone(),
        signature: entry.signature.clone(),
        arguments: arguments.iter().map(|&bits| Argument::Bits(bits)).collect(),
        memory_seed: 7,
        fuel: 100,
    };
    // Twice: an invocation leaves no state.
    let invocations = [invocation.clone(), invocation];
    let mut all = Vec::new();
    for level in [Level::None, Level::Speed] {
        all.extend(host::run_at(level, &program, &invocations));
    }
    for outcome in &all {
        assert_eq!(*outcome, all[0], "differs from run to run");
    }
    for outcome in interpreter::run(&program, &invocations).into_iter().flatten() {
        assert_eq!(outcome, all[0], "differs when interpreted");
    }
    if !text.contains("windows_fastcall") {
        let mut batch = Batch::new(Cpu::Aarch64);
        for level in [Level::None, Level::Speed] {
            batch.add(level, &program, &invocations).expect("compiles for aarch64");
        }
        for outcome in batch.run().concat() {
            assert_eq!(outcome, all[0], "differs on aarch64");
        }
    }
    all.remove(0)
}

#[track_caller]
fn end(text: &str, arguments: &[u128]) -> End {
    outcome(text, arguments).end
}

/// A function of one number in a convention, from its declarations and its first block.
fn of_number(convention: &str, declarations: &str, body: &str) -> String {
    format!(
        "function u0:0(i64) -> i64 {convention} {{\n{declarations}\nblock0(v0: i64):\n{body}\n}}\n"
    )
}

#[track_caller]
fn trap_of(body: &str, argument: u128) -> TrapCode {
    match end(&of_number("system_v", "", body), &[argument]) {
        End::Trapped(code) => code,
        other => panic!("{other:?} from\n{body}"),
    }
}

const CONVENTIONS: [&str; 4] = ["system_v", "fast", "tail", "windows_fastcall"];

#[test]
fn results_in_every_convention() {
    for convention in CONVENTIONS {
        let text = of_number(convention, "", "v1 = add v0, 5\nreturn v1");
        assert_eq!(end(&text, &[2]), End::Returned(vec![7]), "{convention}");
    }
    let text = "function u0:0(i64) preserve_all {\nblock0(v0: i64):\n return\n}";
    assert_eq!(end(text, &[2]), End::Returned(vec![]));
}

#[test]
fn arguments_and_results_of_every_type() {
    let types = ["i8", "i16", "i32", "i64", "i128", "f32", "f64", "i8x16", "i32x4", "f64x2"];
    for ty in types {
        for convention in ["system_v", "tail"] {
            let text = format!(
                "function u0:0({ty}, i64, {ty}) -> {ty}, {ty} {convention} {{
block0(v0: {ty}, v1: i64, v2: {ty}):
    return v2, v0
}}"
            );
            let bits = |n: u128| n & (u128::MAX >> (128 - parsed_bits(ty)));
            let (a, b) = (bits(0x7fc0_0001_0000_0002_0000_0003_dead_beef), bits(u128::MAX - 5));
            assert_eq!(end(&text, &[a, 0, b]), End::Returned(vec![b, a]), "{ty} {convention}");
        }
    }
}

fn parsed_bits(ty: &str) -> u32 {
    parse(&format!("function u0:0({ty}) {{\nblock0(v0: {ty}):\n return\n}}"))[0].signature.params[0]
        .value_type
        .bits()
}

#[test]
fn many_arguments_and_results() {
    let params = ["i64"; 20].join(", ");
    let values: Vec<String> = (0..20).map(|at| format!("v{at}: i64")).collect();
    for convention in CONVENTIONS {
        let text = format!(
            "function u0:0({params}) -> i64, i64, i64, i64 {convention} {{
block0({}):
    return v19, v0, v7, v18
}}",
            values.join(", ")
        );
        let arguments: Vec<u128> = (100..120).collect();
        assert_eq!(end(&text, &arguments), End::Returned(vec![119, 100, 107, 118]), "{convention}");
    }
}

#[test]
fn traps_have_their_codes() {
    assert_eq!(trap_of("trap user7", 0), TrapCode::unwrap_user(7));
    assert_eq!(trap_of("trap user8", 0), TrapCode::unwrap_user(8));
    assert_eq!(trap_of("trapz v0, user9\nreturn v0", 0), TrapCode::unwrap_user(9));
    assert_eq!(trap_of("trapnz v0, heap_oob\nreturn v0", 1), TrapCode::HEAP_OUT_OF_BOUNDS);
    let division = "v1 = iconst.i64 8\nv2 = udiv v1, v0\nreturn v2";
    assert_eq!(trap_of(division, 0), TrapCode::INTEGER_DIVISION_BY_ZERO);
    let division = "v1 = iconst.i64 -1\nv2 = sdiv v0, v1\nreturn v2";
    assert_eq!(trap_of(division, 1 << 63), TrapCode::INTEGER_OVERFLOW);
    let conversion = "v1 = bitcast.f64 v0\nv2 = fcvt_to_sint.i64 v1\nreturn v2";
    let (nan, huge) = (f64::NAN.to_bits().into(), 1e300_f64.to_bits().into());
    assert_eq!(trap_of(conversion, nan), TrapCode::BAD_CONVERSION_TO_INTEGER);
    assert_eq!(trap_of(conversion, huge), TrapCode::INTEGER_OVERFLOW);
    assert_eq!(trap_of("v1 = load.i64 user3 v0\nreturn v1", 16), TrapCode::unwrap_user(3));
    assert_eq!(trap_of("v1 = load.i64 v0\nreturn v1", 16), TrapCode::HEAP_OUT_OF_BOUNDS);
    assert_eq!(trap_of("store.i64 user4 v0, v0\nreturn v0", 16), TrapCode::unwrap_user(4));
    let overflow =
        "v1, v2 = uadd_overflow v0, v0\nv3 = uadd_overflow_trap v0, v0, user5\nreturn v3";
    assert_eq!(trap_of(overflow, 1 << 63), TrapCode::unwrap_user(5));
}

#[test]
fn signals_without_a_code() {
    let wild = of_number("system_v", "", "v1 = load.i64 notrap v0\nreturn v1");
    assert_eq!(end(&wild, &[16]), End::Signal(libc::SIGSEGV));
    let call = "v1 = call_indirect sig0, v0(v0)\nreturn v1";
    let wild = of_number("system_v", "sig0 = (i64) -> i64 system_v", call);
    assert_eq!(end(&wild, &[16]), End::Signal(libc::SIGSEGV));
    assert_eq!(end(&wild, &[1 << 60]), End::Signal(libc::SIGSEGV));
    let tail = of_number("tail", "sig0 = (i64) -> i64 tail", "return_call_indirect sig0, v0(v0)");
    assert_eq!(end(&tail, &[16]), End::Signal(libc::SIGSEGV));
}

#[test]
fn a_stack_that_is_used_up() {
    let text = "function u0:0(i64) -> i64 system_v {
    ss0 = explicit_slot 4096
    fn0 = colocated u0:0(i64) -> i64 system_v
block0(v0: i64):
    v1 = stack_addr.i64 ss0
    store v0, v1
    v2 = call fn0(v0)
    v3 = load.i64 v1
    return v3
}";
    assert_eq!(end(text, &[1]), End::GaveUp);
}

#[test]
fn memory_is_filled_and_compared() {
    let text = |store: &str| {
        of_number(
            "fast",
            "gv0 = symbol colocated u2:0\ngv1 = symbol u2:0+16",
            &format!("v1 = symbol_value.i64 gv0\nv2 = symbol_value.i64 gv1\n{store}\nreturn v0"),
        )
    };
    let before = memory_before(7, 100);
    let unchanged = outcome(&text(""), &[5]);
    assert_eq!(unchanged.memory, memory_digest(&before));
    let mut after = before.clone();
    after[16..24].copy_from_slice(&5_u64.to_le_bytes());
    assert_eq!(outcome(&text("store v0, v1+16"), &[5]).memory, memory_digest(&after));
    assert_eq!(outcome(&text("store v0, v2"), &[5]).memory, memory_digest(&after));
    // The end of the memory, and the byte behind it.
    after = before.clone();
    after[4088..].copy_from_slice(&5_u64.to_le_bytes());
    assert_eq!(outcome(&text("store v0, v1+4088"), &[5]).memory, memory_digest(&after));
    let behind = outcome(&text("store user6 v0, v1+4096"), &[5]).end;
    assert_eq!(behind, End::Trapped(TrapCode::unwrap_user(6)));
    let fuel = of_number(
        "fast",
        "gv0 = symbol colocated u2:0",
        "v1 = symbol_value.i64 gv0\nv2 = load.i64 v1\nreturn v2",
    );
    assert_eq!(end(&fuel, &[0]), End::Returned(vec![100]));
}

#[test]
fn imports_are_traced_and_return_a_hash() {
    for convention in CONVENTIONS {
        let text = of_number(
            convention,
            &format!(
                "fn0 = colocated u1:3(i64, f32, i8, i128) -> i64, i8 {convention}
                 fn1 = u1:4(i64) -> i64 {convention}"
            ),
            "v1 = f32const -NaN:0x3
             v2 = iconst.i8 -2
             v3 = uextend.i128 v0
             v4, v5 = call fn0(v0, v1, v2, v3)
             v6 = call fn1(v4)
             v7 = uextend.i64 v5
             v8 = iadd v6, v7
             return v8",
        );
        let Outcome { end, trace, .. } = outcome(&text, &[77]);
        let callee = |k| UserExternalName::new(1, k);
        let first = Call { callee: callee(3), arguments: vec![77, 0xffc0_0003, 0xfe, 77] };
        let result = |at| import_result(&first.callee, &first.arguments, at) as u64;
        let second = Call { callee: callee(4), arguments: vec![u128::from(result(0))] };
        let last = import_result(&second.callee, &second.arguments, 0) as u64;
        let sum = last.wrapping_add(result(1) & 0xff);
        assert_eq!(trace, [first, second], "{convention}");
        assert_eq!(end, End::Returned(vec![sum.into()]), "{convention}");
    }
}

#[test]
fn addresses_are_not_seen() {
    let text = "function u0:0(i64) -> i64, i64, i64 tail {
    ss0 = explicit_slot 16
    gv0 = symbol u2:0
    fn0 = u1:0(i64, i64, i64) tail
    fn1 = u0:0(i64) -> i64, i64, i64 tail
block0(v0: i64):
    v1 = stack_addr.i64 ss0
    v2 = symbol_value.i64 gv0
    v3 = func_addr.i64 fn1
    v4 = add v2, 24
    call fn0(v1, v4, v3)
    return v1, v4, v3
}";
    use testkit::differential::{SOME_ADDRESS, address_in_memory};
    let Outcome { end, trace, .. } = outcome(text, &[0]);
    let seen = vec![SOME_ADDRESS, address_in_memory(24), SOME_ADDRESS];
    assert_eq!(trace[0].arguments, seen);
    assert_eq!(end, End::Returned(seen));
}

/// `u0:0` calls `u0:1`, and that calls an import that throws.
fn throwing(tag: u32, handlers: &str, middle: &str, convention: &str) -> String {
    format!(
        "function u0:0(i64) -> i64 {convention} {{
    sig0 = (i64) -> i64 {convention}
    fn0 = colocated u0:1(i64) -> i64 {convention}
block0(v0: i64):
    v1 = add v0, 1000
    v2 = add v0, 2000
    v3 = add v0, 3000
    v4 = add v0, 4000
    try_call fn0(v0), sig0, block1(ret0), [ {handlers} ]
block1(v5: i64):
    return v5
block2(v6: i64, v7: i64):
    v8 = iadd v6, v7
    v9 = iadd v8, v1
    v10 = iadd v9, v2
    v11 = iadd v10, v3
    v12 = iadd v11, v4
    return v12
block3(v13: i64):
    trap user9
}}
function u0:1(i64) -> i64 {middle} {{
    fn0 = u3:{tag}(i64, i64) -> i64 {middle}
block0(v0: i64):
    v1 = add v0, 1
    v2 = add v0, 2
    v3 = add v0, 3
    v4 = add v0, 4
    v5 = add v0, 5
    v6 = call fn0(v0, v1)
    v7 = iadd v1, v2
    v8 = iadd v3, v4
    v9 = iadd v7, v8
    v10 = iadd v9, v5
    v11 = iadd v10, v6
    return v11
}}
"
    )
}

#[test]
fn exceptions_go_to_their_handlers() {
    for convention in ["tail", "system_v"] {
        let handlers = "tag5: block2(exn0, exn1), default: block3(exn0)";
        let caught = outcome(&throwing(5, handlers, convention, convention), &[10]);
        let callee = UserExternalName::new(3, 5);
        let payload = |at| import_result(&callee, &[10, 11], at) as u64;
        let sum = payload(0).wrapping_add(payload(1)).wrapping_add(10_040);
        assert_eq!(caught.end, End::Returned(vec![sum.into()]), "{convention}");
        assert_eq!(caught.trace, [Call { callee, arguments: vec![10, 11] }]);

        let default = end(&throwing(6, handlers, convention, convention), &[10]);
        assert_eq!(default, End::Trapped(TrapCode::unwrap_user(9)), "{convention}");
        let handlers = "tag5: block2(exn0, exn1), tag4: block3(exn0)";
        let uncaught = end(&throwing(6, handlers, convention, convention), &[10]);
        assert_eq!(uncaught, End::Uncaught(6), "{convention}");
        // The first one counts.
        let handlers = "tag5: block3(exn0), tag5: block2(exn0, exn1)";
        let first = end(&throwing(5, handlers, convention, convention), &[10]);
        assert_eq!(first, End::Trapped(TrapCode::unwrap_user(9)), "{convention}");
    }
}

#[test]
fn contexts_of_handlers_are_seen() {
    let handlers = |context| format!("context {context}, tag5: block2(exn0, exn1)");
    let [one, two] =
        ["v1", "v2"].map(|context| end(&throwing(5, &handlers(context), "tail", "tail"), &[10]));
    assert!(matches!(one, End::Returned(_)));
    assert_ne!(one, two);
}

#[test]
fn tail_calls_take_no_stack() {
    let text = "function u0:0(i64, i64) -> i64 tail {
    gv0 = symbol u2:0
    fn0 = u0:0(i64, i64) -> i64 tail
block0(v0: i64, v1: i64):
    v2 = iadd v0, v1
    v3 = add v0, -1
    brif v0, block1, block2
block1:
    return_call fn0(v3, v2)
block2:
    return v1
}";
    assert_eq!(end(text, &[10_000_000, 1]), End::Returned(vec![50_000_005_000_001]));
}

#[test]
fn too_many_calls_of_imports() {
    let text = "function u0:0() fast {
    fn0 = u1:0() fast
block0:
    jump block1
block1:
    call fn0()
    jump block1
}";
    assert_eq!(end(text, &[]), End::GaveUp);
}
