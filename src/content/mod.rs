//! Content-addressed bodies: functions that other units may share are emitted under a digest of
//! their contents.
//!
//! At the end of a plan, each function that other units may have as well moves to a new body whose
//! symbol is its [`ContentDigest`]. Every unit emits such a body in a COMDAT group (ELF, COFF) or
//! as a weak definition (Mach-O), so that a linker keeps one of them, whatever it knows of
//! identical code. The function itself is merged into the body as within a unit: redirected if
//! nothing outside needs its symbol, else a thunk. So functions of different units share code
//! without any unit knowing another one.
//!
//! Equal digests must have equal bytes: bodies are laid out anew (`layout`), and a digest covers
//! all that their code depends on (`digest`). A body may refer only to what means the same in all
//! units: symbols that are visible outside, and other content-addressed bodies.
//!
//! It does *not* find functions that are equal within the unit: that is done before. It emits
//! nothing.

mod digest;

use crate::apply::{KeptCalls, body_to_emit, emitted_as};
use crate::canon::{ContentDigest, Context, Digest, Encoding, Scratch, code_digest, encode};
use crate::corpus::{self, Kind, SymbolNumber};
use crate::ir::{called, user_symbol};
use crate::layout::laid_out;
use crate::options::{ContentAddressing, Options};
use crate::plan::{Added, Disposition, Plan, Reason, ReplacedBy, SymbolUses, must_keep_symbol};
use crate::signatures::References;
use crate::unit::{
    Addresses, Attributes, Bodies, DataIndex, FunctionIndex, Linkage, Node, Observed,
    ResolveSymbol, Resolved,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use cranelift_codegen::ir::{
    ExtFuncData, Function, GlobalValueData, InstructionData, UserExternalName, UserExternalNameRef,
    UserFuncName,
};
use cranelift_entity::{EntityRef, EntitySet};
use cranelift_size_model as size;
pub(crate) use digest::{Contents, Target, digests};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// A function that may be content-addressed.
struct Candidate {
    function: FunctionIndex,
    /// Its code, laid out.
    body: Function,
    /// Why it must keep its symbol as a thunk, if it must.
    keeps_symbol: Option<Reason>,
    own: Digest,
    references: Vec<Reference>,
}

/// A reference of a candidate, as the plan leaves it.
struct Reference {
    kind: Kind,
    symbol: UserExternalName,
    /// The function that it leads to, if it could lead to the content-addressed body of that
    /// function.
    function: Option<FunctionIndex>,
}

/// Moves functions that other units may share to content-addressed bodies. `shared` are those of
/// which it is known that other units have them, if that is known of any.
///
/// Linear in the sizes of all functions that are kept; each of them that qualifies is copied, and
/// copies stay in the plan.
pub(crate) fn address_contents(
    plan: &mut Plan,
    observed: &Observed,
    shared: Option<&EntitySet<FunctionIndex>>,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
) {
    let Some(content) = options.content_addressing else {
        return;
    };
    // A limit is for finding a merge within the unit.
    if options.merge_limit.is_some() {
        return;
    }
    for function in mismatched_thunks(plan, bodies) {
        plan.set_called_by_symbol(function);
    }
    let candidates = candidates(plan, observed, shared, bodies, options, &content);
    let (candidates, contents) = nameable(plan, candidates, bodies, options.interposition);
    let digests = digests(&contents);
    plan.stats_mut().content_bodies = digests.len();
    write(plan, bodies, candidates, &digests);
}

/// The functions that could be content-addressed if all that they refer to means the same in all
/// units, ascending.
///
/// Where it is known which functions other units have, these are they, the parameterised bodies,
/// and what both refer to and only this unit can see. Otherwise it is every function that
/// qualifies.
fn candidates(
    plan: &Plan,
    observed: &Observed,
    shared: Option<&EntitySet<FunctionIndex>>,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
    content: &ContentAddressing,
) -> Vec<Candidate> {
    let passed = passed(plan);
    let mut walk = Walk::new(options, content);
    let mut candidates: Vec<Candidate> = Vec::new();
    let is_asked_for = |&function: &FunctionIndex| match shared {
        Some(shared) => shared.contains(function) || plan.parameterised_body(function).is_some(),
        None => true,
    };
    let functions = plan.entries().map(|(function, _)| function);
    let mut queue: Vec<FunctionIndex> = functions.filter(is_asked_for).collect();
    let mut queued: EntitySet<FunctionIndex> = EntitySet::new();
    for &function in &queue {
        queued.insert(function);
    }
    while let Some(function) = queue.pop() {
        let entry = plan.entry(function);
        let attributes = entry.attributes();
        let Attributes { linkage, pinned, no_merge, hot, .. } = *attributes;
        if entry.disposition() != Disposition::Keep
            || plan.is_cached(function)
            || pinned
            || no_merge
            || linkage == Linkage::Preemptible
        {
            continue;
        }
        let symbol = entry.symbol();
        let uses = SymbolUses {
            address: attributes.address_taken
                || observed.address_taken(symbol)
                || passed.contains(function),
            patchable: observed.patchable(symbol),
            ..SymbolUses::default()
        };
        // A function that the plan added has the attributes of a function that it is a copy of, but
        // nothing outside knows it.
        let is_added = plan.new_body(function).is_some();
        let keeps_symbol =
            must_keep_symbol(attributes, uses, ReplacedBy::Equal).filter(|_| !is_added);
        if keeps_symbol.is_some() {
            // Another jump on each call, and its bytes.
            let Some(thunk) = options.target.jump_thunk.filter(|_| !hot) else {
                continue;
            };
            let may_pay = match shared {
                Some(shared) => shared.contains(function),
                None => pays(function, thunk.size() + content.smallest_gain, bodies, options),
            };
            if !may_pay {
                continue;
            }
        }
        let func = emitted_as(plan, bodies, function, KeptCalls::external());
        let Some((body, own, references)) = walk.read(plan, function, &func) else {
            continue;
        };
        for to in references.iter().filter_map(|reference| reference.function) {
            if queued.insert(to) {
                queue.push(to);
            }
        }
        candidates.push(Candidate { function, body, keeps_symbol, own, references });
    }
    candidates.sort_unstable_by_key(|candidate| candidate.function);
    candidates
}

/// The thunks that pass extra arguments, that only the unit can see, and that are referred to by
/// another signature than their own. Linear in the imports of the unit, if it has such thunks.
fn mismatched_thunks(plan: &Plan, bodies: &mut dyn Bodies) -> BTreeSet<FunctionIndex> {
    let mut signatures = References::default();
    let mut has_thunks = false;
    for (function, entry) in plan.entries() {
        if matches!(entry.disposition(), Disposition::Thunk { to: _ })
            && !entry.extra_arguments().is_empty()
            && entry.attributes().linkage == Linkage::Local
            && function.index() < plan.added()
        {
            signatures.define(function, &bodies.body(function).signature);
            has_thunks = true;
        }
    }
    if !has_thunks {
        return BTreeSet::new();
    }
    for function in plan.entries().map(|(function, _)| function) {
        let Some(func) = body_to_emit(plan, bodies, function) else {
            continue;
        };
        for callee in func.dfg.ext_funcs.values() {
            let to = user_symbol(func, &callee.name).and_then(|symbol| plan.function(symbol));
            if let (Some(to), Some(signature)) = (to, func.dfg.signatures.get(callee.signature)) {
                signatures.refer(to, signature);
            }
        }
    }
    signatures.mismatched().collect()
}

/// The functions whose addresses are passed as extra arguments.
fn passed(plan: &Plan) -> EntitySet<FunctionIndex> {
    let mut passed = EntitySet::new();
    for (_, entry) in plan.entries() {
        for argument in entry.extra_arguments() {
            let symbol = argument.symbol().map(|symbol| plan.address_symbol(symbol));
            if let Some(function) = symbol.and_then(|symbol| plan.function(symbol)) {
                passed.insert(function);
            }
        }
    }
    passed
}

/// Whether a function takes more than this number of bytes.
fn pays(
    function: FunctionIndex,
    bytes: u32,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
) -> bool {
    let size = options
        .target
        .size_model
        .and_then(|model| model.at_least(bodies.body(function), &mut size::Scratch::default()));
    size.is_some_and(|size| size > bytes)
}

/// Reads candidates; memory to be reused.
struct Walk<'a> {
    options: &'a Options<'a>,
    settings: &'a [u8; 32],
    scratch: Scratch,
    encoding: Encoding,
    packed: Vec<u8>,
}

