//! The use of the input by the fuzz targets, so that tests can repeat it.
//!
//! Each is a function that panics if something is wrong, and returns an error if the input is too
//! short to be of use. `module` and `text` have modules of their own.

use crate::aligned::{check_exchange, exchanges};
use crate::augmented::augmented_with_merged;
use crate::check::check_unit;
use crate::classes::classes;
use crate::differential::{Comparison, Effort, Host, Tally, check_some};
use crate::generate::expected::Relation;
use crate::generate::function::Profile;
use crate::generate::opcodes::Machine;
use crate::generate::unit::GeneratedUnit;
use crate::mutate::{Mutant, mutants_of};
use crate::permute::{Colocated, permuted};
use crate::program::Parts;
use crate::support::{Rng, any_isa, walk_all};
use crate::unit::{Member, Unit};
use arbitrary::{Result, Unstructured};
use cranelift_codegen::ir::{Block, Function, Inst, UserExternalName};
use cranelift_mergefunc::check::may_replace;
use cranelift_mergefunc::explain::{Encoding, structural_hash};
use cranelift_mergefunc::internals::decided;
use cranelift_mergefunc::{Disposition, FunctionIndex, Options, Plan, Prove};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A unit, and which of its functions are equal.
struct Known {
    unit: Unit,
    relation: Box<dyn Fn(usize, usize) -> Relation>,
    /// Whether two functions may do the same: the checker accepts that one may replace the other if
    /// their addresses cannot be distinguished, though the walk compares these by name.
    same: Box<dyn Fn(usize, usize) -> bool>,
}

fn known(u: &mut Unstructured<'_>) -> Result<Known> {
    if u.arbitrary()? {
        let unit = Unit::random(u)?;
        let oracle = classes(&unit);
        let relation = move |a, b| match oracle.equal(a, b) {
            true => Relation::Equal,
            false => Relation::Different,
        };
        let options = walk_all();
        let without_references = |member: &Member| {
            let encoding = Encoding::of(&member.body, &options)?;
            let [shape, constants, _] = encoding.key().map(<[u8]>::to_vec);
            Some((member.attributes.key, shape, constants))
        };
        let bodies: Vec<_> = unit.functions.iter().map(without_references).collect();
        let same = move |a: usize, b: usize| bodies[a] == bodies[b];
        return Ok(Known { unit, relation: Box::new(relation), same: Box::new(same) });
    }
    let profile = Profile::all(*u.choose(&Machine::ALL)?);
    let profile = if u.ratio(1, 3)? { profile.differing() } else { profile };
    let GeneratedUnit { unit, expected, .. } = GeneratedUnit::draw(u, &profile);
    let expected = Rc::new(expected);
    let relations = Rc::clone(&expected);
    Ok(Known {
        unit,
        relation: Box::new(move |a, b| relations.relation(a, b)),
        same: Box::new(move |a, b| expected.do_the_same(a, b)),
    })
}

/// Panics unless the classes of a plan are the right ones.
fn check_classes(known: &Known, plan: &Plan) {
    let Known { unit, relation, same: _ } = known;
    let class: Vec<u32> = plan.entries().map(|(_, entry)| entry.class()).collect();
    for a in 0..unit.functions.len() {
        for b in 0..a {
            let wrong = match relation(a, b) {
                Relation::Equal => class[a] != class[b],
                Relation::Different => class[a] == class[b],
                Relation::Unknown => false,
            };
            let body = |at: usize| &unit.functions[at].body;
            assert!(!wrong, "must be {:?}:\n{}\n{}", relation(a, b), body(a), body(b));
        }
    }
}

/// The disposition of each function, by symbol.
fn outcomes(plan: &Plan) -> BTreeMap<(u32, u32), String> {
    let entries = plan.entries().map(|(_, entry)| {
        let UserExternalName { namespace, index } = *entry.symbol();
        let outcome = entry.disposition().map(|to| plan.entry(to).symbol().to_string());
        let (class, reason) = (entry.class(), entry.reason());
        ((namespace, index), format!("{class} {reason} {outcome:?} {}", entry.alignment()))
    });
    entries.collect()
}

