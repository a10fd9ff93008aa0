//! The laws of every plan and of every unit to which one was applied. Tests and fuzz targets
//! share them.
//!
//! [`check_unit`] plans a unit, has the independent checker prove it, applies the plan as a back
//! end would, and checks the result ([`check_plan`]): nothing observable is lost, every kept
//! function passes the verifier, and every reference goes to something that still exists and is
//! equal to what the reference named before.

use crate::mutate::{Field, fields};
use crate::program::{Streamed, Streaming};
use crate::support::verify;
use crate::unit::{Held, Unit};
use cranelift_codegen::ir::{
    ExternalName, FuncRef, Function, GlobalValueData, Opcode, UserExternalName,
};
use cranelift_entity::EntityRef;
use cranelift_mergefunc::internals::encodings;
use cranelift_mergefunc::{
    Addresses, Attributes, Disposition, FunctionIndex, Linkage, Plan, Reason,
};
use std::collections::{BTreeMap, HashSet};

/// A unit to which its plan was applied.
pub struct Applied {
    /// The plan.
    pub plan: Plan,
    /// The functions that are still compiled.
    pub kept: BTreeMap<FunctionIndex, Function>,
}

/// Plans a unit, applies the plan, and panics if anything about it is wrong.
pub fn check_unit(unit: &Unit) -> Applied {
    let plan = unit.plan();
    if let Err(error) = unit.prove(&plan) {
        panic!("{error}");
    }
    check_plan(unit, plan)
}

/// Applies a plan that was made for `unit`, and panics if anything about it is wrong. Does not run
/// the checker.
pub fn check_plan(unit: &Unit, plan: Plan) -> Applied {
    let bodies = unit.bodies();
    check_dispositions(unit, &plan);
    let mut kept = BTreeMap::new();
    for (function, entry) in plan.entries() {
        if entry.disposition() == Disposition::Keep {
            let before = body_of(&plan, &bodies, function);
            let mut after = before.clone();
            let changed = plan.apply(function, &mut after);
            if !changed {
                assert_eq!(before.to_string(), after.to_string(), "says that nothing changed");
            }
            verify(&after);
            check_names(&plan, &after);
            check_encodings(unit, &plan, function);
            check_references(&plan, before, &after);
            kept.insert(function, after);
        }
    }
    Applied { plan, kept }
}

/// The walk through a view of a plan writes what a walk of the function writes after the plan is
/// applied.
fn check_encodings(unit: &Unit, plan: &Plan, function: FunctionIndex) {
    let bodies = &unit.bodies();
    let mut held = Held::new(bodies);
    let [viewed, applied] = encodings(plan, &mut held, function, &unit.options);
    assert_eq!(format!("{viewed:?}"), format!("{applied:?}"), "{function} through a view");
}

/// The body that a function has after merging: its own, that of another function for a private
/// copy, or a new one.
fn body_of<'a>(plan: &'a Plan, bodies: &'a [Function], function: FunctionIndex) -> &'a Function {
    match plan.new_body(function) {
        Some(new) => new.body(),
        None => &bodies[function.as_u32() as usize],
    }
}

/// Which symbols of the unit are referred to within the unit in a way that can be observed.
#[derive(Default)]
struct Observed {
    addresses: HashSet<UserExternalName>,
    patchable: HashSet<UserExternalName>,
}

impl Observed {
    fn of(unit: &Unit) -> Observed {
        let mut observed = Observed::default();
        for member in &unit.functions {
            let func = &member.body;
            for inst in func.layout.blocks().flat_map(|block| func.layout.block_insts(block)) {
                let mut data = func.dfg.insts[inst];
                let opcode = data.opcode();
                for field in fields(&mut data) {
                    match field {
                        Field::Callee(callee) if opcode == Opcode::FuncAddr => {
                            observed.addresses.extend(self::callee(func, *callee));
                        }
                        Field::Callee(callee) if func.dfg.ext_funcs[*callee].patchable => {
                            observed.patchable.extend(self::callee(func, *callee));
                        }
                        Field::Global(global) => {
                            observed
                                .addresses
                                .extend(symbol_of(func, &func.global_values[*global]));
                        }
                        _ => {}
                    }
                }
            }
        }
        for member in &unit.data {
            let targets = member.object.relocations.iter().map(|reloc| reloc.target.clone());
            observed.addresses.extend(targets);
        }
        observed
    }
}

fn user_symbol(func: &Function, name: &ExternalName) -> Option<UserExternalName> {
    match name {
        ExternalName::User(name) => Some(func.params.user_named_funcs()[*name].clone()),
        ExternalName::TestCase(_) | ExternalName::LibCall(_) | ExternalName::KnownSymbol(_) => None,
    }
}

fn callee(func: &Function, func_ref: FuncRef) -> Option<UserExternalName> {
    user_symbol(func, &func.dfg.ext_funcs[func_ref].name)
}

