//! The driver: a unit of functions goes in, a [`Plan`] comes out.
//!
//! [`Merger::add`] takes the functions one after the other and keeps a summary of each (64 bytes,
//! and its symbol in a map); [`Merger::plan`] asks for the bodies of those again that may have an
//! equal. It reads as the list of the phases: summarise, bucket and compare (`classify`), refine
//! (`classes`), decide (`plan`). Applying is left to the caller, function by function
//! ([`Plan::apply`]).
//!
//! It owns no IR, names no architecture, emits no code, and does not verify: functions must be
//! accepted by Cranelift's verifier, or they are left alone at best.

use crate::canon::{ResolveSymbol, Resolved};
use crate::classes::refine;
use crate::classify::{Classified, classify};
use crate::options::{Addresses, Attributes, Canonicalize, Linkage, Options, Prebucket};
use crate::plan::{Plan, decide};
use crate::stats::Stats;
use crate::summary::{self, Observed};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_entity::{EntityRef, PrimaryMap, entity_impl};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// A function of the unit, in the order in which functions were added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionIndex(u32);
entity_impl!(FunctionIndex, "function");

/// Hands out the bodies of a unit's functions.
///
/// The caller owns the functions; the pass asks for those it needs, in an order of its own, some
/// of them twice.
///
/// An implementor must ensure that
/// * a body is the same whenever it is asked for, and the one given to [`Merger::add`];
/// * it passes Cranelift's verifier.
///
/// Failure to uphold these may result in functions that are not merged, in panics, or, if bodies
/// change in between, in wrong merges.
pub trait Bodies {
    /// The body of `function`.
    fn body(&mut self, function: FunctionIndex) -> &Function;

    /// The size of the native code of `function` in bytes, if it is known or can be found out.
    /// Asked only where a decision hinges on it. Default: not known, and then what pays only if a
    /// body is large enough is not done.
    fn code_size(&mut self, function: FunctionIndex) -> Option<u32> {
        let _ = function;
        None
    }

    /// A symbol that nothing uses yet, for a body that several preemptible functions share; another
    /// one at each call. Default: there are none, and such functions are left alone.
    fn fresh_symbol(&mut self) -> Option<UserExternalName> {
        None
    }
}

/// Functions in the order in which they were added.
impl Bodies for [Function] {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self[function.index()]
    }
}

/// Functions in the order in which they were added.
impl Bodies for Vec<Function> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self[function.index()]
    }
}

/// Functions in the order in which they were added.
impl Bodies for &[Function] {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self[function.index()]
    }
}

/// Why a function was not taken into the unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddError {
    /// The unit has a function of this symbol.
    DuplicateSymbol(UserExternalName),
    /// The function has no blocks: it is a declaration. Declarations are not part of a unit.
    NoBody(UserExternalName),
    /// An alignment that is no power of two.
    Alignment(u32),
    /// The unit has 2^32 - 2 functions.
    TooManyFunctions,
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddError::DuplicateSymbol(symbol) => write!(f, "function {symbol} is defined twice"),
            AddError::NoBody(symbol) => write!(f, "function {symbol} has no body"),
            AddError::Alignment(bytes) => write!(f, "alignment {bytes} is no power of two"),
            AddError::TooManyFunctions => write!(f, "too many functions"),
        }
    }
}

impl core::error::Error for AddError {}

/// What is kept of a function between [`Merger::add`] and [`Merger::plan`].
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub symbol: UserExternalName,
    pub attributes: Attributes,
    /// Functions with different buckets are not compared.
    pub bucket: u128,
    /// Instructions in the function's table, used or not.
    pub instructions: u32,
}

/// Collects the functions of a unit and plans what becomes of them.
///
/// See the [crate documentation](crate) for an example.
pub struct Merger<'a> {
    options: Options<'a>,
    functions: PrimaryMap<FunctionIndex, Summary>,
    by_symbol: HashMap<UserExternalName, FunctionIndex, FxBuildHasher>,
    observed: Observed,
    /// Whether there is a local function with a significant address. Of all others it is known
    /// what must stay of them, whoever takes their addresses.
    addresses_matter: bool,
    /// Functions that came before the first such function.
    unscanned: Vec<FunctionIndex>,
    classifier: crate::classify::Classifier,
    stats: Stats,
}

impl<'a> Merger<'a> {
    /// An empty unit.
    pub fn new(options: Options<'a>) -> Self {
        Merger {
            options,
            functions: PrimaryMap::new(),
            by_symbol: HashMap::default(),
            observed: Observed::default(),
            addresses_matter: false,
            unscanned: Vec::new(),
            classifier: Default::default(),
            stats: Stats::default(),
        }
    }

