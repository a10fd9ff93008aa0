//! Similar functions: those that differ only in constants and references.
//!
//! After identical merging, [`search`] looks at the functions that a plan keeps. It reads as the list of the phases:
//!
//! * group functions of one shape, by the shape stream of the one canonical walk;
//! * go through the shapes from callees to callers, so that callers of merged functions differ in a constant where
//!   they differed in a callee;
//! * write functions of one shape as a table of the places where they can differ (`table`, `value`);
//! * divide them into sets that pay (`split`);
//! * for each set, list the ways to pass the differences to one body (`argument_plan`), make that body (`body`,
//!   `dispatch`), ask for its size, and accept it if it really pays (`cost`).
//!
//! Functions that are identical after that are merged by a second identical pass (`second_pass`), which the driver
//! makes; `attempts` says how often all of that is tried.
//!
//! Sources: Swift's LLVMMergeFunctions and LLVM's GlobalMergeFunctions, which merge by parameters, too; Binaryen's
//! MergeSimilarFunctions, which passes callees. These weigh numbers of instructions, and drop a group that does not
//! pay as a whole.
//!
//! What it does *not* do: it does not look for functions of different shapes, and does not reorder or align code.

mod argument_plan;
mod attempts;
mod body;
mod candidates;
mod cost;
mod dispatch;
mod fold;
mod loops;
mod probe;
mod second_pass;
mod set;
mod signatures;
mod smaller;
mod split;
mod table;
mod uses;
mod value;

pub(crate) use attempts::{Attempts, Demand};
pub(crate) use second_pass::SecondPass;

use crate::apply::{Redirecting, compared, not_redirected};
use crate::canon::{self, Context, Encoding, Scratch};
use crate::canonicalize::canonicalized;
use crate::congruence::{Encodings, components};
use crate::incremental::MergeCache;
use crate::lists::Lists;
use crate::options::{Options, Policy, Prebucket};
use crate::plan::{Disposition, Entry, Plan, Reason};
use crate::unit::{Attributes, Bodies, FunctionIndex, NoUnit, Observed, ResolveSymbol};
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use candidates::{Content, Contents};
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};
use hashbrown::HashMap;
use probe::Costs;
use rustc_hash::FxBuildHasher;
use set::Candidate;
use table::{Set, Table};
use uses::Uses;
use value::Symbols;

/// What a search leaves besides the plan.
pub(crate) struct Found {
    uses: Uses,
    /// The functions that were walked.
    contents: Contents,
    /// How many more functions may be merged.
    limit: usize,
    /// Whether the result is smaller, even if all calls take more bytes than is assumed.
    surely_smaller: bool,
}

