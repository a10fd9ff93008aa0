//! Judging: which functions of a set that differ only where parameters can stand should share a
//! body, and what that body is.
//!
//! A set is divided into parts; of each part, the ways to pass the differences to one body are
//! compared, the body is made, and it is accepted if it really pays, by the predicted sizes of the
//! first function, of the body, of thunks, and of calls that pass arguments. Nothing is written
//! into the plan here (`accept` does), so that several sets can be judged at a time.

mod callees;
mod fast;

use crate::apply::{KeptCalls, emitted, emitted_as, not_redirected};
use crate::canon::{self, Place};
use crate::extra_argument::ExtraArgument;
use crate::ir::observes_its_frame;
use crate::options::{Callees, Options};
use crate::parameterise::argument_plan::{ArgumentPlan, CalleeStrategies};
use crate::parameterise::cost;
use crate::parameterise::cost::Share;
use crate::parameterise::frequencies::is_thunk_fast;
use crate::parameterise::probe::{CALLEE, Probed, Sizes};
use crate::parameterise::split::{Column, Part, Problem, Row};
use crate::parameterise::table::{self, Set, Table};
use crate::parameterise::uses::Uses;
use crate::parameterise::value::Value;
use crate::parameterise::workbench::{Member, is_cheaper};
use crate::parameterise::{Memory, body, context};
use crate::plan::{Plan, Reason};
use crate::stats::SimilarCounts;
use crate::unit::{Bodies, FunctionIndex, NoUnit};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, Inst, Signature, types};
use cranelift_entity::SecondaryMap;
use cranelift_size_model::SizeModel;
use fast::Speed;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// The disposition of each function of a set that shares a body, and its cost.
pub(super) struct Outcomes {
    pub members: Vec<Member>,
    /// Bytes of thunks, and of passing extra arguments at calls.
    cost: i64,
}

/// A body for a set of functions, and what it saves in bytes. It calls itself by [`CALLEE`].
pub(super) struct Candidate {
    pub body: Function,
    pub outcomes: Outcomes,
    pub saved: i64,
    /// Its predicted bytes, where they are known.
    pub bytes: Option<i64>,
}

/// Whether a set shares a body.
enum Verdict {
    Pays(Box<Candidate>),
    /// At most this many bytes would be saved; `None` if there is no such body.
    DoesNot(Option<i64>),
    /// One of them must keep its symbol, and there is no thunk for it.
    NoThunk,
    /// Calls would execute too many instructions more.
    Slower,
}

impl Verdict {
    /// Whether it pays, and how many bytes are saved, as a key: the better verdict is greater.
    fn saved(&self) -> (bool, Option<i64>) {
        match self {
            Verdict::Pays(candidate) => (true, Some(candidate.saved)),
            Verdict::DoesNot(saved) => (false, *saved),
            Verdict::NoThunk | Verdict::Slower => (false, None),
        }
    }
}

/// A set, and the judgement of it.
pub(super) struct Judged<'t> {
    pub set: Set<'t>,
    /// The rows that share a body, each with it.
    pub paying: Vec<(Vec<u32>, Candidate)>,
    /// Rows that were judged and do not share a body, with the reason, and the bytes that a body
    /// would save.
    pub kept: Vec<(Vec<u32>, Reason, Option<i64>)>,
    /// Bodies that were made, and copies for them.
    pub counts: SimilarCounts,
    /// Predicted bytes of the first function.
    pub first: Option<i64>,
}

impl Outcomes {
    /// Of functions that share a body whatever it costs: they become thunks only where their
    /// symbols are needed.
    pub fn new(members: Vec<Member>) -> Outcomes {
        Outcomes { members, cost: 0 }
    }
}

