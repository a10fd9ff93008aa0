//! Law: the checker lets one reference replace another exactly if the difference is unobservable.
//!
//! Two functions differ in one reference, to one of two equal functions or data objects, and a plan
//! made by hand merges them. The dispositions and attributes of the two referenced functions or
//! objects are varied. The right answer is defined in `is_same` and `is_same_data`, from the
//! meaning of the attributes.

use crate::refused_plans::{at, data_member, may_become, proven, unit};
use crate::support::free;
use cranelift_mergefunc::data::{DataAttributes, DataIndex};
use cranelift_mergefunc::internals::{aligned, data_aligned, data_decided, decided};
use cranelift_mergefunc::{Addresses, Attributes, Disposition, Linkage, Plan, Target};
use testkit::unit::Unit;

/// Where the body of one of the two functions is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum To {
    Stays,
    /// Where `a` is.
    A,
    /// Where the third is.
    C,
}

/// How a function refers to another.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Use {
    Call,
    PatchableCall,
    Address,
    Inside,
}

impl Use {
    const ALL: [Use; 4] = [Use::Call, Use::PatchableCall, Use::Address, Use::Inside];

    /// The declaration of a reference to a symbol, and the code that uses it.
    fn code(self, symbol: &str) -> (String, &'static str) {
        match self {
            Use::Call => (format!("fn0 = {symbol}() system_v"), "call fn0()"),
            Use::PatchableCall => (format!("fn0 = patchable {symbol}() system_v"), "call fn0()"),
            Use::Address => (format!("fn0 = {symbol}() system_v"), "v0 = func_addr.i64 fn0"),
            Use::Inside => (format!("gv0 = symbol {symbol}+4"), "v0 = symbol_value.i64 gv0"),
        }
    }
}

/// A function `u0:own` that refers to a symbol.
fn user(own: u32, declaration: &str, code: &str) -> String {
    let result = if code.starts_with("call") { ("", "") } else { (" -> i64", " v0") };
    format!(
        "function u0:{own}(){} system_v {{
    {declaration}
block0:
    {code}
    return{}
}}
",
        result.0, result.1
    )
}

/// `u0:0` refers to `a` and `u0:1` to `b`, which are `u0:2` and `u0:3`. They and `u0:4` are equal.
fn users(usage: Use) -> Unit {
    let mut text = String::new();
    for (own, callee) in [(0, 2), (1, 3)] {
        let (declaration, code) = usage.code(&format!("u0:{callee}"));
        text += &user(own, &declaration, code);
    }
    for own in 2..5 {
        text += &format!("function u0:{own}() system_v {{\nblock0:\n    trap user1\n}}\n");
    }
    unit(&text)
}

/// A plan with these dispositions of `a` and `b`, in which the second of two users has the body of
/// the first.
fn plan(unit: &Unit, a: Disposition, b: Disposition) -> Plan {
    let plan = decided(unit.plan(), at(1), Disposition::Redirect { to: at(0) });
    decided(decided(plan, at(2), a), at(3), b)
}

fn dispositions(to: To) -> Vec<Disposition> {
    let to = match to {
        To::Stays => return vec![Disposition::Keep],
        To::A => at(2),
        To::C => at(4),
    };
    vec![Disposition::Redirect { to }, Disposition::Alias { to }, Disposition::Thunk { to }]
}

/// The dispositions that two functions can have, each of every kind.
fn cases() -> Vec<(Disposition, Disposition)> {
    let mut cases = Vec::new();
    for (a, b) in [
        (To::Stays, To::Stays),
        (To::Stays, To::A),
        (To::Stays, To::C),
        (To::C, To::Stays),
        (To::C, To::C),
    ] {
        for a in dispositions(a) {
            cases.extend(dispositions(b).into_iter().map(|b| (a, b)));
        }
    }
    cases
}

/// All combinations of attributes that affect whether a function may be replaced by an equal one.
fn some_attributes() -> Vec<Attributes> {
    let mut all = Vec::new();
    for linkage in Linkage::ALL {
        for addresses in Addresses::ALL {
            for no_merge in [false, true] {
                all.push(Attributes { linkage, addresses, no_merge, ..free() });
            }
        }
    }
    all
}

/// Whether a reference to `a` may replace a reference to `b`, another function.
fn is_same(usage: Use, a: &Attributes, b: &Attributes) -> bool {
    // Another body may preempt it, or it must stay distinguishable.
    let is_special = |one: &Attributes| one.linkage == Linkage::Preemptible || one.no_merge;
    let is_same = match usage {
        Use::Call => true,
        // A call that is patched, or code that reads the body, means exactly this function.
        Use::PatchableCall | Use::Inside => false,
        Use::Address => b.addresses == Addresses::Insignificant,
    };
    is_same && !is_special(a) && !is_special(b)
}

