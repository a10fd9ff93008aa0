//! The merged unit as a native object file.
//!
//! Functions and data objects of the unit are defined in a [`MergingModule`], as any front end
//! would, under identifiers in the order of their symbols, so that representatives are chosen as in
//! text. For comparison, they can be defined without it. References to what the unit does not
//! define become undefined symbols. A thunk of the text is defined as a jump; an alias of the text,
//! of a function or a data object, gets the place of its target in the end. ELF objects have unwind
//! information; none have debug information.

#![expect(clippy::result_large_err, reason = "the errors are those of cranelift-module")]

use crate::codegen::{Compiler, Refused, refused_body};
use crate::jobs::{Jobs, Tools};
use crate::linked::LinkedFunction;
use crate::stack::WrittenFrames;
use anyhow::{Context as _, Result, anyhow};
use clif_unit::contain::contain;
use clif_unit::data::GivenData;
use clif_unit::extra::extra;
use clif_unit::unit::{Became, Unit};
use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{
    ExternalName, Function, GlobalValueData, Signature, UserExternalName, UserExternalNameRef,
    UserFuncName,
};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::data::{Contents, DataAttributes};
use cranelift_mergefunc::thunk::{OptimizeFor, ThunkReloc};
use cranelift_mergefunc::units::SharingMap;
use cranelift_mergefunc::{Disposition, Linkage, Reason, Stats, Target, cranelift_codegen};
use cranelift_mergefunc_module::{
    BackEnd, CompiledFunction, MergingModule, ModuleOptions, ModuleStats, ObjectFixups,
};
use cranelift_module::{
    DataDescription, DataId, FuncId, Module, ModuleError, ModuleReloc, ModuleRelocTarget,
    ModuleResult, default_libcall_names,
};
use cranelift_object::object::SymbolScope;
use cranelift_object::object::write::SymbolId;
use cranelift_object::{ObjectBuilder, ObjectModule, ObjectProduct};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An object file, and how it came about.
#[derive(Debug)]
pub struct Object {
    /// The file.
    pub bytes: Vec<u8>,
    /// The size of the code of all functions in bytes, without padding.
    pub code_bytes: u64,
    /// The result of merging; `None` if there was none.
    pub merged: Option<Outcome>,
    /// The time from the first definition to the finished object.
    pub time: Time,
}

/// How long something took.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// Wall-clock time.
    pub wall: Duration,
    /// The time that all threads were running, where the system reports it.
    pub cpu: Option<Duration>,
}

/// A beginning.
struct Start {
    wall: Instant,
    cpu: Option<Duration>,
}

impl Start {
    fn now() -> Start {
        Start { wall: Instant::now(), cpu: cpu_time() }
    }

    fn elapsed(&self) -> Time {
        let cpu = cpu_time().zip(self.cpu).map(|(now, start)| now.saturating_sub(start));
        Time { wall: self.wall.elapsed(), cpu }
    }
}

/// The time that the threads of this process have been running so far.
fn cpu_time() -> Option<Duration> {
    let mut sum = Duration::ZERO;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let schedule = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        sum += Duration::from_nanos(schedule.split_whitespace().next()?.parse().ok()?);
    }
    Some(sum)
}

/// The result of merging.
#[derive(Debug)]
pub struct Outcome {
    /// Counts and bytes.
    pub stats: ModuleStats,
    /// Counters of the pass.
    pub pass: Stats,
    /// If they were asked for: functions, then data objects, each in the order of the unit: symbol,
    /// disposition, representative, reason, what the source calls it.
    pub rows: Option<Vec<[String; 5]>>,
    /// If they were asked for: all functions as linkers know them.
    pub functions: Option<Vec<LinkedFunction>>,
    /// With them: what code runs and calls.
    pub frames: Option<Frames>,
}

/// The tables of the frames of code.
#[derive(Debug)]
pub struct Frames {
    /// The table of all frames.
    pub written: WrittenFrames,
    /// How many bytes the part takes that an engine would keep, whose code has line tables of its
    /// own.
    pub compact_bytes: u64,
}

