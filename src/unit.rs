//! The driver: a unit of functions goes in, a [`Plan`] comes out.
//!
//! [`Merger::add`] takes the functions one after the other and keeps a summary of each (64 bytes, and its symbol in
//! a map); [`Merger::plan`] requests the bodies of those functions once more that may have an equal. It reads as
//! the list of the phases: summarise, bucket and compare (`bucket`), refine (`classes`), decide (`plan`). Applying
//! is left to the caller, function by function ([`Plan::apply`]).
//!
//! It owns no IR, names no architecture, emits no code, and does not verify: functions must be accepted by
//! Cranelift's verifier. At best, others are not merged.

use crate::bucket::{Bucketed, bucket};
use crate::canon::{ResolveSymbol, Resolved};
use crate::canonicalize::canonicalized;
use crate::checker::{Memory, Remember, prove_and_learn};
use crate::classes::{Node, refine};
use crate::data::{self, DataAttributes, DataIndex, DataObject};
use crate::decide::decide;
use crate::incremental::eliminated::{NewlyEliminated, ReferredTo};
use crate::incremental::{ExternalNode, MergeCache};
use crate::options::{Addresses, Attributes, Canonicalize, Linkage, Options, Prebucket, Prove};
use crate::plan::Plan;
use crate::similar::merge_similar;
use crate::stats::Stats;
use crate::summary::{self, Observed};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_entity::{EntityRef, PrimaryMap, entity_impl};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// A function of the unit, in the order in which functions were added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionIndex(u32);
entity_impl!(FunctionIndex, "function");

/// Hands out the bodies of a unit's functions.
///
/// The caller owns the functions; the pass requests those it needs, in an order of its own, some
/// of them twice.
///
/// An implementor must ensure that
/// * a body is the same whenever it is requested, and the one given to [`Merger::add`];
/// * it passes Cranelift's verifier.
///
/// Failure to uphold these may result in functions that are not merged, in panics, or, if bodies
/// change in between, in wrong merges.
pub trait Bodies {
    /// The body of `function`.
    fn body(&mut self, function: FunctionIndex) -> &Function;

    /// The contents of `data`. Requested only if data objects were added. Default: panics.
    fn data(&mut self, data: DataIndex) -> &DataObject {
        panic!("{data} was added, but these bodies have no data objects");
    }

    /// The size of the native code of `function` in bytes, if it is known or can be determined. Requested only
    /// where a decision depends on it. Default: not known, and then a merge that pays only if a body is large
    /// enough is not made.
    fn code_size(&mut self, function: FunctionIndex) -> Option<u32> {
        let _ = function;
        None
    }

    /// The size in bytes of the native code of `thunk`, a function that only calls another one
    /// ([`call_thunk`](crate::call_thunk)) and could replace `function`. Requested only with
    /// [`Options::call_thunks`]. Default: not known, and then there are no such thunks.
    fn thunk_size(&mut self, function: FunctionIndex, thunk: &Function) -> Option<u32> {
        let _ = (function, thunk);
        None
    }

    /// The size in bytes of the native code of `candidate`, which may be emitted as it is if `keep` is set: then
    /// under its name and with the unit's plan applied to it, which changes nothing. An implementor that keeps the
    /// compiled code with the function need not compile it a second time. Requested only with [`Options::similar`].
    /// Default: not known, and then similar functions are not merged. With [`Policy::Size`](crate::Policy::Size)
    /// the sum over the unit never grows, as long as all sizes are known and those of the code that is emitted.
    fn candidate_size(&mut self, candidate: &Function, keep: bool) -> Option<u32> {
        let _ = (candidate, keep);
        None
    }

    /// Whether the code of candidates that may be emitted is kept, so that they need not be compiled a second time.
    /// Then all bodies that similar functions could share are compiled in order to decide; otherwise only the
    /// bodies for which it is in doubt whether they save bytes, and less is known of the others
    /// ([`SimilarSet::saved`](crate::SimilarSet::saved)). Default: no.
    fn keeps_candidates(&self) -> bool {
        false
    }

    /// A symbol that nothing uses yet, for a private copy or a parameterised body; a different one at each call.
    /// Default: there are none, and functions that would need one are not merged.
    fn fresh_symbol(&mut self) -> Option<UserExternalName> {
        None
    }
}

/// Functions in the order in which they were added.
impl Bodies for [Function] {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self[function.index()]
    }
}

