//! `clif-merge test`: runs filetests and reports.
//!
//! Finds the files, has them checked by `filetest` in processes of their own, and prints one line
//! for each that failed or was skipped, in the order of the files.

use crate::exit::Exit;
use crate::filetest::workers::{self, Limits};
use crate::filetest::{Report, Settings, Verdict};
use crate::output;
use anyhow::{Context as _, Result, ensure};
use clif_unit::sources::{self, Entry};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Run filetests: functions with the expected results of merging them
///
/// A file says at its beginning how it is tested: 'test merge' compares the disposition of every
/// function, 'test run' calls functions before and after merging; filetests/readme.clif describes
/// the format. A file whose code crashes or never ends has failed, and the others still run. With
/// CRANELIFT_TEST_BLESS=1 in the environment, expectations are rewritten instead of compared.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", crate::exit::HELP))]
pub struct Opts {
    /// Files, and directories of .clif files at any depth
    ///
    /// Links are followed; a file that several of them lead to is tested once.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// The files are tests of other programs: skip what cannot be read or compiled
    ///
    /// Unless a file says otherwise, its functions are local, with insignificant addresses.
    #[arg(long)]
    foreign: bool,

    /// How long a file may take before it has failed
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..),
    )]
    time_limit: u64,

    /// Name every file, and what was left out of it
    #[arg(short, long)]
    verbose: bool,

    /// For `filetest::workers`: check these files one after another, and print each result as JSON
    #[arg(long, hide = true)]
    worker: bool,
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
    let Opts { paths, foreign, time_limit, verbose, worker } = opts;
    let bless = std::env::var_os("CRANELIFT_TEST_BLESS").is_some_and(|value| value == "1");
    let settings = Settings { foreign, bless };
    if worker {
        workers::work(&paths, settings)?;
        return Ok(Exit::Done.into());
    }
    let files = files_of(&paths)?;
    let mut counts = Counts::default();
    // Reports that came before those of earlier files.
    let mut early: BTreeMap<usize, Report> = BTreeMap::new();
    let mut said = 0;
    let limits = Limits { settings, time: Duration::from_secs(time_limit) };
    workers::check_all(&files, limits, |at, report| {
        early.insert(at, report);
        while let Some(report) = early.remove(&said) {
            counts.say(&files[said], report, verbose)?;
            said += 1;
        }
        Ok(())
    })?;
    let Counts { passed, failed, skipped, run_commands, merged } = counts;
    say(&format!(
        "{passed} passed, {failed} failed, {skipped} skipped; {run_commands} run commands; \
         {merged} merged functions"
    ))?;
    Ok(match failed {
        0 => Exit::Done.into(),
        _ => Exit::Input.into(),
    })
}

/// The results of all files.
#[derive(Debug, Default)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
    run_commands: usize,
    merged: usize,
}

impl Counts {
    /// Counts the result of a file, and prints it.
    fn say(&mut self, file: &Path, report: Report, verbose: bool) -> Result<()> {
        let name = file.display();
        let Report { verdict, notes, run_commands, merged } = report;
        self.run_commands += run_commands;
        self.merged += merged;
        match verdict {
            Verdict::Passed => {
                self.passed += 1;
                if verbose {
                    say(&format!(
                        "pass: {name}: {run_commands} run commands, {merged} merged functions"
                    ))?;
                }
            }
            Verdict::Blessed => {
                self.passed += 1;
                say(&format!("bless: {name}"))?;
            }
            Verdict::Skipped(reason) => {
                self.skipped += 1;
                say(&format!("skip: {name}: {reason}"))?;
            }
            Verdict::Failed(reason) => {
                self.failed += 1;
                say(&format!("fail: {name}: {}", without_place(&reason, file)))?;
            }
        }
        if verbose {
            for note in notes {
                say(&format!("note: {name}: {note}"))?;
            }
        }
        Ok(())
    }
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

/// All files that the paths name, each once, in the order of the paths, and of the names in them.
fn files_of(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut seen = BTreeSet::new();
    for path in paths {
        let cannot_read = || format!("cannot read {}", path.display());
        let is_directory = std::fs::metadata(path).with_context(cannot_read)?.is_dir();
        let mut any = false;
        // The entries still to be visited, the next one last.
        let mut open = vec![Entry { path: path.clone(), is_directory }];
        while let Some(Entry { path, is_directory }) = open.pop() {
            // A path that cannot be resolved, such as that of a pipe on the command line, is used
            // as it is.
            let is_new = seen.insert(std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone()));
            any |= !is_directory || !is_new;
            if is_new && is_directory {
                open.extend(sources::entries(&path)?.into_iter().rev());
            } else if is_new {
                files.push(path);
            }
        }
        ensure!(any, "{}: no .clif files", path.display());
    }
    Ok(files)
}
