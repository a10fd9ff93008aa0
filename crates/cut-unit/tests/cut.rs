//! The units that a unit is cut into, and how the program `cut-unit` ends. That they link is for
//! the tests of `clif-merge`.

use clif_unit::sources::Source;
use clif_unit::unit::{Reading, Unit, external_names, parse_unit};
use clif_unit::verify::Verifier;
use cranelift_codegen::ir::ExternalName;
use cranelift_mergefunc::{Addresses, Linkage, cranelift_codegen};
use cut_unit::{By, cut};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

const SMALL: &str = "\
set opt_level=none
; of the unit
target x86_64

; of %a
function %a(i32) -> i32 {
    fn0 = %b(i32) -> i32
block0(v0: i32):
    v1 = call fn0(v0) ; to the next
    return v1
}
; of %b
;@ key=7
function %b(i32) -> i32 {
    gv0 = symbol colocated %d
block0(v0: i32):
    v1 = symbol_value.i64 gv0
    return v0
}

;@ linkage=export
;@ addresses=significant
function %c(i32) -> i32 {
    fn0 = %c(i32) -> i32
    fn1 = %elsewhere(i32) -> i32
block0(v0: i32):
    v1 = call fn0(v0)
    v2 = call fn1(v1)
    return v2
}

;@ linkage=local
function %d(i32) -> i32 {
    fn0 = %c(i32) -> i32
block0(v0: i32):
    v1 = call fn0(v0)
    return v1
}
; the end
";

fn source(name: &str, text: &str) -> Source {
    Source { name: name.to_owned(), text: text.to_owned() }
}

fn sample() -> Source {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/rust-generics.clif");
    source("sample", &std::fs::read_to_string(path).expect("the sample"))
}

/// Where the text of `SMALL` has a function, without the closing line feed.
fn body(name: &str) -> &'static str {
    let start = SMALL.find(&format!("function %{name}(")).expect("the function");
    let length = SMALL[start..].find("\n}").expect("its end") + 2;
    &SMALL[start..start + length]
}

/// The unit of these functions, each with the line above it.
fn unit(functions: &[(&str, &str)]) -> String {
    let mut text = ";@ defaults linkage=local addresses=insignificant\n\
                    set opt_level=none\ntarget x86_64\n"
        .to_owned();
    for (name, directives) in functions {
        text.push('\n');
        text.push_str(directives);
        text.push_str(body(name));
        text.push('\n');
    }
    text
}

const EXPORTED: &str = ";@ linkage=export addresses=significant\n";
const HIDDEN: &str = ";@ linkage=hidden\n";

#[test]
fn neighbours_stay_together() {
    let found = cut(source("small", SMALL), 2, By::Neighbouring).unwrap();
    let first = unit(&[("a", ""), ("b", ";@ key=7\n")]);
    // Only its address is taken from elsewhere.
    let second = unit(&[("c", EXPORTED), ("d", HIDDEN)]);
    assert_eq!(found, [first, second]);
}

#[test]
fn functions_go_to_units_in_turn() {
    let found = cut(source("small", SMALL), 2, By::Turn).unwrap();
    let first = unit(&[("a", ""), ("c", EXPORTED)]);
    let second = unit(&[("b", ";@ linkage=hidden key=7\n"), ("d", "")]);
    assert_eq!(found, [first, second]);
}

#[test]
fn no_unit_is_empty_and_one_unit_is_the_whole() {
    for by in [By::Neighbouring, By::Turn] {
        assert_eq!(cut(source("small", SMALL), 100, by).unwrap().len(), 4);
        let whole = unit(&[("a", ""), ("b", ";@ key=7\n"), ("c", EXPORTED), ("d", "")]);
        assert_eq!(cut(source("small", SMALL), 1, by).unwrap(), [whole]);
    }
}

/// Defaults of the text are said of every function.
#[test]
fn defaults_of_the_text_hold() {
    let text = format!(";@ defaults linkage=export\n{}\n", body("d"));
    let found = cut(source("small", &text), 1, By::Turn).unwrap();
    assert!(found[0].contains("\n;@ linkage=export\nfunction %d"), "{}", found[0]);
}

