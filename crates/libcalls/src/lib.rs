//! The functions of the runtime library that compiled code calls.
//!
//! They are named here and not looked up in the program that happens to load the code. Nothing is
//! loaded here.
#![allow(unsafe_code, reason = "functions of C are named here, and vectors taken apart")]

use cranelift_codegen::ir::LibCall;

/// Finds an address, which no constant can hold.
pub type Address = fn() -> *const u8;

/// The functions of the runtime library that compiled code may call. Taken from here and not looked
/// up by name, so that it does not depend on what this program happens to be linked with.
pub const LIBRARY: &[(LibCall, Address)] = &[
    (LibCall::CeilF32, || ceil_f32 as *const u8),
    (LibCall::CeilF64, || ceil_f64 as *const u8),
    (LibCall::FloorF32, || floor_f32 as *const u8),
    (LibCall::FloorF64, || floor_f64 as *const u8),
    (LibCall::TruncF32, || trunc_f32 as *const u8),
    (LibCall::TruncF64, || trunc_f64 as *const u8),
    (LibCall::NearestF32, || nearest_f32 as *const u8),
    (LibCall::NearestF64, || nearest_f64 as *const u8),
    (LibCall::FmaF32, || fma_f32 as *const u8),
    (LibCall::FmaF64, || fma_f64 as *const u8),
    (LibCall::Memcpy, || memcpy as *const u8),
    (LibCall::Memset, || memset as *const u8),
    (LibCall::Memmove, || memmove as *const u8),
    (LibCall::Memcmp, || memcmp as *const u8),
    #[cfg(target_arch = "x86_64")]
    (LibCall::X86Pshufb, || x86_pshufb as *const u8),
];

// SAFETY: these are the functions of the C library that every Rust program links.
unsafe extern "C" {
    fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8;
    fn memset(to: *mut u8, byte: i32, bytes: usize) -> *mut u8;
    fn memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8;
    fn memcmp(a: *const u8, b: *const u8, bytes: usize) -> i32;
}

/// Functions in the calling convention of C, as library calls have it.
macro_rules! float_functions {
    ($($name:ident($x:ident: $float:ty $(, $more:ident)*) = $result:expr;)*) => {
        $(extern "C" fn $name($x: $float $(, $more: $float)*) -> $float {
            $result
        })*
    };
}

float_functions! {
    ceil_f32(x: f32) = x.ceil();
    ceil_f64(x: f64) = x.ceil();
    floor_f32(x: f32) = x.floor();
    floor_f64(x: f64) = x.floor();
    trunc_f32(x: f32) = x.trunc();
    trunc_f64(x: f64) = x.trunc();
    nearest_f32(x: f32) = x.round_ties_even();
    nearest_f64(x: f64) = x.round_ties_even();
    fma_f32(x: f32, y, z) = x.mul_add(y, z);
    fma_f64(x: f64, y, z) = x.mul_add(y, z);
}

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m128i;

/// Bytes of `a` by the indices in `b`, or zero where the highest bit of an index is set.
#[cfg(target_arch = "x86_64")]
#[expect(improper_ctypes_definitions, reason = "C passes vectors in registers, as Cranelift does")]
extern "C" fn x86_pshufb(a: __m128i, b: __m128i) -> __m128i {
    // SAFETY: sixteen bytes are sixteen bytes, and all bit patterns are allowed.
    let bytes = |vector| unsafe { std::mem::transmute::<__m128i, [u8; 16]>(vector) };
    let (a, b) = (bytes(a), bytes(b));
    let shuffled = b.map(|index| match index & 0x80 {
        0 => a[usize::from(index & 15)],
        _ => 0,
    });
    // SAFETY: as above.
    unsafe { std::mem::transmute::<[u8; 16], __m128i>(shuffled) }
}
