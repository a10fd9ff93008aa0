//! Similar functions: those that differ only in constants and in what they refer to.
//!
//! After identical merging, [`merge_similar`] looks at the functions that a plan keeps. The driver reads as
//! the list of the phases: put functions of one shape together, by the shape stream of the one canonical
//! walk; go through the shapes from callees to callers, so that callers of what was merged differ in a
//! constant where they differed in a callee; write functions of one shape as a table of the places where
//! they can differ (`table`, `value`); divide them into sets that pay (`split`); make one body for each set
//! (`body`), compile it, and take it if it really pays (`cost`).
//!
//! Sources: Swift's LLVMMergeFunctions and LLVM's GlobalMergeFunctions, which merge by parameters, too;
//! Binaryen's MergeSimilarFunctions, which passes callees. These weigh numbers of instructions, and drop a
//! group that does not pay as a whole.
//!
//! What it does *not* do: it does not look for functions of different shapes, and does not reorder or align
//! code.

mod body;
mod cost;
mod fold;
mod split;
mod table;
mod uses;
mod value;

use crate::apply::weaken;
use crate::argument::Argument;
use crate::canon::{self, Context, NoUnit, Place, Scratch};
use crate::components::components;
use crate::encoding::Encoding;
use crate::options::{
    Addresses, Attributes, Callees, Compare, Linkage, Options, Policy, Prebucket,
};
use crate::plan::{Disposition, Entry, MergedBody, Plan};
use crate::remarks::Reason;
use crate::summary::{Observed, counts};
use crate::unit::{Bodies, FunctionIndex, Item, canonicalized};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use cost::Costs;
use cranelift_codegen::ir::{Function, Inst, Opcode, Signature, UserExternalName, UserFuncName};
use cranelift_entity::{EntityRef, SecondaryMap};
use split::{Column, Part, Problem, Row};
use table::Table;
use uses::{Uses, callees};
use value::Value;
use xxhash_rust::xxh3::xxh3_128;

/// Merges functions that differ in constants and callees, as `options` say, and writes it into `plan`.
///
/// `bodies` are asked for the sizes of what could be emitted. Walks every kept function that is like another
/// twice, and compiles one function of each set and each body that is tried.
pub(crate) fn merge_similar(
    plan: &mut Plan,
    observed: &Observed,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
) {
    if options.similar.policy == Policy::Off {
        return;
    }
    let uses = Uses::of(plan, observed, bodies);
    let mut merged_into: SecondaryMap<FunctionIndex, Vec<FunctionIndex>> = SecondaryMap::new();
    for (function, entry) in plan.entries() {
        if let Some(to) = entry.disposition().representative() {
            merged_into[to].push(function);
        }
    }
    let mut search = Search {
        uses,
        merged_into,
        next_class: plan.classes(),
        limit: merges_left(plan, options),
        plan,
        bodies,
        options,
        costs: Costs::new(options),
        scratch: Scratch::recording(),
        encoding: Encoding::default(),
        sizes: SecondaryMap::new(),
        compiled: [600, 100],
        spare: None,
    };
    let shapes = search.shapes(observed);
    for component in search.bottom_up(&shapes) {
        for shape in component {
            search.shape(&shapes[shape as usize]);
        }
    }
    let Search { plan, costs, .. } = search;
    plan.stats.similar_probes = costs.probes;
    let merged = |entry: &&Entry| entry.disposition != Disposition::Keep;
    plan.stats.plan_merged = plan.entries.values().filter(merged).count();
}

struct Search<'a> {
    plan: &'a mut Plan,
    uses: Uses,
    bodies: &'a mut dyn Bodies,
    options: &'a Options<'a>,
    costs: Costs<'a>,
    scratch: Scratch,
    encoding: Encoding,
    /// What identical merging merged into each function.
    merged_into: SecondaryMap<FunctionIndex, Vec<FunctionIndex>>,
    /// The number of the next class.
    next_class: u32,
    /// How many more functions may be merged.
    limit: usize,
    /// Bytes of functions as they are by now.
    sizes: SecondaryMap<FunctionIndex, Option<i64>>,
    /// Bytes and instructions of what was compiled so far, and of a little to begin with.
    compiled: [i64; 2],
    /// A symbol that was asked for and is not used yet.
    spare: Option<UserExternalName>,
}

/// A set of functions that might share a body, as it was compiled.
struct Candidate {
    symbol: UserExternalName,
    body: Function,
    /// For each function what it is told.
    arguments: Vec<Arc<[Argument]>>,
    /// For each function whether it becomes a thunk.
    thunks: Vec<bool>,
    /// Bytes.
    saved: i64,
    /// Bytes of the functions as they are.
    before: i64,
}

