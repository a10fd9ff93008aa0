//! Every file of `filetests/`, one trial each; and that the runner fails when it must.
//!
//! The trials start `clif-merge test`, so that a crash of compiled code is the failure of one file.
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let root = testkit::root().join("filetests");
    let mut files = Vec::new();
    find(&root, &mut files);
    assert!(!files.is_empty(), "no filetests");
    let printing = files.clone();
    let mut trials: Vec<Trial> = files
        .into_iter()
        .map(|file| {
            let name = file.strip_prefix(&root).expect("is below").display().to_string();
            Trial::test(name, move || passes(&file))
        })
        .collect();
    trials.extend(
        CASES.iter().map(|case| Trial::test(format!("runner: {}", case.name), || case.check())),
    );
    trials
        .push(Trial::test("runner: blessing changes nothing else", blessing_changes_nothing_else));
    trials.push(Trial::test("no filetest prints results instead of saying them", move || {
        results_are_said(&printing)
    }));
    trials.push(Trial::test("runner: directories are searched", directories_are_searched));
    trials.push(Trial::test("runner: a crash fails one file", a_crash_fails_one_file));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn find(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in directory.read_dir().expect("a readable directory") {
        let path = entry.expect("a readable directory").path();
        if path.is_dir() {
            find(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "clif") {
            files.push(path);
        }
    }
}

fn runner() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_clif-merge"));
    command.arg("test");
    command
}

fn everything(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// `CRANELIFT_TEST_BLESS` reaches the runner: `CRANELIFT_TEST_BLESS=1 cargo test` blesses.
fn passes(file: &Path) -> Result<(), Failed> {
    let output = runner().arg(file).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{}\n{}", output.status, everything(&output)).into()),
    }
}

/// `print` compares what happens before and after merging only, so a result that is wrong both
/// times goes unnoticed.
fn results_are_said(files: &[PathBuf]) -> Result<(), Failed> {
    for file in files {
        let text = std::fs::read_to_string(file)?;
        let prints = |line: &&str| line.trim_start_matches([';', ' ']).starts_with("print:");
        // The header of the readme describes the command.
        let mut below = text.lines().skip_while(|line| !line.starts_with("function"));
        if let Some(line) = below.find(prints) {
            return Err(format!("{}: {line}", file.display()).into());
        }
    }
    Ok(())
}

/// A file, and what the runner says of it.
struct Case {
    name: &'static str,
    text: &'static str,
    options: &'static [&'static str],
    code: i32,
    /// The texts in the output, in this order.
    says: &'static [&'static str],
}

impl Case {
    fn check(&self) -> Result<(), Failed> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("case.clif");
        std::fs::write(&file, self.text)?;
        let mut command = runner();
        let output =
            command.env_remove("CRANELIFT_TEST_BLESS").args(self.options).arg(&file).output()?;
        let text = everything(&output);
        let mut rest = text.as_str();
        for words in self.says {
            match rest.split_once(words) {
                Some((_, after)) => rest = after,
                None => return Err(format!("expected '{words}' in\n{text}").into()),
            }
        }
        match output.status.code() == Some(self.code) {
            true => Ok(()),
            false => Err(format!("{} instead of {}\n{text}", output.status, self.code).into()),
        }
    }
}

