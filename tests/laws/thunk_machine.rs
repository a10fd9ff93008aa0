//! The instructions of thunks in raw bytes, performed one by one: written down once more, from the
//! manuals.

use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir::UserExternalName;
use cranelift_mergefunc::thunk::ThunkCode;
use cranelift_mergefunc::{ExtraArgument, cranelift_codegen};
use std::collections::BTreeMap;

/// The contents of a register: bits, of which the lowest `known` are known, or an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    Bits { bits: u64, known: u32 },
    Address(UserExternalName, i64),
}

impl Held {
    pub fn of(argument: &ExtraArgument, known: u32) -> Held {
        match argument {
            ExtraArgument::Constant { ty: _, bits } => Held::Bits { bits: *bits, known },
            ExtraArgument::Function { symbol, .. } => Held::Address(symbol.clone(), 0),
            ExtraArgument::Address { symbol, offset, .. } => Held::Address(symbol.clone(), *offset),
        }
    }

    fn bits(bits: u64) -> Held {
        Held::Bits { bits, known: 64 }
    }

    /// As far as these bits go, if all of them are known.
    pub fn lowest(self, width: u32) -> Held {
        match self {
            Held::Bits { bits, known } if known >= width => {
                Held::Bits { bits: bits & u64::MAX >> (64 - width), known: width }
            }
            other => other,
        }
    }

    /// The sum with a distance, in 64 bits or in 32, of which the upper half of the result is zero.
    fn plus(&self, distance: i64, wide: bool) -> Held {
        match self {
            Held::Bits { bits, known } => {
                let sum = bits.wrapping_add_signed(distance);
                match wide {
                    true => Held::Bits { bits: sum, known: *known },
                    false if *known >= 32 => Held::bits(sum & 0xffff_ffff),
                    false => Held::Bits { bits: sum, known: *known },
                }
            }
            Held::Address(symbol, offset) => {
                assert!(wide, "an address has 64 bits");
                Held::Address(symbol.clone(), offset + distance)
            }
        }
    }
}

pub fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().unwrap())
}

/// Performs the instructions of a thunk for x86-64.
pub fn performed_on_x86_64(code: &ThunkCode) -> BTreeMap<u32, Held> {
    let mut registers: BTreeMap<u32, Held> = BTreeMap::new();
    let mut pushed = None;
    let mut at = 0;
    loop {
        let rest = &code.bytes[at..];
        let half = usize::from(rest[0] == 0x66);
        let prefix = if rest[half] & 0xf0 == 0x40 { rest[half] } else { 0 };
        let before = half + usize::from(prefix != 0);
        let opcode = &rest[before..];
        let (wide, high_base) = (prefix & 8 != 0, u32::from(prefix & 1) << 3);
        assert!(half == 0 || matches!(opcode[0], 0xb8..=0xbf) && !wide, "{code:?}");
        let low = |byte: u8| u32::from(byte & 7);
        let in_register = |byte: u8| low(byte >> 3) | u32::from(prefix & 4) << 1;
        let in_base = |byte: u8| low(byte) | high_base;
        let (register, held, length) = match opcode[0] {
            0x31 => {
                assert_eq!(in_register(opcode[1]), in_base(opcode[1]));
                (in_base(opcode[1]), Held::bits(0), 2)
            }
            0x6a | 0x68 => {
                let (bits, length) = match opcode[0] {
                    0x6a => (i64::from(opcode[1] as i8), 2),
                    _ => (i64::from(word(&opcode[1..]) as i32), 5),
                };
                assert!(pushed.replace(bits as u64).is_none() && before == 0, "{code:?}");
                at += length;
                continue;
            }
            0x58..=0x5f => {
                assert!(!wide, "{code:?}");
                (in_base(opcode[0]), Held::bits(pushed.take().expect("pushed before")), 1)
            }
            0x83 => {
                assert_eq!((opcode[1] & 0xf8, opcode[2]), (0xc8, 0xff), "or with -1");
                let bits = if wide { u64::MAX } else { 0xffff_ffff };
                (in_base(opcode[1]), Held::bits(bits), 3)
            }
            0x89 => {
                assert!(opcode[1] >= 0xc0);
                let held = registers[&in_register(opcode[1])].plus(0, wide);
                (in_base(opcode[1]), held, 2)
            }
            0xb0..=0xb7 => {
                // Without a prefix, 4 to 7 are other registers.
                assert!(prefix != 0 || opcode[0] < 0xb4, "{code:?}");
                let held = Held::Bits { bits: opcode[1].into(), known: 8 };
                (in_base(opcode[0]), held, 2)
            }
            0xb8..=0xbf if half != 0 => {
                let bits = u16::from_le_bytes([opcode[1], opcode[2]]);
                (in_base(opcode[0]), Held::Bits { bits: bits.into(), known: 16 }, 3)
            }
            0xc7 => {
                assert!(wide && opcode[1] & 0xf8 == 0xc0);
                let bits = i64::from(word(&opcode[2..]) as i32) as u64;
                (in_base(opcode[1]), Held::bits(bits), 6)
            }
            0xb8..=0xbf if wide => {
                let bits = u64::from_le_bytes(opcode[1..9].try_into().unwrap());
                let held = match code.relocations.iter().find(|of| of.offset as usize == at + 2) {
                    Some(of) => {
                        assert_eq!((of.kind, bits), (Reloc::Abs8, 0));
                        Held::Address(of.symbol.clone(), of.addend)
                    }
                    None => Held::bits(bits),
                };
                (in_base(opcode[0]), held, 9)
            }
            0xb8..=0xbf => (in_base(opcode[0]), Held::bits(word(&opcode[1..]).into()), 5),
            0x8d if opcode[1] & 0xc7 != 5 => {
                assert_ne!(opcode[1] & 7, 4, "there would be one more byte");
                let (distance, length) = match opcode[1] >> 6 {
                    1 => (i64::from(opcode[2] as i8), 3),
                    2 => (i64::from(word(&opcode[2..]) as i32), 6),
                    _ => panic!("{code:?}"),
                };
                let held = registers[&in_base(opcode[1])].plus(distance, wide);
                (in_register(opcode[1]), held, length)
            }
            0x8b | 0x8d => {
                assert!(wide && opcode[1] & 0xc7 == 5);
                let end = at as u32 + 7;
                let of = code.relocations.iter().find(|of| of.offset + 4 == end).unwrap();
                // The value that is loaded from the table is the address itself, wherever the entry
                // is.
                let from_table = opcode[0] == 0x8b;
                let kind = if from_table { Reloc::X86GOTPCRel4 } else { Reloc::X86PCRel4 };
                assert_eq!(of.kind, kind);
                assert!(!from_table || of.addend == -4, "{code:?}");
                (in_register(opcode[1]), Held::Address(of.symbol.clone(), of.addend + 4), 6)
            }
            0xe9 => {
                assert_eq!((rest.len(), pushed), (5, None));
                let of = code.relocations.last().unwrap();
                assert_eq!((of.offset as usize, of.kind), (at + 1, Reloc::X86CallPCRel4));
                assert_eq!((&of.symbol, of.addend), (&UserExternalName::new(0, 0), -4));
                return registers;
            }
            other => panic!("{other:#x} in {code:?}"),
        };
        assert!(registers.insert(register, held).is_none(), "{code:?}");
        at += length + before;
    }
}

