//! Laws: a thunk in raw bytes puts the extra arguments where Cranelift's code reads them.
//!
//! The registers are written down twice, in `src/target/registers.rs` and in Cranelift. Cranelift's
//! choice is found by compiling, for one parameter after the other, a function that only moves it
//! to the pinned register; that of the thunk is found by performing its instructions one by one
//! (`thunk_machine`).

use crate::support::random;
use crate::thunk_machine::{Held, performed_on_aarch64, performed_on_x86_64, word};
use arbitrary::{Result, Unstructured};
use cranelift_codegen::Context;
use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::{
    AbiParam, ArgumentExtension, ArgumentPurpose, Function, InstBuilder, Signature, TrapCode, Type,
    UserExternalName, UserFuncName, types,
};
use cranelift_codegen::isa::{self, CallConv, OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable, Flags};
use cranelift_mergefunc::thunk::{OptimizeFor, ThunkCode, ThunkReloc};
use cranelift_mergefunc::{ExtraArgument, Target, cranelift_codegen, extended_signature};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use testkit::thunks::thunk;

const CONVENTIONS: [CallConv; 7] = [
    CallConv::Fast,
    CallConv::Tail,
    CallConv::SystemV,
    CallConv::WindowsFastcall,
    CallConv::AppleAarch64,
    CallConv::Winch,
    CallConv::PreserveAll,
];

/// The registers of x86-64 by their numbers in code.
const X86_64_NAMES: [[&str; 4]; 16] = [
    ["rax", "eax", "ax", "al"],
    ["rcx", "ecx", "cx", "cl"],
    ["rdx", "edx", "dx", "dl"],
    ["rbx", "ebx", "bx", "bl"],
    ["rsp", "esp", "sp", "spl"],
    ["rbp", "ebp", "bp", "bpl"],
    ["rsi", "esi", "si", "sil"],
    ["rdi", "edi", "di", "dil"],
    ["r8", "r8d", "r8w", "r8b"],
    ["r9", "r9d", "r9w", "r9b"],
    ["r10", "r10d", "r10w", "r10b"],
    ["r11", "r11d", "r11w", "r11b"],
    ["r12", "r12d", "r12w", "r12b"],
    ["r13", "r13d", "r13w", "r13b"],
    ["r14", "r14d", "r14w", "r14b"],
    ["r15", "r15d", "r15w", "r15b"],
];

fn isa(name: &str) -> OwnedTargetIsa {
    isa_with(name, false)
}

fn isa_with(name: &str, pic: bool) -> OwnedTargetIsa {
    let mut flags = settings::builder();
    flags.set("opt_level", "none").unwrap();
    flags.set("is_pic", if pic { "true" } else { "false" }).unwrap();
    let more = ["enable_pinned_reg", "preserve_frame_pointers", "enable_llvm_abi_extensions"];
    for name in more {
        flags.enable(name).unwrap();
    }
    isa::lookup_by_name(name).unwrap().finish(Flags::new(flags)).unwrap()
}

/// Where a function finds one of its parameters, an integer of up to 64 bits. `None` if Cranelift
/// does not compile such a function.
fn place(isa: &dyn TargetIsa, signature: &Signature, parameter: usize) -> Option<Place> {
    let mut func = Function::with_name_signature(UserFuncName::default(), signature.clone());
    let entry = func.dfg.make_block();
    for param in &signature.params {
        func.dfg.append_block_param(entry, param.value_type);
    }
    func.layout.append_block(entry);
    let mut cursor = FuncCursor::new(&mut func).at_bottom(entry);
    let mut value = cursor.func.dfg.block_params(entry)[parameter];
    if cursor.func.dfg.value_type(value) != types::I64 {
        value = cursor.ins().uextend(types::I64, value);
    }
    cursor.ins().set_pinned_reg(value);
    cursor.ins().trap(TrapCode::unwrap_user(1));
    let text = catch_unwind(AssertUnwindSafe(|| {
        let mut context = Context::for_function(func);
        context.want_disasm = true;
        let code = context.compile(isa, &mut ControlPlane::default()).ok()?;
        Some(code.vcode.clone().expect("was wanted"))
    }));
    let text = text.ok().flatten()?;
    // The value that is moved to the pinned register may have been moved before.
    let mut at = Place::Register(if isa.name() == "x64" { 15 } else { 21 });
    for line in text.lines().rev() {
        if let Some((to, from)) = moved(isa, line)
            && to == at
        {
            at = from;
        }
    }
    let unmoved = [Place::Register(15), Place::Register(21)];
    assert!(!unmoved.contains(&at), "nothing moves to the pinned register:\n{text}");
    Some(at)
}

