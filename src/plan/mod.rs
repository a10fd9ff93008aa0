//! The plan: the disposition of every function, and the reason for it.
//!
//! Plain data. `decide` and `parameterise` make it, all through the few functions of `change`;
//! `apply` carries it out, function by function.
//!
//! | member G of the class of F | outcome |
//! |---|---|
//! | local, only called | redirected to F |
//! | local, address taken, address insignificant | redirected to F |
//! | visible or address taken, address significant | thunk to F; direct callers go to F |
//! | visible, address insignificant | alias of F where the back end has aliases, else thunk |
//! | preemptible | thunk or alias; callers of G keep calling G |
//! | all members preemptible | a new local function takes the body, all become thunks to it |
//! | externally called | alias where the back end has aliases, else thunk |
//! | pinned, not to be merged, thunk not smaller than the body | kept |
//!
//! A read-only data object with an insignificant address is redirected if it is local, else an
//! alias where the back end has aliases, else kept.

mod change;
mod outputs;
mod reason;
mod symbols;

pub(crate) use change::{Added, AddedData};
pub use outputs::{DataEmit, DataOutput, Emit, NoCode, Output, Reached, reached};
pub use reason::Reason;
pub(crate) use symbols::{ReplacedBy, SymbolUses, must_keep_symbol};

use crate::canon::ContentDigest;
use crate::extra_argument::{ExtraArgument, Substitute};
use crate::stats::Stats;
use crate::target::{OptimizeFor, Target};
use crate::unit::{
    Alignment, Attributes, DataAttributes, DataIndex, Defined, ExternalSymbols, FunctionIndex,
    Item, Linkage, Node, Numbering, ResolveSymbol, Resolved, Symbols, resolved, resolved_data,
};
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, Signature, UserExternalName};
use cranelift_entity::{EntityRef, PrimaryMap};
use cranelift_mergefunc_checker::{Proof, Refutation};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// The disposition of a function, or of a data object (which never becomes a thunk). `I` identifies
/// the item that it is merged into.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disposition<I = FunctionIndex> {
    /// It is emitted: a body after [`Plan::apply`](crate::Plan::apply), data with the pointers that
    /// [`Plan::address_symbol`] returns.
    #[default]
    Keep,
    /// No reference to it is left; there is nothing to emit.
    Redirect {
        /// The item that replaces it.
        to: I,
    },
    /// Its symbol is another name for the representative's address.
    Alias {
        /// The item whose address its symbol gets.
        to: I,
    },
    /// Its symbol keeps its address; its code is only a jump.
    Thunk {
        /// The target of the jump.
        to: I,
    },
}

impl<I> Disposition<I> {
    /// The word used in reports: keep, redirect, alias or thunk.
    pub fn name(&self) -> &'static str {
        match self {
            Disposition::Keep => "keep",
            Disposition::Redirect { to: _ } => "redirect",
            Disposition::Alias { to: _ } => "alias",
            Disposition::Thunk { to: _ } => "thunk",
        }
    }

    /// The representative, if the body or the data is not needed any more.
    pub fn representative(self) -> Option<I> {
        match self {
            Disposition::Keep => None,
            Disposition::Redirect { to }
            | Disposition::Alias { to }
            | Disposition::Thunk { to } => Some(to),
        }
    }

    /// This disposition, with the items renamed.
    pub fn map<J>(self, name: impl FnOnce(I) -> J) -> Disposition<J> {
        match self {
            Disposition::Keep => Disposition::Keep,
            Disposition::Redirect { to } => Disposition::Redirect { to: name(to) },
            Disposition::Alias { to } => Disposition::Alias { to: name(to) },
            Disposition::Thunk { to } => Disposition::Thunk { to: name(to) },
        }
    }
}

/// The plan's entry for one function.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    plan: &'a Plan,
    function: FunctionIndex,
}

/// The disposition of a function: 12 bytes for each function.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// The representative; the function itself if it is kept.
    to: FunctionIndex,
    class: u32,
    kind: Disposition<()>,
    alignment: Alignment,
    reason: Reason,
    /// Whether its class has other members, or may get some in later units.
    has_equals: bool,
}

impl Outcome {
    fn disposition(&self) -> Disposition {
        self.kind.map(|()| self.to)
    }
}

/// Details that few functions have.
#[derive(Clone, Debug, Default)]
struct Details {
    /// The extra arguments of a call to the representative.
    extra_arguments: Arc<[ExtraArgument]>,
    /// A thunk that some calls need: see [`Entry::is_called_by_symbol`].
    is_called_by_symbol: bool,
}

