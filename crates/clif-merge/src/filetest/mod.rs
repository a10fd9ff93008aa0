//! Filetests: files of functions with the expected results of merging them.
//!
//! `filetests/readme.clif` describes the format. [`check`] does what the header of one file asks
//! for and reports, and [`workers`] has that done where a crash is only a failed test; which files there
//! are, and what is printed, is for the subcommand.

mod header;
mod lines;
mod merge;
mod run;
pub mod workers;

use crate::output::Output;
use anyhow::{Context as _, ensure};
use clif_unit::contain::contain;
use clif_unit::marks::Marks;
use clif_unit::sources::BYTE_ORDER_MARK;
use clif_unit::unit::{self, Reading, Source, Unit};
use clif_unit::verify::Verifier;
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa};
use cranelift_mergefunc::cranelift_codegen;
use header::{Header, NOT_BUILT_IN};
use lines::Lines;
use merge::MergeOptions;
use serde::{Deserialize, Serialize};
use std::path::Path;
use target_lexicon::Triple;

/// How files are checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// The files are tests of other programs: what cannot be read or compiled is skipped.
    pub foreign: bool,
    /// Write the expectations of `test merge` anew instead of comparing them.
    pub bless: bool,
}

/// The result of a file.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Report {
    /// How it ended.
    pub verdict: Verdict,
    /// What was left out of a file that passed, and the output of its `print:` commands.
    pub notes: Vec<String>,
    /// Run commands performed, once for each target.
    pub run_commands: usize,
    /// Functions merged away.
    pub merged: usize,
}

/// How the check of a file ended.
#[derive(Debug, Default, Deserialize, Serialize)]
pub enum Verdict {
    /// All that could be checked is right.
    #[default]
    Passed,
    /// The file has new expectations.
    Blessed,
    /// Something is wrong.
    Failed(String),
    /// Nothing could be checked.
    Skipped(String),
}

/// Why a check goes no further.
#[derive(Debug)]
pub enum Stop {
    /// It does not apply here.
    Skip(String),
    /// Something is wrong.
    Fail(String),
}

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Stop {
        Stop::Fail(format!("{error:#}"))
    }
}

/// A panic becomes a failure.
fn catch<T>(check: impl FnOnce() -> Result<T, Stop>) -> Result<T, Stop> {
    contain(check).unwrap_or_else(|panic| Err(Stop::Fail(format!("panic: {panic}"))))
}

/// Checks one file.
pub fn check(path: &Path, settings: Settings) -> Report {
    let mut report = Report::default();
    report.verdict = match catch(|| check_file(path, settings, &mut report)) {
        Ok(verdict) => verdict,
        Err(Stop::Skip(reason)) => Verdict::Skipped(reason),
        Err(Stop::Fail(reason)) => Verdict::Failed(reason),
    };
    report
}

/// The commands of a header.
struct Wanted {
    /// The options of `test merge`, if the file has it.
    merge: Option<MergeOptions>,
    run: bool,
    /// Commands of other programs.
    others: Vec<String>,
}

