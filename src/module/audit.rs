//! The audit of code that is about to be emitted: every reference goes to a symbol that refers to what the front end
//! referred to. That there is anything under that symbol is checked by `nowhere`, always.
//!
//! The checker proves a plan. The wrapper carries it out afterwards: symbols of earlier flushes, names that cannot
//! be interposed, late thunks. This module does not know how references are redirected. It asks, of code as it will
//! be compiled, what each symbol leads to now, and compares that with what the original symbol at that place leads
//! to. It runs where the checker runs ([`ModuleOptions::prove`](super::ModuleOptions::prove)).
//!
//! It does *not* look into machine code.

use super::flush::Flush;
use super::view::View;
use super::{DataState, FunctionState};
use crate::extra_argument::ExtraArgument;
use crate::ir::{address_uses, user_symbol};
use crate::options::Prove;
use crate::unit::Addresses;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use cranelift_codegen::ir::{FuncRef, Function, GlobalValueData, UserExternalName};
use cranelift_entity::EntityRef;
use cranelift_module::{DataId, FuncId, ModuleError, ModuleRelocTarget, ModuleResult};

/// The symbols that the imports of a function name, before it is rewritten.
pub(super) struct Names {
    /// Symbols, and the number of parameters that they are called with.
    functions: Vec<Option<(UserExternalName, usize)>>,
    globals: Vec<Option<UserExternalName>>,
}

impl Names {
    pub fn of(func: &Function) -> Names {
        let functions = func.dfg.ext_funcs.values().map(|callee| {
            let symbol = user_symbol(func, &callee.name)?.clone();
            Some((symbol, func.dfg.signatures.get(callee.signature)?.params.len()))
        });
        let globals = func.global_values.values().map(|gv| match gv {
            GlobalValueData::Symbol { name, .. } => user_symbol(func, name).cloned(),
            GlobalValueData::VMContext
            | GlobalValueData::Load { .. }
            | GlobalValueData::IAddImm { .. }
            | GlobalValueData::DynScaleTargetConst { .. } => None,
        });
        Names { functions: functions.collect(), globals: globals.collect() }
    }
}

impl<'a> View<'a> {
    /// Whether emitted code is audited.
    pub(super) fn audits(&self) -> bool {
        match self.options.prove {
            Prove::Always => true,
            Prove::Debug => cfg!(debug_assertions),
            Prove::Never => false,
        }
    }

    /// The code that runs when `function` is called, and the extra arguments that it receives.
    fn code_of(&self, function: FuncId) -> (FuncId, &'a [ExtraArgument]) {
        let reached = self.reached(self.named.get(&function).copied().unwrap_or(function));
        (reached.body, reached.extra)
    }