impl<'a> Entry<'a> {
    /// The symbol under which the function was added.
    pub fn symbol(&self) -> &'a UserExternalName {
        &self.plan.functions[self.function].symbol
    }

    /// The disposition of the function.
    pub fn disposition(&self) -> Disposition {
        self.outcome().disposition()
    }

    /// The reason for the disposition.
    pub fn reason(&self) -> Reason {
        self.outcome().reason
    }

    /// The number of its class. Functions are equal exactly if they have the same number, merged or
    /// not: as they were added. Merging similar functions can make functions of several classes
    /// equal, and changes no number. The numbers are dense and follow the order of the classes'
    /// smallest symbols.
    pub fn class(&self) -> u32 {
        self.outcome().class
    }

    /// The extra arguments of a call that goes to the function that replaces it: none, unless the
    /// function was merged with others that differ from it in constants and callees.
    pub fn extra_arguments(&self) -> &'a [ExtraArgument] {
        self.details().map_or(&[], |details| &details.extra_arguments)
    }

    /// Whether its class has other members, or may get some in later units.
    pub fn has_equals(&self) -> bool {
        self.outcome().has_equals
    }

    /// Whether it is exported and its class has other members. Code that several functions share
    /// may call it for a function that named another member, so where another definition can take
    /// an exported symbol, that code must not use its symbol.
    pub(crate) fn is_exported_with_equals(&self) -> bool {
        self.attributes().linkage == Linkage::Export && self.has_equals()
    }

    /// These arguments, shared.
    pub(crate) fn shared_arguments(&self) -> Arc<[ExtraArgument]> {
        self.details().map_or_else(Arc::default, |details| details.extra_arguments.clone())
    }

    /// Whether calls of this thunk stay calls of the thunk in code that units share, too: they are
    /// by another signature than its own, and it is not known behind which of their arguments the
    /// extra arguments would go.
    pub(crate) fn is_called_by_symbol(&self) -> bool {
        self.details().is_some_and(|details| details.is_called_by_symbol)
    }

    /// The attributes that the caller gave the function, or those of a function that the plan
    /// added.
    pub fn attributes(&self) -> &'a Attributes {
        &self.plan.functions[self.function].attributes
    }

    /// The alignment in bytes that the function's code needs: the largest of all functions that
    /// end up at its address.
    pub fn alignment(&self) -> u32 {
        self.outcome().alignment.bytes() as u32
    }

    fn details(&self) -> Option<&'a Details> {
        self.plan.details.get(&self.function)
    }

    fn outcome(&self) -> &'a Outcome {
        &self.plan.outcomes[self.function]
    }
}

/// The plan's entry for one data object.
///
/// See the [example](crate::data).
#[derive(Clone, Debug)]
pub struct DataEntry {
    symbol: UserExternalName,
    attributes: DataAttributes,
    disposition: Disposition<DataIndex>,
    reason: Reason,
    class: u32,
    alignment: u64,
    size: u64,
}

impl DataEntry {
    /// The symbol under which the object was added.
    pub fn symbol(&self) -> &UserExternalName {
        &self.symbol
    }

    /// The disposition of the object.
    pub fn disposition(&self) -> Disposition<DataIndex> {
        self.disposition
    }

    /// The reason for the disposition.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The attributes that the caller gave the object.
    pub fn attributes(&self) -> &DataAttributes {
        &self.attributes
    }

    /// The number of its class, from the same numbers as those of functions.
    pub fn class(&self) -> u32 {
        self.class
    }

    /// The alignment in bytes that the object needs: the largest of all that end up at its address.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
}

/// A new function that the plan adds: a parameterised body, which replaces several similar
/// functions and receives their differences as extra arguments; a private copy, because all members
/// of a class are preemptible; or a content-addressed body, which other units may share. It is
/// local, except for content-addressed functions.
///
/// See the [example](crate#example).
#[derive(Clone, Debug)]
pub struct NewBody {
    function: FunctionIndex,
    body: Function,
    copy_of: Option<FunctionIndex>,
    members: Vec<FunctionIndex>,
    content_digest: Option<ContentDigest>,
}

impl NewBody {
    /// Its index, beyond those of the functions that were added.
    pub fn function(&self) -> FunctionIndex {
        self.function
    }

    /// Its body under its symbol: [`apply`](Plan::apply) the plan to a clone under its index.
    pub fn body(&self) -> &Function {
        &self.body
    }

    /// The functions that it replaces, ascending; other new bodies may be among them.
    pub fn members(&self) -> &[FunctionIndex] {
        &self.members
    }

