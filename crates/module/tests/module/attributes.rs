//! Attributes of single functions, and options that limit merging.

use cranelift_jit::JITModule;
use cranelift_mergefunc::Attributes;
use cranelift_mergefunc_module::{MergingModule, ModuleOptions};
use cranelift_module::{Linkage, Module};
use testkit::modules::{bytes, call, calls, define_all, id, insignificant, jit, merging_jit, plus};

fn three() -> String {
    plus("local", "a", 5)
        + &plus("local", "b", 5)
        + &plus("local", "c", 5)
        + &calls("export", "calls_a", "a")
        + &calls("export", "calls_b", "b")
}

/// The merges of `three` if one attribute of `b` is changed.
fn with(change: impl FnOnce(&mut Attributes)) -> MergingModule<JITModule> {
    let mut module = merging_jit();
    define_all(&mut module, &three());
    let b = id(&module, "b");
    change(module.attributes(b));
    module.finalize_definitions().unwrap();
    for (name, result) in [("a", 49), ("b", 49), ("c", 49), ("calls_a", 50), ("calls_b", 50)] {
        assert_eq!(call(&module, name, 2), result, "{name}");
    }
    module
}

fn bodies(module: &MergingModule<JITModule>) -> [&'static str; 5] {
    let names = ["a", "b", "c", "calls_a", "calls_b"];
    names.map(|name| {
        let body = module.body_of(id(module, name));
        names.into_iter().find(|&name| id(module, name) == body).expect("one of them")
    })
}

#[test]
fn without_attributes_all_of_them_merge() {
    assert_eq!(bodies(&with(|_| {})), ["a", "a", "a", "calls_a", "calls_a"]);
}

#[test]
fn a_pinned_function_keeps_its_body_and_counts_as_equal() {
    let module = with(|b| b.pinned = true);
    assert_eq!(bodies(&module), ["a", "b", "a", "calls_a", "calls_a"]);
}

#[test]
fn a_function_that_is_not_to_be_merged_equals_itself_only() {
    let module = with(|b| b.no_merge = true);
    assert_eq!(bodies(&module), ["a", "b", "a", "calls_a", "calls_b"]);
}

#[test]
fn functions_with_different_keys_stay_apart() {
    let module = with(|b| b.key = 1);
    assert_eq!(bodies(&module), ["a", "b", "a", "calls_a", "calls_b"]);
}

#[test]
fn a_function_whose_address_the_host_compares_keeps_it() {
    let module = with(|b| b.address_taken = true);
    // The function whose address is taken is the representative.
    assert_eq!(bodies(&module), ["b", "b", "b", "calls_a", "calls_a"]);
    let module = {
        let mut module = merging_jit();
        define_all(&mut module, &three());
        for name in ["a", "b", "c"] {
            let f = id(&module, name);
            module.attributes(f).address_taken = true;
        }
        module.finalize_definitions().unwrap();
        module
    };
    let at = |name: &str| module.get_finalized_function(id(&module, name));
    assert!(at("a") != at("b") && at("b") != at("c") && at("a") != at("c"));
    // Two of the three and, because it is exported, one of their callers.
    assert_eq!(module.stats().thunks, 3);
}

#[test]
fn externally_called_function_keeps_code_in_a_jit() {
    // A JIT resolves a symbol only where there is code, so an alias would not be found.
    for options in [ModuleOptions::default(), insignificant()] {
        let mut module = MergingModule::with_options(jit(), options);
        define_all(&mut module, &three());
        for name in ["a", "b", "c"] {
            let f = id(&module, name);
            module.attributes(f).externally_called = true;
        }
        module.finalize_definitions().unwrap();
        for name in ["a", "b", "c"] {
            // The inner JIT resolves the symbol, as code does that does not know the wrapper.
            let code = module.inner().get_finalized_function(id(&module, name));
            assert_eq!(testkit::modules::call_at(code, 2), 49, "{name}");
        }
    }
}

#[test]
fn thunks_and_bodies_have_the_requested_alignment() {
    for name in ["a", "b", "c"] {
        let mut module = merging_jit();
        define_all(&mut module, &three());
        for taken in ["a", "b", "c"] {
            let f = id(&module, taken);
            module.attributes(f).address_taken = true;
        }
        let f = id(&module, name);
        module.attributes(f).alignment = 256;
        module.finalize_definitions().unwrap();
        assert_eq!(module.stats().thunks, 3);
        assert_eq!(module.get_finalized_function(f) as usize % 256, 0, "{name}");
        assert_eq!(call(&module, name, 2), 49);
    }
}

#[test]
fn attributes_can_be_set_before_the_definition_and_start_from_the_options() {
    for options in [ModuleOptions::default(), insignificant()] {
        let mut module = MergingModule::with_options(jit(), options);
        testkit::modules::declare_all(&mut module, &three());
        let b = id(&module, "b");
        assert_eq!(module.attributes(b).addresses, options.function_addresses);
        module.attributes(b).pinned = true;
        define_all(&mut module, &three());
        module.finalize_definitions().unwrap();
        assert_eq!(module.body_of(b), b);
    }
}

