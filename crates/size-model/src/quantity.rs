//! The features of a function: what its predicted size is a sum over.
//!
//! Plain data, the same for every target: which instructions and constants there are, and
//! quantities that the instructions alone do not show. The bytes of each are data of the model
//! (`fitted`).

use cranelift_codegen::ir::{Opcode, Type, types};

/// One feature of a function.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// An instruction, and the class of its controlling type, or of the constant that it holds.
    Instruction(Opcode, Class),
    /// A use of a constant. Constants are put where they are used.
    Constant(ConstantUse, ConstantKind),
    /// Anything else.
    Quantity(Quantity),
}

/// The class of a type.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Integers of 8 and 16 bits, and no type.
    Narrow,
    /// Integers of 32 bits.
    Word,
    /// Integers of 64 bits.
    Long,
    /// Integers of 128 bits.
    Wide,
    /// Floating-point numbers.
    Float,
    /// Vectors.
    Vector,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 6] =
        [Class::Narrow, Class::Word, Class::Long, Class::Wide, Class::Float, Class::Vector];

    /// The class of a floating-point constant of these bits: that of the integers of this width.
    pub fn of_constant(bits: u64) -> Class {
        match bits {
            0 => Class::Narrow,
            _ if u32::try_from(bits).is_ok() => Class::Word,
            _ => Class::Long,
        }
    }

    /// The class of a type.
    pub fn of(ty: Type) -> Class {
        match ty {
            types::I32 => Class::Word,
            types::I64 => Class::Long,
            types::I128 => Class::Wide,
            _ if ty.is_vector() => Class::Vector,
            _ if ty.is_float() => Class::Float,
            _ => Class::Narrow,
        }
    }
}

/// The use of a constant.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConstantUse {
    /// The second operand of an operation, which can be in the instruction.
    Operand,
    /// The value that is stored.
    Stored,
    /// The argument of a call, in a register.
    Argument,
    /// The argument of a call, on the stack.
    StackArgument,
    /// The argument of a block.
    Block,
    /// A returned value.
    Returned,
    /// Anything else: it must be in a register.
    Other,
}

impl ConstantUse {
    /// All uses.
    pub const ALL: [ConstantUse; 7] = [
        ConstantUse::Operand,
        ConstantUse::Stored,
        ConstantUse::Argument,
        ConstantUse::StackArgument,
        ConstantUse::Block,
        ConstantUse::Returned,
        ConstantUse::Other,
    ];
}

/// How many bits of a constant an instruction must hold.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConstantKind {
    /// Zero.
    Zero,
    /// 8 bits with the sign.
    Byte,
    /// 12 bits.
    Twelve,
    /// 16 bits, or the complement of 16 bits.
    Half,
    /// 32 bits.
    Unsigned,
    /// 32 bits with the sign.
    Signed,
    /// More.
    Wide,
}

impl ConstantKind {
    /// All kinds.
    pub const ALL: [ConstantKind; 7] = [
        ConstantKind::Zero,
        ConstantKind::Byte,
        ConstantKind::Twelve,
        ConstantKind::Half,
        ConstantKind::Unsigned,
        ConstantKind::Signed,
        ConstantKind::Wide,
    ];

    /// The kind of a constant of this type.
    pub fn of(ty: Type, bits: i64) -> ConstantKind {
        let unused = 64u32.saturating_sub(ty.bits());
        let unsigned = (bits as u64) << unused >> unused;
        let signed = bits << unused >> unused;
        match (unsigned, signed) {
            (0, _) => ConstantKind::Zero,
            (_, -128..128) => ConstantKind::Byte,
            (0..4096, _) => ConstantKind::Twelve,
            (0..0x1_0000, _) | (_, -0x1_0000..0) => ConstantKind::Half,
            (0..0x1_0000_0000, _) => ConstantKind::Unsigned,
            (_, -0x8000_0000..0) => ConstantKind::Signed,
            _ => ConstantKind::Wide,
        }
    }
}

