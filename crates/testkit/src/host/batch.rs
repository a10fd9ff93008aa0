//! Programs in a process of their own.
//!
//! A program is compiled and placed at addresses here; a driver in C (`driver.c`), compiled once
//! for each machine, maps it there and makes the invocations. So nothing is linked for a program,
//! and many of them go into one run. Programs find the same environment each time, including
//! addresses.

use super::Level;
use super::code::{ALIGNMENT, Compiled, Ground, Handler, Placed, Tables};
use super::stubs;
use crate::differential::{Argument, Call, End, Invocation, Outcome, SURROUNDINGS_BYTES};
use crate::isa;
use crate::program::{MEMORY_BYTES, Program, THROWING};
use crate::tools::{Toolchain, Workshop};
use cranelift_codegen::ir::{
    ArgumentPurpose, Function, LibCall, Signature, TrapCode, Type, UserExternalName, types,
};
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use cranelift_mergefunc::cranelift_codegen;
use std::collections::HashMap;
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A machine that runs programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cpu {
    /// This one, with all that its processor has.
    Native,
    /// aarch64, by an emulator.
    Aarch64,
}

impl Cpu {
    /// An ISA with these settings.
    fn isa(self, settings: &[(&str, &str)]) -> OwnedTargetIsa {
        match self {
            Cpu::Native => isa::native(settings),
            Cpu::Aarch64 => isa::of("aarch64", settings),
        }
    }

    fn tools(self) -> Toolchain {
        match self {
            Cpu::Native => Toolchain::x86_64(),
            Cpu::Aarch64 => Toolchain::aarch64(),
        }
    }
}

/// The memory layout. The first word holds the address of the outer trampoline, the second that of
/// the driver's function for imports, and the next ones those of [`LIBRARY`]; then come the
/// runtime, the program, and its data.
const BASE: u64 = 0x6000_0000;
const LIBRARY_AT: u64 = BASE + 16;
const RUNTIME: u64 = BASE + 256;
const CODE: u64 = BASE + (8 << 20);
const DATA: u64 = BASE + (120 << 20);
const BASE_BYTES: u64 = 512 << 20;
const MEMORY: u64 = BASE + BASE_BYTES + (1 << 20);
/// Far from everything else, and a multiple of 4 GiB.
const SURROUNDINGS: u64 = 0x1234_0000_0000;

/// The functions of the runtime library that compiled code may call. `driver.c` has them, in this
/// order.
const LIBRARY: [LibCall; 15] = [
    LibCall::CeilF32,
    LibCall::CeilF64,
    LibCall::FloorF32,
    LibCall::FloorF64,
    LibCall::TruncF32,
    LibCall::TruncF64,
    LibCall::NearestF32,
    LibCall::NearestF64,
    LibCall::FmaF32,
    LibCall::FmaF64,
    LibCall::Memcpy,
    LibCall::Memset,
    LibCall::Memmove,
    LibCall::Memcmp,
    LibCall::X86Pshufb,
];

/// The settings with which programs are compiled, and what they call and are called by.
fn settings(level: Level) -> [(&'static str, &'static str); 9] {
    [
        ("opt_level", level.name()),
        ("use_colocated_libcalls", "false"),
        ("is_pic", "false"),
        ("preserve_frame_pointers", "true"),
        ("enable_multi_ret_implicit_sret", "true"),
        ("enable_llvm_abi_extensions", "true"),
        ("enable_verifier", "true"),
        ("unwind_info", "true"),
        ("enable_pinned_reg", "true"),
    ]
}

/// Programs with their invocations, ready to be run.
pub struct Batch {
    cpu: Cpu,
    words: Vec<u64>,
    /// For each program, the results of each invocation.
    shapes: Vec<Vec<usize>>,
}

impl Batch {
    /// No programs.
    pub fn new(cpu: Cpu) -> Batch {
        Batch { cpu, words: Vec::new(), shapes: Vec::new() }
    }

    /// Where its programs run.
    pub fn cpu(&self) -> Cpu {
        self.cpu
    }