impl<'a> Walk<'a> {
    fn new(options: &'a Options<'a>, content: &'a ContentAddressing) -> Self {
        let scratch = Scratch::recording();
        let (encoding, packed) = Default::default();
        Walk { options, settings: &content.settings, scratch, encoding, packed }
    }

    /// The laid-out code of a function, the digest of the function itself, and what it refers to.
    /// `None` if it cannot be shared.
    fn read(
        &mut self,
        plan: &Plan,
        function: FunctionIndex,
        func: &Function,
    ) -> Option<(Function, Digest, Vec<Reference>)> {
        // Code that patches a call finds it in the function that the front end defined.
        if func.dfg.ext_funcs.values().any(|callee| callee.patchable) {
            return None;
        }
        let own = self.encode(plan, function, func)?;
        let Walk { options, scratch, .. } = self;
        let body = laid_out(func, scratch, options.compare.debug_info, &options.target)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&own);
        tables(&body, &mut hasher);
        let own = *hasher.finalize().as_bytes();
        let names = func.params.user_named_funcs();
        let reference = |node: &Node| {
            let (kind, symbol) = Names::reference(*node);
            let symbol = names[UserExternalNameRef::new(symbol)].clone();
            let to = plan.function(&symbol).filter(|&to| could_be_addressed(plan, to, kind));
            Reference { kind, symbol, function: to }
        };
        let references = self.encoding.callees.iter().map(reference).collect();
        Some((body, own, references))
    }

    /// Walks a function. Returns the digest of its encoding and of all else that its code depends
    /// on, but for what it refers to and how that stands in its tables.
    fn encode(&mut self, plan: &Plan, function: FunctionIndex, func: &Function) -> Option<Digest> {
        let Walk { options, settings, scratch, encoding, packed } = self;
        let entry = plan.entry(function);
        let symbols = Names::of(func);
        let context = Context::of(options, entry.attributes().key, &symbols);
        encode(func, &context, scratch, encoding).ok()?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&settings[..]);
        hasher.update(&code_digest(encoding, entry.alignment(), packed));
        Some(*hasher.finalize().as_bytes())
    }
}

