//! Writes the IR that Wasmtime makes of some programs of a WebAssembly module, with all that they
//! can reach, and the image that they start with: memory, stack pointer, table of functions. Also
//! writes the result of each program in Wasmtime, called with 1.
//!
//! ```text
//! translate MODULE.wasm UNIT PROGRAM…      # writes UNIT/*.clif and UNIT/image
//! ```
//!
//! The IR is what `Config::emit_clif` writes, without source locations, comments and indentation. A
//! function that can only be reached through the table is kept if it has the type of some call
//! through the table. This program supports what the programs in this directory need (one memory,
//! one table, one global that matters), and no more.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use wasmparser::{ElementItems, ElementKind, ExternalKind, Operator, Parser, Payload};

type Error = Box<dyn std::error::Error>;

/// The parts of a module except its code.
#[derive(Default)]
struct Module {
    /// The types of all functions.
    types: Vec<u32>,
    exports: BTreeMap<String, u32>,
    pages: u64,
    stack_pointer: i64,
    data: Vec<(i64, Vec<u8>)>,
    table: u64,
    /// The functions in the table, by their indices there.
    elements: BTreeMap<i64, u32>,
}

fn constant(expr: &wasmparser::ConstExpr<'_>) -> Result<i64, Error> {
    match expr.get_operators_reader().read()? {
        Operator::I32Const { value } => Ok(i64::from(value)),
        other => Err(format!("{other:?} instead of a constant").into()),
    }
}

fn parse(wasm: &[u8]) -> Result<Module, Error> {
    let mut module = Module::default();
    for payload in Parser::new(0).parse_all(wasm) {
        match payload? {
            Payload::ImportSection(imports) if imports.count() > 0 => {
                return Err("imports something".into());
            }
            Payload::FunctionSection(functions) => {
                module.types = functions.into_iter().collect::<Result<_, _>>()?;
            }
            Payload::MemorySection(memories) => {
                for memory in memories {
                    module.pages = memory?.initial;
                }
            }
            Payload::TableSection(tables) => {
                for table in tables {
                    module.table = table?.ty.initial;
                }
            }
            Payload::GlobalSection(globals) => {
                // The others are constants for the embedder.
                let global = globals.into_iter().next().ok_or("no stack pointer")??;
                module.stack_pointer = constant(&global.init_expr)?;
            }
            Payload::ExportSection(exports) => {
                for export in exports {
                    let export = export?;
                    if export.kind == ExternalKind::Func {
                        module.exports.insert(export.name.to_owned(), export.index);
                    }
                }
            }
            Payload::ElementSection(elements) => {
                for element in elements {
                    let element = element?;
                    let ElementKind::Active { offset_expr, .. } = &element.kind else {
                        return Err("elements that are not active".into());
                    };
                    let ElementItems::Functions(functions) = element.items else {
                        return Err("elements that are expressions".into());
                    };
                    for (index, function) in (constant(offset_expr)?..).zip(functions) {
                        module.elements.insert(index, function?);
                    }
                }
            }
            Payload::DataSection(segments) => {
                for segment in segments {
                    let segment = segment?;
                    let wasmparser::DataKind::Active { offset_expr, .. } = &segment.kind else {
                        return Err("data that is not active".into());
                    };
                    module.data.push((constant(offset_expr)?, segment.data.to_vec()));
                }
            }
            _ => {}
        }
    }
    Ok(module)
}

/// The IR of a function by its symbol: the functions of the module, and Wasmtime's own.
type Functions = BTreeMap<(u32, u32), String>;

/// The namespaces.
const DEFINED: u32 = 0;
const BUILTIN: u32 = 0x3000_0000;

fn translate(wasm: &[u8]) -> Result<Functions, Error> {
    let directory = tempfile::tempdir()?;
    let mut config = wasmtime::Config::new();
    config.cranelift_opt_level(wasmtime::OptLevel::None).emit_clif(directory.path());
    wasmtime::Engine::new(&config)?.precompile_module(wasm)?;
    let mut functions = BTreeMap::new();
    for entry in std::fs::read_dir(directory.path())? {
        let text = std::fs::read_to_string(entry?.path())?;
        // Trampolines for the host have the names of their targets.
        for (namespace, marked) in
            [(DEFINED, "<wasm[0]::function["), (BUILTIN, "<wasmtime_builtin")]
        {
            let number = numbers(&text, &format!("\nfunction u{namespace}:")).first().copied();
            if let Some(number) = number.filter(|_| text.contains(marked)) {
                functions.insert((namespace, number), shortened(&text));
            }
        }
    }
    Ok(functions)
}

