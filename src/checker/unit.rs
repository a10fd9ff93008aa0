//! Which claims a plan makes, and which symbols and addresses must still be there afterwards.

use super::incremental::{AddressRequirements, Known, Learned, Memory, Remember};
use super::{Code, comparison, may_replace};
use crate::extra_argument::ExtraArgument;
use crate::options::Options;
use crate::plan::{Disposition, Entry, Plan};
use crate::unit::{
    Addresses, Attributes, DataAttributes, DataIndex, DataObject, DataReloc, FunctionIndex, Linkage,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::ir::{
    ExternalName, Function, GlobalValueData, Inst, Opcode, Signature, UserExternalName,
};
use cranelift_codegen::isa::CallConv;
use cranelift_entity::EntityRef;
use cranelift_mergefunc_checker::{Claim, ExtraTerm, Mismatch, Proof, Refutation, Symbols, Use};

/// Proves that the unit is equivalent before and after `plan`, with what is known of earlier units;
/// returns what later units may need to know of this one. See [`prove`](crate::check::prove).
pub(crate) fn prove_and_learn(
    memory: &Memory,
    plan: &Plan,
    code: &mut dyn Code,
    options: &Options<'_>,
    remember: Remember,
) -> Result<(Proof, Learned), Refutation> {
    let mut prover = Prover {
        plan,
        signatures: signatures(plan, code),
        emitted: EmittedBodies::of(plan, memory),
        memory,
        options,
        code,
        pending: Pending::default(),
        traces: BTreeMap::new(),
        proof: Proof::default(),
    };
    prover.functions()?;
    prover.data()?;
    prover.related()?;
    let learned = prover.learned(remember);
    Ok((prover.proof, learned))
}

/// The signatures of all functions of the unit, if any function has extra arguments.
fn signatures(plan: &Plan, code: &mut dyn Code) -> Option<Vec<Signature>> {
    let passes = plan.entries().any(|(_, entry)| !entry.extra_arguments().is_empty());
    let functions = (0..plan.added()).map(FunctionIndex::new);
    passes.then(|| functions.map(|function| code.original(function).signature.clone()).collect())
}

/// A pair that has to be proved: the kept item, and the one that it may replace.
type Pair<T> = (T, T);

/// Claims that came up during the proof.
#[derive(Default)]
pub(super) struct Pending {
    /// By the kept function, so that each is rewritten once for many claims: the extra arguments,
    /// and the function that it may replace with them.
    functions: BTreeMap<FunctionIndex, BTreeSet<(Vec<ExtraTerm>, FunctionIndex)>>,
    data: BTreeSet<Pair<DataIndex>>,
    /// All that were ever pending.
    known_functions: BTreeSet<(FunctionIndex, Vec<ExtraTerm>, FunctionIndex)>,
    known_data: BTreeSet<Pair<DataIndex>>,
    /// Pairs of which at least one is of an earlier unit, and all such pairs that there ever were.
    incremental: Vec<Pair<UserExternalName>>,
    known_across_units: BTreeSet<Pair<(u32, u32)>>,
}

impl Pending {
    fn add_across_units(&mut self, kept: &UserExternalName, original: &UserExternalName) {
        let pair = [kept, original].map(|symbol| (symbol.namespace, symbol.index));
        if self.known_across_units.insert(pair.into()) {
            self.incremental.push((kept.clone(), original.clone()));
        }
    }
}

/// The entries that a plan has for functions and data that earlier units emitted, by symbol, and
/// functions by the code that their calls reach.
pub(super) struct EmittedBodies {
    functions: BTreeMap<(u32, u32), FunctionIndex>,
    data: BTreeMap<(u32, u32), DataIndex>,
    /// For each body and extra arguments, a function that it replaces with them and of which
    /// something is known. Nothing is remembered of a body that takes extra arguments; a claim on
    /// it is one on this function.
    replaced: BTreeMap<(FunctionIndex, Vec<ExtraTerm>), FunctionIndex>,
}

impl EmittedBodies {
    fn of(plan: &Plan, memory: &Memory) -> EmittedBodies {
        let key = |symbol: &UserExternalName| (symbol.namespace, symbol.index);
        let functions = plan.entries().filter(|&(function, _)| {
            plan.is_cached(function) && plan.eliminated_signature(function).is_none()
        });
        let data = plan.data_entries().skip(plan.added_data());
        let data = data.filter(|(data, _)| !plan.eliminated_data().contains(data));
        let is_known = |function: FunctionIndex, symbol| {
            function.index() < plan.added() || memory.functions.contains_key(symbol)
        };
        let mut replaced = BTreeMap::new();
        for (function, entry) in plan.entries() {
            let (body, extra) = code(plan, function);
            if body != function && is_known(function, entry.symbol()) {
                replaced.entry((body, extra)).or_insert(function);
            }
        }
        EmittedBodies {
            functions: functions.map(|(at, entry)| (key(entry.symbol()), at)).collect(),
            data: data.map(|(at, entry)| (key(entry.symbol()), at)).collect(),
            replaced,
        }
    }
}

pub(super) struct Prover<'a> {
    pub plan: &'a Plan,
    /// The signatures of all functions of the unit. `None` if no function has extra arguments.
    pub signatures: Option<Vec<Signature>>,
    pub emitted: EmittedBodies,
    /// The record of earlier units.
    pub memory: &'a Memory,
    pub options: &'a Options<'a>,
    pub code: &'a mut dyn Code,
    pub pending: Pending,
    /// The records of functions of the unit, as far as they were requested.
    pub traces: BTreeMap<FunctionIndex, Result<Arc<Known>, Mismatch>>,
    proof: Proof,
}