fn symbol_of(func: &Function, data: &GlobalValueData) -> Option<UserExternalName> {
    match data {
        GlobalValueData::Symbol { name, offset: _, colocated: _, tls: _ } => {
            user_symbol(func, name)
        }
        _ => None,
    }
}

/// No observable name or address is lost, and every representative may be one.
fn check_dispositions(unit: &Unit, plan: &Plan) {
    let observed = Observed::of(unit);
    for (function, entry) in plan.entries() {
        let Some(member) = unit.functions.get(function.as_u32() as usize) else {
            let is_new = plan.new_body(function).is_some();
            assert!(is_new, "{function} is neither of the unit nor new");
            assert_eq!(entry.disposition(), Disposition::Keep);
            continue;
        };
        let Attributes {
            linkage,
            addresses,
            address_taken,
            externally_called,
            pinned,
            no_merge,
            ..
        } = member.attributes;
        let symbol = member.symbol();
        assert_eq!(entry.symbol(), &symbol);
        assert_eq!(plan.function(&symbol), Some(function));
        assert!(entry.alignment() >= member.attributes.alignment);
        let patchable = observed.patchable.contains(&symbol);
        let taken = address_taken || observed.addresses.contains(&symbol);
        match entry.disposition() {
            Disposition::Keep => continue,
            Disposition::Redirect { to: _ } => {
                assert_eq!(linkage, Linkage::Local, "{symbol} is visible outside");
                assert!(!patchable, "{symbol} is called by calls that can be patched");
                assert!(!externally_called, "{symbol} is called by its symbol");
                assert!(!(taken && addresses == Addresses::Significant), "address of {symbol}");
                // A function of the unit that takes the address may be eliminated; names are
                // checked below.
                let extra = !entry.extra_arguments().is_empty();
                assert!(!(extra && address_taken), "address of {symbol}");
            }
            Disposition::Alias { to } => {
                assert!(unit.options.aliases);
                let only_called = linkage == Linkage::Local && externally_called && !taken;
                assert!(
                    only_called || addresses == Addresses::Insignificant,
                    "address of {symbol}"
                );
                assert!(plan.entry(to).alignment() >= member.attributes.alignment);
            }
            Disposition::Thunk { to: _ } => assert!(unit.options.target.jump_thunk.is_some()),
        }
        assert!(!pinned && !no_merge, "{symbol} must not be merged");
        let to = entry.disposition().representative().expect("is not kept");
        let representative = plan.entry(to);
        if !entry.extra_arguments().is_empty() {
            assert_eq!(representative.disposition(), Disposition::Keep);
            // The parameterised body, or a function of the unit that equals it.
            let new = unit.functions.get(to.as_u32() as usize).is_none();
            let reason = if new { Reason::ParameterisedBody } else { Reason::Representative };
            assert_eq!(representative.reason(), reason);
            continue;
        }
        // A thunk that passes extra arguments to another body may be a representative.
        let thunk = matches!(representative.disposition(), Disposition::Thunk { to: _ });
        if !thunk || representative.extra_arguments().is_empty() {
            assert_eq!(representative.disposition(), Disposition::Keep);
            let reasons = [Reason::Representative, Reason::ParameterisedBody];
            assert!(reasons.contains(&representative.reason()), "{}", representative.reason());
        }
        if plan.similar_sets().iter().all(|set| set.body.is_none()) {
            assert_eq!(representative.reason(), Reason::Representative);
            assert_eq!(representative.class(), entry.class());
        }
        if let Some(other) = unit.functions.get(to.as_u32() as usize) {
            assert_ne!(other.attributes.linkage, Linkage::Preemptible, "{symbol} jumps anywhere");
            assert!(!other.attributes.pinned && !other.attributes.no_merge);
        }
    }
}

/// Whether a symbol of the unit is still defined.
fn exists(plan: &Plan, function: FunctionIndex) -> bool {
    match plan.entry(function).disposition() {
        Disposition::Redirect { to: _ } => false,
        Disposition::Keep | Disposition::Alias { to: _ } | Disposition::Thunk { to: _ } => true,
    }
}

/// An applied function names no eliminated symbol, not even in an unused import or global value.
fn check_names(plan: &Plan, after: &Function) {
    let all = after.dfg.ext_funcs.keys().filter_map(|func_ref| callee(after, func_ref));
    let globals = after.global_values.values().filter_map(|data| symbol_of(after, data));
    for symbol in all.chain(globals) {
        if let Some(function) = plan.function(&symbol) {
            assert!(exists(plan, function), "{symbol} is eliminated, but named in\n{after}");
        }
        if let Some(data) = plan.data(&symbol) {
            let eliminated =
                matches!(plan.data_entry(data).disposition(), Disposition::Redirect { .. });
            assert!(!eliminated, "{symbol} is eliminated, but named in\n{after}");
        }
    }
}

