//! One invocation: the trace of its calls of imports, and where it continues after a signal.
//!
//! The handler runs in the middle of compiled code. It reads tables, and writes what stopped the
//! invocation and the registers with which the thread continues; it allocates nothing, takes no
//! lock, and calls nothing that does.

use super::code::{Handler, Tables};
use super::loader::{Arena, Image};
use super::{MAX_TRACE, Slot, without_address};
use crate::differential::{Call, SOME_ADDRESS, import_result};
use crate::program::THROWING;
use cranelift_codegen::ir::{ArgumentPurpose, Signature, TrapCode, Type, UserExternalName};
use cranelift_mergefunc::cranelift_codegen;
use std::cell::Cell;
use std::ptr;
use std::sync::OnceLock;

/// What stopped an invocation.
#[derive(Clone, Copy, Debug)]
pub enum Stop {
    Trap(TrapCode),
    Signal(i32),
    Uncaught(u32),
    GaveUp,
}

/// An invocation.
pub struct Run<'a> {
    arena: &'a Arena,
    image: &'a Image,
    /// Where a trap continues.
    context: Context,
    pub stop: Option<Stop>,
    pub trace: Vec<Call>,
    /// Why a stub is about to trap.
    thrown: Option<Thrown>,
}

/// What the outer trampoline leaves.
#[repr(C)]
#[derive(Default)]
struct Context {
    handler: u64,
    sp: u64,
    fp: u64,
}

#[derive(Clone, Copy)]
enum Thrown {
    Exception { tag: u32, payload: [u64; 2] },
    GiveUp,
}

/// The data of a stub.
pub struct Import {
    pub symbol: UserExternalName,
    pub params: Vec<(Type, ArgumentPurpose)>,
    pub returns: Vec<Type>,
    /// The tag of the exception that it throws.
    pub throws: Option<u32>,
}

impl Import {
    /// The address of the data of a stub. The data is kept as long as the process runs, because code refers to it.
    pub fn leak(symbol: &UserExternalName, signature: &Signature) -> u64 {
        let params = signature.params.iter();
        let import = Import {
            symbol: symbol.clone(),
            params: params.map(|param| (param.value_type, param.purpose)).collect(),
            returns: signature.returns.iter().map(|result| result.value_type).collect(),
            throws: (symbol.namespace == THROWING).then_some(symbol.index),
        };
        ptr::from_ref(Box::leak(Box::new(import))) as u64
    }
}

thread_local! {
    /// The invocation that runs on this thread.
    static CURRENT: Cell<*mut Run<'static>> = const { Cell::new(ptr::null_mut()) };
    /// The stack of this thread, and what is just below it.
    static STACK: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
}

impl<'a> Run<'a> {
    pub fn new(arena: &'a Arena, image: &'a Image) -> Self {
        let context = Context::default();
        Run { arena, image, context, stop: None, trace: Vec::new(), thrown: None }
    }

    /// Calls the function at an address through the inner trampoline of its signature.
    pub fn call(&mut self, inner: u64, function: u64, slots: &mut [Slot]) {
        // SAFETY: the address is that of the outer trampoline, which has this signature.
        let outer: extern "C" fn(u64, u64, *mut Slot, *mut Context) =
            unsafe { std::mem::transmute(self.arena.outer_trampoline() as *const u8) };
        let context = &raw mut self.context;
        CURRENT.set(ptr::from_mut(self).cast());
        outer(inner, function, slots.as_mut_ptr(), context);
        CURRENT.set(ptr::null_mut());
    }
}

/// What every stub calls. Writes the call down and puts the results into the slots; returns 1 if the
/// stub is to trap.
pub extern "C" fn imported(import: &Import, slots: *mut Slot) -> u8 {
    // SAFETY: a stub runs only during an invocation of its thread, and has a slot for each value.
    let (run, slots) = unsafe {
        let count = import.params.len().max(import.returns.len());
        (&mut *CURRENT.get(), std::slice::from_raw_parts_mut(slots, count))
    };
    let Import { symbol, params, returns, throws } = import;
    let arguments = slots.iter().zip(params).map(|(slot, (ty, purpose))| match purpose {
        ArgumentPurpose::Normal | ArgumentPurpose::VMContext => {
            without_address(run.arena, slot.bits(*ty), *ty)
        }
        ArgumentPurpose::StructArgument(_) | ArgumentPurpose::StructReturn => SOME_ADDRESS,
    });
    let arguments: Vec<u128> = arguments.collect();
    for (at, slot) in slots.iter_mut().enumerate().take(returns.len()) {
        *slot = Slot::of(import_result(symbol, &arguments, at));
    }
    if let Some(tag) = *throws {
        let payload = [0, 1].map(|at| import_result(symbol, &arguments, at) as u64);
        run.thrown = Some(Thrown::Exception { tag, payload });
    }
    if run.trace.len() >= MAX_TRACE {
        run.thrown = Some(Thrown::GiveUp);
    } else {
        run.trace.push(Call { callee: symbol.clone(), arguments });
    }
    u8::from(run.thrown.is_some())
}

