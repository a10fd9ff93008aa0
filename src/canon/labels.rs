//! Value labels, for walks that compare them.
//!
//! They are written after everything else: a value can have its labels from one that is defined
//! later, which has no number before.

use super::{Malformed, Place, Record, Walk};
use alloc::collections::BTreeMap;
use cranelift_codegen::ir::{Value, ValueLabelAssignments, ValueLabelStart};
use cranelift_entity::EntityRef;

type Labels = BTreeMap<Value, ValueLabelAssignments>;

impl Walk<'_> {
    /// The labels of every value that was walked, in the order of their numbers.
    pub(super) fn value_labels(&mut self) -> Result<(), Malformed> {
        let func = self.func;
        let Some(labels) = &func.dfg.values_labels else {
            return Ok(());
        };
        for at in 0..self.scratch.blocks.queue.len() {
            let block = self.scratch.blocks.queue[at];
            self.mark(Place::Block(block));
            for &param in func.dfg.block_params(block) {
                self.value_label(labels, param)?;
            }
            for inst in func.layout.block_insts(block) {
                let results = func.dfg.inst_results(inst);
                if !results.is_empty() {
                    self.mark(Place::Inst(inst));
                }
                for &result in results {
                    self.value_label(labels, result)?;
                }
            }
        }
        Ok(())
    }

    fn value_label(&mut self, labels: &Labels, mut value: Value) -> Result<(), Malformed> {
        let base = self.func.params.base_srcloc();
        // A chain longer than the table is a cycle.
        for _ in 0..=labels.len() {
            match labels.get(&value) {
                None => {
                    self.byte(0);
                    return Ok(());
                }
                Some(ValueLabelAssignments::Starts(starts)) => {
                    self.byte(1);
                    self.length(starts.len())?;
                    for start in starts {
                        let ValueLabelStart { from, label } = start;
                        self.word(from.expand(base).bits());
                        self.word(label.as_u32());
                    }
                    return Ok(());
                }
                Some(ValueLabelAssignments::Alias { from, value: other }) => {
                    value = self.original(*other)?;
                    let number = self.scratch.values.numbers[value.index()];
                    let record = Record::EMPTY.byte(2).word(from.expand(base).bits());
                    self.put_numbers(record, [number]);
                    if number != 0 {
                        // Its labels are written at its own place.
                        return Ok(());
                    }
                }
            }
        }
        Err(Malformed)
    }
}