const CASES: &[Case] = &[
    Case {
        name: "what is right passes",
        text: "test merge\ntarget x86_64\n\nfunction %f() system_v {\nblock0:\n    return\n}\n\n\
               ; keep: prefiltered\n; function %f() system_v {\n; block0:\n;     return\n; }\n",
        options: &[],
        code: 0,
        says: &["1 passed, 0 failed, 0 skipped; 0 run commands; 0 merged functions"],
    },
    Case {
        name: "a wrong expectation fails",
        text: "test merge\ntarget x86_64\n\nfunction %f() system_v {\nblock0:\n    return\n}\n\n\
               ; keep: representative\n; function %f() system_v {\n; block0:\n;     return\n; }\n",
        options: &[],
        code: 1,
        says: &[
            "fail: ",
            "case.clif: the result of merging differs from the expectations:",
            "-; keep: representative\n+; keep: prefiltered\n",
            "CRANELIFT_TEST_BLESS=1",
            "0 passed, 1 failed, 0 skipped",
        ],
    },
    Case {
        name: "a missing expectation fails",
        text: "test merge\ntarget x86_64\n\nfunction %f() system_v {\nblock0:\n    return\n}\n",
        options: &[],
        code: 1,
        says: &["+; keep: prefiltered\n", "1 failed"],
    },
    Case {
        name: "a wrong result fails",
        text: "test run\ntarget x86_64\ntarget aarch64\n\nfunction %f(i32) -> i32 {\n\
               block0(v0: i32):\n    return v0\n}\n; run: %f(3) == 4\n",
        options: &[],
        code: 1,
        says: &["before merging: ", "case.clif:9: run: %f(3) == 4: got 3", "1 failed"],
    },
    Case {
        // Functions without `test merge` have insignificant addresses, and this one compares two.
        name: "another result after merging fails",
        text: "test run\ntarget x86_64\ntarget aarch64\n\nfunction %f(i32) -> i32 {\n\
               block0(v0: i32):\n    return v0\n}\n\nfunction %g(i32) -> i32 {\n\
               block0(v0: i32):\n    return v0\n}\n\nfunction %same() -> i8 {\n    \
               fn0 = colocated %f(i32) -> i32\n    fn1 = colocated %g(i32) -> i32\n\
               block0:\n    v0 = func_addr.i64 fn0\n    v1 = func_addr.i64 fn1\n    \
               v2 = icmp eq v0, v1\n    return v2\n}\n; run: %same() == 0\n",
        options: &[],
        code: 1,
        says: &[
            "case.clif:24: run: %same() == 0: got 0 before merging, and 1 after merging",
            "1 failed",
        ],
    },
    Case {
        // The results of `print` were printed and dropped, so that most filetests of similar
        // functions compared nothing when they ran.
        name: "another result of print after merging fails",
        text: "test run\ntarget x86_64\ntarget aarch64\n\nfunction %f(i32) -> i32 {\n\
               block0(v0: i32):\n    return v0\n}\n\nfunction %g(i32) -> i32 {\n\
               block0(v0: i32):\n    return v0\n}\n\nfunction %same() -> i8 {\n    \
               fn0 = colocated %f(i32) -> i32\n    fn1 = colocated %g(i32) -> i32\n\
               block0:\n    v0 = func_addr.i64 fn0\n    v1 = func_addr.i64 fn1\n    \
               v2 = icmp eq v0, v1\n    return v2\n}\n; print: %same()\n",
        options: &[],
        code: 1,
        says: &[
            "case.clif:24: print: %same(): got 0 before merging, and 1 after merging",
            "1 failed",
        ],
    },
    Case {
        // Both results are another one than 7, so that the expectation alone sees no difference.
        name: "another result after merging that the command allows fails",
        text: "test run\ntarget x86_64\ntarget aarch64\n\nfunction %f(i32) -> i32 {\n\
               block0(v0: i32):\n    return v0\n}\n\nfunction %g(i32) -> i32 {\n\
               block0(v0: i32):\n    return v0\n}\n\nfunction %same() -> i8 {\n    \
               fn0 = colocated %f(i32) -> i32\n    fn1 = colocated %g(i32) -> i32\n\
               block0:\n    v0 = func_addr.i64 fn0\n    v1 = func_addr.i64 fn1\n    \
               v2 = icmp eq v0, v1\n    return v2\n}\n; run: %same() != 7\n",
        options: &[],
        code: 1,
        says: &[
            "case.clif:24: run: %same() != 7: got 0 before merging, and 1 after merging",
            "1 failed",
        ],
    },
    Case {
        // Two NaNs are equal if their bits are.
        name: "results are compared bit for bit",
        text: "test run\ntarget x86_64\ntarget aarch64\n\nfunction %f() -> f32, f64 {\n\
               block0:\n    v0 = f32const +NaN:0x1\n    v1 = f64const -0.0\n    return v0, v1\n}\n\
               ; print: %f()\n",
        options: &["-v"],
        code: 0,
        says: &["%f() -> [+NaN:0x1, -0.0]", "1 passed, 0 failed, 0 skipped; 1 run commands"],
    },
    Case {
        // A thunk that does more than pass on its parameters would lose the rest.
        name: "a declared thunk that is none fails",
        text: "test run\ntarget x86_64\ntarget aarch64\n\nfunction %f(i32) -> i32 {\n\
               block0(v0: i32):\n    return v0\n}\n\n;@ thunk=%f\nfunction %g(i32) -> i32 {\n\
               block0(v0: i32):\n    v1 = ineg v0\n    return v1\n}\n; run: %g(3) == -3\n",
        options: &[],
        code: 1,
        says: &["its body is not a call of %f with its own parameters", "1 failed"],
    },
    Case {
        name: "a bare run fails on zero",
        text: "test run\ntarget x86_64\ntarget aarch64\n\nfunction %f() -> i32 {\n\
               block0:\n    v0 = iconst.i32 0\n    return v0\n}\n; run\n",
        options: &[],
        code: 1,
        says: &["case.clif:10: run: returned 0", "1 failed"],
    },
    Case {
        name: "an unknown option fails",
        text: "test merge linkage=local aliasses\nfunction %f() {\nblock0:\n    return\n}\n",
        options: &[],
        code: 1,
        says: &["case.clif:1: unknown option 'aliasses' of 'test merge'", "1 failed"],
    },
    Case {
        name: "an option of test run fails",
        text: "test run fast\ntarget x86_64\nfunction %f() {\nblock0:\n    return\n}\n",
        options: &[],
        code: 1,
        says: &["case.clif:1: 'test run' has no options", "1 failed"],
    },
    Case {
        name: "an unknown setting fails",
        text: "test merge\nset fast_as_light\ntarget x86_64\nfunction %f() {\nblock0:\n    return\n}\n",
        options: &[],
        code: 1,
        says: &["case.clif:2:5: unknown setting 'fast_as_light'", "1 failed"],
    },
    Case {
        name: "a second test merge fails",
        text: "test merge\ntest merge aliases\nfunction %f() {\nblock0:\n    return\n}\n",
        options: &[],
        code: 1,
        says: &[":2: a second 'test merge'", "1 failed"],
    },
    Case {
        name: "malformed functions fail with their line",
        text: "test merge\n\nfunction %f() {\nblock0:\n    retrun\n}\n",
        options: &[],
        code: 1,
        says: &["case.clif:5", "retrun", "1 failed"],
    },
    Case {
        name: "malformed functions of others are skipped",
        text: "test run\ntarget x86_64\n\nfunction %f() {\nblock0:\n    retrun\n}\n",
        options: &["--foreign"],
        code: 0,
        says: &["skip: ", "case.clif: cannot be read: ", "0 passed, 0 failed, 1 skipped"],
    },
    Case {
        name: "test run without commands fails",
        text: "test run\ntarget x86_64\n\nfunction %f() {\nblock0:\n    return\n}\n; rum: %f()\n",
        options: &[],
        code: 1,
        says: &["'test run' without a run command", "1 failed"],
    },
    Case {
        name: "test run of others without commands is skipped",
        text: "test run\ntarget x86_64\ntarget aarch64\n\nfunction %f() {\nblock0:\n    return\n}\n",
        options: &["--foreign"],
        code: 0,
        says: &["skip: ", "'test run' without a run command", "0 passed, 0 failed, 1 skipped"],
    },
    Case {
        name: "a command without test run fails",
        text: "test merge\n\nfunction %f() {\nblock0:\n    return\n}\n; run: %f()\n",
        options: &[],
        code: 1,
        says: &["case.clif:7: ", "1 failed"],
    },
    Case {
        name: "a command under another function fails",
        text: "test run\ntarget x86_64\n\nfunction %f() -> i8 {\nblock0:\n    v0 = iconst.i8 1\n    \
               return v0\n}\n; run: %g() == 1\n",
        options: &[],
        code: 1,
        says: &["case.clif:9: the command is for %g, but it stands under %f", "1 failed"],
    },
    Case {
        name: "commands of others are named",
        text: "test interpret\ntest compile\n\nfunction %f() {\nblock0:\n    return\n}\n",
        options: &[],
        code: 0,
        says: &["skip: ", "neither 'test merge' nor 'test run', but interpret, compile"],
    },
    Case {
        name: "targets without a code generator are named",
        text: "test merge\nset opt_level=speed\ntarget s390x\ntarget riscv64 has_v\n\n\
               function %f() {\nblock0:\n    return\n}\n",
        options: &[],
        code: 0,
        says: &["skip: ", "target s390x, riscv64 has_v: this program is built without it"],
    },
    Case {
        name: "a trap is a failed test",
        text: "test run\ntarget x86_64\ntarget aarch64\n\nfunction %f() -> i32 {\nblock0:\n    \
               trap user1\n}\n; run: %f() == 1\n",
        options: &[],
        code: 1,
        says: &["case.clif: it ended the process that ran it: ", "0 passed, 1 failed"],
    },
    Case {
        name: "what never ends is a failed test",
        text: "test run\ntarget x86_64\ntarget aarch64\n\nfunction %f() -> i32 {\nblock0:\n    \
               jump block1\nblock1:\n    jump block1\n}\n; run: %f() == 1\n",
        options: &["--time-limit", "1"],
        code: 1,
        says: &["case.clif: it takes longer than 1 s", "0 passed, 1 failed"],
    },
    Case {
        name: "an exhausted stack is a failed test",
        text: "test run\ntarget x86_64\ntarget aarch64\n\nfunction %f(i64) -> i64 {\n    \
               fn0 = colocated %f(i64) -> i64\nblock0(v0: i64):\n    v1 = call fn0(v0)\n    \
               v2 = iadd v1, v0\n    return v2\n}\n; run: %f(1) == 1\n",
        options: &[],
        code: 1,
        says: &["case.clif: it ended the process that ran it: ", "0 passed, 1 failed"],
    },
    Case {
        name: "what a linker would supply is named",
        text: "test run\ntarget x86_64\ntarget aarch64\n\nfunction %f() {\n    fn0 = %outside()\n\
               block0:\n    call fn0()\n    return\n}\n; print: %f()\n",
        options: &[],
        code: 0,
        says: &["skip: ", "%outside is not defined in the file"],
    },
];

