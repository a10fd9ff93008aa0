//! Law: a single change of anything that matters makes functions different, and an irrelevant
//! change leaves them equal.

use crate::support::{
    assert_different, assert_equal, corpus, encode, free, parse_one, plan_of, same_class,
    test_symbol, walk_all,
};
use cranelift_codegen::ir::instructions::InstructionFormat;
use cranelift_codegen::ir::{
    Constant, Endianness, Function, InstructionData, Opcode, RelSourceLoc, UserStackMapEntry,
    Value, ValueLabel, ValueLabelAssignments, ValueLabelStart, types,
};
use cranelift_mergefunc::check::may_replace;
use cranelift_mergefunc::explain::{Encoding, first_difference};
use cranelift_mergefunc::{Attributes, Merger, Options, Target};
use std::collections::{BTreeMap, BTreeSet};
use testkit::mutate::function::function_mutants;
use testkit::mutate::{Mutant, instruction_mutants, mutants_of};
use testkit::permute::{Colocated, permuted};

/// Opcodes that `formats.clif` does not contain.
const NOT_IN_CORPUS: &[Opcode] = &[];

fn opcodes_of(func: &Function) -> impl Iterator<Item = Opcode> + '_ {
    let insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
    insts.map(|inst| func.dfg.insts[inst].opcode())
}

#[test]
fn the_corpus_has_every_format_and_opcode() {
    let functions = corpus();
    let opcodes: Vec<Opcode> = functions.iter().flat_map(opcodes_of).collect();
    let has = |opcode: &&Opcode| opcodes.contains(opcode);
    let missing: Vec<&Opcode> = Opcode::all().iter().filter(|opcode| !has(opcode)).collect();
    println!("{} of {} opcodes; missing: {missing:?}", Opcode::all().len() - missing.len(), 163);
    assert_eq!(missing, NOT_IN_CORPUS.iter().collect::<Vec<_>>());

    // By number, because the type has no list of its own and no order.
    let formats: BTreeSet<u8> =
        opcodes.iter().map(|opcode| format_number(opcode.format())).collect();
    assert_eq!(formats.into_iter().collect::<Vec<_>>(), (0..36).collect::<Vec<_>>());
}

/// Exhaustive, so that a new format is a compile error here.
fn format_number(format: InstructionFormat) -> u8 {
    use InstructionFormat as F;
    match format {
        F::AtomicCas => 0,
        F::AtomicRmw => 1,
        F::Binary => 2,
        F::BinaryImm8 => 3,
        F::BranchTable => 4,
        F::Brif => 5,
        F::Call => 6,
        F::CallIndirect => 7,
        F::CondTrap => 8,
        F::DynamicStackAddr => 9,
        F::ExceptionHandlerAddress => 10,
        F::FloatCompare => 11,
        F::FuncAddr => 12,
        F::IntAddTrap => 13,
        F::IntCompare => 14,
        F::Jump => 15,
        F::Load => 16,
        F::LoadNoOffset => 17,
        F::MultiAry => 18,
        F::NullAry => 19,
        F::Shuffle => 20,
        F::StackAddr => 21,
        F::Store => 22,
        F::StoreNoOffset => 23,
        F::Ternary => 24,
        F::TernaryImm8 => 25,
        F::Trap => 26,
        F::TryCall => 27,
        F::TryCallIndirect => 28,
        F::Unary => 29,
        F::UnaryConst => 30,
        F::UnaryGlobalValue => 31,
        F::UnaryIeee16 => 32,
        F::UnaryIeee32 => 33,
        F::UnaryIeee64 => 34,
        F::UnaryImm => 35,
    }
}

/// Panics unless each mutant differs from its original. Opcodes make most of the mutants, so only
/// the encodings of those are compared.
fn check_mutants(func: &Function, mutants: &[Mutant]) {
    let options = walk_all();
    let original = encode(func, &options);
    for Mutant { what, func: mutant } in mutants {
        if what.starts_with("opcode") {
            assert_ne!(Encoding::of(mutant, &options).as_ref(), Some(&original), "{what}\n{func}");
            continue;
        }
        assert_different(func, mutant, what);
        let functions = [func.clone(), mutant.clone()];
        let (plan, indices) = plan_of(&functions, options);
        let [a, b] = [0, 1].map(|at| (indices[at], &functions[at]));
        // A mutant that the verifier refuses may have no encoding at all.
        if let Ok(difference) = first_difference(&plan, a, b, &options) {
            assert!(difference.is_some(), "no difference: {what}\n{func}");
        }
    }
}

