//! The compilers, linkers and emulators that the tests run. All of them are needed: a test that
//! skips what is not installed says nothing.

use std::path::PathBuf;
use std::process::Command;

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

/// A directory for the files of some tests, in Cargo's. They stay there until the next run.
pub struct Workshop(PathBuf);

impl Workshop {
    pub fn new(name: &str) -> Self {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        if directory.exists() {
            std::fs::remove_dir_all(&directory).expect("a directory of the last run");
        }
        std::fs::create_dir_all(&directory).expect("a directory that can be made");
        Workshop(directory)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, contents).expect("a file that can be written");
        path
    }

    /// Runs a program here, which must succeed and say nothing against it, and returns what it
    /// printed.
    #[track_caller]
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.0);
        let output = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}\n{}\n{said}", output.status);
        assert!(said.is_empty(), "{command:?}\n{said}");
        String::from_utf8(output.stdout).expect("text")
    }
}