impl<'t> Judged<'t> {
    pub fn new(set: Set<'t>) -> Judged<'t> {
        Judged {
            set,
            paying: Vec::new(),
            kept: Vec::new(),
            counts: SimilarCounts::default(),
            first: None,
        }
    }

    /// How many bytes the bodies save that pay.
    pub fn saved(&self) -> i64 {
        self.paying.iter().map(|(_, candidate)| candidate.saved).sum()
    }
}

/// The inputs of judging: the plan so far, and the state of the unit.
pub(super) struct Judge<'a> {
    pub plan: &'a Plan,
    pub uses: &'a Uses,
    pub options: &'a Options<'a>,
    /// The cycle of the call graph that a function is in, by number, if calls within cycles are not
    /// to become indirect.
    pub cycles: &'a SecondaryMap<FunctionIndex, Option<u32>>,
    pub probed: &'a Probed,
    pub model: SizeModel,
    pub share: Share,
}

impl Judge<'_> {
    /// Judges a set.
    pub fn judge(&self, judged: &mut Judged<'_>, bodies: &mut dyn Bodies, memory: &mut Memory) {
        let Memory { scratch, encoding, sizes: own } = memory;
        let Judge { options, model, probed: known, .. } = *self;
        let sizes = Sizes { options, model, known, own };
        let Judged { set, paying, kept, counts, first } = judged;
        let table = set.table;
        let known = HashMap::default();
        let speed = None;
        let mut work =
            Work { judge: self, table, bodies, scratch, encoding, sizes, known, counts, speed };
        let (rows, slow) = work.fast_enough(set);
        if !slow.is_empty() {
            kept.push((slow, Reason::SimilarSlower, None));
        }
        if rows.len() < 2 {
            return;
        }
        let set = &Set { table, parameters: table.parameters(&rows), rows };
        let direct = work.stay_direct(set);
        let Some(problem) = work.problem(set, &direct) else {
            return;
        };
        *first = Some(problem.body);
        // Parts that are not judged yet.
        let mut parts = alloc::vec![Part::whole(&problem)];
        while let Some(part) = parts.pop() {
            if let Some(into) = problem.divide(&part, false) {
                parts.extend(into.into_iter().rev());
                continue;
            }
            let rows: Vec<u32> = part.rows.iter().map(|&row| set.rows[row as usize]).collect();
            let verdict = match problem.allows(&part.rows) {
                true => work.judge(&rows, &direct),
                false => Verdict::DoesNot(None),
            };
            let (reason, saved) = match verdict {
                Verdict::Pays(candidate) => {
                    // A body grows while it is made, and is kept until the unit is emitted: a copy
                    // takes no more memory than it needs.
                    let body = candidate.body.clone();
                    paying.push((rows, Candidate { body, ..*candidate }));
                    continue;
                }
                Verdict::DoesNot(saved) => (Reason::SimilarNotSmaller, saved),
                Verdict::NoThunk => (Reason::NoThunk, None),
                Verdict::Slower => (Reason::SimilarSlower, None),
            };
            // Smaller parts may pay.
            match problem.divide(&part, true) {
                Some(into) => parts.extend(into.into_iter().rev()),
                None => kept.push((rows, reason, saved)),
            }
        }
    }
}

/// A function of a set: as it is compared, and as the plan leaves it so far.
#[derive(Clone, Copy)]
struct Originals<'a> {
    compared: &'a Function,
    emitted: &'a Function,
}

/// A set that is judged, and what that takes.
struct Work<'a, 'b> {
    judge: &'b Judge<'a>,
    table: &'b Table,
    bodies: &'b mut dyn Bodies,
    scratch: &'b mut canon::Scratch,
    encoding: &'b mut canon::Encoding,
    sizes: Sizes<'b>,
    /// Bytes of functions by their numbers of instructions. A function whose calls go elsewhere and
    /// pass nothing more keeps its size.
    known: HashMap<(FunctionIndex, usize), i64, FxBuildHasher>,
    counts: &'b mut SimilarCounts,
    /// Once it is needed.
    speed: Option<Speed>,
}

impl Work<'_, '_> {
    fn must_keep_symbol(&self, function: FunctionIndex) -> bool {
        self.judge.uses.must_keep_symbol(self.judge.plan, function).is_some()
    }

