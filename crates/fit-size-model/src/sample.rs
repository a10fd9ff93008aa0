//! The data of a fit: functions with their features and the bytes that they take.

use anyhow::Result;
use arbitrary::Unstructured;
use clif_unit::contain::contain;
use clif_unit::sources;
use clif_unit::unit::{Reading, parse_unit};
use clif_unit::verify::Verifier;
use cranelift_codegen::Context;
use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::TargetIsa;
use cranelift_mergefunc::cranelift_codegen;
use cranelift_size_model::{Feature, Registers, Scratch as SizeScratch, features};
use rayon::prelude::*;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use testkit::generate::function::Profile;
use testkit::generate::opcodes::Machine;
use testkit::generate::unit::GeneratedUnit;
use testkit::support::Rng;

/// A function.
pub struct Sample {
    /// Each feature once.
    pub features: Vec<(Feature, f64)>,
    /// The size of its native code.
    pub bytes: f64,
}

/// Functions of one origin.
pub struct Group {
    /// The name of the unit.
    pub name: String,
    /// Its functions, as far as they can be compiled.
    pub samples: Vec<Sample>,
}

/// All functions of a unit. Of a directory, all functions of each file below it that is a unit for
/// this target.
pub fn unit(path: &Path, isa: &dyn TargetIsa, registers: &Registers) -> Result<Group> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let verifier = Verifier::new(isa);
    let parse = |file: &Path| {
        let sources = sources::read(&[file.to_owned()])?;
        parse_unit(&sources, Reading::plain(&verifier))
    };
    let mut functions = Vec::new();
    if path.is_dir() {
        for file in files(path)? {
            // Not every filetest is meant to be read.
            functions.extend(parse(&file).map(|unit| unit.functions).unwrap_or_default());
        }
    } else {
        functions = parse(path)?.functions;
    }
    let samples = functions.par_iter().filter_map(|func| sample(func, isa, registers));
    Ok(Group { name, samples: samples.collect() })
}

/// The files of CLIF below a directory.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut directories) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in sources::entries(&directory)? {
            match entry.is_directory {
                true => directories.push(entry.path),
                false => files.push(entry.path),
            }
        }
    }
    Ok(files)
}

/// Random functions, which have instructions that the units lack.
pub fn generated(isa: &dyn TargetIsa, registers: &Registers) -> Group {
    let profile = Profile::runnable(match isa.name() {
        "x64" => Machine::X86_64,
        _ => Machine::Aarch64,
    });
    let samples = (0..UNITS).into_par_iter().flat_map_iter(|seed| {
        let bytes = Rng::new(seed).bytes(BYTES);
        let unit = GeneratedUnit::draw(&mut Unstructured::new(&bytes), &profile).unit;
        let functions = unit.functions.into_iter();
        functions.filter_map(|member| sample(&member.body, isa, registers)).collect::<Vec<_>>()
    });
    Group { name: "generated".to_owned(), samples: samples.collect() }
}

/// How many random units there are.
const UNITS: u64 = 1000;

/// The bytes that each is drawn from.
const BYTES: usize = 8192;

/// A function, if it can be compiled.
pub fn sample(func: &Function, isa: &dyn TargetIsa, registers: &Registers) -> Option<Sample> {
    let compile = || {
        let mut context = Context::for_function(func.clone());
        let code = context.compile(isa, &mut Default::default()).ok()?;
        Some(code.code_info().total_size)
    };
    let bytes = contain(compile).ok()??.into();
    let mut counts: HashMap<Feature, f64> = HashMap::new();
    features(func, registers, &mut SizeScratch::default(), &mut |feature, times| {
        *counts.entry(feature).or_default() += f64::from(times);
    });
    let mut features: Vec<(Feature, f64)> = counts.into_iter().collect();
    // In one order, so that the same weights are fitted whenever they are.
    features.sort_by_key(|(feature, _)| order(feature));
    Some(Sample { features, bytes })
}

fn order(feature: &Feature) -> (u8, u8, u8) {
    match *feature {
        Feature::Instruction(opcode, class) => (0, opcode as u8, class as u8),
        Feature::Constant(of, kind) => (1, of as u8, kind as u8),
        Feature::Quantity(quantity) => (2, quantity as u8, 0),
    }
}
