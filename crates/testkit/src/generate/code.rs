//! The code within a block: operations on values, constants, accesses to memory, traps, effects.
//!
//! The operands of an operation are taken from the values that are known, or made. Where an
//! operation would trap on most values, most of the time its operands are made so that it does not.

use crate::generate::conventions::{DATA, FUNCTIONS};
use crate::generate::function::{Access, Builder, InSlot, Known};
use crate::generate::opcodes::{self, Immediates, Machine, Operation, Way, way};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{
    AtomicRmwOp, Endianness, Inst, InstBuilder, InstructionData, MemFlagsData, Opcode, TrapCode,
    Type, Value, types,
};

/// Where an access goes.
struct Place {
    address: Value,
    offset: i32,
    flags: MemFlagsData,
    slot: Option<InSlot>,
    null: bool,
}

/// Operations with immediates that only they have, and some that are one of a pair: drawn more
/// often than others, or changes of them would be rare.
const FREQUENT: [Opcode; 12] = [
    Opcode::Icmp,
    Opcode::Fcmp,
    Opcode::Shuffle,
    Opcode::Insertlane,
    Opcode::Extractlane,
    Opcode::Sshr,
    Opcode::Ushr,
    Opcode::Uextend,
    Opcode::Sextend,
    Opcode::Isub,
    Opcode::F32const,
    Opcode::F64const,
];