/// Functions in the order in which they were added.
impl Bodies for Vec<Function> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self[function.index()]
    }
}

/// Functions in the order in which they were added.
impl Bodies for &[Function] {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self[function.index()]
    }
}

/// Why a function was not taken into the unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddError {
    /// The unit has a function or a data object of this symbol.
    DuplicateSymbol(UserExternalName),
    /// The function has no blocks: it is a declaration. Declarations are not part of a unit.
    NoBody(UserExternalName),
    /// An alignment that is no power of two.
    Alignment(u64),
    /// The unit has 2^32 - 2 functions and data objects.
    TooManyFunctions,
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddError::DuplicateSymbol(symbol) => write!(f, "{symbol} is defined twice"),
            AddError::NoBody(symbol) => write!(f, "function {symbol} has no body"),
            AddError::Alignment(bytes) => write!(f, "alignment {bytes} is no power of two"),
            AddError::TooManyFunctions => write!(f, "too many functions and data objects"),
        }
    }
}

impl core::error::Error for AddError {}

/// The summary of a function, kept between [`Merger::add`] and [`Merger::plan`].
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub symbol: UserExternalName,
    pub attributes: Attributes,
    /// Functions with different buckets are not compared.
    pub bucket: u128,
    /// Instructions in the function's table, used or not.
    pub instructions: u32,
}

/// The summary of a data object.
#[derive(Clone, Debug)]
pub(crate) struct DataSummary {
    pub symbol: UserExternalName,
    pub attributes: DataAttributes,
    pub bucket: u128,
    /// In bytes.
    pub size: u64,
}

/// A function or data object of the unit, which has a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Function(FunctionIndex),
    Data(DataIndex),
}

pub(crate) type Symbols = HashMap<UserExternalName, Item, FxBuildHasher>;

/// The items of the nodes of the partition: functions come first, then data objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbering {
    pub functions: usize,
    pub data: usize,
}

impl Numbering {
    pub fn node(&self, item: Item) -> Node {
        match item {
            Item::Function(function) => Node::new(function.index()),
            Item::Data(data) => Node::new(self.functions + data.index()),
        }
    }

    pub fn item(&self, node: Node) -> Item {
        match node.index().checked_sub(self.functions) {
            None => Item::Function(FunctionIndex::new(node.index())),
            Some(index) => Item::Data(DataIndex::new(index)),
        }
    }

    pub fn nodes(&self) -> impl Iterator<Item = Node> + use<> {
        (0..self.functions + self.data).map(Node::new)
    }
}

/// The functions and data objects that were added.
#[derive(Default)]
pub(crate) struct Unit {
    pub functions: PrimaryMap<FunctionIndex, Summary>,
    pub data: PrimaryMap<DataIndex, DataSummary>,
    pub by_symbol: Symbols,
}

impl Unit {
    pub fn numbering(&self) -> Numbering {
        Numbering { functions: self.functions.len(), data: self.data.len() }
    }

    pub fn symbol(&self, item: Item) -> &UserExternalName {
        match item {
            Item::Function(function) => &self.functions[function].symbol,
            Item::Data(data) => &self.data[data].symbol,
        }
    }

    pub fn bucket(&self, item: Item) -> u128 {
        match item {
            Item::Function(function) => self.functions[function].bucket,
            Item::Data(data) => self.data[data].bucket,
        }
    }

    fn check(&self, symbol: &UserExternalName, alignment: u64) -> Result<(), AddError> {
        if self.by_symbol.contains_key(symbol) {
            return Err(AddError::DuplicateSymbol(symbol.clone()));
        }
        if !alignment.is_power_of_two() {
            return Err(AddError::Alignment(alignment));
        }
        if self.by_symbol.len() >= u32::MAX as usize - 1 {
            return Err(AddError::TooManyFunctions);
        }
        Ok(())
    }
}

/// Collects the functions of a unit and plans the disposition of each.
///
/// See the [crate documentation](crate) for an example.
pub struct Merger<'a> {
    options: Options<'a>,
    /// What earlier units emitted, if functions are to be merged into it.
    cache: Option<&'a MergeCache>,
    /// The same cache, also if functions are not merged into it: what earlier units eliminated must be known.
    before: Option<&'a MergeCache>,
    referred_to: ReferredTo,
    unit: Unit,
    observed: Observed,
    /// Whether there is a local function with a significant address. What must be kept of all other functions does
    /// not depend on uses of their addresses.
    addresses_matter: bool,
    /// Functions that were added before the first such function.
    unscanned: Vec<FunctionIndex>,
    bucketer: crate::bucket::Bucketer,
    stats: Stats,
}