/// Where a value is: in a register, by its number in code, or elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Register(u32),
    Memory(String),
}

/// Where an instruction that moves or extends moves something to, and from where.
fn moved(isa: &dyn TargetIsa, line: &str) -> Option<(Place, Place)> {
    let (_, operands) = line.trim().split_once(' ')?;
    let place = |operand: &str| {
        let number = match operand.strip_prefix('%') {
            Some(name) => X86_64_NAMES.iter().position(|names| names.contains(&name)),
            None => operand.strip_prefix(['x', 'w']).and_then(|number| number.parse().ok()),
        };
        match number {
            Some(number) => Place::Register(number as u32),
            None => Place::Memory(operand.to_owned()),
        }
    };
    match isa.name() {
        "x64" => operands.trim().rsplit_once(", ").map(|(from, to)| (place(to), place(from))),
        _ => {
            let (to, from) = operands.split_once(", ")?;
            // `ubfx x0, x1, #0, #8` extends.
            let from = if from.starts_with('[') { from } else { from.split(", ").next()? };
            Some((place(to), place(from)))
        }
    }
}

fn parameter(u: &mut Unstructured<'_>, simple: bool) -> Result<AbiParam> {
    const SIMPLE: [Type; 9] = [
        types::I8,
        types::I16,
        types::I32,
        types::I64,
        types::I64,
        types::I64,
        types::F32,
        types::F64,
        types::I8X16,
    ];
    const OTHER: [Type; 5] = [types::I128, types::F16, types::F128, types::I8X8, types::F64X2];
    let other = !simple && u.ratio(1, 6)?;
    let ty = if other { *u.choose(&OTHER)? } else { *u.choose(&SIMPLE)? };
    let param = AbiParam::new(ty);
    if !matches!(ty, types::I8 | types::I16 | types::I32) {
        return Ok(param);
    }
    Ok(match u.int_in_range(0..=2)? {
        0 => param,
        1 => param.uext(),
        _ => param.sext(),
    })
}

/// A signature. If it is simple, every parameter takes one register or one place on the stack.
fn signature(u: &mut Unstructured<'_>, simple: bool) -> Result<Signature> {
    let mut signature = Signature::new(*u.choose(&CONVENTIONS)?);
    // More floats than there are registers for them leave integer registers.
    let (many, floats) = (u.ratio(1, 6)?, u.ratio(1, 6)?);
    for _ in 0..u.int_in_range(0..=if many { 40 } else { 7 })? {
        let param = if floats && u.ratio(7, 8)? {
            AbiParam::new(types::F64)
        } else {
            parameter(u, simple)?
        };
        signature.params.push(param);
    }
    for (purpose, ratio) in [
        (ArgumentPurpose::VMContext, 4),
        (ArgumentPurpose::StructReturn, 4),
        (ArgumentPurpose::StructArgument(24), if simple { 0 } else { 8 }),
    ] {
        if ratio != 0 && u.ratio(1, ratio)? {
            let at = u.int_in_range(0..=signature.params.len())?;
            signature.params.insert(at, AbiParam::special(types::I64, purpose));
        }
    }
    for _ in 0..u.int_in_range(0..=if simple { 2 } else { 4 })? {
        signature.returns.push(parameter(u, simple)?);
    }
    Ok(signature)
}

