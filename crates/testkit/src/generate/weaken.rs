//! A function that computes equal results and states less: a near miss.

use crate::support::Rng;
use cranelift_codegen::ir::{AliasRegionData, Function, MemFlags, MemFlagsData, Opcode};
use std::collections::BTreeMap;

/// Removes some facts: flags of single accesses, the region of all accesses to it, or the
/// distinction between two regions. The facts that are left are as true as before. Or makes a block
/// cold, whether it is or not.
pub fn weaken(func: &mut Function, rng: &mut Rng) {
    let blocks: Vec<_> = func.layout.blocks().skip(1).collect();
    if !blocks.is_empty() && rng.one_in(3) {
        func.layout.set_cold(rng.choose(&blocks));
    }
    let keep_flags = rng.one_in(3);
    let keep_regions = rng.one_in(3);
    let regions: Vec<_> = func.dfg.alias_regions.iter().map(|(region, _)| region).collect();
    let mut places: Vec<Option<_>> = regions.iter().copied().map(Some).collect();
    if !keep_regions {
        for place in &mut places {
            match rng.below(4) {
                0 => *place = None,
                1 => *place = rng.choose(&regions).into(),
                2 => {
                    let user_id = 10 + rng.below(2) as u32;
                    let data = AliasRegionData { user_id, description: "joined".into() };
                    *place = Some(func.dfg.alias_regions.insert(data));
                }
                _ => {}
            }
        }
    }
    let insts: Vec<_> =
        func.layout.blocks().flat_map(|block| func.layout.block_insts(block)).collect();
    let mut changed: BTreeMap<MemFlags, MemFlagsData> = BTreeMap::new();
    for inst in insts {
        let data = func.dfg.insts[inst];
        let Some(flags) = data.memflags() else { continue };
        if data.opcode() == Opcode::Bitcast {
            continue;
        }
        let old = *changed.entry(flags).or_insert_with(|| func.dfg.mem_flags[flags]);
        let mut new = MemFlagsData::new().with_trap_code(old.trap_code());
        if let Some(endianness) = old.explicit_endianness() {
            new.set_endianness(endianness);
        }
        let mut keep = |is_set: bool| is_set && (keep_flags || rng.one_in(2));
        if keep(old.aligned()) {
            new.set_aligned();
        }
        if keep(old.readonly()) {
            new.set_readonly();
        }
        if keep(old.can_move()) {
            new.set_can_move();
        }
        let at = |region| regions.iter().position(|&other| other == region);
        new.set_alias_region(old.alias_region().and_then(at).and_then(|at| places[at]));
        let new = func.dfg.mem_flags.insert(new).expect("few flags");
        *func.dfg.insts[inst].memflags_mut().expect("has flags") = new;
    }
}

/// Removes `colocated` from some callees, which does not count.
pub fn less_colocated(func: &mut Function, rng: &mut Rng) {
    let callees: Vec<_> = func.dfg.ext_funcs.keys().collect();
    for callee in callees {
        let data = &mut func.dfg.ext_funcs[callee];
        data.colocated &= data.patchable || rng.but_one_in(3);
    }
}
