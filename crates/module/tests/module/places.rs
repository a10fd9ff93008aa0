//! Addresses of code and data: those that bytes hold, and alignment of what merging creates.

#![allow(unsafe_code, reason = "addresses are read from compiled code")]

use crate::linked::{linked, same_output};
use cranelift_codegen::binemit::Reloc;
use cranelift_mergefunc::{Addresses, Disposition, Similar};
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use cranelift_module::{Linkage, Module, ModuleReloc};
use testkit::modules::*;

/// Code that is given as bytes takes the addresses of functions that an earlier flush eliminated.
/// Addresses of equal functions were once one place.
#[test]
fn addresses_in_later_bytes_are_distinct() {
    let options = ModuleOptions { similar: Similar::OFF, ..ModuleOptions::default() };
    let mut module =
        MergingModule::with_options(jit(), ModuleOptions { back_end: BackEnd::Jit, ..options });
    define_all(&mut module, &(plus("local", "f", 5) + &plus("local", "g", 5)));
    module.finalize_definitions().unwrap();
    assert_eq!(module.stats().redirects, 1);
    let raw = declare(&mut module, "raw", Linkage::Export, "() -> i64 system_v");
    let relocs = ["f", "g"].into_iter().zip([8, 16]).map(|(name, offset)| ModuleReloc {
        offset,
        kind: Reloc::Abs8,
        name: id(&module, name).into(),
        addend: 0,
    });
    let relocs: Vec<ModuleReloc> = relocs.collect();
    module.define_function_bytes(raw, 8, &[0xc3; 24], &relocs).unwrap();
    module.finalize_definitions().unwrap();
    let code = module.get_finalized_function(raw).cast::<*const u8>();
    // SAFETY: 24 bytes were defined at a multiple of 8.
    let [f, g] = [1, 2].map(|at| unsafe { code.add(at).read() });
    assert_ne!(f, g);
    for (name, address) in [("f", f), ("g", g)] {
        assert_eq!(address, module.get_finalized_function(id(&module, name)), "{name}");
        assert_eq!(call_at(address, 2), 49, "{name}");
    }
}

/// A function whose parameters take all registers, so that none is left for the extra arguments of
/// its thunk.
fn takes_six(linkage: &str, name: &str, k: i64) -> String {
    format!(
        "{linkage} function %{name}(i64, i64, i64, i64, i64, i64) -> i64 system_v {{
block0(v0: i64, v100: i64, v101: i64, v102: i64, v103: i64, v104: i64):
    v105 = iadd v100, v101
    v106 = isub v102, v103
    v107 = bxor v105, v106
    v108 = iadd v107, v104
    v1 = iconst.i64 {k}
    v2 = iadd v108, v1
    v3 = imul v2, v0
{}    return v39
}}
",
        filling(4, 39)
    )
}

/// On such functions, a thunk that passes extra arguments is a function that calls. It once had
/// only the default alignment.
#[test]
fn thunks_that_call_have_the_requested_alignment() {
    let mut module = MergingModule::with_options(object(), for_size(BackEnd::Object));
    for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
        define_all(&mut module, &takes_six("export", name, at as i64));
        // Code or data of another size precedes each of them.
        let before = format!("before_{name}");
        define_all(&mut module, &plus("export", &before, at as i64));
        let before = id(&module, &before);
        module.attributes(before).no_merge = true;
        let function = id(&module, name);
        module.attributes(function).alignment = 256;
    }
    module.flush().unwrap();
    assert_eq!(module.stats().new_bodies, 1);
    let (outcome, _) = module.outcome(id(&module, "b")).unwrap();
    assert!(matches!(outcome, Disposition::Thunk { .. }));
    let product = module.finish().unwrap();
    for name in ["a", "b", "c"] {
        assert_eq!(place(&product, name).1 % 256, 0, "{name}");
    }
}

/// Bytes that were defined before hold the address of `x`; `y`, which is defined with `x` and whose
/// address is taken, must have another address.
#[test]
fn an_address_in_earlier_bytes_is_not_shared() {
    let mut module = merging_jit();
    let later = plus("local", "x", 5) + &plus("local", "y", 5);
    declare_all(&mut module, &later);
    let t = declare(&mut module, "t", Linkage::Export, "() -> i64 system_v");
    let kind = cranelift_codegen::binemit::Reloc::Abs8;
    let reloc = ModuleReloc { offset: 8, kind, name: id(&module, "x").into(), addend: 0 };
    module.define_function_bytes(t, 8, &[0xc3; 16], &[reloc]).unwrap();
    module.flush().unwrap();
    define_all(&mut module, &later);
    define_all(&mut module, &address("export", "u", "y"));
    module.finalize_definitions().unwrap();
    let held = module.get_finalized_function(t).wrapping_add(8).cast::<i64>();
    // SAFETY: the relocation is there.
    let held = unsafe { held.read_unaligned() };
    assert_eq!(held, module.get_finalized_function(id(&module, "x")) as i64);
    assert_ne!(held, call(&module, "u", 0));
}