    /// The input for splitting a set. `None` if its functions cannot receive extra arguments.
    fn problem(&mut self, set: &Set<'_>, direct: &[usize]) -> Option<Problem> {
        let Set { table, rows: set, parameters } = set;
        let Judge { plan, uses, options, .. } = *self.judge;
        let function = table.function(set[0]);
        let rows = set.iter().map(|&row| {
            let function = table.function(row);
            Row { calls: uses.calls(function).into(), thunk: self.must_keep_symbol(function) }
        });
        let rows: Vec<Row> = rows.collect();
        let first = not_redirected(plan, self.bodies, function);
        let signature = first.signature.clone();
        let conv = signature.call_conv;
        let body = self.sizes.of(first)?;
        self.known.insert((function, first.dfg.num_insts()), body);
        let mut columns = Vec::with_capacity(parameters.len());
        for parameter in parameters {
            let mut number: BTreeMap<u32, u32> = BTreeMap::new();
            let (mut cells, mut cost) = (Vec::with_capacity(set.len()), Vec::new());
            let mut is_callee = false;
            let mut must_dispatch = options.similar.callees == Callees::Dispatch
                || parameter.columns.iter().any(|column| direct.contains(column));
            for &row in set {
                let cell = table.at(row, parameter.columns[0]);
                let next = number.len() as u32;
                let dense = *number.entry(cell).or_insert(next);
                if dense == next {
                    let value = table.value(cell).expect("what differs is a value");
                    is_callee |= matches!(value, Value::Callee { .. });
                    must_dispatch |= matches!(value, Value::Callee { direct: true, .. });
                    cost.push(self.passing_alone(&Signature::new(conv), value)?);
                }
                cells.push(dense);
            }
            let cases = is_callee && must_dispatch;
            let most = match is_callee && options.similar.callees == Callees::None {
                true => 1,
                false if cases => cost::MAX_DISPATCH_CASES,
                false => usize::MAX,
            };
            columns.push(Column {
                cells,
                cost,
                overhead: if is_callee { cost::CALLEE_PARAMETER } else { cost::PARAMETER },
                case: match cases {
                    true => cost::CASE * parameter.columns.len() as i64,
                    false if is_callee && !table.written().is_empty() => cost::THUNK,
                    false => 0,
                },
                most,
            });
        }
        let thunks = self.thunks(&signature, parameters.len());
        Some(Problem { body, thunks, rows, columns })
    }

    /// Bytes of thunks of this signature that pass up to `most` arguments, without what it takes to
    /// pass each alone. (What calls take is not counted so: where sets were divided by that as
    /// well, fewer callers stayed similar, and units with many arguments saved up to a tenth less.)
    fn thunks(&mut self, signature: &Signature, most: usize) -> Vec<Option<i64>> {
        let most = most.min(cost::MAX_COUNTED_ARGUMENTS);
        if let Some(known) = self.sizes.own.thunks.get(&(most, signature.clone())) {
            return known.clone();
        }
        // Numbers that all targets hold in one instruction.
        let argument = |bits| ExtraArgument::Constant { ty: types::I64, bits };
        let alone = Signature::new(signature.call_conv);
        let with = self.sizes.call(&alone, &[argument(1)]);
        let without = self.sizes.call(&alone, &[]);
        let each =
            with.zip(without).map_or(0, |(with, without)| i64::from(with) - i64::from(without));
        let arguments = (1..=most as u64).map(argument).collect();
        let arguments = body::as_passed(arguments, signature, self.judge.options);
        let mut thunks = Vec::new();
        for count in 0..=most {
            let thunk = self.sizes.thunk(signature, &arguments[..count], false);
            thunks.push(thunk.map(|thunk| i64::from(thunk) - count as i64 * each));
        }
        self.sizes.own.thunks.insert((most, signature.clone()), thunks.clone());
        thunks
    }

