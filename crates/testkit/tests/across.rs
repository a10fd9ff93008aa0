//! Units that are cut into several and planned apart do what they did as one, whatever their
//! sharing maps say.
//!
//! `CLIF_MERGE_RUNS` is how many units each test runs, and how many damaged files the tests of
//! these read.

#[path = "across/hostile.rs"]
mod hostile;

use arbitrary::Unstructured;
use cranelift_mergefunc::across::{ContentAddressing, decide_sharing};
use cranelift_mergefunc::units::{Group, SetDecision};
use cranelift_mergefunc::{Attributes, Options, Policy, Prove, Similar, Target};
use object::{Object, ObjectSymbol};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};
use testkit::across::{Linked, linked_with, map, pieces, random_sets, run, summaries};
use testkit::differential::{Comparison, Tally};
use testkit::generate::function::Profile;
use testkit::generate::opcodes::Machine;
use testkit::host::Level;
use testkit::incremental::{self, Units};
use testkit::isa;
use testkit::link::Linker;
use testkit::support::{Rng, free, long_function, parse_one};
use testkit::tools::{Kind, Toolchain, need};
use testkit::unit::{Member, Unit};

fn runs(usual: u64) -> u64 {
    let runs = std::env::var("CLIF_MERGE_RUNS");
    runs.map_or(usual, |runs| runs.parse().expect("a number"))
}

/// The counts of all units of a test.
#[derive(Debug, Default)]
struct Counts {
    units: usize,
    bodies: usize,
    copies: usize,
    parameterised: usize,
    shared: usize,
    ignored: usize,
}

impl Counts {
    fn add(&mut self, linked: &Linked) {
        self.units += 1;
        self.bodies += linked.bodies;
        self.copies += linked.copies;
        self.parameterised += linked.parameterised;
        self.shared += linked.shared;
        self.ignored += linked.ignored;
    }
}

/// Cuts generated units, makes the maps of the pieces, and compares what they do together with what
/// they did as one.
fn check(
    seeds: std::ops::Range<u64>,
    maps: impl Fn(&[Unit], &mut Rng) -> Vec<Option<Vec<u8>>>,
) -> (Counts, Tally) {
    let (mut counts, mut tally): (Counts, Tally) = Default::default();
    let profile = Profile::runnable(Machine::host());
    let mut waiting: Vec<(u64, Comparison)> = Vec::new();
    for level in [Level::None, Level::Speed] {
        let isa = Machine::host().isa(isa::opt_level(level == Level::Speed));
        for seed in seeds.clone() {
            let mut rng = Rng::new(seed ^ 0xac05 << 40 ^ (level as u64) << 60);
            let bytes = Rng::new(seed).bytes(3000);
            let mut u = Unstructured::new(&bytes);
            let (whole, units) = pieces(&mut u, seed, &profile, &*isa, &mut rng);
            let maps = maps(&units, &mut rng);
            let linked = linked_with(&whole, &units, &maps, Some(&*isa), &mut rng)
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            Counts::add(&mut counts, &linked);
            if linked.bodies == 0 {
                continue;
            }
            waiting.push((seed, linked.compared_with(&whole, seed)));
            if waiting.len() == 50 {
                tally += run(&waiting, level);
                waiting.clear();
            }
        }
        tally += run(&waiting, level);
        waiting.clear();
    }
    eprintln!("{counts:?}; {tally}");
    (counts, tally)
}

/// A body in one unit must not be taken for another unit's that differs.
#[test]
fn units_without_a_map_do_what_they_did_as_one() {
    let (counts, tally) = check(0..runs(150), |units, _| vec![None; units.len()]);
    assert!(counts.bodies > 500 && counts.copies > 150, "{counts:?}");
    assert!(tally.returned > 1000 && tally.trapped > 100, "{tally}");
}

