//! The instructions of functions before merging: their source locations, and which functions they
//! called.
//!
//! Instructions are numbered in the order of the canonical walk, in which equal functions have the
//! same numbers. The code generator takes a number through compilation as the source location of
//! the instruction, so that machine code says which instruction it is of. Of a parameterised body,
//! the checker says which instruction of each function an instruction of the body runs for.
//!
//! It does *not* know addresses, and chooses no functions: see
//! [`MergeMap::frames`](crate::explain::MergeMap::frames).

use crate::apply::not_redirected;
use crate::canon::{Context, Encoding, Scratch, encode};
use crate::checker::corresponding;
use crate::ir::{called_by, user_symbol};
use crate::options::Options;
use crate::plan::Plan;
use crate::target::return_offset;
use crate::threads::{Pool, for_each};
use crate::unit::{Bodies, FunctionIndex, NoUnit};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::ir::{
    Block, ExternalName, Function, Inst, Opcode, SourceLoc, UserExternalName, UserExternalNameRef,
};
use cranelift_codegen::{Final, FinalizedRelocTarget, MachBufferFinalized};
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use cranelift_mergefunc_frames::{Callee, Place, TailCallees, TailCalls};

/// A symbol, as a key of maps.
pub(super) type Key = (u32, u32);

pub(super) fn key(symbol: &UserExternalName) -> Key {
    (symbol.namespace, symbol.index)
}

/// An instruction.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub location: SourceLoc,
    pub callee: Callee<Key>,
}

/// The instructions of a function, as it was before merging.
///
/// See the [example](crate::explain).
#[derive(Clone, Debug)]
pub struct Sites {
    /// Their source locations, by their numbers.
    locations: Arc<[SourceLoc]>,
    /// The numbers of direct calls, ascending, and which functions they call.
    callees: Arc<[(u32, Key)]>,
    tail_callees: TailCallees<Key>,
    /// The source location of the instruction with number 0, if the source locations of the
    /// function are numbers.
    base: Option<u32>,
}

impl Sites {
    /// The instructions of a function, which the verifier must accept. O(n) in its size; nothing is
    /// known of a function that the canonical walk refuses.
    pub fn of(func: &Function) -> Sites {
        Sites::in_order(func, &order(func))
    }

    /// The sites of a function that was walked.
    pub(crate) fn walked(func: &Function, walked: &[Block]) -> Sites {
        Sites::in_order(func, &in_blocks(func, walked))
    }

    fn in_order(func: &Function, order: &[Inst]) -> Sites {
        let callees = (0..).zip(order).filter_map(|(at, &inst)| Some((at, callee(func, inst)?)));
        let callees: Arc<[(u32, Key)]> = callees.collect();
        let mut tail_callees = Vec::new();
        let mut is_known = !order.is_empty();
        for &inst in order {
            match func.dfg.insts[inst].opcode() {
                Opcode::ReturnCall => match callee(func, inst) {
                    Some(callee) => tail_callees.push(callee),
                    None => is_known = false,
                },
                Opcode::ReturnCallIndirect => is_known = false,
                _ => {}
            }
        }
        tail_callees.sort_unstable();
        tail_callees.dedup();
        let tail_callees =
            if is_known { TailCallees::Known(tail_callees) } else { TailCallees::Any };
        let locations = order.iter().map(|&inst| func.srcloc(inst)).collect();
        Sites { locations, callees, tail_callees, base: None }
    }

    /// The instruction of this number.
    fn at(&self, number: u32) -> Option<Site> {
        let location = *self.locations.get(number as usize)?;
        let called = self.callees.binary_search_by_key(&number, |&(at, _)| at).ok();
        let callee = called.map_or(Callee::Unknown, |at| Callee::Function(self.callees[at].1));
        Some(Site { location, callee })
    }

    /// Replaces the source location of each instruction by its number, and returns what the
    /// instructions were. To be called for a body before [`Plan::apply`] rewrites it
    /// ([`Plan::finish_numbered`] does so), or for a function that is compiled as it is; its
    /// compiled code then goes to [`Recorded::compiled`]. A function with value labels, which refer
    /// to source locations, is left as it is, and nothing is known of its code.
    pub fn number(func: &mut Function) -> Sites {
        let order = order(func);
        Sites::number_in(func, order)
    }

