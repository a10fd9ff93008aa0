//! The behaviour of a function, as data: statements that are drawn once, copied with other
//! constants and references, made smaller and printed. `steps` builds the function.
//!
//! Every function takes `(n, g, a, b, …)` and returns a number:
//!
//! | parameter | is |
//! |---|---|
//! | `n` | how deep calls may go: a function calls only where it is greater than zero, and passes one less |
//! | `g` | a flag: where it is zero, `a` may be null |
//! | `a`, `b` | pointers to [`AREA`] bytes or to what is left of them |
//! | … | further numbers of 8, 32 or 64 bits |
//!
//! Functions and data objects have numbers, whose meaning [`Names`](super::steps::Names) says.

use cranelift_codegen::ir::{AbiParam, Signature, Type, types};
use cranelift_codegen::isa::CallConv;

/// Bytes that a function may reach behind a pointer, however deep the calls.
pub const AREA: i64 = 256;
/// How many bytes further the pointer of [`Pointer::Next`] is. As large as the largest alignment.
pub const NEXT: i64 = 16;
/// The data object that is never written to, for pointers to such memory.
pub const FROZEN: usize = 0;

/// A number behind the pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// Of 8 bits.
    I8,
    /// Of 32 bits.
    I32,
    /// Of 64 bits.
    I64,
}

impl Extra {
    /// All of them.
    pub const ALL: [Extra; 3] = [Extra::I8, Extra::I32, Extra::I64];

    /// Its type.
    pub fn ty(self) -> Type {
        match self {
            Extra::I8 => types::I8,
            Extra::I32 => types::I32,
            Extra::I64 => types::I64,
        }
    }
}

/// How a function is called, beyond what is the same for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The numbers behind the pointers.
    pub extras: Vec<Extra>,
    /// How often the result is returned. No back end compiles more than two for C.
    pub results: usize,
    /// Whether by the convention for tail calls. Then only functions of the program can call it.
    pub tail: bool,
}

impl Shape {
    /// The signature of functions that are called so.
    pub fn signature(&self) -> Signature {
        let mut signature =
            Signature::new(if self.tail { CallConv::Tail } else { CallConv::SystemV });
        let extras = self.extras.iter().map(|extra| extra.ty());
        signature.params = [types::I64; 4].into_iter().chain(extras).map(AbiParam::new).collect();
        signature.returns = vec![AbiParam::new(types::I64); self.results];
        signature
    }
}

/// The facts that the front end states about the accesses of a function, by pointer. All of them
/// are true wherever the function is called: see `incremental::contract`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The number of a region, or 0 for none.
    pub regions: [u8; 2],
    /// See `ir::MemFlagsData`.
    pub aligned: [bool; 2],
    /// See `ir::MemFlagsData`.
    pub readonly: [bool; 2],
    /// See `ir::MemFlagsData`.
    pub can_move: [bool; 2],
    /// Whether loads from data objects that cannot be written are marked `readonly`.
    pub readonly_data: bool,
    /// Whether blocks with calls are cold.
    pub cold: bool,
}

/// An operation with a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `iadd`.
    Add,
    /// `bxor`.
    Xor,
    /// `imul`.
    Multiply,
}

/// One step of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// An operation with a constant.
    Constant(Operation, i64),
    /// A constant of 64 bits that is a float.
    Float(u64),
    /// `rounds` operations, drawn by a seed.
    Mix { rounds: usize, seed: u64 },
    /// One of the function's own further numbers.
    Extra(usize),
    /// Loads through a pointer, stores through a pointer, and loads again.
    Reload { read: usize, written: usize, offsets: [i32; 2], value: i64, extra: Extra },
    /// Loads 16 bytes and adds a constant.
    Vector { pointer: usize, offset: i32, value: i64 },
    /// Loads through `a` if `g` is not zero, twice or in a loop.
    Guarded { offset: i32, in_loop: bool },
    /// Stores a constant to a stack slot and loads from there.
    Slot { offset: i32, value: i64 },
    /// Loads a number of a data object, and stores to it before if `stores`.
    Number { place: Place, stores: bool },
    /// Loads a number that a pointer in a data object points to.
    Through(Place),
    /// Whether two functions or data objects have one address.
    Compare([Address; 2]),
    /// By how much an address misses the alignment of its declared function or object: always zero.
    Misaligned(Address),
    /// One of three constants.
    Switch([i64; 3]),
    /// A call, if `n` allows one, in a loop at times, with `entries` entries in its stack map.
    Call { call: Callee, passes: Passes, in_loop: bool, entries: usize },
}

/// How a callee is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    /// By its name.
    Direct(usize),
    /// By its name, with a handler of exceptions.
    Handled(usize),
    /// By its address.
    Indirect(usize),
    /// By its address, as that of a symbol.
    Symbol(usize),
    /// By a pointer in a data object that cannot be written.
    Slot(Place),
}