/// Whether a reference of a kind could lead to the content-addressed body of a function: a function
/// that other units can see is known to them by its symbol only, and shared code refers to it in
/// the same way everywhere.
fn could_be_addressed(plan: &Plan, function: FunctionIndex, kind: Kind) -> bool {
    let Attributes { linkage, addresses, .. } = *plan.entry(function).attributes();
    linkage == Linkage::Local
        && match kind {
            Kind::Call => plan.call_target(function) == function,
            // If that function needs no thunk.
            Kind::Address => addresses == Addresses::Insignificant,
            Kind::Inside => false,
        }
}

/// The properties of native code besides the encoding: which references share an entry of a table,
/// so that the optimiser takes them for one entity, and how near they are.
fn tables(func: &Function, hasher: &mut blake3::Hasher) {
    let mut word = |word: u32| {
        hasher.update(&word.to_le_bytes());
    };
    for callee in func.dfg.ext_funcs.values() {
        let ExtFuncData { name: _, signature, colocated, patchable } = callee;
        word(signature.as_u32() << 2 | u32::from(*colocated) << 1 | u32::from(*patchable));
    }
    word(u32::MAX);
    for gv in func.global_values.values() {
        word(match gv {
            GlobalValueData::Symbol { name: _, offset: _, colocated, tls } => {
                u32::from(*colocated) << 1 | u32::from(*tls)
            }
            // By content in the encoding.
            GlobalValueData::VMContext
            | GlobalValueData::Load { .. }
            | GlobalValueData::IAddImm { .. }
            | GlobalValueData::DynScaleTargetConst { .. } => 4,
        });
    }
    for block in func.layout.blocks() {
        for inst in func.layout.block_insts(block) {
            if let Some(callee) = called(func, inst) {
                word(callee.as_u32());
            }
            match &func.dfg.insts[inst] {
                InstructionData::FuncAddr { opcode: _, func_ref } => word(func_ref.as_u32()),
                InstructionData::UnaryGlobalValue { opcode: _, global_value } => {
                    word(global_value.as_u32());
                }
                _ => {}
            }
        }
    }
}

