//! Thunks in raw bytes: instructions that set the registers of the extra arguments, then the jump.
//!
//! No other argument of the caller moves: the extra ones come last, and such a thunk is only made
//! where all of them are in registers in which the function itself gets no arguments (`registers`).
//! Elsewhere there is no such thunk (a call thunk in IR has the same effect). No other register
//! changes but one that holds nothing when a function is entered, and neither do the flags hold
//! anything then.
//!
//! A register is set from nothing, or from one that was set before: a value that is equal or near
//! takes fewer bytes so. The module of each architecture lists the possibilities; here the order is
//! chosen, which is the one of fewest bytes.

use super::registers::Register;
use super::setting::Setting;
use super::{Far, JumpThunk, OptimizeFor, Target, aarch64, x86_64};
use crate::extra_argument::{ExtraArgument, extra_parameter};
use alloc::vec;
use alloc::vec::Vec;
use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir::{ArgumentExtension, Signature, Type, UserExternalName, types};

/// The machine code of a thunk.
///
/// See the [example](crate::thunk).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThunkCode {
    /// The code, before relocation.
    pub bytes: Vec<u8>,
    /// The relocations, ascending.
    pub relocations: Vec<ThunkReloc>,
    /// The bytes that the back end reserves in addition to the code.
    veneer: u32,
}

/// A relocation of a thunk.
///
/// See the [example](crate::thunk).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThunkReloc {
    /// Where it applies, in bytes from the start of the thunk.
    pub offset: u32,
    /// Its kind.
    pub kind: Reloc,
    /// The referenced symbol.
    pub symbol: UserExternalName,
    /// Its addend in bytes.
    pub addend: i64,
}

impl ThunkCode {
    /// The memory that the thunk takes, in bytes: its code, and what the back end reserves for it.
    pub fn size(&self) -> u32 {
        self.bytes.len() as u32 + self.veneer
    }

    fn append(&mut self, setting: &Setting, symbol: Option<&UserExternalName>) {
        let start = self.bytes.len() as u32;
        for (offset, kind, addend) in setting.relocations() {
            let symbol = symbol.expect("only addresses are relocated").clone();
            self.relocations.push(ThunkReloc { offset: start + offset, kind, symbol, addend });
        }
        self.bytes.extend_from_slice(setting.bytes());
    }
}

/// The value that a register must hold.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    /// Of these bits, the lowest `width`; bits above those do not matter.
    Bits { bits: u64, width: u32 },
    /// An address.
    Address(Address<'a>),
}

/// An address of 64 bits.
#[derive(Clone, Copy)]
pub(super) struct Address<'a> {
    symbol: &'a UserExternalName,
    /// The distance from the symbol, in bytes.
    pub offset: i64,
    /// Whether the symbol is near, and how code gets its address if not.
    pub near: bool,
    pub far: Far,
}

impl Address<'_> {
    /// Whether an entry of the global offset table has the address itself: no offset is added to
    /// the loaded address.
    pub fn is_entry(&self) -> bool {
        self.offset == 0
    }
}

/// How one register follows from another one.
#[derive(Clone, Copy)]
pub(super) struct Step {
    /// To add to the other register: sign-extended from the bits that matter.
    pub distance: i64,
    /// Whether 64 bits are added. If not, 32 are, and the upper half of the result is zero.
    pub wide: bool,
    /// Whether the other register holds all bits that matter.
    pub equal: bool,
}

impl<'a> Value<'a> {
    /// `others` is the number of parameters before it. `None` for an address of another size than
    /// 64 bits.
    fn of(argument: &'a ExtraArgument, others: usize, far: Far) -> Option<Value<'a>> {
        let address = |ty: Type, symbol, offset, near| {
            let address = Address { symbol, offset, near, far };
            matches!(ty, types::I64 | types::F64).then_some(Value::Address(address))
        };
        match argument {
            // No register holds it.
            ExtraArgument::Constant { ty, bits: _ } if ty.bits() > 64 => None,
            ExtraArgument::Constant { ty, bits } => {
                let width = match extra_parameter(*ty, others).extension {
                    // The bits that the type does not have are 0, and so must be those of the
                    // register.
                    ArgumentExtension::Uext => 64,
                    ArgumentExtension::None => ty.bits(),
                    ArgumentExtension::Sext => return None,
                };
                Some(Value::Bits { bits: bits & u64::MAX >> (64 - ty.bits()), width })
            }
            ExtraArgument::Function { ty, symbol, signature: _, colocated } => {
                address(*ty, symbol, 0, *colocated)
            }
            ExtraArgument::Address { ty, symbol, offset, colocated } => {
                address(*ty, symbol, *offset, *colocated)
            }
        }
    }

    /// How to compute it from another value in a register, if that is possible by an addition.
    pub(super) fn step_from(&self, other: &Value<'_>) -> Option<Step> {
        match (self, other) {
            (&Value::Bits { bits, width }, &Value::Bits { bits: from, width: known }) => {
                let differ = (bits ^ from) & (u64::MAX >> (64 - width)) != 0;
                let equal = width <= known && !differ;
                // The lowest bits of a sum depend on no higher ones of the addend, which may be
                // unknown.
                let wide = u32::try_from(bits).is_err();
                let width = if wide { width } else { width.min(32) };
                let unused = 64 - width;
                let distance = (bits.wrapping_sub(from) << unused) as i64 >> unused;
                (width <= known).then_some(Step { distance, wide, equal })
            }
            (Value::Address(own), Value::Address(from)) => {
                // Through the table, another definition may be found.
                let same = own.symbol == from.symbol && own.near == from.near;
                let distance = own.offset.checked_sub(from.offset).filter(|_| same)?;
                Some(Step { distance, wide: true, equal: distance == 0 })
            }
            (Value::Bits { .. }, Value::Address(_)) | (Value::Address(_), Value::Bits { .. }) => {
                None
            }
        }
    }

    fn symbol(&self) -> Option<&'a UserExternalName> {
        match self {
            Value::Bits { .. } => None,
            Value::Address(address) => Some(address.symbol),
        }
    }
}

