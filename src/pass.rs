//! The driver: a unit of functions goes in, a [`Plan`] comes out.
//!
//! [`Merger::add`] keeps a summary of each function; [`Merger::plan`] is the list of the phases.
//! Identical merging (bucket, refine, decide) comes first. Then functions that differ only in
//! constants and references share parameterised bodies, and so do functions that differ in few
//! instructions. At last the checker proves the plan. Applying it is left to the caller, function
//! by function ([`Plan::apply`]).
//!
//! It owns no IR, names no architecture, emits no code, and does not verify: functions must be
//! accepted by Cranelift's verifier. At best, others are not merged.

use crate::canon::Counts;
use crate::checker::Remember;
use crate::congruence::{Encodings, Summaries, Walk, bucket, refine};
use crate::content::address_contents;
use crate::decide::{Earlier, Input, decide};
use crate::incremental::{
    Increment, MergeCache, NewlyEliminated, Record, ReferredTo, UnitSymbols, add_eliminated,
};
use crate::options::{Options, Policy};
use crate::parameterise::{self, SearchInput, Sketches, Workbench, matched, summary};
use crate::plan::Plan;
use crate::prove::proved;
use crate::unit::{
    AddError, Attributes, Bodies, DataAttributes, DataIndex, DataObject, FunctionIndex, Item,
    Observed,
};
use alloc::string::String;
use core::fmt;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_entity::{EntitySet, PrimaryMap};
use cranelift_mergefunc_units::UnitSummary;

/// Collects the functions of a unit and plans the disposition of each.
///
/// See the [crate documentation](crate) for an example.
pub struct Merger<'a> {
    options: Options<'a>,
    /// The cache of earlier units, if functions are to be merged into them.
    cache: Option<&'a MergeCache>,
    /// The cache of earlier units, also if functions are not merged into it: the functions that
    /// they eliminated must be known.
    before: Option<&'a MergeCache>,
    referred_to: ReferredTo,
    summaries: Summaries,
}

impl<'a> Merger<'a> {
    /// An empty unit.
    pub fn new(options: Options<'a>) -> Self {
        let (referred_to, summaries) = Default::default();
        Merger { options, cache: None, before: None, referred_to, summaries }
    }

    /// An empty unit of an incremental run: functions that equal one that an earlier unit emitted
    /// are merged into that. Plan it with [`Merger::plan_increment`].
    ///
    /// Every function is walked, so that later units can find it. Symbols must mean the same in all
    /// units, and options must be the same, [`Options::merge_limit`] excepted. A function that
    /// emitted code refers to before it is defined needs [`Attributes::externally_called`], and
    /// [`Attributes::address_taken`] if the references are not only calls. An offset into a
    /// function that an earlier unit eliminated is an offset into the code that replaced it.
    pub fn after(cache: &'a MergeCache, options: Options<'a>) -> Self {
        Merger { cache: Some(cache), ..Merger::after_without_merging(cache, options) }
    }

    /// Like [`after`](Merger::after), for a unit that merges nothing into emitted code and that
    /// later units cannot find. It may still refer to functions that earlier units eliminated.
    pub fn after_without_merging(cache: &'a MergeCache, options: Options<'a>) -> Self {
        Merger { before: Some(cache), ..Merger::new(options) }
    }

    /// Makes room for this many more functions, so that tables need not grow while they are added.
    pub fn reserve(&mut self, functions: usize) {
        self.summaries.unit.reserve(functions);
        self.summaries.counts.reserve(functions);
    }

