//! Rounds, and the tables that are printed.

use crate::compiled::{Compiled, Variant};
use crate::dispatch;
use crate::world::{Memory, World};
use cranelift_codegen::ir::Function;
use cranelift_mergefunc::cranelift_codegen;
use std::path::{Path, PathBuf};
use testkit::programs::{Image, Program, texts};

/// How long one run should take at least, in seconds: many short ones find more quiet moments than
/// a few long ones.
const ENOUGH: f64 = 0.005;

/// A program that was measured.
struct Row {
    unit: String,
    program: String,
    /// By variant.
    seconds: [f64; Variant::ALL.len()],
}

impl Row {
    fn ratio(&self, variant: usize) -> f64 {
        self.seconds[variant] / self.seconds[0]
    }
}

pub fn all() {
    // `cargo test --benches` runs benches to see that they do.
    let rounds = match std::env::args().any(|argument| argument == "--bench") {
        true => std::env::var("CLIF_MERGE_ROUNDS").map_or(50, |rounds| rounds.parse().unwrap()),
        false => 1,
    };
    let mut rows = Vec::new();
    println!("| unit | policy | functions | merged | parameterised bodies | bytes of code |");
    println!("|---|---|---|---|---|---|");
    for path in units() {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        rows.extend(measure_unit(&path, &name, rounds));
    }
    println!();
    let names = Variant::ALL.map(|variant| format!(" {} |", variant.name()));
    println!("| unit | program |{}", names.concat());
    println!("|---|---|{}", "---|".repeat(names.len()));
    for row in &rows {
        print!("| {} | {} | {:.4} s |", row.unit, row.program, row.seconds[0]);
        for variant in 1..Variant::ALL.len() {
            print!(" {:.4} s, {:.3} |", row.seconds[variant], row.ratio(variant));
        }
        println!();
    }
    for rows in rows.chunk_by(|row, next| row.unit == next.unit) {
        summary(&rows[0].unit, "geometric mean", |variant| {
            let logarithms: f64 = rows.iter().map(|row| row.ratio(variant).ln()).sum();
            (logarithms / rows.len() as f64).exp()
        });
        summary(&rows[0].unit, "largest", |variant| {
            rows.iter().map(|row| row.ratio(variant)).fold(0.0, f64::max)
        });
    }
    dispatch::all(rounds);
}

/// Prints one ratio for each variant.
fn summary(unit: &str, name: &str, of: impl Fn(usize) -> f64) {
    let ratios = (1..Variant::ALL.len()).map(|variant| format!(" {:.3} |", of(variant)));
    println!("| {unit} | {name} | |{}", ratios.collect::<String>());
}

fn units() -> Vec<PathBuf> {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/programs/units");
    let directory = std::env::var_os("CLIF_MERGE_PROGRAMS").map_or(ours, PathBuf::from);
    let entries = std::fs::read_dir(&directory);
    let entries = entries.expect("a directory of units; the published package has none");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("readable directory").path()).collect();
    paths.sort();
    paths
}

/// The functions of all files of a unit, sorted by file.
fn functions(unit: &Path) -> Vec<Function> {
    let parse = |text: &String| cranelift_reader::parse_functions(text).expect("valid CLIF");
    texts(unit).iter().flat_map(parse).collect()
}

fn measure_unit(path: &Path, unit: &str, rounds: usize) -> Vec<Row> {
    let functions = functions(path);
    let image = Image::read(path);
    let memory = Memory::new(&image);
    let compiled = Variant::ALL.map(|variant| Compiled::new(variant, &functions, &image));
    for (variant, Compiled { stats, .. }) in Variant::ALL.iter().zip(&compiled).skip(1) {
        println!(
            "| {unit} | {} | {} | {} | {} | {} → {} ({:.2}%) |",
            variant.name(),
            functions.len(),
            stats.merged(),
            stats.new_bodies,
            compiled[0].stats.code_bytes,
            stats.code_bytes,
            100.0 * (1.0 - stats.code_bytes as f64 / compiled[0].stats.code_bytes as f64),
        );
    }
    let mut worlds = compiled.each_ref().map(|code| World::new(&image, &memory, &code.addresses));
    let programs = image.programs.iter().enumerate();
    programs
        .map(|(at, program)| {
            let entries = compiled.each_ref().map(|code| code.entries[at]);
            let seconds = measure_program(program, &mut worlds, entries, rounds);
            Row { unit: unit.to_owned(), program: program.name.clone(), seconds }
        })
        .collect()
}

/// The best of all rounds, by variant.
fn measure_program<const N: usize>(
    program: &Program,
    worlds: &mut [World<'_>; N],
    entries: [*const u8; N],
    rounds: usize,
) -> [f64; N] {
    let Program { name, checksum, .. } = program;
    for (world, entry) in worlds.iter_mut().zip(entries) {
        world.reset();
        assert_eq!(world.run(entry, 1), *checksum, "{name} computes another result");
    }
    let mut n = 1;
    while run(&mut worlds[0], entries[0], n).0 < ENOUGH {
        n *= 2;
    }
    let (_, expected) = run(&mut worlds[0], entries[0], n);
    let mut best = [f64::INFINITY; N];
    for round in 0..rounds {
        for turn in 0..N {
            let variant = (round + turn) % N;
            let (seconds, sum) = run(&mut worlds[variant], entries[variant], n);
            assert_eq!(sum, expected, "{name} computes another result");
            best[variant] = best[variant].min(seconds);
        }
    }
    best
}

/// Runs a program in a fresh world, a little to warm up, and then for the time.
fn run(world: &mut World<'_>, entry: *const u8, n: u32) -> (f64, u64) {
    world.reset();
    world.run(entry, n.div_ceil(8));
    let start = thread_seconds();
    let sum = world.run(entry, n);
    (thread_seconds() - start, sum)
}

/// The CPU time of this thread, in seconds: other threads do not count.
#[expect(unsafe_code, reason = "the standard library does not report it")]
pub fn thread_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to the pointer that it gets.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0, "no clock");
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}
