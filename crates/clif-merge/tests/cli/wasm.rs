//! WebAssembly in place of CLIF: every command takes modules and components, and says what is wrong
//! with others.
//!
//! Translation, and which functions are reachable, are tested in `crates/wasm-input`.

use crate::program::{read, run, run_with, temporary, text_of, write};
use saphyr::{LoadableYamlNode as _, Yaml};
use std::path::Path;
use std::process::Command;

/// Three pairs of equal functions: local ones, one of which is exported, and one of which is in a
/// table.
const MODULE: &str = r#"(module
    (import "env" "log" (func $log (param i32)))
    (memory 1)
    (table 1 funcref)
    (elem (i32.const 0) $table2)
    (func $local1 (param i32) (result i32)
        (i32.store (i32.const 4) (i32.mul (local.get 0) (i32.const 77)))
        (i32.rotl (i32.load (local.get 0)) (i32.const 3)))
    (func $local2 (param i32) (result i32)
        (i32.store (i32.const 4) (i32.mul (local.get 0) (i32.const 77)))
        (i32.rotl (i32.load (local.get 0)) (i32.const 3)))
    (func $export1 (param i32) (i32.store (local.get 0) (i32.load offset=24 (local.get 0))))
    (func $export2 (export "export2") (param i32) (i32.store (local.get 0) (i32.load offset=24 (local.get 0))))
    (func $table1 (param i32) (i32.store (local.get 0) (i32.load offset=48 (local.get 0))))
    (func $table2 (param i32) (i32.store (local.get 0) (i32.load offset=48 (local.get 0))))
    (func (export "run") (param i32)
        (call $log (i32.add (call $local1 (local.get 0)) (call $local2 (i32.const 1))))
        (call $export1 (local.get 0)) (call $table1 (local.get 0))))"#;

fn binary(text: &str) -> Vec<u8> {
    wasm_input::from_text(text, Path::new("t.wat")).expect("well-formed text")
}

/// `merge -D`, the merged unit, and the dispositions of functions by their names.
fn merged(arguments: &[&str], wasm: &[u8]) -> (String, Vec<(String, String)>) {
    let run =
        run_with(&[&["merge", "--verify", "-D", "-"], arguments].concat(), wasm).expect(0, "");
    let rows = run.stderr.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next().filter(|name| name.starts_with("u0:"))?;
        Some((name.to_owned(), words.next()?.to_owned()))
    });
    (run.text().to_owned(), rows.collect())
}

fn disposition<'a>(rows: &'a [(String, String)], function: &str) -> &'a str {
    &rows.iter().find(|(name, _)| name == function).expect("a function").1
}

#[test]
fn what_a_module_exports_and_has_in_tables_keeps_its_symbol() {
    let (text, rows) = merged(&[], &binary(MODULE));
    for (pair, kept) in [(["u0:0", "u0:1"], 1), (["u0:2", "u0:3"], 1), (["u0:4", "u0:5"], 1)] {
        let pair = pair.map(|name| disposition(&rows, name));
        assert_eq!(pair.iter().filter(|&&found| found == "keep").count(), kept, "{rows:?}");
        assert!(pair.contains(&"redirect"), "the local one is not needed: {rows:?}");
    }
    for (name, defined) in [("u0:3", true), ("u0:5", true), ("u0:2", false), ("u0:4", false)] {
        assert_eq!(text.contains(&format!("\nfunction {name}(")), defined, "{name}\n{text}");
    }
    assert!(text.contains(";@ addresses=insignificant\nfunction u0:3("), "exported\n{text}");
    let called = ";@ linkage=local addresses=insignificant externally-called\nfunction u0:5(";
    assert!(text.contains(called), "{text}");
}

