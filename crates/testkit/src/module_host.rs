//! Running compiled code, for a test oracle that has no unsafe code itself.

#![allow(unsafe_code, reason = "compiled code is called through pointers")]

use crate::module::Host;
use cranelift_codegen::settings::{self, Configurable, Flags};
use cranelift_jit::{ArenaMemoryProvider, JITBuilder, JITModule};

/// The JIT of this machine.
pub struct ThisMachine;

/// More than any module of the tests has. Only pages that are used take memory.
const CODE_AND_DATA: usize = 4 << 20;

extern "C" fn outside(argument: i64) -> i64 {
    argument.wrapping_mul(31) + 7
}

static ZEROS: [u64; 8] = [0; 8];

impl Host for ThisMachine {
    fn jit(&mut self) -> JITModule {
        let mut flags = settings::builder();
        flags.set("is_pic", "false").expect("a shared setting");
        flags.set("use_colocated_libcalls", "false").expect("a shared setting");
        let isa = cranelift_native::builder().expect("a back end for this machine");
        let isa = isa.finish(Flags::new(flags)).expect("an ISA");
        let names = cranelift_module::default_libcall_names();
        let mut builder = JITBuilder::with_isa(isa, names);
        builder.symbol_lookup_fn(Box::new(|name| match name.as_bytes().first() {
            Some(b'f') => Some(outside as *const u8),
            Some(b'd') => Some(ZEROS.as_ptr().cast()),
            _ => None,
        }));
        let memory = ArenaMemoryProvider::new_with_size(CODE_AND_DATA).expect("memory");
        builder.memory_provider(Box::new(memory));
        JITModule::new(builder)
    }

    fn call(&mut self, code: *const u8, argument: i64) -> i64 {
        // SAFETY: it is called for functions that take and return one number in this convention, and
        // that end.
        let code: extern "C" fn(i64) -> i64 = unsafe { core::mem::transmute(code) };
        code(argument)
    }

    fn free(&mut self, jit: JITModule) {
        // SAFETY: none of its code runs, nor is any called again.
        unsafe { jit.free_memory() }
    }
}
