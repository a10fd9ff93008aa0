//! A unit whose classes are known: seeds, their clones, near misses, and tables of their addresses.
//!
//! Every function belongs to a *group*, whose functions have one signature and can be called
//! instead of each other. Those of a group have one *body* except for references, or are near
//! misses of it. A reference to a group goes to any member, so which functions are equal depends on
//! the members that are called, in recursive cycles too; [`GeneratedUnit::expected`] follows from
//! the bodies, the attributes and the references, by the definition and without a look at the code.
//!
//! Members of one body have the same numbering. [`GeneratedUnit::disguised`] gives each another
//! form.

use crate::generate::conventions::{self, DATA, FUNCTIONS};
use crate::generate::differing::{self, Variant};
use crate::generate::draw::Draw;
use crate::generate::expected::{self, Expected, Node, Reference};
use crate::generate::function::{self, Callees, Profile, Seed, Table, seed_number, signature};
use crate::generate::links::{Links, choose, retarget};
use crate::generate::near_miss::{self, NearMiss};
use crate::generate::weaken::{less_colocated, weaken};
use crate::permute::{Colocated, permuted};
use crate::support::{Rng, free};
use crate::unit::{DataMember, Member, Sizes, Unit};
use arbitrary::Unstructured;
use cranelift_codegen::ir::immediates::Imm64;
use cranelift_codegen::ir::{
    Function, Inst, InstructionData, Opcode, UserExternalName, UserFuncName,
};
use cranelift_mergefunc::data::{Contents, DataAttributes, DataObject, DataReloc};
use cranelift_mergefunc::{
    Addresses, Attributes, Compare, Linkage, Options, Policy, Similar, Target,
};

/// How a function came to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It has the body of its group.
    Clone,
    /// It has the body of its group, but for one change.
    NearMiss {
        /// The instruction and the change.
        what: String,
        /// Whether its meaning certainly differs.
        certain: bool,
    },
    /// It differs from the body of its group in few instructions.
    Variant {
        /// The edits.
        what: Vec<String>,
    },
}

/// The properties of a function of a unit besides its code.
#[derive(Clone, Debug)]
pub struct About {
    /// Its group: functions of one group have one signature and can be called instead of each
    /// other.
    pub group: u32,
    /// The group whose body equals this group's except for constants, if there is one.
    pub similar_to: Option<u32>,
    /// How it came to be.
    pub origin: Origin,
    /// Whether it keeps to the conventions, and so does everything that it may call.
    pub runnable: bool,
}

/// A unit, and what is known of it by construction.
#[derive(Clone, Debug)]
pub struct GeneratedUnit {
    /// The functions, named `u0:N`, and the data objects, named `u4:N`.
    pub unit: Unit,
    /// The properties of each function.
    pub about: Vec<About>,
    /// The known classes of functions.
    pub expected: Expected,
    /// The profile for which it was drawn.
    pub profile: Profile,
}

impl GeneratedUnit {
    /// Draws a unit. Never fails: without bytes it is one small function.
    pub fn draw(bytes: &mut Unstructured<'_>, profile: &Profile) -> GeneratedUnit {
        // A part is kept for what is drawn last: bodies would use up all bytes.
        let kept = bytes.bytes(bytes.len() / 4).unwrap_or_default();
        let mut draw = Draw::new(bytes);
        let (callees, similar) = groups(&mut draw, profile);
        let seeds = seeds(&mut draw, profile, &callees, &similar);
        let mut kept = Unstructured::new(kept);
        let mut draw = Draw::new(&mut kept);
        let mut members = members(&mut draw, profile, &callees, &seeds);
        // Symbols are given in the order of groups, positions are not.
        draw.rng().shuffle(&mut members);
        assemble(&mut draw, profile, &callees, &similar, &seeds, members)
    }

    /// The same unit with every body in another form, to be walked as a whole.
    pub fn disguised(&self, seed: u64) -> GeneratedUnit {
        let mut other = self.clone();
        let mut rng = Rng::new(seed);
        for member in &mut other.unit.functions {
            member.body = permuted(&member.body, Colocated::Keep, rng.word());
        }
        // Permuted forms have other counts.
        other.unit.options.compare.every_function = true;
        other
    }
}

