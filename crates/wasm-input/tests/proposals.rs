//! Proposals that are not translated: the message for a module that needs one.

use std::path::Path;
use wasm_input::{Options, from_text, translate};

/// A component around items, with a core module whose exports can be lifted.
fn component(items: &str) -> String {
    format!(
        r#"(component
            (core module $m (memory (export "m") 1) (func (export "f"))
                (func (export "g") (param i32) (result i32) local.get 0)
                (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 8))
            (core instance $i (instantiate $m)) {items})"#
    )
}

#[track_caller]
fn check(text: &str, proposal: &str, remedy: &str) {
    let wasm = from_text(text, Path::new("t.wat")).expect("well-formed text");
    let error = translate(&wasm, Options::default()).unwrap_err().to_string();
    assert!(error.contains(&format!("no translation of {proposal}: {remedy}")), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn what_can_be_converted_is_refused_with_the_command() {
    check(
        "(module (func try catch_all end))",
        "exceptions of the first form",
        "'wasm-opt --all-features --disable-compact-imports --disable-custom-descriptors --translate-to-exnref'",
    );
    check(
        r#"(module (import "m" (item "a" (func)) (item "b" (func))) (func))"#,
        "compact imports",
        "'wasm-opt --all-features --disable-compact-imports",
    );
}

#[test]
fn what_no_tool_converts_is_refused() {
    for (module, proposal) in [
        ("(type $t (func)) (func (param (ref null (exact $t))))", "custom descriptors"),
        ("(global (shared i32) (i32.const 0)) (func)", "shared-everything threads"),
        ("(type $f (func)) (type $c (cont $f)) (func)", "stack switching"),
        ("(memory 1) (func (memory.discard (i32.const 0) (i32.const 0)))", "memory control"),
    ] {
        check(&format!("(module {module})"), proposal, "no tool converts the module");
    }
}

#[test]
fn what_only_components_have_is_refused_and_their_modules_are_not() {
    for (items, proposal) in [
        ("(core func (canon backpressure.inc))", "asynchronous components"),
        (
            r#"(func (export "f") async (canon lift (core func $i "f") async))"#,
            "asynchronous components",
        ),
        ("(core func (canon thread.index))", "asynchronous components"),
        ("(core func (canon error-context.drop))", "asynchronous components"),
        ("(type (list u8 4))", "lists of fixed lengths of components"),
        ("(type (map string u32))", "maps of components"),
        (r#"(import "v" (value $v u32)) (export "w" (value $v))"#, "values of components"),
        (r#"(import "a" (implements "a:b/c") (instance))"#, "'implements' of components"),
        (r#"(import "a:b:c/d" (instance))"#, "nested names of components"),
        (
            r#"(import "a:b/c@1" (versionsuffix ".0.0") (instance))"#,
            "version suffixes of components",
        ),
        (
            r#"(func (export "f") (canon lift (core func $i "f") gc))"#,
            "garbage collection of components",
        ),
        (
            r#"(core module $n (memory (export "m") i64 1)
                (func (export "realloc") (param i64 i64 i64 i64) (result i64) i64.const 8)
                (func (export "f") (param i64 i64)))
            (core instance $j (instantiate $n))
            (func (export "f") (param "s" string) (canon lift (core func $j "f")
                (memory $j "m") (realloc (func $j "realloc"))))"#,
            "64-bit memories of components",
        ),
    ] {
        check(&component(items), proposal, "'wasm-tools component unbundle");
    }
}
