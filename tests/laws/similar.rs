//! Laws: similar functions are the same up to the arguments of their group.

use crate::refused_plans::unit;
use crate::support::{Rng, parse_one};
use arbitrary::Unstructured;
use cranelift_codegen::ir::immediates::{Ieee16, Ieee32, Ieee64, Imm64, Offset32};
use cranelift_codegen::ir::{
    ConstantData, ExtFuncData, ExternalName, Function, GlobalValueData, Inst, InstructionData,
    UserExternalName,
};
use cranelift_mergefunc::fuzzing::generate::function::Profile;
use cranelift_mergefunc::fuzzing::generate::opcodes::Machine;
use cranelift_mergefunc::fuzzing::generate::unit::GeneratedUnit;
use cranelift_mergefunc::fuzzing::recipes::{Held, Unit};
use cranelift_mergefunc::{
    Argument, Attributes, Disposition, FunctionIndex, Group, Linkage, ParameterKind, Plan, Prove,
    first_difference, similar_groups,
};
use std::collections::BTreeSet;

fn groups(unit: &Unit, plan: &Plan) -> Vec<Group> {
    similar_groups(plan, &mut Held::new(&unit.bodies(), None), &unit.options)
}

/// Puts an argument where a parameter stands in `func`, which is to be `own`.
fn put(func: &mut Function, place: Inst, argument: &Argument, own: &UserExternalName) {
    use InstructionData as I;
    match argument {
        Argument::Constant(bits) => {
            let bytes = bits.to_le_bytes();
            let ty = func.dfg.value_type(func.dfg.first_result(place)).bytes() as usize;
            let constant = ConstantData::from(&bytes[..ty]);
            let pooled = func.dfg.constants.insert(constant);
            match &mut func.dfg.insts[place] {
                I::UnaryImm { imm, .. } => *imm = Imm64::new(*bits as i64),
                I::UnaryIeee16 { imm, .. } => *imm = Ieee16::with_bits(*bits as u16),
                I::UnaryIeee32 { imm, .. } => *imm = Ieee32::with_bits(*bits as u32),
                I::UnaryIeee64 { imm, .. } => *imm = Ieee64::with_bits(*bits as u64),
                I::UnaryConst { constant_handle, .. } => *constant_handle = pooled,
                other => panic!("no constant: {other:?}"),
            }
        }
        Argument::Offset(bytes) => match &mut func.dfg.insts[place] {
            I::Load { offset, .. } | I::Store { offset, .. } | I::StackAddr { offset, .. } => {
                *offset = Offset32::new(*bytes);
            }
            other => panic!("no offset: {other:?}"),
        },
        Argument::Itself | Argument::Callee(_) => {
            let symbol = match argument {
                Argument::Callee(symbol) => symbol,
                _ => own,
            };
            refer(func, place, symbol);
        }
        Argument::Address(symbol, bytes) => {
            if let I::FuncAddr { .. } = func.dfg.insts[place] {
                assert_eq!(*bytes, 0);
                return refer(func, place, symbol);
            }
            let name = ExternalName::User(func.params.ensure_user_func_name(symbol.clone()));
            let I::UnaryGlobalValue { global_value, .. } = func.dfg.insts[place] else {
                panic!("no address");
            };
            let mut data = func.global_values[global_value].clone();
            let GlobalValueData::Symbol { name: old, offset, .. } = &mut data else {
                panic!("no symbol");
            };
            (*old, *offset) = (name, Imm64::new(*bytes));
            let new = func.global_values.push(data);
            let I::UnaryGlobalValue { global_value, .. } = &mut func.dfg.insts[place] else {
                unreachable!();
            };
            *global_value = new;
        }
    }
}

