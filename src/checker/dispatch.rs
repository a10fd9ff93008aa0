//! Callee dispatch in the kept code.
//!
//! Where the original has one direct call, the kept code may branch on known values, any number of times, make the
//! call in a block of its own, and continue in another block, with the results. In a claim it is known which way each
//! branch goes, so the kept code is walked alone along it, as if all were one block. No other control flow may reach
//! these blocks. Nothing is assumed of the shape of the branches: a chain, a tree, or anything else of comparisons.

use super::Claim;
use super::simulation::{Simulation, require};
use super::terms::Term;
use crate::plan::Mismatch;
use cranelift_codegen::ir::{Block, BlockArg, BlockCall, Inst, InstructionData};

impl Simulation<'_> {
    /// The block in which the kept code continues alone, if its next instruction has no counterpart because it
    /// dispatches a call or returns from a dispatched one. `dispatched` is whether a call was dispatched in this
    /// block.
    pub(super) fn continue_alone(
        &mut self,
        kept: Inst,
        original: Inst,
        dispatched: &mut bool,
    ) -> Result<Option<Block>, Mismatch> {
        use InstructionData as I;
        let Claim { kept: a, original: b, extra, .. } = *self.claim;
        let at_call = matches!(b.dfg.insts[original], I::Call { .. } | I::TryCall { .. });
        match a.dfg.insts[kept] {
            _ if extra.is_none() => Ok(None),
            I::Brif { opcode: _, arg, blocks: [then, otherwise] } if at_call => {
                let Some(&Term::Bits(_, bits)) = self.terms[0].get(a, arg) else {
                    return Ok(None);
                };
                *dispatched = true;
                self.enter_alone(if bits != 0 { then } else { otherwise }).map(Some)
            }
            I::Jump { opcode: _, destination } if *dispatched => {
                *dispatched = false;
                self.enter_alone(destination).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Follows a branch of the kept code.
    fn enter_alone(&mut self, way: BlockCall) -> Result<Block, Mismatch> {
        let a = self.claim.kept;
        let block = way.block(&a.dfg.value_lists);
        self.follow_alone(block)?;
        let params = a.dfg.block_params(block);
        require(way.args(&a.dfg.value_lists).count() == params.len(), Mismatch::Target)?;
        for (&param, arg) in params.iter().zip(way.args(&a.dfg.value_lists)) {
            let BlockArg::Value(value) = arg else {
                return Err(Mismatch::Target);
            };
            let term = self.terms[0].behind(a, value).ok_or(Mismatch::Undefined)?;
            let same_type = term.ty() == a.dfg.value_type(param);
            require(same_type, Mismatch::BlockParams)?;
            // The parameter is an alias of the value that is passed.
            self.terms[0].set(param, term);
        }
        Ok(block)
    }
}
