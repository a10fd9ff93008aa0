//! Work on several threads: what is planned, emitted, observed and refused is what one thread
//! plans, emits, observes and refuses.
//!
//! Every flush here runs in a pool of its own, and never in the global one: a test makes sure of
//! that.

#[path = "module/wrapper.rs"]
mod wrapper;

use arbitrary::Unstructured;
use cranelift_codegen::ir::{
    self, ExternalName, Function, UserExternalName, UserExternalNameRef, UserFuncName,
};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::{CompiledCode, Context};
use cranelift_entity::EntityRef;
use cranelift_jit::JITModule;
use cranelift_mergefunc::incremental::MergeCache;
use cranelift_mergefunc::streaming::{Reader, StreamingMerger};
use cranelift_mergefunc::{
    Addresses, Attributes, Bodies, FunctionIndex, Merger, Options, Plan, Policy, Prove, Similar,
    SyncBodies, Target,
};
use cranelift_mergefunc_module::{BackEnd, DefineCompiled, MergingModule, ModuleOptions};
use cranelift_module::{FuncId, Linkage, Module, ModuleResult, default_libcall_names};
use cranelift_object::{ObjectBuilder, ObjectModule};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use testkit::generate::function::Profile;
use testkit::generate::opcodes::Machine;
use testkit::generate::unit::GeneratedUnit;
use testkit::isa;
use testkit::modules::{
    self, I64, call, calls, declare, define_all, id, insignificant, mixes, mixes_call, plus,
};
use testkit::scale::Family;
use testkit::support::Rng;
use testkit::unit::Unit;
use wrapper::UnwindModule;

const THREADS: [usize; 3] = [1, 2, 7];

fn pool(threads: usize) -> rayon::ThreadPool {
    let name = |at| format!("outer-{at}");
    let builder = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(name);
    builder.stack_size(16 << 20).build().expect("threads")
}

/// How an object is made.
#[derive(Clone, Copy, Debug, Default)]
struct Build {
    unwind_info: bool,
    sections: bool,
    /// Flushed by `into_inner`, and finished by the module itself.
    by_hand: bool,
    /// Whether it is flushed several times, which a module of a known kind of object refuses.
    several_flushes: bool,
}

fn builder(isa: &OwnedTargetIsa, build: Build) -> ObjectBuilder {
    let mut builder = ObjectBuilder::new(isa.clone(), "unit", default_libcall_names()).unwrap();
    builder.unwind_info(build.unwind_info).per_function_section(build.sections);
    builder
}

/// The object that `define` makes, on this number of threads, or by a module that compiles itself.
fn object(
    isa: &OwnedTargetIsa,
    build: Build,
    options: ModuleOptions,
    threads: Option<usize>,
    define: &(dyn Fn(&mut MergingModule<ObjectModule>) -> ModuleResult<()> + Sync),
) -> Result<Vec<u8>, String> {
    let make = || -> ModuleResult<Vec<u8>> {
        let builder = builder(isa, build);
        let back_end = if build.several_flushes { BackEnd::Any } else { BackEnd::Object };
        let options = ModuleOptions { back_end, ..options };
        let mut module = match threads {
            None => MergingModule::with_options(ObjectModule::new(builder), options),
            Some(_) => MergingModule::object_in_parallel(builder, build.unwind_info, options),
        };
        define(&mut module)?;
        let product = match build.by_hand {
            true => {
                let (module, aliases) = module.into_inner()?;
                let mut product = module.finish();
                aliases.place(&mut product);
                product
            }
            false => module.finish()?,
        };
        Ok(product.emit().expect("an object file"))
    };
    let made = catch_unwind(AssertUnwindSafe(|| match threads {
        None => make(),
        Some(threads) => pool(threads).install(make),
    }));
    match made {
        Ok(made) => made.map_err(|error| format!("{error:?}")),
        Err(panic) => Err(payload(panic)),
    }
}

fn payload(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).expect("a panic with a message")
}

