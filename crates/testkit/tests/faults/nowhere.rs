//! A reference that a wrong plan would leave undefined is refused by everything that emits code, in
//! every build, also where nothing is proved, and nothing is written: by `clif-merge compile` and
//! by the example of an embedder without `cranelift-module`. That `MergingModule` refuses it is
//! tested within the copy (`faults/tests/fault_injection/nowhere.rs`).

use crate::{build_in_copy, target_directory};
use std::process::Command;

/// Two functions that differ in a constant. The address of one of them is taken, so it is a thunk,
/// which the fault eliminates.
const UNIT: &str = "
function %a(i64) -> i64 system_v {
block0(v0: i64):
    v1 = iconst.i64 1
    v2 = iadd v0, v1
FILLING
    return v19
}
function %b(i64) -> i64 system_v {
block0(v0: i64):
    v1 = iconst.i64 2
    v2 = iadd v0, v1
FILLING
    return v19
}
function %c() -> i64 system_v {
    fn0 = %a(i64) -> i64 system_v
block0:
    v0 = func_addr.i64 fn0
    return v0
}
";

#[test]
#[ignore = "takes minutes: compiles a copy of the program"]
fn what_leads_nowhere_is_not_written() {
    build_in_copy(&["build", "--locked", "-p", "clif-merge", "--bin", "clif-merge-faults"]);
    let profile = target_directory().join(if cfg!(debug_assertions) { "debug" } else { "release" });
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [unit, object] = ["unit.clif", "unit.o"].map(|name| directory.path().join(name));
    let filling = testkit::modules::filling(3, 19);
    std::fs::write(&unit, UNIT.replace("FILLING\n", &filling)).expect("is written");
    for fault in [None, Some("named-eliminated")] {
        let _ = std::fs::remove_file(&object);
        let mut command = Command::new(profile.join("clif-merge-faults"));
        command.args(["compile", "-q", "--target", "x86_64", "--similar", "size"]);
        // A fault is planted on one thread.
        command.args(["--linkage", "local", "--jobs", "1"]).arg(&unit).arg("-o").arg(&object);
        command.env_remove("CLIF_MERGE_FAULT");
        command.envs(fault.map(|fault| ("CLIF_MERGE_FAULT", fault)));
        let output = command.output().expect("the program starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let is_refused = stderr.contains("c refers to a, which has no code: flush 1 merged it");
        assert_eq!(is_refused, fault.is_some(), "{fault:?}: {stderr}");
        assert_eq!(output.status.success(), fault.is_none(), "{fault:?}: {stderr}");
        assert_eq!(object.exists(), fault.is_none());
    }

    build_in_copy(&["build", "--locked", "-p", "cranelift-mergefunc", "--example", "raw"]);
    for fault in [None, Some("nothing-redirected")] {
        let mut command = Command::new(profile.join("examples/raw"));
        command.env_remove("CLIF_MERGE_FAULT");
        command.envs(fault.map(|fault| ("CLIF_MERGE_FAULT", fault)));
        let output = command.output().expect("the program starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            stderr.contains("has no code: this unit merged it"),
            fault.is_some(),
            "{stderr}"
        );
        assert_eq!(output.status.success(), fault.is_none(), "{fault:?}: {stderr}");
    }
}
