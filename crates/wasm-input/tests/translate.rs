//! Modules and components by hand: what is translated, under which names, and what is known of it.

use std::collections::BTreeMap;
use std::path::Path;
use wasm_input::{Function, Options, Reach, Segment, from_text, segments, translate};

const X86_64: Options<'_> = Options { target: Some("x86_64-unknown-linux-gnu"), parallel: false };

fn binary(text: &str) -> Vec<u8> {
    from_text(text, Path::new("t.wat")).expect("well-formed text")
}

fn translated(wasm: &[u8], options: Options<'_>) -> Result<Vec<Function>, String> {
    translate(wasm, options).map_err(|error| error.to_string())
}

fn functions(text: &str) -> Vec<Function> {
    translated(&binary(text), X86_64).expect("a valid module")
}

/// How the functions that modules define are reached, by their names. All others must be called.
fn reach(text: &str) -> BTreeMap<String, Reach> {
    let mut all = BTreeMap::new();
    for Function { name, reach, .. } in functions(text) {
        let namespace: u32 = name[1..].split_once(':').unwrap().0.parse().unwrap();
        if namespace < 1 << 28 {
            all.insert(name, reach);
        } else {
            assert_eq!(reach, Reach::Called, "{name}");
        }
    }
    all
}

#[track_caller]
fn check(text: &str, expected: &[(&str, Reach)]) {
    let expected: BTreeMap<String, Reach> =
        expected.iter().map(|&(name, reach)| (name.to_owned(), reach)).collect();
    assert_eq!(reach(text), expected);
}

#[test]
fn exports_are_exported_and_others_are_local() {
    check(
        r#"(module (func) (func (export "a") (export "b")) (func) (export "c" (func 2)))"#,
        &[("u0:0", Reach::Local), ("u0:1", Reach::Exported), ("u0:2", Reach::Exported)],
    );
}

#[test]
fn an_export_that_is_in_a_table_is_exported() {
    check(
        r#"(module (table 1 funcref) (elem (i32.const 0) func 0) (func (export "a")))"#,
        &[("u0:0", Reach::Exported)],
    );
}

#[test]
fn imports_have_no_numbers() {
    check(
        r#"(module (import "m" "f" (func)) (import "m" "g" (global i32)) (import "m" "h" (func))
            (export "again" (func 0)) (func) (func (export "a")))"#,
        &[("u0:0", Reach::Local), ("u0:1", Reach::Exported)],
    );
}

#[test]
fn the_start_function_is_called() {
    check("(module (func) (func) (start 1))", &[("u0:0", Reach::Local), ("u0:1", Reach::Called)]);
}

#[test]
fn table_elements_are_called_however_they_are_written() {
    for (elements, expected) in [
        ("(table 1 funcref) (elem (i32.const 0) func 1)", Reach::InTable),
        ("(table 1 funcref) (elem (i32.const 0) funcref (ref.func 1))", Reach::InTable),
        ("(elem func 1)", Reach::InTable),
        ("(elem funcref (ref.func 1))", Reach::InTable),
        ("(elem func 1) (start 1)", Reach::Called),
        ("(elem declare func 1)", Reach::Called),
        ("(type $t (func)) (table 1 (ref $t) (ref.func 1))", Reach::Called),
        ("(global funcref (ref.func 1))", Reach::Called),
        ("(elem declare func 1) (func $a (drop (ref.func 1)))", Reach::Called),
    ] {
        let all = reach(&format!("(module (func) (func) {elements})"));
        assert_eq!((all["u0:0"], all["u0:1"]), (Reach::Local, expected), "{elements}");
    }
}