    /// Compiles a program.
    ///
    /// # Errors
    ///
    /// Functions that cannot be compiled for the machine; the batch is as it was before.
    pub fn add(
        &mut self,
        level: Level,
        program: &Program,
        invocations: &[Invocation],
    ) -> Result<(), String> {
        let isa = self.cpu.isa(&settings(level));
        let mut runtime = Runtime::new(self.cpu);
        // It must restore the pinned register, too, as a function that C calls.
        let unpinned = &settings(Level::None)[..8];
        let outer = runtime.place(&*self.cpu.isa(unpinned), stubs::outer_trampoline())?;
        let mut inner: HashMap<Signature, u64> = HashMap::new();
        for Invocation { signature, .. } in invocations {
            if !inner.contains_key(signature) {
                let address = runtime.place_stub(stubs::inner_trampoline(signature))?;
                inner.insert(signature.clone(), address);
            }
        }
        let mut failed = None;
        let library = runtime.library();
        let library = |libcall| match library.get(&libcall) {
            Some(address) => *address,
            None => panic!("the library call {libcall}, which the driver does not have"),
        };
        let mut stubs: HashMap<(UserExternalName, Signature), u64> = HashMap::new();
        let ground = Ground {
            isa: &*isa,
            code: CODE,
            data: DATA,
            memory: MEMORY,
            stub: &mut |symbol, signature| {
                let key = (symbol.clone(), signature.clone());
                *stubs.entry(key).or_insert_with(|| match runtime.stub(symbol, signature) {
                    Ok(address) => address,
                    Err(error) => {
                        failed = Some(error);
                        RUNTIME
                    }
                })
            },
            library: &library,
        };
        let mut placed = Placed::new(program, ground)?;
        if let Some(error) = failed {
            return Err(error);
        }
        assert!(RUNTIME + runtime.bytes.len() as u64 <= CODE, "room for the runtime");
        assert!(CODE + placed.code.len() as u64 <= DATA, "room for the code");
        assert!(DATA + placed.data.len() as u64 <= BASE + BASE_BYTES, "room for data");

        let mut first = vec![0; (RUNTIME - BASE) as usize];
        first[..8].copy_from_slice(&outer.to_le_bytes());
        first.extend(&runtime.bytes);
        self.words.extend([CODE, CODE + placed.code.len() as u64]);
        for (address, bytes) in [(BASE, &first), (CODE, &placed.code), (DATA, &placed.data)] {
            self.words.extend([address, bytes.len() as u64]);
            let words = bytes.chunks(8).map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_le_bytes(word)
            });
            self.words.extend(words);
        }
        let Tables { mut traps, mut sites, mut frames } = std::mem::take(&mut placed.tables);
        traps.extend(runtime.tables.traps);
        sites.extend(runtime.tables.sites);
        frames.extend(runtime.tables.frames);
        self.put_tables(&Tables { traps, sites, frames });

        self.words.push(invocations.len() as u64);
        for Invocation { symbol, signature, arguments, memory_seed, fuel, .. } in invocations {
            let function = placed.address(symbol);
            self.words.extend([inner[signature], function, *memory_seed, *fuel as u64]);
            self.words.push(arguments.len() as u64);
            for argument in arguments {
                self.words.extend(match *argument {
                    Argument::Bits(bits) => [0, bits as u64, (bits >> 64) as u64],
                    Argument::Memory(offset) => [1, u64::from(offset), 0],
                    Argument::Surroundings(offset) => [2, u64::from(offset), 0],
                });
            }
            self.words.push(signature.returns.len() as u64);
            self.words.extend(signature.returns.iter().map(|result| seen_bits(result.value_type)));
        }
        let results = invocations.iter().map(|invocation| invocation.signature.returns.len());
        self.shapes.push(results.collect());
        Ok(())
    }

    fn put_tables(&mut self, tables: &Tables) {
        let Tables { traps, sites, frames } = tables;
        let words = &mut self.words;
        words.push(traps.len() as u64);
        words.extend(traps.iter().flat_map(|(at, code)| [*at, u64::from(code.as_raw().get())]));
        words.push(sites.len() as u64);
        let mut next = 0;
        for (at, site) in sites {
            words.extend([*at, site.frame_offset, next, site.handlers.len() as u64]);
            next += site.handlers.len() as u64;
        }
        words.push(next);
        for handler in sites.values().flat_map(|site| &site.handlers) {
            words.extend(match *handler {
                Handler::Tag(tag, pc) => [0, u64::from(tag), pc],
                Handler::Default(pc) => [1, 0, pc],
                Handler::ContextAt(offset) => [2, 0, offset],
                Handler::ContextElsewhere => [3, 0, 0],
            });
        }
        words.push(frames.len() as u64);
        next = 0;
        for (at, frame) in frames {
            words.extend([*at, frame.end, next, frame.saved.len() as u64]);
            next += frame.saved.len() as u64;
        }
        words.push(next);
        for (register, below) in frames.values().flat_map(|frame| &frame.saved) {
            words.extend([u64::from(*register), *below]);
        }
    }

    /// Adds the programs of another batch.
    pub fn append(&mut self, other: Batch) {
        self.words.extend(other.words);
        self.shapes.extend(other.shapes);
    }

    /// Runs everything: for each program one outcome for each invocation.
    pub fn run(self) -> Vec<Vec<Outcome>> {
        let workshop = Workshop::new("batch");
        let memory = [MEMORY, MEMORY_BYTES as u64, SURROUNDINGS, SURROUNDINGS_BYTES as u64];
        let header = [BASE, BASE_BYTES].into_iter().chain(memory);
        let words = header.chain([self.shapes.len() as u64]).chain(self.words);
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        workshop.write("in", bytes);
        let ran = workshop.run_by(&self.cpu.tools(), driver(self.cpu), &["in", "out"]);
        let bytes = ran.map(|_| std::fs::read(workshop.path("out")).expect("what came of it"));
        // Wrongly merged code can end the driver. Its files are of no use.
        drop(workshop);
        let bytes = bytes.unwrap_or_else(|error| panic!("{error}"));
        let words = bytes.chunks_exact(8);
        let mut words = words.map(|word| u64::from_le_bytes(word.try_into().expect("eight")));
        let shapes = self.shapes.into_iter();
        shapes
            .map(|results| results.into_iter().map(|count| outcome(&mut words, count)).collect())
            .collect()
    }
}

