//! Answers for people: why two functions are not merged, where the code of a merged function went,
//! and to which function a frame belongs. The encodings by which functions are compared are here as
//! well.
//!
//! ```
//! use cranelift_mergefunc::explain::{MergeMap, first_difference};
//! use cranelift_mergefunc::{Attributes, FunctionIndex, Merger, Options};
//!
//! # let text = "function u0:0() -> i32 { block0: v0 = iconst.i32 1 return v0 }
//! # function u0:1() -> i32 { block0: v0 = iconst.i32 2 return v0 }";
//! # let mut functions = cranelift_reader::parse_functions(text).unwrap();
//! let options = Options::default();
//! let mut merger = Merger::new(options);
//! for func in &functions {
//!     merger.add(func.name.get_user().unwrap().clone(), func, Attributes::default()).unwrap();
//! }
//! let plan = merger.plan(&mut functions);
//! let [a, b] = [0, 1].map(|at| (FunctionIndex::from_u32(at), &functions[at as usize]));
//! assert!(first_difference(&plan, a, b, &options).unwrap().is_some(), "two constants");
//! let map = MergeMap::of(&plan, |symbol| symbol.to_string());
//! assert!(map.originals().all(|original| map.body_of(&original.symbol) == original.symbol));
//! ```

mod difference;
mod frames;
mod map;
mod sites;

pub use crate::canon::{Encoding, StructuralHash, structural_hash};
pub use difference::{Difference, Rule, Site, first_difference, place_hashes};
pub use frames::{Candidate, Frame, FrameTable};
pub use map::{Code, MergeMap, Original, PerfMap};
pub use sites::{Recorded, Sites};
