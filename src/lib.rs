//! Function merging for Cranelift IR: one body for all functions of a unit that do the same thing.
//!
//! A *unit* is whatever is compiled together: a module, a crate, a batch of a JIT. The pass takes
//! its functions before code generation, finds those that are equal, keeps one body of each class,
//! and decides the disposition of every other function: its callers are redirected, its symbol
//! becomes an alias, or a one-jump thunk. Functions that are merged away are never compiled.
//!
//! # Example
//!
//! There are three entry points. [`Merger`] plans a whole unit at once; the [program](#a-program)
//! below carries its plan out:
//!
//! ```
//! use cranelift_mergefunc::{Attributes, Linkage, Merger, Options, check};
//!
//! # let text = "function u0:0(i64) -> i64 { block0(v0: i64): v1 = imul v0, v0 return v1 }
//! # function u0:1(i64) -> i64 { block0(v1: i64): v0 = imul v1, v1 return v0 }";
//! # let mut functions = cranelift_reader::parse_functions(text).unwrap();
//! let local = Attributes { linkage: Linkage::Local, ..Attributes::default() };
//! let mut merger = Merger::new(Options::default());
//! for func in &functions {
//!     merger.add(func.name.get_user().unwrap().clone(), func, local).unwrap();
//! }
//! let plan = merger.plan(&mut functions);
//! assert_eq!(plan.stats().merged.functions, 1);
//! assert!(check::prove(&plan, &mut functions, &Options::default()).is_ok());
//! ```
//!
//! [`StreamingMerger`](streaming::StreamingMerger) takes functions that arrive one at a time, and
//! says at once which need not be compiled:
//!
//! ```
//! use cranelift_mergefunc::streaming::{Known, StreamingMerger};
//! use cranelift_mergefunc::{Attributes, Options};
//!
//! # let text = "function u0:0() -> i32 { block0: v0 = iconst.i32 7 return v0 }";
//! # let functions = cranelift_reader::parse_functions(text).unwrap();
//! let mut merger = StreamingMerger::new(Options::default());
//! for func in &functions {
//!     let symbol = func.name.get_user().unwrap().clone();
//!     if merger.add(symbol, func, Attributes::default()).unwrap().known == Known::Compile {
//!         // Compile it now. Its IR is not needed any more.
//!     }
//! }
//! let plan = merger.plan(&mut functions.as_slice());
//! ```
//!
//! `MergingModule`, of the crate `cranelift-mergefunc-module`, wraps a module of `cranelift-module`
//! and is one:
//!
//! ```
//! use cranelift_mergefunc_module::{MergingModule, cranelift_module::Module};
//!
//! fn compile(module: impl Module, define_all: impl FnOnce(&mut dyn Module)) {
//!     let mut module = MergingModule::new(module);
//!     define_all(&mut module);
//!     module.flush().unwrap();
//! }
//! ```
//!
//! ## A program
//!
//! ```
#![doc = include_str!("../examples/embed.rs")]
//! ```
//!
//! # How it is used
//!
//! 1. [`Merger::add`] every function under the symbol by which the others refer to it. Functions
//!    can be streamed through: only a summary is kept.
//! 2. [`Merger::plan`] requests the bodies once more that may have an equal, through [`Bodies`],
//!    and returns a [`Plan`]: a [`Disposition`] and a [`Reason`] for every function.
//! 3. [`Plan::outputs`] lists what to emit: bodies, which [`Plan::apply`] rewrites first, thunks
//!    ([`Target::thunk_code`], [`thunk::call_thunk`]), aliases, or nothing. A back end without
//!    thunks or aliases leaves [`Options::target`] and [`Options::aliases`] at their defaults, and
//!    functions that would need them are kept.
//!
//! [`check::prove`] proves a plan by means of its own ([`Options::prove`]);
//! [`explain::first_difference`] answers "why not?".
//!
//! # What is equal
//!
//! Two functions are equal if no caller can distinguish them: signature, control flow, operations,
//! types, constants, trap codes and stack maps are equal, and they refer to the same symbols or to
//! functions of the unit that are equal in turn. The numbering of values, blocks and table entries,
//! the layout, unreachable blocks, unused declarations, the operand order of commutative integer
//! operations, source locations and debug tags do not matter. Facts for the optimiser (`aligned`,
//! `readonly`, `can_move`, alias regions, cold blocks) do.
//!
//! Equality of callees is decided optimistically (the coarsest congruence), so self recursion,
//! mutual recursion and call chains of any depth merge in one run.
//!
//! # Guarantees
//!
//! * In a plan of [`Merger`], a hash decides nothing: functions merge only if their encodings are
//!   equal byte by byte. Where encodings are not kept ([`incremental::MergeCache`],
//!   [`streaming::StreamingMerger`]), and under the digests of [`across`], BLAKE3 digests of 256
//!   bits decide.
//! * No observable name or address is lost; see [`Attributes`] and [`Disposition`].
//! * The result depends neither on the order of the functions nor on the platform.
//! * No recursion over input, no `unsafe`, no panic on IR that the verifier accepts.
//!
//! # With `cranelift-module`
//!
//! `MergingModule` of the crate `cranelift-mergefunc-module` wraps a `cranelift_module::Module` and
//! is one: wrap the module that is used so far, and nothing else changes. The document
//! `docs/embedding.md` says how to embed the library in a JIT, an ahead-of-time compiler, or a back
//! end without `cranelift-module`, and `docs/debugging.md` how to debug merged programs; the
//! examples `jit`, `aot`, `raw` and `engine` are programs to copy from.
//!
//! # What it does not do
//!
//! It does not verify its input, and changes nothing that was emitted before: later functions are
//! merged into emitted ones ([`incremental::MergeCache`]). Similar functions ([`Options::similar`])
//! have one signature and one control-flow graph, and differ in constants, callees, addresses or
//! few instructions.
//!
//! # Features
//!
//! | feature | adds | needs |
//! |---|---|---|
//! | (none) | the pass, for functions and read-only data; the merge map | `no_std` and `alloc` |
//! | `std` | summaries and sharing maps in files (`FileAt`) | `std` |
//! | `parallel` | the pass on all threads of the current pool of `rayon` | `std` |
//! | `internals` | what the tests and benches of this crate look into; it may change in any version | |

