//! The output of a back end for a unit, merged or not: plain data that a host can run.
//!
//! [`Program::merged`] carries a plan out as an embedder does, function by function. It decides
//! nothing, compiles nothing, and knows no target: a thunk is described as a jump, and the host
//! writes its code.
//!
//! # Conventions
//!
//! The symbols of a unit that is to be run mean:
//!
//! | symbol | is |
//! |---|---|
//! | `u0:N` | a function of the unit |
//! | `u1:K` | an imported function: it writes its number and its arguments into a trace and returns a hash of them |
//! | `u2:0` | imported memory of [`MEMORY_BYTES`], filled by a seed; its first eight bytes are the *fuel* |
//! | `u3:T` | an imported function that throws an exception with the tag T, with a hash of its arguments |
//! | `u4:N` | a data object of the unit |
//! | `u9:N` | what the plan adds |
//!
//! A function takes from the fuel at its entry and in its loops and traps when there is none, so
//! that everything ends. Addresses are called, loaded from and stored to; what is returned, stored
//! or passed to an import is never one.

use crate::unit::{self, Member};
use cranelift_codegen::ir::{
    ExtFuncData, ExternalName, FuncRef, Function, GlobalValue, GlobalValueData, Inst,
    InstructionData, Signature, UserExternalName, UserFuncName,
};
use cranelift_entity::EntityRef;
use cranelift_mergefunc::check::{Proof, Refutation, prove, prove_after};
use cranelift_mergefunc::data::{DataAttributes, DataEmit, DataIndex, DataObject};
use cranelift_mergefunc::incremental::{Increment, MergeCache};
use cranelift_mergefunc::streaming::{Caller, Known, Reader, StreamingMerger};
use cranelift_mergefunc::thunk::{CallThunks, OptimizeFor, ThunkCode, call_thunk};
use cranelift_mergefunc::units::UnitSummary;
use cranelift_mergefunc::{
    Bodies, Disposition, Emit, ExtraArgument, FunctionIndex, Linkage, Merger, Options, Plan, Target,
};
use std::borrow::Cow;

/// The namespace of the imported memory.
pub const MEMORY: u32 = 2;
/// The namespace of imported functions that throw.
pub const THROWING: u32 = 3;
/// The namespace of functions that a plan adds.
pub const ADDED: u32 = 9;
/// The namespace of wrappers: functions that call the body of an eliminated function with its extra
/// arguments.
pub const WRAPPERS: u32 = 10;

/// The size of the imported memory in bytes.
pub const MEMORY_BYTES: usize = 4096;

/// The parts of a unit, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// In the order in which they are added.
    pub functions: &'a [Member],
    /// In the order in which they are added.
    pub data: &'a [DataMember],
    /// The options of the plan.
    pub options: &'a Options<'a>,
}

/// A data object of a unit.
#[derive(Clone, Debug)]
pub struct DataMember {
    /// The symbol by which functions and other objects refer to it.
    pub symbol: UserExternalName,
    /// The attributes that the caller gives it.
    pub attributes: DataAttributes,
    /// The contents.
    pub object: DataObject,
}

impl<'a> From<&'a unit::Unit> for Parts<'a> {
    fn from(unit: &'a unit::Unit) -> Self {
        Parts { functions: &unit.functions, data: &unit.data, options: &unit.options }
    }
}