/// Whether a reference to a function with this disposition still has the same meaning for its user.
fn is_still_same(usage: Use, own: &Attributes, becomes: Disposition) -> bool {
    match (usage, becomes) {
        (_, Disposition::Keep) => true,
        (Use::Call | Use::PatchableCall, _) => true,
        // The address of another function.
        (Use::Address, Disposition::Alias { .. }) => own.addresses == Addresses::Insignificant,
        (Use::Address, _) => true,
        // The code at the address is not its own.
        (Use::Inside, _) => false,
    }
}

#[test]
fn a_function_may_replace_another_if_the_change_is_unobservable() {
    let mut counts = [0; 2];
    for usage in Use::ALL {
        let mut given = users(usage);
        given.options.target = Target::x86_64();
        given.options.aliases = true;
        for a in some_attributes() {
            for b in some_attributes() {
                given.functions[2].attributes = a;
                given.functions[3].attributes = b;
                for (of_a, of_b) in cases() {
                    let allowed = |of: Disposition, own: &Attributes| match of.representative() {
                        None => true,
                        Some(to) => {
                            let kept = &given.functions[to.as_u32() as usize].attributes;
                            may_become(of, own, kept, &given.options)
                        }
                    };
                    if !allowed(of_a, &a) || !allowed(of_b, &b) {
                        continue;
                    }
                    // The reference of the first user may have been redirected, and must keep its
                    // meaning, too.
                    let right = match (of_a, usage) {
                        (Disposition::Redirect { .. }, _)
                        | (Disposition::Alias { .. } | Disposition::Thunk { .. }, Use::Call)
                            if a.linkage != Linkage::Preemptible =>
                        {
                            is_same(usage, &free(), &a) && is_same(usage, &free(), &b)
                        }
                        _ => is_still_same(usage, &a, of_a) && is_same(usage, &a, &b),
                    };
                    let proof = proven(&given, &plan(&given, of_a, of_b));
                    let what = format!("{usage:?} {of_a:?} {of_b:?} {a:?} {b:?} {proof:?}");
                    assert_eq!(proof.is_ok(), right, "{what}");
                    if (of_a, of_b) == (Disposition::Keep, Disposition::Keep) && right {
                        // That the callees are equal had to be proved, too.
                        assert_eq!(proof.map(|proof| (proof.merged, proof.related)), Ok((1, 1)));
                    }
                    counts[usize::from(right)] += 1;
                }
            }
        }
    }
    assert!(counts.iter().all(|&count| count > 500), "{counts:?}");
}

/// An address has at least the alignment of every function whose address it is now.
#[test]
fn an_address_may_replace_another_if_it_is_aligned_as_much() {
    let mut given = users(Use::Address);
    given.options.target = Target::x86_64();
    given.options.aliases = true;
    let mut counts = [0; 2];
    for (of_a, of_b) in cases() {
        for bits in 0..8 {
            let [a, b, c] = [1, 2, 4].map(|bit| if bits & bit == 0 { 1 } else { 64 });
            given.functions[3].attributes.alignment = b;
            let plan = plan(&given, of_a, of_b);
            let plan = aligned(aligned(aligned(plan, at(2), a), at(3), b), at(4), c);
            let place = match of_a {
                Disposition::Keep | Disposition::Thunk { .. } => a,
                Disposition::Redirect { .. } | Disposition::Alias { .. } => c,
            };
            // The alignment of the new address of the second function, for other users of it.
            let own = match of_b {
                Disposition::Keep | Disposition::Thunk { .. } => b,
                Disposition::Redirect { to } | Disposition::Alias { to } if to == at(2) => a,
                Disposition::Redirect { .. } | Disposition::Alias { .. } => c,
            };
            let right = place >= b && own >= b;
            let proof = proven(&given, &plan);
            assert_eq!(proof.is_ok(), right, "{of_a:?} {of_b:?} {a} {b} {c} {proof:?}");
            counts[usize::from(right)] += 1;
        }
    }
    assert!(counts.iter().all(|&count| count > 10), "{counts:?}");
}

/// All combinations of attributes that affect whether a data object may be replaced by an equal
/// one.
fn some_data_attributes() -> Vec<DataAttributes> {
    let mut all = Vec::new();
    for linkage in Linkage::ALL {
        for addresses in Addresses::ALL {
            for (writable, tls) in [(false, false), (true, false), (false, true)] {
                let attributes = DataAttributes::default();
                all.push(DataAttributes { linkage, addresses, writable, tls, ..attributes });
            }
        }
    }
    all
}

