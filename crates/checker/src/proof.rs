//! The result of checking a plan: the proved claims, or the first false one, with its place and
//! difference.

use core::fmt;
use cranelift_codegen::ir::{Block, Inst, UserExternalName};

/// The proved claims of a plan.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Proof {
    /// Functions that were merged away, each proved to be replaced by an equivalent one.
    pub merged: usize,
    /// Functions that were kept and changed, each proved equivalent to its original.
    pub rewritten: usize,
    /// Further pairs of functions of which the callers of one now call the other.
    pub related: usize,
    /// Data objects that were merged away.
    pub data: usize,
    /// Pairs of which at least one is of an earlier unit, each proved by the record of that
    /// function.
    pub incremental: usize,
}

/// A claim of a plan that does not hold: a bug in what merges functions, or in the
/// functions that it was given.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refutation {
    /// The function or data object that is kept.
    pub kept: UserExternalName,
    /// The function or data object that it replaces.
    pub original: UserExternalName,
    /// The difference.
    pub mismatch: Mismatch,
    /// The place, if bodies differ.
    pub at: Option<Place>,
}

/// A place in two functions that are walked in step.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The block of the kept function; none in the header.
    pub kept_block: Option<Block>,
    /// The instruction of the kept function; none in the header, at the head of a block, and where
    /// there is none left.
    pub kept_inst: Option<Inst>,
    /// The block of the original.
    pub original_block: Option<Block>,
    /// The instruction of the original.
    pub original_inst: Option<Inst>,
}

/// Why a claim is false.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mismatch {
    /// Signatures differ.
    Signature,
    /// Stack slots differ in number, size, alignment, or order.
    StackSlots,
    /// Dynamic stack slots differ.
    DynamicSlots,
    /// One has a stack limit and the other has none, or a different one.
    StackLimit,
    /// Function keys differ.
    Key,
    /// A block has other parameters.
    BlockParams,
    /// A block ends before the other does.
    Length,
    /// Another operation.
    Opcode,
    /// Another type of a result.
    ResultType,
    /// An operand that is not bound to the other's.
    Operand,
    /// Another constant, offset, lane, mask, or condition.
    Immediate,
    /// Another trap code, or one only on one side.
    TrapCode,
    /// Another byte order.
    ByteOrder,
    /// A fact that the original does not have.
    Fact,
    /// A branch to another block, or with other arguments.
    Target,
    /// Other targets of a `br_table`.
    JumpTable,
    /// Other handlers of a `try_call`.
    ExceptionTable,
    /// Another signature of a callee.
    CalleeSignature,
    /// A reference to a symbol that may not replace the symbol that the original refers to.
    Reference,
    /// Another global value.
    GlobalValue,
    /// Another user stack map.
    StackMap,
    /// Debug information differs, and is compared
    /// ([`Comparison::debug_info`](crate::Comparison::debug_info)).
    Metadata,
    /// A value is used that is not defined.
    Undefined,
    /// The kept code declares a callee as colocated, and the original does not.
    Colocated,
    /// The kept code has an access that may be moved, where it branches by an extra argument to
    /// what only other functions do.
    Movable,
    /// The kept code branches by an extra argument around a guard against speculation
    /// (`select_spectre_guard`).
    Guard,

    /// An eliminated symbol is still referred to.
    Dangling,
    /// A symbol is eliminated that is externally visible.
    LostSymbol,
    /// An address is another function's now, and that can be observed.
    LostAddress,
    /// A function that must not be merged takes part.
    NotMerged,
    /// A function replaces others although another definition may take its symbol.
    Preemptible,
    /// A thunk, an alias or a private copy that the target or the options do not allow.
    NotAllowed,
    /// The code that should replace others is not kept.
    NoBody,
    /// The alignment is too small.
    Alignment,
    /// Data objects differ in contents, section, pointers, or attributes.
    Data,
    /// The emitted code of an earlier unit is not equivalent, or has different references.
    Remembered,
    /// Nothing is remembered of what an earlier unit emitted or eliminated: it was not proved, or
    /// not with this memory of earlier units.
    NotRemembered,
}

