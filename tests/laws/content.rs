//! Content addressing: a digest says all of the code under it, and nothing else. Linkers keep any
//! body of one digest, so two bodies that differ under one digest are a wrong merge.

use crate::irrelevant::IRRELEVANT;
use crate::refused_plans::data_member;
use arbitrary::Unstructured;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_codegen::isa::TargetIsa;
use cranelift_mergefunc::across::{ContentAddressing, ContentDigest, decide_sharing};
use cranelift_mergefunc::data::DataAttributes;
use cranelift_mergefunc::incremental::MergeCache;
use cranelift_mergefunc::units::{Group, SharingMap};
use cranelift_mergefunc::{
    Addresses, Attributes, Bodies, Disposition, FunctionIndex, Linkage, Merger, Options, Plan,
    Policy, Prove, Similar, Target,
};
use std::collections::{BTreeMap, BTreeSet};
use testkit::across::{cut, linked, map, replicated, summaries, with_map};
use testkit::check::check_streamed;
use testkit::generate::function::Profile;
use testkit::generate::opcodes::Machine;
use testkit::generate::unit::GeneratedUnit;
use testkit::isa;
use testkit::mutate::mutants_of;
use testkit::program::{ADDED, Parts, Program, Streaming};
use testkit::support::{Rng, free, long_function, parse_one};
use testkit::unit::{Member, Unit};

/// Runs a property on some inputs, the same each time.
fn some(mut property: impl FnMut(&mut Unstructured<'_>) -> arbitrary::Result<()>) {
    for seed in 0..60 {
        let bytes = Rng::new(seed).bytes(2000 + 50 * seed as usize);
        property(&mut Unstructured::new(&bytes)).expect("enough bytes");
    }
}

/// A unit in pieces, for a machine.
fn pieces(u: &mut Unstructured<'_>, machine: Machine) -> arbitrary::Result<(Unit, Vec<Unit>, Rng)> {
    let mut rng = Rng::new(u.arbitrary()?);
    let mut unit = GeneratedUnit::draw(u, &Profile::runnable(machine)).unit;
    unit.options.prove = Prove::Always;
    let unit = replicated(&unit, 2, &mut rng);
    let units = cut(&unit, 3, &*machine.isa("speed"), &mut rng);
    Ok((unit, units, rng))
}

/// The digest of the body of each function that has one, by the number of its symbol.
fn digests(plan: &Plan) -> BTreeMap<u32, ContentDigest> {
    let digest = |to: FunctionIndex| plan.new_body(to)?.content_digest().copied();
    plan.entries()
        .take(plan.added())
        .filter_map(|(_, entry)| {
            Some((entry.symbol().index, digest(entry.disposition().representative()?)?))
        })
        .collect()
}

/// Copies of a body that are in other forms, in other units, with other numbers, must have one
/// code.
#[test]
fn code_under_one_digest_is_the_same() {
    for machine in [Machine::X86_64, Machine::Aarch64] {
        let mut copies = 0;
        let isas = ["none", "speed"].map(|level| machine.isa(level));
        some(|u| {
            let (whole, units, mut rng) = pieces(u, machine)?;
            let isa = &*isas[rng.below(2)];
            copies += linked(&whole, &units, &[None; 3], isa, &mut rng).unwrap().copies;
            Ok(())
        });
        assert!(copies > 50, "{copies}");
    }
}

/// Two builds of one unit must agree, whatever order its functions have.
#[test]
fn digests_do_not_depend_on_the_order_of_functions() {
    let mut found = 0;
    some(|u| {
        let (_, units, mut rng) = pieces(u, Machine::X86_64)?;
        for mut unit in units {
            let before = digests(&unit.plan());
            rng.shuffle(&mut unit.functions);
            assert_eq!(digests(&unit.plan()), before);
            found += before.len();
        }
        Ok(())
    });
    assert!(found > 250, "{found}");
}

/// Code for other settings must never be kept in place of code for these.
#[test]
fn other_settings_have_other_digests() {
    let mut found = 0;
    let isas = [
        isa::of("x86_64", &[]),
        isa::of("x86_64", &[("opt_level", "speed")]),
        isa::of("x86_64", &[("is_pic", "true")]),
        Machine::X86_64V3.isa("none"),
        isa::of("x86_64-apple-darwin", &[]),
        isa::of("aarch64", &[]),
        isa::of("aarch64", &[("preserve_frame_pointers", "true")]),
    ];
    some(|u| {
        let (_, units, _) = pieces(u, Machine::X86_64)?;
        let mut all = BTreeSet::new();
        for isa in &isas {
            let mut unit = units[0].clone();
            unit.options.content_addressing = Some(ContentAddressing::of(&**isa));
            let own: BTreeSet<ContentDigest> = digests(&unit.plan()).into_values().collect();
            found += own.len();
            for digest in own {
                assert!(all.insert(digest), "{digest}");
            }
        }
        Ok(())
    });
    assert!(found > 150, "{found}");
}

/// Content addressing for a machine, with proofs.
fn addressing(isa: &dyn TargetIsa) -> Options<'static> {
    Options {
        target: Target::of(isa),
        prove: Prove::Always,
        content_addressing: Some(ContentAddressing::of(isa)),
        ..Options::default()
    }
}

