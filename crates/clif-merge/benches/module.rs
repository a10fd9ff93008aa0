//! `MergingModule<ObjectModule>` compared with a bare `ObjectModule`: time and peak memory of defining a unit
//! and finishing the object, and the size of its code.
//!
//! Runs `clif-merge compile -v` with and without `--no-merge` in turn, a process each, and compares the figures
//! that it prints: of all rounds, the fastest of each side, in seconds of CPU time, on one thread (of
//! wall-clock time, where the system does not report CPU time). Runs on the sample of the repository, or, if
//! `CLIF_MERGE_UNITS` names a directory, on every `.clif` file in it. All functions local,
//! addresses insignificant.
//!
//! `CLIF_MERGE_ROUNDS` is the number of rounds (5), `CLIF_MERGE_SET` a setting of Cranelift, such as
//! `enable_verifier=true`.

use std::path::Path;
use std::process::Command;

/// What one run printed.
#[derive(Clone, Copy)]
struct Figures {
    seconds: f64,
    memory: f64,
    /// Bytes of code.
    code: f64,
}

/// The number that stands before `after` in a text.
fn number_before(text: &str, after: &str) -> Option<f64> {
    let before = text.split_once(after)?.0;
    let digits = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
    let start = before.rfind(|c| !digits(c)).map_or(0, |at| at + 1);
    before[start..].replace(',', "").parse().ok()
}

fn run(unit: &Path, merge: bool) -> Figures {
    let mut command = Command::new(env!("CARGO_BIN_EXE_clif-merge"));
    command.args([
        "compile",
        "-v",
        "--linkage",
        "local",
        "--addresses",
        "insignificant",
        "--jobs",
        "1",
        "-o",
    ]);
    command.arg(if cfg!(windows) { "NUL" } else { "/dev/null" }).arg(unit);
    if !merge {
        command.arg("--no-merge");
    }
    if let Ok(setting) = std::env::var("CLIF_MERGE_SET") {
        command.args(["--set", &setting]);
    }
    let output = command.output().expect("clif-merge runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let seconds = number_before(&text, " s of CPU").or_else(|| number_before(&text, " s"));
    let code = text
        .lines()
        .find_map(|line| number_before(line, " bytes of code").filter(|_| line.ends_with("code")));
    Figures {
        seconds: seconds.expect("reports the time"),
        memory: number_before(&text, " KiB").unwrap_or(f64::NAN),
        code: code.expect("reports the bytes"),
    }
}

fn main() {
    // `cargo test --benches` runs benches to see that they do.
    let rounds = match std::env::args().any(|argument| argument == "--bench") {
        true => std::env::var("CLIF_MERGE_ROUNDS").map_or(5, |rounds| rounds.parse().unwrap()),
        false => 1,
    };
    println!("unit                 without      with     ratio   code saved   peak memory, KiB");
    for unit in testkit::units::units() {
        let mut best: [Option<Figures>; 2] = [None, None];
        for round in 0..rounds {
            for merge in [round % 2 == 0, round % 2 == 1] {
                let figures = run(&unit, merge);
                let best = &mut best[usize::from(merge)];
                if best.is_none_or(|best| figures.seconds < best.seconds) {
                    *best = Some(figures);
                }
            }
        }
        let [without, with] = best.map(|figures| figures.expect("at least one round"));
        let saved = 100.0 * (1.0 - with.code / without.code);
        println!(
            "{:<18} {:>8.3} s {:>7.3} s {:>7.3} {:>10.2} % {:>9} → {}",
            unit.file_stem().unwrap_or_default().to_string_lossy(),
            without.seconds,
            with.seconds,
            with.seconds / without.seconds,
            saved,
            without.memory,
            with.memory,
        );
    }
}
