//! A module that wraps another one, as compilers write them to collect unwind information: it
//! forwards every call, and reads the compiled code after each definition, whether the wrapped
//! module compiled it or another thread.

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{FuncRef, Function, GlobalValue, Signature};
use cranelift_codegen::isa::unwind::UnwindInfo;
use cranelift_codegen::isa::{TargetFrontendConfig, TargetIsa};
use cranelift_codegen::{CompiledCode, Context};
use cranelift_module::{
    DataDescription, DataId, FuncId, FuncOrDataId, Linkage, Module, ModuleDeclarations,
    ModuleReloc, ModuleResult,
};

/// A module that records the unwind information of every compiled function.
pub struct UnwindModule<M> {
    pub inner: M,
    pub compiled: Vec<(FuncId, UnwindInfo)>,
    /// The code of each, with all that Cranelift says of it.
    #[allow(dead_code, reason = "only one of the tests with this file reads it")]
    pub code: Vec<CompiledCode>,
}

impl<M> std::fmt::Debug for UnwindModule<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnwindModule").finish_non_exhaustive()
    }
}

impl<M> UnwindModule<M> {
    pub fn new(inner: M) -> Self {
        UnwindModule { inner, compiled: Vec::new(), code: Vec::new() }
    }

    fn record(&mut self, id: FuncId, code: CompiledCode) -> ModuleResult<()>
    where
        M: Module,
    {
        let unwind = code.create_unwind_info(self.inner.isa())?;
        self.compiled.push((id, unwind.expect("the targets here have unwind information")));
        self.code.push(code);
        Ok(())
    }

    pub fn ids(&self) -> Vec<FuncId> {
        self.compiled.iter().map(|(id, _)| *id).collect()
    }
}

impl<M: Module> Module for UnwindModule<M> {
    fn isa(&self) -> &dyn TargetIsa {
        self.inner.isa()
    }

    fn declarations(&self) -> &ModuleDeclarations {
        self.inner.declarations()
    }

    fn get_name(&self, name: &str) -> Option<FuncOrDataId> {
        self.inner.get_name(name)
    }

    fn target_config(&self) -> TargetFrontendConfig {
        self.inner.target_config()
    }

    fn make_context(&self) -> Context {
        self.inner.make_context()
    }

    fn clear_context(&self, ctx: &mut Context) {
        self.inner.clear_context(ctx);
    }

    fn make_signature(&self) -> Signature {
        self.inner.make_signature()
    }

    fn clear_signature(&self, sig: &mut Signature) {
        self.inner.clear_signature(sig);
    }

    fn declare_function(
        &mut self,
        name: &str,
        linkage: Linkage,
        signature: &Signature,
    ) -> ModuleResult<FuncId> {
        self.inner.declare_function(name, linkage, signature)
    }

    fn declare_anonymous_function(&mut self, signature: &Signature) -> ModuleResult<FuncId> {
        self.inner.declare_anonymous_function(signature)
    }

    fn declare_data(
        &mut self,
        name: &str,
        linkage: Linkage,
        writable: bool,
        tls: bool,
    ) -> ModuleResult<DataId> {
        self.inner.declare_data(name, linkage, writable, tls)
    }

    fn declare_anonymous_data(&mut self, writable: bool, tls: bool) -> ModuleResult<DataId> {
        self.inner.declare_anonymous_data(writable, tls)
    }

    fn declare_func_in_func(&mut self, id: FuncId, func: &mut Function) -> FuncRef {
        self.inner.declare_func_in_func(id, func)
    }

    fn declare_data_in_func(&self, id: DataId, func: &mut Function) -> GlobalValue {
        self.inner.declare_data_in_func(id, func)
    }

    fn declare_func_in_data(&self, id: FuncId, data: &mut DataDescription) -> FuncRef {
        self.inner.declare_func_in_data(id, data)
    }

    fn declare_data_in_data(&self, id: DataId, data: &mut DataDescription) -> GlobalValue {
        self.inner.declare_data_in_data(id, data)
    }

    fn define_function_with_control_plane(
        &mut self,
        id: FuncId,
        ctx: &mut Context,
        control_plane: &mut ControlPlane,
    ) -> ModuleResult<()> {
        self.inner.define_function_with_control_plane(id, ctx, control_plane)?;
        // Such modules unwrap here.
        self.record(id, ctx.compiled_code().unwrap().clone())
    }

    fn define_function_bytes(
        &mut self,
        id: FuncId,
        alignment: u64,
        bytes: &[u8],
        relocs: &[ModuleReloc],
    ) -> ModuleResult<()> {
        self.inner.define_function_bytes(id, alignment, bytes, relocs)
    }

    fn define_data(&mut self, id: DataId, description: &DataDescription) -> ModuleResult<()> {
        self.inner.define_data(id, description)
    }
}

#[cfg(feature = "parallel")]
impl<M: Module> cranelift_mergefunc_module::DefineCompiled for UnwindModule<M> {
    fn define_compiled(
        &mut self,
        id: FuncId,
        compiled: &cranelift_mergefunc_module::CompiledFunction,
    ) -> ModuleResult<()> {
        let bytes = compiled.code.code_buffer();
        self.inner.define_function_bytes(id, compiled.alignment, bytes, &compiled.relocations)?;
        self.record(id, compiled.code.clone())
    }
}
