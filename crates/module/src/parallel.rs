//! Code generation on the threads of the current `rayon` pool.
//!
//! Cranelift's modules compile a function when they define it, on the thread that calls them, and
//! `Module` has no way to hand over compiled code but its bytes. So bodies are prepared and
//! compiled by all threads, a bounded number of them at a time, and the thread that flushes defines
//! them by [`DefineCompiled`], in the order of the definitions: the result does not depend on the
//! number of threads. An error, or a panic, is that of the first body in this order.
//!
//! An implementor must supply whatever `define_function_bytes` drops. Of Cranelift's own modules,
//! `ObjectModule` loses unwind information, which `unwind` writes, and `JITModule` exception
//! tables, so that it compiles functions that have one itself.

use crate::body::{Body, Code, CompiledFunction, Observed, added};
use crate::emit::Item;
use crate::{MergingModule, ModuleOptions};
use core::cmp::Reverse;
use core::sync::atomic::{AtomicUsize, Ordering};
use cranelift_codegen::Context;
use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::TargetIsa;
use cranelift_mergefunc::Plan;
use cranelift_module::{FuncId, Module, ModuleError, ModuleResult};
use rayon::iter::{IndexedParallelIterator, IntoParallelRefMutIterator, ParallelIterator};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// A module that takes functions that were compiled elsewhere: on other threads, for
/// [`MergingModule::in_parallel`].
///
/// `ObjectModule` is wrapped by [`MergingModule::object_in_parallel`] and does not implement it,
/// since it would silently drop unwind information. A module that wraps one reads in
/// `define_compiled` what it reads from the context after `define_function`:
///
/// ```
/// # use cranelift_mergefunc_module::{CompiledFunction, DefineCompiled};
/// # use cranelift_mergefunc_module::cranelift_module::{FuncId, Module, ModuleResult};
/// fn define_compiled<M: Module>(
///     inner: &mut M,
///     function: FuncId,
///     compiled: &CompiledFunction,
/// ) -> ModuleResult<()> {
///     let CompiledFunction { code, relocations, alignment, .. } = compiled;
///     inner.define_function_bytes(function, *alignment, code.code_buffer(), relocations)?;
///     let unwind = code.create_unwind_info(inner.isa())?;
///     # drop(unwind);
///     // ...
///     Ok(())
/// }
/// ```
pub trait DefineCompiled: Module {
    /// Whether `define_compiled` does all for `func` that `define_function` would. If not,
    /// `define_function` compiles and defines it, on the thread that flushes.
    fn takes_compiled(&self, func: &Function) -> bool {
        let _ = func;
        true
    }

    /// Defines `function`, with the result that `define_function` would have.
    ///
    /// # Errors
    ///
    /// Those of `define_function`.
    fn define_compiled(
        &mut self,
        function: FuncId,
        compiled: &CompiledFunction,
    ) -> ModuleResult<()>;
}

#[cfg(feature = "jit")]
impl DefineCompiled for cranelift_jit::JITModule {
    /// All but functions that catch exceptions: code that is defined by bytes has no table of
    /// handlers.
    fn takes_compiled(&self, func: &Function) -> bool {
        func.dfg.exception_tables.is_empty()
    }

    fn define_compiled(
        &mut self,
        function: FuncId,
        compiled: &CompiledFunction,
    ) -> ModuleResult<()> {
        define_bytes(self, function, compiled)
    }
}

#[cfg(any(feature = "jit", feature = "object"))]
fn define_bytes<M: Module>(
    module: &mut M,
    function: FuncId,
    compiled: &CompiledFunction,
) -> ModuleResult<()> {
    let CompiledFunction { code, relocations, alignment } = compiled;
    module.define_function_bytes(function, *alignment, code.code_buffer(), relocations)
}

/// How functions get into a module that takes compiled ones.
pub(crate) struct ParallelCodegen<M> {
    takes: fn(&M, &Function) -> bool,
    define: fn(&mut M, FuncId, &CompiledFunction) -> ModuleResult<()>,
    /// Of threads that are not compiling.
    contexts: Mutex<Vec<Context>>,
}

