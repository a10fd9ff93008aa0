//! Two object files, a plain one and a merged one, and a program in C that calls what is in them.
//!
//! Whoever links and runs them compares what is printed. In a shared library, the program in C takes the
//! place of some functions; then what a function does that reaches one of them is only compared if that is
//! preemptible: calls of others that are seen may go here or there.

use super::Finding;
use super::define::{Definer, name, parse, say};
use super::program::{BUFFER, Call, MOST_EXTRAS, Part, Program};
use super::statistics::Statistics;
use crate::{BackEnd, MergingModule, ModuleOptions};
use cranelift_codegen::isa::{self, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable, Flags};
use cranelift_module::Linkage;
use cranelift_object::{ObjectBuilder, ObjectModule};
use std::fmt::Write;

/// What an object becomes a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// The program itself.
    Program,
    /// A shared library, with another definition of some functions in the program.
    Shared,
}

fn isa(triple: &str, speed: bool) -> OwnedTargetIsa {
    let mut flags = settings::builder();
    for (name, value) in [
        ("is_pic", "true"),
        ("preserve_frame_pointers", "true"),
        ("opt_level", if speed { "speed" } else { "none" }),
    ] {
        flags.set(name, value).expect("a shared setting");
    }
    let triple = triple.parse().expect("a triple");
    isa::lookup(triple).expect("is built in").finish(Flags::new(flags)).expect("an ISA")
}

/// The plain object file and the merged one, whose symbols begin with `prefix`.
///
/// # Errors
///
/// If a flush is refused.
///
/// # Panics
///
/// If the program is wrong, or the pass panics.
pub fn objects(
    program: &Program,
    prefix: &str,
    triple: &str,
    statistics: &mut Statistics,
) -> Result<[Vec<u8>; 2], Finding> {
    let bodies = parse(program);
    let module = || {
        let names = cranelift_module::default_libcall_names();
        let isa = isa(triple, program.speed);
        ObjectModule::new(ObjectBuilder::new(isa, "unit", names).expect("an object"))
    };
    let mut plain = Definer::new(module(), program, &bodies, prefix);
    let options = ModuleOptions { back_end: BackEnd::Object, ..program.options };
    let merging = MergingModule::with_options(module(), options);
    let mut merging = Definer::new(merging, program, &bodies, prefix);
    for flush in 0..program.flushes.len() {
        plain.define(flush, &mut |_, _, _| {}).unwrap_or_else(|error| panic!("{error:?}"));
        let defined =
            merging.define(flush, &mut |module, part, ids| say(module, program, part, ids));
        // The last one is that of `finish`, at times.
        let flushed = defined.and_then(|()| {
            match flush + 1 < program.flushes.len() || program.flushes[0].ready {
                true => merging.module.flush(),
                false => Ok(()),
            }
        });
        if let Err(error) = flushed {
            return Err(Finding::new(format!("flush {flush} is refused: {error}")));
        }
    }
    statistics.add_module(program, &merging.module, &merging.ids);
    let merged = match merging.module.finish() {
        Ok(merged) => merged,
        Err(error) => return Err(Finding::new(format!("the end is refused: {error}"))),
    };
    Ok([plain.module.finish(), merged].map(|product| product.emit().expect("an object file")))
}

/// The calls that a program in C can make, by number.
fn calls(program: &Program, image: Image) -> impl Iterator<Item = (usize, &Call)> {
    let is_seen =
        move |(_, call): &(usize, &Call)| match program.linkage(Part::Function(call.function)) {
            Linkage::Local | Linkage::Import => false,
            Linkage::Hidden => image == Image::Program,
            Linkage::Export | Linkage::Preemptible => true,
        };
    program.calls.iter().enumerate().filter(is_seen)
}

const BEGINNING: &str = r#"#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

typedef long number;
#define NUMBERS number, number, number, number, number, number, number, number, number
typedef number function(NUMBERS);

static unsigned char buffer[BUFFER] __attribute__((aligned(64)));