fn argument(u: &mut Unstructured<'_>, others: &[ExtraArgument]) -> Result<ExtraArgument> {
    // Often like one of the others, or near it.
    if !others.is_empty() && u.ratio(1, 2)? {
        let mut near = u.choose(others)?.clone();
        let by: i64 = match u.int_in_range(0..=3)? {
            0 => 0,
            1 => u.int_in_range(-130..=130)?,
            2 => u.int_in_range(-0x1001..=0x1001)?,
            _ => i64::from(u.int_in_range(-0x1001..=0x1001)?) << 12,
        };
        match &mut near {
            ExtraArgument::Constant { ty, bits } => {
                *ty = *u.choose(&[*ty, *ty, types::I8, types::I16, types::I32, types::I64])?;
                *bits = bits.wrapping_add_signed(by) & u64::MAX >> (64 - ty.bits());
            }
            ExtraArgument::Address { offset, .. } => *offset = offset.wrapping_add(by),
            ExtraArgument::Function { .. } => {}
        }
        return Ok(near);
    }
    let symbol = UserExternalName::new(1, others.len() as u32);
    let ty = types::I64;
    Ok(match u.int_in_range(0..=5)? {
        0 => {
            let signature = Arc::new(Signature::new(CallConv::Fast));
            ExtraArgument::Function { ty, symbol, signature, colocated: u.arbitrary()? }
        }
        1 => {
            let offset = match u.int_in_range(0..=3)? {
                0 | 1 => 0,
                2 => u.arbitrary::<i32>()?.into(),
                _ => u.arbitrary()?,
            };
            ExtraArgument::Address { ty, symbol, offset, colocated: u.arbitrary()? }
        }
        _ => {
            let ty = *u.choose(&[types::I8, types::I16, types::I32, types::I64])?;
            let mut bits = 0;
            for _ in 0..4 {
                let half: u16 = *u.choose(&[0, 0xffff, 1, 0x8000, 0x1234, 0xff80, 0x7f])?;
                bits = bits << 16 | u64::from(half);
            }
            ExtraArgument::Constant { ty, bits: bits & u64::MAX >> (64 - ty.bits()) }
        }
    })
}

/// Compares a thunk with what Cranelift does. Returns whether there is a thunk, and whether it
/// loads an address from a table or contains it.
fn compare(isa: &dyn TargetIsa, own: &Signature, arguments: &[ExtraArgument]) -> (bool, bool) {
    let [speed, size] = [OptimizeFor::Speed, OptimizeFor::Size].map(|optimize| {
        let code = thunk(isa, own, arguments, optimize).unwrap_or_else(|wrong| panic!("{wrong}"));
        let far = code.as_ref().map(|code| check(isa, own, arguments, code));
        (far, code.map(|code| code.size()))
    });
    assert_eq!(speed.0, size.0, "{arguments:?} behind {own}");
    assert!(size.1 <= speed.1, "{arguments:?} behind {own}");
    speed.0.flatten().map_or((false, false), |far| (true, far))
}

/// Compares the code of a thunk with what Cranelift does. Returns whether it loads an address from
/// a table or contains it; `None` if there can be no body for it.
fn check(
    isa: &dyn TargetIsa,
    own: &Signature,
    arguments: &[ExtraArgument],
    code: &ThunkCode,
) -> Option<bool> {
    let mut thunk = match isa.name() {
        "x64" => performed_on_x86_64(code),
        _ => performed_on_aarch64(code),
    };
    let extended = extended_signature(own, arguments);
    for (at, argument) in arguments.iter().enumerate() {
        let param = extended.params[own.params.len() + at];
        let place = place(isa, &extended, own.params.len() + at)?;
        // All other bits of a register may be anything, unless the signature says what they are.
        let width = match param.extension {
            ArgumentExtension::None => param.value_type.bits(),
            ArgumentExtension::Uext | ArgumentExtension::Sext => 64,
        };
        let held = match place {
            Place::Register(register) => thunk.remove(&register),
            Place::Memory(_) => None,
        };
        let held = held.map(|held| held.lowest(width));
        assert_eq!(held, Some(Held::of(argument, width)), "argument {at} behind {own}: {code:?}");
    }
    assert!(thunk.is_empty(), "{own}: {thunk:?} is changed as well");
    // All else stays where it is.
    for at in (0..own.params.len()).filter(|&at| own.params[at].value_type.is_int()) {
        let [before, after] = [own, &extended].map(|signature| place(isa, signature, at));
        assert_eq!(before, after, "parameter {at} of {own}");
    }
    let far = |of: &ThunkReloc| {
        matches!(of.kind, Reloc::X86GOTPCRel4 | Reloc::Abs8 | Reloc::Aarch64Ld64GotLo12Nc)
    };
    Some(code.relocations.iter().any(far))
}

/// `None` where no compiler makes such a function.
fn all_in_registers(
    isa: &dyn TargetIsa,
    own: &Signature,
    arguments: &[ExtraArgument],
) -> Option<bool> {
    let mut extended = own.clone();
    extended.params.extend(arguments.iter().map(|argument| AbiParam::new(argument.ty())));
    let last = place(isa, &extended, extended.params.len() - 1)?;
    Some(matches!(last, Place::Register(_)))
}

