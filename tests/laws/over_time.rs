//! Laws: units that come after others. What is merged into a body that was emitted before equals it,
//! and what was emitted once is not emitted again.

use crate::support::{free, parse_one, random};
use crate::units::{Held, Member, Unit};
use cranelift_codegen::ir::{Function, UserExternalName, UserFuncName};
use cranelift_mergefunc::{Attributes, Disposition, Emitted, Merger, Options, Plan, Reason};
use std::collections::BTreeMap;

/// Plans `functions` after what was emitted, and adds them to it.
fn emit(emitted: &mut Emitted, functions: &[Member], unit: &Unit) -> Plan {
    let bodies: Vec<Function> = functions.iter().map(|member| member.body.clone()).collect();
    let mut merger = Merger::after(emitted, unit.options);
    for member in functions {
        merger.add(member.symbol(), &member.body, member.attributes).expect("is added");
    }
    let plan = merger.plan(&mut Held::new(&bodies, unit.code_size));
    emitted.extend(&plan);
    plan
}

/// The body that each function ended up with.
fn bodies(plan: &Plan, of: &mut BTreeMap<String, String>) {
    for (_, entry) in plan.entries().take(plan.added()) {
        let to = entry.disposition().representative();
        let body = to.map_or(entry.symbol(), |to| plan.entry(to).symbol());
        of.insert(entry.symbol().to_string(), body.to_string());
    }
}

#[test]
fn what_is_merged_over_time_is_equal_in_one_unit() {
    random(|u| {
        let mut unit = Unit::random(u)?;
        unit.options.merge_limit = None;
        let one = unit.plan();
        let class = |symbol: &str| {
            let entry = one.entries().find(|(_, entry)| entry.symbol().to_string() == symbol);
            entry.map(|(_, entry)| entry.class())
        };
        let mut emitted = Emitted::new();
        let mut of = BTreeMap::new();
        let mut rest = &unit.functions[..];
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(u.int_in_range(1..=rest.len())?);
            bodies(&emit(&mut emitted, batch, &unit), &mut of);
            rest = after;
        }
        for (symbol, body) in &of {
            // Shared bodies have symbols of their own in each plan.
            if class(body).is_some() && !body.starts_with("u9:") {
                assert_eq!(class(symbol), class(body), "{symbol} has the body of {body}");
            }
        }
        Ok(())
    });
}

/// `func` under another number, with every reference to a function of the unit sent along.
fn renumbered(func: &Function, by: u32) -> Function {
    let mut func = func.clone();
    let new = |symbol: &UserExternalName| match symbol.namespace {
        0 => UserExternalName::new(0, symbol.index + by),
        _ => symbol.clone(),
    };
    func.name = UserFuncName::User(new(func.name.get_user().expect("named by number")));
    for (name_ref, symbol) in func.params.user_named_funcs().clone().iter() {
        func.params.reset_user_func_name(name_ref, new(symbol));
    }
    func
}

#[test]
fn what_was_emitted_is_not_emitted_again() {
    random(|u| {
        let unit = Unit::random(u)?.redirect_only();
        let patchable =
            |member: &Member| member.body.dfg.ext_funcs.values().any(|callee| callee.patchable);
        if unit.functions.iter().any(patchable) {
            // Calls that can be patched are compared by symbol.
            return Ok(());
        }
        let mut emitted = Emitted::new();
        emit(&mut emitted, &unit.functions, &unit);
        let again: Vec<Member> = unit
            .functions
            .iter()
            .map(|member| Member { body: renumbered(&member.body, 100), ..member.clone() })
            .collect();
        let plan = emit(&mut emitted, &again, &unit);
        for (_, entry) in plan.entries().take(plan.added()) {
            match entry.disposition() {
                Disposition::Redirect { to } => assert!(plan.is_emitted(to), "{}", entry.symbol()),
                other => panic!("{}: {other:?}", entry.symbol()),
            }
        }
        Ok(())
    });
}

/// Plans functions one by one, and tells what the last one becomes.
#[track_caller]
fn last(texts: &[&str], attributes: Attributes) -> (&'static str, Reason) {
    let unit = Unit { functions: Vec::new(), options: Options::default(), code_size: None };
    let mut emitted = Emitted::new();
    let mut last = None;
    for text in texts {
        let members = [Member { attributes, body: parse_one(text) }];
        let plan = emit(&mut emitted, &members, &unit);
        let entry = plan.entries().next().expect("one was added").1.clone();
        last = Some((entry.disposition().name(), entry.reason()));
    }
    last.expect("not empty")
}

