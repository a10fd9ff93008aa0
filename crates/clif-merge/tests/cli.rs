//! The program `clif-merge` as its users meet it: command lines in, exit codes and texts out.
//!
//! Each test runs the program in a process of its own. Whether it merges correctly is for the
//! filetests; these tests are about the rest: files, options, errors, output. The output of the
//! program is pinned in `cli/*.trycmd`, which `text.rs` runs; here are objects, pipes, signals,
//! JSON, and properties of many inputs.

#[path = "cli/across.rs"]
mod across;
#[path = "cli/bisect.rs"]
mod bisect;
#[path = "cli/cut.rs"]
mod cut;
#[path = "cli/decisions.rs"]
mod decisions;
#[path = "cli/dumps.rs"]
mod dumps;
#[path = "cli/ends.rs"]
mod ends;
#[path = "cli/headers.rs"]
mod headers;
#[path = "cli/install.rs"]
mod install;
#[path = "cli/interposed.rs"]
mod interposed;
#[path = "cli/jobs.rs"]
mod jobs;
#[path = "cli/marks.rs"]
mod marks;
#[path = "cli/paths.rs"]
mod paths;
#[path = "cli/printed.rs"]
mod printed;
#[path = "cli/program.rs"]
mod program;
#[path = "cli/programs.rs"]
mod programs;
#[path = "cli/sharing.rs"]
mod sharing;
#[path = "cli/stack.rs"]
mod stack;
#[path = "cli/streams.rs"]
mod streams;
#[path = "cli/targets.rs"]
mod targets;
#[cfg(feature = "wasm")]
#[path = "cli/wasm.rs"]
mod wasm;

use program::{inputs, names, program, read, run, run_with, temporary, text_of, write};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

const FUNCTION: &str = "function %f(i32) -> i32 {\nblock0(v0: i32):\n    return v0\n}\n";

/// The messages of every command about each unit of `malformed.txt`. `SNAPSHOTS=overwrite` writes
/// them.
#[test]
fn malformed_units_end_with_1() {
    let file = inputs().join("malformed.txt");
    let cases = read(&file);
    let (intro, cases) = cases.split_once("=== ").expect("cases");
    let mut found = intro.to_owned();
    let mut count = 0;
    for case in cases.split("\n=== ") {
        let (name, rest) = case.split_once('\n').expect("a name");
        let (unit, _) = rest.split_once("--- ").expect("a unit");
        let merge = run_with(&["merge", "-"], unit.as_bytes());
        for arguments in [&["merge", "-"][..], &["compile", "-", "-o", "-"], &["report", "-"]] {
            let run = run_with(arguments, unit.as_bytes());
            assert_eq!((run.code, &run.stderr), (1, &merge.stderr), "{name}");
            assert!(run.stdout.is_empty(), "{name}: partial output");
            count += 1;
        }
        write!(found, "=== {name}\n{unit}--- is refused\n{}", merge.stderr).unwrap();
    }
    assert!(count > 180, "{count} runs");
    snapbox::assert_data_eq!(found, snapbox::Data::read_from(&file, None).raw());
}

#[test]
fn standard_input_is_one_of_several_files() {
    let unit = FUNCTION.replace("%f", "%g");
    run_with(&["merge", "units/f.clif", "-"], unit.as_bytes())
        .expect(0, "merged 1 of 2 functions: 1 thunk");
    let split = ["merge", "mixed.clif", "--linkage", "local", "-", "-o", "/dev/null"];
    run_with(&split, unit.as_bytes()).expect(0, "of 12 functions");
}

#[test]
fn verbose_runs_say_more() {
    assert!(run(&["merge", "mixed.clif", "-v"]).expect(0, "").stderr.contains("classes"));
    let compile = ["compile", "tables.clif", "--similar", "off", "-v", "-o", "/dev/null"];
    run(&compile).expect(0, "\n80 bytes of data saved\n");
}

