//! A third implementation: the same programs, one instruction at a time, by Cranelift's
//! interpreter.
//!
//! The interpreter computes what an instruction does with values; memory, calls, imports and
//! exceptions are done here, since its own state has only stacks. Thunks and aliases are followed.
//! An instruction that it does not support (some vector instructions, some conversions) ends an
//! invocation without an outcome. Its stack is not that of a machine, and its addresses are not
//! those of one: only [`Outcome`]s of programs that keep to the conventions can be compared with
//! those of a machine.

use super::{MAX_TRACE, STACK_BYTES};
use crate::differential::{
    Argument, Call, End, Invocation, Outcome, SOME_ADDRESS, address_in_memory, import_result,
    memory_before, memory_digest,
};
use crate::program::{DataDefinition, Definition, Jump, MEMORY, MEMORY_BYTES, Program, THROWING};
use cranelift_codegen::data_value::DataValue;
use cranelift_codegen::ir::{
    ArgumentPurpose, BlockArg, BlockCall, Endianness, ExceptionTable, ExceptionTableItem,
    ExternalName, FuncRef, Function, GlobalValue, GlobalValueData, Inst, InstructionData,
    MemFlagsData, Opcode, Signature, StackSlot, TrapCode, Type, UserExternalName, types,
};
use cranelift_interpreter::address::{Address, AddressRegion, AddressSize};
use cranelift_interpreter::frame::Frame;
use cranelift_interpreter::instruction::DfgInstructionContext;
use cranelift_interpreter::interpreter::LibCallHandler;
use cranelift_interpreter::state::{InterpreterFunctionRef, MemoryError, State};
use cranelift_interpreter::step::{ControlFlow, CraneliftTrap, step};
use cranelift_mergefunc::cranelift_codegen;
use cranelift_mergefunc::data::{Contents, DataObject};
use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

/// Interprets a program: for each invocation an outcome, or `None` if the interpreter cannot do
/// something that was needed for it.
pub fn run(program: &Program, invocations: &[Invocation]) -> Vec<Option<Outcome>> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                before(panic)
            }
        }));
    });
    let world = World::new(program);
    let interpret = |invocation| {
        // The interpreter panics at what it does not support.
        catch_unwind(AssertUnwindSafe(|| Machine::new(&world, invocation).run(invocation)))
    };
    QUIET.set(true);
    let outcomes: Vec<_> = invocations.iter().map(interpret).collect();
    QUIET.set(false);
    outcomes.into_iter().map(|outcome| outcome.unwrap_or(None)).collect()
}