#[test]
fn options_say_what_is_reachable_in_addition() {
    let wasm = binary(MODULE);
    let (_, rows) = merged(&["--export", "u0:2"], &wasm);
    assert_ne!(disposition(&rows, "u0:2"), "redirect");
    let (_, rows) = merged(&["--externally-called", "u0:4"], &wasm);
    assert_ne!(disposition(&rows, "u0:4"), "redirect");
    // A function of a library keeps its symbol without an export of the module.
    let (text, _) = merged(&["--linkage", "hidden"], &wasm);
    assert!(
        text.contains(";@ linkage=hidden addresses=insignificant thunk=u0:3\nfunction u0:2("),
        "{text}"
    );
    let (text, _) = merged(&["--addresses", "significant"], &wasm);
    assert!(text.contains(">:\nfunction u0:3(") && !text.contains("insignificant"), "{text}");
    run_with(&["merge", "-", "--export", "u0:99"], &wasm).expect(1, "matches no function");
}

#[test]
fn every_command_takes_modules_from_files_and_from_standard_input() {
    let directory = temporary();
    let (wasm, wat) = (directory.path().join("app.wasm"), directory.path().join("app.wat"));
    write(&wasm, binary(MODULE));
    write(&wat, MODULE);
    let object = directory.path().join("app.o");
    let summary = directory.path().join("app.summary");
    for arguments in [
        &["merge", "IN"][..],
        &["compile", "IN", "-o", text_of(&object)],
        &["compile", "IN", "--target", "aarch64", "-o", text_of(&object)],
        &["summarize", "IN", "-o", text_of(&summary)],
        &["why", "IN", "u0:0", "u0:1"],
        &["why", "IN", "u0:0"],
        &["report", "--format", "json", "--target", "aarch64", "IN"],
    ] {
        let with = |path: &str, stdin: &[u8]| {
            let arguments: Vec<&str> =
                arguments.iter().map(|&word| if word == "IN" { path } else { word }).collect();
            let run = run_with(&arguments, stdin).expect(0, "");
            let written = [&object, &summary].map(|path| std::fs::read(path).unwrap_or_default());
            let text = run.text().replace(path, "IN").replace("<stdin>", "IN");
            let text = text.lines().filter(|line| !times(line)).collect::<Vec<_>>().join("\n");
            (text, written)
        };
        let from_file = with(text_of(&wasm), b"");
        assert_eq!(with(text_of(&wat), b""), from_file, "{arguments:?}");
        assert_eq!(with("-", &binary(MODULE)).1, from_file.1, "{arguments:?}");
    }
    assert!(std::fs::read(object).unwrap().len() > 100);
}

/// Whether a line of a report in JSON says how long something took.
fn times(line: &str) -> bool {
    ["read", "walk", "pass", "compile_before", "compile_after"]
        .iter()
        .any(|name| line.trim_start().starts_with(&format!("\"{name}\":")))
}

#[test]
fn a_report_of_a_module_needs_no_options() {
    let directory = temporary();
    let module = directory.path().join("app.wasm");
    write(&module, binary(MODULE));
    let report = run(&["report", text_of(&module)]).expect(0, "");
    assert!(report.text().contains("x86-64 code saved"), "{}", report.text());
    assert!(!report.text().contains("not compiled"), "{}", report.text());
}

#[test]
fn modules_of_a_component_are_one_unit() {
    let module = r#"(func (export "f") (param i32) (result i32) (i32.mul (local.get 0) (i32.const 77)))
        (func $g (param i32) (result i32) (i32.rotl (i32.mul (local.get 0) (i32.const 9)) (local.get 0)))
        (func (export "h") (result i32) (call $g (i32.const 3)))"#;
    let text = format!(
        r#"(component (core module $a {module})
            (core module $b (import "a" "f" (func (param i32) (result i32))) {module})
            (core instance $a (instantiate $a))
            (core instance $b (instantiate $b (with "a" (instance $a))))
            (func (export "h") (result u32) (canon lift (core func $b "h"))))"#
    );
    let merged = run_with(&["merge", "--verify", "-D", "-"], &binary(&text)).expect(0, "");
    let row =
        |name: &str| merged.stderr.lines().find(|line| line.starts_with(name)).expect("a row");
    assert!(
        row("u1:1 ").contains("redirect") || row("u0:1 ").contains("redirect"),
        "{}",
        merged.stderr
    );
    assert!(!row("u0:0 ").contains("redirect") && !row("u1:0 ").contains("redirect"));
    run_with(&["report", "-"], &binary(&text)).expect(0, "");
}

