//! One body of a flush: redirected, compiled, defined.
//!
//! Preparing a body for compiling reads the state of the wrapper ([`View`]) and changes only the
//! body, so that several threads can do it (`parallel`). Its findings go into the state when the
//! body is defined, in the order of the definitions.

use crate::ir_symbols::{address_uses, user_symbol};
use crate::references::References;
use crate::view::View;
use crate::{DataState, MergingModule, Symbols, symbol};
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{Function, GlobalValueData, UserExternalName};
#[cfg(feature = "parallel")]
use cranelift_codegen::{CodegenResult, isa::TargetIsa};
use cranelift_codegen::{CompiledCode, Context};
use cranelift_mergefunc::explain::Sites;
use cranelift_mergefunc::{FunctionIndex, Plan};
use cranelift_module::{DataId, FuncId, Module, ModuleReloc, ModuleResult};
#[cfg(feature = "parallel")]
use std::fmt;

/// A body, and the settings with which it is compiled.
pub(crate) struct Body {
    pub index: FunctionIndex,
    pub code: Code,
    pub want_disasm: bool,
    pub control_plane: ControlPlane,
}

#[cfg(feature = "parallel")]
impl Body {
    /// Instructions, those without a place included, as long as it is IR.
    pub fn size(&self, plan: &Plan) -> usize {
        match &self.code {
            Code::Ir(func) | Code::Thunk(func) => func.dfg.num_insts(),
            Code::Added => added(plan, self.index).dfg.num_insts(),
            Code::Compiled(..) | Code::Panicked(_) | Code::Dropped => 0,
        }
    }
}

/// How far a body is.
pub(crate) enum Code {
    /// As it was defined.
    Ir(Box<Function>),
    /// As the plan added it.
    Added,
    /// A thunk for a defined function, ready to be compiled.
    #[cfg(feature = "parallel")]
    Thunk(Box<Function>),
    /// Compiled, or refused.
    #[cfg(feature = "parallel")]
    Compiled(Observed, ModuleResult<Box<CompiledFunction>>),
    /// The thread that compiled it panicked.
    #[cfg(feature = "parallel")]
    Panicked(Box<dyn std::any::Any + Send>),
    /// It is not needed, or one that comes before it was refused.
    #[cfg(feature = "parallel")]
    Dropped,
}

/// Symbols to which a body refers and that are not defined yet.
#[derive(Default)]
pub(crate) struct Observed {
    called: Vec<FuncId>,
    /// Namespaces and indices.
    pointers: Vec<(u32, u32)>,
    /// Its original instructions, for backtraces.
    numbered: Option<Box<Sites>>,
}

/// A compiled function, with what a module needs to define it.
///
/// See the [example](crate#example).
#[cfg(feature = "parallel")]
#[derive(Clone)]
#[non_exhaustive]
pub struct CompiledFunction {
    /// The result of Cranelift: the code, its traps, call sites, source locations, stack maps,
    /// unwind information.
    pub code: CompiledCode,
    /// The relocations of the code, by the identifiers of the module.
    pub relocations: Vec<ModuleReloc>,
    /// The alignment that the code needs, in bytes.
    pub alignment: u64,
}

#[cfg(feature = "parallel")]
impl fmt::Debug for CompiledFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledFunction").field("code", &self.code).finish_non_exhaustive()
    }
}

#[cfg(feature = "parallel")]
impl CompiledFunction {
    /// Compiles `ctx.func`, which is the function `function` of a module for `isa`. The compiled
    /// code is taken out of the context.
    ///
    /// # Errors
    ///
    /// That of `Context::compile`.
    pub fn compile(
        ctx: &mut Context,
        function: FuncId,
        isa: &dyn TargetIsa,
        control_plane: &mut ControlPlane,
    ) -> CodegenResult<CompiledFunction> {
        ctx.compile(isa, control_plane).map_err(|error| error.inner)?;
        let code = ctx.take_compiled_code().expect("compiled");
        let relocations = relocations(&code, &ctx.func, function);
        let alignment = u64::from(code.buffer.alignment);
        Ok(CompiledFunction { code, relocations, alignment })
    }

