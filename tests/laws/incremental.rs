//! Laws of incremental merging: a function that is merged into an emitted body equals it, and a
//! function that was emitted once is not emitted a second time.

use crate::support::{calls, free, parse_one, random};
use cranelift_codegen::ir::{Function, UserExternalName, UserFuncName};
use cranelift_mergefunc::incremental::{Increment, MergeCache};
use cranelift_mergefunc::{Attributes, Disposition, Merger, Options, Plan, Reason};
use std::collections::{BTreeMap, HashSet};
use testkit::unit::{Held, Member, Unit};

/// Plans `functions` after the earlier units of `cache`, and adds them to it.
fn emit(cache: &mut MergeCache, functions: &[Member], unit: &Unit) -> Plan {
    let (plan, increment) = plan_increment(cache, functions, unit);
    cache.extend(&increment);
    plan
}

fn plan_increment(cache: &MergeCache, functions: &[Member], unit: &Unit) -> (Plan, Increment) {
    let bodies: Vec<Function> = functions.iter().map(|member| member.body.clone()).collect();
    let mut merger = Merger::after(cache, unit.options);
    for member in functions {
        merger.add(member.symbol(), &member.body, member.attributes).expect("is added");
    }
    merger.plan_increment(&mut Held::new(&bodies).after(cache))
}

/// The body of each function after merging.
fn bodies(plan: &Plan, of: &mut BTreeMap<String, String>) {
    for (_, entry) in plan.entries().take(plan.added()) {
        let to = entry.disposition().representative();
        let body = to.map_or(entry.symbol(), |to| plan.entry(to).symbol());
        of.insert(entry.symbol().to_string(), body.to_string());
    }
}

#[test]
fn functions_merged_across_units_are_equal_in_one_unit() {
    random(|u| {
        let mut unit = Unit::random(u)?;
        unit.options.merge_limit = None;
        let one = unit.plan();
        let class = |symbol: &str| {
            let entry = one.entries().find(|(_, entry)| entry.symbol().to_string() == symbol);
            entry.map(|(_, entry)| entry.class())
        };
        let mut cache = MergeCache::new();
        let mut of = BTreeMap::new();
        // Functions that earlier units refer to are called by code that the pass does not see.
        let mut named = HashSet::new();
        let mut functions = unit.functions.clone();
        let mut rest = &mut functions[..];
        while !rest.is_empty() {
            let (batch, after) = rest.split_at_mut(u.int_in_range(1..=rest.len())?);
            for member in &mut *batch {
                member.attributes = member.attributes_after(&named);
            }
            named.extend(batch.iter().flat_map(Member::references));
            bodies(&emit(&mut cache, batch, &unit), &mut of);
            rest = after;
        }
        for (symbol, body) in &of {
            // Private copies have symbols of their own in each plan.
            if class(body).is_some() && !body.starts_with("u9:") {
                assert_eq!(class(symbol), class(body), "{symbol} has the body of {body}");
            }
        }
        Ok(())
    });
}

/// `func` under another number, with every reference to a function of the unit renumbered as well.
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
fn an_emitted_function_is_not_emitted_a_second_time() {
    random(|u| {
        let unit = Unit::random(u)?.redirect_only();
        let patchable =
            |member: &Member| member.body.dfg.ext_funcs.values().any(|callee| callee.patchable);
        if unit.functions.iter().any(|member| patchable(member) || member.points_inside()) {
            // Patchable calls, and references into a function, are compared by symbol.
            return Ok(());
        }
        let mut cache = MergeCache::new();
        emit(&mut cache, &unit.functions, &unit);
        let again: Vec<Member> = unit
            .functions
            .iter()
            .map(|member| Member { body: renumbered(&member.body, 100), ..member.clone() })
            .collect();
        let plan = emit(&mut cache, &again, &unit);
        for (_, entry) in plan.entries().take(plan.added()) {
            match entry.disposition() {
                Disposition::Redirect { to } => assert!(plan.is_cached(to), "{}", entry.symbol()),
                other => panic!("{}: {other:?}", entry.symbol()),
            }
        }
        Ok(())
    });
}

