//! Law: what only numbers, orders or decorates does not count.

use crate::permute::{Facts, permuted};
use crate::support::{assert_equal, corpus, encode, parse_one, random, verify, walk_all};
use crate::units::Unit;
use cranelift_mergefunc::structural_hash;

#[test]
fn the_corpus_passes_the_verifier() {
    for func in corpus() {
        verify(&func);
    }
}

#[test]
fn a_permuted_function_is_equal() {
    for func in corpus() {
        for seed in 0..30 {
            let other = permuted(&func, Facts::Keep, seed);
            verify(&other);
            assert_equal(&func, &other, &format!("seed {seed}"));
        }
    }
}

#[test]
fn a_permuted_function_with_other_promises_is_equal() {
    for func in corpus() {
        for seed in 0..30 {
            let other = permuted(&func, Facts::Change, seed);
            verify(&other);
            assert_equal(&func, &other, &format!("seed {seed}"));
        }
    }
}

/// A handler's address can be taken long before control reaches the call that it belongs to, and
/// before the values that the call uses are defined.
#[test]
fn a_block_whose_address_is_taken_early_is_equal() {
    let func = parse_one(
        "function u0:0(i64) -> i64 tail {
    sig0 = (i64) -> i64 tail
    fn0 = u1:0 sig0
block0(v0: i64):
    v1 = get_exception_handler_address.i64 block2, 0
    jump block1

block1:
    v2 = iadd v0, v1
    jump block2

block2:
    try_call fn0(v2), sig0, block3(ret0), [ default: block4(exn0) ]

block3(v3: i64):
    return v3

block4(v4: i64):
    return v2
}",
    );
    verify(&func);
    for seed in 0..10 {
        let other = permuted(&func, Facts::Change, seed);
        verify(&other);
        assert_equal(&func, &other, &format!("seed {seed}"));
    }
}

#[test]
fn permuted_random_functions_are_equal() {
    random(|u| {
        let unit = Unit::random(u)?;
        for member in &unit.functions {
            let once = permuted(&member.body, Facts::Change, u.arbitrary()?);
            let twice = permuted(&once, Facts::Change, u.arbitrary()?);
            assert_equal(&member.body, &once, "permuted once");
            assert_equal(&once, &twice, "permuted twice");
        }
        Ok(())
    });
}

#[test]
fn equal_functions_have_equal_hashes() {
    let options = walk_all();
    for func in corpus() {
        let digest = structural_hash(&encode(&func, &options));
        for seed in 100..120 {
            let other = permuted(&func, Facts::Change, seed);
            let other_digest = structural_hash(&encode(&other, &options));
            assert_eq!(digest, other_digest, "seed {seed}:\n{func}\n{other}");
        }
    }
}
