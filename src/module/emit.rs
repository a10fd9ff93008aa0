//! Emission: the result of a flush's plan goes into the wrapped module.
//!
//! Every function is defined once: by a body, by the bytes of a jump, by no bytes at all (its symbol gets another
//! address later), or not. All references to functions and data are redirected to where these are now. Nothing is
//! decided here.

use super::audit::Names;
use super::flush::{ADDED, Flush, Unit};
use super::{
    BackEnd, DataState, Definition, FunctionState, MergingModule, Pending, data_symbol, symbol,
};
use crate::apply::{CallTarget, call_thunk, redirect};
use crate::extra_argument::ExtraArgument;
use crate::ir::{address_uses, user_symbol};
use crate::plan::{Emit, Plan};
use crate::target::{CallThunks, ThunkReloc};
use crate::unit::{Contents, FunctionIndex};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{Function, GlobalValueData, Signature, UserExternalName, UserFuncName};
use cranelift_entity::EntityRef;
use cranelift_module::{
    DataDescription, DataId, FuncId, Init, Module, ModuleReloc, ModuleRelocTarget, ModuleResult,
};

/// On behalf of how many functions or objects code or data refers to others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Referrer {
    /// Of one function or data object: its references can be interposed as they are written there.
    One,
    /// Of several, each of which refers to an equal function or object of its own: no reference may go through a
    /// symbol that another definition can take.
    Several,
}

impl Referrer {
    fn of(replaces_others: bool) -> Referrer {
        if replaces_others { Referrer::Several } else { Referrer::One }
    }
}

impl<M: Module> MergingModule<M> {
    pub(super) fn emit_functions(
        &mut self,
        plan: &Plan,
        pending: &mut Pending,
        unit: &Unit,
        flush: Flush,
        mut context: Option<&mut Context>,
    ) -> ModuleResult<()> {
        for late in plan.late_thunks() {
            self.emit_late_thunk(self.id_of(plan.entry(late.function).symbol()))?;
        }
        let mut next = 0;
        for (function, definition) in core::mem::take(&mut pending.functions) {
            let emitted = match definition {
                Definition::Bytes { alignment, bytes, relocs } => {
                    self.emit_bytes(function, alignment, &bytes, &relocs)
                }
                Definition::Body { func, want_disasm, control_plane } => {
                    let index = FunctionIndex::new(next);
                    next += 1;
                    let with = With { context: context.as_deref_mut(), want_disasm, control_plane };
                    self.emit_function(plan, index, function, *func, flush, with)
                }
            };
            emitted.inspect_err(|_| self.failed = Some(function))?;
        }
        let mut added = 0;
        for new in plan.new_bodies() {
            let (index, func) = (new.function(), new.body().clone());
            let function = self.id_of(plan.entry(index).symbol());
            let with =
                With { context: None, want_disasm: false, control_plane: ControlPlane::default() };
            self.emit_body(plan, index, function, func, flush, with)
                .inspect_err(|_| self.failed = Some(function))?;
            added += i64::from(self.functions[function].size);
        }
        // Sizes of bodies are known by now.
        for (function, _) in &unit.functions {
            let FunctionState { body, size, .. } = self.functions[*function];
            if let Some(body) = body.expand() {
                let body = self.functions[body].size;
                self.stats.saved_code_bytes += i64::from(body) - i64::from(size);
            }
        }
        self.stats.saved_code_bytes -= added;
        Ok(())
    }

