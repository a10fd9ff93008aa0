//! [`MergingModule`]: function merging for embedders that define functions through
//! `cranelift_module::Module`.
//!
//! It wraps a module and is one. Definitions are deferred until the result is needed (`finish`,
//! `finalize_definitions`, [`MergingModule::flush`]); then they are merged, and the functions that
//! are left are defined in the wrapped module. Declarations are passed through at once, so
//! identifiers are those of the wrapped module.
//!
//! * `lib.rs` is the wrapper: deferred definitions, and the errors that are reported at once;
//! * `flush` is the list of phases: plan, place, and `emit`, in which `body` is the code to
//!   compile;
//! * `parallel` compiles on several threads, and `unwind` writes the unwind information of what
//!   they compile;
//! * `view` is the state of symbols, without the wrapped module, so that threads can share it;
//! * `names` gives local names to symbols that can be interposed;
//! * `references` is where references go: where the plan redirects them, under these names;
//! * `nowhere` refuses references that lead nowhere;
//! * `options` holds the decisions of the embedder;
//! * `object` and `jit` are what these back ends add.
//!
//! It does not look into the wrapped module. It does not ask the module for what `Module` does not
//! offer (two symbols at one address), unless [`ModuleOptions::back_end`] says that the module can
//! do it.

//!
//! # Example
//!
//! ```
//! use cranelift_mergefunc_module::{MergingModule, cranelift_module::Module};
//!
//! fn compile(module: impl Module, define_all: impl FnOnce(&mut dyn Module)) {
//!     let mut module = MergingModule::new(module);
//!     define_all(&mut module);
//!     module.flush().unwrap();
//!     println!("{} functions compiled", module.stats().compiled);
//! }
//! ```
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `object` | what [`MergingModule`] does for `ObjectModule`: aliases, `finish` |
//! | `jit` | what it does for `JITModule`: addresses, `finalize_definitions` |
//! | `parallel` | the pass, and code generation, on all threads of the current pool of `rayon` |

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![expect(clippy::result_large_err, reason = "the error is that of cranelift-module")]

/// The examples of the README are tests.
#[cfg(all(doctest, feature = "jit", feature = "object"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The examples of the guide to embedding are tests, too.
#[cfg(all(doctest, feature = "jit", feature = "object", feature = "parallel"))]
#[doc = include_str!("../../../docs/embedding.md")]
struct Embedding;

/// And those of the guide to debugging.
#[cfg(all(doctest, feature = "jit", feature = "object", feature = "parallel"))]
#[doc = include_str!("../../../docs/debugging.md")]
struct Debugging;

mod body;
mod deferred;
mod emit;
mod flush;
mod ir_symbols;
#[cfg(feature = "jit")]
mod jit;
mod names;
mod nowhere;
#[cfg(feature = "object")]
mod object;
mod options;
#[cfg(feature = "parallel")]
mod parallel;
mod references;
#[cfg(all(feature = "object", feature = "parallel"))]
mod unwind;
mod view;

pub use cranelift_mergefunc;
pub use cranelift_module;
pub use options::{BackEnd, ModuleOptions, ModuleStats};
#[cfg(feature = "parallel")]
pub use {
    body::CompiledFunction,
    parallel::{DefineCompiled, panic_is_passed_on},
};

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{self, Function, UserExternalName};
use cranelift_codegen::isa::{TargetFrontendConfig, TargetIsa};
use cranelift_entity::SecondaryMap;
use cranelift_mergefunc::check::Refutation;
use cranelift_mergefunc::data::DataAttributes;
use cranelift_mergefunc::explain::{MergeMap, Original, Recorded};
use cranelift_mergefunc::incremental::MergeCache;
use cranelift_mergefunc::thunk::CallThunks;
use cranelift_mergefunc::units::SharingMap;
use cranelift_mergefunc::{
    Attributes, Disposition, ExtraArgument, Linkage, Plan, Reason, Stats, Target,
};
use cranelift_module::{
    DataDescription, DataId, FuncId, FuncOrDataId, Module, ModuleDeclarations, ModuleError,
    ModuleReloc, ModuleRelocTarget, ModuleResult,
};
use references::References;
use rustc_hash::FxBuildHasher;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use view::View;