/// Groups of functions and tables, and which group is similar to which.
fn groups(draw: &mut Draw<'_, '_>, profile: &Profile) -> (Callees, Vec<Option<u32>>) {
    let mut callees = Callees::default();
    let mut similar = Vec::new();
    // At times a set: some properties of the last function show only in sets of four and more.
    let is_set = draw.one_in(6);
    let count = if is_set { 4 + draw.below(3) } else { 1 + draw.below(4) };
    let (count, similar_in) = match profile.unit.uniform {
        true => (count + draw.below(3), draw.choose(&[None, Some(2)])),
        false => (count, Some(4)),
    };
    for group in 0..count as u32 {
        let similar_to_any = group > 0 && !is_set && similar_in.is_some_and(|n| draw.one_in(n));
        let base = match group > 0 && is_set {
            true => Some(0),
            false => similar_to_any.then(|| draw.below(group as usize) as u32),
        };
        let same = group > 0 && draw.one_in(4);
        let signature = match base {
            Some(base) => callees.groups[base as usize].clone(),
            None if same => callees.groups[draw.below(group as usize)].clone(),
            None => signature(draw, profile),
        };
        callees.groups.push(signature);
        similar.push(base);
    }
    if profile.unit.tables {
        for _ in 0..draw.below(3) {
            let mut pointer = || draw.below(callees.groups.len()) as u32;
            let pointers = [pointer(), pointer()];
            let pointers = pointers[..1 + draw.below(2)].to_vec();
            let mut rng = draw.rng();
            let bytes = (0..draw.below(24)).map(|_| rng.word() as u8).collect();
            // In the part that is never written, with room behind.
            let memory = draw
                .one_in(2)
                .then(|| i64::from(conventions::READONLY_OFFSET) + 8 * draw.below(100) as i64);
            callees.tables.push(Table { pointers, memory, bytes });
        }
    }
    (callees, similar)
}

/// The bodies of the groups.
fn seeds(
    draw: &mut Draw<'_, '_>,
    profile: &Profile,
    callees: &Callees,
    similar: &[Option<u32>],
) -> Vec<Seed> {
    let mut seeds: Vec<Seed> = Vec::new();
    let together = draw.one_in(3);
    for (group, base) in (0..).zip(similar) {
        let mut seed = match base {
            Some(base) => other_constants(draw, &seeds[*base as usize], *base, group),
            None => function::seed(draw, profile, callees, group),
        };
        if together {
            let is_last = group as usize + 1 == similar.len();
            same_constants(&mut seed, group, is_last.then(|| draw.rng()));
        }
        seeds.push(seed);
    }
    seeds
}

/// Gives a seed the same value at all places of constants, another one in each group. If `one` is
/// given, one place that is drawn from it has a value of its own, so that places agree in all
/// similar groups but one.
fn same_constants(seed: &mut Seed, group: u32, one: Option<Rng>) {
    let entry = seed.func.layout.entry_block().expect("has a body");
    let is_constant = |inst: &Inst| {
        let data = &seed.func.dfg.insts[*inst];
        data.opcode() == Opcode::Iconst && seed.properties.free.contains(inst)
    };
    let places: Vec<Inst> = seed.func.layout.block_insts(entry).filter(is_constant).collect();
    let other = one.filter(|_| !places.is_empty()).map(|mut rng| rng.below(places.len()));
    for (at, &place) in places.iter().enumerate() {
        let value = if other == Some(at) { 32 } else { i64::from(group) + 16 };
        seed.func.dfg.insts[place] =
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm: Imm64::new(value) };
    }
}

/// The seed of another group, with its own number and some other constants.
fn other_constants(draw: &mut Draw<'_, '_>, seed: &Seed, base: u32, group: u32) -> Seed {
    let mut seed = seed.clone();
    let mut rng = draw.rng();
    let entry = seed.func.layout.entry_block().expect("has a body");
    let insts: Vec<_> = seed.func.layout.block_insts(entry).collect();
    let alone = insts.len() == 1;
    for inst in insts {
        match &mut seed.func.dfg.insts[inst] {
            InstructionData::UnaryImm { opcode: _, imm }
                if imm.bits() == seed_number(base) && !seed.properties.free.contains(&inst) =>
            {
                *imm = Imm64::new(seed_number(group));
            }
            InstructionData::UnaryImm { opcode: _, imm }
                if seed.properties.free.contains(&inst) && rng.one_in(2) =>
            {
                *imm = Imm64::new(imm.bits() ^ rng.below(8) as i64);
            }
            InstructionData::Trap { opcode: _, code } if *code == function::trivial_code(base) => {
                *code = function::trivial_code(group);
            }
            // The function has no other instruction: it is the only one without a number of its
            // own.
            data @ InstructionData::MultiAry { opcode: Opcode::Return, .. } if alone => {
                let code = function::trivial_code(group);
                *data = InstructionData::Trap { opcode: Opcode::Trap, code };
            }
            _ => {}
        }
    }
    seed
}

