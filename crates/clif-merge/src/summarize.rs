//! `clif-merge summarize`: what other units must know of the functions of a unit.
//!
//! Reads a unit, merges identical functions, writes its summary. It does not look at other units.

use crate::args::{Common, Input, ReadUnit};
use crate::exit::{Exit, usage};
use crate::jobs::JobsArg;
use crate::output::Output;
use crate::table::{percent, thousands};
use anyhow::Result;
use clif_unit::pass;
use clif_unit::unit::Unit;
use cranelift_codegen::isa::TargetIsa;
use cranelift_mergefunc::across::ContentAddressing;
use cranelift_mergefunc::units::UnitSummary;
use cranelift_mergefunc::{Options, cranelift_codegen};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write a summary of a unit, for merging across units
///
/// A program is compiled as many units, which share function bodies: 'summarize' each unit, 'combine' all
/// summaries to a sharing map, and 'compile --map' each unit. Targets, settings and --compare-debug-info must be the same
/// in all three steps. The summary has no code: of each function a digest of its shape, its constants and what it
/// refers to, and a predicted size. The same unit gives the same bytes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", crate::exit::HELP))]
pub struct Opts {
    #[command(flatten)]
    input: Input,

    /// Where to write the summary
    #[arg(short, long, value_name = "OUT.summary")]
    output: PathBuf,

    /// The name of the unit, unique in the program; by default, the name of the output file
    /// without its extension
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    #[command(flatten)]
    common: Common,
}

const EXAMPLES: &str = "\
Examples:
  clif-merge summarize a.clif -o a.summary
  clif-merge combine a.summary b.summary -o program.map
  clif-merge compile --map program.map a.clif -o a.o";

/// Summarises and writes.
///
/// # Errors
///
/// What cannot be read or written.
pub fn run(opts: Opts) -> Result<ExitCode> {
    let Opts { input, output, name, common } = opts;
    let name = match name {
        Some(name) => name,
        None => name_of(&output)?,
    };
    let output = Output::check(&output)?;
    let ReadUnit { isa, texts, unit } = common.read(&input, &JobsArg::default().start()?)?;
    let summary = summary_of(&unit, &common.pass.options(&*isa, false), &*isa, name)?;
    let bytes = summary.to_bytes();
    output.write(&bytes)?;
    let text: usize = texts.iter().map(|source| source.text.len()).sum();
    common.general.say(&format!(
        "{} of {} functions may share bodies with other units; {} bytes, {:.2}% of the text",
        summary.functions.len(),
        unit.functions.len(),
        thousands(bytes.len() as u64),
        percent(bytes.len() as f64, text as f64),
    ));
    Ok(Exit::Done.into())
}

/// The summary of a unit. It depends neither on a map nor on whether the unit may have aliases.
///
/// # Errors
///
/// What cannot be added to a unit.
pub fn summary_of(
    unit: &Unit,
    options: &Options<'_>,
    isa: &dyn TargetIsa,
    name: String,
) -> Result<UnitSummary> {
    let content_addressing = Some(ContentAddressing::of(isa));
    let options = Options { content_addressing, aliases: false, ..*options };
    pass::summarize(unit, &options, name)
}

/// The name of a unit by the file that is made of it.
pub fn name_of(output: &Path) -> Result<String> {
    let stem = output.file_stem().and_then(|stem| stem.to_str()).filter(|stem| *stem != "-");
    let message = "the unit needs a name: use --name NAME";
    stem.map(str::to_owned).ok_or_else(|| usage(message))
}
