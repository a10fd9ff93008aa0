//! The lines before the first function: `target` and `set`, which are about code generation, and
//! others.
//!
//! The former hold where the command line has no such option, and a contradiction to it is an
//! error: code for a target that was not requested is worse than none. Of several `target` lines in
//! one text, which mean that its functions are for each of them, one must be the target. The
//! others, `test` and `feature`, are read here, but mean nothing: they are for the runner of
//! filetests.

use crate::error::{Place, TextError, bail_at};
use crate::isa::{self, Setting, parse_setting, parse_target};
use crate::sources::Source;
use crate::unit::is_function_line;
use crate::words::{Columns, Input, expect, read, word};
use anyhow::{Error, Result, anyhow};
use std::fmt;
use target_lexicon::Triple;
use winnow::Parser as _;
use winnow::combinator::{opt, repeat};

/// The code generation options of the texts of a unit.
#[derive(Debug, Default)]
pub struct Headers {
    /// One for each text that has some.
    texts: Vec<Header>,
}

/// The lines before the first function of one text, without comments.
#[derive(Debug, Default)]
pub struct Header {
    /// The words of `set` lines, in order.
    pub settings: Vec<Said>,
    /// The `target` lines.
    pub targets: Vec<TargetLine>,
    /// The `test` lines, and the words behind that one.
    pub tests: Vec<(Place, Vec<String>)>,
    /// The `feature` lines, without that word.
    pub features: Vec<String>,
}

/// A setting, and its place.
#[derive(Clone, Debug)]
pub struct Said {
    /// As the command line would give it.
    pub setting: Setting,
    /// Its line and column.
    pub place: Place,
}

/// A `target` line. It is displayed as what is written after that word.
#[derive(Clone, Debug)]
pub struct TargetLine {
    /// That of the target.
    pub place: Place,
    /// The target, as it is written.
    pub text: String,
    /// The words behind it.
    pub flags: Vec<Said>,
    /// Those of `set` lines above it.
    pub settings: Vec<Said>,
}

impl TargetLine {
    /// The target as [`parse_target`] understands it, or why this program cannot compile for it.
    fn triple(&self) -> Result<Triple, String> {
        parse_target(&self.text)
    }

    /// Whether code for `target` is what the line asks for. One that names an architecture only is
    /// for any system.
    fn is(&self, target: &Triple) -> bool {
        self.triple().is_ok_and(|triple| {
            let whole = self.text.contains('-');
            triple == *target || (!whole && triple.architecture == target.architecture)
        })
    }
}

impl fmt::Display for TargetLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TargetLine { place: _, text, flags, settings: _ } = self;
        f.write_str(text)?;
        flags.iter().try_for_each(|flag| write!(f, " {}", flag.setting))
    }
}

impl Headers {
    /// Reads what stands before the first functions.
    ///
    /// # Errors
    ///
    /// Malformed settings, with their lines.
    pub fn of(sources: &[Source]) -> Result<Headers> {
        let texts = sources.iter().map(Header::of).collect::<Result<_>>()?;
        Ok(Headers { texts })
    }

    /// The target: the one that was asked for, or the first that the texts name, or x86-64.
    ///
    /// # Errors
    ///
    /// A target that this program cannot compile for, if there is no other.
    pub fn target(&self, asked: Option<&Triple>) -> Result<Triple> {
        if let Some(asked) = asked {
            return Ok(asked.clone());
        }
        let with_targets = self.texts.iter().find(|header| !header.targets.is_empty());
        let Some(targets) = with_targets.map(|header| &header.targets) else {
            return Ok(isa::short("x86_64"));
        };
        if let Some(triple) = targets.iter().find_map(|target| target.triple().ok()) {
            return Ok(triple);
        }
        let TargetLine { place, text, .. } = &targets[0];
        targets[0]
            .triple()
            .map_err(|reason| place.error(format!("target '{text}': {reason}")).into())
    }

