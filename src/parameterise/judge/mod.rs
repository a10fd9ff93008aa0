//! Judging: which functions of a set that differ only where parameters can stand should share a body, and what that body
//! is.
//!
//! A set is divided into parts; of each part, the ways to pass the differences to one body are compared, the body is
//! made, and it is accepted if it really pays. Costs are determined as exactly as needed: the cost of passing arguments
//! and of thunks is known from probes; the body is measured; and if that leaves a doubt, so is one of the functions.
//! Nothing is written into the plan here (`accept` does), so that several sets can be judged at a time.

mod callees;

use crate::apply::{Written, compared, compared_as, not_redirected};
use crate::canon::{self, Place};
use crate::extra_argument::ExtraArgument;
use crate::incremental::MergeCache;
use crate::ir::observes_its_frame;
use crate::options::{Callees, Compare, Options, Policy};
use crate::parameterise::accept::is_cheaper;
use crate::parameterise::argument_plan::{ArgumentPlan, CalleeStrategies};
use crate::parameterise::attempts::Share;
use crate::parameterise::cost;
use crate::parameterise::fold::known_saves;
use crate::parameterise::probe::{Answer, Needs, Probed, Sizes, Source};
use crate::parameterise::split::{Column, Part, Problem, Row};
use crate::parameterise::table::{self, Set, Table};
use crate::parameterise::uses::Uses;
use crate::parameterise::value::Value;
use crate::parameterise::{Memory, body, context};
use crate::plan::{Plan, Reason};
use crate::unit::{Bodies, CandidateToken, FunctionIndex, NoUnit};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, Inst, Signature, UserExternalName, types};
use cranelift_entity::SecondaryMap;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// The disposition of each function of a set that shares a body, and its cost.
pub(super) struct Outcomes {
    /// The extra arguments of each function.
    pub arguments: Vec<Arc<[ExtraArgument]>>,
    /// Whether each function becomes a thunk, whatever is known of its uses when it is written into the plan.
    pub thunks: Vec<bool>,
    /// Bytes of thunks, and of passing extra arguments at calls.
    cost: i64,
}

/// A body for a set of functions, and what it saves in bytes. Its name is that of the function that probes call, and so
/// are the callees of its calls of itself.
pub(super) struct Candidate {
    pub body: Function,
    pub outcomes: Outcomes,
    pub saved: i64,
    /// If its code may be kept.
    pub token: Option<CandidateToken>,
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

/// A set, and what was found out about it so far.
pub(super) struct Judged<'t> {
    pub set: Set<'t>,
    /// Whether what it saves is compared with what other sets save: then a lower bound is not enough.
    is_compared: bool,
    divided: Option<Divided>,
    /// The rows that share a body, each with it.
    pub paying: Vec<(Vec<u32>, Candidate)>,
    /// Rows that were judged and do not share a body, with the reason, and the bytes that a body would save.
    pub kept: Vec<(Vec<u32>, Reason, Option<i64>)>,
    /// Sizes in bytes of functions, as the plan leaves them so far.
    sizes: HashMap<FunctionIndex, Option<i64>, FxBuildHasher>,
    /// Bytes and instructions of what was measured, and how many functions that were.
    pub measured: [i64; 2],
    pub count: usize,
    /// The sizes that have to be known before it goes on, each with the part that needs it.
    pub requests: Vec<(crate::parameterise::probe::Request, Option<u32>)>,
}

/// A set while it is divided.
struct Divided {
    /// The columns of direct calls that must stay direct.
    direct: Vec<usize>,
    problem: Problem,
    /// Parts that are not judged yet, the next one last.
    parts: Vec<PartInHand>,
}

struct PartInHand {
    part: Part,
    must: bool,
    /// Whether it cannot be divided.
    whole: bool,
    /// The sizes of the bodies that were asked for.
    answers: Vec<Answer>,
}

