//! Augmented units: a unit together with what merging makes of it.
//!
//! Random functions are hardly ever equal to what merging writes: a parameterised body, a caller
//! that passes extra arguments to it, or a thunk. An augmented unit has all of these as functions
//! of its own, next to the functions that they were made from.
//!
//! This module does *not* say which functions are equal. It is for oracles that find that out on
//! their own.

use crate::generate::weaken::weaken;
use crate::program::{ADDED, Definition, Parts, Program, WRAPPERS};
use crate::support::{Rng, free};
use crate::unit::{Member, Unit};
use cranelift_codegen::ir::{Function, UserExternalName, UserFuncName};
use cranelift_mergefunc::Plan;
use std::collections::HashMap;

/// The functions of `unit`, named `u0:N`, and the functions that are emitted after `plan`, also
/// named `u0:N` with higher numbers. Both have the same data objects. Some functions state less
/// than before.
///
/// A parameterised body takes addresses and offsets as parameters, so only functions of `unit` may
/// be called with arbitrary arguments: those at the places for which the second result is `true`.
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
    // Near misses.
    for member in &mut functions {
        if rng.one_in(16) {
            weaken(&mut member.body, &mut rng);
        }
    }
    let unit = Unit { functions, ..unit.clone() };
    (unit, called)
}