    /// The extra arguments of the code that runs when a symbol is called.
    pub(super) fn passed_to(&self, symbol: &UserExternalName) -> &'a [ExtraArgument] {
        match symbol.namespace {
            0 => self.code_of(FuncId::from_u32(symbol.index)).1,
            _ => &[],
        }
    }

    fn contents_of(&self, data: DataId) -> DataId {
        self.data_reached(self.named_data.get(&data).copied().unwrap_or(data)).body
    }

    /// Checks one reference. `extra` is the number of arguments that calls pass behind the present ones; `None` if
    /// it is an address.
    fn check_reference(
        &self,
        before: &UserExternalName,
        after: &UserExternalName,
        extra: Option<usize>,
    ) -> Result<(), String> {
        if before == after && extra.unwrap_or(0) == 0 {
            return Ok(());
        }
        let same = match (before.namespace, after.namespace) {
            (0, 0) => {
                let [before, after] = [before, after].map(|name| FuncId::from_u32(name.index));
                let ((wanted, passed), (found, thunk)) =
                    (self.code_of(before), self.code_of(after));
                let passes = match extra.unwrap_or(0) {
                    0 => thunk == passed,
                    extra => thunk.is_empty() && extra == passed.len(),
                };
                wanted == found && passes
            }
            (1, 1) => {
                let [before, after] = [before, after].map(|name| DataId::from_u32(name.index));
                self.contents_of(before) == self.contents_of(after)
            }
            // The plan itself named a function that it added.
            (namespace, 0) => namespace == super::flush::ADDED,
            _ => false,
        };
        match same {
            true => Ok(()),
            false => Err(format!("{after} does not lead to what {before} leads to")),
        }
    }

    /// Checks a function that named `before` and is compiled as it is now.
    pub(super) fn check_body(&self, before: &Names, func: &Function) -> Result<(), String> {
        let Names { functions, globals } = before;
        for (func_ref, callee) in func.dfg.ext_funcs.iter() {
            let Some(after) = user_symbol(func, &callee.name) else {
                continue;
            };
            match functions.get(func_ref.index()) {
                Some(Some((before, params))) => {
                    let signature = func.dfg.signatures.get(callee.signature);
                    let now = signature.map_or(0, |signature| signature.params.len());
                    self.check_reference(before, after, Some(now.saturating_sub(*params)))?;
                }
                Some(None) => return Err(format!("{after} was no reference")),
                // An extra argument, which is new.
                None => {}
            }
        }
        for (gv, data) in func.global_values.iter() {
            let GlobalValueData::Symbol { name, .. } = data else {
                continue;
            };
            let Some(after) = user_symbol(func, name) else {
                continue;
            };
            match globals.get(gv.index()) {
                Some(Some(before)) => self.check_reference(before, after, None)?,
                Some(None) => return Err(format!("{after} was no reference")),
                None => {}
            }
        }
        Ok(())
    }

    /// Checks the extra arguments that the body of `function` receives; `func` is the original function. If a
    /// function that others were merged into, or may be, can be interposed, and `func` named another symbol, its
    /// own symbol is not what `func` referred to: it is passed by its local name, unless `func` itself, or a
    /// function that it calls, names it.
    pub(super) fn check_passed(&self, function: FuncId, func: &Function) -> Result<(), String> {
        let passed = self.passed(self.code_of(function).1);
        let interposed = passed.iter().filter_map(ExtraArgument::symbol).filter(|symbol| {
            let id = (symbol.namespace == 0).then(|| FuncId::from_u32(symbol.index));
            id.is_some_and(|id| self.local_names.contains_key(&id))
        });
        for symbol in interposed {
            if !self.is_named(symbol, func) {
                return Err(format!("{symbol}, which is passed, can be interposed"));
            }
        }
        Ok(())
    }

    /// Checks code as it is compiled that replaces several functions. Each of them refers to an equal function of
    /// its own, so no reference may go through a symbol that another definition can take. `remembered` if later
    /// functions may be merged into it as well.
    pub(super) fn check_shared(
        &self,
        func: &Function,
        flush: Flush,
        remembered: bool,
    ) -> Result<(), String> {
        let addresses: Vec<FuncRef> = address_uses(func).collect();
        for (func_ref, callee) in func.dfg.ext_funcs.iter() {
            if let Some(symbol) = user_symbol(func, &callee.name).filter(|_| !callee.patchable) {
                let address = addresses.contains(&func_ref);
                self.check_shared_symbol(symbol, address, flush, remembered)?;
            }
        }
        for data in func.global_values.values() {
            if let GlobalValueData::Symbol { name, .. } = data
                && let Some(symbol) = user_symbol(func, name)
            {
                self.check_shared_symbol(symbol, true, flush, remembered)?;
            }
        }
        Ok(())
    }

    /// Checks one reference of code or data that replaces several functions or data objects.
    pub(super) fn check_shared_symbol(
        &self,
        symbol: &UserExternalName,
        address: bool,
        flush: Flush,
        remembered: bool,
    ) -> Result<(), String> {
        // The reference may be to an equal function or object, by a local name.
        let interposed = match symbol.namespace {
            0 => {
                let function = FuncId::from_u32(symbol.index);
                let FunctionState { defined, disposition, extra, preemptible, .. } =
                    &self.functions[function];
                let body = disposition.representative().filter(|_| extra.is_empty());
                let place = body.unwrap_or(function);
                let insignificant =
                    self.attributes_of(function).addresses == Addresses::Insignificant;
                *defined
                    && !preemptible
                    && (!address || insignificant)
                    && self.function_can_be_interposed(function, flush)
                    && (remembered || self.local_names.contains_key(&place))
            }
            1 => {
                let data = DataId::from_u32(symbol.index);
                let DataState { defined, disposition, replaces_others, .. } = self.data[data];
                let place = disposition.representative().unwrap_or(data);
                defined
                    && self.data_can_be_interposed(data, flush)
                    && (remembered && replaces_others || self.local_data_names.contains_key(&place))
            }
            _ => false,
        };
        match interposed {
            true => Err(format!("{symbol}, to which several functions refer, can be interposed")),
            false => Ok(()),
        }
    }

    /// Checks a pointer of a data object, or of a function that was defined by bytes.
    pub(super) fn check_pointer(
        &self,
        before: &ModuleRelocTarget,
        after: &ModuleRelocTarget,
    ) -> Result<(), String> {
        let symbol = |target: &ModuleRelocTarget| match *target {
            ModuleRelocTarget::User { namespace, index } => {
                Some(UserExternalName::new(namespace, index))
            }
            ModuleRelocTarget::LibCall(_)
            | ModuleRelocTarget::KnownSymbol(_)
            | ModuleRelocTarget::FunctionOffset(..) => None,
        };
        match (symbol(before), symbol(after)) {
            (Some(before), Some(after)) => self.check_reference(&before, &after, None),
            (None, None) => Ok(()),
            (Some(_), None) | (None, Some(_)) => Err("a pointer became another kind".to_string()),
        }
    }

    /// A panic or an error, if what is about to be emitted for a function or data object is wrong: a bug of this
    /// crate.
    pub(super) fn audited(
        &self,
        of: &UserExternalName,
        found: Result<(), String>,
    ) -> ModuleResult<()> {
        let Err(wrong) = found else {
            return Ok(());
        };
        let wrong = format!("what is emitted for {of} is wrong: {wrong}: a bug of this crate");
        match self.options.prove {
            Prove::Debug | Prove::Never => panic!("{wrong}"),
            Prove::Always => Err(ModuleError::Backend(anyhow::anyhow!(wrong))),
        }
    }
}
