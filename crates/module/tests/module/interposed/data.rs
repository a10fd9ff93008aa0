//! Merged code reads the module's own data objects, and merged data points to the module's own
//! functions.

use super::{compare, pin, significant, with_own_data, with_own_function};
use cranelift_mergefunc::Addresses;
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use cranelift_module::{Linkage, Module};
use cranelift_object::ObjectModule;
use testkit::modules::*;

/// Declares and defines a read-only data object.
fn constant(module: &mut MergingModule<ObjectModule>, name: &str, linkage: Linkage, data: &[u8]) {
    let id = module.declare_data(name, linkage, false, false).unwrap();
    let description = bytes(module, data, &[]);
    module.define_data(id, &description).unwrap();
}

const BYTES: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

/// A table that replaces another one holds the address of an exported function, and the other one
/// that of an equal local function. Both functions are kept because they are pinned.
#[test]
fn a_table_that_replaces_another_one_points_to_no_interposed_function() {
    // The table has one entry.
    let main = with_own_function(&["d"], "f").replace("d(7)", "d(0)");
    compare("tables", insignificant(), &main, |module, merges| {
        define_all(module, &(plus("export", "f", 5) + &plus("local", "g", 5)));
        pin(module, &["f", "g"]);
        table(module, "t1", &["f"]);
        table(module, "t2", &["g"]);
        define_all(module, &through("export", "d", "t2"));
        module.flush().unwrap();
        assert_eq!(module.stats().merged_data_objects, usize::from(merges));
    });
}

/// A function that combines the value of `symbol` with its argument and a constant.
fn mixes_data(linkage: &str, name: &str, k: i64, symbol: &str) -> String {
    let reads = format!("    gv0 = symbol %{symbol}\nblock0(v0: i64):\n");
    mixes(linkage, name, k).replace("block0(v0: i64):\n", &reads).replace(
        "    v2 = iadd v0, v1\n",
        "    v61 = symbol_value.i64 gv0\n    v62 = load.i64 v61\n    v2 = iadd v62, v1\n",
    )
}

/// A function, a private copy and a parameterised body, each of which replaces two functions, read
/// an exported object; one of the two functions reads an equal local object. Both objects are kept
/// because they are pinned.
#[test]
fn merged_code_reads_no_interposed_object() {
    let main = "#include <stdio.h>\nlong e(long), own(long); long t1 = 4242;
        int main(void) { printf(\"%d\\n\", e(7) == own(7)); }";
    for (linkage, other, options) in [
        ("export", 1, significant()),
        ("preemptible", 1, significant()),
        ("export", 2, for_size(BackEnd::Object)),
    ] {
        for pinned in [false, true] {
            let options = ModuleOptions { data_addresses: Addresses::Insignificant, ..options };
            let case = format!("{linkage}, {other}, pinned: {pinned}");
            compare(&case, options, main, |module, merges| {
                for (name, linkage) in [("t1", Linkage::Export), ("t2", Linkage::Local)] {
                    let data = module.declare_data(name, linkage, false, false).unwrap();
                    module.data_attributes(data).pinned = pinned;
                    constant(module, name, linkage, &BYTES);
                }
                let data = module.declare_data("own_data", Linkage::Local, true, false).unwrap();
                let description = bytes(module, &BYTES, &[]);
                module.define_data(data, &description).unwrap();
                define_all(module, &mixes_data(linkage, "d", other, "t1"));
                define_all(module, &mixes_data(linkage, "e", 1, "t2"));
                define_all(module, &mixes_data("export", "own", 1, "own_data"));
                let own = id(module, "own");
                module.attributes(own).no_merge = true;
                module.flush().unwrap();
                assert_eq!(module.stats().merged() > 0, merges, "{case}");
            });
        }
    }
}

/// Code that replaces no other function refers to an object that became an alias by its own symbol,
/// as without merging: that is the address that other modules see.
#[test]
fn an_exported_object_is_referred_to_by_its_symbol() {
    let main = "#include <stdio.h>\nlong *a(long), *b(long); long t2 = 7, t1 = 8;
        int main(void) { printf(\"%d %d\\n\", a(0) == &t2, b(0) == &t1); }";
    let options = insignificant();
    for pointed in [false, true] {
        compare(format_args!("pointed to: {pointed}"), options, main, |module, merges| {
            for name in ["t1", "t2"] {
                constant(module, name, Linkage::Export, &BYTES);
            }
            let address = if pointed { reads_symbol } else { address_of_symbol };
            if pointed {
                for (name, of) in [("p1", "t1"), ("p2", "t2")] {
                    let data = module.declare_data(name, Linkage::Local, true, false).unwrap();
                    let description = bytes(module, &[0; 8], &[(0, of, 0)]);
                    module.define_data(data, &description).unwrap();
                }
                define_all(module, &(address("a", "p2") + &address("b", "p1")));
            } else {
                define_all(module, &(address("a", "t2") + &address("b", "t1")));
                for name in ["a", "b"] {
                    let function = id(module, name);
                    module.attributes(function).no_merge = true;
                }
            }
            module.flush().unwrap();
            assert_eq!(module.stats().merged_data_objects, usize::from(merges));
        });
    }
}

/// An object into which others are merged is exported from the beginning or declared as exported
/// after its definition, and functions merge because their tables are equal.
#[test]
fn exported_data_is_interposed_for_its_own_users_only() {
    // Not `e`, which refers to `t`: without merging, it reads the interposed one.
    let main = with_own_data(&["d", "e2"], "t");
    for at_first in [Linkage::Local, Linkage::Export] {
        compare(format_args!("{at_first:?}"), insignificant(), &main, |module, _| {
            for (name, linkage) in [("t", at_first), ("u", Linkage::Local)] {
                constant(module, name, linkage, &BYTES);
            }
            define_all(module, &reads_symbol("d", "u"));
            module.declare_data("t", Linkage::Export, false, false).unwrap();
            define_all(module, &(reads_symbol("e", "t") + &reads_symbol("e2", "u")));
        });
    }
}

/// Two equal data objects are both kept. Functions that read them once passed the address of one to
/// their body by a symbol that can be interposed.
#[test]
fn data_passed_in_place_of_an_equal_object_is_not_interposed() {
    let reads = |name: &str, table: &str| {
        let read =
            reads_symbol(name, table).replace("load.i64 v1", "load.i64 v1\n    v3 = iadd v2, v2");
        read.replace("    return v2\n", &format!("{}    return v19\n", filling(4, 19)))
    };
    for (other, own) in [("t", "e"), ("u", "d")] {
        // Not the function that refers to the interposed object: without merging, it reads that of
        // the program.
        let main = with_own_data(&[own, "c"], other);
        let options = ModuleOptions { aliases: false, ..for_size(BackEnd::Object) };
        compare(other, options, &main, |module, merges| {
            constant(module, "t", Linkage::Export, &BYTES);
            constant(module, "u", Linkage::Export, &BYTES);
            constant(module, "w", Linkage::Local, &[1, 2, 3, 4, 5, 6, 7, 9]);
            define_all(module, &(reads("d", "t") + &reads("e", "u") + &reads("c", "w")));
            module.flush().unwrap();
            let bodies = ["c", own].map(|name| module.body_of(id(module, name)));
            assert_eq!(bodies[0] == bodies[1], merges, "nothing is shown");
        });
    }
}