/// Defines a unit; what it does not define is imported.
fn define_unit(module: &mut MergingModule<ObjectModule>, unit: &Unit) -> ModuleResult<()> {
    let mut order: Vec<_> = unit.functions.iter().collect();
    order.sort_by_key(|member| member.symbol().index);
    for member in order {
        let name = format!("u0:{}", member.symbol().index);
        let linkage = match member.attributes.linkage {
            cranelift_mergefunc::Linkage::Local => Linkage::Local,
            cranelift_mergefunc::Linkage::Hidden => Linkage::Hidden,
            cranelift_mergefunc::Linkage::Export => Linkage::Export,
            cranelift_mergefunc::Linkage::Preemptible => Linkage::Preemptible,
        };
        module.declare_function(&name, linkage, &member.body.signature)?;
    }
    for member in &unit.functions {
        let function = id(module, &format!("u0:{}", member.symbol().index));
        *module.attributes(function) = member.attributes;
        let mut context = Context::for_function(member.body.clone());
        import(module, &mut context.func)?;
        context.func.name = UserFuncName::user(0, function.as_u32());
        module.define_function(function, &mut context)?;
    }
    Ok(())
}

/// Names everything as the module does.
fn import(module: &mut dyn Module, func: &mut Function) -> ModuleResult<()> {
    for at in 0..func.params.user_named_funcs().len() {
        let name_ref = UserExternalNameRef::new(at);
        let symbol = func.params.user_named_funcs()[name_ref].clone();
        let text = symbol.to_string();
        let external = ExternalName::User(name_ref);
        let called = func.dfg.ext_funcs.values().find(|callee| callee.name == external);
        let to = match called.map(|callee| func.dfg.signatures[callee.signature].clone()) {
            Some(signature) if module.get_name(&text).is_none() => {
                let function = module.declare_function(&text, Linkage::Import, &signature)?;
                UserExternalName::new(0, function.as_u32())
            }
            _ => match module.get_name(&text) {
                Some(cranelift_module::FuncOrDataId::Func(function)) => {
                    UserExternalName::new(0, function.as_u32())
                }
                _ => {
                    let data = module.declare_data(&text, Linkage::Import, true, false)?;
                    UserExternalName::new(1, data.as_u32())
                }
            },
        };
        func.params.reset_user_func_name(name_ref, to);
    }
    Ok(())
}

fn linux(machine: &str, opt_level: &str) -> OwnedTargetIsa {
    let settings = [("opt_level", opt_level), ("is_pic", "true")];
    isa::of(
        &format!("{machine}-unknown-linux-gnu"),
        &[&isa::ANY_INSTRUCTION[..], &settings].concat(),
    )
}

/// Options under which functions merge, by number.
fn options(at: u64) -> ModuleOptions {
    let policy = [Policy::Off, Policy::Balanced, Policy::Size][at as usize % 3];
    ModuleOptions {
        similar: Similar { policy, ..Similar::default() },
        remember: at.is_multiple_of(2),
        merge_limit: (at % 7 == 6).then_some(2),
        function_addresses: Addresses::Insignificant,
        ..ModuleOptions::default()
    }
}

/// Hands out functions to one thread only.
struct ToOne(Vec<Function>, u32);

impl Bodies for ToOne {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self.0[function.index()]
    }

    fn fresh_symbol(&mut self, _: &[FunctionIndex]) -> Option<UserExternalName> {
        self.1 += 1;
        Some(UserExternalName::new(9, self.1))
    }
}

/// Lends the functions to several threads.
struct ToAll(ToOne);

impl Bodies for ToAll {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        self.0.body(function)
    }

    fn fresh_symbol(&mut self, members: &[FunctionIndex]) -> Option<UserExternalName> {
        self.0.fresh_symbol(members)
    }

    fn sync(&self) -> Option<Box<dyn SyncBodies + '_>> {
        Some(Box::new(&*self.0.0))
    }
}

/// All that a plan says.
fn said(plan: &Plan) -> String {
    let mut text = format!("{:?}\n", plan.stats());
    for (function, entry) in plan.entries() {
        let arguments = entry.extra_arguments();
        let (disposition, reason, class) = (entry.disposition(), entry.reason(), entry.class());
        writeln!(text, "{function} {disposition:?} {reason:?} {class} {arguments:?}").unwrap();
    }
    for new in plan.new_bodies() {
        writeln!(text, "{:?} {}", new.members(), new.body()).unwrap();
    }
    text
}

