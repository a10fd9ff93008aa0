//! Extra arguments refer to the module's own functions and data objects.

use super::{compare, pin, with_own_function};
use crate::linked::{interposed, prints, same};
use cranelift_mergefunc::{Addresses, Callees, Similar};
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use cranelift_module::{FuncId, Linkage};
use cranelift_object::ObjectModule;
use testkit::modules::*;

/// A function that combines its argument with the result of another function for that argument and
/// a constant.
fn mixes_call_with(name: &str, k: i64, callee: &str) -> String {
    let sum = format!("    v61 = iconst.i64 {k}\n    v60 = iadd v0, v61\n    v1 =");
    mixes_call("export", name, callee)
        .replace("call fn0(v0)", "call fn0(v60)")
        .replace("    v1 =", &sum)
}

/// A parameterised body calls an exported function; one of its functions calls an equal local
/// function.
#[test]
fn a_parameterised_body_calls_no_interposed_function() {
    let main = with_own_function(&["e"], "f");
    for pinned in [false, true] {
        let options = for_size(BackEnd::Object);
        compare(format_args!("pinned: {pinned}"), options, &main, |module, merges| {
            define_all(module, &(plus("export", "f", 5) + &plus("local", "g", 5)));
            if pinned {
                pin(module, &["f", "g"]);
            }
            define_all(module, &(mixes_call_with("d", 1, "f") + &mixes_call_with("e", 2, "g")));
            module.flush().unwrap();
            assert_eq!(module.stats().new_bodies, usize::from(merges));
        });
    }
}

/// All functions of the parameterised body call one function, but another function with an equal
/// callee was merged into one of them before.
#[test]
fn a_parameterised_body_of_merged_functions_calls_no_interposed_function() {
    let main = with_own_function(&["e"], "f");
    for pinned in [false, true] {
        let options = for_size(BackEnd::Object);
        compare(format_args!("pinned: {pinned}"), options, &main, |module, merges| {
            define_all(module, &(plus("export", "f", 5) + &plus("local", "g", 5)));
            if pinned {
                pin(module, &["f", "g"]);
            }
            define_all(
                module,
                &(mixes_call_with("c", 1, "f")
                    + &mixes_call_with("e", 1, "g")
                    + &mixes_call_with("d", 2, "f")),
            );
            module.flush().unwrap();
            assert_eq!(module.stats().new_bodies, usize::from(merges));
            let is_one = module.body_of(id(module, "c")) == module.body_of(id(module, "e"));
            assert_eq!(is_one, merges);
        });
    }
}

/// An unknown module once passed the address of a function by a colocated reference. The function
/// was exported later, and a shared library could not be linked.
#[test]
fn a_function_passed_by_an_unknown_module_can_be_exported_later() {
    let near = |name: &str, callee: &str| {
        mixes_call("export", name, callee).replace("fn0 = ", "fn0 = colocated ")
    };
    let other = mixes("local", "h", 1).replace("v2 = iadd", "v2 = bxor");
    let program = mixes("local", "f", 1) + &other + &near("d", "f") + &near("e", "h");
    let main = prints(&["d", "e"]);
    passed_by_an_unknown_module(&program, &main, |module| {
        module.flush().unwrap();
        let bodies = ["d", "e"].map(|name| module.body_of(id(module, name)));
        declare(module, "f", Linkage::Export, I64);
        bodies
    });
}

/// A body passes the far address of an exported function, into which a local function with a near
/// address was merged.
#[test]
fn an_exported_function_is_not_passed_near_by_an_unknown_module() {
    let by_address = |name: &str, colocated: &str, callee: &str| {
        let declared = format!("fn0 = {colocated}%{callee}(i64) -> i64 system_v");
        let signature =
            format!("sig0 = (i64) -> i64 system_v\n    fn0 = {colocated}%{callee} sig0");
        mixes_call("export", name, callee)
            .replace(&format!("fn0 = %{callee}(i64) -> i64 system_v"), &declared)
            .replace(&declared, &signature)
            .replace(
                "v1 = call fn0(v0)",
                "v30 = func_addr.i64 fn0\n    v1 = call_indirect sig0, v30(v0)",
            )
    };
    let program = plus("export", "f", 5)
        + &plus("export", "g", 5)
        + &plus("local", "h", 5)
        + &by_address("d", "colocated ", "h")
        + &by_address("e", "", "g");
    let main = prints(&["d", "e"]);
    passed_by_an_unknown_module(&program, &main, |module| {
        module.flush().unwrap();
        ["d", "e"].map(|name| module.body_of(id(module, name)))
    });
}

/// A shared library of a program does the same merged and unmerged. `flush` returns the bodies of
/// two functions, which must be one if anything is to be shown.
fn passed_by_an_unknown_module(
    program: &str,
    main: &str,
    mut flush: impl FnMut(&mut MergingModule<ObjectModule>) -> [FuncId; 2],
) {
    let options = for_size(BackEnd::Any);
    let mut merged = false;
    let printed = [options, unmerged(options)].map(|options| {
        let mut module = MergingModule::with_options(object(), options);
        define_all(&mut module, program);
        let bodies = flush(&mut module);
        merged |= bodies[0] == bodies[1];
        let (inner, _) = module.into_inner().unwrap();
        interposed(inner.finish(), main)
    });
    assert!(merged, "nothing is shown");
    same("an unknown module", printed);
}

/// Code once called an exported thunk by its symbol, which can be interposed, and callers of equal
/// functions were merged into that code.
#[test]
fn callers_do_not_run_the_function_that_interposes_a_thunk() {
    let first =
        mixes("export", "f", 1) + &mixes("export", "g", 2) + &mixes_call("export", "d", "f");
    let later = mixes("export", "z", 1) + &mixes_call("export", "e", "z");
    // Not `d`, which calls `f`: without merging, it runs the interposing one.
    let main = with_own_function(&["e"], "f");
    let functions = Addresses::Significant;
    let options = ModuleOptions { function_addresses: functions, ..for_size(BackEnd::Object) };
    compare("a thunk", options, &main, |module, merges| {
        define_all(module, &(first.clone() + &later));
        module.flush().unwrap();
        let merged = module.body_of(id(module, "e")) == id(module, "d");
        assert_eq!(merged, merges, "nothing is shown");
    });
}

/// A function whose callee was merged into an exported function once passed the address of that
/// function by its symbol, and ran the one that interposed it.
#[test]
fn a_function_passed_in_place_of_a_merged_callee_is_not_interposed() {
    // `f` is interposed. Not `d`, which calls `f`, but `e`, which calls an equal function.
    let callees = plus("export", "g", 5) + &plus("export", "h", 6);
    let callers = mixes_call_with("d", 1, "f")
        + &mixes_call_with("e", 2, "g")
        + &mixes_call_with("c", 3, "h");
    let main = with_own_function(&["e", "c"], "f");
    for first in ["local", "export"] {
        for passed in [Callees::Indirect, Callees::Dispatch] {
            for functions in [Addresses::Significant, Addresses::Insignificant] {
                let options = for_size(BackEnd::Object);
                let similar = Similar { callees: passed, ..options.similar };
                let options = ModuleOptions { function_addresses: functions, similar, ..options };
                compare(format_args!("first: {first}"), options, &main, |module, merges| {
                    define_all(module, &plus(first, "f", 5));
                    declare(module, "f", Linkage::Export, I64);
                    define_all(module, &(callees.clone() + &callers));
                    module.flush().unwrap();
                    let merged = module.body_of(id(module, "e")) != id(module, "e");
                    assert_eq!(merged, merges, "nothing is shown");
                });
            }
        }
    }
}
