//! Run commands of CLIF files whose functions have variants: beside every function and its
//! duplicate there are functions that differ from it in one constant, one instruction or one
//! callee, so that the commands call parameterised bodies, with arms where instructions differ.
//!
//! Duplicates alone only show that identical functions are merged rightly. Generated units hold
//! functions that differ in few instructions, but only what the generator draws; here the functions
//! are those of Cranelift's own tests (`CLIF_MERGE_RUNTESTS`, as for `commands`), which have every
//! instruction and type.

use crate::commands::{File, call_of, compiles_into, files, invocation, is_expected};
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::{
    Block, ExternalName, FuncRef, Function, Inst, InstBuilder, MemFlagsData, Opcode, StackSlotData,
    StackSlotKind, UserExternalName, UserFuncName, Value, types,
};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_mergefunc::{
    Callees, Compare, Instructions, Options, Plan, Policy, Similar, Target, cranelift_codegen,
};
use std::collections::HashMap;
use std::fmt;
use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};
use testkit::aligned;
use testkit::differential::{Comparison, Effort, Tally};
use testkit::host::{Batch, Cpu, Level};
use testkit::isa;
use testkit::mutate::mutants_of;
use testkit::program::{Parts, Program};
use testkit::support::{Rng, free, verifier_error};
use testkit::unit::Member;

/// The difference between a variant and its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Constant,
    Instruction,
    Inserted,
    Callee,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Constant, Kind::Instruction, Kind::Inserted, Kind::Callee];

    /// The symbol of the variant of a function.
    fn symbol(self, function: u32) -> UserExternalName {
        UserExternalName::new(VARIANTS + self as u32, function)
    }

    /// Whether a mutant is a variant of this kind.
    fn is_made_by(self, what: &str) -> bool {
        let begins: &[&str] = match self {
            Kind::Constant => &["immediate of", "constant of", "offset of"],
            Kind::Instruction => {
                &["opcode ", "condition of", "operation of", "operand ", "exchanged operands"]
            }
            Kind::Inserted | Kind::Callee => &[],
        };
        begins.iter().any(|begin| what.starts_with(begin))
    }
}

/// The first namespace of variants.
const VARIANTS: u32 = 101;

/// Most functions of tests are so small that no body for two of them pays. So each begins with this
/// number of instructions that compute what nobody reads.
const PADDING: usize = 24;

/// Instructions that are tried for a variant.
const ATTEMPTS: usize = 6;

/// Lets a function begin with [`PADDING`].
fn pad(func: &mut Function) {
    let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, 8, 3);
    let slot = func.create_sized_stack_slot(slot);
    let entry = func.layout.entry_block().expect("has a body");
    let mut cursor = FuncCursor::new(func);
    cursor.goto_first_insertion_point(entry);
    let address = cursor.ins().stack_addr(types::I64, slot, 0);
    let mut value = address;
    for round in 0..PADDING {
        value = match round % 3 {
            0 => cursor.ins().imul(value, address),
            1 => cursor.ins().rotl(value, address),
            _ => cursor.ins().bxor(value, address),
        };
    }
    cursor.ins().store(MemFlagsData::trusted(), value, address, 0);
}

/// Code that compiles for this machine at both ends of what is done to it.
struct Machine([OwnedTargetIsa; 2]);

impl Machine {
    fn new() -> Machine {
        Machine(["none", "speed"].map(|level| {
            isa::native(&[
                ("opt_level", level),
                ("preserve_frame_pointers", "true"),
                ("enable_multi_ret_implicit_sret", "true"),
                ("enable_llvm_abi_extensions", "true"),
                ("enable_pinned_reg", "true"),
            ])
        }))
    }

    fn compiles(&self, func: &Function) -> bool {
        let compile = |isa: &OwnedTargetIsa| {
            let mut context = cranelift_codegen::Context::for_function(func.clone());
            context.compile(&**isa, &mut Default::default()).is_ok()
        };
        let fits = || verifier_error(func).is_none() && self.0.iter().all(compile);
        // The verifier and the back end panic at some of what they do not support.
        catch_unwind(AssertUnwindSafe(fits)).unwrap_or(false)
    }
}

/// The instructions behind the padding, in random order.
fn places(func: &Function, rng: &mut Rng) -> Vec<(Block, Inst)> {
    let blocks = func.layout.blocks();
    let all =
        blocks.flat_map(|block| func.layout.block_insts(block).map(move |inst| (block, inst)));
    let mut places: Vec<(Block, Inst)> = all.skip(PADDING + 2).collect();
    rng.shuffle(&mut places);
    places
}