/// The mutated function is not only in the form that the generator writes: it has aliases, other
/// numbers, and unused entities.
#[test]
fn a_changed_instruction_of_another_form_differs() {
    let options = walk_all();
    let mut aliases = 0;
    for (seed, func) in corpus().iter().enumerate() {
        let func = permuted(func, Colocated::Keep, seed as u64);
        let original = encode(&func, &options);
        aliases +=
            func.dfg.values().filter(|&value| func.dfg.resolve_aliases(value) != value).count();
        // Unreachable blocks may have been added.
        let entry = func.layout.entry_block().expect("has a body");
        for inst in func.layout.block_insts(entry) {
            for Mutant { what, func: mutant } in mutants_of(&func, entry, inst) {
                let encoding = Encoding::of(&mutant, &options);
                assert_ne!(encoding.as_ref(), Some(&original), "{what}\n{func}");
            }
        }
    }
    assert!(aliases > 50, "{aliases}");
}

#[test]
fn a_changed_instruction_differs() {
    let mut count = 0;
    for func in corpus() {
        let mutants = instruction_mutants(&func);
        check_mutants(&func, &mutants);
        count += mutants.len();
    }
    println!("{count} mutants");
    assert!(count > 5_000, "only {count} mutants");
}

#[test]
fn a_changed_header_or_layout_differs() {
    for func in corpus() {
        let mutants = function_mutants(&func);
        assert!(mutants.len() > 20, "only {} mutants of\n{func}", mutants.len());
        check_mutants(&func, &mutants);
    }
}

#[test]
fn most_mutants_can_be_encoded() {
    // A mutant that cannot be encoded is not equal to anything, which is right and proves nothing.
    let options = walk_all();
    let (mut encoded, mut all) = (0, 0);
    for func in corpus() {
        for Mutant { what: _, func } in instruction_mutants(&func) {
            all += 1;
            encoded += usize::from(Encoding::of(&func, &options).is_some());
        }
    }
    println!("{encoded} of {all} mutants have an encoding");
    assert!(encoded * 100 > all * 98, "{encoded} of {all} mutants have an encoding");
}

#[test]
fn no_two_changes_are_taken_for_each_other() {
    // If a trap code were written as a flag that there is one, a mutant would still differ from its
    // original, but not from the next mutant.
    let options = walk_all();
    for func in corpus() {
        let mut seen: BTreeMap<Encoding, Mutant> = BTreeMap::new();
        for mutant in instruction_mutants(&func) {
            let encoding = Encoding::of(&mutant.func, &options).expect("has one");
            let what = mutant.what.clone();
            if let Some(other) = seen.insert(encoding, mutant) {
                // Which of two equal parameters is missing makes no difference.
                assert!(other.what.contains("removal"), "{what} and {}", other.what);
            }
        }
    }
}

#[test]
fn stack_map_entries_differ() {
    let base = parse_one(
        "function u0:0(i64) system_v {
    ss0 = explicit_slot 16
    ss1 = explicit_slot 24
    fn0 = u1:0(i64) system_v
block0(v0: i64):
    call fn0(v0)
    return
}",
    );
    let call = base.layout.first_inst(base.layout.entry_block().unwrap()).unwrap();
    let slots: Vec<_> = base.sized_stack_slots.keys().collect();
    let entry = |ty, slot: usize, offset| UserStackMapEntry { ty, slot: slots[slot], offset };
    let lists = [
        vec![],
        vec![entry(types::I64, 0, 0)],
        vec![entry(types::I32, 0, 0)],
        vec![entry(types::I64, 1, 0)],
        vec![entry(types::I64, 0, 8)],
        vec![entry(types::I64, 0, 0), entry(types::I64, 0, 8)],
        vec![entry(types::I64, 0, 8), entry(types::I64, 0, 0)],
        vec![entry(types::I64, 0, 0), entry(types::I64, 0, 0)],
    ];
    let functions = lists.map(|entries| {
        let mut func = base.clone();
        func.dfg.append_user_stack_map_entries(call, entries);
        func
    });
    for (at, func) in functions.iter().enumerate() {
        for other in &functions[at + 1..] {
            assert_different(func, other, "stack maps");
        }
    }
}

