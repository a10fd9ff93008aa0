//! The test kit: what runs merged code, links it, and says what must hold of every text of a unit.
//!
//! It is *not* published, and nothing in it is meant for embedders. What may be asked for by an environment variable
//! is said in the module that asks.
#![allow(missing_docs, reason = "not published")]

pub mod checked;
pub mod host;
pub mod incremental_host;
pub mod link;
pub mod module_host;
pub mod modules;
pub mod text;
pub mod tools;
pub mod units;

use cranelift_codegen::ir::Function;
use cranelift_mergefunc::cranelift_codegen;
use cranelift_mergefunc::fuzzing::support::parse;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Functions that have every opcode and every kind of entity.
pub fn corpus() -> Vec<Function> {
    parse(include_str!("formats.clif"))
}
