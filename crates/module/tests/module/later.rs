//! Functions that are defined after a flush are merged into emitted functions, but only into those
//! that state the same facts.

use cranelift_jit::JITModule;
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use cranelift_module::{Linkage, Module};
use testkit::modules::{
    I64, address, address_of_symbol, call, calls, counts_down, declare, declare_all, define,
    define_all, id, insignificant, jit, merging_jit, object, plus, reads, signature, table,
    through,
};

/// Defines programs one after the other, and finalises each before the next one is defined.
fn in_turn(programs: &[String]) -> MergingModule<JITModule> {
    let mut module = merging_jit();
    for program in programs {
        declare_all(&mut module, program);
        define_all(&mut module, program);
        module.finalize_definitions().unwrap();
    }
    module
}

#[test]
fn a_function_that_equals_an_emitted_one_is_never_compiled() {
    let module = in_turn(&[
        plus("local", "a", 5) + &plus("export", "x", 6),
        plus("local", "b", 5),
        plus("export", "c", 5) + &plus("local", "y", 6),
    ]);
    assert_eq!(module.stats().compiled, 2);
    assert_eq!(module.stats().flushes, 3);
    assert_eq!(module.body_of(id(&module, "c")), id(&module, "a"));
    for (name, result) in [("a", 49), ("b", 49), ("c", 49), ("x", 64), ("y", 64)] {
        assert_eq!(call(&module, name, 2), result, "{name}");
    }
}

#[test]
fn finalizing_after_every_definition_works() {
    // Languages do this that evaluate constants while they compile.
    let mut module = merging_jit();
    for round in 0..40 {
        let name = format!("f{round}");
        define_all(&mut module, &plus("export", &name, round % 4));
        module.finalize_definitions().unwrap();
        for earlier in 0..=round {
            let result = (earlier % 4 + 1) * (earlier % 4 + 1);
            assert_eq!(call(&module, &format!("f{earlier}"), 1), result);
        }
    }
    assert_eq!(module.stats().compiled, 4);
    assert_eq!(module.stats().flushes, 40);
}

#[test]
fn a_flush_without_definitions_does_nothing() {
    let mut module = merging_jit();
    module.finalize_definitions().unwrap();
    define_all(&mut module, &plus("export", "f", 1));
    for _ in 0..3 {
        module.finalize_definitions().unwrap();
        module.flush().unwrap();
    }
    assert_eq!(module.stats().flushes, 1);
    assert_eq!(call(&module, "f", 1), 4);
}

#[test]
fn recursive_functions_merge_into_emitted_ones() {
    let self_recursive = |name: &str| counts_down("local", name, name, 7);
    let pair = |even: &str, odd: &str| {
        counts_down("local", even, odd, 8) + &counts_down("local", odd, even, 9)
    };
    let module = in_turn(&[
        self_recursive("self1") + &pair("even1", "odd1"),
        self_recursive("self2") + &pair("even2", "odd2"),
        // In the other order, and one of them alone.
        pair("odd3", "even3") + &self_recursive("self3"),
    ]);
    assert_eq!(module.body_of(id(&module, "self2")), id(&module, "self1"));
    assert_eq!(module.body_of(id(&module, "even2")), id(&module, "even1"));
    assert_eq!(module.body_of(id(&module, "odd2")), id(&module, "odd1"));
    assert_eq!(module.stats().compiled, 3);
    for (name, result) in [("self2", 7), ("even2", 9), ("odd2", 8), ("self3", 7)] {
        assert_eq!(call(&module, name, 3), result, "{name}");
    }
}

#[test]
fn a_pair_that_differs_in_one_half_stays() {
    // Either half can be the one that is looked up first.
    for k in 10..18 {
        let module = in_turn(&[
            counts_down("local", "even1", "odd1", 8) + &counts_down("local", "odd1", "even1", 9),
            counts_down("local", "even2", "odd2", 8) + &counts_down("local", "odd2", "even2", k),
            counts_down("local", "even3", "odd3", k + 10)
                + &counts_down("local", "odd3", "even3", 9),
        ]);
        assert_eq!(module.stats().merged(), 0, "{k}");
        assert_eq!(call(&module, "even1", 1), 9);
        assert_eq!(call(&module, "even2", 1), k);
        assert_eq!(call(&module, "even3", 2), k + 10);
    }
}