/// Plans functions one by one, and returns the disposition and reason of the last one.
#[track_caller]
pub fn last(texts: &[&str], attributes: Attributes) -> (&'static str, Reason) {
    let unit = Unit { functions: Vec::new(), data: Vec::new(), options: Options::default() };
    let mut cache = MergeCache::new();
    let mut last = None;
    for text in texts {
        let members = [Member { attributes, body: parse_one(text) }];
        let plan = emit(&mut cache, &members, &unit);
        let entry = plan.entries().next().expect("one was added").1;
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
fn an_emitted_body_replaces_only_functions_with_the_same_facts() {
    let redirected = ("redirect", Reason::AddressInsignificant);
    assert_eq!(last(&[&loads(1, ""), &loads(2, "aligned")], free()).0, "keep");
    assert_eq!(last(&[&loads(1, "aligned"), &loads(2, "")], free()).0, "keep");
    // The second body is the one that the third function is merged into.
    let three = [&*loads(1, "aligned"), &loads(2, ""), &loads(3, "")];
    assert_eq!(last(&three, free()), redirected);
}

/// An emitted function calls a body with more facts than a later function has. Callers of the later
/// function must not be merged into the emitted caller.
#[test]
fn callers_of_functions_with_fewer_facts_are_not_merged_into_emitted_callers() {
    let (strong, weak) = ("aligned readonly", "aligned");
    let redirected = ("redirect", Reason::AddressInsignificant);
    let cache = [loads(1, strong), calls(2, 1)];
    let texts = |more: [String; 2]| [cache.clone(), more].concat();
    let last_of = |more| last(&texts(more).iter().map(|text| &**text).collect::<Vec<_>>(), free());
    assert_eq!(last_of([loads(3, strong), calls(4, 3)]), redirected);
    assert_eq!(last_of([loads(3, weak), calls(4, 3)]).0, "keep");
    // Its callee is of the first class.
    let mut more = texts([loads(3, weak), calls(4, 3)]).to_vec();
    more.extend([loads(5, strong), calls(6, 5)]);
    let texts: Vec<&str> = more.iter().map(|text| &**text).collect();
    assert_eq!(last(&texts, free()), redirected);
}

#[test]
fn a_key_keeps_functions_apart_across_units() {
    let unit = Unit { functions: Vec::new(), data: Vec::new(), options: Options::default() };
    let mut cache = MergeCache::new();
    let mut kept = Vec::new();
    for (own, key) in [(1, 0), (2, 7), (3, 7)] {
        let attributes = Attributes { key, ..free() };
        let members = [Member { attributes, body: parse_one(&loads(own, "")) }];
        let plan = emit(&mut cache, &members, &unit);
        kept.push(plan.entries().next().expect("one was added").1.disposition().name());
    }
    assert_eq!(kept, ["keep", "keep", "redirect"]);
}

/// A table, and a function that takes its address.
pub fn table_user(cache: &mut MergeCache, number: u32, alignment: u64) -> Plan {
    use cranelift_mergefunc::data::{Contents, DataAttributes, DataIndex, DataObject};
    use cranelift_mergefunc::{Addresses, Bodies, FunctionIndex, Linkage};
    struct One(Function, DataObject);
    impl Bodies for One {
        fn body(&mut self, _: FunctionIndex) -> &Function {
            &self.0
        }

        fn data(&mut self, _: DataIndex) -> Option<&DataObject> {
            Some(&self.1)
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
    let mut merger = Merger::after(cache, Options::default());
    merger.add(UserExternalName::new(0, number), &func, free()).expect("is added");
    merger.add_data(UserExternalName::new(1, number), &table, attributes).expect("is added");
    let (plan, increment) = merger.plan_increment(&mut One(func, table));
    cache.extend(&increment);
    plan
}

#[test]
fn a_function_over_a_more_aligned_table_is_not_merged_into_one_over_a_less_aligned() {
    let mut cache = MergeCache::new();
    let mut dispositions = Vec::new();
    for (number, alignment) in [(1, 8), (2, 8), (3, 64), (4, 8), (5, 64)] {
        let plan = table_user(&mut cache, number, alignment);
        let function = plan.entries().next().expect("one").1.disposition().name();
        let data = plan.data_entries().next().expect("one").1.disposition().name();
        dispositions.push((function, data));
    }
    let (keep, redirect) = (("keep", "keep"), ("redirect", "redirect"));
    assert_eq!(dispositions, [keep, redirect, keep, redirect, redirect]);
}

/// Plans functions under their attributes, after the earlier units of `cache`.
pub fn emit_with(cache: &mut MergeCache, functions: &[(String, Attributes)]) -> Plan {
    let (plan, increment) = increment_with(cache, functions);
    cache.extend(&increment);
    plan
}

/// Plans these functions without adding them to the cache.
pub fn plan_with(cache: &MergeCache, functions: &[(String, Attributes)]) -> Plan {
    increment_with(cache, functions).0
}

fn increment_with(cache: &MergeCache, functions: &[(String, Attributes)]) -> (Plan, Increment) {
    let unit = Unit { functions: Vec::new(), data: Vec::new(), options: Options::default() };
    let member = |(text, attributes): &(String, Attributes)| {
        let body = parse_one(text);
        crate::support::verify(&body);
        Member { attributes: *attributes, body }
    };
    plan_increment(cache, &functions.iter().map(member).collect::<Vec<_>>(), &unit)
}

/// The disposition of `u0:own`, and the symbol of the body.
pub fn becomes(plan: &Plan, own: u32) -> (&'static str, u32) {
    let function = plan.function(&UserExternalName::new(0, own)).expect("of the unit");
    let disposition = plan.entry(function).disposition();
    let to = disposition.representative().unwrap_or(function);
    (disposition.name(), plan.entry(to).symbol().index)
}

pub fn leaf(own: u32) -> String {
    format!("function u0:{own}(i64) -> i64 tail {{\nblock0(v0: i64):\n    return v0\n}}")
}

pub fn passes_on(own: u32, callee: u32) -> String {
    format!(
        "function u0:{own}(i64) -> i64 tail {{
    fn0 = u0:{callee}(i64) -> i64 tail
block0(v0: i64):
    v1 = call fn0(v0)
    return v1
}}"
    )
}

pub fn address_of(own: u32, callee: u32) -> String {
    format!(
        "function u0:{own}() -> i64 tail {{
    fn0 = u0:{callee}(i64) -> i64 tail
block0:
    v0 = func_addr.i64 fn0
    return v0
}}"
    )
}

