//! Functions laid out from their encoding: the same function, with everything numbered and ordered as the canonical walk
//! comes to it.
//!
//! Functions of one encoding can differ in what the walk ignores: the numbering of values and blocks, the order of blocks,
//! unreachable blocks, unused entries of tables, aliases, `nop`s, the order of commutative operands. Native code depends on some
//! of that. [`laid_out`] makes all such functions one function, up to the names of what they refer to, and to source
//! locations and debug tags, which are not code. (Which references share an entry of a table, and whether they are near, is neither in the
//! encoding nor changed here.)
//!
//! It does *not* decide the order: it follows what the walk recorded. It drops value labels, which name values by their
//! numbers.

use crate::canon::{Place, Scratch, is_commutative};
use crate::entities::{Entities, mapped};
use crate::ir::{user_name, user_symbol};
use crate::options::Compare;
use crate::target::Target;
use alloc::vec::Vec;
use cranelift_codegen::ir::{
    AliasRegion, Block, BlockArg, BlockCall, Constant, DynamicStackSlot, DynamicStackSlotData,
    DynamicTypeData, ExceptionTable, ExceptionTableData, ExceptionTableItem, ExtFuncData,
    ExternalName, FuncRef, Function, GlobalValue, GlobalValueData, Immediate, Inst,
    InstructionData, JumpTable, JumpTableData, MemFlags, Opcode, SigRef, Signature, StackSlotData,
    Type, Value, ValueList,
};
use cranelift_entity::{EntityRef, SecondaryMap};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// The function that was just walked, laid out from its encoding. `walk` is the recorded walk
/// ([`Scratch::recording`]), and `operand_order` the policy that it had. `None` if code that control flow does not reach, and of which
/// an address is taken, uses values that nothing computes.
///
/// Linear in the size of the function.
pub(crate) fn laid_out(
    func: &Function,
    walk: &Scratch,
    operand_order: Compare,
    target: &Target,
) -> Option<Function> {
    let into = Function::with_name_signature(func.name.clone(), func.signature.clone());
    let mut layout = Layout {
        from: func,
        into,
        values: SecondaryMap::new(),
        blocks: SecondaryMap::new(),
        signatures: SecondaryMap::new(),
        callees: SecondaryMap::new(),
        globals: SecondaryMap::new(),
        regions: SecondaryMap::new(),
        known: Known::default(),
        is_complete: true,
    };
    layout.frame(target);
    let mut block = None;
    let mut jumps = walk.jumps.iter();
    let mut next_jump = jumps.next();
    for mark in &walk.marks {
        match mark.place {
            Place::Block(old) => block = Some(layout.begin(old)),
            Place::Inst(old) => {
                let block = block.expect("an instruction is in a block");
                let jump = next_jump.filter(|(branch, _)| *branch == old);
                if jump.is_some() {
                    next_jump = jumps.next();
                }
                layout.instruction(old, jump.map(|(_, way)| way), block, operand_order)?;
            }
            Place::Policy
            | Place::Signature
            | Place::StackSlots
            | Place::DynamicTypes
            | Place::StackLimit => {}
            Place::ExtraArgument(_) => unreachable!("nothing is redirected"),
        }
    }
    layout.is_complete.then_some(layout.into)
}

/// Entries of tables by content, so that there is one of each.
#[derive(Default)]
struct Known {
    signatures: HashMap<Signature, SigRef, FxBuildHasher>,
    callees: HashMap<(ExternalName, SigRef, bool, bool), FuncRef, FxBuildHasher>,
    globals: HashMap<Global, GlobalValue, FxBuildHasher>,
    masks: HashMap<Vec<u8>, Immediate, FxBuildHasher>,
}

/// A global value by content.
#[derive(PartialEq, Eq, Hash)]
enum Global {
    Context,
    Load { base: GlobalValue, offset: i32, ty: Type, flags: MemFlags },
    Sum { base: GlobalValue, offset: i64, ty: Type },
    Symbol { name: ExternalName, offset: i64, colocated: bool, tls: bool },
    Scale { ty: Type },
}

