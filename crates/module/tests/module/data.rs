//! Data objects: those whose identity is not observable merge, together with the functions that use
//! them, and all others stay where they are.

#![allow(unsafe_code, reason = "data of the JIT is read through pointers")]

use cranelift_jit::JITModule;
use cranelift_mergefunc::{Addresses, Disposition};
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use cranelift_module::{Linkage, Module, ModuleReloc, ModuleRelocTarget};
use testkit::modules::{
    I64, bytes, call, call_at, calls, data_id, define_all, id, insignificant, jit, object, place,
    plus, table, through,
};

fn quiet_jit() -> MergingModule<JITModule> {
    MergingModule::with_options(jit(), insignificant())
}

/// Two pairs of equal functions, a table of each pair, and a user of each table.
fn two_tables(module: &mut dyn Module) {
    let functions = plus("local", "f1", 5)
        + &plus("local", "f2", 5)
        + &plus("local", "g1", 6)
        + &plus("local", "g2", 6);
    define_all(module, &functions);
    table(module, "t1", &["f1", "g1"]);
    table(module, "t2", &["f2", "g2"]);
    define_all(module, &(through("export", "user1", "t1") + &through("export", "user2", "t2")));
}

#[test]
fn tables_are_equal_up_to_merged_functions_and_so_are_their_users() {
    let mut module = quiet_jit();
    two_tables(&mut module);
    module.finalize_definitions().unwrap();
    assert_eq!(module.stats().compiled, 3);
    assert_eq!(module.stats().merged_data_objects, 1);
    assert_eq!(module.stats().saved_data_bytes, 16);
    assert_eq!(module.body_of(id(&module, "user2")), id(&module, "user1"));
    let [t1, t2] = ["t1", "t2"].map(|name| module.get_finalized_data(data_id(&module, name)));
    assert_eq!(t1, t2);
    assert_eq!(call(&module, "user2", 1), 49);
}

#[test]
fn functions_that_use_equal_tables_merge_in_an_object_too() {
    let mut module = MergingModule::with_options(object(), insignificant());
    two_tables(&mut module);
    let product = module.finish().unwrap();
    for (one, other) in [("t1", "t2"), ("user1", "user2"), ("f1", "f2")] {
        assert_eq!(place(&product, one), place(&product, other), "{other}");
    }
    assert_ne!(place(&product, "f1"), place(&product, "g1"));
}

#[test]
fn tables_that_differ_in_one_entry_stay() {
    let mut module = quiet_jit();
    define_all(&mut module, &(plus("local", "f", 5) + &plus("local", "g", 6)));
    table(&mut module, "t1", &["f", "g"]);
    table(&mut module, "t2", &["g", "f"]);
    define_all(
        &mut module,
        &(through("export", "user1", "t1") + &through("export", "user2", "t2")),
    );
    module.finalize_definitions().unwrap();
    assert_eq!(module.stats().merged(), 0);
    assert_eq!(call(&module, "user1", 1), 49);
    assert_eq!(call(&module, "user2", 1), 36);
}

