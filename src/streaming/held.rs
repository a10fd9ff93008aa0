//! Held functions: those whose IR the embedder keeps until the plan, because similar ones may share
//! a body.
//!
//! Merging similar functions takes IR. A function has a *partner* if another one was added that has
//! its shape, or whose sketch resembles its own. There are three ways to have the IR of both, and
//! [`Held`] is the one place that decides:
//!
//! * [`Compiled::Stays`]: compiled code cannot be changed. Every function that may share a body
//!   is held while the bytes that this takes stay within a bound; beyond it, the first ones that
//!   have no partner are given up.
//! * [`Compiled::MayBeReplaced`]: the embedder can make the IR of a function anew and replaces its
//!   code if it comes to share a body. A function without a partner is compiled at once, and so is
//!   what exceeds the bound.
//! * [`Compiled::Nothing`]: the embedder found out which functions may merge before it made any,
//!   and compiles nothing before the plan. All that may share a body are held.
//!
//! It does *not* count callers of a function. Compiled code cannot pass extra arguments, so a
//! function that it calls keeps its symbol.

use crate::canon::{Counts, ShapeHash};
use crate::congruence::Encodings;
use crate::corpus::Symbols;
use crate::options::Options;
use crate::parameterise::{self, Likeness, SearchInput, Shared, Sketches, Workbench};
use crate::plan::Plan;
use crate::unit::{Bodies, FunctionIndex, Observed, SyncBodies};
use alloc::boxed::Box;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_entity::{EntityRef, PrimaryMap};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// The treatment of the code of functions that were compiled before the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Compiled {
    #[default]
    Stays,
    MayBeReplaced,
    /// There is none.
    Nothing,
}

/// Where a function is between its arrival and the plan.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Held,
    /// Its code is compiled before the plan.
    Compiled,
}

/// A function that may share a body.
struct Candidate {
    function: FunctionIndex,
    likeness: Likeness,
    bytes: usize,
    has_partner: bool,
    state: State,
    /// The one before it whose sketch has the same graph.
    before: Option<u32>,
}

/// The functions that may share bodies, and which of them are held.
#[derive(Default)]
pub(super) struct Held {
    /// The most bytes that are held.
    max_bytes: usize,
    bytes: usize,
    compiled: Compiled,
    /// Ascending.
    candidates: Vec<Candidate>,
    /// The first of each shape. A hash that two shapes have costs memory or time for a function,
    /// and nothing else.
    shapes: HashMap<ShapeHash, u32, FxBuildHasher>,
    /// The last with each graph.
    graphs: HashMap<u64, u32, FxBuildHasher>,
    /// All before it were looked at when some were to be given up.
    looked_at: usize,
    /// Those that were given up and that [`Held::release`] has not returned yet.
    released: Vec<FunctionIndex>,
}

/// With how many functions before it a function is compared, at most, in order to know whether it
/// has a partner.
const COMPARED: usize = 16;

impl Held {
    /// None yet, and at most this many bytes.
    pub fn at_most(max_bytes: usize, compiled: Compiled) -> Held {
        Held { max_bytes, compiled, ..Held::default() }
    }

    /// The bytes that are held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a function, which needs code of its own, is held from now on.
    pub fn add(
        &mut self,
        function: FunctionIndex,
        likeness: Likeness,
        bytes: usize,
        options: &Options<'_>,
    ) -> bool {
        if self.max_bytes == 0 && self.compiled == Compiled::Stays {
            return false;
        }
        let (has_partner, before) = match self.compiled {
            Compiled::Stays | Compiled::MayBeReplaced => self.find_partner(&likeness, options),
            // None is given up.
            Compiled::Nothing => (true, None),
        };
        let wants = has_partner || self.compiled == Compiled::Stays;
        let state = match wants && self.make_room(bytes) {
            true => State::Held,
            false => State::Compiled,
        };
        if state == State::Held {
            self.bytes += bytes;
        }
        self.candidates.push(Candidate { function, likeness, bytes, has_partner, state, before });
        state == State::Held
    }

    /// Whether the function that is added next has a partner, and the last one with its graph. Its
    /// partner has one, too, then.
    fn find_partner(&mut self, likeness: &Likeness, options: &Options<'_>) -> (bool, Option<u32>) {
        let own = self.candidates.len() as u32;
        let first = *self.shapes.entry(likeness.shape).or_insert(own);
        let mut partner = (first != own).then_some(first);
        let before = likeness.sketch.as_ref().and_then(|it| self.graphs.insert(it.graph(), own));
        let with_graph = core::iter::successors(before, |&at| self.candidates[at as usize].before);
        let mut with_graph = with_graph.take(COMPARED);
        let resembles =
            |&at: &u32| likeness.resembles(&self.candidates[at as usize].likeness, options);
        partner = partner.or_else(|| with_graph.find(resembles));
        if let Some(partner) = partner {
            self.candidates[partner as usize].has_partner = true;
        }
        (partner.is_some(), before)
    }

