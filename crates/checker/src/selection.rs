//! Branches of the kept code by extra arguments.
//!
//! The body that several functions share can branch on what follows from its extra arguments: to
//! one of several calls, any number of branches after one another (callee dispatch), or to the
//! instructions that only some of the functions have. In a claim it is known which way each branch
//! goes, so the kept code is walked alone along it, as if all were one block, until the ways join.
//! No other control flow may reach these blocks. Nothing is assumed of the shape of the branches: a
//! chain, a tree, or anything else of comparisons.
//!
//! The path that is followed alone is the one that the code takes: where the ways join (`joins`)
//! only decides which instructions are compared.
//!
//! To the code generator, the body is one function: it may run an instruction of a way that the
//! function does not take, and a processor may do so speculatively. So the ways that are not taken
//! are read as well ([`Simulation::untaken`]). Nothing there may be moved to where the function
//! runs it. And no branch on an extra argument may lead around a guard against speculation: a guard
//! is on all ways, and no ways join with different values that come from guards.

use super::Claim;
use super::constants::Known;
use super::joins::Joins;
use super::proof::{Mismatch, Place};
use super::simulation::{Checked, Simulation, require};
use super::terms::Term;
use alloc::vec::Vec;
use cranelift_codegen::ir::{
    Block, BlockArg, BlockCall, Function, Inst, InstructionData, Opcode, Value,
};
use cranelift_entity::EntitySet;

/// Where the kept code is alone: for each branch that was followed and whose ways have not joined,
/// the block where they do, if there is one.
#[derive(Default)]
pub(crate) struct Selected(Vec<Option<Block>>);

impl Selected {
    /// Whether ways have not joined.
    pub fn is_open(&self) -> bool {
        !self.0.is_empty()
    }
}

