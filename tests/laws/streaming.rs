//! Laws of functions that arrive one at a time: what is said of them at once, and what is planned
//! without IR.

use crate::support::{Rng, calls, free, parse, parse_one, random};
use arbitrary::{Result, Unstructured};
use cranelift_codegen::ir::{Function, UserExternalName, UserFuncName};
use cranelift_mergefunc::streaming::{Caller, Known, Reader, StreamingMerger};
use cranelift_mergefunc::thunk::CallThunks;
use cranelift_mergefunc::{
    Attributes, Bodies, Disposition, FunctionIndex, Merger, Options, Plan, Policy, Prove, Similar,
    Target,
};
use std::collections::{BTreeMap, BTreeSet};
use testkit::check::check_streamed;
use testkit::classes::classes;
use testkit::program::{Parts, Program, Streaming};
use testkit::scale::Family;
use testkit::unit::{Held, Member, Unit, uniform};

/// Where no function is held, none is requested.
fn no_bodies() -> Vec<Function> {
    Vec::new()
}

/// Classes and dispositions by symbol.
fn by_symbol(plan: &Plan) -> BTreeMap<String, String> {
    let symbol = |function| plan.entry(function).symbol().to_string();
    let entries = plan.entries().map(|(_, entry)| {
        let to = entry.disposition().representative().map(symbol);
        let decided = (entry.disposition().name(), to, entry.class(), entry.alignment());
        (entry.symbol().to_string(), format!("{decided:?}"))
    });
    entries.collect()
}

/// Functions of one class are equal, and one that was not compiled has the code of a function of
/// its class.
#[test]
fn functions_of_one_class_are_equal() {
    random(|u| {
        let mut unit = Unit::random(u)?;
        unit.options.merge_limit = None;
        let oracle = classes(&unit);
        let (_, streamed) = Program::streamed(&Parts::from(&unit), Streaming::Holding(0));
        check_streamed(&streamed);
        let plan = streamed.plan;
        let class: Vec<u32> = plan.entries().map(|(_, entry)| entry.class()).collect();
        for a in 0..unit.functions.len() {
            for b in 0..a {
                assert!(class[a] != class[b] || oracle.equal(a, b), "{a} {b}");
            }
        }
        Ok(())
    });
}

/// Nothing is lost against a merger that has all IR.
#[test]
fn functions_are_merged_as_with_all_ir() {
    for family in Family::ALL {
        let functions = family.unit(300);
        let mut streaming = StreamingMerger::new(Options::default());
        let mut merger = Merger::new(Options::default());
        for func in &functions {
            let symbol = func.name.get_user().expect("has a symbol");
            streaming.add(symbol.clone(), func, free()).expect("is added");
            merger.add(symbol.clone(), func, free()).expect("is added");
        }
        let plan = merger.plan(&mut &*functions);
        assert_eq!(by_symbol(&streaming.plan(&mut no_bodies())), by_symbol(&plan), "{family:?}");
    }
}

/// In every order of the functions the plan is the same.
#[test]
fn the_order_of_functions_does_not_matter() {
    random(|u| {
        let unit = Unit::random(u)?;
        let mut shuffled = unit.clone();
        let mut rng = Rng::new(u.arbitrary()?);
        for at in (1..shuffled.functions.len()).rev() {
            shuffled.functions.swap(at, rng.below(at + 1));
        }
        let [plan, other] = [&unit, &shuffled].map(|unit| {
            let (_, streamed) = Program::streamed(&Parts::from(unit), Streaming::Holding(0));
            streamed.plan
        });
        assert_eq!(by_symbol(&plan), by_symbol(&other));
        Ok(())
    });
}

