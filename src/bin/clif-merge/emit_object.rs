//! The merged unit as a native object file.
//!
//! Bodies are compiled and given to an `ObjectModule` as bytes, thunks as the bytes of a jump.
//! An alias is declared like an import; when the object is complete, its symbol gets the place of
//! the symbol it stands for. References to what the unit does not define become undefined symbols.
//! No unwind or debug information is written.

use crate::codegen::{Compiler, size};
use crate::exit::contain;
use crate::pass::{Emit, Merged};
use crate::progress::Progress;
use crate::unit::Unit;
use anyhow::{Context as _, Result, anyhow, bail};
use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir::{ExternalName, Function, GlobalValueData, Signature, UserExternalName};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::{FinalizedMachReloc, FinalizedRelocTarget};
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::{FunctionIndex, Linkage, Target, cranelift_codegen};
use cranelift_module::{
    FuncId, Module as _, ModuleReloc, ModuleRelocTarget, default_libcall_names,
};
use cranelift_object::object::SymbolScope;
use cranelift_object::{ObjectBuilder, ObjectModule, ObjectProduct};
use std::collections::HashMap;

/// An object file.
#[derive(Debug)]
pub struct Object {
    /// The file.
    pub bytes: Vec<u8>,
    /// The bytes of code in it: bodies and thunks, without padding between them.
    pub code_size: u64,
}

/// Makes an object file for `isa` of `merged`, which was made of `unit`.
///
/// # Errors
///
/// Functions that cannot be compiled, and relocations that the object format does not have.
pub fn emit(unit: &Unit, merged: Merged, isa: &OwnedTargetIsa, quiet: bool) -> Result<Object> {
    let builder = ObjectBuilder::new(isa.clone(), "clif-merge", default_libcall_names())
        .with_context(|| format!("no object file can be made for {}", isa.triple()))?;
    let mut emitter =
        Emitter { module: ObjectModule::new(builder), names: HashMap::new(), code_size: 0 };
    let Merged { emit, plan, names, changed: _ } = merged;
    let symbol = |index: usize| plan.entry(FunctionIndex::new(index)).symbol();
    let text = |symbol: &UserExternalName| symbol_text(&names.display(symbol));

    // First all definitions, so that every reference finds what it refers to.
    let mut ids: Vec<Option<FuncId>> = Vec::new();
    for (index, emit) in emit.iter().enumerate() {
        let given = unit.given.get(index);
        let linkage = given.map_or(Linkage::Local, |given| given.attributes.linkage);
        let (signature, linkage) = match emit {
            Emit::Nothing => {
                ids.push(None);
                continue;
            }
            Emit::Body(func) => (&func.signature, module_linkage(linkage)),
            Emit::Thunk(_) => (&unit.functions[index].signature, module_linkage(linkage)),
            // It is not defined in the sense of the module, so it must not be declared so.
            Emit::Alias(_) => (&unit.functions[index].signature, cranelift_module::Linkage::Import),
        };
        let id = emitter.module.declare_function(&text(symbol(index)), linkage, signature)?;
        emitter.names.insert(symbol(index).clone(), id.into());
        ids.push(Some(id));
    }

    let target = Target::of(&**isa);
    let least_alignment = isa.function_alignment().minimum;
    let mut compiler = Compiler::new(&**isa);
    let mut progress = Progress::new("compiling", emit.len(), quiet);
    let mut aliases: Vec<(usize, UserExternalName)> = Vec::new();
    for (index, emit) in emit.into_iter().enumerate() {
        progress.step();
        let alignment = plan.entry(FunctionIndex::new(index)).alignment();
        let id = ids[index];
        match emit {
            Emit::Nothing => {}
            Emit::Alias(to) => aliases.push((index, to)),
            Emit::Thunk(to) => {
                let Some(jump) = target.jump_thunk else {
                    bail!("{} has no jump for a thunk", isa.triple());
                };
                let reloc = ModuleReloc {
                    offset: jump.offset,
                    kind: jump.relocation,
                    name: emitter.names[&to].clone(),
                    addend: jump.addend,
                };
                let alignment = alignment.max(least_alignment);
                emitter.define(id.expect("declared"), alignment, jump.code(), &[reloc])?;
            }
            Emit::Body(func) => {
                // A shared body has the place of the function it was made of.
                let place = unit.given.get(index).map_or_else(
                    || {
                        plan.shared_bodies()
                            .iter()
                            .find(|shared| shared.function.index() == index)
                            .expect("a shared body")
                            .body_of
                            .index()
                    },
                    |_| index,
                );
                let code = compiler.compile_of(unit, place, *func)?;
                debug_assert_eq!(size(code) as usize, code.code_buffer().len());
                let alignment = alignment.max(code.buffer.alignment).max(least_alignment);
                let bytes = code.code_buffer().to_vec();
                let relocs = code.buffer.relocs().to_vec();
                let func = compiler.compiled_function();
                let id = id.expect("declared");
                let mut module_relocs = Vec::new();
                for reloc in &relocs {
                    module_relocs.push(emitter.reloc(reloc, func, id, &text)?);
                }
                emitter.define(id, alignment, &bytes, &module_relocs)?;
            }
        }
    }
    drop(progress);

    let Emitter { module, names: targets, code_size } = emitter;
    let mut product = contain(|| module.finish()).map_err(unsupported)?;
    let to: HashMap<&UserExternalName, &UserExternalName> =
        aliases.iter().map(|(index, to)| (symbol(*index), to)).collect();
    let mut place_of: HashMap<&UserExternalName, FuncId> = HashMap::new();
    for (index, target) in &aliases {
        // Aliases of aliases stand for one address. Every one on the way is looked at only once.
        let mut way = vec![symbol(*index)];
        let mut target = target;
        while let (None, Some(next)) = (place_of.get(target), to.get(target)) {
            way.push(target);
            target = next;
        }
        let place = place_of.get(target).copied();
        let place = place.unwrap_or_else(|| FuncId::from_name(&targets[target]));
        place_of.extend(way.into_iter().map(|alias| (alias, place)));
        let linkage = unit.given[*index].attributes.linkage;
        place_alias(&mut product, ids[*index].expect("declared"), place, linkage);
    }
    let bytes = contain(|| product.object.write()).map_err(unsupported)?;
    Ok(Object { bytes: bytes.context("cannot make the object file")?, code_size })
}

