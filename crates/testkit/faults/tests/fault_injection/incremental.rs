//! Oracles of incremental merging: programs in several flushes, executed; units one after the
//! other, proved.
//!
//! Programs that are executed are not proved, so that these oracles share nothing.

use arbitrary::Unstructured;
use cranelift_codegen::ir::{ExternalName, Function, GlobalValueData, UserExternalName};
use testkit::incremental::{
    self, Program, Statistics, check_jit, check_library, check_streaming,
};
use testkit::differential::{Comparison, Effort};
use testkit::program::{self, ADDED, Parts, WRAPPERS};
use testkit::unit::{Member, Unit};
use testkit::support::Rng;
use cranelift_mergefunc::{Addresses, Bodies, Disposition, ExtraArgument, FunctionIndex, Merger, Options, Plan, Policy, Prove, Similar, cranelift_codegen};
use cranelift_mergefunc::incremental::MergeCache;
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use cranelift_module::{FuncOrDataId, Linkage, Module};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, OnceLock, PoisonError};
use testkit::checked::checked;
use testkit::link::Linker;
use testkit::modules::{calls, declare, define_all, insignificant, object, plus};
use testkit::tools::{Kind, Toolchain, Workshop};

/// How many programs are linked at once.
const AT_ONCE: u64 = 12;

fn draw(seed: u64) -> Program {
    let bytes = Rng::new(seed).bytes(8192);
    let mut program = incremental::program(&mut Unstructured::new(&bytes)).expect("a program");
    program.options.prove = Prove::Never;
    program
}

/// Whether a program behaves differently in a JIT when it is merged.
pub fn runs_otherwise(case: u64) -> bool {
    let mut check = |program: &Program| check_jit(program, &mut Statistics::default());
    checked(&draw(case), &mut check).is_err()
}

/// Whether it behaves differently when the library alone merges it, unit by unit.
pub fn runs_otherwise_by_units(case: u64) -> bool {
    let mut check = |program: &Program| check_library(program, &mut Statistics::default());
    checked(&draw(case), &mut check).is_err()
}

/// Whether it behaves differently when its functions arrive one at a time.
pub fn streams_program_otherwise(case: u64) -> bool {
    let mut check = |program: &Program| check_streaming(program, &mut Statistics::default());
    checked(&draw(case), &mut check).is_err()
}

/// Programs that random ones hardly ever contain: `d` means a function that equals `f`, which is
/// exported in the end.
fn interposed_programs() -> [String; 4] {
    let mixes = |name: &str, callee: &str, k: i64| {
        let lines = (3..20)
            .map(|v| format!("    v{v} = {} v{}, v{}\n", ["imul", "bxor"][v % 2], v - 1, v - 2));
        let lines: String = lines.collect();
        format!(
            "export function %{name}(i64) -> i64 system_v {{
    fn0 = %{callee}(i64) -> i64 system_v
block0(v0: i64):
    v20 = iconst.i64 {k}
    v21 = iadd v0, v20
    v1 = call fn0(v21)
    v2 = iadd v0, v1
{lines}    return v19
}}
"
        )
    };
    let preemptible =
        |name: &str, callee: &str| mixes(name, callee, 1).replace("export", "preemptible");
    [
        // `g` is merged into `f`.
        plus("local", "f", 5) + &plus("local", "g", 5) + &calls("export", "d", "g"),
        // `f` is an extra argument that the thunk of a caller of `f` passes; `d`, which calls a
        // duplicate of `f`, is merged with that caller.
        plus("export", "f", 5)
            + &plus("export", "g", 5)
            + &plus("export", "h", 6)
            + &mixes("x", "f", 1)
            + &mixes("d", "g", 1)
            + &mixes("y", "h", 3),
        // `f`, which can be interposed, equals `d`.
        plus("preemptible", "f", 5) + &plus("export", "d", 5),
        // `f` is called by the private copy of preemptible functions, one of which calls `pinned`,
        // a duplicate of `f`. Nothing is merged into `f`.
        plus("export", "f", 5)
            + &plus("local", "pinned", 5)
            + &preemptible("p", "f")
            + &preemptible("d", "pinned"),
    ]
}