    fn emit_function(
        &mut self,
        plan: &Plan,
        index: FunctionIndex,
        function: FuncId,
        func: Function,
        flush: Flush,
        with: With<'_>,
    ) -> ModuleResult<()> {
        self.stats.functions += 1;
        let output = plan.output(index);
        let (Emit::Thunk { .. } | Emit::Alias { .. } | Emit::Nothing) = output.emit else {
            return self.emit_body(plan, index, function, func, flush, with);
        };
        let signature = func.signature.clone();
        if let Some(context) = with.context {
            // The embedder asked for the code at once and gets it, although it is not emitted.
            context.func = func;
            let mut control_plane = with.control_plane;
            context.compile(self.inner.isa(), &mut control_plane).map_err(|error| error.inner)?;
        }
        match output.emit {
            Emit::Body | Emit::NewBody(_) => unreachable!("a kept function has its own body"),
            Emit::Thunk { to, .. } => {
                self.stats.thunks += 1;
                let to = self.local_name(self.id_of(to));
                self.emit_thunk(function, &signature, output.alignment, to)
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

    fn emit_body(
        &mut self,
        plan: &Plan,
        index: FunctionIndex,
        function: FuncId,
        mut func: Function,
        flush: Flush,
        with: With<'_>,
    ) -> ModuleResult<()> {
        plan.settle(index, &mut func, &self.pass_options(self.inner.isa(), flush.back_end));
        let referrer = Referrer::of(self.functions[function].replaces_others);
        let names = self.audits().then(|| Names::of(&func));
        let call = |name: &UserExternalName| self.called(name, referrer);
        redirect(&mut func, &call, &|symbol| self.addressed(symbol, referrer));
        if let Some(names) = names {
            self.audited(&symbol(function), self.check_body(&names, &func))?;
            if referrer == Referrer::Several {
                let remembered = flush.remember && plan.parameterised_body(index).is_none();
                self.audited(&symbol(function), self.check_shared(&func, flush, remembered))?;
            }
        }
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

    /// The target of a call of `name`, if it changes, and the extra arguments that the call passes.
    fn called(&self, name: &UserExternalName, referrer: Referrer) -> Option<CallTarget> {
        if name.namespace != 0 {
            let symbol = self.addressed(name, referrer)?;
            return Some(CallTarget { symbol, arguments: Arc::default() });
        }
        let function = FuncId::from_u32(name.index);
        if let Some(body) = self.call_target(function) {
            return Some(CallTarget { symbol: symbol(body), arguments: self.extra(name).into() });
        }
        match referrer {
            Referrer::One => None,
            // By a local name, whose code passes the extra arguments.
            Referrer::Several => self
                .local_names
                .get(&function)
                .map(|&name| CallTarget { symbol: symbol(name), arguments: Arc::default() }),
        }
    }

    /// The symbol whose address replaces the address of `name`, if it changes.
    fn addressed(&self, name: &UserExternalName, referrer: Referrer) -> Option<UserExternalName> {
        let UserExternalName { namespace, index } = *name;
        match namespace {
            0 => {
                let function = FuncId::from_u32(index);
                let target = match referrer {
                    Referrer::One => self.address_target(function),
                    Referrer::Several => self.shared_address_target(function),
                };
                target.map(symbol)
            }
            1 => {
                let data = DataId::from_u32(index);
                let target = match referrer {
                    Referrer::One => self.data_target(data),
                    Referrer::Several => self.shared_data_target(data),
                };
                target.map(data_symbol)
            }
            ADDED => Some(symbol(self.id_of(name))),
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

    /// Records the references of `func`, which is about to be emitted, to functions and data that are not defined
    /// yet: these must keep their symbols.
    fn observe_references(&mut self, func: &Function) {
        let mut undefined = false;
        for callee in func.dfg.ext_funcs.values() {
            if let Some(UserExternalName { namespace: 0, index }) = user_symbol(func, &callee.name)
            {
                let state = &mut self.functions[FuncId::from_u32(*index)];
                state.called |= !state.defined;
                undefined |= !state.defined;
            }
        }
        if undefined {
            for used in address_uses(func) {
                let callee = func.dfg.ext_funcs.get(used);
                let symbol = callee.and_then(|callee| user_symbol(func, &callee.name));
                if let Some(UserExternalName { namespace, index }) = symbol {
                    self.observe_pointer(*namespace, *index);
                }
            }
        }
        for gv in func.global_values.values() {
            let GlobalValueData::Symbol { name, .. } = gv else {
                continue;
            };
            if let Some(UserExternalName { namespace, index }) = user_symbol(func, name) {
                self.observe_pointer(*namespace, *index);
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
        let extra = self.extra(&symbol(function));
        if self.audits() {
            let to = symbol(to);
            let mut named = extra.iter().filter_map(ExtraArgument::symbol).chain([&to]);
            self.audited(&symbol(function), named.try_for_each(|name| self.check_symbol(name)))?;
        }
        let isa = self.inner.isa();
        let size = match self.target.thunk_code(signature, &extra, &symbol(to)) {
            Some(code) => {
                let size = code.size();
                let alignment = u64::from(alignment.max(isa.function_alignment().minimum));
                let relocs = code.relocations.into_iter().map(|relocation| {
                    let ThunkReloc { offset, kind, symbol, addend } = relocation;
                    let name = ModuleRelocTarget::user(symbol.namespace, symbol.index);
                    ModuleReloc { offset, kind, name, addend }
                });
                let relocs: Vec<ModuleReloc> = relocs.collect();
                self.inner.define_function_bytes(function, alignment, &code.bytes, &relocs)?;
                size
            }
            None => {
                let name = UserFuncName::User(symbol(function));
                let thunks = CallThunks::of(isa);
                let thunk = call_thunk(name, signature, &extra, &symbol(to), &thunks);
                let mut context = Context::for_function(thunk);
                let mut plane = ControlPlane::default();
                match alignment {
                    1 => self.inner.define_function(function, &mut context)?,
                    _ => define_aligned(
                        &mut self.inner,
                        function,
                        alignment,
                        &mut context,
                        &mut plane,
                    )?,
                }
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
        let before = relocs;
        let relocs: Vec<ModuleReloc> = before
            .iter()
            .map(|reloc| ModuleReloc { name: self.pointer_to(&reloc.name), ..reloc.clone() })
            .collect();
        if self.audits() {
            let mut pairs = before.iter().zip(&relocs);
            let found =
                pairs.try_for_each(|(before, after)| self.check_pointer(&before.name, &after.name));
            self.audited(&symbol(function), found)?;
        }
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

    /// The target that replaces `target` in a pointer.
    pub(super) fn pointer_to(&self, target: &ModuleRelocTarget) -> ModuleRelocTarget {
        self.retargeted(target, Referrer::One)
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
            if let Some(to) = self.data[id].body.expand() {
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
                let before = core::mem::replace(target, self.retargeted(target, referrer));
                if self.audits() {
                    self.audited(&data_symbol(id), self.check_pointer(&before, target))?;
                    if let ModuleRelocTarget::User { namespace, index } = *target
                        && referrer == Referrer::Several
                    {
                        let target = UserExternalName::new(namespace, index);
                        let checked =
                            self.check_shared_symbol(&target, true, flush, flush.remember);
                        self.audited(&data_symbol(id), checked)?;
                    }
                }
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

/// Compiles a function and defines it by its bytes, since `Module` has no other way to ask for an alignment.
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

/// The settings with which a function is compiled.
struct With<'a> {
    /// The embedder's context, if it wants to see the code.
    context: Option<&'a mut Context>,
    want_disasm: bool,
    control_plane: ControlPlane,
}

/// The contents of a data object, as they were given.
fn init_of(contents: &mut Contents) -> Init {
    match core::mem::replace(contents, Contents::Zeros(0)) {
        Contents::Zeros(size) => Init::Zeros { size: size as usize },
        Contents::Bytes(bytes) => Init::Bytes { contents: bytes.into_boxed_slice() },
    }
}
