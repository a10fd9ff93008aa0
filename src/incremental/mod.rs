//! The merge cache: the record of functions and data objects that were emitted, so that later
//! units can merge into them.
//!
//! A JIT compiles functions as they arrive. A function that equals one that was compiled long ago
//! should not be compiled a second time, but neither the IR nor the encoding of everything that was
//! ever emitted can be kept. [`MergeCache`] has a corpus (`corpus`) of the classes that earlier
//! units emitted or eliminated, the bodies into which functions of each can be merged, and
//! the substitutes of eliminated items. `MergeCache::find` looks the classes of a new unit up,
//! callees first.
//!
//! It does *not* find a class whose emitted bodies are aligned to less than a later function, since
//! emitted code cannot be moved; and a class that the corpus does not find. Such a function begins
//! a class of its own, which later functions can find.
//!
//! ```
//! use cranelift_mergefunc::incremental::MergeCache;
//! use cranelift_mergefunc::{Attributes, Linkage, Merger, Options};
//!
//! # let text = "function u0:0() -> i32 { block0: v0 = iconst.i32 7 return v0 }
//! # function u0:1() -> i32 { block0: v9 = iconst.i32 7 return v9 }";
//! # let units = cranelift_reader::parse_functions(text).unwrap();
//! let local = Attributes { linkage: Linkage::Local, ..Attributes::default() };
//! let mut cache = MergeCache::default();
//! let mut merged = 0;
//! for func in units {
//!     let mut merger = Merger::after(&cache, Options::default());
//!     merger.add(func.name.get_user().unwrap().clone(), &func, local).unwrap();
//!     let (plan, increment) = merger.plan_increment(&mut vec![func]);
//!     merged += plan.stats().merged.functions;
//!     // Emit the unit; then later units can merge into its functions.
//!     cache.extend(&increment);
//! }
//! assert_eq!(merged, 1);
//! ```

mod eliminated;
mod symbols;

pub(crate) use eliminated::{NewlyEliminated, ReferredTo, add_eliminated};
pub(crate) use symbols::{External, ExternalNode, UnitSymbols};

use crate::canon::Digest;
use crate::checker::{Learned, Memory};
use crate::congruence::{Bucketed, Partition, components};
use crate::corpus::{Corpus, Kind, KnownIndex, Reference, Sought, SoughtTarget, Target};
use crate::lists::Lists;
use crate::plan::{Disposition, Plan};
pub use crate::plan::{LateThunk, NoCode};
use crate::unit::{Alignment, Item, Node, Numbering, Resolved};
use alloc::vec::Vec;
use cranelift_codegen::ir::UserExternalName;
use cranelift_entity::{EntityRef, PrimaryMap};
use eliminated::Eliminated;

/// The record of a class whose code was emitted or eliminated, besides its record in the corpus.
#[derive(Debug)]
struct Class {
    bodies: Vec<Body>,
    /// The alignment in bytes on which code may rely that takes the address of a member.
    alignment: u64,
}

/// A body that callers of equal functions may reach.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub symbol: UserExternalName,
    /// In bytes; 0 if nothing can be merged into it.
    pub alignment: u64,
}

/// The merge cache: the record of the code that earlier units emitted and eliminated.
///
/// Memory: see [`MergeCache::size`].
///
/// See the [example](crate::incremental).
#[derive(Debug, Default)]
pub struct MergeCache {
    corpus: Corpus,
    classes: PrimaryMap<KnownIndex, Class>,
    pub(crate) eliminated: Eliminated,
    /// The checker's record for proofs of later units, by means of its own.
    pub(crate) memory: Memory,
}

/// The record that a unit adds to a [`MergeCache`], once it is emitted ([`MergeCache::extend`]).
///
/// See the [example](crate::incremental).
#[derive(Clone, Debug)]
pub struct Increment {
    pub(crate) eliminated: NewlyEliminated,
    /// The checker's new record for proofs of later units.
    pub(crate) learned: Learned,
    /// The classes into which later units may merge, if they may.
    pub(crate) record: Option<Record>,
}

