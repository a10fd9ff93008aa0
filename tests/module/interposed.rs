//! A program may define symbols of a shared library itself: what merging makes of a module calls, and points to, its own
//! code and data wherever a front end named something else.
//!
//! Each test runs the code of a program twice, merged and unmerged, and compares what comes out.

use crate::incremental::{calls_address, for_size, interposed, mixes, mixes_call, unmerged};
use crate::support::*;
use cranelift_mergefunc::{
    Addresses, BackEnd, Disposition, MergingModule, Mode, ModuleOptions, Similar,
};
use cranelift_module::{FuncId, FuncOrDataId, Linkage, Module};
use cranelift_object::ObjectModule;

/// What a C program prints, with `f` of its own beside that of a library, that is made with and without merging.
#[track_caller]
fn compare(
    options: ModuleOptions,
    main: &str,
    make: impl Fn(&mut MergingModule<ObjectModule>, bool),
) {
    let options = ModuleOptions { back_end: BackEnd::Object, ..options };
    let printed = [(options, true), (unmerged(options), false)].map(|(options, merges)| {
        let mut module = MergingModule::with_options(object(), options);
        make(&mut module, merges);
        interposed(module.finish().unwrap(), main)
    });
    assert_eq!(printed[0], printed[1], "{options:?}");
    assert!(!printed[1].contains("4242"), "the program is to call nothing that is interposed");
}

fn significant() -> ModuleOptions {
    ModuleOptions { similar: Similar::OFF, ..ModuleOptions::default() }
}

fn became(module: &MergingModule<ObjectModule>, name: &str) -> Disposition<FuncId> {
    module.outcome(id(module, name)).unwrap().0
}

fn pin(module: &mut MergingModule<ObjectModule>, names: &[&str]) {
    for name in names {
        let function = id(module, name);
        module.attributes(function).pinned = true;
    }
}

