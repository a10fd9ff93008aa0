//! From a unit to the merged unit: plans, applies, and says what to emit for each function and data
//! object.

use crate::data::GivenData;
use crate::extra::extra;
use crate::unit::{Became, Given, Names, Unit};
use anyhow::Result;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::data::{DataAttributes, DataEmit, DataIndex, DataObject, DataOutput};
use cranelift_mergefunc::thunk::CallThunks;
use cranelift_mergefunc::units::UnitSummary;
use cranelift_mergefunc::{
    self as pass, Bodies, ExtraArgument, FunctionIndex, Linkage, Merger, Options, Plan, SyncBodies,
    Target, cranelift_codegen,
};
use std::collections::{HashMap, HashSet};

/// The form of a jump in CLIF, which has none between functions.
pub const CALL_THUNKS: CallThunks = CallThunks { tail_calls: true, colocated: true };

/// The emission of a function of the merged unit.
#[derive(Clone, Debug)]
pub enum Emit {
    /// A body. (Boxed: most of what is emitted are these, but not all.)
    Body(Box<Function>),
    /// A jump to another function, with these arguments behind those that there are.
    Thunk(UserExternalName, Vec<ExtraArgument>),
    /// Another name for a function's address.
    Alias(UserExternalName),
    /// Nothing.
    Nothing,
}

/// A unit after merging. The order is that of the unit, new bodies at the end.
#[derive(Debug)]
pub struct Merged {
    /// The emissions, by `FunctionIndex`.
    pub emit: Vec<Emit>,
    /// Whether a body is another one than in the unit, by `FunctionIndex`.
    pub changed: Vec<bool>,
    /// Each data object after merging, by `DataIndex`: the object, with pointers to
    /// representatives, or an alias, or nothing.
    pub data: Vec<Option<GivenData>>,
    /// The names of the unit, and of new bodies.
    pub names: Names,
    /// The plan, with the reasons.
    pub plan: Plan,
}

/// The functions and data objects of a unit.
#[derive(Clone, Copy)]
struct Held<'a> {
    functions: &'a [Function],
    data: &'a [GivenData],
}

impl SyncBodies for Held<'_> {
    fn body(&self, function: FunctionIndex) -> &Function {
        &self.functions[function.index()]
    }

    fn data(&self, data: DataIndex) -> Option<&DataObject> {
        Some(&self.data[data.index()].object)
    }
}

/// Held bodies as the pass asks for them.
struct UnitBodies<'a> {
    held: Held<'a>,
    names: &'a mut Names,
    /// Symbols that only this unit can see.
    local: HashSet<&'a UserExternalName>,
    /// The number of the next new body.
    next: u32,
    /// Whether the pass works on all threads of the current `rayon` pool.
    threads: bool,
}

impl Bodies for UnitBodies<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        self.held.body(function)
    }

    fn data(&mut self, data: DataIndex) -> Option<&DataObject> {
        self.held.data(data)
    }

    fn fresh_symbol(&mut self, _: &[FunctionIndex]) -> Option<UserExternalName> {
        loop {
            let text = format!("body{}", self.next);
            self.next += 1;
            if !self.names.contains(&text) {
                return Some(self.names.add(text));
            }
        }
    }

    fn link_name(&mut self, symbol: &UserExternalName) -> Option<String> {
        (!self.local.contains(symbol)).then(|| self.names.display(symbol))
    }

    fn sync(&self) -> Option<Box<dyn SyncBodies + '_>> {
        self.threads.then(|| Box::new(self.held) as _)
    }
}

/// Plans `unit`, on one thread.
pub fn plan(unit: &Unit, options: &Options<'_>) -> Result<(Plan, Names)> {
    let mut names = unit.names.clone();
    let plan = plan_functions(&unit.functions, unit, &mut names, options, false)?;
    Ok((plan, names))
}

/// Like [`plan`], for functions that need not be in `unit` any more. Symbols of new bodies are
/// added to `names`. With `threads`, the pass works on all threads of the current `rayon` pool.
pub fn plan_functions(
    functions: &[Function],
    unit: &Unit,
    names: &mut Names,
    options: &Options<'_>,
    threads: bool,
) -> Result<Plan> {
    let (merger, mut bodies) = prepared(functions, unit, names, options, threads)?;
    let plan = merger.plan(&mut bodies);
    for new in plan.new_bodies() {
        if let Some(digest) = new.content_digest() {
            names.rename(plan.entry(new.function()).symbol(), digest.to_string());
        }
    }
    Ok(plan)
}