/// Buckets that are walked in pieces, shapes and sets by the hundred, with and without earlier
/// units.
#[test]
fn large_units_have_the_same_plan_on_any_number_of_threads() {
    let target = Target::of(&*linux("x86_64", "speed"));
    let options = Options { target, prove: Prove::Never, ..Options::default() };
    let cache = MergeCache::new();
    for family in Family::ALL {
        for incremental in [false, true] {
            let plan = |bodies: &mut dyn Bodies, functions: &[Function]| {
                let mut merger = match incremental {
                    true => Merger::after(&cache, options),
                    false => Merger::new(options),
                };
                for func in functions {
                    let symbol = func.name.get_user().unwrap().clone();
                    let attributes = Attributes {
                        linkage: cranelift_mergefunc::Linkage::Local,
                        addresses: Addresses::Insignificant,
                        ..Attributes::default()
                    };
                    merger.add(symbol, func, attributes).unwrap();
                }
                merger.plan(bodies)
            };
            let functions = family.unit(5000);
            let alone = said(&plan(&mut ToOne(functions.clone(), 0), &functions));
            let several = || plan(&mut ToAll(ToOne(functions.clone(), 0)), &functions);
            let several = said(&pool(3).install(several));
            assert!(alone == several, "{family:?} {incremental}");
        }
    }
}

/// Functions whose IR is held while they arrive: their plan, and what is recorded for backtraces.
#[test]
fn units_that_arrive_have_the_same_plan_on_any_number_of_threads() {
    let target = Target::of(&*linux("x86_64", "speed"));
    let options = Options { target, prove: Prove::Never, ..Options::default() };
    let mut related = 0;
    for family in Family::ALL {
        let functions = family.unit(3000);
        let plan = |bodies: &mut dyn Bodies| {
            let mut reader = Reader::new(options).recording(true);
            let mut merger = StreamingMerger::before_code(options);
            for func in &functions {
                let symbol = func.name.get_user().unwrap().clone();
                let attributes = Attributes {
                    linkage: cranelift_mergefunc::Linkage::Local,
                    addresses: Addresses::Insignificant,
                    ..Attributes::default()
                };
                merger.add_reading(symbol, reader.read(func, attributes)).unwrap();
            }
            let (plan, recorded) = merger.plan_recording(bodies);
            let bodies = plan.new_bodies().len();
            (format!("{} {recorded:?}", said(&plan)), bodies)
        };
        let (alone, bodies) = plan(&mut ToOne(functions.clone(), 0));
        let several = || plan(&mut ToAll(ToOne(functions.clone(), 0)));
        let (several, _) = pool(3).install(several);
        assert!(alone == several, "{family:?}");
        related += bodies;
    }
    assert!(related > 3, "{related} bodies");
}

#[test]
fn generated_units_give_the_same_object_on_any_number_of_threads() {
    let (mut made, mut unwound) = (0, 0);
    for input in 0..24 {
        let bytes = Rng::new(input).bytes(4096);
        let machine = [Machine::X86_64, Machine::Aarch64][input as usize % 2];
        let profile = Profile::runnable(machine);
        let GeneratedUnit { unit, .. } =
            GeneratedUnit::draw(&mut Unstructured::new(&bytes), &profile);
        let isa = linux(
            if machine.is_x86() { "x86_64" } else { "aarch64" },
            isa::opt_level(input % 3 == 0),
        );
        let build = Build {
            unwind_info: input % 4 < 2,
            sections: input % 5 == 0,
            by_hand: input % 3 == 1,
            several_flushes: false,
        };
        let define = |module: &mut MergingModule<ObjectModule>| define_unit(module, &unit);
        let alone = object(&isa, build, options(input), None, &define);
        for threads in THREADS {
            let together = object(&isa, build, options(input), Some(threads), &define);
            assert!(together == alone, "input {input}, {threads} threads, {build:?}");
        }
        if let Ok(object) = &alone {
            made += 1;
            unwound += usize::from(object.windows(9).any(|name| name == b".eh_frame"));
        }
    }
    assert!(made > 16, "{made} of 24 units could be compiled");
    assert!(unwound > 6, "{unwound} objects have unwind information");
}

/// Functions of all kinds: kept, merged, aliases, thunks, with a parameterised body, aligned.
fn program(functions: usize) -> String {
    let mut program = String::new();
    for at in 0..functions {
        let linkage = ["local", "export", "hidden"][at % 3];
        program += &plus(linkage, &format!("plus{at}"), at as i64 / 2);
        program += &calls("export", &format!("calls{at}"), &format!("plus{at}"));
        program += &mixes("local", &format!("mixes{at}"), at as i64);
        program += &mixes_call("export", &format!("mixes_call{at}"), &format!("mixes{at}"));
    }
    program
}

fn define_program(module: &mut MergingModule<ObjectModule>) -> ModuleResult<()> {
    let program = program(300);
    modules::declare_all(module, &program);
    for at in (0..300).step_by(16) {
        let function = id(module, &format!("mixes_call{at}"));
        *module.attributes(function) = Attributes { alignment: 64, ..Attributes::default() };
    }
    define_all(module, &program);
    Ok(())
}