/// A function that differs from another one in one thing, if one is found.
fn variant(
    func: &Function,
    kind: Kind,
    others: &HashMap<UserExternalName, UserExternalName>,
    rng: &mut Rng,
    machine: &Machine,
) -> Option<Function> {
    let fits = |func: &Function| machine.compiles(func);
    let places = places(func, rng);
    match kind {
        Kind::Constant | Kind::Instruction => {
            let mutants = |&(block, inst): &(Block, Inst)| mutants_of(func, block, inst);
            let some = places.iter().take(4 * ATTEMPTS).filter_map(|place| {
                let mut mutants = mutants(place);
                mutants.retain(|mutant| kind.is_made_by(&mutant.what));
                rng.shuffle(&mut mutants);
                mutants.into_iter().take(ATTEMPTS).find(|mutant| fits(&mutant.func))
            });
            some.take(1).next().map(|mutant| mutant.func)
        }
        Kind::Inserted => {
            let some = places.into_iter().filter_map(|(_, inst)| insert(func, inst));
            some.take(ATTEMPTS).find(fits)
        }
        Kind::Callee => {
            let callees: Vec<FuncRef> = func.dfg.ext_funcs.keys().collect();
            callees.into_iter().find_map(|callee| {
                let mut func = func.clone();
                let ExternalName::User(name) = func.dfg.ext_funcs[callee].name else {
                    return None;
                };
                let other = others.get(&func.params.user_named_funcs()[name])?.clone();
                let name = func.params.ensure_user_func_name(other);
                func.dfg.ext_funcs[callee].name = ExternalName::User(name);
                Some(func)
            })
        }
    }
}

/// The function with an instruction before another one, whose result that takes instead of one of
/// its operands.
fn insert(func: &Function, inst: Inst) -> Option<Function> {
    let is_int = |&value: &Value| func.dfg.value_type(value).is_int();
    let operand = func.dfg.inst_args(inst).iter().position(is_int)?;
    // An offset behind an address would only give another address.
    if matches!(func.dfg.insts[inst].opcode(), Opcode::Load | Opcode::Store) {
        return None;
    }
    let mut func = func.clone();
    let value = func.dfg.inst_args(inst)[operand];
    let mut cursor = FuncCursor::new(&mut func);
    cursor.goto_inst(inst);
    let inserted = cursor.ins().bnot(value);
    func.dfg.inst_args_mut(inst)[operand] = inserted;
    Some(func)
}

/// The functions of a file with their padding, duplicates, and variants, and how many there are of
/// each kind.
fn with_variants(file: &File, machine: &Machine) -> (Vec<Member>, [usize; 4]) {
    let mut functions = file.functions.clone();
    functions.iter_mut().for_each(|member| pad(&mut member.body));
    let half = functions.len() / 2;
    let mut counts = [0; 4];
    // The callees that may replace another one: a variant, which has its signature.
    let mut others = HashMap::new();
    for kind in Kind::ALL {
        for at in 0..half {
            let mut rng = Rng::new(at as u64 ^ (kind as u64) << 32);
            let original = functions[at].clone();
            if let Some(mut body) = variant(&original.body, kind, &others, &mut rng, machine) {
                let symbol = kind.symbol(at as u32);
                body.name = UserFuncName::User(symbol.clone());
                others.insert(original.symbol(), symbol);
                functions.push(Member { attributes: free(), body });
                counts[kind as usize] += 1;
            }
        }
    }
    (functions, counts)
}

/// The counts of merges.
#[derive(Clone, Copy, Debug, Default)]
struct Merged {
    /// Parameterised bodies.
    bodies: usize,
    /// Of these, those with arms.
    aligned: usize,
    /// Commands whose functions pass extra arguments to such a body.
    commands: usize,
}

impl AddAssign for Merged {
    fn add_assign(&mut self, other: Merged) {
        let Merged { bodies, aligned, commands } = other;
        self.bodies += bodies;
        self.aligned += aligned;
        self.commands += commands;
    }
}

impl fmt::Display for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Merged { bodies, aligned, commands } = self;
        write!(f, "{bodies} bodies, {aligned} with arms; {commands} commands call one")
    }
}

