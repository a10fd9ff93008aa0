//! The statistics count what was done, each on a unit whose counts are known.

use crate::support::{encode, free, parse, test_symbol, walk_all};
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_mergefunc::data::{Contents, DataAttributes, DataObject};
use cranelift_mergefunc::stats::SimilarCounts;
use cranelift_mergefunc::{
    Addresses, Bodies, Compare, FunctionIndex, Linkage, Merger, Options, Plan, Prove, Similar,
    Stats, Target,
};
use testkit::unit::{DataMember, Held, Member, Unit};

/// Functions 0 and 1 are equal, and 2 states less. 3 has the same shape and another callee; 4 is
/// malformed, 5 is similar to no other function.
fn functions() -> Vec<Function> {
    let like = |index: u32, flags: &str, callee: u32| {
        format!(
            "function u0:{index}(i64) -> i64 tail {{
    fn0 = u1:{callee}(i64) -> i64 tail
block0(v0: i64):
    v1 = load.i64 {flags} v0
    v2 = call fn0(v1)
    return v2
}}
"
        )
    };
    let mut text = like(0, "notrap aligned", 0) + &like(1, "notrap aligned", 0);
    text += &(like(2, "notrap", 0) + &like(3, "notrap aligned", 1) + &like(4, "notrap", 2));
    text += "function u0:5(i64) tail {\nblock0(v0: i64):\n    trap user1\n}\n";
    let mut functions = parse(&text);
    let layout = &mut functions[4].layout;
    let entry = layout.entry_block().expect("a block");
    let first = layout.first_inst(entry).expect("an instruction");
    layout.remove_inst(first);
    functions
}

/// Three equal objects of ten bytes, and one of eleven.
fn data() -> Vec<DataMember> {
    let attributes = DataAttributes {
        linkage: Linkage::Local,
        addresses: Addresses::Insignificant,
        ..DataAttributes::default()
    };
    let member = |(index, size): (u32, usize)| DataMember {
        symbol: test_symbol(index),
        attributes,
        object: DataObject {
            contents: Contents::Bytes(vec![7; size]),
            relocations: Vec::new(),
            section: None,
        },
    };
    (0..).zip([10, 10, 10, 11]).map(member).collect()
}

fn plan(options: Options<'static>) -> Plan {
    let options = Options { similar: Similar::OFF, ..options };
    let functions = functions().into_iter().map(|body| Member { attributes: free(), body });
    Unit { functions: functions.collect(), data: data(), options }.plan()
}

#[test]
fn everything_is_counted() {
    let stats = *plan(Options::default()).stats();
    let functions = functions();
    let size = |at: usize| encode(&functions[at], &walk_all()).size();
    let of_functions = size(0) + size(1) + size(2) + size(3);
    let mut expected = Stats::default();
    expected.add_functions = 6;
    expected.add_data_objects = 4;
    // The last function is the only one with its signature and its counts, and the last object the
    // only one of its size.
    expected.walks.functions = 5;
    expected.walks.instructions = 4 * 3 + 1;
    expected.walks.malformed = 1;
    expected.walks.data_objects = 3;
    expected.walks.bytes = stats.walks.bytes;
    // Names differ from the start.
    expected.refine_classes_before = 7;
    expected.refine_classes_after = 7;
    expected.plan_members = 2;
    expected.merged.functions = 1;
    expected.merged.data_objects = 2;
    expected.merged.data_bytes = 20;
    assert_eq!(stats, expected);
    assert!(stats.walks.bytes > of_functions, "{} {of_functions}", stats.walks.bytes);
}

#[test]
fn functions_that_are_walked_when_they_are_added_are_counted() {
    let stats = *plan(walk_all()).stats();
    assert_eq!(stats.walks.added, 6);
    assert_eq!(plan(Options::default()).stats().walks.added, 0);
    assert_eq!(stats.plan_members, 2);
    let options = Options { compare: Compare::default(), ..Options::default() };
    assert_eq!(plan(options).stats(), plan(Options::default()).stats());
}

