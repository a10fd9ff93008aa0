//! The environment of a translated program: memory, table, and the context that points to them.
//!
//! The contents of a unit and the layout of the context are in `testkit::programs`.

#![expect(unsafe_code, reason = "compiled code is called, and shares memory with the host")]

use std::collections::BTreeMap;
use testkit::programs::{Image, PAGE, RESERVED, context};

/// The memory of a unit: one for all variants, so that no variant has better pages.
pub struct Memory {
    base: *mut u8,
    len: usize,
}

impl Memory {
    pub fn new(image: &Image) -> Memory {
        let len = image.pages * PAGE;
        // SAFETY: a new mapping that nothing else refers to, and a part of it.
        let base = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let base = libc::mmap(std::ptr::null_mut(), RESERVED, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED, "no address space");
            let writable = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(libc::mprotect(base, len, writable), 0, "no memory");
            base.cast::<u8>()
        };
        Memory { base, len }
    }

    /// Restores the memory to its state before the program ran.
    fn reset(&self, image: &Image) {
        // SAFETY: mapped, writable and as large, and no code is running.
        let memory = unsafe { std::slice::from_raw_parts_mut(self.base, self.len) };
        memory.fill(0);
        for (start, bytes) in &image.data {
            memory[*start..][..bytes.len()].copy_from_slice(bytes);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and no pointers into it are left.
        unsafe { libc::munmap(self.base.cast(), RESERVED) };
    }
}

/// `VMFuncRef`.
#[repr(C)]
struct FunctionRef {
    array_call: u64,
    wasm_call: u64,
    type_index: u64,
    context: u64,
}

/// The surroundings of the code of one variant.
pub struct World<'a> {
    image: &'a Image,
    memory: &'a Memory,
    context: Vec<u64>,
    /// Kept alive as long as the context.
    _behind: Behind,
}

/// Memory that the context points to.
struct Behind {
    _store: Vec<u64>,
    _builtins: Vec<u64>,
    _types: Vec<u32>,
    _table: Vec<u64>,
    _functions: Vec<FunctionRef>,
}

impl<'a> World<'a> {
    /// With the addresses of the functions in the table.
    pub fn new(image: &'a Image, memory: &'a Memory, addresses: &BTreeMap<u32, u64>) -> World<'a> {
        let mut words = vec![0; 16];
        // The limit of the stack is 0, so that it is never reached.
        let mut store = vec![0; 32];
        let mut builtins = vec![no_such_builtin as *const () as u64; 128];
        builtins[1] = copy as *const () as u64;
        builtins[2] = fill as *const () as u64;
        // Every type is known by its own number.
        let types: Vec<u32> = (0..256).collect();
        let functions: Vec<FunctionRef> = image
            .elements
            .iter()
            .map(|element| FunctionRef {
                array_call: 0,
                wasm_call: addresses[&element.function],
                type_index: u64::from(element.ty),
                context: words.as_mut_ptr() as u64,
            })
            .collect();
        // The lowest bit says that an element is initialised. An element that no program calls is
        // null, and a call of it would trap.
        let mut table = vec![1; image.table];
        for (element, function) in image.elements.iter().zip(&functions) {
            table[element.index] = std::ptr::from_ref(function) as u64 | 1;
        }
        words[context::STORE] = store.as_mut_ptr() as u64;
        words[context::BUILTINS] = builtins.as_ptr() as u64;
        words[context::TYPES] = types.as_ptr() as u64;
        words[context::MEMORY] = memory.base as u64;
        words[context::MEMORY_LEN] = memory.len as u64;
        words[context::TABLE] = table.as_ptr() as u64;
        words[context::TABLE_LEN] = table.len() as u64;
        let _behind = Behind {
            _store: store,
            _builtins: builtins,
            _types: types,
            _table: table,
            _functions: functions,
        };
        World { image, memory, context: words, _behind }
    }

    /// Restores the state before a program ran.
    pub fn reset(&mut self) {
        self.context[context::STACK_POINTER] = u64::from(self.image.stack_pointer);
        self.memory.reset(self.image);
    }

    /// Runs a program: the code at an address of `(context, how much) -> checksum`.
    pub fn run(&mut self, entry: *const u8, n: u32) -> u64 {
        // SAFETY: the entry was declared with this signature, and its code is never freed. The
        // program accesses only its memory and this context, or traps.
        let entry =
            unsafe { std::mem::transmute::<*const u8, extern "C" fn(*mut u64, u32) -> u64>(entry) };
        entry(self.context.as_mut_ptr(), n)
    }
}

/// `memory.copy`, after the program checked the bounds.
extern "C" fn copy(_: *mut u64, to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the program checked them.
    unsafe { to.copy_from(from, len) };
}

/// `memory.fill`, after the program checked the bounds.
extern "C" fn fill(_: *mut u64, to: *mut u8, byte: u32, len: usize) {
    // SAFETY: the program checked them.
    unsafe { to.write_bytes(byte as u8, len) };
}

extern "C" fn no_such_builtin() {
    // There is no frame of the host to unwind to.
    eprintln!("a program calls a Wasmtime builtin that is not provided");
    std::process::abort();
}
