//! `clif-merge bisect`: files, reduced units, and leftovers. The output is pinned in
//! `bisect.trycmd`.
#![cfg(unix)]

use crate::program::{Run, names, program, read, run, run_with, temporary, text_of, write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `bisect` with its temporary files in a directory, which must be empty afterwards.
fn bisect(arguments: &[&str], script: &str) -> Run {
    let temporary = temporary();
    let output = program()
        .arg("bisect")
        .args(arguments)
        .args(["--", "sh", "-c", script])
        .env("TMPDIR", temporary.path())
        .output()
        .expect("the program starts");
    assert!(names(temporary.path()).is_empty(), "something was left behind");
    Run {
        code: output.status.code().expect("no signal"),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

#[test]
fn the_command_gets_an_object() {
    let directory = temporary();
    let first = directory.path().join("first.o");
    // The first run is the one without merges.
    let script = format!("test -e {0} || cp \"$0\" {0}; cmp -s \"$0\" {0}", text_of(&first));
    for target in [&[][..], &["--target", "aarch64"]] {
        let _ = std::fs::remove_file(&first);
        let found = bisect(&[&["mixed.clif", "--emit", "object"], target].concat(), &script);
        assert!(found.expect(0, "").text().starts_with("merge 1 of 5 makes the command fail\n"));
        let merge = [&["merge", "mixed.clif", "--merge-limit", "0"], target].concat();
        let unmerged = run(&merge).expect(0, "merged 0");
        let compile = [&["compile", "-", "--no-merge", "-o", "-"], target].concat();
        let object = run_with(&compile, &unmerged.stdout).expect(0, "");
        assert!(std::fs::read(&first).unwrap() == object.stdout, "{target:?}");
    }
}

/// A unit of several functions, of which two merge: `%f` and `%g`.
fn unit() -> String {
    let similar = |name: &str, attributes: &str, constant: u32| {
        format!(
            "{attributes}function %{name}(i64, i32) -> i64 system_v {{
    ss0 = explicit_slot 16
    ss1 = explicit_slot 16
    sig0 = (i64) -> i64 system_v
    fn0 = %unused sig0
    fn1 = %helper sig0
block0(v0: i64, v1: i32):
    v2 = iconst.i64 {constant}
    v3 = imul v0, v2
    v11 = stack_addr.i64 ss1
    store v3, v11
    v4 = call fn1(v3)
    brif v1, block1(v4, v3), block2
block1(v5: i64, v6: i64):
    v7 = iadd v5, v6
    v8 = popcnt v7
    return v8
block2:
    v9 = load.i64 v11
    v10 = sdiv v9, v3
    jump block1(v10, v9)
}}

"
        )
    };
    let helper = "function %helper(i64) -> i64 system_v {
block0(v0: i64):
    v1 = popcnt v0
    return v1
}

";
    [
        ";@ data %table = u64 1 %helper\n\n",
        helper,
        &similar("e", "", 9),
        &similar("f", ";@ hot align=64\n", 3000),
        &similar("g", "", 3000),
        &similar("h", ";@ linkage=hidden\n", 8),
    ]
    .concat()
}

#[test]
fn units_are_reduced() {
    let directory = temporary();
    let [whole, small] = ["whole.clif", "small.clif"].map(|name| directory.path().join(name));
    write(&whole, format!("test merge\nset opt_level=speed\ntarget x86_64\n\n{}", unit()));
    let [whole, small] = [&whole, &small].map(|path| text_of(path));
    // The product is still there, and %g is merged.
    let script = "grep -q imul \"$0\" || exit 2; ! grep -q thunk=%f \"$0\"";
    let options = ["--similar", "off", "--fails-with", "1", whole];
    let reduce = [&options[..], &["--reduce", small]].concat();
    let found = bisect(&reduce, script).expect(0, "reduced to 2 functions and data objects");
    assert!(found.text().starts_with("merge 1 of 1 makes the command fail\n\n%g: thunk to %f"));
    let expected = "\
set opt_level=speed
target x86_64
;@ defaults linkage=export addresses=significant

function %f(i64, i32) -> i64 system_v {
block0(v0: i64, v1: i32):
    v2 = iconst.i64 0
    v3 = imul v0, v2  ; v2 = 0
    trap user1
}

function %g(i64, i32) -> i64 system_v {
block0(v0: i64, v1: i32):
    v2 = iconst.i64 0
    v3 = imul v0, v2  ; v2 = 0
    trap user1
}
";
    assert_eq!(read(small), expected);
    // The run repeated, and a run on the reduced unit.
    bisect(&reduce, script).expect(0, "reduced to 2 functions");
    assert_eq!(read(small), expected);
    bisect(&["--similar", "off", small, "--reduce", small], script).expect(0, "");
    assert_eq!(read(small), expected);

    let few = [&reduce[..], &["--max-runs", "9"]].concat();
    bisect(&few, script).expect(0, "not reduced any further: --max-runs\nreduced to ");
    assert!(read(small).len() > expected.len());
    run(&["merge", "--similar", "off", small]).expect(0, "1 thunk");
}