impl Builder<'_, '_, '_> {
    /// One operation, with what it needs.
    pub fn operation(&mut self) {
        match self.draw.below(16) {
            4..=7 if self.profile.unit.uniform => self.call(),
            8..=9 if self.profile.unit.uniform => self.address_of_function(),
            0..=9 => _ = self.value_operation(),
            10 | 11 => self.access(),
            12 | 13 => self.call(),
            14 if self.profile.traps => self.trap_on_condition(),
            15 => self.effect(),
            _ => _ = self.value_operation(),
        }
    }

    /// An operation of the machine on types of the profile, in one of two ways.
    fn choose_operation(&mut self, wanted: impl Fn(Way, Opcode) -> bool) -> Option<Operation> {
        let all = self.profile.machine.operations().by_opcode().iter();
        let all: Vec<_> = all.filter(|(opcode, _)| wanted(way(*opcode), *opcode)).collect();
        if all.is_empty() {
            return None;
        }
        for _ in 0..8 {
            let (_, operations) = all[self.draw.below(all.len())];
            let operation = self.draw.choose(operations);
            let mut types = [operation.operands(), operation.results()].concat();
            types.push(if operation.ctrl.is_invalid() { types::I64 } else { operation.ctrl });
            let known = types.into_iter().all(|ty| ty == types::I64 || self.profile.knows(ty));
            let is_everywhere =
                || Machine::ALL.iter().all(|machine| machine.operations().contains(&operation));
            if known && (!self.profile.portable || is_everywhere()) {
                return Some(operation);
            }
        }
        None
    }

    /// An operation from values to values, if one is found.
    pub fn value_operation(&mut self) -> Option<Inst> {
        let traps = self.profile.traps;
        let frequent = self.draw.one_in(3);
        let wanted = |way, opcode: Opcode| {
            matches!(way, Way::Value | Way::Constant)
                && (traps || !opcode.can_trap())
                && (!frequent || FREQUENT.contains(&opcode))
        };
        let operation = self.choose_operation(wanted)?;
        let mut args = Vec::new();
        let mut constant = true;
        for (at, ty) in operation.operands().into_iter().enumerate() {
            let known = self.operand(ty);
            constant &= known.constant;
            args.push(self.harmless(operation.opcode, at, known.value));
        }
        let immediates = self.immediates(&operation);
        let inst =
            opcodes::append(&mut self.body.func, self.body.block, operation, &args, &immediates);
        self.properties.free.push(inst);
        self.learn(inst, constant && !operation.opcode.can_trap());
        Some(inst)
    }

    /// Takes the results of an instruction among the values that are known.
    pub fn learn(&mut self, inst: Inst, constant: bool) {
        for &value in self.body.func.dfg.inst_results(inst) {
            self.known.push(Known { value, ty: self.body.func.dfg.value_type(value), constant });
        }
    }

    /// An operand that most likely does not let the operation trap.
    fn harmless(&mut self, opcode: Opcode, at: usize, value: Value) -> Value {
        let ty = self.body.func.dfg.value_type(value);
        match (opcode, at) {
            (Opcode::Udiv | Opcode::Sdiv | Opcode::Urem | Opcode::Srem, 1)
                if self.draw.but_one_in(12) =>
            {
                // 1 to 127
                let low = self.ins().iconst(ty, 0x7e);
                let value = self.ins().band(value, low);
                let one = self.ins().iconst(ty, 1);
                self.ins().bor(value, one)
            }
            (Opcode::FcvtToUint | Opcode::FcvtToSint, 0) if self.draw.but_one_in(12) => {
                let byte = self.operand(types::I8).value;
                if self.profile.machine.is_x86() && ty == types::F128 {
                    return value;
                }
                self.ins().fcvt_from_uint(ty, byte)
            }
            (Opcode::UaddOverflowTrap, _) if self.draw.but_one_in(12) => {
                let one = self.ins().iconst(types::I8, 1);
                self.ins().ushr(value, one)
            }
            _ => value,
        }
    }

    fn immediates(&mut self, operation: &Operation) -> Immediates {
        let draw = &mut *self.draw;
        let mut immediates = Immediates::default();
        match operation.opcode {
            Opcode::Icmp => immediates.int_cc = draw.choose(IntCC::all()),
            Opcode::Fcmp => immediates.float_cc = draw.choose(FloatCC::all()),
            Opcode::AtomicRmw => immediates.rmw = draw.choose(AtomicRmwOp::all()),
            Opcode::UaddOverflowTrap => immediates.code = self.trap_code(),
            Opcode::Extractlane | Opcode::Insertlane => immediates.lane = draw.below(16) as u8,
            Opcode::Iconst => immediates.bits = draw.bits(operation.ctrl.bits()),
            Opcode::F16const => immediates.bits = draw.float_bits(16, 10),
            Opcode::F32const => immediates.bits = draw.float_bits(32, 23),
            Opcode::F64const => immediates.bits = draw.float_bits(64, 52),
            Opcode::F128const => immediates.bits = draw.float_bits(128, 112),
            Opcode::Vconst => {
                immediates.bits = match operation.ctrl.lane_type() {
                    types::F32 => draw.float_bits(32, 23) * 0x1_0000_0001_0000_0001_0000_0001,
                    types::F64 => draw.float_bits(64, 52) | draw.float_bits(64, 52) << 64,
                    _ => draw.bits(128),
                }
            }
            Opcode::Shuffle => immediates.bits = draw.bits(128),
            _ => {}
        }
        immediates
    }

    /// A value of a type that can be used: one that is known, or a constant.
    pub fn operand(&mut self, ty: Type) -> Known {
        let known: Vec<usize> =
            (0..self.known.len()).filter(|&at| self.known[at].ty == ty).collect();
        // The last ones more often, so that what is computed is used.
        let choice = if known.is_empty() { 7 } else { self.draw.below(8) };
        match choice {
            0..=3 => self.known[known[known.len() - 1 - choice.min(known.len() - 1)]],
            4..=6 => self.known[self.draw.choose(&known)],
            _ => {
                let value = self.constant(ty);
                let known = Known { value, ty, constant: true };
                self.known.push(known);
                known
            }
        }
    }

    fn constant(&mut self, ty: Type) -> Value {
        if ty == types::I128 {
            let low = self.constant(types::I64);
            let high = self.constant(types::I64);
            return self.ins().iconcat(low, high);
        }
        let opcode = match ty {
            types::F16 => Opcode::F16const,
            types::F32 => Opcode::F32const,
            types::F64 => Opcode::F64const,
            types::F128 => Opcode::F128const,
            _ if ty.is_vector() => Opcode::Vconst,
            _ => Opcode::Iconst,
        };
        let polymorphic = opcode.constraints().is_polymorphic();
        let ctrl = if polymorphic { ty } else { types::INVALID };
        let operation = Operation { opcode, ctrl, free: types::INVALID };
        let immediates = self.immediates(&Operation { opcode, ctrl: ty, free: types::INVALID });
        let inst =
            opcodes::append(&mut self.body.func, self.body.block, operation, &[], &immediates);
        self.properties.free.push(inst);
        self.body.func.dfg.first_result(inst)
    }

    /// A trap code that is not that of fuel.
    pub fn trap_code(&mut self) -> TrapCode {
        self.draw.choose(&[
            TrapCode::INTEGER_OVERFLOW,
            TrapCode::HEAP_OUT_OF_BOUNDS,
            TrapCode::unwrap_user(1),
            TrapCode::unwrap_user(7),
            TrapCode::BAD_CONVERSION_TO_INTEGER,
            TrapCode::unwrap_user(250),
        ])
    }

    /// A condition that is true for one of `n` values, a power of two.
    fn rare_condition(&mut self, n: u8) -> Value {
        let value = self.operand(types::I64).value;
        let mask = self.ins().iconst(types::I64, i64::from(n) - 1);
        let low = self.ins().band(value, mask);
        let number = self.draw.below(n.into()) as i64;
        let number = self.ins().iconst(types::I64, number);
        self.ins().icmp(IntCC::Equal, low, number)
    }

    /// A trap, taken rarely.
    pub fn trap_on_condition(&mut self) {
        let code = self.trap_code();
        let condition = self.rare_condition(32);
        if self.draw.one_in(2) {
            let one = self.ins().iconst(types::I8, 1);
            let other = self.ins().bxor(condition, one);
            self.ins().trapz(other, code);
        } else {
            self.ins().trapnz(condition, code);
        }
    }

    /// Instructions that change nothing that is observed.
    fn effect(&mut self) {
        match self.draw.below(8) {
            0 => _ = self.ins().nop(),
            1 => _ = self.ins().sequence_point(),
            2 => {
                let value = self.ins().get_pinned_reg(types::I64);
                self.properties.addresses.push(value);
                // The register belongs to the caller: it is written with the value that it has.
                if self.draw.one_in(2) {
                    self.ins().set_pinned_reg(value);
                }
            }
            3 => {
                let value = self.ins().get_frame_pointer(types::I64);
                self.properties.addresses.push(value);
            }
            4 => {
                let value = self.ins().get_stack_pointer(types::I64);
                self.properties.addresses.push(value);
            }
            5 => {
                let value = self.ins().get_return_address(types::I64);
                self.properties.addresses.push(value);
            }
            6 if self.profile.atomics => _ = self.ins().fence(),
            7 if self.profile.static_only && self.draw.one_in(4) => {
                self.properties.runnable = false;
                self.ins().debugtrap();
            }
            _ if self.profile.inside && self.draw.one_in(8) => self.address_of_function(),
            _ => _ = self.ins().nop(),
        }
    }

    /// The address of a function, or one in a function, which nothing uses.
    fn address_of_function(&mut self) {
        let group = self.draw.below(self.callees.groups.len()) as u32;
        let inside = self.profile.inside && self.draw.one_in(24);
        self.properties.runnable &= !inside;
        self.address(FUNCTIONS, group, if inside { 8 } else { 0 });
    }

    /// A load or a store.
    pub fn access(&mut self) {
        let atomics = self.profile.atomics;
        let rmw = atomics && self.draw.one_in(6);
        let wanted = |way, opcode: Opcode| {
            let atomic = matches!(
                opcode,
                Opcode::AtomicRmw | Opcode::AtomicCas | Opcode::AtomicLoad | Opcode::AtomicStore
            );
            way == Way::Memory && (atomics || !atomic) && (!rmw || opcode == Opcode::AtomicRmw)
        };
        let Some(operation) = self.choose_access(wanted) else {
            return;
        };
        use Opcode::*;
        let opcode = operation.opcode;
        let atomic = matches!(opcode, AtomicRmw | AtomicCas | AtomicLoad | AtomicStore);
        let writes = opcode.can_store() || matches!(opcode, AtomicRmw | AtomicCas);
        let mut immediates = self.immediates(&operation);
        // Values come first or last; what is in between is the address.
        let mut args = Vec::new();
        let operands = operation.operands();
        let address_at = match opcode {
            Store | Istore8 | Istore16 | Istore32 | AtomicStore => 1,
            _ => 0,
        };
        for (at, &ty) in operands.iter().enumerate() {
            args.push((at != address_at).then(|| self.operand(ty).value));
        }
        let bytes = operation.access_bytes();
        let Place { address, offset, flags, slot, null } = self.place(bytes, writes, atomic);
        (immediates.flags, immediates.offset) = (flags, offset);
        let args: Vec<Value> = args.into_iter().map(|arg| arg.unwrap_or(address)).collect();
        let inst =
            opcodes::append(&mut self.body.func, self.body.block, operation, &args, &immediates);
        self.properties.accesses.push(Access { inst, bytes, slot, null });
        self.learn(inst, false);
    }

    /// Stores some of what the block has computed, so that it can be observed.
    pub fn observe(&mut self, from: usize) {
        let new: Vec<Known> = self.known[from..].iter().rev().take(8).copied().collect();
        for Known { value, ty, .. } in new {
            if self.draw.one_in(3) {
                continue;
            }
            // The extended value, or itself.
            let narrow = ty.is_int() && ty.bits() < 64 && self.draw.one_in(2);
            let value = if narrow { self.ins().uextend(types::I64, value) } else { value };
            self.store(value);
        }
        if self.draw.one_in(3) {
            // A copy: no more is known of the value than its type.
            let ty = self.draw.choose(&[types::I64, types::I32, types::I16]);
            let quarter = self.draw.below(3);
            let mut flags = MemFlagsData::new().with_notrap().with_aligned();
            flags.set_alias_region(self.entities.regions.get(quarter).copied());
            let offset = 1024 * quarter as i32 + 16 + 8 * self.draw.below(64) as i32;
            let immediates = Immediates { flags, offset, ..Immediates::default() };
            let operation = Operation { opcode: Opcode::Load, ctrl: ty, free: types::I64 };
            let args = [self.memory()];
            let (func, block) = (&mut self.body.func, self.body.block);
            let inst = opcodes::append(func, block, operation, &args, &immediates);
            self.properties.accesses.push(Access {
                inst,
                bytes: ty.bytes(),
                slot: None,
                null: false,
            });
            let value = self.body.func.dfg.first_result(inst);
            self.store(value);
        }
    }

    /// Stores a value behind what other accesses lead to, if the back end can.
    pub fn store(&mut self, value: Value) {
        let ty = self.body.func.dfg.value_type(value);
        let operation = Operation { opcode: Opcode::Store, ctrl: ty, free: types::I64 };
        if !self.profile.machine.operations().contains(&operation) {
            return;
        }
        let quarter = self.draw.below(3);
        let offset = 1024 * quarter as i32 + 640 + 16 * self.draw.below(16) as i32;
        let mut flags = MemFlagsData::new().with_notrap().with_aligned();
        flags.set_alias_region(self.entities.regions.get(quarter).copied());
        let immediates = Immediates { flags, offset, ..Immediates::default() };
        let args = [value, self.memory()];
        let (func, block) = (&mut self.body.func, self.body.block);
        let inst = opcodes::append(func, block, operation, &args, &immediates);
        self.properties.accesses.push(Access { inst, bytes: ty.bytes(), slot: None, null: false });
    }

    /// As `choose_operation`, among few opcodes.
    fn choose_access(&mut self, wanted: impl Fn(Way, Opcode) -> bool) -> Option<Operation> {
        let all = self.profile.machine.operations().by_opcode();
        let fits = |(opcode, _): &&(Opcode, Vec<Operation>)| wanted(way(*opcode), *opcode);
        let accesses: Vec<_> = all.iter().filter(fits).collect();
        let (_, operations) = accesses[self.draw.below(accesses.len())];
        let mut known: Vec<Operation> = operations.clone();
        known.retain(|operation| {
            let types = [operation.operands(), operation.results()].concat();
            types.into_iter().all(|ty| ty == types::I64 || self.profile.knows(ty))
        });
        (!known.is_empty()).then(|| self.draw.choose(&known))
    }

    /// A place to read or write this number of bytes.
    fn place(&mut self, bytes: u32, writes: bool, atomic: bool) -> Place {
        let choice = self.draw.below(8);
        if choice >= 5
            && !atomic
            && let Some(place) = self.place_on_stack(bytes)
        {
            return place;
        }
        let quarter = self.draw.below(if writes { 3 } else { 4 });
        // Past the fuel, and far enough from the end for the largest access at the largest index.
        let mut offset = 1024 * quarter as i64 + 16 + self.draw.below(32) as i64 * 8;
        if atomic || bytes == 16 {
            offset &= !15;
        } else if self.draw.one_in(6) {
            offset += 1;
        }
        let mut aligned = offset % i64::from(bytes) == 0;
        let mut flags = self.flags(quarter);
        let mut may_be_null = false;
        let (address, offset) = match choice {
            0 | 1 => (self.address_of_memory(offset), 0),
            2 => {
                let any = !atomic && self.draw.one_in(4);
                let index = self.index(if any { 0xff } else { 0xf0 });
                aligned &= index.1.is_multiple_of(bytes);
                let memory = self.memory();
                let address = self.ins().iadd(memory, index.0);
                self.properties.addresses.push(address);
                (address, offset)
            }
            3 | 4 if self.profile.traps && !atomic => {
                // Null once in a while.
                let (memory, rare) = (self.memory(), self.rare_condition(8));
                may_be_null = true;
                let null = self.ins().iconst(types::I64, 0);
                let address = self.ins().select(rare, null, memory);
                self.properties.addresses.extend([null, address]);
                flags = flags.with_trap_code(Some(self.trap_code()));
                (address, offset)
            }
            _ => (self.memory(), offset),
        };
        if aligned {
            flags.set_aligned();
        }
        if !writes && quarter == 3 && flags.trap_code().is_none() {
            flags.set_readonly();
            flags.set_can_move();
        }
        if !atomic {
            let (slot, null) = (None, may_be_null);
            return Place { address, offset: offset as i32, flags, slot, null };
        }
        let offset = self.ins().iconst(types::I64, offset);
        let address = self.ins().iadd(address, offset);
        self.properties.addresses.extend([offset, address]);
        Place { address, offset: 0, flags, slot: None, null: false }
    }

    /// A number that is used as an index, with the bits that it can have.
    fn index(&mut self, mask: u32) -> (Value, u32) {
        let value = self.operand(types::I32).value;
        let value = self.ins().uextend(types::I64, value);
        let bits = self.ins().iconst(types::I64, i64::from(mask));
        let index = self.ins().band(value, bits);
        self.properties.addresses.extend([bits, index]);
        (index, if mask == 0xff { 1 } else { 16 })
    }

    fn flags(&mut self, quarter: usize) -> MemFlagsData {
        let mut flags = MemFlagsData::new().with_notrap();
        if self.draw.one_in(4) {
            flags = flags.with_trap_code(Some(self.trap_code()));
        }
        if self.draw.one_in(8) {
            flags.set_endianness(Endianness::Little);
        }
        flags.set_alias_region(self.entities.regions.get(quarter).copied());
        flags
    }

    fn place_on_stack(&mut self, bytes: u32) -> Option<Place> {
        let mut slots = self.properties.slots.clone();
        slots.retain(|&slot| self.body.func.sized_stack_slots[slot].size >= bytes);
        if slots.is_empty() {
            return None;
        }
        let slot = self.draw.choose(&slots);
        let data = &self.body.func.sized_stack_slots[slot];
        let (size, alignment) = (data.size, 8.max(1u32 << data.align_shift));
        let most = size - bytes;
        let offset = self.draw.below(most as usize / 4 + 1) as u32 * 4;
        let in_address = self.draw.one_in(2);
        let (first, second) = if in_address { (offset, 0) } else { (0, offset) };
        let address = self.ins().stack_addr(types::I64, slot, first as i32);
        self.properties.addresses.push(address);
        let mut flags = MemFlagsData::new().with_notrap();
        if offset.is_multiple_of(bytes) && bytes <= alignment {
            flags.set_aligned();
        }
        let made = self.body.func.dfg.value_def(address).unwrap_inst();
        let slot = Some(InSlot { address: made, offset });
        Some(Place { address, offset: second as i32, flags, slot, null: false })
    }

    /// A load of a pointer from a table.
    pub fn load_pointer(&mut self, table: u32, index: usize) -> Value {
        let base = self.address(DATA, table, 0);
        let flags =
            MemFlagsData::new().with_notrap().with_aligned().with_readonly().with_can_move();
        let pointer = self.ins().load(types::I64, flags, base, index as i32 * 8);
        self.properties.addresses.push(pointer);
        pointer
    }

    /// A load of what a pointer in a table points to, in the part of the memory that stays.
    pub fn load_through(&mut self, pointer: Value) {
        let flags = MemFlagsData::new().with_notrap().with_aligned().with_readonly();
        let offset = 8 * self.draw.below(8) as i32;
        let value = self.ins().load(types::I64, flags, pointer, offset);
        self.known.push(Known { value, ty: types::I64, constant: false });
    }

    /// A load of what a table holds besides pointers.
    pub fn load_constant(&mut self, table: u32, offset: usize) {
        let base = self.address(DATA, table, 0);
        let flags = MemFlagsData::new().with_notrap().with_readonly().with_can_move();
        let data = InstructionData::Load {
            opcode: Opcode::Load,
            arg: base,
            flags: self.body.func.dfg.mem_flags.insert(flags).expect("few flags"),
            offset: (offset as i32).into(),
        };
        let inst = self.body.append(data, types::I8);
        self.learn(inst, false);
    }
}