/// The symbols of a function for a walk, each compared by its number in the function. Their
/// meanings are compared later.
pub(crate) struct Names<'a>(HashMap<&'a UserExternalName, usize, FxBuildHasher>);

impl<'a> Names<'a> {
    pub fn of(func: &'a Function) -> Self {
        let names = func.params.user_named_funcs().iter();
        Names(names.map(|(number, name)| (name, number.index())).collect())
    }

    /// The kind of a reference, and the number of its symbol.
    pub fn reference(node: Node) -> (Kind, usize) {
        let reference = corpus::Reference::of(node);
        (reference.kind(), reference.symbol().index())
    }
}

impl ResolveSymbol for Names<'_> {
    fn resolve(&self, symbol: &UserExternalName) -> Option<Resolved> {
        Some(corpus::Reference::resolved(SymbolNumber::new(*self.0.get(symbol)?)))
    }
}

/// The candidates that refer only to what means the same in all units, with what their digests are
/// made of.
fn nameable(
    plan: &Plan,
    candidates: Vec<Candidate>,
    bodies: &mut dyn Bodies,
    interposition: bool,
) -> (Vec<Candidate>, Vec<Contents>) {
    let mut names: HashMap<UserExternalName, Option<String>, FxBuildHasher> = HashMap::default();
    // Data objects that replace others.
    let merged = plan.data_entries().filter_map(|(_, entry)| entry.disposition().representative());
    let replaces_others: BTreeSet<DataIndex> = merged.collect();
    let mut name = |symbol: &UserExternalName| {
        let is_ambiguous = |function| plan.entry(function).is_exported_with_equals();
        let is_shared = |data| replaces_others.contains(&data);
        if interposition
            && (plan.function(symbol).is_some_and(is_ambiguous)
                || plan.data(symbol).is_some_and(is_shared))
        {
            return None;
        }
        let known = names.entry(symbol.clone());
        known.or_insert_with(|| bodies.link_name(symbol)).clone()
    };
    let number: BTreeMap<FunctionIndex, usize> =
        candidates.iter().enumerate().map(|(at, candidate)| (candidate.function, at)).collect();
    // The candidate to whose body a reference leads. An address of a function that becomes a thunk
    // is that of the thunk.
    let leads_to = |reference: &Reference| {
        let at = *number.get(&reference.function?)?;
        let to: &Candidate = &candidates[at];
        (reference.kind == Kind::Call || to.keeps_symbol.is_none()).then_some(at)
    };
    // References that need the content-addressed body of a candidate, by that candidate.
    let mut needed_by: Vec<Vec<usize>> = alloc::vec![Vec::new(); candidates.len()];
    let mut out = alloc::vec![false; candidates.len()];
    let mut left_out: Vec<usize> = Vec::new();
    for (at, candidate) in candidates.iter().enumerate() {
        for reference in &candidate.references {
            if name(&reference.symbol).is_some() {
                continue;
            }
            match leads_to(reference) {
                Some(to) => needed_by[to].push(at),
                None if !out[at] => {
                    out[at] = true;
                    left_out.push(at);
                }
                None => {}
            }
        }
    }
    while let Some(at) = left_out.pop() {
        for &user in &needed_by[at] {
            if !core::mem::replace(&mut out[user], true) {
                left_out.push(user);
            }
        }
    }
    let mut numbers: Vec<u32> = Vec::with_capacity(out.len());
    let mut next = 0;
    for &out in &out {
        numbers.push(next);
        next += u32::from(!out);
    }
    let mut target = |reference: &Reference| {
        let target = match leads_to(reference).filter(|&to| !out[to]) {
            Some(to) => Target::Content(numbers[to]),
            None => Target::Name(name(&reference.symbol).expect("others are left out")),
        };
        (reference.kind, target)
    };
    let mut contents = Vec::with_capacity(next as usize);
    for (candidate, _) in candidates.iter().zip(&out).filter(|&(_, &out)| !out) {
        let references = candidate.references.iter().map(&mut target).collect();
        contents.push(Contents { own: candidate.own, references });
    }
    let left = candidates.into_iter().zip(&out).filter(|&(_, &out)| !out);
    (left.map(|(candidate, _)| candidate).collect(), contents)
}

