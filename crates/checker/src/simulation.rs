//! The walk of two functions in step.
//!
//! It starts from the two entries and visits every pair of blocks that control flow reaches, and
//! then the pairs whose address is taken without control flow to them. Blocks are bound when
//! control flow is first seen to reach both, values when both are defined. Blocks are visited in
//! the order in which they are bound: a dominator comes before the blocks that it dominates, since
//! every path to those leads over it, so in verified IR an operand is bound before it is used.

use super::constants::Known;
use super::joins::Joins;
use super::proof::{Mismatch, Place};
use super::selection::Selected;
use super::tables;
use super::terms::{Base, Term, Terms};
use super::trace::Recorder;
use super::{Claim, Symbols, Use};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cranelift_codegen::ir::{
    AliasRegion, Block, BlockArg, BlockCall, Constant, DataFlowGraph, DebugTag, Function, Inst,
    InstructionData, Opcode, Value, ValueLabelAssignments, types,
};
use cranelift_codegen::packed_option::{PackedOption, ReservedValue};
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};

/// Entities of the kept function and of the original, bound to each other one to one.
struct Bijection<T: EntityRef + ReservedValue> {
    original: SecondaryMap<T, PackedOption<T>>,
    kept: SecondaryMap<T, PackedOption<T>>,
}

impl<T: EntityRef + ReservedValue> Default for Bijection<T> {
    fn default() -> Self {
        Bijection { original: SecondaryMap::new(), kept: SecondaryMap::new() }
    }
}

impl<T: EntityRef + ReservedValue> Bijection<T> {
    fn is_bound(&self, kept: T, original: T) -> bool {
        // Bindings hold both ways: see `bind`.
        self.original[kept].expand() == Some(original)
    }

    fn is_free(&self, kept: T, original: T) -> bool {
        self.original[kept].is_none() && self.kept[original].is_none()
    }

    /// Binds the two to each other, unless one of them is already bound to another entity.
    fn bind(&mut self, kept: T, original: T) -> bool {
        if self.is_free(kept, original) {
            self.original[kept] = original.into();
            self.kept[original] = kept.into();
        }
        self.is_bound(kept, original)
    }
}

/// Pairs of entities that are bound to each other.
#[derive(Default)]
struct Bound {
    values: Bijection<Value>,
    blocks: Bijection<Block>,
    /// The region of the kept function at each region of the original, or at none.
    regions: BTreeMap<Option<AliasRegion>, Option<AliasRegion>>,
}

/// Which blocks are visited.
#[derive(Default)]
struct Reached {
    /// Pairs of blocks that control flow reaches; those already visited remain.
    queue: Vec<(Block, Block)>,
    /// The kept blocks of `queue`.
    queued: EntitySet<Block>,
    /// Kept blocks that were walked as parts of other blocks.
    alone: EntitySet<Block>,
    /// Pairs of blocks whose addresses are taken.
    addressed: Vec<(Block, Block)>,
    /// Whether no control flow reaches the blocks that are visited now.
    dead: bool,
}

/// The state of a walk of two functions.
pub(crate) struct Simulation<'a> {
    pub claim: &'a Claim<'a>,
    pub symbols: &'a mut dyn Symbols,
    bound: Bound,
    reached: Reached,
    known: [Known; 2],
    /// Known values, where calls pass extra arguments.
    pub terms: [Terms; 2],
    /// The constants that exist on either side: the pool has gaps, and panics there.
    constants: [EntitySet<Constant>; 2],
    pub at: Place,
    /// Branches of the kept code on extra arguments that were followed, and where such ways join.
    pub selecting: Vec<Inst>,
    /// Where the ways of branches of the kept code join, if that was asked.
    pub joins: Option<Joins>,
    /// Records the compared operations, if the trace is wanted.
    pub recorder: Option<Box<Recorder>>,
    /// The instructions that were compared with each other, if they are wanted.
    pairs: Option<Vec<(Inst, Inst)>>,
}

pub(crate) type Checked = Result<(), Mismatch>;

