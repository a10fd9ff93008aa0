//! `MergingModule<ObjectModule>` compared with a bare `ObjectModule`: time and peak memory of
//! defining a unit and finishing the object, and the size of its code.
//!
//! Runs `clif-merge compile -v` with `--no-merge`, with `--similar off` and as it is by default in
//! turn, a process each, and compares the figures that it prints, in seconds of CPU time, on one
//! thread (of wall-clock time, where the system does not report CPU time): the median of all
//! rounds, and of times the median of the ratios within each round. Runs on the sample of the
//! repository, or, if `CLIF_MERGE_UNITS` names a directory, on every `.clif` file in it, and on a
//! generated unit in which there is nothing to merge but all has to be looked at: 20,000 functions
//! of equally many instructions, each of another shape. All functions local, addresses
//! insignificant.
//!
//! `CLIF_MERGE_ROUNDS` is the number of rounds (5), `CLIF_MERGE_SET` a setting of Cranelift, such
//! as `enable_verifier=true`.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use testkit::measure::{self, Figures as Found};
use testkit::scale::Family;

/// The figures that one run printed.
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

/// The compared variants: the name of the column, and an option.
const VARIANTS: [(&str, Option<&str>); 3] =
    [("without", Some("--no-merge")), ("identical", Some("--similar=off")), ("all", None)];

fn run(unit: &Path, option: Option<&str>) -> Figures {
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
    command.args(option);
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

/// The figures of the rounds of each variant, one after the other. Each round runs every variant.
fn rounds(unit: &Path, rounds: u32) -> [Vec<Figures>; VARIANTS.len()] {
    let mut all = [const { Vec::new() }; VARIANTS.len()];
    for round in 0..rounds as usize {
        for turn in 0..VARIANTS.len() {
            let at = (round + turn) % VARIANTS.len();
            all[at].push(run(unit, VARIANTS[at].1));
        }
    }
    all
}

/// The median of a figure of some rounds.
fn median(rounds: &[Figures], of: fn(&Figures) -> f64) -> f64 {
    measure::median(rounds.iter().map(of).collect())
}

/// The median of the ratios of the times of each round: what a busy machine does to one round it
/// does to both.
fn ratio(rounds: &[Figures], without: &[Figures]) -> f64 {
    let pairs = rounds.iter().zip(without);
    measure::median(pairs.map(|(own, without)| own.seconds / without.seconds).collect())
}

fn report(name: &str, unit: &Path, count: u32, found: &mut Found) {
    let all = rounds(unit, count);
    for ((variant, _), rounds) in VARIANTS.iter().zip(&all) {
        found.set(name, &format!("{variant}, seconds"), median(rounds, |run| run.seconds));
        found.set(name, &format!("{variant}, ratio"), ratio(rounds, &all[0]));
        found.set(name, &format!("{variant}, KiB"), median(rounds, |run| run.memory));
        found.set(name, &format!("{variant}, bytes"), median(rounds, |run| run.code));
    }
    let [seconds, memory, code] =
        [|run: &Figures| run.seconds, |run: &Figures| run.memory, |run: &Figures| run.code]
            .map(|of| all.each_ref().map(|rounds| median(rounds, of)));
    let [_, identical, with] = all.each_ref().map(|rounds| ratio(rounds, &all[0]));
    println!(
        "{name:<18} {:>8.3} s {:>8.3} s {identical:>6.3} {:>8.3} s {with:>6.3} {:>9.2} % {:>9} → {} ({:.3})",
        seconds[0],
        seconds[1],
        seconds[2],
        100.0 * (1.0 - code[2] / code[0]),
        memory[0],
        memory[2],
        memory[2] / memory[0],
    );
}

/// Writes functions of which none are similar, as a text.
fn nothing_similar(count: u32) -> tempfile::NamedTempFile {
    let suffix = tempfile::Builder::new().suffix(".clif").tempfile();
    let mut file = suffix.expect("a temporary file");
    let mut text = std::io::BufWriter::new(file.as_file_mut());
    for index in 0..count {
        writeln!(text, "{}", Family::Shapes.function(index, count)).expect("is written");
    }
    text.flush().expect("is written");
    drop(text);
    file
}

fn main() {
    let rounds = measure::number("CLIF_MERGE_ROUNDS", 5, 1);
    let mut found = Found::new("module");
    println!(
        "unit                 without  identical  ratio        all  ratio code saved   peak memory, KiB"
    );
    for unit in testkit::units::units() {
        let name = unit.file_stem().unwrap_or_default().to_string_lossy();
        report(&name, &unit, rounds, &mut found);
    }
    let generated = nothing_similar(if measure::measures() { 20_000 } else { 200 });
    report("nothing-similar", generated.path(), rounds, &mut found);
    found.write();
}
