//! Carrying out a plan, function by function.
//!
//! [`Plan::apply`] rewrites one kept function: references to functions that were merged away go to
//! their representatives. It cannot fail, so a unit is either rewritten or, before the first call,
//! unchanged. Functions may be rewritten in any order and by several threads.
//!
//! It does not drop bodies, emit thunks or define aliases: that is the job of the caller's back
//! end, with [`Target::jump_thunk`](crate::Target::jump_thunk), or [`call_thunk`] where there is no
//! jump.

mod kept_calls;
mod thunk;

pub(crate) use kept_calls::KeptCalls;
pub use thunk::{Thunk, call_thunk};

use crate::checker::Code;
use crate::extra_argument::{Appended, Substitute, append, extended_signature};
use crate::ir::{address_uses, user_name, user_symbol};
use crate::plan::{Disposition, Emit, Plan};
use crate::unit::{
    Bodies, DataIndex, DataObject, FunctionIndex, Redirected, ResolveSymbol, Resolved,
};
use alloc::sync::Arc;
use cranelift_codegen::ir::{
    ExtFuncData, FuncRef, Function, GlobalValueData, Inst, InstructionData, Signature,
    UserExternalName, UserFuncName,
};
use cranelift_entity::EntityRef;

impl Plan {
    /// Rewrites `func`, which is the body of `function`, so that it can be compiled with the other
    /// kept functions of the unit. Returns whether anything changed.
    ///
    /// `func` must be the function that was added, or, for a private copy, a clone
    /// of it under its new name.
    ///
    /// A redirected reference stays `colocated` if it was: the representative is defined in the
    /// same unit and cannot be preempted, so the flag of the old callee holds for it. It never
    /// becomes `colocated`, because the embedder may not support that.
    ///
    /// Linear in the number of imports; for a function that takes the address of a function it also
    /// calls, in its size.
    pub fn apply(&self, function: FunctionIndex, func: &mut Function) -> bool {
        self.apply_as(function, func, KeptCalls::none())
    }

    /// Like [`apply`](Plan::apply), but some calls stay as they are written.
    fn apply_as(&self, function: FunctionIndex, func: &mut Function, written: &KeptCalls) -> bool {
        self.redirect(func, self.written(function, written))
    }

    /// Makes of `func`, which is the body of `function`, the code to compile under the symbol of
    /// `function`, for back ends that emit nothing but functions
    /// ([`Options::for_ir`](crate::Options::for_ir)): its own body, after [`apply`](Plan::apply),
    /// the body that the plan adds, or a thunk that calls another function. Returns whether
    /// anything is to be compiled: nothing is for an alias, and for a function to which no
    /// reference is left.
    ///
    /// Of a body that the plan adds, `func` is not read; of a thunk, only the signature is. As
    /// [`apply`](Plan::apply), it can be called by several threads.
    ///
    /// # Panics
    ///
    /// If `function` is not from this plan.
    pub fn finish(&self, function: FunctionIndex, func: &mut Function) -> bool {
        self.finish_with(function, func, |_| {})
    }

    /// Like [`finish`](Plan::finish). Calls `before` for a body before it is rewritten.
    pub(crate) fn finish_with(
        &self,
        function: FunctionIndex,
        func: &mut Function,
        before: impl FnOnce(&mut Function),
    ) -> bool {
        match self.output(function).emit {
            Emit::Body => {
                before(func);
                self.apply(function, func);
            }
            Emit::NewBody(body) => {
                *func = body.clone();
                before(func);
                self.apply(function, func);
            }
            Emit::Thunk { to, extra_arguments, late } => {
                let name = UserFuncName::User(self.entry(function).symbol().clone());
                let signature = late.unwrap_or(&func.signature);
                let how = self.target().call_thunks.unwrap_or_default();
                *func = call_thunk(name, signature, &extra_arguments, to, &how);
            }
            Emit::Alias { to: _ } | Emit::Nothing => return false,
        }
        true
    }

