//! Running the program `clif-merge` in tests, and the files around it.
//!
//! The tests are in `crates/clif-merge/tests/cli.rs`.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The result of a run of the program.
#[derive(Debug)]
pub struct Run {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: String,
}

impl Run {
    /// Standard output as text.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("standard output is text")
    }

    /// Requires an exit code and a part of standard error. Nothing must have panicked.
    #[track_caller]
    pub fn expect(self, code: i32, stderr: &str) -> Run {
        assert_eq!(self.code, code, "{}", self.stderr);
        assert!(self.stderr.contains(stderr), "no '{stderr}' in: {}", self.stderr);
        assert!(!self.stderr.contains("internal error"), "{}", self.stderr);
        self
    }
}

/// The program, without the environment variables that change its output.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_clif-merge"));
    command.env("COLUMNS", "80").env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command.env_remove("RUST_BACKTRACE").current_dir(inputs());
    command
}

/// Runs the program with `stdin` as standard input.
#[track_caller]
pub fn run_with<S: AsRef<OsStr>>(arguments: &[S], stdin: &[u8]) -> Run {
    let mut child = program()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut pipe = child.stdin.take().expect("is piped");
    let stdin = stdin.to_vec();
    // A program that does not read its input closes the pipe.
    let writer = std::thread::spawn(move || drop(pipe.write_all(&stdin)));
    let output = child.wait_with_output().expect("the program ends");
    writer.join().expect("writing does not panic");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = output.status.code().unwrap_or_else(|| panic!("{}: {stderr}", output.status));
    Run { code, stdout: output.stdout, stderr }
}

/// Runs the program with nothing on standard input.
#[track_caller]
pub fn run<S: AsRef<OsStr>>(arguments: &[S]) -> Run {
    run_with(arguments, b"")
}

/// The directory of the inputs, which is also the working directory of the program.
pub fn inputs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli")
}

/// A directory that is removed after the test.
pub fn temporary() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// The text of a file.
pub fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path.as_ref()).expect("a readable file")
}

/// Writes a file.
pub fn write(path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
    std::fs::write(path.as_ref(), text).expect("a writable file");
}

/// A path as an argument.
pub fn text_of(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// The files in a directory, by name.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
