//! Merging of functions that arrive one at a time and whose IR is not kept.
//!
//! [`StreamingMerger::add`] walks a function once and says at once what is known of it: that it equals one that was
//! added before, so that it need not be compiled, or that it is the first of its kind. Kept of it are its symbol, a
//! number for its encoding and its references; encodings are compared by BLAKE3 digests of 256 bits, as across the
//! units of an incremental run ([`MergeCache`](crate::incremental::MergeCache)). [`StreamingMerger::plan`] refines what was found
//! to the coarsest congruence and decides as [`Merger`](crate::Merger) does, without IR: references are redirected
//! where code is linked, by [`Plan::call_symbol`] and [`Plan::address_symbol`] on its relocations.
//!
//! Similar functions are merged if their IR is held until the plan, as far as a bound allows (`held`).
//!
//! It does not change compiled code. So functions that differ only in facts, such as `readonly`, or in their alignment
//! are not equal here, although `Merger` merges them; data objects are not merged, and nothing is proved, for which there
//! would have to be IR of all functions.

mod digests;
mod held;
mod symbols;

use crate::canon::{self, Context, Encoding, Scratch, code_digest};
use crate::congruence::{Bucketed, Compiled, Encodings, Walked, refine};
use crate::decide::{Input, decide};
use crate::options::{Compare, Options};
use crate::plan::Plan;
use crate::stats::Stats;
use crate::unit::{
    AddError, Attributes, Beyond, Bodies, FunctionIndex, MOST_ITEMS, Node, Numbering, Observe,
    Resolved, Unit, resolved,
};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use core::hash::BuildHasher;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_entity::{EntityRef, EntitySet};
use digests::Digests;
use hashbrown::HashTable;
use held::{Held, HeldBodies, NoBodies};
use rustc_hash::FxBuildHasher;
use symbols::{ByNode, Kind, Reference, Symbols};

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
    symbols: Symbols,
    attributes: Interned,
    digests: Digests,
    /// By the numbers of their digests.
    encodings: Vec<Encoded>,
    functions: Vec<Streamed>,
    /// The references of all functions, one function after the other.
    references: Vec<Reference>,
    /// The functions that equal no earlier one, but for the first of each encoding, by encoding and references.
    by_references: HashTable<FunctionIndex>,
    held: Held,
}

/// What is kept of an encoding besides its digest.
struct Encoded {
    /// The first function that has it.
    first: FunctionIndex,
    instructions: u32,
}

/// What is kept of a function besides its symbol and references.
#[derive(Clone, Copy)]
struct Streamed {
    symbol: u32,
    attributes: u32,
    encoding: u32,
    /// The first function that it is known to equal, which may be itself.
    equal: FunctionIndex,
    /// Where its references begin; those of the next function begin where they end.
    references: u32,
}

/// Attributes by number: functions have few different ones.
#[derive(Default)]
struct Interned {
    all: Vec<Attributed>,
    numbers: HashTable<u32>,
    /// The number of those that were asked for last.
    last: u32,
}

struct Attributed {
    attributes: Attributes,
    /// Which kinds of references to a function that has them are compared by class.
    by_class: [bool; Reference::KINDS.len()],
}

impl Interned {
    fn number(&mut self, attributes: Attributes) -> u32 {
        let Interned { all, numbers, last } = self;
        if all.get(*last as usize).is_none_or(|last| last.attributes != attributes) {
            let hash = |attributes: &Attributes| FxBuildHasher.hash_one(attributes);
            let entry = numbers.entry(
                hash(&attributes),
                |&number| all[number as usize].attributes == attributes,
                |&number| hash(&all[number as usize].attributes),
            );
            *last = *entry
                .or_insert_with(|| {
                    let Resolved { call, address, inside } = resolved(Node::new(0), &attributes);
                    let by_class = Reference::KINDS.map(|kind| match kind {
                        Kind::Call => call.is_some(),
                        Kind::Address => address.is_some(),
                        Kind::Inside => inside.is_some(),
                    });
                    all.push(Attributed { attributes, by_class });
                    all.len() as u32 - 1
                })
                .get();
        }
        *last
    }
}

/// What a reference leads to, as far as that is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Target {
    /// The function itself that refers.
    Itself,
    /// Functions that equal this one.
    Function(FunctionIndex),
    /// A symbol that equals only itself, or that is not defined yet.
    Symbol(Reference),
}

