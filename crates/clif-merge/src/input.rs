//! The files of a unit: texts, and WebAssembly that becomes texts.
//!
//! A module or component is known by its first bytes, or by its name if it is text. It is
//! translated when the target is known, which other texts can name. Reading the texts is for
//! `clif-unit`, and translating for `wasm-input`: without the feature `wasm`, there is no such
//! crate, and WebAssembly is refused.

use crate::args::General;
use crate::jobs::Jobs;
#[cfg(feature = "wasm")]
use crate::progress::ProgressLine;
use anyhow::{Result, bail};
use clif_unit::marks::Marks;
use clif_unit::sources::{self, Source};
use cranelift_codegen::isa::TargetIsa;
use cranelift_mergefunc::{Addresses, Attributes, Linkage, cranelift_codegen};
use std::path::{Path, PathBuf};

/// The files of a unit as they are.
#[derive(Debug)]
pub struct Files {
    texts: Vec<Source>,
    module: Option<Module>,
}

/// A module or component.
#[derive(Debug)]
struct Module {
    name: String,
    bytes: Vec<u8>,
    /// How many of the texts come before those of the module.
    at: usize,
}

/// The texts of a unit, and what is known of its functions apart from them.
#[derive(Debug)]
pub struct Sources {
    /// The texts.
    pub texts: Vec<Source>,
    /// Functions of a module by their names.
    known: Vec<(String, Reach)>,
}

/// How code outside of a module reaches a function of it.
#[cfg_attr(not(feature = "wasm"), expect(dead_code, reason = "there are no modules"))]
#[derive(Clone, Copy, Debug)]
enum Reach {
    Local,
    Exported,
    Called,
}

/// The first bytes of a module and a component.
const MAGIC: &[u8] = b"\0asm";

impl Files {
    /// Reads the files of a unit.
    ///
    /// # Errors
    ///
    /// Paths that cannot be read, texts that are not UTF-8, modules that are none, more than one
    /// module, and any where the program was built without the feature.
    pub fn read(paths: &[PathBuf]) -> Result<Files> {
        let mut files = Files { texts: Vec::new(), module: None };
        for (name, bytes) in sources::read_bytes(paths)? {
            let extension = Path::new(&name).extension().unwrap_or_default();
            let is_text = extension == "wat";
            if !is_text && !bytes.starts_with(MAGIC) {
                if extension == "wasm" {
                    bail!("{name}: not WebAssembly, which begins with the bytes 00 61 73 6d");
                }
                files.texts.push(Source::new(name, bytes)?);
                continue;
            }
            if !cfg!(feature = "wasm") {
                bail!(
                    "{name}: this clif-merge was built without its feature 'wasm', which reads WebAssembly: \
                     build it without --no-default-features"
                );
            }
            if let Some(Module { name: first, .. }) = &files.module {
                bail!(
                    "{name}: the functions of two modules cannot be one unit, because Wasmtime gives them the \
                     same names; the other one is {first}"
                );
            }
            let bytes = match is_text {
                true => from_text(Source::new(name.clone(), bytes)?)?,
                false => bytes,
            };
            files.module = Some(Module { name, bytes, at: files.texts.len() });
        }
        Ok(files)
    }

    /// The files that are texts.
    pub fn texts(&self) -> &[Source] {
        &self.texts
    }

    /// The texts of all files, those of modules for the target of `isa`.
    ///
    /// # Errors
    ///
    /// A module that is not valid or cannot be translated, with the name of its file.
    pub fn translate(self, isa: &dyn TargetIsa, jobs: &Jobs, general: &General) -> Result<Sources> {
        let Files { mut texts, module } = self;
        let mut known = Vec::new();
        if let Some(Module { name, bytes, at }) = module {
            let translated = translate(&name, &bytes, isa, jobs, general.quiet)?;
            let mut sources = Vec::with_capacity(translated.len());
            for (source, function, reach) in translated {
                sources.push(source);
                known.push((function, reach));
            }
            texts.splice(at..at, sources);
        }
        Ok(Sources { texts, known })
    }
}

impl Sources {
    /// Marks functions of a module by what is known of them. `given` has what the command line says
    /// in place of other defaults.
    pub fn mark(&self, marks: &mut Marks, given: impl Fn(Attributes) -> Attributes) {
        let local = given(Attributes {
            linkage: Linkage::Local,
            addresses: Addresses::Insignificant,
            ..Attributes::default()
        });
        for (name, reach) in &self.known {
            let attributes = match reach {
                Reach::Local => local,
                Reach::Exported => Attributes { linkage: Linkage::Export, ..local },
                Reach::Called => Attributes { externally_called: true, ..local },
            };
            marks.know(name.clone(), attributes);
        }
    }
}

#[cfg(feature = "wasm")]
fn from_text(source: Source) -> Result<Vec<u8>> {
    let Source { name, text } = source;
    Ok(wasm_input::from_text(&text, Path::new(&name))?)
}

/// The functions of a module: their texts, their names and what is known of them.
#[cfg(feature = "wasm")]
fn translate(
    module: &str,
    bytes: &[u8],
    isa: &dyn TargetIsa,
    jobs: &Jobs,
    quiet: bool,
) -> Result<Vec<(Source, String, Reach)>> {
    use anyhow::anyhow;
    use wasm_input::{Function, Options};
    let target = isa.triple().to_string();
    let options = Options { target: Some(&target), parallel: jobs.count() > 1 };
    let count = wasm_input::count(bytes).map_err(|error| anyhow!("{module}: {error}"))?;
    let progress = ProgressLine::new("translating", count, quiet);
    let translated = watching(progress, || jobs.run(|| wasm_input::translate(bytes, options)));
    let functions = translated.map_err(|error| anyhow!("{module}: {error}"))?;
    let with_source = |function: Function| {
        let Function { name, file, text, reach } = function;
        let reach = match reach {
            wasm_input::Reach::Local => Reach::Local,
            wasm_input::Reach::Exported => Reach::Exported,
            wasm_input::Reach::InTable | wasm_input::Reach::Called => Reach::Called,
        };
        // As if the module was a directory.
        (Source { name: format!("{module}/{file}"), text }, name, reach)
    };
    Ok(functions.into_iter().map(with_source).collect())
}

/// How often it is looked how many functions are translated.
#[cfg(feature = "wasm")]
const INTERVAL: std::time::Duration = std::time::Duration::from_millis(200);

/// Translates, and shows how many functions are translated.
#[cfg(feature = "wasm")]
fn watching<T>(mut progress: ProgressLine, work: impl FnOnce() -> T) -> T {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    if !progress.is_wanted() {
        return work();
    }
    std::thread::scope(|scope| {
        let (ends, ended) = channel::<()>();
        scope.spawn(move || {
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                progress.reach(wasm_input::translated());
            }
        });
        let result = work();
        drop(ends);
        result
    })
}

#[cfg(not(feature = "wasm"))]
fn from_text(_source: Source) -> Result<Vec<u8>> {
    unreachable!("modules were refused")
}

#[cfg(not(feature = "wasm"))]
fn translate(
    _module: &str,
    _bytes: &[u8],
    _isa: &dyn TargetIsa,
    _jobs: &Jobs,
    _quiet: bool,
) -> Result<Vec<(Source, String, Reach)>> {
    unreachable!("modules were refused")
}
