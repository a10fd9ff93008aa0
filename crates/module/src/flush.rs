//! A flush: the deferred definitions are planned, every symbol gets its place, and the functions
//! that are left are emitted (`emit`).
//!
//! The order of emission is that of the definitions, so the same calls give the same object. When a
//! step fails, nothing that comes after it is emitted, and the module refuses further use: bodies
//! into which functions were merged may be missing.

use crate::deferred::{Deferred, DeferredBodies};
use crate::{
    BackEnd, Definition, FunctionState, MergingModule, Pending, data_symbol, linkage, symbol,
};
use cranelift_codegen::ir::UserExternalName;
use cranelift_codegen::isa::TargetIsa;
use cranelift_entity::EntityRef;
use cranelift_mergefunc::across::ContentAddressing;
use cranelift_mergefunc::data::{Contents, DataAttributes, DataIndex, DataObject, DataReloc};
use cranelift_mergefunc::explain::Recorded;
use cranelift_mergefunc::incremental::Increment;
use cranelift_mergefunc::{
    AddError, Addresses, Attributes, Disposition, ExtraArgument, FunctionIndex, Linkage, Merger,
    NewBody, Options, Plan, Reason, Similar,
};
use cranelift_module::{
    DataDescription, DataId, FuncId, Init, Module, ModuleError, ModuleReloc, ModuleRelocTarget,
    ModuleResult,
};
use rustc_hash::FxBuildHasher;
use std::collections::HashMap;

/// The namespace of bodies that a plan adds. The module's own are 0 and 1.
pub(crate) const ADDED: u32 = u32::MAX;

/// The settings of a flush.
#[derive(Clone, Copy)]
pub(crate) struct Flush {
    pub back_end: BackEnd,
    /// Whether nothing was flushed before, so that nothing is eliminated yet.
    pub first: bool,
    /// Whether nothing is defined afterwards.
    pub last: bool,
}

/// The deferred definitions, as the pass sees them.
pub(crate) struct Unit {
    /// The functions that have IR, by `FunctionIndex`.
    pub functions: Vec<(FuncId, Attributes)>,
    /// The position of each in `Pending::functions`.
    pub place: Vec<usize>,
    pub data: Vec<(DataId, DataAttributes, DataObject)>,
    pub by_id: HashMap<DataId, DataIndex, FxBuildHasher>,
}

impl<M: Module> MergingModule<M> {
    /// Merges and defines the deferred functions and data, for the back end of the first flush.
    pub(crate) fn flush_to(&mut self, back_end: BackEnd, last: bool) -> ModuleResult<()> {
        self.check_usable()?;
        let pending = std::mem::take(&mut self.pending);
        if pending.functions.is_empty() && pending.data.is_empty() {
            return Ok(());
        }
        let first = self.stats.flushes == 0;
        self.stats.flushes += 1;
        let back_end = *self.progress.back_end.get_or_insert(back_end);
        let last = last || back_end == BackEnd::Object;
        let done = self.flush_all(pending, Flush { back_end, first, last });
        (self.progress.broken, self.progress.complete) = (done.is_err(), last && done.is_ok());
        done
    }

    fn flush_all(&mut self, mut pending: Pending, flush: Flush) -> ModuleResult<()> {
        let back_end = flush.back_end;
        let mut unit = self.unit(&mut pending, back_end);
        let mut recorded = std::mem::take(&mut self.passes.recorded);
        let planned = self.plan(&pending, &unit, flush, &mut recorded);
        self.passes.recorded = recorded;
        let (plan, increment) = planned?;
        self.declare_new_bodies(&plan)?;
        self.place_late_thunks(&plan);
        self.place_functions(&plan, &pending, &unit, back_end)?;
        self.place_data(&plan, &unit, back_end)?;
        if back_end == BackEnd::Object {
            self.name_shared_references(&plan, &pending, &unit)?;
        }
        self.emit_functions(&plan, &mut pending, &unit)?;
        self.emit_data(&plan, pending.data, &mut unit, back_end)?;
        if let Some(increment) = &increment {
            self.passes.emitted.extend(increment);
        }
        self.passes.stats = *plan.stats();
        if let Some(Err(refutation)) = plan.proof() {
            self.stats.refuted += 1;
            self.passes.refutation = Some(refutation.clone());
        }
        Ok(())
    }

