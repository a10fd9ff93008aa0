//! The plan: what becomes of every function, and why.
//!
//! [`decide`] turns classes and attributes into a [`Plan`]: plain data in, plain data out. It needs
//! no bodies, only in rare cases their compiled sizes. It changes nothing; `apply` does, function
//! by function.
//!
//! | member G of the class of F | outcome |
//! |---|---|
//! | local, only called | redirected to F |
//! | local, address taken, address insignificant | redirected to F |
//! | visible or address taken, address significant | thunk to F; direct callers go to F |
//! | visible, address insignificant | alias of F where the back end has aliases, else thunk |
//! | preemptible | thunk or alias; callers of G keep calling G |
//! | all members preemptible | a new local function takes the body, all become thunks to it |
//! | pinned, not to be merged, thunk not smaller than the body | left alone |

use crate::canon::{ResolveSymbol, Resolved};
use crate::classify::{Classified, Walked};
use crate::facts::{Fact, meet};
use crate::options::{Addresses, Attributes, Linkage, Options, Prebucket};
use crate::remarks::Reason;
use crate::stats::Stats;
use crate::summary::Observed;
use crate::unit::{Bodies, FunctionIndex, Summary, resolved};
use alloc::vec::Vec;
use core::cmp::Reverse;
use cranelift_codegen::ir::UserExternalName;
use cranelift_entity::{EntityRef, PrimaryMap};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// What becomes of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Its body is compiled, after [`Plan::apply`](crate::Plan::apply).
    Keep,
    /// Nobody refers to it any more; there is nothing to emit.
    Redirect {
        /// Whom its callers call.
        to: FunctionIndex,
    },
    /// Its symbol is another name for the representative's address.
    Alias {
        /// Whose address its symbol gets.
        to: FunctionIndex,
    },
    /// Its symbol stays where it is; all its code is a jump.
    Thunk {
        /// Where it jumps.
        to: FunctionIndex,
    },
}

impl Disposition {
    /// The word used in reports: keep, redirect, alias or thunk.
    pub fn name(self) -> &'static str {
        match self {
            Disposition::Keep => "keep",
            Disposition::Redirect { to: _ } => "redirect",
            Disposition::Alias { to: _ } => "alias",
            Disposition::Thunk { to: _ } => "thunk",
        }
    }

    /// The representative, if the function's own body is not needed any more.
    pub fn representative(self) -> Option<FunctionIndex> {
        match self {
            Disposition::Keep => None,
            Disposition::Redirect { to }
            | Disposition::Alias { to }
            | Disposition::Thunk { to } => Some(to),
        }
    }
}

/// The plan's entry for one function.
#[derive(Clone, Debug)]
pub struct Entry {
    pub(crate) symbol: UserExternalName,
    pub(crate) attributes: Attributes,
    pub(crate) disposition: Disposition,
    pub(crate) reason: Reason,
    pub(crate) class: u32,
    pub(crate) alignment: u32,
    /// What is left of the promises of a representative, if less than it makes itself.
    pub(crate) weakened: Option<Vec<Fact>>,
}

impl Entry {
    /// The symbol under which the function was added.
    pub fn symbol(&self) -> &UserExternalName {
        &self.symbol
    }

    /// What becomes of the function.
    pub fn disposition(&self) -> Disposition {
        self.disposition
    }

    /// Why.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The number of its class. Functions are equal exactly if they have the same number, merged
    /// or not. The numbers are dense and follow the order of the classes' smallest symbols.
    pub fn class(&self) -> u32 {
        self.class
    }

    /// The alignment in bytes that the function's code needs: the largest of all functions that
    /// end up at its address.
    pub fn alignment(&self) -> u32 {
        self.alignment
    }
}

