//! Each oracle, as a function from the number of a case to whether it noticed something wrong.

use crate::by_hand;
use crate::incremental::{
    in_steps, is_linked_otherwise, is_refused_incrementally, refers_to_nothing, runs_otherwise,
    runs_otherwise_by_units, streams_program_otherwise,
};
use crate::units;
use arbitrary::Unstructured;
use cranelift_codegen::ir::{
    AbiParam, ConstantPool, Function, Signature, UserExternalName, UserStackMapEntry, types,
};
use cranelift_codegen::isa::CallConv;
use testkit::check::check_plan;
use testkit::classes::classes;
use testkit::differential::{Comparison, Effort, End, Outcome, invocations};
use cranelift_mergefunc::fault_injection::{Fault, planted};
use testkit::generate::expected::Relation;
use testkit::generate::function::Profile;
use testkit::generate::opcodes::Machine;
use testkit::generate::unit::GeneratedUnit;
use testkit::module;
use testkit::mutate::function::function_mutants;
use testkit::mutate::{Mutant, instruction_mutants};
use testkit::program::{Parts, Program, Streaming};
use testkit::unit::{DataMember, Unit};
use testkit::support::{Rng, free, parse_one, walk_all};
use testkit::thunks::thunk;
use cranelift_mergefunc::{Addresses, ExtraArgument, Linkage, Merger, Options, Policy, Similar, Plan, Prove, Target, cranelift_codegen};
use cranelift_mergefunc::check::prove;
use cranelift_mergefunc::data::{Contents, DataAttributes, DataObject, DataReloc};
use cranelift_mergefunc::explain::Encoding;
use cranelift_mergefunc::thunk::{CallThunks, OptimizeFor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use testkit::host::{self, Level};

/// An oracle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Oracle {
    /// A function with one change has another encoding.
    Sensitivity,
    /// The independent checker proves every plan.
    Checker,
    /// Classes are those of the definition, or of the construction.
    Classes,
    /// Nothing observable is lost, and every reference goes where it should.
    Laws,
    /// The merged unit does what the unmerged one does.
    Differential,
    /// A merged program of several flushes does what the unmerged one does, in a JIT.
    Incremental,
    /// Random incremental programs by the library alone, unit by unit.
    Library,
    /// Random incremental programs as objects that are linked, also with functions interposed.
    Linked,
    /// A merging module behaves as a plain one under the same random calls.
    Modules,
    /// Thunks in raw bytes reach symbols as the back end does.
    Thunks,
    /// A unit or program whose IR was not kept does what the unmerged one does.
    Streaming,
    /// Units that are planned apart do what they do as one.
    Units,
    /// Copies in several units have equal code.
    Copies,
    /// Frames of merged programs are those of unmerged ones.
    Frames,
}

impl Oracle {
    pub const ALL: [Oracle; 14] = [
        Oracle::Sensitivity,
        Oracle::Checker,
        Oracle::Classes,
        Oracle::Laws,
        Oracle::Differential,
        Oracle::Incremental,
        Oracle::Library,
        Oracle::Linked,
        Oracle::Modules,
        Oracle::Thunks,
        Oracle::Streaming,
        Oracle::Units,
        Oracle::Copies,
        Oracle::Frames,
    ];

    /// How many cases it has.
    pub fn cases(self) -> u64 {
        match self {
            Oracle::Sensitivity => mutants().len() as u64,
            Oracle::Checker => mutants().len() as u64 + 4 * UNITS + DIFFERING,
            Oracle::Classes | Oracle::Laws => 4 * UNITS,
            Oracle::Differential => UNITS + DIFFERING,
            Oracle::Incremental | Oracle::Library | Oracle::Thunks | Oracle::Streaming => UNITS,
            Oracle::Units | Oracle::Copies => units::COUNT,
            Oracle::Frames => 1000,
            Oracle::Linked => 13,
            Oracle::Modules => 4 * UNITS,
        }
    }