fn outcome(words: &mut dyn Iterator<Item = u64>, results: usize) -> Outcome {
    fn next(words: &mut dyn Iterator<Item = u64>) -> u64 {
        words.next().expect("all outcomes")
    }
    fn wide(words: &mut dyn Iterator<Item = u64>) -> u128 {
        u128::from(next(words)) | u128::from(next(words)) << 64
    }
    let (end, value) = (next(words), next(words));
    let end = match end {
        0 => End::Returned((0..results).map(|_| wide(words)).collect()),
        1 => {
            let code = NonZeroU8::new(value as u8).expect("a code");
            End::Trapped(TrapCode::from_raw(code))
        }
        2 => End::Signal(value as i32),
        3 => End::Uncaught(value as u32),
        _ => End::GaveUp,
    };
    let (calls, _) = (next(words), next(words));
    let trace = (0..calls).map(|_| {
        let callee = UserExternalName::new(next(words) as u32, next(words) as u32);
        let arguments = (0..next(words)).map(|_| wide(words)).collect();
        Call { callee, arguments }
    });
    let trace = trace.collect();
    Outcome { end, trace, memory: next(words) }
}

/// The width of a value as the driver gets it: 65 for a value that may be an address.
fn seen_bits(ty: Type) -> u64 {
    if ty == types::I64 { 65 } else { u64::from(ty.bits()) }
}

/// Trampolines, stubs, and the data of the stubs.
struct Runtime {
    isa: OwnedTargetIsa,
    bytes: Vec<u8>,
    tables: Tables,
}

