//! References to functions that were merged away compute the results of an unmerged program.
//!
//! Each test runs the code of a program twice, merged and unmerged, and compares the results.

use crate::linked::{linked, same_output};
use cranelift_mergefunc::{Addresses, Disposition, Policy, Similar};
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use testkit::modules::*;

/// A parameterised body of a later flush was once passed the addresses of functions that an earlier
/// flush had eliminated, which have no code.
#[test]
fn a_later_body_is_not_passed_the_address_of_an_eliminated_function() {
    let first = mixes("local", "f", 1)
        + &mixes("local", "g", 2)
        + &calls("export", "d", "f")
        + &calls("export", "d2", "g");
    let later = mixes_call("export", "x", "f") + &mixes_call("export", "y", "g");
    let results = [for_size(BackEnd::Jit), unmerged(for_size(BackEnd::Jit))].map(|options| {
        let mut module = MergingModule::with_options(jit(), options);
        for program in [&first, &later] {
            define_all(&mut module, program);
            module.finalize_definitions().unwrap();
        }
        ["d", "d2", "x", "y"].map(|name| call(&module, name, 7))
    });
    assert_eq!(results[0], results[1]);
}

/// A patchable call is a call of the symbol; there was once no code at that symbol.
#[test]
fn a_function_keeps_code_for_a_patchable_call() {
    let main = "#include <stdio.h>\nvoid d(long *), e(long *); long a, b;
        int main(void) { d(&a); e(&b); printf(\"%ld %ld\\n\", a, b); }";
    let sets = |name: &str| {
        format!(
            "local function %{name}(i64) preserve_all {{
block0(v0: i64):
    v1 = iconst.i64 7
    store.i64 v1, v0
    store.i64 v1, v0
    return
}}
"
        )
    };
    let calls = |name: &str, kind: &str| {
        format!(
            "export function %{name}(i64) system_v {{
    fn0 = {kind} %g(i64) preserve_all
block0(v0: i64):
    call fn0(v0)
    return
}}
"
        )
    };
    let options = ModuleOptions { back_end: BackEnd::Object, ..insignificant() };
    let printed = same_output("a call that can be patched", options, linked, main, |module, _| {
        define_all(module, &(sets("f") + &sets("g") + &calls("d", "colocated")));
        define_all(module, &calls("e", "colocated patchable"));
    });
    assert_eq!(printed, "7 7\n");
}

/// A late thunk takes back bytes that were counted as saved. If nothing else was saved, the counter
/// once overflowed.
#[test]
fn saved_bytes_can_be_fewer_than_those_of_a_late_thunk() {
    let similar = Similar { policy: Policy::Size, ..Similar::default() };
    let options = ModuleOptions { back_end: BackEnd::Jit, similar, ..ModuleOptions::default() };
    let mut module = MergingModule::with_options(jit(), options);
    let mut program = plus("local", "f", 5) + &plus("local", "g", 5);
    for (at, operation) in
        ["imul v2, v0", "bxor v2, v0", "isub v2, v0", "band v2, v0"].into_iter().enumerate()
    {
        let name = format!("p{at}");
        program += &plus("export", &name, 100 + at as i64).replace("imul v2, v2", operation);
    }
    for (shape, operation) in
        ["bnot", "ineg", "popcnt", "clz", "ctz", "bswap", "iabs"].into_iter().enumerate()
    {
        for callee in 0..2 {
            program += &format!(
                "export function %s{shape}_{callee}(i64) -> i64 system_v {{
    fn0 = %p{callee}(i64) -> i64 system_v
block0(v0: i64):
    v1 = call fn0(v0)
    v2 = {operation} v1
    return v2
}}
"
            );
        }
    }
    define_all(&mut module, &program);
    module.finalize_definitions().unwrap();
    let before = *module.stats();
    define_all(&mut module, &address("export", "a", "g"));
    module.finalize_definitions().unwrap();
    let after = *module.stats();
    let thunk = after.code_bytes - before.code_bytes;
    assert!(before.saved_code_bytes - after.saved_code_bytes <= thunk as i64);
    assert!(before.saved_code_bytes > after.saved_code_bytes);
}

/// A call to a thunk by its local name once passed the extra arguments, which the thunk adds
/// itself.
#[test]
fn a_thunk_called_by_a_local_name_is_passed_no_extra_argument() {
    // `g` shares the body of `f`, whose thunk passes a constant; `d` and `e` merge.
    let program = mixes("export", "f", 1)
        + &mixes("local", "g", 1)
        + &mixes("export", "h", 2)
        + &mixes("export", "i", 3)
        + &mixes_call("export", "d", "f")
        + &mixes_call("export", "e", "g");
    let main = "#include <stdio.h>\nlong d(long), e(long);
        int main(void) { printf(\"%ld %ld\\n\", d(5), e(6)); }";
    let functions = Addresses::Significant;
    let options = ModuleOptions { function_addresses: functions, ..for_size(BackEnd::Object) };
    same_output("a thunk behind a local name", options, linked, main, |module, merges| {
        define_all(module, &program);
        module.flush().unwrap();
        if merges {
            let [f, g] = ["f", "g"].map(|name| module.outcome(id(module, name)).unwrap().0);
            assert!(matches!(f, Disposition::Thunk { .. }), "{f:?}");
            assert!(matches!(g, Disposition::Redirect { .. }), "{g:?}");
        }
    });
}
