//! Programs that are linked with an object, or with a shared library of it, and run: merging does
//! not change what they print.

use cranelift_mergefunc_module::{MergingModule, ModuleOptions};
use cranelift_object::{ObjectModule, ObjectProduct};
use std::fmt::Display;
use std::process::Command;
use testkit::modules::{object, unmerged};

/// The output of a program, followed by its exit status if it failed.
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

/// The output of a C program that is linked with an object.
pub fn linked(product: ObjectProduct, main: &str) -> Output {
    run(product, main, "cc -o main main.c unit.o && ./main")
}

/// The output of a C program that loads an object as a shared library and defines some of its
/// symbols itself.
pub fn interposed(product: ObjectProduct, main: &str) -> Output {
    let library = "cc -shared -o libunit.so unit.o";
    let program = "cc -rdynamic -o main main.c -L. -lunit -Wl,-rpath,.";
    run(product, main, &format!("{library} && {program} && ./main"))
}

/// The output of two programs, merged and unmerged. Asserts that the outputs are equal and that
/// both succeed; `case` is part of the message.
#[track_caller]
pub fn same(case: impl Display, [merged, plain]: [Output; 2]) -> String {
    assert_eq!(merged, plain, "{case}");
    plain.unwrap()
}

/// A C program that prints the result of each of these functions of an object for 7.
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

/// The output of a C program with an object, by [`linked`] or [`interposed`]. Asserts that the
/// output is equal with and without merging. `make` defines the object, and is passed whether
/// merging is on.
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