impl Prover<'_> {
    /// Proves the entry of each function, and the code of all functions that are kept.
    fn functions(&mut self) -> Result<(), Refutation> {
        let mut members: BTreeMap<FunctionIndex, Vec<(FunctionIndex, Vec<ExtraTerm>)>> =
            BTreeMap::new();
        for (function, entry) in self.plan.entries() {
            if self.plan.eliminated_signature(function).is_some() {
                self.eliminated(function)?;
                continue;
            }
            self.disposition(function)?;
            let (to, extra) = code(self.plan, function);
            let members = members.entry(to).or_default();
            if entry.disposition() != Disposition::Keep {
                members.push((function, extra));
            }
        }
        let moved = self.plan.entries().any(|(_, entry)| is_moved(entry));
        for (kept, members) in members {
            if self.plan.is_cached(kept) {
                for (member, extra) in members {
                    self.member_of_cached(kept, &extra, member)?;
                    self.proof.merged += 1;
                }
                continue;
            }
            let body = self.code.emitted(kept);
            self.names(kept, &body)?;
            if let Some(body_of) = self.plan.body_of(kept) {
                let original = self.code.original(body_of);
                let renamed = body.stencil == original.stencil && body.params == original.params;
                // Its references have the same targets as before, unless an address moved.
                if !renamed || moved {
                    match self.claim(kept, &body, &[], body_of, true) {
                        Ok(()) => self.proof.rewritten += 1,
                        // The verifier refuses it: it was not merged, and its references are
                        // redirected.
                        Err(_) if self.is_malformed(body_of) => {}
                        Err(refutation) => return Err(refutation),
                    }
                }
            }
            for (member, extra) in members {
                self.claim(kept, &body, &extra, member, false)?;
                self.proof.merged += 1;
            }
        }
        Ok(())
    }

    /// Proves that an emitted function of an earlier unit may replace a function that was merged
    /// into it.
    fn member_of_cached(
        &mut self,
        kept: FunctionIndex,
        extra: &[ExtraTerm],
        member: FunctionIndex,
    ) -> Result<(), Refutation> {
        let [kept, member_symbol] = [kept, member].map(|at| self.plan.entry(at).symbol().clone());
        let wrong = |mismatch| Err(refuted(kept.clone(), member_symbol.clone(), mismatch));
        let Some(known) = self.memory.functions.get(&kept) else {
            return wrong(Mismatch::NotRemembered);
        };
        if !extra.is_empty() || !known.requirements.is_defined {
            return wrong(Mismatch::NoBody);
        }
        self.pending.add_across_units(&kept, &member_symbol);
        Ok(())
    }

    /// Whether a function is not even a replacement for itself.
    fn is_malformed(&mut self, function: FunctionIndex) -> bool {
        let func = self.code.original(function);
        may_replace(func, func, self.options).is_err()
    }

    /// Checks that no import of `body` is eliminated, whether it is used or not, and that every
    /// symbol into which it points is defined.
    fn names(&self, function: FunctionIndex, body: &Function) -> Result<(), Refutation> {
        let callees = body.dfg.ext_funcs.values().map(|callee| &callee.name);
        let globals = body.global_values.values().filter_map(|gv| match gv {
            GlobalValueData::Symbol { name, offset, .. } => Some((name, offset.bits() != 0)),
            GlobalValueData::VMContext
            | GlobalValueData::Load { .. }
            | GlobalValueData::IAddImm { .. }
            | GlobalValueData::DynScaleTargetConst { .. } => None,
        });
        for (name, inside) in callees.map(|name| (name, false)).chain(globals) {
            let ExternalName::User(name) = name else {
                continue;
            };
            let Some(symbol) = body.params.user_named_funcs().get(*name) else {
                continue;
            };
            let mismatch = if is_eliminated(self.plan, symbol) {
                Mismatch::Dangling
            } else if inside && has_other_code(self.plan, symbol) {
                Mismatch::LostAddress
            } else {
                continue;
            };
            let kept = self.plan.entry(function).symbol().clone();
            return Err(refuted(kept, symbol.clone(), mismatch));
        }
        Ok(())
    }

    /// Proves that `body`, the code of `kept`, may replace `original` with these extra arguments.
    fn claim(
        &mut self,
        kept: FunctionIndex,
        body: &Function,
        extra: &[ExtraTerm],
        original: FunctionIndex,
        own: bool,
    ) -> Result<(), Refutation> {
        let symbol = |function| self.plan.entry(function).symbol().clone();
        let keys = [kept, original].map(|at| self.plan.entry(at).attributes().key);
        if keys[0] != keys[1] {
            return Err(refuted(symbol(kept), symbol(original), Mismatch::Key));
        }
        let Prover { plan, signatures, emitted, memory, options, code, pending, .. } = self;
        // A private copy has the body of the function that it was copied from.
        let original = plan.body_of(original).unwrap_or(original);
        let original_body = code.original(original);
        let extra = signatures.is_some().then_some(extra);
        let claim = Claim { own, extra, ..Claim::new(body, original_body, comparison(options)) };
        let mut symbols =
            InUnit { plan, signatures: signatures.as_deref(), emitted, memory, pending };
        claim.prove(&mut symbols).map_err(|(mismatch, at)| {
            let symbol = |function| plan.entry(function).symbol().clone();
            Refutation { kept: symbol(kept), original: symbol(original), mismatch, at: Some(at) }
        })
    }

    /// Proves the claims on which other claims rest.
    fn related(&mut self) -> Result<(), Refutation> {
        loop {
            if let Some((kept, originals)) = self.pending.functions.pop_first() {
                let body = self.code.emitted(kept);
                for (extra, original) in originals {
                    self.claim(kept, &body, &extra, original, false)?;
                    self.proof.related += 1;
                }
            } else if let Some((kept, original)) = self.pending.data.pop_first() {
                self.data_claim(kept, original)?;
            } else if let Some((kept, original)) = self.pending.incremental.pop() {
                self.incremental(&kept, &original)?;
                self.proof.incremental += 1;
            } else {
                return Ok(());
            }
        }
    }

    /// Checks the disposition of a function that is merged away, whatever its code is.
    fn disposition(&mut self, function: FunctionIndex) -> Result<(), Refutation> {
        let entry = self.plan.entry(function);
        let Attributes {
            linkage,
            addresses,
            address_taken,
            key: _, // with the code
            alignment,
            externally_called,
            pinned,
            no_merge,
            // not a matter of correctness
            hot: _,
            identical_only: _,
        } = *entry.attributes();
        let Some(to) = entry.disposition().representative() else {
            return require_alignment(
                entry.alignment() >= alignment,
                entry.symbol(),
                entry.symbol(),
            );
        };
        let kept = self.plan.entry(to);
        let wrong =
            |mismatch| Err(refuted(kept.symbol().clone(), entry.symbol().clone(), mismatch));
        // A thunk that passes extra arguments to a parameterised body can represent its class.
        let passes = matches!(kept.disposition(), Disposition::Thunk { to: _ })
            && !kept.extra_arguments().is_empty();
        if kept.disposition() != Disposition::Keep && !passes {
            return wrong(Mismatch::NoBody);
        }
        let requirements = AddressRequirements::of_entry(self.plan, self.memory, to);
        if pinned || no_merge || requirements.pinned {
            return wrong(Mismatch::NotMerged);
        }
        if requirements.preemptible {
            return wrong(Mismatch::Preemptible);
        }
        let own_address = addresses == Addresses::Significant;
        match entry.disposition() {
            Disposition::Keep => unreachable!("has a representative"),
            Disposition::Redirect { to: _ } => {
                if linkage.is_visible_outside() || externally_called {
                    return wrong(Mismatch::LostSymbol);
                }
                // Uses in functions and data are checked where they occur.
                if own_address && address_taken {
                    return wrong(Mismatch::LostAddress);
                }
            }
            Disposition::Alias { to: _ } => {
                if !self.options.aliases || !entry.extra_arguments().is_empty() {
                    return wrong(Mismatch::NotAllowed);
                }
                // Address uses of a function that is not visible outside are checked where they
                // occur.
                if own_address && (linkage.is_visible_outside() || address_taken) {
                    return wrong(Mismatch::LostAddress);
                }
            }
            Disposition::Thunk { to: _ } => {
                let own = self.plan.body_of(function).unwrap_or(function);
                let call = self.options.target.call_thunks.is_some_and(|thunks| {
                    let body = self.code.original(own);
                    let mut insts =
                        body.layout.blocks().flat_map(|block| body.layout.block_insts(block));
                    // Behind a call it would observe the frame of the thunk.
                    let sees_its_caller = insts.any(|inst| {
                        let opcode = body.dfg.insts[inst].opcode();
                        matches!(opcode, Opcode::GetReturnAddress | Opcode::GetFramePointer)
                    });
                    let grows = body.signature.call_conv == CallConv::Tail && !thunks.tail_calls;
                    !sees_its_caller && !grows
                });
                let signature = &self.code.original(own).signature;
                let target = &self.options.target;
                let (extra, optimize) = (entry.extra_arguments(), self.plan.optimize_for());
                let code = target.thunk_code(signature, extra, kept.symbol(), optimize);
                if code.is_none() && !call {
                    return wrong(Mismatch::NotAllowed);
                }
                // It has an address of its own.
                return require_alignment(
                    entry.alignment() >= alignment,
                    entry.symbol(),
                    entry.symbol(),
                );
            }
        }
        require_alignment(requirements.alignment >= alignment.into(), kept.symbol(), entry.symbol())
    }

    /// Proves the entry of each data object, and the contents of all objects that are kept.
    fn data(&mut self) -> Result<(), Refutation> {
        for (data, entry) in self.plan.data_entries().take(self.plan.added_data()) {
            match entry.disposition().representative() {
                None => self.data_claim(data, data)?,
                Some(to) => {
                    self.data_disposition(data, to)?;
                    match to.index() < self.plan.added_data() {
                        true => self.data_claim(to, data)?,
                        false => {
                            let to = self.plan.data_entry(to).symbol();
                            self.pending.add_across_units(to, entry.symbol());
                        }
                    }
                    self.proof.data += 1;
                }
            }
        }
        let plan: &Plan = self.plan;
        plan.eliminated_data().iter().try_for_each(|&data| self.eliminated_data(data))
    }

    fn data_disposition(&self, data: DataIndex, to: DataIndex) -> Result<(), Refutation> {
        let (entry, kept) = (self.plan.data_entry(data), self.plan.data_entry(to));
        let DataAttributes {
            linkage,
            addresses,
            writable,
            tls,
            pinned,
            externally_used,
            key: _,       // with the contents
            alignment: _, // with the contents
        } = *entry.attributes();
        let wrong =
            |mismatch| Err(refuted(kept.symbol().clone(), entry.symbol().clone(), mismatch));
        if kept.disposition() != Disposition::Keep {
            return wrong(Mismatch::NoBody);
        }
        let requirements = AddressRequirements::of_data_entry(self.plan, self.memory, to);
        if writable || tls || pinned || requirements.pinned {
            return wrong(Mismatch::NotMerged);
        }
        if linkage == Linkage::Preemptible || requirements.preemptible {
            return wrong(Mismatch::Preemptible);
        }
        if addresses == Addresses::Significant {
            return wrong(Mismatch::LostAddress);
        }
        match entry.disposition() {
            Disposition::Redirect { to: _ } if linkage.is_visible_outside() || externally_used => {
                wrong(Mismatch::LostSymbol)
            }
            Disposition::Alias { to: _ } if !self.options.aliases => wrong(Mismatch::NotAllowed),
            Disposition::Thunk { to: _ } => wrong(Mismatch::NotAllowed),
            Disposition::Keep | Disposition::Redirect { to: _ } | Disposition::Alias { to: _ } => {
                Ok(())
            }
        }
    }

    /// Proves that `kept`, with the pointers that it gets, may replace `original`.
    fn data_claim(&mut self, kept: DataIndex, original: DataIndex) -> Result<(), Refutation> {
        let Prover { plan, signatures, emitted, memory, code, pending, .. } = self;
        let (a, b) = (plan.data_entry(kept), plan.data_entry(original));
        let wrong = |mismatch| Err(refuted(a.symbol().clone(), b.symbol().clone(), mismatch));
        let (x, y) = (*a.attributes(), *b.attributes());
        if a.alignment() < y.alignment {
            return wrong(Mismatch::Alignment);
        }
        if (x.writable, x.tls, x.key) != (y.writable, y.tls, y.key) {
            return wrong(Mismatch::Data);
        }
        let x = code.data(kept).cloned();
        let (x, y) = match (x, code.data(original)) {
            (Some(x), Some(y)) => (x, y),
            // Its pointers are redirected by the embedder alone.
            (None, None) if kept == original => return Ok(()),
            (None, _) | (_, None) => return wrong(Mismatch::Data),
        };
        let DataObject { contents, relocations, section } = &x;
        if *contents != y.contents || *section != y.section {
            return wrong(Mismatch::Data);
        }
        let (mut pointers, mut others) = (sorted(relocations), sorted(&y.relocations));
        let mut symbols =
            InUnit { plan, signatures: signatures.as_deref(), emitted, memory, pending };
        loop {
            match (pointers.next(), others.next()) {
                (None, None) => return Ok(()),
                (Some(pointer), Some(other)) => {
                    let DataReloc { offset, target, addend } = pointer;
                    if (*offset, *addend) != (other.offset, other.addend) {
                        return wrong(Mismatch::Data);
                    }
                    let target = plan.address_symbol(target);
                    let usage = if *addend == 0 { Use::Address } else { Use::Inside };
                    if !symbols.may_replace(usage, target, &other.target) {
                        return wrong(Mismatch::Reference);
                    }
                }
                (Some(_), None) | (None, Some(_)) => return wrong(Mismatch::Data),
            }
        }
    }
}