impl Parts<'_> {
    /// The plan for the unit.
    ///
    /// # Panics
    ///
    /// If two parts have one symbol, or a function has no body.
    pub fn plan(&self) -> Plan {
        self.plan_by(Merger::new(*self.options), 0).0
    }

    /// The plan for the unit after the earlier units of `cache`, and what later units must know of
    /// it.
    ///
    /// # Panics
    ///
    /// If two parts have one symbol, or a function has no body.
    pub fn plan_increment(&self, cache: &MergeCache) -> (Plan, Increment) {
        // Earlier units used no more symbols for new functions than the cache knows symbols in all.
        self.plan_by(Merger::after(cache, *self.options), cache.remembered() as u32)
    }

    fn plan_by(&self, merger: Merger<'_>, added: u32) -> (Plan, Increment) {
        self.added_to(merger).plan_increment(&mut Held { added, ..self.held() })
    }

    fn added_to<'m>(&self, mut merger: Merger<'m>) -> Merger<'m> {
        for member in self.functions {
            merger.add(member.symbol(), &member.body, member.attributes).expect("is added");
        }
        for DataMember { symbol, attributes, object } in self.data {
            merger.add_data(symbol.clone(), object, *attributes).expect("is added");
        }
        merger
    }

    /// The same plan, but for the numbers of new symbols, which begin at `added`.
    ///
    /// # Panics
    ///
    /// As [`Parts::plan`].
    pub fn plan_from(&self, added: u32) -> Plan {
        self.plan_by(Merger::new(*self.options), added).0
    }

    /// The summary of this unit for other units.
    ///
    /// # Panics
    ///
    /// As [`Parts::plan`], or without [`Options::content_addressing`].
    pub fn summarize(&self, unit: String) -> UnitSummary {
        let merger = self.added_to(Merger::new(*self.options));
        let summary = merger.summarize(&mut self.held(), unit);
        summary.expect("content addressing is on")
    }

    /// The answer of the checker about a plan for the unit.
    ///
    /// # Errors
    ///
    /// As [`prove`].
    pub fn prove(&self, plan: &Plan) -> Result<Proof, Refutation> {
        prove(plan, &mut self.held(), self.options)
    }

    /// Proves a plan that was made after earlier units.
    pub fn prove_after(&self, cache: &MergeCache, plan: &Plan) -> Result<Proof, Refutation> {
        prove_after(cache, plan, &mut self.held(), self.options)
    }

    /// The name by which other units know a symbol, unless only this unit can see it.
    pub fn link_name(&self, symbol: &UserExternalName) -> Option<String> {
        let function = self.functions.iter().find(|member| member.symbol() == *symbol);
        let data = self.data.iter().find(|member| member.symbol == *symbol);
        let linkage = function.map(|member| member.attributes.linkage);
        let linkage = linkage.or(data.map(|member| member.attributes.linkage));
        let is_seen = linkage != Some(Linkage::Local) && symbol.namespace != ADDED;
        is_seen.then(|| symbol.to_string())
    }

    fn held(&self) -> Held<'_> {
        Held { parts: *self, added: 0 }
    }
}

/// The caller's side of a plan.
struct Held<'a> {
    parts: Parts<'a>,
    added: u32,
}

impl Bodies for Held<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self.parts.functions[function.index()].body
    }

    fn data(&mut self, data: DataIndex) -> Option<&DataObject> {
        Some(&self.parts.data[data.index()].object)
    }

    fn fresh_symbol(&mut self, _: &[FunctionIndex]) -> Option<UserExternalName> {
        self.added += 1;
        Some(UserExternalName::new(ADDED, self.added - 1))
    }

    fn link_name(&mut self, symbol: &UserExternalName) -> Option<String> {
        self.parts.link_name(symbol)
    }
}

/// How an embedder streams functions: see [`StreamingMerger`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streaming {
    /// It holds at most this many bytes of IR, and what it compiled stays.
    Holding(usize),
    /// It holds at most this many bytes, makes IR anew, and replaces what it compiled.
    Replacing(usize),
    /// It compiles nothing before the plan, and does not add this many of eight functions: the last
    /// ones.
    BeforeCode {
        /// In eighths of the functions.
        left_out: usize,
    },
}

impl Streaming {
    /// Every way that tests go, by number.
    pub fn any(number: usize) -> Streaming {
        let max_bytes = [0, 8 << 10, 100_000, usize::MAX][number % 4];
        match number / 4 % 5 {
            0 | 1 => Streaming::Holding(max_bytes),
            2 | 3 => Streaming::Replacing(max_bytes),
            _ => Streaming::BeforeCode { left_out: number / 20 % 4 },
        }
    }

    /// Whether IR can be made of functions that are not held.
    fn makes_ir(self) -> bool {
        !matches!(self, Streaming::Holding(_))
    }

    fn max_bytes(self) -> usize {
        match self {
            Streaming::Holding(max_bytes) | Streaming::Replacing(max_bytes) => max_bytes,
            Streaming::BeforeCode { .. } => usize::MAX,
        }
    }

