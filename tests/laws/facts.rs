//! Laws: a kept body has only the facts that every function has that it replaces.
//!
//! The functions here differ in facts only, so all functions of one test are equal. The facts that the kept body
//! may have are computed from the definition: a flag if all members have it at that place; a region if all members
//! have that region there, and no member distinguishes fewer accesses anywhere than the result does. The definition needs
//! to know each access by its place, so functions are not drawn with the generator.

use crate::support::{free, parse_one, plan_of, random, test_symbol, verify, walk_all};
use arbitrary::{Result, Unstructured};
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::{AliasRegionData, Function, InstBuilder, MemFlagsData, types};
use cranelift_mergefunc::{Disposition, Merger, Plan, prove};
use std::collections::BTreeMap;
use std::fmt::Write;
use testkit::permute::{Facts, permuted};

/// The facts of one memory access, and of its block.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fact {
    aligned: bool,
    readonly: bool,
    can_move: bool,
    /// The user id of the alias region.
    region: Option<u32>,
    cold: bool,
}

/// Which accesses a function has, in which of its three blocks. The same for all members.
struct Accesses(Vec<Access>);

#[derive(Clone, Copy)]
struct Access {
    store: bool,
    block: usize,
}

impl Accesses {
    fn random(u: &mut Unstructured<'_>) -> Result<Accesses> {
        let mut accesses = Vec::new();
        // One in each block that can be cold, so that each has a fact.
        for block in [1, 2] {
            accesses.push(Access { store: u.arbitrary()?, block });
        }
        for _ in 0..u.int_in_range(0..=6)? {
            accesses.push(Access { store: u.arbitrary()?, block: u.int_in_range(0..=2)? });
        }
        Ok(Accesses(accesses))
    }

    fn facts(&self, u: &mut Unstructured<'_>) -> Result<Vec<Fact>> {
        let cold = [false, u.arbitrary()?, u.arbitrary()?];
        let regions = u.int_in_range(1..=4)?;
        self.0
            .iter()
            .map(|access| {
                Ok(Fact {
                    aligned: u.ratio(2, 3)?,
                    readonly: !access.store && u.ratio(2, 3)?,
                    can_move: u.ratio(2, 3)?,
                    region: Some(u.int_in_range(0..=regions)?).filter(|&id| id > 0),
                    cold: cold[access.block],
                })
            })
            .collect()
    }

    /// The function; an access is identified by its offset.
    fn build(&self, facts: &[Fact]) -> Function {
        let mut text = String::from("function u0:0(i64, i64) -> i64 tail {\n");
        for number in 0..4 {
            writeln!(text, "    region{number} = {} \"a region\"", 4 - number).unwrap();
        }
        text.push_str("block0(v0: i64, v1: i64):\n");
        let mut value = 10;
        for block in 0..3 {
            let here = || (0..self.0.len()).filter(|&at| self.0[at].block == block);
            if block > 0 {
                let cold = here().any(|at| facts[at].cold);
                writeln!(text, "block{block}{}:", if cold { " cold" } else { "" }).unwrap();
            }
            for at in here() {
                let Fact { aligned, readonly, can_move, region, cold: _ } = facts[at];
                let mut flags = String::from("notrap");
                for (flag, set) in
                    [("aligned", aligned), ("readonly", readonly), ("can_move", can_move)]
                {
                    if set {
                        write!(flags, " {flag}").unwrap();
                    }
                }
                if let Some(id) = region {
                    write!(flags, " region{}", 4 - id).unwrap();
                }
                let offset = 8 * (at + 1);
                match self.0[at].store {
                    true => writeln!(text, "    store.i64 {flags} v1, v0+{offset}").unwrap(),
                    false => {
                        writeln!(text, "    v{value} = load.i64 {flags} v0+{offset}").unwrap();
                        value += 1;
                    }
                }
            }
            match block {
                0 => text.push_str("    brif v1, block1, block2\n"),
                // Different ends, so that the two blocks are never equal.
                1 => text.push_str("    return v0\n"),
                _ => text.push_str("    return v1\n"),
            }
        }
        text.push('}');
        parse_one(&text)
    }
}

/// The facts of a function by the offsets of its accesses.
fn read(func: &Function) -> Vec<Fact> {
    let mut facts = BTreeMap::new();
    for block in func.layout.blocks() {
        for inst in func.layout.block_insts(block) {
            let data = &func.dfg.insts[inst];
            if let Some(flags) = data.memflags_data(&func.dfg) {
                let region = flags.alias_region();
                let fact = Fact {
                    aligned: flags.aligned(),
                    readonly: flags.readonly(),
                    can_move: flags.can_move(),
                    region: region.map(|region| func.dfg.alias_regions[region].user_id),
                    cold: func.layout.is_cold(block),
                };
                // Some blocks of a permuted function are unreachable, but have no accesses.
                facts.insert(data.load_store_offset().expect("has an offset"), fact);
            }
        }
    }
    facts.into_values().collect()
}

