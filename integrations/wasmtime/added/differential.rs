//! Random modules, compiled without merging and with each kind of it: they compute the same, trap
//! in the same way and at the same point, and leave the same memory and globals.
//!
//! ```text
//! differential SECONDS [SEED]
//! ```
//!
//! The modules are those of `wasm-smith`, with copies of their functions: some equal, some with
//! other constants, which call copies. So much of a module merges; what it does does not depend on
//! it. Fuel ends what would not end, and is compared as well. With `WASMTIME_PROVE_MERGING=1`,
//! every plan is proved. Prints what was done; panics, with the seed, where something differs, and
//! writes the module to `differential.wasm`.

use arbitrary::Unstructured;
use std::time::{Duration, Instant};
use wasm_encoder::reencode::{Error, Reencode, utils};
use wasm_encoder::{CodeSection, ExportKind, ExportSection, FunctionSection, Instruction};
use wasmparser::{CodeSectionReader, ExportSectionReader, FunctionSectionReader, Operator};
use wasmtime::{
    Config, Engine, Extern, FrameInfo, FunctionMerging, Instance, Module, OptLevel, Store, Trap,
    Val, ValType, WasmBacktrace,
};

/// A generator of numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }
}

/// Writes a module again, with copies of its functions behind them.
struct WithCopies {
    random: Random,
    /// How many copies of each function.
    copies: u32,
    functions: u32,
    /// Which copies are written now; 0 are the functions themselves.
    now: u32,
    /// Whether the function that is written has other constants than the one of which it is a copy.
    differs: bool,
    has_tail_calls: bool,
}

impl Reencode for WithCopies {
    type Error = core::convert::Infallible;

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: FunctionSectionReader<'_>,
    ) -> Result<(), Error<Self::Error>> {
        self.functions = section.count();
        for _ in 0..=self.copies {
            utils::parse_function_section(self, functions, section.clone())?;
        }
        Ok(())
    }

    fn parse_export_section(
        &mut self,
        exports: &mut ExportSection,
        section: ExportSectionReader<'_>,
    ) -> Result<(), Error<Self::Error>> {
        utils::parse_export_section(self, exports, section)?;
        for copy in self.functions..self.functions * (1 + self.copies) {
            exports.export(&format!("copy {copy}"), ExportKind::Func, copy);
        }
        Ok(())
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: CodeSectionReader<'_>,
    ) -> Result<(), Error<Self::Error>> {
        for copy in 0..=self.copies {
            self.now = copy;
            for body in section.clone() {
                self.differs = copy > 0 && !self.random.one_in(3);
                utils::parse_function_body(self, code, body?)?;
            }
        }
        Ok(())
    }

    fn instruction<'a>(
        &mut self,
        operator: Operator<'a>,
    ) -> Result<Instruction<'a>, Error<Self::Error>> {
        let differs = self.differs && self.random.one_in(2);
        self.has_tail_calls |= matches!(
            operator,
            Operator::ReturnCall { .. }
                | Operator::ReturnCallIndirect { .. }
                | Operator::ReturnCallRef { .. }
        );
        Ok(match operator {
            Operator::I32Const { value } if differs => {
                Instruction::I32Const(value ^ (self.random.next() as i32 & 0xff))
            }
            Operator::I64Const { value } if differs => {
                Instruction::I64Const(value ^ (self.random.next() as i64 & 0xff))
            }
            // There are no imported functions: those of the module come first.
            Operator::Call { function_index } => {
                Instruction::Call(function_index + self.now * self.functions)
            }
            Operator::ReturnCall { function_index } => {
                Instruction::ReturnCall(function_index + self.now * self.functions)
            }
            operator => utils::instruction(self, operator)?,
        })
    }
}

