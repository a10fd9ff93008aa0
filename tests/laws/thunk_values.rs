//! Laws: what runs behind a thunk in raw bytes receives the extra arguments that the thunk is made
//! for.
//!
//! Bodies are compiled by Cranelift and compare each argument with the value that it should have,
//! as the back end computes it. Thunks and bodies run on this machine, and under an emulator for
//! aarch64.

use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AbiParam, ExtFuncData, ExternalName, Function, GlobalValueData, InstBuilder, MemFlagsData,
    Signature, Type, UserExternalName, UserExternalNameRef, UserFuncName, Value, types,
};
use cranelift_codegen::isa::CallConv;
use cranelift_mergefunc::thunk::{CallThunks, OptimizeFor, call_thunk};
use cranelift_mergefunc::{ExtraArgument, Target, cranelift_codegen, extended_signature};
use std::sync::Arc;
use testkit::differential::{Argument, End, Invocation};
use testkit::host::{Batch, Cpu, Level};
use testkit::isa;
use testkit::program::{Definition, Entry, Jump, MEMORY, Program};
use testkit::support::Rng;

/// Where one more bit or another form is needed, on one target or the other.
const EDGES: [i64; 46] = [
    0,
    1,
    2,
    -1,
    -2,
    127,
    128,
    129,
    -127,
    -128,
    -129,
    255,
    256,
    0xfff,
    0x1000,
    i16::MAX as i64,
    i16::MIN as i64,
    0xffff,
    0x1_0000,
    0xff80,
    0xff7f,
    0x1234_5678,
    0x00ff_f000,
    i32::MAX as i64,
    i32::MAX as i64 - 127,
    1 << 31,
    i32::MIN as i64,
    i32::MIN as i64 - 1,
    0xffff_fffe,
    0xffff_ff80,
    u32::MAX as i64,
    1 << 32,
    (1 << 32) + 1,
    0x1_2345_6789,
    0xff_00ff_00ff_00ff,
    0x0f0f_0f0f,
    0x0f0f_0f0f_0f0f_0f0f,
    0x5555_5555_5555_5555,
    0x3ffc_0000,
    0x0003_ffff_fffc_0000,
    0x7fff_ffff_ffff_f000,
    0x1234_5678_9abc_def0,
    -0x1234_5678_9abc_def0,
    i64::MAX,
    i64::MIN,
    i64::MIN + 1,
];

/// The types in which constants are passed.
const TYPES: [Type; 6] = [types::I8, types::I16, types::I32, types::I64, types::F32, types::F64];

/// The types in which addresses are passed.
const ADDRESSES: [Type; 2] = [types::I64, types::F64];

/// An argument, often like one of the others, or near it.
fn argument(rng: &mut Rng, others: &[ExtraArgument]) -> ExtraArgument {
    let constant = |ty: Type, bits: i64| ExtraArgument::Constant {
        ty,
        bits: bits as u64 & u64::MAX >> (64 - ty.bits()),
    };
    let ty = rng.choose(&TYPES);
    if !others.is_empty() && rng.one_in(2) {
        let by =
            rng.choose(&[0, 0, 1, -1, 127, 128, -128, -129, 4095, 4096, -4096, 0xfff000, 1 << 24]);
        return match &others[rng.below(others.len())] {
            ExtraArgument::Constant { bits, .. } => constant(ty, (*bits as i64).wrapping_add(by)),
            ExtraArgument::Address { ty: _, symbol, offset, colocated } => ExtraArgument::Address {
                ty: rng.choose(&ADDRESSES),
                symbol: symbol.clone(),
                offset: offset + by,
                colocated: *colocated,
            },
            ExtraArgument::Function { ty: _, symbol, signature, colocated } => {
                ExtraArgument::Function {
                    ty: rng.choose(&ADDRESSES),
                    symbol: symbol.clone(),
                    signature: signature.clone(),
                    colocated: *colocated,
                }
            }
        };
    }
    match rng.below(8) {
        0 => ExtraArgument::Address {
            ty: rng.choose(&ADDRESSES),
            symbol: UserExternalName::new(MEMORY, 0),
            offset: rng.below(4096) as i64,
            colocated: rng.but_one_in(4),
        },
        1 => ExtraArgument::Function {
            ty: rng.choose(&ADDRESSES),
            symbol: UserExternalName::new(0, 0),
            signature: Arc::new(Signature::new(CallConv::Fast)),
            colocated: true,
        },
        _ => constant(ty, rng.choose(&EDGES)),
    }
}