    /// The digest of its contents, if it is content-addressed
    /// ([`Options::content_addressing`](crate::Options::content_addressing)): other units may emit
    /// the same code under this digest. It is to be emitted under a symbol of this name, hidden, in
    /// a COMDAT group or as a weak definition.
    pub fn content_digest(&self) -> Option<&ContentDigest> {
        self.content_digest.as_ref()
    }

    /// The function of which it is a private copy, or whose content-addressed body it is. `None`
    /// for a parameterised body.
    pub fn copy_of(&self) -> Option<FunctionIndex> {
        self.copy_of
    }
}

/// A function that an earlier unit eliminated and that needs code of its own after all, because its
/// address is taken now, or because it is called with a mismatched signature.
///
/// See the [example](crate::incremental).
#[derive(Clone, Debug)]
pub struct LateThunk {
    /// Its index, beyond those of the functions that were added. Its entry is a thunk: emit it
    /// under its symbol, with the extra arguments that [`Plan::thunk_arguments`] returns.
    pub function: FunctionIndex,
    /// The signature of the function.
    pub signature: Arc<Signature>,
}

/// Functions that differ only in constants and references, or in few instructions, and whether one
/// parameterised body replaces them. A body that shares another one belongs to a further set, with
/// the functions of both.
///
/// See the [example](crate#example).
#[derive(Clone, Debug)]
pub struct SimilarSet {
    /// The functions, two or more, in the order of their symbols.
    pub members: Vec<FunctionIndex>,
    /// The number of parameters by which they differ: what a body for all of them takes as extra
    /// arguments, in addition to what a body that it replaces takes.
    pub parameters: usize,
    /// Whether they differ in instructions, too, and the body branches where they do.
    pub has_selector: bool,
    /// The parameterised body, if it pays.
    pub body: Option<FunctionIndex>,
    /// How many bytes it saves, as predicted, with the cost of thunks and of passing arguments
    /// subtracted. `None` if there can be no such body, or if it is not wanted.
    pub saved: Option<i64>,
}

/// How a back end carries a plan out, beyond the dispositions.
#[derive(Clone, Debug)]
struct Emission {
    /// The goal for which thunks are optimised: their sizes were counted so.
    optimize: OptimizeFor,
    /// How thunks are written.
    target: Target,
    /// The functions whose code others have, where functions arrived one at a time; else empty.
    code: Vec<FunctionIndex>,
}

/// The disposition of everything in a unit, with the reasons.
///
/// See the [example](crate#example).
#[derive(Clone, Debug)]
pub struct Plan {
    functions: PrimaryMap<FunctionIndex, Defined>,
    outcomes: PrimaryMap<FunctionIndex, Outcome>,
    details: HashMap<FunctionIndex, Details, FxBuildHasher>,
    data: PrimaryMap<DataIndex, DataEntry>,
    symbols: Symbols,
    numbering: Numbering,
    /// Ascending.
    new_bodies: Vec<NewBody>,
    similar: Vec<SimilarSet>,
    earlier: EarlierUnits,
    emission: Emission,
    /// The result of the checker, if it was run.
    proof: Option<Result<Proof, Refutation>>,
    stats: Stats,
}