thread_local! {
    /// Whether a panic on this thread is not reported.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// A program by symbols and addresses.
struct World<'a> {
    /// Functions and what is called outside; a function pointer is an index.
    callees: Vec<(UserExternalName, Option<&'a Function>)>,
    callee_of: HashMap<UserExternalName, usize>,
    /// The memory is the first, and then come data objects.
    objects: Vec<Vec<u8>>,
    object_of: HashMap<UserExternalName, usize>,
}

impl<'a> World<'a> {
    fn new(program: &'a Program) -> World<'a> {
        let memory = UserExternalName::new(MEMORY, 0);
        let mut world = World {
            callees: Vec::new(),
            callee_of: HashMap::new(),
            objects: vec![vec![0; MEMORY_BYTES]],
            object_of: HashMap::from([(memory, 0)]),
        };
        let mut others = Vec::new();
        for (symbol, definition) in &program.functions {
            match definition {
                Definition::Body(func) => {
                    world.callee_of.insert(symbol.clone(), world.callees.len());
                    world.callees.push((symbol.clone(), Some(func)));
                }
                Definition::Jump(Jump { to, arguments, optimize: _, call: _ })
                    if arguments.is_empty() =>
                {
                    others.push((symbol, to));
                }
                Definition::Jump(Jump { to: _, arguments: _, optimize: _, call }) => {
                    world.callee_of.insert(symbol.clone(), world.callees.len());
                    world.callees.push((symbol.clone(), Some(call)));
                }
                Definition::Alias(to) => others.push((symbol, to)),
            }
        }
        for (symbol, to) in others {
            let target = world.callee_of[to];
            world.callee_of.insert(symbol.clone(), target);
        }
        for (_, definition) in &program.functions {
            if let Definition::Body(func) | Definition::Jump(Jump { call: func, .. }) = definition {
                for symbol in func.params.user_named_funcs().values() {
                    if !world.callee_of.contains_key(symbol) {
                        world.callee_of.insert(symbol.clone(), world.callees.len());
                        world.callees.push((symbol.clone(), None));
                    }
                }
            }
        }
        let mut objects: Vec<(usize, &DataObject)> = Vec::new();
        for (symbol, definition) in &program.data {
            if let DataDefinition::Object(object, _) = definition {
                world.object_of.insert(symbol.clone(), world.objects.len());
                objects.push((world.objects.len(), object));
                world.objects.push(match &object.contents {
                    Contents::Zeros(size) => vec![0; *size as usize],
                    Contents::Bytes(bytes) => bytes.clone(),
                });
            }
        }
        for (symbol, definition) in &program.data {
            if let DataDefinition::Alias(to) = definition {
                let target = world.object_of[to];
                world.object_of.insert(symbol.clone(), target);
            }
        }
        for (at, object) in objects {
            for reloc in &object.relocations {
                let address = world.address(&reloc.target).expect("a symbol of the program");
                let address = address.wrapping_add(reloc.addend).to_le_bytes();
                let offset = reloc.offset as usize;
                world.objects[at][offset..offset + 8].copy_from_slice(&address);
            }
        }
        world
    }

    fn address(&self, symbol: &UserExternalName) -> Option<i64> {
        let (region, entry, offset) = match self.object_of.get(symbol) {
            Some(object) => (AddressRegion::GlobalValue, OBJECTS + *object as u64, 0),
            None => (AddressRegion::Function, 0, *self.callee_of.get(symbol)? as u64),
        };
        let address = Address::from_parts(AddressSize::_64, region, entry, offset).ok()?;
        match DataValue::try_from(address).ok()? {
            DataValue::I64(address) => Some(address),
            _ => None,
        }
    }
}

/// The number of the memory among objects, so that no likely number is an address.
const OBJECTS: u64 = 0x2a5;
/// Where the stack begins, so that small numbers are no addresses.
const STACK: u64 = 1 << 40;
/// Instructions, at most.
const MAX_STEPS: usize = 1 << 17;
/// Calls in calls, at most.
const MAX_DEPTH: usize = 4000;

/// One invocation.
struct Machine<'a> {
    world: &'a World<'a>,
    objects: Vec<Vec<u8>>,
    frames: Vec<Active<'a>>,
    stack: Vec<u8>,
    /// Whether the last access that failed has a fact that says that it does not.
    broken_fact: Cell<bool>,
    trace: Vec<Call>,
}

/// A function that was called and has not returned.
struct Active<'a> {
    frame: Frame<'a>,
    /// The instruction that is executed, or waits for a call to return.
    at: Inst,
    stack_start: usize,
}

/// How a step ends that does not end the invocation.
enum Next {
    Go,
    End(End),
    Cannot,
}

impl<'a> Machine<'a> {
    fn new(world: &'a World<'a>, invocation: &Invocation) -> Self {
        let mut objects = world.objects.clone();
        objects[0] = memory_before(invocation.memory_seed, invocation.fuel);
        let broken_fact = Cell::new(false);
        let (frames, stack, trace) = (Vec::new(), Vec::new(), Vec::new());
        Machine { world, objects, frames, stack, broken_fact, trace }
    }

    fn run(mut self, invocation: &Invocation) -> Option<Outcome> {
        let Invocation { symbol, signature, arguments, .. } = invocation;
        let arguments = arguments.iter().zip(&signature.params).map(|(argument, param)| {
            let bits = match *argument {
                Argument::Bits(bits) => Some(bits),
                Argument::Memory(offset) => {
                    let memory = self.world.address(&UserExternalName::new(MEMORY, 0))?;
                    Some(u128::from(memory as u64 + u64::from(offset)))
                }
                Argument::Surroundings(_) => None,
            };
            Some(value(bits?, param.value_type))
        });
        let arguments: Option<Vec<DataValue>> = arguments.collect();
        let mut next = self.call(self.world.callee_of[symbol], arguments?, signature);
        let mut steps = 0;
        let end = loop {
            match next {
                Next::Go if steps >= MAX_STEPS => return None,
                Next::Go => {
                    steps += 1;
                    next = self.step();
                }
                Next::End(end) => break end,
                Next::Cannot => return None,
            }
        };
        let end = match end {
            End::Returned(results) => {
                let results = results.into_iter().zip(&signature.returns);
                End::Returned(results.map(|(bits, ty)| self.seen(bits, ty.value_type)).collect())
            }
            other => other,
        };
        let memory = memory_digest(&self.objects[0]);
        Some(Outcome { end, trace: self.trace, memory })
    }

