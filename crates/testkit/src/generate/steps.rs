//! Builds functions of statements, whose arithmetic the generator draws.
//!
//! Statements are what must be known of a function before it is built: what it refers to, which
//! facts it has, and which of its constants differ from those of its copies.

use crate::generate::body::Body;
use crate::generate::draw::Draw;
use crate::generate::function::operations;
use crate::generate::statement::{
    AREA, Address, Argument, Callee, End, Extra, FROZEN, Facts, NEXT, Operation, Passes, Place,
    Pointer, Shape, Statement,
};
use crate::support::Rng;
use arbitrary::Unstructured;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::immediates::Ieee64;
use cranelift_codegen::ir::types::{I32, I64, I64X2};
use cranelift_codegen::ir::{
    AliasRegion, AliasRegionData, Block, BlockArg, BlockCall, ExceptionTableData,
    ExceptionTableItem, FuncRef, Function, Inst, InstBuilder, JumpTableData, MemFlagsData, SigRef,
    StackSlot, StackSlotData, StackSlotKind, TrapCode, Type, UserExternalName, UserFuncName,
    UserStackMapEntry, Value,
};

/// The meaning of the numbers of functions and data objects.
pub trait Names {
    /// The symbol of a function.
    fn function(&self, function: usize) -> UserExternalName;
    /// The symbol of a data object.
    fn data(&self, data: usize) -> UserExternalName;
    /// How a callee is called.
    fn shape(&self, callee: Callee) -> &Shape;
    /// Whether references to a function, or to its address, are colocated.
    fn is_function_near(&self, function: usize, address: bool) -> bool;
    /// Whether references to a data object are colocated.
    fn is_data_near(&self, data: usize) -> bool;
    /// Whether a data object can be written.
    fn is_writable(&self, data: usize) -> bool;
    /// The least alignment of an address.
    fn alignment(&self, address: Address) -> u32;
}

/// The behaviour of a function.
#[derive(Clone, Copy, Debug)]
pub struct Steps<'a> {
    /// How it is called.
    pub shape: &'a Shape,
    /// The facts of its accesses.
    pub facts: &'a Facts,
    /// The statements, one after the other.
    pub statements: &'a [Statement],
    /// The end.
    pub end: &'a End,
}

impl Steps<'_> {
    /// The function of a number.
    pub fn build(&self, own: usize, names: &dyn Names) -> Function {
        let name = UserFuncName::User(names.function(own));
        let mut body = Body::new(Function::with_name_signature(name, self.shape.signature()));
        let [one, other] = self.facts.regions;
        let mut regions = vec![one, other];
        regions.dedup();
        regions.retain(|region| *region != 0);
        let region = |region: u8| {
            let description = format!("memory {region}").into();
            let data = AliasRegionData { user_id: region.into(), description };
            (region, body.func.dfg.alias_regions.insert(data))
        };
        let regions = regions.into_iter().map(region).collect();
        let params: Vec<Type> =
            body.func.signature.params.iter().map(|param| param.value_type).collect();
        let entry = body.new_block(&params);
        let params = body.continue_in(entry);
        let current = body.ins().iadd(params[0], params[1]);
        let mut builder = Builder {
            names,
            steps: *self,
            params,
            body,
            regions,
            current,
            filled: None,
            more: None,
        };
        builder.write();
        builder.body.func
    }
}

struct Builder<'a> {
    names: &'a dyn Names,
    steps: Steps<'a>,
    params: Vec<Value>,
    body: Body,
    regions: Vec<(u8, AliasRegion)>,
    /// The number that statements change.
    current: Value,
    /// The stack slots that are passed to callees, if they are filled.
    filled: Option<[StackSlot; 2]>,
    /// Whether `n` allows calls, and `n - 1`.
    more: Option<[Value; 2]>,
}