/// A function that is to be in the unit.
struct Chosen {
    group: u32,
    other: Option<OtherBody>,
}

/// The numbers of bodies that state less than others are above this one.
const WEAKENED: u32 = 1000;

/// A function that has not the body of its group.
#[derive(Clone)]
struct OtherBody {
    /// Which of them.
    number: u32,
    func: Function,
    origin: Origin,
    /// Whether its meaning certainly differs.
    certain: bool,
    /// The only instruction that differs, if the others are where they were.
    site: Option<Inst>,
    /// Whether it can be run.
    runs: bool,
}

/// The functions of the unit: clones of each seed, and near misses and variants, some of them more
/// than once.
fn members(
    draw: &mut Draw<'_, '_>,
    profile: &Profile,
    callees: &Callees,
    seeds: &[Seed],
) -> Vec<Chosen> {
    let mut members = Vec::new();
    for (group, seed) in (0..).zip(seeds) {
        let clones = if profile.unit.differing { 2 } else { 4 };
        for _ in 0..1 + draw.below(clones) {
            members.push(Chosen { group, other: None });
        }
        let near_misses = if profile.unit.near_misses { draw.below(4) } else { 0 };
        for number in 1..1 + near_misses as u32 {
            let runs = !profile.static_only || draw.one_in(2);
            let near_miss = match runs {
                true => Some(near_miss::runnable(draw, seed, profile.machine)),
                false => near_miss::any(draw, seed, profile.machine),
            };
            let copies = if draw.one_in(4) { 2 } else { 1 };
            for _ in 0..copies {
                let other = near_miss.clone().map(|NearMiss { what, func, certain, site }| {
                    let origin = Origin::NearMiss { what, certain };
                    OtherBody { number, func, origin, certain, site, runs }
                });
                if other.is_some() {
                    members.push(Chosen { group, other });
                }
            }
        }
        if profile.unit.differing {
            variants(
                draw,
                differing::Group { profile, callees, number: group },
                seed,
                &mut members,
            );
        }
    }
    members
}

/// Functions that differ in few instructions from the body of a group, or from each other.
fn variants(
    draw: &mut Draw<'_, '_>,
    group: differing::Group<'_>,
    seed: &Seed,
    members: &mut Vec<Chosen>,
) {
    let mut seeds = vec![seed.clone()];
    let pointers = draw.one_in(2).then(|| differing::with_pointer(draw, seed)).flatten();
    let mut given: Vec<Variant> = pointers.into_iter().flatten().collect();
    for _ in 0..given.len() + 1 + draw.below(3) {
        let Variant { what, seed } = given.pop().unwrap_or_else(|| {
            // Bodies for two of them are bodies for more in a later round.
            let of = if draw.one_in(3) { draw.below(seeds.len()) } else { 0 };
            differing::variant(draw, group, &seeds[of])
        });
        let other = OtherBody {
            // Near misses have lower numbers.
            number: 100 + seeds.len() as u32,
            func: seed.func.clone(),
            origin: Origin::Variant { what },
            certain: false,
            site: None,
            runs: true,
        };
        seeds.push(seed);
        for _ in 0..if draw.one_in(6) { 2 } else { 1 } {
            members.push(Chosen { group: group.number, other: Some(other.clone()) });
        }
    }
}

