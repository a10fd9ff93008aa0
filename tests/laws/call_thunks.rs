//! Laws: thunks that are calls, for targets without a jump that can replace a function.

use crate::support::{parse, verify};
use cranelift_codegen::ir::{Function, UserFuncName};
use cranelift_mergefunc::thunk::{CallThunks, call_thunk};
use cranelift_mergefunc::{Attributes, Disposition, Merger, Options, Plan, Reason, Target};

/// The plan of functions that are exported with significant addresses.
fn plan(mut functions: Vec<Function>, target: Target, call_thunks: Option<CallThunks>) -> Plan {
    let target = Target { call_thunks, ..target };
    let options = Options { target, ..Options::default() };
    let mut merger = Merger::new(options);
    for func in &functions {
        let symbol = func.name.get_user().expect("named by number").clone();
        merger.add(symbol, func, Attributes::default()).expect("is added");
    }
    merger.plan(&mut functions)
}

const TAIL_CALLS: CallThunks = CallThunks { tail_calls: true, colocated: true };

/// Two equal exported functions of this number of instructions: the disposition of the second.
fn second(
    convention: &str,
    call_thunks: Option<CallThunks>,
    instructions: usize,
    target: Target,
) -> (&'static str, Reason) {
    let step = |at: usize| {
        let before = if at == 3 { 0 } else { at - 1 };
        format!("    v{at} = imul v{before}, v{before}\n")
    };
    let steps: String = (3..instructions + 2).map(step).collect();
    let last = if instructions == 1 { 0 } else { instructions + 1 };
    let text = |number: u32| {
        format!(
            "function u0:{number}(i64, f64, i8x16) -> i64, f64 {convention} {{
block0(v0: i64, v1: f64, v2: i8x16):
{steps}    return v{last}, v1
}}
"
        )
    };
    let plan = plan(parse(&(text(1) + &text(2))), target, call_thunks);
    let mut entries = plan.entries();
    let (first, second) = (entries.next().expect("the first"), entries.next().expect("the second"));
    if let Disposition::Thunk { to } = second.1.disposition() {
        assert_eq!(to, first.0);
    }
    (second.1.disposition().name(), second.1.reason())
}

/// A target without a jump, of which sizes can be predicted.
const TARGET: Target = Target { jump_thunk: None, ..Target::x86_64() };

#[test]
fn a_call_thunk_is_made_where_it_is_smaller_than_the_body() {
    let (thunks, target) = (Some(TAIL_CALLS), TARGET);
    assert_eq!(second("system_v", thunks, 100, target), ("thunk", Reason::VisibleOutside));
    let kept = ("keep", Reason::ThunkNotSmaller);
    assert_eq!(second("system_v", thunks, 3, target), kept);
    // A body of unknown size may be smaller.
    assert_eq!(second("system_v", thunks, 100, Target::generic()), kept);
}

#[test]
fn there_is_no_call_thunk_unless_it_is_wanted() {
    let target = TARGET;
    assert_eq!(second("system_v", None, 100, target), ("keep", Reason::NoThunk));
}

#[test]
fn a_function_with_tail_calls_gets_no_thunk_that_grows_the_stack() {
    let target = TARGET;
    let calls = Some(CallThunks { tail_calls: false, ..TAIL_CALLS });
    assert_eq!(second("tail", calls, 100, target), ("keep", Reason::NoThunk));
    assert_eq!(second("fast", calls, 100, target), ("thunk", Reason::VisibleOutside));
    let tail_calls = Some(TAIL_CALLS);
    assert_eq!(second("tail", tail_calls, 100, target), ("thunk", Reason::VisibleOutside));
}

/// After a call it would observe the frame of the thunk, and a return address inside the thunk.
#[test]
fn a_function_that_observes_its_frame_gets_no_call_thunk() {
    for instruction in ["get_return_address.i64", "get_frame_pointer.i64", "get_stack_pointer.i64"]
    {
        let steps: String =
            (1..31).map(|at| format!("    v{at} = imul v{0}, v{0}\n", at - 1)).collect();
        let text = |number: u32| {
            format!(
                "function u0:{number}() -> i64 system_v {{
block0:
    v0 = {instruction}
{steps}    return v30
}}
"
            )
        };
        let functions = parse(&(text(1) + &text(2)));
        let plan = |target: Target| {
            let plan = plan(functions.clone(), target, Some(TAIL_CALLS));
            plan.entries().nth(1).expect("the second").1.disposition().name()
        };
        // The address of its own frame is not observable.
        let own = instruction == "get_stack_pointer.i64";
        assert_eq!(plan(TARGET), if own { "thunk" } else { "keep" }, "{instruction}");
        assert_eq!(plan(Target::x86_64()), "thunk", "{instruction}");
    }
}

#[test]
fn a_call_thunk_passes_everything_on() {
    for convention in ["system_v", "fast", "tail", "windows_fastcall"] {
        let original = parse(&format!(
            "function u0:1(i64 sret, i32 uext, f64, i8x16, i64 sarg(24)) -> i32 sext {convention} {{
block0(v0: i64, v1: i32, v2: f64, v3: i8x16, v4: i64):
    return v1
}}"
        ));
        let symbol = original[0].name.get_user().expect("named by number");
        for tail_calls in [false, true] {
            let options = CallThunks { tail_calls, colocated: false };
            let name = UserFuncName::user(0, 2);
            let thunk = call_thunk(name, &original[0].signature, &[], symbol, &options);
            verify(&thunk);
            assert_eq!(thunk.signature, original[0].signature);
            let callee = thunk.dfg.ext_funcs.values().next().expect("calls");
            assert_eq!(thunk.dfg.signatures[callee.signature], original[0].signature);
            assert!(!callee.colocated);
            let is_tail_call = thunk.to_string().contains("return_call");
            assert_eq!(is_tail_call, tail_calls && convention == "tail");
        }
    }
}
