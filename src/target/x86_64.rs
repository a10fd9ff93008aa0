//! How thunks set registers on x86-64.
//!
//! A register is its number in code; neither rsp nor rbp is one of them, nor are r12 and r13, which
//! need longer forms as well. Floating-point registers are set by way of rax, in which no function
//! gets anything.

use super::registers::Register;
use super::setting::Setting;
use super::thunk::{Address, Step, Value};
use super::{Far, OptimizeFor};
use alloc::vec::Vec;
use cranelift_codegen::binemit::Reloc;

/// The number of rax.
const SCRATCH: u8 = 0;

/// The shortest instructions that set a register, whatever the others hold. `None` if there are
/// none for an address.
pub(super) fn from_scratch(
    register: Register,
    value: &Value<'_>,
    optimize: OptimizeFor,
) -> Option<Setting> {
    let integer = |register: u8| match value {
        &Value::Bits { bits, width } => Some(constant(register, bits, width, optimize)),
        Value::Address(address) => self::address(register, address),
    };
    match (register, value) {
        (Register::Integer(register), _) => integer(register),
        // `xorps xmm, xmm`
        (Register::Float(register), Value::Bits { bits: 0, width: _ }) => Some(instruction(
            false,
            register,
            register,
            &[0x0f, 0x57, registers(register, register)],
        )),
        (Register::Float(register), _) => {
            let wide = match value {
                Value::Bits { bits, width: _ } => u32::try_from(*bits).is_err(),
                Value::Address(_) => true,
            };
            Some(integer(SCRATCH)?.then(to_float(register, SCRATCH, wide).bytes()))
        }
    }
}

/// `movd xmm, r32` or `movq xmm, r64`, which clear the rest of the register.
fn to_float(register: u8, from: u8, wide: bool) -> Setting {
    let mov = instruction(wide, register, from, &[0x0f, 0x6e, registers(register, from)]);
    Setting::EMPTY.then(&[0x66]).then(mov.bytes())
}

/// An instruction with the prefix that is needed for 64 bits, for `register` in the field for
/// registers, and for `base` in that for operands in registers or in memory.
fn instruction(wide: bool, register: u8, base: u8, rest: &[u8]) -> Setting {
    let prefix = 0x40 | u8::from(wide) << 3 | register >> 3 << 2 | base >> 3;
    let prefix = if prefix == 0x40 { &[][..] } else { &[prefix] };
    Setting::EMPTY.then(prefix).then(rest)
}

/// The operands of an instruction: two registers.
fn registers(register: u8, base: u8) -> u8 {
    0xc0 | (register & 7) << 3 | base & 7
}

fn constant(register: u8, bits: u64, width: u32, optimize: OptimizeFor) -> Setting {
    let low = register & 7;
    if bits == 0 {
        return instruction(false, register, register, &[0x31, registers(register, register)]);
    }
    // `mov r32, imm32` clears the upper half; `mov r64, imm32` extends the sign.
    let unused = 64 - width;
    let signed = (bits << unused) as i64 >> unused;
    let plain = match (u32::try_from(bits), i32::try_from(signed)) {
        (Ok(bits), _) => instruction(false, 0, register, &[0xb8 | low]).then(&bits.to_le_bytes()),
        (_, Ok(bits)) => {
            instruction(true, 0, register, &[0xc7, 0xc0 | low]).then(&bits.to_le_bytes())
        }
        _ => instruction(true, 0, register, &[0xb8 | low]).then(&bits.to_le_bytes()),
    };
    let mut settings: Vec<Setting> = alloc::vec![plain];
    if optimize == OptimizeFor::Size {
        if signed == -1 {
            // `or reg, -1`, which waits for what the register held
            settings.push(instruction(width == 64, 0, register, &[0x83, 0xc8 | low, 0xff]).slow());
        }
        if width == 8 {
            // `mov r8, imm8`, which waits for what the register held. Without a prefix, the numbers
            // of sil and dil are those of other registers.
            let prefix = if register < 8 { 0x40 } else { 0x41 };
            let prefix = if register < 4 { &[][..] } else { &[prefix] };
            settings.push(Setting::EMPTY.then(prefix).then(&[0xb0 | low, bits as u8]).slow());
        }
        if width == 16 {
            // `mov r16, imm16`
            let [first, second] = (bits as u16).to_le_bytes();
            let mov = instruction(false, 0, register, &[0xb8 | low, first, second]);
            settings.push(Setting::EMPTY.then(&[0x66]).then(mov.bytes()).slow());
        }
        // `push imm; pop reg`, which goes through memory: the word below the return address, which
        // is nobody's. The caller cannot keep anything below what it pushed itself, and until the
        // body is entered there is no callee that could. The stack is not aligned as for calls in
        // between, where nothing is called; nothing there traps either, and thunks have no unwind
        // information that would have to follow it.
        let pop = instruction(false, 0, register, &[0x58 | low]);
        if let Ok(bits) = i8::try_from(signed) {
            let push = Setting::EMPTY.then(&[0x6a]).then(&bits.to_le_bytes());
            settings.push(push.then(pop.bytes()).slow());
        } else if let Ok(bits) = i32::try_from(signed) {
            let push = Setting::EMPTY.then(&[0x68]).then(&bits.to_le_bytes());
            settings.push(push.then(pop.bytes()).slow());
        }
    }
    // The first of equal ones.
    settings.into_iter().min_by_key(Setting::cost).expect("there is one")
}

