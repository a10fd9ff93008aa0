//! Dependence on the target: functions that are valid only with a target, and functions that one target
//! cannot compile.

use crate::program::{run, run_with, temporary, text_of, write};
use serde_json::Value;

/// As Wasmtime writes its trampolines, which every directory of `Config::emit_clif` has.
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

/// One function that every target can compile, three that need SSSE3 on x86-64, and one that no target
/// can compile.
const VECTORS: &str = "\
function %all(i32) -> i32 {
block0(v0: i32):
    v1 = iadd v0, v0
    return v1
}
function %multiply(i16x8, i16x8) -> i16x8 {
block0(v0: i16x8, v1: i16x8):
    v2 = x86_pmulhrsw v0, v1
    return v2
}
function %multiply_too(i16x8, i16x8) -> i16x8 {
block0(v0: i16x8, v1: i16x8):
    v2 = x86_pmulhrsw v0, v1
    return v2
}
function %shuffle(i8x16, i8x16) -> i8x16 {
block0(v0: i8x16, v1: i8x16):
    v2 = x86_pshufb v0, v1
    return v2
}
function %divide(i128, i128) -> i128 {
block0(v0: i128, v1: i128):
    v2 = udiv v0, v1
    return v2
}
";

/// Every command refused them: Cranelift's verifier needs a target for them.
#[test]
fn functions_that_are_valid_with_a_target_only() {
    let directory = temporary();
    let file = directory.path().join("out.o");
    let two = format!("{TRAMPOLINE}{}", TRAMPOLINE.replace(":0(", ":1("));
    for target in ["x86_64", "aarch64"] {
        let with = |arguments: &[&str]| {
            run_with(
                &[arguments, &["--linkage", "local", "--target", target]].concat(),
                two.as_bytes(),
            )
        };
        with(&["merge", "-", "--verify"]).expect(0, "merged ");
        with(&["compile", "-", "--verify", "-o", text_of(&file)]).expect(0, "merged ");
        with(&["report", "-", "--verify"]).expect(0, "");
        let why = with(&["why", "-", "u536870912:0", "u536870912:1"]).expect(0, "");
        assert!(why.text().contains("Equal"), "{}", why.text());
    }
    // Other mistakes in them are still found, and named as the target's verifier sees them.
    let wrong = TRAMPOLINE.replace("return v5", "return v5, v5");
    let run = run_with(&["merge", "-"], wrong.as_bytes()).expect(1, "is not valid");
    assert!(!run.stderr.contains("require an ISA"), "{}", run.stderr);
}

/// Without the setting, Cranelift allocates the register to values, and reports no error.
#[test]
fn the_pinned_register_needs_a_setting_when_code_is_made() {
    let directory = temporary();
    let file = directory.path().join("out.o");
    let with = |arguments: &[&str]| run_with(arguments, PINNED.as_bytes());
    with(&["merge", "-", "--verify"]).expect(0, "merged 0 of 1");
    with(&["why", "-", "%pinned"]).expect(0, "");
    for more in [&[][..], &["--no-merge"], &["--target", "aarch64"]] {
        with(&[&["compile", "-", "-o", text_of(&file)], more].concat())
            .expect(1, "; it can be compiled with --set enable_pinned_reg");
    }
    assert!(!file.exists());
    with(&["compile", "-", "-o", text_of(&file), "--set", "enable_pinned_reg"]).expect(0, "");
    with(&["report", "-"]).expect(1, "it can be compiled with --set enable_pinned_reg");
    with(&["report", "-", "--set", "enable_pinned_reg"]).expect(0, "");
}

/// The frame pointer is preserved unless the command line switches that off.
#[test]
fn a_setting_that_was_switched_off_is_named() {
    let arguments = ["compile", "-", "-o", "-", "--set", "preserve_frame_pointers=false"];
    run_with(&arguments, TRAMPOLINE.as_bytes())
        .expect(1, "; it can be compiled with --set preserve_frame_pointers");
}

/// The exit code was 4, a bug of the program: new functions were verified for another target than the
/// functions of the unit.
#[test]
fn code_for_other_targets_is_merged_and_verified() {
    let body = |offset: u32| {
        let mut text = String::from("block0(v0: i32):\n");
        for load in 0..6 {
            let (a, b, c) = (2 * load, 2 * load + 1, 2 * load + 2);
            text += &format!("    v{b} = load.i32 v0+{offset}\n    v{c} = imul v{b}, v{a}\n");
        }
        text + "    return v12\n}\n"
    };
    let unit = format!(
        "function %a(i32) -> i32 {{\n{}function %b(i32) -> i32 {{\n{}",
        body(16),
        body(32),
    );
    let arguments =
        ["merge", "-", "--verify", "--linkage", "local", "--addresses", "insignificant"];
    run_with(&arguments, unit.as_bytes()).expect(0, "merged ");
    run_with(&[&arguments[..], &["--similar", "size"]].concat(), unit.as_bytes())
        .expect(0, "merged 2 of 2");
}