impl<'a> StreamingMerger<'a> {
    /// No functions, and none is held: similar ones are not merged. Of the options,
    /// [`Compare::every_function`] and [`Options::prove`] have no effect, and [`Target::call_thunks`](crate::Target::call_thunks) has one only for
    /// similar functions.
    pub fn new(options: Options<'a>) -> Self {
        let compare = Compare { every_function: false, ..options.compare };
        let options = Options { compare, ..options };
        StreamingMerger {
            options,
            scratch: Scratch::default(),
            encoding: Encoding::default(),
            packed: Vec::new(),
            stats: Stats::default(),
            symbols: Symbols::default(),
            attributes: Interned::default(),
            digests: Digests::default(),
            encodings: Vec::new(),
            functions: Vec::new(),
            references: Vec::new(),
            by_references: HashTable::new(),
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
        let number = self.symbols.number(&symbol);
        if self.symbols.function(number).is_some() {
            return Err(AddError::DuplicateSymbol(symbol));
        }
        self.symbols.add_tables(func);
        self.symbols.add_address_uses(func);
        let function = FunctionIndex::new(self.functions.len());
        let (encoding, is_new) = self.encode(func, &attributes);
        if is_new {
            let instructions = self.encoding.instructions;
            self.encodings.push(Encoded { first: function, instructions });
        }
        let references = u32::try_from(self.references.len()).expect("fewer than 2^32 references");
        for node in &self.encoding.callees {
            self.references.push(Reference(node.as_u32()));
        }
        let equal = function;
        self.functions.push(Streamed {
            symbol: number,
            attributes: self.attributes.number(attributes),
            encoding,
            equal,
            references,
        });
        self.symbols.define(number, function);
        self.stats.add_functions += 1;
        let known = if is_new { Known::First } else { self.known(function) };
        let held = match known {
            Known::Equal(_) => false,
            Known::First | Known::SameEncoding(_) => {
                !self.symbols.points_inside(number)
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
        } else if self.functions.len() >= MOST_ITEMS {
            Err(AddError::TooManyFunctions)
        } else {
            Ok(())
        }
    }

    /// Records that something besides the functions that are added, such as a data object, holds the address of
    /// `symbol`, or one that is `offset` bytes behind it. Constant time.
    pub fn add_address_use(&mut self, symbol: &UserExternalName, offset: i64) {
        self.symbols.observe_address(symbol, offset != 0);
    }

    /// The number of functions that were added.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether no function was added.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Walks a function. Returns the number of its encoding, which is one of its own if it cannot be walked, and
    /// whether the encoding is new.
    fn encode(&mut self, func: &Function, attributes: &Attributes) -> (u32, bool) {
        let symbols = ByNode(RefCell::new(&mut self.symbols));
        let context = Context::of(&self.options, attributes.key, &symbols);
        let result = canon::encode(func, &context, &mut self.scratch, &mut self.encoding);
        self.stats.walk_functions += 1;
        self.stats.walk_malformed += usize::from(result.is_err());
        let digest = match result {
            Ok(()) => {
                self.stats.walk_instructions += self.encoding.instructions as usize;
                self.stats.walk_bytes += self.encoding.size();
                code_digest(&self.encoding, attributes.alignment, &mut self.packed)
            }
            Err(canon::Malformed) => {
                self.encoding.clear();
                digests::of_malformed(self.functions.len() as u64)
            }
        };
        self.digests.number(&digest)
    }

    /// What is known of a function whose encoding another one has.
    fn known(&mut self, function: FunctionIndex) -> Known {
        let first = self.encodings[self.of(function).encoding as usize].first;
        let keeps_its_code = self.keeps_its_code(function);
        if !keeps_its_code && self.are_equal(first, function) {
            return self.equal(function, first);
        }
        let hash = self.hash(function);
        let found = self.by_references.find(hash, |&other| self.are_equal(other, function));
        if let Some(&found) = found.filter(|_| !keeps_its_code) {
            return self.equal(function, found);
        }
        let mut by_references = core::mem::take(&mut self.by_references);
        by_references.insert_unique(hash, function, |&other| self.hash(other));
        self.by_references = by_references;
        Known::SameEncoding(first)
    }

    fn equal(&mut self, function: FunctionIndex, equal: FunctionIndex) -> Known {
        self.functions[function.index()].equal = equal;
        Known::Equal(equal)
    }

    fn of(&self, function: FunctionIndex) -> &Streamed {
        &self.functions[function.index()]
    }

    fn attributes(&self, function: FunctionIndex) -> &Attributed {
        &self.attributes.all[self.of(function).attributes as usize]
    }

    /// The references of a function.
    fn references(&self, function: FunctionIndex) -> impl ExactSizeIterator<Item = Reference> {
        let next = function.index() + 1;
        let end = match next < self.functions.len() {
            true => self.functions[next].references as usize,
            false => self.references.len(),
        };
        (self.of(function).references as usize..end).map(|at| self.references[at])
    }

    /// Whether only the function's own code is right for it.
    fn keeps_its_code(&self, function: FunctionIndex) -> bool {
        let Attributes { pinned, no_merge, .. } = self.attributes(function).attributes;
        pinned || no_merge || self.symbols.points_inside(self.of(function).symbol)
    }

    fn hash(&self, function: FunctionIndex) -> u64 {
        let targets = self.references(function).fold(0u64, |hash, reference| {
            FxBuildHasher.hash_one((hash, self.target(function, reference)))
        });
        FxBuildHasher.hash_one((self.of(function).encoding, targets))
    }

    /// Whether two functions have the same encoding, and what they refer to is known to be equal, place by place.
    fn are_equal(&self, a: FunctionIndex, b: FunctionIndex) -> bool {
        let [of_a, of_b] = [a, b].map(|function| self.references(function));
        self.of(a).encoding == self.of(b).encoding
            && of_a.len() == of_b.len()
            && of_a
                .zip(of_b)
                .all(|(in_a, in_b)| in_a == in_b || self.target(a, in_a) == self.target(b, in_b))
    }

    /// What a reference of `function` leads to.
    fn target(&self, function: FunctionIndex, reference: Reference) -> Target {
        match self.by_class(reference) {
            Some(to) if to == function => Target::Itself,
            Some(to) => Target::Function(self.of(to).equal),
            None => Target::Symbol(reference),
        }
    }

    /// The function that a reference leads to, if it is compared by class.
    fn by_class(&self, reference: Reference) -> Option<FunctionIndex> {
        let function = self.symbols.function(reference.symbol())?;
        self.attributes(function).by_class[reference.kind() as usize].then_some(function)
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
        self.digests = Digests::default();
        self.by_references = HashTable::new();
        let numbering = Numbering { functions: self.functions.len(), data: 0 };
        let node = |reference: Reference| match self.by_class(reference) {
            Some(function) => Node::new(function.index()),
            None => Node::new(numbering.functions + reference.0 as usize),
        };
        let references = self.symbols.len() as u32 * Reference::KINDS.len() as u32;
        let nodes: Vec<Node> = (0..references).map(Reference).map(node).collect();
        let encoded = |streamed: &Streamed| &self.encodings[streamed.encoding as usize];
        let mut bucketed = Bucketed::of_encodings(
            numbering,
            self.functions.iter().map(|streamed| streamed.encoding).collect(),
            self.encodings.len(),
            |function| {
                let references = self.references(FunctionIndex::new(function));
                references.map(|reference| nodes[reference.0 as usize])
            },
            self.functions.iter().map(|streamed| Walked::Yes {
                instructions: encoded(streamed).instructions,
                shape: self.held.shape(streamed.equal).unwrap_or_default(),
            }),
        );
        bucketed.partition.push_alone(nodes.len());
        self.stats.refine_classes_before = bucketed.partition.len();
        refine(&mut bucketed.partition, &bucketed.nodes, &bucketed.references);
        self.stats.refine_classes_after = bucketed.partition.len();
        let mut unit = Unit::default();
        unit.reserve(self.functions.len());
        for Streamed { symbol, attributes, .. } in self.functions.iter() {
            let attributes = self.attributes.all[*attributes as usize].attributes;
            let pinned = attributes.pinned || self.symbols.points_inside(*symbol);
            let attributes = Attributes { pinned, ..attributes };
            unit.add(self.symbols.name(*symbol).clone(), attributes, 0, 0);
        }
        let observed = self.symbols.observed();
        // These are for functions whose IR is there.
        let mut options = self.options;
        options.target.call_thunks = None;
        options.target.size_model = None;
        let input =
            Input { options: &options, observed: &observed, bucketed: &bucketed, earlier: None };
        let stats = core::mem::take(&mut self.stats);
        let (mut plan, _) = decide(input, unit, Beyond::default(), &mut NoBodies, stats);
        if self.held.has_two() {
            let encodings = Encodings::from(bucketed).with_compiled(self.compiled(&plan));
            let mut bodies =
                HeldBodies { bodies, equal: |function: FunctionIndex| self.of(function).equal };
            held::similar(&mut plan, &observed, &encodings, &mut bodies, &self.options);
        }
        plan
    }

    /// The functions whose IR is not there any more, and what their code calls after `plan`.
    fn compiled(&self, plan: &Plan) -> Compiled {
        let mut compiled = Compiled { functions: EntitySet::new(), callees: EntitySet::new() };
        for function in (0..self.functions.len()).map(FunctionIndex::new) {
            if self.held.shape(self.of(function).equal).is_some() {
                continue;
            }
            compiled.functions.insert(function);
            for reference in self.references(function) {
                if let Some(to) = self.symbols.function(reference.symbol()) {
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
