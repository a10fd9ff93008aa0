//! How a block ends: with a return, with a branch to blocks that exist or will be made, with a call
//! that does not come back here, or with a trap.
//!
//! Most of the time, everything ends without using up the fuel: a branch back is taken a limited
//! number of times only, and a call that may lead back to its caller is made only while fuel is
//! plentiful.

use crate::generate::conventions::{self, SEED_OFFSET};
use crate::generate::function::{Builder, Known};
use cranelift_codegen::ir::{
    BlockArg, BlockCall, ExceptionTableData, ExceptionTableItem, ExceptionTag, InstBuilder,
    InstructionData, JumpTableData, MemFlagsData, Opcode, Signature, Type, Value, types,
};

/// The end of a block, which is settled before it is built.
#[derive(Clone, Copy)]
enum Exit {
    Return,
    Jump,
    Brif,
    BrTable,
    Trap,
    TailCall,
    TryCall,
}

impl Builder<'_, '_, '_> {
    fn has_room(&self, blocks: usize) -> bool {
        self.nodes.len() + blocks <= self.profile.size.blocks
    }

    pub fn exit(&mut self) {
        // A function that returns at once is of little use; a function without bytes left must end.
        const EXITS: [Exit; 16] = [
            Exit::Return,
            Exit::Jump,
            Exit::Brif,
            Exit::Brif,
            Exit::Brif,
            Exit::Brif,
            Exit::Brif,
            Exit::BrTable,
            Exit::TryCall,
            Exit::TryCall,
            Exit::TailCall,
            Exit::Trap,
            Exit::BrTable,
            Exit::Brif,
            Exit::Jump,
            Exit::Return,
        ];
        let exit = self.draw.choose(&EXITS);
        let done = match exit {
            Exit::Return => false,
            Exit::Jump => self.jump(),
            Exit::Brif => self.brif(),
            Exit::BrTable => self.br_table(),
            Exit::Trap if self.profile.traps && self.at != 0 && self.draw.one_in(2) => {
                let code = self.trap_code();
                self.ins().trap(code);
                true
            }
            Exit::Trap => false,
            Exit::TailCall => self.tail_call(),
            Exit::TryCall => self.has_room(4) && self.try_call(),
        };
        if !done {
            self.return_();
        }
    }

    /// Returns unless there is fuel for a call that may not come back.
    pub fn return_unless_plentiful(&mut self) {
        let plentiful = self.is_fuel_plentiful();
        let [call, leave] = [(); 2].map(|()| self.body.new_block(&[]));
        self.ins().brif(plentiful, call, &[], leave, &[]);
        self.body.continue_in(leave);
        let known = self.known.clone();
        self.return_();
        self.known = known;
        self.body.continue_in(call);
    }

    fn return_(&mut self) {
        let types: Vec<Type> =
            self.body.func.signature.returns.iter().map(|result| result.value_type).collect();
        let values: Vec<Value> = types.into_iter().map(|ty| self.operand(ty).value).collect();
        self.ins().return_(&values);
    }

    /// The header of a loop around this block.
    fn back(&mut self) -> Option<usize> {
        if !self.draw.one_in(3) {
            return None;
        }
        let at = self.at;
        let mut headers: Vec<usize> = (1..self.nodes.len())
            .filter(|&node| self.nodes[node].header && self.nodes[node].filled)
            .collect();
        headers.retain(|&node| self.dominates(node, at));
        headers.retain(|&node| !self.nodes[node].taken);
        (!headers.is_empty()).then(|| self.draw.choose(&headers))
    }

    /// A block to branch to that is filled later, if there is one or room for one.
    fn target(&mut self) -> Option<usize> {
        let open: Vec<usize> =
            self.pending.iter().copied().filter(|&node| !self.nodes[node].taken).collect();
        let room = self.has_room(1);
        if !open.is_empty() && (!room || self.draw.one_in(2)) {
            return Some(self.draw.choose(&open));
        }
        room.then(|| {
            let mut params = Vec::new();
            for _ in 0..self.draw.below(4) {
                // Two of one type can be exchanged by mistake.
                let known = self.draw.below(self.known.len().max(1));
                let param = (self.known.get(known).map_or(types::I64, |known| known.ty), true);
                let same = params.last().copied().filter(|_| self.draw.one_in(2));
                params.push(same.unwrap_or(param));
            }
            self.node(params, false)
        })
    }

    /// A branch to a node, with arguments.
    fn edge(&mut self, node: usize) -> BlockCall {
        self.edge_with(node, Vec::new())
    }

    /// A branch to a node; the first arguments are given.
    fn edge_with(&mut self, node: usize, mut args: Vec<BlockArg>) -> BlockCall {
        for (ty, _) in self.nodes[node].params.clone().into_iter().skip(args.len()) {
            args.push(BlockArg::Value(self.operand(ty).value));
        }
        if !self.nodes[node].filled {
            self.nodes[node].preds.push(self.at);
        }
        BlockCall::new(self.nodes[node].block, args, &mut self.body.func.dfg.value_lists)
    }

    fn jump(&mut self) -> bool {
        let Some(node) = self.target() else {
            return false;
        };
        let destination = self.edge(node);
        let data = InstructionData::Jump { opcode: Opcode::Jump, destination };
        self.body.append(data, types::INVALID);
        true
    }

    fn brif(&mut self) -> bool {
        let back = self.back();
        let (Some(then), Some(other)) = (back.or_else(|| self.target()), self.target()) else {
            return false;
        };
        let mut arg = self.condition();
        let mut blocks = [self.edge(then), self.edge(other)];
        if back.is_some() {
            let condition = self.body.as_type(arg, types::I8);
            let goes_on = self.goes_on();
            if self.draw.one_in(2) {
                blocks.reverse();
                let one = self.ins().iconst(types::I8, 1);
                let ends = self.ins().bxor(goes_on, one);
                arg = self.ins().bor(condition, ends);
            } else {
                arg = self.ins().band(condition, goes_on);
            }
        }
        self.body
            .append(InstructionData::Brif { opcode: Opcode::Brif, arg, blocks }, types::INVALID);
        true
    }

    /// A value to branch on, which follows from constants only where that is meant.
    fn condition(&mut self) -> Value {
        let constant = self.profile.constant_branches && self.draw.one_in(24);
        let usable = |known: &&Known| known.ty.is_int() && known.constant == constant;
        let conditions: Vec<Value> =
            self.known.iter().filter(usable).map(|known| known.value).collect();
        if !conditions.is_empty() {
            self.properties.folds |= constant;
            return self.draw.choose(&conditions);
        }
        let flags = MemFlagsData::new().with_notrap();
        let memory = self.memory();
        self.ins().load(types::I8, flags, memory, SEED_OFFSET + 1)
    }

    fn br_table(&mut self) -> bool {
        let Some(default) = self.target() else {
            return false;
        };
        let condition = self.condition();
        let arg = self.body.as_type(condition, types::I32);
        let mask = self.ins().iconst(types::I32, 3);
        let mut arg = self.ins().band(arg, mask);
        let default = self.edge(default);
        let mut entries = Vec::new();
        let mut loops = false;
        for _ in 0..self.draw.below(5) {
            let back = self.back();
            if let Some(node) = back.or_else(|| self.target()) {
                loops |= back.is_some();
                entries.push(self.edge(node));
            }
        }
        if loops {
            let goes_on = self.goes_on();
            let beyond = self.ins().iconst(types::I32, 7);
            arg = self.ins().select(goes_on, arg, beyond);
        }
        let table = JumpTableData::new(default, &entries);
        let table = self.body.func.create_jump_table(table);
        let data = InstructionData::BranchTable { opcode: Opcode::BrTable, arg, table };
        self.body.append(data, types::INVALID);
        true
    }

    /// A call that can throw, to what the unit, or the host, provides.
    fn try_call(&mut self) -> bool {
        let Some(callee) = self.catchable() else {
            return false;
        };
        let call = self.prepare_call(callee, true);
        if !call.ends {
            self.return_unless_plentiful();
        }
        let signature = self.body.func.dfg.signatures[call.signature].clone();
        let mut items = Vec::new();
        let mut tags: Vec<u32> = Vec::new();
        for _ in 0..self.draw.below(3) {
            if self.draw.one_in(4) {
                let context = self.operand(types::I64).value;
                items.push(ExceptionTableItem::Context(context));
            }
            let any = self.draw.below(conventions::THROWER_COUNT as usize) as u32;
            let tag = callee.tag().filter(|_| self.draw.but_one_in(4)).unwrap_or(any);
            if !tags.contains(&tag) {
                tags.push(tag);
                let handler = self.handler(&signature);
                items.push(ExceptionTableItem::Tag(ExceptionTag::from_u32(tag), handler));
            }
        }
        let mut handlers = tags.len();
        if self.draw.one_in(2) {
            let handler = self.handler(&signature);
            items.push(ExceptionTableItem::Default(handler));
            handlers += 1;
        }
        let results: Vec<(Type, bool)> =
            signature.returns.iter().map(|result| (result.value_type, !call.throws)).collect();
        let args = (0..results.len() as u32).map(BlockArg::TryCallRet).collect();
        let node = self.node(results, true);
        let normal = self.edge_with(node, args);
        // The verifier does not allow references to the entry block.
        if handlers > 0 && self.at != 0 && self.draw.one_in(4) {
            let (opcode, imm) = (Opcode::GetExceptionHandlerAddress, 0.into());
            let block = self.body.block;
            let data = InstructionData::ExceptionHandlerAddress { opcode, block, imm };
            let inst = self.body.append(data, types::I64);
            self.properties.addresses.extend(self.body.func.dfg.inst_results(inst));
        }
        let table = ExceptionTableData::new(call.signature, normal, items);
        let exception = self.body.func.dfg.exception_tables.push(table);
        self.finish_try_call(call, exception);
        true
    }

    /// The handler of an exception: a block of its own with the payload, or any block.
    fn handler(&mut self, signature: &Signature) -> BlockCall {
        let node = if self.draw.one_in(3) { self.target() } else { None };
        if let Some(node) = node.filter(|&node| !self.nodes[node].filled) {
            return self.edge(node);
        }
        let payload = signature.call_conv.exception_payload_types(types::I64);
        let count = self.draw.below(payload.len() + 1);
        let params = payload[..count].iter().map(|&ty| (ty, false)).collect();
        let node = self.node(params, true);
        self.edge_with(node, (0..count as u32).map(BlockArg::TryCallExn).collect())
    }
}
