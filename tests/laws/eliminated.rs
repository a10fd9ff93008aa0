//! Laws: later units refer to the functions and objects that replaced what earlier units
//! eliminated.

use crate::support::parse_one;
use cranelift_codegen::ir::{
    ExternalName, Function, GlobalValue, GlobalValueData, UserExternalName,
};
use cranelift_codegen::isa::{self, OwnedTargetIsa};
use cranelift_codegen::settings;
use cranelift_mergefunc::data::{Contents, DataAttributes, DataIndex, DataObject};
use cranelift_mergefunc::incremental::{LateThunk, MergeCache};
use cranelift_mergefunc::internals::decided;
use cranelift_mergefunc::{
    Addresses, Attributes, Bodies, Disposition, Emit, FunctionIndex, Linkage, Merger, Options,
    Plan, Policy, Reason, Similar, Target,
};
use std::collections::BTreeSet;

fn host() -> OwnedTargetIsa {
    let flags = settings::Flags::new(settings::builder());
    isa::lookup_by_name("x86_64").expect("is built in").finish(flags).expect("an ISA")
}

/// Functions, and symbols for new bodies.
struct Held {
    functions: Vec<Function>,
    fresh: u32,
}

impl Bodies for Held {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self.functions[function.as_u32() as usize]
    }

    fn fresh_symbol(&mut self, _: &[FunctionIndex]) -> Option<UserExternalName> {
        self.fresh += 1;
        Some(UserExternalName::new(9, self.fresh))
    }
}

const LOCAL: Attributes = Attributes {
    linkage: Linkage::Local,
    addresses: Addresses::Significant,
    address_taken: false,
    key: 0,
    alignment: 1,
    externally_called: false,
    pinned: false,
    no_merge: false,
    hot: false,
    identical_only: false,
};

/// A program whose units are planned one after the other.
struct Program {
    cache: MergeCache,
    fresh: u32,
    similar: Similar,
}

impl Program {
    fn new(similar: Similar) -> Program {
        Program { cache: MergeCache::new(), fresh: 0, similar }
    }

    /// Plans a unit and returns the plan, and its functions as they are emitted.
    fn unit(&mut self, texts: &[(String, Attributes)]) -> (Plan, Vec<Function>) {
        self.unit_of(texts, true)
    }

    /// Plans a unit, `after` the earlier units or as if there were none.
    fn unit_of(&mut self, texts: &[(String, Attributes)], after: bool) -> (Plan, Vec<Function>) {
        let isa = host();
        let functions: Vec<Function> = texts.iter().map(|(text, _)| parse_one(text)).collect();
        let options =
            Options { target: Target::of(&*isa), similar: self.similar, ..Options::default() };
        let mut merger = match after {
            true => Merger::after(&self.cache, options),
            false => Merger::new(options),
        };
        for (func, (_, attributes)) in functions.iter().zip(texts) {
            let symbol = func.name.get_user().expect("named by number").clone();
            merger.add(symbol, func, *attributes).expect("is added");
        }
        let mut bodies = Held { functions, fresh: self.fresh };
        let (plan, increment) = merger.plan_increment(&mut bodies);
        let Held { mut functions, fresh } = bodies;
        self.fresh = fresh;
        self.cache.extend(&increment);
        for ((index, _), func) in plan.entries().zip(&mut functions) {
            plan.apply(index, func);
            crate::support::verify(func);
        }
        (plan, functions)
    }
}

const FOR_SIZE: Similar = Similar { policy: Policy::Size, ..Similar::OFF };

/// A function that mixes its argument with a constant.
fn mixes(own: u32, k: i64) -> String {
    let lines = (3..20).map(|v| {
        let operation = ["imul", "bxor"][v % 2];
        format!("    v{v} = {operation} v{}, v{}\n", v - 1, v - 2)
    });
    format!(
        "function u0:{own}(i64) -> i64 system_v {{
block0(v0: i64):
    v1 = iconst.i64 {k}
    v2 = iadd v0, v1
{}    return v19
}}",
        lines.collect::<String>()
    )
}

