//! Functions that the command line marks as exported or externally called, by their names.

use crate::program::{run, run_with, temporary, text_of, write};

/// Equal functions, of which one has a directive. All of them merge if none is marked.
fn unit() -> String {
    let function = |name: &str| {
        format!("function {name}(i32) -> i32 {{\nblock0(v0: i32):\n    return v0\n}}\n")
    };
    let mut text: String = ["%api_a", "%api_b", "u0:1", "u0:11"].map(function).concat();
    text += ";@ linkage=local\n";
    text + &function("%api_local")
}

const LOCAL: [&str; 4] = ["--linkage", "local", "--addresses", "insignificant"];

/// The names of the functions that `merge` prints.
fn left(arguments: &[&str]) -> Vec<String> {
    let arguments = [&["merge", "-"], &LOCAL[..], arguments].concat();
    let run = run_with(&arguments, unit().as_bytes()).expect(0, "merged ");
    let names = run.text().lines().filter_map(|line| line.strip_prefix("function "));
    names.map(|line| line.split('(').next().unwrap().to_owned()).collect()
}

/// There was one default for all functions: either all kept their symbols, or none did.
#[test]
fn marked_functions_keep_their_symbols() {
    assert_eq!(left(&[]).len(), 1);
    assert_eq!(left(&["--export", "%api_b"]), ["%api_b"]);
    assert_eq!(left(&["--export", "u0:1"]), ["u0:1"]);
    assert_eq!(left(&["--export", "%api_b", "--export", "u0:*"]), ["%api_b", "u0:1", "u0:11"]);
    assert_eq!(left(&["--externally-called", "u0:?"]), ["u0:1"]);
    let both = ["--export", "u0:1", "--externally-called", "%api_{a,b}"];
    assert_eq!(left(&both), ["%api_a", "%api_b", "u0:1"]);
}

/// A `linkage` directive takes precedence over `--export`; `--externally-called` does not concern linkage.
#[test]
fn directives_come_before_marks_and_marks_before_defaults() {
    assert_eq!(left(&["--export", "%api_*"]), ["%api_a", "%api_b"]);
    assert_eq!(left(&["--externally-called", "%api_l*"]), ["%api_local"]);
    // `;@ defaults` counts as a directive of each function.
    let text = format!(";@ defaults linkage=local addresses=insignificant\n{}", unit());
    for linkage in ["local", "export"] {
        let arguments = ["merge", "-", "--linkage", linkage, "--export", "%api_b"];
        run_with(&arguments, text.as_bytes()).expect(0, "merged 4 of 5 functions");
        let arguments = [&arguments[..4], &["--externally-called", "%api_b"]].concat();
        let run = run_with(&arguments, text.as_bytes()).expect(0, "merged 4 of 5 functions");
        assert!(run.text().contains("externally-called\nfunction %api_b("), "{}", run.text());
    }
    // The default linkage is export already.
    let arguments = ["merge", "-", "--export", "u0:1", "--addresses", "insignificant"];
    run_with(&arguments, unit().as_bytes()).expect(0, "merged 4 of 5 functions");
}

#[test]
fn marks_come_from_files() {
    let directory = temporary();
    let [one, two] = ["one.txt", "two.txt"].map(|name| directory.path().join(name));
    write(&one, "# Exports\r\n\r\n  %api_a \r\n%api_b\r\n");
    write(&two, "u0:11");
    let [one, two] = [&one, &two].map(|path| text_of(path));
    assert_eq!(left(&["--export-file", one]), ["%api_a", "%api_b"]);
    let both = ["--export-file", one, "--export-file", two, "--externally-called-file", two];
    assert_eq!(left(&both), ["%api_a", "%api_b", "u0:11"]);
    // An empty list marks no function.
    assert_eq!(left(&["--export-file", "/dev/null"]).len(), 1);
}

#[test]
fn mistakes_in_marks() {
    let directory = temporary();
    let [misspelt, wrong, binary] =
        ["misspelt.txt", "wrong.txt", "binary.txt"].map(|name| directory.path().join(name));
    write(&misspelt, "# Exports\n%api_a\n%apo_b\n");
    write(&wrong, "%api_a\n\n%api_[b\n");
    write(&binary, b"%api_a\n\xff\n");
    let merge = |arguments: &[&str]| {
        let run = run_with(&[&["merge", "-"], arguments].concat(), unit().as_bytes());
        assert!(run.stdout.is_empty(), "{arguments:?}");
        run
    };
    let file = |path| ["--export-file", text_of(path)];
    // The command line is wrong.
    merge(&["--export", "u0:[1"]).expect(2, "'u0:[1' is not a pattern: unclosed character class");
    merge(&["--externally-called", ""]).expect(2, "a pattern is a name");
    // The command line and the input do not fit each other.
    merge(&["--export", "api_a"]).expect(1, "error: --export: 'api_a' matches no function");
    merge(&["--externally-called", "%x*"])
        .expect(1, "error: --externally-called: '%x*' matches no function");
    merge(&file(&misspelt))
        .expect(1, &format!("error: {}:3: '%apo_b' matches no function", misspelt.display()));
    merge(&file(&wrong))
        .expect(1, &format!("error: {}:3: '%api_[b' is not a pattern: unclosed", wrong.display()));
    merge(&file(&binary)).expect(1, "binary.txt:2:1: not UTF-8 text");
    merge(&["--externally-called-file", "no-such.txt"])
        .expect(1, "error: cannot read no-such.txt\n  caused by:");
}

/// Every command that has a default for all functions has marks for some of them.
#[test]
fn every_command_accepts_marks() {
    let directory = temporary();
    let [file, object] = ["unit.clif", "unit.o"].map(|name| directory.path().join(name));
    write(&file, unit());
    let file = text_of(&file);
    let marks = ["--export", "%api_a", "--externally-called", "u0:1"];
    let with = |arguments: &[&str]| run(&[arguments, &LOCAL, &marks].concat());
    with(&["compile", file, "-D", "-o", text_of(&object)]).expect(0, "3 redirected, 1 alias");
    let report = with(&["report", file]).expect(0, "");
    assert!(report.text().contains("externally-called  "), "{}", report.text());
    let why = with(&["why", file, "u0:1"]).expect(0, "");
    assert!(why.text().starts_with("u0:1: thunk to %api_a [externally-called]"), "{}", why.text());
}

/// Words of `why` behind an option were refused.
#[test]
fn options_may_stand_anywhere() {
    for arguments in [
        &["why", "mixed.clif", "--linkage", "local", "%square"][..],
        &["why", "--linkage", "local", "mixed.clif", "%square"],
        &["why", "mixed.clif", "%square", "--linkage", "local"],
        &["why", "mixed.clif", "%square", "--linkage", "local", "%weak"],
        &["why", "-n", "1", "mixed.clif", "--color", "never", "%square", "-q"],
    ] {
        let run = run(arguments).expect(0, "");
        assert!(run.text().starts_with("%square: "), "{arguments:?}: {}", run.text());
    }
    run(&["why", "mixed.clif", "--linkage", "local"]).expect(2, "'why' needs a unit and");
    run(&["why", "%square", "--linkage", "local"]).expect(2, "'why' needs a unit and");
    run(&["why"]).expect(2, "required arguments");
    let split = ["merge", "mixed.clif", "--linkage", "local", "-", "-o", "/dev/null"];
    run_with(&split, unit().as_bytes()).expect(0, "of 16 functions");
}
