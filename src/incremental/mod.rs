//! The merge cache: what is kept of functions and data objects that were emitted, so that later units can merge
//! into them.
//!
//! A JIT compiles functions as they arrive. A function that equals one that was compiled long ago should not be
//! compiled a second time, but neither the IR nor the encoding of everything that was ever emitted can be kept.
//! [`MergeCache`] keeps, of each class, a BLAKE3 digest of the encoding together with the classes that it refers
//! to. Digests are trusted without comparing encodings, as in a content-addressed
//! store: a wrong merge would need two encodings with the same 256 bits.
//!
//! `MergeCache::find` looks the classes of a new unit up, callees first. A class that is not part of a cycle is
//! one lookup. The classes of a cycle (mutual recursion) are equal to an emitted cycle if walking both in step
//! never meets two that differ, which is the greatest fixpoint once more.
//!
//! What it does *not* find: a function whose callee was not yet defined when the function was emitted, if that
//! callee later turns out to equal another one; and a class whose emitted bodies are aligned to less than a later
//! function, since emitted code cannot be moved. Such a function begins a class of its own, which later functions can find.

mod eliminated;
mod symbols;

pub(crate) use eliminated::{NewlyEliminated, ReferredTo, add_eliminated};
pub(crate) use symbols::{External, UnitSymbols};

use crate::canon::Digest;
use crate::checker::{Learned, Memory};
use crate::congruence::{Bucketed, Partition, components};
use crate::lists::Lists;
use crate::plan::{Disposition, Plan};
pub use crate::plan::{LateThunk, NoCode};
use crate::unit::{Alignment, Node, Numbering};
use alloc::boxed::Box;
use alloc::vec::Vec;
use cranelift_codegen::ir::UserExternalName;
use cranelift_entity::{EntityRef, PrimaryMap, entity_impl};
use eliminated::Eliminated;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// A class of which code was emitted or eliminated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CachedClass(u32);
entity_impl!(CachedClass, "emitted");

/// An external node: what a reference out of the unit is compared by.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ExternalNode {
    /// This symbol and no other.
    Symbol(UserExternalName),
    /// The class of the function or data object of this symbol: the first of its class, or one that is not defined
    /// yet.
    Class(UserExternalName),
}

/// What is known of a symbol from earlier units.
#[derive(Clone, Copy, Debug)]
struct Known {
    class: CachedClass,
    /// Whether calls to it, and uses of its address, are compared by the class.
    calls: bool,
    addresses: bool,
}

#[derive(Debug)]
struct Class {
    leader: Option<UserExternalName>,
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

/// The merge cache: what is kept of the code that earlier units emitted and eliminated.
///
/// Memory: see [`MergeCache::size`].
#[derive(Debug, Default)]
pub struct MergeCache {
    symbols: HashMap<UserExternalName, Known, FxBuildHasher>,
    classes: PrimaryMap<CachedClass, Class>,
    /// Classes that are not part of a cycle, by digests of their encodings and references.
    by_key: HashMap<Digest, CachedClass, FxBuildHasher>,
    /// Classes that are part of a cycle, by the digests of their encodings.
    cyclic: HashMap<Digest, Vec<CachedClass>, FxBuildHasher>,
    cycles: HashMap<CachedClass, Cycle, FxBuildHasher>,
    pub(crate) eliminated: Eliminated,
    /// What the checker remembers for proofs of later units, by means of its own.
    pub(crate) memory: Memory,
}

/// A class that is part of a cycle of references.
#[derive(Debug)]
struct Cycle {
    digest: Digest,
    references: Box<[ExternalNode]>,
}

/// What a unit adds to a [`MergeCache`], once it is emitted ([`MergeCache::extend`]).
#[derive(Clone, Debug)]
pub struct Increment {
    pub(crate) eliminated: NewlyEliminated,
    /// What the checker learned for proofs of later units.
    pub(crate) learned: Learned,
    /// What later units may merge into, if they may.
    pub(crate) record: Option<Record>,
}

/// The classes, symbols and bodies that a unit adds to a [`MergeCache`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    classes: Vec<NewClass>,
    symbols: Vec<(UserExternalName, Of, bool, bool)>,
    bodies: Vec<(Of, Body)>,
}