/// The address of a function or a data object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// Of a function, as code takes it.
    Code(usize),
    /// Of a function, as a data object holds it.
    Slot(Place),
    /// Of a data object.
    Data(usize),
}

/// An item of a data object, as code refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The data object.
    pub data: usize,
    /// The number of the item.
    pub slot: usize,
    /// The number of the item whose address the reference has. The accessed place is behind or
    /// before it.
    pub base: usize,
}

/// The argument for a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointer {
    /// The function's own `a` or `b`.
    Own(usize),
    /// [`NEXT`] bytes behind it.
    Next(usize),
    /// A stack slot of the function, which is filled; another one for `b` than for `a`.
    Slot,
    /// The data object [`FROZEN`].
    Frozen,
}

/// The argument for a further number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A constant.
    Constant(i64),
    /// The number that statements change.
    Current,
    /// The function's own further number, if it is of that type.
    Own(usize),
}

/// The arguments of a call, beyond `n - 1` and `g`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passes {
    /// For `a` and `b`.
    pub pointers: [Pointer; 2],
    /// For each further number of the callee.
    pub extras: Vec<Argument>,
}

/// The last step of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Returns the number.
    Return,
    /// A tail call, if `n` allows one.
    Tail(usize, Passes),
}

/// Something in a function that may be another one in its copy.
pub enum Hole<'a> {
    /// A constant of any value.
    Constant(&'a mut i64),
    /// The bits of a float.
    Float(&'a mut u64),
    /// An offset that is a multiple of the second number.
    Offset(&'a mut i32, i32),
    /// A function of the same shape.
    Function(&'a mut usize),
    /// A data object of the same family.
    Data(&'a mut usize),
    /// The number of an item of that data object.
    Item(&'a mut usize, usize),
}

/// The parts that may differ in a copy, always in the same order.
pub fn holes<'a>(statements: &'a mut [Statement], end: &'a mut End) -> Vec<Hole<'a>> {
    let mut holes = Vec::new();
    for statement in statements {
        match statement {
            Statement::Constant(_, value) => holes.push(Hole::Constant(value)),
            Statement::Float(bits) => holes.push(Hole::Float(bits)),
            Statement::Mix { .. } | Statement::Extra(_) => {}
            Statement::Reload { offsets: [one, other], value, .. } => {
                holes.extend([Hole::Offset(one, 8), Hole::Offset(other, 8)]);
                holes.push(Hole::Constant(value));
            }
            Statement::Vector { offset, value, .. } => {
                holes.extend([Hole::Offset(offset, 16), Hole::Constant(value)]);
            }
            Statement::Guarded { offset, .. } => holes.push(Hole::Offset(offset, 8)),
            Statement::Slot { offset, value } => {
                holes.extend([Hole::Offset(offset, 8), Hole::Constant(value)]);
            }
            Statement::Number { place, .. } | Statement::Through(place) => {
                holes.extend(place.holes());
            }
            Statement::Compare(addresses) => {
                holes.extend(addresses.iter_mut().flat_map(Address::holes));
            }
            Statement::Misaligned(address) => holes.extend(address.holes()),
            Statement::Switch(values) => holes.extend(values.iter_mut().map(Hole::Constant)),
            Statement::Call { call, passes, .. } => {
                match call {
                    Callee::Direct(function)
                    | Callee::Handled(function)
                    | Callee::Indirect(function)
                    | Callee::Symbol(function) => holes.push(Hole::Function(function)),
                    Callee::Slot(place) => holes.extend(place.holes()),
                }
                holes.extend(passes.holes());
            }
        }
    }
    match end {
        End::Return => {}
        End::Tail(function, passes) => {
            holes.push(Hole::Function(function));
            holes.extend(passes.holes());
        }
    }
    holes
}

impl Place {
    fn holes(&mut self) -> [Hole<'_>; 3] {
        let Place { data, slot, base } = self;
        let of = *data;
        [Hole::Data(data), Hole::Item(slot, of), Hole::Item(base, of)]
    }
}

impl Address {
    fn holes(&mut self) -> Vec<Hole<'_>> {
        match self {
            Address::Code(function) => vec![Hole::Function(function)],
            Address::Slot(place) => place.holes().into(),
            Address::Data(data) => vec![Hole::Data(data)],
        }
    }
}

impl Passes {
    fn holes(&mut self) -> impl Iterator<Item = Hole<'_>> {
        self.extras.iter_mut().filter_map(|argument| match argument {
            Argument::Constant(value) => Some(Hole::Constant(value)),
            Argument::Current | Argument::Own(_) => None,
        })
    }
}
