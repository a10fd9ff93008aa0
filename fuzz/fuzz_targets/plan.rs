//! Random units: planned, rechecked, applied, and compared with the brute-force oracle.
#![cfg_attr(fuzzing, no_main)]

mod shared;

use arbitrary::Unstructured;
// By name at the root, because the shared modules find each other there.
use shared::*;
use {check::check_unit, oracle::classes, permute::Facts, units::Unit};

fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    let Ok(unit) = Unit::random(&mut u) else { return };
    let oracle = classes(&unit);
    let other = unit.permuted(Facts::Change, u.arbitrary().unwrap_or(0));
    for plan in [check_unit(&unit).plan, check_unit(&other).plan] {
        let class: Vec<u32> = plan.entries().map(|(_, entry)| entry.class()).collect();
        for (a, b) in (0..unit.functions.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
            assert_eq!(class[a] == class[b], oracle.equal(a, b), "u0:{a} and u0:{b}");
        }
    }
});