/// The caller's own argument.
fn passed(at: usize) -> i64 {
    0x0123_4567_89ab_cdef >> (4 * at)
}

/// Returns which of its parameters have another value than they should, one bit for each.
fn body(symbol: UserExternalName, own: &Signature, arguments: &[ExtraArgument]) -> Function {
    let signature = extended_signature(own, arguments);
    let mut func = Function::with_name_signature(UserFuncName::User(symbol), signature);
    let block = func.dfg.make_block();
    for at in 0..func.signature.params.len() {
        let ty = func.signature.params[at].value_type;
        func.dfg.append_block_param(block, ty);
    }
    let mut cursor = FuncCursor::new(&mut func);
    cursor.insert_block(block);
    let mut wrong = cursor.ins().iconst(types::I64, 0);
    for (at, value) in cursor.func.dfg.block_params(block).to_vec().into_iter().enumerate() {
        let passed_as = cursor.func.dfg.value_type(value);
        let value = match passed_as.is_int() {
            true => value,
            false => cursor.ins().bitcast(passed_as.as_int(), MemFlagsData::new(), value),
        };
        let expected = match at.checked_sub(own.params.len()) {
            None => cursor.ins().iconst(types::I64, passed(at)),
            Some(extra) => computed(&mut cursor, &arguments[extra]),
        };
        let differs = cursor.ins().icmp(IntCC::NotEqual, value, expected);
        let differs = cursor.ins().uextend(types::I64, differs);
        let bit = cursor.ins().ishl_imm_u(differs, at as i64);
        wrong = cursor.ins().bor(wrong, bit);
    }
    cursor.ins().return_(&[wrong]);
    func
}

/// An extra argument as an integer.
fn computed(cursor: &mut FuncCursor<'_>, argument: &ExtraArgument) -> Value {
    let mut name = |symbol: &UserExternalName| -> UserExternalNameRef {
        cursor.func.declare_imported_user_function(symbol.clone())
    };
    match argument {
        ExtraArgument::Constant { ty, bits } => cursor.ins().iconst(ty.as_int(), *bits as i64),
        ExtraArgument::Function { ty, symbol, signature, colocated } => {
            let name = ExternalName::user(name(symbol));
            let signature = cursor.func.import_signature(Signature::clone(signature));
            let (colocated, patchable) = (*colocated, false);
            let data = ExtFuncData { name, signature, colocated, patchable };
            let function = cursor.func.import_function(data);
            cursor.ins().func_addr(ty.as_int(), function)
        }
        ExtraArgument::Address { ty, symbol, offset, colocated } => {
            let name = ExternalName::user(name(symbol));
            let data = GlobalValueData::Symbol {
                name,
                offset: (*offset).into(),
                colocated: *colocated,
                tls: false,
            };
            let value = cursor.func.create_global_value(data);
            cursor.ins().symbol_value(ty.as_int(), value)
        }
    }
}

/// The thunks of one program.
#[derive(Default)]
struct Thunks {
    functions: Vec<(UserExternalName, Definition)>,
    invocations: Vec<Invocation>,
    what: Vec<String>,
}

