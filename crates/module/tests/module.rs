//! The guarantees of the documentation of `MergingModule` to an embedder that wraps its module.
//!
//! Each test pins one sentence of that documentation; the files are grouped by who would notice a
//! failure. The test kit (`testkit::modules`) turns text into declarations and definitions,
//! `linked` links and runs the result, `wrapper` is a module that wraps another one.

#[path = "module/addresses.rs"]
mod addresses;
#[path = "module/attributes.rs"]
mod attributes;
#[path = "module/cycles.rs"]
mod cycles;
#[path = "module/data.rs"]
mod data;
#[path = "module/deferred.rs"]
mod deferred;
#[path = "module/errors.rs"]
mod errors;
#[path = "module/flushes.rs"]
mod flushes;
#[path = "module/incremental.rs"]
mod incremental;
#[path = "module/interposed/mod.rs"]
mod interposed;
#[path = "module/later.rs"]
mod later;
#[path = "module/linked.rs"]
mod linked;
#[path = "module/memory.rs"]
mod memory;
#[path = "module/objects.rs"]
mod objects;
#[path = "module/places.rs"]
mod places;
#[path = "module/similar.rs"]
mod similar;
#[path = "module/wrapper.rs"]
mod wrapper;
