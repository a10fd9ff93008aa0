//! The allocator: blocks of powers of two from one array, and a list of free ones of each size.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::null_mut;

const BYTES: usize = 12 << 20;

#[repr(align(4096))]
struct Room(UnsafeCell<[u8; BYTES]>);

struct Heap {
    used: UnsafeCell<usize>,
    free: UnsafeCell<[*mut u8; 32]>,
}

// SAFETY: there are no threads.
unsafe impl Sync for Room {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

static ROOM: Room = Room(UnsafeCell::new([0; BYTES]));

#[global_allocator]
static HEAP: Heap = Heap { used: UnsafeCell::new(0), free: UnsafeCell::new([null_mut(); 32]) };

/// The logarithm of the size of a block for this.
fn class(layout: Layout) -> usize {
    let bytes = layout.size().max(layout.align()).max(8);
    (usize::BITS - (bytes - 1).leading_zeros()) as usize
}

// SAFETY: blocks are as large as they must be, aligned to their size, and given out once.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let class = class(layout);
        unsafe {
            let free = &mut *self.free.get();
            let head = free[class];
            if !head.is_null() {
                free[class] = *head.cast::<*mut u8>();
                return head;
            }
            let bytes = 1 << class;
            let used = &mut *self.used.get();
            let start = (*used + bytes - 1) & !(bytes - 1);
            if start + bytes > BYTES {
                return null_mut();
            }
            *used = start + bytes;
            ROOM.0.get().cast::<u8>().add(start)
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe {
            let free = &mut *self.free.get();
            let class = class(layout);
            *block.cast::<*mut u8>() = free[class];
            free[class] = block;
        }
    }
}
