//! The numbered entities of a function: what its text says of them, and what Cranelift's reader
//! makes of it.
//!
//! The reader fills the gaps in the numbers of entities (`gv1` without `gv0`) with entities that
//! the text does not have, and looks up only some of the references to them. So every entity that a
//! text names must be declared in it: then nothing refers to what fills gaps. Of symbols and
//! callees that fill gaps, the names are empty; no text can write such a name, and none is printed.

use crate::scan::words;
use cranelift_codegen::ir::entities::AnyEntity;
use cranelift_codegen::ir::{
    AliasRegion, Constant, DynamicStackSlot, DynamicType, ExternalName, FuncRef, Function,
    GlobalValue, InstructionData, SigRef, StackSlot,
};
use cranelift_mergefunc::cranelift_codegen;
use cranelift_reader::SourceMap;
use std::collections::{BTreeMap, BTreeSet};

/// An error in a text: its line (from 0), its column (from 1), and the message.
pub(crate) type Wrong = (usize, usize, String);

/// The first word of a function's text for an entity that the text does not declare. Values and
/// blocks are looked up by the reader and the verifier.
pub(crate) fn undeclared(text: &str, func: &Function, map: &SourceMap) -> Option<Wrong> {
    first_undeclared(text, |_, entity| match entity {
        // The reader takes them in order only, and remembers no places.
        AnyEntity::AliasRegion(region) => func.dfg.alias_regions.is_valid(region),
        entity => map.location(entity).is_some(),
    })
}

/// Finds an undeclared entity in a text at which the reader panicked.
pub(crate) fn undeclared_in_malformed(text: &str) -> Option<Wrong> {
    let mut declared = BTreeSet::new();
    for line in text.lines() {
        let words =
            words(line).filter(|(at, word)| line[at + word.len()..].trim_start().starts_with('='));
        declared.extend(words.map(|(_, word)| word));
    }
    first_undeclared(text, |word, entity| match entity {
        // A callee can declare one without a number.
        AnyEntity::SigRef(_) => true,
        _ => declared.contains(word),
    })
}

/// Why the reader panicked, if the text has a constant without a number, which gets one that the
/// text declares.
pub(crate) fn clash_of_constants(text: &str, panic: &str) -> Option<Wrong> {
    let (_, clash) = panic.split_once("overwrite an existing constant ")?;
    let (constant, _) = clash.split_once(':')?;
    text.lines().enumerate().find_map(|(number, line)| {
        let (at, _) = words(line).find(|&(_, word)| word == constant)?;
        let message = format!(
            "a constant without a number gets the number of {constant}; number constants from const0 on, without gaps"
        );
        Some((number, line[..at].chars().count() + 1, message))
    })
}

fn first_undeclared(text: &str, declared: impl Fn(&str, AnyEntity) -> bool) -> Option<Wrong> {
    for (number, line) in text.lines().enumerate() {
        for (at, word) in words(line) {
            if let Some((kind, entity)) = entity(word)
                && !declared(word, entity)
            {
                let message = format!(
                    "{kind} {word} is used, but the function does not declare it; declare it in front of the first \
                     block"
                );
                return Some((number, line[..at].chars().count() + 1, message));
            }
        }
    }
    None
}

/// The entity that a word names, if it is one of those that are declared in front of the first
/// block, and what it is called.
fn entity(word: &str) -> Option<(&'static str, AnyEntity)> {
    // Most words are values, opcodes and types.
    if !word.starts_with(['s', 'd', 'g', 'f', 'c', 'r']) {
        return None;
    }
    let digits = word.trim_start_matches(|letter: char| letter.is_ascii_lowercase());
    if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
        return None;
    }
    let number: u32 = digits.parse().ok()?;
    Some(match &word[..word.len() - digits.len()] {
        "ss" => ("stack slot", StackSlot::with_number(number)?.into()),
        "dss" => ("dynamic stack slot", DynamicStackSlot::with_number(number)?.into()),
        "dt" => ("dynamic type", DynamicType::with_number(number)?.into()),
        "gv" => ("global value", GlobalValue::with_number(number)?.into()),
        "sig" => ("signature", SigRef::with_number(number)?.into()),
        "fn" => ("function", FuncRef::with_number(number)?.into()),
        "const" => ("constant", Constant::with_number(number)?.into()),
        "region" => ("alias region", AliasRegion::from_u32(number).into()),
        _ => return None,
    })
}

/// Whether a name is that of a symbol or callee that only fills a gap in the numbers.
pub(crate) fn fills_gap(name: &ExternalName) -> bool {
    matches!(name, ExternalName::TestCase(name) if name.raw().is_empty())
}

/// Numbers the constants of a function without gaps, in their order. Cranelift gives the next new
/// constant the number that the count of them is, and panics if there is one already.
pub(crate) fn renumber_constants(func: &mut Function) {
    let pool = &mut func.dfg.constants;
    let all: Vec<_> = pool.iter().map(|(&handle, data)| (handle, data.clone())).collect();
    if all.iter().enumerate().all(|(at, (handle, _))| handle.as_u32() as usize == at) {
        return;
    }
    pool.clear();
    let mut new = BTreeMap::new();
    for (at, (handle, data)) in all.into_iter().enumerate() {
        let dense = Constant::from_u32(at as u32);
        pool.set(dense, data);
        new.insert(handle, dense);
    }
    let insts: Vec<_> =
        func.layout.blocks().flat_map(|block| func.layout.block_insts(block)).collect();
    for inst in insts {
        if let InstructionData::UnaryConst { opcode: _, constant_handle } =
            &mut func.dfg.insts[inst]
        {
            *constant_handle = new[constant_handle];
        }
    }
}