/// Only the function of one unit, under a symbol of its own.
fn digest_of(func: &Function, isa: &dyn TargetIsa) -> Option<ContentDigest> {
    let options = addressing(isa);
    let functions = [Member { attributes: free(), body: func.clone() }];
    let parts = Parts { functions: &functions, data: &[], options: &options };
    digests(&parts.plan()).into_values().next()
}

/// Whether the verifier accepts a function. It panics at some that it would refuse.
fn is_valid(func: &Function) -> bool {
    let error = std::panic::catch_unwind(|| testkit::support::verifier_error(func));
    error.is_ok_and(|error| error.is_none())
}

/// The unit with changes that count only where they are compared.
fn with_changes(mut unit: Unit, rng: &mut Rng) -> Unit {
    let changes: Vec<_> = IRRELEVANT.iter().filter(|change| change.is_debug_info).collect();
    for member in &mut unit.functions {
        for _ in 0..rng.below(6) {
            let mut changed = (rng.choose(&changes).apply)(&member.body);
            if !changed.is_empty() {
                let symbol = member.body.name.clone();
                member.body = changed.swap_remove(rng.below(changed.len()));
                member.body.name = symbol;
            }
        }
    }
    unit
}

/// Debug information that is compared is compared by every phase, and by the checker: a phase that
/// made what it emits canonical without it had right plans refused.
#[test]
fn plans_hold_whatever_is_compared() {
    let isas = ["none", "speed"].map(|level| Machine::X86_64.isa(level));
    let (mut bodies, mut parameterised, mut merged) = (0, 0, 0);
    for seed in 0..64 {
        let mut rng = Rng::new(seed ^ 0xc0 << 40);
        let bytes = Rng::new(seed).bytes(3000);
        let mut u = Unstructured::new(&bytes);
        let mut unit = GeneratedUnit::draw(&mut u, &Profile::runnable(Machine::X86_64)).unit;
        unit.options.prove = Prove::Always;
        unit.options.compare.debug_info = seed % 2 == 0;
        let unit = with_changes(replicated(&unit, 2, &mut rng), &mut rng);
        let isa = &*isas[rng.below(2)];
        let units = cut(&unit, 3, isa, &mut rng);
        let map = map(&summaries(&units), &mut |group| decide_sharing(group, Policy::Size));
        let map = SharingMap::open(map).expect("a map");
        for map in [None, Some(&map)] {
            let linked = linked(&unit, &units, &[map; 3], isa, &mut rng);
            let linked = linked.unwrap_or_else(|error| panic!("{seed}: {error}"));
            (bodies, parameterised) =
                (bodies + linked.bodies, parameterised + linked.parameterised);
        }
        for unit in [unit.clone(), unit.clone().canonical(isa)] {
            let plan = unit.plan();
            if let Some(Err(refutation)) = plan.proof() {
                panic!("{seed}: {refutation}");
            }
            merged += plan.stats().merged.functions;
        }
        check_streamed(&Program::streamed(&Parts::from(&unit), Streaming::Holding(0)).1);
    }
    assert!(
        bodies > 400 && parameterised > 10 && merged > 200,
        "{bodies} {parameterised} {merged}"
    );
}

