//! Wrong plans that leave references to functions without code: a merging module refuses to emit
//! any of them, though nothing is proved, and says which function or object refers to what, and why
//! there is nothing.

use cranelift_codegen::binemit::Reloc;
use cranelift_mergefunc::fault_injection::{Fault, planted};
use cranelift_mergefunc::{Prove, cranelift_codegen};
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use cranelift_module::{Linkage, Module, ModuleReloc, ModuleResult};
use testkit::modules::{
    address, address_of_symbol, declare, define_all, for_size, id, jit, mixes, object, table,
};

fn options(back_end: BackEnd, remember: bool) -> ModuleOptions {
    ModuleOptions { prove: Prove::Never, remember, ..for_size(back_end) }
}

/// Two functions that differ in a constant.
fn similar() -> String {
    mixes("local", "a", 1) + &mixes("local", "b", 2)
}

/// Makes a reference to `a`: by a function, a global value, a table, or code in bytes.
fn refer<M: Module>(module: &mut MergingModule<M>, by: &str) {
    match by {
        "function" => define_all(module, &address("export", "t", "a")),
        "symbol" => define_all(module, &address_of_symbol("t", "a")),
        "table" => _ = table(module, "t", &["a"]),
        _ => {
            let t = declare(module, "t", Linkage::Export, "() -> i64 system_v");
            let a = id(module, "a");
            let reloc = ModuleReloc { offset: 8, kind: Reloc::Abs8, name: a.into(), addend: 0 };
            module.define_function_bytes(t, 8, &[0xc3; 16], &[reloc]).expect("is deferred");
        }
    }
}

#[track_caller]
fn is_refused<T>(result: ModuleResult<T>, fault: Option<Fault>) {
    let said = result.err().map(|error| error.to_string()).unwrap_or_default();
    let expected = "t refers to a, which has no code: flush 1 merged it into ";
    assert_eq!(said.contains(expected), fault.is_some(), "{fault:?}: {said}");
}

/// The plan eliminates a function to whose address something refers.
#[test]
fn what_leads_nowhere_is_refused() {
    for by in ["function", "symbol", "table", "bytes"] {
        for fault in [None, Some(Fault::NamedEliminated)] {
            let mut module = MergingModule::with_options(object(), options(BackEnd::Object, false));
            define_all(&mut module, &similar());
            refer(&mut module, by);
            is_refused(planted(fault, || module.finish()), fault);
            let mut module = MergingModule::with_options(jit(), options(BackEnd::Jit, true));
            define_all(&mut module, &similar());
            refer(&mut module, by);
            is_refused(planted(fault, || module.finalize_definitions()), fault);
        }
    }
}
