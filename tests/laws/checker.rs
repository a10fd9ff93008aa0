//! Laws of the independent checker: it refuses every change that matters, and
//! accepts every irrelevant one.

use crate::irrelevant::IRRELEVANT;
use crate::support::{corpus, encode, parse_one, same_class, verify, walk_all};
use cranelift_codegen::ir::{
    DebugTag, Function, RelSourceLoc, SourceLoc, StackSlot, Value, ValueLabel,
    ValueLabelAssignments, ValueLabelStart,
};
use cranelift_mergefunc::Options;
use cranelift_mergefunc::check::{Mismatch, may_replace};
use std::collections::{BTreeMap, BTreeSet};
use testkit::mutate::function::function_mutants;
use testkit::mutate::{Mutant, instruction_mutants};
use testkit::permute::{Colocated, permuted};
use testkit::support::trace;

#[test]
fn the_checker_refuses_every_mutant() {
    let options = walk_all();
    let mut refused: BTreeMap<Mismatch, usize> = BTreeMap::new();
    for func in corpus() {
        for Mutant { what, func: mutant } in
            instruction_mutants(&func).into_iter().chain(function_mutants(&func))
        {
            for (kept, original) in [(&func, &mutant), (&mutant, &func)] {
                match may_replace(kept, original, &options) {
                    Ok(()) => panic!("{what}\n{func}"),
                    Err(refutation) => *refused.entry(refutation.mismatch).or_default() += 1,
                }
            }
        }
    }
    println!("{refused:#?}");
    // Mismatches that concern a whole unit, or debug information, have no mutant here.
    let everywhere = Mismatch::ALL.iter().filter(|mismatch| mismatch.is_of_bodies());
    let missing: Vec<_> = everywhere.filter(|mismatch| !refused.contains_key(mismatch)).collect();
    let elsewhere = [
        Mismatch::Key,
        Mismatch::Fact,
        Mismatch::StackMap,
        Mismatch::Metadata,
        Mismatch::Undefined,
        Mismatch::Colocated,
        Mismatch::Movable,
        Mismatch::Guard,
    ];
    assert_eq!(missing, elsewhere.iter().collect::<Vec<_>>());
}

/// The trace of a function contains all that a simulation compares: traces differ whenever the
/// checker would refuse one function for the other, and every other form of a function has the same
/// trace.
#[test]
fn traces_differ_exactly_where_the_checker_refuses() {
    let mut extra = 0;
    for func in corpus() {
        let own = trace(&func).expect("the verifier accepts it");
        for Mutant { what, func: mutant } in
            instruction_mutants(&func).into_iter().chain(function_mutants(&func))
        {
            assert_ne!(trace(&mutant).as_ref(), Some(&own), "{what}\n{func}");
            extra += 1;
        }
        for seed in 0..30 {
            let other = permuted(&func, Colocated::Change, seed);
            assert_eq!(trace(&other), Some(own.clone()), "seed {seed}\n{func}\n{other}");
        }
        for change in IRRELEVANT {
            for other in (change.apply)(&func) {
                assert_eq!(trace(&other), Some(own.clone()), "{}\n{func}", change.what);
            }
        }
    }
    assert!(extra > 1000, "{extra} changes");
}

#[test]
fn the_checker_accepts_every_other_form() {
    let options = walk_all();
    for func in corpus() {
        assert_eq!(may_replace(&func, &func, &options), Ok(()), "{func}");
        for seed in 0..30 {
            let other = permuted(&func, Colocated::Keep, seed);
            assert_eq!(may_replace(&func, &other, &options), Ok(()), "seed {seed}\n{func}");
            assert_eq!(may_replace(&other, &func, &options), Ok(()), "seed {seed}\n{func}");
        }
    }
}

#[test]
fn the_checker_accepts_irrelevant_changes() {
    let options = walk_all();
    for change in IRRELEVANT {
        for func in corpus() {
            for other in (change.apply)(&func) {
                for (kept, original) in [(&func, &other), (&other, &func)] {
                    let proved = may_replace(kept, original, &options);
                    assert_eq!(proved, Ok(()), "{}\n{kept}\n{original}", change.what);
                }
            }
        }
    }
}

/// The walk follows conditions a few instructions deep. The checker must treat exactly the same
/// instructions as branches: a block behind a branch may be compared in another way if it is
/// unreachable.
#[test]
fn the_checker_follows_conditions_as_deep_as_the_walk() {
    let text = |depth: u32, end: &str| {
        let mut chain = "    v100 = iconst.i8 1\n".to_string();
        for at in 1..depth {
            let (own, before) = (100 + at, 99 + at);
            chain += &format!("    v{own} = bor v{before}, v{before}\n");
        }
        let last = 99 + depth;
        parse_one(&format!(
            "function u0:0(i64) -> i64 tail {{
    sig0 = () tail
    fn0 = u1:0 sig0
block0(v0: i64):
{chain}    v10 = get_exception_handler_address.i64 block2, 0
    brif v{last}, block1, block2
block1:
    return v10
block2:
    try_call fn0(), sig0, block3, [ default: block3 ]
block3:
    v30 = iconst.i8 1
    {end}
block4:
    return v0
}}"
        ))
    };
    for depth in [1, 7, 8, 9, 10, 20] {
        let bodies = ["brif v30, block4, block1", "jump block4"].map(|end| text(depth, end));
        bodies.iter().for_each(verify);
        let [a, b] = &bodies;
        let equal = same_class(a, b, walk_all());
        assert_eq!(may_replace(a, b, &walk_all()).is_ok(), equal, "{depth}");
        assert_eq!(may_replace(b, a, &walk_all()).is_ok(), equal, "{depth}");
    }
}

