//! Laws: functions that state different facts are different, and a body may state no fact that
//! holds for one of its functions only.

use crate::irrelevant::{accesses, each, with_bits};
use crate::support::{corpus, encode, same_class, trace, walk_all};
use cranelift_codegen::ir::{AliasRegionData, Function};
use cranelift_mergefunc::check::{Mismatch, may_replace};

/// A change of what a function lets the optimiser assume.
struct Change {
    what: &'static str,
    /// All ways to make the change once.
    apply: fn(&Function) -> Vec<Function>,
    /// Whether one of the two functions states all that the other one states. A region that only
    /// one access has is a fact of which neither function has the other's.
    one_way: bool,
}

const FACTS: &[Change] = &[
    Change {
        what: "aligned",
        apply: |func| accesses(func, |_, data| Some(with_bits(data, |bits| bits.0 = !bits.0))),
        one_way: true,
    },
    Change {
        what: "readonly",
        apply: |func| accesses(func, |_, data| Some(with_bits(data, |bits| bits.1 = !bits.1))),
        one_way: true,
    },
    Change {
        what: "can_move",
        apply: |func| accesses(func, |_, data| Some(with_bits(data, |bits| bits.2 = !bits.2))),
        one_way: true,
    },
    Change {
        what: "no alias region",
        apply: |func| {
            accesses(func, |_, data| data.alias_region().map(|_| data.with_alias_region(None)))
        },
        one_way: false,
    },
    Change {
        what: "another alias region",
        apply: |func| {
            accesses(func, |func, data| {
                let region = AliasRegionData { user_id: 900, description: "new".into() };
                Some(data.with_alias_region(Some(func.dfg.alias_regions.insert(region))))
            })
        },
        one_way: false,
    },
    Change {
        what: "cold block",
        apply: |func| {
            each(func.layout.blocks(), func, |func, block| {
                let was = func.layout.is_cold(block);
                func.layout.set_cold(block);
                !was
            })
        },
        one_way: true,
    },
];

/// The optimiser relies on facts, and on regions for what loads and stores may exchange places. So
/// what one of two functions states must not become true of the other.
#[test]
fn functions_that_differ_in_a_fact_are_different() {
    let options = walk_all();
    for &Change { what, apply, one_way } in FACTS {
        let mut changed = 0;
        for func in corpus() {
            for other in apply(&func) {
                changed += 1;
                assert_ne!(
                    encode(&func, &options),
                    encode(&other, &options),
                    "{what}\n{func}\n{other}"
                );
                assert!(!same_class(&func, &other, options), "{what}\n{func}\n{other}");
                assert_ne!(trace(&func), trace(&other), "{what}\n{func}\n{other}");
                let ways = [(&func, &other), (&other, &func)].map(|(kept, original)| {
                    let proved = may_replace(kept, original, &options);
                    proved.map_err(|refutation| refutation.mismatch)
                });
                let refused = ways.iter().filter(|way| **way == Err(Mismatch::Fact)).count();
                let accepted = ways.iter().filter(|way| way.is_ok()).count();
                assert_eq!(refused + accepted, 2, "{what}: {ways:?}\n{func}\n{other}");
                assert!(refused > 0, "{what}: neither states more\n{func}\n{other}");
                assert!(!one_way || accepted == 1, "{what}: {ways:?}\n{func}\n{other}");
            }
        }
        assert!(changed > 2, "{what}: {changed}");
    }
}
