//! `clif-merge compile`: the merged unit as a native object file.
//!
//! Reads a unit, merges, compiles what is left, writes the object. It does not link.

use crate::args::{Common, Input};
use crate::check::check;
use crate::codegen::{Compiler, size};
use crate::emit_object::emit;
use crate::exit::{Exit, usage};
use crate::merge::{details, eprint_table, summary};
use crate::output::Output;
use crate::pass;
use crate::progress::Progress;
use crate::table::{percent, thousands};
use crate::unit::{Became, Unit};
use anyhow::{Result, bail};
use cranelift_codegen::isa::TargetIsa;
use cranelift_mergefunc::{Target, cranelift_codegen};
use std::path::PathBuf;
use std::process::ExitCode;

/// Merge functions and make an object file of what is left
///
/// A function %f gets the symbol 'f', one called u0:5 the symbol 'u0:5'. What the unit does not
/// define becomes an undefined symbol. The object has no unwind or debug information.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", crate::exit::HELP))]
pub struct Opts {
    #[command(flatten)]
    input: Input,

    /// Where to write the object file; '-' is standard output, unless that is a terminal
    #[arg(short, long, value_name = "OUT.o")]
    output: PathBuf,

    /// Print a table on standard error: what became of each function, and why
    #[arg(short = 'D', long)]
    dispositions: bool,

    /// Never give two symbols one address: use thunks instead
    #[arg(long, help_heading = "Merging")]
    no_alias: bool,

    #[command(flatten)]
    common: Common,
}

const EXAMPLES: &str = "\
Examples:
  clif-merge compile unit.clif -o unit.o
  clif-merge compile --target aarch64 --set opt_level=none unit.clif -o unit.o
  clif-merge compile --target x86_64-pc-windows-msvc unit.clif -o unit.obj
  clif-merge compile -v unit.clif -o unit.o      also tell how many bytes it saves";

/// Merges, compiles and writes.
///
/// # Errors
///
/// What cannot be read, compiled or written, and with `--verify` what is wrong with the result.
pub fn run(opts: Opts) -> Result<ExitCode> {
    let Opts { input, output, dispositions, no_alias, common } = opts;
    let output = Output::check(&output)?;
    if output.is_terminal() {
        return Err(usage("an object file is not written to a terminal; use -o FILE"));
    }
    let isa = common.isa()?;
    let unit = input.read(&common.general)?;
    if let Some(data) = unit.data.first() {
        bail!("{}: data objects cannot be compiled yet", data.place);
    }
    let options = common.pass.options(&*isa, !no_alias);
    let mut compiler = Compiler::new(&*isa);
    let merged = pass::merge(&unit, &options, &mut |func| compiler.size(func))?;
    if common.pass.verify {
        check(&unit, &merged, &options, &*isa)?;
    }
    let mut messages = vec![summary(&merged)];
    if common.general.verbose {
        messages.push(details(&merged));
    }
    if dispositions {
        eprint_table(&merged);
    }
    let object = emit(&unit, merged, &isa, common.general.quiet)?;
    if common.general.verbose {
        let before = size_before(&unit, &*isa, common.general.quiet)?;
        let saved = before as f64 - object.code_size as f64;
        messages.push(format!(
            "{} bytes of code, {} without merging: {:.2}% saved",
            thousands(object.code_size),
            thousands(before),
            percent(saved, before as f64),
        ));
    }
    output.write(&object.bytes)?;
    for message in messages {
        common.general.say(&message);
    }
    Ok(Exit::Done.into())
}

/// The bytes of code of the unit as it was read.
fn size_before(unit: &Unit, isa: &dyn TargetIsa, quiet: bool) -> Result<u64> {
    let mut progress = Progress::new("compiling what was read", unit.functions.len(), quiet);
    let mut compiler = Compiler::new(isa);
    let mut total = 0;
    for index in 0..unit.functions.len() {
        progress.step();
        total += u64::from(given_size(unit, index, &mut compiler, isa)?);
    }
    Ok(total)
}

/// The bytes of code of a function as it was read. What the text calls a thunk is one.
pub fn given_size(
    unit: &Unit,
    index: usize,
    compiler: &mut Compiler<'_>,
    isa: &dyn TargetIsa,
) -> Result<u32> {
    let jump = || Target::of(isa).jump_thunk.map_or(0, |jump| jump.size());
    match unit.given[index].became {
        Some((Became::Alias, _)) => Ok(0),
        Some((Became::Thunk, _)) => Ok(jump()),
        None => Ok(size(compiler.compile_of(unit, index, unit.functions[index].clone())?)),
    }
}
