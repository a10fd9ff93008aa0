//! Functions that share bodies with functions of other units.
//!
//! | file | what it does |
//! |---|---|
//! | `rows` | what other units must know of the functions of this one |
//! | `decide` | which functions of one shape, of all units, share a body, and by which parameters |
//! | `share` | makes the bodies that a sharing map names from the functions of this unit |

mod decide;
mod rows;
mod share;

pub use decide::decide_sharing;
pub(crate) use rows::summary;
pub(crate) use share::{Shared, matched};
