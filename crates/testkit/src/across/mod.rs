//! Merging across units without a linker: a unit is cut into several, each is planned without the
//! others, and of the content-addressed bodies of one digest any one is kept.
//!
//! The linked program is a [`Program`] that a host can run and compare with the unit that was not
//! cut. All copies of a body are compiled and compared as well. No map may change what a program
//! does: `hostile` has maps and summaries that say anything. Programs of several units that real
//! linkers link are elsewhere (`incremental`).

mod hostile;

use crate::differential::{Comparison, Effort, Tally};
use crate::generate::conventions::{DATA, FUNCTIONS};
use crate::generate::function::Profile;
use crate::generate::opcodes::Machine;
use crate::generate::unit::GeneratedUnit;
use crate::host::{Batch, Cpu, Level};
use crate::isa;
use crate::permute::{Colocated, permuted};
use crate::program::{ADDED, Definition, Parts, Program, WRAPPERS};
use crate::support::Rng;
use crate::unit::Unit;
use arbitrary::{Result as Drawn, Unstructured};
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{
    ExternalName, Function, GlobalValueData, UserExternalName, UserFuncName,
};
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::{Context, FinalizedRelocTarget};
use cranelift_mergefunc::across::{ContentAddressing, ContentDigest, decide_sharing};
use cranelift_mergefunc::thunk::CallThunks;
use cranelift_mergefunc::units::{
    Group, Outputs, SetDecision, SharingMap, Summaries, UnitSummary, combine,
};
use cranelift_mergefunc::{Emit, Linkage, Options, Plan, Policy, Prove};
pub use hostile::{damaged_map, damaged_summaries, hostile_map, random_sets};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The offset of the number of a function or data object for each replica.
const REPLICA: u32 = 1000;

/// A generated unit, and the same in pieces. `seed` and `rng` decide what `u` does not.
pub fn pieces(
    u: &mut Unstructured<'_>,
    seed: u64,
    profile: &Profile,
    isa: &dyn TargetIsa,
    rng: &mut Rng,
) -> (Unit, Vec<Unit>) {
    let profile = if seed.is_multiple_of(3) { profile.differing() } else { *profile };
    let mut unit = GeneratedUnit::draw(u, &profile).disguised(seed).unit;
    unit.options.prove = Prove::Always;
    unit.options.interposition = rng.one_in(2);
    if rng.one_in(2) {
        unit.options.target.call_thunks = Some(CallThunks { tail_calls: true, colocated: true });
    }
    let count = 2 + rng.below(3);
    unit = replicated(&unit, 1 + rng.below(count) as u32, rng);
    let pieces = cut(&unit, count, isa, rng);
    (unit, pieces)
}

/// A unit with replicas of all that it has. A replica refers to its own functions and data objects,
/// or to those of the unit.
pub fn replicated(unit: &Unit, replicas: u32, rng: &mut Rng) -> Unit {
    let mut all = unit.clone();
    for replica in 1..=replicas {
        let own = |symbol: &UserExternalName| match symbol.namespace {
            FUNCTIONS | DATA => {
                UserExternalName { index: symbol.index + replica * REPLICA, ..*symbol }
            }
            _ => symbol.clone(),
        };
        // Most functions of most replicas are equal only if what they refer to is.
        let few = rng.choose(&[2, 8, 1000]);
        for member in &unit.functions {
            let mut member = member.clone();
            member.body.name = UserFuncName::User(own(&member.symbol()));
            let names: Vec<_> = member.body.params.user_named_funcs().keys().collect();
            for name in names {
                if rng.but_one_in(few) {
                    let symbol = own(&member.body.params.user_named_funcs()[name]);
                    member.body.params.reset_user_func_name(name, symbol);
                }
            }
            member.body = permuted(&member.body, Colocated::Keep, rng.word());
            all.functions.push(member);
        }
        for member in &unit.data {
            let mut member = member.clone();
            member.symbol = own(&member.symbol);
            for reloc in &mut member.object.relocations {
                reloc.target = own(&reloc.target);
            }
            all.data.push(member);
        }
    }
    all
}

