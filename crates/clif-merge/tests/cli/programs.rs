//! Real programs, merged across units: cut into units that are compiled apart and linked, they
//! print what they print unmerged, and what Wasmtime computed when it translated them.
//!
//! The programs are in `benches/programs`, and `testkit::programs` makes a host for them. The test
//! compares each result, and all of the memory that a program leaves behind; all cuts and both
//! targets must print equal outputs, too. How much merging saves is measured by
//! `benches/cross-unit`, of other units: here it only must save something, by bodies that several
//! units have. `--nocapture` shows how many.

use crate::across::{Units, linkers, shared};
use crate::program::text_of;
use cut_unit::By;
use object::{Object as _, ObjectSymbol as _};
use std::collections::HashMap;
use testkit::programs::{Image, elements, host, linkable};
use testkit::tools::Toolchain;

/// How the units of a program are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// Without a map.
    OneRound,
    /// With a map that is made by a policy.
    Map(&'static str),
}

const BALANCED: Variant = Variant::Map("balanced");
const SIZE: Variant = Variant::Map("size");

/// How a program is cut and merged.
#[derive(Clone, Copy)]
struct Cut {
    by: By,
    variants: &'static [Variant],
    /// With a map, the minimum number of bodies that are in several units.
    bodies: usize,
}

/// How many units a program is cut into.
const UNITS: usize = 5;

/// With how much work every program is called. Wasmtime's result is for 1.
const AMOUNTS: [u32; 2] = [1, 2];

/// Builds and runs the programs of a directory in `benches/programs`, for each cut and target.
fn check(directory: &str, cuts: &[Cut]) {
    let path = testkit::root().join("benches/programs").join(directory);
    let image = Image::read(&path);
    let mut first: Option<String> = None;
    for (tools, target) in [(Toolchain::x86_64(), "x86_64"), (Toolchain::aarch64(), "aarch64")] {
        for cut in cuts {
            let units = Units::with_host(tools, target, UNITS, &host(&image, &AMOUNTS));
            units.write("u", linkable(&path, &image), cut.by);
            let printed = check_cut(&units, &image, cut);
            compare_with_wasmtime(&printed, &image);
            let first = first.get_or_insert_with(|| printed.clone());
            assert_eq!(printed, *first, "{target}, {:?}", cut.by);
        }
    }
}

/// The output of the programs of some units, without merging and in all variants of a cut.
fn check_cut(units: &Units, image: &Image, cut: &Cut) -> String {
    let table = text_of(&units.workshop.write("table.clif", elements(image))).to_owned();
    let object = units.path("table.o");
    units.clif_merge(&["compile", "--target", units.target, &table, "-o", &object]);
    let before = Built::new(units, "unmerged", |_| vec!["--no-merge".to_owned()]);
    assert_eq!(before.bodies, 0);
    let maps = cut.variants.iter().any(|variant| *variant != Variant::OneRound);
    let summaries = if maps { units.summaries("u") } else { Vec::new() };
    for variant in cut.variants {
        let verify = || "--verify".to_owned();
        let built = match variant {
            Variant::OneRound => {
                Built::new(units, "one-round", |_| vec![verify(), "--content-addressed".to_owned()])
            }
            Variant::Map(policy) => {
                let parts = units.maps(policy, &summaries);
                Built::new(units, policy, |at| {
                    vec![verify(), "--map".to_owned(), format!("{parts}/u{at}.map")]
                })
            }
        };
        let what = format!("{}, {:?}, {variant:?}", units.target, cut.by);
        let Built { bodies, shared, .. } = built;
        for ((linker, printed, bytes), (_, expected, unmerged)) in
            built.linked.iter().zip(&before.linked)
        {
            println!(
                "{what}, {linker}: {bytes} of {unmerged} bytes, {bodies} bodies in several units, \
                 {shared} functions by the map"
            );
            assert_eq!(printed, expected, "{what}, {linker}");
            assert!(bytes < unmerged, "{what}, {linker}: {bytes} of {unmerged} bytes");
        }
        let least = if *variant == Variant::OneRound { 1 } else { cut.bodies };
        assert!(bodies >= least, "{what}: {bodies} bodies in several units");
    }
    let [(_, expected, _), (_, printed, _)] = before.linked;
    assert_eq!(printed, expected, "linkers");
    expected
}

/// The objects of all units, linked.
struct Built {
    /// The linker, what the program prints, and the bytes of `.text`.
    linked: [(&'static str, String, u64); 2],
    /// How many content-addressed bodies are defined by two or more units.
    bodies: usize,
    /// How many functions share bodies because a map says so.
    shared: usize,
}

impl Built {
    /// Compiles the units, each with its options, and links them with the table.
    fn new(units: &Units, name: &str, options: impl Fn(usize) -> Vec<String>) -> Built {
        let (mut objects, said) = units.compile(name, "u", options);
        let bodies = in_several(units, &objects);
        objects.push("table.o".to_owned());
        let linked = linkers().map(|(linker, flags)| {
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let (printed, bytes) = units.link(&format!("{name}-{linker}"), &objects, &flags);
            (linker, printed, bytes)
        });
        Built { linked, bodies, shared: shared(&said) }
    }
}

fn in_several(units: &Units, objects: &[String]) -> usize {
    let mut found: HashMap<String, usize> = HashMap::new();
    for object in objects {
        let bytes = std::fs::read(units.workshop.path(object)).expect("an object");
        let file = object::File::parse(&*bytes).expect("an object");
        for symbol in file.symbols() {
            let name = symbol.name().expect("a name");
            // A local symbol of the same name is in the same object.
            if symbol.is_definition() && symbol.is_global() && name.starts_with("content.") {
                *found.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
    found.values().filter(|&&count| count > 1).count()
}

/// The first line of each program is for 1.
fn compare_with_wasmtime(printed: &str, image: &Image) {
    let lines: Vec<Vec<&str>> = printed.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(lines.len(), AMOUNTS.len() * image.programs.len(), "{printed}");
    for (lines, program) in lines.chunks(AMOUNTS.len()).zip(&image.programs) {
        let expected = program.checksum.to_string();
        assert_eq!(lines[0][..3], [&*program.name, "1", &expected]);
    }
}

/// Generic code, optimised: little is left that differs in constants and callees only.
#[test]
fn optimised_rust_does_what_it_did_unmerged() {
    let variants = &[Variant::OneRound, BALANCED, SIZE];
    let turn = Cut { by: By::Turn, variants, bodies: 10 };
    check("units/release", &[turn, Cut { by: By::Neighbouring, variants, bodies: 3 }]);
}

/// Generic code as it is without optimisation: most functions share bodies with others.
#[test]
fn unoptimised_rust_does_what_it_did_unmerged() {
    let turn = Cut { by: By::Turn, variants: &[Variant::OneRound, SIZE], bodies: 200 };
    let neighbouring = Cut { by: By::Neighbouring, variants: &[BALANCED], bodies: 20 };
    check("units/debug", &[turn, neighbouring]);
}

/// A C program with two copies of zlib.
#[test]
fn c_does_what_it_did_unmerged() {
    let variants = &[Variant::OneRound, BALANCED, SIZE];
    let turn = Cut { by: By::Turn, variants, bodies: 40 };
    check("c-units/zlib", &[turn, Cut { by: By::Neighbouring, variants, bodies: 40 }]);
}