/// Symbols that are to get the address of another one, in an object file.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "without `place`, these symbols lead nowhere"]
pub struct ObjectFixups {
    functions: Vec<(FuncId, FuncId)>,
    data: Vec<(DataId, DataId)>,
    /// Content-addressed functions.
    contents: Vec<FuncId>,
    /// The unwind information of functions that were defined by bytes, if it is wanted.
    #[cfg(all(feature = "object", feature = "parallel"))]
    unwind: Option<unwind::UnwindTable>,
}

impl ObjectFixups {
    /// Whether there are none, and nothing else that [`place`](ObjectFixups::place) would do.
    pub fn is_empty(&self) -> bool {
        #[cfg(all(feature = "object", feature = "parallel"))]
        if self.unwind.as_ref().is_some_and(|table| !table.is_empty()) {
            return false;
        }
        self.functions.is_empty() && self.data.is_empty() && self.contents.is_empty()
    }

    /// Functions, each with the one whose address its symbol gets.
    pub fn functions(&self) -> &[(FuncId, FuncId)] {
        &self.functions
    }

    /// The content-addressed functions: each is to be a weak definition of a section of its own, in
    /// a COMDAT group where the format has these.
    pub fn contents(&self) -> &[FuncId] {
        &self.contents
    }

    /// Data objects, each with the one whose address its symbol gets.
    pub fn data_objects(&self) -> &[(DataId, DataId)] {
        &self.data
    }
}

/// The state of a function.
#[derive(Clone, Default)]
struct FunctionState {
    defined: bool,
    /// Code that was emitted before its definition calls its symbol, or holds its address.
    called: bool,
    address_held: bool,
    /// Another definition may take its symbol, so it is always called by its symbol.
    preemptible: bool,
    /// Other functions have its body, or later ones may.
    replaces_others: bool,
    /// Its disposition; [`View::reached`] resolves references to it.
    disposition: Disposition<FuncId>,
    /// In which flush, counted from 1.
    flush: u32,
    /// The extra arguments that the function that replaces it takes.
    extra: Vec<ExtraArgument>,
    /// The reason for its disposition, once it was flushed.
    reason: Option<Reason>,
    /// Bytes of its own code, if it was emitted.
    size: u32,
}

/// The state of a data object.
#[derive(Clone, Default)]
struct DataState {
    defined: bool,
    /// Code or data that was emitted before its definition refers to it.
    used: bool,
    /// Other objects have its contents, or later ones may.
    replaces_others: bool,
    /// Its disposition; [`View::data_reached`] resolves references to it.
    disposition: Disposition<DataId>,
    /// In which flush, counted from 1.
    flush: u32,
    reason: Option<Reason>,
}

/// A deferred definition.
enum Definition {
    Body { func: Box<Function>, want_disasm: bool, control_plane: ControlPlane },
    Bytes { alignment: u64, bytes: Vec<u8>, relocs: Vec<ModuleReloc> },
}

impl Definition {
    /// `func`, to be compiled as `ctx` says.
    fn body(func: Function, ctx: &Context, control_plane: &ControlPlane) -> Definition {
        Definition::Body {
            func: Box::new(func),
            want_disasm: ctx.want_disasm,
            control_plane: control_plane.clone(),
        }
    }
}

/// Deferred definitions, in the order in which they were made.
#[derive(Default)]
struct Pending {
    functions: Vec<(FuncId, Definition)>,
    data: Vec<(DataId, DataDescription)>,
}

/// The state of functions and data objects, over all flushes.
#[derive(Default)]
struct Symbols {
    functions: SecondaryMap<FuncId, FunctionState>,
    data: SecondaryMap<DataId, DataState>,
    /// The attributes that the embedder gives functions.
    attributes: HashMap<FuncId, Attributes, FxBuildHasher>,
    /// Attributes of data objects.
    data_attributes: HashMap<DataId, DataAttributes, FxBuildHasher>,
    /// Functions that the plans added, by the index of their symbols.
    added: Vec<FuncId>,
    /// Local names, which cannot be interposed, of functions that could be.
    local_names: HashMap<FuncId, FuncId, FxBuildHasher>,
    /// Local names of data objects.
    local_data_names: HashMap<DataId, DataId, FxBuildHasher>,
    /// The functions of local names.
    named: HashMap<FuncId, FuncId, FxBuildHasher>,
}