/// A unit that is ready to be planned.
fn prepared<'a, 'o>(
    functions: &'a [Function],
    unit: &'a Unit,
    names: &'a mut Names,
    options: &Options<'o>,
    threads: bool,
) -> Result<(Merger<'o>, UnitBodies<'a>)> {
    let mut merger = Merger::new(*options);
    merger.reserve(functions.len());
    for (func, given) in functions.iter().zip(&unit.given) {
        merger
            .add(given.symbol.clone(), func, given.attributes)
            .map_err(|error| given.place.error(error.to_string()))?;
    }
    for given in &unit.data {
        merger
            .add_data(given.symbol.clone(), &given.object, given.for_pass())
            .map_err(|error| given.place.error(error.to_string()))?;
    }
    let held = Held { functions, data: &unit.data };
    let given = unit.given.iter().map(|given| (&given.symbol, given.attributes.linkage));
    let data = unit.data.iter().map(|given| (&given.symbol, given.attributes.linkage));
    let local = given.chain(data).filter(|&(_, linkage)| linkage == Linkage::Local);
    let local = local.map(|(symbol, _)| symbol).collect();
    Ok((merger, UnitBodies { held, names, local, next: 0, threads }))
}

/// Carries out `plan`. `unit` keeps its functions.
pub fn apply(unit: &Unit, plan: Plan, names: Names) -> Merged {
    let mut emit: Vec<Emit> = Vec::with_capacity(unit.functions.len());
    let mut changed = Vec::with_capacity(unit.functions.len());
    for output in plan.outputs() {
        let index = output.function.index();
        let apply = |func: &Function| {
            let mut func = func.clone();
            let changed = plan.apply(output.function, &mut func);
            (Emit::Body(Box::new(func)), changed)
        };
        let (emitted, is_changed) = match output.emit {
            pass::Emit::Nothing => (Emit::Nothing, false),
            pass::Emit::Alias { to } => (Emit::Alias(to.clone()), false),
            pass::Emit::Thunk { to, extra_arguments, late: _ } => {
                (Emit::Thunk(to.clone(), extra_arguments), false)
            }
            pass::Emit::NewBody(body) => (apply(body).0, true),
            pass::Emit::Body => match &unit.given[index].became {
                // A thunk or an alias of the text stays one.
                Some((kind, target)) => {
                    (stays(&plan, &unit.functions[index], *kind, target), false)
                }
                None => apply(&unit.functions[index]),
            },
        };
        emit.push(emitted);
        changed.push(is_changed);
    }
    let data = plan.data_outputs().zip(&unit.data);
    let data = data.map(|(output, given)| left_of(&plan, &output, given)).collect();
    Merged { emit, changed, data, names, plan }
}

/// The new target of a thunk or an alias of the text: the representative, if its target was merged
/// away.
fn stays(plan: &Plan, func: &Function, kind: Became, target: &UserExternalName) -> Emit {
    let (target, further) = match plan.function(target) {
        None => (target.clone(), Vec::new()),
        Some(before) => match plan.call_target(before) {
            after if after == before => (target.clone(), Vec::new()),
            after => (plan.entry(after).symbol().clone(), plan.thunk_arguments(before)),
        },
    };
    match kind {
        Became::Thunk => {
            let address = |symbol: &_| Some(plan.address_symbol(symbol).clone());
            let extra = extra(func);
            let mut extra: Vec<ExtraArgument> =
                extra.iter().map(|extra| extra.redirected(&address)).collect();
            extra.extend(further);
            Emit::Thunk(target, extra)
        }
        Became::Alias => Emit::Alias(target),
    }
}

/// A data object after merging.
fn left_of(plan: &Plan, output: &DataOutput<'_>, given: &GivenData) -> Option<GivenData> {
    match output.emit {
        DataEmit::Nothing => None,
        DataEmit::Alias { to } => Some(given.clone().into_alias(to.clone())),
        DataEmit::Contents => {
            let mut left = given.clone();
            let alignment = output.alignment;
            left.attributes = DataAttributes { alignment, ..left.attributes };
            // An alias of the text follows its target.
            let targets = left.object.relocations.iter_mut().map(|reloc| &mut reloc.target);
            for target in targets.chain(&mut left.alias) {
                *target = plan.address_symbol(target).clone();
            }
            Some(left)
        }
    }
}

/// The summary of `unit` for merging across units, under the name `name`. The options must have
/// content addressing.
pub fn summarize(unit: &Unit, options: &Options<'_>, name: String) -> Result<UnitSummary> {
    let mut names = unit.names.clone();
    let (merger, mut bodies) = prepared(&unit.functions, unit, &mut names, options, false)?;
    let summary = merger.summarize(&mut bodies, name);
    let mut summary = summary.expect("content addressing is on");
    // A symbol that linkers do not know goes by its number: here all functions have the names of
    // the text.
    let display = |given: &Given| (given.symbol.to_string(), unit.names.display(&given.symbol));
    let displayed: HashMap<String, String> = unit.given.iter().map(display).collect();
    for function in &mut summary.functions {
        if function.linkage == Linkage::Local
            && let Some(name) = displayed.get(&function.symbol)
        {
            function.symbol.clone_from(name);
        }
    }
    Ok(summary)
}

/// Plans and applies.
pub fn merge(unit: &Unit, options: &Options<'_>) -> Result<Merged> {
    let (plan, names) = plan(unit, options)?;
    Ok(apply(unit, plan, names))
}

/// The target of the pass for an ISA, or the generic one.
pub fn target_of(isa: Option<&dyn cranelift_codegen::isa::TargetIsa>) -> Target {
    isa.map_or(Target::generic(), Target::of)
}
