//! Native code for the functions of a unit, and calls of any signature into it.
//!
//! Functions are compiled into a `JITModule`, and data objects are defined next to them; a thunk is
//! written as the bytes of a jump, as in an object file. A call goes through a generated function
//! that takes the arguments out of a buffer and puts the results back. The caller decides what is
//! compiled; code that crashes takes the process with it.
#![allow(unsafe_code, reason = "machine code is called here, and nowhere else in the program")]

use anyhow::{Result, anyhow};
use clif_unit::data::GivenData;
use cranelift_codegen::FinalizedRelocTarget;
use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::data_value::DataValue;
use cranelift_codegen::ir::{
    AbiParam, Endianness, ExternalName, Function, InstBuilder as _, MemFlagsData, Signature, Type,
    UserExternalName, UserFuncName,
};
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use cranelift_jit::{ArenaMemoryProvider, JITBuilder, JITModule};
use cranelift_libcalls::LIBRARY;
use cranelift_mergefunc::cranelift_codegen;
use cranelift_mergefunc::data::Contents;
use cranelift_mergefunc::thunk::{ThunkCode, ThunkReloc};
use cranelift_module::{DataDescription, FuncId, Linkage, Module, ModuleReloc, ModuleRelocTarget};
use std::collections::HashMap;
use std::fmt;

/// A function to be compiled.
#[derive(Debug)]
pub struct Definition {
    /// Its symbol.
    pub symbol: UserExternalName,
    /// How it is called.
    pub signature: Signature,
    /// Its code.
    pub code: Code,
}

/// The code of a function.
#[derive(Debug)]
pub enum Code {
    /// That of an IR function. (Boxed: it is far larger than a jump.)
    Body(Box<Function>),
    /// A jump to another function.
    Thunk(ThunkCode),
}

/// Compiled functions that can be called.
pub struct Jit {
    /// `None` only while it is dropped.
    module: Option<JITModule>,
    ids: HashMap<UserExternalName, FuncId>,
    trampolines: HashMap<Signature, FuncId>,
}

/// Code refers to something that only a linker could supply.
#[derive(Debug)]
pub struct Unlinkable(String);

impl fmt::Display for Unlinkable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the code needs {}, which is not here", self.0)
    }
}

impl std::error::Error for Unlinkable {}

/// Room for the code of one unit. Only addresses are reserved; near to each other, because calls
/// inside a unit reach 2 GiB.
const ARENA_BYTES: usize = 256 << 20;

impl Jit {
    /// Compiles functions and data objects. Functions of these `signatures` can be called
    /// afterwards. All that one of them refers to must be there.
    ///
    /// # Errors
    ///
    /// A function that Cranelift cannot compile; [`Unlinkable`].
    pub fn compile(
        isa: OwnedTargetIsa,
        definitions: Vec<Definition>,
        data: &[GivenData],
        signatures: impl IntoIterator<Item = Signature>,
    ) -> Result<Jit> {
        let mut builder = JITBuilder::with_isa(isa, cranelift_module::default_libcall_names());
        let symbols = LIBRARY.iter().map(|(libcall, address)| {
            (cranelift_module::default_libcall_names()(*libcall), address())
        });
        builder.symbols(symbols);
        let arena = ArenaMemoryProvider::new_with_size(ARENA_BYTES)?;
        builder.memory_provider(Box::new(arena));
        let mut module = JITModule::new(builder);

        let mut ids = HashMap::new();
        let mut targets = Targets::new();
        for (at, Definition { symbol, signature, code: _ }) in definitions.iter().enumerate() {
            let id = module.declare_function(&format!("f{at}"), Linkage::Local, signature)?;
            ids.insert(symbol.clone(), id);
            targets.insert(symbol.clone(), id.into());
        }
        let (objects, aliases): (Vec<&GivenData>, Vec<&GivenData>) =
            data.iter().partition(|data| data.alias.is_none());
        let mut data_ids = Vec::new();
        for (at, GivenData { symbol, attributes, .. }) in objects.iter().enumerate() {
            if attributes.tls {
                return Err(Unlinkable("thread-local data".to_owned()).into());
            }
            let name = format!("d{at}");
            let id = module.declare_data(&name, Linkage::Local, attributes.writable, false)?;
            data_ids.push(id);
            targets.insert(symbol.clone(), id.into());
        }
        place_aliases(&aliases, &mut targets)?;
        for (&id, given) in data_ids.iter().zip(objects) {
            module.define_data(id, &description(given, &targets)?)?;
        }
        for Definition { symbol, signature: _, code } in definitions {
            let id = ids[&symbol];
            match code {
                Code::Body(func) => define(&mut module, id, *func, &targets)?,
                Code::Thunk(thunk) => {
                    let mut relocations = Vec::new();
                    for ThunkReloc { offset, kind, symbol, addend } in &thunk.relocations {
                        let (offset, kind, addend) = (*offset, *kind, *addend);
                        let name = target(symbol, &targets)?;
                        relocations.push(ModuleReloc { offset, kind, name, addend });
                    }
                    module.define_function_bytes(id, 1, &thunk.bytes, &relocations)?;
                }
            }
        }
        let mut trampolines = HashMap::new();
        for signature in signatures {
            if trampolines.contains_key(&signature) {
                continue;
            }
            let func = trampoline(&signature, module.isa());
            let name = format!("trampoline{}", trampolines.len());
            let id = module.declare_function(&name, Linkage::Local, &func.signature)?;
            define(&mut module, id, func, &targets)?;
            trampolines.insert(signature, id);
        }
        module.finalize_definitions()?;
        Ok(Jit { module: Some(module), ids, trampolines })
    }

