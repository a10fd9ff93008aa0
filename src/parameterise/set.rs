//! One set of functions that differ only where parameters can stand: divided, given bodies, or kept unmerged.
//!
//! This module decides the disposition of each function of the set. Costs are determined as exactly as needed: the
//! cost of passing arguments and of thunks is known from probes; the body is compiled; and if that leaves a doubt,
//! so is one of the functions.

use super::argument_plan::{ArgumentPlan, CalleeStrategies};
use super::attempts::Share;
use super::cost;
use super::fold::known_saves;
use super::split::{Column, Part, Problem, Row};
use super::table::{self, Parameter, Set, Table};
use super::value::Value;
use super::{Search, body, loops};
use crate::apply::{not_redirected, weaken};
use crate::canon::{Fact, Place};
use crate::extra_argument::ExtraArgument;
use crate::ir::observes_its_frame;
use crate::options::{Callees, Compare, Policy};
use crate::plan::{Added, Disposition, Reason, SimilarSet};
use crate::unit::{Addresses, Attributes, FunctionIndex, Item, Linkage};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, Inst, Signature, UserExternalName};

/// The disposition of each function of a set that shares a body, and its cost.
struct Outcomes {
    /// The extra arguments of each function.
    arguments: Vec<Arc<[ExtraArgument]>>,
    /// Whether each function becomes a thunk.
    thunks: Vec<bool>,
    /// Bytes of thunks, and of passing extra arguments at calls.
    cost: i64,
}

/// A body for a set of functions, and what it saves in bytes.
pub(super) struct Candidate {
    symbol: UserExternalName,
    body: Function,
    outcomes: Outcomes,
    saved: i64,
}

/// Whether a set shares a body.
enum Verdict {
    Pays(Box<Candidate>),
    /// At most this many bytes would be saved; `None` if there is no such body.
    DoesNot(Option<i64>),
    /// One of them must keep its symbol, and there is no thunk for it.
    NoThunk,
}

impl Verdict {
    /// Whether it pays, and how many bytes are saved, as a key: the better verdict is greater.
    fn saved(&self) -> (bool, Option<i64>) {
        match self {
            Verdict::Pays(candidate) => (true, Some(candidate.saved)),
            Verdict::DoesNot(saved) => (false, *saved),
            Verdict::NoThunk => (false, None),
        }
    }
}

