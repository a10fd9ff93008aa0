//! Thunks that pass extra arguments in registers: `mov reg, imm` for each, then the jump.
//!
//! No other argument of the caller moves: the extra ones come last, and such a thunk is only made where all of them
//! are in registers in which the function itself gets no arguments. Elsewhere there is no such thunk (a call thunk
//! in IR has the same effect).

use super::{Far, JumpThunk, Target};
use crate::extra_argument::ExtraArgument;
use alloc::vec::Vec;
use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir::{AbiParam, ArgumentPurpose, Signature, Type, UserExternalName, types};
use cranelift_codegen::isa::CallConv;

/// The machine code of a thunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThunkCode {
    /// The code, before relocation.
    pub bytes: Vec<u8>,
    /// What is to be relocated, ascending.
    pub relocations: Vec<ThunkReloc>,
    /// The bytes that the back end reserves in addition to the code.
    veneer: u32,
}

/// A relocation of a thunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThunkReloc {
    /// Where it applies, in bytes from the start of the thunk.
    pub offset: u32,
    /// Its kind.
    pub kind: Reloc,
    /// What it refers to.
    pub symbol: UserExternalName,
    /// Its addend in bytes.
    pub addend: i64,
}

impl ThunkCode {
    /// The memory that the thunk takes, in bytes: its code, and what the back end reserves for it.
    pub fn size(&self) -> u32 {
        self.bytes.len() as u32 + self.veneer
    }

    fn relocate(&mut self, kind: Reloc, symbol: &UserExternalName, addend: i64) {
        let offset = self.bytes.len() as u32;
        self.relocations.push(ThunkReloc { offset, kind, symbol: symbol.clone(), addend });
    }

    fn word(&mut self, word: u32) {
        self.bytes.extend_from_slice(&word.to_le_bytes());
    }
}

impl Target {
    /// A thunk to `to` in raw bytes: for functions of this signature, with these extra arguments. `None` if there
    /// is none for this target or for these arguments.
    pub fn thunk_code(
        &self,
        signature: &Signature,
        arguments: &[ExtraArgument],
        to: &UserExternalName,
    ) -> Option<ThunkCode> {
        let jump = self.jump_thunk?;
        let mut code = ThunkCode {
            bytes: jump.landing_pad().to_vec(),
            relocations: Vec::new(),
            veneer: jump.veneer,
        };
        if !arguments.is_empty() {
            let registers = match jump.relocation {
                Reloc::X86CallPCRel4 => x86_64_registers(signature, arguments)?,
                Reloc::Arm64Call => aarch64_registers(signature, arguments)?,
                _ => return None,
            };
            for (register, argument) in registers.into_iter().zip(arguments) {
                match jump.relocation {
                    Reloc::X86CallPCRel4 => {
                        x86_64_argument(&mut code, register, self.far, argument)?
                    }
                    _ => aarch64_argument(&mut code, register, self.far, argument)?,
                }
            }
        }
        code.bytes.extend_from_slice(jump.jump());
        let offset = code.bytes.len() as u32 - 4;
        let (kind, symbol, addend) = (jump.relocation, to.clone(), jump.addend);
        code.relocations.push(ThunkReloc { offset, kind, symbol, addend });
        Some(code)
    }
}

impl JumpThunk {
    /// The code before the jump: on both targets the last four bytes are relocated.
    fn landing_pad(&self) -> &[u8] {
        &self.code()[..self.code().len() - self.jump().len()]
    }

    fn jump(&self) -> &[u8] {
        let code = self.code();
        match self.relocation {
            Reloc::X86CallPCRel4 => code,
            _ => &code[code.len() - 4..],
        }
    }
}

