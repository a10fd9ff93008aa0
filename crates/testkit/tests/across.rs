//! Units that are cut into several and planned apart do what they did as one, whatever their sharing maps say.
//!
//! `CLIF_MERGE_RUNS` is how many units each test runs, and how many damaged files the tests of these read.

#[path = "across/hostile.rs"]
mod hostile;

use arbitrary::Unstructured;
use cranelift_mergefunc::{
    Attributes, ContentAddressing, Group, Options, Policy, Prove, SetDecision, Similar, Target,
    decide_sharing,
};
use object::{Object, ObjectSymbol};
use std::collections::HashSet;
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

/// What all units of a test did.
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

/// Cuts generated units, makes the maps of the pieces, and compares what they do together with what they did as one.
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
            let linked = linked_with(&whole, &units, &maps, &*isa, &mut rng)
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

/// A body that gets extra arguments must get those of the function whose code it runs, in every unit.
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

/// Extra arguments that shared code passes to the body of a thunk by itself would be taken for the caller's, if the caller passes
/// more arguments than the function has.
#[test]
fn a_call_with_more_arguments_than_the_function_has_does_what_it_did() {
    let function = |symbol: u32, header: &str, first: &str| {
        let text = long_function(&format!("u0:{symbol}"), header, &format!("v1 = {first}"));
        // The first is a thunk in any case.
        let attributes = Attributes { externally_called: symbol == 0, ..free() };
        Member { attributes, body: parse_one(&text) }
    };
    let more = "    fn0 = u0:0(i64, i64) -> i64 system_v\n";
    let functions = vec![
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
        let (functions, code_size) = (functions.clone(), Some(400));
        let unit = Unit { functions, data: Vec::new(), options, code_size };
        let units = std::slice::from_ref(&unit);
        let linked = linked_with(&unit, units, &[None], &*isa, &mut Rng::new(0));
        let linked = linked.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(linked.parameterised, 1);
        let tally = run(&[(0, linked.compared_with(&unit, 0))], level);
        assert!(tally.returned > 0, "{tally}");
    }
}

/// Which functions of a shape share bodies.
type Decide<'a> = dyn Fn(&Group<'_>, &mut Rng) -> Vec<SetDecision> + 'a;

/// Programs whose flushes are units, linked by real linkers, as programs and as libraries of which the program
/// interposes some functions: the same as plain objects do. `decide` is for maps.
fn check_linked(
    tools: Toolchain,
    seeds: std::ops::Range<u64>,
    decide: Option<&Decide<'_>>,
) -> usize {
    let mut programs: Vec<incremental::Program> = Vec::new();
    let mut rng = Rng::new(seeds.start);
    for seed in seeds {
        let bytes = Rng::new(seed).bytes(4000);
        let program = incremental::program(&mut Unstructured::new(&bytes)).expect("enough bytes");
        if program.flushes.len() > 1 {
            let own = incremental::apart(&program, &mut rng);
            // Contracts are those of the program as it was drawn.
            programs.push(own);
        }
    }
    let linker = Linker::new(tools, "units");
    let mut shared = 0;
    for programs in programs.chunks(20) {
        let units: Vec<(String, Units<'_>)> = programs
            .iter()
            .enumerate()
            .map(|(at, program)| {
                let prefix = format!("p{at}_");
                let map = decide.map(|decide| {
                    Units::map(program, &prefix, tools.triple, &mut |group| decide(group, &mut rng))
                });
                let units = Units::new(program, &prefix, tools.triple, map.as_deref());
                (prefix, units)
            })
            .collect();
        let mut seen = HashSet::new();
        for object in units.iter().flat_map(|(_, units)| &units.merged) {
            let file = object::File::parse(&**object).expect("an object");
            for symbol in file.symbols().filter(|symbol| symbol.is_definition()) {
                let name = symbol.name().expect("a name");
                if name.starts_with("content.") && !seen.insert(name.to_owned()) {
                    shared += 1;
                }
            }
        }
        let directory = format!("-B{}", need("ld.lld").display());
        let references: Vec<(String, &Units<'_>)> =
            units.iter().map(|(prefix, units)| (prefix.clone(), units)).collect();
        for kind in [Kind::Pie, Kind::Shared] {
            for flags in [&["-fuse-ld=bfd"][..], &["-fuse-ld=lld", &directory]] {
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
        }
    }
    eprintln!("{}: {} programs, {shared} copies", tools.triple, programs.len());
    shared
}

/// A copy of a body that another object has must do the same there, also where symbols are interposed.
#[test]
fn linked_units_without_a_map_do_what_plain_objects_do() {
    for (tools, usual) in [(Toolchain::x86_64(), 80), (Toolchain::aarch64(), 40)] {
        let shared = check_linked(tools, 0..runs(usual), None);
        assert!(shared > 10, "{shared}");
    }
}

#[test]
fn linked_units_with_a_map_do_what_plain_objects_do() {
    for (tools, usual) in [(Toolchain::x86_64(), 80), (Toolchain::aarch64(), 40)] {
        let policy = |group: &Group<'_>, _: &mut Rng| decide_sharing(group, Policy::Size);
        let shared = check_linked(tools, 500..500 + runs(usual), Some(&policy));
        assert!(shared > 10, "{shared}");
    }
}

#[test]
fn linked_units_with_maps_that_say_anything_do_what_plain_objects_do() {
    for (tools, usual) in [(Toolchain::x86_64(), 80), (Toolchain::aarch64(), 40)] {
        let shared = check_linked(tools, 900..900 + runs(usual), Some(&random_sets));
        assert!(shared > 4, "{shared}");
    }
}