/// A function is known to equal an earlier one at once if all that both call was added before, as
/// when callees are compiled first.
#[test]
fn equal_functions_are_known_at_once_if_callees_come_first() {
    let functions = Family::Mixed.unit(1000);
    let mut streaming = StreamingMerger::new(Options::default());
    let mut known = Vec::new();
    for func in &functions {
        let symbol = func.name.get_user().expect("has a symbol");
        known.push(streaming.add(symbol.clone(), func, free()).expect("is added").known);
    }
    let plan = streaming.plan(&mut no_bodies());
    let merged = plan.entries().filter(|(_, entry)| entry.disposition() != Disposition::Keep);
    let equal = known.iter().filter(|known| matches!(known, Known::Equal(_)));
    let merged = merged.count();
    assert!(merged > 300, "{merged}");
    assert_eq!(merged, equal.count());
}

/// A function that calls itself, one that calls it, and one that calls that one do the same.
#[test]
fn a_caller_of_a_recursive_function_is_known_to_equal_it() {
    let mut streaming = StreamingMerger::new(Options::default());
    let known = [(0, 0), (1, 0), (2, 1)].map(|(own, callee)| {
        let func = parse_one(&calls(own, callee));
        let symbol = func.name.get_user().expect("has a symbol").clone();
        streaming.add(symbol, &func, free()).expect("is added").known
    });
    let first = Known::Equal(FunctionIndex::from_u32(0));
    assert_eq!(known, [Known::Compile, first, first]);
}

/// Code may be expected at the very place of a pinned function, so it gets its own.
#[test]
fn a_pinned_function_has_code_of_its_own() {
    let functions = Family::Equal.unit(2);
    let mut streaming = StreamingMerger::new(Options::default());
    for (attributes, expected) in
        [(free(), Known::Compile), (Attributes { pinned: true, ..free() }, Known::Compile)]
    {
        let mut func = functions[0].clone();
        let index = streaming.len() as u32;
        func.name = UserFuncName::user(0, index);
        let symbol = func.name.get_user().expect("has a symbol").clone();
        assert_eq!(streaming.add(symbol, &func, attributes).expect("is added").known, expected);
    }
}

/// A function that states other facts, or that is aligned to more bytes, has code of its own.
#[test]
fn functions_of_different_facts_or_alignment_have_code_of_their_own() {
    let functions = parse(
        "function u0:0(i64) -> i64 { block0(v0: i64): v1 = load.i64 notrap readonly v0 return v1 }
         function u0:1(i64) -> i64 { block0(v0: i64): v1 = load.i64 notrap v0 return v1 }
         function u0:2(i64) -> i64 { block0(v0: i64): v1 = load.i64 notrap readonly v0 return v1 }
         function u0:3(i64) -> i64 { block0(v0: i64): v1 = load.i64 notrap readonly v0 return v1 }",
    );
    let mut streaming = StreamingMerger::new(Options::default());
    let known = functions.iter().zip([1, 1, 16, 1]).map(|(func, alignment)| {
        let symbol = func.name.get_user().expect("has a symbol").clone();
        let attributes = Attributes { alignment, ..free() };
        streaming.add(symbol, func, attributes).expect("is added").known
    });
    let equal = Known::Equal(FunctionIndex::from_u32(0));
    assert_eq!(known.collect::<Vec<_>>(), [Known::Compile, Known::Compile, Known::Compile, equal]);
}

/// A unit in which similar functions are merged wherever that saves a byte.
fn similar_unit(u: &mut Unstructured<'_>) -> Result<Unit> {
    let mut unit = Unit::random(u)?;
    unit.options.similar = Similar { policy: Policy::Size, ..Similar::default() };
    unit.options.target = Target::x86_64();
    Ok(unit)
}

/// No more IR is held than the bound says, whatever it is, and none that is not held is requested.
#[test]
fn no_more_is_held_than_the_bound() {
    let (mut full, mut bodies) = (0, 0);
    random(|u| {
        let unit = similar_unit(u)?;
        let (_, all) = Program::streamed(&Parts::from(&unit), Streaming::Holding(usize::MAX));
        bodies += all.plan.new_bodies().len();
        let max_bytes = u.int_in_range(0..=20_000)?;
        // This compares what is held with the bound, and does not have what is not held.
        let streaming = match u.arbitrary()? {
            true => Streaming::Replacing(max_bytes),
            false => Streaming::Holding(max_bytes),
        };
        let (_, some) = Program::streamed(&Parts::from(&unit), streaming);
        check_streamed(&some);
        let count = |held: &[bool]| held.iter().filter(|&&held| held).count();
        full += usize::from(count(&some.held) < count(&all.held));
        Ok(())
    });
    assert!(full > 0 && bodies > 0, "{full} {bodies}");
}

