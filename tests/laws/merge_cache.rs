//! Laws: how the checker proves plans of later units, and what the merge cache remembers of a plan.
//!
//! The code of an emitted body is not available any more: merges into it, and references to it, are
//! proved from the merge cache. Wrong plans are made by hand here.

use crate::incremental::{
    address_of, becomes, emit_with, last, leaf, passes_on, plan_with, table_user,
};
use crate::refused_plans::{at, data_member, unit};
use crate::support::{free, parse_one};
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_mergefunc::check::{Mismatch, Proof, prove_after};
use cranelift_mergefunc::data::{DataAttributes, DataIndex};
use cranelift_mergefunc::explain::first_difference;
use cranelift_mergefunc::incremental::MergeCache;
use cranelift_mergefunc::internals::decided;
use cranelift_mergefunc::{
    Addresses, Attributes, Disposition, Linkage, Options, Plan, Prove, Reason,
};
use testkit::unit::{Held, Unit};

fn proven(cache: &MergeCache, plan: &Plan, texts: &[String]) -> Result<Proof, Mismatch> {
    let bodies: Vec<Function> = texts.iter().map(|text| parse_one(text)).collect();
    let held = &mut Held::new(&bodies);
    let proof = prove_after(cache, plan, held, &Options::default());
    proof.map_err(|refutation| refutation.mismatch)
}

fn pinned() -> Attributes {
    Attributes { pinned: true, ..free() }
}

/// A function that differs from `leaf` and has the same signature.
fn other_leaf(own: u32) -> String {
    leaf(own).replace("return v0", "trap user1")
}

/// After the unit `first`, plans `texts`, with the last of them redirected to the first.
fn of_last_in_first(first: &[(String, Attributes)], texts: &[String]) -> Result<Proof, Mismatch> {
    let mut cache = MergeCache::new();
    emit_with(&mut cache, first);
    let units: Vec<_> = texts.iter().map(|text| (text.clone(), free())).collect();
    let plan = plan_with(&cache, &units);
    let last = texts.len() as u32 - 1;
    proven(&cache, &decided(plan, at(last), Disposition::Redirect { to: at(0) }), texts)
}

#[test]
fn references_to_equal_emitted_functions_may_replace_each_other() {
    let leaves = |own: Attributes| [(leaf(1), own), (leaf(2), own), (other_leaf(3), own)];
    let insignificant = pinned();
    let significant = Attributes { addresses: Addresses::Significant, ..pinned() };
    let preemptible = Attributes { linkage: Linkage::Preemptible, ..free() };
    let patchable = |own: u32, callee: u32| {
        passes_on(own, callee)
            .replace("fn0 = ", "fn0 = colocated patchable ")
            .replace("(i64) -> i64 tail\nblock0", "(i64) system_v\nblock0")
            .replace("v1 = call", "call")
            .replace("return v1", "return v0")
    };
    let inside = |own: u32, callee: u32| {
        address_of(own, callee)
            .replace("(i64) -> i64 tail\nblock0", "+4\nblock0")
            .replace("fn0 = ", "gv0 = symbol ")
            .replace("func_addr.i64 fn0", "symbol_value.i64 gv0")
    };
    for (what, user, attributes, right) in [
        ("call", &passes_on as &dyn Fn(u32, u32) -> String, insignificant, true),
        ("call", &passes_on, significant, true),
        ("call", &passes_on, preemptible, false),
        ("address", &address_of, insignificant, true),
        ("address", &address_of, significant, false),
        ("patchable call", &patchable, insignificant, false),
        ("inside", &inside, insignificant, false),
    ] {
        let cache = leaves(attributes);
        let equal = of_last_in_first(&cache, &[user(11, 1), user(12, 2)]).map(drop);
        // Where one callee may replace another, their bodies are compared; otherwise the bodies do
        // not matter.
        let (wanted, otherwise) = match right {
            true => (Ok(()), Err(Mismatch::Remembered)),
            false => (Err(Mismatch::Reference), Err(Mismatch::Reference)),
        };
        assert_eq!(equal, wanted, "{what} {attributes:?}");
        // References to functions that are not equal, in both orders; and to the same function.
        for callees in [(1, 3), (3, 1), (2, 3)] {
            let other = [user(11, callees.0), user(12, callees.1)];
            assert_eq!(of_last_in_first(&cache, &other), otherwise, "{what}");
        }
        assert!(of_last_in_first(&cache, &[user(11, 1), user(12, 1)]).is_ok(), "{what}");
    }
}

/// A function that takes the address of any equal function may use that of the first; a function
/// that takes the significant address of the first must not be merged into it: its address is
/// another one.
#[test]
fn a_significant_address_is_not_that_of_an_emitted_class() {
    let significant = Attributes { addresses: Addresses::Significant, ..pinned() };
    for (first, second) in [(2, 1), (1, 2)] {
        let mut cache = MergeCache::new();
        // Both are kept, and the class has the name of the first.
        emit_with(&mut cache, &[(leaf(1), significant), (leaf(2), pinned())]);
        emit_with(&mut cache, &[(address_of(11, first), free())]);
        let plan = emit_with(&mut cache, &[(address_of(12, second), free())]);
        assert_eq!(becomes(&plan, 12), ("keep", 12), "{second} after {first}");
        let plan = emit_with(&mut cache, &[(address_of(13, second), free())]);
        assert_eq!(becomes(&plan, 13), ("redirect", 12));
    }
}