fn assemble(
    draw: &mut Draw<'_, '_>,
    profile: &Profile,
    callees: &Callees,
    similar: &[Option<u32>],
    seeds: &[Seed],
    members: Vec<Chosen>,
) -> GeneratedUnit {
    // Functions that keep their bodies, whatever they equal, share no others.
    let style = if profile.unit.differing { draw.choose(&[0, 1, 3, 1, 5]) } else { draw.below(6) };
    let runs = |chosen: &Chosen| (chosen.group, chosen.other.as_ref().map(|other| other.runs));
    let mut links = Links::of(members.iter().map(runs), style, profile.unit.uniform, draw.rng());
    let tables = tables(draw, callees, &mut links);
    let mut functions = Vec::new();
    let mut about = Vec::new();
    let mut nodes = Vec::new();
    for (index, chosen) in (0..).zip(members) {
        let seed = &seeds[chosen.group as usize];
        let OtherBody { mut number, mut func, mut origin, mut certain, mut site, runs } =
            chosen.other.unwrap_or_else(|| OtherBody {
                number: 0,
                func: seed.func.clone(),
                origin: Origin::Clone,
                certain: true,
                site: None,
                runs: true,
            });
        func.name = UserFuncName::user(FUNCTIONS, index);
        let references = retarget(&mut func, &mut links, index, chosen.group);
        less_colocated(&mut func, &mut links.rng);
        if profile.unit.near_misses && links.rng.one_in(16) {
            weaken(&mut func, &mut links.rng);
            origin = Origin::NearMiss { what: "fewer facts".into(), certain: false };
            (number, certain, site) = (WEAKENED + index, false, None);
        }
        let attributes = attributes(draw, style);
        nodes.push(Node {
            body: (chosen.group, number),
            certain,
            site,
            // A near miss may have lost the path to some of the references, such as a handler.
            folds: seed.properties.folds || number != 0,
            key: attributes.key,
            replaceable: attributes.linkage != Linkage::Preemptible && !attributes.no_merge,
            by_address: attributes.addresses == Addresses::Insignificant,
            references,
        });
        functions.push(Member { attributes, body: func });
        about.push(About {
            group: chosen.group,
            similar_to: similar[chosen.group as usize],
            origin,
            runnable: seed.properties.runnable && runs,
        });
    }
    let mut data = Vec::new();
    for (index, (group, other)) in (0..).zip(tables) {
        let table = &callees.tables[group as usize];
        let (member, node) = table_member(draw, table, index, (group, other), &mut links);
        data.push(member);
        nodes.push(node);
    }
    let expected = expected::solve(&nodes, functions.len());
    spread(&mut about, &nodes);
    let mut options = options(draw, profile);
    // Nothing is aligned without sizes.
    let none = if profile.unit.differing { Sizes::Uniform } else { Sizes::Unknown };
    let fitted = match options.similar.policy {
        Policy::Size => Sizes::Uniform,
        Policy::Off | Policy::Balanced => Sizes::Fitted,
    };
    draw.choose(&[Sizes::Uniform, none, fitted]).set(&mut options);
    let unit = Unit { functions, data, options };
    GeneratedUnit { unit, about, expected, profile: *profile }
}

/// How a table differs from the others of its group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Other {
    /// It does not differ, except in what its pointers point to.
    No,
    /// In a byte.
    Contents,
    /// In what is added to a pointer.
    Addend,
}

/// The groups of the tables that there are, and whether each is a near miss.
fn tables(draw: &mut Draw<'_, '_>, callees: &Callees, links: &mut Links) -> Vec<(u32, Other)> {
    let mut tables = Vec::new();
    for (group, table) in (0..).zip(&callees.tables) {
        let members = links.tables.entry(group).or_default();
        for at in 0..1 + draw.below(4) {
            let index = tables.len() as u32;
            // The first is what the group says, so that there is something to refer to.
            let other = match at > 0 && draw.one_in(2) {
                true if table.memory.is_some() && draw.one_in(2) => Other::Addend,
                true => Other::Contents,
                false => Other::No,
            };
            tables.push((group, other));
            match other {
                Other::No => members.clones.push(index),
                Other::Contents | Other::Addend => members.others.push(index),
            }
        }
    }
    tables
}

/// The attributes of a function: of one of six styles, which are the same for all functions of a
/// unit.
pub fn attributes(draw: &mut Draw<'_, '_>, style: usize) -> Attributes {
    const LINKAGES: [Linkage; 6] = [
        Linkage::Local,
        Linkage::Local,
        Linkage::Export,
        Linkage::Hidden,
        Linkage::Preemptible,
        Linkage::Local,
    ];
    match style {
        0 | 1 => free(),
        2 => Attributes { linkage: Linkage::Preemptible, ..Attributes::default() },
        _ => Attributes {
            linkage: draw.choose(&LINKAGES),
            addresses: draw.choose(&[Addresses::Insignificant, Addresses::Significant]),
            address_taken: draw.one_in(8),
            externally_called: draw.one_in(10),
            key: u64::from(draw.one_in(12)),
            alignment: draw.choose(&[1, 16, 1, 64]),
            pinned: draw.one_in(12),
            no_merge: draw.one_in(12),
            hot: draw.one_in(8),
            // Drawn for programs of several flushes (`incremental`).
            identical_only: false,
        },
    }
}

