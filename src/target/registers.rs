//! Which registers extra arguments are in. All of them come behind the function's own arguments, and are integers.
//!
//! The answer is `None` where some would be on the stack, and where a parameter is not simply in one register.

use alloc::vec::Vec;
use cranelift_codegen::ir::{AbiParam, ArgumentPurpose, Signature, Type};
use cranelift_codegen::isa::CallConv;

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

/// The registers of `count` extra integers: rdi, rsi, rdx, rcx, r8, r9.
pub(super) fn x86_64(signature: &Signature, count: usize) -> Option<Vec<u8>> {
    const ORDER: [u8; 6] = [7, 6, 2, 1, 8, 9];
    match signature.call_conv {
        CallConv::SystemV | CallConv::Fast | CallConv::Tail => {}
        _ => return None,
    }
    let [first, _] = taken(signature, 1)?;
    Some(ORDER.get(first..first + count)?.to_vec())
}

/// The registers of `count` extra integers: x0 to x7, of which two are not for arguments in tail calls.
pub(super) fn aarch64(signature: &Signature, count: usize) -> Option<Vec<u8>> {
    let reserved = match signature.call_conv {
        CallConv::SystemV | CallConv::Fast | CallConv::AppleAarch64 => 0,
        CallConv::Tail => 2,
        _ => return None,
    };
    // The address of a returned structure comes in x8. Other types take other registers.
    let [integers, _] = taken(signature, 0)?;
    let first = reserved + integers;
    let end = first + count;
    (end <= 8).then(|| (first as u8..end as u8).collect())
}
