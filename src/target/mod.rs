//! The only module that names an architecture, but for the weights of `size`.
//!
//! It holds the properties of a target that the plan needs: whether one jump can replace a whole
//! function, how many bytes the jump takes and how they are written, what the smallest function is,
//! and the native byte order. It makes no decision and generates no code beyond those bytes.

mod aarch64;
mod registers;
mod setting;
mod thunk;
mod x86_64;

pub use thunk::{ThunkCode, ThunkReloc};

use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir::{Endianness, Signature, Type, types};
use cranelift_codegen::isa::{CallConv, TargetIsa};
use cranelift_size_model::SizeModel;

/// The distance in bytes from the relocation of a direct call to its return address. `None` for
/// relocations of anything else, and for calls of targets that are not listed here.
pub(crate) fn return_offset(relocation: Reloc) -> Option<u32> {
    match relocation {
        Reloc::X86CallPCRel4
        | Reloc::X86CallPLTRel4
        | Reloc::Arm64Call
        | Reloc::S390xPLTRel32Dbl => Some(4),
        Reloc::RiscvCallPlt => Some(8),
        _ => None,
    }
}

/// The properties of a target that function merging depends on.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The jump thunk, where the target has one.
    pub jump_thunk: Option<JumpThunk>,
    /// Whether a function that calls another one may replace it where there is no jump thunk, if
    /// that is smaller, and how it calls. Default: no, and then functions that need a thunk are not
    /// merged.
    pub call_thunks: Option<CallThunks>,
    /// The byte order of loads and stores that do not specify one; `None` if it is not known, and
    /// then such an access equals only another one that does not specify it.
    pub endianness: Option<Endianness>,
    /// Every stack slot is aligned to this many bytes, whatever it requests: a power of two, 4 if
    /// it is not known.
    pub slot_alignment: u32,
    /// The type of an address, if it is known: without, no function can be passed as an argument.
    pub pointer_type: Option<Type>,
    /// How code gets the address of a symbol that may be far away.
    pub far: Far,
    /// No function, not even one that only returns, takes fewer bytes than this.
    pub smallest_function: u32,
    /// How many bytes functions will take. Without a model no similar functions are merged, no
    /// functions become call thunks, and none are content-addressed.
    pub size_model: Option<SizeModel>,
}

/// How code gets the address of a symbol that may be far away, or that another library may define.
///
/// See the [example](crate::thunk).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Far {
    /// It is not known: no thunk in raw bytes passes such an address.
    Unknown,
    /// The address is in the code (`is_pic=false`).
    Absolute,
    /// It is loaded from the global offset table (`is_pic=true`).
    Table,
}

/// The goal for which the code of thunks is optimised.
///
/// See the [example](crate::thunk).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OptimizeFor {
    /// As few bytes as instructions take that are as fast as any.
    #[default]
    Speed,
    /// As few bytes as possible. On x86-64, constants may go through the stack, or take the low
    /// part of a register only, which costs some cycles.
    Size,
}

/// One jump that replaces a whole function.
///
/// Both functions have the same signature and calling convention, so all values that the caller
/// left in registers and on the stack are where the other function expects them: stack arguments,
/// `StructArgument`, struct return, several results and tail calls need no special case.
///
/// See the [example](crate::thunk).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JumpThunk {
    bytes: [u8; 8],
    length: u8,
    /// The bytes that the back end reserves in addition to the code.
    veneer: u32,
    /// The relocation that makes the jump reach its function.
    pub relocation: Reloc,
    /// Where the relocation applies, in bytes from the start of the thunk.
    pub offset: u32,
    /// The relocation's addend in bytes.
    pub addend: i64,
}

impl JumpThunk {
    /// The thunk's code, before relocation.
    pub fn code(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The memory that the thunk takes, in bytes: its code, and what the back end reserves for it.
    pub fn size(&self) -> u32 {
        u32::from(self.length) + self.veneer
    }
}

/// Ordinary calls of near functions.
impl Default for CallThunks {
    fn default() -> CallThunks {
        CallThunks { tail_calls: false, colocated: true }
    }
}

impl CallThunks {
    /// How call thunks are made in code that `isa` compiles, all of it near.
    pub fn of(isa: &dyn TargetIsa) -> CallThunks {
        // On x86-64 the back end can make tail calls with frame pointers only.
        let tail_calls = isa.name() != "x64" || isa.flags().preserve_frame_pointers();
        CallThunks { tail_calls, colocated: true }
    }
}

impl Target {
    /// Whether a function of this signature can be a call thunk, if it does not observe its frame.
    /// Tail calls guarantee that the stack does not grow, so only another tail call keeps that.
    pub(crate) fn has_call_thunk(&self, signature: &Signature) -> bool {
        self.call_thunks.is_some_and(|how| how.tail_calls || signature.call_conv != CallConv::Tail)
    }

