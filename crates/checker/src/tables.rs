//! Tables of instructions and headers, compared by content.

use super::proof::Mismatch;
use super::simulation::{Simulation, require};
use super::terms::{Base, ExtraTerm, Term};
use super::{Claim, Use};
use alloc::vec::Vec;
use cranelift_codegen::ir::function::FunctionStencil;
use cranelift_codegen::ir::{
    AbiParam, AliasRegion, AliasRegionData, DynamicStackSlotData, DynamicTypeData, ExceptionTable,
    ExceptionTableData, ExceptionTableItem, ExtFuncData, ExternalName, FuncRef, Function,
    GlobalValue, GlobalValueData, JumpTable, MemFlags, MemFlagsData, SigRef, StackSlotData, Type,
    UserExternalName, Value,
};

type Checked = Result<(), Mismatch>;

/// The parts of a function outside its blocks.
pub(crate) fn headers(simulation: &mut Simulation<'_>) -> Checked {
    let Claim { kept, original, comparison, .. } = *simulation.claim;
    let FunctionStencil {
        version_marker: _,
        signature,
        sized_stack_slots,
        dynamic_stack_slots,
        global_values: _, // where they are used
        dfg: _,           // where it is used
        layout: _,        // the order of the simulation
        srclocs: _,       // by instruction
        debug_tags: _,    // by instruction
        stack_limit,
    } = &kept.stencil;
    let extra = simulation.claim.extra.unwrap_or(&[]);
    let own = signature.params.len().checked_sub(extra.len()).ok_or(Mismatch::Signature)?;
    let (params, further) = signature.params.split_at(own);
    let same = params == original.signature.params
        && signature.returns == original.signature.returns
        && signature.call_conv == original.signature.call_conv;
    let types = further.iter().map(|param| param.value_type);
    let plain = further.iter().copied().eq(extra_parameters(own, types));
    require(same && plain, Mismatch::Signature)?;
    simulation.note(&original.signature);

    // All of them have a place in the frame, so they are bound in order, used or not.
    let others = &original.sized_stack_slots;
    simulation.same(&sized_stack_slots.len(), &others.len(), Mismatch::StackSlots)?;
    for slots in sized_stack_slots.values().zip(others.values()) {
        let least = comparison.slot_alignment;
        let parts = |slot: &StackSlotData| {
            let StackSlotData { kind, size, align_shift, key } = slot;
            let alignment = (1_u64 << align_shift.min(&63)).max(u64::from(least));
            let key = key.filter(|_| comparison.debug_info);
            (*kind, *size, alignment, key.map(|key| key.bits()))
        };
        simulation.same(&parts(slots.0), &parts(slots.1), Mismatch::StackSlots)?;
    }

    let others = &original.dynamic_stack_slots;
    simulation.same(&dynamic_stack_slots.len(), &others.len(), Mismatch::DynamicSlots)?;
    for (slot, other) in dynamic_stack_slots.values().zip(others.values()) {
        let DynamicStackSlotData { kind, dyn_ty } = slot;
        let types =
            (kept.dfg.dynamic_types.get(*dyn_ty), original.dfg.dynamic_types.get(other.dyn_ty));
        let (Some(ty), Some(other_ty)) = types else {
            return Err(Mismatch::DynamicSlots);
        };
        let DynamicTypeData { base_vector_ty, dynamic_scale } = ty;
        let others = (other.kind, other_ty.base_vector_ty);
        simulation.same(&(*kind, *base_vector_ty), &others, Mismatch::DynamicSlots)?;
        global_value(simulation, *dynamic_scale, other_ty.dynamic_scale)?;
    }

    match (*stack_limit, original.stack_limit) {
        (None, None) => {
            simulation.note("no limit");
            Ok(())
        }
        (Some(limit), Some(other)) => global_value(simulation, limit, other),
        (Some(_), None) | (None, Some(_)) => Err(Mismatch::StackLimit),
    }
}

/// The parameters for extra arguments, behind `others` other parameters. Narrow integers that may
/// be on the stack are extended.
fn extra_parameters(
    others: usize,
    types: impl Iterator<Item = Type>,
) -> impl Iterator<Item = AbiParam> {
    types.zip(others..).map(|(ty, at)| match at >= 6 && ty.is_int() && ty.bits() < 64 {
        true => AbiParam::new(ty).uext(),
        false => AbiParam::new(ty),
    })
}