/// Has a call or a use of an address refer to `symbol`.
fn refer(func: &mut Function, place: Inst, symbol: &UserExternalName) {
    use InstructionData as I;
    let name = ExternalName::User(func.params.ensure_user_func_name(symbol.clone()));
    let (I::Call { func_ref, .. } | I::TryCall { func_ref, .. } | I::FuncAddr { func_ref, .. }) =
        func.dfg.insts[place]
    else {
        panic!("no reference");
    };
    let ExtFuncData { signature, colocated, patchable, name: _ } =
        func.dfg.ext_funcs[func_ref].clone();
    let new = func.import_function(ExtFuncData { name, signature, colocated, patchable });
    let (I::Call { func_ref, .. } | I::TryCall { func_ref, .. } | I::FuncAddr { func_ref, .. }) =
        &mut func.dfg.insts[place]
    else {
        unreachable!();
    };
    *func_ref = new;
}

/// The direct calls of these functions, but for those that can be patched.
fn calls_of(func: &Function, is_one: impl Fn(&UserExternalName) -> bool) -> Vec<Inst> {
    use InstructionData as I;
    let insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
    let calls = insts.filter(|&inst| {
        let (I::Call { func_ref, .. } | I::TryCall { func_ref, .. }) = func.dfg.insts[inst] else {
            return false;
        };
        let callee = &func.dfg.ext_funcs[func_ref];
        match &callee.name {
            ExternalName::User(name) if !callee.patchable => {
                is_one(&func.params.user_named_funcs()[*name])
            }
            _ => false,
        }
    });
    calls.collect()
}

/// Whether a call to a function is one to any of its class.
fn is_called_by_class(unit: &Unit, callee: FunctionIndex) -> bool {
    let attributes = unit.functions[callee.as_u32() as usize].attributes;
    attributes.linkage != Linkage::Preemptible && !attributes.no_merge
}

/// The symbol of a function of a class that is called by its class.
fn one_by_class(unit: &Unit, plan: &Plan, class: u32) -> Option<UserExternalName> {
    let mut all = plan.entries().take(unit.functions.len());
    let one = all
        .find(|&(function, entry)| entry.class() == class && is_called_by_class(unit, function))?;
    Some(one.1.symbol().clone())
}

/// Panics unless each member of each group is the first one with its own arguments; how many members and
/// parameters there are.
fn check(unit: &Unit) -> [usize; 2] {
    let plan = unit.plan();
    let bodies = unit.bodies();
    let mut counts = [0; 2];
    let mut seen = BTreeSet::new();
    for group in groups(unit, &plan) {
        let first = group.members()[0];
        assert!(group.members().len() > 1);
        for (at, &member) in group.members().iter().enumerate() {
            assert!(seen.insert(member), "in two groups");
            assert_eq!(plan.entry(member).disposition(), Disposition::Keep);
            let mut func = bodies[first.as_u32() as usize].clone();
            // Where the first one calls itself, or one of its class, so does the member.
            let itself = one_by_class(unit, &plan, plan.entry(member).class());
            let itself = itself.unwrap_or_else(|| plan.entry(member).symbol().clone());
            let own = plan.entry(first).class();
            let is_itself = |callee: &UserExternalName| {
                plan.function(callee).is_some_and(|callee| {
                    plan.entry(callee).class() == own && is_called_by_class(unit, callee)
                })
            };
            for place in calls_of(&func, is_itself) {
                refer(&mut func, place, &itself);
            }
            for parameter in group.parameters() {
                for &place in parameter.places() {
                    put(&mut func, place, &parameter.arguments()[at], &itself);
                }
            }
            let body = &bodies[member.as_u32() as usize];
            let difference = first_difference(&plan, (first, &func), (member, body), &unit.options);
            assert_eq!(difference, Ok(None), "{func}\n{body}");
            counts[0] += 1;
        }
        for parameter in group.parameters() {
            let arguments = parameter.arguments();
            assert!(parameter.values() > 1);
            for (at, &first) in parameter.same_as().iter().enumerate() {
                assert!(first as usize <= at);
                assert_eq!(parameter.same_as()[first as usize], first);
            }
            assert_eq!(arguments.len(), group.members().len());
        }
        counts[1] += group.parameters().len();
    }
    counts
}