impl Record {
    /// Restricts the record to bodies that a plan keeps.
    pub fn retain_kept(&mut self, plan: &Plan) {
        self.bodies.retain(|(_, body)| {
            let function = plan.function(&body.symbol);
            function.is_none_or(|function| plan.entry(function).disposition() == Disposition::Keep)
        });
    }
}

/// A class of a unit, as [`Record`] names it.
#[derive(Clone, Copy, Debug)]
enum Of {
    Old(CachedClass),
    /// Index into `Record::classes`.
    New(u32),
}

#[derive(Clone, Debug)]
struct NewClass {
    digest: Digest,
    references: Vec<Reference>,
    cyclic: bool,
    alignment: u64,
}

#[derive(Clone, Debug)]
enum Reference {
    ExternalNode(ExternalNode),
    Old(CachedClass),
    /// Index into `Record::classes`.
    New(u32),
}

/// The target of a reference of a class of a unit.
enum Target {
    ExternalNode(ExternalNode),
    /// A class of the unit.
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
    /// The component of each class.
    component: Vec<u32>,
    /// The alignment on which code relies that takes the address of a member, by class.
    alignment: &'a [Alignment],
}

impl<'a> Graph<'a> {
    /// Linear in the number of references. `alignment` is the alignment on which code relies that takes the address
    /// of a member, by class.
    pub fn new(bucketed: &'a Bucketed, external: &'a External, alignment: &'a [Alignment]) -> Self {
        let mut row = alloc::vec![None; bucketed.partition.len()];
        for (at, node) in bucketed.nodes.iter().enumerate() {
            let class = bucketed.partition.class_of(node.index());
            row[class].get_or_insert(at as u32);
        }
        let component = alloc::vec![u32::MAX; row.len()];
        let mut graph =
            Graph { bucketed, external, row, components: Lists::new(), component, alignment };
        for component in components(graph.row.len(), |class| graph.classes_used(class)).iter() {
            if graph.row[component[0] as usize].is_some() {
                graph.components.push(component.iter().copied());
            }
        }
        for (index, component) in graph.components.iter().enumerate() {
            for &class in component {
                graph.component[class as usize] = index as u32;
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

    fn targets(&self, class: usize) -> impl Iterator<Item = Target> + '_ {
        let External { nodes, symbols } = self.external;
        let Numbering { functions, data } = self.bucketed.numbering;
        self.nodes_used(class).iter().map(move |node| {
            let class = self.partition().class_of(node.index());
            match node.index().checked_sub(functions + data) {
                Some(external_node) => Target::ExternalNode(nodes[external_node].clone()),
                None if self.row[class].is_some() => Target::Class(class),
                // It could not be walked, so it equals nothing.
                None => Target::ExternalNode(ExternalNode::Class(symbols[node.index()].clone())),
            }
        })
    }

    fn digest(&self, class: usize) -> Digest {
        let row = self.row[class].expect("only classes with a row are looked up");
        self.bucketed.digests[row as usize]
    }

    fn same_component(&self, a: u32, b: usize) -> bool {
        self.component[a as usize] == self.component[b]
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

    /// The number of functions and data objects that are remembered, so that later ones can be compared with them. What
    /// was eliminated is known in any case.
    pub fn remembered(&self) -> usize {
        self.symbols.len()
    }

    /// Why there is no code or data under a symbol, if there is none because `plan`, which was made after the units of
    /// this cache, or one of these units merged it away: see [`Plan::without_code`]. Constant time.
    pub fn without_code(&self, plan: &Plan, symbol: &UserExternalName) -> Option<NoCode> {
        match plan.function(symbol).is_some() || plan.data(symbol).is_some() {
            true => plan.without_code(symbol),
            false => self.eliminated.without_code(symbol),
        }
    }

    /// The memory that is held, in bytes, as far as it grows with what was emitted.
    ///
    /// About 25 bytes for each function, and 200 for each class; about twice as much where plans are proved
    /// ([`Options::prove`](crate::Options::prove)), which grows with the references of a function as well.
    pub fn size(&self) -> usize {
        let MergeCache { symbols, classes, by_key, cyclic, cycles, eliminated, memory } = self;
        let bodies: usize = classes.values().map(|class| class.bodies.len()).sum();
        let lists: usize = cyclic.values().map(|list| size_of_val(&**list)).sum();
        let external_nodes: usize =
            cycles.values().map(|cycle| size_of_val(&*cycle.references)).sum();
        symbols.allocation_size()
            + classes.len() * size_of::<Class>()
            + bodies * size_of::<Body>()
            + by_key.allocation_size()
            + cyclic.allocation_size()
            + lists
            + cycles.allocation_size()
            + external_nodes
            + eliminated.size()
            + memory.size()
    }

    /// The external node by which a call to `symbol`, or a use of its address, is compared.
    pub(crate) fn external_node(&self, symbol: &UserExternalName, call: bool) -> ExternalNode {
        match self.symbols.get(symbol) {
            Some(Known { class, calls, addresses }) => match if call { *calls } else { *addresses }
            {
                true => self.class_external_node(*class),
                false => ExternalNode::Symbol(symbol.clone()),
            },
            // Not defined yet. If it is defined later and equals nothing, its class will be named after it.
            None if call => ExternalNode::Class(symbol.clone()),
            None => ExternalNode::Symbol(symbol.clone()),
        }
    }

    /// Whether an earlier unit had a function or data object of this symbol.
    pub(crate) fn had(&self, symbol: &UserExternalName) -> bool {
        self.symbols.contains_key(symbol)
    }

    /// The external node by which an address behind that of `symbol` is compared.
    pub(crate) fn external_node_inside(&self, symbol: &UserExternalName) -> ExternalNode {
        match self.symbols.get(symbol) {
            // Data: no code calls it.
            Some(Known { calls: false, .. }) => self.external_node(symbol, false),
            Some(Known { calls: true, .. }) | None => ExternalNode::Symbol(symbol.clone()),
        }
    }

    /// The symbol by which references to the class are compared, if there is one: functions that may be preempted
    /// are referred to by their own symbols.
    fn leader(&self, class: Option<CachedClass>) -> Option<&UserExternalName> {
        self.classes[class?].leader.as_ref()
    }

    fn class_external_node(&self, class: CachedClass) -> ExternalNode {
        let leader = self.leader(Some(class)).cloned();
        ExternalNode::Class(leader.expect("what is referred to by class has a leader"))
    }

    /// The cached class that each class of a unit equals, by class of the unit.
    ///
    /// Linear in the size of the unit and in the number of emitted cyclic classes that have the
    /// digest of one of the unit.
    pub(crate) fn find(&self, graph: &Graph<'_>) -> Vec<Option<CachedClass>> {
        let mut found = alloc::vec![None; graph.row.len()];
        for component in graph.components.iter() {
            self.find_component(graph, component, &mut found);
        }
        found
    }

    fn find_component(
        &self,
        graph: &Graph<'_>,
        component: &[u32],
        found: &mut [Option<CachedClass>],
    ) {
        // A class that refers to a new class is new.
        let is_new = |class: &u32| {
            graph.targets(*class as usize).any(|target| match target {
                Target::ExternalNode(_) => false,
                Target::Class(class) => {
                    self.leader(found[class]).is_none()
                        && !graph.same_component(component[0], class)
                }
            })
        };
        if component.iter().any(is_new) {
            return;
        }
        let &first = component
            .iter()
            .min_by_key(|&&class| graph.digest(class as usize))
            .expect("a component is not empty");
        let digest = graph.digest(first as usize);
        if !graph.is_cyclic(component) {
            let references: Vec<ExternalNode> = graph
                .targets(first as usize)
                .map(|target| match target {
                    Target::ExternalNode(external_node) => external_node,
                    Target::Class(class) => {
                        self.class_external_node(found[class].expect("not new"))
                    }
                })
                .collect();
            if let Some(&class) = self.by_key.get(&key(&digest, &references))
                && self.fits(graph, first, class)
            {
                found[first as usize] = Some(class);
                return;
            }
        }
        for &candidate in self.cyclic.get(&digest).into_iter().flatten() {
            if let Some(equal) = self.in_step(graph, found, first, candidate) {
                for (class, cache) in equal {
                    found[class as usize] = Some(cache);
                }
                return;
            }
        }
    }

    /// Whether references to a class of the unit may go to the emitted code of a cached class: the addresses are
    /// aligned as much. (A caller of the one may be merged into a caller of the other, whatever the dispositions of the
    /// members themselves.)
    fn fits(&self, graph: &Graph<'_>, class: u32, cache: CachedClass) -> bool {
        graph.alignment[class as usize].bytes() <= self.classes[cache].alignment
    }

    /// The alignment in bytes on which code may rely that takes the address of a member of a cached class.
    pub(crate) fn alignment(&self, class: CachedClass) -> u64 {
        self.classes[class].alignment
    }

    /// Walks from `first` and `candidate` in step through the component. Classes that meet are equal, unless two
    /// differ somewhere.
    fn in_step(
        &self,
        graph: &Graph<'_>,
        found: &[Option<CachedClass>],
        first: u32,
        candidate: CachedClass,
    ) -> Option<HashMap<u32, CachedClass, FxBuildHasher>> {
        let mut equal: HashMap<u32, CachedClass, FxBuildHasher> = HashMap::default();
        equal.insert(first, candidate);
        let mut waiting = alloc::vec![(first, candidate)];
        while let Some((class, cache)) = waiting.pop() {
            let Cycle { digest, references } = self.cycles.get(&cache)?;
            if *digest != graph.digest(class as usize) || !self.fits(graph, class, cache) {
                return None;
            }
            let targets: Vec<Target> = graph.targets(class as usize).collect();
            if targets.len() != references.len() {
                return None;
            }
            for (target, external_node) in targets.into_iter().zip(references) {
                let class = match target {
                    Target::ExternalNode(target) if target == *external_node => continue,
                    Target::ExternalNode(_) => return None,
                    Target::Class(class) => class,
                };
                if !graph.same_component(first, class) {
                    if self.class_external_node(found[class].expect("not new")) != *external_node {
                        return None;
                    }
                    continue;
                }
                let ExternalNode::Class(leader) = external_node else {
                    return None;
                };
                let cache = self.symbols.get(leader)?.class;
                match equal.insert(class as u32, cache) {
                    None => waiting.push((class as u32, cache)),
                    Some(before) if before == cache => {}
                    Some(_) => return None,
                }
            }
        }
        Some(equal)
    }

    /// A body of `class` into which a function with this alignment can be merged.
    pub(crate) fn body(&self, class: CachedClass, alignment: u64) -> Option<&Body> {
        self.classes[class].bodies.iter().find(|body| body.alignment >= alignment)
    }

    /// Adds what is emitted for a unit, once it is emitted: what [`Merger::plan_increment`] returned besides the plan.
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
        let Record { classes, symbols, bodies } = record;
        let mut new: Vec<CachedClass> = Vec::with_capacity(classes.len());
        for &NewClass { alignment, .. } in classes {
            let class = Class { leader: None, bodies: Vec::new(), alignment };
            new.push(self.classes.push(class));
        }
        let class_of = |of: &Of| match of {
            Of::Old(class) => *class,
            Of::New(index) => new[*index as usize],
        };
        for (symbol, of, calls, addresses) in symbols {
            let class = class_of(of);
            let known = Known { class, calls: *calls, addresses: *addresses };
            if known.calls || known.addresses {
                self.classes[class].leader.get_or_insert(symbol.clone());
            }
            self.symbols.insert(symbol.clone(), known);
        }
        for (of, body) in bodies {
            self.classes[class_of(of)].bodies.push(body.clone());
        }
        for (class, &cache) in classes.iter().zip(&new) {
            let NewClass { digest, references, cyclic, alignment: _ } = class;
            let external_nodes: Vec<ExternalNode> = references
                .iter()
                .map(|reference| match reference {
                    Reference::ExternalNode(external_node) => external_node.clone(),
                    Reference::Old(class) => self.class_external_node(*class),
                    Reference::New(index) => self.class_external_node(new[*index as usize]),
                })
                .collect();
            if *cyclic {
                self.cyclic.entry(*digest).or_default().push(cache);
                self.cycles
                    .insert(cache, Cycle { digest: *digest, references: external_nodes.into() });
            } else {
                self.by_key.insert(key(digest, &external_nodes), cache);
            }
        }
    }
}

/// A digest of an encoding and of its references.
fn key(digest: &Digest, references: &[ExternalNode]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(digest);
    for external_node in references {
        let (kind, symbol) = match external_node {
            ExternalNode::Symbol(symbol) => (0, symbol),
            ExternalNode::Class(symbol) => (1, symbol),
        };
        hasher.update(&[kind]);
        hasher.update(&symbol.namespace.to_le_bytes());
        hasher.update(&symbol.index.to_le_bytes());
    }
    *hasher.finalize().as_bytes()
}

/// A function or data object of a unit that is to be remembered.
pub(crate) struct Remembered<'a> {
    pub symbol: &'a UserExternalName,
    pub node: Node,
    /// Whether calls to it, and uses of its address, are compared by its class.
    pub calls: bool,
    pub addresses: bool,
}

/// A body of a unit that later functions can be merged into.
pub(crate) struct RememberedBody<'a> {
    pub symbol: &'a UserExternalName,
    /// The node that has this body.
    pub node: Node,
    /// In bytes, if functions can be merged into it.
    pub alignment: Option<u64>,
}