fn module(random: &mut Random) -> Option<Tested> {
    let bytes: Vec<u8> = (0..2048).flat_map(|_| random.next().to_le_bytes()).collect();
    let config = wasm_smith::Config {
        export_everything: true,
        allow_start_export: false,
        max_imports: 0,
        min_funcs: 2,
        max_funcs: 8,
        max_instructions: 20 + (random.next() % 200) as usize,
        max_tables: 1,
        max_table_elements: 1000,
        max_memory32_bytes: 1 << 20,
        max_memory64_bytes: 1 << 20,
        memory64_enabled: false,
        canonicalize_nans: true,
        disallow_traps: random.one_in(2),
        exceptions_enabled: false,
        gc_enabled: false,
        relaxed_simd_enabled: false,
        threads_enabled: false,
        tail_call_enabled: random.one_in(3),
        ..wasm_smith::Config::default()
    };
    let module = wasm_smith::Module::new(config, &mut Unstructured::new(&bytes)).ok()?;
    let (copies, own) = (1 + (random.next() % 3) as u32, Random(random.next()));
    let (functions, now, differs, has_tail_calls) = Default::default();
    let mut with_copies =
        WithCopies { random: own, copies, functions, now, differs, has_tail_calls };
    let mut encoded = wasm_encoder::Module::new();
    let parser = wasmparser::Parser::new(0);
    with_copies.parse_core_module(&mut encoded, parser, &module.to_bytes()).ok()?;
    Some(Tested { wasm: encoded.finish(), has_tail_calls: with_copies.has_tail_calls })
}

/// A frame of a backtrace.
#[derive(Debug, PartialEq)]
struct Frame {
    index: u32,
    name: Option<String>,
    /// In the function, and in the module.
    offsets: [Option<usize>; 2],
}

/// The functions to which a frame can belong, and whether several have its code.
#[derive(Debug)]
struct Candidates(Vec<Frame>, bool);

impl Candidates {
    fn of(frame: &FrameInfo) -> Candidates {
        let one = |frame: &FrameInfo| Frame {
            index: frame.func_index(),
            name: frame.func_name().map(str::to_owned),
            offsets: [frame.func_offset(), frame.module_offset()],
        };
        let all = [frame].into_iter().chain(frame.merged_with()).map(one).collect();
        Candidates(all, frame.is_shared())
    }
}

/// How many frames a backtrace has at most.
const MAX_FRAMES: usize = 20;

/// A module.
struct Tested {
    wasm: Vec<u8>,
    has_tail_calls: bool,
}

/// The counts of observed backtraces.
#[derive(Default)]
struct Seen {
    frames: usize,
    /// Of them, frames of code that functions share.
    shared: usize,
    /// Of these, frames that name one function.
    exact: usize,
    /// Frames of the right function whose trap is said to be at another instruction.
    elsewhere: usize,
}

impl Seen {
    /// Compares the backtraces of a trap. Where the callers of a frame are known and call directly,
    /// so is its function, but for tail calls to functions that share its code.
    fn compare(
        &mut self,
        off: &[Candidates],
        merged: &[Candidates],
        of: &Tested,
    ) -> Result<(), String> {
        let differ = || Err(format!("backtraces {off:#?} and {merged:#?}"));
        if off.len() != merged.len() {
            return differ();
        }
        // From the outermost frame, whose function the host names if it is there.
        let mut is_known = off.len() < MAX_FRAMES;
        let frames = off.iter().zip(merged).enumerate().rev();
        for (at, (Candidates(off, _), Candidates(merged, is_shared))) in frames {
            is_known |= !is_shared;
            let is_exact = merged.len() == 1 || !is_known || of.has_tail_calls;
            // Where a constant has become an argument, the code generator may fold a load that
            // traps into its user, and then says that this is where it is.
            let found =
                merged.iter().find(|it| (it.index, &it.name) == (off[0].index, &off[0].name));
            let is_elsewhere = found.is_some_and(|found| found.offsets != off[0].offsets);
            if found.is_none() || is_elsewhere && !(at == 0 && *is_shared) || !is_exact {
                return differ();
            }
            self.elsewhere += usize::from(is_elsewhere);
            // `call`.
            is_known &= off[0].offsets[1].is_some_and(|at| of.wasm[at] == 0x10);
            self.frames += 1;
            self.shared += usize::from(*is_shared);
            self.exact += usize::from(*is_shared && merged.len() == 1);
        }
        Ok(())
    }
}

