//! Laws of functions that arrive one at a time: what is said of them at once, and what is planned without IR.

use crate::support::{Rng, free, parse, random};
use cranelift_codegen::ir::UserFuncName;
use cranelift_mergefunc::{
    Attributes, Disposition, FunctionIndex, Known, Merger, Options, Plan, StreamingMerger,
};
use std::collections::BTreeMap;
use testkit::check::check_streamed;
use testkit::classes::classes;
use testkit::program::{Parts, Program};
use testkit::scale::Family;
use testkit::unit::Unit;

/// Classes and dispositions by symbol.
fn by_symbol(plan: &Plan) -> BTreeMap<String, String> {
    let symbol = |function| plan.entry(function).symbol().to_string();
    let entries = plan.entries().map(|(_, entry)| {
        let to = entry.disposition().representative().map(symbol);
        let decided = (entry.disposition().name(), to, entry.class(), entry.alignment());
        (entry.symbol().to_string(), format!("{decided:?}"))
    });
    entries.collect()
}

/// Functions of one class are equal, and one that was not compiled has the code of a function of its class.
#[test]
fn functions_of_one_class_are_equal() {
    random(|u| {
        let mut unit = Unit::random(u)?;
        unit.options.merge_limit = None;
        let oracle = classes(&unit);
        let (_, plan, code_of) = Program::streamed(&Parts::from(&unit));
        check_streamed(&plan, &code_of);
        let class: Vec<u32> = plan.entries().map(|(_, entry)| entry.class()).collect();
        for a in 0..unit.functions.len() {
            for b in 0..a {
                assert!(class[a] != class[b] || oracle.equal(a, b), "{a} {b}");
            }
        }
        Ok(())
    });
}

/// Where no facts differ, nothing is lost against a merger that has all IR.
#[test]
fn functions_are_merged_as_with_all_ir() {
    for family in Family::ALL {
        let functions = family.unit(300);
        let mut streaming = StreamingMerger::new(Options::default());
        let mut merger = Merger::new(Options::default());
        for func in &functions {
            let symbol = func.name.get_user().expect("has a symbol");
            streaming.add(symbol.clone(), func, free()).expect("is added");
            merger.add(symbol.clone(), func, free()).expect("is added");
        }
        let plan = merger.plan(&mut &*functions);
        assert_eq!(by_symbol(&streaming.plan(None)), by_symbol(&plan), "{family:?}");
    }
}

/// In every order of the functions the plan is the same.
#[test]
fn the_order_of_functions_does_not_matter() {
    random(|u| {
        let unit = Unit::random(u)?;
        let mut shuffled = unit.clone();
        let mut rng = Rng::new(u.arbitrary()?);
        for at in (1..shuffled.functions.len()).rev() {
            shuffled.functions.swap(at, rng.below(at + 1));
        }
        let [plan, other] = [&unit, &shuffled].map(|unit| Program::streamed(&Parts::from(unit)).1);
        assert_eq!(by_symbol(&plan), by_symbol(&other));
        Ok(())
    });
}

/// A function is known to equal an earlier one at once if all that both call was added before, as when callees are
/// compiled first.
#[test]
fn equal_functions_are_known_at_once_if_callees_come_first() {
    let functions = Family::Mixed.unit(1000);
    let mut streaming = StreamingMerger::new(Options::default());
    let mut known = Vec::new();
    for func in &functions {
        let symbol = func.name.get_user().expect("has a symbol");
        known.push(streaming.add(symbol.clone(), func, free()).expect("is added").1);
    }
    let plan = streaming.plan(None);
    let merged = plan.entries().filter(|(_, entry)| entry.disposition() != Disposition::Keep);
    let equal = known.iter().filter(|known| matches!(known, Known::Equal(_)));
    let merged = merged.count();
    assert!(merged > 300, "{merged}");
    assert_eq!(merged, equal.count());
}

/// Code may be expected at the very place of a pinned function, so it gets its own.
#[test]
fn a_pinned_function_has_code_of_its_own() {
    let functions = Family::Equal.unit(2);
    let mut streaming = StreamingMerger::new(Options::default());
    for (attributes, expected) in [
        (free(), Known::First),
        (Attributes { pinned: true, ..free() }, Known::SameEncoding(FunctionIndex::from_u32(0))),
    ] {
        let mut func = functions[0].clone();
        let index = streaming.len() as u32;
        func.name = UserFuncName::user(0, index);
        let symbol = func.name.get_user().expect("has a symbol").clone();
        assert_eq!(streaming.add(symbol, &func, attributes).expect("is added").1, expected);
    }
}

/// Code is compiled with the facts of its own function, and cannot be weakened any more: a function that states fewer
/// facts, or that is aligned to more bytes, has code of its own.
#[test]
fn functions_of_different_facts_or_alignment_have_code_of_their_own() {
    let functions = parse(
        "function u0:0(i64) -> i64 { block0(v0: i64): v1 = load.i64 notrap readonly v0 return v1 }
         function u0:1(i64) -> i64 { block0(v0: i64): v1 = load.i64 notrap v0 return v1 }
         function u0:2(i64) -> i64 { block0(v0: i64): v1 = load.i64 notrap readonly v0 return v1 }
         function u0:3(i64) -> i64 { block0(v0: i64): v1 = load.i64 notrap readonly v0 return v1 }",
    );
    let mut streaming = StreamingMerger::new(Options::default());
    let known = functions.iter().zip([1, 1, 16, 1]).map(|(func, alignment)| {
        let symbol = func.name.get_user().expect("has a symbol").clone();
        let attributes = Attributes { alignment, ..free() };
        streaming.add(symbol, func, attributes).expect("is added").1
    });
    let equal = Known::Equal(FunctionIndex::from_u32(0));
    assert_eq!(known.collect::<Vec<_>>(), [Known::First, Known::First, Known::First, equal]);
}