macro_rules! quantities {
    ($($(#[doc = $doc:literal])* $name:ident),* $(,)?) => {
        /// Quantities that the instructions alone do not show.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Quantity {
            $($(#[doc = $doc])* $name,)*
        }

        impl Quantity {
            /// All quantities.
            pub const ALL: &[Quantity] = &[$(Quantity::$name),*];
        }
    };
}

quantities! {
    /// A function.
    Function,
    /// A function with calls, or with a frame of its own.
    Frame,
    /// A function with stack slots, or with arguments on the stack of a callee.
    StackArea,
    /// A function of the calling convention of tail calls.
    Tail,
    /// A parameter that arrives in a register and is used.
    Parameter,
    /// A parameter that arrives on the stack and is used.
    StackParameter,
    /// A load from a stack slot.
    SlotLoad,
    /// A store to a stack slot.
    SlotStore,
    /// A load of a value that is known from an access before it.
    KnownLoad,
    /// The address of a stack slot in a register.
    SlotAddress,
    /// An access to a stack slot, or its address, that is 128 bytes or more away.
    FarSlot,
    /// 4096 bytes of a frame.
    FramePage,
    /// An argument of a call in a register, constants left out.
    Argument,
    /// An argument of a call on the stack, constants left out.
    StackArgument,
    /// A result of a call that is used.
    Result,
    /// A result of a call that does not come in a register.
    StackResult,
    /// A call of a function that may be far away.
    FarCall,
    /// A call through a table of the virtual machine, or of an address that is loaded.
    IndirectCall,
    /// The address of a symbol that may be far away.
    FarAddress,
    /// A distance from the address of a symbol.
    AddressOffset,
    /// A load from memory behind a global value.
    GlobalLoad,
    /// An argument of a block that lives on.
    BlockArgument,
    /// An argument of a block that is used for the last time.
    LastBlockArgument,
    /// A first operand that lives on after an operation.
    LivingOperand,
    /// A comparison that only one branch or selection uses.
    FusedCompare,
    /// A load that only the operation behind it uses.
    FusedLoad,
    /// A sum that only one access uses as its address.
    FusedAddress,
    /// An extension of the result of a 32-bit operation.
    FreeExtension,
    /// A jump to the block that follows.
    FallThrough,
    /// A branch of which neither block follows.
    TwoJumps,
    /// An entry of a jump table.
    TableEntry,
    /// An offset of an access that takes 8 bits.
    ShortOffset,
    /// An offset of an access that takes more.
    LongOffset,
    /// A register that a function must keep for its callers.
    SavedRegister,
    /// A value that lives across a call.
    AcrossCall,
    /// A use of a value behind a call, where there are enough registers.
    UseAfterCall,
    /// A value that lives across a call, where there are not enough registers.
    SpilledAcrossCall,
    /// A use of a value behind a call, where there are not enough registers.
    ReloadAfterCall,
    /// A floating-point number or vector that lives across a call.
    FloatAcrossCall,
    /// A use of an integer where more values live than there are registers.
    CrowdedUse,
    /// A use of a floating-point number or vector where more values live than there are registers.
    CrowdedFloatUse,
    /// A definition of an integer where more values live than there are registers.
    CrowdedDefinition,
    /// A call thunk: a function that only calls another one, and passes arguments.
    Thunk,
    /// A call thunk that is a tail call.
    TailThunk,
    /// A tail-call thunk whose callee takes more of the stack than the thunk itself.
    ThunkGrows,
    /// A tail-call thunk that passes arguments on the stack where its own are.
    ThunkInPlace,
    /// A call thunk that passes arguments on the stack.
    ThunkArea,
    /// A call thunk of the convention for tail calls that passes arguments on the stack.
    ThunkTailArea,
    /// An argument of a call thunk that comes and goes on the stack.
    ThunkStackArgument,
    /// An argument on the stack of a call thunk that is 128 bytes or more away.
    ThunkFarArgument,
    /// A register that a call thunk must keep for its caller.
    ThunkSavedRegister,
    /// An argument on the stack of a call thunk for which there is no register.
    ThunkSpill,
    /// A result of a call thunk, in a register.
    ThunkResult,
    /// A result of a call thunk, on the stack.
    ThunkStackResult,
    /// An extra argument of a call thunk: zero in a register.
    ThunkZero,
    /// An unsigned constant in a register.
    ThunkUnsigned,
    /// A signed constant in a register.
    ThunkSigned,
    /// A wide constant in a register.
    ThunkWide,
    /// A near address in a register.
    ThunkNear,
    /// A far address in a register.
    ThunkFar,
    /// A distance from an address in a register.
    ThunkOffset,
    /// A constant that is equal to one before it, in a register.
    ThunkRepeated,
    /// Zero, or a constant of 32 bits, in a register whose number needs a prefix.
    ThunkPrefix,
    /// A half-word of a constant behind the first one that an instruction must hold.
    ThunkHalf,
    /// Zero in a floating-point register.
    ThunkFloatZero,
    /// A constant that is equal to one before it, in a floating-point register.
    ThunkFloatRepeated,
    /// 32 bits that go on to a floating-point register.
    ThunkToFloat,
    /// A thunk that passes a float constant of 64 bits.
    ThunkToLongFloat,
    /// An extra argument of a call thunk: zero on the stack.
    ThunkStackZero,
    /// A constant on the stack that is equal to one before it.
    ThunkStackRepeated,
    /// An unsigned constant on the stack.
    ThunkStackUnsigned,
    /// A signed constant on the stack.
    ThunkStackSigned,
    /// A wide constant on the stack.
    ThunkStackWide,
    /// A near address on the stack.
    ThunkStackNear,
    /// A far address on the stack.
    ThunkStackFar,
    /// A distance from an address on the stack.
    ThunkStackOffset,
}