    /// Like [`apply`](Plan::apply), for a function that was not added and of whose calls
    /// [`StreamingMerger::add_call`](crate::streaming::StreamingMerger::add_call) was called with
    /// [`Caller::IsRewritten`](crate::streaming::Caller::IsRewritten). It need not be called
    /// where references of compiled code are redirected, if no call
    /// [passes extra arguments](Plan::passes_extra_arguments).
    pub fn apply_to_caller(&self, func: &mut Function) -> bool {
        self.redirect(func, KeptCalls::none())
    }

    /// Whether `func`, rewritten by the plan, may pass extra arguments to a function that it calls.
    ///
    /// Linear in the number of imports.
    pub fn passes_extra_arguments(&self, func: &Function) -> bool {
        let passes = |symbol: &UserExternalName| {
            let call = self.redirected_call(symbol, KeptCalls::none());
            call.is_some_and(|call| !call.arguments.is_empty())
        };
        func.params.user_named_funcs().values().any(passes)
    }

    /// Whether [`apply`](Plan::apply) would change a function. One that it would not change can be
    /// compiled as it is, and could have been compiled before the plan was made. In doubt it says
    /// that it would.
    ///
    /// Linear in the number of imports, not in the number of instructions.
    pub fn needs_apply(&self, func: &Function) -> bool {
        let goes_elsewhere = |symbol: &UserExternalName| {
            self.call_symbol(symbol) != symbol || self.address_symbol(symbol) != symbol
        };
        func.params.user_named_funcs().values().any(goes_elsewhere)
    }

    /// The finished thunk of `function`, which has this signature, if the plan makes it one: in raw
    /// bytes, where the target of the plan can write it so, else as a function to be compiled,
    /// which calls as [`Target::call_thunks`](crate::Target::call_thunks) says. It is to be emitted
    /// under the symbol of the function, aligned as [`Entry::alignment`](crate::Entry::alignment)
    /// says.
    ///
    /// # Panics
    ///
    /// If `function` is not from this plan.
    pub fn thunk(&self, function: FunctionIndex, signature: &Signature) -> Option<Thunk> {
        let entry = self.entry(function);
        let Disposition::Thunk { to } = entry.disposition() else {
            return None;
        };
        let (to, arguments) = (self.entry(to).symbol(), self.thunk_arguments(function));
        let (own, optimize) = (entry.symbol(), self.optimize_for());
        Some(Thunk::new(own, signature, &arguments, to, self.target(), optimize))
    }

    /// Like [`apply`](Plan::apply), for a module that has names of its own: `choose` is given each
    /// symbol that `func` names and where the plan redirects references to it, and has the last
    /// word. It is asked about the symbols of extra arguments as well.
    pub fn apply_with(
        &self,
        function: FunctionIndex,
        func: &mut Function,
        choose: &dyn Fn(&UserExternalName, Redirected) -> Redirected,
    ) -> bool {
        let written = self.written(function, KeptCalls::none());
        redirect(func, &|symbol| choose(symbol, self.redirected(symbol, written)))
    }