#[test]
fn a_thunk_passes_extra_arguments_where_the_body_reads_them() {
    let isas = ["x86_64", "aarch64"].map(|name| [false, true].map(|pic| isa_with(name, pic)));
    let isas = isas.as_flattened();
    let mut compared = [0; 4];
    let mut far = [0; 4];
    random(|u| {
        let own = signature(u, false)?;
        let count = u.int_in_range(1..=6)?;
        let mut arguments = Vec::new();
        for _ in 0..count {
            arguments.push(argument(u, &arguments)?);
        }
        for ((isa, compared), far) in isas.iter().zip(&mut compared).zip(&mut far) {
            let (is_one, has_far) = compare(&**isa, &own, &arguments);
            *compared += usize::from(is_one);
            *far += usize::from(has_far);
        }
        Ok(())
    });
    assert!(compared.iter().all(|&compared| compared >= 4), "{compared:?}");
    assert!(far.iter().sum::<usize>() > 0, "{far:?}");
}

/// Every way to reach a symbol, for every place and every offset at which something changes: near,
/// through the table, or by its absolute address; an address with an offset from a symbol of the
/// table has no thunk in raw bytes.
#[test]
fn addresses_that_are_passed_are_those_that_the_back_end_computes() {
    let symbol = || UserExternalName::new(1, 7);
    let signature = Arc::new(Signature::new(CallConv::SystemV));
    let offsets = [0, 1, 8, -8, 4096, i64::from(i32::MAX), i64::from(i32::MIN), 1 << 31, 1 << 40];
    for name in ["x86_64", "aarch64"] {
        for pic in [false, true] {
            let isa = isa_with(name, pic);
            for (colocated, before) in [(true, 0), (false, 0), (true, 3), (false, 3), (false, 5)] {
                let mut own = Signature::new(CallConv::SystemV);
                own.params = vec![AbiParam::new(types::I64); before];
                let function = ExtraArgument::Function {
                    ty: types::I64,
                    symbol: symbol(),
                    signature: signature.clone(),
                    colocated,
                };
                let absolute = name == "x86_64" && !pic;
                let what = format!("{name}, pic: {pic}, near: {colocated}");
                let exists = colocated || absolute || pic;
                assert_eq!(
                    compare(&*isa, &own, &[function]),
                    (exists, exists && !colocated),
                    "{what}"
                );
                for offset in offsets {
                    let address = ExtraArgument::Address {
                        ty: types::I64,
                        symbol: symbol(),
                        offset,
                        colocated,
                    };
                    let within = name == "aarch64" || i32::try_from(offset).is_ok();
                    let exists = match colocated {
                        true => within,
                        false => absolute || pic && offset == 0,
                    };
                    let compared = compare(&*isa, &own, &[address]);
                    assert_eq!(compared, (exists, exists && !colocated), "{what}, {offset}");
                }
            }
        }
    }
}

/// Under branch target identification a function that is reached through a pointer begins with a
/// landing pad, also if it passes extra arguments.
#[test]
fn thunks_keep_their_landing_pad() {
    let mut builder = isa::lookup_by_name("aarch64").unwrap();
    builder.enable("use_bti").unwrap();
    let isa = builder.finish(Flags::new(settings::builder())).unwrap();
    let own = Signature::new(CallConv::SystemV);
    for count in 0..=3 {
        let constants = (0..count).map(|bits| ExtraArgument::Constant { ty: types::I32, bits });
        let constants: Vec<ExtraArgument> = constants.collect();
        let to = UserExternalName::new(0, 0);
        let code = Target::of(&*isa).thunk_code(&own, &constants, &to, OptimizeFor::Speed);
        let code = code.expect("a thunk");
        assert_eq!(word(&code.bytes), 0xd503_245f, "bti c");
        assert_eq!(code.bytes.len(), 4 * (constants.len() + 2));
        assert_eq!(code.relocations.last().map(|of| of.offset), Some(code.size() - 4));
    }
}

/// Two extra arguments of one type keep their order, for every number of registers that are taken.
#[test]
fn extra_arguments_keep_their_order() {
    for isa in ["x86_64", "aarch64"].map(isa) {
        for convention in [CallConv::SystemV, CallConv::Fast, CallConv::Tail] {
            let mut thunks = 0;
            for before in 0..8 {
                for count in 2..=6 {
                    let mut own = Signature::new(convention);
                    own.params = vec![AbiParam::new(types::I64); before];
                    let constants =
                        (0..count).map(|bits| ExtraArgument::Constant { ty: types::I64, bits });
                    thunks += u32::from(compare(&*isa, &own, &constants.collect::<Vec<_>>()).0);
                }
            }
            assert!(thunks > 8, "{convention}: {thunks}");
        }
    }
}