/// Features that Wasmtime enables by default, and stable ones in addition.
#[test]
fn every_stable_proposal_is_read() {
    for (proposal, text) in [
        ("multi-value", "(func (export \"f\") (result i32 i64 f32 f64 i32 i64 i32 i64)
            i32.const 1 i64.const 2 f32.const 3 f64.const 4 i32.const 5 i64.const 6 i32.const 7 i64.const 8)"),
        ("rounding", "(func (export \"f\") (param f64) (result f64) (f64.nearest (f64.floor (local.get 0))))"),
        ("saturating-conversions", "(func (export \"f\") (param f64) (result i32) (i32.trunc_sat_f64_u (local.get 0)))"),
        ("bulk-memory", "(memory 1) (func (export \"f\") (memory.fill (i32.const 0) (i32.const 1) (i32.const 2)))"),
        ("simd", "(func (export \"f\") (param v128) (result v128)
            (i8x16.shuffle 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 31 (local.get 0) (f32x4.ceil (local.get 0))))"),
        ("relaxed-simd", "(func (export \"f\") (param v128) (result v128)
            (f32x4.relaxed_madd (local.get 0) (local.get 0) (local.get 0)))"),
        ("threads", "(memory 1 1 shared) (func (export \"f\") (result i32)
            (i32.atomic.rmw.add (i32.const 0) (i32.const 1)))"),
        ("multi-memory", "(memory 1) (memory $m 1) (func (export \"f\") (i32.store $m (i32.const 0) (i32.const 1)))"),
        ("memory64", "(memory i64 1) (func (export \"f\") (i32.store (i64.const 0) (i32.const 1)))"),
        ("tail-call", "(func $g) (func (export \"f\") (return_call $g))"),
        ("extended-const", "(global i32 (i32.add (i32.const 1) (i32.const 2))) (func (export \"f\"))"),
        ("function-references", "(type $t (func)) (func (export \"f\") (param (ref $t)) (call_ref $t (local.get 0)))"),
        ("gc", "(type $s (struct (field (mut i32)) (field (mut anyref)))) (func (export \"f\") (result (ref $s))
            (struct.new $s (i32.const 1) (ref.i31 (i32.const 7))))"),
        ("exceptions", "(tag $e (param i32)) (func (throw $e (i32.const 1))) (func (export \"f\") (result i32)
            (block $h (result i32) (try_table (catch $e $h) (call 0)) (i32.const 5)))"),
        ("wide-arithmetic", "(func (export \"f\") (param i64) (result i64 i64)
            (i64.mul_wide_u (local.get 0) (local.get 0)))"),
        ("custom-page-sizes", "(memory 1 (pagesize 1)) (func (export \"f\") (i32.store8 (i32.const 0) (i32.const 1)))"),
    ] {
        let wasm = binary(&format!("(module {text})"));
        run_with(&["merge", "--verify", "-"], &wasm).expect(0, "");
        let report = run_with(&["report", "-"], &wasm).expect(0, "");
        assert!(!report.text().contains("not compiled"), "{proposal}: {}", report.text());
    }
}

#[test]
fn what_is_not_a_module_is_refused_with_its_name_and_offset() {
    let directory = temporary();
    let module = directory.path().join("app.wasm");
    let object = directory.path().join("app.o");
    for (bytes, message) in [
        (&b"\0asmgarbage"[..], "(at offset 0x4)"),
        (b"\0asm", "(at offset 0x4)"),
        (b"\0asm\x01\0\0\0\xff", "(at offset 0x8)"),
        (b"\0asm\x01\0\0\0", "no functions"),
        (&binary("(module (func (result i32)))"), "at offset 24: type mismatch"),
        (
            &binary("(module (func try catch_all end))"),
            "legacy_exceptions feature required for try instruction; there is no translation of exceptions of the first form: 'wasm-opt ",
        ),
    ] {
        write(&module, bytes);
        for arguments in [
            &["merge", text_of(&module)][..],
            &["report", text_of(&module)],
            &["compile", text_of(&module), "-o", text_of(&object)],
        ] {
            let run = run(arguments).expect(1, message);
            assert!(
                run.stderr.starts_with(&format!("error: {}: ", text_of(&module))),
                "{}",
                run.stderr
            );
            assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
            assert!(run.stdout.is_empty() && !object.exists());
        }
    }
    let wat = directory.path().join("app.wat");
    write(&wat, "(module\n  (fun))");
    run(&["report", text_of(&wat)]).expect(1, "app.wat:2:4");
    // A text that begins otherwise stays one.
    run_with(&["merge", "-"], b"\0as").expect(1, "");
}

