//! Guards against speculation.
//!
//! `select_spectre_guard` keeps an address harmless while the processor speculates that a check
//! passes. A body that branches by a selector adds a branch that can be mispredicted, too. It must
//! not lead around a guard: all functions of the body have the guard, and no arms join with
//! different values that come from guards. The checker makes these demands of the finished body, by
//! means of its own.
//!
//! Accesses without a guard are *not* protected. A mispredicted selector runs instructions of one
//! function with the values of the other.

use super::outline::{Outline, branches};
use cranelift_codegen::ir::{BlockArg, Function, Inst, Opcode, Value};
use cranelift_entity::EntitySet;

/// Whether an instruction is a guard.
pub(super) fn is_guard(func: &Function, inst: Inst) -> bool {
    func.dfg.insts[inst].opcode() == Opcode::SelectSpectreGuard
}

/// The values of a function that are computed from the result of a guard, but for what memory and
/// calls return. Linear in the size of the function, times the depth of its loops if it has a
/// guard.
pub(super) fn guarded(func: &Function, outline: &Outline) -> EntitySet<Value> {
    let mut found: EntitySet<Value> = EntitySet::new();
    if !outline.insts.iter().any(|&inst| is_guard(func, inst)) {
        return found;
    }
    let dfg = &func.dfg;
    // Values that a loop passes back to its head are found in the next round.
    let mut changed = true;
    while core::mem::take(&mut changed) {
        for &inst in &outline.insts {
            let opcode = dfg.insts[inst].opcode();
            let mut args = dfg.inst_args(inst).iter().map(|&arg| dfg.resolve_aliases(arg));
            let computes = !opcode.can_load() && !opcode.is_call();
            if is_guard(func, inst) || computes && args.any(|arg| found.contains(arg)) {
                for &result in dfg.inst_results(inst) {
                    changed |= found.insert(result);
                }
            }
            for way in branches(func, inst) {
                let params = dfg.block_params(way.block(&dfg.value_lists));
                for (&param, arg) in params.iter().zip(way.args(&dfg.value_lists)) {
                    if let BlockArg::Value(value) = arg
                        && found.contains(dfg.resolve_aliases(value))
                    {
                        changed |= found.insert(param);
                    }
                }
            }
        }
    }
    found
}
