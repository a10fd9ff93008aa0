//! The options and statistics of a [`MergingModule`](crate::MergingModule). Plain data: nothing is
//! decided here.

use cranelift_mergefunc::{Addresses, Compare, Prove, Similar};

/// The abilities of the wrapped module beyond `Module`.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackEnd {
    /// The module is unknown. Every function gets code of its own, if only a jump, and data objects
    /// are not merged. (A jump to an exported function names its symbol, which can be interposed in
    /// a shared library of ELF. `Object` does not have this limit.)
    #[default]
    Any,
    /// It contains an `ObjectModule`. Functions that are merged away become symbols at the address
    /// of their representative: [`ObjectFixups::place`](crate::ObjectFixups::place) must be called
    /// on what its `finish` returns. `MergingModule<ObjectModule>::finish` does all that.
    Object,
    /// It contains a `JITModule`, and all addresses are requested from the wrapper. Functions that
    /// are merged away have no code and no symbol. `MergingModule<JITModule>::finalize_definitions`
    /// does all that.
    Jit,
}

/// Options of a [`MergingModule`](crate::MergingModule).
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug)]
pub struct ModuleOptions {
    /// The abilities of the wrapped module.
    pub back_end: BackEnd,
    /// Whether `define_function` takes the function out of the context instead of copying it. For
    /// embedders that clear the context next: it saves copying every function. Default: no, the
    /// context is left as it is.
    pub take_ir: bool,
    /// Whether addresses of functions are significant by default. Default: they are.
    pub function_addresses: Addresses,
    /// Whether addresses of data objects that cannot be written are significant. Default: they are,
    /// so that no data object is merged.
    pub data_addresses: Addresses,
    /// Whether two visible symbols of an object may get one address where no code compares
    /// addresses. Default: yes.
    pub aliases: bool,
    /// Whether functions that are flushed are remembered, so that later ones can be merged into
    /// them. Costs a walk of every function and the memory that
    /// [`MergingModule::remembered_bytes`](crate::MergingModule::remembered_bytes) reports.
    /// Default: yes. The functions of the last flush (`finish`, `into_inner`) are never remembered.
    /// Which functions a flush eliminated, and what replaced them, is known to later flushes in any
    /// case.
    pub remember: bool,
    /// See [`Options::compare`](cranelift_mergefunc::Options::compare).
    pub compare: Compare,
    /// See [`Options::similar`](cranelift_mergefunc::Options::similar). In a JIT every function
    /// keeps its symbol, because its address can be requested.
    pub similar: Similar,
    /// See [`Options::prove`](cranelift_mergefunc::Options::prove). A flush whose plan cannot be
    /// proved merges nothing, and what it emits is not remembered.
    pub prove: Prove,
    /// Whether functions that other objects may have as well are emitted in COMDAT groups under
    /// digests of their contents
    /// ([`Options::content_addressing`](cranelift_mergefunc::Options::content_addressing)), so that
    /// a linker keeps one of them. For a `MergingModule<ObjectModule>` that is flushed once, when
    /// it is finished, and whose builder was asked for `per_function_section`. Default: no.
    pub content_addressed: bool,
    /// Whether the merge map can say to which function each frame of a stack belongs
    /// ([`MergeMap::frames`](cranelift_mergefunc::explain::MergeMap::frames)). Costs two walks of
    /// every function, a comparison of those that were merged with similar ones, and 16 bytes for
    /// each instruction, as long as the module lives. Default: no.
    pub backtraces: bool,
    /// Perform at most this many merges, over all flushes. For bisecting.
    pub merge_limit: Option<u32>,
}

impl Default for ModuleOptions {
    fn default() -> Self {
        ModuleOptions {
            back_end: BackEnd::default(),
            take_ir: false,
            function_addresses: Addresses::Significant,
            data_addresses: Addresses::Significant,
            aliases: true,
            remember: true,
            compare: Compare::default(),
            similar: Similar::default(),
            prove: Prove::default(),
            content_addressed: false,
            backtraces: false,
            merge_limit: None,
        }
    }
}

/// The statistics of merging so far, over all flushes.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModuleStats {
    /// Flushes that had something to do.
    pub flushes: usize,
    /// Flushes in which nothing was merged, because the checker refused the plan: a bug of this
    /// crate; see [`MergingModule::refutation`](crate::MergingModule::refutation).
    pub refuted: usize,
    /// Functions that were defined from IR and flushed.
    pub functions: usize,
    /// Functions that were compiled.
    pub compiled: usize,
    /// Functions that became nothing, an alias, or a thunk.
    pub redirects: usize,
    /// See `redirects`.
    pub aliases: usize,
    /// See `redirects`.
    pub thunks: usize,
    /// Functions that were added: private copies for classes whose members are all preemptible, and
    /// parameterised bodies.
    pub new_bodies: usize,
    /// Data objects that were merged away.
    pub merged_data_objects: usize,
    /// Bytes of code in the wrapped module, without padding.
    pub code_bytes: u64,
    /// Bytes of code that merging saved: each function that shares a body is counted with the size
    /// of that body, also where the body takes extra arguments, which the function's own code would
    /// not; code that merging adds is subtracted, so it can be negative for a while.
    pub saved_code_bytes: i64,
    /// Bytes of data that merging saved.
    pub saved_data_bytes: u64,
}

impl ModuleStats {
    /// Functions that lost their bodies.
    pub fn merged(&self) -> usize {
        self.redirects + self.aliases + self.thunks
    }
}
