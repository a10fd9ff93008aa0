//! To which of the functions that share merged code each frame of a stack belongs.
//!
//! After merging, the code at an address can be that of several functions, so the address of a
//! frame does not say whose frame it is. The stack does: the frame of a caller knows which function
//! its call named before merging. [`resolve`] follows the calls from the outermost frame to the
//! innermost: the function of a frame is one that its caller called, or that a tail call led to
//! from there. A call through a pointer says nothing, so behind it all functions of the code
//! remain; then a second pass, from the innermost frame to the outermost, removes functions that
//! did not make that call.
//!
//! [`Table`] is the needed record of code, as bytes: an engine keeps it beside its code,
//! or [`SymbolTable`], with symbols in place of its numbers. It has no dependencies, so that it can
//! be where no compiler is.
//!
//! It does *not* walk a stack, and knows no names, only numbers. LLVM's GSYM keeps the line table
//! of each merged function and lets the user choose by regular expressions on call sites ("merged
//! function call site info", 2024); here nobody chooses.
//!
//! # Example
//!
//! ```
//! use cranelift_mergefunc_frames::{Callee, Code, Place, Site, Table, TailCallees, TailCalls};
//!
//! // Functions 0 and 1 share code, and function 2 calls function 1.
//! let trap = Place { offset: 4, is_return: false };
//! let call = Place { offset: 9, is_return: true };
//! let of = vec![(Some(10), Callee::Unknown), (Some(90), Callee::Unknown)];
//! let shared =
//!     Code { functions: vec![0, 1], is_thunk: false, sites: vec![Site { place: trap, of }] };
//! let of = vec![(Some(200), Callee::Function(1))];
//! let caller =
//!     Code { functions: vec![2], is_thunk: false, sites: vec![Site { place: call, of }] };
//! let none = |function| (function, TailCallees::Known(vec![]));
//! let table = Table::new(&[shared, caller], &TailCalls::from([0, 1, 2].map(none)));
//!
//! let frames = table.frames(&[Some((0, trap)), Some((1, call))])?;
//! assert_eq!(frames[0].running.len(), 1);
//! assert_eq!((frames[0].running[0].function, frames[0].running[0].location), (1, Some(90)));
//! # Ok::<(), cranelift_mergefunc_frames::Malformed>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

mod resolve;
mod symbols;
mod table;

pub use resolve::{Callee, Level, Running, TailCallees, TailCalls, resolve};
pub use symbols::{Functions, Symbol, SymbolTable};
pub use table::{Code, Malformed, Place, Site, Table};