fn check_file(path: &Path, settings: Settings, report: &mut Report) -> Result<Verdict, Stop> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
    // A foreign file is written for another program, so it is skipped if it cannot be read.
    let misread = |error: anyhow::Error| match settings.foreign {
        true => Stop::Skip(format!("cannot be read: {error:#}")),
        false => Stop::from(error),
    };
    let marked = bytes.starts_with(BYTE_ORDER_MARK.encode_utf8(&mut [0; 4]).as_bytes());
    let source = Source::new(name.clone(), bytes).map_err(misread)?;
    let text = source.text.clone();
    let lines = Lines::new(&text);
    let header = Header::parse(&source).map_err(misread)?;
    let wanted = wanted(&header).map_err(misread)?;
    for other in &wanted.others {
        report.notes.push(format!("'test {other}' is left out: no command of this program"));
    }
    if wanted.merge.is_none() && !wanted.run {
        let others = match wanted.others.is_empty() {
            true => String::new(),
            false => format!(", but {}", wanted.others.join(", ")),
        };
        return Err(Stop::Skip(format!("neither 'test merge' nor 'test run'{others}")));
    }
    if let Some(feature) = header.features.first() {
        return Err(Stop::Skip(format!("asks for Cranelift with feature {feature}")));
    }

    // As Cranelift does, so that functions with run commands can be called.
    let call_conv = match wanted.run {
        true => CallConv::triple_default(&Triple::host()),
        false => CallConv::Fast,
    };
    let options = wanted.merge.unwrap_or_else(MergeOptions::everything_local);
    let verifier = verifier(&header).map_err(misread)?;
    let (defaults, marks) = (options.defaults, Marks::default());
    let reading = Reading { defaults, marks, call_conv, verifier: &verifier, parallel: false };
    let unit = unit::parse_unit(&[source], reading).map_err(misread)?;
    if lines.len() != unit.functions.len() {
        return Err(Stop::Fail(format!("{name}: a function does not begin on a line of its own")));
    }
    let commands = run::commands(&name, &lines, &unit, !settings.foreign).map_err(misread)?;
    // A file that asks for a test and says none would pass whatever merging does.
    if wanted.run && commands.is_empty() {
        return Err(match settings.foreign {
            true => Stop::Skip("'test run' without a run command".to_owned()),
            false => Stop::Fail(format!("{name}: 'test run' without a run command")),
        });
    }
    if !settings.foreign && !wanted.run && !commands.is_empty() {
        return Err(Stop::Fail(format!("{name}: a run command without 'test run'")));
    }

    let mut checked = false;
    let mut skipped = Vec::new();
    let mut left_out: Vec<(String, Vec<&str>)> = Vec::new();
    let mut new_text = None;
    if let Some(options) = wanted.merge {
        match first_isa(&header)? {
            Err(reason) => skipped.push(format!("'test merge' is left out: {reason}")),
            Ok(isa) => {
                let merged = check_merge(&unit, &options, isa.as_ref())?;
                checked = true;
                report.merged = merge::merged_away(&unit, &merged);
                let expected = lines.with_expectations(&merge::expectations(&unit, &merged));
                new_text = (expected != text).then_some(expected);
            }
        }
    }
    if wanted.run {
        for target in &header.targets {
            let mut leave_out =
                |reason: String| match left_out.iter_mut().find(|(r, _)| *r == reason) {
                    Some((_, targets)) => targets.push(&target.text),
                    None => left_out.push((reason, vec![&target.text])),
                };
            let isa = match target.host_isa()? {
                Ok(isa) => isa,
                Err(reason) => {
                    leave_out(reason);
                    continue;
                }
            };
            match run::run(&unit, &commands, &options, &isa, settings.foreign) {
                Ok(outcome) => {
                    report.run_commands += commands.len();
                    if !checked {
                        report.merged = outcome.merged;
                    }
                    report.notes.extend(outcome.printed);
                    checked = true;
                }
                Err(Stop::Skip(reason)) => leave_out(reason),
                Err(Stop::Fail(reason)) => {
                    return Err(Stop::Fail(format!("target {}: {reason}", target.text)));
                }
            }
        }
    }
    for (reason, targets) in left_out {
        skipped.push(format!("not run for {}: {reason}", targets.join(", ")));
    }
    if !checked {
        return Err(Stop::Skip(skipped.join("; ")));
    }
    report.notes.extend(skipped);
    match new_text {
        None => Ok(Verdict::Passed),
        Some(mut new_text) if settings.bless => {
            if marked {
                new_text.insert(0, BYTE_ORDER_MARK);
            }
            Output::check(path)?.write(new_text.as_bytes())?;
            Ok(Verdict::Blessed)
        }
        Some(new_text) => Err(Stop::Fail(format!(
            "{name}: the result of merging differs from the expectations:\n{}\
             If this is right, run again with CRANELIFT_TEST_BLESS=1 to rewrite the file.",
            diff(&text, &new_text, "expected", "merged"),
        ))),
    }
}