/// A body that gets extra arguments must get those of the function whose code it runs, in every
/// unit.
#[test]
fn units_with_a_map_do_what_they_did_as_one() {
    let (counts, tally) = check(1000..1000 + runs(150), |units, rng| {
        let policy = rng.choose(&[Policy::Off, Policy::Balanced, Policy::Size, Policy::Size]);
        let bytes = map(&summaries(units), &mut |group| decide_sharing(group, policy));
        vec![Some(bytes); units.len()]
    });
    assert!(counts.shared > 250 && counts.copies > 60, "{counts:?}");
    assert!(tally.returned > 1000, "{tally}");
}

/// A map is not trusted: sets of anything with any parameters cost bytes, and nothing else.
#[test]
fn maps_that_say_anything_change_nothing() {
    let (counts, tally) = check(2000..2000 + runs(200), |units, rng| {
        let summaries = summaries(units);
        match rng.below(3) {
            // Each unit has another one.
            0 => units
                .iter()
                .map(|_| Some(map(&summaries, &mut |group| random_sets(group, rng))))
                .collect(),
            _ => {
                let bytes = map(&summaries, &mut |group| random_sets(group, rng));
                vec![Some(bytes); units.len()]
            }
        }
    });
    assert!(counts.shared > 250 && counts.copies > 60, "{counts:?}");
    assert!(counts.ignored > 10 && tally.returned > 1000, "{counts:?} {tally}");
}

/// Extra arguments that shared code passes to the body of a thunk by itself would be taken for the
/// caller's, if the caller passes more arguments than the function has.
#[test]
fn a_call_with_more_arguments_than_the_function_has_does_what_it_did() {
    let function = |symbol: u32, header: &str, first: &str| {
        let text = long_function(&format!("u0:{symbol}"), header, &format!("v1 = {first}"));
        // The first is a thunk in any case.
        let attributes = Attributes { externally_called: symbol == 0, ..free() };
        Member { attributes, body: parse_one(&text) }
    };
    let more = "    fn0 = u0:0(i64, i64) -> i64 system_v\n";
    let functions = [
        function(0, "", "iconst.i64 1000001"),
        function(1, "", "iconst.i64 2000002"),
        function(2, more, "call fn0(v0, v0)"),
    ];
    for level in [Level::None, Level::Speed] {
        let isa = Machine::host().isa(isa::opt_level(level == Level::Speed));
        let options = Options {
            target: Target::of(&*isa),
            prove: Prove::Always,
            content_addressing: Some(ContentAddressing::of(&*isa)),
            similar: Similar { policy: Policy::Size, ..Similar::default() },
            ..Options::default()
        };
        let unit = Unit { functions: functions.to_vec(), data: Vec::new(), options };
        let units = std::slice::from_ref(&unit);
        let linked = linked_with(&unit, units, &[None], Some(&*isa), &mut Rng::new(0));
        let linked = linked.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(linked.parameterised, 1);
        let tally = run(&[(0, linked.compared_with(&unit, 0))], level);
        assert!(tally.returned > 0, "{tally}");
    }
}

/// The map of each unit of a program, whose symbols have a prefix, for a target: its bytes, if the
/// unit has one.
type Maps<'a> = dyn Fn(&incremental::Program, &str, &str, &mut Rng) -> Vec<Option<Vec<u8>>> + 'a;

/// One map for all units, made from the units as they are.
fn one_map(
    program: &incremental::Program,
    prefix: &str,
    triple: &str,
    decide: &mut dyn FnMut(&Group<'_>) -> Vec<SetDecision>,
) -> Vec<Option<Vec<u8>>> {
    vec![Some(Units::map(program, prefix, triple, decide)); program.flushes.len()]
}

/// Programs whose flushes are units: each with the prefix of its symbols, and its objects.
type Compiled<'a> = Vec<(String, Units<'a>)>;