/// How many registers for integers, and for all others, the parameters of a function take. `None` if that is not
/// simply one for each. `struct_return` is the number for the address of a returned structure.
fn taken(signature: &Signature, struct_return: usize) -> Option<[usize; 2]> {
    let simple = |ty: Type| ty.bits() <= 64 || ty.is_vector() && ty.bits() == 128;
    // With more results there may be a hidden parameter for their address.
    let few = signature.returns.len() <= 2;
    if !few || !signature.returns.iter().all(|result| simple(result.value_type)) {
        return None;
    }
    let mut taken = [0; 2];
    for AbiParam { value_type, purpose, extension: _ } in &signature.params {
        match purpose {
            ArgumentPurpose::Normal | ArgumentPurpose::VMContext if simple(*value_type) => {
                taken[usize::from(!value_type.is_int())] += 1;
            }
            ArgumentPurpose::StructReturn => taken[0] += struct_return,
            ArgumentPurpose::Normal
            | ArgumentPurpose::VMContext
            | ArgumentPurpose::StructArgument(_) => return None,
        }
    }
    Some(taken)
}

/// Whether an entry of the global offset table has the address itself: no offset is added to the loaded address.
fn is_entry(offset: i64) -> bool {
    offset == 0
}

/// The registers of extra integers: rdi, rsi, rdx, rcx, r8, r9.
fn x86_64_registers(signature: &Signature, arguments: &[ExtraArgument]) -> Option<Vec<u8>> {
    const ORDER: [u8; 6] = [7, 6, 2, 1, 8, 9];
    match signature.call_conv {
        CallConv::SystemV | CallConv::Fast | CallConv::Tail => {}
        _ => return None,
    }
    let [first, _] = taken(signature, 1)?;
    Some(ORDER.get(first..first + arguments.len())?.to_vec())
}

/// The registers of extra integers: x0 to x7, of which two are not for arguments in tail calls.
fn aarch64_registers(signature: &Signature, arguments: &[ExtraArgument]) -> Option<Vec<u8>> {
    let reserved = match signature.call_conv {
        CallConv::SystemV | CallConv::Fast | CallConv::AppleAarch64 => 0,
        CallConv::Tail => 2,
        _ => return None,
    };
    // The address of a returned structure comes in x8. Other types take other registers.
    let [integers, _] = taken(signature, 0)?;
    let first = reserved + integers;
    let end = first + arguments.len();
    (end <= 8).then(|| (first as u8..end as u8).collect())
}

fn x86_64_argument(
    code: &mut ThunkCode,
    register: u8,
    far: Far,
    argument: &ExtraArgument,
) -> Option<()> {
    // The fourth bit of a register's number is in a prefix.
    let (low, high) = (register & 7, register >> 3);
    match argument {
        ExtraArgument::Constant { ty, bits } => {
            // Bits that the type does not have do not matter.
            let bits = if ty.bits() < 64 { bits & 0xffff_ffff } else { *bits };
            if bits == 0 {
                if high != 0 {
                    code.bytes.push(0x45);
                }
                code.bytes.extend_from_slice(&[0x31, 0xc0 | low << 3 | low]);
            } else if let Ok(bits) = u32::try_from(bits) {
                if high != 0 {
                    code.bytes.push(0x41);
                }
                code.bytes.push(0xb8 | low);
                code.word(bits);
            } else if let Ok(bits) = i32::try_from(bits as i64) {
                code.bytes.extend_from_slice(&[0x48 | high, 0xc7, 0xc0 | low]);
                code.word(bits as u32);
            } else {
                code.bytes.extend_from_slice(&[0x48 | high, 0xb8 | low]);
                code.bytes.extend_from_slice(&bits.to_le_bytes());
            }
        }
        ExtraArgument::Function { ty, symbol, signature: _, colocated } => {
            x86_64_address(code, [low, high], far, (*ty, *colocated), symbol, 0)?;
        }
        ExtraArgument::Address { ty, symbol, offset, colocated } => {
            x86_64_address(code, [low, high], far, (*ty, *colocated), symbol, *offset)?;
        }
    }
    Some(())
}

