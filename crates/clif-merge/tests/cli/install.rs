//! Completions and manual pages: every subcommand is in them, and shells and `man` read them.

use crate::program::{names, read, run, temporary, text_of};
use std::io::Write as _;
use std::process::{Command, Stdio};

const SUBCOMMANDS: [&str; 14] = [
    "merge",
    "compile",
    "summarize",
    "combine",
    "locate",
    "report",
    "why",
    "explore",
    "remarks",
    "diff",
    "bisect",
    "test",
    "completions",
    "man",
];

/// Completions of an older program would offer what is not there.
#[test]
fn completions_have_every_subcommand_in_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = run(&["completions", shell]).expect(0, "");
        let text = ran.text();
        for word in SUBCOMMANDS.iter().chain(&["--content-addressed", "--similar"]) {
            // Fish and the others write options without their dashes.
            let word = word.trim_start_matches('-');
            assert!(text.contains(word), "{shell}: no {word}");
        }
        if shell == "bash" {
            let mut bash = Command::new("bash");
            let mut bash = bash.arg("-n").stdin(Stdio::piped()).spawn().expect("bash starts");
            bash.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
            assert!(bash.wait().unwrap().success());
        }
    }
    run(&["completions", "no-shell"]).expect(2, "invalid value 'no-shell'");
}

#[test]
fn each_subcommand_has_a_manual_page() {
    let directory = temporary();
    let pages = directory.path().join("share/man1");
    run(&["man", text_of(&pages)]).expect(0, "");
    let mut expected: Vec<String> =
        SUBCOMMANDS.iter().map(|name| format!("clif-merge-{name}.1")).collect();
    expected.push("clif-merge.1".to_owned());
    expected.sort();
    let mut found = names(&pages);
    found.sort();
    assert_eq!(found, expected);
    let page = read(pages.join("clif-merge-combine.1"));
    for part in [".TH clif-merge-combine 1", "\\-\\-partial", "Examples:", "Exit codes:"] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    // The same program writes the same bytes.
    run(&["man", text_of(&pages)]).expect(0, "");
    assert_eq!(read(pages.join("clif-merge-combine.1")), page);
    run(&["man", "/dev/null"]).expect(1, "cannot make /dev/null");
}