/// With more results than registers, the address of the results is passed as an implicit parameter.
/// It comes last, and so after the extra arguments of a body: no jump can be such a thunk.
#[test]
fn a_hidden_parameter_for_results_takes_a_register() {
    for isa in ["x86_64", "aarch64"].map(isa) {
        for results in 0..=12 {
            for ty in [types::I64, types::F64, types::I128] {
                let mut own = Signature::new(CallConv::SystemV);
                own.params = vec![AbiParam::new(types::I64); 2];
                own.returns = vec![AbiParam::new(ty); results];
                let constants = [5, 6].map(|bits| ExtraArgument::Constant { ty: types::I64, bits });
                let is_one = compare(&*isa, &own, &constants).0;
                let fit = results == 0 || results <= 2 && ty != types::I128;
                assert_eq!(is_one, fit, "{results} of {ty}");
            }
        }
    }
}

/// Otherwise every thunk would be a call thunk, three times as large.
#[test]
fn where_registers_are_free_there_is_a_thunk_in_raw_bytes() {
    let isas = ["x86_64", "aarch64"].map(isa);
    let mut without = [0; 2];
    random(|u| {
        let mut own = signature(u, true)?;
        own.call_conv = *u.choose(&[CallConv::SystemV, CallConv::Fast, CallConv::Tail])?;
        let count = u.int_in_range(1..=6)?;
        let zero = ExtraArgument::Constant { ty: types::I64, bits: 0 };
        let arguments = vec![zero; count];
        for (isa, without) in isas.iter().zip(&mut without) {
            let Some(expected) = all_in_registers(&**isa, &own, &arguments) else {
                continue;
            };
            let to = UserExternalName::new(0, 0);
            let thunk = Target::of(&**isa).thunk_code(&own, &arguments, &to, OptimizeFor::Size);
            assert_eq!(thunk.is_some(), expected, "{} further of {own}", arguments.len());
            *without += usize::from(!expected);
        }
        Ok(())
    });
    assert!(without.iter().all(|&without| without >= 10), "{without:?}");
}

