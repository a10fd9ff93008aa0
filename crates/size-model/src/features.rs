//! The features from which the size of native code is predicted: instructions, constants,
//! arguments, and how many values live at once.
//!
//! Two scans of a function in layout order: one backward, which finds the used values and where for
//! the last time; one forward, which counts. Of a target it knows only how many registers take
//! arguments and hold values. It predicts nothing itself.

use crate::quantity::{Class, ConstantUse, Feature, Quantity};
use crate::registers::{Location, Registers};
use crate::thunk;
use crate::uses::{Held, Known, Scratch};
use alloc::vec::Vec;
use cranelift_codegen::ir::{
    Block, BlockArg, BlockCall, Function, GlobalValueData, Inst, InstructionData, Opcode,
    Signature, StackSlot, Type, Value, ValueDef, types,
};
use cranelift_codegen::isa::CallConv;
use cranelift_entity::EntityRef;

/// How many accesses are remembered.
const MAX_KNOWN: usize = 16;

/// Hands out the features of a function, each with how often it has it. The same feature may come
/// several times. Linear in the size of the function.
///
/// See the [example](crate#example).
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
    scratch.read(func);
    let mut scan = Scan {
        func,
        registers,
        position: scratch.instructions + 1,
        scratch,
        count,
        calls: 0,
        live: Live::default(),
        has_area: false,
        known: Vec::new(),
        times: 1,
    };
    scan.function();
}

/// Whether the weights know a type: back ends support others only in part.
pub(super) fn is_known(ty: Type) -> bool {
    match ty {
        types::F32 | types::F64 => true,
        _ if ty.is_vector() => ty.bits() == 128,
        _ => ty.is_int(),
    }
}

/// The base of the address of an access.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    Slot(StackSlot),
    Value(Value),
}

/// How many values live, at once and across calls.
#[derive(Default)]
struct Live {
    /// How many integers live here.
    integers: u32,
    /// How many floating-point numbers and vectors live here.
    floats: u32,
    /// The most integers that lived at once.
    most: u32,
    /// The most integers that lived across a call.
    max_across_calls: u32,
    /// The integers whose last use came behind a call.
    across_calls: u32,
    /// The uses of integers behind a call.
    uses_after_calls: u32,
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
    live: Live,
    /// Whether the frame holds stack slots or arguments of callees.
    has_area: bool,
    /// The last loads and stores in this block.
    known: Vec<(Base, i32, Type)>,
    /// How often the feature is in the code.
    times: u32,
}

impl<C: FnMut(Feature, u32)> Scan<'_, C> {
    fn add(&mut self, quantity: Quantity, by: u32) {
        if by > 0 {
            (self.count)(Feature::Quantity(quantity), by * self.times);
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
            self.times = 1;
            for &param in func.dfg.block_params(block) {
                self.define(param);
            }
            let next = func.layout.next_block(block);
            for inst in func.layout.block_insts(block) {
                self.position -= 1;
                self.times = self.scratch.times[inst.index()];
                if self.times > 0 {
                    self.instruction(inst, next);
                }
            }
        }
        self.times = 1;
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

    /// The needs of the whole function.
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
        let crowded = self.live.most.saturating_sub(integers - saved);
        self.add(Quantity::SavedRegister, saved.min(self.live.max_across_calls.max(crowded)));
        let enough = self.live.max_across_calls <= saved;
        let [values, uses] = match enough {
            true => [Quantity::AcrossCall, Quantity::UseAfterCall],
            false => [Quantity::SpilledAcrossCall, Quantity::ReloadAfterCall],
        };
        self.add(values, self.live.across_calls);
        self.add(uses, self.live.uses_after_calls);
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
                self.live.floats += 1;
            }
            Held::Integer => {
                known.calls_before = self.calls;
                self.live.integers += 1;
                self.live.most = self.live.most.max(self.live.integers);
                if self.live.integers > self.registers.integers {
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
            Held::Constant(kind) => (self.count)(Feature::Constant(of, kind), self.times),
            Held::Slot { far } => self.slot(far, Quantity::SlotAddress),
            Held::Float => {
                if self.live.floats > self.registers.floats {
                    self.add(Quantity::CrowdedFloatUse, 1);
                }
                if across {
                    self.add(Quantity::FloatAcrossCall, 1);
                }
                if ends {
                    self.scratch.values[value.index()].last = 0;
                    self.live.floats = self.live.floats.saturating_sub(1);
                }
            }
            Held::Integer => {
                if self.live.integers > self.registers.integers {
                    self.add(Quantity::CrowdedUse, 1);
                }
                self.live.uses_after_calls += u32::from(across);
                if ends {
                    self.scratch.values[value.index()].last = 0;
                    self.live.integers = self.live.integers.saturating_sub(1);
                    self.live.across_calls += u32::from(across);
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
        if let Some(only) = self.scratch.only_destination(self.func, inst) {
            (self.count)(Feature::Instruction(Opcode::Jump, Class::Narrow), 1);
            return self.branch(Opcode::Jump, &[only], next);
        }
        let ty = dfg.ctrl_typevar(inst);
        let class = match data {
            InstructionData::UnaryIeee32 { opcode: _, imm } => {
                Class::of_constant(imm.bits().into())
            }
            InstructionData::UnaryIeee64 { opcode: _, imm } => Class::of_constant(imm.bits()),
            _ => Class::of(ty),
        };
        (self.count)(Feature::Instruction(opcode, class), self.times);
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
            let destinations = data.branch_destination(&dfg.jump_tables, &dfg.exception_tables);
            self.branch(opcode, destinations, next);
        }
        self.address(data);
        self.memory(data, ty);
        if opcode.is_call() && !opcode.is_return() {
            self.calls += 1;
            self.live.max_across_calls = self.live.max_across_calls.max(self.live.integers);
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
                    (self.count)(Feature::Constant(of, kind), self.times);
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
            let alone = can_fuse.then(|| self.scratch.only_for(func, value)).flatten();
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
    fn branch(&mut self, opcode: Opcode, destinations: &[BlockCall], next: Option<Block>) {
        let dfg = &self.func.dfg;
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
        let follows = |destination: &BlockCall| Some(destination.block(&dfg.value_lists)) == next;
        match opcode {
            Opcode::Jump if destinations.iter().all(follows) => self.add(Quantity::FallThrough, 1),
            Opcode::Brif if !destinations.iter().any(follows) => self.add(Quantity::TwoJumps, 1),
            Opcode::BrTable => self.add(Quantity::TableEntry, destinations.len() as u32),
            _ => {}
        }
    }

    /// Loads of what an access before them in the same block left in a register: the optimiser
    /// removes them. `ty` is the type of an access.
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
