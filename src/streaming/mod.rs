//! Merging of functions that arrive one at a time and whose IR is not kept.
//!
//! A [`Reader`] walks a function once, on any thread. [`StreamingMerger::add_reading`] then says
//! its fate at once: it equals one that was added before, so that it need not be compiled; it is
//! compiled now; or its IR is held until the plan, because similar functions may share its body
//! (`held`). Its record is in a corpus (`corpus`): its symbol, a number for the BLAKE3 digest of
//! its encoding, and its references. [`StreamingMerger::plan`] refines these classes to the
//! coarsest congruence and decides as [`Merger`](crate::Merger) does. For that it needs no IR:
//! references of compiled code are redirected where code is linked, by [`Plan::call_symbol`] and
//! [`Plan::address_symbol`] on its relocations.
//!
//! It does not change compiled code. So functions that differ in their alignment are not equal
//! here, although `Merger` merges them, and functions that compiled code calls keep their symbols;
//! data objects are not merged. Plans are proved only where the embedder can make the IR of every
//! function anew.
//!
//! [`StreamingMerger`] has an example.

mod held;
mod reading;

pub use reading::{Reader, Reading};

use crate::canon::Digest;
use crate::checker::Remember;
use crate::congruence::{Bucketed, Encodings, Walked, WithoutIr, refine};
use crate::corpus::{Corpus, Kind, KnownIndex, Reference, SymbolNumber};
use crate::decide::{Input, decide};
use crate::explain::Recorded;
use crate::interner::Interner;
use crate::options::{Compare, Options, Similar};
use crate::plan::Plan;
use crate::prove::proved;
use crate::stats::Stats;
use crate::unit::{
    AddError, Attributes, Bodies, ExternalSymbols, FunctionIndex, MAX_ITEMS, Node, Numbering,
    Observe, Unit, resolved,
};
use alloc::vec::Vec;
use core::fmt;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_entity::{EntityRef, EntitySet};
use held::{Arrived, Held};

/// The result for a function when it is added.
///
/// See the [example](crate::streaming).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It does the same as this function, which was added before and was not [`Known::Equal`]
    /// itself: the code of that one is its code, and its IR is not needed any more. Never for a
    /// function that is pinned or not to be merged.
    Equal(FunctionIndex),
    /// It may share a body with similar functions: the caller keeps its IR, and does not compile it
    /// before the plan, unless [`StreamingMerger::release`] returns it.
    Hold,
    /// It has to be compiled.
    Compile,
}

/// The treatment of a function that is not added, and calls functions that are.
///
/// See the [example](crate::streaming).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// It is compiled as it is, before or after the plan: its calls pass no extra arguments.
    Stays,
    /// [`Plan::apply_to_caller`] is called for it before it is compiled, so its calls pass what the
    /// bodies take. It calls functions by the signatures that these have.
    IsRewritten,
}

/// The answer of [`StreamingMerger::add`] about a function.
///
/// See the [example](crate::streaming).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// Its index.
    pub function: FunctionIndex,
    /// The result for it.
    pub known: Known,
}