    /// Calls a function of this `signature`.
    ///
    /// # Panics
    ///
    /// If the function or its signature was not given to [`Jit::compile`], or if the arguments do
    /// not fit.
    pub fn call(
        &self,
        symbol: &UserExternalName,
        signature: &Signature,
        arguments: &[DataValue],
    ) -> Vec<DataValue> {
        assert_eq!(arguments.len(), signature.params.len(), "arguments of {symbol}");
        let count = signature.params.len().max(signature.returns.len());
        let mut slots = vec![Slot([0; SLOT_BYTES]); count];
        for ((slot, argument), param) in slots.iter_mut().zip(arguments).zip(&signature.params) {
            assert_eq!(argument.ty().bytes(), param.value_type.bytes(), "argument of {symbol}");
            argument.write_to_slice_ne(&mut slot.0);
        }
        let module = self.module.as_ref().expect("is there until it is dropped");
        let function = module.get_finalized_function(self.ids[symbol]);
        let trampoline = module.get_finalized_function(self.trampolines[signature]);
        // SAFETY: the address is that of a finalized function with the signature that `trampoline`
        // gives it, in the calling convention of C; `module` keeps its code alive.
        let trampoline: extern "C" fn(*const u8, *mut Slot) =
            unsafe { std::mem::transmute(trampoline) };
        // The behaviour of the called code is up to the IR, as for every JIT; the buffer has a slot
        // for each argument and each result.
        trampoline(function, slots.as_mut_ptr());
        let results = slots.iter().zip(&signature.returns);
        results
            .map(|(slot, result)| DataValue::read_from_slice_ne(&slot.0, result.value_type))
            .collect()
    }
}

impl Drop for Jit {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: no pointer into the code leaves `call`, and nothing is running now.
            unsafe { module.free_memory() };
        }
    }
}

impl fmt::Debug for Jit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jit").field("ids", &self.ids).finish_non_exhaustive()
    }
}

/// The identifiers of symbols in the module.
type Targets = HashMap<UserExternalName, ModuleRelocTarget>;

fn target(symbol: &UserExternalName, targets: &Targets) -> Result<ModuleRelocTarget, Unlinkable> {
    targets.get(symbol).cloned().ok_or_else(|| Unlinkable(symbol.to_string()))
}

/// Resolves the symbols of data aliases to the targets of the aliases. The module has no aliases,
/// but no symbol in it is looked up by name.
fn place_aliases(aliases: &[&GivenData], targets: &mut Targets) -> Result<(), Unlinkable> {
    let next: HashMap<_, _> =
        aliases.iter().map(|data| (&data.symbol, data.alias.as_ref())).collect();
    for data in aliases {
        let mut to = &data.symbol;
        while let Some(Some(next)) = next.get(to) {
            to = next;
        }
        let target = target(to, targets)?;
        targets.insert(data.symbol.clone(), target);
    }
    Ok(())
}

/// The largest alignment that the memory for data can have: that of the smallest pages.
const MAX_ALIGNMENT: u64 = 4096;