impl<M: DefineCompiled> MergingModule<M> {
    /// Wraps `inner`, and compiles on the threads of the current pool of `rayon`: that in which the
    /// flush runs (`ThreadPool::install`), or else the global one. The wrapped module defines the
    /// same code in the same order as without threads, whatever their number.
    ///
    /// A bounded number of functions is compiled at a time: for each thread of the pool 256, or
    /// less if these have 65,536 instructions together and twice the number of instructions of the
    /// largest of them.
    ///
    /// Threads of a pool have a stack of 2 MiB if its builder does not say otherwise, and Cranelift
    /// is recursive over parts of what it compiles.
    pub fn in_parallel(inner: M, options: ModuleOptions) -> Self {
        MergingModule::with_codegen(inner, options, M::takes_compiled, M::define_compiled)
    }
}

#[cfg(feature = "object")]
impl MergingModule<cranelift_object::ObjectModule> {
    /// Wraps the module of `builder`, and compiles on several threads: see
    /// [`MergingModule::in_parallel`].
    ///
    /// `unwind_info` replaces `ObjectBuilder::unwind_info`, since `ObjectModule` writes unwind
    /// information only for functions that it compiles. [`finish`](MergingModule::finish) and
    /// [`ObjectFixups::place`](crate::ObjectFixups::place) write it, as `ObjectModule::finish`
    /// would.
    pub fn object_in_parallel(
        mut builder: cranelift_object::ObjectBuilder,
        unwind_info: bool,
        options: ModuleOptions,
    ) -> Self {
        builder.unwind_info(false);
        let inner = cranelift_object::ObjectModule::new(builder);
        let mut module = MergingModule::with_codegen(inner, options, |_, _| true, define_bytes);
        if unwind_info {
            module.aliases.unwind = Some(crate::unwind::UnwindTable::new(module.inner.isa()));
        }
        module
    }
}