    /// Bytes of code, constants included.
    pub(crate) fn size(&self) -> u32 {
        self.code.code_info().total_size
    }
}

impl View<'_> {
    /// Makes `func` what is to be compiled for a function. Returns what it refers to and must keep
    /// its symbol, and for backtraces what its instructions were.
    pub(crate) fn prepare(
        self,
        plan: &Plan,
        (index, function): (FunctionIndex, FuncId),
        func: &mut Function,
    ) -> ModuleResult<Observed> {
        let is_content = plan.new_body(index).is_some_and(|new| new.content_digest().is_some());
        let shared = self.symbols.functions[function].replaces_others && !is_content;
        let numbered = self.options.backtraces.then(|| Box::new(Sites::number(func)));
        References { view: self, plan, shared }.redirect(index, func);
        Ok(Observed { numbered, ..self.observe(&symbol(function), func)? })
    }

    /// The references of `func` to functions and data that are not defined yet: these must keep
    /// their symbols.
    ///
    /// Refuses references that lead nowhere.
    fn observe(&self, of: &UserExternalName, func: &Function) -> ModuleResult<Observed> {
        let mut observed = Observed::default();
        for callee in func.dfg.ext_funcs.values() {
            let Some(symbol) = user_symbol(func, &callee.name) else {
                continue;
            };
            self.check_leads(of, symbol)?;
            if let UserExternalName { namespace: 0, index } = symbol {
                let function = FuncId::from_u32(*index);
                if !self.symbols.functions[function].defined {
                    observed.called.push(function);
                }
            }
        }
        let mut pointer = |symbol: Option<&UserExternalName>| {
            let Some(&UserExternalName { namespace, index }) = symbol else {
                return;
            };
            let defined = match namespace {
                0 => self.symbols.functions[FuncId::from_u32(index)].defined,
                1 => self.symbols.data[DataId::from_u32(index)].defined,
                _ => true,
            };
            if !defined {
                observed.pointers.push((namespace, index));
            }
        };
        if !observed.called.is_empty() {
            for used in address_uses(func) {
                let callee = func.dfg.ext_funcs.get(used);
                pointer(callee.and_then(|callee| user_symbol(func, &callee.name)));
            }
        }
        for gv in func.global_values.values() {
            if let GlobalValueData::Symbol { name, .. } = gv
                && let Some(symbol) = user_symbol(func, name)
            {
                self.check_leads(of, symbol)?;
                pointer(Some(symbol));
            }
        }
        Ok(observed)
    }
}

impl<M: Module> MergingModule<M> {
    /// Compiles a body, unless another thread did, and defines it.
    pub(crate) fn emit_body(
        &mut self,
        plan: &Plan,
        function: FuncId,
        body: Body,
    ) -> ModuleResult<()> {
        let Body { index, code, want_disasm, mut control_plane, .. } = body;
        let alignment = plan.entry(index).alignment();
        let code = match code {
            Code::Added => Code::Ir(Box::new(added(plan, index).clone())),
            code => code,
        };
        let size = match code {
            Code::Added => unreachable!("it has IR now"),
            Code::Ir(mut func) => {
                let of = (index, function);
                let observed = self.view().prepare(plan, of, &mut func)?;
                self.symbols.observe(&observed);
                let mut context = self.context.take().unwrap_or_else(|| Box::new(Context::new()));
                self.inner.clear_context(&mut context);
                context.func = *func;
                context.set_disasm(want_disasm);
                let defined = self.define(function, alignment, &mut context, &mut control_plane);
                let code = context.compiled_code();
                let size = code.map_or(0, |code| code.code_info().total_size);
                if let Some(code) = code {
                    self.record_compiled(function, &observed, code);
                }
                self.context = Some(context);
                defined?;
                size
            }
            #[cfg(feature = "parallel")]
            Code::Compiled(observed, compiled) => {
                self.symbols.observe(&observed);
                let compiled = compiled?;
                self.define_compiled(function, alignment, &compiled)?;
                self.record_compiled(function, &observed, &compiled.code);
                compiled.size()
            }
            #[cfg(feature = "parallel")]
            Code::Panicked(panic) => std::panic::resume_unwind(panic),
            #[cfg(feature = "parallel")]
            Code::Thunk(_) | Code::Dropped => unreachable!("nothing is emitted after an error"),
        };
        self.stats.compiled += 1;
        self.stats.code_bytes += u64::from(size);
        self.symbols.functions[function].size = size;
        Ok(())
    }

