//! Carrying out a plan, function by function.
//!
//! [`Plan::apply`] rewrites one kept function: references to functions that were merged away go to their
//! representatives, and a representative loses the facts that do not hold for all functions that it replaces. It
//! cannot fail, so a unit is either rewritten or, before the first call, unchanged. Functions may be rewritten in
//! any order and by several threads.
//!
//! It does not drop bodies, emit thunks or define aliases: that is the job of the caller's back end, with
//! [`Target::jump_thunk`](crate::Target::jump_thunk), or [`call_thunk`] where there is no jump.

use crate::canon::{self, Context, NoUnit, Place, Scratch};
use crate::canonicalize::canonicalized;
use crate::encoding::Encoding;
use crate::extra_argument::{Appended, ExtraArgument, append, extended_signature};
use crate::facts::Fact;
use crate::options::{CallThunks, Options};
use crate::plan::Plan;
use crate::summary::address_uses;
use crate::unit::FunctionIndex;
use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::{
    AliasRegion, ExtFuncData, ExternalName, FuncRef, Function, GlobalValueData, Inst, InstBuilder,
    InstructionData, Layout, MemFlags, MemFlagsData, MemFlagsSet, Signature, UserExternalName,
    UserExternalNameRef, UserFuncName,
};
use cranelift_codegen::isa::CallConv;
use cranelift_codegen::packed_option::ReservedValue;
use cranelift_entity::EntityRef;

impl Plan {
    /// Rewrites `func`, which is the body of `function`, so that it can be compiled with the other kept functions
    /// of the unit. Returns whether anything changed.
    ///
    /// `options` are those of the run. `func` must be the function that was added, or, for a private copy, a clone
    /// of it under its new name.
    ///
    /// A redirected reference stays `colocated` if it was: the representative is defined in the same unit and
    /// cannot be preempted, so the flag of the old callee holds for it. It never becomes `colocated`, because the
    /// embedder may not support that.
    ///
    /// Linear in the number of imports; for a representative that loses facts, and for a function that takes the
    /// address of a function it also calls, in its size.
    pub fn apply(
        &self,
        function: FunctionIndex,
        func: &mut Function,
        options: &Options<'_>,
    ) -> bool {
        let changed = self.canonicalize(function, func, options);
        self.rewrite(function, func, options) || changed
    }

    /// Rewrites `func`, the canonical body of `function` or of an added function: [`apply`](Plan::apply) without
    /// the canonicalisation.
    pub(crate) fn rewrite(
        &self,
        function: FunctionIndex,
        func: &mut Function,
        options: &Options<'_>,
    ) -> bool {
        let changed = self.weaken(function, func, options);
        let call = |symbol: &UserExternalName| {
            let to = other(symbol, self.call_symbol(symbol))?;
            let passed = self.function(symbol).map(|function| &self.entry(function).arguments);
            Some(CallTarget { symbol: to, arguments: passed.cloned().unwrap_or_default() })
        };
        let address = |symbol: &UserExternalName| other(symbol, self.address_symbol(symbol));
        redirect(func, &call, &address) || changed
    }

    /// Gives `func` the body that represents its class, without redirecting references.
    #[cfg(feature = "module")]
    pub(crate) fn settle(
        &self,
        function: FunctionIndex,
        func: &mut Function,
        options: &Options<'_>,
    ) {
        self.canonicalize(function, func, options);
        self.weaken(function, func, options);
    }

    /// Gives `func` its canonical body, if that is what is emitted: the class was found on canonical bodies, and so
    /// were the facts that all members share.
    fn canonicalize(
        &self,
        function: FunctionIndex,
        func: &mut Function,
        options: &Options<'_>,
    ) -> bool {
        if !self.entry(function).gets_compared_body() {
            return false;
        }
        match canonicalized(func, options.canonicalize) {
            Cow::Borrowed(_) => false,
            Cow::Owned(canonical) => {
                *func = canonical;
                true
            }
        }
    }