fn counts_down(own: u32, callee: u32) -> String {
    format!(
        "function u0:{own}(i64) -> i64 tail {{
    fn0 = colocated u0:{callee}(i64) -> i64 tail
block0(v0: i64):
    v1 = iconst.i64 1
    v2 = isub v0, v1
    v3 = call fn0(v2)
    return v3
}}"
    )
}

#[test]
fn a_function_that_calls_its_recursive_equal_is_equal() {
    let redirected = ("redirect", Reason::AddressInsignificant);
    assert_eq!(last(&[&counts_down(1, 1), &counts_down(2, 2)], free()), redirected);
    assert_eq!(last(&[&counts_down(1, 1), &counts_down(2, 1)], free()), redirected);
}

#[test]
fn an_undefined_callee_equals_only_itself() {
    let redirected = ("redirect", Reason::AddressInsignificant);
    assert_eq!(last(&[&counts_down(1, 7), &counts_down(2, 7)], free()), redirected);
    assert_eq!(last(&[&counts_down(1, 7), &counts_down(2, 8)], free()).0, "keep");
}

fn loads(own: u32, flags: &str) -> String {
    format!(
        "function u0:{own}(i64) -> i64 tail {{
block0(v0: i64):
    v1 = load.i64 notrap {flags} v0+8
    return v1
}}"
    )
}

#[test]
fn an_emitted_body_stands_only_for_functions_that_promise_as_much() {
    let redirected = ("redirect", Reason::AddressInsignificant);
    assert_eq!(last(&[&loads(1, ""), &loads(2, "aligned")], free()), redirected);
    assert_eq!(last(&[&loads(1, "aligned"), &loads(2, "")], free()).0, "keep");
    // The second body is there for the third function.
    let three = [&*loads(1, "aligned"), &loads(2, ""), &loads(3, "")];
    assert_eq!(last(&three, free()), redirected);
}

#[test]
fn a_key_keeps_functions_apart_over_time() {
    let unit = Unit { functions: Vec::new(), options: Options::default(), code_size: None };
    let mut emitted = Emitted::new();
    let mut kept = Vec::new();
    for (own, key) in [(1, 0), (2, 7), (3, 7)] {
        let attributes = Attributes { key, ..free() };
        let members = [Member { attributes, body: parse_one(&loads(own, "")) }];
        let plan = emit(&mut emitted, &members, &unit);
        kept.push(plan.entries().next().expect("one was added").1.disposition().name());
    }
    assert_eq!(kept, ["keep", "keep", "redirect"]);
}

/// A table, and a function that takes its address.
fn table_user(emitted: &mut Emitted, number: u32, alignment: u64) -> Plan {
    use cranelift_mergefunc::{
        Addresses, Bodies, Contents, DataAttributes, DataIndex, DataObject, FunctionIndex, Linkage,
    };
    struct One(Function, DataObject);
    impl Bodies for One {
        fn body(&mut self, _: FunctionIndex) -> &Function {
            &self.0
        }
        fn data(&mut self, _: DataIndex) -> &DataObject {
            &self.1
        }
    }
    let func = parse_one(&format!(
        "function u0:{number}() -> i64 tail {{
    gv0 = symbol colocated u1:{number}
block0:
    v0 = symbol_value.i64 gv0
    return v0
}}"
    ));
    let contents = Contents::Bytes(vec![1, 2, 3]);
    let table = DataObject { contents, relocations: Vec::new(), section: None };
    let attributes = DataAttributes {
        linkage: Linkage::Local,
        addresses: Addresses::Insignificant,
        alignment,
        ..DataAttributes::default()
    };
    let mut merger = Merger::after(emitted, Options::default());
    merger.add(UserExternalName::new(0, number), &func, free()).expect("is added");
    merger.add_data(UserExternalName::new(1, number), &table, attributes).expect("is added");
    let plan = merger.plan(&mut One(func, table));
    emitted.extend(&plan);
    plan
}

#[test]
fn a_function_over_a_more_aligned_table_is_not_merged_into_one_over_a_less_aligned() {
    let mut emitted = Emitted::new();
    let mut dispositions = Vec::new();
    for (number, alignment) in [(1, 8), (2, 8), (3, 64), (4, 8), (5, 64)] {
        let plan = table_user(&mut emitted, number, alignment);
        let function = plan.entries().next().expect("one").1.disposition().name();
        let data = plan.data_entries().next().expect("one").1.disposition().name();
        dispositions.push((function, data));
    }
    let (keep, redirect) = (("keep", "keep"), ("redirect", "redirect"));
    assert_eq!(dispositions, [keep, redirect, keep, redirect, redirect]);
}
