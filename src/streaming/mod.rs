//! Merging of functions that arrive one at a time and whose IR is not kept.
//!
//! [`StreamingMerger::add`] walks a function once and says at once what is known of it: that it equals one that was
//! added before, so that it need not be compiled, or that it is the first of its kind. What is kept of it is in a
//! corpus (`corpus`): its symbol, a number for the BLAKE3 digest of its encoding, and its references.
//! [`StreamingMerger::plan`] refines what was found to the coarsest congruence and decides as
//! [`Merger`](crate::Merger) does, without IR: references are redirected where code is linked, by [`Plan::call_symbol`]
//! and [`Plan::address_symbol`] on its relocations.
//!
//! Similar functions are merged if their IR is held until the plan, as far as a bound allows (`held`).
//!
//! It does not change compiled code. So functions that differ only in facts, such as `readonly`, or in their alignment
//! are not equal here, although `Merger` merges them; data objects are not merged, and nothing is proved, for which there
//! would have to be IR of all functions.

mod held;

use crate::canon::{self, Context, Digest, Encoding, Scratch, code_digest};
use crate::congruence::{Bucketed, Compiled, Encodings, Walked, refine};
use crate::corpus::{ByNode, Corpus, Kind, KnownIndex, Reference, SymbolNumber};
use crate::decide::{Input, decide};
use crate::interner::Interner;
use crate::options::{Compare, Options};
use crate::plan::Plan;
use crate::stats::Stats;
use crate::unit::{
    AddError, Attributes, Beyond, Bodies, FunctionIndex, MOST_ITEMS, Node, Numbering, Observe,
    Unit, resolved,
};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_entity::{EntityRef, EntitySet};
use held::{Held, HeldBodies, NoBodies};

/// What is known of a function when it is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// No function that was added before has its encoding. It has to be compiled.
    First,
    /// This function has the same encoding, but refers to other symbols, which may turn out to be equal when more
    /// functions are added. It has to be compiled.
    SameEncoding(FunctionIndex),
    /// It does the same as this function, which had to be compiled: the code of that one is its code, and its IR is
    /// not needed any more. Never for a function that is pinned or not to be merged.
    Equal(FunctionIndex),
}

/// What [`StreamingMerger::add`] says of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// Its index.
    pub function: FunctionIndex,
    /// What is known of it.
    pub known: Known,
    /// Whether it may share a body with similar functions: the caller keeps its IR and does not compile it before the
    /// plan. Only with [`StreamingMerger::holding`], and never if `known` is [`Known::Equal`].
    pub held: bool,
}

/// Collects functions one at a time, without keeping IR, and plans the disposition of each.
///
/// The caller compiles each function that is neither [`Known::Equal`] nor [held](Added::held), and may then drop its IR.
/// After [`plan`](StreamingMerger::plan), it emits what [`Plan::outputs`] lists; [`Emit::Body`](crate::Emit::Body) is
/// the code that was compiled for the function, or for the one that it equals; if that one is held, it is compiled now,
/// after [`Plan::apply`]. References in compiled code go to [`Plan::call_symbol`] if all that they do is call, and to
/// [`Plan::address_symbol`] otherwise; calls that can be patched stay as they are.
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
///         Known::First | Known::SameEncoding(_) => to_compile.push(func),
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
    scratch: Scratch,
    encoding: Encoding,
    /// Memory for the input of a digest.
    packed: Vec<u8>,
    stats: Stats,
    /// The functions, by their indices.
    corpus: Corpus,
    attributes: Interner<Attributes>,
    /// The numbers of the attributes of functions.
    attributes_of: Vec<u32>,
    /// The instructions of each encoding.
    instructions: Vec<u32>,
    held: Held,
}