impl Target {
    /// A thunk to `to` in raw bytes: for functions of this signature, with these extra arguments.
    /// `None` if there is none for this target or for these arguments.
    ///
    /// Thunks of a plan are to be [optimised for](crate::Plan::optimize_for) what the plan was made
    /// for, which counted their bytes.
    pub fn thunk_code(
        &self,
        signature: &Signature,
        arguments: &[ExtraArgument],
        to: &UserExternalName,
        optimize: OptimizeFor,
    ) -> Option<ThunkCode> {
        let jump = self.jump_thunk?;
        let mut code = ThunkCode {
            bytes: jump.landing_pad().to_vec(),
            relocations: Vec::new(),
            veneer: jump.veneer,
        };
        if !arguments.is_empty() {
            let registers = self.registers(signature, arguments.iter().map(ExtraArgument::ty))?;
            let first = signature.params.len();
            let values = arguments.iter().enumerate();
            let values = values.map(|(at, argument)| Value::of(argument, first + at, self.far));
            let values = values.collect::<Option<Vec<Value<'_>>>>()?;
            let alone = |at: usize| match jump.relocation {
                Reloc::X86CallPCRel4 => x86_64::from_scratch(registers[at], &values[at], optimize),
                _ => aarch64::from_scratch(registers[at], &values[at]),
            };
            let derived = |at: usize, from: usize| {
                let step = values[at].step_from(&values[from])?;
                match jump.relocation {
                    Reloc::X86CallPCRel4 => x86_64::derived(registers[at], registers[from], step),
                    _ => aarch64::derived(registers[at], registers[from], step),
                }
            };
            let alone = (0..registers.len()).map(alone).collect::<Option<Vec<Setting>>>()?;
            for (at, setting) in shortest(&registers, &alone, derived) {
                code.append(&setting, values[at].symbol());
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

/// The registers in the order in which they are set, and how: `alone`, or `derived` from one that
/// is set before.
///
/// The order of fewest bytes. For integers it is found by taking for each set of registers the best
/// one to be set last: there are eight at most. Of equally good orders it is that of the arguments,
/// as far as it can be. Floating-point registers come after them, in order: no other one is derived
/// from them but by a copy.
fn shortest(
    registers: &[Register],
    alone: &[Setting],
    derived: impl Fn(usize, usize) -> Option<Setting>,
) -> Vec<(usize, Setting)> {
    let is_integer = |at: &usize| matches!(registers[*at], Register::Integer(_));
    let (integers, floats): (Vec<usize>, Vec<usize>) = (0..registers.len()).partition(is_integer);
    let mut order = shortest_of_integers(&integers, alone, &derived);
    for at in floats {
        let derived = order.iter().filter_map(|&(from, _)| derived(at, from));
        let settings = core::iter::once(alone[at]).chain(derived);
        let setting = settings.min_by_key(Setting::cost).expect("alone it can be set");
        order.push((at, setting));
    }
    order
}

fn shortest_of_integers(
    integers: &[usize],
    alone: &[Setting],
    derived: impl Fn(usize, usize) -> Option<Setting>,
) -> Vec<(usize, Setting)> {
    // A setting that is not better than the one from scratch is left out.
    let mut better: Vec<(usize, usize, Setting)> = Vec::new();
    for (number, &at) in integers.iter().enumerate() {
        for (other, &from) in integers.iter().enumerate().filter(|&(other, _)| other != number) {
            if let Some(setting) = derived(at, from).filter(|it| it.cost() < alone[at].cost()) {
                better.push((number, other, setting));
            }
        }
    }
    if better.is_empty() {
        return integers.iter().map(|&at| (at, alone[at])).collect();
    }
    let count = integers.len();
    let setting = |number: usize, before: usize| {
        let possible = better.iter();
        let possible = possible.filter(|&&(of, from, _)| of == number && before >> from & 1 != 0);
        let possible = possible.map(|(_, _, setting)| setting);
        *possible.min_by_key(|setting| setting.cost()).unwrap_or(&alone[integers[number]])
    };
    // By the registers that are set, as bits: what that takes, and which is the last.
    let mut best = vec![(0, 0); 1 << count];
    for set in 1..best.len() {
        let last = (0..count).rev().filter(|last| set >> last & 1 != 0).map(|last| {
            let before = set & !(1 << last);
            (best[before].0 + setting(last, before).cost(), last)
        });
        best[set] = last.min_by_key(|&(cost, _)| cost).expect("one is set");
    }
    let mut order = Vec::with_capacity(count);
    let mut set = best.len() - 1;
    while set != 0 {
        let (_, last) = best[set];
        set &= !(1 << last);
        order.push((integers[last], setting(last, set)));
    }
    order.reverse();
    order
}
