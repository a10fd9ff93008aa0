//! Random units of functions that call each other, and a caller's side for them.
//!
//! Uniformly random functions are never equal, so a unit is drawn from few recipes: a shape and a constant
//! each. Two functions of one recipe differ only in their references and in facts, so whether they are equal
//! depends on the rest of the unit. Every function has the signature `(i64, i64) -> i64 tail`, passes the
//! verifier, and is named `u0:0`, `u0:1`, …; symbols such as `u1:0` are outside of the unit.

use crate::generate::draw::Draw;
use crate::generate::unit::attributes;
use crate::permute::{Facts, permuted};
pub use crate::program::DataMember;
use crate::program::Parts;
use crate::support::{Rng, free, parse_one};
use arbitrary::{Result, Unstructured};
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_mergefunc::{
    Attributes, Bodies, Callees, CodeSizes, FunctionIndex, Increment, MergeCache, Options, Plan,
    Policy, Prebucket, Proof, Refutation, Similar, Target,
};
use std::collections::HashSet;
use std::fmt::Write;

/// Functions with their attributes, and the options to plan them with.
#[derive(Clone, Debug)]
pub struct Unit {
    /// In the order in which they are added.
    pub functions: Vec<Member>,
    /// Data objects, which are added after the functions. Recipes have none.
    pub data: Vec<DataMember>,
    /// What the unit is planned with.
    pub options: Options<'static>,
    /// The native size that the caller reports for every function.
    pub code_size: Option<u32>,
}

/// What is done with similar functions: nothing, every second time.
pub fn similar(u: &mut Unstructured<'_>) -> Result<Similar> {
    Ok(Similar {
        policy: *u.choose(&[Policy::Off, Policy::Off, Policy::Balanced, Policy::Size])?,
        callees: *u.choose(&Callees::ALL)?,
        keep_symbols: u.ratio(1, 4)?,
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

    /// The symbols that it refers to.
    pub fn references(&self) -> impl Iterator<Item = UserExternalName> + '_ {
        self.body.params.user_named_funcs().values().cloned()
    }
}

/// What a function of a unit does, up to its references.
#[derive(Clone, Copy)]
struct Recipe {
    shape: Shape,
    constant: u8,
    /// Mostly, the recipes of the functions that it refers to.
    targets: [usize; 3],
}

#[derive(Clone, Copy)]
enum Shape {
    /// A single instruction, so that no thunk is smaller.
    Trap,
    Leaf,
    TwoCalls,
    Diamond,
    Loop,
    AddressOnly,
    Memory,
    Handlers,
    Symbol,
    Patchable,
    TailCall,
    CallAndAddress,
}

/// Some more often than others: without functions that call no function, few are equal.
const SHAPES: [Shape; 16] = [
    Shape::Trap,
    Shape::Leaf,
    Shape::Leaf,
    Shape::Leaf,
    Shape::TwoCalls,
    Shape::TwoCalls,
    Shape::Diamond,
    Shape::Loop,
    Shape::AddressOnly,
    Shape::Memory,
    Shape::Handlers,
    Shape::Symbol,
    Shape::Patchable,
    Shape::Patchable,
    Shape::TailCall,
    Shape::CallAndAddress,
];

impl Unit {
    /// A unit of two to ten functions, with random attributes and options.
    pub fn random(u: &mut Unstructured<'_>) -> Result<Unit> {
        let count: usize = u.int_in_range(2..=10)?;
        let recipe_count = u.int_in_range(1..=3)?;
        let mut recipes = Vec::new();
        for _ in 0..recipe_count {
            let mut target = || u.int_in_range(0..=recipe_count - 1);
            let targets = [target()?, target()?, target()?];
            recipes.push(Recipe {
                shape: *u.choose(&SHAPES)?,
                constant: u.int_in_range(1..=2)?,
                targets,
            });
        }
        let mut kinds = Vec::new();
        for _ in 0..count {
            kinds.push(u.int_in_range(0..=recipe_count - 1)?);
        }
        let style = u.int_in_range(0..=5)?;
        // Functions of one recipe are equal in one half of the units, and similar in the other.
        let constants = if u.arbitrary()? { 2 } else { 0 };
        let mut functions = Vec::new();
        for own in 0..count {
            let mut recipe = recipes[kinds[own]];
            recipe.constant += u.int_in_range(0..=constants)?;
            let body = parse_one(&text(recipe, own, &kinds, u)?);
            let attributes = attributes(&mut Draw::new(u), style);
            functions.push(Member { attributes, body });
        }
        let options = Options {
            prebucket: Prebucket::WalkAll,
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
        let code_size = *u.choose(&[None, Some(8), Some(64)])?;
        Ok(Unit { functions, data: Vec::new(), options, code_size })
    }

    /// The unit in which every function may be eliminated unless a call to it can be patched, without thunks,
    /// aliases and limits: a function is redirected or kept.
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
    pub fn permuted(&self, facts: Facts, seed: u64) -> Unit {
        let mut unit = self.clone();
        let mut rng = Rng::new(seed);
        for member in &mut unit.functions {
            member.body = permuted(&member.body, facts, rng.word());
        }
        unit
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

    /// What the checker says of a plan for the unit.
    ///
    /// # Errors
    ///
    /// As [`prove`](cranelift_mergefunc::prove).
    pub fn prove(&self, plan: &Plan) -> Result<Proof, Refutation> {
        Parts::from(self).prove(plan)
    }

    /// The same of a plan that was made after earlier units.
    ///
    /// # Errors
    ///
    /// As [`prove_after`](cranelift_mergefunc::prove_after).
    pub fn prove_after(&self, cache: &MergeCache, plan: &Plan) -> Result<Proof, Refutation> {
        Parts::from(self).prove_after(cache, plan)
    }
}

/// The caller's side: bodies in memory, and symbols `u9:0`, `u9:1`, … for new functions.
pub struct Held<'a> {
    bodies: &'a [Function],
    code_size: Option<u32>,
    fresh: u32,
}

impl<'a> Held<'a> {
    /// Hands out `bodies`, and says of each that its code has that size in bytes.
    pub fn new(bodies: &'a [Function], code_size: Option<u32>) -> Self {
        Held { bodies, code_size, fresh: 0 }
    }

    /// The same after the earlier units of `cache`, which used at most as many symbols for new functions as
    /// it knows symbols in all.
    pub fn after(self, cache: &MergeCache) -> Self {
        Held { fresh: cache.len() as u32, ..self }
    }
}

impl Bodies for Held<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self.bodies[function.as_u32() as usize]
    }

    fn code_sizes(&mut self) -> Option<&mut dyn CodeSizes> {
        Some(self)
    }

    fn fresh_symbol(&mut self) -> Option<UserExternalName> {
        self.fresh += 1;
        Some(UserExternalName::new(9, self.fresh - 1))
    }
}