/// The files that are made of a unit, and the messages.
#[derive(Debug, Default)]
pub struct Request {
    /// How functions are merged; `None` if they are not.
    pub options: Option<ModuleOptions>,
    /// Which functions share bodies with other units.
    pub map: Option<Arc<SharingMap<'static>>>,
    /// Whether the object has unwind information.
    pub unwind: bool,
    /// Whether dispositions are listed.
    pub dispositions: bool,
    /// The name of the unit, for the object, if functions are listed as linkers know them.
    pub functions_of: Option<String>,
}

/// Makes an object file of `unit` for `isa`.
///
/// # Errors
///
/// Functions that cannot be compiled, as [`Refused`], and relocations that the object format does
/// not have.
pub fn emit(unit: &Unit, request: Request, isa: &OwnedTargetIsa, jobs: &Jobs) -> Result<Object> {
    let Request { options, map, unwind, dispositions, functions_of } = request;
    let name = functions_of.as_deref().unwrap_or("clif-merge");
    let mut builder = ObjectBuilder::new(isa.clone(), name, default_libcall_names())
        .with_context(|| format!("no object file can be made for {}", isa.triple()))?;
    match options {
        Some(options) => {
            builder.per_function_section(options.content_addressed);
            let options = ModuleOptions {
                back_end: BackEnd::Object,
                // As without merging, the context is cleared next.
                take_ir: true,
                remember: false,
                ..options
            };
            let mut module = match jobs.count() {
                1 => {
                    builder.unwind_info(unwind);
                    MergingModule::with_options(ObjectModule::new(builder), options)
                }
                _ => MergingModule::object_in_parallel(builder, unwind, options),
            };
            if let Some(map) = map {
                module.set_sharing_map(map);
            }
            let lists_functions = functions_of.is_some();
            jobs.run(|| merged(unit, isa, module, dispositions, lists_functions))
        }
        None => {
            builder.unwind_info(unwind);
            // A bare module writes unwind information only for functions that it compiles itself.
            plain(unit, isa, ObjectModule::new(builder), if unwind { &Jobs::ONE } else { jobs })
        }
    }
}

fn merged(
    unit: &Unit,
    isa: &OwnedTargetIsa,
    mut module: MergingModule<ObjectModule>,
    lists_dispositions: bool,
    lists_functions: bool,
) -> Result<Object> {
    let optimize = module.options().similar.policy.optimize_for();
    let prepared = Prepared::new(unit, isa, &mut module, optimize)?;
    for (given, &id) in unit.given.iter().zip(&prepared.functions) {
        *module.attributes(id) = given.attributes;
    }
    let data = unit.data.iter().zip(&prepared.data);
    for (given, &id) in data.filter(|(given, _)| given.alias.is_none()) {
        let attributes = module.data_attributes(id);
        attributes.addresses = given.attributes.addresses;
        attributes.pinned = given.attributes.pinned;
        attributes.key = given.attributes.key;
        attributes.externally_used = given.attributes.externally_used;
    }
    let Prepared { ids, functions, data, definitions } = prepared;
    let start = Start::now();
    define(unit, &mut module, definitions, false)?;
    let flushed = contain(|| module.flush()).map_err(|panic| of_panic(unit, isa, panic))?;
    flushed.map_err(|error| {
        let failed = module.failed();
        let at = functions.iter().position(|&id| Some(id) == failed);
        if at.is_some() || failed.is_none() {
            return of_function(at, error);
        }
        let is_member = |&function: &usize| {
            let outcome = module.outcome(functions[function]);
            outcome.is_some_and(|(disposition, _)| disposition.representative() == failed)
        };
        let members = (0..functions.len()).filter(is_member).collect();
        refused_body(unit, &**isa, members, error.to_string())
    })?;
    let rows = lists_dispositions.then(|| rows(unit, &module, &ids, &functions, &data));
    let (stats, pass) = (*module.stats(), *module.pass_stats());
    check_aliases(unit, &module, &ids)?;
    let names: HashMap<FuncId, String> = match lists_functions {
        true => module
            .declarations()
            .get_functions()
            .map(|(id, _)| (id, module.symbol_name(id)))
            .collect(),
        false => HashMap::new(),
    };
    let finished = contain(|| match lists_functions {
        true => module.finish_with_map().map(|(product, map)| (product, Some(map))),
        false => module.finish().map(|product| (product, None)),
    });
    let finished = finished.map_err(unsupported)?;
    let (mut product, map) = finished.context("cannot make the object file")?;
    let functions = map.as_ref().map(LinkedFunction::all);
    let frames = map.as_ref().map(|map| {
        let name = |symbol: &UserExternalName| names[&FuncId::from_u32(symbol.index)].clone();
        let compact_bytes = map.frame_table().table.bytes().len() as u64;
        Frames { written: WrittenFrames::new(&map.full_frame_table(), name), compact_bytes }
    });
    place_aliases(unit, &mut product, &ids);
    let bytes = contain(|| product.object.write()).map_err(unsupported)?;
    let bytes = bytes.context("cannot make the object file")?;
    let (code_bytes, time) = (stats.code_bytes, start.elapsed());
    let merged = Some(Outcome { stats, pass, rows, functions, frames });
    Ok(Object { bytes, code_bytes, merged, time })
}

