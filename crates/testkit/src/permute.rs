//! The same function in another form: everything that only numbers, orders or decorates is changed
//! at random.
//!
//! [`permuted`] builds a function anew: values, instructions, blocks and all table entries get
//! other numbers; layout, unreachable blocks, unused entities, aliases, `nop`s, source locations,
//! debug tags, value labels, slot keys and the order of commutative operands vary. Nothing that the
//! function computes changes, so it must equal the original, whatever the library thinks of either.

use crate::mutate::{Field, fields};
use crate::support::Rng;
use cranelift_codegen::ir::{
    AbiParam, AliasRegion, AliasRegionData, Block, BlockArg, BlockCall, Constant, ConstantData,
    DebugTag, DynamicStackSlotData, DynamicTypeData, ExceptionTableData, ExceptionTableItem,
    ExtFuncData, ExternalName, FuncRef, Function, GlobalValue, GlobalValueData, Immediate, Inst,
    InstructionData, JumpTableData, MemFlags, MemFlagsData, Opcode, RelSourceLoc, SigRef,
    Signature, SourceLoc, StackSlotData, StackSlotKey, TrapCode, UserExternalName,
    UserExternalNameRef, Value, ValueLabel, ValueLabelAssignments, ValueLabelStart, ValueList,
    types,
};
use cranelift_codegen::isa::CallConv;
use cranelift_entity::EntityRef;
use cranelift_entity::packed_option::ReservedValue;
use std::collections::BTreeMap;

/// The effect of permuting on `colocated`, which is a fact about a symbol and is not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colocated {
    /// Imports are colocated exactly where they were.
    Keep,
    /// It is drawn anew which imports are colocated. The function computes what it computed.
    Change,
}

/// `func` in another form, which depends on nothing but `seed`.
pub fn permuted(func: &Function, colocated: Colocated, seed: u64) -> Function {
    let mut copy = Copy {
        old: func,
        new: Function::with_name_signature(func.name.clone(), func.signature.clone()),
        colocated,
        rng: Rng::new(seed),
        map: Map::default(),
        unreachable: Vec::new(),
    };
    copy.names();
    copy.signatures();
    copy.stack_slots();
    copy.regions();
    copy.mem_flags();
    copy.global_values();
    copy.dynamic_types();
    copy.callees();
    copy.constants();
    copy.blocks_and_values();
    copy.aliases();
    copy.operands();
    copy.layout();
    copy.decorate();
    copy.new
}

/// Operations whose operands can change places: integer ones, never those of floats, whose result
/// can be either of two NaNs. Written down anew, not taken from the library.
pub fn can_swap(opcode: Opcode) -> bool {
    use Opcode::*;
    let sums = matches!(opcode, Iadd | UaddSat | SaddSat | AvgRound | UaddOverflowTrap);
    let products = matches!(opcode, Imul | Umulhi | Smulhi | SqmulRoundSat);
    let overflows = matches!(opcode, UaddOverflow | SaddOverflow | UmulOverflow | SmulOverflow);
    let bits = matches!(opcode, Band | Bor | Bxor | Smin | Smax | Umin | Umax);
    sums || products || overflows || bits
}

/// The new entity for each old one.
#[derive(Default)]
struct Map {
    names: BTreeMap<UserExternalNameRef, UserExternalNameRef>,
    signatures: BTreeMap<SigRef, SigRef>,
    flags: BTreeMap<MemFlags, MemFlags>,
    regions: BTreeMap<AliasRegion, AliasRegion>,
    globals: BTreeMap<GlobalValue, GlobalValue>,
    callees: BTreeMap<FuncRef, FuncRef>,
    constants: BTreeMap<Constant, Constant>,
    immediates: BTreeMap<Immediate, Immediate>,
    blocks: BTreeMap<Block, Block>,
    insts: BTreeMap<Inst, Inst>,
    /// A value that is no alias, and the values that may be used for it: itself and its aliases.
    values: BTreeMap<Value, Vec<Value>>,
}

