//! Whatever takes the place of an exported function when a shared library is loaded takes it for nobody who meant another
//! function.
//!
//! Each test defines a program in turns, links it as a shared library to a program that defines `f` itself, and compares
//! what that prints with and without merging.

use crate::over_time::{calls_address, interposed, unmerged};
use crate::support::*;
use cranelift_mergefunc::{BackEnd, MergingModule, ModuleOptions};
use cranelift_module::Module;

/// Runs a function of a program whose parts are flushed one after the other, with another `f`. Functions of `pinned` keep
/// their places.
#[track_caller]
fn check(parts: &[String], pinned: &[&str], called: &str) {
    let main = format!(
        "#include <stdio.h>\nlong {called}(long); long f(long x) {{ return 4242; }}
        int main(void) {{ printf(\"%ld\\n\", {called}(7)); }}"
    );
    for aliases in [true, false] {
        let options = ModuleOptions { back_end: BackEnd::Object, aliases, ..insignificant() };
        let printed = [options, unmerged(options)].map(|options| {
            let mut module = MergingModule::with_options(object(), options);
            for (at, part) in parts.iter().enumerate() {
                declare_all(&mut module, part);
                for name in pinned {
                    if let Some(cranelift_module::FuncOrDataId::Func(id)) = module.get_name(name) {
                        module.attributes(id).pinned = true;
                    }
                }
                define_all(&mut module, part);
                if at + 1 < parts.len() {
                    module.flush().unwrap();
                }
            }
            interposed(module.finish().unwrap(), &main)
        });
        assert_eq!(printed[0], printed[1], "aliases: {aliases}");
    }
}

/// The private body of functions that can be preempted called an exported function by its symbol; a later one, which calls
/// an equal function, was merged into it.
#[test]
fn a_private_body_stands_for_later_functions_as_well() {
    for caller in [calls, |_: &str, name: &str, f: &str| calls_address(name, f)] {
        let preemptible = |name: &str, callee: &str| {
            caller("export", name, callee).replace("export function", "preemptible function")
        };
        let first = plus("export", "f", 5) + &preemptible("p", "f") + &preemptible("q", "f");
        let later = plus("export", "g", 5) + &preemptible("d", "g");
        check(&[first.clone(), later.clone()], &[], "d");
        check(&[first + &later], &[], "d");
    }
}

/// A function that keeps its place stood for an equal one in a function that several share, and called an exported one by
/// its symbol.
#[test]
fn what_is_kept_beside_an_equal_function_stands_for_it() {
    let calls_in_turn = |name: &str, callee: &str| {
        format!(
            "export function %{name}(i64) -> i64 system_v {{
    fn0 = %{callee}(i64) -> i64 system_v
block0(v0: i64):
    v1 = iconst.i64 -1
    v2 = iadd v0, v1
    v3 = iconst.i64 0
    v4 = icmp sgt v2, v3
    brif v4, block1, block2
block1:
    v5 = call fn0(v2)
    v6 = iadd v5, v0
    return v6
block2:
    return v0
}}
"
        )
    };
    let pair = |a: &str, b: &str| calls_in_turn(a, b) + &calls_in_turn(b, a);
    check(&[pair("f", "b") + &pair("c", "d")], &["b"], "c");
    check(&[pair("f", "b"), pair("c", "d")], &["b"], "c");
    check(&[pair("f", "b") + &pair("c", "d")], &["b", "d"], "c");
}