std::thread_local! {
    static PASSED_ON: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic on this thread will go on, with its payload, on the thread that flushes, when it
/// comes to the function that this thread compiles: unless an earlier function is refused. For
/// panic hooks, which are called once, here, and may leave it to the thread that flushes to report
/// the panic.
pub fn panic_is_passed_on() -> bool {
    PASSED_ON.get()
}

/// How many functions are compiled at a time, for each thread: compiled code takes several
/// kilobytes at least.
const FUNCTIONS: usize = 256;
/// How many instructions they have, for each thread, if none is larger than half of that.
const INSTRUCTIONS: usize = 1 << 16;

impl<M: Module> MergingModule<M> {
    fn with_codegen(
        inner: M,
        options: ModuleOptions,
        takes: fn(&M, &Function) -> bool,
        define: fn(&mut M, FuncId, &CompiledFunction) -> ModuleResult<()>,
    ) -> Self {
        let mut module = MergingModule::with_options(inner, options);
        module.codegen = Some(ParallelCodegen { takes, define, contexts: Mutex::default() });
        module
    }

    /// `first` and the following items of its chunk, compiled. It is `first` alone, as it was, in a
    /// module that compiles itself, and if the embedder wants to see the code.
    pub(crate) fn next_chunk(
        &self,
        plan: &Plan,
        first: Item,
        items: &mut dyn Iterator<Item = Item>,
    ) -> Vec<Item> {
        let mut chunk = Vec::from([first]);
        let Some(codegen) = self.codegen.as_ref() else {
            return chunk;
        };
        let threads = rayon::current_num_threads();
        let (mut instructions, mut largest) = (0, INSTRUCTIONS);
        loop {
            let size = chunk.last_mut().and_then(Item::body).map_or(0, |(_, body)| body.size(plan));
            instructions += size;
            // Enough for all threads until the largest is compiled.
            largest = largest.max(2 * size);
            if chunk.len() >= FUNCTIONS * threads || instructions >= largest * threads {
                break;
            }
            let Some(next) = items.next() else {
                break;
            };
            chunk.push(next);
        }
        let mut merged: Vec<Box<Function>> = Vec::new();
        for item in &mut chunk {
            let takes = |thunk: &Function| (codegen.takes)(&self.inner, thunk);
            // A body that fails here fails again when it is emitted.
            merged.extend(self.without_ir(plan, item, takes).unwrap_or_default());
        }
        let bodies = chunk.iter_mut().filter_map(Item::body).enumerate();
        // The largest first, so that no thread begins a large function when the others have nothing
        // left.
        let mut bodies: Vec<(usize, (FuncId, &mut Body))> = bodies.collect();
        bodies.retain(|(_, (_, body))| match &body.code {
            Code::Ir(func) => (codegen.takes)(&self.inner, func),
            Code::Added => (codegen.takes)(&self.inner, added(plan, body.index)),
            Code::Thunk(_) => true,
            Code::Compiled(..) | Code::Panicked(_) | Code::Dropped => false,
        });
        bodies.sort_by_key(|(_, (_, body))| Reverse(body.size(plan)));
        let view = self.view();
        let contexts = &codegen.contexts;
        let refused = AtomicUsize::new(usize::MAX);
        let compile_all = || {
            bodies.par_iter_mut().with_max_len(1).for_each(|(at, (function, body))| {
                if *at > refused.load(Ordering::Relaxed) {
                    body.code = Code::Dropped;
                    return;
                }
                let work = || {
                    let code = std::mem::replace(&mut body.code, Code::Dropped);
                    let mut func = match code {
                        Code::Ir(func) => func,
                        Code::Added => Box::new(added(plan, body.index).clone()),
                        Code::Thunk(func) => {
                            let code = compile(contexts, *function, *func, body, view.isa);
                            return Code::Compiled(Observed::default(), code);
                        }
                        Code::Compiled(..) | Code::Panicked(_) | Code::Dropped => {
                            unreachable!("it was not compiled yet")
                        }
                    };
                    let of = (body.index, *function);
                    match view.prepare(plan, of, &mut func) {
                        Ok(observed) => {
                            let code = compile(contexts, *function, *func, body, view.isa);
                            Code::Compiled(observed, code)
                        }
                        Err(error) => Code::Compiled(Observed::default(), Err(error)),
                    }
                };
                let before = PASSED_ON.replace(true);
                body.code = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(Code::Panicked);
                PASSED_ON.set(before);
                if !matches!(body.code, Code::Compiled(_, Ok(_))) {
                    refused.fetch_min(*at, Ordering::Relaxed);
                }
            })
        };
        rayon::join(compile_all, || drop(merged));
        chunk
    }

    /// Defines a function that another thread compiled, at an alignment of at least `alignment`
    /// bytes.
    pub(crate) fn define_compiled(
        &mut self,
        function: FuncId,
        alignment: u32,
        compiled: &CompiledFunction,
    ) -> ModuleResult<()> {
        let CompiledFunction { code, relocations, alignment: own } = compiled;
        match (alignment, &self.codegen) {
            (1, Some(codegen)) => {
                #[cfg(feature = "object")]
                self.aliases.add_unwind_info(function, code, self.inner.isa())?;
                (codegen.define)(&mut self.inner, function, compiled)
            }
            _ => {
                let alignment = u64::from(alignment).max(*own);
                self.define_aligned(function, alignment, code.code_buffer(), relocations)
            }
        }
    }
}

/// Compiles a function that is ready for it, in one of the contexts.
fn compile(
    contexts: &Mutex<Vec<Context>>,
    function: FuncId,
    func: Function,
    body: &mut Body,
    isa: &dyn TargetIsa,
) -> ModuleResult<Box<CompiledFunction>> {
    // A thread that panics holds no lock.
    let free = || contexts.lock().unwrap_or_else(PoisonError::into_inner);
    let mut context = free().pop().unwrap_or_else(Context::new);
    context.func = func;
    context.set_disasm(body.want_disasm);
    let compiled = CompiledFunction::compile(&mut context, function, isa, &mut body.control_plane);
    context.clear();
    free().push(context);
    compiled.map(Box::new).map_err(ModuleError::Compilation)
}