    /// Executes one instruction of the function called last.
    fn step(&mut self) -> Next {
        let active = self.frames.last().expect("something runs");
        let (func, inst) = (active.frame.function(), active.at);
        let data = func.dfg.insts[inst];
        let args = || active.frame.get_all(func.dfg.inst_args(inst));
        match data.opcode() {
            Opcode::Nop | Opcode::SequencePoint => {
                self.advance();
                Next::Go
            }
            Opcode::Call | Opcode::TryCall | Opcode::ReturnCall => {
                let (InstructionData::Call { func_ref, .. }
                | InstructionData::TryCall { func_ref, .. }) = data
                else {
                    return Next::Cannot;
                };
                let Some(callee) = self.callee(func, func_ref) else {
                    return Next::Cannot;
                };
                let args = args();
                if data.opcode() == Opcode::ReturnCall {
                    self.leave();
                }
                self.call(callee, args, called_signature(func, inst))
            }
            Opcode::CallIndirect | Opcode::TryCallIndirect | Opcode::ReturnCallIndirect => {
                let mut args = args();
                let address = Address::try_from(args.remove(0));
                let Some(callee) = address.ok().and_then(|address| self.callee_at(&address)) else {
                    return Next::End(End::Signal(libc::SIGSEGV));
                };
                if data.opcode() == Opcode::ReturnCallIndirect {
                    self.leave();
                }
                self.call(callee, args, called_signature(func, inst))
            }
            Opcode::Return => {
                let results = args();
                self.leave();
                self.return_to(results)
            }
            // The interpreter would panic.
            Opcode::GetFramePointer
            | Opcode::GetStackPointer
            | Opcode::GetReturnAddress
            | Opcode::GetExceptionHandlerAddress
            | Opcode::StackSwitch
            | Opcode::DynamicStackAddr
            | Opcode::ExtractVector
            | Opcode::X86Pshufb
            | Opcode::X86Pmulhrsw
            | Opcode::X86Pmaddubsw
            | Opcode::X86Cvtt2dq
            | Opcode::Blendv
            | Opcode::Uload8x8
            | Opcode::Sload8x8
            | Opcode::Uload16x4
            | Opcode::Sload16x4
            | Opcode::Uload32x2
            | Opcode::Sload32x2 => Next::Cannot,
            _ => self.compute(func, inst),
        }
    }

    /// Executes the operations of the interpreter itself.
    fn compute(&mut self, func: &'a Function, inst: Inst) -> Next {
        match step(self, DfgInstructionContext::new(inst, &func.dfg)) {
            Ok(ControlFlow::Assign(values)) => {
                let frame = &mut self.frames.last_mut().expect("something runs").frame;
                frame.set_all(func.dfg.inst_results(inst), values.to_vec());
                self.advance();
                Next::Go
            }
            Ok(ControlFlow::Continue) => {
                self.advance();
                Next::Go
            }
            Ok(ControlFlow::ContinueAt(block, values)) => {
                let active = self.frames.last_mut().expect("something runs");
                active.frame.set_all(func.dfg.block_params(block), values.to_vec());
                active.at = func.layout.first_inst(block).expect("blocks are not empty");
                Next::Go
            }
            Ok(ControlFlow::Trap(CraneliftTrap::User(code))) => {
                let has_fact = self.broken_fact.take() && code == TrapCode::HEAP_OUT_OF_BOUNDS;
                Next::End(if has_fact { End::Signal(libc::SIGSEGV) } else { End::Trapped(code) })
            }
            Ok(_) | Err(_) => Next::Cannot,
        }
    }

    fn advance(&mut self) {
        let active = self.frames.last_mut().expect("something runs");
        let layout = &active.frame.function().layout;
        active.at = layout.next_inst(active.at).expect("not the last of its block");
    }