/// The results of the passes of the flushes.
#[derive(Default)]
struct Passes {
    /// The functions and data into which later ones can be merged.
    emitted: MergeCache,
    /// The statistics of the last flush.
    stats: Stats,
    /// Why the plan of the last flush that was refused could not be proved.
    refutation: Option<Refutation>,
    /// The records for backtraces of all flushed functions.
    recorded: Recorded,
}

/// How far the flushes came, and whether more definitions may follow.
#[derive(Default)]
struct Progress {
    /// For what the first flush was planned, and all that come after.
    back_end: Option<BackEnd>,
    /// The function at which a flush failed.
    failed: Option<FuncId>,
    /// A flush failed, and the definitions that it was working on are lost.
    broken: bool,
    /// Whether nothing can be defined any more.
    complete: bool,
}

/// A module that merges functions that do the same thing before they are compiled.
///
/// Wrap the module that is used so far, and use the wrapper in its place:
///
/// * errors are reported when the wrapped module would report them: a definition of an import, a
///   second definition and IR that the verifier refuses are reported by `define_function`. Errors
///   that only the compiler finds (IR that it does not support) are reported by the flush;
///   [`MergingModule::failed`] returns the function;
/// * `define_function` copies the function ([`ModuleOptions::take_ir`] saves the copy). The context
///   is left as it is and holds no compiled code;
/// * linkage may widen until the flush, which reads it. In an object it cannot widen after that,
///   and in other modules a function or data object that shares its body cannot become preemptible:
///   it is an error to declare it so;
/// * functions and data objects keep addresses of their own by default: see
///   [`MergingModule::attributes`].
///
/// It should be the outermost wrapper: one that reads `ctx.compiled_code()` after forwarding
/// `define_function`, as the one that writes unwind information in `rustc_codegen_cranelift` does,
/// must be inside, where it sees only functions that are compiled.
///
/// A module that is dropped without `finish`, `finalize_definitions`, `into_inner` or `flush` loses
/// its deferred definitions.
///
/// See the [example](crate#example).
pub struct MergingModule<M> {
    inner: M,
    /// That of the wrapped module.
    target: Target,
    options: ModuleOptions,
    symbols: Symbols,
    pending: Pending,
    aliases: ObjectFixups,
    stats: ModuleStats,
    passes: Passes,
    progress: Progress,
    context: Option<Box<Context>>,
    /// How functions are defined that other threads compiled.
    #[cfg(feature = "parallel")]
    codegen: Option<parallel::ParallelCodegen<M>>,
    /// Which functions share bodies with functions of other objects.
    sharing_map: Option<Arc<SharingMap<'static>>>,
}

impl<M: Module> MergingModule<M> {
    /// Wraps `inner`, with the options that give up nothing.
    pub fn new(inner: M) -> Self {
        MergingModule::with_options(inner, ModuleOptions::default())
    }

    /// Wraps `inner`. Existing definitions in it stay as they are.
    pub fn with_options(inner: M, options: ModuleOptions) -> Self {
        MergingModule {
            target: Target {
                call_thunks: Some(CallThunks::of(inner.isa())),
                ..Target::of(inner.isa())
            },
            inner,
            options,
            symbols: Symbols::default(),
            pending: Pending::default(),
            aliases: ObjectFixups::default(),
            stats: ModuleStats::default(),
            passes: Passes::default(),
            progress: Progress::default(),
            context: None,
            #[cfg(feature = "parallel")]
            codegen: None,
            sharing_map: None,
        }
    }

    /// The options.
    pub fn options(&self) -> &ModuleOptions {
        &self.options
    }