/// A unit in `count` pieces, each with some of its functions and data objects, planned with content
/// addressing for `isa`. Symbols that another piece refers to are visible to it. Most of a replica
/// is in one piece.
pub fn cut(unit: &Unit, count: usize, isa: &dyn TargetIsa, rng: &mut Rng) -> Vec<Unit> {
    let functions = unit.functions.iter().map(|member| member.symbol());
    let symbols = functions.chain(unit.data.iter().map(|member| member.symbol.clone()));
    let stray = rng.choose(&[3, 20, 1000]);
    let mut place = |symbol: UserExternalName| match rng.one_in(stray) {
        true => (symbol, rng.below(count)),
        false => {
            let piece = (symbol.index / REPLICA) as usize % count;
            (symbol, piece)
        }
    };
    let place: HashMap<UserExternalName, usize> = symbols.map(&mut place).collect();
    // From another piece: symbols, and symbols of which a place within is pointed to.
    let (mut visible, mut inside) = (HashSet::new(), HashSet::new());
    let mut refer = |from: &UserExternalName, to: &UserExternalName, offset: i64| {
        if place.get(to).is_some_and(|at| *at != place[from]) {
            visible.insert(to.clone());
            if offset != 0 && to.namespace == FUNCTIONS {
                inside.insert(to.clone());
            }
        }
    };
    for member in &unit.functions {
        let own = member.symbol();
        member.references().for_each(|to| refer(&own, &to, 0));
        for data in member.body.global_values.values() {
            if let GlobalValueData::Symbol { name: ExternalName::User(name), offset, .. } = data {
                let to = &member.body.params.user_named_funcs()[*name];
                refer(&own, to, offset.bits());
            }
        }
    }
    for member in &unit.data {
        for reloc in &member.object.relocations {
            refer(&member.symbol, &reloc.target, reloc.addend);
        }
    }
    let seen = |symbol: &UserExternalName, linkage: &mut Linkage| {
        if visible.contains(symbol) && *linkage == Linkage::Local {
            *linkage = Linkage::Hidden;
        }
    };
    let mut content = ContentAddressing::of(isa);
    content.smallest_gain = rng.choose(&[0, 0, 16]);
    let options = Options { merge_limit: None, content_addressing: Some(content), ..unit.options };
    let empty = Unit { functions: Vec::new(), data: Vec::new(), options };
    let mut units = vec![empty; count];
    for member in &unit.functions {
        let (mut member, symbol) = (member.clone(), member.symbol());
        seen(&symbol, &mut member.attributes.linkage);
        member.attributes.pinned |= inside.contains(&symbol);
        units[place[&symbol]].functions.push(member);
    }
    for member in &unit.data {
        let mut member = member.clone();
        seen(&member.symbol, &mut member.attributes.linkage);
        units[place[&member.symbol]].data.push(member);
    }
    units
}

/// The summaries of units.
pub fn summaries(units: &[Unit]) -> Vec<UnitSummary> {
    let summary = |(at, unit): (usize, &Unit)| Parts::from(unit).summarize(format!("unit {at}"));
    units.iter().enumerate().map(summary).collect()
}

/// `options` with a map, where they have content addressing.
pub fn with_map<'a>(options: Options<'a>, sharing_map: Option<&'a SharingMap<'a>>) -> Options<'a> {
    let content = options.content_addressing;
    let content_addressing = content.map(|content| content.with_map(sharing_map));
    Options { content_addressing, ..options }
}

