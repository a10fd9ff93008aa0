//! The texts of functions are those that Wasmtime writes into files.
//!
//! This is a program of its own, and one test, because nothing else may be compiled during a
//! translation.

use std::path::Path;
use wasm_input::{Options, from_text, translate};

const COMPONENT: &str = r#"(component
    (core module $a (memory 1) (func $f (export "f") (result i32) (block (br 0)) i32.const 1) (func $g (param i32)))
    (core module $b
        (import "a" "f" (func $f (result i32)))
        (global $g (mut i32) (i32.const 0))
        (func $h (export "h") (result i32) (global.set $g (call $f)) (global.get $g))
        (func $i (param i32) (result i32)
            (loop $l (br_if $l (local.tee 0 (i32.sub (local.get 0) (i32.const 1))))) (local.get 0))
        (elem declare func $i))
    (core instance $a (instantiate $a))
    (core instance $b (instantiate $b (with "a" (instance $a))))
    (func (export "h") (result u32) (canon lift (core func $b "h"))))"#;

const MODULE: &str = r#"(module (memory 1)
    (func $f (export "a") (param i32) (result i32) (memory.grow (local.get 0)))
    (func $g (result f64) (local f64) (drop (call $f (i32.const 1))) (local.get 0)))"#;

#[test]
fn texts_are_those_of_wasmtime() {
    let target = "x86_64-unknown-linux-gnu";
    for text in [COMPONENT, MODULE] {
        let wasm = from_text(text, Path::new("t.wat")).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mut config = wasmtime::Config::new();
        config.cranelift_opt_level(wasmtime::OptLevel::None).emit_clif(directory.path());
        config.target(target).unwrap();
        let engine = wasmtime::Engine::new(&config).unwrap();
        match text == COMPONENT {
            true => engine.precompile_component(&wasm).unwrap(),
            false => engine.precompile_module(&wasm).unwrap(),
        };
        let mut files: Vec<(String, String)> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
            .map(|(name, path)| (name, std::fs::read_to_string(path).unwrap()))
            .collect();
        files.sort();
        let all = translate(&wasm, Options { target: Some(target), parallel: true }).unwrap();
        assert_eq!(all.len(), files.len());
        // The comment may have a name that Wasmtime's has not.
        let line = |text: &str| text.find('\n').expect("several lines");
        for (function, (file, text)) in all.into_iter().zip(&files) {
            assert_eq!(function.file, *file);
            let [ours, theirs] = [&function.text, text].map(|text| text.split_at(line(text)));
            assert_eq!(ours.1, theirs.1, "{file}");
            assert!(ours.0.starts_with(theirs.0.trim_end_matches(">:")), "{file}");
        }
    }
}