    /// The wrapped module. It lacks the deferred definitions.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// The wrapped module, for operations that `Module` does not offer, such as finalizing flushed
    /// code. Nothing must be declared or defined in it that is not declared or defined in the
    /// wrapper.
    pub fn inner_mut(&mut self) -> &mut M {
        &mut self.inner
    }

    /// The function of the wrapped module whose address is that of `function`, once it was flushed:
    /// itself, unless it has no code of its own.
    pub fn address_of(&self, function: FuncId) -> FuncId {
        self.view().address_target(function).unwrap_or(function)
    }

    /// The data object of the wrapped module whose address is that of `data`.
    pub fn data_address_of(&self, data: DataId) -> DataId {
        self.view().data_target(data).unwrap_or(data)
    }

    /// The properties of a function that merging needs and the module does not know: whether its
    /// address is significant, whether it is pinned or not to be merged, its key. To be set before
    /// the function is flushed. The linkage in it is not used, that of the declaration is. A
    /// function that needs an alignment is given to the wrapped module as bytes, since `Module` has
    /// no other way to ask for one: it gets no unwind information.
    ///
    /// The address of a *local* function counts as taken if a function or a data object of the
    /// module takes it, in this flush or a later one. If the host asks for it
    /// (`get_finalized_function`) and compares it, set `address_taken`.
    pub fn attributes(&mut self, function: FuncId) -> &mut Attributes {
        let addresses = self.options.function_addresses;
        self.symbols
            .attributes
            .entry(function)
            .or_insert_with(|| Attributes { addresses, ..Attributes::default() })
    }

    /// Attributes of a data object; to be set before `define_data`. Linkage, `writable` and `tls`
    /// are those of the declaration.
    pub fn data_attributes(&mut self, data: DataId) -> &mut DataAttributes {
        let addresses = self.options.data_addresses;
        self.symbols
            .data_attributes
            .entry(data)
            .or_insert_with(|| DataAttributes { addresses, ..DataAttributes::default() })
    }

    /// The statistics of merging so far.
    pub fn stats(&self) -> &ModuleStats {
        &self.stats
    }

    /// Counters of the pass in the last flush.
    pub fn pass_stats(&self) -> &Stats {
        &self.passes.stats
    }

    /// The reason why the plan of the last refused flush could not be proved. Symbols of functions
    /// have namespace 0 and the number of their `FuncId`.
    pub fn refutation(&self) -> Option<&Refutation> {
        self.passes.refutation.as_ref()
    }

    /// The disposition of a function, with its reason. `None` before it is flushed, and for
    /// functions that were defined by bytes.
    pub fn outcome(&self, function: FuncId) -> Option<(Disposition<FuncId>, Reason)> {
        let FunctionState { disposition, reason, .. } = &self.symbols.functions[function];
        Some((*disposition, (*reason)?))
    }

    /// The disposition of a data object, and its reason. `None` also for objects that were never
    /// deferred.
    pub fn data_outcome(&self, data: DataId) -> Option<(Disposition<DataId>, Reason)> {
        let DataState { disposition, reason, .. } = &self.symbols.data[data];
        Some((*disposition, (*reason)?))
    }

    /// The memory, in bytes, that is held for functions that were flushed, so that later ones can
    /// be merged into them.
    pub fn remembered_bytes(&self) -> usize {
        self.passes.emitted.size()
    }

    /// The function at which a flush failed. The module cannot be used any more.
    pub fn failed(&self) -> Option<FuncId> {
        self.progress.failed
    }

    /// Says by a
    /// [sharing map](cranelift_mergefunc::across::ContentAddressing::sharing_map) which functions
    /// share bodies with functions of other objects, with [`ModuleOptions::content_addressed`]. To
    /// be called before the flush.
    pub fn set_sharing_map(&mut self, map: Arc<SharingMap<'static>>) {
        self.sharing_map = Some(map);
    }