/// The digest of a function that cannot be encoded: different for each of them, and from all others, whose inputs are
/// longer.
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
    /// [`Compare::every_function`] and [`Options::prove`] have no effect, and
    /// [`Target::call_thunks`](crate::Target::call_thunks) has one only for similar functions.
    pub fn new(options: Options<'a>) -> Self {
        let compare = Compare { every_function: false, ..options.compare };
        let options = Options { compare, ..options };
        StreamingMerger {
            options,
            scratch: Scratch::default(),
            encoding: Encoding::default(),
            packed: Vec::new(),
            stats: Stats::default(),
            corpus: Corpus::default(),
            attributes: Interner::default(),
            attributes_of: Vec::new(),
            instructions: Vec::new(),
            held: Held::default(),
        }
    }

    /// No functions, and similar ones are merged as well ([`Options::similar`]), for which the caller holds at most
    /// this many bytes of IR ([`Added::held`]). They are estimated from the sizes of the tables of each function. What
    /// exceeds them is compiled, and merged only with identical functions. 12 to 24 bytes more are kept of a held
    /// function, and 6 to 12 of each shape.
    ///
    /// With [`Policy::Size`](crate::Policy::Size), each new body saves bytes by what is known of it, but the sum over
    /// the unit is not compared.
    pub fn holding(options: Options<'a>, most_bytes: usize) -> Self {
        StreamingMerger { held: Held::at_most(most_bytes), ..StreamingMerger::new(options) }
    }

    /// The estimated bytes of IR that the caller holds.
    pub fn held_bytes(&self) -> usize {
        self.held.bytes()
    }

    /// Adds a function under the symbol by which the others refer to it, and says what is known of it. A function may
    /// be referred to before it is added. One into which something that is added later points, behind its address, must
    /// be [`Attributes::pinned`].
    ///
    /// One walk, a digest of the encoding, and constant time for each reference, however many functions there are.
    /// 20 bytes are kept of a function, 4 for each of its references, 13 of its symbol and of each other one that is referred
    /// to, and 40 of each different encoding, of which 32 are its digest. Three hash tables lead to these, with six to twelve
    /// bytes for a symbol and as many for a function that has no equal.
    ///
    /// # Errors
    ///
    /// See [`AddError`]. Nothing is added then.
    ///
    /// # Panics
    ///
    /// Where there would be 2^32 references in all, or 2^30 symbols, which take 12 GB at least.
    pub fn add(
        &mut self,
        symbol: UserExternalName,
        func: &Function,
        attributes: Attributes,
    ) -> Result<Added, AddError> {
        self.check(&symbol, func, &attributes)?;
        let number = self.corpus.symbols.number(&symbol);
        if self.corpus.symbols.item(number).is_some() {
            return Err(AddError::DuplicateSymbol(symbol));
        }
        self.corpus.symbols.add_tables(func);
        self.corpus.symbols.add_address_uses(func);
        let function = FunctionIndex::new(self.len());
        let digest = self.digest(func, &attributes);
        let references = self.encoding.callees.iter().copied().map(Reference::of);
        let at = self.corpus.push(&digest, references);
        let own = self.attributes.number(&attributes, |attributes| *attributes);
        self.attributes_of.push(own);
        self.corpus.define(number, at, &resolved(Node::new(0), &attributes));
        self.stats.add_functions += 1;
        let known = self.known(function, number);
        let held = match known {
            Known::Equal(_) => false,
            Known::First | Known::SameEncoding(_) => {
                !self.corpus.symbols.points_inside(number)
                    && self.held.add(function, func, &self.encoding, &attributes, &self.options)
            }
        };
        Ok(Added { function, known, held })
    }

    /// Whether a function can be added, unless another one has its symbol.
    fn check(
        &self,
        symbol: &UserExternalName,
        func: &Function,
        attributes: &Attributes,
    ) -> Result<(), AddError> {
        let alignment = u64::from(attributes.alignment);
        if !alignment.is_power_of_two() {
            Err(AddError::Alignment(alignment))
        } else if func.layout.entry_block().is_none() {
            Err(AddError::NoBody(symbol.clone()))
        } else if self.len() >= MOST_ITEMS {
            Err(AddError::TooManyFunctions)
        } else {
            Ok(())
        }
    }

    /// Records that something besides the functions that are added, such as a data object, holds the address of
    /// `symbol`, or one that is `offset` bytes behind it. Constant time.
    pub fn add_address_use(&mut self, symbol: &UserExternalName, offset: i64) {
        self.corpus.symbols.observe_address(symbol, offset != 0);
    }

    /// The number of functions that were added.
    pub fn len(&self) -> usize {
        self.attributes_of.len()
    }

    /// Whether no function was added.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Walks a function, and returns the digest of its encoding: one of its own if it cannot be walked.
    fn digest(&mut self, func: &Function, attributes: &Attributes) -> Digest {
        let symbols = ByNode(RefCell::new(&mut self.corpus.symbols));
        let context = Context::of(&self.options, attributes.key, &symbols);
        let result = canon::encode(func, &context, &mut self.scratch, &mut self.encoding);
        self.stats.walks.functions += 1;
        self.stats.walks.malformed += usize::from(result.is_err());
        match result {
            Ok(()) => {
                self.stats.walks.instructions += self.encoding.instructions as usize;
                self.stats.walks.bytes += self.encoding.size();
                code_digest(&self.encoding, attributes.alignment, &mut self.packed)
            }
            Err(canon::Malformed) => {
                self.encoding.clear();
                of_malformed(self.len() as u64)
            }
        }
    }

    /// What is known of the function that was added last.
    fn known(&mut self, added: FunctionIndex, symbol: SymbolNumber) -> Known {
        let at = known(added);
        let Some(first) = self.corpus.first(self.corpus.items[at].encoding) else {
            self.corpus.index(at, false);
            self.instructions.push(self.encoding.instructions);
            return Known::First;
        };
        let Attributes { pinned, no_merge, .. } = *self.attributes(added);
        // Only its own code is right for it.
        let keeps_its_code = pinned || no_merge || self.corpus.symbols.points_inside(symbol);
        let equal = if keeps_its_code { None } else { self.corpus.equal_to(at) };
        match equal {
            Some(equal) => {
                self.corpus.items[at].equal = equal;
                Known::Equal(function(equal))
            }
            None => {
                self.corpus.index(at, false);
                Known::SameEncoding(function(first))
            }
        }
    }

    fn attributes(&self, function: FunctionIndex) -> &Attributes {
        self.attributes.value(self.attributes_of[function.index()])
    }

    /// The function whose code is that of a function, as far as is known.
    fn equal(&self, of: FunctionIndex) -> FunctionIndex {
        function(self.corpus.items[known(of)].equal)
    }

    /// Finds the classes of equal functions and decides the disposition of every function; then, of those that are held,
    /// which share a parameterised body.
    ///
    /// `bodies` has the sizes of native code, for the decisions that depend on one, and for held functions IR and fresh
    /// symbols. No other IR is requested. The result does not depend on the order in which functions were added, but
    /// for which are held. Linear in the number of functions and references, up to a logarithm, and in the sizes of
    /// held functions as [`Merger::plan`](crate::Merger::plan).
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
        bucketed.partition.push_alone(nodes.len());
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
        // These are for functions whose IR is there.
        let mut options = self.options;
        options.target.call_thunks = None;
        options.target.size_model = None;
        let input =
            Input { options: &options, observed: &observed, bucketed: &bucketed, earlier: None };
        let (mut plan, _) = decide(input, unit, Beyond::default(), &mut NoBodies, stats);
        if self.held.has_two() {
            let encodings = Encodings::from(bucketed).with_compiled(self.compiled(&plan));
            let equal = |function| self.equal(function);
            let mut bodies = HeldBodies { bodies, equal };
            held::similar(&mut plan, &observed, &encodings, &mut bodies, &self.options);
        }
        plan
    }

    /// The functions whose IR is not there any more, and what their code calls after `plan`.
    fn compiled(&self, plan: &Plan) -> Compiled {
        let mut compiled = Compiled { functions: EntitySet::new(), callees: EntitySet::new() };
        for function in (0..self.len()).map(FunctionIndex::new) {
            if self.held.shape(self.equal(function)).is_some() {
                continue;
            }
            compiled.functions.insert(function);
            for reference in self.corpus.references(known(function)) {
                if let Some(to) = self.corpus.symbols.item(reference.symbol()) {
                    let to = FunctionIndex::new(to.index());
                    compiled.callees.insert(to);
                    compiled.callees.insert(plan.call_target(to));
                }
            }
        }
        compiled
    }
}

impl fmt::Debug for StreamingMerger<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamingMerger").field("len", &self.len()).finish_non_exhaustive()
    }
}
