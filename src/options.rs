//! The decisions of the caller: the options of a run.
//!
//! This module holds plain data and its defaults. It decides nothing itself.

use crate::target::{CallThunks, OptimizeFor, Target};
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;
use cranelift_codegen::ir::{Signature, Type};
use cranelift_codegen::isa::TargetIsa;
use cranelift_mergefunc_units::SharingMap;

/// Options of one run of the pass.
///
/// The defaults never lose an observable name, address, trap or stack map; see each field.
///
/// See the [example](crate#example).
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// The compared properties besides behaviour, and which functions are compared at all.
    pub compare: Compare,

    /// The target that native code will be made for. It decides the size of a jump thunk and the
    /// byte order of loads and stores that do not specify one. Default: [`Target::generic`], which
    /// has no jump thunks.
    pub target: Target,

    /// Whether the caller's back end can give two symbols one address. Where it cannot, an
    /// exported function whose address is insignificant becomes a thunk. Default: `false`.
    pub aliases: bool,

    /// How functions that differ only in constants and callees, or in few instructions, are merged.
    /// Default: not at all.
    pub similar: Similar,

    /// Whether an exported function can be interposed where its address is used, as in a shared
    /// library of ELF, although redirected references must not reach the definition that takes its
    /// symbol. Then its address is never passed in place of a callee: callee dispatch selects such
    /// callees by case number and calls them directly, and the embedder sees which calls were
    /// redirected. Default: `false`.
    pub interposition: bool,

    /// Whether every plan is proved by the independent checker before it is handed out. Default:
    /// in builds with debug assertions.
    pub prove: Prove,

    /// Whether functions that other units may share are emitted under digests of their contents.
    /// Such a function moves to a new body
    /// ([`NewBody::content_digest`](crate::NewBody::content_digest)), and becomes a thunk if its
    /// symbol must stay. Not with a limit of merges, functions of earlier units, or
    /// [`StreamingMerger`](crate::streaming::StreamingMerger). Default: none.
    pub content_addressing: Option<ContentAddressing<'a>>,

    /// Perform at most this many merges, in the order of the symbols of the functions that
    /// are merged away. For bisecting to a wrong merge. Default: no limit.
    pub merge_limit: Option<u32>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            compare: Compare::default(),
            target: Target::generic(),
            aliases: false,
            similar: Similar::default(),
            interposition: false,
            prove: Prove::default(),
            content_addressing: None,
            merge_limit: None,
        }
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options {
            compare,
            target,
            aliases,
            similar,
            interposition,
            prove,
            content_addressing,
            merge_limit,
        } = self;
        f.debug_struct("Options")
            .field("compare", compare)
            .field("target", target)
            .field("aliases", aliases)
            .field("similar", similar)
            .field("interposition", interposition)
            .field("prove", prove)
            .field("content_addressing", content_addressing)
            .field("merge_limit", merge_limit)
            .finish()
    }
}

impl Options<'_> {
    /// The options of a back end that compiles functions for `isa` and writes no code of its own:
    /// thunks are functions ([`Plan::finish`](crate::Plan::finish)). All else is as by default; an
    /// embedder for whom a function is found by a table, as in most engines, also sets
    /// [`Options::aliases`], since two entries of the table may lead to one address.
    pub fn for_ir(isa: &dyn TargetIsa) -> Self {
        let call_thunks = Some(CallThunks::of(isa));
        let target = Target { jump_thunk: None, call_thunks, ..Target::of(isa) };
        Options { target, ..Options::default() }
    }

    /// The types in which extra arguments of these types are passed behind the parameters of
    /// `signature`.
    pub(crate) fn passed_as(
        &self,
        signature: &Signature,
        types: impl IntoIterator<Item = Type>,
    ) -> Vec<Type> {
        match self.similar.integer_registers_only {
            true => types.into_iter().collect(),
            false => self.target.passed_as(signature, types),
        }
    }
}

/// How functions are merged that differ only in constants and references, or in few instructions:
/// one parameterised body receives their differences as further parameters.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Similar {
    /// Which of them are merged.
    pub policy: Policy,
    /// Whether they may differ in their callees.
    pub callees: Callees,
    /// Whether they may differ in instructions.
    pub instructions: Instructions,
    /// Whether each of them keeps its symbol, as a thunk. For embedders that may request the
    /// address of any function after merging. Default: only functions whose symbols the unit needs.
    pub keep_symbols: bool,
    /// Whether extra arguments are passed in integer registers and on the stack only. For code that
    /// must not touch floating-point registers, such as that of a kernel. Default: floating-point
    /// registers are used where all integer registers are taken.
    pub integer_registers_only: bool,
}

impl Similar {
    /// Only identical functions are merged.
    pub const OFF: Similar = Similar {
        policy: Policy::Off,
        callees: Callees::Indirect,
        instructions: Instructions::Select,
        keep_symbols: false,
        integer_registers_only: false,
    };
}

