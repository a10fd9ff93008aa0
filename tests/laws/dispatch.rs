//! Laws of callee dispatch: a parameterised body finds the callee of each of its functions,
//! whatever the case numbers, by few comparisons.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{ExternalName, Function, Inst, InstructionData, Value};
use cranelift_mergefunc::check::{Mismatch, prove};
use cranelift_mergefunc::internals::with_body;
use cranelift_mergefunc::{
    Callees, Disposition, ExtraArgument, FunctionIndex, Options, Plan, Policy, Prove, Similar,
    Target, cranelift_codegen,
};
use std::collections::{BTreeMap, BTreeSet};
use testkit::check::{Applied, check_unit};
use testkit::support::{free, parse_one};
use testkit::unit::{Member, Unit, uniform};

/// The most cases of one dispatch.
const MOST: u32 = 16;

/// A function that calls `u1:callee` in a loop, and uses these constants, each with its type.
fn function(own: u32, callee: u32, constants: &[(&str, i64)]) -> Member {
    let text = format!(
        "function u0:{own}(i64, i64) -> i64 tail {{
    fn0 = u1:{callee}(i64) -> i64 tail
block0(v0: i64, v1: i64):
    jump block1(v0)
block1(v2: i64):
    v3 = call fn0(v2)\n"
    );
    Member { attributes: free(), body: parse_one(&(text + &rest(constants))) }
}

/// The code behind the call.
fn rest(constants: &[(&str, i64)]) -> String {
    let mut text = String::new();
    let mut last = "v3".to_string();
    for (at, (ty, constant)) in constants.iter().enumerate() {
        let [value, wide, sum] = [100, 200, 300].map(|first| format!("v{}", first + at));
        text += &format!("    {value} = iconst.{ty} {constant}\n");
        let operand = if *ty == "i64" { &value } else { &wide };
        if *ty != "i64" {
            text += &format!("    {wide} = uextend.i64 {value}\n");
        }
        text += &format!("    {sum} = iadd {last}, {operand}\n");
        last = sum;
    }
    for at in 0..30 {
        let [operation, next] =
            [["imul", "bxor", "rotl"][at % 3].to_string(), format!("v{}", 400 + at)];
        text += &format!("    {next} = {operation} {last}, v1\n");
        last = next;
    }
    text + &format!("    brif {last}, block1({last}), block2\nblock2:\n    return {last}\n}}\n")
}

fn unit(functions: Vec<Member>, policy: Policy, callees: Callees) -> Unit {
    let similar = Similar { policy, callees, ..Similar::default() };
    let options = Options {
        target: uniform(Target::x86_64()),
        similar,
        prove: Prove::Always,
        ..Options::default()
    };
    Unit { functions, data: Vec::new(), options }
}

/// The callee of a body when its last parameters are these, and how many branches lead to the call.
fn run(body: &Function, arguments: &[ExtraArgument]) -> ((u32, u32), usize) {
    let entry = body.layout.entry_block().expect("a body");
    let params = body.dfg.block_params(entry);
    let mut known: BTreeMap<Value, u64> = BTreeMap::new();
    for (&param, argument) in params[params.len() - arguments.len()..].iter().zip(arguments) {
        let ExtraArgument::Constant { bits, .. } = argument else { panic!("{argument:?}") };
        known.insert(param, *bits);
    }
    let (mut block, mut branches) = (entry, 0);
    loop {
        let insts: Vec<Inst> = body.layout.block_insts(block).collect();
        let mut next = None;
        for inst in insts {
            let known_of = |value| known.get(&body.dfg.resolve_aliases(value)).copied();
            match body.dfg.insts[inst] {
                InstructionData::UnaryImm { opcode: _, imm } => {
                    let result = body.dfg.first_result(inst);
                    let unused = 64 - body.dfg.value_type(result).bits();
                    known.insert(result, (imm.bits() as u64) << unused >> unused);
                }
                InstructionData::IntCompare { opcode: _, cond, args } => {
                    let [a, b] = args.map(|arg| known_of(arg).expect("known"));
                    assert_eq!(cond, IntCC::UnsignedLessThan);
                    known.insert(body.dfg.first_result(inst), u64::from(a < b));
                }
                InstructionData::Brif { opcode: _, arg, blocks: [then, otherwise] } => {
                    branches += 1;
                    let taken = if known_of(arg).expect("known") != 0 { then } else { otherwise };
                    next = Some(taken.block(&body.dfg.value_lists));
                }
                InstructionData::Jump { opcode: _, destination } => {
                    next = Some(destination.block(&body.dfg.value_lists));
                }
                InstructionData::Call { opcode: _, args: _, func_ref } => {
                    let ExternalName::User(name) = body.dfg.ext_funcs[func_ref].name else {
                        panic!("a name of another kind");
                    };
                    let name = &body.params.user_named_funcs()[name];
                    return ((name.namespace, name.index), branches);
                }
                ref other => panic!("before the call: {other:?}"),
            }
        }
        block = next.expect("a branch");
    }
}

