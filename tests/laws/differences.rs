//! Law: there is a first difference exactly where functions are not in one class.

use crate::refused_plans::{at, data_member, unit};
use crate::support::{free, parse_one, random};
use cranelift_codegen::ir::{
    Block, Function, Inst, RelSourceLoc, UserFuncName, Value, ValueLabel, ValueLabelAssignments,
    ValueLabelStart,
};
use cranelift_mergefunc::data::DataAttributes;
use cranelift_mergefunc::explain::{Difference, Rule, Site, first_difference, place_hashes};
use cranelift_mergefunc::{Addresses, FunctionIndex, Linkage, Target};
use testkit::permute::Colocated;
use testkit::unit::{Member, Unit};

#[test]
fn there_is_a_difference_exactly_between_classes() {
    random(|u| {
        let mut unit = Unit::random(u)?;
        if u.arbitrary()? {
            unit = unit.permuted(Colocated::Change, u.arbitrary()?);
        }
        let plan = unit.plan();
        let bodies = unit.bodies();
        let function =
            |at: usize| plan.function(&unit.functions[at].symbol()).expect("of the unit");
        for a in 0..bodies.len() {
            for b in 0..bodies.len() {
                let (x, y) = ((function(a), &bodies[a]), (function(b), &bodies[b]));
                let found = first_difference(&plan, x, y, &unit.options).expect("can be walked");
                let same = plan.entry(x.0).class() == plan.entry(y.0).class();
                assert_eq!(found.is_none(), same, "{}\n{}", bodies[a], bodies[b]);
                let back = first_difference(&plan, y, x, &unit.options).expect("can be walked");
                assert_eq!(found.map(mirrored), back, "{}\n{}", bodies[a], bodies[b]);
                if let Some(difference) = found {
                    check_difference(&difference, |function| plan.entry(function).class());
                }
            }
        }
        Ok(())
    });
}

/// Places are hashed by what is compared there, and by nothing else.
#[test]
fn functions_of_one_class_are_equal_at_every_place_and_others_differ_where_shapes_do() {
    random(|u| {
        let unit = Unit::random(u)?.permuted(Colocated::Change, u.arbitrary()?);
        let plan = unit.plan();
        let bodies = unit.bodies();
        let hashes = |at: u32| {
            let function = (FunctionIndex::from_u32(at), &bodies[at as usize]);
            place_hashes(&plan, function, &unit.options).expect("can be walked")
        };
        let class = |at: u32| plan.entry(FunctionIndex::from_u32(at)).class();
        for a in 0..bodies.len() as u32 {
            for b in 0..a {
                let equal = hashes(a) == hashes(b);
                let [x, y] = [a, b].map(|at| (FunctionIndex::from_u32(at), &bodies[at as usize]));
                let found = first_difference(&plan, x, y, &unit.options).expect("can be walked");
                match found {
                    None => assert!(equal && class(a) == class(b), "{a} {b}"),
                    // References to functions of the unit hash equally.
                    Some(Difference { rule: Rule::Reference, .. }) => {}
                    Some(_) => assert!(!equal, "{}\n{}", bodies[a as usize], bodies[b as usize]),
                }
            }
        }
        Ok(())
    });
}

/// Functions that refer to equal tables are equal, however many there are of each.
#[test]
fn references_to_equal_data_are_no_difference() {
    let insignificant = DataAttributes {
        linkage: Linkage::Local,
        addresses: Addresses::Insignificant,
        ..DataAttributes::default()
    };
    let user = |own: u32| {
        format!(
            "function u0:{own}() -> i64 tail {{
    gv0 = symbol u1:{own}
block0:
    v0 = symbol_value.i64 gv0
    return v0
}}
"
        )
    };
    for unused in [0, 1, 5] {
        let mut unit = unit(&(user(0) + &user(1) + &user(2)));
        let bytes = [7, 7, 8].into_iter().chain(std::iter::repeat_n(9, unused));
        unit.data =
            (0..).zip(bytes).map(|(at, byte)| data_member(at, byte, insignificant)).collect();
        let plan = unit.plan();
        let bodies = unit.bodies();
        for (a, b, differ) in [(0, 1, false), (0, 2, true), (2, 1, true)] {
            let [first, second] = [a, b].map(|own| (at(own), &bodies[own as usize]));
            let difference = first_difference(&plan, first, second, &unit.options);
            assert_eq!(difference.expect("both can be walked").is_some(), differ, "{a} {b}");
        }
    }
}

