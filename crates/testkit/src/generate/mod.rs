//! Units of any functions that a back end compiles and a host can run.
//!
//! Uniformly random functions are never equal, so [`mod@unit`] draws a few *seed* functions and makes the others
//! from them: clones with other facts that refer to other clones, which must be equal; near misses by one change
//! of meaning, which must not; functions that are equal except for constants. So the right classes are known
//! without looking at the library.
//!
//! * [`conventions`]: what a function may refer to, and what a host must provide to run it.
//! * [`opcodes`]: which operations there are, and which of them a back end compiles.
//! * [`function`]: one function, with everything that its [`Profile`](function::Profile) allows.
//! * [`near_miss`]: the same function but for one change of meaning.
//! * [`mod@unit`]: a whole unit; [`expected`]: what is known of its classes.
//! * [`statistics`]: how often what occurred.
//!
//! A function of some dozen instructions takes a few hundred bytes of input. Where there is no more
//! input ([`draw`]), what was begun is ended as soon as it can be.

mod body;
mod calls;
mod changes;
mod code;
pub mod conventions;
pub mod draw;
mod exits;
pub mod expected;
pub mod function;
pub mod near_miss;
pub mod opcodes;
pub mod statement;
pub mod statistics;
pub mod steps;
pub mod unit;
pub(super) mod weaken;