impl Outcomes {
    /// Of functions that share a body whatever it costs: they become thunks only where their symbols are needed.
    pub fn new(arguments: Vec<Arc<[ExtraArgument]>>) -> Outcomes {
        let thunks = alloc::vec![false; arguments.len()];
        Outcomes { arguments, thunks, cost: 0 }
    }
}

impl<'t> Judged<'t> {
    pub fn new(set: Set<'t>, is_compared: bool) -> Judged<'t> {
        let (paying, kept, requests) = Default::default();
        let (sizes, measured, count) = Default::default();
        Judged { set, is_compared, divided: None, paying, kept, sizes, measured, count, requests }
    }

    /// Whether nothing is left to find out.
    pub fn is_done(&self) -> bool {
        self.divided.as_ref().is_some_and(|divided| divided.parts.is_empty())
    }

    /// How many bytes the bodies save that pay.
    pub fn saved(&self) -> i64 {
        self.paying.iter().map(|(_, candidate)| candidate.saved).sum()
    }

    /// Takes the size of a function of the set.
    pub fn know_function(&mut self, function: FunctionIndex, size: Option<u32>) {
        self.sizes.insert(function, size.map(i64::from));
    }

    /// Takes the size of the body that a part asked for.
    pub fn know_body(&mut self, part: u32, answer: Answer) {
        let divided = self.divided.as_mut().expect("a part asked for it");
        divided.parts[part as usize].answers.push(answer);
    }
}

/// What judging reads: the plan so far, and what is known of the unit.
pub(super) struct Judge<'a> {
    pub plan: &'a Plan,
    pub uses: &'a Uses,
    pub options: &'a Options<'a>,
    /// What earlier units emitted.
    pub earlier: Option<&'a MergeCache>,
    /// The cycle of the call graph that a function is in, by number, if calls within cycles are not to become indirect.
    pub cycles: &'a SecondaryMap<FunctionIndex, Option<u32>>,
    pub probed: &'a Probed,
    /// The function that probes call.
    pub callee: &'a UserExternalName,
    pub source: Source,
    pub share: Share,
    /// See [`CodeSizes::keeps_candidates`](crate::CodeSizes::keeps_candidates).
    pub keeps_candidates: bool,
    /// Bytes and instructions of what was measured before.
    pub measured: [i64; 2],
}

impl Judge<'_> {
    /// Finds out about a set what can be found out, and leaves in it what has to be asked for.
    pub fn judge(&self, judged: &mut Judged<'_>, bodies: &mut dyn Bodies, memory: &mut Memory) {
        let Memory { scratch, encoding, sizes: own } = memory;
        let sizes = Sizes::new(self.options, self.callee, self.source, self.probed, own);
        let Judged { set, divided, sizes: known, is_compared, .. } = judged;
        let mut work = Work {
            judge: self,
            table: set.table,
            is_compared: *is_compared,
            bodies,
            scratch,
            encoding,
            sizes,
            known,
        };
        if divided.is_none() {
            match work.begin(set) {
                Ok(found) => *divided = Some(found),
                Err(Needs) => {
                    judged.requests.extend(work.sizes.request.take().map(|it| (it, None)))
                }
            }
        }
        let Some(divided) = divided else {
            return;
        };
        let mut waiting: Vec<PartInHand> = Vec::new();
        let mut parts = core::mem::take(&mut divided.parts);
        while let Some(mut part) = parts.pop() {
            if !part.whole {
                if let Some(into) = divided.problem.divide(&part.part, part.must) {
                    parts.extend(into.into_iter().rev().map(|part| PartInHand::new(part, false)));
                    continue;
                }
                part.whole = true;
            }
            let row = |&row: &u32| judged.set.rows[row as usize];
            let rows: Vec<u32> = part.part.rows.iter().map(row).collect();
            (work.sizes.answers, work.sizes.used) = (core::mem::take(&mut part.answers), 0);
            let verdict = match divided.problem.allows(&part.part.rows) {
                true => work.judge(&rows, &divided.direct),
                false => Ok(Verdict::DoesNot(None)),
            };
            match verdict {
                Err(Needs) => {
                    let request = work.sizes.request.take();
                    let at = waiting.len() as u32;
                    judged.requests.extend(request.map(|request| (request, Some(at))));
                    part.answers = core::mem::take(&mut work.sizes.answers);
                    waiting.push(part);
                }
                Ok(Verdict::Pays(candidate)) => {
                    // A body grows while it is made, and is kept until the unit is emitted: a copy takes no more memory
                    // than it needs.
                    let body = candidate.body.clone();
                    judged.paying.push((rows, Candidate { body, ..*candidate }));
                }
                // Smaller parts may pay.
                Ok(Verdict::DoesNot(_) | Verdict::NoThunk) if !part.must => {
                    parts.push(PartInHand::new(part.part, true));
                }
                Ok(Verdict::DoesNot(saved)) => {
                    judged.kept.push((rows, Reason::SimilarNotSmaller, saved));
                }
                Ok(Verdict::NoThunk) => judged.kept.push((rows, Reason::NoThunk, None)),
            }
        }
        divided.parts = waiting;
        let Sizes { predicted: [bytes, instructions], count, .. } = work.sizes;
        judged.measured = [judged.measured[0] + bytes, judged.measured[1] + instructions];
        judged.count += count;
    }
}

