//! A program as bytes at addresses, for any target, and what Cranelift says of them.
//!
//! It compiles, lays out and links; the host chooses the addresses and the imports ([`Ground`]).
//! Nothing is looked up by name, and an alias is one more symbol for an address, which
//! `cranelift-jit` does not support.

use super::fail;
use crate::program::{DataDefinition, Definition, Jump, MEMORY, Program};
use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir::{
    ExternalName, Function, LibCall, Signature, TrapCode, UserExternalName,
};
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::isa::unwind::UnwindInst;
use cranelift_codegen::{
    Context, ExceptionContextLoc, FinalizedMachExceptionHandler, FinalizedRelocTarget, RegClass,
};
use cranelift_mergefunc::Target;
use cranelift_mergefunc::cranelift_codegen;
use cranelift_mergefunc::data::Contents;
use cranelift_mergefunc::thunk::ThunkReloc;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The records of code, by address.
#[derive(Default)]
pub struct Tables {
    /// Instructions that may trap.
    pub traps: BTreeMap<u64, TrapCode>,
    /// Return addresses of calls with handlers.
    pub sites: BTreeMap<u64, Site>,
    /// Functions that save registers of their callers.
    pub frames: BTreeMap<u64, Frame>,
}

/// A call with exception handlers.
pub struct Site {
    /// From the frame pointer down to the stack pointer, in bytes.
    pub frame_offset: u64,
    pub handlers: Vec<Handler>,
}

#[derive(Clone, Copy)]
pub enum Handler {
    Tag(u32, u64),
    Default(u64),
    /// A value that identifies the following handlers, in bytes from the stack pointer.
    ContextAt(u64),
    ContextElsewhere,
}

/// The registers that a function saved.
pub struct Frame {
    pub end: u64,
    /// Registers by number, and where they are, in bytes below the frame pointer.
    pub saved: Vec<(u8, u64)>,
}

/// Where functions begin.
pub const ALIGNMENT: usize = 16;

/// The addresses of a program and its imports.
pub struct Ground<'a> {
    pub isa: &'a dyn TargetIsa,
    /// The addresses of the code, of read-only data, and of the shared memory.
    pub code: u64,
    pub data: u64,
    pub memory: u64,
    /// The address of a function that a unit imports.
    pub stub: &'a mut dyn FnMut(&UserExternalName, &Signature) -> u64,
    /// The address of a library function.
    pub library: &'a dyn Fn(LibCall) -> u64,
}

/// A program at its addresses.
pub struct Placed {
    pub code: Vec<u8>,
    pub data: Vec<u8>,
    pub tables: Tables,
    symbols: HashMap<UserExternalName, u64>,
}

impl Placed {
    /// Compiles a program.
    ///
    /// # Errors
    ///
    /// The first function that cannot be compiled for the target, and why.
    pub fn new(program: &Program, ground: Ground<'_>) -> Result<Placed, String> {
        let Ground { isa, code, data, memory, stub, library } = ground;
        let mut placed = Placed {
            code: Vec::new(),
            data: Vec::new(),
            tables: Tables::default(),
            symbols: HashMap::from([(UserExternalName::new(MEMORY, 0), memory)]),
        };
        let defined: HashSet<&UserExternalName> =
            program.functions.iter().map(|(symbol, _)| symbol).collect();
        let mut aliases = Vec::new();

        // Addresses first: code is written when all of them are known.
        let mut codes = Vec::new();
        let mut at = 0;
        for (symbol, definition) in &program.functions {
            let compiled = match definition {
                Definition::Body(func) => {
                    placed.import(func, &defined, stub);
                    Compiled::of(isa, (**func).clone())?
                }
                Definition::Jump(jump) => {
                    placed.import(&jump.call, &defined, stub);
                    Compiled::jump(isa, jump)?
                }
                Definition::Alias(to) => {
                    aliases.push((symbol, to));
                    continue;
                }
            };
            placed.define(symbol, code + at as u64);
            let end = at + compiled.code.len();
            codes.push((at, compiled));
            at = end.next_multiple_of(ALIGNMENT);
        }
        placed.code.resize(at, 0);
        let mut objects = Vec::new();
        let mut at = 0;
        for (symbol, definition) in &program.data {
            match definition {
                DataDefinition::Object(object, alignment) => {
                    at = usize::next_multiple_of(at, (*alignment).max(1) as usize);
                    placed.define(symbol, data + at as u64);
                    objects.push((at, object));
                    at += object.contents.size() as usize;
                }
                DataDefinition::Alias(to) => aliases.push((symbol, to)),
            }
        }
        placed.data.resize(at, 0);
        for (symbol, to) in aliases {
            // A representative is never an alias itself.
            placed.define(symbol, placed.address(to));
        }

        for (at, mut compiled) in codes {
            let address = code + at as u64;
            compiled.relocate(address, &|symbol| placed.address(symbol), library);
            placed.code[at..at + compiled.code.len()].copy_from_slice(&compiled.code);
            compiled.add_to(&mut placed.tables, address);
        }
        for (at, object) in objects {
            if let Contents::Bytes(bytes) = &object.contents {
                placed.data[at..at + bytes.len()].copy_from_slice(bytes);
            }
            for reloc in &object.relocations {
                let target = placed.address(&reloc.target).wrapping_add_signed(reloc.addend);
                let offset = u32::try_from(at).expect("data below 4 GiB") + reloc.offset;
                patch(&mut placed.data, offset, &target.to_le_bytes());
            }
        }
        Ok(placed)
    }

