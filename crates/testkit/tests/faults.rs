//! The tests of the tests: a copy of the workspace whose library can have faults, in which the
//! tests of `faults/tests/` run.
//!
//! `cargo test --workspace --test faults -- --ignored` runs them all. `CLIF_MERGE_FAULTS` has
//! arguments for them instead: `CLIF_MERGE_FAULTS="--ignored --nocapture"` prints which oracle
//! notices which fault, whether it must or not. The copy is in the target directory, and is
//! compiled with the dependencies of the workspace: a package of it alone may ask for other
//! features of them, and then they are compiled once more.

#[path = "faults/bisect.rs"]
mod bisect;
#[path = "faults/nowhere.rs"]
mod nowhere;

use inject::{Hook, copy};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use testkit::hooks;

/// The parts of the repository that are not copied: build output, histories, and packages with
/// workspaces of their own.
const LEFT_OUT: [&str; 8] = [
    "target",
    ".git",
    "fuzz",
    "tests/no-std",
    "tests/other-targets",
    "integrations",
    // The copy runs the faults' tests, and not the one that makes a copy.
    "crates/testkit/tests",
    "crates/testkit/faults",
];

/// The additions of the copy.
const ADDED: [&str; 3] = ["target", "src/fault_injection", "crates/testkit/tests"];

fn instrument(copy: &Path, hooks: &[Hook]) {
    let root = testkit::root();
    inject::instrument((&root, &LEFT_OUT), (copy, &ADDED), hooks).expect("the hooks fit");
}

/// Without compiling anything: a line that moved, and a new crate, are noticed by the tests that
/// everybody runs.
#[test]
fn every_hook_fits_the_sources() {
    let workspace = target_directory().join("hooks");
    instrument(&workspace, &hooks::all());
    copy(&testkit::root().join("crates/testkit/tests"), &workspace.join("crates/testkit/tests"))
        .expect("is copied");
    let mut command = cargo();
    command.args(["metadata", "--locked", "--format-version", "1", "--manifest-path"]);
    let output = command.arg(workspace.join("Cargo.toml")).output().expect("Cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "takes minutes: compiles a copy of the workspace"]
fn every_fault_is_noticed() {
    let arguments = std::env::var("CLIF_MERGE_FAULTS").unwrap_or_default();
    let mut all = vec!["test", "--locked", "--workspace", "--test", "fault_injection", "--"];
    all.extend(arguments.split_whitespace());
    build_in_copy(&all);
}

/// Runs Cargo in the copy.
fn build_in_copy(arguments: &[&str]) {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    let workspace = COPY.get_or_init(|| {
        let workspace = target_directory().join("faults");
        instrument(&workspace, &hooks::all());
        let faults = testkit::root().join("crates/testkit/faults");
        copy(&faults.join("fault_injection"), &workspace.join("src/fault_injection"))
            .expect("is copied");
        copy(&faults.join("tests"), &workspace.join("crates/testkit/tests")).expect("is copied");
        workspace
    });
    let (first, rest) = arguments.split_first().expect("a command of Cargo");
    let mut command = cargo();
    command.arg(first).arg("--target-dir").arg(target_directory());
    command.arg("--manifest-path").arg(workspace.join("Cargo.toml"));
    if cfg!(not(debug_assertions)) {
        command.arg("--release");
    }
    command.args(rest);
    let status = command.status().expect("cargo starts");
    assert!(status.success(), "{status}");
}

/// Cargo, as if it did not run this test.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // The environment of this test does not hold for the package that it builds.
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG") || name.starts_with("CARGO_MANIFEST"))
        {
            command.env_remove(name);
        }
    }
    command
}

/// Where Cargo builds: the directory of the one that it gives tests for their files.
fn target_directory() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("Cargo's directory")
}
