//! The oracle that runs merged code: a unit and the merged unit get the same inputs, and must have
//! the same observable behaviour.
//!
//! It compares what a caller can see: results bit for bit (NaNs too), the code of a trap, the tag
//! of an exception, which imported functions were called with which arguments, and the memory
//! afterwards. It runs nothing itself: a *host* does ([`Host`]), by compiling or by interpreting.
//!
//! It proves nothing about inputs that it does not try, and does not see time, stack depth or
//! addresses.

use crate::aligned;
use crate::generate::conventions::USUAL_FUEL;
use crate::program::{Entry, MEMORY_BYTES, Parts, Program, Streamed, Streaming};
use crate::support::Rng;
use crate::unit::Unit;
use cranelift_codegen::ir::{ArgumentPurpose, Signature, TrapCode, Type, UserExternalName, types};
use cranelift_codegen::isa::TargetIsa;
use cranelift_mergefunc::{Disposition, ExtraArgument, Plan};
use std::collections::HashSet;
use std::fmt::{self, Write};

/// One call from outside.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The function's symbol in the unit, for reports.
    pub function: UserExternalName,
    /// The symbol that is called.
    pub symbol: UserExternalName,
    /// How it is called.
    pub signature: Signature,
    /// One for each parameter.
    pub arguments: Vec<Argument>,
    /// The seed of the contents of the memory.
    pub memory_seed: u64,
    /// How many times functions may take from the fuel.
    pub fuel: i64,
}

/// An argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The bits of a value; those beyond its type are zero.
    Bits(u128),
    /// The address of a place in the memory, in bytes from its start.
    Memory(u32),
    /// The address of a place in the surroundings, in bytes from their start.
    Surroundings(u32),
}

/// The observed behaviour of an invocation. It contains no addresses: a host replaces those that
/// point into the memory by [`address_in_memory`], all others by [`SOME_ADDRESS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Which imported functions were called, in order.
    pub trace: Vec<Call>,
    /// A digest of the memory afterwards, what is left of the fuel included, and of the
    /// surroundings.
    pub memory: u64,
}

/// How an invocation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It returned: the bits of each result.
    Returned(Vec<u128>),
    /// An instruction that may trap did.
    Trapped(TrapCode),
    /// An instruction failed that has a fact saying that it does not, with this signal of the
    /// operating system.
    Signal(i32),
    /// No function caught the exception with this tag.
    Uncaught(u32),
    /// The host gave up: more calls of imports than it records, or no stack left.
    GaveUp,
}

/// A call of an imported function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which one.
    pub callee: UserExternalName,
    /// The bits of its arguments.
    pub arguments: Vec<u128>,
}

/// The record of an address outside of the memory.
pub const SOME_ADDRESS: u128 = 0xadd4_e55e_0000_0000_0000_0000_0000_0000;

/// The record of the address of a place in the memory.
pub fn address_in_memory(offset: u64) -> u128 {
    SOME_ADDRESS + 1 + u128::from(offset)
}

/// The contents of the memory before an invocation.
pub fn memory_before(seed: u64, fuel: i64) -> Vec<u8> {
    let mut memory = Rng::new(seed).bytes(MEMORY_BYTES);
    memory[..8].copy_from_slice(&fuel.to_le_bytes());
    memory
}

/// The digest of what it holds afterwards.
pub fn memory_digest(memory: &[u8]) -> u64 {
    let words = memory.chunks_exact(8);
    words.fold(0, |digest, word| mixed(digest, u64::from_le_bytes(word.try_into().expect("eight"))))
}

/// The size of the surroundings in bytes. Surroundings are memory for functions that were not
/// generated to be run and take a pointer to their context as an argument: `surround` in `driver.c`
/// fills them.
pub const SURROUNDINGS_BYTES: usize = 64 << 10;

/// The bits of the result `index` of an imported function, or of the payload `index` of the
/// exception that it throws. Those beyond the type are to be cut off.
pub fn import_result(callee: &UserExternalName, arguments: &[u128], index: usize) -> u128 {
    let mut digest = mixed(u64::from(callee.namespace), u64::from(callee.index));
    for argument in arguments {
        digest = mixed(mixed(digest, *argument as u64), (*argument >> 64) as u64);
    }
    let low = mixed(digest, 2 * index as u64);
    // Mostly small, so that it leads somewhere.
    match low % 4 {
        0 => u128::from(mixed(low, 1)) << 64 | u128::from(low),
        _ => u128::from(low >> 52),
    }
}

