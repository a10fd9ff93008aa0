//! Explanations of merging across units: which functions share bodies, why two do not, and to which
//! functions an address of the linked image belongs.

use crate::across::{COUNT, Units, linkers, on_each_target};
use crate::program::{run, text_of};
use cut_unit::By;
use object::{Object as _, ObjectSection as _};
use std::collections::BTreeSet;
use testkit::tools::{Toolchain, Workshop};

/// A report that left a unit's functions out, or counted other sets than the map has, would say
/// nothing of the program.
#[test]
fn the_report_names_what_shares_bodies_in_all_units() {
    let units = Units::new(Toolchain::x86_64(), "x86_64", 3, By::Turn);
    let summaries = units.summaries("u");
    let summaries: Vec<&str> = summaries.iter().map(String::as_str).collect();
    let report = |more: &[&str]| {
        let arguments = [&["combine", "--similar", "size", "--report", "-"], more, &summaries];
        let ran = run(&arguments.concat()).expect(0, "functions of 3 units share");
        String::from_utf8(ran.stdout).expect("text")
    };
    let json: serde_json::Value =
        serde_json::from_str(&report(&["--format", "json"])).expect("JSON");
    let sets = json["sets"].as_array().expect("sets");
    let number = |value: &serde_json::Value| value.as_i64().expect("a number");
    let text = report(&[]);
    assert_eq!(text.lines().filter(|line| !line.starts_with(' ')).count(), sets.len());
    let (mut members, mut saved, mut before) = (0, 0, i64::MAX);
    for set in sets {
        let of_set = set["members"].as_array().expect("members");
        let of_units: BTreeSet<&str> =
            of_set.iter().map(|member| member["unit"].as_str().expect("a unit")).collect();
        assert!(of_units.len() > 1 && of_units.is_subset(&BTreeSet::from(["u0", "u1", "u2"])));
        for member in of_set {
            let (unit, symbol) = (&member["unit"], &member["symbol"]);
            let name = format!("    {}:{} (", unit.as_str().unwrap(), symbol.as_str().unwrap());
            assert!(text.lines().any(|line| line.starts_with(&name)), "{name}: {text}");
        }
        members += of_set.len() as i64;
        saved += number(&set["saved"]);
        assert!(number(&set["saved"]) <= before);
        before = number(&set["saved"]);
    }
    assert_eq!((members, saved), (number(&json["sharing"]), number(&json["saved"])));
    assert!(members as usize > COUNT && saved > 0);
    // A report changes nothing that is decided.
    let (with, without) = (units.path("with.map"), units.path("without.map"));
    report(&["-o", &with]);
    units.clif_merge(&[&["combine", "--similar", "size", "-o", &without], &summaries[..]].concat());
    assert_eq!(std::fs::read(with).expect("a map"), std::fs::read(without).expect("a map"));
}

/// Who asks why two functions of different units did not merge must not be answered about others,
/// or about one unit.
#[test]
fn why_compares_functions_of_different_units() {
    let units = Units::new(Toolchain::x86_64(), "x86_64", 2, By::Turn);
    let summaries = units.summaries("u");
    let summaries: Vec<&str> = summaries.iter().map(String::as_str).collect();
    let why = |code: i32, names: &[&str]| {
        let ran = run(&[&["why"], &summaries[..], names].concat()).expect(code, "");
        String::from_utf8(ran.stdout).expect("text") + &ran.stderr
    };
    let has = |text: String, parts: &[&str]| {
        for part in parts {
            assert!(text.contains(part), "no '{part}' in: {text}");
        }
    };
    let differ = "They have one shape and differ at 1 of";
    has(
        why(0, &["leaf0", "leaf1"]),
        &[differ, "  constant 0xb / constant 0x30", "They share a body"],
    );
    has(why(0, &["middle0", "middle1"]), &["They have one shape", "They share a body"]);
    has(why(0, &["%enter0", "enter1"]), &["They have one shape and differ at 2 of"]);
    has(
        why(0, &["leaf0", "down1"]),
        &["They have different shapes", "with the text of both units"],
    );
    has(why(0, &["leaf0"]), &["Functions of its shape: 39", "which shares its body"]);
    has(why(1, &["leaf0", "nothing"]), &["no summary has a function nothing"]);
    has(why(1, &["u7:leaf0", "leaf1"]), &["no summary has a function u7:leaf0"]);
    has(why(2, &[]), &["one or two names of functions"]);
    has(why(2, &["leaf0", "leaf1", "leaf2"]), &["one or two names of functions"]);
    // In which unit a function is, is known where there is only one.
    let place = why(0, &["leaf0"]);
    let (unit, _) = place.split_once(':').expect("a unit");
    assert_eq!(why(0, &[&format!("{unit}:leaf0")]), place);
}

/// The bytes of an image at an address, up to 16.
fn bytes_at<'a>(file: &object::File<'a>, address: u64) -> &'a [u8] {
    let section = file.section_by_name(".text").expect("code");
    let data = section.data().expect("code");
    let at = (address - section.address()) as usize;
    &data[at..data.len().min(at + 16)]
}