/// The behaviour of a module, call by call, and its final state.
#[derive(Debug, Default)]
struct Done {
    /// Results and fuel.
    calls: Vec<(Result<Vec<u128>, String>, u64)>,
    /// Of calls that trapped.
    backtraces: Vec<Vec<Candidates>>,
    globals: Vec<u128>,
    memories: Vec<Vec<u8>>,
    /// Whether a stack overflowed: its depth differs, and nothing that comes later is compared.
    overflowed: bool,
}

/// A value without addresses.
fn bits(value: &Val) -> u128 {
    match value {
        Val::I32(value) => u128::from(*value as u32),
        Val::I64(value) => u128::from(*value as u64),
        Val::F32(bits) => u128::from(*bits),
        Val::F64(bits) => u128::from(*bits),
        Val::V128(value) => value.as_u128(),
        other => u128::from(other.ref_().is_none_or(|value| value.is_null())),
    }
}

fn argument(ty: &ValType, random: &mut Random) -> Option<Val> {
    // Small numbers lead further than others.
    let number = if random.one_in(2) { random.next() % 16 } else { random.next() };
    Some(match ty {
        ValType::I32 => Val::I32(number as i32),
        ValType::I64 => Val::I64(number as i64),
        ValType::F32 => Val::F32((number as f32).to_bits()),
        ValType::F64 => Val::F64((number as f64).to_bits()),
        ValType::V128 => Val::V128(u128::from(number).into()),
        ValType::Ref(ty) => Val::null_ref(ty.heap_type()),
    })
}

fn run(engine: &Engine, module: &Module, seed: u64) -> Done {
    let mut done = Done::default();
    let mut store = Store::new(engine, ());
    store.set_fuel(1_000_000).expect("fuel is consumed");
    let Ok(instance) = Instance::new(&mut store, module, &[]) else {
        return done;
    };
    let names: Vec<String> = module.exports().map(|export| export.name().to_owned()).collect();
    let mut random = Random(seed);
    for _ in 0..2 {
        for name in &names {
            let Some(Extern::Func(function)) = instance.get_export(&mut store, name) else {
                continue;
            };
            let ty = function.ty(&store);
            let arguments: Option<Vec<Val>> =
                ty.params().map(|ty| argument(&ty, &mut random)).collect();
            let Some(arguments) = arguments else { continue };
            let mut results: Vec<Val> = ty.results().map(|_| Val::I32(0)).collect();
            store.set_fuel(20_000).expect("fuel is consumed");
            let called = function.call(&mut store, &arguments, &mut results);
            let result = called.map(|()| results.iter().map(bits).collect()).map_err(|error| {
                done.overflowed |= error.downcast_ref::<Trap>() == Some(&Trap::StackOverflow);
                let backtrace = error.downcast_ref::<WasmBacktrace>();
                let frames = backtrace.map_or(&[][..], WasmBacktrace::frames);
                done.backtraces.push(frames.iter().map(Candidates::of).collect());
                error.downcast_ref::<Trap>().map_or(error.to_string(), Trap::to_string)
            });
            if done.overflowed {
                return done;
            }
            done.calls.push((result, store.get_fuel().expect("fuel is consumed")));
        }
    }
    leave(&mut store, instance, &names, &mut done);
    done
}

fn leave(store: &mut Store<()>, instance: Instance, names: &[String], done: &mut Done) {
    for name in names {
        match instance.get_export(&mut *store, name) {
            Some(Extern::Global(global)) => {
                let value = global.get(&mut *store);
                done.globals.push(bits(&value));
            }
            Some(Extern::Memory(memory)) => done.memories.push(memory.data(&*store).to_vec()),
            _ => {}
        }
    }
}