impl PartInHand {
    fn new(part: Part, must: bool) -> PartInHand {
        PartInHand { part, must, whole: false, answers: Vec::new() }
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
    is_compared: bool,
    bodies: &'b mut dyn Bodies,
    scratch: &'b mut canon::Scratch,
    encoding: &'b mut canon::Encoding,
    sizes: Sizes<'b>,
    known: &'b mut HashMap<FunctionIndex, Option<i64>, FxBuildHasher>,
}

impl Work<'_, '_> {
    fn must_keep_symbol(&self, function: FunctionIndex) -> bool {
        self.judge.uses.must_keep_symbol(self.judge.plan, function).is_some()
    }

    /// What a set is divided by. Without parts, if its functions cannot receive extra arguments.
    fn begin(&mut self, set: &Set<'_>) -> Result<Divided, Needs> {
        let direct = self.stay_direct(set);
        let problem = self.problem(set, &direct)?;
        let whole = problem.as_ref().map(|problem| PartInHand::new(Part::whole(problem), false));
        let parts = whole.into_iter().collect();
        Ok(Divided { direct, problem: problem.unwrap_or_default(), parts })
    }

    /// The input for splitting a set. `None` if its functions cannot receive extra arguments.
    fn problem(&mut self, set: &Set<'_>, direct: &[usize]) -> Result<Option<Problem>, Needs> {
        let Set { table, rows: set, parameters } = set;
        let Judge { plan, uses, options, .. } = *self.judge;
        let function = table.function(set[0]);
        let rows = set.iter().map(|&row| {
            let function = table.function(row);
            Row { calls: uses.calls(function).into(), thunk: self.must_keep_symbol(function) }
        });
        let rows: Vec<Row> = rows.collect();
        let known = self.known_size(function);
        let first = not_redirected(plan, self.bodies, function, options);
        let signature = first.signature.clone();
        let conv = signature.call_conv;
        let instructions = first.dfg.num_insts() + plan.extra_arguments_passed(&first);
        // What was measured before depends on which sets are judged together, so a prediction is better.
        let predicted = match (known, options.target.size_model) {
            (None, Some(model)) => self.sizes.guess(model, &first).map(i64::from),
            (Some(_), _) | (None, None) => None,
        };
        let body = known.or(predicted).unwrap_or_else(|| self.guess(instructions));
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
                    let Some(bytes) = self.passing_alone(&Signature::new(conv), value)? else {
                        return Ok(None);
                    };
                    cost.push(bytes);
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
        let thunks = self.thunks(&signature, parameters.len())?;
        Ok(Some(Problem { body, thunks, rows, columns }))
    }

