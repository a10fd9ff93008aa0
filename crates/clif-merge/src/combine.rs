//! `clif-merge combine`: from the summaries of all units to a sharing map.
//!
//! Reads summaries lazily, decides about the functions of each shape, writes. It reads no code.

use crate::args::{General, SimilarPolicy};
use crate::exit::{Exit, usage};
use crate::output::Output;
use crate::sharing::Sets;
use crate::table::thousands;
use anyhow::{Context as _, Result, anyhow};
use cranelift_mergefunc::across::decide_sharing;
use cranelift_mergefunc::units::{
    CombineError, Combined, FileAt, Group, Outputs, Summaries, combine, merge_summaries,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Combine the summaries of all units of a program to a sharing map
///
/// The map says which functions of all units share a body, and by which parameters. Any grouping
/// and order of summaries gives the same bytes. With --partial, the result is a summary of several
/// units, to be combined further.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", crate::exit::HELP))]
pub struct Opts {
    /// Summaries
    #[arg(required = true, value_name = "IN.summary")]
    inputs: Vec<PathBuf>,

    /// Where to write the map, or with --partial the summary
    #[arg(short, long, value_name = "OUT.map", required_unless_present_any = ["parts", "report"])]
    output: Option<PathBuf>,

    /// A directory for a map for each unit, UNIT.map, which has only what concerns the unit
    ///
    /// A file whose contents would not change is not written. So a build engine compiles only those
    /// units again of which the map changed.
    #[arg(long, value_name = "DIR", conflicts_with = "partial")]
    parts: Option<PathBuf>,

    /// Write a summary of all these units instead of a map
    #[arg(long, conflicts_with = "similar")]
    partial: bool,

    /// Write which functions of which units share bodies, those that save most first; '-' is
    /// standard output
    #[arg(long, value_name = "FILE", conflicts_with = "partial")]
    report: Option<PathBuf>,

    /// The format of the report
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text, requires = "report")]
    format: Format,

    /// Which functions that differ only in constants and callees share bodies
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = SimilarPolicy::Balanced)]
    similar: SimilarPolicy,

    #[command(flatten)]
    general: General,
}

/// The values of `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Tables for a person
    Text,
    /// One JSON object
    Json,
}

const EXAMPLES: &str = "\
Examples:
  clif-merge combine a.summary b.summary -o program.map
  clif-merge combine *.summary --parts maps
  clif-merge combine --partial a.summary b.summary -o ab.summary
  clif-merge combine *.summary --report -          which functions share bodies";

/// Combines and writes.
///
/// # Errors
///
/// Files that cannot be read or written; summaries that are damaged, of another version, or do not
/// belong together.
pub fn run(opts: Opts) -> Result<ExitCode> {
    let Opts { inputs, output, parts, partial, report, format, similar, general } = opts;
    let output = output.as_deref().map(Output::check).transpose()?;
    if output.as_ref().is_some_and(Output::is_terminal) {
        return Err(usage("a map is not written to a terminal; use -o FILE"));
    }
    let report = report.as_deref().map(Output::check).transpose()?;
    let files = open(&inputs)?;
    let summaries = summaries(&files, &inputs)?;
    let failed = |error| of_inputs(error, &inputs);
    if partial {
        let output = output.expect("required");
        output.write_with(&mut |write| {
            let mut sink = |bytes: &[u8]| write.write_all(bytes).map_err(Into::into);
            merge_summaries(&summaries, &mut sink).map_err(failed)
        })?;
        let units: usize = summaries.iter().map(|summaries| summaries.units().len()).sum();
        general.say(&format!("a summary of {units} units"));
        return Ok(Exit::Done.into());
    }
    let policy = similar.policy();
    let mut map = Vec::new();
    let mut of_units: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut whole = |bytes: &[u8]| {
        map.extend_from_slice(bytes);
        Ok(())
    };
    let mut part = |unit: &str, bytes: &[u8]| {
        match of_units.get_mut(unit) {
            Some(part) => part.extend_from_slice(bytes),
            None => _ = of_units.insert(unit.to_owned(), bytes.to_vec()),
        }
        Ok(())
    };
    let mut outputs = Outputs::default();
    if output.is_some() {
        outputs.map = Some(&mut whole);
    }
    if parts.is_some() {
        outputs.parts = Some(&mut part);
    }
    let mut decided = Sets::default();
    let is_reported = report.is_some();
    let decide = &mut |group: &Group<'_>| {
        let sets = decide_sharing(group, policy);
        if is_reported {
            decided.add(group, &sets);
        }
        sets
    };
    let combined = combine(&summaries, decide, &mut outputs).map_err(failed)?;
    if let Some(report) = report {
        let text = match format {
            Format::Text => decided.text()?,
            Format::Json => decided.json(&combined)?,
        };
        report.write(text.as_bytes())?;
    }
    if let Some(output) = output {
        output.write(&map)?;
    }
    let changed = parts.map(|directory| write_parts(&directory, &of_units)).transpose()?;
    let Combined { units, functions, grouped, sets, members, saved, .. } = combined;
    general.say(&format!(
        "{members} of {functions} functions of {units} units share {sets} bodies; about {} bytes saved",
        thousands(saved.max(0) as u64)
    ));
    if general.verbose {
        general.say(&format!("{grouped} functions have the shape of another one"));
        if let Some(changed) = changed {
            general.say(&format!("{changed} of {units} maps changed"));
        }
    }
    Ok(Exit::Done.into())
}

/// Opens files.
///
/// # Errors
///
/// Files that cannot be read.
pub fn open(paths: &[PathBuf]) -> Result<Vec<FileAt>> {
    let open = |path: &PathBuf| {
        FileAt::open(path).with_context(|| format!("cannot read {}", path.display()))
    };
    paths.iter().map(open).collect()
}

/// Opens the summaries in files.
///
/// # Errors
///
/// Summaries that are damaged or of another version.
pub fn summaries<'a>(files: &'a [FileAt], paths: &[PathBuf]) -> Result<Vec<Summaries<'a>>> {
    let open = |(file, path): (&'a FileAt, &PathBuf)| {
        Summaries::open(file).map_err(|error| anyhow!("{}: {error}", path.display()))
    };
    files.iter().zip(paths).map(open).collect()
}

/// The error with the name of the file that it is about.
fn of_inputs(error: CombineError, inputs: &[PathBuf]) -> anyhow::Error {
    match error {
        CombineError::Input { input, error } => anyhow!("{}: {error}", inputs[input].display()),
        CombineError::Settings { input } => anyhow!(
            "{}: made for another target, with other settings or by another version than {}",
            inputs[input].display(),
            inputs[0].display()
        ),
        error @ (CombineError::DuplicateUnit(_)
        | CombineError::TooLarge(_)
        | CombineError::Output(_)) => anyhow!("{error}"),
    }
}

/// Writes the map of each unit whose file would change. Returns how many those are.
fn write_parts(directory: &Path, parts: &BTreeMap<String, Vec<u8>>) -> Result<usize> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let mut changed = 0;
    for (unit, bytes) in parts {
        let name = Path::new(unit);
        if name.components().count() != 1 || name.file_name().is_none() {
            return Err(anyhow!("no file can have the name of the unit `{unit}`"));
        }
        let path = directory.join(format!("{unit}.map"));
        if std::fs::read(&path).is_ok_and(|before| before == *bytes) {
            continue;
        }
        Output::check(&path)?.write(bytes)?;
        changed += 1;
    }
    Ok(changed)
}