/// The bits of an immediate operand of logical instructions, by the definition of the architecture
/// (`DecodeBitMasks`).
fn logical_immediate(instruction: u32) -> u64 {
    let [n, immr, imms] =
        [(22, 1), (16, 0x3f), (10, 0x3f)].map(|(at, mask)| instruction >> at & mask);
    let length = (n << 6 | !imms & 0x3f).ilog2();
    let (size, levels) = (1 << length, (1 << length) - 1);
    let (ones, rotation) = ((imms & levels) + 1, immr & levels);
    assert!(ones < size, "reserved");
    let run = |bit: u32| (bit + rotation) % size < ones;
    (0..64).filter(|&bit| run(bit % size)).fold(0, |bits, bit| bits | 1 << bit)
}

/// Performs the instructions of a thunk for aarch64.
pub fn performed_on_aarch64(code: &ThunkCode) -> BTreeMap<u32, Held> {
    let mut registers: BTreeMap<u32, Held> = BTreeMap::new();
    let mut pages = BTreeMap::new();
    let (jump, moves) = code.bytes.as_chunks::<4>().0.split_last().unwrap();
    assert_eq!(word(jump), 0x1400_0000);
    for (at, instruction) in moves.iter().enumerate() {
        let instruction = word(instruction);
        let register = instruction & 31;
        let wide = instruction >> 31 != 0;
        let shift = 16 * (instruction >> 21 & 3);
        let half = u64::from(instruction >> 5 & 0xffff);
        let [first, second] = [5, 16].map(|at| instruction >> at & 31);
        let of = code.relocations.iter().find(|of| of.offset == 4 * at as u32);
        let known = |register: u32| registers[&register].clone();
        let held = match instruction >> 23 & 0xff {
            _ if of.is_some() => {
                let of = of.unwrap();
                let address = Held::Address(of.symbol.clone(), of.addend);
                if instruction == 0x9000_0000 | register {
                    let kinds = [Reloc::Aarch64AdrPrelPgHi21, Reloc::Aarch64AdrGotPage21];
                    assert!(kinds.contains(&of.kind), "{code:?}");
                    assert!(pages.insert(register, of.kind).is_none());
                    assert!(registers.insert(register, address).is_none());
                    continue;
                }
                // The halves of one address go together: an offset in bytes behind the symbol, or
                // an entry of the table, which has the address of the symbol itself.
                let (opcode, kind) = match pages[&register] {
                    Reloc::Aarch64AdrGotPage21 => (0xf940_0000, Reloc::Aarch64Ld64GotLo12Nc),
                    _ => (0x9100_0000, Reloc::Aarch64AddAbsLo12Nc),
                };
                assert_eq!((instruction, of.kind), (opcode | register << 5 | register, kind));
                assert_eq!(registers.get(&register), Some(&address));
                assert!(kind == Reloc::Aarch64AddAbsLo12Nc || of.addend == 0, "{code:?}");
                continue;
            }
            0b1010_0101 => Held::bits(half << shift),
            0b0010_0101 => Held::bits(!(half << shift)),
            0b1110_0101 => match registers.remove(&register) {
                Some(Held::Bits { bits, known: 64 }) => {
                    Held::bits(bits & !(0xffff << shift) | half << shift)
                }
                other => panic!("{other:?} in {code:?}"),
            },
            0b0110_0100 => {
                assert_eq!(first, 31, "{code:?}");
                Held::bits(logical_immediate(instruction))
            }
            0b0101_0100 => {
                assert_eq!((first, instruction >> 10 & 0x3f, instruction >> 21 & 3), (31, 0, 0));
                known(second).plus(0, wide)
            }
            opcode @ (0b0010_0010 | 0b1010_0010) => {
                let distance =
                    i64::from(instruction >> 10 & 0xfff) << (12 * (instruction >> 22 & 1));
                known(first).plus(if opcode >> 7 == 0 { distance } else { -distance }, wide)
            }
            _ => panic!("{instruction:#x} in {code:?}"),
        };
        let held = if wide { held } else { held.plus(0, false) };
        assert!(registers.insert(register, held).is_none(), "{code:?}");
    }
    registers
}