/// The classes, symbols and bodies that a unit adds to a [`MergeCache`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// The classes of the unit that were walked.
    classes: Vec<RecordedClass>,
    /// The number of each class of the unit in `classes`, if it has one.
    numbers: Vec<Option<u32>>,
    symbols: Vec<(UserExternalName, u32, Resolved)>,
    bodies: Vec<(u32, Body)>,
}

/// A class of a unit.
#[derive(Clone, Debug)]
enum RecordedClass {
    Old(KnownIndex),
    New {
        digest: Digest,
        /// By symbol, so that it does not matter to which class each belongs.
        references: Vec<(UserExternalName, Kind)>,
        is_cyclic: bool,
        alignment: u64,
    },
}

/// The target of a reference of a class of a unit.
enum Leads<'a> {
    Out(&'a ExternalNode),
    /// To an item that could not be walked, so that it equals nothing.
    Unwalked,
    /// To a class of the unit.
    Class(usize),
}

/// The classes of a unit and what they refer to, for looking them up.
pub(crate) struct Graph<'a> {
    bucketed: &'a Bucketed,
    external: &'a External,
    /// The row of one member, by class.
    row: Vec<Option<u32>>,
    /// Strongly connected components, callees first.
    components: Lists<u32>,
    /// The component of each class, and its place there.
    place: Vec<(u32, u32)>,
    /// The alignment on which code relies that takes the address of a member, by class.
    alignment: &'a [Alignment],
}

impl<'a> Graph<'a> {
    /// Linear in the number of references. `alignment` is the alignment on which code relies that
    /// takes the address of a member, by class.
    pub fn new(bucketed: &'a Bucketed, external: &'a External, alignment: &'a [Alignment]) -> Self {
        let mut row = alloc::vec![None; bucketed.partition.len()];
        for (at, node) in bucketed.nodes.iter().enumerate() {
            let class = bucketed.partition.class_of(node.index());
            row[class].get_or_insert(at as u32);
        }
        let place = alloc::vec![(u32::MAX, 0); row.len()];
        let mut graph =
            Graph { bucketed, external, row, components: Lists::new(), place, alignment };
        for component in components(graph.row.len(), |class| graph.classes_used(class)).iter() {
            if graph.row[component[0] as usize].is_some() {
                graph.components.push(component.iter().copied());
            }
        }
        for (index, component) in (0..).zip(graph.components.iter()) {
            for (at, &class) in (0..).zip(component) {
                graph.place[class as usize] = (index, at);
            }
        }
        graph
    }

    fn partition(&self) -> &Partition {
        &self.bucketed.partition
    }

    fn nodes_used(&self, class: usize) -> &[Node] {
        self.row[class].map_or(&[], |row| self.bucketed.references.of(row as usize))
    }

    fn classes_used(&self, class: usize) -> impl Iterator<Item = u32> + '_ {
        self.nodes_used(class).iter().map(|node| self.partition().class_of(node.index()) as u32)
    }

    fn leads(&self, node: Node) -> Leads<'_> {
        let Numbering { functions, data } = self.bucketed.numbering;
        match node.index().checked_sub(functions + data) {
            Some(external) => Leads::Out(&self.external.nodes[external]),
            None => match self.partition().class_of(node.index()) {
                class if self.row[class].is_some() => Leads::Class(class),
                _ => Leads::Unwalked,
            },
        }
    }

    /// The references of a class, by a symbol for each. One within the unit is compared by class,
    /// so it is of a kind that is.
    fn references(&self, class: usize) -> impl Iterator<Item = (&UserExternalName, Kind)> {
        self.nodes_used(class).iter().map(|&node| match self.leads(node) {
            Leads::Out(ExternalNode { symbol, kind, class: _ }) => (symbol, *kind),
            Leads::Unwalked | Leads::Class(_) => {
                let kind = match self.bucketed.numbering.item(node) {
                    Item::Function(_) => Kind::Call,
                    Item::Data(_) => Kind::Address,
                };
                (&self.external.symbols[node.index()], kind)
            }
        })
    }

    fn digest(&self, class: usize) -> Digest {
        let row = self.row[class].expect("only classes with a row are looked up");
        self.bucketed.digests[row as usize]
    }

    fn is_cyclic(&self, component: &[u32]) -> bool {
        component.len() > 1
            || self.classes_used(component[0] as usize).any(|class| class == component[0])
    }
}

