//! Laws about size: nothing recurses over its input, and nothing is quadratic in it.
//!
//! There is no clock here: a test that needs minutes instead of a second is noticed without one.
//! Stacks are small on purpose.

use crate::support::{encode, free, parse_one, plan_of, test_symbol, walk_all};
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::{
    Block, Function, GlobalValueData, InstBuilder, InstructionData, Opcode, UserExternalName,
    UserExternalNameRef, types,
};
use cranelift_mergefunc::check::prove;
use cranelift_mergefunc::explain::{first_difference, structural_hash};
use cranelift_mergefunc::{Bodies, Compare, Disposition, FunctionIndex, Merger, Options, Plan};
use std::collections::BTreeSet;

/// Runs a test with half a megabyte of stack, a quarter of what threads have by default.
fn with_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(test);
    if let Err(panic) = thread.expect("a thread").join() {
        std::panic::resume_unwind(panic);
    }
}

/// `block0` jumps to `block1`, that to `block2`, and so on; the last one returns. Laid out
/// backwards if so desired.
fn chain_of_blocks(count: usize, backwards: bool) -> Function {
    let mut func =
        parse_one("function u0:0(i64) -> i64 tail {\nblock0(v0: i64):\n    return v0\n}");
    let entry = func.layout.entry_block().expect("has a body");
    let end = func.layout.first_inst(entry).expect("returns");
    func.layout.remove_inst(end);
    let mut blocks = vec![entry];
    blocks.extend((1..count).map(|_| func.dfg.make_block()));
    let order: Vec<Block> = match backwards {
        true => blocks[1..].iter().rev().copied().collect(),
        false => blocks[1..].to_vec(),
    };
    order.into_iter().for_each(|block| func.layout.append_block(block));
    for pair in blocks.windows(2) {
        FuncCursor::new(&mut func).at_bottom(pair[0]).ins().jump(pair[1], &[]);
    }
    func.layout.append_inst(end, *blocks.last().expect("has the entry"));
    func
}

#[test]
fn many_blocks_are_walked_without_recursion() {
    with_small_stack(|| {
        let options = walk_all();
        let func = chain_of_blocks(200_000, false);
        let backwards = chain_of_blocks(200_000, true);
        let (a, b) = (encode(&func, &options), encode(&backwards, &options));
        assert_eq!(a, b);
        assert_eq!(a.instructions(), 200_000);
        assert_ne!(a, encode(&chain_of_blocks(200_001, false), &options));
    });
}

/// A function with `count` additions, one after the other.
fn chain_of_additions(count: usize) -> Function {
    let mut func =
        parse_one("function u0:0(i64) -> i64 tail {\nblock0(v0: i64):\n    return v0\n}");
    let entry = func.layout.entry_block().expect("has a body");
    let mut value = func.dfg.block_params(entry)[0];
    let mut cursor = FuncCursor::new(&mut func).at_first_insertion_point(entry);
    for _ in 0..count {
        value = cursor.ins().iadd(value, value);
    }
    func
}

#[test]
fn many_instructions_are_walked_without_recursion() {
    with_small_stack(|| {
        let func = chain_of_additions(1_000_000);
        let encoding = encode(&func, &walk_all());
        assert_eq!(encoding.instructions(), 1_000_001);
        assert!(encoding.size() < 100 << 20, "{} bytes", encoding.size());
        structural_hash(&encoding);
    });
}

#[test]
fn a_bucket_too_large_for_memory_is_merged_all_the_same() {
    with_small_stack(|| {
        // A bucket beyond 64 MiB of encodings is walked twice, hash by hash. Its size is estimated
        // from the tables of instructions, which count those that are nowhere laid out, too.
        let mut func = chain_of_additions(2);
        for _ in 0..600_000 {
            func.dfg.make_inst(InstructionData::NullAry { opcode: Opcode::Nop });
        }
        let mut functions = vec![func; 6];
        let entry = functions[3].layout.entry_block().expect("has a body");
        let addition = functions[3].layout.first_inst(entry).expect("adds");
        let sum = functions[3].dfg.first_result(addition);
        let next = functions[3].layout.next_inst(addition).expect("adds again");
        let param = functions[3].dfg.block_params(entry)[0];
        functions[3].dfg.inst_args_mut(next).copy_from_slice(&[sum, param]);
        let (plan, indices) = plan_of(&functions, Options::default());
        let classes: Vec<u32> = indices.iter().map(|&at| plan.entry(at).class()).collect();
        assert_eq!(classes, [0, 0, 0, 1, 0, 0]);
    });
}

#[test]
fn long_chains_of_aliases_and_global_values_are_followed_without_recursion() {
    with_small_stack(|| {
        let mut func = chain_of_additions(1);
        let entry = func.layout.entry_block().expect("has a body");
        let original = func.dfg.block_params(entry)[0];
        let mut last = original;
        for _ in 0..100_000 {
            let alias = cranelift_codegen::ir::Value::from_u32(func.dfg.num_values() as u32);
            func.dfg.make_invalid_value_for_parser();
            func.dfg.make_value_alias_for_serialization(last, alias);
            last = alias;
        }
        let addition = func.layout.first_inst(entry).expect("adds");
        func.dfg.inst_args_mut(addition)[1] = last;
        assert_eq!(encode(&func, &walk_all()), encode(&chain_of_additions(1), &walk_all()));

        let mut limit = func.create_global_value(GlobalValueData::VMContext);
        for at in 0..100_000i64 {
            let (offset, global_type) = (at.into(), types::I64);
            let data = GlobalValueData::IAddImm { base: limit, offset, global_type };
            limit = func.create_global_value(data);
        }
        func.stack_limit = Some(limit);
        let encoding = encode(&func, &walk_all());
        assert!(encoding.size() > 100_000);
    });
}

