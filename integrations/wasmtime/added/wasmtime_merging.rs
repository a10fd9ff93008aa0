//! Compiling with merging: functions are translated and read in parallel, added in their order, and compiled in parallel, as
//! far as they are not merged.

use super::{CompileInput, CompileOutput};
use crate::Engine;
use crate::hash_map::HashMap;
use crate::hash_set::HashSet;
use crate::prelude::*;
use wasmtime_environ::wasmparser::FuncToValidate;
use wasmtime_environ::{
    CompiledFunctionBody, Compiler, FilePos, FuncKey, FunctionBodyData, FunctionMerger,
    InliningCompiler, Merged, Merging, ModuleTranslation, Shared,
};

/// How many inputs are translated before some are compiled: each of them takes a context of the compiler.
fn batch(engine: &Engine) -> usize {
    #[cfg(feature = "parallel-compilation")]
    if engine.config().parallel_compilation {
        return 8 * rayon::current_num_threads();
    }
    let _ = engine;
    1
}

/// Whether more than direct calls refers to a function of a module.
fn is_known_outside(translation: &ModuleTranslation<'_>, key: FuncKey) -> bool {
    let (_, index) = key.unwrap_defined_wasm_function();
    let index = translation.module.func_index(index);
    translation.module.functions[index].is_escaping() || translation.start_func == Some(index)
}

/// An output with another body, which is not compiled yet.
fn with<'a>(output: &CompileOutput<'a>, function: CompiledFunctionBody) -> CompileOutput<'a> {
    let &CompileOutput { key, ref symbol, function: _, start_srcloc, translation, ref func_body } =
        output;
    let (symbol, func_body) = (symbol.clone(), func_body.clone());
    CompileOutput { key, symbol, function, start_srcloc, translation, func_body }
}

/// The input of a function once more.
pub(super) fn again<'a>(data: &FunctionBodyData<'a>) -> FunctionBodyData<'a> {
    let FuncToValidate { resources, index, ty, features } = &data.validator;
    let (resources, index, ty, features) = (resources.clone(), *index, *ty, *features);
    let validator = FuncToValidate { resources, index, ty, features };
    FunctionBodyData { body: data.body.clone(), validator }
}

/// Where a function without code of its own has its code.
pub(super) fn code_of(shared: &[(Shared, FilePos)], key: FuncKey) -> FuncKey {
    let at = shared.binary_search_by_key(&key, |(shared, _)| shared.key);
    at.map_or(key, |at| shared[at].0.code)
}

fn nothing() -> CompiledFunctionBody {
    CompiledFunctionBody { code: Box::new(()), needs_gc_heap: false }
}

/// Compiles the inputs. Also, the functions that share bodies, each with where it starts in the binary.
pub(super) fn compile<'a>(
    inputs: Vec<CompileInput<'a>>,
    engine: &Engine,
    compiler: &dyn Compiler,
    finisher: &dyn InliningCompiler,
    mut merger: Box<dyn FunctionMerger + '_>,
) -> Result<(Vec<CompileOutput<'a>>, Vec<(Shared, FilePos)>)> {
    let finish = |mut output: CompileOutput<'a>| {
        let CompileOutput { function, func_body, symbol, .. } = &mut output;
        finisher.finish_compiling(function, func_body.clone(), symbol)?;
        Ok::<_, Error>(output)
    };
    let mut outputs: HashMap<FuncKey, CompileOutput<'a>> = HashMap::new();
    // The functions of modules, by their inputs, without their code.
    let mut added: HashMap<FuncKey, (usize, CompileOutput<'a>)> = HashMap::new();
    let mut needs_gc_heap = false;
    let batch = batch(engine);
    for (number, some) in inputs.chunks(batch).enumerate() {
        let merging = &*merger;
        let translated = engine.run_maybe_parallel(some.iter().collect(), |input| {
            let mut output = input(compiler)?;
            let reading = output.translation.map(|translation| {
                let is_known_outside = is_known_outside(translation, output.key);
                merging.read(output.key, &mut output.function, is_known_outside)
            });
            Ok::<_, Error>((output, reading))
        })?;
        let mut to_compile = Vec::new();
        for (at, (mut output, reading)) in (number * batch..).zip(translated) {
            let Some(reading) = reading else {
                to_compile.push(output);
                continue;
            };
            needs_gc_heap |= output.function.needs_gc_heap;
            let function = core::mem::replace(&mut output.function, nothing());
            if let Some(function) = merger.add(output.key, reading, function) {
                to_compile.push(with(&output, function));
            }
            added.insert(output.key, (at, output));
        }
        for output in engine.run_maybe_parallel(to_compile, finish)? {
            outputs.insert(output.key, output);
        }
    }
    let mut translate = |key| Ok(inputs[added[&key].0](compiler)?.function);
    let Merging { functions, shared } = merger.plan(&mut translate)?;
    let own =
        |(key, merged): &(FuncKey, Merged)| matches!(merged, Merged::Compiled(of) if of == key);
    let keep_own = functions.iter().filter(|function| own(function)).map(|(key, _)| *key);
    let keep_own: HashSet<FuncKey> = keep_own.collect();
    let (mut compiled, mut to_compile) = (Vec::new(), Vec::new());
    for (key, merged) in functions {
        let named = |of: &FuncKey, function| match added.get(&key) {
            Some((_, own)) => with(own, function),
            None => {
                let output = with(&added[of].1, function);
                let symbol = format!("{}::shared[{}]", output.symbol, key.into_raw_parts().1);
                CompileOutput { key, symbol, start_srcloc: FilePos::none(), ..output }
            }
        };
        match merged {
            Merged::Compiled(of) if of != key && keep_own.contains(&of) => {
                to_compile.push((named(&of, translate(of)?), None));
            }
            Merged::Compiled(of) => {
                compiled.extend(outputs.remove(&of).map(|output| named(&of, output.function)));
            }
            Merged::Body(number, like) => to_compile.push((named(&like, nothing()), Some(number))),
        }
    }
    let merger = &*merger;
    compiled.extend(engine.run_maybe_parallel(to_compile, |(mut output, number)| {
        if let Some(number) = number {
            output.function = merger.body(number);
        }
        finish(output)
    })?);
    // Code of functions that share bodies is left, and that of trampolines.
    compiled.extend(outputs.into_values().filter(|output| !added.contains_key(&output.key)));
    compiled.iter_mut().for_each(|output| output.function.needs_gc_heap |= needs_gc_heap);
    let shared = shared.into_iter().filter_map(|it| Some((it, added.get(&it.key)?.1.start_srcloc)));
    let mut shared: Vec<_> = shared.collect();
    shared.sort_unstable_by_key(|(shared, _)| shared.key);
    Ok((compiled, shared))
}
