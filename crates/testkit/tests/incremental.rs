//! Random programs that are defined over several flushes do the same merged and unmerged.
//!
//! Before this test existed, two faults were unnoticed: a function of a later flush was merged into
//! one of an earlier flush whose callee has facts that only hold there, and a later flush passed
//! the address of a function that had been eliminated.
//!
//! | variable | says |
//! |---|---|
//! | `CLIF_MERGE_RUNS` | how many programs |
//! | `CLIF_MERGE_SECONDS` | for how long instead, in all |
//! | `CLIF_MERGE_SEED` | the first seed |
//! | `CLIF_MERGE_GO_ON` | findings are only counted |

use arbitrary::Unstructured;
use std::ops::Range;
use std::time::{Duration, Instant};
use testkit::checked::checked;
use testkit::incremental::{
    self, Finding, Program, Statistics, check_facts, check_jit, check_library, check_streaming,
    print,
};
use testkit::link::Linker;
use testkit::support::Rng;
use testkit::tools::{Kind, Toolchain};

/// Bytes that a program is drawn from.
const BYTES: usize = 8192;

fn draw(seed: u64) -> Program {
    let bytes = Rng::new(seed).bytes(BYTES);
    incremental::program(&mut Unstructured::new(&bytes)).expect("a program")
}

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value}: not a number")))
}

/// The result of a path for some programs: the differences, by number of the program.
type Path<'a> = dyn FnMut(&[&Program], &mut Statistics) -> Vec<(usize, Finding)> + 'a;

/// Runs programs of consecutive seeds, a number of them or for a time, some at once, and fails with
/// the first one that is merged wrongly, reduced.
fn run(seeds: Range<u64>, at_once: u64, tries: usize, path: &mut Path<'_>) -> Statistics {
    let start = Instant::now();
    let time = variable("CLIF_MERGE_SECONDS").map(Duration::from_secs);
    let first = variable("CLIF_MERGE_SEED").unwrap_or(seeds.start);
    let count = match time {
        Some(_) => u64::MAX,
        None => seeds.end - seeds.start,
    };
    let count = variable("CLIF_MERGE_RUNS").unwrap_or(count);
    let goes_on = std::env::var_os("CLIF_MERGE_GO_ON").is_some();
    let mut statistics = Statistics::default();
    let mut seeds = (first..first.saturating_add(count)).peekable();
    while seeds.peek().is_some() && time.is_none_or(|time| start.elapsed() < time) {
        let seeds: Vec<u64> = seeds.by_ref().take(at_once as usize).collect();
        let programs: Vec<Program> = seeds.iter().map(|seed| draw(*seed)).collect();
        let programs: Vec<&Program> = programs.iter().collect();
        for (at, finding) in path(&programs, &mut statistics) {
            statistics.add("findings", 1);
            let (seed, elapsed) = (seeds[at], start.elapsed().as_secs_f64());
            if goes_on {
                let line = finding.what.lines().next().unwrap_or("");
                println!("seed {seed} after {elapsed:.1} s: {line}");
                continue;
            }
            let mut last = finding.clone();
            let kind = |finding: &Finding| finding.what.split(' ').next().map(str::to_owned);
            let smallest = incremental::reduce(programs[at], tries, &mut |program| {
                let findings = path(&[program], &mut Statistics::default());
                match findings.into_iter().find(|(_, other)| kind(other) == kind(&finding)) {
                    Some((_, other)) => last = other,
                    None => return false,
                }
                true
            });
            panic!(
                "seed {seed}, after {elapsed:.1} s: {finding}\nreduced: {last}\n{}",
                print(&smallest)
            );
        }
    }
    println!("{statistics}{:>9.1} seconds", start.elapsed().as_secs_f64());
    statistics
}

/// Checks that nothing was found, and that everything occurred that should.
fn finish(statistics: &Statistics, occurs: &[&str]) {
    let is_asked = |name: &&str| variable(name).is_some();
    // For other programs than those of the test, nothing need occur.
    if !["CLIF_MERGE_RUNS", "CLIF_MERGE_SECONDS", "CLIF_MERGE_SEED"].iter().any(is_asked) {
        statistics.assert_occurred(occurs);
    }
    assert_eq!(statistics.get("findings"), 0, "findings");
}

