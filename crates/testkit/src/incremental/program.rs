//! A random program: functions and data objects, when they are defined, and how they are
//! called. Plain data, so that it can be drawn, made smaller, and printed.

pub use crate::generate::statement::*;
use crate::jit::{ARGUMENTS, Argument as Number, BUFFER, Run};
use crate::modules::Item;
use cranelift_mergefunc::{Addresses, Attributes};
use cranelift_mergefunc_module::ModuleOptions;
use cranelift_module::Linkage;

/// The buffer that a function called from outside gets has two areas, and one that is never written
/// to.
const _: () = assert!(BUFFER == 3 * AREA as usize);
/// How many numbers a function takes at most behind its pointers.
pub const MAX_EXTRAS: usize = ARGUMENTS - 4;
/// Functions and data objects that are defined flush by flush.
#[derive(Clone, Debug)]
pub struct Program {
    /// The options of merging. The back end is that of the path by which the program is run.
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
    /// Whether merging knows nothing of the module that it wraps: see
    /// [`BackEnd::Any`](cranelift_mergefunc_module::BackEnd::Any).
    pub any_back_end: bool,
    /// Whether the last flush is that of the end of the module, after which nothing comes.
    pub finishes: bool,
    /// How many functions of earlier flushes are referred to once more.
    pub later: usize,
}

/// The definitions of one flush.
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

/// A function.
#[derive(Clone, Debug)]
pub struct Function {
    /// Functions of one family are copies of one function with other constants and references.
    pub family: usize,
    /// How it is called.
    pub shape: Shape,
    /// The statements, one after the other, with a number that each of them changes.
    pub statements: Vec<Statement>,
    /// The end.
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

/// A data object.
#[derive(Clone, Debug)]
pub struct Data {
    /// Data objects of one family have pointers and numbers at the same places.
    pub family: usize,
    /// Its items.
    pub items: Vec<Item>,
    /// Whether it can be written.
    pub writable: bool,
    /// How it is declared.
    pub linkage: Linkage,
    /// The attributes that merging gets of it, as far as data objects have them, but for the
    /// linkage.
    pub attributes: Attributes,
}

/// A call from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which function.
    pub function: usize,
    /// The first two arguments.
    pub numbers: [i64; 2],
    /// For `a` and `b`: an offset in bytes into the buffer, or null.
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

impl Function {
    /// The parts that may differ in a copy, always in the same order.
    pub fn holes(&mut self) -> Vec<Hole<'_>> {
        holes(&mut self.statements, &mut self.end)
    }

    /// The statements, but for the parts that may differ in a copy.
    pub fn outline(&self) -> String {
        let mut copy = self.clone();
        for hole in copy.holes() {
            match hole {
                Hole::Constant(value) => *value = 0,
                Hole::Float(bits) => *bits = 0,
                Hole::Offset(offset, _) => *offset = 0,
                Hole::Function(number) | Hole::Data(number) | Hole::Item(number, _) => *number = 0,
            }
        }
        format!("{:?} {:?}", copy.statements, copy.end)
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

    /// The arguments of its calls.
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
            Callee::Direct(function)
            | Callee::Handled(function)
            | Callee::Indirect(function)
            | Callee::Symbol(function) => function,
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