    /// Bytes that it takes to pass a value, roughly: in a register, as the only argument.
    fn passing_alone(&mut self, alone: &Signature, value: &Value) -> Option<i64> {
        let arguments = value.arguments();
        let types = arguments.iter().map(ExtraArgument::ty);
        let zeros = self.sizes.passing_zeros(alone, types)?;
        self.sizes.passing(alone, zeros, &arguments).map(i64::from)
    }

    /// Determines whether a body for some rows of the table pays, and which argument plan is best
    /// for it.
    fn judge(&mut self, rows: &[u32], direct: &[usize]) -> Verdict {
        let Judge { plan, uses, options, .. } = *self.judge;
        let table = self.table;
        let function = table.function(rows[0]);
        let original = emitted_as(plan, self.bodies, function, table.written());
        let is_emitted = table.written().is_empty();
        let emitted = (!is_emitted).then(|| emitted(plan, self.bodies, function));
        self.counts.copies += 1 + usize::from(emitted.is_some());
        let originals =
            Originals { compared: &original, emitted: emitted.as_ref().unwrap_or(&original) };
        let call_sites = rows.iter().map(|&row| {
            let function = table.function(row);
            if self.must_keep_symbol(function) { 1 } else { i64::from(uses.calls(function)) }
        });
        let (callees, call_sites) = (options.similar.callees, call_sites.sum());
        let strategies = CalleeStrategies { table, rows, direct, callees, call_sites };
        let mut best = Verdict::DoesNot(None);
        for argument_plan in strategies.all(table.parameters(rows)) {
            let verdict = self.judge_argument_plan(rows, &argument_plan, originals, &best);
            if verdict.saved() > best.saved() || matches!(best, Verdict::DoesNot(None)) {
                best = verdict;
            }
        }
        best
    }

    /// Determines whether a body with this argument plan pays. A saving less than `best` need not
    /// be known exactly.
    fn judge_argument_plan(
        &mut self,
        rows: &[u32],
        argument_plan: &ArgumentPlan,
        originals: Originals<'_>,
        best: &Verdict,
    ) -> Verdict {
        let Originals { compared: original, emitted } = originals;
        let function = self.table.function(rows[0]);
        if argument_plan.passed.is_empty() && argument_plan.dispatches.is_empty() {
            // They are equal, and were not merged nevertheless.
            return Verdict::DoesNot(None);
        }
        let outcomes = match self.outcomes(rows, argument_plan, original) {
            Ok(outcomes) => outcomes,
            Err(verdict) => return verdict,
        };
        let (count, cost) = (rows.len() as i64, outcomes.cost);
        let Some(own) = self.size_of(function, emitted) else {
            return Verdict::DoesNot(None);
        };
        // The body is hardly smaller than the original function.
        let most = (count - 1) * own - cost;
        if !self.judge.share.is_reached(most, count * own) || (true, Some(most)) <= best.saved() {
            return Verdict::DoesNot(Some(most));
        }
        let Judge { plan, options, .. } = *self.judge;
        let walk = (&mut *self.scratch, &mut *self.encoding);
        let of = (self.table, rows);
        let body = body_of_rows((plan, options), of, argument_plan, original, walk);
        self.counts.copies += 1;
        self.counts.tried += 1;
        let Some(size) = self.sizes.of(&body) else {
            return Verdict::DoesNot(None);
        };
        let saved = count * own - cost - size;
        match self.judge.share.is_reached(saved, count * own) {
            true => Verdict::Pays(Box::new(Candidate { body, outcomes, saved, bytes: Some(size) })),
            false => Verdict::DoesNot(Some(saved)),
        }
    }

