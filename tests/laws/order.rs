//! Laws: the order of encodings is total and agrees with equality, and the structural hash is the
//! same everywhere.

use crate::support::{Rng, corpus, encode, parse, parse_one, random, verify, walk_all};
use arbitrary::Unstructured;
use cranelift_mergefunc::{Compare, ComparePolicy, Encoding, Options, structural_hash};
use std::cmp::Ordering;
use testkit::mutate::instruction_mutants;
use testkit::permute::{Facts, permuted};
use testkit::unit::Unit;

/// Encodings that are equal, close to each other, and far from each other.
fn pool() -> Vec<Encoding> {
    let options = walk_all();
    let mut pool = Vec::new();
    for func in corpus() {
        pool.push(encode(&func, &options));
        pool.push(encode(&permuted(&func, Facts::Change, 1), &options));
        for mutant in instruction_mutants(&func).iter().step_by(9) {
            pool.extend(Encoding::of(&mutant.func, &options));
        }
    }
    for seed in 0..20 {
        let bytes = Rng::new(seed).bytes(4096);
        let unit = Unit::random(&mut Unstructured::new(&bytes)).expect("enough input");
        pool.extend(unit.functions.iter().map(|member| encode(&member.body, &options)));
    }
    pool
}

#[test]
fn the_order_is_reflexive() {
    for a in pool() {
        let copy = a.clone();
        assert_eq!(a.cmp(&copy), Ordering::Equal);
        assert_eq!(a.partial_cmp(&copy), Some(Ordering::Equal));
        assert_eq!(a, copy);
    }
}

#[test]
fn the_order_is_antisymmetric_total_and_consistent_with_equality() {
    let pool = pool();
    random(|u| {
        let (a, b) = (u.choose(&pool)?, u.choose(&pool)?);
        assert_eq!(a.cmp(b), b.cmp(a).reverse());
        assert_eq!(a.partial_cmp(b), Some(a.cmp(b)));
        assert_eq!(a == b, a.cmp(b) == Ordering::Equal);
        Ok(())
    });
}

#[test]
fn the_order_is_transitive() {
    let mut pool = pool();
    random(|u| {
        let [a, b, c] = [u.choose(&pool)?, u.choose(&pool)?, u.choose(&pool)?];
        if a <= b && b <= c {
            assert!(a <= c);
        }
        if a < b && b <= c || a <= b && b < c {
            assert!(a < c);
        }
        if a == b {
            assert_eq!(a.cmp(c), b.cmp(c));
        }
        Ok(())
    });
    // A sort gives visibly wrong results if the order is not transitive.
    pool.sort();
    assert!(pool.is_sorted_by(|a, b| a <= b));
    for distance in [2, 7, 100] {
        assert!(pool.windows(distance).all(|window| window[0] <= window[distance - 1]));
    }
}

#[test]
fn equal_encodings_have_equal_hashes() {
    let pool = pool();
    let mut sorted: Vec<&Encoding> = pool.iter().collect();
    sorted.sort();
    let mut equal = 0;
    for pair in sorted.windows(2) {
        if pair[0] == pair[1] {
            assert_eq!(structural_hash(pair[0]), structural_hash(pair[1]));
            equal += 1;
        } else {
            // Not a law, but a collision of 128 bits among so few is practically impossible.
            assert_ne!(structural_hash(pair[0]), structural_hash(pair[1]));
        }
    }
    assert!(equal > 10, "{equal} equal pairs in the pool");
}

/// The digests of the functions of `golden.clif`, in their order.
const GOLDEN: [u128; 11] = [
    0xe9359f262a1f2017fddc0a20f52b503e,
    0x8984a883cae5ee990d0a96b5ccd09142,
    0xd802afb82c229c23653db358cf7836c8,
    0x9b17540622f2e4fd259352fa2d255c83,
    0x087f4974aad9f88aa48dc230d8d4fca7,
    0xc82d4bc1e6e202ee07dae65b557ef1d1,
    0x7f80a977565e366c1265167fb2364e12,
    0xde29f996091e92df42839ada67e552db,
    0x093815d4b58e794925b7b3b37979b775,
    0xe88bb2d048b486b24d85b79e1c11d503,
    0x3bca2567319422c95df16e8cf7eef91c,
];

#[test]
fn structural_hashes_are_pinned() {
    let functions = parse(include_str!("golden.clif"));
    functions.iter().for_each(verify);
    let digests: Vec<u128> = functions
        .iter()
        .map(|func| structural_hash(&encode(func, &Options::default())).0)
        .collect();
    let mut listing = String::new();
    for digest in &digests {
        listing.push_str(&format!("    0x{digest:032x},\n"));
    }
    assert_eq!(
        digests, GOLDEN,
        "structural hashes changed. Stored hashes of other runs are worthless now: raise \
         ENCODING_VERSION, then replace GOLDEN in tests/laws/order.rs by\n{listing}"
    );
    for (func, seed) in functions.iter().zip(0..) {
        let other = permuted(func, Facts::Change, seed);
        assert_eq!(structural_hash(&encode(&other, &Options::default())).0, digests[seed as usize]);
    }
}

#[test]
fn encodings_under_different_policies_differ() {
    // The function has nothing that a policy compares, so only the policy itself distinguishes the encodings.
    let func = parse_one("function u0:0() system_v {\nblock0:\n    return\n}");
    let fields: [fn(&mut ComparePolicy) -> &mut Compare; 6] = [
        |policy| &mut policy.source_locations,
        |policy| &mut policy.debug_tags,
        |policy| &mut policy.value_labels,
        |policy| &mut policy.stack_slot_keys,
        |policy| &mut policy.operand_order,
        |policy| &mut policy.constant_branches,
    ];
    let mut encodings = Vec::new();
    for chosen in 0..1 << fields.len() {
        let mut compare = ComparePolicy::default();
        for (at, field) in fields.iter().enumerate() {
            if chosen >> at & 1 == 1 {
                *field(&mut compare) = Compare::Compare;
            }
        }
        encodings.push(encode(&func, &Options { compare, ..walk_all() }));
    }
    encodings.sort();
    assert!(encodings.is_sorted_by(|a, b| a < b));
}