/// Pointers by their offsets. Of two at one offset the later one wins, so their order stays.
pub(super) fn sorted(relocations: &[DataReloc]) -> impl Iterator<Item = &DataReloc> {
    let mut pointers: Vec<&DataReloc> = relocations.iter().collect();
    pointers.sort_by_key(|pointer| pointer.offset);
    pointers.into_iter()
}

/// The code that runs when a function is called, and the extra arguments that it receives.
pub(super) fn code(plan: &Plan, function: FunctionIndex) -> (FunctionIndex, Vec<ExtraTerm>) {
    let reached = plan.reached(function);
    let extra = |argument: &ExtraArgument| {
        let redirected = argument.redirected(&|symbol| Some(plan.address_symbol(symbol).clone()));
        extra_term(&redirected)
    };
    (reached.body, reached.extra.iter().map(extra).collect())
}

fn extra_term(argument: &ExtraArgument) -> ExtraTerm {
    match argument {
        ExtraArgument::Constant { ty, bits } => ExtraTerm::bits(*ty, *bits),
        ExtraArgument::Function { ty, symbol, signature: _, colocated: _ } => {
            ExtraTerm::address(*ty, symbol, 0)
        }
        ExtraArgument::Address { ty, symbol, offset, colocated: _ } => {
            ExtraTerm::address(*ty, symbol, *offset)
        }
    }
}