/// Another definition of `f`, which may interpose `f`, but not the functions that were merged into
/// it.
const INTERPOSES: &str = "#include <stdio.h>
long d(long);
long f(long x) { return 4242; }
int main(void) { printf(\"%ld\\n\", d(7)); }
";

/// The output of that program, with a unit in a shared library, merged or not.
fn prints(program: &str, is_merged: bool) -> String {
    let options = ModuleOptions {
        back_end: BackEnd::Object,
        function_addresses: Addresses::Significant,
        similar: Similar { policy: Policy::Size, ..Similar::default() },
        prove: Prove::Never,
        merge_limit: if is_merged { None } else { Some(0) },
        ..insignificant()
    };
    let mut module = MergingModule::with_options(object(), options);
    define_all(&mut module, program);
    if let Some(FuncOrDataId::Func(pinned)) = module.get_name("pinned") {
        module.attributes(pinned).pinned = true;
    }
    declare(&mut module, "f", Linkage::Export, "(i64) -> i64 system_v");
    let object = module.finish().expect("an object").emit().expect("an object file");
    let workshop = Workshop::new(&format!("fault-injection-{is_merged}"));
    workshop.write("unit.o", object);
    workshop.write("main.c", INTERPOSES);
    let tools = Toolchain::x86_64();
    workshop.run(tools.gcc, &["-w", "-fPIE", "-c", "main.c", "-o", "main.o"]);
    let printed =
        workshop.link_and_run(&tools, (Kind::Shared, "main"), "main.o", &["unit.o"], &["-w"]);
    printed.unwrap_or_else(|error| panic!("{error}"))
}

/// Whether some program behaves differently as a part of an executable, or of a shared library of
/// which another image defines some functions as well.
pub fn is_linked_otherwise(case: u64) -> bool {
    // One at a time, in directories of their own.
    static LINKER: OnceLock<Mutex<Linker>> = OnceLock::new();
    let linker = LINKER.get_or_init(|| Mutex::new(Linker::new(Toolchain::x86_64(), "fault-injection")));
    let linker = linker.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(case) = case.checked_sub(1) else {
        let differs = || {
            let programs = interposed_programs();
            programs.iter().any(|program| prints(program, true) != prints(program, false))
        };
        return catch_unwind(AssertUnwindSafe(differs)).unwrap_or(true);
    };
    let programs: Vec<Program> = (case * AT_ONCE..(case + 1) * AT_ONCE).map(draw).collect();
    let programs: Vec<&Program> = programs.iter().collect();
    let kind = [Kind::Static, Kind::Shared, Kind::Pie, Kind::Shared][case as usize % 4];
    let check = || !linker.check(&programs, kind, &mut Statistics::default()).is_empty();
    catch_unwind(AssertUnwindSafe(check)).unwrap_or(true)
}

/// Whether the functions of a unit can be used as consecutive units: a pointer into a function that
/// was eliminated means nothing.
fn is_of_use(unit: &Unit) -> bool {
    !unit.functions.iter().any(Member::points_inside)
}

/// The caller's side of consecutive units: symbols of new functions are new.
struct Held<'a> {
    members: &'a [Member],
    fresh: u32,
}

impl Bodies for Held<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self.members[function.as_u32() as usize].body
    }

    fn fresh_symbol(&mut self, _: &[FunctionIndex]) -> Option<UserExternalName> {
        self.fresh += 1;
        Some(UserExternalName::new(ADDED, self.fresh - 1))
    }
}

/// Whether something is wrong with the plan of one of the units into which a unit is divided, of
/// given sizes or of any.
fn is_wrong_in_steps(
    unit: &Unit,
    sizes: &[usize],
    seed: u64,
    mut is_wrong: impl FnMut(&Plan, &[Member]) -> bool,
) -> bool {
    if !is_of_use(unit) {
        return false;
    }
    let (mut rng, mut sizes) = (Rng::new(seed), sizes.iter());
    let mut cache = MergeCache::new();
    let mut held = Held { members: &[], fresh: 0 };
    // The caller says which functions code of earlier units refers to.
    let mut named = HashSet::new();
    let mut rest = &unit.functions[..];
    while !rest.is_empty() {
        let after;
        let size = sizes.next().copied().unwrap_or_else(|| 1 + rng.below(rest.len()));
        (held.members, after) = rest.split_at(size);
        let mut merger = Merger::after(&cache, unit.options);
        for member in held.members {
            let attributes = member.attributes_after(&named);
            merger.add(member.symbol(), &member.body, attributes).expect("is added");
        }
        let (plan, increment) = merger.plan_increment(&mut held);
        if is_wrong(&plan, held.members) {
            return true;
        }
        cache.extend(&increment);
        named.extend(emitted(&plan, held.members));
        rest = after;
    }
    false
}