impl Mismatch {
    /// Every mismatch, those of bodies first.
    pub const ALL: [Mismatch; 37] = [
        Mismatch::Signature,
        Mismatch::StackSlots,
        Mismatch::DynamicSlots,
        Mismatch::StackLimit,
        Mismatch::Key,
        Mismatch::BlockParams,
        Mismatch::Length,
        Mismatch::Opcode,
        Mismatch::ResultType,
        Mismatch::Operand,
        Mismatch::Immediate,
        Mismatch::TrapCode,
        Mismatch::ByteOrder,
        Mismatch::Fact,
        Mismatch::Target,
        Mismatch::JumpTable,
        Mismatch::ExceptionTable,
        Mismatch::CalleeSignature,
        Mismatch::Reference,
        Mismatch::GlobalValue,
        Mismatch::StackMap,
        Mismatch::Metadata,
        Mismatch::Undefined,
        Mismatch::Colocated,
        Mismatch::Movable,
        Mismatch::Guard,
        Mismatch::Dangling,
        Mismatch::LostSymbol,
        Mismatch::LostAddress,
        Mismatch::NotMerged,
        Mismatch::Preemptible,
        Mismatch::NotAllowed,
        Mismatch::NoBody,
        Mismatch::Alignment,
        Mismatch::Data,
        Mismatch::Remembered,
        Mismatch::NotRemembered,
    ];

    /// Whether it is found in two bodies that are walked in step, and not in a plan's entries for
    /// symbols, addresses and data.
    pub fn is_of_bodies(self) -> bool {
        self < Mismatch::Dangling
    }

    /// One sentence that explains the mismatch.
    pub fn explanation(self) -> &'static str {
        match self {
            Mismatch::Signature => "the signatures differ",
            Mismatch::StackSlots => "the stack slots differ",
            Mismatch::DynamicSlots => "the dynamic stack slots differ",
            Mismatch::StackLimit => "the stack limits differ",
            Mismatch::Key => "the function keys differ",
            Mismatch::BlockParams => "the parameters of a block differ",
            Mismatch::Length => "one block has more instructions",
            Mismatch::Opcode => "the operations differ",
            Mismatch::ResultType => "the types of a result differ",
            Mismatch::Operand => "an operand is another value",
            Mismatch::Immediate => "a constant differs",
            Mismatch::TrapCode => "the trap codes differ",
            Mismatch::ByteOrder => "the byte orders differ",
            Mismatch::Fact => "the kept code has a fact that the original does not have",
            Mismatch::Target => "a branch goes elsewhere or passes other arguments",
            Mismatch::JumpTable => "the jump tables differ",
            Mismatch::ExceptionTable => "the exception handlers differ",
            Mismatch::CalleeSignature => "the signatures of a callee differ",
            Mismatch::Reference => "a reference may not replace the one of the original",
            Mismatch::GlobalValue => "the global values differ",
            Mismatch::StackMap => "the user stack maps differ",
            Mismatch::Metadata => "debug information differs, which is compared",
            Mismatch::Undefined => "a value is used that is not defined",
            Mismatch::Colocated => "a callee became colocated",
            Mismatch::Movable => {
                "the code generator may run an access that only another function of the body makes"
            }
            Mismatch::Guard => {
                "a branch on an extra argument leads around a guard against speculation"
            }
            Mismatch::Dangling => "an eliminated symbol is still referred to",
            Mismatch::LostSymbol => "a symbol that is externally visible is eliminated",
            Mismatch::LostAddress => "an address that can be observed is another function's now",
            Mismatch::NotMerged => "one of them must not be merged",
            Mismatch::Preemptible => "another definition may take the symbol of the kept one",
            Mismatch::NotAllowed => "the options do not allow its disposition",
            Mismatch::NoBody => "the code that should run is not kept",
            Mismatch::Alignment => "the alignment is too small",
            Mismatch::Data => "the data objects differ",
            Mismatch::Remembered => "what an earlier unit emitted is not equivalent",
            Mismatch::NotRemembered => {
                "nothing is remembered of one of them, which is of an earlier unit"
            }
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.explanation())
    }
}

impl fmt::Display for Refutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refutation { kept, original, mismatch, at } = self;
        write!(f, "{kept} may not replace {original}: {mismatch}")?;
        match at {
            Some(place) => write!(f, ", {place}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { kept_block, kept_inst, original_block, original_inst } = self;
        let mut side = |name: &str, block: &Option<Block>, inst: &Option<Inst>| match (block, inst)
        {
            (_, Some(inst)) => write!(f, "{name} {inst}"),
            (Some(block), None) => write!(f, "{name} {block}"),
            (None, None) => write!(f, "{name} the header"),
        };
        side("at", kept_block, kept_inst)?;
        side(" and at", original_block, original_inst)
    }
}

impl core::error::Error for Refutation {}
