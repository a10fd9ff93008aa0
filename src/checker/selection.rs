//! Branches of the kept code by extra arguments.
//!
//! The body that several functions share can branch on what follows from its extra arguments: to one of several calls,
//! any number of branches after one another (callee dispatch), or to the instructions that only some of the functions
//! have. In a claim it is known which way each branch goes, so the kept code is walked alone along it, as if all were one
//! block, until the ways join. No other control flow may reach these blocks. Nothing is assumed of the shape of the
//! branches: a chain, a tree, or anything else of comparisons.
//!
//! What is followed alone is what the code does. So a wrong guess of where the ways join refuses what could be
//! proved, and proves nothing else.

use super::Claim;
use super::simulation::{Simulation, require};
use super::terms::Term;
use crate::plan::Mismatch;
use cranelift_codegen::ir::{Block, BlockArg, BlockCall, Inst, InstructionData};

/// Where the kept code is alone.
#[derive(Default)]
pub(super) struct Selected {
    /// How many branches were followed whose ways have not joined.
    open: u32,
    /// Whether a branch was followed last: the next one selects among fewer ways, and joins with it.
    branched: bool,
}

impl Selected {
    /// Both functions made a step.
    pub fn stepped(&mut self) {
        self.branched = false;
    }
}

impl Simulation<'_> {
    /// The block in which the kept code continues alone, if its next instruction has no counterpart because it branches
    /// by an extra argument or goes to where such ways join.
    pub(super) fn continue_alone(
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
                // A branch of the original on a constant for which an extra argument is passed. On a constant alone, it is
                // a jump in the kept code, unless branches are compared as written.
                let selects = self.terms[0].is_passed(a, arg) && self.folds_branches();
                if let I::Brif { opcode: _, arg, blocks: _ } = b.dfg.insts[original]
                    && let Some(Term::Bits(..)) = self.terms[1].get(b, arg)
                    && !selects
                {
                    return Ok(None);
                }
                selected.open += u32::from(!selected.branched);
                selected.branched = true;
                self.enter_alone(if bits != 0 { then } else { otherwise }).map(Some)
            }
            I::Jump { opcode: _, destination } if selected.open > 0 => {
                selected.open -= 1;
                selected.branched = false;
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
