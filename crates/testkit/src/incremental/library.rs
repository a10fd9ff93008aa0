//! The library without `Module`: each flush is a unit, planned after those before it, and carried
//! out as by an embedder with a table of names. The code that it emits is put into a JIT under
//! names of its own.
//!
//! The embedder knows the later units, and sets attributes accordingly: a function whose address
//! another unit takes has `address_taken`, and one that an earlier unit names has
//! `externally_called`. Everything else a later unit must handle without such attributes: every
//! symbol that it can still refer to must be defined.

use super::define::{
    DATA, Definer, FUNCTION, data_attributes, define_aligned, function_attributes, functions,
};
use super::jit::{Merged, run};
use super::program::{Address, Callee, Data, Part, Program, Statement};
use super::statistics::{ALIGNED, Statistics, word};
use super::{Finding, jit_isa};
use crate::aligned;
use crate::jit;
use crate::modules::Item;
use crate::program::{
    ADDED, DataDefinition, DataMember, Definition, Entry, Jump, Parts, Program as Emitted,
    Streamed, Streaming, WRAPPERS,
};
use crate::unit::Member;
use cranelift_codegen::ir::{ExternalName, Function, Signature, UserExternalName, UserFuncName};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::{Context, FinalizedRelocTarget};
use cranelift_entity::EntityRef;
use cranelift_jit::JITModule;
use cranelift_mergefunc::data::{Contents, DataIndex, DataObject, DataReloc};
use cranelift_mergefunc::incremental::MergeCache;
use cranelift_mergefunc::thunk::{CallThunks, ThunkReloc, call_thunk};
use cranelift_mergefunc::{
    Bodies, Compare, Disposition, FunctionIndex, Merger, Options, Plan, Target,
};
use cranelift_module::{
    DataDescription, DataId, FuncId, Linkage, Module, ModuleReloc, ModuleRelocTarget,
};
use std::collections::{BTreeMap, HashMap};

/// Plans and emits the program unit by unit, runs it and the plain one whenever they are ready, and
/// compares.
///
/// # Errors
///
/// The difference.
///
/// # Panics
///
/// If the program is wrong, or the pass panics.
pub fn check(program: &Program, statistics: &mut Statistics) -> Result<(), Finding> {
    check_by(program, None, statistics)
}

/// Checks functions that arrive one at a time, in the order of the flushes. Their IR is not kept,
/// or only up to a bound: all are emitted after the last flush.
///
/// # Errors
///
/// The difference.
///
/// # Panics
///
/// If the program is wrong, or the pass panics.
pub fn check_streaming(program: &Program, statistics: &mut Statistics) -> Result<(), Finding> {
    check_by(program, Some(Streaming::any(program.calls.len())), statistics)
}

fn check_by(
    program: &Program,
    streams: Option<Streaming>,
    statistics: &mut Statistics,
) -> Result<(), Finding> {
    let bodies = functions(program);
    let isa = jit_isa(program.speed);
    let module = || jit::module(isa.clone(), |_| {});
    let mut plain = Definer::plain(module(), program, &bodies, "");
    let mut embedder = Embedder {
        module: module(),
        isa: &isa,
        program,
        bodies: &bodies,
        emitted: MergeCache::new(),
        functions: Names(BTreeMap::new()),
        data: Names(BTreeMap::new()),
        defined: Vec::new(),
        units: Vec::new(),
        added: 0,
        streams,
        statistics,
    };
    embedder.statistics.add_program(program);
    let result = run(program, &mut plain, &mut embedder);
    jit::free(plain.module);
    jit::free(embedder.module);
    result
}

/// Code and data, and what their names mean.
struct Embedder<'a> {
    module: JITModule,
    isa: &'a OwnedTargetIsa,
    program: &'a Program,
    bodies: &'a [Function],
    emitted: MergeCache,
    /// The definitions of the symbols of functions and data objects. The symbol of a redirected
    /// function is not defined if it means more than the function that replaced it.
    functions: Names<FuncId>,
    data: Names<DataId>,
    /// The symbols that have code or data of their own.
    defined: Vec<UserExternalName>,
    /// The units that were planned.
    units: Vec<usize>,
    added: u32,
    /// How many bytes of IR are held, if functions arrive one at a time.
    streams: Option<Streaming>,
    statistics: &'a mut Statistics,
}

/// Definitions of symbols, in the order of the symbols.
struct Names<T>(BTreeMap<(u32, u32), T>);

