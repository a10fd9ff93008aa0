//! Merging of functions by `cranelift-mergefunc`: everything in this crate that knows of it.

use super::{Compiler, CompilerContext, box_dyn_any_compiler_context};
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_mergefunc::streaming::{self, Known, Reader, StreamingMerger};
use cranelift_mergefunc::{
    Addresses, Attributes, Bodies, Emit, FreshSymbols, FunctionIndex, Linkage, Options, Output,
    Plan, Prove, Similar,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use wasmtime_environ::error::{Error, Result, bail};
use wasmtime_environ::{
    CompiledFunctionBody, FuncKey, FunctionMerger, FunctionMerging, Merged, Merging, Reading,
    Shared,
};

/// What was read of a function, and its IR.
type Read = (streaming::Reading, Arc<Function>);

pub(super) struct Merger<'a> {
    compiler: &'a Compiler,
    options: Options<'a>,
    readers: Mutex<Vec<Reader<'a>>>,
    /// Until there is a plan.
    merger: Option<StreamingMerger<'a>>,
    plan: Option<Plan>,
    /// By the indices of the merger.
    keys: Vec<FuncKey>,
    /// The functions that are not added: new bodies get other keys.
    others: Vec<FuncKey>,
    /// The IR of functions that equal no other one so far.
    held: HashMap<FunctionIndex, Arc<Function>>,
    /// By the number of a body, what it is made of.
    bodies: Mutex<HashMap<u32, Arc<Function>>>,
}

impl<'a> Merger<'a> {
    pub fn new(compiler: &'a Compiler, merging: FunctionMerging) -> Merger<'a> {
        let similar = match merging {
            FunctionMerging::Balanced => Similar::default(),
            FunctionMerging::Off | FunctionMerging::Identical => Similar::OFF,
        };
        // Two functions of a module may have one address.
        let for_ir = Options::for_ir(&*compiler.isa);
        // For tests: a plan that the checker refutes is an error.
        let is_proved = std::env::var_os("WASMTIME_PROVE_MERGING").is_some();
        let prove = if is_proved { Prove::Always } else { Prove::Never };
        let options = Options { aliases: true, similar, prove, ..for_ir };
        let merger = Some(StreamingMerger::before_code(options));
        let (readers, plan, keys, others, held, bodies) = Default::default();
        Merger { compiler, options, readers, merger, plan, keys, others, held, bodies }
    }
}

fn symbol(key: FuncKey) -> UserExternalName {
    let (namespace, index) = key.into_raw_parts();
    UserExternalName { namespace, index }
}

/// The IR of a function that is not compiled yet.
fn ir(func: &mut CompiledFunctionBody) -> &mut Function {
    let context = func.code.downcast_mut::<Option<CompilerContext>>();
    &mut context.and_then(Option::as_mut).expect("a translated function").codegen_context.func
}

impl FunctionMerger for Merger<'_> {
    fn read(&self, key: FuncKey, mut func: CompiledFunctionBody, outside: bool) -> Reading {
        let attributes = Attributes {
            linkage: if outside { Linkage::Hidden } else { Linkage::Local },
            addresses: Addresses::Insignificant,
            // Code of a module stays with it.
            key: symbol(key).namespace.into(),
            ..Attributes::default()
        };
        let reader = self.readers.lock().unwrap().pop();
        let mut reader = reader.unwrap_or_else(|| Reader::new(self.options));
        // An exact copy takes less memory than what the translator grew.
        let own = ir(&mut func);
        let read: Read = (reader.read(own, attributes), Arc::new(own.clone()));
        self.readers.lock().unwrap().push(reader);
        let context = func.code.downcast_mut::<Option<CompilerContext>>().and_then(Option::take);
        self.compiler.contexts.lock().unwrap().extend(context);
        Box::new(read)
    }

