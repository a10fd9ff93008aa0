//! The table of what does not make functions different.
//!
//! Each row is one change that the library must overlook, with the reason why it may. A merged body
//! has what the kept function has. Facts for the optimiser are compared (`facts`).

use cranelift_codegen::ir::{
    Block, ConstantData, DebugTag, DynamicTypeData, ExtFuncData, Function, GlobalValueData, Inst,
    InstructionData, MemFlagsData, Opcode, RelSourceLoc, Signature, SourceLoc, StackSlotKey,
    UserExternalName, UserFuncName, Value, ValueLabel, ValueLabelAssignments, ValueLabelStart,
    types,
};
use cranelift_codegen::isa::CallConv;
use testkit::permute::can_swap;

/// A change that must not count.
pub struct Irrelevant {
    pub what: &'static str,
    /// Why two functions that differ in it may share a body.
    pub why: &'static str,
    /// All ways to make the change once.
    pub apply: fn(&Function) -> Vec<Function>,
    /// Whether it counts where debug information is compared.
    pub is_debug_info: bool,
}

pub const IRRELEVANT: &[Irrelevant] = &[
    Irrelevant {
        what: "colocated callee",
        why: "a fact about the symbol, true for all functions that name it",
        apply: |func| {
            each(func.dfg.ext_funcs.keys(), func, |func, callee| {
                let ExtFuncData { name: _, signature: _, colocated, patchable } =
                    &mut func.dfg.ext_funcs[callee];
                *colocated = !*colocated;
                !*patchable
            })
        },
        is_debug_info: false,
    },
    Irrelevant {
        what: "colocated symbol",
        why: "a fact about the symbol, true for all functions that name it",
        apply: |func| {
            each(func.global_values.keys(), func, |func, global| {
                match &mut func.global_values[global] {
                    GlobalValueData::Symbol { name: _, offset: _, colocated, tls: _ } => {
                        *colocated = !*colocated;
                        true
                    }
                    _ => false,
                }
            })
        },
        is_debug_info: false,
    },
    Irrelevant {
        what: "source location",
        why: "where the code came from is not what it does",
        apply: |func| {
            each(insts(func), func, |func, inst| {
                func.set_srcloc(inst, SourceLoc::new(1234));
                !is_nop(func, inst)
            })
        },
        is_debug_info: true,
    },
    Irrelevant {
        what: "debug tag",
        why: "passed through to debug information only",
        apply: |func| {
            each(insts(func), func, |func, inst| {
                func.debug_tags.set(inst, [DebugTag::User(5)]);
                let opcode = func.dfg.insts[inst].opcode();
                opcode.is_call() || opcode == Opcode::SequencePoint
            })
        },
        is_debug_info: true,
    },
    Irrelevant {
        what: "value label",
        why: "passed through to debug information only",
        apply: |func| {
            let values: Vec<Value> = func.dfg.values().collect();
            each(values, func, |func, value| {
                let start =
                    ValueLabelStart { from: RelSourceLoc::new(3), label: ValueLabel::from_u32(4) };
                let labels = ValueLabelAssignments::Starts(vec![start]);
                func.dfg.values_labels = Some([(value, labels)].into());
                func.dfg.value_is_attached(value)
            })
        },
        is_debug_info: true,
    },
    Irrelevant {
        what: "stack slot key",
        why: "passed through to debug information only",
        apply: |func| {
            each(func.sized_stack_slots.keys(), func, |func, slot| {
                let key = &mut func.sized_stack_slots[slot].key;
                *key = match key {
                    None => Some(StackSlotKey::new(0)),
                    Some(_) => None,
                };
                true
            })
        },
        is_debug_info: true,
    },
    Irrelevant {
        what: "operand order of a commutative integer operation",
        why: "the result is the same",
        apply: |func| {
            each(insts(func), func, |func, inst| {
                let args = func.dfg.inst_args_mut(inst);
                if args.len() >= 2 {
                    args.swap(0, 1);
                }
                can_swap(func.dfg.insts[inst].opcode())
            })
        },
        is_debug_info: false,
    },
    Irrelevant {
        what: "alignment of a stack slot up to the smallest word",
        why: "slots are aligned to a word in any case",
        apply: |func| {
            each(func.sized_stack_slots.keys(), func, |func, slot| {
                let shift = &mut func.sized_stack_slots[slot].align_shift;
                let small = *shift <= 2;
                *shift = 2 - (*shift).min(2);
                small
            })
        },
        is_debug_info: false,
    },
    Irrelevant {
        what: "name of the function",
        why: "symbols are the caller's business",
        apply: |func| {
            let mut other = func.clone();
            other.name = UserFuncName::User(UserExternalName::new(50, 50));
            vec![other]
        },
        is_debug_info: false,
    },
    Irrelevant {
        what: "nop",
        why: "generates nothing",
        apply: |func| {
            each(insts(func), func, |func, inst| {
                let nop = func.dfg.make_inst(InstructionData::NullAry { opcode: Opcode::Nop });
                func.layout.insert_inst(nop, inst);
                true
            })
        },
        is_debug_info: false,
    },
    Irrelevant {
        what: "unused table entries",
        why: "they generate nothing",
        apply: |func| {
            let mut other = func.clone();
            other.import_signature(Signature::new(CallConv::Fast));
            other.dfg.constants.insert(ConstantData::from(vec![9; 16]));
            other.dfg.immediates.push(ConstantData::from(vec![9; 16]));
            let scale = GlobalValueData::DynScaleTargetConst { vector_type: types::I64X2 };
            let scale = other.create_global_value(scale);
            // Without a slot it only gives a name to a type.
            other.dfg.make_dynamic_ty(DynamicTypeData::new(types::I64X2, scale));
            other.params.ensure_user_func_name(UserExternalName::new(60, 60));
            vec![other]
        },
        is_debug_info: false,
    },
    Irrelevant {
        what: "value alias",
        why: "another name for the same value",
        apply: |func| {
            let values: Vec<Value> = func.dfg.values().collect();
            each(values, func, |func, value| {
                let alias = Value::from_u32(func.dfg.num_values() as u32);
                func.dfg.make_invalid_value_for_parser();
                func.dfg.make_value_alias_for_serialization(value, alias);
                for inst in insts(func) {
                    func.dfg.map_inst_values(inst, |used| if used == value { alias } else { used });
                }
                func.dfg.value_is_attached(value)
            })
        },
        is_debug_info: false,
    },
    Irrelevant {
        what: "layout of the blocks",
        why: "control flow is the same",
        apply: |func| {
            let entry = func.layout.entry_block().expect("has a body");
            let rest: Vec<Block> = func.layout.blocks().skip(1).collect();
            each(rest, func, |func, block| {
                let insts: Vec<Inst> = func.layout.block_insts(block).collect();
                insts.iter().for_each(|&inst| func.layout.remove_inst(inst));
                func.layout.remove_block(block);
                func.layout.insert_block_after(block, entry);
                insts.iter().for_each(|&inst| func.layout.append_inst(inst, block));
                true
            })
        },
        is_debug_info: false,
    },
];