/// One function used to end the whole report.
#[test]
fn a_report_goes_on_past_what_cannot_be_compiled() {
    let json = |arguments: &[&str]| -> Value {
        let arguments = [&["report", "-", "--format", "json"], arguments].concat();
        let run = run_with(&arguments, VECTORS.as_bytes()).expect(0, "");
        serde_json::from_str(run.text()).expect("JSON")
    };
    let report = json(&[]);
    let [x86, arm] = ["x86_64", "aarch64"].map(|target| &report["native"][target]);
    assert_eq!((&x86["not_compiled"], &arm["not_compiled"]), (&4.into(), &4.into()));
    assert_eq!(x86["compiled_with_settings"], 3);
    assert_eq!(x86["missing_settings"].as_array().unwrap(), &["has_ssse3"]);
    assert!(arm["missing_settings"].as_array().unwrap().is_empty());
    let error = x86["first_error"].as_str().unwrap();
    assert!(error.starts_with("<stdin>:6: %multiply: Unsupported"), "{error}");
    // Such functions count no bytes, and save none.
    assert!(x86["before"].as_u64().unwrap() > 0);
    assert_eq!(x86["before"], x86["after"]);

    let with = json(&["--set", "has_ssse3"]);
    assert_eq!(with["native"]["x86_64"]["not_compiled"], 1);
    assert!(with["native"]["x86_64"]["before"].as_u64() > x86["before"].as_u64());

    let text = run_with(&["report", "-"], VECTORS.as_bytes()).expect(0, "");
    let line = "\n4 functions cannot be compiled for x86-64 and are not counted; the first error:\n  \
                <stdin>:6: %multiply: Unsupported";
    assert!(text.text().contains(line), "{}", text.text());
    let line = "\n  3 of them can be compiled with --set has_ssse3\n";
    assert!(text.text().contains(line), "{}", text.text());
    run_with(&["compile", "-", "-o", "-"], VECTORS.as_bytes())
        .expect(1, "; it can be compiled with --set has_ssse3");
}

/// `report` succeeds if one target can compile some function.
#[test]
fn a_report_goes_on_past_a_target_that_can_compile_nothing() {
    let start = VECTORS.find("function %shuffle").unwrap();
    let end = VECTORS.find("function %divide").unwrap();
    let unit = &VECTORS.as_bytes()[start..end];
    let run = run_with(&["report", "-", "--set", "has_ssse3"], unit).expect(0, "");
    assert!(run.text().contains("1 function cannot be compiled for aarch64 and is not counted"));
    assert!(!run.text().contains("NaN") && !run.text().contains("inf"), "{}", run.text());
    run_with(&["report", "-"], unit).expect(1, "; it can be compiled with --set has_ssse3");
}

#[test]
fn targets_of_a_report() {
    let json = |targets: &[&str]| -> Value {
        let arguments = [&["report", "mixed.clif", "--format", "json"], targets].concat();
        serde_json::from_str(run(&arguments).expect(0, "").text()).expect("JSON")
    };
    let both = json(&[]);
    let arm = json(&["--target", "aarch64"]);
    assert_eq!(arm["native"]["aarch64"], both["native"]["aarch64"]);
    assert_eq!(arm["native"].as_object().unwrap().len(), 1);
    assert_eq!(arm["host"], "aarch64");
    let named = json(&["--target", "x86_64-apple-darwin", "--target", "aarch64"]);
    let names: Vec<_> = named["native"].as_object().unwrap().keys().collect();
    assert_eq!(names.len(), 2);
    assert!(names.iter().any(|name| *name == "x86_64-apple-darwin"), "{names:?}");
    let text = run(&["report", "mixed.clif", "--target", "aarch64"]).expect(0, "");
    assert!(!text.text().contains("x86-64"), "{}", text.text());
    assert!(text.text().lines().last().unwrap().contains("on aarch64"), "{}", text.text());
    run(&["report", "mixed.clif", "--target", "aarch64,aarch64"]).expect(2, "is named twice");
    run(&["report", "mixed.clif", "--target", "riscv64"]).expect(2, "there is no back end");
}

/// A directory of many files, as Wasmtime fills it: brackets in names, and lists in addition to the functions.
#[test]
fn a_directory_as_wasmtime_writes_it() {
    let directory = temporary();
    let at = |name: &str| directory.path().join(name);
    write(at("signatures[0]--wasm_to_array_trampoline.clif"), TRAMPOLINE);
    let function = "function u0:0(i64 vmctx, i64, i32) -> i32 tail {\n\
                    block0(v0: i64, v1: i64, v2: i32):\n    return v2\n}\n";
    write(at("wasm[0]--function[3].clif"), function);
    write(at("wasm[0]--function[4].clif"), function.replace(":0(", ":1("));
    write(at("exported.txt"), "# Exports\nu0:1\n");
    let unit = text_of(directory.path());
    let exports = at("exported.txt");
    let arguments = [
        "--linkage",
        "local",
        "--addresses",
        "insignificant",
        "--export-file",
        text_of(&exports),
        "--externally-called",
        "u[1-9]*:*",
    ];
    let run = run(&[&["merge", "--verify", unit], &arguments[..]].concat());
    let run = run.expect(0, "merged 1 of 3 functions: 1 redirected");
    assert!(run.text().contains("function u0:1("), "{}", run.text());
    assert!(!run.text().contains("function u0:0("), "{}", run.text());
}