    fn callee(&self, func: &Function, func_ref: FuncRef) -> Option<usize> {
        let ExternalName::User(name) = func.dfg.ext_funcs[func_ref].name else {
            return None;
        };
        self.world.callee_of.get(&func.params.user_named_funcs()[name]).copied()
    }

    fn callee_at(&self, address: &Address) -> Option<usize> {
        let is_code = address.region == AddressRegion::Function && address.entry == 0;
        let index = usize::try_from(address.offset).ok()?;
        (is_code && index < self.world.callees.len()).then_some(index)
    }

    fn call(&mut self, callee: usize, args: Vec<DataValue>, signature: &Signature) -> Next {
        let (symbol, func) = &self.world.callees[callee];
        let Some(func) = *func else {
            return self.import(symbol, args, signature);
        };
        if self.frames.len() >= MAX_DEPTH {
            return Next::End(End::GaveUp);
        }
        let entry = func.layout.entry_block().expect("has a body");
        let mut frame = Frame::new(func);
        frame.set_all(func.dfg.block_params(entry), args);
        let at = func.layout.first_inst(entry).expect("blocks are not empty");
        let stack_start = self.stack.len();
        let slots = func.sized_stack_slots.values();
        let bytes: usize = slots.map(|slot| (slot.size as usize).next_multiple_of(16)).sum();
        self.stack.resize(stack_start + bytes, 0);
        self.frames.push(Active { frame, at, stack_start });
        Next::Go
    }

    /// Drops the function called last.
    fn leave(&mut self) {
        let active = self.frames.pop().expect("something runs");
        self.stack.truncate(active.stack_start);
    }

    /// Passes results to the caller.
    fn return_to(&mut self, results: Vec<DataValue>) -> Next {
        let Some(active) = self.frames.last_mut() else {
            return Next::End(End::Returned(results.iter().map(bits).collect()));
        };
        let (func, inst) = (active.frame.function(), active.at);
        match exceptions(&func.dfg.insts[inst]) {
            None => {
                active.frame.set_all(func.dfg.inst_results(inst), results);
                self.advance();
            }
            Some(table) => {
                let target = *func.dfg.exception_tables[table].normal_return();
                active.enter(target, &results, &[]);
            }
        }
        Next::Go
    }

    /// A call of an import, which returns to the function called last.
    fn import(
        &mut self,
        symbol: &UserExternalName,
        args: Vec<DataValue>,
        signature: &Signature,
    ) -> Next {
        let arguments =
            args.iter().zip(&signature.params).map(|(value, param)| match param.purpose {
                ArgumentPurpose::Normal | ArgumentPurpose::VMContext => {
                    self.seen(bits(value), param.value_type)
                }
                ArgumentPurpose::StructArgument(_) | ArgumentPurpose::StructReturn => SOME_ADDRESS,
            });
        let arguments: Vec<u128> = arguments.collect();
        let result = |at| import_result(symbol, &arguments, at);
        let results = signature.returns.iter().enumerate();
        let results = results.map(|(at, ty)| value(result(at), ty.value_type)).collect();
        let payload = [0, 1].map(|at| DataValue::I64(result(at) as i64));
        if self.trace.len() >= MAX_TRACE {
            return Next::End(End::GaveUp);
        }
        self.trace.push(Call { callee: symbol.clone(), arguments });
        match symbol.namespace == THROWING {
            true => self.throw(symbol.index, payload),
            false => self.return_to(results),
        }
    }

    /// Goes up to the first handler of a tag.
    fn throw(&mut self, tag: u32, payload: [DataValue; 2]) -> Next {
        while let Some(active) = self.frames.last_mut() {
            let func = active.frame.function();
            let mut payload = payload.clone();
            let table = exceptions(&func.dfg.insts[active.at]);
            let items =
                table.into_iter().flat_map(|table| func.dfg.exception_tables[table].items());
            for item in items {
                let target = match item {
                    ExceptionTableItem::Context(context) => {
                        if let (DataValue::I64(second), DataValue::I64(context)) =
                            (&mut payload[1], active.frame.get(context))
                        {
                            *second ^= context;
                        }
                        continue;
                    }
                    ExceptionTableItem::Tag(own, _) if own.as_u32() != tag => continue,
                    ExceptionTableItem::Tag(_, target) | ExceptionTableItem::Default(target) => {
                        target
                    }
                };
                active.enter(target, &[], &payload);
                return Next::Go;
            }
            self.leave();
        }
        Next::End(End::Uncaught(tag))
    }

