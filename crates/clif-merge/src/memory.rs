//! Exhausted memory: one line, and the exit code of input that is too large.
//!
//! Rust itself would end the program by a signal, with a backtrace that takes more memory, and only
//! a nightly compiler can change that. An allocator can, so here is one: that of the system, which
//! never reports a failure to its caller. It is for allocations that the system refuses
//! (`ulimit -v`, a container without overcommitment). A system that overcommits memory ends
//! programs by its own rules.
#![allow(unsafe_code, reason = "an allocator cannot be anything else; it calls that of the system")]

use crate::exit::Exit;
use crate::unfinished;
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write as _;

#[global_allocator]
static ALLOCATOR: OrEnd = OrEnd;

/// The allocator of the system, or the end of the program.
struct OrEnd;

/// A pointer, unless there is no memory for that many bytes.
fn or_end(pointer: *mut u8, bytes: usize) -> *mut u8 {
    if pointer.is_null() {
        end(bytes);
    }
    pointer
}

/// Ends the program. Nothing here allocates but the removal of a directory of temporary files, for
/// which a failure ends the program at once: it stays then.
#[cold]
fn end(bytes: usize) -> ! {
    unfinished::remove();
    let _ = writeln!(
        std::io::stderr(),
        "error: out of memory: the system refuses {bytes} more bytes; a smaller unit may fit",
    );
    std::process::exit(i32::from(Exit::Input.code()))
}

// SAFETY: every call is passed on as it is to the allocator of the system, which upholds the
// contract.
unsafe impl GlobalAlloc for OrEnd {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of `GlobalAlloc`, which both allocators share; so
        // below.
        or_end(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        or_end(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as above.
        or_end(unsafe { System.realloc(pointer, layout, bytes) }, bytes)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}
