//! The lines before the first function of a filetest: commands, settings, targets, features.
//!
//! Cranelift's reader refuses the whole file if it names a target that the reader was built
//! without and a `set` stands above it. So this module reads the header itself, and reports such
//! targets one by one. It checks spelling, and does not run anything.

use anyhow::{Result, anyhow, bail};
use cranelift_codegen::isa::{self, LookupError, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_mergefunc::cranelift_codegen;
use cranelift_reader::{Location, ParseError, parse_options};
use std::str::FromStr as _;
use target_lexicon::Triple;

/// What a header says.
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
    /// Its line, from 1.
    pub line: usize,
    /// The word after `test`.
    pub name: String,
    /// The words after that.
    pub options: Vec<String>,
}

/// A `target` line and the settings that hold for it.
#[derive(Debug)]
pub struct TargetLine {
    /// `path:line`.
    place: String,
    line: usize,
    triple: Triple,
    /// What is written after `target`.
    pub text: String,
    /// The words of all `set` lines above, and their lines.
    settings: Vec<(usize, String)>,
}

impl Header {
    /// Reads a header. `name` is the path, for errors.
    ///
    /// # Errors
    ///
    /// Unknown lines, settings and architectures, with their lines.
    pub fn parse(name: &str, text: &str) -> Result<Header> {
        let mut header = Header::default();
        let mut settings: Vec<(usize, String)> = Vec::new();
        let mut dangling = None;
        for (at, line) in text.lines().enumerate() {
            let line_number = at + 1;
            let place = format!("{name}:{line_number}");
            let line = line.trim();
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let words = || rest.split_whitespace().map(str::to_owned);
            match word {
                "" => {}
                _ if word.starts_with(';') => {}
                "test" => {
                    let mut words = words();
                    let name = words.next().ok_or_else(|| anyhow!("{place}: test what?"))?;
                    let options = words.collect();
                    header.commands.push(Command { line: line_number, name, options });
                }
                "set" => {
                    settings.extend(words().map(|word| (line_number, word)));
                    // What no target follows is checked as well.
                    apply(&place, line_number, words(), &mut settings::builder())?;
                    dangling = Some(place);
                }
                "target" => {
                    let triple = words().next().unwrap_or_default();
                    let triple = match Triple::from_str(&triple) {
                        Ok(triple) => triple,
                        Err(error) => bail!("{place}: target '{triple}': {error}"),
                    };
                    let text = words().collect::<Vec<_>>().join(" ");
                    let settings = settings.clone();
                    let target = TargetLine { place, line: line_number, triple, text, settings };
                    target.isa()?;
                    header.targets.push(target);
                    dangling = None;
                }
                "feature" => header.features.push(rest.trim().to_owned()),
                _ => bail!("{place}: expected 'function', found '{word}'"),
            }
        }
        match dangling {
            Some(place) if !header.targets.is_empty() => {
                bail!("{place}: a 'set' after the last 'target' has no effect")
            }
            _ => Ok(header),
        }
    }

    /// The command of that name, if the header has it. `path` is for errors.
    ///
    /// # Errors
    ///
    /// If it has it twice.
    pub fn command(&self, path: &str, name: &str) -> Result<Option<&Command>> {
        let mut commands = self.commands.iter().filter(|command| command.name == name);
        let first = commands.next();
        match commands.next() {
            None => Ok(first),
            Some(second) => bail!("{path}:{}: a second 'test {name}'", second.line),
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
                bail!("{}: Cranelift has no target '{}'", self.place, self.triple)
            }
        };
        let words = self.text.split_whitespace().skip(1).map(str::to_owned);
        apply(&self.place, self.line, words, &mut builder)?;
        let isa = builder.finish(self.flags(&[], &[])?);
        Ok(Some(isa.map_err(|error| anyhow!("{}: {error}", self.place))?))
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
        // Tail calls need frame pointers on x86-64. What the JIT cannot do is not left to the file.
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
        for (line, word) in &self.settings {
            apply(&self.place, *line, [word.clone()], &mut builder)?;
        }
        for (name, value) in after {
            builder.set(name, value)?;
        }
        Ok(settings::Flags::new(builder))
    }
}

/// Why a target is skipped for which there is no code generator.
pub const NOT_BUILT_IN: &str = "this program is built without it";

fn apply(
    place: &str,
    line: usize,
    words: impl IntoIterator<Item = String>,
    to: &mut dyn Configurable,
) -> Result<()> {
    let words: Vec<String> = words.into_iter().collect();
    let location = Location { line_number: line };
    parse_options(words.iter().map(String::as_str), to, location)
        .map_err(|error| anyhow!("{place}: {}", ParseError::from(error).message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Header::parse("f", text).unwrap_err().to_string()
    }

    #[test]
    fn settings_hold_for_later_targets() {
        let text = "; Text.\ntest run\nset opt_level=speed\ntarget x86_64\n\
                    set opt_level=none\ntarget aarch64\n";
        let header = Header::parse("f", text).unwrap();
        let levels = header.targets.iter().map(|target| {
            target.isa().unwrap().expect("is built in").flags().opt_level().to_string()
        });
        assert_eq!(levels.collect::<Vec<_>>(), ["speed", "none"]);
    }

    #[test]
    fn targets_without_a_code_generator_are_known() {
        let text = "test run\nset opt_level=speed\ntarget s390x\ntarget riscv64 has_v\n";
        let header = Header::parse("f", text).unwrap();
        assert!(header.targets.iter().all(|target| target.isa().unwrap().is_none()));
    }

    #[test]
    fn mistakes_have_lines() {
        assert_eq!(error("\nset no_such=1\n"), "f:2: unknown setting 'no_such=1'");
        assert_eq!(error("target x86_64 has_nothing\n"), "f:1: unknown setting 'has_nothing'");
        assert_eq!(
            error("target x86_64\nset opt_level=speed\n"),
            "f:2: a 'set' after the last 'target' has no effect",
        );
        assert_eq!(error("; ok\ntset run\n"), "f:2: expected 'function', found 'tset'");
        // Said `f: line 3`, which no editor understands.
        let header = Header::parse("f", "test merge\ntest run\ntest merge\n").unwrap();
        assert_eq!(header.command("f", "run").unwrap().expect("a command").line, 2);
        let error = header.command("f", "merge").unwrap_err().to_string();
        assert_eq!(error, "f:3: a second 'test merge'");
    }
}
