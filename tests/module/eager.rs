//! `Mode::Eager`: after `define_function` the module is in the state that `Module` guarantees, also if the function
//! is merged away. Embedders read the compiled code to write debug information.

use crate::wrapper::UnwindModule;
use cranelift_codegen::control::ControlPlane;
use cranelift_mergefunc::{Addresses, BackEnd, MergingModule, ModuleOptions};
use cranelift_module::{Linkage, Module, ModuleReloc};
use testkit::modules::{
    I64, address, call, calls, counts_down, declare, define, eager, eager_jit, id, jit, object,
    place, plus,
};

#[test]
fn compiled_code_and_function_are_there_after_every_definition() {
    for back_end in [BackEnd::Any, BackEnd::Jit] {
        for functions in Addresses::ALL {
            let options = ModuleOptions { back_end, functions, ..eager() };
            let mut module = MergingModule::with_options(jit(), options);
            for (name, linkage) in
                [("a", Linkage::Export), ("b", Linkage::Export), ("c", Linkage::Local)]
            {
                declare(&mut module, name, linkage, I64);
                let ctx = define(&mut module, &plus("export", name, 3)).unwrap();
                let code = ctx.compiled_code().expect("compiled code");
                assert!(code.code_info().total_size > 0, "{name}");
                // The function is what was compiled, not an empty one.
                assert_eq!(ctx.func.display().to_string().matches("iadd").count(), 1, "{name}");
                assert_eq!(ctx.func.name.get_user().unwrap().index, id(&module, name).as_u32());
            }
            assert_eq!(module.stats().merged(), 2, "{back_end:?} {functions:?}");
            module.finalize_definitions().unwrap();
            for name in ["a", "b", "c"] {
                assert_eq!(call(&module, name, 4), 49, "{name}");
            }
        }
    }
}

#[test]
fn the_compiled_code_of_a_merged_function_is_that_of_its_body() {
    let mut module = eager_jit();
    let mut codes = Vec::new();
    for name in ["a", "b"] {
        declare(&mut module, name, Linkage::Export, I64);
        let ctx = define(&mut module, &plus("export", name, 3)).unwrap();
        codes.push(ctx.compiled_code().unwrap().code_buffer().to_vec());
    }
    assert_eq!(module.body_of(id(&module, "b")), id(&module, "a"));
    assert_eq!(codes[0], codes[1]);
}

#[test]
fn disassembly_is_there_if_it_was_asked_for() {
    let mut module = eager_jit();
    for name in ["a", "b"] {
        let f = declare(&mut module, name, Linkage::Export, I64);
        let mut ctx = module.make_context();
        ctx.func = testkit::modules::function(&module, &plus("export", name, 3));
        ctx.set_disasm(true);
        let mut control_plane = ControlPlane::default();
        module.define_function_with_control_plane(f, &mut ctx, &mut control_plane).unwrap();
        assert!(ctx.compiled_code().unwrap().vcode.is_some(), "{name}");
    }
}

#[test]
fn a_function_is_merged_into_an_earlier_one_but_not_into_a_later_one() {
    let mut module = eager_jit();
    let program = plus("local", "a", 3)
        + &calls("export", "calls_a", "a")
        + &calls("export", "calls_b", "b")
        + &plus("local", "b", 3);
    testkit::modules::declare_all(&mut module, &program);
    testkit::modules::define_all(&mut module, &program);
    module.finalize_definitions().unwrap();
    // The call to `b` was emitted before the disposition of `b` was known, so `b` keeps its symbol.
    assert_eq!(module.body_of(id(&module, "calls_b")), id(&module, "calls_b"));
    assert_eq!(module.body_of(id(&module, "b")), id(&module, "a"));
    assert_eq!(call(&module, "calls_a", 1), 17);
    assert_eq!(call(&module, "calls_b", 1), 17);
}