    /// The options of this run.
    pub fn options(&self) -> &Options<'a> {
        &self.options
    }

    /// Takes a function into the unit, under the name by which the others refer to it. The
    /// function itself is not kept.
    ///
    /// Constant time with [`Prebucket::Counts`], and from the first local function with a
    /// significant address on, a scan of opcodes; a walk of the function with
    /// [`Prebucket::WalkAll`]; with [`Canonicalize::Optimize`], an optimisation of a copy.
    ///
    /// # Errors
    ///
    /// See [`AddError`]. The unit is as it was before.
    pub fn add(
        &mut self,
        symbol: UserExternalName,
        func: &Function,
        attributes: Attributes,
    ) -> Result<FunctionIndex, AddError> {
        if self.by_symbol.contains_key(&symbol) {
            return Err(AddError::DuplicateSymbol(symbol));
        }
        if func.layout.entry_block().is_none() {
            return Err(AddError::NoBody(symbol));
        }
        if !attributes.alignment.is_power_of_two() {
            return Err(AddError::Alignment(attributes.alignment));
        }
        if self.functions.len() >= u32::MAX as usize - 1 {
            return Err(AddError::TooManyFunctions);
        }
        self.observed.add_tables(func);
        self.addresses_matter |=
            attributes.linkage == Linkage::Local && attributes.addresses == Addresses::Significant;
        let scanned = self.addresses_matter;
        if scanned {
            self.observed.add_address_uses(func);
        }
        let body = canonicalized(func, self.options.canonicalize);
        let bucket = match self.options.prebucket {
            Prebucket::Counts => u128::from(summary::counts(&body, attributes.key)),
            Prebucket::WalkAll => {
                self.stats.walk_add_functions += 1;
                self.classifier.hash_alone(&body, attributes.key, &self.options)
            }
        };
        self.stats.add_functions += 1;
        let instructions = u32::try_from(body.dfg.num_insts()).unwrap_or(u32::MAX);
        let summary = Summary { symbol: symbol.clone(), attributes, bucket, instructions };
        let index = self.functions.push(summary);
        if !scanned {
            self.unscanned.push(index);
        }
        self.by_symbol.insert(symbol, index);
        Ok(index)
    }

    /// The function of a symbol, if the unit has one.
    pub fn function(&self, symbol: &UserExternalName) -> Option<FunctionIndex> {
        self.by_symbol.get(symbol).copied()
    }

    /// The number of functions added.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether no function was added.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Finds the classes of equal functions and decides what becomes of every function.
    ///
    /// Asks `bodies` for the functions that share a bucket with another one, and for those that
    /// were added before the first local function with a significant address. Linear in their
    /// sizes, up to a logarithm. The result does not depend on the order of the functions.
    pub fn plan(mut self, bodies: &mut dyn Bodies) -> Plan {
        self.observe(bodies);
        let mut classified = self.classify(bodies);
        self.stats.refine_classes_before = classified.partition.len();
        refine(&mut classified.partition, &classified.nodes, &classified.references);
        self.stats.refine_classes_after = classified.partition.len();
        let Merger { options, functions, by_symbol, observed, stats, .. } = self;
        decide(&options, functions, by_symbol, &observed, &classified, bodies, stats)
    }

    /// Catches up on the functions whose uses of addresses were not looked at.
    fn observe(&mut self, bodies: &mut dyn Bodies) {
        if self.addresses_matter {
            for function in core::mem::take(&mut self.unscanned) {
                self.observed.add_address_uses(bodies.body(function));
            }
        }
    }

    fn classify(&mut self, bodies: &mut dyn Bodies) -> Classified {
        let symbols = UnitSymbols { functions: &self.functions, by_symbol: &self.by_symbol };
        classify(
            &self.functions,
            &symbols,
            &self.options,
            &mut self.classifier,
            bodies,
            &mut self.stats,
        )
    }
}

impl fmt::Debug for Merger<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merger").field("options", &self.options).field("len", &self.len()).finish()
    }
}

/// Which symbols are functions of the unit, and how references to them are compared.
pub(crate) struct UnitSymbols<'a> {
    pub functions: &'a PrimaryMap<FunctionIndex, Summary>,
    pub by_symbol: &'a HashMap<UserExternalName, FunctionIndex, FxBuildHasher>,
}

impl ResolveSymbol for UnitSymbols<'_> {
    fn resolve(&self, symbol: &UserExternalName) -> Option<Resolved> {
        let &function = self.by_symbol.get(symbol)?;
        Some(resolved(function, &self.functions[function].attributes))
    }
}

/// How references to a function of the unit are compared.
pub(crate) fn resolved(function: FunctionIndex, attributes: &Attributes) -> Resolved {
    // Another definition may take a preemptible function's place, and one that must not be merged
    // must stay distinguishable: such a symbol equals only itself.
    let known = attributes.linkage != Linkage::Preemptible && !attributes.no_merge;
    let insignificant = attributes.addresses == Addresses::Insignificant;
    Resolved { function, calls_by_class: known, addresses_by_class: known && insignificant }
}

/// The body that is compared.
pub(crate) fn canonicalized<'f>(func: &'f Function, how: Canonicalize<'_>) -> Cow<'f, Function> {
    match how {
        Canonicalize::None => Cow::Borrowed(func),
        Canonicalize::Optimize(isa) => {
            let mut context = cranelift_codegen::Context::for_function(func.clone());
            match context.optimize(isa, &mut Default::default()) {
                Ok(()) => Cow::Owned(context.func),
                // Compared as it is: the back end will report the error, not this pass.
                Err(_) => Cow::Borrowed(func),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_takes_64_bytes() {
        assert_eq!(size_of::<Summary>(), 64);
    }
}
