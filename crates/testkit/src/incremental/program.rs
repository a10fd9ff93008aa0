//! What a random program is: functions and data objects, when they are defined, and how they are
//! called. Plain data, so that it can be drawn, made smaller, and printed.
//!
//! Every function takes `(n, g, a, b, …)` and returns a number:
//!
//! | parameter | is |
//! |---|---|
//! | `n` | how deep calls may go: a function calls only where it is greater than zero, and passes one less |
//! | `g` | a flag: where it is zero, `a` may be null |
//! | `a`, `b` | pointers to [`AREA`] bytes or to what is left of them |
//! | … | up to [`MOST_EXTRAS`] further numbers of 8, 32 or 64 bits |

use crate::jit::{ARGUMENTS, Argument as Number, BUFFER, Run};
use crate::modules::Item;
use cranelift_mergefunc::{Addresses, Attributes, ModuleOptions};
use cranelift_module::Linkage;

/// Bytes that a function may reach behind a pointer, however deep the calls.
pub const AREA: i64 = 256;
/// The buffer that a function called from outside gets has two areas, and one that is never written to.
const _: () = assert!(BUFFER == 3 * AREA as usize);
/// How many numbers a function takes at most behind its pointers.
pub const MOST_EXTRAS: usize = ARGUMENTS - 4;
/// How many bytes further the pointer of [`Pointer::Next`] is. As large as the largest alignment.
pub const NEXT: i64 = 16;
/// The data object that is never written to, for pointers to such memory.
pub const FROZEN: usize = 0;

/// Functions and data objects that are defined flush by flush.
#[derive(Clone, Debug)]
pub struct Program {
    /// What they are merged with. The back end is that of the path by which the program is run.
    pub options: ModuleOptions,
    /// Whether code is optimised. Facts matter only then.
    pub speed: bool,
    /// Whether code refers to callees in the same image as colocated.
    pub colocated: bool,
    /// By number.
    pub functions: Vec<Function>,
    /// By number. The first is the one that is never written to, the table of numbers.
    pub data: Vec<Data>,
    /// In their order.
    pub flushes: Vec<Flush>,
    /// From outside, after each flush that made what is called ready.
    pub calls: Vec<Call>,
    /// Functions and data objects that another image interposes, in a shared library.
    pub interposed: Vec<Part>,
    /// Whether merging knows nothing of the module that it wraps: see [`BackEnd::Any`](cranelift_mergefunc::BackEnd::Any).
    pub any_back_end: bool,
}

/// What is defined in one flush.
#[derive(Clone, Debug, Default)]
pub struct Flush {
    /// Declared once more before anything is defined.
    pub widened: Vec<(Part, Linkage)>,
    /// In this order.
    pub defined: Vec<Part>,
    /// Whether a JIT is made ready to run after it, if everything is defined.
    pub ready: bool,
}

/// A part of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A function, by number.
    Function(usize),
    /// A data object, by number.
    Data(usize),
}

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

    /// The type in CLIF.
    pub fn name(self) -> &'static str {
        match self {
            Extra::I8 => "i8",
            Extra::I32 => "i32",
            Extra::I64 => "i64",
        }
    }
}

/// How a function is called, beyond what is the same for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The numbers behind the pointers.
    pub extras: Vec<Extra>,
    /// Whether by the convention for tail calls. Then only functions of the program can call it.
    pub tail: bool,
}

/// The facts that the front end states about the accesses of a function, by pointer. All of them are true wherever
/// the function is called: see [`Contract`](super::contract::Contract).
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
    /// The same for what is loaded from data objects that cannot be written.
    pub readonly_data: bool,
    /// Whether blocks with calls are cold.
    pub cold: bool,
}