impl Simulation<'_> {
    /// The block in which the kept code continues alone, if its next instruction has no counterpart
    /// because it branches by an extra argument or goes to where such ways join.
    pub(crate) fn walk_kept_only(
        &mut self,
        kept: Inst,
        original: Inst,
        selected: &mut Selected,
    ) -> Result<Option<Block>, Mismatch> {
        use InstructionData as I;
        let Claim { kept: a, original: b, extra, .. } = *self.claim;
        if extra.is_none_or(|extra| extra.is_empty()) {
            return Ok(None);
        }
        match a.dfg.insts[kept] {
            I::Brif { opcode: _, arg, blocks: [then, otherwise] } => {
                let Some(bits) = self.terms[0].selected(a, arg) else {
                    return Ok(None);
                };
                // A branch of the original on a constant for which an extra argument is passed. On
                // a constant alone, it is a jump in the kept code, unless branches are compared as
                // written, or the constant is none that counts as known, such as the bits of a
                // float.
                let selects = self.terms[0].is_passed(a, arg) && self.folds_branches();
                if let I::Brif { opcode: _, arg: other, blocks: _ } = b.dfg.insts[original]
                    && let Some(term @ Term::Bits(..)) = self.terms[1].get(b, other)
                {
                    let stands = self.only_way(1, original).is_none()
                        && self.terms[0].get(a, arg) == Some(term);
                    if !selects || stands {
                        return Ok(None);
                    }
                }
                let block = a.layout.inst_block(kept).ok_or(Mismatch::Undefined)?;
                selected.0.push(self.joins.get_or_insert_with(|| Joins::of(a)).behind(block));
                self.selecting.push(kept);
                self.enter_kept_only(if bits != 0 { then } else { otherwise }).map(Some)
            }
            I::Jump { opcode: _, destination } => {
                let joins = Some(destination.block(&a.dfg.value_lists));
                if selected.0.last() != Some(&joins) {
                    return Ok(None);
                }
                // Of branches that follow one another, all can join there.
                while selected.0.last() == Some(&joins) {
                    selected.0.pop();
                }
                self.selecting.push(kept);
                self.enter_kept_only(destination).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Follows a branch of the kept code.
    fn enter_kept_only(&mut self, way: BlockCall) -> Result<Block, Mismatch> {
        let a = self.claim.kept;
        let block = way.block(&a.dfg.value_lists);
        self.follow_kept_only(block)?;
        let params = a.dfg.block_params(block);
        require(way.args(&a.dfg.value_lists).count() == params.len(), Mismatch::Target)?;
        for (&param, arg) in params.iter().zip(way.args(&a.dfg.value_lists)) {
            let BlockArg::Value(value) = arg else {
                return Err(Mismatch::Target);
            };
            let term = self.terms[0].behind(a, value).ok_or(Mismatch::Undefined)?;
            let same_type = term.ty() == a.dfg.value_type(param);
            require(same_type, Mismatch::BlockParams)?;
            // The parameter is an alias of the value that is passed on this way, and extra
            // arguments select the way.
            self.terms[0].set_selected(param, term);
        }
        Ok(block)
    }

    /// Reads what the kept code has on the ways that were not taken, after all others. Linear in
    /// the size of the kept function; with guards, times the depth of its loops.
    pub(crate) fn untaken(&mut self) -> Checked {
        let Claim { kept: a, extra, .. } = *self.claim;
        if extra.is_none_or(|extra| extra.is_empty()) {
            return Ok(());
        }
        // Branches that always go one way, whatever is passed, are jumps to the code generator as
        // well.
        let mut known = Known::default();
        let mut reached: EntitySet<Block> = EntitySet::new();
        let mut blocks: Vec<Block> = a.layout.entry_block().into_iter().collect();
        reached.extend(blocks.iter().copied());
        let (mut at, mut guards) = (0, false);
        while let Some(&block) = blocks.get(at) {
            at += 1;
            let taken = self.is_taken(block);
            let place = Place { kept_block: Some(block), ..Place::default() };
            for inst in a.layout.block_insts(block) {
                known.learn(&a.dfg, inst);
                let data = &a.dfg.insts[inst];
                let guard = data.opcode() == Opcode::SelectSpectreGuard;
                guards |= guard;
                if taken {
                    continue;
                }
                self.at = Place { kept_inst: Some(inst), ..place };
                require(!guard, Mismatch::Guard)?;
                let flags = data.memflags().filter(|&flags| a.dfg.mem_flags.is_valid(flags));
                let can_move = flags.is_some_and(|flags| a.dfg.mem_flags[flags].can_move());
                require(!can_move, Mismatch::Movable)?;
            }
            let Some(last) = a.layout.last_inst(block) else {
                continue;
            };
            if !taken {
                self.selecting.push(last);
            }
            let one = known.only_way(&a.dfg, last);
            let ways = one.as_ref().map_or(ways(a, last), core::slice::from_ref);
            let ways = ways.iter().map(|way| way.block(&a.dfg.value_lists));
            blocks.extend(ways.filter(|&block| reached.insert(block)));
        }
        if !guards || self.selecting.is_empty() {
            return Ok(());
        }
        let guarded = guarded(a, &blocks);
        for &inst in &self.selecting {
            let mut args = ways(a, inst).iter().flat_map(|way| way.args(&a.dfg.value_lists));
            let passes = args.any(|arg| match arg {
                BlockArg::Value(value) => guarded.contains(a.dfg.resolve_aliases(value)),
                BlockArg::TryCallRet(_) | BlockArg::TryCallExn(_) => false,
            });
            self.at = Place { kept_inst: Some(inst), ..Place::default() };
            require(!passes, Mismatch::Guard)?;
        }
        Ok(())
    }
}

/// Where a branch leads.
fn ways(func: &Function, branch: Inst) -> &[BlockCall] {
    func.dfg.insts[branch].branch_destination(&func.dfg.jump_tables, &func.dfg.exception_tables)
}

/// The values that are computed from the result of a guard, without memory and calls.
fn guarded(func: &Function, blocks: &[Block]) -> EntitySet<Value> {
    let dfg = &func.dfg;
    let mut guarded: EntitySet<Value> = EntitySet::new();
    // Values that a loop passes back to its head are found in the next round.
    let mut changed = true;
    while core::mem::take(&mut changed) {
        let insts = blocks.iter().flat_map(|&block| func.layout.block_insts(block));
        for inst in insts {
            let opcode = dfg.insts[inst].opcode();
            let is_guarded = |value: Value, guarded: &EntitySet<Value>| {
                guarded.contains(dfg.resolve_aliases(value))
            };
            let passes = !opcode.can_load() && !opcode.is_call();
            let of_guard = opcode == Opcode::SelectSpectreGuard
                || passes && dfg.inst_args(inst).iter().any(|&arg| is_guarded(arg, &guarded));
            if of_guard {
                for &result in dfg.inst_results(inst) {
                    changed |= guarded.insert(result);
                }
            }
            for way in ways(func, inst) {
                let params = dfg.block_params(way.block(&dfg.value_lists));
                for (&param, arg) in params.iter().zip(way.args(&dfg.value_lists)) {
                    if let BlockArg::Value(value) = arg
                        && is_guarded(value, &guarded)
                    {
                        changed |= guarded.insert(param);
                    }
                }
            }
        }
    }
    guarded
}
