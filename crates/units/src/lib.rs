//! Merging functions of Cranelift IR across units: summaries of the functions of all units, and
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
//!
//! # Example
//!
//! ```
//! use cranelift_mergefunc_units::{
//!     Cell, FunctionSummary, Linkage, Outputs, SetDecision, SharingMap, Summaries, UnitSummary,
//!     combine, fixed_hash,
//! };
//!
//! // Two units with a function each, which differ in a constant.
//! let summary = |unit: &str, bits| {
//!     let function = FunctionSummary {
//!         shape: [7; 16],
//!         symbol: format!("function of {unit}"),
//!         linkage: Linkage::Local,
//!         hot: false,
//!         bytes: [100, 120],
//!         cells: vec![Cell::Constant { ty: 0x76, bits }],
//!     };
//!     let functions = vec![function];
//!     UnitSummary { unit: unit.to_owned(), functions, ..UnitSummary::default() }.to_bytes()
//! };
//! let files = [summary("a", 1), summary("b", 2)];
//! let [a, b] = files.each_ref().map(|file| Summaries::open(file));
//!
//! // Both share a body with the constant as a parameter.
//! let (mut map, parameters) = (Vec::new(), vec![vec![0]]);
//! let combined = combine(
//!     &[a?, b?],
//!     &mut |group| {
//!         let hashes = group.rows[0].cells.iter().map(|cell| cell.hash);
//!         let fixed = fixed_hash(hashes, &parameters);
//!         vec![SetDecision { parameters: parameters.clone(), fixed, rows: vec![0, 1], saved: 80 }]
//!     },
//!     &mut Outputs {
//!         map: Some(&mut |bytes| {
//!             map.extend_from_slice(bytes);
//!             Ok(())
//!         }),
//!         parts: None,
//!     },
//! )?;
//! assert_eq!(combined.members, 2);
//! assert_eq!(SharingMap::open(map)?.sets(&[7; 16])?.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