/// Identical merging does not depend on what is held: functions have the classes that they have
/// without.
#[test]
fn classes_do_not_depend_on_what_is_held() {
    random(|u| {
        let unit = similar_unit(u)?;
        let classes = |streaming| {
            let (_, streamed) = Program::streamed(&Parts::from(&unit), streaming);
            let added = streamed.plan.entries().take(unit.functions.len());
            added.map(|(_, entry)| entry.class()).collect::<Vec<_>>()
        };
        let none = classes(Streaming::Holding(0));
        let some = u.int_in_range(0..=20_000)?;
        for other in [
            Streaming::Holding(some),
            Streaming::Holding(usize::MAX),
            Streaming::Replacing(0),
            Streaming::Replacing(some),
            Streaming::BeforeCode { left_out: 0 },
        ] {
            assert_eq!(none, classes(other), "{other:?}");
        }
        Ok(())
    });
}

/// Three functions that differ in a constant, and a caller of the second one.
fn similar_and_a_caller() -> Vec<Function> {
    let steps = "v3 = imul v2, v0 v4 = bxor v3, v2 v5 = imul v4, v3 v6 = ushr v5, v4 v7 = imul v6, v5 v8 = bxor v7, v6
                 v9 = imul v8, v7 v10 = ushr v9, v8 v11 = imul v10, v9 return v11";
    let similar = (0..3).map(|index| {
        let constant = 1000 + index;
        format!("function u0:{index}(i64) -> i64 {{ block0(v0: i64): v1 = iconst.i64 {constant} v2 = iadd v0, v1 {steps} }}")
    });
    let caller = "function u0:3(i64) -> i64 { fn0 = u0:1(i64) -> i64 block0(v0: i64): v1 = call fn0(v0) return v1 }";
    parse(&format!("{} {caller}", similar.collect::<String>()))
}

/// Adds functions with these attributes; plans, with IR of those that are held. Also, which are.
fn hold(
    functions: &[Function],
    attributes: &[Attributes],
    streaming: Streaming,
) -> (Plan, Vec<bool>) {
    let options = Options {
        similar: Similar { policy: Policy::Size, ..Similar::default() },
        target: uniform(Target::x86_64()),
        ..Options::default()
    };
    let unit = functions
        .iter()
        .zip(attributes)
        .map(|(func, &attributes)| Member { body: func.clone(), attributes });
    let unit: Vec<Member> = unit.collect();
    let parts = Parts { functions: &unit, data: &[], options: &options };
    let (_, streamed) = Program::streamed(&parts, streaming);
    check_streamed(&streamed);
    (streamed.plan, streamed.held)
}

fn dispositions(plan: &Plan) -> Vec<&'static str> {
    plan.entries().map(|(_, entry)| entry.disposition().name()).collect()
}

/// Without a bound, every function is held, but for those that must keep their code, and calls pass
/// what a body takes.
#[test]
fn without_a_bound_calls_pass_extra_arguments() {
    let functions = similar_and_a_caller();
    let streaming = Streaming::Holding(usize::MAX);
    let (plan, held) = hold(&functions, &[free(); 4], streaming);
    assert_eq!(held, [true; 4]);
    assert_eq!(dispositions(&plan), ["redirect", "redirect", "redirect", "keep", "keep"]);
    let alone = Attributes { identical_only: true, ..free() };
    let (plan, held) = hold(&functions, &[free(), alone, alone, free()], streaming);
    assert_eq!(held, [true, false, false, true]);
    assert_eq!(plan.new_bodies().len(), 0);
}