impl Record {
    /// The record of a unit, whose classes were `found`. The symbols must come in an order that does not depend on
    /// the order of insertion: the first names its class.
    pub fn new<'a>(
        graph: &Graph<'_>,
        found: &[Option<CachedClass>],
        symbols: impl Iterator<Item = Remembered<'a>>,
        bodies: impl Iterator<Item = RememberedBody<'a>>,
    ) -> Record {
        let mut new: Vec<Option<u32>> = alloc::vec![None; found.len()];
        let mut record = Record::default();
        let is_new = |class: &&u32| found[**class as usize].is_none();
        let classes = graph.components.iter().flatten().filter(is_new);
        for (index, &class) in classes.enumerate() {
            new[class as usize] = Some(index as u32);
        }
        for component in graph.components.iter() {
            let cyclic = graph.is_cyclic(component);
            for &class in component.iter().filter(is_new) {
                let references = graph.targets(class as usize).map(|target| match target {
                    Target::ExternalNode(external_node) => Reference::ExternalNode(external_node),
                    Target::Class(class) => match (found[class], new[class]) {
                        (Some(class), _) => Reference::Old(class),
                        (None, Some(index)) => Reference::New(index),
                        (None, None) => unreachable!("a class with a row is found or new"),
                    },
                });
                let digest = graph.digest(class as usize);
                let alignment = graph.alignment[class as usize].bytes();
                let references = references.collect();
                record.classes.push(NewClass { digest, references, cyclic, alignment });
            }
        }
        let of = |node: Node| {
            let class = graph.partition().class_of(node.index());
            found[class].map(Of::Old).or(new[class].map(Of::New))
        };
        for Remembered { symbol, node, calls, addresses } in symbols {
            if let Some(of) = of(node) {
                record.symbols.push((symbol.clone(), of, calls, addresses));
            }
        }
        for RememberedBody { symbol, node, alignment } in bodies {
            if let Some(of) = of(node) {
                let alignment = alignment.unwrap_or(0);
                record.bodies.push((of, Body { symbol: symbol.clone(), alignment }));
            }
        }
        record
    }
}
