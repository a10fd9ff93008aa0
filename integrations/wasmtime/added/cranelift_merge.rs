//! Merging of functions by `cranelift-mergefunc`: everything in this crate that knows of it.

use super::{CompiledFunction, Compiler, CompilerContext, box_dyn_any_compiler_context};
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_mergefunc::explain::{FrameTable, Recorded};
use cranelift_mergefunc::streaming::{self, Caller, Known, Reader, StreamingMerger};
use cranelift_mergefunc::{
    Addresses, Attributes, Bodies, Emit, FreshSymbols, FunctionIndex, Linkage, Options, Output,
    Plan, Prove, SyncBodies, Similar,
};
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use wasmtime_environ::error::{Error, Result, bail};
use wasmtime_environ::{
    Calls, CompiledFunctionBody, FilePos, FuncKey, FunctionMerger, FunctionMerging, Merged, Reading,
    Shared, Sharing,
};

/// The reading of a function, and its IR.
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
    /// The IR of functions that equal no other one so far, by the indices of the merger.
    held: Vec<OnceLock<Arc<Function>>>,
    /// The IR of bodies that are not compiled yet.
    bodies: Mutex<HashMap<FuncKey, Arc<Function>>>,
    /// For backtraces.
    recorded: Recorded,
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
        let (readers, plan, keys, others, held, bodies, recorded) = Default::default();
        Merger { compiler, options, readers, merger, plan, keys, others, held, bodies, recorded }
    }
}

fn symbol(key: FuncKey) -> UserExternalName {
    let (namespace, index) = key.into_raw_parts();
    UserExternalName { namespace, index }
}

/// The context of a function that is not compiled yet.
fn context(func: &mut CompiledFunctionBody) -> &mut Option<CompilerContext> {
    func.code.downcast_mut().expect("a translated function")
}