/// Where code may be replaced, a function that no other one resembles so far is compiled, and comes
/// to share a body if one that arrives later does. A callee of compiled code keeps its symbol: such
/// calls cannot pass more arguments.
#[test]
fn compiled_functions_are_replaced_and_what_compiled_code_calls_becomes_a_thunk() {
    let functions = similar_and_a_caller();
    for (max_bytes, expected) in [(usize::MAX, [false, true, true, false]), (0, [false; 4])] {
        let (plan, held) = hold(&functions, &[free(); 4], Streaming::Replacing(max_bytes));
        assert_eq!(held, expected);
        assert_eq!(dispositions(&plan), ["redirect", "thunk", "redirect", "keep", "keep"]);
    }
}

/// Where nothing is compiled before the plan, every function is held, and calls pass what a body
/// takes. Those of code that is not added do if it is rewritten, and do not if it stays.
#[test]
fn before_code_is_compiled_calls_pass_extra_arguments_but_those_of_code_that_stays() {
    let functions = similar_and_a_caller();
    let (plan, held) = hold(&functions, &[free(); 4], Streaming::BeforeCode { left_out: 0 });
    assert_eq!(held, [true; 4]);
    assert_eq!(dispositions(&plan), ["redirect", "redirect", "redirect", "keep", "keep"]);
    let similar = Similar { policy: Policy::Size, ..Similar::default() };
    let target = uniform(Target::x86_64());
    for (other, disposition) in [(Caller::Stays, "thunk"), (Caller::IsRewritten, "redirect")] {
        let mut merger =
            StreamingMerger::before_code(Options { similar, target, ..Options::default() });
        for func in &functions[..3] {
            let symbol = func.name.get_user().expect("has a symbol").clone();
            assert_eq!(merger.add(symbol, func, free()).expect("is added").known, Known::Hold);
        }
        merger.add_call(&UserExternalName::new(0, 1), other);
        let plan = merger.plan(&mut Held::new(&functions[..3]));
        assert_eq!(dispositions(&plan), ["redirect", disposition, "redirect", "keep"]);
        let mut caller = functions[3].clone();
        assert_eq!(plan.passes_extra_arguments(&caller), other == Caller::IsRewritten);
        assert_eq!(plan.apply_to_caller(&mut caller), other == Caller::IsRewritten);
    }
}

/// Bodies in memory, and a symbol for new bodies that something else may have.
struct Named<'a>(Held<'a>, UserExternalName);

impl Bodies for Named<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        self.0.body(function)
    }

    fn fresh_symbol(&mut self, _: &[FunctionIndex]) -> Option<UserExternalName> {
        Some(self.1.clone())
    }
}

/// A new body never gets the symbol of something else: calls of that would become calls of the
/// body.
#[test]
fn the_symbol_of_a_new_body_is_refused_if_something_else_has_it() {
    let functions = similar_and_a_caller();
    let plan = |symbol: UserExternalName, arrives: bool| {
        let similar = Similar { policy: Policy::Size, ..Similar::default() };
        let options = Options { similar, target: uniform(Target::x86_64()), ..Options::default() };
        let mut bodies = Named(Held::new(&functions), symbol);
        let (mut merger, mut streaming) =
            (Merger::new(options), StreamingMerger::before_code(options));
        for func in &functions {
            let symbol = func.name.get_user().expect("has a symbol").clone();
            merger.add(symbol.clone(), func, free()).expect("is added");
            streaming.add(symbol, func, free()).expect("is added");
        }
        streaming.add_call(&UserExternalName::new(5, 5), Caller::Stays);
        std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| match arrives {
            true => streaming.plan(&mut bodies),
            false => merger.plan(&mut bodies),
        }))
    };
    for arrives in [false, true] {
        assert_eq!(
            plan(UserExternalName::new(7, 0), arrives).expect("is free").new_bodies().len(),
            1
        );
        assert!(plan(UserExternalName::new(0, 1), arrives).is_err());
    }
    assert!(plan(UserExternalName::new(5, 5), true).is_err());
}