/// A function that calls an emitted function and one that calls an equal function of the unit are
/// in two classes of the unit that equal one emitted class. Both are merged into the same body, and
/// a plan in which that body is called instead of a member that is kept is right.
#[test]
fn two_classes_of_a_unit_can_equal_one_emitted_class() {
    let mut cache = MergeCache::new();
    emit_with(&mut cache, &[(leaf(1), free()), (passes_on(2, 1), free())]);
    let pinned = Attributes { pinned: true, ..free() };
    let plan = emit_with(
        &mut cache,
        &[
            (passes_on(11, 1), free()),
            (leaf(12), free()),
            (passes_on(13, 12), free()),
            (passes_on(14, 12), pinned),
            (passes_on(15, 13), free()),
            (passes_on(16, 14), free()),
        ],
    );
    let all = [11, 12, 13, 14, 15, 16].map(|own| becomes(&plan, own));
    let redirects = |to| ("redirect", to);
    let expected =
        [redirects(2), redirects(1), redirects(2), ("keep", 14), ("keep", 15), redirects(15)];
    assert_eq!(all, expected);
}

/// An emitted class has two bodies: one at any address, whose own address is not compared by class,
/// and one that must stay and is aligned. Code that takes the address of the aligned one equals
/// code that takes the address of any other function of the class, so none of these addresses may
/// be redirected to the first body.
#[test]
fn an_address_compared_by_class_is_not_redirected_to_a_less_aligned_body() {
    let mut cache = MergeCache::new();
    let aligned = Attributes { pinned: true, alignment: 64, ..free() };
    emit_with(&mut cache, &[(leaf(1), Attributes::default()), (leaf(2), aligned)]);
    let plan = emit_with(
        &mut cache,
        &[
            (leaf(11), free()),
            (leaf(12), aligned),
            (address_of(13, 11), free()),
            (address_of(14, 12), free()),
        ],
    );
    assert_eq!([13, 14].map(|own| becomes(&plan, own)), [("keep", 13), ("redirect", 13)]);
    assert_eq!(becomes(&plan, 11), ("keep", 11));
    let function = plan.function(&UserExternalName::new(0, 11)).expect("of the unit");
    assert_eq!(plan.entry(function).alignment(), 64);
    // An address that is not compared by class can be that of either body.
    let only_called =
        Attributes { addresses: cranelift_mergefunc::Addresses::Significant, ..free() };
    let plan = emit_with(&mut cache, &[(leaf(21), only_called)]);
    assert_eq!(becomes(&plan, 21), ("redirect", 1));
}

/// The target of a reference is looked up when it is compared: the symbol may be defined after the
/// code that refers to it.
#[test]
fn a_function_that_took_an_address_before_it_was_defined_is_found() {
    let taken = Attributes { address_taken: true, externally_called: true, ..free() };
    let mut cache = MergeCache::new();
    emit_with(&mut cache, &[(address_of(1, 2), free())]);
    emit_with(&mut cache, &[(leaf(2), taken)]);
    let plan = emit_with(&mut cache, &[(leaf(3), free()), (address_of(4, 3), free())]);
    assert_eq!([3, 4].map(|own| becomes(&plan, own)), [("redirect", 2), ("redirect", 1)]);
    // Not if that address is its own.
    let significant =
        Attributes { addresses: cranelift_mergefunc::Addresses::Significant, ..taken };
    let mut cache = MergeCache::new();
    emit_with(&mut cache, &[(address_of(1, 2), free())]);
    emit_with(&mut cache, &[(leaf(2), significant)]);
    let plan = emit_with(&mut cache, &[(leaf(3), free()), (address_of(4, 3), free())]);
    assert_eq!([3, 4].map(|own| becomes(&plan, own)), [("redirect", 2), ("keep", 4)]);
}