#[test]
fn self_recursion_merges_and_mutual_recursion_stays() {
    let mut module = eager_jit();
    let program = counts_down("local", "self1", "self1", 7)
        + &counts_down("local", "self2", "self2", 7)
        + &counts_down("local", "even1", "odd1", 8)
        + &counts_down("local", "odd1", "even1", 9)
        + &counts_down("local", "even2", "odd2", 8)
        + &counts_down("local", "odd2", "even2", 9);
    testkit::modules::declare_all(&mut module, &program);
    testkit::modules::define_all(&mut module, &program);
    module.finalize_definitions().unwrap();
    assert_eq!(module.body_of(id(&module, "self2")), id(&module, "self1"));
    assert_eq!(module.stats().merged(), 1);
    for (name, result) in [("self2", 7), ("even2", 9), ("odd2", 8), ("even1", 9)] {
        assert_eq!(call(&module, name, 5), result, "{name}");
    }
}

#[test]
fn bytes_and_data_are_defined_at_once_too() {
    let mut module = MergingModule::with_options(UnwindModule::new(object()), eager());
    let f = declare(&mut module, "f", Linkage::Export, I64);
    module.define_function_bytes(f, 1, &[0xc3], &[] as &[ModuleReloc]).unwrap();
    testkit::modules::table(&mut module, "table", &["f"]);
    let (inner, _) = module.into_inner().unwrap();
    let product = inner.inner.finish();
    assert_eq!(place(&product, "f").0, ".text");
    assert!(place(&product, "table").0.starts_with(".data.rel.ro"));
}

#[test]
fn an_object_that_was_made_at_once_has_its_aliases() {
    let options = ModuleOptions { back_end: BackEnd::Object, ..eager() };
    let mut module = MergingModule::with_options(object(), options);
    let program = plus("export", "a", 3) + &plus("export", "b", 3) + &plus("export", "c", 4);
    testkit::modules::define_all(&mut module, &program);
    let product = module.finish().unwrap();
    assert_eq!(place(&product, "a"), place(&product, "b"));
    assert_ne!(place(&product, "a"), place(&product, "c"));
}

/// Emitted code refers to a function whose first definition fails to compile. After the second definition, the
/// function must still be found by its symbol, and have an address of its own.
#[test]
fn a_function_called_before_a_failed_definition_is_found_after_the_next_one() {
    // Cranelift cannot compile this division.
    let wrong = "local function %x(i64) -> i64 system_v {
block0(v0: i64):
    v1 = uextend.i128 v0
    v2 = udiv v1, v1
    v3 = ireduce.i64 v2
    return v3
}
";
    for taken in [false, true] {
        let mut module = eager_jit();
        declare(&mut module, "x", Linkage::Local, I64);
        declare(&mut module, "user", Linkage::Export, I64);
        declare(&mut module, "a", Linkage::Local, I64);
        define(&mut module, &plus("local", "a", 5)).unwrap();
        let user = match taken {
            false => calls("export", "user", "x"),
            true => address("export", "user", "x").replace("() -> i64", "(i64) -> i64"),
        };
        let user = if taken { user.replace("block0:", "block0(v1: i64):") } else { user };
        define(&mut module, &user).unwrap();
        assert!(define(&mut module, wrong).is_err());
        define(&mut module, &plus("local", "x", 5)).unwrap();
        module.finalize_definitions().unwrap();
        match taken {
            false => assert_eq!(call(&module, "user", 2), 50),
            true => {
                let x = call(&module, "user", 2);
                assert_eq!(testkit::modules::call_at(x as *const u8, 2), 49);
            }
        }
    }

    // The same in an object, where an alias is found by its symbol as well.
    let options =
        ModuleOptions { back_end: BackEnd::Object, functions: Addresses::Significant, ..eager() };
    let mut module = MergingModule::with_options(object(), options);
    for name in ["x", "a"] {
        declare(&mut module, name, Linkage::Local, I64);
    }
    define(&mut module, &plus("local", "a", 5)).unwrap();
    for (name, of) in [("of_x", "x"), ("of_a", "a")] {
        declare(&mut module, name, Linkage::Export, "() -> i64 system_v");
        define(&mut module, &address("export", name, of)).unwrap();
    }
    assert!(define(&mut module, wrong).is_err());
    define(&mut module, &plus("local", "x", 5)).unwrap();
    let product = module.finish().unwrap();
    assert_ne!(place(&product, "x"), place(&product, "a"));
}