    /// The settings for code for `targets`: those of the texts, and those that were `given`.
    ///
    /// # Errors
    ///
    /// Settings that do not exist or contradict each other, and texts that are for none of the
    /// targets, with their places.
    pub fn settings(&self, targets: &[Triple], given: &[Setting]) -> Result<Vec<Setting>> {
        // On the command line, as in a text, the last one holds.
        let given = last_of_each(given, |setting| &setting.name);
        let mut all: Vec<(Setting, Option<Place>)> =
            given.into_iter().map(|setting| (setting, None)).collect();
        for header in &self.texts {
            for Said { setting, place } in header.settings(targets)? {
                isa::check_setting(targets, &setting)
                    .map_err(|error| place.error(error.to_string()))?;
                let Some((other, first)) = all.iter().find(|(other, _)| other.name == setting.name)
                else {
                    all.push((setting, Some(place)));
                    continue;
                };
                if value(other) != value(&setting) {
                    let error =
                        |of: &str| place.error(format!("'{setting}' contradicts '{other}'{of}"));
                    return Err(match first {
                        None => error(" of the command line"),
                        Some(first) => error("").and(first, format!("'{other}'")),
                    }
                    .into());
                }
            }
        }
        Ok(all.into_iter().map(|(setting, _)| setting).collect())
    }
}

impl Header {
    /// Reads what stands before the first function. Settings and targets need not exist.
    ///
    /// # Errors
    ///
    /// Lines that cannot stand there, and malformed ones, with their places.
    pub fn of(source: &Source) -> Result<Header> {
        let mut header = Header::default();
        let lines = source.text.lines().take_while(|line| !is_function_line(line.trim_start()));
        for (number, line) in (1..).zip(lines) {
            header.add_line(&source.name, number, line)?;
        }
        Ok(header)
    }

    /// Adds what a line says, which has this number.
    ///
    /// # Errors
    ///
    /// The first mistake.
    pub fn add_line(&mut self, file: &str, number: usize, line: &str) -> Result<(), TextError> {
        let line = line.split(';').next().unwrap_or_default();
        let mut columns = Columns::new(number, line);
        let mut here = |input: &Input<'_>| Place::column(file, number, columns.here(input).1);
        let words = |input: &mut Input<'_>| repeat(0.., word.map(str::to_owned)).parse_next(input);
        let added = read(line, |input: &mut Input<'_>| {
            let known = |word| match ["test", "set", "target", "feature"].contains(&word) {
                true => Ok(word),
                false => Err(anyhow!("expected 'function', found '{word}'")),
            };
            let command = opt(word.try_map(known)).parse_next(input)?;
            let place = here(input);
            let mut settings = |input: &mut Input<'_>| {
                let setting = |input: &mut Input<'_>| {
                    let place = here(input);
                    let mut setting = word.try_map(|word| parse_setting(word).map_err(Error::msg));
                    Ok(Said { setting: setting.parse_next(input)?, place })
                };
                repeat(0.., setting).parse_next(input)
            };
            match command {
                None => {}
                Some("set") => {
                    let mut more: Vec<Said> = settings(input)?;
                    self.settings.append(&mut more);
                }
                Some("target") => {
                    let text = expect("expected a target", word).parse_next(input)?.to_owned();
                    let (flags, settings) = (settings(input)?, self.settings.clone());
                    self.targets.push(TargetLine { place, text, flags, settings });
                }
                Some("test") => self.tests.push((Place::line(file, number), words(input)?)),
                Some(_) => self.features.push(words(input)?.join(" ")),
            }
            Ok(())
        });
        added.map_err(|(column, error)| Place::column(file, number, column).error(error))
    }

    /// The settings for code for `targets`.
    fn settings(&self, targets: &[Triple]) -> Result<Vec<Said>> {
        let Some(first) = self.targets.first() else {
            return Ok(last_of_each(&self.settings, |said| &said.setting.name));
        };
        let lines: Vec<&TargetLine> = self
            .targets
            .iter()
            .filter(|line| targets.iter().any(|target| line.is(target)))
            .collect();
        let Some(last) = lines.last() else {
            let TargetLine { text, place, .. } = first;
            let targets: Vec<String> = targets.iter().map(Triple::to_string).collect();
            bail_at!(place, "'target {text}' contradicts the target {}", targets.join(", "))
        };
        let mut said = last.settings.clone();
        said.extend(lines.iter().flat_map(|line| &line.flags).cloned());
        Ok(last_of_each(&said, |said| &said.setting.name))
    }
}

