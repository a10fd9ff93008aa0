//! Identical merging of functions that arrive one at a time and whose IR is not kept.
//!
//! [`StreamingMerger::add`] walks a function once and says at once what is known of it: that it equals one that was
//! added before, so that it need not be compiled, or that it is the first of its kind. Kept of it are its symbol, a
//! number for its encoding and its references; encodings are compared by BLAKE3 digests of 256 bits, as across the
//! units of an incremental run ([`MergeCache`](crate::MergeCache)). [`StreamingMerger::plan`] refines what was found
//! to the coarsest congruence and decides as [`Merger`](crate::Merger) does, without IR: references are redirected
//! where code is linked, by [`Plan::call_symbol`] and [`Plan::address_symbol`] on its relocations.
//!
//! It does not change IR. So functions that differ only in facts, such as `readonly`, or in their alignment are not
//! equal here, although `Merger` merges them; similar functions and data objects are not merged, and nothing is proved,
//! for which there would have to be IR.

use crate::canon::{self, Context, Digest, Encoding, Fact, Region, Scratch};
use crate::congruence::{Bucketed, refine};
use crate::decide::{Input, decide};
use crate::interner::Interner;
use crate::lists::Lists;
use crate::options::{Canonicalize, Options, Prove, Similar};
use crate::plan::Plan;
use crate::stats::Stats;
use crate::unit::{
    AddError, Attributes, Beyond, Bodies, CodeSizes, FunctionIndex, Item, NoUnit, Node, Observed,
    ResolveSymbol, Resolved, Unit, resolved,
};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use core::hash::BuildHasher;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_entity::EntityRef;
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

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

/// Collects functions one at a time, without keeping IR, and plans the disposition of each.
///
/// The caller compiles each function that is not [`Known::Equal`], and may then drop its IR. After
/// [`plan`](StreamingMerger::plan), it emits what [`Plan::outputs`] lists; [`Emit::Body`](crate::Emit::Body) is
/// the code that was compiled for the function, or for the one that it equals. References in emitted code go to
/// [`Plan::call_symbol`] if all that they do is call, and to [`Plan::address_symbol`] otherwise.
///
/// ```
/// # use cranelift_codegen::ir::{Function, UserExternalName};
/// # use cranelift_mergefunc::{Addresses, Attributes, Known, Linkage, Options, StreamingMerger, cranelift_codegen};
/// # let text = "function u0:0() -> i32 { block0: v0 = iconst.i32 7 return v0 }
/// # function u0:1() -> i32 { block0: v9 = iconst.i32 7 return v9 }";
/// # let functions = cranelift_reader::parse_functions(text).unwrap();
/// let mut merger = StreamingMerger::new(Options::default());
/// let mut to_compile = Vec::new();
/// for func in functions {
///     let symbol = func.name.get_user().unwrap().clone();
///     let attributes = Attributes { linkage: Linkage::Local, ..Attributes::default() };
///     let (_, known) = merger.add(symbol, &func, attributes).unwrap();
///     match known {
///         Known::Equal(_) => {}
///         Known::First | Known::SameEncoding(_) => to_compile.push(func),
///     }
/// }
/// assert_eq!(to_compile.len(), 1);
/// let plan = merger.plan(None);
/// let callee = UserExternalName::new(0, 1);
/// assert_eq!(*plan.call_symbol(&callee), UserExternalName::new(0, 0));
/// ```
pub struct StreamingMerger<'a> {
    options: Options<'a>,
    unit: Unit,
    observed: Observed,
    scratch: Scratch,
    encoding: Encoding,
    bytes: Vec<u8>,
    stats: Stats,
    symbols: References,
    encodings: Interner<Digest>,
    /// The first function of each encoding.
    first: Vec<FunctionIndex>,
    functions: Vec<Streamed>,
    /// The references of each function.
    references: Lists<Reference>,
    /// The functions that equal no earlier one, by encoding and references.
    by_references: HashTable<FunctionIndex>,
}

