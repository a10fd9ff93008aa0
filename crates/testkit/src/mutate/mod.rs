//! Every single change of an instruction that changes what it means.
//!
//! The match over `InstructionData` is exhaustive and names every field, so that a format or a field that a new
//! Cranelift adds is a compile error here until the match says what changing it means. Mutants need not pass the
//! verifier: that the verifier constrains a field is no reason to overlook it.
//!
//! Tables behind an instruction (callees, signatures, branch targets, constants) are changed by
//! giving the instruction an entry of its own; those of a whole function are in `mutate_function`.

pub mod function;
pub mod tables;

use crate::permute::can_swap;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::immediates::{Ieee16, Ieee32, Ieee64, Imm64, Offset32};
use cranelift_codegen::ir::{
    AtomicRmwOp, Block, BlockArg, BlockCall, ConstantData, Endianness, ExceptionTable,
    ExceptionTableData, ExceptionTableItem, ExceptionTag, FuncRef, Function, GlobalValue, Inst,
    InstructionData, JumpTable, JumpTableData, MemFlags, MemFlagsData, Opcode, SigRef, TrapCode,
    Type, Value, ValueDef, ValueList, types,
};
use cranelift_entity::EntityRef;
use tables::{callee_mutants, global_mutants, signature_mutants};

/// A function that differs from the original in one thing.
pub struct Mutant {
    /// The instruction and the change, for messages.
    pub what: String,
    /// The changed function. It need not pass the verifier.
    pub func: Function,
}

impl Mutant {
    /// Whether the change certainly leads to another function. Other changes may exchange equal things: two blocks
    /// that do the same, two slots of one size.
    pub fn is_certain(&self) -> bool {
        const CERTAIN: [&str; 14] = [
            "opcode ",
            "operand ",
            "immediate of",
            "offset of",
            "trap code of",
            "condition of",
            "operation of",
            "constant of",
            "mask of",
            "type of result",
            "slot size",
            "slot alignment",
            "without ",
            "an unused slot",
        ];
        CERTAIN.iter().any(|certain| self.what.starts_with(certain))
    }
}

/// All mutants of all instructions of a function.
pub fn instruction_mutants(func: &Function) -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for block in func.layout.blocks() {
        for inst in func.layout.block_insts(block) {
            let mut site = Site { func, inst, block, mutants, complete: true };
            site.format();
            site.results();
            mutants = site.mutants;
        }
    }
    mutants
}

/// Mutants of one instruction of a function in any form. Operands that have no possible replacement stay.
pub fn mutants_of(func: &Function, block: Block, inst: Inst) -> Vec<Mutant> {
    // Another name of the same value is no change.
    let mut func = func.clone();
    func.dfg.resolve_all_aliases();
    let mut site = Site { func: &func, inst, block, mutants: Vec::new(), complete: false };
    site.format();
    site.results();
    site.mutants
}

/// One instruction, and the mutants so far.
struct Site<'a> {
    func: &'a Function,
    inst: Inst,
    block: Block,
    mutants: Vec<Mutant>,
    /// Whether every operand must be changed.
    complete: bool,
}

/// A branch target in plain data.
#[derive(Clone, PartialEq)]
struct Target {
    block: Block,
    args: Vec<BlockArg>,
}

impl Target {
    fn of(func: &Function, call: &BlockCall) -> Target {
        let pool = &func.dfg.value_lists;
        Target { block: call.block(pool), args: call.args(pool).collect() }
    }

    fn build(&self, func: &mut Function) -> BlockCall {
        BlockCall::new(self.block, self.args.iter().copied(), &mut func.dfg.value_lists)
    }
}

/// An entry of an exception table in plain data.
#[derive(Clone, PartialEq)]
enum Handler {
    Tag(ExceptionTag, Target),
    Default(Target),
    Context(Value),
}

