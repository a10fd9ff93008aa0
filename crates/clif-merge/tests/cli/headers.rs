//! `target` and `set` in front of the functions are honoured, or refused.

use crate::program::{inputs, read, run_with};

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

/// Without frame pointers, the back end for x86-64 has no tail calls.
#[test]
fn settings_of_a_unit_hold() {
    let unit = read(inputs().join("units/tail-call-no-frame-pointers.clif"));
    let compile = |unit: &str| run_with(&["compile", "-", "-o", "-"], unit.as_bytes());
    compile(&unit).expect(1, "cannot compile function %t for x86_64");
    for value in ["=true", "=1", ""] {
        let object = compile(&unit.replace("=false", value)).expect(0, "merged 0 of 1").stdout;
        assert!(object.starts_with(b"\x7fELF"), "{value}");
    }
}