/// A profiler asks to which functions an address belongs: no unit knows of which unit the linker
/// kept a body.
#[test]
fn addresses_of_a_linked_image_lead_to_the_functions_of_all_units() {
    on_each_target(3, By::Turn, |units| {
        let parts = units.maps("size", &units.summaries("u"));
        for (name, flags) in linkers() {
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let json = |at: usize| units.path(&format!("{name}{at}.json"));
            let options = |at: usize| {
                let map = format!("{parts}/u{at}.map");
                ["--map", &map, "--merge-map", &json(at)].map(str::to_owned).into()
            };
            let (printed, ..) = units.program(name, "u", options, &flags);
            assert_eq!(printed, units.before);
            let (image, maps) = (units.path(name), (0..3).map(json).collect::<Vec<_>>());
            let locate = |more: &[&str]| {
                let maps = maps.iter().map(String::as_str);
                let arguments: Vec<&str> = ["locate", &image]
                    .into_iter()
                    .chain(maps)
                    .chain(more.iter().copied())
                    .collect();
                let printed = run(&arguments).expect(0, "").stdout;
                String::from_utf8(printed).expect("text")
            };
            let all = locate(&[]);
            let bytes = std::fs::read(&image).expect("a program");
            let file = object::File::parse(&*bytes).expect("a program");
            let mut several = 0;
            for line in all.lines() {
                let (start, rest) = line.split_once(' ').expect("a start");
                let (size, rest) = rest.split_once(' ').expect("a size");
                let address = u64::from_str_radix(start, 16).expect("hexadecimal");
                let size = u64::from_str_radix(size, 16).expect("hexadecimal");
                assert!(size > 0 && !bytes_at(&file, address).is_empty(), "{line}");
                let functions = rest.rsplit_once('[').expect("functions").1.trim_end_matches(']');
                let functions: Vec<&str> = functions.split(", ").collect();
                let of = |unit: &str| functions.iter().any(|name| name.starts_with(unit));
                let units_there = ["bfd", "lld"]
                    .iter()
                    .flat_map(|name| (0..3).map(move |at| format!("{name}{at}:")));
                if rest.starts_with("content.") {
                    several += usize::from(units_there.filter(|unit| of(unit)).count() > 1);
                }
                // In the middle of the code as well.
                let middle = format!("{:x}", address + size / 2);
                let there = locate(&["--at", &middle]);
                assert_eq!(there.lines().count(), functions.len(), "{line}: {there}");
            }
            assert!(several > 3, "{several} of {all}");
            for at in 0..COUNT {
                let entry = format!(":enter{at}");
                let is_entry = |name: &str| name.trim_end_matches([',', ']']).ends_with(&entry);
                assert!(all.split_whitespace().any(is_entry), "enter{at} of {all}");
            }
        }
    });
}

/// A map that `compile --merge-map` did not write, or of another program, is an error that names
/// the file.
#[test]
fn locate_refuses_what_it_cannot_read() {
    let workshop = Workshop::new("locate");
    workshop.write("no.json", "{\"unit\": \"a\"}");
    let word = "{\"unit\": \"a\", \"functions\": [{\"name\": \"f\", \"visible\": true, \"disposition\": \"gone\"}]}";
    workshop.write("word.json", word);
    let function = word.replace("gone", "keep");
    workshop.write("other.json", function);
    workshop.write("image", "no image");
    let path = |name: &str| text_of(&workshop.path(name)).to_owned();
    let program = std::env::current_exe().expect("a program");
    for (image, map, message) in [
        (
            path("image"),
            path("no.json"),
            "no.json: not what 'compile --merge-map' writes: missing field",
        ),
        (path("image"), path("word.json"), "f has the disposition `gone` without code"),
        (path("image"), path("missing.json"), "cannot read"),
        (path("image"), path("other.json"), "image: not a linked image"),
        (
            text_of(&program).to_owned(),
            path("other.json"),
            "no symbol of a function of these units",
        ),
    ] {
        let said = run(&["locate", &image, &map]).expect(1, "").stderr;
        assert!(said.contains(message), "{message}: {said}");
    }
    let twice = path("other.json");
    let said = run(&["locate", text_of(&program), &twice, &twice]).expect(1, "").stderr;
    assert!(said.contains("other.json: there is another unit `a`"), "{said}");
}

/// A build that takes the summaries of the build before reads each unit once. Its maps must be
/// those of three steps.
#[test]
fn compile_writes_the_summary_that_summarize_writes() {
    let units = Units::new(Toolchain::x86_64(), "x86_64", 2, By::Turn);
    let summaries = units.summaries("u");
    let map = |at: usize| format!("{}/u{at}.map", units.maps("size", &summaries));
    for with_map in [false, true] {
        for (at, summary) in summaries.iter().enumerate() {
            let (unit, output) = (units.path(&format!("u{at}.clif")), units.path("out.o"));
            let other = units.path("other.summary");
            let name = format!("u{at}");
            let map = map(at);
            let mut arguments = vec!["compile", "--target", "x86_64", &unit, "-o", &output];
            arguments.extend(["--summary", &other, "--name", &name]);
            if with_map {
                arguments.extend(["--map", &map]);
            }
            units.clif_merge(&arguments);
            let [written, expected] = [&other, summary].map(|path| std::fs::read(path).unwrap());
            assert!(written == expected, "{name} with a map: {with_map}");
        }
    }
}
