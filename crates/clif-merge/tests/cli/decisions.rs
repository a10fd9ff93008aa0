//! Decisions as data: remarks, reports and comparisons are renderings of one table.

use crate::program::{inputs, read, run, temporary, text_of, write};
use saphyr::{LoadableYamlNode as _, Yaml};
use serde_json::Value;

const SAMPLE: [&str; 5] = [
    "--linkage",
    "local",
    "--addresses",
    "insignificant",
    "../../../../samples/rust-generics.clif",
];

/// The rows of remarks as JSON.
fn rows(arguments: &[&str]) -> Vec<Value> {
    let run = run(&[&["remarks", "--format", "json"], arguments].concat()).expect(0, "");
    run.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A report as JSON.
fn report(arguments: &[&str]) -> Value {
    let run = run(&[&["report", "--format", "json"], arguments].concat()).expect(0, "");
    serde_json::from_str(run.text()).expect("JSON")
}

/// A row that is left out, or counted twice, would make every rendering wrong.
#[test]
fn the_rows_of_remarks_are_those_of_the_report_and_add_up_to_its_bytes() {
    for unit in [&SAMPLE[..], &["mixed.clif"], &["tables.clif"], &["similar.clif"]] {
        let arguments = [unit, &["--target", "x86_64"]].concat();
        let (rows, report) = (rows(&arguments), report(&arguments));
        assert_eq!(report["decisions"].as_array().unwrap(), &rows, "{unit:?}");
        let of = |item: &str| rows.iter().filter(|row| row["item"] == item).collect::<Vec<_>>();
        let count = |name: &str| report[name].as_u64().unwrap() as usize;
        let (functions, new) = (of("function"), of("new-body"));
        assert_eq!(functions.len(), count("functions"), "{unit:?}");
        assert_eq!(new.len(), count("new_bodies"), "{unit:?}");
        assert_eq!(of("data").len() as u64, report["data"]["objects"].as_u64().unwrap());
        let merged = functions.iter().filter(|row| row["kind"] == "passed").count();
        assert_eq!(merged, count("merged"), "{unit:?}");
        for (name, of_report) in [("bytes_before", "before"), ("bytes_after", "after")] {
            let all = functions.iter().chain(&new);
            let sum: u64 = all.map(|row| row[name].as_u64().unwrap()).sum();
            assert_eq!(sum, report["native"]["x86_64"][of_report].as_u64().unwrap(), "{unit:?}");
        }
    }
}

/// The text of a YAML scalar.
fn text<'a>(yaml: &'a Yaml<'_>, key: &str) -> Option<&'a str> {
    yaml.as_mapping_get(key)?.as_str()
}

/// Quotes in names, and what YAML would take for something else, must not damage the document.
#[test]
fn yaml_remarks_have_what_those_in_json_have() {
    let directory = temporary();
    let hard = directory.path().join("it's #1: {a}.clif");
    let names = ["it''s", "- x: 'y'", "{a: b} # c", "%d\t!", "yes", "größe", "\"q\" \\n"];
    let function = |(at, name): (usize, &&str)| {
        format!(
            ";; Intermediate Representation of function <wasm[0]::function[{at}]::{name}>:\n\
             function u0:{at}(i32) -> i32 {{\nblock0(v0: i32):\n    v1 = iconst.i32 {at}\n    \
             v2 = imul v0, v1\n    return v2\n}}\n"
        )
    };
    write(&hard, names.iter().enumerate().map(function).collect::<String>());
    for unit in [&SAMPLE[..], &[text_of(&hard)], &["tables.clif"]] {
        let rows = rows(unit);
        let run = run(&[&["remarks", "--format", "yaml"], unit].concat()).expect(0, "");
        let documents = Yaml::load_from_str(run.text()).expect("well-formed YAML");
        assert_eq!(documents.len(), rows.len());
        for (document, row) in documents.iter().zip(&rows) {
            let Yaml::Tagged(tag, document) = document else { panic!("no tag: {document:?}") };
            assert_eq!(tag.suffix.to_lowercase(), row["kind"].as_str().unwrap());
            assert_eq!(text(document, "Pass"), Some("cranelift-mergefunc"));
            assert_eq!(text(document, "Name"), row["rule"].as_str());
            let name = row.get("source_name").unwrap_or(&row["name"]);
            assert_eq!(text(document, "Function"), name.as_str());
            let place = document.as_mapping_get("DebugLoc");
            assert_eq!(place.and_then(|place| text(place, "File")), row["file"].as_str());
            let line = place.and_then(|place| place.as_mapping_get("Line")?.as_integer());
            assert_eq!(line, row["line"].as_i64());
            let arguments = document.as_mapping_get("Args").unwrap().as_sequence().unwrap();
            let find = |key: &str| arguments.iter().find_map(|argument| text(argument, key));
            let replaced_by = row["replaced_by"].as_str();
            assert_eq!(find("Representative").is_some(), replaced_by.is_some());
            let other = row["resembles"]["name"].as_str();
            assert_eq!(find("Other").is_some(), other.is_some());
            assert_eq!(find("Difference"), row["resembles"]["rule"].as_str());
        }
    }
}

/// The rows that are compared with a unit must not depend on whether the unit or its report is at
/// hand.
#[test]
fn a_report_is_compared_as_its_unit_is() {
    let directory = temporary();
    let [before, after] = ["before.json", "after.json"].map(|name| directory.path().join(name));
    for (file, unit) in [(&before, "similar.clif"), (&after, "similar-after.clif")] {
        let report = run(&["report", "--format", "json", "--target", "x86_64", unit]).expect(0, "");
        write(file, report.text());
    }
    let [before, after] = [text_of(&before), text_of(&after)];
    let expected = run(&["diff", "similar.clif", "similar-after.clif"]).expect(0, "");
    for [a, b] in [[before, after], [before, "similar-after.clif"], ["similar.clif", after]] {
        assert_eq!(run(&["diff", a, b]).expect(0, "").text(), expected.text());
    }
    let other = ["diff", before, "similar.clif", "--target", "aarch64"];
    run(&other).expect(1, "is for x86_64, and similar.clif is for aarch64");

    // Reports of other versions.
    let mut report: Value = serde_json::from_str(&read(before)).unwrap();
    report.as_object_mut().unwrap().remove("decisions");
    write(after, report.to_string());
    run(&["diff", before, after]).expect(1, "after.json: the report has no decisions");
    report["schema"] = 2.into();
    write(after, report.to_string());
    run(&["diff", before, after]).expect(1, "after.json: the report has schema 2");
    write(after, "{\"schema\": 1");
    run(&["diff", before, after]).expect(1, "after.json: this is not what");
}

/// Numbers of functions shift when one is added; the names of the source do not.
#[test]
fn functions_of_other_numbers_are_the_same_by_the_names_of_the_source() {
    let directory = temporary();
    let shifted = directory.path().join("shifted.clif");
    let unit = read(inputs().join("named.clif"));
    let unit = (0..4).rev().fold(unit, |unit, at| {
        unit.replace(&format!("u0:{at}("), &format!("u0:{}(", at + 10))
            .replace(&format!("function[{at}]"), &format!("function[{}]", at + 10))
    });
    write(&shifted, unit.replace("u0:13(", "%last("));
    let diff = ["diff", "--format", "json", "named.clif", text_of(&shifted)];
    let diff: Value = serde_json::from_str(run(&diff).expect(0, "").text()).unwrap();
    for none in ["appeared", "disappeared"] {
        assert_eq!(diff[none], Value::Array(Vec::new()), "{diff:#}");
    }
    let names = |what: &str| {
        let rows = diff[what].as_array().unwrap().iter();
        rows.map(|row| row["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // The one that the source does not name.
    assert_eq!((names("added"), names("removed")), (vec!["%last".into()], vec!["u0:3".into()]));
}
