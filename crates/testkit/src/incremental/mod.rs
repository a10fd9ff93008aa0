//! Random programs that are defined flush by flush, merged and unmerged, and run.
//!
//! A program is defined in one to five flushes, in any order, in a module that merges and in one
//! that does not; or unit by unit, with the library alone. Then both are called from outside with
//! the same arguments and memory, and must return equal results and leave equal memory. This is the
//! oracle for what no single plan shows: the information that one flush uses of earlier ones.
//!
//! * `program` is what a program consists of;
//! * `generate` draws one: families of functions that are nearly the same, spread over flushes,
//!   with `statements`, `differing`, `rows`, `echo`, `later` and `calls`; the functions themselves
//!   are drawn and built by [`generate`](crate::generate);
//! * `contract` ensures that every fact is true wherever it is stated, so that the program without
//!   merging is right by definition;
//! * `define` makes the calls of `Module`; `jit`, `object` and `library` are paths by which
//!   programs run;
//! * `units` makes an object of each flush;
//! * `reduce` makes a program smaller that shows something; `statistics` counts what occurred.

mod calls;
mod contract;
mod define;
mod differing;
mod echo;
mod generate;
mod jit;
mod later;
mod library;
mod object;
mod program;
mod reduce;
mod rows;
mod statements;
mod statistics;
mod units;

use crate::isa;
use arbitrary::Unstructured;
use cranelift_codegen::isa::OwnedTargetIsa;
pub use generate::{program, program_of_units};
pub use jit::{check as check_jit, check_facts};
pub use library::{check as check_library, check_streaming};
pub use object::{Image, compare, main_of, objects};
use program::Part;
pub use program::Program;
pub use reduce::reduce;
pub use statistics::Statistics;
use std::fmt::{self, Write};
pub use units::{Units, apart, before_changes};

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

/// The settings of an ISA by which code is optimised or not. Its frames have frame pointers, as
/// tail calls need.
fn settings(speed: bool) -> [(&'static str, &'static str); 2] {
    [("preserve_frame_pointers", "true"), ("opt_level", isa::opt_level(speed))]
}

/// The ISA of JITs.
fn jit_isa(speed: bool) -> OwnedTargetIsa {
    let absolute = [("is_pic", "false"), ("use_colocated_libcalls", "false")];
    isa::native(&[&settings(speed)[..], &absolute].concat())
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

/// Draws a program, and panics if merging it changes what it does: in a JIT, or by the library
/// alone, unit by unit or with functions that arrive one at a time.
///
/// # Errors
///
/// If `u` has too few bytes to draw from.
pub fn check(u: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let path = u.int_in_range(0..=4)?;
    let program = program(u)?;
    let mut statistics = Statistics::default();
    let result = match path {
        0 | 1 => check_jit(&program, &mut statistics),
        2 | 3 => check_library(&program, &mut statistics),
        _ => check_streaming(&program, &mut statistics),
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
        finishes,
        later: _,
    } = program;
    writeln!(text, "; {options:?}\n; speed: {speed}, colocated: {colocated}").unwrap();
    if *finishes {
        writeln!(text, "; the last flush is that of the end").unwrap();
    }
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
                    text += &clif_unit::text::of(&define::function(program, function));
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