    /// The calls that stay as they are written in the code of a function.
    fn written<'a>(&self, function: FunctionIndex, written: &'a KeptCalls) -> &'a KeptCalls {
        match self.content_digest(function) {
            Some(_) => KeptCalls::external(),
            None => written,
        }
    }

    /// Redirects the references of `func`, but for calls that stay as they are written.
    pub(crate) fn redirect(&self, func: &mut Function, written: &KeptCalls) -> bool {
        redirect(func, &|symbol| self.redirected(symbol, written))
    }

    /// Where references to a symbol go.
    pub(crate) fn redirected(&self, symbol: &UserExternalName, written: &KeptCalls) -> Redirected {
        Redirected {
            call: self.redirected_call(symbol, written),
            address: other(symbol, self.address_symbol(symbol)),
        }
    }

    /// The target of direct calls of a symbol, if it is another one.
    pub(crate) fn redirected_call(
        &self,
        symbol: &UserExternalName,
        written: &KeptCalls,
    ) -> Option<Substitute> {
        let function = self.function(symbol)?;
        let entry = self.entry(function);
        if written.stays(entry.attributes().linkage) {
            return None;
        }
        // Other units do not have the thunk, but they have its target.
        if let Disposition::Thunk { to } = entry.disposition()
            && written.serves_units()
            && !entry.extra_arguments().is_empty()
            && !entry.is_called_by_symbol()
        {
            let symbol = self.entry(to).symbol().clone();
            return Some(Substitute { symbol, arguments: entry.shared_arguments() });
        }
        if let Some(to) = written.callee(function) {
            let symbol = other(symbol, self.entry(to).symbol())?;
            return Some(Substitute { symbol, arguments: Arc::default() });
        }
        let symbol = other(symbol, self.call_symbol(symbol))?;
        Some(Substitute { symbol, arguments: entry.shared_arguments() })
    }

    /// The function to which a direct call of `symbol` goes, if the unit has it.
    pub(crate) fn callee(&self, symbol: &UserExternalName) -> Option<FunctionIndex> {
        Some(self.call_target(self.function(symbol)?))
    }

    /// The symbol that a direct call to `symbol` should use.
    pub fn call_symbol<'a>(&'a self, symbol: &'a UserExternalName) -> &'a UserExternalName {
        match self.function(symbol) {
            None => symbol,
            Some(function) => self.entry(self.call_target(function)).symbol(),
        }
    }
}

fn other(symbol: &UserExternalName, target: &UserExternalName) -> Option<UserExternalName> {
    (target != symbol).then(|| target.clone())
}

/// Makes calls, and uses of addresses, go where `redirected` says.
fn redirect(func: &mut Function, redirected: &dyn Fn(&UserExternalName) -> Redirected) -> bool {
    let address = |symbol: &UserExternalName| redirected(symbol).address;
    let mut changed = false;
    for index in 0..func.global_values.len() {
        let gv = cranelift_codegen::ir::GlobalValue::new(index);
        let GlobalValueData::Symbol { name, .. } = &func.global_values[gv] else {
            continue;
        };
        if let Some(to) = user_symbol(func, name).and_then(address) {
            let new = user_name(func, to);
            if let GlobalValueData::Symbol { name, .. } = &mut func.global_values[gv] {
                *name = new;
                changed = true;
            }
        }
    }
    let mut appended = Appended::default();
    for index in 0..func.dfg.ext_funcs.len() {
        let func_ref = FuncRef::new(index);
        let callee = &func.dfg.ext_funcs[func_ref];
        // Code that patches a call finds it under the symbol that the front end gave.
        if callee.patchable {
            continue;
        }
        let Some(symbol) = user_symbol(func, &callee.name).cloned() else {
            continue;
        };
        let Redirected { call, address: to_address } = redirected(&symbol);
        let (call, arguments) = match call {
            None => (None, None),
            Some(Substitute { symbol, arguments }) => (Some(symbol), Some(arguments)),
        };
        let arguments = arguments.filter(|arguments| !arguments.is_empty());
        // The address is that of a function with the same signature.
        let own = match call == to_address && arguments.is_none() {
            true => None,
            false => keep_address_uses(func, func_ref),
        };
        for (func_ref, to) in [(Some(func_ref), call), (own, to_address)] {
            if let (Some(func_ref), Some(to)) = (func_ref, to) {
                func.dfg.ext_funcs[func_ref].name = user_name(func, to);
                changed = true;
            }
        }
        if let Some(arguments) = arguments {
            let signature = func.dfg.ext_funcs[func_ref].signature;
            let signature = extended_signature(&func.dfg.signatures[signature], &arguments);
            func.dfg.ext_funcs[func_ref].signature = func.import_signature(signature);
            let arguments = arguments.iter().map(|argument| argument.redirected(&address));
            appended.insert(func_ref, arguments.collect());
        }
    }
    append(func, &appended);
    changed
}

