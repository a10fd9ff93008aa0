//! A program may define symbols of a shared library itself: what merging makes of a module calls, and points to, its own
//! code and data wherever a front end named something else.
//!
//! Each test runs the code of a program twice, merged and unmerged, and compares what comes out. `functions` has those of
//! what is called, or has its address taken; `passed` those of extra arguments; `data` those of data objects.

mod data;
mod functions;
mod passed;

use crate::linked::{interposed, prints, same_output};
use cranelift_mergefunc::{BackEnd, Disposition, MergingModule, ModuleOptions, Similar};
use cranelift_module::FuncId;
use cranelift_object::ObjectModule;
use std::fmt::Display;
use testkit::modules::*;

/// What a C program prints, with symbols of its own beside those of a library that is made with and without merging: the
/// same, and nothing of its own symbols, which return, or are, 4242. See [`same_output`].
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

/// A C program that prints what each of these functions of a library makes of 7, and defines a function of it itself.
fn with_own_function(called: &[&str], own: &str) -> String {
    format!("long {own}(long x) {{ return 4242; }}\n{}", prints(called))
}

/// The same with a data object.
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