fn calls(own: u32, callee: u32) -> String {
    format!(
        "function u0:{own}(i64) -> i64 system_v {{
    fn0 = u0:{callee}(i64) -> i64 system_v
block0(v0: i64):
    v1 = call fn0(v0)
    v2 = iadd v1, v0
    return v2
}}"
    )
}

fn takes_address(own: u32, of: u32) -> String {
    format!(
        "function u0:{own}() -> i64 system_v {{
    fn0 = u0:{of}(i64) -> i64 system_v
block0:
    v0 = func_addr.i64 fn0
    return v0
}}"
    )
}

/// A function that takes an address by a global value.
fn takes_address_of_symbol(own: u32, of: u32) -> String {
    format!(
        "function u0:{own}() -> i64 system_v {{
    gv0 = symbol u0:{of}
block0:
    v0 = symbol_value.i64 gv0
    return v0
}}"
    )
}

/// The symbols that a function names, and how many arguments its calls pass.
fn calls_of(func: &Function) -> Vec<(String, usize)> {
    let insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
    let calls = insts.filter_map(|inst| {
        let data = &func.dfg.insts[inst];
        let (callee, args) = match data
            .analyze_call(&func.dfg.value_lists, &func.dfg.exception_tables)
        {
            cranelift_codegen::ir::instructions::CallInfo::Direct(callee, args) => (callee, args),
            _ => return None,
        };
        let name = func.dfg.ext_funcs[callee].name.display(Some(&func.params)).to_string();
        Some((name, args.len()))
    });
    calls.collect()
}

/// Once, calls of functions that an earlier unit had redirected with extra arguments stayed as they
/// were: they passed no extra arguments, to a symbol that was not defined.
#[test]
fn a_later_unit_passes_the_extra_arguments() {
    let mut program = Program::new(FOR_SIZE);
    let (first, _) =
        program.unit(&[(mixes(1, 5), LOCAL), (mixes(2, 6), LOCAL), (mixes(3, 7), LOCAL)]);
    for (_, entry) in first.entries().take(3) {
        assert!(
            matches!(entry.disposition(), Disposition::Redirect { .. }),
            "{:?}",
            entry.symbol()
        );
        assert_eq!(entry.extra_arguments().len(), 1);
    }
    // Each call passes its own extra arguments, however many functions were merged into one body.
    for (caller, callee, k) in [(7, 1, 5), (8, 3, 7), (9, 2, 6), (10, 1, 5)] {
        let (later, functions) = program.unit(&[(calls(caller, callee), Attributes::default())]);
        assert_eq!(calls_of(&functions[0]), [("u9:1".to_owned(), 2)]);
        assert!(functions[0].to_string().contains(&format!("iconst.i64 {k}\n")), "{callee}");
        assert!(later.late_thunks().is_empty());
    }
}

/// Functions that were merged into an equal one.
#[test]
fn a_later_unit_calls_the_representative_of_an_eliminated_function() {
    let mut program = Program::new(Similar::OFF);
    program.unit(&[(mixes(1, 5), LOCAL), (mixes(2, 5), LOCAL)]);
    let (plan, functions) = program.unit(&[(calls(7, 2), Attributes::default())]);
    assert_eq!(calls_of(&functions[0]), [("u0:1".to_owned(), 1)]);
    assert!(plan.late_thunks().is_empty());
}