/// The output of a command is not shown, unless that is wanted; then on standard error.
#[test]
fn what_the_command_prints() {
    let script = "echo printed; echo written >&2; ! grep -q thunk=%both \"$0\"";
    let run = bisect(&["mixed.clif"], script).expect(0, "");
    assert_eq!(run.stderr, "");
    let verbose = bisect(&["mixed.clif", "-v"], script).expect(0, "printed\nwritten\n");
    assert_eq!(verbose.stdout, run.stdout);
}

#[test]
fn an_unsteady_command_is_noticed() {
    let directory = temporary();
    let state = directory.path().join("state");
    // Each run ends otherwise than the one before.
    let script = format!("test -e {0} && rm {0} && exit 1; touch {0}", text_of(&state));
    bisect(&["mixed.clif", "--merge-limit", "1"], &script).expect(0, "");
    let _ = std::fs::remove_file(&state);
    bisect(&["mixed.clif", "--merge-limit", "2"], &script).expect(3, "in the same way each time");
}

#[test]
fn an_output_that_cannot_be_written_is_known_at_once() {
    let script = "echo ran >&2; exit 1";
    let arguments = ["mixed.clif", "-v", "--reduce", "/no/such/directory/small.clif"];
    let run = bisect(&arguments, script).expect(1, "error: cannot write /no/such/directory");
    assert!(!run.stderr.contains("ran"), "{}", run.stderr);
}

/// An error leaves the reduced unit of an earlier run as it is.
#[test]
fn an_error_leaves_the_output_as_it_is() {
    let directory = temporary();
    let small = directory.path().join("small.clif");
    write(&small, "old");
    bisect(&["mixed.clif", "--reduce", text_of(&small)], "true").expect(3, "does not fail");
    assert_eq!(read(&small), "old");
    assert_eq!(names(directory.path()), ["small.clif"]);
    run(&["bisect", "no-such-file", "--", "true"]).expect(1, "cannot read no-such-file");
}

#[test]
fn a_signal_leaves_nothing_behind() {
    let directory = temporary();
    let at = |name: &str| directory.path().join(name);
    std::fs::create_dir(at("tmp")).unwrap();
    for signal in ["INT", "TERM"] {
        let started = at("started");
        let script = format!("test -s \"$0\" && touch {}; exec sleep 1", text_of(&started));
        let mut child = program()
            .args(["bisect", "mixed.clif", "--reduce", text_of(&at("small.clif"))])
            .args(["--", "sh", "-c", &script])
            .env("TMPDIR", at("tmp"))
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        wait_for(&started, &mut child);
        assert_eq!(names(&at("tmp")).len(), 1, "the directory of the unit");
        let kill = format!("kill -s {signal} {}", child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        let status = child.wait().unwrap();
        use std::os::unix::process::ExitStatusExt as _;
        assert!(status.signal().is_some(), "{status}");
        assert!(names(&at("tmp")).is_empty() && !at("small.clif").exists());
        std::fs::remove_file(&started).unwrap();
    }
}

fn wait_for(path: &Path, child: &mut std::process::Child) {
    while !path.exists() {
        assert!(child.try_wait().unwrap().is_none(), "the program ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
