//! Defines a program in a module, flush by flush.

use super::program::{Address, Callee, Data, Function, Part, Program, Shape};
use crate::generate::steps::{Names, Steps};
use crate::modules::items_description;
use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{self, UserExternalName, UserFuncName};
use cranelift_mergefunc::Attributes;
use cranelift_mergefunc::data::DataAttributes;
use cranelift_mergefunc_module::MergingModule;
use cranelift_module::{
    DataDescription, DataId, FuncId, Linkage, Module, ModuleReloc, ModuleResult,
};

/// Passes the attributes of a part of the program to a merging module.
pub fn say<M: Module>(module: &mut MergingModule<M>, program: &Program, part: Part, ids: &Ids) {
    match part {
        Part::Function(function) => {
            *module.attributes(ids.function(function)) = function_attributes(program, function);
        }
        Part::Data(data) => {
            *module.data_attributes(ids.data(data)) = data_attributes(program, data);
        }
    }
}

/// The attributes that merging gets of a function. The linkage in them is that of its definition.
pub fn function_attributes(program: &Program, function: usize) -> Attributes {
    let Function { attributes, linkage, .. } = &program.functions[function];
    Attributes { linkage: own_linkage(*linkage), ..*attributes }
}

/// The attributes that merging gets of a data object.
pub fn data_attributes(program: &Program, data: usize) -> DataAttributes {
    let Data { attributes, linkage, writable, .. } = &program.data[data];
    let Attributes { addresses, pinned, externally_called, key, alignment, .. } = *attributes;
    DataAttributes {
        linkage: own_linkage(*linkage),
        addresses,
        writable: *writable,
        pinned,
        externally_used: externally_called,
        key,
        alignment: u64::from(alignment).max(8),
        ..DataAttributes::default()
    }
}

fn own_linkage(linkage: Linkage) -> cranelift_mergefunc::Linkage {
    match linkage {
        Linkage::Local => cranelift_mergefunc::Linkage::Local,
        Linkage::Hidden => cranelift_mergefunc::Linkage::Hidden,
        Linkage::Export => cranelift_mergefunc::Linkage::Export,
        Linkage::Preemptible | Linkage::Import => cranelift_mergefunc::Linkage::Preemptible,
    }
}

/// The identifiers of what is declared, by number.
#[derive(Clone, Debug, Default)]
pub struct Ids {
    functions: Vec<Option<FuncId>>,
    data: Vec<Option<DataId>>,
}

impl Ids {
    /// The identifiers for a program of which nothing is declared.
    pub fn new(program: &Program) -> Ids {
        Ids { functions: vec![None; program.functions.len()], data: vec![None; program.data.len()] }
    }

    /// A function that is declared.
    pub fn function(&self, function: usize) -> FuncId {
        self.functions[function].expect("is declared")
    }

    /// A function, if it is declared.
    pub fn known(&self, function: usize) -> Option<FuncId> {
        self.functions[function]
    }

    /// A data object that is declared.
    pub fn data(&self, data: usize) -> DataId {
        self.data[data].expect("is declared")
    }
}

/// The name of a part in a module.
pub fn name(prefix: &str, part: Part) -> String {
    match part {
        Part::Function(function) => format!("{prefix}f{function}"),
        Part::Data(data) => format!("{prefix}d{data}"),
    }
}

/// Defines a function at a multiple of `alignment`.
///
/// # Errors
///
/// The error of the module.
pub fn define_aligned(
    module: &mut impl Module,
    id: FuncId,
    context: &mut Context,
    alignment: u32,
) -> ModuleResult<()> {
    match alignment {
        1 => module.define_function(id, context),
        _ => define_bytes(module, id, context, alignment),
    }
}

