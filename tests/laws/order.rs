//! Laws: the order of encodings is total and agrees with equality, and the structural hash is the
//! same everywhere.

use crate::support::{Rng, corpus, encode, parse, parse_one, random, verify, walk_all};
use arbitrary::Unstructured;
use cranelift_mergefunc::explain::{Encoding, structural_hash};
use cranelift_mergefunc::{Compare, Options};
use std::cmp::Ordering;
use testkit::mutate::instruction_mutants;
use testkit::permute::{Colocated, permuted};
use testkit::unit::Unit;

/// Encodings that are equal, close to each other, and far from each other.
fn pool() -> Vec<Encoding> {
    let options = walk_all();
    let mut pool = Vec::new();
    for func in corpus() {
        pool.push(encode(&func, &options));
        pool.push(encode(&permuted(&func, Colocated::Change, 1), &options));
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
    0xbf055445e9e6cc387aa4534bc24f3d94,
    0xf9cf266e8f17e67d74281430a593240a,
    0xbaf6d359bfd440d7b0addc1566ad7125,
    0x833914f45d4b1347890fd6f5c5744976,
    0x4e3a4336c60743511022987bfaef3ff1,
    0x151579fd7ab4ac1a0b7a3e097291b771,
    0x099460c38fc69e347609443bd0d9c0a3,
    0x90705c3333b17d5e85c3307e0d074667,
    0x1f2a7e1cb9ffad7d9943365fd8512c5e,
    0x12af7f5962fab5bdd4d5c06b7114fff5,
    0x90771e9749622e7c947f8abadb441291,
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
        let other = permuted(func, Colocated::Change, seed);
        assert_eq!(structural_hash(&encode(&other, &Options::default())).0, digests[seed as usize]);
    }
}

#[test]
fn encodings_with_debug_information_are_of_no_encoding_without() {
    // The function has no debug information.
    let func = parse_one("function u0:0() system_v {\nblock0:\n    return\n}");
    let encodings = [false, true].map(|debug_info| {
        let compare = Compare { debug_info, ..Compare::default() };
        encode(&func, &Options { compare, ..Options::default() })
    });
    assert_ne!(encodings[0], encodings[1]);
}