/// Which similar functions are merged. Every one that is merged runs a little slower: its callers
/// pass more arguments, and former constants are not known to the body. The saving of a body is
/// predicted ([`Target::size_model`](crate::Target::size_model)): nothing is compiled to decide.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// None.
    Off,
    /// Those that save a good part of their bytes, without a new indirect call in a loop or in a
    /// cycle of the call graph, without a thunk in front of a short function (a call of one
    /// executes at most an eighth more instructions, by an estimate of both), and no function that
    /// is marked as hot ([`Attributes::hot`](crate::Attributes::hot)).
    #[default]
    Balanced,
    /// Those that save a 32nd of their bytes, with a longer search. Sizes are predicted, so a small
    /// unit can be some bytes larger than without.
    Size,
}

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 3] = [Policy::Off, Policy::Balanced, Policy::Size];

    /// The goal for which thunks are optimised.
    pub fn optimize_for(self) -> OptimizeFor {
        match self {
            Policy::Off | Policy::Balanced => OptimizeFor::Speed,
            Policy::Size => OptimizeFor::Size,
        }
    }

    /// The name used in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Off => "off",
            Policy::Balanced => "balanced",
            Policy::Size => "size",
        }
    }
}

/// How similar functions that call different functions in one place are merged.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Callees {
    /// Nothing: they are not merged.
    None,
    /// A body that takes the number of a callee as an argument, finds it by a binary search, and
    /// calls that callee directly. No direct call becomes indirect.
    Dispatch,
    /// A body that takes the address of the callee as an argument and calls it indirectly, or one
    /// as with [`Callees::Dispatch`], whichever is smaller.
    #[default]
    Indirect,
}

impl Callees {
    /// All choices.
    pub const ALL: [Callees; 3] = [Callees::None, Callees::Dispatch, Callees::Indirect];

    /// The name used in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Callees::None => "none",
            Callees::Dispatch => "dispatch",
            Callees::Indirect => "indirect",
        }
    }
}

/// How functions with one signature and one control-flow graph that differ in few instructions are
/// merged.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Instructions {
    /// Nothing: they are not merged.
    None,
    /// A body that takes a selector as an argument and branches on it where they differ. With
    /// [`Policy::Balanced`] only where such branches are rare in each loop.
    #[default]
    Select,
}

impl Instructions {
    /// All choices.
    pub const ALL: [Instructions; 2] = [Instructions::None, Instructions::Select];

    /// The name used in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Instructions::None => "none",
            Instructions::Select => "select",
        }
    }
}

/// When [`Merger::plan`](crate::Merger::plan) has the independent checker prove its plan (see
/// [`prove`](crate::check::prove)), which requests the bodies once more and takes about as long as
/// a second walk and a clone of every kept function.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prove {
    /// In builds with debug assertions. A plan that does not hold is a panic.
    #[default]
    Debug,
    /// In every build. A plan that does not hold is discarded: every function is kept, with the
    /// reason [`NotProved`](crate::Reason::NotProved), and [`Plan::proof`](crate::Plan::proof)
    /// returns the mismatch.
    Always,
    /// Not at all.
    Never,
}

/// How functions are emitted under digests of their contents, so that units that are compiled apart
/// share code.
///
/// See the [example](crate::across).
#[derive(Clone, Copy)]
pub struct ContentAddressing<'a> {
    /// A digest of all that code depends on besides the function.
    pub(crate) settings: [u8; 32],
    /// A function that must keep its symbol is content-addressed if its code takes more bytes than
    /// this in addition to those of a jump. No other unit may have it, and then the jump is lost.
    /// Default: 16.
    pub smallest_gain: u32,
    /// Which functions share bodies with functions of other units. It is not trusted: whatever it
    /// says, it can cost bytes only. Default: it is not known.
    pub sharing_map: Option<&'a SharingMap<'a>>,
}

impl fmt::Debug for ContentAddressing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ContentAddressing { settings, smallest_gain, sharing_map } = self;
        f.debug_struct("ContentAddressing")
            .field("settings", settings)
            .field("smallest_gain", smallest_gain)
            .field("sharing_map", &sharing_map.is_some())
            .finish()
    }
}

impl ContentAddressing<'_> {
    /// For code that is compiled for `isa` by this version of Cranelift: digests are those of no
    /// other target, settings, version of Cranelift or of this crate.
    pub fn of(isa: &dyn TargetIsa) -> Self {
        let mut hasher = blake3::Hasher::new();
        let mut text = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        };
        text(env!("CARGO_PKG_VERSION"));
        text(cranelift_codegen::VERSION);
        text(&isa.triple().to_string());
        text(&isa.flags().to_string());
        for flag in isa.isa_flags() {
            text(&flag.to_string());
        }
        let settings = *hasher.finalize().as_bytes();
        ContentAddressing { settings, smallest_gain: 16, sharing_map: None }
    }
}

impl<'a> ContentAddressing<'a> {
    /// This content addressing with a [map](ContentAddressing::sharing_map), or without.
    pub fn with_map(self, sharing_map: Option<&'a SharingMap<'a>>) -> Self {
        ContentAddressing { sharing_map, ..self }
    }
}

/// The compared properties besides behaviour, and which functions are compared at all.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compare {
    /// Whether functions do not merge that differ in what debuggers and profilers see: source
    /// locations, expanded to absolute ones, debug tags, value labels, and keys of stack slots.
    /// Default: no; the kept body keeps its own, and the plan says to which functions a frame may
    /// belong.
    pub debug_info: bool,
    /// Whether every function is walked when it is added. Default: no. Functions are compared only
    /// if their signatures and the sizes of their tables are equal (instructions, values, blocks,
    /// stack slots, jump tables, constants), which takes constant time for each. Functions that
    /// differ in unused entities, or that only a normalisation makes equal, can be missed: IR that
    /// was read from text has a gap for each number that the text leaves out.
    pub every_function: bool,
}