fn plain(
    unit: &Unit,
    isa: &OwnedTargetIsa,
    mut module: ObjectModule,
    jobs: &Jobs,
) -> Result<Object> {
    let prepared = Prepared::new(unit, isa, &mut module, OptimizeFor::Speed)?;
    let Prepared { ids, functions, definitions, .. } = prepared;
    let start = Start::now();
    match jobs.count() {
        1 => define(unit, &mut module, definitions, true)?,
        _ => define_compiled(unit, &mut module, definitions, jobs)?,
    }
    let mut product = contain(|| module.finish()).map_err(unsupported)?;
    let size = |&id: &FuncId| product.object.symbol(product.function_symbol(id)).size;
    let code_bytes = functions.iter().map(size).sum();
    place_aliases(unit, &mut product, &ids);
    let bytes = contain(|| product.object.write()).map_err(unsupported)?;
    let bytes = bytes.context("cannot make the object file")?;
    Ok(Object { bytes, code_bytes, merged: None, time: start.elapsed() })
}

/// The disposition of everything, under the names of the text.
fn rows(
    unit: &Unit,
    module: &MergingModule<ObjectModule>,
    ids: &Ids,
    functions: &[FuncId],
    data: &[DataId],
) -> Vec<[String; 5]> {
    let row = |symbol: &UserExternalName, disposition: Disposition<String>, reason: Reason| {
        let (name, word) = (unit.names.display(symbol), disposition.name().to_owned());
        let representative = disposition.representative().unwrap_or("-".to_owned());
        let source = unit.names.of_source(symbol).unwrap_or_default();
        [name, word, representative, reason.to_string(), source]
    };
    let names: HashMap<FuncId, String> = functions
        .iter()
        .zip(&unit.given)
        .map(|(&id, given)| (id, unit.names.display(&given.symbol)))
        .collect();
    let name = |id: FuncId| {
        // A body that several functions share has no name in the text.
        names.get(&id).cloned().unwrap_or_else(|| module.symbol_name(id))
    };
    let mut rows = Vec::new();
    for (given, &id) in unit.given.iter().zip(functions) {
        let said = given.became.as_ref().map(|(kind, target)| {
            let to = FuncId::from_name(&ids[target]);
            let disposition = match kind {
                Became::Thunk => Disposition::Thunk { to },
                Became::Alias => Disposition::Alias { to },
            };
            (disposition, Reason::NoMerge)
        });
        if let Some((disposition, reason)) = module.outcome(id).or(said) {
            rows.push(row(&given.symbol, disposition.map(name), reason));
        }
    }
    let names: HashMap<DataId, String> = data
        .iter()
        .zip(&unit.data)
        .map(|(&id, given)| (id, unit.names.display(&given.symbol)))
        .collect();
    for (given, &id) in unit.data.iter().zip(data) {
        if let Some(target) = &given.alias {
            let disposition = Disposition::Alias { to: unit.names.display(target) };
            rows.push(row(&given.symbol, disposition, Reason::NoMerge));
        } else {
            let outcome = module.data_outcome(id);
            // The plan has no entry for a data object that cannot merge.
            let (disposition, reason) =
                outcome.unwrap_or((Disposition::Keep, reason_to_keep(&given.attributes)));
            let disposition = disposition.map(|to| names[&to].clone());
            rows.push(row(&given.symbol, disposition, reason));
        }
    }
    rows
}