/// One copy of the function for each item, changed; those for which the change says `false` are
/// left out.
pub fn each<T>(
    items: impl IntoIterator<Item = T>,
    func: &Function,
    change: impl Fn(&mut Function, T) -> bool,
) -> Vec<Function> {
    let changed = |item| {
        let mut other = func.clone();
        change(&mut other, item).then_some(other)
    };
    items.into_iter().filter_map(changed).collect()
}

fn insts(func: &Function) -> Vec<Inst> {
    func.layout.blocks().flat_map(|block| func.layout.block_insts(block)).collect()
}

fn is_nop(func: &Function, inst: Inst) -> bool {
    func.dfg.insts[inst].opcode() == Opcode::Nop
}

/// One copy of the function for each memory access that can be changed, with other flags at it.
pub fn accesses(
    func: &Function,
    change: fn(&mut Function, MemFlagsData) -> Option<MemFlagsData>,
) -> Vec<Function> {
    each(insts(func), func, |func, inst| {
        // That of a bitcast is no access.
        let is_access = func.dfg.insts[inst].opcode() != Opcode::Bitcast;
        let Some(flags) = func.dfg.insts[inst].memflags().filter(|_| is_access) else {
            return false;
        };
        let Some(data) = change(func, func.dfg.mem_flags[flags]) else {
            return false;
        };
        let flags = func.dfg.mem_flags.insert(data).expect("few flags");
        *func.dfg.insts[inst].memflags_mut().expect("has flags") = flags;
        true
    })
}

/// Changes the bits of `aligned`, `readonly` and `can_move`. They can be set but not cleared, so
/// the flags are made anew.
pub fn with_bits(old: MemFlagsData, change: fn(&mut (bool, bool, bool))) -> MemFlagsData {
    let mut bits = (old.aligned(), old.readonly(), old.can_move());
    change(&mut bits);
    let mut new =
        MemFlagsData::new().with_trap_code(old.trap_code()).with_alias_region(old.alias_region());
    if let Some(endianness) = old.explicit_endianness() {
        new.set_endianness(endianness);
    }
    if bits.0 {
        new.set_aligned();
    }
    if bits.1 {
        new.set_readonly();
    }
    if bits.2 {
        new.set_can_move();
    }
    new
}