    fn merger(self, options: Options<'_>) -> StreamingMerger<'_> {
        match self {
            Streaming::Holding(max_bytes) => StreamingMerger::holding(options, max_bytes),
            Streaming::Replacing(max_bytes) => StreamingMerger::replacing(options, max_bytes),
            Streaming::BeforeCode { .. } => StreamingMerger::before_code(options),
        }
    }

    /// How many functions are added. All, if a call in the others can be patched: it finds its
    /// callee under the symbol that it had.
    fn added(self, functions: &[Member]) -> usize {
        let Streaming::BeforeCode { left_out } = self else {
            return functions.len();
        };
        let added = functions.len() - functions.len() * left_out / 8;
        let mut others = functions[added..].iter();
        let is_patched =
            others.any(|other| other.body.dfg.ext_funcs.values().any(|callee| callee.patchable));
        if is_patched { functions.len() } else { added }
    }
}

/// The bodies of a program, without the IR of functions that are not held.
struct OnlyHeld<'a> {
    held: &'a [bool],
    makes_ir: bool,
    all: Held<'a>,
}

impl Bodies for OnlyHeld<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        assert!(self.makes_ir || self.held[function.index()], "{function} is not held");
        self.all.body(function)
    }

    fn fresh_symbol(&mut self, members: &[FunctionIndex]) -> Option<UserExternalName> {
        self.all.fresh_symbol(members)
    }
}

/// The plan and state of a unit whose functions arrived one at a time.
pub struct Streamed {
    /// The plan for the unit.
    pub plan: Plan,
    /// Whose code each function has: its own, unless it equalled another one when it was added.
    pub code_of: Vec<FunctionIndex>,
    /// Which functions were held until the plan.
    pub held: Vec<bool>,
    /// How they arrived: if IR can be made anew, others may share bodies, too.
    pub streaming: Streaming,
}

/// The definition that is emitted for a symbol.
#[derive(Clone, Debug)]
pub enum Definition {
    /// The code of a function.
    Body(Box<Function>),
    /// A jump to another function.
    Jump(Jump),
    /// Another name for an address.
    Alias(UserExternalName),
}

/// A thunk, in whatever form the target has it.
#[derive(Clone, Debug)]
pub struct Jump {
    /// Where it jumps to.
    pub to: UserExternalName,
    /// The arguments that it passes behind its own.
    pub arguments: Vec<ExtraArgument>,
    /// The goal for which its bytes are optimised.
    pub optimize: OptimizeFor,
    /// The thunk as a function that calls.
    pub call: Box<Function>,
}

impl Jump {
    /// The thunk as the target has it, in bytes; `None` if it has none and `call` must do.
    pub fn code(&self, target: &Target) -> Option<ThunkCode> {
        target.thunk_code(&self.call.signature, &self.arguments, &self.to, self.optimize)
    }
}

/// The definition that is emitted for the symbol of a data object.
#[derive(Clone, Debug)]
pub enum DataDefinition {
    /// Its contents, at this alignment in bytes.
    Object(DataObject, u64),
    /// Another name for the address of another one.
    Alias(UserExternalName),
}

/// A function of the unit that is called from outside.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its symbol in the unit.
    pub function: UserExternalName,
    /// By which symbol it is called here: its own, unless it was redirected.
    pub symbol: UserExternalName,
    /// How it is called.
    pub signature: Signature,
}

/// The definitions that a back end emits for a unit.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Functions by symbol, in the order of the unit, and then what the plan added.
    pub functions: Vec<(UserExternalName, Definition)>,
    /// Data objects by symbol, in the order of the unit.
    pub data: Vec<(UserExternalName, DataDefinition)>,
    /// Every function of the unit, in its order.
    pub entries: Vec<Entry>,
}

impl Program {
    /// The unit as it is.
    pub fn unmerged(unit: &Parts<'_>) -> Program {
        let functions = unit.functions.iter();
        let data = unit.data.iter().map(|DataMember { symbol, attributes, object }| {
            (symbol.clone(), DataDefinition::Object(object.clone(), attributes.alignment))
        });
        Program {
            functions: functions
                .clone()
                .map(|member| (member.symbol(), Definition::Body(Box::new(member.body.clone()))))
                .collect(),
            data: data.collect(),
            entries: functions.map(|member| entry(member, &member.symbol())).collect(),
        }
    }

