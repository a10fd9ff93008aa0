//! How each opcode is generated, and which operations a back end can compile.
//!
//! An [`Operation`] is an opcode with the types that settle those of its operands and results. All
//! operations that the IR allows over [`TYPES`] follow from Cranelift's own constraints; which of
//! them a back end compiles is written down in `x86_64.txt` and `aarch64.txt`, because finding it
//! out takes seconds. A test compiles every operation and compares.
//!
//! This module draws nothing: `function` does.

use crate::isa::{ANY_INSTRUCTION, built};
use crate::support::Rng;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::immediates::{Ieee16, Ieee32, Ieee64, Imm64, Offset32};
use cranelift_codegen::ir::instructions::{InstructionFormat, ResolvedConstraint};
use cranelift_codegen::ir::{
    AbiParam, AtomicRmwOp, Block, ConstantData, Endianness, Function, Inst, InstructionData,
    MemFlagsData, Opcode, Signature, TrapCode, Type, UserFuncName, Value, ValueList, types,
};
use cranelift_codegen::isa::{self, CallConv, OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::Configurable;
use cranelift_codegen::{Context, verify_function};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// The types over which operations are drawn, scalars first. Vectors of other sizes are compiled by
/// some back ends to what a whole vector is compiled to, and Cranelift's optimiser panics at many
/// of their operations; it does at those of vectors of `f16`.
pub const TYPES: [Type; 15] = [
    types::I8,
    types::I16,
    types::I32,
    types::I64,
    types::I128,
    types::F16,
    types::F32,
    types::F64,
    types::F128,
    types::I8X16,
    types::I16X8,
    types::I32X4,
    types::I64X2,
    types::F32X4,
    types::F64X2,
];

/// How an opcode gets into a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From values to values, with immediates and nothing else.
    Value,
    /// A constant of some type.
    Constant,
    /// A load or a store, atomic or not.
    Memory,
    /// For its effect, which is none that can be observed.
    Effect,
    /// An address, which is only called or accessed.
    Address,
    /// A call that returns to the next instruction.
    Call,
    /// The end of a block.
    Terminator,
    /// An explicit trap on a condition.
    Trap,
    /// Not in a function that is meant to run.
    Static(&'static str),
    /// Never.
    Never(&'static str),
}

/// How `opcode` gets into a function. Exhaustive, so that a new opcode is a compile error.
pub fn way(opcode: Opcode) -> Way {
    use Opcode::*;
    match opcode {
        Jump | Brif | BrTable | Trap | Return | ReturnCall | ReturnCallIndirect | TryCall
        | TryCallIndirect => Way::Terminator,
        Trapz | Trapnz => Way::Trap,
        Call | CallIndirect => Way::Call,
        FuncAddr | SymbolValue | StackAddr => Way::Address,
        GetPinnedReg
        | GetFramePointer
        | GetStackPointer
        | GetReturnAddress
        | SetPinnedReg
        | GetExceptionHandlerAddress
        | Nop
        | Fence
        | SequencePoint => Way::Effect,
        Iconst | F16const | F32const | F64const | F128const | Vconst => Way::Constant,
        Load | Store | Uload8 | Sload8 | Istore8 | Uload16 | Sload16 | Istore16 | Uload32
        | Sload32 | Istore32 | Uload8x8 | Sload8x8 | Uload16x4 | Sload16x4 | Uload32x2
        | Sload32x2 | AtomicRmw | AtomicCas | AtomicLoad | AtomicStore => Way::Memory,
        Debugtrap => Way::Static("stops the process for a debugger"),
        TlsValue => Way::Static("needs a TLS model, and a linker that knows it"),
        StackSwitch => Way::Never("needs a second stack, and a setting that says how"),
        DynamicStackAddr | ExtractVector => Way::Never("there are no dynamic vectors"),
        Splat | Swizzle | X86Pshufb | Insertlane | Extractlane | Smin | Umin | Smax | Umax
        | AvgRound | UaddSat | SaddSat | UsubSat | SsubSat | Shuffle | Select
        | SelectSpectreGuard | Bitselect | Blendv | VanyTrue | VallTrue | VhighBits | Icmp
        | Iadd | Isub | Ineg | Iabs | Imul | Umulhi | Smulhi | SqmulRoundSat | X86Pmulhrsw
        | Udiv | Sdiv | Urem | Srem | SaddOverflowCin | UaddOverflowCin | UaddOverflow
        | SaddOverflow | UsubOverflow | SsubOverflow | UmulOverflow | SmulOverflow
        | UaddOverflowTrap | SsubOverflowBin | UsubOverflowBin | Band | Bor | Bxor | Bnot
        | Rotl | Rotr | Ishl | Ushr | Sshr | Bitrev | Clz | Cls | Ctz | Bswap | Popcnt | Fcmp
        | Fadd | Fsub | Fmul | Fdiv | Sqrt | Fma | Fneg | Fabs | Fcopysign | Fmin | Fmax | Ceil
        | Floor | Trunc | Nearest | Bitcast | ScalarToVector | Bmask | Ireduce | Snarrow
        | Unarrow | Uunarrow | SwidenLow | SwidenHigh | UwidenLow | UwidenHigh | IaddPairwise
        | X86Pmaddubsw | Uextend | Sextend | Fpromote | Fdemote | Fvdemote | FvpromoteLow
        | FcvtToUint | FcvtToSint | FcvtToUintSat | FcvtToSintSat | X86Cvtt2dq | FcvtFromUint
        | FcvtFromSint | Isplit | Iconcat => Way::Value,
    }
}

/// A back end that functions are drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Machine {
    /// x86-64 with nothing but what every processor has.
    X86_64,
    /// x86-64 with AVX2 and what came before it.
    X86_64V3,
    /// aarch64 with nothing but what every processor has.
    Aarch64,
}

impl Machine {
    /// All of them.
    pub const ALL: [Machine; 3] = [Machine::X86_64, Machine::X86_64V3, Machine::Aarch64];

    /// The machine of [`support::any_isa`](crate::support::any_isa), whose code runs on
    /// every host.
    pub fn host() -> Machine {
        if cfg!(target_arch = "aarch64") { Machine::Aarch64 } else { Machine::X86_64 }
    }

    /// Whether it is an x86-64.
    pub fn is_x86(self) -> bool {
        matches!(self, Machine::X86_64 | Machine::X86_64V3)
    }

    /// An ISA for it, with every setting that some instruction asks for.
    ///
    /// # Panics
    ///
    /// If `cranelift-codegen` was built without the back end.
    pub fn isa(self, opt_level: &str) -> OwnedTargetIsa {
        let (name, features): (&str, &[&str]) = match self {
            Machine::X86_64 => ("x86_64", &[]),
            Machine::X86_64V3 => ("x86_64", &X86_64_V3),
            Machine::Aarch64 => ("aarch64", &[]),
        };
        let mut builder = isa::lookup_by_name(name).expect("a back end for the machine");
        for feature in features {
            builder.enable(feature).expect("a feature of the machine");
        }
        built(builder, &[&ANY_INSTRUCTION[..], &[("opt_level", opt_level)]].concat())
    }

    /// An ISA for the verifier, made once.
    ///
    /// # Panics
    ///
    /// If `cranelift-codegen` was built without the back end.
    pub fn verifier(self) -> &'static dyn TargetIsa {
        static ISAS: [OnceLock<OwnedTargetIsa>; 3] = [const { OnceLock::new() }; 3];
        &**ISAS[self as usize].get_or_init(|| self.isa("speed"))
    }

    /// The operations that it can compile.
    pub fn operations(self) -> &'static Operations {
        static TABLES: [OnceLock<Operations>; 3] = [const { OnceLock::new() }; 3];
        TABLES[self as usize].get_or_init(|| Operations::parse(self.table()))
    }

    fn table(self) -> &'static str {
        match self {
            Machine::X86_64 => include_str!("x86_64.txt"),
            Machine::X86_64V3 => include_str!("x86_64_v3.txt"),
            Machine::Aarch64 => include_str!("aarch64.txt"),
        }
    }
}