/// A function.
#[derive(Clone, Debug)]
pub struct Function {
    /// Functions of one family are copies of one function with other constants and references.
    pub family: usize,
    /// How it is called.
    pub shape: Shape,
    /// What it does, one after the other, with a number that each statement changes.
    pub statements: Vec<Statement>,
    /// What it does in the end.
    pub end: End,
    /// The facts of its accesses.
    pub facts: Facts,
    /// How it is declared first: [`Linkage::Import`], or as it is defined.
    pub declared: Linkage,
    /// How it is declared when it is defined.
    pub linkage: Linkage,
    /// The attributes that merging gets of it, but for the linkage.
    pub attributes: Attributes,
    /// Whether a module gets its code, in place of its IR.
    pub bytes: bool,
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
#[derive(Clone, Debug)]
pub enum Statement {
    /// An operation with a constant.
    Constant(Operation, i64),
    /// A constant of 64 bits that is a float.
    Float(u64),
    /// So many operations that are the same in every function.
    Mix(usize),
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
    /// A call, if `n` allows one, in a loop at times, with so many entries in its stack map.
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
    /// The number of the item whose address the reference has. What is accessed is behind or before it.
    pub base: usize,
}

/// What is passed for a pointer.
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

/// What is passed for a further number.
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
#[derive(Clone, Debug)]
pub enum End {
    /// Returns the number.
    Return,
    /// A tail call, if `n` allows one.
    Tail(usize, Passes),
}

/// A data object.
#[derive(Clone, Debug)]
pub struct Data {
    /// Data objects of one family have pointers and numbers at the same places.
    pub family: usize,
    /// What it holds.
    pub items: Vec<Item>,
    /// Whether it can be written.
    pub writable: bool,
    /// How it is declared.
    pub linkage: Linkage,
    /// The attributes that merging gets of it, as far as data objects have them, but for the linkage.
    pub attributes: Attributes,
}

/// A call from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which function.
    pub function: usize,
    /// The first two arguments.
    pub numbers: [i64; 2],
    /// For `a` and `b`: so many bytes into the buffer, or null.
    pub pointers: [Option<i64>; 2],
    /// The others.
    pub extras: Vec<i64>,
}

impl Call {
    /// The call of the code of the function.
    pub fn run(&self, code: *const u8) -> Run {
        let mut arguments = [Number::Number(0); ARGUMENTS];
        let pointers = self.pointers.map(|at| at.map_or(Number::Number(0), Number::Buffer));
        let numbers = |numbers: &[i64]| -> Vec<Number> {
            numbers.iter().map(|number| Number::Number(*number)).collect()
        };
        let all = [numbers(&self.numbers), pointers.to_vec(), numbers(&self.extras)].concat();
        arguments[..all.len()].copy_from_slice(&all);
        Run { code, arguments }
    }
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

impl Function {
    /// What may be another one in a copy, always in the same order.
    pub fn holes(&mut self) -> Vec<Hole<'_>> {
        let mut holes = Vec::new();
        for statement in &mut self.statements {
            match statement {
                Statement::Constant(_, value) => holes.push(Hole::Constant(value)),
                Statement::Float(bits) => holes.push(Hole::Float(bits)),
                Statement::Mix(_) | Statement::Extra(_) => {}
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
                        | Callee::Indirect(function) => holes.push(Hole::Function(function)),
                        Callee::Slot(place) => holes.extend(place.holes()),
                    }
                    holes.extend(passes.holes());
                }
            }
        }
        match &mut self.end {
            End::Return => {}
            End::Tail(function, passes) => {
                holes.push(Hole::Function(function));
                holes.extend(passes.holes());
            }
        }
        holes
    }

    /// The functions and data objects that it refers to.
    pub fn references(&self) -> Vec<Part> {
        let mut copy = self.clone();
        let holes = copy.holes().into_iter();
        let mut parts: Vec<Part> = holes
            .filter_map(|hole| match hole {
                Hole::Function(function) => Some(Part::Function(*function)),
                Hole::Data(data) => Some(Part::Data(*data)),
                Hole::Constant(_) | Hole::Float(_) | Hole::Offset(..) | Hole::Item(..) => None,
            })
            .collect();
        if self.passes().any(|passes| passes.pointers.contains(&Pointer::Frozen)) {
            parts.push(Part::Data(FROZEN));
        }
        parts
    }

    /// What is passed by its calls.
    fn passes(&self) -> impl Iterator<Item = &Passes> {
        let calls = self.statements.iter().filter_map(|statement| match statement {
            Statement::Call { passes, .. } => Some(passes),
            _ => None,
        });
        calls.chain(match &self.end {
            End::Tail(_, passes) => Some(passes),
            End::Return => None,
        })
    }
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