/// One step of a digest.
fn mixed(digest: u64, word: u64) -> u64 {
    let word = (digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word ^ (word >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(17)
}

/// Runs a program: one outcome for each invocation. Invocations are independent of each other.
pub type Host<'a> = dyn FnMut(&Program, &[Invocation]) -> Vec<Outcome> + 'a;

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// How often every function is called.
    pub inputs: usize,
    /// The fuel of every call.
    pub fuel: i64,
}

impl Default for Effort {
    fn default() -> Self {
        Effort { inputs: 4, fuel: USUAL_FUEL }
    }
}

/// The counts of tries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Units that were run, merged and unmerged.
    pub units: usize,
    /// Units in which nothing merges, which were not.
    pub idle: usize,
    /// Functions that were called.
    pub functions: usize,
    /// Functions and data objects that were merged away.
    pub merged: usize,
    /// Bodies of functions that differ in few instructions.
    pub aligned: usize,
    /// Functions that pass extra arguments as floating-point numbers.
    pub in_floats: usize,
    /// Calls from outside, on either side, that returned.
    pub returned: usize,
    /// Those that trapped.
    pub trapped: usize,
    /// Those that ended in a signal without a trap code.
    pub signals: usize,
    /// Those that threw an exception that no function caught.
    pub uncaught: usize,
    /// Those on which the host gave up.
    pub gave_up: usize,
    /// Calls of imported functions.
    pub calls: usize,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        let Tally {
            units,
            idle,
            functions,
            merged,
            aligned,
            in_floats,
            returned,
            trapped,
            signals,
            uncaught,
            gave_up,
            calls,
        } = other;
        self.units += units;
        self.idle += idle;
        self.functions += functions;
        self.merged += merged;
        self.aligned += aligned;
        self.in_floats += in_floats;
        self.returned += returned;
        self.trapped += trapped;
        self.signals += signals;
        self.uncaught += uncaught;
        self.gave_up += gave_up;
        self.calls += calls;
    }
}

impl Tally {
    /// Calls from outside, on either side, however they ended.
    pub fn invocations(&self) -> usize {
        self.returned + self.trapped + self.signals + self.uncaught + self.gave_up
    }

    /// Counts an outcome.
    pub fn count(&mut self, outcome: &Outcome) {
        self.calls += outcome.trace.len();
        *match outcome.end {
            End::Returned(_) => &mut self.returned,
            End::Trapped(_) => &mut self.trapped,
            End::Signal(_) => &mut self.signals,
            End::Uncaught(_) => &mut self.uncaught,
            End::GaveUp => &mut self.gave_up,
        } += 1;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { units, idle, functions, merged, aligned, in_floats, .. } = self;
        let invocations = self.invocations();
        write!(
            f,
            "{units} units ({idle} more in which nothing merges), {functions} functions, {merged} \
             merged away, {aligned} bodies of functions that differ in few instructions, {in_floats} functions \
             that pass extra arguments as floating-point numbers; {invocations} invocations: {} returned, {} trapped, {} signals, {} \
             uncaught, {} given up; {} calls of imports",
            self.returned, self.trapped, self.signals, self.uncaught, self.gave_up, self.calls
        )
    }
}

/// Plans a unit, runs it merged and unmerged, and panics if anything differs. `seed` chooses the
/// inputs. A unit in which nothing merges is not run.
#[track_caller]
pub fn check(unit: &Parts<'_>, seed: u64, effort: Effort, host: &mut Host<'_>) -> Tally {
    check_some(unit, &vec![true; unit.functions.len()], seed, effort, host)
}

/// [`check`], but calls only functions at the places of the unit for which `called` has `true`.
#[track_caller]
pub fn check_some(
    unit: &Parts<'_>,
    called: &[bool],
    seed: u64,
    effort: Effort,
    host: &mut Host<'_>,
) -> Tally {
    let Some(mut comparison) = Comparison::new(unit, seed, effort) else {
        return Tally { idle: 1, ..Tally::default() };
    };
    comparison.call_only(called);
    match comparison.run(host) {
        Ok(tally) => tally,
        Err(difference) => panic!("{difference}"),
    }
}

/// How many functions and data objects lose their bodies.
pub fn merged_away(plan: &Plan) -> usize {
    let keep = |disposition: Disposition| disposition == Disposition::Keep;
    let functions = plan.entries().filter(|(_, entry)| !keep(entry.disposition())).count();
    let data = plan.data_entries();
    functions + data.filter(|(_, entry)| entry.disposition() != Disposition::Keep).count()
}

/// How many functions pass an extra argument as a floating-point number.
fn in_floats(plan: &Plan) -> usize {
    let is_float = |argument: &ExtraArgument| argument.ty().is_float();
    let entries = plan.entries();
    entries.filter(|(_, entry)| entry.extra_arguments().iter().any(is_float)).count()
}