/// A unit that ends anywhere is either a shorter unit or an error, and never anything else.
#[test]
fn a_truncated_unit_is_read_or_refused() {
    let text = read(inputs().join("mixed.clif"));
    for end in (0..text.len()).step_by(83) {
        let run = run_with(&["merge", "-"], &text.as_bytes()[..end]);
        match run.code {
            0 => assert!(run.text().contains("function"), "{end}"),
            _ => assert!(run.expect(1, "<stdin>:").stdout.is_empty(), "{end}"),
        }
    }
}

#[test]
fn the_output_is_whole_or_untouched() {
    let directory = temporary();
    let at = |name: &str| directory.path().join(name);
    let to =
        |path: &Path, stdin: &str| run_with(&["merge", "-", "-o", text_of(path)], stdin.as_bytes());
    to(&at("no/such/file"), FUNCTION).expect(1, "error: cannot write");
    to(directory.path(), FUNCTION).expect(1, "it is a directory");
    to(Path::new("/dev/full"), FUNCTION).expect(1, "error: cannot write /dev/full");
    to(Path::new("/dev/null"), FUNCTION).expect(0, "merged 0 of 1 function");
    assert!(names(directory.path()).is_empty(), "something was left behind");

    let file = at("out.clif");
    let run = to(&file, FUNCTION).expect(0, "");
    assert!(run.stdout.is_empty());
    let merged = read(&file);
    assert!(merged.contains("\n\nfunction %f(i32) -> i32 fast {"), "{merged}");
    to(&file, "function").expect(1, "error");
    assert_eq!(read(&file), merged, "an error leaves the old file");
    assert_eq!(names(directory.path()), ["out.clif"], "something was left behind");

    // The input may be the output.
    let name = text_of(&file);
    run_with(&["merge", name, "-o", name], b"").expect(0, "");
    assert_eq!(read(&file), merged);
    let run = to(Path::new("/dev/stdout"), FUNCTION).expect(0, "");
    assert_eq!(run.text(), merged);
}

