//! Where references go: where the plan redirects them, under names that no other definition can
//! take (`names`).
//!
//! Nothing is decided here, and nothing is changed but the code and data of the flush. That there
//! is code or data where a reference goes is checked by `nowhere`.

use crate::flush::ADDED;
use crate::view::View;
use crate::{FunctionState, data_symbol, symbol};
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_mergefunc::{Addresses, ExtraArgument, FunctionIndex, Plan, Redirected, Substitute};
use cranelift_module::{DataId, FuncId, ModuleRelocTarget};
use std::sync::Arc;

/// The references of a function or data object.
#[derive(Clone, Copy)]
pub(crate) struct References<'a> {
    pub view: View<'a>,
    pub plan: &'a Plan,
    /// Whether several functions or objects share it, each of which refers to equal functions and
    /// objects of its own: no reference may go through a symbol that another definition can take.
    /// Code that units share refers to visible functions by their symbols, and does not count.
    pub shared: bool,
}

impl References<'_> {
    /// Redirects the references of a body that is emitted for `function`.
    pub fn redirect(&self, function: FunctionIndex, func: &mut Function) {
        let choose = |symbol: &UserExternalName, redirected| self.named(symbol, redirected);
        self.plan.apply_with(function, func, &choose);
    }

    /// Where references to a symbol go, by the names of the module.
    fn named(&self, written: &UserExternalName, redirected: Redirected) -> Redirected {
        let Redirected { call, address } = redirected;
        let address = self.addressed_as(written, address.as_ref());
        let call = match call {
            Some(Substitute { symbol: to, arguments }) => {
                let arguments = match written.namespace {
                    // Those of the plan, with names.
                    0 if !arguments.is_empty() => {
                        self.extra(FuncId::from_u32(written.index)).into()
                    }
                    _ => arguments,
                };
                Some(Substitute { symbol: self.local(&to), arguments })
            }
            None => {
                let name = self.called_as(written);
                name.map(|symbol| Substitute { symbol, arguments: Arc::default() })
            }
        };
        Redirected { call, address }
    }

    /// The name by which a symbol is called that the plan does not redirect, if it is another one.
    fn called_as(&self, written: &UserExternalName) -> Option<UserExternalName> {
        match written.namespace {
            // Its own code, which passes the extra arguments if it is a thunk.
            0 if self.shared => {
                let name = self.view.symbols.local_names.get(&FuncId::from_u32(written.index));
                name.copied().map(symbol)
            }
            ADDED => Some(self.local(written)),
            _ => None,
        }
    }

    /// The symbol of a function or data object that replaces another one.
    fn local(&self, to: &UserExternalName) -> UserExternalName {
        match to.namespace {
            0 | ADDED => symbol(self.view.local_name(self.view.id_of(to))),
            1 => data_symbol(self.view.local_data_name(DataId::from_u32(to.index))),
            _ => to.clone(),
        }
    }

    /// The symbol whose address replaces that of a symbol, if another one does, where the plan
    /// redirects it to `to`.
    fn addressed_as(
        &self,
        written: &UserExternalName,
        to: Option<&UserExternalName>,
    ) -> Option<UserExternalName> {
        match written.namespace {
            _ if to.is_some() => to.map(|to| self.local(to)),
            0 if self.shared => self.shared_function(FuncId::from_u32(written.index)).map(symbol),
            1 if self.shared => {
                let data = DataId::from_u32(written.index);
                // The address of an alias is that of its target.
                let body = self.view.symbols.data[data].disposition.representative();
                match (body, self.view.symbols.local_data_names.get(&body.unwrap_or(data))) {
                    (None, None) => None,
                    (_, Some(&name)) => Some(data_symbol(name)),
                    (Some(body), None) => Some(data_symbol(body)),
                }
            }
            ADDED => Some(self.local(written)),
            _ => None,
        }
    }

    /// The function whose address shared code uses for that of a function. Where addresses are
    /// significant, all that share the code name this function.
    fn shared_function(&self, function: FuncId) -> Option<FuncId> {
        let FunctionState { disposition, extra, preemptible, .. } =
            &self.view.symbols.functions[function];
        if *preemptible || self.view.attributes_of(function).addresses == Addresses::Significant {
            return None;
        }
        // Without extra arguments, the body is equivalent to the function, wherever the function's
        // own symbol leads.
        match disposition.representative().filter(|_| extra.is_empty()) {
            Some(body) => Some(self.view.local_name(body)),
            None => self.view.symbols.local_names.get(&function).copied(),
        }
    }

    /// The extra arguments that the body of a function receives, as they are passed now. It is not
    /// known any more which functions pass them, and under which names these referred to them: they
    /// may have named a function that was merged into the one that an argument names.
    pub fn extra(&self, function: FuncId) -> Vec<ExtraArgument> {
        let shared = References { shared: true, ..*self };
        let arguments = &self.view.symbols.functions[function].extra;
        arguments.iter().map(|argument| argument.redirected(&|name| shared.address(name))).collect()
    }

    /// The symbol whose address replaces that of a symbol, if another one does.
    fn address(&self, written: &UserExternalName) -> Option<UserExternalName> {
        let to = self.plan.address_symbol(written);
        self.addressed_as(written, (to != written).then_some(to))
    }

    /// The replacement of the target of a pointer of a data object, or of a function that was
    /// defined by bytes.
    pub fn pointer(&self, target: &ModuleRelocTarget) -> ModuleRelocTarget {
        match *target {
            ModuleRelocTarget::User { namespace, index } => {
                let written = UserExternalName::new(namespace, index);
                let to = self.address(&written).unwrap_or(written);
                ModuleRelocTarget::user(to.namespace, to.index)
            }
            ModuleRelocTarget::LibCall(_)
            | ModuleRelocTarget::KnownSymbol(_)
            | ModuleRelocTarget::FunctionOffset(..) => target.clone(),
        }
    }
}