    /// Merges and defines the deferred functions and data, if there are any.
    ///
    /// In a JIT, this can be called any number of times. An object is planned once: after a flush
    /// with [`BackEnd::Object`], nothing can be defined or declared as more visible. All flushes
    /// are for the back end of the first.
    ///
    /// # Errors
    ///
    /// The error of the wrapped module for one of the functions; see [`MergingModule::failed`].
    pub fn flush(&mut self) -> ModuleResult<()> {
        self.flush_to(self.options.back_end, false)
    }

    /// Flushes for the last time, and gives back the wrapped module. With [`BackEnd::Object`], the
    /// aliases must be placed in the object that it becomes.
    ///
    /// # Errors
    ///
    /// See [`MergingModule::flush`].
    pub fn into_inner(mut self) -> ModuleResult<(M, ObjectFixups)> {
        self.flush_to(self.options.back_end, true)?;
        self.define_eliminated()?;
        Ok((self.inner, self.aliases))
    }

    /// The function whose body runs when `function` is called. Itself, unless it was merged.
    pub fn body_of(&self, function: FuncId) -> FuncId {
        self.view().reached(function).body
    }

    /// Why there is no code, or are no contents, under the symbol of a function or data object,
    /// with its name, if it was merged away. Whoever resolves references without asking
    /// [`address_of`](MergingModule::address_of) must not resolve one to such a symbol.
    pub fn without_code(&self, target: &ModuleRelocTarget) -> Option<String> {
        match *target {
            ModuleRelocTarget::User { namespace, index } => {
                self.view().nowhere(&UserExternalName::new(namespace, index))
            }
            ModuleRelocTarget::LibCall(_)
            | ModuleRelocTarget::KnownSymbol(_)
            | ModuleRelocTarget::FunctionOffset(..) => None,
        }
    }

    /// The name of the symbol by which other objects know the code of a function: that of its
    /// declaration, or for a content-addressed body its digest.
    pub fn symbol_name(&self, function: FuncId) -> String {
        let name = self.symbols.local_names.get(&function).copied();
        // Ascending: they were declared in their order.
        let is_content = |name: &FuncId| self.aliases.contents.binary_search(name).is_ok();
        let name = name.filter(is_content).unwrap_or(function);
        self.inner.declarations().get_function_decl(name).linkage_name(name).into_owned()
    }

    /// The disposition of every function that was flushed, by name.
    pub fn merge_map(&self) -> MergeMap {
        let mut map = MergeMap::new();
        for (function, declaration) in self.inner.declarations().get_functions() {
            let state = &self.symbols.functions[function];
            let disposition = state.disposition.map(symbol);
            if disposition == Disposition::Keep && state.size == 0 {
                // Imports, and functions that are not flushed yet.
                continue;
            }
            let name = self.symbol_name(function);
            let is_visible = declaration.linkage != cranelift_module::Linkage::Local;
            let own = |name: &UserExternalName| {
                let id = (name.namespace == 0).then(|| FuncId::from_u32(name.index))?;
                self.symbols.named.get(&id).copied().map(symbol)
            };
            let arguments = state.extra.iter().map(|argument| argument.redirected(&own)).collect();
            let symbol = symbol(function);
            map.add(Original { symbol, name, is_visible, disposition, arguments });
        }
        map.set_recorded(self.passes.recorded.clone());
        map
    }

