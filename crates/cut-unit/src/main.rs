//! The program `cut-unit`: cuts a unit into many, and writes them into a directory. The library
//! says how.

use anyhow::{Context as _, Result, bail};
use clap::{Parser, ValueEnum};
use clif_unit::contain::intercepted;
use clif_unit::sources::read_file;
use cut_unit::{By, cut};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Cuts a unit of CLIF into many: DIR/unit-0000.clif and so on.
///
/// A function that another unit refers to becomes hidden, any other local, unless the unit says
/// that it is more visible.
#[derive(Parser)]
struct Args {
    /// The unit, a CLIF file.
    unit: PathBuf,
    /// How many units to make; fewer if there are fewer functions.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    units: u32,
    /// Which functions stay together: consecutive ones, or none, since they go to the units in
    /// turn.
    #[arg(long, value_enum)]
    by: ByArgument,
    /// Where to write the units: a directory that does not exist yet or is empty.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum ByArgument {
    Neighbouring,
    Turn,
}

fn main() -> ExitCode {
    // Cranelift's reader panics at some texts, which becomes an error with the message of the
    // panic.
    std::panic::set_hook(Box::new(|info| {
        let message = info.to_string();
        if !intercepted(&message) {
            eprintln!("{message}");
        }
    }));
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let Args { unit, units, by, output } = args;
    check_empty(output)?;
    let by = match by {
        ByArgument::Neighbouring => By::Neighbouring,
        ByArgument::Turn => By::Turn,
    };
    let units = cut(read_file(unit)?, *units as usize, by)?;
    write(&units, output).with_context(|| format!("cannot write {}", output.display()))
}

/// Files of another cut would be taken for units of this one.
fn check_empty(directory: &Path) -> Result<()> {
    match std::fs::read_dir(directory) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => bail!("{}: the directory is not empty", directory.display()),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| directory.display().to_string()),
    }
}

/// Writes a directory, which is there only once it is whole.
fn write(units: &[String], output: &Path) -> Result<()> {
    let parent = match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let directory = tempfile::Builder::new().prefix(".cut-unit-").tempdir_in(parent)?;
    // Under this name it gets the usual permissions.
    let whole = directory.path().join("units");
    std::fs::create_dir(&whole)?;
    for (number, text) in units.iter().enumerate() {
        std::fs::write(whole.join(format!("unit-{number:04}.clif")), text)?;
    }
    if output.exists() {
        std::fs::remove_dir(output)?;
    }
    Ok(std::fs::rename(whole, output)?)
}