/// The facts that all members have.
fn meet(members: &[Vec<Fact>]) -> Vec<Fact> {
    let count = members[0].len();
    let all = |at: usize, fact: fn(&Fact) -> bool| members.iter().all(|member| fact(&member[at]));
    // Accesses that some member puts into one region must not be in different regions. Accesses without a region
    // count as one region, too: Cranelift assumes that loads among them do not alias any region.
    let mut linked = vec![vec![false; count]; count];
    for (a, b) in (0..count).flat_map(|a| (0..count).map(move |b| (a, b))) {
        linked[a][b] = members.iter().any(|member| member[a].region == member[b].region);
    }
    for via in 0..count {
        for (a, b) in (0..count).flat_map(|a| (0..count).map(move |b| (a, b))) {
            linked[a][b] |= linked[a][via] && linked[via][b];
        }
    }
    (0..count)
        .map(|at| {
            let together = || (0..count).filter(|&other| linked[at][other]);
            let region = members[0][at].region;
            let agreed =
                together().all(|other| members.iter().all(|member| member[other].region == region));
            Fact {
                aligned: all(at, |fact| fact.aligned),
                readonly: all(at, |fact| fact.readonly),
                can_move: all(at, |fact| fact.can_move),
                region: region.filter(|_| agreed),
                cold: all(at, |fact| fact.cold),
            }
        })
        .collect()
}

/// What must hold for any rule that computes the result.
fn check_sound(result: &[Fact], members: &[Vec<Fact>]) {
    for member in members {
        for (kept, own) in result.iter().zip(member) {
            assert!(own.aligned || !kept.aligned);
            assert!(own.readonly || !kept.readonly);
            assert!(own.can_move || !kept.can_move);
            assert!(own.cold || !kept.cold);
            assert!(kept.region.is_none() || kept.region == own.region);
        }
        for a in 0..result.len() {
            for b in 0..result.len() {
                let apart = |facts: &[Fact]| facts[a].region != facts[b].region;
                assert!(!apart(result) || apart(member), "accesses {a} and {b}");
            }
        }
    }
}

#[test]
fn the_kept_body_has_the_facts_of_all_members() {
    random(|u| {
        let accesses = Accesses::random(u)?;
        let mut members = Vec::new();
        let mut bodies = Vec::new();
        for _ in 0..u.int_in_range(2..=5)? {
            let facts = match members.last() {
                Some(last) if u.arbitrary()? => Vec::clone(last),
                _ => accesses.facts(u)?,
            };
            let func = accesses.build(&facts);
            verify(&func);
            assert_eq!(read(&func), facts);
            bodies.push(permuted(&func, Facts::Keep, u.arbitrary()?));
            members.push(facts);
        }
        let options = walk_all();
        let (plan, functions) = plan_of(&bodies, options);
        let kept: Vec<usize> = (0..bodies.len())
            .filter(|&at| plan.entry(functions[at]).disposition() == Disposition::Keep)
            .collect();
        let [kept] = kept[..] else { panic!("{kept:?} are kept of equal functions") };
        prove(&plan, &mut &bodies[..], &options).expect("is right");

        let mut func = bodies[kept].clone();
        plan.apply(functions[kept], &mut func, &options);
        verify(&func);
        let result = read(&func);
        check_sound(&result, &members);
        assert_eq!(result, meet(&members), "\n{members:#?}");
        Ok(())
    });
}

/// Equal functions, all of which are pinned, and one caller of each.
fn pinned_and_called(mut bodies: Vec<Function>) -> (Plan, Vec<Function>) {
    let pinned = cranelift_mergefunc::Attributes { pinned: true, ..free() };
    let count = bodies.len();
    let called = bodies[0].signature.clone();
    for callee in 0..count {
        let to = &test_symbol(callee as u32);
        let options = cranelift_mergefunc::CallThunks { tail_calls: true, colocated: false };
        let name = cranelift_codegen::ir::UserFuncName::default();
        bodies.push(cranelift_mergefunc::call_thunk(name, &called, &[], to, &options));
    }
    let mut merger = Merger::new(walk_all());
    for (at, body) in bodies.iter().enumerate() {
        let attributes = if at < count { pinned } else { free() };
        merger.add(test_symbol(at as u32), body, attributes).expect("is added");
    }
    (merger.plan(&mut &bodies[..]), bodies)
}

