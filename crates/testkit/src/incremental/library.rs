//! The library without `Module`: each flush is a unit, planned after those before it, and carried out as by an
//! embedder with a table of names. The code that it emits is put into a JIT under names of its own.
//!
//! The embedder knows the later units, and sets attributes accordingly: a function whose address another unit
//! takes has `address_taken`, and one that an earlier unit names has `externally_called`. Everything else a later
//! unit must handle without such attributes: every symbol that it can still refer to must be defined.

use super::define::{Definer, data_attributes, define_aligned, function_attributes, parse};
use super::program::{Address, Callee, Data, Item, Part, Program, Statement};
use super::statistics::{Statistics, word};
use super::text::{DATA, FUNCTION};
use super::{Finding, Host, Run, check_alignment};
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{ExternalName, Function, Signature, UserExternalName, UserFuncName};
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use cranelift_codegen::{Context, FinalizedRelocTarget};
use cranelift_entity::EntityRef;
use cranelift_jit::JITModule;
use cranelift_mergefunc::{
    Bodies, CallThunks, Canonicalize, Contents, DataIndex, DataObject, DataReloc, Disposition,
    ExtraArgument, FunctionIndex, MergeCache, Merger, Options, Plan, Prebucket, Target, ThunkReloc,
    call_thunk,
};
use cranelift_module::{
    DataDescription, DataId, FuncId, Linkage, Module, ModuleReloc, ModuleRelocTarget,
};
use std::collections::BTreeMap;

/// The namespace of bodies that plans add.
const ADDED: u32 = 9;

/// Plans and emits the program unit by unit, runs it and the plain one whenever they are ready, and compares.
///
/// # Errors
///
/// What differs.
///
/// # Panics
///
/// If the program is wrong, or the pass panics.
pub fn check(
    program: &Program,
    host: &mut dyn Host,
    statistics: &mut Statistics,
) -> Result<(), Finding> {
    let bodies = parse(program);
    let mut plain = Definer::plain(host.jit(program.speed), program, &bodies, "");
    let isa = host.isa(program.speed);
    let mut embedder = Embedder {
        module: host.jit(program.speed),
        program,
        bodies: &bodies,
        emitted: MergeCache::new(),
        functions: Names(BTreeMap::new()),
        data: Names(BTreeMap::new()),
        defined: Vec::new(),
        units: Vec::new(),
        added: 0,
    };
    let result = run(program, host, &isa, &mut plain, &mut embedder, statistics);
    host.free(plain.module);
    host.free(embedder.module);
    result
}

fn run(
    program: &Program,
    host: &mut dyn Host,
    isa: &OwnedTargetIsa,
    plain: &mut Definer<'_, JITModule>,
    embedder: &mut Embedder<'_>,
    statistics: &mut Statistics,
) -> Result<(), Finding> {
    let options = Options {
        target: Target::of(&**isa),
        aliases: program.options.aliases,
        similar: program.options.similar,
        // Without colocated calls, compiled code does not depend on the option, and functions that differ in
        // unused entities merge, too.
        prebucket: if program.colocated { Prebucket::Counts } else { Prebucket::WalkAll },
        canonicalize: match program.options.optimize {
            true => Canonicalize::Optimize(&**isa),
            false => Canonicalize::None,
        },
        ..Options::default()
    };
    statistics.add_program(program);
    for (flush, moment) in program.flushes.iter().enumerate() {
        plain.define(flush, &mut |_, _, _| {}).unwrap_or_else(|error| panic!("{error:?}"));
        embedder.unit(flush, &options, isa, statistics)?;
        if !moment.ready || !program.is_complete(flush) {
            continue;
        }
        plain.module.finalize_definitions().expect("memory can be protected");
        embedder.check_references(flush)?;
        embedder.module.finalize_definitions().expect("memory can be protected");
        let calls = program.calls.iter().filter_map(|call| {
            let known = program.flush_of(Part::Function(call.function)) <= flush;
            let id = embedder.functions.get(&symbol(Part::Function(call.function)))?;
            Some((call, id)).filter(|_| known)
        });
        let calls: Vec<_> = calls.collect();
        let runs = |merged: bool| -> Vec<Run> {
            let runs = calls.iter().map(|(call, id)| Run {
                code: match merged {
                    true => embedder.module.get_finalized_function(*id),
                    false => plain.module.get_finalized_function(plain.ids.function(call.function)),
                },
                call: (*call).clone(),
            });
            runs.collect()
        };
        for (call, id) in &calls {
            let code = embedder.module.get_finalized_function(*id);
            check_alignment(program, Part::Function(call.function), code)?;
        }
        let (expected, results) = (host.run(&runs(false)), host.run(&runs(true)));
        assert_eq!(expected.len(), calls.len(), "the plain program does not end");
        for (at, (call, _)) in calls.iter().enumerate() {
            if results.get(at) != expected.get(at) {
                let (result, expected) = (results.get(at), expected[at]);
                return Err(Finding::new(format!(
                    "after unit {flush}, {call:?} gives {result:?} instead of {expected:?}"
                )));
            }
        }
    }
    Ok(())
}