/// The optimiser may record that a value has the labels of another value, which may be defined
/// later.
#[test]
fn a_label_taken_from_a_later_value_can_be_compared() {
    let func = |label_of: u32| {
        let mut func = parse_one(
            "function u0:0(i64) -> i64 tail {
block0(v0: i64):
    v1 = iconst.i64 1
    v2 = iadd v0, v1
    return v2
}",
        );
        let from = RelSourceLoc::new(1);
        let labels = ValueLabelAssignments::Alias { from, value: Value::from_u32(label_of) };
        func.dfg.values_labels = Some([(Value::from_u32(1), labels)].into());
        func
    };
    let mut options = walk_all();
    options.compare.debug_info = true;
    let [earlier, later] = [func(0), func(2)];
    assert_ne!(encode(&earlier, &options), encode(&later, &options));
    assert!(same_class(&earlier, &earlier, options));
    assert!(same_class(&later, &later, options));
    assert_equal(&earlier, &later, "labels do not count without the policy");
}

/// The other value need not be computed at all: then its own labels count.
#[test]
fn a_label_taken_from_a_value_that_is_not_computed_can_be_compared() {
    let mut base = parse_one(
        "function u0:0(i64) -> i64 tail {
block0(v0: i64):
    v1 = iconst.i64 1
    v2 = iadd v0, v1
    v3 = bxor v0, v1
    v4 = bor v0, v1
    return v2
}",
    );
    for unused in [3, 4].map(Value::from_u32) {
        let inst = base.dfg.value_def(unused).unwrap_inst();
        base.layout.remove_inst(inst);
    }
    let from = RelSourceLoc::new(1);
    let taken_from = |value| ValueLabelAssignments::Alias { from, value: Value::from_u32(value) };
    let func = |of_3: u32, of_4: Option<u32>| {
        let mut func = base.clone();
        let label = ValueLabel::from_u32(of_3);
        let mut labels = BTreeMap::from([
            (Value::from_u32(1), taken_from(4)),
            (
                Value::from_u32(3),
                ValueLabelAssignments::Starts(vec![ValueLabelStart { from, label }]),
            ),
        ]);
        labels.extend(of_4.map(|of_4| (Value::from_u32(4), taken_from(of_4))));
        func.dfg.values_labels = Some(labels);
        func
    };
    let mut options = walk_all();
    options.compare.debug_info = true;
    let functions = [func(0, Some(3)), func(1, Some(3)), func(0, Some(2)), func(0, None)];
    for (at, one) in functions.iter().enumerate() {
        assert!(same_class(one, one, options));
        for other in &functions[at + 1..] {
            assert_ne!(encode(one, &options), encode(other, &options));
        }
    }
    assert_eq!(encode(&func(0, None), &options), encode(&func(1, None), &options));
    assert_eq!(Encoding::of(&func(0, Some(4)), &options), None, "a label of its own");
}

#[test]
fn a_constant_that_is_not_there_has_no_encoding() {
    let func = |constant: u32| {
        let mut func = parse_one(
            "function u0:0() -> i64x2 tail {
    const2 = 0x000102030405060708090a0b0c0d0e0f
block0:
    v0 = vconst.i64x2 const2
    return v0
}",
        );
        let inst = func.dfg.value_def(Value::from_u32(0)).unwrap_inst();
        let constant_handle = Constant::from_u32(constant);
        func.dfg.insts[inst] =
            InstructionData::UnaryConst { opcode: Opcode::Vconst, constant_handle };
        func
    };
    let has_encoding = |constant| Encoding::of(&func(constant), &walk_all()).is_some();
    assert_eq!([0, 1, 2, 3, 4].map(has_encoding), [false, false, true, false, false]);
}

#[test]
fn functions_with_different_keys_differ() {
    for func in corpus() {
        let classes = [0u64, 1, 1 << 63].map(|key| {
            let mut merger = Merger::new(walk_all());
            let keyed = Attributes { key, ..free() };
            let first = merger.add(test_symbol(0), &func, free()).unwrap();
            let second = merger.add(test_symbol(1), &func, keyed).unwrap();
            let plan = merger.plan(&mut vec![func.clone(), func.clone()]);
            (plan.entry(first).class(), plan.entry(second).class())
        });
        assert_eq!(classes, [(0, 0), (0, 1), (0, 1)], "{func}");
    }
}

