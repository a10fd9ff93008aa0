//! Programs that use an object, linked with it or with a shared library of it, and run: merging changes nothing that they
//! print.

use cranelift_mergefunc::{MergingModule, ModuleOptions};
use cranelift_object::{ObjectModule, ObjectProduct};
use std::fmt::Display;
use std::process::Command;
use testkit::modules::{object, unmerged};

/// What a program prints, and how it ended if that was not well.
type Output = Result<String, String>;

/// Runs a command in a directory that has an object, `unit.o`, and a C program, `main.c`.
fn run(product: ObjectProduct, main: &str, command: &str) -> Output {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("unit.o"), product.emit().unwrap()).unwrap();
    std::fs::write(directory.path().join("main.c"), main).unwrap();
    let mut shell = Command::new("sh");
    let output = shell.arg("-c").arg(command).current_dir(directory.path()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let printed = text(&output.stdout) + &text(&output.stderr);
    match output.status.success() {
        true => Ok(printed),
        false => Err(printed + &output.status.to_string()),
    }
}

/// What a C program prints that is linked with an object.
pub fn linked(product: ObjectProduct, main: &str) -> Output {
    run(product, main, "cc -o main main.c unit.o && ./main")
}

/// What a C program prints that loads an object as a shared library and defines symbols of it itself.
pub fn interposed(product: ObjectProduct, main: &str) -> Output {
    let library = "cc -shared -o libunit.so unit.o";
    let program = "cc -rdynamic -o main main.c -L. -lunit -Wl,-rpath,.";
    run(product, main, &format!("{library} && {program} && ./main"))
}

/// What both print, a program that was merged and one that was not: the same, and both end well. `case` is part of the
/// message.
#[track_caller]
pub fn same(case: impl Display, [merged, plain]: [Output; 2]) -> String {
    assert_eq!(merged, plain, "{case}");
    plain.unwrap()
}

/// A C program that prints what each of these functions of an object makes of 7.
pub fn prints(called: &[&str]) -> String {
    let declared = called.join("(long), ");
    let formats = vec!["%ld"; called.len()].join(" ");
    let results = called.join("(7), ");
    format!(
        "#include <stdio.h>
long {declared}(long);
int main(void) {{ printf(\"{formats}\\n\", {results}(7)); }}
"
    )
}

/// What a C program prints with an object, by [`linked`] or [`interposed`], if that is made with merging and if it is not:
/// the same. `make` defines it, and gets to know whether merging is on.
#[track_caller]
pub fn same_output(
    case: impl Display,
    options: ModuleOptions,
    run: fn(ObjectProduct, &str) -> Output,
    main: &str,
    mut make: impl FnMut(&mut MergingModule<ObjectModule>, bool),
) -> String {
    let outputs = [(options, true), (unmerged(options), false)].map(|(options, merges)| {
        let mut module = MergingModule::with_options(object(), options);
        make(&mut module, merges);
        run(module.finish().unwrap(), main)
    });
    same(format_args!("{case}, {options:?}"), outputs)
}
