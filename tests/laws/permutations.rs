//! Law: changes of numbering, order and decoration are irrelevant.

use crate::support::{
    assert_different, assert_equal, corpus, encode, functions_below, parse_one, random, verify,
    walk_all,
};
use cranelift_mergefunc::explain::structural_hash;
use std::path::Path;
use testkit::permute::{Colocated, permuted};
use testkit::unit::Unit;

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
            let other = permuted(&func, Colocated::Keep, seed);
            verify(&other);
            assert_equal(&func, &other, &format!("seed {seed}"));
        }
    }
}

#[test]
fn a_permuted_function_with_other_facts_is_equal() {
    for func in corpus() {
        for seed in 0..30 {
            let other = permuted(&func, Colocated::Change, seed);
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
        let other = permuted(&func, Colocated::Change, seed);
        verify(&other);
        assert_equal(&func, &other, &format!("seed {seed}"));
    }
}

/// Such a block is never executed, so the verifier lets it use values that are never computed.
#[test]
fn a_block_of_which_there_is_only_an_address_is_equal() {
    let function = |entry: &str, result: &str| {
        parse_one(&format!(
            "function u0:0(i64) -> i64 tail {{
    sig0 = (i64) -> i64 tail
    fn0 = u1:0 sig0
block0(v0: i64):
    v1 = get_exception_handler_address.i64 block2, 0
    {entry}

block1:
    v2 = iadd v0, v1
    jump block2

block2:
    try_call fn0(v2), sig0, block3(ret0), [ default: block4(exn0) ]

block3(v3: i64):
    return v3

block4(v4: i64):
    return {result}
}}"
        ))
    };
    // Control flow leads to the block in the text, but not if a known condition decides the branch.
    let known = "v5 = iconst.i8 1
    brif v5, block3(v1), block1";
    for entry in ["jump block3(v1)", known] {
        let func = function(entry, "v2");
        verify(&func);
        for seed in 0..10 {
            let other = permuted(&func, Colocated::Change, seed);
            verify(&other);
            assert_equal(&func, &other, &format!("seed {seed}"));
        }
        assert_different(&func, &function(entry, "v4"), "the handler is there");
    }
}

#[test]
fn gaps_in_the_numbering_of_tables_do_not_count() {
    let function = |constant: &str, slot: &str, callee: &str, global: &str, value: &str| {
        parse_one(&format!(
            "function u0:0(i64) -> i64 tail {{
    {slot} = explicit_slot 8
    {global} = symbol u1:1+8
    {callee} = u1:0(i64) -> i64 tail
    {constant} = 0x000102030405060708090a0b0c0d0e0f
block0(v0: i64):
    {value} = vconst.i64x2 {constant}
    v7 = extractlane {value}, 1
    v8 = call {callee}(v7)
    v9 = symbol_value.i64 {global}
    v10 = stack_addr.i64 {slot}
    v11 = iadd v8, v9
    v12 = iadd v10, v11
    return v12
}}"
        ))
    };
    let dense = function("const0", "ss0", "fn0", "gv0", "v1");
    for (constant, callee, global, value) in [
        ("const0", "fn3", "gv0", "v1"),
        ("const0", "fn0", "gv4", "v1"),
        ("const0", "fn0", "gv0", "v99"),
        ("const2", "fn0", "gv0", "v1"),
    ] {
        let sparse = function(constant, "ss0", callee, global, value);
        verify(&sparse);
        assert_equal(&dense, &sparse, &format!("{constant}, {callee}, {global}, {value}"));
    }
}

#[test]
fn functions_of_the_filetests_are_equal_in_another_form() {
    let filetests = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests");
    let functions = functions_below(&filetests);
    assert!(functions.len() > 100, "only {} functions", functions.len());
    for ((path, func), seed) in functions.iter().zip(0..) {
        let other = permuted(func, Colocated::Keep, seed);
        verify(&other);
        assert_equal(func, &other, &path.to_string_lossy());
    }
}

#[test]
fn permuted_random_functions_are_equal() {
    random(|u| {
        let unit = Unit::random(u)?;
        for member in &unit.functions {
            let once = permuted(&member.body, Colocated::Change, u.arbitrary()?);
            let twice = permuted(&once, Colocated::Change, u.arbitrary()?);
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
            let other = permuted(&func, Colocated::Change, seed);
            let other_digest = structural_hash(&encode(&other, &options));
            assert_eq!(digest, other_digest, "seed {seed}:\n{func}\n{other}");
        }
    }
}