struct Copy<'a> {
    old: &'a Function,
    new: Function,
    colocated: Colocated,
    rng: Rng,
    map: Map,
    /// Blocks of the new function that the old one does not have.
    unreachable: Vec<Block>,
}

impl Copy<'_> {
    /// The old entities in random order, with `None` in between for one that nothing uses.
    fn with_unused<T>(&mut self, entities: impl IntoIterator<Item = T>) -> Vec<Option<T>> {
        let mut all: Vec<Option<T>> = entities.into_iter().map(Some).collect();
        for _ in 0..self.rng.below(3) {
            all.push(None);
        }
        self.rng.shuffle(&mut all);
        all
    }

    fn names(&mut self) {
        for old in self.with_unused(self.old.params.user_named_funcs().keys()) {
            let name = match old {
                Some(old) => self.old.params.user_named_funcs()[old].clone(),
                None => UserExternalName::new(77, self.rng.below(100) as u32),
            };
            let new = self.new.params.ensure_user_func_name(name);
            self.map.names.extend(old.map(|old| (old, new)));
        }
    }

    fn signatures(&mut self) {
        for old in self.with_unused(self.old.dfg.signatures.keys()) {
            let signature =
                old.map_or_else(unused_signature, |old| self.old.dfg.signatures[old].clone());
            let new = self.new.import_signature(signature);
            self.map.signatures.extend(old.map(|old| (old, new)));
        }
    }

    /// Slots are the frame: their order, sizes and large alignments stay.
    fn stack_slots(&mut self) {
        for slot in self.old.sized_stack_slots.values() {
            let StackSlotData { kind, size, align_shift, key: _ } = *slot;
            let key = self.rng.one_in(2).then(|| StackSlotKey::new(self.rng.word()));
            let align_shift = if align_shift <= 2 { self.rng.below(3) as u8 } else { align_shift };
            self.new.create_sized_stack_slot(StackSlotData { kind, size, align_shift, key });
        }
    }

    fn regions(&mut self) {
        for old in self.with_unused(self.old.dfg.alias_regions.iter().map(|(region, _)| region)) {
            let user_id = match old {
                Some(old) => self.old.dfg.alias_regions[old].user_id,
                None => 1000 + self.rng.below(100) as u32,
            };
            let data = AliasRegionData { user_id, description: "another name".into() };
            let new = self.new.dfg.alias_regions.insert(data);
            self.map.regions.extend(old.map(|old| (old, new)));
        }
    }

    fn mem_flags(&mut self) {
        let insts = self.old.layout.blocks().flat_map(|block| self.old.layout.block_insts(block));
        let mut used: Vec<MemFlags> =
            insts.filter_map(|inst| self.old.dfg.insts[inst].memflags()).collect();
        used.extend(self.old.global_values.values().filter_map(|data| match data {
            GlobalValueData::Load { base: _, offset: _, global_type: _, flags } => Some(*flags),
            _ => None,
        }));
        used.sort_unstable();
        used.dedup();
        for old in self.with_unused(used) {
            let data = match old {
                Some(old) => {
                    let data = self.old.dfg.mem_flags[old];
                    data.with_alias_region(data.alias_region().map(|old| self.map.regions[&old]))
                }
                None => {
                    let code = TrapCode::unwrap_user(100 + self.rng.below(100) as u8);
                    MemFlagsData::new().with_trap_code(Some(code))
                }
            };
            let new = self.new.dfg.mem_flags.insert(data).expect("few flags");
            self.map.flags.extend(old.map(|old| (old, new)));
        }
    }

    fn global_values(&mut self) {
        let order = self.with_unused(self.old.global_values.keys());
        // A base can come after what is built on it, so all numbers are settled first.
        for (index, old) in order.iter().enumerate() {
            self.map.globals.extend(old.map(|old| (old, GlobalValue::new(index))));
        }
        for old in order {
            let data = match old {
                Some(old) => self.global_value(&self.old.global_values[old]),
                None => GlobalValueData::DynScaleTargetConst { vector_type: types::I8X16 },
            };
            self.new.create_global_value(data);
        }
        self.new.stack_limit = self.old.stack_limit.map(|limit| self.map.globals[&limit]);
    }

    fn global_value(&self, old: &GlobalValueData) -> GlobalValueData {
        let mut new = old.clone();
        match &mut new {
            GlobalValueData::Load { base, offset: _, global_type: _, flags } => {
                *base = self.map.globals[base];
                *flags = self.map.flags[flags];
            }
            GlobalValueData::IAddImm { base, offset: _, global_type: _ } => {
                *base = self.map.globals[base];
            }
            GlobalValueData::Symbol { name, offset: _, colocated: _, tls: _ } => {
                *name = self.name(name);
            }
            GlobalValueData::VMContext => {}
            GlobalValueData::DynScaleTargetConst { vector_type: _ } => {}
        }
        new
    }

    fn name(&self, old: &ExternalName) -> ExternalName {
        match old {
            ExternalName::User(name) => ExternalName::User(self.map.names[name]),
            other => other.clone(),
        }
    }

    fn dynamic_types(&mut self) {
        for data in self.old.dfg.dynamic_types.values() {
            let DynamicTypeData { base_vector_ty, dynamic_scale } = data;
            let scale = self.map.globals[dynamic_scale];
            self.new.dfg.make_dynamic_ty(DynamicTypeData::new(*base_vector_ty, scale));
        }
        for data in self.old.dynamic_stack_slots.values() {
            let DynamicStackSlotData { kind, dyn_ty } = data;
            self.new.create_dynamic_stack_slot(DynamicStackSlotData::new(*kind, *dyn_ty));
        }
    }

    fn callees(&mut self) {
        // The parser fills gaps in the numbering with imports that have no signature.
        let real = |old: &FuncRef| !self.old.dfg.ext_funcs[*old].signature.is_reserved_value();
        let callees: Vec<FuncRef> = self.old.dfg.ext_funcs.keys().filter(real).collect();
        for old in self.with_unused(callees) {
            match old {
                Some(old) => {
                    let new = self.callee(old);
                    self.map.callees.insert(old, new);
                }
                None => {
                    let signature = self.new.import_signature(unused_signature());
                    let name = ExternalName::testcase("unused");
                    let (colocated, patchable) = (true, self.rng.one_in(2));
                    self.new.import_function(ExtFuncData { name, signature, colocated, patchable });
                }
            }
        }
    }

    /// One more import of a callee.
    fn callee(&mut self, old: FuncRef) -> FuncRef {
        let ExtFuncData { name, signature, mut colocated, patchable } =
            self.old.dfg.ext_funcs[old].clone();
        // The verifier wants patchable callees to be colocated.
        if self.colocated == Colocated::Change && !patchable {
            colocated = self.rng.one_in(2);
        }
        let signature = self.signature(signature);
        let name = self.name(&name);
        self.new.import_function(ExtFuncData { name, signature, colocated, patchable })
    }

    /// The new signature, at times one more import of it.
    fn signature(&mut self, old: SigRef) -> SigRef {
        match self.rng.one_in(3) {
            true => self.new.import_signature(self.old.dfg.signatures[old].clone()),
            false => self.map.signatures[&old],
        }
    }

    fn constants(&mut self) {
        let constants: Vec<_> = self.old.dfg.constants.iter().map(|(&old, _)| old).collect();
        for old in self.with_unused(constants) {
            let data = match old {
                Some(old) => self.old.dfg.constants.get(old).clone(),
                None => ConstantData::from(self.rng.bytes(16)),
            };
            let new = self.new.dfg.constants.insert(data);
            self.map.constants.extend(old.map(|old| (old, new)));
        }
        for old in self.with_unused(self.old.dfg.immediates.keys()) {
            let data = match old {
                Some(old) => self.old.dfg.immediates[old].clone(),
                None => ConstantData::from(self.rng.bytes(16)),
            };
            let new = self.new.dfg.immediates.push(data);
            self.map.immediates.extend(old.map(|old| (old, new)));
        }
    }

    /// Numbers blocks, instructions and values, all three in random order. Operands must wait until
    /// all values have a number.
    fn blocks_and_values(&mut self) {
        for old in self.with_unused(self.old.layout.blocks()) {
            let new = self.new.dfg.make_block();
            match old {
                Some(old) => _ = self.map.blocks.insert(old, new),
                None => self.unreachable.push(new),
            }
        }
        let mut definitions = Vec::new();
        for block in self.old.layout.blocks() {
            definitions.push((block, None));
            definitions.extend(self.old.layout.block_insts(block).map(|inst| (block, Some(inst))));
        }
        self.rng.shuffle(&mut definitions);
        for (block, inst) in definitions {
            if self.rng.one_in(8) {
                self.new.dfg.make_invalid_value_for_parser();
            }
            match inst {
                None => {
                    for &param in self.old.dfg.block_params(block) {
                        let ty = self.old.dfg.value_type(param);
                        let new = self.new.dfg.append_block_param(self.map.blocks[&block], ty);
                        self.map.values.insert(param, vec![new]);
                    }
                }
                Some(inst) => self.instruction(inst),
            }
        }
    }

    /// An instruction with its results, but without operands.
    fn instruction(&mut self, old: Inst) {
        let mut data = self.old.dfg.insts[old];
        for field in fields(&mut data) {
            match field {
                Field::Callee(callee) => *callee = self.map.callees[callee],
                Field::Signature(sig) => *sig = self.map.signatures[sig],
                // Not empty, because an indirect call looks for its callee before its signature.
                Field::List(list) => {
                    *list = ValueList::from_slice(&[Value::new(0)], &mut self.new.dfg.value_lists);
                }
                // The others do not decide the types of results.
                _ => {}
            }
        }
        let new = self.new.dfg.make_inst(data);
        self.map.insts.insert(old, new);
        let results = self.old.dfg.inst_results(old);
        if !results.is_empty() {
            self.new.dfg.make_inst_results(new, self.old.dfg.ctrl_typevar(old));
            let created = self.new.dfg.inst_results(new);
            assert_eq!(created.len(), results.len());
            let created = created.iter().map(|&created| vec![created]);
            self.map.values.extend(results.iter().copied().zip(created));
        }
    }

    fn aliases(&mut self) {
        for names in self.map.values.values_mut() {
            while self.rng.one_in(4) {
                // Of an alias, too: aliases make chains.
                let target = self.rng.choose(names);
                let alias = Value::new(self.new.dfg.num_values());
                self.new.dfg.make_invalid_value_for_parser();
                self.new.dfg.make_value_alias_for_serialization(target, alias);
                names.push(alias);
            }
        }
    }

    fn value(&mut self, old: Value) -> Value {
        self.rng.choose(&self.map.values[&self.old.dfg.resolve_aliases(old)])
    }

    /// Fills in the operands of all instructions.
    fn operands(&mut self) {
        let mut insts: Vec<(Inst, Inst)> =
            self.map.insts.iter().map(|(&old, &new)| (old, new)).collect();
        self.rng.shuffle(&mut insts);
        for (old, new) in insts {
            let mut data = self.old.dfg.insts[old];
            fields(&mut data).into_iter().for_each(|field| self.field(field));
            if can_swap(data.opcode()) && self.rng.one_in(2) {
                data.arguments_mut(&mut self.new.dfg.value_lists).swap(0, 1);
            }
            self.new.dfg.insts[new] = data;
        }
        if self.rng.one_in(2) {
            let unused = BlockCall::new(Block::new(0), [], &mut self.new.dfg.value_lists);
            self.new.dfg.jump_tables.push(JumpTableData::new(unused, &[]));
        }
    }

    /// Maps a field of an instruction.
    fn field(&mut self, field: Field<'_>) {
        match field {
            Field::Values(values) => {
                values.iter_mut().for_each(|value| *value = self.value(*value));
            }
            Field::List(list) => {
                let old: Vec<Value> = list.as_slice(&self.old.dfg.value_lists).to_vec();
                let new: Vec<Value> = old.into_iter().map(|value| self.value(value)).collect();
                *list = ValueList::from_slice(&new, &mut self.new.dfg.value_lists);
            }
            Field::Flags(flags) => *flags = self.map.flags[flags],
            Field::Block(block) => *block = self.map.blocks[block],
            Field::Target(call) => *call = self.block_call(*call),
            Field::Targets(calls) => *calls = calls.map(|call| self.block_call(call)),
            Field::JumpTable(table) => {
                let old = &self.old.dfg.jump_tables[*table];
                let default = self.block_call(old.default_block());
                let entries: Vec<BlockCall> =
                    old.as_slice().iter().map(|&call| self.block_call(call)).collect();
                let new = JumpTableData::new(default, &entries);
                *table = self.new.dfg.jump_tables.push(new);
            }
            Field::Handlers(table) => {
                let old = &self.old.dfg.exception_tables[*table];
                let signature = self.signature(old.signature());
                let normal_return = self.block_call(*old.normal_return());
                let items = old.items().map(|item| match item {
                    ExceptionTableItem::Tag(tag, call) => {
                        ExceptionTableItem::Tag(tag, self.block_call(call))
                    }
                    ExceptionTableItem::Default(call) => {
                        ExceptionTableItem::Default(self.block_call(call))
                    }
                    ExceptionTableItem::Context(value) => {
                        ExceptionTableItem::Context(self.value(value))
                    }
                });
                let items: Vec<ExceptionTableItem> = items.collect();
                let new = ExceptionTableData::new(signature, normal_return, items);
                *table = self.new.dfg.exception_tables.push(new);
            }
            Field::Signature(sig) => *sig = self.signature(*sig),
            // A front end may import a callee at every call.
            Field::Callee(callee) if self.rng.one_in(3) => *callee = self.callee(*callee),
            Field::Callee(callee) => *callee = self.map.callees[callee],
            Field::Global(global) => *global = self.map.globals[global],
            Field::Mask(mask) => *mask = self.map.immediates[mask],
            Field::Constant(constant) => *constant = self.map.constants[constant],
            // Slots keep their numbers, and everything else is no entity.
            Field::Slot(_) | Field::DynamicSlot(_) => {}
            Field::Opcode(_) | Field::Offset(_) | Field::Byte(_) | Field::Word(_) => {}
            Field::F16(_) | Field::F32(_) | Field::F64(_) => {}
            Field::TrapCode(_) | Field::Operator(_) => {}
            Field::IntCondition(_) | Field::FloatCondition(_) => {}
        }
    }

    fn block_call(&mut self, old: BlockCall) -> BlockCall {
        let pool = &self.old.dfg.value_lists;
        let block = self.map.blocks[&old.block(pool)];
        let args: Vec<BlockArg> = old.args(pool).collect();
        let args: Vec<BlockArg> =
            args.into_iter().map(|arg| arg.map_value(|value| self.value(value))).collect();
        BlockCall::new(block, args, &mut self.new.dfg.value_lists)
    }

    fn layout(&mut self) {
        let entry = self.old.layout.entry_block().expect("has a body");
        let rest = self.old.layout.blocks().filter(|&block| block != entry);
        let mut order: Vec<Result<Block, Block>> = rest.map(Ok).collect();
        order.extend(self.unreachable.iter().copied().map(Err));
        self.rng.shuffle(&mut order);
        order.insert(0, Ok(entry));
        for block in order {
            match block {
                Err(new) => self.unreachable_block(new),
                Ok(old) => {
                    let new = self.map.blocks[&old];
                    self.new.layout.append_block(new);
                    for inst in self.old.layout.block_insts(old) {
                        if self.rng.one_in(6) {
                            let nop = InstructionData::NullAry { opcode: Opcode::Nop };
                            let nop = self.new.dfg.make_inst(nop);
                            self.new.layout.append_inst(nop, new);
                        }
                        self.new.layout.append_inst(self.map.insts[&inst], new);
                    }
                    if self.old.layout.is_cold(old) {
                        self.new.layout.set_cold(new);
                    }
                }
            }
        }
    }

    /// A block to which no branch leads, but which may branch to others.
    fn unreachable_block(&mut self, block: Block) {
        self.new.layout.append_block(block);
        let imm = (self.rng.word() as i64).into();
        let constant = InstructionData::UnaryImm { opcode: Opcode::Iconst, imm };
        let constant = self.new.dfg.make_inst(constant);
        self.new.dfg.make_inst_results(constant, types::I64);
        self.new.layout.append_inst(constant, block);
        let callees: Vec<FuncRef> = self.map.callees.values().copied().collect();
        if !callees.is_empty() && self.rng.one_in(2) {
            // It is never executed, but what it refers to must exist.
            let func_ref = self.rng.choose(&callees);
            let address = InstructionData::FuncAddr { opcode: Opcode::FuncAddr, func_ref };
            let address = self.new.dfg.make_inst(address);
            self.new.dfg.make_inst_results(address, types::I64);
            self.new.layout.append_inst(address, block);
        }
        // No branch leads to the entry block, and arguments for other blocks would have to be made.
        let entry = self.old.layout.entry_block();
        let rest = self.map.blocks.iter().filter(|&(&old, _)| Some(old) != entry);
        let mut targets: Vec<Block> = rest.map(|(_, &new)| new).collect();
        targets.retain(|&target| self.new.dfg.num_block_params(target) == 0);
        let end = if targets.is_empty() || self.rng.one_in(2) {
            InstructionData::Trap { opcode: Opcode::Trap, code: TrapCode::unwrap_user(99) }
        } else {
            let target = self.rng.choose(&targets);
            let destination = BlockCall::new(target, [], &mut self.new.dfg.value_lists);
            InstructionData::Jump { opcode: Opcode::Jump, destination }
        };
        let end = self.new.dfg.make_inst(end);
        self.new.layout.append_inst(end, block);
    }

    fn decorate(&mut self) {
        if self.rng.one_in(2) {
            let base = SourceLoc::new(1 + self.rng.below(1000) as u32);
            self.new.params.ensure_base_srcloc(base);
        }
        for (&old, &new) in &self.map.insts {
            let opcode = self.new.dfg.insts[new].opcode();
            if self.rng.one_in(4) {
                self.new.set_srcloc(new, SourceLoc::new(self.rng.below(10_000) as u32));
            }
            if (opcode.is_call() || opcode == Opcode::SequencePoint) && self.rng.one_in(2) {
                self.new.debug_tags.set(new, [DebugTag::User(self.rng.word() as u32)]);
            }
            if let Some(entries) = self.old.dfg.user_stack_map_entries(old) {
                self.new.dfg.append_user_stack_map_entries(new, entries.iter().cloned());
            }
        }
        if self.rng.one_in(2) {
            let mut labels = BTreeMap::new();
            for names in self.map.values.values() {
                let from = RelSourceLoc::new(self.rng.below(10) as u32);
                let label = ValueLabel::from_u32(self.rng.below(10) as u32);
                let start = ValueLabelStart { from, label };
                labels.insert(names[0], ValueLabelAssignments::Starts(vec![start]));
            }
            self.new.dfg.values_labels = Some(labels);
        }
    }
}

fn unused_signature() -> Signature {
    let mut signature = Signature::new(CallConv::SystemV);
    signature.params.push(AbiParam::new(types::F32));
    signature
}