/// `lea reg, [rip + symbol]`, which reaches a near symbol; for one that may be far, the back end's
/// own ways: `mov reg, [rip + symbol@GOTPCREL]` in position-independent code, else
/// `mov reg, symbol`.
fn address(register: u8, address: &Address<'_>) -> Option<Setting> {
    let &Address { offset, near, far, .. } = address;
    let low = register & 7;
    let relative = |opcode: u8, kind: Reloc, addend: i64| {
        let start = instruction(true, register, 0, &[opcode, 0x05 | low << 3]);
        start.relocated(kind, addend).then(&[0; 4])
    };
    match (near, far) {
        (true, _) if i32::try_from(offset).is_ok() => {
            Some(relative(0x8d, Reloc::X86PCRel4, offset - 4))
        }
        (false, Far::Table) if address.is_entry() => Some(relative(0x8b, Reloc::X86GOTPCRel4, -4)),
        (false, Far::Absolute) => {
            let start = instruction(true, 0, register, &[0xb8 | low]);
            Some(start.relocated(Reloc::Abs8, offset).then(&[0; 8]))
        }
        (true, _) | (false, Far::Table | Far::Unknown) => None,
    }
}

/// From an integer register by `mov` or `lea`, which take no longer than a constant; from a
/// floating-point register, an equal one by `movaps`.
pub(super) fn derived(register: Register, from: Register, step: Step) -> Option<Setting> {
    match (register, from) {
        (Register::Integer(register), Register::Integer(from)) => integer(register, from, step),
        (Register::Integer(_), Register::Float(_)) => None,
        (Register::Float(register), Register::Integer(from)) if step.distance == 0 => {
            Some(to_float(register, from, step.wide))
        }
        (Register::Float(register), Register::Integer(from)) => {
            let mov = to_float(register, SCRATCH, step.wide);
            Some(integer(SCRATCH, from, step)?.then(mov.bytes()))
        }
        (Register::Float(register), Register::Float(from)) => {
            let movaps = [0x0f, 0x28, registers(register, from)];
            step.equal.then(|| instruction(false, register, from, &movaps))
        }
    }
}

/// `mov reg, from` or `lea reg, [from + distance]`.
fn integer(register: u8, from: u8, step: Step) -> Option<Setting> {
    let Step { distance, wide, equal: _ } = step;
    if distance == 0 {
        return Some(instruction(wide, from, register, &[0x89, registers(from, register)]));
    }
    // With a distance of 8 bits, or of 32.
    let lea = |mode: u8| {
        instruction(wide, register, from, &[0x8d, mode | registers(register, from) & 0x3f])
    };
    match (i8::try_from(distance), i32::try_from(distance)) {
        (Ok(distance), _) => Some(lea(0x40).then(&distance.to_le_bytes())),
        (_, Ok(distance)) => Some(lea(0x80).then(&distance.to_le_bytes())),
        _ => None,
    }
}
