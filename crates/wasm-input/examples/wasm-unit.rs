//! Makes a unit for `clif-merge` of a WebAssembly module or component, as a directory: the IR of its functions as
//! Wasmtime writes it for the processor at hand, and lists of the functions that are reachable from outside.
//!
//! ```sh
//! cargo run -p wasm-input --example wasm-unit -- MODULE.wasm UNIT [DATA.clif]
//! clif-merge report --linkage local --addresses insignificant \
//!     --export-file UNIT/exported.txt --externally-called-file UNIT/externally-called.txt UNIT
//! ```
//!
//! With a third argument, it writes there the segments of the module as data objects, the tables of functions among them:
//! `UNIT` and `DATA.clif` together are a unit of a compiler ahead of time that lays tables out as read-only data. Then
//! functions that are in tables alone are not in the list of those that are called from outside.
//!
//! `clif-merge report MODULE.wasm` needs no such directory, and takes the IR for the baseline of the target. This is for
//! other tools, and for figures of a unit with other options than those of its module: all functions local, for example.

use std::path::Path;
use std::process::ExitCode;
use wasm_input::{Function, Options, Reach, Segment, segments, translate};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (module, directory, data) = match &arguments[..] {
        [module, directory] => (module, directory, None),
        [module, directory, data] => (module, directory, Some(Path::new(data))),
        _ => {
            eprintln!("usage: wasm-unit MODULE.wasm DIRECTORY [DATA.clif]");
            return ExitCode::from(2);
        }
    };
    match make_unit(Path::new(module), Path::new(directory), data) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn make_unit(module: &Path, directory: &Path, data: Option<&Path>) -> anyhow::Result<()> {
    use anyhow::Context as _;
    let wasm =
        std::fs::read(module).with_context(|| format!("cannot read {}", module.display()))?;
    let options = Options { target: None, parallel: true };
    let functions = translate(&wasm, options).with_context(|| module.display().to_string())?;

    let cannot_write = || format!("cannot write to {}", directory.display());
    std::fs::create_dir_all(directory).with_context(cannot_write)?;
    let write = |file: &str, text: &str| {
        std::fs::write(directory.join(file), text).with_context(cannot_write)
    };
    for Function { file, text, .. } in &functions {
        write(file, text)?;
    }
    let list = |heading: &str, reaches: &[Reach]| {
        let functions = functions.iter().filter(|function| reaches.contains(&function.reach));
        let names: String = functions.map(|function| function.name.clone() + "\n").collect();
        format!("# {heading}\n{names}")
    };
    write("exported.txt", &list("Exports of the modules.", &[Reach::Exported]))?;
    let Some(data) = data else {
        let called = "Functions in tables and other references, start functions, and those of Wasmtime's own.";
        return write("externally-called.txt", &list(called, &[Reach::InTable, Reach::Called]));
    };
    let called = "Functions in references but those of tables, start functions, and those of Wasmtime's own.";
    write("externally-called.txt", &list(called, &[Reach::Called]))?;
    let text = text_of(&segments(&wasm)?);
    std::fs::write(data, text).with_context(|| format!("cannot write to {}", data.display()))
}

/// Segments as data objects of a unit's text.
fn text_of(segments: &[Segment]) -> String {
    let mut text = "; The segments of a module.\n".to_owned();
    let attributes = "linkage=local addresses=insignificant align=8";
    for (number, segment) in segments.iter().enumerate() {
        match segment {
            Segment::Functions(functions) if functions.is_empty() => continue,
            Segment::Bytes(bytes) if bytes.is_empty() => continue,
            Segment::Functions(functions) => {
                text += &format!(";@ data %elements{number} {attributes} =");
                for (at, function) in functions.iter().enumerate() {
                    text += if at > 0 && at % 16 == 0 { "\n;@ + " } else { " " };
                    text += function.as_deref().unwrap_or("zero 8");
                }
            }
            Segment::Bytes(bytes) => {
                text += &format!(";@ data %bytes{number} {attributes} =");
                for (at, line) in bytes.chunks(64).enumerate() {
                    text += if at > 0 { "\n;@ + hex " } else { " hex " };
                    text.extend(line.iter().map(|byte| format!("{byte:02x}")));
                }
            }
        }
        text.push('\n');
    }
    text
}
