//! The decisions of the caller: options of a run and attributes of a function.
//!
//! This module holds plain data and its defaults. It decides nothing itself: `plan` reads the
//! attributes, `canon` reads the comparison policy.

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
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Which properties that do not change what a function computes are compared all the same. Default: none of
    /// them.
    pub compare: ComparePolicy,

    /// Which functions are walked at all. Default:
    /// [`Prebucket::Counts`].
    pub prebucket: Prebucket,

    /// The target that native code will be made for. It decides the size of a jump thunk and the byte order of
    /// loads and stores that do not specify one. Default: [`Target::generic`], which has no jump thunks.
    pub target: Target,

    /// Whether the caller's back end can give two symbols one address. Where it cannot, an
    /// exported function whose address is insignificant becomes a thunk. Default: `false`.
    pub aliases: bool,

    /// Whether a function that calls another one may replace it on a target without [`Target::jump_thunk`], where
    /// that is smaller. Default: no, and then functions that need a thunk are not merged.
    pub call_thunks: Option<CallThunks>,

    /// How functions that differ only in constants and callees, or in few instructions, are merged. Default: not at all.
    pub similar: Similar,

    /// Whether an exported function can be interposed where its address is used, as in a shared library of ELF,
    /// although redirected references must not reach the definition that takes its symbol. Then its address is
    /// never passed in place of a callee: callee dispatch selects such callees by case number and calls them
    /// directly, and the embedder sees which calls were redirected. Default: `false`.
    pub interposition: bool,

    /// Whether every plan is proved by the independent checker before it is handed out. Default:
    /// in builds with debug assertions.
    pub prove: Prove,

    /// Whether functions that other units may share are emitted under digests of their contents. Such a function moves to
    /// a new body ([`NewBody::content_digest`](crate::NewBody::content_digest)), and becomes a thunk if its symbol must
    /// stay. Not with a limit of merges, functions of earlier units, or
    /// [`StreamingMerger`](crate::streaming::StreamingMerger). Default: none.
    pub content_addressing: Option<ContentAddressing>,

    /// Which functions share bodies with functions of other units, with [`Options::content_addressing`]. It is not trusted: whatever
    /// it says, it can cost bytes only. Default: it is not known.
    pub sharing_map: Option<&'a SharingMap<'a>>,

    /// Perform at most this many merges, in the order of the symbols of the functions that
    /// are merged away. For bisecting to a wrong merge. Default: no limit.
    pub merge_limit: Option<u32>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            compare: ComparePolicy::default(),
            prebucket: Prebucket::default(),
            target: Target::generic(),
            aliases: false,
            call_thunks: None,
            similar: Similar::default(),
            interposition: false,
            prove: Prove::default(),
            content_addressing: None,
            sharing_map: None,
            merge_limit: None,
        }
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options {
            compare,
            prebucket,
            target,
            aliases,
            call_thunks,
            similar,
            interposition,
            prove,
            content_addressing,
            sharing_map,
            merge_limit,
        } = self;
        f.debug_struct("Options")
            .field("compare", compare)
            .field("prebucket", prebucket)
            .field("target", target)
            .field("aliases", aliases)
            .field("call_thunks", call_thunks)
            .field("similar", similar)
            .field("interposition", interposition)
            .field("prove", prove)
            .field("content_addressing", content_addressing)
            .field("sharing_map", &sharing_map.is_some())
            .field("merge_limit", merge_limit)
            .finish()
    }
}

impl Options<'_> {
    /// The types in which extra arguments of these types are passed behind the parameters of `signature`.
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

/// How functions are merged that differ only in constants and references, or in few instructions: one parameterised
/// body receives their differences as further parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Similar {
    /// Which of them are merged.
    pub policy: Policy,
    /// Whether they may differ in their callees.
    pub callees: Callees,
    /// Whether they may differ in instructions.
    pub instructions: Instructions,
    /// Whether each of them keeps its symbol, as a thunk. For embedders that may request the address of any
    /// function after merging. Default: only functions whose symbols the unit needs.
    pub keep_symbols: bool,
    /// Whether extra arguments are passed in integer registers and on the stack only. For code that must not touch
    /// floating-point registers, such as that of a kernel. Default: floating-point registers are used where all integer
    /// registers are taken.
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