/// Two global values, followed to their bases.
pub(crate) fn global_value(
    simulation: &mut Simulation<'_>,
    mut kept: GlobalValue,
    mut original: GlobalValue,
) -> Checked {
    use GlobalValueData as G;
    let Claim { kept: a, original: b, .. } = *simulation.claim;
    // A chain longer than the table is a cycle.
    for _ in 0..a.global_values.len() {
        let (Some(x), Some(y)) = (a.global_values.get(kept), b.global_values.get(original)) else {
            return Err(Mismatch::GlobalValue);
        };
        match (x, y) {
            (G::VMContext, G::VMContext) => {
                simulation.note("context");
                return Ok(());
            }
            (
                G::Load { base, offset, global_type, flags },
                G::Load { base: other_base, offset: i, global_type: j, flags: other_flags },
            ) => {
                let parts = (("load", offset, global_type), ("load", i, j));
                simulation.same(&parts.0, &parts.1, Mismatch::GlobalValue)?;
                let (Some(p), Some(q)) = (mem_flags(a, *flags), mem_flags(b, *other_flags)) else {
                    return Err(Mismatch::GlobalValue);
                };
                let made = ((facts(p), region_id(a, p)), (facts(q), region_id(b, q)));
                simulation.same(&made.0, &made.1, Mismatch::GlobalValue)?;
                behaviour(simulation, p, q)?;
                (kept, original) = (*base, *other_base);
            }
            (
                G::IAddImm { base, offset, global_type },
                G::IAddImm { base: other_base, offset: i, global_type: j },
            ) => {
                let parts = (("sum", offset, global_type), ("sum", i, j));
                simulation.same(&parts.0, &parts.1, Mismatch::GlobalValue)?;
                (kept, original) = (*base, *other_base);
            }
            (
                G::Symbol { name, offset, colocated, tls },
                G::Symbol { name: other, offset: i, colocated: other_colocated, tls: j },
            ) => {
                let parts = (("symbol", offset, tls), ("symbol", i, j));
                simulation.same(&parts.0, &parts.1, Mismatch::GlobalValue)?;
                let gained = simulation.claim.own && *colocated && !other_colocated;
                require(!gained, Mismatch::Colocated)?;
                let usage = if offset.bits() == 0 { Use::Address } else { Use::Inside };
                return symbol(simulation, usage, name, other);
            }
            (
                G::DynScaleTargetConst { vector_type },
                G::DynScaleTargetConst { vector_type: other },
            ) => {
                let parts = (("vector", vector_type), ("vector", other));
                return simulation.same(&parts.0, &parts.1, Mismatch::GlobalValue);
            }
            (
                G::VMContext
                | G::Load { .. }
                | G::IAddImm { .. }
                | G::Symbol { .. }
                | G::DynScaleTargetConst { .. },
                _,
            ) => return Err(Mismatch::GlobalValue),
        }
    }
    Err(Mismatch::GlobalValue)
}

fn mem_flags(func: &Function, flags: MemFlags) -> Option<MemFlagsData> {
    func.dfg.mem_flags.is_valid(flags).then(|| func.dfg.mem_flags[flags])
}

/// `aligned`, `readonly`, `can_move`.
fn facts(flags: MemFlagsData) -> [bool; 3] {
    [flags.aligned(), flags.readonly(), flags.can_move()]
}

fn region_id(func: &Function, flags: MemFlagsData) -> Option<u32> {
    let AliasRegionData { user_id, description: _ } =
        &func.dfg.alias_regions[valid_region(func, flags)?];
    Some(*user_id)
}

fn valid_region(func: &Function, flags: MemFlagsData) -> Option<AliasRegion> {
    flags.alias_region().filter(|&region| func.dfg.alias_regions.is_valid(region))
}

/// The effect of an access: how it traps, and its byte order.
fn behaviour(
    simulation: &mut Simulation<'_>,
    kept: MemFlagsData,
    original: MemFlagsData,
) -> Checked {
    simulation.same(&kept.trap_code(), &original.trap_code(), Mismatch::TrapCode)?;
    let native = simulation.claim.comparison.endianness;
    let order = |flags: MemFlagsData| flags.explicit_endianness().or(native);
    simulation.same(&order(kept), &order(original), Mismatch::ByteOrder)
}

/// Two conversions by way of memory that no other code sees: the same byte order.
pub(crate) fn conversion(
    simulation: &mut Simulation<'_>,
    kept: MemFlags,
    original: MemFlags,
) -> Checked {
    both_flags(simulation, kept, original).map(drop)
}

fn both_flags(
    simulation: &mut Simulation<'_>,
    kept: MemFlags,
    original: MemFlags,
) -> Result<(MemFlagsData, MemFlagsData), Mismatch> {
    let Claim { kept: a, original: b, .. } = *simulation.claim;
    let (Some(p), Some(q)) = (mem_flags(a, kept), mem_flags(b, original)) else {
        return Err(Mismatch::Undefined);
    };
    behaviour(simulation, p, q)?;
    Ok((p, q))
}

