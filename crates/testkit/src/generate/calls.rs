//! Calls: of the unit's functions, of what the host provides, through pointers, as tails, and those
//! that can throw.

use crate::generate::conventions::{
    FUNCTIONS, IMPORT_COUNT, IMPORTS, THROWER_COUNT, THROWERS, import_signature, thrower_signature,
};
use crate::generate::function::{Builder, Known};
use cranelift_codegen::ir::{
    BlockArg, DebugTag, ExceptionTable, FuncRef, Inst, InstBuilder, InstructionData, Opcode,
    SigRef, Signature, Type, UserExternalName, UserStackMapEntry, Value, ValueList, types,
};
use cranelift_codegen::isa::CallConv;

/// A callable function.
#[derive(Clone, Copy)]
pub(super) struct Callee {
    namespace: u32,
    index: u32,
}

impl Callee {
    /// The tag of what it throws, if that is what it does.
    pub fn tag(self) -> Option<u32> {
        (self.namespace == THROWERS).then_some(self.index)
    }
}

/// How a callee is named.
enum Via {
    Name(FuncRef),
    Pointer(Value),
}

/// A call but for the instruction.
pub(super) struct Call {
    pub signature: SigRef,
    pub throws: bool,
    /// Whether it certainly leads to other groups only, none of which leads back.
    pub ends: bool,
    via: Via,
    args: Vec<Value>,
}