/// `lea reg, [rip + symbol]`, which reaches a near symbol; for one that may be far, the back end's own ways: `mov
/// reg, [rip + symbol@GOTPCREL]` in position-independent code, else `mov reg, symbol`.
fn x86_64_address(
    code: &mut ThunkCode,
    [low, high]: [u8; 2],
    far: Far,
    (ty, near): (Type, bool),
    symbol: &UserExternalName,
    offset: i64,
) -> Option<()> {
    let within = i32::try_from(offset).is_ok();
    match (ty, near, far) {
        (types::I64, true, _) if within => {
            code.bytes.extend_from_slice(&[0x48 | high << 2, 0x8d, 0x05 | low << 3]);
            code.relocate(Reloc::X86PCRel4, symbol, offset - 4);
            code.word(0);
        }
        (types::I64, false, Far::Table) if is_entry(offset) => {
            code.bytes.extend_from_slice(&[0x48 | high << 2, 0x8b, 0x05 | low << 3]);
            code.relocate(Reloc::X86GOTPCRel4, symbol, -4);
            code.word(0);
        }
        (types::I64, false, Far::Absolute) => {
            code.bytes.extend_from_slice(&[0x48 | high, 0xb8 | low]);
            code.relocate(Reloc::Abs8, symbol, offset);
            code.bytes.extend_from_slice(&[0; 8]);
        }
        _ => return None,
    }
    Some(())
}

fn aarch64_argument(
    code: &mut ThunkCode,
    register: u8,
    far: Far,
    argument: &ExtraArgument,
) -> Option<()> {
    let register = u32::from(register);
    match argument {
        ExtraArgument::Constant { ty, bits } => {
            aarch64_constant(code, register, ty.bits() == 64, *bits)
        }
        ExtraArgument::Function { ty, symbol, signature: _, colocated } => {
            aarch64_address(code, register, far, (*ty, *colocated), symbol, 0)?;
        }
        ExtraArgument::Address { ty, symbol, offset, colocated } => {
            aarch64_address(code, register, far, (*ty, *colocated), symbol, *offset)?;
        }
    }
    Some(())
}

/// The shortest of `movz` or `movn`, and a `movk` for each further half-word.
fn aarch64_constant(code: &mut ThunkCode, register: u32, wide: bool, bits: u64) {
    let (size, halves) = if wide { (1 << 31, 4) } else { (0, 2) };
    let half = |at: u32| (bits >> (16 * at)) as u32 & 0xffff;
    let count = |plain: u32| (0..halves).filter(|&at| half(at) != plain).count();
    let inverted = count(0xffff) < count(0);
    let plain = if inverted { 0xffff } else { 0 };
    let mut rest = (0..halves).filter(|&at| half(at) != plain);
    let first = rest.next().unwrap_or(0);
    let (opcode, value) = match inverted {
        true => (0x1280_0000, !half(first) & 0xffff),
        false => (0x5280_0000, half(first)),
    };
    code.word(opcode | size | first << 21 | value << 5 | register);
    for at in rest {
        code.word(0x7280_0000 | size | at << 21 | half(at) << 5 | register);
    }
}

/// `adrp` and `add`, which reach a near symbol; `adrp` and `ldr`, for one that may be far, of position-independent
/// code. Other code has the address between instructions, which a thunk does not.
fn aarch64_address(
    code: &mut ThunkCode,
    register: u32,
    far: Far,
    (ty, near): (Type, bool),
    symbol: &UserExternalName,
    offset: i64,
) -> Option<()> {
    match (ty, near, far) {
        (types::I64, true, _) => {
            code.relocate(Reloc::Aarch64AdrPrelPgHi21, symbol, offset);
            code.word(0x9000_0000 | register);
            code.relocate(Reloc::Aarch64AddAbsLo12Nc, symbol, offset);
            code.word(0x9100_0000 | register << 5 | register);
        }
        (types::I64, false, Far::Table) if is_entry(offset) => {
            code.relocate(Reloc::Aarch64AdrGotPage21, symbol, 0);
            code.word(0x9000_0000 | register);
            code.relocate(Reloc::Aarch64Ld64GotLo12Nc, symbol, 0);
            code.word(0xf940_0000 | register << 5 | register);
        }
        _ => return None,
    }
    Some(())
}