    /// The observable part of a value that may be an address.
    fn seen(&self, bits: u128, ty: Type) -> u128 {
        if ty != types::I64 {
            return bits;
        }
        let Ok(address) = Address::try_from(DataValue::I64(bits as i64)) else {
            return bits;
        };
        // An address of a frame that was left is still an address.
        let stack = STACK..STACK + STACK_BYTES as u64;
        match address.region {
            AddressRegion::GlobalValue => match self.place(&address, 1) {
                Some((Place::Object(0), offset)) => address_in_memory(offset as u64),
                Some(_) => SOME_ADDRESS,
                None => bits,
            },
            AddressRegion::Function if self.callee_at(&address).is_some() => SOME_ADDRESS,
            AddressRegion::Stack if stack.contains(&address.offset) => SOME_ADDRESS,
            _ => bits,
        }
    }

    /// The bytes at an address, at least `len`.
    fn place(&self, address: &Address, len: usize) -> Option<(Place, usize)> {
        let (place, offset, size) = match address.region {
            AddressRegion::Stack => {
                let offset = address.offset.checked_sub(STACK)?;
                (Place::Stack, offset, self.stack.len())
            }
            AddressRegion::GlobalValue => {
                let entry = usize::try_from(address.entry.checked_sub(OBJECTS)?).ok()?;
                (Place::Object(entry), address.offset, self.objects.get(entry)?.len())
            }
            AddressRegion::Function | AddressRegion::Table => return None,
        };
        let offset = usize::try_from(offset).ok()?;
        (offset.checked_add(len)? <= size).then_some((place, offset))
    }

    fn bytes(&mut self, place: Place) -> &mut Vec<u8> {
        match place {
            Place::Stack => &mut self.stack,
            Place::Object(at) => &mut self.objects[at],
        }
    }

    fn failed(&self, flags: MemFlagsData, trap: MemoryError) -> MemoryError {
        match flags.trap_code() {
            Some(_) => trap,
            None => {
                self.broken_fact.set(true);
                MemoryError::InvalidAddressType(types::INVALID)
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Place {
    Stack,
    Object(usize),
}

impl Active<'_> {
    /// Goes to a block from a call, with what the call returned or threw.
    fn enter(&mut self, target: BlockCall, results: &[DataValue], payload: &[DataValue]) {
        let func = self.frame.function();
        let pool = &func.dfg.value_lists;
        let values = target.args(pool).map(|arg| match arg {
            BlockArg::Value(value) => self.frame.get(value).clone(),
            BlockArg::TryCallRet(at) => results[at as usize].clone(),
            BlockArg::TryCallExn(at) => payload[at as usize].clone(),
        });
        let (values, block) = (values.collect(), target.block(pool));
        self.frame.set_all(func.dfg.block_params(block), values);
        self.at = func.layout.first_inst(block).expect("blocks are not empty");
    }
}

fn exceptions(data: &InstructionData) -> Option<ExceptionTable> {
    match data {
        InstructionData::TryCall { exception, .. }
        | InstructionData::TryCallIndirect { exception, .. } => Some(*exception),
        _ => None,
    }
}

fn called_signature(func: &Function, call: Inst) -> &Signature {
    &func.dfg.signatures[func.dfg.call_signature(call).expect("a call")]
}

/// A value of a type from its bits.
pub fn value(bits: u128, ty: Type) -> DataValue {
    DataValue::read_from_slice_le(&bits.to_le_bytes()[..ty.bytes() as usize], ty)
}

/// The bits of a value.
pub fn bits(value: &DataValue) -> u128 {
    let mut bytes = [0; 16];
    value.write_to_slice_le(&mut bytes[..value.ty().bytes() as usize]);
    u128::from_le_bytes(bytes)
}

impl<'a> State<'a> for Machine<'a> {
    fn get_function(&self, func_ref: FuncRef) -> Option<&'a Function> {
        self.world.callees[self.callee(self.get_current_function(), func_ref)?].1
    }

    fn get_current_function(&self) -> &'a Function {
        self.current_frame().function()
    }