#[test]
fn a_byte_order_counts_as_the_target_has_it() {
    let text = |flag: &str| {
        parse_one(&format!(
            "function u0:0(i64) -> i64 system_v {{
block0(v0: i64):
    v1 = load.i64 {flag} v0
    return v1
}}"
        ))
    };
    let [native, little, big] = [text(""), text("little"), text("big")];
    let generic = Options { target: Target::generic(), ..walk_all() };
    let small = Options { target: Target::x86_64(), ..walk_all() };
    let large = Target { endianness: Some(Endianness::Big), ..Target::generic() };
    let large = Options { target: large, ..walk_all() };
    for (options, native_is_little, native_is_big) in
        [(generic, false, false), (small, true, false), (large, false, true)]
    {
        assert_eq!(same_class(&native, &little, options), native_is_little);
        assert_eq!(same_class(&native, &big, options), native_is_big);
        assert!(!same_class(&little, &big, options));
        assert!(same_class(&native, &native, options));
    }
}

#[test]
fn irrelevant_changes_leave_functions_equal() {
    for change in crate::irrelevant::IRRELEVANT {
        let mut applied = 0;
        for func in corpus() {
            for other in (change.apply)(&func) {
                assert_equal(&func, &other, &format!("{}, because {}", change.what, change.why));
                applied += 1;
            }
        }
        assert!(applied > 0, "nothing in formats.clif to try {:?} on", change.what);
    }
}

#[test]
fn debug_information_counts_where_it_is_compared() {
    for change in crate::irrelevant::IRRELEVANT {
        if !change.is_debug_info {
            continue;
        }
        let mut options = walk_all();
        options.compare.debug_info = true;
        for func in corpus() {
            for other in (change.apply)(&func) {
                let (a, b) = (encode(&func, &options), encode(&other, &options));
                assert_ne!(a, b, "{}:\n{func}\n{other}", change.what);
                assert!(!same_class(&func, &other, options), "{}", change.what);
                for (kept, original) in [(&func, &other), (&other, &func)] {
                    let proved = may_replace(kept, original, &options).is_ok();
                    assert!(!proved, "{}:\n{kept}\n{original}", change.what);
                }
                assert!(same_class(&other, &other, options), "{}", change.what);
            }
        }
    }
}

/// Region 0 is another one than no region.
#[test]
fn facts_of_a_stack_limit_are_compared() {
    let function = |flags: &str| {
        parse_one(&format!(
            "function u0:0(i64 vmctx) system_v {{
    region0 = 0 \"zero\"
    region1 = 1 \"one\"
    gv0 = vmctx
    gv1 = load.i64 {flags} gv0+16
    stack_limit = gv1
block0(v0: i64):
    return
}}"
        ))
    };
    let all = [
        "notrap aligned",
        "notrap aligned readonly",
        "notrap aligned readonly can_move",
        "notrap aligned region0",
        "notrap aligned region1",
        "notrap aligned readonly region1",
        "little notrap aligned",
        "big notrap aligned",
    ];
    for (at, flags) in all.iter().enumerate() {
        assert_equal(&function(flags), &function(flags), flags);
        for other in &all[at + 1..] {
            assert_different(&function(flags), &function(other), &format!("{flags}, {other}"));
        }
    }
}

/// Whether a signature is declared once or at every use does not matter, however many there are.
#[test]
fn many_signatures_are_compared_by_their_contents() {
    let function = |repeated: bool, last: u32| {
        // Each call has a signature of its own, then each a second time.
        let mut declarations = String::new();
        let mut calls = String::new();
        for call in 0..80 {
            let number = call % 40;
            let sig = if repeated { call } else { number };
            if sig == call {
                // In binary, so that all are different.
                let bits = if call == 79 { last } else { number };
                let params = (0..6).map(|bit| if bits >> bit & 1 == 1 { "i64" } else { "i32" });
                let params = params.collect::<Vec<_>>().join(", ");
                declarations += &format!("    sig{sig} = (i64, {params}) system_v\n");
            }
            let bits = if call == 79 { last } else { number };
            let args = (0..6).map(|bit| if bits >> bit & 1 == 1 { ", v0" } else { ", v1" });
            let args = args.collect::<String>();
            calls += &format!("    call_indirect sig{sig}, v0(v0{args})\n");
        }
        parse_one(&format!(
            "function u0:0(i64, i32) system_v {{
{declarations}
block0(v0: i64, v1: i32):
{calls}    return
}}"
        ))
    };
    let (once, repeated) = (function(false, 39), function(true, 39));
    assert_equal(&once, &repeated, "declared once, and at every use");
    assert_different(&repeated, &function(true, 40), "another one");
    assert_different(&repeated, &function(true, 0), "another one of them");
}