/// Labels are compared after all code, and a difference in them is one at the value that is
/// labelled.
#[test]
fn a_difference_in_labels_is_at_the_value() {
    let text = "function u0:0(i64) -> i64 tail {
block0(v0: i64):
    v1 = iconst.i64 1
    trapz v0, user1
    v2 = iconst.i64 2
    trapz v1, user1
    return v2
}";
    let labelled = |value: u32, label: u32| {
        let mut func = parse_one(text);
        let from = RelSourceLoc::new(1);
        let start = |label| ValueLabelStart { from, label: ValueLabel::from_u32(label) };
        // The same values are labelled in all, so that only one label differs.
        let labels = (0..3).map(|at| {
            let label = if at == value { label } else { 0 };
            (Value::from_u32(at), ValueLabelAssignments::Starts(vec![start(label)]))
        });
        func.dfg.values_labels = Some(labels.collect());
        func
    };
    let mut unit = unit("");
    unit.options.compare.debug_info = true;
    for (value, site) in [
        (0, Site::Block(Block::from_u32(0))),
        (1, Site::Inst(Inst::from_u32(0))),
        (2, Site::Inst(Inst::from_u32(2))),
    ] {
        let bodies = [labelled(value, 7), labelled(value, 8)];
        let member = |(own, body): (u32, &Function)| {
            let mut body = body.clone();
            body.name = UserFuncName::user(0, own);
            Member { attributes: free(), body }
        };
        unit.functions = (0..).zip(&bodies).map(member).collect();
        let plan = unit.plan();
        let difference =
            first_difference(&plan, (at(0), &bodies[0]), (at(1), &bodies[1]), &unit.options)
                .expect("both can be walked")
                .expect("labels differ");
        assert_eq!((difference.first, difference.second), (Some(site), Some(site)), "v{value}");
    }
}

/// Functions that the plan adds are not among the functions and data objects of the unit, and are
/// distinguished from them.
#[test]
fn a_private_copy_is_no_data_object() {
    // Large enough for a private copy to pay.
    let steps = "    debugtrap\n".repeat(50);
    let text =
        |own: u32| format!("function u0:{own}() tail {{\nblock0:\n{steps}    trap user1\n}}\n");
    let mut unit = unit(&(text(0) + &text(1) + &text(2)));
    unit.options.merge_limit = None;
    unit.options.target = Target::x86_64();
    for member in &mut unit.functions {
        member.attributes.linkage = Linkage::Preemptible;
    }
    let insignificant = DataAttributes {
        linkage: Linkage::Local,
        addresses: Addresses::Insignificant,
        ..DataAttributes::default()
    };
    unit.data = vec![data_member(0, 7, insignificant)];
    let plan = unit.plan();
    let [shared] = plan.new_bodies() else {
        panic!("{:?}", plan.new_bodies());
    };
    let symbol = plan.entry(shared.function()).symbol();
    let [first, second] = [symbol, &unit.data[0].symbol].map(|symbol| {
        parse_one(&format!(
            "function u0:0() -> i64 tail {{
    gv0 = symbol {symbol}
block0:
    v0 = symbol_value.i64 gv0
    return v0
}}"
        ))
    });
    let differ = |a: &Function, b: &Function| {
        let difference = first_difference(&plan, (at(0), a), (at(1), b), &unit.options);
        difference.expect("both can be walked").is_some()
    };
    assert!(!plan.is_cached(shared.function()));
    assert!(differ(&first, &second));
    assert!(!differ(&first, &first) && !differ(&second, &second));
}

/// The difference as seen from the other function.
fn mirrored(difference: Difference) -> Difference {
    let Difference { rule, first, second, references } = difference;
    Difference { rule, first: second, second: first, references: references.map(|(a, b)| (b, a)) }
}

/// A difference states something, and what it states is true.
fn check_difference(difference: &Difference, class: impl Fn(FunctionIndex) -> u32) {
    assert!(difference.first.is_some() || difference.second.is_some(), "{difference:?}");
    if let Some((a, b)) = difference.references {
        assert_eq!(difference.rule, Rule::Reference);
        assert_ne!(class(a), class(b), "{difference:?}");
    }
}
