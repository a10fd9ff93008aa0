//! The names of functions.
//!
//! Wasmtime replaces and cuts off parts of the names that a module gives its functions. In a
//! comment, a name can stand as it is. A function without a name gets that of its first export. No
//! other custom section than that of names is read.

use crate::reach::read;
use std::collections::HashMap;
use wasmtime::wasmparser::{
    BinaryReaderError, Export, ExternalKind, KnownCustom, Name, NameSectionReader, Payload,
};

/// Names by what Wasmtime calls the function without them, `wasm[0]::function[1]`.
#[derive(Debug, Default)]
pub struct Names(HashMap<String, String>);

impl Names {
    /// The names of the functions in a module or component.
    ///
    /// # Errors
    ///
    /// Malformed WebAssembly. A malformed section of names is not an error, as for Wasmtime.
    pub fn of(wasm: &[u8]) -> Result<Names, BinaryReaderError> {
        let (mut names, mut exported) = (HashMap::new(), HashMap::new());
        read(wasm, |module, payload| {
            match payload {
                Payload::ExportSection(exports) => {
                    for export in exports {
                        let Export { name, kind, index } = export?;
                        if let ExternalKind::Func | ExternalKind::FuncExact = kind {
                            let function = function(module, index);
                            exported.entry(function).or_insert_with(|| printed(name));
                        }
                    }
                }
                Payload::CustomSection(section) => {
                    if let KnownCustom::Name(section) = section.as_known() {
                        // Names before a mistake in the section count.
                        let _ = add(&mut names, module, section);
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        for (function, name) in exported {
            names.entry(function).or_insert(name);
        }
        Ok(Names(names))
    }

    /// Of what Wasmtime calls a function, the same with the name as it is.
    pub fn whole(&self, symbol: &str) -> String {
        let known = || {
            let (module, rest) = symbol.split_once("]::function[")?;
            let (index, _) = rest.split_once(']')?;
            let function = format!("{module}]::function[{index}]");
            let name = self.0.get(&function)?;
            Some(format!("{function}::{name}"))
        };
        known().unwrap_or_else(|| symbol.to_owned())
    }
}

fn add(
    names: &mut HashMap<String, String>,
    module: usize,
    section: NameSectionReader<'_>,
) -> Result<(), BinaryReaderError> {
    for subsection in section {
        let Name::Function(functions) = subsection? else { continue };
        for naming in functions {
            let naming = naming?;
            names.insert(function(module, naming.index), printed(naming.name));
        }
    }
    Ok(())
}

/// Wasmtime's name of a function that has none.
fn function(module: usize, index: u32) -> String {
    format!("wasm[{module}]::function[{index}]")
}

/// A name in one line of a comment.
fn printed(name: &str) -> String {
    name.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}
