//! A flush: what is held back is planned, every symbol gets its place, and what is left is emitted.
//!
//! The order of emission is that of the definitions, so the same calls give the same object. When
//! something fails, nothing that comes after it is emitted, and the module refuses to go on: bodies
//! that functions were merged into may be missing.

use super::{
    BackEnd, Became, DataState, Definition, FunctionState, MergingModule, Pending, data_symbol,
    linkage, symbol,
};
use crate::apply::{call_thunk, redirect};
use crate::data::{Contents, DataAttributes, DataIndex, DataObject, DataReloc};
use crate::options::{Addresses, Attributes, CallThunks, Canonicalize, Options};
use crate::plan::{Disposition, Plan};
use crate::summary::address_uses;
use crate::target::Target;
use crate::unit::{Bodies, FunctionIndex, Merger};
use alloc::boxed::Box;
use alloc::vec::Vec;
use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{
    ExternalName, Function, GlobalValueData, Signature, UserExternalName, UserFuncName,
};
use cranelift_codegen::isa::TargetIsa;
use cranelift_entity::EntityRef;
use cranelift_module::{
    DataDescription, DataId, FuncId, Init, Module, ModuleReloc, ModuleRelocTarget, ModuleResult,
};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// The namespace of bodies that a plan adds. The module's own are 0 and 1.
const SHARED: u32 = u32::MAX;

/// What is held back, as the pass sees it.
struct Unit {
    /// The functions that have IR, by `FunctionIndex`.
    functions: Vec<(FuncId, Attributes)>,
    /// Where each is in `Pending::functions`.
    place: Vec<usize>,
    data: Vec<(DataId, DataAttributes, DataObject)>,
    by_id: HashMap<DataId, DataIndex, FxBuildHasher>,
}

impl<M: Module> MergingModule<M> {
    /// Merges and defines what is held back.
    pub(super) fn flush_to(&mut self, back_end: BackEnd, remember: bool) -> ModuleResult<()> {
        self.flush_with(back_end, remember, None)
    }

    /// Defines one function at once, with the context of the embedder, whose code is left there.
    pub(super) fn define_at_once(
        &mut self,
        function: FuncId,
        ctx: &mut Context,
        control_plane: &mut ControlPlane,
    ) -> ModuleResult<()> {
        let func = Box::new(core::mem::replace(&mut ctx.func, Function::new()));
        let definition = Definition::Body {
            func,
            want_disasm: ctx.want_disasm,
            control_plane: control_plane.clone(),
        };
        self.pending.functions.push((function, definition));
        self.functions[function].defined = true;
        self.flush_with(self.options.back_end, true, Some(ctx))
    }

    fn flush_with(
        &mut self,
        back_end: BackEnd,
        remember: bool,
        context: Option<&mut Context>,
    ) -> ModuleResult<()> {
        self.check_usable()?;
        let mut pending = core::mem::take(&mut self.pending);
        if pending.functions.is_empty() && pending.data.is_empty() {
            return Ok(());
        }
        self.stats.flushes += 1;
        let mut unit = self.unit(&mut pending, back_end);
        let plan = self.plan(&pending, &unit, back_end, remember);
        self.declare_shared_bodies(&plan, &pending, &unit)?;
        self.place_functions(&plan, &unit, back_end)?;
        self.place_data(&plan, &unit, back_end);
        self.emit_functions(&plan, pending.functions, &unit, back_end, context)?;
        self.emit_data(&plan, pending.data, &mut unit, back_end)?;
        self.emitted.extend(&plan);
        self.pass_stats = *plan.stats();
        Ok(())
    }

