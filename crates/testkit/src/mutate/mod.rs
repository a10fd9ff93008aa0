//! Every single change of an instruction that changes what it means.
//!
//! [`fields`] is exhaustive and names every field, so that a format or a field that a new Cranelift
//! adds is a compile error until it says what changing it means. Mutants need not pass the
//! verifier: that the verifier constrains a field is no reason to overlook it.
//!
//! Tables behind an instruction (callees, signatures, branch targets, constants) are changed by
//! giving the instruction an entry of its own; those of a whole function are in `mutate_function`.

mod fields;
pub mod function;
pub mod tables;

pub use fields::{Field, fields};

use crate::permute::can_swap;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::immediates::{Ieee16, Ieee32, Ieee64, Imm64, Offset32};
use cranelift_codegen::ir::{
    AtomicRmwOp, Block, BlockArg, BlockCall, ConstantData, Endianness, ExceptionTable,
    ExceptionTableData, ExceptionTableItem, ExceptionTag, Function, Inst, JumpTableData,
    MemFlagsData, Opcode, Signature, TrapCode, Type, Value, ValueDef, ValueList, types,
};
use cranelift_entity::EntityRef;
use tables::{Change, callee_mutants, global_mutants, signature_mutants};

/// A function that differs from the original in one thing.
pub struct Mutant {
    /// The instruction and the change, for messages.
    pub what: String,
    /// The changed function. It need not pass the verifier.
    pub func: Function,
}

impl Mutant {
    /// Whether the change certainly leads to another function. Other changes may exchange equal
    /// things: two blocks that do the same, two slots of one size.
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
            mutants.extend(Site { func, inst, block, mutants: Vec::new(), complete: true }.all());
        }
    }
    mutants
}

