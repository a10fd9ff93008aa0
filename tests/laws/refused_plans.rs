//! Law: the checker refuses a plan exactly if a function or a data object loses something
//! observable.
//!
//! Here the plans are made by hand: a function with any combination of attributes gets any
//! disposition. The right answer is defined in `may_become`, from the meaning of the attributes,
//! not from the code.

use crate::support::{free, parse};
use cranelift_codegen::ir::UserExternalName;
use cranelift_mergefunc::check::{Mismatch, Proof};
use cranelift_mergefunc::data::{Contents, DataAttributes, DataIndex, DataObject, DataReloc};
use cranelift_mergefunc::internals::{aligned, data_aligned, data_decided, decided};
use cranelift_mergefunc::thunk::CallThunks;
use cranelift_mergefunc::{
    Addresses, Attributes, Disposition, FunctionIndex, Linkage, Options, Plan, Prove, Target,
};
use testkit::unit::{DataMember, Member, Unit};

/// Functions of a text, planned with a merge limit of 0, so that the tests can set dispositions
/// themselves.
pub fn unit(text: &str) -> Unit {
    let functions = parse(text).into_iter().map(|body| Member { attributes: free(), body });
    let options = Options { merge_limit: Some(0), prove: Prove::Never, ..Options::default() };
    Unit { functions: functions.collect(), data: Vec::new(), options }
}

pub fn proven(unit: &Unit, plan: &Plan) -> Result<Proof, Mismatch> {
    unit.prove(plan).map_err(|refutation| refutation.mismatch)
}