#[test]
fn what_cannot_be_cut_is_refused_with_its_place() {
    let f = "function %f() {\nblock0:\n    return\n}\n";
    let call = "fn0 = %f()\nblock0:\n    call fn0()";
    for (text, expected) in [
        (format!("{f};@ data %x = u8 1\n"), "t:5:9: %x: a unit with data objects cannot be cut"),
        (
            format!("{f};@ alias=%f\n{}", f.replace("%f", "%g").replace("block0:", call)),
            "t:6: %g has 'alias=': a merged unit cannot be cut",
        ),
        (format!("{f}{f}"), "t:5: function %f is defined twice\nt:1: the other definition"),
        (String::new(), "t: no functions"),
    ] {
        let error = cut(source("t", &text), 2, By::Turn).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

fn read(sources: &[Source]) -> Unit {
    parse_unit(sources, Reading::plain(&Verifier::without_target())).unwrap()
}

/// The text of each function by its name.
fn texts(unit: &Unit) -> BTreeMap<String, String> {
    let texts = unit.given.iter().zip(&unit.functions).map(|(given, func)| {
        (unit.names.display(&given.symbol), clif_unit::text::of(&unit.names.restore(func)))
    });
    texts.collect()
}

#[test]
fn the_units_of_the_sample_are_the_sample() {
    let whole = texts(&read(&[sample()]));
    for by in [By::Neighbouring, By::Turn] {
        let units = cut(sample(), 16, by).unwrap();
        let sources: Vec<_> = units.iter().map(|text| source("unit", text)).collect();
        assert_eq!(texts(&read(&sources)), whole);
        assert_eq!(cut(sample(), 16, by).unwrap(), units, "the same again");

        let units: Vec<_> = sources.into_iter().map(|source| read(&[source])).collect();
        let counts: BTreeSet<_> = units.iter().map(|unit| unit.functions.len()).collect();
        assert_eq!(counts, BTreeSet::from([9, 10]), "149 functions");
        let referred: Vec<_> = units.iter().map(referred).collect();
        let mut hidden = 0;
        for (at, unit) in units.iter().enumerate() {
            for given in &unit.given {
                let name = unit.names.display(&given.symbol);
                let others = referred.iter().enumerate().filter(|(other, _)| *other != at);
                let used = others.into_iter().any(|(_, names)| names.contains(&name));
                let linkage = if used { Linkage::Hidden } else { Linkage::Local };
                assert_eq!(given.attributes.linkage, linkage, "{name}");
                assert_eq!(given.attributes.addresses, Addresses::Insignificant);
                hidden += usize::from(used);
            }
        }
        assert!(hidden > 20, "{hidden}");
    }
}

/// The names that a unit refers to.
fn referred(unit: &Unit) -> BTreeSet<String> {
    let of = |func| external_names(func).map(move |name| (func, name));
    let names = unit.functions.iter().flat_map(of).filter_map(|(func, name)| match name {
        ExternalName::User(name) => {
            Some(unit.names.display(&func.params.user_named_funcs()[*name]))
        }
        _ => None,
    });
    names.collect()
}

/// Runs the program on a text: how it ended, what it said, and the files in its output directory.
fn run(text: &str, directory: &Path, more: &[&str]) -> (bool, String, Vec<PathBuf>) {
    let unit = directory.join("whole.clif");
    std::fs::write(&unit, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cut-unit"));
    command.args(["whole.clif", "-o", "out"]).args(more).current_dir(directory);
    let output = command.output().unwrap();
    let files = std::fs::read_dir(directory.join("out")).into_iter().flatten();
    let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    (output.status.success(), String::from_utf8(output.stderr).unwrap(), files)
}

#[test]
fn the_program_writes_all_units_or_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let arguments = ["--units", "3", "--by", "turn"];
    let (success, said, files) = run(&SMALL.replace("v1\n}", "v9\n}"), directory, &arguments);
    assert!(
        !success && said.starts_with("error: whole.clif:10:12: ") && files.is_empty(),
        "{said}"
    );
    assert_eq!(std::fs::read_dir(directory).unwrap().count(), 1, "nothing is left behind");

    let (success, said, files) = run(SMALL, directory, &arguments);
    assert!(success && said.is_empty(), "{said}");
    let names: Vec<_> = files.iter().map(|path| path.file_name().unwrap()).collect();
    assert_eq!(names, ["unit-0000.clif", "unit-0001.clif", "unit-0002.clif"]);
    let written: Vec<_> = files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    assert_eq!(written, cut(source("small", SMALL), 3, By::Turn).unwrap());

    let (success, said, _) = run(SMALL, directory, &arguments);
    assert!(!success && said == "error: out: the directory is not empty\n", "{said}");
}

/// A program that is linked with a C library has code outside of `.text`.
#[test]
#[cfg(target_os = "linux")]
fn text_is_all_code_of_an_image_or_its_size_is_an_error() {
    let program = env!("CARGO_BIN_EXE_text-size");
    let output = Command::new(program).arg(program).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(said.starts_with("error: ") && said.contains(": code in .init as well"), "{said}");
}