/// Collects functions one at a time, without keeping IR, and plans the disposition of each.
///
/// The caller compiles each function that is [`Known::Compile`], and may then drop its IR; also of
/// each that is [`Known::Equal`]. After [`plan`](StreamingMerger::plan), it emits what
/// [`Plan::outputs`] lists. [`Emit::Body`](crate::Emit::Body) is the code of the function
/// [`Output::code`](crate::Output::code): the compiled code, or, if that function is held, its IR
/// after [`Plan::apply`], compiled now. References in compiled code go to [`Plan::call_symbol`] if
/// all that they do is call, and to [`Plan::address_symbol`] otherwise; calls that can be patched
/// stay as they are.
///
/// ```
/// # use cranelift_codegen::ir::{Function, UserExternalName};
/// # use cranelift_mergefunc::{Addresses, Attributes, Linkage, Options, cranelift_codegen};
/// # use cranelift_mergefunc::streaming::{Known, StreamingMerger};
/// # let text = "function u0:0() -> i32 { block0: v0 = iconst.i32 7 return v0 }
/// # function u0:1() -> i32 { block0: v9 = iconst.i32 7 return v9 }";
/// # let functions = cranelift_reader::parse_functions(text).unwrap();
/// let mut merger = StreamingMerger::new(Options::default());
/// let mut to_compile = Vec::new();
/// for func in functions {
///     let symbol = func.name.get_user().unwrap().clone();
///     let attributes = Attributes { linkage: Linkage::Local, ..Attributes::default() };
///     let added = merger.add(symbol, &func, attributes).unwrap();
///     match added.known {
///         Known::Equal(_) => {}
///         Known::Hold | Known::Compile => to_compile.push(func),
///     }
/// }
/// assert_eq!(to_compile.len(), 1);
/// // No function is held.
/// let plan = merger.plan(&mut Vec::<Function>::new());
/// let callee = UserExternalName::new(0, 1);
/// assert_eq!(*plan.call_symbol(&callee), UserExternalName::new(0, 0));
/// ```
pub struct StreamingMerger<'a> {
    options: Options<'a>,
    /// For functions that are not read elsewhere.
    reader: Reader<'a>,
    stats: Stats,
    /// The functions, by their indices.
    corpus: Corpus,
    attributes: Interner<Attributes>,
    /// The numbers of the attributes of functions.
    attributes_of: Vec<u32>,
    /// The instructions of each encoding.
    instructions: Vec<u32>,
    held: Held,
    /// The records of functions for backtraces.
    recorded: Recorded,
}

/// The digest of a function that cannot be encoded: different for each of them, and from all
/// others, whose inputs are longer.
fn of_malformed(function: u64) -> Digest {
    *blake3::hash(&function.to_le_bytes()).as_bytes()
}

/// A function is known under its index.
fn known(function: FunctionIndex) -> KnownIndex {
    KnownIndex::new(function.index())
}

fn function(known: KnownIndex) -> FunctionIndex {
    FunctionIndex::new(known.index())
}

impl<'a> StreamingMerger<'a> {
    /// No functions, and none is held: similar ones are not merged. Of the options,
    /// [`Compare::every_function`] has no effect, nor has [`Options::prove`], as there is no IR of
    /// all functions; and [`Target::call_thunks`](crate::Target::call_thunks) has one only for
    /// similar functions.
    pub fn new(options: Options<'a>) -> Self {
        let merger = StreamingMerger::with(options, Held::default());
        // By what similar functions are found takes time.
        let reader = Reader::new(Options { similar: Similar::OFF, ..merger.options });
        StreamingMerger { reader, ..merger }
    }

    /// For a caller whose code cannot be replaced, or who cannot make IR again. No functions, and
    /// similar ones are merged as well ([`Options::similar`]), for which the caller holds at most
    /// this many bytes ([`Known::Hold`]). They are estimated from the sizes of the tables of each
    /// function, unless [`Reading::set_held_bytes`] says otherwise. Functions
    /// beyond the bound are compiled, those first that no other one resembles so far, and merged
    /// only with identical functions.
    ///
    /// With `usize::MAX`, all that [`Merger`](crate::Merger) merges is merged.
    pub fn holding(options: Options<'a>, max_bytes: usize) -> Self {
        StreamingMerger::with(options, Held::at_most(max_bytes, held::Compiled::Stays))
    }

    /// Like [`holding`](Self::holding), for a caller who can make the IR of every function anew,
    /// and replaces code that was compiled: the plan requests IR of functions that are not held,
    /// but for those that no other one resembles, and of all functions if it is to be proved
    /// ([`Options::prove`]).
    ///
    /// A function is held only once another one resembles it, and the bound decides how much is
    /// compiled twice: merges do not depend on it, but for functions that compiled code
    /// calls, which stay as thunks.
    pub fn replacing(options: Options<'a>, max_bytes: usize) -> Self {
        StreamingMerger::with(options, Held::at_most(max_bytes, held::Compiled::MayBeReplaced))
    }

    /// Like [`replacing`](Self::replacing), for a caller who compiles nothing before the plan:
    /// every function that may share a body is held, which means that the plan may request its IR,
    /// be it kept or made anew.
    ///
    /// For callers who can tell which functions may merge before they make IR, such as by a hash of
    /// what they translate, and add only those. Of what else calls functions,
    /// [`add_call`](StreamingMerger::add_call) must know, and a fresh symbol must not be that of a
    /// function that is not added. It takes least time, and least memory beside code, as IR is gone
    /// when code is made.
    pub fn before_code(options: Options<'a>) -> Self {
        StreamingMerger::with(options, Held::at_most(usize::MAX, held::Compiled::Nothing))
    }