/// Why a data object with these attributes cannot merge.
fn reason_to_keep(attributes: &DataAttributes) -> Reason {
    let DataAttributes { linkage, writable, tls, .. } = *attributes;
    match (tls, writable, linkage) {
        (true, ..) => Reason::ThreadLocal,
        (_, true, _) => Reason::Writable,
        (.., Linkage::Preemptible) => Reason::Preemptible,
        (.., Linkage::Export | Linkage::Hidden | Linkage::Local) => Reason::AddressSignificant,
    }
}

/// The error for a panic while functions were emitted. The function that caused it is not known, so
/// all of them are compiled once more, one by one.
fn of_panic(unit: &Unit, isa: &OwnedTargetIsa, panic: String) -> anyhow::Error {
    let mut compiler = Compiler::new(&**isa);
    for (index, (func, given)) in unit.functions.iter().zip(&unit.given).enumerate() {
        if given.became.is_none()
            && let Err(refused) = compiler.compile_of(index, func.clone())
        {
            return refused.into();
        }
    }
    unsupported(panic)
}

/// The error for a panic of the object writer, which refuses relocations by panicking.
fn unsupported(panic: String) -> anyhow::Error {
    anyhow!("the object format cannot express this: {panic}")
}

/// The symbol of a name: without the percent sign, or `u0:5` as it is.
fn symbol_text(unit: &Unit, symbol: &UserExternalName) -> String {
    let name = unit.names.display(symbol);
    name.strip_prefix('%').map_or(name.clone(), str::to_owned)
}

/// A unit in the terms of a module: everything is declared, nothing is defined.
struct Prepared {
    ids: Ids,
    /// By the order of the unit.
    functions: Vec<FuncId>,
    data: Vec<DataId>,
    definitions: Vec<Definition>,
}

/// A call of the module.
enum Definition {
    Body { index: usize, id: FuncId, func: Box<Function> },
    Bytes { id: FuncId, alignment: u64, bytes: Vec<u8>, relocs: Vec<ModuleReloc> },
    Data { id: DataId, description: DataDescription },
}

impl Prepared {
    /// The thunks of the text are optimised as those of the pass.
    fn new(
        unit: &Unit,
        isa: &OwnedTargetIsa,
        module: &mut dyn Module,
        optimize: OptimizeFor,
    ) -> Result<Prepared> {
        let mut ids = HashMap::new();
        let functions = declare_functions(unit, module, &mut ids)?;
        let data = declare_data(unit, module, &mut ids)?;
        let mut definitions = Vec::new();
        for (index, (func, given)) in unit.functions.iter().zip(&unit.given).enumerate() {
            let id = functions[index];
            let alignment = u64::from(given.attributes.alignment);
            match &given.became {
                None => {
                    let mut func = func.clone();
                    func.name = UserFuncName::User(UserExternalName::new(0, id.as_u32()));
                    rename(unit, module, &mut ids, &mut func)?;
                    definitions.push(Definition::Body { index, id, func: Box::new(func) });
                }
                Some((Became::Thunk, target)) => {
                    let mut renamed = func.clone();
                    renamed.name = UserFuncName::User(UserExternalName::new(0, id.as_u32()));
                    rename(unit, module, &mut ids, &mut renamed)?;
                    let (signature, extra) = (&func.signature, extra(func));
                    let code = Target::of(&**isa).thunk_code(signature, &extra, target, optimize);
                    let Some(code) = code else {
                        // Then it is the function that it is written as.
                        let func = Box::new(renamed);
                        definitions.push(Definition::Body { index, id, func });
                        continue;
                    };
                    let relocs = code.relocations.into_iter().map(|relocation| {
                        let ThunkReloc { offset, kind, symbol, addend } = relocation;
                        ModuleReloc { offset, kind, name: ids[&symbol].clone(), addend }
                    });
                    let relocs = relocs.collect();
                    let alignment = alignment.max(u64::from(isa.function_alignment().minimum));
                    let bytes = code.bytes;
                    definitions.push(Definition::Bytes { id, alignment, bytes, relocs });
                }
                // It gets its place in the end.
                Some((Became::Alias, _)) => {}
            }
        }
        let objects = unit.data.iter().zip(&data).filter(|(given, _)| given.alias.is_none());
        for (given, &id) in objects {
            let description = description(unit, module, &mut ids, given)?;
            definitions.push(Definition::Data { id, description });
        }
        Ok(Prepared { ids, functions, data, definitions })
    }
}

