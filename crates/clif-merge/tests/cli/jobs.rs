//! The number of threads changes nothing but times.

use crate::program::{inputs, run, run_with};

const SAMPLE: &str = "../../../../samples/rust-generics.clif";
const JOBS: [&str; 3] = ["1", "2", "7"];

/// Checks that a command line prints one output on any number of threads.
#[track_caller]
fn same(arguments: &[&str]) -> Vec<u8> {
    let [one, two, seven] = JOBS.map(|jobs| run(&[arguments, &["--jobs", jobs]].concat()));
    for other in [two, seven] {
        assert_eq!((one.code, &one.stderr), (other.code, &other.stderr), "{arguments:?}");
        assert!(one.stdout == other.stdout, "{arguments:?}: standard output");
    }
    one.stdout
}

#[test]
fn objects_are_the_same() {
    assert!(inputs().join(SAMPLE).exists());
    let local = ["--linkage", "local", "--addresses", "insignificant", "-o", "-"];
    for options in [
        &["--unwind"][..],
        &["--target", "aarch64", "--similar", "size", "--no-alias"],
        &["--no-merge"],
        &["--no-merge", "--unwind"],
    ] {
        let object = same(&[&["compile", SAMPLE], &local[..], options].concat());
        assert!(object.starts_with(b"\x7fELF"), "{options:?}");
    }
    for unit in ["mixed.clif", "similar.clif", "tables.clif", "hard.clif"] {
        same(&["compile", unit, "-o", "-", "--dispositions"]);
        same(&["compile", unit, "-o", "-", "--no-merge"]);
    }
}

/// The first function that cannot be compiled is named, whichever thread is the first to find one;
/// also where Cranelift panics.
#[test]
fn errors_are_the_same() {
    let right =
        |name: &str| format!("function %{name}(i32) -> i32 {{\nblock0(v0: i32):\n return v0\n}}\n");
    let wrong = |name: &str| {
        format!(
            "function %{name}(i64) -> i64, i64, i64 {{\nblock0(v0: i64):\n return v0, v0, v0\n}}\n"
        )
    };
    let panics = |name: &str| {
        format!(
            "function %{name}(i128, i128) -> i128 {{\nblock0(v0: i128, v1: i128):\n v2 = sdiv v0, v1\n return v2\n}}\n"
        )
    };
    for (unit, first) in [
        (right("a") + &wrong("b") + &panics("c") + &wrong("d"), "%b"),
        (right("a") + &panics("b") + &wrong("c") + &right("d"), "%b"),
    ] {
        for options in [&[][..], &["--no-merge"]] {
            let [one, two, seven] = JOBS.map(|jobs| {
                let compile = [&["compile", "-", "-o", "-", "--jobs", jobs], options].concat();
                let run = run_with(&compile, unit.as_bytes());
                run.expect(1, &format!("cannot compile function {first} ")).stderr
            });
            assert!(one == two && one == seven, "{one}{two}{seven}");
        }
    }
}

#[test]
fn reports_are_the_same_but_for_the_times() {
    let [one, two, seven] = JOBS.map(|jobs| {
        let report = ["report", "mixed.clif", "--format", "json", "--jobs", jobs];
        let json = run(&report).expect(0, "");
        let mut report: serde_json::Value = serde_json::from_str(json.text()).expect("JSON");
        let seconds = report.as_object_mut().and_then(|report| report.remove("seconds"));
        assert!(seconds.is_some_and(|seconds| seconds["compile_before"].as_f64() > Some(0.0)));
        let count = report.as_object_mut().and_then(|report| report.remove("jobs"));
        assert_eq!(count.map(|count| count.to_string()).as_deref(), Some(jobs));
        report
    });
    assert!(one == two && one == seven);
}