impl MergeCache {
    /// An empty cache.
    pub fn new() -> Self {
        MergeCache::default()
    }

    /// The number of functions and data objects that are remembered, so that later ones can be
    /// compared with them. Eliminated items are known in any case.
    pub fn remembered(&self) -> usize {
        self.corpus.symbols.defined()
    }

    /// Why there is no code or data under a symbol, if there is none because `plan`, which was made
    /// after the units of this cache, or one of these units merged it away: see
    /// [`Plan::without_code`]. Constant time.
    pub fn without_code(&self, plan: &Plan, symbol: &UserExternalName) -> Option<NoCode> {
        match plan.function(symbol).is_some() || plan.data(symbol).is_some() {
            true => plan.without_code(symbol),
            false => self.eliminated.without_code(symbol),
        }
    }

    /// The memory that is held, in bytes, as far as it grows with the emitted code.
    ///
    /// About 25 bytes for each function, and 100 more for each class; about twice as much where
    /// plans are proved ([`Options::prove`](crate::Options::prove)), which grows with the
    /// references of a function as well.
    pub fn size(&self) -> usize {
        let MergeCache { corpus, classes, eliminated, memory } = self;
        let bodies: usize = classes.values().map(|class| class.bodies.len()).sum();
        corpus.size()
            + classes.len() * size_of::<Class>()
            + bodies * size_of::<Body>()
            + eliminated.size()
            + memory.size()
    }

    /// Whether an earlier unit had a function or data object of this symbol.
    pub(crate) fn had(&self, symbol: &UserExternalName) -> bool {
        let symbols = &self.corpus.symbols;
        symbols.get(symbol).is_some_and(|number| symbols.item(number).is_some())
    }

    /// The class by which a reference to a symbol is compared, unless it is compared by the symbol.
    fn by_class(&self, symbol: &UserExternalName, kind: Kind) -> Option<KnownIndex> {
        self.corpus.symbols.by_class_of(symbol, kind)
    }

    /// The cached class that each class of a unit equals, by class of the unit.
    ///
    /// Linear in the size of the unit and in the number of emitted cyclic classes that have the
    /// digest of one of the unit.
    pub(crate) fn find(&self, graph: &Graph<'_>) -> Vec<Option<KnownIndex>> {
        let mut found = alloc::vec![None; graph.row.len()];
        for component in graph.components.iter() {
            let sought = |&class: &u32| self.sought(graph, &found, component[0], class as usize);
            // A class that refers to a new class is new.
            let Some(sought) = component.iter().map(sought).collect::<Option<Vec<Sought>>>() else {
                continue;
            };
            // References to a class of the unit may go to the emitted code of a cached class: the
            // addresses must be aligned as much. (A caller of the one may be merged into a caller
            // of the other, whatever the dispositions of the members themselves.)
            let fits = |member: u32, known: KnownIndex| {
                let class = component[member as usize] as usize;
                graph.alignment[class].bytes() <= self.classes[known].alignment
            };
            for (&class, known) in
                component.iter().zip(self.corpus.find(&sought, fits).into_iter().flatten())
            {
                found[class as usize] = Some(known);
            }
        }
        found
    }

    /// A class of the unit, of the component of `first`. `None` if it refers to something new.
    fn sought(
        &self,
        graph: &Graph<'_>,
        found: &[Option<KnownIndex>],
        first: u32,
        class: usize,
    ) -> Option<Sought> {
        let component = graph.place[first as usize].0;
        let symbol = |symbol| Some(Target::Symbol(self.corpus.symbols.get(symbol)?));
        let targets = graph.nodes_used(class).iter().map(|&node| {
            let target = match graph.leads(node) {
                Leads::Out(ExternalNode { symbol: own, kind: _, class: None }) => symbol(own),
                Leads::Out(ExternalNode { symbol: _, kind: _, class }) => class.map(Target::Class),
                Leads::Unwalked => symbol(&graph.external.symbols[node.index()]),
                Leads::Class(class) => match graph.place[class] {
                    (at, member) if at == component => return Some(SoughtTarget::Member(member)),
                    _ => found[class].map(Target::Class),
                },
            };
            target.map(SoughtTarget::Known)
        });
        self.corpus.sought(&graph.digest(class), targets.collect::<Option<Vec<_>>>()?)
    }