const X86_64_V3: [&str; 11] = [
    "has_sse3",
    "has_ssse3",
    "has_sse41",
    "has_sse42",
    "has_popcnt",
    "has_avx",
    "has_avx2",
    "has_fma",
    "has_bmi1",
    "has_bmi2",
    "has_lzcnt",
];

/// An opcode, and the types that settle all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// The opcode.
    pub opcode: Opcode,
    /// The controlling type; invalid where there is none.
    pub ctrl: Type,
    /// The type of the operand that the controlling type leaves open; invalid where there is none.
    pub free: Type,
}

impl Operation {
    /// The operation of an instruction, if it is one of those that are drawn as such.
    pub fn of(func: &Function, inst: Inst) -> Option<Operation> {
        let opcode = func.dfg.insts[inst].opcode();
        if !matches!(way(opcode), Way::Value | Way::Constant | Way::Memory) {
            return None;
        }
        let constraints = opcode.constraints();
        let args = func.dfg.inst_args(inst);
        // The verifier has not seen it yet.
        if args.len() != constraints.num_fixed_value_arguments() {
            return None;
        }
        let ctrl = func.dfg.ctrl_typevar(inst);
        let is_free = |at: &usize| {
            matches!(constraints.value_argument_constraint(*at, ctrl), ResolvedConstraint::Free(_))
        };
        let free = (0..args.len()).find(is_free);
        let free = free.map_or(types::INVALID, |at| func.dfg.value_type(args[at]));
        Some(Operation { opcode, ctrl, free })
    }