/// A function whose address is significant and first taken in a later unit has no code: it gets a
/// late thunk, once.
#[test]
fn a_function_whose_address_is_taken_later_gets_a_late_thunk() {
    let by_reference: fn(u32, u32) -> String = takes_address;
    let by_symbol: fn(u32, u32) -> String = takes_address_of_symbol;
    for (similar, constants, arguments, takes_address) in [
        (Similar::OFF, [5, 5], 0, by_reference),
        (Similar::OFF, [5, 5], 0, by_symbol),
        (FOR_SIZE, [5, 6], 1, by_reference),
        (FOR_SIZE, [5, 6], 1, by_symbol),
    ] {
        let mut program = Program::new(similar);
        program.unit(&[(mixes(1, constants[0]), LOCAL), (mixes(2, constants[1]), LOCAL)]);
        let texts = [(takes_address(7, 2), Attributes::default())];
        let (plan, _) = program.unit(&texts);
        let [LateThunk { function, signature }] = plan.late_thunks() else {
            panic!("{:?}", plan.late_thunks());
        };
        let entry = plan.entry(*function);
        assert_eq!(entry.symbol(), &UserExternalName::new(0, 2));
        assert!(matches!(entry.disposition(), Disposition::Thunk { .. }));
        assert_eq!(plan.thunk_arguments(*function).len(), arguments);
        assert_eq!(signature.params.len(), 1);
        let (again, functions) = program.unit(&[
            (takes_address(8, 2), Attributes::default()),
            (calls(9, 2), Attributes::default()),
        ]);
        assert!(again.late_thunks().is_empty(), "it has a thunk already");
        let to = if arguments == 0 { "u0:1" } else { "u0:2" };
        assert_eq!(calls_of(&functions[1]), [(to.to_owned(), 1)]);
    }
}

/// Where the address is insignificant, the address of the representative is used.
#[test]
fn an_insignificant_address_taken_later_is_that_of_the_representative() {
    let free = Attributes { addresses: Addresses::Insignificant, ..LOCAL };
    let mut program = Program::new(Similar::OFF);
    program.unit(&[(mixes(1, 5), free), (mixes(2, 5), free)]);
    let (plan, functions) = program.unit(&[(takes_address(7, 2), Attributes::default())]);
    assert!(plan.late_thunks().is_empty());
    assert!(functions[0].to_string().contains("u0:1"), "{}", functions[0]);
}

/// A call with a mismatched signature passes its arguments to the function as it was: through a
/// late thunk.
#[test]
fn a_mismatched_call_that_comes_later_goes_to_a_late_thunk() {
    // More parameters, and an equal number of another kind.
    for (types, result, convention) in [
        ("i64, i64", "i64", "system_v"),
        ("f64", "i64", "system_v"),
        ("i32", "i64", "system_v"),
        ("i64 vmctx", "i64", "system_v"),
        ("i64", "f64", "system_v"),
        ("i64", "i64", "fast"),
    ] {
        let mut program = Program::new(FOR_SIZE);
        program.unit(&[(mixes(1, 5), LOCAL), (mixes(2, 6), LOCAL)]);
        let ty = &types[..3];
        let passed = vec!["v0"; types.split(',').count()];
        let mismatched = format!(
            "function u0:7({ty}) -> {result} system_v {{
    fn0 = u0:2({types}) -> {result} {convention}
block0(v0: {ty}):
    v1 = call fn0({})
    return v1
}}",
            passed.join(", ")
        );
        let (plan, functions) = program.unit(&[(mismatched, Attributes::default())]);
        assert_eq!(plan.late_thunks().len(), 1, "{types} {result} {convention}");
        assert_eq!(calls_of(&functions[0]), [("u0:2".to_owned(), passed.len())]);
    }
}

/// A plan states the alignments of functions that earlier units eliminated: the body that replaced
/// them has the largest of their alignments, and a late thunk has that of its function.
#[test]
fn alignments_of_eliminated_functions_are_known_later() {
    let aligned = |alignment: u32| Attributes { alignment, ..LOCAL };
    for similar in [Similar::OFF, FOR_SIZE] {
        for alignments in [[64, 1, 16], [1, 16, 64], [16, 64, 1]] {
            let constant = |at: usize| if similar == Similar::OFF { 5 } else { at as i64 };
            let mut program = Program::new(similar);
            let texts =
                [0, 1, 2].map(|at| (mixes(1 + at as u32, constant(at)), aligned(alignments[at])));
            let (first, _) = program.unit(&texts);
            let redirected: Vec<usize> = (0..3)
                .filter(|&at| {
                    let entry = first.entry(FunctionIndex::from_u32(at as u32));
                    matches!(entry.disposition(), Disposition::Redirect { .. })
                })
                .collect();
            assert!(redirected.len() >= 2, "{alignments:?}");
            let takers: Vec<(String, Attributes)> = redirected
                .iter()
                .map(|&at| (takes_address(10 + at as u32, 1 + at as u32), Attributes::default()))
                .collect();
            let (plan, _) = program.unit(&takers);
            assert_eq!(plan.late_thunks().len(), redirected.len());
            for (late, &at) in plan.late_thunks().iter().zip(&redirected) {
                let entry = plan.entry(late.function);
                assert_eq!(entry.symbol(), &UserExternalName::new(0, 1 + at as u32));
                assert_eq!(entry.alignment(), alignments[at], "{alignments:?}");
                let to = entry.disposition().representative().expect("a thunk");
                let largest = redirected.iter().map(|&at| alignments[at]).max();
                assert_eq!(Some(plan.entry(to).alignment()), largest, "{alignments:?}");
            }
        }
    }
}

