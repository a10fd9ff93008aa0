//! The cases of `cases` in a JIT on this machine, where nothing is linked.

use crate::cases::{Case, cases};
use crate::unit::{define, say};
use cranelift_jit::JITModule;
use cranelift_mergefunc::Addresses;
use cranelift_mergefunc_module::MergingModule;
use testkit::jit::{self, Run};
use testkit::modules::{data_id, host_isa, id};

extern "C" fn callback(x: i64) -> i64 {
    x + 77
}

fn empty() -> JITModule {
    jit::module(host_isa(false), |builder| {
        builder.symbol("callback", callback as *const u8);
    })
}

/// Calls both functions of all cases, in every way, and compares.
fn same_results(module: &MergingModule<JITModule>, bare: &JITModule, cases: &[Case]) {
    let mut names = Vec::new();
    for (case, which) in cases.iter().flat_map(|case| [(case, 0), (case, 1)]) {
        let is_via = case.taken && case.is_like_c();
        let ways = ["call", "via"].into_iter().take(1 + usize::from(is_via));
        names.extend(ways.map(|way| (case, format!("{way}_{}", case.name(which)))));
    }
    let [before, after] = [bare as &dyn Finalized, module].map(|module| {
        let runs = names.iter().flat_map(|(_, name)| {
            let code = module.code(name);
            [0, 3, -7].map(|argument| Run::with(code, argument))
        });
        jit::run(&runs.collect::<Vec<_>>())
    });
    assert_eq!(before.len(), 3 * names.len(), "all calls return");
    for (at, (case, name)) in names.iter().enumerate() {
        let [before, after] = [&before, &after].map(|left| left.get(3 * at..3 * at + 3));
        assert_eq!(before, after, "{name}: {}", case.describe());
    }
}

/// A module whose code can be called.
trait Finalized {
    fn code(&self, name: &str) -> *const u8;
}

impl Finalized for JITModule {
    fn code(&self, name: &str) -> *const u8 {
        self.get_finalized_function(id(self, name))
    }
}

impl Finalized for MergingModule<JITModule> {
    fn code(&self, name: &str) -> *const u8 {
        self.get_finalized_function(id(self, name))
    }
}

fn check(module: &MergingModule<JITModule>, bare: &JITModule, cases: &[Case]) {
    same_results(module, bare, cases);
    let taken = cases.iter().filter(|case| case.taken);
    let taken: Vec<(&Case, String)> =
        taken.flat_map(|case| [0, 1].map(|which| (case, case.name(which)))).collect();
    let runs = taken.iter().map(|(_, name)| Run::with(module.code(&format!("addr_{name}")), 0));
    let addresses = jit::run(&runs.collect::<Vec<_>>());
    assert_eq!(addresses.len(), taken.len(), "all calls return");
    for ((case, name), address) in taken.iter().zip(addresses) {
        let own = module.code(name) as i64;
        assert_eq!(address.result, own, "{name}: {}", case.describe());
        let (pointer, _) = module.get_finalized_data(data_id(module, &format!("ptr_{name}")));
        assert_eq!(jit::word_at(pointer), own, "{name}: {}", case.describe());
    }
    for case in cases {
        let [f, g] = [0, 1].map(|which| module.code(&case.name(which)));
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
    same_results(&module, &bare, &cases);
    for case in &cases {
        let [f, g] = [0, 1].map(|which| module.code(&case.name(which)));
        if case.addresses == Addresses::Significant && case.taken {
            assert_ne!(f, g, "{}", case.describe());
        }
    }
}