/// A function that refers to an aligned object was once merged into a function that refers to an
/// equal object without that alignment, which is kept because it is pinned. Either object may be
/// the representative.
#[test]
fn an_object_that_replaces_an_equal_one_has_its_alignment() {
    for [pinned, aligned] in [["d", "e"], ["e", "d"]] {
        let options = ModuleOptions { back_end: BackEnd::Jit, ..insignificant() };
        let mut module = MergingModule::with_options(jit(), options);
        for name in ["d", "e"] {
            // Code or data of another size precedes each of them.
            let before = format!("before_{name}");
            let before = module.declare_data(&before, Linkage::Local, false, false).unwrap();
            module.data_attributes(before).addresses = Addresses::Significant;
            let description = bytes(&mut module, &[9], &[]);
            module.define_data(before, &description).unwrap();
            let data = module.declare_data(name, Linkage::Local, false, false).unwrap();
            module.data_attributes(data).pinned = name == pinned;
            let mut description = bytes(&mut module, &[1, 2, 3], &[]);
            if name == aligned {
                description.set_align(256);
            }
            module.define_data(data, &description).unwrap();
        }
        define_all(
            &mut module,
            &(address_of_symbol("user_d", "d") + &address_of_symbol("user_e", "e")),
        );
        module.finalize_definitions().unwrap();
        let (own, other) = (format!("user_{aligned}"), format!("user_{pinned}"));
        assert_eq!(module.body_of(id(&module, &own)), module.body_of(id(&module, &other)));
        assert_eq!(call(&module, &own, 0) % 256, 0, "{pinned} is pinned");
        let at = module.get_finalized_data(data_id(&module, aligned)).0;
        assert_eq!(at as usize % 256, 0, "{pinned} is pinned");
    }
}

/// Later functions and tables that refer to an object that an earlier flush eliminated use its
/// representative, which has the alignment of both.
#[test]
fn later_users_of_an_eliminated_object_use_its_representative() {
    let options = ModuleOptions { back_end: BackEnd::Jit, ..insignificant() };
    let define = |module: &mut dyn Module, flush: usize| match flush {
        0 => {
            for name in ["d", "e", "f"] {
                let data = module.declare_data(name, Linkage::Local, false, false).unwrap();
                let mut description = bytes(module, &[1, 2, 3, 4, 5, 6, 7, 8], &[]);
                if name == "e" {
                    description.set_align(256);
                }
                module.define_data(data, &description).unwrap();
            }
        }
        1 => {
            // Through tables as well.
            table(module, "t1", &["d"]);
            table(module, "t2", &["e"]);
            define_all(module, &(address_of_symbol("u", "e") + &address_of_symbol("v", "f")));
            define_all(module, &(address_of_symbol("w", "t1") + &address_of_symbol("x", "t2")));
        }
        _ => define_all(module, &address_of_symbol("y", "d")),
    };
    let mut module = MergingModule::with_options(jit(), options);
    for flush in 0..3 {
        define(&mut module, flush);
        module.finalize_definitions().unwrap();
    }
    // Two of the objects, and a table.
    assert_eq!(module.stats().merged_data_objects, 3);
    let place = call(&module, "u", 0);
    assert_eq!(place % 256, 0);
    assert_eq!(["v", "y"].map(|name| call(&module, name, 0)), [place; 2]);
    let tables = ["w", "x"].map(|name| call(&module, name, 0) as *const i64);
    // SAFETY: each is the address of a pointer.
    assert_eq!(tables.map(|table| unsafe { table.read() }), [place; 2]);
    for name in ["v", "y"] {
        assert_eq!(module.body_of(id(&module, name)), id(&module, "u"), "{name}");
    }
}

/// Code that is given as bytes takes the address of a function whose body takes an extra argument.
/// It once received the address of the body.
#[test]
fn an_address_in_bytes_is_not_that_of_the_body_with_extra_arguments() {
    if cfg!(not(target_arch = "x86_64")) {
        return;
    }
    let main = "#include <stdio.h>\nlong (*t(void))(long), d(long);
        int main(void) { printf(\"%ld %ld\\n\", t()(7), d(7)); }";
    same_output("bytes", for_size(BackEnd::Object), linked, main, |module, _| {
        define_all(module, &(mixes("local", "a", 1) + &mixes("local", "b", 2)));
        define_all(module, &calls("export", "d", "a"));
        // lea rax, [rip + b]; ret
        let t = declare(module, "t", Linkage::Export, "() -> i64 system_v");
        let reloc = ModuleReloc {
            offset: 3,
            kind: Reloc::X86PCRel4,
            name: id(module, "b").into(),
            addend: -4,
        };
        let code = [0x48, 0x8d, 0x05, 0, 0, 0, 0, 0xc3];
        module.define_function_bytes(t, 16, &code, &[reloc]).unwrap();
    });
}