/// The order of encodings, hashes, and classes: equal functions are equal in every form, in every
/// order and whatever their hashes are, and nothing else is.
pub fn order(u: &mut Unstructured<'_>) -> Result<()> {
    let mut known = known(u)?;
    let seed = u.arbitrary().unwrap_or(0);
    let mut rng = Rng::new(seed);
    check_order(&known.unit, &mut rng);

    known.unit.options.compare.every_function = true;
    let plan = check_unit(&known.unit).plan;
    check_classes(&known, &plan);
    let right = outcomes(&plan);

    let other_forms = known.unit.permuted(Colocated::Change, seed);
    check_unit(&other_forms);
    let same_imports = known.unit.permuted(Colocated::Keep, seed);
    // Code that is never executed may take addresses, so the disposition of a function may change.
    let class = |plan: &Plan| -> Vec<u32> {
        plan.entries().take(plan.added()).map(|(_, entry)| entry.class()).collect()
    };
    assert_eq!(class(&plan), class(&same_imports.plan()), "in another form");
    let mut other_order = known.unit.clone();
    rng.shuffle(&mut other_order.functions);
    rng.shuffle(&mut other_order.data);
    assert_eq!(right, outcomes(&other_order.plan()), "in another order");
    Ok(())
}

/// The laws of a total order, and that equal implies same hash, for some functions and their
/// mutants.
fn check_order(unit: &Unit, rng: &mut Rng) {
    let options = walk_all();
    let mut encodings: Vec<Encoding> = Vec::new();
    for Member { body, .. } in unit.functions.iter().take(4) {
        let Some(encoding) = Encoding::of(body, &options) else {
            panic!("has no encoding:\n{body}");
        };
        let other = Encoding::of(&permuted(body, Colocated::Change, rng.word()), &options);
        assert_eq!(Some(&encoding), other.as_ref(), "another form of\n{body}");
        let mutant = some_mutant(body, &sites(body, body.layout.blocks()), rng);
        encodings.extend(mutant.and_then(|mutant| Encoding::of(&mutant.func, &options)));
        encodings.extend([Some(encoding), other].into_iter().flatten());
    }
    for a in &encodings {
        for b in &encodings {
            assert_eq!(a.cmp(b), b.cmp(a).reverse());
            assert_eq!(a == b, a.cmp(b) == Ordering::Equal);
            assert!(a != b || structural_hash(a) == structural_hash(b), "equal, and hashed apart");
        }
    }
    encodings.sort();
    for (at, a) in encodings.iter().enumerate() {
        assert!(encodings[at..].iter().all(|b| a <= b), "not transitive");
    }
}

/// A function with one change at one of these instructions.
fn some_mutant(func: &Function, sites: &[(Block, Inst)], rng: &mut Rng) -> Option<Mutant> {
    if sites.is_empty() {
        return None;
    }
    let (block, inst) = rng.choose(sites);
    let mut mutants = mutants_of(func, block, inst);
    match mutants.is_empty() {
        true => None,
        false => Some(mutants.swap_remove(rng.below(mutants.len()))),
    }
}

/// The instructions of some blocks.
fn sites(func: &Function, blocks: impl Iterator<Item = Block>) -> Vec<(Block, Inst)> {
    let in_block = |block| func.layout.block_insts(block).map(move |inst| (block, inst));
    blocks.flat_map(in_block).collect()
}

/// A function with one change that certainly changes its meaning: the change is at an instruction
/// that is always executed, and not at a branch, which may jump to the same block on another
/// condition that is known.
fn another_function(func: &Function, rng: &mut Rng) -> Option<Function> {
    let mut sites = sites(func, func.layout.entry_block().into_iter());
    sites.pop();
    let mutant = some_mutant(func, &sites, rng)?;
    mutant.is_certain().then_some(mutant.func)
}

