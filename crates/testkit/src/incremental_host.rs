//! Runs compiled code in a child of this process, so that wrongly merged code can damage nothing else.

#![allow(unsafe_code, reason = "compiled code is called through pointers, in a child process")]

use crate::incremental::{BUFFER, Host, Left, MOST_EXTRAS, Run, arguments, buffer, hash};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable, Flags};
use cranelift_jit::{ArenaMemoryProvider, JITBuilder, JITModule};
use cranelift_mergefunc::cranelift_codegen;
use std::ptr;
use std::sync::OnceLock;

/// More than any program has. Only pages that are used take memory.
const CODE_AND_DATA: usize = 16 << 20;

/// How long a child may take, in seconds: far longer than any program takes.
const SECONDS: u32 = 10;

/// The JIT of this machine.
pub struct ThisMachine;

fn isa(speed: bool) -> OwnedTargetIsa {
    static ISAS: [OnceLock<OwnedTargetIsa>; 2] = [const { OnceLock::new() }; 2];
    let isa = ISAS[usize::from(speed)].get_or_init(|| {
        let mut flags = settings::builder();
        for (name, value) in [
            ("is_pic", "false"),
            ("use_colocated_libcalls", "false"),
            ("preserve_frame_pointers", "true"),
            ("opt_level", if speed { "speed" } else { "none" }),
        ] {
            flags.set(name, value).expect("a shared setting");
        }
        let isa = cranelift_native::builder().expect("a back end for this machine");
        isa.finish(Flags::new(flags)).expect("an ISA")
    });
    isa.clone()
}

/// Memory that a child shares: the buffer, how many calls returned, and their results.
struct Shared {
    start: *mut u8,
    size: usize,
}

/// Behind the buffer, at a multiple of 64.
const COUNT: usize = BUFFER.next_multiple_of(64);
const RESULTS: usize = COUNT + 64;

impl Shared {
    fn new(runs: usize) -> Shared {
        let size = RESULTS + runs * size_of::<Left>();
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(ptr::null_mut(), size, access, kind, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "memory");
        Shared { start: start.cast(), size }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, and the child has ended.
        unsafe { libc::munmap(self.start.cast(), self.size) };
    }
}

impl Host for ThisMachine {
    fn isa(&mut self, speed: bool) -> OwnedTargetIsa {
        isa(speed)
    }

    fn jit(&mut self, speed: bool) -> JITModule {
        let names = cranelift_module::default_libcall_names();
        let mut builder = JITBuilder::with_isa(isa(speed), names);
        let memory = ArenaMemoryProvider::new_with_size(CODE_AND_DATA).expect("memory");
        builder.memory_provider(Box::new(memory));
        JITModule::new(builder)
    }

    fn run(&mut self, runs: &[Run]) -> Vec<Left> {
        let shared = Shared::new(runs.len());
        // SAFETY: the child runs compiled code that calls nothing but itself, and ends; it takes no lock and
        // allocates nothing.
        match unsafe { libc::fork() } {
            -1 => panic!("no child: {}", std::io::Error::last_os_error()),
            0 => child(&shared, runs),
            child => {
                let mut status = 0;
                // SAFETY: `status` is written to and nothing else.
                let ended = unsafe { libc::waitpid(child, &mut status, 0) };
                assert_eq!(ended, child, "{}", std::io::Error::last_os_error());
            }
        }
        // SAFETY: the child wrote so many results, one behind the other, and has ended.
        unsafe {
            let count = shared.start.add(COUNT).cast::<usize>().read();
            let results = shared.start.add(RESULTS).cast::<Left>();
            (0..count).map(|at| results.add(at).read()).collect()
        }
    }

    fn free(&mut self, jit: JITModule) {
        // SAFETY: none of its code runs, nor is any called again.
        unsafe { jit.free_memory() }
    }
}

fn child(shared: &Shared, runs: &[Run]) -> ! {
    // SAFETY: signals end the child as they do without handlers; the calls are of functions that take the
    // arguments that they are given in this convention (those behind them are ignored), and the results lie
    // in memory that is there for them.
    unsafe {
        for signal in
            [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGALRM]
        {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::alarm(SECONDS);
        let memory = shared.start.cast::<[u8; BUFFER]>();
        for (at, Run { code, call }) in runs.iter().enumerate() {
            memory.write(buffer());
            let [a, b, c, d, e, f, g, h, i] = arguments(call, shared.start as i64);
            const { assert!(MOST_EXTRAS == 5) };
            type Code = extern "C" fn(i64, i64, i64, i64, i64, i64, i64, i64, i64) -> i64;
            let code: Code = core::mem::transmute::<*const u8, Code>(*code);
            let result = code(a, b, c, d, e, f, g, h, i);
            let memory = hash(&memory.read());
            shared.start.add(RESULTS).cast::<Left>().add(at).write(Left { result, memory });
            shared.start.add(COUNT).cast::<usize>().write(at + 1);
        }
        libc::_exit(0)
    }
}
