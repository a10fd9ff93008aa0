//! Objects: every symbol is defined, with its linkage, at the place of its code.

use crate::wrapper::UnwindModule;
use cranelift_mergefunc::Similar;
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use cranelift_module::{Linkage, Module};
use cranelift_object::object::SymbolScope;
use cranelift_object::{ObjectBuilder, ObjectModule, ObjectProduct};
use testkit::modules::{calls, define_all, id, insignificant, mixes, object, place, plus};

const LINKAGES: [&str; 4] = ["export", "hidden", "local", "preemptible"];

fn all_linkages() -> String {
    let mut program = String::new();
    for linkage in LINKAGES {
        for copy in 1..=2 {
            let name = format!("{linkage}{copy}");
            program += &plus(linkage, &name, 5);
            program += &calls("export", &format!("calls_{name}"), &name);
        }
    }
    program
}

fn kind(product: &ObjectProduct, name: &str) -> (SymbolScope, bool) {
    let symbol = product.object.symbol_id(name.as_bytes()).unwrap();
    let symbol = product.object.symbol(symbol);
    (symbol.scope, symbol.weak)
}

#[test]
fn symbols_keep_their_linkage_and_are_all_defined() {
    let mut bare = object();
    define_all(&mut bare, &all_linkages());
    let bare = bare.finish();
    for options in [ModuleOptions::default(), insignificant()] {
        let mut module = MergingModule::with_options(object(), options);
        define_all(&mut module, &all_linkages());
        // `finish` asserts in debug builds that everything was defined.
        let product = module.finish().unwrap();
        for linkage in LINKAGES {
            for copy in 1..=2 {
                let name = format!("{linkage}{copy}");
                assert_eq!(kind(&product, &name), kind(&bare, &name), "{name}");
                assert_eq!(place(&product, &name).0, ".text", "{name}");
            }
        }
        product.emit().unwrap();
    }
}

#[test]
fn insignificant_functions_are_at_one_place_and_significant_ones_are_not() {
    for options in [ModuleOptions::default(), insignificant()] {
        let significant = options.function_addresses == cranelift_mergefunc::Addresses::Significant;
        let mut module = MergingModule::with_options(object(), options);
        define_all(&mut module, &all_linkages());
        let product = module.finish().unwrap();
        for (one, other) in
            [("export1", "export2"), ("hidden1", "export1"), ("preemptible1", "export1")]
        {
            let together = place(&product, one) == place(&product, other);
            assert_eq!(together, !significant, "{one} and {other}");
        }
        // The addresses of local functions that are only called are not observable.
        assert_eq!(place(&product, "local1"), place(&product, "local2"));
    }
}

#[test]
fn aliases_have_the_size_of_the_code_at_their_place() {
    let mut module = MergingModule::with_options(object(), insignificant());
    define_all(&mut module, &all_linkages());
    let product = module.finish().unwrap();
    let size = |name: &str| {
        let symbol = product.object.symbol_id(name.as_bytes()).unwrap();
        product.object.symbol(symbol).size
    };
    assert!(size("export1") > 5);
    for name in ["export2", "hidden1", "preemptible2", "local2"] {
        assert_eq!(size(name), size("export1"), "{name}");
    }
}

#[test]
fn the_map_of_an_object_has_offsets_into_its_section() {
    let mut module = MergingModule::with_options(object(), insignificant());
    define_all(&mut module, &all_linkages());
    let (product, map) = module.finish_with_map().unwrap();
    let (_, start) = place(&product, "export1");
    let mut names: Vec<&str> =
        map.originals_at(start).map(|original| original.name.as_str()).collect();
    names.sort_unstable();
    let mut all: Vec<String> =
        LINKAGES.iter().flat_map(|linkage| [1, 2].map(|i| format!("{linkage}{i}"))).collect();
    all.sort_unstable();
    assert_eq!(names, all);
    assert_eq!(map.at(start).unwrap().start, start);
}

fn per_function() -> ObjectModule {
    let names = cranelift_module::default_libcall_names();
    let mut builder = ObjectBuilder::new(testkit::modules::host_isa(true), "unit", names).unwrap();
    builder.per_function_section(true);
    ObjectModule::new(builder)
}