    /// A target of which nothing is known. It has no jump thunks, so a function that would need one
    /// is not merged.
    pub const fn generic() -> Target {
        Target {
            jump_thunk: None,
            call_thunks: None,
            endianness: None,
            slot_alignment: 4,
            pointer_type: None,
            far: Far::Unknown,
            smallest_function: 0,
            size_model: None,
        }
    }

    /// x86-64: `jmp rel32`, 5 bytes.
    pub const fn x86_64() -> Target {
        Target {
            jump_thunk: Some(JumpThunk {
                bytes: [0xe9, 0, 0, 0, 0, 0, 0, 0],
                length: 5,
                veneer: 0,
                relocation: Reloc::X86CallPCRel4,
                offset: 1,
                addend: -4,
            }),
            call_thunks: None,
            endianness: Some(Endianness::Little),
            slot_alignment: 8,
            pointer_type: Some(types::I64),
            far: Far::Unknown,
            // push rbp; mov rbp, rsp; mov rsp, rbp; pop rbp; ret
            smallest_function: 9,
            size_model: Some(SizeModel::X86_64),
        }
    }

    /// aarch64: `b`, 4 bytes; under branch target identification `bti c` comes before it.
    pub const fn aarch64(use_bti: bool) -> Target {
        let (bytes, length) = if use_bti {
            ([0x5f, 0x24, 0x03, 0xd5, 0, 0, 0, 0x14], 8)
        } else {
            ([0, 0, 0, 0x14, 0, 0, 0, 0], 4)
        };
        Target {
            jump_thunk: Some(JumpThunk {
                bytes,
                length,
                veneer: 0,
                relocation: Reloc::Arm64Call,
                offset: length as u32 - 4,
                addend: 0,
            }),
            call_thunks: None,
            endianness: Some(Endianness::Little),
            slot_alignment: 8,
            pointer_type: Some(types::I64),
            far: Far::Unknown,
            // ret, after the same landing pad that the thunk has
            smallest_function: length as u32,
            size_model: Some(SizeModel::AARCH64),
        }
    }

    /// The target that `isa` compiles for.
    pub fn of(isa: &dyn TargetIsa) -> Target {
        // Compared as text so that this crate needs no `target-lexicon` of its own.
        let far = if isa.flags().is_pic() { Far::Table } else { Far::Absolute };
        match isa.name() {
            "x64" => Target { far, ..Target::x86_64() },
            "aarch64" => {
                let use_bti = isa
                    .isa_flags()
                    .iter()
                    .any(|flag| flag.name == "use_bti" && flag.as_bool() == Some(true));
                Target { far, ..Target::aarch64(use_bti) }
            }
            _ => Target {
                endianness: Some(isa.endianness()),
                slot_alignment: u32::from(isa.pointer_bytes()),
                pointer_type: Some(isa.pointer_type()),
                far,
                // Nothing was fitted for it. Most of its instructions take 4 bytes as well.
                size_model: Some(SizeModel::AARCH64),
                ..Target::generic()
            },
        }
    }

    /// This target in `cranelift-jit`, which reserves 24 bytes more for each call on aarch64, in
    /// case the callee turns out to be far away.
    pub fn in_jit(mut self) -> Target {
        if let Some(jump) = &mut self.jump_thunk
            && jump.relocation == Reloc::Arm64Call
        {
            jump.veneer = 24;
        }
        self
    }

    /// Whether a jump thunk is smaller than a body with this many instructions of the IR, `nop` and
    /// unreachable ones left out. In doubt, it is not.
    ///
    /// On x86-64 every body is larger (9 bytes at least). On aarch64 no body is smaller than the
    /// 4-byte jump, and one of a single instruction (`return`, `trap`, a `jump` to itself) can be
    /// as small. Where the back end reserves memory besides, an instruction of the IR counts as 2
    /// bytes, about half of what it takes on average.
    pub fn jump_is_smaller(&self, instructions: u32) -> bool {
        let Some(jump) = self.jump_thunk else {
            return false;
        };
        let more_than_one = jump.veneer == 0 && instructions > 1;
        self.smallest_function > jump.size()
            || more_than_one
            || instructions.saturating_mul(2) > jump.size()
    }
}

/// How call thunks are made (see [`call_thunk`](crate::thunk::call_thunk)).
///
/// See the [example](crate::thunk).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallThunks {
    /// Whether the back end can make tail calls. Without, functions of [`CallConv::Tail`] get no
    /// thunk: a call would let the stack grow where the convention guarantees that it does not.
    /// x86-64 can with `preserve_frame_pointers` only.
    pub tail_calls: bool,
    /// Whether all functions of the unit are near enough to each other for a call to reach them
    /// without going through a table.
    pub colocated: bool,
}