impl Builder<'_> {
    fn write(&mut self) {
        let Steps { shape, facts: _, statements, end } = self.steps;
        let is_call = |step: &Statement| matches!(step, Statement::Call { .. });
        if statements.iter().any(is_call) || matches!(end, End::Tail(..)) {
            let [zero, one] = [0, -1].map(|value| self.constant(I64, value));
            let n = self.params[0];
            let more = self.body.ins().icmp(IntCC::SignedGreaterThan, n, zero);
            self.more = Some([more, self.body.ins().iadd(n, one)]);
        }
        for statement in statements {
            self.statement(statement);
        }
        if let End::Tail(callee, passes) = end {
            self.fill_slots(passes);
            let [more, _] = self.more.expect("there are calls");
            let [tail, end] = [(); 2].map(|()| self.body.new_block(&[]));
            self.body.ins().brif(more, tail, &[], end, &[]);
            self.body.continue_in(tail);
            let callee = Callee::Direct(*callee);
            let (function, arguments) = self.prepare(callee, passes);
            self.body.ins().return_call(function, &arguments);
            self.body.continue_in(end);
        }
        let results = vec![self.current; shape.results];
        self.body.ins().return_(&results);
    }

    fn constant(&mut self, ty: Type, value: i64) -> Value {
        // The bits that the type has.
        self.body.ins().iconst(ty, value & (-1i64 as u64 >> (64 - ty.bits())) as i64)
    }

    /// Makes the number depend on a value such that the same value makes another difference the
    /// next time.
    fn absorb(&mut self, value: Value) {
        let three = self.constant(I64, 3);
        let product = self.body.ins().imul(self.current, three);
        let value = self.body.as_type(value, I64);
        self.current = self.body.ins().iadd(product, value);
    }

    fn jump(&mut self, block: Block, arguments: &[Value]) {
        let arguments: Vec<BlockArg> = arguments.iter().copied().map(Into::into).collect();
        self.body.ins().jump(block, &arguments);
    }

    fn brif(&mut self, condition: Value, then: (Block, &[Value]), other: (Block, &[Value])) {
        let [one, two] = [then.1, other.1]
            .map(|arguments| arguments.iter().copied().map(Into::into).collect::<Vec<BlockArg>>());
        self.body.ins().brif(condition, then.0, &one, other.0, &two);
    }

    /// Continues in a block whose parameter is then the number that statements change.
    fn join(&mut self, block: Block) {
        self.current = self.body.continue_in(block)[0];
    }

    fn statement(&mut self, statement: &Statement) {
        let plain = MemFlagsData::new().with_notrap();
        match statement {
            Statement::Constant(operation, value) => {
                let (own, value) = (self.current, self.constant(I64, *value));
                self.current = match operation {
                    Operation::Add => self.body.ins().iadd(own, value),
                    Operation::Xor => self.body.ins().bxor(own, value),
                    Operation::Multiply => self.body.ins().imul(own, value),
                };
            }
            Statement::Float(bits) => {
                let float = self.body.ins().f64const(Ieee64::with_bits(*bits));
                let value = self.body.ins().bitcast(I64, MemFlagsData::new(), float);
                self.current = self.body.ins().bxor(self.current, value);
            }
            Statement::Mix { rounds, seed } => {
                let bytes = Rng::new(*seed).bytes(48 * rounds);
                let mut bytes = Unstructured::new(&bytes);
                let known = [self.current, self.params[1]];
                for value in operations(&mut self.body, &mut Draw::new(&mut bytes), &known, *rounds)
                {
                    self.absorb(value);
                }
            }
            Statement::Extra(extra) => {
                let value = self.params[4 + extra];
                let value = match self.steps.shape.extras[*extra] {
                    Extra::I32 => self.body.ins().sextend(I64, value),
                    Extra::I8 | Extra::I64 => value,
                };
                self.absorb(value);
            }
            Statement::Reload { read, written, offsets, value, extra } => {
                let before = self.load(I64, *read, offsets[0]);
                let value = self.constant(extra.ty(), *value);
                let (flags, to) = (self.flags(*written, true), self.params[2 + written]);
                self.body.ins().store(flags, value, to, offsets[1]);
                let after = self.load(I64, *read, offsets[0]);
                self.absorb(before);
                self.absorb(after);
            }
            Statement::Vector { pointer, offset, value } => {
                let value = self.constant(I64, *value);
                let vector = self.body.ins().splat(I64X2, value);
                let loaded = self.load(I64X2, *pointer, *offset);
                let sum = self.body.ins().iadd(loaded, vector);
                let lane = self.body.ins().extractlane(sum, 1);
                self.absorb(lane);
            }
            Statement::Guarded { offset, in_loop } => self.guarded(*offset, *in_loop),
            Statement::Slot { offset, value } => {
                let slot = self.slot(64, 3);
                let value = self.constant(I64, *value);
                let address = self.body.ins().stack_addr(I64, slot, *offset);
                self.body.ins().store(plain, value, address, 0);
                let loaded = self.body.ins().load(I64, plain, address, 0);
                self.absorb(loaded);
            }
            Statement::Number { place, stores } => {
                let (address, offset) = self.place(*place);
                if *stores {
                    self.body.ins().store(plain, self.current, address, offset);
                }
                let mut flags = plain.with_aligned();
                if self.steps.facts.readonly_data && !self.names.is_writable(place.data) {
                    flags = flags.with_readonly().with_can_move();
                }
                let loaded = self.body.ins().load(I64, flags, address, offset);
                self.absorb(loaded);
            }
            Statement::Through(place) => {
                let pointer = self.address_of(Address::Slot(*place));
                let loaded = self.body.ins().load(I64, plain.with_aligned(), pointer, 0);
                self.absorb(loaded);
            }
            Statement::Compare(addresses) => {
                let [one, other] = addresses.map(|address| self.address_of(address));
                let equal = self.body.ins().icmp(IntCC::Equal, one, other);
                self.absorb(equal);
            }
            Statement::Misaligned(address) => {
                let alignment = self.names.alignment(*address);
                let address = self.address_of(*address);
                let below = self.constant(I64, i64::from(alignment) - 1);
                let misses = self.body.ins().band(address, below);
                self.absorb(misses);
            }
            Statement::Switch(values) => self.switch(values),
            Statement::Call { call, passes, in_loop, entries } => {
                self.call(*call, passes, *in_loop, *entries);
            }
        }
    }

    fn switch(&mut self, values: &[i64]) {
        let index = self.body.as_type(self.current, I32);
        let three = self.constant(I32, 3);
        let index = self.body.ins().band(index, three);
        let cases: Vec<Block> = values.iter().map(|_| self.body.new_block(&[])).collect();
        let (default, end) = (self.body.new_block(&[]), self.body.new_block(&[I64]));
        let mut to =
            |block: &Block| BlockCall::new(*block, [], &mut self.body.func.dfg.value_lists);
        let entries: Vec<BlockCall> = cases.iter().map(&mut to).collect();
        let table = JumpTableData::new(to(&default), &entries);
        let table = self.body.func.create_jump_table(table);
        self.body.ins().br_table(index, table);
        for (case, value) in cases.into_iter().zip(values) {
            self.body.continue_in(case);
            let value = self.constant(I64, *value);
            self.jump(end, &[value]);
        }
        self.body.continue_in(default);
        self.jump(end, &[self.params[0]]);
        let before = self.current;
        self.join(end);
        self.current = self.body.ins().bxor(self.current, before);
    }

    fn flags(&self, pointer: usize, store: bool) -> MemFlagsData {
        let Facts { regions, aligned, readonly, can_move, .. } = self.steps.facts;
        let mut flags = MemFlagsData::new().with_notrap();
        if aligned[pointer] {
            flags.set_aligned();
        }
        if readonly[pointer] && !store {
            flags.set_readonly();
        }
        if can_move[pointer] {
            flags.set_can_move();
        }
        let region = self.regions.iter().find(|(region, _)| *region == regions[pointer]);
        flags.set_alias_region(region.map(|(_, region)| *region));
        flags
    }

    fn load(&mut self, ty: Type, pointer: usize, offset: i32) -> Value {
        let (flags, from) = (self.flags(pointer, false), self.params[2 + pointer]);
        self.body.ins().load(ty, flags, from, offset)
    }

    fn guarded(&mut self, offset: i32, in_loop: bool) {
        let head = self.body.new_block(&[I64, I64]);
        let loads = self.body.new_block(&[]);
        let [tail, end] = [(); 2].map(|()| self.body.new_block(&[I64]));
        let times = self.constant(I64, if in_loop { 3 } else { 1 });
        let minus = self.constant(I64, -1);
        self.jump(head, &[times, self.current]);
        let params = self.body.continue_in(head);
        let (left, before) = (params[0], params[1]);
        self.brif(self.params[1], (loads, &[]), (tail, &[before]));
        self.body.continue_in(loads);
        let loaded = self.load(I64, 0, offset);
        self.current = before;
        self.absorb(loaded);
        self.jump(tail, &[self.current]);
        self.join(tail);
        let left = self.body.ins().iadd(left, minus);
        let current = self.current;
        self.brif(left, (head, &[left, current]), (end, &[current]));
        self.join(end);
    }

    fn slot(&mut self, bytes: i64, align_shift: u8) -> StackSlot {
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, bytes as u32, align_shift);
        self.body.func.create_sized_stack_slot(data)
    }

    fn signature(&mut self, callee: Callee) -> SigRef {
        let signature = self.names.shape(callee).signature();
        let known = self.body.func.dfg.signatures.iter().find(|(_, known)| **known == signature);
        match known {
            Some((known, _)) => known,
            None => self.body.func.import_signature(signature),
        }
    }

    fn function(&mut self, callee: usize, address: bool) -> FuncRef {
        let signature = self.signature(Callee::Direct(callee));
        let near = self.names.is_function_near(callee, address);
        self.body.import(self.names.function(callee), signature, [near, false])
    }

    fn address(&mut self, symbol: UserExternalName, offset: i64, near: bool) -> Value {
        let global = self.body.symbol(symbol, offset, near);
        self.body.ins().symbol_value(I64, global)
    }

    /// An address and an offset, by which an item of a data object is accessed.
    fn place(&mut self, Place { data, slot, base }: Place) -> (Value, i32) {
        let (symbol, near) = (self.names.data(data), self.names.is_data_near(data));
        (self.address(symbol, 8 * base as i64, near), 8 * (slot as i32 - base as i32))
    }

    fn address_of(&mut self, address: Address) -> Value {
        match address {
            Address::Code(function) => {
                let function = self.function(function, true);
                self.body.ins().func_addr(I64, function)
            }
            Address::Slot(place) => {
                let (address, offset) = self.place(place);
                let flags = MemFlagsData::new().with_notrap().with_aligned();
                self.body.ins().load(I64, flags, address, offset)
            }
            Address::Data(data) => self.place(Place { data, slot: 0, base: 0 }).0,
        }
    }

    /// Fills the slots that are passed to callees, once.
    fn fill_slots(&mut self, passes: &Passes) {
        if self.filled.is_some() || !passes.pointers.contains(&Pointer::Slot) {
            return;
        }
        let slots = [(); 2].map(|()| self.slot(AREA, 4));
        self.filled = Some(slots);
        let bases = slots.map(|slot| self.body.ins().stack_addr(I64, slot, 0));
        let (head, end) = (self.body.new_block(&[I64]), self.body.new_block(&[]));
        let [start, step, size] = [0, 8, AREA].map(|value| self.constant(I64, value));
        self.jump(head, &[start]);
        let at = self.body.continue_in(head)[0];
        for base in bases {
            let address = self.body.ins().iadd(base, at);
            self.body.ins().store(MemFlagsData::new().with_notrap(), at, address, 0);
        }
        let next = self.body.ins().iadd(at, step);
        let more = self.body.ins().icmp(IntCC::UnsignedLessThan, next, size);
        self.brif(more, (head, &[next]), (end, &[]));
        self.body.continue_in(end);
    }

    fn arguments(&mut self, callee: Callee, passes: &Passes) -> Vec<Value> {
        let [_, less] = self.more.expect("there are calls");
        let mut arguments = vec![less, self.params[1]];
        for (at, pointer) in passes.pointers.into_iter().enumerate() {
            arguments.push(match pointer {
                Pointer::Own(own) => self.params[2 + own],
                Pointer::Next(own) => {
                    let next = self.constant(I64, NEXT);
                    self.body.ins().iadd(self.params[2 + own], next)
                }
                Pointer::Slot => {
                    let slot = self.filled.expect("is filled")[at];
                    self.body.ins().stack_addr(I64, slot, 0)
                }
                Pointer::Frozen => self.address_of(Address::Data(FROZEN)),
            });
        }
        let types: Vec<Type> =
            self.names.shape(callee).extras.iter().map(|extra| extra.ty()).collect();
        for (argument, ty) in passes.extras.iter().zip(types) {
            arguments.push(match argument {
                Argument::Constant(value) => self.constant(ty, *value),
                Argument::Own(own) => self.params[4 + own],
                Argument::Current => self.body.as_type(self.current, ty),
            });
        }
        arguments
    }

    /// A callee that is known by its name, and its arguments.
    fn prepare(&mut self, callee: Callee, passes: &Passes) -> (FuncRef, Vec<Value>) {
        let (Callee::Direct(function) | Callee::Handled(function)) = callee else {
            unreachable!("is known by its address");
        };
        (self.function(function, false), self.arguments(callee, passes))
    }

    /// A stack map with this number of different entries.
    fn stack_map(&mut self, inst: Inst, slots: &[StackSlot], entries: usize) {
        for at in 0..entries {
            let ty = if at % 3 == 2 { I32 } else { I64 };
            let entry = UserStackMapEntry { ty, slot: slots[at % 2], offset: 8 * at as u32 };
            self.body.func.dfg.append_user_stack_map_entry(inst, entry);
        }
    }

    fn call(&mut self, call: Callee, passes: &Passes, in_loop: bool, entries: usize) {
        self.fill_slots(passes);
        let mapped = if entries > 0 { vec![self.slot(64, 3), self.slot(64, 3)] } else { vec![] };
        let [more, _] = self.more.expect("there are calls");
        let (calls, end) = (self.body.new_block(&[I64; 2]), self.body.new_block(&[I64]));
        let (before, times) = (self.current, self.constant(I64, 2));
        self.brif(more, (calls, &[times, before]), (end, &[before]));
        if self.steps.facts.cold {
            self.body.func.layout.set_cold(calls);
        }
        let params = self.body.continue_in(calls);
        let left = params[0];
        self.current = params[1];
        let result = match call {
            Callee::Direct(_) => {
                let (function, arguments) = self.prepare(call, passes);
                let inst = self.body.ins().call(function, &arguments);
                self.stack_map(inst, &mapped, entries);
                self.body.func.dfg.first_result(inst)
            }
            Callee::Handled(_) => {
                let (function, arguments) = self.prepare(call, passes);
                let signature = self.signature(call);
                let (returned, thrown) = (self.body.new_block(&[I64]), self.body.new_block(&[]));
                let lists = &mut self.body.func.dfg.value_lists;
                let normal = BlockCall::new(returned, [BlockArg::TryCallRet(0)], lists);
                let handler = ExceptionTableItem::Default(BlockCall::new(thrown, [], lists));
                let table = ExceptionTableData::new(signature, normal, [handler]);
                let table = self.body.func.dfg.exception_tables.push(table);
                let inst = self.body.ins().try_call(function, &arguments, table);
                self.stack_map(inst, &mapped, entries);
                self.body.continue_in(thrown);
                self.body.ins().trap(TrapCode::unwrap_user(1));
                self.body.continue_in(returned)[0]
            }
            Callee::Indirect(_) | Callee::Symbol(_) | Callee::Slot(_) => {
                let address = match call {
                    Callee::Slot(place) => self.address_of(Address::Slot(place)),
                    Callee::Symbol(function) => {
                        let near = self.names.is_function_near(function, true);
                        self.address(self.names.function(function), 0, near)
                    }
                    Callee::Direct(function)
                    | Callee::Handled(function)
                    | Callee::Indirect(function) => self.address_of(Address::Code(function)),
                };
                let (signature, arguments) = (self.signature(call), self.arguments(call, passes));
                let inst = self.body.ins().call_indirect(signature, address, &arguments);
                self.stack_map(inst, &mapped, entries);
                self.body.func.dfg.first_result(inst)
            }
        };
        self.absorb(result);
        let current = self.current;
        if in_loop {
            let minus = self.constant(I64, -1);
            let left = self.body.ins().iadd(left, minus);
            self.brif(left, (calls, &[left, current]), (end, &[current]));
        } else {
            self.jump(end, &[current]);
        }
        self.join(end);
    }
}
