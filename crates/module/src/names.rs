//! Names that cannot be interposed.
//!
//! In a shared library of ELF, an exported symbol can be interposed, whatever its linkage says.
//! Redirected references, which originally named another function, and references of code that
//! replaces several functions, must not go through it: they use local names for the same address.
//! This module decides which functions and objects get a local name, and which extra arguments use
//! it; other references use it in `references`. It does *not* decide about merges.

use crate::flush::Unit;
use crate::view::View;
use crate::{DataState, MergingModule, Pending, Symbols};
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_entity::EntityRef;
use cranelift_mergefunc::{Disposition, ExtraArgument, FunctionIndex, Plan};
use cranelift_module::{DataDescription, DataId, FuncId, Module, ModuleResult};

/// A function that is an extra argument.
struct Passed {
    index: FunctionIndex,
    /// The function whose body receives it.
    function: FuncId,
    /// Its number among the extra arguments.
    at: usize,
    passed: FuncId,
    /// Whether it goes by its local name, if it has one.
    by_name: bool,
}

impl<M: Module> MergingModule<M> {
    /// Chooses the names by which extra arguments of the functions of a flush name functions.
    ///
    /// A function goes by its local name if its near address is passed: it can be exported, and its
    /// caller needed no more than a call. One that was not visible outside when the plan was made
    /// does so as well if others were merged into it. So does a function that the function that
    /// passes it called by another name, and a function that is passed on because a function is
    /// called that receives it under its local name. All names are given before any is used: which
    /// functions get one must not depend on the order of the functions.
    pub(crate) fn name_passed_functions(
        &mut self,
        plan: &Plan,
        pending: &Pending,
        unit: &Unit,
    ) -> ModuleResult<()> {
        use cranelift_mergefunc::Linkage::{Hidden, Local};
        let mut left: Vec<Passed> = Vec::new();
        for (index, (function, _)) in unit.functions.iter().enumerate() {
            let index = FunctionIndex::new(index);
            for at in 0..self.symbols.functions[*function].extra.len() {
                let argument = &self.symbols.functions[*function].extra[at];
                let Some(symbol) = argument.symbol().filter(|symbol| symbol.namespace == 0) else {
                    continue;
                };
                let linkage = plan.function(symbol).map(|at| plan.entry(at).attributes().linkage);
                let is_own = matches!(linkage, Some(Local | Hidden));
                let names_another = !self.view().is_named(symbol, pending.func(unit, index));
                // A near address of what can be interposed cannot be linked. It is passed in place
                // of a merged callee.
                let (is_near, passed) = (argument.is_near(), FuncId::from_u32(symbol.index));
                let (needs_name, by_name) =
                    (is_near || names_another, is_own || names_another || is_near);
                left.push(Passed { index, function: *function, at, passed, by_name });
                let has_own_code = self.view().reached(passed).has_own_address(passed);
                if needs_name && self.symbols.functions[passed].defined && has_own_code {
                    self.give_local_name(passed)?;
                }
            }
        }
        left.retain(|argument| self.symbols.local_names.contains_key(&argument.passed));
        // A name that is used now may be passed on by others.
        loop {
            let before = left.len();
            let mut waiting = Vec::new();
            for Passed { index, function, at, passed, by_name } in left {
                let name = crate::symbol(self.view().local_name(passed));
                if by_name || self.view().is_passed_on(&name, pending.func(unit, index)) {
                    let argument = &mut self.symbols.functions[function].extra[at];
                    *argument = argument.redirected(&|_| Some(name.clone()));
                } else {
                    waiting.push(Passed { index, function, at, passed, by_name });
                }
            }
            left = waiting;
            if left.is_empty() || left.len() == before {
                return Ok(());
            }
        }
    }