#[test]
fn attributes_hold_for_functions_that_come_later() {
    let mut module = merging_jit();
    define_all(&mut module, &plus("local", "a", 5));
    module.finalize_definitions().unwrap();
    for (name, change) in [
        ("pinned", (|f| f.pinned = true) as fn(&mut Attributes)),
        ("no_merge", |f| f.no_merge = true),
        ("key", |f| f.key = 1),
    ] {
        define_all(&mut module, &plus("local", name, 5));
        let f = id(&module, name);
        change(module.attributes(f));
        module.finalize_definitions().unwrap();
        assert_eq!(module.body_of(f), f, "{name}");
    }
    // Later functions merge only into `a`, which has none of these attributes.
    define_all(&mut module, &plus("local", "last", 5));
    module.finalize_definitions().unwrap();
    assert_eq!(module.body_of(id(&module, "last")), id(&module, "a"));
    assert_eq!(module.stats().compiled, 4);
}

#[test]
fn the_limit_counts_merges_over_all_flushes() {
    for limit in 0..6 {
        let options = ModuleOptions { merge_limit: Some(limit), ..insignificant() };
        let mut module = MergingModule::with_options(jit(), options);
        for round in 0..3 {
            for name in ["f", "g"] {
                define_all(&mut module, &plus("export", &format!("{name}{round}"), 5));
            }
            module.finalize_definitions().unwrap();
        }
        assert_eq!(module.stats().merged(), limit.min(5) as usize);
        for round in 0..3 {
            for name in ["f", "g"] {
                assert_eq!(call(&module, &format!("{name}{round}"), 2), 49);
            }
        }
    }
}

/// Merges of data objects once did not count if functions merged as well, in the same flush or in
/// an earlier one.
#[test]
fn the_limit_counts_functions_and_data() {
    for limit in 0..6 {
        let options = ModuleOptions { merge_limit: Some(limit), ..insignificant() };
        let mut module = MergingModule::with_options(jit(), options);
        let mut merged = 0;
        for round in 0..2 {
            for name in ["d", "e"] {
                let name = format!("{name}{round}");
                let data = module.declare_data(&name, Linkage::Local, false, false).unwrap();
                let description = bytes(&mut module, &[7, 8, 9], &[]);
                module.define_data(data, &description).unwrap();
            }
            for name in ["f", "g"] {
                define_all(&mut module, &plus("export", &format!("{name}{round}"), 5));
            }
            module.finalize_definitions().unwrap();
            merged = module.stats().merged() + module.stats().merged_data_objects;
            // Two in the first flush, and all four of the second.
            assert_eq!(merged, limit.min(2 + 4 * round) as usize, "{limit}");
        }
        assert_eq!(merged, limit.min(6) as usize);
    }
}

#[test]
fn a_limit_inside_a_class_that_shares_a_body_works() {
    for limit in 0..8 {
        let options = ModuleOptions { merge_limit: Some(limit), ..ModuleOptions::default() };
        let mut module = MergingModule::with_options(jit(), options);
        for round in 0..2 {
            let mut program = String::new();
            for name in ["x", "y", "z"] {
                program += &plus("preemptible", &format!("{name}{round}"), round);
            }
            define_all(&mut module, &program);
            module.finalize_definitions().unwrap();
        }
        for round in 0..2 {
            for name in ["x", "y", "z"] {
                let result = (2 + round) * (2 + round);
                assert_eq!(call(&module, &format!("{name}{round}"), 2), result);
            }
        }
    }
}

/// `takes_thunk` and `takes_aligned` take the addresses of equal functions and merge; the address
/// that the body takes, for `aligned` as well, is that of the thunk.
#[test]
fn a_thunk_has_the_alignment_of_the_functions_that_it_is_used_for() {
    let takes = |name: &str, of: &str| {
        format!(
            "export function %{name}(i64) -> i64 system_v {{
    fn0 = %{of}(i64) -> i64 system_v
block0(v0: i64):
    v1 = func_addr.i64 fn0
    v2 = iadd v1, v0
    return v2
}}
"
        )
    };
    let options = ModuleOptions { aliases: false, ..insignificant() };
    let mut module = MergingModule::with_options(jit(), options);
    let program = plus("export", "first", 5)
        + &plus("export", "thunk", 5)
        + &plus("local", "aligned", 5)
        + &takes("takes_thunk", "thunk")
        + &takes("takes_aligned", "aligned");
    define_all(&mut module, &program);
    let aligned = id(&module, "aligned");
    module.attributes(aligned).alignment = 4096;
    module.attributes(aligned).pinned = true;
    module.finalize_definitions().unwrap();
    for name in ["takes_thunk", "takes_aligned"] {
        let body = module.body_of(id(&module, name));
        assert_eq!(body, id(&module, "takes_thunk"), "{name}");
        assert_eq!(call(&module, name, 0) % 4096, 0, "{name}");
    }
}