#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod apply;
mod canon;
mod checker;
mod congruence;
mod content;
mod copy;
mod corpus;
mod decide;
pub mod explain;
mod extra_argument;
pub mod incremental;
#[cfg(feature = "internals")]
pub mod internals;
mod interner;
mod ir;
mod layout;
mod lists;
mod options;
mod parameterise;
mod pass;
mod plan;
mod prove;
mod signatures;
pub mod stats;
pub mod streaming;
mod target;
mod threads;
mod unit;

pub use cranelift_codegen;
pub use cranelift_mergefunc_units as units;
pub use cranelift_size_model::SizeModel;
pub use extra_argument::{ExtraArgument, Substitute, extended_signature};
pub use options::{Callees, Compare, Instructions, Options, Policy, Prove, Similar};
pub use pass::Merger;
pub use plan::{
    Disposition, Emit, Entry, NewBody, Output, Plan, Reached, Reason, SimilarSet, reached,
};
pub use stats::Stats;
pub use target::Target;
pub use unit::{
    AddError, Addresses, Attributes, Bodies, FreshSymbols, FunctionIndex, Linkage, Redirected,
    SyncBodies,
};

/// Thunks: jumps in raw bytes, with extra arguments or without, and functions that call.
///
/// ```
/// use cranelift_mergefunc::cranelift_codegen::ir::{Signature, UserExternalName};
/// use cranelift_mergefunc::cranelift_codegen::isa::CallConv;
/// use cranelift_mergefunc::thunk::{CallThunks, call_thunk};
/// use cranelift_mergefunc::cranelift_codegen::ir::UserFuncName;
///
/// let to = UserExternalName::new(0, 7);
/// let signature = Signature::new(CallConv::SystemV);
/// let thunk = call_thunk(UserFuncName::user(0, 1), &signature, &[], &to, &CallThunks::default());
/// assert!(thunk.to_string().contains("u0:7"));
/// ```
pub mod thunk {
    pub use crate::apply::{Thunk, call_thunk};
    pub use crate::target::{CallThunks, Far, JumpThunk, OptimizeFor, ThunkCode, ThunkReloc};
}

/// Read-only data objects, which merge with functions.
///
/// ```
/// use cranelift_mergefunc::cranelift_codegen::ir::{Function, UserExternalName};
/// use cranelift_mergefunc::data::{Contents, DataAttributes, DataObject};
/// use cranelift_mergefunc::{Addresses, Linkage, Merger, Options};
///
/// let table =
///     DataObject { contents: Contents::Bytes(vec![1, 2, 3]), relocations: vec![], section: None };
/// let attributes = DataAttributes {
///     linkage: Linkage::Local,
///     addresses: Addresses::Insignificant,
///     ..DataAttributes::default()
/// };
/// let mut merger = Merger::new(Options::default());
/// for index in 0..2 {
///     merger.add_data(UserExternalName::new(1, index), &table, attributes).unwrap();
/// }
/// # struct Tables(DataObject);
/// # impl cranelift_mergefunc::Bodies for Tables {
/// #     fn body(&mut self, _: cranelift_mergefunc::FunctionIndex) -> &Function { unreachable!() }
/// #     fn data(&mut self, _: cranelift_mergefunc::data::DataIndex) -> Option<&DataObject> {
/// #         Some(&self.0)
/// #     }
/// # }
/// let plan = merger.plan(&mut Tables(table));
/// assert_eq!(plan.stats().merged.data_objects, 1);
/// ```
pub mod data {
    pub use crate::plan::{DataEmit, DataEntry, DataOutput};
    pub use crate::unit::{Contents, DataAttributes, DataIndex, DataObject, DataReloc};
}

/// The independent checker: proofs of plans, and of single replacements.
///
/// The [example](crate#example) of a unit proves its plan.
pub mod check {
    pub use crate::checker::may_replace;
    pub use crate::prove::{prove, prove_after};
    pub use cranelift_mergefunc_checker::{Mismatch, Place, Proof, Refutation};
}

/// Functions that share bodies with functions of other units.
///
/// The [example](crate::units#example) of the crate `cranelift-mergefunc-units` combines summaries.
pub mod across {
    pub use crate::canon::ContentDigest;
    pub use crate::options::ContentAddressing;
    pub use crate::parameterise::decide_sharing;
}
