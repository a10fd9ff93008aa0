//! Names that cannot be interposed.
//!
//! In a shared library of ELF, an exported symbol can be interposed, whatever its linkage says. References that meant
//! another function, and references of code that stands for several functions, are not to go through it: they use
//! local names for the same place. This module says what gets one, and where references go by them. It does *not*
//! decide what is merged.

use super::flush::{Flush, Unit};
use super::{BackEnd, DataState, FunctionState, MergingModule, Pending};
use crate::extra_argument::ExtraArgument;
#[cfg(feature = "fuzzing")]
use crate::fuzzing::fault_injection::{self, Fault};
use crate::options::{Addresses, Attributes};
use crate::plan::{Disposition, Plan};
use crate::unit::FunctionIndex;
use alloc::boxed::Box;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_entity::EntityRef;
use cranelift_module::{DataDescription, DataId, FuncId, Module, ModuleResult};

impl<M: Module> MergingModule<M> {
    /// The name by which references reach the body of `function` and nothing else.
    pub(super) fn local_name(&self, function: FuncId) -> FuncId {
        self.local_names.get(&function).copied().unwrap_or(function)
    }

    /// [`address_target`](Self::address_target) in what stands for several functions or data objects, each of which
    /// names one of its own that is equal: nothing that takes the place of one of those may be named. Where addresses
    /// matter, all of them name this function.
    pub(super) fn shared_address_target(&self, function: FuncId) -> Option<FuncId> {
        self.address_target(function).or_else(|| {
            let FunctionState { body, extra, preemptible, .. } = &self.functions[function];
            if *preemptible {
                return None;
            }
            // Where nothing is told, the body does what the function does, wherever its own symbol leads.
            let place = match body.expand().filter(|_| extra.is_empty()) {
                Some(body) => Some(self.local_name(body)),
                None => self.local_names.get(&function).copied(),
            };
            place.filter(|_| self.attributes_of(function).addresses == Addresses::Insignificant)
        })
    }

    /// [`data_target`](Self::data_target) in what stands for several functions or data objects: each refers to one of
    /// its own that is equal, so nothing that takes the place of one of those may be referred to.
    pub(super) fn shared_data_target(&self, data: DataId) -> Option<DataId> {
        self.data_target(data).or_else(|| {
            let name = |data: DataId| self.local_data_names.get(&data).copied();
            // The place of an alias is that of its target.
            match self.data[data].body.expand() {
                Some(body) => Some(name(body).unwrap_or(body)),
                None => name(data),
            }
        })
    }

    /// Says by which names the body of a function is passed functions. By local names go those that nobody else could
    /// see when the plan was made, if they are near or others were merged into them, since they can be exported by now
    /// or later, and a caller needed no more than a call. So do those that `func`, which is merged, meant by another
    /// name, and what it passes on because it calls who passes that so.
    pub(super) fn name_passed_functions(
        &mut self,
        plan: &Plan,
        of: FuncId,
        func: &Function,
        flush: Flush,
    ) -> ModuleResult<()> {
        use crate::Linkage::{Hidden, Local};
        let mut extra = core::mem::take(&mut self.functions[of].extra);
        for argument in &mut extra {
            let Some(symbol) = argument.symbol().filter(|symbol| symbol.namespace == 0).cloned()
            else {
                continue;
            };
            let linkage = plan.function(&symbol).map(|at| plan.entry(at).attributes.linkage);
            let is_own = matches!(linkage, Some(Local | Hidden));
            let means_another = !self.is_meant(&symbol, func);
            let function = FuncId::from_u32(symbol.index);
            let FunctionState { defined, became, .. } = self.functions[function];
            let needs_name = is_own && argument.is_near() || means_another;
            if needs_name && defined && !became.has_no_code() {
                self.give_local_name(function, flush)?;
            }
            let Some(name) = self.local_names.get(&function).map(|&name| super::symbol(name))
            else {
                continue;
            };
            if is_own || means_another || self.is_passed_on(&name, func) {
                *argument = argument.redirected(&|_| Some(name.clone()));
            }
        }
        self.functions[of].extra = extra;
        Ok(())
    }