struct Layout<'a> {
    from: &'a Function,
    into: Function,
    /// The new entity for each old one, as far as there is one.
    values: SecondaryMap<Value, Option<Value>>,
    blocks: SecondaryMap<Block, Option<Block>>,
    signatures: SecondaryMap<SigRef, Option<SigRef>>,
    callees: SecondaryMap<FuncRef, Option<FuncRef>>,
    globals: SecondaryMap<GlobalValue, Option<GlobalValue>>,
    regions: SecondaryMap<AliasRegion, Option<AliasRegion>>,
    known: Known,
    /// Whether all operands had a value so far.
    is_complete: bool,
}

impl Layout<'_> {
    /// All that comes before the first block.
    fn frame(&mut self, target: &Target) {
        let from = self.from;
        self.into.params.ensure_base_srcloc(from.params.base_srcloc());
        for slot in from.sized_stack_slots.values() {
            let StackSlotData { kind, size, align_shift, key } = *slot;
            let least = target.slot_alignment.trailing_zeros() as u8;
            let align_shift = align_shift.max(least);
            self.into.create_sized_stack_slot(StackSlotData { kind, size, align_shift, key });
        }
        for slot in from.dynamic_stack_slots.values() {
            let DynamicStackSlotData { kind, dyn_ty } = *slot;
            let DynamicTypeData { base_vector_ty, dynamic_scale } = from.dfg.dynamic_types[dyn_ty];
            let scale = self.global(dynamic_scale);
            let dyn_ty = self.into.dfg.make_dynamic_ty(DynamicTypeData::new(base_vector_ty, scale));
            self.into.create_dynamic_stack_slot(DynamicStackSlotData::new(kind, dyn_ty));
        }
        self.into.stack_limit = from.stack_limit.map(|limit| self.global(limit));
    }

    /// The new block, which is created when it is first mentioned.
    fn mention(&mut self, block: Block) -> Block {
        let Layout { blocks, into, .. } = self;
        *blocks[block].get_or_insert_with(|| into.dfg.make_block())
    }

    /// Appends a block to the layout, with its parameters.
    fn begin(&mut self, old: Block) -> Block {
        let block = self.mention(old);
        self.into.layout.append_block(block);
        if self.from.layout.is_cold(old) {
            self.into.layout.set_cold(block);
        }
        for &param in self.from.dfg.block_params(old) {
            let ty = self.from.dfg.value_type(param);
            self.values[param] = Some(self.into.dfg.append_block_param(block, ty));
        }
        block
    }

    /// Appends an instruction to a block; as a jump there, if `jump` is the only way that it takes.
    fn instruction(
        &mut self,
        old: Inst,
        jump: Option<&BlockCall>,
        block: Block,
        operand_order: Compare,
    ) -> Option<()> {
        let from = self.from;
        let mut data = match jump {
            Some(way) => {
                InstructionData::Jump { opcode: Opcode::Jump, destination: self.block_call(way)? }
            }
            None => mapped(&from.dfg.insts[old], &from.dfg.value_lists, self)?,
        };
        // New values have the order of their numbers.
        if let InstructionData::Binary { opcode, args }
        | InstructionData::IntAddTrap { opcode, args, code: _ } = &mut data
            && operand_order == Compare::Ignore
            && is_commutative(*opcode)
        {
            args.sort_unstable();
        }
        let inst = self.into.dfg.make_inst(data);
        let results = from.dfg.inst_results(old);
        if !results.is_empty() {
            self.into.dfg.make_inst_results(inst, from.dfg.ctrl_typevar(old));
            for (&old, &new) in results.iter().zip(self.into.dfg.inst_results(inst)) {
                self.values[old] = Some(new);
            }
        }
        for entry in from.dfg.user_stack_map_entries(old).unwrap_or(&[]) {
            self.into.dfg.append_user_stack_map_entry(inst, entry.clone());
        }
        self.into.layout.append_inst(inst, block);
        let location = from.srcloc(old);
        if !location.is_default() {
            self.into.set_srcloc(inst, location);
        }
        let tags = from.debug_tags.get(old);
        if !tags.is_empty() {
            self.into.debug_tags.set(inst, tags.iter().cloned());
        }
        Some(())
    }

    fn name(&mut self, name: &ExternalName) -> ExternalName {
        match user_symbol(self.from, name) {
            Some(symbol) => user_name(&mut self.into, symbol.clone()),
            None => name.clone(),
        }
    }

    /// A global value, after what it is computed from.
    fn global(&mut self, global: GlobalValue) -> GlobalValue {
        let from = self.from;
        let mut chain: Vec<GlobalValue> = Vec::new();
        let mut next = Some(global);
        while let Some(global) = next.filter(|&global| self.globals[global].is_none()) {
            chain.push(global);
            next = match &from.global_values[global] {
                GlobalValueData::Load { base, offset: _, global_type: _, flags: _ }
                | GlobalValueData::IAddImm { base, offset: _, global_type: _ } => Some(*base),
                GlobalValueData::VMContext
                | GlobalValueData::Symbol { name: _, offset: _, colocated: _, tls: _ }
                | GlobalValueData::DynScaleTargetConst { vector_type: _ } => None,
            };
        }
        for old in chain.into_iter().rev() {
            let new = self.one_global(&from.global_values[old]);
            self.globals[old] = Some(new);
        }
        self.globals[global].expect("just made")
    }

    /// A global value whose base there is already.
    fn one_global(&mut self, data: &GlobalValueData) -> GlobalValue {
        let base = |layout: &Self, base: GlobalValue| layout.globals[base].expect("made before");
        let (key, data) = match *data {
            GlobalValueData::VMContext => (Global::Context, GlobalValueData::VMContext),
            GlobalValueData::Load { base: old, offset, global_type, flags } => {
                let (base, flags) = (base(self, old), self.flags(flags));
                (
                    Global::Load { base, offset: offset.into(), ty: global_type, flags },
                    GlobalValueData::Load { base, offset, global_type, flags },
                )
            }
            GlobalValueData::IAddImm { base: old, offset, global_type } => {
                let base = base(self, old);
                (
                    Global::Sum { base, offset: offset.bits(), ty: global_type },
                    GlobalValueData::IAddImm { base, offset, global_type },
                )
            }
            GlobalValueData::Symbol { ref name, offset, colocated, tls } => {
                let name = self.name(name);
                (
                    Global::Symbol { name: name.clone(), offset: offset.bits(), colocated, tls },
                    GlobalValueData::Symbol { name, offset, colocated, tls },
                )
            }
            GlobalValueData::DynScaleTargetConst { vector_type } => (
                Global::Scale { ty: vector_type },
                GlobalValueData::DynScaleTargetConst { vector_type },
            ),
        };
        let Layout { known, into, .. } = self;
        *known.globals.entry(key).or_insert_with(|| into.create_global_value(data))
    }
}

