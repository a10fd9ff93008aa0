//! Names of functions that Wasmtime does not write as they are.
//!
//! Wasmtime writes the IR of a function into a file with the name that the module gives the
//! function, and panics if there can be no such file, as for `~lib/rt/free`. So such names are
//! overwritten in a copy of the module, byte by byte. Of long names, it writes the beginning. Both
//! are put back into the comments that it has written. A function without a name gets that of its
//! first export. No other custom section than that of names is read.

use std::borrow::Cow;
use std::collections::HashMap;
use wasmtime::wasmparser::{
    BinaryReaderError, Encoding, Export, ExternalKind, KnownCustom, Name, NameSectionReader,
    Parser, Payload,
};

/// A module or component without names that no file can have.
#[derive(Debug)]
pub struct Escaped<'a> {
    /// Its bytes.
    pub wasm: Cow<'a, [u8]>,
    /// The names as they are.
    pub names: Names,
}

/// Names by what Wasmtime calls the function, `wasm[0]::function[1]`.
#[derive(Debug, Default)]
pub struct Names {
    /// Where it may write another name.
    replaced: HashMap<String, Replaced>,
    /// Of functions that are exported: the first name of each.
    exported: HashMap<String, String>,
}

/// A name that Wasmtime does not write.
#[derive(Debug)]
struct Replaced {
    /// The beginning of its output.
    by: String,
    name: String,
}

/// Names up to this length in bytes are written whole.
const SHORT: usize = 96;

/// The beginning of the comment with the name of a function.
const COMMENT: &str = ";; Intermediate Representation of function <";

impl<'a> Escaped<'a> {
    /// Overwrites names.
    ///
    /// # Errors
    ///
    /// Malformed WebAssembly. A malformed section of names is not an error: Wasmtime ignores it as
    /// well.
    pub fn of(wasm: &'a [u8]) -> Result<Escaped<'a>, BinaryReaderError> {
        let mut escaped = Escaped { wasm: Cow::Borrowed(wasm), names: Names::default() };
        let mut modules = 0;
        // The modules and components that are not at their ends yet; for modules, their numbers.
        let mut open: Vec<Option<usize>> = Vec::new();
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::Version { encoding: Encoding::Component, .. } => open.push(None),
                Payload::Version { encoding: Encoding::Module, .. } => {
                    open.push(Some(modules));
                    modules += 1;
                }
                Payload::End(_) => {
                    open.pop();
                }
                Payload::ExportSection(exports) => {
                    for export in exports {
                        let Export { name, kind, index } = export?;
                        if let (Some(&Some(module)), ExternalKind::Func | ExternalKind::FuncExact) =
                            (open.last(), kind)
                        {
                            let exported = &mut escaped.names.exported;
                            exported
                                .entry(function(module, index))
                                .or_insert_with(|| printed(name));
                        }
                    }
                }
                Payload::CustomSection(section) => {
                    if let (Some(&Some(module)), KnownCustom::Name(names)) =
                        (open.last(), section.as_known())
                    {
                        // Bytes that were overwritten before a mistake in the section stay so.
                        let _ = escaped.overwrite(wasm, module, names);
                    }
                }
                _ => {}
            }
        }
        Ok(escaped)
    }

    fn overwrite(
        &mut self,
        wasm: &[u8],
        module: usize,
        names: NameSectionReader<'_>,
    ) -> Result<(), BinaryReaderError> {
        for subsection in names {
            let Name::Function(functions) = subsection? else { continue };
            for naming in functions {
                let naming = naming?;
                let all_fit = naming.name.bytes().all(fits);
                if all_fit && naming.name.len() <= SHORT {
                    continue;
                }
                let by: String = naming
                    .name
                    .bytes()
                    .map(|byte| if fits(byte) { char::from(byte) } else { '_' })
                    .collect();
                if !all_fit {
                    // The name is a part of these bytes.
                    let at = naming.name.as_ptr() as usize - wasm.as_ptr() as usize;
                    self.wasm.to_mut()[at..at + by.len()].copy_from_slice(by.as_bytes());
                }
                let function = function(module, naming.index);
                self.names.replaced.insert(function, Replaced { by, name: printed(naming.name) });
            }
        }
        Ok(())
    }
}

impl Names {
    /// Puts the name of the function back into the comment that begins its text.
    pub fn restore(&self, text: String) -> String {
        let restored = || {
            let (line, rest) = text.split_once('\n')?;
            let symbol = line.strip_prefix(COMMENT)?.strip_suffix(">:")?;
            let (module, function) = symbol.split_once("]::function[")?;
            let (index, written) = match function.split_once("]::") {
                Some((index, name)) => (index, Some(name)),
                None => (function.strip_suffix(']')?, None),
            };
            let function = format!("{module}]::function[{index}]");
            let name = match written {
                None => self.exported.get(&function)?,
                Some(written) => {
                    let replaced = self.replaced.get(&function)?;
                    &replaced.by.starts_with(written).then_some(replaced)?.name
                }
            };
            Some(format!("{COMMENT}{function}::{name}>:\n{rest}"))
        };
        restored().unwrap_or(text)
    }
}

/// Wasmtime's name of a function.
fn function(module: usize, index: u32) -> String {
    format!("wasm[{module}]::function[{index}]")
}

/// Whether names of files have such bytes on all systems. Wasmtime replaces colons.
fn fits(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"/\\<>\"|?*".contains(&byte)
}

/// A name in one line of a comment.
fn printed(name: &str) -> String {
    name.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}