    /// The types of the operands.
    pub fn operands(&self) -> Vec<Type> {
        let constraints = self.opcode.constraints();
        let count = constraints.num_fixed_value_arguments();
        let operand = |at| match constraints.value_argument_constraint(at, self.ctrl) {
            ResolvedConstraint::Bound(ty) => ty,
            ResolvedConstraint::Free(_) => self.free,
        };
        (0..count).map(operand).collect()
    }

    /// The types of the results.
    pub fn results(&self) -> Vec<Type> {
        let constraints = self.opcode.constraints();
        (0..constraints.num_fixed_results())
            .map(|at| constraints.result_type(at, self.ctrl))
            .collect()
    }

    /// The number of bytes that it reads or writes in memory.
    pub fn access_bytes(&self) -> u32 {
        use Opcode::*;
        match self.opcode {
            Uload8 | Sload8 | Istore8 => 1,
            Uload16 | Sload16 | Istore16 => 2,
            Uload32 | Sload32 | Istore32 => 4,
            Uload8x8 | Sload8x8 | Uload16x4 | Sload16x4 | Uload32x2 | Sload32x2 => 8,
            _ => self.ctrl.bytes(),
        }
    }

    fn name(ty: Type) -> String {
        if ty.is_invalid() { "-".into() } else { ty.to_string() }
    }
}

/// Every operation that the IR allows over [`TYPES`], of the ways in which one instruction is all
/// there is to it. Addresses are 64 bits wide.
pub fn all_operations() -> Vec<Operation> {
    let mut all = Vec::new();
    for &opcode in Opcode::all() {
        if !matches!(way(opcode), Way::Value | Way::Constant | Way::Memory) {
            continue;
        }
        let constraints = opcode.constraints();
        let ctrls = match constraints.ctrl_typeset() {
            None => vec![types::INVALID],
            Some(set) => TYPES.into_iter().filter(|&ty| set.contains(ty)).collect(),
        };
        for ctrl in ctrls {
            let free =
                (0..constraints.num_fixed_value_arguments()).find_map(|at| {
                    match constraints.value_argument_constraint(at, ctrl) {
                        ResolvedConstraint::Bound(_) => None,
                        ResolvedConstraint::Free(set) => Some(set),
                    }
                });
            let frees = match free {
                None => vec![types::INVALID],
                Some(_) if way(opcode) == Way::Memory => vec![types::I64],
                Some(set) => TYPES.into_iter().filter(|&ty| set.contains(ty)).collect(),
            };
            let memory = way(opcode) == Way::Memory;
            for free in frees {
                let operation = Operation { opcode, ctrl, free };
                let known = |ty: &Type| TYPES.contains(ty);
                if !operation.operands().iter().all(known)
                    || !operation.results().iter().all(known)
                    || memory && !operation.operands().contains(&types::I64)
                    || !is_meant(&operation)
                {
                    continue;
                }
                all.push(operation);
            }
        }
    }
    all
}

