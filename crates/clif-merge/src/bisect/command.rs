//! The command that `bisect` runs, and how a run ended.
//!
//! It does not limit how long a run takes (`timeout` does that), and does not end a command that is
//! running when a signal ends this program. The output of the command is shown with `--verbose`
//! only, on standard error.

use anyhow::{Context as _, Result};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{self, ExitStatus, Stdio};

/// The environment variable from which embedders that are bisected take the limit of merges.
pub const MERGE_LIMIT_VARIABLE: &str = "CRANELIFT_MERGEFUNC_MERGE_LIMIT";

/// The placeholder for the path of the merged unit.
const PLACEHOLDER: &str = "{}";

/// How a run of the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With 0.
    Passes,
    /// With a code that counts as failure.
    Fails,
    /// With a code that says nothing: neither 0 nor the one that was asked for.
    Other(i32),
}

/// The command.
#[derive(Debug)]
pub struct Command {
    words: Vec<OsString>,
    /// The only code that counts as failure.
    fails_with: Option<i32>,
    verbose: bool,
    runs: usize,
}

impl Command {
    /// `words` are the program and its arguments; there is at least one.
    pub fn new(words: Vec<OsString>, fails_with: Option<i32>, verbose: bool) -> Command {
        Command { words, fails_with, verbose, runs: 0 }
    }

    /// How often it was run.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// Runs it on a file: its path takes the place of `{}`, or stands at the end.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn on_file(&mut self, path: &Path) -> Result<Outcome> {
        let mut command = process::Command::new(&self.words[0]);
        let mut named = false;
        for word in &self.words[1..] {
            let (word, found) = with_path(word, path);
            command.arg(word);
            named |= found;
        }
        if !named {
            command.arg(path);
        }
        self.run(command)
    }

    /// Runs it with a limit of merges in its environment.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn with_limit(&mut self, limit: Option<u32>) -> Result<Outcome> {
        let mut command = process::Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        match limit {
            Some(limit) => command.env(MERGE_LIMIT_VARIABLE, limit.to_string()),
            None => command.env_remove(MERGE_LIMIT_VARIABLE),
        };
        self.run(command)
    }

    fn run(&mut self, mut command: process::Command) -> Result<Outcome> {
        self.runs += 1;
        command.stdin(Stdio::null());
        if self.verbose {
            command.stdout(std::io::stderr());
        } else {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        let status = command.status();
        let status = status
            .with_context(|| format!("cannot run {}", Path::new(&self.words[0]).display()))?;
        Ok(match (code(status), self.fails_with) {
            (0, _) => Outcome::Passes,
            (code, Some(asked)) if code != asked => Outcome::Other(code),
            _ => Outcome::Fails,
        })
    }
}

/// The exit code, or 128 and the number of the signal that ended the command, as shells have it.
fn code(status: ExitStatus) -> i32 {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt as _;
        if let Some(signal) = status.signal() {
            return 128 + signal;
        }
    }
    status.code().unwrap_or(1)
}

/// A word with the path in every place of `{}`, and whether there is one. A word that is not UTF-8
/// has none, unless it is the path itself that is not.
fn with_path(word: &OsStr, path: &Path) -> (OsString, bool) {
    let Some(text) = word.to_str().filter(|text| text.contains(PLACEHOLDER)) else {
        return (word.to_owned(), false);
    };
    let mut replaced = OsString::new();
    for (at, part) in text.split(PLACEHOLDER).enumerate() {
        if at > 0 {
            replaced.push(path);
        }
        replaced.push(part);
    }
    (replaced, true)
}

#[cfg(test)]
mod tests {
    use super::{Command, Outcome, with_path};
    use std::ffi::OsStr;
    use std::path::Path;

    #[test]
    fn every_placeholder_is_replaced() {
        let path = Path::new("a b");
        for (word, expected, found) in
            [("{}", "a b", true), ("x={}:{}", "x=a b:a b", true), ("{x}", "{x}", false)]
        {
            let expected = (OsStr::new(expected).to_owned(), found);
            assert_eq!(with_path(OsStr::new(word), path), expected);
        }
    }

    #[cfg(unix)]
    #[test]
    fn codes_and_signals() {
        for (script, fails_with, expected) in [
            ("exit 0", None, Outcome::Passes),
            ("exit 1", None, Outcome::Fails),
            ("exit 1", Some(2), Outcome::Other(1)),
            ("exit 2", Some(2), Outcome::Fails),
            ("kill -s KILL $$", None, Outcome::Fails),
            ("kill -s KILL $$", Some(137), Outcome::Fails),
            // The path is the last argument: of `sh`, it is $0.
            ("test \"$0\" = file", None, Outcome::Passes),
        ] {
            let words = ["sh", "-c", script].map(Into::into).to_vec();
            let outcome = Command::new(words, fails_with, false).on_file(Path::new("file"));
            assert_eq!(outcome.unwrap(), expected, "{script}");
        }
        assert!(
            Command::new(vec!["/no/such/program".into()], None, false).with_limit(None).is_err()
        );
    }
}
