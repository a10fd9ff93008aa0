//! A unit beside what merging makes of it.
//!
//! Random functions are hardly ever equal to what merging writes: to a body that takes as parameters what
//! others are told, to a caller that tells it, to a thunk. Here a unit has all of these as functions of its
//! own, next to those that they were made of.
//!
//! It does *not* say who is equal to whom: that is for oracles that need not be told.

use crate::Plan;
use crate::fuzzing::generate::weaken::weaken;
use crate::fuzzing::program::{ADDED, Definition, Parts, Program, WRAPPERS};
use crate::fuzzing::recipes::{Member, Unit};
use crate::fuzzing::support::{Rng, free};
use cranelift_codegen::ir::{Function, UserExternalName, UserFuncName};
use std::collections::HashMap;

/// The functions of `unit`, called `u0:N`, and what is emitted of them after `plan`, called `u0:N` as well,
/// further up. Both have the same data objects. Some functions promise less than they did.
///
/// What is new in the merged unit takes addresses and offsets as parameters, so only functions of
/// `unit` may be called with anything: those at the places for which the second result has `true`.
pub fn augmented_with_merged(unit: &Unit, plan: &Plan, seed: u64) -> (Unit, Vec<bool>) {
    let mut rng = Rng::new(seed);
    let program = Program::merged(&Parts::from(unit), plan);
    let first = unit.functions.len();
    let mut symbols: HashMap<UserExternalName, UserExternalName> = HashMap::new();
    let mut functions = unit.functions.clone();
    let mut called = vec![true; first];
    for (symbol, definition) in &program.functions {
        let body = match definition {
            Definition::Body(func) => func,
            Definition::Jump(jump) => &jump.call,
            Definition::Alias(_) => continue,
        };
        let old = unit.functions.iter().find(|member| member.symbol() == *symbol);
        let attributes = old.map_or_else(free, |member| member.attributes);
        let new = UserExternalName::new(0, functions.len() as u32);
        let mut body = Function::clone(body);
        body.name = UserFuncName::User(new.clone());
        symbols.insert(symbol.clone(), new);
        functions.push(Member { attributes, body });
        called.push(symbol.namespace != ADDED && symbol.namespace != WRAPPERS);
    }
    for (symbol, definition) in &program.functions {
        if let Definition::Alias(to) = definition {
            symbols.insert(symbol.clone(), symbols[to].clone());
        }
    }
    for member in &mut functions[first..] {
        let params = &mut member.body.params;
        let names: Vec<_> = params.user_named_funcs().iter().collect();
        let new = names.into_iter().filter_map(|(at, name)| Some((at, symbols.get(name)?.clone())));
        for (at, name) in new.collect::<Vec<_>>() {
            params.reset_user_func_name(at, name);
        }
    }
    // Either may promise more than the other.
    let weakened = rng.below(4);
    for (at, member) in functions.iter_mut().enumerate() {
        if weakened == usize::from(at < first) || weakened == 2 {
            weaken(&mut member.body, &mut rng);
        }
    }
    let unit = Unit { functions, ..unit.clone() };
    (unit, called)
}