    /// The deferred definitions, with their present attributes.
    fn unit(&mut self, pending: &mut Pending, back_end: BackEnd) -> Unit {
        for (function, definition) in &pending.functions {
            if let Definition::Bytes { relocs, .. } = definition {
                self.observe_relocs(*function, relocs);
            }
        }
        let mut functions = Vec::new();
        let mut place = Vec::new();
        for (at, (function, definition)) in pending.functions.iter().enumerate() {
            if let Definition::Body { func, .. } = definition {
                let mut attributes = self.view().attributes_of(*function);
                let declaration = self.inner.declarations().get_function_decl(*function);
                // Later code that calls it by its declaration calls it with a mismatched signature.
                attributes.externally_called |= func.signature != declaration.signature;
                match back_end {
                    // An unknown module wants code for every function. There is no local name by
                    // which the near address of one could be that of another one, which may be
                    // exported.
                    BackEnd::Any => {
                        attributes.externally_called = true;
                        attributes.addresses = Addresses::Significant;
                    }
                    BackEnd::Jit => {
                        // A JIT finds a symbol only where there is code.
                        if attributes.externally_called {
                            attributes.addresses = Addresses::Significant;
                            attributes.address_taken = true;
                        }
                        attributes.linkage = in_jit(attributes.linkage, attributes.addresses);
                    }
                    BackEnd::Object => {}
                }
                functions.push((*function, attributes));
                place.push(at);
            }
        }
        let mut data = Vec::new();
        let mut by_id = HashMap::default();
        for (id, description) in &mut pending.data {
            let mut attributes = self.data_attributes_of(*id, description);
            let (object, exact) = object_of(description);
            let needs_symbol = back_end == BackEnd::Jit && attributes.externally_used;
            if !exact || needs_symbol || back_end == BackEnd::Any {
                attributes.addresses = Addresses::Significant;
            }
            if back_end == BackEnd::Jit {
                attributes.linkage = in_jit(attributes.linkage, attributes.addresses);
            }
            by_id.insert(*id, DataIndex::new(data.len()));
            data.push((*id, attributes, object));
        }
        Unit { functions, place, data, by_id }
    }

