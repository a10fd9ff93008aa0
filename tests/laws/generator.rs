//! Laws: what the generator draws is valid, and covers what it is meant to cover.

use crate::support::{Rng, encode, parse_one, random, walk_all};
use arbitrary::Unstructured;
use cranelift_codegen::ir::Opcode;
use cranelift_codegen::{Context, verify_function};
use cranelift_mergefunc::{Plan, Reason};
use testkit::check::check_unit;
use testkit::classes::classes;
use testkit::generate::draw::Draw;
use testkit::generate::expected::Relation;
use testkit::generate::function::{Profile, Properties, Seed};
use testkit::generate::near_miss::{self, NearMiss};
use testkit::generate::opcodes::{Machine, recorded, regenerate};
use testkit::generate::opcodes::{Way, way};
use testkit::generate::statistics::Statistics;
use testkit::generate::unit::GeneratedUnit;

#[test]
fn operations_are_those_that_back_ends_compile() {
    for machine in Machine::ALL {
        let table = regenerate(machine);
        if let Some(dir) = std::env::var_os("WRITE_TABLES") {
            let name = format!("{machine:?}").to_lowercase().replace("64v3", "64_v3");
            std::fs::write(std::path::Path::new(&dir).join(name + ".txt"), &table).unwrap();
        } else {
            assert_eq!(table, recorded(machine), "{machine:?}");
        }
    }
}

/// A machine, so that all of them get their share.
fn any_machine(u: &mut Unstructured<'_>) -> arbitrary::Result<Machine> {
    Ok(*u.choose(&Machine::ALL)?)
}

/// A profile, with functions that differ in few instructions at times.
fn any_profile(u: &mut Unstructured<'_>, machine: Machine) -> arbitrary::Result<Profile> {
    let profile = Profile::all(machine);
    Ok(if u.ratio(1, 3)? { profile.differing() } else { profile })
}

/// Panics unless the plan has in one class everything that must be, and nothing that must not be.
fn check_expected(generated: &GeneratedUnit, plan: &Plan) {
    let GeneratedUnit { unit, about, expected, .. } = generated;
    let class: Vec<u32> = plan.entries().map(|(_, entry)| entry.class()).collect();
    for a in 0..unit.functions.len() {
        for b in 0..a {
            let wrong = match expected.relation(a, b) {
                Relation::Equal => class[a] != class[b],
                Relation::Different => class[a] == class[b],
                Relation::Unknown => false,
            };
            assert!(
                !wrong,
                "must be {:?}:\n{:?}\n{}\n{:?}\n{}",
                expected.relation(a, b),
                about[a],
                unit.functions[a].body,
                about[b],
                unit.functions[b].body,
            );
        }
    }
}

#[test]
fn classes_are_as_expected() {
    random(|u| {
        let profile = Profile::all(any_machine(u)?);
        let plain = GeneratedUnit::draw(u, &profile);
        check_expected(&plain, &plain.unit.plan());
        let other = plain.disguised(u.arbitrary()?);
        check_expected(&other, &other.unit.plan());
        Ok(())
    });
}

#[test]
fn expected_classes_follow_from_the_definition() {
    random(|u| {
        let machine = any_machine(u)?;
        let profile = Profile { constant_branches: false, ..Profile::runnable(machine) };
        let GeneratedUnit { unit, expected, about, .. } = GeneratedUnit::draw(u, &profile);
        let oracle = classes(&unit);
        for (a, b) in (0..unit.functions.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let equal = match expected.relation(a, b) {
                Relation::Equal => true,
                Relation::Different => false,
                Relation::Unknown => continue,
            };
            assert_eq!(oracle.equal(a, b), equal, "{:?} {:?}", about[a], about[b]);
        }
        Ok(())
    });
}

#[test]
fn an_applied_unit_is_complete_and_valid() {
    random(|u| {
        let profile = any_profile(u, Machine::host())?;
        let generated = GeneratedUnit::draw(u, &profile);
        check_unit(&generated.unit);
        check_unit(&generated.disguised(u.arbitrary()?).unit);
        Ok(())
    });
}

