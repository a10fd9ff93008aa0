//! Real units, a function at a time: a function that was merged away and the code that replaces it
//! get the same arguments in the same surroundings, and must have the same effect on them.
//!
//! The units come from WebAssembly (Wasmtime's CLIF), so a function reaches all of its context
//! through one pointer, which here points into pseudo-random memory: small numbers, and pointers
//! into that memory. Many invocations end in a trap soon, and many do not. Functions of the unit
//! call each other as they do; what they import is a stub, and so is whatever they call through a
//! pointer. Fuel, taken on both sides after merging, ends every loop.

use testkit::units;

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::entity::EntityList;
use cranelift_codegen::ir::{
    AbiParam, ArgumentPurpose, ExtFuncData, ExternalName, Function, InstBuilder as _,
    InstructionData, Opcode, SigRef, Signature, UserExternalName, types,
};
use cranelift_codegen::isa::CallConv;
use cranelift_mergefunc::{
    Attributes, FunctionIndex, Options, Plan, Policy, Similar, Target, cranelift_codegen,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use testkit::differential::{
    Argument, Comparison, Effort, End, SURROUNDINGS_BYTES, Tally, merged_away, random_bits,
};
use testkit::fuel;
use testkit::host::run;
use testkit::program::{Definition, Parts, Program};
use testkit::support::{Rng, free};
use testkit::unit::{Member, uniform};

/// How often every function is called, and with how much fuel.
const EFFORT: Effort = Effort { inputs: 8, fuel: 2000 };

/// Every other function is visible with a significant address, so that half of what is merged away
/// is redirected and half of it becomes a thunk.
fn attributes(at: usize) -> Attributes {
    if at.is_multiple_of(2) { free() } else { Attributes::default() }
}

#[test]
fn real_units() {
    for path in units::units() {
        let text = std::fs::read_to_string(&path).expect("a unit");
        let functions = cranelift_reader::parse_functions(&text).expect("valid CLIF");
        drop(text);
        let mut world = World::default();
        let functions: Vec<Member> = functions
            .into_iter()
            .enumerate()
            .map(|(at, mut body)| {
                // Before merging: parameterised bodies call through pointers that are extra
                // arguments.
                world.detach(&mut body);
                Member { attributes: attributes(at), body }
            })
            .collect();
        for policy in [Policy::Off, Policy::Size] {
            let similar = Similar { policy, ..Similar::default() };
            let target = uniform(Target::x86_64());
            let options = Options { target, similar, ..Options::default() };
            let unit = Parts { functions: &functions, data: &[], options: &options };
            let report = execute(&unit, 1);
            eprintln!("{}, similar: {}: {report}", path.display(), policy.name());
            assert_eq!(report.tally.merged == 0, report.tally.invocations() == 0);
        }
    }
}

/// The tries, and how they ended.
struct Report {
    tally: Tally,
    ends: BTreeMap<String, usize>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.tally)?;
        self.ends.iter().try_for_each(|(end, count)| write!(f, "\n    {count:8} {end}"))
    }
}

/// Runs every function that shares a body with another one, merged and unmerged.
fn execute(unit: &Parts<'_>, seed: u64) -> Report {
    let plan = unit.plan();
    let merged = merged_away(&plan);
    let mut ends = BTreeMap::new();
    if merged == 0 {
        return Report { tally: Tally { idle: 1, ..Tally::default() }, ends };
    }
    let programs = [Program::unmerged(unit), Program::merged(unit, &plan)].map(|mut program| {
        for (_, definition) in &mut program.functions {
            if let Definition::Body(func) = definition {
                fuel::limit(func);
            }
        }
        let shares = shares_a_body(unit, &plan);
        program.entries.retain(|entry| shares.contains(&entry.function));
        program
    });
    let mut comparison = Comparison { merged, ..Comparison::of(programs, seed, EFFORT) };
    for invocations in &mut comparison.invocations {
        let mut rng = Rng::new(seed);
        for invocation in invocations {
            invocation.arguments = arguments(&invocation.signature, &mut rng);
        }
    }
    let [before, after] =
        [0, 1].map(|side| run(&comparison.programs[side], &comparison.invocations[side]));
    let tally = match comparison.judge([&before, &after]) {
        Ok(tally) => tally,
        Err(difference) => panic!("{difference}"),
    };
    for outcome in &before {
        let end = match &outcome.end {
            End::Returned(_) => "returned".to_owned(),
            End::Trapped(fuel::OUT_OF_FUEL) => "out of fuel".to_owned(),
            other => format!("{other:?}"),
        };
        *ends.entry(end).or_default() += 1;
    }
    Report { tally, ends }
}