impl Site<'_> {
    /// The mutant in which `change` makes the instruction, and the tables that it needs.
    fn edit(&mut self, what: &str, change: impl FnOnce(&mut Function) -> InstructionData) {
        let mut func = self.func.clone();
        let data = change(&mut func);
        func.dfg.insts[self.inst] = data;
        let what = format!("{what} of `{}`", self.func.dfg.display_inst(self.inst));
        self.mutants.push(Mutant { what, func });
    }

    fn put(&mut self, what: &str, data: InstructionData) {
        self.edit(what, |_| data);
    }

    fn format(&mut self) {
        use InstructionData as I;
        let func = self.func;
        match func.dfg.insts[self.inst] {
            I::AtomicCas { opcode, args, flags } => {
                self.opcodes(opcode, |opcode| I::AtomicCas { opcode, args, flags });
                self.operands(args, |args| I::AtomicCas { opcode, args, flags });
                self.flags(flags, |flags| I::AtomicCas { opcode, args, flags });
            }
            I::AtomicRmw { opcode, args, flags, op } => {
                self.opcodes(opcode, |opcode| I::AtomicRmw { opcode, args, flags, op });
                self.operands(args, |args| I::AtomicRmw { opcode, args, flags, op });
                self.flags(flags, |flags| I::AtomicRmw { opcode, args, flags, op });
                for &op in AtomicRmwOp::all().iter().filter(|&&other| other != op) {
                    self.put("operation", I::AtomicRmw { opcode, args, flags, op });
                }
            }
            I::Binary { opcode, args } => {
                self.opcodes(opcode, |opcode| I::Binary { opcode, args });
                self.operands(args, |args| I::Binary { opcode, args });
            }
            I::BinaryImm8 { opcode, arg, imm } => {
                self.opcodes(opcode, |opcode| I::BinaryImm8 { opcode, arg, imm });
                self.operands([arg], |[arg]| I::BinaryImm8 { opcode, arg, imm });
                self.bytes(imm, |imm| I::BinaryImm8 { opcode, arg, imm });
            }
            I::BranchTable { opcode, arg, table } => {
                self.opcodes(opcode, |opcode| I::BranchTable { opcode, arg, table });
                self.operands([arg], |[arg]| I::BranchTable { opcode, arg, table });
                self.jump_table(table, |table| I::BranchTable { opcode, arg, table });
            }
            I::Brif { opcode, arg, blocks } => {
                self.opcodes(opcode, |opcode| I::Brif { opcode, arg, blocks });
                self.operands([arg], |[arg]| I::Brif { opcode, arg, blocks });
                let [then, other] = blocks;
                self.target(then, |then| I::Brif { opcode, arg, blocks: [then, other] });
                self.target(other, |other| I::Brif { opcode, arg, blocks: [then, other] });
                if Target::of(func, &then) != Target::of(func, &other) {
                    self.put("exchanged targets", I::Brif { opcode, arg, blocks: [other, then] });
                }
            }
            I::Call { opcode, args, func_ref } => {
                self.opcodes(opcode, |opcode| I::Call { opcode, args, func_ref });
                self.list(args, |args| I::Call { opcode, args, func_ref });
                self.callee(func_ref, |func_ref| I::Call { opcode, args, func_ref });
            }
            I::CallIndirect { opcode, args, sig_ref } => {
                self.opcodes(opcode, |opcode| I::CallIndirect { opcode, args, sig_ref });
                self.list(args, |args| I::CallIndirect { opcode, args, sig_ref });
                self.signature(sig_ref, |sig_ref| I::CallIndirect { opcode, args, sig_ref });
            }
            I::CondTrap { opcode, arg, code } => {
                self.opcodes(opcode, |opcode| I::CondTrap { opcode, arg, code });
                self.operands([arg], |[arg]| I::CondTrap { opcode, arg, code });
                self.codes(code, |code| I::CondTrap { opcode, arg, code });
            }
            I::DynamicStackAddr { opcode, dynamic_stack_slot } => {
                self.opcodes(opcode, |opcode| I::DynamicStackAddr { opcode, dynamic_stack_slot });
                let slots = func.dynamic_stack_slots.keys();
                for dynamic_stack_slot in slots.filter(|&other| other != dynamic_stack_slot) {
                    self.put("slot", I::DynamicStackAddr { opcode, dynamic_stack_slot });
                }
            }
            I::ExceptionHandlerAddress { opcode, block, imm } => {
                self.opcodes(opcode, |opcode| I::ExceptionHandlerAddress { opcode, block, imm });
                for block in self.other_blocks(block) {
                    self.put("block", I::ExceptionHandlerAddress { opcode, block, imm });
                }
                self.words(imm, |imm| I::ExceptionHandlerAddress { opcode, block, imm });
            }
            I::FloatCompare { opcode, args, cond } => {
                self.opcodes(opcode, |opcode| I::FloatCompare { opcode, args, cond });
                self.operands(args, |args| I::FloatCompare { opcode, args, cond });
                for &cond in FloatCC::all().iter().filter(|&&other| other != cond) {
                    self.put("condition", I::FloatCompare { opcode, args, cond });
                }
            }
            I::FuncAddr { opcode, func_ref } => {
                self.opcodes(opcode, |opcode| I::FuncAddr { opcode, func_ref });
                self.callee(func_ref, |func_ref| I::FuncAddr { opcode, func_ref });
            }
            I::IntAddTrap { opcode, args, code } => {
                self.opcodes(opcode, |opcode| I::IntAddTrap { opcode, args, code });
                self.operands(args, |args| I::IntAddTrap { opcode, args, code });
                self.codes(code, |code| I::IntAddTrap { opcode, args, code });
            }
            I::IntCompare { opcode, args, cond } => {
                self.opcodes(opcode, |opcode| I::IntCompare { opcode, args, cond });
                self.operands(args, |args| I::IntCompare { opcode, args, cond });
                for &cond in IntCC::all().iter().filter(|&&other| other != cond) {
                    self.put("condition", I::IntCompare { opcode, args, cond });
                }
            }
            I::Jump { opcode, destination } => {
                self.opcodes(opcode, |opcode| I::Jump { opcode, destination });
                self.target(destination, |destination| I::Jump { opcode, destination });
            }
            I::Load { opcode, arg, flags, offset } => {
                self.opcodes(opcode, |opcode| I::Load { opcode, arg, flags, offset });
                self.operands([arg], |[arg]| I::Load { opcode, arg, flags, offset });
                self.flags(flags, |flags| I::Load { opcode, arg, flags, offset });
                self.offsets(offset, |offset| I::Load { opcode, arg, flags, offset });
            }
            I::LoadNoOffset { opcode, arg, flags } => {
                self.opcodes(opcode, |opcode| I::LoadNoOffset { opcode, arg, flags });
                self.operands([arg], |[arg]| I::LoadNoOffset { opcode, arg, flags });
                self.flags(flags, |flags| I::LoadNoOffset { opcode, arg, flags });
            }
            I::MultiAry { opcode, args } => {
                self.opcodes(opcode, |opcode| I::MultiAry { opcode, args });
                self.list(args, |args| I::MultiAry { opcode, args });
            }
            I::NullAry { opcode } => self.opcodes(opcode, |opcode| I::NullAry { opcode }),
            I::Shuffle { opcode, args, imm } => {
                self.opcodes(opcode, |opcode| I::Shuffle { opcode, args, imm });
                self.operands(args, |args| I::Shuffle { opcode, args, imm });
                for mask in other_bytes(&func.dfg.immediates[imm]) {
                    self.edit("mask", |func| {
                        let imm = func.dfg.immediates.push(mask);
                        I::Shuffle { opcode, args, imm }
                    });
                }
            }
            I::StackAddr { opcode, stack_slot, offset } => {
                self.opcodes(opcode, |opcode| I::StackAddr { opcode, stack_slot, offset });
                let slots = func.sized_stack_slots.keys();
                for stack_slot in slots.filter(|&other| other != stack_slot) {
                    self.put("slot", I::StackAddr { opcode, stack_slot, offset });
                }
                self.offsets(offset, |offset| I::StackAddr { opcode, stack_slot, offset });
            }
            I::Store { opcode, args, flags, offset } => {
                self.opcodes(opcode, |opcode| I::Store { opcode, args, flags, offset });
                self.operands(args, |args| I::Store { opcode, args, flags, offset });
                self.flags(flags, |flags| I::Store { opcode, args, flags, offset });
                self.offsets(offset, |offset| I::Store { opcode, args, flags, offset });
            }
            I::StoreNoOffset { opcode, args, flags } => {
                self.opcodes(opcode, |opcode| I::StoreNoOffset { opcode, args, flags });
                self.operands(args, |args| I::StoreNoOffset { opcode, args, flags });
                self.flags(flags, |flags| I::StoreNoOffset { opcode, args, flags });
            }
            I::Ternary { opcode, args } => {
                self.opcodes(opcode, |opcode| I::Ternary { opcode, args });
                self.operands(args, |args| I::Ternary { opcode, args });
            }
            I::TernaryImm8 { opcode, args, imm } => {
                self.opcodes(opcode, |opcode| I::TernaryImm8 { opcode, args, imm });
                self.operands(args, |args| I::TernaryImm8 { opcode, args, imm });
                self.bytes(imm, |imm| I::TernaryImm8 { opcode, args, imm });
            }
            I::Trap { opcode, code } => {
                self.opcodes(opcode, |opcode| I::Trap { opcode, code });
                self.codes(code, |code| I::Trap { opcode, code });
            }
            I::TryCall { opcode, args, func_ref, exception } => {
                self.opcodes(opcode, |opcode| I::TryCall { opcode, args, func_ref, exception });
                self.list(args, |args| I::TryCall { opcode, args, func_ref, exception });
                self.callee(func_ref, |func_ref| I::TryCall { opcode, args, func_ref, exception });
                self.handlers(exception, |exception| I::TryCall {
                    opcode,
                    args,
                    func_ref,
                    exception,
                });
            }
            I::TryCallIndirect { opcode, args, exception } => {
                self.opcodes(opcode, |opcode| I::TryCallIndirect { opcode, args, exception });
                self.list(args, |args| I::TryCallIndirect { opcode, args, exception });
                self.handlers(exception, |exception| I::TryCallIndirect {
                    opcode,
                    args,
                    exception,
                });
            }
            I::Unary { opcode, arg } => {
                self.opcodes(opcode, |opcode| I::Unary { opcode, arg });
                self.operands([arg], |[arg]| I::Unary { opcode, arg });
            }
            I::UnaryConst { opcode, constant_handle } => {
                self.opcodes(opcode, |opcode| I::UnaryConst { opcode, constant_handle });
                for data in other_bytes(func.dfg.constants.get(constant_handle)) {
                    self.edit("constant", |func| {
                        let constant_handle = func.dfg.constants.insert(data);
                        I::UnaryConst { opcode, constant_handle }
                    });
                }
            }
            I::UnaryGlobalValue { opcode, global_value } => {
                self.opcodes(opcode, |opcode| I::UnaryGlobalValue { opcode, global_value });
                self.global(global_value, |global_value| I::UnaryGlobalValue {
                    opcode,
                    global_value,
                });
            }
            I::UnaryIeee16 { opcode, imm } => {
                self.opcodes(opcode, |opcode| I::UnaryIeee16 { opcode, imm });
                for bit in [0, 9, 15] {
                    let imm = Ieee16::with_bits(imm.bits() ^ 1 << bit);
                    self.put("constant", I::UnaryIeee16 { opcode, imm });
                }
            }
            I::UnaryIeee32 { opcode, imm } => {
                self.opcodes(opcode, |opcode| I::UnaryIeee32 { opcode, imm });
                for bit in [0, 22, 31] {
                    let imm = Ieee32::with_bits(imm.bits() ^ 1 << bit);
                    self.put("constant", I::UnaryIeee32 { opcode, imm });
                }
            }
            I::UnaryIeee64 { opcode, imm } => {
                self.opcodes(opcode, |opcode| I::UnaryIeee64 { opcode, imm });
                for bit in [0, 51, 63] {
                    let imm = Ieee64::with_bits(imm.bits() ^ 1 << bit);
                    self.put("constant", I::UnaryIeee64 { opcode, imm });
                }
            }
            I::UnaryImm { opcode, imm } => {
                self.opcodes(opcode, |opcode| I::UnaryImm { opcode, imm });
                self.words(imm, |imm| I::UnaryImm { opcode, imm });
            }
        }
    }

    /// Other opcodes of the format.
    fn opcodes(&mut self, opcode: Opcode, make: impl Fn(Opcode) -> InstructionData) {
        for &other in Opcode::all() {
            if other != opcode && other.format() == opcode.format() {
                self.put(&format!("opcode {other} instead"), make(other));
            }
        }
    }

    /// Another value of the same type that is defined where the instruction is.
    fn rival(&self, value: Value) -> Option<Value> {
        let dfg = &self.func.dfg;
        let entry = self.func.layout.entry_block().expect("has a body");
        let mut candidates = dfg.block_params(entry).to_vec();
        candidates.extend(dfg.block_params(self.block));
        for inst in self.func.layout.block_insts(self.block).take_while(|&i| i != self.inst) {
            candidates.extend(dfg.inst_results(inst));
        }
        let fits =
            |&other: &Value| other != value && dfg.value_type(other) == dfg.value_type(value);
        let rival = candidates.into_iter().find(fits);
        let inst = dfg.display_inst(self.inst);
        assert!(
            rival.is_some() || !self.complete,
            "formats.clif has no rival for {value} in {inst}"
        );
        rival
    }

    fn operands<const N: usize>(
        &mut self,
        args: [Value; N],
        make: impl Fn([Value; N]) -> InstructionData,
    ) {
        for at in 0..N {
            if let Some(rival) = self.rival(args[at]) {
                let mut other = args;
                other[at] = rival;
                self.put(&format!("operand {at}"), make(other));
            }
        }
        let opcode = self.func.dfg.insts[self.inst].opcode();
        let ty = |at: usize| self.func.dfg.value_type(args[at]);
        for at in 1..N {
            if order_matters(opcode) && args[at - 1] != args[at] && ty(at - 1) == ty(at) {
                let mut other = args;
                other.swap(at - 1, at);
                self.put(&format!("exchanged operands {} and {at}", at - 1), make(other));
            }
        }
    }

    fn list(&mut self, list: ValueList, make: impl Fn(ValueList) -> InstructionData) {
        let args = list.as_slice(&self.func.dfg.value_lists).to_vec();
        let mut others = Vec::new();
        for at in 0..args.len() {
            if let Some(rival) = self.rival(args[at]) {
                let mut other = args.clone();
                other[at] = rival;
                others.push((format!("argument {at}"), other));
            }
            let mut other = args.clone();
            other.remove(at);
            others.push((format!("removed argument {at}"), other));
            let mut other = args.clone();
            other.insert(at, args[at]);
            others.push((format!("repeated argument {at}"), other));
        }
        for (what, other) in others {
            self.edit(&what, |func| make(ValueList::from_slice(&other, &mut func.dfg.value_lists)));
        }
    }

    /// Changes of memory flags that are behaviour: trap code and byte order.
    fn flags(&mut self, flags: MemFlags, make: impl Fn(MemFlags) -> InstructionData) {
        let old = self.func.dfg.mem_flags[flags];
        let user = |code| Some(TrapCode::unwrap_user(code));
        for code in [None, Some(TrapCode::HEAP_OUT_OF_BOUNDS), user(41), user(42)] {
            if code != old.trap_code() {
                self.edit("trap code", |func| {
                    make(func.dfg.mem_flags.insert(old.with_trap_code(code)).unwrap())
                });
            }
        }
        for endianness in [Endianness::Little, Endianness::Big] {
            if old.explicit_endianness() != Some(endianness) {
                // Built from scratch, because a byte order that was set cannot be removed.
                let new = MemFlagsData::new()
                    .with_trap_code(old.trap_code())
                    .with_alias_region(old.alias_region())
                    .with_endianness(endianness);
                self.edit("byte order", |func| make(func.dfg.mem_flags.insert(new).unwrap()));
            }
        }
    }

    fn bytes(&mut self, imm: u8, make: impl Fn(u8) -> InstructionData) {
        for bit in [0, 7] {
            self.put("immediate", make(imm ^ 1 << bit));
        }
    }

    fn words(&mut self, imm: Imm64, make: impl Fn(Imm64) -> InstructionData) {
        for bit in [0, 8, 31, 32, 63] {
            self.put("immediate", make(Imm64::new(imm.bits() ^ 1 << bit)));
        }
    }

    fn offsets(&mut self, offset: Offset32, make: impl Fn(Offset32) -> InstructionData) {
        for bit in [0, 8, 31] {
            self.put("offset", make(Offset32::new(i32::from(offset) ^ 1 << bit)));
        }
    }

    fn codes(&mut self, code: TrapCode, make: impl Fn(TrapCode) -> InstructionData) {
        let others = [TrapCode::INTEGER_OVERFLOW, TrapCode::unwrap_user(43)];
        for other in others.into_iter().filter(|&other| other != code) {
            self.put("trap code", make(other));
        }
    }

    fn signature(&mut self, sig: SigRef, make: impl Fn(SigRef) -> InstructionData) {
        for (what, signature) in signature_mutants(&self.func.dfg.signatures[sig]) {
            self.edit(&what, |func| make(func.import_signature(signature)));
        }
    }

    fn callee(&mut self, callee: FuncRef, make: impl Fn(FuncRef) -> InstructionData) {
        for (what, change) in callee_mutants(self.func, callee) {
            self.edit(&what, |func| make(change(func)));
        }
    }

    fn global(&mut self, global: GlobalValue, make: impl Fn(GlobalValue) -> InstructionData) {
        for (what, change) in global_mutants(self.func, global) {
            self.edit(&what, |func| make(change(func)));
        }
    }

    fn other_blocks(&self, block: Block) -> Vec<Block> {
        let entry = self.func.layout.entry_block();
        self.func.layout.blocks().filter(|&other| other != block && Some(other) != entry).collect()
    }

    fn target_mutants(&self, target: &Target) -> Vec<(String, Target)> {
        let mut mutants = Vec::new();
        for block in self.other_blocks(target.block) {
            mutants.push((format!("target {block} instead"), Target { block, ..target.clone() }));
        }
        for (at, &arg) in target.args.iter().enumerate() {
            let others = match arg {
                BlockArg::Value(value) => {
                    self.rival(value).into_iter().map(BlockArg::Value).collect()
                }
                BlockArg::TryCallRet(n) => {
                    vec![BlockArg::TryCallRet(n + 1), BlockArg::TryCallExn(n)]
                }
                BlockArg::TryCallExn(n) => {
                    vec![BlockArg::TryCallExn(n + 1), BlockArg::TryCallRet(n)]
                }
            };
            for other in others {
                let mut mutant = target.clone();
                mutant.args[at] = other;
                mutants.push((format!("block argument {at}"), mutant));
            }
            let mut mutant = target.clone();
            mutant.args.remove(at);
            mutants.push((format!("removed block argument {at}"), mutant));
            let mut mutant = target.clone();
            mutant.args.insert(at, arg);
            mutants.push((format!("repeated block argument {at}"), mutant));
            if let [this, next, ..] = &target.args[at..]
                && this != next
            {
                let mut mutant = target.clone();
                mutant.args.swap(at, at + 1);
                mutants.push((format!("exchanged block arguments {at} and the next"), mutant));
            }
        }
        mutants
    }

    fn target(&mut self, call: BlockCall, make: impl Fn(BlockCall) -> InstructionData) {
        for (what, target) in self.target_mutants(&Target::of(self.func, &call)) {
            self.edit(&what, |func| make(target.build(func)));
        }
    }

    fn jump_table(&mut self, table: JumpTable, make: impl Fn(JumpTable) -> InstructionData) {
        // The default target first, as Cranelift has it.
        let branches = self.func.dfg.jump_tables[table].all_branches();
        let targets: Vec<Target> =
            branches.iter().map(|call| Target::of(self.func, call)).collect();
        for (what, targets) in list_mutants(&targets, |target| self.target_mutants(target)) {
            if targets.is_empty() {
                continue;
            }
            self.edit(&format!("jump table: {what}"), |func| {
                let calls: Vec<BlockCall> =
                    targets.iter().map(|target| target.build(func)).collect();
                make(func.dfg.jump_tables.push(JumpTableData::new(calls[0], &calls[1..])))
            });
        }
    }

    fn handlers(
        &mut self,
        table: ExceptionTable,
        make: impl Fn(ExceptionTable) -> InstructionData,
    ) {
        let func = self.func;
        let data = &func.dfg.exception_tables[table];
        let signature = data.signature();
        let normal = Target::of(func, data.normal_return());
        let handlers: Vec<Handler> = data
            .items()
            .map(|item| match item {
                ExceptionTableItem::Tag(tag, call) => Handler::Tag(tag, Target::of(func, &call)),
                ExceptionTableItem::Default(call) => Handler::Default(Target::of(func, &call)),
                ExceptionTableItem::Context(value) => Handler::Context(value),
            })
            .collect();
        let build = |func: &mut Function, sig: SigRef, normal: &Target, handlers: &[Handler]| {
            let normal = normal.build(func);
            let items: Vec<ExceptionTableItem> = handlers
                .iter()
                .map(|handler| match handler {
                    Handler::Tag(tag, target) => ExceptionTableItem::Tag(*tag, target.build(func)),
                    Handler::Default(target) => ExceptionTableItem::Default(target.build(func)),
                    Handler::Context(value) => ExceptionTableItem::Context(*value),
                })
                .collect();
            make(func.dfg.exception_tables.push(ExceptionTableData::new(sig, normal, items)))
        };
        for (what, other) in signature_mutants(&func.dfg.signatures[signature]) {
            self.edit(&what, |func| {
                let sig = func.import_signature(other);
                build(func, sig, &normal, &handlers)
            });
        }
        for (what, normal) in self.target_mutants(&normal) {
            self.edit(&format!("return: {what}"), |func| {
                build(func, signature, &normal, &handlers)
            });
        }
        for (what, handlers) in list_mutants(&handlers, |handler| self.handler_mutants(handler)) {
            self.edit(&format!("handler: {what}"), |func| {
                build(func, signature, &normal, &handlers)
            });
        }
    }

    fn handler_mutants(&self, handler: &Handler) -> Vec<(String, Handler)> {
        match handler {
            Handler::Tag(tag, target) => {
                let other = ExceptionTag::from_u32(tag.as_u32() + 100);
                let mut mutants = vec![
                    ("tag".into(), Handler::Tag(other, target.clone())),
                    ("default, not tag".into(), Handler::Default(target.clone())),
                ];
                let targets = self.target_mutants(target).into_iter();
                mutants.extend(targets.map(|(what, target)| (what, Handler::Tag(*tag, target))));
                mutants
            }
            Handler::Default(target) => {
                let tag = ExceptionTag::from_u32(100);
                let mut mutants =
                    vec![("tag, not default".into(), Handler::Tag(tag, target.clone()))];
                let targets = self.target_mutants(target).into_iter();
                mutants.extend(targets.map(|(what, target)| (what, Handler::Default(target))));
                mutants
            }
            Handler::Context(value) => {
                let rival = self.rival(*value).into_iter();
                rival.map(|value| ("context".into(), Handler::Context(value))).collect()
            }
        }
    }

    /// Other types of the results, which are no part of the instruction's data.
    fn results(&mut self) {
        for (at, &result) in self.func.dfg.inst_results(self.inst).iter().enumerate() {
            let ty = other_type(self.func.dfg.value_type(result));
            let func = retyped(self.func, result, ty);
            let inst = self.func.dfg.display_inst(self.inst);
            self.mutants.push(Mutant { what: format!("type of result {at} of `{inst}`"), func });
        }
    }
}

