//! The test kit: generated input, oracles that know the right answer, and hosts that run merged
//! code.
//!
//! * `generate` draws functions and units of them, which a host can run, and knows which of them
//!   are equal because it made them so; `unit` is what a unit is; `augmented` puts next to a unit
//!   what merging makes of it.
//! * `permute` gives a function another form with the same meaning; `mutate` gives it another
//!   meaning by a single change.
//! * `classes` computes the classes of a unit from the definition, by brute force; `check` holds a
//!   plan and what it is applied to against what must always hold.
//! * `aligned` finds the bodies of functions that differ in few instructions in a plan, and makes
//!   plans in which they are wrong.
//! * `program` says what a back end emits for a unit; `differential` has a host run it, merged and
//!   unmerged, and compares; `fuel` makes every function end.
//! * `module` makes random calls of `Module` on a module and on a `MergingModule`; `incremental`
//!   draws whole programs that are defined in several flushes, and has a host run them merged and
//!   unmerged.
//! * `text` says what must hold of every text of a unit, `text_mutation` changes such texts, and
//!   `text_round_trip` prints functions and reads them back.
//! * `across` cuts a unit into several, plans them apart, and links them as linkers do.
//! * `scale` makes units of any number of functions, and `measure` has what benches share.
//! * `thunks` compares thunks in raw bytes with what the back end compiles.
//! * `targets` is what fuzz targets do.
//! * `host` runs programs, `jit` runs JITs, and `tools` links and runs objects; `isa` has the
//!   targets; `link` links programs of `incremental`, `modules` makes modules of text, and `units`
//!   finds real units.
//! * `hooks` says where faults are planted in a copy of the workspace.
//!
//! Everything is driven by bytes (`arbitrary::Unstructured`) or by a seed, so that a fuzzer, a
//! property test and a bench share it. It panics where something is wrong. It is *not* published,
//! and nothing in it is meant for embedders.
#![allow(missing_docs, reason = "not published")]
#![allow(clippy::new_without_default, reason = "a host takes hold of the signals of the process")]

pub mod across;
pub mod aligned;
pub mod augmented;
pub mod backtrace;
pub mod check;
pub mod checked;
pub mod classes;
pub mod definitions;
pub mod differential;
pub mod fuel;
pub mod generate;
pub mod hooks;
pub mod host;
pub mod incremental;
pub mod isa;
pub mod jit;
pub mod link;
pub mod measure;
pub mod module;
pub mod modules;
pub mod mutate;
pub mod permute;
pub mod program;
pub mod programs;
pub mod scale;
pub mod support;
pub mod targets;
pub mod text;
pub mod text_mutation;
pub mod text_round_trip;
pub mod thunks;
pub mod tools;
pub mod unit;
pub mod units;

use crate::support::parse;
use cranelift_codegen::ir::Function;
use cranelift_mergefunc::cranelift_codegen;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Functions that have every opcode and every kind of entity.
pub fn corpus() -> Vec<Function> {
    parse(include_str!("formats.clif"))
}