#[test]
fn chains_merge_through_functions_that_were_merged_before() {
    let module = in_turn(&[
        plus("local", "a", 5),
        plus("local", "b", 5) + &calls("local", "calls_a", "a"),
        calls("local", "calls_b", "b"),
        calls("export", "top_a", "calls_a"),
        calls("export", "top_b", "calls_b"),
    ]);
    assert_eq!(module.stats().compiled, 3);
    assert_eq!(module.body_of(id(&module, "top_b")), id(&module, "top_a"));
    assert_eq!(call(&module, "top_b", 2), 51);
}

#[test]
fn functions_merge_through_emitted_read_only_tables() {
    let mut module = MergingModule::with_options(jit(), insignificant());
    for round in 0..3 {
        let [f, g, t, user] = ["f", "g", "t", "user"].map(|name| format!("{name}{round}"));
        define_all(&mut module, &(plus("local", &f, 5) + &plus("local", &g, 6)));
        table(&mut module, &t, &[&f, &g]);
        define_all(&mut module, &through("export", &user, &t));
        module.finalize_definitions().unwrap();
    }
    assert_eq!(module.stats().compiled, 3);
    assert_eq!(module.stats().merged_data_objects, 2);
    for round in 0..3 {
        let user = format!("user{round}");
        assert_eq!(module.body_of(id(&module, &user)), id(&module, "user0"));
        assert_eq!(call(&module, &user, 0), 25);
        assert_eq!(call(&module, &user, 1), 49);
    }
}

/// A load that is not known to be aligned, or to read constant memory, must not run the code of a
/// load that is.
#[test]
fn a_function_with_other_facts_is_not_merged_into_an_emitted_one() {
    for fact in ["aligned", "readonly", "notrap aligned", "notrap can_move"] {
        let less = if fact.contains("notrap") { "notrap" } else { "" };
        let strong = || reads("export", "strong", fact);
        let module = in_turn(&[strong(), reads("export", "weak", less)]);
        assert_eq!(module.stats().merged(), 0, "{fact}");
        let module = in_turn(&[reads("export", "weak", less), strong()]);
        assert_eq!(module.stats().merged(), 0, "{fact}");
        // Later functions merge into the body with their facts.
        let module = in_turn(&[
            strong(),
            reads("export", "weak", less),
            reads("export", "weaker", less) + &reads("export", "stronger", fact),
        ]);
        assert_eq!(module.stats().compiled, 2, "{fact}");
        let numbers = [40_i64, 2];
        for name in ["strong", "weak", "weaker", "stronger"] {
            assert_eq!(call(&module, name, numbers.as_ptr() as i64), 42, "{fact}: {name}");
        }
    }
}

#[test]
fn a_callee_that_is_defined_after_its_caller_was_emitted_keeps_its_symbol() {
    // Emitted code refers to the symbol, so it must be defined.
    for linkage in ["local", "hidden", "export"] {
        for options in [ModuleOptions::default(), insignificant()] {
            let mut module = MergingModule::with_options(
                jit(),
                ModuleOptions { back_end: BackEnd::Jit, ..options },
            );
            let first = plus("local", "a", 5) + &calls("export", "caller", "late");
            let late = plus(linkage, "late", 5);
            declare_all(&mut module, &late);
            define_all(&mut module, &first);
            module.flush().unwrap();
            define_all(&mut module, &late);
            module.finalize_definitions().unwrap();
            assert_eq!(call(&module, "caller", 2), 50, "{linkage}");
            assert_eq!(call(&module, "late", 2), 49, "{linkage}");
        }
    }
}