/// Where a thread continues after a signal, and with which registers.
struct Continue {
    pc: u64,
    sp: u64,
    fp: u64,
    payload: [u64; 2],
    /// Those that the frames in between saved, by number.
    saved: [Option<u64>; 16],
}

impl Run<'_> {
    /// Where to continue, or `None` if the unit did not cause the signal.
    fn after(&mut self, signal: i32, pc: u64, fault: u64, fp: u64) -> Option<Continue> {
        if self.arena.is_in_runtime(pc)
            && let Some(thrown) = self.thrown.take()
        {
            return Some(match thrown {
                Thrown::GiveUp => self.end(Stop::GaveUp),
                Thrown::Exception { tag, payload } => self.throw(tag, payload, pc, fp),
            });
        }
        // An overflow can be detected anywhere, the runtime included.
        let [guard, stack] = STACK.get();
        if signal == libc::SIGSEGV && (guard..stack).contains(&fault) && self.arena.contains(pc) {
            return Some(self.end(Stop::GaveUp));
        }
        if self.arena.is_in_program(pc) {
            let code = self.image.tables().traps.get(&pc);
            return Some(self.end(code.map_or(Stop::Signal(signal), |&code| Stop::Trap(code))));
        }
        // It called an address that is not code.
        let wild = matches!(signal, libc::SIGSEGV | libc::SIGBUS) && fault == pc;
        wild.then(|| self.end(Stop::Signal(signal)))
    }

    /// The invocation ends.
    fn end(&mut self, stop: Stop) -> Continue {
        self.stop = Some(stop);
        let Context { handler: pc, sp, fp } = self.context;
        Continue { pc, sp, fp, payload: [0; 2], saved: [None; 16] }
    }

    /// Goes up the frames to the first handler of the tag.
    fn throw(&mut self, tag: u32, payload: [u64; 2], pc: u64, fp: u64) -> Continue {
        let mut saved = [None; 16];
        let (mut pc, mut fp) = (pc, fp);
        loop {
            let tables = self.tables_of(pc);
            // A return address can be just behind its function.
            if let Some((_, frame)) = tables.frames.range(..pc).next_back()
                && pc <= frame.end
            {
                for &(register, below) in &frame.saved {
                    saved[usize::from(register)] = Some(word_at(fp - below));
                }
            }
            pc = word_at(fp + 8);
            fp = word_at(fp);
            if self.arena.is_in_runtime(pc) && fp == self.context.fp {
                return self.end(Stop::Uncaught(tag));
            }
            let Some(site) = self.tables_of(pc).sites.get(&pc) else {
                continue;
            };
            let sp = fp - site.frame_offset;
            let mut payload = payload;
            for handler in &site.handlers {
                let pc = match *handler {
                    // The choice of the handler does not depend on the context, but what the handler observes
                    // does.
                    Handler::ContextAt(offset) => {
                        payload[1] ^= word_at(sp + offset);
                        continue;
                    }
                    Handler::ContextElsewhere => continue,
                    Handler::Tag(own, _) if own != tag => continue,
                    Handler::Tag(_, pc) | Handler::Default(pc) => pc,
                };
                return Continue { pc, sp, fp, payload, saved };
            }
        }
    }

    fn tables_of(&self, pc: u64) -> &Tables {
        match self.arena.is_in_runtime(pc) {
            true => self.arena.runtime(),
            false => self.image.tables(),
        }
    }
}

fn word_at(address: u64) -> u64 {
    // SAFETY: a word of a frame of compiled code, which is suspended below.
    unsafe { *(address as *const u64) }
}