impl<'a> Merger<'a> {
    /// An empty unit.
    pub fn new(options: Options<'a>) -> Self {
        Merger {
            options,
            cache: None,
            before: None,
            referred_to: ReferredTo::default(),
            unit: Unit::default(),
            observed: Observed::default(),
            addresses_matter: false,
            unscanned: Vec::new(),
            bucketer: Default::default(),
            stats: Stats::default(),
        }
    }

    /// An empty unit of an incremental run: functions that equal one that an earlier unit emitted are merged into
    /// that. When the unit was emitted, call [`MergeCache::extend`] with its plan.
    ///
    /// Every function is walked, so that later units can find it. Symbols must mean the same in all units, and
    /// options must be the same, [`Options::merge_limit`] excepted. A function that emitted code refers to before
    /// it is defined needs [`Attributes::externally_called`], and [`Attributes::address_taken`] if the references
    /// are not only calls. An offset into a function that an earlier unit eliminated is an offset into the code
    /// that replaced it.
    pub fn after(cache: &'a MergeCache, options: Options<'a>) -> Self {
        Merger { cache: Some(cache), ..Merger::after_without_merging(cache, options) }
    }

    /// The same for a unit of which nothing is merged into emitted code, and that later units cannot find: it may
    /// still refer to functions that earlier units eliminated.
    pub(crate) fn after_without_merging(cache: &'a MergeCache, options: Options<'a>) -> Self {
        Merger { before: Some(cache), ..Merger::new(options) }
    }

