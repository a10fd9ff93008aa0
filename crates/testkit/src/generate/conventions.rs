//! The symbols that a generated function may refer to, and that a host must provide to run it.
//!
//! | symbol | what it is |
//! |---|---|
//! | `u0:N` | a function of the unit |
//! | `u1:K` | an imported function; its signature is [`import_signature`] |
//! | `u2:0` | the [memory](MEMORY_BYTES), aligned to 64 bytes |
//! | `u3:T` | an imported function that throws an exception of tag T; [`thrower_signature`] |
//! | `u4:N` | a read-only data object of the unit |
//!
//! References to `u0` may be colocated; all others never are, and none is thread-local.
//!
//! **Memory.** Its contents are arbitrary. The first 8 bytes are *fuel*: every function takes one
//! at entry and at every loop header, and traps with [`OUT_OF_FUEL`] when there is none, so
//! whatever number is there bounds the run; with [`USUAL_FUEL`], most runs end before. The next 8
//! bytes are written with the number of the seed of the function that was entered last. The last
//! quarter is never written.
//!
//! **What can be observed**: results, memory, the calls of imports with their arguments, traps with
//! their codes. Addresses never get there, nor do payloads of exceptions and registers of the
//! machine: two runs may have different ones. Floats are observed by their bits.
//!
//! **Exceptions** cross frames of [`CallConv::Tail`] and of others. The callee of a `try_call` that
//! may throw always has the convention `Tail`, which leaves no register for an unwinder to restore.
//! Handlers get payloads, and look at none.
//!
//! **Traps** of memory: an access through a pointer that is sometimes 0, at an offset of less than
//! a page, with a trap code. Nothing else leaves the memory, the stack slots and the data objects.

use cranelift_codegen::ir::{
    AbiParam, ArgumentExtension, Signature, TrapCode, UserExternalName, types,
};
use cranelift_codegen::isa::CallConv;

/// The namespace of functions of the unit.
pub const FUNCTIONS: u32 = 0;
/// The namespace of imported functions.
pub const IMPORTS: u32 = 1;
/// The namespace of the memory.
pub const MEMORY: u32 = 2;
/// The namespace of throwing functions.
pub const THROWERS: u32 = 3;
/// The namespace of data objects of the unit.
pub const DATA: u32 = 4;

/// The size of the memory.
pub const MEMORY_BYTES: u32 = 4096;
/// Where fuel is in memory, as an `i64`.
pub const FUEL_OFFSET: i32 = 0;
/// How much fuel there is in most runs. While nearly all of it is left, functions call what may
/// call them.
pub const USUAL_FUEL: i64 = 1000;
/// Where the number of the seed of the last function is in memory, as an `i64`.
pub const SEED_OFFSET: i32 = 8;
/// The first byte of memory that is never written.
pub const READONLY_OFFSET: u32 = 3072;
/// The trap code of a function that was entered, or of a loop that was repeated, without fuel.
pub const OUT_OF_FUEL: u8 = 42;

/// The number of imported functions.
pub const IMPORT_COUNT: u32 = 8;
/// The number of throwing functions, and of tags.
pub const THROWER_COUNT: u32 = 4;

/// The symbol of the memory.
pub fn memory_symbol() -> UserExternalName {
    UserExternalName::new(MEMORY, 0)
}

/// The trap code that says that fuel is used up.
pub fn out_of_fuel() -> TrapCode {
    TrapCode::unwrap_user(OUT_OF_FUEL)
}

/// The signature of the import `u1:K`. It has C's convention, at most two results (then an integer
/// and a float), and parameters that fit into registers.
///
/// # Panics
///
/// If there is no such import.
pub fn import_signature(k: u32) -> Signature {
    let mut signature = Signature::new(CallConv::SystemV);
    let (params, returns): (&[_], &[_]) = match k {
        0 => (&[], &[]),
        1 => (&[types::I64], &[types::I64]),
        2 => (&[types::I32, types::F64], &[types::F64]),
        3 => (&[types::I64, types::I64, types::I8], &[types::I32]),
        4 => (&[types::F32, types::I16], &[types::F32]),
        5 => (&[types::I8], &[types::I8]),
        6 => (&[types::F64, types::F32, types::I64], &[types::I64, types::F64]),
        7 => (&[types::I64], &[types::I16]),
        _ => panic!("there is no import {k}"),
    };
    signature.params = params.iter().copied().map(AbiParam::new).collect();
    signature.returns = returns.iter().copied().map(AbiParam::new).collect();
    // Imports that are implemented in another language get what that language expects.
    for param in signature.params.iter_mut().chain(&mut signature.returns) {
        if param.value_type.is_int() && param.value_type.bits() < 32 {
            let signed = k == 7;
            param.extension =
                if signed { ArgumentExtension::Sext } else { ArgumentExtension::Uext };
        }
    }
    signature
}

/// The signature of the throwing function `u3:T`. It never returns, whatever its results are.
///
/// # Panics
///
/// If there is no such function.
pub fn thrower_signature(tag: u32) -> Signature {
    let mut signature = Signature::new(CallConv::Tail);
    let (params, returns): (&[_], &[_]) = match tag {
        0 => (&[types::I64], &[types::I64]),
        1 => (&[], &[]),
        2 => (&[types::I64, types::I64], &[types::I32]),
        3 => (&[types::I64], &[types::F64, types::I64]),
        _ => panic!("there is no tag {tag}"),
    };
    signature.params = params.iter().copied().map(AbiParam::new).collect();
    signature.returns = returns.iter().copied().map(AbiParam::new).collect();
    signature
}