/// Defines a function by its code.
fn define_bytes(
    module: &mut impl Module,
    id: FuncId,
    context: &mut Context,
    alignment: u32,
) -> ModuleResult<()> {
    let minimum = module.isa().function_alignment().minimum;
    context.compile(module.isa(), &mut ControlPlane::default()).map_err(|error| error.inner)?;
    let code = context.compiled_code().expect("was compiled");
    let relocs = code.buffer.relocs().iter();
    let relocs: Vec<ModuleReloc> =
        relocs.map(|reloc| ModuleReloc::from_mach_reloc(reloc, &context.func, id)).collect();
    let alignment = u64::from(alignment.max(code.buffer.alignment).max(minimum));
    module.define_function_bytes(id, alignment, code.code_buffer(), &relocs)
}

/// The namespace of functions.
pub const FUNCTION: u32 = 0;
/// The namespace of data objects.
pub const DATA: u32 = 1;

impl Program {
    /// Whether references to a part are colocated. That must be the same in all functions.
    fn is_near(&self, part: Part, address: bool) -> bool {
        let linkage = match part {
            Part::Function(function) => self.functions[function].declared,
            Part::Data(data) => self.data[data].linkage,
        };
        self.colocated
            && match (linkage, self.linkage(part)) {
                (Linkage::Import | Linkage::Preemptible, _) => false,
                // A shared library must ask the loader for the addresses of exported symbols.
                (_, Linkage::Export) => !address,
                (_, Linkage::Local | Linkage::Hidden) => true,
                (_, Linkage::Import | Linkage::Preemptible) => false,
            }
    }
}

impl Names for Program {
    fn function(&self, function: usize) -> UserExternalName {
        UserExternalName::new(FUNCTION, function as u32)
    }

    fn data(&self, data: usize) -> UserExternalName {
        UserExternalName::new(DATA, data as u32)
    }

    fn shape(&self, callee: Callee) -> &Shape {
        &self.functions[self.callee(callee)].shape
    }

    fn is_function_near(&self, function: usize, address: bool) -> bool {
        self.is_near(Part::Function(function), address)
    }

    fn is_data_near(&self, data: usize) -> bool {
        self.is_near(Part::Data(data), true)
    }

    fn is_writable(&self, data: usize) -> bool {
        self.data[data].writable
    }

    fn alignment(&self, address: Address) -> u32 {
        Program::alignment(self, self.part_at(address))
    }
}

/// The function of a number.
pub fn function(program: &Program, number: usize) -> ir::Function {
    let Function { shape, facts, statements, end, .. } = &program.functions[number];
    Steps { shape, facts, statements, end }.build(number, program)
}

/// The functions of a program, by number.
pub fn functions(program: &Program) -> Vec<ir::Function> {
    (0..program.functions.len()).map(|number| function(program, number)).collect()
}

/// A program, and the module in which it is defined.
pub struct Definer<'a, M> {
    /// The module.
    pub module: M,
    /// The declarations so far.
    pub ids: Ids,
    pub program: &'a Program,
    bodies: &'a [ir::Function],
    prefix: &'a str,
    /// Whether functions are aligned here, because the module cannot be asked to.
    aligns: bool,
    /// The flush that is a unit of its own: it imports what others define.
    unit: Option<usize>,
}

impl<'a, M: Module> Definer<'a, M> {
    /// A module in which nothing is defined yet; `prefix` is that of all names.
    pub fn new(
        module: M,
        program: &'a Program,
        bodies: &'a [ir::Function],
        prefix: &'a str,
    ) -> Self {
        let ids = Ids::new(program);
        Definer { module, ids, program, bodies, prefix, aligns: false, unit: None }
    }

    /// Definitions for a module that can be asked for alignments only through the code of a
    /// function.
    pub fn plain(
        module: M,
        program: &'a Program,
        bodies: &'a [ir::Function],
        prefix: &'a str,
    ) -> Self {
        Definer { aligns: true, ..Definer::new(module, program, bodies, prefix) }
    }

    /// Definitions for a module in which only one flush is defined.
    pub fn of_unit(self, unit: usize) -> Self {
        Definer { unit: Some(unit), ..self }
    }