#[test]
fn every_mismatch_has_a_message_with_its_place() {
    let explanations: BTreeSet<String> = Mismatch::ALL.iter().map(|why| why.to_string()).collect();
    assert_eq!(explanations.len(), Mismatch::ALL.len());
    assert!(explanations.iter().all(|text| text.len() > 10), "{explanations:?}");

    let text = |constant: u32| {
        parse_one(&format!(
            "function u0:{constant}() -> i64 tail {{
block0:
    jump block1
block1:
    v0 = iconst.i64 {constant}
    return v0
}}"
        ))
    };
    let refutation = may_replace(&text(7), &text(8), &walk_all()).expect_err("differ");
    assert_eq!(refutation.mismatch, Mismatch::Immediate);
    let said = refutation.to_string();
    for part in [&*Mismatch::Immediate.to_string(), "u0:7", "u0:8", "at inst1 and at inst1"] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

/// Panics unless the checker finds equal exactly the pairs that the walk finds equal.
#[track_caller]
fn assert_agree(functions: &[Function], options: &Options<'_>) {
    let mut counts = [0; 2];
    for a in functions {
        for b in functions {
            let equal = encode(a, options) == encode(b, options);
            assert_eq!(may_replace(a, b, options).is_ok(), equal, "{a}\n{b}");
            counts[usize::from(equal)] += 1;
        }
    }
    assert_eq!(counts[1], functions.len(), "each differs from all others");
}

#[test]
fn the_checker_compares_what_a_policy_compares() {
    let base = parse_one(
        "function u0:0(i64) -> i64 tail {
    ss0 = explicit_slot 8
    ss1 = explicit_slot 8
block0(v0: i64):
    v1 = iconst.i64 1
    sequence_point
    return v1
}",
    );
    let point = base.layout.block_insts(base.layout.entry_block().expect("one")).nth(1);
    let point = point.expect("sequence_point");
    let tagged = |tags: Vec<DebugTag>| {
        let mut func = base.clone();
        func.debug_tags.set(point, tags);
        func
    };
    let user = DebugTag::User;
    let slot = |slot| DebugTag::StackSlot(StackSlot::from_u32(slot));
    let tags = [
        vec![],
        vec![user(1)],
        vec![user(2)],
        vec![slot(0)],
        vec![slot(1)],
        vec![user(1), slot(0)],
        vec![user(1), slot(1)],
        vec![slot(0), user(1)],
        vec![user(1), user(1)],
    ];
    let mut options = walk_all();
    options.compare.debug_info = true;
    assert_agree(&tags.map(tagged), &options);

    let labelled = |starts: &[(u32, u32)]| {
        let mut func = base.clone();
        // Labels begin at places relative to it.
        func.set_srcloc(point, SourceLoc::new(100));
        let starts = starts.iter().map(|&(from, label)| ValueLabelStart {
            from: RelSourceLoc::new(from),
            label: ValueLabel::from_u32(label),
        });
        let labels = ValueLabelAssignments::Starts(starts.collect());
        func.dfg.values_labels = Some([(Value::from_u32(1), labels)].into());
        func
    };
    let starts: [&[(u32, u32)]; 7] =
        [&[], &[(1, 1)], &[(1, 2)], &[(2, 1)], &[(2, 2)], &[(1, 1), (2, 2)], &[(1, 1), (2, 1)]];
    let mut options = walk_all();
    options.compare.debug_info = true;
    assert_agree(&starts.map(labelled), &options);

    let located = |at: u32| {
        let mut func = base.clone();
        func.set_srcloc(point, SourceLoc::new(at));
        func
    };
    let mut options = walk_all();
    options.compare.debug_info = true;
    assert_agree(&[1, 2, 3].map(located), &options);
}

/// Global values are followed to their base, through links of every kind.
#[test]
fn the_checker_compares_every_link_of_a_global_value() {
    let limit = |links: &str| {
        parse_one(&format!(
            "function u0:0(i64 vmctx) tail {{
    region0 = 1 \"one\"
    region1 = 2 \"two\"
    gv0 = vmctx
{links}
    stack_limit = gv2
block0(v0: i64):
    return
}}"
        ))
    };
    let sums = [
        "    gv1 = iadd_imm.i64 gv0, 8\n    gv2 = iadd_imm.i64 gv1, 16",
        "    gv1 = iadd_imm.i64 gv0, 16\n    gv2 = iadd_imm.i64 gv1, 16",
        "    gv1 = iadd_imm.i64 gv0, 8\n    gv2 = iadd_imm.i64 gv1, 24",
        "    gv1 = iadd_imm.i32 gv0, 8\n    gv2 = iadd_imm.i64 gv1, 16",
        "    gv2 = iadd_imm.i64 gv0, 16",
        "    gv2 = load.i64 notrap aligned gv0+16",
        "    gv2 = load.i64 notrap aligned gv0+24",
        "    gv2 = load.i32 notrap aligned gv0+16",
        "    gv2 = load.i64 notrap aligned readonly gv0+16",
        "    gv2 = load.i64 notrap aligned region0 gv0+16",
        "    gv2 = load.i64 notrap aligned region1 gv0+16",
    ];
    assert_agree(&sums.map(limit), &walk_all());
}