/// Two memory accesses: the same behaviour, and no fact that the original does not have.
pub(crate) fn access(
    simulation: &mut Simulation<'_>,
    kept: MemFlags,
    original: MemFlags,
) -> Checked {
    let Claim { kept: a, original: b, .. } = *simulation.claim;
    let (p, q) = both_flags(simulation, kept, original)?;
    simulation.note(&(facts(q), region_id(b, q)));
    let made = facts(p).into_iter().zip(facts(q)).all(|(kept, made)| !kept || made);
    require(made, Mismatch::Fact)?;
    let regions = (valid_region(a, p), valid_region(b, q));
    let valid = regions.0 == p.alias_region() && regions.1 == q.alias_region();
    require(valid, Mismatch::Undefined)?;
    simulation.regions(regions.0, regions.1)
}

/// Two functions used by name.
pub(crate) fn callee(
    simulation: &mut Simulation<'_>,
    usage: Use,
    kept: FuncRef,
    original: FuncRef,
) -> Checked {
    let Claim { kept: a, original: b, own, .. } = *simulation.claim;
    let (Some(x), Some(y)) = (a.dfg.ext_funcs.get(kept), b.dfg.ext_funcs.get(original)) else {
        return Err(Mismatch::Reference);
    };
    let ExtFuncData { name, signature, colocated, patchable } = x;
    callee_signature(simulation, *signature, y.signature)?;
    simulation.same(patchable, &y.patchable, Mismatch::Reference)?;
    require(!own || !colocated || y.colocated, Mismatch::Colocated)?;
    let usage = match usage {
        Use::Call if *patchable => Use::PatchableCall,
        Use::Call | Use::PatchableCall | Use::Address | Use::Inside => usage,
    };
    symbol(simulation, usage, name, &y.name)
}

/// How the kept code refers to a callee.
pub(crate) enum Callee {
    Direct(FuncRef),
    /// Through an address that is known, with this signature.
    Indirect(Value, SigRef),
}

/// A call that passes these operands behind the arguments of a direct call of `original`.
pub(crate) fn callee_with_extra(
    simulation: &mut Simulation<'_>,
    kept: Callee,
    extra: &[Value],
    original: FuncRef,
) -> Checked {
    let Claim { kept: a, original: b, own, .. } = *simulation.claim;
    let terms = &simulation.terms[0];
    let original_callee = b.dfg.ext_funcs.get(original).ok_or(Mismatch::Reference)?;
    let (symbol, signature) = match kept {
        Callee::Direct(kept) => {
            let callee = a.dfg.ext_funcs.get(kept).ok_or(Mismatch::Reference)?;
            require(!callee.patchable, Mismatch::Reference)?;
            require(!own || !callee.colocated || original_callee.colocated, Mismatch::Colocated)?;
            (user_symbol(a, &callee.name), callee.signature)
        }
        Callee::Indirect(address, signature) => match terms.get(a, address) {
            Some(Term::Behind(_, Base::Symbol(symbol, false), 0)) => (Some(symbol), signature),
            _ => (None, signature),
        },
    };
    let signatures =
        (a.dfg.signatures.get(signature), b.dfg.signatures.get(original_callee.signature));
    let (Some(signature), Some(plain)) = signatures else {
        return Err(Mismatch::CalleeSignature);
    };
    let mut extended = plain.clone();
    let types = extra.iter().map(|&arg| a.dfg.value_type(arg));
    extended.params.extend(extra_parameters(extended.params.len(), types));
    require(*signature == extended, Mismatch::CalleeSignature)?;
    let extra = extra.iter().map(|&arg| ExtraTerm::of(terms.get(a, arg)?));
    let extra: Option<Vec<ExtraTerm>> = extra.collect();
    let original_callee =
        user_symbol(b, &original_callee.name).filter(|_| !original_callee.patchable);
    let (Some(extra), Some(symbol), Some(original_callee)) =
        (extra, symbol.cloned(), original_callee)
    else {
        return Err(Mismatch::Reference);
    };
    let may_replace = match extra.is_empty() {
        true => simulation.symbols.may_replace(Use::Call, &symbol, original_callee),
        false => simulation.symbols.extra_may_replace(&symbol, extra, original_callee, plain),
    };
    require(may_replace, Mismatch::Reference)
}