    /// What is held back, with what is known of it by now.
    fn unit(&mut self, pending: &mut Pending, back_end: BackEnd) -> Unit {
        for (function, definition) in &pending.functions {
            if let Definition::Bytes { relocs, .. } = definition {
                self.observe_relocs(*function, relocs);
            }
        }
        let mut functions = Vec::new();
        let mut place = Vec::new();
        for (at, (function, definition)) in pending.functions.iter().enumerate() {
            if let Definition::Body { .. } = definition {
                let attributes = self.attributes_of(*function);
                // A module of which nothing is known wants code for everything.
                let symbol_used = attributes.symbol_used || back_end == BackEnd::Any;
                functions.push((*function, Attributes { symbol_used, ..attributes }));
                place.push(at);
            }
        }
        let mut data = Vec::new();
        let mut by_id = HashMap::default();
        for (id, description) in &mut pending.data {
            let mut attributes = self.data_attributes_of(*id, description);
            let (object, exact) = object_of(description);
            if !exact || back_end == BackEnd::Any {
                attributes.addresses = Addresses::Significant;
            }
            by_id.insert(*id, DataIndex::new(data.len()));
            data.push((*id, attributes, object));
        }
        Unit { functions, place, data, by_id }
    }

    /// Functions that code given as bytes refers to: by calls or by addresses, who knows.
    fn observe_relocs(&mut self, function: FuncId, relocs: &[ModuleReloc]) {
        for reloc in relocs {
            match &reloc.name {
                ModuleRelocTarget::User { namespace: 0, index } => {
                    self.functions[FuncId::from_u32(*index)].address_held = true;
                }
                // Offsets only make sense in the very code that they were found in.
                ModuleRelocTarget::FunctionOffset(other, _) if *other != function => {
                    self.attributes(*other).pinned = true;
                }
                ModuleRelocTarget::FunctionOffset(..)
                | ModuleRelocTarget::User { .. }
                | ModuleRelocTarget::LibCall(_)
                | ModuleRelocTarget::KnownSymbol(_) => {}
            }
        }
    }

    fn attributes_of(&self, function: FuncId) -> Attributes {
        let defaults = Attributes { addresses: self.options.functions, ..Attributes::default() };
        let attributes = self.attributes.get(&function).copied().unwrap_or(defaults);
        let declaration = self.inner.declarations().get_function_decl(function);
        let FunctionState { called, address_held, .. } = self.functions[function];
        Attributes {
            linkage: linkage(declaration.linkage),
            address_taken: attributes.address_taken || address_held,
            symbol_used: attributes.symbol_used || called,
            ..attributes
        }
    }

    pub(super) fn data_attributes_of(
        &self,
        data: DataId,
        description: &DataDescription,
    ) -> DataAttributes {
        let defaults = DataAttributes { addresses: self.options.data, ..DataAttributes::default() };
        let attributes = self.data_attributes.get(&data).copied().unwrap_or(defaults);
        let declaration = self.inner.declarations().get_data_decl(data);
        let align = description.align.unwrap_or(1).max(self.inner.isa().symbol_alignment());
        DataAttributes {
            linkage: linkage(declaration.linkage),
            writable: declaration.writable,
            tls: declaration.tls,
            pinned: attributes.pinned || description.used,
            symbol_used: attributes.symbol_used || self.data[data].used,
            alignment: align,
            ..attributes
        }
    }

    /// Whether a data object may be merged or refers to what may be, so that it cannot be defined
    /// before the flush.
    pub(super) fn must_wait(&self, data: DataId, description: &DataDescription) -> bool {
        let refers = !description.function_relocs.is_empty() || !description.data_relocs.is_empty();
        refers || self.data_attributes_of(data, description).by_class()
    }

    fn plan(&self, pending: &Pending, unit: &Unit, back_end: BackEnd, remember: bool) -> Plan {
        let isa = self.inner.isa();
        let options = self.pass_options(isa, back_end);
        // Units that come after others must walk everything, which does not pay if there are none.
        let mut merger = match remember || !self.emitted.is_empty() {
            true => Merger::after(&self.emitted, options),
            false => Merger::new(options),
        };
        let mut bodies = Held { pending, unit, isa, fresh: self.shared.len() as u32 };
        for (index, (function, attributes)) in unit.functions.iter().enumerate() {
            let func = bodies.function(FunctionIndex::new(index));
            let added = merger.add(symbol(*function), func, *attributes);
            added.expect("verified functions of different identifiers are accepted");
        }
        for (data, attributes, object) in &unit.data {
            let added = merger.add_data(data_symbol(*data), object, *attributes);
            added.expect("data objects of different identifiers are accepted");
        }
        merger.plan(&mut bodies)
    }