    /// Gives local names to the functions and objects to which shared code and data refers. Shared
    /// code or data replaces several functions or objects, each of which refers to an equal one of
    /// its own, so no reference may use a symbol that another definition can take.
    pub(crate) fn name_shared_references(
        &mut self,
        plan: &Plan,
        pending: &Pending,
        unit: &Unit,
    ) -> ModuleResult<()> {
        let mut used: Vec<UserExternalName> = Vec::new();
        for (index, (function, _)) in unit.functions.iter().enumerate() {
            let index = FunctionIndex::new(index);
            let entry = plan.entry(index);
            if entry.disposition() != Disposition::Keep {
                // Functions that were merged into it, before it was merged itself, pass the same
                // extra arguments.
                let extra = &self.symbols.functions[*function].extra;
                used.extend(extra.iter().filter_map(ExtraArgument::symbol).cloned());
                continue;
            }
            // Also if nothing is merged into it: a reference to it may replace a reference to an
            // equal function.
            let replaces_others = &mut self.symbols.functions[*function].replaces_others;
            *replaces_others |= entry.has_equals();
            if *replaces_others {
                used.extend(pending.func(unit, index).params.user_named_funcs().values().cloned());
            }
        }
        // A function that the plan adds replaces several functions from the start. Code that units
        // share refers to symbols.
        for new in plan.new_bodies().iter().filter(|new| new.content_digest().is_none()) {
            used.extend(new.body().params.user_named_funcs().values().cloned());
        }
        for (data, attributes, object) in &unit.data {
            if attributes.by_class() {
                self.symbols.data[*data].replaces_others = true;
                used.extend(object.relocations.iter().map(|reloc| reloc.target.clone()));
            }
        }
        let passed = used.iter().flat_map(|symbol| self.view().passed_to(symbol));
        let passed: Vec<_> = passed.filter_map(ExtraArgument::symbol).cloned().collect();
        for symbol in used.into_iter().chain(passed) {
            match symbol.namespace {
                0 => {
                    let function = FuncId::from_u32(symbol.index);
                    let defined = self.symbols.functions[function].defined;
                    let has_own_code = self.view().reached(function).has_own_address(function);
                    let entry = plan.function(&symbol).map(|function| plan.entry(function));
                    let has_equals = entry.is_some_and(|entry| entry.has_equals());
                    // A thunk has code of its own.
                    if defined && has_own_code && has_equals {
                        self.give_local_name(function)?;
                    }
                }
                1 => {
                    let data = DataId::from_u32(symbol.index);
                    let DataState { defined, disposition, .. } = self.symbols.data[data];
                    // A pinned object replaces no other one, but references to its equals may go to
                    // it.
                    if defined
                        && disposition == Disposition::Keep
                        && self.is_compared_by_class(data)
                    {
                        self.give_local_data_name(data)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives a function of an object a local name, if it can be interposed. In a shared library of
    /// ELF, an exported symbol can, whatever its linkage says: redirected calls must not go through
    /// it.
    pub(crate) fn give_local_name(&mut self, body: FuncId) -> ModuleResult<()> {
        let declaration = self.inner.declarations().get_function_decl(body);
        if !self.view().can_be_interposed(declaration.linkage)
            || self.symbols.local_names.contains_key(&body)
        {
            return Ok(());
        }
        let signature = declaration.signature.clone();
        let name = self.inner.declare_anonymous_function(&signature)?;
        self.name_body(body, name)
    }

    /// Makes `name`, which nothing is defined under, the name by which references reach the code of
    /// `body`.
    pub(crate) fn name_body(&mut self, body: FuncId, name: FuncId) -> ModuleResult<()> {
        self.symbols.functions[name].defined = true;
        self.inner.define_function_bytes(name, 1, &[], &[])?;
        self.aliases.functions.push((name, body));
        self.symbols.local_names.insert(body, name);
        self.symbols.named.insert(name, body);
        Ok(())
    }

    /// Gives a data object a local name, if it can be interposed.
    pub(crate) fn give_local_data_name(&mut self, data: DataId) -> ModuleResult<()> {
        let declaration = self.inner.declarations().get_data_decl(data);
        if !self.view().can_be_interposed(declaration.linkage)
            || self.symbols.local_data_names.contains_key(&data)
        {
            return Ok(());
        }
        let name = self.inner.declare_anonymous_data(false, false)?;
        self.symbols.data[name].defined = true;
        let mut empty = DataDescription::new();
        empty.define(Box::new([]));
        self.inner.define_data(name, &empty)?;
        self.aliases.data.push((name, data));
        self.symbols.local_data_names.insert(data, name);
        Ok(())
    }
}

impl Symbols {
    /// Makes the body of a function receive addresses of functions in a form that is valid if these
    /// are exported, now or later. Its size does not change.
    pub(crate) fn clear_colocated_arguments(&mut self, function: FuncId) {
        for argument in &mut self.functions[function].extra {
            match argument {
                ExtraArgument::Function { ty: _, symbol: _, signature: _, colocated }
                | ExtraArgument::Address { ty: _, symbol: _, offset: _, colocated } => {
                    *colocated = false;
                }
                ExtraArgument::Constant { ty: _, bits: _ } => {}
            }
        }
    }
}

impl<'a> View<'a> {
    /// The name by which references reach the body of `function` and nothing else.
    pub(crate) fn local_name(&self, function: FuncId) -> FuncId {
        self.symbols.local_names.get(&function).copied().unwrap_or(function)
    }

    /// The local name of a data object, if it has one, or the object itself.
    pub(crate) fn local_data_name(&self, data: DataId) -> DataId {
        self.symbols.local_data_names.get(&data).copied().unwrap_or(data)
    }

    /// Whether a function names a symbol, or calls a function whose body receives it as an extra
    /// argument.
    pub(crate) fn is_named(&self, symbol: &UserExternalName, func: &Function) -> bool {
        let mut names = func.params.user_named_funcs().values();
        names.any(|name| name == symbol) || self.is_passed_on(symbol, func)
    }

    /// The extra arguments that the code receives that runs when a symbol is called.
    fn passed_to(&self, symbol: &UserExternalName) -> &'a [ExtraArgument] {
        if symbol.namespace != 0 {
            return &[];
        }
        let function = FuncId::from_u32(symbol.index);
        self.reached(self.symbols.named.get(&function).copied().unwrap_or(function)).extra
    }

    /// Whether a function calls a function whose body receives a symbol as an extra argument.
    fn is_passed_on(&self, symbol: &UserExternalName, func: &Function) -> bool {
        let mut names = func.params.user_named_funcs().values();
        names.any(|callee| {
            self.passed_to(callee).iter().any(|argument| argument.symbol() == Some(symbol))
        })
    }

    /// Whether another definition can take the symbol of a function or data object of an object.
    fn can_be_interposed(&self, linkage: cranelift_module::Linkage) -> bool {
        use cranelift_module::Linkage::{Export, Hidden, Import, Local, Preemptible};
        match linkage {
            Export => self.is_elf(),
            Local | Hidden => false,
            // References go to the definition that takes the symbol.
            Preemptible | Import => false,
        }
    }

    pub(crate) fn is_elf(&self) -> bool {
        self.isa.triple().binary_format == target_lexicon::BinaryFormat::Elf
    }
}