#[test]
fn members_are_the_first_with_their_arguments() {
    let mut counts = [0; 2];
    for seed in 0..60 {
        let bytes = Rng::new(seed).bytes(4096);
        let profile = Profile::all(Machine::X86_64);
        let GeneratedUnit { mut unit, .. } =
            GeneratedUnit::draw(&mut Unstructured::new(&bytes), &profile);
        unit.options.prove = Prove::Never;
        let [members, parameters] = check(&unit);
        counts = [counts[0] + members, counts[1] + parameters];
    }
    assert!(counts.iter().all(|&count| count > 20), "{counts:?}");
}

/// A function with two constants, two calls, an access, and an address.
fn function(
    own: u32,
    constants: [i64; 2],
    callees: [&str; 2],
    offset: u32,
    symbol: &str,
) -> String {
    format!(
        "function u0:{own}(i64) -> i64 tail {{
    fn0 = {}(i64) -> i64 tail
    fn1 = {}(i64) -> i64 tail
    gv0 = symbol {symbol}
block0(v0: i64):
    v1 = iconst.i64 {}
    v2 = iadd v0, v1
    v3 = call fn0(v2)
    v4 = iconst.i64 {}
    v5 = call fn1(v4)
    v6 = load.i64 notrap v3+{offset}
    v7 = symbol_value.i64 gv0
    v8 = isub v5, v7
    v9 = bxor v8, v6
    return v9
}}
",
        callees[0], callees[1], constants[0], constants[1]
    )
}

/// The kinds of the parameters of the only group, and at how many places each stands.
#[track_caller]
fn parameters(functions: &[String]) -> Vec<(ParameterKind, usize)> {
    let mut unit = unit(&functions.concat());
    unit.options.merge_limit = None;
    check(&unit);
    let groups = groups(&unit, &unit.plan());
    let [group] = &*groups else {
        panic!("{groups:?}");
    };
    assert_eq!(group.members().len(), functions.len());
    let of =
        |parameter: &cranelift_mergefunc::Parameter| (parameter.kind(), parameter.places().len());
    group.parameters().iter().map(of).collect()
}

#[test]
fn places_with_the_same_values_are_one_parameter() {
    use ParameterKind::{Address, Callee, Constant, Offset};
    let i64 = Constant(cranelift_codegen::ir::types::I64);
    let (x, y) = ("u7:1", "u7:2");
    let base = function(1, [1, 1], [x, x], 8, x);
    let all = [
        (function(2, [2, 1], [x, x], 8, x), vec![(i64, 1)]),
        (function(2, [2, 2], [x, x], 8, x), vec![(i64, 2)]),
        (function(2, [2, 3], [x, x], 8, x), vec![(i64, 1), (i64, 1)]),
        (function(2, [1, 1], [y, x], 8, x), vec![(Callee, 1)]),
        (function(2, [1, 1], [y, y], 8, x), vec![(Callee, 2)]),
        (function(2, [1, 1], [y, "u7:3"], 8, x), vec![(Callee, 1), (Callee, 1)]),
        (function(2, [1, 1], [x, x], 16, x), vec![(Offset, 1)]),
        (function(2, [1, 1], [x, x], 8, y), vec![(Address, 1)]),
        (function(2, [1, 1], [x, x], 8, "u7:1+4"), vec![(Address, 1)]),
        (
            function(2, [2, 1], [y, x], 16, y),
            vec![(i64, 1), (Callee, 1), (Offset, 1), (Address, 1)],
        ),
    ];
    for (other, expected) in all {
        assert_eq!(parameters(&[base.clone(), other.clone()]), expected, "{other}");
    }
    // A third one decides whether two places go together.
    let third = function(3, [2, 3], [x, x], 8, x);
    let second = function(2, [2, 2], [x, x], 8, x);
    assert_eq!(parameters(&[base, second, third]), [(i64, 1), (i64, 1)]);
}