    /// Weakens `func` to the facts that hold for all functions that it replaces.
    fn weaken(&self, function: FunctionIndex, func: &mut Function, options: &Options<'_>) -> bool {
        let entry = self.entry(function);
        match &entry.weakened {
            None => false,
            Some(facts) => {
                weaken(func, entry.attributes.key, facts, options);
                true
            }
        }
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

/// The target to which a call is redirected.
pub(crate) struct CallTarget {
    pub symbol: UserExternalName,
    /// The extra arguments, behind the present arguments.
    pub arguments: Arc<[ExtraArgument]>,
}

/// Redirects calls, and uses of addresses, to the symbols that should be used instead, if any.
pub(crate) fn redirect(
    func: &mut Function,
    call: &dyn Fn(&UserExternalName) -> Option<CallTarget>,
    address: &dyn Fn(&UserExternalName) -> Option<UserExternalName>,
) -> bool {
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
        let (call, to_address) = (call(&symbol), address(&symbol));
        let (call, arguments) = match call {
            None => (None, None),
            Some(CallTarget { symbol, arguments }) => (Some(symbol), Some(arguments)),
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
            let arguments = arguments.iter().map(|argument| argument.redirected(address));
            appended.insert(func_ref, arguments.collect());
        }
    }
    append(func, &appended);
    changed
}

pub(crate) fn user_symbol<'a>(
    func: &'a Function,
    name: &ExternalName,
) -> Option<&'a UserExternalName> {
    match name {
        ExternalName::User(name_ref) => func.params.user_named_funcs().get(*name_ref),
        _ => None,
    }
}

