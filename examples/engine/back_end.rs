//! The back end of the example: it compiles functions, and calls them. It knows nothing of merging.

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::Function;
use cranelift_codegen::{Context, isa::TargetIsa};
use cranelift_mergefunc::cranelift_codegen;
use cranelift_module::{FuncId, ModuleReloc};

/// A function's code.
#[derive(Clone)]
pub struct Code {
    pub bytes: Vec<u8>,
    pub alignment: u64,
    pub relocs: Vec<ModuleReloc>,
}

pub fn compile(func: Function, isa: &dyn TargetIsa) -> Code {
    let mut context = Context::for_function(func);
    context.compile(isa, &mut ControlPlane::default()).expect("compiles");
    let compiled = context.compiled_code().expect("was compiled");
    let relocs = compiled.buffer.relocs().iter();
    let relocs =
        relocs.map(|reloc| ModuleReloc::from_mach_reloc(reloc, &context.func, FuncId::from_u32(0)));
    Code {
        bytes: compiled.code_buffer().to_vec(),
        alignment: compiled.buffer.alignment.into(),
        relocs: relocs.collect(),
    }
}

#[expect(unsafe_code, reason = "there is no other way to call compiled code")]
pub fn run(entry: *const u8, number: u64) -> u64 {
    // SAFETY: the entry takes and returns an integer by the calling convention of the host.
    unsafe { std::mem::transmute::<*const u8, extern "C" fn(u64) -> u64>(entry)(number) }
}