impl Entities for Layout<'_> {
    fn value(&mut self, value: Value) -> Value {
        let original = self.from.dfg.resolve_aliases(value);
        match self.values[original] {
            Some(value) => value,
            None => {
                self.is_complete = false;
                Value::from_u32(0)
            }
        }
    }

    fn list(&mut self, values: &[Value]) -> ValueList {
        let values: Vec<Value> = values.iter().map(|&value| self.value(value)).collect();
        ValueList::from_slice(&values, &mut self.into.dfg.value_lists)
    }

    fn func_ref(&mut self, func_ref: FuncRef) -> FuncRef {
        if let Some(known) = self.callees[func_ref] {
            return known;
        }
        let ExtFuncData { name, signature, colocated, patchable } =
            self.from.dfg.ext_funcs[func_ref].clone();
        let (name, signature) = (self.name(&name), self.sig_ref(signature));
        let key = (name.clone(), signature, colocated, patchable);
        let Layout { known, into, .. } = self;
        let callee = ExtFuncData { name, signature, colocated, patchable };
        let new = *known.callees.entry(key).or_insert_with(|| into.import_function(callee));
        self.callees[func_ref] = Some(new);
        new
    }

    fn sig_ref(&mut self, sig_ref: SigRef) -> SigRef {
        if let Some(known) = self.signatures[sig_ref] {
            return known;
        }
        let signature = &self.from.dfg.signatures[sig_ref];
        let Layout { known, into, .. } = self;
        let new = match known.signatures.get(signature) {
            Some(&known) => known,
            None => {
                let new = into.import_signature(signature.clone());
                known.signatures.insert(signature.clone(), new);
                new
            }
        };
        self.signatures[sig_ref] = Some(new);
        new
    }

    fn flags(&mut self, flags: MemFlags) -> MemFlags {
        let Layout { from, regions, into, .. } = self;
        let flags = from.dfg.mem_flags[flags];
        let region = flags.alias_region().map(|region| {
            *regions[region].get_or_insert_with(|| {
                into.dfg.alias_regions.insert(from.dfg.alias_regions[region].clone())
            })
        });
        into.dfg.mem_flags.insert_unchecked(flags.with_alias_region(region))
    }

    fn constant(&mut self, constant: Constant) -> Constant {
        self.into.dfg.constants.insert(self.from.dfg.constants.get(constant).clone())
    }

    fn immediate(&mut self, immediate: Immediate) -> Immediate {
        let mask = &self.from.dfg.immediates[immediate];
        let Layout { known, into, .. } = self;
        let known = known.masks.entry_ref(mask.as_slice());
        *known.or_insert_with(|| into.dfg.immediates.push(mask.clone()))
    }

    fn global_value(&mut self, global_value: GlobalValue) -> Option<GlobalValue> {
        Some(self.global(global_value))
    }

    fn block_call(&mut self, call: &BlockCall) -> Option<BlockCall> {
        let from = self.from;
        let pool = &from.dfg.value_lists;
        let block = self.mention(call.block(pool));
        let args: Vec<BlockArg> =
            call.args(pool).map(|arg| arg.map_value(|value| self.value(value))).collect();
        Some(BlockCall::new(block, args, &mut self.into.dfg.value_lists))
    }

    fn jump_table(&mut self, table: JumpTable) -> Option<JumpTable> {
        let from = self.from;
        let table = &from.dfg.jump_tables[table];
        // The walk comes to the default first.
        let default = self.block_call(&table.default_block())?;
        let entries: Option<Vec<BlockCall>> =
            table.as_slice().iter().map(|call| self.block_call(call)).collect();
        Some(self.into.dfg.jump_tables.push(JumpTableData::new(default, &entries?)))
    }

    fn exceptions(&mut self, table: ExceptionTable) -> Option<ExceptionTable> {
        let from = self.from;
        let table = &from.dfg.exception_tables[table];
        let signature = self.sig_ref(table.signature());
        // As the walk, which comes to the normal return first.
        let normal_return = self.block_call(table.normal_return())?;
        let items: Option<Vec<ExceptionTableItem>> = table
            .items()
            .map(|item| {
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
            })
            .collect();
        let table = ExceptionTableData::new(signature, normal_return, items?);
        Some(self.into.dfg.exception_tables.push(table))
    }

    fn block(&mut self, block: Block) -> Option<Block> {
        Some(self.mention(block))
    }

    fn dynamic_slot(&mut self, slot: DynamicStackSlot) -> Option<DynamicStackSlot> {
        // All slots are there, in their order.
        Some(DynamicStackSlot::new(slot.index()))
    }
}
