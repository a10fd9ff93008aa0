//! Merged code calls, and takes the addresses of, the module's own functions; preemptible functions
//! are those of the program.

use super::{became, compare, pin, significant, with_own_function};
use crate::linked::{interposed, same_output};
use cranelift_mergefunc::Disposition;
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use cranelift_module::{Linkage, Module};
use testkit::modules::*;

/// A thunk once jumped to the exported symbol of its target, which can be interposed.
#[test]
fn a_thunk_does_not_run_the_function_that_interposes_its_target() {
    let main = with_own_function(&["g"], "f");
    compare("a thunk", significant(), &main, |module, merges| {
        define_all(module, &(plus("export", "f", 5) + &plus("export", "g", 5)));
        module.flush().unwrap();
        assert_eq!(matches!(became(module, "g"), Disposition::Thunk { .. }), merges);
    });
}

/// A body that replaces two functions calls an exported function; one of the two calls an equal
/// local function. Both callees are kept because they are pinned.
#[test]
fn a_body_that_replaces_others_calls_no_interposed_function() {
    let main = with_own_function(&["e"], "f");
    compare("callers of equal functions", insignificant(), &main, |module, merges| {
        define_all(module, &(plus("export", "f", 5) + &plus("local", "g", 5)));
        pin(module, &["f", "g"]);
        define_all(module, &(calls("export", "d", "f") + &calls("export", "e", "g")));
        module.flush().unwrap();
        assert_eq!(module.body_of(id(module, "e")) == id(module, "d"), merges);
    });
}

/// A function into which others are merged is declared as exported after its definition. The others
/// once ran the function that interposed it.
#[test]
fn a_function_exported_later_is_interposed_for_its_own_callers_only() {
    let main = with_own_function(&["d"], "f");
    for linkage in ["local", "hidden"] {
        compare(linkage, insignificant(), &main, |module, merges| {
            define_all(module, &(plus(linkage, "f", 5) + &plus("local", "g", 5)));
            define_all(module, &calls("export", "d", "g"));
            declare(module, "f", Linkage::Export, I64);
            module.flush().unwrap();
            assert_eq!(module.body_of(id(module, "g")) == id(module, "f"), merges);
        });
    }
}

/// A function that calls an exported function replaces a function that calls an equal local
/// function, through callers of callers. It once called the exported function by its symbol, and so
/// the one that interposed it.
#[test]
fn a_body_that_replaces_callers_of_equal_functions_calls_no_interposed_function() {
    let main = with_own_function(&["d"], "e");
    let first = plus("export", "e", 5) + &calls("local", "c", "e") + &calls("export", "x", "c");
    let later = plus("local", "g", 5) + &calls("local", "h", "g") + &calls("export", "d", "h");
    for options in [significant(), insignificant()] {
        let printed = compare("callers of callers", options, &main, |module, merges| {
            define_all(module, &(first.clone() + &later));
            if merges {
                module.flush().unwrap();
                assert_eq!(module.body_of(id(module, "h")), id(module, "c"));
            }
        });
        assert_eq!(printed, "146\n");
    }
}

/// A body that replaces two functions, each of which refers to one of two equal functions, once
/// referred to an alias by its symbol, or to the other function that was kept.
#[test]
fn a_body_that_replaces_several_functions_refers_to_no_interposed_one() {
    for by_address in [false, true] {
        let user = if by_address { calls_address } else { calls };
        for aliases in [false, true] {
            for (first, second, other, own) in [
                ("f", "g", "f", "e"),
                ("f", "g", "g", "d"),
                ("g", "f", "f", "d"),
                ("g", "f", "g", "e"),
            ] {
                let program = plus("export", "f", 5)
                    + &plus("export", "g", 5)
                    + &user("export", "d", first)
                    + &user("export", "e", second);
                let main = with_own_function(&[own], other);
                let case = format!("{own}, {other}, by address: {by_address}");
                let options = ModuleOptions { aliases, ..insignificant() };
                compare(case, options, &main, |module, merges| {
                    define_all(module, &program);
                    module.flush().unwrap();
                    let merged = module.stats().thunks + module.stats().aliases;
                    assert_eq!(merged > 0, merges, "nothing is shown");
                });
            }
        }
    }
}

/// A function is called before its definition comes. A caller of an equal function was once merged
/// into its caller, and ran the function that interposed the first.
#[test]
fn a_function_called_before_its_definition_can_be_interposed() {
    let main = with_own_function(&["e"], "f");
    for linkage in ["local", "export"] {
        for by_address in [false, true] {
            let user = if by_address { calls_address } else { calls };
            let case = format!("{linkage}, by address: {by_address}");
            compare(case, for_size(BackEnd::Object), &main, |module, _| {
                declare(module, "f", Linkage::Local, I64);
                define_all(module, &user("export", "d", "f"));
                define_all(module, &(plus(linkage, "f", 5) + &plus("local", "g", 5)));
                define_all(module, &user("export", "e", "g"));
                declare(module, "f", Linkage::Export, I64);
            });
        }
    }
}

/// Runs a function of a program with `f` interposed. Functions of `pinned` keep their bodies.
#[track_caller]
fn check(program: &str, pinned: &[&str], called: &str) {
    let main = with_own_function(&[called], "f");
    for aliases in [true, false] {
        let options = ModuleOptions { aliases, ..insignificant() };
        compare(format_args!("pinned: {pinned:?}"), options, &main, |module, _| {
            define_all(module, program);
            pin(module, pinned);
        });
    }
}