/// Each instruction of `body`, the code that runs in place of a function, with the instruction of
/// the function for which it runs.
pub(crate) fn corresponding(
    plan: &Plan,
    body: &Function,
    function: FunctionIndex,
    original: &Function,
    options: &Options<'_>,
) -> Vec<(Inst, Inst)> {
    let (_, extra) = code(plan, function);
    let claim = Claim::new(body, original, comparison(options));
    Claim { extra: Some(&extra), ..claim }.corresponding()
}

/// Whether a symbol is eliminated: nothing is emitted under it any more.
pub(super) fn is_eliminated(plan: &Plan, symbol: &UserExternalName) -> bool {
    plan.without_code(symbol).is_some()
}

/// Whether a symbol has the address of another function, although its own address is significant.
fn is_elsewhere(plan: &Plan, symbol: &UserExternalName) -> bool {
    plan.function(symbol).is_some_and(|function| is_moved(plan.entry(function)))
}

/// Whether the address of a function leads to other code than its own.
fn has_other_code(plan: &Plan, symbol: &UserExternalName) -> bool {
    plan.function(symbol).is_some_and(|at| {
        // A function that an earlier unit eliminated has no code of its own.
        let eliminated = plan.eliminated_signature(at).is_some();
        plan.entry(at).disposition() != Disposition::Keep && !eliminated
    })
}

