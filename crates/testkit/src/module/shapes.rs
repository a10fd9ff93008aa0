//! What the functions and data objects of random modules are made of.
//!
//! Functions take a number and return one. A function that refers to others passes them a smaller number, and all
//! of them end at zero, so that every call ends. Few shapes and few constants, so that many functions are equal.

use crate::modules::{Item, items_description};
use arbitrary::{Result, Unstructured};
use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{
    AbiParam, ExternalName, Function, GlobalValueData, InstBuilder, MemFlagsData, Signature,
    UserExternalName, UserFuncName, Value,
};
use cranelift_codegen::isa::CallConv;
use cranelift_module::{DataDescription, DataId, FuncId, Module, ModuleReloc, ModuleRelocTarget};

/// What a function does. Numbers are those of handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Adds.
    Constant(i64),
    /// Mixes its argument with two constants, in so many instructions that sharing them pays.
    Mixed([i64; 2]),
    /// Calls another one.
    Call { callee: usize, constant: i64 },
    /// Calls two others.
    Calls([usize; 2]),
    /// Calls another one through its address, which is that of a reference or of a global value.
    Address { callee: usize, constant: i64, by_symbol: bool },
    /// Calls what a data object points to.
    Slot { data: usize, slot: usize },
    /// Reads a number of a data object.
    Number { data: usize, slot: usize },
    /// A function that the verifier refuses.
    Refused,
    /// Given as bytes.
    Bytes { jumps_to: Option<usize>, inside: Option<usize> },
}

impl Shape {
    /// A shape with IR that refers to these functions and data objects.
    pub fn random(
        callees: &[usize],
        data: &[(usize, &Contents)],
        u: &mut Unstructured<'_>,
    ) -> Result<Shape> {
        let constant = u.int_in_range(0..=1)?;
        let slots = |wanted: fn(&Item) -> bool| {
            data.iter().flat_map(move |(data, contents)| {
                let slots = contents.items.iter().enumerate();
                slots.filter(move |(_, item)| wanted(item)).map(|(slot, _)| (*data, slot))
            })
        };
        Ok(match u.int_in_range(0..=13)? {
            0..=3 if !callees.is_empty() => Shape::Call { callee: *u.choose(callees)?, constant },
            4 if !callees.is_empty() => Shape::Calls([*u.choose(callees)?, *u.choose(callees)?]),
            5 if !callees.is_empty() => {
                let (callee, by_symbol) = (*u.choose(callees)?, u.arbitrary()?);
                Shape::Address { callee, constant, by_symbol }
            }
            6..=7 => {
                let slots: Vec<_> = slots(|item| item.function().is_some()).collect();
                match slots.is_empty() {
                    true => Shape::Constant(constant),
                    false => {
                        let (data, slot) = *u.choose(&slots)?;
                        Shape::Slot { data, slot }
                    }
                }
            }
            8 => {
                let slots: Vec<_> = slots(|item| matches!(item, Item::Number(_))).collect();
                match slots.is_empty() {
                    true => Shape::Constant(constant),
                    false => {
                        let (data, slot) = *u.choose(&slots)?;
                        Shape::Number { data, slot }
                    }
                }
            }
            9 if u.ratio(1, 4)? => Shape::Refused,
            10..=11 => {
                // Mostly the same, so that places agree in all functions except one.
                let first = u.int_in_range(0..=5)?;
                let second = if u.ratio(1, 4)? { u.int_in_range(0..=5)? } else { first };
                Shape::Mixed([first, second])
            }
            _ => Shape::Constant(constant),
        })
    }

    /// Functions whose addresses it takes.
    pub fn takes(&self) -> Vec<usize> {
        match self {
            Shape::Address { callee, .. } => vec![*callee],
            Shape::Bytes { jumps_to, inside } => jumps_to.iter().chain(inside).copied().collect(),
            _ => Vec::new(),
        }
    }

    /// Whether a function of this shape can be equal to one of the other, whatever they refer to.
    pub fn is_like(&self, other: &Shape) -> bool {
        match (self, other) {
            (Shape::Constant(one), Shape::Constant(other)) => one == other,
            (Shape::Mixed(one), Shape::Mixed(other)) => one == other,
            (Shape::Call { constant: one, .. }, Shape::Call { constant: other, .. }) => {
                one == other
            }
            (
                Shape::Address { constant: one, by_symbol, .. },
                Shape::Address { constant: other, by_symbol: other_by_symbol, .. },
            ) => one == other && by_symbol == other_by_symbol,
            (Shape::Calls(_), Shape::Calls(_)) => true,
            (Shape::Slot { slot: one, .. }, Shape::Slot { slot: other, .. })
            | (Shape::Number { slot: one, .. }, Shape::Number { slot: other, .. }) => one == other,
            _ => false,
        }
    }

