//! Which functions of core modules are reachable from outside of them.
//!
//! A function that a module exports, or of which there is a reference anywhere (in a table, in a
//! global, in a body), may be called by code that is not there to be seen. This reads modules,
//! those of a component each by itself, and decides by what they say: it does *not* look for
//! references that are never used.

use crate::{Error, Function, Reach};
use std::collections::BTreeSet;
use wasmtime::wasmparser::{
    BinaryReaderError, ConstExpr, Element, ElementItems, ElementKind, Encoding, ExternalKind,
    FunctionBody, Operator, Parser, Payload, TableInit, TypeRef,
};

/// The core modules of a component in the order in which Wasmtime numbers them, or the one module.
#[derive(Debug, Default)]
pub struct Modules {
    /// Whether they are those of a component.
    pub component: bool,
    all: Vec<Module>,
}

/// The functions of a module that are reachable from outside, by their numbers among all of its
/// functions.
#[derive(Debug, Default)]
struct Module {
    imported: u32,
    defined: u32,
    exported: BTreeSet<u32>,
    /// Functions of which element segments hold references.
    in_tables: BTreeSet<u32>,
    /// Functions of other references, and the start function.
    called: BTreeSet<u32>,
}

/// Namespaces below are those of functions that a module defines, by its number.
const FIRST_OTHER_NAMESPACE: u32 = 1 << 28;

impl Modules {
    /// Reads all modules in `wasm`.
    ///
    /// # Errors
    ///
    /// Malformed WebAssembly. Not all that is invalid is found.
    pub fn of(wasm: &[u8]) -> Result<Modules, BinaryReaderError> {
        let mut all: Vec<Module> = Vec::new();
        let component = read(wasm, |module, payload| {
            if module == all.len() {
                all.push(Module::default());
            }
            all[module].add(payload)
        })?;
        Ok(Modules { component, all })
    }

    /// How many functions they define.
    pub fn defined(&self) -> usize {
        self.all.iter().map(|module| module.defined as usize).sum()
    }

    /// Whether they define no functions.
    pub fn is_empty(&self) -> bool {
        self.all.iter().all(|module| module.defined == 0)
    }

    /// How many functions a module imports: those that it defines are numbered behind them.
    pub fn imported(&self, module: usize) -> u32 {
        self.all[module].imported
    }

    /// How the function of a name is reached.
    pub fn reach(&self, namespace: u32, index: u32) -> Reach {
        // Functions in none of the modules are Wasmtime's own: trampolines, and the modules that it
        // makes of the interfaces between those of a component.
        let module = (namespace < FIRST_OTHER_NAMESPACE).then(|| self.all.get(namespace as usize));
        let Some(module) = module.flatten() else { return Reach::Called };
        let function = module.imported + index;
        if module.exported.contains(&function) {
            Reach::Exported
        } else if module.called.contains(&function) {
            Reach::Called
        } else if module.in_tables.contains(&function) {
            Reach::InTable
        } else {
            Reach::Local
        }
    }

    /// Checks that Wasmtime has numbered the modules and their functions as this module does. If it
    /// did not, a function that is called from outside could be taken for a local one.
    ///
    /// # Errors
    ///
    /// The first module that has another number of functions.
    pub fn check_numbers(&self, functions: &[Function]) -> Result<(), Error> {
        for (module, Module { defined, .. }) in self.all.iter().enumerate() {
            let prefix = format!("u{module}:");
            let indices: BTreeSet<u32> = functions
                .iter()
                .filter_map(|function| function.name.strip_prefix(&prefix)?.parse().ok())
                .collect();
            if !indices.iter().copied().eq(0..*defined) {
                return Err(Error(format!(
                    "core module {module} defines {defined} functions, and Wasmtime translated {}",
                    indices.len(),
                )));
            }
        }
        Ok(())
    }
}