    /// The alignment in bytes on which code may rely that takes the address of a member of a cached
    /// class.
    pub(crate) fn alignment(&self, class: KnownIndex) -> u64 {
        self.classes[class].alignment
    }

    /// A body of `class` into which a function with this alignment can be merged.
    pub(crate) fn body(&self, class: KnownIndex, alignment: u64) -> Option<&Body> {
        self.classes[class].bodies.iter().find(|body| body.alignment >= alignment)
    }

    /// Adds the emitted code of a unit, once it is emitted: the increment that
    /// [`Merger::plan_increment`] returned besides the plan.
    ///
    /// [`Merger::plan_increment`]: crate::Merger::plan_increment
    pub fn extend(&mut self, increment: &Increment) {
        let Increment { eliminated, learned, record } = increment;
        self.eliminated.extend(eliminated);
        self.memory.extend(learned);
        if let Some(record) = record {
            self.add_record(record);
        }
    }

    fn add_record(&mut self, record: &Record) {
        let Record { classes, numbers: _, symbols, bodies } = record;
        let MergeCache { corpus, classes: cached, eliminated: _, memory: _ } = self;
        let known = classes.iter().map(|class| match class {
            RecordedClass::Old(known) => *known,
            RecordedClass::New { digest, references, is_cyclic: _, alignment } => {
                cached.push(Class { bodies: Vec::new(), alignment: *alignment });
                let symbols = &mut corpus.symbols;
                let references: Vec<Reference> = references
                    .iter()
                    .map(|(name, kind)| Reference::new(symbols.number(name), *kind))
                    .collect();
                corpus.push(digest, references)
            }
        });
        let known: Vec<KnownIndex> = known.collect();
        for (symbol, class, resolved) in symbols {
            let symbol = corpus.symbols.number(symbol);
            corpus.define(symbol, known[*class as usize], resolved);
        }
        for (class, body) in bodies {
            cached[known[*class as usize]].bodies.push(body.clone());
        }
        for (class, &known) in classes.iter().zip(&known) {
            if let RecordedClass::New { is_cyclic, .. } = class {
                corpus.index(known, *is_cyclic);
            }
        }
    }
}

impl Record {
    /// The record of a unit, whose classes were `found`: symbols and bodies are still to be added.
    pub fn new(graph: &Graph<'_>, found: &[Option<KnownIndex>]) -> Record {
        let mut record = Record { numbers: alloc::vec![None; found.len()], ..Record::default() };
        for component in graph.components.iter() {
            let is_cyclic = graph.is_cyclic(component);
            for class in component.iter().map(|&class| class as usize) {
                record.numbers[class] = Some(record.classes.len() as u32);
                let references = graph.references(class);
                record.classes.push(match found[class] {
                    Some(known) => RecordedClass::Old(known),
                    None => RecordedClass::New {
                        digest: graph.digest(class),
                        references: references.map(|(name, kind)| (name.clone(), kind)).collect(),
                        is_cyclic,
                        alignment: graph.alignment[class].bytes(),
                    },
                });
            }
        }
        record
    }

    /// Adds a function or data object of a class of the unit, if that was walked. The order must
    /// not depend on that of insertion: the first that is compared by class names the class.
    pub fn add_symbol(&mut self, class: usize, symbol: &UserExternalName, resolved: Resolved) {
        if let Some(class) = self.numbers[class] {
            self.symbols.push((symbol.clone(), class, resolved));
        }
    }

    /// Adds a body that callers of equal functions may reach, if its class was walked.
    pub fn add_body(&mut self, class: usize, body: Body) {
        if let Some(class) = self.numbers[class] {
            self.bodies.push((class, body));
        }
    }

    /// Restricts the record to bodies that a plan keeps.
    pub fn retain_kept(&mut self, plan: &Plan) {
        self.bodies.retain(|(_, body)| {
            let function = plan.function(&body.symbol);
            function.is_none_or(|function| plan.entry(function).disposition() == Disposition::Keep)
        });
    }
}
