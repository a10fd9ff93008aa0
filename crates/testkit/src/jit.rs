//! JITs of this machine, and the only place where code in them runs: in a child of this process, so
//! that wrongly merged code can damage nothing else.

#![allow(unsafe_code, reason = "compiled code is called through pointers, in a child process")]

use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_jit::{ArenaMemoryProvider, JITBuilder, JITModule};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// More than any program has. Only pages that are used take memory.
const CODE_AND_DATA: usize = 16 << 20;

/// How long a child may take, in seconds: far longer than any program takes.
const SECONDS: u32 = 10;

/// How many arguments a call passes. Functions ignore those that they do not have.
pub const ARGUMENTS: usize = 9;

/// Bytes of the buffer that calls can pass pointers into.
pub const BUFFER: usize = 768;

/// A call of compiled code, in the convention of C.
#[derive(Clone, Debug)]
pub struct Run {
    /// The address of the function.
    pub code: *const u8,
    /// Its arguments.
    pub arguments: [Argument; ARGUMENTS],
}

/// An argument.
#[derive(Clone, Copy, Debug)]
pub enum Argument {
    /// A number.
    Number(i64),
    /// The address of this number of bytes into the buffer.
    Buffer(i64),
}

impl Run {
    /// A call with one number.
    pub fn with(code: *const u8, number: i64) -> Run {
        let mut arguments = [Argument::Number(0); ARGUMENTS];
        arguments[0] = Argument::Number(number);
        Run { code, arguments }
    }
}

/// The result and the memory after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The result.
    pub result: i64,
    /// A hash of the buffer.
    pub memory: u64,
}

/// An empty module. `configure` can add symbols.
pub fn module(isa: OwnedTargetIsa, configure: impl FnOnce(&mut JITBuilder)) -> JITModule {
    let names = cranelift_module::default_libcall_names();
    let mut builder = JITBuilder::with_isa(isa, names);
    let memory = ArenaMemoryProvider::new_with_size(CODE_AND_DATA).expect("memory");
    builder.memory_provider(Box::new(memory));
    configure(&mut builder);
    JITModule::new(builder)
}

/// Frees a module none of whose code will be called again.
pub fn free(jit: JITModule) {
    // SAFETY: code runs in children only, which have ended.
    unsafe { jit.free_memory() }
}

/// A word of the data of a module.
///
/// # Panics
///
/// If it is not where a word can be.
pub fn word_at(place: *const u8) -> i64 {
    let word = place.cast::<i64>();
    assert!(!word.is_null() && word.is_aligned(), "{place:?}");
    // SAFETY: tests look at data that is defined and not freed.
    unsafe { word.read() }
}

/// The memory that a call gets.
fn buffer() -> [u8; BUFFER] {
    core::array::from_fn(|at| (at * 37 + 11) as u8)
}

