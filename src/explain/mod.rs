//! Answers for people: why two functions are not merged, where the code of a merged function went,
//! and to which function a frame belongs. The encodings by which functions are compared are here as
//! well.

mod difference;
mod frames;
mod map;
mod sites;

pub use crate::canon::{Encoding, StructuralHash, structural_hash};
pub use difference::{Difference, Rule, Site, first_difference, place_hashes};
pub use frames::{Candidate, Frame, FrameTable};
pub use map::{Code, MergeMap, Original, PerfMap};
pub use sites::{Recorded, Sites};