fn is_moved(entry: Entry<'_>) -> bool {
    matches!(entry.disposition(), Disposition::Alias { to: _ })
        && entry.attributes().addresses == Addresses::Significant
}

pub(super) fn refuted(
    kept: UserExternalName,
    original: UserExternalName,
    mismatch: Mismatch,
) -> Refutation {
    Refutation { kept, original, mismatch, at: None }
}

fn require_alignment(
    holds: bool,
    kept: &UserExternalName,
    original: &UserExternalName,
) -> Result<(), Refutation> {
    match holds {
        true => Ok(()),
        false => Err(refuted(kept.clone(), original.clone(), Mismatch::Alignment)),
    }
}

/// Symbols as a plan redirects them.
pub(super) struct InUnit<'a> {
    pub plan: &'a Plan,
    pub signatures: Option<&'a [Signature]>,
    pub emitted: &'a EmittedBodies,
    pub memory: &'a Memory,
    pub pending: &'a mut Pending,
}

impl Symbols for InUnit<'_> {
    fn may_replace(
        &mut self,
        usage: Use,
        kept: &UserExternalName,
        original: &UserExternalName,
    ) -> bool {
        let plan = self.plan;
        if kept == original {
            let moved = match usage {
                Use::Call | Use::PatchableCall => false,
                Use::Address => is_elsewhere(plan, kept),
                Use::Inside => has_other_code(plan, kept),
            };
            return !is_eliminated(plan, kept) && !moved;
        }
        let key = (kept.namespace, kept.index);
        let function = plan.function(kept).or(self.emitted.functions.get(&key).copied());
        if let (Some(kept), Some(original)) = (function, plan.function(original)) {
            return self.function(usage, kept, original);
        }
        let data = plan.data(kept).or(self.emitted.data.get(&key).copied());
        if let (Some(kept), Some(original)) = (data, plan.data(original)) {
            return self.data(usage, kept, original);
        }
        self.incremental(usage, kept, original)
    }

    fn extra_may_replace(
        &mut self,
        kept: &UserExternalName,
        extra: Vec<ExtraTerm>,
        original: &UserExternalName,
        signature: &Signature,
    ) -> bool {
        let key = (kept.namespace, kept.index);
        let kept = self.plan.function(kept).or(self.emitted.functions.get(&key).copied());
        let Some(kept) = kept else {
            return false;
        };
        // A thunk or an alias that passes nothing itself leads to the code.
        let is_defined = self.plan.reached(kept).symbol.is_some();
        let (code, passed) = code(self.plan, kept);
        let is_kept = self.plan.entry(code).disposition() == Disposition::Keep;
        if !is_defined || !is_kept || !passed.is_empty() {
            return false;
        }
        let Some(original) = self.plan.function(original) else {
            // It has code of its own, of an earlier unit: a function that the body replaces must
            // equal it.
            let Some(&known) = self.emitted.replaced.get(&(code, extra)) else {
                return false;
            };
            let known_symbol = self.plan.entry(known).symbol();
            return self.signature(known) == Some(signature)
                && self.incremental(Use::Call, known_symbol, original);
        };
        // Extra arguments come behind the parameters of the original, not behind those of the
        // call's signature.
        if self.signature(original) != Some(signature) {
            return false;
        }
        // The definition that takes a symbol must get the calls of it.
        let by_symbol = [kept, original].map(|function| {
            AddressRequirements::of_entry(self.plan, self.memory, function).by_symbol
        });
        by_symbol == [false, false] && self.extra(code, extra, original)
    }
}