#[cfg(unix)]
#[test]
fn links_permissions_and_pipes() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = temporary();
    let [file, link, pipe] = ["file", "link", "pipe"].map(|name| directory.path().join(name));
    write(&file, "old");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    run_with(&["merge", "-", "-o", text_of(&link)], FUNCTION.as_bytes()).expect(0, "");
    assert!(read(&file).contains("function %f"), "written through the link");
    assert!(link.is_symlink());
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);

    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || read(pipe)
    });
    run_with(&["merge", "-", "-o", text_of(&pipe)], FUNCTION.as_bytes()).expect(0, "");
    assert!(reader.join().unwrap().contains("function %f"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let directory = temporary();
    let file = directory.path().join("long.clif");
    write(&file, instructions("f", 20_000));
    let mut child = program()
        .args(["merge", text_of(&file)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut start = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut start).unwrap();
    assert_eq!(&start, b";@ default");
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn colours_on_demand() {
    let error = |arguments: &[&str], no_color: Option<&str>| {
        let mut command = program();
        command.args(["merge", "nothing"]).args(arguments);
        command.envs(no_color.map(|value| ("NO_COLOR", value)));
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    let plain = "error: cannot read nothing";
    assert!(error(&[], None).starts_with(plain), "standard error is no terminal");
    assert!(error(&["--color", "never"], None).starts_with(plain));
    assert!(error(&["--color=always"], None).contains("\x1b["));
    assert!(error(&[], Some("1")).starts_with(plain));
    let usage = run(&["merge", "--color=always", "--bad"]).expect(2, "\x1b[");
    assert!(run(&["merge", "--color=never", "--bad"]).stderr.len() < usage.stderr.len());
}

#[test]
fn merging_again_changes_nothing() {
    let filetests = testkit::root().join("filetests");
    let mut files: Vec<_> =
        ["mixed.clif", "hard.clif", "address-of-a-thunk.clif", "data.clif", "tables.clif"]
            .map(|name| inputs().join(name))
            .into();
    for area in ["linkage", "recursion", "calls", "data"] {
        let directory = filetests.join(area);
        files.extend(names(&directory).iter().map(|name| directory.join(name)));
    }
    assert!(files.len() > 20);
    // Merging similar functions can make others similar, which merge when it is done again.
    let identical = ["--verify", "--similar", "off"];
    let ways: [&[&str]; 3] = [
        &[],
        &["--walk-all", "--aliases"],
        &["--linkage", "local", "--addresses", "insignificant"],
    ];
    for file in &files {
        // Files that name targets are merged for these.
        let text = read(file);
        let named =
            ["x86_64", "aarch64"].map(|target| text.contains(&format!("\ntarget {target}")));
        for (at, way) in ways.iter().enumerate() {
            let target = match (at, named) {
                (1, [false, _] | [_, true]) | (_, [false, true]) => "aarch64",
                _ => "x86_64",
            };
            let identical = [&identical[..], &["--target", target]].concat();
            let first = run(&[&["merge", text_of(file)], &identical[..], way].concat());
            assert_eq!(first.code, 0, "{}: {}", file.display(), first.stderr);
            // The options are in the text now, except the target and `--aliases` for data: data
            // objects that were kept for lack of aliases would become aliases now.
            let mut again = [&["merge", "-"], &identical[..]].concat();
            if way.contains(&"--aliases") || !text.contains(";@ data") {
                again.push("--aliases");
            }
            let second = run_with(&again, &first.stdout);
            assert_eq!(second.code, 0, "{}: {}", file.display(), second.stderr);
            let nothing = second.stderr.starts_with("merged 0 of ");
            assert!(nothing, "{}: {}", file.display(), second.stderr);
            assert_eq!(first.text(), second.text(), "{}", file.display());
        }
    }
}

#[test]
fn printed_data_objects_are_read_back() {
    let message = "merged 3 of 5 functions: 1 redirected, 2 thunks, 1 new body";
    let data = |arguments: &[&str]| {
        let run = run(&[&["merge", "data.clif"], arguments].concat()).expect(0, message);
        let (data, functions) = run.text().split_once("\n\n").expect("functions");
        assert!(functions.contains("function %body1"), "%body0 is taken");
        // Where lines are broken does not matter here.
        data.replace("\n;@ +", "")
    };
    let expected = "\
;@ defaults linkage=export addresses=significant data-addresses=significant
;@ data %table linkage=local align=8 = \"abcd\\00\" hex 000000 %one %three u1:0-8 %outside
;@ data %body0 writable = zero 8
;@ data u1:0 used = hex 010200
;@ data %last =";
    assert_eq!(data(&[]), expected);
    let insignificant = expected
        .replace("%table linkage=local", "%table linkage=local addresses=insignificant")
        .replace("%body0", "%body0 addresses=insignificant")
        .replace("%last", "%last addresses=insignificant");
    assert_eq!(data(&["--data-addresses", "insignificant"]), insignificant);
    run_with(&["merge", "-"], b";@ data %only = %other\n").expect(0, "merged 0 of 0 functions");
}

#[test]
fn objects_for_every_format() {
    let directory = temporary();
    let file = directory.path().join("out.o");
    for (target, magic) in [
        ("x86_64", &b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\x3e\0"[..]),
        ("aarch64", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\xb7\0"),
        ("x86_64-unknown-freebsd", b"\x7fELF"),
        ("x86_64-apple-darwin", b"\xcf\xfa\xed\xfe\x07\0\0\x01"),
        ("aarch64-apple-darwin", b"\xcf\xfa\xed\xfe\x0c\0\0\x01"),
        ("x86_64-pc-windows-msvc", b"\x64\x86"),
    ] {
        let arguments =
            ["compile", "hard.clif", "--verify", "--target", target, "-o", text_of(&file)];
        run(&arguments).expect(0, "merged ");
        let object = std::fs::read(&file).unwrap();
        assert!(object.starts_with(magic), "{target}");
        assert!(object.windows(9).any(|bytes| bytes == b"hop_again"), "{target}");
    }
    // The same input gives the same bytes, whatever the output is.
    let run = run(&["compile", "hard.clif", "-o", "-", "--target", "x86_64-pc-windows-msvc"]);
    assert_eq!(run.expect(0, "").stdout, std::fs::read(&file).unwrap());
}

#[test]
fn functions_that_cannot_be_compiled_are_errors() {
    let directory = temporary();
    let file = directory.path().join("out.o");
    write(&file, "old");
    let compile = |unit: &str, more: &[&str]| {
        run_with(&[&["compile", "-", "-o", text_of(&file)], more].concat(), unit.as_bytes())
    };
    let vector = "\n;@ pinned\nfunction %v(i128, i128) -> i128 {\nblock0(v0: i128, v1: i128):\n    \
                  v2 = udiv v0, v1\n    return v2\n}\n";
    let message = "error: cannot compile function %v for aarch64: Unsupported";
    compile(vector, &["--target", "aarch64"]).expect(1, message);
    // `report` does not end at such a function.
    run_with(&["report", "-"], vector.as_bytes()).expect(1, "\n --> <stdin>:3:1\n");
    let tail = "function %t(i64) -> i64 tail {\n    fn0 = %u(i64) -> i64 tail\n\
                block0(v0: i64):\n    return_call fn0(v0)\n}\n";
    let message = "error: cannot compile function %t for x86_64: Cranelift panicked";
    compile(tail, &["--set", "preserve_frame_pointers=false"]).expect(1, message);
    assert_eq!(read(&file), "old", "an error leaves the old file");
    compile(tail, &[]).expect(0, "");
}

/// The object of a unit with every outcome is linked to a C program, which checks results and
/// addresses.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[test]
fn a_linked_program_works() {
    let directory = temporary();
    let [object, program, merged] =
        ["unit.o", "program", "merged.clif"].map(|name| directory.path().join(name));
    for (unit, c, message) in
        [("mixed.clif", "main.c", "1 alias"), ("tables.clif", "tables.c", "3 of 9 data objects")]
    {
        // With aliases, without aliases, by way of text, and without merging.
        run(&["merge", "--aliases", unit, "-o", text_of(&merged)]).expect(0, message);
        for (arguments, aliases) in [
            (&[unit][..], true),
            (&[unit, "--no-alias"], false),
            (&[text_of(&merged)], true),
            (&[unit, "--merge-limit", "0"], false),
            (&[unit, "--no-merge"], false),
            (&[text_of(&merged), "--no-merge"], true),
        ] {
            run(&[&["compile", "-v", "-o", text_of(&object)], arguments].concat())
                .expect(0, "defined and finished in ");
            for pie in ["-pie", "-no-pie"] {
                let mut compiler = Command::new("cc");
                compiler.current_dir(inputs()).arg(pie).args(aliases.then_some("-DMERGED"));
                compiler.args([Path::new(c), &object]).arg("-lm").arg("-o").arg(&program);
                match compiler.status() {
                    Ok(status) => assert!(status.success(), "{arguments:?} {pie}"),
                    // Without a C compiler, Rust programs are not linked either, as a rule.
                    Err(error) => return eprintln!("skipped: no C compiler: {error}"),
                }
                let status = Command::new(&program).status().unwrap();
                assert_eq!(status.code(), Some(0), "{arguments:?} {pie}");
            }
        }
    }
}

#[test]
fn the_report_as_json() {
    let run = run(&["report", "mixed.clif", "--format", "json", "--verify"]).expect(0, "");
    assert_eq!(run.stderr, "");
    let report: serde_json::Value = serde_json::from_str(run.text()).expect("JSON");
    let number = |path: &str| {
        let value = report.pointer(path).unwrap_or_else(|| panic!("no {path}"));
        value.as_f64().unwrap_or_else(|| panic!("{path} is no number"))
    };
    for (path, expected) in [
        ("/schema", 1.0),
        ("/functions", 11.0),
        ("/classes", 4.0),
        ("/members", 8.0),
        ("/merged", 5.0),
        ("/new_bodies", 1.0),
        ("/by_disposition/keep", 6.0),
        ("/by_disposition/redirect", 1.0),
        ("/by_disposition/alias", 1.0),
        ("/by_disposition/thunk", 3.0),
        ("/by_reason/only-called", 1.0),
        ("/by_reason/malformed", 0.0),
    ] {
        assert_eq!(number(path), expected, "{path}");
    }
    for target in ["x86_64", "aarch64"] {
        let [before, after] =
            ["before", "after"].map(|when| number(&format!("/native/{target}/{when}")));
        assert!(after > 0.0 && after < before, "{target}: {after} of {before}");
    }
    for step in ["read", "walk", "pass", "compile_before", "compile_after"] {
        assert!(number(&format!("/seconds/{step}")) > 0.0, "{step}");
    }
    let sum = |path: &str| {
        let object =
            report.pointer(path).and_then(serde_json::Value::as_object).expect("an object");
        object.values().map(|value| value.as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((sum("/by_disposition"), sum("/by_reason")), (11, 11));
    assert_eq!(report.pointer("/largest/0/representative").unwrap(), "(new, for %weak)");
}

#[test]
fn the_report_of_data() {
    let json = run(&["report", "tables.clif", "--format", "json", "--verify"]).expect(0, "");
    let report: serde_json::Value = serde_json::from_str(json.text()).expect("JSON");
    let data = &report["data"];
    assert_eq!((&data["objects"], &data["merged"]), (&9.into(), &3.into()));
    let bytes = &data["bytes"];
    assert_eq!((&bytes["before"], &bytes["after"]), (&154.into(), &74.into()));
    assert_eq!(data["by_disposition"]["alias"], 1);
    assert_eq!(data["by_reason"]["writable"], 2);
    // A unit without data objects has no such table.
    let without = run(&["report", "mixed.clif"]).expect(0, "");
    assert!(!without.text().contains("data"), "{}", without.text());
}

/// A thunk of the text is a thunk before merging, too.
#[test]
fn thunks_of_the_text_are_not_counted_as_saved() {
    let merged = run(&["merge", "mixed.clif", "--linkage", "export"]).expect(0, "");
    let run = run_with(&["report", "-", "--format", "json"], &merged.stdout).expect(0, "");
    let report: serde_json::Value = serde_json::from_str(run.text()).unwrap();
    for target in ["x86_64", "aarch64"] {
        let native = &report["native"][target];
        assert_eq!(native["before"], native["after"], "{target}");
    }
}

/// A function of `count` additions in one block.
fn instructions(name: &str, count: usize) -> String {
    let mut text = format!("function %{name}(i32) -> i32 {{\nblock0(v0: i32):\n");
    for value in 1..=count {
        writeln!(text, "    v{value} = iadd v{}, v0", value - 1).unwrap();
    }
    writeln!(text, "    return v{count}\n}}").unwrap();
    text
}

/// A function of `count` blocks, each of which leads to the next one or to the last.
fn blocks(name: &str, count: usize) -> String {
    let last = count - 1;
    let mut text = format!("function %{name}(i32) -> i32 {{\nblock0(v0: i32):\n    jump block1\n");
    for block in 1..last {
        writeln!(text, "block{block}:\n    brif v0, block{}, block{last}", block + 1).unwrap();
    }
    writeln!(text, "block{last}:\n    return v0\n}}").unwrap();
    text
}

#[test]
fn a_block_of_a_million_instructions() {
    // Most of them have no operands, which take the reader of a debug build much longer.
    let unit = instructions("f", 100_000)
        .replace("    return", &("    nop\n".repeat(900_000) + "    return"));
    let run = run_with(&["merge", "-"], unit.as_bytes()).expect(0, "merged 0 of 1 function");
    assert_eq!(run.text().matches("nop").count(), 900_000);
}

#[test]
fn functions_of_a_hundred_thousand_blocks() {
    let unit = blocks("f", 100_000) + &blocks("g", 100_000);
    run_with(&["merge", "-"], unit.as_bytes()).expect(0, "merged 1 of 2 functions: 1 thunk");
}

#[test]
fn a_long_chain_of_functions() {
    let mut unit = String::new();
    for at in 0..20_000 {
        writeln!(
            unit,
            "function %f{at}(i32) {{\n    fn0 = %f{}(i32)\nblock0(v0: i32):\n    call fn0(v0)\n    \
             return\n}}",
            at + 1,
        )
        .unwrap();
    }
    let arguments = ["merge", "-", "--linkage", "local", "--addresses", "insignificant"];
    run_with(&[&arguments[..], &["--similar", "off"]].concat(), unit.as_bytes())
        .expect(0, "merged 0 of 20000 functions");
    // Each function calls a different one, so that one parameterised body replaces all of them: the
    // callee is its extra argument.
    run_with(&arguments, unit.as_bytes()).expect(0, "merged 20000 of 20000 functions");
}

/// Long chains of entities that a naive program would walk recursively, or repeatedly.
#[test]
fn long_chains_inside_a_function() {
    let mut globals = "function %f(i64 vmctx) {\n    gv0 = vmctx\n".to_owned();
    let mut aliases = "function %f(i64) -> i64 {\nblock0(v0: i64):\n".to_owned();
    let mut thunks = String::new();
    for at in 1..3_000 {
        let before = at - 1;
        writeln!(globals, "    gv{at} = load.i64 notrap aligned gv{before}+8").unwrap();
        writeln!(aliases, "    v{at} -> v{before}").unwrap();
        writeln!(
            thunks,
            ";@ alias=%f{at}\nfunction %f{before}() {{\n    fn0 = colocated %f{at}()\nblock0:\n    \
             call fn0()\n    return\n}}"
        )
        .unwrap();
    }
    globals += "    stack_limit = gv2999\n    fn0 = %g()\nblock0(v0: i64):\n    call fn0()\n    return\n}\n";
    aliases += "    return v2999\n}\n";
    thunks += "function %f2999() {\nblock0:\n    return\n}\n";
    for unit in [globals, aliases, thunks] {
        run_with(&["merge", "-", "--verify", "--walk-all"], unit.as_bytes()).expect(0, "merged 0");
        run_with(&["compile", "-", "-o", "/dev/null"], unit.as_bytes()).expect(0, "merged 0");
    }
}

#[test]
fn the_report_of_similar_functions() {
    let size = ["--similar", "size", "--verify"];
    let json = [&["report", "similar.clif", "--format", "json"][..], &size].concat();
    let json = run(&json).expect(0, "");
    let report: serde_json::Value = serde_json::from_str(json.text()).expect("JSON");
    let similar = &report["similar"];
    let count = |name: &str| similar[name].as_u64().expect("a number");
    // The set may be divided into one function and the others.
    assert!((4..=5).contains(&(count("functions") + count("left"))), "{similar}");
    let native = &report["native"][report["host"].as_str().expect("a name").replace('-', "_")];
    // The savings of the sets are predicted; the total is measured after merging.
    let bytes = |name: &str| native[name].as_i64().expect("a number");
    assert!(similar["saved"].as_i64().expect("a number") > 0, "{report}");
    assert!(bytes("saved_by_similar") <= bytes("before") - bytes("after"), "{report}");
    let text = run(&[&["report", "similar.clif", "-v"][..], &size].concat()).expect(0, "");
    for line in ["similar functions  bodies  functions", "by similar functions"] {
        assert!(text.text().contains(line), "{}", text.text());
    }
    // Without similar merging, the report has no such table.
    let without = run(&["report", "-v", "--similar", "off", "similar.clif"]).expect(0, "");
    assert!(!without.text().contains("similar functions"), "{}", without.text());
}

/// The reader may close the pipe early: `clif-merge test filetests | head -1`.
#[test]
fn a_closed_pipe_is_no_bug() {
    let filetest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../filetests/readme.clif");
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/duplicates.clif");
    for arguments in [["test", filetest], ["report", sample], ["merge", sample]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = program().args(arguments).stdout(writer).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*stderr), (Some(0), ""), "{arguments:?}");
    }
}

#[cfg(not(feature = "wasm"))]
#[test]
fn without_the_feature_modules_are_refused() {
    let run = run_with(&["report", "-"], b"\0asm\x01\0\0\0");
    run.expect(1, "<stdin>: this clif-merge was built without its feature 'wasm'");
}