    fn with(options: Options<'a>, held: Held) -> Self {
        let compare = Compare { every_function: false, ..options.compare };
        let options = Options { compare, ..options };
        StreamingMerger {
            options,
            reader: Reader::new(options),
            stats: Stats::default(),
            corpus: Corpus::default(),
            attributes: Interner::default(),
            attributes_of: Vec::new(),
            instructions: Vec::new(),
            held,
            recorded: Recorded::default(),
        }
    }

    /// The bytes that the caller holds.
    pub fn held_bytes(&self) -> usize {
        self.held.bytes()
    }

    /// A function that was held and is not any more: it has to be compiled, and its IR need not be
    /// kept. To be called after each function that is added until there is none.
    pub fn release(&mut self) -> Option<FunctionIndex> {
        self.held.release()
    }

    /// Adds a function that is read now: see [`StreamingMerger::add_reading`].
    ///
    /// # Errors
    ///
    /// See [`AddError`]. Nothing is added then.
    ///
    /// # Panics
    ///
    /// See [`StreamingMerger::add_reading`].
    pub fn add(
        &mut self,
        symbol: UserExternalName,
        func: &Function,
        attributes: Attributes,
    ) -> Result<Added, AddError> {
        let reading = self.reader.read(func, attributes);
        self.add_reading(symbol, reading)
    }

    /// Adds a function under the symbol by which the others refer to it, and returns the answer
    /// about it. A function may be referred to before it is added. One into which something that is
    /// added later points, behind its address, must be [`Attributes::pinned`].
    ///
    /// Constant time, and for each reference, however many functions there are.
    /// 20 bytes are kept of a function, 4 for each of its references, 13 of its symbol and of each
    /// other one that is referred to, and 40 of each different encoding, of which 32 are its
    /// digest. Three hash tables lead to these, with six to twelve bytes for a symbol and for a
    /// function that has no equal. Where similar functions are merged, 200 more are kept of a
    /// function that may share a body.
    ///
    /// # Errors
    ///
    /// See [`AddError`]. Nothing is added then.
    ///
    /// # Panics
    ///
    /// Where there would be 2^32 references in all, or 2^30 symbols, which take 12 GB at least.
    pub fn add_reading(
        &mut self,
        symbol: UserExternalName,
        reading: Reading,
    ) -> Result<Added, AddError> {
        self.check(&symbol, &reading)?;
        let number = self.corpus.symbols.number(&symbol);
        if self.corpus.symbols.item(number).is_some() {
            return Err(AddError::DuplicateSymbol(symbol));
        }
        let Reading { attributes, digest, symbols, references, .. } = &reading;
        let symbols: Vec<SymbolNumber> =
            symbols.iter().map(|symbol| self.corpus.symbols.note(symbol)).collect();
        let references = references
            .iter()
            .map(|reference| Reference::new(symbols[reference.symbol().index()], reference.kind()));
        let function = FunctionIndex::new(self.len());
        let digest = digest.unwrap_or_else(|| of_malformed(function.as_u32().into()));
        let at = self.corpus.push(&digest, references);
        let own = self.attributes.number(attributes, |attributes| *attributes);
        self.attributes_of.push(own);
        self.corpus.define(number, at, &resolved(Node::new(0), attributes));
        self.count(&reading);
        if let Some(sites) = &reading.sites {
            self.recorded.add(self.corpus.symbols.name(number), sites);
        }
        let Reading { likeness, bytes, instructions, .. } = reading;
        if let Some(equal) = self.equal_before(function, number, instructions) {
            return Ok(Added { function, known: Known::Equal(equal) });
        }
        // Only its own code is right for one into which something points.
        let likeness = likeness.filter(|_| !self.corpus.symbols.points_inside(number));
        let is_held = likeness.is_some_and(|it| self.held.add(function, it, bytes, &self.options));
        Ok(Added { function, known: if is_held { Known::Hold } else { Known::Compile } })
    }