#[test]
fn functions_that_call_themselves_are_similar_without_a_parameter_for_that() {
    let (x, y) = ("u7:1", "u7:2");
    let i64 = ParameterKind::Constant(cranelift_codegen::ir::types::I64);
    let recursive = |own: u32, constant: i64, symbol: &str| {
        function(own, [constant, 1], [&format!("u0:{own}"), x], 8, symbol)
    };
    assert_eq!(parameters(&[recursive(1, 1, x), recursive(2, 2, x)]), [(i64, 1)]);
    // One of them calls the other one.
    let other = function(2, [1, 1], ["u0:1", x], 8, y);
    let kinds = parameters(&[recursive(1, 1, x), other]);
    assert_eq!(kinds, [(ParameterKind::Callee, 1), (ParameterKind::Address, 1)]);
}

#[test]
fn what_cannot_be_a_parameter_keeps_functions_apart() {
    let (x, y) = ("u7:1", "u7:2");
    let base = function(1, [1, 1], [x, x], 8, x);
    let other = function(2, [1, 1], [y, x], 8, x);
    let count = |texts: [String; 2], attributes: Attributes| {
        let mut unit = unit(&texts.concat());
        for member in &mut unit.functions {
            member.attributes = Attributes { alignment: 1, ..attributes };
        }
        groups(&unit, &unit.plan()).len()
    };
    let free = crate::support::free();
    assert_eq!(count([base.clone(), other.clone()], free), 1);
    assert_eq!(count([base.clone(), other.clone()], Attributes { pinned: true, ..free }), 0);
    assert_eq!(count([base.clone(), other.clone()], Attributes { no_merge: true, ..free }), 0);
    // A libcall, a thread-local symbol, another operation.
    let libcall = other.replace("fn0 = u7:2", "fn0 = %Memcpy");
    assert_eq!(count([base.clone(), libcall.clone()], free), 0);
    assert_eq!(count([base.replace("fn0 = u7:1", "fn0 = %Memcmp"), libcall], free), 0);
    let tls = [base.clone(), other.clone()].map(|text| {
        text.replace("symbol u7", "symbol tls u7").replace("symbol_value", "tls_value")
    });
    assert_eq!(count(tls.clone(), free), 1);
    assert_eq!(count([tls[0].clone(), tls[1].replace("tls u7:1", "tls u7:2")], free), 0);
    assert_eq!(count([base, other.replace("isub", "ishl")], free), 0);
}

/// Nothing depends on the order in which functions are added.
#[test]
fn groups_are_the_same_in_any_order() {
    let texts: Vec<String> = (0..12)
        .map(|own| {
            let callee = format!("u7:{}", own % 3);
            let text = function(own, [i64::from(own % 4), 5], [&callee, "u7:1"], 8, "u7:9");
            if own % 2 == 0 { text } else { text.replace("bxor", "band") }
        })
        .collect();
    let described = |order: &[usize]| {
        let text: String = order.iter().map(|&at| &*texts[at]).collect();
        let unit = unit(&text);
        let plan = unit.plan();
        let symbol = |&member: &_| plan.entry(member).symbol().to_string();
        let describe = |group: &Group| {
            let members: Vec<String> = group.members().iter().map(symbol).collect();
            let arguments: Vec<_> =
                group.parameters().iter().map(|parameter| parameter.arguments().to_vec()).collect();
            (members, arguments)
        };
        groups(&unit, &plan).iter().map(describe).collect::<Vec<_>>()
    };
    let order: Vec<usize> = (0..12).collect();
    let expected = described(&order);
    assert_eq!(expected.len(), 2);
    for seed in 0..10 {
        let mut order = order.clone();
        let mut rng = Rng::new(seed);
        for at in (1..order.len()).rev() {
            order.swap(at, rng.below(at + 1));
        }
        assert_eq!(described(&order), expected);
    }
}

#[test]
fn a_function_that_is_alone_is_in_no_group() {
    let text = function(1, [1, 2], ["u7:1", "u7:2"], 8, "u7:3");
    parse_one(&text);
    let unit = unit(&text);
    assert!(groups(&unit, &unit.plan()).is_empty());
}
