//! What the size of native code is predicted from: instructions, constants, arguments, and how many values live at once.
//!
//! Two scans of a function in layout order: one backward, which finds what is used and where for the last time; one
//! forward, which counts. Of a target it knows only how many registers take arguments and hold values. It predicts
//! nothing itself.

use super::quantity::{Class, ConstantKind, ConstantUse, Feature, Quantity};
use super::registers::{Location, Registers};
use super::thunk;
use alloc::vec::Vec;
use cranelift_codegen::ir::{
    Block, BlockArg, ExceptionTableItem, Function, GlobalValueData, Inst, InstructionData, Opcode,
    Signature, StackSlot, Type, Value, ValueDef, types,
};
use cranelift_codegen::isa::CallConv;
use cranelift_entity::EntityRef;
use cranelift_entity::packed_option::PackedOption;

/// How many stack slots are read at most to know how far away one is.
const MAX_SLOTS: usize = 64;

/// How many accesses are remembered.
const MAX_KNOWN: usize = 16;

/// What is known of each value of a function. Kept from function to function for its memory.
#[derive(Default)]
pub struct Scratch {
    /// By the index of a value.
    values: Vec<Known>,
    /// By instruction.
    is_needed: Vec<bool>,
    /// The sizes in bytes of the first stack slots together, by their number.
    slots: Vec<u64>,
    /// How many instructions there are in the layout.
    instructions: u32,
}

/// What is known of a value. Of an alias, only the original.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The value that it is an alias of, or itself; none if it is not used.
    original: PackedOption<Value>,
    /// How often it is used.
    uses: u32,
    /// The last instruction that uses it, counted from the end of the layout, from 1.
    last: u32,
    /// How many calls there are before its definition.
    calls_before: u32,
    held: Held,
}

/// Where a value is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Held {
    /// In an integer register, or spilled.
    #[default]
    Integer,
    /// In a register for floating-point numbers or vectors, or spilled.
    Float,
    /// In the code: an integer constant is computed where it is used, and takes no register for long.
    Constant(ConstantKind),
    /// The same for the address of a stack slot.
    Slot {
        /// Whether it is 128 bytes or more from the beginning of the frame.
        far: bool,
    },
}

/// Hands out the features of a function, each with how often it has it. The same feature may come several times.
/// Linear in the size of the function.
pub fn features(
    func: &Function,
    registers: &Registers,
    scratch: &mut Scratch,
    count: &mut impl FnMut(Feature, u32),
) {
    if let Some(thunk) = thunk::read(func) {
        thunk.features(func, registers, count);
        return;
    }
    scratch.clear(func);
    scratch.find_uses(func);
    let mut scan = Scan {
        func,
        registers,
        position: scratch.instructions + 1,
        scratch,
        count,
        calls: 0,
        live: 0,
        live_floats: 0,
        most_live: 0,
        most_across_calls: 0,
        across_calls: 0,
        uses_after_calls: 0,
        has_area: false,
        known: Vec::new(),
    };
    scan.function();
}

/// The instruction that defines a value, if the value has only one use.
fn only_for(func: &Function, scratch: &Scratch, value: Value) -> Option<Inst> {
    if scratch.values[value.index()].uses != 1 {
        return None;
    }
    match func.dfg.value_def(value) {
        ValueDef::Result(inst, _) => Some(inst),
        _ => None,
    }
}

