//! Law: what only numbers, orders or decorates does not count.

use crate::permute::{Facts, permuted};
use crate::support::{assert_equal, corpus, random, verify};
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
    let options = crate::support::walk_all();
    for func in corpus() {
        let digest = structural_hash(&crate::support::encode(&func, &options));
        for seed in 100..120 {
            let other = permuted(&func, Facts::Change, seed);
            let other_digest = structural_hash(&crate::support::encode(&other, &options));
            assert_eq!(digest, other_digest, "seed {seed}:\n{func}\n{other}");
        }
    }
}