#[test]
fn segments_hold_bytes_and_functions_by_their_names() {
    let functions = |names: &[Option<&str>]| {
        Segment::Functions(names.iter().map(|name| name.map(str::to_owned)).collect())
    };
    let module = binary(
        r#"(module (import "m" "f" (func)) (memory 1) (table 4 funcref)
            (func) (func)
            (elem (i32.const 0) funcref (ref.func 2) (ref.null func) (ref.func 0))
            (elem declare func 1)
            (data (i32.const 8) "abc") (data "\00"))"#,
    );
    let expected = [
        functions(&[Some("u0:1"), None, None]),
        Segment::Bytes(b"abc".to_vec()),
        Segment::Bytes(vec![0]),
    ];
    assert_eq!(segments(&module).expect("is a module"), expected);
    let all = segments(&binary(
        "(component (core module (func)) (core module (func) (func) (elem func 1)))",
    ));
    assert_eq!(all.expect("is a component"), [functions(&[Some("u1:1")])]);
    assert!(segments(b"\0asm").is_err());
}

/// Two core modules, of which the second imports a function of the first, and a component within.
const COMPONENT: &str = r#"(component
    (core module $a (func $f (export "f") (result i32) i32.const 1) (func $g (param i32)))
    (core module $b
        (import "a" "f" (func $f (result i32)))
        (func $h (export "h") (result i32) call $f)
        (func $i)
        (elem declare func $i))
    (core instance $a (instantiate $a))
    (core instance $b (instantiate $b (with "a" (instance $a))))
    (func (export "h") (result u32) (canon lift (core func $b "h")))
    (component (core module (func) (func (export "last")))))"#;

#[test]
fn modules_of_a_component_are_apart() {
    check(
        COMPONENT,
        &[
            ("u0:0", Reach::Exported),
            ("u0:1", Reach::Local),
            ("u1:0", Reach::Exported),
            ("u1:1", Reach::Called),
            ("u2:0", Reach::Local),
            ("u2:1", Reach::Exported),
        ],
    );
}

/// Strings that go from one component to another pass through a module that Wasmtime makes.
#[test]
fn modules_that_wasmtime_makes_are_called() {
    let all = reach(
        r#"(component
            (component $a
                (core module $m
                    (memory (export "memory") 1)
                    (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 8)
                    (func (export "f") (param i32 i32)))
                (core instance $i (instantiate $m))
                (func (export "f") (param "s" string) (canon lift (core func $i "f")
                    (memory $i "memory") (realloc (func $i "realloc")))))
            (component $b
                (import "f" (func $f (param "s" string)))
                (core module $libc
                    (memory (export "memory") 1)
                    (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 8))
                (core instance $libc (instantiate $libc))
                (core func $g (canon lower (func $f)
                    (memory $libc "memory") (realloc (func $libc "realloc"))))
                (core module $m (import "" "f" (func $f (param i32 i32)))
                    (func (export "run") i32.const 0 i32.const 3 call $f))
                (core instance $i (instantiate $m
                    (with "" (instance (export "f" (func $g))))))
                (func (export "run") (canon lift (core func $i "run"))))
            (instance $a (instantiate $a))
            (instance $b (instantiate $b (with "f" (func $a "f"))))
            (export "run" (func $b "run")))"#,
    );
    assert_eq!(all["u0:1"], Reach::Exported);
    let made: Vec<_> = all.iter().filter(|(name, _)| name.starts_with("u3:")).collect();
    assert!(!made.is_empty(), "{all:?}");
    assert!(made.iter().all(|(_, reach)| **reach == Reach::Called), "{all:?}");
}