fn module_linkage(linkage: Linkage) -> cranelift_module::Linkage {
    match linkage {
        Linkage::Export => cranelift_module::Linkage::Export,
        Linkage::Hidden => cranelift_module::Linkage::Hidden,
        Linkage::Local => cranelift_module::Linkage::Local,
        Linkage::Preemptible => cranelift_module::Linkage::Preemptible,
    }
}

/// Indices in the order of symbols.
fn in_order<'a>(symbols: impl Iterator<Item = &'a UserExternalName>) -> Vec<usize> {
    let mut symbols: Vec<(usize, &UserExternalName)> = symbols.enumerate().collect();
    symbols.sort_by_key(|(_, symbol)| (symbol.namespace, symbol.index));
    symbols.into_iter().map(|(index, _)| index).collect()
}

type Ids = HashMap<UserExternalName, ModuleRelocTarget>;

fn declare_functions(unit: &Unit, module: &mut dyn Module, ids: &mut Ids) -> Result<Vec<FuncId>> {
    let mut functions = vec![FuncId::new(0); unit.functions.len()];
    for index in in_order(unit.given.iter().map(|given| &given.symbol)) {
        let given = &unit.given[index];
        let linkage = match given.became {
            // It is not defined in the sense of the module, so it must not be declared so.
            Some((Became::Alias, _)) => cranelift_module::Linkage::Import,
            Some((Became::Thunk, _)) | None => module_linkage(given.attributes.linkage),
        };
        let name = symbol_text(unit, &given.symbol);
        let id = module.declare_function(&name, linkage, &unit.functions[index].signature)?;
        ids.insert(given.symbol.clone(), id.into());
        functions[index] = id;
    }
    Ok(functions)
}

fn declare_data(unit: &Unit, module: &mut dyn Module, ids: &mut Ids) -> Result<Vec<DataId>> {
    let mut data = vec![DataId::new(0); unit.data.len()];
    for index in in_order(unit.data.iter().map(|given| &given.symbol)) {
        let given = &unit.data[index];
        let attributes = &given.attributes;
        let linkage = match given.alias {
            // As for functions.
            Some(_) => cranelift_module::Linkage::Import,
            None => module_linkage(attributes.linkage),
        };
        let name = symbol_text(unit, &given.symbol);
        let id = module.declare_data(&name, linkage, attributes.writable, attributes.tls)?;
        ids.insert(given.symbol.clone(), id.into());
        data[index] = id;
    }
    Ok(data)
}