    /// The options of this run.
    pub fn options(&self) -> &Options<'a> {
        &self.options
    }

    /// Adds a function to the unit, under the symbol by which the others refer to it. The function
    /// itself is not kept.
    ///
    /// Constant time, and from the first local function with a significant address on a scan of
    /// opcodes; a walk of the function with
    /// [`Compare::every_function`](crate::Compare::every_function).
    ///
    /// # Errors
    ///
    /// See [`AddError`]. The unit is as it was before.
    pub fn add(
        &mut self,
        symbol: UserExternalName,
        func: &Function,
        attributes: Attributes,
    ) -> Result<FunctionIndex, AddError> {
        let function = self.summaries.add(symbol, func, attributes, &self.options)?;
        if let Some(before) = self.before {
            self.referred_to.add_function(&before.eliminated, func);
        }
        Ok(function)
    }

    /// Gives a function other attributes, if more is known of it than when it was added. Functions
    /// that differed in [`Attributes::key`] when they were added may not be found equal. Constant
    /// time.
    ///
    /// # Errors
    ///
    /// [`AddError::Alignment`]. The function is as it was before.
    ///
    /// # Panics
    ///
    /// If `function` was not added to this unit.
    pub fn set_attributes(
        &mut self,
        function: FunctionIndex,
        attributes: Attributes,
    ) -> Result<(), AddError> {
        self.summaries.set_attributes(function, attributes)
    }

    /// The attributes of a function, as they are so far.
    ///
    /// # Panics
    ///
    /// If `function` was not added to this unit.
    pub fn attributes(&self, function: FunctionIndex) -> &Attributes {
        &self.summaries.unit.functions[function].attributes
    }

    /// Adds a data object to the unit, under the symbol by which functions and other data objects
    /// refer to it. The contents are hashed and not kept.
    ///
    /// Objects that will not merge need only be added if they point to functions of the unit.
    /// Linear in the size of the object.
    ///
    /// # Errors
    ///
    /// See [`AddError`]. The unit is as it was before.
    pub fn add_data(
        &mut self,
        symbol: UserExternalName,
        data: &DataObject,
        attributes: DataAttributes,
    ) -> Result<DataIndex, AddError> {
        let index = self.summaries.add_data(symbol, data, attributes)?;
        for reloc in &data.relocations {
            self.add_address_use(&reloc.target);
        }
        Ok(index)
    }

    /// Records that something of this unit that is not given to the pass, such as code in bytes or
    /// a data object that is not added, refers to the address of `symbol`. To be called for
    /// functions and data objects of *earlier* units, which may have no code any more
    /// ([`Plan::late_thunks`]); for those of this unit, set [`Attributes::address_taken`]. Constant
    /// time.
    pub fn add_address_use(&mut self, symbol: &UserExternalName) {
        if let Some(before) = self.before {
            self.referred_to.add_address(&before.eliminated, symbol);
        }
    }

    /// The function of a symbol, if the unit has one.
    pub fn function(&self, symbol: &UserExternalName) -> Option<FunctionIndex> {
        match self.summaries.unit.item(symbol)? {
            Item::Function(function) => Some(function),
            Item::Data(_) => None,
        }
    }

    /// The number of functions added.
    pub fn len(&self) -> usize {
        self.summaries.unit.functions.len()
    }

    /// Whether no function was added.
    pub fn is_empty(&self) -> bool {
        self.summaries.unit.functions.is_empty()
    }

    /// Finds the classes of equal functions and decides the disposition of every function.
    ///
    /// Requests from `bodies` the functions that share a bucket with another one, and those that
    /// were added before the first local function with a significant address. Linear in their
    /// sizes, up to a logarithm. The result does not depend on the order of the functions.
    ///
    /// The cost of [`Options::prove`] is not included.
    ///
    /// # Panics
    ///
    /// In builds with debug assertions, and only with [`Prove::Debug`](crate::Prove::Debug), if the
    /// plan cannot be proved.
    pub fn plan(self, bodies: &mut dyn Bodies) -> Plan {
        self.plan_phases(bodies, false, &mut |_| {}).0
    }

    /// Plans the unit, and returns for [`MergeCache::extend`] the record that later units need, to
    /// be added once the unit is emitted. Also for the first unit, of a merger that is not
    /// [`after`](Merger::after) others: then later functions are not merged into its functions, but
    /// the cache knows which functions the unit eliminated.
    ///
    /// # Panics
    ///
    /// See [`Merger::plan`].
    pub fn plan_increment(self, bodies: &mut dyn Bodies) -> (Plan, Increment) {
        self.plan_phases(bodies, true, &mut |_| {})
    }

    /// The summary of the functions of this unit, by which other units share bodies with them: to
    /// be combined with the summaries of all units of the program. `unit` is the name of the unit,
    /// unique in the program. Merges identical functions first, and walks every function once more.
    /// None is needed of units that merge identical functions only.
    ///
    /// # Errors
    ///
    /// `None` without [`Options::content_addressing`].
    pub fn summarize(self, bodies: &mut dyn Bodies, unit: String) -> Option<UnitSummary> {
        let Merger { options, summaries, .. } = self;
        let content = options.content_addressing?;
        let (plan, known, _) = identical(summaries, None, bodies, &options, &mut |_| {});
        let Known { encodings, .. } = &known;
        let without_ir = encodings.without_ir();
        Some(summary(&plan, without_ir, bodies, &options, &content, unit))
    }

    /// Plans the unit; `later` units may follow. Calls `end` with the name of each phase when it
    /// ends.
    pub(crate) fn plan_phases(
        self,
        bodies: &mut dyn Bodies,
        later: bool,
        end: &mut dyn FnMut(&'static str),
    ) -> (Plan, Increment) {
        let Merger { options, cache, before, referred_to, summaries } = self;
        // Units share code of the first flush of a module only.
        let content_addressing = options.content_addressing.filter(|_| before.is_none());
        let options = Options { content_addressing, ..options };
        let (mut plan, known, mut record) = identical(summaries, cache, bodies, &options, end);
        if let Some(before) = before {
            add_eliminated(&mut plan, &before.eliminated, &referred_to);
        }
        let (mut plan, shared) = similar(plan, &known, before, bodies, &options, end);
        address_contents(&mut plan, &known.observed, shared.as_ref(), bodies, &options);
        plan.record_members();
        if let Some(record) = &mut record {
            record.retain_kept(&plan);
        }
        let remember = match (cache, before) {
            _ if !later => Remember::Nothing,
            (Some(_), _) => Remember::All,
            (None, _) => Remember::Eliminated,
        };
        let (mut plan, learned) = proved(plan, before, bodies, &options, remember);
        if let Some(before) = before.filter(|_| matches!(plan.proof(), Some(Err(_)))) {
            record = None;
            add_eliminated(&mut plan, &before.eliminated, &referred_to);
        }
        let eliminated = match later {
            true => NewlyEliminated::of(&plan, bodies),
            false => NewlyEliminated::default(),
        };
        (plan, Increment { eliminated, learned, record })
    }
}