const SIGNALS: [i32; 5] = [libc::SIGILL, libc::SIGSEGV, libc::SIGFPE, libc::SIGBUS, libc::SIGTRAP];

/// The signal actions before.
static BEFORE: OnceLock<Vec<libc::sigaction>> = OnceLock::new();

/// Takes over the signals by which compiled code stops. Once in a process.
pub fn install() {
    BEFORE.get_or_init(|| {
        let mut before = Vec::new();
        for signal in SIGNALS {
            // SAFETY: zeros are an action, and every field that matters is set; the handler is a
            // function of the form that `SA_SIGINFO` asks for.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                let mut old: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_signal as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
                libc::sigemptyset(&mut action.sa_mask);
                assert_eq!(libc::sigaction(signal, &action, &mut old), 0, "signal {signal}");
                before.push(old);
            }
        }
        before
    });
}

/// Where Linux keeps the registers of x86-64 that compiled code numbers 0 to 15.
const REGISTERS: [i32; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes both; nothing else accesses the invocation while its thread is here.
    let (run, fault, registers) = unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        (CURRENT.get().as_mut(), (*info).si_addr() as u64, &mut context.uc_mcontext.gregs)
    };
    let register = |number: i32| number as usize;
    let pc = registers[register(libc::REG_RIP)] as u64;
    let fp = registers[register(libc::REG_RBP)] as u64;
    let Some(run) = run else {
        return pass_on(signal);
    };
    let mut set = |number: i32, value: u64| registers[register(number)] = value as i64;
    let Some(Continue { pc, sp, fp, payload, saved }) = run.after(signal, pc, fault, fp) else {
        return pass_on(signal);
    };
    for (number, value) in REGISTERS.into_iter().zip(saved) {
        if let Some(value) = value {
            set(number, value);
        }
    }
    set(libc::REG_RIP, pc);
    set(libc::REG_RSP, sp);
    set(libc::REG_RBP, fp);
    set(libc::REG_RAX, payload[0]);
    set(libc::REG_RDX, payload[1]);
}

/// A signal that is not ours is raised a second time, and then goes to the handler that was installed before.
fn pass_on(signal: i32) {
    let at = SIGNALS.iter().position(|own| *own == signal).unwrap_or(0);
    if let Some(before) = BEFORE.get() {
        // SAFETY: what `sigaction` gave.
        unsafe { libc::sigaction(signal, &before[at], ptr::null_mut()) };
    }
}

/// Whether an address is on the stack of this thread.
pub fn is_on_stack(address: u64) -> bool {
    let [_, start] = STACK.get();
    (start..start + super::STACK_BYTES as u64).contains(&address)
}

/// A stack for the handler, since the thread's own may be what is used up. Also notes where the
/// thread's own is.
pub struct AlternateStack {
    /// Holds the memory.
    _memory: Vec<u8>,
    before: libc::stack_t,
}

impl AlternateStack {
    const BYTES: usize = 64 << 10;
    /// How far below its end a stack that overflows can be touched.
    const BELOW: u64 = 1 << 20;

    pub fn new() -> AlternateStack {
        let mut memory = vec![0_u8; Self::BYTES];
        // SAFETY: the memory lives as long as it is the alternate stack; attributes of a thread are initialised by
        // the function that returns them.
        unsafe {
            let stack = libc::stack_t {
                ss_sp: memory.as_mut_ptr().cast(),
                ss_flags: 0,
                ss_size: Self::BYTES,
            };
            let mut before: libc::stack_t = std::mem::zeroed();
            assert_eq!(libc::sigaltstack(&stack, &mut before), 0, "an alternate stack");

            let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
            let (mut start, mut len) = (ptr::null_mut(), 0);
            let own = libc::pthread_self();
            assert_eq!(libc::pthread_getattr_np(own, &mut attributes), 0, "attributes");
            assert_eq!(
                libc::pthread_attr_getstack(&attributes, &mut start, &mut len),
                0,
                "a stack"
            );
            libc::pthread_attr_destroy(&mut attributes);
            let start = start as u64;
            STACK.set([start - Self::BELOW, start]);
            AlternateStack { _memory: memory, before }
        }
    }
}

impl Drop for AlternateStack {
    fn drop(&mut self) {
        // SAFETY: what `sigaltstack` gave.
        unsafe { libc::sigaltstack(&self.before, ptr::null_mut()) };
    }
}