fn data_attributes(draw: &mut Draw<'_, '_>, style: usize) -> DataAttributes {
    let any = style > 1;
    let linkages = [Linkage::Local, Linkage::Export, Linkage::Hidden, Linkage::Export];
    DataAttributes {
        linkage: match any && draw.one_in(8) {
            true => Linkage::Preemptible,
            false if any => draw.choose(&linkages),
            false => Linkage::Local,
        },
        addresses: match any && draw.one_in(4) {
            true => Addresses::Significant,
            false => Addresses::Insignificant,
        },
        writable: any && draw.one_in(8),
        tls: false,
        pinned: any && draw.one_in(12),
        externally_used: any && draw.one_in(12),
        key: 0,
        alignment: draw.choose(&[8, 16, 64]),
    }
}

fn table_member(
    draw: &mut Draw<'_, '_>,
    table: &Table,
    index: u32,
    (group, other): (u32, Other),
    links: &mut Links,
) -> (DataMember, Node) {
    // Pointers are written over what is there.
    let words = 8 * table.words();
    let mut bytes = vec![0; words];
    bytes.extend(&table.bytes);
    if other == Other::Contents {
        match &mut bytes[words..] {
            [] => bytes.push(0),
            bytes => bytes.iter_mut().for_each(|byte| *byte ^= 1),
        }
    }
    let mut relocations = Vec::new();
    let mut references = Vec::new();
    // Half of them are copies, or nearly none would be equal.
    let style = if links.rng.one_in(2) { 0 } else { links.style };
    for (at, pointee) in (0..).zip(&table.pointers) {
        let target = choose(&links.functions[pointee], style, &mut links.rng);
        references.push(Reference {
            data: false,
            index: target,
            called: false,
            address: true,
            patchable: false,
            inside: false,
        });
        let target = UserExternalName::new(FUNCTIONS, target);
        relocations.push(DataReloc { offset: 8 * at, target, addend: 0 });
    }
    if let Some(addend) = table.memory {
        let addend = addend + if other == Other::Addend { 16 } else { 0 };
        let (offset, target) = (8 * table.pointers.len() as u32, conventions::memory_symbol());
        relocations.push(DataReloc { offset, target, addend });
    }
    let attributes = data_attributes(draw, links.style);
    let object = DataObject { contents: Contents::Bytes(bytes), relocations, section: None };
    let node = Node {
        // After all groups of functions.
        body: (1000 + group, other as u32),
        certain: true,
        site: None,
        folds: false,
        key: attributes.key,
        replaceable: false,
        by_address: attributes.by_class(),
        references,
    };
    (DataMember { symbol: UserExternalName::new(DATA, index), attributes, object }, node)
}

/// A function that may call one that cannot be run cannot be run either.
fn spread(about: &mut [About], nodes: &[Node]) {
    let mut runs: Vec<bool> = about.iter().map(|about| about.runnable).collect();
    runs.resize(nodes.len(), true);
    loop {
        let before = runs.clone();
        for (at, node) in nodes.iter().enumerate() {
            let all = node.references.iter().all(|reference| {
                let offset = if reference.data { about.len() } else { 0 };
                before[offset + reference.index as usize]
            });
            runs[at] &= all;
        }
        if runs == before {
            break;
        }
    }
    for (about, runs) in about.iter_mut().zip(runs) {
        about.runnable = runs;
    }
}

fn options(draw: &mut Draw<'_, '_>, profile: &Profile) -> Options<'static> {
    let own = match profile.machine.is_x86() {
        true => Target::x86_64(),
        false => Target::aarch64(false),
    };
    let targets = match profile.static_only {
        true => &[own, Target::generic(), Target::aarch64(false), own, Target::aarch64(true)][..],
        false => &[own][..],
    };
    Options {
        compare: Compare { every_function: draw.one_in(2), ..Compare::default() },
        aliases: draw.one_in(2),
        target: draw.choose(targets),
        merge_limit: draw.one_in(8).then(|| draw.below(6) as u32),
        similar: Similar {
            policy: match profile.unit.differing {
                true => Policy::Size,
                false => draw.choose(&[Policy::Off, Policy::Balanced, Policy::Size, Policy::Size]),
            },
            // Few units have functions that a callee dispatch can choose between.
            callees: draw.choose(&[
                cranelift_mergefunc::Callees::None,
                cranelift_mergefunc::Callees::Dispatch,
                cranelift_mergefunc::Callees::Dispatch,
                cranelift_mergefunc::Callees::Indirect,
            ]),
            instructions: Default::default(),
            keep_symbols: draw.one_in(4),
            integer_registers_only: false,
        },
        ..Options::default()
    }
}
