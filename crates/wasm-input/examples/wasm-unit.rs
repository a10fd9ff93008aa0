//! Makes a unit for `clif-merge` of a WebAssembly module or component, as a directory: the IR of its functions as
//! Wasmtime writes it for the processor at hand, and lists of the functions that are reachable from outside.
//!
//! ```sh
//! cargo run -p wasm-input --example wasm-unit -- MODULE.wasm UNIT
//! clif-merge report --linkage local --addresses insignificant \
//!     --export-file UNIT/exported.txt --externally-called-file UNIT/externally-called.txt UNIT
//! ```
//!
//! `clif-merge report MODULE.wasm` needs no such directory, and takes the IR for the baseline of the target. This is for
//! other tools, and for figures of a unit with other options than those of its module: all functions local, for example.

use std::path::Path;
use std::process::ExitCode;
use wasm_input::{Function, Options, Reach, translate};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [module, directory] = &arguments[..] else {
        eprintln!("usage: wasm-unit MODULE.wasm DIRECTORY");
        return ExitCode::from(2);
    };
    match make_unit(Path::new(module), Path::new(directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn make_unit(module: &Path, directory: &Path) -> anyhow::Result<()> {
    use anyhow::Context as _;
    let wasm =
        std::fs::read(module).with_context(|| format!("cannot read {}", module.display()))?;
    let scratch = tempfile::tempdir().context("cannot make a temporary directory")?;
    let options = Options { target: None, parallel: true };
    let functions =
        translate(&wasm, options, scratch.path()).with_context(|| module.display().to_string())?;

    let cannot_write = || format!("cannot write to {}", directory.display());
    std::fs::create_dir_all(directory).with_context(cannot_write)?;
    let write = |file: &str, text: &str| {
        std::fs::write(directory.join(file), text).with_context(cannot_write)
    };
    for Function { file, text, .. } in &functions {
        write(file, text)?;
    }
    let list = |heading: &str, reach: Reach| {
        let functions = functions.iter().filter(|function| function.reach == reach);
        let names: String = functions.map(|function| function.name.clone() + "\n").collect();
        format!("# {heading}\n{names}")
    };
    write("exported.txt", &list("Exports of the modules.", Reach::Exported))?;
    let called =
        "Functions in tables and other references, start functions, and those of Wasmtime's own.";
    write("externally-called.txt", &list(called, Reach::Called))
}
