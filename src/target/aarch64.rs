//! How thunks set registers on aarch64.
//!
//! The address of a near symbol takes two instructions. One, `adr`, reaches 1 MiB around it, but
//! Cranelift has no relocation for it. Values beyond the floating-point registers go by way of x9,
//! in which no function gets anything.

use super::Far;
use super::registers::Register;
use super::setting::Setting;
use super::thunk::{Address, Step, Value};
use cranelift_codegen::binemit::Reloc;

/// The number of x9.
const SCRATCH: u32 = 9;

/// The fewest instructions that set a register, whatever the others hold. `None` if there are none
/// for an address.
pub(super) fn from_scratch(register: Register, value: &Value<'_>) -> Option<Setting> {
    let integer = |register: u32| match value {
        &Value::Bits { bits, width: _ } => Some(constant(register, bits)),
        Value::Address(address) => self::address(register, address),
    };
    match register {
        Register::Integer(register) => integer(register.into()),
        Register::Float(register) => {
            let at_once = match value {
                &Value::Bits { bits, width } => float_immediate(bits, width),
                Value::Address(_) => None,
            };
            let word = match at_once {
                Some(word) => return Some(then(Setting::EMPTY, word | u32::from(register))),
                // Of fewer bits the rest is clear.
                None => to_float(register, SCRATCH, true),
            };
            Some(then(integer(SCRATCH)?, word))
        }
    }
}

/// `fmov d, x`, or `fmov s, w`, which clears the rest of the register.
fn to_float(register: u8, from: u32, wide: bool) -> u32 {
    let opcode = if wide { 0x9e67_0000 } else { 0x1e27_0000 };
    opcode | from << 5 | u32::from(register)
}

/// `movi d, #bits` of bytes that are zero or all ones; of 32 bits, `movi` or `mvni` of one byte and
/// of zeros or ones, in both halves of the register: without the number of the register.
fn float_immediate(bits: u64, width: u32) -> Option<u32> {
    let immediate = |byte: u32| (byte >> 5) << 16 | (byte & 31) << 5;
    let plain = |at: u32| matches!(bits >> (8 * at) & 0xff, 0 | 0xff);
    if (0..8).all(plain) {
        let bytes = (0..8).map(|at| (bits >> (8 * at) & 1) << at).sum::<u64>();
        return Some(0x2f00_e400 | immediate(bytes as u32));
    }
    let bits = u32::try_from(bits).ok().filter(|_| width == 32)?;
    let [plain, inverted] = [bits, !bits].map(|bits| {
        (0..4)
            .find(|at| bits & !(0xff << (8 * at)) == 0)
            .map(|at| immediate(bits >> (8 * at)) | at << 13)
    });
    plain.map(|fields| 0x0f00_0400 | fields).or(inverted.map(|fields| 0x2f00_0400 | fields))
}

fn then(setting: Setting, word: u32) -> Setting {
    setting.then(&word.to_le_bytes())
}

/// The bit that makes an instruction one of 64 bits: others clear the upper half of the register.
fn size(wide: bool) -> u32 {
    u32::from(wide) << 31
}

fn constant(register: u32, bits: u64) -> Setting {
    let wide = u32::try_from(bits).is_err();
    let halves = by_halves(register, wide, bits);
    match logical_immediate(wide, bits) {
        // `orr reg, xzr, #bits`
        Some(fields) if halves.bytes().len() > 4 => {
            then(Setting::EMPTY, 0x3200_03e0 | size(wide) | fields << 10 | register)
        }
        _ => halves,
    }
}

/// The shortest of `movz` or `movn`, and a `movk` for each further half-word.
fn by_halves(register: u32, wide: bool, bits: u64) -> Setting {
    let count = if wide { 4 } else { 2 };
    let half = |at: u32| (bits >> (16 * at)) as u32 & 0xffff;
    let others = |plain: u32| (0..count).filter(move |&at| half(at) != plain);
    let inverted = others(0xffff).count() < others(0).count();
    let mut rest = others(if inverted { 0xffff } else { 0 });
    let first = rest.next().unwrap_or(0);
    let (opcode, value) = match inverted {
        true => (0x1280_0000, !half(first) & 0xffff),
        false => (0x5280_0000, half(first)),
    };
    let word = opcode | size(wide) | first << 21 | value << 5 | register;
    rest.fold(then(Setting::EMPTY, word), |setting, at| {
        then(setting, 0x7280_0000 | size(wide) | at << 21 | half(at) << 5 | register)
    })
}