    /// Whether a case fails with this fault injected.
    pub fn notices(self, fault: Option<Fault>, case: u64) -> bool {
        let mutants = mutants();
        match (self, mutants.get(case as usize)) {
            (Oracle::Sensitivity, Some((func, mutant))) => {
                planted(fault, || confused(func, mutant))
            }
            (Oracle::Checker, Some((func, mutant))) => {
                planted(fault, || confused(func, mutant) && refused(func, mutant))
            }
            (Oracle::Sensitivity, None) => false,
            (Oracle::Checker, None) => {
                let seed = case - mutants.len() as u64;
                let unit = any_unit(seed);
                // As one unit, and some as several consecutive units.
                let divided = seed < 2 + by_hand::COUNT || seed.is_multiple_of(2);
                let sizes = seed.checked_sub(2).map_or(&[][..], by_hand::sizes);
                planted(fault, || {
                    !is_proved(&unit) || divided && is_refused_incrementally(&unit, sizes, seed)
                })
            }
            (Oracle::Classes, _) => has_wrong_classes(fault, case),
            (Oracle::Laws, _) => {
                let unit = any_unit(case);
                let sizes = case.checked_sub(2).map_or(&[][..], by_hand::sizes);
                planted(fault, || {
                    panics(|| drop(check_plan(&unit, unit.plan())))
                        || refers_to_nothing(&unit, sizes, case)
                })
            }
            (Oracle::Differential, _) => does_something_else(fault, case),
            (Oracle::Incremental, _) => planted(fault, || runs_otherwise(case)),
            (Oracle::Library, _) => {
                planted(fault, || runs_otherwise_by_units(seed_of(case, &LIBRARY_FIRST)))
            }
            (Oracle::Linked, _) => planted(fault, || is_linked_otherwise(case)),
            (Oracle::Modules, _) => planted(fault, || is_another_module(case)),
            (Oracle::Thunks, _) => planted(fault, || has_other_thunks(case)),
            (Oracle::Streaming, _) => match seed_of(case, &STREAMED_FIRST) {
                even if even.is_multiple_of(2) => streams_otherwise(fault, even),
                odd => planted(fault, || streams_program_otherwise(odd)),
            },
            (Oracle::Units, _) => units::run_otherwise(fault, case),
            (Oracle::Frames, _) => planted(fault, || panics(|| _ = testkit::backtrace::check(case))),
            (Oracle::Copies, _) => units::copies_differ(fault, case),
        }
    }
}

/// The namespace of duplicates that call other functions.
const NEAR_MISSES: u32 = 78;

/// The namespace of callers that are not added to all mergers.
const CALLERS: u32 = 79;

/// Seeds of units and programs that come first, since faults are noticed there: otherwise it would
/// take as long to come to them as all else.
const STREAMED_FIRST: [u64; 13] = [0, 1, 2, 4, 9, 13, 23, 29, 33, 34, 49, 59, 83];
const LIBRARY_FIRST: [u64; 2] = [2, 13];

/// The seed of a case.
fn seed_of(case: u64, first: &[u64]) -> u64 {
    let rest = case.checked_sub(first.len() as u64);
    rest.unwrap_or_else(|| first[case as usize])
}

/// How many generated units there are.
const UNITS: u64 = 400;

/// How many units of functions that differ in few instructions come after them.
const DIFFERING: u64 = 60;

/// Functions that have every opcode, and the mutants of each.
fn mutants() -> &'static [(Function, Function)] {
    use std::sync::OnceLock;
    static MUTANTS: OnceLock<Vec<(Function, Function)>> = OnceLock::new();
    MUTANTS.get_or_init(|| {
        let mut mutants = Vec::new();
        for func in testkit::corpus() {
            let all = instruction_mutants(&func).into_iter().chain(function_mutants(&func));
            mutants.extend(all.map(|Mutant { what: _, func: mutant }| (func.clone(), mutant)));
            mutants.extend(other_contents(&func).map(|mutant| (func.clone(), mutant)));
        }
        mutants.extend(by_hand());
        // Similar mutants are neighbours; in this order some of each kind come soon.
        Rng::new(1).shuffle(&mut mutants);
        mutants
    })
}