/// The size of an encoding is the sum of its streams, whatever they contain.
#[test]
fn the_size_of_an_encoding_is_that_of_its_streams() {
    let size = |lines: &str| {
        let text = "function u0:0(i64) tail {\n    fn0 = u1:0() tail\nblock0(v0: i64):\n";
        let func = parse(&format!("{text}{lines}    return\n}}\n")).remove(0);
        let encoding = encode(&func, &walk_all());
        assert_eq!(encoding.instructions() as usize, lines.lines().count() + 1);
        encoding.size()
    };
    // The shape; with a constant; with a name; with an offset.
    let base = size("");
    let [trap, constant, call, load] = [
        "    trapnz v0, user1\n",
        "    v1 = iconst.i64 300\n",
        "    call fn0()\n    call fn0()\n",
        "    v2 = load.i64 notrap v0\n",
    ]
    .map(|lines| (lines, size(lines) - base));
    // Opcode and type, code, operand; opcode and type, and eight bytes.
    assert_eq!((trap.1, constant.1), (3 + 1 + 2, 3 + 8));
    // Two names of nine bytes; a signature is written once, and then its number.
    assert!(call.1 >= 2 * (9 + 3 + 1 + 3 * 2), "{}", call.1);
    // Opcode and type, memory flags, operand, offset.
    assert_eq!(load.1, 3 + 2 + 2 + 4);
    let all = [trap, constant, call, load];
    let lines: String = all.iter().map(|&(lines, _)| lines).collect();
    assert_eq!(size(&lines), base + all.iter().map(|&(_, bytes)| bytes).sum::<usize>());
    // Version, key, signature, three counts, a block with a parameter, and `return`.
    assert!((30..60).contains(&base), "{base}");
}

#[test]
fn a_reference_by_class_takes_less_than_one_by_name() {
    let bytes = |callee: &str, calls: usize| {
        let text = |own: u32| {
            let call = "    call fn0()\n".repeat(calls);
            let fn0 = format!("fn0 = {callee}() tail");
            format!("function u0:{own}() tail {{\n    {fn0}\nblock0:\n{call}    return\n}}\n")
        };
        let functions = parse(&(text(0) + &text(1))).into_iter();
        let functions = functions.map(|body| Member { attributes: free(), body }).collect();
        let unit = Unit { functions, data: vec![], options: Options::default() };
        unit.plan().stats().walks.bytes
    };
    // A kind and a node, or a kind and a symbol.
    for calls in [0, 1, 7] {
        assert_eq!(bytes("u9:0", calls) - bytes("u0:0", calls), 2 * calls * (9 - 5), "{calls}");
    }
    // Each call adds the same.
    let [none, one, two, three] = [0, 1, 2, 3].map(|calls| bytes("u0:0", calls));
    assert!(none < one && two - one == three - two);
}

/// Bodies, and how often each was requested.
struct Counted<'a> {
    held: Held<'a>,
    requests: Vec<usize>,
}

impl Bodies for Counted<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        self.requests[function.as_u32() as usize] += 1;
        self.held.body(function)
    }

    fn fresh_symbol(&mut self, members: &[FunctionIndex]) -> Option<UserExternalName> {
        self.held.fresh_symbol(members)
    }
}

/// How often bodies are requested in order to plan a unit: the most requests for one function, and
/// all of them. And what was done for similar functions.
fn requests(functions: &[Function], similar: Similar) -> (usize, usize, SimilarCounts) {
    let options =
        Options { target: Target::x86_64(), similar, prove: Prove::Never, ..Options::default() };
    let mut merger = Merger::new(options);
    for func in functions {
        let symbol = func.name.get_user().expect("named by number").clone();
        merger.add(symbol, func, free()).expect("is added");
    }
    let requests = vec![0; functions.len()];
    let mut bodies = Counted { held: Held::new(functions), requests };
    let similar = merger.plan(&mut bodies).stats().similar;
    let Counted { requests, .. } = bodies;
    (requests.iter().copied().max().unwrap_or(0), requests.iter().sum(), similar)
}

/// Whoever makes bodies anew for each request pays for each. Runs on the sample, or on the units of
/// `CLIF_MERGE_UNITS`.
#[test]
fn identical_functions_are_read_once_and_similar_ones_a_few_times() {
    for unit in testkit::units::units() {
        let text = std::fs::read_to_string(&unit).expect("readable unit");
        let functions = cranelift_reader::parse_functions(&text).expect("valid CLIF");
        let (most, all, _) = requests(&functions, Similar::OFF);
        assert!(most == 1 && all <= functions.len(), "{}: {most} {all}", unit.display());
        let (most, all, similar) = requests(&functions, Similar::default());
        let name = unit.display();
        println!("{name}: at most {most}, {all} for {}; {similar:?}", functions.len());
        assert!(all <= 4 * functions.len(), "{name}: {most} {all}");
        // Each function is walked once to find those of its shape, and once to align it; only what
        // bodies are made of is copied.
        assert!(similar.walks <= functions.len() && similar.outlines <= functions.len(), "{name}");
        assert!(similar.copies <= functions.len(), "{name}: {similar:?}");
    }
}
