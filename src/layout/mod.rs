//! The canonical form of a function: laid out anew in the order of its encoding.
//!
//! Two functions with equal encodings, equal facts, and references of the same names and the same
//! `colocated` and `patchable` flags have canonical forms that are equal in all that native code
//! depends on: numbers of blocks, instructions and values, the layout, and the contents and order
//! of all tables. So Cranelift compiles them to equal bytes with equal relocations, wherever each
//! was found and in whatever form it was written.
//!
//! Everything follows the canonical walk, whose marks say what comes next:
//! * only blocks that it comes to are there, in its order; `nop`s and what nothing uses are not;
//! * values are numbered where they are defined, and aliases resolved;
//! * operands are in the order in which the encoding has them, and a branch that it has as a jump
//!   is one;
//! * tables are filled at first use, with one entry for each content (`tables`);
//! * stack slots stay as they are, but have the alignment that the encoding has.
//!
//! Source locations, debug tags and keys of stack slots are no code: they are copied, and two
//! canonical forms can differ in them. So are value labels where debug information is compared, and
//! then they are equal; otherwise they are dropped, as descriptions of alias regions are.
//!
//! It does *not* optimise: instructions whose results nothing uses stay, as the encoding has them.

mod tables;

use crate::canon::{Place, Scratch, change_places, slot_alignment};
use crate::copy::{Entities, copied, mapped};
use crate::target::Target;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cranelift_codegen::ir::function::FunctionStencil;
use cranelift_codegen::ir::{
    Block, BlockArg, BlockCall, Constant, DynamicStackSlot, DynamicStackSlotData, ExceptionTable,
    ExceptionTableData, ExceptionTableItem, FuncRef, Function, GlobalValue, Immediate, Inst,
    InstructionData, JumpTable, JumpTableData, MemFlags, Opcode, RelSourceLoc, SigRef,
    StackSlotData, Type, Value, ValueLabelAssignments, ValueList,
};
use cranelift_entity::SecondaryMap;
use tables::Tables;

/// The canonical form of a verified function. Linear in the size of the function, but for a
/// logarithm in the number of its constants.
///
/// `None` if the walk finds the function malformed, or comes to a block of which only the address
/// is taken: Cranelift cannot compile that address, and here a branch to the block may have become
/// a jump elsewhere. Also if debug information is compared and a value has those of one that is not
/// computed, which the canonical form does not have.
///
/// The function was just walked, with debug information or without as here, by a walk that
/// [records](Scratch::recording) and redirects nothing.
pub(crate) fn laid_out(
    func: &Function,
    scratch: &Scratch,
    debug_info: bool,
    target: &Target,
) -> Option<Function> {
    if scratch.has_dead_blocks() {
        return None;
    }
    let into = Function::with_name_signature(func.name.clone(), func.signature.clone());
    let tables = Tables::new(func, into, target);
    let mut layout = Layout { func, scratch, debug_info, tables, blocks: SecondaryMap::new() };
    layout.header();
    layout.blocks();
    layout.value_labels()?;
    Some(layout.tables.into)
}

struct Layout<'a> {
    func: &'a Function,
    /// The findings of the walk.
    scratch: &'a Scratch,
    /// The compared debug information.
    debug_info: bool,
    /// The function that is made.
    tables: Tables<'a>,
    blocks: SecondaryMap<Block, Option<Block>>,
}