#[test]
fn an_address_that_was_taken_before_the_definition_is_the_address() {
    for options in [ModuleOptions::default(), insignificant()] {
        let mut module =
            MergingModule::with_options(jit(), ModuleOptions { back_end: BackEnd::Jit, ..options });
        let late = plus("local", "late", 5);
        declare_all(&mut module, &late);
        let first = plus("local", "a", 5)
            + &address("export", "address_of_late", "late")
            + &address("export", "address_of_a", "a");
        define_all(&mut module, &first);
        module.flush().unwrap();
        define_all(&mut module, &late);
        module.finalize_definitions().unwrap();
        let [of_late, of_a] = ["address_of_late", "address_of_a"].map(|f| call(&module, f, 0));
        assert_eq!(of_late, module.get_finalized_function(id(&module, "late")) as i64);
        assert_eq!(testkit::modules::call_at(of_late as *const u8, 2), 49);
        if options.function_addresses == cranelift_mergefunc::Addresses::Significant {
            assert_ne!(of_late, of_a);
        }
    }
}

#[test]
fn an_address_that_is_taken_after_the_function_was_merged_is_its_own() {
    // When the function was merged, its address was not taken, and it was eliminated.
    let merged = plus("local", "a", 5) + &plus("local", "b", 5) + &plus("local", "c", 5);
    let takers = address("export", "address_of_a", "a") + &address("export", "address_of_b", "b");
    let mut module = merging_jit();
    define_all(&mut module, &merged);
    module.finalize_definitions().unwrap();
    assert_eq!(module.stats().redirects, 2);
    define_all(&mut module, &takers);
    table(&mut module, "t", &["c"]);
    define_all(&mut module, &through("export", "user", "t"));
    module.finalize_definitions().unwrap();
    let [a, b] = ["address_of_a", "address_of_b"].map(|name| call(&module, name, 0));
    assert_ne!(a, b);
    for (name, address) in [("a", a), ("b", b)] {
        assert_eq!(address, module.get_finalized_function(id(&module, name)) as i64);
        assert_eq!(testkit::modules::call_at(address as *const u8, 2), 49);
    }
    let c = module.get_finalized_function(id(&module, "c")) as i64;
    assert!(c != a && c != b);
    assert_eq!(call(&module, "user", 0), 25);
    assert_eq!(module.stats().thunks, 2);
    assert_eq!(module.stats().redirects, 0);
}

/// Alignment of everything that a later flush emits: a body, a thunk to a function of an earlier
/// flush, and a late thunk of a function that was eliminated.
#[test]
fn code_of_later_flushes_has_the_requested_alignment() {
    let mut module = merging_jit();
    let aligned = |module: &mut MergingModule<_>, name: &str| {
        let function = id(module, name);
        module.attributes(function).alignment = 256;
    };
    // Code of another size precedes each of them.
    define_all(&mut module, &(plus("export", "before", 1) + &plus("export", "a", 5)));
    aligned(&mut module, "a");
    define_all(&mut module, &plus("local", "late", 5));
    aligned(&mut module, "late");
    module.flush().unwrap();
    define_all(&mut module, &calls("export", "between", "a"));
    module.flush().unwrap();
    define_all(&mut module, &(plus("export", "body", 6) + &plus("export", "thunk", 5)));
    aligned(&mut module, "body");
    aligned(&mut module, "thunk");
    define_all(&mut module, &address("export", "t", "late"));
    module.finalize_definitions().unwrap();
    assert_eq!(module.stats().thunks, 2);
    for name in ["late", "body", "thunk"] {
        let place = module.get_finalized_function(id(&module, name)) as usize;
        assert_eq!(place % 256, 0, "{name}");
    }
}

