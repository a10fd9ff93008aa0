//! The merge cache is small and grows only with the number of emitted functions.

use cranelift_mergefunc::{Prove, Similar};
use cranelift_mergefunc_module::{MergingModule, ModuleOptions};
use testkit::modules::{calls, define_all, insignificant, jit, merging_jit, plus};

/// The most bytes that the merge cache may take for a function that is alone in its class,
/// including what a hash table keeps free just after it has grown; and the bound if the checker
/// remembers the function as well. `MergeCache::size` has the parts.
const BOUNDS: [(Prove, usize); 2] = [(Prove::Never, 200), (Prove::Always, 400)];

/// The most for a function that merged.
const BOUNDS_MERGED: [(Prove, usize); 2] = [(Prove::Never, 120), (Prove::Always, 240)];

#[test]
fn ten_thousand_emitted_functions_are_remembered_in_bounded_memory() {
    for (prove, bound) in BOUNDS {
        ten_thousand_different(prove, bound);
    }
}

fn ten_thousand_different(prove: Prove, bound: usize) {
    let count = 10_000;
    let options = ModuleOptions { similar: Similar::OFF, prove, ..ModuleOptions::default() };
    let mut module = MergingModule::with_options(jit(), options);
    let mut done = 0;
    while done < count {
        for index in done..done + 500 {
            let name = format!("f{index}");
            let callee = if index > 0 { format!("f{}", index / 2) } else { name.clone() };
            // No two are equal: each adds a number of its own, and half of them call an earlier
            // one.
            let text = match index % 2 {
                0 => plus("local", &name, index),
                _ => calls("local", &name, &callee),
            };
            define_all(&mut module, &text);
        }
        module.flush().unwrap();
        done += 500;
    }
    let each = module.remembered_bytes() / count as usize;
    println!("{each} bytes are remembered of each of {count} different functions, {prove:?}");
    assert!(each <= bound, "{each} bytes of each function");
}

#[test]
fn merged_functions_cost_less() {
    for (prove, bound) in BOUNDS_MERGED {
        ten_thousand_equal(prove, bound);
    }
}

fn ten_thousand_equal(prove: Prove, bound: usize) {
    let count = 10_000;
    let options = ModuleOptions { prove, ..insignificant() };
    let mut module = MergingModule::with_options(jit(), options);
    for round in 0..count / 500 {
        for index in 0..500 {
            define_all(&mut module, &plus("local", &format!("f{round}_{index}"), 3));
        }
        module.flush().unwrap();
    }
    assert_eq!(module.stats().compiled, 1);
    let each = module.remembered_bytes() / count as usize;
    println!("{each} bytes are remembered of each of {count} equal functions, {prove:?}");
    assert!(each <= bound, "{each} bytes of each function");
}

#[test]
fn the_last_flush_remembers_nothing() {
    let mut module = merging_jit();
    define_all(&mut module, &plus("local", "f", 1));
    assert_eq!(module.remembered_bytes(), 0);
    module.flush().unwrap();
    assert!(module.remembered_bytes() > 0);
}