    /// The options of this run.
    pub fn options(&self) -> &Options<'a> {
        &self.options
    }

    /// Adds a function to the unit, under the symbol by which the others refer to it. The function itself is not
    /// kept.
    ///
    /// Constant time with [`Prebucket::Counts`], and from the first local function with a significant address on, a
    /// scan of opcodes; a walk of the function with [`Prebucket::WalkAll`]; with
    /// [`Canonicalize::Optimize`](crate::Canonicalize::Optimize), a walk of a copy that is optimised a few times.
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
        self.unit.check(&symbol, u64::from(attributes.alignment))?;
        if func.layout.entry_block().is_none() {
            return Err(AddError::NoBody(symbol));
        }
        self.observed.add_tables(func);
        if let Some(before) = self.before {
            self.referred_to.add_function(&before.eliminated, func);
        }
        self.addresses_matter |=
            attributes.linkage == Linkage::Local && attributes.addresses == Addresses::Significant;
        let scanned = self.addresses_matter;
        if scanned {
            self.observed.add_address_uses(func);
        }
        let body = canonicalized(func, self.options.canonicalize);
        let bucket = match self.options.walks() {
            Prebucket::Counts => u128::from(summary::counts(&body, attributes.key)),
            Prebucket::WalkAll => {
                self.stats.walk_add_functions += 1;
                self.bucketer.hash_alone(&body, attributes.key, &self.options)
            }
        };
        self.stats.add_functions += 1;
        let instructions = u32::try_from(body.dfg.num_insts()).unwrap_or(u32::MAX);
        let summary = Summary { symbol: symbol.clone(), attributes, bucket, instructions };
        let index = self.unit.functions.push(summary);
        if !scanned {
            self.unscanned.push(index);
        }
        self.unit.by_symbol.insert(symbol, Item::Function(index));
        Ok(index)
    }

    /// Adds a data object to the unit, under the symbol by which functions and other data objects refer to it. The
    /// contents are hashed and not kept.
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
        self.unit.check(&symbol, attributes.alignment)?;
        for reloc in &data.relocations {
            self.observed.add_address(&reloc.target, reloc.addend);
            self.add_address_use(&reloc.target);
        }
        self.stats.add_data_objects += 1;
        let bucket = data::bucket(data, attributes.key);
        let size = data.contents.size();
        let summary = DataSummary { symbol: symbol.clone(), attributes, bucket, size };
        let index = self.unit.data.push(summary);
        self.unit.by_symbol.insert(symbol, Item::Data(index));
        Ok(index)
    }

    /// Records that something of this unit that is not given to the pass, such as code in bytes or a data object
    /// that is not added, refers to the address of `symbol`. To be called for functions and data objects of
    /// *earlier* units, which may have no code any more ([`Plan::late_thunks`]); for those of this unit, set
    /// [`Attributes::address_taken`]. Constant time.
    pub fn add_address_use(&mut self, symbol: &UserExternalName) {
        if let Some(before) = self.before {
            self.referred_to.add_address(&before.eliminated, symbol);
        }
    }

    /// The function of a symbol, if the unit has one.
    pub fn function(&self, symbol: &UserExternalName) -> Option<FunctionIndex> {
        match self.unit.by_symbol.get(symbol)? {
            Item::Function(function) => Some(*function),
            Item::Data(_) => None,
        }
    }

    /// The number of functions added.
    pub fn len(&self) -> usize {
        self.unit.functions.len()
    }

    /// Whether no function was added.
    pub fn is_empty(&self) -> bool {
        self.unit.functions.is_empty()
    }

    /// Finds the classes of equal functions and decides the disposition of every function.
    ///
    /// Requests from `bodies` the functions that share a bucket with another one, and those that were added before
    /// the first local function with a significant address. Linear in their sizes, up to a logarithm. The result
    /// does not depend on the order of the functions.
    ///
    /// The cost of [`Options::prove`] is not included.
    ///
    /// # Panics
    ///
    /// In builds with debug assertions, and only with [`Prove::Debug`], if the plan cannot be proved.
    pub fn plan(mut self, bodies: &mut dyn Bodies) -> Plan {
        self.observe(bodies);
        let mut bucketed = self.bucket(bodies);
        self.stats.refine_classes_before = bucketed.partition.len();
        refine(&mut bucketed.partition, &bucketed.nodes, &bucketed.references);
        self.stats.refine_classes_after = bucketed.partition.len();
        let Merger { options, cache, before, referred_to, unit, observed, stats, .. } = self;
        let eliminated = before.map(|before| &before.eliminated);
        let mut plan = decide(&options, unit, &observed, bucketed, cache, bodies, stats);
        if let Some(eliminated) = eliminated {
            plan.add_eliminated(eliminated, &referred_to);
        }
        merge_similar(&mut plan, &observed, before, bodies, &options);
        plan.add_late_thunks();
        let remember = match (cache, eliminated) {
            (Some(_), _) => Remember::All,
            (None, Some(_)) => Remember::Eliminated,
            (None, None) => Remember::Nothing,
        };
        let mut plan = proved(plan, before, bodies, &options, remember);
        if let Some(eliminated) = eliminated {
            if matches!(plan.proof, Some(Err(_))) {
                plan.add_eliminated(eliminated, &referred_to);
            }
            plan.newly_eliminated = Some(NewlyEliminated::of(&plan, bodies));
        }
        plan
    }

    /// Scans the functions whose address uses were not scanned when they were added.
    fn observe(&mut self, bodies: &mut dyn Bodies) {
        if self.addresses_matter {
            for function in core::mem::take(&mut self.unscanned) {
                self.observed.add_address_uses(bodies.body(function));
            }
        }
    }

    fn bucket(&mut self, bodies: &mut dyn Bodies) -> Bucketed {
        if let Canonicalize::Optimize(_) = self.options.canonicalize {
            // A function that keeps its own code does not get the body that is compared: it equals only itself.
            for summary in self.unit.functions.values_mut() {
                let Summary { symbol, attributes, .. } = summary;
                attributes.no_merge |= attributes.pinned || self.observed.points_inside(symbol);
            }
        }
        let symbols = UnitSymbols::new(&self.unit, self.cache);
        bucket(symbols, &self.options, &mut self.bucketer, bodies, &mut self.stats)
    }
}

/// The plan, if the checker can prove it.
fn proved(
    mut plan: Plan,
    before: Option<&MergeCache>,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
    remember: Remember,
) -> Plan {
    match options.prove {
        Prove::Never => return plan,
        Prove::Debug if !cfg!(debug_assertions) => return plan,
        Prove::Debug | Prove::Always => {}
    }
    let nothing = Memory::default();
    let memory = before.map_or(&nothing, |before| &before.memory);
    match prove_and_learn(memory, &plan, bodies, options, remember) {
        Err(refutation) if options.prove == Prove::Debug => panic!("{refutation}"),
        Err(refutation) => plan.without_merges(refutation),
        Ok((proof, learned)) => {
            plan.proof = Some(Ok(proof));
            plan.learned = learned;
            plan
        }
    }
}

