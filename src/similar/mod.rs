//! Similar functions: those that differ only in constants and references.
//!
//! After identical merging, [`merge_similar`] looks at the functions that a plan keeps. The driver reads as the
//! list of the phases:
//!
//! * group functions of one shape, by the shape stream of the one canonical walk;
//! * go through the shapes from callees to callers, so that callers of merged functions differ in a constant where
//!   they differed in a callee;
//! * write functions of one shape as a table of the places where they can differ (`table`, `value`);
//! * divide them into sets that pay (`split`);
//! * for each set, list the ways to pass the differences to one body (`argument_plan`), make that body (`body`,
//!   `dispatch`), compile it, and accept it if it really pays (`cost`).
//!
//! Functions that are identical after that are merged by a second identical pass (`second_pass`).
//!
//! Sources: Swift's LLVMMergeFunctions and LLVM's GlobalMergeFunctions, which merge by parameters, too; Binaryen's
//! MergeSimilarFunctions, which passes callees. These weigh numbers of instructions, and drop a group that does not
//! pay as a whole.
//!
//! What it does *not* do: it does not look for functions of different shapes, and does not reorder or align code.

mod argument_plan;
pub(crate) mod body;
mod cost;
mod dispatch;
mod fold;
mod loops;
mod second_pass;
mod set;
mod signatures;
mod smaller;
mod split;
mod table;
mod uses;
mod value;

use crate::canon::{self, Context, NoUnit, Scratch};
use crate::canonicalize::canonicalized;
use crate::components::components;
use crate::encoding::Encoding;
use crate::incremental::MergeCache;
use crate::options::{Attributes, Options, Policy, Prebucket};
use crate::plan::{Disposition, Entry, Plan};
use crate::remarks::Reason;
use crate::summary::{Observed, counts};
use crate::unit::{Bodies, FunctionIndex};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cost::Costs;
use cranelift_codegen::ir::{Function, Opcode, UserExternalName, UserFuncName};
use cranelift_entity::{EntityRef, SecondaryMap};
use set::Candidate;
use table::{Set, Table};
use uses::{Uses, callees};
use value::Symbols;
use xxhash_rust::xxh3::xxh3_128;

/// Merges functions that differ in constants and callees, as `options` say, and writes the result into `plan`.
///
/// The sizes of candidate code are requested from `bodies`. Walks every kept function that may share its shape with
/// another twice, and compiles one function of each set and each body that is tried. With [`Policy::Size`], where
/// it is in doubt whether the result makes the unit smaller, it compiles all functions of a set, and in the end all
/// that differs from the plan before; then it may search once more and demand more of each body.
pub(crate) fn merge_similar(
    plan: &mut Plan,
    observed: &Observed,
    earlier: Option<&MergeCache>,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
) {
    match options.similar.policy {
        Policy::Off => {}
        Policy::Balanced => {
            search(plan, observed, earlier, bodies, options, Demand::Eighth, Vec::new());
        }
        Policy::Size => {
            let before = plan.clone();
            let mut unused = Vec::new();
            for demand in [Demand::Anything, Demand::Eighth] {
                let surely = search(plan, observed, earlier, bodies, options, demand, unused);
                if surely || smaller::is_smaller(&before, plan, bodies, options) {
                    return;
                }
                // Give the unused symbols to the next search, in their order.
                let symbols = plan.merged.iter().rev();
                unused =
                    symbols.map(|merged| plan.entry(merged.function).symbol().clone()).collect();
                *plan = before.clone();
            }
        }
    }
}

/// How much a parameterised body must save.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Demand {
    /// One byte.
    Anything,
    /// An eighth of what its functions take.
    Eighth,
}

/// The bytes by which the estimate for one more argument at one call can be wrong, at most: which values a caller
/// must keep elsewhere, and for how long, depends on that caller.
const CALL_ERROR: i64 = 16;

