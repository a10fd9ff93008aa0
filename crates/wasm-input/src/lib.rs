//! The Cranelift IR that Wasmtime makes of a WebAssembly module or component, and which of its
//! functions are reachable from outside of them.
//!
//! [`translate`] takes the bytes of a module, of a component or of either as text, has Wasmtime
//! translate it without optimisation, and returns the text of each function with what is known of
//! it: functions are merged before they are optimised. It runs no WebAssembly, and it does *not*
//! read CLIF: that is for `clif-unit`.
//!
//! Wasmtime names a function by two numbers. Those of the first core module are `u0:0`, `u0:1` and
//! so on, without the functions that it imports; those of the second core module of a component are
//! `u1:0`, and so on. Trampolines and other functions of Wasmtime's own, which the runtime calls,
//! are in namespaces that are far larger.

mod listener;
mod names;
mod proposals;
mod reach;
mod segments;

use listener::Compiled;
use names::Names;
use reach::Modules;
pub use segments::{Segment, segments};
use std::fmt;
use std::path::Path;
use wasmtime::{Config, Engine, OptLevel, RegallocAlgorithm};

/// A function of a module, of a component or of Wasmtime's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name in the text: `u0:12`.
    pub name: String,
    /// A name for a file that holds it, the same as Wasmtime's: `wasm[0]--function[14]--name.clif`.
    pub file: String,
    /// Its CLIF. The first line is a comment with the number of the function in its module, which
    /// counts imported functions, and with its name there, if it has one.
    pub text: String,
    /// Whether code outside of all these functions reaches it.
    pub reach: Reach,
}

/// How code outside of the functions of a module or component reaches a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It does not.
    Local,
    /// By an export of a module.
    Exported,
    /// By an element of a table, and in no other way.
    InTable,
    /// By another reference, or by the runtime, as the start function and Wasmtime's own functions.
    Called,
}

/// How functions are translated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// The triple of the target, with no more than its baseline instruction set, so that the result
    /// is the same everywhere. Without one, it is the processor at hand with all that it has.
    pub target: Option<&'a str>,
    /// Whether Wasmtime works on all threads of the current `rayon` pool. The result does not
    /// depend on it.
    pub parallel: bool,
}

/// Why there is no translation, in one line unless WebAssembly as text is malformed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// The first bytes of a module and a component.
pub const MAGIC: &[u8] = b"\0asm";

/// How many functions the modules in a module or component define. Wasmtime adds some of its own.
///
/// # Errors
///
/// Bytes that are not WebAssembly.
pub fn count(wasm: &[u8]) -> Result<usize, Error> {
    Modules::of(wasm).map(|modules| modules.defined()).map_err(invalid)
}

/// Translates all functions of a module or component, in the order of their files' names.
///
/// Meanwhile, the process may compile nothing else with Wasmtime, and it must have no logger of its
/// own (see `log`); there is one translation at a time.
///
/// # Errors
///
/// Bytes that are not WebAssembly, are not valid, define no functions, or cannot be translated for
/// the target, with the place in the bytes if it is known; and a logger that was there before.
pub fn translate(wasm: &[u8], options: Options<'_>) -> Result<Vec<Function>, Error> {
    let modules = Modules::of(wasm).map_err(invalid)?;
    if modules.is_empty() {
        return Err(Error("no functions".to_owned()));
    }
    let names = Names::of(wasm).map_err(invalid)?;
    let engine = engine(options).map_err(|error| Error(format!("{error:#}")))?;
    let (translated, compiled) = listener::compiled_by(|| match modules.component {
        true => engine.precompile_component(wasm),
        false => engine.precompile_module(wasm),
    })?;
    translated.map_err(|error| refused(&format!("{error:#}"), wasm))?;

    let mut functions = Vec::with_capacity(compiled.len());
    for Compiled { symbol, text } in compiled {
        let (namespace, index) = name_in(&text)
            .ok_or_else(|| Error(format!("Cranelift has not logged the IR of {symbol}")))?;
        let name = format!("u{namespace}:{index}");
        let file = file_of(&symbol);
        let symbol = names.whole(&symbol);
        let text = format!(";; Intermediate Representation of function <{symbol}>:\n{text}");
        functions.push(Function { reach: modules.reach(namespace, index), name, file, text });
    }
    functions.sort_by(|a, b| a.file.cmp(&b.file));
    modules.check_numbers(&functions)?;
    Ok(functions)
}

/// How many functions of the translation that goes on are translated.
pub fn translated() -> usize {
    listener::count()
}

/// A module or component of its text, in WebAssembly's text format.
///
/// # Errors
///
/// Malformed text, with the line and what stands there.
pub fn from_text(text: &str, path: &Path) -> Result<Vec<u8>, Error> {
    wat::parse_str(text).map_err(|mut error| {
        error.set_path(path);
        Error(error.to_string())
    })
}

fn engine(options: Options<'_>) -> wasmtime::Result<Engine> {
    let Options { target, parallel } = options;
    let mut config = Config::new();
    // Its code is not of interest, so it is made in the fastest way.
    config.cranelift_opt_level(OptLevel::None);
    config.cranelift_regalloc_algorithm(RegallocAlgorithm::SinglePass);
    config.parallel_compilation(parallel);
    config.wasm_features(proposals::ENABLED, true);
    if let Some(target) = target {
        config.target(target)?;
    }
    Engine::new(&config)
}

/// A name that files can have on all systems for what Wasmtime calls a function.
fn file_of(symbol: &str) -> String {
    let letter = |letter: char| match letter {
        ':' => '-',
        '/' | '\\' | '<' | '>' | '"' | '|' | '?' | '*' => '_',
        other => other,
    };
    symbol.chars().map(letter).collect::<String>() + ".clif"
}

/// The numbers in `function u0:12(i64 vmctx, …`.
fn name_in(text: &str) -> Option<(u32, u32)> {
    let line = text.lines().find_map(|line| line.strip_prefix("function u"))?;
    let (namespace, rest) = line.split_once(':')?;
    let (index, _) = rest.split_once('(')?;
    Some((namespace.parse().ok()?, index.parse().ok()?))
}

/// Wasmtime's message, and a remedy if it is about a proposal.
fn refused(error: &str, wasm: &[u8]) -> Error {
    let error = one_line(error);
    match proposals::remedy(wasm) {
        Some(remedy) => Error(format!("{error}; {remedy}")),
        None => Error(error),
    }
}

/// An error of `wasmparser`, which gives the offset itself.
fn invalid(error: wasmtime::wasmparser::BinaryReaderError) -> Error {
    Error(one_line(&error.to_string()))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