/// Whether the weights know a type: back ends support others only in part.
pub(super) fn is_known(ty: Type) -> bool {
    match ty {
        types::F32 | types::F64 => true,
        _ if ty.is_vector() => ty.bits() == 128,
        _ => ty.is_int(),
    }
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

impl Scratch {
    fn clear(&mut self, func: &Function) {
        self.values.clear();
        self.values.resize(func.dfg.num_values(), Known::default());
        self.is_needed.clear();
        self.is_needed.resize(func.dfg.num_insts(), false);
        self.slots.clear();
        let sizes = func.sized_stack_slots.values().take(MAX_SLOTS);
        self.slots.extend(sizes.scan(0, |before, slot| {
            *before += u64::from(slot.size);
            Some(*before)
        }));
        self.instructions = 0;
    }

    /// Finds what is needed, from the end: uses follow definitions in most layouts.
    fn find_uses(&mut self, func: &Function) {
        let dfg = &func.dfg;
        let mut blocks = func.layout.last_block();
        while let Some(block) = blocks {
            blocks = func.layout.prev_block(block);
            let mut insts = func.layout.last_inst(block);
            while let Some(inst) = insts {
                insts = func.layout.prev_inst(inst);
                self.instructions += 1;
                let data = &dfg.insts[inst];
                let results = dfg.inst_results(inst);
                let used = results.iter().any(|value| self.values[value.index()].uses > 0);
                if !used && !has_effect(data) {
                    continue;
                }
                self.is_needed[inst.index()] = true;
                for &value in dfg.inst_args(inst) {
                    self.found_use(func, value);
                }
                for call in data.branch_destination(&dfg.jump_tables, &dfg.exception_tables) {
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

    /// Notes that the instruction at hand uses a value.
    #[inline]
    fn found_use(&mut self, func: &Function, value: Value) {
        let original = match self.values[value.index()].original.expand() {
            Some(original) => original,
            None => self.first_use(func, value),
        };
        self.values[original.index()].uses += 1;
    }

    /// Finds out what is known of a value, when its last use is found. Returns the value that it is an alias of, or itself.
    fn first_use(&mut self, func: &Function, value: Value) -> Value {
        let original = func.dfg.resolve_aliases(value);
        self.values[value.index()].original = original.into();
        if self.values[original.index()].uses == 0 {
            self.values[original.index()] = Known {
                original: original.into(),
                uses: 0,
                last: self.instructions,
                calls_before: 0,
                held: self.held(func, original),
            };
        }
        original
    }

    fn held(&self, func: &Function, value: Value) -> Held {
        let ty = func.dfg.value_type(value);
        if !ty.is_int() {
            return Held::Float;
        }
        let ValueDef::Result(inst, _) = func.dfg.value_def(value) else {
            return Held::Integer;
        };
        match func.dfg.insts[inst] {
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => {
                Held::Constant(ConstantKind::of(ty, imm.bits()))
            }
            InstructionData::StackAddr { opcode: _, stack_slot, offset } => {
                // Roughly: where there are many slots, the first ones count.
                let before = stack_slot.index().min(self.slots.len()).checked_sub(1);
                let before = before.map_or(0, |last| self.slots[last]);
                Held::Slot { far: before.saturating_add_signed(i32::from(offset).into()) > 127 }
            }
            _ => Held::Integer,
        }
    }

    /// The value that a used one is an alias of, or itself.
    fn original(&self, value: Value) -> Value {
        self.values[value.index()].original.expand().unwrap_or(value)
    }
}

/// What the address of an access is relative to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    Slot(StackSlot),
    Value(Value),
}

struct Scan<'a, C> {
    func: &'a Function,
    registers: &'a Registers,
    scratch: &'a mut Scratch,
    count: &'a mut C,
    /// Of this instruction, counted from the end of the layout, from 1.
    position: u32,
    /// How many calls there were so far.
    calls: u32,
    /// How many integers live here.
    live: u32,
    /// How many floating-point numbers and vectors live here.
    live_floats: u32,
    /// The most integers that lived at once.
    most_live: u32,
    /// The most integers that lived across a call.
    most_across_calls: u32,
    /// The integers whose last use came behind a call.
    across_calls: u32,
    /// The uses of integers behind a call.
    uses_after_calls: u32,
    /// Whether the frame holds stack slots or arguments of callees.
    has_area: bool,
    /// What was loaded or stored last in this block.
    known: Vec<(Base, i32, Type)>,
}

impl<C: FnMut(Feature, u32)> Scan<'_, C> {
    fn add(&mut self, quantity: Quantity, by: u32) {
        if by > 0 {
            (self.count)(Feature::Quantity(quantity), by);
        }
    }

    fn function(&mut self) {
        let func = self.func;
        self.add(Quantity::Function, 1);
        if func.signature.call_conv == CallConv::Tail {
            self.add(Quantity::Tail, 1);
        }
        self.parameters();
        for block in func.layout.blocks() {
            for &param in func.dfg.block_params(block) {
                self.define(param);
            }
            let next = func.layout.next_block(block);
            for inst in func.layout.block_insts(block) {
                self.position -= 1;
                if self.scratch.is_needed[inst.index()] {
                    self.instruction(inst, next);
                }
            }
        }
        self.frame();
    }

    fn parameters(&mut self) {
        let func = self.func;
        let mut taken = self.registers.taken(func.signature.call_conv);
        let Some(entry) = func.layout.entry_block() else {
            return;
        };
        for (param, &value) in func.signature.params.iter().zip(func.dfg.block_params(entry)) {
            let location = taken.place(param);
            if self.scratch.values[value.index()].uses > 0 {
                let quantity = match location {
                    Location::Register(_) => Quantity::Parameter,
                    Location::Stack(_) => Quantity::StackParameter,
                };
                self.add(quantity, 1);
            }
        }
    }

    /// What the whole function needs.
    fn frame(&mut self) {
        let func = self.func;
        let bytes: u64 = func.sized_stack_slots.values().map(|slot| u64::from(slot.size)).sum();
        self.has_area |= bytes > 0;
        if self.has_area {
            self.add(Quantity::StackArea, 1);
        }
        if self.calls > 0 || self.has_area {
            self.add(Quantity::Frame, 1);
        }
        self.add(Quantity::FramePage, (bytes / 4096).min(1000) as u32);
        let Registers { saved, integers, .. } = *self.registers;
        let crowded = self.most_live.saturating_sub(integers - saved);
        self.add(Quantity::SavedRegister, saved.min(self.most_across_calls.max(crowded)));
        let enough = self.most_across_calls <= saved;
        let [values, uses] = match enough {
            true => [Quantity::AcrossCall, Quantity::UseAfterCall],
            false => [Quantity::SpilledAcrossCall, Quantity::ReloadAfterCall],
        };
        self.add(values, self.across_calls);
        self.add(uses, self.uses_after_calls);
    }

    fn define(&mut self, value: Value) {
        let known = &mut self.scratch.values[value.index()];
        if known.uses == 0 {
            return;
        }
        match known.held {
            Held::Constant(_) | Held::Slot { .. } => {}
            Held::Float => {
                known.calls_before = self.calls;
                self.live_floats += 1;
            }
            Held::Integer => {
                known.calls_before = self.calls;
                self.live += 1;
                self.most_live = self.most_live.max(self.live);
                if self.live > self.registers.integers {
                    self.add(Quantity::CrowdedDefinition, 1);
                }
            }
        }
    }

    /// A use of a value. Of a constant, `of` says what for.
    fn uses(&mut self, value: Value, of: ConstantUse) {
        let Known { last, calls_before, held, .. } = self.scratch.values[value.index()];
        let across = self.calls > calls_before;
        // No other operand of this instruction ends it again.
        let ends = last == self.position;
        match held {
            Held::Constant(kind) => (self.count)(Feature::Constant(of, kind), 1),
            Held::Slot { far } => self.slot(far, Quantity::SlotAddress),
            Held::Float => {
                if self.live_floats > self.registers.floats {
                    self.add(Quantity::CrowdedFloatUse, 1);
                }
                if across {
                    self.add(Quantity::FloatAcrossCall, 1);
                }
                if ends {
                    self.scratch.values[value.index()].last = 0;
                    self.live_floats = self.live_floats.saturating_sub(1);
                }
            }
            Held::Integer => {
                if self.live > self.registers.integers {
                    self.add(Quantity::CrowdedUse, 1);
                }
                self.uses_after_calls += u32::from(across);
                if ends {
                    self.scratch.values[value.index()].last = 0;
                    self.live = self.live.saturating_sub(1);
                    self.across_calls += u32::from(across);
                }
            }
        }
    }

    /// A use of the address of a stack slot: for a load, a store, or in a register.
    fn slot(&mut self, far: bool, of: Quantity) {
        self.add(of, 1);
        self.add(Quantity::FarSlot, u32::from(far));
    }

    fn is_constant(&self, value: Value) -> bool {
        matches!(self.scratch.values[value.index()].held, Held::Constant(_))
    }

    fn lives_on(&self, value: Value) -> bool {
        self.scratch.values[value.index()].last != self.position
    }

    fn instruction(&mut self, inst: Inst, next: Option<Block>) {
        let dfg = &self.func.dfg;
        let data = &dfg.insts[inst];
        let opcode = data.opcode();
        if matches!(opcode, Opcode::Iconst | Opcode::StackAddr) {
            // Counts where it is used.
            return self.results(inst);
        }
        let ty = dfg.ctrl_typevar(inst);
        let class = match data {
            InstructionData::UnaryIeee32 { opcode: _, imm } => {
                Class::of_constant(imm.bits().into())
            }
            InstructionData::UnaryIeee64 { opcode: _, imm } => Class::of_constant(imm.bits()),
            _ => Class::of(ty),
        };
        (self.count)(Feature::Instruction(opcode, class), 1);
        match data {
            InstructionData::Call { func_ref, .. } | InstructionData::TryCall { func_ref, .. } => {
                let callee = &dfg.ext_funcs[*func_ref];
                if !callee.colocated {
                    self.add(Quantity::FarCall, 1);
                }
                self.call(inst, &dfg.signatures[callee.signature], 0);
            }
            InstructionData::CallIndirect { sig_ref, .. } => {
                self.add(Quantity::IndirectCall, 1);
                self.call(inst, &dfg.signatures[*sig_ref], 1);
            }
            InstructionData::TryCallIndirect { exception, .. } => {
                self.add(Quantity::IndirectCall, 1);
                let signature = dfg.exception_tables[*exception].signature();
                self.call(inst, &dfg.signatures[signature], 1);
            }
            _ => self.operands(inst, data),
        }
        if opcode.is_branch() {
            self.branch(data, next);
        }
        self.address(data);
        self.memory(data, ty);
        if opcode.is_call() && !opcode.is_return() {
            self.calls += 1;
            self.most_across_calls = self.most_across_calls.max(self.live);
        }
        self.results(inst);
    }

    fn results(&mut self, inst: Inst) {
        for &result in self.func.dfg.inst_results(inst) {
            self.define(result);
        }
    }

    /// The operands of an instruction that is no call.
    fn operands(&mut self, inst: Inst, data: &InstructionData) {
        let func = self.func;
        let opcode = data.opcode();
        let binary =
            matches!(data, InstructionData::Binary { .. } | InstructionData::IntCompare { .. });
        let condition =
            opcode.is_branch() || matches!(opcode, Opcode::Select | Opcode::Trapz | Opcode::Trapnz);
        let (stores, returns) = (opcode.can_store(), opcode.is_return());
        let accesses = data.memflags().is_some();
        for (at, &value) in func.dfg.inst_args(inst).iter().enumerate() {
            let value = self.scratch.original(value);
            let of = match at {
                1 if binary => ConstantUse::Operand,
                0 if stores => ConstantUse::Stored,
                _ if returns => ConstantUse::Returned,
                _ => ConstantUse::Other,
            };
            match self.scratch.values[value.index()].held {
                Held::Constant(kind) => {
                    (self.count)(Feature::Constant(of, kind), 1);
                    continue;
                }
                Held::Slot { far } => {
                    let is_address = at == 1;
                    self.slot(
                        far,
                        match data {
                            InstructionData::Load { .. } => Quantity::SlotLoad,
                            InstructionData::Store { .. } if is_address => Quantity::SlotStore,
                            _ => Quantity::SlotAddress,
                        },
                    );
                    continue;
                }
                Held::Integer | Held::Float => {}
            }
            let can_fuse = binary || accesses || condition && at == 0;
            let alone = can_fuse.then(|| only_for(func, self.scratch, value)).flatten();
            match alone.map(|inst| &func.dfg.insts[inst]) {
                Some(InstructionData::IntCompare { .. }) if condition && at == 0 => {
                    self.add(Quantity::FusedCompare, 1);
                }
                Some(InstructionData::Load { .. }) if binary => self.add(Quantity::FusedLoad, 1),
                Some(InstructionData::Binary { opcode: Opcode::Iadd, .. }) if accesses => {
                    self.add(Quantity::FusedAddress, 1);
                }
                _ => {}
            }
            if opcode == Opcode::Uextend
                && let ValueDef::Result(from, _) = func.dfg.value_def(value)
                && !func.dfg.insts[from].opcode().is_call()
                && func.dfg.value_type(value).bits() == 32
            {
                self.add(Quantity::FreeExtension, 1);
            }
            if at == 0 && binary && self.lives_on(value) {
                self.add(Quantity::LivingOperand, 1);
            }
            self.uses(value, of);
        }
    }

    /// The operands and results of a call, behind `skipped` operands that are no arguments.
    fn call(&mut self, inst: Inst, signature: &Signature, skipped: usize) {
        let func = self.func;
        let mut taken = self.registers.taken(signature.call_conv);
        for (at, &value) in func.dfg.inst_args(inst).iter().enumerate() {
            let value = self.scratch.original(value);
            let param = at.checked_sub(skipped).and_then(|at| signature.params.get(at));
            let Some(param) = param else {
                self.uses(value, ConstantUse::Other);
                continue;
            };
            let (quantity, of) = match taken.place(param) {
                Location::Register(_) => (Quantity::Argument, ConstantUse::Argument),
                Location::Stack(_) => (Quantity::StackArgument, ConstantUse::StackArgument),
            };
            if !self.is_constant(value) {
                self.add(quantity, 1);
            }
            self.uses(value, of);
        }
        self.has_area |= taken.words > 0;
        let results = func.dfg.inst_results(inst);
        let used = results.iter().filter(|value| self.scratch.values[value.index()].uses > 0);
        let used = used.count() as u32;
        self.add(Quantity::Result, used);
        self.add(Quantity::StackResult, (results.len() as u32).saturating_sub(2));
    }

    /// The blocks that an instruction branches to, and their arguments.
    fn branch(&mut self, data: &InstructionData, next: Option<Block>) {
        let dfg = &self.func.dfg;
        let destinations = data.branch_destination(&dfg.jump_tables, &dfg.exception_tables);
        for destination in destinations {
            for argument in destination.args(&dfg.value_lists) {
                let BlockArg::Value(value) = argument else {
                    continue;
                };
                let value = self.scratch.original(value);
                let quantity = match self.lives_on(value) {
                    true => Quantity::BlockArgument,
                    false => Quantity::LastBlockArgument,
                };
                if !self.is_constant(value) {
                    self.add(quantity, 1);
                }
                self.uses(value, ConstantUse::Block);
            }
        }
        let follows = |destination: &cranelift_codegen::ir::BlockCall| {
            Some(destination.block(&dfg.value_lists)) == next
        };
        match data.opcode() {
            Opcode::Jump if destinations.iter().all(follows) => self.add(Quantity::FallThrough, 1),
            Opcode::Brif if !destinations.iter().any(follows) => self.add(Quantity::TwoJumps, 1),
            Opcode::BrTable => self.add(Quantity::TableEntry, destinations.len() as u32),
            _ => {}
        }
    }

    /// Loads of what an access before them in the same block left in a register: the optimiser removes them. `ty` is
    /// the type of an access.
    fn memory(&mut self, data: &InstructionData, ty: Type) {
        let func = self.func;
        let (load, address, offset) = match *data {
            InstructionData::Load { arg, offset, .. } => (true, arg, offset),
            InstructionData::Store { args: [_, address], offset, .. } => (false, address, offset),
            _ => {
                let opcode = data.opcode();
                if opcode.is_call() || opcode.can_store() || opcode.is_terminator() {
                    self.known.clear();
                }
                return;
            }
        };
        let address = self.scratch.original(address);
        let place = match func.dfg.value_def(address) {
            ValueDef::Result(at, _) => match func.dfg.insts[at] {
                InstructionData::StackAddr { opcode: _, stack_slot, offset } => {
                    (Base::Slot(stack_slot), i32::from(offset))
                }
                _ => (Base::Value(address), 0),
            },
            _ => (Base::Value(address), 0),
        };
        let offset = place.1.wrapping_add(offset.into());
        let known = (place.0, offset, ty);
        if load && self.known.contains(&known) {
            self.add(Quantity::KnownLoad, 1);
            return;
        }
        if !load || self.known.len() == MAX_KNOWN {
            self.known.clear();
        }
        self.known.push(known);
    }

    /// Symbols, stack slots and offsets.
    fn address(&mut self, data: &InstructionData) {
        let func = self.func;
        let offset = match *data {
            InstructionData::FuncAddr { func_ref, .. } => {
                if !func.dfg.ext_funcs[func_ref].colocated {
                    self.add(Quantity::FarAddress, 1);
                }
                return;
            }
            InstructionData::UnaryGlobalValue { global_value, .. } => {
                let mut global_value = global_value;
                loop {
                    match func.global_values[global_value] {
                        GlobalValueData::Symbol { offset, colocated, .. } => {
                            self.add(Quantity::AddressOffset, u32::from(offset.bits() != 0));
                            self.add(Quantity::FarAddress, u32::from(!colocated));
                            return;
                        }
                        GlobalValueData::Load { base, .. } => {
                            self.add(Quantity::GlobalLoad, 1);
                            global_value = base;
                        }
                        GlobalValueData::IAddImm { base, .. } => global_value = base,
                        GlobalValueData::VMContext
                        | GlobalValueData::DynScaleTargetConst { .. } => {
                            return;
                        }
                    }
                }
            }
            InstructionData::Load { offset, .. } | InstructionData::Store { offset, .. } => offset,
            _ => return,
        };
        match i32::from(offset) {
            0 => {}
            -128..128 => self.add(Quantity::ShortOffset, 1),
            _ => self.add(Quantity::LongOffset, 1),
        }
    }
}