    /// The present state of functions and data.
    fn view(&self) -> View<'_> {
        View {
            symbols: &self.symbols,
            options: &self.options,
            declarations: self.inner.declarations(),
            isa: self.inner.isa(),
        }
    }

    /// The references of the module in this function or data, for a plan.
    fn references<'a>(&'a self, plan: &'a Plan, shared: bool) -> References<'a> {
        References { view: self.view(), plan, shared }
    }

    fn defer(&mut self, function: FuncId, definition: Definition) {
        self.pending.functions.push((function, definition));
        self.symbols.functions[function].defined = true;
    }

    /// Whether a definition of `function` may come now.
    fn check_definition(&self, function: FuncId) -> ModuleResult<()> {
        let declaration = self.inner.declarations().get_function_decl(function);
        let name = || declaration.linkage_name(function).into_owned();
        check_definition(declaration.linkage, self.symbols.functions[function].defined, name)?;
        self.check_open()
    }

    /// Checks that a data object can be defined.
    fn check_data_definition(&self, data: DataId) -> ModuleResult<()> {
        let declaration = self.inner.declarations().get_data_decl(data);
        let name = || declaration.linkage_name(data).into_owned();
        check_definition(declaration.linkage, self.symbols.data[data].defined, name)?;
        self.check_open()
    }

    /// Whether a function or object that was declared with the linkage `before` may be declared
    /// with the linkage `now`. In an object, the plan relied on what others can see. One that
    /// shares its body is referred to by the symbol of another one, which no other definition can
    /// replace.
    fn check_linkage(
        &self,
        name: &str,
        before: cranelift_module::Linkage,
        now: cranelift_module::Linkage,
        is_shared: bool,
    ) -> ModuleResult<()> {
        let error = match widens(before, now) {
            true if self.progress.complete => {
                anyhow::anyhow!("{name} cannot become more visible: the object is planned already")
            }
            true if is_shared && now == cranelift_module::Linkage::Preemptible => {
                anyhow::anyhow!("{name} cannot become preemptible: it may share its body already")
            }
            true | false => return Ok(()),
        };
        Err(ModuleError::Backend(error))
    }

    fn check_open(&self) -> ModuleResult<()> {
        match self.progress.complete {
            true => Err(ModuleError::Backend(anyhow::anyhow!("the object is planned already"))),
            false => self.check_usable(),
        }
    }

    fn check_usable(&self) -> ModuleResult<()> {
        if !self.progress.broken {
            return Ok(());
        }
        let at = self.progress.failed.map(|failed| {
            let declaration = self.inner.declarations().get_function_decl(failed);
            std::format!(", at function {}", declaration.linkage_name(failed))
        });
        let at = at.unwrap_or_default();
        Err(ModuleError::Backend(anyhow::anyhow!("a flush failed before{at}")))
    }
}

/// Whether a declaration as `now` makes a symbol that is declared as `before` more visible.
fn widens(before: cranelift_module::Linkage, now: cranelift_module::Linkage) -> bool {
    use cranelift_module::Linkage::{Export, Hidden, Import, Local, Preemptible};
    match before {
        Local => matches!(now, Hidden | Export | Preemptible),
        Hidden => matches!(now, Export | Preemptible),
        Preemptible => now == Export,
        Export | Import => false,
    }
}

/// Whether a function or object of this linkage may be defined, with the error that every module
/// gives.
fn check_definition(
    linkage: cranelift_module::Linkage,
    defined: bool,
    name: impl FnOnce() -> String,
) -> ModuleResult<()> {
    if !linkage.is_definable() {
        return Err(ModuleError::InvalidImportDefinition(name()));
    }
    if defined {
        return Err(ModuleError::DuplicateDefinition(name()));
    }
    Ok(())
}

/// The symbol of a function in IR.
fn symbol(function: FuncId) -> UserExternalName {
    UserExternalName::new(0, function.as_u32())
}

/// The symbol of a data object in IR.
fn data_symbol(data: DataId) -> UserExternalName {
    UserExternalName::new(1, data.as_u32())
}

/// The linkage of a function or object that can be defined.
fn linkage(linkage: cranelift_module::Linkage) -> Linkage {
    match linkage {
        cranelift_module::Linkage::Local => Linkage::Local,
        cranelift_module::Linkage::Hidden => Linkage::Hidden,
        cranelift_module::Linkage::Export => Linkage::Export,
        // No other linkage was accepted with a definition.
        cranelift_module::Linkage::Preemptible | cranelift_module::Linkage::Import => {
            Linkage::Preemptible
        }
    }
}