/// A check of one program.
type Check = fn(&Program, &mut Statistics) -> Result<(), Finding>;

fn here(seeds: Range<u64>, check: Check) -> Statistics {
    run(seeds, 1, 3000, &mut |programs, statistics| {
        let mut check = |program: &Program| check(program, statistics);
        let results = programs.iter().map(|program| checked(program, &mut check));
        results.enumerate().filter_map(|(at, result)| Some((at, result.err()?))).collect()
    })
}

/// The required contents of programs, and their required outcomes, by every path: without one of
/// these the generator misses what it is for.
const OCCURS: [&str; 34] = [
    "functions with two alias regions",
    "functions for tail calls",
    "functions with parameters on the stack",
    "declared again with a wider linkage",
    "calls from outside with pointers that alias",
    "direct calls",
    "calls with handlers",
    "calls by address",
    "calls through tables",
    "tail calls",
    "comparisons of addresses",
    "comparisons of addresses of data",
    "alignments that are observed",
    "references into data objects",
    "calls with stack maps",
    "functions defined by bytes",
    "interposed functions",
    "interposed data objects",
    "modules of an unknown kind",
    "uses of data objects",
    "uses of memory",
    "kept",
    "redirected",
    "thunks",
    "merged into an earlier flush",
    "merged with extra arguments",
    "parameterised or private bodies",
    "merged data objects",
    "flushes",
    "thunks to an earlier flush",
    "bodies of functions that differ in few instructions",
    "several flushes without a merge cache",
    "last flushes at the end",
    "references to functions of earlier flushes",
];

/// The facts of a function hold wherever it is called, so that a finding is not an error of the
/// front end.
#[test]
fn facts_are_true() {
    finish(&here(0..150, check_facts), &["functions with two alias regions"]);
}

#[test]
fn jit() {
    finish(&here(860..1000, check_jit), &OCCURS);
}

#[test]
fn library() {
    finish(&here(100..220, check_library), &OCCURS);
}

/// A program with a dispatch among callees whose cases are arms: ways that join within ways.
#[test]
fn library_with_ways_within_ways() {
    finish(&here(920_001_063..920_001_064, check_library), &["merged with extra arguments"]);
}

/// Merged as one unit, whose functions arrive in the order of the flushes.
#[test]
fn streaming() {
    let occurs =
        ["redirected", "thunks", "merged with extra arguments", "comparisons of addresses"];
    finish(&here(100..180, check_streaming), &occurs);
}

fn linked(linker: &Linker, seeds: Range<u64>, kinds: &[Kind]) -> Statistics {
    let mut batch = 0;
    run(seeds, 24, 400, &mut |programs, statistics| {
        // A program that is being reduced is linked as it was before.
        batch += usize::from(programs.len() > 1 || batch == 0);
        linker.check(programs, kinds[(batch - 1) % kinds.len()], statistics)
    })
}

#[test]
fn object() {
    let linker = Linker::new(Toolchain::x86_64(), "object");
    let statistics = linked(&linker, 300..420, &[Kind::Static, Kind::Pie]);
    // A JIT has no aliases.
    finish(&statistics, &[&OCCURS[..], &["aliases"]].concat());
}

/// A program in which a function was passed by a symbol that can be interposed, because the
/// function that needs its local name came later.
#[test]
fn object_with_names_that_are_given_late() {
    let linker = Linker::new(Toolchain::x86_64(), "late-names");
    finish(&linked(&linker, 200_309..200_310, &[Kind::Static]), &["merged with extra arguments"]);
}

#[test]
fn interposed() {
    let linker = Linker::new(Toolchain::x86_64(), "interposed");
    finish(&linked(&linker, 300..396, &[Kind::Shared]), &OCCURS);
}

#[test]
fn aarch64() {
    let statistics = linked(
        &Linker::new(Toolchain::aarch64(), "aarch64"),
        80..128,
        &[Kind::Static, Kind::Shared],
    );
    let occurs = [
        "merged into an earlier flush",
        "merged with extra arguments",
        "bodies of functions that differ in few instructions",
    ];
    finish(&statistics, &occurs);
}