impl<T: Copy> Names<T> {
    fn get(&self, symbol: &UserExternalName) -> Option<T> {
        self.0.get(&(symbol.namespace, symbol.index)).copied()
    }

    fn insert(&mut self, symbol: &UserExternalName, value: T) {
        self.0.insert((symbol.namespace, symbol.index), value);
    }
}

fn symbol(part: Part) -> UserExternalName {
    match part {
        Part::Function(function) => UserExternalName::new(FUNCTION, function as u32),
        Part::Data(data) => UserExternalName::new(DATA, data as u32),
    }
}

/// The functions whose addresses a part takes.
fn takes(program: &Program, part: Part) -> Vec<usize> {
    let mut taken = Vec::new();
    match part {
        Part::Data(data) => {
            for item in &program.data[data].items {
                match item {
                    Item::Function(function) => taken.push(*function),
                    Item::Number(_) | Item::Data { .. } => {}
                }
            }
        }
        Part::Function(function) => {
            let code = |address: &Address| match address {
                Address::Code(function) => Some(*function),
                Address::Slot(_) | Address::Data(_) => None,
            };
            for statement in &program.functions[function].statements {
                match statement {
                    Statement::Call {
                        call: Callee::Indirect(function) | Callee::Symbol(function),
                        ..
                    } => taken.push(*function),
                    Statement::Compare(addresses) => {
                        taken.extend(addresses.iter().filter_map(code))
                    }
                    Statement::Misaligned(address) => taken.extend(code(address)),
                    _ => {}
                }
            }
        }
    }
    taken
}

impl Merged for Embedder<'_> {
    /// Plans a unit and emits it.
    fn define(&mut self, flush: usize) -> Result<(), Finding> {
        let program = self.program;
        if let Some(streaming) = self.streams {
            return match flush + 1 == program.flushes.len() {
                true => self.stream(streaming),
                false => Ok(()),
            };
        }
        let options = Options {
            target: Target::of(&**self.isa),
            aliases: program.options.aliases,
            similar: program.options.similar,
            // Without colocated calls, compiled code does not depend on the option, and functions
            // that differ in unused entities merge, too.
            compare: Compare { every_function: !program.colocated, ..Compare::default() },
            ..Options::default()
        };
        let others = || {
            let others = program.flushes.iter().enumerate().filter(|(other, _)| *other != flush);
            others.flat_map(|(other, flush)| flush.defined.iter().map(move |part| (other, *part)))
        };
        let (mut functions, mut data) = (Vec::new(), Vec::new());
        for &part in &program.flushes[flush].defined {
            let named_before =
                others().any(|(other, of)| other < flush && program.references(of).contains(&part));
            match part {
                Part::Function(function) => {
                    let mut attributes = function_attributes(program, function);
                    attributes.address_taken |=
                        others().any(|(_, of)| takes(program, of).contains(&function));
                    attributes.externally_called |= named_before;
                    functions.push(Member { attributes, body: self.bodies[function].clone() });
                }
                Part::Data(number) => {
                    let mut attributes = data_attributes(program, number);
                    attributes.externally_used |= named_before;
                    let (symbol, object) = (symbol(part), object(&program.data[number]));
                    data.push(DataMember { symbol, attributes, object });
                }
            }
        }
        let unit = Parts { functions: &functions, data: &data, options: &options };
        let mut merger = Merger::after(&self.emitted, options);
        for Member { attributes, body } in unit.functions {
            let symbol = body.name.get_user().expect("named by number").clone();
            merger.add(symbol, body, *attributes).expect("is added");
        }
        for DataMember { symbol, attributes, object } in unit.data {
            merger.add_data(symbol.clone(), object, *attributes).expect("is added");
        }
        let added = &mut self.added;
        let (plan, increment) = merger.plan_increment(&mut Held { unit, added });
        self.units.push(flush);
        self.emit(&unit, &plan, Emitted::merged(&unit, &plan), &|_, planned| planned)?;
        self.emitted.extend(&increment);
        Ok(())
    }

    fn finalize(&mut self, flush: usize) -> Result<(), Finding> {
        self.check_references(flush)?;
        self.module.finalize_definitions().expect("memory can be protected");
        Ok(())
    }

    fn place(&self, part: Part) -> Option<*const u8> {
        let symbol = symbol(part);
        match part {
            Part::Function(_) => {
                let id = self.functions.get(&symbol)?;
                Some(self.module.get_finalized_function(id))
            }
            Part::Data(_) => Some(self.module.get_finalized_data(self.data.get(&symbol)?).0),
        }
    }
}

