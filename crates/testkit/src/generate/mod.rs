//! The generator: every random function of the test kit is drawn and built here.
//!
//! It draws functions of all opcodes and types that a back end compiles: arithmetic, accesses with
//! facts, traps, branches and loops, calls of every kind, exceptions. A host can run them. A
//! [`Profile`](function::Profile) says what functions may be made of. Properties of a function that
//! are needed before it is built, such as the facts that its callers must keep, are drawn as
//! [statements](statement), between which the generator draws the arithmetic.
//!
//! | oracle | configures it by |
//! |---|---|
//! | differential execution, classes by construction | [`Profile::runnable`](function::Profile::runnable), [`Profile::all`](function::Profile::all) |
//! | differential execution of bodies that branch where two functions differ | [`Profile::differing`](function::Profile::differing) |
//! | laws of every unit ([`Unit::random`](crate::unit::Unit::random)) | [`Profile::small`](function::Profile::small) |
//! | [programs over time](crate::incremental) | families of statements: copies that differ in constants, references and facts, over flushes, linkages and data objects |
//! | [calls of `Module`](crate::module) | few statements, about which handle refers to which |
//!
//! Uniformly random functions are never equal, so [`mod@unit`] draws a few *seed* functions and
//! makes the others from them: clones that refer to other clones, which must be equal; near misses
//! by one change of meaning or by fewer facts, which must not; functions that are equal except for
//! constants. So the right classes are known without looking at the library. Of functions that
//! differ in few instructions they are not.
//!
//! * [`conventions`]: what a function may refer to, and what a host must provide to run it.
//! * [`opcodes`]: which operations there are, and which of them a back end compiles.
//! * `body`: a function in the making, to which everything adds.
//! * [`function`]: one function, with everything that its profile allows.
//! * [`statement`]: a function as data; [`steps`]: the function itself.
//! * [`near_miss`]: the same function but for one change of meaning.
//! * [`differing`]: functions that differ in few instructions.
//! * [`mod@unit`]: a whole unit, with `links` for its references; [`expected`]: what is known of
//!   its classes.
//! * [`templates`]: a unit like those of C++ compilers, which is always the same.
//! * [`statistics`]: how often what occurred.
//!
//! A function of some dozen instructions takes a few hundred bytes of input. Where there is no more
//! input ([`draw`]), what was begun is ended as soon as it can be.

mod body;
mod calls;
pub mod chains;
mod changes;
mod code;
pub mod conventions;
pub mod differing;
pub mod draw;
mod exits;
pub mod expected;
pub mod function;
mod links;
pub mod near_miss;
pub mod opcodes;
pub mod statement;
pub mod statistics;
pub mod steps;
pub mod templates;
pub mod unit;
pub(super) mod weaken;