/// Panics unless every function of the unit shares a body that calls its own callee, by a balanced
/// search.
fn assert_dispatched(plan: &Plan, kept: &BTreeMap<FunctionIndex, Function>, callees: &[u32]) {
    for (at, &callee) in callees.iter().enumerate() {
        let entry = plan.entry(FunctionIndex::from_u32(at as u32));
        let Disposition::Redirect { to } = entry.disposition() else {
            panic!("{:?}: {:?}", entry.disposition(), entry.reason());
        };
        let body = &kept[&to];
        let members = plan.similar_sets().iter().find(|set| set.body == Some(to));
        let cases: BTreeSet<u32> = members
            .expect("a set")
            .members
            .iter()
            .map(|member| callees[member.as_u32() as usize])
            .collect();
        let (called, branches) = run(body, entry.extra_arguments());
        assert_eq!(called, (1, callee), "{body}");
        // To the loop, too.
        let most = cases.len().next_power_of_two().trailing_zeros() as usize;
        assert!(branches <= most, "{branches} branches for {} cases\n{body}", cases.len());
    }
}

/// Every number of cases, by a case number.
#[test]
fn every_case_calls_its_own_callee() {
    for count in 2..=MOST {
        let callees: Vec<u32> = (0..count).map(|own| own * 7 % 31).collect();
        let functions = (0..).zip(&callees).map(|(own, &callee)| function(own, callee, &[]));
        let unit = unit(functions.collect(), Policy::Size, Callees::Dispatch);
        let Applied { plan, kept } = check_unit(&unit);
        assert_eq!(plan.new_bodies().len(), 1, "{count}");
        assert_dispatched(&plan, &kept, &callees);
    }
}

/// A constant that serves as the case number is ordered as a number without a sign, of its own
/// width, wherever zero is among the cases.
#[test]
fn constants_of_every_width_are_searched() {
    let wide = [i64::MIN, -1, 0, 1, i64::MAX, 1 << 32, (1 << 32) + 1];
    let narrow = [-128, -1, 127, 0, 1, 64, -64];
    for (ty, constants) in [("i64", wide), ("i32", narrow), ("i16", narrow), ("i8", narrow)] {
        for first in 0..constants.len() {
            for count in 2..=constants.len() {
                let chosen: Vec<i64> =
                    (0..count).map(|at| constants[(first + at) % constants.len()]).collect();
                let functions = (0..).zip(&chosen);
                let functions = functions.map(|(own, &bits)| function(own, own, &[(ty, bits)]));
                let unit = unit(functions.collect(), Policy::Size, Callees::Dispatch);
                let Applied { plan, kept } = check_unit(&unit);
                let extra = plan.entry(FunctionIndex::from_u32(0)).extra_arguments();
                assert_eq!(extra.len(), 1, "the constant is the case number");
                let callees: Vec<u32> = (0..count as u32).collect();
                assert_dispatched(&plan, &kept, &callees);
            }
        }
    }
}

/// The sets of functions that share a body, by symbol.
fn sets(plan: &Plan) -> BTreeSet<Vec<u32>> {
    let symbol = |&function: &FunctionIndex| plan.entry(function).symbol().index;
    let paying = plan.similar_sets().iter().filter(|set| set.body.is_some());
    paying.map(|set| set.members.iter().map(symbol).collect()).collect()
}