/// The independent checker: it proves a right plan in every form, and refuses every mutant and
/// every plan that merges functions that are not equal, whatever fault led to it.
pub fn checker(u: &mut Unstructured<'_>) -> Result<()> {
    let mut known = known(u)?;
    let mut rng = Rng::new(u.arbitrary().unwrap_or(0));
    known.unit.options.prove = Prove::Never;
    known.unit.options.compare.every_function = true;
    let options = Options { aliases: false, ..known.unit.options };

    let body = &known.unit.functions[rng.below(known.unit.functions.len())].body;
    let other = permuted(body, Colocated::Keep, rng.word());
    for (kept, original) in [(body, &other), (&other, body)] {
        if let Err(refutation) = may_replace(kept, original, &options) {
            panic!("{refutation}\n{kept}\n{original}");
        }
    }
    // Of no target in particular: on a known one, two ways to say its byte order are one.
    let options = walk_all();
    if let Some(mutant) = another_function(body, &mut rng) {
        for (kept, original) in [(body, &mutant), (&mutant, body)] {
            assert!(may_replace(kept, original, &options).is_err(), "{kept}\n{original}");
        }
    }

    let Known { unit, same, relation: _ } = &known;
    let plan = unit.plan();
    if let Err(refutation) = unit.prove(&plan) {
        panic!("{refutation}");
    }
    if plan.new_bodies().iter().any(|new| new.copy_of().is_none()) {
        check_unit(&augmented_with_merged(unit, &plan, rng.word()).0);
    }
    // The same plan, but for one function, which is merged into any other one.
    let [function, to] =
        [(); 2].map(|()| FunctionIndex::from_u32(rng.below(unit.functions.len()) as u32));
    let disposition = match rng.below(3) {
        0 => Disposition::Redirect { to },
        1 => Disposition::Alias { to },
        _ => Disposition::Thunk { to },
    };
    let wrong = decided(plan, function, disposition);
    let count = unit.functions.len();
    let is_wrong = wrong.entries().take(count).enumerate().any(|(at, (_, entry))| {
        let to = entry.disposition().representative().map(|to| to.as_u32() as usize);
        to.filter(|&to| to < count).is_some_and(|to| !same(at, to))
    });
    // With extra arguments, values that are unused and computed from constants alone may differ.
    let strict = wrong.entries().all(|(_, entry)| entry.extra_arguments().is_empty());
    assert!(!is_wrong || !strict || unit.prove(&wrong).is_err(), "{disposition:?} of {function:?}");
    Ok(())
}

/// Differential execution on this machine: the merged unit does what the unmerged one does. So does
/// one of which the checker accepts a wrong selector.
pub fn differential(u: &mut Unstructured<'_>, host: &mut Host<'_>) -> Result<Tally> {
    let seed: u64 = u.arbitrary()?;
    let profile = Profile::runnable(Machine::host());
    let differs = u.ratio(1, 3)?;
    let profile = if differs { profile.differing() } else { profile };
    let GeneratedUnit { mut unit, about, .. } = GeneratedUnit::draw(u, &profile);
    if about.iter().any(|about| !about.runnable) {
        return Ok(Tally::default());
    }
    if seed % 8 == 2 {
        let comparison = Comparison::canonical(&unit, any_isa(), seed, Effort::default());
        return Ok(comparison.map_or(Tally::default(), |comparison| {
            comparison.run(host).unwrap_or_else(|difference| panic!("{difference}"))
        }));
    }
    if differs && seed.is_multiple_of(4) {
        unit.options.prove = Prove::Never;
        let parts = Parts::from(&unit);
        let exchanges = exchanges(&parts, &parts.plan());
        if !exchanges.is_empty() {
            let exchange = &exchanges[Rng::new(seed).below(exchanges.len())];
            check_exchange(&parts, exchange, seed, host);
        }
        unit.options.prove = Prove::default();
    }
    let mut called = vec![true; unit.functions.len()];
    if seed % 2 == 1 {
        let plan = unit.plan();
        if plan.new_bodies().iter().any(|new| new.copy_of().is_none()) {
            (unit, called) = augmented_with_merged(&unit, &plan, seed);
        }
    }
    Ok(check_some(&Parts::from(&unit), &called, seed, Effort::default(), host))
}
