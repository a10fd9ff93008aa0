//! What holds for several commands at once: the same dispositions, nothing written after a failure, nothing on
//! standard output after a mistake in the command line.

use crate::program::{names, run, run_with, temporary, text_of};

const TRAMPOLINE: &str = "\
function u536870912:0(i64 vmctx) -> i64 tail {
    region0 = 67108912 \"VMStoreContext+0x30\"
    sig0 = (i64 vmctx) -> i64 system_v

block0(v0: i64):
    v1 = get_frame_pointer.i64
    store notrap aligned region0 v1, v0+48
    v2 = get_return_address.i64
    store notrap aligned v2, v0+56
    v3 = get_stack_pointer.i64
    store notrap aligned v3, v0+64
    v4 = load.i64 notrap aligned v0+8
    v5 = call_indirect sig0, v4(v0)
    return v5
}
";

const PINNED: &str = "\
function %pinned() -> i64 {
block0:
    v0 = get_pinned_reg.i64
    set_pinned_reg v0
    return v0
}
";

/// Scripts read standard output: a message there would be taken for a unit.
#[test]
fn mistakes_in_the_command_line_print_nothing_on_standard_output() {
    for arguments in [
        &[][..],
        &["unmerge"],
        &["merge"],
        &["merge", "mixed.clif", "--fast"],
        &["merge", "mixed.clif", "--linkage", "public"],
        &["merge", "mixed.clif", "--target", "pdp11"],
        &["merge", "mixed.clif", "--set", "turbo"],
        &["merge", "mixed.clif", "-q", "-v"],
        &["merge", "-", "-"],
        &["compile", "mixed.clif"],
        &["report", "mixed.clif", "--format", "xml"],
        &["report", "mixed.clif", "--min-saved", "nan"],
        &["test", "mixed.clif", "--time-limit", "0"],
        &["why", "mixed.clif", "--linkage", "local"],
    ] {
        let run = run(arguments).expect(2, "");
        assert!(run.stdout.is_empty() && !run.stderr.is_empty(), "{arguments:?}: {}", run.stderr);
    }
}

/// `compile` goes through a module and `merge` does not: a difference would be a fault of one of them.
#[test]
fn compile_and_merge_print_the_same_dispositions() {
    let table = |arguments: &[&str]| {
        let common = ["tables.clif", "--similar", "off", "-D"];
        let run = run(&[arguments, &common].concat()).expect(0, "");
        run.stderr.split("merged").next().expect("a table").to_owned()
    };
    let merge = table(&["merge", "--aliases", "-o", "/dev/null"]);
    assert!(merge.lines().count() > 10, "{merge}");
    assert_eq!(merge, table(&["compile", "-o", "/dev/null"]));
}

/// Every command refused trampolines: Cranelift's verifier needs a target for them.
#[test]
fn functions_that_are_valid_with_a_target_only() {
    let directory = temporary();
    let file = directory.path().join("out.o");
    let two = format!("{TRAMPOLINE}{}", TRAMPOLINE.replace(":0(", ":1("));
    for target in ["x86_64", "aarch64"] {
        let with = |arguments: &[&str]| {
            let arguments = [arguments, &["--linkage", "local", "--target", target]].concat();
            run_with(&arguments, two.as_bytes())
        };
        with(&["merge", "-", "--verify"]).expect(0, "merged ");
        with(&["compile", "-", "--verify", "-o", text_of(&file)]).expect(0, "merged ");
        with(&["report", "-", "--verify"]).expect(0, "");
        let why = with(&["why", "-", "u536870912:0", "u536870912:1"]).expect(0, "");
        assert!(why.text().contains("Equal"), "{}", why.text());
    }
}

/// Without the setting, Cranelift allocates the register to values, and reports no error.
#[test]
fn a_failure_leaves_no_object() {
    let directory = temporary();
    let file = directory.path().join("out.o");
    let compile = |more: &[&str]| {
        let arguments = [&["compile", "-", "-o", text_of(&file)], more].concat();
        run_with(&arguments, PINNED.as_bytes())
    };
    for more in [&[][..], &["--no-merge"], &["--target", "aarch64"]] {
        compile(more).expect(1, "it can be compiled with --set enable_pinned_reg");
    }
    assert!(names(directory.path()).is_empty());
    compile(&["--set", "enable_pinned_reg"]).expect(0, "");
    assert_eq!(names(directory.path()), ["out.o"]);
}

#[test]
fn settings_of_a_unit_hold_where_it_is_compiled() {
    let unit = "set preserve_frame_pointers=false\nfunction %t(i64) -> i64 tail {\n    \
                fn0 = %u(i64) -> i64 tail\nblock0(v0: i64):\n    return_call fn0(v0)\n}\n";
    let compile = |unit: &str| run_with(&["compile", "-", "-o", "-"], unit.as_bytes());
    // Without frame pointers, the back end for x86-64 has no tail calls.
    assert!(compile(unit).expect(1, "cannot compile").stdout.is_empty());
    assert!(!compile(&unit.replace("=false", "=true")).expect(0, "").stdout.is_empty());
}

/// Marks are looked up in whatever was read, and what could not be looked up leaves nothing printed.
#[test]
fn marks_hold_for_functions_of_standard_input() {
    let function = |name| {
        format!("function {name}() -> i32 {{\nblock0:\n    v0 = iconst.i32 1\n    return v0\n}}\n")
    };
    let unit: String = ["%a", "%b", "u0:1"].map(function).concat();
    let merge = |marks: &[&str]| {
        let local = ["merge", "-", "--linkage", "local", "--addresses", "insignificant"];
        run_with(&[&local, marks].concat(), unit.as_bytes())
    };
    let left = merge(&["--export", "%b", "--externally-called", "u0:?"]).expect(0, "merged ");
    assert!(!left.text().contains("function %a("), "{}", left.text());
    for name in ["function %b(", "function u0:1("] {
        assert!(left.text().contains(name), "{}", left.text());
    }
    for (marks, code) in
        [(["--export", "c"], 1), (["--export-file", "no-such.txt"], 1), (["--export", "u0:[1"], 2)]
    {
        let run = merge(&marks).expect(code, "error: ");
        assert!(run.stdout.is_empty(), "{marks:?}");
    }
}
