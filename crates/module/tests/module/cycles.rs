//! Functions that call each other, and their other callees, over several flushes: all of them are
//! compared with emitted functions.

use cranelift_jit::JITModule;
use cranelift_mergefunc::Addresses;
use cranelift_mergefunc_module::{MergingModule, ModuleOptions};
use testkit::modules::*;

/// A function that counts down by calls to `next`, and adds the result of `leaf` for each number.
fn steps(name: &str, next: &str, leaf: &str) -> String {
    format!(
        "local function %{name}(i64) -> i64 system_v {{
    fn0 = %{next}(i64) -> i64 system_v
    fn1 = %{leaf}(i64) -> i64 system_v
block0(v0: i64):
    brif v0, block1, block2
block1:
    v1 = iconst.i64 -1
    v2 = iadd v0, v1
    v3 = call fn0(v2)
    v4 = call fn1(v0)
    v5 = iadd v3, v4
    return v5
block2:
    return v0
}}
"
    )
}

/// Two functions that call each other, and each a leaf of its own.
fn pair(name: &str, leaves: [&str; 2]) -> String {
    let [a, b] = ["a", "b"].map(|one| format!("{name}_{one}"));
    steps(&a, &b, leaves[0]) + &steps(&b, &a, leaves[1])
}

/// Defines and flushes programs one after the other, and checks what functions return, merged and
/// unmerged.
fn in_turn(programs: &[String], called: &[&str]) -> MergingModule<JITModule> {
    let options =
        [Some(0), None].map(|merge_limit| ModuleOptions { merge_limit, ..insignificant() });
    let [plain, merged] = options.map(|options| {
        let mut module = MergingModule::with_options(jit(), options);
        for program in programs {
            define_all(&mut module, program);
            module.finalize_definitions().unwrap();
        }
        module
    });
    for name in called {
        for argument in 0..6 {
            let [plain, merged] = [&plain, &merged].map(|module| call(module, name, argument));
            assert_eq!(merged, plain, "{name}({argument})");
        }
    }
    merged
}

/// The callees of a cycle outside of the cycle may be in the same flush as the cycle: that these
/// equal the callees of the emitted cycle was once not checked.
#[test]
fn a_cycle_is_merged_into_one_with_equal_other_callees() {
    let leaf = |name: &str, k: i64| plus("local", name, k);
    let programs = [
        leaf("f", 5) + &leaf("g", 6) + &pair("p", ["f", "g"]),
        leaf("f2", 5) + &leaf("g2", 6) + &pair("equal", ["f2", "g2"]),
        // Equal to emitted functions as well, but called in other places; and one that equals none.
        leaf("f3", 5) + &leaf("g3", 6) + &pair("other", ["f3", "f3"]),
        leaf("f4", 5) + &leaf("g4", 6) + &pair("turned", ["g4", "f4"]),
        leaf("f5", 5) + &leaf("h", 7) + &pair("new", ["f5", "h"]),
        // One callee in the same flush, and one in an earlier flush.
        leaf("f6", 5) + &pair("mixed", ["f6", "g"]),
    ];
    let called =
        ["p_a", "p_b", "equal_a", "equal_b", "other_a", "turned_a", "turned_b", "new_a", "mixed_a"];
    let module = in_turn(&programs, &called);
    let body = |name: &str| module.body_of(id(&module, name));
    assert_eq!((body("equal_a"), body("equal_b")), (body("p_a"), body("p_b")));
    assert_eq!((body("turned_a"), body("turned_b")), (body("p_b"), body("p_a")));
    assert_eq!((body("mixed_a"), body("mixed_b")), (body("p_a"), body("p_b")));
    for name in ["other_a", "new_a", "new_b"] {
        assert!(body(name) != body("p_a") && body(name) != body("p_b"), "{name}");
    }
}

/// The self-recursive function is compared in one walk with two functions that call each other. It
/// must equal both to merge, and it equals only the first.
#[test]
fn a_function_must_equal_every_function_it_is_compared_with_in_a_cycle() {
    for turned in [false, true] {
        let leaves = if turned { ["g", "f"] } else { ["f", "g"] };
        let programs = [
            plus("local", "f", 5) + &plus("local", "g", 6) + &pair("p", leaves),
            steps("itself", "itself", "f"),
            steps("other", "other", "g") + &pair("again", ["f", "f"]),
        ];
        let module = in_turn(&programs, &["p_a", "p_b", "itself", "other", "again_a", "again_b"]);
        let body = |name: &str| module.body_of(id(&module, name));
        for name in ["itself", "other"] {
            assert_eq!(body(name), id(&module, name));
        }
        assert_eq!([body("again_a"), body("again_b")], [body("itself"); 2]);
    }
}

/// A user (caller, or taker of the address) of a function that is not yet defined equals a user
/// that comes after the definition.
#[test]
fn users_of_an_undefined_function_equal_later_users() {
    for taken in [false, true] {
        for functions in [Addresses::Significant, Addresses::Insignificant] {
            let user = |name: &str| match taken {
                false => calls("export", name, "x"),
                true => calls_address("export", name, "x"),
            };
            let options = ModuleOptions { function_addresses: functions, ..insignificant() };
            let mut module = MergingModule::with_options(jit(), options);
            let x = plus("local", "x", 5);
            declare_all(&mut module, &x);
            define_all(&mut module, &user("early"));
            module.flush().unwrap();
            define_all(&mut module, &x);
            module.finalize_definitions().unwrap();
            define_all(&mut module, &user("late"));
            module.finalize_definitions().unwrap();
            assert_eq!(module.body_of(id(&module, "late")), id(&module, "early"), "{taken}");
            assert_eq!(call(&module, "early", 2), call(&module, "late", 2));
        }
    }
}