/// The symbols of a plan's own functions to which what is emitted refers: in the bodies, as they
/// are after the plan was applied, and in thunks.
fn referred_to(plan: &Plan, functions: &[Function]) -> Vec<UserExternalName> {
    let mut symbols = Vec::new();
    for output in plan.outputs() {
        let body = match &output.emit {
            Emit::Body => &functions[output.function.as_u32() as usize],
            Emit::NewBody(body) => body,
            Emit::Thunk { to, extra_arguments, .. } => {
                symbols.push((*to).clone());
                symbols.extend(extra_arguments.iter().filter_map(|extra| extra.symbol().cloned()));
                continue;
            }
            Emit::Alias { to } => {
                symbols.push((*to).clone());
                continue;
            }
            Emit::Nothing => continue,
        };
        let callees = body.dfg.ext_funcs.values().map(|callee| &callee.name);
        let names = callees.filter_map(|name| match name {
            ExternalName::User(name) => Some(body.params.user_named_funcs()[*name].clone()),
            _ => None,
        });
        symbols.extend(names);
    }
    symbols
}

/// Later units know the functions that a unit eliminated although it was planned as if there were
/// no others: once, only a unit that was planned after an earlier one said so, and later callers
/// called symbols without code.
#[test]
fn later_units_know_what_a_first_unit_eliminated() {
    let mut program = Program::new(FOR_SIZE);
    let (plan, _) = program.unit_of(&[(mixes(1, 5), LOCAL), (mixes(2, 6), LOCAL)], false);
    let [body] = plan.new_bodies() else { panic!("one body") };
    let body = plan.entry(body.function()).symbol().clone();
    let eliminated = UserExternalName::new(0, 1);
    assert!(program.cache.without_code(&plan, &eliminated).is_some());
    let (plan, functions) = program.unit(&[(calls(3, 1), LOCAL), (takes_address(4, 2), LOCAL)]);
    let names = referred_to(&plan, &functions);
    assert!(names.contains(&body) && !names.contains(&eliminated), "{names:?}");
    assert_eq!(plan.late_thunks().len(), 1);
}

/// A plan that eliminates a function whose address is passed or taken, which is wrong, leaves a
/// reference to a symbol of which it says that it has no code, and why; a right plan leaves none.
/// Whoever emits code can refuse it.
#[test]
fn a_plan_says_which_references_lead_nowhere() {
    for earlier in [false, true] {
        let mut program = Program::new(FOR_SIZE);
        let similar = [(mixes(1, 5), LOCAL), (mixes(2, 6), LOCAL)];
        let taker = (takes_address(3, 2), LOCAL);
        let (plan, functions) = match earlier {
            false => program.unit(&[&similar[..], &[taker]].concat()),
            true => {
                program.unit(&similar);
                program.unit(&[taker])
            }
        };
        let nowhere = |plan: &Plan, functions: &[Function]| -> Vec<String> {
            let names = referred_to(plan, functions).into_iter();
            names
                .filter_map(|name| Some(program.cache.without_code(plan, &name)?.to_string()))
                .collect()
        };
        assert_eq!(nowhere(&plan, &functions), [""; 0]);
        let symbol = UserExternalName::new(0, 2);
        let function = plan.function(&symbol).expect("it is known");
        let Disposition::Thunk { to } = plan.entry(function).disposition() else {
            panic!("its address is taken")
        };
        let to_symbol = plan.entry(to).symbol().clone();
        let wrong = decided(plan, function, Disposition::Redirect { to });
        let unit = if earlier { "an earlier unit" } else { "this unit" };
        let expected = format!(
            "{symbol} has no code: {unit} merged it into {to_symbol}, which takes an extra argument (address-taken)"
        );
        assert_eq!(nowhere(&wrong, &functions), [expected]);
    }
}