/// A function that is kept once replaced an equal one in a body that several functions share, and
/// called an exported function by its symbol.
#[test]
fn a_kept_duplicate_does_not_call_an_interposed_function() {
    let calls_in_turn = |name: &str, callee: &str| {
        format!(
            "export function %{name}(i64) -> i64 system_v {{
    fn0 = %{callee}(i64) -> i64 system_v
block0(v0: i64):
    v1 = iconst.i64 -1
    v2 = iadd v0, v1
    v3 = iconst.i64 0
    v4 = icmp sgt v2, v3
    brif v4, block1, block2
block1:
    v5 = call fn0(v2)
    v6 = iadd v5, v0
    return v6
block2:
    return v0
}}
"
        )
    };
    let pair = |a: &str, b: &str| calls_in_turn(a, b) + &calls_in_turn(b, a);
    let pairs = pair("f", "b") + &pair("c", "d");
    check(&pairs, &["b"], "c");
    check(&pairs, &["b", "d"], "c");
}

/// The private copy of preemptible functions once called an exported function by its symbol;
/// another function, which calls an equal one, was merged into the copy.
#[test]
fn a_private_copy_of_callers_of_equal_functions_calls_no_interposed_one() {
    for user in [calls, calls_address] {
        let program = plus("export", "f", 5)
            + &user("preemptible", "p", "f")
            + &user("preemptible", "q", "f")
            + &plus("export", "g", 5)
            + &user("preemptible", "d", "g");
        check(&program, &[], "d");
    }
}

/// The private copy of two preemptible functions calls an exported function; one of the two calls
/// an equal local function.
#[test]
fn a_private_copy_calls_no_interposed_function() {
    let main = with_own_function(&["e"], "f");
    for pinned in [false, true] {
        compare(format_args!("pinned: {pinned}"), significant(), &main, |module, merges| {
            define_all(module, &(plus("export", "f", 5) + &plus("local", "g", 5)));
            if pinned {
                pin(module, &["f", "g"]);
            }
            let caller = |name: &str, callee: &str| mixes_call("preemptible", name, callee);
            define_all(module, &(caller("d", "f") + &caller("e", "g")));
            module.flush().unwrap();
            assert_eq!(module.stats().new_bodies, usize::from(merges));
        });
    }
}

/// A function into which others were merged cannot become preemptible, whether or not the module
/// remembers it for later merges, and whatever names the back end supports.
#[test]
fn a_body_that_replaces_others_cannot_become_preemptible() {
    fn check<M: Module>(inner: M, back_end: BackEnd, remember: bool) {
        let options = ModuleOptions { back_end, remember, ..insignificant() };
        let mut module = MergingModule::with_options(inner, options);
        define_all(&mut module, &(plus("local", "f", 5) + &plus("local", "g", 5)));
        for name in ["d1", "d2"] {
            let data = module.declare_data(name, Linkage::Local, false, false).unwrap();
            let description = bytes(&mut module, &[1, 2, 3], &[]);
            module.define_data(data, &description).unwrap();
        }
        module.flush().unwrap();
        assert_eq!((module.stats().merged(), module.stats().merged_data_objects), (1, 1));
        for name in ["f", "g"] {
            let signature = signature(I64);
            let declared = module.declare_function(name, Linkage::Preemptible, &signature);
            assert!(declared.is_err(), "{name}, {back_end:?}, {remember}");
        }
        for name in ["d1", "d2"] {
            let declared = module.declare_data(name, Linkage::Preemptible, false, false);
            assert!(declared.is_err(), "{name}, {back_end:?}, {remember}");
        }
    }
    for remember in [false, true] {
        check(jit(), BackEnd::Jit, remember);
        check(object(), BackEnd::Object, remember);
    }
}

/// The address of a preemptible function is that of the function that interposes it, also in code
/// into which later functions may be merged. It was once that of the body that the function shares.
#[test]
fn a_returned_address_is_that_of_the_interposing_function() {
    let main = "#include <stdio.h>\nlong f(long), (*t(void))(long); long g(long x) { return 4242; }
        int main(void) { printf(\"%ld %ld\\n\", f(7), t()(7)); }";
    let options = ModuleOptions { back_end: BackEnd::Object, ..insignificant() };
    let program =
        plus("export", "f", 5) + &plus("preemptible", "g", 5) + &address("export", "t", "g");
    let printed = same_output("returned", options, interposed, main, |module, merges| {
        define_all(module, &program);
        module.flush().unwrap();
        assert_eq!(module.body_of(id(module, "g")) == id(module, "f"), merges);
    });
    assert!(printed.ends_with(" 4242\n"), "{printed}");
}

/// If the code that takes the address of a preemptible function may replace later functions, the
/// address was once that of an equal function, by a local name that cannot be interposed.
#[test]
fn the_address_of_a_preemptible_function_is_that_of_the_interposing_one() {
    let main = with_own_function(&["d"], "f");
    let program =
        plus("preemptible", "f", 5) + &plus("hidden", "g", 5) + &calls_address("export", "d", "f");
    let options = ModuleOptions { back_end: BackEnd::Object, ..insignificant() };
    let printed = same_output("an address", options, interposed, &main, |module, merges| {
        define_all(module, &program);
        module.flush().unwrap();
        assert_eq!(module.stats().merged() > 0, merges, "nothing is shown");
    });
    assert_eq!(printed, "4242\n");
}
