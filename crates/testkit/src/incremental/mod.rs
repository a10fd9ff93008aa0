//! Random programs that are defined flush by flush, merged and unmerged, and run.
//!
//! A program is defined in one to five flushes, in any order, in a module that merges and in one that does not; or
//! unit by unit, with the library alone. Then both are called from outside with the same arguments and memory, and
//! must return the same and leave the same in memory. This is the oracle for what no single plan shows: the
//! information that one flush uses of earlier ones.
//!
//! * `program` is what a program consists of; `text` is its CLIF;
//! * `generate` draws one: families of functions that are nearly the same, spread over flushes,
//!   with `statements`, `echo` and `calls`;
//! * `contract` ensures that every fact is true wherever it is stated, so that the program without
//!   merging is right by definition;
//! * `define` makes the calls of `Module`; `jit`, `object` and `library` are paths by which programs run;
//! * `reduce` makes a program smaller that shows something; `statistics` counts what occurred.
//!
//! Code runs and memory is freed only through a [`Host`], since nothing here is unsafe.

mod calls;
mod contract;
mod define;
mod echo;
mod generate;
mod jit;
mod library;
mod object;
mod program;
mod reduce;
mod statements;
mod statistics;
mod text;

use arbitrary::Unstructured;
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_jit::JITModule;
pub use generate::program;
pub use jit::{check as check_jit, check_facts};
pub use library::check as check_library;
pub use object::{Image, compare, main_of, objects};
use program::Part;
pub use program::{BUFFER, Call, MOST_EXTRAS, Program};
pub use reduce::reduce;
pub use statistics::Statistics;
use std::fmt::{self, Write};

/// A call of compiled code.
#[derive(Clone, Debug)]
pub struct Run {
    /// The address of the function.
    pub code: *const u8,
    /// How it is called.
    pub call: Call,
}

/// The result and the memory after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// What was returned.
    pub result: i64,
    /// A hash of the buffer: [`hash`].
    pub memory: u64,
}

/// What only unsafe code can do.
pub trait Host {
    /// The ISA of this machine, by which code is optimised or not. Its frames have frame pointers, as tail
    /// calls need.
    fn isa(&mut self, speed: bool) -> OwnedTargetIsa;
    /// An empty module for that ISA.
    fn jit(&mut self, speed: bool) -> JITModule;
    /// Makes these calls, each with a [`buffer`] of its own at a multiple of 64. What the calls write elsewhere
    /// may be lost in the end. For calls that do not end, by a signal or in time, and for all calls behind them,
    /// there is no result.
    fn run(&mut self, runs: &[Run]) -> Vec<Left>;
    /// Frees a module none of whose code will be called again.
    fn free(&mut self, jit: JITModule);
}

/// The memory that a call from outside gets.
pub fn buffer() -> [u8; BUFFER] {
    core::array::from_fn(|at| (at * 37 + 11) as u8)
}

/// Nothing, or the finding that a part of a program is not at a multiple of its alignment.
fn check_alignment(program: &Program, part: Part, place: *const u8) -> Result<(), Finding> {
    let alignment = program.alignment(part);
    match (place as usize).is_multiple_of(alignment as usize) {
        true => Ok(()),
        false => Err(Finding::new(format!(
            "the place of {part:?} is {place:?}, which is no multiple of {alignment}"
        ))),
    }
}

/// A hash of what is left in memory (FNV-1a).
pub fn hash(buffer: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    buffer.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The arguments of a call, where its buffer is at this address: as many as the largest function takes.
pub fn arguments(call: &Call, buffer: i64) -> [i64; 4 + MOST_EXTRAS] {
    let mut arguments = [0; 4 + MOST_EXTRAS];
    arguments[..2].copy_from_slice(&call.numbers);
    for (argument, pointer) in arguments[2..4].iter_mut().zip(call.pointers) {
        *argument = pointer.map_or(0, |offset| buffer + offset);
    }
    arguments[4..][..call.extras.len()].copy_from_slice(&call.extras);
    arguments
}

/// A difference between the merged program and the plain one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// In words.
    pub what: String,
}

impl Finding {
    /// Something that differs.
    pub fn new(what: String) -> Finding {
        Finding { what }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// Draws a program, and panics if merging it changes what it does: in a JIT, or by the library alone.
///
/// # Errors
///
/// If `u` has too few bytes to draw from.
pub fn check(u: &mut Unstructured<'_>, host: &mut dyn Host) -> arbitrary::Result<()> {
    let is_jit = u.arbitrary()?;
    let program = program(u)?;
    let mut statistics = Statistics::default();
    let result = match is_jit {
        true => check_jit(&program, host, &mut statistics),
        false => check_library(&program, host, &mut statistics),
    };
    if let Err(finding) = result {
        panic!("{finding}\n{}", print(&program));
    }
    Ok(())
}

/// The program as text: what each flush defines, and the calls.
pub fn print(program: &Program) -> String {
    let mut text = String::new();
    let Program {
        options,
        speed,
        colocated,
        functions,
        data,
        flushes,
        calls,
        interposed,
        any_back_end,
    } = program;
    writeln!(text, "; {options:?}\n; speed: {speed}, colocated: {colocated}").unwrap();
    if *any_back_end {
        writeln!(text, "; nothing is known of the module that is wrapped").unwrap();
    }
    for (number, flush) in flushes.iter().enumerate() {
        writeln!(text, "\n;;;; flush {number}, ready: {}", flush.ready).unwrap();
        for (part, linkage) in &flush.widened {
            writeln!(text, "; {part:?} is declared {linkage:?}").unwrap();
        }
        for &part in &flush.defined {
            match part {
                Part::Function(function) => {
                    let own = &functions[function];
                    let bytes = if own.bytes { ", defined by its code" } else { "" };
                    writeln!(
                        text,
                        "\n; {:?} (first {:?}), {:?}{bytes}",
                        own.linkage, own.declared, own.attributes
                    )
                    .unwrap();
                    text += &text::function(program, function);
                }
                Part::Data(number) => {
                    let own = &data[number];
                    let items = match number {
                        program::FROZEN => "numbers".to_owned(),
                        _ => format!("{:?}", own.items),
                    };
                    writeln!(
                        text,
                        "\n; data u1:{number}, {:?}, writable: {}, {:?}: {items}",
                        own.linkage, own.writable, own.attributes
                    )
                    .unwrap();
                }
            }
        }
    }
    text.push('\n');
    for call in calls {
        writeln!(text, "; {call:?}").unwrap();
    }
    if !interposed.is_empty() {
        writeln!(text, "; interposed: {interposed:?}").unwrap();
    }
    text
}
