//! The host: compiles a [`Program`] for a machine, calls its functions in a process of their own,
//! and keeps running whatever they do.
//!
//! * `code` compiles, lays out and links a program, and keeps what Cranelift says of it: where an
//!   instruction may trap and with which code, which handlers a call site has, where a function
//!   saves registers.
//! * `stubs` makes, in CLIF, the imports of the unit and the functions that call into it.
//! * `batch` gives programs to the driver (`driver.c`), which turns a trap into an outcome, and an
//!   exception into a jump to its handler: on this machine, x86-64 with Linux, or for aarch64 under
//!   an emulator.
//! * `interpreter` is for the functions that Cranelift's interpreter can run.

mod batch;
mod code;
pub mod interpreter;
mod stubs;

use crate::differential::{Invocation, Outcome};
use crate::program::Program;
pub use batch::{Batch, Cpu};
use cranelift_codegen::ir::UserExternalName;

/// How code is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As it is.
    None,
    /// Optimised: facts are used.
    Speed,
    /// Optimised for size, too.
    SpeedAndSize,
}

impl Level {
    /// All of them.
    pub const ALL: [Level; 3] = [Level::None, Level::Speed, Level::SpeedAndSize];

    fn name(self) -> &'static str {
        match self {
            Level::None => "none",
            Level::Speed => "speed",
            Level::SpeedAndSize => "speed_and_size",
        }
    }
}

/// Compiles a program without optimising and runs it on this machine.
pub fn run(program: &Program, invocations: &[Invocation]) -> Vec<Outcome> {
    run_at(Level::None, program, invocations)
}

/// Compiles a program and runs it on this machine: one outcome for each invocation.
///
/// # Panics
///
/// If a function does not compile.
pub fn run_at(level: Level, program: &Program, invocations: &[Invocation]) -> Vec<Outcome> {
    let mut batch = Batch::new(Cpu::Native);
    batch.add(level, program, invocations).unwrap_or_else(|error| panic!("{error}"));
    batch.run().remove(0)
}

/// The size of the stack of an invocation: a frame of 128 KiB for each of 2,000 calls. `driver.c`
/// has it, too.
const STACK_BYTES: usize = 256 << 20;

/// Calls of imports that are written down, at most. `driver.c` has it, too.
const MAX_TRACE: usize = 1 << 16;

/// Fails with the symbol that the error is about.
#[track_caller]
fn fail(symbol: &UserExternalName, what: impl std::fmt::Display) -> ! {
    panic!("{symbol}: {what}")
}