/// Hands what each core module in `wasm` consists of to `payload`, with the number of the module
/// and beginning with its version; whether `wasm` is a component.
pub fn read<'a>(
    wasm: &'a [u8],
    mut payload: impl FnMut(usize, Payload<'a>) -> Result<(), BinaryReaderError>,
) -> Result<bool, BinaryReaderError> {
    // The modules and components that are not at their ends yet; for modules, their numbers.
    let (mut open, mut numbers) = (Vec::new(), 0..);
    let mut component = false;
    for part in Parser::new(0).parse_all(wasm) {
        let part = part?;
        match &part {
            Payload::Version { encoding: Encoding::Component, .. } => {
                component = true;
                open.push(None);
            }
            Payload::Version { encoding: Encoding::Module, .. } => open.push(numbers.next()),
            Payload::End(_) => {
                open.pop();
                continue;
            }
            _ => {}
        }
        if let Some(&Some(module)) = open.last() {
            payload(module, part)?;
        }
    }
    Ok(component)
}

/// The functions to which an element segment refers, in order; `None` for an element that refers to
/// none.
pub fn functions_of(element: &Element<'_>) -> Result<Vec<Option<u32>>, BinaryReaderError> {
    let referred = |expression: ConstExpr<'_>| {
        for operator in expression.get_operators_reader() {
            if let Operator::RefFunc { function_index } = operator? {
                return Ok(Some(function_index));
            }
        }
        Ok(None)
    };
    match &element.items {
        ElementItems::Functions(functions) => {
            functions.clone().into_iter().map(|function| function.map(Some)).collect()
        }
        ElementItems::Expressions(_, expressions) => {
            expressions.clone().into_iter().map(|expression| referred(expression?)).collect()
        }
    }
}

impl Module {
    /// Reads a section or a body of the module.
    fn add(&mut self, payload: Payload<'_>) -> Result<(), BinaryReaderError> {
        match payload {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    if let TypeRef::Func(_) | TypeRef::FuncExact(_) = import?.ty {
                        self.imported += 1;
                    }
                }
            }
            Payload::FunctionSection(section) => self.defined = section.count(),
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export?;
                    if let ExternalKind::Func | ExternalKind::FuncExact = export.kind {
                        self.exported.insert(export.index);
                    }
                }
            }
            Payload::StartSection { func, range: _ } => {
                self.called.insert(func);
            }
            Payload::TableSection(section) => {
                for table in section {
                    if let TableInit::Expr(init) = table?.init {
                        self.add_references(&init)?;
                    }
                }
            }
            Payload::GlobalSection(section) => {
                for global in section {
                    self.add_references(&global?.init_expr)?;
                }
            }
            Payload::ElementSection(section) => {
                for element in section {
                    let element = element?;
                    let functions = functions_of(&element)?.into_iter().flatten();
                    match element.kind {
                        // Code makes these references.
                        ElementKind::Declared => self.called.extend(functions),
                        ElementKind::Active { .. } | ElementKind::Passive => {
                            self.in_tables.extend(functions);
                        }
                    }
                }
            }
            Payload::CodeSectionEntry(body) => self.add_references_of_body(&body)?,
            // Neither the names of sections of one's own nor types, memories, tags and data refer
            // to functions.
            _ => {}
        }
        Ok(())
    }

    /// The functions to which an initial value refers.
    fn add_references(&mut self, expression: &ConstExpr<'_>) -> Result<(), BinaryReaderError> {
        for operator in expression.get_operators_reader() {
            if let Operator::RefFunc { function_index } = operator? {
                self.called.insert(function_index);
            }
        }
        Ok(())
    }

    /// The functions of which a body makes references.
    fn add_references_of_body(&mut self, body: &FunctionBody<'_>) -> Result<(), BinaryReaderError> {
        for operator in body.get_operators_reader()? {
            if let Operator::RefFunc { function_index } = operator? {
                self.called.insert(function_index);
            }
        }
        Ok(())
    }
}