/// `Ok` if `holds`.
pub(crate) fn require(holds: bool, mismatch: Mismatch) -> Checked {
    if holds { Ok(()) } else { Err(mismatch) }
}

impl<'a> Simulation<'a> {
    pub fn new(claim: &'a Claim<'a>, symbols: &'a mut dyn Symbols) -> Self {
        Simulation {
            claim,
            symbols,
            bound: Bound::default(),
            reached: Reached::default(),
            known: Default::default(),
            terms: Default::default(),
            constants: [claim.kept, claim.original].map(constants),
            at: Place::default(),
            selecting: Vec::new(),
            joins: None,
            recorder: None,
            pairs: None,
        }
    }

    /// Walks both functions to their ends.
    pub fn run(mut self) -> Result<(), (Mismatch, Place)> {
        self.walk().map_err(|mismatch| (mismatch, self.at))
    }

    /// Walks both functions; returns the recorded trace.
    pub fn recorded(mut self) -> Result<Recorder, Mismatch> {
        self.walk()?;
        Ok(*self.recorder.take().expect("was asked for"))
    }

    /// Walks both functions; returns the instructions that were compared with each other, up to the
    /// first that differ.
    pub fn paired(mut self) -> Vec<(Inst, Inst)> {
        self.pairs = Some(Vec::new());
        let _ = self.walk();
        self.pairs.take().unwrap_or_default()
    }

    fn walk(&mut self) -> Checked {
        tables::headers(self)?;
        let Claim { kept, original, .. } = *self.claim;
        let entry = |func: &Function| func.layout.entry_block().ok_or(Mismatch::Undefined);
        self.reach(entry(kept)?, entry(original)?)?;
        let (mut visited, mut addressed) = (0, 0);
        loop {
            if let Some(&(a, b)) = self.reached.queue.get(visited) {
                visited += 1;
                self.block(a, b)?;
            } else if let Some(&(a, b)) = self.reached.addressed.get(addressed) {
                addressed += 1;
                self.reached.dead = true;
                self.reach(a, b)?;
            } else {
                break;
            }
        }
        self.value_labels()?;
        self.untaken()
    }

    /// Whether the walk came to a block of the kept function.
    pub fn is_taken(&self, kept: Block) -> bool {
        self.bound.blocks.original[kept].is_some() || self.reached.alone.contains(kept)
    }

    /// Control flow reaches both blocks.
    fn reach(&mut self, kept: Block, original: Block) -> Checked {
        self.block_pair(kept, original)?;
        if self.reached.queued.insert(kept) {
            self.reached.queue.push((kept, original));
        }
        Ok(())
    }

    fn block_pair(&mut self, kept: Block, original: Block) -> Checked {
        let Claim { kept: a, original: b, .. } = *self.claim;
        self.note_block(original);
        let exist = a.layout.is_block_inserted(kept) && b.layout.is_block_inserted(original);
        let free = !self.reached.alone.contains(kept);
        require(exist && free && self.bound.blocks.bind(kept, original), Mismatch::Target)
    }

    /// Control flow reaches a block of the kept function that is walked as part of the block
    /// before, and that nothing else may reach.
    pub fn follow_kept_only(&mut self, kept: Block) -> Checked {
        let Claim { kept: a, original: b, .. } = *self.claim;
        let free = self.bound.blocks.original[kept].is_none() && !self.reached.alone.contains(kept);
        require(a.layout.is_block_inserted(kept) && free, Mismatch::Target)?;
        let cold = |func: &Function, block: Option<Block>| {
            block.is_some_and(|block| func.layout.is_cold(block))
        };
        let facts = cold(a, Some(kept)) && !cold(b, self.at.original_block);
        require(!facts, Mismatch::Fact)?;
        self.reached.alone.insert(kept);
        self.at.kept_block = Some(kept);
        Ok(())
    }

    /// The addresses of both are taken at the same place.
    pub fn address_of_block(&mut self, kept: Block, original: Block) -> Checked {
        self.block_pair(kept, original)?;
        self.reached.addressed.push((kept, original));
        Ok(())
    }