/* Calls a function with a fresh buffer. A negative pointer is null. */
static void call(int program, int at, function *code, number n, number g, number a, number b, number c,
                 number d, number e, number f, number h) {
    unsigned long hash = 0xcbf29ce484222325;
    for (int i = 0; i < BUFFER; i++)
        buffer[i] = i * 37 + 11;
    number result = code(n, g, a < 0 ? 0 : (number)buffer + a, b < 0 ? 0 : (number)buffer + b, c, d, e, f, h);
    for (int i = 0; i < BUFFER; i++)
        hash = (hash ^ buffer[i]) * 0x100000001b3;
    printf("%d %d %ld %lx\n", program, at, result, hash);
    fflush(stdout);
}

"#;

const MAIN: &str = r#"
int main(void) {
    for (unsigned i = 0; i < sizeof(programs) / sizeof(*programs); i++) {
        if (!fork()) {
            alarm(20);
            programs[i]();
            _exit(0);
        }
        wait(0);
    }
    return 0;
}
"#;

/// A program in C that makes the calls of these programs, each with its prefix. It prints a line for each:
/// the numbers of the program and the call, what it returned, and a hash of its memory. A program that does
/// not end is stopped, and has no further lines.
pub fn main_of(programs: &[(&str, &Program)], image: Image) -> String {
    let mut text = format!("#define BUFFER {BUFFER}\n{BEGINNING}");
    let mut table = String::new();
    for (number, (prefix, program)) in programs.iter().enumerate() {
        let mut functions: Vec<usize> =
            calls(program, image).map(|(_, call)| call.function).collect();
        let interposed = program.interposed.iter().filter(|_| image == Image::Shared);
        for &function in interposed {
            let name = name(prefix, Part::Function(function));
            let params: Vec<String> =
                (0..4 + MOST_EXTRAS).map(|param| format!("number p{param}")).collect();
            writeln!(
                text,
                "number {name}({}) {{ return {} + p0; }}",
                params.join(", "),
                1_000_000 + function
            )
            .unwrap();
        }
        functions.sort_unstable();
        functions.dedup();
        for function in functions {
            writeln!(text, "extern function {};", name(prefix, Part::Function(function))).unwrap();
        }
        writeln!(text, "static void program{number}(void) {{").unwrap();
        for (at, call) in calls(program, image) {
            let mut numbers = call.numbers.to_vec();
            numbers.extend(call.pointers.map(|pointer| pointer.unwrap_or(-1)));
            numbers.extend(&call.extras);
            numbers.resize(4 + MOST_EXTRAS, 0);
            let numbers: Vec<String> = numbers.iter().map(|number| format!("{number}L")).collect();
            let name = name(prefix, Part::Function(call.function));
            writeln!(text, "    call({number}, {at}, {name}, {});", numbers.join(", ")).unwrap();
        }
        text += "}\n";
        writeln!(table, "    program{number},").unwrap();
    }
    write!(text, "\nstatic void (*const programs[])(void) = {{\n{table}}};\n{MAIN}").unwrap();
    text
}

/// Compares what two runs of [`main_of`] printed, with the plain objects and with the merged ones: what
/// differs in which program.
///
/// # Panics
///
/// If a plain program does not end.
pub fn compare(
    programs: &[(&str, &Program)],
    image: Image,
    printed: [&str; 2],
) -> Vec<(usize, Finding)> {
    let line = |printed: &str, program: usize, at: usize| {
        let start = format!("{program} {at} ");
        let line = printed.lines().find(|line| line.starts_with(&start));
        line.map(|line| line[start.len()..].to_owned())
    };
    let mut findings = Vec::new();
    for (number, (_, program)) in programs.iter().enumerate() {
        for (at, call) in calls(program, image) {
            let reached = program.reached([Part::Function(call.function)]);
            let undecided = image == Image::Shared
                && program.interposed.iter().any(|&function| {
                    let part = Part::Function(function);
                    reached.contains(&part)
                        && program.functions[function].linkage != Linkage::Preemptible
                });
            let [plain, merged] = printed.map(|printed| line(printed, number, at));
            assert!(plain.is_some(), "the plain program {number} does not end: {call:?}");
            if plain != merged && !undecided {
                let what = format!("{call:?} gives {merged:?} instead of {plain:?}");
                findings.push((number, Finding::new(what)));
                break;
            }
        }
    }
    findings
}