/// Searches once. `unused` are symbols for new bodies. Returns whether the result is surely smaller, even if all
/// calls take more bytes than is assumed.
fn search(
    plan: &mut Plan,
    observed: &Observed,
    earlier: Option<&MergeCache>,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
    demand: Demand,
    unused: Vec<UserExternalName>,
) -> bool {
    let uses = Uses::of(plan, observed, bodies, options.similar.keep_symbols);
    let mut merged_into: SecondaryMap<FunctionIndex, Vec<FunctionIndex>> = SecondaryMap::new();
    for (function, entry) in plan.entries() {
        if let Some(to) = entry.disposition().representative() {
            merged_into[to].push(function);
        }
    }
    let mut search = Search {
        uses,
        merged_into,
        earlier,
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
        unused,
        demand,
        saved: 0,
        rewritten_calls: 0,
        cycles: SecondaryMap::new(),
    };
    let shapes = search.shapes(observed);
    let calls = search.calls(&shapes);
    if options.similar.policy == Policy::Balanced {
        search.find_call_graph_cycles(&calls);
    }
    for component in bottom_up(&shapes, &calls) {
        loop {
            let before = search.plan.merged.len();
            for &shape in &component {
                search.shape(&shapes[shape as usize]);
            }
            // In a cycle of the call graph, merged callees may give more functions the same shape.
            if component.len() == 1 || search.plan.merged.len() == before {
                break;
            }
        }
    }
    search.second_identical_pass(observed);
    let Search { plan, costs, saved, rewritten_calls, .. } = search;
    let surely = saved >= CALL_ERROR * rewritten_calls;
    plan.remove_eliminated();
    plan.stats.similar_probes = costs.probes;
    let merged = |entry: &&Entry| entry.disposition != Disposition::Keep;
    plan.stats.plan_merged = plan.entries.values().take(plan.added()).filter(merged).count();
    surely
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
    /// The merge cache of earlier units.
    earlier: Option<&'a MergeCache>,
    /// The number of the next class.
    next_class: u32,
    /// How many more functions may be merged.
    limit: usize,
    /// Sizes in bytes of functions, as the plan leaves them so far.
    sizes: SecondaryMap<FunctionIndex, Option<i64>>,
    /// Bytes and instructions of what was compiled so far, with a small initial value.
    compiled: [i64; 2],
    /// Symbols that were requested and are not used yet.
    unused: Vec<UserExternalName>,
    demand: Demand,
    /// Bytes that the accepted bodies save, as far as they were compiled.
    saved: i64,
    /// The calls that pass extra arguments, counted once for each argument.
    rewritten_calls: i64,
    /// The cycle of the call graph that a function is in, by number, if calls within cycles are not to become
    /// indirect.
    cycles: SecondaryMap<FunctionIndex, Option<u32>>,
}