/// Two functions that refer to `a` and `b`, which are the data objects `u1:0` and `u1:1`. They and
/// `u1:2` have the same contents.
fn data_users(offset: u32, attributes: [DataAttributes; 3]) -> Unit {
    let text = |own: u32| {
        user(own, &format!("gv0 = symbol u1:{own}+{offset}"), "v0 = symbol_value.i64 gv0")
    };
    let mut given = unit(&(text(0) + &text(1)));
    given.options.aliases = true;
    given.data = (0..).zip(attributes).map(|(at, of)| data_member(at, 7, of)).collect();
    given
}

fn data_at(index: u32) -> DataIndex {
    DataIndex::from_u32(index)
}

/// The dispositions that `a` and `b` can have.
fn data_cases() -> Vec<(Disposition<DataIndex>, Disposition<DataIndex>)> {
    let to = |to| {
        let to = data_at(to);
        [Disposition::Redirect { to }, Disposition::Alias { to }]
    };
    let mut cases = vec![(Disposition::Keep, Disposition::Keep)];
    cases.extend(to(0).map(|b| (Disposition::Keep, b)));
    cases.extend(to(2).map(|b| (Disposition::Keep, b)));
    cases.extend(to(2).map(|a| (a, Disposition::Keep)));
    cases.extend(to(2).into_iter().flat_map(|a| to(2).map(|b| (a, b))));
    cases
}

fn data_plan(unit: &Unit, a: Disposition<DataIndex>, b: Disposition<DataIndex>) -> Plan {
    let plan = decided(unit.plan(), at(1), Disposition::Redirect { to: at(0) });
    data_decided(data_decided(plan, data_at(0), a), data_at(1), b)
}

/// Whether a data object cannot be distinguished from one with the same contents: it is not written
/// to, is not thread-local, its address is insignificant, and it is not preemptible.
fn is_like_its_duplicates(attributes: &DataAttributes) -> bool {
    let DataAttributes { linkage, addresses, writable, tls, .. } = *attributes;
    linkage != Linkage::Preemptible && addresses == Addresses::Insignificant && !writable && !tls
}

#[test]
fn a_data_object_may_replace_another_if_the_change_is_unobservable() {
    let same = DataAttributes {
        linkage: Linkage::Local,
        addresses: Addresses::Insignificant,
        ..DataAttributes::default()
    };
    let mut counts = [0; 2];
    for offset in [0, 4] {
        for a in some_data_attributes() {
            for b in some_data_attributes() {
                let given = data_users(offset, [a, b, same]);
                for (of_a, of_b) in data_cases() {
                    let allowed = |of: Disposition<DataIndex>, own: &DataAttributes| {
                        let kept = of.representative().map(|to| [a, b, same][to.as_u32() as usize]);
                        let is_eliminated = matches!(of, Disposition::Redirect { .. });
                        kept.is_none_or(|kept| {
                            is_like_its_duplicates(own) && is_like_its_duplicates(&kept)
                        }) && (!is_eliminated || own.linkage == Linkage::Local)
                    };
                    if !allowed(of_a, &a) || !allowed(of_b, &b) {
                        continue;
                    }
                    let right = is_like_its_duplicates(&a) && is_like_its_duplicates(&b);
                    let proof = proven(&given, &data_plan(&given, of_a, of_b));
                    let what = format!("{of_a:?} {of_b:?} {a:?} {b:?} {proof:?}");
                    assert_eq!(proof.is_ok(), right, "{what}");
                    counts[usize::from(right)] += 1;
                }
            }
        }
    }
    assert!(counts.iter().all(|&count| count > 100), "{counts:?}");

    for (of_a, of_b) in data_cases() {
        for bits in 0..8 {
            let [a, b, c] = [1, 2, 4].map(|bit| if bits & bit == 0 { 1 } else { 64 });
            let given = data_users(0, [same, DataAttributes { alignment: b, ..same }, same]);
            let plan = data_plan(&given, of_a, of_b);
            let plan = data_aligned(data_aligned(plan, data_at(0), a), data_at(1), b);
            let plan = data_aligned(plan, data_at(2), c);
            let place = if of_a == Disposition::Keep { a } else { c };
            let own = match of_b.representative() {
                None => b,
                Some(to) if to == data_at(0) => a,
                Some(_) => c,
            };
            let proof = proven(&given, &plan);
            let what = format!("{of_a:?} {of_b:?} {a} {b} {c} {proof:?}");
            assert_eq!(proof.is_ok(), place >= b && own >= b, "{what}");
        }
    }
}