    /// The unit after `plan`, which is a plan for it.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub fn merged(unit: &Parts<'_>, plan: &Plan) -> Program {
        Program::of_outputs(unit, plan, |function| {
            let mut body = unit.functions[function.index()].body.clone();
            plan.apply(function, &mut body);
            body
        })
    }

    /// The unit after `plan`, where kept functions have the code that `code` makes.
    fn of_outputs(
        unit: &Parts<'_>,
        plan: &Plan,
        code: impl Fn(FunctionIndex) -> Function,
    ) -> Program {
        let mut program = Program::default();
        for output in plan.outputs() {
            let function = output.function;
            let definition = match output.emit {
                Emit::Nothing => None,
                Emit::Alias { to } => Some(Definition::Alias(to.clone())),
                Emit::Thunk { to, extra_arguments, late } => {
                    let own = unit.functions.get(function.index());
                    let signature = late.or(own.map(|own| &own.body.signature));
                    let signature = signature.expect("of the unit, or late");
                    check_finished(plan, function, signature, unit.options);
                    Some(thunk(output.symbol, signature, extra_arguments, to, unit.options))
                }
                Emit::Body => Some(Definition::Body(Box::new(code(function)))),
                Emit::NewBody(new) => {
                    let mut new = new.clone();
                    plan.apply(function, &mut new);
                    Some(Definition::Body(Box::new(new)))
                }
            };
            program.functions.extend(definition.map(|code| (output.symbol.clone(), code)));
            let Some(member) = unit.functions.get(function.index()) else {
                continue;
            };
            let left = plan.entry(function);
            program.entries.push(match left.disposition() {
                Disposition::Redirect { to } if !left.extra_arguments().is_empty() => {
                    // Only callers that pass the extra arguments refer to the body: here, a
                    // wrapper.
                    let wrapper = UserExternalName::new(WRAPPERS, function.as_u32());
                    let arguments = plan.thunk_arguments(function);
                    let (signature, to) = (&member.body.signature, plan.entry(to).symbol());
                    let wrapper_code = thunk(output.symbol, signature, arguments, to, unit.options);
                    program.functions.push((wrapper.clone(), wrapper_code));
                    entry(member, &wrapper)
                }
                _ => entry(member, plan.address_symbol(output.symbol)),
            });
        }
        for (output, member) in plan.data_outputs().zip(unit.data) {
            let definition = match output.emit {
                DataEmit::Nothing => continue,
                DataEmit::Alias { to } => DataDefinition::Alias(to.clone()),
                DataEmit::Contents => {
                    let mut object = member.object.clone();
                    for reloc in &mut object.relocations {
                        reloc.target = plan.address_symbol(&reloc.target).clone();
                    }
                    DataDefinition::Object(object, output.alignment)
                }
            };
            program.data.push((member.symbol.clone(), definition));
        }
        program
    }

    /// The unit as an embedder emits it that compiles functions as they arrive and holds some: kept
    /// functions have the code of the function that they equalled when they were added; references
    /// of compiled code are redirected afterwards, and held functions are compiled then. Functions
    /// that are not added come last: some are rewritten before they are compiled, the others are
    /// compiled as they are, and their references are redirected as well. Data objects are not
    /// merged.
    ///
    /// # Panics
    ///
    /// If two parts have one symbol, a function has no body, or IR that is not held is requested.
    pub fn streamed(unit: &Parts<'_>, streaming: Streaming) -> (Program, Streamed) {
        let mut merger = streaming.merger(*unit.options);
        let all = unit.functions;
        let (added, others) = all.split_at(streaming.added(all));
        let unit = &Parts { functions: added, ..*unit };
        for reloc in unit.data.iter().flat_map(|member| &member.object.relocations) {
            merger.add_address_use(&reloc.target, reloc.addend);
        }
        for member in all {
            // Late information concerns only functions that have code of their own. Other addresses
            // are found in the code.
            for gv in member.body.global_values.values() {
                if let GlobalValueData::Symbol { name: ExternalName::User(name), offset, .. } = gv
                    && offset.bits() != 0
                {
                    let symbol = &member.body.params.user_named_funcs()[*name];
                    merger.add_address_use(symbol, offset.bits());
                }
            }
        }
        let callers: Vec<Caller> = others.iter().map(|other| caller(all, other)).collect();
        for (other, caller) in others.iter().zip(&callers) {
            refer(&mut merger, &other.body, *caller);
        }
        let (mut code_of, mut held) = (Vec::new(), Vec::new());
        // As on two threads: the readings are equal.
        let mut readers = [Reader::new(*unit.options), Reader::new(*unit.options)];
        for (at, member) in unit.functions.iter().enumerate() {
            let reading = readers[at % 2].read(&member.body, member.attributes);
            let added = merger.add_reading(member.symbol(), reading).expect("is added");
            code_of.push(match added.known {
                Known::Hold | Known::Compile => added.function,
                Known::Equal(other) => other,
            });
            held.push(added.known == Known::Hold);
            while let Some(released) = merger.release() {
                assert!(core::mem::replace(&mut held[released.index()], false), "{released}");
            }
            assert!(merger.held_bytes() <= streaming.max_bytes());
        }
        let plan = merger.plan(&mut OnlyHeld {
            held: &held,
            makes_ir: streaming.makes_ir(),
            all: unit.held(),
        });
        for output in plan.outputs().take(unit.functions.len()) {
            assert_eq!(output.code, code_of[output.function.index()]);
        }
        let mut program = Program::of_outputs(unit, &plan, |function| {
            let code = code_of[function.index()].index();
            let mut body = unit.functions[code].body.clone();
            body.name = UserFuncName::User(unit.functions[function.index()].symbol());
            match held[code] {
                true => {
                    plan.apply(function, &mut body);
                }
                false => relocate(&plan, &mut body),
            }
            body
        });
        for (other, caller) in others.iter().zip(callers) {
            let mut body = other.body.clone();
            match caller {
                Caller::Stays => relocate(&plan, &mut body),
                Caller::IsRewritten if plan.passes_extra_arguments(&body) => {
                    plan.apply_to_caller(&mut body);
                }
                Caller::IsRewritten => relocate(&plan, &mut body),
            }
            program.functions.push((other.symbol(), Definition::Body(Box::new(body))));
            program.entries.push(entry(other, &other.symbol()));
        }
        for DataMember { symbol, attributes, object } in unit.data {
            let mut object = object.clone();
            for reloc in &mut object.relocations {
                reloc.target = plan.address_symbol(&reloc.target).clone();
            }
            let definition = DataDefinition::Object(object, attributes.alignment);
            program.data.push((symbol.clone(), definition));
        }
        (program, Streamed { plan, code_of, held, streaming })
    }

    /// The definition that is emitted for a symbol, if any.
    pub fn definition(&self, symbol: &UserExternalName) -> Option<&Definition> {
        let mut functions = self.functions.iter();
        functions.find(|(own, _)| own == symbol).map(|(_, definition)| definition)
    }

    /// The definition that is emitted for a symbol, as text.
    pub fn describe(&self, symbol: &UserExternalName) -> Cow<'static, str> {
        match self.definition(symbol) {
            Some(Definition::Body(func)) => func.to_string().into(),
            Some(Definition::Jump(Jump { to, arguments, .. })) => {
                format!("{symbol} is a jump to {to} with {arguments:?}").into()
            }
            Some(Definition::Alias(to)) => format!("{symbol} is an alias of {to}").into(),
            None => format!("{symbol} is not there").into(),
        }
    }
}