/// More functions than are compiled at a time.
#[test]
fn nothing_is_lost_of_an_object_unwind_information_relocations_and_alignments_included() {
    let isa = modules::host_isa(true);
    for (unwind_info, by_hand) in [(true, false), (true, true), (false, false)] {
        let build = Build { unwind_info, by_hand, ..Build::default() };
        let alone = object(&isa, build, options(2), None, &define_program).unwrap();
        for threads in THREADS {
            let together = object(&isa, build, options(2), Some(threads), &define_program);
            assert!(together.unwrap() == alone, "{threads} threads, {build:?}");
        }
    }
}

#[test]
fn flushes_one_after_the_other_give_the_same_object() {
    let define = |module: &mut MergingModule<ObjectModule>| {
        for round in 0..4 {
            let program = program(20 + round).replace("%", &format!("%round{round}_"));
            define_all(module, &program);
            module.flush()?;
        }
        Ok(())
    };
    let build = Build { unwind_info: true, several_flushes: true, ..Build::default() };
    let isa = modules::host_isa(true);
    let alone = object(&isa, build, options(2), None, &define).unwrap();
    for threads in THREADS {
        assert!(object(&isa, build, options(2), Some(threads), &define).unwrap() == alone);
    }
}

/// The observations of a module inside: every compiled function, with all that Cranelift says of
/// its code, and the error or panic that ended the flush, with the function that failed.
type Seen = (Vec<FuncId>, Vec<CompiledCode>, Option<String>, Option<FuncId>);

fn seen(
    threads: Option<usize>,
    define: &(dyn Fn(&mut MergingModule<UnwindModule<ObjectModule>>) + Sync),
) -> Seen {
    let work = || {
        let isa = isa::of(isa::HOST, &[("enable_verifier", "false"), ("is_pic", "true")]);
        let inner = UnwindModule::new(ObjectModule::new(builder(&isa, Build::default())));
        let options = ModuleOptions { back_end: BackEnd::Object, ..insignificant() };
        let mut module = match threads {
            None => MergingModule::with_options(inner, options),
            Some(_) => MergingModule::in_parallel(inner, options),
        };
        define(&mut module);
        let flushed = catch_unwind(AssertUnwindSafe(|| module.flush()));
        let error = match flushed {
            Ok(flushed) => flushed.err().map(|error| format!("{error:?}")),
            Err(panic) => Some(payload(panic)),
        };
        let error = error
            .map(|text| text.split("\n\nStack backtrace").next().unwrap_or_default().to_owned());
        (module.inner().ids(), module.inner().code.clone(), error, module.failed())
    };
    match threads {
        None => work(),
        Some(threads) => pool(threads).install(work),
    }
}

#[test]
fn a_wrapped_module_sees_the_same_code_in_the_same_order() {
    let define = |module: &mut MergingModule<UnwindModule<ObjectModule>>| {
        define_all(module, &program(300));
    };
    let alone = seen(None, &define);
    assert!(alone.0.len() > 600, "{} functions are compiled", alone.0.len());
    assert_eq!(alone.2, None);
    for threads in THREADS {
        assert!(seen(Some(threads), &define) == alone, "{threads} threads");
    }
}

/// Not supported by any back end.
fn unsupported(module: &mut dyn Module, name: &str, insts: usize) {
    let signature = "(i64) -> i64, i64, i64 system_v";
    let function = declare(module, name, Linkage::Export, signature);
    let adds: String = (0..insts).map(|at| format!(" v{} = iadd v{at}, v{at}\n", at + 1)).collect();
    let text =
        format!("function %{name}{signature} {{\nblock0(v0: i64):\n{adds} return v0, v0, v0\n}}");
    let mut context = Context::for_function(modules::function(module, &text));
    module.define_function(function, &mut context).expect("is deferred");
}

/// Cranelift panics about a block without an end, if the verifier does not look.
fn without_end(module: &mut dyn Module, name: &str) {
    let function = declare(module, name, Linkage::Export, I64);
    let mut func = Function::with_name_signature(
        UserFuncName::user(0, function.as_u32()),
        modules::signature(I64),
    );
    let block = func.dfg.make_block();
    func.layout.append_block(block);
    func.dfg.append_block_param(block, ir::types::I64);
    module.define_function(function, &mut Context::for_function(func)).expect("is deferred");
}

