//! Emission: the result of a flush's plan goes into the wrapped module. `body` has what is compiled.
//!
//! Every function is defined once: by a body, by the bytes of a jump, by no bytes at all (its symbol gets another
//! address later), or not. All references to functions and data are redirected to where these are now. Nothing is
//! decided here.

use super::body::{Body, Code};
use super::flush::{ADDED, Flush, Unit};
use super::view::View;
use super::{
    BackEnd, DataState, Definition, FunctionState, MergingModule, Pending, data_symbol, symbol,
};
use crate::apply::Thunk;
use crate::extra_argument::{CallTarget, ExtraArgument};
use crate::plan::{Emit, NewBody, Output, Plan};
use crate::target::{CallThunks, ThunkReloc};
use crate::unit::{Contents, FunctionIndex};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
#[cfg(feature = "parallel")]
use cranelift_codegen::ir::Function;
use cranelift_codegen::ir::{Signature, UserExternalName};
use cranelift_entity::EntityRef;
use cranelift_module::{
    DataDescription, DataId, FuncId, Init, Module, ModuleReloc, ModuleRelocTarget, ModuleResult,
};

/// On behalf of how many functions or objects code or data refers to others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Referrer {
    /// Of one function or data object: its references can be interposed as they are written there.
    One,
    /// Of several, each of which refers to an equal function or object of its own: no reference may go through a
    /// symbol that another definition can take.
    Several,
    /// Of functions of several units, which know no more of what other units can see than its symbol.
    Units,
}

impl Referrer {
    pub(super) fn of(replaces_others: bool) -> Referrer {
        if replaces_others { Referrer::Several } else { Referrer::One }
    }
}

/// What is emitted for one definition, or for a body that the plan adds.
pub(super) struct Item {
    function: FuncId,
    work: Work,
}

enum Work {
    Bytes {
        alignment: u64,
        bytes: Vec<u8>,
        relocs: Vec<ModuleReloc>,
    },
    /// A function that is kept.
    Body(Body),
    /// A function that was merged away.
    Merged(Body),
    /// A body that the plan adds.
    Added(Body),
}

impl Item {
    fn new(plan: &Plan, function: FuncId, definition: Definition, next: &mut usize) -> Item {
        let work = match definition {
            Definition::Bytes { alignment, bytes, relocs } => {
                Work::Bytes { alignment, bytes, relocs }
            }
            Definition::Body { func, want_disasm, control_plane } => {
                let index = FunctionIndex::new(*next);
                *next += 1;
                let body = Body { index, code: Code::Ir(func), want_disasm, control_plane };
                match plan.output(index).emit {
                    Emit::Body | Emit::NewBody(_) => Work::Body(body),
                    Emit::Thunk { .. } | Emit::Alias { .. } | Emit::Nothing => Work::Merged(body),
                }
            }
        };
        Item { function, work }
    }

    fn added(new: &NewBody, function: FuncId) -> Item {
        let body = Body {
            index: new.function(),
            code: Code::Added,
            want_disasm: false,
            control_plane: ControlPlane::default(),
        };
        Item { function, work: Work::Added(body) }
    }

    /// The body that is to be compiled, or the thunk.
    #[cfg(feature = "parallel")]
    pub(super) fn body(&mut self) -> Option<(FuncId, &mut Body)> {
        match &mut self.work {
            Work::Body(body) | Work::Added(body) => Some((self.function, body)),
            Work::Merged(body) if matches!(body.code, Code::Thunk(_)) => {
                Some((self.function, body))
            }
            Work::Bytes { .. } | Work::Merged(_) => None,
        }
    }
}

#[cfg(feature = "parallel")]
impl<M: Module> MergingModule<M> {
    /// Puts the thunk of a function that was merged away in its place, if that is IR to be compiled. Returns what was
    /// defined, if it is not needed any more.
    pub(super) fn without_ir(
        &self,
        plan: &Plan,
        item: &mut Item,
        takes: impl Fn(&Function) -> bool,
    ) -> ModuleResult<Option<Box<Function>>> {
        let Item { function, work: Work::Merged(body) } = item else {
            return Ok(None);
        };
        let Code::Ir(func) = &body.code else {
            return Ok(None);
        };
        let code = match plan.output(body.index).emit {
            Emit::Thunk { to, .. } => {
                let to = self.view().local_name(self.view().id_of(to));
                match self.thunk(*function, &func.signature, to)? {
                    Thunk::Function(thunk) if takes(&thunk) => Code::Thunk(thunk),
                    Thunk::Function(_) | Thunk::Code(_) => return Ok(None),
                }
            }
            Emit::Body | Emit::NewBody(_) | Emit::Alias { .. } | Emit::Nothing => Code::Dropped,
        };
        match core::mem::replace(&mut body.code, code) {
            Code::Ir(func) => Ok(Some(func)),
            _ => unreachable!("it was IR"),
        }
    }
}