fn ir(func: &mut CompiledFunctionBody) -> &mut Function {
    &mut context(func).as_mut().expect("its context").codegen_context.func
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
        let records = self.compiler.tunables.generate_address_map;
        let mut reader =
            reader.unwrap_or_else(|| Reader::new(self.options).recording(records));
        // An exact copy takes less memory than what the translator grew.
        let own = ir(&mut func);
        let read: Read = (reader.read(own, attributes), Arc::new(own.clone()));
        self.readers.lock().unwrap().push(reader);
        self.compiler.contexts.lock().unwrap().extend(context(&mut func).take());
        Box::new(read)
    }

    fn add(&mut self, key: FuncKey, reading: Reading) {
        let (reading, func) = *reading.downcast::<Read>().expect("was read by this merger");
        let merger = self.merger.as_mut().expect("no plan yet");
        let added = merger.add_reading(symbol(key), reading).expect("keys are distinct");
        self.keys.push(key);
        self.held.push(match added.known {
            Known::Equal(_) => OnceLock::new(),
            Known::Hold | Known::Compile => func.into(),
        });
    }

    fn add_other(&mut self, key: FuncKey, Calls { calls, tail_calls }: Calls) {
        self.others.push(key);
        let merger = self.merger.as_mut().expect("no plan yet");
        calls.into_iter().for_each(|to| merger.add_call(&symbol(to), Caller::IsRewritten));
        let tail_calls = tail_calls.map(|all| all.into_iter().map(symbol).collect::<Vec<_>>());
        merger.add_tail_calls(&symbol(key), tail_calls.as_deref());
    }

    fn plan(
        &mut self,
        translate: &(dyn Fn(FuncKey) -> Result<CompiledFunctionBody> + Sync),
        parallel: bool,
    ) -> Result<(Vec<Merged>, Sharing)> {
        let Merger { merger, keys, others, held, .. } = self;
        let fresh = FreshSymbols::beside(keys.iter().chain(&*others).copied().map(symbol));
        let (held, error) = (std::mem::take(held), OnceLock::new());
        let mut held = Held { keys, held, translate, error, fresh, parallel };
        let (plan, recorded) = merger.take().expect("no plan yet").plan_recording(&mut held);
        let Held { held, error, .. } = held;
        if let Some(error) = error.into_inner() {
            return Err(error);
        }
        if let Some(Err(refuted)) = plan.proof() {
            bail!("{refuted}");
        }
        let raw = |function| {
            let UserExternalName { namespace, index } = *plan.entry(function).symbol();
            (namespace, index)
        };
        let (mut functions, mut sharing) = (Vec::new(), Sharing::default());
        let bodies = self.bodies.get_mut().unwrap();
        for Output { function, emit, code, reached, .. } in plan.outputs() {
            let key = raw(function);
            if reached.body != function {
                let code = raw(reached.symbol.unwrap_or(reached.call));
                let (body, src_loc) = (raw(reached.body), FilePos::none());
                sharing.functions.push(Shared { key, code, body, src_loc });
            }
            if let Emit::Body | Emit::NewBody(_) | Emit::Thunk { .. } = emit {
                let like = plan.new_body(function).map_or(code, |new| new.members()[0]);
                let like = keys[like.as_u32() as usize];
                let key = FuncKey::from_raw_parts(key.0, key.1);
                let own = held.get(code.as_u32() as usize).and_then(OnceLock::get);
                bodies.extend(own.map(|func| (key, func.clone())));
                functions.push(Merged { key, like });
            }
        }
        sharing.functions.sort_unstable_by_key(|it| it.key);
        self.recorded = recorded;
        self.plan = Some(plan);
        Ok((functions, sharing))
    }

    fn finish(&self, key: FuncKey, func: Option<CompiledFunctionBody>) -> CompiledFunctionBody {
        let mut func = func.unwrap_or_else(|| {
            let mut cx = self.compiler.function_compiler().cx;
            let own = self.bodies.lock().unwrap().remove(&key);
            cx.codegen_context.func = own.map_or_else(Function::new, Arc::unwrap_or_clone);
            let code = box_dyn_any_compiler_context(Some(cx));
            CompiledFunctionBody { code, needs_gc_heap: false }
        });
        let plan = self.plan.as_ref().expect("there is a plan");
        let sites = self.recorded.finish(plan, &symbol(key), ir(&mut func));
        context(&mut func).as_mut().expect("its context").sites = sites;
        func
    }

    fn record_frames(self: Box<Self>, code: &[(FuncKey, &dyn Any)], sharing: &mut Sharing) {
        let (mut recorded, plan) = (self.recorded, self.plan.expect("there is a plan"));
        if recorded.is_empty() {
            return;
        }
        for &(key, code) in code {
            let code: &CompiledFunction = code.downcast_ref().expect("it is compiled");
            let CompiledFunction { sites, buffer, name_map, .. } = code;
            recorded.add_code(&symbol(key), sites.as_ref(), buffer, name_map);
        }
        sharing.frames = FrameTable::of(&plan, recorded).bytes();
    }
}

/// The IR that is held, and what is translated again.
struct Held<'a> {
    keys: &'a [FuncKey],
    held: Vec<OnceLock<Arc<Function>>>,
    translate: &'a (dyn Fn(FuncKey) -> Result<CompiledFunctionBody> + Sync),
    error: OnceLock<Error>,
    fresh: FreshSymbols,
    parallel: bool,
}

impl Held<'_> {
    fn get(&self, function: FunctionIndex) -> &Function {
        let at = function.as_u32() as usize;
        self.held[at].get_or_init(|| {
            let again = (self.translate)(self.keys[at]).map(|mut func| ir(&mut func).clone());
            Arc::new(again.unwrap_or_else(|failed| {
                let _ = self.error.set(failed);
                Function::new()
            }))
        })
    }
}

impl SyncBodies for &Held<'_> {
    fn body(&self, function: FunctionIndex) -> &Function {
        self.get(function)
    }
}

impl Bodies for Held<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        self.get(function)
    }

    fn fresh_symbol(&mut self, members: &[FunctionIndex]) -> Option<UserExternalName> {
        let (namespace, _) = self.keys[members[0].as_u32() as usize].into_raw_parts();
        self.fresh.next(namespace)
    }

    fn sync(&self) -> Option<Box<dyn SyncBodies + '_>> {
        self.parallel.then(|| Box::new(self) as _)
    }
}