impl Search<'_> {
    /// Divides functions that differ only where parameters can stand into sets of rows that are to share a body.
    /// Gives the other functions the reason why they do not.
    pub(super) fn set(&mut self, set: &Set<'_>) -> Vec<(Vec<u32>, Candidate)> {
        let mut paying = Vec::new();
        let direct = self.stay_direct(set);
        let Some(problem) = self.problem(set, &direct) else {
            return paying;
        };
        let Set { table, rows: set, parameters: _ } = set;
        let mut parts = alloc::vec![(Part::whole(&problem), false)];
        while let Some((part, must)) = parts.pop() {
            if let Some(divided) = problem.divide(&part, must) {
                parts.extend(divided.into_iter().rev().map(|part| (part, false)));
                continue;
            }
            let rows: Vec<u32> = part.rows.iter().map(|&row| set[row as usize]).collect();
            let verdict = match problem.allows(&part.rows) {
                true => self.judge(table, &rows, &direct),
                false => Verdict::DoesNot(None),
            };
            match verdict {
                Verdict::Pays(candidate) => match self.limit.checked_sub(rows.len()) {
                    Some(left) => {
                        self.limit = left;
                        paying.push((rows, *candidate));
                    }
                    None => {
                        // A limit does not cut into a set.
                        self.limit = 0;
                        let Candidate { symbol, saved, .. } = *candidate;
                        self.unused.push(symbol);
                        self.keep_unmerged(table, &rows, Reason::MergeLimit, Some(saved));
                    }
                },
                // Smaller parts may pay.
                Verdict::DoesNot(_) | Verdict::NoThunk if !must => parts.push((part, true)),
                Verdict::DoesNot(saved) => {
                    self.keep_unmerged(table, &rows, Reason::SimilarNotSmaller, saved);
                }
                Verdict::NoThunk => self.keep_unmerged(table, &rows, Reason::NoThunk, None),
            }
        }
        // Rows that were divided from all others.
        for &row in set {
            self.give_reason(table.function(row), Reason::SimilarNotSmaller);
        }
        paying
    }

    /// The columns of a set that are direct calls and must stay direct: those in loops, and of functions in one
    /// cycle of the call graph, unless only size counts.
    fn stay_direct(&mut self, set: &Set<'_>) -> Vec<usize> {
        let Set { table, rows: set, parameters } = set;
        let is_callee = |parameter: &Parameter| {
            let value = table.value(table.at(set[0], parameter.columns[0]));
            matches!(value, Some(Value::Callee { .. }))
        };
        match self.options.similar.policy {
            Policy::Balanced if parameters.iter().any(is_callee) => {}
            Policy::Balanced | Policy::Off | Policy::Size => return Vec::new(),
        }
        let function = table.function(set[0]);
        let first = self.walk_redirected(function).expect("was walked before");
        let places = table::columns(&first.scratch.marks, first.encoding);
        let mut direct = loops::calls_in_loops(&first.body, &places);
        for &row in set {
            let Some(cycle) = self.cycles[table.function(row)] else {
                continue;
            };
            for column in 0..places.len() {
                if let Some(Value::Callee { symbol, .. }) = table.value(table.at(row, column))
                    && let Some(callee) = self.plan.function(symbol)
                    && self.cycles[callee] == Some(cycle)
                {
                    direct.push(column);
                }
            }
        }
        direct.sort_unstable();
        direct.dedup();
        direct
    }

    /// The input for splitting a set. `None` if its functions cannot receive extra arguments.
    fn problem(&mut self, set: &Set<'_>, direct: &[usize]) -> Option<Problem> {
        let Set { table, rows: set, parameters } = set;
        let function = table.function(set[0]);
        let rows = set.iter().map(|&row| {
            let function = table.function(row);
            Row {
                calls: self.uses.calls(function).into(),
                thunk: self.uses.must_keep_symbol(self.plan, function).is_some(),
            }
        });
        let rows: Vec<Row> = rows.collect();
        let first = not_redirected(self.plan, self.bodies, function, self.options);
        let signature = first.signature.clone();
        let instructions = first.dfg.num_insts() + self.plan.extra_arguments_passed(&first);
        let body = self.known_size(function).unwrap_or_else(|| self.guess(instructions));
        let mut columns = Vec::with_capacity(parameters.len());
        for parameter in parameters {
            let mut number: BTreeMap<u32, u32> = BTreeMap::new();
            let (mut cells, mut cost) = (Vec::with_capacity(set.len()), Vec::new());
            let mut is_callee = false;
            let mut must_dispatch = self.options.similar.callees == Callees::Dispatch
                || parameter.columns.iter().any(|column| direct.contains(column));
            for &row in set {
                let cell = table.at(row, parameter.columns[0]);
                let next = number.len() as u32;
                let dense = *number.entry(cell).or_insert(next);
                if dense == next {
                    let value = table.value(cell).expect("what differs is a value");
                    is_callee |= matches!(value, Value::Callee { .. });
                    must_dispatch |= matches!(value, Value::Callee { direct: true, .. });
                    cost.push(self.passing(&signature, value)?);
                }
                cells.push(dense);
            }
            let cases = is_callee && must_dispatch;
            let most = match is_callee && self.options.similar.callees == Callees::None {
                true => 1,
                false if cases => cost::MAX_DISPATCH_CASES,
                false => usize::MAX,
            };
            columns.push(Column {
                cells,
                cost,
                overhead: if is_callee { cost::CALLEE_PARAMETER } else { cost::PARAMETER },
                case: if cases { cost::CASE * parameter.columns.len() as i64 } else { 0 },
                most,
            });
        }
        let jump =
            self.options.target.jump_thunk.map_or(cost::CALL_THUNK, |jump| jump.size().into());
        Some(Problem { body, jump, rows, columns })
    }

    /// Bytes that it takes to pass a value, roughly: in a register.
    fn passing(&mut self, signature: &Signature, value: &Value) -> Option<i64> {
        let alone = Signature::new(signature.call_conv);
        let size = self.costs.passing(self.bodies, &alone, &value.arguments())?;
        Some(size.into())
    }

    /// Determines whether a body for some rows of a table pays, and which argument plan is best for it, compiling
    /// no more than is needed.
    fn judge(&mut self, table: &Table, rows: &[u32], direct: &[usize]) -> Verdict {
        let function = table.function(rows[0]);
        let original = self.current(function);
        let call_sites = rows.iter().map(|&row| {
            let function = table.function(row);
            let keeps_symbol = self.uses.must_keep_symbol(self.plan, function).is_some();
            if keeps_symbol { 1 } else { i64::from(self.uses.calls(function)) }
        });
        let (callees, call_sites) = (self.options.similar.callees, call_sites.sum());
        let strategies = CalleeStrategies { table, rows, direct, callees, call_sites };
        let mut best = Verdict::DoesNot(None);
        for argument_plan in strategies.all(table.parameters(rows)) {
            let verdict = self.judge_argument_plan(table, rows, &argument_plan, &original);
            if verdict.saved() > best.saved() || matches!(best, Verdict::DoesNot(None)) {
                self.give_back(core::mem::replace(&mut best, verdict));
            } else {
                self.give_back(verdict);
            }
        }
        best
    }

    /// Returns the symbol of a rejected body to the unused ones.
    fn give_back(&mut self, verdict: Verdict) {
        if let Verdict::Pays(candidate) = verdict {
            self.unused.push(candidate.symbol);
        }
    }

    /// Determines whether a body with this argument plan pays.
    fn judge_argument_plan(
        &mut self,
        table: &Table,
        rows: &[u32],
        argument_plan: &ArgumentPlan,
        original: &Function,
    ) -> Verdict {
        let function = table.function(rows[0]);
        if argument_plan.passed.is_empty() && argument_plan.dispatches.is_empty() {
            // They are equal, and were not merged nevertheless.
            return Verdict::DoesNot(None);
        }
        let outcomes = match self.outcomes(table, rows, argument_plan, original) {
            Ok(outcomes) => outcomes,
            Err(verdict) => return verdict,
        };
        let (count, cost) = (rows.len() as i64, outcomes.cost);
        // The body is hardly smaller than the original function. If it is not clear that the body pays, the size of
        // the original is needed.
        if (count - 1) * self.estimate(function, original) <= 2 * cost {
            let Some(own) = self.size_of(function, original) else {
                return Verdict::DoesNot(None);
            };
            if (count - 1) * own <= cost {
                return Verdict::DoesNot(Some((count - 1) * own - cost));
            }
        }
        let Some(symbol) = self.fresh_symbol() else {
            return Verdict::DoesNot(None);
        };
        let (body, known_saves) = self.body(table, rows, argument_plan, original, &symbol);
        if let Some(saved) = self.surely_saves(&body, count, cost, known_saves)
            && argument_plan.is_plain(table, rows[0])
        {
            return Verdict::Pays(Box::new(Candidate { symbol, body, outcomes, saved }));
        }
        let Some(size) = self.size(&body) else {
            self.unused.push(symbol);
            return Verdict::DoesNot(None);
        };
        // A lower bound for the size of each function; if that is enough, none of them need be compiled.
        let least = known_saves.map(|known_saves| size - known_saves).filter(|&least| {
            let enough = self.is_enough(count * least - cost - size, count * least);
            enough && 2 * least > size && self.known_size(function).is_none()
        });
        let own = match least {
            Some(least) => Some(least),
            None => self.size_of(function, original),
        };
        let mut saved = own.map(|own| count * own - cost - size);
        // The other functions can be smaller than the first, and a body for which there are not enough registers can
        // be larger than is assumed.
        if let (Some(own), Some(first)) = (own, saved)
            && self.options.similar.policy == Policy::Size
            && self.is_enough(first, count * own)
            && 2 * first < count * own
        {
            saved = self.all_sizes(table, rows).map(|all| all - cost - size);
        }
        match own.zip(saved) {
            Some((own, saved)) if self.is_enough(saved, count * own) => {
                Verdict::Pays(Box::new(Candidate { symbol, body, outcomes, saved }))
            }
            _ => {
                self.unused.push(symbol);
                Verdict::DoesNot(saved)
            }
        }
    }

    /// Bytes of the functions of some rows of a table, as the plan leaves them so far.
    fn all_sizes(&mut self, table: &Table, rows: &[u32]) -> Option<i64> {
        let mut all = 0;
        for &row in rows {
            let function = table.function(row);
            let size = match self.known_size(function) {
                Some(size) => size,
                None => {
                    let body = self.current(function);
                    self.size_of(function, &body)?
                }
            };
            all += size;
        }
        Some(all)
    }

    /// How many bytes a body saves at least, if that is enough however small the body is, so that it need not be
    /// compiled only to know its size.
    fn surely_saves(
        &self,
        body: &Function,
        count: i64,
        cost: i64,
        known_saves: Option<i64>,
    ) -> Option<i64> {
        if self.keeps_candidates {
            return None;
        }
        let least = self.guess(body.dfg.num_insts()) / cost::MAX_SIZE_ERROR;
        let own = least - known_saves?;
        let saved = count * own - cost - least;
        (2 * own > least && self.is_enough(saved, count * own)).then_some(saved)
    }

    /// The disposition of each of these functions: the one that takes fewer bytes. Fails if one of them needs a
    /// thunk and there is none, if there can be no such call, or if a body would have too many parameters.
    fn outcomes(
        &mut self,
        table: &Table,
        rows: &[u32],
        argument_plan: &ArgumentPlan,
        original: &Function,
    ) -> Result<Outcomes, Verdict> {
        let observes = observes_its_frame(original);
        let mut outcomes = Outcomes { arguments: Vec::new(), thunks: Vec::new(), cost: 0 };
        for (at, &row) in rows.iter().enumerate() {
            let extra_arguments = argument_plan.arguments(table, row, at);
            let function = table.function(row);
            let signature = &original.signature;
            if signature.params.len() + extra_arguments.len() > cost::MAX_PARAMETERS {
                return Err(Verdict::DoesNot(None));
            }
            let Some(passing) = self.costs.passing(self.bodies, signature, &extra_arguments) else {
                return Err(Verdict::DoesNot(None));
            };
            let calls = i64::from(passing) * i64::from(self.uses.calls(function));
            let thunk =
                self.costs.thunk(self.bodies, signature, &extra_arguments, observes).map(i64::from);
            let keeps_symbol = self.uses.must_keep_symbol(self.plan, function).is_some();
            let by_thunk = keeps_symbol || thunk.is_some_and(|thunk| thunk < calls);
            outcomes.cost += match by_thunk {
                true => thunk.ok_or(Verdict::NoThunk)?,
                false => calls,
            };
            outcomes.thunks.push(by_thunk);
            outcomes.arguments.push(extra_arguments.into());
        }
        Ok(outcomes)
    }

    /// The body under `symbol` for some rows of a table, and how many bytes smaller a function without extra
    /// arguments could be, if that is clear.
    fn body(
        &mut self,
        table: &Table,
        rows: &[u32],
        argument_plan: &ArgumentPlan,
        original: &Function,
        symbol: &UserExternalName,
    ) -> (Function, Option<i64>) {
        let function = table.function(rows[0]);
        self.walk(function, original);
        let places = table::columns(&self.scratch.marks, &self.encoding);
        let inst = |column: usize| match places[column] {
            Place::Inst(inst) => inst,
            place => unreachable!("a place without a value: {place:?}"),
        };
        let recursive: Vec<Inst> = table.calls_itself(rows[0]).map(inst).collect();
        let parameters = argument_plan.parameters(table, rows, inst);
        let mut body = original.clone();
        let facts = table.common_facts(rows);
        if facts != self.encoding.facts {
            let key = self.plan.entry(function).attributes().key;
            weaken(&mut body, key, &facts, self.options);
        }
        if self.options.compare.constant_branches == Compare::Ignore {
            body::fold_branches(&mut body);
        }
        let places = parameters.iter().flat_map(|parameter| &parameter.places).copied();
        // A function without callee dispatch is smaller, too.
        let known_saves =
            known_saves(&body, places).filter(|_| argument_plan.dispatches.is_empty());
        body::parameterise(&mut body, symbol, &parameters, &recursive);
        (body, known_saves)
    }

    /// Bytes of a function as the plan leaves it so far.
    fn size_of(&mut self, function: FunctionIndex, body: &Function) -> Option<i64> {
        if self.known_size(function).is_none()
            && let Some(size) = self.size(body)
        {
            self.sizes.insert(function, size);
        }
        self.known_size(function)
    }

    /// Bytes of a function as the plan leaves it so far, if its size was requested.
    fn known_size(&self, function: FunctionIndex) -> Option<i64> {
        self.sizes.get(&function).copied()
    }

    /// Bytes of a function, known or estimated: for deciding what to examine more closely.
    fn estimate(&self, function: FunctionIndex, body: &Function) -> i64 {
        self.known_size(function).unwrap_or_else(|| self.guess(body.dfg.num_insts()))
    }

    /// The estimated bytes of a body of so many instructions, at the mean bytes per instruction of what was compiled
    /// before.
    fn guess(&self, instructions: usize) -> i64 {
        let [bytes, compiled] = self.compiled;
        (instructions as i64).saturating_mul(bytes) / compiled
    }

    /// Bytes of a body that may be emitted.
    fn size(&mut self, body: &Function) -> Option<i64> {
        self.plan.stats_mut().similar_sizes += 1;
        let size = self.bodies.code_sizes()?.of_candidate(body, true).map(i64::from)?;
        let [bytes, instructions] = &mut self.compiled;
        *bytes += size;
        *instructions += body.dfg.num_insts() as i64;
        Some(size)
    }

    fn fresh_symbol(&mut self) -> Option<UserExternalName> {
        self.unused.pop().or_else(|| self.bodies.fresh_symbol())
    }

    /// Whether it is enough to save `saved` of `before` bytes.
    fn is_enough(&self, saved: i64, before: i64) -> bool {
        match self.share {
            Share::Anything => saved > 0,
            Share::Eighth => saved * cost::DEMANDED_SHARE > before,
        }
    }

    /// Makes some rows of a table share a body.
    pub(super) fn accept(&mut self, table: &Table, rows: &[u32], candidate: Candidate) {
        let Candidate { symbol, body, outcomes, saved } = candidate;
        let Outcomes { arguments, thunks, cost: _ } = outcomes;
        self.saved += saved;
        for ((&row, passed), _) in
            rows.iter().zip(&arguments).zip(&thunks).filter(|(_, thunk)| !**thunk)
        {
            let calls = i64::from(self.uses.calls(table.function(row)));
            self.rewritten_calls += calls * passed.len() as i64;
        }
        let common_facts: Arc<[Fact]> = table.common_facts(rows).into();
        let first = self.plan.entry(table.function(rows[0]));
        let attributes = Attributes {
            linkage: Linkage::Local,
            addresses: Addresses::Insignificant,
            key: first.attributes().key,
            ..Attributes::default()
        };
        let (reason, class) = (Reason::ParameterisedBody, self.next_class);
        let (alignment, has_equals) = (1, false);
        let added = Added { symbol, attributes, reason, class, alignment, has_equals };
        let to = self.plan.add_body(added, body, None);
        self.next_class += 1;
        for ((&row, arguments), thunk) in rows.iter().zip(arguments).zip(thunks) {
            let function = table.function(row);
            for symbol in arguments.iter().filter_map(ExtraArgument::symbol) {
                self.uses.add_address(self.plan, symbol);
            }
            let reason = self.uses.must_keep_symbol(self.plan, function);
            self.plan.set_extra_arguments(function, arguments);
            self.plan.set_body_facts(function, common_facts.clone());
            let (disposition, reason) = match thunk {
                true => (Disposition::Thunk { to }, reason.unwrap_or(Reason::ThunkCheaper)),
                false => (Disposition::Redirect { to }, Reason::Similar),
            };
            self.plan.set(function, disposition, reason);
            self.follow(function, to);
            if !thunk {
                // It has no address of its own any more.
                let alignment = self.plan.entry(function).alignment();
                self.plan.align(Item::Function(to), alignment.into());
            }
        }
        self.record(table, rows, Some(to), Some(saved));
        let stats = self.plan.stats_mut();
        stats.similar_bodies += 1;
        stats.similar_merged += rows.len();
    }

    /// Redirects what was merged into a function to `to`, if the function itself is redirected.
    fn follow(&mut self, function: FunctionIndex, to: FunctionIndex) {
        let entry = self.plan.entry(function);
        let (disposition, arguments) = (entry.disposition(), entry.shared_arguments());
        if let Disposition::Redirect { to: _ } = disposition {
            for &member in self.merged_into.get(function.as_u32() as usize) {
                let member = FunctionIndex::from_u32(member);
                self.plan.retarget(member, to);
                self.plan.set_extra_arguments(member, arguments.clone());
            }
        }
    }

    /// Gives functions the reason why they are not merged.
    fn keep_unmerged(&mut self, table: &Table, rows: &[u32], reason: Reason, saved: Option<i64>) {
        self.record(table, rows, None, saved);
        for &row in rows {
            self.give_reason(table.function(row), reason);
        }
    }

    /// Gives a function this reason to be kept, if its reason so far was only that it equals no other.
    fn give_reason(&mut self, function: FunctionIndex, reason: Reason) {
        let before = self.plan.entry(function).reason();
        if let Reason::Prefiltered | Reason::Different | Reason::ReferencesDiffer = before {
            self.plan.set_reason(Item::Function(function), reason);
        }
    }

    fn record(
        &mut self,
        table: &Table,
        rows: &[u32],
        body: Option<FunctionIndex>,
        saved: Option<i64>,
    ) {
        let members = rows.iter().map(|&row| table.function(row)).collect();
        let parameters = table.parameters(rows).len();
        self.plan.record_similar(SimilarSet { members, parameters, body, saved });
    }
}