/// Gives the instructions that take the address of `func_ref` a reference of their own, so that
/// the calls can be redirected without them. `None` if there are no such instructions.
fn keep_address_uses(func: &mut Function, func_ref: FuncRef) -> Option<FuncRef> {
    address_uses(func).find(|&used| used == func_ref)?;
    let ExtFuncData { name, signature, colocated, patchable } =
        func.dfg.ext_funcs[func_ref].clone();
    let own = func.import_function(ExtFuncData { name, signature, colocated, patchable });
    for index in 0..func.dfg.num_insts() {
        if let InstructionData::FuncAddr { opcode: _, func_ref: used } =
            &mut func.dfg.insts[Inst::new(index)]
            && *used == func_ref
        {
            *used = own;
        }
    }
    Some(own)
}

/// The code of a function that a plan keeps, as it will be compiled: its own body, or that of the
/// plan, applied.
pub(crate) fn emitted(plan: &Plan, bodies: &mut dyn Bodies, function: FunctionIndex) -> Function {
    emitted_as(plan, bodies, function, KeptCalls::none())
}

/// Like [`emitted`], but some calls stay as they are written.
pub(crate) fn emitted_as(
    plan: &Plan,
    bodies: &mut dyn Bodies,
    function: FunctionIndex,
    written: &KeptCalls,
) -> Function {
    let mut func = not_redirected(plan, bodies, function).clone();
    func.name = UserFuncName::User(plan.entry(function).symbol().clone());
    plan.apply_as(function, &mut func, written);
    func
}

/// The same function with its references as they were, for a walk through [`Redirecting`].
pub(crate) fn not_redirected<'a>(
    plan: &'a Plan,
    bodies: &'a mut dyn Bodies,
    function: FunctionIndex,
) -> &'a Function {
    match plan.new_body(function) {
        Some(new) => new.body(),
        None => bodies.body(function),
    }
}

/// The symbols of a unit after a plan: a function is walked as if the plan were applied to it,
/// without a copy.
pub(crate) struct Redirecting<'a> {
    pub plan: &'a Plan,
    /// The calls that the plan does not redirect.
    pub written: &'a KeptCalls,
    /// The unit after the plan.
    pub symbols: &'a (dyn ResolveSymbol + Sync),
}

impl ResolveSymbol for Redirecting<'_> {
    fn resolve(&self, symbol: &UserExternalName) -> Option<Resolved> {
        self.symbols.resolve(symbol)
    }

    fn redirect(&self, symbol: &UserExternalName) -> Redirected {
        let Redirecting { plan, written, symbols: _ } = self;
        plan.redirected(symbol, written)
    }
}

/// The body that a plan emits for a function of this unit, before its references are redirected, if
/// it emits one.
pub(crate) fn body_to_emit<'a>(
    plan: &'a Plan,
    bodies: &'a mut dyn Bodies,
    function: FunctionIndex,
) -> Option<&'a Function> {
    if plan.is_cached(function) {
        return None;
    }
    match plan.output(function).emit {
        Emit::NewBody(body) => Some(body),
        Emit::Body => Some(bodies.body(function)),
        Emit::Nothing | Emit::Alias { .. } | Emit::Thunk { .. } => None,
    }
}

/// A unit after a plan, as the checker sees it.
pub(crate) struct Applied<'a> {
    pub plan: &'a Plan,
    pub bodies: &'a mut dyn Bodies,
}

impl Code for Applied<'_> {
    fn original(&mut self, function: FunctionIndex) -> &Function {
        self.bodies.body(function)
    }

    fn emitted(&mut self, function: FunctionIndex) -> Function {
        emitted(self.plan, self.bodies, function)
    }

    fn data(&mut self, data: DataIndex) -> Option<&DataObject> {
        self.bodies.data(data)
    }
}
