//! The native host: compiles a [`Program`] for this machine, calls its functions, and keeps running whatever they
//! do.
//!
//! * `code` compiles, lays out and links a program, and keeps what Cranelift says of it: where an
//!   instruction may trap and with which code, which handlers a call site has, where a function
//!   saves registers. `loader` puts it into memory.
//! * `stubs` makes, in CLIF, the imports of the unit and the functions that call into it.
//! * `signals` turns a trap into an outcome, and an exception into a jump to its handler.
//! * `emulated` does the same for aarch64 under an emulator, and `interpreter` for the functions that
//!   Cranelift's interpreter can run.
//!
//! A trap arrives as a signal. Its handler looks up the code of the instruction and continues at the
//! handler of a `try_call` that every invocation begins with, so that no assembly and no `longjmp` is
//! needed. Exceptions are entered the same way, and go up the frame pointers. A signal that the unit did not cause
//! crashes the process, as it should.
//!
//! It runs on x86-64 Linux only. It does not sandbox: a store of the unit through a wild pointer to mapped memory
//! is executed.

#![allow(unsafe_code, reason = "machine code is run here, and its signals are caught")]
#![allow(dead_code, reason = "not every test, bench and fuzz target uses all of it")]

mod code;
pub mod emulated;
pub mod interpreter;
mod loader;
mod signals;
mod stubs;

use crate::differential::{
    Argument, End, Invocation, Outcome, SOME_ADDRESS, address_in_memory, memory_before,
    memory_digest, surroundings_before,
};
use crate::program::{MEMORY_BYTES, Program};
use cranelift_codegen::ir::{Type, UserExternalName, types};
use cranelift_mergefunc::cranelift_codegen;
use loader::{Arena, Image};
use signals::{Run, Stop};
use std::sync::Mutex;

/// How code is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As it is.
    None,
    /// Optimised: facts are used.
    Speed,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::None => "none",
            Level::Speed => "speed",
        }
    }
}

/// Compiles a program without optimising and runs it.
pub fn run(program: &Program, invocations: &[Invocation]) -> Vec<Outcome> {
    run_at(Level::None, program, invocations)
}

/// Compiles a program and runs it: one outcome for each invocation.
///
/// # Panics
///
/// If a function does not compile.
pub fn run_at(level: Level, program: &Program, invocations: &[Invocation]) -> Vec<Outcome> {
    Host::new().run(level, program, invocations)
}

/// A host runs programs, one after the other. They find the same environment each time, including addresses,
/// except those of code.
pub struct Host {
    /// `None` only while it is dropped.
    arena: Option<Arena>,
}

/// Arenas that are not in use.
static ARENAS: Mutex<Vec<Arena>> = Mutex::new(Vec::new());

/// Address space for the stack of an invocation: a frame of 128 KiB for each of 2,000 calls.
const STACK_BYTES: usize = 256 << 20;

/// Calls of imports that are written down, at most. `driver.c` has it, too.
const MAX_TRACE: usize = 1 << 16;

impl Host {
    pub fn new() -> Host {
        signals::install();
        let free = ARENAS.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop();
        Host { arena: Some(free.unwrap_or_else(Arena::new)) }
    }

    /// Like [`run_at`].
    pub fn run(
        &mut self,
        level: Level,
        program: &Program,
        invocations: &[Invocation],
    ) -> Vec<Outcome> {
        let arena = self.arena.as_mut().expect("is there until it is dropped");
        // Recursion is bounded by the fuel, but the stacks of test threads are small.
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        std::thread::scope(|scope| {
            let outcomes = thread.spawn_scoped(scope, || {
                let image = Image::load(arena, level, program, invocations);
                let _stack = signals::AlternateStack::new();
                let outcomes = invocations.iter();
                outcomes.map(|invocation| invoke(arena, &image, invocation)).collect()
            });
            match outcomes.expect("a thread").join() {
                Ok(outcomes) => outcomes,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // An arena that a panic left half done is not used again.
        if let Some(arena) = self.arena.take()
            && !std::thread::panicking()
        {
            ARENAS.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(arena);
        }
    }
}

/// Room for one value of any type.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Slot([u8; 16]);

impl Slot {
    fn of(bits: u128) -> Slot {
        Slot(bits.to_le_bytes())
    }

    /// The bits of a value of this type.
    fn bits(self, ty: Type) -> u128 {
        u128::from_le_bytes(self.0) & (u128::MAX >> (128 - ty.bits()))
    }
}

fn invoke(arena: &Arena, image: &Image, invocation: &Invocation) -> Outcome {
    let Invocation { symbol, signature, arguments, memory_seed, fuel, .. } = invocation;
    assert_eq!(arguments.len(), signature.params.len(), "arguments of {symbol}");
    arena.set_memory(&memory_before(*memory_seed, *fuel));
    let surrounded = arguments.iter().any(|argument| matches!(argument, Argument::Surroundings(_)));
    if surrounded {
        let before = surroundings_before(*memory_seed, arena.surroundings());
        arena.set_surroundings(&before);
    }
    let count = signature.params.len().max(signature.returns.len());
    let mut slots = vec![Slot([0; 16]); count];
    for (slot, argument) in slots.iter_mut().zip(arguments) {
        *slot = Slot::of(match *argument {
            Argument::Bits(bits) => bits,
            Argument::Memory(offset) => u128::from(arena.memory() + u64::from(offset)),
            Argument::Surroundings(offset) => u128::from(arena.surroundings() + u64::from(offset)),
        });
    }
    let mut run = Run::new(arena, image);
    run.call(arena.inner_trampoline(signature), image.address(symbol), &mut slots);
    let end = match run.stop {
        None => {
            let results = slots.iter().zip(&signature.returns);
            End::Returned(
                results
                    .map(|(slot, result)| {
                        without_address(arena, slot.bits(result.value_type), result.value_type)
                    })
                    .collect(),
            )
        }
        Some(Stop::Trap(code)) => End::Trapped(code),
        Some(Stop::Signal(signal)) => End::Signal(signal),
        Some(Stop::Uncaught(tag)) => End::Uncaught(tag),
        Some(Stop::GaveUp) => End::GaveUp,
    };
    let mut memory = memory_digest(&arena.get_memory());
    if surrounded {
        memory ^= memory_digest(&arena.get_surroundings());
    }
    Outcome { end, trace: run.trace, memory }
}

/// The observable part of a value that may be an address.
fn without_address(arena: &Arena, bits: u128, ty: Type) -> u128 {
    let Ok(word) = u64::try_from(bits) else {
        return bits;
    };
    if ty != types::I64 {
        bits
    } else if let Some(offset) = word.checked_sub(arena.memory()).filter(|&at| at < MEMORY) {
        address_in_memory(offset)
    } else if arena.contains(word) || signals::is_on_stack(word) {
        SOME_ADDRESS
    } else {
        bits
    }
}

const MEMORY: u64 = MEMORY_BYTES as u64;

/// Fails with the symbol that the error is about.
#[track_caller]
fn fail(symbol: &UserExternalName, what: impl std::fmt::Display) -> ! {
    panic!("{symbol}: {what}")
}