/// Whether the operation has a meaning. The verifier accepts more, and what it accepts is compiled
/// to something.
fn is_meant(operation: &Operation) -> bool {
    use Opcode::*;
    let Operation { opcode, ctrl, free } = *operation;
    match opcode {
        Bitcast => ctrl.bits() == free.bits(),
        // Cranelift's optimiser panics at `x ^ x` of these types.
        Band | Bor | Bxor | Bnot => !matches!(ctrl, types::F16 | types::F128),
        VhighBits => ctrl.bits() >= free.lane_count(),
        FcvtToUint | FcvtToSint | FcvtToUintSat | FcvtToSintSat | X86Cvtt2dq | FcvtFromUint
        | FcvtFromSint => {
            let wide = |ty: Type| !ty.is_vector() || ty.lane_bits() == ctrl.lane_bits();
            ctrl.lane_count() == free.lane_count() && wide(free)
        }
        _ => true,
    }
}

/// The operations that a back end can compile.
#[derive(Debug)]
pub struct Operations {
    /// By opcode, in the order of opcodes.
    by_opcode: Vec<(Opcode, Vec<Operation>)>,
}

impl Operations {
    /// One opcode to a line: its name, and the types that settle its operations, `ctrl` or
    /// `ctrl/free`.
    fn parse(text: &str) -> Operations {
        let types: BTreeMap<String, Type> = TYPES.iter().map(|&ty| (ty.to_string(), ty)).collect();
        let ty = |name: &str| if name == "-" { types::INVALID } else { types[name] };
        let opcodes: BTreeMap<String, Opcode> =
            Opcode::all().iter().map(|&opcode| (opcode.to_string(), opcode)).collect();
        let mut by_opcode = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            let opcode = opcodes[words.next().expect("an opcode")];
            let operation = |word: &str| {
                let (ctrl, free) = word.split_once('/').unwrap_or((word, "-"));
                Operation { opcode, ctrl: ty(ctrl), free: ty(free) }
            };
            by_opcode.push((opcode, words.map(operation).collect()));
        }
        Operations { by_opcode }
    }

    /// The text that `parse` reads.
    fn print(operations: &[Operation], what: &str) -> String {
        let mut text =
            format!("# Operations that Cranelift compiles for {what}. Made by a test.\n");
        for same in operations.chunk_by(|a, b| a.opcode == b.opcode) {
            write!(text, "{}", same[0].opcode).expect("memory");
            for operation in same {
                write!(text, " {}", Operation::name(operation.ctrl)).expect("memory");
                if !operation.free.is_invalid() {
                    write!(text, "/{}", Operation::name(operation.free)).expect("memory");
                }
            }
            text.push('\n');
        }
        text
    }

    /// The opcodes that have operations, with them.
    pub fn by_opcode(&self) -> &[(Opcode, Vec<Operation>)] {
        &self.by_opcode
    }

    /// Whether the back end can compile it.
    pub fn contains(&self, operation: &Operation) -> bool {
        let at = self.by_opcode.iter().find(|(opcode, _)| *opcode == operation.opcode);
        at.is_some_and(|(_, operations)| operations.contains(operation))
    }
}

/// Immediates of one instruction; it takes those of its format.
#[derive(Clone, Copy, Debug)]
pub struct Immediates {
    /// Condition of an integer comparison.
    pub int_cc: IntCC,
    /// Condition of a float comparison.
    pub float_cc: FloatCC,
    /// Operation of an `atomic_rmw`.
    pub rmw: AtomicRmwOp,
    /// Trap code of an addition.
    pub code: TrapCode,
    /// Lane, taken modulo the number of lanes.
    pub lane: u8,
    /// Flags and offset of a memory access.
    pub flags: MemFlagsData,
    /// Offset of a memory access.
    pub offset: i32,
    /// Any bits: of a constant, a mask.
    pub bits: u128,
}