/// Merges functions that differ in constants and callees, as `options` and `demand` say, and writes the result into
/// `plan`.
///
/// The sizes of candidate code are requested from `bodies`: of one function of each set and of each body that is tried;
/// with [`Policy::Size`], where it is in doubt whether the result makes the unit smaller, of all functions of a set. They
/// are predicted or compiled. Walks every kept function that may share its shape with another twice.
pub(crate) fn search(
    plan: &mut Plan,
    observed: &Observed,
    encodings: &Encodings,
    earlier: Option<&MergeCache>,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
    demand: Demand,
) -> Found {
    let Demand { share, unused } = demand;
    let shapes = shapes(plan, observed, encodings, bodies, options);
    let of_shapes = shapes.iter().flatten().copied();
    // The second identical pass may merge these.
    let equal = plan.entries().take(plan.added()).map(|(function, _)| function);
    let equal = equal.filter(|&function| encodings.has_equal(function));
    let mut known: EntitySet<FunctionIndex> = EntitySet::new();
    let compiled = encodings.compiled();
    for function in of_shapes.chain(equal) {
        // Calls of compiled code go to the symbol, as do those of which nothing is known.
        if !compiled.functions.contains(function) && !compiled.callees.contains(function) {
            known.insert(function);
        }
    }
    let uses = Uses::of(known, plan, observed, compiled, bodies, options.similar.keep_symbols);
    let merged_into = Lists::of_pairs(plan.entries().len(), || {
        let merged = |(function, entry): (FunctionIndex, Entry<'_>)| {
            Some((entry.disposition().representative()?.index(), function.as_u32()))
        };
        plan.entries().filter_map(merged)
    });
    let keeps_candidates = bodies.code_sizes().is_some_and(|sizes| sizes.keeps_candidates());
    let mut search = Search {
        uses,
        contents: Contents::default(),
        merged_into,
        earlier,
        next_class: plan.classes(),
        limit: merges_left(plan, options),
        costs: Costs::new(options, bodies),
        plan,
        bodies,
        options,
        scratch: Scratch::recording(),
        encoding: Encoding::default(),
        sizes: HashMap::default(),
        compiled: cost::FIRST_SIZES,
        unused,
        share,
        keeps_candidates,
        saved: 0,
        rewritten_calls: 0,
        cycles: SecondaryMap::new(),
    };
    let calls = calls(&search.uses, &shapes);
    if options.similar.policy == Policy::Balanced {
        search.find_call_graph_cycles(&calls);
    }
    for component in bottom_up(&shapes, &calls).iter() {
        loop {
            let before = search.plan.new_bodies().len();
            for &shape in component {
                search.shape(&shapes[shape as usize]);
            }
            // In a cycle of the call graph, merged callees may give more functions the same shape.
            if component.len() == 1 || search.plan.new_bodies().len() == before {
                break;
            }
        }
    }
    let Search { plan, costs, saved, rewritten_calls, uses, contents, limit, .. } = search;
    plan.stats_mut().similar_probes = costs.probes;
    let surely_smaller = saved >= cost::CALL_ERROR * rewritten_calls;
    Found { uses, contents, limit, surely_smaller }
}

struct Search<'a> {
    plan: &'a mut Plan,
    uses: Uses,
    /// The functions that were walked to find their shapes.
    contents: Contents,
    bodies: &'a mut dyn Bodies,
    options: &'a Options<'a>,
    costs: Costs<'a>,
    scratch: Scratch,
    encoding: Encoding,
    /// What identical merging merged into each function.
    merged_into: Lists<u32>,
    /// The merge cache of earlier units.
    earlier: Option<&'a MergeCache>,
    /// The number of the next class.
    next_class: u32,
    /// How many more functions may be merged.
    limit: usize,
    /// Sizes in bytes of functions, as the plan leaves them so far.
    sizes: HashMap<FunctionIndex, i64, FxBuildHasher>,
    /// Bytes and instructions of what was compiled so far, with a small initial value.
    compiled: [i64; 2],
    /// Symbols that were requested and are not used yet.
    unused: Vec<UserExternalName>,
    share: attempts::Share,
    /// See [`CodeSizes::keeps_candidates`](crate::CodeSizes::keeps_candidates).
    keeps_candidates: bool,
    /// Bytes that the accepted bodies save, as far as they were compiled.
    saved: i64,
    /// The calls that pass extra arguments, counted once for each argument.
    rewritten_calls: i64,
    /// The cycle of the call graph that a function is in, by number, if calls within cycles are not to become
    /// indirect.
    cycles: SecondaryMap<FunctionIndex, Option<u32>>,
}

