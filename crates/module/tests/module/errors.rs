//! The wrapped module returns the errors of a bare module, at the same calls.
//!
//! Every invalid call is made on a bare module and on a wrapped one. Callers match on these errors,
//! and an error at the flush would name the wrong definition.

use cranelift_codegen::Context;
use cranelift_codegen::ir::{Function, UserFuncName};
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use cranelift_module::{DataDescription, Linkage, Module, ModuleError, ModuleResult};
use testkit::modules::{
    I64, bytes, call, declare, define, define_all, id, insignificant, jit, merging_jit, object,
    plus, signature, table,
};

/// A call that `Module` refuses, with its name.
type InvalidCall = (&'static str, fn(&mut dyn Module) -> ModuleResult<()>);

fn define_once_more(module: &mut dyn Module) -> ModuleResult<()> {
    define_all(module, &plus("export", "f", 1));
    define(module, &plus("export", "f", 2)).map(drop)
}

const INVALID_CALLS: [InvalidCall; 12] = [
    ("an import is defined", |module| {
        declare(module, "f", Linkage::Import, I64);
        define(module, &plus("import", "f", 1)).map(drop)
    }),
    ("an import is defined by bytes", |module| {
        let f = declare(module, "f", Linkage::Import, I64);
        module.define_function_bytes(f, 1, &[0xc3], &[])
    }),
    ("a function is defined twice", define_once_more),
    ("a function is defined twice, by bytes", |module| {
        define_all(module, &plus("local", "f", 1));
        let f = id(module, "f");
        module.define_function_bytes(f, 1, &[0xc3], &[])
    }),
    ("bytes are defined twice", |module| {
        let f = declare(module, "f", Linkage::Export, I64);
        module.define_function_bytes(f, 1, &[0xc3], &[])?;
        define(module, &plus("export", "f", 1)).map(drop)
    }),
    ("another signature", |module| {
        declare(module, "f", Linkage::Export, I64);
        let other = signature("(i32) -> i64 system_v");
        module.declare_function("f", Linkage::Export, &other).map(drop)
    }),
    ("a function is declared as data", |module| {
        declare(module, "f", Linkage::Export, I64);
        module.declare_data("f", Linkage::Export, false, false).map(drop)
    }),
    ("the verifier refuses it", |module| {
        declare(module, "f", Linkage::Export, I64);
        let text = "function %f(i64) -> i64 system_v {\nblock0(v0: i64):\n return v0, v0\n}";
        define(module, text).map(drop)
    }),
    ("a body without blocks", |module| {
        let f = declare(module, "f", Linkage::Export, I64);
        let func = Function::with_name_signature(UserFuncName::user(0, 0), signature(I64));
        // No terminator, which is another kind of verifier error.
        let mut ctx = Context::for_function(func);
        let block = ctx.func.dfg.make_block();
        ctx.func.layout.append_block(block);
        module.define_function(f, &mut ctx)
    }),
    ("imported data is defined", |module| {
        let data = module.declare_data("d", Linkage::Import, false, false)?;
        let description = bytes(module, &[1, 2], &[]);
        module.define_data(data, &description)
    }),
    ("data is defined twice", |module| {
        let data = module.declare_data("d", Linkage::Local, false, false)?;
        let description = bytes(module, &[1, 2], &[]);
        module.define_data(data, &description)?;
        module.define_data(data, &description)
    }),
    ("a table is defined twice", |module| {
        declare(module, "f", Linkage::Import, I64);
        let data = module.declare_data("d", Linkage::Export, true, false)?;
        let description = bytes(module, &[0; 8], &[(0, "f", 0)]);
        module.define_data(data, &description)?;
        module.define_data(data, &description)
    }),
];

/// Only `ObjectModule` refuses these.
const OBJECT_INVALID_CALLS: [InvalidCall; 3] = [
    ("a zero byte in the name of a function", |module| {
        module.declare_function("a\0b", Linkage::Export, &signature(I64)).map(drop)
    }),
    ("a zero byte in the name of a data object", |module| {
        module.declare_data("a\0b", Linkage::Export, false, false).map(drop)
    }),
    ("thread-local data in a section of its own", |module| {
        let data = module.declare_data("d", Linkage::Export, true, true)?;
        let mut description = bytes(module, &[1], &[]);
        description.set_custom_section(".mine");
        module.define_data(data, &description)
    }),
];

fn said(module: &mut dyn Module, (name, invalid): &InvalidCall) -> String {
    debug_text(&invalid(module).expect_err(name))
}

/// The debug text, without the backtrace that some errors have where backtraces are on.
fn debug_text(error: &ModuleError) -> String {
    let text = format!("{error:?}");
    text.split("\n\nStack backtrace").next().unwrap_or_default().to_owned()
}

fn wrappings(back_end: BackEnd) -> Vec<(&'static str, ModuleOptions)> {
    let mut wrappings =
        vec![("deferred", ModuleOptions::default()), ("deferred, insignificant", insignificant())];
    for (_, options) in &mut wrappings {
        options.back_end = back_end;
    }
    wrappings
}

#[test]
fn a_jit_says_the_same_when_it_is_wrapped() {
    for invalid in &INVALID_CALLS {
        let bare = said(&mut jit(), invalid);
        for (kind, options) in wrappings(BackEnd::Jit) {
            let mut wrapped = MergingModule::with_options(jit(), options);
            assert_eq!(said(&mut wrapped, invalid), bare, "{}: {kind}", invalid.0);
        }
    }
}

#[test]
fn an_object_says_the_same_when_it_is_wrapped() {
    for invalid in INVALID_CALLS.iter().chain(&OBJECT_INVALID_CALLS) {
        let bare = said(&mut object(), invalid);
        for (kind, options) in wrappings(BackEnd::Object) {
            let mut wrapped = MergingModule::with_options(object(), options);
            assert_eq!(said(&mut wrapped, invalid), bare, "{}: {kind}", invalid.0);
        }
    }
}

#[test]
fn a_wrapper_of_a_borrowed_module_says_the_same() {
    for invalid in &INVALID_CALLS {
        let bare = said(&mut jit(), invalid);
        let mut inner = jit();
        let inner: &mut dyn Module = &mut inner;
        let mut wrapped = MergingModule::new(inner);
        assert_eq!(said(&mut wrapped, invalid), bare, "{}", invalid.0);
        let inner: Box<dyn Module> = Box::new(jit());
        let mut wrapped = MergingModule::new(inner);
        assert_eq!(said(&mut wrapped, invalid), bare, "{}", invalid.0);
    }
}

#[test]
fn after_an_error_at_define_time_the_module_goes_on() {
    for invalid in &INVALID_CALLS {
        let mut module = merging_jit();
        said(&mut module, invalid);
        define_all(&mut module, &(plus("export", "a", 7) + &plus("export", "b", 7)));
        assert!(module.flush().is_ok(), "{}", invalid.0);
        assert!(module.body_of(id(&module, "b")) == id(&module, "a"), "{}", invalid.0);
    }
}

#[test]
fn a_function_that_was_refused_can_be_defined_again() {
    let mut module = MergingModule::new(jit());
    declare(&mut module, "f", Linkage::Export, I64);
    let wrong = "function %f(i64) -> i64 system_v {\nblock0(v0: i64):\n return v0, v0\n}";
    assert!(define(&mut module, wrong).is_err());
    define_all(&mut module, &plus("export", "f", 1));
    module.finalize_definitions().unwrap();
    assert_eq!(call(&module, "f", 2), 9);
}

/// Passes the verifier, but no back end can compile it.
const UNSUPPORTED: &str = "function %wrong(i64) -> i64, i64, i64 system_v {
block0(v0: i64):
    return v0, v0, v0
}";
const UNSUPPORTED_SIGNATURE: &str = "(i64) -> i64, i64, i64 system_v";