/// Any change of a function that changes what it does must change its digest.
#[test]
fn a_digest_says_all_that_a_function_does() {
    let isa = Machine::X86_64.isa("speed");
    let (mut certain, mut others) = (0, 0);
    some(|u| {
        let unit = GeneratedUnit::draw(u, &Profile::runnable(Machine::X86_64)).unit;
        let func = &unit.functions[0].body;
        let Some(digest) = digest_of(func, &*isa) else {
            return Ok(());
        };
        let entry = func.layout.entry_block().expect("a body");
        let mut insts: Vec<_> = func.layout.block_insts(entry).collect();
        // Branches may go to one block on either condition.
        insts.pop();
        for inst in insts {
            for mutant in mutants_of(func, entry, inst).into_iter().step_by(7) {
                if !is_valid(&mutant.func) {
                    continue;
                }
                let is_other = digest_of(&mutant.func, &*isa) != Some(digest);
                assert!(is_other || !mutant.is_certain(), "{func}{}", mutant.func);
                certain += usize::from(mutant.is_certain());
                others += usize::from(is_other && !mutant.is_certain());
            }
        }
        Ok(())
    });
    assert!(certain > 500 && others > 10, "{certain} {others}");
}

/// One function for each text, `u0:0` and on, with these attributes.
struct Texts<'a> {
    functions: Vec<(Function, Attributes)>,
    named: &'a [u32],
    added: u32,
}

impl Bodies for Texts<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self.functions[function.as_u32() as usize].0
    }

    fn fresh_symbol(&mut self, _: &[FunctionIndex]) -> Option<UserExternalName> {
        self.added += 1;
        Some(UserExternalName::new(ADDED, self.added))
    }

    fn link_name(&mut self, symbol: &UserExternalName) -> Option<String> {
        self.named.contains(&symbol.index).then(|| symbol.to_string())
    }
}

fn plan(texts: &[(&str, Attributes)], named: &[u32]) -> Plan {
    plan_after(None, texts, named)
}

fn plan_after(earlier: Option<&MergeCache>, texts: &[(&str, Attributes)], named: &[u32]) -> Plan {
    let isa = isa::of("x86_64", &[]);
    let mut content = ContentAddressing::of(&*isa);
    content.smallest_gain = 0;
    let functions: Vec<(Function, Attributes)> =
        texts.iter().map(|(text, attributes)| (parse_one(text), *attributes)).collect();
    let options = Options {
        target: Target::of(&*isa),
        content_addressing: Some(content),
        prove: Prove::Always,
        ..Options::default()
    };
    let mut merger = match earlier {
        Some(earlier) => Merger::after(earlier, options),
        None => Merger::new(options),
    };
    for (index, (func, attributes)) in (0..).zip(&functions) {
        merger.add(UserExternalName::new(0, index), func, *attributes).expect("is added");
    }
    let plan = merger.plan(&mut Texts { functions, named, added: 0 });
    assert!(plan.proof().is_some_and(Result::is_ok));
    plan
}

const LEAF: &str = "function u0:0(i64) -> i64 system_v {
block0(v0: i64):
    v1 = imul v0, v0
    v2 = iconst.i64 77
    v3 = bxor v1, v2
    return v3
}";

const CALLS_IMPORT: &str = "function u0:1(i64) -> i64 system_v {
    fn0 = u1:50(i64) -> i64 system_v
block0(v0: i64):
    v1 = call fn0(v0)
    v2 = iadd v1, v0
    return v2
}";

const CALLS_LEAF: &str = "function u0:2(i64) -> i64 system_v {
    fn0 = u0:0(i64) -> i64 system_v
block0(v0: i64):
    v1 = call fn0(v0)
    v2 = isub v1, v0
    return v2
}";