    /// The address of a symbol.
    pub fn address(&self, symbol: &UserExternalName) -> u64 {
        match self.symbols.get(symbol) {
            Some(address) => *address,
            None => fail(symbol, "is not defined"),
        }
    }

    fn define(&mut self, symbol: &UserExternalName, address: u64) {
        if self.symbols.insert(symbol.clone(), address).is_some() {
            fail(symbol, "is defined twice");
        }
    }

    /// Requests stubs for the symbols that a function calls and the program does not define.
    fn import(
        &mut self,
        func: &Function,
        defined: &HashSet<&UserExternalName>,
        stub: &mut dyn FnMut(&UserExternalName, &Signature) -> u64,
    ) {
        for callee in func.dfg.ext_funcs.values() {
            let ExternalName::User(name) = callee.name else {
                continue;
            };
            let symbol = &func.params.user_named_funcs()[name];
            if !defined.contains(symbol) {
                let address = stub(symbol, &func.dfg.signatures[callee.signature]);
                let before = self.symbols.insert(symbol.clone(), address);
                if before.is_some_and(|before| before != address) {
                    fail(symbol, "is used with two signatures");
                }
            }
        }
    }
}

/// A function before it has an address.
pub struct Compiled {
    pub code: Vec<u8>,
    relocs: Vec<Relocation>,
    /// All by offset.
    tables: Tables,
}

struct Relocation {
    offset: u32,
    kind: Reloc,
    target: RelocTarget,
    addend: i64,
}

enum RelocTarget {
    Symbol(UserExternalName),
    Library(LibCall),
    /// This number of bytes into the function itself.
    Here(u32),
}

impl Compiled {
    /// Whether the code refers to nothing by name.
    pub fn is_closed(&self) -> bool {
        self.relocs.is_empty()
    }

    pub fn of(isa: &dyn TargetIsa, func: Function) -> Result<Compiled, String> {
        let mut context = Context::for_function(func);
        if let Err(error) = context.compile(isa, &mut Default::default()) {
            return Err(format!("{:?}\n{}", error.inner, error.func));
        }
        let func = &context.func;
        let code = context.compiled_code().expect("compiled");
        let relocs = code.buffer.relocs().iter().map(|reloc| Relocation {
            offset: reloc.offset,
            kind: reloc.kind,
            target: match &reloc.target {
                FinalizedRelocTarget::Func(offset) => RelocTarget::Here(*offset),
                FinalizedRelocTarget::ExternalName(ExternalName::User(name)) => {
                    RelocTarget::Symbol(func.params.user_named_funcs()[*name].clone())
                }
                FinalizedRelocTarget::ExternalName(ExternalName::LibCall(libcall)) => {
                    RelocTarget::Library(*libcall)
                }
                other => panic!("a reference to {other:?} in\n{func}"),
            },
            addend: reloc.addend,
        });
        let mut tables = Tables::default();
        for trap in code.buffer.traps() {
            tables.traps.insert(u64::from(trap.offset), trap.code);
        }
        for site in code.buffer.call_sites() {
            if let Some(frame_offset) = site.frame_offset
                && !site.exception_handlers.is_empty()
            {
                let handlers = site.exception_handlers.iter().map(|handler| match *handler {
                    FinalizedMachExceptionHandler::Tag(tag, at) => {
                        Handler::Tag(tag.as_u32(), u64::from(at))
                    }
                    FinalizedMachExceptionHandler::Default(at) => Handler::Default(u64::from(at)),
                    FinalizedMachExceptionHandler::Context(ExceptionContextLoc::SPOffset(at)) => {
                        Handler::ContextAt(u64::from(at))
                    }
                    FinalizedMachExceptionHandler::Context(ExceptionContextLoc::GPR(_)) => {
                        Handler::ContextElsewhere
                    }
                });
                let frame_offset = u64::from(frame_offset);
                let found = Site { frame_offset, handlers: handlers.collect() };
                tables.sites.insert(u64::from(site.ret_addr), found);
            }
        }
        let mut clobbers = 0;
        let mut saved = Vec::new();
        for (_, inst) in &code.buffer.unwind_info {
            match inst {
                UnwindInst::DefineNewFrame { offset_downward_to_clobbers, .. } => {
                    clobbers = u64::from(*offset_downward_to_clobbers);
                }
                UnwindInst::SaveReg { clobber_offset, reg } if reg.class() == RegClass::Int => {
                    saved.push((reg.hw_enc(), clobbers - u64::from(*clobber_offset)));
                }
                _ => {}
            }
        }
        let bytes = code.code_buffer().to_vec();
        tables.frames.insert(0, Frame { end: bytes.len() as u64, saved });
        Ok(Compiled { relocs: relocs.collect(), tables, code: bytes })
    }