/// The error of a bare module, which returns it at once.
fn unsupported() -> String {
    let mut bare = jit();
    declare(&mut bare, "wrong", Linkage::Export, UNSUPPORTED_SIGNATURE);
    debug_text(&define(&mut bare, UNSUPPORTED).err().expect("an error"))
}

#[test]
fn the_flush_reports_errors_of_the_compiler_with_the_function() {
    let mut module = merging_jit();
    define_all(&mut module, &plus("export", "right", 1));
    declare(&mut module, "wrong", Linkage::Export, UNSUPPORTED_SIGNATURE);
    define(&mut module, UNSUPPORTED).unwrap();
    let error = module.flush().expect_err("an error");
    assert_eq!(debug_text(&error), unsupported());
    assert_eq!(module.failed(), Some(id(&module, "wrong")));

    // The body of a merged function may be missing, so the module is unusable from here on.
    let again = module.flush().expect_err("an error").to_string();
    assert!(again.contains("wrong"), "{again}");
    declare(&mut module, "later", Linkage::Export, I64);
    let later = define(&mut module, &plus("export", "later", 1)).err().expect("an error");
    assert!(later.to_string().contains("wrong"), "{later}");
}

#[test]
fn a_data_object_that_is_refused_by_the_flush_ends_it() {
    // The object refers to a function, so its definition is deferred. Everything that the flush
    // would have defined after it is lost.
    let mut module = MergingModule::new(object());
    define_all(&mut module, &plus("export", "f", 1));
    let data = module.declare_data("d", Linkage::Export, true, true).unwrap();
    let mut description = bytes(&mut module, &[0; 8], &[(0, "f", 0)]);
    description.set_custom_section(".mine");
    let bare = debug_text(&object_error(&description));
    module.define_data(data, &description).unwrap();
    assert_eq!(debug_text(&module.flush().expect_err("an error")), bare);
    assert!(module.flush().expect_err("an error").to_string().contains("a flush failed before"));
    assert!(module.finish().is_err());
}

