//! The used values of a function, their last uses, and the number of blocks in which a pure
//! instruction is computed.
//!
//! One scan backward in layout order: uses follow definitions in most layouts. Instructions that
//! the optimiser folds away (`simplify`) use nothing. It counts no features.

use crate::copies::{Blocks, Copies};
use crate::quantity::ConstantKind;
use crate::simplify::{Becomes, Simplified};
use alloc::vec::Vec;
use cranelift_codegen::ir::{
    BlockCall, ExceptionTableItem, Function, Inst, InstructionData, Opcode, Value, ValueDef,
};
use cranelift_entity::EntityRef;
use cranelift_entity::packed_option::PackedOption;

/// How many stack slots are read at most to know how far away one is.
const MAX_SLOTS: usize = 64;

/// The record of each value of a function. Kept from function to function for its memory.
///
/// See the [example](crate#example).
#[derive(Default)]
pub struct Scratch {
    /// By the index of a value.
    pub(super) values: Vec<Known>,
    /// By instruction, how often it is in the code: 0 if it is not needed.
    pub(super) times: Vec<u32>,
    /// How many instructions there are in the layout.
    pub(super) instructions: u32,
    /// The sizes in bytes of the first stack slots together, by their number.
    slots: Vec<u64>,
    simplified: Simplified,
    copies: Copies,
}

/// The record of a value. Of an alias, only the original.
#[derive(Clone, Copy, Default)]
pub(super) struct Known {
    /// The value that it is an alias of, or that takes its place, or itself; none if it is not
    /// used.
    pub original: PackedOption<Value>,
    /// How often it is used.
    pub uses: u32,
    /// The last instruction that uses it, counted from the end of the layout, from 1.
    pub last: u32,
    /// How many calls there are before its definition.
    pub calls_before: u32,
    pub held: Held,
    /// Whether its instruction is pure.
    is_pure: bool,
    /// The blocks that use it then.
    blocks: Blocks,
}

/// Where a value is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Held {
    /// In an integer register, or spilled.
    #[default]
    Integer,
    /// In a register for floating-point numbers or vectors, or spilled.
    Float,
    /// In the code: an integer constant is computed where it is used, and takes no register for
    /// long.
    Constant(ConstantKind),
    /// The address of a stack slot in a register.
    Slot {
        /// Whether it is 128 bytes or more from the beginning of the frame.
        far: bool,
    },
}

/// Whether an instruction must be executed even if nothing uses its results.
fn has_effect(data: &InstructionData) -> bool {
    let opcode = data.opcode();
    let may_trap = opcode.can_trap() && data.memflags().is_none();
    opcode.is_call()
        || opcode.is_branch()
        || opcode.is_terminator()
        || opcode.is_return()
        || opcode.can_store()
        || opcode.other_side_effects() && !matches!(opcode, Opcode::Nop | Opcode::SequencePoint)
        || may_trap
}

/// Whether the optimiser computes an instruction where its result is used: it depends on nothing
/// but its operands.
fn is_pure(data: &InstructionData) -> bool {
    !has_effect(data) && !data.opcode().can_load()
}

impl Scratch {
    /// Reads a function: the used values, and where. Linear in its size.
    pub(super) fn read(&mut self, func: &Function) {
        self.clear(func);
        self.simplified.read(func);
        self.find_uses(func);
    }

    fn clear(&mut self, func: &Function) {
        self.values.clear();
        self.values.resize(func.dfg.num_values(), Known::default());
        self.times.clear();
        self.times.resize(func.dfg.num_insts(), 0);
        self.slots.clear();
        let sizes = func.sized_stack_slots.values().take(MAX_SLOTS);
        self.slots.extend(sizes.scan(0, |before, slot| {
            *before += u64::from(slot.size);
            Some(*before)
        }));
        self.instructions = 0;
        self.copies.clear();
    }