    /// The code of a jump that replaces a whole function.
    fn jump(isa: &dyn TargetIsa, jump: &Jump) -> Result<Compiled, String> {
        let Some(thunk) = jump.code(&Target::of(isa)) else {
            return Compiled::of(isa, Function::clone(&jump.call));
        };
        let relocs = thunk.relocations.into_iter().map(|relocation| {
            let ThunkReloc { offset, kind, symbol, addend } = relocation;
            Relocation { offset, kind, target: RelocTarget::Symbol(symbol), addend }
        });
        let relocs = relocs.collect();
        Ok(Compiled { code: thunk.bytes, relocs, tables: Tables::default() })
    }

    /// Writes addresses into the code, which will be at `address`.
    fn relocate(
        &mut self,
        address: u64,
        symbols: &dyn Fn(&UserExternalName) -> u64,
        library: &dyn Fn(LibCall) -> u64,
    ) {
        for Relocation { offset, kind, target, addend } in &self.relocs {
            let target = match target {
                RelocTarget::Symbol(symbol) => symbols(symbol),
                RelocTarget::Library(libcall) => library(*libcall),
                RelocTarget::Here(offset) => address + u64::from(*offset),
            };
            let target = target.wrapping_add_signed(*addend);
            let from_here = target.wrapping_sub(address + u64::from(*offset)) as i64;
            match kind {
                Reloc::Abs8 => patch(&mut self.code, *offset, &target.to_le_bytes()),
                Reloc::X86PCRel4 | Reloc::X86CallPCRel4 => {
                    let from_here = i32::try_from(from_here).expect("all is near");
                    patch(&mut self.code, *offset, &from_here.to_le_bytes());
                }
                Reloc::Arm64Call => {
                    let words = i32::try_from(from_here >> 2).expect("all is near");
                    assert!((-(1 << 25)..1 << 25).contains(&words), "all is near");
                    set_bits(&mut self.code, *offset, words as u32 & 0x3ff_ffff);
                }
                Reloc::Aarch64AdrPrelPgHi21 => {
                    let here = address + u64::from(*offset);
                    let pages = (target >> 12).wrapping_sub(here >> 12) as u32;
                    let bits = (pages & 3) << 29 | (pages >> 2 & 0x7_ffff) << 5;
                    set_bits(&mut self.code, *offset, bits);
                }
                Reloc::Aarch64AddAbsLo12Nc => {
                    set_bits(&mut self.code, *offset, (target as u32 & 0xfff) << 10);
                }
                other => panic!("a relocation {other}, which the host does not know"),
            }
        }
    }

    /// Adds the traps, sites and frames of the code, which is at `address`, to tables.
    pub fn add_to(self, tables: &mut Tables, address: u64) {
        let Tables { traps, sites, frames } = self.tables;
        tables.traps.extend(traps.into_iter().map(|(at, code)| (address + at, code)));
        for (at, mut site) in sites {
            for handler in &mut site.handlers {
                match handler {
                    Handler::Tag(_, at) | Handler::Default(at) => *at += address,
                    Handler::ContextAt(_) | Handler::ContextElsewhere => {}
                }
            }
            tables.sites.insert(address + at, site);
        }
        for (at, frame) in frames {
            tables.frames.insert(address + at, Frame { end: address + frame.end, ..frame });
        }
    }
}

/// Sets bits of an instruction of aarch64.
fn set_bits(code: &mut [u8], offset: u32, bits: u32) {
    let at = offset as usize;
    let word = u32::from_le_bytes(code[at..at + 4].try_into().expect("four bytes"));
    patch(code, offset, &(word | bits).to_le_bytes());
}

fn patch(bytes: &mut [u8], offset: u32, with: &[u8]) {
    let offset = offset as usize;
    bytes[offset..offset + with.len()].copy_from_slice(with);
}
