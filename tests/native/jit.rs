//! The same table in a JIT on this machine, where nothing is linked.

#![allow(unsafe_code, reason = "compiled code is called through pointers")]

use crate::cases::{Case, cases};
use crate::unit::{define, isa_of, say};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_mergefunc::{Addresses, MergingModule};
use cranelift_module::{FuncId, FuncOrDataId, Module};

extern "C" fn callback(x: i64) -> i64 {
    x + 77
}

fn empty() -> JITModule {
    let host = if cfg!(target_arch = "aarch64") { "aarch64" } else { "x86_64" };
    let isa = isa_of(&format!("{host}-unknown-linux-gnu"), false);
    let mut builder = JITBuilder::with_isa(isa, cranelift_module::default_libcall_names());
    builder.symbol("callback", callback as *const u8);
    JITModule::new(builder)
}

fn id(module: &dyn Module, name: &str) -> FuncId {
    match module.get_name(name) {
        Some(FuncOrDataId::Func(id)) => id,
        other => panic!("{name} is {other:?}"),
    }
}

fn call(code: *const u8, argument: i64) -> i64 {
    // SAFETY: only functions that the table makes for C are called, which take and return a number;
    // to those that take none, one more is no harm in the conventions of the hosts.
    let code: extern "C" fn(i64) -> i64 = unsafe { core::mem::transmute(code) };
    code(argument)
}

/// Calls one of the two, in every way, and compares.
fn same_results(module: &MergingModule<JITModule>, bare: &JITModule, case: &Case, which: usize) {
    let ways = if case.taken && case.is_like_c() { &["call", "via"][..] } else { &["call"] };
    for way in ways {
        let name = format!("{way}_{}", case.name(which));
        let before = bare.get_finalized_function(id(bare, &name));
        let after = module.get_finalized_function(id(module, &name));
        for argument in [0, 3, -7] {
            let [before, after] = [before, after].map(|code| call(code, argument));
            assert_eq!(before, after, "{name}: {}", case.describe());
        }
    }
}

fn check(module: &MergingModule<JITModule>, bare: &JITModule, cases: &[Case]) {
    let address_of = |name: &str| module.get_finalized_function(id(module, name));
    for case in cases {
        for which in 0..2 {
            let name = case.name(which);
            same_results(module, bare, case, which);
            if case.taken {
                let extra = address_of(&name) as i64;
                let said = call(address_of(&format!("addr_{name}")), 0);
                assert_eq!(said, extra, "{name}: {}", case.describe());
                let Some(FuncOrDataId::Data(data)) = module.get_name(&format!("ptr_{name}")) else {
                    panic!("{name} has a pointer");
                };
                let (data, _) = module.get_finalized_data(data);
                // SAFETY: it is a pointer of the JIT's, aligned as it asked for.
                let held = unsafe { *data.cast::<i64>() };
                assert_eq!(held, extra, "{name}: {}", case.describe());
            }
        }
        let [f, g] = [0, 1].map(|which| address_of(&case.name(which)));
        if case.addresses == Addresses::Significant && case.taken {
            assert_ne!(f, g, "{}", case.describe());
        }
        if case.shares_its_address() {
            assert_eq!(f, g, "{}", case.describe());
        }
    }
}

fn before(cases: &[Case]) -> JITModule {
    let mut bare = empty();
    define(&mut bare, cases, &mut |_, _, _| {});
    bare.finalize_definitions().unwrap();
    bare
}

#[test]
fn the_host_runs_every_case_merged_in_one_flush() {
    let cases = cases(cfg!(target_arch = "x86_64"));
    let bare = before(&cases);
    let mut module = MergingModule::new(empty());
    define(&mut module, &cases, &mut say);
    module.finalize_definitions().unwrap();
    assert!(module.stats().merged() > cases.len());
    check(&module, &bare, &cases);
}

#[test]
fn the_host_runs_every_case_merged_function_by_function() {
    let cases = cases(cfg!(target_arch = "x86_64"));
    let bare = before(&cases);
    let mut module = MergingModule::new(empty());
    define(&mut module, &cases, &mut |module, case, thing| {
        say(module, case, thing);
        module.finalize_definitions().unwrap();
    });
    module.finalize_definitions().unwrap();
    assert!(module.stats().merged() > cases.len());
    for case in &cases {
        for which in 0..2 {
            same_results(&module, &bare, case, which);
        }
        let [f, g] =
            [0, 1].map(|which| module.get_finalized_function(id(&module, &case.name(which))));
        if case.addresses == Addresses::Significant && case.taken {
            assert_ne!(f, g, "{}", case.describe());
        }
    }
}