#[test]
fn an_emitted_body_replaces_functions_of_its_class_only() {
    let cache = [(leaf(1), free())];
    // 12 is merged into the emitted body 1, so calls of 12 call 1, which does what 14 does.
    let calls = |leaf_14: String| [passes_on(11, 12), leaf(12), leaf_14, passes_on(13, 14)];
    assert!(of_last_in_first(&cache, &calls(leaf(14))).is_ok());
    let wrong = of_last_in_first(&cache, &calls(other_leaf(14)));
    assert_eq!(wrong, Err(Mismatch::Remembered));
}

#[test]
fn merges_into_emitted_bodies_are_proved_from_the_merge_cache() {
    let mut cache = MergeCache::new();
    table_user(&mut cache, 1, 8);
    let plan = table_user(&mut cache, 2, 8);
    let proof = plan.proof().expect("requested in tests").as_ref().expect("is right");
    assert_eq!((proof.merged, proof.data, proof.incremental), (1, 1, 2));
}

/// An entry for an emitted body states what is true of the body, not of the functions that are
/// merged into it.
#[test]
fn the_entry_of_an_emitted_body_is_its_own() {
    for addresses in Addresses::ALL {
        let own = Attributes { addresses, ..free() };
        let aligned = Attributes { alignment: 64, ..own };
        let mut cache = MergeCache::new();
        emit_with(&mut cache, &[(leaf(1), aligned)]);
        let plan = emit_with(&mut cache, &[(leaf(2), own), (leaf(3), own)]);
        let (function, entry) = plan.entries().nth(2).expect("the body");
        assert!(plan.is_cached(function));
        assert!(!plan.is_cached(at(0)));
        assert_eq!(plan.entries().count(), 3);
        assert_eq!(*entry.symbol(), UserExternalName::new(0, 1));
        assert_eq!((entry.alignment(), entry.disposition()), (64, Disposition::Keep));
        assert_eq!(entry.reason(), Reason::Representative);
    }

    let mut cache = MergeCache::new();
    table_user(&mut cache, 1, 64);
    let plan = table_user(&mut cache, 2, 8);
    let (_, entry) = plan.data_entries().nth(1).expect("the table");
    assert_eq!(*entry.symbol(), UserExternalName::new(1, 1));
    assert_eq!((entry.alignment(), entry.disposition()), (64, Disposition::Keep));
    assert_eq!((entry.reason(), entry.size()), (Reason::Representative, 3));
}

#[test]
fn later_functions_are_merged_into_emitted_bodies_that_may_be_shared() {
    let redirected = ("redirect", Reason::AddressInsignificant);
    let leaves = [&*leaf(1), &leaf(2)];
    assert_eq!(last(&leaves, free()), redirected);
    for special in [
        Attributes { linkage: Linkage::Preemptible, ..free() },
        Attributes { no_merge: true, ..free() },
    ] {
        let mut cache = MergeCache::new();
        emit_with(&mut cache, &[(leaf(1), special)]);
        let plan = emit_with(&mut cache, &[(leaf(2), free())]);
        assert_eq!(becomes(&plan, 2), ("keep", 2), "{special:?}");
    }
    // 1 was merged into 2, which is visible outside.
    let mut cache = MergeCache::new();
    let exported = Attributes { linkage: Linkage::Export, ..free() };
    let plan = emit_with(&mut cache, &[(leaf(1), free()), (leaf(2), exported)]);
    assert_eq!([1, 2].map(|own| becomes(&plan, own)), [("redirect", 2), ("keep", 2)]);
    let plan = emit_with(&mut cache, &[(leaf(3), free())]);
    assert_eq!(becomes(&plan, 3), ("redirect", 2));
}

/// A function that equals no function of its unit is not reported as equal to another, and is not a
/// member.
#[test]
fn one_function_is_no_class_of_its_unit() {
    assert_eq!(last(&[&leaf(1), &other_leaf(2)], free()), ("keep", Reason::Different));
    let mut cache = MergeCache::new();
    let plan = emit_with(&mut cache, &[(leaf(1), free())]);
    assert_eq!((plan.stats().plan_members, plan.stats().merged.functions), (0, 0));
    let plan = emit_with(&mut cache, &[(leaf(2), free())]);
    assert_eq!((plan.stats().plan_members, plan.stats().merged.functions), (0, 1));
    let plan = emit_with(&mut cache, &[(leaf(3), free()), (leaf(4), free())]);
    assert_eq!((plan.stats().plan_members, plan.stats().merged.functions), (2, 2));
}

