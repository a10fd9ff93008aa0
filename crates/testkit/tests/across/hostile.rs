//! Sharing maps and summaries that are made up, of other units or damaged: an error, or bytes, and
//! nothing else.
//!
//! The formats have tests next to them (`crates/units/src/tests.rs`): that all damage is found
//! where checksums are not changed, and that no more is read or allocated than there is. Here is
//! what comes of a file that is accepted: maps are planned with, and decisions are made of
//! summaries.

use super::runs;
use arbitrary::Unstructured;
use cranelift_mergefunc::Policy;
use cranelift_mergefunc::across::decide_sharing;
use cranelift_mergefunc::units::{Outputs, SharingMap, Summaries, combine, merge_summaries};
use std::collections::{BTreeMap, BTreeSet};
use testkit::across::{
    damaged_summaries, hostile_map, linked_with, map, pieces, run, summaries, with_map,
};
use testkit::differential::{Comparison, Tally};
use testkit::generate::function::Profile;
use testkit::generate::opcodes::Machine;
use testkit::host::Level;
use testkit::program::Parts;
use testkit::support::Rng;
use testkit::unit::Unit;

/// A small unit that can be run, and its pieces.
fn small_pieces(seed: u64, rng: &mut Rng) -> (Unit, Vec<Unit>) {
    let runnable = Profile::runnable(Machine::host());
    let profile = match rng.one_in(4) {
        true => runnable,
        false => Profile { patchable: false, inside: false, ..Profile::small() },
    };
    let len = rng.choose(&[120, 200, 200, 400]);
    let bytes = rng.bytes(len);
    let isa = Machine::host().isa("none");
    pieces(&mut Unstructured::new(&bytes), seed, &profile, &*isa, rng)
}

/// Programs of units with hostile maps, which are to be run.
#[derive(Default)]
struct Waiting {
    comparisons: Vec<(u64, Comparison)>,
    bodies: usize,
    tally: Tally,
}

impl Waiting {
    fn add(&mut self, seed: u64, whole: &Unit, units: &[Unit], maps: &[Option<Vec<u8>>]) {
        let isa = Machine::host().isa("none");
        let linked = linked_with(whole, units, maps, Some(&*isa), &mut Rng::new(seed));
        let linked = linked.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        self.bodies += linked.parameterised;
        self.comparisons.push((seed, linked.compared_with(whole, seed)));
        if self.comparisons.len() == 50 {
            self.run();
        }
    }

    fn run(&mut self) {
        self.tally += run(&self.comparisons, Level::None);
        self.comparisons.clear();
    }
}

/// The counts of units with maps.
#[derive(Debug, Default)]
struct Planned {
    /// Maps that could not be opened.
    refused: usize,
    /// Those with which a plan was proved.
    proved: usize,
    /// Of these, those with which functions share bodies.
    followed: usize,
    /// Those of which something did not fit.
    ignored: usize,
    /// Those that change nothing, as far as counters say.
    without_effect: usize,
}

impl Planned {
    /// Plans a unit with a map, unless it cannot be opened.
    fn plan(&mut self, seed: u64, unit: &Unit, map: &[u8]) {
        let Ok(map) = SharingMap::open(map) else {
            self.refused += 1;
            return;
        };
        let options = with_map(unit.options, Some(&map));
        let plan = Parts { options: &options, ..Parts::from(unit) }.plan();
        match plan.proof() {
            Some(Ok(_)) => self.proved += 1,
            Some(Err(refutation)) => panic!("seed {seed}: {refutation}"),
            None => panic!("seed {seed}: nothing was proved"),
        }
        let stats = plan.stats();
        self.followed += usize::from(stats.shared_functions > 0);
        self.ignored += usize::from(stats.shared_ignored > 0);
        self.without_effect += usize::from(stats.shared_functions + stats.shared_ignored == 0);
    }
}

/// Whatever a map says, and whatever was made of its bytes: it is refused when it is opened, or
/// every merge of a unit that is planned with it is proved, and what is linked of such units does
/// what the program did.
#[test]
fn hostile_maps_are_refused_or_every_merge_is_proved() {
    /// For each program.
    const MAPS: u64 = 32;
    let mut planned = Planned::default();
    let mut waiting = Waiting::default();
    let mut other = map(&[], &mut |_| Vec::new());
    for seed in 0..runs(10_000).div_ceil(MAPS) {
        let mut rng = Rng::new(seed ^ 0x5e75 << 40);
        let (whole, units) = small_pieces(seed, &mut rng);
        let summaries = summaries(&units);
        let mut maps = Vec::new();
        for _ in 0..MAPS {
            let map = hostile_map(&summaries, &other, &mut rng);
            planned.plan(seed, &units[rng.below(units.len())], &map);
            maps.push(Some(map));
        }
        maps.truncate(units.len());
        waiting.add(seed, &whole, &units, &maps);
        other = map(&summaries, &mut |group| decide_sharing(group, Policy::Size));
    }
    waiting.run();
    let Waiting { bodies, tally, .. } = waiting;
    eprintln!("{planned:?}, {bodies} bodies; {tally}");
    let Planned { refused, proved, followed, ignored, without_effect: _ } = planned;
    assert!(refused > 500 && proved > 5000 && followed > 1500 && ignored > 700, "{planned:?}");
    assert!(bodies > 100 && tally.returned > 1000, "{bodies} {tally}");
}

