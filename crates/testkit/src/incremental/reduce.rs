//! Makes a program smaller while it still shows some property.

use super::contract::settle;
use super::program::{Address, Callee, End, FROZEN, Part, Program, Statement};
use cranelift_mergefunc::{Attributes, Similar};
use cranelift_mergefunc_module::ModuleOptions;
use std::collections::BTreeMap;

/// A way to make a program smaller: that of a number. The outer `None` says that there is none of
/// that number and none behind it, the inner one that this one changes nothing.
type Step = fn(&Program, usize) -> Option<Option<Program>>;

/// The smallest program that was found by removing one part after the other, such that `shows`
/// still holds. It must hold of `program`, and is called `tries` times at most.
///
/// Every program that it is called with keeps its contracts: removing parts can only make them
/// weaker.
pub fn reduce(program: &Program, tries: usize, shows: &mut dyn FnMut(&Program) -> bool) -> Program {
    let mut smallest = program.clone();
    let mut left = tries;
    loop {
        let mut changed = false;
        let steps: [Step; 8] =
            [calls, functions, statements, flushes, options, interposed, details, mixes];
        for step in steps {
            let mut at = 0;
            while let Some(smaller) = step(&smallest, at) {
                at += 1;
                let Some(mut smaller) = smaller else {
                    continue;
                };
                if left == 0 {
                    return smallest;
                }
                left -= 1;
                forget_unused(&mut smaller);
                let _ = settle(&mut smaller);
                if shows(&smaller) {
                    smallest = smaller;
                    changed = true;
                    // Another step has this number now.
                    at -= 1;
                }
            }
        }
        if !changed {
            return smallest;
        }
    }
}

/// Leaves out all calls from outside but one, and then one after the other.
fn calls(program: &Program, at: usize) -> Option<Option<Program>> {
    let count = program.calls.len();
    let mut smaller = program.clone();
    match at.checked_sub(count) {
        None => smaller.calls = vec![program.calls[at].clone()],
        Some(at) if at < count => drop(smaller.calls.remove(at)),
        Some(_) => return None,
    }
    Some(Some(smaller).filter(|_| count > 1))
}

/// Removes functions that no other function calls: all that are not needed for a call, and then one
/// after the other.
fn functions(program: &Program, at: usize) -> Option<Option<Program>> {
    let mut smaller = program.clone();
    let defined = || program.flushes.iter().flat_map(|flush| &flush.defined);
    let (unused, is_last) = match at.checked_sub(1) {
        None => {
            let calls = program.calls.iter().map(|call| Part::Function(call.function));
            let reached = program.reached(calls);
            (defined().filter(|part| !reached.contains(part)).copied().collect(), false)
        }
        Some(at) => match defined().nth(at) {
            Some(part) => (vec![*part], false),
            None => (Vec::new(), true),
        },
    };
    if is_last {
        return None;
    }
    let is_used = defined().any(|&other| {
        !unused.contains(&other)
            && program.references(other).iter().any(|part| unused.contains(part))
    });
    let is_called =
        |part: &Part| program.calls.iter().any(|call| Part::Function(call.function) == *part);
    if is_used
        || unused.is_empty()
        || program.calls.iter().all(|call| unused.contains(&Part::Function(call.function)))
    {
        return Some(None);
    }
    smaller.calls.retain(|call| !unused.contains(&Part::Function(call.function)));
    debug_assert!(at > 0 || !unused.iter().any(is_called));
    forget(&mut smaller, &unused);
    Some(Some(smaller))
}

/// Leaves out a statement of all functions of a family, or of one function.
fn statements(program: &Program, at: usize) -> Option<Option<Program>> {
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    for function in &program.functions {
        let size = sizes.entry(function.family).or_default();
        *size = function.statements.len().max(*size);
    }
    let all = sizes.iter().flat_map(|(family, size)| (0..=*size).map(move |at| (*family, at)));
    let count = all.clone().count();
    let mut smaller = program.clone();
    let mut changed = false;
    if let Some((family, step)) = all.clone().nth(at) {
        for function in &mut smaller.functions {
            if function.family == family {
                if step < function.statements.len() {
                    function.statements.remove(step);
                    changed = true;
                } else if let End::Tail(..) = function.end {
                    function.end = End::Return;
                    changed = true;
                }
            }
        }
        return Some(Some(smaller).filter(|_| changed));
    }
    let all = program.functions.iter().enumerate();
    let mut all =
        all.flat_map(|(own, function)| (0..function.statements.len()).map(move |at| (own, at)));
    let (own, step) = all.nth(at - count)?;
    smaller.functions[own].statements.remove(step);
    Some(Some(smaller))
}

/// Joins a flush with the next one.
fn flushes(program: &Program, at: usize) -> Option<Option<Program>> {
    let mut smaller = program.clone();
    if at + 1 >= program.flushes.len() {
        return None;
    }
    let next = smaller.flushes.remove(at + 1);
    let flush = &mut smaller.flushes[at];
    flush.widened.extend(next.widened);
    flush.defined.extend(next.defined);
    flush.ready = next.ready;
    Some(Some(smaller))
}