impl Search<'_> {
    /// Functions that could share a body with another one.
    fn is_candidate(&self, function: FunctionIndex) -> bool {
        let entry = self.plan.entry(function);
        let Attributes { pinned, no_merge, hot, .. } = entry.attributes;
        let hot = hot && self.options.similar.policy == Policy::Balanced;
        let malformed = entry.reason() == Reason::Malformed;
        entry.disposition() == Disposition::Keep && !(pinned || no_merge || hot || malformed)
    }

    fn order(&self, function: FunctionIndex) -> (u32, u32) {
        let symbol = self.plan.entry(function).symbol();
        (symbol.namespace, symbol.index)
    }

    /// Functions of equal shapes, up to collisions of hashes: two or more, in the order of their symbols,
    /// by the first of them.
    fn shapes(&mut self, observed: &Observed) -> Vec<Vec<FunctionIndex>> {
        let mut buckets: BTreeMap<u64, Vec<FunctionIndex>> = BTreeMap::new();
        for index in 0..self.plan.added() {
            let function = FunctionIndex::new(index);
            let points_inside = observed.points_inside(self.plan.entry(function).symbol());
            if self.is_candidate(function) && !points_inside {
                let bucket = match self.options.prebucket {
                    Prebucket::Counts => {
                        let key = self.plan.entry(function).attributes.key;
                        counts(self.bodies.body(function), key)
                    }
                    Prebucket::WalkAll => 0,
                };
                buckets.entry(bucket).or_default().push(function);
            }
        }
        let mut shapes: BTreeMap<u128, Vec<FunctionIndex>> = BTreeMap::new();
        for function in buckets.into_values().filter(|bucket| bucket.len() > 1).flatten() {
            let body = canonicalized(self.bodies.body(function), self.options.canonicalize);
            let context = Context {
                policy: self.options.compare,
                target: self.options.target,
                key: self.plan.entry(function).attributes.key,
                symbols: &NoUnit,
            };
            self.plan.stats.similar_walks += 1;
            if canon::encode(&body, &context, &mut self.scratch, &mut self.encoding).is_ok() {
                let shape = xxh3_128(&self.encoding.shape);
                shapes.entry(shape).or_default().push(function);
            }
        }
        let mut shapes: Vec<_> = shapes.into_values().filter(|shape| shape.len() > 1).collect();
        for shape in &mut shapes {
            shape.sort_unstable_by_key(|&function| self.order(function));
        }
        shapes.sort_unstable_by_key(|shape| self.order(shape[0]));
        shapes
    }

    /// The shapes by the strongly connected components of who calls whom, callees first.
    fn bottom_up(&mut self, shapes: &[Vec<FunctionIndex>]) -> Vec<Vec<u32>> {
        let mut shape_of: SecondaryMap<FunctionIndex, Option<u32>> = SecondaryMap::new();
        for (number, shape) in (0..).zip(shapes) {
            for &function in shape {
                shape_of[function] = Some(number);
            }
        }
        let mut edges: Vec<Vec<u32>> = Vec::with_capacity(shapes.len());
        for shape in shapes {
            let mut targets = Vec::new();
            for &function in shape {
                let callees = callees(self.plan, self.bodies.body(function));
                targets.extend(callees.iter().filter_map(|&callee| shape_of[callee]));
            }
            targets.sort_unstable();
            targets.dedup();
            edges.push(targets);
        }
        let mut components = components(shapes.len(), |shape| edges[shape].iter().copied());
        for component in &mut components {
            component.sort_unstable();
        }
        components
    }

    /// A function as the plan leaves it by now.
    fn current(&mut self, function: FunctionIndex) -> Function {
        let body_of = self.plan.body_of(function).expect("not emitted before");
        let mut func = self.bodies.body(body_of).clone();
        func.name = UserFuncName::User(self.plan.entry(function).symbol().clone());
        self.plan.apply(function, &mut func, self.options);
        canonicalized(&func, self.options.canonicalize).into_owned()
    }

    /// Walks a function as the plan leaves it by now; whether that went well.
    fn walk(&mut self, function: FunctionIndex, body: &Function) -> bool {
        let context = Context {
            policy: self.options.compare,
            target: self.options.target,
            key: self.plan.entry(function).attributes.key,
            symbols: &*self.plan,
        };
        let walked = canon::encode(body, &context, &mut self.scratch, &mut self.encoding);
        self.plan.stats.similar_walks += 1;
        walked.is_ok()
    }

    /// Merges functions that had one shape before their callees were merged.
    fn shape(&mut self, functions: &[FunctionIndex]) {
        let mut tables: Vec<Table> = Vec::new();
        let mut number: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for &function in functions {
            let body = self.current(function);
            if !self.walk(function, &body) {
                continue;
            }
            let table = match number.get(&self.encoding.shape) {
                Some(&table) => &mut tables[table],
                None => {
                    number.insert(self.encoding.shape.clone(), tables.len());
                    tables.push(Table::new());
                    tables.last_mut().expect("just pushed")
                }
            };
            let (marks, encoding) = (&self.scratch.marks, &self.encoding);
            table.push(function, &body, marks, encoding, self.plan, self.options);
        }
        // What these functions refer to among themselves is not looked at again when it was merged.
        for symbol in tables.iter().flat_map(Table::symbols) {
            self.uses.add_address(self.plan, symbol);
        }
        for table in &tables {
            for set in table.sets() {
                if set.len() > 1 {
                    self.set(table, &set);
                }
            }
        }
    }

    /// Merges functions that differ only where parameters can stand.
    fn set(&mut self, table: &Table, set: &[u32]) {
        let Some(problem) = self.problem(table, set) else {
            return;
        };
        let mut parts = alloc::vec![(Part::whole(&problem), false)];
        while let Some((part, must)) = parts.pop() {
            if let Some(divided) = problem.divide(&part, must) {
                parts.extend(divided.into_iter().rev().map(|part| (part, false)));
                continue;
            }
            let rows: Vec<u32> = part.rows.iter().map(|&row| set[row as usize]).collect();
            let candidate = match problem.allows(&part.rows) {
                true => self.candidate(table, &rows),
                false => None,
            };
            match candidate {
                Some(candidate) if self.pays(&candidate) => {
                    // A limit does not cut into a set.
                    match self.limit.checked_sub(rows.len()) {
                        Some(left) => {
                            self.limit = left;
                            self.accept(table, &rows, candidate);
                        }
                        None => {
                            self.limit = 0;
                            self.spare = Some(candidate.symbol);
                            self.leave(table, &rows, Reason::MergeLimit);
                        }
                    }
                }
                _ if must => self.leave(table, &rows, Reason::SimilarNotSmaller),
                _ => parts.push((part, true)),
            }
        }
    }

    /// What splitting a set must know.
    fn problem(&mut self, table: &Table, set: &[u32]) -> Option<Problem> {
        let parameters = table.parameters(set);
        if parameters.is_empty() {
            return None;
        }
        let first = self.current(table.function(set[0]));
        let body = self.estimate(table.function(set[0]), &first);
        let rows = set.iter().map(|&row| {
            let function = table.function(row);
            Row {
                calls: self.uses.calls(function).into(),
                thunk: self.uses.survives(self.plan, function).is_some(),
            }
        });
        let rows: Vec<Row> = rows.collect();
        let jump = self.options.target.jump_thunk.map_or(16, |jump| jump.size().into());
        let mut columns = Vec::new();
        for parameter in &parameters {
            let mut number: BTreeMap<u32, u32> = BTreeMap::new();
            let (mut cells, mut cost) = (Vec::with_capacity(set.len()), Vec::new());
            let mut is_callee = false;
            for &row in set {
                let cell = table.at(row, parameter.columns[0]);
                let next = number.len() as u32;
                let dense = *number.entry(cell).or_insert(next);
                if dense == next {
                    let value = table.value(cell).expect("what differs is a value");
                    is_callee |= matches!(value, Value::Callee { .. });
                    cost.push(self.passing(&first.signature, value)?);
                }
                cells.push(dense);
            }
            let forbidden = is_callee && self.options.similar.callees == Callees::None;
            let overhead = if is_callee { 6 } else { 2 };
            columns.push(Column { cells, cost, overhead, forbidden });
        }
        Some(Problem { body, jump, rows, columns })
    }

    /// Bytes that it takes to pass a value, roughly: in a register.
    fn passing(&mut self, signature: &Signature, value: &Value) -> Option<i64> {
        let alone = Signature::new(signature.call_conv);
        let size = self.costs.passing(self.bodies, &alone, &value.arguments())?;
        Some(size.into())
    }

    /// The body for some rows of a table, compiled, unless it is clear that it does not pay.
    fn candidate(&mut self, table: &Table, rows: &[u32]) -> Option<Candidate> {
        let parameters = table.parameters(rows);
        if parameters.is_empty() {
            // They are equal, and were left alone nevertheless.
            return None;
        }
        let function = table.function(rows[0]);
        let mut body = self.current(function);
        let signature = body.signature.clone();
        let observes = observes_its_frame(&body);

        let mut arguments: Vec<Arc<[Argument]>> = Vec::with_capacity(rows.len());
        let mut thunks = Vec::with_capacity(rows.len());
        let mut cost = 0;
        for &row in rows {
            let values = parameters.iter().map(|parameter| {
                let cell = table.at(row, parameter.columns[0]);
                table.value(cell).expect("what differs is a value").arguments()
            });
            let own: Vec<Argument> = values.flatten().collect();
            let function = table.function(row);
            let passing = self.costs.passing(self.bodies, &signature, &own)?;
            let calls = i64::from(passing) * i64::from(self.uses.calls(function));
            let thunk = self.costs.thunk(self.bodies, &signature, &own, observes).map(i64::from);
            let survives = self.uses.survives(self.plan, function).is_some();
            let by_thunk = survives || thunk.is_some_and(|thunk| thunk < calls);
            cost += if by_thunk { thunk? } else { calls };
            thunks.push(by_thunk);
            arguments.push(own.into());
        }
        // The body is hardly smaller than one that is told nothing. If it is not clear that it pays, the
        // size of that one is needed.
        let others = rows.len() as i64 - 1;
        if others * self.estimate(function, &body) <= 2 * cost
            && others * self.size_of(function, &body)? <= cost
        {
            return None;
        }

        let original = body.clone();
        self.walk(function, &body);
        let places = table::columns(&self.scratch.marks, &self.encoding);
        let inst = |column: usize| match places[column] {
            Place::Inst(inst) => inst,
            place => unreachable!("nothing else has a value: {place:?}"),
        };
        let recursive: Vec<Inst> = table.calls_itself(rows[0]).map(inst).collect();
        let parameters: Vec<body::Parameter> = parameters
            .iter()
            .map(|parameter| {
                let cell = table.at(rows[0], parameter.columns[0]);
                let value = table.value(cell).expect("what differs is a value");
                let types = value.arguments().iter().map(Argument::ty).collect();
                let places = parameter.columns.iter().map(|&column| inst(column)).collect();
                body::Parameter { types, places }
            })
            .collect();
        let facts = table.common_facts(rows);
        if facts != self.encoding.facts {
            let key = self.plan.entry(function).attributes.key;
            weaken(&mut body, key, &facts, self.options);
        }
        if self.options.compare.constant_branches == Compare::Ignore {
            body::fold_branches(&mut body);
        }
        let places = parameters.iter().flat_map(|parameter| &parameter.places).copied();
        let known_saves = fold::known_saves(&body, places);
        let symbol = self.fresh_symbol()?;
        body::parametrize(&mut body, &symbol, &parameters, &recursive);
        let Some(size) = self.size(&body) else {
            self.spare = Some(symbol);
            return None;
        };
        // At least so many bytes are saved; if that is enough, nothing else need be compiled.
        let count = rows.len() as i64;
        let least = known_saves.map(|known_saves| size - known_saves);
        let least = least.filter(|&least| {
            2 * least > size && self.is_enough(count * least - cost - size, count * least)
        });
        let own = match least.filter(|_| self.sizes[function].is_none()) {
            Some(least) => Some(least),
            None => self.size_of(function, &original),
        };
        let Some(own) = own else {
            self.spare = Some(symbol);
            return None;
        };
        let (saved, before) = (count * own - cost - size, count * own);
        Some(Candidate { symbol, body, arguments, thunks, saved, before })
    }

    /// Bytes of a function as it is by now.
    fn size_of(&mut self, function: FunctionIndex, body: &Function) -> Option<i64> {
        if self.sizes[function].is_none() {
            self.sizes[function] = self.size(body);
        }
        self.sizes[function]
    }

    /// Bytes of a function, known or guessed: for deciding what to look at more closely.
    fn estimate(&self, function: FunctionIndex, body: &Function) -> i64 {
        let [bytes, instructions] = self.compiled;
        let guess = (body.dfg.num_insts() as i64).saturating_mul(bytes) / instructions;
        self.sizes[function].unwrap_or(guess)
    }

    /// Bytes of a body that may be emitted.
    fn size(&mut self, body: &Function) -> Option<i64> {
        self.plan.stats.similar_sizes += 1;
        let size = self.bodies.candidate_size(body, true).map(i64::from)?;
        let [bytes, instructions] = &mut self.compiled;
        *bytes += size;
        *instructions += body.dfg.num_insts() as i64;
        Some(size)
    }

    fn fresh_symbol(&mut self) -> Option<UserExternalName> {
        self.spare.take().or_else(|| self.bodies.fresh_symbol())
    }

    /// Whether it is enough to save so many of so many bytes.
    fn is_enough(&self, saved: i64, before: i64) -> bool {
        match self.options.similar.policy {
            Policy::Off => false,
            Policy::Size => saved > 0,
            Policy::Balanced => saved * 8 > before,
        }
    }

    /// Whether a body saves enough.
    fn pays(&mut self, candidate: &Candidate) -> bool {
        let enough = self.is_enough(candidate.saved, candidate.before);
        if !enough {
            self.spare = Some(candidate.symbol.clone());
        }
        enough
    }

    /// Has some rows of a table share a body.
    fn accept(&mut self, table: &Table, rows: &[u32], candidate: Candidate) {
        let Candidate { symbol, body, arguments, thunks, .. } = candidate;
        let first = self.plan.entry(table.function(rows[0]));
        let attributes = Attributes {
            linkage: Linkage::Local,
            addresses: Addresses::Insignificant,
            key: first.attributes.key,
            ..Attributes::default()
        };
        let to = self.plan.entries.push(Entry {
            symbol: symbol.clone(),
            attributes,
            disposition: Disposition::Keep,
            reason: Reason::Parametrized,
            class: self.next_class,
            alignment: 1,
            weakened: None,
            arguments: Arc::default(),
        });
        self.next_class += 1;
        self.plan.by_symbol.insert(symbol, Item::Function(to));
        for ((&row, arguments), thunk) in rows.iter().zip(arguments).zip(thunks) {
            let function = table.function(row);
            for symbol in arguments.iter().filter_map(Argument::symbol) {
                self.uses.add_address(self.plan, symbol);
            }
            let reason = self.uses.survives(self.plan, function);
            let entry = &mut self.plan.entries[function];
            entry.arguments = arguments;
            (entry.disposition, entry.reason) = match thunk {
                true => (Disposition::Thunk { to }, reason.unwrap_or(Reason::ThunkCheaper)),
                false => (Disposition::Redirect { to }, Reason::Similar),
            };
            self.follow(function, to);
            if !thunk {
                // It has no place of its own any more.
                let alignment = self.plan.entry(function).alignment;
                let body = &mut self.plan.entries[to].alignment;
                *body = alignment.max(*body);
            }
        }
        self.plan.merged.push(MergedBody { function: to, body });
        self.plan.stats.similar_bodies += 1;
        self.plan.stats.similar_merged += rows.len();
    }

    /// Has what was merged into a function follow it, if nothing is left there.
    fn follow(&mut self, function: FunctionIndex, to: FunctionIndex) {
        let Entry { disposition, arguments, .. } = self.plan.entry(function).clone();
        if let Disposition::Redirect { to: _ } = disposition {
            for &member in &self.merged_into[function] {
                let entry = &mut self.plan.entries[member];
                entry.disposition = entry.disposition.map(|_| to);
                entry.arguments = arguments.clone();
            }
        }
    }

    /// Says of functions why they are not merged.
    fn leave(&mut self, table: &Table, rows: &[u32], reason: Reason) {
        for &row in rows {
            let entry = &mut self.plan.entries[table.function(row)];
            if let Reason::NothingAlike | Reason::Different | Reason::ReferencesDiffer =
                entry.reason
            {
                entry.reason = reason;
            }
        }
    }
}

/// How many merges the limit leaves after identical merging.
fn merges_left(plan: &Plan, options: &Options<'_>) -> usize {
    let Some(limit) = options.merge_limit else {
        return usize::MAX;
    };
    let functions = plan.entries().filter(|(_, entry)| entry.disposition() != Disposition::Keep);
    let data = plan.data_entries().filter(|(_, entry)| entry.disposition() != Disposition::Keep);
    (limit as usize).saturating_sub(functions.count() + data.count())
}

/// Whether a function can tell who called it. Linear in its size.
pub(crate) fn observes_its_frame(func: &Function) -> bool {
    let mut insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
    insts.any(|inst| {
        let opcode = func.dfg.insts[inst].opcode();
        matches!(opcode, Opcode::GetReturnAddress | Opcode::GetFramePointer)
    })
}