    fn number_in(func: &mut Function, order: Vec<Inst>) -> Sites {
        let mut sites = Sites::in_order(func, &order);
        if func.dfg.values_labels.is_some() {
            return sites;
        }
        // Relative to the base of the function: a location one below it would count as none.
        let base = func.params.ensure_base_srcloc(SourceLoc::new(0)).bits();
        for (number, inst) in (0..).zip(order) {
            func.set_srcloc(inst, SourceLoc::new(base.wrapping_add(number)));
        }
        sites.base = Some(base);
        sites
    }

    /// The source location that an instruction had before it was numbered, for line tables:
    /// `numbered` is the location in compiled code.
    pub fn location(&self, numbered: SourceLoc) -> SourceLoc {
        let number = self.number_at(numbered);
        let location = number.and_then(|number| self.locations.get(number as usize));
        location.copied().unwrap_or_default()
    }

    fn number_at(&self, location: SourceLoc) -> Option<u32> {
        self.base.filter(|_| !location.is_default()).map(|base| location.bits().wrapping_sub(base))
    }

    /// The instructions at which code traps, and to which its calls return.
    fn places(&self, buffer: &MachBufferFinalized<Final>) -> Vec<(Place, u32)> {
        let locations = buffer.get_srclocs_sorted();
        let at = |offset: u32| {
            let at = locations.partition_point(|range| range.start <= offset).checked_sub(1)?;
            let range = &locations[at];
            let number = self.number_at(range.loc).filter(|_| offset < range.end)?;
            self.locations.get(number as usize).map(|_| number)
        };
        let place = |offset, is_return| Place { offset, is_return };
        let traps = buffer.traps().iter().map(|trap| (place(trap.offset, false), trap.offset));
        let calls = buffer.call_sites();
        let returns = calls.map(|call| (place(call.ret_addr, true), call.ret_addr - 1));
        let mut places: Vec<(Place, u32)> =
            traps.chain(returns).filter_map(|(place, inside)| Some((place, at(inside)?))).collect();
        places.sort_unstable();
        places.dedup_by_key(|(place, _)| *place);
        places
    }

    /// Where its direct calls return to, and the functions that they call.
    fn calls(&self, buffer: &MachBufferFinalized<Final>) -> Vec<(Place, Key)> {
        let returns = self.places(buffer).into_iter().filter(|(place, _)| place.is_return);
        let callee = |number| match self.at(number)?.callee {
            Callee::Function(callee) => Some(callee),
            Callee::Unknown => None,
        };
        returns.filter_map(|(place, number)| Some((place, callee(number)?))).collect()
    }
}

impl Plan {
    /// Like [`finish`](Plan::finish), for backtraces: the source locations of a body become numbers
    /// ([`Sites::number`]). Returns what its instructions were, for [`Recorded::compiled`]: nothing
    /// of a thunk, and where nothing is to be compiled.
    ///
    /// # Panics
    ///
    /// If `function` is not from this plan.
    pub fn finish_numbered(&self, function: FunctionIndex, func: &mut Function) -> Option<Sites> {
        let mut sites = None;
        self.finish_with(function, func, |func| sites = Some(Sites::number(func)));
        sites
    }
}

/// The instructions of a function in the order of the canonical walk, without those that generate
/// no code.
fn order(func: &Function) -> Vec<Inst> {
    encoded(func).0
}

/// The instructions of a function in the order of the encoding, and the shape of the function.
fn encoded(func: &Function) -> (Vec<Inst>, Vec<u8>) {
    let context = Context::of(&Options::default(), 0, &NoUnit);
    let (mut scratch, mut encoding) = (Scratch::default(), Encoding::default());
    if encode(func, &context, &mut scratch, &mut encoding).is_err() {
        return Default::default();
    }
    (in_blocks(func, scratch.walked()), encoding.shape)
}

fn in_blocks(func: &Function, blocks: &[Block]) -> Vec<Inst> {
    let insts = blocks.iter().flat_map(|&block| func.layout.block_insts(block));
    insts.filter(|&inst| func.dfg.insts[inst].opcode() != Opcode::Nop).collect()
}

/// The function that an instruction calls directly. Code may be patched where a call is patchable.
fn callee(func: &Function, inst: Inst) -> Option<Key> {
    let callee = &func.dfg.ext_funcs[called_by(&func.dfg.insts[inst])?];
    user_symbol(func, &callee.name).filter(|_| !callee.patchable).map(key)
}

