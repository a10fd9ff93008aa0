//! Dependence on the target: functions that are valid only with a target, and functions that one
//! target cannot compile.

use crate::program::run;
use serde_json::Value;

/// One function used to end the whole report.
#[test]
fn a_report_goes_on_past_what_cannot_be_compiled() {
    let json = |arguments: &[&str]| -> Value {
        let arguments = [&["report", "units/vectors.clif", "--format", "json"], arguments].concat();
        let run = run(&arguments).expect(0, "");
        serde_json::from_str(run.text()).expect("JSON")
    };
    let report = json(&[]);
    let [x86, arm] = ["x86_64", "aarch64"].map(|target| &report["native"][target]);
    assert_eq!((&x86["not_compiled"], &arm["not_compiled"]), (&4.into(), &4.into()));
    assert_eq!(x86["compiled_with_settings"], 3);
    assert_eq!(x86["missing_settings"].as_array().unwrap(), &["has_ssse3"]);
    assert!(arm["missing_settings"].as_array().unwrap().is_empty());
    let error = x86["first_error"].as_str().unwrap();
    assert!(error.starts_with("units/vectors.clif:6: %multiply: Unsupported"), "{error}");
    // Such functions count no bytes, and save none.
    assert!(x86["before"].as_u64().unwrap() > 0);
    assert_eq!(x86["before"], x86["after"]);

    let with = json(&["--set", "has_ssse3"]);
    assert_eq!(with["native"]["x86_64"]["not_compiled"], 1);
    assert!(with["native"]["x86_64"]["before"].as_u64() > x86["before"].as_u64());
}

#[test]
fn targets_of_a_report() {
    let json = |targets: &[&str]| -> Value {
        let arguments = [&["report", "mixed.clif", "--format", "json"], targets].concat();
        serde_json::from_str(run(&arguments).expect(0, "").text()).expect("JSON")
    };
    let both = json(&[]);
    let arm = json(&["--target", "aarch64"]);
    assert_eq!(arm["native"]["aarch64"], both["native"]["aarch64"]);
    assert_eq!(arm["native"].as_object().unwrap().len(), 1);
    assert_eq!(arm["host"], "aarch64");
    let named = json(&["--target", "x86_64-apple-darwin", "--target", "aarch64"]);
    let names: Vec<_> = named["native"].as_object().unwrap().keys().collect();
    assert_eq!(names.len(), 2);
    assert!(names.iter().any(|name| *name == "x86_64-apple-darwin"), "{names:?}");
}

/// Tables and times of a report are those for the machine where it runs; this is the part that all
/// machines share.
#[test]
fn a_report_names_all_of_its_targets() {
    for (arguments, words) in [
        (&["mixed.clif"][..], &["\nx86-64 ", "\naarch64 "][..]),
        (
            &["units/vectors.clif"],
            &[
                "\n4 functions cannot be compiled for x86-64 and are not counted; the first error:\n  \
                 units/vectors.clif:6: %multiply: Unsupported",
                "\n  3 of them can be compiled with --set has_ssse3\n",
                "\n4 functions cannot be compiled for aarch64 and are not counted",
            ],
        ),
        // One of the targets can compile it.
        (
            &["units/shuffle.clif", "--set", "has_ssse3"],
            &["\n1 function cannot be compiled for aarch64 and is not counted"],
        ),
        (
            &["units/tail-call-no-frame-pointers.clif"],
            &["\n1 function cannot be compiled for x86-64 and is not counted"],
        ),
        (
            &["units/target-apple.clif", "--target", "x86_64", "--target", "aarch64-apple-darwin"],
            &["\nx86-64 ", "\naarch64-apple-darwin "],
        ),
    ] {
        let run = run(&[&["report"], arguments].concat()).expect(0, "");
        for words in words {
            assert!(run.text().contains(words), "no '{words}' in {}", run.text());
        }
        assert!(!run.text().contains("NaN") && !run.text().contains("inf"), "{}", run.text());
    }
    // Neither target can compile it.
    run(&["report", "units/shuffle.clif"]).expect(1, "; it can be compiled with --set has_ssse3");
    run(&["report", "units/i128-division.clif"]).expect(1, "\n --> units/i128-division.clif:3:1\n");
}

/// Cranelift's verifier needs a target for them.
#[test]
fn a_report_of_functions_that_are_valid_with_a_target_only() {
    for target in ["x86_64", "aarch64"] {
        let arguments = ["report", "units/trampolines.clif", "--verify", "--linkage", "local"];
        let json = ["--format", "json", "--target", target];
        let report = run(&[&arguments[..], &json].concat()).expect(0, "");
        let report: Value = serde_json::from_str(report.text()).expect("JSON");
        let native = &report["native"][target];
        assert_eq!((&report["merged"], &native["not_compiled"]), (&1.into(), &0.into()));
        assert_eq!(native["before"].as_u64(), native["after"].as_u64().map(|after| 2 * after));
    }
    // Without the setting, no target can compile it; with it, all can.
    let pinned = ["report", "units/pinned-register.clif"];
    run(&pinned).expect(1, "it can be compiled with --set enable_pinned_reg");
    let both = run(&[&pinned[..], &["--set", "enable_pinned_reg"]].concat()).expect(0, "");
    assert!(!both.text().contains("cannot be compiled"), "{}", both.text());
}