/// What is kept of a function besides its symbol, attributes and references.
#[derive(Clone, Copy)]
struct Streamed {
    encoding: u32,
    /// The first function that it is known to equal, which may be itself.
    equal: FunctionIndex,
}

/// A reference by a symbol, of one of the kinds that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Reference(u32);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Call,
    Address,
    Inside,
}

impl Reference {
    const KINDS: [Kind; 3] = [Kind::Call, Kind::Address, Kind::Inside];

    fn new(symbol: u32, kind: Kind) -> Reference {
        Reference(symbol * Self::KINDS.len() as u32 + kind as u32)
    }

    fn symbol(self) -> u32 {
        self.0 / Self::KINDS.len() as u32
    }

    fn kind(self) -> Kind {
        Self::KINDS[self.0 as usize % Self::KINDS.len()]
    }
}

/// The symbols that are referred to.
#[derive(Default)]
struct References(RefCell<Interner<UserExternalName>>);

impl ResolveSymbol for References {
    /// Every symbol is compared by a node, since what it is may not be known yet.
    fn resolve(&self, symbol: &UserExternalName) -> Option<Resolved> {
        let number = self.0.borrow_mut().number(symbol, UserExternalName::clone);
        let node = |kind| Some(Node::from_u32(Reference::new(number, kind).0));
        Some(Resolved {
            call: node(Kind::Call),
            address: node(Kind::Address),
            inside: node(Kind::Inside),
        })
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
    /// No functions. Of the options, [`Options::similar`], [`Options::canonicalize`], [`Options::call_thunks`],
    /// [`Options::prebucket`] and [`Options::prove`] have no effect.
    pub fn new(options: Options<'a>) -> Self {
        let options = Options {
            similar: Similar::OFF,
            canonicalize: Canonicalize::None,
            call_thunks: None,
            prove: Prove::Never,
            ..options
        };
        StreamingMerger {
            options,
            unit: Unit::default(),
            observed: Observed::default(),
            scratch: Scratch::default(),
            encoding: Encoding::default(),
            bytes: Vec::new(),
            stats: Stats::default(),
            symbols: References::default(),
            encodings: Interner::default(),
            first: Vec::new(),
            functions: Vec::new(),
            references: Lists::new(),
            by_references: HashTable::new(),
        }
    }

    /// Adds a function under the symbol by which the others refer to it, and says what is known of it. A function may
    /// be referred to before it is added. One into which something that is added later points, behind its address, must
    /// be [`Attributes::pinned`].
    ///
    /// One walk, a digest of the encoding, and constant time for each reference, however many functions there are.
    /// 60 bytes are kept of a function, 4 for each of its references, 18 for each symbol that is referred to, and 46 for each
    /// different encoding, of which 32 are its digest.
    ///
    /// # Errors
    ///
    /// See [`AddError`]. Nothing is added then.
    pub fn add(
        &mut self,
        symbol: UserExternalName,
        func: &Function,
        attributes: Attributes,
    ) -> Result<(FunctionIndex, Known), AddError> {
        self.unit.check(&symbol, u64::from(attributes.alignment))?;
        if func.layout.entry_block().is_none() {
            return Err(AddError::NoBody(symbol));
        }
        self.observed.add_tables(func, &NoUnit);
        self.observed.add_address_uses(func, &NoUnit);
        let encoding = self.encode(func, &attributes);
        self.stats.add_functions += 1;
        let function = self.unit.add(symbol, attributes, 0, self.encoding.instructions);
        let is_new = encoding as usize == self.first.len();
        if is_new {
            self.first.push(function);
        }
        let references = self.encoding.callees.iter().map(|node| Reference(node.as_u32()));
        self.references.push(references);
        self.functions.push(Streamed { encoding, equal: function });
        Ok((function, self.known(function, is_new)))
    }

    /// Records that something besides the functions that are added, such as a data object, holds the address of
    /// `symbol`, or one that is `offset` bytes behind it. Constant time.
    pub fn add_address_use(&mut self, symbol: &UserExternalName, offset: i64) {
        self.observed.add_address(symbol, offset);
    }

    /// The number of functions that were added.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether no function was added.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Walks a function, and returns the number of its encoding; one of its own if it cannot be walked.
    fn encode(&mut self, func: &Function, attributes: &Attributes) -> u32 {
        let context = Context {
            policy: self.options.compare,
            target: self.options.target,
            key: attributes.key,
            symbols: &self.symbols,
        };
        let result = canon::encode(func, &context, &mut self.scratch, &mut self.encoding);
        self.stats.walk_functions += 1;
        self.stats.walk_malformed += usize::from(result.is_err());
        let digest = match result {
            Ok(()) => {
                self.stats.walk_instructions += self.encoding.instructions as usize;
                self.stats.walk_bytes += self.encoding.size();
                digest(&self.encoding, attributes.alignment, &mut self.bytes)
            }
            Err(canon::Malformed) => {
                self.encoding.clear();
                // The input of no other digest is as short.
                *blake3::hash(&self.functions.len().to_le_bytes()).as_bytes()
            }
        };
        self.encodings.number(&digest, Digest::clone)
    }

    fn known(&mut self, function: FunctionIndex, is_new: bool) -> Known {
        let hash = self.hash(function);
        if is_new {
            self.remember(function, hash);
            return Known::First;
        }
        let encoding = self.functions[function.index()].encoding;
        let first = self.first[encoding as usize];
        let found = self.by_references.find(hash, |&other| self.are_equal(other, function));
        // What that one refers to may have been defined since.
        let found = found.copied().or_else(|| self.are_equal(first, function).then_some(first));
        let found = found.filter(|_| !self.keeps_its_code(function));
        match found {
            Some(equal) => {
                self.functions[function.index()].equal = equal;
                Known::Equal(equal)
            }
            None => {
                self.remember(function, hash);
                Known::SameEncoding(first)
            }
        }
    }

    /// Whether only the function's own code is right for it.
    fn keeps_its_code(&self, function: FunctionIndex) -> bool {
        let Attributes { pinned, no_merge, .. } = *self.unit.functions[function].attributes;
        pinned || no_merge || self.observed.points_inside(&self.unit.functions[function].symbol)
    }

    fn remember(&mut self, function: FunctionIndex, hash: u64) {
        let mut by_references = core::mem::take(&mut self.by_references);
        by_references.insert_unique(hash, function, |&other| self.hash(other));
        self.by_references = by_references;
    }

    fn hash(&self, function: FunctionIndex) -> u64 {
        let targets = self.references.of(function.index()).iter();
        let targets = targets.fold(0u64, |hash, &reference| {
            FxBuildHasher.hash_one((hash, self.target(function, reference)))
        });
        FxBuildHasher.hash_one((self.functions[function.index()].encoding, targets))
    }

    /// Whether two functions have the same encoding, and what they refer to is known to be equal, place by place.
    fn are_equal(&self, a: FunctionIndex, b: FunctionIndex) -> bool {
        let [of_a, of_b] = [a, b].map(|function| self.references.of(function.index()));
        self.functions[a.index()].encoding == self.functions[b.index()].encoding
            && of_a.len() == of_b.len()
            && of_a
                .iter()
                .zip(of_b)
                .all(|(&in_a, &in_b)| in_a == in_b || self.target(a, in_a) == self.target(b, in_b))
    }

    /// What a reference of `function` leads to.
    fn target(&self, function: FunctionIndex, reference: Reference) -> Target {
        match self.by_class(reference) {
            Some(Item::Function(to)) if to == function => Target::Itself,
            Some(Item::Function(to)) => Target::Function(self.functions[to.index()].equal),
            Some(Item::Data(_)) | None => Target::Symbol(reference),
        }
    }

    /// What a reference leads to, if it is compared by class.
    fn by_class(&self, reference: Reference) -> Option<Item> {
        let item = self.unit.item(self.symbols.0.borrow().value(reference.symbol()))?;
        let Item::Function(function) = item else {
            return None;
        };
        let node = Node::new(function.index());
        let Resolved { call, address, inside } =
            resolved(node, &self.unit.functions[function].attributes);
        let node = match reference.kind() {
            Kind::Call => call,
            Kind::Address => address,
            Kind::Inside => inside,
        };
        node.map(|_| item)
    }

    /// Finds the classes of equal functions and decides the disposition of every function.
    ///
    /// `sizes` has the sizes of native code, for the decisions that depend on one. No IR is requested. The result does
    /// not depend on the order in which functions were added. Linear in the number of functions and references, up to
    /// a logarithm.
    pub fn plan(mut self, sizes: Option<&mut dyn CodeSizes>) -> Plan {
        let numbering = self.unit.numbering();
        let symbols = self.symbols.0.borrow().len();
        let node = |reference: Reference| match self.by_class(reference) {
            Some(item) => numbering.node(item),
            None => Node::new(numbering.functions + reference.0 as usize),
        };
        let nodes: Vec<Node> =
            (0..symbols as u32 * Reference::KINDS.len() as u32).map(Reference).map(node).collect();
        let mut bucketed = Bucketed::of_encodings(
            numbering,
            self.functions.iter().map(|streamed| streamed.encoding).collect(),
            self.first.len(),
            |function| {
                let references = self.references.of(function).iter();
                references.map(|reference| nodes[reference.0 as usize])
            },
            self.unit.instructions.values().copied(),
        );
        bucketed.partition.push_alone(nodes.len());
        self.stats.refine_classes_before = bucketed.partition.len();
        refine(&mut bucketed.partition, &bucketed.nodes, &bucketed.references);
        self.stats.refine_classes_after = bucketed.partition.len();
        let StreamingMerger { options, unit, observed, stats, .. } = self;
        let input =
            Input { options: &options, observed: &observed, bucketed: &bucketed, earlier: None };
        decide(input, unit, Beyond::default(), &mut Sizes(sizes), stats).0
    }
}

/// A digest of all that two functions must have in common for the code of the one to be that of the other, but for
/// what they refer to. `bytes` is memory to be reused: one long input takes far less time than many short ones.
fn digest(encoding: &Encoding, alignment: u32, bytes: &mut Vec<u8>) -> Digest {
    bytes.clear();
    for stream in encoding.key() {
        bytes.extend_from_slice(&(stream.len() as u64).to_le_bytes());
        bytes.extend_from_slice(stream);
    }
    bytes.extend_from_slice(&alignment.to_le_bytes());
    for fact in &encoding.facts {
        match *fact {
            Fact::Block { cold } => bytes.extend_from_slice(&[0, cold.into()]),
            Fact::Access { flags, region: None } => bytes.extend_from_slice(&[1, flags]),
            Fact::Access { flags, region: Some(Region { number, user_id }) } => {
                bytes.extend_from_slice(&[2, flags]);
                bytes.extend_from_slice(&number.to_le_bytes());
                bytes.extend_from_slice(&user_id.to_le_bytes());
            }
        }
    }
    *blake3::hash(bytes).as_bytes()
}

/// The sizes that the caller knows. There is no IR.
struct Sizes<'a>(Option<&'a mut dyn CodeSizes>);

impl Bodies for Sizes<'_> {
    fn body(&mut self, _: FunctionIndex) -> &Function {
        unreachable!("without call thunks, fresh symbols and proofs, no decision needs a body")
    }

    fn code_sizes(&mut self) -> Option<&mut dyn CodeSizes> {
        match &mut self.0 {
            Some(sizes) => Some(&mut **sizes),
            None => None,
        }
    }
}

impl fmt::Debug for StreamingMerger<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamingMerger").field("len", &self.len()).finish_non_exhaustive()
    }
}