impl Data {
    /// The functions and data objects that it refers to.
    pub fn references(&self) -> impl Iterator<Item = Part> {
        self.items.iter().filter_map(|item| match item {
            Item::Number(_) => None,
            Item::Function(function) => Some(Part::Function(*function)),
            Item::Data { data, .. } => Some(Part::Data(*data)),
        })
    }
}

impl Program {
    /// The function that is called.
    pub fn callee(&self, call: Callee) -> usize {
        match call {
            Callee::Direct(function) | Callee::Handled(function) | Callee::Indirect(function) => {
                function
            }
            Callee::Slot(place) => self.function_at(place),
        }
    }

    /// The function whose address is there.
    pub fn function_at(&self, place: Place) -> usize {
        match self.data[place.data].items[place.slot] {
            Item::Function(function) => function,
            Item::Number(_) | Item::Data { .. } => unreachable!("a table has functions there"),
        }
    }

    /// The part whose address it is declared to be.
    pub fn part_at(&self, address: Address) -> Part {
        match address {
            Address::Code(function) => Part::Function(function),
            Address::Slot(place) => Part::Function(self.function_at(place)),
            Address::Data(data) => Part::Data(data),
        }
    }

    /// The least alignment of the address of a part.
    pub fn alignment(&self, part: Part) -> u32 {
        match part {
            Part::Function(function) => self.functions[function].attributes.alignment,
            Part::Data(data) => self.data[data].attributes.alignment.max(8),
        }
    }

    /// Whether no other part can have the address of the part. Otherwise merging may change it.
    pub fn has_own_address(&self, part: Part) -> bool {
        match part {
            Part::Function(function) => {
                self.functions[function].attributes.addresses == Addresses::Significant
            }
            Part::Data(data) => {
                let Data { writable, attributes, .. } = &self.data[data];
                *writable || attributes.addresses == Addresses::Significant
            }
        }
    }

    /// The calls of a function: the callees and the arguments.
    pub fn calls_of(&self, function: usize) -> Vec<(usize, &Passes)> {
        let Function { statements, end, .. } = &self.functions[function];
        let calls = statements.iter().filter_map(|statement| match statement {
            Statement::Call { call, passes, .. } => Some((self.callee(*call), passes)),
            _ => None,
        });
        calls
            .chain(match end {
                End::Tail(callee, passes) => Some((*callee, passes)),
                End::Return => None,
            })
            .collect()
    }

    /// The functions and data objects that a part refers to.
    pub fn references(&self, part: Part) -> Vec<Part> {
        match part {
            Part::Function(function) => self.functions[function].references(),
            Part::Data(data) => self.data[data].references().collect(),
        }
    }

    /// The flush in which something is defined.
    pub fn flush_of(&self, part: Part) -> usize {
        let mut flushes = self.flushes.iter();
        flushes.position(|flush| flush.defined.contains(&part)).expect("everything is defined")
    }

    /// The linkage in the end.
    pub fn linkage(&self, part: Part) -> Linkage {
        let mut widened = self.flushes.iter().flat_map(|flush| &flush.widened);
        let last = widened.rfind(|(widened, _)| *widened == part);
        last.map_or(
            match part {
                Part::Function(function) => self.functions[function].linkage,
                Part::Data(data) => self.data[data].linkage,
            },
            |(_, linkage)| *linkage,
        )
    }

    /// Whether everything that was defined up to a flush, it included, refers to nothing else.
    pub fn is_complete(&self, flush: usize) -> bool {
        let defined = || self.flushes[..=flush].iter().flat_map(|flush| &flush.defined);
        let is_defined = |part: &Part| defined().any(|defined| defined == part);
        defined().all(|&part| self.references(part).iter().all(is_defined))
    }

    /// Everything that is reached from these, themselves included.
    pub fn reached(&self, from: impl IntoIterator<Item = Part>) -> Vec<Part> {
        let mut reached: Vec<Part> = Vec::new();
        let mut left: Vec<Part> = from.into_iter().collect();
        while let Some(part) = left.pop() {
            if !reached.contains(&part) {
                reached.push(part);
                left.extend(self.references(part));
            }
        }
        reached.sort_unstable();
        reached
    }
}
