//! The back end of the example: it compiles functions, lays their code out in one buffer, and
//! resolves the calls in it. It knows nothing of merging, but that a symbol can be an alias or a
//! thunk.

use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{ExternalName, Function, UserExternalName};
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::{Context, FinalizedRelocTarget};
use cranelift_mergefunc::cranelift_codegen;
use cranelift_mergefunc::thunk::{ThunkCode, ThunkReloc};
use std::collections::HashMap;
use std::error::Error;

/// A function's code, not yet at its place.
pub struct Compiled {
    pub code: Vec<u8>,
    pub alignment: u32,
    pub calls: Vec<Call>,
}

/// A place in code from where a function is called.
#[derive(Clone)]
pub struct Call {
    /// In bytes, from the beginning of the code.
    pub at: usize,
    pub kind: Reloc,
    pub addend: i64,
    pub callee: UserExternalName,
    /// The function that the front end meant.
    pub meant: UserExternalName,
}

pub fn compile(func: &Function, isa: &dyn TargetIsa) -> Result<Compiled, Box<dyn Error>> {
    let mut context = Context::for_function(func.clone());
    let compiled = context
        .compile(isa, &mut ControlPlane::default())
        .map_err(|error| format!("{}: {:?}", func.name, error.inner))?;
    let mut calls = Vec::new();
    for reloc in compiled.buffer.relocs() {
        let FinalizedRelocTarget::ExternalName(ExternalName::User(name)) = &reloc.target else {
            return Err(format!("{}: a reference to {:?}", func.name, reloc.target).into());
        };
        let callee = func.params.user_named_funcs()[*name].clone();
        let (at, kind, addend) = (reloc.offset as usize, reloc.kind, reloc.addend);
        calls.push(Call { at, kind, addend, meant: callee.clone(), callee });
    }
    let alignment = compiled.buffer.alignment.max(isa.function_alignment().minimum);
    Ok(Compiled { code: compiled.code_buffer().to_vec(), alignment, calls })
}

impl Compiled {
    /// The code of a thunk of the function `own`.
    pub fn from_thunk(thunk: ThunkCode, own: &UserExternalName, alignment: u32) -> Compiled {
        let calls = thunk.relocations.into_iter().map(|reloc| {
            let ThunkReloc { offset, kind, symbol: callee, addend } = reloc;
            Call { at: offset as usize, kind, addend, callee, meant: own.clone() }
        });
        Compiled { code: thunk.bytes, alignment, calls: calls.collect() }
    }
}

/// All code.
#[derive(Default)]
pub struct Image {
    pub code: Vec<u8>,
    /// Where the functions are: bodies, thunks and aliases.
    starts: HashMap<UserExternalName, usize>,
    /// Calls that are not resolved yet.
    calls: Vec<Call>,
}

impl Image {
    /// Appends code, and returns its offset.
    pub fn place(&mut self, symbol: &UserExternalName, compiled: Compiled) -> usize {
        let Compiled { code, alignment, calls } = compiled;
        let start = self.code.len().next_multiple_of(alignment as usize);
        self.code.resize(start, 0);
        self.code.extend(code);
        self.starts.insert(symbol.clone(), start);
        self.calls.extend(calls.into_iter().map(|call| Call { at: start + call.at, ..call }));
        start
    }

    /// Gives a symbol the place of another one.
    pub fn alias(&mut self, symbol: &UserExternalName, to: &UserExternalName) {
        self.starts.insert(symbol.clone(), self.starts[to]);
    }

    /// Makes all calls reach their functions. `is` says whether the code at an offset is that of a
    /// function, or of one that equals it. Returns how many calls there are.
    pub fn resolve(
        &mut self,
        is: impl Fn(u64, &UserExternalName) -> bool,
    ) -> Result<usize, Box<dyn Error>> {
        let calls = std::mem::take(&mut self.calls);
        for Call { at, kind, addend, callee, meant } in &calls {
            let (at, Some(&target)) = (*at, self.starts.get(callee)) else {
                return Err(format!("{callee} was never placed").into());
            };
            let distance = target as i64 + addend - at as i64;
            let word = match kind {
                Reloc::X86CallPCRel4 => i32::try_from(distance)?.to_le_bytes(),
                // 26 bits, in instructions.
                Reloc::Arm64Call if (distance >> 2) << 38 >> 38 == distance >> 2 => {
                    let instruction = u32::from_le_bytes(self.word(at));
                    (instruction | (distance >> 2) as u32 & 0x03ff_ffff).to_le_bytes()
                }
                kind => return Err(format!("cannot resolve {kind:?} over {distance} bytes").into()),
            };
            self.code[at..at + 4].copy_from_slice(&word);
            let reached = self.target(at, *kind);
            if !is(reached, meant) {
                return Err(format!("at {at:#x}, {meant} is not at {reached:#x}").into());
            }
        }
        Ok(calls.len())
    }

    /// Where a call leads, read as the processor reads it.
    fn target(&self, at: usize, kind: Reloc) -> u64 {
        let word = i32::from_le_bytes(self.word(at));
        let target = match kind {
            Reloc::X86CallPCRel4 => at as i64 + 4 + i64::from(word),
            _ => at as i64 + i64::from(word << 6 >> 6) * 4,
        };
        target as u64
    }

    fn word(&self, at: usize) -> [u8; 4] {
        *self.code[at..].first_chunk().expect("a relocation is in the code")
    }
}