    /// Whether a function can be added, unless another one has its symbol.
    fn check(&self, symbol: &UserExternalName, reading: &Reading) -> Result<(), AddError> {
        let alignment = u64::from(reading.attributes.alignment);
        if !alignment.is_power_of_two() {
            Err(AddError::Alignment(alignment))
        } else if !reading.has_body {
            Err(AddError::NoBody(symbol.clone()))
        } else if self.len() >= MAX_ITEMS {
            Err(AddError::TooManyFunctions)
        } else {
            Ok(())
        }
    }

    fn count(&mut self, reading: &Reading) {
        self.stats.add_functions += 1;
        self.stats.walks.functions += 1;
        self.stats.walks.malformed += usize::from(reading.digest.is_none());
        self.stats.walks.instructions += reading.instructions as usize;
        self.stats.walks.bytes += reading.encoded;
    }

    /// Records that something besides the functions that are added, such as a data object, holds
    /// the address of `symbol`, or one that is `offset` bytes behind it: then before the function
    /// is added, or the function must be [`Attributes::pinned`]. Constant time.
    pub fn add_address_use(&mut self, symbol: &UserExternalName, offset: i64) {
        self.corpus.symbols.observe_address(symbol, offset != 0);
    }

    /// Records that a function that is not added calls `symbol`. To be called for each of its
    /// calls. Constant time. A function whose calls can be patched must be added, or what it calls
    /// be [`Attributes::pinned`].
    pub fn add_call(&mut self, symbol: &UserExternalName, caller: Caller) {
        match caller {
            Caller::Stays => self.corpus.symbols.observe_call(symbol),
            Caller::IsRewritten => self.corpus.symbols.count_call(symbol),
        }
    }

    /// Records, for backtraces, which functions a function tail-calls that is not added: `None` if
    /// that can be any function, as where nothing is recorded. Constant time, and for each of them.
    pub fn add_tail_calls(&mut self, symbol: &UserExternalName, to: Option<&[UserExternalName]>) {
        self.recorded.add_tail_calls(symbol, to);
    }

    /// The number of functions that were added.
    pub fn len(&self) -> usize {
        self.attributes_of.len()
    }

    /// Whether no function was added.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The function before it that equals the function that was added last.
    fn equal_before(
        &mut self,
        added: FunctionIndex,
        symbol: SymbolNumber,
        instructions: u32,
    ) -> Option<FunctionIndex> {
        let at = known(added);
        let is_first = self.corpus.first(self.corpus.items[at].encoding).is_none();
        if is_first {
            self.instructions.push(instructions);
        }
        let Attributes { pinned, no_merge, .. } = *self.attributes(added);
        // Only its own code is right for it.
        let keeps_its_code = pinned || no_merge || self.corpus.symbols.points_inside(symbol);
        let equal = if is_first || keeps_its_code { None } else { self.corpus.equal_to(at) };
        match equal {
            Some(equal) => self.corpus.items[at].equal = equal,
            None => self.corpus.index(at, false),
        }
        equal.map(function)
    }

    fn attributes(&self, function: FunctionIndex) -> &Attributes {
        self.attributes.value(self.attributes_of[function.index()])
    }

    /// The function whose code is that of a function, as far as is known.
    fn equal(&self, of: FunctionIndex) -> FunctionIndex {
        function(self.corpus.items[known(of)].equal)
    }