impl CodeSizes for Held<'_> {
    fn of_function(&mut self, _: FunctionIndex) -> Option<u32> {
        self.code_size
    }

    fn of_thunk(&mut self, _: FunctionIndex, _: &Function) -> Option<u32> {
        None
    }

    fn of_candidate(&mut self, _: &Function, _: bool) -> Option<u32> {
        None
    }
}

/// A symbol to refer to: mostly a function of the recipe `target`, at times any function, the
/// function itself, or one outside of the unit.
fn reference(
    target: usize,
    own: usize,
    kinds: &[usize],
    u: &mut Unstructured<'_>,
) -> Result<String> {
    let wanted: Vec<usize> = (0..kinds.len()).filter(|&at| kinds[at] == target).collect();
    Ok(match u.int_in_range(0..=9)? {
        0 => format!("u1:{}", u.int_in_range(0..=1)?),
        1 => format!("u0:{own}"),
        2 => format!("u0:{}", u.int_in_range(0..=kinds.len() - 1)?),
        _ if wanted.is_empty() => "u1:0".into(),
        _ => format!("u0:{}", u.choose(&wanted)?),
    })
}

/// Facts of a memory access.
fn facts(flags: &[&str], u: &mut Unstructured<'_>) -> Result<String> {
    let mut text = String::from("notrap");
    for flag in flags {
        if u.ratio(1, 2)? {
            write!(text, " {flag}").unwrap();
        }
    }
    match u.int_in_range(0..=3)? {
        0 => {}
        region => write!(text, " region{}", region - 1).unwrap(),
    }
    Ok(text)
}