    /// The disposition of each of these functions: the one that takes fewer bytes. Fails if one of
    /// them needs a thunk and there is none, if there can be no such call, or if a body would have
    /// too many parameters.
    fn outcomes(
        &mut self,
        rows: &[u32],
        argument_plan: &ArgumentPlan,
        original: &Function,
    ) -> Result<Outcomes, Verdict> {
        let observes = observes_its_frame(original);
        let signature = &original.signature;
        let Some(cost) = self.thunks_of_callees(rows, argument_plan) else {
            return Err(Verdict::NoThunk);
        };
        let mut outcomes = Outcomes { members: Vec::new(), cost };
        let mut left = None;
        // One result for all rows: it depends on the types.
        let mut zeros = None;
        for (at, &row) in rows.iter().enumerate() {
            let extra_arguments = argument_plan.arguments(self.table, row, at);
            let extra_arguments = body::as_passed(extra_arguments, signature, self.judge.options);
            let function = self.table.function(row);
            if signature.params.len() + extra_arguments.len() > cost::MAX_PARAMETERS {
                return Err(Verdict::DoesNot(None));
            }
            if zeros.is_none() {
                let types = extra_arguments.iter().map(ExtraArgument::ty);
                zeros = self.sizes.passing_zeros(signature, types);
            }
            let passing =
                zeros.and_then(|zeros| self.sizes.passing(signature, zeros, &extra_arguments));
            let Some(passing) = passing else {
                return Err(Verdict::DoesNot(None));
            };
            let count = self.judge.uses.calls(function);
            let calls = i64::from(passing) * i64::from(count);
            let keeps_symbol = self.must_keep_symbol(function);
            let thunk = match keeps_symbol || count > 1 {
                true => self.sizes.thunk(signature, &extra_arguments, observes).map(i64::from),
                false => None,
            };
            let thunk = thunk.filter(|&thunk| keeps_symbol || is_cheaper(thunk, calls, count));
            let is_fast = thunk.is_some() && {
                let left = *left.get_or_insert_with(|| self.left(rows, argument_plan));
                is_thunk_fast(left, keeps_symbol, &self.sizes, signature, &extra_arguments)
            };
            let (by_thunk, bytes) = match thunk {
                Some(thunk) if is_fast => (true, thunk),
                Some(_) if keeps_symbol => return Err(Verdict::Slower),
                None if keeps_symbol => return Err(Verdict::NoThunk),
                Some(_) | None => (false, calls),
            };
            outcomes.cost += bytes;
            let arguments = extra_arguments.into();
            outcomes.members.push(Member { function, arguments, thunk: by_thunk });
        }
        Ok(outcomes)
    }

    /// Bytes of a function as the plan leaves it so far.
    fn size_of(&mut self, function: FunctionIndex, body: &Function) -> Option<i64> {
        let key = (function, body.dfg.num_insts());
        if let Some(&known) = self.known.get(&key) {
            return Some(known);
        }
        let size = self.sizes.of(body)?;
        self.known.insert(key, size);
        Some(size)
    }
}

/// The body for some rows of the table.
pub(super) fn body_of_rows(
    (plan, options): (&Plan, &Options<'_>),
    (table, rows): (&Table, &[u32]),
    argument_plan: &ArgumentPlan,
    original: &Function,
    (scratch, encoding): (&mut canon::Scratch, &mut canon::Encoding),
) -> Function {
    let function = table.function(rows[0]);
    // By name: see `Table`.
    let context = context(plan, function, &NoUnit, options);
    let walked = canon::encode(original, &context, scratch, encoding);
    debug_assert!(walked.is_ok(), "was walked before");
    let places = table::columns(&scratch.marks, encoding);
    let inst = |column: usize| match places[column] {
        Place::Inst(inst) => inst,
        place => unreachable!("a place without a value: {place:?}"),
    };
    let recursive: Vec<Inst> = table.calls_itself(rows[0]).map(inst).collect();
    let parameters = argument_plan.parameters(table, rows, inst);
    let mut body = original.clone();
    body::fold_branches(&mut body);
    body::parameterise(&mut body, &CALLEE, &parameters, &recursive, options);
    if !table.written().is_empty() {
        plan.redirect(&mut body, KeptCalls::none());
    }
    body
}