impl fmt::Debug for Merger<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merger").field("options", &self.options).field("len", &self.len()).finish()
    }
}

/// The symbols of a unit, and its external nodes.
pub(crate) struct UnitSymbols<'a> {
    pub unit: &'a Unit,
    pub cache: Option<&'a MergeCache>,
    external_nodes: RefCell<ExternalNodes>,
}

/// Numbers the external nodes by which references out of the unit are compared, in the order of first use.
#[derive(Default)]
struct ExternalNodes {
    number: HashMap<ExternalNode, u32, FxBuildHasher>,
    external_nodes: Vec<ExternalNode>,
    resolved: Beyond,
}

/// How references to symbols are compared, in an incremental run.
pub(crate) type Beyond = HashMap<UserExternalName, Resolved, FxBuildHasher>;

impl<'a> UnitSymbols<'a> {
    fn new(unit: &'a Unit, cache: Option<&'a MergeCache>) -> Self {
        UnitSymbols { unit, cache, external_nodes: RefCell::default() }
    }

    fn external_node(&self, external_node: ExternalNode) -> Node {
        let mut external_nodes = self.external_nodes.borrow_mut();
        let ExternalNodes { number, external_nodes, resolved: _ } = &mut *external_nodes;
        let index = *number.entry(external_node.clone()).or_insert_with(|| {
            external_nodes.push(external_node);
            external_nodes.len() as u32 - 1
        });
        let Numbering { functions, data } = self.unit.numbering();
        Node::new(functions + data + index as usize)
    }

    /// The external nodes, in the order of their numbers, which come behind those of the unit; and all symbols that
    /// were resolved.
    pub fn into_external_nodes(self) -> (Vec<ExternalNode>, Beyond) {
        let ExternalNodes { number: _, external_nodes, resolved } =
            self.external_nodes.into_inner();
        (external_nodes, resolved)
    }
}

impl ResolveSymbol for UnitSymbols<'_> {
    fn resolve(&self, symbol: &UserExternalName) -> Option<Resolved> {
        let Some(cache) = self.cache else {
            return self.within(symbol);
        };
        if let Some(resolved) = self.external_nodes.borrow().resolved.get(symbol) {
            return Some(*resolved);
        }
        // The encoding must not depend on what is already defined, or it would not be the same in a later unit:
        // every symbol is compared by a node.
        let resolved = match self.within(symbol) {
            Some(Resolved { call, address, inside }) => {
                let itself = || self.external_node(ExternalNode::Symbol(symbol.clone()));
                Resolved {
                    call: Some(call.unwrap_or_else(itself)),
                    address: Some(address.unwrap_or_else(itself)),
                    inside: Some(inside.unwrap_or_else(itself)),
                }
            }
            None => Resolved {
                call: Some(self.external_node(cache.external_node(symbol, true))),
                address: Some(self.external_node(cache.external_node(symbol, false))),
                inside: Some(self.external_node(cache.external_node_inside(symbol))),
            },
        };
        self.external_nodes.borrow_mut().resolved.insert(symbol.clone(), resolved);
        Some(resolved)
    }
}

impl UnitSymbols<'_> {
    fn within(&self, symbol: &UserExternalName) -> Option<Resolved> {
        let &item = self.unit.by_symbol.get(symbol)?;
        let node = self.unit.numbering().node(item);
        Some(match item {
            Item::Function(function) => resolved(node, &self.unit.functions[function].attributes),
            Item::Data(data) => resolved_data(node, &self.unit.data[data].attributes),
        })
    }
}

/// How references to a function of the unit are compared.
pub(crate) fn resolved(node: Node, attributes: &Attributes) -> Resolved {
    // Another definition may take a preemptible symbol, and a function that must not be merged must stay
    // distinguishable: such a symbol equals only itself.
    let call = attributes.linkage != Linkage::Preemptible && !attributes.no_merge;
    let address = call && attributes.addresses == Addresses::Insignificant;
    Resolved { call: call.then_some(node), address: address.then_some(node), inside: None }
}

/// How references to a data object of the unit are compared.
pub(crate) fn resolved_data(node: Node, attributes: &DataAttributes) -> Resolved {
    let address = attributes.by_class().then_some(node);
    Resolved { call: None, address, inside: address }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_takes_64_bytes() {
        assert_eq!(size_of::<Summary>(), 64);
    }
}