/// Two programs of the same entries, and the same inputs for both.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The unmerged program and the merged one.
    pub programs: [Program; 2],
    /// For each of them; they differ in symbols only.
    pub invocations: [Vec<Invocation>; 2],
    /// Functions and data objects that were merged away.
    pub merged: usize,
    /// Bodies of functions that differ in few instructions.
    pub aligned: usize,
    /// Functions that pass extra arguments as floating-point numbers.
    pub in_floats: usize,
}

impl Comparison {
    /// Plans a unit and applies the plan. `None` if nothing merges.
    pub fn new(unit: &Parts<'_>, seed: u64, effort: Effort) -> Option<Comparison> {
        let plan = unit.plan();
        let merged = merged_away(&plan);
        let programs = || [Program::unmerged(unit), Program::merged(unit, &plan)];
        let aligned = aligned::bodies(unit, &plan).len();
        (merged > 0).then(|| Comparison {
            merged,
            aligned,
            in_floats: in_floats(&plan),
            ..Comparison::of(programs(), seed, effort)
        })
    }

    /// The unit, and the unit of canonical bodies after it was merged: what computes canonical
    /// bodies is trusted by everything but this. `None` if nothing merges.
    pub fn canonical(
        unit: &Unit,
        isa: &dyn TargetIsa,
        seed: u64,
        effort: Effort,
    ) -> Option<Comparison> {
        let canonical = unit.clone().canonical(isa);
        let comparison = Comparison::new(&Parts::from(&canonical), seed, effort)?;
        let [_, merged] = comparison.programs;
        let programs = [Program::unmerged(&Parts::from(unit)), merged];
        Some(Comparison { programs, ..comparison })
    }

    /// The unit, and the unit as [`Program::streamed`] makes it.
    pub fn streamed(
        unit: &Parts<'_>,
        streaming: Streaming,
        seed: u64,
        effort: Effort,
    ) -> (Comparison, Streamed) {
        let (program, streamed) = Program::streamed(unit, streaming);
        let comparison = Comparison::of([Program::unmerged(unit), program], seed, effort);
        (Comparison { merged: merged_away(&streamed.plan), ..comparison }, streamed)
    }

    /// Compares two programs of unknown relation: no merged functions are counted.
    pub fn of(programs: [Program; 2], seed: u64, effort: Effort) -> Comparison {
        let invocations = [0, 1].map(|side| invocations(&programs[side].entries, seed, effort));
        Comparison { programs, invocations, merged: 0, aligned: 0, in_floats: 0 }
    }

    /// Calls only functions at the places of the unit for which `called` has `true`.
    fn call_only(&mut self, called: &[bool]) {
        for (program, invocations) in self.programs.iter_mut().zip(&mut self.invocations) {
            let entries = program.entries.iter().zip(called);
            let left: Vec<Entry> =
                entries.filter(|&(_, &called)| called).map(|(entry, _)| entry.clone()).collect();
            let names: HashSet<&UserExternalName> =
                left.iter().map(|entry| &entry.function).collect();
            invocations.retain(|invocation| names.contains(&invocation.function));
            program.entries = left;
        }
    }

    /// Runs both programs.
    ///
    /// # Errors
    ///
    /// The first difference, as text.
    pub fn run(&self, host: &mut Host<'_>) -> Result<Tally, String> {
        let [before, after] =
            [0, 1].map(|side| host(&self.programs[side], &self.invocations[side]));
        self.judge([&before, &after])
    }

    /// Compares the outcomes of both.
    ///
    /// # Errors
    ///
    /// The first difference, as text.
    ///
    /// # Panics
    ///
    /// If there is not an outcome for each invocation.
    pub fn judge(&self, outcomes: [&[Outcome]; 2]) -> Result<Tally, String> {
        let [before, after] = outcomes;
        let [one, other] = &self.invocations;
        assert_eq!(before.len(), one.len(), "an outcome for each invocation");
        assert_eq!(after.len(), other.len(), "an outcome for each invocation");
        let functions = self.programs[0].entries.len();
        let Comparison { merged, aligned, in_floats, .. } = *self;
        let mut tally =
            Tally { units: 1, functions, merged, aligned, in_floats, ..Tally::default() };
        for (at, (expected, found)) in before.iter().zip(after).enumerate() {
            // How far a program comes before the host gives up is not a property of the program.
            let undecided = expected.end == End::GaveUp || found.end == End::GaveUp;
            if expected != found && !undecided {
                let [before, after] = &self.programs;
                return Err(difference([(before, &one[at], expected), (after, &other[at], found)]));
            }
            tally.count(expected);
        }
        Ok(tally)
    }
}

