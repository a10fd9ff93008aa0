//! Functions that are merged away are never compiled, whatever the inner module is.

use crate::wrapper::UnwindModule;
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use cranelift_module::{FuncId, Linkage, Module};
use testkit::modules::{
    I64, call_at, calls, counts_down, define, define_all, host_isa, id, insignificant, jit,
    merging_jit, object, plus,
};

/// Three equal functions, one of which is local, and callers of all three.
fn program() -> String {
    plus("export", "a", 5)
        + &plus("local", "b", 5)
        + &plus("export", "c", 5)
        + &calls("export", "calls_a", "a")
        + &calls("export", "calls_b", "b")
        + &plus("export", "other", 6)
}

fn ids(module: &dyn Module, names: &[&str]) -> Vec<FuncId> {
    names.iter().map(|name| id(module, name)).collect()
}

#[test]
fn a_duplicate_is_not_compiled() {
    for back_end in [BackEnd::Any, BackEnd::Jit, BackEnd::Object] {
        let options = ModuleOptions { back_end, ..insignificant() };
        let mut module = MergingModule::with_options(UnwindModule::new(object()), options);
        define_all(&mut module, &program());
        assert_eq!(module.inner().compiled.len(), 0, "nothing is compiled before the flush");
        module.flush().unwrap();
        let compiled = module.inner().ids();
        assert_eq!(compiled, ids(&module, &["a", "calls_a", "other"]), "{back_end:?}");
        assert_eq!(module.stats().functions, 6);
        assert_eq!(module.stats().compiled, 3);
        assert_eq!(module.stats().merged(), 3);
        let (_, aliases) = module.into_inner().unwrap();
        assert_eq!(aliases.functions().is_empty(), back_end != BackEnd::Object);
    }
}

#[test]
fn an_unknown_module_gets_code_for_every_function() {
    // A `JITModule` in a box: every function must have an address of its own in it.
    let inner: Box<dyn Module> = Box::new(jit());
    let mut module = MergingModule::with_options(inner, insignificant());
    define_all(&mut module, &program());
    module.flush().unwrap();
    assert_eq!((module.stats().thunks, module.stats().aliases), (3, 0));
    assert_eq!(module.stats().redirects, 0);

    let mut inner = jit();
    let mut module = MergingModule::with_options(&mut inner as &mut dyn Module, insignificant());
    define_all(&mut module, &program());
    module.flush().unwrap();
    drop(module);
    inner.finalize_definitions().unwrap();
    for (name, result) in [("a", 49), ("b", 49), ("c", 49), ("calls_a", 50), ("calls_b", 50)] {
        let code = inner.get_finalized_function(id(&inner, name));
        assert_eq!(call_at(code, 2), result, "{name}");
    }
}

#[test]
fn an_inner_wrapper_sees_only_compiled_functions() {
    let inner: Box<dyn Module> = Box::new(UnwindModule::new(jit()));
    let mut module = MergingModule::new(inner);
    define_all(&mut module, &program());
    module.flush().unwrap();

    let mut module = MergingModule::new(UnwindModule::new(jit()));
    define_all(&mut module, &program());
    let (wrapper, _) = module.into_inner().unwrap();
    assert_eq!(wrapper.ids(), ids(&wrapper, &["a", "calls_a", "other"]));
    let mut jit = wrapper.inner;
    jit.finalize_definitions().unwrap();
    for (name, result) in [("b", 49), ("c", 49), ("calls_b", 50)] {
        let code = jit.get_finalized_function(id(&jit, name));
        assert_eq!(call_at(code, 2), result, "{name}");
    }
}

#[test]
fn the_context_is_left_as_it_is() {
    let mut module = merging_jit();
    define_all(&mut module, &plus("export", "a", 1));
    module.declare_function("b", Linkage::Export, &testkit::modules::signature(I64)).unwrap();
    let ctx = define(&mut module, &plus("export", "b", 1)).unwrap();
    assert!(ctx.compiled_code().is_none());
    assert_eq!(ctx.func.display().to_string().matches("iadd").count(), 1);
}

#[test]
fn the_context_can_be_used_for_the_next_function() {
    // As every front end does it: one context, cleared after each definition.
    let mut module = merging_jit();
    let mut ctx = module.make_context();
    for (name, k) in [("a", 1), ("b", 1), ("c", 2)] {
        let f = testkit::modules::declare(&mut module, name, Linkage::Export, I64);
        ctx.func = testkit::modules::function(&module, &plus("export", name, k));
        module.define_function(f, &mut ctx).unwrap();
        module.clear_context(&mut ctx);
    }
    module.finalize_definitions().unwrap();
    let called: Vec<i64> =
        ["a", "b", "c"].iter().map(|name| testkit::modules::call(&module, name, 1)).collect();
    assert_eq!(called, [4, 4, 9]);
    assert_eq!(module.stats().compiled, 2);
}

#[test]
fn unflushed_functions_are_not_in_the_inner_module() {
    let mut inner = jit();
    {
        let mut module = MergingModule::new(&mut inner as &mut dyn Module);
        define_all(&mut module, &plus("export", "a", 1));
    }
    // Dropped without a flush: it can still be defined, because it never was.
    define_all(&mut inner, &plus("export", "a", 1));
}

#[test]
fn names_and_settings_are_those_of_the_inner_module() {
    let mut module = merging_jit();
    define_all(&mut module, &program());
    assert_eq!(module.isa().triple(), host_isa(false).triple());
    assert_eq!(module.declarations().get_functions().count(), 6);
    assert_eq!(module.get_name("a"), module.inner().get_name("a"));
    assert_eq!(module.target_config().pointer_bytes(), 8);
    assert!(module.get_name("undeclared").is_none());
}

#[test]
fn recursion_and_chains_merge_in_one_flush() {
    let program = counts_down("local", "self1", "self1", 7)
        + &counts_down("local", "self2", "self2", 7)
        + &counts_down("local", "even1", "odd1", 8)
        + &counts_down("local", "odd1", "even1", 9)
        + &counts_down("local", "even2", "odd2", 8)
        + &counts_down("local", "odd2", "even2", 9)
        + &calls("local", "link1", "self1")
        + &calls("local", "link2", "self2")
        + &calls("export", "chain1", "link1")
        + &calls("export", "chain2", "link2");
    let mut module = merging_jit();
    // Definitions refer forward.
    testkit::modules::declare_all(&mut module, &program);
    define_all(&mut module, &program);
    module.finalize_definitions().unwrap();
    assert_eq!(module.stats().compiled, 5);
    for (one, other) in
        [("self1", "self2"), ("even1", "even2"), ("odd1", "odd2"), ("chain1", "chain2")]
    {
        assert_eq!(module.body_of(id(&module, other)), id(&module, one));
        for argument in [0, 1, 6, 7] {
            let results = [one, other].map(|name| testkit::modules::call(&module, name, argument));
            assert_eq!(results[0], results[1], "{other}({argument})");
        }
    }
    assert_eq!(testkit::modules::call(&module, "even2", 3), 9);
    assert_eq!(testkit::modules::call(&module, "even2", 4), 8);
    assert_eq!(testkit::modules::call(&module, "chain2", 4), 9);
}

#[test]
fn the_same_calls_give_the_same_object() {
    let object = || {
        let mut module = MergingModule::with_options(object(), insignificant());
        define_all(&mut module, &program());
        module.finish().unwrap().emit().unwrap()
    };
    assert_eq!(object(), object());
}
