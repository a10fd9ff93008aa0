//! Filetests in processes of their own, because the code that they run can crash or never end.
//!
//! A worker is this program once more, with some of the files as arguments. It checks them one
//! after another and writes one line of JSON for each, so that the file at which a worker dies is
//! the first one without a line: that test failed, and a new worker goes on behind it. There is one
//! worker for each thread of the machine, and each gets many files, because starting one takes
//! longer than most files do.
//!
//! A worker ends when its standard input does, so that none outlives this process however it ends.

use super::{Report, Settings, Verdict, check};
use anyhow::{Context as _, Result};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// The most files that a worker gets: few enough for the command line of any system.
const MAX_FILES: usize = 32;
/// Batches of files for each worker, because files differ in how long they take.
const BATCHES: usize = 4;
/// So much of what a worker that died wrote to standard error is read, in bytes.
const MAX_STDERR: u64 = 1 << 16;
/// The number of its lines that are shown.
const STDERR_LINES: usize = 4;
/// Waits of 10 ms for a worker that closed its output to end.
const PATIENCE: usize = 1000;

/// How files are checked by workers.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The settings of each worker.
    pub settings: Settings,
    /// How long one file may take.
    pub time: Duration,
}

/// Checks files and hands out the result of each, by its index in `files`, in any order.
///
/// # Errors
///
/// If workers cannot be started.
pub fn check_all(
    files: &[PathBuf],
    limits: Limits,
    mut each: impl FnMut(usize, Report) -> Result<()>,
) -> Result<()> {
    let program = std::env::current_exe().context("cannot find the program itself")?;
    let count = std::thread::available_parallelism().map_or(1, usize::from).min(files.len());
    let batch = files.len().div_ceil(BATCHES * count.max(1)).clamp(1, MAX_FILES);
    let next = Mutex::new((0..files.len()).step_by(batch));
    std::thread::scope(|scope| {
        let (reports, received) = mpsc::channel();
        for _ in 0..count {
            let (next, program, reports) = (&next, &program, reports.clone());
            scope.spawn(move || {
                loop {
                    let start = next.lock().expect("no thread panics with it").next();
                    let Some(start) = start else { return };
                    let batch = start..(start + batch).min(files.len());
                    let stopped = check_batch(program, files, batch, limits, &mut |at, report| {
                        // The receiver is closed if another error ended the run.
                        reports.send(Ok((at, report))).is_ok()
                    });
                    if let Err(error) = stopped {
                        let _ = reports.send(Err(error));
                        return;
                    }
                }
            });
        }
        drop(reports);
        received.iter().try_for_each(|report| report.and_then(|(at, report)| each(at, report)))
    })
}

/// Checks some of the files by one worker after another, as long as `each` wants to know.
fn check_batch(
    program: &Path,
    files: &[PathBuf],
    mut batch: Range<usize>,
    limits: Limits,
    each: &mut dyn FnMut(usize, Report) -> bool,
) -> Result<()> {
    while !batch.is_empty() {
        let mut worker = Worker::start(program, &files[batch.clone()], limits.settings)?;
        for at in batch.clone() {
            batch.start = at + 1;
            let answer = worker.answer(limits.time);
            let died = answer.is_err();
            let report = answer.unwrap_or_else(|reason| Report {
                verdict: Verdict::Failed(reason),
                ..Report::default()
            });
            if !each(at, report) {
                return Ok(());
            }
            if died {
                break;
            }
        }
    }
    Ok(())
}

/// A process that checks files.
struct Worker {
    child: Child,
    /// Its lines.
    lines: mpsc::Receiver<String>,
    /// Its standard error, when that is closed.
    stderr: mpsc::Receiver<String>,
}

impl Worker {
    fn start(program: &Path, files: &[PathBuf], settings: Settings) -> Result<Worker> {
        // The environment, which the worker has too, says the rest.
        let Settings { foreign, bless: _ } = settings;
        let mut command = Command::new(program);
        command.args(["test", "--worker"]);
        command.args(foreign.then_some("--foreign"));
        // A path may begin like an option.
        command.arg("--").args(files);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let cannot_start = || format!("cannot start {}", program.display());
        let mut child = command.spawn().with_context(cannot_start)?;
        let stdout = BufReader::new(child.stdout.take().expect("is piped"));
        let stderr = child.stderr.take().expect("is piped");
        let (lines_of, lines) = mpsc::channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| lines_of.send(line))
        });
        let (stderr_of, stderr_text) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let mut stderr = stderr;
            let _ = stderr.by_ref().take(MAX_STDERR).read_to_end(&mut bytes);
            let _ = std::io::copy(&mut stderr, &mut std::io::sink());
            stderr_of.send(String::from_utf8_lossy(&bytes).into_owned())
        });
        Ok(Worker { child, lines, stderr: stderr_text })
    }

    /// The result of the next file, or why there is none; then the worker is dead.
    fn answer(&mut self, time: Duration) -> Result<Report, String> {
        match self.lines.recv_timeout(time) {
            Ok(line) => serde_json::from_str(&line)
                .map_err(|error| format!("the process that checks it says '{line}': {error}")),
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("it takes longer than {} s (see --time-limit)", time.as_secs_f64()))
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.status();
                // This is the only receiver, so it does not wait.
                let _ = self.child.kill();
                let stderr = self.stderr.recv().unwrap_or_default();
                let lines: Vec<&str> = stderr.lines().filter(|line| !line.is_empty()).collect();
                let last = &lines[lines.len().saturating_sub(STDERR_LINES)..];
                let said: String = last.iter().map(|line| format!("\n  {line}")).collect();
                Err(format!("it ended the process that ran it: {status}{said}"))
            }
        }
    }

    /// How the process ended, which it has or is about to. That can take a moment in which the
    /// system writes its memory to a file.
    fn status(&mut self) -> String {
        for _ in 0..PATIENCE {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.to_string(),
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => return error.to_string(),
            }
        }
        "it closed its standard output and went on".to_owned()
    }
}

impl Drop for Worker {
    /// A worker that has done its files is of no use any more, like every other one here.
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks files as a worker: one line of JSON for each.
///
/// # Errors
///
/// If standard output is closed.
pub fn work(files: &[PathBuf], settings: Settings) -> Result<()> {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        std::process::exit(i32::from(crate::exit::Exit::Input.code()));
    });
    let mut stdout = std::io::stdout();
    for file in files {
        let mut line = serde_json::to_string(&check(file, settings))?;
        line.push('\n');
        stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush())?;
    }
    Ok(())
}
