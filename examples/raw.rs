//! An embedder that drives `cranelift-codegen` itself and has no `cranelift-module`: it numbers its
//! functions, compiles each by `Context::compile`, lays the code out in one buffer, and resolves
//! the calls in it (`raw/back_end.rs`). The code for merging is here. Two units are compiled, one
//! after the other; functions of the second unit that equal functions of the first are merged into
//! those.
//!
//! ```text
//! cargo run --example raw
//! ```
//!
//! It prints for each target, here for the first one:
//!
//! ```text
//! x86_64
//!   unit 1: 9 functions, 262 -> 126 bytes
//!   unit 2: 3 functions, 90 -> 52 bytes
//!   8 calls and jumps lead where they should
//!   3268 bytes to remember 12 functions by
//! ```
//!
//! Nothing is run, so code is made for x86-64 and for aarch64 wherever this runs. Every call is
//! checked to lead to the code of a function that equals the one that the front end meant.

#[path = "raw/back_end.rs"]
mod back_end;
#[path = "raw/front_end.rs"]
mod front_end;

use back_end::{Compiled, Image, compile};
use cranelift_mergefunc::cranelift_codegen::ir::Function;
use cranelift_mergefunc::cranelift_codegen::{isa, isa::TargetIsa, settings};
use cranelift_mergefunc::explain::MergeMap;
use cranelift_mergefunc::incremental::MergeCache;
use cranelift_mergefunc::thunk::Thunk;
use cranelift_mergefunc::{Emit, Merger, Options, Output, Target};
use front_end::{UNITS, attributes_of, name_of};
use std::error::Error;

/// Merges and compiles a unit, and appends its code to the image. Returns how many bytes it takes
/// without merging, and how many calls and jumps were checked.
fn add_unit(
    mut functions: Vec<Function>,
    isa: &dyn TargetIsa,
    (image, cache, map): (&mut Image, &mut MergeCache, &mut MergeMap),
) -> Result<(usize, usize), Box<dyn Error>> {
    // Two functions may have one address here; thunks are those that the target supports.
    let options = Options { target: Target::of(isa), aliases: true, ..Options::default() };
    let mut merger = Merger::after(cache, options);
    for func in &functions {
        let symbol = func.name.get_user().expect("functions are named by number");
        merger.add(symbol.clone(), func, attributes_of(symbol))?;
    }
    let (plan, increment) = merger.plan_increment(&mut functions);

    let (mut bytes_before, mut aliases) = (0, Vec::new());
    // The functions that were added come first, in the same order. With these options the plan adds
    // none.
    for (Output { function, symbol, alignment, emit, .. }, func) in
        plan.outputs().zip(&mut functions)
    {
        let before = compile(func, isa)?;
        bytes_before += before.code.len();
        let mut compiled = match emit {
            // Applying the plan and compiling can be done by many threads: the plan does not
            // change.
            Emit::Body | Emit::NewBody(_) if plan.apply(function, func) => {
                let mut after = compile(func, isa)?;
                for (after, before) in after.calls.iter_mut().zip(before.calls) {
                    after.meant = before.meant;
                }
                after
            }
            // Code that was compiled before the plan was made can be emitted.
            Emit::Body | Emit::NewBody(_) => before,
            Emit::Thunk { .. } => {
                let thunk = plan.thunk(function, &func.signature);
                let Some(Thunk::Code(thunk)) = thunk else {
                    return Err(format!("{symbol} has no thunk in raw bytes").into());
                };
                Compiled::from_thunk(thunk, symbol, before.alignment)
            }
            Emit::Alias { to } => {
                aliases.push((symbol, to));
                continue;
            }
            // Nothing refers to it any more.
            Emit::Nothing => continue,
        };
        // A reference to a function that was merged away and has no code: a wrong plan.
        for call in &compiled.calls {
            if let Some(why) = cache.without_code(&plan, &call.callee) {
                return Err(format!("{} refers to {why}", name_of(symbol)).into());
            }
        }
        compiled.alignment = compiled.alignment.max(alignment);
        let size = compiled.code.len() as u64;
        map.place(symbol.clone(), image.place(symbol, compiled) as u64, size);
    }
    aliases.into_iter().for_each(|(alias, to)| image.alias(alias, to));
    MergeMap::of(&plan, name_of).originals().for_each(|original| map.add(original.clone()));
    let is = |at, meant: &_| map.originals_at(at).any(|original| original.symbol == *meant);
    let calls = image.resolve(is)?;
    // The cache is extended only now, because no function may be merged into one that could not be
    // compiled.
    cache.extend(&increment);
    Ok((bytes_before, calls))
}

fn main() -> Result<(), Box<dyn Error>> {
    for target in ["x86_64", "aarch64"] {
        let isa = isa::lookup_by_name(target)?.finish(settings::Flags::new(settings::builder()))?;
        let (mut image, mut cache, mut map) =
            (Image::default(), MergeCache::new(), MergeMap::new());
        println!("{target}");
        let mut checked = 0;
        for (unit, number) in UNITS.into_iter().zip(1..) {
            let functions = cranelift_reader::parse_functions(unit)?;
            let (count, start) = (functions.len(), image.code.len());
            let all = (&mut image, &mut cache, &mut map);
            let (before, calls) = add_unit(functions, &*isa, all)?;
            checked += calls;
            let after = image.code.len() - start;
            println!("  unit {number}: {count} functions, {before} -> {after} bytes");
        }
        println!("  {checked} calls and jumps lead where they should");
        println!("  {} bytes to remember {} functions by", cache.size(), cache.remembered());
        println!("  start size (hexadecimal) functions");
        for line in map.perf_map().to_string().lines() {
            println!("  {line}");
        }
    }
    Ok(())
}
