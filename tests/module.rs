//! What `MergingModule` promises to whoever puts it in the place of a module.
//!
//! Each test pins one sentence of its documentation; the files are grouped by whom a failure would
//! hurt. The test kit (`testkit::modules`) turns text into declarations and definitions, `linked` links and runs what is made
//! of them, `wrapper` is another module around a module.

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
#[path = "module/eager.rs"]
mod eager;
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
