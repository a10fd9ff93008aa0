//! The initial contents of tables and memories of modules: read-only data, and tables of functions.
//!
//! A compiler ahead of time can lay it out as data objects, next to the code of the functions.
//! Wasmtime does not: it fills tables when a module is instantiated. This does *not* say where in a
//! table or memory a segment goes.

use crate::reach::{Modules, functions_of, read};
use crate::{Error, invalid};
use wasmtime::wasmparser::{ElementKind, Payload};

/// A segment of a module, of those of a component each by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Elements of a table: the names of functions in the text that [`translate`](crate::translate)
    /// returns. `None` for a null, and for what is no function of the module.
    Functions(Vec<Option<String>>),
    /// Bytes of a memory.
    Bytes(Vec<u8>),
}

/// The segments of a module or component, in their order. Linear in the size of the module.
///
/// # Errors
///
/// Bytes that are not WebAssembly.
pub fn segments(wasm: &[u8]) -> Result<Vec<Segment>, Error> {
    let modules = Modules::of(wasm).map_err(invalid)?;
    let mut segments = Vec::new();
    let add = |module, payload: Payload<'_>| {
        match payload {
            Payload::ElementSection(section) => {
                for element in section {
                    let element = element?;
                    if matches!(element.kind, ElementKind::Declared) {
                        continue;
                    }
                    let name = |function: u32| {
                        let defined = function.checked_sub(modules.imported(module))?;
                        Some(format!("u{module}:{defined}"))
                    };
                    let functions = functions_of(&element)?.into_iter();
                    let names = functions.map(|function| function.and_then(name)).collect();
                    segments.push(Segment::Functions(names));
                }
            }
            Payload::DataSection(section) => {
                for data in section {
                    segments.push(Segment::Bytes(data?.data.to_vec()));
                }
            }
            _ => {}
        }
        Ok(())
    };
    read(wasm, add).map_err(invalid)?;
    Ok(segments)
}