/// Names everything that `func` refers to as the module does. A symbol that the unit does not
/// define is declared as an import: of a function if it is one for `func`, otherwise of data. The
/// first use decides, which is right for all: an undefined symbol is but a name.
fn rename(unit: &Unit, module: &mut dyn Module, ids: &mut Ids, func: &mut Function) -> Result<()> {
    for index in 0..func.params.user_named_funcs().len() {
        let name_ref = UserExternalNameRef::new(index);
        let symbol = func.params.user_named_funcs()[name_ref].clone();
        let target = match ids.get(&symbol) {
            Some(target) => target.clone(),
            None => {
                let name = ExternalName::User(name_ref);
                let import = cranelift_module::Linkage::Import;
                let text = symbol_text(unit, &symbol);
                let target: ModuleRelocTarget =
                    match (is_thread_local(func, &name), signature_of(func, &name)) {
                        (false, Some(signature)) => {
                            module.declare_function(&text, import, signature)?.into()
                        }
                        (tls, _) => module.declare_data(&text, import, true, tls)?.into(),
                    };
                ids.insert(symbol, target.clone());
                target
            }
        };
        if let ModuleRelocTarget::User { namespace, index } = target {
            let symbol = UserExternalName::new(namespace, index);
            func.params.reset_user_func_name(name_ref, symbol);
        }
    }
    Ok(())
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

/// A data object as the module wants it.
fn description(
    unit: &Unit,
    module: &mut dyn Module,
    ids: &mut Ids,
    given: &GivenData,
) -> Result<DataDescription> {
    let mut description = DataDescription::new();
    match &given.object.contents {
        Contents::Zeros(size) => description.define_zeroinit(usize::try_from(*size)?),
        Contents::Bytes(bytes) => description.define(bytes.clone().into()),
    }
    if let Some(section) = &given.object.section {
        description.set_custom_section(section);
    }
    description.set_align(given.attributes.alignment);
    description.set_used(given.used);
    for reloc in &given.object.relocations {
        let target = match ids.get(&reloc.target) {
            Some(target) => target.clone(),
            None => {
                let import = cranelift_module::Linkage::Import;
                let text = symbol_text(unit, &reloc.target);
                let target: ModuleRelocTarget =
                    module.declare_data(&text, import, true, false)?.into();
                ids.insert(reloc.target.clone(), target.clone());
                target
            }
        };
        // As data in any case: a pointer to a function with an addend is one, too.
        let gv = description.import_global_value(target);
        description.write_data_addr(reloc.offset, gv, reloc.addend);
    }
    Ok(description)
}

/// Defines everything. With `aligned`, functions are put where they must be; a module that merges
/// does so itself.
fn define(
    unit: &Unit,
    module: &mut dyn Module,
    definitions: Vec<Definition>,
    aligned: bool,
) -> Result<()> {
    let mut context = module.make_context();
    for definition in definitions {
        match definition {
            Definition::Body { index, id, func } => {
                context.func = *func;
                let alignment = unit.given[index].attributes.alignment;
                let defined = contain(|| match aligned && alignment > 1 {
                    true => define_aligned(module, id, alignment, &mut context),
                    false => module.define_function(id, &mut context),
                });
                let defined = defined.map_err(|panic| {
                    let error = ModuleError::Backend(anyhow!("Cranelift panicked: {panic}"));
                    of_function(Some(index), error)
                })?;
                defined.map_err(|error| of_function(Some(index), error))?;
                module.clear_context(&mut context);
            }
            Definition::Bytes { id, alignment, bytes, relocs } => {
                module.define_function_bytes(id, alignment, &bytes, &relocs)?;
            }
            Definition::Data { id, description } => {
                contain(|| module.define_data(id, &description)).map_err(unsupported)??;
            }
        }
    }
    Ok(())
}

/// Defines everything where it must be, functions without unwind information and compiled by
/// several threads.
fn define_compiled(
    unit: &Unit,
    module: &mut ObjectModule,
    definitions: Vec<Definition>,
    jobs: &Jobs,
) -> Result<()> {
    let contexts = Tools::new(&Context::new);
    let mut definitions = definitions.into_iter();
    loop {
        let chunk: Vec<Definition> = definitions.by_ref().take(CHUNK * jobs.count()).collect();
        if chunk.is_empty() {
            return Ok(());
        }
        let isa = module.isa();
        let weight = |definition: &Definition| match definition {
            Definition::Body { index: _, id: _, func } => func.dfg.num_insts(),
            Definition::Bytes { .. } | Definition::Data { .. } => 0,
        };
        let compiled = jobs.map(chunk, weight, &contexts, |context, definition| {
            let Definition::Body { index, id, func } = definition else {
                return Ok(definition);
            };
            context.clear();
            context.func = *func;
            let plane = &mut ControlPlane::default();
            let compiled = contain(|| CompiledFunction::compile(context, id, isa, plane));
            let compiled = compiled.map_err(|panic| {
                // It can leave anything behind.
                *context = Context::new();
                ModuleError::Backend(anyhow!("Cranelift panicked: {panic}"))
            });
            let compiled = compiled
                .and_then(|compiled| compiled.map_err(ModuleError::Compilation))
                .map_err(|error| of_function(Some(index), error))?;
            let minimum = isa.function_alignment().minimum;
            let alignment = match unit.given[index].attributes.alignment {
                1 => compiled.alignment,
                wanted => compiled.alignment.max(wanted.max(minimum).into()),
            };
            let (bytes, relocs) = (compiled.code.code_buffer().to_vec(), compiled.relocations);
            Ok(Definition::Bytes { id, alignment, bytes, relocs })
        });
        let compiled: Vec<Definition> = compiled.into_iter().collect::<Result<_>>()?;
        define(unit, module, compiled, true)?;
    }
}

/// How many functions are compiled at a time, for each thread.
const CHUNK: usize = 256;

/// Defines a function at an aligned place, which a module does only for bytes. They are without
/// unwind information.
fn define_aligned(
    module: &mut dyn Module,
    id: FuncId,
    alignment: u32,
    context: &mut Context,
) -> ModuleResult<()> {
    let isa = module.isa();
    let minimum = isa.function_alignment().minimum;
    context.compile(isa, &mut Default::default()).map_err(|error| error.inner)?;
    let code = context.compiled_code().expect("compiled");
    let relocs = code.buffer.relocs().iter();
    let relocs: Vec<ModuleReloc> =
        relocs.map(|reloc| ModuleReloc::from_mach_reloc(reloc, &context.func, id)).collect();
    let alignment = u64::from(alignment.max(code.buffer.alignment).max(minimum));
    module.define_function_bytes(id, alignment, code.code_buffer(), &relocs)
}

/// The error of the module, with the function if it is about one.
fn of_function(index: Option<usize>, error: ModuleError) -> anyhow::Error {
    let error = match error {
        ModuleError::Compilation(error) => error.to_string(),
        ModuleError::Backend(error) => error.to_string(),
        error => error.to_string(),
    };
    match index {
        None => anyhow!(error),
        Some(function) => Refused { function, error }.into(),
    }
}

/// Gives every symbol that the text calls an alias the place of its target.
fn place_aliases(unit: &Unit, product: &mut ObjectProduct, ids: &Ids) {
    let functions = unit.given.iter().filter_map(|given| match &given.became {
        Some((Became::Alias, target)) => Some((&given.symbol, target, given.attributes.linkage)),
        Some((Became::Thunk, _)) | None => None,
    });
    let data = unit.data.iter().filter_map(|given| {
        given.alias.as_ref().map(|target| (&given.symbol, target, given.attributes.linkage))
    });
    let aliases: Vec<_> = functions.chain(data).collect();
    let to: HashMap<&UserExternalName, &UserExternalName> =
        aliases.iter().map(|&(alias, target, _)| (alias, target)).collect();
    let mut place_of: HashMap<&UserExternalName, SymbolId> = HashMap::new();
    for &(alias, _, linkage) in &aliases {
        // A chain of aliases has one address. Every alias on the way is visited only once.
        let mut way = Vec::new();
        let mut target = alias;
        while let (None, Some(next)) = (place_of.get(target), to.get(target)) {
            way.push(target);
            target = next;
        }
        let place = place_of.get(target).copied();
        let place = place.unwrap_or_else(|| symbol_id(product, &ids[target]));
        place_of.extend(way.into_iter().map(|alias| (alias, place)));
        let alias = symbol_id(product, &ids[alias]);
        place_alias(product, alias, place, linkage);
    }
}

/// Refuses an alias of the text whose target was merged away: it would get an address where there
/// is no code.
fn check_aliases(unit: &Unit, module: &MergingModule<ObjectModule>, ids: &Ids) -> Result<()> {
    let functions = unit.given.iter().filter_map(|given| match &given.became {
        Some((Became::Alias, target)) => Some((&given.symbol, target)),
        Some((Became::Thunk, _)) | None => None,
    });
    let data = unit.data.iter();
    let data = data.filter_map(|given| Some((&given.symbol, given.alias.as_ref()?)));
    for (alias, target) in functions.chain(data) {
        if let Some(why) = module.without_code(&ids[target]) {
            let alias = unit.names.display(alias);
            return Err(anyhow!("{alias} is an alias of {why}: a bug of this program"));
        }
    }
    Ok(())
}

/// The symbol of a function or data object.
fn symbol_id(product: &mut ObjectProduct, id: &ModuleRelocTarget) -> SymbolId {
    match cranelift_module::ModuleDeclarations::is_function(id) {
        true => product.function_symbol(FuncId::from_name(id)),
        false => product.data_symbol(DataId::from_name(id)),
    }
}

/// Gives the symbol `alias` the place of the symbol `target`, and makes it visible as far as
/// `linkage` says.
fn place_alias(product: &mut ObjectProduct, alias: SymbolId, target: SymbolId, linkage: Linkage) {
    ObjectFixups::place_symbol(product, alias, target);
    let symbol = product.object.symbol_mut(alias);
    (symbol.scope, symbol.weak) = match linkage {
        Linkage::Local => (SymbolScope::Compilation, false),
        Linkage::Hidden => (SymbolScope::Linkage, false),
        Linkage::Export => (SymbolScope::Dynamic, false),
        Linkage::Preemptible => (SymbolScope::Dynamic, true),
    };
}