impl Search<'_> {
    /// Finds the cycles of the call graph: a cycle counts as a loop.
    fn find_call_graph_cycles(&mut self, calls: &Calls) {
        let Calls { functions, callees } = calls;
        let components = components(functions.len(), |at| callees.of(at).iter().copied());
        for (cycle, component) in (0..).zip(components.iter()) {
            if component.len() > 1 {
                for &at in component {
                    self.cycles[functions[at as usize]] = Some(cycle);
                }
            }
        }
    }

    /// A function as the plan leaves it so far.
    fn current(&mut self, function: FunctionIndex) -> Function {
        compared(self.plan, self.bodies, function, self.options)
    }

    /// Walks `body`, a function as the plan leaves it so far, and returns whether that succeeded.
    fn walk(&mut self, function: FunctionIndex, body: &Function) -> bool {
        self.plan.stats_mut().similar_walks += 1;
        // By name: see `Table`.
        let symbols = &NoUnit;
        let context = context(self.plan, function, symbols, self.options);
        canon::encode(body, &context, &mut self.scratch, &mut self.encoding).is_ok()
    }

    /// Walks a function as the plan leaves it so far, without a copy of it. Returns the function, with its references
    /// as they were; `None` if it cannot be walked.
    fn walk_redirected(&mut self, function: FunctionIndex) -> Option<Walked<'_>> {
        self.plan.stats_mut().similar_walks += 1;
        let Search { plan, bodies, options, scratch, encoding, earlier, .. } = self;
        let (plan, earlier) = (&**plan, *earlier);
        let body = not_redirected(plan, *bodies, function, options);
        let symbols = Redirecting { plan, symbols: &NoUnit };
        let context = context(plan, function, &symbols, options);
        canon::encode(&body, &context, scratch, encoding).ok()?;
        let symbols = Symbols { plan, earlier, options };
        Some(Walked { body, scratch, encoding, symbols })
    }

    /// Merges functions that had one shape before their callees were merged.
    fn shape(&mut self, functions: &[FunctionIndex]) {
        let mut tables: Vec<Table> = Vec::new();
        let mut number: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for &function in functions {
            if self.plan.entry(function).disposition() != Disposition::Keep {
                continue;
            }
            let Some(Walked { body, scratch, encoding, symbols }) = self.walk_redirected(function)
            else {
                continue;
            };
            let table = match number.get(&encoding.shape) {
                Some(&table) => &mut tables[table],
                None => {
                    number.insert(encoding.shape.clone(), tables.len());
                    tables.push(Table::new());
                    tables.last_mut().expect("just pushed")
                }
            };
            table.push(function, &body, scratch, encoding, &symbols);
            let content = Content::of(scratch, encoding);
            self.contents.insert(function, content, self.plan);
        }
        let sets: Vec<Set<'_>> = tables.iter().flat_map(Set::of).collect();
        // Arguments may name functions of this shape whose disposition is still open, so mark their addresses
        // taken.
        for symbol in sets.iter().flat_map(Set::symbols) {
            let key = (symbol.namespace, symbol.index);
            if functions.binary_search_by_key(&key, |&function| order(self.plan, function)).is_ok()
            {
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

/// Whether a function of these attributes could share a parameterised body with another one.
pub(crate) fn may_share_body(attributes: &Attributes, options: &Options<'_>) -> bool {
    let Attributes { pinned, no_merge, hot, identical_only, .. } = *attributes;
    let hot = hot && options.similar.policy == Policy::Balanced;
    !(pinned || no_merge || hot || identical_only)
}

/// Whether a function could share a parameterised body with another one.
fn is_candidate(plan: &Plan, function: FunctionIndex, options: &Options<'_>) -> bool {
    let entry = plan.entry(function);
    entry.disposition() == Disposition::Keep
        && entry.reason() != Reason::Malformed
        && may_share_body(entry.attributes(), options)
}

fn order(plan: &Plan, function: FunctionIndex) -> (u32, u32) {
    let symbol = plan.entry(function).symbol();
    (symbol.namespace, symbol.index)
}

/// Functions of equal shapes, up to collisions of hashes. Each group has two or more, in the order of their
/// symbols; groups are ordered by their first functions.
fn shapes(
    plan: &mut Plan,
    observed: &Observed,
    encodings: &Encodings,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
) -> Vec<Vec<FunctionIndex>> {
    let (mut scratch, mut encoding) = (Scratch::default(), Encoding::default());
    let mut shapes: BTreeMap<u32, Vec<FunctionIndex>> = BTreeMap::new();
    for index in 0..plan.added() {
        let function = FunctionIndex::new(index);
        let points_inside = observed.points_inside(plan.entry(function).symbol());
        if !is_candidate(plan, function, options) || points_inside {
            continue;
        }
        let shape = match (encodings.hashes(function), options.walks()) {
            (Some(hashes), _) => hashes.shape,
            // It has other counts than all other functions.
            (None, Prebucket::Counts) => continue,
            (None, Prebucket::WalkAll) => {
                plan.stats_mut().similar_walks += 1;
                let body = canonicalized(bodies.body(function), options.canonicalize);
                let context = context(plan, function, &NoUnit, options);
                match canon::encode(&body, &context, &mut scratch, &mut encoding) {
                    Ok(()) => canon::hashes(&encoding).0.shape,
                    Err(canon::Malformed) => continue,
                }
            }
        };
        shapes.entry(shape).or_default().push(function);
    }
    let mut shapes: Vec<_> = shapes.into_values().filter(|shape| shape.len() > 1).collect();
    for shape in &mut shapes {
        shape.sort_unstable_by_key(|&function| order(plan, function));
    }
    shapes.sort_unstable_by_key(|shape| order(plan, shape[0]));
    shapes
}

/// A function that was just walked.
struct Walked<'a> {
    /// With its references as they were before the plan.
    body: Cow<'a, Function>,
    scratch: &'a Scratch,
    encoding: &'a Encoding,
    symbols: Symbols<'a>,
}

/// The input of the walk of a function of a plan.
fn context<'a>(
    plan: &Plan,
    function: FunctionIndex,
    symbols: &'a dyn ResolveSymbol,
    options: &Options<'_>,
) -> Context<'a> {
    let key = plan.entry(function).attributes().key;
    Context { policy: options.compare, target: options.target, key, symbols }
}

