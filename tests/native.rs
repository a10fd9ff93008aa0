//! Merged units as native code: linked by real linkers, called by real C, and compared with the
//! same unit without merging.
//!
//! The cases are a table (`native/cases.rs`): every pair of linkages in every calling convention,
//! with functions that pass values in every way (`native/shapes.rs`). All of them are one unit, so
//! that each test is one link and one run. Formats that cannot be run here (Mach-O, COFF) are
//! linked, and the addresses of their symbols are read.
//!
//! They need compilers and linkers; `tests/setup` installs the packages.

#[path = "native/across.rs"]
mod across;
#[path = "native/c.rs"]
mod c;
#[path = "native/cases.rs"]
mod cases;
#[path = "native/foreign.rs"]
mod foreign;
#[path = "native/jit.rs"]
mod jit;
#[path = "native/linux.rs"]
mod linux;
#[path = "native/shapes.rs"]
mod shapes;
#[path = "native/unit.rs"]
mod unit;