/// The bytes of a sharing map for units of which these are the summaries.
pub fn map(
    summaries: &[UnitSummary],
    decide: &mut dyn FnMut(&Group<'_>) -> Vec<SetDecision>,
) -> Vec<u8> {
    let files: Vec<Vec<u8>> = summaries.iter().map(UnitSummary::to_bytes).collect();
    let opened: Vec<Summaries<'_>> =
        files.iter().map(|file| Summaries::open(file).expect("a summary")).collect();
    let mut bytes = Vec::new();
    let mut write = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    combine(&opened, decide, &mut Outputs { map: Some(&mut write), parts: None }).expect("a map");
    bytes
}

/// Units that were planned apart, as one program.
#[derive(Debug, Default)]
pub struct Linked {
    pub program: Program,
    /// Content-addressed bodies of all units.
    pub bodies: usize,
    /// Those of which another unit has a copy, which are left out.
    pub copies: usize,
    /// Of these, the ones that get extra arguments.
    pub parameterised: usize,
    /// The counts of [`Stats`](cranelift_mergefunc::Stats) about the maps of all units.
    pub shared: usize,
    pub ignored: usize,
}

/// The symbols that a plan adds to a unit of a number begin there.
const SYMBOLS: u32 = 1 << 20;

/// Plans units, each with its map, if there is one, and links them. `whole` is the unit that was
/// cut. All copies of a body must have the same code for `isa`, and the same alignment.
///
/// # Errors
///
/// If a plan cannot be proved, or copies have different code.
///
/// # Panics
///
/// If units cannot be linked.
pub fn linked(
    whole: &Unit,
    units: &[Unit],
    maps: &[Option<&SharingMap<'_>>],
    isa: &dyn TargetIsa,
    rng: &mut Rng,
) -> Result<Linked, String> {
    linked_by(whole, units, maps, Some(isa), rng)
}

/// Links the units. Nothing is asked of the code of copies if there is no `isa`.
fn linked_by(
    whole: &Unit,
    units: &[Unit],
    maps: &[Option<&SharingMap<'_>>],
    isa: Option<&dyn TargetIsa>,
    rng: &mut Rng,
) -> Result<Linked, String> {
    let mut linked = Linked::default();
    let mut copies: BTreeMap<ContentDigest, Vec<(UserExternalName, Function, Option<Code>)>> =
        BTreeMap::new();
    let mut entries = HashMap::new();
    for (at, unit) in units.iter().enumerate() {
        let options = with_map(unit.options, maps[at]);
        let parts = Parts { options: &options, ..Parts::from(unit) };
        let plan = parts.plan_from(at as u32 * SYMBOLS);
        if let Some(Err(refutation)) = plan.proof() {
            return Err(format!("unit {at}: {refutation}"));
        }
        linked.bodies += plan.stats().content_bodies;
        linked.shared += plan.stats().shared_functions;
        linked.ignored += plan.stats().shared_ignored;
        let digests = digests(&plan);
        let mut program = Program::merged(&parts, &plan);
        for entry in &mut program.entries {
            if entry.symbol.namespace == WRAPPERS {
                entry.symbol.index += at as u32 * SYMBOLS;
            }
            entries.insert(entry.function.clone(), entry.clone());
        }
        for (mut symbol, definition) in program.functions {
            if symbol.namespace == WRAPPERS {
                symbol.index += at as u32 * SYMBOLS;
            }
            let Some(digest) = digests.get(&symbol) else {
                if let Definition::Alias(to) = &definition {
                    assert!(!digests.contains_key(to), "{symbol} is in the section of {to}");
                }
                linked.program.functions.push((symbol, definition));
                continue;
            };
            let Definition::Body(body) = definition else {
                panic!("{symbol} is {digest} and has no body");
            };
            let code = isa.map(|isa| {
                let mut code = Code::of(&body, isa, &|to| match digests.get(to) {
                    Some(digest) => digest.to_string(),
                    None => parts.link_name(to).unwrap_or_else(|| format!("{to} of unit {at}")),
                });
                let entry = plan.entry(plan.function(&symbol).expect("of the plan"));
                code.alignment = code.alignment.max(entry.alignment());
                code
            });
            copies.entry(**digest).or_default().push((symbol, *body, code));
        }
        linked.program.data.extend(program.data);
        linked.parameterised += plan
            .new_bodies()
            .iter()
            .filter(|new| new.content_digest().is_some() && new.copy_of().is_none())
            .count();
    }
    for (digest, copies) in copies {
        let (kept, first, code) = copies[rng.below(copies.len())].clone();
        for (symbol, body, other) in copies {
            if code != other {
                return Err(format!("{digest} is\n{first}and\n{body}"));
            }
            let definition = match symbol == kept {
                true => Definition::Body(Box::new(body)),
                false => {
                    linked.copies += 1;
                    Definition::Alias(kept.clone())
                }
            };
            linked.program.functions.push((symbol, definition));
        }
    }
    let symbols = whole.functions.iter().map(|member| member.symbol());
    linked.program.entries = symbols.map(|symbol| entries[&symbol].clone()).collect();
    Ok(linked)
}

/// [`linked`] with maps as bytes. A unit whose map cannot be opened gets none. Without `isa`,
/// nothing is asked of the code of copies: what runs must show that they differ.
///
/// # Errors
///
/// As [`linked`].
pub fn linked_with(
    whole: &Unit,
    units: &[Unit],
    maps: &[Option<Vec<u8>>],
    isa: Option<&dyn TargetIsa>,
    rng: &mut Rng,
) -> Result<Linked, String> {
    let open = |bytes: &'_ Option<Vec<u8>>| SharingMap::open(bytes.clone()?).ok();
    let opened: Vec<Option<SharingMap<'_>>> = maps.iter().map(open).collect();
    let opened: Vec<Option<&SharingMap<'_>>> = opened.iter().map(Option::as_ref).collect();
    linked_by(whole, units, &opened, isa, rng)
}

impl Linked {
    /// The unit that was cut, and this in place of it.
    pub fn compared_with(self, whole: &Unit, seed: u64) -> Comparison {
        let programs = [Program::unmerged(&Parts::from(whole)), self.program];
        Comparison::of(programs, seed, Effort::default())
    }
}

/// Runs both programs of each comparison on this machine, all in one process. Seeds are for
/// reports.
///
/// # Panics
///
/// If anything differs, or a program cannot be compiled.
pub fn run(comparisons: &[(u64, Comparison)], level: Level) -> Tally {
    let mut batch = Batch::new(Cpu::Native);
    for (seed, Comparison { programs, invocations, .. }) in comparisons {
        for side in 0..2 {
            let added = batch.add(level, &programs[side], &invocations[side]);
            added.unwrap_or_else(|error| panic!("{seed}: {error}"));
        }
    }
    let outcomes = batch.run();
    let mut tally = Tally::default();
    for ((seed, comparison), pair) in comparisons.iter().zip(outcomes.chunks(2)) {
        match comparison.judge([&pair[0], &pair[1]]) {
            Ok(one) => tally += one,
            Err(difference) => panic!("seed {seed}: {difference}"),
        }
    }
    tally
}

/// The fuzz target `units`: a unit that is cut, planned with any maps and linked does what it did
/// as one.
///
/// # Errors
///
/// If the input is too short to be of use.
///
/// # Panics
///
/// If it does something else, a plan cannot be proved, or copies of a body have different code.
pub fn check(u: &mut Unstructured<'_>) -> Drawn<Tally> {
    let seed: u64 = u.arbitrary()?;
    let mut rng = Rng::new(seed);
    let level = rng.choose(&[Level::None, Level::Speed]);
    let isa = Machine::host().isa(isa::opt_level(level == Level::Speed));
    let profile = Profile::runnable(Machine::host());
    let (whole, units) = pieces(u, seed, &profile, &*isa, &mut rng);
    let maps = any_maps(&units, &mut rng);
    let linked = match linked_with(&whole, &units, &maps, Some(&*isa), &mut rng) {
        Ok(linked) => linked,
        Err(error) => panic!("{error}"),
    };
    if linked.bodies == 0 {
        return Ok(Tally { idle: 1, ..Tally::default() });
    }
    Ok(run(&[(seed, linked.compared_with(&whole, seed))], level))
}

/// A map for each unit: none, the right one, or any, which may be another one for each.
fn any_maps(units: &[Unit], rng: &mut Rng) -> Vec<Option<Vec<u8>>> {
    let kind = rng.below(6);
    if kind == 0 {
        return vec![None; units.len()];
    }
    let summaries = summaries(units);
    let policy = rng.choose(&[Policy::Off, Policy::Balanced, Policy::Size, Policy::Size]);
    let right = map(&summaries, &mut |group| decide_sharing(group, policy));
    let all = match kind {
        1 | 2 => right,
        3 => hostile_map(&summaries, &right, rng),
        _ => {
            let mut map = || match rng.below(6) {
                0 => None,
                1 | 2 => Some(right.clone()),
                _ => Some(hostile_map(&summaries, &right, rng)),
            };
            return units.iter().map(|_| map()).collect();
        }
    };
    vec![Some(all); units.len()]
}

/// The digest of each symbol that has one.
fn digests(plan: &Plan) -> HashMap<UserExternalName, &ContentDigest> {
    let digest = |output: &cranelift_mergefunc::Output<'_>| match output.emit {
        Emit::NewBody(_) => plan.new_body(output.function)?.content_digest(),
        _ => None,
    };
    plan.outputs()
        .filter_map(|output| {
            assert!(output.symbol.namespace == ADDED || digest(&output).is_none());
            Some((output.symbol.clone(), digest(&output)?))
        })
        .collect()
}

/// The code of a function, and what it refers to by names that mean the same in all units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    bytes: Vec<u8>,
    alignment: u32,
    relocations: Vec<String>,
    traps: Vec<String>,
    calls: Vec<String>,
}

impl Code {
    /// # Panics
    ///
    /// If the function cannot be compiled.
    pub fn of(
        func: &Function,
        isa: &dyn TargetIsa,
        name: &dyn Fn(&UserExternalName) -> String,
    ) -> Code {
        let mut context = Context::for_function(func.clone());
        let code = context.compile(isa, &mut ControlPlane::default());
        let code = code.unwrap_or_else(|error| panic!("{:?}\n{func}", error.inner));
        let relocation = |reloc: &cranelift_codegen::FinalizedMachReloc| {
            let target = match &reloc.target {
                FinalizedRelocTarget::ExternalName(ExternalName::User(to)) => {
                    name(&func.params.user_named_funcs()[*to])
                }
                other => format!("{other:?}"),
            };
            format!("{} {:?} {target} {}", reloc.offset, reloc.kind, reloc.addend)
        };
        let traps = code.buffer.traps().iter().map(|trap| format!("{trap:?}"));
        let calls = code.buffer.call_sites().map(|site| {
            let handlers: Vec<_> = site.exception_handlers.iter().collect();
            format!("{} {:?} {handlers:?}", site.ret_addr, site.frame_offset)
        });
        Code {
            bytes: code.code_buffer().to_vec(),
            alignment: code.buffer.alignment,
            relocations: code.buffer.relocs().iter().map(relocation).collect(),
            traps: traps.collect(),
            calls: calls.collect(),
        }
    }
}
