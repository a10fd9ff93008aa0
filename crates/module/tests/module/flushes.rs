//! A flush restricts later flushes: facts of functions that are emitted, functions that were
//! eliminated, and addresses that are passed as arguments. That holds without a merge cache as
//! well.

#![allow(unsafe_code, reason = "compiled code is called through pointers")]

use crate::linked::{linked, same};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_mergefunc::{Disposition, Policy, Similar};
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use cranelift_object::{ObjectBuilder, ObjectModule};
use testkit::modules::*;

/// A JIT that optimises: without that, facts change no code.
fn optimising_jit(options: ModuleOptions) -> MergingModule<JITModule> {
    let names = cranelift_module::default_libcall_names();
    let inner = JITModule::new(JITBuilder::with_isa(host_isa_with(false, "speed"), names));
    MergingModule::with_options(inner, ModuleOptions { back_end: BackEnd::Jit, ..options })
}

/// An optimising `ObjectModule`, wrapped.
fn optimising_object(options: ModuleOptions) -> MergingModule<ObjectModule> {
    let names = cranelift_module::default_libcall_names();
    let inner =
        ObjectModule::new(ObjectBuilder::new(host_isa_with(true, "speed"), "unit", names).unwrap());
    MergingModule::with_options(inner, ModuleOptions { back_end: BackEnd::Object, ..options })
}

/// A function that loads twice from its first argument, and stores to its second in between.
fn writes_between(name: &str, k: i64, read: &str, written: &str) -> String {
    format!(
        "local function %{name}(i64, i64) -> i64 system_v {{
    region0 = 1 \"a\"
    region1 = 2 \"b\"
block0(v0: i64, v1: i64):
    v102 = iconst.i64 {k}
    v101 = iadd v0, v1
    v2 = load.i64 notrap {read} v0
    store.i64 notrap {written} v102, v1
    v3 = load.i64 notrap {read} v0
    v4 = isub v3, v2
{}    v5 = iadd v4, v159
    return v5
}}
",
        filling(103, 159)
    )
}

/// A function that reads a vector.
fn reads_vector(name: &str, k: i64, flags: &str) -> String {
    format!(
        "local function %{name}(i64, i64) -> i64 system_v {{
block0(v0: i64, v1: i64):
    v102 = iconst.i64 {k}
    v101 = iadd v0, v1
    v2 = splat.i64x2 v102
    v3 = load.i64x2 notrap {flags} v0
    v4 = iadd v3, v2
    v6 = extractlane v4, 1
{}    v5 = iadd v6, v159
    return v5
}}
",
        filling(103, 159)
    )
}

/// A function that adds 1 to the result of `callee` for two arguments.
fn calls_with_two(name: &str, callee: &str) -> String {
    format!(
        "export function %{name}(i64, i64) -> i64 system_v {{
    fn0 = %{callee}(i64, i64) -> i64 system_v
block0(v0: i64, v1: i64):
    v2 = call fn0(v0, v1)
    v3 = iconst.i64 1
    v4 = iadd v2, v3
    return v4
}}
"
    )
}

