//! Units of functions with attributes and options, and a caller's side for them.
//!
//! [`Unit::random`] configures the generator for laws that hold for every unit: many small
//! functions of the signature `(i64, i64) -> i64 tail`, named `u0:0`, `u0:1`, …, which differ only
//! in constants, references and facts.

use crate::generate::conventions::FUNCTIONS;
use crate::generate::function::Profile;
use crate::generate::unit::GeneratedUnit;
use crate::permute::{Colocated, permuted};
pub use crate::program::DataMember;
use crate::program::Parts;
use crate::support::{Rng, canonical_body, free};
use arbitrary::{Result, Unstructured};
use cranelift_codegen::ir::{
    ExternalName, Function, GlobalValueData, UserExternalName, UserExternalNameRef, UserFuncName,
};
use cranelift_codegen::isa::TargetIsa;
use cranelift_mergefunc::check::{Proof, Refutation};
use cranelift_mergefunc::incremental::{Increment, MergeCache};
use cranelift_mergefunc::thunk::{CallThunks, call_thunk};
use cranelift_mergefunc::{
    Attributes, Bodies, Callees, Compare, FunctionIndex, Instructions, Options, Plan, Policy,
    Similar, SizeModel, Target,
};
use std::collections::HashSet;

/// Functions with their attributes, and the options to plan them with.
#[derive(Clone, Debug)]
pub struct Unit {
    /// In the order in which they are added.
    pub functions: Vec<Member>,
    /// Data objects, which are added after the functions.
    pub data: Vec<DataMember>,
    /// The options of the plan.
    pub options: Options<'static>,
}

/// How sizes are predicted, for `options` that have another target and policy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// Not at all: similar functions are not merged.
    Unknown,
    /// By the model of the target.
    Fitted,
    /// By a model by which whatever has equal instructions pays.
    Uniform,
}

impl Sizes {
    /// Sets the model.
    pub fn set(self, options: &mut Options<'_>) {
        match self {
            Sizes::Unknown => options.target.size_model = None,
            Sizes::Fitted => {}
            Sizes::Uniform => options.target = uniform(options.target),
        }
    }
}

/// The target with a model by which whatever has equal instructions pays.
pub fn uniform(target: Target) -> Target {
    Target { size_model: Some(SizeModel::UNIFORM), ..target }
}

/// The policy for similar functions: off, every second time.
pub fn similar(u: &mut Unstructured<'_>) -> Result<Similar> {
    Ok(Similar {
        policy: *u.choose(&[Policy::Off, Policy::Off, Policy::Balanced, Policy::Size])?,
        callees: *u.choose(&Callees::ALL)?,
        // Bodies that select are what most can go wrong in.
        instructions: *u.choose(&[
            Instructions::None,
            Instructions::Select,
            Instructions::Select,
        ])?,
        keep_symbols: u.ratio(1, 4)?,
        integer_registers_only: false,
    })
}

/// A function of a unit. Its symbol is in `body.name`.
#[derive(Clone, Debug)]
pub struct Member {
    /// The attributes that the caller gives it.
    pub attributes: Attributes,
    /// The function, under its symbol.
    pub body: Function,
}

impl Member {
    /// The symbol by which the others refer to it.
    pub fn symbol(&self) -> UserExternalName {
        self.body.name.get_user().expect("named by number").clone()
    }

    /// Its attributes in a unit that comes after earlier units, which refer to `named`.
    pub fn attributes_after(&self, named: &HashSet<UserExternalName>) -> Attributes {
        let externally_called = self.attributes.externally_called || named.contains(&self.symbol());
        Attributes { externally_called, ..self.attributes }
    }

    /// Whether it has a pointer into a function of a unit, which means nothing where that function
    /// is eliminated.
    pub fn points_inside(&self) -> bool {
        let names = self.body.params.user_named_funcs();
        self.body.global_values.values().any(|data| match data {
            GlobalValueData::Symbol { name: ExternalName::User(name), offset, .. } => {
                names[*name].namespace == FUNCTIONS && offset.bits() != 0
            }
            _ => false,
        })
    }

    /// The symbols that it refers to.
    pub fn references(&self) -> impl Iterator<Item = UserExternalName> + '_ {
        self.body.params.user_named_funcs().values().cloned()
    }
}

impl Unit {
    /// A unit of [small](Profile::small) functions, with random attributes and options, and no data
    /// objects.
    pub fn random(u: &mut Unstructured<'_>) -> Result<Unit> {
        let mut options = Options {
            compare: Compare { every_function: true, ..Compare::default() },
            aliases: u.arbitrary()?,
            target: *u.choose(&[
                Target::generic(),
                Target::x86_64(),
                Target::aarch64(false),
                Target::aarch64(true),
            ])?,
            merge_limit: match u.ratio(1, 6)? {
                true => Some(u.int_in_range(0..=4)?),
                false => None,
            },
            similar: similar(u)?,
            ..Options::default()
        };
        u.choose(&[Sizes::Uniform, Sizes::Fitted, Sizes::Uniform])?.set(&mut options);
        let unit = GeneratedUnit::draw(u, &Profile::small()).unit;
        Ok(Unit { options, ..unit })
    }

    /// The unit of canonical bodies, whatever the sizes of their tables.
    pub fn canonical(mut self, isa: &dyn TargetIsa) -> Unit {
        for member in &mut self.functions {
            member.body = canonical_body(&member.body, isa);
        }
        self.options.compare.every_function = true;
        self
    }