/// Which instruction of a function each instruction of its body runs for, by their numbers.
type Relation = Arc<[Option<u32>]>;

/// The records of the functions of units, for backtraces.
///
/// See the [example](crate::explain).
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    sites: BTreeMap<Key, Sites>,
    tail_calls: TailCalls<Key>,
    /// Of functions that are not equal to the function whose body runs in their place: which of
    /// their instructions each instruction of the body runs for, by its number.
    relations: BTreeMap<Key, Relation>,
    /// The bodies that functions share whose instructions were not forgotten.
    bodies: BTreeSet<Key>,
    /// Of code: which instructions of its body are at its places.
    places: BTreeMap<Key, Arc<[(Place, u32)]>>,
}

impl Recorded {
    /// Makes of `func` the code to compile under `symbol`: [`Plan::finish`], or, for a function
    /// that was not added, [`Plan::apply_to_caller`]. Source locations become numbers
    /// ([`Plan::finish_numbered`]) where functions are recorded and share the body, or it calls
    /// others than before; its original instructions are then returned, for
    /// [`Recorded::add_code`].
    pub fn finish(
        &self,
        plan: &Plan,
        symbol: &UserExternalName,
        func: &mut Function,
    ) -> Option<Sites> {
        let Some(function) = plan.function(symbol) else {
            return self.finish_caller(plan, func);
        };
        let is_shared = self.bodies.contains(&key(symbol));
        if self.is_empty() || !is_shared && !plan.needs_apply(func) {
            plan.finish(function, func);
            return None;
        }
        plan.finish_numbered(function, func)
    }

    /// [`Recorded::finish`] of a function that was not added.
    fn finish_caller(&self, plan: &Plan, func: &mut Function) -> Option<Sites> {
        if !plan.passes_extra_arguments(func) {
            return None;
        }
        // Nothing is related to its code, so its instructions may be in any order.
        let insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
        let insts = insts.collect();
        let sites = (!self.is_empty()).then(|| Sites::number_in(func, insts));
        plan.apply_to_caller(func);
        sites
    }

    /// Records a function, as it was before merging. One that was recorded under the same symbol is
    /// replaced.
    pub fn add(&mut self, symbol: &UserExternalName, sites: &Sites) {
        self.tail_calls.insert(key(symbol), sites.tail_callees.clone());
        self.sites.insert(key(symbol), sites.clone());
    }

    /// Records which functions a function tail-calls that is compiled as it is: `None` if that can
    /// be any function.
    pub(crate) fn add_tail_calls(
        &mut self,
        symbol: &UserExternalName,
        to: Option<&[UserExternalName]>,
    ) {
        let known = to.map(|to| TailCallees::Known(to.iter().map(key).collect()));
        self.tail_calls.insert(key(symbol), known.unwrap_or(TailCallees::Any));
    }

    /// Records all functions of a unit, and [relates](Recorded::relate) them. `bodies` are those
    /// that were planned; each is requested.
    pub fn add_unit(&mut self, plan: &Plan, bodies: &mut dyn Bodies, options: &Options<'_>) {
        for index in 0..plan.added() {
            let function = FunctionIndex::new(index);
            let sites = Sites::of(bodies.body(function));
            self.add(plan.entry(function).symbol(), &sites);
        }
        self.relate(plan, bodies, options);
    }

    /// Records which instructions of functions those of the bodies that replaced them run for.
    /// Requests the bodies of functions that were not merged with equal ones only: one of each
    /// class, and what replaced it. Linear in their sizes.
    ///
    /// A function of a later unit, merged into a parameterised body of an earlier one, is related
    /// to it as an equal function of that unit; else its locations and callees are not known.
    pub fn relate(&mut self, plan: &Plan, bodies: &mut dyn Bodies, options: &Options<'_>) {
        // By body, and by class.
        let mut replaced: BTreeMap<FunctionIndex, BTreeMap<u32, Vec<FunctionIndex>>> =
            BTreeMap::new();
        for (function, entry) in plan.entries() {
            let body = plan.reached(function).body;
            let is_equal = plan.entry(body).class() == entry.class();
            let is_function = function.index() < plan.added() || plan.is_cached(function);
            if is_function && body != function && !(is_equal && plan.new_body(body).is_none()) {
                let classes = replaced.entry(body).or_default();
                classes.entry(entry.class()).or_default().push(function);
            }
        }
        let new = |(body, classes)| Replaced { body, classes, relations: Vec::new() };
        let mut replaced: Vec<Replaced> = replaced.into_iter().map(new).collect();
        let known = &self.relations;
        for_each(bodies, &Pool::<()>::default(), &mut replaced, |bodies, (), replaced| {
            replaced.relate(plan, bodies, options, known);
        });
        self.relations.extend(replaced.into_iter().flat_map(|it| it.relations));
    }