/// The bytes that documents state, without the jump: on x86-64 for speed and for size, and on
/// aarch64. Other instructions would be right as well.
#[test]
fn thunks_take_as_few_bytes_as_instructions_can() {
    let constant = |ty: Type, bits: i64| ExtraArgument::Constant {
        ty,
        bits: bits as u64 & u64::MAX >> (64 - ty.bits()),
    };
    let address = |offset: i64| ExtraArgument::Address {
        ty: types::I64,
        symbol: UserExternalName::new(1, 7),
        offset,
        colocated: true,
    };
    let [i8, i16, i32, i64] = [types::I8, types::I16, types::I32, types::I64];
    let [f32, f64] = [types::F32, types::F64];
    let in_float = |offset: i64| match address(offset) {
        ExtraArgument::Address { ty: _, symbol, offset, colocated } => {
            ExtraArgument::Address { ty: f64, symbol, offset, colocated }
        }
        other => other,
    };
    let cases: [(usize, Vec<ExtraArgument>, [usize; 3]); 38] = [
        (0, vec![constant(i64, 0)], [2, 2, 4]),
        (0, vec![constant(i64, 5)], [5, 3, 4]),
        (0, vec![constant(i64, -1)], [7, 3, 4]),
        (0, vec![constant(i64, -128)], [7, 3, 4]),
        (0, vec![constant(i64, -129)], [7, 6, 4]),
        (0, vec![constant(i64, 0xffff_fffe)], [5, 5, 4]),
        (0, vec![constant(i64, 1 << 32)], [10, 10, 4]),
        (0, vec![constant(i64, 0x1234_5678_9abc_def0)], [10, 10, 16]),
        (0, vec![constant(i64, 0x0f0f_0f0f_0f0f_0f0f)], [10, 10, 4]),
        (0, vec![constant(i32, 0x3ffc_3ffc)], [5, 5, 4]),
        (0, vec![constant(i32, 0x1234_5678)], [5, 5, 8]),
        (0, vec![constant(i32, -128)], [5, 3, 4]),
        (0, vec![constant(i16, 0x1234)], [5, 4, 4]),
        (0, vec![constant(i8, 5)], [5, 3, 4]),
        (2, vec![constant(i8, 5)], [5, 2, 4]),
        (4, vec![constant(i64, 5)], [6, 4, 4]),
        (4, vec![constant(i64, 5), constant(i64, 5)], [9, 7, 8]),
        (0, vec![constant(i32, 0x1234_5678), constant(i32, 0x1234_5678)], [7, 7, 12]),
        (0, vec![constant(i32, 0x1234_5678), constant(i32, 0x1234_4678)], [10, 10, 12]),
        (0, vec![constant(i64, 0x1234_5678), constant(i32, 0x1234_5679)], [8, 8, 12]),
        // The second one is set first: the other one has fewer bits, or follows from zero.
        (0, vec![constant(i8, 5), constant(i32, 5)], [7, 5, 8]),
        (0, vec![constant(i64, -1), constant(i64, 0)], [6, 5, 8]),
        (0, vec![address(0)], [7, 7, 8]),
        (0, vec![address(8), address(8)], [10, 10, 12]),
        (0, vec![address(8), address(0), address(136)], [15, 15, 16]),
        (0, vec![address(0), address(1 << 20), address(0xfff_ffff)], [21, 21, 20]),
        (0, vec![constant(f32, 0)], [3, 3, 4]),
        (0, vec![constant(f32, 5)], [9, 7, 4]),
        (0, vec![constant(f32, 0x1200)], [9, 9, 4]),
        (0, vec![constant(f32, !0x0012_0000)], [9, 9, 4]),
        (0, vec![constant(f32, 0x1234_5678)], [9, 9, 12]),
        (0, vec![constant(f64, 5)], [9, 7, 8]),
        (0, vec![constant(f64, -1)], [12, 8, 4]),
        (0, vec![constant(f64, 0x00ff_0000_ffff_0000)], [15, 15, 4]),
        (0, vec![in_float(8)], [12, 12, 12]),
        (4, vec![constant(i32, 0x1234_5678), constant(f32, 0x1234_5678)], [11, 11, 12]),
        (0, vec![constant(f64, 0x1234_5678), constant(f64, 0x1234_5678)], [12, 12, 16]),
        (0, vec![address(8), in_float(8), in_float(24)], [21, 21, 20]),
    ];
    let x86_64 = (Target::x86_64(), 5);
    let aarch64 = (Target::aarch64(false), 4);
    for (before, arguments, expected) in cases {
        let mut own = Signature::new(CallConv::SystemV);
        own.params = vec![AbiParam::new(types::I64); before];
        let (speed, size) = (OptimizeFor::Speed, OptimizeFor::Size);
        let sizes = [(x86_64, speed), (x86_64, size), (aarch64, speed)].map(
            |((target, jump), optimize)| {
                let to = UserExternalName::new(0, 0);
                let code = target.thunk_code(&own, &arguments, &to, optimize).expect("a thunk");
                let offsets: Vec<u32> = code.relocations.iter().map(|of| of.offset).collect();
                assert!(offsets.is_sorted(), "{arguments:?}: {offsets:?}");
                code.bytes.len() - jump
            },
        );
        assert_eq!(sizes, expected, "{arguments:?}");
    }
}

/// In a JIT on aarch64 a thunk also occupies the bytes that are reserved for its jump, so a body
/// may be smaller; and a body of one instruction is never larger than a jump alone.
#[test]
fn what_is_reserved_for_a_jump_counts_as_its_size() {
    let own = Signature::new(CallConv::SystemV);
    let to = UserExternalName::new(0, 0);
    let size = |target: Target| {
        let code = target.thunk_code(&own, &[], &to, OptimizeFor::Speed).expect("a thunk");
        assert_eq!(code.size(), target.jump_thunk.expect("a jump").size());
        code.size()
    };
    let smaller = |target: Target| [1, 2, 14, 15].map(|count| target.jump_is_smaller(count));
    let aarch64 = Target::aarch64(false);
    assert_eq!([aarch64, aarch64.in_jit()].map(size), [4, 28]);
    assert_eq!(smaller(aarch64), [false, true, true, true]);
    assert_eq!(smaller(aarch64.in_jit()), [false, false, false, true]);
    let x86_64 = Target::x86_64();
    assert_eq!([x86_64, x86_64.in_jit()].map(size), [5; 2]);
    assert_eq!(smaller(x86_64), [true; 4]);
    assert_eq!(smaller(Target::generic()), [false; 4]);
}