    /// Bytes of thunks of this signature that pass up to `most` arguments, without what it takes to pass each alone. (What
    /// calls take is not counted so: where sets were divided by that as well, fewer callers stayed similar, and units with many
    /// arguments saved up to a tenth less.)
    fn thunks(&mut self, signature: &Signature, most: usize) -> Result<Vec<Option<i64>>, Needs> {
        // Numbers that all targets hold in one instruction.
        let argument = |bits| ExtraArgument::Constant { ty: types::I64, bits };
        let alone = Signature::new(signature.call_conv);
        let with = self.sizes.roughly(&alone, &[argument(1)], false)?;
        let without = self.sizes.roughly(&alone, &[], false)?;
        let each = with.zip(without).map_or(0, |(with, without)| with - without);
        let most = most.min(cost::MAX_COUNTED_ARGUMENTS);
        let arguments = (1..=most as u64).map(argument).collect();
        let arguments = body::as_passed(arguments, signature, self.judge.options);
        let mut thunks = Vec::new();
        for count in 0..=most {
            let thunk = self.sizes.roughly(signature, &arguments[..count], true)?;
            thunks.push(thunk.map(|thunk| thunk - count as i64 * each));
        }
        Ok(thunks)
    }

    /// Bytes that it takes to pass a value, roughly: in a register, as the only argument.
    fn passing_alone(&mut self, alone: &Signature, value: &Value) -> Result<Option<i64>, Needs> {
        let arguments = value.arguments();
        let types = arguments.iter().map(ExtraArgument::ty);
        let Some(zeros) = self.sizes.passing_zeros(alone, types)? else {
            return Ok(None);
        };
        Ok(self.sizes.passing(alone, zeros, &arguments)?.map(i64::from))
    }

    /// Determines whether a body for some rows of the table pays, and which argument plan is best for it, measuring
    /// no more than is needed.
    fn judge(&mut self, rows: &[u32], direct: &[usize]) -> Result<Verdict, Needs> {
        let Judge { plan, uses, options, .. } = *self.judge;
        let table = self.table;
        let function = table.function(rows[0]);
        let original = compared_as(plan, self.bodies, function, table.written(), options);
        let is_emitted = table.written().is_empty();
        let emitted = (!is_emitted).then(|| compared(plan, self.bodies, function, options));
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
            let verdict = self.judge_argument_plan(rows, &argument_plan, originals)?;
            if verdict.saved() > best.saved() || matches!(best, Verdict::DoesNot(None)) {
                best = verdict;
            }
        }
        Ok(best)
    }