    /// Two branches: the same target, the same arguments.
    pub fn branch(&mut self, kept: &BlockCall, original: &BlockCall) -> Checked {
        let Claim { kept: a, original: b, .. } = *self.claim;
        let (a, b) = (&a.dfg.value_lists, &b.dfg.value_lists);
        self.reach(kept.block(a), original.block(b))?;
        self.same(&kept.args(a).count(), &original.args(b).count(), Mismatch::Target)?;
        for args in kept.args(a).zip(original.args(b)) {
            match args {
                (BlockArg::Value(a), BlockArg::Value(b)) => {
                    self.note("value");
                    self.value(a, b).map_err(|_| Mismatch::Target)?;
                }
                (BlockArg::TryCallRet(a), BlockArg::TryCallRet(b)) => {
                    self.note("result");
                    self.same(&a, &b, Mismatch::Target)?;
                }
                (BlockArg::TryCallExn(a), BlockArg::TryCallExn(b)) => {
                    self.note("exception");
                    self.same(&a, &b, Mismatch::Target)?;
                }
                (BlockArg::Value(_) | BlockArg::TryCallRet(_) | BlockArg::TryCallExn(_), _) => {
                    return Err(Mismatch::Target);
                }
            }
        }
        Ok(())
    }

    /// Two uses: of values that are bound to each other, or known to be equal.
    pub fn value(&mut self, kept: Value, original: Value) -> Checked {
        if self.claim.extra.is_some() {
            let Claim { kept: a, original: b, .. } = *self.claim;
            let terms = (self.terms[0].get(a, kept), self.terms[1].get(b, original));
            if let (Some(_), _) | (_, Some(_)) = terms {
                let behind = (self.terms[0].behind(a, kept), self.terms[1].behind(b, original));
                let (Some(a), Some(b)) = behind else {
                    return Err(Mismatch::Undefined);
                };
                return self.same_term(a, b);
            }
        }
        self.bound(kept, original)
    }

    /// Two addresses, each a value and an offset in bytes.
    pub fn address(&mut self, kept: (Value, i32), original: (Value, i32)) -> Checked {
        if self.claim.extra.is_none() {
            self.same(&kept.1, &original.1, Mismatch::Immediate)?;
            return self.value(kept.0, original.0);
        }
        let Claim { kept: a, original: b, .. } = *self.claim;
        let behind = |side: usize, func: &Function, (value, bytes): (Value, i32)| {
            self.terms[side].behind(func, value)?.add(i64::from(bytes))
        };
        match (behind(0, a, kept), behind(1, b, original)) {
            (Some(a), Some(b)) => self.same_term(a, b),
            (None, _) | (_, None) => Err(Mismatch::Undefined),
        }
    }

    /// Two known values.
    fn same_term(&mut self, kept: Term, original: Term) -> Checked {
        match (kept, original) {
            (Term::Bits(ty, bits), Term::Bits(other_ty, others)) => {
                require(ty == other_ty && bits == others, Mismatch::Immediate)
            }
            (Term::Behind(ty, base, bytes), Term::Behind(other_ty, other, others)) => {
                require(ty == other_ty && bytes == others, Mismatch::Immediate)?;
                match (base, other) {
                    (Base::Value(a), Base::Value(b)) => self.bound(a, b),
                    (Base::Slot(a), Base::Slot(b)) => require(a == b, Mismatch::StackSlots),
                    (Base::Symbol(a, inside), Base::Symbol(b, others)) => {
                        let usage = if inside || others { Use::Inside } else { Use::Address };
                        require(self.symbols.may_replace(usage, &a, &b), Mismatch::Reference)
                    }
                    (Base::Value(_) | Base::Slot(_) | Base::Symbol(..), _) => {
                        Err(Mismatch::Operand)
                    }
                }
            }
            (Term::Bits(..) | Term::Behind(..), _) => Err(Mismatch::Operand),
        }
    }