    fn add(&mut self, key: FuncKey, reading: Reading) {
        let (reading, func) = *reading.downcast::<Read>().expect("was read by this merger");
        let merger = self.merger.as_mut().expect("no plan yet");
        let added = merger.add_reading(symbol(key), reading).expect("keys are distinct");
        self.keys.push(key);
        if let Known::Hold | Known::Compile = added.known {
            self.held.insert(added.function, func);
        }
    }

    fn add_other(&mut self, key: FuncKey, calls: Vec<FuncKey>) {
        self.others.push(key);
        let merger = self.merger.as_mut().expect("no plan yet");
        calls.into_iter().for_each(|callee| merger.add_call(&symbol(callee)));
    }

    fn plan(
        &mut self,
        translate: &mut dyn FnMut(FuncKey) -> Result<CompiledFunctionBody>,
    ) -> Result<Merging> {
        let Merger { merger, keys, others, .. } = self;
        let mut held = std::mem::take(&mut self.held);
        let fresh = FreshSymbols::beside(keys.iter().chain(&*others).copied().map(symbol));
        let mut bodies = Held { keys, held: &mut held, translate, fresh, error: None };
        let plan = merger.take().expect("no plan yet").plan(&mut bodies);
        if let Some(error) = bodies.error {
            return Err(error);
        }
        if let Some(Err(refuted)) = plan.proof() {
            bail!("{refuted}");
        }
        let key = |function| {
            let UserExternalName { namespace, index } = *plan.entry(function).symbol();
            FuncKey::from_raw_parts(namespace, index)
        };
        let mut merging = Merging::default();
        let bodies = self.bodies.get_mut().unwrap();
        for Output { function, emit, code, reached, .. } in plan.outputs() {
            let own = key(function);
            if reached.body != function {
                let code = key(reached.symbol.unwrap_or(reached.call));
                merging.shared.push(Shared { key: own, code, body: key(reached.body) });
            }
            if let Emit::Body | Emit::NewBody(_) | Emit::Thunk { .. } = emit {
                let like = plan.new_body(function).map_or(code, |new| new.members()[0]);
                let (number, like) = (function.as_u32(), keys[like.as_u32() as usize]);
                bodies.extend(held.get(&code).map(|func| (number, func.clone())));
                merging.functions.push(Merged { key: own, number, like });
            }
        }
        self.plan = Some(plan);
        Ok(merging)
    }

    fn body(&self, number: u32) -> CompiledFunctionBody {
        let plan = self.plan.as_ref().expect("there is a plan");
        let own = self.bodies.lock().unwrap().remove(&number);
        let mut func = own.map_or_else(Function::new, Arc::unwrap_or_clone);
        plan.finish(FunctionIndex::from_u32(number), &mut func);
        let mut finished = self.compiler.function_compiler();
        finished.cx.codegen_context.func = func;
        let code = box_dyn_any_compiler_context(Some(finished.cx));
        CompiledFunctionBody { code, needs_gc_heap: false }
    }
}

/// The IR that is held, and what is translated again.
struct Held<'a> {
    keys: &'a [FuncKey],
    held: &'a mut HashMap<FunctionIndex, Arc<Function>>,
    translate: &'a mut dyn FnMut(FuncKey) -> Result<CompiledFunctionBody>,
    fresh: FreshSymbols,
    error: Option<Error>,
}

impl Bodies for Held<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        let Held { keys, held, translate, error, .. } = self;
        held.entry(function).or_insert_with(|| {
            let again = translate(keys[function.as_u32() as usize]);
            let again = again.map(|mut func| ir(&mut func).clone());
            Arc::new(again.unwrap_or_else(|failed| {
                *error = Some(failed);
                Function::new()
            }))
        })
    }

    fn fresh_symbol(&mut self, members: &[FunctionIndex]) -> Option<UserExternalName> {
        let (namespace, _) = self.keys[members[0].as_u32() as usize].into_raw_parts();
        self.fresh.next(namespace)
    }
}