pub fn at(index: u32) -> FunctionIndex {
    FunctionIndex::from_u32(index)
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

/// The dispositions that the first function can have if the second has its body.
fn to_1() -> [Disposition; 3] {
    let to = at(1);
    [Disposition::Redirect { to }, Disposition::Alias { to }, Disposition::Thunk { to }]
}

/// All combinations of attributes that affect the decision, with one key and one alignment.
fn all_attributes() -> Vec<Attributes> {
    let mut all = Vec::new();
    for linkage in Linkage::ALL {
        for addresses in Addresses::ALL {
            for bits in 0..16 {
                let [address_taken, externally_called, pinned, no_merge] =
                    [1, 2, 4, 8].map(|bit| bits & bit != 0);
                all.push(Attributes {
                    linkage,
                    addresses,
                    address_taken,
                    externally_called,
                    pinned,
                    no_merge,
                    ..free()
                });
            }
        }
    }
    all
}

/// Whether this disposition of a function loses nothing observable, if the kept function has the
/// attributes `kept`.
pub fn may_become(
    disposition: Disposition,
    member: &Attributes,
    kept: &Attributes,
    options: &Options<'_>,
) -> bool {
    let not_merged = [member, kept].iter().any(|one| one.pinned || one.no_merge);
    if not_merged || kept.linkage == Linkage::Preemptible {
        return false;
    }
    // Code that the pass does not see can use the symbol, and can compare the address if it can
    // obtain it.
    let can_be_named = member.linkage != Linkage::Local;
    let matters = member.addresses == Addresses::Significant;
    match disposition {
        Disposition::Keep => true,
        Disposition::Redirect { .. } => {
            let is_named = can_be_named || member.externally_called;
            let is_compared = matters && member.address_taken;
            !is_named && !is_compared
        }
        Disposition::Alias { .. } => {
            options.aliases && !(matters && (can_be_named || member.address_taken))
        }
        Disposition::Thunk { .. } => options.target.jump_thunk.is_some(),
    }
}

#[test]
fn functions_lose_nothing_observable() {
    let mut refused = 0;
    // The kept function keeps its own symbol and address.
    let kept = all_attributes();
    let kept = kept.iter().filter(|kept| kept.externally_called == kept.address_taken);
    let kept: Vec<_> = kept.filter(|kept| kept.addresses == Addresses::ALL[0]).collect();
    let mut given = unit(DUPLICATES);
    for aliases in [false, true] {
        for target in [Target::generic(), Target::x86_64()] {
            given.options = Options { aliases, target, ..given.options };
            for member in all_attributes() {
                for &kept in &kept {
                    given.functions[0].attributes = member;
                    given.functions[1].attributes = *kept;
                    for disposition in to_1() {
                        let plan = decided(given.plan(), at(0), disposition);
                        let right = may_become(disposition, &member, kept, &given.options);
                        let proof = proven(&given, &plan);
                        let what = format!("{disposition:?} {member:?} {kept:?}");
                        assert_eq!(proof.is_ok(), right, "{what} {proof:?}");
                        refused += usize::from(!right);
                    }
                }
            }
        }
    }
    assert!(refused > 1000);
}

#[test]
fn proofs_are_counted() {
    let given = unit(DUPLICATES);
    let proof = proven(&given, &given.plan()).expect("is right");
    assert_eq!(
        (proof.merged, proof.rewritten, proof.related, proof.data, proof.incremental),
        (0, 0, 0, 0, 0)
    );
    let plan = decided(given.plan(), at(0), to_1()[0]);
    let proof = proven(&given, &plan).expect("is right");
    assert_eq!(
        (proof.merged, proof.rewritten, proof.related, proof.data, proof.incremental),
        (1, 1, 0, 0, 0)
    );
}

#[test]
fn a_function_is_replaced_only_by_a_kept_and_equal_one() {
    // To a function that is itself eliminated.
    let given = unit(DUPLICATES);
    let plan = decided(given.plan(), at(0), to_1()[0]);
    let plan = decided(plan, at(1), Disposition::Redirect { to: at(0) });
    assert_eq!(proven(&given, &plan), Err(Mismatch::NoBody));
    // To a function that is not equal.
    let plan = decided(given.plan(), at(0), Disposition::Redirect { to: at(2) });
    assert_eq!(proven(&given, &plan), Err(Mismatch::Opcode));
    // To a function with another key.
    let mut given = unit(DUPLICATES);
    given.functions[1].attributes.key = 1;
    let plan = decided(given.plan(), at(0), to_1()[0]);
    assert_eq!(proven(&given, &plan), Err(Mismatch::Key));
    // To a function that is aligned less; a thunk has an address of its own.
    let mut given = unit(DUPLICATES);
    given.functions[0].attributes.alignment = 32;
    given.options.target = Target::x86_64();
    given.options.aliases = true;
    for disposition in to_1() {
        for (own, of_kept) in [(32, 32), (1, 32), (32, 1)] {
            let plan = aligned(decided(given.plan(), at(0), disposition), at(0), own);
            let is_thunk = matches!(disposition, Disposition::Thunk { .. });
            let right = if is_thunk { own == 32 } else { of_kept == 32 };
            let proof = proven(&given, &aligned(plan, at(1), of_kept)).map(drop);
            let wanted = if right { Ok(()) } else { Err(Mismatch::Alignment) };
            assert_eq!(proof, wanted, "{disposition:?} {own} {of_kept}");
        }
    }
    // A kept function has the requested alignment.
    let plan = aligned(given.plan(), at(0), 16);
    assert_eq!(proven(&given, &plan), Err(Mismatch::Alignment));
}

#[test]
fn a_call_thunk_replaces_only_functions_that_cannot_observe_it() {
    let sees = "function u0:0() -> i64 system_v {\nblock0:\n    v0 = get_frame_pointer.i64\n    return v0\n}
function u0:1() -> i64 system_v {\nblock0:\n    v0 = get_frame_pointer.i64\n    return v0\n}\n";
    let tail = DUPLICATES.replace("system_v", "tail");
    for (text, tail_calls, right) in [
        (DUPLICATES, false, true),
        (DUPLICATES, true, true),
        (&tail, false, false),
        (&tail, true, true),
        (sees, true, false),
        (&sees.replace("get_frame_pointer", "get_return_address"), true, false),
    ] {
        let mut given = unit(text);
        given.options.target = Target::generic();
        given.options.target.call_thunks = Some(CallThunks { tail_calls, colocated: false });
        let plan = decided(given.plan(), at(0), to_1()[2]);
        let wanted = if right { Ok(()) } else { Err(Mismatch::NotAllowed) };
        assert_eq!(proven(&given, &plan).map(drop), wanted, "{text}");
    }
}

/// A plan pins what something points into. The checker sees the pointer as well, so a plan that was
/// made as if there were none is refused.
#[test]
fn a_pointer_into_a_function_needs_its_own_code() {
    let text = DUPLICATES
        .replace("fn0 = u0:0() system_v", "gv0 = symbol u0:0+4")
        .replace("call fn0()", "v0 = symbol_value.i64 gv0");
    let mut given = unit(&text);
    given.options.target = Target::x86_64();
    given.options.aliases = true;
    let mut overlooked = unit(&text.replace("+4", ""));
    overlooked.options = given.options;
    for (disposition, mismatch) in
        to_1().into_iter().zip([Mismatch::Reference, Mismatch::LostAddress, Mismatch::LostAddress])
    {
        let plan = decided(given.plan(), at(0), disposition);
        assert_eq!(proven(&given, &plan), Err(Mismatch::NotMerged), "{disposition:?}");
        let plan = decided(overlooked.plan(), at(0), disposition);
        assert_eq!(proven(&given, &plan), Err(mismatch), "{disposition:?}");
    }
}

/// The data object `u1:index` of eight bytes that are `byte`.
pub fn data_member(index: u32, byte: u8, attributes: DataAttributes) -> DataMember {
    let contents = Contents::Bytes(vec![byte; 8]);
    let object = DataObject { contents, relocations: Vec::new(), section: None };
    DataMember { symbol: UserExternalName::new(1, index), object, attributes }
}

/// Plans for data objects, which have no addresses that are only used by chance.
#[test]
fn data_objects_lose_nothing_observable() {
    let mut all = Vec::new();
    for linkage in Linkage::ALL {
        for addresses in Addresses::ALL {
            for bits in 0..16 {
                let [externally_called, pinned, writable, tls] =
                    [1, 2, 4, 8].map(|bit| bits & bit != 0);
                all.push(DataAttributes {
                    linkage,
                    addresses,
                    externally_used: externally_called,
                    pinned,
                    writable,
                    tls,
                    key: 0,
                    alignment: 1,
                });
            }
        }
    }
    let to = DataIndex::from_u32(1);
    for member in &all {
        for kept in &all {
            if (kept.writable, kept.tls) != (member.writable, member.tls) {
                continue;
            }
            let mut given = unit("");
            given.options.aliases = !kept.externally_used;
            given.data = vec![data_member(0, 7, *member), data_member(1, 7, *kept)];
            for disposition in
                [Disposition::Redirect { to }, Disposition::Alias { to }, Disposition::Thunk { to }]
            {
                let plan = data_decided(given.plan(), DataIndex::from_u32(0), disposition);
                let can_merge = !member.writable && !member.tls && !member.pinned && !kept.pinned;
                let preemptible =
                    [member, kept].iter().any(|one| one.linkage == Linkage::Preemptible);
                let matters = member.addresses == Addresses::Significant;
                let becomes = match disposition {
                    Disposition::Redirect { .. } => {
                        member.linkage == Linkage::Local && !member.externally_used
                    }
                    Disposition::Alias { .. } => given.options.aliases,
                    Disposition::Keep | Disposition::Thunk { .. } => false,
                };
                let right = can_merge && !preemptible && !matters && becomes;
                let proof = proven(&given, &plan);
                assert_eq!(proof.is_ok(), right, "{disposition:?} {member:?} {kept:?} {proof:?}");
                if let Ok(proof) = proof {
                    assert_eq!((proof.data, proof.merged), (1, 0));
                }
            }
        }
    }
    // Other contents, another key, a smaller alignment.
    let other = DataAttributes {
        linkage: Linkage::Local,
        addresses: Addresses::Insignificant,
        ..DataAttributes::default()
    };
    let mut elsewhere = data_member(0, 7, other);
    elsewhere.object.section = Some("s".into());
    let other_key = DataAttributes { key: 1, ..other };
    let mut given = unit("");
    for member in [data_member(0, 8, other), data_member(0, 7, other_key), elsewhere] {
        given.data = vec![member, data_member(1, 7, other)];
        let plan = data_decided(given.plan(), DataIndex::from_u32(0), Disposition::Redirect { to });
        assert_eq!(proven(&given, &plan), Err(Mismatch::Data));
    }
    let aligned = DataAttributes { alignment: 64, ..other };
    given.data = vec![data_member(0, 7, aligned), data_member(1, 7, other)];
    for (alignment, wanted) in [(64, Ok(1)), (32, Err(Mismatch::Alignment))] {
        let redirect = Disposition::Redirect { to };
        let plan = data_decided(given.plan(), DataIndex::from_u32(0), redirect);
        let proof = proven(&given, &data_aligned(plan, to, alignment));
        assert_eq!(proof.map(|proof| proof.data), wanted);
    }
}

/// Pointers are compared by place, whatever the order in which they are given; of several at one
/// place the last counts, and so does their order.
#[test]
fn a_data_object_may_replace_another_with_the_same_pointers() {
    let insignificant = DataAttributes {
        linkage: Linkage::Local,
        addresses: Addresses::Insignificant,
        ..DataAttributes::default()
    };
    let pointer = |offset: u32, target: u32, addend: i64| DataReloc {
        offset,
        target: UserExternalName::new(7, target),
        addend,
    };
    let [a, b] = [pointer(0, 1, 0), pointer(8, 2, 0)];
    let lists = [
        (0, vec![]),
        (1, vec![a.clone()]),
        (2, vec![b.clone()]),
        (3, vec![a.clone(), b.clone()]),
        (3, vec![b.clone(), a.clone()]),
        (4, vec![a.clone(), a.clone()]),
        (5, vec![a.clone(), pointer(0, 2, 0)]),
        (6, vec![pointer(0, 2, 0), a.clone()]),
        (7, vec![pointer(0, 1, 4)]),
        (8, vec![pointer(4, 1, 0)]),
        (9, vec![pointer(0, 3, 0)]),
    ];
    let mut given = unit("");
    for (first, kept) in &lists {
        for (second, original) in &lists {
            let member = |at: u32, relocations: &[DataReloc]| {
                let mut member = data_member(at, 7, insignificant);
                member.object.contents = Contents::Bytes(vec![0; 16]);
                member.object.relocations = relocations.to_vec();
                member
            };
            given.data = vec![member(0, original), member(1, kept)];
            let to = DataIndex::from_u32(1);
            let redirect = Disposition::Redirect { to };
            let plan = data_decided(given.plan(), DataIndex::from_u32(0), redirect);
            let proof = proven(&given, &plan);
            assert_eq!(proof.is_ok(), first == second, "{kept:?} {original:?} {proof:?}");
        }
    }
}

/// A symbol that is not defined in the unit, so that the lookup fails.
#[test]
fn undefined_symbols_do_not_matter() {
    let text = DUPLICATES
        .replace("u0:0() system_v\nblock0:\n    call", "u9:0() system_v\nblock0:\n    call");
    let given = unit(&text);
    let symbol = UserExternalName::new(9, 0);
    let plan = decided(given.plan(), at(0), to_1()[0]);
    assert!(plan.function(&symbol).is_none());
    assert_eq!(proven(&given, &plan).map(|proof| proof.merged), Ok(1));
}
