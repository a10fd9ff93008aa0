//! Compiling with merging: functions that may merge are translated and read in parallel, and added in their order; then all
//! are compiled in parallel, as far as they are not merged.

use super::{CompileInputs, CompileOutput};
use crate::Engine;
use crate::hash_map::HashMap;
use crate::prelude::*;
use core::hash::{Hash, Hasher};
use std::hash::DefaultHasher;
use wasmtime_environ::wasmparser::{
    self, FuncToValidate, FunctionBody, VisitOperator, VisitSimdOperator,
};
use wasmtime_environ::{
    CompiledFunctionBody, Compiler, FilePos, FuncIndex, FuncKey, FunctionBodyData, FunctionMerger,
    FunctionMerging, InliningCompiler, Merging, ModuleTranslation, Shared,
};

/// The function that an operator calls. To read operators in full takes three times as long.
struct Callee;

macro_rules! callee {
    ($(@$proposal:ident $operator:ident $({ $($argument:ident: $type:ty),* })? => $visit:ident ($($rest:tt)*))*) => {
        $(fn $visit(&mut self $($(, $argument: $type)*)?) -> Option<u32> {
            $($(let _ = &$argument;)*)?
            callee!($operator $($($argument)*)?)
        })*
    };
    (Call $callee:ident) => { Some($callee) };
    (ReturnCall $callee:ident) => { Some($callee) };
    ($operator:ident $($argument:ident)*) => { None };
}

impl<'a> VisitOperator<'a> for Callee {
    type Output = Option<u32>;

    fn simd_visitor(&mut self) -> Option<&mut dyn VisitSimdOperator<'a, Output = Option<u32>>> {
        Some(self)
    }

    wasmparser::for_each_visit_operator!(callee);
}

impl VisitSimdOperator<'_> for Callee {
    wasmparser::for_each_visit_simd_operator!(callee);
}

/// A function of a module, and the number of its input.
pub(super) struct Body<'a> {
    pub input: usize,
    pub key: FuncKey,
    pub translation: &'a ModuleTranslation<'a>,
    pub body: FunctionBody<'a>,
}

impl Body<'_> {
    /// A hash of what functions have in common that may merge: of equal ones, all but whom they call; of similar ones, how
    /// control flows. Also, whom it calls. An error is found when the function is translated.
    fn look(&self, equal: bool) -> wasmparser::Result<(u64, Vec<FuncKey>)> {
        let Body { key, translation, body, .. } = self;
        let (module, index) = key.unwrap_defined_wasm_function();
        let module_types = &translation.module;
        let mut hasher = DefaultHasher::new();
        let signature = module_types.functions[module_types.func_index(index)].signature;
        (module, signature).hash(&mut hasher);
        let (mut operators, start) = (body.get_operators_reader()?, body.range().start);
        let mut calls = Vec::new();
        while !operators.eof() {
            let from = operators.original_position() - start;
            let callee = operators.visit_operator(&mut Callee)?;
            if let Some(callee) = callee.map(FuncIndex::from_u32) {
                let callee = module_types.defined_func_index(callee);
                calls.extend(callee.map(|callee| FuncKey::DefinedWasmFunction(module, callee)));
            } else if equal || matches!(body.as_bytes()[from], 0x00 | 0x02..=0x0f | 0x1f) {
                hasher.write(&body.as_bytes()[from..operators.original_position() - start]);
            }
        }
        Ok((hasher.finish(), calls))
    }

    /// Whether more than direct calls refers to it.
    fn is_known_outside(&self) -> bool {
        let module = &self.translation.module;
        let index = module.func_index(self.key.unwrap_defined_wasm_function().1);
        module.functions[index].is_escaping() || self.translation.start_func == Some(index)
    }
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

/// What is compiled: an input, or a body after merging.
enum Left<'a> {
    Input(usize),
    Body(u32, CompileOutput<'a>),
}

/// Compiles the inputs. Also, the functions that share bodies, each with where it starts in the binary.
pub(super) fn compile<'a>(
    inputs: CompileInputs<'a>,
    engine: &Engine,
    compiler: &dyn Compiler,
    finisher: &dyn InliningCompiler,
    mut merger: Box<dyn FunctionMerger + '_>,
) -> Result<(Vec<CompileOutput<'a>>, Vec<(Shared, FilePos)>)> {
    let CompileInputs { inputs, bodies } = inputs;
    let equal = engine.tunables().function_merging == FunctionMerging::Identical;
    let looks = engine.run_maybe_parallel(bodies.iter().collect(), |body| {
        Ok::<_, Error>(body.look(equal).unwrap_or_default())
    })?;
    let mut alike: HashMap<u64, usize> = HashMap::new();
    looks.iter().for_each(|(hash, _)| *alike.entry(*hash).or_default() += 1);
    let mut may_merge = Vec::new();
    for (body, (hash, calls)) in bodies.iter().zip(looks) {
        match alike[&hash] {
            1 => merger.add_other(body.key, calls),
            _ => may_merge.push(body),
        }
    }
    let merging = &*merger;
    let read = engine.run_maybe_parallel(may_merge.iter().collect(), |body| {
        let mut output = inputs[body.input](compiler)?;
        let function = core::mem::replace(&mut output.function, nothing());
        let needs_gc_heap = function.needs_gc_heap;
        let reading = merging.read(body.key, function, body.is_known_outside());
        Ok::<_, Error>((body.input, output, needs_gc_heap, reading))
    })?;
    let mut added: HashMap<FuncKey, CompileOutput<'a>> = HashMap::new();
    let mut is_added = vec![false; inputs.len()];
    let mut needs_gc_heap = false;
    for (input, output, own_needs_gc_heap, reading) in read {
        is_added[input] = true;
        needs_gc_heap |= own_needs_gc_heap;
        merger.add(output.key, reading);
        added.insert(output.key, output);
    }
    let input: HashMap<_, _> = may_merge.iter().map(|body| (body.key, body.input)).collect();
    let mut translate = |key| Ok(inputs[input[&key]](compiler)?.function);
    let Merging { functions, shared } = merger.plan(&mut translate)?;
    let named = |key, like| match added.get(&key) {
        Some(own) => with(own, nothing()),
        None => {
            let output = with(&added[&like], nothing());
            let symbol = format!("{}::shared[{}]", output.symbol, key.into_raw_parts().1);
            CompileOutput { key, symbol, start_srcloc: FilePos::none(), ..output }
        }
    };
    // Bodies first: their IR takes memory.
    let merged = functions.into_iter().map(|it| Left::Body(it.number, named(it.key, it.like)));
    let others = (0..inputs.len()).filter(|input| !is_added[*input]).map(Left::Input);
    let merger = &*merger;
    let compiled = engine.run_maybe_parallel(merged.chain(others).collect(), |left| {
        let mut output = match left {
            Left::Input(input) => inputs[input](compiler)?,
            Left::Body(number, output) => {
                let mut function = merger.body(number);
                function.needs_gc_heap = needs_gc_heap;
                CompileOutput { function, ..output }
            }
        };
        let CompileOutput { function, func_body, symbol, .. } = &mut output;
        finisher.finish_compiling(function, func_body.clone(), symbol)?;
        Ok::<_, Error>(output)
    })?;
    let shared = shared.into_iter().filter_map(|it| Some((it, added.get(&it.key)?.start_srcloc)));
    let mut shared: Vec<_> = shared.collect();
    shared.sort_unstable_by_key(|(shared, _)| shared.key);
    Ok((compiled, shared))
}