pub(crate) fn user_symbol<'a>(
    func: &'a Function,
    name: &ExternalName,
) -> Option<&'a UserExternalName> {
    match name {
        ExternalName::User(name) => func.params.user_named_funcs().get(*name),
        _ => None,
    }
}

pub(crate) fn callee_signature(
    simulation: &mut Simulation<'_>,
    kept: SigRef,
    original: SigRef,
) -> Checked {
    let Claim { kept: a, original: b, .. } = *simulation.claim;
    match (a.dfg.signatures.get(kept), b.dfg.signatures.get(original)) {
        (Some(x), Some(y)) => simulation.same(x, y, Mismatch::CalleeSignature),
        (_, None) | (None, _) => Err(Mismatch::CalleeSignature),
    }
}

fn symbol(
    simulation: &mut Simulation<'_>,
    usage: Use,
    kept: &ExternalName,
    original: &ExternalName,
) -> Checked {
    let Claim { kept: a, original: b, .. } = *simulation.claim;
    let may_replace = match (kept, original) {
        (ExternalName::User(x), ExternalName::User(y)) => {
            let names = (a.params.user_named_funcs().get(*x), b.params.user_named_funcs().get(*y));
            let (Some(x), Some(y)) = names else {
                return Err(Mismatch::Reference);
            };
            simulation.note_reference(usage, y);
            simulation.symbols.may_replace(usage, x, y)
        }
        (ExternalName::TestCase(_), ExternalName::TestCase(_))
        | (ExternalName::LibCall(_), ExternalName::LibCall(_))
        | (ExternalName::KnownSymbol(_), ExternalName::KnownSymbol(_)) => {
            simulation.note(original);
            kept == original
        }
        (
            ExternalName::User(_)
            | ExternalName::TestCase(_)
            | ExternalName::LibCall(_)
            | ExternalName::KnownSymbol(_),
            _,
        ) => false,
    };
    require(may_replace, Mismatch::Reference)
}

/// Two jump tables, default first.
pub(crate) fn jump_table(
    simulation: &mut Simulation<'_>,
    kept: JumpTable,
    original: JumpTable,
) -> Checked {
    let Claim { kept: a, original: b, .. } = *simulation.claim;
    let (Some(x), Some(y)) = (a.dfg.jump_tables.get(kept), b.dfg.jump_tables.get(original)) else {
        return Err(Mismatch::JumpTable);
    };
    let (x, y) = (x.all_branches(), y.all_branches());
    simulation.same(&x.len(), &y.len(), Mismatch::JumpTable)?;
    x.iter().zip(y).try_for_each(|(x, y)| simulation.branch(x, y))
}

pub(crate) fn exception_table(
    simulation: &mut Simulation<'_>,
    kept: ExceptionTable,
    original: ExceptionTable,
) -> Checked {
    let (x, y) = both_exception_tables(simulation, kept, original)?;
    callee_signature(simulation, x.signature(), y.signature())?;
    handlers(simulation, kept, original)
}

fn both_exception_tables<'a>(
    simulation: &Simulation<'a>,
    kept: ExceptionTable,
    original: ExceptionTable,
) -> Result<(&'a ExceptionTableData, &'a ExceptionTableData), Mismatch> {
    let Claim { kept: a, original: b, .. } = *simulation.claim;
    let tables = (a.dfg.exception_tables.get(kept), b.dfg.exception_tables.get(original));
    match tables {
        (Some(x), Some(y)) => Ok((x, y)),
        (_, None) | (None, _) => Err(Mismatch::ExceptionTable),
    }
}

/// Exception tables, except for the signatures of the callees.
pub(crate) fn handlers(
    simulation: &mut Simulation<'_>,
    kept: ExceptionTable,
    original: ExceptionTable,
) -> Checked {
    use ExceptionTableItem as H;
    let (x, y) = both_exception_tables(simulation, kept, original)?;
    simulation.branch(x.normal_return(), y.normal_return())?;
    simulation.same(&x.items().count(), &y.items().count(), Mismatch::ExceptionTable)?;
    for items in x.items().zip(y.items()) {
        match items {
            (H::Tag(i, x), H::Tag(j, y)) => {
                simulation.same(&("tag", i), &("tag", j), Mismatch::ExceptionTable)?;
                simulation.branch(&x, &y)?;
            }
            (H::Default(x), H::Default(y)) => {
                simulation.note("default");
                simulation.branch(&x, &y)?;
            }
            (H::Context(x), H::Context(y)) => {
                simulation.note("context");
                simulation.value(x, y)?;
            }
            (H::Tag(..) | H::Default(_) | H::Context(_), _) => {
                return Err(Mismatch::ExceptionTable);
            }
        }
    }
    Ok(())
}