    fn bound(&mut self, kept: Value, original: Value) -> Checked {
        let (a, b) =
            (resolve(&self.claim.kept.dfg, kept), resolve(&self.claim.original.dfg, original));
        let (Some(a), Some(b)) = (a, b) else {
            return Err(Mismatch::Undefined);
        };
        self.note_value(b);
        if self.bound.values.is_bound(a, b) {
            return Ok(());
        }
        match self.bound.values.is_free(a, b) {
            // The verifier accepts unreachable code that uses values that no instruction computes.
            true if self.reached.dead => Ok(()),
            true => Err(Mismatch::Undefined),
            false => Err(Mismatch::Operand),
        }
    }

    pub fn values(&mut self, kept: &[Value], original: &[Value]) -> Checked {
        self.same(&kept.len(), &original.len(), Mismatch::Operand)?;
        kept.iter().zip(original).try_for_each(|(&a, &b)| self.value(a, b))
    }

    /// Two definitions, of the same type.
    fn define(&mut self, kept: &[Value], original: &[Value], mismatch: Mismatch) -> Checked {
        let Claim { kept: a, original: b, .. } = *self.claim;
        self.same(&kept.len(), &original.len(), mismatch)?;
        for (&kept, &original) in kept.iter().zip(original) {
            self.same(&a.dfg.value_type(kept), &b.dfg.value_type(original), mismatch)?;
            require(self.bound.values.is_free(kept, original), Mismatch::Undefined)?;
            self.bound.values.bind(kept, original);
            self.note_definition(original);
        }
        Ok(())
    }