/// The functions that are merged away, and those that they are merged into.
fn shares_a_body(unit: &Parts<'_>, plan: &Plan) -> HashSet<UserExternalName> {
    let mut shares = HashSet::new();
    for (_, entry) in plan.entries().take(unit.functions.len()) {
        if let Some(to) = entry.disposition().representative() {
            let to: FunctionIndex = to;
            shares.insert(entry.symbol().clone());
            shares.insert(plan.entry(to).symbol().clone());
        }
    }
    shares
}

/// Pointers for parameters that are pointers in these units, and small numbers.
fn arguments(signature: &Signature, rng: &mut Rng) -> Vec<Argument> {
    let params = signature.params.iter();
    params
        .map(|param| match (param.purpose, param.value_type) {
            (ArgumentPurpose::VMContext, _) => Argument::Surroundings(0),
            (_, types::I64) if !rng.one_in(4) => {
                Argument::Surroundings(8 * rng.below(SURROUNDINGS_BYTES / 16) as u32)
            }
            (_, types::I32) if !rng.one_in(4) => {
                Argument::Bits(8 * rng.below(SURROUNDINGS_BYTES / 16) as u128)
            }
            (_, ty) => Argument::Bits(random_bits(ty, rng)),
        })
        .collect()
}

/// The entities outside of the functions, by numbers that are equal on both sides.
#[derive(Default)]
struct World {
    /// Stubs for whatever is called through a pointer.
    indirect: HashMap<Signature, u32>,
}

/// Namespaces that no unit uses.
const POINTERS: u32 = 0x7000_0000;
const INDIRECT: u32 = 0x7000_0001;

impl World {
    /// Redirects calls through pointers to stubs, which write the pointers into the trace.
    fn detach(&mut self, func: &mut Function) {
        let calls: Vec<_> = func
            .layout
            .blocks()
            .flat_map(|block| func.layout.block_insts(block))
            .filter(|&inst| func.dfg.insts[inst].opcode() == Opcode::CallIndirect)
            .collect();
        for inst in calls {
            let InstructionData::CallIndirect { args, sig_ref, .. } = func.dfg.insts[inst] else {
                unreachable!("is a call through a pointer");
            };
            let args = args.as_slice(&func.dfg.value_lists).to_vec();
            let next = self.indirect.len() as u32;
            let signature = func.dfg.signatures[sig_ref].clone();
            let number = *self.indirect.entry(signature).or_insert(next);
            let stub = import(func, INDIRECT, number, sig_ref);
            let mut of_pointer = Signature::new(CallConv::SystemV);
            of_pointer.params.push(AbiParam::new(types::I64));
            let of_pointer = func.import_signature(of_pointer);
            let pointer = import(func, POINTERS, 0, of_pointer);
            let mut cursor = FuncCursor::new(func).at_inst(inst);
            cursor.ins().call(pointer, &args[..1]);
            let args = EntityList::from_slice(&args[1..], &mut cursor.func.dfg.value_lists);
            // The signature is the same, and so are the results.
            cursor.func.dfg.insts[inst] =
                InstructionData::Call { opcode: Opcode::Call, args, func_ref: stub };
        }
    }
}

fn import(
    func: &mut Function,
    namespace: u32,
    index: u32,
    signature: SigRef,
) -> cranelift_codegen::ir::FuncRef {
    let name = func.params.ensure_user_func_name(UserExternalName::new(namespace, index));
    func.import_function(ExtFuncData {
        name: ExternalName::User(name),
        signature,
        colocated: true,
        patchable: false,
    })
}