impl<M: fmt::Debug> fmt::Debug for MergingModule<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MergingModule")
            .field("inner", &self.inner)
            .field("options", &self.options)
            .field("pending", &self.pending.functions.len())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl<M: Module> Module for MergingModule<M> {
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

    fn make_signature(&self) -> ir::Signature {
        self.inner.make_signature()
    }

    fn clear_signature(&self, sig: &mut ir::Signature) {
        self.inner.clear_signature(sig);
    }

    fn declare_function(
        &mut self,
        name: &str,
        linkage: cranelift_module::Linkage,
        signature: &ir::Signature,
    ) -> ModuleResult<FuncId> {
        if let Some(FuncOrDataId::Func(function)) = self.inner.get_name(name) {
            let FunctionState { disposition, replaces_others, .. } =
                &self.symbols.functions[function];
            let is_shared = *disposition != Disposition::Keep || *replaces_others;
            let before = self.inner.declarations().get_function_decl(function).linkage;
            self.check_linkage(name, before, linkage, is_shared)?;
        }
        self.inner.declare_function(name, linkage, signature)
    }

    fn declare_anonymous_function(&mut self, signature: &ir::Signature) -> ModuleResult<FuncId> {
        self.inner.declare_anonymous_function(signature)
    }

    fn declare_data(
        &mut self,
        name: &str,
        linkage: cranelift_module::Linkage,
        writable: bool,
        tls: bool,
    ) -> ModuleResult<DataId> {
        if let Some(FuncOrDataId::Data(data)) = self.inner.get_name(name) {
            let DataState { disposition, replaces_others, .. } = &self.symbols.data[data];
            let is_shared = *disposition != Disposition::Keep || *replaces_others;
            let before = self.inner.declarations().get_data_decl(data).linkage;
            self.check_linkage(name, before, linkage, is_shared)?;
        }
        self.inner.declare_data(name, linkage, writable, tls)
    }

    fn declare_anonymous_data(&mut self, writable: bool, tls: bool) -> ModuleResult<DataId> {
        self.inner.declare_anonymous_data(writable, tls)
    }

    fn declare_func_in_func(&mut self, func_id: FuncId, func: &mut Function) -> ir::FuncRef {
        self.inner.declare_func_in_func(func_id, func)
    }

    fn declare_data_in_func(&self, data: DataId, func: &mut Function) -> ir::GlobalValue {
        self.inner.declare_data_in_func(data, func)
    }

    fn declare_func_in_data(&self, func_id: FuncId, data: &mut DataDescription) -> ir::FuncRef {
        self.inner.declare_func_in_data(func_id, data)
    }

    fn declare_data_in_data(&self, data_id: DataId, data: &mut DataDescription) -> ir::GlobalValue {
        self.inner.declare_data_in_data(data_id, data)
    }

    fn define_function_with_control_plane(
        &mut self,
        function: FuncId,
        ctx: &mut Context,
        ctrl_plane: &mut ControlPlane,
    ) -> ModuleResult<()> {
        self.check_definition(function)?;
        if ctx.func.layout.entry_block().is_none() {
            // Not a function; the wrapped module will report it.
            return self.inner.define_function_with_control_plane(function, ctx, ctrl_plane);
        }
        ctx.verify_if(self.inner.isa())?;
        let func = match self.options.take_ir {
            true => std::mem::replace(&mut ctx.func, Function::new()),
            false => ctx.func.clone(),
        };
        self.defer(function, Definition::body(func, ctx, ctrl_plane));
        Ok(())
    }

    fn define_function_bytes(
        &mut self,
        function: FuncId,
        alignment: u64,
        bytes: &[u8],
        relocs: &[ModuleReloc],
    ) -> ModuleResult<()> {
        self.check_definition(function)?;
        let relocs = relocs.to_owned();
        self.defer(function, Definition::Bytes { alignment, bytes: bytes.to_owned(), relocs });
        Ok(())
    }

    fn define_data(&mut self, data: DataId, description: &DataDescription) -> ModuleResult<()> {
        self.check_data_definition(data)?;
        if !self.must_wait(data, description) {
            self.inner.define_data(data, description)?;
            self.symbols.data[data].defined = true;
            return Ok(());
        }
        self.pending.data.push((data, description.clone()));
        self.symbols.data[data].defined = true;
        Ok(())
    }
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<MergingModule<Box<dyn SendModule>>>();
    /// A module that can be moved to another thread.
    trait SendModule: Module + Send {}
};
