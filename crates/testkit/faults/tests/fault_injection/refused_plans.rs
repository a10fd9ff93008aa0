//! Plans with a fault are refused by the checker, and what an embedder gets instead.

use arbitrary::Unstructured;
use cranelift_codegen::ir::UserExternalName;
use cranelift_mergefunc::fault_injection::{Fault, planted};
use cranelift_mergefunc::internals::decided;
use cranelift_mergefunc::{Plan, Disposition, FunctionIndex, Linkage, Options, Prove, Reason, cranelift_codegen};
use cranelift_mergefunc::check::{Mismatch, Proof};
use cranelift_mergefunc::data::{DataAttributes, DataObject, DataReloc, Contents};
use std::collections::BTreeSet;
use testkit::generate::function::Profile;
use testkit::generate::opcodes::Machine;
use testkit::generate::unit::GeneratedUnit;
use testkit::unit::{DataMember, Member, Unit};
use testkit::support::{Rng, free, parse};

/// Functions of a text, planned with a merge limit of 0, so that the tests can set dispositions
/// themselves.
fn unit(text: &str) -> Unit {
    let functions = parse(text).into_iter().map(|body| Member { attributes: free(), body });
    let options = Options { merge_limit: Some(0), prove: Prove::Never, ..Options::default() };
    Unit { functions: functions.collect(), data: Vec::new(), options }
}

fn proven(unit: &Unit, plan: &Plan) -> Result<Proof, Mismatch> {
    unit.prove(plan).map_err(|refutation| refutation.mismatch)
}

fn at(index: u32) -> FunctionIndex {
    FunctionIndex::from_u32(index)
}

fn data_member(index: u32, byte: u8, attributes: DataAttributes) -> DataMember {
    let contents = Contents::Bytes(vec![byte; 8]);
    let object = DataObject { contents, relocations: Vec::new(), section: None };
    DataMember { symbol: UserExternalName::new(1, index), object, attributes }
}

/// Two equal functions, and one that calls the first.
const DUPLICATES: &str = "
function u0:0() system_v {
block0:
    trap user1
}
function u0:1() system_v {
block0:
    trap user1
}
function u0:2() system_v {
    fn0 = u0:0() system_v
block0:
    call fn0()
    return
}
";

/// A plan is right only if the functions that `apply` rewrites are right: the checker checks the
/// rewritten functions.
#[test]
fn wrong_rewrites_are_refused() {
    // `u0:1` is eliminated; other functions call it and take its address.
    let text = DUPLICATES.replace("u0:0", "u0:9").replace("u0:1", "u0:0").replace("u0:9", "u0:1")
        + "function u0:3() -> i64 system_v {
    fn0 = u0:1() system_v
block0:
    call fn0()
    v0 = func_addr.i64 fn0
    return v0
}
function u0:4() system_v {
block0:
    trap user2
}
";
    let mut given = unit(&text);
    let index = |symbol: u32| {
        let at_symbol = |member: &Member| member.symbol() == UserExternalName::new(0, symbol);
        at(given.functions.iter().position(at_symbol).expect("of the unit") as u32)
    };
    let (eliminated, kept) = (index(1), index(0));
    let redirected =
        |given: &Unit| decided(given.plan(), eliminated, Disposition::Redirect { to: kept });
    let refuses = |given: &Unit, fault| {
        let plan = redirected(given);
        assert!(proven(given, &plan).is_ok());
        planted(fault, || proven(given, &plan)).is_err()
    };
    for fault in [
        Fault::NothingRedirected,
        Fault::RedirectForgotten,
        Fault::CalleesExchanged,
        Fault::Colocated,
    ] {
        assert!(refuses(&given, fault), "{fault:?}");
    }
    // Only a pointer refers to the eliminated function.
    given.functions.retain(|member| matches!(member.symbol().index, 0 | 1 | 4));
    assert!(!refuses(&given, Fault::NothingRedirected));
    let mut table = data_member(0, 0, DataAttributes::default());
    let target = UserExternalName::new(0, 1);
    table.object.relocations = vec![DataReloc { offset: 0, target, addend: 0 }];
    given.data = vec![table];
    assert!(refuses(&given, Fault::NothingRedirected));
}

/// The result of `Options::prove` for a refused plan: the plan of the same unit without any merge.
#[test]
fn a_refused_plan_is_replaced_by_one_without_merges() {
    let (mut refused, mut copied, mut merged_data) = (0, 0, 0);
    for seed in 0..200 {
        let bytes = Rng::new(seed).bytes(2048);
        let profile = Profile::all(Machine::X86_64);
        let GeneratedUnit { mut unit, .. } =
            GeneratedUnit::draw(&mut Unstructured::new(&bytes), &profile);
        unit.options.compare.every_function = true;
        unit.options.prove = Prove::Never;
        let fault = match seed % 4 {
            // All preemptible functions are called by name, so the fault must be in the bodies.
            0 => {
                for member in &mut unit.functions {
                    member.attributes.linkage = Linkage::Preemptible;
                }
                Fault::IntegerConstant
            }
            _ => Fault::NoRefinement,
        };
        let wrong = planted(fault, || unit.plan());
        unit.options.prove = Prove::Always;
        let plan = planted(fault, || unit.plan());
        let Some(Err(_)) = plan.proof() else {
            assert!(matches!(plan.proof(), Some(Ok(_))));
            continue;
        };
        refused += 1;
        copied += wrong.new_bodies().iter().filter(|new| new.copy_of().is_some()).count();
        merged_data += wrong.stats().merged.data_objects;

        assert_eq!(plan.entries().count(), unit.functions.len());
        assert_eq!(plan.data_entries().count(), unit.data.len());
        assert!(plan.new_bodies().is_empty());
        let mut classes = BTreeSet::new();
        for ((index, entry), member) in plan.entries().zip(&unit.functions) {
            assert_eq!(entry.disposition(), Disposition::Keep);
            assert_eq!(entry.reason(), Reason::NotProved);
            assert_eq!(entry.alignment(), member.attributes.alignment);
            assert_eq!(plan.function(entry.symbol()), Some(index));
            assert!(classes.insert(entry.class()));
            let mut func = member.body.clone();
            assert!(!plan.apply(index, &mut func));
            assert!(func.stencil == member.body.stencil);
        }
        for ((index, entry), member) in plan.data_entries().zip(&unit.data) {
            assert_eq!(entry.disposition(), Disposition::Keep);
            assert_eq!(entry.reason(), Reason::NotProved);
            assert_eq!(entry.alignment(), member.attributes.alignment);
            assert_eq!(plan.data(entry.symbol()), Some(index));
            assert!(classes.insert(entry.class()));
        }
        let all = classes.len() as u32;
        assert_eq!(classes.last(), Some(&(all - 1)));
        for new in wrong.new_bodies() {
            assert_eq!(plan.function(wrong.entry(new.function()).symbol()), None);
        }
        let mut stats = *wrong.stats();
        stats.plan_members = 0;
        stats.merged.functions = 0;
        stats.merged.data_objects = 0;
        stats.merged.data_bytes = 0;
        stats.similar.bodies = 0;
        stats.similar.merged = 0;
        assert_eq!(*plan.stats(), stats);
    }
    assert!(refused > 10, "{refused}");
    let all = [copied, merged_data];
    assert!(all.iter().all(|&count| count > 0), "{all:?}");
}