impl Default for Immediates {
    fn default() -> Self {
        Immediates {
            int_cc: IntCC::Equal,
            float_cc: FloatCC::Equal,
            rmw: AtomicRmwOp::Add,
            code: TrapCode::INTEGER_OVERFLOW,
            lane: 0,
            flags: MemFlagsData::new(),
            offset: 0,
            bits: 0,
        }
    }
}

/// Appends an operation to a block.
pub fn append(
    func: &mut Function,
    block: Block,
    operation: Operation,
    args: &[Value],
    immediates: &Immediates,
) -> Inst {
    use InstructionData as I;
    let Operation { opcode, ctrl, free } = operation;
    let dfg = &mut func.dfg;
    let Immediates { int_cc, float_cc, rmw, code, lane, mut flags, offset, bits } = *immediates;
    if opcode == Opcode::Bitcast {
        // Needed exactly where lanes are regrouped.
        let regroups = ctrl.lane_count() != free.lane_count();
        flags = MemFlagsData::new();
        if regroups {
            flags.set_endianness(Endianness::Little);
        }
    }
    let flags = dfg.mem_flags.insert(flags).expect("few flags");
    let offset = Offset32::new(offset);
    let data = match opcode.format() {
        InstructionFormat::NullAry => I::NullAry { opcode },
        InstructionFormat::Unary => I::Unary { opcode, arg: args[0] },
        InstructionFormat::Binary => I::Binary { opcode, args: [args[0], args[1]] },
        InstructionFormat::Ternary => I::Ternary { opcode, args: [args[0], args[1], args[2]] },
        InstructionFormat::BinaryImm8 => {
            I::BinaryImm8 { opcode, arg: args[0], imm: lane % ctrl.lane_count() as u8 }
        }
        InstructionFormat::TernaryImm8 => {
            let imm = lane % ctrl.lane_count() as u8;
            I::TernaryImm8 { opcode, args: [args[0], args[1]], imm }
        }
        InstructionFormat::IntCompare => {
            I::IntCompare { opcode, args: [args[0], args[1]], cond: int_cc }
        }
        InstructionFormat::FloatCompare => {
            I::FloatCompare { opcode, args: [args[0], args[1]], cond: float_cc }
        }
        InstructionFormat::IntAddTrap => I::IntAddTrap { opcode, args: [args[0], args[1]], code },
        InstructionFormat::Shuffle => {
            let mask: Vec<u8> = bits.to_le_bytes().iter().map(|byte| byte % 32).collect();
            let imm = dfg.immediates.push(ConstantData::from(mask));
            I::Shuffle { opcode, args: [args[0], args[1]], imm }
        }
        InstructionFormat::UnaryImm => {
            let imm = Imm64::new((bits as u64 & (u64::MAX >> (64 - ctrl.bits()))) as i64);
            I::UnaryImm { opcode, imm }
        }
        InstructionFormat::UnaryIeee16 => {
            I::UnaryIeee16 { opcode, imm: Ieee16::with_bits(bits as u16) }
        }
        InstructionFormat::UnaryIeee32 => {
            I::UnaryIeee32 { opcode, imm: Ieee32::with_bits(bits as u32) }
        }
        InstructionFormat::UnaryIeee64 => {
            I::UnaryIeee64 { opcode, imm: Ieee64::with_bits(bits as u64) }
        }
        InstructionFormat::UnaryConst => {
            let bytes = if opcode == Opcode::F128const { 16 } else { ctrl.bytes() as usize };
            let mut data = bits.to_le_bytes().to_vec();
            data.resize(bytes, 0x5a);
            let constant_handle = dfg.constants.insert(ConstantData::from(data));
            I::UnaryConst { opcode, constant_handle }
        }
        InstructionFormat::Load => I::Load { opcode, arg: args[0], flags, offset },
        InstructionFormat::LoadNoOffset => I::LoadNoOffset { opcode, arg: args[0], flags },
        InstructionFormat::Store => I::Store { opcode, args: [args[0], args[1]], flags, offset },
        InstructionFormat::StoreNoOffset => {
            I::StoreNoOffset { opcode, args: [args[0], args[1]], flags }
        }
        InstructionFormat::AtomicRmw => {
            I::AtomicRmw { opcode, args: [args[0], args[1]], flags, op: rmw }
        }
        InstructionFormat::AtomicCas => {
            I::AtomicCas { opcode, args: [args[0], args[1], args[2]], flags }
        }
        other => panic!("{opcode}: {other:?} is no format of an operation"),
    };
    let inst = dfg.make_inst(data);
    dfg.make_inst_results(inst, ctrl);
    func.layout.append_inst(inst, block);
    inst
}