/// The error of a bare object module for a thread-local data object in a section of its own.
fn object_error(description: &DataDescription) -> ModuleError {
    let mut bare = object();
    define_all(&mut bare, &plus("export", "f", 1));
    let data = bare.declare_data("d", Linkage::Export, true, true).unwrap();
    bare.define_data(data, description).expect_err("an error")
}

/// Emitted code calls `merged` by the symbol of `kept`.
#[test]
fn a_representative_cannot_become_preemptible() {
    let mut module = MergingModule::with_options(
        jit(),
        ModuleOptions { back_end: BackEnd::Jit, ..insignificant() },
    );
    define_all(&mut module, &(plus("local", "kept", 1) + &plus("hidden", "merged", 1)));
    table(&mut module, "table", &["kept"]);
    table(&mut module, "same", &["merged"]);
    let merged = declare(&mut module, "merged", Linkage::Export, I64);
    module.flush().unwrap();
    assert_eq!(module.body_of(id(&module, "kept")), module.body_of(merged));
    let sig = signature(I64);
    for (name, linkage, refused) in [
        ("kept", Linkage::Preemptible, true),
        ("kept", Linkage::Hidden, false),
        // It is exported already and stays so.
        ("merged", Linkage::Preemptible, false),
        ("later", Linkage::Preemptible, false),
    ] {
        let declared = module.declare_function(name, linkage, &sig);
        assert_eq!(declared.is_err(), refused, "{name} {linkage:?}");
        if let Err(error) = declared {
            let text = format!("{error:?}");
            assert!(text.contains(&format!("{name} cannot become preemptible")), "{text}");
        }
    }
    for (name, refused) in [("table", true), ("same", true), ("another", false)] {
        let declared = module.declare_data(name, Linkage::Preemptible, false, false);
        assert_eq!(declared.is_err(), refused, "{name}");
    }
}
