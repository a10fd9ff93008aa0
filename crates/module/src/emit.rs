//! Emission: the result of a flush's plan goes into the wrapped module. `body` has the functions to
//! be compiled.
//!
//! Every function is defined once: by a body, by the bytes of a jump, by no bytes at all (its
//! symbol gets another address later), or not. All references to functions and data are redirected
//! to where these are now. Nothing is decided here.

use crate::body::{Body, Code};
use crate::flush::Unit;
use crate::{BackEnd, Definition, FunctionState, MergingModule, Pending, data_symbol, symbol};
use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
#[cfg(feature = "parallel")]
use cranelift_codegen::ir::Function;
use cranelift_codegen::ir::Signature;
use cranelift_entity::EntityRef;
use cranelift_mergefunc::data::Contents;
use cranelift_mergefunc::thunk::{Thunk, ThunkReloc};
use cranelift_mergefunc::{Emit, ExtraArgument, FunctionIndex, NewBody, Output, Plan};
use cranelift_module::{
    DataDescription, DataId, FuncId, Init, Module, ModuleReloc, ModuleRelocTarget, ModuleResult,
};

/// The code that is emitted for one definition, or for a body that the plan adds.
pub(crate) struct Item {
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
    pub(crate) fn body(&mut self) -> Option<(FuncId, &mut Body)> {
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
    /// Puts the thunk of a function that was merged away in its place, if that is IR to be
    /// compiled. Returns what was defined, if it is not needed any more.
    pub(crate) fn without_ir(
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
                match self.thunk(plan, *function, &func.signature, to)? {
                    Thunk::Function(thunk) if takes(&thunk) => Code::Thunk(thunk),
                    Thunk::Function(_) | Thunk::Code(_) => return Ok(None),
                }
            }
            Emit::Body | Emit::NewBody(_) | Emit::Alias { .. } | Emit::Nothing => Code::Dropped,
        };
        match std::mem::replace(&mut body.code, code) {
            Code::Ir(func) => Ok(Some(func)),
            _ => unreachable!("it was IR"),
        }
    }
}

impl<M: Module> MergingModule<M> {
    pub(crate) fn emit_functions(
        &mut self,
        plan: &Plan,
        pending: &mut Pending,
        unit: &Unit,
    ) -> ModuleResult<()> {
        for late in plan.late_thunks() {
            let function = self.view().id_of(plan.entry(late.function).symbol());
            self.emit_late_thunk(plan, function)?;
        }
        let mut next = 0;
        let definitions = std::mem::take(&mut pending.functions).into_iter();
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
            let chunk = self.next_chunk(plan, first, &mut items);
            #[cfg(not(feature = "parallel"))]
            let chunk = [first];
            for Item { function, work } in chunk {
                self.emit(plan, function, work)
                    .inspect_err(|_| self.progress.failed = Some(function))?;
            }
        }
        // Sizes of bodies are known by now.
        for (function, _) in &unit.functions {
            let FunctionState { disposition, size, .. } = self.symbols.functions[*function];
            if let Some(body) = disposition.representative() {
                let body = self.symbols.functions[body].size;
                self.stats.saved_code_bytes += i64::from(body) - i64::from(size);
            }
        }
        Ok(())
    }

    fn emit(&mut self, plan: &Plan, function: FuncId, work: Work) -> ModuleResult<()> {
        match work {
            Work::Bytes { alignment, bytes, relocs } => {
                self.emit_bytes(plan, function, alignment, &bytes, &relocs)
            }
            Work::Body(body) => {
                self.stats.functions += 1;
                self.emit_body(plan, function, body)
            }
            Work::Merged(body) => {
                self.stats.functions += 1;
                self.emit_merged(plan, function, body)
            }
            Work::Added(body) => {
                self.emit_body(plan, function, body)?;
                self.stats.saved_code_bytes -= i64::from(self.symbols.functions[function].size);
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
                self.emit_thunk(plan, function, &signature, alignment, to)
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

    pub(crate) fn emit_thunk(
        &mut self,
        plan: &Plan,
        function: FuncId,
        signature: &Signature,
        alignment: u32,
        to: FuncId,
    ) -> ModuleResult<()> {
        let size = match self.thunk(plan, function, signature, to)? {
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
    fn thunk(
        &self,
        plan: &Plan,
        function: FuncId,
        signature: &Signature,
        to: FuncId,
    ) -> ModuleResult<Thunk> {
        let extra = self.references(plan, true).extra(function);
        let (own, to) = (symbol(function), symbol(to));
        let mut named = extra.iter().filter_map(ExtraArgument::symbol).chain([&to]);
        named.try_for_each(|name| self.view().check_leads(&own, name))?;
        let optimize = plan.optimize_for();
        Ok(Thunk::new(&own, signature, &extra, &to, &self.target, optimize))
    }

    /// Counts the code that was emitted for a function.
    fn add_code(&mut self, function: FuncId, size: u32) {
        self.stats.code_bytes += u64::from(size);
        self.symbols.functions[function].size = size;
    }

    fn emit_bytes(
        &mut self,
        plan: &Plan,
        function: FuncId,
        alignment: u64,
        bytes: &[u8],
        relocs: &[ModuleReloc],
    ) -> ModuleResult<()> {
        let references = self.references(plan, false);
        let redirected = |reloc: &ModuleReloc| ModuleReloc {
            name: references.pointer(&reloc.name),
            ..reloc.clone()
        };
        let relocs: Vec<ModuleReloc> = relocs.iter().map(redirected).collect();
        for reloc in &relocs {
            self.view().check_pointer_leads(&symbol(function), &reloc.name)?;
            if let ModuleRelocTarget::User { namespace, index } = reloc.name {
                self.symbols.observe_pointer(namespace, index);
            }
        }
        self.inner.define_function_bytes(function, alignment, bytes, &relocs)?;
        self.stats.code_bytes += bytes.len() as u64;
        self.symbols.functions[function].size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Ok(())
    }

    pub(crate) fn emit_data(
        &mut self,
        plan: &Plan,
        data: Vec<(DataId, DataDescription)>,
        unit: &mut Unit,
        back_end: BackEnd,
    ) -> ModuleResult<()> {
        for (id, mut description) in data {
            let index = unit.by_id[&id];
            let entry = plan.data_entry(index);
            if let Some(to) = self.symbols.data[id].disposition.representative() {
                if back_end == BackEnd::Object {
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
            let is_representative = entry.reason() == cranelift_mergefunc::Reason::Representative;
            let shared = is_representative || self.symbols.data[id].replaces_others;
            let references = self.references(plan, shared);
            let functions = description.function_decls.values_mut();
            for target in functions.chain(description.data_decls.values_mut()) {
                *target = references.pointer(target);
            }
            let decls = description.function_decls.values().chain(description.data_decls.values());
            for target in decls {
                self.view().check_pointer_leads(&data_symbol(id), target)?;
                if let ModuleRelocTarget::User { namespace, index } = target {
                    self.symbols.observe_pointer(*namespace, *index);
                }
            }
            self.inner.define_data(id, &description)?;
        }
        Ok(())
    }
}

/// The contents of a data object, as they were given.
fn init_of(contents: &mut Contents) -> Init {
    match std::mem::replace(contents, Contents::Zeros(0)) {
        Contents::Zeros(size) => Init::Zeros { size: size as usize },
        Contents::Bytes(bytes) => Init::Bytes { contents: bytes.into_boxed_slice() },
    }
}