#[test]
fn comments_have_the_names_of_functions() {
    let long = "x".repeat(120);
    for (name, printed) in [
        ("plain", "plain"),
        ("core::fmt::write::h0123", "core::fmt::write::h0123"),
        ("~lib/rt/free", "~lib/rt/free"),
        ("../../../up", "../../../up"),
        (r"a\\b", r"a\b"),
        ("Vec<u8>?", "Vec<u8>?"),
        ("größe", "größe"),
        (r"a\n;@ pinned", "a?;@ pinned"),
        ("end.rs", "end.rs"),
        (&long, &long),
        (&format!("/{long}"), &format!("/{long}")),
    ] {
        let text = format!(r#"(module (import "" "" (func)) (func) (func (@name "{name}")))"#);
        let all = functions(&text);
        let function = all.iter().find(|function| function.name == "u0:1").unwrap();
        let (first, rest) = function.text.split_once('\n').unwrap();
        let symbol = format!("wasm[0]::function[2]::{printed}");
        assert_eq!(first, format!(";; Intermediate Representation of function <{symbol}>:"));
        assert!(rest.starts_with("function u0:1("), "{rest}");
    }
}

#[test]
fn functions_without_names_have_those_of_their_exports() {
    let text = r#"(module (import "" "" (func))
        (func) (func (export "f/1") (export "g")) (func $named (export "h")))"#;
    let expected =
        ["wasm[0]::function[1]", "wasm[0]::function[2]::f/1", "wasm[0]::function[3]::named"];
    let all = functions(text);
    for (at, symbol) in expected.into_iter().enumerate() {
        let function = all.iter().find(|function| function.name == format!("u0:{at}")).unwrap();
        let comment = format!(";; Intermediate Representation of function <{symbol}>:\n");
        assert!(function.text.starts_with(&comment), "{}", function.text);
    }
}

#[test]
fn the_result_depends_on_the_target_only() {
    let wasm = binary(COMPONENT);
    let first = translated(&wasm, X86_64).unwrap();
    assert_eq!(translated(&wasm, Options { parallel: true, ..X86_64 }).unwrap(), first);
    for target in ["aarch64-unknown-linux-gnu", "aarch64-apple-darwin", "x86_64-pc-windows-msvc"] {
        let other = translated(&wasm, Options { target: Some(target), ..X86_64 }).unwrap();
        let names =
            |all: &[Function]| all.iter().map(|f| (f.name.clone(), f.reach)).collect::<Vec<_>>();
        assert_eq!(names(&other), names(&first), "{target}");
    }
    assert!(translated(&wasm, Options { target: None, ..X86_64 }).is_ok());
    assert!(translated(&wasm, Options { target: Some("z80"), ..X86_64 }).is_err());
}

#[test]
fn truncated_bytes_are_errors() {
    // Its last section is that of code, so that no shorter one is a module that defines functions.
    let module = binary("(module (func (export \"a\") (param i32)) (func (call 0 (i32.const 1))))");
    for length in 0..module.len() {
        let error = translated(&module[..length], X86_64).unwrap_err();
        assert!(!error.is_empty() && !error.contains('\n'), "{error}");
    }
    // The last sections of a component are optional.
    let component = binary(COMPONENT);
    let errors = (0..component.len())
        .filter(|&length| translated(&component[..length], X86_64).is_err())
        .count();
    assert!(errors > component.len() - 10, "{errors} of {}", component.len());
}

#[test]
fn bytes_that_are_changed_do_not_panic() {
    let wasm = binary(
        r#"(module (import "a" "b" (func $f (param i32))) (table 1 funcref) (elem (i32.const 0) 1)
            (func $g/h (export "a") (param i32)) (func (call $g/h (i32.const 1))) (start 2))"#,
    );
    let mut refused = 0;
    for at in 8..wasm.len() {
        for flip in [1, 0x80, 0xff] {
            let mut wasm = wasm.clone();
            wasm[at] ^= flip;
            refused += usize::from(translated(&wasm, X86_64).is_err());
        }
    }
    assert!(refused > 0);
}

#[test]
fn errors_say_where() {
    let mut wasm = binary("(module)");
    wasm.extend(b"garbage");
    let error = translated(&wasm, X86_64).unwrap_err();
    assert!(error.contains("(at offset 0x"), "{error}");
    let invalid = binary("(module (func (result i32) i64.const 1))");
    let error = translated(&invalid, X86_64).unwrap_err();
    assert!(error.contains("type mismatch") && error.contains("at offset "), "{error}");
    let error = from_text("(module\n  (fun))", Path::new("a.wat")).unwrap_err().to_string();
    assert!(error.contains("a.wat:2:4"), "{error}");
}