/// More callees in a loop than one dispatch can have are divided among as few bodies as possible,
/// evenly, in any order of the functions. Once, such functions were not merged at all.
#[test]
fn too_many_callees_are_divided_evenly() {
    for count in [MOST, MOST + 1, 2 * MOST, 2 * MOST + 1, 5 * MOST - 1] {
        let callees: Vec<u32> = (0..count).collect();
        let functions: Vec<Member> =
            (0..).zip(&callees).map(|(own, &callee)| function(own, callee, &[])).collect();
        let forwards = unit(functions, Policy::Balanced, Callees::Indirect);
        let Applied { plan, kept } = check_unit(&forwards);
        let sets_forwards = sets(&plan);
        assert_eq!(sets_forwards.len(), count.div_ceil(MOST) as usize, "{count}");
        let sizes: BTreeSet<usize> = sets_forwards.iter().map(Vec::len).collect();
        assert!(sizes.last().expect("one") - sizes.first().expect("one") <= 1, "{sizes:?}");
        assert_dispatched(&plan, &kept, &callees);

        let mut backwards = forwards;
        backwards.functions.reverse();
        assert_eq!(sets(&backwards.plan()), sets_forwards, "{count} in the opposite order");
    }
}

/// Functions with the same callee stay together, and functions that agree in another constant do
/// where that saves more: each body takes as few extra arguments as possible.
#[test]
fn groups_agree_in_other_columns() {
    // Two constants for each callee, of which one decides the group.
    let functions = (0..4 * MOST).map(|own| {
        let (callee, other) = (own % (2 * MOST), i64::from(own / (2 * MOST)));
        function(own, callee, &[("i64", 1000 + other), ("i64", 2000 + 3 * other)])
    });
    let unit = unit(functions.collect(), Policy::Balanced, Callees::Indirect);
    let Applied { plan, kept } = check_unit(&unit);
    let callees: Vec<u32> = (0..4 * MOST).map(|own| own % (2 * MOST)).collect();
    for set in plan.similar_sets().iter().filter(|set| set.body.is_some()) {
        let called: BTreeSet<u32> =
            set.members.iter().map(|member| callees[member.as_u32() as usize]).collect();
        assert!(called.len() <= MOST as usize);
        assert!(set.members.len() >= MOST as usize, "{:?}", set.members);
    }
    let merged = (0..4 * MOST).filter(|&own| {
        let entry = plan.entry(FunctionIndex::from_u32(own));
        matches!(entry.disposition(), Disposition::Redirect { .. })
    });
    assert_eq!(merged.count(), 4 * MOST as usize);
    assert!(kept.len() <= 4, "{} bodies", kept.len());
}

/// Bodies that dispatch can share a body in turn, whose ways then pass on what they compare: which
/// call is reached follows from the extra arguments. The checker did not follow such a branch, and
/// refused right plans.
#[test]
fn a_body_may_branch_on_what_its_ways_pass_on() {
    let functions: Vec<Member> = (0..2).map(|own| function(own, own, &[])).collect();
    let unit = unit(functions, Policy::Size, Callees::Dispatch);
    let plan = unit.plan();
    let [new] = plan.new_bodies() else { panic!("one body") };

    let body = |callees: [u32; 2]| {
        let [first, second] = callees;
        let text = format!(
            "function u0:0(i64, i64, i32) -> i64 tail {{
    fn0 = u1:{first}(i64) -> i64 tail
    fn1 = u1:{second}(i64) -> i64 tail
block0(v0: i64, v1: i64, v9: i32):
    jump block1(v0)
block1(v2: i64):
    brif v9, block11, block10
block10:
    v500 = iconst.i32 5
    v501 = icmp eq v9, v500
    jump block12(v501)
block11:
    v502 = iconst.i32 0
    v503 = icmp ult v502, v9
    jump block12(v503)
block12(v504: i8):
    brif v504, block13, block14
block13:
    v505 = call fn1(v2)
    jump block15(v505)
block14:
    v506 = call fn0(v2)
    jump block15(v506)
block15(v3: i64):\n"
        );
        parse_one(&(text + &rest(&[])))
    };
    let bodies: Vec<Function> = unit.functions.iter().map(|member| member.body.clone()).collect();
    let proved = |callees| {
        let plan = with_body(plan.clone(), new.function(), body(callees));
        prove(&plan, &mut &bodies[..], &unit.options).map(drop).map_err(|error| error.mismatch)
    };
    assert_eq!(proved([0, 1]), Ok(()));
    assert_eq!(proved([1, 0]), Err(Mismatch::Reference));
}