fn entry(member: &Member, symbol: &UserExternalName) -> Entry {
    Entry {
        function: member.symbol(),
        symbol: symbol.clone(),
        signature: member.body.signature.clone(),
    }
}

/// The treatment of a function that is not added: every other one that may be rewritten is.
fn caller(all: &[Member], other: &Member) -> Caller {
    let body = &other.body;
    let is_theirs = |callee: &ExtFuncData| {
        let ExternalName::User(name) = callee.name else { return true };
        let symbol = &body.params.user_named_funcs()[name];
        let callee_of = all.iter().find(|member| member.symbol() == *symbol);
        callee_of.is_none_or(|it| it.body.signature == body.dfg.signatures[callee.signature])
    };
    match other.symbol().index.is_multiple_of(2) && body.dfg.ext_funcs.values().all(is_theirs) {
        true => Caller::IsRewritten,
        false => Caller::Stays,
    }
}

/// Says to what the code of a function refers that is not added.
fn refer(merger: &mut StreamingMerger<'_>, func: &Function, caller: Caller) {
    let symbol = |name: &ExternalName| match name {
        ExternalName::User(name) => Some(func.params.user_named_funcs()[*name].clone()),
        _ => None,
    };
    for (func_ref, callee) in func.dfg.ext_funcs.iter() {
        let Some(symbol) = symbol(&callee.name) else { continue };
        match takes_address(func, func_ref) {
            true => merger.add_address_use(&symbol, 0),
            false => merger.add_call(&symbol, caller),
        }
    }
    for gv in func.global_values.values() {
        if let GlobalValueData::Symbol { name, offset, .. } = gv {
            symbol(name).into_iter().for_each(|name| merger.add_address_use(&name, offset.bits()));
        }
    }
}