    /// Declares something, with the linkage of its declaration or of its definition.
    fn declare(&mut self, part: Part, linkage: Linkage) -> ModuleResult<()> {
        let is_import =
            self.unit.is_some_and(|unit| !self.program.flushes[unit].defined.contains(&part));
        let linkage = if is_import { Linkage::Import } else { linkage };
        let name = name(self.prefix, part);
        match part {
            Part::Function(function) => {
                let signature = &self.bodies[function].signature;
                let id = self.module.declare_function(&name, linkage, signature)?;
                self.ids.functions[function] = Some(id);
            }
            Part::Data(data) => {
                let writable = self.program.data[data].writable;
                let id = self.module.declare_data(&name, linkage, writable, false)?;
                self.ids.data[data] = Some(id);
            }
        }
        Ok(())
    }

    fn declare_if_new(&mut self, part: Part) -> ModuleResult<()> {
        let (known, linkage) = match part {
            Part::Function(function) => {
                let declared = self.program.functions[function].declared;
                (self.ids.functions[function].is_some(), declared)
            }
            Part::Data(data) => (self.ids.data[data].is_some(), self.program.data[data].linkage),
        };
        if known { Ok(()) } else { self.declare(part, linkage) }
    }

    /// Makes the calls of a flush, up to the flush itself. `say` is called for every part before it
    /// is defined.
    ///
    /// # Errors
    ///
    /// The error of the module.
    pub fn define(
        &mut self,
        flush: usize,
        say: &mut dyn FnMut(&mut M, Part, &Ids),
    ) -> ModuleResult<()> {
        let flush = &self.program.flushes[flush];
        for &(part, linkage) in &flush.widened {
            self.declare_if_new(part)?;
            self.declare(part, linkage)?;
        }
        for &part in &flush.defined {
            for reference in self.program.references(part) {
                self.declare_if_new(reference)?;
            }
            match part {
                Part::Function(function) => {
                    self.declare(part, self.program.functions[function].linkage)?;
                    say(&mut self.module, part, &self.ids);
                    self.define_function(function)?;
                }
                Part::Data(data) => {
                    self.declare_if_new(part)?;
                    say(&mut self.module, part, &self.ids);
                    let description = self.description(data);
                    self.module.define_data(self.ids.data(data), &description)?;
                }
            }
        }
        Ok(())
    }

    fn define_function(&mut self, function: usize) -> ModuleResult<()> {
        let id = self.ids.function(function);
        let mut func = self.bodies[function].clone();
        func.name = UserFuncName::user(0, id.as_u32());
        let names = func.params.user_named_funcs().iter();
        let names: Vec<_> = names.map(|(reference, symbol)| (reference, symbol.clone())).collect();
        for (reference, UserExternalName { namespace, index }) in names {
            let index = match namespace {
                FUNCTION => self.ids.function(index as usize).as_u32(),
                DATA => self.ids.data(index as usize).as_u32(),
                _ => unreachable!("functions and data objects"),
            };
            func.params.reset_user_func_name(reference, UserExternalName { namespace, index });
        }
        let mut context = Context::for_function(func);
        let alignment = self.program.alignment(Part::Function(function));
        match self.program.functions[function].bytes {
            true => define_bytes(&mut self.module, id, &mut context, alignment),
            false if self.aligns => define_aligned(&mut self.module, id, &mut context, alignment),
            false => self.module.define_function(id, &mut context),
        }
    }

    fn description(&mut self, data: usize) -> DataDescription {
        let Data { items, attributes, .. } = &self.program.data[data];
        let Definer { module, ids, .. } = self;
        let (function, data) = (|at: usize| ids.function(at), |at: usize| ids.data(at));
        let mut description = items_description(module, (items, false), &function, &data);
        description.set_align(u64::from(attributes.alignment).max(8));
        description
    }
}