/// The fields N, immr and imms of an immediate operand of logical instructions, if these bits are
/// one: copies of an element of 2 to 64 bits, in which there is one run of ones, rotated to the
/// right by immr.
fn logical_immediate(wide: bool, bits: u64) -> Option<u32> {
    let bits = if wide { bits } else { bits & 0xffff_ffff | bits << 32 };
    if bits == 0 || bits == u64::MAX {
        return None;
    }
    let element = [2, 4, 8, 16, 32, 64].into_iter().find(|&of| bits.rotate_right(of) == bits)?;
    let mask = u64::MAX >> (64 - element);
    let ones = (bits & mask).count_ones();
    let run = (u64::MAX >> (64 - ones)) * (u64::MAX / mask);
    let rotation = (0..element).find(|&by| run.rotate_right(by) == bits)?;
    // The size of the element stands above the number of ones.
    let imms = !(2 * element - 1) & 0x3f | (ones - 1);
    Some(u32::from(element == 64) << 12 | rotation << 6 | imms)
}

/// `adrp` and `add`, which reach a near symbol; `adrp` and `ldr`, for one that may be far, of
/// position-independent code. Other code has the address between instructions, which a thunk does
/// not.
fn address(register: u32, address: &Address<'_>) -> Option<Setting> {
    let &Address { offset, near, far, .. } = address;
    let (page, second, low) = match (near, far) {
        (true, _) => (Reloc::Aarch64AdrPrelPgHi21, 0x9100_0000, Reloc::Aarch64AddAbsLo12Nc),
        (false, Far::Table) if address.is_entry() => {
            (Reloc::Aarch64AdrGotPage21, 0xf940_0000, Reloc::Aarch64Ld64GotLo12Nc)
        }
        (false, Far::Table | Far::Absolute | Far::Unknown) => return None,
    };
    let first = then(Setting::EMPTY.relocated(page, offset), 0x9000_0000 | register);
    Some(then(first.relocated(low, offset), second | register << 5 | register))
}

/// From an integer register, or an equal floating-point register.
pub(super) fn derived(register: Register, from: Register, step: Step) -> Option<Setting> {
    match (register, from) {
        (Register::Integer(register), Register::Integer(from)) => {
            integer(register.into(), from.into(), step)
        }
        (Register::Integer(_), Register::Float(_)) => None,
        (Register::Float(register), Register::Integer(from)) if step.distance == 0 => {
            Some(then(Setting::EMPTY, to_float(register, from.into(), step.wide)))
        }
        (Register::Float(register), Register::Integer(from)) => {
            Some(then(integer(SCRATCH, from.into(), step)?, to_float(register, SCRATCH, step.wide)))
        }
        // `fmov d, d`
        (Register::Float(register), Register::Float(from)) => step.equal.then(|| {
            then(Setting::EMPTY, 0x1e60_4000 | u32::from(from) << 5 | u32::from(register))
        }),
    }
}

/// `mov reg, from`, or one `add` or `sub` of an immediate of 12 bits, which may be shifted by 12.
fn integer(register: u32, from: u32, step: Step) -> Option<Setting> {
    let Step { distance, wide, equal: _ } = step;
    if distance == 0 {
        return Some(then(Setting::EMPTY, 0x2a00_03e0 | size(wide) | from << 16 | register));
    }
    let opcode = if distance > 0 { 0x1100_0000 } else { 0x5100_0000 };
    let immediate = match distance.unsigned_abs() {
        by @ 0..=0xfff => by as u32,
        by if by & 0xfff == 0 && by >> 12 <= 0xfff => 1 << 12 | (by >> 12) as u32,
        _ => return None,
    };
    Some(then(Setting::EMPTY, opcode | size(wide) | immediate << 10 | from << 5 | register))
}