/// Direct calls among functions.
struct Calls {
    functions: Vec<FunctionIndex>,
    /// The callees of each function, by number.
    callees: Lists<u32>,
}

/// The direct calls among the functions of all shapes, by numbers of functions in the order of the shapes.
fn calls(uses: &Uses, shapes: &[Vec<FunctionIndex>]) -> Calls {
    let functions: Vec<FunctionIndex> = shapes.iter().flatten().copied().collect();
    let mut number: SecondaryMap<FunctionIndex, Option<u32>> = SecondaryMap::new();
    for (at, &function) in (0..).zip(&functions) {
        number[function] = Some(at);
    }
    let callees = Lists::of_pairs(functions.len(), || {
        let among = |&(caller, callee): &(FunctionIndex, FunctionIndex)| {
            Some((number[caller]? as usize, number[callee]?))
        };
        uses.references().iter().filter_map(among)
    });
    let callees = distinct(&callees, |callee| functions[callee as usize].as_u32());
    Calls { functions, callees }
}

/// The same lists, each in the order of the keys, which does not depend on the tables of functions, and without what
/// comes twice.
fn distinct(lists: &Lists<u32>, key: impl Fn(u32) -> u32) -> Lists<u32> {
    let mut result = Lists::new();
    let mut list: Vec<u32> = Vec::new();
    for own in lists.iter() {
        list.clear();
        list.extend_from_slice(own);
        list.sort_unstable_by_key(|&item| key(item));
        list.dedup();
        result.push(list.iter().copied());
    }
    result
}

/// The shapes by the strongly connected components of the call graph, callees first.
fn bottom_up(shapes: &[Vec<FunctionIndex>], calls: &Calls) -> Lists<u32> {
    let numbers = (0..).zip(shapes);
    let shape_of: Vec<u32> =
        numbers.flat_map(|(number, shape)| core::iter::repeat_n(number, shape.len())).collect();
    let edges = Lists::of_pairs(shapes.len(), || {
        let callers = shape_of.iter().zip(calls.callees.iter());
        callers.flat_map(|(&shape, callees)| {
            let shape_of = &shape_of;
            callees.iter().map(move |&callee| (shape as usize, shape_of[callee as usize]))
        })
    });
    let edges = distinct(&edges, |shape| shape);
    let mut components = components(shapes.len(), |shape| edges.of(shape).iter().copied());
    for component in 0..components.len() {
        components.of_mut(component).sort_unstable();
    }
    components
}

/// How many merges the limit leaves after identical merging.
fn merges_left(plan: &Plan, options: &Options<'_>) -> usize {
    let Some(limit) = options.merge_limit else {
        return usize::MAX;
    };
    let functions = plan.entries().take(plan.added());
    let functions = functions.filter(|(_, entry)| entry.disposition() != Disposition::Keep);
    let data = plan.data_entries().take(plan.added_data());
    let data = data.filter(|(_, entry)| entry.disposition() != Disposition::Keep);
    (limit as usize).saturating_sub(functions.count() + data.count())
}