fn text(recipe: Recipe, own: usize, kinds: &[usize], u: &mut Unstructured<'_>) -> Result<String> {
    let Recipe { shape, constant: k, targets } = recipe;
    let mut text = format!("function u0:{own}(i64, i64) -> i64 tail {{\n");
    if let Shape::Memory = shape {
        // Declared in any order: a region is its user id, not its number.
        let mut ids = [1, 2, 3];
        ids.rotate_left(u.int_in_range(0..=2)?);
        for (number, id) in ids.iter().enumerate() {
            writeln!(text, "    region{number} = {id} \"memory {id}\"").unwrap();
        }
    }
    if let Shape::Symbol = shape {
        let (symbol, offset) = (reference(targets[0], own, kinds, u)?, 8 * (u32::from(k) - 1));
        // One recipe takes the address of a function, the other one that of something inside it.
        let offset = if offset == 0 { String::new() } else { format!("+{offset}") };
        writeln!(text, "    gv0 = symbol colocated {symbol}{offset}").unwrap();
    }
    text.push_str("    sig0 = (i64, i64) -> i64 tail\n    sig1 = (i64) tail\n");
    let patchable = matches!(shape, Shape::Patchable);
    for (number, &target) in targets.iter().enumerate().take(shape.callees()) {
        let symbol = reference(target, own, kinds, u)?;
        // Calls that can be patched return nothing and are colocated; the signature that the callee itself
        // has does not matter here.
        let (flags, sig) = match (patchable && number < 2, u.arbitrary()?) {
            (true, _) => ("colocated patchable ", 1),
            (false, true) => ("colocated ", 0),
            (false, false) => ("", 0),
        };
        writeln!(text, "    fn{number} = {flags}{symbol} sig{sig}").unwrap();
    }
    text.push_str("block0(v0: i64, v1: i64):\n");
    if let Shape::Trap = shape {
        writeln!(text, "    trap user{k}\n}}").unwrap();
        return Ok(text);
    }
    writeln!(text, "    v2 = iconst.i64 {k}").unwrap();
    match shape {
        Shape::Trap => unreachable!("is complete"),
        Shape::Leaf => text.push_str("    v3 = iadd v0, v2\n    return v3\n"),
        Shape::TwoCalls => text.push_str(
            "    v3 = call fn0(v0, v2)
    v4 = call fn1(v3, v1)
    v5 = isub v4, v2
    return v5
",
        ),
        Shape::Diamond => text.push_str(
            "    brif v0, block1, block2(v1)
block1:
    v3 = call fn0(v0, v2)
    jump block3(v3)
block2(v4: i64):
    v5 = call fn1(v4, v2)
    jump block3(v5)
block3(v6: i64):
    return v6
",
        ),
        Shape::Loop => text.push_str(
            "    jump block1(v0)
block1(v3: i64):
    v4 = call fn0(v3, v2)
    v5 = ireduce.i32 v4
    br_table v5, block3, [block1(v4), block2]
block2:
    v6 = call fn1(v4, v3)
    jump block1(v6)
block3:
    return v4
",
        ),
        Shape::AddressOnly => text.push_str(
            "    v3 = func_addr.i64 fn0
    v4 = call_indirect sig0, v3(v0, v2)
    return v4
",
        ),
        Shape::Memory => {
            let cold = |u: &mut Unstructured<'_>| -> Result<&str> {
                Ok(if u.arbitrary()? { " cold" } else { "" })
            };
            const LOAD: [&str; 3] = ["aligned", "readonly", "can_move"];
            const STORE: [&str; 2] = ["aligned", "can_move"];
            let (a, b) = (facts(&LOAD, u)?, facts(&STORE, u)?);
            let (c, d) = (facts(&LOAD, u)?, facts(&STORE, u)?);
            let (one, two) = (cold(u)?, cold(u)?);
            writeln!(
                text,
                "    v3 = load.i64 {a} v0+8
    store.i64 {b} v2, v1+16
    brif v3, block1, block2
block1{one}:
    v4 = load.i64 {c} v0+24
    v5 = call fn0(v4, v3)
    return v5
block2{two}:
    store.i64 {d} v3, v1+32
    return v2"
            )
            .unwrap();
        }
        Shape::Handlers => writeln!(
            text,
            "    try_call fn0(v0, v1), sig0, block1(ret0), [ tag{k}: block2(exn0), default: block3(exn1) ]
block1(v3: i64):
    return v3
block2(v4: i64):
    v5 = iadd v4, v2
    return v5
block3(v6: i64):
    trap user1"
        )
        .unwrap(),
        Shape::Symbol => text.push_str(
            "    v3 = symbol_value.i64 gv0
    v4 = bxor v3, v2
    return v4
",
        ),
        Shape::Patchable => text.push_str(
            "    call fn0(v2)
    call fn1(v0)
    v3 = call fn2(v0, v1)
    return v3
",
        ),
        Shape::TailCall => text.push_str("    return_call fn0(v1, v2)\n"),
        Shape::CallAndAddress => text.push_str(
            "    v3 = func_addr.i64 fn0
    v4 = call fn0(v3, v2)
    return v4
",
        ),
    }
    text.push_str("}\n");
    Ok(text)
}

impl Shape {
    fn callees(self) -> usize {
        match self {
            Shape::Trap | Shape::Leaf | Shape::Symbol => 0,
            Shape::AddressOnly
            | Shape::Memory
            | Shape::Handlers
            | Shape::TailCall
            | Shape::CallAndAddress => 1,
            Shape::TwoCalls | Shape::Diamond | Shape::Loop => 2,
            Shape::Patchable => 3,
        }
    }
}