    /// The body of `id`, where these are the functions and data objects of `module`; `near`: code may
    /// take all of them to be colocated. (A module says that of each, by its linkage. But functions
    /// that differ in it alone are equal, and compile to different code.)
    pub fn body(
        &self,
        module: &mut dyn Module,
        wide: bool,
        id: FuncId,
        functions: &[FuncId],
        data: &[DataId],
        near: bool,
    ) -> Function {
        let name = UserFuncName::user(0, id.as_u32());
        let mut func = Function::with_name_signature(name, signature(wide));
        let mut callee = |func: &mut Function, at: usize| {
            let callee = module.declare_func_in_func(functions[at], func);
            func.dfg.ext_funcs[callee].colocated = near;
            callee
        };
        let mut callees = Vec::new();
        let mut object = None;
        match self {
            Shape::Call { callee: at, .. }
            | Shape::Address { callee: at, constant: _, by_symbol: false } => {
                callees.push(callee(&mut func, *at));
            }
            Shape::Address { callee: at, constant: _, by_symbol: true } => {
                let user = UserExternalName::new(0, functions[*at].as_u32());
                let name = ExternalName::user(func.declare_imported_user_function(user));
                object = Some(func.create_global_value(GlobalValueData::Symbol {
                    name,
                    offset: 0.into(),
                    colocated: near,
                    tls: false,
                }));
            }
            Shape::Calls(both) => callees.extend(both.map(|at| callee(&mut func, at))),
            Shape::Slot { data: at, .. } | Shape::Number { data: at, .. } => {
                let gv = module.declare_data_in_func(data[*at], &mut func);
                if let GlobalValueData::Symbol { colocated, .. } = &mut func.global_values[gv] {
                    *colocated = near;
                }
                object = Some(gv);
            }
            Shape::Constant(_) | Shape::Mixed(_) | Shape::Refused | Shape::Bytes { .. } => {}
        }
        let pointers = match self {
            Shape::Address { .. } | Shape::Slot { .. } => {
                Some(func.import_signature(signature(false)))
            }
            _ => None,
        };

        let [entry, end, refers] = [(); 3].map(|()| func.dfg.make_block());
        let argument = func.dfg.append_block_param(entry, I64);
        let mut pos = FuncCursor::new(&mut func);
        pos.insert_block(entry);
        let results = |value: Value| if wide { vec![value; 3] } else { vec![value] };
        match self {
            Shape::Constant(constant) => {
                let constant = pos.ins().iconst(I64, *constant);
                let result = pos.ins().iadd(argument, constant);
                pos.ins().return_(&results(result));
                return func;
            }
            Shape::Mixed(constants) => {
                let constants = constants.map(|constant| pos.ins().iconst(I64, constant));
                let mut result = argument;
                for at in 0..16 {
                    let product = pos.ins().imul(result, argument);
                    result = pos.ins().bxor(product, constants[at % 2]);
                }
                pos.ins().return_(&results(result));
                return func;
            }
            Shape::Refused | Shape::Bytes { .. } => {
                pos.ins().return_(&[argument; 7]);
                return func;
            }
            _ => pos.ins().brif(argument, refers, &[], end, &[]),
        };
        pos.insert_block(refers);
        let one = pos.ins().iconst(I64, 1);
        let smaller = pos.ins().isub(argument, one);
        let flags = MemFlagsData::trusted();
        let mut result = argument;
        match self {
            Shape::Call { constant, .. } => {
                let call = pos.ins().call(callees[0], &[smaller]);
                let constant = pos.ins().iconst(I64, 5 + *constant);
                result = pos.func.dfg.first_result(call);
                result = pos.ins().imul(result, constant);
            }
            Shape::Calls(_) => {
                for callee in callees {
                    let call = pos.ins().call(callee, &[smaller]);
                    let more = pos.func.dfg.first_result(call);
                    result = pos.ins().bxor(result, more);
                }
            }
            Shape::Address { constant, .. } => {
                let address = match object {
                    Some(gv) => pos.ins().symbol_value(I64, gv),
                    None => pos.ins().func_addr(I64, callees[0]),
                };
                let pointers = pointers.expect("a signature");
                let call = pos.ins().call_indirect(pointers, address, &[smaller]);
                let constant = pos.ins().iconst(I64, 7 + *constant);
                result = pos.func.dfg.first_result(call);
                result = pos.ins().iadd(result, constant);
            }
            Shape::Slot { slot, .. } => {
                let base = pos.ins().symbol_value(I64, object.expect("an object"));
                let address = pos.ins().load(I64, flags, base, 8 * *slot as i32);
                let pointers = pointers.expect("a signature");
                let call = pos.ins().call_indirect(pointers, address, &[smaller]);
                result = pos.func.dfg.first_result(call);
            }
            Shape::Number { slot, .. } => {
                let base = pos.ins().symbol_value(I64, object.expect("an object"));
                result = pos.ins().load(I64, flags, base, 8 * *slot as i32);
            }
            Shape::Constant(_) | Shape::Mixed(_) | Shape::Refused | Shape::Bytes { .. } => {}
        }
        pos.ins().return_(&results(result));
        pos.insert_block(end);
        pos.ins().return_(&results(argument));
        func
    }
}

/// The signature of all functions, or that of those that no back end compiles.
pub fn signature(wide: bool) -> Signature {
    let mut signature = Signature::new(CallConv::SystemV);
    signature.params.push(AbiParam::new(I64));
    signature.returns.resize(if wide { WIDE } else { 1 }, AbiParam::new(I64));
    signature
}

/// How many numbers a function returns for which there are not enough registers.
const WIDE: usize = 3;

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

/// What a data object holds.
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

    /// The same for a module, where these are its functions and data objects.
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