    /// Records the code of a function that was [numbered](Sites::number) before it was compiled. Of
    /// a function whose instructions were
    /// [forgotten](crate::streaming::StreamingMerger::plan_recording), these are recorded again.
    pub fn compiled(
        &mut self,
        symbol: &UserExternalName,
        numbered: &Sites,
        buffer: &MachBufferFinalized<Final>,
    ) {
        let symbol = key(symbol);
        if self.tail_calls.contains_key(&symbol) {
            self.sites.entry(symbol).or_insert_with(|| numbered.clone());
        }
        self.places.insert(symbol, numbered.places(buffer).into());
    }

    /// Adds numbered code and all other code, such as that of callers that are compiled as they
    /// are. In other code, relocations name the called functions, by `names`. Of a function that
    /// has its code alone and was [forgotten](crate::streaming::StreamingMerger::plan_recording),
    /// or not added, the direct calls are recorded.
    pub fn add_code(
        &mut self,
        symbol: &UserExternalName,
        numbered: Option<&Sites>,
        buffer: &MachBufferFinalized<Final>,
        names: &PrimaryMap<UserExternalNameRef, UserExternalName>,
    ) {
        let own = key(symbol);
        let is_forgotten = !self.sites.contains_key(&own);
        let is_function = self.tail_calls.contains_key(&own);
        let calls = match numbered {
            // Of a function that has its code alone, nothing else is needed.
            Some(numbered) if is_forgotten && is_function && !self.bodies.contains(&own) => {
                numbered.calls(buffer)
            }
            Some(numbered) => return self.compiled(symbol, numbered, buffer),
            None if is_forgotten => called(buffer, names),
            // A thunk.
            None => return,
        };
        let places = (0..).zip(&calls).map(|(number, &(place, _))| (place, number)).collect();
        let callees = (0..).zip(&calls).map(|(number, &(_, callee))| (number, callee)).collect();
        let locations = calls.iter().map(|_| SourceLoc::default()).collect();
        let tail_callees = TailCallees::Any;
        self.places.insert(own, places);
        self.sites.insert(own, Sites { locations, callees, tail_callees, base: None });
    }

    /// Forgets the instructions of functions that share no code, or whose own body runs.
    pub(crate) fn forget(&mut self, plan: &Plan) {
        for (function, entry) in plan.entries().take(plan.added()) {
            let body = plan.reached(function).body;
            if body == function {
                self.sites.remove(&key(entry.symbol()));
            } else {
                self.bodies.insert(key(plan.entry(body).symbol()));
            }
        }
    }

    /// The tail calls of all functions.
    pub(super) fn tail_calls(&self) -> &TailCalls<Key> {
        &self.tail_calls
    }

    /// The symbols of all code that was recorded.
    pub(super) fn code(&self) -> impl Iterator<Item = Key> {
        self.places.keys().copied()
    }

    /// The places of code.
    pub(super) fn places(&self, code: &Key) -> &[(Place, u32)] {
        self.places.get(code).map_or(&[], |places| places)
    }

    /// Whether no function was recorded.
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    /// Whether the instructions of a function were recorded.
    pub(super) fn has(&self, function: &Key) -> bool {
        self.sites.contains_key(function)
    }

    /// The instructions of the function at the instructions of its body.
    pub(super) fn instructions(&self, function: &Key) -> Instructions<'_> {
        let relation = self.relations.get(function).map(|relation| &**relation);
        Instructions { relation, sites: self.sites.get(function) }
    }
}

/// A body, and the functions that it replaced and does not equal.
struct Replaced {
    body: FunctionIndex,
    /// By their classes.
    classes: BTreeMap<u32, Vec<FunctionIndex>>,
    /// See [`Recorded::relations`]: of the functions of the unit.
    relations: Vec<(Key, Relation)>,
}