/// Mutants of one instruction of a function in any form. Operands that have no possible replacement
/// stay.
pub fn mutants_of(func: &Function, block: Block, inst: Inst) -> Vec<Mutant> {
    // Another name of the same value is no change.
    let mut func = func.clone();
    func.dfg.resolve_all_aliases();
    Site { func: &func, inst, block, mutants: Vec::new(), complete: false }.all()
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

/// An exception table in plain data.
#[derive(Clone)]
struct Handlers {
    signature: Signature,
    normal: Target,
    handlers: Vec<Handler>,
}

/// An entry of an exception table in plain data.
#[derive(Clone, PartialEq)]
enum Handler {
    Tag(ExceptionTag, Target),
    Default(Target),
    Context(Value),
}

impl Handlers {
    fn build(&self, func: &mut Function) -> ExceptionTable {
        let signature = func.import_signature(self.signature.clone());
        let normal = self.normal.build(func);
        let items: Vec<_> = self.handlers.iter().map(|handler| handler.build(func)).collect();
        func.dfg.exception_tables.push(ExceptionTableData::new(signature, normal, items))
    }
}

impl Handler {
    fn of(func: &Function, item: &ExceptionTableItem) -> Handler {
        match item {
            ExceptionTableItem::Tag(tag, call) => Handler::Tag(*tag, Target::of(func, call)),
            ExceptionTableItem::Default(call) => Handler::Default(Target::of(func, call)),
            ExceptionTableItem::Context(value) => Handler::Context(*value),
        }
    }

    fn build(&self, func: &mut Function) -> ExceptionTableItem {
        match self {
            Handler::Tag(tag, target) => ExceptionTableItem::Tag(*tag, target.build(func)),
            Handler::Default(target) => ExceptionTableItem::Default(target.build(func)),
            Handler::Context(value) => ExceptionTableItem::Context(*value),
        }
    }
}

impl Site<'_> {
    fn all(mut self) -> Vec<Mutant> {
        let mut data = self.func.dfg.insts[self.inst];
        for at in 0..fields(&mut data).len() {
            self.field(at);
        }
        self.results();
        self.mutants
    }

    /// The mutant in which `change` makes a field, the one with this number, and the tables that it
    /// needs.
    fn edit(&mut self, at: usize, what: &str, change: impl FnOnce(&mut Function, Field<'_>)) {
        let mut func = self.func.clone();
        let mut data = func.dfg.insts[self.inst];
        change(&mut func, fields(&mut data).swap_remove(at));
        func.dfg.insts[self.inst] = data;
        let what = format!("{what} of `{}`", self.func.dfg.display_inst(self.inst));
        self.mutants.push(Mutant { what, func });
    }

    /// All mutants of the field with this number.
    fn field(&mut self, at: usize) {
        /// The mutant in which a field of this kind is another one.
        macro_rules! put {
            ($kind:ident, $what:expr, $other:expr) => {
                self.edit(at, $what, |_, field| match field {
                    Field::$kind(place) => *place = $other,
                    _ => unreachable!("the same field"),
                })
            };
        }
        /// Mutates a field that refers to a table entry, which is made in the mutant.
        macro_rules! make {
            ($kind:ident, $what:expr, $make:expr) => {{
                let make = $make;
                self.edit(at, $what, |func, field| match field {
                    Field::$kind(place) => *place = make(func),
                    _ => unreachable!("the same field"),
                })
            }};
        }
        let func = self.func;
        let mut data = func.dfg.insts[self.inst];
        match fields(&mut data).swap_remove(at) {
            Field::Opcode(opcode) => {
                for &other in Opcode::all() {
                    if other != *opcode && other.format() == opcode.format() {
                        put!(Opcode, &format!("opcode {other} instead"), other);
                    }
                }
            }
            Field::Values(args) => self.operands(at, args),
            Field::List(list) => {
                for (what, args) in self.lists(list.as_slice(&func.dfg.value_lists)) {
                    make!(List, &what, |func: &mut Function| ValueList::from_slice(
                        &args,
                        &mut func.dfg.value_lists
                    ));
                }
            }
            Field::Flags(flags) => {
                for (what, flags) in other_flags(func.dfg.mem_flags[*flags]) {
                    make!(Flags, what, |func: &mut Function| {
                        func.dfg.mem_flags.insert(flags).expect("few flags")
                    });
                }
            }
            Field::Offset(offset) => {
                for bit in [0, 8, 31] {
                    put!(Offset, "offset", Offset32::new(i32::from(*offset) ^ 1 << bit));
                }
            }
            Field::Byte(imm) => {
                for bit in [0, 7] {
                    put!(Byte, "immediate", *imm ^ 1 << bit);
                }
            }
            Field::Word(imm) => {
                for bit in [0, 8, 31, 32, 63] {
                    put!(Word, "immediate", Imm64::new(imm.bits() ^ 1 << bit));
                }
            }
            Field::F16(imm) => {
                for bit in [0, 9, 15] {
                    put!(F16, "constant", Ieee16::with_bits(imm.bits() ^ 1 << bit));
                }
            }
            Field::F32(imm) => {
                for bit in [0, 22, 31] {
                    put!(F32, "constant", Ieee32::with_bits(imm.bits() ^ 1 << bit));
                }
            }
            Field::F64(imm) => {
                for bit in [0, 51, 63] {
                    put!(F64, "constant", Ieee64::with_bits(imm.bits() ^ 1 << bit));
                }
            }
            Field::TrapCode(code) => {
                let others = [TrapCode::INTEGER_OVERFLOW, TrapCode::unwrap_user(43)];
                for other in others.into_iter().filter(|other| other != code) {
                    put!(TrapCode, "trap code", other);
                }
            }
            Field::IntCondition(cond) => {
                for &other in IntCC::all().iter().filter(|&other| other != cond) {
                    put!(IntCondition, "condition", other);
                }
            }
            Field::FloatCondition(cond) => {
                for &other in FloatCC::all().iter().filter(|&other| other != cond) {
                    put!(FloatCondition, "condition", other);
                }
            }
            Field::Operator(op) => {
                for &other in AtomicRmwOp::all().iter().filter(|&other| other != op) {
                    put!(Operator, "operation", other);
                }
            }
            Field::Slot(slot) => {
                for other in func.sized_stack_slots.keys().filter(|other| other != slot) {
                    put!(Slot, "slot", other);
                }
            }
            Field::DynamicSlot(slot) => {
                for other in func.dynamic_stack_slots.keys().filter(|other| other != slot) {
                    put!(DynamicSlot, "slot", other);
                }
            }
            Field::Block(block) => {
                for other in self.other_blocks(*block) {
                    put!(Block, "block", other);
                }
            }
            Field::Target(call) => {
                for (what, target) in self.target_mutants(&Target::of(func, call)) {
                    make!(Target, &what, |func: &mut Function| target.build(func));
                }
            }
            Field::Targets(calls) => {
                let targets = calls.map(|call| Target::of(func, &call));
                for which in 0..2 {
                    for (what, target) in self.target_mutants(&targets[which]) {
                        make!(Targets, &what, |func: &mut Function| {
                            let mut calls = *calls;
                            calls[which] = target.build(func);
                            calls
                        });
                    }
                }
                if targets[0] != targets[1] {
                    put!(Targets, "exchanged targets", [calls[1], calls[0]]);
                }
            }
            Field::JumpTable(table) => {
                // The default target first, as Cranelift has it.
                let branches = func.dfg.jump_tables[*table].all_branches();
                let targets: Vec<Target> =
                    branches.iter().map(|call| Target::of(func, call)).collect();
                let mutants = list_mutants(&targets, |target| self.target_mutants(target));
                for (what, targets) in mutants.into_iter().filter(|(_, list)| !list.is_empty()) {
                    make!(JumpTable, &format!("jump table: {what}"), |func: &mut Function| {
                        let calls: Vec<BlockCall> =
                            targets.iter().map(|target| target.build(func)).collect();
                        func.dfg.jump_tables.push(JumpTableData::new(calls[0], &calls[1..]))
                    });
                }
            }
            Field::Handlers(table) => {
                for (what, build) in self.handlers(*table) {
                    make!(Handlers, &what, build);
                }
            }
            Field::Signature(sig) => {
                for (what, other) in signature_mutants(&func.dfg.signatures[*sig]) {
                    make!(Signature, &what, |func: &mut Function| func.import_signature(other));
                }
            }
            Field::Callee(callee) => {
                for (what, change) in callee_mutants(func, *callee) {
                    make!(Callee, &what, change);
                }
            }
            Field::Global(global) => {
                for (what, change) in global_mutants(func, *global) {
                    make!(Global, &what, change);
                }
            }
            Field::Mask(imm) => {
                for mask in other_bytes(&func.dfg.immediates[*imm]) {
                    make!(Mask, "mask", |func: &mut Function| func.dfg.immediates.push(mask));
                }
            }
            Field::Constant(constant) => {
                for data in other_bytes(func.dfg.constants.get(*constant)) {
                    make!(Constant, "constant", |func: &mut Function| {
                        func.dfg.constants.insert(data)
                    });
                }
            }
        }
    }

    /// Another value of the same type that is defined where the instruction is.
    fn rival(&self, value: Value) -> Option<Value> {
        let rival = rivals(self.func, (self.block, self.inst), value).first().copied();
        let inst = self.func.dfg.display_inst(self.inst);
        assert!(
            rival.is_some() || !self.complete,
            "formats.clif has no rival for {value} in {inst}"
        );
        rival
    }

    fn operands(&mut self, at: usize, args: &[Value]) {
        let mut others = Vec::new();
        for (at, &arg) in args.iter().enumerate() {
            others.extend(self.rival(arg).map(|rival| {
                let mut other = args.to_vec();
                other[at] = rival;
                (format!("operand {at}"), other)
            }));
        }
        let opcode = self.func.dfg.insts[self.inst].opcode();
        let ty = |at: usize| self.func.dfg.value_type(args[at]);
        for at in 1..args.len() {
            if order_matters(opcode) && args[at - 1] != args[at] && ty(at - 1) == ty(at) {
                let mut other = args.to_vec();
                other.swap(at - 1, at);
                others.push((format!("exchanged operands {} and {at}", at - 1), other));
            }
        }
        for (what, other) in others {
            self.edit(at, &what, |_, field| match field {
                Field::Values(args) => args.copy_from_slice(&other),
                _ => unreachable!("the same field"),
            });
        }
    }

    /// Other lists of arguments.
    fn lists(&self, args: &[Value]) -> Vec<(String, Vec<Value>)> {
        let mut others = Vec::new();
        for at in 0..args.len() {
            if let Some(rival) = self.rival(args[at]) {
                let mut other = args.to_vec();
                other[at] = rival;
                others.push((format!("argument {at}"), other));
            }
            let mut other = args.to_vec();
            other.remove(at);
            others.push((format!("removed argument {at}"), other));
            let mut other = args.to_vec();
            other.insert(at, args[at]);
            others.push((format!("repeated argument {at}"), other));
        }
        others
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

    /// Other exception tables.
    fn handlers(&self, table: ExceptionTable) -> Vec<(String, Change<ExceptionTable>)> {
        let func = self.func;
        let data = &func.dfg.exception_tables[table];
        let own = Handlers {
            signature: func.dfg.signatures[data.signature()].clone(),
            normal: Target::of(func, data.normal_return()),
            handlers: data.items().map(|item| Handler::of(func, &item)).collect(),
        };
        let mut others = Vec::new();
        for (what, signature) in signature_mutants(&own.signature) {
            others.push((what, Handlers { signature, ..own.clone() }));
        }
        for (what, normal) in self.target_mutants(&own.normal) {
            others.push((format!("return: {what}"), Handlers { normal, ..own.clone() }));
        }
        for (what, handlers) in list_mutants(&own.handlers, |handler| self.handler_mutants(handler))
        {
            others.push((format!("handler: {what}"), Handlers { handlers, ..own.clone() }));
        }
        let change = |(what, other): (String, Handlers)| -> (String, Change<ExceptionTable>) {
            (what, Box::new(move |func| other.build(func)))
        };
        others.into_iter().map(change).collect()
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
            let what = format!("type of result {at} of `{inst}`");
            self.mutants.push(Mutant { what, func });
        }
    }
}

/// The other values of the type of `value` that are known at an instruction: parameters of the
/// entry block, and what its own block has before it.
pub fn rivals(func: &Function, (block, inst): (Block, Inst), value: Value) -> Vec<Value> {
    let dfg = &func.dfg;
    let entry = func.layout.entry_block().expect("has a body");
    let mut rivals = dfg.block_params(entry).to_vec();
    if block != entry {
        rivals.extend(dfg.block_params(block));
    }
    for before in func.layout.block_insts(block).take_while(|&before| before != inst) {
        rivals.extend(dfg.inst_results(before));
    }
    let ty = dfg.value_type(value);
    rivals.retain(|&other| other != value && dfg.value_type(other) == ty);
    rivals
}

/// Changes of memory flags that are behaviour: trap code and byte order.
fn other_flags(old: MemFlagsData) -> Vec<(&'static str, MemFlagsData)> {
    let mut others = Vec::new();
    let user = |code| Some(TrapCode::unwrap_user(code));
    for code in [None, Some(TrapCode::HEAP_OUT_OF_BOUNDS), user(41), user(42)] {
        if code != old.trap_code() {
            others.push(("trap code", old.with_trap_code(code)));
        }
    }
    for endianness in [Endianness::Little, Endianness::Big] {
        if old.explicit_endianness() != Some(endianness) {
            // Built from scratch, because a byte order that was set cannot be removed.
            let new = MemFlagsData::new()
                .with_trap_code(old.trap_code())
                .with_alias_region(old.alias_region())
                .with_endianness(endianness);
            others.push(("byte order", new));
        }
    }
    others
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
