//! The trace of a function: all that a simulation compares, as a digest and a list of references.
//!
//! The code of an earlier unit is no longer available when a later function is merged into it, so
//! the two cannot be walked in step. But a simulation of a function with itself sees everything
//! that a simulation with another function would compare, in the same order, and records it: values
//! and blocks by number, everything else by content. Two functions with equal traces would be bound
//! to each other step by step. It remains to prove that their references may replace each other,
//! and these are kept in full.
//!
//! Every comparison of a simulation goes through [`Simulation::same`] or is recorded next to it, so
//! the trace is as complete as the simulation; a law changes each field of each instruction and
//! demands that a change that the simulation notices changes the trace. It shares nothing with the
//! canonical walk. Two traces with the same 256 bits (BLAKE3) are assumed to be equal.

use super::proof::Mismatch;
use super::simulation::{Checked, Simulation, require, resolve};
use super::{Claim, Comparison, IdentitySymbols, Use};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use cranelift_codegen::ir::{
    AliasRegion, Block, Function, UserExternalName, Value, ValueLabelAssignments,
};
use cranelift_entity::{EntityRef, SecondaryMap};

/// The behaviour of a function, for comparing it with a function whose code is not available.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// 256 bits that cover everything but references.
    pub digest: [u8; 32],
    /// The references, each with its use, in the order of the walk.
    pub references: Vec<(Use, UserExternalName)>,
}

impl Trace {
    /// The trace of a function, which the verifier must accept; functions with different keys have
    /// different traces. Linear in its size.
    ///
    /// # Errors
    ///
    /// The error in the function, if there is one.
    pub fn of(func: &Function, key: u64, comparison: Comparison) -> Result<Trace, Mismatch> {
        let claim = Claim::new(func, func, comparison);
        let mut recorder = Recorder::default();
        recorder.note(&key);
        let mut identity = IdentitySymbols;
        let mut simulation = Simulation::new(&claim, &mut identity);
        simulation.recorder = Some(Box::new(recorder));
        let Recorder { hasher, references, .. } = simulation.recorded()?;
        Ok(Trace { digest: *hasher.finalize().as_bytes(), references })
    }
}

/// Records what a simulation compares.
#[derive(Default)]
pub(crate) struct Recorder {
    hasher: blake3::Hasher,
    references: Vec<(Use, UserExternalName)>,
    values: SecondaryMap<Value, u32>,
    next_value: u32,
    blocks: SecondaryMap<Block, u32>,
    next_block: u32,
    regions: BTreeMap<AliasRegion, usize>,
}

/// Feeds a digest with any value that implements `Hash`. The digest of a value is constant within a
/// process, which is as long as traces live.
struct Feed<'a>(pub &'a mut blake3::Hasher);

impl Hasher for Feed<'_> {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}

/// 256 bits of any value that implements `Hash`, for comparing with values that are not kept.
///
/// See the [example](crate#example).
pub fn digest<T: Hash + ?Sized>(what: &T) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    what.hash(&mut Feed(&mut hasher));
    *hasher.finalize().as_bytes()
}

impl Recorder {
    pub fn note<T: Hash + ?Sized>(&mut self, what: &T) {
        what.hash(&mut Feed(&mut self.hasher));
    }

    /// A use of a value; number 0 for a value that no instruction computes.
    fn value(&mut self, value: Value) {
        let number = self.values[value];
        self.note(&number);
    }

    fn define(&mut self, value: Value) {
        self.next_value += 1;
        self.values[value] = self.next_value;
    }

    fn block(&mut self, block: Block) {
        if self.blocks[block] == 0 {
            self.next_block += 1;
            self.blocks[block] = self.next_block;
        }
        let number = self.blocks[block];
        self.note(&number);
    }

    fn region(&mut self, region: AliasRegion) {
        let next = self.regions.len();
        let number = *self.regions.entry(region).or_insert(next);
        self.note(&number);
    }

    pub fn reference(&mut self, usage: Use, symbol: &UserExternalName) {
        self.note("symbol");
        self.references.push((usage, symbol.clone()));
    }
}

impl Simulation<'_> {
    /// Two parts of the functions, which must be equal.
    pub fn same<T: PartialEq + Hash + ?Sized>(
        &mut self,
        kept: &T,
        original: &T,
        mismatch: Mismatch,
    ) -> Checked {
        self.note(original);
        require(kept == original, mismatch)
    }

    /// Records a part of the original that the kept function was found to have as well.
    pub fn note<T: Hash + ?Sized>(&mut self, original: &T) {
        if let Some(recorder) = &mut self.recorder {
            recorder.note(original);
        }
    }

    pub fn note_value(&mut self, original: Value) {
        if let Some(recorder) = &mut self.recorder {
            recorder.value(original);
        }
    }

    pub fn note_definition(&mut self, original: Value) {
        if let Some(recorder) = &mut self.recorder {
            recorder.define(original);
        }
    }

    pub fn note_block(&mut self, original: Block) {
        if let Some(recorder) = &mut self.recorder {
            recorder.block(original);
        }
    }

    pub fn note_region(&mut self, original: Option<AliasRegion>) {
        self.note(&original.is_some());
        if let Some((recorder, region)) = self.recorder.as_mut().zip(original) {
            recorder.region(region);
        }
    }

    /// Two operands whose order does not count.
    pub fn note_either_order(&mut self, original: [Value; 2]) {
        let dfg = &self.claim.original.dfg;
        if let Some(recorder) = &mut self.recorder {
            let number = |value| resolve(dfg, value).map_or(0, |value| recorder.values[value]);
            let [a, b] = original.map(number);
            recorder.note(&(a.min(b), a.max(b)));
        }
    }

    pub fn note_reference(&mut self, usage: Use, original: &UserExternalName) {
        if let Some(recorder) = &mut self.recorder {
            recorder.reference(usage, original);
        }
    }

    /// The labels of all values that have a number, in the order of the numbers. Labels are taken
    /// over from other values; a chain longer than the table is a cycle.
    pub fn note_labels(&mut self) -> Checked {
        let Claim { original: func, .. } = *self.claim;
        let Some(recorder) = &mut self.recorder else {
            return Ok(());
        };
        let Some(labels) = &func.dfg.values_labels else {
            recorder.note("no labels");
            return Ok(());
        };
        let base = func.params.base_srcloc();
        let mut numbered: Vec<(u32, Value)> = (0..func.dfg.num_values())
            .map(Value::new)
            .map(|value| (recorder.values[value], value))
            .filter(|(number, _)| *number != 0)
            .collect();
        numbered.sort_unstable();
        for (_, value) in numbered {
            let mut value = value;
            for step in 0.. {
                require(step <= labels.len(), Mismatch::Metadata)?;
                match labels.get(&value) {
                    None => {
                        recorder.note("end");
                        break;
                    }
                    Some(ValueLabelAssignments::Starts(starts)) => {
                        recorder.note(&starts.len());
                        for start in starts {
                            recorder.note(&(start.label, start.from.expand(base)));
                        }
                        break;
                    }
                    Some(ValueLabelAssignments::Alias { from, value: of }) => {
                        recorder.note(&("alias", from.expand(base)));
                        value = resolve(&func.dfg, *of).ok_or(Mismatch::Metadata)?;
                        let number = recorder.values[value];
                        recorder.note(&number);
                        if number != 0 {
                            break;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