/// Many functions that are equal except for the one function that they call, built on demand.
struct Callers<F> {
    func: Function,
    callee: UserExternalNameRef,
    /// The symbol that a function calls.
    callee_of: F,
}

impl<F: Fn(u32) -> UserExternalName> Callers<F> {
    fn new(callee_of: F) -> Self {
        let func = parse_one(
            "function u0:0(i64) -> i64 tail {
    fn0 = u1:0(i64) -> i64 tail
block0(v0: i64):
    v1 = call fn0(v0)
    return v1
}",
        );
        let callee = UserExternalNameRef::from_u32(0);
        Callers { func, callee, callee_of }
    }

    /// Functions `u1000:0`, `u1000:1`, … in one unit.
    fn plan(&mut self, count: u32, every_function: bool) -> Plan {
        let compare = Compare { every_function, ..Compare::default() };
        let options = Options { compare, ..Options::default() };
        let mut merger = Merger::new(options);
        for index in 0..count {
            let body = self.body(FunctionIndex::from_u32(index));
            merger.add(test_symbol(index), body, free()).expect("is added");
        }
        merger.plan(self)
    }
}

impl<F: Fn(u32) -> UserExternalName> Bodies for Callers<F> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        let callee = (self.callee_of)(function.as_u32());
        self.func.params.reset_user_func_name(self.callee, callee);
        &self.func
    }
}

fn merged(plan: &Plan) -> usize {
    plan.entries().filter(|(_, entry)| entry.disposition() != Disposition::Keep).count()
}

#[test]
fn two_equal_call_chains_merge_to_the_end() {
    with_small_stack(|| {
        const LENGTH: u32 = 100_000;
        // Each function calls the next one of its chain; the ends call the same external function.
        let mut bodies = Callers::new(|index| match index % LENGTH == LENGTH - 1 {
            true => UserExternalName::new(1, 0),
            false => test_symbol(index + 1),
        });
        let plan = bodies.plan(2 * LENGTH, false);
        assert_eq!(merged(&plan), LENGTH as usize);
        for (function, entry) in plan.entries().take(LENGTH as usize) {
            let duplicate = FunctionIndex::from_u32(function.as_u32() + LENGTH);
            assert_eq!(entry.class(), plan.entry(duplicate).class());
            assert_eq!(plan.entry(duplicate).disposition(), Disposition::Redirect { to: function });
        }
    });
}

#[test]
fn call_chains_to_different_ends_do_not_merge() {
    with_small_stack(|| {
        const LENGTH: u32 = 50_000;
        let mut bodies = Callers::new(|index| match index % LENGTH == LENGTH - 1 {
            true => UserExternalName::new(1, index),
            false => test_symbol(index + 1),
        });
        let plan = bodies.plan(2 * LENGTH, false);
        assert_eq!(merged(&plan), 0);
        let (a, b) = (FunctionIndex::from_u32(0), FunctionIndex::from_u32(LENGTH));
        let bodies = [a, b].map(|function| bodies.body(function).clone());
        let options = Options::default();
        let difference = first_difference(&plan, (a, &bodies[0]), (b, &bodies[1]), &options);
        let next = |function: FunctionIndex| FunctionIndex::from_u32(function.as_u32() + 1);
        let difference = difference.expect("can be walked").expect("is one");
        assert_eq!(difference.references, Some((next(a), next(b))));
    });
}

#[test]
fn a_ring_of_calls_merges_to_one_function() {
    with_small_stack(|| {
        const LENGTH: u32 = 100_000;
        let mut bodies = Callers::new(|index| test_symbol((index + 1) % LENGTH));
        let plan = bodies.plan(LENGTH, true);
        prove(&plan, &mut bodies, &walk_all()).expect("is right");
        assert_eq!(merged(&plan), LENGTH as usize - 1);
        assert_eq!(plan.entries().map(|(_, entry)| entry.class()).max(), Some(0));
    });
}

#[test]
fn a_binary_tree_of_calls_merges_level_by_level() {
    with_small_stack(|| {
        // Function i is called by 2i + 1 and 2i + 2: many references go to few functions.
        const COUNT: u32 = (1 << 16) - 1;
        let mut bodies = Callers::new(|index| match index {
            0 => UserExternalName::new(1, 0),
            _ => test_symbol((index - 1) / 2),
        });
        let plan = bodies.plan(COUNT, false);
        let classes: BTreeSet<u32> = plan.entries().map(|(_, entry)| entry.class()).collect();
        assert_eq!(classes.len(), 16);
        assert_eq!(merged(&plan), COUNT as usize - 16);
    });
}