/// A global value can take the address as well.
#[test]
fn an_address_taken_by_a_later_global_value_is_its_own() {
    let mut module = merging_jit();
    define_all(&mut module, &(plus("local", "a", 5) + &plus("local", "b", 5)));
    define_all(&mut module, &calls("export", "calls_b", "b"));
    module.finalize_definitions().unwrap();
    assert_eq!(module.stats().redirects, 1);
    define_all(&mut module, &(address_of_symbol("of_a", "a") + &address_of_symbol("of_b", "b")));
    module.finalize_definitions().unwrap();
    let [a, b] = ["of_a", "of_b"].map(|name| call(&module, name, 0));
    assert_ne!(a, b);
    for (name, address) in [("a", a), ("b", b)] {
        assert_eq!(address, module.get_finalized_function(id(&module, name)) as i64);
        assert_eq!(testkit::modules::call_at(address as *const u8, 2), 49);
    }
    assert_eq!(module.stats().thunks, 1);
}

#[test]
fn data_that_is_defined_after_its_user_was_emitted_keeps_its_symbol() {
    let mut module = MergingModule::with_options(
        jit(),
        ModuleOptions { back_end: BackEnd::Jit, ..insignificant() },
    );
    define_all(&mut module, &plus("local", "f", 5));
    table(&mut module, "early", &["f"]);
    let late = module.declare_data("late", Linkage::Local, false, false).unwrap();
    define_all(&mut module, &through("export", "user", "late"));
    module.flush().unwrap();
    let description = testkit::modules::bytes(&mut module, &[0; 8], &[(0, "f", 0)]);
    module.define_data(late, &description).unwrap();
    module.finalize_definitions().unwrap();
    assert_eq!(call(&module, "user", 0), 25);
}

#[test]
fn a_recursive_pair_that_is_completed_later_works() {
    let program = counts_down("local", "even", "odd", 8) + &counts_down("local", "odd", "even", 9);
    let mut module = merging_jit();
    declare_all(&mut module, &program);
    // One function at a time: the second pair merges with nothing.
    define_all(&mut module, &counts_down("local", "even", "odd", 8));
    module.flush().unwrap();
    define_all(&mut module, &counts_down("local", "odd", "even", 9));
    module.flush().unwrap();
    let again =
        counts_down("local", "even2", "odd2", 8) + &counts_down("local", "odd2", "even2", 9);
    declare_all(&mut module, &again);
    define_all(&mut module, &again);
    module.finalize_definitions().unwrap();
    assert_eq!(call(&module, "even2", 2), 8);
    assert_eq!(call(&module, "odd2", 2), 9);
}

#[test]
fn without_a_merge_cache_flushes_do_not_merge_into_earlier_ones() {
    let options = ModuleOptions { remember: false, ..ModuleOptions::default() };
    let mut module = MergingModule::with_options(jit(), options);
    for program in [plus("export", "a", 1) + &plus("export", "b", 1), plus("export", "c", 1)] {
        define_all(&mut module, &program);
        module.finalize_definitions().unwrap();
    }
    assert_eq!(module.stats().compiled, 2);
    assert_eq!(module.remembered_bytes(), 0);
    assert_eq!(call(&module, "c", 1), 4);
}

#[test]
fn linkage_that_widens_before_the_flush_counts() {
    // A local function that is only called would lose its symbol; an exported one must keep it.
    let options = ModuleOptions { back_end: BackEnd::Object, ..ModuleOptions::default() };
    let mut module = MergingModule::with_options(testkit::modules::object(), options);
    define_all(&mut module, &(plus("local", "a", 1) + &plus("local", "b", 1)));
    declare(&mut module, "a", Linkage::Export, I64);
    declare(&mut module, "b", Linkage::Export, I64);
    let product = module.finish().unwrap();
    assert_ne!(testkit::modules::place(&product, "a"), testkit::modules::place(&product, "b"));

    // A preemptible function must not be the body of the other one.
    let mut module = MergingModule::with_options(object(), options);
    define_all(&mut module, &(plus("local", "a", 1) + &plus("local", "b", 1)));
    declare(&mut module, "a", Linkage::Preemptible, I64);
    module.flush().unwrap();
    assert_eq!(module.body_of(id(&module, "a")), id(&module, "b"));
}