impl<M: Module> MergingModule<M> {
    pub(super) fn emit_functions(
        &mut self,
        plan: &Plan,
        pending: &mut Pending,
        unit: &Unit,
        flush: Flush,
    ) -> ModuleResult<()> {
        for late in plan.late_thunks() {
            let function = self.view().id_of(plan.entry(late.function).symbol());
            self.emit_late_thunk(function)?;
        }
        let mut next = 0;
        let definitions = core::mem::take(&mut pending.functions).into_iter();
        let given = definitions
            .map(|(function, definition)| Item::new(plan, function, definition, &mut next));
        let id = |new: &NewBody| self.view().id_of(plan.entry(new.function()).symbol());
        let ids: Vec<FuncId> = plan.new_bodies().iter().map(id).collect();
        let added = plan.new_bodies().iter().zip(ids);
        let added = added.map(|(new, function)| Item::added(new, function));
        let mut items = given.chain(added);
        #[cfg_attr(
            not(feature = "parallel"),
            expect(clippy::while_let_on_iterator, reason = "a chunk takes further items")
        )]
        while let Some(first) = items.next() {
            #[cfg(feature = "parallel")]
            let chunk = self.next_chunk(plan, flush, first, &mut items);
            #[cfg(not(feature = "parallel"))]
            let chunk = [first];
            for Item { function, work } in chunk {
                self.emit(plan, function, work, flush)
                    .inspect_err(|_| self.failed = Some(function))?;
            }
        }
        // Sizes of bodies are known by now.
        for (function, _) in &unit.functions {
            let FunctionState { disposition, size, .. } = self.functions[*function];
            if let Some(body) = disposition.representative() {
                let body = self.functions[body].size;
                self.stats.saved_code_bytes += i64::from(body) - i64::from(size);
            }
        }
        Ok(())
    }

    fn emit(
        &mut self,
        plan: &Plan,
        function: FuncId,
        work: Work,
        flush: Flush,
    ) -> ModuleResult<()> {
        match work {
            Work::Bytes { alignment, bytes, relocs } => {
                self.emit_bytes(function, alignment, &bytes, &relocs)
            }
            Work::Body(body) => {
                self.stats.functions += 1;
                self.emit_body(plan, function, body, flush)
            }
            Work::Merged(body) => {
                self.stats.functions += 1;
                self.emit_merged(plan, function, body)
            }
            Work::Added(body) => {
                self.emit_body(plan, function, body, flush)?;
                self.stats.saved_code_bytes -= i64::from(self.functions[function].size);
                Ok(())
            }
        }
    }

    fn emit_merged(&mut self, plan: &Plan, function: FuncId, body: Body) -> ModuleResult<()> {
        let Output { emit, alignment, .. } = plan.output(body.index);
        let signature = match body.code {
            Code::Ir(func) => Some(func.stencil.signature),
            Code::Added => unreachable!("it was defined"),
            #[cfg(feature = "parallel")]
            Code::Compiled(_, compiled) => {
                self.stats.thunks += 1;
                let compiled = compiled?;
                self.define_compiled(function, alignment, &compiled)?;
                self.add_code(function, compiled.size());
                return Ok(());
            }
            #[cfg(feature = "parallel")]
            Code::Panicked(panic) => std::panic::resume_unwind(panic),
            #[cfg(feature = "parallel")]
            Code::Thunk(_) => unreachable!("nothing is emitted after an error"),
            #[cfg(feature = "parallel")]
            Code::Dropped => None,
        };
        match emit {
            Emit::Body | Emit::NewBody(_) => unreachable!("a kept function has its own body"),
            Emit::Thunk { to, .. } => {
                self.stats.thunks += 1;
                let to = self.view().local_name(self.view().id_of(to));
                let signature = signature.expect("a thunk that is not compiled yet has IR");
                self.emit_thunk(function, &signature, alignment, to)
            }
            Emit::Nothing => {
                self.stats.redirects += 1;
                Ok(())
            }
            Emit::Alias { .. } => {
                self.stats.aliases += 1;
                Ok(())
            }
        }
    }

    /// Records that emitted code or data points to something. If it is not defined yet, it must keep its symbol.
    pub(super) fn observe_pointer(&mut self, namespace: u32, index: u32) {
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

    pub(super) fn emit_thunk(
        &mut self,
        function: FuncId,
        signature: &Signature,
        alignment: u32,
        to: FuncId,
    ) -> ModuleResult<()> {
        let size = match self.thunk(function, signature, to)? {
            Thunk::Code(code) => {
                let size = code.size();
                let minimum = self.inner.isa().function_alignment().minimum;
                let alignment = u64::from(alignment.max(minimum));
                let relocs = code.relocations.into_iter().map(|relocation| {
                    let ThunkReloc { offset, kind, symbol, addend } = relocation;
                    let name = ModuleRelocTarget::user(symbol.namespace, symbol.index);
                    ModuleReloc { offset, kind, name, addend }
                });
                let relocs: Vec<ModuleReloc> = relocs.collect();
                self.inner.define_function_bytes(function, alignment, &code.bytes, &relocs)?;
                size
            }
            Thunk::Function(thunk) => {
                let mut context = Context::for_function(*thunk);
                let mut plane = ControlPlane::default();
                self.define(function, alignment, &mut context, &mut plane)?;
                context.compiled_code().map_or(0, |code| code.code_info().total_size)
            }
        };
        self.add_code(function, size);
        Ok(())
    }

    /// The thunk of a function, which leads to `to`.
    fn thunk(&self, function: FuncId, signature: &Signature, to: FuncId) -> ModuleResult<Thunk> {
        let extra = self.view().extra(&symbol(function));
        let (own, to) = (symbol(function), symbol(to));
        let mut named = extra.iter().filter_map(ExtraArgument::symbol).chain([&to]);
        named.try_for_each(|name| self.view().check_leads(&own, name))?;
        let call_thunks = CallThunks::of(self.inner.isa());
        // As the plan of this flush, which counted its bytes.
        let optimize = self.options.similar.policy.optimize_for();
        Ok(Thunk::new(&own, signature, &extra, &to, &self.target, optimize, &call_thunks))
    }

    /// Counts the code that was emitted for a function.
    fn add_code(&mut self, function: FuncId, size: u32) {
        self.stats.code_bytes += u64::from(size);
        self.functions[function].size = size;
    }

    fn emit_bytes(
        &mut self,
        function: FuncId,
        alignment: u64,
        bytes: &[u8],
        relocs: &[ModuleReloc],
    ) -> ModuleResult<()> {
        let before = relocs;
        let relocs: Vec<ModuleReloc> = before
            .iter()
            .map(|reloc| ModuleReloc { name: self.pointer_to(&reloc.name), ..reloc.clone() })
            .collect();
        if self.view().audits() {
            let mut pairs = before.iter().zip(&relocs);
            let found = pairs.try_for_each(|(before, after)| {
                self.view().check_pointer(&before.name, &after.name)
            });
            self.view().audited(&symbol(function), found)?;
        }
        for reloc in &relocs {
            self.view().check_pointer_leads(&symbol(function), &reloc.name)?;
            if let ModuleRelocTarget::User { namespace, index } = reloc.name {
                self.observe_pointer(namespace, index);
            }
        }
        self.inner.define_function_bytes(function, alignment, bytes, &relocs)?;
        self.stats.code_bytes += bytes.len() as u64;
        self.functions[function].size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Ok(())
    }

    /// The target that replaces `target` in a pointer.
    pub(super) fn pointer_to(&self, target: &ModuleRelocTarget) -> ModuleRelocTarget {
        self.view().retargeted(target, Referrer::One)
    }

    pub(super) fn emit_data(
        &mut self,
        plan: &Plan,
        data: Vec<(DataId, DataDescription)>,
        unit: &mut Unit,
        flush: Flush,
    ) -> ModuleResult<()> {
        for (id, mut description) in data {
            let index = unit.by_id[&id];
            let entry = plan.data_entry(index);
            if let Some(to) = self.data[id].disposition.representative() {
                if flush.back_end == BackEnd::Object {
                    self.aliases.data.push((id, to));
                    let mut empty = DataDescription::new();
                    empty.define(Box::new([]));
                    self.inner.define_data(id, &empty)?;
                }
                continue;
            }
            let (_, attributes, object) = &mut unit.data[index.index()];
            description.init = init_of(&mut object.contents);
            // An object that is kept may also be used in place of its equals.
            if entry.alignment() > attributes.alignment {
                description.align = Some(entry.alignment());
            }
            let is_representative = entry.reason() == crate::plan::Reason::Representative;
            let referrer = Referrer::of(is_representative || self.data[id].replaces_others);
            let functions = description.function_decls.values_mut();
            for target in functions.chain(description.data_decls.values_mut()) {
                let before = core::mem::replace(target, self.view().retargeted(target, referrer));
                if self.view().audits() {
                    self.view()
                        .audited(&data_symbol(id), self.view().check_pointer(&before, target))?;
                    if let ModuleRelocTarget::User { namespace, index } = *target
                        && referrer == Referrer::Several
                    {
                        let target = UserExternalName::new(namespace, index);
                        let checked =
                            self.view().check_shared_symbol(&target, true, flush, flush.remember);
                        self.view().audited(&data_symbol(id), checked)?;
                    }
                }
            }
            let decls = description.function_decls.values().chain(description.data_decls.values());
            for target in decls {
                self.view().check_pointer_leads(&data_symbol(id), target)?;
                if let ModuleRelocTarget::User { namespace, index } = target {
                    self.observe_pointer(*namespace, *index);
                }
            }
            self.inner.define_data(id, &description)?;
        }
        Ok(())
    }
}