    /// Has the body of a function be passed addresses of functions that stay right if these are exported later.
    pub(super) fn pass_from_afar(&mut self, function: FuncId) {
        for argument in &mut self.functions[function].extra {
            if let ExtraArgument::Function { colocated, .. } = argument {
                *colocated = false;
            }
        }
    }

    /// Whether a function names a symbol, or calls who is passed it.
    pub(super) fn is_meant(&self, symbol: &UserExternalName, func: &Function) -> bool {
        let mut names = func.params.user_named_funcs().values();
        names.any(|name| name == symbol) || self.is_passed_on(symbol, func)
    }

    /// Whether a function calls who is passed a symbol.
    fn is_passed_on(&self, symbol: &UserExternalName, func: &Function) -> bool {
        let mut names = func.params.user_named_funcs().values();
        names.any(|callee| {
            self.passed_to(callee).iter().any(|argument| argument.symbol() == Some(symbol))
        })
    }

    /// What stands for several functions or data objects, each of which refers to one of its own that is equal, refers
    /// to what it does by names that nothing else can take. What is remembered may come to stand for others.
    pub(super) fn name_shared_references(
        &mut self,
        plan: &Plan,
        pending: &Pending,
        unit: &Unit,
        flush: Flush,
    ) -> ModuleResult<()> {
        let mut used: Vec<UserExternalName> = Vec::new();
        for (index, (function, Attributes { no_merge, .. })) in unit.functions.iter().enumerate() {
            let index = FunctionIndex::new(index);
            let entry = plan.entry(index);
            if entry.disposition() != Disposition::Keep {
                // What it passes is also passed by those that were merged into it before it was merged itself.
                let extra = &self.functions[*function].extra;
                used.extend(extra.iter().filter_map(ExtraArgument::symbol).cloned());
                continue;
            }
            // Also if nothing is merged into it: a reference to it can stand for one to an equal function.
            let replaces_others = &mut self.functions[*function].replaces_others;
            *replaces_others |= entry.has_equals || flush.remember && !no_merge;
            if *replaces_others {
                used.extend(pending.func(unit, index).params.user_named_funcs().values().cloned());
            }
        }
        // What the plan adds stands for several functions from the beginning.
        let private = plan.private_copies().iter().map(|body| pending.func(unit, body.body_of));
        let parameterised = plan.parameterised_bodies().iter().map(|merged| &merged.body);
        for body in private.chain(parameterised) {
            #[cfg(feature = "fuzzing")]
            if fault_injection::is(Fault::AddedBodyUnnamed) {
                continue;
            }
            used.extend(body.params.user_named_funcs().values().cloned());
        }
        for (data, attributes, object) in &unit.data {
            if attributes.by_class() {
                self.data[*data].replaces_others = true;
                used.extend(object.relocations.iter().map(|reloc| reloc.target.clone()));
            }
        }
        let passed = used.iter().flat_map(|symbol| self.passed_to(symbol));
        let passed: Vec<_> = passed.filter_map(ExtraArgument::symbol).cloned().collect();
        for symbol in used.into_iter().chain(passed) {
            match symbol.namespace {
                0 => {
                    let function = FuncId::from_u32(symbol.index);
                    let FunctionState { defined, became, .. } = self.functions[function];
                    let has_equals = match plan.function(&symbol) {
                        Some(function) if !plan.is_cached(function) => {
                            plan.entry(function).has_equals
                        }
                        // Of what earlier flushes emitted, any may have an equal one.
                        _ => !self.emitted.is_empty(),
                    };
                    // What is not defined yet may turn out to be an alias itself. A thunk has code of its own.
                    if defined && !became.has_no_code() && (flush.remember || has_equals) {
                        self.give_local_name(function, flush)?;
                    }
                }
                1 => {
                    let data = DataId::from_u32(symbol.index);
                    let DataState { defined, body, .. } = self.data[data];
                    // A pinned object stands for no other one, and is referred to in place of its equals all the same.
                    if defined && body.is_none() && self.is_compared_by_class(data) {
                        self.give_local_data_name(data, flush)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// In a shared library of ELF, an exported symbol can be interposed, whatever its linkage says:
    /// calls that were to another function must not go through it. Until the last flush, what is not
    /// exported yet may be later.
    pub(super) fn give_local_name(&mut self, body: FuncId, flush: Flush) -> ModuleResult<()> {
        if !self.function_can_be_interposed(body, flush) || self.local_names.contains_key(&body) {
            return Ok(());
        }
        let signature = self.inner.declarations().get_function_decl(body).signature.clone();
        let name = self.inner.declare_anonymous_function(&signature)?;
        self.functions[name].defined = true;
        self.inner.define_function_bytes(name, 1, &[], &[])?;
        self.aliases.functions.push((name, body));
        self.local_names.insert(body, name);
        self.named.insert(name, body);
        Ok(())
    }

    /// The same for a data object.
    pub(super) fn give_local_data_name(&mut self, data: DataId, flush: Flush) -> ModuleResult<()> {
        if !self.data_can_be_interposed(data, flush) || self.local_data_names.contains_key(&data) {
            return Ok(());
        }
        let name = self.inner.declare_anonymous_data(false, false)?;
        self.data[name].defined = true;
        let mut empty = DataDescription::new();
        empty.define(Box::new([]));
        self.inner.define_data(name, &empty)?;
        self.aliases.data.push((name, data));
        self.local_data_names.insert(data, name);
        self.named_data.insert(name, data);
        Ok(())
    }

    /// Whether what was emitted refers to a function by a symbol that can be interposed, because it was not defined
    /// yet: whatever refers to another one does not mean that, though the two may be equal.
    pub(super) fn is_meant_by_symbol(&self, function: FuncId, flush: Flush) -> bool {
        let FunctionState { called, address_held, .. } = self.functions[function];
        #[cfg(feature = "fuzzing")]
        let called = called && !fault_injection::is(Fault::NamedBeforeByClass);
        (called || address_held) && self.function_can_be_interposed(function, flush)
    }

    /// The same of a data object.
    pub(super) fn is_data_meant_by_symbol(&self, data: DataId, flush: Flush) -> bool {
        self.data[data].used && self.data_can_be_interposed(data, flush)
    }

    pub(super) fn function_can_be_interposed(&self, function: FuncId, flush: Flush) -> bool {
        let declaration = self.inner.declarations().get_function_decl(function);
        self.can_be_interposed(declaration.name.is_some(), declaration.linkage, flush)
    }

    pub(super) fn data_can_be_interposed(&self, data: DataId, flush: Flush) -> bool {
        let declaration = self.inner.declarations().get_data_decl(data);
        self.can_be_interposed(declaration.name.is_some(), declaration.linkage, flush)
    }

    fn can_be_interposed(
        &self,
        named: bool,
        linkage: cranelift_module::Linkage,
        flush: Flush,
    ) -> bool {
        use cranelift_module::Linkage::{Export, Hidden, Import, Local, Preemptible};
        let can_be = match linkage {
            Export => true,
            #[cfg(feature = "fuzzing")]
            Local | Hidden if fault_injection::is(Fault::LocalNameForgotten) => false,
            // Its linkage can widen.
            Local | Hidden => named && !flush.last,
            // Whoever defines it is meant.
            Preemptible | Import => false,
        };
        can_be && flush.back_end == BackEnd::Object && self.is_elf()
    }

    pub(super) fn is_elf(&self) -> bool {
        self.inner.isa().triple().binary_format == target_lexicon::BinaryFormat::Elf
    }
}