/// A symbol without a name could mean something else in another unit.
#[test]
fn what_refers_to_symbols_without_names_is_left_alone() {
    let all = [(LEAF, free()), (CALLS_IMPORT, free()), (CALLS_LEAF, free())];
    let addressed =
        |named: &[u32]| -> Vec<u32> { digests(&plan(&all, named)).into_keys().collect() };
    assert_eq!(addressed(&[]), [0, 2]);
    assert_eq!(addressed(&[50]), [0, 1, 2]);
    // Of a later flush: a body may refer to functions that an earlier one eliminated.
    assert!(digests(&plan_after(Some(&MergeCache::new()), &all, &[50])).is_empty());
    // A function that must stay where it is, and whose symbol other units do not know.
    let pinned = Attributes { pinned: true, ..free() };
    let all = [(LEAF, pinned), (CALLS_IMPORT, free()), (CALLS_LEAF, free())];
    assert!(digests(&plan(&all, &[])).is_empty());
}

/// Once, a function moved to a body of its own under a digest although something points into it:
/// the pointer went to another place in code that is laid out otherwise. The checker refused it; a
/// release build runs none.
#[test]
fn what_something_points_into_is_left_alone() {
    const POINTS_INSIDE: &str = "function u0:1(i64) -> i64 system_v {
    gv0 = symbol u0:0+4
block0(v0: i64):
    v1 = symbol_value.i64 gv0
    v2 = iadd v1, v0
    return v2
}";
    let points_to = |offset: &str| {
        let points = POINTS_INSIDE.replace("+4", offset);
        digests(&plan(&[(LEAF, free()), (&points, free())], &[])).into_keys().collect::<Vec<u32>>()
    };
    assert_eq!(points_to(""), [0, 1]);
    assert!(points_to("+4").is_empty());
}

/// Symbols that others see must stay, each with an address of its own.
#[test]
fn symbols_that_must_stay_become_thunks() {
    let kept = |attributes: Attributes| {
        let plan = plan(&[(LEAF, attributes)], &[0]);
        let entry = plan.entry(FunctionIndex::from_u32(0));
        assert_eq!(digests(&plan).len(), 1);
        matches!(entry.disposition(), Disposition::Thunk { .. })
    };
    assert!(!kept(free()));
    for linkage in [Linkage::Export, Linkage::Hidden] {
        assert!(kept(Attributes { linkage, ..free() }));
    }
    assert!(kept(Attributes { externally_called: true, ..free() }));
    let addresses = Addresses::Significant;
    assert!(kept(Attributes { address_taken: true, addresses, ..free() }));
    // Another definition may take it: the code stays with its symbol.
    let preemptible = Attributes { linkage: Linkage::Preemptible, ..free() };
    assert!(digests(&plan(&[(LEAF, preemptible)], &[0])).is_empty());
}

/// The size of a private copy was asked for like that of a function of the unit, which panicked.
#[test]
fn private_copies_are_content_addressed() {
    let attributes = Attributes {
        linkage: Linkage::Preemptible,
        externally_called: true,
        ..Attributes::default()
    };
    // Large enough to pay.
    let one = long(0, "", "v1 = iconst.i64 77");
    let other = one.replace("u0:0", "u0:1");
    let plan = plan(&[(&one, attributes), (&other, attributes)], &[0, 1]);
    assert_eq!(plan.new_bodies().len(), 1);
    assert!(plan.new_bodies()[0].content_digest().is_some());
}

/// The function `u0:symbol`.
fn long(symbol: u32, header: &str, first: &str) -> String {
    long_function(&format!("u0:{symbol}"), header, first)
}

