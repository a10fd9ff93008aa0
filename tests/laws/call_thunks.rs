//! Laws: thunks that are calls, for targets without a jump that can replace a function.

use crate::support::{parse, verify};
use cranelift_codegen::ir::{Function, UserFuncName};
use cranelift_mergefunc::{
    Attributes, Bodies, CallThunks, Candidate, CodeSizes, Disposition, FunctionIndex, Merger,
    Options, Reason, Target, call_thunk,
};

/// Functions, and their known sizes in bytes.
struct Sized {
    functions: Vec<Function>,
    body: Option<u32>,
    thunk: Option<u32>,
}

impl Bodies for Sized {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self.functions[function.as_u32() as usize]
    }

    fn code_sizes(&mut self) -> Option<&mut dyn CodeSizes> {
        Some(self)
    }
}

impl CodeSizes for Sized {
    fn of_function(&mut self, _: FunctionIndex) -> Option<u32> {
        self.body
    }

    fn of_thunk(&mut self, _: FunctionIndex, thunk: &Function) -> Option<u32> {
        verify(thunk);
        self.thunk
    }

    fn of_candidate(&mut self, _: &Candidate) -> Option<u32> {
        None
    }
}

const TAIL_CALLS: CallThunks = CallThunks { tail_calls: true, colocated: true };

/// Two equal exported functions with significant addresses: the disposition of the second.
fn second(
    convention: &str,
    call_thunks: Option<CallThunks>,
    body: Option<u32>,
    thunk: Option<u32>,
) -> (&'static str, Reason) {
    let text = |number: u32| {
        format!(
            "function u0:{number}(i64, f64, i8x16) -> i64, f64 {convention} {{
block0(v0: i64, v1: f64, v2: i8x16):
    return v0, v1
}}
"
        )
    };
    let functions = parse(&(text(1) + &text(2)));
    let options = Options { target: Target::generic(), call_thunks, ..Options::default() };
    let mut merger = Merger::new(options);
    for func in &functions {
        let symbol = func.name.get_user().expect("named by number").clone();
        merger.add(symbol, func, Attributes::default()).expect("is added");
    }
    let plan = merger.plan(&mut Sized { functions, body, thunk });
    let entry = plan.entry(FunctionIndex::from_u32(1));
    if let Disposition::Thunk { to } = entry.disposition() {
        assert_eq!(to, FunctionIndex::from_u32(0));
    }
    (entry.disposition().name(), entry.reason())
}

#[test]
fn a_call_thunk_is_made_where_it_is_smaller_than_the_body() {
    let thunks = Some(TAIL_CALLS);
    assert_eq!(second("system_v", thunks, Some(21), Some(20)), ("thunk", Reason::VisibleOutside));
    let kept = ("keep", Reason::ThunkNotSmaller);
    assert_eq!(second("system_v", thunks, Some(20), Some(20)), kept);
    // A body of unknown size may be smaller.
    assert_eq!(second("system_v", thunks, None, Some(20)), kept);
}

#[test]
fn there_is_no_call_thunk_unless_it_is_wanted_and_can_be_made() {
    let kept = ("keep", Reason::NoThunk);
    assert_eq!(second("system_v", None, Some(100), Some(20)), kept);
    assert_eq!(second("system_v", Some(TAIL_CALLS), Some(100), None), kept);
}

#[test]
fn a_function_with_tail_calls_gets_no_thunk_that_grows_the_stack() {
    let calls = Some(CallThunks { tail_calls: false, ..TAIL_CALLS });
    assert_eq!(second("tail", calls, Some(100), Some(20)), ("keep", Reason::NoThunk));
    assert_eq!(second("fast", calls, Some(100), Some(20)), ("thunk", Reason::VisibleOutside));
    let tail_calls = Some(TAIL_CALLS);
    assert_eq!(second("tail", tail_calls, Some(100), Some(20)), ("thunk", Reason::VisibleOutside));
}

/// After a call it would observe the frame of the thunk, and a return address inside the thunk.
#[test]
fn a_function_that_observes_its_frame_gets_no_call_thunk() {
    for instruction in ["get_return_address.i64", "get_frame_pointer.i64", "get_stack_pointer.i64"]
    {
        let text = |number: u32| {
            format!(
                "function u0:{number}() -> i64 system_v {{
block0:
    v0 = {instruction}
    return v0
}}
"
            )
        };
        let functions = parse(&(text(1) + &text(2)));
        let plan = |target: Target| {
            let options = Options { target, call_thunks: Some(TAIL_CALLS), ..Options::default() };
            let mut merger = Merger::new(options);
            for func in &functions {
                let symbol = func.name.get_user().expect("named by number").clone();
                merger.add(symbol, func, Attributes::default()).expect("is added");
            }
            let mut bodies =
                Sized { functions: functions.clone(), body: Some(100), thunk: Some(20) };
            let plan = merger.plan(&mut bodies);
            plan.entry(FunctionIndex::from_u32(1)).disposition().name()
        };
        // The address of its own frame is not observable.
        let own = instruction == "get_stack_pointer.i64";
        assert_eq!(plan(Target::generic()), if own { "thunk" } else { "keep" }, "{instruction}");
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
