//! Which registers extra arguments are in. All of them come behind the function's own arguments.
//!
//! The answer is `None` where it is not known: where some arguments would be on the stack, and
//! where a parameter is not simply in one register.

use super::Target;
use alloc::vec::Vec;
use core::ops::Range;
use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir::{AbiParam, ArgumentPurpose, Signature, Type, types};
use cranelift_codegen::isa::CallConv;

/// A register for arguments, by its number in code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Register {
    Integer(u8),
    /// Which integers and addresses take where all integer registers are taken.
    Float(u8),
}

/// The registers in which a function gets no arguments of its own, in the order in which further
/// ones take them.
struct Free {
    integers: &'static [u8],
    floats: Range<u8>,
}

/// Registers for floating-point arguments, on both targets: xmm0 to xmm7, v0 to v7.
const FLOATS: usize = 8;

impl Free {
    /// The free registers behind the arguments of a function of this signature.
    fn of(target: &Target, signature: &Signature) -> Option<Free> {
        use CallConv as C;
        /// rdi, rsi, rdx, rcx, r8, r9
        const X86_64: &[u8] = &[7, 6, 2, 1, 8, 9];
        /// x0 to x7
        const AARCH64: &[u8] = &[0, 1, 2, 3, 4, 5, 6, 7];
        let (integers, struct_return) = match (target.jump_thunk?.relocation, signature.call_conv) {
            (Reloc::X86CallPCRel4, C::SystemV | C::Fast | C::Tail) => (X86_64, 1),
            // The address of a returned structure comes in x8.
            (Reloc::Arm64Call, C::SystemV | C::Fast | C::AppleAarch64) => (AARCH64, 0),
            // Two are not for arguments in tail calls.
            (Reloc::Arm64Call, C::Tail) => (&AARCH64[2..], 0),
            _ => return None,
        };
        let [integer, float] = taken(signature, struct_return)?;
        Some(Free {
            integers: integers.get(integer..).unwrap_or_default(),
            floats: float.min(FLOATS) as u8..FLOATS as u8,
        })
    }

    fn integer(&mut self) -> Option<Register> {
        let (&first, rest) = self.integers.split_first()?;
        self.integers = rest;
        Some(Register::Integer(first))
    }

    fn float(&mut self) -> Option<Register> {
        self.floats.next().map(Register::Float)
    }
}

/// How many integer registers, and how many others, the parameters of a function take. `None` if
/// that is not simply one for each. `struct_return` is the number for the address of a returned
/// structure.
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

impl Target {
    /// The registers of extra arguments of these types.
    pub(super) fn registers(
        &self,
        signature: &Signature,
        types: impl Iterator<Item = Type>,
    ) -> Option<Vec<Register>> {
        let mut free = Free::of(self, signature)?;
        types.map(|ty| if ty.is_int() { free.integer() } else { free.float() }).collect()
    }

    /// The types in which extra arguments of these types are passed to a body, behind the
    /// parameters of `signature`: integers and addresses for which only a floating-point register
    /// is left as the `f32` or `f64` of the same bits. On the stack, each would take more bytes,
    /// and a thunk a frame.
    pub(crate) fn passed_as(
        &self,
        signature: &Signature,
        types: impl IntoIterator<Item = Type>,
    ) -> Vec<Type> {
        let mut free = Free::of(self, signature);
        let place = |ty: Type| {
            let Some(free) = free.as_mut().filter(|_| ty.is_int() && ty.bits() <= 64) else {
                return ty;
            };
            match free.integer().or_else(|| free.float()) {
                Some(Register::Float(_)) if ty.bits() > 32 => types::F64,
                Some(Register::Float(_)) => types::F32,
                Some(Register::Integer(_)) | None => ty,
            }
        };
        types.into_iter().map(place).collect()
    }
}
