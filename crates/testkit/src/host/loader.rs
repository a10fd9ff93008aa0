//! Code and data in the memory of this process.
//!
//! Everything is in one reservation, so that all of it is within reach of near calls: the runtime (trampolines and
//! stubs, kept from program to program), the program's code, its read-only data, and the memory that units share
//! with their inputs, between inaccessible pages.

use super::code::{ALIGNMENT, Compiled, Ground, Placed, Tables, settings};
use super::stubs::{self, Imported};
use super::{Level, signals};
use crate::differential::{Invocation, SURROUNDINGS_BYTES};
use crate::isa;
use crate::program::{MEMORY_BYTES, Program};
use cranelift_codegen::ir::{Function, LibCall, Signature, UserExternalName};
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use cranelift_libcalls::LIBRARY;
use cranelift_mergefunc::cranelift_codegen;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A part of the reservation, in bytes from its start.
#[derive(Clone, Copy)]
struct Part {
    start: usize,
    len: usize,
}

const RUNTIME: Part = Part { start: 0, len: 32 << 20 };
const CODE: Part = Part { start: RUNTIME.len, len: 512 << 20 };
const DATA: Part = Part { start: CODE.start + CODE.len, len: 256 << 20 };
/// Behind an inaccessible page.
const SHARED: Part = Part { start: DATA.start + DATA.len + PAGE, len: MEMORY_BYTES };
const RESERVED: usize = 1 << 30;
const PAGE: usize = 4096;

/// A reservation of address space, and the runtime in it.
pub struct Arena {
    base: *mut u8,
    /// Apart from the rest, and mapped only on request.
    surroundings: OnceCell<u64>,
    runtime_used: usize,
    runtime: Tables,
    outer: u64,
    inner: HashMap<Signature, u64>,
    stubs: HashMap<(UserExternalName, Signature), u64>,
}

// SAFETY: it exclusively owns the memory that it points to.
unsafe impl Send for Arena {}

impl Arena {
    pub fn new() -> Arena {
        // SAFETY: a new mapping that nothing else refers to.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                RESERVED,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED, "no address space");
        let mut arena = Arena {
            base: base.cast(),
            surroundings: OnceCell::new(),
            runtime_used: 0,
            runtime: Tables::default(),
            outer: 0,
            inner: HashMap::new(),
            stubs: HashMap::new(),
        };
        arena.protect(SHARED, SHARED.len, libc::PROT_READ | libc::PROT_WRITE);
        arena.outer = arena.place_runtime(stubs::outer_trampoline());
        arena
    }

    fn address(&self, part: Part) -> u64 {
        self.base as u64 + part.start as u64
    }

    /// The address of the memory that units share with their inputs.
    pub fn memory(&self) -> u64 {
        self.address(SHARED)
    }

    /// Whether an address is anywhere in here.
    pub fn contains(&self, address: u64) -> bool {
        (self.base as u64..self.base as u64 + RESERVED as u64).contains(&address)
    }

    /// Whether an address is in the code of a program.
    pub fn is_in_program(&self, address: u64) -> bool {
        let start = self.address(CODE);
        (start..start + CODE.len as u64).contains(&address)
    }

    /// Whether an address is in the runtime.
    pub fn is_in_runtime(&self, address: u64) -> bool {
        let start = self.address(RUNTIME);
        (start..start + RUNTIME.len as u64).contains(&address)
    }

    pub fn runtime(&self) -> &Tables {
        &self.runtime
    }

    /// The function that every invocation begins with.
    pub fn outer_trampoline(&self) -> u64 {
        self.outer
    }

    /// The trampoline that calls functions of this signature with arguments from slots.
    ///
    /// # Panics
    ///
    /// If the image was loaded without an invocation of the signature.
    pub fn inner_trampoline(&self, signature: &Signature) -> u64 {
        self.inner[signature]
    }

    pub fn set_memory(&self, bytes: &[u8]) {
        assert_eq!(bytes.len(), SHARED.len);
        // SAFETY: the memory is writable, as large, and no code is running.
        unsafe { self.base.add(SHARED.start).copy_from_nonoverlapping(bytes.as_ptr(), SHARED.len) };
    }

    pub fn get_memory(&self) -> Vec<u8> {
        // SAFETY: as above; it is initialised.
        unsafe { std::slice::from_raw_parts(self.base.add(SHARED.start), SHARED.len) }.to_vec()
    }

    /// The address of the surroundings: far from everything else, and a multiple of 4 GiB.
    pub fn surroundings(&self) -> u64 {
        *self.surroundings.get_or_init(|| {
            // One after the other, with nothing in between that an offset of 32 bits could reach.
            static NEXT: AtomicU64 = AtomicU64::new(0x1234_0000_0000);
            let start = NEXT.fetch_add(0x10_0000_0000, Ordering::Relaxed);
            // SAFETY: a new mapping, which replaces none.
            let mapped = unsafe {
                libc::mmap(
                    start as *mut libc::c_void,
                    SURROUNDINGS_BYTES,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                    -1,
                    0,
                )
            };
            assert_eq!(mapped as u64, start, "the address is not free");
            start
        })
    }