/// A new local function, made because all members of a class are preemptible.
#[derive(Clone, Debug)]
pub struct SharedBody {
    /// Its index, beyond those of the functions that were added.
    pub function: FunctionIndex,
    /// The function whose body it takes: clone it, rename it, and [`apply`](Plan::apply) the plan
    /// to the clone under the index `function`.
    pub body_of: FunctionIndex,
}

/// What becomes of every function of a unit, and why.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) entries: PrimaryMap<FunctionIndex, Entry>,
    pub(crate) by_symbol: HashMap<UserExternalName, FunctionIndex, FxBuildHasher>,
    shared: Vec<SharedBody>,
    stats: Stats,
}

impl Plan {
    /// The entry of a function.
    ///
    /// # Panics
    ///
    /// If `function` is neither from this unit nor a shared body of this plan.
    pub fn entry(&self, function: FunctionIndex) -> &Entry {
        &self.entries[function]
    }

    /// All entries: the functions in the order in which they were added, then the shared bodies.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (FunctionIndex, &Entry)> {
        self.entries.iter()
    }

    /// The functions that did not exist before.
    pub fn shared_bodies(&self) -> &[SharedBody] {
        &self.shared
    }

    /// The function of a symbol, if the unit has one.
    pub fn function(&self, symbol: &UserExternalName) -> Option<FunctionIndex> {
        self.by_symbol.get(symbol).copied()
    }

    /// The function that a direct call to `function` reaches at best.
    pub fn call_target(&self, function: FunctionIndex) -> FunctionIndex {
        let entry = &self.entries[function];
        match entry.attributes.linkage {
            // Whoever takes the symbol's place must get the calls.
            Linkage::Preemptible => function,
            Linkage::Export | Linkage::Hidden | Linkage::Local => {
                entry.disposition.representative().unwrap_or(function)
            }
        }
    }

    /// The function whose address stands for the address of `function`. References from data, and
    /// all others that the IR does not show, must use it.
    pub fn address_target(&self, function: FunctionIndex) -> FunctionIndex {
        match self.entries[function].disposition {
            Disposition::Redirect { to } => to,
            Disposition::Keep | Disposition::Alias { to: _ } | Disposition::Thunk { to: _ } => {
                function
            }
        }
    }

    /// The function whose body is behind `function`: itself, unless it is a shared body.
    pub(crate) fn body_of(&self, function: FunctionIndex) -> FunctionIndex {
        let added = self.entries.len() - self.shared.len();
        match function.index().checked_sub(added) {
            None => function,
            Some(index) => self.shared[index].body_of,
        }
    }

    /// Counters of the run.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }
}

impl ResolveSymbol for Plan {
    fn resolve(&self, symbol: &UserExternalName) -> Option<Resolved> {
        let function = self.function(symbol)?;
        Some(resolved(function, &self.entries[function].attributes))
    }
}

/// Decides what becomes of every function.
pub(crate) fn decide(
    options: &Options<'_>,
    functions: PrimaryMap<FunctionIndex, Summary>,
    by_symbol: HashMap<UserExternalName, FunctionIndex, FxBuildHasher>,
    observed: &Observed,
    classified: &Classified,
    bodies: &mut dyn Bodies,
    stats: Stats,
) -> Plan {
    let mut entries = PrimaryMap::with_capacity(functions.len());
    for (function, summary) in functions {
        let Summary { symbol, attributes, bucket: _, instructions: _ } = summary;
        entries.push(Entry {
            symbol,
            attributes,
            disposition: Disposition::Keep,
            reason: alone(options, classified, function),
            class: 0,
            alignment: attributes.alignment,
            weakened: None,
        });
    }
    let shared = Vec::new();
    let mut decision = Decision { options, observed, classified, bodies, entries, shared, stats };
    decision.number_classes();
    for class in decision.classes_by_symbol() {
        decision.class(&class);
    }
    decision.limit();
    let shared = decision.add_shared_bodies();
    decision.weaken(&shared);
    decision.lonely_representatives();
    let Decision { entries, mut stats, .. } = decision;
    let merged = |entry: &&Entry| entry.disposition != Disposition::Keep;
    stats.plan_merged = entries.values().filter(merged).count();
    stats.plan_weakened = entries.values().filter(|entry| entry.weakened.is_some()).count();
    let mut by_symbol = by_symbol;
    for shared in &shared {
        by_symbol.insert(entries[shared.function].symbol.clone(), shared.function);
    }
    Plan { entries, by_symbol, shared, stats }
}