/// Which similar functions are merged. Every one that is merged runs a little slower: its callers pass more
/// arguments, and former constants are not known to the body. What one saves is predicted
/// ([`Target::size_model`](crate::Target::size_model)): nothing is compiled to decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// None.
    Off,
    /// Those that save a good part of their bytes, without a new indirect call in a loop or in a cycle of the call
    /// graph, and no function that is marked as hot ([`Attributes::hot`](crate::Attributes::hot)).
    #[default]
    Balanced,
    /// Those that save a 32nd of their bytes, with a longer search. Sizes are predicted, so a small unit can be some bytes larger
    /// than without.
    Size,
}

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 3] = [Policy::Off, Policy::Balanced, Policy::Size];

    /// What thunks are optimised for.
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

/// What similar functions that call different functions in the same place are merged into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Callees {
    /// Nothing: they are not merged.
    None,
    /// A body that takes the number of a callee as an argument, finds it by a binary search, and calls that callee
    /// directly. No direct call becomes indirect.
    Dispatch,
    /// A body that takes the address of the callee as an argument and calls it indirectly, or one as with
    /// [`Callees::Dispatch`], whichever is smaller.
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

/// What functions with one signature and one control-flow graph that differ in few instructions are merged into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Instructions {
    /// Nothing: they are not merged.
    None,
    /// A body that takes a selector as an argument and branches on it where they differ; not with functions that are
    /// compiled already. With [`Policy::Balanced`] only where such branches are rare in each loop.
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
/// [`prove`](crate::check::prove)), which requests the bodies once more and takes about as long as a second
/// walk and a clone of every kept function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prove {
    /// In builds with debug assertions. A plan that does not hold is a panic.
    #[default]
    Debug,
    /// In every build. A plan that does not hold is discarded: every function is kept, with the reason
    /// [`NotProved`](crate::Reason::NotProved), and [`Plan::proof`](crate::Plan::proof) returns the mismatch.
    Always,
    /// Not at all.
    Never,
}

/// How functions are emitted under digests of their contents, so that units that are compiled apart share code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentAddressing {
    /// A digest of all that code depends on besides the function.
    pub(crate) settings: [u8; 32],
    /// A function that must keep its symbol is content-addressed if its code takes more bytes than this in addition to
    /// those of a jump. No other unit may have it, and then the jump is lost. Default: 16.
    pub smallest_gain: u32,
}

impl ContentAddressing {
    /// For code that is compiled for `isa` by this version of Cranelift: digests are those of no other target, settings,
    /// version of Cranelift or of this crate.
    pub fn of(isa: &dyn TargetIsa) -> ContentAddressing {
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
        ContentAddressing { settings: *hasher.finalize().as_bytes(), smallest_gain: 16 }
    }
}

/// Whether a property that does not change what a function computes makes functions different.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compare {
    /// It does not matter; the kept body keeps its own.
    #[default]
    Ignore,
    /// Functions that differ in it do not merge.
    Compare,
}

/// Properties that are compared in addition to behaviour. The default ignores all of them: the plan, not the kept
/// body, says to which functions a frame may belong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComparePolicy {
    /// Source locations, expanded to absolute ones.
    pub source_locations: Compare,
    /// Debug tags of instructions.
    pub debug_tags: Compare,
    /// Value labels, and whether the function has any.
    pub value_labels: Compare,
    /// Keys of stack slots.
    pub stack_slot_keys: Compare,
    /// The order of the operands of commutative integer operations.
    pub operand_order: Compare,
    /// Whether a branch on a condition that follows from constants is a jump.
    pub constant_branches: Compare,
}

impl ComparePolicy {
    /// One bit for each field, the same for equal policies only: encodings under different ones
    /// must not be equal.
    pub(crate) fn bits(&self) -> u32 {
        let ComparePolicy {
            source_locations,
            debug_tags,
            value_labels,
            stack_slot_keys,
            operand_order,
            constant_branches,
        } = *self;
        let fields = [
            source_locations,
            debug_tags,
            value_labels,
            stack_slot_keys,
            operand_order,
            constant_branches,
        ];
        fields.iter().fold(0, |bits, &field| bits << 1 | u32::from(field == Compare::Compare))
    }
}

/// How functions are prefiltered before anything of their bodies is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prebucket {
    /// Functions are compared only if their signatures and the sizes of their tables are equal
    /// (instructions, values, blocks, stack slots, jump tables, constants), which takes constant
    /// time per function. Functions that differ in unused entities, or that only a normalisation
    /// makes equal, can be missed.
    #[default]
    Counts,
    /// Every function is walked and bucketed by its hash.
    WalkAll,
}