impl Replaced {
    /// Relates the functions to the body. `known` are those of earlier units.
    fn relate(
        &mut self,
        plan: &Plan,
        bodies: &mut dyn Bodies,
        options: &Options<'_>,
        known: &BTreeMap<Key, Relation>,
    ) {
        let mut emitted = match plan.is_cached(self.body) {
            true => None,
            false => Some(Relating::new(plan, bodies, self.body)),
        };
        for members in self.classes.values() {
            let symbol = |function: FunctionIndex| key(plan.entry(function).symbol());
            let earlier = members.iter().find_map(|&at| known.get(&symbol(at)));
            let mut of_unit = members.iter().copied().filter(|at| at.index() < plan.added());
            let Some(first) = of_unit.next() else { continue };
            let relation = match (earlier, &mut emitted) {
                (Some(earlier), None) => earlier.clone(),
                (_, Some(emitted)) => emitted.to(plan, bodies.body(first), first, options),
                (None, None) => Relation::default(),
            };
            let all = core::iter::once(first).chain(of_unit);
            self.relations.extend(all.map(|member| (symbol(member), relation.clone())));
        }
    }
}

/// The instructions of a function, by the numbers of those of its body.
#[derive(Clone, Copy)]
pub(super) struct Instructions<'a> {
    relation: Option<&'a [Option<u32>]>,
    sites: Option<&'a Sites>,
}

impl Instructions<'_> {
    pub fn at(&self, number: u32) -> Option<Site> {
        let number = match self.relation {
            Some(relation) => relation.get(number as usize).copied().flatten()?,
            None => number,
        };
        self.sites?.at(number)
    }
}

/// Where calls of code return to whose relocations name functions, and which.
fn called(
    buffer: &MachBufferFinalized<Final>,
    names: &PrimaryMap<UserExternalNameRef, UserExternalName>,
) -> Vec<(Place, Key)> {
    let mut returns: Vec<u32> = buffer.call_sites().map(|call| call.ret_addr).collect();
    returns.sort_unstable();
    let calls = buffer.relocs().iter().filter_map(|reloc| {
        let FinalizedRelocTarget::ExternalName(ExternalName::User(callee)) = reloc.target else {
            return None;
        };
        let offset = reloc.offset + return_offset(reloc.kind)?;
        returns.binary_search(&offset).ok()?;
        Some((Place { offset, is_return: true }, key(&names[callee])))
    });
    let mut calls: Vec<(Place, Key)> = calls.collect();
    calls.sort_unstable();
    calls
}

/// A body, numbered, as it is compiled, and how functions are related to it.
struct Relating {
    func: Function,
    sites: Sites,
    /// By the shape of functions: those of one shape have the same instructions, and so have they
    /// in a body whose branches are theirs.
    of_shapes: BTreeMap<Vec<u8>, Relation>,
}

impl Relating {
    fn new(plan: &Plan, bodies: &mut dyn Bodies, body: FunctionIndex) -> Relating {
        let mut func = not_redirected(plan, bodies, body).clone();
        let sites = Sites::number(&mut func);
        plan.apply(body, &mut func);
        Relating { func, sites, of_shapes: BTreeMap::new() }
    }

    /// Which instruction of a function each instruction of the body that replaced it runs for.
    fn to(
        &mut self,
        plan: &Plan,
        original: &Function,
        function: FunctionIndex,
        options: &Options<'_>,
    ) -> Relation {
        let Relating { func, sites, of_shapes } = self;
        let (order, shape) = encoded(original);
        if let Some(relation) = of_shapes.get(&shape) {
            return relation.clone();
        }
        let mut numbers: SecondaryMap<Inst, Option<u32>> = SecondaryMap::new();
        for (number, inst) in (0..).zip(order) {
            numbers[inst] = Some(number);
        }
        let mut relation = alloc::vec![None; sites.locations.len()];
        for (kept, original) in corresponding(plan, func, function, original, options) {
            let number = sites.number_at(func.srcloc(kept));
            if let Some(at) = number.and_then(|number| relation.get_mut(number as usize)) {
                *at = numbers[original];
            }
        }
        let relation: Relation = relation.into();
        let is_theirs = |inst: Inst| {
            let number = sites.number_at(func.srcloc(inst));
            number.is_some_and(|number| relation.get(number as usize).is_some_and(Option::is_some))
        };
        let mut insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
        if insts.all(|inst| !func.dfg.insts[inst].opcode().is_branch() || is_theirs(inst)) {
            of_shapes.insert(shape, relation.clone());
        }
        relation
    }
}
