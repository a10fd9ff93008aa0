//! Units made by hand that are meant as consecutive units, which are run (see
//! [`by_hand`](crate::by_hand)).

use crate::by_hand::eliminated;
use cranelift_codegen::ir::UserExternalName;
use cranelift_mergefunc::cranelift_codegen;
use cranelift_mergefunc::data::{Contents, DataAttributes, DataObject, DataReloc};
use testkit::unit::DataMember;

/// Functions, then three that call each other, and later ones that equal those but for one thing:
/// two different ones of the cycle are one, one calls another function outside, or one has another
/// constant.
pub fn cycles() -> Vec<String> {
    let leaf = |(own, operation): (u32, &str)| {
        format!(
            "function u0:{own}(i64, i64) -> i64 tail {{
block0(v0: i64, v1: i64):
    v2 = {operation} v0, v1
    return v2
}}"
        )
    };
    let calls = |own: u32, [one, other, leaf]: [u32; 3], constant: i64| {
        format!(
            "function u0:{own}(i64, i64) -> i64 tail {{
    sig0 = (i64, i64) -> i64 tail
    fn0 = u0:{one} sig0
    fn1 = u0:{other} sig0
    fn2 = u0:{leaf} sig0
block0(v0: i64, v1: i64):
    v2 = iconst.i64 3
    v3 = band v0, v2
    v4 = iconst.i64 1
    v5 = isub v3, v4
    brif v3, block1, block2
block1:
    v6 = call fn0(v5, v1)
    v7 = iconst.i64 {constant}
    v8 = imul v6, v7
    v9 = call fn1(v5, v8)
    v10 = call fn2(v9, v1)
    return v10
block2:
    return v1
}}"
        )
    };
    // Two functions of the cycle differ only in the function outside that they call.
    let cycle = |at: u32, outside: [u32; 2], constants: [i64; 2]| {
        [
            calls(at, [at + 1, at + 2, 0], constants[0]),
            calls(at + 1, [at, at, outside[0]], constants[1]),
            calls(at + 2, [at, at, outside[1]], constants[1]),
        ]
    };
    let mut functions: Vec<String> = (0..).zip(["iadd", "bxor", "isub"]).map(leaf).collect();
    functions.extend(cycle(10, [0, 1], [3, 5]));
    functions.extend([calls(20, [21, 21, 0], 3), calls(21, [20, 20, 0], 5)]);
    functions.extend(cycle(30, [0, 2], [3, 5]));
    // Which function of a cycle is looked up first depends on digests, so several constants.
    for (at, constants) in
        (4..).zip([[7, 5], [9, 5], [11, 5], [13, 5], [3, 7], [3, 9], [3, 11], [3, 13]])
    {
        functions.extend(cycle(10 * at, [0, 1], constants));
    }
    functions
}

/// A function that reads memory twice and writes to it in between; later one with facts that do not
/// hold for the first, of which the code must be kept; and equal callers of both, of which the
/// second and the third are aligned to more than the first, so that the third can only be merged
/// into the second. With the pointers that they get, the facts are true.
pub fn facts_of_emitted_functions() -> Vec<String> {
    let reads = |own: u32, facts: &str| {
        format!(
            "function u0:{own}(i64, i64) -> i64 tail {{
    gv0 = symbol u2:0
block0(v0: i64, v1: i64):
    v2 = load.i64 notrap aligned {facts} v0
    v3 = symbol_value.i64 gv0
    store.i64 notrap aligned v1, v3+64
    v4 = load.i64 notrap aligned {facts} v0
    v5 = rotl v4, v4
    v6 = bxor v2, v5
    return v6
}}"
        )
    };
    let calls = |own: u32, callee: u32| {
        format!(
            "function u0:{own}(i64, i64) -> i64 tail {{
    fn0 = u0:{callee}(i64, i64) -> i64 tail
block0(v0: i64, v1: i64):
    v2 = call fn0(v0, v1)
    v3 = bxor v2, v1
    return v3
}}"
        )
    };
    let passes = |own: u32, callee: u32, offset: u32| {
        format!(
            "function u0:{own}(i64, i64) -> i64 tail {{
    fn0 = u0:{callee}(i64, i64) -> i64 tail
    gv0 = symbol u2:0
block0(v0: i64, v1: i64):
    v2 = symbol_value.i64 gv0
    v3 = iconst.i64 {offset}
    v4 = iadd v2, v3
    v5 = call fn0(v4, v1)
    return v5
}}"
        )
    };
    vec![
        reads(0, ""),
        calls(1, 0),
        reads(2, "readonly can_move"),
        calls(3, 2),
        calls(4, 0),
        passes(5, 3, 3072),
        passes(6, 4, 64),
    ]
}

/// Later units use the address of a function that the first one eliminates: in code, twice, and by
/// a table.
pub fn addresses_of_an_eliminated_function() -> Vec<String> {
    let takes = |own: u32| {
        format!(
            "function u0:{own}(i64, i64) -> i64 tail {{
    sig0 = (i64, i64) -> i64 tail
    fn0 = u0:1 sig0
block0(v0: i64, v1: i64):
    v2 = func_addr.i64 fn0
    v3 = call_indirect sig0, v2(v0, v1)
    v4 = iconst.i64 {own}
    v5 = iadd v3, v4
    return v5
}}"
        )
    };
    [&eliminated()[..], &[takes(2), takes(3)]].concat()
}

/// An eliminated function whose address only a table takes.
pub fn pointer_to_an_eliminated_function() -> Vec<String> {
    let reads = "function u0:2(i64, i64) -> i64 tail {
    sig0 = (i64, i64) -> i64 tail
    gv0 = symbol u4:0
block0(v0: i64, v1: i64):
    v2 = symbol_value.i64 gv0
    v3 = load.i64 notrap aligned v2
    v4 = call_indirect sig0, v3(v0, v1)
    return v4
}";
    [&eliminated()[..], &[reads.into()]].concat()
}

/// The table for that.
pub fn pointer() -> DataMember {
    let reloc = DataReloc { offset: 0, target: UserExternalName::new(0, 1), addend: 0 };
    let object = DataObject {
        contents: Contents::Bytes(vec![0; 8]),
        relocations: vec![reloc],
        section: None,
    };
    let attributes = DataAttributes { alignment: 8, ..DataAttributes::default() };
    DataMember { symbol: UserExternalName::new(4, 0), object, attributes }
}