/// Drops settings that are repeated later.
fn last_of_each<T: Clone>(said: &[T], name: impl Fn(&T) -> &str) -> Vec<T> {
    let later = |at: usize| said[at + 1..].iter().any(|later| name(later) == name(&said[at]));
    (0..said.len()).filter(|&at| !later(at)).map(|at| said[at].clone()).collect()
}

/// A value as Cranelift understands it.
fn value(setting: &Setting) -> &str {
    match setting.value.as_deref() {
        None | Some("true" | "on" | "yes" | "1") => "true",
        Some("false" | "off" | "no" | "0") => "false",
        Some(value) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::Headers;
    use crate::isa::{parse_setting, parse_target};
    use crate::sources::Source;

    /// The target and the settings of texts, or what is wrong with them.
    fn check(texts: &[&str], asked: Option<&str>, given: &[&str], expected: &str) {
        let sources = texts.iter().zip(["a", "b"]).map(|(text, name)| Source {
            name: name.to_owned(),
            text: format!("{text}\nfunction %f() {{\n"),
        });
        let asked = asked.map(|text| parse_target(text).unwrap());
        let given: Vec<_> = given.iter().map(|text| parse_setting(text).unwrap()).collect();
        let found = Headers::of(&sources.collect::<Vec<_>>()).and_then(|headers| {
            let target = headers.target(asked.as_ref())?;
            let settings = headers.settings(std::slice::from_ref(&target), &given)?;
            let settings: String = settings.iter().map(|setting| format!(" {setting}")).collect();
            Ok(format!("{}{settings}", target.architecture))
        });
        assert_eq!(found.unwrap_or_else(|error| error.to_string()), expected, "{texts:?}");
    }

    #[test]
    fn headers_apply_where_the_command_line_does_not() {
        check(&[""], None, &[], "x86_64");
        check(&["target aarch64 has_lse ; c"], None, &[], "aarch64 has_lse");
        check(
            &["set opt_level=none\ntarget x86_64"],
            None,
            &["is_pic"],
            "x86_64 is_pic opt_level=none",
        );
        check(
            &["set opt_level=none is_pic=0"],
            Some("aarch64"),
            &[],
            "aarch64 opt_level=none is_pic=0",
        );
        // Settings below a target are for later targets.
        let two = "set opt_level=none\ntarget x86_64\nset opt_level=speed\ntarget aarch64";
        check(&[two], None, &[], "x86_64 opt_level=none");
        check(&[two], Some("aarch64"), &[], "aarch64 opt_level=speed");
        check(&["target s390x\ntarget aarch64"], None, &[], "aarch64");
        check(&["", "target aarch64"], None, &[], "aarch64");
        check(&["set is_pic", ""], None, &["is_pic=true"], "x86_64 is_pic=true");
        check(&["target x86_64"], Some("x86_64-apple-darwin"), &[], "x86_64");
    }

    #[test]
    fn contradictions_have_places() {
        check(
            &["\ntarget aarch64"],
            Some("x86_64"),
            &[],
            "a:2:8: 'target aarch64' contradicts the target x86_64-unknown-linux-gnu",
        );
        check(
            &["target x86_64", "target aarch64"],
            None,
            &[],
            "b:1:8: 'target aarch64' contradicts the target x86_64-unknown-linux-gnu",
        );
        check(
            &["set opt_level=none"],
            None,
            &["opt_level=speed"],
            "a:1:5: 'opt_level=none' contradicts 'opt_level=speed' of the command line",
        );
        check(
            &["set opt_level=none", "set opt_level=speed"],
            None,
            &[],
            "b:1:5: 'opt_level=speed' contradicts 'opt_level=none'\na:1:5: 'opt_level=none'",
        );
        check(
            &["target s390x"],
            None,
            &[],
            "a:1:8: target 's390x': there is no back end for s390x; use x86_64, aarch64 or a triple \
             such as aarch64-apple-darwin",
        );
        check(
            &["set turbo"],
            None,
            &[],
            "a:1:5: unknown setting 'turbo': neither a shared setting of Cranelift nor one of the target",
        );
    }
}