/// Shared code passes extra arguments in place of a thunk that only its unit can see. By another
/// signature than the thunk's, they would be taken for arguments that the caller passes, or the
/// other way round.
#[test]
fn shared_code_calls_a_thunk_by_another_signature_through_its_symbol() {
    let caller = |symbol: u32, parameters: &str, arguments: &str| {
        format!(
            "function u0:{symbol}(i64) -> i64 system_v {{
    fn0 = u0:0({parameters}) -> i64 system_v
block0(v0: i64):
    v1 = call fn0({arguments})
    v2 = iadd v1, v0
    return v2
}}"
        )
    };
    let isa = isa::of("x86_64", &[]);
    let shared = |caller: String| {
        let texts = [
            long(0, "", "v1 = iconst.i64 1000001"),
            long(1, "", "v1 = iconst.i64 2000002"),
            caller,
        ];
        // A thunk in any case.
        let is_called = |at: usize| Attributes { externally_called: at == 0, ..free() };
        let functions = texts.iter().enumerate();
        let functions =
            functions.map(|(at, text)| Member { attributes: is_called(at), body: parse_one(text) });
        let similar = Similar { policy: Policy::Size, ..Similar::default() };
        let options = Options { similar, ..addressing(&*isa) };
        let functions = functions.collect();
        let plan = Unit { functions, data: Vec::new(), options }.plan();
        assert!(plan.proof().is_some_and(Result::is_ok), "{:?}", plan.proof());
        let entry = plan.entry(FunctionIndex::from_u32(0));
        assert!(matches!(entry.disposition(), Disposition::Thunk { .. }), "{:?}", entry.reason());
        assert!(!entry.extra_arguments().is_empty());
        digests(&plan).contains_key(&2)
    };
    assert!(shared(caller(2, "i64", "v0")));
    assert!(!shared(caller(2, "i64, i64", "v0, v0")));
}

/// A function that was merged with others passes the symbol of its own callee. They called equal
/// functions, each by a symbol that another definition can take where symbols can be interposed.
#[test]
fn what_equals_others_passes_no_symbol_for_them() {
    let isa = isa::of("x86_64", &[]);
    let calls = |symbol: u32, callee: u32| {
        let header = format!("    fn0 = u0:{callee}(i64) -> i64 system_v\n");
        long(symbol, &header, "v1 = call fn0(v0)")
    };
    let unit = |texts: &[String], interposition: bool| {
        let attributes = Attributes { linkage: Linkage::Export, ..Attributes::default() };
        let functions = texts.iter().map(|text| Member { attributes, body: parse_one(text) });
        let options = Options { interposition, ..addressing(&*isa) };
        Unit { functions: functions.collect(), data: Vec::new(), options }
    };
    let passed = |interposition: bool, equal: bool| {
        let leaves = [1, if equal { 1 } else { 2 }];
        let [a, b] = leaves.map(|constant| format!("v1 = iconst.i64 {constant}"));
        let texts = [long(0, "", &a), long(1, "", &b), calls(2, 0), calls(3, 1)];
        let units = [unit(&texts, interposition), unit(&[calls(4, 50)], interposition)];
        let decide = &mut |group: &Group<'_>| decide_sharing(group, Policy::Size);
        let bytes = map(&summaries(&units), decide);
        let map = SharingMap::open(&bytes).expect("a map");
        let options = with_map(units[0].options, Some(&map));
        let plan = Parts { options: &options, ..Parts::from(&units[0]) }.plan();
        assert!(plan.proof().is_some_and(Result::is_ok), "{:?}", plan.proof());
        let entry = plan.entry(FunctionIndex::from_u32(2));
        !entry.extra_arguments().is_empty()
    };
    assert!(passed(false, true));
    assert!(passed(true, false));
    assert!(!passed(true, true));
}

/// Of equal exported objects that were merged, another definition can take any. Code that names one
/// of them reads that one.
#[test]
fn what_names_one_of_several_equal_objects_is_not_content_addressed() {
    let isa = isa::of("x86_64", &[]);
    let reads = |symbol: u32, data: u32| {
        let header = format!("    gv0 = symbol u1:{data}\n");
        long(symbol, &header, "v1 = symbol_value.i64 gv0")
    };
    let addressed = |interposition: bool, second: u8| {
        let functions = [reads(0, 0), reads(1, 1)];
        let functions = functions.iter();
        let functions =
            functions.map(|text| Member { attributes: free(), body: parse_one(text) }).collect();
        let attributes = DataAttributes {
            linkage: Linkage::Export,
            addresses: Addresses::Insignificant,
            ..DataAttributes::default()
        };
        let data = vec![data_member(0, 7, attributes), data_member(1, second, attributes)];
        let options = Options { aliases: true, interposition, ..addressing(&*isa) };
        let plan = Unit { functions, data, options }.plan();
        assert!(plan.proof().is_some_and(Result::is_ok), "{:?}", plan.proof());
        digests(&plan).len()
    };
    assert_eq!((addressed(false, 7), addressed(true, 8)), (2, 2));
    assert_eq!(addressed(true, 7), 0);
}
