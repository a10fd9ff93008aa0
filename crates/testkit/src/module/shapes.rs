//! The parts of the functions and data objects of random modules.
//!
//! Functions are [`Statement`]s of the generator, of which few are drawn here, and with few
//! constants, so that many functions are equal. A function that refers to others passes them a
//! smaller number, and all of them end at zero, so that every call ends.

use crate::generate::statement::{
    Address, Callee, End, Facts, Hole, Operation, Passes, Place, Pointer, Shape as Called,
    Statement, holes,
};
use crate::generate::steps::{Names, Steps};
use crate::modules::{Item, items_description};
use arbitrary::{Result, Unstructured};
use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir::{Function, Signature, UserExternalName};
use cranelift_module::{DataDescription, DataId, FuncId, Module, ModuleReloc, ModuleRelocTarget};

/// A statement of a function. Numbers are those of handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// These statements, and returns their result.
    Steps(Vec<Statement>),
    /// A function that the verifier refuses.
    Refused,
    /// Given as bytes.
    Bytes { jumps_to: Option<usize>, inside: Option<usize> },
}

impl Shape {
    /// Adds a constant.
    pub fn constant(constant: i64) -> Shape {
        Shape::Steps(vec![Statement::Constant(Operation::Add, constant)])
    }

    /// A shape with IR that refers to these functions and data objects.
    pub fn random(
        callees: &[usize],
        data: &[(usize, &Contents)],
        u: &mut Unstructured<'_>,
    ) -> Result<Shape> {
        let constant = u.int_in_range(0..=1)?;
        let place = |wanted: fn(&Item) -> bool, u: &mut Unstructured<'_>| {
            let places = data.iter().flat_map(move |(data, contents)| {
                let slots = contents.items.iter().enumerate();
                let slots = slots.filter(move |(_, item)| wanted(item));
                slots.map(|(slot, _)| Place { data: *data, slot, base: 0 })
            });
            let places: Vec<Place> = places.collect();
            if places.is_empty() { Ok(None) } else { u.choose(&places).copied().map(Some) }
        };
        let call = |call: Callee| {
            let passes =
                Passes { pointers: [Pointer::Own(0), Pointer::Own(1)], extras: Vec::new() };
            Statement::Call { call, passes, in_loop: false, entries: 0 }
        };
        let multiply = Statement::Constant(Operation::Multiply, 5 + constant);
        Ok(match u.int_in_range(0..=13)? {
            0..=3 if !callees.is_empty() => {
                Shape::Steps(vec![call(Callee::Direct(*u.choose(callees)?)), multiply])
            }
            4 if !callees.is_empty() => {
                let both = [*u.choose(callees)?, *u.choose(callees)?];
                Shape::Steps(both.map(|callee| call(Callee::Direct(callee))).to_vec())
            }
            5 if !callees.is_empty() => {
                let callee = *u.choose(callees)?;
                let callee = match u.arbitrary()? {
                    true => Callee::Symbol(callee),
                    false => Callee::Indirect(callee),
                };
                Shape::Steps(vec![call(callee), multiply])
            }
            6..=7 => match place(|item| item.function().is_some(), u)? {
                None => Shape::constant(constant),
                Some(place) => Shape::Steps(vec![call(Callee::Slot(place))]),
            },
            8 => match place(|item| matches!(item, Item::Number(_)), u)? {
                None => Shape::constant(constant),
                Some(place) => Shape::Steps(vec![Statement::Number { place, stores: false }]),
            },
            9 if u.ratio(1, 4)? => Shape::Refused,
            10..=11 => {
                // Mostly one statement, so that places agree in all functions except one. It has
                // enough instructions that sharing them pays.
                let first = u.int_in_range(0..=5)?;
                let second = if u.ratio(1, 4)? { u.int_in_range(0..=5)? } else { first };
                Shape::Steps(vec![
                    Statement::Constant(Operation::Xor, first),
                    Statement::Mix { rounds: 8, seed: 0 },
                    Statement::Constant(Operation::Xor, second),
                ])
            }
            _ => Shape::constant(constant),
        })
    }

    /// The callees of its statements.
    fn callees(&self) -> impl Iterator<Item = Callee> {
        let statements = match self {
            Shape::Steps(statements) => &statements[..],
            Shape::Refused | Shape::Bytes { .. } => &[],
        };
        statements.iter().filter_map(|statement| match statement {
            Statement::Call { call, .. } => Some(*call),
            _ => None,
        })
    }

    /// Whether code calls functions by their addresses.
    pub fn takes_addresses(&self) -> bool {
        self.callees().any(|callee| matches!(callee, Callee::Indirect(_) | Callee::Symbol(_)))
    }

    /// Functions whose addresses it takes.
    pub fn takes(&self) -> Vec<usize> {
        match self {
            Shape::Bytes { jumps_to, inside } => jumps_to.iter().chain(inside).copied().collect(),
            Shape::Steps(_) | Shape::Refused => {
                let taken = self.callees().filter_map(|callee| match callee {
                    Callee::Indirect(function) | Callee::Symbol(function) => Some(function),
                    Callee::Direct(_) | Callee::Handled(_) | Callee::Slot(_) => None,
                });
                taken.collect()
            }
        }
    }

    /// Whether a function of this shape can be equal to one of the other, whatever they refer to.
    pub fn is_like(&self, other: &Shape) -> bool {
        let alike = |shape: &Shape| {
            let mut shape = shape.clone();
            let Shape::Steps(statements) = &mut shape else { return None };
            for hole in holes(statements, &mut End::Return) {
                match hole {
                    Hole::Function(number) | Hole::Data(number) => *number = 0,
                    Hole::Constant(_) | Hole::Float(_) | Hole::Offset(..) | Hole::Item(..) => {}
                }
            }
            Some(shape)
        };
        alike(self).is_some_and(|own| alike(other) == Some(own))
    }

    /// The body of `function`.
    pub fn body(&self, wide: bool, function: usize, names: &Ids<'_>) -> Function {
        let statements = match self {
            Shape::Steps(statements) => &statements[..],
            Shape::Refused | Shape::Bytes { .. } => &[],
        };
        let results = if matches!(self, Shape::Steps(_)) { called(wide).results } else { 7 };
        let (shape, facts) = (Called { results, ..called(wide) }, Facts::default());
        let steps = Steps { shape: &shape, facts: &facts, statements, end: &End::Return };
        let mut func = steps.build(function, names);
        func.signature = signature(wide);
        func
    }
}