/// A thunk of a function whose tail calls must not let the stack grow is a tail call, also where
/// functions arrived one at a time.
#[test]
fn a_thunk_of_the_tail_convention_is_a_tail_call() {
    let text: String = similar_and_a_caller().iter().map(ToString::to_string).collect();
    let functions =
        parse(&text.replace("(i64) -> i64", "(i64) -> i64 tail").replace("tail fast", "tail"));
    let call_thunks = Some(CallThunks { tail_calls: true, colocated: true });
    let target = Target { jump_thunk: None, call_thunks, ..uniform(Target::x86_64()) };
    let similar = Similar { policy: Policy::Size, ..Similar::default() };
    let options = Options { similar, target, ..Options::default() };
    let mut merger = StreamingMerger::replacing(options, 0);
    for func in &functions {
        let symbol = func.name.get_user().expect("has a symbol").clone();
        merger.add(symbol, func, free()).expect("is added");
    }
    let plan = merger.plan(&mut Held::new(&functions));
    let mut thunk = functions[1].clone();
    assert!(plan.finish(FunctionIndex::from_u32(1), &mut thunk));
    assert_eq!(dispositions(&plan)[1], "thunk");
    assert!(thunk.to_string().contains("return_call"), "{thunk}");
}

/// Where the bound is reached, functions that no other one resembles are given up, the first ones
/// first; those that have a partner are held on.
#[test]
fn the_first_function_without_a_partner_is_released_first() {
    let mut functions = similar_and_a_caller();
    functions.swap(0, 3);
    let mut merger = StreamingMerger::holding(
        Options { target: uniform(Target::x86_64()), ..Options::default() },
        10,
    );
    let mut reader =
        Reader::new(Options { target: uniform(Target::x86_64()), ..Options::default() });
    let mut released = Vec::new();
    for func in &functions {
        let mut reading = reader.read(func, free());
        assert!(reading.may_be_held());
        reading.set_held_bytes(4);
        let symbol = func.name.get_user().expect("has a symbol").clone();
        let added = merger.add_reading(symbol, reading).expect("is added");
        // The last one has no room: those before it have partners.
        assert_eq!(added.known == Known::Compile, added.function.as_u32() == 3);
        released.push(merger.release().map(FunctionIndex::as_u32));
        assert_eq!(merger.release(), None);
    }
    assert_eq!(released, [None, None, Some(0), None]);
    assert_eq!(merger.held_bytes(), 8);
}

/// Where all is held, or nothing is compiled before the plan, the plan is that of a merger that has
/// all IR. Runs on the sample, or on the units of `CLIF_MERGE_UNITS`.
#[test]
fn what_is_held_without_a_bound_is_merged_as_with_all_ir() {
    let mut bodies = 0;
    for unit in testkit::units::units() {
        let text = std::fs::read_to_string(&unit).expect("readable unit");
        let functions = cranelift_reader::parse_functions(&text).expect("valid CLIF");
        let options = Options { target: Target::x86_64(), ..Options::default() };
        let mut streaming =
            [StreamingMerger::holding(options, usize::MAX), StreamingMerger::before_code(options)];
        let mut merger = Merger::new(options);
        for func in &functions {
            let symbol = func.name.get_user().expect("has a symbol");
            for streaming in &mut streaming {
                streaming.add(symbol.clone(), func, free()).expect("is added");
            }
            merger.add(symbol.clone(), func, free()).expect("is added");
        }
        let plan = merger.plan(&mut Held::new(&functions));
        bodies += plan.new_bodies().len();
        for streaming in streaming {
            let streamed = streaming.plan(&mut Held::new(&functions));
            assert!(by_symbol(&streamed) == by_symbol(&plan), "{}", unit.display());
        }
    }
    assert!(bodies > 0);
}