#[test]
fn with_a_section_for_each_function_an_alias_is_in_that_of_its_body() {
    let mut module = MergingModule::with_options(per_function(), insignificant());
    define_all(&mut module, &all_linkages());
    let (product, map) = module.finish_with_map().unwrap();
    let section = |name: &str| {
        let symbol = product.object.symbol_id(name.as_bytes()).unwrap();
        product.object.symbol(symbol).section.id().unwrap()
    };
    assert_eq!(section("export1"), section("hidden2"));
    assert_ne!(section("export1"), section("calls_export1"));
    // Offsets into different sections cannot be compared.
    assert!(map.at(0).is_none());
    product.emit().unwrap();
}

#[test]
fn aliases_are_placed_in_the_object_of_a_module_deeper_inside() {
    let options = ModuleOptions { back_end: BackEnd::Object, ..insignificant() };
    let mut module = MergingModule::with_options(UnwindModule::new(object()), options);
    define_all(&mut module, &all_linkages());
    define_all(&mut module, &(plus("export", "late", 5) + &plus("export", "other", 6)));
    let (wrapper, aliases) = module.into_inner().unwrap();
    assert!(aliases.functions().iter().any(|(alias, _)| *alias == id(&wrapper, "late")));
    let mut product = wrapper.inner.finish();
    aliases.place(&mut product);
    for name in ["export2", "hidden1", "local1", "late"] {
        assert_eq!(place(&product, name), place(&product, "export1"), "{name}");
    }
    assert_ne!(place(&product, "other"), place(&product, "export1"));
}

#[test]
fn without_merges_the_object_is_unchanged() {
    let program = plus("export", "a", 1) + &calls("export", "c", "a");
    let mut bare = object();
    define_all(&mut bare, &program);
    let mut module = MergingModule::new(object());
    define_all(&mut module, &program);
    assert_eq!(module.finish().unwrap().emit().unwrap(), bare.finish().emit().unwrap());
}

#[test]
fn a_function_that_is_declared_and_never_defined_is_still_an_import() {
    let mut module = MergingModule::with_options(object(), insignificant());
    let program = "import function %outside(i64) -> i64 system_v\n".to_owned()
        + &calls("export", "a", "outside")
        + &calls("export", "b", "outside");
    define_all(&mut module, &program);
    let product = module.finish().unwrap();
    assert_eq!(place(&product, "a"), place(&product, "b"));
    let outside = product.object.symbol_id(b"outside").unwrap();
    assert!(product.object.symbol(outside).is_undefined());
}

#[test]
fn bytes_saved_are_bytes_of_the_object() {
    let text_size = |product: &ObjectProduct| -> u64 {
        let symbol = product.object.symbol_id(b"export1").unwrap();
        let section = product.object.symbol(symbol).section.id().unwrap();
        product.object.section(section).data().len() as u64
    };
    let mut bare = object();
    define_all(&mut bare, &all_linkages());
    let before = text_size(&bare.finish());
    for options in [ModuleOptions::default(), insignificant()] {
        let mut module = MergingModule::with_options(
            object(),
            // With parameterised bodies, the bytes saved are an estimate.
            ModuleOptions { back_end: BackEnd::Object, similar: Similar::OFF, ..options },
        );
        define_all(&mut module, &all_linkages());
        module.flush().unwrap();
        let stats = *module.stats();
        let (inner, aliases) = module.into_inner().unwrap();
        let mut product = inner.finish();
        aliases.place(&mut product);
        assert_eq!(text_size(&product), stats.code_bytes);
        assert_eq!(before as i64 - stats.code_bytes as i64, stats.saved_code_bytes);
    }
}

#[test]
fn a_wrapped_object_module_is_a_module_for_generic_code() {
    fn front_end(module: &mut dyn Module) {
        let f = module
            .declare_function(
                "f",
                Linkage::Export,
                &testkit::modules::signature("(i64) -> i64 fast"),
            )
            .unwrap();
        assert_eq!(module.declarations().get_function_decl(f).linkage, Linkage::Export);
        define_all(module, &(plus("export", "a", 5) + &plus("export", "b", 5)));
    }
    let mut boxed: Box<dyn Module> = Box::new(MergingModule::new(object()));
    front_end(&mut *boxed);
    let mut nested = MergingModule::new(MergingModule::new(testkit::modules::jit()));
    front_end(&mut nested);
    nested.flush().unwrap();
    assert_eq!(nested.stats().merged(), 1);
}