impl Builder<'_, '_, '_> {
    fn signature_of(&self, callee: Callee) -> Signature {
        match callee.namespace {
            FUNCTIONS => self.callees.groups[callee.index as usize].clone(),
            IMPORTS => import_signature(callee.index),
            THROWERS => thrower_signature(callee.index),
            other => unreachable!("nothing to call in namespace {other}"),
        }
    }

    /// Any callee.
    fn callee(&mut self) -> Callee {
        let throws = self.draw.one_in(24);
        if throws {
            return self.thrower();
        }
        if self.draw.one_in(4) {
            return self.import();
        }
        let index = self.draw.below(self.callees.groups.len()) as u32;
        Callee { namespace: FUNCTIONS, index }
    }

    fn thrower(&mut self) -> Callee {
        let index = self.draw.below(THROWER_COUNT as usize) as u32;
        Callee { namespace: THROWERS, index }
    }

    fn import(&mut self) -> Callee {
        let index = self.draw.below(IMPORT_COUNT as usize) as u32;
        Callee { namespace: IMPORTS, index }
    }

    /// A callee whose exceptions can be caught, or that throws none.
    pub fn catchable(&mut self) -> Option<Callee> {
        match self.draw.below(4) {
            0 => Some(self.import()),
            1 | 2 => Some(self.thrower()),
            _ => self.group(|signature| signature.call_conv == CallConv::Tail),
        }
    }

    /// A group of the unit with a certain signature.
    fn group(&mut self, fits: impl Fn(&Signature) -> bool) -> Option<Callee> {
        let groups = &self.callees.groups;
        let fitting: Vec<usize> = (0..groups.len()).filter(|&at| fits(&groups[at])).collect();
        if fitting.is_empty() {
            return None;
        }
        let index = self.draw.choose(&fitting) as u32;
        Some(Callee { namespace: FUNCTIONS, index })
    }

    /// An import, mostly the one that is there.
    fn func_ref(&mut self, callee: Callee, signature: &Signature, patchable: bool) -> FuncRef {
        let key = (callee.namespace, callee.index, patchable);
        if let Some(&func_ref) = self.entities.imports.get(&key)
            && self.draw.but_one_in(4)
        {
            return func_ref;
        }
        let signature = self.body.func.import_signature(signature.clone());
        let name = UserExternalName::new(callee.namespace, callee.index);
        let colocated = patchable || callee.namespace == FUNCTIONS && self.draw.one_in(2);
        let func_ref = self.body.import(name, signature, [colocated, patchable]);
        self.entities.imports.insert(key, func_ref);
        func_ref
    }

    /// Arguments, and a pointer if it goes through one.
    pub fn prepare_call(&mut self, callee: Callee, patchable: bool) -> Call {
        let mut signature = self.signature_of(callee);
        let args = self.arguments(&signature);
        let pointer = self.draw.one_in(3);
        let can_be_patched = patchable
            && self.profile.patchable
            && callee.namespace == FUNCTIONS
            && (signature.returns.is_empty() || self.profile.unit.uniform)
            && !pointer
            && self.draw.one_in(3);
        let throws = callee.namespace == THROWERS;
        if pointer {
            let (pointer, highest) = self.pointer(callee, &signature);
            let (via, ends) = (Via::Pointer(pointer), callee.namespace != FUNCTIONS);
            let signature = self.body.func.import_signature(signature);
            return Call { signature, throws, ends: ends || highest < self.group, via, args };
        }
        if can_be_patched && !signature.returns.is_empty() {
            // Whatever signature the callee itself has.
            signature.returns.clear();
            self.properties.runnable = false;
        }
        let func_ref = self.func_ref(callee, &signature, can_be_patched);
        let signature = self.body.func.dfg.ext_funcs[func_ref].signature;
        let ends = callee.namespace != FUNCTIONS || callee.index < self.group;
        Call { signature, throws, ends, via: Via::Name(func_ref), args }
    }

    fn arguments(&mut self, signature: &Signature) -> Vec<Value> {
        let types: Vec<Type> = signature.params.iter().map(|param| param.value_type).collect();
        types.into_iter().map(|ty| self.operand(ty).value).collect()
    }

    /// The address of a function: from the code, from a table, or one of two. With the number of
    /// the last group that it can be of.
    fn pointer(&mut self, callee: Callee, signature: &Signature) -> (Value, u32) {
        if callee.namespace == FUNCTIONS {
            match self.draw.below(4) {
                0 => return (self.address(FUNCTIONS, callee.index, 0), callee.index),
                1 | 2 => {
                    let mut entries = Vec::new();
                    for (table, data) in self.callees.tables.iter().enumerate() {
                        for (at, &group) in data.pointers.iter().enumerate() {
                            let other = &self.callees.groups[group as usize];
                            if other == signature {
                                entries.push((table as u32, at, group));
                            }
                        }
                    }
                    if !entries.is_empty() {
                        let (table, at, group) = self.draw.choose(&entries);
                        return (self.load_pointer(table, at), group);
                    }
                }
                _ => {}
            }
        }
        let func_ref = self.func_ref(callee, signature, false);
        let address = self.ins().func_addr(types::I64, func_ref);
        self.properties.addresses.push(address);
        if callee.namespace == FUNCTIONS && self.draw.one_in(3) {
            let groups = &self.callees.groups;
            let same = (0..groups.len()).filter(|&at| groups[at] == *signature);
            let same: Vec<usize> = same.collect();
            let index = self.draw.choose(&same) as u32;
            let func_ref = self.func_ref(Callee { namespace: FUNCTIONS, index }, signature, false);
            let other = self.ins().func_addr(types::I64, func_ref);
            let condition = self.operand(types::I8).value;
            let address = self.ins().select(condition, address, other);
            self.properties.addresses.extend([other, address]);
            return (address, callee.index.max(index));
        }
        (address, callee.index)
    }

    /// A call that returns, or a look into a table.
    pub fn call(&mut self) {
        if self.draw.one_in(4) && !self.callees.tables.is_empty() {
            let table = self.draw.below(self.callees.tables.len());
            let data = &self.callees.tables[table];
            if data.memory.is_some() && (data.bytes.is_empty() || self.draw.one_in(2)) {
                let pointer = self.load_pointer(table as u32, data.pointers.len());
                return self.load_through(pointer);
            }
            if !data.bytes.is_empty() {
                let at = self.draw.below(data.bytes.len());
                return self.load_constant(table as u32, 8 * data.words() + at);
            }
        }
        let callee = self.callee();
        let call = self.prepare_call(callee, true);
        if call.ends {
            // The result of a function that never returns is never seen.
            let inst = self.finish_call(&call, false);
            self.learn(inst, false);
        } else {
            self.call_if_plentiful(&call);
        }
    }

    /// A call without a branch: of an import, or of a function that leads to other groups only.
    pub fn straight_call(&mut self) {
        let callee = match self.group > 0 && self.draw.one_in(2) {
            true => {
                Callee { namespace: FUNCTIONS, index: self.draw.below(self.group as usize) as u32 }
            }
            false => self.import(),
        };
        let call = self.prepare_call(callee, false);
        // A pointer can lead elsewhere.
        if call.ends {
            let inst = self.finish_call(&call, false);
            self.learn(inst, false);
        }
    }

    /// A call that may not come back while there is fuel: some other values without.
    fn call_if_plentiful(&mut self, call: &Call) {
        let returns = self.body.func.dfg.signatures[call.signature].returns.clone();
        let types: Vec<Type> = returns.iter().map(|result| result.value_type).collect();
        let others: Vec<BlockArg> =
            types.iter().map(|&ty| BlockArg::Value(self.operand(ty).value)).collect();
        let plentiful = self.is_fuel_plentiful();
        let (calls, join) = (self.body.new_block(&[]), self.body.new_block(&types));
        self.ins().brif(plentiful, calls, &[], join, &others);
        self.body.continue_in(calls);
        let inst = self.finish_call(call, false);
        let results = self.body.func.dfg.inst_results(inst).iter();
        let results: Vec<BlockArg> = results.map(|&value| BlockArg::Value(value)).collect();
        self.ins().jump(join, &results);
        self.body.continue_in(join);
        for (&value, &ty) in self.body.func.dfg.block_params(join).iter().zip(&types) {
            self.known.push(Known { value, ty, constant: false });
        }
    }

    /// A tail call in place of a return.
    pub fn tail_call(&mut self) -> bool {
        let own = self.body.func.signature.clone();
        if own.call_conv != CallConv::Tail {
            return false;
        }
        let fits =
            |other: &Signature| other.call_conv == CallConv::Tail && other.returns == own.returns;
        let callee = self.group(fits).expect("the function itself");
        let call = self.prepare_call(callee, false);
        if !call.ends {
            self.return_unless_plentiful();
        }
        self.finish_call(&call, true);
        true
    }

    fn finish_call(&mut self, call: &Call, tail: bool) -> Inst {
        let data = match call.via {
            Via::Name(func_ref) => InstructionData::Call {
                opcode: if tail { Opcode::ReturnCall } else { Opcode::Call },
                args: self.list(None, &call.args),
                func_ref,
            },
            Via::Pointer(pointer) => InstructionData::CallIndirect {
                opcode: if tail { Opcode::ReturnCallIndirect } else { Opcode::CallIndirect },
                args: self.list(Some(pointer), &call.args),
                sig_ref: call.signature,
            },
        };
        let inst = self.body.append(data, types::I64);
        if !tail {
            self.annotate(inst);
        }
        inst
    }

    /// The instruction of a call that can throw.
    pub fn finish_try_call(&mut self, call: Call, exception: ExceptionTable) {
        let data = match call.via {
            Via::Name(func_ref) => InstructionData::TryCall {
                opcode: Opcode::TryCall,
                args: self.list(None, &call.args),
                func_ref,
                exception,
            },
            Via::Pointer(pointer) => InstructionData::TryCallIndirect {
                opcode: Opcode::TryCallIndirect,
                args: self.list(Some(pointer), &call.args),
                exception,
            },
        };
        let inst = self.body.append(data, types::I64);
        self.annotate(inst);
    }

    fn list(&mut self, first: Option<Value>, args: &[Value]) -> ValueList {
        let all: Vec<Value> = first.into_iter().chain(args.iter().copied()).collect();
        ValueList::from_slice(&all, &mut self.body.func.dfg.value_lists)
    }

    /// Adds the information of a call for debuggers and collectors.
    fn annotate(&mut self, inst: Inst) {
        if self.draw.one_in(8) {
            let tag = self.draw.below(16) as u32;
            self.body.func.debug_tags.set(inst, [DebugTag::User(tag)]);
        }
        if self.draw.one_in(8)
            && let Some(&slot) = self.properties.slots.first()
        {
            let entry = UserStackMapEntry { ty: types::I64, slot, offset: 0 };
            self.body.func.dfg.append_user_stack_map_entry(inst, entry);
        }
    }
}