    fn find_uses(&mut self, func: &Function) {
        let dfg = &func.dfg;
        let mut blocks = func.layout.last_block();
        while let Some(block) = blocks {
            blocks = func.layout.prev_block(block);
            let mut insts = func.layout.last_inst(block);
            while let Some(inst) = insts {
                insts = func.layout.prev_inst(inst);
                self.instructions += 1;
                if !self.simplified.is_reached(block) {
                    continue;
                }
                let data = &dfg.insts[inst];
                let results = dfg.inst_results(inst);
                let used = results.iter().any(|value| self.values[value.index()].uses > 0);
                if !used && !has_effect(data) {
                    continue;
                }
                self.times[inst.index()] = match *results {
                    [result] if self.values[result.index()].is_pure => {
                        self.copies.choose(func, block, &self.values[result.index()].blocks)
                    }
                    _ => self.copies.only(block),
                };
                let only = self.simplified.only_destination(func, inst);
                let destinations = match &only {
                    Some(only) => core::slice::from_ref(only),
                    None => data.branch_destination(&dfg.jump_tables, &dfg.exception_tables),
                };
                if only.is_none() {
                    for &value in dfg.inst_args(inst) {
                        self.found_use(func, value);
                    }
                }
                for call in destinations {
                    for value in call.args(&dfg.value_lists).filter_map(|arg| arg.as_value()) {
                        self.found_use(func, value);
                    }
                }
                if let Some(table) = data.exception_table() {
                    for item in dfg.exception_tables[table].items() {
                        if let ExceptionTableItem::Context(value) = item {
                            self.found_use(func, value);
                        }
                    }
                }
            }
        }
    }

    /// Notes that the instruction at hand uses a value, in the blocks where that instruction is
    /// computed.
    #[inline]
    fn found_use(&mut self, func: &Function, value: Value) {
        let original = match self.values[value.index()].original.expand() {
            Some(original) => original,
            None => self.first_use(func, value),
        };
        let known = &mut self.values[original.index()];
        known.uses += 1;
        if known.is_pure && matches!(known.held, Held::Integer | Held::Float) {
            self.copies.add(&mut known.blocks);
        }
    }

    /// Finds the origin of a value, when its last use is found. Returns the value that it is
    /// an alias of, or that takes its place, or itself.
    fn first_use(&mut self, func: &Function, value: Value) -> Value {
        let original = self.simplified.original(func, value);
        self.values[value.index()].original = original.into();
        if self.values[original.index()].uses == 0 {
            let held = self.held(func, original);
            let inst = func.dfg.value_def(original).inst();
            self.values[original.index()] = Known {
                original: original.into(),
                last: self.instructions,
                held,
                is_pure: inst.is_some_and(|inst| is_pure(&func.dfg.insts[inst])),
                ..Known::default()
            };
        }
        original
    }

    fn held(&self, func: &Function, value: Value) -> Held {
        let ty = func.dfg.value_type(value);
        if !ty.is_int() {
            return Held::Float;
        }
        if let Becomes::Constant(bits) = self.simplified.becomes(value) {
            return Held::Constant(ConstantKind::of(ty, bits));
        }
        let ValueDef::Result(inst, _) = func.dfg.value_def(value) else {
            return Held::Integer;
        };
        match func.dfg.insts[inst] {
            InstructionData::StackAddr { opcode: _, stack_slot, offset } => {
                // Roughly: where there are many slots, the first ones count.
                let before = stack_slot.index().min(self.slots.len()).checked_sub(1);
                let before = before.map_or(0, |last| self.slots[last]);
                Held::Slot { far: before.saturating_add_signed(i32::from(offset).into()) > 127 }
            }
            _ => Held::Integer,
        }
    }

    /// Where a branch goes that always goes to one block.
    pub(super) fn only_destination(&self, func: &Function, branch: Inst) -> Option<BlockCall> {
        self.simplified.only_destination(func, branch)
    }

    /// The value that a used one is an alias of, or that takes its place, or itself.
    pub(super) fn original(&self, value: Value) -> Value {
        self.values[value.index()].original.expand().unwrap_or(value)
    }

    /// The instruction that defines a value, if the value has only one use.
    pub(super) fn only_for(&self, func: &Function, value: Value) -> Option<Inst> {
        if self.values[value.index()].uses != 1 {
            return None;
        }
        match func.dfg.value_def(value) {
            ValueDef::Result(inst, _) => Some(inst),
            _ => None,
        }
    }
}