/// For functions that differ in their callees, a first difference exists exactly if the callees are
/// not equal, whether the callees are in the unit or in earlier units.
#[test]
fn first_differences_distinguish_callees_of_earlier_units() {
    let mut cache = MergeCache::new();
    emit_with(&mut cache, &[(leaf(1), pinned()), (leaf(2), pinned()), (other_leaf(3), free())]);
    // By their bodies: 14 equals no other function.
    let mut texts =
        vec![leaf(11), other_leaf(12), leaf(13), leaf(14).replace("return v0", "trap user2")];
    let callees = [(1, 1), (2, 1), (3, 3), (11, 1), (12, 3), (13, 1), (14, 14), (99, 99)];
    texts.extend((21..).zip(callees).map(|(own, (callee, _))| passes_on(own, callee)));
    let members: Vec<_> = texts.iter().map(|text| (text.clone(), free())).collect();
    let plan = emit_with(&mut cache, &members);
    let bodies: Vec<Function> = texts.iter().map(|text| parse_one(text)).collect();
    let mut equal = 0;
    for (a, (x, of_x)) in (4..).zip(callees) {
        for (b, (y, of_y)) in (4..).zip(callees) {
            let [first, second] = [a, b].map(|own| (at(own), &bodies[own as usize]));
            let difference = first_difference(&plan, first, second, &Options::default());
            let differ = difference.expect("both can be walked").is_some();
            // An emitted function may equal a function of the unit, but the two are different
            // nodes.
            let apart = of_x != of_y || (x < 11) != (y < 11);
            assert_eq!(differ, apart, "{x} {y}");
            equal += u32::from(!differ);
        }
    }
    assert!(equal > 8);
}

/// `u0:10`, `u0:11`, …, each referring to one of these tables of `u1`, which consist of one
/// repeated byte.
fn over_tables(tables: &[(u32, u8, DataAttributes)]) -> Unit {
    let text = |(own, &(table, _, _)): (u32, &(u32, u8, DataAttributes))| {
        format!(
            "function u0:{own}() -> i64 tail {{
    gv0 = symbol u1:{table}
block0:
    v0 = symbol_value.i64 gv0
    return v0
}}
"
        )
    };
    let mut unit = unit(&(10..).zip(tables).map(text).collect::<String>());
    unit.options.merge_limit = None;
    let member = |&(table, byte, attributes)| data_member(table, byte, attributes);
    unit.data = tables.iter().map(member).collect();
    unit
}

#[test]
fn an_emitted_table_replaces_tables_of_its_class_only() {
    let insignificant = DataAttributes {
        linkage: Linkage::Local,
        addresses: Addresses::Insignificant,
        ..DataAttributes::default()
    };
    let pinned = DataAttributes { pinned: true, ..insignificant };
    for (byte, wanted) in [(7, Ok(())), (8, Err(Mismatch::Remembered))] {
        let mut cache = MergeCache::new();
        let mut first = over_tables(&[(1, 7, insignificant)]);
        first.functions.clear();
        first.options.prove = Prove::Always;
        cache.extend(&first.plan_increment(&cache).1);
        // The first of these tables is merged into the emitted one; the second is kept.
        let unit = over_tables(&[(2, 7, insignificant), (3, byte, pinned)]);
        let plan = unit.plan_after(&cache);
        let table = |at: u32| plan.data_entry(DataIndex::from_u32(at)).disposition().name();
        assert_eq!([table(0), table(1)], ["redirect", "keep"]);
        let plan = decided(plan, at(1), Disposition::Redirect { to: at(0) });
        let proof = unit.prove_after(&cache, &plan).map_err(|refutation| refutation.mismatch);
        assert_eq!(proof.as_ref().map(drop), wanted.as_ref().map(drop));
        // And the merge of the table itself.
        assert!(proof.is_err() || proof.is_ok_and(|proof| proof.incremental == 2));
    }
}

#[test]
fn later_tables_are_merged_into_emitted_tables_that_may_be_shared() {
    let insignificant = DataAttributes {
        linkage: Linkage::Local,
        addresses: Addresses::Insignificant,
        ..DataAttributes::default()
    };
    let pinned = DataAttributes { pinned: true, ..insignificant };
    let exported = DataAttributes { linkage: Linkage::Export, ..insignificant };
    // The earlier unit, and the table that a later one is merged into.
    for (first, to) in [
        (vec![(1, 7, insignificant)], Some(1)),
        (vec![(1, 7, pinned)], None),
        (vec![(1, 8, insignificant)], None),
        // 1 was merged into 2, which is visible outside.
        (vec![(1, 7, insignificant), (2, 7, exported)], Some(2)),
        (vec![(1, 7, pinned), (2, 7, insignificant)], Some(2)),
    ] {
        let mut cache = MergeCache::new();
        let mut unit = over_tables(&first);
        unit.functions.clear();
        cache.extend(&unit.plan_increment(&cache).1);
        let mut unit = over_tables(&[(3, 7, insignificant)]);
        unit.functions.clear();
        let plan = unit.plan_after(&cache);
        let entry = plan.data_entry(DataIndex::from_u32(0));
        let body =
            entry.disposition().representative().map(|to| plan.data_entry(to).symbol().index);
        assert_eq!(body, to, "{first:?}");
    }
}