#[test]
fn truncated_modules_are_errors_at_every_length() {
    // Its last section is that of code, so that no shorter one is a module.
    let wasm = binary("(module (func (export \"a\") (param i32)) (func (call 0 (i32.const 1))))");
    for length in 4..wasm.len() {
        let run = run_with(&["merge", "-"], &wasm[..length]).expect(1, "error: <stdin>: ");
        assert!(run.stdout.is_empty());
    }
}

#[test]
fn two_modules_are_not_one_unit() {
    let directory = temporary();
    for name in ["a.wasm", "b.wasm"] {
        write(directory.path().join(name), binary(MODULE));
    }
    let [a, b] = ["a.wasm", "b.wasm"].map(|name| directory.path().join(name));
    run(&["report", text_of(&a), text_of(&b)]).expect(1, "b.wasm: the functions of two modules");
}

#[test]
fn a_module_and_texts_are_one_unit() {
    let directory = temporary();
    let text = directory.path().join("more.clif");
    write(&text, "target aarch64\n\nfunction %f() {\nblock0:\n    return\n}\n");
    let merged = run_with(&["merge", "-", text_of(&text)], &binary(MODULE)).expect(0, "");
    assert!(merged.text().contains("\nfunction %f() fast {"), "{}", merged.text());
}

/// The first table of figures in docs/units.md is of such units.
#[test]
fn a_unit_that_is_written_as_text_is_the_unit_of_the_module() {
    let directory = temporary();
    let [module, text] = ["app.wasm", "app.clif"].map(|name| directory.path().join(name));
    write(&module, binary(MODULE));
    run(&["merge", "--merge-limit", "0", text_of(&module), "-o", text_of(&text)]).expect(0, "");
    assert!(read(&text).contains("function u0:0("));
    let [a, b] = [&module, &text].map(|path| run(&["merge", text_of(path)]).expect(0, ""));
    assert_eq!(a.text(), b.text());
}

/// An example that does not run would be worse than none.
#[test]
fn the_workflow_of_the_example_compares_and_fails_if_merges_are_lost() {
    let workflow = read(testkit::root().join("examples/github-action/merging.yml"));
    let text = |yaml: &Yaml<'_>, key: &str| yaml.as_mapping_get(key)?.as_str().map(str::to_owned);
    let workflow = Yaml::load_from_str(&workflow).expect("well-formed YAML").swap_remove(0);
    let jobs = workflow.as_mapping_get("jobs").unwrap();
    let job = jobs.as_mapping_get("compare").unwrap();
    let steps = job.as_mapping_get("steps").unwrap().as_sequence().unwrap();
    let step = steps.iter().find(|step| text(step, "name").as_deref() == Some("Compare")).unwrap();
    let script = text(step, "run").unwrap();

    let unit = |opcode: &str| {
        let function = |name: &str, opcode: &str| {
            format!(
                "(func (export \"{name}\") (param i32) (result i32) \
                 (i32.rem_u (i32.mul ({opcode} (local.get 0) (i32.const 70000)) (local.get 0)) \
                 (i32.sub (local.get 0) (i32.const 77777))))"
            )
        };
        binary(&format!("(module {} {})", function("f", "i32.add"), function("g", opcode)))
    };
    let run = |before: &str, after: &str| {
        let directory = temporary();
        write(directory.path().join("before.wasm"), unit(before));
        write(directory.path().join("after.wasm"), unit(after));
        let summary = directory.path().join("summary");
        let programs = Path::new(env!("CARGO_BIN_EXE_clif-merge")).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let status = Command::new("bash")
            .args(["--noprofile", "--norc", "-eo", "pipefail", "-c", &script])
            .env("RUNNER_TEMP", directory.path())
            .env("GITHUB_STEP_SUMMARY", &summary)
            .env("PATH", format!("{}:{path}", programs.display()))
            .status()
            .expect("bash starts");
        (status.code(), read(&summary))
    };
    let (code, summary) = run("i32.add", "i32.add");
    assert_eq!(code, Some(0), "{summary}");
    let (code, summary) = run("i32.add", "i32.rotl");
    assert_eq!(code, Some(3), "{summary}");
    assert!(summary.contains("merges that disappeared"), "{summary}");
}