/// The symbol of a function: its name without the percent sign, or `u0:5` as it is.
fn symbol_text(name: &str) -> String {
    name.strip_prefix('%').unwrap_or(name).to_owned()
}

fn module_linkage(linkage: Linkage) -> cranelift_module::Linkage {
    match linkage {
        Linkage::Export => cranelift_module::Linkage::Export,
        Linkage::Hidden => cranelift_module::Linkage::Hidden,
        Linkage::Local => cranelift_module::Linkage::Local,
        Linkage::Preemptible => cranelift_module::Linkage::Preemptible,
    }
}

/// Gives the symbol of `alias` the place of the symbol of `target`, and makes it visible as far as
/// `linkage` says.
fn place_alias(product: &mut ObjectProduct, alias: FuncId, target: FuncId, linkage: Linkage) {
    let [alias, target] = [alias, target].map(|id| product.function_symbol(id));
    let target = product.object.symbol(target);
    let (section, value, size) = (target.section, target.value, target.size);
    let symbol = product.object.symbol_mut(alias);
    (symbol.section, symbol.value, symbol.size) = (section, value, size);
    (symbol.scope, symbol.weak) = match linkage {
        Linkage::Local => (SymbolScope::Compilation, false),
        Linkage::Hidden => (SymbolScope::Linkage, false),
        Linkage::Export => (SymbolScope::Dynamic, false),
        Linkage::Preemptible => (SymbolScope::Dynamic, true),
    };
}

/// What a panic of the object writer means: it knows no better way to refuse a relocation.
fn unsupported(panic: String) -> anyhow::Error {
    anyhow!("the object format cannot express this: {panic}")
}

struct Emitter {
    module: ObjectModule,
    /// What each symbol is to the module.
    names: HashMap<UserExternalName, ModuleRelocTarget>,
    code_size: u64,
}

impl Emitter {
    fn define(
        &mut self,
        id: FuncId,
        alignment: u32,
        bytes: &[u8],
        relocs: &[ModuleReloc],
    ) -> Result<()> {
        self.code_size += bytes.len() as u64;
        let module = &mut self.module;
        let alignment = u64::from(alignment);
        contain(|| {
            let defined = module.define_function_bytes(id, alignment, bytes, relocs);
            defined.map_err(anyhow::Error::new)
        })
        .map_err(unsupported)??;
        Ok(())
    }

    /// A relocation in the terms of the module. `func` is the function that it stands in.
    fn reloc(
        &mut self,
        reloc: &FinalizedMachReloc,
        func: &Function,
        id: FuncId,
        text: &dyn Fn(&UserExternalName) -> String,
    ) -> Result<ModuleReloc> {
        let name = match &reloc.target {
            FinalizedRelocTarget::Func(offset) => ModuleRelocTarget::FunctionOffset(id, *offset),
            FinalizedRelocTarget::ExternalName(name) => match name {
                ExternalName::LibCall(call) => ModuleRelocTarget::LibCall(*call),
                ExternalName::KnownSymbol(symbol) => ModuleRelocTarget::KnownSymbol(*symbol),
                ExternalName::User(name_ref) => {
                    let symbol = &func.params.user_named_funcs()[*name_ref];
                    self.user(symbol, name, func, text)?
                }
                ExternalName::TestCase(_) => unreachable!("units have symbols only"),
            },
        };
        let kind: Reloc = reloc.kind;
        Ok(ModuleReloc { offset: reloc.offset, kind, name, addend: reloc.addend })
    }

    /// What a symbol is to the module. One that the unit does not define is declared as an import:
    /// of a function if it is one for `func`, otherwise of data. The first use decides, which is
    /// right for all: an undefined symbol is but a name.
    fn user(
        &mut self,
        symbol: &UserExternalName,
        name: &ExternalName,
        func: &Function,
        text: &dyn Fn(&UserExternalName) -> String,
    ) -> Result<ModuleRelocTarget> {
        if let Some(target) = self.names.get(symbol) {
            return Ok(target.clone());
        }
        let import = cranelift_module::Linkage::Import;
        let target = match (is_thread_local(func, name), signature_of(func, name)) {
            (false, Some(signature)) => {
                self.module.declare_function(&text(symbol), import, signature)?.into()
            }
            (tls, _) => self.module.declare_data(&text(symbol), import, true, tls)?.into(),
        };
        self.names.insert(symbol.clone(), target);
        Ok(self.names[symbol].clone())
    }
}

fn signature_of<'a>(func: &'a Function, name: &ExternalName) -> Option<&'a Signature> {
    let callee = func.dfg.ext_funcs.values().find(|callee| callee.name == *name)?;
    Some(&func.dfg.signatures[callee.signature])
}

fn is_thread_local(func: &Function, name: &ExternalName) -> bool {
    func.global_values.values().any(|gv| match gv {
        GlobalValueData::Symbol { name: used, offset: _, colocated: _, tls } => {
            *tls && used == name
        }
        _ => false,
    })
}