#[test]
fn every_pinned_body_has_the_facts_of_all_members() {
    random(|u| {
        let accesses = Accesses::random(u)?;
        let mut members = Vec::new();
        for _ in 0..u.int_in_range(2..=5)? {
            members.push(accesses.facts(u)?);
        }
        let bodies = members.iter().map(|facts| accesses.build(facts)).collect();
        let (plan, bodies) = pinned_and_called(bodies);
        for ((function, entry), body) in plan.entries().zip(&bodies).take(members.len()) {
            assert_eq!(entry.disposition(), Disposition::Keep);
            let mut func = body.clone();
            plan.apply(function, &mut func, &walk_all());
            assert_eq!(read(&func), meet(&members), "\n{members:#?}");
        }
        Ok(())
    });
}

/// The time to compute the common facts must not grow with the number of pairs.
#[test]
fn many_pinned_bodies_with_different_facts_take_linear_time() {
    const COUNT: u32 = 4_000;
    let bodies = (0..COUNT).map(|member| many_accesses(8, |at| (member * 8 + at, 5))).collect();
    let (plan, _) = pinned_and_called(bodies);
    assert_eq!(plan.stats().plan_weakened as u32, COUNT);
}

#[test]
fn a_function_that_replaces_no_other_keeps_its_facts() {
    let accesses =
        Accesses(vec![Access { store: false, block: 1 }, Access { store: true, block: 2 }]);
    let fact =
        |cold| Fact { aligned: true, readonly: false, can_move: true, region: Some(1), cold };
    let strong = accesses.build(&[fact(true), fact(true)]);
    let weak = accesses.build(&[fact(false), fact(false)]);
    let mut merger = Merger::new(walk_all());
    let pinned = cranelift_mergefunc::Attributes { pinned: true, ..free() };
    let first = merger.add(test_symbol(0), &strong, pinned).unwrap();
    merger.add(test_symbol(1), &weak, free()).unwrap();
    let plan = merger.plan(&mut vec![strong.clone(), weak]);
    let mut func = strong.clone();
    assert!(!plan.apply(first, &mut func, &walk_all()));
    assert_eq!(read(&func), read(&strong));
}

/// Flags are interned in a table of less than 2^16 entries. The kept body and the other members use few enough
/// each, but their common facts would need more entries than the table can hold.
#[test]
fn a_full_table_of_flags_loses_facts_and_nothing_else() {
    const REGIONS: u32 = 12_000;
    const KINDS: u32 = 6;
    let bodies: Vec<Function> = (0..4)
        .map(|member| {
            // The last kind is the strongest, and each member has it where others are weaker.
            many_accesses(REGIONS * KINDS, |at| match at % KINDS {
                kind if kind % 3 == member => (at / KINDS, kind),
                _ => (at / KINDS, KINDS - 1),
            })
        })
        .collect();
    let options = walk_all();
    let (plan, functions) = plan_of(&bodies, options);
    let mut func = bodies[0].clone();
    assert_eq!(plan.entry(functions[0]).disposition(), Disposition::Keep);
    assert!(plan.apply(functions[0], &mut func, &options));
    let result = read(&func);
    assert_eq!(result.len() as u32, REGIONS * KINDS);
    let nothing =
        Fact { aligned: false, readonly: false, can_move: false, region: None, cold: false };
    assert!(result.iter().all(|fact| *fact == nothing));
}

/// Loads, each with a region and a kind of facts.
fn many_accesses(count: u32, fact: impl Fn(u32) -> (u32, u32)) -> Function {
    let mut func = parse_one("function u0:0(i64) tail {\nblock0(v0: i64):\n    return\n}");
    let block = func.layout.entry_block().expect("has a body");
    let address = func.dfg.block_params(block)[0];
    let mut cursor = FuncCursor::new(&mut func).at_first_insertion_point(block);
    for at in 0..count {
        let (region, kind) = fact(at);
        let data = AliasRegionData { user_id: region, description: "".into() };
        let region = cursor.func.dfg.alias_regions.insert(data);
        let mut flags = MemFlagsData::new().with_notrap().with_alias_region(Some(region));
        if matches!(kind, 1 | 4 | 5) {
            flags.set_aligned();
        }
        if matches!(kind, 2 | 4 | 5) {
            flags.set_readonly();
        }
        if matches!(kind, 3 | 5) {
            flags.set_can_move();
        }
        cursor.ins().load(types::I64, flags, address, at as i32);
    }
    func
}