fn blessing_changes_nothing_else() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("case.clif");
    let before = "; About.\ntest merge linkage=local\ntest run\ntarget x86_64\ntarget aarch64\n\n\
        ;@ linkage=export\nfunction %f(i32) -> i32 system_v {\nblock0(v0: i32):\n    \
        return v0  ; itself\n}\n; run: %f(1) == 1\n;; Free.\n\n; keep: outdated\n\n;; About g.\n\
        function %g(i32) -> i32 system_v {\nblock0(v0: i32):\n    return v0\n}\n";
    let after = "; About.\ntest merge linkage=local\ntest run\ntarget x86_64\ntarget aarch64\n\n\
        ;@ linkage=export\nfunction %f(i32) -> i32 system_v {\nblock0(v0: i32):\n    \
        return v0  ; itself\n}\n; run: %f(1) == 1\n;; Free.\n\n; keep: representative\n\
        ; function %f(i32) -> i32 system_v {\n; block0(v0: i32):\n;     return v0\n; }\n\n\
        ;; About g.\nfunction %g(i32) -> i32 system_v {\nblock0(v0: i32):\n    return v0\n}\n\n\
        ; redirect to %f: only-called\n";
    std::fs::write(&file, before)?;
    let output = runner().env("CRANELIFT_TEST_BLESS", "1").arg(&file).output()?;
    let blessed = std::fs::read_to_string(&file)?;
    if !output.status.success() || blessed != after {
        return Err(format!("{}\n{blessed}", everything(&output)).into());
    }
    let output = runner().env_remove("CRANELIFT_TEST_BLESS").arg(&file).output()?;
    match everything(&output).contains("1 passed, 0 failed, 0 skipped; ") {
        true => Ok(()),
        false => Err(everything(&output).into()),
    }
}