/// Whether exchanging operands changes what the instruction computes. Float operations are among
/// them: which of two NaNs an addition returns depends on the order.
fn order_matters(opcode: Opcode) -> bool {
    use Opcode::*;
    match opcode {
        // Symmetric, or so for some conditions, though the library does not use it.
        Icmp | Fcmp | SaddOverflowCin | UaddOverflowCin | X86Pmulhrsw => false,
        _ => !can_swap(opcode),
    }
}

/// Lists in which one item is another, is missing, is there twice, or has changed places with the
/// next one.
fn list_mutants<T: Clone + PartialEq>(
    items: &[T],
    item_mutants: impl Fn(&T) -> Vec<(String, T)>,
) -> Vec<(String, Vec<T>)> {
    let mut mutants = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let mut put = |what: String, change: &dyn Fn(&mut Vec<T>)| {
            let mut mutant = items.to_vec();
            change(&mut mutant);
            mutants.push((format!("{what}, entry {at}"), mutant));
        };
        for (what, other) in item_mutants(item) {
            put(what, &|mutant| mutant[at] = other.clone());
        }
        put("removed".into(), &|mutant| _ = mutant.remove(at));
        put("repeated".into(), &|mutant| mutant.insert(at, item.clone()));
        if items.get(at + 1).is_some_and(|next| next != item) {
            put("exchanged with the next".into(), &|mutant| mutant.swap(at, at + 1));
        }
    }
    mutants
}

/// The same bytes but for one bit, at either end, and one byte more or less.
fn other_bytes(data: &ConstantData) -> Vec<ConstantData> {
    let bytes = data.as_slice();
    let mut others = vec![bytes.to_vec(), bytes.to_vec(), bytes.to_vec(), bytes.to_vec()];
    others[0][0] ^= 1;
    others[1][bytes.len() - 1] ^= 0x80;
    others[2].push(0);
    others[3].pop();
    others.into_iter().map(ConstantData::from).collect()
}

/// A type that is not `ty`.
pub fn other_type(ty: Type) -> Type {
    if ty == types::I32 { types::I64 } else { types::I32 }
}

/// The function in which a value has another type; its uses follow it.
pub fn retyped(func: &Function, value: Value, ty: Type) -> Function {
    let mut func = func.clone();
    let new = match func.dfg.value_def(value) {
        ValueDef::Result(..) => func.dfg.replace_result(value, ty),
        ValueDef::Param(..) => func.dfg.replace_block_param(value, ty),
        ValueDef::Union(..) => unreachable!("no unions outside of the optimiser"),
    };
    func.dfg.make_value_alias_for_serialization(new, value);
    assert!(func.dfg.value_is_alias(value) && new.index() != value.index());
    func
}
