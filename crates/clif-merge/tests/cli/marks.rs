//! Functions that the command line marks as exported or externally called, by their names, in a
//! unit on standard input. The effect of each mark on each function is in `marks.trycmd`; here is
//! the remaining unit.

use crate::program::{inputs, read, run_with};

/// Equal functions, of which one has a directive. All of them merge if none is marked.
fn unit() -> String {
    read(inputs().join("units/api.clif"))
}

/// The names of the functions that `merge` prints.
fn left(arguments: &[&str]) -> Vec<String> {
    let merge = ["merge", "-", "--linkage", "local", "--addresses", "insignificant"];
    let run = run_with(&[&merge, arguments].concat(), unit().as_bytes()).expect(0, "merged ");
    let names = run.text().lines().filter_map(|line| line.strip_prefix("function "));
    names.map(|line| line.split('(').next().unwrap().to_owned()).collect()
}

#[test]
fn marked_functions_are_left() {
    assert_eq!(left(&[]).len(), 1);
    assert_eq!(left(&["--export", "%api_b"]), ["%api_b"]);
    assert_eq!(left(&["--export", "u0:1"]), ["u0:1"]);
    assert_eq!(left(&["--export", "%api_b", "--export", "u0:*"]), ["%api_b", "u0:1", "u0:11"]);
    assert_eq!(left(&["--externally-called", "u0:?"]), ["u0:1"]);
    let both = ["--export", "u0:1", "--externally-called", "%api_{a,b}"];
    assert_eq!(left(&both), ["%api_a", "%api_b", "u0:1"]);
    assert_eq!(left(&["--export", "%api_*"]), ["%api_a", "%api_b"]);
    assert_eq!(left(&["--externally-called", "%api_l*"]), ["%api_local"]);
    let file = ["--export-file", "units/exports.txt"];
    assert_eq!(left(&file), ["%api_a", "%api_b"]);
    let too = "units/exports-too.txt";
    let files = [&file[..], &["--export-file", too, "--externally-called-file", too]].concat();
    assert_eq!(left(&files), ["%api_a", "%api_b", "u0:11"]);
    assert_eq!(left(&["--export-file", "/dev/null"]).len(), 1);
}

/// `;@ defaults` counts as a directive of each function; `--externally-called` does not concern
/// linkage.
#[test]
fn marks_are_printed_as_directives() {
    let text = format!(";@ defaults linkage=local addresses=insignificant\n{}", unit());
    for linkage in ["local", "export"] {
        let merge = ["merge", "-", "--linkage", linkage, "--externally-called", "%api_b"];
        let run = run_with(&merge, text.as_bytes()).expect(0, "merged 4 of 5 functions");
        assert!(run.text().contains("externally-called\nfunction %api_b("), "{}", run.text());
    }
}
