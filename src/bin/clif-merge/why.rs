//! `clif-merge why`: why two functions did not merge.

use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;

/// Tell why two functions did not merge
#[derive(Debug, clap::Args)]
pub struct Opts {
    /// CLIF files, and the names of the functions
    #[arg(required = true, value_name = "IN")]
    paths: Vec<PathBuf>,
}

/// Not written yet.
pub fn run(opts: Opts) -> Result<ExitCode> {
    bail!("'why' is not written yet ({} arguments)", opts.paths.len())
}