fn takes_address(func: &Function, func_ref: FuncRef) -> bool {
    (0..func.dfg.num_insts()).any(|inst| {
        let data = &func.dfg.insts[Inst::new(inst)];
        matches!(data, InstructionData::FuncAddr { func_ref: used, .. } if *used == func_ref)
    })
}

/// Redirects the references of compiled code. Nothing else of it can be changed.
fn relocate(plan: &Plan, func: &mut Function) {
    for index in 0..func.dfg.ext_funcs.len() {
        let func_ref = FuncRef::new(index);
        let ExtFuncData { name, patchable, .. } = func.dfg.ext_funcs[func_ref].clone();
        let ExternalName::User(name) = name else {
            continue;
        };
        // Code that patches a call finds it under the symbol that it had.
        if patchable {
            continue;
        }
        let takes_address = takes_address(func, func_ref);
        let symbol = func.params.user_named_funcs()[name].clone();
        let to = match takes_address {
            true => plan.address_symbol(&symbol),
            false => plan.call_symbol(&symbol),
        };
        let to = func.declare_imported_user_function(to.clone());
        func.dfg.ext_funcs[func_ref].name = ExternalName::User(to);
    }
    for index in 0..func.global_values.len() {
        let gv = GlobalValue::new(index);
        if let GlobalValueData::Symbol { name: ExternalName::User(name), .. } =
            func.global_values[gv]
        {
            let symbol = func.params.user_named_funcs()[name].clone();
            let to = func.declare_imported_user_function(plan.address_symbol(&symbol).clone());
            if let GlobalValueData::Symbol { name, .. } = &mut func.global_values[gv] {
                *name = ExternalName::User(to);
            }
        }
    }
}

/// Panics unless a thunk that is a function is that of this module, too, for embedders who emit
/// functions only.
fn check_finished(plan: &Plan, of: FunctionIndex, signature: &Signature, options: &Options<'_>) {
    let Emit::Thunk { to, extra_arguments, .. } = plan.output(of).emit else { return };
    let own = plan.entry(of).symbol();
    if let Definition::Body(call) = thunk(own, signature, extra_arguments, to, options) {
        let mut finished = Function::new();
        finished.signature = signature.clone();
        assert!(plan.finish(of, &mut finished));
        assert_eq!(finished.to_string(), call.to_string());
    }
}

/// A jump, or a function that calls where the unit's target has none.
fn thunk(
    own: &UserExternalName,
    signature: &Signature,
    arguments: Vec<ExtraArgument>,
    to: &UserExternalName,
    options: &Options<'_>,
) -> Definition {
    let call_thunks =
        options.target.call_thunks.unwrap_or(CallThunks { tail_calls: true, colocated: true });
    let name = UserFuncName::User(own.clone());
    let call = call_thunk(name, signature, &arguments, to, &call_thunks);
    match (options.target.jump_thunk, &options.target.call_thunks) {
        (None, Some(_)) => Definition::Body(Box::new(call)),
        (_, _) => {
            let (to, optimize) = (to.clone(), options.similar.policy.optimize_for());
            Definition::Jump(Jump { to, arguments, optimize, call: Box::new(call) })
        }
    }
}