    fn get_libcall_handler(&self) -> LibCallHandler {
        |_, _| panic!("a library call")
    }

    fn push_frame(&mut self, _: &'a Function) {
        unreachable!("calls are made here");
    }

    fn pop_frame(&mut self) {
        unreachable!("calls are made here");
    }

    fn current_frame_mut(&mut self) -> &mut Frame<'a> {
        &mut self.frames.last_mut().expect("something runs").frame
    }

    fn current_frame(&self) -> &Frame<'a> {
        &self.frames.last().expect("something runs").frame
    }

    fn stack_address(
        &self,
        size: AddressSize,
        slot: StackSlot,
        offset: u64,
    ) -> Result<Address, MemoryError> {
        let active = self.frames.last().expect("something runs");
        let slots = &active.frame.function().sized_stack_slots;
        let before = slots.iter().take_while(|(other, _)| *other != slot);
        let before: u64 = before.map(|(_, slot)| u64::from(slot.size).next_multiple_of(16)).sum();
        let offset = STACK + active.stack_start as u64 + before + offset;
        Address::from_parts(size, AddressRegion::Stack, 0, offset)
    }

    fn checked_load(
        &self,
        address: Address,
        ty: Type,
        flags: MemFlagsData,
    ) -> Result<DataValue, MemoryError> {
        let len = ty.bytes() as usize;
        let Some((place, at)) = self.place(&address, len) else {
            let error =
                MemoryError::OutOfBoundsLoad { addr: address, load_size: len, mem_flags: flags };
            return Err(self.failed(flags, error));
        };
        let bytes = match place {
            Place::Stack => &self.stack,
            Place::Object(object) => &self.objects[object],
        };
        let bytes = &bytes[at..at + len];
        Ok(match flags.endianness(Endianness::Little) {
            Endianness::Little => DataValue::read_from_slice_le(bytes, ty),
            Endianness::Big => DataValue::read_from_slice_be(bytes, ty),
        })
    }

    fn checked_store(
        &mut self,
        address: Address,
        value: DataValue,
        flags: MemFlagsData,
    ) -> Result<(), MemoryError> {
        let len = value.ty().bytes() as usize;
        let writable = |&(place, _): &(Place, usize)| !matches!(place, Place::Object(1..));
        let Some((place, at)) = self.place(&address, len).filter(writable) else {
            let error =
                MemoryError::OutOfBoundsStore { addr: address, store_size: len, mem_flags: flags };
            return Err(self.failed(flags, error));
        };
        let bytes = &mut self.bytes(place)[at..at + len];
        match flags.endianness(Endianness::Little) {
            Endianness::Little => value.write_to_slice_le(bytes),
            Endianness::Big => value.write_to_slice_be(bytes),
        }
        Ok(())
    }

    fn function_address(
        &self,
        size: AddressSize,
        name: &ExternalName,
    ) -> Result<Address, MemoryError> {
        let ExternalName::User(name) = name else {
            panic!("the address of {name:?}");
        };
        let symbol = &self.get_current_function().params.user_named_funcs()[*name];
        let callee = self.world.callee_of[symbol] as u64;
        Address::from_parts(size, AddressRegion::Function, 0, callee)
    }

    fn get_function_from_address(&self, address: Address) -> Option<InterpreterFunctionRef<'a>> {
        self.world.callees[self.callee_at(&address)?].1.map(InterpreterFunctionRef::Function)
    }

    fn resolve_global_value(&self, gv: GlobalValue) -> Result<DataValue, MemoryError> {
        let func = self.get_current_function();
        match &func.global_values[gv] {
            GlobalValueData::Symbol { name: ExternalName::User(name), offset, .. } => {
                let symbol = &func.params.user_named_funcs()[*name];
                let address = self.world.address(symbol).expect("a symbol of the program");
                Ok(DataValue::I64(address.wrapping_add(offset.bits())))
            }
            other => panic!("the global value {other}"),
        }
    }

    fn get_pinned_reg(&self) -> DataValue {
        DataValue::I64(0)
    }

    fn set_pinned_reg(&mut self, _: DataValue) {}
}