/// Code and data, and what their names mean.
struct Embedder<'a> {
    module: JITModule,
    program: &'a Program,
    bodies: &'a [Function],
    emitted: MergeCache,
    /// What the symbols of functions and data objects are defined as. The symbol of a redirected function is not
    /// defined if it means more than the function that replaced it.
    functions: Names<FuncId>,
    data: Names<DataId>,
    /// The symbols that have code or data of their own.
    defined: Vec<UserExternalName>,
    /// The units that were planned.
    units: Vec<usize>,
    added: u32,
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
                    Statement::Call { call: Callee::Indirect(function), .. } => {
                        taken.push(*function);
                    }
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

impl Embedder<'_> {
    /// Plans a unit and emits it.
    fn unit(
        &mut self,
        flush: usize,
        options: &Options<'_>,
        isa: &OwnedTargetIsa,
        statistics: &mut Statistics,
    ) -> Result<(), Finding> {
        let program = self.program;
        let flushes = || program.flushes.iter().enumerate();
        let others = || {
            let others = flushes().filter(|(other, _)| *other != flush);
            others.flat_map(|(other, flush)| flush.defined.iter().map(move |part| (other, *part)))
        };
        let (mut functions, mut objects) = (Vec::new(), Vec::new());
        let mut merger = Merger::after(&self.emitted, *options);
        for &part in &program.flushes[flush].defined {
            let named_before =
                others().any(|(other, of)| other < flush && program.references(of).contains(&part));
            match part {
                Part::Function(function) => {
                    let mut attributes = function_attributes(program, function);
                    attributes.address_taken |=
                        others().any(|(_, of)| takes(program, of).contains(&function));
                    attributes.externally_called |= named_before;
                    let body = &self.bodies[function];
                    merger.add(symbol(part), body, attributes).expect("is added");
                    functions.push(function);
                }
                Part::Data(data) => {
                    let mut attributes = data_attributes(program, data);
                    attributes.externally_used |= named_before;
                    let object = object(&program.data[data]);
                    merger.add_data(symbol(part), &object, attributes).expect("is added");
                    objects.push((data, object));
                }
            }
        }
        let mut held = Held {
            bodies: self.bodies,
            functions: &functions,
            objects: &objects,
            isa: &**isa,
            context: Context::new(),
            added: &mut self.added,
        };
        let plan = merger.plan(&mut held);
        self.units.push(flush);
        self.emit(&plan, options, &functions, &objects, statistics)?;
        self.emitted.extend(&plan);
        Ok(())
    }

    fn emit(
        &mut self,
        plan: &Plan,
        options: &Options<'_>,
        functions: &[usize],
        objects: &[(usize, DataObject)],
        statistics: &mut Statistics,
    ) -> Result<(), Finding> {
        // Names first: definitions that replace another one, and only then the functions that refer to them.
        let mut other_names = Vec::new();
        for (index, &number) in functions.iter().enumerate() {
            let entry = plan.entry(FunctionIndex::new(index));
            let (own, to) = (entry.symbol().clone(), entry.disposition().representative());
            let later = to.is_some_and(|to| plan.is_cached(to));
            statistics.add(word(entry.disposition().name()), 1);
            statistics.add("merged into an earlier flush", usize::from(later));
            let is_thunk = matches!(entry.disposition(), Disposition::Thunk { .. });
            statistics.add("thunks to an earlier flush", usize::from(later && is_thunk));
            let passes = usize::from(!entry.arguments().is_empty());
            statistics.add("merged with extra arguments", passes);
            let body = &self.bodies[number];
            match entry.disposition() {
                Disposition::Keep | Disposition::Thunk { .. } => {
                    let signature = body.signature.clone();
                    self.function(&own, &signature);
                }
                Disposition::Alias { to } | Disposition::Redirect { to }
                    if entry.arguments().is_empty() =>
                {
                    other_names.push((own, plan.entry(to).symbol().clone(), index));
                }
                Disposition::Alias { .. } => unreachable!("nothing is passed to an alias"),
                // Only callers that pass the extra arguments can call it.
                Disposition::Redirect { .. } => {
                    if self.functions.get(&own).is_some() {
                        return Err(Finding::new(format!("{own} has a user and is redirected")));
                    }
                }
            }
        }
        for shared in plan.private_copies() {
            let signature = self.bodies[functions[shared.body_of.index()]].signature.clone();
            self.function(plan.entry(shared.function).symbol(), &signature);
        }
        for merged in plan.parameterised_bodies() {
            self.function(plan.entry(merged.function).symbol(), &merged.body.signature);
        }
        for (own, to, index) in other_names {
            match self.functions.get(&own).is_some() {
                // Emitted code uses its symbol, which the module cannot move.
                true => {
                    let function = FunctionIndex::new(index);
                    self.thunk(plan, options, function, functions[index], &to)?;
                }
                false => {
                    let to = self.functions.get(&to);
                    let to = to.ok_or_else(|| {
                        Finding::new(format!("{own} is merged into an undefined function"))
                    })?;
                    self.functions.insert(&own, to);
                }
            }
        }
        for (index, (number, object)) in objects.iter().enumerate() {
            self.emit_data(plan, DataIndex::new(index), *number, object, statistics)?;
        }
        for (index, &number) in functions.iter().enumerate() {
            let function = FunctionIndex::new(index);
            let entry = plan.entry(function);
            match entry.disposition() {
                Disposition::Keep => {
                    let mut func = self.bodies[number].clone();
                    plan.apply(function, &mut func, options);
                    self.define(entry.symbol(), func, entry.alignment())?;
                }
                Disposition::Thunk { to } => {
                    let to = plan.entry(to).symbol().clone();
                    self.thunk(plan, options, function, number, &to)?;
                }
                Disposition::Alias { .. } | Disposition::Redirect { .. } => {}
            }
        }
        for shared in plan.private_copies() {
            statistics.add("parameterised or private bodies", 1);
            let mut func = self.bodies[functions[shared.body_of.index()]].clone();
            func.name = UserFuncName::User(plan.entry(shared.function).symbol().clone());
            plan.apply(shared.function, &mut func, options);
            let entry = plan.entry(shared.function);
            self.define(entry.symbol(), func, entry.alignment())?;
        }
        for merged in plan.parameterised_bodies() {
            statistics.add("parameterised or private bodies", 1);
            let mut func = merged.body.clone();
            plan.apply(merged.function, &mut func, options);
            let entry = plan.entry(merged.function);
            self.define(entry.symbol(), func, entry.alignment())?;
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

    fn define(
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

    fn thunk(
        &mut self,
        plan: &Plan,
        options: &Options<'_>,
        function: FunctionIndex,
        number: usize,
        to: &UserExternalName,
    ) -> Result<(), Finding> {
        let own = plan.entry(function).symbol().clone();
        // It was meant to become an alias, so its own alignment counts.
        let alignment = plan.entry(function).alignment();
        let alignment = alignment.max(self.program.alignment(Part::Function(number)));
        let signature = &self.bodies[number].signature;
        let arguments: Vec<ExtraArgument> = plan.thunk_arguments(function);
        let Some(code) = options.target.thunk_code(signature, &arguments, to) else {
            let call_thunks = CallThunks { tail_calls: true, colocated: true };
            let name = UserFuncName::User(own.clone());
            let func = call_thunk(name, signature, &arguments, to, &call_thunks);
            return self.define(&own, func, alignment);
        };
        let mut relocs = Vec::new();
        for ThunkReloc { offset, kind, symbol, addend } in code.relocations {
            let name = self.reference(&symbol)?;
            relocs.push(ModuleReloc { offset, kind, name, addend });
        }
        let id = self.functions.get(&own).expect("has a name");
        let alignment = u64::from(alignment.max(16));
        self.module
            .define_function_bytes(id, alignment, &code.bytes, &relocs)
            .expect("is defined once");
        self.defined.push(own);
        Ok(())
    }

    fn emit_data(
        &mut self,
        plan: &Plan,
        data: DataIndex,
        number: usize,
        object: &DataObject,
        statistics: &mut Statistics,
    ) -> Result<(), Finding> {
        let entry = plan.data_entry(data);
        let own = entry.symbol().clone();
        if let Some(to) = entry.disposition().representative() {
            statistics.add("merged data objects", 1);
            let to = plan.data_entry(to).symbol().clone();
            if self.data.get(&own).is_none() {
                let to = self.data(&to);
                self.data.insert(&own, to);
                return Ok(());
            }
            // Emitted code uses its symbol, which the module cannot move, and no code compares it.
        }
        let id = self.data(&own);
        let Contents::Bytes(bytes) = &object.contents else { unreachable!("they have bytes") };
        let mut description = DataDescription::new();
        description.define(bytes.clone().into());
        for reloc in &object.relocations {
            let target = plan.address_symbol(&reloc.target).clone();
            let target = self.reference(&target)?;
            let target = description.import_global_value(target);
            description.write_data_addr(reloc.offset, target, reloc.addend);
        }
        let alignment = u64::from(self.program.data[number].attributes.alignment).max(8);
        description.set_align(entry.alignment().max(alignment));
        self.module.define_data(id, &description).expect("is defined once");
        self.defined.push(own);
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
    let bytes = |item: &Item| match item {
        Item::Number(number) => number.to_le_bytes(),
        Item::Function(_) | Item::Data { .. } => [0; 8],
    };
    let mut relocations = Vec::new();
    for (item, offset) in data.items.iter().zip((0..).step_by(8)) {
        let (target, addend) = match *item {
            Item::Number(_) => continue,
            Item::Function(function) => (symbol(Part::Function(function)), 0),
            Item::Data { data, slot } => (symbol(Part::Data(data)), 8 * slot as i64),
        };
        relocations.push(DataReloc { offset, target, addend });
    }
    let contents = Contents::Bytes(data.items.iter().flat_map(bytes).collect());
    DataObject { contents, relocations, section: None }
}

/// A unit as the pass reads it.
struct Held<'a> {
    bodies: &'a [Function],
    functions: &'a [usize],
    objects: &'a [(usize, DataObject)],
    isa: &'a dyn TargetIsa,
    context: Context,
    added: &'a mut u32,
}

impl Held<'_> {
    fn size_of(&mut self, func: &Function) -> Option<u32> {
        self.context.clear();
        self.context.func.clone_from(func);
        let code = self.context.compile(self.isa, &mut ControlPlane::default()).ok()?;
        Some(code.code_info().total_size)
    }
}

impl Bodies for Held<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self.bodies[self.functions[function.index()]]
    }

    fn data(&mut self, data: DataIndex) -> &DataObject {
        &self.objects[data.index()].1
    }

    fn code_size(&mut self, function: FunctionIndex) -> Option<u32> {
        let bodies = self.bodies;
        self.size_of(&bodies[self.functions[function.index()]])
    }

    fn thunk_size(&mut self, _: FunctionIndex, thunk: &Function) -> Option<u32> {
        self.size_of(thunk)
    }

    fn candidate_size(&mut self, candidate: &Function, _: bool) -> Option<u32> {
        self.size_of(candidate)
    }

    fn fresh_symbol(&mut self) -> Option<UserExternalName> {
        *self.added += 1;
        Some(UserExternalName::new(ADDED, *self.added - 1))
    }
}
