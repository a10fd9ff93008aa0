//! Weakening: a body loses the facts that do not hold for all functions that it replaces.

use crate::canon::{self, Context, Encoding, Fact, Place, Scratch};
use crate::options::Options;
use crate::unit::NoUnit;
use alloc::vec::Vec;
use cranelift_codegen::ir::{
    AliasRegion, Function, GlobalValueData, Inst, Layout, MemFlags, MemFlagsData, MemFlagsSet,
};
use cranelift_entity::EntityRef;

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

/// `data` for an access that stays where it is.
pub(crate) fn without_can_move(data: MemFlagsData) -> MemFlagsData {
    let facts = [(data.aligned(), Fact::ALIGNED), (data.readonly(), Fact::READONLY)];
    let flags = facts.into_iter().filter(|(stated, _)| *stated).map(|(_, fact)| fact).sum();
    with_facts(data, flags, data.alias_region())
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