impl Plan {
    /// The entry of a function.
    ///
    /// # Panics
    ///
    /// If `function` is not from this plan.
    pub fn entry(&self, function: FunctionIndex) -> Entry<'_> {
        assert!(self.outcomes.is_valid(function), "{function} is not from this plan");
        Entry { plan: self, function }
    }

    /// All entries: the functions in the order in which they were added, then the entries that the
    /// plan adds: bodies that earlier units emitted, functions that they eliminated and this unit
    /// refers to, and new bodies.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (FunctionIndex, Entry<'_>)> {
        self.outcomes.keys().map(|function| (function, self.entry(function)))
    }

    /// The new functions that the plan adds, ascending.
    pub fn new_bodies(&self) -> &[NewBody] {
        &self.new_bodies
    }

    /// A new function that the plan adds, if `function` is one.
    pub fn new_body(&self, function: FunctionIndex) -> Option<&NewBody> {
        let at = self.new_bodies.binary_search_by_key(&function, |new| new.function).ok()?;
        Some(&self.new_bodies[at])
    }

    /// The extra arguments that the thunk of a function passes, as they are after merging.
    ///
    /// # Panics
    ///
    /// If `function` is not from this plan.
    pub fn thunk_arguments(&self, function: FunctionIndex) -> Vec<ExtraArgument> {
        let address = |symbol: &UserExternalName| Some(self.address_symbol(symbol).clone());
        let arguments = self.entry(function).extra_arguments().iter();
        arguments.map(|argument| argument.redirected(&address)).collect()
    }

    /// The substitute for a function that was merged: the function into which it was merged, which
    /// can be a thunk itself, and its extra arguments. Otherwise the function itself.
    pub(crate) fn substitute(&self, function: FunctionIndex) -> Substitute {
        let to = self.entry(function).disposition().representative().unwrap_or(function);
        let arguments = self.thunk_arguments(function).into();
        Substitute { symbol: self.entry(to).symbol().clone(), arguments }
    }

    /// The target of its thunks, as [`Options::target`](crate::Options::target) said when it was
    /// made.
    pub(crate) fn target(&self) -> &Target {
        &self.emission.target
    }

    /// The goal for which its thunks are optimised, as
    /// [`Policy::optimize_for`](crate::Policy::optimize_for) said when it was made.
    pub fn optimize_for(&self) -> OptimizeFor {
        self.emission.optimize
    }

    /// The sets of similar functions that were considered
    /// ([`Options::similar`](crate::Options::similar)): those that were not divided any further, in
    /// the order of consideration.
    pub fn similar_sets(&self) -> &[SimilarSet] {
        &self.similar
    }

    /// The functions that earlier units eliminated and that need code now: to be emitted with this
    /// unit. None, unless the run is incremental ([`Merger::after`](crate::Merger::after)).
    pub fn late_thunks(&self) -> &[LateThunk] {
        &self.earlier.late_thunks
    }

    /// The entry of a data object.
    ///
    /// # Panics
    ///
    /// If `data` is not from this unit.
    pub fn data_entry(&self, data: DataIndex) -> &DataEntry {
        &self.data[data]
    }

    /// All entries of data objects, in the order in which they were added.
    pub fn data_entries(&self) -> impl ExactSizeIterator<Item = (DataIndex, &DataEntry)> {
        self.data.iter()
    }

    /// The function of a symbol, if the unit has one.
    pub fn function(&self, symbol: &UserExternalName) -> Option<FunctionIndex> {
        match self.item_of(symbol)? {
            Item::Function(function) => Some(function),
            Item::Data(_) => None,
        }
    }

    /// The data object of a symbol, if the unit has one.
    pub fn data(&self, symbol: &UserExternalName) -> Option<DataIndex> {
        match self.item_of(symbol)? {
            Item::Function(_) => None,
            Item::Data(data) => Some(data),
        }
    }

    fn item_of(&self, symbol: &UserExternalName) -> Option<Item> {
        self.symbols.get(symbol, |item| symbol_of(&self.functions, &self.data, item))
    }

    /// The function that a direct call to `function` reaches at best.
    pub fn call_target(&self, function: FunctionIndex) -> FunctionIndex {
        match self.entry(function).attributes().linkage {
            // The definition that takes the symbol must get the calls.
            Linkage::Preemptible => function,
            Linkage::Export | Linkage::Hidden | Linkage::Local => self.reached(function).call,
        }
    }

    /// The function whose address may replace the address of `function`. References from data, and
    /// all others that the IR does not show, must use it. `None` if nothing refers to the address
    /// and there is no code for it any more: the function was replaced by a body that takes extra
    /// arguments, and only calls pass these.
    pub fn address_target(&self, function: FunctionIndex) -> Option<FunctionIndex> {
        self.reached(function).address
    }

    /// The symbol whose address may replace the address of `symbol`, of a function or a data
    /// object: pointers in data objects, and everything else that the IR does not show, must use
    /// it. It is `symbol` itself where [`address_target`](Plan::address_target) has none.
    pub fn address_symbol<'a>(&'a self, symbol: &'a UserExternalName) -> &'a UserExternalName {
        match self.item_of(symbol) {
            None => symbol,
            Some(Item::Function(function)) => {
                let to = self.address_target(function).unwrap_or(function);
                &self.functions[to].symbol
            }
            Some(Item::Data(data)) => {
                let to = self.data_reached(data).address.unwrap_or(data);
                &self.data[to].symbol
            }
        }
    }

    /// The number of functions that were added.
    pub fn added(&self) -> usize {
        self.numbering.functions
    }

    /// The number of data objects that were added.
    pub(crate) fn added_data(&self) -> usize {
        self.numbering.data
    }

    /// The item of a node of the partition.
    pub(crate) fn item(&self, node: Node) -> Item {
        self.numbering.item(node)
    }

    /// The signature of a function that an earlier unit eliminated and this one refers to, if
    /// `function` is one.
    pub(crate) fn eliminated_signature(&self, function: FunctionIndex) -> Option<&Arc<Signature>> {
        self.earlier.signature(function)
    }

    /// The data objects that earlier units eliminated and this one refers to, ascending.
    pub(crate) fn eliminated_data(&self) -> &[DataIndex] {
        &self.earlier.data
    }

    /// Whether an entry is for a function of an earlier unit, which emitted or eliminated it:
    /// unless it is among the [late thunks](Plan::late_thunks), nothing has to be emitted for it.
    pub fn is_cached(&self, function: FunctionIndex) -> bool {
        function.index() >= self.added() && self.new_body(function).is_none()
    }

    /// Whether references that are compared by these nodes are equal: they refer to members of one
    /// class, or to the same external node.
    pub(crate) fn equal_references(&self, a: Node, b: Node) -> bool {
        a == b || self.class_of(a).is_some_and(|class| self.class_of(b) == Some(class))
    }

    /// `None` for an external node.
    pub(crate) fn class_of(&self, node: Node) -> Option<u32> {
        let Numbering { functions, data } = self.numbering;
        (node.index() < functions + data).then(|| match self.numbering.item(node) {
            Item::Function(function) => self.outcomes[function].class,
            Item::Data(data) => self.data[data].class,
        })
    }

    /// The function of the unit whose body `function` has: itself, unless the plan added it. `None`
    /// if an earlier unit emitted it.
    pub(crate) fn body_of(&self, function: FunctionIndex) -> Option<FunctionIndex> {
        match function.index() < self.added() {
            true => Some(function),
            false => self.new_body(function)?.copy_of,
        }
    }

    /// The digest under which `function` is emitted, if it is content-addressed.
    pub(crate) fn content_digest(&self, function: FunctionIndex) -> Option<&ContentDigest> {
        self.new_body(function)?.content_digest()
    }

    /// The result of the independent checker, if [`Options::prove`](crate::Options::prove) asks for
    /// it: what it proved, or why nothing is merged.
    pub fn proof(&self) -> Option<&Result<Proof, Refutation>> {
        self.proof.as_ref()
    }

    /// The parameterised body that the plan made, if `function` is one.
    pub(crate) fn parameterised_body(&self, function: FunctionIndex) -> Option<&Function> {
        let new = self.new_body(function)?;
        new.copy_of.is_none().then_some(&new.body)
    }

    /// The number of classes so far.
    pub(crate) fn classes(&self) -> u32 {
        let functions = self.outcomes.values().map(|outcome| outcome.class);
        let data = self.data.values().map(|entry| entry.class);
        functions.chain(data).max().map_or(0, |last| last + 1)
    }

    /// Counters of the run.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }
}