impl Layout<'_> {
    fn header(&mut self) {
        let Layout { func, tables, .. } = self;
        let FunctionStencil {
            version_marker: _,
            signature: _, // as it is
            sized_stack_slots,
            dynamic_stack_slots,
            global_values: _, // at first use
            dfg: _,           // at first use, in the order of the walk
            layout: _,        // that of the walk
            srclocs: _,       // by instruction
            debug_tags: _,    // by instruction
            stack_limit,
        } = &func.stencil;
        // Locations of instructions are relative to it.
        let base = func.params.base_srcloc();
        if !base.is_default() {
            tables.into.params.ensure_base_srcloc(base);
        }
        for slot in sized_stack_slots.values() {
            let StackSlotData { kind, size, align_shift, key } = *slot;
            let align_shift = slot_alignment(align_shift, tables.target);
            tables.into.create_sized_stack_slot(StackSlotData { kind, size, align_shift, key });
        }
        for slot in dynamic_stack_slots.values() {
            let DynamicStackSlotData { kind, dyn_ty } = *slot;
            let dyn_ty = tables.dynamic_type(dyn_ty);
            tables.into.create_dynamic_stack_slot(DynamicStackSlotData { kind, dyn_ty });
        }
        tables.into.stack_limit = stack_limit.map(|limit| tables.global_value(limit));
    }

    fn blocks(&mut self) {
        for &block in self.scratch.walked() {
            self.blocks[block] = Some(self.tables.into.dfg.make_block());
        }
        let mut block = Block::from_u32(0);
        for mark in &self.scratch.marks {
            match mark.place {
                Place::Block(old) => {
                    block = self.new_block(old);
                    // The walk comes to all blocks a second time for value labels.
                    if self.tables.into.layout.is_block_inserted(block) {
                        break;
                    }
                    self.begin(old, block);
                }
                Place::Inst(inst) => {
                    let copy = self.instruction(inst, mark.only_way);
                    self.tables.into.layout.append_inst(copy, block);
                    self.decorate(inst, copy);
                }
                Place::Key
                | Place::Signature
                | Place::StackSlots
                | Place::DynamicTypes
                | Place::StackLimit => {}
                Place::ExtraArgument(_) => unreachable!("no plan is applied"),
            }
        }
    }

    fn new_block(&self, old: Block) -> Block {
        self.blocks[old].expect("the walk comes to it")
    }

    /// Appends a block to the layout, with its parameters.
    fn begin(&mut self, old: Block, block: Block) {
        let func = self.func;
        let layout = &mut self.tables.into.layout;
        layout.append_block(block);
        if func.layout.is_cold(old) {
            layout.set_cold(block);
        }
        for &param in func.dfg.block_params(old) {
            let ty = func.dfg.value_type(param);
            let new = self.tables.into.dfg.append_block_param(block, ty);
            self.defined(param, new, ty);
        }
    }

    /// Makes an instruction, which may have become a jump.
    fn instruction(&mut self, inst: Inst, only_way: Option<BlockCall>) -> Inst {
        let func = self.func;
        let data = match only_way {
            Some(destination) => InstructionData::Jump { opcode: Opcode::Jump, destination },
            None => func.dfg.insts[inst],
        };
        let mut data = mapped(&data, &func.dfg.value_lists, self).expect("everything is copied");
        if let InstructionData::Binary { opcode, args }
        | InstructionData::IntAddTrap { opcode, args, code: _ } = &mut data
            && change_places(*opcode, args[0].as_u32(), args[1].as_u32())
        {
            args.swap(0, 1);
        }
        let copy = copied(func, inst, data, &mut self.tables.into);
        for (at, &result) in func.dfg.inst_results(inst).iter().enumerate() {
            let new = self.tables.into.dfg.inst_results(copy)[at];
            self.defined(result, new, func.dfg.value_type(result));
        }
        copy
    }

    /// A value has been defined.
    fn defined(&mut self, old: Value, new: Value, ty: Type) {
        debug_assert_eq!(self.scratch.values_before(old), Some(new.as_u32()), "{old}");
        if ty.is_dynamic_vector() {
            self.tables.declare(ty);
        }
    }

    /// Copies the labels of values, if they are compared. `None` if some value has those of one
    /// that is not computed.
    fn value_labels(&mut self) -> Option<()> {
        let Layout { func, scratch, debug_info, tables, .. } = self;
        if !*debug_info {
            return Some(());
        }
        let Some(labels) = &func.dfg.values_labels else {
            return Some(());
        };
        let mut copies = BTreeMap::new();
        for (&value, labels) in labels {
            // Those of another name of a value are not its own.
            let own = func.dfg.resolve_aliases(value) == value;
            let Some(new) = scratch.values_before(value).filter(|_| own) else {
                continue;
            };
            let copy = match labels {
                ValueLabelAssignments::Starts(starts) => {
                    ValueLabelAssignments::Starts(starts.clone())
                }
                ValueLabelAssignments::Alias { from, value } => {
                    let value = scratch.values_before(func.dfg.resolve_aliases(*value))?;
                    ValueLabelAssignments::Alias { from: *from, value: Value::from_u32(value) }
                }
            };
            copies.insert(Value::from_u32(new), copy);
        }
        tables.into.dfg.values_labels = Some(copies);
        Some(())
    }

    /// Copies metadata.
    fn decorate(&mut self, inst: Inst, copy: Inst) {
        let Layout { func, tables, .. } = self;
        let location = func.srclocs[inst];
        if location != RelSourceLoc::default() {
            tables.into.srclocs[copy] = location;
        }
        if func.debug_tags.has(inst) {
            tables.into.debug_tags.set(copy, func.debug_tags.get(inst).iter().cloned());
        }
    }
}