/// Takes the default of an option, or of all attributes of a function.
fn options(program: &Program, at: usize) -> Option<Option<Program>> {
    let mut smaller = program.clone();
    let defaults = ModuleOptions::default();
    match at {
        0 => smaller.options = defaults,
        1 => smaller.options.similar = Similar::default(),
        2 => smaller.options.similar = Similar::OFF,
        3 => smaller.options.take_ir = false,
        4 => smaller.options.aliases = true,
        5 => smaller.options.function_addresses = defaults.function_addresses,
        6 => smaller.options.data_addresses = defaults.data_addresses,
        7 => smaller.speed = false,
        8 => smaller.colocated = true,
        9 => smaller.interposed.clear(),
        10 => smaller.any_back_end = false,
        11 => smaller.options.remember = true,
        12 => smaller.finishes = false,
        _ => {
            let at = at - 13;
            let plain = |own: &mut Attributes| {
                *own = Attributes { addresses: own.addresses, ..Attributes::default() };
            };
            let functions = smaller.functions.len();
            let part = match at.checked_sub(functions) {
                None => Part::Function(at),
                Some(data) => Part::Data(data),
            };
            let defined = program.flushes.iter().any(|flush| flush.defined.contains(&part));
            match part {
                Part::Function(at) if defined => {
                    let function = &mut smaller.functions[at];
                    plain(&mut function.attributes);
                    function.declared = function.linkage;
                    function.bytes = false;
                }
                Part::Data(at) => {
                    let data = smaller.data.get_mut(at)?;
                    // Frozen memory stays aligned.
                    if defined && at != FROZEN {
                        plain(&mut data.attributes);
                    }
                }
                Part::Function(_) => {}
            }
        }
    }
    let changed = format!("{program:?}") != format!("{smaller:?}");
    Some(Some(smaller).filter(|_| changed))
}

/// Makes the other image define one part less.
fn interposed(program: &Program, at: usize) -> Option<Option<Program>> {
    let mut smaller = program.clone();
    if at >= program.interposed.len() {
        return None;
    }
    smaller.interposed.remove(at);
    Some(Some(smaller))
}

/// Simplifies details of all statements: references to data objects have no offsets, calls no stack
/// maps.
fn details(program: &Program, at: usize) -> Option<Option<Program>> {
    let mut smaller = program.clone();
    let mut changed = false;
    if at > 1 {
        return None;
    }
    for statement in smaller.functions.iter_mut().flat_map(|function| &mut function.statements) {
        let place = match statement {
            Statement::Call { entries, .. } if at == 1 => {
                changed |= *entries > 0;
                *entries = 0;
                continue;
            }
            Statement::Number { place, .. }
            | Statement::Through(place)
            | Statement::Misaligned(Address::Slot(place))
            | Statement::Call { call: Callee::Slot(place), .. }
                if at == 0 =>
            {
                place
            }
            _ => continue,
        };
        changed |= place.base > 0;
        place.base = 0;
    }
    Some(Some(smaller).filter(|_| changed))
}

/// Halves the parts that all functions of a family share.
fn mixes(program: &Program, at: usize) -> Option<Option<Program>> {
    let families = program.functions.iter().map(|function| function.family).max()?;
    if at > families {
        return None;
    }
    let mut smaller = program.clone();
    let mut changed = false;
    for function in smaller.functions.iter_mut().filter(|function| function.family == at) {
        for statement in &mut function.statements {
            if let Statement::Mix { rounds, .. } = statement
                && *rounds > 0
            {
                *rounds /= 2;
                changed = true;
            }
        }
    }
    Some(Some(smaller).filter(|_| changed))
}

/// Leaves definitions out. Numbers stay as they are.
fn forget(program: &mut Program, parts: &[Part]) {
    for flush in &mut program.flushes {
        flush.defined.retain(|part| !parts.contains(part));
        flush.widened.retain(|(part, _)| !parts.contains(part));
    }
    program.interposed.retain(|part| !parts.contains(part));
    for part in parts {
        // It still has a text, which is empty.
        if let Part::Function(function) = *part {
            program.functions[function].statements.clear();
            program.functions[function].end = End::Return;
        }
    }
}

/// Leaves out data objects to which nothing refers.
fn forget_unused(program: &mut Program) {
    loop {
        let defined = || program.flushes.iter().flat_map(|flush| &flush.defined);
        let used: Vec<Part> = defined().flat_map(|&part| program.references(part)).collect();
        let unused =
            defined().filter(|&&part| matches!(part, Part::Data(_)) && !used.contains(&part));
        let unused: Vec<Part> = unused.copied().collect();
        if unused.is_empty() {
            return;
        }
        forget(program, &unused);
    }
}