fn shortened(text: &str) -> String {
    let mut short = String::new();
    for line in text.lines() {
        let line = match line.strip_prefix(";; Intermediate Representation of function <") {
            Some(name) => format!("; {}", name.trim_end_matches(">:").replace("wasm[0]::", "")),
            None => {
                let code = line.split(" ; ").next().unwrap_or_default();
                let code = match code.strip_prefix('@') {
                    Some(located) => located.trim_start_matches(|c: char| c.is_ascii_hexdigit()),
                    None => code,
                };
                code.trim().to_owned()
            }
        };
        if !line.is_empty() {
            short += &line;
            short.push('\n');
        }
    }
    short.push('\n');
    short
}

/// The result of a program for 1.
fn checksum(wasm: &[u8], program: &str) -> Result<u64, Error> {
    let engine = wasmtime::Engine::default();
    let mut store = wasmtime::Store::new(&engine, ());
    let module = wasmtime::Module::new(&engine, wasm)?;
    let instance = wasmtime::Instance::new(&mut store, &module, &[])?;
    let function = instance.get_typed_func::<u32, u64>(&mut store, program)?;
    Ok(function.call(&mut store, 1)?)
}

/// No file of a unit becomes larger, in bytes.
const LARGEST: usize = 900_000;

/// The numbers behind all occurrences of `after`.
fn numbers(text: &str, after: &str) -> Vec<u32> {
    let numbers = text.split(after).skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    });
    numbers.collect()
}

/// The types of functions that one calls through the table.
fn called_types(function: &str) -> impl Iterator<Item = u32> + '_ {
    function.lines().filter_map(|line| {
        let hex = line.split_once("\"TypeIdsArray+0x")?.1.trim_end_matches('"');
        u32::from_str_radix(hex, 16).ok().map(|offset| offset / 4)
    })
}

fn reachable(module: &Module, functions: &Functions, roots: &[u32]) -> BTreeSet<(u32, u32)> {
    let mut reached = BTreeSet::new();
    let mut types = BTreeSet::new();
    let mut next: Vec<(u32, u32)> = roots.iter().map(|&root| (DEFINED, root)).collect();
    while let Some(function) = next.pop() {
        if !reached.insert(function) {
            continue;
        }
        let text = &functions[&function];
        for namespace in [DEFINED, BUILTIN] {
            let called = numbers(text, &format!(" = colocated u{namespace}:"));
            next.extend(called.into_iter().map(|number| (namespace, number)));
        }
        for ty in called_types(text) {
            if types.insert(ty) {
                let elements = module.elements.values();
                let elements = elements.filter(|&&element| module.types[element as usize] == ty);
                next.extend(elements.map(|&element| (DEFINED, element)));
            }
        }
    }
    reached
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [wasm, unit, programs @ ..] = &arguments[..] else {
        return Err("usage: translate MODULE.wasm UNIT PROGRAM…".into());
    };
    let wasm = std::fs::read(wasm)?;
    let module = parse(&wasm)?;
    let functions = translate(&wasm)?;
    let mut roots = Vec::new();
    let mut image = String::new();
    for program in programs {
        let function = *module.exports.get(program).ok_or_else(|| format!("no {program}"))?;
        writeln!(image, "program {program} {function} {}", checksum(&wasm, program)?)?;
        roots.push(function);
        let alone = reachable(&module, &functions, &[function]);
        let bytes: usize = alone.iter().map(|function| functions[function].len()).sum();
        eprintln!("{program}: {} functions, {bytes} bytes", alone.len());
    }
    let reached = reachable(&module, &functions, &roots);
    let mut files = vec![String::new()];
    for function in &reached {
        let text = &functions[function];
        match files.last_mut() {
            Some(file) if file.len() + text.len() <= LARGEST => *file += text,
            _ => files.push(text.clone()),
        }
    }
    let bytes: usize = files.iter().map(String::len).sum();
    eprintln!("{unit}: {} functions, {bytes} bytes", reached.len());
    writeln!(image, "pages {}\nstack {}", module.pages, module.stack_pointer)?;
    for (start, bytes) in &module.data {
        for (line, bytes) in bytes.chunks(40).enumerate() {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(image, "data {} {hex}", start + 40 * line as i64)?;
        }
    }
    writeln!(image, "table {}", module.table)?;
    for (index, function) in &module.elements {
        if reached.contains(&(DEFINED, *function)) {
            writeln!(image, "element {index} {function} {}", module.types[*function as usize])?;
        }
    }
    let unit = std::path::Path::new(unit);
    std::fs::create_dir_all(unit)?;
    for (at, file) in files.iter().enumerate() {
        std::fs::write(unit.join(format!("{at}.clif")), file)?;
    }
    std::fs::write(unit.join("image"), image)?;
    Ok(())
}