impl View<'_> {
    /// The target of a call of `name`, if it changes, and the extra arguments that the call passes.
    pub(super) fn called(&self, name: &UserExternalName, referrer: Referrer) -> Option<CallTarget> {
        if name.namespace != 0 {
            let symbol = self.addressed(name, referrer)?;
            return Some(CallTarget { symbol, arguments: Arc::default() });
        }
        let function = FuncId::from_u32(name.index);
        let linkage = self.declarations.get_function_decl(function).linkage;
        if referrer == Referrer::Units {
            if linkage != cranelift_module::Linkage::Local {
                return None;
            }
            // Other units do not have its thunk, if it is one, but they have its target.
            let body = self.functions[function].disposition.representative();
            return body.map(|body| {
                let symbol = symbol(self.local_name(body));
                CallTarget { symbol, arguments: self.extra(name).into() }
            });
        }
        if let Some(body) = self.call_target(function) {
            return Some(CallTarget { symbol: symbol(body), arguments: self.extra(name).into() });
        }
        match referrer {
            Referrer::One | Referrer::Units => None,
            // By a local name, whose code passes the extra arguments.
            Referrer::Several => self
                .local_names
                .get(&function)
                .map(|&name| CallTarget { symbol: symbol(name), arguments: Arc::default() }),
        }
    }

    /// The symbol whose address replaces the address of `name`, if it changes.
    pub(super) fn addressed(
        &self,
        name: &UserExternalName,
        referrer: Referrer,
    ) -> Option<UserExternalName> {
        let UserExternalName { namespace, index } = *name;
        match namespace {
            0 => {
                let function = FuncId::from_u32(index);
                let target = match referrer {
                    Referrer::One | Referrer::Units => self.address_target(function),
                    Referrer::Several => self.shared_address_target(function),
                };
                target.map(symbol)
            }
            1 => {
                let data = DataId::from_u32(index);
                let target = match referrer {
                    Referrer::One | Referrer::Units => self.data_target(data),
                    Referrer::Several => self.shared_data_target(data),
                };
                target.map(data_symbol)
            }
            ADDED => Some(symbol(self.local_name(self.id_of(name)))),
            _ => None,
        }
    }

    /// Extra arguments as they are passed now. It is not known any more which functions pass them, and under which
    /// names these referred to them: they may have named a function that was merged into the one that an argument
    /// names.
    pub(super) fn passed(&self, arguments: &[ExtraArgument]) -> Vec<ExtraArgument> {
        let address = |name: &UserExternalName| self.addressed(name, Referrer::Several);
        arguments.iter().map(|argument| argument.redirected(&address)).collect()
    }

    /// The extra arguments that the body of a function receives.
    fn extra(&self, name: &UserExternalName) -> Vec<ExtraArgument> {
        if name.namespace != 0 {
            return Vec::new();
        }
        self.passed(&self.functions[FuncId::from_u32(name.index)].extra)
    }

    fn retargeted(&self, target: &ModuleRelocTarget, referrer: Referrer) -> ModuleRelocTarget {
        match target {
            ModuleRelocTarget::User { namespace, index } => {
                let name = UserExternalName::new(*namespace, *index);
                let to = self.addressed(&name, referrer).unwrap_or(name);
                ModuleRelocTarget::user(to.namespace, to.index)
            }
            other => other.clone(),
        }
    }
}

/// The contents of a data object, as they were given.
fn init_of(contents: &mut Contents) -> Init {
    match core::mem::replace(contents, Contents::Zeros(0)) {
        Contents::Zeros(size) => Init::Zeros { size: size as usize },
        Contents::Bytes(bytes) => Init::Bytes { contents: bytes.into_boxed_slice() },
    }
}
