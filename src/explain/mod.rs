//! Answers for people: why two functions are not merged, and where the code of a merged function went. The encodings by
//! which functions are compared are here as well.

mod difference;
mod map;

pub use crate::canon::{Encoding, StructuralHash, structural_hash};
pub use difference::{Difference, Rule, Site, first_difference, place_hashes};
pub use map::{Code, MergeMap, Original, PerfMap};