/// Front ends call these methods of any module. They once did nothing, and the state of one
/// function was left in the next.
#[test]
fn contexts_and_signatures_are_cleared_as_the_wrapped_module_does() {
    let mut module = MergingModule::new(UnwindModule::new(object()));
    define_all(&mut module, &plus("export", "f", 5));
    let mut context = module.make_context();
    let fresh = context.func.signature.clone();
    context.func = testkit::modules::function(&module, &plus("export", "f", 5));
    module.clear_context(&mut context);
    assert_eq!(context.func.layout.blocks().count(), 0);
    assert_eq!(context.func.signature, fresh);
    let mut signature = testkit::modules::signature("(i64) -> i64 fast");
    module.clear_signature(&mut signature);
    assert_eq!(signature, module.make_signature());
    // The debug text of the module names it and its contents.
    let text = format!("{module:?}");
    for part in ["MergingModule", "UnwindModule", "pending: 1"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn aliases_exist_exactly_where_functions_became_aliases() {
    let options = ModuleOptions { back_end: BackEnd::Object, ..insignificant() };
    for (functions, objects) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let mut module = MergingModule::with_options(object(), options);
        for at in 0..=functions {
            define_all(&mut module, &plus("export", &format!("f{at}"), 5));
        }
        for at in 0..=objects {
            let data = module.declare_data(&format!("d{at}"), Linkage::Export, false, false);
            let description = testkit::modules::bytes(&mut module, &[1, 2, 3], &[]);
            module.define_data(data.unwrap(), &description).unwrap();
        }
        let (_, aliases) = module.into_inner().unwrap();
        // The body of each has a name of its own in addition to the alias.
        assert_eq!(aliases.functions().len(), 2 * functions);
        assert_eq!(aliases.data_objects().len(), 2 * objects);
        assert_eq!(aliases.is_empty(), functions + objects == 0);
    }
}

#[test]
fn counters_of_the_pass_are_those_of_the_last_flush() {
    let mut module = MergingModule::with_options(testkit::modules::jit(), insignificant());
    define_all(&mut module, &(plus("export", "a", 1) + &plus("export", "b", 2)));
    module.flush().unwrap();
    assert_eq!(module.pass_stats().add_functions, 2);
    define_all(&mut module, &plus("export", "c", 3));
    module.flush().unwrap();
    assert_eq!(module.pass_stats().add_functions, 1);
}

/// Code that merging adds counts as well: the private copy of preemptible functions, and functions
/// that are given as bytes.
#[test]
fn bytes_of_added_bodies_are_not_saved() {
    let program = mixes("preemptible", "a", 5) + &mixes("preemptible", "b", 5);
    let code = |module: &mut dyn Module| {
        define_all(module, &program);
        let raw = testkit::modules::declare(module, "raw", Linkage::Export, "() system_v");
        module.define_function_bytes(raw, 1, &[0xc3; 7], &[]).unwrap();
    };
    let options = ModuleOptions {
        back_end: BackEnd::Object,
        similar: Similar::OFF,
        ..ModuleOptions::default()
    };
    let counted = [options, ModuleOptions { merge_limit: Some(0), ..options }].map(|options| {
        let mut module = MergingModule::with_options(object(), options);
        code(&mut module);
        module.flush().unwrap();
        (*module.stats(), module.finish().unwrap().emit().unwrap().len())
    });
    let [merged, plain] = counted.map(|(stats, _)| stats);
    assert_eq!((merged.new_bodies, plain.new_bodies), (1, 0));
    assert!(merged.code_bytes > 7 && plain.code_bytes > 7);
    assert_eq!(plain.code_bytes as i64 - merged.code_bytes as i64, merged.saved_code_bytes);
    assert_eq!(plain.saved_code_bytes, 0);
}

/// If the options rule out that two symbols share an address, no symbol is an alias, whatever the
/// back end supports.
#[test]
fn without_the_option_no_symbol_is_an_alias() {
    for back_end in [BackEnd::Any, BackEnd::Object] {
        let options = ModuleOptions { back_end, aliases: false, ..insignificant() };
        let mut module = MergingModule::with_options(object(), options);
        define_all(&mut module, &(plus("export", "a", 5) + &plus("export", "b", 5)));
        module.flush().unwrap();
        assert_eq!((module.stats().aliases, module.stats().thunks), (0, 1), "{back_end:?}");
    }
}