    /// Functions to which code given as bytes refers: whether by calls or by addresses is not
    /// known.
    fn observe_relocs(&mut self, function: FuncId, relocs: &[ModuleReloc]) {
        for reloc in relocs {
            match &reloc.name {
                ModuleRelocTarget::User { namespace: 0, index } => {
                    self.symbols.functions[FuncId::from_u32(*index)].address_held = true;
                }
                // Offsets are only valid in the very code in which they were found.
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

    pub(crate) fn data_attributes_of(
        &self,
        data: DataId,
        description: &DataDescription,
    ) -> DataAttributes {
        let defaults =
            DataAttributes { addresses: self.options.data_addresses, ..DataAttributes::default() };
        let attributes = self.symbols.data_attributes.get(&data).copied().unwrap_or(defaults);
        let declaration = self.inner.declarations().get_data_decl(data);
        let align = description.align.unwrap_or(1).max(self.inner.isa().symbol_alignment());
        DataAttributes {
            linkage: linkage(declaration.linkage),
            writable: declaration.writable,
            tls: declaration.tls,
            pinned: attributes.pinned || description.used,
            externally_used: attributes.externally_used || self.symbols.data[data].used,
            alignment: align,
            ..attributes
        }
    }

    /// Whether a reference to a data object that was defined equals a reference to an equal one.
    pub(crate) fn is_compared_by_class(&self, data: DataId) -> bool {
        self.data_attributes_of(data, &DataDescription::new()).by_class()
    }

    /// Whether a data object may be merged or refers to what may be, so that it cannot be defined
    /// before the flush.
    pub(crate) fn must_wait(&self, data: DataId, description: &DataDescription) -> bool {
        let refers = !description.function_relocs.is_empty() || !description.data_relocs.is_empty();
        refers || self.data_attributes_of(data, description).by_class()
    }

    fn plan(
        &self,
        pending: &Pending,
        unit: &Unit,
        flush: Flush,
        recorded: &mut Recorded,
    ) -> ModuleResult<(Plan, Option<Increment>)> {
        let Flush { back_end, first, last } = flush;
        // Such as an invalid alignment.
        let refused = |error: AddError| ModuleError::Backend(anyhow::anyhow!("{error}"));
        let isa = self.inner.isa();
        let options = Options {
            content_addressing: self.content_addressing(isa, back_end),
            ..self.pass_options(back_end)
        };
        // An incremental run must walk every function, which does not pay if functions are not
        // merged over flushes. Functions that earlier flushes eliminated are known anyway.
        let remembers = self.options.remember && !(first && last);
        let mut merger = match (remembers, first) {
            (true, _) => Merger::after(&self.passes.emitted, options),
            (false, false) => Merger::after_without_merging(&self.passes.emitted, options),
            (false, true) => Merger::new(options),
        };
        merger.reserve(unit.functions.len());
        let fresh = self.symbols.added.len() as u32;
        let deferred = Deferred { pending, unit };
        #[cfg(feature = "parallel")]
        let is_parallel = self.codegen.is_some();
        #[cfg(not(feature = "parallel"))]
        let is_parallel = false;
        let declarations = self.inner.declarations();
        let mut bodies = DeferredBodies { deferred, declarations, fresh, is_parallel };
        for (index, (function, attributes)) in unit.functions.iter().enumerate() {
            let func = deferred.function(FunctionIndex::new(index));
            merger.add(symbol(*function), func, *attributes).map_err(refused)?;
        }
        for (data, attributes, object) in &unit.data {
            merger.add_data(data_symbol(*data), object, *attributes).map_err(refused)?;
        }
        for (_, definition) in &pending.functions {
            if let Definition::Bytes { relocs, .. } = definition {
                for reloc in relocs {
                    if let ModuleRelocTarget::User { namespace, index } = reloc.name {
                        merger.add_address_use(&UserExternalName::new(namespace, index));
                    }
                }
            }
        }
        let (plan, increment) = match last {
            true => (merger.plan(&mut bodies), None),
            false => {
                let (plan, increment) = merger.plan_increment(&mut bodies);
                (plan, Some(increment))
            }
        };
        if self.options.backtraces {
            recorded.add_unit(&plan, &mut bodies, &options);
        }
        Ok((plan, increment))
    }

    fn pass_options(&self, back_end: BackEnd) -> Options<'_> {
        let merged = self.stats.merged() + self.stats.merged_data_objects;
        let target = match back_end {
            BackEnd::Jit => self.target.in_jit(),
            BackEnd::Any | BackEnd::Object => self.target,
        };
        Options {
            compare: self.options.compare,
            target,
            aliases: back_end == BackEnd::Object && self.options.aliases,
            similar: Similar {
                keep_symbols: self.options.similar.keep_symbols || back_end == BackEnd::Jit,
                ..self.options.similar
            },
            interposition: back_end == BackEnd::Object && self.view().is_elf(),
            prove: self.options.prove,
            // For planning only, since it takes a digest of all settings.
            content_addressing: None,
            merge_limit: self
                .options
                .merge_limit
                .map(|limit| limit.saturating_sub(u32::try_from(merged).unwrap_or(u32::MAX))),
        }
    }

    /// Only where symbols can be defined in other units.
    fn content_addressing(
        &self,
        isa: &dyn TargetIsa,
        back_end: BackEnd,
    ) -> Option<ContentAddressing<'_>> {
        let asked_for = self.options.content_addressed && back_end == BackEnd::Object;
        let sharing_map = self.sharing_map.as_deref();
        asked_for.then(|| ContentAddressing::of(isa).with_map(sharing_map))
    }

    /// Declares the functions that the plan adds to the module.
    fn declare_new_bodies(&mut self, plan: &Plan) -> ModuleResult<()> {
        for new in plan.new_bodies() {
            let function = self.declare_new_body(new)?;
            // Not every symbol that was handed out was needed, and they come in any order.
            let index = plan.entry(new.function()).symbol().index as usize;
            if self.symbols.added.len() <= index {
                self.symbols.added.resize(index + 1, function);
            }
            self.symbols.added[index] = function;
            self.stats.new_bodies += 1;
            self.symbols.functions[function].defined = true;
        }
        Ok(())
    }

    /// Declares one of them, and the name of a content-addressed one, of which the linker keeps one
    /// copy of those in all objects. In ELF, such a body has a local symbol in addition, for unwind
    /// information, which linkers drop with the copy that it is for.
    fn declare_new_body(&mut self, new: &NewBody) -> ModuleResult<FuncId> {
        let signature = &new.body().signature;
        let Some(digest) = new.content_digest() else {
            return self.inner.declare_anonymous_function(signature);
        };
        let (name, linkage) = (digest.to_string(), cranelift_module::Linkage::Hidden);
        let name = self.inner.declare_function(&name, linkage, signature)?;
        self.aliases.contents.push(name);
        if !self.view().is_elf() {
            return Ok(name);
        }
        let body = self.inner.declare_anonymous_function(signature)?;
        self.name_body(body, name)?;
        Ok(body)
    }

    /// Sets the place of every function, before any reference to it is emitted.
    fn place_functions(
        &mut self,
        plan: &Plan,
        pending: &Pending,
        unit: &Unit,
        back_end: BackEnd,
    ) -> ModuleResult<()> {
        for (index, (function, attributes)) in unit.functions.iter().enumerate() {
            let index = FunctionIndex::new(index);
            let disposition = plan.entry(index).disposition();
            self.symbols.functions[*function].reason = Some(plan.entry(index).reason());
            let Some(to) = disposition.representative() else {
                continue;
            };
            let body = self.view().id_of(plan.entry(to).symbol());
            if back_end == BackEnd::Object {
                self.give_local_name(body)?;
            }
            self.symbols.functions[body].replaces_others = true;
            let extra = plan.thunk_arguments(index);
            let name = |symbol: &UserExternalName| match symbol.namespace {
                ADDED => Some(crate::symbol(self.view().local_name(self.view().id_of(symbol)))),
                _ => None,
            };
            let extra: Vec<ExtraArgument> =
                extra.iter().map(|extra| extra.redirected(&name)).collect();
            // Thunks pass these now, and later callers may.
            for UserExternalName { namespace, index } in
                extra.iter().filter_map(ExtraArgument::symbol)
            {
                self.symbols.observe_pointer(*namespace, *index);
            }
            let flushes = self.stats.flushes as u32;
            let state = &mut self.symbols.functions[*function];
            state.disposition = disposition.map(|_| body);
            state.flush = flushes;
            state.preemptible = plan.call_target(index) == index && extra.is_empty();
            state.extra = extra;
            debug_assert!(!state.preemptible || attributes.linkage == Linkage::Preemptible);
            self.view()
                .check_eliminated(*function, attributes)
                .inspect_err(|_| self.progress.failed = Some(*function))?;
        }
        match back_end {
            BackEnd::Object => self.name_passed_functions(plan, pending, unit)?,
            // There is no local name by which the address of a function could stay near. It is
            // passed in place of a callee that may be exported.
            BackEnd::Any if self.view().is_elf() => {
                for (function, _) in &unit.functions {
                    self.symbols.clear_colocated_arguments(*function);
                }
            }
            BackEnd::Any | BackEnd::Jit => {}
        }
        Ok(())
    }

    /// Makes thunks of functions that earlier flushes eliminated and that need code now.
    fn place_late_thunks(&mut self, plan: &Plan) {
        for late in plan.late_thunks() {
            let symbol = plan.entry(late.function).symbol();
            self.place_late_thunk(FuncId::from_u32(symbol.index));
        }
    }

    /// Turns a function without code into a thunk.
    fn place_late_thunk(&mut self, function: FuncId) {
        let state = &mut self.symbols.functions[function];
        let to = match state.disposition {
            Disposition::Alias { to } => {
                self.stats.aliases -= 1;
                to
            }
            Disposition::Redirect { to } => {
                self.stats.redirects -= 1;
                to
            }
            Disposition::Keep | Disposition::Thunk { to: _ } => unreachable!("it has code"),
        };
        state.disposition = Disposition::Thunk { to };
        state.reason = Some(Reason::AddressTaken);
    }

    /// Defines a function that [`MergingModule::place_late_thunk`] made a thunk.
    pub(crate) fn emit_late_thunk(&mut self, plan: &Plan, function: FuncId) -> ModuleResult<()> {
        let body = self.symbols.functions[function].disposition.representative();
        let body = body.expect("an eliminated function has a body");
        let declaration = self.inner.declarations().get_function_decl(function);
        let signature = declaration.signature.clone();
        let alignment = self.view().attributes_of(function).alignment;
        self.emit_thunk(plan, function, &signature, alignment, self.view().local_name(body))
            .inspect_err(|_| self.progress.failed = Some(function))?;
        self.stats.thunks += 1;
        self.stats.saved_code_bytes -= i64::from(self.symbols.functions[function].size);
        Ok(())
    }

    /// Defines the functions that have no code left, because an object needs a definition of every
    /// function that was declared as defined. To be called once, after the flush.
    pub(crate) fn define_eliminated(&mut self) -> ModuleResult<()> {
        if self.progress.back_end != Some(BackEnd::Object) {
            return Ok(());
        }
        let without_code = |(function, state): (FuncId, &FunctionState)| match state.disposition {
            Disposition::Alias { to } | Disposition::Redirect { to } => Some((function, to)),
            Disposition::Keep | Disposition::Thunk { to: _ } => None,
        };
        let without_code: Vec<(FuncId, FuncId)> =
            self.symbols.functions.iter().filter_map(without_code).collect();
        for (function, body) in without_code {
            // A body that takes extra arguments may not replace the function, so its address cannot
            // be the symbol's. Nor can that of a body of which the linker may keep another copy.
            // (Ascending: they were declared in their order.)
            let name = self.view().local_name(body);
            let is_content = self.aliases.contents.binary_search(&name).is_ok();
            if self.symbols.functions[function].extra.is_empty() && !is_content {
                self.aliases.functions.push((function, body));
            }
            self.inner.define_function_bytes(function, 1, &[], &[])?;
        }
        self.view().check_aliases(&self.aliases)
    }

    fn place_data(&mut self, plan: &Plan, unit: &Unit, back_end: BackEnd) -> ModuleResult<()> {
        for (index, (data, _, object)) in unit.data.iter().enumerate() {
            let entry = plan.data_entry(DataIndex::new(index));
            self.symbols.data[*data].reason = Some(entry.reason());
            let Some(to) = entry.disposition().representative() else {
                continue;
            };
            let to = DataId::from_u32(plan.data_entry(to).symbol().index);
            if back_end == BackEnd::Object {
                self.give_local_data_name(to)?;
            }
            self.symbols.data[to].replaces_others = true;
            let flushes = self.stats.flushes as u32;
            let state = &mut self.symbols.data[*data];
            state.disposition = entry.disposition().map(|_| to);
            state.flush = flushes;
            self.view().check_eliminated_data(*data, entry.attributes())?;
            self.stats.merged_data_objects += 1;
            self.stats.saved_data_bytes += object.contents.size();
        }
        Ok(())
    }
}

/// The linkage of a function or data object of a JIT. No other definition takes a symbol, and the
/// wrapper resolves references from outside: only a significant address must be that of the symbol.
fn in_jit(linkage: Linkage, addresses: Addresses) -> Linkage {
    match (linkage, addresses) {
        (Linkage::Local, _) | (_, Addresses::Insignificant) => Linkage::Local,
        (Linkage::Hidden | Linkage::Export | Linkage::Preemptible, Addresses::Significant) => {
            Linkage::Export
        }
    }
}

/// A data object as the pass sees it, and whether that is all of it. The contents are taken out of
/// the description.
fn object_of(description: &mut DataDescription) -> (DataObject, bool) {
    let contents = match std::mem::replace(&mut description.init, Init::Uninitialized) {
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
