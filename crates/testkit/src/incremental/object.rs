//! Two object files, a plain one and a merged one, and a program in C that calls the functions in
//! them.
//!
//! The caller links and runs them and compares what they print. In a shared library, the program in
//! C interposes some functions and data objects. Then the result of a function that reaches one of
//! those is only compared if the interposed symbol is preemptible: references to other visible
//! symbols may reach either definition.

use super::define::{Definer, functions, name, say};
use super::program::{AREA, Call, Data, MAX_EXTRAS, Part, Program};
use super::statistics::Statistics;
use super::{Finding, settings};
use crate::jit::BUFFER;
use crate::modules::Item;
use crate::{isa, modules};
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use cranelift_module::Linkage;
use std::fmt::Write;

/// The kind of file that an object becomes a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// The program itself.
    Program,
    /// A shared library, with another definition of some functions in the program.
    Shared,
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
    let bodies = functions(program);
    let module = || {
        let settings = [&settings(program.speed)[..], &[("is_pic", "true")]].concat();
        modules::object_with(isa::of(triple, &settings), |_| {})
    };
    let mut plain = Definer::plain(module(), program, &bodies, prefix);
    let back_end = if program.any_back_end { BackEnd::Any } else { BackEnd::Object };
    let options = ModuleOptions { back_end, ..program.options };
    let merging = MergingModule::with_options(module(), options);
    let mut merging = Definer::new(merging, program, &bodies, prefix);
    for flush in 0..program.flushes.len() {
        plain.define(flush, &mut |_, _, _| {}).unwrap_or_else(|error| panic!("{error:?}"));
        let defined =
            merging.define(flush, &mut |module, part, ids| say(module, program, part, ids));
        // An object is planned once.
        let last = flush + 1 == program.flushes.len();
        let flushes = if last { !program.finishes } else { program.any_back_end };
        let flushed = defined.and_then(|()| match flushes {
            true => merging.module.flush(),
            false => Ok(()),
        });
        if let Err(error) = flushed {
            return Err(Finding::new(format!("flush {flush} is refused: {error}")));
        }
    }
    statistics.add_module(program, &merging.module, &merging.ids);
    let merged = match program.any_back_end {
        true => merging.module.into_inner().map(|(object, aliases)| {
            assert!(aliases.is_empty(), "symbols that this host cannot place");
            object.finish()
        }),
        false => merging.module.finish(),
    };
    let merged = match merged {
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

/* Definitions that interpose others. */
static number numbers[ITEMS];
static number code(number n) {
    return 3000000 + n;
}

/* Calls a function with a fresh buffer. A negative pointer is null. Prints what it returned, a hash of its
   memory, and by how much it misses its alignment. */
static void call(int program, int at, function *code, number alignment, number n, number g, number a, number b,
                 number c, number d, number e, number f, number h) {
    unsigned long hash = 0xcbf29ce484222325;
    for (int i = 0; i < BUFFER; i++)
        buffer[i] = i * 37 + 11;
    number result = code(n, g, a < 0 ? 0 : (number)buffer + a, b < 0 ? 0 : (number)buffer + b, c, d, e, f, h);
    for (int i = 0; i < BUFFER; i++)
        hash = (hash ^ buffer[i]) * 0x100000001b3;
    printf("%d %d %ld %lx %ld\n", program, at, result, hash, (number)code & (alignment - 1));
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

/// The functions and data objects that the program in C interposes. With an unknown wrapped module,
/// a merged function may name one that can be interposed, as [`BackEnd::Any`] says.
fn interposed(program: &Program, image: Image) -> impl Iterator<Item = Part> {
    let is_interposed = move |part: &Part| match part {
        Part::Function(_) => {
            !program.any_back_end || program.linkage(*part) == Linkage::Preemptible
        }
        Part::Data(_) => true,
    };
    let parts = program.interposed.iter().copied().filter(is_interposed);
    parts.filter(move |_| image == Image::Shared)
}

/// The interposing definition in C: with other results, other numbers, and other addresses.
fn interposer(program: &Program, prefix: &str, part: Part) -> String {
    let name = name(prefix, part);
    match part {
        Part::Function(function) => {
            let params: Vec<String> =
                (0..4 + MAX_EXTRAS).map(|param| format!("number p{param}")).collect();
            let (params, result) = (params.join(", "), 1_000_000 + function);
            format!("number {name}({params}) {{ return {result} + p0; }}\n")
        }
        Part::Data(data) => {
            let Data { items, writable, .. } = &program.data[data];
            let item = |(slot, item): (usize, &Item)| match item {
                Item::Number(_) => format!("(void *){}L", 2_000_000 + 100 * data + slot),
                Item::Function(_) => "(void *)code".to_owned(),
                Item::Data { .. } => "(void *)numbers".to_owned(),
            };
            let items: Vec<String> = items.iter().enumerate().map(item).collect();
            let (writable, items) = (if *writable { "" } else { "const" }, items.join(", "));
            let alignment = program.alignment(part);
            format!(
                "void *{writable} {name}[] __attribute__((aligned({alignment}))) = {{ {items} }};\n"
            )
        }
    }
}

/// A program in C that makes the calls of these programs, each with its prefix. It prints a line
/// for each: the numbers of the program and the call, what it returned, a hash of its memory, and
/// by how much the function misses its alignment. A program that does not end is stopped, and has
/// no further lines.
pub fn main_of(programs: &[(&str, &Program)], image: Image) -> String {
    let items = AREA / 8;
    let mut text = format!("#define BUFFER {BUFFER}\n#define ITEMS {items}\n{BEGINNING}");
    let mut table = String::new();
    for (number, (prefix, program)) in programs.iter().enumerate() {
        let mut functions: Vec<usize> =
            calls(program, image).map(|(_, call)| call.function).collect();
        for part in interposed(program, image) {
            text += &interposer(program, prefix, part);
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
            numbers.resize(4 + MAX_EXTRAS, 0);
            let numbers: Vec<String> = numbers.iter().map(|number| format!("{number}L")).collect();
            let part = Part::Function(call.function);
            let (name, alignment) = (name(prefix, part), program.alignment(part));
            let numbers = numbers.join(", ");
            writeln!(text, "    call({number}, {at}, {name}, {alignment}, {numbers});").unwrap();
        }
        text += "}\n";
        writeln!(table, "    program{number},").unwrap();
    }
    write!(text, "\nstatic void (*const programs[])(void) = {{\n{table}}};\n{MAIN}").unwrap();
    text
}

/// Whether each of the calls that a program in C can make may give one result or another: it
/// reaches a symbol that is interposed and not preemptible, or memory that such a call can have
/// written to before.
fn undecided(program: &Program, image: Image) -> Vec<bool> {
    let open: Vec<Part> = interposed(program, image)
        .filter(|part| program.linkage(*part) != Linkage::Preemptible)
        .collect();
    let mut written: Vec<Part> = Vec::new();
    let is_open = |(_, call): (usize, &Call)| {
        let reached = program.reached([Part::Function(call.function)]);
        let is_open = reached.iter().any(|part| open.contains(part) || written.contains(part));
        if is_open {
            let is_writable = |part: &Part| match *part {
                Part::Function(_) => false,
                Part::Data(data) => program.data[data].writable,
            };
            written.extend(reached.into_iter().filter(is_writable));
        }
        is_open
    };
    calls(program, image).map(is_open).collect()
}

/// Compares what two runs of [`main_of`] printed, with the plain objects and with the merged ones:
/// what differs in which program.
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
        let undecided = undecided(program, image);
        for ((at, call), undecided) in calls(program, image).zip(undecided) {
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
