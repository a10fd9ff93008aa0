//! A program without `std` that uses the library. It has a panic handler of its own: if anything
//! in its dependency tree linked `std`, there would be two, and `cargo check` would fail.
#![no_std]

extern crate alloc;

use core::alloc::{GlobalAlloc, Layout};

struct NoMemory;

// SAFETY: it never hands out memory, which an allocator may do.
unsafe impl GlobalAlloc for NoMemory {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: NoMemory = NoMemory;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Uses enough of the library to link it.
pub fn plan(functions: &[cranelift_mergefunc::cranelift_codegen::ir::Function]) -> usize {
    use cranelift_mergefunc::{Attributes, Merger, Options};
    let mut merger = Merger::new(Options::default());
    for func in functions {
        if let Some(symbol) = func.name.get_user() {
            let _ = merger.add(symbol.clone(), func, Attributes::default());
        }
    }
    let mut bodies = functions;
    merger.plan(&mut bodies).stats().merged.functions
}