impl Thunks {
    /// Adds a thunk for functions with these numbers of integer and floating-point parameters, if
    /// this target has one in raw bytes.
    fn add(
        &mut self,
        target: &Target,
        (convention, integers, floats): (CallConv, usize, usize),
        arguments: Vec<ExtraArgument>,
        optimize: OptimizeFor,
    ) {
        let symbol = |at: usize| UserExternalName::new(0, at as u32);
        let [to, thunk] = [0, 1].map(|at| symbol(self.functions.len() + at));
        let mut own = Signature::new(convention);
        own.params = vec![AbiParam::new(types::I64); integers];
        own.params.extend(vec![AbiParam::new(types::F64); floats]);
        own.returns.push(AbiParam::new(types::I64));
        let call_thunks = CallThunks { tail_calls: true, colocated: true };
        let name = UserFuncName::User(thunk.clone());
        let call = Box::new(call_thunk(name, &own, &arguments, &to, &call_thunks));
        let what = format!("{optimize:?}, {own}: {arguments:?}");
        let body = body(to.clone(), &own, &arguments);
        let jump = Jump { to: to.clone(), arguments, optimize, call };
        let Some(code) = jump.code(target) else {
            return;
        };
        self.what.push(format!("{what}: {:x?}", code.bytes));
        self.functions.push((to, Definition::Body(Box::new(body))));
        self.functions.push((thunk.clone(), Definition::Jump(jump)));
        self.invocations.push(Invocation {
            function: thunk.clone(),
            symbol: thunk,
            signature: own,
            arguments: (0..integers + floats)
                .map(|at| Argument::Bits(passed(at) as u128))
                .collect(),
            memory_seed: 1,
            fuel: 1,
        });
    }

    fn check(self, cpu: Cpu) {
        let Thunks { functions, invocations, what } = self;
        let entries: Vec<Entry> = Vec::new();
        let program = Program { functions, data: Vec::new(), entries };
        let mut batch = Batch::new(cpu);
        batch.add(Level::None, &program, &invocations).unwrap_or_else(|error| panic!("{error}"));
        let outcomes = batch.run().remove(0);
        assert_eq!(outcomes.len(), what.len());
        for (outcome, what) in outcomes.iter().zip(what) {
            assert_eq!(outcome.end, End::Returned(vec![0]), "{what}");
        }
    }
}

fn run(cpu: Cpu, name: &str) {
    const CONVENTIONS: [CallConv; 3] = [CallConv::SystemV, CallConv::Fast, CallConv::Tail];
    let target = Target::of(&*isa::of(name, &[("is_pic", "false")]));
    let mut thunks = Thunks::default();
    // Each value in each register.
    for ty in TYPES {
        for (number, edge) in EDGES.iter().enumerate() {
            let bits = *edge as u64 & u64::MAX >> (64 - ty.bits());
            let constant = ExtraArgument::Constant { ty, bits };
            for optimize in [OptimizeFor::Speed, OptimizeFor::Size] {
                let shape = (CONVENTIONS[number % 3], number % 8, number % 9);
                thunks.add(&target, shape, vec![constant.clone()], optimize);
                for before in 0..8 {
                    let shape = (CallConv::Fast, before, before);
                    thunks.add(&target, shape, vec![constant.clone()], optimize);
                }
            }
        }
    }
    let alone = thunks.what.len();
    assert!(alone > 2000, "{alone}");
    thunks.check(cpu);
    // Several at once.
    let mut thunks = Thunks::default();
    let mut rng = Rng::new(7);
    while thunks.what.len() < 3000 {
        let shape = (rng.choose(&CONVENTIONS), rng.below(5), rng.below(5));
        let mut arguments = Vec::new();
        for _ in 0..2 + rng.below(7 - shape.1) {
            arguments.push(argument(&mut rng, &arguments));
        }
        let optimize = rng.choose(&[OptimizeFor::Speed, OptimizeFor::Size]);
        thunks.add(&target, shape, arguments, optimize);
    }
    thunks.check(cpu);
}

#[test]
fn bodies_receive_what_thunks_pass() {
    run(Cpu::Native, isa::HOST);
}

#[test]
fn bodies_receive_what_thunks_pass_on_aarch64() {
    run(Cpu::Aarch64, "aarch64");
}
