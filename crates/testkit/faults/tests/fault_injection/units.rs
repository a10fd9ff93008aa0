//! Units that are planned apart: linked, they do what they do as one unit, and what several of them
//! have is the same code.
//!
//! Nothing is proved, and what runs is not compared as code, so that these oracles share nothing.
//! By hand, there are two units for each property that faults need; random ones hardly ever have
//! it.

use crate::oracles::runs_differently_at;
use arbitrary::Unstructured;
use cranelift_mergefunc::fault_injection::{Fault, planted};
use cranelift_mergefunc::{Attributes, Instructions, Linkage, Options, Policy, Prove, Similar, Target};
use cranelift_mergefunc::across::{ContentAddressing, decide_sharing};
use cranelift_mergefunc::thunk::CallThunks;
use std::panic::{AssertUnwindSafe, catch_unwind};
use testkit::across::{linked_with, map, pieces, random_sets, summaries};
use testkit::generate::function::Profile;
use testkit::generate::opcodes::Machine;
use testkit::host::Level;
use testkit::isa;
use testkit::support::{Rng, free, long_function, parse_one};
use testkit::unit::{Member, Unit};

/// How many there are, those by hand first.
pub const COUNT: u64 = 120;

/// Functions by hand: those of one unit, and those of the other.
type Two = [Vec<Member>; 2];

const BY_HAND: [fn() -> Two; 12] = [
    names,
    callees,
    cycles,
    facts,
    alignments,
    near_callees,
    addresses,
    visible,
    exported,
    followers,
    more_arguments,
    rows_that_pass_each_other,
];

/// Whether the pieces of a unit do something else than the unit, or cannot be linked.
pub fn run_otherwise(fault: Option<Fault>, case: u64) -> bool {
    differ(fault, case, false)
}

/// Whether copies of a body have different code.
pub fn copies_differ(fault: Option<Fault>, case: u64) -> bool {
    differ(fault, case, true)
}

fn differ(fault: Option<Fault>, case: u64, only_code: bool) -> bool {
    // Facts are used.
    let isa = Machine::host().isa(isa::opt_level(true));
    let content = ContentAddressing::of(&*isa);
    let mut rng = Rng::new(case);
    let two = BY_HAND.get(case as usize);
    let (whole, mut units) = match two {
        Some(functions) => by_hand(content, functions()),
        None => {
            let bytes = Rng::new(case).bytes(3000);
            let profile = Profile::runnable(Machine::host());
            pieces(&mut Unstructured::new(&bytes), case, &profile, &*isa, &mut rng)
        }
    };
    for unit in &mut units {
        unit.options.prove = Prove::Never;
    }
    let linked = || {
        let kind = match two {
            // Without a map, all that can be is addressed by content.
            Some(_) => u64::from(case + 1 == BY_HAND.len() as u64),
            None => case % 3,
        };
        let bytes = (kind > 0).then(|| {
            map(&summaries(&units), &mut |group| match kind {
                1 => decide_sharing(group, Policy::Size),
                _ => random_sets(group, &mut rng),
            })
        });
        let maps = vec![bytes; units.len()];
        linked_with(&whole, &units, &maps, only_code.then_some(&*isa), &mut rng)
    };
    let linked = planted(fault, || catch_unwind(AssertUnwindSafe(linked)));
    match linked {
        Err(_) => !only_code,
        Ok(Err(_)) => true,
        Ok(Ok(linked)) if linked.bodies == 0 || only_code => false,
        Ok(Ok(linked)) => {
            runs_differently_at(Level::Speed, None, || Some(linked.compared_with(&whole, case)))
        }
    }
}

fn by_hand(content: ContentAddressing<'static>, functions: Two) -> (Unit, Vec<Unit>) {
    let options = Options {
        target: Target {
            call_thunks: Some(CallThunks { tail_calls: true, colocated: true }),
            ..Target::x86_64()
        },
        similar: Similar {
            policy: Policy::Size,
            instructions: Instructions::None,
            ..Similar::default()
        },
        content_addressing: Some(content),
        ..Options::default()
    };
    let of = |functions: Vec<Member>| Unit {
        functions,
        data: Vec::new(),
        options,
    };
    (of(functions.concat()), functions.map(of).to_vec())
}

/// A function of this number, which equals others but for its first instructions.
fn function(own: u32, header: &str, first: &str) -> Member {
    let text = long_function(&format!("u0:{own}"), header, first);
    Member { attributes: free(), body: parse_one(&text) }
}

/// A member with other attributes.
fn with(attributes: Attributes, member: Member) -> Member {
    Member { attributes, ..member }
}

fn leaf(own: u32, operation: &str) -> Member {
    function(own, "", &format!("v1 = {operation} v0"))
}

fn calls(own: u32, callee: u32) -> Member {
    let header = format!("    fn0 = u0:{callee}(i64) -> i64 system_v\n");
    function(own, &header, "v1 = call fn0(v0)")
}

fn export() -> Attributes {
    Attributes { linkage: Linkage::Export, ..free() }
}

/// They call functions that are known by their names.
fn names() -> Two {
    let named = |own, operation| with(export(), leaf(own, operation));
    [vec![named(10, "popcnt"), named(11, "clz"), calls(1, 10)], vec![calls(2, 11)]]
}