impl InUnit<'_> {
    /// The signature of a function of the unit, or of one that an earlier unit eliminated.
    fn signature(&self, function: FunctionIndex) -> Option<&Signature> {
        let within = self.signatures.and_then(|signatures| signatures.get(function.index()));
        within.or_else(|| self.plan.eliminated_signature(function).map(|own| &**own))
    }

    /// Two symbols, of which at least one is of an earlier unit: a claim on the record of
    /// it.
    pub fn incremental(
        &mut self,
        usage: Use,
        kept: &UserExternalName,
        original: &UserExternalName,
    ) -> bool {
        let requirements = |symbol| AddressRequirements::of(self.plan, self.memory, symbol);
        let (Some(a), Some(b)) = (requirements(kept), requirements(original)) else {
            return false;
        };
        if !a.may_replace(usage, b) {
            return false;
        }
        self.pending.add_across_units(kept, original);
        true
    }

    fn function(&mut self, usage: Use, kept: FunctionIndex, original: FunctionIndex) -> bool {
        let requirements =
            |function| AddressRequirements::of_entry(self.plan, self.memory, function);
        let (a, b) = (requirements(kept), requirements(original));
        // The address of a function that an earlier unit eliminated leads to the code that replaced
        // it: an offset into the function is an offset into that code.
        let usage = match usage {
            Use::Inside if self.plan.eliminated_signature(original).is_some() => Use::Address,
            Use::Inside | Use::Call | Use::PatchableCall | Use::Address => usage,
        };
        if !a.may_replace(usage, b) || self.plan.reached(kept).symbol.is_none() {
            return false;
        }
        let (code, extra) = code(self.plan, kept);
        self.extra(code, extra, original)
    }

    /// Whether a body with these extra arguments may replace a function: another claim, unless it
    /// is proved anyway.
    fn extra(
        &mut self,
        kept: FunctionIndex,
        extra: Vec<ExtraTerm>,
        original: FunctionIndex,
    ) -> bool {
        if (kept, &extra) == (code(self.plan, original).0, &code(self.plan, original).1) {
            // Proved with the original itself.
            return true;
        }
        // The code of one of them cannot be had any more.
        if self.plan.is_cached(kept) || self.plan.is_cached(original) {
            let known = match extra.is_empty() && self.plan.new_body(kept).is_none() {
                true => kept,
                false => match self.emitted.replaced.get(&(kept, extra)) {
                    Some(known) => *known,
                    None => return false,
                },
            };
            let [known, original] = [known, original].map(|at| self.plan.entry(at).symbol());
            self.pending.add_across_units(known, original);
            return true;
        }
        if self.pending.known_functions.insert((kept, extra.clone(), original)) {
            self.pending.functions.entry(kept).or_default().insert((extra, original));
        }
        true
    }

    fn data(&mut self, usage: Use, kept: DataIndex, original: DataIndex) -> bool {
        let (a, b) = (self.plan.data_entry(kept), self.plan.data_entry(original));
        let requirements = |data| AddressRequirements::of_data_entry(self.plan, self.memory, data);
        if !requirements(kept).may_replace(usage, requirements(original))
            || self.plan.data_reached(kept).symbol.is_none()
        {
            return false;
        }
        let code = (
            a.disposition().representative().unwrap_or(kept),
            b.disposition().representative().unwrap_or(original),
        );
        if code.0 == code.1 {
            return true;
        }
        if code.0.index() >= self.plan.added_data() {
            self.pending.add_across_units(self.plan.data_entry(code.0).symbol(), b.symbol());
            return true;
        }
        if self.pending.known_data.insert((code.0, original)) {
            self.pending.data.insert((code.0, original));
        }
        true
    }
}