    /// Determines whether a body with this argument plan pays.
    fn judge_argument_plan(
        &mut self,
        rows: &[u32],
        argument_plan: &ArgumentPlan,
        originals: Originals<'_>,
    ) -> Result<Verdict, Needs> {
        let Originals { compared: original, emitted } = originals;
        let function = self.table.function(rows[0]);
        if argument_plan.passed.is_empty() && argument_plan.dispatches.is_empty() {
            // They are equal, and were not merged nevertheless.
            return Ok(Verdict::DoesNot(None));
        }
        let outcomes = match self.outcomes(rows, argument_plan, original)? {
            Ok(outcomes) => outcomes,
            Err(verdict) => return Ok(verdict),
        };
        let (count, cost) = (rows.len() as i64, outcomes.cost);
        // The body is hardly smaller than the original function. If it is not clear that the body pays, the size of
        // the original is needed.
        if (count - 1) * self.estimate(function, emitted) <= 2 * cost {
            let Some(own) = self.size_of(function, emitted)? else {
                return Ok(Verdict::DoesNot(None));
            };
            if (count - 1) * own <= cost {
                return Ok(Verdict::DoesNot(Some((count - 1) * own - cost)));
            }
        }
        let (body, known_saves) = self.body(rows, argument_plan, original);
        let known_saves = known_saves.filter(|_| !self.is_compared);
        if let Some(saved) = self.surely_saves(&body, count, cost, known_saves)
            && argument_plan.is_plain(self.table, rows[0])
        {
            return Ok(Verdict::Pays(Box::new(Candidate { body, outcomes, saved, token: None })));
        }
        let calls_itself = self.table.calls_itself(rows[0]).next().is_some();
        let Answer { size: Some(size), token } = self.sizes.of_body(&body, calls_itself)? else {
            return Ok(Verdict::DoesNot(None));
        };
        let size = i64::from(size);
        // A lower bound for the size of each function; if that is enough, none of them need be measured.
        let least = known_saves.map(|known_saves| size - known_saves).filter(|&least| {
            let enough = self.judge.share.is_reached(count * least - cost - size, count * least);
            enough && 2 * least > size && self.known_size(function).is_none()
        });
        let own = match least {
            Some(least) => Some(least),
            None => self.size_of(function, emitted)?,
        };
        let mut saved = own.map(|own| count * own - cost - size);
        // The other functions can be smaller than the first, and a body for which there are not enough registers can
        // be larger than is assumed.
        if let (Some(own), Some(first)) = (own, saved)
            && self.judge.options.similar.policy == Policy::Size
            && self.judge.share.is_reached(first, count * own)
            && 2 * first < count * own
        {
            saved = self.all_sizes(rows)?.map(|all| all - cost - size);
        }
        Ok(match own.zip(saved) {
            Some((own, saved)) if self.judge.share.is_reached(saved, count * own) => {
                Verdict::Pays(Box::new(Candidate { body, outcomes, saved, token }))
            }
            _ => Verdict::DoesNot(saved),
        })
    }

    /// Bytes of the functions of some rows of the table, as the plan leaves them so far.
    fn all_sizes(&mut self, rows: &[u32]) -> Result<Option<i64>, Needs> {
        let mut all = 0;
        for &row in rows {
            let function = self.table.function(row);
            let size = match self.known.get(&function) {
                Some(&size) => size,
                None => {
                    let Judge { plan, options, .. } = *self.judge;
                    let body = compared(plan, self.bodies, function, options);
                    self.size_of(function, &body)?
                }
            };
            let Some(size) = size else {
                return Ok(None);
            };
            all += size;
        }
        Ok(Some(all))
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
        if self.judge.keeps_candidates {
            return None;
        }
        let least = self.guess(body.dfg.num_insts()) / cost::MAX_SIZE_ERROR;
        let own = least - known_saves?;
        let saved = count * own - cost - least;
        (2 * own > least && self.judge.share.is_reached(saved, count * own)).then_some(saved)
    }