/// The name of a symbol, in the tables of a function.
pub(crate) fn user_name(func: &mut Function, symbol: UserExternalName) -> ExternalName {
    let name_ref: UserExternalNameRef = func.params.ensure_user_func_name(symbol);
    ExternalName::User(name_ref)
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

/// Replaces the facts of `func` by `facts`, which are in the order of the canonical walk.
pub(crate) fn weaken(func: &mut Function, key: u64, facts: &[Fact], options: &Options<'_>) {
    let context =
        Context { policy: options.compare, target: options.target, key, symbols: &NoUnit };
    let mut scratch = Scratch::recording();
    let mut encoding = Encoding::default();
    canon::encode(func, &context, &mut scratch, &mut encoding).expect("was encoded before");
    assert_eq!(encoding.facts.len(), facts.len(), "not the function that was added");

    // The fact that a place contributed, if any, is the one before the next place's first.
    let mut cold = Vec::new();
    let mut accesses: Vec<Option<(u8, bool)>> = alloc::vec![None; func.dfg.num_insts()];
    for (at, mark) in scratch.marks.iter().enumerate() {
        let end = scratch.marks.get(at + 1).map_or(facts.len(), |next| next.facts);
        let Some(fact) = facts[mark.facts..end].first() else {
            continue;
        };
        match (mark.place, *fact) {
            (Place::Block(block), Fact::Block { cold: true }) => cold.push(block),
            (Place::Block(_), Fact::Block { cold: false }) => {}
            (Place::Inst(inst), Fact::Access { flags, region }) => {
                accesses[inst.index()] = Some((flags, region.is_some()));
            }
            (place, fact) => unreachable!("{fact:?} at {place:?}"),
        }
    }
    set_cold_blocks(func, &cold);
    set_accesses(func, &accesses);
}

/// Makes exactly the blocks of `cold` cold. A layout can only learn that a block is cold, so it is
/// built anew.
fn set_cold_blocks(func: &mut Function, cold: &[cranelift_codegen::ir::Block]) {
    if func.layout.blocks().filter(|&block| func.layout.is_cold(block)).count() == cold.len() {
        return;
    }
    let mut layout = Layout::new();
    for block in func.layout.blocks() {
        layout.append_block(block);
        for inst in func.layout.block_insts(block) {
            layout.append_inst(inst, block);
        }
    }
    for &block in cold {
        layout.set_cold(block);
    }
    func.layout = layout;
}

/// Sets the facts of each access: its bits, and whether it keeps its region.
fn set_accesses(func: &mut Function, accesses: &[Option<(u8, bool)>]) {
    let weaken = |data: MemFlagsData, access: Option<(u8, bool)>| match access {
        None => data,
        Some((flags, keep_region)) => {
            let region: Option<AliasRegion> = data.alias_region().filter(|_| keep_region);
            with_facts(data, flags, region)
        }
    };
    if rebuild_flags(func, |func, inst, data| {
        weaken(data, accesses[inst.index()].filter(|_| func.layout.inst_block(inst).is_some()))
    })
    .is_err()
    {
        // More than 65,535 different flags. Without any facts there are at most 768.
        rebuild_flags(func, |_, _, data| with_facts(data, 0, None))
            .expect("trap codes and byte orders alone fit");
    }
}

/// `data` with these facts and no others.
fn with_facts(data: MemFlagsData, flags: u8, region: Option<AliasRegion>) -> MemFlagsData {
    let mut new = MemFlagsData::new().with_trap_code(data.trap_code()).with_alias_region(region);
    if let Some(endianness) = data.explicit_endianness() {
        new.set_endianness(endianness);
    }
    if flags & Fact::ALIGNED != 0 {
        new.set_aligned();
    }
    if flags & Fact::READONLY != 0 {
        new.set_readonly();
    }
    if flags & Fact::CAN_MOVE != 0 {
        new.set_can_move();
    }
    new
}

/// The table of memory flags is full.
#[derive(Debug)]
pub(crate) struct TooManyFlags;

/// Gives every instruction the flags that `new` makes of its old ones, in a new table.
pub(crate) fn rebuild_flags(
    func: &mut Function,
    new: impl Fn(&Function, Inst, MemFlagsData) -> MemFlagsData,
) -> Result<(), TooManyFlags> {
    let mut set = MemFlagsSet::new();
    let mut insts: Vec<(Inst, MemFlags)> = Vec::new();
    for index in 0..func.dfg.num_insts() {
        let inst = Inst::new(index);
        if let Some(old) = func.dfg.insts[inst].memflags()
            && func.dfg.mem_flags.is_valid(old)
        {
            insts.push((
                inst,
                set.insert(new(func, inst, func.dfg.mem_flags[old])).map_err(|_| TooManyFlags)?,
            ));
        }
    }
    let mut globals = Vec::new();
    for (gv, data) in func.global_values.iter() {
        if let GlobalValueData::Load { flags, .. } = data
            && func.dfg.mem_flags.is_valid(*flags)
        {
            globals.push((gv, set.insert(func.dfg.mem_flags[*flags]).map_err(|_| TooManyFlags)?));
        }
    }
    for (inst, flags) in insts {
        *func.dfg.insts[inst].memflags_mut().expect("has flags") = flags;
    }
    for (gv, new) in globals {
        if let GlobalValueData::Load { flags, .. } = &mut func.global_values[gv] {
            *flags = new;
        }
    }
    func.dfg.mem_flags = set;
    Ok(())
}

/// A function that calls `to`, with these extra arguments behind its own, and returns the results: a thunk for
/// targets and texts that have no jump. For [`CallConv::Tail`] it is a tail call, as long as `tail_calls` says that
/// the back end can make one (x86-64 can with `preserve_frame_pointers` only).
///
/// 14–46 bytes on x86-64, 16–52 on aarch64; it takes a frame unless it is a tail call.
pub fn call_thunk(
    name: UserFuncName,
    signature: &Signature,
    arguments: &[ExtraArgument],
    to: &UserExternalName,
    options: &CallThunks,
) -> Function {
    let &CallThunks { tail_calls, colocated } = options;
    let mut func = Function::with_name_signature(name, signature.clone());
    let sig = func.import_signature(extended_signature(signature, arguments));
    let name = user_name(&mut func, to.clone());
    let callee =
        func.import_function(ExtFuncData { name, signature: sig, colocated, patchable: false });
    let block = func.dfg.make_block();
    let mut args = Vec::new();
    for param in &signature.params {
        args.push(func.dfg.append_block_param(block, param.value_type));
    }
    let mut cursor = FuncCursor::new(&mut func);
    cursor.insert_block(block);
    args.extend(arguments.iter().map(|argument| argument.insert(&mut cursor)));
    if tail_calls && signature.call_conv == CallConv::Tail {
        cursor.ins().return_call(callee, &args);
    } else {
        let call = cursor.ins().call(callee, &args);
        let results = cursor.func.dfg.inst_results(call).to_vec();
        cursor.ins().return_(&results);
    }
    debug_assert!(!block.is_reserved_value());
    func
}
