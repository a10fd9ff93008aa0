//! Similar functions: those that differ only in constants and references.
//!
//! After identical merging, [`search`] looks at the functions that a plan keeps. It reads as the
//! list of the phases:
//!
//! * group functions of one shape, by the shape stream of the one canonical walk;
//! * go through the shapes from callees to callers, so that callers of merged functions differ in a
//!   constant where they differed in a callee;
//! * write functions of one shape as a table of the places where they can differ (`table`,
//!   `value`), as the plan leaves their calls so far and, where callees went into different bodies,
//!   as they are written (`shape`, `as_written`);
//! * divide them into sets that pay (`split`);
//! * for each set, list the ways to pass the differences to one body (`argument_plan`), make that
//!   body (`body`, `dispatch`), predict its size, and accept it if it really pays (`cost`).
//!
//! Then `align` looks at what has no equal shape: functions that differ in
//! few instructions.
//!
//! Sources: Swift's LLVMMergeFunctions and LLVM's GlobalMergeFunctions, which merge by parameters,
//! too; Binaryen's MergeSimilarFunctions, which passes callees. These weigh numbers of
//! instructions, and drop a group that does not pay as a whole.
//!
//! It does *not* reorder code or merge functions with different control-flow graphs.

mod accept;
mod align;
mod argument_plan;
mod as_written;
mod body;
mod cost;
mod dispatch;
mod frequencies;
mod judge;
mod levels;
mod likeness;
mod loops;
mod probe;
mod shape;
mod shared;
mod split;
mod table;
mod uses;
mod value;
mod workbench;

pub(crate) use align::{Sketches, align};
pub(crate) use likeness::Likeness;
pub use shared::decide_sharing;
pub(crate) use shared::{Shared, matched, summary};
pub(crate) use workbench::Workbench;

use crate::apply::{Redirecting, not_redirected};
use crate::canon::{self, Context, Encoding, Scratch};
use crate::congruence::Encodings;
use crate::incremental::MergeCache;
use crate::lists::Lists;
use crate::options::{Options, Policy};
use crate::plan::{Disposition, Plan, Reason};
use crate::threads::{Pool, for_each};
use crate::unit::{Attributes, Bodies, FunctionIndex, NoUnit, Observed, ResolveSymbol};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cost::Share;
use cranelift_codegen::ir::Function;
use cranelift_entity::{EntityRef, SecondaryMap};
use judge::{Judge, Judged};
use levels::{Calls, Level, calls, cycles, levels};
use probe::{CALLEE, OwnSizes, Probed};
use value::Symbols;

/// The state of a unit before similar functions are merged.
#[derive(Clone, Copy)]
pub(crate) struct SearchInput<'a> {
    pub observed: &'a Observed,
    pub encodings: &'a Encodings,
    /// The cache of earlier units.
    pub earlier: Option<&'a MergeCache>,
    /// The sets that are shared with other units.
    pub shared: &'a Shared,
}

/// Merges functions that differ in constants and callees, and writes the result into the plan.
///
/// Sizes are predicted; where the target has no model, only what a sharing map says is merged.
/// Walks every kept function that may share its shape with another twice.
pub(crate) fn search(workbench: &mut Workbench<'_>, given: SearchInput<'_>) {
    let SearchInput { observed: _, encodings, earlier, shared } = given;
    let Workbench { plan, bodies, options, uses, .. } = &mut *workbench;
    let shapes = shapes(plan, encodings, *bodies, options);
    let calls = calls(uses, &shapes);
    let cycles = match options.similar.policy {
        Policy::Balanced => cycles(&calls),
        Policy::Off | Policy::Size => SecondaryMap::new(),
    };
    let (probed, pool) = Default::default();
    let mut search = Search { workbench, earlier, probed, pool, cycles };
    search.share(shared);
    search.levels(&shapes, &calls);
}

struct Search<'a, 'b> {
    workbench: &'a mut Workbench<'b>,
    /// The merge cache of earlier units.
    earlier: Option<&'a MergeCache>,
    probed: Probed,
    pool: Pool<Memory>,
    /// The cycle of the call graph that a function is in, by number, if calls within cycles are not
    /// to become indirect.
    cycles: SecondaryMap<FunctionIndex, Option<u32>>,
}

/// Memory of one thread.
pub(super) struct Memory {
    scratch: Scratch,
    encoding: Encoding,
    sizes: OwnSizes,
}

impl Default for Memory {
    fn default() -> Self {
        let (encoding, sizes) = Default::default();
        Memory { scratch: Scratch::recording(), encoding, sizes }
    }
}

/// The number of functions that are merged at the same time, up to the size of the last shape:
/// their tables and candidate bodies are in memory.
const FUNCTIONS_PER_BATCH: usize = 1 << 11;

impl Search<'_, '_> {
    fn is_kept(&self, function: FunctionIndex) -> bool {
        self.workbench.plan.entry(function).disposition() == Disposition::Keep
    }