    fn pass_options<'a>(&self, isa: &'a dyn TargetIsa, back_end: BackEnd) -> Options<'a> {
        let target = Target::of(isa);
        let merged = self.stats.merged() + self.stats.merged_data_objects;
        Options {
            compare: self.options.compare,
            prebucket: self.options.prebucket,
            canonicalize: match self.options.optimize {
                true => Canonicalize::Optimize(isa),
                false => Canonicalize::None,
            },
            target: match back_end {
                BackEnd::Jit => target.in_jit(),
                BackEnd::Any | BackEnd::Object => target,
            },
            aliases: back_end != BackEnd::Any && self.options.aliases,
            call_thunks: Some(CALL_THUNKS),
            merge_limit: self
                .options
                .merge_limit
                .map(|limit| limit.saturating_sub(u32::try_from(merged).unwrap_or(u32::MAX))),
        }
    }

    /// Declares what the plan adds to the functions of the module.
    fn declare_shared_bodies(
        &mut self,
        plan: &Plan,
        pending: &Pending,
        unit: &Unit,
    ) -> ModuleResult<()> {
        for shared in plan.shared_bodies() {
            let signature = &pending.func(unit, shared.body_of).signature;
            let function = self.inner.declare_anonymous_function(signature)?;
            let symbol = plan.entry(shared.function).symbol();
            // A limit on merges can cut a shared body after its symbol was given out.
            self.shared.resize(symbol.index as usize, function);
            self.shared.push(function);
            self.stats.shared_bodies += 1;
            self.functions[function].defined = true;
        }
        Ok(())
    }

    /// The function of a symbol of the pass.
    fn id_of(&self, symbol: &UserExternalName) -> FuncId {
        match symbol.namespace {
            SHARED => self.shared[symbol.index as usize],
            _ => FuncId::from_u32(symbol.index),
        }
    }

    /// Settles where every function is found from now on, before anything refers to it.
    fn place_functions(&mut self, plan: &Plan, unit: &Unit, back_end: BackEnd) -> ModuleResult<()> {
        for (index, (function, attributes)) in unit.functions.iter().enumerate() {
            let index = FunctionIndex::new(index);
            let disposition = plan.entry(index).disposition();
            self.functions[*function].reason = Some(plan.entry(index).reason());
            let Some(to) = disposition.representative() else {
                continue;
            };
            let body = self.id_of(plan.entry(to).symbol());
            if back_end == BackEnd::Object {
                self.give_local_name(body)?;
            }
            let state = &mut self.functions[*function];
            state.body = body.into();
            state.preemptible = plan.call_target(index) == index;
            debug_assert!(!state.preemptible || attributes.linkage == crate::Linkage::Preemptible);
            (state.became, state.gone) = match (disposition, back_end) {
                (Disposition::Keep, _) => (Became::Kept, false),
                (Disposition::Thunk { .. }, _) => (Became::Thunk, false),
                (Disposition::Alias { .. }, _) => (Became::Alias, back_end == BackEnd::Jit),
                (Disposition::Redirect { .. }, BackEnd::Any) => {
                    unreachable!("every symbol counts as used")
                }
                (Disposition::Redirect { .. }, _) => (Became::Redirected, back_end == BackEnd::Jit),
            };
        }
        Ok(())
    }

    /// In a shared library of ELF, an exported symbol can be interposed, whatever its linkage says:
    /// calls that were to another function must not go through it.
    fn give_local_name(&mut self, body: FuncId) -> ModuleResult<()> {
        let declaration = self.inner.declarations().get_function_decl(body);
        let can_be_interposed = declaration.linkage == cranelift_module::Linkage::Export
            && self.inner.isa().triple().binary_format == target_lexicon::BinaryFormat::Elf;
        if !can_be_interposed || self.local_names.contains_key(&body) {
            return Ok(());
        }
        let signature = declaration.signature.clone();
        let name = self.inner.declare_anonymous_function(&signature)?;
        self.functions[name].defined = true;
        self.inner.define_function_bytes(name, 1, &[], &[])?;
        self.aliases.functions.push((name, body));
        self.local_names.insert(body, name);
        Ok(())
    }

    fn place_data(&mut self, plan: &Plan, unit: &Unit, back_end: BackEnd) {
        for (index, (data, _, object)) in unit.data.iter().enumerate() {
            let entry = plan.data_entry(DataIndex::new(index));
            let state = &mut self.data[*data];
            state.reason = Some(entry.reason());
            let Some(to) = entry.disposition().representative() else {
                continue;
            };
            let to = DataId::from_u32(plan.data_entry(to).symbol().index);
            state.body = to.into();
            (state.became, state.gone) = match entry.disposition() {
                Disposition::Alias { .. } => (Became::Alias, back_end == BackEnd::Jit),
                _ => (Became::Redirected, back_end == BackEnd::Jit),
            };
            self.stats.merged_data_objects += 1;
            self.stats.saved_data_bytes += object.contents.size();
        }
    }

    fn emit_functions(
        &mut self,
        plan: &Plan,
        functions: Vec<(FuncId, Definition)>,
        unit: &Unit,
        back_end: BackEnd,
        mut context: Option<&mut Context>,
    ) -> ModuleResult<()> {
        let shared: Vec<(FunctionIndex, FunctionIndex, Option<Box<Function>>)> = plan
            .shared_bodies()
            .iter()
            .map(|shared| {
                let (_, definition) = &functions[unit.place[shared.body_of.index()]];
                let func = match definition {
                    Definition::Body { func, .. } => Some(func.clone()),
                    Definition::Bytes { .. } => None,
                };
                (shared.function, shared.body_of, func)
            })
            .collect();
        let mut next = 0;
        for (function, definition) in functions {
            let emitted = match definition {
                Definition::Bytes { alignment, bytes, relocs } => {
                    self.emit_bytes(function, alignment, &bytes, &relocs)
                }
                Definition::Body { func, want_disasm, control_plane } => {
                    let index = FunctionIndex::new(next);
                    next += 1;
                    let with = With { context: context.as_deref_mut(), want_disasm, control_plane };
                    self.emit_function(plan, index, function, *func, back_end, with)
                }
            };
            emitted.inspect_err(|_| self.failed = Some(function))?;
        }
        for (index, _, func) in shared {
            let func = func.expect("a shared body is made of a body");
            let function = self.id_of(plan.entry(index).symbol());
            let with =
                With { context: None, want_disasm: false, control_plane: ControlPlane::default() };
            self.emit_body(plan, index, function, *func, back_end, with)
                .inspect_err(|_| self.failed = Some(function))?;
        }
        // Sizes of bodies are known by now.
        for (function, _) in &unit.functions {
            let FunctionState { body, size, .. } = self.functions[*function];
            if let Some(body) = body.expand() {
                let saved = self.functions[body].size.saturating_sub(size);
                self.stats.saved_code_bytes += u64::from(saved);
            }
        }
        Ok(())
    }

    fn emit_function(
        &mut self,
        plan: &Plan,
        index: FunctionIndex,
        function: FuncId,
        func: Function,
        back_end: BackEnd,
        with: With<'_>,
    ) -> ModuleResult<()> {
        self.stats.functions += 1;
        let FunctionState { became, gone, body, .. } = self.functions[function];
        let Some(body) = body.expand() else {
            return self.emit_body(plan, index, function, func, back_end, with);
        };
        let signature = func.signature.clone();
        if let Some(context) = with.context {
            // Who asked for code at once gets it, although it goes nowhere.
            context.func = func;
            let mut control_plane = with.control_plane;
            context.compile(self.inner.isa(), &mut control_plane).map_err(|error| error.inner)?;
        }
        match became {
            Became::Kept => unreachable!("what keeps its body has no other"),
            Became::Thunk => {
                self.stats.thunks += 1;
                self.emit_thunk(function, &signature, self.local_name(body))
            }
            Became::Alias | Became::Redirected => {
                match became {
                    Became::Alias => self.stats.aliases += 1,
                    _ => self.stats.redirects += 1,
                }
                if gone {
                    return Ok(());
                }
                // The module wants a definition of everything that it was told to define.
                self.aliases.functions.push((function, body));
                self.inner.define_function_bytes(function, 1, &[], &[])
            }
        }
    }

    fn emit_body(
        &mut self,
        plan: &Plan,
        index: FunctionIndex,
        function: FuncId,
        mut func: Function,
        back_end: BackEnd,
        with: With<'_>,
    ) -> ModuleResult<()> {
        plan.settle(index, &mut func, &self.pass_options(self.inner.isa(), back_end));
        redirect(&mut func, &|symbol| self.redirected(symbol, Self::call_target), &|symbol| {
            self.redirected(symbol, Self::address_target)
        });
        self.observe_references(&func);
        let With { context, want_disasm, mut control_plane } = with;
        let mut own = core::mem::replace(&mut self.context, Context::new());
        let own_context = context.is_none();
        let context = context.unwrap_or(&mut own);
        if own_context {
            self.inner.clear_context(context);
        }
        context.func = func;
        context.set_disasm(want_disasm);
        let alignment = plan.entry(index).alignment();
        let defined = match alignment {
            1 => {
                self.inner.define_function_with_control_plane(function, context, &mut control_plane)
            }
            _ => define_aligned(&mut self.inner, function, alignment, context, &mut control_plane),
        };
        let size = context.compiled_code().map_or(0, |code| code.code_info().total_size);
        if own_context {
            self.context = own;
        }
        defined?;
        self.stats.compiled += 1;
        self.stats.code_bytes += u64::from(size);
        self.functions[function].size = size;
        Ok(())
    }

    fn redirected(
        &self,
        name: &UserExternalName,
        target: fn(&Self, FuncId) -> Option<FuncId>,
    ) -> Option<UserExternalName> {
        match name.namespace {
            0 => target(self, FuncId::from_u32(name.index)).map(symbol),
            1 => self.data_target(DataId::from_u32(name.index)).map(data_symbol),
            _ => None,
        }
    }

    /// What `func`, which is about to be emitted, refers to and is not defined yet must keep its
    /// symbol when it comes.
    fn observe_references(&mut self, func: &Function) {
        let names = func.params.user_named_funcs();
        let index_of = |name: &ExternalName| match name {
            ExternalName::User(name_ref) => names.get(*name_ref),
            _ => None,
        };
        let mut undefined = false;
        for callee in func.dfg.ext_funcs.values() {
            if let Some(UserExternalName { namespace: 0, index }) = index_of(&callee.name) {
                let state = &mut self.functions[FuncId::from_u32(*index)];
                if !state.defined {
                    state.called = true;
                    undefined = true;
                }
            }
        }
        if undefined {
            for used in address_uses(func) {
                let callee = func.dfg.ext_funcs.get(used).and_then(|callee| index_of(&callee.name));
                if let Some(UserExternalName { namespace: 0, index }) = callee {
                    self.functions[FuncId::from_u32(*index)].address_held |=
                        !self.functions[FuncId::from_u32(*index)].defined;
                }
            }
        }
        for gv in func.global_values.values() {
            let GlobalValueData::Symbol { name, .. } = gv else {
                continue;
            };
            if let Some(UserExternalName { namespace, index }) = index_of(name) {
                self.observe_pointer(*namespace, *index);
            }
        }
    }

    fn observe_pointer(&mut self, namespace: u32, index: u32) {
        match namespace {
            0 => {
                let state = &mut self.functions[FuncId::from_u32(index)];
                state.called |= !state.defined;
                state.address_held |= !state.defined;
            }
            1 => {
                let DataState { defined, used, .. } = &mut self.data[DataId::from_u32(index)];
                *used |= !*defined;
            }
            _ => {}
        }
    }

    fn emit_thunk(
        &mut self,
        function: FuncId,
        signature: &Signature,
        to: FuncId,
    ) -> ModuleResult<()> {
        let isa = self.inner.isa();
        let size = match Target::of(isa).jump_thunk {
            Some(jump) => {
                let alignment = u64::from(isa.function_alignment().minimum);
                let reloc = ModuleReloc {
                    offset: jump.offset,
                    kind: jump.relocation,
                    name: to.into(),
                    addend: jump.addend,
                };
                self.inner.define_function_bytes(function, alignment, jump.code(), &[reloc])?;
                jump.size()
            }
            None => {
                let name = UserFuncName::User(symbol(function));
                let mut context =
                    Context::for_function(call_thunk(name, signature, &symbol(to), &CALL_THUNKS));
                self.inner.define_function(function, &mut context)?;
                context.compiled_code().map_or(0, |code| code.code_info().total_size)
            }
        };
        self.stats.code_bytes += u64::from(size);
        self.functions[function].size = size;
        Ok(())
    }

    fn emit_bytes(
        &mut self,
        function: FuncId,
        alignment: u64,
        bytes: &[u8],
        relocs: &[ModuleReloc],
    ) -> ModuleResult<()> {
        let relocs: Vec<ModuleReloc> = relocs
            .iter()
            .map(|reloc| ModuleReloc { name: self.pointer_to(&reloc.name), ..reloc.clone() })
            .collect();
        for reloc in &relocs {
            if let ModuleRelocTarget::User { namespace, index } = reloc.name {
                self.observe_pointer(namespace, index);
            }
        }
        self.inner.define_function_bytes(function, alignment, bytes, &relocs)?;
        self.stats.code_bytes += bytes.len() as u64;
        self.functions[function].size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Ok(())
    }

    /// What a pointer to `target` should point to.
    pub(super) fn pointer_to(&self, target: &ModuleRelocTarget) -> ModuleRelocTarget {
        match target {
            ModuleRelocTarget::User { namespace, index } => {
                let name = UserExternalName::new(*namespace, *index);
                let to = self.redirected(&name, Self::address_target).unwrap_or(name);
                ModuleRelocTarget::user(to.namespace, to.index)
            }
            other => other.clone(),
        }
    }

    fn emit_data(
        &mut self,
        plan: &Plan,
        data: Vec<(DataId, DataDescription)>,
        unit: &mut Unit,
        back_end: BackEnd,
    ) -> ModuleResult<()> {
        for (id, mut description) in data {
            let index = unit.by_id[&id];
            let entry = plan.data_entry(index);
            if let Some(to) = self.data[id].body.expand() {
                if back_end == BackEnd::Object {
                    self.aliases.data.push((id, to));
                    let mut empty = DataDescription::new();
                    empty.define(Box::new([]));
                    self.inner.define_data(id, &empty)?;
                }
                continue;
            }
            let object = &mut unit.data[index.index()].2;
            description.init = init_of(&mut object.contents);
            if entry.reason() == crate::Reason::Representative {
                description.align = Some(entry.alignment());
            }
            for target in description.function_decls.values_mut() {
                *target = self.pointer_to(target);
            }
            for target in description.data_decls.values_mut() {
                *target = self.pointer_to(target);
            }
            let decls = description.function_decls.values().chain(description.data_decls.values());
            for target in decls {
                if let ModuleRelocTarget::User { namespace, index } = target {
                    self.observe_pointer(*namespace, *index);
                }
            }
            self.inner.define_data(id, &description)?;
        }
        Ok(())
    }
}