fn wanted(header: &Header) -> anyhow::Result<Wanted> {
    let merge = match header.command("merge")? {
        None => None,
        Some(command) => {
            let options = MergeOptions::parse(command);
            Some(options.with_context(|| command.place.to_string())?)
        }
    };
    let run = header.command("run")?;
    if let Some(run) = run {
        ensure!(run.options.is_empty(), "{}: 'test run' has no options", run.place);
        ensure!(!header.targets.is_empty(), "{}: 'test run' needs a 'target'", run.place);
    }
    let others = header.commands.iter().map(|command| &command.name);
    let others = others.filter(|name| !["merge", "run"].contains(&name.as_str())).cloned();
    Ok(Wanted { merge, run: run.is_some(), others: others.collect() })
}

/// The first target that this program has, or none if the header names none; or why there is none.
fn first_isa(header: &Header) -> anyhow::Result<Result<Option<OwnedTargetIsa>, String>> {
    if header.targets.is_empty() {
        return Ok(Ok(None));
    }
    for target in &header.targets {
        if let Some(isa) = target.isa()? {
            return Ok(Ok(Some(isa)));
        }
    }
    let targets: Vec<_> = header.targets.iter().map(|target| target.text.as_str()).collect();
    Ok(Err(format!("target {}: {NOT_BUILT_IN}", targets.join(", "))))
}

/// The verifier for the first target that this program has, or for none.
fn verifier(header: &Header) -> anyhow::Result<Verifier> {
    Ok(match first_isa(header)? {
        Ok(Some(isa)) => Verifier::new(&*isa),
        Ok(None) | Err(_) => Verifier::without_target(),
    })
}

fn check_merge(
    unit: &Unit,
    options: &MergeOptions,
    isa: Option<&OwnedTargetIsa>,
) -> anyhow::Result<clif_unit::pass::Merged> {
    let isa = isa.map(|isa| &**isa);
    merge::merge(&*options.unit(unit, isa)?, &options.for_isa(isa), isa)
}

/// The difference of two texts, with line numbers.
fn diff(old: &str, new: &str, old_name: &str, new_name: &str) -> String {
    let diff = similar::TextDiff::from_lines(old, new);
    diff.unified_diff().context_radius(3).header(old_name, new_name).to_string()
}

#[cfg(test)]
mod tests {
    use super::{Header, Lines, contain, run, wanted};
    use arbitrary::Unstructured;
    use clif_unit::sources::Source;
    use clif_unit::unit::{Reading, Unit, parse_unit};
    use clif_unit::verify::Verifier;
    use testkit::support::Rng;
    use testkit::text_mutation::mutated;

    /// Reads a text as a filetest and blesses it twice; runs nothing.
    fn read(source: &Source, unit: Option<&Unit>) -> anyhow::Result<()> {
        let Source { name, text } = source;
        let lines = Lines::new(text);
        wanted(&Header::parse(source)?)?;
        if let Some(unit) = unit.filter(|unit| unit.functions.len() == lines.len()) {
            let expectations = vec![vec!["; keep: representative".to_owned()]; lines.len()];
            let blessed = lines.with_expectations(&expectations);
            assert_eq!(Lines::new(&blessed).with_expectations(&expectations), blessed);
            contain(|| run::commands(name, &lines, unit, true))
                .unwrap_or_else(|panic| Err(anyhow::anyhow!("{name}: panic: {panic}")))?;
        }
        Ok(())
    }

    /// No text ends the runner by a panic, and an error names the file.
    #[test]
    fn changed_texts_are_read_or_refused() {
        let all = testkit::text::filetests();
        let verifier = Verifier::without_target();
        for seed in 0..200 {
            let bytes = Rng::new(seed).bytes(512);
            let mut u = Unstructured::new(&bytes);
            let Ok(text) = u.choose(&all).and_then(|text| mutated(text, &mut u)) else { continue };
            let source = [Source { name: "f.clif".to_owned(), text }];
            let unit = parse_unit(&source, Reading::plain(&verifier)).ok();
            let [source] = &source;
            if let Err(error) = read(source, unit.as_ref()) {
                assert!(format!("{error:#}").starts_with("f.clif"), "{error:#}\n{}", source.text);
            }
        }
    }
}