#[test]
fn functions_pass_the_verifier_and_are_compiled() {
    random(|u| {
        let machine = any_machine(u)?;
        let isa = machine.verifier();
        let profile = any_profile(u, machine)?;
        let generated = GeneratedUnit::draw(u, &profile);
        for (member, about) in generated.unit.functions.into_iter().zip(&generated.about) {
            if let Err(errors) = verify_function(&member.body, isa) {
                panic!("{about:?} {errors}\n{}", member.body);
            }
            if about.runnable {
                let mut context = Context::for_function(member.body);
                if let Err(error) = context.compile(isa, &mut Default::default()) {
                    panic!("{about:?} {:?}\n{}", error.inner, error.func);
                }
            }
        }
        Ok(())
    });
}

#[test]
fn without_input_there_is_a_unit() {
    let mut seen = Vec::new();
    for length in 0..40 {
        let bytes = Rng::new(1).bytes(length);
        let unit =
            GeneratedUnit::draw(&mut Unstructured::new(&bytes), &Profile::all(Machine::host()));
        check_unit(&unit.unit);
        seen.push(unit.unit.functions.len());
    }
    assert_eq!(seen[0], 1);
}

#[test]
fn everything_occurs() {
    // On fixed input, so that what occurs is the same in every run.
    let machine = Machine::host();
    let profile = Profile::all(machine);
    let mut statistics = Statistics::default();
    for seed in 0..160 {
        let bytes = Rng::new(seed).bytes(3000);
        let generated = GeneratedUnit::draw(&mut Unstructured::new(&bytes), &profile);
        statistics.count(&generated, &generated.unit.plan());
    }
    println!("{statistics}");
    let known = machine.operations().by_opcode();
    let mut missing: Vec<String> = Vec::new();
    for &opcode in Opcode::all() {
        let can_occur = match way(opcode) {
            Way::Value | Way::Constant | Way::Memory => known.iter().any(|known| known.0 == opcode),
            Way::Static(_) | Way::Never(_) => false,
            _ => true,
        };
        if can_occur && !statistics.opcodes.contains_key(&opcode.to_string()) {
            missing.push(opcode.to_string());
        }
    }
    for disposition in ["alias", "keep", "redirect", "thunk"] {
        if !statistics.dispositions.contains_key(disposition) {
            missing.push(disposition.into());
        }
    }
    for reason in Reason::ALL {
        // The verifier and the checker refuse nothing, nothing is content-addressed, no data object
        // is thread-local, and few functions are externally called (those of `Unit::random` are).
        let never = [
            Reason::Malformed,
            Reason::NotProved,
            Reason::ContentAddressed,
            Reason::ThreadLocal,
            Reason::ThunkCheaper,
        ];
        if !never.contains(&reason) && !statistics.reasons.contains_key(&reason) {
            missing.push(reason.to_string());
        }
    }
    assert_eq!(missing, [""; 0], "{statistics}");
}

/// Near misses of one function that differ from it at different instructions differ from each
/// other. That does not hold for instructions that do nothing.
#[test]
fn near_misses_at_different_places_differ() {
    let func = parse_one(
        "function u0:0(i64, i64) -> i64 system_v {
block0(v0: i64, v1: i64):
    nop
    nop
    sequence_point
    nop
    v2 = isub v0, v1
    sequence_point
    nop
    return v2
}",
    );
    let seed = Seed { func, properties: Properties::default() };
    let mut misses: Vec<NearMiss> = Vec::new();
    for at in 0..300 {
        let bytes = Rng::new(at).bytes(64);
        let mut bytes = Unstructured::new(&bytes);
        misses.extend(near_miss::any(&mut Draw::new(&mut bytes), &seed, Machine::X86_64));
    }
    let options = walk_all();
    let mut pairs = 0;
    for (at, one) in misses.iter().enumerate() {
        for other in &misses[..at] {
            if one.site.is_some() && other.site.is_some() && one.site != other.site {
                let [a, b] = [one, other].map(|miss| encode(&miss.func, &options));
                assert_ne!(a, b, "{} and {}", one.what, other.what);
                pairs += 1;
            }
        }
    }
    assert!(pairs > 100, "{pairs}");
}
