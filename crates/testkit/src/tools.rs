//! The compilers, linkers and emulators that the tests run. All of them are needed: a test that
//! skips missing tools shows nothing.

use std::path::{Path, PathBuf};
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

/// A directory for the files of some tests, in that of the system for them. No other run of the
/// tests has this directory, at the same time or later. It stays there if a test fails.
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

    /// Runs a program here. Returns its output, or, unless it succeeds and prints no errors, its
    /// errors.
    ///
    /// # Errors
    ///
    /// The command, how it ended, and the errors that it printed.
    pub fn try_run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.0.path());
        let output = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        match output.status.success() && errors.is_empty() {
            true => Ok(String::from_utf8(output.stdout).expect("text")),
            false => Err(format!("{command:?}\n{}\n{errors}", output.status)),
        }
    }

    /// Runs a program here, which must succeed and print no errors, and returns its output.
    #[track_caller]
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        self.try_run(program, arguments).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Like [`try_run`](Self::try_run), for a program that a toolchain made.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn run_by(
        &self,
        tools: &Toolchain,
        program: &Path,
        arguments: &[&str],
    ) -> Result<String, String> {
        let program = program.to_str().expect("a path that is text");
        let command = [tools.run, &[program], arguments].concat();
        self.try_run(command[0], &command[1..])
    }

    /// Links objects with `main`, the object of a program, or with a shared library of which that
    /// has definitions of its own, and runs the program. `name` is that of the program, and `flags`
    /// are for every link.
    ///
    /// # Errors
    ///
    /// If it cannot be linked, or fails: what the linker or the program says.
    pub fn link_and_run(
        &self,
        tools: &Toolchain,
        (kind, name): (Kind, &str),
        main: &str,
        objects: &[&str],
        flags: &[&str],
    ) -> Result<String, String> {
        let link = |files: [&[&str]; 3], to: &str| {
            self.try_run(tools.gcc, &[&files.concat()[..], &["-o", to], flags].concat()).map(drop)
        };
        match kind {
            Kind::Static => link([&["-static", main], objects, &[]], name)?,
            Kind::Pie => link([&["-pie", main], objects, &[]], name)?,
            Kind::Shared => {
                let library = format!("lib{name}.so");
                link([&["-shared"], objects, &[]], &library)?;
                let rpath = "-Wl,-rpath,$ORIGIN";
                link([&["-pie", "-rdynamic", main], &[&library], &[rpath]], name)?;
            }
        }
        self.run_by(tools, &self.path(name), &[])
    }
}

/// How object files become a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pie,
    Static,
    /// The objects become a library.
    Shared,
}

/// The tools that make and run programs for a target.
#[derive(Clone, Copy, Debug)]
pub struct Toolchain {
    pub triple: &'static str,
    /// The compiler, which links, too.
    pub gcc: &'static str,
    /// The command that runs a program.
    run: &'static [&'static str],
}

impl Toolchain {
    #[track_caller]
    pub fn x86_64() -> Toolchain {
        need("gcc");
        Toolchain { triple: "x86_64-unknown-linux-gnu", gcc: "gcc", run: &[] }
    }

    #[track_caller]
    pub fn aarch64() -> Toolchain {
        need("aarch64-linux-gnu-gcc");
        need("qemu-aarch64");
        Toolchain {
            triple: "aarch64-unknown-linux-gnu",
            gcc: "aarch64-linux-gnu-gcc",
            run: &["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"],
        }
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