    /// Finds the classes of equal functions and decides the disposition of every function; then, of
    /// those that are held, which share a parameterised body.
    ///
    /// `bodies` has the sizes of native code, for the decisions that depend on one, and for held
    /// functions IR and fresh symbols. No other IR is requested. The result does not depend on the
    /// order in which functions were added, but for which are held. Linear in the number of
    /// functions and references, up to a logarithm, and in the sizes of held functions as
    /// [`Merger::plan`](crate::Merger::plan).
    pub fn plan(mut self, bodies: &mut dyn Bodies) -> Plan {
        // Memory, before the next phases take some.
        self.corpus.drop_index();
        let mut stats = core::mem::take(&mut self.stats);
        let corpus = &self.corpus;
        let functions = || (0..self.len()).map(FunctionIndex::new);
        let numbering = Numbering { functions: self.len(), data: 0 };
        let node = |reference: Reference| match corpus.symbols.by_class(reference) {
            Some(function) => Node::new(function.index()),
            None => Node::new(numbering.functions + reference.0 as usize),
        };
        let references = corpus.symbols.len() as u32 * Kind::ALL.len() as u32;
        let nodes: Vec<Node> = (0..references).map(Reference).map(node).collect();
        let encoding = |function| corpus.items[known(function)].encoding;
        let mut bucketed = Bucketed::of_encodings(
            numbering,
            functions().map(encoding).collect(),
            corpus.encodings(),
            |function| {
                let references = corpus.references(KnownIndex::new(function)).iter();
                references.map(|reference| nodes[reference.0 as usize])
            },
            functions().map(|function| Walked::Yes {
                instructions: self.instructions[encoding(function) as usize],
                shape: self.held.shape(self.equal(function)).unwrap_or_default(),
            }),
        );
        bucketed.partition.push_singletons(nodes.len());
        stats.refine_classes_before = bucketed.partition.len();
        refine(&mut bucketed.partition, &bucketed.nodes, &bucketed.references);
        stats.refine_classes_after = bucketed.partition.len();
        let mut unit = Unit::default();
        unit.reserve(self.len());
        for function in functions() {
            let (symbol, attributes) =
                (corpus.items[known(function)].symbol, *self.attributes(function));
            let pinned = attributes.pinned || corpus.symbols.points_inside(symbol);
            let attributes = Attributes { pinned, ..attributes };
            unit.add(corpus.symbols.name(symbol).clone(), attributes, 0);
        }
        let observed = corpus.symbols.observed();
        let options = &self.options;
        let input = Input { options, observed: &observed, bucketed: &bucketed, earlier: None };
        // IR is there of some functions only, and no decision about equal ones depends on which.
        let (mut plan, _) = decide(input, unit, ExternalSymbols::default(), None, stats);
        let own: Vec<FunctionIndex> = functions().map(|function| self.equal(function)).collect();
        let is_all_there = self.held.has_all_ir();
        if self.held.has_two() {
            let encodings = Encodings::from(bucketed).with(self.without_ir(&plan));
            let arrived = Arrived { own: &own, symbols: &corpus.symbols };
            let options = &self.options;
            self.held.merge_similar(&mut plan, &observed, &encodings, arrived, bodies, options);
        }
        plan.set_code(own);
        match is_all_there {
            true => proved(plan, None, bodies, &self.options, Remember::Nothing).0,
            false => plan,
        }
    }

    /// Plans the functions, and returns for backtraces the records ([`Reader::recording`]) of
    /// functions that share code and of all tail calls. Requests IR of one function of each class
    /// that shares a parameterised body.
    pub fn plan_recording(mut self, bodies: &mut dyn Bodies) -> (Plan, Recorded) {
        let (mut recorded, options) = (core::mem::take(&mut self.recorded), self.options);
        let plan = self.plan(bodies);
        recorded.forget(&plan);
        if !recorded.is_empty() {
            recorded.relate(&plan, bodies, &options);
        }
        (plan, recorded)
    }

    /// The functions whose IR is not there any more, and what code without IR calls after `plan`.
    fn without_ir(&self, plan: &Plan) -> WithoutIr {
        let calls = self.corpus.symbols.calls().map(|(to, calls)| (function(to), calls));
        let (mut functions, mut callees) = (EntitySet::new(), EntitySet::new());
        let mut call = |to: KnownIndex| {
            callees.insert(function(to));
            callees.insert(plan.call_target(function(to)));
        };
        self.corpus.symbols.called().for_each(&mut call);
        for function in (0..self.len()).map(FunctionIndex::new) {
            let own = self.equal(function);
            if self.held.shape(own).is_none() {
                functions.insert(function);
            }
            // Code that may be replaced may also stay.
            if self.held.is_held(own) {
                continue;
            }
            for reference in self.corpus.references(known(function)) {
                self.corpus.symbols.item(reference.symbol()).into_iter().for_each(&mut call);
            }
        }
        WithoutIr { functions, callees, calls: calls.collect() }
    }
}

impl fmt::Debug for StreamingMerger<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamingMerger").field("len", &self.len()).finish_non_exhaustive()
    }
}
