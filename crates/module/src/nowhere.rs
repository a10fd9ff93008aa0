//! References that lead nowhere: a symbol that was merged away and has no code. They are refused
//! before anything is emitted that contains one, in every build, whatever is proved.
//!
//! A plan that leaves such a reference is a bug of this crate. Without this check, the wrapped
//! module would resolve the reference without an error: an object gives a function without code the
//! address of an empty place. The check is one question about the state of the symbol,
//! [`View::reached`], of each import of a function before it is compiled, of each pointer of data
//! and of code in bytes, of the target and the extra arguments of each thunk, and of the target of
//! each alias. That a reference leads to the *right* code is the business of the checker.

use crate::view::View;
use crate::{DataState, FunctionState, ObjectFixups};
use cranelift_codegen::ir::UserExternalName;
use cranelift_mergefunc::data::DataAttributes;
use cranelift_mergefunc::{Attributes, Disposition, Reason};
use cranelift_module::{DataId, FuncId, ModuleError, ModuleRelocTarget, ModuleResult};

impl View<'_> {
    /// Refuses a reference of `of` to a symbol without code.
    pub(crate) fn check_leads(
        &self,
        of: &UserExternalName,
        symbol: &UserExternalName,
    ) -> ModuleResult<()> {
        match self.nowhere(symbol) {
            None => Ok(()),
            Some(why) => Err(refused(&format!("{} refers to {why}", self.name_of(of)))),
        }
    }

    /// Checks that a pointer refers to a defined symbol.
    pub(crate) fn check_pointer_leads(
        &self,
        of: &UserExternalName,
        target: &ModuleRelocTarget,
    ) -> ModuleResult<()> {
        match *target {
            ModuleRelocTarget::User { namespace, index } => {
                self.check_leads(of, &UserExternalName::new(namespace, index))
            }
            ModuleRelocTarget::LibCall(_)
            | ModuleRelocTarget::KnownSymbol(_)
            | ModuleRelocTarget::FunctionOffset(..) => Ok(()),
        }
    }

    /// The name of a symbol, and why there is no code or data under it, if there is none.
    pub(crate) fn nowhere(&self, symbol: &UserExternalName) -> Option<String> {
        let (to, extra, reason, flush) = match symbol.namespace {
            0 => {
                let function = FuncId::from_u32(symbol.index);
                if self.reached(function).symbol.is_some() {
                    return None;
                }
                let FunctionState { disposition, extra, reason, flush, .. } =
                    &self.symbols.functions[function];
                let to = disposition.representative().map(crate::symbol);
                (to, extra.len(), *reason, *flush)
            }
            1 => {
                let data = DataId::from_u32(symbol.index);
                if self.data_reached(data).symbol.is_some() {
                    return None;
                }
                let DataState { disposition, reason, flush, .. } = self.symbols.data[data];
                (disposition.representative().map(crate::data_symbol), 0, reason, flush)
            }
            _ => return Some(format!("{symbol}, which the module does not have")),
        };
        let to = to.map_or_else(String::new, |to| self.name_of(&to));
        let extra = match extra {
            0 => String::new(),
            1 => ", which takes an extra argument".to_string(),
            extra => format!(", which takes {extra} extra arguments"),
        };
        let reason = reason.map_or("", Reason::id);
        let name = self.name_of(symbol);
        Some(format!(
            "{name}, which has no code: flush {flush} merged it into {to}{extra} ({reason})"
        ))
    }

    /// Refuses to leave a function without a symbol to which code outside the module, or code and
    /// data that were emitted before it was defined, refer by its symbol.
    pub(crate) fn check_eliminated(
        &self,
        function: FuncId,
        attributes: &Attributes,
    ) -> ModuleResult<()> {
        let FunctionState { disposition, .. } = &self.symbols.functions[function];
        let is_visible = attributes.linkage.is_visible_outside()
            && matches!(disposition, Disposition::Redirect { to: _ });
        if attributes.externally_called || is_visible {
            self.check_needed(&crate::symbol(function))?;
        }
        Ok(())
    }

    /// Checks that references to an eliminated data object refer to a defined symbol.
    pub(crate) fn check_eliminated_data(
        &self,
        data: DataId,
        attributes: &DataAttributes,
    ) -> ModuleResult<()> {
        let is_visible = attributes.linkage.is_visible_outside()
            && matches!(self.symbols.data[data].disposition, Disposition::Redirect { to: _ });
        if attributes.externally_used || is_visible {
            self.check_needed(&crate::data_symbol(data))?;
        }
        Ok(())
    }

    fn check_needed(&self, symbol: &UserExternalName) -> ModuleResult<()> {
        match self.nowhere(symbol) {
            None => Ok(()),
            Some(why) => Err(refused(&format!(
                "code outside the module, or emitted before, refers to {why}"
            ))),
        }
    }

    /// Refuses an alias whose target has no code of its own.
    pub(crate) fn check_aliases(&self, aliases: &ObjectFixups) -> ModuleResult<()> {
        for &(alias, target) in aliases.functions() {
            if !self.reached(target).has_own_address(target) {
                self.check_leads(&crate::symbol(alias), &crate::symbol(target))?;
                let [alias, target] = [alias, target].map(|of| self.name_of(&crate::symbol(of)));
                return Err(refused(&format!(
                    "{alias} is an alias of {target}, which is one itself"
                )));
            }
        }
        for &(alias, target) in aliases.data_objects() {
            if !self.data_reached(target).has_own_address(target) {
                self.check_leads(&crate::data_symbol(alias), &crate::data_symbol(target))?;
                let [alias, target] =
                    [alias, target].map(|of| self.name_of(&crate::data_symbol(of)));
                return Err(refused(&format!(
                    "{alias} is an alias of {target}, which is one itself"
                )));
            }
        }
        Ok(())
    }

    /// The name of a function or data object.
    fn name_of(&self, symbol: &UserExternalName) -> String {
        match symbol.namespace {
            0 => {
                let function = FuncId::from_u32(symbol.index);
                let declaration = self.declarations.get_function_decl(function);
                declaration.linkage_name(function).into_owned()
            }
            1 => {
                let data = DataId::from_u32(symbol.index);
                self.declarations.get_data_decl(data).linkage_name(data).into_owned()
            }
            _ => symbol.to_string(),
        }
    }
}

fn refused(what: &str) -> ModuleError {
    ModuleError::Backend(anyhow::anyhow!("{what}: a bug of this crate"))
}