/// A thunk jumped to the symbol of the exported function that its function was merged into.
#[test]
fn a_thunk_leads_past_what_takes_the_place_of_its_target() {
    let main = "#include <stdio.h>\nlong g(long); long f(long x) { return 4242; }
        int main(void) { printf(\"%ld\\n\", g(7)); }";
    for flushes in [0, 1, 2] {
        compare(significant(), main, |module, merges| {
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
        compare(significant(), main, |module, merges| {
            define_all(module, &(plus("export", "f", 5) + &plus("local", "g", 5)));
            module.flush().unwrap();
            assert_eq!(matches!(became(module, "g"), Disposition::Redirect { .. }), merges);
            if by_export {
                // There is code under the name of `g` in the end, and the table comes before that.
                declare(module, "g", Linkage::Export, "(i64) -> i64 system_v");
            }
            define_all(module, &address("export", "a", "g"));
        });
    }
}

/// A table that stands for another one holds the address of an exported function, where the other one holds that of an
/// equal function of its own. Both functions stay, because they are pinned.
#[test]
fn a_table_that_stands_for_another_one_points_to_nothing_that_is_interposed() {
    let main = "#include <stdio.h>\nlong d(long); long f(long x) { return 4242; }
        int main(void) { printf(\"%ld\\n\", d(0)); }";
    for remember in [false, true] {
        for flushed in [false, true] {
            let options = ModuleOptions { remember, ..insignificant() };
            compare(options, main, |module, merges| {
                define_all(module, &(plus("export", "f", 5) + &plus("local", "g", 5)));
                pin(module, &["f", "g"]);
                table(module, "t1", &["f"]);
                table(module, "t2", &["g"]);
                define_all(module, &through("export", "d", "t2"));
                if flushed {
                    module.flush().unwrap();
                    assert_eq!(module.stats().merged_data_objects, usize::from(merges));
                }
            });
        }
    }
}

/// A body that stands for two functions calls an exported function, where one of them calls an equal function of its own.
/// Both of these stay, because they are pinned.
#[test]
fn a_body_that_stands_for_others_calls_nothing_that_is_interposed() {
    let main = "#include <stdio.h>\nlong e(long); long f(long x) { return 4242; }
        int main(void) { printf(\"%ld\\n\", e(7)); }";
    for remember in [false, true] {
        for (before, flushed) in [(false, false), (false, true), (true, false), (true, true)] {
            let options = ModuleOptions { remember, ..insignificant() };
            compare(options, main, |module, merges| {
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

/// The same of parameterised bodies, which no front end wrote.
#[test]
fn a_parameterised_body_calls_nothing_that_is_interposed() {
    let with = |name: &str, k: i64, callee: &str| {
        let call = mixes_call("export", name, callee).replace("call fn0(v0)", "call fn0(v60)");
        call.replace(
            "    v1 =",
            &format!("    v61 = iconst.i64 {k}\n    v60 = iadd v0, v61\n    v1 ="),
        )
    };
    let main = "#include <stdio.h>\nlong e(long); long f(long x) { return 4242; }
        int main(void) { printf(\"%ld\\n\", e(7)); }";
    for remember in [false, true] {
        for flushed in [false, true] {
            for pinned in [false, true] {
                let options = ModuleOptions { remember, ..for_size(BackEnd::Object) };
                compare(options, main, |module, merges| {
                    define_all(module, &(plus("export", "f", 5) + &plus("local", "g", 5)));
                    if pinned {
                        pin(module, &["f", "g"]);
                    }
                    define_all(module, &(with("d", 1, "f") + &with("e", 2, "g")));
                    if flushed {
                        module.flush().unwrap();
                        assert_eq!(module.stats().private_copies, usize::from(merges));
                    }
                });
            }
        }
    }
}

/// The same of a parameterised body of which all functions call the same one, but for what was merged into one of them
/// before.
#[test]
fn a_parameterised_body_of_merged_functions_calls_nothing_that_is_interposed() {
    let with = |name: &str, k: i64, callee: &str| {
        let call = mixes_call("export", name, callee).replace("call fn0(v0)", "call fn0(v60)");
        let sum = format!("    v61 = iconst.i64 {k}\n    v60 = iadd v0, v61\n    v1 =");
        call.replace("    v1 =", &sum)
    };
    let main = "#include <stdio.h>\nlong e(long); long f(long x) { return 4242; }
        int main(void) { printf(\"%ld\\n\", e(7)); }";
    for remember in [false, true] {
        for pinned in [false, true] {
            let options = ModuleOptions { remember, ..for_size(BackEnd::Object) };
            compare(options, main, |module, merges| {
                define_all(module, &(plus("export", "f", 5) + &plus("local", "g", 5)));
                if pinned {
                    pin(module, &["f", "g"]);
                }
                define_all(module, &(with("c", 1, "f") + &with("e", 1, "g") + &with("d", 2, "f")));
                module.flush().unwrap();
                assert_eq!(module.stats().private_copies, usize::from(merges));
                let is_one = module.body_of(id(module, "c")) == module.body_of(id(module, "e"));
                assert_eq!(is_one, merges);
            });
        }
    }
}

/// The same of a body that preemptible functions share.
#[test]
fn a_private_copy_calls_nothing_that_is_interposed() {
    let main = "#include <stdio.h>\nlong e(long); long f(long x) { return 4242; }
        int main(void) { printf(\"%ld\\n\", e(7)); }";
    for remember in [false, true] {
        for pinned in [false, true] {
            let options = ModuleOptions { remember, ..significant() };
            compare(options, main, |module, merges| {
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

/// A function that mixes what `symbol` holds with its argument and a constant.
fn mixes_data(linkage: &str, name: &str, k: i64, symbol: &str) -> String {
    let reads = format!("    gv0 = symbol %{symbol}\nblock0(v0: i64):\n");
    mixes(linkage, name, k).replace("block0(v0: i64):\n", &reads).replace(
        "    v2 = iadd v0, v1\n",
        "    v61 = symbol_value.i64 gv0\n    v62 = load.i64 v61\n    v2 = iadd v62, v1\n",
    )
}

/// The same of data objects: a function, a private copy and a parameterised body that stand for two functions read an
/// exported object, where one of them reads an equal object of its own. Both objects stay, because they are pinned.
#[test]
fn what_stands_for_others_reads_nothing_that_is_interposed() {
    let main = "#include <stdio.h>\nlong e(long), own(long); long t1 = 4242;
        int main(void) { printf(\"%d\\n\", e(7) == own(7)); }";
    for (linkage, other, options) in [
        ("export", 1, significant()),
        ("preemptible", 1, significant()),
        ("export", 2, for_size(BackEnd::Object)),
    ] {
        for remember in [false, true] {
            for (pinned, flushed) in [(false, false), (true, false), (true, true)] {
                let options = ModuleOptions { remember, data: Addresses::Insignificant, ..options };
                compare(options, main, |module, merges| {
                    for (name, linkage) in [("t1", Linkage::Export), ("t2", Linkage::Local)] {
                        let data = module.declare_data(name, linkage, false, false).unwrap();
                        module.data_attributes(data).pinned = pinned;
                        let description = bytes(module, &[1, 2, 3, 4, 5, 6, 7, 8], &[]);
                        module.define_data(data, &description).unwrap();
                    }
                    let data =
                        module.declare_data("own_data", Linkage::Local, true, false).unwrap();
                    let description = bytes(module, &[1, 2, 3, 4, 5, 6, 7, 8], &[]);
                    module.define_data(data, &description).unwrap();
                    define_all(module, &mixes_data(linkage, "d", other, "t1"));
                    define_all(module, &mixes_data(linkage, "e", 1, "t2"));
                    define_all(module, &mixes_data("export", "own", 1, "own_data"));
                    let own = id(module, "own");
                    module.attributes(own).no_merge = true;
                    module.flush().unwrap();
                    let merged = module.stats().merged();
                    assert_eq!(merged > 0, merges, "{linkage}, {other}, {pinned}, {flushed}");
                });
            }
        }
    }
}

/// An object that became an alias is referred to by its own symbol, as without merging, by what stands for nothing else:
/// its address is the one that everybody sees.
#[test]
fn an_exported_object_is_referred_to_by_its_symbol() {
    let main = "#include <stdio.h>\nlong *a(long), *b(long); long t2 = 7, t1 = 8;
        int main(void) { printf(\"%d %d\\n\", a(0) == &t2, b(0) == &t1); }";
    let options = ModuleOptions { remember: false, ..insignificant() };
    for pointed in [false, true] {
        compare(options, main, |module, merges| {
            for name in ["t1", "t2"] {
                let data = module.declare_data(name, Linkage::Export, false, false).unwrap();
                let description = bytes(module, &[1, 2, 3, 4, 5, 6, 7, 8], &[]);
                module.define_data(data, &description).unwrap();
            }
            let address = |name: &str, of: &str| {
                reads_symbol(name, of).replace(
                    "    v2 = load.i64 v1\n    return v2",
                    if pointed { "    v2 = load.i64 v1\n    return v2" } else { "    return v1" },
                )
            };
            if pointed {
                for (name, of) in [("p1", "t1"), ("p2", "t2")] {
                    let data = module.declare_data(name, Linkage::Local, true, false).unwrap();
                    let description = bytes(module, &[0; 8], &[(0, of, 0)]);
                    module.define_data(data, &description).unwrap();
                }
                define_all(module, &(address("a", "p2") + &address("b", "p1")));
            } else {
                define_all(module, &(address("a", "t2") + &address("b", "t1")));
                for name in ["a", "b"] {
                    let function = id(module, name);
                    module.attributes(function).no_merge = true;
                }
            }
            module.flush().unwrap();
            assert_eq!(module.stats().merged_data_objects, usize::from(merges));
        });
    }
}

/// A function that returns what is found at a symbol.
fn reads_symbol(name: &str, of: &str) -> String {
    format!(
        "export function %{name}(i64) -> i64 system_v {{
    gv0 = symbol %{of}
block0(v0: i64):
    v1 = symbol_value.i64 gv0
    v2 = load.i64 v1
    return v2
}}
"
    )
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
            let signature = signature("(i64) -> i64 system_v");
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

/// Runs a function of a program whose parts are flushed one after the other, with another `f`. Functions of `pinned` keep
/// their places.
#[track_caller]
fn check_parts(parts: &[String], pinned: &[&str], called: &str) {
    let main = format!(
        "#include <stdio.h>\nlong {called}(long); long f(long x) {{ return 4242; }}
        int main(void) {{ printf(\"%ld\\n\", {called}(7)); }}"
    );
    for aliases in [true, false] {
        let options = ModuleOptions { back_end: BackEnd::Object, aliases, ..insignificant() };
        let printed = [options, unmerged(options)].map(|options| {
            let mut module = MergingModule::with_options(object(), options);
            for (at, part) in parts.iter().enumerate() {
                declare_all(&mut module, part);
                for name in pinned {
                    if let Some(FuncOrDataId::Func(id)) = module.get_name(name) {
                        module.attributes(id).pinned = true;
                    }
                }
                define_all(&mut module, part);
                if at + 1 < parts.len() {
                    module.flush().unwrap();
                }
            }
            interposed(module.finish().unwrap(), &main)
        });
        assert_eq!(printed[0], printed[1], "aliases: {aliases}");
    }
}

/// The private body of functions that can be preempted called an exported function by its symbol; a later one, which calls
/// an equal function, was merged into it.
#[test]
fn a_private_body_stands_for_later_functions_as_well() {
    for caller in [calls, |_: &str, name: &str, f: &str| calls_address(name, f)] {
        let preemptible = |name: &str, callee: &str| {
            caller("export", name, callee).replace("export function", "preemptible function")
        };
        let first = plus("export", "f", 5) + &preemptible("p", "f") + &preemptible("q", "f");
        let later = plus("export", "g", 5) + &preemptible("d", "g");
        check_parts(&[first.clone(), later.clone()], &[], "d");
        check_parts(&[first + &later], &[], "d");
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

/// A module of which nothing is known passed the near address of a function that was exported later, and a shared library
/// could not be linked.
#[test]
fn what_an_unknown_module_passes_can_be_exported_later() {
    let near = |name: &str, callee: &str| {
        mixes_call("export", name, callee).replace("fn0 = ", "fn0 = colocated ")
    };
    let other = mixes("local", "h", 1).replace("v2 = iadd", "v2 = bxor");
    let program = mixes("local", "f", 1) + &other + &near("d", "f") + &near("e", "h");
    let main = "#include <stdio.h>\nlong d(long), e(long);
        int main(void) { printf(\"%ld %ld\\n\", d(7), e(7)); }";
    let options = ModuleOptions { back_end: BackEnd::Any, ..for_size(BackEnd::Any) };
    let mut merged = false;
    let printed = [options, unmerged(options)].map(|options| {
        let mut module = MergingModule::with_options(object(), options);
        define_all(&mut module, &program);
        module.flush().unwrap();
        let bodies = ["d", "e"].map(|name| module.body_of(id(&module, name)));
        merged |= bodies[0] == bodies[1];
        declare(&mut module, "f", Linkage::Export, "(i64) -> i64 system_v");
        let (inner, _) = module.into_inner().unwrap();
        interposed(inner.finish(), main)
    });
    assert!(merged, "nothing is shown");
    assert_eq!(printed[0], printed[1]);
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
        let printed = [options, unmerged(options)].map(|options| {
            let mut module = MergingModule::with_options(object(), options);
            define_all(&mut module, &plus("export", "f", 5));
            define_all(&mut module, &plus("preemptible", "g", 5));
            define_all(&mut module, &address("export", "t", "g"));
            module.flush().unwrap();
            let merges = options.merge_limit.is_none();
            assert_eq!(module.body_of(id(&module, "g")) == id(&module, "f"), merges);
            interposed(module.finish().unwrap(), main)
        });
        assert!(printed[1].ends_with(" 4242\n"), "{}", printed[1]);
        assert_eq!(printed[0], printed[1]);
    }
}
