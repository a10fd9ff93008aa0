//! Which text goes to standard output and which to standard error, and which files there are after
//! an error.
//!
//! The text cases (`*.trycmd`) see both streams as one, and no files.

use crate::program::{inputs, names, read, run, run_with, temporary, text_of, write};

/// The command lines of the text cases, with their exit codes.
fn text_cases() -> Vec<(Vec<String>, i32)> {
    let mut cases: Vec<(Vec<String>, i32)> = Vec::new();
    for file in names(&inputs()).iter().filter(|name| name.ends_with(".trycmd")) {
        for line in read(inputs().join(file)).lines() {
            if let Some(words) = line.strip_prefix("$ clif-merge") {
                cases.push((split(words), 0));
            } else if let (Some(code), Some((_, expected))) =
                (line.strip_prefix("? "), cases.last_mut())
            {
                *expected = code.parse().expect("an exit code");
            }
        }
    }
    cases
}

/// The words of a command line; what is between two quotes is one word.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        match at % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

#[test]
fn errors_and_results_are_on_different_streams() {
    let (mut errors, mut results) = (0, 0);
    for (arguments, code) in text_cases() {
        let is_result = arguments.iter().any(|word| {
            matches!(word.as_str(), "report" | "why" | "bisect" | "-h" | "--help" | "--version")
        });
        if code == 0 && !is_result {
            continue;
        }
        let run = run(&arguments).expect(code, "");
        match code {
            0 => {
                assert!(!run.stdout.is_empty(), "{arguments:?}");
                let says_more = |word: &String| matches!(word.as_str(), "-D" | "-v");
                assert!(run.stderr.is_empty() || arguments.iter().any(says_more));
                results += 1;
            }
            1 | 2 => {
                assert!(run.stdout.is_empty(), "{arguments:?}: {}", run.text());
                assert!(!run.stderr.is_empty(), "{arguments:?}");
                errors += 1;
            }
            3 if arguments[0] == "bisect" => {
                assert!(run.stdout.is_empty() && run.stderr.starts_with("error: "));
            }
            3 => {
                assert!(run.text().contains("saved"), "the report is printed all the same");
                assert!(run.stderr.starts_with("error: ") && run.stderr.lines().count() == 1);
            }
            _ => panic!("{arguments:?}: exit code {code}"),
        }
    }
    assert!(errors > 70 && results > 40, "{errors} errors, {results} results");
    let units = names(&inputs().join("units"));
    assert!(!units.iter().any(|name| name.ends_with(".o")), "an error left a file: {units:?}");
}

/// The rows of a table of dispositions, without those of new bodies, which have a row and a name of
/// the text only where text is printed.
fn rows(table: &str) -> Vec<Vec<&str>> {
    let is_new = |word: &str| word.starts_with("%body") || word.starts_with(".Lfn");
    let words = |line| str::split_whitespace(line).collect::<Vec<_>>();
    let mut rows: Vec<_> = table.lines().map(words).filter(|row| !is_new(row[0])).collect();
    for word in rows.iter_mut().flatten() {
        if is_new(word) {
            *word = "(new)";
        }
    }
    rows
}

/// The outcomes are those of the pass, whatever is made of them.
#[test]
fn every_command_prints_the_same_dispositions() {
    for unit in ["tables.clif", "mixed.clif", "hard.clif", "shared-body.clif"] {
        for options in [&[][..], &["--similar", "off"], &["--linkage", "local"]] {
            let table = |command: &[&str]| {
                run(&[command, &[unit, "-D", "-q"], options].concat()).expect(0, "")
            };
            let merge = table(&["merge", "--aliases"]);
            assert!(merge.stderr.starts_with("function "), "{}", merge.stderr);
            assert!(merge.text().starts_with(";@ defaults"), "{}", merge.text());
            let compile = table(&["compile", "-o", "-"]);
            assert_eq!(rows(&compile.stderr), rows(&merge.stderr), "{unit} {options:?}");
            assert!(compile.stdout.starts_with(b"\x7fELF"), "{unit}");
        }
    }
    // Without new bodies, it is one text.
    let table = |command: &[&str]| {
        run(&[command, &["tables.clif", "--similar", "off", "-D", "-q"]].concat()).stderr
    };
    assert_eq!(table(&["compile", "-o", "-"]), table(&["merge", "--aliases"]));
}

#[test]
fn an_error_leaves_no_file() {
    let directory = temporary();
    let file = directory.path().join("never");
    for (arguments, unit) in [
        (&["merge"][..], "units/trampoline-invalid.clif"),
        (&["merge"], "units/not-utf8.clif"),
        (&["merge", "--export", "%missing"], "units/f.clif"),
        (&["compile"], "units/pinned-register.clif"),
        (&["compile", "--no-merge"], "units/pinned-register.clif"),
        (&["compile", "--target", "aarch64"], "units/pinned-register.clif"),
        (&["compile", "--target", "aarch64"], "units/i128-division.clif"),
        (&["compile"], "units/tail-call-no-frame-pointers.clif"),
    ] {
        let to = |file| run(&[arguments, &[unit, "-o", text_of(file)]].concat());
        to(&file).expect(1, "error: ");
        assert!(names(directory.path()).is_empty(), "{arguments:?} {unit}");
        // Nor does it touch the one that is there.
        write(&file, "old");
        to(&file).expect(1, "error: ");
        assert_eq!(read(&file), "old", "{arguments:?} {unit}");
        assert_eq!(names(directory.path()), ["never"], "{arguments:?} {unit}");
        std::fs::remove_file(&file).expect("the file");
    }
    run(&["compile", "units/tail-call.clif", "-o", text_of(&file)]).expect(0, "");
    assert_eq!(names(directory.path()), ["never"]);
}

/// Standard input is read like a file.
#[test]
fn errors_of_standard_input_have_places() {
    let merge = |bytes: &[u8], place: &str| {
        assert!(run_with(&["merge", "-"], bytes).expect(1, place).stdout.is_empty());
    };
    merge(b"function %f() {\n; \xff\n}\n", "\n --> <stdin>:2:3\n");
    merge(b"function %f() {\n\0\n}\n", "\n --> <stdin>:2:1\n");
    merge("\u{feff}".as_bytes(), "error: <stdin>: no functions");
    let marked = [b"\xef\xbb\xbf", &std::fs::read(inputs().join("units/f.clif")).unwrap()[..]];
    let merged = run_with(&["merge", "-"], &marked.concat()).expect(0, "");
    assert_eq!(merged.text(), run(&["merge", "units/f.clif"]).expect(0, "").text());
}