/// A C program that calls `e` with an address that is a multiple of 8 and not of 16.
const AT_NO_MULTIPLE_OF_16: &str =
    "#include <stdio.h>\n#include <sys/mman.h>\nlong e(char *, char *);
    int main(void) {
        char *cell = mmap((void *)0x10000000, 4096, 3, 0x32, -1, 0);
        printf(\"%ld\\n\", e(cell + 8, cell + 8));
    }";

/// The result of `e`, which is called with an address that is a multiple of 8 and not of 16.
fn run_at_no_multiple_of_16(module: &MergingModule<JITModule>) -> i64 {
    let code = module.get_finalized_function(id(module, "e"));
    // SAFETY: it takes two numbers and returns one, and reads and writes at these addresses.
    let code: extern "C" fn(*mut i64, *mut i64) -> i64 = unsafe { core::mem::transmute(code) };
    let mut cells = [100_i64; 6];
    let cell = cells.as_mut_ptr();
    let cell = if (cell as usize).is_multiple_of(16) { cell.wrapping_add(1) } else { cell };
    code(cell, cell)
}

/// The facts of `strong` functions, which a later `weak` one does not state, must not hold for
/// callers of the weak one: three strong functions share a parameterised body, and the weak one
/// equals one of them but for the facts.
fn check_weaker_later(strong: impl Fn(&str, i64) -> String, weak: String) {
    let first = strong("x", 5) + &strong("y", 6) + &strong("w", 7) + &calls_with_two("d", "x");
    let later = weak + &calls_with_two("e", "z");
    for options in [ModuleOptions::default(), insignificant(), for_size(BackEnd::Any)] {
        let results = [options, unmerged(options)].map(|options| {
            let mut module = optimising_jit(options);
            define_all(&mut module, &first);
            module.finalize_definitions().unwrap();
            define_all(&mut module, &later);
            module.finalize_definitions().unwrap();
            run_at_no_multiple_of_16(&module)
        });
        assert_eq!(results[0], results[1], "in a JIT, {options:?}");
        let printed = [options, unmerged(options)].map(|options| {
            let mut module = optimising_object(options);
            define_all(&mut module, &(first.clone() + &later));
            linked(module.finish().unwrap(), AT_NO_MULTIPLE_OF_16)
        });
        same(format_args!("in a program, {options:?}"), printed);
    }
}

/// The merge cache once lost the alias regions of a parameterised body. A caller of a function
/// without regions was then merged into a caller of that body, and read the value from before the
/// store.
#[test]
fn regions_of_a_parameterised_body_bind_later_callers() {
    let strong = |name: &str, k: i64| writes_between(name, k, "region0", "region1");
    check_weaker_later(strong, writes_between("z", 5, "", ""));
}

/// Regression test with `aligned`: an aligned access to an unaligned address crashed.
#[test]
fn alignment_of_accesses_of_a_parameterised_body_binds_later_callers() {
    let strong = |name: &str, k: i64| reads_vector(name, k, "aligned");
    check_weaker_later(strong, reads_vector("z", 5, ""));
}

/// `strong` equals `weak` of an earlier flush but for its facts. Its caller `d` once was one class
/// with the later caller `e` of `weak`, which merged into `d`, and called code that relies on facts
/// that `weak` does not state.
#[test]
fn callers_of_functions_with_different_facts_differ() {
    let results = [insignificant(), unmerged(insignificant())].map(|options| {
        let mut module = optimising_jit(options);
        define_all(&mut module, &reads_vector("weak", 5, ""));
        module.flush().unwrap();
        define_all(&mut module, &reads_vector("strong", 5, "aligned"));
        let strong = id(&module, "strong");
        module.attributes(strong).pinned = true;
        define_all(&mut module, &calls_with_two("d", "strong"));
        module.flush().unwrap();
        define_all(&mut module, &calls_with_two("e", "weak"));
        module.finalize_definitions().unwrap();
        if options.merge_limit.is_none() {
            assert_eq!(module.outcome(strong).unwrap().0, Disposition::Keep);
            assert_eq!(module.body_of(id(&module, "e")), id(&module, "e"));
        }
        run_at_no_multiple_of_16(&module)
    });
    assert_eq!(results[0], results[1]);
}

/// The results of functions in a JIT that is flushed program by program, merged; asserts that they
/// are those of an unmerged run.
#[track_caller]
fn in_turn(
    options: ModuleOptions,
    called: &[&str],
    make: impl Fn(&mut MergingModule<JITModule>, bool),
) -> Vec<i64> {
    let [merged, plain] = [options, unmerged(options)].map(|options| {
        let mut module = MergingModule::with_options(jit(), options);
        make(&mut module, options.merge_limit.is_none());
        module.finalize_definitions().unwrap();
        called.iter().map(|name| call(&module, name, 7)).collect::<Vec<i64>>()
    });
    assert_eq!(merged, plain);
    merged
}

/// Functions that share a parameterised body have no code but a thunk, so a later function that
/// equals one of them has no body to merge into.
#[test]
fn a_later_function_does_not_merge_into_a_thunk() {
    for linkage in ["local", "export"] {
        in_turn(for_size(BackEnd::Jit), &["d", "e"], |module, merges| {
            define_all(module, &(mixes("local", "a", 1) + &mixes("local", "b", 2)));
            define_all(module, &calls("export", "d", "a"));
            module.flush().unwrap();
            assert_eq!(module.stats().thunks, if merges { 2 } else { 0 });
            define_all(module, &mixes(linkage, "c", 1));
            define_all(module, &calls("export", "e", "c"));
            module.flush().unwrap();
            assert_ne!(module.body_of(id(module, "c")), id(module, "a"));
        });
    }
}

/// Options of a JIT whose later functions are not merged into earlier ones.
fn forgetful(policy: Policy) -> ModuleOptions {
    let similar = Similar { policy, ..Similar::default() };
    let options = ModuleOptions { similar, ..ModuleOptions::default() };
    ModuleOptions { back_end: BackEnd::Jit, remember: false, ..options }
}

/// Without a merge cache, a later flush once took an earlier flush that had remembered nothing for
/// one that had eliminated nothing: code referred to symbols without code.
#[test]
fn later_references_to_eliminated_functions_lead_to_their_code() {
    for policy in [Policy::Off, Policy::Balanced, Policy::Size] {
        let called = ["calls_a", "calls_b"];
        let returned = in_turn(forgetful(policy), &called, |module, merges| {
            define_all(module, &(mixes("local", "a", 1) + &mixes("local", "b", 1)));
            module.flush().unwrap();
            assert_eq!(module.stats().redirects, usize::from(merges));
            define_all(
                module,
                &(calls("export", called[0], "a") + &calls("export", called[1], "b")),
            );
        });
        assert_eq!(returned[0], returned[1]);
    }
}

/// Addresses of eliminated functions, in code and in data: two functions with significant addresses
/// were found equal.
#[test]
fn addresses_that_a_later_flush_compares_stay_apart() {
    let compares = "export function %d(i64) -> i64 system_v {
    fn0 = %a(i64) -> i64 system_v
    fn1 = %b(i64) -> i64 system_v
block0(v0: i64):
    v1 = func_addr.i64 fn0
    v2 = func_addr.i64 fn1
    v3 = icmp eq v1, v2
    v4 = uextend.i64 v3
    return v4
}
";
    for policy in [Policy::Off, Policy::Balanced, Policy::Size] {
        let returned = in_turn(forgetful(policy), &["d"], |module, merges| {
            define_all(module, &(mixes("local", "a", 1) + &mixes("local", "b", 1)));
            module.flush().unwrap();
            assert_eq!(module.stats().redirects, usize::from(merges));
            define_all(module, compares);
            table(module, "t", &["a", "b"]);
            define_all(module, &through("export", "e", "t"));
            module.finalize_definitions().unwrap();
            let [first, second] = [0, 1].map(|entry| call(module, "e", entry));
            assert_eq!([first, second], [0, 1].map(|value| call(module, "a", value)));
        });
        assert_eq!(returned, [0]);
    }
}