/// A hash of what is left in memory (FNV-1a).
fn hash(buffer: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    buffer.iter().fold(0xcbf2_9ce4_8422_2325, step)
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

/// Makes these calls, one after the other, each with a buffer of its own at a multiple of 64.
/// Writes elsewhere is lost in the end. For calls that do not end, by a signal or in time, and for
/// all calls behind them, there is no result.
pub fn run(runs: &[Run]) -> Vec<Left> {
    let shared = Shared::new(runs.len());
    // SAFETY: the child runs compiled code that calls nothing but itself, and ends; it takes no
    // lock and allocates nothing.
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
    // SAFETY: the child wrote this number of results, one behind the other, and has ended.
    unsafe {
        let count = shared.start.add(COUNT).cast::<usize>().read();
        let results = shared.start.add(RESULTS).cast::<Left>();
        (0..count).map(|at| results.add(at).read()).collect()
    }
}

fn child(shared: &Shared, runs: &[Run]) -> ! {
    // SAFETY: signals end the child as they do without handlers; the calls are of functions that
    // take the arguments that they are given in this convention (those behind them are ignored),
    // and the results lie in memory that is there for them.
    unsafe {
        for signal in
            [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGALRM]
        {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::alarm(SECONDS);
        let memory = shared.start.cast::<[u8; BUFFER]>();
        for (at, run) in runs.iter().enumerate() {
            memory.write(buffer());
            let result = call(run, shared);
            let memory = hash(&memory.read());
            shared.start.add(RESULTS).cast::<Left>().add(at).write(Left { result, memory });
            shared.start.add(COUNT).cast::<usize>().write(at + 1);
        }
        libc::_exit(0)
    }
}

/// Makes a call.
///
/// # Safety
///
/// See [`child`].
unsafe fn call(Run { code, arguments }: &Run, shared: &Shared) -> i64 {
    let [a, b, c, d, e, f, g, h, i] = arguments.map(|argument| match argument {
        Argument::Number(number) => number,
        Argument::Buffer(offset) => shared.start as i64 + offset,
    });
    type Code = extern "C" fn(i64, i64, i64, i64, i64, i64, i64, i64, i64) -> i64;
    // SAFETY: the caller says so.
    let code: Code = unsafe { core::mem::transmute::<*const u8, Code>(*code) };
    code(a, b, c, d, e, f, g, h, i)
}

/// The most frames that are recorded.
const FRAMES: usize = 64;

/// Where [`stack_at_trap`] writes: the number of addresses, and the addresses.
static STACK: AtomicPtr<u64> = AtomicPtr::new(ptr::null_mut());
/// Where the code is of which it follows the frames.
static CODE: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Makes a call. If an instruction of it traps, returns the address of that instruction and the
/// return addresses of all frames from there to the call, innermost first; else nothing. Code must
/// preserve frame pointers, and be and call nothing but what is `within`.
///
/// # Panics
///
/// If there are more frames than the child records.
pub fn stack_at_trap(run: &Run, within: Range<u64>) -> Option<Vec<u64>> {
    let shared = Shared::new(FRAMES);
    STACK.store(shared.start.cast(), Ordering::Relaxed);
    CODE[0].store(within.start, Ordering::Relaxed);
    CODE[1].store(within.end, Ordering::Relaxed);
    // SAFETY: the child runs compiled code that calls nothing but itself, and ends; it takes no
    // lock and allocates nothing, and neither does its handler.
    match unsafe { libc::fork() } {
        -1 => panic!("no child: {}", std::io::Error::last_os_error()),
        0 => unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_flags = libc::SA_SIGINFO;
            action.sa_sigaction = on_trap as *const () as usize;
            for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP] {
                libc::sigaction(signal, &action, ptr::null_mut());
            }
            libc::signal(libc::SIGALRM, libc::SIG_DFL);
            libc::alarm(SECONDS);
            core::hint::black_box(call(run, &shared));
            libc::_exit(0)
        },
        child => {
            let mut status = 0;
            // SAFETY: `status` is written to and nothing else.
            let ended = unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(ended, child, "{}", std::io::Error::last_os_error());
        }
    }
    let words = shared.start.cast::<u64>();
    // SAFETY: the child wrote this number of words, and has ended.
    let words: Vec<u64> =
        unsafe { (0..1 + words.read()).map(|at| words.add(at as usize).read()).collect() };
    let (&count, addresses) = words.split_first().expect("the number");
    assert!(count < FRAMES as u64, "too many frames");
    (count > 0).then(|| addresses.to_vec())
}

/// Follows the frame pointers.
extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes the registers, and compiled code has frame pointers.
    unsafe {
        let context = &*context.cast::<libc::ucontext_t>();
        #[cfg(target_arch = "x86_64")]
        let (pc, mut frame) = (
            context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64,
            context.uc_mcontext.gregs[libc::REG_RBP as usize] as u64,
        );
        #[cfg(target_arch = "aarch64")]
        let (pc, mut frame) = (context.uc_mcontext.pc, context.uc_mcontext.regs[29]);
        let words = STACK.load(Ordering::Relaxed);
        let [start, end] = [0, 1].map(|at| CODE[at].load(Ordering::Relaxed));
        let (mut address, mut count) = (pc, 0);
        while count + 1 < FRAMES && (start..end).contains(&address) {
            count += 1;
            words.add(count).write(address);
            let saved = frame as *const u64;
            (address, frame) = (saved.add(1).read(), saved.read());
        }
        words.write(count as u64);
        libc::_exit(1)
    }
}
