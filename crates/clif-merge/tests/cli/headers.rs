//! `target` and `set` in front of the functions are honoured, or refused.

use crate::program::{run_with, temporary, text_of, write};

const FUNCTION: &str = "function %f(i32) -> i32 {\nblock0(v0: i32):\n    return v0\n}\n";

/// The target line of a unit was ignored: the object was for x86-64.
#[test]
fn a_unit_is_compiled_for_the_target_that_it_names() {
    let machine = |header: &str, arguments: &[&str]| {
        let unit = format!("{header}\n{FUNCTION}");
        let compile = [&["compile", "-", "-o", "-"], arguments].concat();
        let object = run_with(&compile, unit.as_bytes()).expect(0, "").stdout;
        u16::from_le_bytes([object[18], object[19]])
    };
    const X86_64: u16 = 0x3e;
    const AARCH64: u16 = 0xb7;
    assert_eq!(machine("", &[]), X86_64);
    assert_eq!(machine("target aarch64 has_lse", &[]), AARCH64);
    assert_eq!(machine("test merge\ntarget x86_64\ntarget aarch64", &[]), X86_64);
    assert_eq!(machine("target x86_64\ntarget aarch64", &["--target", "aarch64"]), AARCH64);
    assert_eq!(machine("target riscv64\ntarget aarch64", &[]), AARCH64);
}

#[test]
fn settings_of_a_unit_hold() {
    // Without frame pointers, the back end for x86-64 has no tail calls.
    let unit = "set preserve_frame_pointers=false\nfunction %t(i64) -> i64 tail {\n    \
                fn0 = %u(i64) -> i64 tail\nblock0(v0: i64):\n    return_call fn0(v0)\n}\n";
    let message = "cannot compile function %t for x86_64";
    run_with(&["compile", "-", "-o", "-"], unit.as_bytes()).expect(1, message);
    let report = ["report", "-", "--target"];
    run_with(&[&report[..], &["x86_64"]].concat(), unit.as_bytes()).expect(1, message);
    // The other target has tail calls nevertheless.
    let run = run_with(&["report", "-"], unit.as_bytes()).expect(0, "");
    assert!(run.text().contains("1 function cannot be compiled for x86-64"), "{}", run.text());
    let unit = unit.replace("=false", "=true");
    run_with(&["compile", "-", "-o", "-"], unit.as_bytes()).expect(0, "");
}

#[test]
fn contradictions_are_errors() {
    for (header, arguments, message) in [
        (
            "target aarch64",
            &["--target", "x86_64"][..],
            "error: <stdin>:1: 'target aarch64' contradicts the target x86_64-unknown-linux-gnu",
        ),
        (
            "set opt_level=none",
            &["--set", "opt_level=speed"],
            "error: <stdin>:1: 'opt_level=none' contradicts 'opt_level=speed' of the command line",
        ),
        ("target riscv64", &[], "error: <stdin>:1: target 'riscv64': there is no back end for"),
        ("set turbo", &[], "error: <stdin>:1: unknown setting 'turbo'"),
        ("target x86_64 has_wings", &[], "error: <stdin>:1: unknown setting 'has_wings'"),
    ] {
        let unit = format!("{header}\n{FUNCTION}");
        for command in [&["merge", "-"][..], &["why", "-", "%f"]] {
            run_with(&[command, arguments].concat(), unit.as_bytes()).expect(1, message);
        }
    }
    let unit = format!("target riscv64\n{FUNCTION}");
    run_with(&["report", "-"], unit.as_bytes())
        .expect(1, "'target riscv64' contradicts the target");
    let unit = format!("target aarch64-apple-darwin\n{FUNCTION}");
    run_with(&["report", "-"], unit.as_bytes())
        .expect(1, "'target aarch64-apple-darwin' contradicts the target x86_64-");
    let targets = ["--target", "x86_64", "--target", "aarch64-apple-darwin"];
    run_with(&[&["report", "-"], &targets[..]].concat(), unit.as_bytes()).expect(0, "");
    let unit = format!("set opt_level=none\n{FUNCTION}");
    run_with(&["report", "-", "--target", "aarch64", "--set", "opt_level=speed"], unit.as_bytes())
        .expect(1, "'opt_level=none' contradicts 'opt_level=speed' of the command line");
    // Errors of the command line are reported first.
    run_with(&["report", "-", "--set", "turbo"], unit.as_bytes()).expect(2, "unknown setting");
    let directory = temporary();
    let [a, b] = ["a.clif", "b.clif"].map(|name| directory.path().join(name));
    write(&a, format!("target x86_64\n{FUNCTION}"));
    write(&b, format!("target aarch64\n{}", FUNCTION.replace("%f", "%g")));
    run_with(&["merge", text_of(&a), text_of(&b)], b"")
        .expect(1, &format!("error: {}:1: 'target aarch64' contradicts", text_of(&b)));
}
