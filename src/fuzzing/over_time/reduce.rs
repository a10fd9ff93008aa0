//! Makes a program smaller that shows something.

use super::contract::settle;
use super::program::{End, Part, Program, Statement};
use crate::{Mode, ModuleOptions, Similar};
use std::collections::BTreeMap;

/// The smallest program that was found by leaving out one thing after the other, such that `shows` still
/// holds. It must hold of `program`, and is asked `tries` times at most.
///
/// Every program that it is asked of keeps its contracts: leaving out can only make them weaker.
pub fn reduce(
    program: &Program,
    tries: usize,
    shows: &mut dyn FnMut(&Program) -> bool,
) -> Program {
    let mut smallest = program.clone();
    let mut left = tries;
    loop {
        let before = left;
        let mut changed = false;
        for step in [calls, parts, statements, flushes, options, mixes] {
            let mut at = 0;
            while let Some(mut smaller) = step(&smallest, at) {
                if left == 0 {
                    return smallest;
                }
                left -= 1;
                forget_unused(&mut smaller);
                let _ = settle(&mut smaller);
                if shows(&smaller) {
                    smallest = smaller;
                    changed = true;
                } else {
                    at += 1;
                }
            }
        }
        if !changed || left == before {
            return smallest;
        }
    }
}

/// Leaves out a call from outside, all but one first.
fn calls(program: &Program, at: usize) -> Option<Program> {
    let count = program.calls.len();
    let mut smaller = program.clone();
    match at.checked_sub(count) {
        None if count > 1 => smaller.calls = vec![program.calls[at].clone()],
        Some(at) if at < count && count > 1 => {
            smaller.calls.remove(at);
        }
        _ => return None,
    }
    Some(smaller)
}

/// Leaves out a function that nobody calls but the outside.
fn parts(program: &Program, at: usize) -> Option<Program> {
    let mut parts = program.flushes.iter().flat_map(|flush| &flush.defined);
    let &part = parts.nth(at)?;
    let mut smaller = program.clone();
    let Part::Function(function) = part else {
        return parts.next().map(|_| smaller);
    };
    let used = program.flushes.iter().flat_map(|flush| &flush.defined);
    let used = used.filter(|&&other| other != part);
    if used.clone().any(|&other| program.references(other).contains(&part)) {
        return Some(smaller);
    }
    smaller.calls.retain(|call| call.function != function);
    forget(&mut smaller, &[part]);
    Some(smaller)
}

/// Leaves out a statement of all functions of a family, or of one function.
fn statements(program: &Program, at: usize) -> Option<Program> {
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    for function in &program.functions {
        let size = sizes.entry(function.family).or_default();
        *size = function.statements.len().max(*size);
    }
    let all = sizes.iter().flat_map(|(family, size)| (0..=*size).map(move |at| (*family, at)));
    let count = all.clone().count();
    let mut smaller = program.clone();
    if let Some((family, step)) = all.clone().nth(at) {
        for function in &mut smaller.functions {
            if function.family == family {
                match function.statements.len().checked_sub(step + 1) {
                    Some(_) => drop(function.statements.remove(step)),
                    None => function.end = End::Return,
                }
            }
        }
        return Some(smaller);
    }
    let all = program.functions.iter().enumerate();
    let mut all = all.flat_map(|(own, function)| (0..function.statements.len()).map(move |at| (own, at)));
    let (own, step) = all.nth(at - count)?;
    smaller.functions[own].statements.remove(step);
    Some(smaller)
}

/// Joins a flush with the next one.
fn flushes(program: &Program, at: usize) -> Option<Program> {
    let mut smaller = program.clone();
    if at + 1 >= program.flushes.len() {
        return None;
    }
    let next = smaller.flushes.remove(at + 1);
    let flush = &mut smaller.flushes[at];
    flush.widened.extend(next.widened);
    flush.defined.extend(next.defined);
    flush.ready = next.ready;
    Some(smaller)
}

/// Takes the default of an option, or of all attributes of a function.
fn options(program: &Program, at: usize) -> Option<Program> {
    let mut smaller = program.clone();
    let defaults = ModuleOptions::default();
    match at {
        0 => smaller.options = defaults,
        1 => smaller.options.mode = Mode::Deferred,
        2 => smaller.options.similar = Similar::default(),
        3 => smaller.options.similar = Similar::OFF,
        4 => (smaller.options.take, smaller.options.optimize) = (false, false),
        5 => (smaller.options.aliases, smaller.options.remember) = (true, true),
        6 => smaller.options.functions = defaults.functions,
        7 => smaller.options.data = defaults.data,
        8 => smaller.speed = false,
        9 => smaller.colocated = true,
        10 => smaller.interposed.clear(),
        _ => {
            let function = smaller.functions.get_mut(at - 11)?;
            let defined = program.flushes.iter().any(|f| f.defined.contains(&Part::Function(at - 11)));
            if defined {
                let own = &mut function.attributes;
                (own.pinned, own.no_merge, own.symbol_used) = (false, false, false);
                (own.address_taken, own.hot, own.key, own.alignment) = (false, false, 0, 1);
                function.declared = function.linkage;
            }
        }
    }
    let same = format!("{program:?}") == format!("{smaller:?}");
    // What changes nothing is not asked of.
    match same {
        true if at < 11 + program.functions.len() => options(program, at + 1),
        _ => Some(smaller),
    }
}

/// Halves what is the same in all functions of a family.
fn mixes(program: &Program, at: usize) -> Option<Program> {
    let families = program.functions.iter().map(|function| function.family).max()?;
    if at > families {
        return None;
    }
    let mut smaller = program.clone();
    let mut changed = false;
    for function in smaller.functions.iter_mut().filter(|function| function.family == at) {
        for statement in &mut function.statements {
            if let Statement::Mix(rounds) = statement
                && *rounds > 0
            {
                *rounds /= 2;
                changed = true;
            }
        }
    }
    if changed { Some(smaller) } else { mixes(program, at + 1) }
}

/// Leaves definitions out. Numbers stay as they are.
fn forget(program: &mut Program, parts: &[Part]) {
    for flush in &mut program.flushes {
        flush.defined.retain(|part| !parts.contains(part));
        flush.widened.retain(|(part, _)| !parts.contains(part));
    }
    program.interposed.retain(|function| !parts.contains(&Part::Function(*function)));
    for part in parts {
        // It still has a text, in which nothing is left.
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
        let unused = defined()
            .filter(|&&part| matches!(part, Part::Data(_)) && !used.contains(&part));
        let unused: Vec<Part> = unused.copied().collect();
        if unused.is_empty() {
            return;
        }
        forget(program, &unused);
    }
}
