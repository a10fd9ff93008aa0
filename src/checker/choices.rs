//! Calls that choose whom they call by what the kept code is told.
//!
//! Where the original has one direct call, the kept code may branch on values that are known, make the call
//! in a block of its own, and go on behind it in another block, with the results. In a claim it is known
//! which way that goes, so the kept code is walked alone along it, as if all were one block. No other way
//! may lead into these blocks.

use super::Claim;
use super::refutation::Mismatch;
use super::simulation::{Simulation, require};
use super::terms::Term;
use cranelift_codegen::ir::{Block, BlockArg, BlockCall, Inst, InstructionData};

impl Simulation<'_> {
    /// Where the kept code goes on alone, if its next instruction has no counterpart because it chooses a
    /// call, or comes back from one that was chosen. `chose` is whether one was chosen in this block.
    pub(super) fn goes_on_alone(
        &mut self,
        kept: Inst,
        original: Inst,
        chose: &mut bool,
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
                *chose = true;
                self.alone(if bits != 0 { then } else { otherwise }).map(Some)
            }
            I::Jump { opcode: _, destination } if *chose => {
                *chose = false;
                self.alone(destination).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Follows a branch of the kept code.
    fn alone(&mut self, way: BlockCall) -> Result<Block, Mismatch> {
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
            let same = term.ty() == a.dfg.value_type(param);
            require(same, Mismatch::BlockParams)?;
            // The parameter is another name for what is passed.
            self.terms[0].set(param, term);
        }
        Ok(block)
    }
}