/// The function with another entry in a table at the place of the old one, so that all indices
/// stay.
fn other_contents(func: &Function) -> Option<Function> {
    let (&handle, data) = func.dfg.constants.iter().next()?;
    let mut other = func.clone();
    let mut pool = ConstantPool::new();
    let bytes: Vec<u8> = data.iter().map(|byte| !byte).collect();
    pool.set(handle, bytes.into());
    for (&handle, data) in func.dfg.constants.iter().skip(1) {
        pool.set(handle, data.clone());
    }
    other.dfg.constants = pool;
    Some(other)
}

/// Pairs that differ in properties that the functions of the laws do not have.
fn by_hand() -> Vec<(Function, Function)> {
    let float = |ty: &str, value: &str| {
        parse_one(&format!(
            "function u0:0() -> {ty} tail {{
block0:
    v0 = {ty}const {value}
    return v0
}}"
        ))
    };
    let mapped = |offset: Option<u32>| {
        let mut func = parse_one(
            "function u0:0() tail {
    ss0 = explicit_slot 16
    fn0 = u1:0() tail
block0:
    call fn0()
    return
}",
        );
        let slot = func.sized_stack_slots.keys().next().expect("one slot");
        let call = func.layout.first_inst(func.layout.entry_block().unwrap()).expect("a call");
        if let Some(offset) = offset {
            let entry = UserStackMapEntry { ty: types::I64, slot, offset };
            func.dfg.append_user_stack_map_entry(call, entry);
        }
        func
    };
    vec![
        (float("f32", "0.0"), float("f32", "-0.0")),
        (float("f64", "0.0"), float("f64", "-0.0")),
        (float("f64", "+NaN:0x1"), float("f64", "+NaN:0x2")),
        (mapped(None), mapped(Some(0))),
        (mapped(Some(8)), mapped(Some(0))),
    ]
}

/// Two tables that differ in a section, or in the addend of a pointer, and a third that they point
/// to.
fn tables(seed: u64) -> Unit {
    let symbol = |index| UserExternalName::new(4, index);
    let table = |index, addend, section: Option<&str>| {
        let reloc = DataReloc { offset: 8, target: symbol(2), addend };
        let object = DataObject {
            contents: Contents::Bytes(vec![0; 16]),
            relocations: if index == 2 { Vec::new() } else { vec![reloc] },
            section: section.map(Into::into),
        };
        let attributes = DataAttributes {
            linkage: Linkage::Local,
            addresses: Addresses::Insignificant,
            ..DataAttributes::default()
        };
        DataMember { symbol: symbol(index), attributes, object }
    };
    let (addend, section) = if seed.is_multiple_of(2) { (8, None) } else { (0, Some("other")) };
    let data = vec![table(0, 0, None), table(1, addend, section), table(2, 0, None)];
    Unit { functions: Vec::new(), data, options: walk_all() }
}

/// Whether two different functions are equal to the pass.
fn confused(func: &Function, mutant: &Function) -> bool {
    let options = walk_all();
    let encoding = Encoding::of(mutant, &options);
    encoding.is_some() && encoding == Encoding::of(func, &options)
}

/// Whether the checker refuses to merge them.
fn refused(func: &Function, mutant: &Function) -> bool {
    let options = Options { prove: Prove::Never, ..walk_all() };
    let bodies = [func.clone(), mutant.clone()];
    let mut merger = Merger::new(options);
    for (body, index) in bodies.iter().zip(0..) {
        merger.add(UserExternalName::new(1000, index), body, free()).expect("is added");
    }
    let plan = merger.plan(&mut &bodies[..]);
    prove(&plan, &mut &bodies[..], &options).is_err()
}