    /// The unit in which every function may be eliminated unless a call to it can be patched,
    /// without thunks, aliases and limits: a function is redirected or kept.
    pub fn redirect_only(mut self) -> Unit {
        for member in &mut self.functions {
            member.attributes = free();
        }
        self.options.target = Target::generic();
        self.options.aliases = false;
        self.options.merge_limit = None;
        self.options.similar = Similar::OFF;
        self
    }

    /// The same unit with every body in another form.
    pub fn permuted(&self, colocated: Colocated, seed: u64) -> Unit {
        let mut unit = self.clone();
        let mut rng = Rng::new(seed);
        for member in &mut unit.functions {
            member.body = permuted(&member.body, colocated, rng.word());
        }
        unit
    }

    /// Appends near misses: for every function that calls one of the unit, a duplicate under a
    /// symbol of `namespace`, which calls another one of the same signature instead, if there is
    /// one. Returns, for each of them, the function that it is a duplicate of, the one that it
    /// calls, and its own symbol.
    pub fn push_with_other_callees(&mut self, namespace: u32) -> Vec<[UserExternalName; 3]> {
        let mut pushed = Vec::new();
        for index in 0..self.functions.len() {
            let mut duplicate = self.functions[index].clone();
            let Some((name, other)) = self.other_callee(&duplicate.body) else {
                continue;
            };
            let symbol = UserExternalName::new(namespace, index as u32);
            pushed.push([duplicate.symbol(), other.clone(), symbol.clone()]);
            duplicate.body.params.reset_user_func_name(name, other);
            duplicate.body.name = UserFuncName::User(symbol);
            self.functions.push(duplicate);
        }
        pushed
    }

    /// Appends a caller of every function, under a symbol of `namespace`: it passes its parameters
    /// and returns the results. Returns the symbol of each function and that of its caller.
    pub fn push_callers(&mut self, namespace: u32) -> Vec<[UserExternalName; 2]> {
        let call_thunks = CallThunks { tail_calls: true, colocated: true };
        let caller = |(index, callee): (u32, &Member)| {
            let name = UserFuncName::user(namespace, index);
            let signature = &callee.body.signature;
            let body = call_thunk(name, signature, &[], &callee.symbol(), &call_thunks);
            Member { attributes: callee.attributes, body }
        };
        let callers: Vec<Member> = (0..).zip(&self.functions).map(caller).collect();
        let symbols = self.functions.iter().zip(&callers);
        let symbols = symbols.map(|(callee, caller)| [callee.symbol(), caller.symbol()]).collect();
        self.functions.extend(callers);
        symbols
    }

    /// A name by which a function calls one of the unit, and the symbol of another one that it
    /// could call instead.
    fn other_callee(&self, func: &Function) -> Option<(UserExternalNameRef, UserExternalName)> {
        func.dfg.ext_funcs.values().find_map(|callee| {
            let ExternalName::User(name) = callee.name else {
                return None;
            };
            let symbol = &func.params.user_named_funcs()[name];
            let member = self.functions.iter().find(|member| member.symbol() == *symbol)?;
            let is_other = |other: &&Member| {
                other.symbol() != *symbol && other.body.signature == member.body.signature
            };
            Some((name, self.functions.iter().find(is_other)?.symbol()))
        })
    }

    /// Copies of the bodies, in their order.
    pub fn bodies(&self) -> Vec<Function> {
        self.functions.iter().map(|member| member.body.clone()).collect()
    }

    /// The plan for the unit, functions added in their order.
    pub fn plan(&self) -> Plan {
        Parts::from(self).plan()
    }

    /// The plan for the unit after the earlier units of `cache`.
    pub fn plan_after(&self, cache: &MergeCache) -> Plan {
        self.plan_increment(cache).0
    }

    /// The same plan, and what later units must know of it.
    pub fn plan_increment(&self, cache: &MergeCache) -> (Plan, Increment) {
        Parts::from(self).plan_increment(cache)
    }

    /// The answer of the checker about a plan for the unit.
    ///
    /// # Errors
    ///
    /// As [`prove`](cranelift_mergefunc::check::prove).
    pub fn prove(&self, plan: &Plan) -> Result<Proof, Refutation> {
        Parts::from(self).prove(plan)
    }

    /// Proves a plan that was made after earlier units.
    ///
    /// # Errors
    ///
    /// As [`prove_after`](cranelift_mergefunc::check::prove_after).
    pub fn prove_after(&self, cache: &MergeCache, plan: &Plan) -> Result<Proof, Refutation> {
        Parts::from(self).prove_after(cache, plan)
    }
}

/// The caller's side: bodies in memory, and symbols `u9:0`, `u9:1`, … for new functions.
pub struct Held<'a> {
    bodies: &'a [Function],
    fresh: u32,
}

impl<'a> Held<'a> {
    /// Hands out `bodies`.
    pub fn new(bodies: &'a [Function]) -> Self {
        Held { bodies, fresh: 0 }
    }

    /// These bodies after the earlier units of `cache`. Those units used no more symbols for new
    /// functions than the cache knows symbols in all.
    pub fn after(self, cache: &MergeCache) -> Self {
        Held { fresh: cache.remembered() as u32, ..self }
    }
}

impl Bodies for Held<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self.bodies[function.as_u32() as usize]
    }

    fn fresh_symbol(&mut self, _: &[FunctionIndex]) -> Option<UserExternalName> {
        self.fresh += 1;
        Some(UserExternalName::new(9, self.fresh - 1))
    }
}
