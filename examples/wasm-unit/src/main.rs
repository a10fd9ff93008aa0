//! Makes a unit for `clif-merge` of a WebAssembly module: the IR of its functions as Wasmtime writes
//! it, and lists of the functions that are reachable from outside.
//!
//! ```sh
//! cargo run --manifest-path examples/wasm-unit/Cargo.toml -- MODULE.wasm UNIT
//! clif-merge report --linkage local --addresses insignificant \
//!     --export-file UNIT/exported.txt --externally-called-file UNIT/externally-called.txt UNIT
//! ```
//!
//! Wasmtime numbers the functions that a module defines, `u0:0` for the first one, and leaves out those
//! that it imports; functions of its own are in other namespaces than `u0`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use wasmparser::{
    ConstExpr, ElementItems, ExternalKind, FunctionBody, Operator, Parser, Payload, TypeRef,
};
use wasmtime::error::Context as _;
use wasmtime::{Config, Engine, OptLevel, Result};

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

fn make_unit(module: &Path, directory: &Path) -> Result<()> {
    let wasm =
        std::fs::read(module).with_context(|| format!("cannot read {}", module.display()))?;
    let cannot_write = || format!("cannot write to {}", directory.display());
    std::fs::create_dir_all(directory).with_context(cannot_write)?;

    // Not optimised: functions are merged before they are.
    let mut config = Config::new();
    config.cranelift_opt_level(OptLevel::None).emit_clif(directory);
    Engine::new(&config)?.precompile_module(&wasm)?;

    let Reachable { exported, called } = Reachable::of(&wasm)?;
    let list = |heading: &str, functions: &BTreeSet<u32>, more: &str| {
        let names: String = functions.iter().map(|index| format!("u0:{index}\n")).collect();
        format!("# {heading}\n{names}{more}")
    };
    let exported = list("Exports of the module.", &exported, "");
    // Functions outside of the module are called by the runtime, directly or out of its tables.
    let others = "# Functions of Wasmtime's own: trampolines and the like.\nu[1-9]*:*\n";
    let called = list("Functions in tables and other references, and the start.", &called, others);
    std::fs::write(directory.join("exported.txt"), exported).with_context(cannot_write)?;
    std::fs::write(directory.join("externally-called.txt"), called).with_context(cannot_write)?;
    Ok(())
}

/// The functions of a module that are reachable from outside of its functions, without imported functions, which
/// do not count.
#[derive(Default)]
struct Reachable {
    exported: BTreeSet<u32>,
    /// Functions in a table or any other reference, and the start function.
    called: BTreeSet<u32>,
}

impl Reachable {
    fn of(wasm: &[u8]) -> Result<Reachable> {
        let mut imports = 0;
        let [mut exported, mut called] = [BTreeSet::new(), BTreeSet::new()];
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        if let TypeRef::Func(_) | TypeRef::FuncExact(_) = import?.ty {
                            imports += 1;
                        }
                    }
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        let export = export?;
                        if let ExternalKind::Func | ExternalKind::FuncExact = export.kind {
                            exported.insert(export.index);
                        }
                    }
                }
                Payload::StartSection { func, range: _ } => {
                    called.insert(func);
                }
                Payload::TableSection(section) => {
                    for table in section {
                        if let wasmparser::TableInit::Expr(init) = table?.init {
                            references(&init, &mut called)?;
                        }
                    }
                }
                Payload::GlobalSection(section) => {
                    for global in section {
                        references(&global?.init_expr, &mut called)?;
                    }
                }
                Payload::ElementSection(section) => {
                    for element in section {
                        match element?.items {
                            ElementItems::Functions(functions) => {
                                for function in functions {
                                    called.insert(function?);
                                }
                            }
                            ElementItems::Expressions(_, expressions) => {
                                for expression in expressions {
                                    references(&expression?, &mut called)?;
                                }
                            }
                        }
                    }
                }
                Payload::CodeSectionEntry(body) => references_of_body(&body, &mut called)?,
                _ => {}
            }
        }
        let defined = |functions: BTreeSet<u32>| {
            functions.into_iter().filter_map(|index| index.checked_sub(imports)).collect()
        };
        Ok(Reachable { exported: defined(exported), called: defined(called) })
    }
}

/// The functions to which an initial value refers.
fn references(expression: &ConstExpr<'_>, called: &mut BTreeSet<u32>) -> Result<()> {
    for operator in expression.get_operators_reader() {
        if let Operator::RefFunc { function_index } = operator? {
            called.insert(function_index);
        }
    }
    Ok(())
}

/// The functions of which a body makes references.
fn references_of_body(body: &FunctionBody<'_>, called: &mut BTreeSet<u32>) -> Result<()> {
    for operator in body.get_operators_reader()? {
        if let Operator::RefFunc { function_index } = operator? {
            called.insert(function_index);
        }
    }
    Ok(())
}
