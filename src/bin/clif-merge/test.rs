//! `clif-merge test`: runs filetests and reports.
//!
//! Finds the files, has each checked by `filetest`, and prints one line for each that failed or
//! was skipped. A file whose code crashes takes the program with it; `--verbose` names each file
//! beforehand.

use crate::exit::Exit;
use crate::filetest::{self, Report, Settings, Verdict};
use crate::output;
use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run filetests: functions that say what merging must make of them
///
/// Each file names its tests in its header: 'test merge' compares what becomes of every function,
/// 'test run' calls functions before and after merging. The format is described in
/// filetests/readme.clif. With CRANELIFT_TEST_BLESS=1 in the environment, expectations are
/// rewritten instead of compared.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", crate::exit::HELP))]
pub struct Opts {
    /// Files, and directories of .clif files at any depth
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// The files are tests of something else: skip what cannot be read or compiled
    ///
    /// Unless a file says otherwise, its functions are local, with insignificant addresses.
    #[arg(long)]
    foreign: bool,

    /// Name every file, and what was left out of it
    #[arg(short, long)]
    verbose: bool,
}

const EXAMPLES: &str = "\
Examples:
  clif-merge test filetests
  clif-merge test -v filetests/readme.clif
  clif-merge test --foreign wasmtime/cranelift/filetests/filetests/runtests
  CRANELIFT_TEST_BLESS=1 clif-merge test filetests/readme.clif";

/// Runs filetests. The exit code is 1 if one failed.
///
/// # Errors
///
/// Paths that do not exist, and directories without filetests.
pub fn run(opts: Opts) -> Result<ExitCode> {
    let Opts { paths, foreign, verbose } = opts;
    let mut files = Vec::new();
    for path in &paths {
        let before = files.len();
        find(path, &mut files)?;
        ensure!(files.len() > before, "{}: no .clif files", path.display());
    }
    let bless = std::env::var_os("CRANELIFT_TEST_BLESS").is_some_and(|value| value == "1");
    let [mut passed, mut failed, mut skipped, mut run_commands, mut merged] = [0; 5];
    for file in &files {
        let name = file.display();
        if verbose {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "test: {name}");
        }
        let report = filetest::check(file, Settings { foreign, bless });
        let Report { verdict, notes, run_commands: commands, merged: away } = report;
        run_commands += commands;
        merged += away;
        match verdict {
            Verdict::Passed => {
                passed += 1;
                if verbose {
                    say(&format!(
                        "pass: {name}: {commands} run commands, {away} merged functions"
                    ))?;
                }
            }
            Verdict::Blessed => {
                passed += 1;
                say(&format!("bless: {name}"))?;
            }
            Verdict::Skipped(reason) => {
                skipped += 1;
                say(&format!("skip: {name}: {reason}"))?;
            }
            Verdict::Failed(reason) => {
                failed += 1;
                say(&format!("fail: {name}: {}", without_place(&reason, file)))?;
            }
        }
        if verbose {
            for note in notes {
                say(&format!("note: {name}: {note}"))?;
            }
        }
    }
    say(&format!(
        "{passed} passed, {failed} failed, {skipped} skipped; {run_commands} run commands; \
         {merged} merged functions"
    ))?;
    Ok(match failed {
        0 => Exit::Done.into(),
        _ => Exit::Input.into(),
    })
}

/// Writes a line to standard output.
fn say(line: &str) -> Result<()> {
    output::print(&format!("{line}\n"))
}

/// A reason without the path at its beginning, which the line already says; the line number stays.
fn without_place<'a>(reason: &'a str, file: &Path) -> &'a str {
    let path = format!("{}: ", file.display());
    reason.strip_prefix(&path).unwrap_or(reason)
}

/// The file, or the filetests below the directory, in the order of their names.
fn find(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let cannot_read = || format!("cannot read {}", path.display());
    if !std::fs::metadata(path).with_context(cannot_read)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(path).with_context(cannot_read)? {
        entries.push(entry.with_context(cannot_read)?.path());
    }
    entries.sort();
    for entry in entries {
        if entry.is_dir() || entry.extension().is_some_and(|extension| extension == "clif") {
            find(&entry, files)?;
        }
    }
    Ok(())
}