/// They call functions that are known by their contents.
fn callees() -> Two {
    [vec![leaf(10, "popcnt"), calls(1, 10)], vec![leaf(11, "clz"), calls(2, 11)]]
}

/// They call functions that call them.
fn cycles() -> Two {
    let calls = |own: u32, callee: u32, operation: &str| {
        let text = format!(
            "function u0:{own}(i64) -> i64 system_v {{
    fn0 = u0:{callee}(i64) -> i64 system_v
block0(v0: i64):
    v1 = iconst.i64 3
    v2 = band v0, v1
    v3 = iconst.i64 1
    v4 = isub v2, v3
    brif v2, block1, block2
block1:
    v5 = call fn0(v4)
    v6 = {operation} v5, v0
    return v6
block2:
    v7 = iconst.i64 5
    return v7
}}"
        );
        Member { attributes: free(), body: parse_one(&text) }
    };
    [vec![calls(1, 2, "imul"), calls(2, 1, "iadd")], vec![calls(3, 4, "imul"), calls(4, 3, "bxor")]]
}

/// They read through a pointer twice and write in between; in one of them, what is read does not
/// change. There are some of each, since it depends on digests which copy is kept.
fn facts() -> Two {
    const OPERATIONS: [&str; 8] = ["iadd", "bxor", "isub", "imul", "band", "bor", "rotl", "ushr"];
    let reads = |own: u32, flags: &str| {
        let operation = OPERATIONS[own as usize % 10];
        let text = format!(
            "function u0:{own}(i64, i64) -> i64 system_v {{
    gv0 = symbol u2:0
block0(v0: i64, v1: i64):
    v2 = load.i64 notrap aligned {flags} v0
    v3 = symbol_value.i64 gv0
    store.i64 notrap aligned v1, v3+64
    v4 = load.i64 notrap aligned {flags} v0
    v5 = rotl v4, v4
    v6 = bxor v2, v5
    v7 = {operation} v6, v1
    return v7
}}"
        );
        Member { attributes: free(), body: parse_one(&text) }
    };
    // The pointers are such that the facts are true.
    let passes = |own: u32, callee: u32, offset: u32| {
        let header = format!(
            "    fn0 = u0:{callee}(i64, i64) -> i64 system_v
    gv0 = symbol u2:0
"
        );
        let first = format!(
            "v90 = symbol_value.i64 gv0
    v91 = iconst.i64 {offset}
    v92 = iadd v90, v91
    v1 = call fn0(v92, v0)"
        );
        function(own, &header, &first)
    };
    [(10, "", 64), (20, "readonly can_move", 3072)].map(|(at, flags, offset)| {
        let pair = |own| [reads(own, flags), passes(own + 100, own, offset)];
        (at..at + OPERATIONS.len() as u32).flat_map(pair).collect()
    })
}

/// The place of one of them is a multiple of more.
fn alignments() -> Two {
    let aligned = Attributes { alignment: 64, ..free() };
    [vec![leaf(1, "popcnt")], vec![with(aligned, leaf(2, "popcnt"))]]
}

/// A callee of one of them is near.
fn near_callees() -> Two {
    let named = |own| with(export(), leaf(own, "popcnt"));
    let header = "    fn0 = colocated u0:10(i64) -> i64 system_v\n";
    [vec![named(10), calls(1, 10)], vec![function(2, header, "v1 = call fn0(v0)")]]
}

/// They take addresses of equal functions that keep their symbols.
fn addresses() -> Two {
    let called = Attributes { externally_called: true, ..free() };
    let takes = |own: u32, callee: u32| {
        let header = format!(
            "    sig0 = (i64) -> i64 system_v
    fn0 = u0:{callee} sig0
"
        );
        function(own, &header, "v90 = func_addr.i64 fn0\n    v1 = call_indirect sig0, v90(v0)")
    };
    [10, 20].map(|at| vec![with(called, leaf(at, "popcnt")), takes(at + 1, at)])
}

/// They call equal functions that have other names.
fn visible() -> Two {
    [10, 20].map(|at| vec![with(export(), leaf(at, "popcnt")), calls(at + 1, at)])
}

/// Each calls a function of the other unit.
fn exported() -> Two {
    let named = |own| with(export(), leaf(own, "popcnt"));
    [vec![named(10), calls(1, 20)], vec![named(20), calls(2, 10)]]
}

/// They call a function that equals another one of their unit.
fn followers() -> Two {
    [10, 20].map(|at| {
        let caller = calls(at + 2, at + 1);
        vec![leaf(at, "popcnt"), leaf(at + 1, "popcnt"), caller]
    })
}

/// A thunk that passes something is called with more arguments than it has.
fn more_arguments() -> Two {
    let called = Attributes { externally_called: true, ..free() };
    let more = "    fn0 = u0:1(i64, i64) -> i64 system_v\n";
    let passes = |own: u32| function(own, "", &format!("v1 = iconst.i64 {own}000001"));
    [
        vec![with(called, passes(1)), passes(2), function(3, more, "v1 = call fn0(v0, v0)")],
        vec![passes(4)],
    ]
}

/// Functions of one shape that differ in whom they call: one of them calls a function that equals
/// another one of them, by a symbol that merging eliminates.
fn rows_that_pass_each_other() -> Two {
    [
        vec![leaf(10, "popcnt"), calls(1, 10), calls(2, 10), calls(3, 2)],
        vec![leaf(20, "clz"), calls(21, 20)],
    ]
}