impl Merged {
    fn of(file: &File, unit: &Parts<'_>, plan: &Plan) -> Merged {
        let new = plan.new_bodies().iter().filter(|body| body.copy_of().is_none());
        let passes: Vec<bool> =
            plan.entries().map(|(_, entry)| !entry.extra_arguments().is_empty()).collect();
        Merged {
            bodies: new.count(),
            aligned: aligned::bodies(unit, plan).len(),
            commands: file.commands.iter().filter(|(at, _)| passes[*at]).count(),
        }
    }
}

/// The policies, with names for messages.
const POLICIES: [(&str, Similar); 4] = {
    let balanced = Similar { policy: Policy::Balanced, ..Similar::OFF };
    let size = Similar { policy: Policy::Size, ..Similar::OFF };
    [
        ("balanced", balanced),
        ("size", size),
        ("size, callees dispatched", Similar { callees: Callees::Dispatch, ..size }),
        ("size, without arms", Similar { instructions: Instructions::None, ..size }),
    ]
};

/// Runs the commands of a file at all levels, before and after merging; the errors are findings.
fn check(
    file: &File,
    functions: &[Member],
    similar: Similar,
    merged: &mut Merged,
) -> Result<Tally, String> {
    // Duplicates have other numbers of values.
    let compare = Compare { every_function: true, ..Compare::default() };
    let target = Target::x86_64();
    let options = Options { target, compare, similar, ..Options::default() };
    let unit = Parts { functions, data: &[], options: &options };
    let plan = unit.plan();
    unit.prove(&plan).map_err(|refutation| format!("refused: {refutation}"))?;
    *merged += Merged::of(file, &unit, &plan);
    let programs = [Program::unmerged(&unit), Program::merged(&unit, &plan)];
    let half = file.functions.len() / 2;
    let mut comparison = Comparison::of(programs, 0, Effort { inputs: 0, fuel: 0 });
    for side in [0, 1] {
        let entries = &comparison.programs[side].entries;
        let both = file.commands.iter().flat_map(|(at, run)| {
            [*at, half + *at].map(|at| invocation(&entries[at], call_of(run)))
        });
        let Some(both) = both.collect::<Option<Vec<_>>>() else {
            return Ok(Tally { idle: 1, ..Tally::default() });
        };
        comparison.invocations[side] = both;
    }
    let mut batch = Batch::new(Cpu::Native);
    let mut levels = Vec::new();
    for level in Level::ALL {
        if compiles_into(&mut batch, level, &comparison)? {
            levels.push(level);
        }
    }
    let mut tally = Tally::default();
    for (level, outcomes) in levels.iter().zip(batch.run().chunks_exact(2)) {
        let found = comparison.judge([&outcomes[0], &outcomes[1]]);
        tally += found.map_err(|difference| format!("{level:?}: {difference}"))?;
        let commands = file.commands.iter().flat_map(|command| [command; 2]);
        for ((at, run), outcome) in commands.zip(&outcomes[1]) {
            let signature = &functions[*at].body.signature;
            if !is_expected(run, signature, outcome) {
                return Err(format!("{level:?}: {run}: {outcome:x?}"));
            }
        }
    }
    Ok(tally)
}

#[test]
fn run_commands_of_functions_with_variants() {
    let machine = Machine::new();
    let (files, left_out) = files("x86_64");
    let (mut tally, mut variants, mut findings) = (Tally::default(), [0; 4], Vec::new());
    let mut merged = [Merged::default(); POLICIES.len()];
    for file in &files {
        let (functions, counts) = with_variants(file, &machine);
        counts.iter().zip(&mut variants).for_each(|(count, sum)| *sum += count);
        for ((name, similar), merged) in POLICIES.iter().zip(&mut merged) {
            // A refusal of the checker is a panic in a build with assertions.
            let check = || check(file, &functions, *similar, merged);
            let checked = catch_unwind(AssertUnwindSafe(check));
            match checked.unwrap_or_else(|_| Err("panic".to_owned())) {
                Ok(found) => tally += found,
                Err(finding) => {
                    findings.push(format!("{}: {name}: {finding}", file.path.display()));
                }
            }
        }
    }
    eprintln!("x86-64: {tally}; left out {left_out:?}");
    eprintln!("variants of each kind {:?}: {variants:?}", Kind::ALL);
    for ((name, _), merged) in POLICIES.iter().zip(merged) {
        eprintln!("{name}: {merged}");
        assert!(merged.bodies > 0 && merged.commands > 0, "{name}: {merged}");
    }
    let [balanced, size, ..] = merged;
    assert!(balanced.aligned > 0 && size.aligned > 0, "{balanced}; {size}");
    assert!(findings.is_empty(), "{}", findings.join("\n\n"));
}
