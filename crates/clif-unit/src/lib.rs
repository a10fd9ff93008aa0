//! Units of Cranelift IR as text.
//!
//! A unit is all functions and data objects that are merged together. [`mod@unit`] reads it from
//! CLIF files, whose comments hold [`directives`] for what CLIF cannot say; [`pass`] merges it,
//! [`check`] has the result proved, and [`emit_text`] writes it as text again. [`isa`] and
//! [`header`] find the target and the settings of a unit.
//!
//! This crate prints nothing, compiles no functions and knows no command line.

pub mod check;
pub mod contain;
pub mod data;
pub mod directives;
pub mod emit_text;
mod entities;
pub mod error;
pub mod extra;
pub mod header;
pub mod isa;
pub mod listings;
pub mod marks;
pub mod names;
pub mod pass;
pub mod progress;
#[cfg(test)]
mod random;
mod read;
mod scan;
pub mod sources;
pub mod text;
pub mod unit;
pub mod verify;
pub mod words;