/// Inputs for every entry, the same for the same seed, whatever the symbols are.
pub fn invocations(entries: &[Entry], seed: u64, effort: Effort) -> Vec<Invocation> {
    let mut rng = Rng::new(seed);
    let mut all = Vec::with_capacity(entries.len() * effort.inputs);
    for Entry { function, symbol, signature } in entries {
        for _ in 0..effort.inputs {
            all.push(Invocation {
                function: function.clone(),
                symbol: symbol.clone(),
                signature: signature.clone(),
                arguments: arguments(signature, &mut rng),
                memory_seed: rng.word(),
                fuel: effort.fuel,
            });
        }
    }
    all
}

/// An argument for each parameter: places in the memory for parameters that must be addresses,
/// which a context need not be.
fn arguments(signature: &Signature, rng: &mut Rng) -> Vec<Argument> {
    let mut next = 1024;
    let mut arguments = Vec::with_capacity(signature.params.len());
    for param in &signature.params {
        arguments.push(match param.purpose {
            ArgumentPurpose::Normal | ArgumentPurpose::VMContext => {
                Argument::Bits(random_bits(param.value_type, rng))
            }
            ArgumentPurpose::StructArgument(_) | ArgumentPurpose::StructReturn => {
                next += 512;
                Argument::Memory(next)
            }
        });
    }
    arguments
}

/// A value of a type: often a small number, or one at the edge of something.
pub fn random_bits(ty: Type, rng: &mut Rng) -> u128 {
    let lane = ty.lane_type();
    let lanes = ty.lane_count();
    let mut bits = 0;
    for at in 0..lanes {
        bits |= random_lane(lane, rng) << (at * lane.bits());
    }
    bits
}

fn random_lane(ty: Type, rng: &mut Rng) -> u128 {
    let mask = u128::MAX >> (128 - ty.bits());
    let word = u128::from(rng.word()) << 64 | u128::from(rng.word());
    let bits = match (ty, rng.below(8)) {
        (types::F32, 0..4) => u128::from((rng.below(9) as f32 - 4.0).to_bits()),
        (types::F64, 0..4) => u128::from((rng.below(9) as f64 - 4.0).to_bits()),
        (types::F32, 4) => {
            let edges = [f32::INFINITY, f32::NAN, -0.0, f32::MAX, f32::MIN_POSITIVE, 4e9];
            u128::from(rng.choose(&edges).to_bits())
        }
        (types::F64, 4) => {
            let edges = [f64::INFINITY, f64::NAN, -0.0, f64::MAX, f64::MIN_POSITIVE, 2e19];
            u128::from(rng.choose(&edges).to_bits())
        }
        (_, 0..3) => rng.below(5) as u128,
        (_, 3) => (rng.below(3) as u128).wrapping_neg(),
        (_, 4) => rng.choose(&[mask >> 1, (mask >> 1) + 1, mask, 0xff, 0xffff]),
        (_, _) => word,
    };
    bits & mask
}

/// A program, how a function of it was called, and the outcome.
type Side<'a> = (&'a Program, &'a Invocation, &'a Outcome);

/// The text that says how the outcomes of two programs, unmerged and merged, differ.
fn difference(sides: [Side<'_>; 2]) -> String {
    let [(_, invocation, one), (_, _, other)] = sides;
    let Invocation { function, arguments, memory_seed, fuel, .. } = invocation;
    let mut text = String::new();
    let _ = writeln!(
        text,
        "merging changes what {function} does with {arguments:x?}, memory {memory_seed:#x}, fuel \
         {fuel}"
    );
    if one.end != other.end {
        let _ = writeln!(text, "unmerged: {:x?}\nmerged:   {:x?}", one.end, other.end);
    }
    if one.memory != other.memory {
        let _ = writeln!(text, "memory: {:#x} and {:#x}", one.memory, other.memory);
    }
    let same = one.trace.iter().zip(&other.trace).take_while(|(one, other)| one == other).count();
    if same < one.trace.len().max(other.trace.len()) {
        let _ = writeln!(
            text,
            "call {same} of an import: unmerged {:x?}, merged {:x?}",
            one.trace.get(same),
            other.trace.get(same)
        );
    }
    for ((program, invocation, _), side) in sides.into_iter().zip(["unmerged", "merged"]) {
        let Invocation { symbol, .. } = invocation;
        let _ = writeln!(text, "\n{side}, called as {symbol}:\n{}", program.describe(symbol));
    }
    text
}