/// All known functions are counted: emitted ones and eliminated ones.
#[test]
fn functions_of_all_units_are_counted() {
    for similar in [Similar::OFF, FOR_SIZE] {
        let mut program = Program::new(similar);
        assert_eq!(program.cache.remembered(), 0);
        program.unit(&[(mixes(1, 5), LOCAL), (mixes(2, 5), LOCAL), (calls(3, 1), LOCAL)]);
        assert_eq!(program.cache.remembered(), 3);
        program.unit(&[(mixes(4, 6), LOCAL), (takes_address(5, 2), LOCAL)]);
        assert_eq!(program.cache.remembered(), 5);
    }
}

/// A unit of data objects and no functions.
struct Objects(Vec<DataObject>);

impl Bodies for Objects {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        unreachable!("there is no {function}")
    }

    fn data(&mut self, data: DataIndex) -> Option<&DataObject> {
        Some(&self.0[data.as_u32() as usize])
    }
}

/// Functions of a later unit that refer to a data object that an earlier unit eliminated refer to
/// its representative, whichever name they use, and the plan has an entry for it.
#[test]
fn a_later_unit_refers_to_the_representative_of_an_eliminated_object() {
    let mut program = Program::new(Similar::OFF);
    // The first one has other contents.
    let object = |byte| {
        let contents = Contents::Bytes(vec![byte, 2, 3]);
        DataObject { contents, relocations: Vec::new(), section: None }
    };
    let mut objects = Objects([9, 1, 1, 1].map(object).into());
    let symbols = [10, 11, 12].map(|index| UserExternalName::new(0, index));
    let names = [UserExternalName::new(0, 13)].into_iter().chain(symbols.clone());
    let mut merger = Merger::after(&program.cache, Options::default());
    for ((symbol, alignment), object) in names.zip([1, 1, 64, 1]).zip(&objects.0) {
        let attributes = DataAttributes {
            linkage: Linkage::Local,
            addresses: Addresses::Insignificant,
            alignment,
            ..DataAttributes::default()
        };
        merger.add_data(symbol, object, attributes).expect("is added");
    }
    let (plan, increment) = merger.plan_increment(&mut objects);
    assert_eq!(plan.stats().merged.data_objects, 2);
    program.cache.extend(&increment);
    let texts = [takes_address_of_symbol(20, 12), takes_address_of_symbol(21, 11)];
    let (plan, functions) = program.unit(&texts.map(|text| (text, LOCAL)));
    let [first, eliminated, other] = symbols.each_ref().map(|symbol| plan.data(symbol));
    let entry = |data: Option<DataIndex>| plan.data_entry(data.expect("is referred to"));
    let mut classes: BTreeSet<u32> = BTreeSet::new();
    for eliminated in [eliminated, other] {
        let to = entry(eliminated).disposition().representative().expect("was eliminated");
        let kept = plan.data_entry(to);
        assert_eq!((kept.symbol(), kept.disposition()), (&symbols[0], Disposition::Keep));
        assert_eq!((kept.reason(), kept.alignment()), (Reason::Representative, 64));
        classes.extend([kept.class(), entry(eliminated).class()]);
    }
    classes.insert(plan.entry(FunctionIndex::from_u32(0)).class());
    assert_eq!(classes.len(), 4, "each is alone in its class");
    assert_eq!(first, None, "nothing refers to it by name");
    let GlobalValueData::Symbol { name: ExternalName::User(name), .. } =
        &functions[0].global_values[GlobalValue::from_u32(0)]
    else {
        panic!("a symbol");
    };
    assert_eq!(functions[0].params.user_named_funcs()[*name], symbols[0]);
    // Functions that refer to one object by two names are equal.
    let second = plan.entry(FunctionIndex::from_u32(1)).disposition();
    assert_eq!(second, Disposition::Redirect { to: FunctionIndex::from_u32(0) });
}