/// A unit, and the units into which it is divided, merged one after the other, as one program. Some
/// functions are called.
pub fn in_steps(
    unit: &Unit,
    sizes: &[usize],
    is_called: &dyn Fn(&UserExternalName) -> bool,
    seed: u64,
) -> Comparison {
    let mut cache = MergeCache::new();
    let mut named = HashSet::new();
    let mut all = program::Program::default();
    let mut rest = &unit.functions[..];
    for (step, &size) in (0..).zip(sizes) {
        let (members, after) = rest.split_at(size);
        let attributes = |member: &Member| Member {
            attributes: member.attributes_after(&named),
            body: member.body.clone(),
        };
        let functions = members.iter().map(attributes).collect();
        // All data objects are defined last.
        let data = if after.is_empty() { unit.data.clone() } else { Vec::new() };
        let own = Unit { functions, data, ..*unit };
        let parts = Parts::from(&own);
        let (plan, increment) = parts.plan_increment(&cache);
        let mut merged = program::Program::merged(&parts, &plan);
        // Those of all units have one namespace.
        let wrappers = merged.functions.iter_mut().map(|(symbol, _)| symbol);
        let wrappers = wrappers.chain(merged.entries.iter_mut().map(|entry| &mut entry.symbol));
        for wrapper in wrappers.filter(|symbol| symbol.namespace == WRAPPERS) {
            wrapper.index += step << 16;
        }
        all.functions.extend(merged.functions);
        all.data.extend(merged.data);
        all.entries.extend(merged.entries);
        cache.extend(&increment);
        named.extend(emitted(&plan, members));
        rest = after;
    }
    let mut programs = [program::Program::unmerged(&Parts::from(unit)), all];
    for program in &mut programs {
        program.entries.retain(|entry| is_called(&entry.function));
    }
    Comparison::of(programs, seed, Effort::default())
}

/// Whether the checker refuses one of them.
pub fn is_refused_incrementally(unit: &Unit, sizes: &[usize], seed: u64) -> bool {
    let options = Options { prove: Prove::Always, ..unit.options };
    let unit = Unit { options, ..unit.clone() };
    is_wrong_in_steps(&unit, sizes, seed, |plan, _| plan.proof().is_some_and(|proof| proof.is_err()))
}

/// Whether code of one of them refers to a function that was eliminated there or before.
pub fn refers_to_nothing(unit: &Unit, sizes: &[usize], seed: u64) -> bool {
    let mut eliminated: HashSet<UserExternalName> = HashSet::new();
    is_wrong_in_steps(unit, sizes, seed, |plan, members| {
        for (_, entry) in plan.entries().take(plan.added()) {
            if let Disposition::Redirect { .. } = entry.disposition() {
                eliminated.insert(entry.symbol().clone());
            }
        }
        for late in plan.late_thunks() {
            eliminated.remove(plan.entry(late.function).symbol());
        }
        emitted(plan, members).iter().any(|symbol| eliminated.contains(symbol))
    })
}

/// The symbols that the code of a unit refers to.
fn emitted(plan: &Plan, members: &[Member]) -> Vec<UserExternalName> {
    let thunks = plan.entries().take(plan.added());
    let thunks = thunks.filter(|(_, entry)| matches!(entry.disposition(), Disposition::Thunk { .. }));
    let thunks = thunks.map(|(function, _)| function);
    let late = plan.late_thunks().iter().map(|late| late.function);
    let mut symbols: Vec<UserExternalName> =
        thunks.chain(late).flat_map(|thunk| named_by(&plan.thunk_arguments(thunk))).collect();
    let added = members.iter().zip(0..).map(|(member, at)| (FunctionIndex::from_u32(at), &member.body));
    for (function, body) in added.chain(plan.new_bodies().iter().map(|new| (new.function(), new.body()))) {
        if plan.entry(function).disposition() == Disposition::Keep {
            let mut body = body.clone();
            plan.apply(function, &mut body);
            let imports = body.dfg.ext_funcs.values().map(|callee| &callee.name);
            let globals = body.global_values.values().filter_map(|data| match data {
                GlobalValueData::Symbol { name, .. } => Some(name),
                _ => None,
            });
            let names = imports.chain(globals).filter_map(|name| match name {
                ExternalName::User(name) => Some(*name),
                _ => None,
            });
            symbols.extend(names.map(|name| body.params.user_named_funcs()[name].clone()));
        }
    }
    symbols
}

/// The symbols whose addresses are passed.
fn named_by(arguments: &[ExtraArgument]) -> Vec<UserExternalName> {
    let symbol = |argument: &ExtraArgument| match argument {
        ExtraArgument::Constant { .. } => None,
        ExtraArgument::Function { symbol, .. } | ExtraArgument::Address { symbol, .. } => {
            Some(symbol.clone())
        }
    };
    arguments.iter().filter_map(symbol).collect()
}