/// A way to declare data, and whether such data may merge.
type Kind = (&'static str, Linkage, bool, Addresses, bool);

#[test]
fn data_whose_identity_is_observable_never_merges() {
    use Addresses::{Insignificant, Significant};
    let kinds: [Kind; 7] = [
        ("constants", Linkage::Local, false, Insignificant, true),
        ("exported constants", Linkage::Export, false, Insignificant, true),
        ("hidden constants", Linkage::Hidden, false, Insignificant, true),
        ("preemptible constants", Linkage::Preemptible, false, Insignificant, false),
        ("variables", Linkage::Local, true, Insignificant, false),
        ("exported variables", Linkage::Export, true, Insignificant, false),
        ("constants with addresses", Linkage::Local, false, Significant, false),
    ];
    for (kind, linkage, writable, addresses, merges) in kinds {
        let mut module = quiet_jit();
        for name in ["d1", "d2"] {
            let data = module.declare_data(name, linkage, writable, false).unwrap();
            module.data_attributes(data).addresses = addresses;
            let description = bytes(&mut module, &[7, 8, 9], &[]);
            module.define_data(data, &description).unwrap();
        }
        module.finalize_definitions().unwrap();
        let [d1, d2] = ["d1", "d2"].map(|name| module.get_finalized_data(data_id(&module, name)));
        assert_eq!(d1 == d2, merges, "{kind}");
        assert_eq!(module.stats().merged_data_objects, usize::from(merges), "{kind}");
    }
}

#[test]
fn thread_local_data_never_merges() {
    // Constants do not merge either: each thread has a copy of them.
    for writable in [false, true] {
        let mut module = MergingModule::with_options(object(), insignificant());
        for name in ["d1", "d2"] {
            let data = module.declare_data(name, Linkage::Local, writable, true).unwrap();
            let description = bytes(&mut module, &[7, 8, 9], &[]);
            module.define_data(data, &description).unwrap();
        }
        let product = module.finish().unwrap();
        assert_ne!(place(&product, "d1"), place(&product, "d2"), "writable: {writable}");
    }
}

#[test]
fn attributes_of_data_start_from_the_options() {
    for options in [ModuleOptions::default(), insignificant()] {
        let mut module = MergingModule::with_options(object(), options);
        let data = module.declare_data("d", Linkage::Local, false, false).unwrap();
        assert_eq!(module.data_attributes(data).addresses, options.data_addresses);
    }
}

#[test]
fn an_unknown_module_keeps_all_data() {
    let mut inner = jit();
    let mut module = MergingModule::with_options(&mut inner as &mut dyn Module, insignificant());
    two_tables(&mut module);
    module.flush().unwrap();
    assert_eq!(module.stats().merged_data_objects, 0);
    drop(module);
    inner.finalize_definitions().unwrap();
    let user = inner.get_finalized_function(id(&inner, "user2"));
    assert_eq!(testkit::modules::call_at(user, 0), 25);
}

#[test]
fn sections_alignments_and_kept_objects_stay_apart() {
    let options = insignificant();
    let mut module = MergingModule::with_options(object(), options);
    let names = ["plain", "sectioned", "used", "aligned", "last"];
    for name in names {
        let data = module.declare_data(name, Linkage::Local, false, false).unwrap();
        let mut description = bytes(&mut module, &[7, 8, 9], &[]);
        match name {
            "sectioned" => description.set_custom_section(".mine"),
            "used" => description.set_used(true),
            "aligned" => description.set_align(64),
            _ => {}
        }
        module.define_data(data, &description).unwrap();
    }
    let product = module.finish().unwrap();
    let [plain, sectioned, used, aligned, last] = names.map(|name| place(&product, name));
    assert_eq!(sectioned.0, ".mine");
    assert_ne!(plain, used);
    // The representative has the largest alignment.
    assert_eq!(plain, aligned);
    assert_eq!(plain, last);
    assert_eq!(plain.1 % 64, 0);
}

#[test]
fn pointers_in_data_follow_the_functions_that_were_merged() {
    let mut module = quiet_jit();
    define_all(&mut module, &(plus("local", "f1", 5) + &plus("local", "f2", 5)));
    let data = module.declare_data("variable", Linkage::Export, true, false).unwrap();
    let description = bytes(&mut module, &[0; 16], &[(0, "f1", 0), (8, "f2", 0)]);
    module.define_data(data, &description).unwrap();
    module.finalize_definitions().unwrap();
    let [f1, f2] = ["f1", "f2"].map(|name| module.get_finalized_function(id(&module, name)));
    assert_eq!(f1, f2);
    let (data, size) = module.get_finalized_data(data);
    assert_eq!(pointers(data, size), [f1, f2]);
}

#[test]
fn functions_in_a_table_keep_addresses_of_their_own_if_those_matter() {
    let options = ModuleOptions { function_addresses: Addresses::Significant, ..insignificant() };
    let mut module = MergingModule::with_options(jit(), options);
    define_all(&mut module, &(plus("local", "f1", 5) + &plus("local", "f2", 5)));
    let data = module.declare_data("variable", Linkage::Export, true, false).unwrap();
    let description = bytes(&mut module, &[0; 16], &[(0, "f1", 0), (8, "f2", 0)]);
    module.define_data(data, &description).unwrap();
    module.finalize_definitions().unwrap();
    let (data, size) = module.get_finalized_data(data);
    let [f1, f2] = pointers(data, size)[..] else { panic!("two pointers") };
    assert_ne!(f1, f2);
    assert_eq!(module.stats().thunks, 1);
    assert_eq!([f1, f2].map(|code| testkit::modules::call_at(code, 2)), [49, 49]);
}

fn pointers(data: *const u8, size: usize) -> Vec<*const u8> {
    // SAFETY: the JIT gave out the object, which is aligned as pointers are.
    unsafe { core::slice::from_raw_parts(data.cast::<*const u8>(), size / 8) }.to_vec()
}

#[test]
fn pointers_into_data_that_was_merged_keep_their_addends() {
    let mut module = quiet_jit();
    for name in ["d1", "d2"] {
        let data = module.declare_data(name, Linkage::Local, false, false).unwrap();
        let description = bytes(&mut module, &[1, 2, 3, 4, 5, 6, 7, 8], &[]);
        module.define_data(data, &description).unwrap();
    }
    let data = module.declare_data("into", Linkage::Export, true, false).unwrap();
    let description = bytes(&mut module, &[0; 16], &[(0, "d1", 4), (8, "d2", 4)]);
    module.define_data(data, &description).unwrap();
    module.finalize_definitions().unwrap();
    let (at, size) = module.get_finalized_data(data);
    let (d1, _) = module.get_finalized_data(data_id(&module, "d1"));
    assert_eq!(pointers(at, size), [d1.wrapping_add(4); 2]);
}

#[test]
fn code_given_as_bytes_reaches_functions_that_were_merged() {
    if cfg!(not(target_arch = "x86_64")) {
        return;
    }
    // `jmp rel32` to a function that is merged away: it keeps its symbol, or the jump is
    // redirected.
    for late in [false, true] {
        let mut module = quiet_jit();
        define_all(&mut module, &plus("local", "f1", 5));
        testkit::modules::declare_all(&mut module, &plus("local", "f2", 5));
        if !late {
            define_all(&mut module, &plus("local", "f2", 5));
        }
        let raw = testkit::modules::declare(&mut module, "raw", Linkage::Export, I64);
        let reloc = ModuleReloc {
            offset: 1,
            kind: cranelift_codegen::binemit::Reloc::X86CallPCRel4,
            name: id(&module, "f2").into(),
            addend: -4,
        };
        module.define_function_bytes(raw, 1, &[0xe9, 0, 0, 0, 0], &[reloc]).unwrap();
        if late {
            module.flush().unwrap();
            define_all(&mut module, &plus("local", "f2", 5));
        }
        module.finalize_definitions().unwrap();
        assert_eq!(call(&module, "raw", 2), 49, "late: {late}");
        assert_eq!(call(&module, "f2", 2), 49, "late: {late}");
    }
}

#[test]
fn a_function_whose_inside_is_pointed_to_keeps_its_body() {
    // A pointer into the middle of a function is valid in this body only.
    let mut module = quiet_jit();
    define_all(&mut module, &(plus("local", "f1", 5) + &plus("local", "f2", 5)));
    let raw = testkit::modules::declare(&mut module, "raw", Linkage::Export, I64);
    let f2 = id(&module, "f2");
    let reloc = ModuleReloc {
        offset: 0,
        kind: cranelift_codegen::binemit::Reloc::Abs8,
        name: ModuleRelocTarget::FunctionOffset(f2, 1),
        addend: 0,
    };
    module.define_function_bytes(raw, 8, &[0; 8], &[reloc]).unwrap();
    module.finalize_definitions().unwrap();
    assert_eq!(module.body_of(f2), f2);
    assert_eq!(module.stats().merged(), 0);
}

#[test]
fn data_can_come_before_and_after_the_functions_it_points_to() {
    for data_first in [true, false] {
        let mut module = quiet_jit();
        let functions = plus("local", "f1", 5) + &plus("local", "f2", 5);
        testkit::modules::declare_all(&mut module, &functions);
        if data_first {
            table(&mut module, "t", &["f1", "f2"]);
        }
        define_all(&mut module, &functions);
        if !data_first {
            table(&mut module, "t", &["f1", "f2"]);
        }
        define_all(&mut module, &(through("export", "u", "t") + &calls("export", "c", "f2")));
        module.finalize_definitions().unwrap();
        assert_eq!([call(&module, "u", 0), call(&module, "u", 1)], [25, 36]);
        assert_eq!(call(&module, "c", 1), 37);
    }
}

#[test]
fn an_object_defines_data_that_was_merged() {
    // Debug builds of `ObjectModule` assert that everything declared was defined.
    let options = ModuleOptions { back_end: BackEnd::Object, ..insignificant() };
    let mut module = MergingModule::with_options(object(), options);
    two_tables(&mut module);
    let (inner, aliases) = module.into_inner().unwrap();
    assert_eq!(aliases.data_objects().len(), 1);
    let mut product = inner.finish();
    aliases.place(&mut product);
    assert_eq!(place(&product, "t1"), place(&product, "t2"));
    product.emit().unwrap();
}

/// Writable data never merges, but is deferred if it refers to a function or an object: it is
/// defined before the flush, with pointers to what the flush eliminates.
#[test]
fn data_that_refers_to_a_function_or_object_is_deferred() {
    let mut module = quiet_jit();
    define_all(&mut module, &(plus("local", "a", 5) + &plus("local", "b", 5)));
    table(&mut module, "t1", &["a"]);
    table(&mut module, "t2", &["b"]);
    let pointers = [("to_function", Some("b")), ("to_data", Some("t2")), ("to_nothing", None)];
    for (name, target) in pointers {
        let data = module.declare_data(name, Linkage::Local, true, false).unwrap();
        let target: Vec<(u32, &str, i64)> =
            target.map(|target| (0, target, 0)).into_iter().collect();
        let description = bytes(&mut module, &[0; 8], &target);
        module.define_data(data, &description).unwrap();
    }
    module.finalize_definitions().unwrap();
    let outcome = |name| module.data_outcome(data_id(&module, name));
    assert_eq!(outcome("t2").unwrap().0, Disposition::Redirect { to: data_id(&module, "t1") });
    assert_eq!(outcome("to_function").unwrap().0, Disposition::Keep);
    // Data that refers to nothing and cannot merge is not deferred.
    assert_eq!(outcome("to_nothing"), None);
    let data = |name| module.get_finalized_data(data_id(&module, name)).0;
    // SAFETY: the objects hold one pointer each, at their beginning.
    let read = |name| unsafe { data(name).cast::<*const u8>().read() };
    assert_eq!(read("to_data"), data("t1"));
    assert_eq!(call_at(read("to_function"), 2), 49);
}
