//! Functions that differ only in constants share one parameterised body, which receives the
//! constants as extra arguments from callers and thunks of this flush and of later ones.

use cranelift_mergefunc::Disposition;
use cranelift_mergefunc_module::{BackEnd, MergingModule};
use cranelift_module::Linkage;
use testkit::modules::*;

/// The results of these functions for 7, each flushed on its own and unchanged.
fn expected(names: &[(&str, i64)]) -> Vec<i64> {
    let mut module = merging_jit();
    for (name, k) in names {
        define_all(&mut module, &mixes("local", name, *k));
    }
    module.finalize_definitions().unwrap();
    names.iter().map(|(name, _)| call(&module, name, 7)).collect()
}

#[test]
fn similar_functions_of_a_jit_can_be_called_and_are_called_later() {
    let names = [("a", 1), ("b", -2), ("c", 300)];
    let expected = expected(&names);
    let mut module = MergingModule::with_options(jit(), for_size(BackEnd::Jit));
    for (name, k) in names {
        define_all(&mut module, &mixes("local", name, k));
    }
    module.finalize_definitions().unwrap();
    // One body; the address of each function can be taken.
    assert_eq!(module.stats().new_bodies, 1);
    assert_eq!(module.stats().compiled, 1);
    for ((name, _), expected) in names.iter().zip(&expected) {
        assert_eq!(call(&module, name, 7), *expected, "{name}");
        let (disposition, _) = module.outcome(id(&module, name)).unwrap();
        assert!(matches!(disposition, Disposition::Thunk { .. }), "{disposition:?}");
        assert_eq!(module.body_of(id(&module, name)), module.body_of(id(&module, "a")));
    }
    // Later functions call them.
    let later = calls("export", "d", "b") + &calls("export", "e", "c");
    declare_all(&mut module, &later);
    define_all(&mut module, &later);
    module.finalize_definitions().unwrap();
    assert_eq!(call(&module, "d", 7), expected[1] + 1);
    assert_eq!(call(&module, "e", 7), expected[2] + 1);
    let map = module.merge_map();
    assert_eq!(map.by_name("b").unwrap().arguments.len(), 1);
}

/// A call with a mismatched signature goes to a thunk and passes no extra argument.
#[test]
fn calls_with_a_mismatched_signature_go_to_a_thunk() {
    let options = for_size(BackEnd::Object);
    let mut module = MergingModule::with_options(object(), options);
    let first = mixes("local", "a", 1) + &mixes("local", "b", 2);
    define_all(&mut module, &first);
    let calls = |name: &str, callee: &str, own: &str, passed: &str| {
        calls("export", name, callee)
            .replace(&format!("%{callee}(i64)"), &format!("%{callee}({own})"))
            .replace("fn0(v0)", &format!("fn0({passed})"))
    };
    define_all(&mut module, &calls("right", "a", "i64", "v0"));
    define_all(&mut module, &calls("wrong", "b", "i64, i64", "v0, v0"));
    module.flush().unwrap();
    let became = |module: &MergingModule<_>, name| module.outcome(id(module, name)).unwrap().0;
    assert!(matches!(became(&module, "a"), Disposition::Redirect { .. }));
    assert!(matches!(became(&module, "b"), Disposition::Thunk { .. }));
    module.finish().unwrap().emit().unwrap();
}

/// A function whose definition has another signature than its declaration can be called with
/// either.
#[test]
fn a_function_declared_with_another_signature_becomes_a_thunk() {
    // With more parameters, with another type, and with another calling convention.
    for declared in ["(i64, i64) -> i64 system_v", "(f64) -> i64 system_v", "(i64) -> i64 fast"] {
        check_declared_as(declared);
    }
}

fn check_declared_as(declared: &str) {
    let options = for_size(BackEnd::Object);
    let mut module = MergingModule::with_options(object(), options);
    declare(&mut module, "b", Linkage::Local, declared);
    declare_all(&mut module, &mixes("local", "a", 1));
    for (name, k) in [("a", 1), ("b", 2)] {
        define(&mut module, &mixes("local", name, k)).unwrap();
    }
    module.flush().unwrap();
    let became = |module: &MergingModule<_>, name| module.outcome(id(module, name)).unwrap().0;
    assert!(matches!(became(&module, "a"), Disposition::Redirect { .. }));
    assert!(matches!(became(&module, "b"), Disposition::Thunk { .. }));
    module.finish().unwrap().emit().unwrap();
}

