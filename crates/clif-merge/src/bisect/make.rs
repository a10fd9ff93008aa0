//! The file on which the command of `bisect` is run: a unit, merged up to a limit.
//!
//! An object is made of the merged text and not by a `MergingModule`, so that the merges are those
//! of the text, in the same order.

use super::EmitKind;
use crate::args::Pass;
use crate::emit_object::{Request, emit as emit_object};
use crate::jobs::Jobs;
use crate::unfinished::Directory;
use anyhow::{Context as _, Result, anyhow};
use clif_unit::contain::contain;
use clif_unit::emit_text::emit;
use clif_unit::pass::{self, Merged};
use clif_unit::sources::Source;
use clif_unit::unit::{Reading, Unit, is_function_line, parse_unit};
use clif_unit::verify::Verifier;
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_mergefunc::{Options, cranelift_codegen};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Makes files.
pub struct Maker<'a> {
    isa: &'a OwnedTargetIsa,
    pass: &'a Pass,
    aliases: bool,
    kind: EmitKind,
    jobs: Jobs,
    /// The lines of the unit about code generation.
    header: String,
    directory: Directory,
}

impl<'a> Maker<'a> {
    /// Makes files of the unit of these texts.
    ///
    /// # Errors
    ///
    /// If there can be no temporary directory.
    pub fn new(
        isa: &'a OwnedTargetIsa,
        pass: &'a Pass,
        (kind, aliases): (EmitKind, bool),
        jobs: Jobs,
        sources: &[Source],
    ) -> Result<Maker<'a>> {
        let directory = Directory::new().context("cannot make a temporary directory")?;
        let header = header(sources);
        Ok(Maker { isa, pass, aliases, kind, jobs, header, directory })
    }

    /// The options of a run of the pass with a limit.
    pub fn options(&self, limit: Option<u32>) -> Options<'_> {
        let mut options = self.pass.options(&**self.isa, self.aliases);
        options.merge_limit = limit;
        options
    }

    /// The limit of the command line.
    pub fn most(&self) -> Option<u32> {
        self.pass.merge_limit
    }

    /// The unit with at most `limit` merges.
    ///
    /// # Errors
    ///
    /// A unit that the pass refuses.
    pub fn merged(&self, unit: &Unit, limit: Option<u32>) -> Result<Merged> {
        pass::merge(unit, &self.options(limit))
    }

    /// The text of a merged unit, with the lines about code generation.
    pub fn text(&self, unit: &Unit, merged: &Merged) -> String {
        self.with_header(&emit(unit, merged))
    }

    /// A text of functions, with the lines about code generation.
    pub fn with_header(&self, text: &str) -> String {
        format!("{}{text}", self.header)
    }

    /// The contents of the file of a text.
    ///
    /// # Errors
    ///
    /// A function that cannot be compiled.
    pub fn contents(&self, text: &str) -> Result<Vec<u8>> {
        match self.kind {
            EmitKind::Clif => Ok(text.as_bytes().to_vec()),
            EmitKind::Object => {
                let unit = self.read(text)?;
                let made = contain(|| emit_object(&unit, Request::default(), self.isa, &self.jobs));
                Ok(made.map_err(|panic| anyhow!("Cranelift panicked: {panic}"))??.bytes)
            }
        }
    }

    /// Writes the file for one run, in the place of the one before.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn write(&self, contents: &[u8]) -> Result<PathBuf> {
        let path = self.directory.path().join(match self.kind {
            EmitKind::Clif => "merged.clif",
            EmitKind::Object => "merged.o",
        });
        std::fs::write(&path, contents)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Reads a text that this program wrote.
    ///
    /// # Errors
    ///
    /// A text that is no valid unit.
    pub fn read(&self, text: &str) -> Result<Unit> {
        let source = Source { name: "merged.clif".to_owned(), text: text.to_owned() };
        let verifier = Verifier::new(&**self.isa);
        parse_unit(&[source], Reading::plain(&verifier))
    }
}

/// The `target` and `set` lines before the first function of each text, each once. A text that is
/// merged has none, but the command may compile it.
fn header(sources: &[Source]) -> String {
    let mut lines: Vec<&str> = Vec::new();
    for source in sources {
        for line in source.text.lines().take_while(|line| !is_function_line(line)) {
            if (line.starts_with("target ") || line.starts_with("set ")) && !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines.iter().fold(String::new(), |mut text, line| {
        writeln!(text, "{line}").expect("a string can be written to");
        text
    })
}
