//! The header of a filetest: its commands, its targets with their settings, its features.
//!
//! Cranelift's reader refuses the whole file if it names a target that the reader was built
//! without and a `set` stands above it. So this module takes the lines that `clif_unit` reads, and
//! reports such targets one by one. It checks spelling, and does not run anything.

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clif_unit::error::Place;
use clif_unit::header::{self, Said};
use clif_unit::sources::Source;
use cranelift_codegen::isa::{self, LookupError, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_mergefunc::cranelift_codegen;
use std::str::FromStr as _;
use target_lexicon::Triple;

/// The settings of a header.
#[derive(Debug, Default)]
pub struct Header {
    /// The `test` lines.
    pub commands: Vec<Command>,
    /// The `target` lines.
    pub targets: Vec<TargetLine>,
    /// The `feature` lines, without that word.
    pub features: Vec<String>,
}

/// A `test` line.
#[derive(Debug)]
pub struct Command {
    /// Its line.
    pub place: Place,
    /// The word after `test`.
    pub name: String,
    /// The words after that.
    pub options: Vec<String>,
}

/// A `target` line and the settings that hold for it.
#[derive(Debug)]
pub struct TargetLine {
    line: header::TargetLine,
    triple: Triple,
    /// The text after `target`.
    pub text: String,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    ///
    /// Unknown lines, settings and architectures, with their places.
    pub fn parse(source: &Source) -> Result<Header> {
        let header::Header { settings, targets, tests, features } = header::Header::of(source)?;
        let mut header = Header { features, ..Header::default() };
        for (place, words) in tests {
            let mut words = words.into_iter();
            let name = words.next().ok_or_else(|| place.error("test what?"))?;
            header.commands.push(Command { place, name, options: words.collect() });
        }
        // Settings that no target follows are checked as well.
        set(&settings, &mut settings::builder())?;
        if let (Some(target), Some(last)) = (targets.last(), settings.last()) {
            let has_effect = target.settings.len() == settings.len();
            ensure!(has_effect, "{}: a 'set' after the last 'target' has no effect", last.place);
        }
        for line in targets {
            let triple = match Triple::from_str(&line.text) {
                Ok(triple) => triple,
                Err(error) => bail!("{}: target '{}': {error}", line.place, line.text),
            };
            let target = TargetLine { triple, text: line.to_string(), line };
            target.isa()?;
            header.targets.push(target);
        }
        Ok(header)
    }

    /// The command of that name, if the header has it.
    ///
    /// # Errors
    ///
    /// If it has it twice.
    pub fn command(&self, name: &str) -> Result<Option<&Command>> {
        let mut commands = self.commands.iter().filter(|command| command.name == name);
        let first = commands.next();
        match commands.next() {
            None => Ok(first),
            Some(second) => bail!("{}: a second 'test {name}'", second.place),
        }
    }
}

impl TargetLine {
    /// The ISA that the line names, or `None` if this program is built without it.
    ///
    /// # Errors
    ///
    /// Architectures and settings that do not exist.
    pub fn isa(&self) -> Result<Option<OwnedTargetIsa>> {
        let mut builder = match isa::lookup(self.triple.clone()) {
            Ok(builder) => builder,
            Err(LookupError::SupportDisabled) => return Ok(None),
            Err(LookupError::Unsupported) => {
                bail!("{}: Cranelift has no target '{}'", self.line.place, self.triple)
            }
        };
        set(&self.line.flags, &mut builder)?;
        let isa = builder.finish(self.flags(&[], &[])?);
        Ok(Some(isa.map_err(|error| anyhow!("{}: {error}", self.line.place))?))
    }

    /// The ISA for running what is compiled, with the same extensions; or why this machine cannot.
    ///
    /// # Errors
    ///
    /// Architectures and settings that do not exist.
    pub fn host_isa(&self) -> Result<Result<OwnedTargetIsa, String>> {
        let host = Triple::host();
        if self.triple.architecture != host.architecture {
            return Ok(Err(format!("this machine is {}", host.architecture)));
        }
        let Some(asked) = self.isa()? else {
            return Ok(Err(NOT_BUILT_IN.to_owned()));
        };
        if asked.flags().enable_pinned_reg() {
            return Ok(Err("native callers know nothing of a pinned register".to_owned()));
        }
        let builder = |infer| cranelift_native::builder_with_options(infer).map_err(|e| anyhow!(e));
        // Tail calls need frame pointers on x86-64. Needs of the JIT are not left to the file.
        let before = [("preserve_frame_pointers", "true")];
        let after = [("is_pic", "false"), ("use_colocated_libcalls", "false")];
        let flags = self.flags(&before, &after)?;
        let native = builder(true)?.finish(flags.clone())?;
        let native = native.isa_flags();
        let mut exact = builder(false)?;
        for flag in asked.isa_flags() {
            let has = native.iter().any(|has| has.name == flag.name && has.as_bool() == Some(true));
            if flag.as_bool() == Some(true) && !has {
                return Ok(Err(format!("this machine lacks {}", flag.name)));
            }
            exact.set(flag.name, &flag.value_string())?;
        }
        Ok(Ok(exact.finish(flags)?))
    }

    fn flags(&self, before: &[(&str, &str)], after: &[(&str, &str)]) -> Result<settings::Flags> {
        let mut builder = settings::builder();
        for (name, value) in before {
            builder.set(name, value)?;
        }
        set(&self.line.settings, &mut builder)?;
        for (name, value) in after {
            builder.set(name, value)?;
        }
        Ok(settings::Flags::new(builder))
    }
}

/// Why a target is skipped for which there is no code generator.
pub const NOT_BUILT_IN: &str = "this program is built without it";

/// Makes settings in one group of settings.
fn set(said: &[Said], group: &mut dyn Configurable) -> Result<()> {
    for Said { setting, place } in said {
        let known = clif_unit::isa::apply(group, setting).with_context(|| place.to_string())?;
        ensure!(known, "{place}: unknown setting '{}'", setting.name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Header> {
        Header::parse(&Source { name: "f".to_owned(), text: text.to_owned() })
    }

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn settings_hold_for_later_targets() {
        let text = "; Text.\ntest run\nset opt_level=speed\ntarget x86_64\n\
                    set opt_level=none\ntarget aarch64\n";
        let header = parse(text).unwrap();
        let levels = header.targets.iter().map(|target| {
            target.isa().unwrap().expect("is built in").flags().opt_level().to_string()
        });
        assert_eq!(levels.collect::<Vec<_>>(), ["speed", "none"]);
    }

    #[test]
    fn targets_without_a_code_generator_are_known() {
        let text = "test run\nset opt_level=speed\ntarget s390x\ntarget riscv64 has_v\n";
        let header = parse(text).unwrap();
        assert!(header.targets.iter().all(|target| target.isa().unwrap().is_none()));
    }

    #[test]
    fn mistakes_have_lines() {
        assert_eq!(error("\nset no_such=1\n"), "f:2:5: unknown setting 'no_such'");
        assert_eq!(error("target x86_64 has_nothing\n"), "f:1:15: unknown setting 'has_nothing'");
        assert_eq!(
            error("target x86_64\nset opt_level=speed\n"),
            "f:2:5: a 'set' after the last 'target' has no effect",
        );
        assert_eq!(error("; ok\ntset run\n"), "f:2:1: expected 'function', found 'tset'");
        // Said `f: line 3`, which no editor understands.
        let header = parse("test merge\ntest run\ntest merge\n").unwrap();
        assert_eq!(header.command("run").unwrap().expect("a command").place.line, 2);
        let error = header.command("merge").unwrap_err().to_string();
        assert_eq!(error, "f:3: a second 'test merge'");
    }
}