impl Runtime {
    fn new(cpu: Cpu) -> Runtime {
        let isa = cpu.isa(&settings(Level::None));
        Runtime { isa, bytes: Vec::new(), tables: Tables::default() }
    }

    fn next(&mut self, alignment: usize) -> u64 {
        let end = (RUNTIME as usize + self.bytes.len()).next_multiple_of(alignment);
        self.bytes.resize(end - RUNTIME as usize, 0);
        end as u64
    }

    fn place(&mut self, isa: &dyn TargetIsa, func: Function) -> Result<u64, String> {
        let compiled = Compiled::of(isa, func)?;
        assert!(compiled.is_closed(), "the runtime refers to nothing by name");
        let address = self.next(ALIGNMENT);
        self.bytes.extend(&compiled.code);
        compiled.add_to(&mut self.tables, address);
        Ok(address)
    }

    fn place_stub(&mut self, func: Function) -> Result<u64, String> {
        let isa = self.isa.clone();
        self.place(&*isa, func)
    }

    /// Jumps to what the driver has of the runtime library. Only code for x86-64 calls it.
    fn library(&mut self) -> HashMap<LibCall, u64> {
        let mut jumps = HashMap::new();
        if self.isa.name() == "x64" {
            for (libcall, at) in LIBRARY.into_iter().zip((LIBRARY_AT..).step_by(8)) {
                let address = self.next(8);
                // jmp [rip + …]
                self.bytes.extend([0xff, 0x25]);
                self.bytes.extend((at.wrapping_sub(address + 6) as u32).to_le_bytes());
                jumps.insert(libcall, address);
            }
        }
        jumps
    }

    fn stub(&mut self, symbol: &UserExternalName, signature: &Signature) -> Result<u64, String> {
        let about = self.next(8);
        let Signature { params, returns, .. } = signature;
        let throws = u64::from(symbol.namespace == THROWING);
        let mut words = vec![u64::from(symbol.namespace), u64::from(symbol.index), throws];
        words.extend([params.len() as u64, returns.len() as u64]);
        words.extend(params.iter().map(|param| match param.purpose {
            ArgumentPurpose::Normal | ArgumentPurpose::VMContext => seen_bits(param.value_type),
            ArgumentPurpose::StructArgument(_) | ArgumentPurpose::StructReturn => 0,
        }));
        self.bytes.extend(words.into_iter().flat_map(u64::to_le_bytes));
        self.place_stub(stubs::import(signature, BASE + 8, about))
    }
}

/// The driver, compiled unless one of the same source is left from an earlier run.
fn driver(cpu: Cpu) -> &'static Path {
    static DRIVERS: [OnceLock<PathBuf>; 2] = [const { OnceLock::new() }; 2];
    DRIVERS[cpu as usize].get_or_init(|| {
        let text = include_str!("driver.c");
        let digest = text.bytes().fold(0_u64, |digest, byte| {
            (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3).rotate_left(5)
        });
        // Tests have a place for this, fuzz targets do not.
        let temporary = option_env!("CARGO_TARGET_TMPDIR").map(PathBuf::from);
        let directory = temporary.unwrap_or_else(std::env::temp_dir).join("drivers");
        std::fs::create_dir_all(&directory).expect("a directory that can be made");
        let driver = directory.join(format!("{cpu:?}-{digest:016x}"));
        if driver.exists() {
            return driver;
        }
        // Another process may be compiling the driver, too.
        let workshop = Workshop::new("driver");
        workshop.write("driver.c", text);
        let warnings = ["-Wall", "-Wno-implicit-fallthrough"];
        let files = ["-O1", "-static", "driver.c", "-o", "driver", "-lm"];
        workshop.run(cpu.tools().gcc, &[&warnings[..], &files].concat());
        let own = directory.join(format!("{cpu:?}-{}", std::process::id()));
        std::fs::copy(workshop.path("driver"), &own).expect("a file that can be copied");
        std::fs::rename(own, &driver).expect("a file that can be renamed");
        driver
    })
}