    /// Merges functions of all shapes, from callees to callers.
    fn levels(&mut self, shapes: &[Vec<FunctionIndex>], calls: &Calls) {
        for Level { shapes: alone, cycles } in levels(shapes, calls) {
            let of = |numbers: &[u32]| -> Vec<&[FunctionIndex]> {
                numbers.iter().map(|&number| &*shapes[number as usize]).collect()
            };
            self.shapes(&of(&alone));
            // In a cycle of the call graph, merged callees may give more functions the same shape.
            for mut cycle in cycles {
                let mut steps = cycle.steps();
                while !steps.is_empty() {
                    for step in steps {
                        let kept = |search: &Search<'_, '_>, shape: u32| {
                            let functions = shapes[shape as usize].iter();
                            functions.filter(|&&function| search.is_kept(function)).count()
                        };
                        cycle.begin(&step);
                        let before: Vec<usize> =
                            step.iter().map(|&shape| kept(self, shape)).collect();
                        self.shapes(&of(&step));
                        for (&shape, before) in step.iter().zip(before) {
                            if kept(self, shape) < before {
                                cycle.changed(shape);
                            }
                        }
                    }
                    steps = cycle.steps();
                }
            }
        }
    }

    /// Merges functions of some shapes that do not refer to each other.
    fn shapes(&mut self, shapes: &[&[FunctionIndex]]) {
        let mut rest = shapes;
        while !rest.is_empty() {
            let mut functions = 0;
            let count = rest.iter().take_while(|shape| {
                let fits = functions < FUNCTIONS_PER_BATCH;
                functions += shape.len();
                fits
            });
            let (batch, others) = rest.split_at(count.count());
            rest = others;
            self.merge_shapes(batch);
        }
    }

    /// Judges all of these sets.
    fn judge(&mut self, judged: &mut [Judged<'_>]) {
        let Search { workbench, earlier: _, probed, pool, cycles } = self;
        let Workbench { plan, bodies, options, uses, .. } = &mut **workbench;
        let Some(model) = options.target.size_model else {
            return;
        };
        let judge = Judge {
            plan,
            uses,
            options,
            cycles,
            probed,
            model,
            share: Share::of(options.similar.policy),
        };
        for_each(*bodies, pool, judged, |bodies, memory, judged| {
            judge.judge(judged, bodies, memory);
        });
        for memory in self.pool.iter_mut() {
            self.probed.append(&mut memory.sizes.probed);
        }
    }
}

/// Walks a function as the plan leaves it so far, without a copy of it. Returns the function, with
/// its references as they were; `None` if it cannot be walked, or names what has no symbol yet.
fn walk_redirected<'b>(
    symbols: &Symbols<'b>,
    bodies: &'b mut dyn Bodies,
    function: FunctionIndex,
    scratch: &mut Scratch,
    encoding: &mut Encoding,
) -> Option<&'b Function> {
    let Symbols { plan, earlier: _, options, written } = symbols;
    let body = not_redirected(plan, bodies, function);
    if body.params.user_named_funcs().values().any(|name| *name == CALLEE) {
        return None;
    }
    let redirecting = Redirecting { plan, written, symbols: &NoUnit };
    let context = context(plan, function, &redirecting, options);
    canon::encode(body, &context, scratch, encoding).ok()?;
    Some(body)
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

/// Functions of equal shapes, up to collisions of hashes. Each group has two or more, in the order
/// of their symbols; groups are ordered by their first functions.
fn shapes(
    plan: &mut Plan,
    encodings: &Encodings,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
) -> Vec<Vec<FunctionIndex>> {
    let (mut scratch, mut encoding) = (Scratch::default(), Encoding::default());
    let mut shapes: BTreeMap<u32, Vec<FunctionIndex>> = BTreeMap::new();
    for index in 0..plan.added() {
        let function = FunctionIndex::new(index);
        if !is_candidate(plan, function, options) {
            continue;
        }
        let shape = match (encodings.shape(function), options.compare.every_function) {
            (Some(shape), _) => shape,
            // It has other counts than all other functions.
            (None, false) => continue,
            (None, true) => {
                plan.stats_mut().similar.walks += 1;
                let context = context(plan, function, &NoUnit, options);
                match canon::encode(bodies.body(function), &context, &mut scratch, &mut encoding) {
                    Ok(()) => canon::shape_hash(&encoding),
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

/// The input of the walk of a function of a plan.
fn context<'a>(
    plan: &Plan,
    function: FunctionIndex,
    symbols: &'a dyn ResolveSymbol,
    options: &Options<'_>,
) -> Context<'a> {
    let key = plan.entry(function).attributes().key;
    Context::of(options, key, symbols)
}

/// The functions that were merged into each function. Linear in the number of functions.
fn merged_into(plan: &Plan) -> Lists<u32> {
    Lists::of_pairs(plan.entries().len(), || {
        plan.entries().filter_map(|(function, entry)| {
            Some((entry.disposition().representative()?.index(), function.as_u32()))
        })
    })
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
