//! Generated input, and oracles that know the right answer: for property tests, fuzz targets and benches.
//!
//! * `recipes` draws units of functions that refer to each other; `permute` gives a function
//!   another form with the same meaning; `mutate` gives it another meaning by a single change.
//! * `generate` draws units of large functions of all opcodes, which a host can run, and knows
//!   which of them are equal because it made them so; `augmented` puts next to a unit what merging makes of it.
//! * `classes` computes the classes of a unit from the definition, by brute force; `check` holds a
//!   plan and what it is applied to against what must always hold.
//! * `program` says what a back end emits for a unit; `differential` has a host run it, merged and
//!   unmerged, and compares; `fuel` makes every function end.
//! * `fault_injection` plants faults in the pass; `targets` is what fuzz targets do.
//! * `module` makes random calls of `Module` on a module and on a `MergingModule` (with the features
//!   `jit` and `object`).
//! * `incremental` draws whole programs that are defined in several flushes, and has a host run them merged and
//!   unmerged (with the same features).
//! * `text` changes texts of units.
//! * `thunks` compares thunks in raw bytes with what the back end compiles.
//!
//! Everything is driven by bytes (`arbitrary::Unstructured`) or by a seed, so that a fuzzer, a
//! property test and a bench share it. It is there for tests: it panics where something is wrong,
//! and it may change in any version.

pub mod augmented;
pub mod check;
pub mod classes;
pub mod differential;
pub mod fault_injection;
pub mod fuel;
pub mod generate;
#[cfg(all(feature = "jit", feature = "object"))]
pub mod incremental;
#[cfg(all(feature = "jit", feature = "object"))]
pub mod module;
pub mod mutate;
pub mod permute;
pub mod program;
pub mod recipes;
pub mod support;
pub mod targets;
pub mod text;
pub mod thunks;