    /// Records, for backtraces, which instructions the code of a body is of.
    fn record_compiled(&mut self, function: FuncId, observed: &Observed, code: &CompiledCode) {
        if let Some(numbered) = &observed.numbered {
            self.passes.recorded.compiled(&symbol(function), numbered, &code.buffer);
        }
    }

    /// Compiles the function of a context and defines it at an alignment of at least `alignment`
    /// bytes.
    pub(crate) fn define(
        &mut self,
        function: FuncId,
        alignment: u32,
        context: &mut Context,
        control_plane: &mut ControlPlane,
    ) -> ModuleResult<()> {
        match alignment {
            1 => {
                self.inner.define_function_with_control_plane(function, context, control_plane)?;
                #[cfg(all(feature = "object", feature = "parallel"))]
                if let Some(code) = context.compiled_code() {
                    self.aliases.add_unwind_info(function, code, self.inner.isa())?;
                }
                Ok(())
            }
            _ => {
                let isa = self.inner.isa();
                context.compile(isa, control_plane).map_err(|error| error.inner)?;
                let code = context.compiled_code().expect("compiled");
                let relocs = relocations(code, &context.func, function);
                let at = u64::from(alignment).max(u64::from(code.buffer.alignment));
                self.define_aligned(function, at, code.code_buffer(), &relocs)
            }
        }
    }

    /// Defines a function by its bytes, since `Module` has no other way to ask for an alignment.
    pub(crate) fn define_aligned(
        &mut self,
        function: FuncId,
        alignment: u64,
        code: &[u8],
        relocations: &[ModuleReloc],
    ) -> ModuleResult<()> {
        let minimum = u64::from(self.inner.isa().function_alignment().minimum);
        self.inner.define_function_bytes(function, alignment.max(minimum), code, relocations)
    }
}

impl Symbols {
    /// Records what code that is about to be emitted refers to.
    fn observe(&mut self, observed: &Observed) {
        let Observed { called, pointers, numbered: _ } = observed;
        for &function in called {
            self.functions[function].called = true;
        }
        for &(namespace, index) in pointers {
            self.observe_pointer(namespace, index);
        }
    }

    /// Records that emitted code or data points to something. If it is not defined yet, it must
    /// keep its symbol.
    pub(crate) fn observe_pointer(&mut self, namespace: u32, index: u32) {
        match namespace {
            0 => {
                let state = &mut self.functions[FuncId::from_u32(index)];
                state.called |= !state.defined;
                state.address_held |= !state.defined;
            }
            1 => {
                let DataState { defined, used, .. } = &mut self.data[DataId::from_u32(index)];
                *used |= !*defined;
            }
            _ => {}
        }
    }
}

/// A body that a plan adds.
pub(crate) fn added(plan: &Plan, index: FunctionIndex) -> &Function {
    plan.new_body(index).expect("the plan added it").body()
}

/// The relocations of the code of a function, by the identifiers of its module.
fn relocations(code: &CompiledCode, func: &Function, function: FuncId) -> Vec<ModuleReloc> {
    let relocs = code.buffer.relocs().iter();
    relocs.map(|reloc| ModuleReloc::from_mach_reloc(reloc, func, function)).collect()
}