/// Values are made in the order of their numbers.
fn new_value(scratch: &Scratch, old: Value) -> Value {
    Value::from_u32(scratch.values_before(old).expect("the walk read it"))
}

impl Entities for Layout<'_> {
    fn value(&mut self, value: Value) -> Value {
        new_value(self.scratch, value)
    }

    fn list(&mut self, values: &[Value]) -> ValueList {
        let mut list = ValueList::new();
        let values = values.iter().map(|&value| new_value(self.scratch, value));
        list.extend(values, &mut self.tables.into.dfg.value_lists);
        list
    }

    fn func_ref(&mut self, func_ref: FuncRef) -> FuncRef {
        self.tables.func_ref(func_ref)
    }

    fn sig_ref(&mut self, sig_ref: SigRef) -> SigRef {
        self.tables.sig_ref(sig_ref)
    }

    fn flags(&mut self, flags: MemFlags) -> Option<MemFlags> {
        Some(self.tables.flags(flags))
    }

    fn constant(&mut self, constant: Constant) -> Constant {
        self.tables.constant(constant)
    }

    fn immediate(&mut self, immediate: Immediate) -> Immediate {
        self.tables.immediate(immediate)
    }

    fn global_value(&mut self, global_value: GlobalValue) -> Option<GlobalValue> {
        Some(self.tables.global_value(global_value))
    }

    fn block(&mut self, block: Block) -> Option<Block> {
        Some(self.new_block(block))
    }

    fn block_call(&mut self, call: &BlockCall) -> Option<BlockCall> {
        let pool = &self.func.dfg.value_lists;
        let block = self.new_block(call.block(pool));
        let scratch = self.scratch;
        let args = call.args(pool);
        let args = args.map(|arg: BlockArg| arg.map_value(|value| new_value(scratch, value)));
        Some(BlockCall::new(block, args, &mut self.tables.into.dfg.value_lists))
    }

    // Tables of branches belong to one instruction each.

    fn jump_table(&mut self, table: JumpTable) -> Option<JumpTable> {
        let func = self.func;
        let table = &func.dfg.jump_tables[table];
        let default = self.block_call(&table.default_block())?;
        let calls = table.as_slice().iter();
        let calls: Option<Vec<BlockCall>> = calls.map(|call| self.block_call(call)).collect();
        let table = JumpTableData::new(default, &calls?);
        Some(self.tables.into.dfg.jump_tables.push(table))
    }

    fn exception_table(&mut self, table: ExceptionTable) -> Option<ExceptionTable> {
        let func = self.func;
        let table = &func.dfg.exception_tables[table];
        let signature = self.sig_ref(table.signature());
        let normal_return = self.block_call(table.normal_return())?;
        let items = table.items().map(|item| {
            Some(match item {
                ExceptionTableItem::Tag(tag, call) => {
                    ExceptionTableItem::Tag(tag, self.block_call(&call)?)
                }
                ExceptionTableItem::Default(call) => {
                    ExceptionTableItem::Default(self.block_call(&call)?)
                }
                ExceptionTableItem::Context(value) => {
                    ExceptionTableItem::Context(self.value(value))
                }
            })
        });
        let items: Option<Vec<ExceptionTableItem>> = items.collect();
        let table = ExceptionTableData::new(signature, normal_return, items?);
        Some(self.tables.into.dfg.exception_tables.push(table))
    }

    fn dynamic_stack_slot(&mut self, slot: DynamicStackSlot) -> Option<DynamicStackSlot> {
        // All of them are kept.
        Some(slot)
    }
}
