//! The compilers, linkers and emulators that the tests run. All of them are needed: a test that skips missing
//! tools shows nothing.

use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// Where each program comes from, in Debian's names.
const PACKAGES: [(&str, &str); 6] = [
    ("gcc", "gcc libc6-dev"),
    ("ld.bfd", "binutils"),
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
    ("qemu-aarch64", "qemu-user"),
    ("lld", "lld"),
    ("ld.lld", "lld"),
];

/// The directory of a program. Fails with the package to install if it is not there.
#[track_caller]
pub fn need(program: &str) -> PathBuf {
    let (_, package) =
        PACKAGES.iter().find(|(name, _)| *name == program).expect("a tool with a package");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directory = std::env::split_paths(&path).find(|at| at.join(program).is_file());
    directory.unwrap_or_else(|| panic!("`{program}` is missing: apt-get install {package}"))
}

/// A directory for the files of some tests, in that of the system for them. No other run of the tests has the same, at the
/// same time or later. It stays there if a test fails.
pub struct Workshop(TempDir);

impl Workshop {
    pub fn new(name: &str) -> Self {
        let mut builder = tempfile::Builder::new();
        builder.prefix(name).rand_bytes(8);
        let directory = builder.tempdir();
        Workshop(directory.expect("a directory that can be made"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, contents).expect("a file that can be written");
        path
    }

    /// Runs a program here, which must succeed and print no errors, and returns its output.
    #[track_caller]
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.0.path());
        let output = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}\n{}\n{said}", output.status);
        assert!(said.is_empty(), "{command:?}\n{said}");
        String::from_utf8(output.stdout).expect("text")
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.disable_cleanup(true);
            eprintln!("the files of the test are in {}", self.0.path().display());
        }
    }
}