impl ResolveSymbol for Plan {
    fn resolve(&self, symbol: &UserExternalName) -> Option<Resolved> {
        if let Some(resolved) = self.earlier.beyond.get(symbol) {
            return Some(*resolved);
        }
        let item = self.item_of(symbol)?;
        Some(match item {
            Item::Function(function) if function.index() < self.numbering.functions => {
                resolved(self.numbering.node(item), &self.functions[function].attributes)
            }
            // A function that the plan added has no number in the partition.
            Item::Function(_) => return None,
            Item::Data(data) => {
                resolved_data(self.numbering.node(item), &self.data[data].attributes)
            }
        })
    }
}

fn symbol_of<'a>(
    functions: &'a PrimaryMap<FunctionIndex, Defined>,
    data: &'a PrimaryMap<DataIndex, DataEntry>,
    item: Item,
) -> &'a UserExternalName {
    match item {
        Item::Function(function) => &functions[function].symbol,
        Item::Data(data_index) => &data[data_index].symbol,
    }
}

/// The plan's record of earlier units, in an incremental run.
#[derive(Clone, Debug, Default)]
struct EarlierUnits {
    /// How references are compared.
    beyond: ExternalSymbols,
    /// The entries of functions that they eliminated and that this unit refers to, ascending.
    functions: Vec<(FunctionIndex, Arc<Signature>)>,
    /// The entries of data objects that they eliminated and that this unit refers to.
    data: Vec<DataIndex>,
    /// Ascending.
    late_thunks: Vec<LateThunk>,
}

impl EarlierUnits {
    fn signature(&self, function: FunctionIndex) -> Option<&Arc<Signature>> {
        let at =
            self.functions.binary_search_by_key(&function.index(), |(at, _)| at.index()).ok()?;
        Some(&self.functions[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_of_a_function_takes_12_bytes() {
        assert_eq!(size_of::<Outcome>(), 12);
    }
}