impl Embedder<'_> {
    fn count(&mut self, unit: &Parts<'_>, plan: &Plan) {
        for (_, entry) in plan.entries().take(plan.added()) {
            let disposition = entry.disposition();
            let later = disposition.representative().is_some_and(|to| plan.is_cached(to));
            let is_thunk = matches!(disposition, Disposition::Thunk { .. });
            let passes = !entry.extra_arguments().is_empty();
            self.statistics.add(word(disposition.name()), 1);
            self.statistics.add("merged into an earlier flush", usize::from(later));
            self.statistics.add("thunks to an earlier flush", usize::from(later && is_thunk));
            self.statistics.add("merged with extra arguments", usize::from(passes));
        }
        let bodies = plan.new_bodies().len();
        self.statistics.add("parameterised or private bodies", bodies);
        self.statistics.add(ALIGNED, aligned::bodies(unit, plan).len());
    }

    /// Plans all flushes as one unit whose functions arrive one at a time, and emits it.
    fn stream(&mut self, streaming: Streaming) -> Result<(), Finding> {
        let program = self.program;
        let options = Options {
            target: Target::of(&**self.isa),
            aliases: program.options.aliases,
            similar: program.options.similar,
            ..Options::default()
        };
        let (mut functions, mut data) = (Vec::new(), Vec::new());
        for &part in program.flushes.iter().flat_map(|flush| &flush.defined) {
            match part {
                Part::Function(function) => {
                    let attributes = function_attributes(program, function);
                    functions.push(Member { attributes, body: self.bodies[function].clone() });
                }
                Part::Data(number) => {
                    let (symbol, object) = (symbol(part), object(&program.data[number]));
                    let attributes = data_attributes(program, number);
                    data.push(DataMember { symbol, attributes, object });
                }
            }
        }
        let unit = Parts { functions: &functions, data: &data, options: &options };
        let (emitted, Streamed { plan, code_of, held, streaming: _ }) =
            Emitted::streamed(&unit, streaming);
        self.units.extend(0..program.flushes.len());
        // Code that was compiled at once has the alignment of the function for which it was
        // compiled.
        let compiled = code_of.iter().zip(&functions).filter(|(code, _)| !held[code.index()]);
        let aligned = compiled
            .map(|(code, member)| (member.symbol(), functions[code.index()].attributes.alignment));
        let aligned: HashMap<_, _> = aligned.collect();
        self.emit(&unit, &plan, emitted, &|own, planned| {
            aligned.get(own).copied().unwrap_or(planned)
        })
    }

    /// Emits a unit. `alignment_of` a body is by its symbol, and by what the plan says.
    fn emit(
        &mut self,
        unit: &Parts<'_>,
        plan: &Plan,
        mut emitted: Emitted,
        alignment_of: &dyn Fn(&UserExternalName, u32) -> u32,
    ) -> Result<(), Finding> {
        self.count(unit, plan);
        // Wrappers are for callers from outside that know no extra arguments. Here there are none.
        emitted.functions.retain(|(symbol, _)| symbol.namespace != WRAPPERS);
        // Names first: definitions that replace another one, and only then the functions that refer
        // to them.
        for (symbol, definition) in &emitted.functions {
            match definition {
                Definition::Body(func) => _ = self.function(symbol, &func.signature),
                Definition::Jump(jump) => _ = self.function(symbol, &jump.call.signature),
                Definition::Alias(_) => {}
            }
        }
        let mut thunks = Vec::new();
        for (at, Entry { function: own, symbol: to, signature }) in
            emitted.entries.iter().enumerate()
        {
            let to = match emitted.definition(own) {
                Some(Definition::Body(_) | Definition::Jump(_)) => continue,
                Some(Definition::Alias(to)) => to,
                None => to,
            };
            let is_used = self.functions.get(own).is_some();
            if to.namespace == WRAPPERS {
                if is_used {
                    return Err(Finding::new(format!("{own} has a user and is redirected")));
                }
            } else if is_used {
                // Emitted code uses its symbol, which the module cannot move.
                let call_thunks = CallThunks { tail_calls: true, colocated: true };
                let name = unit.functions[at].body.name.clone();
                let call = Box::new(call_thunk(name, signature, &[], to, &call_thunks));
                let (to, optimize) = (to.clone(), plan.optimize_for());
                let jump = Jump { to, arguments: Vec::new(), optimize, call };
                thunks.push((own.clone(), jump));
            } else {
                let to = self.functions.get(to).ok_or_else(|| {
                    Finding::new(format!("{own} is merged into an undefined function"))
                })?;
                self.functions.insert(own, to);
            }
        }
        match self.streams {
            Some(_) => {
                for (own, definition) in core::mem::take(&mut emitted.data) {
                    let DataDefinition::Object(object, alignment) = definition else {
                        unreachable!("data objects that arrive are not merged")
                    };
                    self.define_data(&own, &object, alignment)?;
                }
            }
            None => {
                for (index, member) in unit.data.iter().enumerate() {
                    self.emit_data(plan, DataIndex::new(index), member)?;
                }
            }
        }
        let alignments: Vec<_> =
            plan.entries().map(|(_, entry)| (entry.symbol(), entry.alignment())).collect();
        // Of functions that were not added, the plan says nothing.
        let own_alignment = |symbol: &UserExternalName| {
            let member = unit.functions.iter().find(|member| member.symbol() == *symbol);
            member.expect("of the unit").attributes.alignment
        };
        let thunks = thunks.into_iter().map(|(own, jump)| (own, Definition::Jump(jump)));
        for (symbol, definition) in emitted.functions.into_iter().chain(thunks) {
            let planned = alignments.iter().find(|(own, _)| **own == symbol);
            let alignment = planned.map_or_else(|| own_alignment(&symbol), |&(_, planned)| planned);
            match definition {
                Definition::Body(func) => {
                    let alignment = alignment_of(&symbol, alignment);
                    self.define_function(&symbol, *func, alignment)?;
                }
                Definition::Jump(jump) => self.thunk(&symbol, jump, alignment)?,
                Definition::Alias(_) => {}
            }
        }
        Ok(())
    }

    /// The definition of a function's symbol, now or later.
    fn function(&mut self, symbol: &UserExternalName, signature: &Signature) -> FuncId {
        if let Some(known) = self.functions.get(symbol) {
            return known;
        }
        let name = format!("f{}_{}", symbol.namespace, symbol.index);
        let id = self.module.declare_function(&name, Linkage::Local, signature);
        let id = id.expect("a new name");
        self.functions.insert(symbol, id);
        id
    }

    fn data(&mut self, symbol: &UserExternalName) -> DataId {
        if let Some(known) = self.data.get(symbol) {
            return known;
        }
        let writable = self.program.data[symbol.index as usize].writable;
        let name = format!("d{}", symbol.index);
        let id = self.module.declare_data(&name, Linkage::Local, writable, false);
        let id = id.expect("a new name");
        self.data.insert(symbol, id);
        id
    }

    /// The definition of a symbol that emitted code refers to.
    fn reference(&mut self, symbol: &UserExternalName) -> Result<ModuleRelocTarget, Finding> {
        if symbol.namespace == DATA {
            return Ok(self.data(symbol).into());
        }
        if let Some(known) = self.functions.get(symbol) {
            return Ok(known.into());
        }
        let unit = self.program.flush_of(Part::Function(symbol.index as usize));
        if self.units.contains(&unit) {
            return Err(Finding::new(format!(
                "something refers to {symbol} of unit {unit}, which was eliminated"
            )));
        }
        // It is defined later.
        let signature = self.bodies[symbol.index as usize].signature.clone();
        Ok(self.function(symbol, &signature).into())
    }

    fn define_function(
        &mut self,
        own: &UserExternalName,
        mut func: Function,
        alignment: u32,
    ) -> Result<(), Finding> {
        let id = self.functions.get(own).expect("has a name");
        let names = func.params.user_named_funcs().iter();
        let names: Vec<_> = names.map(|(reference, symbol)| (reference, symbol.clone())).collect();
        // Unused names may remain in the function; code must not refer to them.
        let mut missing = Vec::new();
        for (reference, symbol) in names {
            match self.reference(&symbol) {
                Ok(ModuleRelocTarget::User { namespace, index }) => {
                    let new = UserExternalName { namespace, index };
                    func.params.reset_user_func_name(reference, new);
                }
                Ok(_) => unreachable!("a function or a data object"),
                Err(finding) => missing.push((reference, finding)),
            }
        }
        func.name = UserFuncName::user(0, id.as_u32());
        let mut context = Context::for_function(func);
        define_aligned(&mut self.module, id, &mut context, alignment)
            .map_err(|error| Finding::new(format!("{own}: {error:?}")))?;
        let code = context.compiled_code().expect("was compiled");
        for reloc in code.buffer.relocs() {
            if let FinalizedRelocTarget::ExternalName(ExternalName::User(name)) = &reloc.target
                && let Some((_, finding)) = missing.iter().find(|(missing, _)| missing == name)
            {
                return Err(finding.clone());
            }
        }
        self.defined.push(own.clone());
        Ok(())
    }

    fn thunk(&mut self, own: &UserExternalName, jump: Jump, alignment: u32) -> Result<(), Finding> {
        // Some were meant to become aliases, so their own alignment counts.
        let part = Part::Function(own.index as usize);
        let alignment = alignment.max(self.program.alignment(part));
        let Some(code) = jump.code(&Target::of(&**self.isa)) else {
            return self.define_function(own, *jump.call, alignment);
        };
        let mut relocs = Vec::new();
        for ThunkReloc { offset, kind, symbol, addend } in code.relocations {
            let name = self.reference(&symbol)?;
            relocs.push(ModuleReloc { offset, kind, name, addend });
        }
        let id = self.functions.get(own).expect("has a name");
        let alignment = u64::from(alignment.max(16));
        self.module
            .define_function_bytes(id, alignment, &code.bytes, &relocs)
            .expect("is defined once");
        self.defined.push(own.clone());
        Ok(())
    }

    fn emit_data(
        &mut self,
        plan: &Plan,
        data: DataIndex,
        DataMember { symbol: own, attributes, object }: &DataMember,
    ) -> Result<(), Finding> {
        let entry = plan.data_entry(data);
        if let Some(to) = entry.disposition().representative() {
            self.statistics.add("merged data objects", 1);
            if self.data.get(own).is_none() {
                let to = self.data(plan.data_entry(to).symbol());
                self.data.insert(own, to);
                return Ok(());
            }
            // Emitted code uses its symbol, which the module cannot move, and no code compares it.
        }
        let mut object = object.clone();
        for reloc in &mut object.relocations {
            reloc.target = plan.address_symbol(&reloc.target).clone();
        }
        self.define_data(own, &object, entry.alignment().max(attributes.alignment))
    }

    fn define_data(
        &mut self,
        own: &UserExternalName,
        object: &DataObject,
        alignment: u64,
    ) -> Result<(), Finding> {
        let id = self.data(own);
        let Contents::Bytes(bytes) = &object.contents else { unreachable!("they have bytes") };
        let mut description = DataDescription::new();
        description.define(bytes.clone().into());
        for reloc in &object.relocations {
            let target = self.reference(&reloc.target)?;
            let target = description.import_global_value(target);
            description.write_data_addr(reloc.offset, target, reloc.addend);
        }
        description.set_align(alignment);
        self.module.define_data(id, &description).expect("is defined once");
        self.defined.push(own.clone());
        Ok(())
    }

    /// Checks that every part that is referred to is defined.
    fn check_references(&self, flush: usize) -> Result<(), Finding> {
        let names = self.functions.0.iter().filter(|((namespace, _), _)| *namespace == FUNCTION);
        for ((_, number), id) in names {
            let mut others = self.defined.iter().filter_map(|symbol| self.functions.get(symbol));
            if !others.any(|other| other == *id) {
                return Err(Finding::new(format!(
                    "up to unit {flush}, function {number} is referred to and was never emitted"
                )));
            }
        }
        Ok(())
    }
}

fn object(data: &Data) -> DataObject {
    let mut relocations = Vec::new();
    for (item, offset) in data.items.iter().zip((0..).step_by(8)) {
        let (target, addend) = match *item {
            Item::Number(_) => continue,
            Item::Function(function) => (symbol(Part::Function(function)), 0),
            Item::Data { data, slot } => (symbol(Part::Data(data)), 8 * slot as i64),
        };
        relocations.push(DataReloc { offset, target, addend });
    }
    let contents = Contents::Bytes(data.items.iter().flat_map(Item::bytes).collect());
    DataObject { contents, relocations, section: None }
}

/// A unit as the pass reads it.
struct Held<'a> {
    unit: Parts<'a>,
    added: &'a mut u32,
}

impl Bodies for Held<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self.unit.functions[function.index()].body
    }

    fn data(&mut self, data: DataIndex) -> Option<&DataObject> {
        Some(&self.unit.data[data.index()].object)
    }

    fn fresh_symbol(&mut self, _: &[FunctionIndex]) -> Option<UserExternalName> {
        *self.added += 1;
        Some(UserExternalName::new(ADDED, *self.added - 1))
    }
}
