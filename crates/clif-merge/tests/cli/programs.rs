//! Real programs, merged across units: cut into units that are compiled apart and linked, they print what they print
//! unmerged, and what Wasmtime computed when it translated them.
//!
//! The programs are in `benches/programs`, and `testkit::programs` makes a host for them. What is compared is each
//! result and all of the memory that a program leaves behind, on both targets. How much merging saves is measured by
//! `benches/cross-unit`, of other units: here it only must save something, by bodies that several units have.

use crate::across::{Units, linkers, shared};
use crate::program::text_of;
use cut_unit::By;
use object::{Object as _, ObjectSymbol as _};
use std::collections::HashMap;
use testkit::programs::{Image, elements, host, linkable};
use testkit::tools::Toolchain;

/// How a program is built: with the name of the variant and the policy of a map, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    OneRound,
    Map(&'static str),
}

const ALL: [Variant; 3] = [Variant::OneRound, Variant::Map("balanced"), Variant::Map("size")];

/// How many units a program is cut into.
const UNITS: usize = 5;

/// A unit of `benches/programs`, with what must hold of it.
struct Programs {
    /// The directory.
    path: &'static str,
    /// Every program is called with these, and with 1.
    amounts: &'static [u32],
}

impl Programs {
    /// Builds and runs all variants for each cut and target. With a map, at least so many bodies are in several objects.
    fn check(&self, variants: &[(By, usize, &[Variant])]) {
        let path = testkit::root().join("benches/programs").join(self.path);
        let image = Image::read(&path);
        let amounts = [&[1], self.amounts].concat();
        let mut printed = Vec::new();
        for (tools, target) in [(Toolchain::x86_64(), "x86_64"), (Toolchain::aarch64(), "aarch64")]
        {
            for &(by, least, variants) in variants {
                let units = Units::with_host(tools, target, UNITS, &host(&image, &amounts));
                units.write("u", linkable(&path, &image), by);
                printed.push(self.check_units(&units, &image, by, least, variants));
            }
        }
        for other in &printed[1..] {
            assert_eq!(*other, printed[0], "{}: targets and cuts", self.path);
        }
    }

    /// Returns what the programs print.
    fn check_units(
        &self,
        units: &Units,
        image: &Image,
        by: By,
        least: usize,
        variants: &[Variant],
    ) -> String {
        let Units { workshop, target, .. } = units;
        let table = text_of(&workshop.write("table.clif", elements(image))).to_owned();
        let output = units.path("table.o");
        units.clif_merge(&["compile", "--no-merge", "--target", target, &table, "-o", &output]);
        let build = |name: &str, options: &dyn Fn(usize) -> Vec<String>| {
            let (mut objects, said) = units.compile(name, "u", options);
            let bodies = in_several(units, &objects);
            objects.push("table.o".to_owned());
            let linked = linkers().map(|(linker, flags)| {
                let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
                units.link(&format!("{name}-{linker}"), &objects, &flags)
            });
            (linked, bodies, shared(&said))
        };
        let (before, bodies, _) = build("unmerged", &|_| vec!["--no-merge".to_owned()]);
        assert_eq!(bodies, 0);
        for (printed, _) in &before {
            self.compare_with_wasmtime(printed, image);
        }
        let summaries = match variants.iter().any(|variant| *variant != Variant::OneRound) {
            true => units.summaries("u"),
            false => Vec::new(),
        };
        for variant in variants {
            let what = format!("{}, {target}, {by:?}, {variant:?}", self.path);
            let verify = || "--verify".to_owned();
            let (linked, bodies, shared) = match variant {
                Variant::OneRound => {
                    build("one-round", &|_| vec![verify(), "--content-addressed".to_owned()])
                }
                Variant::Map(policy) => {
                    let parts = units.maps(policy, &summaries);
                    build(policy, &|at| {
                        vec![verify(), "--map".to_owned(), format!("{parts}/u{at}.map")]
                    })
                }
            };
            for ((printed, bytes), (expected, unmerged)) in linked.iter().zip(&before) {
                assert_eq!(printed, expected, "{what}");
                assert!(bytes < unmerged, "{what}: {bytes} of {unmerged} bytes");
            }
            let texts = (before[0].1, linked[0].1);
            println!(
                "{what}: {bodies} bodies in several units, {shared} functions share bodies by the map, {} of {} bytes",
                texts.1, texts.0
            );
            match variant {
                Variant::OneRound => assert!(bodies > 0, "{what}"),
                Variant::Map(_) => {
                    assert!(bodies >= least, "{what}: {bodies} bodies in several units");
                    assert!(shared > bodies, "{what}: {shared} functions");
                }
            }
        }
        let [(printed, _), _] = before;
        printed
    }

    /// The first line of each program is for 1, with the result that Wasmtime computed.
    fn compare_with_wasmtime(&self, printed: &str, image: &Image) {
        let results: Vec<Vec<&str>> =
            printed.lines().map(|line| line.split(' ').collect()).collect();
        let lines = 1 + self.amounts.len();
        assert_eq!(results.len(), lines * image.programs.len(), "{printed}");
        for (lines, program) in results.chunks(lines).zip(&image.programs) {
            let expected = program.checksum.to_string();
            assert_eq!(lines[0][..3], [&*program.name, "1", &expected], "{}", self.path);
        }
    }
}

/// How many content-addressed bodies are defined by two or more of some objects.
fn in_several(units: &Units, objects: &[String]) -> usize {
    let mut found: HashMap<String, usize> = HashMap::new();
    for object in objects {
        let bytes = std::fs::read(units.workshop.path(object)).expect("an object");
        let file = object::File::parse(&*bytes).expect("an object");
        for symbol in file.symbols() {
            let name = symbol.name().expect("a name");
            if symbol.is_definition() && symbol.is_global() && name.starts_with("content.") {
                *found.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
    found.values().filter(|&&count| count > 1).count()
}

/// Generic code, optimised: little is left that differs in constants and callees only.
#[test]
fn optimised_rust_does_what_it_did_unmerged() {
    let programs = Programs { path: "units/release", amounts: &[3] };
    programs.check(&[(By::Turn, 10, &ALL), (By::Neighbouring, 3, &ALL)]);
}

/// Generic code as it is without optimisation: most functions share bodies with others.
#[test]
fn unoptimised_rust_does_what_it_did_unmerged() {
    let programs = Programs { path: "units/debug", amounts: &[3] };
    programs.check(&[(By::Turn, 200, &ALL), (By::Neighbouring, 30, &ALL[2..])]);
}

/// A C program with two copies of zlib.
#[test]
fn zlib_does_what_it_did_unmerged() {
    let programs = Programs { path: "c-units/zlib", amounts: &[3] };
    programs.check(&[(By::Turn, 40, &ALL), (By::Neighbouring, 40, &ALL)]);
}