fn directories_are_searched() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let inner = directory.path().join("a").join("b");
    std::fs::create_dir_all(&inner)?;
    let output = runner().arg(directory.path()).output()?;
    if output.status.code() != Some(1) || !everything(&output).contains("no .clif files") {
        return Err(everything(&output).into());
    }
    for (name, text) in [("bad.clif", "function"), ("ignored.txt", "function"), ("good.clif", "")] {
        std::fs::write(inner.join(name), text)?;
    }
    let output = runner().arg(directory.path()).output()?;
    let text = everything(&output);
    // An empty file asks for nothing; one that says it has a function must have one.
    match text.contains("bad.clif") && text.contains("good.clif") && !text.contains("ignored") {
        true => Ok(()),
        false => Err(text.into()),
    }
}

/// A file whose code crashed took the others with it.
fn a_crash_fails_one_file() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let crash = CASES.iter().find(|case| case.name == "a trap is a failed test");
    let crash = crash.expect("is there").text;
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|name| format!("{name}.clif"));
    for name in &names {
        let crashes = ["b.clif", "g.clif", "h.clif"].contains(&name.as_str());
        let text = if crashes { crash } else { CASES[0].text };
        std::fs::write(directory.path().join(name), text)?;
    }
    let output = runner().arg("-v").arg(directory.path()).output()?;
    let text = everything(&output);
    let said = text.lines().filter_map(|line| {
        let (verdict, rest) = line.split_once(": ")?;
        let name = rest.split(": ").next()?.rsplit('/').next()?;
        (name.ends_with(".clif") && verdict != "note").then(|| format!("{verdict} {name}"))
    });
    let expected = "pass a, fail b, pass c, pass d, pass e, pass f, fail g, fail h";
    let said = said.collect::<Vec<_>>().join(", ").replace(".clif", "");
    match said == expected && text.contains("5 passed, 3 failed, 0 skipped") {
        true => Ok(()),
        false => Err(format!("{said}\n{text}").into()),
    }
}