impl Search<'_> {
    /// Whether a function could share a parameterised body with another one.
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

    /// Functions of equal shapes, up to collisions of hashes. Each group has two or more, in the order of their
    /// symbols; groups are ordered by their first functions.
    fn shapes(&mut self, observed: &Observed) -> Vec<Vec<FunctionIndex>> {
        let mut buckets: BTreeMap<u64, Vec<FunctionIndex>> = BTreeMap::new();
        for index in 0..self.plan.added() {
            let function = FunctionIndex::new(index);
            let points_inside = observed.points_inside(self.plan.entry(function).symbol());
            if self.is_candidate(function) && !points_inside {
                let bucket = match self.options.walks() {
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

    /// The direct calls among the functions of all shapes, by numbers of functions in the order of the shapes.
    fn calls(&mut self, shapes: &[Vec<FunctionIndex>]) -> Calls {
        let functions: Vec<FunctionIndex> = shapes.iter().flatten().copied().collect();
        let mut number: SecondaryMap<FunctionIndex, Option<u32>> = SecondaryMap::new();
        for (at, &function) in (0..).zip(&functions) {
            number[function] = Some(at);
        }
        let mut callees_of: Vec<Vec<u32>> = Vec::with_capacity(functions.len());
        for &function in &functions {
            let callees = callees(self.plan, self.bodies.body(function));
            callees_of.push(callees.iter().filter_map(|&callee| number[callee]).collect());
        }
        Calls { functions, callees: callees_of }
    }

    /// Finds the cycles of the call graph: a cycle counts as a loop.
    fn find_call_graph_cycles(&mut self, calls: &Calls) {
        let Calls { functions, callees } = calls;
        let components = components(functions.len(), |at| callees[at].iter().copied());
        for (cycle, component) in (0..).zip(components) {
            if component.len() > 1 {
                for at in component {
                    self.cycles[functions[at as usize]] = Some(cycle);
                }
            }
        }
    }

    /// A function as the plan leaves it so far.
    fn current(&mut self, function: FunctionIndex) -> Function {
        current(self.plan, self.bodies, function, self.options)
    }

    /// Walks a function as the plan leaves it so far, and returns whether that succeeded.
    fn walk(&mut self, function: FunctionIndex, body: &Function) -> bool {
        let context = Context {
            policy: self.options.compare,
            target: self.options.target,
            key: self.plan.entry(function).attributes.key,
            // By name: see `Table`.
            symbols: &NoUnit,
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
            if self.plan.entry(function).disposition() != Disposition::Keep {
                continue;
            }
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
            let symbols = Symbols { plan: self.plan, earlier: self.earlier, options: self.options };
            table.push(function, &body, marks, encoding, &symbols);
        }
        let sets: Vec<Set<'_>> = tables.iter().flat_map(Set::of).collect();
        // Arguments may name functions of this shape whose disposition is still open, so mark their addresses
        // taken.
        for symbol in sets.iter().flat_map(Set::symbols) {
            let key = (symbol.namespace, symbol.index);
            if functions.binary_search_by_key(&key, |&function| self.order(function)).is_ok() {
                self.uses.add_address(self.plan, symbol);
            }
        }
        let mut paying: Vec<(&Table, Vec<u32>, Candidate)> = Vec::new();
        for set in &sets {
            let found = self.set(set);
            paying.extend(found.into_iter().map(|(rows, candidate)| (set.table, rows, candidate)));
        }
        // Accept the sets only now: some may call others, and the places of constants were found in the functions
        // as they were.
        for (table, rows, candidate) in paying {
            self.accept(table, &rows, candidate);
        }
    }
}

/// Direct calls among functions.
struct Calls {
    functions: Vec<FunctionIndex>,
    /// The callees of each function, by number.
    callees: Vec<Vec<u32>>,
}

/// The shapes by the strongly connected components of the call graph, callees first.
fn bottom_up(shapes: &[Vec<FunctionIndex>], calls: &Calls) -> Vec<Vec<u32>> {
    let numbers = (0..).zip(shapes);
    let shape_of: Vec<u32> =
        numbers.flat_map(|(number, shape)| core::iter::repeat_n(number, shape.len())).collect();
    let mut edges: Vec<Vec<u32>> = alloc::vec![Vec::new(); shapes.len()];
    for (&shape, callees) in shape_of.iter().zip(&calls.callees) {
        edges[shape as usize].extend(callees.iter().map(|&callee| shape_of[callee as usize]));
    }
    for targets in &mut edges {
        targets.sort_unstable();
        targets.dedup();
    }
    let mut components = components(shapes.len(), |shape| edges[shape].iter().copied());
    for component in &mut components {
        component.sort_unstable();
    }
    components
}

/// A kept function as a plan leaves it so far: its canonical body, rewritten. The result is not canonicalised a
/// second time: it is emitted in this form, and the checker proves the emitted form against its own canonical body.
fn current(
    plan: &Plan,
    bodies: &mut dyn Bodies,
    function: FunctionIndex,
    options: &Options<'_>,
) -> Function {
    let mut func = match plan.body_of(function) {
        Some(body_of) => canonicalized(bodies.body(body_of), options.canonicalize).into_owned(),
        None => plan.parameterised_body(function).expect("not emitted before").clone(),
    };
    func.name = UserFuncName::User(plan.entry(function).symbol().clone());
    plan.rewrite(function, &mut func, options);
    func
}

/// How many merges the limit leaves after identical merging.
fn merges_left(plan: &Plan, options: &Options<'_>) -> usize {
    let Some(limit) = options.merge_limit else {
        return usize::MAX;
    };
    let functions = plan.entries().take(plan.added());
    let functions = functions.filter(|(_, entry)| entry.disposition() != Disposition::Keep);
    let data = plan.data_entries().take(plan.numbering.data);
    let data = data.filter(|(_, entry)| entry.disposition() != Disposition::Keep);
    (limit as usize).saturating_sub(functions.count() + data.count())
}

/// Whether a function can observe its caller. Linear in its size.
pub(crate) fn observes_its_frame(func: &Function) -> bool {
    let mut insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
    insts.any(|inst| {
        let opcode = func.dfg.insts[inst].opcode();
        matches!(opcode, Opcode::GetReturnAddress | Opcode::GetFramePointer)
    })
}