    /// Gives up functions without a partner, the first ones first, until this many bytes more can
    /// be held. Whether they can.
    fn make_room(&mut self, bytes: usize) -> bool {
        if bytes > self.max_bytes {
            return false;
        }
        while bytes > self.max_bytes - self.bytes {
            let Some(candidate) = self.candidates.get_mut(self.looked_at) else {
                return false;
            };
            self.looked_at += 1;
            if candidate.state == State::Held && !candidate.has_partner {
                candidate.state = State::Compiled;
                self.bytes -= candidate.bytes;
                self.released.push(candidate.function);
            }
        }
        true
    }

    /// A function that was given up, each once.
    pub fn release(&mut self) -> Option<FunctionIndex> {
        self.released.pop()
    }

    /// Whether the embedder can make the IR of every function anew.
    pub fn has_all_ir(&self) -> bool {
        self.compiled != Compiled::Stays
    }

    /// Whether functions can share parameterised bodies.
    pub fn has_two(&self) -> bool {
        self.candidates.iter().filter(|candidate| self.is_there(candidate)).nth(1).is_some()
    }

    /// Whether there is IR of a function when the plan is made.
    fn is_there(&self, candidate: &Candidate) -> bool {
        match candidate.state {
            State::Held => true,
            // Of those without a partner, none is to be made anew.
            State::Compiled => self.compiled == Compiled::MayBeReplaced && candidate.has_partner,
        }
    }

    fn candidate(&self, function: FunctionIndex) -> Option<&Candidate> {
        let at = self.candidates.binary_search_by_key(&function, |it| it.function).ok()?;
        Some(&self.candidates[at])
    }

    /// Whether a function is held.
    pub fn is_held(&self, function: FunctionIndex) -> bool {
        self.candidate(function).is_some_and(|candidate| candidate.state == State::Held)
    }

    /// The hash of the shape of a function, if there is IR of it when the plan is made.
    pub fn shape(&self, function: FunctionIndex) -> Option<ShapeHash> {
        let candidate = self.candidate(function).filter(|candidate| self.is_there(candidate));
        candidate.map(|candidate| candidate.likeness.shape)
    }

    /// Merges functions of which there is IR and that are similar.
    pub fn merge_similar(
        self,
        plan: &mut Plan,
        observed: &Observed,
        encodings: &Encodings,
        arrived: Arrived<'_>,
        bodies: &mut dyn Bodies,
        options: &Options<'_>,
    ) {
        let shared = Shared::default();
        let given = SearchInput { observed, encodings, earlier: None, shared: &shared };
        let mut counts: PrimaryMap<FunctionIndex, Counts> = PrimaryMap::new();
        let mut sketches = Sketches::default();
        for (function, _) in plan.entries().take(plan.added()) {
            let candidate = self
                .candidate(arrived.own[function.index()])
                .filter(|candidate| self.is_there(candidate));
            counts.push(candidate.map_or_else(Counts::default, |it| it.likeness.counts));
            if let Some(candidate) = candidate {
                sketches.insert(function, candidate.likeness.sketch.clone());
            }
        }
        drop(self);
        let mut bodies = HeldBodies { bodies, arrived };
        let mut workbench = Workbench::new(plan, given, &mut bodies, options);
        parameterise::search(&mut workbench, given);
        parameterise::align(&mut workbench, encodings, &counts, sketches);
        plan.record_members();
        plan.recompute_stats();
    }
}

/// The state of the functions that arrived.
#[derive(Clone, Copy)]
pub(super) struct Arrived<'a> {
    /// The function that has the IR of each.
    pub own: &'a [FunctionIndex],
    pub symbols: &'a Symbols,
}

/// The bodies that the embedder hands out, by the functions that it holds: the IR of a function
/// that equals a held one is that of the held one.
struct HeldBodies<'a> {
    bodies: &'a mut dyn Bodies,
    arrived: Arrived<'a>,
}

/// The same for several threads.
struct SyncHeldBodies<'a> {
    bodies: Box<dyn SyncBodies + 'a>,
    own: &'a [FunctionIndex],
}

impl SyncBodies for SyncHeldBodies<'_> {
    fn body(&self, function: FunctionIndex) -> &Function {
        self.bodies.body(self.own[function.index()])
    }
}

impl Bodies for HeldBodies<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        self.bodies.body(self.arrived.own[function.index()])
    }

    fn fresh_symbol(&mut self, members: &[FunctionIndex]) -> Option<UserExternalName> {
        let symbol = self.bodies.fresh_symbol(members);
        // A call of another function would become one of the body.
        if let Some(symbol) = &symbol
            && self.arrived.symbols.get(symbol).is_some()
        {
            panic!("{symbol}, for a new body, is a symbol that nothing uses yet");
        }
        symbol
    }

    fn sync(&self) -> Option<Box<dyn SyncBodies + '_>> {
        let bodies = self.bodies.sync()?;
        Some(Box::new(SyncHeldBodies { bodies, own: self.arrived.own }))
    }
}
