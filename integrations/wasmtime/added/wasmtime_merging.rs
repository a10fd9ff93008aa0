//! Compiling with merging: functions that may merge are translated and read in parallel, and added
//! in their order; then all are compiled in parallel, as far as they are not merged.

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
    Calls, CompiledFunctionBody, Compiler, FilePos, FuncIndex, FuncKey, FunctionBodyData,
    FunctionMerger, FunctionMerging, InliningCompiler, Merged, ModuleTranslation, Sharing,
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
    /// A hash of what functions have in common that may merge: of equal ones, all but whom they
    /// call; of similar ones, how control flows. Also, whom it calls. An error is found when the
    /// function is translated.
    fn look(&self, equal: bool) -> wasmparser::Result<(u64, Calls)> {
        let Body { key, translation, body, .. } = self;
        let (module, index) = key.unwrap_defined_wasm_function();
        let module_types = &translation.module;
        let mut hasher = DefaultHasher::new();
        let signature = module_types.functions[module_types.func_index(index)].signature;
        (module, signature).hash(&mut hasher);
        let (mut operators, start) = (body.get_operators_reader()?, body.range().start);
        let (mut calls, mut tail_calls) = (Vec::new(), Vec::new());
        while !operators.eof() {
            let from = operators.original_position() - start;
            let callee = operators.visit_operator(&mut Callee)?.map(FuncIndex::from_u32);
            let defined = callee.and_then(|callee| module_types.defined_func_index(callee));
            let defined = defined.map(|callee| FuncKey::DefinedWasmFunction(module, callee));
            calls.extend(defined);
            // `return_call`, `return_call_indirect`, `return_call_ref`.
            if let 0x12 | 0x13 | 0x15 = body.as_bytes()[from] {
                tail_calls.push(defined);
            }
            if callee.is_none()
                && (equal || matches!(body.as_bytes()[from], 0x00 | 0x02..=0x0f | 0x1f))
            {
                hasher.write(&body.as_bytes()[from..operators.original_position() - start]);
            }
        }
        Ok((hasher.finish(), Calls { calls, tail_calls: tail_calls.into_iter().collect() }))
    }

    fn start_srcloc(&self) -> FilePos {
        FilePos::new(self.body.range().start as u32)
    }

    /// Whether more than direct calls refers to it.
    fn is_known_outside(&self) -> bool {
        let module = &self.translation.module;
        let index = module.func_index(self.key.unwrap_defined_wasm_function().1);
        module.functions[index].is_escaping() || self.translation.start_func == Some(index)
    }
}

/// The input of a function once more.
pub(super) fn again<'a>(data: &FunctionBodyData<'a>) -> FunctionBodyData<'a> {
    let FuncToValidate { resources, index, ty, features } = &data.validator;
    let (resources, index, ty, features) = (resources.clone(), *index, *ty, *features);
    let validator = FuncToValidate { resources, index, ty, features };
    FunctionBodyData { body: data.body.clone(), validator }
}

/// The code to compile.
enum Left {
    Merged(Merged),
    /// An input.
    Other(usize),
}

/// Compiles the inputs. Also, the functions that share bodies.
pub(super) fn compile<'a>(
    inputs: CompileInputs<'a>,
    engine: &Engine,
    compiler: &dyn Compiler,
    finisher: &dyn InliningCompiler,
    mut merger: Box<dyn FunctionMerger + '_>,
) -> Result<(Vec<CompileOutput<'a>>, Sharing)> {
    let CompileInputs { inputs, bodies } = inputs;
    let equal = engine.tunables().function_merging == FunctionMerging::Identical;
    let looks = engine.run_maybe_parallel(bodies.iter().collect(), |body| {
        Ok::<_, Error>(body.look(equal).unwrap_or_default())
    })?;
    let mut alike: HashMap<u64, usize> = HashMap::new();
    looks.iter().for_each(|(hash, _)| *alike.entry(*hash).or_default() += 1);
    let (mut may_merge, mut is_other) = (Vec::new(), vec![true; inputs.len()]);
    for (body, (hash, calls)) in bodies.iter().zip(looks) {
        match alike[&hash] {
            1 => merger.add_other(body.key, calls),
            _ => may_merge.push(body),
        }
    }
    let merging = &*merger;
    let read = engine.run_maybe_parallel(may_merge.clone(), |body| {
        let CompileOutput { symbol, function, .. } = inputs[body.input](compiler)?;
        let needs_gc_heap = function.needs_gc_heap;
        let reading = merging.read(body.key, function, body.is_known_outside());
        Ok::<_, Error>((body, symbol, needs_gc_heap, reading))
    })?;
    let mut added: HashMap<FuncKey, (&Body<'a>, String)> = HashMap::new();
    let mut needs_gc_heap = false;
    for (body, symbol, own_needs_gc_heap, reading) in read {
        is_other[body.input] = false;
        needs_gc_heap |= own_needs_gc_heap;
        added.insert(body.key, (body, symbol));
        merger.add(body.key, reading);
    }
    let translate = |key| Ok(inputs[added[&key].0.input](compiler)?.function);
    let parallel = engine.config().parallel_compilation;
    let (functions, mut sharing) = merger.plan(&translate, parallel)?;
    let merging = &*merger;
    let merged = |Merged { key, like }| {
        let (body, symbol) = added.get(&key).unwrap_or_else(|| &added[&like]);
        let (mut symbol, mut start_srcloc) = (symbol.clone(), body.start_srcloc());
        if key != body.key {
            symbol += &format!("::shared[{}]", key.into_raw_parts().1);
            start_srcloc = FilePos::none();
        }
        let function = CompiledFunctionBody { needs_gc_heap, ..merging.finish(key, None) };
        let (translation, func_body) = (Some(body.translation), Some(body.body.clone()));
        CompileOutput { key, symbol, function, start_srcloc, translation, func_body }
    };
    let other = |input: usize| {
        let mut output = inputs[input](compiler)?;
        // Trampolines call symbols, so that backtraces find these.
        if let FuncKey::DefinedWasmFunction(..) = output.key {
            output.function = merging.finish(output.key, Some(output.function));
        }
        Ok::<_, Error>(output)
    };
    // Bodies first: their IR takes memory.
    let bodies = functions.into_iter().map(Left::Merged);
    let others = (0..inputs.len()).filter(|input| is_other[*input]).map(Left::Other);
    let compiled = engine.run_maybe_parallel(bodies.chain(others).collect(), |left| {
        let mut output = match left {
            Left::Merged(it) => merged(it),
            Left::Other(input) => other(input)?,
        };
        let CompileOutput { function, func_body, symbol, .. } = &mut output;
        finisher.finish_compiling(function, func_body.clone(), symbol)?;
        Ok::<_, Error>(output)
    })?;
    sharing.functions.retain_mut(|it| {
        let own = added.get(&FuncKey::from_raw_parts(it.key.0, it.key.1));
        it.src_loc = own.map_or_else(FilePos::none, |(body, _)| body.start_srcloc());
        own.is_some()
    });
    let code: Vec<_> = compiled.iter().map(|it| (it.key, &*it.function.code as _)).collect();
    merger.record_frames(&code, &mut sharing);
    Ok((compiled, sharing))
}