/// Compiles a function and defines it by its bytes, since `Module` has no other way to ask for an
/// alignment.
fn define_aligned(
    module: &mut impl Module,
    function: FuncId,
    alignment: u32,
    context: &mut Context,
    control_plane: &mut ControlPlane,
) -> ModuleResult<()> {
    let minimum = module.isa().function_alignment().minimum;
    context.compile(module.isa(), control_plane).map_err(|error| error.inner)?;
    let code = context.compiled_code().expect("compiled");
    let relocs = code.buffer.relocs().iter();
    let relocs: Vec<ModuleReloc> =
        relocs.map(|reloc| ModuleReloc::from_mach_reloc(reloc, &context.func, function)).collect();
    let alignment = u64::from(alignment.max(code.buffer.alignment).max(minimum));
    module.define_function_bytes(function, alignment, code.code_buffer(), &relocs)
}

/// With what a function is compiled.
struct With<'a> {
    /// The embedder's, if it wants to see the code.
    context: Option<&'a mut Context>,
    want_disasm: bool,
    control_plane: ControlPlane,
}

/// How functions that call are made on targets without a jump, all of which make tail calls.
const CALL_THUNKS: CallThunks = CallThunks { tail_calls: true, colocated: true };

/// A data object as the pass sees it, and whether that is all of it. The contents are taken out of
/// the description.
fn object_of(description: &mut DataDescription) -> (DataObject, bool) {
    let contents = match core::mem::replace(&mut description.init, Init::Uninitialized) {
        Init::Uninitialized => Contents::Zeros(0),
        Init::Zeros { size } => Contents::Zeros(size as u64),
        Init::Bytes { contents } => Contents::Bytes(contents.into_vec()),
    };
    let functions = description
        .function_relocs
        .iter()
        .map(|(offset, func_ref)| (*offset, &description.function_decls[*func_ref], 0));
    let data = description
        .data_relocs
        .iter()
        .map(|(offset, gv, addend)| (*offset, &description.data_decls[*gv], *addend));
    let mut relocations = Vec::new();
    let mut exact = true;
    for (offset, target, addend) in functions.chain(data) {
        match target {
            ModuleRelocTarget::User { namespace, index } => {
                let target = UserExternalName::new(*namespace, *index);
                relocations.push(DataReloc { offset, target, addend });
            }
            ModuleRelocTarget::LibCall(_)
            | ModuleRelocTarget::KnownSymbol(_)
            | ModuleRelocTarget::FunctionOffset(..) => exact = false,
        }
    }
    let section = description.custom_section.clone();
    (DataObject { contents, relocations, section }, exact)
}