/// A data object in the terms of the module.
fn description(given: &GivenData, targets: &Targets) -> Result<DataDescription, Unlinkable> {
    let GivenData { attributes, object, .. } = given;
    let mut description = DataDescription::new();
    match &object.contents {
        Contents::Zeros(size) => description.define_zeroinit(*size as usize),
        Contents::Bytes(bytes) => description.define(bytes.clone().into()),
    }
    if attributes.alignment > MAX_ALIGNMENT {
        return Err(Unlinkable(format!("data aligned to {} bytes", attributes.alignment)));
    }
    description.set_align(attributes.alignment);
    for reloc in &object.relocations {
        // The module has no addends for functions, and does not ask what a global value is.
        let target = description.import_global_value(target(&reloc.target, targets)?);
        description.write_data_addr(reloc.offset, target, reloc.addend);
    }
    Ok(description)
}

/// Compiles one function under the module's own numbering.
fn define(module: &mut JITModule, id: FuncId, mut func: Function, targets: &Targets) -> Result<()> {
    func.name = UserFuncName::user(0, id.as_u32());
    let names: Vec<_> = func
        .params
        .user_named_funcs()
        .iter()
        .map(|(name, symbol)| (name, symbol.clone()))
        .collect();
    for (name, symbol) in names {
        // Names that nothing refers to may remain; their number does not matter.
        if let Some(&ModuleRelocTarget::User { namespace, index }) = targets.get(&symbol) {
            func.params.reset_user_func_name(name, UserExternalName::new(namespace, index));
        }
    }
    let mut context = cranelift_codegen::Context::for_function(func);
    module.define_function(id, &mut context)?;
    let code = context.compiled_code().ok_or_else(|| anyhow!("no code"))?;
    for relocation in code.buffer.relocs() {
        match &relocation.target {
            FinalizedRelocTarget::ExternalName(ExternalName::LibCall(libcall)) => {
                if !LIBRARY.iter().any(|(known, _)| known == libcall) {
                    return Err(Unlinkable(format!("the library call {libcall}")).into());
                }
            }
            FinalizedRelocTarget::ExternalName(ExternalName::KnownSymbol(symbol)) => {
                return Err(Unlinkable(symbol.to_string()).into());
            }
            FinalizedRelocTarget::ExternalName(
                ExternalName::User(_) | ExternalName::TestCase(_),
            )
            | FinalizedRelocTarget::Func(_) => {}
        }
    }
    Ok(())
}

const SLOT_BYTES: usize = 16;

/// Room for one argument or result of any type, at the alignment of the largest.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Slot([u8; SLOT_BYTES]);

/// A function that calls the function at the address in its first parameter with arguments from
/// the buffer in its second, and leaves the results in the buffer.
fn trampoline(signature: &Signature, isa: &dyn TargetIsa) -> Function {
    let pointer = AbiParam::new(isa.pointer_type());
    let mut own = Signature::new(isa.default_call_conv());
    own.params.extend([pointer, pointer]);
    let mut func = Function::with_name_signature(UserFuncName::default(), own);
    let callee = func.import_signature(signature.clone());
    let block = func.dfg.make_block();
    let function = func.dfg.append_block_param(block, isa.pointer_type());
    let buffer = func.dfg.append_block_param(block, isa.pointer_type());
    let mut cursor = FuncCursor::new(&mut func);
    cursor.insert_block(block);
    let offset = |at: usize| i32::try_from(at * SLOT_BYTES).expect("a buffer below 2 GiB");
    let mut arguments = Vec::new();
    for (at, param) in signature.params.iter().enumerate() {
        let flags = slot_flags(param.value_type);
        arguments.push(cursor.ins().load(param.value_type, flags, buffer, offset(at)));
    }
    let call = cursor.ins().call_indirect(callee, function, &arguments);
    for (at, result) in cursor.func.dfg.inst_results(call).to_vec().into_iter().enumerate() {
        let flags = slot_flags(signature.returns[at].value_type);
        cursor.ins().store(flags, result, buffer, offset(at));
    }
    cursor.ins().return_(&[]);
    func
}

/// `DataValue` keeps vectors in little-endian order everywhere.
fn slot_flags(ty: Type) -> MemFlagsData {
    let mut flags = MemFlagsData::trusted();
    if ty.is_vector() {
        flags.set_endianness(Endianness::Little);
    }
    flags
}