/// Why a function that turns out to be alone in its class is.
fn alone(options: &Options<'_>, classified: &Classified, function: FunctionIndex) -> Reason {
    match classified.walked.get(function).copied().unwrap_or_default() {
        Walked::No => match options.prebucket {
            Prebucket::Counts => Reason::NothingAlike,
            Prebucket::WalkAll => Reason::Different,
        },
        Walked::Malformed => Reason::Malformed,
        Walked::Yes { instructions: _ } => match classified.facts_of.get(function) {
            Some(Some(_)) => Reason::ReferencesDiffer,
            Some(None) | None => Reason::Different,
        },
    }
}

/// What must stay of a function whose body goes, cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    Nothing,
    /// The symbol, at whatever address.
    Symbol,
    /// The symbol, at an address of its own.
    Address,
}

struct Decision<'a> {
    options: &'a Options<'a>,
    observed: &'a Observed,
    classified: &'a Classified,
    bodies: &'a mut dyn Bodies,
    entries: PrimaryMap<FunctionIndex, Entry>,
    /// Symbols of bodies to be shared, and the members of their classes.
    shared: Vec<(UserExternalName, Vec<FunctionIndex>)>,
    stats: Stats,
}

impl Decision<'_> {
    fn order(&self, function: FunctionIndex) -> (u32, u32) {
        let symbol = &self.entries[function].symbol;
        (symbol.namespace, symbol.index)
    }

    fn number_classes(&mut self) {
        let mut order: Vec<FunctionIndex> = self.entries.keys().collect();
        order.sort_unstable_by_key(|&function| self.order(function));
        let mut number = alloc::vec![u32::MAX; self.classified.partition.len()];
        let mut next = 0;
        for function in order {
            let class = &mut number[self.classified.partition.class_of(function.index())];
            if *class == u32::MAX {
                *class = next;
                next += 1;
            }
            self.entries[function].class = *class;
        }
    }

    /// The classes of two and more, each in the order of symbols, by their smallest symbols.
    fn classes_by_symbol(&mut self) -> Vec<Vec<FunctionIndex>> {
        let partition = &self.classified.partition;
        let mut classes: Vec<Vec<FunctionIndex>> = (0..partition.len())
            .map(|class| partition.members(class))
            .filter(|members| members.len() > 1)
            .map(|members| members.iter().map(|&i| FunctionIndex::new(i as usize)).collect())
            .collect();
        for class in &mut classes {
            class.sort_unstable_by_key(|&function| self.order(function));
            self.stats.plan_members += class.len();
        }
        classes.sort_unstable_by_key(|class| self.order(class[0]));
        classes
    }

    /// Whether the symbol must still be there afterwards, and why.
    fn symbol_survives(&self, function: FunctionIndex) -> Option<Reason> {
        let entry = &self.entries[function];
        let Attributes { linkage, addresses, address_taken, .. } = entry.attributes;
        let taken = address_taken || self.observed.address_taken(&entry.symbol);
        match linkage {
            Linkage::Preemptible => Some(Reason::Preemptible),
            Linkage::Export | Linkage::Hidden => Some(Reason::VisibleOutside),
            Linkage::Local if self.observed.patchable(&entry.symbol) => {
                Some(Reason::PatchableCalls)
            }
            Linkage::Local if taken && addresses == Addresses::Significant => {
                Some(Reason::AddressTaken)
            }
            Linkage::Local => None,
        }
    }

    /// Decides for the members of one class, given in the order of their symbols.
    fn class(&mut self, members: &[FunctionIndex]) {
        let mut candidates = Vec::new();
        for &member in members {
            let attributes = self.entries[member].attributes;
            self.entries[member].reason = if attributes.no_merge {
                Reason::NoMerge
            } else if attributes.pinned {
                Reason::Pinned
            } else {
                candidates.push(member);
                Reason::EqualsLeftAlone
            };
        }
        if candidates.len() < 2 {
            return;
        }
        // Whoever would cost most otherwise, so that the others can go; then by linkage, then by
        // symbol.
        let best = candidates
            .iter()
            .copied()
            .filter(|&member| self.entries[member].attributes.linkage != Linkage::Preemptible)
            .min_by_key(|&member| {
                let linkage = self.entries[member].attributes.linkage;
                (Reverse(self.need(member)), linkage, self.order(member))
            });
        match best {
            Some(representative) => {
                self.entries[representative].reason = Reason::Representative;
                for member in candidates {
                    if member != representative {
                        self.member(member, representative);
                    }
                }
            }
            None => self.all_preemptible(&candidates),
        }
    }

    /// What must stay of a function if its body does not.
    fn need(&self, function: FunctionIndex) -> Need {
        let insignificant = self.entries[function].attributes.addresses == Addresses::Insignificant;
        match self.symbol_survives(function) {
            None => Need::Nothing,
            Some(_) if insignificant && self.options.aliases => Need::Symbol,
            Some(_) => Need::Address,
        }
    }

    /// Decides for a member that is not the representative.
    fn member(&mut self, member: FunctionIndex, to: FunctionIndex) {
        let survives = self.symbol_survives(member);
        let addresses = self.entries[member].attributes.addresses;
        let (disposition, reason) = match (self.need(member), survives) {
            (Need::Nothing, _) => match addresses {
                Addresses::Significant => (Disposition::Redirect { to }, Reason::OnlyCalled),
                Addresses::Insignificant => {
                    (Disposition::Redirect { to }, Reason::AddressInsignificant)
                }
            },
            (Need::Symbol, Some(Reason::Preemptible)) => {
                (Disposition::Alias { to }, Reason::Preemptible)
            }
            (Need::Symbol, _) => (Disposition::Alias { to }, Reason::AddressInsignificant),
            (Need::Address, _) if self.options.target.jump_thunk.is_none() => {
                (Disposition::Keep, Reason::NoThunk)
            }
            (Need::Address, _) if !self.thunk_is_smaller(member) => {
                (Disposition::Keep, Reason::ThunkNotSmaller)
            }
            (Need::Address, reason) => {
                (Disposition::Thunk { to }, reason.expect("the symbol survives for a reason"))
            }
        };
        self.entries[member].disposition = disposition;
        self.entries[member].reason = reason;
    }

    fn thunk_is_smaller(&self, function: FunctionIndex) -> bool {
        match self.classified.walked[function] {
            Walked::Yes { instructions } => self.options.target.thunk_is_smaller(instructions),
            Walked::No | Walked::Malformed => false,
        }
    }

    /// A thunk to a preemptible symbol would jump to whatever takes its place, so none of them can
    /// be the representative: a new local function takes the body, if that pays.
    fn all_preemptible(&mut self, members: &[FunctionIndex]) {
        for &member in members {
            self.entries[member].reason = Reason::AllPreemptible;
        }
        let Some(thunk) = self.options.target.jump_thunk else {
            return;
        };
        let smallest = u64::from(self.options.target.smallest_function);
        let body = self.bodies.code_size(members[0]).map_or(smallest, u64::from);
        let count = members.len() as u64;
        if count * body <= body + count * u64::from(thunk.size()) {
            return;
        }
        let Some(symbol) = self.bodies.fresh_symbol() else {
            return;
        };
        let to = FunctionIndex::new(self.entries.len() + self.shared.len());
        self.shared.push((symbol, members.to_vec()));
        for &member in members {
            self.entries[member].disposition = Disposition::Thunk { to };
            self.entries[member].reason = Reason::Preemptible;
        }
    }

    /// Adds the shared bodies that are still wanted behind the functions of the unit.
    fn add_shared_bodies(&mut self) -> Vec<SharedBody> {
        let mut bodies = Vec::new();
        for (symbol, members) in core::mem::take(&mut self.shared) {
            let kept =
                |&member: &FunctionIndex| self.entries[member].disposition == Disposition::Keep;
            if members.iter().any(kept) {
                // The limit cut into the class. A body shared by the rest may not pay.
                for member in members {
                    self.entries[member].disposition = Disposition::Keep;
                    self.entries[member].reason = Reason::MergeLimit;
                }
                continue;
            }
            let body_of = members[0];
            let Entry { attributes, class, alignment, .. } = self.entries[body_of].clone();
            let attributes = Attributes {
                linkage: Linkage::Local,
                addresses: Addresses::Insignificant,
                address_taken: false,
                ..attributes
            };
            let function = self.entries.push(Entry {
                symbol,
                attributes,
                disposition: Disposition::Keep,
                reason: Reason::Representative,
                class,
                alignment,
                weakened: None,
            });
            for member in members {
                self.entries[member].disposition = Disposition::Thunk { to: function };
            }
            bodies.push(SharedBody { function, body_of });
        }
        bodies
    }

    /// The numbered gate: every merge passes here, in the order of the merged symbols.
    fn limit(&mut self) {
        let Some(limit) = self.options.merge_limit else {
            return;
        };
        let mut merges: Vec<FunctionIndex> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.disposition != Disposition::Keep)
            .map(|(function, _)| function)
            .collect();
        merges.sort_unstable_by_key(|&function| self.order(function));
        for &function in merges.iter().skip(limit as usize) {
            self.entries[function].disposition = Disposition::Keep;
            self.entries[function].reason = Reason::MergeLimit;
        }
    }

    /// A representative that nobody was merged into only keeps its body.
    fn lonely_representatives(&mut self) {
        let mut needed = alloc::vec![false; self.entries.len()];
        for to in self.entries.values().filter_map(|entry| entry.disposition.representative()) {
            needed[to.index()] = true;
        }
        for (entry, needed) in self.entries.values_mut().zip(needed) {
            if entry.reason == Reason::Representative && !needed {
                entry.reason = Reason::EqualsLeftAlone;
            }
        }
    }

    /// Gives every representative the promises and the alignment that fit all whose place it takes.
    fn weaken(&mut self, shared: &[SharedBody]) {
        let added = self.entries.len() - shared.len();
        let mut merges: Vec<(FunctionIndex, FunctionIndex, bool)> = self
            .entries
            .iter()
            .filter_map(|(function, entry)| {
                let to = entry.disposition.representative()?;
                let own_address = matches!(entry.disposition, Disposition::Thunk { to: _ });
                Some((function, to, own_address))
            })
            .collect();
        merges.sort_unstable_by_key(|&(function, _, _)| self.order(function));
        for (function, to, own_address) in merges {
            if !own_address {
                let alignment = self.entries[function].alignment;
                self.entries[to].alignment = self.entries[to].alignment.max(alignment);
            }
            let body_of = match to.index().checked_sub(added) {
                None => to,
                Some(index) => shared[index].body_of,
            };
            let kept = self.classified.facts_of[body_of];
            let other = self.classified.facts_of[function];
            if kept == other {
                continue;
            }
            let facts = |facts: Option<u32>| {
                &self.classified.facts[facts.expect("members have facts") as usize]
            };
            let before = facts(kept);
            let mut weakened = self.entries[to].weakened.take().unwrap_or_else(|| before.clone());
            meet(&mut weakened, facts(other));
            self.entries[to].weakened = (weakened != *before).then_some(weakened);
        }
    }
}