/// The results of identical merging of a unit besides its plan.
struct Known {
    counts: PrimaryMap<FunctionIndex, Counts>,
    observed: Observed,
    encodings: Encodings,
}

/// Identical merging: the plan, what else is known then and, in an incremental run, what later
/// units may merge into.
fn identical(
    mut summaries: Summaries,
    cache: Option<&MergeCache>,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
    end: &mut dyn FnMut(&'static str),
) -> (Plan, Known, Option<Record>) {
    summaries.complete(bodies);
    let Summaries { mut unit, counts, observed, mut stats, .. } = summaries;
    let symbols = match cache {
        Some(cache) => UnitSymbols::after(&unit, cache, bodies),
        None => UnitSymbols::new(&unit),
    };
    let walk = if cache.is_some() { Walk::All } else { Walk::InBucket };
    let mut bucketed = bucket(&unit, &symbols, walk, options, bodies, &mut stats);
    let (external, beyond) = symbols.finish();
    // Memory, before the next phases take some.
    unit.drop_buckets();
    bucketed.partition.push_singletons(external.nodes.len());
    end("bucket");
    stats.refine_classes_before = bucketed.partition.len();
    refine(&mut bucketed.partition, &bucketed.nodes, &bucketed.references);
    stats.refine_classes_after = bucketed.partition.len();
    end("refine");
    let earlier = cache.map(|cache| Earlier { cache, external: &external });
    let input = Input { options, observed: &observed, bucketed: &bucketed, earlier };
    let (plan, record) = decide(input, unit, beyond, Some(bodies), stats);
    end("decide");
    (plan, Known { counts, observed, encodings: bucketed.into() }, record)
}

/// Merging with parameters after identical merging.
fn similar(
    mut plan: Plan,
    known: &Known,
    earlier: Option<&MergeCache>,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
    end: &mut dyn FnMut(&'static str),
) -> (Plan, Option<EntitySet<FunctionIndex>>) {
    let Known { counts, observed, encodings } = known;
    let map = options.content_addressing.and_then(|content| content.sharing_map);
    let shared = map.map(|map| matched(&plan, encodings, bodies, options, map));
    let has_map = shared.is_some();
    let shared = shared.unwrap_or_default();
    shared.count(plan.stats_mut());
    let given = SearchInput { observed, encodings, earlier, shared: &shared };
    if options.similar.policy != Policy::Off {
        let mut workbench = Workbench::new(&mut plan, given, bodies, options);
        parameterise::search(&mut workbench, given);
        end("search");
        // Later phases would change the bodies that units share.
        if !has_map {
            parameterise::align(&mut workbench, encodings, counts, Sketches::default());
        }
        end("align");
        plan.recompute_stats();
    }
    (plan, has_map.then_some(shared.equal))
}

impl fmt::Debug for Merger<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merger").field("options", &self.options).field("len", &self.len()).finish()
    }
}
