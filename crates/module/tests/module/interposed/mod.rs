//! A program may interpose symbols of a shared library, that is, define them itself. Code and data
//! that merging redirects refer to the module's own functions and objects, unless the front end
//! named the interposed symbol.
//!
//! Each test runs the code of a program twice, merged and unmerged, and compares the results.
//! `functions` is about functions that are called or have their address taken, `passed` about extra
//! arguments, `data` about data objects.

mod data;
mod functions;
mod passed;

use crate::linked::{interposed, prints, same_output};
use cranelift_mergefunc::{Disposition, Similar};
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use cranelift_module::FuncId;
use cranelift_object::ObjectModule;
use std::fmt::Display;
use testkit::modules::*;

/// The output of a C program that interposes symbols of a library. Asserts that the output is equal
/// with and without merging, and that the program's own symbols, which return or hold 4242, are not
/// used. See [`same_output`].
#[track_caller]
fn compare(
    case: impl Display,
    options: ModuleOptions,
    main: &str,
    make: impl FnMut(&mut MergingModule<ObjectModule>, bool),
) -> String {
    let options = ModuleOptions { back_end: BackEnd::Object, ..options };
    let printed = same_output(case, options, interposed, main, make);
    assert!(!printed.contains("4242"), "the program is to call nothing that is interposed");
    printed
}

/// A C program that prints the result of each of these functions of a library for 7, and interposes
/// one function.
fn with_own_function(called: &[&str], own: &str) -> String {
    format!("long {own}(long x) {{ return 4242; }}\n{}", prints(called))
}

/// A C program that reads these data objects of a library, and interposes one of them.
fn with_own_data(called: &[&str], own: &str) -> String {
    format!("long {own} = 4242;\n{}", prints(called))
}

fn significant() -> ModuleOptions {
    ModuleOptions { similar: Similar::OFF, ..ModuleOptions::default() }
}

fn became(module: &MergingModule<ObjectModule>, name: &str) -> Disposition<FuncId> {
    module.outcome(id(module, name)).unwrap().0
}

fn pin(module: &mut MergingModule<ObjectModule>, names: &[&str]) {
    for name in names {
        let function = id(module, name);
        module.attributes(function).pinned = true;
    }
}