/// An emitted thunk passes the address of a function that is defined later, and merged then.
#[test]
fn thunks_pass_addresses_of_later_functions() {
    let callers = mixes_call("local", "f", "a") + &mixes_call("local", "g", "b");
    let callees = mixes("local", "a", 5) + &mixes("local", "b", 5) + &mixes("local", "c", 5);
    let options = for_size(BackEnd::Jit);
    let mut plain = merging_jit();
    let mut module = MergingModule::with_options(jit(), options);
    for module in [&mut plain, &mut module] {
        declare_all(module, &(callers.clone() + &callees));
        define_all(module, &callers);
        module.flush().unwrap();
        define_all(module, &callees);
        module.finalize_definitions().unwrap();
    }
    assert_eq!(module.stats().new_bodies, 1);
    for name in ["f", "g"] {
        assert_eq!(call(&module, name, 7), call(&plain, name, 7), "{name}");
    }
}

/// A caller of one of two pairs of functions, with a constant of its own.
fn calls_a_pair(name: &str, [f, g]: [&str; 2], k: usize) -> String {
    format!(
        "local function %{name}(i64) -> i64 system_v {{
    fn0 = colocated %{f}(i64) -> i64 system_v
    fn1 = colocated %{g}(i64) -> i64 system_v
block0(v0: i64):
    v1 = call fn0(v0)
    v2 = call fn1(v1)
    v6 = iconst.i64 {k}
    v7 = iadd v2, v6
{}    return v19
}}
",
        filling(8, 19).replace("v6\n", "v2\n")
    )
}

/// Two bodies are compared in cost for the first functions, and the second is better; the symbol of
/// the first is reused for the body of the last functions.
#[test]
fn symbols_of_bodies_come_in_any_order() {
    let leaf = |name: &str, opcode: &str| {
        format!(
            "local function %{name}(i64) -> i64 system_v {{
block0(v0: i64):
    v1 = {opcode} v0
    return v1
}}
"
        )
    };
    let leaves = ["popcnt", "clz", "ctz", "bnot", "ineg", "iabs", "bitrev", "bswap"];
    let mut program: String = leaves.map(|opcode| leaf(opcode, opcode)).concat();
    let mut names: Vec<String> = Vec::new();
    for at in 0..16 {
        let name = format!("pair{at}");
        let first = 2 * (at % 4);
        program += &calls_a_pair(&name, [leaves[first], leaves[first + 1]], 1000 + at);
        names.push(name);
    }
    for (name, k) in [("a", 1), ("b", 2), ("c", 3)] {
        program += &mixes("local", name, k);
        names.push(name.to_owned());
    }
    let mut plain = merging_jit();
    let options = for_size(BackEnd::Jit);
    let mut module = MergingModule::with_options(jit(), options);
    for module in [&mut plain, &mut module] {
        declare_all(module, &program);
        define_all(module, &program);
        module.finalize_definitions().unwrap();
    }
    assert_eq!(module.stats().new_bodies, 2);
    assert_eq!(module.stats().compiled, leaves.len() + 2);
    for name in names {
        assert_eq!(call(&module, &name, 7), call(&plain, &name, 7), "{name}");
    }
}

/// On x86-64, a function of the calling convention `tail` pops less than 64 KB of stack arguments:
/// these two functions can be compiled, and a body with twenty extra arguments cannot.
#[test]
fn a_body_that_cannot_be_compiled_is_not_made() {
    const OWN: usize = 8180;
    let types = vec!["i64"; OWN].join(", ");
    let values: Vec<String> = (0..OWN).map(|value| format!("v{value}: i64")).collect();
    let values = values.join(", ");
    let function = |name: &str, seed: usize| {
        let mut steps = String::new();
        for at in 0..20 {
            let first = OWN + 4 * at;
            let last = first - 1;
            steps += &format!(
                "    v{first} = iconst.i64 {}
    v{} = imul v{last}, v1
    v{} = bxor v{}, v{first}
    v{} = rotl v{}, v1\n",
                100 * at + seed,
                first + 1,
                first + 2,
                first + 1,
                first + 3,
                first + 2
            );
        }
        format!(
            "local function %{name}({types}) -> i64 tail {{
block0({values}):
{steps}    return v{}
}}
",
            OWN + 79
        )
    };
    let mut module = MergingModule::with_options(object(), for_size(BackEnd::Any));
    define_all(&mut module, &function("a", 1));
    define_all(&mut module, &function("b", 2));
    assert!(module.finish().is_ok());
}