fn engine(merging: FunctionMerging, speed: bool) -> Engine {
    let mut config = Config::new();
    config.compiler_function_merging(merging).consume_fuel(true);
    config.cranelift_nan_canonicalization(true);
    config.cranelift_opt_level(if speed { OptLevel::Speed } else { OptLevel::None });
    Engine::new(&config).expect("an engine")
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|number| number.parse().expect("a number"));
    let (seconds, mut seed) = (arguments.next().unwrap_or(10), arguments.next().unwrap_or(0));
    let end = Instant::now() + Duration::from_secs(seconds);
    let kinds = [FunctionMerging::Off, FunctionMerging::Identical, FunctionMerging::Balanced];
    let engines = [false, true].map(|speed| kinds.map(|kind| engine(kind, speed)));
    let (mut modules, mut calls, mut traps, mut smaller) = (0_u64, 0, 0, [0_u64; 3]);
    let mut seen = Seen::default();
    while Instant::now() < end {
        seed += 1;
        let mut random = Random(seed);
        let Some(tested) = module(&mut random) else { continue };
        let wasm = &tested.wasm;
        let engines = &engines[usize::from(random.one_in(2))];
        let failed = |what: String| -> ! {
            std::fs::write("differential.wasm", wasm).expect("a file");
            panic!("seed {seed}: {what}")
        };
        let compiled = engines.each_ref().map(|engine| Module::new(engine, wasm));
        let compiled = match compiled {
            [Ok(off), Ok(identical), Ok(balanced)] => [off, identical, balanced],
            // Such as features that this build does not have.
            [Err(_), Err(_), Err(_)] => continue,
            [off, identical, balanced] => {
                failed(format!("{:?} {:?} {:?}", off.err(), identical.err(), balanced.err()))
            }
        };
        modules += 1;
        let size = |module: &Module| module.text().len();
        let argument_seed = random.next();
        let off = run(&engines[0], &compiled[0], argument_seed);
        calls += off.calls.len();
        traps += off.calls.iter().filter(|(result, _)| result.is_err()).count();
        for at in 1..3 {
            smaller[at] += u64::from(size(&compiled[at]) < size(&compiled[0]));
            let merged = run(&engines[at], &compiled[at], argument_seed);
            let same = merged.calls.iter().zip(&off.calls).position(|(a, b)| a != b);
            if let Some(call) = same {
                failed(format!("call {call}: {:?}, {:?}", off.calls[call], merged.calls[call]));
            }
            let is_whole = !off.overflowed && !merged.overflowed;
            if is_whole && (&merged.globals, &merged.memories) != (&off.globals, &off.memories) {
                failed("another state is left".to_owned());
            }
            // The depth of an overflow differs, which is the last trap.
            let trapped = |done: &Done| done.backtraces.len() - usize::from(done.overflowed);
            let traps = trapped(&off).min(trapped(&merged));
            for (off, merged) in off.backtraces.iter().zip(&merged.backtraces).take(traps) {
                seen.compare(off, merged, &tested).unwrap_or_else(|what| failed(what));
            }
        }
    }
    println!(
        "{modules} modules, of which {} and {} are smaller with identical and balanced merging; {calls} calls, {traps} \
         of which trapped: no difference (last seed {seed})",
        smaller[1], smaller[2]
    );
    let Seen { frames, shared, exact, elsewhere } = seen;
    println!(
        "{frames} frames of backtraces, of which {shared} are of code that functions share; {exact} of these name one \
         function, the others have the right one among several; {elsewhere} have the place of another instruction"
    );
    assert!(exact > 0, "no backtraces of code that functions share");
    assert!(elsewhere * 100 <= shared, "places of other instructions");
}
