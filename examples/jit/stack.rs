//! A function of the host that compiled code calls: it notes the return addresses of the frames
//! that led to it, by their frame pointers.

#![allow(unsafe_code, reason = "frames are found by their pointers")]

use cranelift_mergefunc::explain::MergeMap;
use std::arch::naked_asm;
use std::cell::{Cell, RefCell};

thread_local! {
    /// The first address of compiled code, and the one behind it.
    static CODE: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    static STACKS: RefCell<Vec<Vec<u64>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `call`, which runs code of this map.
pub fn within<T>(map: &MergeMap, call: impl FnOnce() -> T) -> T {
    let (start, end) = map.code().fold((u64::MAX, 0), |(start, end), code| {
        (start.min(code.start), end.max(code.start + code.size))
    });
    CODE.set((start, end));
    call()
}

/// The return addresses that were noted at each call, innermost first.
pub fn take() -> Vec<Vec<u64>> {
    STACKS.take()
}

/// Returns `x`. Where it was called is noted.
#[unsafe(naked)]
pub extern "C" fn stack(x: i64) -> i64 {
    #[cfg(target_arch = "x86_64")]
    naked_asm!("mov rsi, [rsp]", "mov rdx, rbp", "jmp {}", sym note);
    #[cfg(target_arch = "aarch64")]
    naked_asm!("mov x1, x30", "mov x2, x29", "b {}", sym note);
}

/// `frame` is the frame of the code at `address`: the frame pointer and the return address of its
/// caller.
extern "C" fn note(x: i64, mut address: u64, mut frame: *const [u64; 2]) -> i64 {
    let (start, end) = CODE.get();
    let mut addresses = Vec::new();
    while (start..=end).contains(&address) {
        addresses.push(address);
        // SAFETY: all compiled code has frame pointers, and `address` is in compiled code.
        let [next, caller] = unsafe { frame.read() };
        (address, frame) = (caller, next as *const [u64; 2]);
    }
    STACKS.with_borrow_mut(|stacks| stacks.push(addresses));
    x
}
