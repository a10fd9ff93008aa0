//! Congruence: which functions and data objects of a unit are equal.
//!
//! | file | what it does |
//! |---|---|
//! | `summarise` | keeps a summary of each function, before the unit is complete |
//! | `in_hand` | keeps the encodings of one bucket |
//! | `bucket` | groups items with equal encodings, references to each other ignored |
//! | `refine` | refines that partition to the coarsest congruence |
//! | `components` | strongly connected components, callees first |
//!
//! It decides nothing about merges, only about equality.

mod bucket;
mod bucket_encodings;
mod components;
mod refine;
mod summarise;

pub(crate) use bucket::{Bucketed, Bucketer, Encodings, Walk, Walked, WithoutIr, bucket};
pub(crate) use components::components;
pub(crate) use refine::{Partition, References, refine};
pub(crate) use summarise::Summaries;