    pub fn set_surroundings(&self, bytes: &[u8]) {
        assert_eq!(bytes.len(), SURROUNDINGS_BYTES);
        // SAFETY: mapped and writable, as large, and no code is running.
        unsafe {
            let to = self.surroundings() as *mut u8;
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    pub fn get_surroundings(&self) -> Vec<u8> {
        let start = self.surroundings() as *const u8;
        // SAFETY: as above; it is initialised.
        unsafe { std::slice::from_raw_parts(start, SURROUNDINGS_BYTES) }.to_vec()
    }

    /// Sets what may be done with the first `len` bytes of a part.
    fn protect(&self, part: Part, len: usize, protection: i32) {
        assert!(len <= part.len, "{len} bytes do not fit");
        let len = len.next_multiple_of(PAGE);
        // SAFETY: in the reservation, and nothing of this program is in there.
        let result = unsafe { libc::mprotect(self.base.add(part.start).cast(), len, protection) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    fn write(&self, part: Part, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= part.len, "does not fit");
        // SAFETY: in the part, which is writable while something is loaded.
        unsafe {
            let to = self.base.add(part.start + at);
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// Compiles a function of the runtime, which refers to nothing by name.
    fn place_runtime(&mut self, func: Function) -> u64 {
        let compiled = Compiled::of(isa(Level::None), func).expect("compiles");
        assert!(compiled.is_closed(), "the runtime refers to nothing by name");
        let at = self.runtime_used.next_multiple_of(ALIGNMENT);
        self.runtime_used = at + compiled.code.len();
        self.protect(RUNTIME, self.runtime_used, libc::PROT_READ | libc::PROT_WRITE);
        self.write(RUNTIME, at, &compiled.code);
        self.protect(RUNTIME, self.runtime_used, libc::PROT_READ | libc::PROT_EXEC);
        let address = self.address(RUNTIME) + at as u64;
        compiled.add_to(&mut self.runtime, address);
        address
    }

    fn stub(&mut self, symbol: &UserExternalName, signature: &Signature) -> u64 {
        let key = (symbol.clone(), signature.clone());
        if let Some(&address) = self.stubs.get(&key) {
            return address;
        }
        let about = signals::Import::leak(symbol, signature);
        let imported = Imported::At(signals::imported as *const u8 as u64);
        let address = self.place_runtime(stubs::import(signature, imported, about));
        self.stubs.insert(key, address);
        address
    }
}

/// A program in an arena.
pub struct Image(Placed);

impl Image {
    /// Compiles and places a program, and the runtime for it and for these invocations.
    pub fn load(
        arena: &mut Arena,
        level: Level,
        program: &Program,
        invocations: &[Invocation],
    ) -> Image {
        for Invocation { signature, .. } in invocations {
            if !arena.inner.contains_key(signature) {
                let address = arena.place_runtime(stubs::inner_trampoline(signature));
                arena.inner.insert(signature.clone(), address);
            }
        }
        let ground = Ground {
            isa: isa(level),
            code: arena.address(CODE),
            data: arena.address(DATA),
            memory: arena.memory(),
            stub: &mut |symbol, signature| arena.stub(symbol, signature),
            library: &library,
        };
        let placed = Placed::new(program, ground).unwrap_or_else(|error| panic!("{error}"));
        let (code, data) = (placed.code.len(), placed.data.len());
        arena.protect(CODE, code, libc::PROT_READ | libc::PROT_WRITE);
        arena.write(CODE, 0, &placed.code);
        arena.protect(CODE, code, libc::PROT_READ | libc::PROT_EXEC);
        arena.protect(DATA, data, libc::PROT_READ | libc::PROT_WRITE);
        arena.write(DATA, 0, &placed.data);
        arena.protect(DATA, data, libc::PROT_READ);
        Image(placed)
    }

    /// The address of a symbol.
    pub fn address(&self, symbol: &UserExternalName) -> u64 {
        self.0.address(symbol)
    }

    pub fn tables(&self) -> &Tables {
        &self.0.tables
    }
}

/// The ISA of this machine.
fn isa(level: Level) -> &'static dyn TargetIsa {
    static ISAS: [OnceLock<OwnedTargetIsa>; 2] = [const { OnceLock::new() }; 2];
    &**ISAS[level as usize].get_or_init(|| isa::native(&settings(level)))
}

/// What compiled code may call in the runtime library.
fn library(libcall: LibCall) -> u64 {
    let found = LIBRARY.iter().find(|(known, _)| *known == libcall);
    match found {
        Some((_, address)) => address() as u64,
        None => panic!("the library call {libcall}, which the host does not have"),
    }
}