/// Each reference of an applied function goes to what it named before, or to an equal function or
/// object.
fn check_references(plan: &Plan, before: &Function, after: &Function) {
    let blocks = before.layout.blocks();
    for inst in blocks.flat_map(|block| before.layout.block_insts(block)) {
        let (mut old, mut new) = (before.dfg.insts[inst], after.dfg.insts[inst]);
        let opcode = old.opcode();
        assert_eq!(opcode, new.opcode());
        for pair in fields(&mut old).into_iter().zip(fields(&mut new)) {
            match pair {
                (Field::Callee(&mut old), Field::Callee(&mut new)) => {
                    let (old_callee, new_callee) = (callee(before, old), callee(after, new));
                    if opcode == Opcode::FuncAddr {
                        check_import(before, old, after, new, 0);
                        check_address(plan, old_callee, new_callee);
                        continue;
                    }
                    let patchable = before.dfg.ext_funcs[old].patchable;
                    let extra = extra(plan, old_callee.clone(), new_callee.clone());
                    check_import(before, old, after, new, extra);
                    let passed = [before, after].map(|func| func.dfg.inst_args(inst).len());
                    assert_eq!(passed[0] + extra, passed[1]);
                    check_call(plan, old_callee, new_callee, patchable);
                }
                (Field::Global(&mut old), Field::Global(&mut new)) => {
                    let old = symbol_of(before, &before.global_values[old]);
                    check_address(plan, old, symbol_of(after, &after.global_values[new]));
                }
                _ => {}
            }
        }
    }
}

/// How many extra arguments a call passes that named one function and now names another.
fn extra(plan: &Plan, old: Option<UserExternalName>, new: Option<UserExternalName>) -> usize {
    match old.filter(|_| new.is_some()).and_then(|old| plan.function(&old)) {
        Some(function) if plan.call_target(function) != function => {
            plan.entry(function).extra_arguments().len()
        }
        _ => 0,
    }
}

/// Everything about an import stays except its name and this many extra parameters, and no fact
/// about it is added.
fn check_import(before: &Function, old: FuncRef, after: &Function, new: FuncRef, extra: usize) {
    let (old, new) = (&before.dfg.ext_funcs[old], &after.dfg.ext_funcs[new]);
    let mut signature = after.dfg.signatures[new.signature].clone();
    signature.params.truncate(signature.params.len() - extra);
    assert_eq!(before.dfg.signatures[old.signature], signature);
    assert_eq!(old.patchable, new.patchable);
    assert!(old.colocated || !new.colocated, "a callee became colocated");
}

/// A call goes where it went, or to the representative if that may replace the callee.
fn check_call(
    plan: &Plan,
    old: Option<UserExternalName>,
    new: Option<UserExternalName>,
    patchable: bool,
) {
    if old == new {
        return;
    }
    let (old, new) = (old.expect("was a user's symbol"), new.expect("is a user's symbol"));
    let function = plan.function(&old).expect("only symbols of the unit are redirected");
    assert!(!patchable, "{old}: a call that can be patched was redirected");
    // Calls of a preemptible function must reach the definition that preempts it, so only its thunk
    // may jump elsewhere.
    assert_eq!(plan.call_target(function), plan.function(&new).expect("of the unit"));
    assert_eq!(plan.entry(function).disposition().representative(), plan.function(&new));
}

/// An address stays, unless the function or data object at that address was eliminated.
fn check_address(plan: &Plan, old: Option<UserExternalName>, new: Option<UserExternalName>) {
    if old == new {
        return;
    }
    let (old, new) = (old.expect("was a user's symbol"), new.expect("is a user's symbol"));
    if let Some(data) = plan.data(&old) {
        let to = plan.data(&new).expect("of the unit");
        assert_eq!(plan.data_entry(data).disposition(), Disposition::Redirect { to });
        assert_eq!(plan.data_entry(data).class(), plan.data_entry(to).class());
        return;
    }
    let function = plan.function(&old).expect("only symbols of the unit are redirected");
    let to = plan.function(&new).expect("of the unit");
    assert_eq!(plan.entry(function).disposition(), Disposition::Redirect { to });
    assert_eq!(plan.address_target(function), Some(to));
}

/// Panics unless every function of a unit whose functions arrived one at a time has the code of a
/// function that is of its class, and only held functions, and those that equal one, share
/// parameterised bodies.
#[track_caller]
pub fn check_streamed(streamed: &Streamed) {
    let Streamed { plan, code_of, held, streaming } = streamed;
    for (function, &code) in (0..).map(FunctionIndex::from_u32).zip(code_of) {
        assert_eq!(code_of[code.as_u32() as usize], code, "{code} has no code");
        assert_eq!(plan.entry(function).class(), plan.entry(code).class(), "{function}");
    }
    for set in plan.similar_sets() {
        // Bodies may share one, too.
        let added = set.members.iter().filter_map(|member| code_of.get(member.index()));
        for code in added.filter(|_| matches!(streaming, Streaming::Holding(_))) {
            assert!(held[code.index()], "{code}");
        }
    }
}
