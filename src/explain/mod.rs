//! Answers for people: why two functions are not merged, and where the code of a merged function went.

mod difference;
mod map;

pub use difference::{Difference, Neighbour, Rule, Site, first_difference, nearest};
pub use map::{Code, MergeMap, Original, PerfMap};