#[test]
fn the_error_is_that_of_the_first_function_in_the_order_of_definition() {
    // The first one is small and comes late, the others are large, so that a thread takes them
    // earlier.
    let define = |module: &mut MergingModule<UnwindModule<ObjectModule>>| {
        define_all(module, &program(60));
        unsupported(module, "first", 1);
        unsupported(module, "second", 800);
        define_all(module, &program(60).replace('%', "%later_"));
        unsupported(module, "third", 900);
        without_end(module, "last");
    };
    let alone = seen(None, &define);
    let (defined, _, Some(error), Some(failed)) = &alone else {
        panic!("no error: {:?}", alone.2);
    };
    assert!(error.contains("Unsupported") || error.contains("Compilation"), "{error}");
    assert!(defined.iter().all(|id| id < failed));
    for threads in THREADS {
        assert!(seen(Some(threads), &define) == alone, "{threads} threads");
    }
}

#[test]
fn a_panic_of_cranelift_goes_on_where_the_function_would_be_compiled() {
    let define = |module: &mut MergingModule<UnwindModule<ObjectModule>>| {
        define_all(module, &program(60));
        without_end(module, "first");
        unsupported(module, "second", 800);
        define_all(module, &program(60).replace('%', "%later_"));
    };
    let alone = seen(None, &define);
    assert!(alone.2.is_some(), "Cranelift did not panic");
    assert!(alone.0.len() > 100);
    for threads in THREADS {
        assert!(seen(Some(threads), &define) == alone, "{threads} threads");
    }
}

#[test]
fn the_pool_in_which_the_flush_runs_is_used_and_no_other() {
    let (send, names) = std::sync::mpsc::channel();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let name = std::thread::current().name().map(str::to_owned);
        match name.filter(|name| name.starts_with("only-")) {
            // Nothing else on these threads panics.
            Some(name) => drop(send.send((name, cranelift_mergefunc_module::panic_is_passed_on()))),
            None => before(info),
        }
    }));
    let named = rayon::ThreadPoolBuilder::new().thread_name(|at| format!("only-{at}"));
    let pool = named.num_threads(3).build().unwrap();
    let failed = pool.install(|| {
        let isa = isa::of(isa::HOST, &[("enable_verifier", "false")]);
        let mut module = MergingModule::object_in_parallel(
            builder(&isa, Build::default()),
            false,
            insignificant(),
        );
        without_end(&mut module, "only");
        catch_unwind(AssertUnwindSafe(|| module.flush().map(drop))).is_err()
    });
    assert!(failed, "the panic goes on");
    let (name, passed_on) = names.recv().unwrap();
    assert!(name.starts_with("only-") && passed_on);
    // It can be configured only if nobody used it.
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().expect("nobody used it");
}

#[test]
fn functions_of_a_jit_do_the_same() {
    let mut expected = None;
    for threads in [None, Some(1), Some(2), Some(7)] {
        let work = || {
            let options = modules::for_size(BackEnd::Jit);
            let mut module = match threads {
                None => MergingModule::with_options(modules::jit(), options),
                Some(_) => MergingModule::in_parallel(modules::jit(), options),
            };
            define_all(&mut module, &program(300));
            module.finalize_definitions().unwrap();
            let results: Vec<i64> = (0..300)
                .flat_map(|at| [format!("calls{at}"), format!("mixes_call{at}")])
                .map(|name| call(&module, &name, 5))
                .collect();
            (results, *module.stats())
        };
        let done = match threads {
            None => work(),
            Some(threads) => pool(threads).install(work),
        };
        assert!(*expected.get_or_insert_with(|| done.clone()) == done, "{threads:?}");
    }
}

#[test]
fn a_jit_compiles_functions_that_catch_exceptions_itself() {
    let text = "function %f(i64) -> i64 system_v {
    sig0 = (i64) -> i64 tail
    fn0 = u0:1 sig0
block0(v0: i64):
    try_call fn0(v0), sig0, block1(ret0), [ tag0: block2(exn0) ]
block1(v1: i64):
    return v1
block2(v2: i64):
    return v2
}";
    let func = cranelift_reader::parse_functions(text).expect("valid").remove(0);
    let jit: JITModule = modules::jit();
    assert!(!jit.takes_compiled(&func));
    let text = "function %f(i64) -> i64 system_v {\nblock0(v0: i64):\n return v0\n}";
    let plain = cranelift_reader::parse_functions(text).expect("valid").remove(0);
    assert!(jit.takes_compiled(&plain));
}