    /// The disposition of each of these functions: the one that takes fewer bytes. Fails if one of them needs a
    /// thunk and there is none, if there can be no such call, or if a body would have too many parameters.
    fn outcomes(
        &mut self,
        rows: &[u32],
        argument_plan: &ArgumentPlan,
        original: &Function,
    ) -> Result<Result<Outcomes, Verdict>, Needs> {
        let observes = observes_its_frame(original);
        let signature = &original.signature;
        let Some(cost) = self.thunks_of_callees(rows, argument_plan)? else {
            return Ok(Err(Verdict::NoThunk));
        };
        let mut outcomes = Outcomes { arguments: Vec::new(), thunks: Vec::new(), cost };
        // The same for all rows: it depends on the types.
        let mut zeros = None;
        for (at, &row) in rows.iter().enumerate() {
            let extra_arguments = argument_plan.arguments(self.table, row, at);
            let extra_arguments = body::as_passed(extra_arguments, signature, self.judge.options);
            let function = self.table.function(row);
            if signature.params.len() + extra_arguments.len() > cost::MAX_PARAMETERS {
                return Ok(Err(Verdict::DoesNot(None)));
            }
            if zeros.is_none() {
                let types = extra_arguments.iter().map(ExtraArgument::ty);
                zeros = self.sizes.passing_zeros(signature, types)?;
            }
            let passing = match zeros {
                Some(zeros) => self.sizes.passing(signature, zeros, &extra_arguments)?,
                None => None,
            };
            let Some(passing) = passing else {
                return Ok(Err(Verdict::DoesNot(None)));
            };
            let count = self.judge.uses.calls(function);
            let calls = i64::from(passing) * i64::from(count);
            let thunk = self.sizes.thunk(signature, &extra_arguments, observes)?.map(i64::from);
            let keeps_symbol = self.must_keep_symbol(function);
            let by_thunk =
                keeps_symbol || thunk.is_some_and(|thunk| is_cheaper(thunk, calls, count));
            outcomes.cost += match (by_thunk, thunk) {
                (true, Some(thunk)) => thunk,
                (true, None) => return Ok(Err(Verdict::NoThunk)),
                (false, _) => calls,
            };
            outcomes.thunks.push(by_thunk);
            outcomes.arguments.push(extra_arguments.into());
        }
        Ok(Ok(outcomes))
    }

    /// See [`body_of_rows`].
    fn body(
        &mut self,
        rows: &[u32],
        argument_plan: &ArgumentPlan,
        original: &Function,
    ) -> (Function, Option<i64>) {
        let Judge { plan, options, callee, .. } = *self.judge;
        let of = (self.table, rows);
        let walk = (&mut *self.scratch, &mut *self.encoding);
        body_of_rows((plan, options, callee), of, argument_plan, original, walk)
    }

    /// Bytes of a function as the plan leaves it so far.
    fn size_of(&mut self, function: FunctionIndex, body: &Function) -> Result<Option<i64>, Needs> {
        if let Some(&known) = self.known.get(&function) {
            return Ok(known);
        }
        let size = self.sizes.of_function(function, body)?.map(i64::from);
        self.known.insert(function, size);
        Ok(size)
    }

    /// Bytes of a function as the plan leaves it so far, if its size was requested.
    fn known_size(&self, function: FunctionIndex) -> Option<i64> {
        self.known.get(&function).copied().flatten()
    }

    /// Bytes of a function, known or estimated: for deciding what to examine more closely.
    fn estimate(&self, function: FunctionIndex, body: &Function) -> i64 {
        self.known_size(function).unwrap_or_else(|| self.guess(body.dfg.num_insts()))
    }

    /// The estimated bytes of a body of so many instructions, at the mean bytes per instruction of what was measured
    /// before.
    fn guess(&self, instructions: usize) -> i64 {
        let [bytes, measured] = self.judge.measured;
        (instructions as i64).saturating_mul(bytes) / measured
    }
}

/// The body for some rows of the table, and how many bytes smaller a function without extra arguments could be, if
/// that is clear.
pub(super) fn body_of_rows(
    (plan, options, callee): (&Plan, &Options<'_>, &UserExternalName),
    (table, rows): (&Table, &[u32]),
    argument_plan: &ArgumentPlan,
    original: &Function,
    (scratch, encoding): (&mut canon::Scratch, &mut canon::Encoding),
) -> (Function, Option<i64>) {
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
    if options.compare.constant_branches == Compare::Ignore {
        body::fold_branches(&mut body);
    }
    let places = parameters.iter().flat_map(|parameter| &parameter.places).copied();
    // A function without callee dispatch is smaller, too.
    let known_saves = known_saves(&body, places).filter(|_| argument_plan.dispatches.is_empty());
    // Nor does it compute what calls pass that are redirected.
    let known_saves = known_saves.filter(|_| table.written().is_empty());
    body::parameterise(&mut body, callee, &parameters, &recursive, options);
    if !table.written().is_empty() {
        plan.redirect(&mut body, Written::none());
    }
    (body, known_saves)
}