/// A runtime uses a module's functions so: it has the addresses of those that are exported or in a
/// table, calls them as WebAssembly is called, and has no others.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
const HOST: &str = r#"
#include <stdint.h>
#include <stdio.h>
int32_t call_tail(const void *function, void *vmctx, int32_t x);
__asm__("call_tail:\n push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n sub $8, %rsp\n"
        " mov %rdi, %rax\n mov %rsi, %rdi\n call *%rax\n"
        " add $8, %rsp\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");
extern const char f0[] __asm__("\"u0:0\""), f1[] __asm__("\"u0:1\""), f2[] __asm__("\"u0:2\""), f3[] __asm__("\"u0:3\"");
int main(void) {
    static uint64_t store[512], vmctx[512];
    vmctx[1] = (uint64_t)store;
    const char *functions[] = {f0, f1, f2, f3};
    for (int i = 0; i < 4; i++)
        for (int32_t x = 1; x < 4; x++)
            printf("%d ", call_tail(functions[i], vmctx, x));
    return 0;
}
"#;

/// A function that only a table has must not lose its symbol: nothing in the unit calls it, and the
/// runtime does.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[test]
fn exported_functions_and_those_in_tables_do_what_they_did_for_a_runtime() {
    let body = |add: u32| {
        format!(
            "(param i32) (result i32) (i32.rem_u (i32.mul (i32.add (local.get 0) (i32.const {add})) \
             (i32.const 7919)) (i32.sub (i32.const 77777) (local.get 0)))"
        )
    };
    let module = format!(
        "(module (table 2 funcref) (elem (i32.const 0) $t $u)
            (func (export \"e\") {}) (func (export \"f\") {}) (func $t {}) (func $u {}))",
        body(5),
        body(5),
        body(6),
        body(6),
    );
    let expected: Vec<String> = [5, 5, 6, 6]
        .iter()
        .flat_map(|add: &i32| (1..4).map(move |x| (x + add) * 7919 % (77777 - x)))
        .map(|result| result.to_string())
        .collect();
    let directory = temporary();
    let path = |name: &str| directory.path().join(name);
    write(path("host.c"), HOST);
    write(path("app.wasm"), binary(&module));
    for more in [&["--no-merge"][..], &[], &["--similar", "size"]] {
        let (wasm, object) = (path("app.wasm"), path("app.o"));
        let compile = ["compile", text_of(&wasm), "-o", text_of(&object), "--target", "x86_64"];
        let merged = run(&[&compile, more].concat()).expect(0, "");
        let is_merged = more != ["--no-merge"];
        let merges = merged.stderr.contains("merged ") && !merged.stderr.contains("merged 0 ");
        assert_eq!(merges, is_merged, "{}", merged.stderr);
        // A runtime finds functions in the object that no other object does.
        let globalize = ["--globalize-symbol=u0:2", "--globalize-symbol=u0:3"];
        let changed = Command::new("objcopy").args(globalize).arg(&object).status();
        assert!(changed.expect("objcopy starts").success());
        let program = path("program");
        let linked = Command::new("cc")
            .args(["-no-pie", "-o", text_of(&program), text_of(&path("host.c")), text_of(&object)])
            .output()
            .expect("cc starts");
        assert!(linked.status.success(), "{more:?}: {}", String::from_utf8_lossy(&linked.stderr));
        let output = Command::new(&program).output().expect("the program starts");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(printed.split_whitespace().collect::<Vec<_>>(), expected, "{more:?}");
    }
}