/// Combining damaged summaries is an error, or makes maps that can be read and are as harmless as
/// any other.
#[test]
fn damaged_summaries_are_errors_or_give_harmless_maps() {
    /// For each program.
    const FILES: u64 = 50;
    let mut planned = Planned::default();
    let mut waiting = Waiting::default();
    let (mut combined, mut errors) = (0, BTreeMap::<String, usize>::new());
    for seed in 0..runs(6_000).div_ceil(FILES) {
        let mut rng = Rng::new(seed ^ 0xda4a << 40);
        let (whole, units) = small_pieces(seed, &mut rng);
        let summaries = summaries(&units);
        let mut last = None;
        for _ in 0..FILES {
            let files = damaged_summaries(&summaries, &mut rng);
            match combine_all(&files, &mut rng) {
                Ok((map, parts)) => {
                    combined += 1;
                    let unit = rng.below(units.len());
                    let part = parts.get(&format!("unit {unit}")).unwrap_or(&map);
                    if combined % 2 == 0 {
                        planned.plan(seed, &units[unit], rng.choose(&[&map, part]));
                    }
                    last = Some(map);
                }
                Err(error) => {
                    let kind = error.replace(|c: char| c.is_ascii_digit(), "");
                    *errors.entry(kind).or_default() += 1;
                }
            }
        }
        waiting.add(seed, &whole, &units, &vec![last; units.len()]);
    }
    waiting.run();
    let Waiting { bodies, tally, .. } = waiting;
    eprintln!("{combined} combined, {planned:?}, {bodies} bodies; {tally}; {errors:#?}");
    assert!(combined > 1500 && errors.values().sum::<usize>() > 1500 && errors.len() > 8);
    // A combined map can be opened.
    assert!(planned.refused == 0 && planned.followed > 300, "{planned:?}");
    assert!(bodies > 50 && tally.returned > 500, "{bodies} {tally}");
}

/// A map, and the part for each unit.
type Combined = (Vec<u8>, BTreeMap<String, Vec<u8>>);

/// Combines files of summaries, some of which are merged before.
fn combine_all(files: &[Vec<u8>], rng: &mut Rng) -> Result<Combined, String> {
    let open = |bytes| Summaries::open(bytes).map_err(|error| error.to_string());
    let mut opened = files.iter().map(|file| open(file)).collect::<Result<Vec<_>, _>>()?;
    let mut merged = Vec::new();
    if rng.one_in(3) {
        let of = 1 + rng.below(opened.len());
        let rest = opened.split_off(of);
        let mut write = |bytes: &[u8]| {
            merged.extend_from_slice(bytes);
            Ok(())
        };
        merge_summaries(&opened, &mut write).map_err(|error| error.to_string())?;
        opened = rest;
        opened.push(Summaries::open(&merged).expect("what was merged can be opened"));
    }
    let policy = rng.choose(&[Policy::Off, Policy::Balanced, Policy::Size, Policy::Size]);
    let (mut map, mut parts) = (Vec::new(), BTreeMap::<String, Vec<u8>>::new());
    let mut write_map = |bytes: &[u8]| {
        map.extend_from_slice(bytes);
        Ok(())
    };
    let mut write_part = |unit: &str, bytes: &[u8]| {
        parts.entry(unit.into()).or_default().extend_from_slice(bytes);
        Ok(())
    };
    let mut outputs = Outputs { map: Some(&mut write_map), parts: Some(&mut write_part) };
    let mut decide = |group: &cranelift_mergefunc::units::Group<'_>| {
        // Names are for reports. They are read later than all else.
        let names: BTreeSet<_> =
            group.rows.iter().filter_map(|row| group.symbol(row).ok()).collect();
        assert!(names.len() <= group.rows.len());
        decide_sharing(group, policy)
    };
    combine(&opened, &mut decide, &mut outputs).map_err(|error| error.to_string())?;
    for bytes in parts.values().chain([&map]) {
        let map = SharingMap::open(bytes).expect("what was combined can be opened");
        for at in 0..map.len() {
            map.shape(at).expect("what was combined can be read");
        }
    }
    Ok((map, parts))
}