/// The contents of a data object, taken back.
fn init_of(contents: &mut Contents) -> Init {
    match core::mem::replace(contents, Contents::Zeros(0)) {
        Contents::Zeros(size) => Init::Zeros { size: size as usize },
        Contents::Bytes(bytes) => Init::Bytes { contents: bytes.into_boxed_slice() },
    }
}

impl Pending {
    fn func(&self, unit: &Unit, function: FunctionIndex) -> &Function {
        match &self.functions[unit.place[function.index()]].1 {
            Definition::Body { func, .. } => func,
            Definition::Bytes { .. } => unreachable!("only functions with IR are in the unit"),
        }
    }
}

/// What is held back, as the pass asks for it.
struct Held<'a> {
    pending: &'a Pending,
    unit: &'a Unit,
    isa: &'a dyn TargetIsa,
    fresh: u32,
}

impl<'a> Held<'a> {
    fn function(&self, function: FunctionIndex) -> &'a Function {
        self.pending.func(self.unit, function)
    }

    fn size_of(&self, func: &Function) -> Option<u32> {
        let mut context = Context::for_function(func.clone());
        let code = context.compile(self.isa, &mut ControlPlane::default()).ok()?;
        Some(code.code_info().total_size)
    }
}

impl Bodies for Held<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        self.function(function)
    }

    fn data(&mut self, data: DataIndex) -> &DataObject {
        &self.unit.data[data.index()].2
    }

    fn code_size(&mut self, function: FunctionIndex) -> Option<u32> {
        self.size_of(self.function(function))
    }

    fn thunk_size(&mut self, _function: FunctionIndex, thunk: &Function) -> Option<u32> {
        self.size_of(thunk)
    }

    fn fresh_symbol(&mut self) -> Option<UserExternalName> {
        let symbol = UserExternalName::new(SHARED, self.fresh);
        self.fresh += 1;
        Some(symbol)
    }
}