/// Immediates that together show everything that a back end may not know of `opcode`.
fn probes(opcode: Opcode) -> Vec<Immediates> {
    let mut rng = Rng::new(1);
    let bits = u128::from(rng.word()) << 64 | u128::from(rng.word());
    let plain = Immediates { bits, ..Immediates::default() };
    match opcode.format() {
        InstructionFormat::IntCompare => {
            IntCC::all().iter().map(|&int_cc| Immediates { int_cc, ..plain }).collect()
        }
        InstructionFormat::FloatCompare => {
            FloatCC::all().iter().map(|&float_cc| Immediates { float_cc, ..plain }).collect()
        }
        InstructionFormat::AtomicRmw => {
            AtomicRmwOp::all().iter().map(|&rmw| Immediates { rmw, ..plain }).collect()
        }
        InstructionFormat::BinaryImm8 | InstructionFormat::TernaryImm8 => {
            [0, 1, 15].map(|lane| Immediates { lane, ..plain }).to_vec()
        }
        InstructionFormat::UnaryImm
        | InstructionFormat::UnaryIeee16
        | InstructionFormat::UnaryIeee32
        | InstructionFormat::UnaryIeee64
        | InstructionFormat::UnaryConst => {
            [bits, 0, 1].map(|bits| Immediates { bits, ..plain }).to_vec()
        }
        _ => vec![plain],
    }
}

/// A function that takes the operands and returns the results of one instruction.
fn probe(operation: Operation, immediates: &Immediates) -> Function {
    let mut signature = Signature::new(CallConv::Tail);
    signature.params.extend(operation.operands().into_iter().map(AbiParam::new));
    signature.returns.extend(operation.results().into_iter().map(AbiParam::new));
    let mut func = Function::with_name_signature(UserFuncName::user(0, 0), signature);
    let block = func.dfg.make_block();
    func.layout.append_block(block);
    for ty in operation.operands() {
        func.dfg.append_block_param(block, ty);
    }
    let params = func.dfg.block_params(block).to_vec();
    let inst = append(&mut func, block, operation, &params, immediates);
    let results = func.dfg.inst_results(inst).to_vec();
    let args = ValueList::from_slice(&results, &mut func.dfg.value_lists);
    let end = func.dfg.make_inst(InstructionData::MultiAry { opcode: Opcode::Return, args });
    func.layout.append_inst(end, block);
    func
}

/// Whether the verifier accepts and the back end compiles the operation with all its immediates.
fn compiles(operation: Operation, isa: &dyn TargetIsa) -> bool {
    probes(operation.opcode).iter().all(|immediates| {
        let func = probe(operation, immediates);
        // Back ends panic at some of what they cannot do.
        let compile = || Context::for_function(func).compile(isa, &mut Default::default()).is_ok();
        verify_function(&probe(operation, immediates), isa).is_ok()
            && catch_unwind(AssertUnwindSafe(compile)).unwrap_or(false)
    })
}

/// The table of a machine, found out by compiling every operation on its own. Takes seconds, and
/// back ends panic on the way.
pub fn regenerate(machine: Machine) -> String {
    let isa = machine.isa("none");
    let mut all = all_operations();
    all.retain(|operation| compiles(*operation, &*isa));
    Operations::print(&all, &format!("{machine:?}"))
}

/// The table of a machine as it is used.
pub fn recorded(machine: Machine) -> &'static str {
    machine.table()
}