    /// Two accesses with these regions.
    ///
    /// In Cranelift two accesses of different regions do not alias, and a load without a region is
    /// assumed not to alias a store that has one. So regions that the kept code distinguishes must
    /// be distinct in the original, too, and a region keeps the embedder's id.
    pub fn regions(&mut self, kept: Option<AliasRegion>, original: Option<AliasRegion>) -> Checked {
        let Claim { kept: a, original: b, .. } = *self.claim;
        let user_id = |func: &Function, region: AliasRegion| func.dfg.alias_regions[region].user_id;
        self.note_region(original);
        let one = *self.bound.regions.entry(original).or_insert(kept) == kept;
        let same = match (kept, original) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(kept), Some(original)) => user_id(a, kept) == user_id(b, original),
        };
        require(one && same, Mismatch::Fact)
    }

    /// Two constants of the pools.
    pub fn constant(&mut self, kept: Constant, original: Constant) -> Checked {
        let Claim { kept: a, original: b, .. } = *self.claim;
        let exist = self.constants[0].contains(kept) && self.constants[1].contains(original);
        require(exist, Mismatch::Undefined)?;
        let data = (a.dfg.constants.get(kept), b.dfg.constants.get(original));
        self.same(data.0, data.1, Mismatch::Immediate)
    }

    fn block(&mut self, kept: Block, original: Block) -> Checked {
        let Claim { kept: a, original: b, .. } = *self.claim;
        self.at = Place {
            kept_block: Some(kept),
            kept_inst: None,
            original_block: Some(original),
            original_inst: None,
        };
        let mut params = (a.dfg.block_params(kept), b.dfg.block_params(original));
        if let Some(extra) = self.claim.extra
            && a.layout.entry_block() == Some(kept)
        {
            let own = params.0.len().checked_sub(extra.len()).ok_or(Mismatch::BlockParams)?;
            for (&param, extra) in params.0[own..].iter().zip(extra) {
                let term = extra.term(a.dfg.value_type(param)).ok_or(Mismatch::BlockParams)?;
                if let Term::Bits(_, bits) = term {
                    self.known[0].set(param, bits as u64);
                }
                self.terms[0].set_extra(param, term);
            }
            params.0 = &params.0[..own];
        }
        self.define(params.0, params.1, Mismatch::BlockParams)?;
        self.note(&b.layout.is_cold(original));
        require(!a.layout.is_cold(kept) || b.layout.is_cold(original), Mismatch::Fact)?;
        let mut steps = (effects(a, kept), effects(b, original));
        // Where the kept function is alone, and whether it is a step ahead.
        let (mut selected, mut alone) = (Selected::default(), false);
        loop {
            let kept = self.skip(0, &mut steps.0);
            let original = if alone { self.at.original_inst } else { self.skip(1, &mut steps.1) };
            (self.at.kept_inst, self.at.original_inst) = (kept, original);
            match (kept, original) {
                (Some(kept), Some(original)) => {
                    match self.walk_kept_only(kept, original, &mut selected)? {
                        Some(block) => {
                            steps.0 = effects(a, block);
                            alone = true;
                        }
                        None => {
                            let opcode = b.dfg.insts[original].opcode();
                            let guard = opcode == Opcode::SelectSpectreGuard;
                            require(!guard || !selected.is_open(), Mismatch::Guard)?;
                            self.step(kept, original)?;
                            alone = false;
                        }
                    }
                }
                (None, None) => {
                    self.note("end");
                    return Ok(());
                }
                (Some(_), None) | (None, Some(_)) => return Err(Mismatch::Length),
            }
        }
    }

    /// The next instruction that is not just recorded as a known value.
    fn skip(&mut self, side: usize, insts: &mut impl Iterator<Item = Inst>) -> Option<Inst> {
        let func = [self.claim.kept, self.claim.original][side];
        insts.find(|&inst| {
            let known = self.claim.extra.is_some()
                && self.terms[side].learn(func, inst, &self.constants[side]);
            if known {
                self.known[side].learn(&func.dfg, inst);
                let result = func.dfg.first_result(inst);
                if let Some(bits) = self.terms[side].passed(func, result) {
                    self.known[side].set(result, bits);
                }
            }
            !known
        })
    }

    /// Two instructions.
    fn step(&mut self, kept: Inst, original: Inst) -> Checked {
        let Claim { kept: a, original: b, .. } = *self.claim;
        if let Some(pairs) = &mut self.pairs {
            pairs.push((kept, original));
        }
        match (self.only_way(0, kept), self.only_way(1, original)) {
            (Some(a), Some(b)) => {
                self.note("jump");
                self.branch(&a, &b)?;
            }
            (None, None) => {
                self.note("operation");
                self.same_operation(kept, original)?;
                let results = (a.dfg.inst_results(kept), b.dfg.inst_results(original));
                self.define(results.0, results.1, Mismatch::ResultType)?;
                self.known[0].learn(&a.dfg, kept);
                self.known[1].learn(&b.dfg, original);
            }
            // A constant that was passed counts as known however the original computes it.
            (Some(_), None) if is_brif(a, kept) && is_brif(b, original) => {
                self.same_operation(kept, original)?;
            }
            (Some(_), None) | (None, Some(_)) => return Err(Mismatch::Opcode),
        }
        self.metadata(kept, original)
    }

    /// The target of an instruction that always goes one way: a jump, or a branch that amounts to
    /// one.
    pub(crate) fn only_way(&self, side: usize, inst: Inst) -> Option<BlockCall> {
        let func = [self.claim.kept, self.claim.original][side];
        match &func.dfg.insts[inst] {
            InstructionData::Jump { opcode: _, destination } => Some(*destination),
            _ if !self.folds_branches() => None,
            _ => self.known[side].only_way(&func.dfg, inst),
        }
    }

    /// Whether branches on known conditions count as jumps.
    pub(crate) fn folds_branches(&self) -> bool {
        !self.reached.dead
    }

    /// Compares the metadata of an instruction that debuggers see, if it is compared.
    fn metadata(&mut self, kept: Inst, original: Inst) -> Checked {
        let Claim { kept: a, original: b, comparison, .. } = *self.claim;
        if !comparison.debug_info {
            return Ok(());
        }
        self.same(&a.srcloc(kept), &b.srcloc(original), Mismatch::Metadata)?;
        let tags = (a.debug_tags.get(kept), b.debug_tags.get(original));
        self.same(&tags.0.len(), &tags.1.len(), Mismatch::Metadata)?;
        for tags in tags.0.iter().zip(tags.1) {
            match tags {
                (DebugTag::User(a), DebugTag::User(b)) => {
                    self.same(&(0, a), &(0, b), Mismatch::Metadata)?;
                }
                // Slots are bound in order.
                (DebugTag::StackSlot(a), DebugTag::StackSlot(b)) => {
                    self.same(&(1, a), &(1, b), Mismatch::Metadata)?;
                }
                (DebugTag::User(_) | DebugTag::StackSlot(_), _) => {
                    return Err(Mismatch::Metadata);
                }
            }
        }
        Ok(())
    }

    /// The labels of all values that are bound, if they are compared.
    fn value_labels(&mut self) -> Checked {
        let Claim { kept: a, original: b, comparison, .. } = *self.claim;
        if !comparison.debug_info {
            return Ok(());
        }
        self.note_labels()?;
        let labels = match (&a.dfg.values_labels, &b.dfg.values_labels) {
            (None, None) => return Ok(()),
            (Some(a), Some(b)) => (a, b),
            (Some(_), None) | (None, Some(_)) => return Err(Mismatch::Metadata),
        };
        let (base, other_base) = (a.params.base_srcloc(), b.params.base_srcloc());
        for index in 0..a.dfg.num_values() {
            let mut kept = Value::new(index);
            let Some(mut original) = self.bound.values.original[kept].expand() else {
                continue;
            };
            // Labels are taken over from other values; a chain longer than the table is a cycle.
            for step in 0.. {
                require(step <= labels.0.len(), Mismatch::Metadata)?;
                match (labels.0.get(&kept), labels.1.get(&original)) {
                    (None, None) => break,
                    (
                        Some(ValueLabelAssignments::Starts(starts)),
                        Some(ValueLabelAssignments::Starts(others)),
                    ) => {
                        let same = starts.len() == others.len()
                            && starts.iter().zip(others).all(|(a, b)| {
                                a.label == b.label
                                    && a.from.expand(base) == b.from.expand(other_base)
                            });
                        require(same, Mismatch::Metadata)?;
                        break;
                    }
                    (
                        Some(ValueLabelAssignments::Alias { from, value }),
                        Some(ValueLabelAssignments::Alias { from: other_from, value: other }),
                    ) => {
                        let same = from.expand(base) == other_from.expand(other_base);
                        require(same, Mismatch::Metadata)?;
                        kept = resolve(&a.dfg, *value).ok_or(Mismatch::Metadata)?;
                        original = resolve(&b.dfg, *other).ok_or(Mismatch::Metadata)?;
                        if self.bound.values.is_bound(kept, original) {
                            // Compared where it is bound itself.
                            break;
                        }
                        require(self.bound.values.is_free(kept, original), Mismatch::Metadata)?;
                    }
                    _ => return Err(Mismatch::Metadata),
                }
            }
        }
        Ok(())
    }
}

fn constants(func: &Function) -> EntitySet<Constant> {
    let mut constants = EntitySet::new();
    for (&constant, _) in func.dfg.constants.iter() {
        constants.insert(constant);
    }
    constants
}

fn is_brif(func: &Function, inst: Inst) -> bool {
    func.dfg.insts[inst].opcode() == Opcode::Brif
}

/// The instructions of a block that are not no-ops.
fn effects(func: &Function, block: Block) -> impl Iterator<Item = Inst> + '_ {
    let insts = func.layout.block_insts(block);
    insts.filter(|&inst| func.dfg.insts[inst].opcode() != Opcode::Nop)
}

/// The value that `value` is an alias of, if it is one. A value that was deleted, or was left out
/// of a numbering, has no type.
pub(crate) fn resolve(dfg: &DataFlowGraph, value: Value) -> Option<Value> {
    let is_value = dfg.value_is_valid(value) && dfg.value_type(value) != types::INVALID;
    is_value.then(|| dfg.resolve_aliases(value))
}
