//! `clif-merge bisect` with faults planted in the library: it finds a merge that the fault makes
//! wrong, and a small unit that still shows it.
//!
//! Each fault merges two functions of `bisect.clif` wrongly. The command links what is made of the
//! unit to `bisect.c`, which runs it.

use crate::{build_in_copy, target_directory};
use std::path::Path;
use std::process::{Command, Output};

/// The faults, by their names, and the pairs of functions that they merge, by what their names
/// begin with.
const FAULTS: [(&str, &str, Similar); 13] = [
    ("integer-constant", "integer_constant", Similar::Off),
    ("int-condition", "int_condition", Similar::Off),
    ("access-offset", "access_offset", Similar::Off),
    ("operand-order", "operand_order", Similar::Off),
    ("signedness", "signedness", Similar::Off),
    ("branch-targets", "branch_targets", Similar::Off),
    ("branch-arguments", "branch_arguments", Similar::Off),
    ("slot-offset", "slot_offset", Similar::Off),
    ("jump-table", "jump_table", Similar::Off),
    ("float-bits", "float_bits", Similar::Off),
    ("no-refinement", "no_refinement", Similar::Off),
    // These make every parameterised body wrong: the first one is found.
    ("parameter-forgotten", "float_bits", Similar::Size),
    ("passes-another", "float_bits", Similar::Size),
];

/// Whether similar functions are merged.
#[derive(Clone, Copy, Debug)]
enum Similar {
    Off,
    Size,
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[test]
#[ignore = "takes minutes: compiles a copy of the program"]
fn bisect_finds_planted_faults() {
    build_in_copy(&["build", "--locked", "-p", "clif-merge", "--bin", "clif-merge-faults"]);
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let program = target_directory().join(profile).join("clif-merge-faults");
    let inputs = testkit::root().join("crates/testkit/tests/faults");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [small, executable] = ["small.clif", "program"].map(|name| directory.path().join(name));

    let bisect = |fault: Option<&str>, similar: Similar, unit: &Path, more: &[&str]| -> Output {
        let script = format!(
            "cc -no-pie {}/bisect.c \"$0\" -o {1} 2>&1 || exit 99; {1}",
            inputs.display(),
            executable.display(),
        );
        let mut command = Command::new(&program);
        command.args(["bisect", "--emit", "object", "--fails-with", "1", "--similar"]);
        command.arg(match similar {
            Similar::Off => "off",
            Similar::Size => "size",
        });
        command.arg(unit).args(more).args(["--", "sh", "-c", &script]);
        command.env_remove("CLIF_MERGE_FAULT");
        command.envs(fault.map(|fault| ("CLIF_MERGE_FAULT", fault)));
        command.output().expect("the program starts")
    };
    let unit = inputs.join("bisect.clif");
    for similar in [Similar::Off, Similar::Size] {
        let output = bisect(None, similar, &unit, &[]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("the command does not fail with "), "without a fault: {stderr}");
    }

    for (fault, functions, similar) in FAULTS {
        let pair = ["a", "b"].map(|which| format!("%{functions}_{which}"));
        let names_both = |output: &Output| {
            let text = String::from_utf8_lossy(&output.stdout);
            let first = text.lines().skip(2).take(2).collect::<String>();
            pair.iter().all(|name| first.contains(&**name))
        };
        let reduce = ["--reduce", small.to_str().expect("plain")];
        let output = bisect(Some(fault), similar, &unit, &reduce);
        assert!(output.status.success() && names_both(&output), "{fault}: {output:?}");
        let reduced = std::fs::read_to_string(&small).expect("was written");
        assert!(pair.iter().all(|name| reduced.contains(&**name)), "{fault}: {reduced}");
        let functions = reduced.lines().filter(|line| line.starts_with("function ")).count();
        // The callees of the functions of one pair must be there.
        let expected = if fault == "no-refinement" { 4 } else { 2 };
        assert!(functions <= expected, "{fault}: {reduced}");
        let again = bisect(Some(fault), similar, &small, &[]);
        assert!(again.status.success() && names_both(&again), "{fault}, reduced: {again:?}");
        eprintln!("{fault}: {}\n{reduced}", String::from_utf8_lossy(&output.stderr));
    }
}