/// Compiles programs. Also returns how many bodies are in two objects, or more.
fn compiled<'a>(
    programs: &'a [incremental::Program],
    triple: &str,
    maps: &Maps<'_>,
    rng: &mut Rng,
) -> (Compiled<'a>, usize) {
    let units: Compiled<'_> = programs
        .iter()
        .enumerate()
        .map(|(at, program)| {
            let prefix = format!("p{at}_");
            let maps = maps(program, &prefix, triple, rng);
            let compile = AssertUnwindSafe(|| Units::new(program, &prefix, triple, &maps));
            let units = catch_unwind(compile).unwrap_or_else(|panic| {
                eprintln!("{}", incremental::print(program));
                resume_unwind(panic)
            });
            (prefix, units)
        })
        .collect();
    let (mut seen, mut shared) = (HashSet::new(), 0);
    for object in units.iter().flat_map(|(_, units)| &units.merged) {
        let file = object::File::parse(&**object).expect("an object");
        for symbol in file.symbols().filter(|symbol| symbol.is_definition()) {
            let name = symbol.name().expect("a name");
            if name.starts_with("content.") && !seen.insert(name.to_owned()) {
                shared += 1;
            }
        }
    }
    (units, shared)
}

/// Links programs with these flags, runs them, and compares them with what plain objects do.
fn check_linking(linker: &Linker, units: &Compiled<'_>, kind: Kind, flags: &[&str]) {
    let references: Vec<(String, &Units<'_>)> =
        units.iter().map(|(prefix, units)| (prefix.clone(), units)).collect();
    if let Err(first) = linker.check_units(&references, kind, flags) {
        for one in &references {
            let one = std::slice::from_ref(one);
            if let Err(error) = linker.check_units(one, kind, flags) {
                let text = incremental::print(one[0].1.program);
                panic!("{kind:?} {flags:?}: {error}\n{text}");
            }
        }
        panic!("{kind:?} {flags:?}, all together: {first}");
    }
}

/// The flags that select a linker.
fn linkers() -> [Vec<String>; 2] {
    let directory = format!("-B{}", need("ld.lld").display());
    [vec!["-fuse-ld=bfd".to_owned()], vec!["-fuse-ld=lld".to_owned(), directory]]
}

/// Programs whose flushes are units, linked by real linkers, as programs and as libraries of which
/// the program interposes some functions: they behave as plain objects do.
fn check_linked(tools: Toolchain, seeds: std::ops::Range<u64>, maps: &Maps<'_>) -> usize {
    let mut programs: Vec<incremental::Program> = Vec::new();
    let mut rng = Rng::new(seeds.start);
    for seed in seeds {
        let bytes = Rng::new(seed).bytes(4000);
        let program = incremental::program(&mut Unstructured::new(&bytes)).expect("enough bytes");
        if program.flushes.len() > 1 {
            let exported = rng.choose(&[2, 4]);
            let own = incremental::apart(&program, exported, &mut rng);
            // Contracts are those of the program as it was drawn.
            programs.push(own);
        }
    }
    let linker = Linker::new(tools, "units");
    let mut all = 0;
    for programs in programs.chunks(20) {
        let (units, shared) = compiled(programs, tools.triple, maps, &mut rng);
        all += shared;
        for kind in [Kind::Pie, Kind::Shared] {
            for flags in linkers() {
                let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
                check_linking(&linker, &units, kind, &flags);
            }
        }
    }
    eprintln!("{}: {} programs, {all} copies", tools.triple, programs.len());
    all
}

/// A copy of a body that another object has must behave equally there, also where symbols are
/// interposed.
#[test]
fn linked_units_without_a_map_do_what_plain_objects_do() {
    for (tools, usual) in [(Toolchain::x86_64(), 80), (Toolchain::aarch64(), 40)] {
        let no_maps = |program: &incremental::Program, _: &str, _: &str, _: &mut Rng| {
            vec![None; program.flushes.len()]
        };
        let shared = check_linked(tools, 0..runs(usual), &no_maps);
        assert!(shared > 10, "{shared}");
    }
}

#[test]
fn linked_units_with_a_map_do_what_plain_objects_do() {
    for (tools, usual) in [(Toolchain::x86_64(), 80), (Toolchain::aarch64(), 40)] {
        let maps = |program: &incremental::Program, prefix: &str, triple: &str, _: &mut Rng| {
            one_map(program, prefix, triple, &mut |group| decide_sharing(group, Policy::Size))
        };
        let shared = check_linked(tools, 500..500 + runs(usual), &maps);
        assert!(shared > 10, "{shared}");
    }
}

#[test]
fn linked_units_with_maps_that_say_anything_do_what_plain_objects_do() {
    for (tools, usual) in [(Toolchain::x86_64(), 80), (Toolchain::aarch64(), 40)] {
        let maps = |program: &incremental::Program, prefix: &str, triple: &str, rng: &mut Rng| {
            one_map(program, prefix, triple, &mut |group| random_sets(group, rng))
        };
        let shared = check_linked(tools, 900..900 + runs(usual), &maps);
        assert!(shared > 4, "{shared}");
    }
}

/// Maps for a program: right ones, those that were right before some functions changed, ones that
/// say anything, or one for each unit, or none.
fn any_maps(
    program: &incremental::Program,
    prefix: &str,
    triple: &str,
    rng: &mut Rng,
) -> Vec<Option<Vec<u8>>> {
    let policy = rng.choose(&[Policy::Off, Policy::Balanced, Policy::Size, Policy::Size]);
    let one = |rng: &mut Rng| match rng.below(8) {
        0 => None,
        1 => Some(Units::map(program, prefix, triple, &mut |group| random_sets(group, rng))),
        2 | 3 => {
            let before = incremental::before_changes(program, rng);
            let mut decide = |group: &Group<'_>| decide_sharing(group, policy);
            Some(Units::map(&before, prefix, triple, &mut decide))
        }
        _ => Some(Units::map(program, prefix, triple, &mut |group| decide_sharing(group, policy))),
    };
    match rng.one_in(6) {
        true => program.flushes.iter().map(|_| one(rng)).collect(),
        false => vec![one(rng); program.flushes.len()],
    }
}

/// A function that shares a body passes its callee, which may share the body as well, or equal a
/// function that does: it must keep code whatever the order in which that is decided.
/// `CLIF_MERGE_SECONDS` is for how long programs are drawn, in place of a number of them.
#[test]
fn linked_units_of_functions_that_call_each_other_do_what_plain_objects_do() {
    /// How many are linked together.
    const TOGETHER: u64 = 40;
    let seconds = std::env::var("CLIF_MERGE_SECONDS");
    let seconds = seconds.ok().map(|seconds| seconds.parse().expect("a number"));
    let start = Instant::now();
    let tools = [Toolchain::x86_64(), Toolchain::aarch64()];
    let linker = tools.map(|tools| Linker::new(tools, "rows"));
    let ways: Vec<(Kind, Vec<String>)> = [Kind::Static, Kind::Shared, Kind::Pie]
        .into_iter()
        .flat_map(|kind| linkers().map(|flags| (kind, flags)))
        .collect();
    let chunks = runs(240).div_ceil(TOGETHER);
    let mut rng = Rng::new(5000);
    let (mut programs, mut shared) = (0, 0);
    for chunk in 0.. {
        let is_over = match seconds {
            Some(seconds) => start.elapsed() >= Duration::from_secs(seconds),
            None => chunk >= chunks,
        };
        if is_over {
            break;
        }
        let drawn: Vec<incremental::Program> = (0..TOGETHER)
            .map(|at| {
                let bytes = Rng::new(5000 + chunk * TOGETHER + at).bytes(6000);
                let program = incremental::program_of_units(&mut Unstructured::new(&bytes));
                let exported = rng.choose(&[4, 16, 64]);
                incremental::apart(&program.expect("enough bytes"), exported, &mut rng)
            })
            .collect();
        let target = (chunk % 2) as usize;
        let (units, own) = compiled(&drawn, tools[target].triple, &any_maps, &mut rng);
        let (kind, flags) = &ways[(chunk / 2) as usize % ways.len()];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        check_linking(&linker[target], &units, *kind, &flags);
        (programs, shared) = (programs + drawn.len(), shared + own);
    }
    eprintln!("{programs} programs, {shared} copies, {:?}", start.elapsed());
    assert!(shared > programs / 3, "{shared} copies in {programs} programs");
}