/// Writes content-addressed bodies into the plan.
fn write(
    plan: &mut Plan,
    bodies: &mut dyn Bodies,
    candidates: Vec<Candidate>,
    digests: &[ContentDigest],
) {
    // Parameterised bodies first: they are bodies of the plan already.
    let mut body_of: BTreeMap<ContentDigest, FunctionIndex> = BTreeMap::new();
    let mut moved: BTreeMap<FunctionIndex, FunctionIndex> = BTreeMap::new();
    let mut copied: Vec<(Candidate, ContentDigest)> = Vec::new();
    for (candidate, &digest) in candidates.into_iter().zip(digests) {
        let function = candidate.function;
        if plan.new_body(function).is_none() {
            copied.push((candidate, digest));
        } else if let alloc::collections::btree_map::Entry::Vacant(slot) = body_of.entry(digest) {
            slot.insert(function);
            plan.set_body(function, candidate.body);
            plan.set_content_digest(function, digest);
        }
    }
    for (Candidate { function, mut body, keeps_symbol, .. }, digest) in copied {
        let to = match body_of.get(&digest) {
            Some(&to) => to,
            None => {
                let Some(symbol) = bodies.fresh_symbol(&[function]) else {
                    continue;
                };
                body.name = UserFuncName::User(symbol.clone());
                let entry = plan.entry(function);
                let attributes = Attributes {
                    linkage: Linkage::Local,
                    addresses: Addresses::Insignificant,
                    address_taken: false,
                    externally_called: false,
                    ..*entry.attributes()
                };
                let (class, alignment) = (entry.class(), entry.alignment());
                let (reason, has_equals) = (Reason::ContentAddressed, false);
                let added = Added { symbol, attributes, reason, class, alignment, has_equals };
                let to = plan.add_body(added, body, Some(function));
                plan.set_content_digest(to, digest);
                body_of.insert(digest, to);
                to
            }
        };
        let (disposition, reason) = match keeps_symbol {
            Some(reason) => (Disposition::Thunk { to }, reason),
            None => (Disposition::Redirect { to }, Reason::ContentAddressed),
        };
        plan.set(function, disposition, reason);
        moved.insert(function, to);
    }
    // A function that was merged into a moved one follows it.
    let merged: Vec<(FunctionIndex, FunctionIndex, Disposition)> = plan
        .entries()
        .filter_map(|(function, entry)| {
            let disposition = entry.disposition();
            let to = moved.get(&disposition.representative()?)?;
            Some((function, *to, disposition))
        })
        .collect();
    for (function, to, disposition) in merged {
        match disposition {
            // A symbol of an object cannot have an address in another object's copy.
            Disposition::Alias { to: _ } => {
                plan.set(function, Disposition::Thunk { to }, Reason::VisibleOutside);
            }
            Disposition::Keep | Disposition::Redirect { to: _ } | Disposition::Thunk { to: _ } => {
                plan.retarget(function, to);
            }
        }
    }
}