/// A unit of any kind, not proved when it is planned.
fn any_unit(seed: u64) -> Unit {
    let mut unit = match seed % 2 {
        _ if seed < 2 => tables(seed),
        _ if seed < 2 + by_hand::COUNT => by_hand::unit(seed - 2),
        _ if seed >= 4 * UNITS => generated(seed, &Profile::all(Machine::host()).differing()).unit,
        0 => recipe(seed),
        _ => generated(seed, &Profile::all(Machine::host())).unit,
    };
    unit.options.prove = Prove::Never;
    unit
}

fn recipe(seed: u64) -> Unit {
    let bytes = Rng::new(seed).bytes(2048);
    let mut unit = Unit::random(&mut Unstructured::new(&bytes)).expect("enough input");
    unit.options.merge_limit = None;
    unit
}

fn generated(seed: u64, profile: &Profile) -> GeneratedUnit {
    let bytes = Rng::new(seed).bytes(8192);
    GeneratedUnit::draw(&mut Unstructured::new(&bytes), profile)
}

fn is_proved(unit: &Unit) -> bool {
    unit.prove(&unit.plan()).is_ok()
}

fn has_wrong_classes(fault: Option<Fault>, case: u64) -> bool {
    let class =
        |plan: &Plan| -> Vec<u32> { plan.entries().map(|(_, entry)| entry.class()).collect() };
    if case.is_multiple_of(2) {
        let mut unit = recipe(case);
        unit.options.prove = Prove::Never;
        // Classes are those of identical merging.
        unit.options.similar = Similar::OFF;
        let oracle = classes(&unit);
        let class = class(&planted(fault, || unit.plan()));
        let mut pairs = (0..unit.functions.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
        return pairs.any(|(a, b)| (class[a] == class[b]) != oracle.equal(a, b));
    }
    let mut generated = generated(case, &Profile::all(Machine::host()));
    generated.unit.options.prove = Prove::Never;
    generated.unit.options.similar = Similar::OFF;
    let class = class(&planted(fault, || generated.unit.plan()));
    let mut pairs = (0..generated.about.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
    pairs.any(|(a, b)| match generated.expected.relation(a, b) {
        Relation::Equal => class[a] != class[b],
        Relation::Different => class[a] == class[b],
        Relation::Unknown => false,
    })
}

fn does_something_else(fault: Option<Fault>, case: u64) -> bool {
    if let Some(&number) = by_hand::RUN.get(case as usize) {
        let (unit, sizes) = (by_hand::unit(number), by_hand::sizes(number));
        // Facts are used.
        return runs_differently_at(Level::Speed, fault, || match sizes {
            [] => Comparison::new(&Parts::from(&unit), case, Effort::default()),
            _ => {
                let is_called = |function: &_| by_hand::is_called(number, function);
                Some(in_steps(&unit, sizes, &is_called, case))
            }
        });
    }
    let profile = Profile::runnable(Machine::host());
    let profile = if case < UNITS { profile } else { profile.differing() };
    let mut generated = generated(case, &profile);
    if !generated.about.iter().all(|about| about.runnable) {
        return false;
    }
    generated.unit.options.prove = Prove::Never;
    if case % 4 == 3 && case < UNITS {
        // With call thunks.
        generated.unit.options.target = Target::generic();
        generated.unit.options.target.call_thunks = Some(CallThunks { tail_calls: true, colocated: true });
    }
    differs(fault, &generated.unit, case)
}

/// Whether a unit behaves differently when it is merged.
fn differs(fault: Option<Fault>, unit: &Unit, case: u64) -> bool {
    let parts = Parts::from(unit);
    runs_differently(fault, || Comparison::new(&parts, case, Effort::default()))
}

/// Whether the two programs of a comparison, which is made with a fault injected, behave
/// differently.
fn runs_differently(
    fault: Option<Fault>,
    compare: impl FnOnce() -> Option<Comparison>,
) -> bool {
    runs_differently_at(Level::None, fault, compare)
}

pub fn runs_differently_at(
    level: Level,
    fault: Option<Fault>,
    compare: impl FnOnce() -> Option<Comparison>,
) -> bool {
    match planted(fault, || catch_unwind(AssertUnwindSafe(compare))) {
        // A plan that cannot be carried out.
        Err(_) => true,
        Ok(None) => false,
        Ok(Some(comparison)) => {
            let mut host = |program: &_, invocations: &_| host::run_at(level, program, invocations);
            let run = || comparison.run(&mut host).is_err();
            catch_unwind(AssertUnwindSafe(run)).unwrap_or(true)
        }
    }
}

/// A bound of held bytes that most units reach.
const BOUND: usize = 8 << 10;

/// Whether a unit behaves differently if its IR was not kept. Nothing else is asserted: only what
/// runs counts.
fn streams_otherwise(fault: Option<Fault>, case: u64) -> bool {
    let unit = match case {
        0 => by_hand::unit(by_hand::STREAMED),
        _ => {
            let mut generated = generated(case, &Profile::runnable(Machine::host()));
            if !generated.about.iter().all(|about| about.runnable) {
                return false;
            }
            generated.unit.push_with_other_callees(NEAR_MISSES);
            let options = &mut generated.unit.options;
            options.similar = Similar { policy: Policy::Size, ..options.similar };
            generated.unit
        }
    };
    let differs = |unit: &Unit, streaming| {
        let parts = Parts::from(unit);
        runs_differently(fault, || Some(Comparison::streamed(&parts, streaming, case, Effort::default()).0))
    };
    let all = [
        Streaming::Holding(usize::MAX),
        Streaming::Holding(BOUND),
        Streaming::Replacing(usize::MAX),
        Streaming::BeforeCode { left_out: 0 },
    ];
    if all.into_iter().any(|streaming| differs(&unit, streaming)) {
        return true;
    }
    let mut unit = unit;
    unit.push_callers(CALLERS);
    // Half of the callers are added.
    differs(&unit, Streaming::BeforeCode { left_out: 2 })
}

/// Whether a merging module differs from the plain one after random calls.
fn is_another_module(case: u64) -> bool {
    let bytes = Rng::new(case).bytes(1024);
    // Too few bytes are no failure.
    panics(|| {
        let _ = module::check(&mut Unstructured::new(&bytes));
    })
}

/// Whether a thunk takes an address in another way than the back end does.
fn has_other_thunks(case: u64) -> bool {
    let mut rng = Rng::new(case);
    let pic = if rng.one_in(2) { "true" } else { "false" };
    let name = if rng.one_in(2) { "x86_64" } else { "aarch64" };
    let isa = testkit::isa::of(name, &[("is_pic", pic)]);
    let mut own = Signature::new(CallConv::SystemV);
    own.params = vec![AbiParam::new(types::I64); rng.below(5)];
    let arguments = (0..1 + rng.below(3)).map(|number| ExtraArgument::Address {
        ty: types::I64,
        symbol: UserExternalName::new(1, number as u32),
        offset: if rng.one_in(2) { 0 } else { rng.below(1 << 20) as i64 },
        colocated: rng.one_in(2),
    });
    let arguments: Vec<ExtraArgument> = arguments.collect();
    let optimize = if rng.one_in(2) { OptimizeFor::Size } else { OptimizeFor::Speed };
    thunk(&*isa, &own, &arguments, optimize).is_err()
}

/// How the invocations of a generated unit end.
pub fn ends(case: u64) -> Vec<String> {
    let generated = generated(case, &Profile::runnable(Machine::host()));
    let program = Program::unmerged(&Parts::from(&generated.unit));
    let invocations = invocations(&program.entries, case, Effort::default());
    let outcomes = host::run(&program, &invocations);
    let end = |outcome: &Outcome| match &outcome.end {
        End::Returned(_) => "returned".to_owned(),
        other => format!("{other:?}"),
    };
    outcomes.iter().map(end).collect()
}

fn panics(body: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(body)).is_err()
}