#[test]
fn linkage_that_widens_after_the_flush_leads_to_the_body() {
    let mut module = in_turn(&[plus("local", "a", 1) + &plus("local", "b", 1)]);
    declare(&mut module, "b", Linkage::Export, I64);
    define_all(&mut module, &calls("export", "calls_b", "b"));
    module.finalize_definitions().unwrap();
    assert_eq!(call(&module, "b", 1), 4);
    assert_eq!(call(&module, "calls_b", 1), 5);
}

#[test]
fn an_object_is_planned_once() {
    let options = ModuleOptions { back_end: BackEnd::Object, ..ModuleOptions::default() };
    let mut module = MergingModule::with_options(object(), options);
    define_all(&mut module, &(plus("local", "a", 1) + &plus("hidden", "b", 1)));
    // Nothing to plan yet.
    MergingModule::with_options(object(), options).flush().unwrap();
    module.flush().unwrap();
    let declared = |module: &mut MergingModule<_>, name: &str, linkage: Linkage| {
        let declared = module.declare_function(name, linkage, &signature(I64));
        declared.map_err(|error| error.to_string())
    };
    for (name, linkage) in [("a", Linkage::Hidden), ("b", Linkage::Export)] {
        let error = declared(&mut module, name, linkage).expect_err("it would be seen by others");
        assert!(error.contains(&format!("{name} cannot become more visible")), "{error}");
    }
    for (name, linkage) in [("a", Linkage::Import), ("b", Linkage::Hidden), ("c", Linkage::Import)]
    {
        declared(&mut module, name, linkage).expect("nothing that the plan relied on");
    }
    declare(&mut module, "d", Linkage::Export, I64);
    let error = define(&mut module, &plus("export", "d", 1)).map(drop).expect_err("it is planned");
    assert!(error.to_string().contains("the object is planned already"), "{error}");
}

#[test]
fn a_larger_alignment_is_not_merged_into_emitted_code() {
    let mut module = MergingModule::with_options(
        jit(),
        ModuleOptions { back_end: BackEnd::Jit, ..insignificant() },
    );
    for (round, alignment) in [(0, 1), (1, 64), (2, 64), (3, 16)] {
        let [f, d] = ["f", "d"].map(|name| format!("{name}{round}"));
        define_all(&mut module, &plus("local", &f, 5));
        let f = id(&module, &f);
        module.attributes(f).alignment = alignment as u32;
        let data = module.declare_data(&d, Linkage::Local, false, false).unwrap();
        let mut description = testkit::modules::bytes(&mut module, &[1, 2, 3], &[]);
        description.set_align(alignment);
        module.define_data(data, &description).unwrap();
        module.finalize_definitions().unwrap();
        assert_eq!(module.get_finalized_function(f) as u64 % alignment, 0);
        assert_eq!(module.get_finalized_data(data).0 as u64 % alignment, 0);
    }
    // The second of each kind needs a body with that alignment, which serves the rest.
    assert_eq!((module.stats().merged(), module.stats().merged_data_objects), (2, 2));
}

#[test]
fn a_body_that_is_bytes_is_called_but_never_merged() {
    // `mov rax, rdi; ret` on x86-64; the code is run there only.
    let mut module = merging_jit();
    let code: &[u8] = &[0x48, 0x89, 0xf8, 0xc3];
    for name in ["raw1", "raw2"] {
        let raw = declare(&mut module, name, Linkage::Local, I64);
        module.define_function_bytes(raw, 1, code, &[]).unwrap();
    }
    define_all(
        &mut module,
        &(calls("export", "calls1", "raw1") + &calls("export", "calls2", "raw2")),
    );
    module.finalize_definitions().unwrap();
    assert_eq!(module.stats().merged(), 0);
    if cfg!(target_arch = "x86_64") {
        assert_eq!(call(&module, "calls1", 4), 5);
    }
}

#[test]
fn a_definition_that_was_refused_leaves_the_others() {
    let mut module = in_turn(&[plus("local", "a", 1)]);
    let again = define(&mut module, &plus("export", "a", 1));
    assert!(again.is_err());
    define_all(&mut module, &plus("local", "b", 1));
    module.finalize_definitions().unwrap();
    assert_eq!(module.stats().compiled, 1);
}
