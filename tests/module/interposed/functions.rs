//! What merging makes of a module calls, and takes the address of, its own functions, and preemptible ones are those of the
//! program.

use super::{became, compare, pin, significant, with_own_function};
use crate::linked::{interposed, same_output};
use cranelift_mergefunc::{BackEnd, Disposition, MergingModule, Mode, ModuleOptions};
use cranelift_module::{FuncOrDataId, Linkage, Module};
use testkit::modules::*;

/// A thunk jumped to the symbol of the exported function that its function was merged into.
#[test]
fn a_thunk_leads_past_what_takes_the_place_of_its_target() {
    let main = with_own_function(&["g"], "f");
    for flushes in [0, 1, 2] {
        compare(format_args!("{flushes} flushes"), significant(), &main, |module, merges| {
            define_all(module, &plus("export", "f", 5));
            if flushes == 2 {
                module.flush().unwrap();
            }
            define_all(module, &plus("export", "g", 5));
            if flushes > 0 {
                module.flush().unwrap();
                let thunk = matches!(became(module, "g"), Disposition::Thunk { .. });
                assert_eq!(thunk, merges);
            }
        });
    }
}

/// The same of thunks that pass something, of which the body is one of the module's own functions.
#[test]
fn a_late_thunk_leads_past_what_takes_the_place_of_its_target() {
    let main = "#include <stdio.h>\nlong (*a(void))(long); long f(long x) { return 4242; }
        int main(void) { printf(\"%ld\\n\", a()(7)); }";
    for by_export in [false, true] {
        compare(format_args!("by export: {by_export}"), significant(), main, |module, merges| {
            define_all(module, &(plus("export", "f", 5) + &plus("local", "g", 5)));
            module.flush().unwrap();
            assert_eq!(matches!(became(module, "g"), Disposition::Redirect { .. }), merges);
            if by_export {
                // There is code under the name of `g` in the end, and the table comes before that.
                declare(module, "g", Linkage::Export, I64);
            }
            define_all(module, &address("export", "a", "g"));
        });
    }
}

/// A body that stands for two functions calls an exported function, where one of them calls an equal function of its own.
/// Both of these stay, because they are pinned.
#[test]
fn a_body_that_stands_for_others_calls_nothing_that_is_interposed() {
    let main = with_own_function(&["e"], "f");
    for remember in [false, true] {
        for (before, flushed) in [(false, false), (false, true), (true, false), (true, true)] {
            let options = ModuleOptions { remember, ..insignificant() };
            let case = format!("flushed before: {before}, flushed: {flushed}");
            compare(case, options, &main, |module, merges| {
                define_all(module, &(plus("export", "f", 5) + &plus("local", "g", 5)));
                pin(module, &["f", "g"]);
                if before {
                    module.flush().unwrap();
                }
                define_all(module, &(calls("export", "d", "f") + &calls("export", "e", "g")));
                if flushed {
                    module.flush().unwrap();
                    let merges = merges && (remember || !before);
                    assert_eq!(module.body_of(id(module, "e")) == id(module, "d"), merges);
                }
            });
        }
    }
}

/// A local function into which others were merged was declared as exported later; from then on, they ran
/// whatever took its place.
#[test]
fn what_is_exported_later_is_interposed_for_nobody_else() {
    let main = with_own_function(&["d"], "f");
    for linkage in ["local", "hidden"] {
        compare(linkage, insignificant(), &main, |module, _| {
            define_all(module, &(plus(linkage, "f", 5) + &plus("local", "g", 5)));
            define_all(module, &calls("export", "d", "g"));
            module.flush().unwrap();
            declare(module, "f", Linkage::Export, I64);
        });
    }
}

/// A function that is flushed may come to stand for a later one, which calls an equal function of its own: it called the
/// exported one by its name, and whatever took that place.
#[test]
fn what_later_functions_are_merged_into_calls_nothing_that_is_interposed() {
    let main = with_own_function(&["d"], "e");
    let first = plus("export", "e", 5) + &calls("local", "c", "e") + &calls("export", "x", "c");
    let later = plus("local", "g", 5) + &calls("local", "h", "g") + &calls("export", "d", "h");
    for options in [significant(), insignificant()] {
        let printed = compare("in two flushes", options, &main, |module, merges| {
            define_all(module, &first);
            module.flush().unwrap();
            define_all(module, &later);
            if merges {
                module.flush().unwrap();
                assert_eq!(module.body_of(id(module, "h")), id(module, "c"));
            }
        });
        assert_eq!(printed, "146\n");
    }
}

/// A body that stands for two functions, each of which refers to one of two equal functions, referred to an alias by its
/// symbol, or to what was kept beside its equal.
#[test]
fn what_stands_for_several_refers_to_nothing_that_is_interposed() {
    for by_address in [false, true] {
        let user = if by_address { calls_address } else { calls };
        for (flushed, aliases) in [(false, false), (false, true), (true, false), (true, true)] {
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
                let case = format!("{own}, {other}, by address: {by_address}, flushed: {flushed}");
                let options = ModuleOptions { aliases, ..insignificant() };
                compare(case, options, &main, |module, merges| {
                    define_all(module, &program);
                    if flushed {
                        module.flush().unwrap();
                        let merged = module.stats().thunks + module.stats().aliases;
                        assert_eq!(merged > 0, merges, "nothing is shown");
                    }
                });
            }
        }
    }
}

/// What was emitted called a function by its symbol, because it was not defined yet; a caller of an equal one was merged
/// into it, and ran whatever took the place of the first.
#[test]
fn what_is_called_before_it_is_defined_can_be_interposed() {
    let main = with_own_function(&["e"], "f");
    for mode in [Mode::Eager, Mode::Deferred] {
        for linkage in ["local", "export"] {
            for by_address in [false, true] {
                let user = if by_address { calls_address } else { calls };
                let case = format!("{linkage}, by address: {by_address}");
                let options = ModuleOptions { mode, ..for_size(BackEnd::Object) };
                compare(case, options, &main, |module, _| {
                    declare(module, "f", Linkage::Local, I64);
                    define_all(module, &user("export", "d", "f"));
                    module.flush().unwrap();
                    define_all(module, &(plus(linkage, "f", 5) + &plus("local", "g", 5)));
                    define_all(module, &user("export", "e", "g"));
                    module.flush().unwrap();
                    declare(module, "f", Linkage::Export, I64);
                });
            }
        }
    }
}

/// Runs a function of a program whose parts are flushed one after the other, with another `f`. Functions of `pinned` keep
/// their places.
#[track_caller]
fn check_parts(parts: &[String], pinned: &[&str], called: &str) {
    let main = with_own_function(&[called], "f");
    for aliases in [true, false] {
        let case = format!("{} parts, pinned: {pinned:?}", parts.len());
        compare(case, ModuleOptions { aliases, ..insignificant() }, &main, |module, _| {
            for (at, part) in parts.iter().enumerate() {
                declare_all(module, part);
                for name in pinned {
                    if let Some(FuncOrDataId::Func(id)) = module.get_name(name) {
                        module.attributes(id).pinned = true;
                    }
                }
                define_all(module, part);
                if at + 1 < parts.len() {
                    module.flush().unwrap();
                }
            }
        });
    }
}

/// A function that keeps its place stood for an equal one in a function that several share, and called an exported one by
/// its symbol.
#[test]
fn what_is_kept_beside_an_equal_function_stands_for_it() {
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
    check_parts(&[pair("f", "b") + &pair("c", "d")], &["b"], "c");
    check_parts(&[pair("f", "b"), pair("c", "d")], &["b"], "c");
    check_parts(&[pair("f", "b") + &pair("c", "d")], &["b", "d"], "c");
}

/// The private body of functions that can be preempted called an exported function by its symbol; a later one, which calls
/// an equal function, was merged into it.
#[test]
fn a_private_body_stands_for_later_functions_as_well() {
    for user in [calls, calls_address] {
        let first = plus("export", "f", 5)
            + &user("preemptible", "p", "f")
            + &user("preemptible", "q", "f");
        let later = plus("export", "g", 5) + &user("preemptible", "d", "g");
        check_parts(&[first.clone(), later.clone()], &[], "d");
        check_parts(&[first + &later], &[], "d");
    }
}

/// A body that preemptible functions share calls an exported function, where one of them calls an equal one of its own.
#[test]
fn a_private_copy_calls_nothing_that_is_interposed() {
    let main = with_own_function(&["e"], "f");
    for remember in [false, true] {
        for pinned in [false, true] {
            let options = ModuleOptions { remember, ..significant() };
            compare(format_args!("pinned: {pinned}"), options, &main, |module, merges| {
                define_all(module, &(plus("export", "f", 5) + &plus("local", "g", 5)));
                if pinned {
                    pin(module, &["f", "g"]);
                }
                let caller = |name: &str, callee: &str| mixes_call("preemptible", name, callee);
                define_all(module, &(caller("d", "f") + &caller("e", "g")));
                module.flush().unwrap();
                assert_eq!(module.stats().private_copies, usize::from(merges));
            });
        }
    }
}

/// What others were merged into cannot be replaced later, whether or not later functions may be merged into it, and
/// whatever the back end has for names.
#[test]
fn what_stands_for_others_cannot_become_preemptible() {
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

/// The address of a preemptible function is that of whatever takes its place, also in code that later functions may be merged
/// into: it was that of the body that the function shares.
#[test]
fn an_address_that_is_returned_is_that_of_what_takes_the_place_of_a_preemptible_function() {
    let main = "#include <stdio.h>\nlong f(long), (*t(void))(long); long g(long x) { return 4242; }
        int main(void) { printf(\"%ld %ld\\n\", f(7), t()(7)); }";
    let mode = Mode::Eager;
    let options = ModuleOptions { back_end: BackEnd::Object, ..insignificant() };
    for options in [options, ModuleOptions { mode, ..options }] {
        let case = "an address that is returned";
        let printed = same_output(case, options, interposed, main, |module, merges| {
            define_all(module, &plus("export", "f", 5));
            define_all(module, &plus("preemptible", "g", 5));
            define_all(module, &address("export", "t", "g"));
            module.flush().unwrap();
            assert_eq!(module.body_of(id(module, "g")) == id(module, "f"), merges);
        });
        assert!(printed.ends_with(" 4242\n"), "{printed}");
    }
}

/// The address of a preemptible function was that of an equal one, by the name that nothing can take the place of, if
/// what takes the address may come to stand for others.
#[test]
fn the_address_of_a_preemptible_function_is_that_of_what_takes_its_place() {
    let main = with_own_function(&["d"], "f");
    let program =
        plus("preemptible", "f", 5) + &plus("hidden", "g", 5) + &calls_address("export", "d", "f");
    let options = ModuleOptions { back_end: BackEnd::Object, ..insignificant() };
    for flushed in [false, true] {
        let case = format!("flushed: {flushed}");
        let printed = same_output(case, options, interposed, &main, |module, merges| {
            define_all(module, &program);
            if flushed {
                module.flush().unwrap();
                assert_eq!(module.stats().merged() > 0, merges, "nothing is shown");
            }
        });
        assert_eq!(printed, "4242\n");
    }
}
