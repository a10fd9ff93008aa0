//! Merging functions of Cranelift IR across units: what is known of the functions of all units, and
//! what they share.
//!
//! Units are compiled apart. Each writes a [summary](UnitSummary) of its functions: their shapes,
//! and what each has at the places where functions of one shape may differ. Combining the summaries
//! of all units decides which functions share a body and by which parameters, and writes a [sharing
//! map](SharingMap). A unit that is compiled with the map makes the bodies that the map names from
//! its own functions, and emits them under digests of their contents, so that a linker keeps one of
//! each. No unit trusts the map: what it says decides which functions share a body, never what a
//! body does.
//!
//! | file | what it does |
//! |---|---|
//! | `cell` | what a function has at a place |
//! | `format` | numbers, checksums, reading at an offset |
//! | `linkage` | who can see a function |
//! | `summary` | summaries as files: the format, and writing |
//! | `summaries` | reading such files |
//! | `merge` | merges files of summaries to one |
//! | `combine` | passes the functions of each shape to the decision function |
//! | `sharing_map` | sharing maps as files |

#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

mod cell;
mod combine;
mod format;
mod linkage;
mod merge;
mod sharing_map;
mod summaries;
mod summary;
#[cfg(test)]
mod tests;

pub use cell::{Cell, FunctionSummary, Identity, UnitSummary};
pub use combine::{Combined, Group, GroupCell, GroupRow, Outputs, PartSink, SetDecision, combine};
#[cfg(feature = "std")]
pub use format::FileAt;
pub use format::{FormatError, ReadAt, Sink};
pub use linkage::Linkage;
pub use merge::{CombineError, merge_summaries};
pub use sharing_map::{SharedSet, SharingMap};
pub use summaries::{Summaries, UnitEntry};

pub use combine::fixed_hash;
pub use summary::{cell_hash, identity_hash};