/// The functions whose code parameterised bodies replace, and how many bytes that saves, as
/// predicted.
fn sharing(plan: &Plan) -> (BTreeSet<FunctionIndex>, i64) {
    let sets = plan.similar_sets().iter().filter(|set| set.body.is_some());
    let saved = sets.clone().filter_map(|set| set.saved).sum();
    (sets.flat_map(|set| &set.members).map(|&member| plan.output(member).code).collect(), saved)
}

/// Bodies in memory, and which of them were requested.
struct Requested<'a> {
    all: Held<'a>,
    requested: BTreeSet<FunctionIndex>,
}

impl Bodies for Requested<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        self.requested.insert(function);
        self.all.body(function)
    }

    fn fresh_symbol(&mut self, members: &[FunctionIndex]) -> Option<UserExternalName> {
        self.all.fresh_symbol(members)
    }
}

/// The means to replace compiled code in a unit.
struct Replaced {
    /// The predicted bytes that similar merging saves.
    saved: i64,
    held_bytes: usize,
    /// The share, in percent, of instructions whose IR is made again, and of those that are
    /// compiled twice.
    translated: f64,
    compiled: f64,
}

fn replaced(functions: &[Function], options: Options<'_>, max_bytes: usize) -> Replaced {
    let mut streaming = StreamingMerger::replacing(options, max_bytes);
    let mut compiled = BTreeSet::new();
    for func in functions {
        let symbol = func.name.get_user().expect("has a symbol");
        let added = streaming.add(symbol.clone(), func, free()).expect("is added");
        compiled.extend(Some(added.function).filter(|_| added.known == Known::Compile));
        assert_eq!(streaming.release(), None);
    }
    let held_bytes = streaming.held_bytes();
    assert!(held_bytes <= max_bytes);
    let mut bodies = Requested { all: Held::new(functions), requested: BTreeSet::new() };
    let plan = streaming.plan(&mut bodies);
    let (members, saved) = sharing(&plan);
    let size = |function: &FunctionIndex| {
        let func = &functions[function.as_u32() as usize];
        func.layout.blocks().flat_map(|block| func.layout.block_insts(block)).count()
    };
    let all: usize = (0..functions.len() as u32).map(|at| size(&FunctionIndex::from_u32(at))).sum();
    let share = |of: &BTreeSet<FunctionIndex>| {
        100.0 * compiled.intersection(of).map(size).sum::<usize>() as f64 / all as f64
    };
    Replaced { saved, held_bytes, translated: share(&bodies.requested), compiled: share(&members) }
}

/// Where compiled code is replaced, similar merging saves most of what it saves with all IR,
/// whatever the bound is: code that stays calls thunks, and there are none in front of short
/// functions. Runs on the sample, or on the units of `CLIF_MERGE_UNITS`, and prints the figures.
#[test]
fn most_is_saved_where_compiled_code_is_replaced() {
    println!("| | all IR | bound | saved | IR held | translated again | compiled twice |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for unit in testkit::units::units() {
        let text = std::fs::read_to_string(&unit).expect("readable unit");
        let functions = cranelift_reader::parse_functions(&text).expect("valid CLIF");
        let options =
            Options { target: Target::x86_64(), prove: Prove::Never, ..Options::default() };
        let mut merger = Merger::new(options);
        for func in &functions {
            let symbol = func.name.get_user().expect("has a symbol");
            merger.add(symbol.clone(), func, free()).expect("is added");
        }
        let (_, with_all) = sharing(&merger.plan(&mut Held::new(&functions)));
        let name = unit.file_stem().expect("a file name").display();
        for max_bytes in [64 << 20, 0] {
            let Replaced { saved, held_bytes, translated, compiled } =
                replaced(&functions, options, max_bytes);
            println!(
                "| {name} | {with_all} | {} MiB | {saved} | {:.1} MB | {translated:.1}% | {compiled:.1}% |",
                max_bytes >> 20,
                held_bytes as f64 / 1e6,
            );
            assert!(5 * saved >= 4 * with_all, "{name}: {saved} of {with_all}");
        }
    }
}