/// The identifiers of functions and data objects in a module, by handle.
pub struct Ids<'a> {
    pub functions: &'a [FuncId],
    pub data: &'a [DataId],
    /// Whether code may take all of them to be colocated. (A module says that of each, by its
    /// linkage. But functions that differ in it alone are equal, and compile to different code.)
    pub near: bool,
}

impl Names for Ids<'_> {
    fn function(&self, function: usize) -> UserExternalName {
        UserExternalName::new(0, self.functions[function].as_u32())
    }

    fn data(&self, data: usize) -> UserExternalName {
        UserExternalName::new(1, self.data[data].as_u32())
    }

    fn shape(&self, _: Callee) -> &Called {
        const { &called(false) }
    }

    fn is_function_near(&self, _: usize, _: bool) -> bool {
        self.near
    }

    fn is_data_near(&self, _: usize) -> bool {
        self.near
    }

    fn is_writable(&self, _: usize) -> bool {
        true
    }

    fn alignment(&self, _: Address) -> u32 {
        1
    }
}

/// How all functions are called, or how those are that no back end compiles: there are not enough
/// registers for their results.
const fn called(wide: bool) -> Called {
    Called { extras: Vec::new(), tail: false, results: if wide { 3 } else { 1 } }
}

/// Their signature.
pub fn signature(wide: bool) -> Signature {
    called(wide).signature()
}

/// Code that jumps to a function, or returns its argument; and a pointer into a function behind it.
pub fn bytes(jumps_to: Option<FuncId>, inside: Option<FuncId>) -> (Vec<u8>, Vec<ModuleReloc>) {
    let mut relocs = Vec::new();
    let aarch64 = cfg!(target_arch = "aarch64");
    let mut bytes = match (jumps_to, aarch64) {
        (None, false) => vec![0x48, 0x89, 0xf8, 0xc3],
        (None, true) => vec![0xc0, 0x03, 0x5f, 0xd6],
        (Some(_), false) => vec![0xe9, 0, 0, 0, 0],
        (Some(_), true) => vec![0, 0, 0, 0x14],
    };
    if let Some(to) = jumps_to {
        let (offset, kind, addend) = match aarch64 {
            true => (0, Reloc::Arm64Call, 0),
            false => (1, Reloc::X86CallPCRel4, -4),
        };
        relocs.push(ModuleReloc { offset, kind, name: to.into(), addend });
    }
    if let Some(inside) = inside {
        bytes.resize(16, 0);
        let name = ModuleRelocTarget::FunctionOffset(inside, 1);
        relocs.push(ModuleReloc { offset: 8, kind: Reloc::Abs8, name, addend: 0 });
    }
    (bytes, relocs)
}

/// The contents of a data object.
#[derive(Clone, Debug)]
pub struct Contents {
    pub items: Vec<Item>,
    /// Zeros that take no room in the file, if it holds nothing else.
    pub zeros: bool,
    pub align: Option<u64>,
    /// Whether it asks for a section of its own.
    pub section: bool,
    pub used: bool,
}

impl Contents {
    pub fn random(
        functions: &[usize],
        data: &[usize],
        sections: bool,
        u: &mut Unstructured<'_>,
    ) -> Result<Contents> {
        let mut items = Vec::new();
        for _ in 0..u.int_in_range(0..=3)? {
            items.push(match u.int_in_range(0..=5)? {
                0..=2 if !functions.is_empty() => Item::Function(*u.choose(functions)?),
                3 if !data.is_empty() => {
                    Item::Data { data: *u.choose(data)?, slot: *u.choose(&[0, 0, 1])? }
                }
                _ => Item::Number(u.int_in_range(0..=1)?),
            });
        }
        let section = sections && u.ratio(1, 8)?;
        Ok(Contents {
            // A section of its own has bytes: the object file has no way to say that it does not.
            zeros: !section && items.iter().all(|item| *item == Item::Number(0)),
            items,
            align: *u.choose(&[None, Some(8), Some(64)])?,
            section,
            used: u.ratio(1, 12)?,
        })
    }

    /// The description of a data object for a module with these functions and data objects.
    pub fn description(
        &self,
        module: &mut dyn Module,
        functions: &[FuncId],
        data: &[DataId],
    ) -> DataDescription {
        let (function, object) = (|at: usize| functions[at], |at: usize| data[at]);
        let mut description =
            items_description(module, (&self.items, self.zeros), &function, &object);
        if let Some(align) = self.align {
            description.set_align(align);
        }
        if self.section {
            description.set_custom_section(".mine");
        }
        description.used = self.used;
        description
    }
}
